// SPDX-License-Identifier: Apache-2.0
// Training live: a form that starts one (rapt serve --lab; `rapt train --watch` has none), its curves, the
// health of its attention by layer, what its heads do at each look, what it writes meanwhile; other runs
// beside it. Events and their columns: runs.js.
import {el, options} from '/page/shared/dom.js';
import {fixed, tr} from '../../i18n.js';
import {askKey} from '../../settings.js';
import {announce, saveFile} from '../../shell.js';
import {follow, kept, state} from '../../state.js';
import {draw, smooth, some, twin} from './curves.js';
import {Form} from './form.js';
import {Heads} from './heads.js';
import {listRuns, startRun, stopRun, Training} from './runs.js';

const kDraw = 150, kList = 2000;  // ms between drawings; between looks for other runs, where one watches
const kRows = 100;                // of tables
const kLeft = 58, kBoth = 72;     // pixels beside the curves (plot.js)
const kMeasures = ['entropy', 'sink', 'max_logit', 'massive'];

const runs = new Map();   // id → Training
const extra = new Set();  // ids that are drawn beside the main one
let main = null, shown = false, ui = null;

const watching = () => Boolean(state.props && state.props.watch);
const saves = () => Boolean(state.props && state.props.lab && state.props.lab.saves);
const figure = (x) => x === null || x === undefined ? '–' : fixed(x, 4);
const last = (list) => list[list.length - 1];

// ------------------------------------------------------------------------------------------------- parts
const part = (name, ...children) => el(
    'section', {className: 'card', 'aria-labelledby': `train-${name}-title`},
    el('h2', {id: `train-${name}-title`, 'data-text': `train_${name}`}), ...children);
const row = (...children) => el('div', {className: 'row'}, ...children);
const named = (text, input) => el('label', {className: 'row'}, el('span', {'data-text': text}), input);
const button = (id, text, className) =>
    el('button', {type: 'button', id: `train-${id}`, className, 'data-text': text});
const chart = (id) => el('div', {className: 'train-chart', id: `train-${id}-chart`});

function makeStatus() {
  const bar = el('progress', {id: 'train-progress', max: 1, value: 0, 'data-label': 'train_progress'});
  const line = el('p', {id: 'train-line'}), error = el('p', {className: 'error', role: 'alert'});
  const stop = button('stop', 'train_stop', 'stop'), save = button('export', 'train_export', 'small');
  const choice = el('select', {id: 'train-run'}), beside = el('div', {className: 'train-beside'});
  const others = el('details', {id: 'train-others'}, el('summary', {'data-text': 'train_beside'}), beside);
  stop.addEventListener('click', async () => {
    stop.disabled = true;
    await stopRun(main.id).catch((e) => e.status === 404 || tellError(e));
  });
  save.addEventListener('click', () => saveFile(
      `rapt-training-${main.name.replace(/[^\w.-]+/g, '-').slice(0, 40)}.json`,
      JSON.stringify({rapt: 'training', run: main.entry, events: main.events})));
  choice.addEventListener('change', () => choose(runs.get(choice.value)));
  const box = part('now', line, bar, error, row(stop, save, named('train_run', choice)), others);
  box.classList.add('train-status');
  return {box, bar, line, stop, save, error, choice, beside, others};
}

function thinned() {
  const {every} = some(main ? main.step.length : 0, kRows);
  return every > 1 ? tr('train_rows', {n: every}) : tr('train_rows_all');
}

