// SPDX-License-Identifier: Apache-2.0
// The text, token by token. A click chooses the token that all other pictures follow.
function strip() {
  const host = byId('strip'), choice = byId('strip-colour'), read = byId('strip-read');
  const spans = data.tokens.map((text, t) => {
    const words = text === '' ? '∅' : plain(text);
    return el('span', {textContent: words, role: 'option', tabIndex: -1, id: `token-${t}`, 'data-t': t});
  });
  const parts = document.createDocumentFragment();
  spans.forEach((span, t) => {
    parts.append(span);
    if (data.tokens[t].includes('\n')) parts.append(el('br'));
  });
  host.append(parts);
  host.classList.toggle('loose', !data.tokens.some((text) => /\s/.test(text)));  // WordPiece keeps no spaces
  const tokenOf = (event) => event.target.dataset && event.target.dataset.t !== undefined ? Number(event.target.dataset.t) : -1;
  host.addEventListener('click', (event) => { if (tokenOf(event) >= 0) set({t: tokenOf(event)}); });
  host.addEventListener('pointerover', (event) => { if (tokenOf(event) >= 0) tell(tokenOf(event)); });
  host.addEventListener('pointerleave', () => tell(state.t));
  host.addEventListener('keydown', (event) => {
    const step = {ArrowLeft: -1, ArrowUp: -1, ArrowRight: 1, ArrowDown: 1, Home: -tokens, End: tokens}[event.key];
    if (!step) return;
    event.preventDefault();
    set({t: state.t + step});
    spans[state.t].focus();
  });
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
    spans.forEach((span, t) => {
      const i = state.c === 'none' ? -1 : index(values[t]);
      span.style.backgroundColor = i < 0 ? '' : cssOf(i);
      span.style.color = i < 0 ? '' : inkOn(i);
    });
  }
  function tell(t) {
    read.textContent = tr('strip_read', {t: quoted(t), id: data.ids[t], v: Number.isFinite(values[t]) ? ` · ${number(values[t])}` : ''});
  }
  let last = null;
  function mark() {
    if (last) {
      last.classList.remove('on');
      last.removeAttribute('aria-selected');
      last.tabIndex = -1;
    }
    last = spans[state.t];
    last.classList.add('on');
    last.setAttribute('aria-selected', 'true');
    last.tabIndex = 0;
    // In the strip only: the page stays where it is.
    const top = last.offsetTop;
    if (top < host.scrollTop || top + last.offsetHeight > host.scrollTop + host.clientHeight) host.scrollTop = top - host.clientHeight / 2;
    tell(state.t);
  }
  follow('lang', () => options(choice, [['attention', tr('attention')], ...data.grids.map((g) => [g.key, nameOf(g)]), ['none', tr('none')]]));
  follow('c lang', () => { choice.value = state.c; });
  follow('l h t c s theme lang', colours);
  follow('l h t c lang', mark);
}
