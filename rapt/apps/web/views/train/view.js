// SPDX-License-Identifier: Apache-2.0
// Training live: a form that starts one (rapt serve --lab; `rapt train --watch` has none), its curves, the
// health of its attention by layer, what its heads do at each look, what it writes meanwhile; other runs
// beside it. Events and their columns: runs.js.
import {el, options} from '/page/shared/dom.js';
import {axis, heat, legend, paint, scaleOf} from '/page/shared/heat.js';
import {number} from '/page/shared/numbers.js';
import {painter} from '../../figures.js';
import {count, fixed, say, tr} from '../../i18n.js';
import {askKey} from '../../settings.js';
import {announce, saveFile} from '../../shell.js';
import {follow, kept, state} from '../../state.js';
import {draw, smooth, some, twin} from './curves.js';
import {Form} from './form.js';
import {Heads} from './heads.js';
import {listRuns, startRun, stopRun, Training} from './runs.js';

const kDraw = 150, kList = 2000;     // ms between drawings; between looks for other runs, where one watches
const kRows = 100, kColumns = 400;   // of tables; of the picture of layers
const kMeasures = ['entropy', 'sink', 'max_logit', 'massive'];

const runs = new Map();  // id → Training
const extra = new Set();  // ids that are drawn beside the main one
let main = null, shown = false, ui = null;

const watching = () => Boolean(state.props && state.props.watch);
const saves = () => Boolean(state.props && state.props.lab && state.props.lab.saves);
const part = (title, ...children) => el(
    'section', {className: 'card', 'aria-labelledby': `train-${title}-title`},
    el('h2', {id: `train-${title}-title`, 'data-text': `train_${title}`}), ...children);
const check = (id, text, on, change) => {
  const input = el('input', {type: 'checkbox', id, checked: on});
  input.addEventListener('change', () => change(input.checked));
  return el('label', {className: 'check'}, input, el('span', {'data-text': text}));
};

// ------------------------------------------------------------------------------------------------- parts
function makeStatus() {
  const bar = el('progress', {id: 'train-progress', max: 1, value: 0, 'data-label': 'train_progress'});
  const line = el('p', {id: 'train-line'}), stop = el('button', {
    type: 'button',
    id: 'train-stop',
    className: 'stop',
    'data-text': 'train_stop',
    hidden: true
  });
  const save = el('button', {type: 'button', id: 'train-export', className: 'small', 'data-text': 'train_export'});
  const error = el('p', {className: 'error', role: 'alert', hidden: true});
  const choice = el('select', {id: 'train-run'}), beside = el('div', {className: 'train-beside'});
  const others = el('details', {id: 'train-others'}, el('summary', {'data-text': 'train_beside'}), beside);
  stop.addEventListener('click', async () => {
    stop.disabled = true;
    try {
      await stopRun(main.id);
    } catch (e) {
      if (e.status !== 404) tellError(e);
    }
  });
  save.addEventListener('click', () => saveFile(
      `rapt-training-${(main.name || 'run').replace(/[^\w.-]+/g, '-').slice(0, 40)}.json`,
      JSON.stringify({rapt: 'training', run: main.entry, events: main.events})));
  choice.addEventListener('change', () => choose(runs.get(choice.value)));
  const box = el(
      'section', {className: 'card train-status', 'aria-labelledby': 'train-now-title'},
      el('h2', {id: 'train-now-title', 'data-text': 'train_now'}), line, bar, error,
      el('div', {className: 'row'}, stop, save,
         el('label', {className: 'row'}, el('span', {'data-text': 'train_run'}), choice)),
      others);
  return {box, bar, line, stop, save, error, choice, beside, others};
}

function thinned() {
  const {every} = some(main ? main.step.length : 0, kRows);
  return every > 1 ? tr('train_rows', {n: every}) : tr('train_rows_all');
}