function makeLoss() {
  const host = chart('loss'), read = el('p', {className: 'read'});
  const range = el('input', {type: 'range', id: 'train-smooth', min: 0, max: 0.99, step: 0.01});
  const log = el('input', {type: 'checkbox', id: 'train-log', checked: kept.get('train-log', false)});
  range.value = kept.get('train-smooth', 0.6);
  for (const [input, of] of [[range, 'valueAsNumber'], [log, 'checked']])
    input.addEventListener('input', () => {
      kept.set(input.id, input[of]);
      redraw();
    });
  const table = twin(
      () => [tr('train_step_head'), tr('train_loss'), tr('train_smoothed'), tr('train_held')],
      () => {
        const soft = smooth(main.loss, range.valueAsNumber), held = new Map();
        main.held.x.forEach((x, i) => held.set(x, figure(main.held.y[i])));
        const which = new Set(some(main.step.length, kRows).list);
        return main.step
            .map((x, i) => [String(x), figure(main.loss[i]), figure(soft[i]), held.get(x) || ''])
            .filter((cells, i) => which.has(i) || cells[3]);
      },
      thinned);
  // The step below the pointer; a click goes to the heads of then.
  const stepAt = (event) => {
    const r = host.firstElementChild.firstElementChild.getBoundingClientRect();
    const end = Math.max(...drawn().map((run) => run.at)), from = main.step[0];
    return Math.round(from + (event.clientX - r.left - kLeft) / (r.width - kBoth) * (end - from));
  };
  host.addEventListener('pointermove', (event) => {
    if (!host.firstElementChild) return;
    const step = stepAt(event), i = main.step.findIndex((x) => x >= step);
    if (i >= 0) read.textContent = [tr('train_step', {n: main.step[i]}), ...losses(main, i)].join(' · ');
  });
  host.addEventListener('pointerdown', (event) => ui.heads.goTo(stepAt(event)));
  const box = part(
      'loss', row(named('train_log', log), named('train_smooth', range)), host, read, table.box);
  return {box, host, range, log, table};
}

function makeCourse() {
  const hosts = ['rate', 'norm', 'speed'].map(chart);
  const table = twin(
      () => [tr('train_step_head'), tr('train_rate'), tr('train_norm_axis')],
      () => some(main.step.length, kRows)
                .list.map((i) => [String(main.step[i]), main.rate[i].toPrecision(3), figure(main.norm[i])]),
      thinned);
  return {box: part('course', el('div', {className: 'train-three'}, ...hosts), table.box), hosts, table};
}

function makeHealth() {
  const choice = el('select', {id: 'train-measure'}), host = chart('health');
  choice.addEventListener('change', redraw);
  const table = twin(
      () => [tr('train_step_head'), ...layersOf(main)],
      () => some(main.health.length, kRows).list.map((i) => main.health[i]).map((e) => [
        String(e.step), ...e.layers.map((l) => figure(l[choice.value]))
      ]),
      () => tr(`train_h_${choice.value}`));
  const box = part('health', el('p', {className: 'hint', 'data-text': 'train_health_about'}),
                   row(named('train_figure', choice)), host, table.box);
  return {box, choice, host, table};
}

function makeSamples() {
  const list = el('ol', {className: 'train-samples', id: 'train-samples'});
  return {list, box: part('samples', el('p', {className: 'hint', 'data-text': 'train_samples_about'}), list)};
}

function makeNotes() {
  const list = el('ul', {className: 'train-notes'});
  return {list, box: el('details', {className: 'card'}, el('summary', {'data-text': 'train_notes'}), list)};
}

// ----------------------------------------------------------------------------------------------- drawing
function layersOf(run) {
  const {layers} = run.health[0], both = layers.some((l) => l.stack !== layers[0].stack);
  return layers.map((l) => (both && l.stack === 'encoder' ? `${tr('train_encoder')} ` : '') +
                        `${tr('train_layer')} ${l.layer}`);
}

// The loss of a step, and the last one of the held-out part before it.
function losses(run, i) {
  const held = run.held.x.findLastIndex((x) => x <= run.step[i]);
  return [
    tr('train_loss_now', {x: figure(run.loss[i])}),
    ...(held < 0 ? [] : [tr('train_held_now', {x: figure(run.held.y[held])})])
  ];
}

function statusText(run) {
  if (!run) return tr(watching() ? 'train_none_watch' : 'train_none');
  if (run.gone) return tr('train_gone');
  const parts = [tr('train_of', {n: run.at, of: run.steps})];
  if (run.loss.length) parts.push(...losses(run, run.loss.length - 1));
  if (run.end) parts.push(tr(`train_${run.end.how}`));
  else if (run.speed.y.length) parts.push(tr('train_speed_now', {n: Math.round(last(run.speed.y))}));
  if (run.begin) parts.push(tr('train_size', {n: run.begin.parameters}));
  return parts.join(' · ');
}

