// SPDX-License-Identifier: Apache-2.0
// Inside: what the model does while it reads a text: the conversation's (the token chosen in the chat, in
// texts or in a comparison: state.chosen) or one that is typed here. The text is read once more by
// POST /v1/look, whole first (all), then for the chosen layer, head and token (detail), then twice more with
// a change, for the sentences at the top (findings.js). Frames of an answer on its way: live.js.
import {askJson} from '/page/api.js';
import {editChips, hasEdit, toggleEdit} from '/page/edits.js';
import {painter, pictureWords} from '/page/figures.js';
import {count, say, tr} from '/page/i18n.js';
import {chosenToken, errorWords} from '/page/message.js';
import {arcsPicture, linkItems} from '/page/shared/arcs.js';
import {el, options, twin} from '/page/shared/dom.js';
import {allPicture, headsPicture, headsTable} from '/page/shared/heads.js';
import {legend, scaleOf} from '/page/shared/heat.js';
import {mapPicture, mapWeight} from '/page/shared/map.js';
import {number} from '/page/shared/numbers.js';
import {shown} from '/page/shared/signs.js';
import {tokenSpans} from '/page/shared/spans.js';
import {withLabel} from '/page/shared/words.js';
import {announce} from '/page/shell.js';
import {follow, kept, set, state} from '/page/state.js';
import {repaintTokens} from '/page/tokens.js';

import * as findings from './findings.js';
import {layersPart, massivePart, tokenPart} from './layers.js';
import {beginColourings, framesOf, kColumns, keepEntropy, statsAt, watch} from './live.js';
import {flat, forget, look, numbersOf} from './reading.js';

const kMostWhole = 2048, kMostRead = 4096, kMostMaps = 512, kMostExtra = 1024, kMostLinks = 8;
const kMetrics = [
  'first', 'sink', 'self', 'previous', 'induction', 'entropy', 'distance', 'variance', 'strongest',
  'max_logit', 'gate', 'gate_closed'
];
const kShares =
    new Set(['first', 'sink', 'self', 'previous', 'induction', 'strongest', 'gate', 'gate_closed']);

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
// What was read. subject: {model, ids or text, from: {message, conversation, begin} or null}
let subject = null, all = null, base = null, detail = null, maps = null, extra = {}, problem = null,
    busy = '';
let panel = null, visible = false, stale = true, live = null, playing = 0;

