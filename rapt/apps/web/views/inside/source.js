// SPDX-License-Identifier: Apache-2.0
// The top of the view "inside": which text is looked at, how far reading it came, and which layer, head and
// token are chosen.
import {editChips} from '/page/edits.js';
import {pictureWords} from '/page/figures.js';
import {tr} from '/page/i18n.js';
import {errorWords} from '/page/message.js';
import {el} from '/page/shared/dom.js';
import {kept, state} from '/page/state.js';

import {button, editButton, section} from './parts.js';
import {looking, playButton} from './play.js';
import {choose, open, read} from './reading.js';
import {labelOf, on, pick, quoted, seen} from './seen.js';

// status: statusPart(). own(): what is written in it is looked at.
export function sourcePart(status) {
  const area =
      el('textarea', {rows: 2, id: 'inside-own', 'data-label': 'inside_own', dir: 'auto', spellcheck: false});
  area.value = kept.get('inside.text') || tr('inside_example');
  const go = () => {
    const text = area.value;
    if (!text.trim()) return;
    kept.set('inside.text', text === tr('inside_example') ? null : text);
    open({model: state.model, text, from: null});
  };
  area.addEventListener('keydown', (event) => {
    if (event.key !== 'Enter' || event.isComposing || event.keyCode === 229 || event.shiftKey) return;
    event.preventDefault();
    go();
  });
  const what = el('p', {className: 'what'});
  const own = button('inside_read', go, {className: 'main', id: 'inside-go'});
  const watchBox = el('input', {type: 'checkbox', id: 'inside-live', checked: kept.get('inside.live', true)});
  watchBox.addEventListener('change', () => {
    kept.set('inside.live', watchBox.checked);
    looking();
  });
  on('all lang', () => {
    what.textContent = !seen.subject || !seen.all ? '' :
        tr(seen.subject.from ? 'inside_of_answer' : 'inside_of_text', {n: seen.all.shape.tokens});
  });
  const element = section(
      'source', el('p', {className: 'hint', 'data-text': 'inside_lead'}), what,
      el('div', {className: 'row own'}, area, own),
      el('div', {className: 'row'},
         el('label', {className: 'check'}, watchBox, el('span', {'data-text': 'inside_live'})), status));
  editChips(element);
  on('lang', () => {
    if (!kept.get('inside.text')) area.value = tr('inside_example');
  });
  return {element, own: () => open({model: state.model, text: area.value, from: null})};
}

export function statusPart(panel) {
  const line = el('p', {className: 'status', role: 'status'}),
        again = button('retry', () => read(), {hidden: true});
  on('status', () => {
    line.textContent = seen.problem ? (seen.problem.words ? seen.problem.words() : errorWords(seen.problem)) :
        seen.busy                   ? tr(`inside_busy_${seen.busy}`) :
                                      '';
    line.classList.toggle('error', Boolean(seen.problem));
    panel.firstChild?.classList.toggle('stale', !seen.all && !seen.live);
    again.hidden = !seen.problem || Boolean(seen.problem.words);
    panel.dataset.state = seen.problem ? 'failed' : seen.busy || 'ready';
  });
  return el('div', {className: 'row state'}, line, again);
}

export function barPart() {
  const bar = el('nav', {className: 'steppers', 'data-label': 'inside_chosen'});
  const stepper = (key, name, text) => {
    const label = el('span', {className: 'now'});
    const step = (sign, by, word) => {
      const b = el('button', {type: 'button', textContent: sign});
      b.addEventListener('click', () => choose({[key]: pick[key] + by}));
      on('lang',
         () => b.setAttribute('aria-label', `${pictureWords.word(name)}: ${pictureWords.word(word)}`));
      return b;
    };
    bar.append(el(
        'span', {className: `stepper step-${key}`}, step('‹', -1, 'previous'), label, step('›', 1, 'next')));
    on(`${key} lang all`, () => {
      label.textContent = seen.all ? text() : '–';
    });
  };
  stepper('l', 'layer', () => `${pictureWords.word('layer')} ${pick.l}`);
  stepper('h', 'head', () => `${pictureWords.word('head')} ${pick.h}`);
  stepper('t', 'token', () => quoted(pick.t));
  const badge = el('span', {className: 'badge'}), off = el('span');
  bar.append(badge, off, playButton(), el('span', {className: 'hint keys', 'data-text': 'inside_keys'}));
  on('l h all lang', () => {
    badge.textContent = seen.all ? labelOf(pick.l, pick.h) : '';
    badge.hidden = !badge.textContent;
    off.replaceChildren(
        ...(seen.all && seen.all.shape.heads ?
                [editButton(`L${pick.l}H${pick.h}:zero`, 'inside_head_off', 'inside_head_on')] :
                []));
  });
  return bar;
}
