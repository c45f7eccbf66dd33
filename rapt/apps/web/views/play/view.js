// SPDX-License-Identifier: Apache-2.0
// A small attention to play with: a sentence, controls, and the three steps with their numbers. What is
// computed: attention.js; how a matrix is drawn: matrix.js.
import {el} from '/page/shared/dom.js';
import {shown} from '/page/shared/signs.js';

import {say, tr} from '../../i18n.js';
import {follow, state} from '../../state.js';

import {attend, defaults, factsOf, kMostTokens, length, scaleOf, tokensOf, windowed} from './attention.js';
import {aroundZero, figure, Matrix} from './matrix.js';

// Sliders have a range [least, most, step], the others choices; shown: when it means something.
const kControls = {
  heads: {range: [1, 4, 1]},
  dim: {range: [2, 8, 2]},
  keys: {choices: ['own', 'queries']},
  seed: {range: [1, 99, 1]},
  norm: {choices: ['none', 'rms', 'l2']},
  positions: {choices: ['none', 'rope', 'alibi', 'sinusoid']},
  scale: {choices: ['root', 'none', 'own']},
  factor: {range: [0.05, 4, 0.05], shown: (s) => s.scale === 'own'},
  temperature: {range: [0.1, 4, 0.1]},
  cap: {range: [0, 8, 0.5]},
  mask: {choices: ['causal', 'full', 'window', 'keep']},
  window: {range: [1, kMostTokens, 1], shown: windowed},
  keep: {range: [1, 4, 1], shown: (s) => s.mask === 'keep'},
  normal: {choices: ['softmax', 'sigmoid']},
  sink: {choices: ['none', 'zero', 'learned'], shown: (s) => s.normal === 'softmax'},
  logit: {range: [-4, 6, 0.25], shown: (s) => s.normal === 'softmax' && s.sink === 'learned'},
  gate: {choices: ['none', 'sigmoid']},
  bias: {range: [-6, 6, 0.25], shown: (s) => s.gate === 'sigmoid'},
};
const kGroups = {
  vectors: ['heads', 'dim', 'keys', 'seed'],
  scores: ['scale', 'factor', 'temperature', 'cap', 'norm', 'positions'],
  weights: ['mask', 'window', 'keep', 'normal', 'sink', 'logit'],
  result: ['gate', 'bias'],
};

// What each question starts from, and what then changes; numbers: of (before, after) for its sentence.
const mean = (list) => list.reduce((a, b) => a + b, 0) / list.length;
const deviation = (r) => {
  const all = r.heads[0].steps.flat().map((c) => c.score), m = mean(all);
  return Math.sqrt(mean(all.map((x) => (x - m) ** 2)));
};
const meanLength = (r) => mean(r.heads[0].out.map(length));
const kQuestions = {
  scale: {
    from: {seed: 93, heads: 1, dim: 8, scale: 'none', mask: 'full'},  // a seed with large gaps
    to: {scale: 'root'},
    control: 'scale',
    numbers: (a, b) => ({a: figure(deviation(a)), b: figure(deviation(b))}),
  },
  mask: {
    from: {heads: 1, mask: 'full'},
    to: {mask: 'causal'},
    control: 'mask',
    row: () => 0,
    numbers: (a, b) => ({a: factsOf(a.heads[0], 0).seen, b: factsOf(b.heads[0], 0).seen}),
  },
  sink: {
    from: {heads: 1, scale: 'own', factor: 0.05},
    to: {sink: 'learned', logit: 4},
    control: 'sink',
    numbers: (a, b) => ({a: figure(meanLength(a)), b: figure(meanLength(b))}),
  },
  rope: {
    text: 'play_same',
    from: {heads: 1, dim: 8, keys: 'queries', mask: 'full'},
    to: {positions: 'rope'},
    control: 'positions',
    row: () => 0,
    numbers: (a, b) => {
      const scores = b.heads[0].steps[0].map((c) => c.score), least = Math.min(...scores);
      return {a: figure(scores[0]), b: figure(least), n: scores.indexOf(least)};
    },
  },
};

let settings = {...defaults}, tokens = [], names = [], row = 0, key = 0, head = 0;
let result = null;              // of attend()
let before = null;              // the result that the sentence compares with
let moving = '';                // the control that is being moved: it is compared with where it began
let told = {control: '', question: ''};
let sentence = 'play_sentence'; // the words that stand there; '': typed
const ui = {
  controls: {}
};

