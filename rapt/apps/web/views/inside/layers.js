// SPDX-License-Identifier: Apache-2.0
// Layers: the text as layer × token, the largest activations and their channels, and the chosen token from
// the embedding to the last layer: lengths, gates, what the model would say there.
import {painter, pictureWords} from '/page/figures.js';
import {tr} from '/page/i18n.js';
import {el} from '/page/shared/dom.js';
import {gridPicture, gridTable, scaleOfGrid} from '/page/shared/grid.js';
import {legend} from '/page/shared/heat.js';
import {number} from '/page/shared/numbers.js';
import {chart} from '/page/shared/plot.js';
import {shown} from '/page/shared/signs.js';

import * as findings from './findings.js';
import {look, numbersOf} from './look.js';
import {editButton, heading, section, select, table} from './parts.js';
import {choose, request} from './reading.js';
import {on, pick, quoted, seen} from './seen.js';

const cells = (tag, list) => list.map((x) => el(tag, {textContent: typeof x === 'number' ? number(x) : x}));
const plainTable = (columns, rows) =>
    el('table', {className: 'numbers'},
       el('thead', {}, el('tr', {}, ...columns.map((c) => el('th', {scope: 'col', textContent: c})))),
       el('tbody', {}, ...rows.map((r) => el('tr', {}, ...cells('td', r)))));
const rowName = (name) => name === 'embed' ? tr('inside_embed') : name;

// Layer × token: lengths and largest activations. Lengths are asked for when they are first wanted.
export function layersPart() {
  const kinds = ['massive', 'residual', 'attn_out', 'ffn_out'],
        own = {kind: 'massive', norms: null, of: null};
  const host = el('div'), scroll = el('div', {className: 'scroll'}, host), ramp = el('div'),
        draw_ramp = legend(ramp);
  const around = el('div', {id: 'inside-grid-table', className: 'scroll'}),
        read = el('p', {className: 'read'});
  const choice =
      select('inside_grid', () => kinds.map((k) => [k, pictureWords.nameOf({key: k})]), () => own.kind, want);
  let picture = null, scale = null;
  function grid() {
    const {all} = seen;
    if (!all) return null;
    const n = all.shape.tokens;
    if (own.kind === 'massive') {
      if (!all.massive) return null;
      const m = all.massive;
      return {
        rows: m.rows.map(rowName),
        log: false,
        said: null,
        values: m.values.map((x, i) => Math.log10(x / m.median[Math.floor(i / n)]))
      };
    }
    if (!own.norms || own.of !== all) return null;
    const values = own.norms[own.kind];
    return {
      rows: (own.kind === 'residual' ? own.norms.rows : own.norms.rows.slice(1)).map(rowName),
      values,
      log: true,
      said: null
    };
  }
  async function want(kind) {
    own.kind = kind;
    if (kind !== 'massive' && own.of !== seen.all) {
      const all = seen.all;
      try {
        const reply = await look('norms', request(['norms']));
        if (!reply || all !== seen.all) return;
        own.of = all;
        own.norms = {rows: reply.norms.rows};
        for (const k of kinds.slice(1)) own.norms[k] = numbersOf(reply.norms[k]);
      } catch {
        own.kind = 'massive';
      }
    }
    draw();
    mark();
  }
  const rowOf = (g, l) => g.rows.length - seen.all.shape.layers + l;
  const tell = (row, t) => {
    const g = grid();
    read.textContent = g ? pictureWords.word('grid_read', {
      row: `${pictureWords.word('layer')} ${g.rows[row]}`,
      t: quoted(t),
      v: number(g.values[row * seen.all.shape.tokens + t]),
      said: ''
    }) :
                           '';
  };
  function draw() {
    const g = grid();
    if (seen.all) element.hidden = !g && own.kind === 'massive';
    choice.again();
    if (!g || !picture) return;
    scale = scaleOfGrid(g);
    picture.draw(g, painter.table(), scale);
    draw_ramp(painter.table(), scale.low, scale.middle, scale.high);
  }
  function mark() {
    const g = grid();
    if (!g || !picture) return;
    const row = rowOf(g, pick.l);
    picture.choose(row, pick.t);
    tell(row, pick.t);
    picture.name();
    around.replaceChildren(gridTable(g, {
      texts: seen.all.texts,
      row,
      t: pick.t,
      width: around.clientWidth || 600,
      corner: pictureWords.word('layer'),
      painter,
      scale,
      choose: (r, t) => choose(r === null ? {t} : {l: Math.max(0, r - rowOf(g, 0)), t}),
    }));
  }
  const element = section(
      'grid', heading('inside_layers', choice),
      el('p', {className: 'hint', 'data-text': 'inside_layers_about'}), scroll, ramp, read, around);
  on('all theme lang', draw);
  on('all l t theme lang', mark);
  on('all', () => {
    if (seen.all && own.kind !== 'massive') want(own.kind);
  });
  on('tokens', () => {
    host.replaceChildren();
    picture = gridPicture(host, scroll, {
      tokens: seen.all.shape.tokens,
      rows: () => grid().rows.length,
      about: 'inside-grid-table',
      tell,
      label: () => `${pictureWords.word('grid_label', {g: pictureWords.nameOf({key: own.kind})})}. ${
          read.textContent}`,
      choose: (row, t) => choose({l: row - rowOf(grid(), 0), t}),
      move: (dx, dy) => choose({l: pick.l + dy, t: pick.t + dx}),
      left: () => tell(rowOf(grid(), pick.l), pick.t),
    });
  });
  return element;
}

