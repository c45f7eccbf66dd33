// SPDX-License-Identifier: Apache-2.0
// Monitor: what the server's engines do now and did in the last minutes (GET /v1/monitor, twice a second
// while this view is seen). Numbers are the server's; nothing here is read aloud by itself but that the
// server went away and came back.
import {el} from '/page/shared/dom.js';

import {ask} from '../../api.js';
import {count, fixed, perSecond, say, tr} from '../../i18n.js';
import {errorWords} from '../../message.js';
import {askKey} from '../../settings.js';
import {announce} from '../../shell.js';
import {readEvents} from '../../sse.js';
import {follow} from '../../state.js';

import {Strip} from './strip.js';

const kSeconds = 180, kMost = 2 * kSeconds;
const kPhases = ['waiting', 'reading', 'writing', 'suspended'];
const kReasons = [
  'queue_full', 'draining', 'out_of_memory', 'invalid_api_key', 'context_length_exceeded', 'model_not_found',
  'queue_timeout', 'deadline', 'invalid_value', 'unsupported_parameter', 'route_not_found', 'stream_not_found'
];

const bytes = (n) => {
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  let i = 0;
  for (; n >= 1024 && i < units.length - 1; ++i) n /= 1024;
  return `${i === 0 ? n : n >= 100 ? fixed(n, 0) : fixed(n, n >= 10 ? 1 : 2)} ${units[i]}`;
};
const share = (x) => x === null ? '–' : `${fixed(100 * x, x > 0 && x < 0.1 ? 1 : 0)} %`;
const milliseconds = (x) => x === null || x === undefined ? '–' :
                                                            `${
                                                                fixed(
                                                                    x,
                                                                    x < 1      ? 3 :
                                                                        x < 10 ? 2 :
                                                                                 1)} ms`;
const span = (s) => {
  const two = (n) => String(n).padStart(2, '0');
  const m = Math.floor(s / 60), h = Math.floor(m / 60);
  return h ? `${h}:${two(m % 60)}:${two(Math.floor(s) % 60)}` : `${m}:${two(Math.floor(s) % 60)}`;
};

// Names and values beside each other; the same elements from one moment to the next.
class Figures {
  constructor(keys) {
    this.values = {};
    this.box = el('dl', {className: 'monitor-figures'}, ...keys.map((key) => {
      this.values[key] = el('dd', {'data-figure': key});
      return el('div', {}, el('dt', {'data-text': `monitor_${key}`}), this.values[key]);
    }));
  }
  set(values) {
    for (const [key, text] of Object.entries(values))
      if (this.values[key].textContent !== text) this.values[key].textContent = text;
  }
}

// Parts of a whole as one bar, with each part's name and value below.
class Parts {
  constructor(keys) {
    this.keys = keys;
    this.bar =
        el('div', {className: 'monitor-bar', 'aria-hidden': 'true'},
           ...keys.map((key, i) => el('span', {className: `part p${i}`})));
    this.figures = keys.map((key) => el('b', {'data-figure': key}));
    this.list =
        el('ul', {className: 'monitor-parts'},
           ...keys.map(
               (key, i) =>
                   el('li', {}, el('i', {className: `part p${i}`, 'aria-hidden': 'true'}),
                      el('span', {'data-text': `monitor_${key}`}), ' ', this.figures[i])));
    this.box = el('div', {}, this.bar, this.list);
  }
  set(values, texts) {
    const all = values.reduce((sum, x) => sum + x, 0) || 1;
    [...this.bar.children].forEach((e, i) => {
      e.style.width = `${100 * values[i] / all}%`;
    });
    this.figures.forEach((e, i) => {
      e.textContent = texts[i];
    });
  }
}

// name, curves, words of a value, the least height
const kStrips = [
  [
    'speed',
    [
      ['written', (m) => m.last && m.last.tokens_per_second],
      ['read', (m) => m.last && m.last.prompt_tokens_per_second]
    ],
    (x) => x === null ? '–' : perSecond(x), 1
  ],
  [
    'step',
    [
      ['step_all', (m) => m.last && m.last.step_ms ? m.last.step_ms.all : null],
      ['compute', (m) => m.last && m.last.step_ms ? m.last.step_ms.compute : null]
    ],
    milliseconds, 0.01
  ],
  [
    'requests', [['running', (m) => m.running], ['waiting', (m) => m.waiting]],
    (x) => x === null ? '–' : count(x), 1
  ],
  [
    'pool', [['used_share', (m) => m.pages.budget ? 100 * m.pages.bytes / m.pages.budget : null]],
    (x) => x === null ? '–' : `${fixed(x, 1)} %`, 0.1
  ],
];

