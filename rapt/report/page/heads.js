// SPDX-License-Identifier: Apache-2.0
// Layers × heads: one figure of every head in colour, and every head's map small. Shared by the report and
// the page of `rapt serve`.
import {el} from './dom.js';
import {axis, heat, paint, scaleOf} from './heat.js';
import {number} from './numbers.js';

//   label()  what the picture shows;  about  id of its description
//   choose(l, h)  a head was clicked at;  move(dl, dh)  by the keys;  tell(l, h)  the pointer is on it
//   left()   it went away
export function headsPicture(host, {layers, heads, label, about, choose, move, tell, left}) {
  const cell = (x, y) => [Math.floor(y * layers), Math.floor(x * heads)];
  host.classList.add('axes');
  host.append(
      el('div'), axis([...Array(heads).keys()], 'across', 16), axis([...Array(layers).keys()], 'down', 40));
  const picture = heat(host, {
    label,
    about,
    left,
    move: (dx, dy) => move(dy, dx),
    at: (x, y, click) => {
      const [l, h] = cell(x, y);
      if (click) choose(l, h);
      tell(l, h);
    },
  });
  picture.canvas.style.height = `${Math.max(layers * 9, Math.min(layers * 26, 500))}px`;
  picture.box.style.setProperty('--cells', `${100 / heads}% ${100 / layers}%`);
  picture.box.classList.add('tiles');
  return {
    ...picture,
    // values [layers][heads] in one; rgb: painter.table(). Returns the scale.
    draw(values, share, rgb, scale = scaleOf(values, share)) {
      paint(picture.canvas, heads, layers, (x, y) => scale.index(values[y * heads + x]), rgb);
      return scale;
    },
    choose: (l, h) => picture.mark(h / heads, l / layers, 1 / heads, 1 / layers),
  };
}

// The same as a table; title(l, h): what a cell says besides its number.
export function headsTable(layers, heads, value, corner, title = () => '') {
  const number_of = (l, h) => Number.isFinite(value(l, h)) ? number(value(l, h)) : '';
  const range = (n, f) => Array.from({length: n}, (_, i) => f(i));
  const head =
      el('tr', {}, el('th', {textContent: corner}),
         ...range(heads, (h) => el('th', {textContent: h, scope: 'col'})));
  const row = (l) =>
      el('tr', {}, el('th', {textContent: l, scope: 'row'}),
         ...range(heads, (h) => el('td', {textContent: number_of(l, h), title: title(l, h)})));
  return el('table', {className: 'numbers'}, el('thead', {}, head), el('tbody', {}, ...range(layers, row)));
}

// Every map at a glance, the larger of layers and heads to the right. As headsPicture; a map is
// {rows, keys, pixels} with pixels 0 … 255, or null. A small pixel is the largest of those it stands for.
export function allPicture(host, {layers, heads, label, about, choose, move, tell, left}) {
  const side = 40, step = side + 2, deep = layers >= heads, columns = deep ? layers : heads,
        rows = deep ? heads : layers;
  const place = (x, y) => deep ? [x, y] : [y, x];  // from column and row to layer and head, and back
  const cell = (x, y) => place(Math.floor(x * columns), Math.floor(y * rows));
  const picture = heat(host, {
    label,
    about,
    left,
    move: (dx, dy) => move(...place(dx, dy)),
    at: (x, y, click) => {
      const [l, h] = cell(x, y);
      if (click) choose(l, h);
      tell(l, h);
    },
  });
  picture.box.style.minWidth = `${Math.min(24 * columns, 24 * 48)}px`;
  // Few heads are drawn larger.
  picture.box.style.maxWidth = `${Math.max(72, Math.min(200, Math.floor(1000 / rows))) * columns}px`;
  function small(map) {
    const out = new Uint8Array(side * side);
    for (let r = 0; r < map.rows; ++r) {
      const y = Math.floor(r * side / map.rows);
      for (let k = 0; k < map.keys; ++k) {
        const at = y * side + Math.floor(k * side / map.keys);
        if (map.pixels[r * map.keys + k] > out[at]) out[at] = map.pixels[r * map.keys + k];
      }
    }
    if (map.rows < side || map.keys < side)  // few tokens: a cell is several pixels
      for (let y = 0; y < side; ++y)
        for (let x = 0; x < side; ++x)
          out[y * side + x] =
              map.pixels[Math.floor(y * map.rows / side) * map.keys + Math.floor(x * map.keys / side)];
    return out;
  }
  let thumbs = [];
  return {
    ...picture,
    deep,
    show(maps) { thumbs = maps.map((m) => m ? small(m) : null); },
    draw(root, rgb) {
      const index = mapIndex(root);
      paint(picture.canvas, columns * step, rows * step, (x, y) => {
        const [l, h] = place(Math.floor(x / step), Math.floor(y / step)), thumb = thumbs[l * heads + h],
                  px = x % step, py = y % step;
        return thumb && px < side && py < side ? index[thumb[py * side + px]] : -1;
      }, rgb);
    },
    choose(l, h) {
      const [x, y] = place(l, h);
      picture.mark(x / columns, y / rows, 1 / columns, 1 / rows);
    },
  };
}

// From a map's pixel to the colour's index; root: by the square root.
export function mapIndex(root) {
  return Uint8Array.from({length: 256}, (_, p) => root ? Math.round(255 * Math.sqrt(p / 255)) : p);
}
