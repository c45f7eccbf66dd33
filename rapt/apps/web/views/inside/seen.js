// SPDX-License-Identifier: Apache-2.0
// What is chosen in the view "inside", what was read (reading.js), and who draws when either changes. Figures
// of a text are kept as they came; every part of the view reads them here.
import {pictureWords} from '/page/figures.js';
import {shown} from '/page/shared/signs.js';

export const kMetrics = [
  'first', 'sink', 'self', 'previous', 'induction', 'entropy', 'distance', 'variance', 'strongest',
  'max_logit', 'gate', 'gate_closed'
];

// What is chosen here. over: 'text', means over the text, or 'token', the chosen token alone.
export const pick = {
  l: 0,
  h: 0,
  t: 0,
  k: -1,
  metric: 'first',
  over: 'text',
  colour: 'attention',
  root: true
};
// What was read. subject: {model, ids or text, from: {message, conversation, begin} or null}; all: figures
// of the whole text; base: the same without the edits, null where there are none; detail: of the chosen token
// and head; maps: of all heads, small; extra: perplexities with one change; live: a frame of an answer on its
// way; problem: an error that is told; playing: since when, 0: not.
export const seen = {
  subject: null,
  all: null,
  base: null,
  detail: null,
  maps: null,
  extra: {},
  live: null,
  problem: null,
  busy: '',
  visible: false,
  stale: true,
  playing: 0
};

const listeners = [];
export const on = (keys, fn) => listeners.push({keys: keys.split(' '), fn});
// Draws what follows one of these: pick's names, 'all', 'detail', 'maps', 'extra', 'live', 'status', 'read'
// (a text begins to be read), 'tokens' (another text is there), 'lang', 'theme'.
export function changed(...keys) {
  for (const one of listeners)
    if (one.keys.some((key) => keys.includes(key))) one.fn();
}

export const at = (l = pick.l, h = pick.h) => l * seen.all.shape.heads + h;
export const quoted = (t) => `${t} “${shown(seen.all.texts[t])}”`;
export const labelOf = (l, h) =>
    seen.all.heads ? pictureWords.labelOf(seen.all.heads.labels[l * seen.all.shape.heads + h]) : '';
