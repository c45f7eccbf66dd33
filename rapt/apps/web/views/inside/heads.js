// SPDX-License-Identifier: Apache-2.0
// All heads: one figure of each as layers × heads, and all their maps at a glance.
import {painter, pictureWords} from '/page/figures.js';
import {tr} from '/page/i18n.js';
import {el} from '/page/shared/dom.js';
import {allPicture, headsPicture, headsTable} from '/page/shared/heads.js';
import {legend, scaleOf} from '/page/shared/heat.js';
import {number} from '/page/shared/numbers.js';
import {withLabel} from '/page/shared/words.js';

import * as findings from './findings.js';
import {kColumns} from './live.js';
import {heading, section, select, table} from './parts.js';
import {choose, kMostMaps, setOver} from './reading.js';
import {kMetrics, labelOf, on, pick, quoted, seen} from './seen.js';

const kShares =
    new Set(['first', 'sink', 'self', 'previous', 'induction', 'strongest', 'gate', 'gate_closed']);

// One figure of every head.
export function headsPart() {
  const host = el('div'), read = el('p', {className: 'read', id: 'inside-heads-read'}), ramp = el('div');
  const draw_ramp = legend(ramp);
  const metrics = () => pick.over === 'text' ? kMetrics : [...kColumns.slice(0, 7), 'gate'];
  const metric = select(
      'inside_metric', () => metrics().map((m) => [m, findings.metricName(m)]), () => pick.metric,
      (m) => choose({metric: m}));
  const over = select(
      'inside_over', () => ['text', 'token'].map((x) => [x, tr(`inside_over_${x}`)]), () => pick.over,
      (x) => setOver(x));
  const where = el('p', {className: 'hint live-line', hidden: true});
  let picture = null, values = null, heads = 0, layers = 0;
  const value = (l, h) => values ? values[l * heads + h] : NaN;
  const column = (stats) => {
    const c = kColumns.indexOf(pick.metric), out = new Float32Array(layers * heads).fill(NaN);
    if (c >= 0)
      for (let i = 0; i < out.length; ++i) out[i] = stats[i * kColumns.length + c];
    return out;
  };
  const now = () => {
    if (seen.live) return column(seen.live.stats);
    if (pick.over === 'text') return seen.all.heads ? seen.all.heads.values[pick.metric] : null;
    if (seen.detail && seen.detail.token)
      return pick.metric === 'gate' ? seen.detail.token.gate :
                                      seen.detail.token.stats && column(seen.detail.token.stats);
    return seen.detail && seen.detail.frame ? column(seen.detail.frame) : null;
  };
  const tell = (l, h) => {
    read.textContent = !seen.all && !seen.live ?
        '' :
        pictureWords.word(
            'head_read', {l, h, v: number(value(l, h)), label: seen.live ? '' : withLabel(labelOf(l, h))});
  };
  const twinTable = table(
      'inside-heads-table',
      () => headsTable(layers, heads, value, pictureWords.word('layer'), seen.live ? () => '' : labelOf));
  const build = (shape) => {
    if (picture && shape[0] === layers && shape[1] === heads) return;
    [layers, heads] = shape;
    host.replaceChildren();
    picture = headsPicture(host, {
      layers,
      heads,
      tell,
      about: 'inside-heads-read',
      label: () =>
          `${pictureWords.word('heads_label', {m: findings.metricName(pick.metric)})}. ${read.textContent}`,
      choose: (l, h) => choose({l, h}),
      move: (dl, dh) => choose({l: pick.l + dl, h: pick.h + dh}),
      left: () => tell(pick.l, pick.h),
    });
  };
  const draw = () => {
    if (!seen.all && !seen.live) return;
    build(seen.live ? seen.live.shape : [seen.all.shape.layers, seen.all.shape.heads]);
    values = now();
    // Over one token the colours stay where they are from token to token.
    const share = kShares.has(pick.metric);
    const scale = values ? scaleOf(values, share) : scaleOf([], true);
    picture.draw(values || [], share, painter.table(), scale);
    draw_ramp(painter.table(), scale.low, scale.middle, scale.high);
    picture.choose(pick.l, pick.h);
    tell(pick.l, pick.h);
    picture.name();
    twinTable.again();
    where.hidden = !seen.live && pick.over === 'text';
    where.textContent = seen.live         ? tr('inside_live_now', {n: seen.live.row, text: seen.live.text}) :
        seen.all && pick.over === 'token' ? tr('inside_over_now', {t: quoted(pick.t)}) :
                                            '';
  };
  on('all detail l h metric over theme lang live', draw);
  on('lang metric over', () => {
    metric.again();
    over.again();
  });
  return section('heads', heading('inside_heads', over, metric), where, host, ramp, read, twinTable);
}

