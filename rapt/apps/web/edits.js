// SPDX-License-Identifier: Apache-2.0
// Edits of the model that every answer is written with (state.edits, docs/edits.md): put there by the view
// "inside", shown wherever answers are written, taken away with a click. They belong to the chosen model and
// outlive a reload of this tab, so that the answers after it are the model's one sees.
import {el} from '/page/shared/dom.js';
import {tr} from './i18n.js';
import {notice} from './shell.js';
import {follow, set, state} from './state.js';

export const hasEdit = (text) => state.edits.includes(text);
export function toggleEdit(text) {
  set({edits: hasEdit(text) ? state.edits.filter((e) => e !== text) : [...state.edits, text]});
}

// The usual ones in words; null for what only its own text can say.
const kWords = [
  ['edit_head', /^(?:L(?<layer>\d+)H|z\.(?<layer2>\d+)@h)(?<head>\d+):zero$/],
  ['edit_attention', /^attn_out\.(?<layer>\d+):zero$/],
  ['edit_ffn', /^mlp_out\.(?<layer>\d+):zero$/],
  ['edit_number', /^resid_post\.(?<layer>\d+)@p(?<token>\d+)@c(?<channel>\d+):zero$/],
];
export function editWords(text) {
  for (const [key, form] of kWords) {
    const found = form.exec(text);
    if (found) return tr(key, {...found.groups, layer: found.groups.layer ?? found.groups.layer2});
  }
  return null;
}

// A line of chips, one for each edit; hidden where there is none.
export function editChips(host) {
  const line = el('div', {className: 'edits', role: 'group', hidden: true});
  host.append(line);
  follow('edits lang', () => {
    line.hidden = !state.edits.length;
    line.setAttribute('aria-label', tr('edits_on'));
    line.replaceChildren(el('span', {textContent: tr('edits_on')}), ...state.edits.map((text) => {
      const words = editWords(text);
      const chip = el('button', {
        type: 'button',
        className: 'small chip',
        title: tr('edits_off'),
        'aria-label': `${tr('edits_off')}: ${words || text}`
      }, ...(words ? [`${words} `] : []), el('code', {textContent: text}), ' ✕');
      chip.addEventListener('click', () => toggleEdit(text));
      return chip;
    }), el('span', {className: 'hint', textContent: tr('edits_compare')}));
  });
  return line;
}

function ofLastTime() {
  try {
    const {of, edits} = JSON.parse(sessionStorage.getItem('rapt.edits')) || {};
    return of === state.model && Array.isArray(edits) ? edits.filter((e) => typeof e === 'string') : [];
  } catch { return []; }
}

let model = null;
follow('model', () => {
  if (!model && state.model && !state.edits.length) {
    const edits = ofLastTime();
    if (edits.length) set({edits});
  } else if (model && state.model !== model && state.edits.length) {
    set({edits: []});
    notice(tr('edits_gone'));
  }
  model = state.model;
});
follow('edits', () => {
  try {
    if (state.edits.length)
      sessionStorage.setItem('rapt.edits', JSON.stringify({of: state.model, edits: state.edits}));
    else sessionStorage.removeItem('rapt.edits');
  } catch {
    // forbidden: a reload forgets them, and the line of chips with them
  }
}, true);