const factor = () => scaleOf(settings) / settings.temperature;
// Of equal tokens each has its place beside it.
const named = (list) => list.map((t, i) => {
  const place = [...String(i + 1)].map((d) => String.fromCharCode(0x2080 + Number(d))).join('');
  return list.indexOf(t) === list.lastIndexOf(t) ? shown(t) : shown(t) + place;
});
const name = (i) => names[i];

// -------------------------------------------------------------------------------------------------- changes
function compute() {
  result = tokens.length ? attend(tokens, settings) : null;
  row = Math.min(row, Math.max(0, tokens.length - 1));
  key = Math.min(key, Math.max(0, tokens.length - 1));
  head = Math.min(head, settings.heads - 1);
}

function change(control, value) {
  if (moving !== control) before = result;
  moving = control;
  settings = {...settings, [control]: value};
  told = {control, question: ''};
  compute();
  draw();
}

function read(text) {
  before = null;
  told = {control: 'text', question: ''};
  tokens = tokensOf(text);
  ui.cut.hidden = tokens.length <= kMostTokens;
  tokens = tokens.slice(0, kMostTokens);
  names = named(tokens);
  compute();
  row = Math.max(0, tokens.length - 1);
  key = result ? factsOf(result.heads[head], row).at : 0;
  draw();
}

function put(words) {
  sentence = words;
  ui.text.value = tr(words);
  read(ui.text.value);
}

function question(q) {
  const asked = kQuestions[q];
  if (asked.text) put(asked.text);
  else if (tokens.length < 2 || sentence === 'play_same') put('play_sentence');
  settings = {...defaults, ...asked.from};
  head = 0;
  compute();
  before = result;
  settings = {...settings, ...asked.to};
  compute();
  if (asked.row) row = asked.row();
  else row = tokens.length - 1;
  key = factsOf(result.heads[head], row).at;
  told = {control: asked.control, question: q};
  moving = '';
  draw();
}

function choose(r, c = key) {
  row = r;
  key = c;
  draw();
}

// ----------------------------------------------------------------------------------------------- sentences
// What the control that was moved last does, with its numbers.
function didWords(control) {
  const s = settings, of = result.heads[head], facts = factsOf(of, row);
  const by = {
    scale: {d: s.dim, x: figure(s.scale === 'root' ? Math.sqrt(s.dim) : scaleOf(s))},
    positions: {x: figure(of.slope, 4)},
    norm: {x: s.dim},
    mask: {n: facts.seen, of: tokens.length, t: name(row)},
    normal: {x: figure(facts.sum)},
    sink: {x: figure(of.sink[row])},
    gate: {x: of.gate ? figure(mean(of.gate[row])) : ''},
    cap: {x: s.cap},
    temperature: {x: figure(s.temperature)},
    heads: {n: s.heads},
    dim: {n: s.dim},
    seed: {n: s.seed},
  };
  const as = {factor: 'scale', window: 'mask', keep: 'mask', logit: 'sink', bias: 'gate'}[control] || control;
  const value = as === 'mask' ? 'any' : kControls[as].choices ? s[as] : as === 'cap' && !s.cap ? 'none' : '';
  return tr(`play_did_${as}${value && '_'}${value}`, by[as] || {});
}

// What became of the chosen row.
function changeWords() {
  const a = factsOf(before.heads[Math.min(head, before.heads.length - 1)], row);
  const b = factsOf(result.heads[head], row);
  const out = [], differ = (x, y) => Math.abs(x - y) >= 0.005;
  const values = {t: name(row), a: figure(a.most), b: figure(b.most), x: name(a.at), y: name(b.at)};
  if (a.at !== b.at) out.push(tr('play_change_place', values));
  else if (differ(a.most, b.most)) out.push(tr('play_change_most', values));
  for (const [what, digits] of [['spread', 1], ['sum', 2], ['length', 2]])
    if (differ(a[what], b[what]))
      out.push(tr(`play_change_${what}`, {a: figure(a[what], digits), b: figure(b[what], digits)}));
  return out.join('') || tr('play_change_none', {t: name(row)});
}