class ModelPart {
  constructor(id, history) {
    Object.assign(this, {id, history});
    this.sentence = el('p', {className: 'monitor-sentence'});
    this.batch = new Figures(['running', 'waiting', 'paused', 'suspended', 'rows', 'reading_now', 'pauses']);
    this.speed = new Figures(
        ['written', 'read', 'prefix_hits', 'prefixes', 'prompt_tokens', 'cached_tokens', 'generated_tokens']);
    this.pages = new Parts(['private', 'shared', 'free']);
    this.pagesText = el('p', {className: 'hint'});
    this.step = new Parts(['compute', 'choose', 'other']);
    this.stepText = el('p', {className: 'hint'});
    this.strips = kStrips.map(([, , , least]) => new Strip(kSeconds, least));
    this.twin =
        el('details', {className: 'twin'}, el('summary', {'data-text': 'as_table'}),
           el('div', {className: 'scroll', tabIndex: 0}));
    this.stripsBox = el('div', {className: 'monitor-strips'}, ...this.strips.map((s) => s.box));
    this.quiet = el('p', {className: 'hint', 'data-text': 'monitor_quiet'});
    this.note = el('p', {className: 'hint', 'data-text': 'monitor_step_note'});
    this.rows = el('tbody');
    this.none = el('p', {className: 'hint', 'data-text': 'monitor_none'});
    const columns = ['who', 'phase', 'prompt', 'known', 'written_tokens', 'paused_times', 'age'];
    this.table =
        el('table', {className: 'numbers monitor-requests'},
           el('thead', {},
              el('tr', {}, ...columns.map((key) => el('th', {scope: 'col', 'data-text': `monitor_${key}`})))),
           this.rows);
    const part = (key, ...children) =>
        el('section', {className: 'monitor-part'}, el('h3', {'data-text': `monitor_${key}`}), ...children);
    this.box = el(
        'section', {className: 'monitor-model', 'data-model': id}, el('h2', {textContent: id}), this.sentence,
        el('div', {className: 'monitor-parts-row'}, part('batch', this.batch.box),
           part('tokens', this.speed.box), part('pages', this.pages.box, this.pagesText),
           part('step', this.step.box, this.stepText, this.note)),
        part('table', el('div', {className: 'scroll'}, this.table), this.none),
        el('h3', {'data-text': 'monitor_minutes'}), this.quiet, this.stripsBox, this.twin);
    this.twin.addEventListener('toggle', () => this.fillTwin());
    say(this.box);
  }

  update(m) {
    this.now = m;
    const phases =
        Object.fromEntries(kPhases.map((p) => [p, m.requests.filter((r) => r.phase === p).length]));
    this.sentence.textContent = m.requests.length ?
        tr('monitor_sentence',
           {writing: phases.writing, reading: phases.reading, waiting: phases.waiting + phases.suspended}) :
        tr('monitor_idle');
    const n = (x) => count(x);
    this.batch.set({
      running: n(m.running),
      waiting: n(m.waiting),
      paused: n(m.paused),
      suspended: n(m.suspended),
      rows: n(m.rows),
      reading_now: n(phases.reading),
      pauses: n(m.pauses)
    });
    const last = m.last;
    this.speed.set({
      written: last ? perSecond(last.tokens_per_second) : '–',
      read: last ? perSecond(last.prompt_tokens_per_second) : '–',
      prefix_hits: share(m.prefix_hit_rate),
      prefixes: n(m.prefixes),
      prompt_tokens: n(m.prompt_tokens),
      cached_tokens: n(m.cached_tokens),
      generated_tokens: n(m.generated_tokens)
    });
    const p = m.pages, one = p.used ? p.bytes / p.used : 0;
    const free = p.budget ? Math.max(0, p.budget - p.bytes) : p.free_bytes;
    this.pages.set(
        [p.private * one, p.shared * one, free],
        [tr('monitor_n_pages', {n: p.private}), tr('monitor_n_pages', {n: p.shared}), bytes(free)]);
    this.pagesText.textContent = p.budget ?
        tr('monitor_pages_text',
           {n: p.used, bytes: bytes(p.bytes), budget: bytes(p.budget), idle: bytes(p.idle_bytes)}) :
        tr('monitor_pages_unused');
    const t = last && last.step_ms;
    this.step.set(
        t ? [t.compute, t.choose, t.other] : [0, 0, 0],
        t ? [t.compute, t.choose, t.other].map(milliseconds) : ['–', '–', '–']);
    this.stepText.textContent =
        t ? tr('monitor_step_text', {n: last.steps, ms: milliseconds(t.all)}) : tr('monitor_no_steps');
    this.note.hidden = !t;
    this.requests(m.requests);
    this.draw();
    if (this.twin.open && !this.twin.contains(document.activeElement)) this.fillTwin();
  }

