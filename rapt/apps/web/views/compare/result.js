// SPDX-License-Identifier: Apache-2.0
// What came of a comparison: both texts with the place where they part, both distributions at a chosen
// place, the difference of surprise along a text, and the heads (heads.js).
import {el, options, svg} from '/page/shared/dom.js';
import {shown} from '/page/shared/signs.js';
import {tokenSpans} from '/page/shared/spans.js';

import {count, fixed, say, tr} from '../../i18n.js';
import {errorWords} from '../../message.js';
import {follow, state} from '../../state.js';

import {HeadsPart} from './heads.js';
import {furthest, parting} from './session.js';

const kName = ['A', 'B'];
const quote = (text) => `“${shown(text)}”`;
export const percent = (logprob) => {
  const p = 100 * Math.exp(logprob);
  return p >= 99.95 ? '100 %' : p >= 10 ? `${fixed(p, 0)} %` : p >= 0.1 ? `${fixed(p, 1)} %` : '< 0.1 %';
};
const signed = (x, digits = 2) => `${x > 0 ? '+' : x < 0 ? '−' : ''}${fixed(Math.abs(x), digits)}`;

// One sentence about both answers.
export function verdict(data) {
  const [a, b] = data.sides, p = parting(data.sides, data.oneVocabulary);
  if (data.sides.some((s) => s.error)) return tr('compare_verdict_error');
  if (p.at)
    return tr(
        p.same[0] ? 'compare_verdict_part' : 'compare_verdict_part_at_once',
        {n: p.same[0], at: p.at[0] + 1, a: quote(a.tokens[p.at[0]].text), b: quote(b.tokens[p.at[1]].text)});
  if (!data.sides.every((s) => s.over)) return tr('compare_verdict_running', {n: p.same[0]});
  if (a.hash && a.hash === b.hash)
    return tr('compare_verdict_same', {hash: a.hash}) +
        tr(data.causes.length ? 'compare_verdict_same_yet' : 'compare_verdict_same_of_course');
  if (a.tokens.length !== b.tokens.length) {
    const short = a.tokens.length < b.tokens.length ? 0 : 1;
    return tr('compare_verdict_ends', {n: p.same[0], who: kName[short], other: kName[1 - short]});
  }
  const {at, by} = furthest(data.sides, p.same[0]);
  return at < 0 ? tr('compare_verdict_alike', {n: p.same[0]}) :
                  tr('compare_verdict_bits', {n: p.same[0], d: by.toPrecision(3), at: at + 1});
}

// What side k says at token i of side s's text: {logprob (of the token that stands there), top}, or null.
export function said(data, s, i, k) {
  if (s === k) return data.sides[s].tokens[i] || null;
  const p = parting(data.sides, data.oneVocabulary), score = data.scores[s];
  if (score && score !== 'other') return {logprob: score.logprob[i], top: score.top[i]};
  // Up to where they part both read the same, and the stream itself says it.
  if (!data.oneVocabulary || i > p.same[0] || !data.sides[k].tokens[i]) return null;
  if (String(data.sides[0].promptIds) !== String(data.sides[1].promptIds)) return null;
  const own = data.sides[k].tokens[i], there = data.sides[s].tokens[i];
  const found = there && own.top.find(([text]) => text === there.text);
  return {logprob: there && own.text === there.text ? own.logprob : found ? found[1] : NaN, top: own.top};
}

