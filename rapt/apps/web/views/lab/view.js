// SPDX-License-Identifier: Apache-2.0
// Experiments: sentences that people write about attention, what was measured for each, and the experiment
// run here with another seed. The list stands here, a question in question.js, runs in runs.js.
import {el} from '/page/shared/dom.js';

import {askJson} from '../../api.js';
import {say, tr} from '../../i18n.js';
import {errorWords} from '../../message.js';
import {place, setPlace} from '../../shell.js';
import {follow, state} from '../../state.js';

import {Question} from './question.js';
import {Runs} from './runs.js';
import {inWords, kSigns} from './said.js';

const kMarks = ['right', 'imprecise', 'wrong'];

let lab = null;  // GET /v1/lab
let runs, question, box, list, search, found, chosen = '';
const only = new Set(), open = new Set();

const questions = () => lab.topics.flatMap((t) => t.questions);
const plain = (text) => text.toLowerCase().normalize('NFKC');

function fits(q, wanted) {
  if (only.size && !only.has(q.mark)) return false;
  const texts = [q.id, q.command, q.experiment || '', q.says, q.why].flatMap(
      (t) => typeof t === 'string' ? [t] : Object.values(t));
  const all = plain(texts.join('\n'));
  return wanted.every((word) => all.includes(word));
}

function sign(mark) {
  return el(
      'span', {className: `lab-sign lab-${mark}`},
      el('span', {'aria-hidden': 'true', textContent: kSigns[mark]}),
      el('span', {className: 'sr', textContent: `${inWords(lab.marks[mark])}: `}));
}

function counts(all) {
  return el('span', {className: 'lab-counts'}, ...kMarks.map((mark) => {
    const n = all.filter((q) => q.mark === mark).length;
    return el('span', {
      className: `lab-${mark}`,
      title: inWords(lab.marks[mark]),
      textContent: n ? `${kSigns[mark]} ${n}` : ''
    });
  }));
}

function drawList() {
  const wanted = plain(search.value).split(/\s+/).filter(Boolean), narrowed = wanted.length || only.size;
  let shown = 0;
  const topics = lab.topics.map((topic) => {
    const those = topic.questions.filter((q) => fits(q, wanted));
    shown += those.length;
    if (!those.length) return null;
    const here = topic.questions.some((q) => q.id === chosen);
    const details =
        el('details', {open: narrowed ? true : open.has(topic.name) || here},
           el('summary', {}, el('span', {textContent: inWords(topic.title)}), counts(topic.questions)),
           el('ul', {}, ...those.map((q) => {
             const button =
                 el('button', {type: 'button'}, sign(q.mark), el('span', {textContent: inWords(q.says)}));
             button.dataset.question = q.id;
             if (q.id === chosen) button.setAttribute('aria-current', 'true');
             return el('li', {}, button);
           })));
    details.addEventListener('toggle', () => {
      if (!narrowed) open[details.open ? 'add' : 'delete'](topic.name);
    });
    return details;
  });
  list.replaceChildren(...topics.filter(Boolean));
  found.textContent = narrowed ? tr('lab_found', {n: shown, of: questions().length}) : '';
}

function marks() {
  const chips = el('div', {className: 'row', role: 'group', 'aria-label': tr('lab_marks')});
  for (const mark of kMarks) {
    const n = questions().filter((q) => q.mark === mark).length;
    const chip =
        el('button',
           {type: 'button', className: `small lab-chip lab-${mark}`, 'aria-pressed': String(only.has(mark))},
           el('span', {'aria-hidden': 'true', textContent: kSigns[mark]}),
           ` ${inWords(lab.marks[mark])} · ${n}`);
    chip.addEventListener('click', () => {
      only[only.has(mark) ? 'delete' : 'add'](mark);
      chip.setAttribute('aria-pressed', String(only.has(mark)));
      drawList();
    });
    chips.append(chip);
  }
  return chips;
}

