// SPDX-License-Identifier: Apache-2.0
// A text as a row of tokens of which one is chosen: one stop of the Tab key, arrow keys inside, a click
// chooses. Shared by the report and the page of `rapt serve`.
//   choose(t): a token was clicked at, or reached by the keys;  tell(t): the pointer is on it, -1: it left
import {el} from './dom.js';
import {plain} from './signs.js';

export function tokenSpans(host, {choose, tell, id = ''}) {
  const spans = [];
  let chosen = -1, piece = null, inPiece = 0;
  // A long text in pieces, each a block: one that grows lays out and paints its last piece alone. They end with
  // a line; where there is none, after kMost tokens.
  const kPiece = 300, kMost = 1000;
  const tokenOf = (event) =>
      event.target.dataset && event.target.dataset.t !== undefined ? Number(event.target.dataset.t) : -1;
  host.addEventListener('click', (event) => {
    if (tokenOf(event) >= 0) choose(tokenOf(event));
  });
  host.addEventListener('pointerover', (event) => {
    if (tokenOf(event) >= 0) tell(tokenOf(event));
  });
  host.addEventListener('pointerleave', () => tell(-1));
  host.addEventListener('keydown', (event) => {
    const step = {
      ArrowLeft: -1,
      ArrowUp: -1,
      ArrowRight: 1,
      ArrowDown: 1,
      Home: -spans.length,
      End: spans.length
    }[event.key];
    if (!step || !spans.length || event.altKey || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    const from = chosen >= 0 ? chosen : tokenOf(event),
          to = Math.max(0, Math.min(spans.length - 1, from + step));
    choose(to);
    spans[to].focus();
  });
  return {
    spans,
    add(texts) {
      for (const text of texts) {
        if (!piece || inPiece >= kMost || (inPiece >= kPiece && piece.lastChild.nodeName === 'BR')) {
          host.append(piece = el('div', {className: 'piece', role: 'presentation'}));
          inPiece = 0;
        }
        ++inPiece;
        const t = spans.length, span = el('span', {
                                  textContent: text === '' ? '∅' : plain(text),
                                  role: 'option',
                                  tabIndex: t === 0 && chosen < 0 ? 0 : -1,
                                  'data-t': t
                                });
        if (id) span.id = `${id}-${t}`;
        spans.push(span);
        piece.append(span);
        if (text.includes('\n')) piece.append(el('br'));
      }
    },
    paint(t, background, ink) {
      spans[t].style.backgroundColor = background;
      spans[t].style.color = ink;
    },
    mark(t) {  // -1: none
      const last = spans[chosen];
      if (last) {
        last.classList.remove('on');
        last.removeAttribute('aria-selected');
        last.tabIndex = -1;
      }
      chosen = t;
      const now = spans[t] || spans[0];
      if (now) now.tabIndex = 0;
      if (!spans[t]) return;
      now.classList.add('on');
      now.setAttribute('aria-selected', 'true');
      // In its own box only: the page stays where it is.
      const top = now.offsetTop;
      if (top < host.scrollTop || top + now.offsetHeight > host.scrollTop + host.clientHeight)
        host.scrollTop = top - host.clientHeight / 2;
    },
  };
}
