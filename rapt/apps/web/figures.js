// SPDX-License-Identifier: Apache-2.0
// What pictures are drawn with (/page/shared/: heat.js, heads.js, map.js, arcs.js, grid.js, plot.js,
// documents.js): the colours of the theme that holds, and the words that the report has for them.
//   painter       table(signed), css(index), ink(index)
//   pictureWords  word(key, values), nameOf({key}), labelOf(label): words.js
import {coloursOf, painterOf} from '/page/shared/colours.js';
import {wordsOf} from '/page/shared/words.js';
import {state} from './state.js';

export const painter = {}, pictureWords = {};

export async function loadFigures() {
  const get = async (name) => (await fetch(`/page/shared/${name}.json`)).json();
  const [colours, words] = await Promise.all([get('colours'), get('words')]);
  const pages = Object.fromEntries(Object.entries(words).map(([lang, parts]) => [lang, parts.page]));
  Object.assign(painter, painterOf(coloursOf(colours), () => state.theme));
  const {tr: word, nameOf, labelOf} = wordsOf(pages, () => state.lang);
  Object.assign(pictureWords, {word, nameOf, labelOf});
}
