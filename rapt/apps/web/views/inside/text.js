// SPDX-License-Identifier: Apache-2.0
// The text, token by token: colours, the readout of a token, and what was possible instead.
import {painter} from '/page/figures.js';
import {tr} from '/page/i18n.js';
import {el} from '/page/shared/dom.js';
import {number} from '/page/shared/numbers.js';
import {shown} from '/page/shared/signs.js';
import {tokenSpans} from '/page/shared/spans.js';

import * as findings from './findings.js';
import {weight} from './map.js';
import {heading, section, select} from './parts.js';
import {choose} from './reading.js';
import {on, pick, quoted, seen} from './seen.js';

export function textPart() {
  let host =
      el('div', {className: 'token-text', role: 'listbox', 'data-label': 'inside_text_label', dir: 'auto'});
  const read = el('p', {className: 'read'}), bars = el('div', {className: 'bars'});
  const colours = ['attention', 'surprise', 'entropy', 'none'];
  const choice = select(
      'inside_colour', () => colours.map((c) => [c, tr(`inside_colour_${c}`)]), () => pick.colour,
      (colour) => choose({colour}));
  let row = null;
  const tell = (t) => {
    if (!seen.all) return;
    const p = seen.all.tokens.logprob[t],
          w = seen.detail && pick.colour === 'attention' ? weight(pick.t, t) : null;
    read.textContent = tr('inside_token', {t: quoted(t), id: String(seen.all.ids[t])}) +
        (Number.isFinite(p) ?
             ` · ${
                 tr('inside_token_p',
                    {p: findings.percent(Math.exp(p)), s: number(-p), r: seen.all.tokens.rank[t]})}` :
             '') +
        (w && t <= pick.t && w.of === 1 ? ` · ${tr('inside_token_w', {w: number(w.w)})}` : '');
  };
  on('tokens', () => {
    const fresh = host.cloneNode(false);
    host.replaceWith(fresh);
    row = tokenSpans(
        fresh, {id: 'inside-token', choose: (t) => choose({t}), tell: (t) => tell(t < 0 ? pick.t : t)});
    row.add(seen.all.texts);
    fresh.classList.toggle('loose', !seen.all.texts.some((text) => /\s/.test(text)));
    host = fresh;
  });
  const paint = () => {
    if (!row || !seen.all) return;
    const {logprob, entropy} = seen.all.tokens;
    const index = {
      none: () => -1,
      surprise: (t) => Number.isFinite(logprob[t]) ? Math.round(255 * Math.min(1, -logprob[t] / 8)) : -1,
      entropy: (t) => Number.isFinite(entropy[t]) ? Math.round(255 * Math.min(1, entropy[t] / 6)) : -1,
      attention: (t) => {
        const w = seen.detail && t <= pick.t ? weight(pick.t, t) : null;
        return w ? Math.round(255 * (pick.root ? Math.sqrt(w.w) : w.w)) : -1;
      },
    }[pick.colour];
    row.spans.forEach((_, t) => {
      const i = index(t);
      row.paint(t, i < 0 ? '' : painter.css(i), i < 0 ? '' : painter.ink(i));
    });
  };
  const drawBars = () => {
    const top = seen.all ? seen.all.tokens.top[pick.t] : [];
    bars.replaceChildren(...(
        top.length ?
            [
              el('h3', {textContent: tr('inside_instead', {t: pick.t})}),
              el('ol', {className: 'tops'}, ...top.map((x) => {
                const bar = el('span', {className: 'share'});
                bar.style.width = `${Math.max(0.5, 100 * Math.exp(x.logprob))}%`;
                return el(
                    'li', {className: x.id === seen.all.ids[pick.t] ? 'on' : ''},
                    el('span', {className: 'who', textContent: shown(x.text)}),
                    el('span', {className: 'track', 'aria-hidden': 'true'}, bar),
                    el('span', {className: 'figure', textContent: findings.percent(Math.exp(x.logprob))}));
              }))
            ] :
            [el('p', {className: 'hint', textContent: seen.all && pick.t === 0 ? tr('inside_first') : ''})]));
  };
  on('t all detail lang', () => {
    if (!row || !seen.all) return;
    row.mark(pick.t);
    tell(pick.t);
  });
  on('t l h all detail colour root theme', paint);
  on('t all lang', drawBars);
  on('lang colour', choice.again);
  return section('text', heading('inside_text', choice), host, read, bars);
}
