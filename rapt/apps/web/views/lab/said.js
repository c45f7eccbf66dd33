// SPDX-License-Identifier: Apache-2.0
// What the server says in both languages, and the signs of its marks.
import {state} from '../../state.js';

// {en, zh}, or one text for both.
export const inWords = (text) => typeof text === 'string' ? text : text[state.lang];
export const kSigns = {
  right: '✓',
  imprecise: '≈',
  wrong: '✗'
};
