// SPDX-License-Identifier: Apache-2.0
// Reading a text by POST /v1/look: whole first (seen.all), then for the chosen layer, head and token
// (seen.detail), small maps of all heads (seen.maps), then with a change, for the sentences (findings.js).
import {askJson} from '/page/api.js';
import {tr} from '/page/i18n.js';
import {state} from '/page/state.js';
import {repaintTokens} from '/page/tokens.js';

import * as findings from './findings.js';
import {framesOf, kColumns, keepEntropy, statsAt} from './live.js';
import {flat, forget, look, numbersOf} from './look.js';
import {changed, pick, seen} from './seen.js';

const kMostWhole = 2048, kMostRead = 4096, kMostExtra = 1024;
export const kMostMaps = 512;

const clamp = (x, n) => Math.max(0, Math.min(n - 1, x));
export function choose(patch) {
  if (!seen.all) return;
  const limits = {l: seen.all.shape.layers, h: seen.all.shape.heads, t: seen.all.shape.tokens};
  const keys = [];
  for (const [key, wanted] of Object.entries(patch)) {
    const value = key in limits ? clamp(wanted, limits[key]) :
        key === 'k'             ? Math.max(-1, Math.min(seen.all.shape.tokens - 1, wanted)) :
                                  wanted;
    if (pick[key] === value) continue;
    pick[key] = value;
    keys.push(key);
  }
  if (!keys.length) return;
  if (keys.some((key) => 'lht'.includes(key))) wantDetail();
  changed(...keys);
  if (keys.some((key) => ['l', 'h', 'metric'].includes(key))) repaintTokens();
}

export function setOver(over) {
  const metric = over === 'token' && ![...kColumns, 'gate'].includes(pick.metric) ? 'first' : pick.metric;
  choose({over, metric});
}

export function open(next) {
  seen.subject = {...next, fresh: true};
  seen.live = null;
  seen.all = seen.base = seen.detail = seen.maps = null;
  seen.extra = {};
  seen.problem = null;
  changed('all', 'live');
  if (seen.visible) read();
  else seen.stale = true;
}

function shapeReply(reply) {
  const tokens = reply.tokens, heads = reply.heads && {...reply.heads, values: {}};
  if (heads) {
    for (const [key, rows] of Object.entries(reply.heads.values)) heads.values[key] = [...flat(rows)];
    heads.labels = reply.heads.labels.flat();
  }
  const texts = tokens.text.map(
      (text, i) => tokens.bytes[i] ?
          tokens.bytes[i].map((b) => `<${b.toString(16).padStart(2, '0')}>`).join('') :
          text);
  const massive = reply.massive && {...reply.massive, values: numbersOf(reply.massive.largest)};
  return {shape: reply.shape, tokens, texts, ids: tokens.ids, heads: heads || null, massive: massive || null};
}

const tooLong = (n, most) => tr('inside_too_long', {n, most});
// What is under way, in words; the view is ready when nothing is.
const going = [];
async function attempt(what, ask) {
  const mine = {what};
  going.push(mine);
  seen.busy = what;
  seen.problem = null;
  changed('status');
  try {
    return await ask();
  } catch (error) {
    seen.problem = error;
    if (/are looked at/.test(error.message)) seen.problem = {words: () => tooLong(...error.numbers)};
    return null;
  } finally {
    going.splice(going.indexOf(mine), 1);
    seen.busy = going.length ? going[going.length - 1].what : '';
    changed('status');
  }
}

export async function read() {
  seen.stale = false;
  if (!seen.subject || !state.model) return;
  const mine = seen.subject;
  changed('read');
  forget();
  if (!mine.ids && mine.text.length > kMostWhole) {  // perhaps too long for all of it
    const reply =
        await attempt('reading', () => askJson('/tokenize', {body: {model: mine.model, prompt: mine.text}}));
    if (!reply || mine !== seen.subject) return;
    mine.ids = reply.tokens;
  }
  const known = mine.ids ? mine.ids.length : 0;
  if (known > kMostRead) {
    seen.all = seen.detail = seen.maps = null;
    seen.problem = {words: () => tooLong(known, kMostRead)};
    changed('status');
    return changed('all');
  }
  const body = (want, more = {}) => ({
    model: mine.model,
    ...(mine.ids ? {ids: mine.ids} : {text: mine.text}),
    want,
    encoding: 'f32',
    ...more
  });
  const whole = known <= kMostWhole ? ['tokens', 'heads', 'massive'] : ['tokens'];
  const top = known > kMostMaps ? 3 : 5, edits = [...state.edits];
  const ask = (list) => look('all', body(whole, {top, ...(list.length ? {edits: list} : {})}));
  const first = mine.plain ? null : await attempt('reading', () => ask([]));
  if (mine !== seen.subject || (!first && !mine.plain)) return;
  if (first) {
    mine.plain = shapeReply(first);
    mine.ids = mine.plain.ids;
  }
  seen.base = edits.length ? mine.plain : null;
  if (edits.length) {
    const reply = await attempt('editing', () => ask(edits));
    if (mine !== seen.subject) return;
    if (!reply && seen.problem) return changed('all');  // the sentence says which edit, and why
    if (!reply) return;
    seen.all = shapeReply(reply);
  } else seen.all = mine.plain;
  seen.all.edits = edits;
  seen.detail = seen.maps = null;
  seen.extra = {};
  cache.clear();
  if (mine.fresh) {
    mine.fresh = false;
    begin(mine);
  }
  for (const [key, n] of [
           ['l', seen.all.shape.layers], ['h', seen.all.shape.heads], ['t', seen.all.shape.tokens]])
    pick[key] = clamp(pick[key], n);
  changed('tokens');
  changed('all', 'l', 'h', 't', 'lang');
  if (mine.from && !edits.length) {
    const own = seen.all.ids.length - mine.from.begin;
    if (own > 0) keepEntropy(mine.from.message, {of: seen.all.tokens.entropy, at: mine.from.begin});
  }
  await wantDetail();
  if (mine !== seen.subject || seen.all.edits !== edits) return;
  if (seen.all.shape.tokens <= kMostMaps) {
    const reply =
        await attempt('maps', () => look('maps', {...request(['maps']), encoding: 'u8', pixels: 40}));
    if (!reply || mine !== seen.subject) return;
    const w = reply.maps.weights, bytes = numbersOf(w), [layers, heads, rows, keys] = w.shape;
    seen.maps = {
      ...reply.maps,
      scale: w.scale,
      small: Array.from(
          {length: layers * heads},
          (_, i) => reply.maps.most[Math.floor(i / heads)][i % heads] === null ?
              null :
              {rows, keys, pixels: bytes.subarray(i * rows * keys, (i + 1) * rows * keys)})
    };
    changed('maps');
  }
  await wantExtra(mine);
}
export const request = (want, more = {}) => ({
  model: seen.subject.model,
  ids: seen.all.ids,
  want,
  encoding: 'f32',
  ...(seen.all.edits.length ? {edits: seen.all.edits} : {}),
  ...more
});