function makeLoss() {
  const host = el('div', {className: 'train-chart', id: 'train-loss-chart'});
  const range = el('input', {type: 'range', id: 'train-smooth', min: 0, max: 0.99, step: 0.01,
                             value: kept.get('train-smooth', 0.6)});
  range.addEventListener('input', () => {
    kept.set('train-smooth', Number(range.value));
    redraw();
  });
  const read = el('p', {className: 'read'});
  const table = twin(
      () => [tr('train_step_head'), tr('train_loss'), tr('train_smoothed'), tr('train_held')],
      () => {
        const soft = smooth(main.loss, Number(range.value)), held = new Map(main.held.x.map((x, i) => [x, i]));
        const {list} = some(main.step.length, kRows);
        const rows = new Map(list.map((i) => [main.step[i], i]));
        main.step.forEach((x, i) => {
          if (held.has(x)) rows.set(x, i);
        });
        return [...rows].sort((a, b) => a[0] - b[0]).map(([x, i]) => [
          String(x), figure(main.loss[i]), figure(soft[i]), held.has(x) ? figure(main.held.y[held.get(x)]) : ''
        ]);
      },
      thinned);
  const box = part(
      'loss',
      el('div', {className: 'row'}, check('train-log', 'train_log', kept.get('train-log', false), (on) => {
           kept.set('train-log', on);
           redraw();
         }), el('label', {className: 'row'}, el('span', {'data-text': 'train_smooth'}), range)),
      host, read, table.box);
  // The step below the pointer, where chart() puts it; a click goes to the heads of then.
  const stepAt = (event) => {
    const r = host.querySelector('svg')?.getBoundingClientRect();
    if (!r || !main) return -1;
    const last_ = Math.max(...drawn().map((run) => run.at)), first = main.step[0];
    return Math.round(first + (event.clientX - r.left - 58) / (r.width - 72) * (last_ - first));
  };
  host.addEventListener('pointermove', (event) => {
    const step = stepAt(event), i = main ? main.step.findIndex((x) => x >= step) : -1;
    if (step < 0 || i < 0) return;
    const held = main.held.x.findLastIndex((x) => x <= step);
    read.textContent = [
      tr('train_step', {n: main.step[i]}), tr('train_loss_now', {x: figure(main.loss[i])}),
      ...(held < 0 ? [] : [tr('train_held_now', {x: figure(main.held.y[held])})])
    ].join(' · ');
  });
  host.addEventListener('click', (event) => ui.heads.goTo(stepAt(event)));
  return {box, host, range, table};
}

function makeCourse() {
  const hosts = Object.fromEntries(
      ['rate', 'norm', 'speed'].map((name) => [name, el('div', {className: 'train-chart', id: `train-${name}-chart`})]));
  const table = twin(
      () => [tr('train_step_head'), tr('train_rate'), tr('train_norm_axis')],
      () => some(main.step.length, kRows)
                .list.map((i) => [String(main.step[i]), short(main.rate[i]), figure(main.norm[i])]),
      thinned);
  const box = part('course', el('div', {className: 'train-three'}, ...Object.values(hosts)), table.box);
  return {box, hosts, table};
}

function makeHealth() {
  const choice = el('select', {id: 'train-measure'}), host = el('div', {className: 'train-chart'}),
        map = el('div'), read = el('p', {className: 'read', id: 'train-health-read'});
  const form = el('select', {id: 'train-form'});
  const ui_ = {choice, form, host, map, read, measure: 'entropy', l: 0, at: -1};
  choice.addEventListener('change', () => {
    ui_.measure = choice.value;
    redraw();
  });
  form.addEventListener('change', () => {
    kept.set('train-form', form.value);
    redraw();
  });
  ui_.table = twin(
      () => [tr('train_step_head'), ...layersOf(main)],
      () => some(main.health.length, kRows).list.map((i) => [
        String(main.health[i].step), ...main.health[i].layers.map((l) => figure(l[ui_.measure] ?? null))
      ]),
      () => tr(`train_h_${ui_.measure}`));
  ui_.box = part(
      'health', el('p', {className: 'hint', 'data-text': 'train_health_about'}),
      el('div', {className: 'row'},
         el('label', {className: 'row'}, el('span', {'data-text': 'train_figure'}), choice),
         el('label', {className: 'row'}, el('span', {'data-text': 'train_drawn'}), form)),
      host, map, ui_.table.box);
  return ui_;
}

