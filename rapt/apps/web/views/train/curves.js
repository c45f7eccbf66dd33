// SPDX-License-Identifier: Apache-2.0
// Curves of trainings and their tables: thinned to the pixels there are, so that a hundred thousand steps
// draw as fast as a hundred.
import {el} from '/page/shared/dom.js';
import {chart} from '/page/shared/plot.js';

// Of all values that fall into a column of pixels the least and the largest, in their order.
export function thin(x, y, columns) {
  const n = x.length;
  if (n <= 2 * columns) return {x, y};
  const out = {x: [], y: []}, from = x[0], width = (x[n - 1] - from) / columns || 1;
  const keep = (i) => {
    out.x.push(x[i]);
    out.y.push(y[i]);
  };
  for (let i = 0; i < n;) {
    const column = Math.floor((x[i] - from) / width);
    let low = i, high = i, gap = -1;
    for (; i < n && Math.floor((x[i] - from) / width) === column; ++i) {
      if (y[i] === null) gap = i;
      else if (y[low] === null || y[i] < y[low]) low = i;
      if (y[i] !== null && (y[high] === null || y[i] > y[high])) high = i;
    }
    for (const at of [...new Set([low, high, ...(gap < 0 ? [] : [gap])])].sort((a, b) => a - b)) keep(at);
  }
  return out;
}

// A moving mean: each value has the share 1 - keep. Gaps stay gaps.
export function smooth(y, keep) {
  if (!keep) return y;
  let now = null;
  return y.map((value) => {
    if (value === null) return null;
    now = now === null ? value : keep * now + (1 - keep) * value;
    return now;
  });
}

// curves: [{name, x, y, colour: 0 … 5, style: '' | 'held' | 'raw'}]
export function draw(host, {title, x_label, y_label, log, height, curves}) {
  const there = curves.filter((c) => c.x.length);
  const width = Math.max(240, host.clientWidth || 640);
  const thinned = there.map((c) => ({name: c.name, ...thin(c.x, c.y, width)}));
  const box = chart({title, x_label, y_label, log_y: log, curves: thinned}, width, height);
  const lines = box.querySelectorAll('.curve'), names = box.querySelectorAll('.keys li');
  there.forEach((c, i) => {
    for (const e of [lines[i], names[i]])
      if (e) e.setAttribute('class', `${e === lines[i] ? 'curve ' : ''}c${c.colour % 6} ${c.style || ''}`);
    if (c.style === 'raw' && names[i]) names[i].remove();
  });
  host.replaceChildren(box);
}

// A table in `details`, made when it is opened and whenever what it shows changed. rows() → [[…]], or,
// without columns, the table itself.
export function twin(columns, rows, about = () => '') {
  const note = el('p', {className: 'hint'}), scroll = el('div', {className: 'scroll', tabIndex: 0});
  const box = el('details', {className: 'twin'}, el('summary', {'data-text': 'train_table'}), note, scroll);
  const fill = () => {
    if (!box.open) return;
    note.textContent = about();
    note.hidden = !note.textContent;
    if (!columns) return scroll.replaceChildren(rows());
    const cells = (list, tag, scope) => list.map((text, i) => el(
        i === 0 && tag === 'td' ? 'th' : tag,
        {textContent: text, ...(scope || i === 0 ? {scope: scope || 'row'} : {})}));
    scroll.replaceChildren(
        el('table', {className: 'numbers'},
           el('thead', {}, el('tr', {}, ...cells(columns(), 'th', 'col'))),
           el('tbody', {}, ...rows().map((row) => el('tr', {}, ...cells(row, 'td'))))));
  };
  box.addEventListener('toggle', fill);
  return {box, fill};
}

// Which of n rows a table shows: all, or every k-th and the last.
export function some(n, most) {
  const every = Math.max(1, Math.ceil(n / most)), list = [];
  for (let i = 0; i < n; i += every) list.push(i);
  if (n && list[list.length - 1] !== n - 1) list.push(n - 1);
  return {every, list};
}
