// SPDX-License-Identifier: Apache-2.0
// Numbers as colours. Shared by the report and the page of `rapt serve`; a painter is colours.js' painterOf.
import {el} from './dom.js';
import {number} from './numbers.js';

// From values to 0 … 255; -1: no number. Shares as they are; others from 0 (or the least, where that is
// below 0) to the largest.
export function scaleOf(values, share = false, log = false) {
  let low = Infinity, high = -Infinity;
  for (const x of values) {
    if (x === null || !Number.isFinite(x) || (log && x <= 0)) continue;
    if (x < low) low = x;
    if (x > high) high = x;
  }
  if (low > high) low = high = log ? 1 : 0;
  if (!log && low >= 0) low = 0;
  if (share || (!log && low === 0 && high <= 1 && high > 0.5)) low = 0, high = 1;
  const from = log ? Math.log(low) : low, range = (log ? Math.log(high) : high) - from || 1;
  const place = (x) => ((log ? Math.log(Math.max(x, low)) : x) - from) / range;
  return {
    low,
    high,
    middle: log ? Math.sqrt(low * high) : (low + high) / 2,
    index: (x) =>
        x === null || !Number.isFinite(x) ? -1 : Math.round(255 * Math.min(1, Math.max(0, place(x)))),
  };
}

// One pixel for each cell; CSS makes them large. rgb: painter.table()
export function paint(canvas, width, height, indexAt, rgb) {
  canvas.width = width;
  canvas.height = height;
  const context = canvas.getContext('2d', {willReadFrequently: true}),
        image = context.createImageData(width, height);
  for (let y = 0, at = 0; y < height; ++y) {
    for (let x = 0; x < width; ++x, at += 4) {
      const index = indexAt(x, y);
      if (index < 0) continue;
      image.data[at] = rgb[3 * index];
      image.data[at + 1] = rgb[3 * index + 1];
      image.data[at + 2] = rgb[3 * index + 2];
      image.data[at + 3] = 255;
    }
  }
  context.putImageData(image, 0, 0);
}

// A canvas with a frame around the chosen cell. label(): what it shows; about: id of what describes it;
// move(dx, dy): arrow keys; at(x, y, click): the pointer, in shares 0 … 1 of the picture; left(): it went away.
export function heat(host, {label, about, move, at, left = () => {}}) {
  const canvas = el('canvas', {tabIndex: 0, role: 'application', 'aria-describedby': about});
  const frame = el('div', {className: 'frame'}), box = el('div', {className: 'heat'}, canvas, frame);
  host.append(box);
  const keys = {ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1]};
  canvas.addEventListener('keydown', (event) => {
    const step = keys[event.key];
    if (!step || event.altKey || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    move(...step);
  });
  const pointer = (event, click) => {
    const r = canvas.getBoundingClientRect();
    const share = (x, size) => Math.min(1 - 1e-9, Math.max(0, x / size));
    at(share(event.clientX - r.left, r.width), share(event.clientY - r.top, r.height), click);
  };
  canvas.addEventListener('pointermove', (event) => pointer(event, false));
  canvas.addEventListener('pointerdown', (event) => pointer(event, true));
  canvas.addEventListener('pointerleave', left);
  const percent = (x) => `${100 * x}%`;
  return {
    canvas,
    box,
    mark: (x, y, width, height, shown = true) => {  // shares of the picture
      Object.assign(
          frame.style, {left: percent(x), top: percent(y), width: percent(width), height: percent(height)});
      frame.hidden = !shown;
    },
    name: () => canvas.setAttribute('aria-label', label()),
  };
}

// Names along a side ('across', 'down'); of more than `most` every n-th.
export function axis(names, side, most) {
  const step = Math.ceil(names.length / most);
  return el(
      'div', {className: side, 'aria-hidden': 'true'},
      ...names.map((name, i) => el('span', {textContent: i % step === 0 ? name : ''})));
}

// The colours, with the values of both ends and of the middle: draw(rgb, low, middle, high).
export function legend(host) {
  const canvas = el('canvas', {width: 256, height: 1, 'aria-hidden': 'true'}),
        spans = [el('span'), el('span'), el('span')];
  host.append(el('div', {className: 'legend'}, canvas, el('div', {}, ...spans)));
  return (rgb, ...values) => {
    paint(canvas, 256, 1, (x) => x, rgb);
    values.forEach((value, i) => {
      spans[i].textContent = typeof value === 'number' ? number(value) : value;
    });
  };
}