function words() {
  if (!result) return tr('play_nothing');
  const facts = factsOf(result.heads[head], row);
  const now = tr('play_now', {t: name(row), x: figure(facts.most), y: name(facts.at), n: facts.seen});
  if (!before || !told.control || told.control === 'text') return now;
  const q = told.question;
  return q ? tr(`play_answer_${q}`, kQuestions[q].numbers(before, result)) + changeWords() :
             didWords(told.control) + changeWords();
}

// ------------------------------------------------------------------------------------------------ formulas
const inner = (x) => x.startsWith('−') ? `(${x})` : x;
const vector = (v) => `(${v.map((x) => figure(x)).join(', ')})`;

function scoreLines(of) {
  const c = of.steps[row][key], s = settings;
  const q = of.q[row], k = of.k[key], f = factor();
  // Kept keys may be met by a query that is turned less far: only the sum is said then.
  const terms = Math.abs(c.dot - q.reduce((sum, x, d) => sum + x * k[d], 0)) < 1e-9 ?
      ` = ${q.map((x, d) => `${figure(x)}·${inner(figure(k[d]))}`).join(' + ')}` :
      '';
  const lines = [`q(${name(row)}) · k(${name(key)})${terms} = ${figure(c.dot)}`];
  const root = s.scale === 'root' && s.temperature === 1 ? ` (1/√${s.dim})` : '';
  if (f !== 1) lines.push(`× ${figure(f, 3)}${root} = ${figure(c.scaled)}`);
  if (s.cap > 0) lines.push(`${s.cap} · tanh(${figure(c.scaled)} / ${s.cap}) = ${figure(c.capped)}`);
  if (c.away) lines.push(`− ${figure(of.slope, 4)} · ${figure(c.away / of.slope, 0)} = ${figure(c.score)}`);
  if (!c.seen) lines.push(tr('play_unseen', {q: name(row), k: name(key)}));
  return lines;
}

function weightLines(of) {
  const c = of.steps[row][key], p = figure(of.weights[row][key]);
  if (!c.seen) return [`p(${name(key)}) = 0`];
  if (settings.normal === 'sigmoid') return [`p(${name(key)}) = 1 / (1 + exp(${figure(-c.score)})) = ${p}`];
  const all = of.steps[row].filter((x) => x.seen).map((x) => `exp(${figure(x.score)})`);
  if (settings.sink !== 'none') all.push(`exp(${figure(settings.sink === 'zero' ? 0 : settings.logit)})`);
  return [`p(${name(key)}) = exp(${figure(c.score)}) / (${all.join(' + ')}) = ${p}`];
}

function sumLines(of) {
  const seen = tokens.map((_, j) => j).filter((j) => of.steps[row][j].seen);
  const term = (j, what) => `${figure(of.weights[row][j])} · ${what}`;
  const lines = [
    `z(${name(row)}) = ${seen.map((j) => term(j, `v(${name(j)})`)).join(' + ')}` +
        (of.sink[row] > 0 ? ` + ${figure(of.sink[row])} · 0` : ''),
    `= ${seen.map((j) => term(j, vector(of.v[j]))).join(' + ')}`, `= ${vector(of.z[row])}`
  ];
  if (of.gate) lines.push(`⊙ ${vector(of.gate[row])} = ${vector(of.out[row])}`);
  return lines;
}

// --------------------------------------------------------------------------------------------------- drawing
const numbers = (n) => Array.from({length: n}, (_, i) => String(i + 1));

