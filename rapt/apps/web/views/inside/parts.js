// SPDX-License-Identifier: Apache-2.0
// Pieces that the parts of the view "inside" are made of.
import {hasEdit, toggleEdit} from '/page/edits.js';
import {tr} from '/page/i18n.js';
import {el, options, twin} from '/page/shared/dom.js';

// A box of its own, with the id inside-NAME.
export const section = (name, ...children) => {
  const s = el('section', {className: `box ${name}`}, ...children);
  s.id = `inside-${name}`;
  return s;
};
export const heading = (key, ...more) =>
    el('div', {className: 'head'}, el('h2', {'data-text': key}), ...more);
export const button = (key, act, more = {}) => {
  const b = el('button', {type: 'button', 'data-text': key, ...more});
  b.addEventListener('click', act);
  return b;
};
// A choice: list() → [[value, text]]
export function select(label, list, now, act) {
  const s = el('select', {'data-label': label});
  s.addEventListener('change', () => act(s.value));
  s.again = () => {
    options(s, list());
    s.value = now();
  };
  return s;
}
// A table twin that is made anew while it is open.
export function table(id, make) {
  const t = twin(id, tr('as_table'), make);
  t.firstElementChild.dataset.text = 'as_table';
  t.again = () => {
    if (t.open) t.lastElementChild.replaceChildren(make());
  };
  return t;
}

// Puts an edit on or takes it away.
export function editButton(edit, does, undoes) {
  const b =
      el('button',
         {type: 'button', className: 'small', textContent: tr(hasEdit(edit) ? undoes : does), title: edit});
  b.dataset.edit = edit;
  b.setAttribute('aria-pressed', String(hasEdit(edit)));
  b.addEventListener('click', () => toggleEdit(edit));
  return b;
}
