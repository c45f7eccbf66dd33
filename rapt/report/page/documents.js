// SPDX-License-Identifier: Apache-2.0
// What the other views had to say: words, tables, maps and curves, one below the other.
function documentsView() {
  const host = byId('documents');
  let maps = [], count = 0;
  const kinds = {
    words: (p) => el(p.heading ? 'h3' : 'p', {}, ...p.text.split('`').map((t, i, all) => i % 2 && i + 1 < all.length ? el('code', {textContent: t}) : i % 2 ? '`' + t : t)),
    table: (p) => el('figure', {}, ...(p.title ? [el('figcaption', {textContent: p.title})] : []), el('div', {className: 'scroll', tabIndex: 0}, tableOf(p.columns, p.rows))),
    map: (p) => {
      const id = `map-twin-${++count}`, canvas = el('canvas', {role: 'img', 'aria-label': p.title, 'aria-describedby': id, className: 'plain'});
      const signed = p.scale === 'both_signs', top = p.top || p.values.reduce((a, v) => Math.max(a, signed ? Math.abs(v) : v), 0) || 1;
      const share = (v) => signed ? 0.5 + 0.5 * v / top : p.scale === 'root' ? Math.sqrt(Math.max(0, v / top)) : v / top;
      const index = (v) => v === null ? -1 : Math.round(255 * Math.min(1, Math.max(0, share(v))));
      const key = el('div'), ramp = legend(key, signed);
      maps.push(() => {
        paint(canvas, p.columns.length, p.rows.length, (x, y) => index(p.values[y * p.columns.length + x]), signed);
        ramp(signed ? -top : 0, signed ? 0 : p.scale === 'root' ? top / 4 : top / 2, top);
      });
      canvas.style.height = `${Math.max(40, Math.min(420, p.rows.length * 14))}px`;
      const sides = [p.row_name && `↓ ${p.row_name}`, p.column_name && `→ ${p.column_name}`, p.value_name].filter(Boolean).join(' · ');
      return el('figure', {}, el('figcaption', {textContent: p.title}),
          el('div', {className: 'axes'}, el('div'), axis(p.columns, 'across', 16), axis(p.rows, 'down', 40), canvas), key,
          ...(sides ? [el('p', {className: 'hint', textContent: sides})] : []), twin(id, () => tableOf(['', ...p.columns],
          p.rows.map((name, r) => [name, ...p.columns.map((_, c) => p.values[r * p.columns.length + c] === null ? '' : number(p.values[r * p.columns.length + c]))]))));
    },
    chart: (p) => {
      const id = `chart-twin-${++count}`, drawing = chart(p, Math.max(280, Math.min(820, host.clientWidth - 36)));
      drawing.firstChild.setAttribute('aria-describedby', id);
      return el('figure', {}, el('figcaption', {textContent: p.title}), drawing, twin(id, () => tableOf(['', p.x_label || 'x', p.y_label || 'y'],
          p.curves.flatMap((c) => c.x.map((x, i) => [c.name, number(x), c.y[i] === null ? '' : number(c.y[i])])))));
    },
  };
  function tableOf(columns, rows) {
    return el('table', {className: 'numbers'}, el('thead', {}, el('tr', {}, ...columns.map((c) => el('th', {scope: 'col', textContent: c})))),
        el('tbody', {}, ...rows.map((r) => el('tr', {}, ...r.map((c) => el('td', {textContent: typeof c === 'number' ? number(c) : c}))))));
  }
  function twin(id, make) {
    const details = el('details', {id}, el('summary', {'data-text': 'table'}), el('div', {className: 'scroll'}));
    details.addEventListener('toggle', () => { if (details.open) details.lastElementChild.replaceChildren(make()); });
    return details;
  }
  follow('lang', () => {
    maps = [];
    count = 0;
    host.replaceChildren(...data.documents[state.lang].map((d) => el('section', {className: d.parts.some((p) => p.kind === 'table' && p.columns.length > 8) ? 'document whole' : 'document'}, el('h2', {textContent: d.title}), ...d.parts.map((p) => kinds[p.kind](p)))));
    for (const e of host.querySelectorAll('[data-text]')) e.textContent = tr(e.dataset.text);
    for (const draw of maps) draw();
  });
  follow('theme', () => { for (const draw of maps) draw(); });
}
