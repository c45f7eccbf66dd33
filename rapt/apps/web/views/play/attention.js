// SPDX-License-Identifier: Apache-2.0
// One attention layer in float64, small enough to be read whole. No page and no clock: everything follows
// from the tokens and the settings. The conventions are those of rapt/ops (attention.h, rope.h, norm.h) and
// run/batch.h.
//
//   x = a vector per token, of a hash of its text (+ sinusoid)                              [T,C]
//   q, k, v = x Wq, x Wk, x Wv of each head; q and k may be normalised, then turned (RoPE)  [T,D]
//   score = cap tanh(scale q.k / (temperature cap)) - slope |distance|
//   p = softmax over the keys that are seen and the sink's logit   |   sigmoid(score)
//   z = sum p v,  times sigmoid(x Wg + bias) where there is a gate
export const kWidth = 8, kMostTokens = 12;

export const defaults = {
  seed: 1,
  heads: 2,
  dim: 4,            // even
  keys: 'own',       // 'own' | 'queries': Wk is Wq
  scale: 'root',     // 'none' | 'root' | 'own'
  factor: 1,         // scale own
  temperature: 1,    // divides the scores
  cap: 0,            // 0: none
  norm: 'none',      // 'none' | 'rms' | 'l2', on q and k
  positions: 'none', // 'none' | 'rope' | 'alibi' | 'sinusoid'
  mask: 'causal',    // 'causal' | 'full' | 'window' | 'keep'
  window: 3,
  keep: 1,           // mask keep: first keys that stay visible beside the window
  normal: 'softmax', // 'softmax' | 'sigmoid'
  sink: 'none',      // 'none' | 'zero' | 'learned', of the softmax
  logit: 0,          // sink learned
  gate: 'none',      // 'none' | 'sigmoid'
  bias: 0,           // of the gate
};

// ------------------------------------------------------------------------------------------------- tokens
// Words, numbers and signs; of Chinese and Japanese every character.
const kSign = '\\p{Script=Han}\\p{Script=Hiragana}\\p{Script=Katakana}';
const kPiece = new RegExp(`[${kSign}]|(?:(?![${kSign}])[\\p{L}\\p{M}\\p{N}'’])+|\\S`, 'gu');
export const tokensOf = (text) => text.match(kPiece) || [];

// ------------------------------------------------------------------------------------- numbers of a counter
// Word number i of a stream: what stands before it is not needed. Murmur3's finishing steps.
function mixed(h) {
  h = Math.imul(h ^ h >>> 16, 0x85EBCA6B);
  h = Math.imul(h ^ h >>> 13, 0xC2B2AE35);
  return (h ^ h >>> 16) >>> 0;
}
export const drawn = (seed, stream, i) => mixed(mixed(mixed(seed) + stream) + Math.imul(i, 0x9E3779B9));

// About normal, of variance 1 (four uniform numbers), to two places, so that it can be followed by hand.
function normal(seed, stream, i) {
  let sum = -2;
  for (let j = 0; j < 4; ++j) sum += drawn(seed, stream, 4 * i + j) / 2 ** 32;
  return Math.round(100 * Math.sqrt(3) * sum) / 100;
}

// FNV-1a of the text in UTF-8, without regard to case.
export function hash(text) {
  let h = 0x811C9DC5;
  for (const byte of new TextEncoder().encode(text.toLowerCase())) h = Math.imul(h ^ byte, 0x01000193);
  return h >>> 0;
}

const vectorOf = (token, seed) => Array.from({length: kWidth}, (_, i) => normal(seed, hash(token), i));
// Role 0 … 3: Wq, Wk, Wv, Wg of a head, [D,C]; divided by sqrt(C) when they are used.
const matrixOf = (seed, head, role, dim) => Array.from(
    {length: dim},
    (_, r) => Array.from({length: kWidth}, (_, c) => normal(seed, 16 * head + role + 1, kWidth * r + c)));

// -------------------------------------------------------------------------------------------------- pieces
const dot = (a, b) => a.reduce((sum, x, i) => sum + x * b[i], 0);
const through = (w, x) => w.map((row) => dot(row, x) / Math.sqrt(kWidth));
export const length = (a) => Math.sqrt(dot(a, a));

// As rapt/ops/norm.h, without a weight; eps 1e-6.
function normed(kind, x) {
  if (kind === 'none') return x;
  const sum = dot(x, x), divisor = Math.sqrt((kind === 'rms' ? sum / x.length : sum) + 1e-6);
  return x.map((a) => a / divisor);
}

// Channel i turns with i + D/2 by position * 10000^(-2i/D).
export function turned(x, position) {
  const half = x.length / 2, y = [...x];
  for (let i = 0; i < half; ++i) {
    const angle = position * 10000 ** (-2 * i / x.length), c = Math.cos(angle), s = Math.sin(angle);
    y[i] = x[i] * c - x[i + half] * s;
    y[i + half] = x[i + half] * c + x[i] * s;
  }
  return y;
}

