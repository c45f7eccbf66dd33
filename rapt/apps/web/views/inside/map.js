// SPDX-License-Identifier: Apache-2.0
// The chosen head: its map, and from the chosen token the arcs to where it looks and from where it is seen.
import {painter, pictureWords} from '/page/figures.js';
import {tr} from '/page/i18n.js';
import {arcsPicture, linkItems} from '/page/shared/arcs.js';
import {el} from '/page/shared/dom.js';
import {legend} from '/page/shared/heat.js';
import {mapPicture, mapWeight} from '/page/shared/map.js';
import {number} from '/page/shared/numbers.js';
import {withLabel} from '/page/shared/words.js';

import * as findings from './findings.js';
import {section, select, table} from './parts.js';
import {choose} from './reading.js';
import {at, kMetrics, labelOf, on, pick, quoted, seen} from './seen.js';

const kMostLinks = 8;

// Weight of a key in the chosen head's row of token t, {w, of: how many it is the largest of}; null: unknown.
export function weight(t, k) {
  if (seen.detail.row && t === pick.t) return {w: seen.detail.row(pick.h)[k], of: 1};
  const m = seen.detail.map;
  if (!m) return null;
  const tokens = seen.all.shape.tokens;
  if (m.rows === tokens && m.keys === tokens) return {w: m.values[t * tokens + k], of: 1};
  return mapWeight(m, t, k, tokens);
}
function links() {
  const tokens = seen.all.shape.tokens, out = [], into = [],
        whole = seen.detail.map && seen.detail.map.rows === tokens;
  for (let k = 0; k < tokens; ++k) {
    const to = k <= pick.t && (whole || seen.detail.row) ? weight(pick.t, k) : null;
    if (to && to.w > 5e-4) out.push({t: k, w: to.w});
    const from = whole && k > pick.t ? weight(k, pick.t) : null;
    if (from && from.w > 5e-4) into.push({t: k, w: from.w});
  }
  const best = (list) => list.sort((a, b) => b.w - a.w || a.t - b.t).slice(0, kMostLinks);
  return {out: best(out), into: best(into), whole};
}
export function mapPart() {
  const host = el('div'), read = el('p', {className: 'read', id: 'inside-map-read'}), ramp = el('div');
  const title = el('h2'), draw_ramp = legend(ramp);
  const scale = select(
      'inside_scale', () => ['root', 'linear'].map((s) => [s, pictureWords.word(s)]),
      () => pick.root ? 'root' : 'linear', (s) => choose({root: s === 'root'}));
  let picture = null;
  const cross = (t, k) => {
    if (!picture || !seen.all) return;
    picture.cross(t, k, Boolean(seen.detail && seen.detail.map));
    if (!seen.detail || !seen.detail.map) {
      read.textContent = '';
      return;
    }
    if (k < 0) k = (links().out[0] || {t}).t;
    const {w, of} = weight(t, k);
    read.textContent = pictureWords.word('map_read', {q: quoted(t), k: quoted(k), v: number(w)}) +
        (of > 1 ? pictureWords.word('map_pooled', {n: of}) : '');
  };
  const twinTable = table('inside-map-table', () => {
    const most = Math.min(seen.all.shape.tokens, 24),
          from = Math.max(0, Math.min(seen.all.shape.tokens - most, pick.t - most + 1));
    const range = [...Array(most).keys()].map((i) => from + i);
    return el(
        'table', {className: 'numbers'},
        el('thead', {},
           el('tr', {}, el('th'), ...range.map((k) => el('th', {scope: 'col', textContent: quoted(k)})))),
        el('tbody', {},
           ...range.map(
               (t) => el(
                   'tr', {}, el('th', {scope: 'row', textContent: quoted(t)}),
                   ...range.map(
                       (k) => el(
                           'td', {textContent: k <= t && seen.detail.map ? number(weight(t, k).w) : ''}))))));
  });
  on('tokens', () => {
    if (!seen.all.shape.heads) return;
    host.replaceChildren();
    host.classList.toggle('crowded', seen.all.shape.tokens > 16);  // no room for words on a phone
    picture = mapPicture(host, {
      texts: seen.all.texts,
      about: 'inside-map-read',
      label: () => `${pictureWords.word('map_label', {l: pick.l, h: pick.h})}. ${read.textContent}`,
      move: (dx, dy) => choose({t: pick.t + dy, k: dx ? (pick.k < 0 ? pick.t : pick.k) + dx : pick.k}),
      at: (t, k, click) => (click ? choose({t, k}) : cross(t, k)),
      left: () => cross(pick.t, pick.k),
    });
  });
  const draw = () => {
    if (!picture || !seen.all) return;
    const m = seen.detail && seen.detail.map;
    picture.draw(m, pick.root, painter.table());
    if (m) draw_ramp(painter.table(), 0, m.top * (pick.root ? 0.25 : 0.5), m.top);
  };
  on('detail root theme all', draw);
  on('detail l h t k lang all', () => {
    if (!picture || !seen.all) return;
    title.textContent =
        pictureWords.word('head_title', {l: pick.l, h: pick.h}) + withLabel(labelOf(pick.l, pick.h));
    picture.keys.textContent = pictureWords.word('keys_axis');
    picture.queries.textContent = pictureWords.word('queries_axis');
    cross(pick.t, pick.k);
    picture.name();
    twinTable.again();
  });
  on('lang root', scale.again);
  return section('map', el('div', {className: 'head'}, title, scale), host, ramp, read, twinTable);
}

// Where the chosen token looks and who looks at it.
export function arcsPart() {
  const title = el('h2', {id: 'inside-arcs-title'}), host = el('div'), facts = el('dl', {className: 'facts'});
  const out = el('ol', {id: 'inside-out'}), into = el('ol', {id: 'inside-in', className: 'in'}),
        note = el('p', {className: 'hint'});
  const h3 = (key) => {
    const h = el('h3');
    on('lang', () => {
      h.textContent = pictureWords.word(key);
    });
    return h;
  };
  const draw = () => {
    if (!seen.all || !seen.detail) return;
    const found = links();
    title.textContent = pictureWords.word('arcs_title', {t: quoted(pick.t)});
    host.replaceChildren(arcsPicture({
      ...found,
      t: pick.t,
      tokens: seen.all.shape.tokens,
      width: Math.max(240, host.clientWidth),
      labelledby: 'inside-arcs-title',
      describedby: 'inside-out'
    }));
    const of = {texts: seen.all.texts, choose: (t) => choose({t}), none: pictureWords.word('nothing')};
    out.replaceChildren(...linkItems(found.out, of));
    into.replaceChildren(...linkItems(found.into, of));
    note.textContent = found.whole || !seen.detail.map ? '' : tr('inside_in_long', {most: 256});
    facts.replaceChildren(...(seen.all.heads ? kMetrics : []).flatMap((m) => {
      const v = seen.all.heads.values[m][at()];
      return Number.isFinite(v) ? [el('div', {}, el('dt', {textContent: findings.metricName(m)}),
                                      el('dd', {textContent: number(v)}))] :
                                  [];
    }));
  };
  on('detail l h t lang all', draw);
  let width = 0;
  new ResizeObserver(() => {
    if (host.clientWidth !== width && seen.visible) draw();
    width = host.clientWidth;
  }).observe(host);
  return section(
      'arcs', el('div', {className: 'head'}, title), host,
      el('div', {className: 'lists'}, el('div', {}, h3('out'), out), el('div', {}, h3('in'), into)), note,
      facts);
}
