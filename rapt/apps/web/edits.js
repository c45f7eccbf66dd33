// SPDX-License-Identifier: Apache-2.0
// Edits of the model that every answer is written with (state.edits, docs/edits.md): put there by the view
// "inside", shown wherever answers are written, taken away with a click. They belong to the chosen model.
import {el} from '/page/shared/dom.js';
import {tr} from './i18n.js';
import {notice} from './shell.js';
import {follow, set, state} from './state.js';

export const hasEdit = (text) => state.edits.includes(text);
export function toggleEdit(text) {
  set({edits: hasEdit(text) ? state.edits.filter((e) => e !== text) : [...state.edits, text]});
}

// A line of chips, one for each edit; hidden where there is none.
export function editChips(host) {
  const line = el('div', {className: 'edits', role: 'group', hidden: true});
  host.append(line);
  follow('edits lang', () => {
    line.hidden = !state.edits.length;
    line.setAttribute('aria-label', tr('edits_on'));
    line.replaceChildren(el('span', {textContent: tr('edits_on')}), ...state.edits.map((text) => {
      const chip = el('button', {
        type: 'button',
        className: 'small chip',
        title: tr('edits_off'),
        'aria-label': `${tr('edits_off')}: ${text}`
      }, el('code', {textContent: text}), ' ✕');
      chip.addEventListener('click', () => toggleEdit(text));
      return chip;
    }));
  });
  return line;
}

let model = null;
follow('model', () => {
  if (model && state.model !== model && state.edits.length) {
    set({edits: []});
    notice(tr('edits_gone'));
  }
  model = state.model;
});
