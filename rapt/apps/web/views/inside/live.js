// SPDX-License-Identifier: Apache-2.0
// What came by while answers were written: a frame of every head's statistics for each token, kept as it came
// (base64 of f16) and read only where it is shown. Frames of the oldest answers go first.
import {registerColouring, repaintTokens} from '/page/tokens.js';
import {onFrame} from '/page/work.js';

import {halfAt, halves} from './look.js';

// Columns of a frame and of `token` in a look (the op's own order).
export const kColumns = ['entropy', 'first', 'self', 'previous', 'distance', 'strongest', 'max_logit', 'sum'];
const kMostBytes = 48e6;

const answers = new Map();  // id of a message → {rows: Map(row → text), shape, first, last, begin, node}
let bytes = 0, waiting = false;
const watchers = new Set();
export const watch = (fn) => watchers.add(fn);
export const framesOf = (id) => answers.get(id) || null;

onFrame((frame, {node, conversation, answer}) => {
  let one = answers.get(node.id);
  if (!one) {
    one = {rows: new Map(), shape: frame.shape, node, conversation: conversation.id, begins: [], bytes: 0};
    answers.set(node.id, one);
  }
  const prompt = answer.promptIds ? answer.promptIds.length : 0, part = node.parts[node.parts.length - 1];
  // The row that wrote token i of the answer stands at prompt + i - 1.
  if (!one.begins.some((b) => b.from === part.from)) one.begins.push({from: part.from, prompt});
  const size = frame.stats.length;
  one.rows.set(frame.row, frame.stats);
  one.last = frame.row;
  one.bytes += size;
  bytes += size;
  for (const [id, old] of answers) {
    if (bytes <= kMostBytes || id === node.id) break;
    bytes -= old.bytes;
    answers.delete(id);
  }
  if (waiting) return;
  waiting = true;  // no more than one drawing for each frame of the screen
  requestAnimationFrame(() => {
    waiting = false;
    const newest = [...answers.values()].pop();
    for (const fn of watchers) fn(newest);
  });
});

export const statsAt = (one, row) => one.rows.has(row) ? halves(one.rows.get(row)) : null;

// Row of the frame of token i of an answer, -1: none.
function rowOf(one, i) {
  const part = [...one.begins].reverse().find((b) => b.from <= i);
  return part ? part.prompt + i - part.from - 1 : -1;
}

const entropies = new Map();  // id of a message → {of: [nats by token of the text], at: of its first token}
export function keepEntropy(id, value) {
  entropies.set(id, value);
  if (entropies.size > 64) entropies.delete(entropies.keys().next().value);
  repaintTokens();
}

// Colourings of the chat's tokens. pick: which head and which figure the view shows.
export function beginColourings(pick, most) {
  registerColouring({
    name: 'entropy',
    title: 'inside_by_entropy',
    offers: (owner) => entropies.has(owner),
    ends: () => ['0', '6+'],
    index: (token, i, owner) => {
      const known = entropies.get(owner), x = known ? known.of[known.at + i] : null;
      return Number.isFinite(x) ? Math.round(255 * Math.min(1, x / 6)) : -1;
    }
  });
  registerColouring({
    name: 'head',
    title: 'inside_by_head',
    offers: (owner) => answers.has(owner),
    ends: () => ['0', String(most())],
    index: (token, i, owner) => {
      const one = answers.get(owner), row = one ? rowOf(one, i) : -1, column = kColumns.indexOf(pick.metric);
      if (row < 0 || column < 0 || !one.rows.has(row)) return -1;
      const [layers, heads, columns] = one.shape;
      if (pick.l >= layers || pick.h >= heads) return -1;
      const x = halfAt(one.rows.get(row), (pick.l * heads + pick.h) * columns + column);
      return Number.isFinite(x) ? Math.round(255 * Math.min(1, Math.max(0, x / most()))) : -1;
    }
  });
}
