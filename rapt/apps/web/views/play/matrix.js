// SPDX-License-Identifier: Apache-2.0
// A small matrix as a picture that can be read: cells with their colour and, where it fits, their number.
// Arrow keys move through it, and with each step what all pictures of the page have chosen.
import {el} from '/page/shared/dom.js';

import {painter} from '../../figures.js';

export const figure = (x, digits = 2) =>
    !Number.isFinite(x) ? '–' : (Math.abs(x) < 0.5 * 10 ** -digits ? 0 : x).toFixed(digits).replace('-', '−');

function paint(cell, share, signed) {
  if (share === null) {
    Object.assign(cell.style, {backgroundColor: '', color: ''});
    return;
  }
  const table = painter.table(signed);
  const at = 3 * Math.round(255 * Math.min(1, Math.max(0, share))), rgb = [...table.slice(at, at + 3)];
  const light =
      rgb.map((c) => (c / 255) ** 2.2).reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
  Object.assign(
      cell.style, {backgroundColor: `rgb(${rgb.join(' ')})`, color: light > 0.18 ? '#111' : '#f6f6f6'});
}

export class Matrix {
  // choose(row, column): a cell was gone to. columns: whether a column is part of what is chosen.
  constructor(host, {choose, columns}) {
    Object.assign(this, {choose, columns, at: [0, 0], rows: 0, width: 0});
    this.table = el('table', {className: 'cells', role: 'grid'});
    this.box = el('div', {className: 'cells-box scroll'}, this.table);
    host.append(this.box);
    this.table.addEventListener('keydown', (event) => this.key(event));
    this.table.addEventListener('click', (event) => this.take(event.target.closest('td')));
    new ResizeObserver(() => this.fit()).observe(this.box);
  }
  fit() {
    const cell = this.table.querySelector('td');
    if (cell) this.table.classList.toggle('tight', cell.clientWidth < 37);
  }
  key(event) {
    const step = {ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0]}[event.key];
    if (!step || event.altKey || event.ctrlKey || event.metaKey || !event.target.matches('td')) return;
    event.preventDefault();
    const within = (x, most) => Math.min(most - 1, Math.max(0, x));
    const [r, c] = this.place(event.target);
    const to = [within(r + step[0], this.rows), within(c + step[1], this.width)];
    this.table.rows[to[0] + 1].cells[to[1] + 1].focus();
    this.go(...to);
  }
  take(cell) {
    if (!cell) return;
    cell.focus();
    this.go(...this.place(cell));
  }
  place = (cell) => [cell.parentElement.rowIndex - 1, cell.cellIndex - 1];
  go(row, column) {
    this.at = [row, column];
    this.choose(row, column);
  }
  // values [rows][columns], null: nothing there; share(x) → 0 … 1 or null; names of both sides; chosen: [row,
  // column]; title: what is said of the whole.
  draw({values, share, rows, columns, signed, chosen, title}) {
    if (this.rows !== rows.length || this.width !== columns.length) this.build(rows.length, columns.length);
    this.table.setAttribute('aria-label', title);
    const corner = [...this.table.rows[0].cells].slice(1);
    corner.forEach((cell, c) => {
      cell.textContent = columns[c];
      cell.className = this.columns && c === chosen[1] ? 'on' : '';
    });
    const column = this.columns && chosen[1] < columns.length ? chosen[1] : this.at[1];
    this.at = [chosen[0], Math.min(column, columns.length - 1)];
    rows.forEach((name, r) => {
      const [head, ...cells] = this.table.rows[r + 1].cells, on = r === chosen[0];
      head.textContent = name;
      this.table.rows[r + 1].className = on ? 'on' : '';
      cells.forEach((cell, c) => {
        const x = values[r][c];
        cell.textContent = x === null ? '' : figure(x);
        cell.className = x === null ? 'hidden-key' : on && this.columns && c === chosen[1] ? 'on' : '';
        cell.tabIndex = r === this.at[0] && c === this.at[1] ? 0 : -1;
        paint(cell, x === null ? null : share(x), signed);
      });
    });
    this.fit();
  }
  build(rows, columns) {
    Object.assign(this, {rows, width: columns, at: [0, 0]});
    const line = (tag, first) => el(
        'tr', {}, first,
        ...Array.from({length: columns}, () => el(tag, tag === 'th' ? {scope: 'col'} : {role: 'gridcell'})));
    this.table.replaceChildren(
        el('thead', {}, line('th', el('th', {'aria-hidden': 'true'}))),
        el('tbody', {}, ...Array.from({length: rows}, () => line('td', el('th', {scope: 'row'})))));
  }
}

// The scale of values on both sides of 0.
export function aroundZero(values) {
  const most = values.flat().reduce((m, x) => x === null ? m : Math.max(m, Math.abs(x)), 1e-9);
  return (x) => 0.5 + 0.5 * x / most;
}