function draw() {
  for (const [control, c] of Object.entries(ui.controls)) {
    c.input.value = String(settings[control]);
    c.line.hidden = Boolean(kControls[control].shown) && !kControls[control].shown(settings);
    const digits = c.value && kControls[control].range[2] < 1 ? 2 : 0;
    const none = control === 'cap' && !settings.cap;
    if (c.value) c.value.textContent = none ? tr('play_none') : figure(settings[control], digits);
  }
  ui.said.textContent = words();
  ui.steps.hidden = !result;
  if (!result) return;
  radios(ui.rows, 'play-row', names, row, (i) => choose(i));
  radios(ui.heads, 'play-head', numbers(settings.heads), head, (i) => {
    head = i;
    before = null;
    draw();
  });
  ui.heads.hidden = settings.heads < 2;
  const of = result.heads[head], chosen = [row, key], dims = numbers(settings.dim);
  const one = (view, values, columns, title, share, isSigned = true) => {
    view.hidden = !values;
    if (!values) return;
    view.matrix.draw({values, share, rows: names, columns, signed: isSigned, chosen, title: tr(title)});
    view.data = {values, columns};
    view.caption.textContent = tr(title);
    if (view.twin && view.twin.open) fillTwin(view);
  };
  one(ui.x, result.x, numbers(result.x[0].length), 'play_x', aroundZero(result.x));
  const vectors = aroundZero([...of.q, ...of.k, ...of.v]);
  one(ui.q, of.q, dims, 'play_q', vectors);
  one(ui.k, of.k, dims, 'play_k', vectors);
  one(ui.v, of.v, dims, 'play_v', vectors);
  const scores = of.steps.map((r) => r.map((c) => c.seen ? c.score : null));
  one(ui.scores, scores, names, 'play_scores', aroundZero(scores));
  const slack = settings.normal === 'softmax' && settings.sink !== 'none';
  const weights = of.weights.map(
      (r, i) => [...r.map((p, j) => of.steps[i][j].seen ? p : null), ...(slack ? [of.sink[i]] : [])]);
  one(ui.weights, weights, slack ? [...names, tr('play_slack')] : names, 'play_weights', (x) => x, false);
  const outs = aroundZero([...of.z, ...of.out]);
  one(ui.z, of.z, dims, 'play_z', outs);
  one(ui.gate, of.gate, dims, 'play_gates', (x) => x, false);
  one(ui.out, of.gate ? of.out : null, dims, 'play_out', outs);
  lines(ui.score_lines, scoreLines(of));
  lines(ui.weight_lines, weightLines(of));
  lines(ui.sum_lines, sumLines(of));
  ui.row_sum.textContent = tr('play_row_sum', {t: name(row), x: figure(of.sum[row])});
}

const lines = (host, list) => host.replaceChildren(...list.map((textContent) => el('div', {textContent})));

// Radio buttons are made once for each list of names, so that the one in use keeps the focus.
function radios(host, group, names, at, take) {
  if (host.said !== names.join(' ')) {
    host.said = names.join(' ');
    host.replaceChildren(host.firstChild, ...names.map((text, i) => {
      const input = el('input', {type: 'radio', name: group, value: String(i), className: 'sr'});
      input.addEventListener('change', () => take(i));
      return el('label', {className: 'chip'}, input, el('span', {textContent: text}));
    }));
  }
  host.querySelectorAll('input')[at].checked = true;
}

// A matrix with its caption and the same as a table.
function matrixBox(columns = false) {
  const box = el('figure', {className: 'matrix'}), caption = el('figcaption');
  box.append(caption);
  const view = Object.assign(box, {caption});
  view.matrix =
      new Matrix(box, {columns, choose: (r, c) => choose(r, columns && c < tokens.length ? c : key)});
  const host = el('div', {className: 'scroll'});
  view.twin = el('details', {className: 'twin'}, el('summary', {'data-text': 'as_table'}), host);
  view.twin.addEventListener('toggle', () => fillTwin(view));
  view.fill = host;
  box.append(view.twin);
  return view;
}
function fillTwin(view) {
  const {values, columns} = view.data;
  view.fill.replaceChildren(el(
      'table', {className: 'numbers'},
      el('thead', {},
         el('tr', {}, el('th', {textContent: tr('column_token')}),
            ...columns.map((c) => el('th', {scope: 'col', textContent: c})))),
      el('tbody', {},
         ...values.map(
             (r, i) =>
                 el('tr', {}, el('th', {scope: 'row', textContent: name(i)}),
                    ...r.map(
                        (x) => el('td', {textContent: x === null ? tr('play_not_seen') : figure(x, 6)})))))));
}

