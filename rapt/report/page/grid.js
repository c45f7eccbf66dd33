// SPDX-License-Identifier: Apache-2.0
// Layers x tokens: the whole text as a picture, and the tokens around the chosen one as a table that can be read.
function gridView() {
  const section = byId('grid');
  if (!data.grids.length) {
    section.remove();
    return;
  }
  const read = byId('grid-read'), choice = byId('grid-choice'), host = byId('grid-table'), scroll = byId('grid-scroll');
  const value = (row, t) => grid().values[row * tokens + t];
  const said = (row, t) => grid().said ? grid().texts[grid().said[row * tokens + t]] : null;
  const tell = (row, t) => {
    const text = said(row, t);
    read.textContent = tr('grid_read', {row: `${tr('layer')} ${grid().rows[row]}`, t: quoted(t), v: number(value(row, t)), said: text === null ? '' : tr('says', {x: `“${shown(text)}”`})});
  };
  const picture = heat(byId('grid-heat'), {
    label: () => `${tr('grid_label', {g: nameOf(grid())})}. ${read.textContent}`, about: 'grid-table',
    move: (dx, dy) => set({l: state.l + dy, t: state.t + dx}),
    at: (x, y, click) => {
      const row = Math.floor(y * grid().rows.length), t = Math.floor(x * tokens);
      if (click) set({l: row - rowOfLayer(grid(), 0), t});
      tell(row, t);
    },
    left: () => tell(rowOfLayer(grid(), state.l), state.t),
  });
  picture.box.style.minWidth = `${tokens}px`;  // never less than one pixel each: a single bright token must not be lost
  const ramp = legend(section);
  section.insertBefore(section.lastChild, read);
  let scale = null;

  choice.addEventListener('change', () => set({g: choice.value}));
  follow('lang', () => options(choice, data.grids.map((g) => [g.key, nameOf(g)])));
  follow('g lang', () => { choice.value = state.g; });
  follow('g theme', () => {
    const g = grid();
    scale = scaleOf(g.values, false, g.log);
    paint(picture.canvas, tokens, g.rows.length, (x, y) => scale.index(value(y, x)));
    picture.canvas.style.height = `${Math.min(g.rows.length * 14, Math.max(120, g.rows.length * 5))}px`;
    ramp(scale.low, scale.middle, scale.high);
  });
  follow('g l t lang', () => {
    const rows = grid().rows.length, row = rowOfLayer(grid(), state.l);
    picture.mark(state.t / tokens, row / rows, 1 / tokens, 1 / rows);
    const x = (state.t + 0.5) / tokens * picture.box.clientWidth;
    if (x < scroll.scrollLeft || x > scroll.scrollLeft + scroll.clientWidth) scroll.scrollLeft = x - scroll.clientWidth / 2;
    tell(row, state.t);
    picture.name();
  });

  function around() {
    const g = grid(), room = Math.max(2, Math.floor((host.clientWidth - 60) / 92)), count = Math.min(tokens, room);
    const first = Math.max(0, Math.min(tokens - count, state.t - Math.floor(count / 2)));
    const columns = Array.from({length: count}, (_, i) => first + i);
    const head = el('tr', {}, el('th', {textContent: tr('layer')}), ...columns.map((t) => {
      const th = el('th', {scope: 'col', title: data.tokens[t], className: t === state.t ? 'on' : ''}, el('small', {textContent: t}), el('span', {textContent: shown(data.tokens[t])}));
      th.addEventListener('click', () => set({t}));
      return th;
    }));
    const body = g.rows.map((name, row) => {
      const layer = row - rowOfLayer(g, 0);
      const tr_ = el('tr', {className: layer === state.l ? 'on' : ''}, el('th', {scope: 'row', textContent: name}), ...columns.map((t) => {
        const text = said(row, t), index = scale.index(value(row, t)), td = el('td', {textContent: text === null ? number(value(row, t)) : shown(text)});
        td.className = t === state.t ? 'on' : '';
        if (index >= 0) Object.assign(td.style, {backgroundColor: cssOf(index), color: inkOn(index)});
        if (text !== null) td.title = `${shown(text)} ${number(value(row, t))}`;
        td.addEventListener('click', () => set({l: Math.max(0, layer), t}));
        return td;
      }));
      return tr_;
    });
    host.replaceChildren(el('table', {className: 'around'}, el('thead', {}, head), el('tbody', {}, ...body)));
  }
  follow('g l t theme lang', around);
  let width = 0;
  new ResizeObserver(() => {
    if (host.clientWidth !== width) around();
    width = host.clientWidth;
  }).observe(host);
}