  // Rows stay where they are as long as their request does.
  requests(list) {
    const there = new Map([...this.rows.children].map((row) => [row.dataset.id, row]));
    for (const r of list) {
      let row = there.get(String(r.id));
      if (!row) {
        row =
            el('tr', {'data-id': String(r.id)}, el('th', {scope: 'row'}),
               ...Array.from({length: 6}, () => el('td')));
        this.rows.append(row);
      }
      there.delete(String(r.id));
      row.classList.toggle('yours', r.yours);
      const texts = [
        r.yours ? tr('monitor_yours', {id: String(r.id)}) : `#${r.id}`, tr(`monitor_phase_${r.phase}`),
        `${count(r.read_tokens)} / ${count(r.prompt_tokens)}`, count(r.reused_tokens),
        count(r.written_tokens), count(r.pauses), span(r.seconds)
      ];
      [...row.children].forEach((cell, i) => {
        if (cell.textContent !== texts[i]) cell.textContent = texts[i];
      });
    }
    for (const row of there.values()) row.remove();
    this.none.hidden = list.length > 0;
    this.table.hidden = !list.length;
  }

  curves() {
    const times = this.history.map((h) => h.time);
    const of = (value) => this.history.map((h) => {
      const m = h.models && h.models.find((one) => one.id === this.id), x = m ? value(m) : null;
      return x === undefined ? null : x;
    });
    return {times, lists: kStrips.map(([, curves]) => curves.map(([, value]) => of(value)))};
  }
  draw() {
    const {times, lists} = this.curves();
    // A model that nobody asked for minutes needs no room for curves without anything on them.
    const quiet = lists.slice(0, 3).every((curves) => curves.every((list) => list.every((y) => !y)));
    this.quiet.hidden = !quiet;
    this.stripsBox.hidden = this.twin.hidden = quiet;
    if (quiet) return;
    kStrips.forEach(([name, curves, words], i) => {
      this.strips[i].words(tr(`monitor_strip_${name}`), curves.map(([key], k) => {
        const list = lists[i][k];
        return {name: tr(`monitor_${key}`), value: words(list.length ? list[list.length - 1] : null)};
      }));
      this.strips[i].draw(times, lists[i]);
    });
  }
  // The strips as a table, newest first.
  fillTwin() {
    const host = this.twin.lastElementChild;
    if (!this.twin.open) return host.replaceChildren();
    const {times, lists} = this.curves(), flat = lists.flat();
    const names = kStrips.flatMap(([strip, curves]) => curves.map(([key]) => [strip, key]));
    const words = kStrips.flatMap(([, curves, f]) => curves.map(() => f));
    const now = times[times.length - 1];
    host.replaceChildren(el(
        'table', {className: 'numbers'},
        el('thead', {},
           el('tr', {}, el('th', {scope: 'col', textContent: tr('monitor_ago')}),
              ...names.map(([strip, key]) => el('th', {
                             scope: 'col',
                             textContent: `${tr(`monitor_strip_${strip}`)}: ${tr(`monitor_${key}`)}`
                           })))),
        el('tbody', {},
           ...times.map((t, i) => i)
               .reverse()
               .map(
                   (i) =>
                       el('tr', {}, el('th', {scope: 'row', textContent: span(now - times[i])}),
                          ...flat.map((list, k) => el('td', {textContent: words[k](list[i])})))))));
  }
}

