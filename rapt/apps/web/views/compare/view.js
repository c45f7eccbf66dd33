// SPDX-License-Identifier: Apache-2.0
// Compare: one prompt and one seed, two sides of which something is different. The form; what comes of it is
// drawn by result.js, how it comes is session.js. What was compared last is kept until the tab is closed.
import {el, options} from '/page/shared/dom.js';

import {askJson} from '../../api.js';
import {say, tr} from '../../i18n.js';
import {errorWords} from '../../message.js';
import {askKey} from '../../settings.js';
import {announce, saveFile} from '../../shell.js';
import {follow, set, state} from '../../state.js';

import {Result, verdict} from './result.js';
import {Comparison, kPresets, newData} from './session.js';

const kKept = 'rapt.compare', kLengths = [16, 32, 64, 128, 256, 512];
const kEdits = ['none', 'head', 'attention', 'ffn', 'channel', 'own'];
const kTries = ['models', 'head', 'cache', 'sampling', 'nothing'];
const kName = ['A', 'B'];

const texts = () => state.models.filter((m) => !m.tasks || m.tasks.includes('completion'));
const cardOf = (id) => texts().find((m) => m.id === id);
const rootOf = (id) => (cardOf(id) || {}).root || id;
const metaOf = (id) => (cardOf(id) || {}).meta || {};
const cacheOf = (id) => metaOf(id).cache_type || '';

// Whether a model chats; asked for once.
const known = new Map();
function chatsOf(id) {
  if (!known.has(id))
    known.set(
        id,
        askJson(`/props?model=${encodeURIComponent(id)}`)
            .then((props) => Boolean(props.has_chat_template))
            .catch((error) => {
              known.delete(id);
              throw error;
            }));
  return known.get(id);
}

class View {
  constructor(panel) {
    this.chats = [false, false];
    this.prompt =
        el('textarea',
           {rows: 3, dir: 'auto', id: 'compare-prompt', className: 'compare-prompt', spellcheck: false});
    this.system =
        el('textarea', {rows: 2, dir: 'auto', 'data-ghost': 'system_ghost', 'data-label': 'system'});
    this.seed = el('input', {type: 'number', min: 0, max: 9007199254740991, step: 1, required: true});
    this.length = el('select', {}, ...kLengths.map((n) => el('option', {value: n, textContent: n})));
    this.go = this.button('compare_go', () => this.start(), 'main');
    this.go.id = 'compare-go';
    this.stopButton = this.button('stop', () => this.comparison.stop(), 'main stop');
    this.stopButton.hidden = true;
    this.save = this.button('compare_export', () => this.download(), 'small');
    this.save.hidden = true;
    this.error = el('p', {className: 'error', role: 'alert', hidden: true});
    this.differs = el('p', {className: 'compare-differs'});
    this.tries = el('div', {className: 'compare-tries', role: 'group', 'data-label': 'compare_tries'});
    this.forms = [0, 1].map((i) => this.sideForm(i));
    this.systemBox =
        el('details', {className: 'compare-system', hidden: true}, el('summary', {'data-text': 'system'}),
           this.system);
    this.before = el('p', {className: 'hint', hidden: true});
    const label = (key, input) => el('label', {}, el('span', {'data-text': key}), input);
    this.promptLabel = el('label', {htmlFor: 'compare-prompt'});
    this.results = el('div', {className: 'compare-results'});
    panel.append(say(
        el('div', {className: 'compare'}, el('p', {className: 'hint lead', 'data-text': 'compare_about'}),
           this.tries, el('div', {className: 'compare-ask'}, this.promptLabel, this.prompt), this.before,
           this.systemBox, el('div', {className: 'compare-sides'}, ...this.forms.map((f) => f.box)),
           this.differs, this.error,
           el('div', {className: 'row'}, this.go, this.stopButton, label('set_seed', this.seed),
              label('compare_length', this.length), this.save),
           this.results)));
    panel.addEventListener('keydown', (event) => {
      if (event.key === 'Escape' && this.busy()) {
        event.preventDefault();
        this.comparison.stop();
      } else if (
          event.key === 'Enter' && (event.ctrlKey || event.metaKey) && !event.isComposing && !this.busy()) {
        event.preventDefault();
        this.start();
      }
    });
    this.prompt.addEventListener('input', () => {
      this.setup.prompt = this.prompt.value;
    });
    this.system.addEventListener('input', () => {
      this.setup.system = this.system.value;
    });
    this.seed.addEventListener('input', () => {
      const n = Number(this.seed.value), fits = this.seed.value !== '' && this.seed.validity.valid;
      this.seed.setAttribute('aria-invalid', String(!fits));
      if (fits) this.setup.seed = n;
    });
    this.length.addEventListener('change', () => {
      this.setup.length = Number(this.length.value);
    });
    this.result = new Result(this.results, () => this.run(true));
    this.setup = this.first();
    this.restore();
    follow('models', () => this.modelsCame(), true);
    follow('lang', () => this.draw(), true);
    this.modelsCame();
  }

