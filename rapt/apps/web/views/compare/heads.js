// SPDX-License-Identifier: Apache-2.0
// The heads of both sides while they read one text: the difference of a figure, head by head, in the colours
// of both signs; where the shapes differ, each side by itself.
import {el, options} from '/page/shared/dom.js';
import {headsPicture, headsTable} from '/page/shared/heads.js';
import {legend} from '/page/shared/heat.js';
import {number} from '/page/shared/numbers.js';

import {painter, pictureWords} from '../../figures.js';
import {tr} from '../../i18n.js';
import {kept} from '../../state.js';

const kName = ['A', 'B'];
const kShares = ['first', 'self', 'previous', 'induction', 'strongest', 'gate', 'gate_closed', 'sink'];
const kFirst = 'previous';  // the figure that is shown before another one is chosen
const signed = (x) => !Number.isFinite(x) ? '–' : x < 0 ? `−${number(-x)}` : x > 0 ? `+${number(x)}` : '0';

export class HeadsPart {
  constructor() {
    this.metric = el('select');
    this.title = el('h2');
    this.read = el('p', {className: 'read', id: 'compare-read'});
    this.about = el('p', {className: 'hint'});
    this.pictures = el('div', {className: 'compare-grids'});
    this.twin =
        el('details', {className: 'twin'}, el('summary', {'data-text': 'as_table'}),
           el('div', {className: 'scroll'}));
    this.box =
        el('section', {className: 'compare-heads', hidden: true}, this.title, this.about,
           el('p', {className: 'row'},
              el('label', {}, el('span', {'data-text': 'compare_metric'}), ' ', this.metric)),
           this.pictures, this.read, this.twin);
    this.at = {l: 0, h: 0};
    this.metric.addEventListener('change', () => {
      kept.set('compare.metric', this.metric.value);
      this.paint();
    });
    this.twin.addEventListener('toggle', () => this.table());
  }

  show(data) {
    this.data = data;
    this.seen = null;
    this.at = {l: 0, h: 0};
  }
  // The heads of side `text`'s text; where texts are cut differently, each side's own.
  update(text) {
    const {data} = this, apart = data.scores.some((s) => s === 'other');
    this.text = text;
    const both = apart ? [data.heads[0][0], data.heads[1][1]] : data.heads[text];
    this.box.hidden = !both || !both[0] || !both[1];
    if (this.box.hidden) return;
    const [a, b] = both;
    this.apart = apart;
    this.alike = a.layers === b.layers && a.heads === b.heads;
    this.title.textContent = tr(this.alike ? 'compare_heads' : 'compare_heads_two');
    this.about.textContent = tr(apart ? 'compare_heads_own' : 'compare_heads_about', {name: kName[text]});
    const metrics = a.metrics.filter((m) => [a, b].every((s) => this.has(s, m))), now = this.key();
    options(this.metric, metrics.map((key) => [key, this.nameOf(key)]));
    this.metric.value = metrics.includes(now) ? now : metrics[0];
    if (this.seen !== a || this.other !== b) this.build(a, b);
    this.paint();
  }
  key() { return this.metric.value || kept.get('compare.metric', kFirst); }
  nameOf(key) { return key === 'sink' ? tr('compare_sink') : pictureWords.nameOf({key}); }
  has(side, key) { return side.values[key] && side.values[key].some((row) => row.some((x) => x !== null)); }
  value(k, l, h) {
    const grid = [this.seen, this.other][k].values[this.metric.value], x = grid[l] && grid[l][h];
    return x === null || x === undefined ? NaN : x;
  }
  difference(l, h) { return this.value(1, l, h) - this.value(0, l, h); }