// look(): both texts are to be read, as they are
export class Result {
  constructor(host, look) {
    this.look = look;
    this.verdict = el('p', {className: 'compare-verdict'});
    this.cause = el('p', {className: 'hint compare-cause'});
    this.columns = [0, 1].map((i) => this.column(i));
    this.place = el('section', {className: 'compare-place'});
    this.along = this.alongPart();
    this.heads = new HeadsPart();
    this.state = el('p', {className: 'hint', hidden: true});
    this.again = el('button', {type: 'button', hidden: true, 'data-text': 'compare_look'});
    this.again.addEventListener('click', () => this.look());
    this.lookError = el('p', {className: 'error', role: 'alert', hidden: true});
    this.empty = el('p', {className: 'compare-empty', 'data-text': 'compare_empty'});
    this.body =
        el('div', {className: 'compare-body', hidden: true}, this.verdict, this.cause,
           el('div', {className: 'compare-columns'}, ...this.columns.map((c) => c.box)), this.place,
           this.state, this.lookError, this.again, this.along.box, this.heads.box);
    host.append(say(this.empty), this.body);
    this.chosen = null;  // {side, index}; null: where they part
    this.text = 0;       // whose text is looked at below
    follow('lang', () => {
      say(this.body);
      this.redraw();
    }, true);
    follow('theme', () => this.heads.paint(), true);
  }

  column(i) {
    const c = {
      box: el('article', {className: `compare-column side-${i}`}),
      head: el('h3'),
      strip: el('div', {className: 'token-text', role: 'listbox', dir: 'auto'}),
      about: el('p', {className: 'hint'}),
      error: el('p', {className: 'error', hidden: true})
    };
    c.box.append(c.head, c.strip, c.about, c.error);
    return c;
  }

  // Another comparison.
  show(data) {
    this.data = data;
    this.chosen = null;
    this.text = 0;
    this.marked = '';
    this.columns.forEach((c, i) => {
      const strip = el('div', {className: 'token-text', role: 'listbox', dir: 'auto'});
      c.strip.replaceWith(strip);
      c.strip = strip;
      c.row = tokenSpans(strip, {choose: (t) => this.choose(i, t), tell: () => {}});
      c.done = c.same = 0;
    });
    this.heads.show(data);
  }
  choose(side, index) {
    this.chosen = {side, index};
    this.text = side;
    this.drawPlace();
    this.along.draw();
    this.heads.update(this.text);
  }
  at() {
    const {data} = this, p = parting(data.sides, data.oneVocabulary);
    if (this.chosen) return this.chosen;
    if (p.at) return {side: 0, index: p.at[0]};
    const {at} = furthest(data.sides, data.oneVocabulary ? p.same[0] : 0);
    return data.sides[0].tokens.length ? {side: 0, index: Math.max(0, at)} : null;
  }

  redraw() {
    if (this.data) this.update(this.data, this.comparison);
  }
  update(data, comparison) {
    this.comparison = comparison;
    this.empty.hidden = Boolean(data);
    this.body.hidden = !data;
    if (!data) return;
    if (data !== this.data) this.show(data);
    this.verdict.textContent = verdict(data);
    const names =
        data.causes.map((c) => tr(`compare_cause_${c}`, {a: data.sides[0].cache, b: data.sides[1].cache}));
    this.cause.textContent = names.length ? tr('compare_because', {what: names.join(tr('compare_and'))}) :
                                            tr('compare_because_none');
    const p = parting(data.sides, data.oneVocabulary);
    this.columns.forEach((c, i) => this.drawColumn(c, i, p));
    this.drawPlace();
    const looking = Boolean(comparison && comparison.looking);
    this.state.hidden = !looking;
    this.state.textContent = looking ? tr('compare_looking') : '';
    this.lookError.hidden = !data.error;
    if (data.error) this.lookError.textContent = tr('compare_look_failed') + errorWords(data.error);
    const over = !(comparison && comparison.writing), busy = Boolean(comparison && comparison.busy);
    this.again.hidden =
        busy || data.scores.some(Boolean) || !data.sides.every((s) => s.over && s.tokens.length && !s.error);
    this.along.box.hidden = !over || !data.scores.some(Boolean);
    if (!this.along.box.hidden) this.along.draw();
    this.heads.update(this.text);
  }