// Sines and cosines alternate (2017).
export const sinusoid = (position) => Array.from({length: kWidth}, (_, i) => {
  const angle = position * 10000 ** (-(i - i % 2) / kWidth);
  return i % 2 ? Math.cos(angle) : Math.sin(angle);
});

// A geometric sequence down to 2^-8; of three heads the third takes from the sequence of four.
export function slopes(heads) {
  let power = 1;
  while (power * 2 <= heads) power *= 2;
  const out = Array.from({length: power}, (_, i) => 2 ** (-8 * (i + 1) / power));
  for (let i = 1; out.length < heads; i += 2) out.push(2 ** (-4 * i / power));
  return out;
}

export const scaleOf = (s) => s.scale === 'root' ? 1 / Math.sqrt(s.dim) : s.scale === 'own' ? s.factor : 1;

export const windowed = (s) => s.mask === 'window' || s.mask === 'keep';
const kept = (s, j) => s.mask === 'keep' && j < s.keep;
function seen(s, i, j) {
  if (s.mask === 'full') return true;
  return j <= i && (!windowed(s) || j > i - s.window || kept(s, j));
}
// Towards the first keys that are kept a query stands no farther away than the window reaches.
const placeFor = (s, i, j) => kept(s, j) ? Math.min(i, s.keep + s.window - 1) : i;

// ----------------------------------------------------------------------------------------------- the layer
// Of each head: q, k, v as attention reads them; steps [T,T] {seen, dot, scaled, capped, away, score};
// weights [T,T], 0 where a key is not seen; sink [T], the weight that the extra logit takes; sum [T] of the
// weights; z [T,D] before the gate, gate [T,D] or null, out [T,D].
export function attend(tokens, s) {
  const x = tokens.map((t, i) => {
    const plain = vectorOf(t, s.seed);
    if (s.positions !== 'sinusoid') return plain;
    const wave = sinusoid(i);
    return plain.map((a, c) => a + wave[c]);
  });
  const slope = slopes(s.heads);
  const heads = Array.from({length: s.heads}, (_, h) => {
    const roles = s.keys === 'queries' ? [0, 0, 2, 3] : [0, 1, 2, 3];
    const w = roles.map((role) => matrixOf(s.seed, h, role, s.dim));
    const [q, k] = [w[0], w[1]].map((m) => x.map((a) => normed(s.norm, through(m, a))));
    const v = x.map((a) => through(w[2], a));
    const rope = s.positions === 'rope';
    const keys = rope ? k.map(turned) : k;
    const away = (i, j) => s.positions === 'alibi' ? slope[h] * Math.abs(j - placeFor(s, i, j)) : 0;
    const steps = x.map((_, i) => keys.map((key, j) => {
      const product = dot(rope ? turned(q[i], placeFor(s, i, j)) : q[i], key);
      const scaled = scaleOf(s) / s.temperature * product;
      const capped = s.cap > 0 ? s.cap * Math.tanh(scaled / s.cap) : scaled;
      return {
        seen: seen(s, i, j),
        dot: product,
        scaled,
        capped,
        away: away(i, j),
        score: capped - away(i, j)
      };
    }));
    const extra = s.normal === 'sigmoid' || s.sink === 'none' ? -Infinity :
        s.sink === 'learned'                                  ? s.logit :
                                                                0;
    const sink = [];
    const weights = steps.map((row) => {
      if (s.normal === 'sigmoid') {
        sink.push(0);
        return row.map((c) => c.seen ? 1 / (1 + Math.exp(-c.score)) : 0);
      }
      const top = row.reduce((m, c) => c.seen ? Math.max(m, c.score) : m, extra);
      const powers = row.map((c) => c.seen ? Math.exp(c.score - top) : 0);
      const all = powers.reduce((a, b) => a + b, Math.exp(extra - top));
      sink.push(Math.exp(extra - top) / all);
      return powers.map((p) => p / all);
    });
    const z = weights.map((row) => v[0].map((_, d) => row.reduce((sum, p, j) => sum + p * v[j][d], 0)));
    const gate = s.gate === 'none' ?
        null :
        x.map((a) => through(w[3], a).map((g) => 1 / (1 + Math.exp(-(g + s.bias)))));
    return {
      q: rope ? q.map(turned) : q,
      k: keys,
      v,
      steps,
      weights,
      sink,
      slope: slope[h],
      sum: weights.map((row) => row.reduce((a, b) => a + b, 0)),
      z,
      gate,
      out: gate ? z.map((row, i) => row.map((a, d) => a * gate[i][d])) : z,
    };
  });
  return {x, heads};
}

// What can be said of one row: its largest weight and where it lies, over how many keys the weights spread
// (e to the entropy of their shares), how many are seen, their sum, the length of what comes out.
export function factsOf(head, row) {
  const weights = head.weights[row], most = Math.max(...weights), sum = head.sum[row];
  const entropy = weights.reduce((h, p) => p > 0 ? h - p / sum * Math.log(p / sum) : h, 0);
  return {
    most,
    at: weights.indexOf(most),
    spread: Math.exp(entropy),
    sum,
    seen: head.steps[row].filter((c) => c.seen).length,
    length: length(head.out[row]),
  };
}
