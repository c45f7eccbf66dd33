// SPDX-License-Identifier: Apache-2.0
// The text, token by token. A click chooses the token that all other pictures follow.
function strip() {
  const host = byId('strip'), choice = byId('strip-colour'), read = byId('strip-read');
  const row = tokenSpans(host, {
    id: 'token',
    choose: (to) => set({t: to}),
    tell: (at) => tell(at < 0 ? state.t : at),
  });
  row.add(data.tokens);
  host.classList.toggle('loose', !data.tokens.some((text) => /\s/.test(text)));  // WordPiece keeps no spaces
  choice.addEventListener('change', () => set({c: choice.value}));

  // Of each token a value and its colour's index, -1: none.
  let values = new Float32Array(0), index = () => -1;
  function colours() {
    const chosen = data.grids.find((g) => g.key === state.c), from = data.strongest[atHead()];
    values = new Float32Array(tokens).fill(NaN);
    if (chosen) {
      const row = rowOfLayer(chosen, state.l);
      values.set(chosen.values.subarray(row * tokens, (row + 1) * tokens));
      index = scaleOf(chosen.values, false, chosen.log).index;
    } else if (state.c === 'attention' && from) {
      for (let r = 0; r < from.count; ++r) {
        const key = from.keys[r * tokens + state.t];
        if (key !== 65535) values[key] = from.weights[r * tokens + state.t] / 1000;
      }
      index = (w) => Number.isFinite(w) ? Math.round(255 * (state.s === 'root' ? Math.sqrt(w) : w)) : -1;
    }
    row.spans.forEach((_, t) => {
      const i = state.c === 'none' ? -1 : index(values[t]);
      row.paint(t, i < 0 ? '' : painter.css(i), i < 0 ? '' : painter.ink(i));
    });
  }
  function tell(t) {
    read.textContent = tr('strip_read', {t: quoted(t), id: data.ids[t], v: Number.isFinite(values[t]) ? ` · ${number(values[t])}` : ''});
  }
  function mark() {
    row.mark(state.t);
    tell(state.t);
  }
  follow('lang', () => options(choice, [['attention', tr('attention')], ...data.grids.map((g) => [g.key, nameOf(g)]), ['none', tr('none')]]));
  follow('c lang', () => { choice.value = state.c; });
  follow('l h t c s theme lang', colours);
  follow('l h t c lang', mark);
}