  button(key, act, className) {
    const b = el('button', {type: 'button', className, 'data-text': key});
    b.addEventListener('click', act);
    return b;
  }
  busy() { return Boolean(this.comparison && this.comparison.busy); }

  // ------------------------------------------------------------------------------------------- the form
  // What is offered at once: the two models that come with the program, else two of those that are served,
  // else one with a head switched off.
  first() {
    const ids = texts().map((m) => m.id), a = ids.includes('default') ? 'default' : state.model || ids[0];
    return {
      prompt: null,
      system: '',
      before: [],
      seed: 3,
      length: 64,
      sides: [this.plainSide(a), this.plainSide(a)],
      touched: false
    };
  }
  plainSide(model) {
    return {
      model,
      edit: {kind: 'none', layer: 0, head: 0, channel: 0, text: ''},
      sampling: {preset: 'balanced', temperature: 0.7, top_p: 0.95}
    };
  }
  pair() {  // two different models, or null
    const ids = texts().map((m) => m.id), a = this.setup.sides[0].model;
    const from =
        ids.includes('default') && ids.includes('default-gated') ? ['default', 'default-gated'] : [a, ...ids];
    const b = from.find((id) => rootOf(id) !== rootOf(from[0]));
    return b ? [from[0], b] : null;
  }
  caches() {  // one model, two names
    for (const m of texts()) {
      const other = texts().find((o) => o.id !== m.id && rootOf(o.id) === rootOf(m.id));
      if (other) return [m.id, other.id];
    }
    return null;
  }
  possible(name) {
    return name === 'models' ? Boolean(this.pair()) : name === 'cache' ? Boolean(this.caches()) : true;
  }
  attempt(name) {
    const s = this.setup, [a, b] = s.sides.map((side) => side.model);
    const two = name === 'models' ? this.pair() : name === 'cache' ? this.caches() : [a, a];
    s.sides = two.map((id) => this.plainSide(id || b));
    if (name === 'sampling') {
      s.sides[0].sampling.preset = 'precise';
      s.sides[1].sampling.preset = 'lively';
    }
    if (name === 'head') {
      s.sides[1].edit.kind = 'head';
      s.sides[1].edit.layer = Math.floor((metaOf(a).n_layer || 0) / 2);
    }
    this.fill();
  }

  sideForm(i) {
    const side = () => this.setup.sides[i], form = {};
    const number = (of, name, most, step = 1) => {
      const input = el('input', {type: 'number', min: 0, max: most, step, inputMode: 'decimal'});
      input.addEventListener('input', () => {
        const fits = input.value !== '' && input.validity.valid;
        input.setAttribute('aria-invalid', String(!fits));
        if (fits) side()[of][name] = Number(input.value);
        this.differences();
      });
      form[name] = input;
      return el('label', {'data-for': name}, el('span', {'data-text': `compare_${name}`}), input);
    };
    form.model = el('select');
    form.model.addEventListener('change', () => {
      side().model = form.model.value;
      this.setup.touched = true;
      this.fill();
    });
    form.edit = el('select');
    form.edit.addEventListener('change', () => {
      side().edit.kind = form.edit.value;
      this.fill();
    });
    form.text = el('textarea', {rows: 2, spellcheck: false, 'data-ghost': 'compare_edit_ghost'});
    form.text.addEventListener('input', () => {
      side().edit.text = form.text.value;
      this.differences();
    });
    form.preset = el('select');
    form.preset.addEventListener('change', () => {
      side().sampling.preset = form.preset.value;
      this.fill();
    });
    const label = (key, input, name) =>
        el('label', {'data-for': name || ''}, el('span', {'data-text': key}), input);
    form.box =
        el('fieldset', {className: `compare-side side-${i}`}, el('legend', {textContent: kName[i]}),
           el('div', {className: 'fields'}, label('model', form.model), label('compare_edit', form.edit),
              number('edit', 'layer', 999), number('edit', 'head', 9999), number('edit', 'channel', 99999),
              label('compare_edit_text', form.text, 'text'), label('presets', form.preset),
              number('sampling', 'temperature', 2, 0.05), number('sampling', 'top_p', 1, 0.01)));
    return form;
  }

  modelsCame() {
    if (!texts().length) return this.draw();
    const there = (id) => Boolean(cardOf(id));
    if (!this.setup.touched && !this.data) {
      this.setup = this.first();
      this.attempt(this.pair() ? 'models' : 'head');
    } else {
      for (const s of this.setup.sides)
        if (!there(s.model)) s.model = texts()[0].id;
      this.fill();
    }
  }

