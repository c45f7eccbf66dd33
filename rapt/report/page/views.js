// SPDX-License-Identifier: Apache-2.0
// The report's pictures, each with what is chosen and the data of this file. How they are drawn: heads.js,
// map.js, arcs.js, grid.js, documents.js.
function headsView() {
  const host = byId('heads-heat'), choice = byId('metric'), read = byId('heads-read'),
        table = byId('heads-table');
  const {layers, heads} = data;
  const value = (layer, head) => metric() ? metric().values[layer * heads + head] : NaN;
  const tell = (l, h) => {
    read.textContent = tr('head_read', {l, h, v: valueOf(value(l, h)), label: withLabel(labelOf(l, h))});
  };
  const picture = headsPicture(host, {
    layers,
    heads,
    tell,
    about: 'heads-read',
    label: () => `${tr('heads_label', {m: metric() ? nameOf(metric()) : ''})}. ${read.textContent}`,
    choose: (l, h) => set({l, h}),
    move: (dl, dh) => set({l: state.l + dl, h: state.h + dh}),
    left: () => tell(state.l, state.h),
  });
  const ramp = legend(byId('heads'));
  byId('heads').insertBefore(byId('heads').lastChild, read);

  choice.addEventListener('change', () => set({m: choice.value}));
  follow('lang', () => options(choice, data.metrics.map((m) => [m.key, nameOf(m)])));
  follow('m lang', () => {
    choice.value = state.m;
  });
  follow('m theme', () => {
    if (!metric()) return;
    const scale = picture.draw(metric().values, metric().share, painter.table());
    ramp(painter.table(), scale.low, scale.middle, scale.high);
  });
  follow('l h m lang', () => {
    picture.choose(state.l, state.h);
    tell(state.l, state.h);
    picture.name();
  });
  // The table twin is made when somebody opens it.
  const fill = () => {
    if (table.open)
      table.lastElementChild.replaceChildren(headsTable(layers, heads, value, tr('layer'), labelOf));
  };
  table.addEventListener('toggle', fill);
  follow('m lang', fill);
}

function allView() {
  const section = byId('all'), read = byId('all-read'), {layers, heads} = data;
  if (!data.maps.some((m) => m)) {
    section.remove();
    return;
  }
  const tell = (l, h) => {
    read.textContent = tr('head_title', {l, h}) + withLabel(labelOf(l, h));
  };
  const picture = allPicture(byId('all-heat'), {
    layers,
    heads,
    tell,
    about: 'all-read',
    label: () => `${tr('all_label')}. ${read.textContent}`,
    choose: (l, h) => set({l, h}),
    move: (dl, dh) => set({l: state.l + dl, h: state.h + dh}),
    left: () => tell(state.l, state.h),
  });
  picture.show(data.maps);
  follow('theme s', () => picture.draw(state.s === 'root', painter.table()));
  follow('l h lang', () => {
    picture.choose(state.l, state.h);
    byId('all-axes').textContent = tr(picture.deep ? 'deep_axes' : 'wide_axes');
    tell(state.l, state.h);
    picture.name();
  });
}

function mapView() {
  const read = byId('map-read'), title = byId('map-title'), choice = byId('scale');
  const map = () => data.maps[atHead()];
  const picture = mapPicture(byId('map-heat'), {
    texts: data.tokens,
    about: 'map-read',
    label: () => `${tr('map_label', {l: state.l, h: state.h})}. ${read.textContent}`,
    move: (dx, dy) => set({t: state.t + dy, k: dx ? (state.k < 0 ? state.t : state.k) + dx : state.k}),
    at: (t, k, click) => {
      if (!map()) return;
      if (click) set({t, k});
      else cross(t, k);
    },
    left: () => cross(state.t, state.k),
  });
  picture.keys.dataset.text = 'keys_axis';
  picture.queries.dataset.text = 'queries_axis';
  const ramp = legend(byId('map'));
  byId('map').insertBefore(byId('map').lastChild, read);

  // The exact weight where it is among the strongest; else the pixel's.
  function weight(t, k) {
    const from = data.strongest[atHead()];
    for (let r = 0; from && r < from.count; ++r)
      if (from.keys[r * tokens + t] === k) return {w: from.weights[r * tokens + t] / 1000, of: 1};
    return mapWeight(map(), t, k, tokens);
  }
  function cross(t, k) {
    picture.cross(t, k, Boolean(map()));
    if (!map()) {
      read.textContent = tr('no_map');
      return;
    }
    if (k < 0) {
      const from = data.strongest[atHead()];
      k = from && from.keys[t] !== 65535 ? from.keys[t] : t;
    }
    const {w, of} = weight(t, k);
    read.textContent = tr('map_read', {q: quoted(t), k: quoted(k), v: valueOf(w)}) +
        (of > 1 ? tr('map_pooled', {n: of}) : '');
  }
  choice.addEventListener('change', () => set({s: choice.value}));
  follow('lang', () => options(choice, kChoices.s().map((s) => [s, tr(s)])));
  follow('s lang', () => {
    choice.value = state.s;
  });
  follow('l h s theme', () => {
    const m = map(), root = state.s === 'root';
    picture.draw(m, root, painter.table());
    if (m) ramp(painter.table(), 0, m.top * (root ? 0.25 : 0.5), m.top);
  });
  follow('l h t k lang', () => {
    title.textContent = tr('head_title', state) + withLabel(labelOf(state.l, state.h));
    cross(state.t, state.k);
    picture.name();
  });
}