const parts = {};  // by name: {draw(), …}
let listeners = [];
const on = (keys, fn) => listeners.push({keys: keys.split(' '), fn});
// Draws what follows one of these: pick's names, 'all', 'detail', 'maps', 'extra', 'lang', 'theme', 'live'.
function changed(...keys) {
  for (const one of listeners)
    if (one.keys.some((key) => keys.includes(key))) one.fn();
}
const clamp = (x, n) => Math.max(0, Math.min(n - 1, x));
export function choose(patch) {
  if (!all) return;
  const limits = {l: all.shape.layers, h: all.shape.heads, t: all.shape.tokens};
  const keys = [];
  for (const [key, wanted] of Object.entries(patch)) {
    const value = key in limits ? clamp(wanted, limits[key]) :
        key === 'k'             ? Math.max(-1, Math.min(all.shape.tokens - 1, wanted)) :
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

const at = (l = pick.l, h = pick.h) => l * all.shape.heads + h;
const quoted = (t) => `${t} “${shown(all.texts[t])}”`;
const labelOf = (l, h) => all.heads ? pictureWords.labelOf(all.heads.labels[l * all.shape.heads + h]) : '';

// ------------------------------------------------------------------------------------------------- reading
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
async function attempt(what, ask) {
  busy = what;
  problem = null;
  parts.status.draw();
  try {
    const reply = await ask();
    if (reply) busy = '';
    return reply;
  } catch (error) {
    busy = '';
    problem = error;
    if (/are looked at/.test(error.message)) problem = {words: () => tooLong(...error.numbers)};
    return null;
  } finally {
    parts.status.draw();
  }
}

async function read() {
  stale = false;
  if (!subject || !state.model) return;
  const mine = subject;
  stop();
  forget();
  if (!mine.ids && mine.text.length > kMostWhole) {  // perhaps too long for all of it
    const reply = await attempt(
        'reading', () => askJson('/tokenize', {body: {model: mine.model, prompt: mine.text}}));
    if (!reply || mine !== subject) return;
    mine.ids = reply.tokens;
  }
  const known = mine.ids ? mine.ids.length : 0;
  if (known > kMostRead) {
    all = detail = maps = null;
    problem = {words: () => tooLong(known, kMostRead)};
    parts.status.draw();
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
  if (mine !== subject || (!first && !mine.plain)) return;
  if (first) {
    mine.plain = shapeReply(first);
    mine.ids = mine.plain.ids;
  }
  base = edits.length ? mine.plain : null;
  if (edits.length) {
    const reply = await attempt('editing', () => ask(edits));
    if (mine !== subject) return;
    if (!reply && problem) return changed('all');  // the sentence says which edit, and why
    if (!reply) return;
    all = shapeReply(reply);
  } else all = mine.plain;
  all.edits = edits;
  detail = maps = null;
  extra = {};
  cache.clear();
  if (mine.fresh) {
    mine.fresh = false;
    begin(mine);
  }
  for (const [key, n] of [['l', all.shape.layers], ['h', all.shape.heads], ['t', all.shape.tokens]])
    pick[key] = clamp(pick[key], n);
  rebuild();
  changed('all', 'l', 'h', 't', 'lang');
  if (mine.from && !edits.length) {
    const own = all.ids.length - mine.from.begin;
    if (own > 0) keepEntropy(mine.from.message, {of: all.tokens.entropy, at: mine.from.begin});
  }
  await wantDetail();
  if (mine !== subject || all.edits !== edits) return;
  if (all.shape.tokens <= kMostMaps) {
    const reply =
        await attempt('maps', () => look('maps', {...request(['maps']), encoding: 'u8', pixels: 40}));
    if (!reply || mine !== subject) return;
    const w = reply.maps.weights, bytes = numbersOf(w), [layers, heads, rows, keys] = w.shape;
    maps = {
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
const request = (want, more = {}) => ({
  model: subject.model,
  ids: all.ids,
  want,
  encoding: 'f32',
  ...(all.edits.length ? {edits: all.edits} : {}),
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
  try {
    if (a) await one('zeroed', a.edit);
    if (plain.heads && plain.heads.values.gate.some(Number.isFinite)) await one('open', findings.kOpenGates);
  } catch (error) {
    problem = error;
    parts.status.draw();
  }
  if (mine !== subject) return;
  extra = mine.extra;
  changed('extra');
}

// A head that shows something: of those with a name the clearest that is no sink and not uniform.
function begin(mine) {
  const labels = all.heads ? all.heads.labels : [];
  const worth = labels.map((x) => /^(sink|uniform|$)/.test(x) ? NaN : Number(x.split(' ').pop()));
  const [best] =
      [...findings.order(worth), ...(all.heads ? findings.order(all.heads.values.strongest) : []), 0];
  pick.l = Math.floor(best / all.shape.heads);
  pick.h = best % all.shape.heads;
  pick.t = mine.token ?? all.shape.tokens - 1;
  pick.k = -1;
  if (!all.heads) setOver('token');
}

// The chosen token and head: what is not known yet. Maps by head, the rest by token.
const cache = new Map();
function keep(key, value) {
  cache.set(key, value);
  if (cache.size > 96) cache.delete(cache.keys().next().value);
}
let timer = 0;
async function wantDetail() {
  clearTimeout(timer);
  const {l, h, t} = pick, reading = all;
  detail = {
    map: cache.get(`m${l},${h}`) || null,
    row: cache.get(`r${l},${t}`) || null,
    token: cache.get(`t${t}`) || null
  };
  const frames = subject.from && !all.edits.length ? framesOf(subject.from.message) : null;
  detail.frame = !detail.token && frames ? statsAt(frames, t) : null;
  const want = [];
  const tokens = reading.shape.tokens;
  if (!detail.map && all.shape.heads) want.push('map');
  if (!detail.row && tokens > 256 && all.shape.heads) want.push('row');
  if (!detail.token) want.push(...(all.shape.heads ? ['token'] : []), 'lens');
  changed('detail');
  if (!want.length || (playing && frames)) return;
  await new Promise((done) => {
    timer = setTimeout(done, 40);
  });
  if (reading !== all) return;
  const of = want.includes('map') || want.includes('row') ? {layer: l, head: h} : {};
  const reply = await attempt(
      tokens > 512 ? 'reading' : 'detail',
      () => look(
          'detail',
          request(
              want,
              {...of, token: t, pixels: Math.min(256, tokens), encoding: tokens > 128 ? 'f16' : 'f32'})));
  if (!reply || reading !== all) return;
  if (reply.map) {
    const values = numbersOf(reply.map.weights), [rows, keys] = reply.map.weights.shape;
    const top = values.reduce((a, x) => Math.max(a, x), 0);
    const pixels = Uint8Array.from(values, (x) => Math.round(255 * (top ? Math.max(0, x) / top : 0)));
    keep(`m${l},${h}`, {rows, keys, values, pixels, top});
  }
  if (reply.row) {
    const [, heads] = reply.row.weights.shape, values = numbersOf(reply.row.weights);
    for (let i = 0; i < heads; ++i)
      if (i === h) keep(`r${l},${t}`, {h, of: values.subarray(i * tokens, (i + 1) * tokens)});
  }
  if (reply.token || reply.lens)
    keep(`t${t}`, {
      stats: reply.token ? numbersOf(reply.token.stats) : null,
      gate: reply.token && reply.token.gate ? numbersOf(reply.token.gate) : null,
      norms: reply.token ? reply.token.norms : null,
      lens: reply.lens
    });
  if (pick.l !== l || pick.h !== h || pick.t !== t) return;
  detail = {
    map: cache.get(`m${l},${h}`) || null,
    row: cache.get(`r${l},${t}`) || null,
    token: cache.get(`t${t}`)
  };
  changed('detail');
}

// Weight of a key in the chosen head's row of token t, {w, of: how many it is the largest of}; null: unknown.
function weight(t, k) {
  if (detail.row && detail.row.h === pick.h && t === pick.t) return {w: detail.row.of[k], of: 1};
  const m = detail.map;
  if (!m) return null;
  const tokens = all.shape.tokens;
  if (m.rows === tokens && m.keys === tokens) return {w: m.values[t * tokens + k], of: 1};
  return mapWeight(m, t, k, tokens);
}
function links() {
  const tokens = all.shape.tokens, out = [], into = [], whole = detail.map && detail.map.rows === tokens;
  for (let k = 0; k < tokens; ++k) {
    const to = k <= pick.t && (whole || detail.row) ? weight(pick.t, k) : null;
    if (to && to.w > 5e-4) out.push({t: k, w: to.w});
    const from = whole && k > pick.t ? weight(k, pick.t) : null;
    if (from && from.w > 5e-4) into.push({t: k, w: from.w});
  }
  const best = (list) => list.sort((a, b) => b.w - a.w || a.t - b.t).slice(0, kMostLinks);
  return {out: best(out), into: best(into), whole};
}

// --------------------------------------------------------------------------------------------------- parts
const section = (name, ...children) => {
  const s = el('section', {className: `box ${name}`}, ...children);
  s.id = `inside-${name}`;
  return s;
};
const heading = (key, ...more) => el('div', {className: 'head'}, el('h2', {'data-text': key}), ...more);
const button = (key, act, more = {}) => {
  const b = el('button', {type: 'button', 'data-text': key, ...more});
  b.addEventListener('click', act);
  return b;
};
// A choice: list() → [[value, text]]
function select(label, list, now, act) {
  const s = el('select', {'data-label': label});
  s.addEventListener('change', () => act(s.value));
  s.again = () => {
    options(s, list());
    s.value = now();
  };
  return s;
}
// A table twin that is made anew while it is open.
function table(id, make) {
  const t = twin(id, tr('as_table'), make);
  t.firstElementChild.dataset.text = 'as_table';
  t.again = () => {
    if (t.open) t.lastElementChild.replaceChildren(make());
  };
  return t;
}

function sourcePart() {
  const area =
      el('textarea', {rows: 2, id: 'inside-own', 'data-label': 'inside_own', dir: 'auto', spellcheck: false});
  area.value = kept.get('inside.text') || tr('inside_example');
  const go = () => {
    const text = area.value;
    if (!text.trim()) return;
    kept.set('inside.text', text === tr('inside_example') ? null : text);
    open({model: state.model, text, from: null});
  };
  area.addEventListener('keydown', (event) => {
    if (event.key !== 'Enter' || event.isComposing || event.keyCode === 229 || event.shiftKey) return;
    event.preventDefault();
    go();
  });
  const what = el('p', {className: 'what'});
  const own = button('inside_read', go, {className: 'main', id: 'inside-go'});
  const watchBox = el('input', {type: 'checkbox', id: 'inside-live', checked: kept.get('inside.live', true)});
  watchBox.addEventListener('change', () => {
    kept.set('inside.live', watchBox.checked);
    looking();
  });
  const chips = el('div');
  editChips(chips);
  parts.own = () => open({model: state.model, text: area.value, from: null});
  on('all lang', () => {
    what.textContent = !subject ? '' :
        subject.from            ? tr('inside_of_answer', {n: all ? all.shape.tokens : 0}) :
        all                     ? tr('inside_of_text', {n: all.shape.tokens}) :
                                  '';
  });
  return section(
      'source', el('p', {className: 'hint', 'data-text': 'inside_lead'}), what,
      el('div', {className: 'row own'}, area, own),
      el('label', {className: 'check'}, watchBox, el('span', {'data-text': 'inside_live'})), chips);
}

function statusPart() {
  const line = el('p', {className: 'status', role: 'status'}),
        again = button('retry', () => read(), {hidden: true});
  parts.status = {
    draw() {
      line.textContent = problem ? (problem.words ? problem.words() : errorWords(problem)) :
          busy                   ? tr(`inside_busy_${busy}`) :
                                   '';
      line.classList.toggle('error', Boolean(problem));
      panel.firstChild?.classList.toggle('stale', !all && !live);
      again.hidden = !problem || Boolean(problem.words);
      panel.dataset.state = problem ? 'failed' : busy || 'ready';
    },
  };
  return el('div', {className: 'row state'}, line, again);
}

function findingsPart() {
  const list = el('ul', {className: 'findings'}), effect = el('div', {className: 'effect', role: 'status'});
  const draw = () => {
    if (!all) {
      list.replaceChildren();
      effect.replaceChildren();
      return;
    }
    const plain = base || all;
    const now = findings.sentences({all: plain, maps: base ? null : maps, ...extra}, quoted);
    if (base && subject.looked) now.splice(1, 0, subject.looked);
    if (!base) subject.looked = now.find(([name]) => name === 'looked') || null;
    list.replaceChildren(...now.map(([name, text, edit]) => {
      const item = el('li', {textContent: text});
      item.dataset.finding = name;
      if (edit) item.append(' ', editButton(edit, 'inside_do', 'inside_undo'));
      return item;
    }));
    effect.hidden = !base;
    if (!base) return;
    const a = base.tokens, b = all.tokens,
          by = base.heads && all.heads ? findings.changed(base, all, pick.metric) : [];
    const names = by.map(
        ([i, x, y]) =>
            tr('inside_changed_head',
               {l: Math.floor(i / all.shape.heads), h: i % all.shape.heads, a: number(x), b: number(y)}));
    effect.replaceChildren(
        el('p', {
          textContent: tr('inside_effect', {
            edits: all.edits.join(', '),
            a: findings.big(a.perplexity),
            b: findings.big(b.perplexity),
            by: findings.change(a.perplexity, b.perplexity),
            la: number(a.loss),
            lb: number(b.loss)
          })
        }),
        ...(names.length ? [el('p', {
          textContent: tr(
              'inside_changed', {m: findings.metricName(pick.metric), list: names.join(tr('inside_comma'))})
        })] :
                           []),
        el('p', {className: 'hint', textContent: tr('inside_edit_answers')}));
  };
  on('all maps extra lang metric', draw);
  return section('findings', heading('inside_findings'), list, effect);
}
function editButton(edit, does, undoes) {
  const b =
      el('button',
         {type: 'button', className: 'small', textContent: tr(hasEdit(edit) ? undoes : does), title: edit});
  b.dataset.edit = edit;
  b.setAttribute('aria-pressed', String(hasEdit(edit)));
  b.addEventListener('click', () => toggleEdit(edit));
  return b;
}

function barPart() {
  const bar = el('nav', {className: 'steppers', 'data-label': 'inside_chosen'});
  const stepper = (key, name, text) => {
    const label = el('span', {className: 'now'});
    const step = (sign, by, word) => {
      const b = el('button', {type: 'button', textContent: sign});
      b.addEventListener('click', () => choose({[key]: pick[key] + by}));
      on('lang', () => b.setAttribute('aria-label', `${pictureWords.word(name)}: ${pictureWords.word(word)}`));
      return b;
    };
    bar.append(el(
        'span', {className: `stepper step-${key}`}, step('‹', -1, 'previous'), label, step('›', 1, 'next')));
    on(`${key} lang all`, () => {
      label.textContent = all ? text() : '–';
    });
  };
  stepper('l', 'layer', () => `${pictureWords.word('layer')} ${pick.l}`);
  stepper('h', 'head', () => `${pictureWords.word('head')} ${pick.h}`);
  stepper('t', 'token', () => quoted(pick.t));
  const badge = el('span', {className: 'badge'}), off = el('span');
  parts.play = button(
      'inside_play', () => (playing ? stop() : play()),
      {className: 'small', 'data-hint': 'inside_play_hint'});
  bar.append(badge, off, parts.play, el('span', {className: 'hint keys', 'data-text': 'inside_keys'}));
  on('l h all lang', () => {
    badge.textContent = all ? labelOf(pick.l, pick.h) : '';
    badge.hidden = !badge.textContent;
    off.replaceChildren(
        ...(all && all.shape.heads ?
                [editButton(`L${pick.l}H${pick.h}:zero`, 'inside_head_off', 'inside_head_on')] :
                []));
  });
  return bar;
}

// The text, token by token.
function textPart() {
  const host =
      el('div', {className: 'token-text', role: 'listbox', 'data-label': 'inside_text_label', dir: 'auto'});
  const read = el('p', {className: 'read'}), bars = el('div', {className: 'bars'});
  const colours = ['attention', 'surprise', 'entropy', 'none'];
  const choice = select(
      'inside_colour', () => colours.map((c) => [c, tr(`inside_colour_${c}`)]), () => pick.colour,
      (colour) => choose({colour}));
  let row = null;
  const tell = (t) => {
    if (!all) return;
    const p = all.tokens.logprob[t], w = detail && pick.colour === 'attention' ? weight(pick.t, t) : null;
    read.textContent = tr('inside_token', {t: quoted(t), id: String(all.ids[t])}) +
        (Number.isFinite(p) ?
             ` · ${
                 tr('inside_token_p',
                    {p: findings.percent(Math.exp(p)), s: number(-p), r: all.tokens.rank[t]})}` :
             '') +
        (w && t <= pick.t && w.of === 1 ? ` · ${tr('inside_token_w', {w: number(w.w)})}` : '');
  };
  parts.text = {
    rebuild() {
      const fresh = host.cloneNode(false);
      host.replaceWith(fresh);
      row = tokenSpans(
          fresh, {id: 'inside-token', choose: (t) => choose({t}), tell: (t) => tell(t < 0 ? pick.t : t)});
      row.add(all.texts);
      fresh.classList.toggle('loose', !all.texts.some((text) => /\s/.test(text)));
      parts.text.host = fresh;
    },
  };
  parts.text.host = host;
  const paint = () => {
    if (!row || !all) return;
    const {logprob, entropy} = all.tokens;
    const index = {
      none: () => -1,
      surprise: (t) => Number.isFinite(logprob[t]) ? Math.round(255 * Math.min(1, -logprob[t] / 8)) : -1,
      entropy: (t) => Number.isFinite(entropy[t]) ? Math.round(255 * Math.min(1, entropy[t] / 6)) : -1,
      attention: (t) => {
        const w = detail && t <= pick.t ? weight(pick.t, t) : null;
        return w ? Math.round(255 * (pick.root ? Math.sqrt(w.w) : w.w)) : -1;
      },
    }[pick.colour];
    row.spans.forEach((_, t) => {
      const i = index(t);
      row.paint(t, i < 0 ? '' : painter.css(i), i < 0 ? '' : painter.ink(i));
    });
  };
  const drawBars = () => {
    const top = all ? all.tokens.top[pick.t] : [];
    bars.replaceChildren(...(
        top.length ?
            [
              el('h3', {textContent: tr('inside_instead', {t: pick.t})}),
              el('ol', {className: 'tops'}, ...top.map((x) => {
                const bar = el('span', {className: 'share'});
                bar.style.width = `${Math.max(0.5, 100 * Math.exp(x.logprob))}%`;
                return el(
                    'li', {className: x.id === all.ids[pick.t] ? 'on' : ''},
                    el('span', {className: 'who', textContent: shown(x.text)}),
                    el('span', {className: 'track', 'aria-hidden': 'true'}, bar),
                    el('span', {className: 'figure', textContent: findings.percent(Math.exp(x.logprob))}));
              }))
            ] :
            [el('p', {className: 'hint', textContent: all && pick.t === 0 ? tr('inside_first') : ''})]));
  };
  on('t all detail lang', () => {
    if (!row || !all) return;
    row.mark(pick.t);
    tell(pick.t);
  });
  on('t l h all detail colour root theme', paint);
  on('t all lang', drawBars);
  on('lang colour', choice.again);
  return section('text', heading('inside_text', choice), host, read, bars);
}

function headsPart() {
  const host = el('div'), read = el('p', {className: 'read', id: 'inside-heads-read'}), ramp = el('div');
  const draw_ramp = legend(ramp);
  const metrics = () => pick.over === 'text' ? kMetrics : [...kColumns.slice(0, 7), 'gate'];
  const metric = select(
      'inside_metric', () => metrics().map((m) => [m, findings.metricName(m)]), () => pick.metric,
      (m) => choose({metric: m}));
  const over = select(
      'inside_over', () => ['text', 'token'].map((x) => [x, tr(`inside_over_${x}`)]), () => pick.over,
      (x) => setOver(x));
  const where = el('p', {className: 'hint live-line', hidden: true});
  let picture = null, values = null, heads = 0, layers = 0;
  const value = (l, h) => values ? values[l * heads + h] : NaN;
  const column = (stats) => {
    const c = kColumns.indexOf(pick.metric), out = new Float32Array(layers * heads).fill(NaN);
    if (c >= 0)
      for (let i = 0; i < out.length; ++i) out[i] = stats[i * kColumns.length + c];
    return out;
  };
  const now = () => {
    if (live) return column(live.stats);
    if (pick.over === 'text') return all.heads ? all.heads.values[pick.metric] : null;
    if (detail && detail.token)
      return pick.metric === 'gate' ? detail.token.gate : detail.token.stats && column(detail.token.stats);
    return detail && detail.frame ? column(detail.frame) : null;
  };
  const tell = (l, h) => {
    read.textContent = !all && !live ?
        '' :
        pictureWords.word(
            'head_read', {l, h, v: number(value(l, h)), label: live ? '' : withLabel(labelOf(l, h))});
  };
  const twinTable = table(
      'inside-heads-table',
      () => headsTable(layers, heads, value, pictureWords.word('layer'), live ? () => '' : labelOf));
  const build = (shape) => {
    if (picture && shape[0] === layers && shape[1] === heads) return;
    [layers, heads] = shape;
    host.replaceChildren();
    picture = headsPicture(host, {
      layers,
      heads,
      tell,
      about: 'inside-heads-read',
      label: () =>
          `${pictureWords.word('heads_label', {m: findings.metricName(pick.metric)})}. ${read.textContent}`,
      choose: (l, h) => choose({l, h}),
      move: (dl, dh) => choose({l: pick.l + dl, h: pick.h + dh}),
      left: () => tell(pick.l, pick.h),
    });
  };
  const draw = () => {
    if (!all && !live) return;
    build(live ? live.shape : [all.shape.layers, all.shape.heads]);
    values = now();
    // Over one token the colours stay where they are from token to token.
    const share = kShares.has(pick.metric);
    const scale = values ? scaleOf(values, share) : scaleOf([], true);
    picture.draw(values || [], share, painter.table(), scale);
    draw_ramp(painter.table(), scale.low, scale.middle, scale.high);
    picture.choose(pick.l, pick.h);
    tell(pick.l, pick.h);
    picture.name();
    twinTable.again();
    where.hidden = !live && pick.over === 'text';
    where.textContent = live         ? tr('inside_live_now', {n: live.row, text: live.text}) :
        all && pick.over === 'token' ? tr('inside_over_now', {t: quoted(pick.t)}) :
                                       '';
  };
  parts.heads = {draw};
  on('all detail l h metric over theme lang live', draw);
  on('lang metric over', () => {
    metric.again();
    over.again();
  });
  return section('heads', heading('inside_heads', over, metric), where, host, ramp, read, twinTable);
}
function setOver(over) {
  const metric = over === 'token' && ![...kColumns, 'gate'].includes(pick.metric) ? 'first' : pick.metric;
  choose({over, metric});
}

function mapPart() {
  const host = el('div'), read = el('p', {className: 'read', id: 'inside-map-read'}), ramp = el('div');
  const title = el('h2'), draw_ramp = legend(ramp);
  const scale = select(
      'inside_scale', () => ['root', 'linear'].map((s) => [s, pictureWords.word(s)]),
      () => pick.root ? 'root' : 'linear', (s) => choose({root: s === 'root'}));
  let picture = null;
  const cross = (t, k) => {
    if (!picture || !all) return;
    picture.cross(t, k, Boolean(detail && detail.map));
    if (!detail || !detail.map) {
      read.textContent = '';
      return;
    }
    if (k < 0) k = (links().out[0] || {t}).t;
    const {w, of} = weight(t, k);
    read.textContent = pictureWords.word('map_read', {q: quoted(t), k: quoted(k), v: number(w)}) +
        (of > 1 ? pictureWords.word('map_pooled', {n: of}) : '');
  };
  const twinTable = table('inside-map-table', () => {
    const most = Math.min(all.shape.tokens, 24),
          from = Math.max(0, Math.min(all.shape.tokens - most, pick.t - most + 1));
    const range = [...Array(most).keys()].map((i) => from + i);
    return el(
        'table', {className: 'numbers'},
        el('thead', {},
           el('tr', {}, el('th'), ...range.map((k) => el('th', {scope: 'col', textContent: quoted(k)})))),
        el('tbody', {},
           ...range.map(
               (t) =>
                   el('tr', {}, el('th', {scope: 'row', textContent: quoted(t)}),
                      ...range.map(
                          (k) => el(
                              'td', {textContent: k <= t && detail.map ? number(weight(t, k).w) : ''}))))));
  });
  parts.map = {
    rebuild() {
      host.replaceChildren();
      picture = mapPicture(host, {
        texts: all.texts,
        about: 'inside-map-read',
        label: () => `${pictureWords.word('map_label', {l: pick.l, h: pick.h})}. ${read.textContent}`,
        move: (dx, dy) => choose({t: pick.t + dy, k: dx ? (pick.k < 0 ? pick.t : pick.k) + dx : pick.k}),
        at: (t, k, click) => (click ? choose({t, k}) : cross(t, k)),
        left: () => cross(pick.t, pick.k),
      });
    },
  };
  const draw = () => {
    if (!picture || !all) return;
    const m = detail && detail.map;
    picture.draw(m, pick.root, painter.table());
    if (m) draw_ramp(painter.table(), 0, m.top * (pick.root ? 0.25 : 0.5), m.top);
  };
  on('detail root theme all', draw);
  on('detail l h t k lang all', () => {
    if (!picture || !all) return;
    title.textContent =
        pictureWords.word('head_title', {l: pick.l, h: pick.h}) + withLabel(labelOf(pick.l, pick.h));
    picture.keys.textContent = pictureWords.word('keys_axis');
    picture.queries.textContent = pictureWords.word('queries_axis');
    cross(pick.t, pick.k);
    picture.name();
    twinTable.again();
  });
  on('lang root', scale.again);
  return section('map', el('div', {className: 'head'}, title, scale), host, ramp, read, twinTable);
}

function arcsPart() {
  const title = el('h2', {id: 'inside-arcs-title'}), host = el('div'), facts = el('dl', {className: 'facts'});
  const out = el('ol', {id: 'inside-out'}), into = el('ol', {id: 'inside-in', className: 'in'}),
        note = el('p', {className: 'hint'});
  const h3 = (key) => {
    const h = el('h3');
    on('lang', () => {
      h.textContent = pictureWords.word(key);
    });
    return h;
  };
  const draw = () => {
    if (!all || !detail) return;
    const found = links();
    title.textContent = pictureWords.word('arcs_title', {t: quoted(pick.t)});
    host.replaceChildren(arcsPicture({
      ...found,
      t: pick.t,
      tokens: all.shape.tokens,
      width: Math.max(240, host.clientWidth),
      labelledby: 'inside-arcs-title',
      describedby: 'inside-out'
    }));
    const of = {texts: all.texts, choose: (t) => choose({t}), none: pictureWords.word('nothing')};
    out.replaceChildren(...linkItems(found.out, of));
    into.replaceChildren(...linkItems(found.into, of));
    note.textContent = found.whole || !detail.map ? '' : tr('inside_in_long', {most: 256});
    facts.replaceChildren(...(all.heads ? kMetrics : []).flatMap((m) => {
      const v = all.heads.values[m][at()];
      return Number.isFinite(v) ? [el('div', {}, el('dt', {textContent: findings.metricName(m)}),
                                      el('dd', {textContent: number(v)}))] :
                                  [];
    }));
  };
  on('detail l h t lang all', draw);
  let width = 0;
  new ResizeObserver(() => {
    if (host.clientWidth !== width && visible) draw();
    width = host.clientWidth;
  }).observe(host);
  return section(
      'arcs', el('div', {className: 'head'}, title), host,
      el('div', {className: 'lists'}, el('div', {}, h3('out'), out), el('div', {}, h3('in'), into)), note,
      facts);
}

function allPart() {
  const host = el('div'), scroll = el('div', {className: 'scroll'}, host),
        read = el('p', {className: 'read', id: 'inside-all-read'});
  const note = el('p', {className: 'hint'}), axes = el('span', {className: 'hint'});
  const tell = (l, h) => {
    const m = maps && maps.most[l] ? maps.most[l][h] : null;
    read.textContent = !all ? '' :
                              pictureWords.word('head_title', {l, h}) + withLabel(labelOf(l, h)) +
            (m === null || m === undefined ?
                 '' :
                 ` · ${tr('inside_most', {t: quoted(m), w: number(maps.share[l][h])})}`);
  };
  let picture = null, shape = '';
  const twinTable = table(
      'inside-all-table',
      () =>
          el('table', {className: 'numbers'},
             el('thead', {},
                el('tr', {},
                   ...['inside_head', 'inside_named', 'inside_most_of', 'inside_share'].map(
                       (key) => el('th', {scope: 'col', textContent: tr(key)})))),
             el('tbody', {},
                ...(maps ? maps.most : [])
                    .flatMap(
                        (row, l) => row.map(
                            (t, h) => t === null ?
                                '' :
                                el('tr', {},
                                   ...[`L${l}H${h}`, labelOf(l, h), quoted(t), number(maps.share[l][h])].map(
                                       (x) => el('td', {textContent: x}))))))));
  const paint = () => {
    if (picture && maps) picture.draw(pick.root, painter.table());
  };
  on('maps all lang', () => {
    const long = all && all.shape.tokens > kMostMaps;
    note.textContent = long ? tr('inside_maps_long', {most: kMostMaps}) : '';
    scroll.hidden = read.hidden = axes.hidden = twinTable.hidden = !maps;
    if (!maps) return;
    const key = `${all.shape.layers} ${all.shape.heads}`;
    if (shape !== key) {
      shape = key;
      host.replaceChildren();
      picture = allPicture(host, {
        layers: all.shape.layers,
        heads: all.shape.heads,
        tell,
        about: 'inside-all-read',
        label: () => `${pictureWords.word('all_label')}. ${read.textContent}`,
        choose: (l, h) => choose({l, h}),
        move: (dl, dh) => choose({l: pick.l + dl, h: pick.h + dh}),
        left: () => tell(pick.l, pick.h),
      });
    }
    axes.textContent = pictureWords.word(picture.deep ? 'deep_axes' : 'wide_axes');
    picture.show(maps.small);
    paint();
    twinTable.again();
  });
  on('theme root', paint);
  on('l h maps lang', () => {
    if (!picture || !maps) return;
    picture.choose(pick.l, pick.h);
    tell(pick.l, pick.h);
    picture.name();
  });
  return section('all', heading('inside_all', axes), note, scroll, read, twinTable);
}

// After a new text: what depends on how many tokens there are.
function rebuild() {
  parts.text.rebuild();
  if (all.shape.heads) parts.map.rebuild();
  parts.layers.rebuild();
  for (const name of ['heads', 'map', 'arcs', 'all'])
    document.getElementById(`inside-${name}`).hidden = !all.shape.heads;
}

// ----------------------------------------------------------------------------------------- what is looked at
export function open(next) {
  subject = {...next, fresh: true};
  live = null;
  all = base = detail = maps = null;
  extra = {};
  problem = null;
  changed('all', 'live');
  if (visible) read();
  else stale = true;
}

// The token that was chosen elsewhere.
function followChosen() {
  const c = state.chosen;
  if (!c || !c.ids) return;
  const same = subject && subject.from && subject.from.message === c.message && subject.ids &&
      subject.ids.length === c.ids.length && subject.ids.every((id, i) => id === c.ids[i]) &&
      subject.model === c.model;
  if (same && all) choose({t: c.at});
  else
    open({
      model: c.model,
      ids: c.ids,
      token: c.at,
      from: {message: c.message, conversation: c.conversation, begin: c.at - c.index}
    });
}

// -------------------------------------------------------------------------------------------------- live, play
function looking() {
  const wants = kept.get('inside.live', true);
  set({look: wants ? [...new Set([...state.look, 'live'])] : state.look.filter((x) => x !== 'live')});
}
function showFrame(one) {
  if (!visible || playing || state.writing !== one.node.id) return;
  const tokens = one.node.tokens, text = tokens.slice(-12).map((t) => t.text).join('');
  live =
      {shape: one.shape.slice(0, 2), stats: statsAt(one, one.last), row: one.last, text: `… ${shown(text)}`};
  if (!kColumns.includes(pick.metric)) pick.metric = 'first', changed('metric');
  changed('live');
}
// An answer that was watched is what is looked at as soon as it is there.
let written = null;
function afterWriting() {
  if (state.writing) {
    written = state.writing;
    return;
  }
  if (!written) return;
  const one = framesOf(written);
  written = null;
  live = null;
  changed('live');
  if (!one || !one.node.tokens.length) return;
  if (subject && !visible && state.chosen) return;
  const c = chosenToken(one.conversation, one.node, one.node.tokens.length - 1);
  if (c.ids)
    open({
      model: c.model,
      ids: c.ids,
      token: c.at,
      from: {message: c.message, conversation: c.conversation, begin: c.at - c.index}
    });
}

function play() {
  if (!all || live) return;
  const frames = subject.from ? framesOf(subject.from.message) : null;
  const rows = frames ? [...frames.rows.keys()].filter((r) => r < all.shape.tokens).sort((a, b) => a - b) :
                        [...Array(all.shape.tokens).keys()];
  if (!rows.length) return;
  if (pick.over !== 'token') setOver('token');
  let i = rows.findIndex((r) => r > pick.t);
  if (i < 0) i = 0;
  const mine = playing = Date.now();
  parts.play.dataset.text = 'inside_pause';
  say(parts.play);
  const step = async () => {
    if (playing !== mine) return;
    choose({t: rows[i]});
    if (++i >= rows.length) return stop();
    // With frames nothing is asked for; else each token waits for its reply.
    const until = performance.now() + 4000;
    while (!frames && playing === mine && !(detail && detail.token) && performance.now() < until)
      await new Promise((done) => setTimeout(done, 30));
    setTimeout(step, 160);
  };
  step();
}
function stop() {
  if (!playing) return;
  playing = 0;
  parts.play.dataset.text = 'inside_play';
  say(parts.play);
  if (all) wantDetail();
}

function keys(event) {
  if (event.altKey || event.ctrlKey || event.metaKey || event.isComposing) return;
  if (event.target.closest('textarea, input, select')) return;
  const own = event.target.closest('canvas, [role=listbox]');
  const step = {'[': {h: pick.h - 1}, ']': {h: pick.h + 1}}[event.key] || (own ? null : {
                 ArrowLeft: {t: pick.t - 1},
                 ArrowRight: {t: pick.t + 1},
                 ArrowUp: {l: pick.l - 1},
                 ArrowDown: {l: pick.l + 1}
               }[event.key]);
  if (step) choose(step);
  else if (event.key === ' ' && !event.target.closest('button, summary, a')) (playing ? stop() : play());
  else return;
  event.preventDefault();
}

// ---------------------------------------------------------------------------------------------------- the view
export function mount(where) {
  panel = where;
  const room = el('div', {className: 'inside'});
  const api = {
    pick,
    choose,
    on,
    table,
    section,
    heading,
    select,
    editButton,
    quoted,
    get all() { return all; },
    get detail() { return detail; },
    get subject() { return subject; },
    look,
    request
  };
  parts.layers = layersPart(api);
  const status = statusPart();
  room.append(
      sourcePart(), status, findingsPart(), barPart(), textPart(),
      el('div', {className: 'trio'}, headsPart(), mapPart(), arcsPart()), allPart(), tokenPart(api),
      parts.layers.element, massivePart(api));
  panel.append(room);
  panel.tabIndex = -1;
  panel.addEventListener('keydown', keys);
  beginColourings(pick, () => ['entropy', 'distance', 'max_logit'].includes(pick.metric) ? 6 : 1);
  watch(showFrame);
  looking();
  follow('chosen', followChosen, true);
  follow('writing', afterWriting, true);
  follow('edits', () => {
    if (!subject) return;
    changed('l', 'extra');
    if (visible) read();
    else stale = true;
  }, true);
  follow('lang', () => {
    changed('lang');
    parts.status.draw();
    const area = document.getElementById('inside-own');
    if (!kept.get('inside.text')) area.value = tr('inside_example');
    repaintTokens();
  }, true);
  follow('theme', () => changed('theme'), true);
  follow('model', () => {
    if (!state.model || (subject && subject.model === state.model)) return;
    if (subject && !subject.from) open({model: state.model, text: subject.text, from: null});
    else parts.own();
  }, true);
  const live_now = [...(state.writing ? [state.writing] : [])];
  written = live_now[0] || null;
  if (state.chosen && state.chosen.ids) followChosen();
  else if (state.model) parts.own();
  changed('lang');
}
export function show() {
  visible = true;
  if (!subject && state.model) parts.own();
  else if (stale && subject) read();
  changed('live');
}
export function hide() {
  visible = false;
  stop();
}