function choose(id, {focus = false} = {}) {
  const q = questions().find((x) => x.id === id);
  if (!q) return;
  chosen = id;
  setPlace(id);
  box.classList.add('picked');
  for (const b of list.querySelectorAll('button')) {
    if (b.dataset.question === id) {
      b.setAttribute('aria-current', 'true');
      b.closest('details').open = true;
    } else {
      b.removeAttribute('aria-current');
    }
  }
  question.show(q, lab.marks, lab.experiments.find((e) => e.name === q.experiment) || null, focus);
}

// A question that shows this experiment: the first with its own picture in the guide comes first.
function chooseExperiment(name) {
  const q = questions().find((x) => x.experiment === name);
  if (q) choose(q.id, {focus: true});
}

function back() {
  box.classList.remove('picked');
  const at = list.querySelector('[aria-current]');
  if (at) {
    at.closest('details').open = true;
    at.focus();
  } else {
    search.focus();
  }
}

function arrows(event) {
  const step = {ArrowDown: 1, ArrowUp: -1}[event.key];
  if (!step) return;
  const all = [...list.querySelectorAll('summary, details[open] button')];
  const next = all[all.indexOf(document.activeElement) + step];
  event.preventDefault();
  if (next) next.focus();
}

function drawAll() {
  const side = box.querySelector('.lab-side');
  side.querySelector('[role=group]')?.remove();
  found.before(marks());
  drawList();
}

async function load(panel) {
  panel.setAttribute('aria-busy', 'true');
  try {
    lab = await askJson('/v1/lab');
    await runs.find();
  } catch (error) {
    const again = el('button', {type: 'button', textContent: tr('retry')});
    again.addEventListener('click', () => load(panel));
    panel.replaceChildren(el(
        'div', {className: 'lab-failed'}, el('p', {role: 'alert', textContent: errorWords(error)}), again));
    return;
  } finally {
    panel.removeAttribute('aria-busy');
  }
  panel.replaceChildren(box);
  say(box);
  drawAll();
  follow('lang', () => {
    drawAll();
    if (chosen) question.draw();
  }, true);
  begin();
}

// What the address names, else what runs or ran; a wide window is never empty.
function begin() {
  const named = questions().some((q) => q.id === place());
  if (named)
    choose(place());
  else if (runs.now)
    chooseExperiment(runs.now.experiment);
  else if (!chosen) {
    choose(questions().find((q) => q.experiment).id);
    box.classList.remove('picked');
  }
}

export function mount(panel) {
  runs = new Runs((ended) => question.changed(ended));
  search = el('input', {
    type: 'search',
    id: 'lab-search',
    autocomplete: 'off',
    'data-label': 'lab_search',
    'data-ghost': 'lab_search'
  });
  found = el('p', {className: 'hint', role: 'status'});
  list = el('div', {className: 'lab-topics'});
  const main = el('article', {className: 'lab-main', tabIndex: -1});
  box =
      el('div', {className: 'lab'},
         el('nav', {className: 'lab-side', 'data-label': 'lab_list'},
            el('p', {className: 'lab-lead', 'data-text': 'lab_about'}), search, found, list),
         main);
  question = new Question(main, runs, {back, look: chooseExperiment});
  search.addEventListener('input', (event) => {
    if (!event.isComposing) drawList();
  });
  search.addEventListener('compositionend', drawList);
  search.addEventListener('keydown', (event) => {
    const first = list.querySelector('button');
    if (event.key === 'ArrowDown' && first) {
      event.preventDefault();
      first.focus();
    }
  });
  list.addEventListener('keydown', arrows);
  list.addEventListener('click', (event) => {
    const button = event.target.closest('button');
    if (button) choose(button.dataset.question, {focus: !matchMedia('(min-width: 861px)').matches});
  });
  window.addEventListener('hashchange', () => {
    if (lab && state.view === 'lab' && place() && place() !== chosen) choose(place());
  });
  load(panel);
}

export function show() {
  if (lab && chosen) {
    setPlace(chosen);
    runs.find().catch(() => {});  // what the server says meanwhile is said where it is asked
  }
}
