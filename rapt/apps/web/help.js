// SPDX-License-Identifier: Apache-2.0
// What is where on the page, which words it uses, and how a server is started that has more: a dialog behind
// “Help”. Each view's sentence is also what its tab says when it is pointed at.
import {el} from '/page/shared/dom.js';
import {say} from './i18n.js';

const kWords = ['token', 'surprise', 'perplexity', 'layer', 'head', 'sink', 'edit', 'seed'];

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
      el('div', {className: 'help'}, el('dl', {}, ...places.flat()), el('h3', {'data-text': 'help_words'}),
         el('dl', {}, ...words.flat()), el('h3', {'data-text': 'help_more'}), el('dl', {}, ...more.flat()))));
}