let timer = 0, drawn_at = 0;
function redraw() {
  if (timer || !shown) return;
  timer = setTimeout(() => requestAnimationFrame(() => {
    timer = 0;
    drawn_at = performance.now();
    if (shown) drawAll();
  }), Math.max(0, kDraw - (performance.now() - drawn_at)));
}

function drawAll() {
  const {status, notes} = ui, run = main, there = Boolean(run && run.step.length);
  const error = run && run.end && run.end.error;
  ui.about.textContent = tr(watching() ? 'train_about_watch' : saves() ? 'train_about_saves' : 'train_about');
  ui.form.box.hidden = watching();
  ui.form.save.hidden = !saves();
  status.box.hidden = !run && !watching();
  status.line.textContent = statusText(run);
  status.box.dataset.run = run ? run.id : '';
  status.box.dataset.how = run ? run.end ? run.end.how : 'running' : '';
  status.bar.hidden = status.save.hidden = !run;
  status.stop.hidden = !run || !run.running || watching();
  status.error.hidden = !error;
  status.error.textContent = error ? tr('train_failed_why', {x: error}) : '';
  if (run) Object.assign(status.bar, {max: run.steps, value: run.at});
  ui.hint.hidden = there;
  for (const name of ['loss', 'course']) ui[name].box.hidden = !there;
  ui.health.box.hidden = !there || !run.health.length;
  ui.samples.box.hidden = !there || !run.samples.length;
  notes.box.hidden = !run || !run.notes.length;
  ui.heads.show(run);
  if (!there) return;
  notes.list.replaceChildren(
      ...run.notes.map((n) => el('li', {textContent: `${tr('train_step', {n: n.step})}: ${n.text}`})));
  drawLoss(run);
  drawCourse();
  if (run.health.length) drawHealth(run);
  drawSamples(run);
}

const drawn = () => [main, ...[...extra].map((id) => runs.get(id)).filter((r) => r && r !== main)];
const axes = (y) => ({title: tr(y), x_label: tr('train_step_head'), y_label: tr(y), log: false});

function drawLoss(run) {
  const keep = ui.loss.range.valueAsNumber, list = drawn(), curves = [];
  if (keep) curves.push({name: '', x: run.step, y: run.loss, colour: 0, style: 'raw'});
  list.forEach((r, colour) => {
    const name = (what) => list.length > 1 ? `${r.name}: ${tr(what)}` : tr(what);
    curves.push({name: name('train_learned'), x: r.step, y: smooth(r.loss, keep), colour});
    curves.push({name: name('train_held'), x: r.held.x, y: r.held.y, colour, style: 'held'});
  });
  draw(ui.loss.host, {...axes('train_loss'), y_label: tr('train_nats'), log: ui.loss.log.checked, height: 300,
                      curves});
  ui.loss.table.fill();
}

function drawCourse() {
  const of = {
    rate: (r) => ({x: r.step, y: r.rate.map((y) => 1000 * y)}),
    norm: (r) => ({x: r.step, y: r.norm}),
    speed: (r) => ({x: r.speed.x, y: r.speed.y.map((y) => y / 1000)})
  };
  Object.entries(of).forEach(([name, columns], i) => {
    const curves = drawn().map((r, colour) => ({name: r.name, ...columns(r), colour}));
    draw(ui.course.hosts[i], {...axes(`train_${name}_axis`), height: 200, curves});
    ui.course.hosts[i].querySelector('.keys')?.remove();
  });
  ui.course.table.fill();
}