// -------------------------------------------------------------------------------------------------- controls
function control(which) {
  const {range, choices} = kControls[which], id = `play-${which}`, hint = `${id}-about`;
  const textOf = (c) => c === 'none' ? 'play_none' : `play_is_${which}_${c}`;
  const input = choices ?
      el('select', {}, ...choices.map((value) => el('option', {value, 'data-text': textOf(value)}))) :
      el('input', {type: 'range', min: range[0], max: range[1], step: range[2]});
  input.id = id;
  input.setAttribute('aria-describedby', hint);
  input.addEventListener('input', () => change(which, choices ? input.value : Number(input.value)));
  input.addEventListener('change', () => { moving = ''; });
  const value = choices ? null : el('output', {htmlFor: id});
  const label = el('label', {htmlFor: id}, el('span', {'data-text': `play_set_${which}`}));
  const line = el(
      'div', {className: 'control'}, el('div', {className: 'control-head'}, label, ...(value ? [value] : [])),
      input, el('small', {id: hint, 'data-text': `play_about_${which}`}));
  ui.controls[which] = {input, line, value};
  return line;
}

export function mount(panel) {
  panel.classList.add('play');
  ui.text = el('input', {id: 'play-text', autocomplete: 'off', spellcheck: false, maxLength: 200});
  let composing = false;
  const typed = () => {
    if (composing) return;
    sentence = '';
    read(ui.text.value);
  };
  ui.text.addEventListener('compositionstart', () => { composing = true; });
  ui.text.addEventListener('compositionend', () => {
    composing = false;
    typed();
  });
  ui.text.addEventListener('input', (event) => {
    if (!event.isComposing) typed();
  });
  ui.cut = el('p', {className: 'hint', hidden: true, 'data-text': 'play_cut'});
  const questions = Object.keys(kQuestions).map((q) => {
    const b = el('button', {type: 'button', className: `ask-${q}`, 'data-text': `play_ask_${q}`});
    b.addEventListener('click', () => question(q));
    return b;
  });
  const reset = el('button', {type: 'button', className: 'small play-reset', 'data-text': 'play_reset'});
  reset.addEventListener('click', () => {
    settings = {...defaults};
    head = 0;
    put('play_sentence');
  });
  ui.said = el('p', {className: 'play-said', role: 'status'});
  const group = (name) => el(
      'div', {role: 'radiogroup', className: 'chips', 'data-label': name}, el('span', {'data-text': name}));
  ui.rows = group('play_row');
  ui.heads = group('play_head');
  for (const m of ['x', 'q', 'k', 'v', 'z', 'gate', 'out']) ui[m] = matrixBox();
  for (const m of ['scores', 'weights']) ui[m] = matrixBox(true);
  for (const f of ['score_lines', 'weight_lines', 'sum_lines'])
    ui[f] = el('div', {className: 'formula', id: f});
  ui.row_sum = el('p', {className: 'hint'});
  const step = (which, ...inner) =>
      el('section', {className: `step step-${which}`}, el('h2', {'data-text': `play_step_${which}`}),
         el('p', {className: 'hint', 'data-text': `play_step_about_${which}`}), ...inner);
  const side = (...inner) => el('div', {className: 'side-by-side'}, ...inner);
  ui.steps = el(
      'div', {className: 'steps'}, ui.rows, ui.heads,
      el('details', {className: 'step step-0', open: true}, el('summary', {'data-text': 'play_step_vectors'}),
         el('p', {className: 'hint', 'data-text': 'play_step_about_vectors'}), side(ui.x, ui.q, ui.k, ui.v)),
      step('scores', ui.scores, ui.score_lines), step('weights', ui.weights, ui.row_sum, ui.weight_lines),
      step('sum', side(ui.z, ui.gate, ui.out), ui.sum_lines));
  panel.append(
      el('p', {className: 'play-lead', 'data-text': 'play_lead'}),
      el('div', {className: 'play-top'}, el('label', {htmlFor: 'play-text', 'data-text': 'play_text'}),
         ui.text, ui.cut),
      el('div', {className: 'row play-questions', role: 'group', 'data-label': 'play_questions'},
         ...questions, reset),
      el('div', {className: 'play-room'},
         el('form', {className: 'play-controls', 'data-label': 'play_controls'},
            ...Object.entries(kGroups).map(
                ([g, list]) => el(
                    'fieldset', {}, el('legend', {'data-text': `play_group_${g}`}), ...list.map(control)))),
         el('div', {className: 'play-result'}, ui.said, ui.steps)));
  panel.querySelector('form').addEventListener('submit', (event) => event.preventDefault());
  say(panel);
  put(sentence);
  follow('lang', () => sentence ? put(sentence) : draw(), true);
  follow('theme', draw, true);
}

export function show() { draw(); }
