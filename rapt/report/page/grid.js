// SPDX-License-Identifier: Apache-2.0
// Layers × tokens: the whole text as a picture, and the tokens around the chosen one as a table that can be
// read. Shared by the report and the page of `rapt serve`.
//   a grid: {rows: names, values: [row][token], said: null or (row, token) → text, log}
import {el} from './dom.js';
import {heat, paint, scaleOf} from './heat.js';
import {number} from './numbers.js';
import {shown} from './signs.js';

export const scaleOfGrid = (g) => scaleOf(g.values, false, g.log);

//   scroll  the box around host that scrolls;  choose(row, t), tell(row, t), left(), move(dx, dy), label, about
export function gridPicture(host, scroll, {tokens, rows, label, about, choose, move, tell, left}) {
  const picture = heat(host, {
    label,
    about,
    move,
    left,
    at: (x, y, click) => {
      const row = Math.floor(y * rows()), t = Math.floor(x * tokens);
      if (click) choose(row, t);
      tell(row, t);
    },
  });
  // Never less than one pixel each: a single bright token must not be lost.
  picture.box.style.minWidth = `${tokens}px`;
  return {
    ...picture,
    draw(g, rgb, scale = scaleOfGrid(g)) {
      const n = g.rows.length;
      paint(picture.canvas, tokens, n, (x, y) => scale.index(g.values[y * tokens + x]), rgb);
      picture.canvas.style.height = `${Math.min(n * 14, Math.max(120, n * 5))}px`;
    },
    choose(row, t) {
      picture.mark(t / tokens, row / rows(), 1 / tokens, 1 / rows());
      const x = (t + 0.5) / tokens * picture.box.clientWidth;
      if (x < scroll.scrollLeft || x > scroll.scrollLeft + scroll.clientWidth)
        scroll.scrollLeft = x - scroll.clientWidth / 2;
    },
  };
}

//   row, t  the chosen ones;  width  pixels;  corner  what stands above the names of rows
//   choose(row or null, t)
export function gridTable(
    g, {texts, row: chosen, t: token, width, corner, painter, choose, scale = scaleOfGrid(g)}) {
  const tokens = texts.length, room = Math.max(2, Math.floor((width - 60) / 92)),
        count = Math.min(tokens, room);
  const first = Math.max(0, Math.min(tokens - count, token - Math.floor(count / 2)));
  const columns = Array.from({length: count}, (_, i) => first + i);
  const head = el('tr', {}, el('th', {textContent: corner}), ...columns.map((t) => {
    const th =
        el('th', {scope: 'col', title: texts[t], className: t === token ? 'on' : ''},
           el('small', {textContent: t}), el('span', {textContent: shown(texts[t])}));
    th.addEventListener('click', () => choose(null, t));
    return th;
  }));
  const cell = (row, t) => {
    const value = g.values[row * tokens + t], text = g.said ? g.said(row, t) : null,
          index = scale.index(value);
    const td = el(
        'td', {textContent: text === null ? number(value) : shown(text), className: t === token ? 'on' : ''});
    if (index >= 0) Object.assign(td.style, {backgroundColor: painter.css(index), color: painter.ink(index)});
    if (text !== null) td.title = `${shown(text)} ${number(value)}`;
    td.addEventListener('click', () => choose(row, t));
    return td;
  };
  const body = g.rows.map(
      (name, row) =>
          el('tr', {className: row === chosen ? 'on' : ''}, el('th', {scope: 'row', textContent: name}),
             ...columns.map((t) => cell(row, t))));
  return el('table', {className: 'around'}, el('thead', {}, head), el('tbody', {}, ...body));
}