// What the text's perplexity would be with one change: of the model as it is, whatever is edited now.
async function wantExtra(mine) {
  const plain = mine.plain, a = plain.massive && findings.largest(plain.massive);
  mine.extra ||= {};
  const one = async (name, edit) => {
    if (mine.extra[name] !== undefined || plain.shape.tokens > kMostExtra) return;
    const reply =
        await look('extra', {model: mine.model, ids: plain.ids, want: ['tokens'], top: 1, edits: [edit]});
    if (reply) mine.extra[name] = reply.tokens.perplexity;
  };
  const gated = plain.heads && plain.heads.values.gate.some(Number.isFinite);
  await attempt('extra', async () => {
    if (a) await one('zeroed', a.edit);
    if (gated) await one('open', findings.kOpenGates);
  });
  if (mine !== seen.subject) return;
  seen.extra = mine.extra;
  changed('extra');
}

// A head that shows something: of those with a name the clearest that is no sink and not uniform.
function begin(mine) {
  const labels = seen.all.heads ? seen.all.heads.labels : [];
  const worth = labels.map((x) => /^(sink|uniform|$)/.test(x) ? NaN : Number(x.split(' ').pop()));
  const [best] = [
    ...findings.order(worth), ...(seen.all.heads ? findings.order(seen.all.heads.values.strongest) : []), 0
  ];
  pick.l = Math.floor(best / seen.all.shape.heads);
  pick.h = best % seen.all.shape.heads;
  pick.t = mine.token ?? seen.all.shape.tokens - 1;
  pick.k = -1;
  if (!seen.all.heads) setOver('token');
}

// The chosen token and head: what is not known yet. Maps by head, the rest by token.
const cache = new Map();
function keep(key, value) {
  cache.set(key, value);
  if (cache.size > 96) cache.delete(cache.keys().next().value);
}
let newest = 0;
export async function wantDetail() {
  const mine = ++newest;
  const {l, h, t} = pick, reading = seen.all;
  seen.detail = {
    map: cache.get(`m${l},${h}`) || null,
    row: cache.get(`r${l},${t}`) || null,
    token: cache.get(`t${t}`) || null
  };
  const frames = seen.subject.from && !seen.all.edits.length ? framesOf(seen.subject.from.message) : null;
  seen.detail.frame = !seen.detail.token && frames ? statsAt(frames, t) : null;
  const want = [];
  const tokens = reading.shape.tokens;
  if (!seen.detail.map && seen.all.shape.heads) want.push('map');
  if (!seen.detail.row && tokens > 256 && seen.all.shape.heads) want.push('row');
  if (!seen.detail.token) want.push(...(seen.all.shape.heads ? ['token'] : []), 'lens');
  changed('detail');
  if (!want.length || (seen.playing && frames)) return;
  const of = want.includes('map') || want.includes('row') ? {layer: l, head: h} : {};
  const reply = await attempt(tokens > 512 ? 'reading' : 'detail', async () => {
    await new Promise((done) => setTimeout(done, 40));  // while a key is held down, only the last one counts
    if (mine !== newest || reading !== seen.all) return null;
    const encoding = tokens > 128 ? 'f16' : 'f32';
    return look('detail', request(want, {...of, token: t, pixels: Math.min(256, tokens), encoding}));
  });
  if (!reply || reading !== seen.all) return;
  if (reply.map) {
    const values = numbersOf(reply.map.weights), [rows, keys] = reply.map.weights.shape;
    const top = values.reduce((a, x) => Math.max(a, x), 0);
    const pixels = Uint8Array.from(values, (x) => Math.round(255 * (top ? Math.max(0, x) / top : 0)));
    keep(`m${l},${h}`, {rows, keys, values, pixels, top});
  }
  if (reply.row) {
    const of = numbersOf(reply.row.weights);
    keep(`r${l},${t}`, (head) => of.subarray(head * tokens, (head + 1) * tokens));
  }
  if (reply.token || reply.lens)
    keep(`t${t}`, {
      stats: reply.token ? numbersOf(reply.token.stats) : null,
      gate: reply.token && reply.token.gate ? numbersOf(reply.token.gate) : null,
      norms: reply.token ? reply.token.norms : null,
      lens: reply.lens
    });
  if (pick.l !== l || pick.h !== h || pick.t !== t) return;
  seen.detail = {
    map: cache.get(`m${l},${h}`) || null,
    row: cache.get(`r${l},${t}`) || null,
    token: cache.get(`t${t}`)
  };
  changed('detail');
}