  build(a, b) {
    Object.assign(this, {seen: a, other: b});
    this.pictures.replaceChildren();
    const one = (k) => {
      const side = [a, b][k], host = el('div'), box = el('div', {className: 'compare-grid'});
      if (!this.alike) box.append(el('h3', {textContent: `${kName[k]} · ${this.data.sides[k].model}`}));
      box.append(host);
      this.pictures.append(box);
      const within = (l, h) => {
        this.at = {
          l: Math.min(side.layers - 1, Math.max(0, l)),
          h: Math.min(side.heads - 1, Math.max(0, h)),
          k
        };
        this.mark();
      };
      const picture = headsPicture(host, {
        layers: side.layers,
        heads: side.heads,
        about: 'compare-read',
        label: () => `${this.title.textContent}. ${this.read.textContent}`,
        choose: within,
        move: (dl, dh) => within(this.at.l + dl, this.at.h + dh),
        tell: (l, h) => this.tell(l, h, k),
        left: () => this.tell(this.at.l, this.at.h, this.at.k),
      });
      return {side, picture, ramp: legend(box)};
    };
    this.parts = this.alike ? [one(0)] : [one(0), one(1)];
    this.strongest();
  }
  // The head that differs most is chosen first.
  strongest() {
    this.at = {l: 0, h: 0, k: 0};
    if (!this.alike) return;
    let most = -1;
    for (let l = 0; l < this.seen.layers; ++l)
      for (let h = 0; h < this.seen.heads; ++h)
        if (Math.abs(this.difference(l, h)) > most) {
          most = Math.abs(this.difference(l, h));
          this.at = {l, h, k: 0};
        }
  }

  paint() {
    if (!this.seen || this.box.hidden) return;
    this.parts.forEach(({side, picture, ramp}, k) => {
      const cells = Array.from({length: side.layers * side.heads}, (_, i) => {
        const l = Math.floor(i / side.heads), h = i % side.heads;
        return this.alike ? this.difference(l, h) : this.value(k, l, h);
      });
      if (!this.alike) {
        const rgb = painter.table(), share = kShares.includes(this.metric.value);
        const scale = picture.draw(cells, share, rgb);
        return ramp(rgb, scale.low, scale.middle, scale.high);
      }
      const most = cells.reduce((m, x) => Number.isFinite(x) ? Math.max(m, Math.abs(x)) : m, 0) || 1;
      const rgb = painter.table(true);
      picture.draw(
          cells, false, rgb, {index: (x) => Number.isFinite(x) ? Math.round(127.5 + 127.5 * x / most) : -1});
      ramp(rgb, signed(-most), '0', signed(most));
    });
    this.mark();
    this.table();
  }
  mark() {
    this.parts.forEach(({picture, side}, k) => {
      const {l, h} = this.at;
      picture.choose(Math.min(l, side.layers - 1), Math.min(h, side.heads - 1));
      if (!this.alike && this.at.k !== k) picture.mark(0, 0, 0, 0, false);
    });
    this.tell(this.at.l, this.at.h, this.at.k);
    for (const {picture} of this.parts) picture.name();
  }
  tell(l, h, k) {
    if (!this.seen) return;  // the pointer leaves a picture of the comparison before
    const label = (side) => pictureWords.labelOf(side.labels[l][h]) || tr('compare_no_label');
    this.read.textContent = this.alike ? tr('compare_head_read', {
      l: String(l),
      h: String(h),
      a: number(this.value(0, l, h)),
      b: number(this.value(1, l, h)),
      d: signed(this.difference(l, h)),
      la: label(this.seen),
      lb: label(this.other)
    }) :
                                         tr('compare_head_one', {
                                           name: kName[k],
                                           l: String(l),
                                           h: String(h),
                                           v: number(this.value(k, l, h)),
                                           label: label([this.seen, this.other][k])
                                         });
  }
  table() {
    const host = this.twin.lastElementChild;
    if (!this.twin.open || !this.seen) return host.replaceChildren();
    const of = (k) => headsTable(
        [this.seen, this.other][k].layers, [this.seen, this.other][k].heads, (l, h) => this.value(k, l, h),
        `${kName[k]} · ${tr('compare_layer')}`);
    const tables = [of(0), of(1)];
    if (this.alike) {
      const d = headsTable(
          this.seen.layers, this.seen.heads, (l, h) => this.difference(l, h),
          `B − A · ${tr('compare_layer')}`);
      d.classList.add('compare-difference');
      tables.unshift(d);
    }
    host.replaceChildren(...tables);
  }
}