  drawColumn(c, i, p) {
    const side = this.data.sides[i];
    c.head.textContent = `${kName[i]} · ${side.model}`;
    c.strip.setAttribute('aria-label', tr('compare_text_label', {name: kName[i]}));
    const from = c.row.spans.length;
    const atEnd = c.strip.scrollHeight - c.strip.scrollTop - c.strip.clientHeight < 40;
    c.row.add(side.tokens.slice(from).map((t) => t.text));
    if (atEnd && !side.over) c.strip.scrollTop = c.strip.scrollHeight;
    const parts = p.at ? p.at[i] : -1;
    for (let t = Math.min(c.done, c.same, p.same[i]); t < c.row.spans.length; ++t) {
      const span = c.row.spans[t];
      span.classList.toggle('same', t < p.same[i]);
      span.classList.toggle('parts', t === parts);
      if (t === parts)
        span.setAttribute('aria-label', `${shown(side.tokens[t].text)}: ${tr('compare_part_here')}`);
    }
    c.done = c.row.spans.length;
    c.same = p.same[i];
    c.strip.hidden = !c.row.spans.length;
    const about = [];
    if (side.tokens.length) about.push(tr('n_tokens', {n: side.tokens.length}));
    if (side.stopped)
      about.push(tr('finish_stopped'));
    else if (side.detail === 'length')
      about.push(tr('finish_length'));
    else if (side.detail === 'context')
      about.push(tr('finish_context'));
    if (side.hash) about.push(tr('compare_hash', {hash: side.hash}));
    c.about.textContent = about.join(' · ') || (side.over ? '' : tr('waiting'));
    c.error.hidden = !side.error;
    c.error.textContent = side.error ? errorWords(side.error) : '';
    c.box.setAttribute('aria-busy', String(!side.over));
  }

  // Both distributions at the chosen place, one row for each token that either of them lists.
  drawPlace() {
    const {data} = this, where = this.at();
    this.place.hidden = !where;
    if (!where) return;
    const {side, index} = where, other = 1 - side, p = parting(data.sides, data.oneVocabulary);
    const place = `${side} ${index}`;
    if (this.marked !== place) this.columns.forEach((c, i) => c.row.mark(i === side ? index : -1));
    this.marked = place;
    const parts = Boolean(p.at && p.at[side] === index), token = data.sides[side].tokens[index];
    const both = [0, 1].map((k) => said(data, side, index, k));
    // What each of them wrote here: the other one's token stands at the same place only where they part.
    const wrote = [0, 1].map((k) => k === side ? token : parts ? data.sides[k].tokens[p.at[k]] : null);
    const lists = both.map((one, k) => {
      const list = new Map(one ? one.top : []);
      if (one && Number.isFinite(one.logprob)) list.set(token.text, one.logprob);
      const theirs = parts && k === side ? said(data, other, p.at[other], k) : null;
      if (theirs && Number.isFinite(theirs.logprob)) list.set(wrote[other].text, theirs.logprob);
      if (k === other && parts && wrote[other]) list.set(wrote[other].text, wrote[other].logprob);
      return list;
    });
    const all = [...new Set(lists.flatMap((list) => [...list.keys()]))];
    const best = (text) => Math.max(...lists.map((list) => list.get(text) ?? -Infinity));
    all.sort((x, y) => best(y) - best(x));
    const cell = (k, text) => {
      const value = lists[k].get(text);
      if (value === undefined) {
        const least = both[k] && both[k].top.length ? both[k].top[both[k].top.length - 1][1] : null;
        return el(
            'td', {className: `side-${k}`},
            el('span', {className: 'figure', textContent: least === null ? '?' : `< ${percent(least)}`}));
      }
      const bar = el('span', {className: 'share'});
      bar.style.width = `${Math.max(0.5, 100 * Math.exp(value))}%`;
      return el(
          'td', {className: `side-${k}`}, el('span', {className: 'track', 'aria-hidden': 'true'}, bar),
          el('span', {className: 'figure', textContent: percent(value)}));
    };
    const rows = all.map((text) => {
      const who = [0, 1].filter((k) => wrote[k] && wrote[k].text === text).map((k) => kName[k]);
      return el(
          'tr', {className: who.length ? 'on' : ''},
          el('th', {scope: 'row'}, el('span', {className: 'who', textContent: shown(text)}),
             ...who.map(
                 (name) => el('span', {className: 'badge', textContent: tr('compare_wrote', {name})}))),
          cell(0, text), cell(1, text));
    });
    const begins = data.sides[side].tokens.slice(Math.max(0, index - 12), index).map((t) => t.text).join('');
    const title = parts ? tr('compare_place_parting', {n: index + 1}) :
                          tr('compare_place', {n: index + 1, name: kName[side]});
    const key = (k) =>
        el('th', {scope: 'col', className: `side-${k}`, textContent: `${kName[k]} · ${data.sides[k].model}`});
    const words = [];
    if (parts && wrote[other]) {
      const [ab, ba] = [[0, 1], [1, 0]].map(([k, o]) => lists[k].get(wrote[o].text));
      if (ab !== undefined && ba !== undefined)
        words.push(tr('compare_gives', {
          a: quote(wrote[0].text),
          b: quote(wrote[1].text),
          ab: percent(ab),
          ba: percent(ba),
          aa: percent(wrote[0].logprob),
          bb: percent(wrote[1].logprob)
        }));
    }
    const equal = both.every(Boolean) && both[0].top.length > 0 &&
        JSON.stringify(both[0].top) === JSON.stringify(both[1].top);
    if (equal) words.push(tr(parts ? 'compare_equal_drawn' : 'compare_equal_here'));
    if (!both.every(Boolean))
      words.push(tr(data.scores[side] === 'other' ? 'compare_other_tokens' : 'compare_not_yet'));
    const back = el('button', {type: 'button', className: 'small', textContent: tr('compare_to_parting')});
    back.hidden = !p.at || parts;
    back.addEventListener('click', () => {
      this.choose(0, p.at[0]);
      this.columns[0].row.spans[p.at[0]].focus();
    });
    this.place.replaceChildren(
        el('h2', {textContent: title}),
        el('p', {className: 'compare-context', dir: 'auto'},
           el('span', {className: 'hint', textContent: tr('compare_after')}), ' ',
           el('q', {textContent: `… ${begins.replace(/\s+/g, ' ') || shown(begins)}`}), ' ', back),
        el('div', {className: 'scroll'},
           el('table', {className: 'compare-bars'},
              el('thead', {},
                 el('tr', {}, el('th', {scope: 'col', textContent: tr('column_token')}), key(0), key(1))),
              el('tbody', {}, ...rows))),
        ...words.map((text) => el('p', {textContent: text})));
  }

