// SPDX-License-Identifier: Apache-2.0
// An answer token by token: each one coloured by how probable it was, its alternatives as bars, and the chosen
// one in the state, which other views follow. Other colourings: registerColouring({name, title, ends, index}):
//   title  key of the words;  ends  what stands at both ends of the scale
//   index  (token, i, owner) → 0 … 255 in the table of colours, -1: none;  owner: id of the answer
//   offers (owner) → whether there is anything to show of this answer; absent: always
// repaintTokens(): all rows of tokens once more, after what a colouring shows has changed.
import {el, options} from '/page/shared/dom.js';
import {paint} from '/page/shared/heat.js';
import {shown} from '/page/shared/signs.js';
import {tokenSpans} from '/page/shared/spans.js';
import {painter} from './figures.js';
import {fixed, say, tr} from './i18n.js';
import {openView} from './shell.js';
import {follow, kept, set, state} from './state.js';

const kMostSurprise = 8;  // nats: 1 in 3,000
const known = (t) => Number.isFinite(t.logprob);
export const colourings = [];
const strips = new Set();
export function registerColouring(c) {
  colourings.push(c);
  repaintTokens();
}
export function repaintTokens() {
  for (const strip of strips) strip.choices();
}
registerColouring({
  name: 'surprise',
  title: 'by_surprise',
  ends: () => ['0', `${kMostSurprise}+`],
  index: (t) => known(t) ? Math.round(255 * Math.min(1, -t.logprob / kMostSurprise)) : -1
});
registerColouring({
  name: 'probability',
  title: 'by_probability',
  ends: () => ['100 %', '0 %'],
  index: (t) => known(t) ? Math.round(255 * (1 - Math.exp(t.logprob))) : -1
});

// A token may end within a character; the server writes its bytes then: <e8><93>.
const inBytes = (text) => /^(?:<[0-9a-f]{2}>)+$/.test(text);

const percent = (logprob) => {
  const p = 100 * Math.exp(logprob);
  return p >= 99.95 ? '100 %' : p >= 10 ? `${fixed(p, 0)} %` : p >= 0.1 ? `${fixed(p, 1)} %` : '< 0.1 %';
};

// What is known of a token: its probability, and its alternatives as bars.
function card(token) {
  const rows = token.top.map(([text, logprob]) => {
    const bar = el('span', {className: 'share'});
    bar.style.width = `${Math.max(0.5, 100 * Math.exp(logprob))}%`;
    return el(
        'li', {className: text === token.text ? 'on' : ''},
        el('span', {className: 'who', textContent: shown(text)}),
        el('span', {className: 'track', 'aria-hidden': 'true'}, bar),
        el('span', {className: 'figure', textContent: percent(logprob)}));
  });
  const figures = known(token) ?
      tr('token_figures', {p: percent(token.logprob), s: fixed(-token.logprob, 2)}) :
      tr('token_unknown');
  return [
    el('p', {}, el('strong', {textContent: shown(token.text)}), ` ${figures}`),
    ...(inBytes(token.text) ? [el('p', {className: 'hint', textContent: tr('token_bytes')})] : []),
    ...(rows.length ? [el('ol', {}, ...rows)] : []),
    ...(known(token) && token.top.length && !token.top.some(([text]) => text === token.text) ?
            [el('p', {className: 'hint', textContent: tr('token_outside', {n: token.top.length})})] :
            [])
  ];
}

