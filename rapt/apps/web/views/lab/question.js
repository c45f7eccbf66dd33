// SPDX-License-Identifier: Apache-2.0
// One question of the guide: what people say, whether it is so and why, what was measured, the command, and
// its experiment run here, the result beside the stored one.
import {drawDocument, prose, tableOf} from '/page/shared/documents.js';
import {el} from '/page/shared/dom.js';

import {askJson} from '../../api.js';
import {painter} from '../../figures.js';
import {count, tr} from '../../i18n.js';
import {errorWords} from '../../message.js';
import {announce, copyText, openView} from '../../shell.js';
import {follow, state} from '../../state.js';

import {inWords, kSigns} from './said.js';

const kMostSeed = 2 ** 40, kQuick = 0.1;  // effort
const seconds = (s) =>
    tr(s < 90 ? 'lab_seconds' : 'lab_minutes', {n: s < 90 ? Math.max(1, Math.round(s)) : Math.round(s / 60)});

export class Question {
  constructor(host, runs, {back, look}) {
    Object.assign(this, {host, runs, back, look, q: null, experiment: null, documents: null, stored: null});
    this.choice = {seed: null, effort: ''};  // what was typed and chosen; kept from one question to the next
    this.painted = [];
    follow('theme', () => {
      for (const d of this.painted) d.paint();
    }, true);
    let width = 0;
    new ResizeObserver(() => {
      const now = host.clientWidth;
      if (now && width && Math.abs(now - width) > 30 && this.q) this.draw();
      if (now) width = now;
    }).observe(host);
  }

  // marks: {right, imprecise, wrong} in words; experiment: the question's, or null.
  async show(q, marks, experiment, focus) {
    const turn = this.turn = {};  // the same question may be chosen again before it came
    Object.assign(this, {q, marks, experiment, documents: null, stored: null, failed: null, refused: null});
    this.host.setAttribute('aria-busy', 'true');
    this.draw();
    this.host.scrollTop = 0;
    if (focus) this.host.focus();
    try {
      const [own, stored] = await Promise.all([
        askJson(`/v1/lab/questions/${q.id}`),
        experiment ? askJson(`/v1/lab/experiments/${experiment.name}`) : null,
        experiment ? this.runs.ended(experiment.name) : null,
      ]);
      if (this.turn !== turn) return;
      Object.assign(this, {documents: own.documents, stored});
    } catch (error) {
      if (this.turn !== turn) return;
      this.failed = error;
    }
    this.host.removeAttribute('aria-busy');
    this.draw();
  }

  // A run has news; `ended`: it has just ended.
  changed(ended) {
    if (!this.q) return;
    if (ended && ended.how === 'done')
      announce(tr('lab_done', {name: ended.experiment, ...this.held(ended.result)}));
    if (ended && this.experiment && ended.experiment === this.experiment.name)
      this.draw();
    else
      this.drawRun();
  }

  held(result) { return {n: result.findings.filter((f) => f.holds).length, of: result.findings.length}; }

  draw() {
    const {q, marks, host} = this, top = host.scrollTop, within = host.querySelector('.lab-run :focus');
    const id = within && within.id;
    this.painted = [];
    const back = el('button', {type: 'button', className: 'small lab-back', textContent: tr('lab_back')});
    back.addEventListener('click', this.back);
    const copy = el('button', {type: 'button', className: 'small', textContent: tr('copy')});
    copy.addEventListener('click', () => copyText(q.command, copy));
    const mark =
        el('p', {className: `lab-mark lab-${q.mark}`},
           el('span', {'aria-hidden': 'true', textContent: kSigns[q.mark]}), ` ${inWords(marks[q.mark])}`);
    this.runBox = el('section', {className: 'lab-run', 'aria-label': tr('lab_run_title')});
    this.runKey = '';
    this.host.replaceChildren(
        back, el('h2', {className: 'lab-says', textContent: tr('lab_quoted', {text: inWords(q.says)})}), mark,
        el('p', {className: 'lab-why'}, ...prose(inWords(q.why))), ...this.measured(),
        el('div', {className: 'lab-command'}, el('span', {className: 'hint', textContent: tr('lab_command')}),
           el('code', {textContent: q.command}), copy),
        this.runBox);
    this.drawRun();
    host.scrollTop = top;
    if (within)
      ((id && this.runBox.querySelector(`#${id}`)) || this.runBox.querySelector('.stop, .main'))
          ?.focus({preventScroll: true});
  }

  document(doc) {
    const drawn = drawDocument(doc, {
      painter,
      width: Math.min(this.host.clientWidth, 860),
      table: tr('as_table'),
      title: false,
    });
    this.painted.push(drawn);
    return drawn.element;
  }

