// SPDX-License-Identifier: Apache-2.0
// How tokens are drawn. A field left empty is the server's business (/props says what it does then); where
// the model itself has no opinion, the page begins with values that suit most chats.
import {el} from '/page/shared/dom.js';
import {askJson, setKey} from './api.js';
import {say, tr} from './i18n.js';
import {dialog} from './shell.js';
import {follow, kept, set, state} from './state.js';

// name, least, most, step, whole
const kFields = [
  ['temperature', 0, 2, 0.05],
  ['top_p', 0, 1, 0.01],
  ['top_k', 0, 1000, 1],
  ['min_p', 0, 1, 0.01],
  ['repeat_penalty', 0.5, 2, 0.05],
  ['max_tokens', 1, 1000000, 1],
  ['seed', 0, 9007199254740991, 1],
];
const kNothing = {
  temperature: null,
  top_p: null,
  top_k: null,
  min_p: null,
  repeat_penalty: null
};
const kPresets = {
  model: kNothing,
  precise: {...kNothing, temperature: 0},
  balanced: {...kNothing, temperature: 0.7, top_p: 0.95},
  lively: {...kNothing, temperature: 1, min_p: 0.05},
};

const params = () => (state.props && state.props.default_generation_settings &&
                      state.props.default_generation_settings.params) ||
    {};
export const contextOf = () => (state.props && state.props.default_generation_settings &&
                                state.props.default_generation_settings.n_ctx) ||
    0;
// Whether the model came with advice of its own.
function advised() {
  const p = params();
  return [['temperature', 1], ['top_p', 1], ['top_k', 0], ['min_p', 0], ['repeat_penalty', 1]].some(
      ([k, off]) => p[k] !== undefined && p[k] !== off);
}
const presetNow = () => kept.get('preset') || (advised() ? 'model' : 'balanced');

export function sampling() {
  const preset = presetNow(), own = kept.get('sampling') || {};
  const from = preset === 'own' ? own : kPresets[preset] || kPresets.balanced;
  return {...from, max_tokens: own.max_tokens ?? null, seed: own.seed ?? null, stop: own.stop || []};
}

export function openSettings() {
  dialog('settings', (box) => {
    const inputs = {}, group = el('fieldset', {className: 'presets'}, el('legend', {'data-text': 'presets'}));
    const radio = (name) => {
      const input = el('input', {type: 'radio', name: 'preset', value: name, checked: presetNow() === name});
      input.addEventListener('change', () => {
        kept.set('preset', name);
        show();
      });
      group.append(el('label', {}, input, el('span', {'data-text': `preset_${name}`})));
      return input;
    };
    const radios = Object.fromEntries([...Object.keys(kPresets), 'own'].map((name) => [name, radio(name)]));
    const show = () => {
      const s = sampling();
      for (const [name] of kFields) inputs[name].value = s[name] ?? '';
      stop.value = s.stop.join('\n');
    };
    const keep = () => {
      const own = {};
      let good = true;
      for (const [name, least, most, step] of kFields) {
        const text = inputs[name].value.trim(), x = Number(text);
        const fits = text === '' ? inputs[name].validity.badInput === false :
                                   x >= least && x <= most && (step < 1 || Number.isInteger(x));
        inputs[name].setAttribute('aria-invalid', String(!fits));
        good = good && fits;
        own[name] = fits && text !== '' ? x : null;
      }
      own.stop = stop.value.split('\n').filter(Boolean).slice(0, 16).map((s) => s.slice(0, 256));
      kept.set('sampling', own);
      return good;
    };
    const fields = el('div', {className: 'fields'});
    for (const [name, least, most, step] of kFields) {
      const input = el('input', {
        type: 'number',
        min: least,
        max: most,
        step,
        inputMode: 'decimal',
        'aria-describedby': `about-${name}`
      });
      const given = params()[name];
      input.placeholder = given !== undefined ? tr('server_value', {x: given}) :
                                                tr(name === 'max_tokens' ? 'no_limit' :
                                                       name === 'seed'   ? 'drawn' :
                                                                           'server_default');
      input.addEventListener('input', () => {
        if (keep() && name !== 'max_tokens' && name !== 'seed') {
          kept.set('preset', 'own');
          radios.own.checked = true;
        }
      });
      inputs[name] = input;
      fields.append(
          el('label', {}, el('span', {'data-text': `set_${name}`}), input,
             el('small', {id: `about-${name}`, 'data-text': `about_${name}`})));
    }
    const stop = el('textarea', {rows: 2, spellcheck: false, 'aria-describedby': 'about-stop'});
    stop.addEventListener('input', keep);
    const check = (name, otherwise) => {
      const input = el('input', {type: 'checkbox', checked: kept.get(name, otherwise)});
      input.addEventListener('change', () => kept.set(name, input.checked));
      return el('label', {className: 'check'}, input, el('span', {'data-text': `set_${name}`}));
    };
    box.append(say(el(
        'div', {}, el('p', {className: 'hint', textContent: tr(advised() ? 'advice_model' : 'advice_page')}),
        group, fields,
        el('label', {className: 'wide'}, el('span', {'data-text': 'set_stop'}), stop,
           el('small', {id: 'about-stop', 'data-text': 'about_stop'})),
        check('logprobs', true), check('enter', true))));
    show();
  });
}