  // ------------------------------------------------------------------------------------- along the text
  alongPart() {
    const part = {
      box: el('section', {className: 'compare-along', hidden: true}),
      title: el('h2', {'data-text': 'compare_along'}),
      choice: el('select'),
      picture: el('div', {className: 'compare-chart scroll'}),
      keys: el('p', {className: 'hint', 'data-text': 'compare_along_keys'}),
      means: el('div', {className: 'scroll'}),
      twin:
          el('details', {className: 'twin'}, el('summary', {'data-text': 'as_table'}),
             el('div', {className: 'scroll'})),
    };
    part.box.append(
        part.title,
        el('p', {className: 'row'},
           el('label', {}, el('span', {'data-text': 'compare_whose'}), ' ', part.choice)),
        part.picture, part.keys, part.means, part.twin);
    part.choice.addEventListener('change', () => {
      this.text = Number(part.choice.value);
      this.chosen = null;
      this.redraw();
    });
    part.twin.addEventListener('toggle', () => part.draw());
    part.draw = () => this.drawAlong(part);
    return part;
  }
  // Of each token of side s's text: its surprise for A and for B, in nats; null where one does not know it.
  surprises(s) {
    return this.data.sides[s].tokens.map((t, i) => {
      const both = [0, 1].map((k) => said(this.data, s, i, k));
      return both.every((x) => x && Number.isFinite(x.logprob)) ? both.map((x) => -x.logprob) : null;
    });
  }
  drawAlong(part) {
    const {data} = this, s = this.text, list = this.surprises(s), known = list.filter(Boolean);
    options(part.choice, [0, 1].map((k) => [k, tr('compare_text_of', {name: kName[k]})]));
    part.choice.value = s;
    const apart = data.scores.some((x) => x === 'other');
    part.picture.hidden = part.twin.hidden = part.keys.hidden = !known.length;
    part.means.replaceChildren();
    if (apart) {
      part.means.replaceChildren(el('p', {textContent: tr('compare_other_tokens')}));
      return;
    }
    if (!known.length) return;
    // Above 0: A expected it more than B.
    const d = list.map((x) => x ? x[1] - x[0] : null),
          most = Math.max(0.1, ...d.map((x) => Math.abs(x ?? 0)));
    const room = part.box.clientWidth - 30;
    const step = Math.max(4, Math.min(16, Math.floor(room / d.length))), w = step * d.length, h = 120,
          mid = h / 2;
    const at = this.at(), p = parting(data.sides, data.oneVocabulary);
    const chart = svg('svg', {
      viewBox: `0 0 ${w} ${h}`,
      width: w,
      height: h,
      role: 'img',
      'aria-label': tr('compare_along_label', {name: kName[s], n: known.length, most: fixed(most, 2)})
    });
    if (p.at)
      chart.append(svg('line', {x1: p.at[s] * step, x2: p.at[s] * step, y1: 0, y2: h, class: 'parting'}));
    chart.append(svg('line', {x1: 0, x2: w, y1: mid, y2: mid, class: 'rule'}));
    d.forEach((x, i) => {
      const size = Math.max(x === null ? 0 : 1, Math.abs(x ?? 0) / most * (mid - 4));
      const bar = svg('rect', {
        x: i * step + 0.5,
        y: x > 0 ? mid - size : mid,
        width: step - 1,
        height: size,
        class: (x > 0 ? 'up' : 'down') + (at && at.side === s && at.index === i ? ' on' : '')
      });
      const name = svg('title');
      name.textContent = x === null ? '' : `${shown(data.sides[s].tokens[i].text)} ${signed(x)}`;
      bar.append(name);
      chart.append(bar);
    });
    chart.addEventListener('click', (event) => {
      const r = chart.getBoundingClientRect();
      this.choose(
          s, Math.min(d.length - 1, Math.max(0, Math.floor((event.clientX - r.left) / r.width * d.length))));
    });
    part.picture.replaceChildren(chart, el('span', {className: 'hint', textContent: `± ${fixed(most, 2)}`}));
    // Both texts by both sides.
    const mean = (list, k) => {
      const good = list.filter(Boolean);
      return good.length ? fixed(good.reduce((sum, x) => sum + x[k], 0) / good.length, 4) : '';
    };
    const lists = [0, 1].map((i) => i === s ? list : this.surprises(i));
    part.means.replaceChildren(el(
        'table', {className: 'numbers compare-means'}, el('caption', {textContent: tr('compare_means')}),
        el('thead', {},
           el('tr', {}, el('td'),
              ...kName.map((name) => el('th', {scope: 'col', textContent: tr('compare_read_by', {name})})))),
        el('tbody', {},
           ...[0, 1].map(
               (i) => el(
                   'tr', {}, el('th', {scope: 'row', textContent: tr('compare_text_of', {name: kName[i]})}),
                   ...[0, 1].map((k) => el('td', {textContent: mean(lists[i], k)})))))));
    if (!part.twin.open) return part.twin.lastElementChild.replaceChildren();
    part.twin.lastElementChild.replaceChildren(
        el('table', {className: 'numbers'},
           el('thead', {},
              el('tr', {},
                 ...['#', tr('column_token'), tr('compare_read_by', {name: 'A'}),
                     tr('compare_read_by', {name: 'B'}), tr('compare_difference')]
                     .map((text) => el('th', {scope: 'col', textContent: text})))),
           el('tbody', {},
              ...list.map(
                  (x, i) =>
                      el('tr', {},
                         ...[count(i + 1), shown(data.sides[s].tokens[i].text), x ? fixed(x[0], 4) : '',
                             x ? fixed(x[1], 4) : '', x ? signed(x[1] - x[0], 4) : '']
                             .map((text) => el('td', {textContent: text})))))));
  }
}
