// SPDX-License-Identifier: Apache-2.0
// The list of conversations: new, search, name, delete with a way back, files out and in.
import {el} from '/page/shared/dom.js';
import * as history from './history.js';
import {say, tr, when} from './i18n.js';
import {notice, saveFile} from './shell.js';
import {follow, state} from './state.js';

// open(id or null): shows a conversation; find(id): the one object of it; busy(id): whether an answer is being
// written in it; gone(id): it was deleted.
export class Sidebar {
  constructor(host, {open, find, busy, gone}) {
    Object.assign(this, {open, find, busy, gone, found: null});
    this.field = el('input', {type: 'search', 'data-ghost': 'search', 'data-label': 'search'});
    this.items = el('ul', {className: 'conversations'});
    this.file = el('input', {type: 'file', accept: '.json,application/json', hidden: true, tabIndex: -1});
    const button = (key, act, more = {}) => {
      const b = el('button', {type: 'button', 'data-text': key, ...more});
      b.addEventListener('click', act);
      return b;
    };
    this.fresh = button('new', () => open(null), {id: 'new', className: 'main'});
    host.append(say(
        el('div', {className: 'side'}, this.fresh, this.field, this.items,
           el('div', {className: 'row'}, button('export_all', () => this.exportAll(), {className: 'small'}),
              button('import', () => this.file.click(), {className: 'small'})),
           this.file, el('p', {className: 'hint', 'data-text': 'history_where'}))));
    this.field.addEventListener('input', () => this.search());
    this.file.addEventListener('change', () => this.take());
    this.items.addEventListener('keydown', (event) => {
      const step = {ArrowDown: 1, ArrowUp: -1}[event.key];
      if (!step || event.target.tagName === 'INPUT') return;
      const all = [...this.items.querySelectorAll('.open')],
            at = all.indexOf(event.target.closest('li').querySelector('.open'));
      event.preventDefault();
      (all[at + step] || all[at]).focus();
    });
    follow('conversation lang writing', () => this.refresh());
  }

  async search() {
    const text = this.field.value.trim();
    this.found = text ? await history.search(text) : null;
    if (text === this.field.value.trim()) this.refresh();
  }

  async refresh() {
    const turn = this.turn = {};
    const all = (await history.list()).filter((c) => !this.found || this.found.has(c.id));
    if (turn !== this.turn || this.items.querySelector('input'))
      return;  // a newer one runs, or a name is being written
    const focused = this.items.contains(document.activeElement) ?
        [document.activeElement.closest('li').dataset.id, document.activeElement.className] :
        null;
    this.items.replaceChildren(...all.map((c) => this.item(c)));
    if (!all.length)
      this.items.append(
          el('li', {className: 'empty', textContent: tr(this.found ? 'nothing_found' : 'nothing_yet')}));
    if (focused) {
      const again = [...this.items.children].find((li) => li.dataset.id === focused[0]);
      if (again) [...again.querySelectorAll('button')].find((b) => b.className === focused[1])?.focus();
    }
  }

  item(c) {
    const title = c.title || tr('untitled');
    const open =
        el('button', {type: 'button', className: 'open', title: `${title}\n${when(c.updated)}`},
           el('span', {textContent: title, dir: 'auto'}));
    if (this.busy(c.id)) open.append(el('span', {className: 'dot', title: tr('writing')}));
    if (c.id === state.conversation) open.setAttribute('aria-current', 'true');
    open.addEventListener('click', () => this.open(c.id));
    const small = (sign, key, act) => {
      const b = el('button', {
        type: 'button',
        className: `small ${key}`,
        textContent: sign,
        title: tr(key),
        'aria-label': tr(`${key}_label`, {title})
      });
      b.addEventListener('click', act);
      return b;
    };
    const li =
        el('li', {}, open, small('✎', 'rename', () => this.rename(c, li)),
           small('✕', 'delete', () => this.remove(c)));
    li.dataset.id = c.id;
    return li;
  }

  rename(c, li) {
    const input = el('input', {value: c.title, maxLength: 200, 'aria-label': tr('rename')});
    let over = false;
    const end = async (keep) => {
      if (over) return;
      over = true;
      const title = input.value.trim();
      input.remove();
      if (keep && title && title !== c.title) await this.name(c.id, title);
      await this.refresh();
      [...this.items.children].find((one) => one.dataset.id === c.id)?.querySelector('.open').focus();
    };
    input.addEventListener('keydown', (event) => {
      if (event.key === 'Enter' && !event.isComposing) end(true);
      if (event.key === 'Escape' && !event.isComposing) {
        event.stopPropagation();
        end(false);
      }
    });
    input.addEventListener('blur', () => end(true));
    li.replaceChildren(input);
    input.select();
    input.focus();
  }
  async name(id, title) {
    const c = await this.find(id);
    if (c) await history.save(Object.assign(c, {title, named: true}));
  }

  async remove(c) {
    this.gone(c.id);
    const whole = await history.remove(c.id);
    await this.refresh();
    (this.items.querySelector('.open') || this.fresh).focus();
    notice(tr('deleted', {title: c.title || tr('untitled')}), [
      'undo',
      async () => {
        if (whole) await history.restore(whole);
        await this.refresh();
      }
    ]);
  }

  async exportAll() {
    const all = await history.list();
    saveFile('rapt-conversations.json', await history.exported(all.map((c) => c.id)));
  }
  async take() {
    const file = this.file.files[0];
    this.file.value = '';
    if (!file) return;
    try {
      if (file.size > 256 << 20) throw new Error('too large');
      notice(tr('imported', {n: await history.imported(await file.text())}));
    } catch { notice(tr('import_failed', {name: file.name})); }
    this.refresh();
  }
}