  measured() {
    if (this.failed) {
      const again = el('button', {type: 'button', textContent: tr('retry')});
      again.addEventListener('click', () => this.show(this.q, this.marks, this.experiment, true));
      return [el('div', {className: 'error row', role: 'alert'}, errorWords(this.failed), again)];
    }
    if (!this.documents) return [el('p', {className: 'hint', textContent: tr('lab_loading')})];
    const doc = this.documents[state.lang];
    if (!doc.parts.length) return [];
    return [el('h3', {textContent: tr('lab_measured')}), this.document(doc)];
  }

  // ------------------------------------------------------------------------------------------------ the run
  drawRun() {
    const {now, other} = this.runs, own = this.experiment && now && now.experiment === this.experiment.name;
    const key = now ? `${now.id} ${own}` : `form ${other}`;
    if (key !== this.runKey) {
      const within = this.runBox.contains(document.activeElement);
      this.runKey = key;
      const parts = !this.experiment ? [this.elsewhere()] : [];
      if (this.experiment) parts.push(...this.story());
      if (now)
        parts.push(own ? this.working() : this.busy());
      else if (this.stored)
        parts.push(this.form());
      if (this.experiment) parts.push(...this.result());
      this.runBox.replaceChildren(...parts);
      if (within) (this.runBox.querySelector('.stop, .main') || this.host).focus();
    }
    if (now && this.bar) this.advance(now);
  }

  // What cannot be run from here, and why.
  elsewhere() {
    const c = this.q.command;
    return el('p', {
      className: 'hint',
      textContent:
          tr(c.startsWith('rapt lab')       ? 'lab_elsewhere_model' :
                 c.startsWith('rapt train') ? 'lab_elsewhere_train' :
                                              'lab_elsewhere_show')
    });
  }

  story() {
    return [
      el('h3', {textContent: tr('lab_run_title')}),
      el('p', {}, ...prose(inWords(this.experiment.question))),
      el('p', {className: 'hint'}, ...prose(tr('lab_story', {text: inWords(this.experiment.claim)}))),
    ];
  }

  form() {
    const {minutes} = this.experiment, stored = this.stored ? this.stored.results.map((r) => r.seed) : [];
    const seed = el('input', {
      type: 'text',
      inputMode: 'numeric',
      id: 'lab-seed',
      autocomplete: 'off',
      size: 8,
      value: this.choice.seed ?? String(stored.length ? 1 + Math.max(...stored) : 1)
    });
    const draw = el('button', {
      type: 'button',
      className: 'small',
      textContent: tr('lab_draw'),
    });
    const wrong = el('p', {id: 'lab-seed-wrong', className: 'error', role: 'alert', hidden: true});
    seed.addEventListener('input', () => {
      this.choice.seed = seed.value;
      seed.setAttribute('aria-invalid', 'false');
      wrong.hidden = true;
    });
    draw.addEventListener('click', () => {
      this.choice.seed = seed.value = String(Math.floor(Math.random() * 10000));
    });
    const chosen = this.choice.effort || (minutes <= 0.1 ? 'full' : 'quick');
    const radio = (name, n) => {
      const input = el('input', {type: 'radio', name: 'lab-effort', value: name, checked: name === chosen});
      input.addEventListener('change', () => {
        this.choice.effort = name;
      });
      const text = tr(name === 'full' ? 'lab_full' : 'lab_quick', {time: seconds(n)});
      return el('label', {}, input, el('span', {textContent: text}));
    };
    const go = el('button', {type: 'submit', className: 'main', textContent: tr('lab_run')});
    const form =
        el('form', {className: 'lab-form', noValidate: true},
           el('div', {className: 'row'}, el('label', {htmlFor: 'lab-seed', textContent: tr('lab_seed')}),
              seed, draw),
           wrong,
           el('fieldset', {className: 'presets'}, el('legend', {textContent: tr('lab_effort')}),
              radio('quick', minutes * 60 * 1.5 * kQuick), radio('full', minutes * 60)),
           el('div', {className: 'row'}, go));
    if (this.runs.other) {
      const look = el('button', {type: 'button', className: 'small', textContent: tr('lab_look')});
      look.addEventListener('click', () => openView('train'));
      form.append(el('p', {className: 'hint row'}, el('span', {textContent: tr('lab_other')}), look));
    }
    if (this.refused) form.append(el('p', {className: 'error', role: 'alert', textContent: this.refused}));
    form.addEventListener('submit', async (event) => {
      event.preventDefault();
      const text = seed.value.normalize('NFKC').trim(), n = Number(text);
      if (!/^\d+$/.test(text) || n > kMostSeed) {
        wrong.textContent = tr('lab_seed_wrong');
        wrong.hidden = false;
        seed.setAttribute('aria-invalid', 'true');
        seed.setAttribute('aria-describedby', wrong.id);
        seed.focus();
        return;
      }
      if (this.asking) return;
      this.asking = true;  // not disabled: that would take the focus away
      this.refused = null;
      const effort = form.elements['lab-effort'].value === 'full' ? 1 : kQuick;
      try {
        await this.runs.start(this.experiment.name, n, effort);
      } catch (error) {
        this.refused = error.code === 'lab_busy' ? tr('lab_busy') : errorWords(error);
        if (!this.runs.now) {
          this.runKey = '';
          this.drawRun();
        }
      }
      this.asking = false;
    });
    return form;
  }

