// SPDX-License-Identifier: Apache-2.0
// One head's map with a crosshair. Shared by the report and the page of `rapt serve`.
import {el} from './dom.js';
import {mapIndex} from './heads.js';
import {heat, paint} from './heat.js';
import {shown} from './signs.js';

// Which pixel of n a token lies in, and how many tokens share it: the rules of Page::Map and MapPooling.
export const rowPixel = (t, n, tokens) => Math.floor(t * n / tokens);
export const keyPixel = (k, n, tokens) => Math.floor(((k + 1) * n - 1) / tokens);
const rowCount = (p, n, tokens) => Math.ceil((p + 1) * tokens / n) - Math.ceil(p * tokens / n);
const keyCount = (p, n, tokens) => Math.floor((p + 1) * tokens / n) - Math.floor(p * tokens / n);

// The weight of a map {rows, keys, pixels, top} at a token and a key, and of how many it is the largest.
export function mapWeight(m, t, k, tokens) {
  const y = rowPixel(t, m.rows, tokens), x = keyPixel(k, m.keys, tokens);
  return {
    w: m.pixels[y * m.keys + x] / 255 * m.top,
    of: rowCount(y, m.rows, tokens) * keyCount(x, m.keys, tokens)
  };
}

//   texts  of the tokens;  at(t, k, click)  token and key under the pointer, the first of a pixel's
//   label, about, move, left  as heat.js
export function mapPicture(host, {texts, label, about, move, at, left}) {
  const tokens = texts.length;
  const picture = heat(host, {
    label,
    about,
    move,
    left,
    at: (x, y, click) => at(Math.floor(y * tokens), Math.floor(x * tokens), click),
  });
  const row = el('div', {className: 'line across-line'}), column = el('div', {className: 'line down-line'});
  picture.box.append(row, column);
  host.classList.add('square');
  const keys = el('span', {className: 'axis-x'}), queries = el('span', {className: 'axis-y'});
  host.append(keys, queries);
  host.classList.toggle('worded', tokens <= 40);
  if (tokens <= 40) {  // room for words at the sides
    const words = (side) =>
        el('div', {className: side, 'aria-hidden': 'true'},
           ...texts.map((text) => el('span', {textContent: shown(text)})));
    picture.box.append(words('side-left'), words('side-top'));
  }
  return {
    ...picture,
    keys,
    queries,  // what stands at its sides
    draw(m, root, rgb) {
      picture.mark(0, 0, 0, 0, false);
      if (!m) return paint(picture.canvas, 1, 1, () => -1, rgb);
      const index = mapIndex(root);
      return paint(picture.canvas, m.keys, m.rows, (x, y) => index[m.pixels[y * m.keys + x]], rgb);
    },
    cross(t, k, there = true) {  // k: -1 none
      row.hidden = !there;
      column.hidden = !there || k < 0;
      row.style.top = `${100 * (t + 0.5) / tokens}%`;
      column.style.left = `${100 * (k + 0.5) / tokens}%`;
    },
  };
}
