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
import {numbersOf} from './reading.js';

const cells = (tag, list) => list.map((x) => el(tag, {textContent: typeof x === 'number' ? number(x) : x}));
const plainTable = (columns, rows) =>
    el('table', {className: 'numbers'},
       el('thead', {}, el('tr', {}, ...columns.map((c) => el('th', {scope: 'col', textContent: c})))),
       el('tbody', {}, ...rows.map((r) => el('tr', {}, ...cells('td', r)))));
const rowName = (name) => name === 'embed' ? tr('inside_embed') : name;

// Layer × token: lengths and largest activations. Lengths are asked for when they are first wanted.
export function layersPart(v) {
  const kinds = ['massive', 'residual', 'attn_out', 'ffn_out'],
        own = {kind: 'massive', norms: null, of: null};
  const host = el('div'), scroll = el('div', {className: 'scroll'}, host), ramp = el('div'),
        draw_ramp = legend(ramp);
  const around = el('div', {id: 'inside-grid-table', className: 'scroll'}),
        read = el('p', {className: 'read'});
  const choice = v.select(
      'inside_grid', () => kinds.map((k) => [k, pictureWords.nameOf({key: k})]), () => own.kind, want);
  let picture = null, scale = null;
  function grid() {
    const {all} = v;
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
    if (kind !== 'massive' && own.of !== v.all) {
      const all = v.all;
      try {
        const reply = await v.look('norms', v.request(['norms']));
        if (!reply || all !== v.all) return;
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
  const rowOf = (g, l) => g.rows.length - v.all.shape.layers + l;
  const tell = (row, t) => {
    const g = grid();
    read.textContent = g ? pictureWords.word('grid_read', {
      row: `${pictureWords.word('layer')} ${g.rows[row]}`,
      t: v.quoted(t),
      v: number(g.values[row * v.all.shape.tokens + t]),
      said: ''
    }) :
                           '';
  };
  function draw() {
    const g = grid();
    if (v.all) element.hidden = !g && own.kind === 'massive';
    choice.again();
    if (!g || !picture) return;
    scale = scaleOfGrid(g);
    picture.draw(g, painter.table(), scale);
    draw_ramp(painter.table(), scale.low, scale.middle, scale.high);
  }
  function mark() {
    const g = grid();
    if (!g || !picture) return;
    const row = rowOf(g, v.pick.l);
    picture.choose(row, v.pick.t);
    tell(row, v.pick.t);
    picture.name();
    around.replaceChildren(gridTable(g, {
      texts: v.all.texts,
      row,
      t: v.pick.t,
      width: around.clientWidth || 600,
      corner: pictureWords.word('layer'),
      painter,
      scale,
      choose: (r, t) => v.choose(r === null ? {t} : {l: Math.max(0, r - rowOf(g, 0)), t}),
    }));
  }
  const element = v.section(
      'grid', v.heading('inside_layers', choice),
      el('p', {className: 'hint', 'data-text': 'inside_layers_about'}), scroll, ramp, read, around);
  v.on('all theme lang', draw);
  v.on('all l t theme lang', mark);
  v.on('all', () => {
    if (v.all && own.kind !== 'massive') want(own.kind);
  });
  return {
    element,
    rebuild() {
      host.replaceChildren();
      picture = gridPicture(host, scroll, {
        tokens: v.all.shape.tokens,
        rows: () => grid().rows.length,
        about: 'inside-grid-table',
        tell,
        label: () => `${pictureWords.word('grid_label', {g: pictureWords.nameOf({key: own.kind})})}. ${
            read.textContent}`,
        choose: (row, t) => v.choose({l: row - rowOf(grid(), 0), t}),
        move: (dx, dy) => v.choose({l: v.pick.l + dy, t: v.pick.t + dx}),
        left: () => tell(rowOf(grid(), v.pick.l), v.pick.t),
      });
    },
  };
}

// The largest activations of each layer, and their channels through the layers.
export function massivePart(v) {
  const verdict = el('p'), list = el('div', {className: 'scroll'}), curves = el('div');
  const twinTable = v.table('inside-massive-table', () => {
    const m = v.all.massive;
    return plainTable(
        [
          tr('inside_layer'), ...m.channels.map((c) => tr('inside_channel', {c: String(c)})),
          tr('inside_median')
        ],
        m.rows.map((name, r) => [rowName(name), ...m.trace.map((t) => t[r]), m.median[r]]));
  });
  const draw = () => {
    if (!v.all) return;
    const m = v.all.massive;
    element.hidden = !m;
    if (!m) return;
    verdict.textContent = tr(m.found ? 'inside_massive_yes' : 'inside_massive_no');
    const best = [...m.top].filter((a) => a.row !== 'embed').sort((a, b) => b.ratio - a.ratio).slice(0, 8);
    list.replaceChildren(el('table', {className: 'numbers'}, el('thead', {}, el('tr', {}, ...['inside_channel_head', 'inside_after',
      'inside_at_token', 'inside_value', 'inside_ratio', 'inside_change'].map((key) => el('th', {scope: 'col', textContent: tr(key)})))),
      el('tbody', {}, ...best.map((a) => el('tr', {className: a.massive ? 'massive' : ''}, ...cells('td', [String(a.channel), rowName(a.row),
        v.quoted(a.token), a.value, `${number(a.ratio)}×${a.massive ? ' ●' : ''}`]),
        el('td', {}, v.editButton(findings.zeroEdit(Number(a.row), a.token, a.channel), 'inside_zero', 'inside_unzero')))))));
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
  const element = v.section('massive', v.heading('inside_massive'), verdict, list, curves, twinTable);
  v.on('all lang extra', draw);
  return element;
}

// The chosen token, layer by layer.
export function tokenPart(v) {
  const title = el('h2'), lens = el('div', {className: 'scroll'}), norms = el('div'),
        gates = el('p', {className: 'hint gates'});
  const about = el('p', {className: 'hint', 'data-text': 'inside_lens_about'}),
        sink = el('p', {className: 'sink-share'});
  const twinTable = v.table('inside-token-table', () => {
    const d = v.detail && v.detail.token;
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
  const gatesBy = (d, layers) => d.gate ? by(d.gate, layers, v.all.shape.heads) : null;
  const draw = () => {
    const d = v.detail && v.detail.token;
    title.textContent = v.all ? tr('inside_token_title', {t: v.quoted(v.pick.t)}) : '';
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
                        el('tr', {className: name === String(v.pick.l) ? 'on' : ''},
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
          Float32Array.from({length: layers * v.all.shape.heads}, (_, i) => d.stats[8 * i + 1]) :
          null;
      const seen = first ? [...first].filter(Number.isFinite) : [];
      sink.textContent = seen.length ? tr('inside_sink_token', {
        w: number(mean(seen)),
        t: v.quoted(0),
        n: seen.filter((x) => x > 0.3).length,
        of: seen.length
      }) :
                                       '';
    }
    twinTable.again();
  };
  const element = v.section(
      'token', el('div', {className: 'head'}, title), sink, gates, about,
      el('div', {className: 'duo'}, lens, el('div', {}, norms, twinTable)));
  v.on('detail t l lang theme all', draw);
  return element;
}
