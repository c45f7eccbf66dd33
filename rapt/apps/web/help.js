// SPDX-License-Identifier: Apache-2.0
// What is where on the page, which words it uses, and how a server is started that has more: a dialog behind
// “Help”. Each view's sentence is also what its tab says when it is pointed at.
import {el} from '/page/shared/dom.js';
import {say, tr} from './i18n.js';
import {state} from './state.js';

const kWords = ['token', 'surprise', 'perplexity', 'layer', 'head', 'sink', 'edit', 'seed'];

// What the chosen model is, in a sentence; empty where the server does not tell.
export function modelFacts() {
  const m = state.models.find((m) => m.id === state.model), meta = m && m.meta;
  if (!meta || !meta.n_params || !meta.n_layer || !meta.n_head) return '';
  const lang = state.lang === 'zh' ? 'zh-CN' : 'en-US';
  const n = new Intl.NumberFormat(lang, {notation: 'compact', maximumSignificantDigits: 3});
  return tr('model_facts', {
    model: m.id,
    n: n.format(meta.n_params),
    layers: meta.n_layer,
    heads: meta.n_head,
    context: meta.n_ctx
  });
}

// views: [{name, title, there, needs}]; needs: key of what would bring one that is not there. go(view) opens
// one.
export function fillHelp(body, views, go) {
  const places = views.map((v) => {
    const what = el('dd', {}, el('span', {'data-text': `view_${v.name}_is`}));
    if (!v.there) {
      what.append(' ', el('em', {'data-text': v.needs}));
      return [el('dt', {className: 'gone', 'data-text': v.title}), what];
    }
    const name = el('button', {type: 'button', className: 'small', 'data-text': v.title});
    name.addEventListener('click', () => go(v));
    return [el('dt', {}, name), what];
  });
  const words = kWords.map(
      (word) => [el('dt', {'data-text': `word_${word}`}), el('dd', {'data-text': `word_${word}_is`})]);
  const more = ['models', 'lab', 'terminal'].map(
      (key) => [el('dt', {}, el('code', {'data-text': `help_${key}`})),
                el('dd', {'data-text': `help_${key}_is`})]);
  body.append(say(
      el('div', {className: 'help'}, el('p', {className: 'hint', textContent: modelFacts()}),
         el('dl', {}, ...places.flat()), el('h3', {'data-text': 'help_words'}), el('dl', {}, ...words.flat()),
         el('h3', {'data-text': 'help_more'}), el('dl', {}, ...more.flat()))));
}