// choose(i): what the state's `chosen` is for token i; same(chosen): whether it is of this answer; owner: its id.
export class TokenStrip {
  constructor(host, {choose, same, owner = null}) {
    this.tokens = [];
    this.owner = owner;
    strips.add(this);
    this.text = el('div', {className: 'token-text', role: 'listbox', dir: 'auto'});
    this.text.dataset.label = 'tokens_label';
    this.card = el('div', {className: 'token-card', hidden: true});
    this.select = el('select');
    this.scale = el('canvas', {width: 256, height: 1, 'aria-hidden': 'true'});
    this.ends = [el('span'), el('span')];
    this.inside = el('button', {type: 'button', className: 'small see-inside', hidden: true});
    this.inside.addEventListener('click', () => openView('inside'));
    const head =
        el('div', {className: 'token-head'},
           el('label', {}, el('span', {'data-text': 'coloured'}), ' ', this.select),
           el('span', {className: 'scale'}, this.ends[0], this.scale, this.ends[1]), this.inside);
    const table =
        el('details', {className: 'twin'}, el('summary', {'data-text': 'as_table'}),
           el('div', {className: 'scroll'}));
    table.addEventListener(
        'toggle', () => table.lastElementChild.replaceChildren(...(table.open ? [this.table()] : [])));
    this.box = el('div', {className: 'token-box'}, this.text, this.card);
    this.element = el('div', {className: 'tokens'}, head, this.box, table);
    host.append(say(this.element));
    this.row = tokenSpans(this.text, {choose: (i) => set({chosen: choose(i)}), tell: (i) => this.tell(i)});
    this.text.addEventListener('focusin', (event) => {
      if (event.target.dataset.t !== undefined) this.tell(Number(event.target.dataset.t));
    });
    this.text.addEventListener('focusout', () => this.tell(-1));
    this.text.addEventListener('keydown', (event) => {
      if (event.key === 'Enter' && event.target.dataset.t !== undefined)
        set({chosen: choose(Number(event.target.dataset.t))});
    });
    this.select.addEventListener('change', () => {
      kept.set('colouring', this.select.value);
      this.colouring = colourings.find((c) => c.name === this.select.value);
      this.paint(0);
      this.legend();
    });
    this.ended = [
      follow(
          'lang',
          () => {
            say(this.element);
            this.choices();
          }),
      follow(
          'theme',
          () => {
            this.paint(0);
            this.legend();
          },
          true),
      follow(
          'chosen lang',
          () => {
            const chosen = state.chosen && same(state.chosen) ? state.chosen : null;
            this.row.mark(chosen ? chosen.index : -1);
            this.inside.hidden = !chosen;
            this.inside.textContent = chosen ? tr('token_inside', {token: shown(chosen.token.text)}) : '';
          }),
    ];
  }
  // The colourings that have something to show of this answer; the wanted one as soon as it is among them.
  choices() {
    const there = colourings.filter((c) => !c.offers || c.offers(this.owner));
    const name = kept.get('colouring', 'surprise');
    this.colouring = there.find((c) => c.name === name) || there[0];
    options(this.select, there.map((c) => [c.name, tr(c.title)]));
    this.select.value = this.colouring.name;
    this.paint(0);
    this.legend();
  }
  remove() {
    strips.delete(this);
    for (const end of this.ended) end();
    this.element.remove();
  }

  // All tokens so far; those that are there already stay as they are.
  update(tokens) {
    const from = this.row.spans.length;
    this.tokens = tokens;
    if (tokens.length === from) return;
    this.row.add(tokens.slice(from).map((t) => t.text));
    this.paint(from);
  }
  paint(from) {
    for (let i = from; i < this.row.spans.length; ++i) {
      const index = this.colouring.index(this.tokens[i], i, this.owner);
      this.row.paint(i, index < 0 ? '' : painter.css(index), index < 0 ? '' : painter.ink(index));
    }
  }
  legend() {
    paint(this.scale, 256, 1, (x) => x, painter.table());
    this.colouring.ends().forEach((text, i) => {
      this.ends[i].textContent = text;
    });
  }
  tell(i) {
    const token = this.tokens[i], span = this.row.spans[i];
    this.card.hidden = !token;
    if (!token) return;
    this.card.replaceChildren(...card(token));
    span.setAttribute('aria-label', this.card.innerText.replace(/\s+/g, ' '));
    const room = this.box.getBoundingClientRect(), at = span.getBoundingClientRect();
    const seen = (this.element.closest('.chat-scroll, .view') || document.body).getBoundingClientRect();
    const high = this.card.offsetHeight + 6;  // above the token where there is no room below
    const above = at.bottom + high > seen.bottom && at.top - high >= seen.top;
    this.card.style.top = `${(above ? at.top - high : at.bottom + 6) - room.top}px`;
    this.card.style.left =
        `${Math.max(0, Math.min(at.left - room.left, room.width - this.card.offsetWidth))}px`;
  }
  table() {
    const heads = ['token', 'id', 'probability', 'surprise', 'alternatives'].map(
        (key) => el('th', {scope: 'col', textContent: tr(`column_${key}`)}));
    return el(
        'table', {className: 'numbers'}, el('thead', {}, el('tr', {}, ...heads)),
        el('tbody', {},
           ...this.tokens.map(
               (t) =>
                   el('tr', {},
                      ...[shown(t.text),
                          t.id === null ? '' : String(t.id),
                          known(t) ? percent(t.logprob) : '',
                          known(t) ? fixed(-t.logprob, 2) : '',
                          t.top.map(([text, logprob]) => `${shown(text)} ${percent(logprob)}`).join(' · '),
    ].map((text) => el('td', {textContent: text}))))));
  }
}