function drawHealth(run) {
  const {choice, host, table} = ui.health;
  const there = Object.keys(Object.assign({}, ...run.health[0].layers));
  const list = [...new Set([...kMeasures, ...there])].filter(
      (k) => there.includes(k) && k !== 'stack' && k !== 'layer');
  if (choice.key !== `${state.lang} ${list}`) {
    const before = choice.value;
    choice.key = `${state.lang} ${list}`;
    options(choice, list.map((k) => [k, tr(`train_h_${k}`)]));
    if (list.includes(before)) choice.value = before;
  }
  const x = run.health.map((e) => e.step);
  draw(host, {
    ...axes(`train_h_${choice.value}`),
    height: 240,
    curves: layersOf(run).map((name, l) => ({
      name, x, y: run.health.map((e) => e.layers[l][choice.value] ?? null), colour: l,
      style: l >= 6 ? 'held' : ''
    }))
  });
  table.fill();
}

function drawSamples(run) {
  const {list} = ui.samples, {frame} = ui.heads, key = `${run.id} ${run.samples.length} ${state.lang}`;
  if (list.key !== key || list.newest !== last(run.samples)) {
    Object.assign(list, {key, newest: last(run.samples)});
    list.replaceChildren(...[...run.samples].reverse().map((s) => {
      const b = el('button', {type: 'button'},
                   el('span', {className: 'where', textContent: tr('train_step', {n: s.step})}),
                   el('span', {className: 'what', textContent: s.text.trim()}));
      b.dataset.step = s.step;
      b.addEventListener('click', () => ui.heads.goTo(s.step));
      return el('li', {}, b);
    }));
  }
  for (const b of list.querySelectorAll('button'))
    b.setAttribute('aria-pressed', String(Boolean(frame) && Number(b.dataset.step) === frame.step));
}

// -------------------------------------------------------------------------------------------------- runs
function tellError(error) {
  const word = error.code === 'lab_busy'               ? 'train_busy' :
      error.kind === 'offline' || error.kind === 'key' ? `train_${error.kind}` :
                                                         'train_refused';
  ui.form.tell(tr(word, {x: error.message}));
}

function drawList() {
  const {choice, beside, others} = ui.status, all = [...runs.values()];
  // What tells them apart: of the settings those that not all of them have.
  const differ = (key) => all.some((r) => r.entry[key] !== all[0].entry[key]);
  const own = (r) => (r.entry.settings || [])
                         .filter((s) => !all.every((o) => (o.entry.settings || []).includes(s)));
  const text = (r) => [
    [r.name, ...own(r)].join(' '), tr('train_run_steps', {n: r.steps}),
    ...(differ('rate') ? [tr('train_run_rate', {x: r.entry.rate})] : []),
    ...(differ('seed') ? [tr('train_run_seed', {n: r.entry.seed})] : []),
    ...(r.active ? [tr('train_runs')] : [])
  ].join(' · ');
  options(choice, all.map((r) => [r.id, text(r)]));
  choice.value = main ? main.id : '';
  choice.parentElement.hidden = others.hidden = all.length < 2;
  beside.replaceChildren(...all.filter((r) => r !== main).map((r) => {
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
  main = run;
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
  const before = new Map(runs), first = list[0] && list[0].id, fresh = first && !before.has(first);
  runs.clear();
  for (const entry of list) {
    const run = before.get(entry.id) || new Training(entry);
    run.entry = entry;
    run.live ||= entry.running;
    runs.set(entry.id, run);
  }
  if (main && !runs.has(main.id)) runs.set(main.id, main);
  if (first && (!main || main.gone || newest || (watching() && fresh))) choose(runs.get(first));
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
    ui.form.button.disabled = false;
    if (error.kind === 'key' && await askKey()) return start(body);
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
  ui.heads.looked = () => main && drawSamples(main);
  panel.append(el(
      'div', {className: 'train'}, ui.about,
      el('div', {className: 'train-left'}, ...['status', 'form', 'samples', 'notes'].map((k) => ui[k].box)),
      el('div', {className: 'train-right'}, ui.hint,
         ...['loss', 'heads', 'health', 'course'].map((k) => ui[k].box))));
  follow('lang theme props', () => {
    ui.heads.make();
    drawList();
    redraw();
  }, true);
  new ResizeObserver(redraw).observe(panel);
  setInterval(() => shown && watching() && refresh(), kList);
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
