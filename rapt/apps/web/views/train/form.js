// SPDX-License-Identifier: Apache-2.0
// What is trained: a model to begin with, its sizes, the text, the course. Kept in the browser.
import {el, options} from '/page/shared/dom.js';
import {tr} from '../../i18n.js';
import {follow, kept, state} from '../../state.js';

const kSmall = 'width=96 layers=3 heads=4 kv_heads=4 head_dim=24 ffn=256';
// name, preset, settings
const kModels = [
  ['llama', 'llama3', kSmall],
  ['gated', 'llama3-gate-g1', kSmall],
  ['qwen', 'qwen3', kSmall],
  ['gpt', 'gpt-char', 'width=96 layers=3 heads=4 context=96'],
  ['mixtral', 'mixtral', `${kSmall} decoder.kinds.L.parts[1].moe.experts=4`],
  ['delta', 'delta-char', 'width=96 layers=4'],
  ['bert', 'bert', 'width=96 layers=2 heads=4 ffn=256'],
];
// name, what it begins with, least, most, step
const kNumbers = [
  ['steps', 1000, 1, 100000, 1],
  ['rate', 0.003, 0, 100, 'any'],
  ['batch', 12, 1, 512, 1],
  ['length', 96, 2, 4096, 1],
  ['seed', 0, 0, 9007199254740991, 1],
];
const kMostText = 1 << 20;

export class Form {
  constructor(start) {
    this.inputs = {};
    this.told = el('p', {className: 'error', role: 'alert', hidden: true});
    const label = (name, input, about = '') => {
      this.inputs[name] = input;
      input.id = `train-${name}`;
      return el('label', {}, el('span', {'data-text': `train_${name}`}), input,
                ...(about ? [el('small', {'data-text': about})] : []));
    };
    const model = el('select', {}), settings = el('textarea', {rows: 2, spellcheck: false});
    const text = el('textarea', {rows: 3, spellcheck: false, 'data-ghost': 'train_text_ghost'});
    const file = el('input', {type: 'file', accept: '.txt,.md,text/*', id: 'train-file'});
    file.addEventListener('change', async () => {
      const chosen = file.files[0];
      if (!chosen) return;
      if (chosen.size > kMostText)
        return this.tell(tr('train_too_long', {n: Math.round(chosen.size / 1024)}));
      text.value = await chosen.text();
      this.keep();
    });
    this.button =
        el('button', {type: 'submit', className: 'main', id: 'train-start', 'data-text': 'train_start'});
    const numbers = kNumbers.map(([name, value, min, max, step]) => label(
        name, el('input', {type: 'number', value, min, max, step, inputMode: 'decimal', required: true})));
    this.save = label('name', el('input', {maxLength: 64, autocomplete: 'off'}), 'train_name_about');
    const form = el(
        'form', {className: 'train-form', noValidate: true, 'aria-labelledby': 'train-form-title'},
        label('model', model, 'train_model_about'), label('settings', settings, 'train_settings_about'),
        el('div', {className: 'train-numbers'}, ...numbers), label('text', text),
        el('label', {className: 'train-file'}, el('span', {'data-text': 'train_file'}), file), this.save,
        this.told, el('div', {className: 'row'}, this.button));
    this.box = el(
        'details', {className: 'card', id: 'train-new', open: true},
        el('summary', {}, el('h2', {id: 'train-form-title', 'data-text': 'train_form'})), form);
    this.box.addEventListener('submit', (event) => {
      event.preventDefault();
      if (this.check()) start(this.body());
    });
    this.box.addEventListener('input', (event) => {
      if (event.target !== file) this.keep();
    });
    model.addEventListener('change', () => {
      settings.value = this.given()[2];
      this.keep();
    });
    const before = kept.get('train') || {};
    for (const [name, value] of Object.entries(before))
      if (this.inputs[name] && typeof value === 'string' && name !== 'model') this.inputs[name].value = value;
    follow('lang recipe', () => {
      const now = model.value || before.model || 'llama';
      const list = kModels.map(([name]) => [name, tr(`train_m_${name}`)]);
      if (state.recipe) list.push(['own', tr('train_m_own')]);
      options(model, list);
      model.value = list.some(([name]) => name === now) ? now : 'llama';
      settings.disabled = model.value === 'own';
    });
    if (before.settings === undefined) settings.value = this.given()[2];
  }

  given() {
    const name = this.inputs.model.value;
    this.inputs.settings.disabled = name === 'own';
    return kModels.find((m) => m[0] === name) || ['own', '', ''];
  }
  keep() {
    const values = Object.fromEntries(Object.entries(this.inputs).map(([name, e]) => [name, e.value]));
    if (values.text.length > 100000) values.text = '';
    kept.set('train', values);
    this.tell('');
  }
  tell(text) {
    this.told.textContent = text;
    this.told.hidden = !text;
  }
  check() {
    let bad = null;
    for (const [name] of kNumbers) {
      const input = this.inputs[name], good = input.validity.valid;
      input.setAttribute('aria-invalid', String(!good));
      if (!good) bad ||= input;
    }
    if (bad) {
      this.tell(tr('train_number', {name: tr(`train_${bad.id.slice(6)}`), least: Number(bad.min),
                                    most: Number(bad.max)}));
      bad.focus();
    }
    return !bad;
  }
  body() {
    const out = {}, {inputs} = this, given = this.given();
    if (given[0] === 'own') {
      try {
        out.recipe = JSON.parse(state.recipe);
      } catch {
        out.recipe = {};  // the server says what is wrong with it
      }
    } else {
      out.preset = given[1];
      out.settings = inputs.settings.value.split(/[\s,]+(?=[^\s,]+=)/).map((s) => s.trim()).filter(Boolean);
    }
    for (const [name] of kNumbers) out[name] = Number(inputs[name].value);
    if (inputs.text.value) out.text = inputs.text.value;
    if (!this.save.hidden && inputs.name.value.trim()) out.name = inputs.name.value.trim();
    return out;
  }
}