// The largest activations of each layer, and their channels through the layers.
export function massivePart() {
  const verdict = el('p'), list = el('div', {className: 'scroll'}), curves = el('div');
  const twinTable = table('inside-massive-table', () => {
    const m = seen.all.massive;
    return plainTable(
        [
          tr('inside_layer'), ...m.channels.map((c) => tr('inside_channel', {c: String(c)})),
          tr('inside_median')
        ],
        m.rows.map((name, r) => [rowName(name), ...m.trace.map((t) => t[r]), m.median[r]]));
  });
  const draw = () => {
    if (!seen.all) return;
    const m = seen.all.massive;
    element.hidden = !m;
    if (!m) return;
    verdict.textContent = tr(m.found ? 'inside_massive_yes' : 'inside_massive_no');
    const best = [...m.top].filter((a) => a.row !== 'embed').sort((a, b) => b.ratio - a.ratio).slice(0, 8);
    const columns = [
      'inside_channel_head', 'inside_after', 'inside_at_token', 'inside_value', 'inside_ratio',
      'inside_change'
    ];
    const row = (a) => el(
        'tr', {className: a.massive ? 'massive' : ''},
        ...cells(
            'td',
            [
              String(a.channel), rowName(a.row), quoted(a.token), a.value,
              `${number(a.ratio)}×${a.massive ? ' ●' : ''}`
            ]),
        el('td', {},
           editButton(findings.zeroEdit(Number(a.row), a.token, a.channel), 'inside_zero', 'inside_unzero')));
    list.replaceChildren(
        el('table', {className: 'numbers'},
           el('thead', {},
              el('tr', {}, ...columns.map((key) => el('th', {scope: 'col', textContent: tr(key)})))),
           el('tbody', {}, ...best.map(row))));
    const names = m.rows.map((_, r) => r), size = (list) => list.map(Math.abs);
    const drawing = chart(
        {
          title: tr('inside_traces'),
          x_label: tr('inside_rows'),
          y_label: '|x|',
          log_y: true,
          curves: [
            ...m.channels.map(
                (c, i) => ({name: tr('inside_channel', {c: String(c)}), x: names, y: size(m.trace[i])})),
            {name: tr('inside_median'), x: names, y: m.median}
          ]
        },
        Math.max(280, Math.min(820, curves.clientWidth || 600)), 220);
    drawing.firstChild.setAttribute('aria-describedby', 'inside-massive-table');
    curves.replaceChildren(drawing);
    twinTable.again();
  };
  const element = section('massive', heading('inside_massive'), verdict, list, curves, twinTable);
  on('all lang extra', draw);
  return element;
}