  working() {
    const stop = el('button', {type: 'button', className: 'stop', textContent: tr('stop')});
    stop.addEventListener('click', () => this.runs.stop());
    this.bar = {
      bar: el('progress', {'aria-label': tr('lab_progress')}),
      said: el('p', {className: 'left'}),
      stop
    };
    return el('div', {className: 'lab-working'}, this.bar.bar, this.bar.said, stop);
  }

  busy() {
    const {now} = this.runs;
    const look = el('button', {type: 'button', className: 'small', textContent: tr('lab_look')});
    look.addEventListener('click', () => this.look(now.experiment));
    this.bar = null;
    return el(
        'div', {className: 'lab-busy row'},
        el('span', {textContent: tr('lab_runs_now', {name: now.experiment, seed: String(now.seed)})}), look);
  }

  advance(run) {
    const {bar, said, stop} = this.bar, p = run.progress;
    if (p)
      bar.value = p.share;
    else
      bar.removeAttribute('value');
    const parts = [tr(
        'lab_running', {seed: String(run.seed), effort: tr(run.effort < 1 ? 'lab_quickly' : 'lab_fully')})];
    if (run.away)
      parts.push(tr('lab_away'));
    else if (run.stopping)
      parts.push(tr('lab_stopping'));
    else if (p) {
      parts.push(tr('lab_quoted', {text: inWords(p.what)}), `${Math.round(100 * p.share)} %`);
      if (p.left !== null && p.share > 0.03) parts.push(tr('lab_left', {time: seconds(p.left)}));
    }
    said.textContent = parts.join(' · ');
    stop.disabled = run.stopping;
  }

  // ------------------------------------------------------------------------------------- beside the stored
  // one
  result() {
    const run = this.runs.last.get(this.experiment.name);
    if (!run || !this.stored || this.runs.now && !run.result) return [];
    if (run.how === 'stopped') return [el('p', {className: 'hint', textContent: tr('lab_stopped')})];
    if (run.how === 'lost') return [el('p', {className: 'hint', textContent: tr('lab_lost')})];
    if (!run.result)
      return [el('p', {
        className: 'error',
        role: 'alert',
        textContent: run.code === 'out_of_memory' ? tr('lab_memory') : tr('lab_broke', {message: run.error})
      })];
    const {result} = run, doc = result.documents[state.lang];
    const notes = [tr('lab_held', this.held(result))];
    if (result.effort < 1) notes.push(tr('lab_quick_note'));
    return [
      el('h3', {textContent: tr('lab_result', {seed: String(result.seed)})}),
      el('p', {textContent: notes.join(' ')}),
      el('div', {className: 'scroll', tabIndex: 0, role: 'region', 'aria-label': tr('lab_compared')},
         this.compared(result)),
      el('p', {className: 'lab-verdict'}, ...prose(tr('lab_verdict', {text: inWords(result.verdict)}))),
      this.document(doc),
    ];
  }

  compared(result) {
    const {results} = this.stored,
          table = tableOf(
              [
                tr('lab_what'), tr('lab_expected'),
                tr('lab_before', {seeds: results.map((r) => r.seed).join(', ')}),
                tr('lab_now', {seed: String(result.seed)}), tr('lab_again')
              ],
              result.findings.map((f, i) => {
                const before = results.map((r) => r.findings[i]).filter(Boolean),
                      held = before.filter((b) => b.holds).length;
                const key = f.holds ? (held === before.length ? 'lab_again_yes' : 'lab_again_now') :
                                      (held ? 'lab_again_no' : 'lab_again_still');
                return [
                  inWords(f.what),
                  f.every_seed ? inWords(f.expected) : tr('lab_either', {text: inWords(f.expected)}),
                  before.map((b) => inWords(b.shown)).join('\n'), inWords(f.shown),
                  tr(key, {n: held, of: before.length})
                ];
              }));
    table.classList.add('lab-compared');
    [...table.tBodies[0].rows].forEach((row, i) => {
      const f = result.findings[i];
      [...row.cells].forEach((cell, c) => {
        cell.dataset.column = table.tHead.rows[0].cells[c].textContent;
      });
      row.cells[3].dataset.measured = f.measured === null ? '' : String(f.measured);
      row.cells[3].title = f.measured === null ? '' : String(f.measured);
      row.cells[4].className = f.holds ? 'lab-right' : 'lab-wrong';
    });
    return table;
  }
}