// The key that the server asks for; resolves to whether one was given.
let asking = null;
export function askKey() {
  asking ||= new Promise((done) => {
    let given = false;
    const shut = dialog('key_title', (box, close) => {
      const input = el('input', {type: 'password', autocomplete: 'off', spellcheck: false}),
            keep = el('input', {type: 'checkbox'});
      const button = el('button', {type: 'button', className: 'main', 'data-text': 'key_use'});
      const use = () => {
        if (!input.value.trim()) return input.focus();
        setKey(input.value, keep.checked);
        given = true;
        close();
      };
      button.addEventListener('click', use);
      input.addEventListener('keydown', (event) => {
        if (event.key === 'Enter' && !event.isComposing) use();
      });
      box.append(say(
          el('div', {className: 'key'}, el('p', {'data-text': 'key_why'}),
             el('label', {className: 'wide'}, el('span', {'data-text': 'key'}), input),
             el('label', {className: 'check'}, keep, el('span', {'data-text': 'key_keep'})), button)));
    });
    shut.addEventListener('close', () => {
      asking = null;
      done(given);
    });
  });
  return asking;
}

// ------------------------------------------------------------------------------------------------- models
const writes = (m) => !m.tasks || m.tasks.some((t) => ['chat', 'completion', 'translation'].includes(t));

// Whether the chosen model answers; else it goes on with a text.
export const chats = (s = state) => Boolean(s.props) && (s.props.has_chat_template || translates(s));
export function translates(s = state) {
  const m = s.models.find((one) => one.id === s.model);
  return Boolean(m && m.tasks && m.tasks.includes('translation'));
}

// Asks until there is an answer: a key that is missing is asked for, a server that is away is waited for.
export async function loadModels() {
  for (;;) {
    try {
      const models = (await askJson('/v1/models')).data.filter(writes);
      set({models});
      if (!models.length) {  // `rapt train --watch`; else models that write nothing
        const props = await askJson('/props');
        if (props.watch) return set({props});
      }
      await chooseModel(
          models.some((m) => m.id === kept.get('model')) ? kept.get('model') :
              models.length                              ? models[0].id :
                                                           '');
      return;
    } catch (error) {
      if (error.kind === 'key') await askKey();
      else await new Promise((done) => setTimeout(done, 1500));
    }
  }
}
export async function chooseModel(id) {
  if (!id) return;
  const props = await askJson(`/props?model=${encodeURIComponent(id)}`);
  kept.set('model', id);
  set({model: id, props});
}

export function modelChoice(select) {
  follow('models lang props', () => {
    select.replaceChildren(...state.models.map((m) => el('option', {value: m.id, textContent: m.id})));
    if (!state.models.length) select.append(el('option', {textContent: tr('no_models')}));
    select.parentElement.hidden = Boolean(state.props && state.props.watch);
    select.value = state.model;
    select.disabled = state.models.length < 2;
  });
  follow('model', () => {
    select.value = state.model;
  });
  select.addEventListener('change', () => chooseModel(select.value).catch(() => {
    select.value = state.model;
  }));
}