// The chosen token, layer by layer.
export function tokenPart() {
  const title = el('h2'), lens = el('div', {className: 'scroll'}), norms = el('div'),
        gates = el('p', {className: 'hint gates'});
  const about = el('p', {className: 'hint', 'data-text': 'inside_lens_about'}),
        sink = el('p', {className: 'sink-share'});
  const twinTable = table('inside-token-table', () => {
    const d = seen.detail && seen.detail.token;
    if (!d || !d.norms) return el('p', {textContent: ''});
    const n = d.norms, layers = n.attn_out.length, gate = gatesBy(d, layers);
    return plainTable(
        [
          tr('inside_layer'), ...['residual', 'attn_out', 'ffn_out'].map((key) => pictureWords.nameOf({key})),
          ...(gate ? [pictureWords.nameOf({key: 'gate'})] : [])
        ],
        n.residual.map(
            (x, r) =>
                [r ? String(r - 1) : tr('inside_embed'), x, r ? n.attn_out[r - 1] : '',
                 r ? n.ffn_out[r - 1] : '', ...(gate ? [r ? gate[r - 1] : ''] : [])]));
  });
  const mean = (list) => list.reduce((a, x) => a + x, 0) / list.length;
  const by = (values, layers, heads) => [...Array(layers).keys()].map(
      (l) => mean([...values.subarray(l * heads, (l + 1) * heads)].filter(Number.isFinite)));
  const gatesBy = (d, layers) => d.gate ? by(d.gate, layers, seen.all.shape.heads) : null;
  const draw = () => {
    const d = seen.detail && seen.detail.token;
    title.textContent = seen.all ? tr('inside_token_title', {t: quoted(pick.t)}) : '';
    if (!d) return;  // the last one stays until the new one is there
    if (d.lens) {
      const x = d.lens, top = x.ids[0].length;
      const next = x.truth === null ? null : tr('inside_rank');
      lens.replaceChildren(
          el('table', {className: 'numbers lens'},
             el('thead', {},
                el('tr', {}, el('th', {scope: 'col', textContent: tr('inside_after')}),
                   ...Array.from(
                       {length: top},
                       (_, i) => el('th', {scope: 'col', textContent: tr('inside_nth', {n: i + 1})})),
                   el('th', {scope: 'col', textContent: tr('inside_entropy')}),
                   ...(next ? [el('th', {scope: 'col', textContent: next})] : []))),
             el('tbody', {},
                ...x.rows.map(
                    (name, r) =>
                        el('tr', {className: name === String(pick.l) ? 'on' : ''},
                           el('th', {scope: 'row', textContent: rowName(name)}), ...x.ids[r].map((id, i) => {
                             const p = x.probability[r][i], index = Math.round(255 * p);
                             const td =
                                 el('td', {className: id === x.truth ? 'true' : ''},
                                    el('span', {className: 'who', textContent: shown(x.text[r][i])}),
                                    el('small', {textContent: ` ${number(p)}`}));
                             Object.assign(
                                 td.style, {backgroundColor: painter.css(index), color: painter.ink(index)});
                             return td;
                           }),
                           el('td', {textContent: number(x.entropy[r])}),
                           ...(next ? [el('td', {textContent: String(x.rank[r])})] : []))))));
    }
    if (d.norms) {
      const n = d.norms, rows = n.residual.map((_, r) => r), layers = n.attn_out.length;
      const drawing = chart(
          {
            title: tr('inside_norms'),
            x_label: tr('inside_rows'),
            y_label: tr('inside_length'),
            log_y: true,
            curves: [
              ['residual', rows, n.residual], ['attn_out', rows.slice(1), n.attn_out],
              ['ffn_out', rows.slice(1), n.ffn_out]
            ].map(([key, x, y]) => ({name: pictureWords.nameOf({key}), x, y}))
          },
          Math.max(280, Math.min(820, norms.clientWidth || 600)), 220);
      drawing.firstChild.setAttribute('aria-describedby', 'inside-token-table');
      norms.replaceChildren(drawing);
      const gate = gatesBy(d, layers);
      gates.textContent =
          gate ? tr('inside_gates_token', {list: gate.map((x, l) => `${l}: ${number(x)}`).join(' · ')}) : '';
      const first = d.stats ?
          Float32Array.from({length: layers * seen.all.shape.heads}, (_, i) => d.stats[8 * i + 1]) :
          null;
      const shares = first ? [...first].filter(Number.isFinite) : [];
      sink.textContent = shares.length ? tr('inside_sink_token', {
        w: number(mean(shares)),
        t: quoted(0),
        n: shares.filter((x) => x > 0.3).length,
        of: shares.length
      }) :
                                         '';
    }
    twinTable.again();
  };
  const element = section(
      'token', el('div', {className: 'head'}, title), sink, gates, about,
      el('div', {className: 'duo'}, lens, el('div', {}, norms, twinTable)));
  on('detail t l lang theme all', draw);
  return element;
}