  // The form as the setup is.
  fill() {
    const s = this.setup, list = texts().map((m) => [m.id, m.id]);
    this.seed.value = s.seed;
    this.length.value = s.length;
    this.system.value = s.system || '';
    this.forms.forEach((form, i) => {
      const {model, edit, sampling} = s.sides[i];
      options(form.model, list);
      form.model.value = model;
      options(form.edit, kEdits.map((kind) => [kind, tr(`compare_edit_${kind}`)]));
      form.edit.value = edit.kind;
      options(form.preset, [...Object.keys(kPresets), 'own'].map((name) => [name, tr(`preset_${name}`)]));
      form.preset.value = sampling.preset;
      const wanted = {
        layer: ['head', 'attention', 'ffn', 'channel'].includes(edit.kind),
        head: edit.kind === 'head',
        channel: edit.kind === 'channel',
        text: edit.kind === 'own',
        temperature: sampling.preset === 'own',
        top_p: sampling.preset === 'own'
      };
      for (const [name, on] of Object.entries(wanted)) {
        form[name].closest('label').hidden = !on;
        form[name].value = name in edit ? edit[name] : sampling[name];
        form[name].removeAttribute('aria-invalid');
      }
      for (const [name, of] of [['layer', 'n_layer'], ['head', 'n_head'], ['channel', 'n_embd']])
        form[name].max = metaOf(model)[of] ? metaOf(model)[of] - 1 : 99999;
      if (model)
        chatsOf(model)
            .then((chats) => {
              if (s.sides[i].model !== model) return;
              this.chats[i] = chats;
              this.words();
            })
            .catch((error) => {
              if (error.kind === 'key') askKey().then((given) => given && this.fill());
            });
    });
    this.words();
  }
  chat() { return this.chats.every(Boolean); }
  promptNow() { return this.setup.prompt ?? tr(this.chat() ? 'example_2' : 'compare_example'); }

  // All that is said of the form in the page's language.
  words() {
    const s = this.setup, chat = this.chat();
    this.promptLabel.textContent = tr(chat ? 'compare_ask_chat' : 'compare_ask_text');
    if (document.activeElement !== this.prompt || this.prompt.value === '')
      this.prompt.value = this.promptNow();
    this.systemBox.hidden = !chat;
    this.before.hidden = !chat || !s.before.length;
    if (!this.before.hidden) {
      const drop = this.button('compare_before_drop', () => {
        s.before = [];
        this.words();
      }, 'small');
      this.before.replaceChildren(tr('compare_before', {n: s.before.length}), ' ', say(drop));
    }
    this.differences();
    const names = kTries.filter((name) => this.possible(name)), key = state.lang + names;
    if (this.offered === key) return;
    this.offered = key;
    this.tries.replaceChildren(
        el('span', {className: 'hint', textContent: tr('compare_tries')}), ...names.map((name) => {
          const b = this.button(`compare_try_${name}`, () => this.attempt(name), 'small');
          b.dataset.name = name;
          return say(b);
        }));
  }

  // What is set differently, by name.
  causes() {
    const [a, b] = this.setup.sides, out = [];
    const same = (x, y) => JSON.stringify(x) === JSON.stringify(y);
    if (rootOf(a.model) !== rootOf(b.model))
      out.push('model');
    else if (cacheOf(a.model) !== cacheOf(b.model))
      out.push('cache');
    const edit = (e) => e.kind === 'none' ? null :
        e.kind === 'own'                  ? e.text.trim() || null :
                           [e.kind, e.layer, e.kind === 'head' && e.head, e.kind === 'channel' && e.channel];
    if (!same(edit(a.edit), edit(b.edit))) out.push('edit');
    const how = (x) => x.preset === 'own' ? [x.temperature, x.top_p] : x.preset;
    if (!same(how(a.sampling), how(b.sampling))) out.push('sampling');
    return out;
  }
  differences() {
    const causes = this.causes(), [a, b] = this.setup.sides.map((s) => s.model);
    const names = causes.map((c) => tr(`compare_cause_${c}`, {a: cacheOf(a), b: cacheOf(b)}));
    this.differs.textContent = !names.length ? tr('compare_differs_none') :
                                               tr('compare_differs', {what: names.join(tr('compare_and'))});
  }