// The maps of all heads, small.
export function allPart() {
  const host = el('div'), scroll = el('div', {className: 'scroll'}, host),
        read = el('p', {className: 'read', id: 'inside-all-read'});
  const note = el('p', {className: 'hint'}), axes = el('span', {className: 'hint'});
  const tell = (l, h) => {
    const m = seen.maps && seen.maps.most[l] ? seen.maps.most[l][h] : null;
    read.textContent = !seen.all ? '' :
                                   pictureWords.word('head_title', {l, h}) + withLabel(labelOf(l, h)) +
            (m === null || m === undefined ?
                 '' :
                 ` · ${tr('inside_most', {t: quoted(m), w: number(seen.maps.share[l][h])})}`);
  };
  let picture = null, shape = '';
  const twinTable = table(
      'inside-all-table',
      () =>
          el('table', {className: 'numbers'},
             el('thead', {},
                el('tr', {},
                   ...['inside_head', 'inside_named', 'inside_most_of', 'inside_share'].map(
                       (key) => el('th', {scope: 'col', textContent: tr(key)})))),
             el('tbody', {},
                ...(seen.maps ? seen.maps.most : [])
                    .flatMap(
                        (row, l) => row.map(
                            (t, h) => t === null ?
                                '' :
                                el('tr', {},
                                   ...[`L${l}H${h}`, labelOf(l, h), quoted(t), number(seen.maps.share[l][h])]
                                       .map((x) => el('td', {textContent: x}))))))));
  const paint = () => {
    if (picture && seen.maps) picture.draw(pick.root, painter.table());
  };
  on('maps all lang', () => {
    const long = seen.all && seen.all.shape.tokens > kMostMaps;
    note.textContent = long ? tr('inside_maps_long', {most: kMostMaps}) : '';
    scroll.hidden = read.hidden = axes.hidden = twinTable.hidden = !seen.maps;
    if (!seen.maps) return;
    const key = `${seen.all.shape.layers} ${seen.all.shape.heads}`;
    if (shape !== key) {
      shape = key;
      host.replaceChildren();
      picture = allPicture(host, {
        layers: seen.all.shape.layers,
        heads: seen.all.shape.heads,
        tell,
        about: 'inside-all-read',
        label: () => `${pictureWords.word('all_label')}. ${read.textContent}`,
        choose: (l, h) => choose({l, h}),
        move: (dl, dh) => choose({l: pick.l + dl, h: pick.h + dh}),
        left: () => tell(pick.l, pick.h),
      });
      // No higher than a screen.
      const {layers, heads} = seen.all.shape, long = Math.max(layers, heads), wide = Math.min(layers, heads);
      host.style.maxWidth = `${Math.round(620 * long / wide)}px`;
    }
    axes.textContent = pictureWords.word(picture.deep ? 'deep_axes' : 'wide_axes');
    picture.show(seen.maps.small);
    paint();
    twinTable.again();
  });
  on('theme root', paint);
  on('l h maps lang', () => {
    if (!picture || !seen.maps) return;
    picture.choose(pick.l, pick.h);
    tell(pick.l, pick.h);
    picture.name();
  });
  return section('all', heading('inside_all', axes), note, scroll, read, twinTable);
}
