// SPDX-License-Identifier: Apache-2.0
// What the heads do at each look: a slider over the looks, one figure of all heads, every head's map small, the
// chosen one large.
import {el, options} from '/page/shared/dom.js';
import {allPicture, headsPicture, headsTable, mapIndex} from '/page/shared/heads.js';
import {heat, legend, paint, scaleOf} from '/page/shared/heat.js';
import {number} from '/page/shared/numbers.js';
import {shown} from '/page/shared/signs.js';
import {painter, pictureWords} from '../../figures.js';
import {say, tr} from '../../i18n.js';
import {twin} from './curves.js';

const kFrame = 350;  // ms of a look, while they play

export class Heads {
  constructor() {
    this.slider = el('input', {type: 'range', min: 0, max: 0, value: 0, step: 1, id: 'train-look',
                               'data-label': 'train_look'});
    this.choice = el('select', {id: 'train-metric'});
    this.when = el('output', {className: 'train-when', htmlFor: 'train-look'});
    this.play = el('button', {type: 'button', className: 'small', id: 'train-play', 'data-text': 'train_play'});
    this.read = el('p', {className: 'read', id: 'train-heads-read'});
    this.body = el('div', {className: 'train-heads'});
    this.box = el(
        'section', {className: 'card', 'aria-labelledby': 'train-heads-title'},
        el('h2', {id: 'train-heads-title', 'data-text': 'train_heads'}),
        el('p', {className: 'hint', 'data-text': 'train_heads_about'}),
        el('div', {className: 'row'}, this.slider, this.when, this.play,
           el('label', {className: 'row'}, el('span', {'data-text': 'train_figure'}), this.choice)),
        this.body);
    this.metric = 'entropy';
    this.l = this.h = 0;
    this.pinned = false;
    this.looked = () => {};
    this.slider.addEventListener('input', () => {
      this.pinned = Number(this.slider.value) < Number(this.slider.max);
      this.draw();
      this.looked();
    });
    this.choice.addEventListener('change', () => {
      this.metric = this.choice.value;
      this.draw();
    });
    this.play.addEventListener('click', () => this.timer ? this.halt() : this.go());
  }

  get frames() { return this.run ? this.run.heads : []; }
  get frame() { return this.frames[Number(this.slider.value)] || null; }

  go() {
    if (this.frames.length < 2) return;
    if (Number(this.slider.value) >= this.frames.length - 1) this.slider.value = 0;
    this.timer = setInterval(() => {
      const next = Number(this.slider.value) + 1;
      if (next >= this.frames.length) return this.halt();
      this.slider.value = next;
      this.pinned = next < this.frames.length - 1;
      this.draw();
      this.looked();
    }, kFrame);
    this.play.textContent = tr('train_pause');
  }
  halt() {
    clearInterval(this.timer);
    this.timer = 0;
    this.play.textContent = tr('train_play');
  }
  // The look at a step, or the last one before it.
  goTo(step) {
    let at = 0;
    this.frames.forEach((f, i) => {
      if (f.step <= step) at = i;
    });
    this.slider.value = at;
    this.pinned = at < this.frames.length - 1;
    this.draw();
    this.looked();
  }

  show(run) {
    if (run !== this.run || (run && run.begin !== this.begin)) {
      this.halt();
      this.run = run;
      this.begin = run && run.begin;
      this.pinned = false;
      this.make();
    }
    this.box.hidden = !this.frames.length;
    if (this.box.hidden) return;
    const last = this.frames.length - 1;
    this.slider.max = last;
    if (!this.pinned && !this.timer) this.slider.value = last;
    this.draw();
  }

  make() {
    this.body.replaceChildren();
    this.drawn = null;
    if (!this.begin || !this.begin.heads) return;
    const {rows, heads, side} = this.begin, layers = rows.length;
    this.l = Math.min(this.l, layers - 1);
    this.h = Math.min(this.h, heads - 1);
    const choose = (l, h) => {
      this.l = Math.max(0, Math.min(layers - 1, l));
      this.h = Math.max(0, Math.min(heads - 1, h));
      this.draw();
    };
    const about = 'train-heads-read';
    const of = (label) => ({
      layers, heads, label, about, choose,
      move: (dl, dh) => choose(this.l + dl, this.h + dh),
      tell: (l, h) => this.tell(l, h),
      left: () => this.tell(this.l, this.h),
    });
    const grid = el('figure'), all = el('figure'), one = el('figure', {className: 'train-map'});
    const host = el('div'), host_all = el('div');
    grid.append(el('figcaption', {'data-text': 'train_grid'}), host);
    this.grid = headsPicture(host, of(() => `${this.nameOf(this.metric)}. ${this.read.textContent}`));
    this.ramp = legend(grid);
    this.table = this.headsTwin();
    grid.append(this.read, this.table.box);
    this.body.append(grid);
    this.all = this.one = null;
    if (side) {
      all.append(el('figcaption', {'data-text': 'train_all'}), host_all);
      this.all = allPicture(host_all, of(() => `${tr('train_all')}. ${this.read.textContent}`));
      this.caption = el('figcaption');
      const square = el('div', {className: 'square'});
      one.append(this.caption, square);
      this.cell = [side - 1, 0];
      const at = (q, k) => {
        this.cell = [Math.max(0, Math.min(side - 1, q)), Math.max(0, Math.min(side - 1, k))];
        this.drawMap();
      };
      this.one = heat(square, {
        label: () => `${this.caption.textContent}. ${this.mapRead.textContent}`,
        about: 'train-map-read',
        move: (dx, dy) => at(this.cell[0] + dy, this.cell[1] + dx),
        at: (x, y) => at(Math.floor(y * side), Math.floor(x * side)),
      });
      square.append(el('span', {className: 'axis-x', 'aria-hidden': 'true', 'data-text': 'train_keys'}),
                    el('span', {className: 'axis-y', 'aria-hidden': 'true', 'data-text': 'train_queries'}));
      this.mapRead = el('p', {className: 'read', id: 'train-map-read'});
      this.mapTable = twin(
          () => [tr('train_row'), tr('train_strongest')],
          () => Array.from({length: side}, (_, q) => [this.token(q), this.strongest(q)]));
      one.append(this.mapRead, this.mapTable.box);
      this.body.append(all, one);
    }
    say(this.body);
    const metrics = this.begin.metrics.filter((m) => !m.key.startsWith('gate') || this.gated());
    this.names = () => options(this.choice, metrics.map((m) => [m.key, this.nameOf(m.key)]));
    this.names();
    if (!metrics.some((m) => m.key === this.metric)) this.metric = metrics[0].key;
    this.choice.value = this.metric;
  }

