// SPDX-License-Identifier: Apache-2.0
// Elements by name: no markup is ever made from a text. Shared: this report has it in its one script, the
// page of `rapt serve` imports it.
export const byId = (id) => document.getElementById(id);

// An element with properties and children; strings become text, never markup.
export function el(tag, props = {}, ...children) {
  const e = document.createElement(tag);
  for (const [key, value] of Object.entries(props)) {
    if (key.includes('-') || key === 'role') e.setAttribute(key, value);
    else e[key] = value;
  }
  e.append(...children);
  return e;
}
export function svg(tag, attributes = {}, ...children) {
  const e = document.createElementNS('http://www.w3.org/2000/svg', tag);
  for (const [key, value] of Object.entries(attributes)) e.setAttribute(key, value);
  e.append(...children);
  return e;
}

// The choices of a select: [value, text].
export function options(select, list) {
  select.replaceChildren(...list.map(([value, text]) => el('option', {value, textContent: text})));
}

// The table of a picture, made anew each time somebody opens it: make() → an element.
export function twin(id, text, make) {
  const details =
      el('details', {id, className: 'twin'}, el('summary', {textContent: text}),
         el('div', {className: 'scroll', tabIndex: 0}));
  details.addEventListener(
      'toggle', () => details.lastElementChild.replaceChildren(...(details.open ? [make()] : [])));
  return details;
}
