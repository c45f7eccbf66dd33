// SPDX-License-Identifier: Apache-2.0
// One head: its map with a crosshair, the arcs of the chosen token, and all its figures.
function mapView() {
  const read = byId('map-read'), title = byId('map-title'), choice = byId('scale');
  const map = () => data.maps[atHead()];
  // Which pixel a token lies in, and how many tokens share it: the rules of Page::Map.
  const rowPixel = (t, n) => Math.floor(t * n / tokens), rowCount = (p, n) => Math.ceil((p + 1) * tokens / n) - Math.ceil(p * tokens / n);
  const keyPixel = (k, n) => Math.floor(((k + 1) * n - 1) / tokens), keyCount = (p, n) => Math.floor((p + 1) * tokens / n) - Math.floor(p * tokens / n);
  const picture = heat(byId('map-heat'), {
    label: () => `${tr('map_label', {l: state.l, h: state.h})}. ${read.textContent}`, about: 'map-read',
    move: (dx, dy) => set({t: state.t + dy, k: dx ? (state.k < 0 ? state.t : state.k) + dx : state.k}),
    at: (x, y, click) => {
      if (!map()) return;
      // The token under the pointer, or the first of the pixel's where there are several.
      const t = Math.floor(y * tokens), k = Math.floor(x * tokens);
      if (click) set({t, k});
      else cross(t, k);
    },
    left: () => cross(state.t, state.k),
  });
  const row = el('div', {className: 'line across-line'}), column = el('div', {className: 'line down-line'});
  picture.box.append(row, column);
  byId('map-heat').classList.add('square');
  byId('map-heat').append(el('span', {className: 'axis-x', 'data-text': 'keys_axis'}), el('span', {className: 'axis-y', 'data-text': 'queries_axis'}));
  if (tokens <= 40) {  // room for words at the sides
    byId('map-heat').classList.add('worded');
    const words = (side) => el('div', {className: side, 'aria-hidden': 'true'}, ...data.tokens.map((text) => el('span', {textContent: shown(text)})));
    picture.box.append(words('side-left'), words('side-top'));
  }
  const ramp = legend(byId('map'));
  byId('map').insertBefore(byId('map').lastChild, read);

  // The exact weight where it is among the strongest; else the pixel's.
  function weight(t, k) {
    const from = data.strongest[atHead()], m = map();
    for (let r = 0; from && r < from.count; ++r)
      if (from.keys[r * tokens + t] === k) return {w: from.weights[r * tokens + t] / 1000, of: 1};
    const y = rowPixel(t, m.rows), x = keyPixel(k, m.keys);
    return {w: m.pixels[y * m.keys + x] / 255 * m.top, of: rowCount(y, m.rows) * keyCount(x, m.keys)};
  }
  function cross(t, k) {
    const m = map(), shown = Boolean(m);
    row.hidden = !shown;
    column.hidden = !shown || k < 0;
    if (!shown) {
      read.textContent = tr('no_map');
      return;
    }
    row.style.top = `${100 * (t + 0.5) / tokens}%`;
    column.style.left = `${100 * (k + 0.5) / tokens}%`;
    if (k < 0) {
      const from = data.strongest[atHead()];
      k = from && from.keys[t] !== 65535 ? from.keys[t] : t;
    }
    const {w, of} = weight(t, k);
    read.textContent = tr('map_read', {q: quoted(t), k: quoted(k), v: number(w)}) + (of > 1 ? tr('map_pooled', {n: of}) : '');
  }
  choice.addEventListener('change', () => set({s: choice.value}));
  follow('lang', () => options(choice, kChoices.s().map((s) => [s, tr(s)])));
  follow('s lang', () => { choice.value = state.s; });
  follow('l h s theme', () => {
    const m = map();
    picture.mark(0, 0, 0, 0, false);
    if (!m) {
      paint(picture.canvas, 1, 1, () => -1);
      return;
    }
    const index = mapIndex();
    paint(picture.canvas, m.keys, m.rows, (x, y) => index[m.pixels[y * m.keys + x]]);
    ramp(0, m.top * (state.s === 'root' ? 0.25 : 0.5), m.top);
  });
  follow('l h t k lang', () => {
    title.textContent = tr('head_title', state) + withLabel(labelOf(state.l, state.h));
    cross(state.t, state.k);
    picture.name();
  });
}