function makeSamples() {
  const list = el('ol', {className: 'train-samples', id: 'train-samples'});
  return {list, box: part('samples', el('p', {className: 'hint', 'data-text': 'train_samples_about'}), list)};
}

function makeNotes() {
  const list = el('ul', {className: 'train-notes'});
  return {list, box: el('details', {className: 'card'}, el('summary', {'data-text': 'train_notes'}), list)};
}

// ----------------------------------------------------------------------------------------------- numbers
const figure = (x) => x === null || x === undefined ? '–' : fixed(x, 4);
const short = (x) => x === null ? '–' : x === 0 ? '0' : x.toPrecision(3);
const layersOf = (run) => run.health.length ?
    run.health[0].layers.map((l) => `${l.stack === 'encoder' && run.health[0].layers.some((m) => m.stack !== 'encoder') ?
        `${tr('train_encoder')} ` : ''}${tr('train_layer')} ${l.layer}`) :
    [];

function statusText(run) {
  if (!run) return tr(watching() ? 'train_none_watch' : 'train_none');
  if (run.gone) return tr('train_gone');
  const loss = run.loss[run.loss.length - 1], held = run.held.y[run.held.y.length - 1];
  const parts = [tr('train_of', {n: run.at, of: run.steps})];
  if (run.loss.length) parts.push(tr('train_loss_now', {x: figure(loss)}));
  if (run.held.y.length) parts.push(tr('train_held_now', {x: figure(held)}));
  if (run.running) {
    const speed = run.speed.y[run.speed.y.length - 1];
    if (speed) parts.push(tr('train_speed_now', {n: Math.round(speed)}));
  } else {
    parts.push(tr(`train_${run.end.how}`));
  }
  if (run.begin) parts.push(tr('train_size', {n: run.begin.parameters}));
  return parts.join(' · ');
}

// ----------------------------------------------------------------------------------------------- drawing
let timer = 0, last = 0;
function redraw() {
  if (timer || !shown) return;
  const wait = Math.max(0, kDraw - (performance.now() - last));
  timer = setTimeout(() => requestAnimationFrame(() => {
    timer = 0;
    last = performance.now();
    if (shown) drawAll();
  }), wait);
}

function drawAll() {
  const {status, loss, course, health, heads, samples, notes} = ui;
  const run = main, there = Boolean(run && run.step.length);
  ui.about.textContent = tr(watching() ? 'train_about_watch' : saves() ? 'train_about_saves' : 'train_about');
  ui.form.box.hidden = watching();
  ui.form.save.hidden = !saves();
  status.line.textContent = statusText(run);
  Object.assign(status.box.dataset, {run: run ? run.id : '', how: run ? run.end ? run.end.how : 'running' : ''});
  status.box.hidden = !run && !watching();
  status.bar.hidden = !run;
  status.save.hidden = !run;
  status.stop.hidden = !run || !run.running || watching();
  status.error.hidden = !(run && run.end && run.end.error);
  if (run && run.end && run.end.error) status.error.textContent = tr('train_failed_why', {x: run.end.error});
  if (run) {
    status.bar.max = run.steps;
    status.bar.value = run.at;
  }
  for (const p of [loss, course, health, samples]) p.box.hidden = !there;
  ui.hint.hidden = there;
  heads.show(run);
  notes.box.hidden = !run || !run.notes.length;
  if (notes.list.childElementCount !== (run ? run.notes.length : 0))
    notes.list.replaceChildren(...(run ? run.notes : []).map(
        (n) => el('li', {textContent: `${tr('train_step', {n: n.step})}: ${n.text}`})));
  if (there) {
    drawLoss(run);
    drawCourse(run);
    drawHealth(run);
    drawSamples(run);
  }
}

