// SPDX-License-Identifier: Apache-2.0
// Documents (rapt/report/document.h) as elements: words, tables, maps and curves, one below the other.
// Shared by the report and the page of `rapt serve`.
import {el, twin} from './dom.js';
import {axis, legend, paint} from './heat.js';
import {number} from './numbers.js';
import {chart} from './plot.js';

export function tableOf(columns, rows) {
  const cell = (c) => el('td', {textContent: typeof c === 'number' ? number(c) : c === null ? '' : c});
  return el(
      'table', {className: 'numbers'},
      el('thead', {}, el('tr', {}, ...columns.map((c) => el('th', {scope: 'col', textContent: c})))),
      el('tbody', {}, ...rows.map((r) => el('tr', {}, ...r.map(cell)))));
}

// A text in which `this` is code.
export function prose(text) {
  return text.split('`').map(
      (t, i, all) => i % 2 && i + 1 < all.length ? el('code', {textContent: t}) :
          i % 2                                  ? '`' + t :
                                                   t);
}

let drawn = 0;  // ids of twins

// doc: {title, parts} as document_json gives it.
//   painter  colours.js' painterOf;  width  pixels of its place;  table  what opens a table twin
//   title    false: without its heading
// Returns {element, paint}; paint() once more after a change of the theme.
export function drawDocument(doc, {painter, width, table, title = true}) {
  const maps = [];
  const numeric = (v) => v === null ? '' : number(v);
  const kinds = {
    words: (p) => el(p.heading ? 'h3' : 'p', {}, ...prose(p.text)),
    table: (p) =>
        el('figure', {}, ...(p.title ? [el('figcaption', {textContent: p.title})] : []),
           el('div', {className: 'scroll', tabIndex: 0}, tableOf(p.columns, p.rows))),
    map: (p) => {
      const id = `twin-${++drawn}`, wide = p.columns.length;
      const canvas =
          el('canvas', {role: 'img', 'aria-label': p.title, 'aria-describedby': id, className: 'plain'});
      const signed = p.scale === 'both_signs', root = p.scale === 'root';
      const top = p.top || p.values.reduce((a, v) => Math.max(a, signed ? Math.abs(v) : v), 0) || 1;
      const share = (v) => signed ? 0.5 + 0.5 * v / top : root ? Math.sqrt(Math.max(0, v / top)) : v / top;
      const index = (v) => v === null ? -1 : Math.round(255 * Math.min(1, Math.max(0, share(v))));
      const key = el('div'), ramp = legend(key);
      maps.push(() => {
        const rgb = painter.table(signed);
        paint(canvas, wide, p.rows.length, (x, y) => index(p.values[y * wide + x]), rgb);
        ramp(rgb, signed ? -top : 0, signed ? 0 : root ? top / 4 : top / 2, top);
      });
      canvas.style.height = `${Math.max(40, Math.min(420, p.rows.length * 14))}px`;
      const sides = [p.row_name && `↓ ${p.row_name}`, p.column_name && `→ ${p.column_name}`, p.value_name];
      const said = sides.filter(Boolean).join(' · ');
      const rows = () =>
          p.rows.map((name, r) => [name, ...p.columns.map((_, c) => numeric(p.values[r * wide + c]))]);
      return el(
          'figure', {}, el('figcaption', {textContent: p.title}),
          el('div', {className: 'axes'}, el('div'), axis(p.columns, 'across', 16), axis(p.rows, 'down', 40),
             canvas),
          key, ...(said ? [el('p', {className: 'hint', textContent: said})] : []),
          twin(id, table, () => tableOf(['', ...p.columns], rows())));
    },
    chart: (p) => {
      const id = `twin-${++drawn}`, drawing = chart(p, Math.max(280, Math.min(820, width - 36)));
      drawing.firstChild.setAttribute('aria-describedby', id);
      const rows = () => p.curves.flatMap((c) => c.x.map((x, i) => [c.name, number(x), numeric(c.y[i])]));
      return el(
          'figure', {}, el('figcaption', {textContent: p.title}), drawing,
          twin(id, table, () => tableOf(['', p.x_label || 'x', p.y_label || 'y'], rows())));
    },
  };
  const whole = doc.parts.some((p) => p.kind === 'table' && p.columns.length > 8);
  const element =
      el('section', {className: whole ? 'document whole' : 'document'},
         ...(title ? [el('h2', {textContent: doc.title})] : []), ...doc.parts.map((p) => kinds[p.kind](p)));
  const again = () => {
    for (const draw of maps) draw();
  };
  again();
  return {element, paint: again};
}