class View {
  constructor(panel) {
    this.history = [];  // the last minutes: {time, models}; models null: the server was away
    this.models = new Map();
    this.state = el('p', {className: 'monitor-state', role: 'status'});
    this.server =
        new Figures(['uptime', 'connections', 'waiting_all', 'waiting_tokens', 'streams', 'refused_all']);
    this.refused = el('table', {className: 'numbers'}, el('tbody'));
    this.refusedBox =
        el('details', {className: 'monitor-refused'}, el('summary', {'data-text': 'monitor_refused'}),
           el('div', {className: 'scroll'}, this.refused));
    this.hosts = el('div', {className: 'monitor-models'});
    this.pause = el(
        'button', {type: 'button', className: 'small', 'aria-pressed': 'false', 'data-text': 'monitor_hold'});
    this.pause.addEventListener('click', () => {
      this.held = !this.held;
      this.pause.setAttribute('aria-pressed', String(this.held));
      if (!this.held && this.latest) this.draw();
    });
    this.box = el(
        'div', {className: 'monitor'}, el('p', {className: 'hint lead', 'data-text': 'monitor_about'}),
        el('div', {className: 'row'}, this.state, this.pause), this.server.box, this.refusedBox, this.hosts);
    panel.append(say(this.box));
    follow('lang theme', () => {
      say(this.box);
      this.tell(...this.told || ['monitor_connecting']);
      if (this.latest) this.draw();
    }, true);
    this.tell('monitor_connecting');
  }

  tell(key, values = {}) {
    this.told = [key, values];
    const text = values.error ? errorWords(values.error) + tr(key, values) : tr(key, values);
    if (this.state.textContent !== text) this.state.textContent = text;
  }

  // From show() to hide(): asks again where the server went away, or refused.
  async start() {
    const control = this.control = new AbortController();
    for (let wait = 1; !control.signal.aborted;) {
      let seconds = wait;
      try {
        const response = await ask('/v1/monitor', {signal: control.signal});
        wait = 1;
        await readEvents(response, (data) => {
          if (control.signal.aborted) return;
          this.take(JSON.parse(data));
          this.tell(this.latest.draining ? 'monitor_draining' : 'monitor_live');
        });
        if (control.signal.aborted) return;
        this.tell('monitor_away', {n: seconds});
      } catch (error) {
        if (control.signal.aborted || error.name === 'AbortError') return;
        if (error.kind === 'key') {
          if (await askKey()) continue;
          this.tell('monitor_key');
          this.control = null;  // asked for anew when this view is opened again
          return;
        }
        seconds = error.seconds || wait;
        if (error.kind === 'busy') this.tell('monitor_busy', {n: seconds});
        else if (error.kind === 'refused') this.tell('monitor_again', {n: seconds, error});
        else this.tell('monitor_away', {n: seconds});
      }
      this.gap();
      wait = Math.min(10, 2 * wait);
      await new Promise((done) => {
        const timer = setTimeout(done, 1000 * seconds);
        control.signal.addEventListener('abort', () => {
          clearTimeout(timer);
          done();
        });
      });
    }
  }
  stop() {
    if (this.control) this.control.abort();
    this.control = null;
    this.gap();
  }
  gap() {
    const last = this.history[this.history.length - 1];
    if (last && last.models) this.history.push({time: last.time, models: null});
  }

  take(moment) {
    this.latest = moment;
    this.history.push({time: performance.now() / 1000, models: moment.models});
    if (this.history.length > kMost) this.history.splice(0, this.history.length - kMost);
    if (!this.held) this.draw();
  }
  draw() {
    const s = this.latest;
    const refused = Object.entries(s.refused).sort((a, b) => b[1] - a[1]);
    this.server.set({
      uptime: span(s.seconds),
      connections: count(s.connections),
      waiting_all: count(s.waiting),
      waiting_tokens: count(s.waiting_tokens),
      streams: count(s.streams.detached),
      refused_all: count(refused.reduce((sum, [, n]) => sum + n, 0))
    });
    this.refusedBox.hidden = !refused.length;
    this.refused.firstElementChild.replaceChildren(...refused.map(
        ([code, n]) =>
            el('tr', {'data-code': code},
               el('th',
                  {scope: 'row', textContent: kReasons.includes(code) ? tr(`monitor_code_${code}`) : code}),
               el('td', {textContent: count(n)}), el('td', {}, el('code', {textContent: code})))));
    const ids = s.models.map((m) => m.id);
    for (const [id, part] of this.models)
      if (!ids.includes(id)) {
        part.box.remove();
        this.models.delete(id);
      }
    for (const m of s.models) {
      if (!this.models.has(m.id)) {
        const part = new ModelPart(m.id, this.history);
        this.models.set(m.id, part);
        this.hosts.append(part.box);
      }
      this.models.get(m.id).update(m);
    }
    this.box.dataset.moment = String(s.seconds);
  }
}

let view = null;
export function mount(panel) { view = new View(panel); }
export function show() {
  if (!view.control) view.start();
}
export function hide() { view.stop(); }