const drawn = () => [main, ...[...extra].map((id) => runs.get(id)).filter((r) => r && r !== main)];

function drawLoss(run) {
  const keep = Number(ui.loss.range.value), list = drawn(), curves = [];
  if (keep) curves.push({name: '', x: run.step, y: run.loss, colour: 0, style: 'raw'});
  list.forEach((r, i) => {
    const name = (what) => list.length > 1 ? `${r.name}: ${tr(what)}` : tr(what);
    curves.push({name: name('train_learned'), x: r.step, y: smooth(r.loss, keep), colour: i});
    curves.push({name: name('train_held'), x: r.held.x, y: r.held.y, colour: i, style: 'held'});
  });
  draw(ui.loss.host, {title: tr('train_loss'), x_label: tr('train_step_head'), y_label: tr('train_nats'),
                      log: kept.get('train-log', false), height: 300, curves});
  ui.loss.table.fill();
}

function drawCourse() {
  const list = drawn();
  const one = (name, of) => draw(ui.course.hosts[name], {
    title: tr(`train_${name}_axis`),
    x_label: tr('train_step_head'),
    y_label: tr(`train_${name}_axis`),
    log: false,
    height: 200,
    curves: list.map((r, i) => ({name: r.name, ...of(r), colour: i}))
  });
  one('rate', (r) => ({x: r.step, y: r.rate.map((y) => 1000 * y)}));
  one('norm', (r) => ({x: r.step, y: r.norm}));
  one('speed', (r) => ({x: r.speed.x, y: r.speed.y.map((y) => y / 1000)}));
  for (const host of Object.values(ui.course.hosts)) host.querySelector('.keys')?.remove();
  ui.course.table.fill();
}

function drawHealth(run) {
  const h = ui.health;
  h.box.hidden = !run.health.length;
  if (h.box.hidden) return;
  const there = Object.keys(Object.assign({}, ...run.health[0].layers)).filter((k) => k !== 'stack' && k !== 'layer');
  const list = [...kMeasures.filter((k) => there.includes(k)), ...there.filter((k) => !kMeasures.includes(k))];
  const key = `${state.lang} ${list}`;
  if (h.key !== key) {
    h.key = key;
    options(h.choice, list.map((k) => [k, tr(`train_h_${k}`)]));
    options(h.form, ['lines', 'map'].map((k) => [k, tr(`train_as_${k}`)]));
    h.form.value = kept.get('train-form', 'lines');
    if (!list.includes(h.measure)) h.measure = list[0];
    h.choice.value = h.measure;
  }
  const names = layersOf(run), value = (l, i) => run.health[i].layers[l][h.measure] ?? null;
  const lines = h.form.value !== 'map';
  h.host.hidden = !lines;
  h.map.hidden = lines;
  if (lines) {
    const x = run.health.map((e) => e.step);
    draw(h.host, {title: tr(`train_h_${h.measure}`), x_label: tr('train_step_head'), y_label: '', log: false,
                  height: 240,
                  curves: names.map((name, l) => ({name, x, y: x.map((_, i) => value(l, i)), colour: l,
                                                   style: l >= 6 ? 'held' : ''}))});
  } else {
    drawHealthMap(run, names, value);
  }
  h.table.fill();
}

