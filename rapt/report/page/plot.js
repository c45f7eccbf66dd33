// SPDX-License-Identifier: Apache-2.0
// Curves with axes, as SVG: colours come from the style sheet, so a change of theme draws nothing anew.
// Shared by the report and the page of `rapt serve`.
import {el, svg} from './dom.js';
import {number} from './numbers.js';

function ticks(low, high, most) {
  const power = 10 ** Math.floor(Math.log10((high - low) / most));
  const step = [1, 2, 5, 10].map((m) => m * power).find((s) => (high - low) / s <= most);
  const list = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + step * 1e-9; ++i) list.push(i * step);
  return list;
}

// c: {title, x_label, y_label, log_y, curves: [{name, x: [], y: []}]} as a Document's chart; width in pixels.
export function chart(c, width, height = 300) {
  const left = 58, right = 14, top = 12, bottom = 44;
  const good = (y) => y !== null && (!c.log_y || y > 0);
  const xs = c.curves.flatMap((k) => k.x),
        ys = c.curves.flatMap((k) => k.y.filter(good)).map((y) => c.log_y ? Math.log10(y) : y);
  const ends = (v) => {
    let low = v.reduce((a, b) => Math.min(a, b), Infinity),
        high = v.reduce((a, b) => Math.max(a, b), -Infinity);
    if (!(high > low)) [low, high] = Number.isFinite(low) ? [low - 0.5, high + 0.5] : [0, 1];
    return [low, high];
  };
  const [x0, x1] = ends(xs), [y0, y1] = ends(ys);
  const px = (x) => left + (x - x0) / (x1 - x0) * (width - left - right);
  const py = (y) =>
      height - bottom - ((c.log_y ? Math.log10(y) : y) - y0) / (y1 - y0) * (height - top - bottom);
  const picture = svg(
      'svg',
      {viewBox: `0 0 ${width} ${height}`, width, height, class: 'chart', role: 'img', 'aria-label': c.title});
  const text = (x, y, words, anchor) => {
    const e = svg('text', {x, y, 'text-anchor': anchor});
    e.textContent = words;
    picture.append(e);
    return e;
  };
  const inner = c.log_y && y1 - y0 > 1 ?
      Array.from({length: Math.floor(y1) - Math.ceil(y0) + 1}, (_, i) => Math.ceil(y0) + i) :
      c.log_y ? ticks(10 ** y0, 10 ** y1, 6).map(Math.log10) : ticks(y0, y1, 6);
  for (const t of inner) {
    const at = c.log_y ? 10 ** t : t;
    picture.append(svg('line', {x1: left, x2: width - right, y1: py(at), y2: py(at), class: 'rule'}));
    text(left - 6, py(at) + 4, number(at), 'end');
  }
  for (const t of ticks(x0, x1, width / 80))
    text(px(t), height - bottom + 16, Number.isInteger(t) ? String(t) : number(t), 'middle');
  text((left + width - right) / 2, height - 8, c.x_label, 'middle');
  text(14, (height - bottom) / 2, c.y_label, 'middle')
      .setAttribute('transform', `rotate(-90 14 ${(height - bottom) / 2})`);
  c.curves.forEach((k, n) => {
    let path = '', pen = false;
    k.x.forEach((x, i) => {
      if (good(k.y[i])) path += `${pen ? 'L' : 'M'}${px(x).toFixed(1)} ${py(k.y[i]).toFixed(1)}`;
      pen = good(k.y[i]);
    });
    picture.append(svg('path', {d: path, class: `curve c${n % 6}`}));
  });
  const box = el('div', {className: 'chart-box'}, picture);
  if (c.curves.length > 1)
    box.append(
        el('ul', {className: 'keys'},
           ...c.curves.map((k, n) => el('li', {className: `c${n % 6}`, textContent: k.name}))));
  return box;
}
