// SPDX-License-Identifier: Apache-2.0
// Where one token looks, and who looks there. Shared by the report and the page of `rapt serve`.
import {el, svg} from './dom.js';
import {shown} from './signs.js';

// Arcs above the line: where the token looks; below it: who looks there. out, into: [{t, w}]
export function arcsPicture({out, into, t: chosen, tokens, width, labelledby, describedby}) {
  const margin = 10, height = 170, base = into.length ? 108 : 140;
  const x = (t) => margin + (t + 0.5) / tokens * (width - 2 * margin);
  const picture = svg('svg', {
    viewBox: `0 0 ${width} ${height}`,
    width,
    height,
    class: 'arcs',
    role: 'img',
    'aria-labelledby': labelledby,
    'aria-describedby': describedby
  });
  picture.append(svg('line', {x1: margin, x2: width - margin, y1: base, y2: base, class: 'base'}));
  const arc = ({t, w}, up) => {
    const a = x(Math.min(t, chosen)), b = x(Math.max(t, chosen)), room = up ? base - 8 : height - base - 16;
    const rise = Math.min(room, 16 + room * Math.sqrt((b - a) / width)), to = up ? base - rise : base + rise;
    const steep = base + (to - base) * 4 / 3;
    const path = t === chosen ?
        `M ${a - 5} ${base} C ${a - 16} ${base - 34}, ${a + 16} ${base - 34}, ${a + 5} ${base}` :
        `M ${a} ${base} C ${a} ${steep}, ${b} ${steep}, ${b} ${base}`;
    picture.append(svg('path', {
      d: path,
      class: up ? 'arc out' : 'arc in',
      'stroke-width': (0.8 + 6 * Math.sqrt(w)).toFixed(2),
      'stroke-opacity': (0.25 + 0.75 * w).toFixed(3)
    }));
  };
  for (const link of [...into].reverse()) arc(link, false);
  for (const link of [...out].reverse()) arc(link, true);
  for (const {t} of [...into, ...out])
    picture.append(svg('circle', {cx: x(t), cy: base, r: 2.5, class: 'end'}));
  picture.append(svg('circle', {cx: x(chosen), cy: base, r: 5, class: 'chosen'}));
  for (const t of new Set([0, tokens - 1])) {
    const text = svg('text', {x: x(t), y: height - 2, 'text-anchor': t ? 'end' : 'start'});
    text.textContent = String(t);
    picture.append(text);
  }
  return picture;
}

// The same links as a list of buttons: choose(t).
export function linkItems(links, {texts, choose, none}) {
  if (!links.length) return [el('li', {className: 'empty', textContent: none})];
  return links.map((link) => {
    const bar = el('span', {className: 'bar'});
    bar.style.width = `${Math.max(1, 100 * link.w)}%`;
    const button =
        el('button', {type: 'button'}, el('span', {className: 'who', textContent: shown(texts[link.t])}),
           el('span', {className: 'where', textContent: link.t}),
           el('span', {className: 'weight', textContent: link.w.toFixed(3)}), bar);
    button.addEventListener('click', () => choose(link.t));
    return el('li', {}, button);
  });
}