function drawHealthMap(run, names, value) {
  const h = ui.health, layers = names.length;
  const {list} = some(run.health.length, kColumns);
  if (h.rows !== layers) {
    h.rows = layers;
    const host = el('div', {className: 'axes'}), outer = el('div', {}, host);
    host.append(el('div'), el('div'), axis([...Array(layers).keys()], 'down', 40));
    h.picture = heat(host, {
      label: () => `${tr(`train_h_${h.measure}`)}. ${h.read.textContent}`,
      about: 'train-health-read',
      move: (dx, dy) => {
        h.l = Math.max(0, Math.min(layers - 1, h.l + dy));
        h.at = Math.max(0, Math.min(main.health.length - 1, (h.at < 0 ? main.health.length - 1 : h.at) + dx));
        redraw();
      },
      at: (x, y, click) => {
        h.l = Math.floor(y * layers);
        h.at = Math.floor(x * main.health.length);
        if (click) ui.heads.goTo(main.health[h.at].step);
        redraw();
      },
    });
    h.picture.canvas.style.height = `${Math.max(90, Math.min(layers * 26, 400))}px`;
    h.ramp = legend(outer);
    outer.append(h.read);
    h.map.replaceChildren(outer);
  }
  const scale = scaleOf(list.flatMap((i) => names.map((_, l) => value(l, i))), false);
  paint(h.picture.canvas, list.length, layers, (x, y) => scale.index(value(y, list[x])), painter.table());
  h.ramp(painter.table(), scale.low, scale.middle, scale.high);
  const at = h.at < 0 ? run.health.length - 1 : Math.min(h.at, run.health.length - 1), l = Math.min(h.l, layers - 1);
  h.picture.mark(at / run.health.length, l / layers, 1 / run.health.length, 1 / layers);
  const x = value(l, at);
  h.read.textContent = `${names[l]}, ${tr('train_step', {n: run.health[at].step})}: ${x === null ? '–' : number(x)}`;
  h.picture.name();
}

function drawSamples(run) {
  const {list} = ui.samples, frame = ui.heads.frame;
  ui.samples.box.hidden = !run.samples.length;
  const last_ = run.samples[run.samples.length - 1];
  if (list.run !== run || list.childElementCount !== run.samples.length || list.last !== last_) {
    list.run = run;
    list.last = last_;
    list.replaceChildren(...[...run.samples].reverse().map((s) => {
      const button = el('button', {type: 'button', 'aria-pressed': 'false'},
                        el('span', {className: 'where', textContent: tr('train_step', {n: s.step})}),
                        el('span', {className: 'what', textContent: s.text.trim()}));
      button.dataset.step = s.step;
      button.addEventListener('click', () => ui.heads.goTo(s.step));
      return el('li', {}, button);
    }));
  }
  for (const b of list.querySelectorAll('button'))
    b.setAttribute('aria-pressed', String(Boolean(frame) && Number(b.dataset.step) === frame.step));
}

// -------------------------------------------------------------------------------------------------- runs
function tellError(error) {
  const words = {offline: 'train_offline', key: 'train_key'};
  const text = error.code === 'lab_busy' ? tr('train_busy') :
      words[error.kind]                  ? tr(words[error.kind]) :
                                           tr('train_refused', {x: error.message});
  ui.form.tell(text);
}

function drawList() {
  const {choice, beside, others} = ui.status, all = [...runs.values()];
  // Of the settings those that not all runs have.
  const differ = (key) => all.some((r) => r.entry[key] !== all[0].entry[key]);
  const all_have = (s) => all.every((r) => (r.entry.settings || []).includes(s));
  const text = (r) => [
    [r.name, ...(r.entry.settings || []).filter((s) => !all_have(s))].join(' '),
    tr('train_run_steps', {n: r.steps}), ...(differ('rate') ? [tr('train_run_rate', {x: r.entry.rate})] : []),
    ...(differ('seed') ? [tr('train_run_seed', {n: r.entry.seed})] : []),
    ...(r.active ? [tr('train_runs')] : [])
  ].join(' · ');
  options(choice, all.map((r) => [r.id, text(r)]));
  choice.value = main ? main.id : '';
  choice.parentElement.hidden = all.length < 2;
  others.hidden = all.length < 2;
  beside.replaceChildren(
      ...all.filter((r) => r !== main).map((r) => {
        const input = el('input', {type: 'checkbox', checked: extra.has(r.id)});
        input.addEventListener('change', () => {
          if (input.checked) extra.add(r.id);
          else extra.delete(r.id);
          r.follow(changed);
          redraw();
        });
        return el('label', {className: 'check'}, input, el('span', {textContent: text(r)}));
      }));
}

