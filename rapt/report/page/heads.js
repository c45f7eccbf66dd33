// SPDX-License-Identifier: Apache-2.0
// Layers x heads: one figure of every head in colour, and every head's map small.
function headsView() {
  const host = byId('heads-heat'), choice = byId('metric'), read = byId('heads-read'), twin = byId('heads-table');
  const {layers, heads} = data;
  const value = (layer, head) => metric() ? metric().values[layer * heads + head] : NaN;
  const cell = (x, y) => [Math.floor(y * layers), Math.floor(x * heads)];
  const tell = (layer, head) => {
    read.textContent = tr('head_read', {l: layer, h: head, v: number(value(layer, head)), label: withLabel(labelOf(layer, head))});
  };
  const picture = heat(host, {
    label: () => `${tr('heads_label', {m: metric() ? nameOf(metric()) : ''})}. ${read.textContent}`, about: 'heads-read',
    move: (dx, dy) => set({l: state.l + dy, h: state.h + dx}),
    at: (x, y, click) => {
      const [l, h] = cell(x, y);
      if (click) set({l, h});
      tell(l, h);
    },
    left: () => tell(state.l, state.h),
  });
  host.classList.add('axes');
  host.prepend(el('div'), axis([...Array(heads).keys()], 'across', 16), axis([...Array(layers).keys()], 'down', 40));
  picture.canvas.style.height = `${Math.max(layers * 9, Math.min(layers * 26, 500))}px`;
  picture.box.style.setProperty('--cells', `${100 / heads}% ${100 / layers}%`);
  picture.box.classList.add('tiles');
  const ramp = legend(byId('heads'));
  byId('heads').insertBefore(byId('heads').lastChild, read);

  choice.addEventListener('change', () => set({m: choice.value}));
  follow('lang', () => options(choice, data.metrics.map((m) => [m.key, nameOf(m)])));
  follow('m lang', () => { choice.value = state.m; });
  follow('m theme', () => {
    if (!metric()) return;
    const scale = scaleOf(metric().values, metric().share, false);
    paint(picture.canvas, heads, layers, (x, y) => scale.index(value(y, x)));
    ramp(scale.low, scale.middle, scale.high);
  });
  follow('l h m lang', () => {
    picture.mark(state.h / heads, state.l / layers, 1 / heads, 1 / layers);
    tell(state.l, state.h);
    picture.name();
  });
  // The table twin is made when somebody opens it.
  const fill = () => {
    if (!twin.open) return;
    const head = el('tr', {}, el('th', {textContent: tr('layer')}), ...Array.from({length: heads}, (_, h) => el('th', {textContent: h, scope: 'col'})));
    const rows = Array.from({length: layers}, (_, l) => el('tr', {}, el('th', {textContent: l, scope: 'row'}),
        ...Array.from({length: heads}, (_, h) => el('td', {textContent: Number.isFinite(value(l, h)) ? number(value(l, h)) : '', title: labelOf(l, h)}))));
    twin.lastElementChild.replaceChildren(el('table', {className: 'numbers'}, el('thead', {}, head), el('tbody', {}, ...rows)));
  };
  twin.addEventListener('toggle', fill);
  follow('m lang', fill);
}

// Every map at a glance, the larger of layers and heads to the right. A small pixel is the largest of those it stands for.
function allView() {
  const section = byId('all'), read = byId('all-read'), {layers, heads} = data;
  if (!data.maps.some((m) => m)) {
    section.remove();
    return;
  }
  const side = 40, step = side + 2, deep = layers >= heads, columns = deep ? layers : heads, rows = deep ? heads : layers;
  const place = (x, y) => deep ? [x, y] : [y, x];  // from column and row to layer and head, and back
  const cell = (x, y) => place(Math.floor(x * columns), Math.floor(y * rows));
  const tell = (l, h) => { read.textContent = tr('head_title', {l, h}) + withLabel(labelOf(l, h)); };
  const picture = heat(byId('all-heat'), {
    label: () => `${tr('all_label')}. ${read.textContent}`, about: 'all-read',
    move: (dx, dy) => set({l: state.l + place(dx, dy)[0], h: state.h + place(dx, dy)[1]}),
    at: (x, y, click) => {
      const [l, h] = cell(x, y);
      if (click) set({l, h});
      tell(l, h);
    },
    left: () => tell(state.l, state.h),
  });
  picture.box.style.minWidth = `${Math.min(24 * columns, 24 * 48)}px`;
  picture.box.style.maxWidth = `${Math.max(72, Math.min(200, Math.floor(1000 / rows))) * columns}px`;  // few heads are drawn larger
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
        for (let x = 0; x < side; ++x) out[y * side + x] = map.pixels[Math.floor(y * map.rows / side) * map.keys + Math.floor(x * map.keys / side)];
    return out;
  }
  const thumbs = data.maps.map((m) => m ? small(m) : null);
  follow('theme s', () => {
    const index = mapIndex();
    paint(picture.canvas, columns * step, rows * step, (x, y) => {
      const [l, h] = place(Math.floor(x / step), Math.floor(y / step)), thumb = thumbs[l * heads + h], px = x % step, py = y % step;
      return thumb && px < side && py < side ? index[thumb[py * side + px]] : -1;
    });
  });
  follow('l h lang', () => {
    const [x, y] = place(state.l, state.h);
    picture.mark(x / columns, y / rows, 1 / columns, 1 / rows);
    byId('all-axes').textContent = tr(deep ? 'deep_axes' : 'wide_axes');
    tell(state.l, state.h);
    picture.name();
  });
}

// From a map's pixel to the colour's index, by the scale chosen.
function mapIndex() {
  return Uint8Array.from({length: 256}, (_, p) => state.s === 'root' ? Math.round(255 * Math.sqrt(p / 255)) : p);
}