  // ---------------------------------------------------------------------------------------------- a run
  async start() {
    const s = this.setup;
    const bad = document.querySelector('#view-compare [aria-invalid="true"]:not([hidden])');
    if (bad && !bad.closest('[hidden]')) return bad.focus();
    s.prompt = this.prompt.value;
    if (!s.prompt.trim()) return this.prompt.focus();
    this.fail(null);
    this.go.disabled = true;
    try {
      this.chats = await Promise.all(s.sides.map((side) => chatsOf(side.model)));
      const cards = s.sides.map((side) => cardOf(side.model));
      this.data = newData(structuredClone(s), {
        chat: this.chat(),
        oneVocabulary: !cards[0] || !cards[1] || cards[0].meta.n_vocab === cards[1].meta.n_vocab,
        roots: s.sides.map((side) => ({root: rootOf(side.model), cache: cacheOf(side.model)}))
      });
      this.data.causes = this.causes();
    } catch (error) {
      this.go.disabled = false;
      if (error.kind === 'key' && await askKey()) return this.start();
      return this.fail(error.kind ? error : {kind: 'edit'});
    }
    this.result.show(this.data);
    await this.run();
  }
  async run(look = false) {
    this.comparison = new Comparison(this.data, {changed: () => this.later(), keep: () => this.keep()});
    const run = look ? this.comparison.look() : this.comparison.start();
    this.draw();
    await run;
    this.draw();
    announce(verdict(this.data));
    if (this.data.sides.some((s) => s.error && s.error.kind === 'key') && await askKey()) this.start();
  }
  fail(error) {
    this.error.hidden = !error;
    this.error.textContent = !error ? '' : error.kind === 'edit' ? tr('compare_bad_edit') : errorWords(error);
  }

  later() {
    if (this.waits) return;
    this.waits = true;
    const run = () => {
      this.waits = false;
      this.draw();
    };
    if (document.visibilityState === 'visible')
      requestAnimationFrame(run);
    else
      setTimeout(run, 200);
  }
  draw() {
    if (texts().length && this.lang !== state.lang) {
      this.lang = state.lang;
      this.fill();
    }
    const busy = this.busy(), hadStop = document.activeElement === this.stopButton;
    this.stopButton.hidden = !busy;
    this.go.hidden = busy;
    this.go.disabled = !texts().length;
    if (hadStop && !busy) this.go.focus();
    this.save.hidden = !this.data || busy;
    this.result.update(this.data, this.comparison);
  }

  // ----------------------------------------------------------------------------------------- what is kept
  keep() {
    const put = (data) => sessionStorage.setItem(kKept, JSON.stringify({setup: this.setup, data}));
    try {
      put(this.data);
    } catch {
      try {  // too much: without the heads
        put({...this.data, heads: [[null, null], [null, null]]});
      } catch {
        // no storage: gone with a reload
      }
    }
  }
  restore() {
    let kept = null;
    try {
      kept = JSON.parse(sessionStorage.getItem(kKept));
    } catch {
      // nothing
    }
    if (!kept || !kept.data) return;
    this.setup = {...kept.setup, touched: true};
    this.data = kept.data;
    this.result.show(this.data);
    for (const side of this.data.sides) {
      // What broke off when the page went away goes on, if it has a name.
      if (side.error && side.error.kind === 'cut' && side.stream) side.over = side.error = null;
      if (!side.over && !side.stream) side.over = side.stopped = true;
    }
    const looked = (this.data.error && this.data.error.kind !== 'offline') ||
        this.data.sides.some((s) => s.error || !s.tokens.length) || this.data.scores.every(Boolean);
    if (this.data.sides.some((s) => !s.over) || !looked) this.run();
  }
  download() {
    const {setup, ...rest} = this.data;
    saveFile('rapt-compare.json', JSON.stringify({rapt: 'compare', setup, ...rest}, null, 1));
  }

  // From an answer of the chat: asked once more, beside it with its edits, or with a head off.
  take({model, messages, seed, sampling, edits}) {
    if (this.busy() || !cardOf(model)) return;
    const list = [...messages], last = list.pop(),
          system = list[0] && list[0].role === 'system' ? list.shift() : null;
    const side = () => {
      const one = this.plainSide(model), {temperature, top_p} = sampling;
      const preset = Object.entries(kPresets).find(
          ([, p]) => ['temperature', 'top_p', 'top_k', 'min_p', 'repeat_penalty'].every(
              (key) => (p[key] ?? null) === (sampling[key] ?? null)));
      one.sampling = {preset: preset ? preset[0] : 'own', temperature: temperature ?? 1, top_p: top_p ?? 1};
      return one;
    };
    Object.assign(this.setup, {
      prompt: last.content,
      before: list,
      system: system ? system.content : '',
      length: 256,
      touched: true,
      sides: [side(), side()]
    });
    this.prompt.value = last.content;
    if (Number.isInteger(seed)) this.setup.seed = seed;
    const edit = this.setup.sides[1].edit;
    edit.layer = Math.floor((metaOf(model).n_layer || 0) / 2);
    edit.kind = edits.length ? 'own' : 'head';
    edit.text = edits.map((e) => typeof e === 'string' ? e : JSON.stringify(e)).join('\n');
    this.fill();
  }
}

let view = null;
export function mount(panel) { view = new View(panel); }
export function show() {
  if (state.compare) {
    view.take(state.compare);
    set({compare: null});
  }
  view.draw();
}