function choose(run) {
  if (!run) return;
  main = run;
  ui.health.at = -1;
  ui.status.stop.disabled = false;
  run.follow(changed);
  drawList();
  redraw();
}

function changed(run) {
  if (run.end && !run.told) {
    run.told = true;
    if (run === main && run.live) announce(statusText(run));
    drawList();
  }
  if (run === main || extra.has(run.id)) redraw();
}

// What there is at the server; the newest is shown unless one was chosen.
async function refresh(newest = false) {
  let list;
  try {
    list = await listRuns();
  } catch (error) {
    if (error.kind === 'key' && await askKey()) return refresh(newest);
    return;
  }
  const ids = list.map((entry) => entry.id);
  for (const id of [...runs.keys()])
    if (!ids.includes(id) && runs.get(id) !== main) runs.delete(id);
  const fresh = ids.filter((id) => !runs.has(id));
  const before = new Map(runs);
  runs.clear();
  for (const entry of list) {
    const run = before.get(entry.id) || new Training(entry);
    run.entry = entry;
    if (entry.running) run.live = true;
    runs.set(entry.id, run);
  }
  if (main && !runs.has(main.id)) runs.set(main.id, main);
  const first = runs.get(ids[0]);
  if (first && (!main || main.gone || newest || (watching() && fresh.includes(first.id)))) choose(first);
  drawList();
  redraw();
}

async function start(body) {
  ui.form.button.disabled = true;
  ui.form.tell('');
  try {
    await startRun(body);
    await refresh(true);
    if (matchMedia('(max-width: 900px)').matches) {
      ui.form.box.open = false;
      ui.status.box.scrollIntoView({block: 'start'});
    }
  } catch (error) {
    if (error.kind === 'key' && await askKey()) {
      ui.form.button.disabled = false;
      return start(body);
    }
    tellError(error);
    if (error.code === 'lab_busy') refresh();
  }
  ui.form.button.disabled = false;
}

// -------------------------------------------------------------------------------------------------- view
export function mount(panel) {
  ui = {
    about: el('p', {id: 'train-about'}),
    form: new Form(start),
    status: makeStatus(),
    loss: makeLoss(),
    course: makeCourse(),
    health: makeHealth(),
    heads: new Heads(),
    samples: makeSamples(),
    notes: makeNotes(),
    hint: part('will', el('ul', {}, ...['loss', 'heads', 'health', 'samples'].map(
                                        (name) => el('li', {'data-text': `train_will_${name}`}))))
  };
  ui.heads.looked = () => {
    if (main) drawSamples(main);
  };
  panel.append(el(
      'div', {className: 'train'}, ui.about,
      el('div', {className: 'train-left'}, ui.status.box, ui.form.box, ui.samples.box, ui.notes.box),
      el('div', {className: 'train-right'}, ui.hint, ui.loss.box, ui.heads.box, ui.health.box, ui.course.box)));
  follow('lang', () => {
    if (!ui.heads.names) return;
    ui.heads.names();
    ui.heads.choice.value = ui.heads.metric;
    ui.samples.list.run = null;
  }, true);
  follow('lang theme props', () => {
    drawList();
    redraw();
  }, true);
  new ResizeObserver(redraw).observe(panel);
  setInterval(() => {
    if (shown && watching()) refresh();
  }, kList);
}

export function show() {
  shown = true;
  refresh();
  redraw();
}
export function hide() {
  shown = false;
  ui.heads.halt();
}