// Arcs above the line: where the chosen token looks; below it: who looks there. The lists say the same in words.
function arcsView() {
  const host = byId('arcs-drawing'), kMost = 8;
  function links() {
    const s = data.strongest[atHead()], out = [], into = [];
    const add = (list, t, at) => { if (s.weights[at] > 0) list.push({t, w: s.weights[at] / 1000}); };
    for (let r = 0; s && r < s.count; ++r) {
      const key = s.keys[r * tokens + state.t];
      if (key !== 65535) add(out, key, r * tokens + state.t);
      for (let q = 0; q < tokens; ++q)
        if (s.keys[r * tokens + q] === state.t && q !== state.t) add(into, q, r * tokens + q);
    }
    return {out: out.slice(0, kMost), into: into.sort((a, b) => b.w - a.w || a.t - b.t).slice(0, kMost)};
  }
  function draw() {
    const {out, into} = links(), width = Math.max(240, host.clientWidth), margin = 10, height = 170, base = into.length ? 108 : 140;
    const x = (t) => margin + (t + 0.5) / tokens * (width - 2 * margin);
    const picture = svg('svg', {viewBox: `0 0 ${width} ${height}`, width, height, role: 'img', 'aria-labelledby': 'arcs-title', 'aria-describedby': 'arcs-out'});
    picture.append(svg('line', {x1: margin, x2: width - margin, y1: base, y2: base, class: 'base'}));
    const arc = ({t, w}, up) => {
      const a = x(Math.min(t, state.t)), b = x(Math.max(t, state.t)), room = up ? base - 8 : height - base - 16;
      const rise = Math.min(room, 16 + room * Math.sqrt((b - a) / width)), to = up ? base - rise : base + rise;
      const path = t === state.t ? `M ${a - 5} ${base} C ${a - 16} ${base - 34}, ${a + 16} ${base - 34}, ${a + 5} ${base}` :
          `M ${a} ${base} C ${a} ${base + (to - base) * 4 / 3}, ${b} ${base + (to - base) * 4 / 3}, ${b} ${base}`;
      picture.append(svg('path', {d: path, class: up ? 'arc out' : 'arc in', 'stroke-width': (0.8 + 6 * Math.sqrt(w)).toFixed(2), 'stroke-opacity': (0.25 + 0.75 * w).toFixed(3)}));
    };
    for (const link of [...into].reverse()) arc(link, false);
    for (const link of [...out].reverse()) arc(link, true);
    for (const {t} of [...into, ...out]) picture.append(svg('circle', {cx: x(t), cy: base, r: 2.5, class: 'end'}));
    picture.append(svg('circle', {cx: x(state.t), cy: base, r: 5, class: 'chosen'}));
    for (const t of new Set([0, tokens - 1])) {
      const text = svg('text', {x: x(t), y: height - 2, 'text-anchor': t ? 'end' : 'start'});
      text.textContent = String(t);
      picture.append(text);
    }
    host.replaceChildren(picture);
    byId('arcs-title').textContent = tr('arcs_title', {t: quoted(state.t)});
    const list = (id, all) => byId(id).replaceChildren(...(all.length ? all : [null]).map((link) => {
      if (!link) return el('li', {className: 'empty', textContent: tr('nothing')});
      const bar = el('span', {className: 'bar'});
      bar.style.width = `${Math.max(1, 100 * link.w)}%`;
      const button = el('button', {type: 'button'}, el('span', {className: 'who', textContent: shown(data.tokens[link.t])}),
          el('span', {className: 'where', textContent: link.t}), el('span', {className: 'weight', textContent: link.w.toFixed(3)}), bar);
      button.addEventListener('click', () => set({t: link.t}));
      return el('li', {}, button);
    }));
    list('arcs-out', out);
    list('arcs-in', into);
  }
  follow('l h t lang', draw);
  let width = 0;
  new ResizeObserver(() => {
    if (host.clientWidth !== width) draw();
    width = host.clientWidth;
  }).observe(host);

  follow('l h lang', () => byId('facts').replaceChildren(...data.metrics.flatMap((m) => {
    const v = m.values[atHead()];
    return Number.isFinite(v) ? [el('div', {}, el('dt', {textContent: nameOf(m)}), el('dd', {textContent: number(v)}))] : [];
  })));
}