  headsTwin() {
    const {rows, heads} = this.begin;
    const box = el('details', {className: 'twin'}, el('summary', {'data-text': 'train_table'}),
                   el('div', {className: 'scroll', tabIndex: 0}));
    const fill = () => {
      if (!box.open || !this.frame) return;
      const values = this.frame.values[this.metric];
      box.lastElementChild.replaceChildren(headsTable(
          rows.length, heads, (l, h) => values[l][h] ?? NaN, tr('train_layer'),
          (l, h) => pictureWords.labelOf(this.frame.labels[l][h])));
    };
    box.addEventListener('toggle', fill);
    return {box, fill};
  }

  gated() { return this.frames.some((f) => f.values.gate && f.values.gate.flat().some((x) => x !== null && x >= 0)); }
  nameOf(key) { return key === 'sink' ? tr('train_h_first') : pictureWords.nameOf({key}); }
  rowName(l) {
    const row = this.begin.rows[l];
    return `${row.layer}${row.cross ? ` ${tr('train_cross')}` : ''}`;
  }
  token(i) { return `${i} “${shown(this.begin.text.tokens[i] ?? '')}”`; }
  pixel(q, k) {
    const {heads, side} = this.begin;
    return this.pixels[((this.l * heads + this.h) * side + q) * side + k];
  }
  strongest(q) {
    const list = Array.from({length: this.begin.side}, (_, k) => [this.pixel(q, k), k]);
    return list.filter(([p]) => p > 2)
        .sort((a, b) => b[0] - a[0])
        .slice(0, 3)
        .map(([p, k]) => `${this.token(k)} ${number(p / 255)}`)
        .join(', ');
  }

  tell(l, h) {
    if (!this.frame || !this.frame.values[this.metric][l]) return;
    const value = this.frame.values[this.metric][l][h], label = pictureWords.labelOf(this.frame.labels[l][h]);
    this.read.textContent = tr('train_head_read', {
      l: this.rowName(l),
      h: String(h),
      name: this.nameOf(this.metric),
      x: value === null || value === undefined ? '–' : number(value),
      label: label ? ` · ${label}` : ''
    });
  }

  draw() {
    const {frame} = this;
    if (!frame || !this.grid) return;
    const {rows, heads, side, metrics} = this.begin;
    this.when.textContent = tr('train_step', {n: frame.step});
    this.slider.setAttribute('aria-valuetext', this.when.textContent);
    const flat = (f) => rows.flatMap((_, l) => Array.from({length: heads}, (_, h) => f.values[this.metric][l][h] ?? NaN));
    // One scale for all looks: colours can be compared along the slider.
    const share = metrics.find((m) => m.key === this.metric).share;
    const scale = scaleOf(this.frames.flatMap(flat), share);
    this.grid.draw(flat(frame), share, painter.table(), scale);
    this.ramp(painter.table(), scale.low, scale.middle, scale.high);
    this.grid.choose(this.l, this.h);
    this.tell(this.l, this.h);
    this.grid.name();
    this.table.fill();
    if (!this.all) return;
    if (this.drawn !== frame) {
      this.drawn = frame;
      this.pixels = Uint8Array.from(atob(frame.maps), (c) => c.charCodeAt(0));
      this.all.show(Array.from({length: rows.length * heads}, (_, i) => ({
                                rows: side,
                                keys: side,
                                pixels: this.pixels.subarray(i * side * side, (i + 1) * side * side)
                              })));
    }
    this.all.draw(true, painter.table());
    this.all.choose(this.l, this.h);
    this.all.name();
    this.drawMap();
  }
  drawMap() {
    const {side} = this.begin, index = mapIndex(true), [q, k] = this.cell;
    this.caption.textContent = tr('train_one', {l: this.rowName(this.l), h: String(this.h)});
    paint(this.one.canvas, side, side, (x, y) => x > y && !this.pixel(y, x) ? -1 : index[this.pixel(y, x)],
          painter.table());
    this.one.mark(k / side, q / side, 1 / side, 1 / side);
    this.mapRead.textContent =
        tr('train_map_read', {q: this.token(q), k: this.token(k), x: number(this.pixel(q, k) / 255)});
    this.one.name();
    this.mapTable.fill();
  }
}
