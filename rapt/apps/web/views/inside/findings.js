// SPDX-License-Identifier: Apache-2.0
// What a reading says, in sentences with numbers: where most heads look, which head copies the token before,
// what the largest activation is worth, what gates do.
import {pictureWords} from '/page/figures.js';
import {count, tr} from '/page/i18n.js';
import {number} from '/page/shared/numbers.js';

const mean = (list) => list.reduce((a, x) => a + x, 0) / list.length;
export const signed = (x) => `${x < 0 ? '−' : '+'}${number(Math.abs(x))}`;
export const percent = (share) => `${(100 * share).toFixed(1)} %`;
// Of perplexities, which have many sizes.
export const big = (x) => !Number.isFinite(x) || x >= 1e12 ? number(x) :
    x >= 1e5                                               ? count(Number(x.toPrecision(3))) :
    x >= 1000                                              ? count(Math.round(x)) :
                                                             x.toFixed(2);
export const change = (before, after) => after >= 10 * before ?
    `×${after < 1e5 * before ? number(after / before) : big(after / before)}` :
    `${after < before ? '−' : '+'}${percent(Math.abs(after / before - 1))}`;

// Indices of the finite values, largest first.
export function order(values) {
  return [...values.keys()].filter((i) => Number.isFinite(values[i])).sort((a, b) => values[b] - values[a]);
}

// The edit that sets the largest activation to zero where it appears; null: there is none.
export function largest(massive) {
  const row = massive.rows[massive.first_row], a = massive.top.find((x) => x.row === row);
  if (!a || massive.first_row < 1) return null;
  const layer = massive.first_row - 1;
  return {...a, layer, edit: zeroEdit(layer, a.token, a.channel)};
}
export const zeroEdit = (layer, token, channel) => `resid_post.${layer}@p${token}@c${channel}:zero`;
export const kOpenGates = 'attn_gate.*:replace=100';

// all: the reading; maps: of all heads, or null; zeroed, open: perplexities, or undefined while unknown.
// → [name, sentence, edit or null]
export function sentences({all, maps, zeroed, open}, quoted) {
  const {heads, layers} = all.shape, out = [], n = all.shape.tokens;
  const nameOf = (i) => tr('inside_head_name', {l: Math.floor(i / heads), h: i % heads});
  out.push(
      ['text', tr('inside_find_text', {n, loss: number(all.tokens.loss), p: big(all.tokens.perplexity)})]);
  const h = all.heads;
  if (!h && heads) out.push(['long', tr('inside_find_long', {most: 2048})]);
  if (h && maps) {
    const votes = new Map();
    maps.most.flat().forEach((t, i) => {
      if (t === null) return;
      const v = votes.get(t) || {t, heads: 0, share: 0};
      ++v.heads;
      v.share += maps.share.flat()[i];
      votes.set(t, v);
    });
    const [top] = [...votes.values()].sort((a, b) => b.heads - a.heads || a.t - b.t);
    const of = maps.most.flat().filter((t) => t !== null).length;
    if (top) {
      const key = 2 * top.heads > of ? 'inside_find_looked' : 'inside_find_looked_few';
      out.push(
          ['looked', tr(key, {n: top.heads, of, t: quoted(top.t), share: number(top.share / top.heads)})]);
    }
  }
  if (h) {
    const sum = (list) => list.reduce((a, x) => a + x, 0), first = h.sinks.mean;
    out.push([
      'sinks', tr('inside_find_sinks', {
        n: sum(h.sinks.heads),
        of: sum(h.sinks.of),
        t: quoted(0),
        l: order(first)[0],
        share: number(first[order(first)[0]])
      })
    ]);
    const best = order(h.values.previous)[0];
    const named = h.labels.filter((x) => x.startsWith('previous token')).length;
    if (best !== undefined)
      out.push([
        'previous',
        tr('inside_find_previous', {head: nameOf(best), share: number(h.values.previous[best]), n: named})
      ]);
    const again = order(h.values.induction)[0];
    if (again !== undefined && h.values.induction[again] > 0)
      out.push([
        'induction',
        tr('inside_find_induction', {head: nameOf(again), share: number(h.values.induction[again])})
      ]);
  }
  const a = all.massive && largest(all.massive);
  if (a) {
    out.push([
      'massive',
      tr(a.massive ? 'inside_find_massive' : 'inside_find_no_massive',
         {c: a.channel, t: quoted(a.token), l: a.layer, v: number(a.value), ratio: number(a.ratio)})
    ]);
    if (zeroed !== undefined)
      out.push([
        'zero', tr('inside_find_zero', {
          c: a.channel,
          t: quoted(a.token),
          l: a.layer,
          a: big(all.tokens.perplexity),
          b: big(zeroed),
          by: change(all.tokens.perplexity, zeroed)
        }),
        a.edit
      ]);
  }
  if (h) {
    const gate = order(h.values.gate);
    if (!gate.length) out.push(['gate', tr('inside_find_no_gate')]);
    else {
      const {mean: m, closed, layers: by} = gatesOf(all), tight = order(by.map((x) => x.closed))[0];
      out.push([
        'gate', tr('inside_find_gate', {
          m: number(m),
          closed: percent(closed),
          l: tight,
          share: percent(by[tight].closed),
          first: percent(by[0].closed)
        })
      ]);
      if (open !== undefined)
        out.push([
          'open',
          tr('inside_find_open',
             {a: big(all.tokens.perplexity), b: big(open), by: change(all.tokens.perplexity, open)}),
          kOpenGates
        ]);
    }
  }
  return out.map(([name, text, edit = null]) => [name, text, edit]);
}

// Means over heads, by layer.
export function gatesOf(all) {
  const {layers, heads} = all.shape, {gate, gate_closed: shut} = all.heads.values, by = [];
  for (let l = 0; l < layers; ++l) {
    const here = [...Array(heads).keys()].map((x) => l * heads + x).filter((i) => Number.isFinite(gate[i]));
    by.push({
      mean: here.length ? mean(here.map((i) => gate[i])) : NaN,
      closed: here.length ? mean(here.map((i) => shut[i])) : NaN
    });
  }
  const real = by.filter((x) => Number.isFinite(x.mean));
  return {layers: by, mean: mean(real.map((x) => x.mean)), closed: mean(real.map((x) => x.closed))};
}

// The heads whose figure an edit changed most: → [[i, before, after]]
export function changed(before, after, key, count = 3) {
  const a = before.heads.values[key], b = after.heads.values[key];
  const by = a.map((x, i) => Math.abs(b[i] - x));
  return order(by).slice(0, count).filter((i) => by[i] > 0).map((i) => [i, a[i], b[i]]);
}
export const metricName = (key) => key === 'sink' ? tr('inside_sink') : pictureWords.nameOf({key});