function arcsView() {
  const host = byId('arcs-drawing'), kMost = 8;
  function links() {
    const s = data.strongest[atHead()], out = [], into = [];
    const add = (list, t, at) => {
      if (s.weights[at] > 0) list.push({t, w: s.weights[at] / 1000});
    };
    for (let r = 0; s && r < s.count; ++r) {
      const key = s.keys[r * tokens + state.t];
      if (key !== 65535) add(out, key, r * tokens + state.t);
      for (let q = 0; q < tokens; ++q)
        if (s.keys[r * tokens + q] === state.t && q !== state.t) add(into, q, r * tokens + q);
    }
    return {out: out.slice(0, kMost), into: into.sort((a, b) => b.w - a.w || a.t - b.t).slice(0, kMost)};
  }
  function draw() {
    const {out, into} = links(), width = Math.max(240, host.clientWidth);
    host.replaceChildren(arcsPicture(
        {out, into, t: state.t, tokens, width, labelledby: 'arcs-title', describedby: 'arcs-out'}));
    byId('arcs-title').textContent = tr('arcs_title', {t: quoted(state.t)});
    const of = {texts: data.tokens, choose: (t) => set({t}), none: tr('nothing')};
    byId('arcs-out').replaceChildren(...linkItems(out, of));
    byId('arcs-in').replaceChildren(...linkItems(into, of));
  }
  follow('l h t lang', draw);
  let width = 0;
  new ResizeObserver(() => {
    if (host.clientWidth !== width) draw();
    width = host.clientWidth;
  }).observe(host);

  follow('l h lang', () => byId('facts').replaceChildren(...data.metrics.flatMap((m) => {
    const v = m.values[atHead()];
    return Number.isFinite(v) ?
        [el('div', {}, el('dt', {textContent: nameOf(m)}), el('dd', {textContent: number(v)}))] :
        [];
  })));
}

function gridView() {
  const section = byId('grid');
  if (!data.grids.length) {
    section.remove();
    return;
  }
  const read = byId('grid-read'), choice = byId('grid-choice'), host = byId('grid-table');
  const shape = (g) => ({...g, said: g.said && ((row, t) => g.texts[g.said[row * tokens + t]])});
  const tell = (row, t) => {
    const g = shape(grid()), said = g.said ? tr('says', {x: `“${shown(g.said(row, t))}”`}) : '';
    read.textContent = tr(
        'grid_read',
        {row: `${tr('layer')} ${g.rows[row]}`, t: quoted(t), v: valueOf(g.values[row * tokens + t]), said});
  };
  const chosen = () => rowOfLayer(grid(), state.l);
  const picture = gridPicture(byId('grid-heat'), byId('grid-scroll'), {
    tokens,
    tell,
    about: 'grid-table',
    rows: () => grid().rows.length,
    label: () => `${tr('grid_label', {g: nameOf(grid())})}. ${read.textContent}`,
    move: (dx, dy) => set({l: state.l + dy, t: state.t + dx}),
    choose: (row, t) => set({l: row - rowOfLayer(grid(), 0), t}),
    left: () => tell(chosen(), state.t),
  });
  const ramp = legend(section);
  section.insertBefore(section.lastChild, read);
  let scale = null;

  choice.addEventListener('change', () => set({g: choice.value}));
  follow('lang', () => options(choice, data.grids.map((g) => [g.key, nameOf(g)])));
  follow('g lang', () => {
    choice.value = state.g;
  });
  follow('g theme', () => {
    scale = scaleOfGrid(grid());
    picture.draw(grid(), painter.table(), scale);
    ramp(painter.table(), scale.low, scale.middle, scale.high);
  });
  follow('g l t lang', () => {
    picture.choose(chosen(), state.t);
    tell(chosen(), state.t);
    picture.name();
  });
  const around = () => host.replaceChildren(gridTable(shape(grid()), {
    texts: data.tokens,
    row: chosen(),
    t: state.t,
    width: host.clientWidth,
    corner: tr('layer'),
    painter,
    scale,
    choose: (row, t) => set(row === null ? {t} : {l: Math.max(0, row - rowOfLayer(grid(), 0)), t}),
  }));
  follow('g l t theme lang', around);
  let width = 0;
  new ResizeObserver(() => {
    if (host.clientWidth !== width) around();
    width = host.clientWidth;
  }).observe(host);
}

function documentsView() {
  const host = byId('documents');
  let all = [];
  follow('lang', () => {
    all = data.documents[state.lang].map(
        (d) => drawDocument(d, {painter, width: host.clientWidth, table: tr('table')}));
    host.replaceChildren(...all.map((d) => d.element));
  });
  follow('theme', () => {
    for (const d of all) d.paint();
  });
}
