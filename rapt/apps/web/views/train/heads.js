// SPDX-License-Identifier: Apache-2.0
// What the heads do at each look: a slider over the looks, one figure of all heads, every head's map small,
// the chosen one large.
import {el, options} from '/page/shared/dom.js';
import {allPicture, headsPicture, headsTable, mapIndex} from '/page/shared/heads.js';
import {heat, legend, paint, scaleOf} from '/page/shared/heat.js';
import {number} from '/page/shared/numbers.js';
import {shown} from '/page/shared/signs.js';
import {withLabel} from '/page/shared/words.js';
import {painter, pictureWords} from '../../figures.js';
import {say, tr} from '../../i18n.js';
import {twin} from './curves.js';

const kFrame = 350;  // ms of a look, while they play
const kSeen = 3;     // 255ths: what a table of strongest keys names at least

export class Heads {
  constructor() {
    this.slider = el('input', {type: 'range', min: 0, max: 0, value: 0, id: 'train-look',
                               'data-label': 'train_look'});
    this.choice = el('select', {id: 'train-metric'});
    this.when = el('output', {className: 'train-when'});
    this.play = el('button', {type: 'button', className: 'small', id: 'train-play'});
    this.read = el('p', {className: 'read', id: 'train-heads-read'});
    this.body = el('div', {className: 'train-heads'});
    this.box = el(
        'section', {className: 'card', 'aria-labelledby': 'train-heads-title'},
        el('h2', {id: 'train-heads-title', 'data-text': 'train_heads'}),
        el('p', {className: 'hint', 'data-text': 'train_heads_about'}),
        el('div', {className: 'row'}, this.slider, this.when, this.play,
           el('label', {className: 'row'}, el('span', {'data-text': 'train_figure'}), this.choice)),
        this.body);
    this.l = this.h = 0;
    this.pinned = false;  // the slider was moved back: it does not follow
    this.looked = () => {};
    this.slider.addEventListener('input', () => this.to(Number(this.slider.value)));
    this.choice.addEventListener('change', () => this.draw());
    this.play.addEventListener('click', () => this.timer ? this.halt() : this.go());
    this.halt();
  }

  get frames() { return this.run ? this.run.heads : []; }
  get frame() { return this.frames[Number(this.slider.value)] || null; }
  get metric() { return this.choice.value; }
  get values() { return this.frame.values[this.metric]; }

  to(at) {
    this.slider.value = at;
    this.pinned = at < this.frames.length - 1;
    this.draw();
    this.looked();
  }
  // The look at a step, or the last one before it.
  goTo(step) { this.to(Math.max(0, this.frames.findLastIndex((f) => f.step <= step))); }
  go() {
    const from = Number(this.slider.value);
    this.to(from >= this.frames.length - 1 ? 0 : from);
    this.timer = setInterval(() => {
      if (Number(this.slider.value) >= this.frames.length - 1) this.halt();
      else this.to(Number(this.slider.value) + 1);
    }, kFrame);
    this.play.textContent = tr('train_pause');
  }
  halt() {
    clearInterval(this.timer);
    this.timer = 0;
    this.play.textContent = tr('train_play');
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
    this.slider.max = this.frames.length - 1;
    if (!this.pinned && !this.timer) this.slider.value = this.slider.max;
    this.draw();
  }

  // The pictures of a run, whose shape they have; anew in another language.
  make() {
    this.body.replaceChildren();
    this.grid = this.all = this.drawn = null;
    if (!this.begin || !this.begin.heads) return;
    const {rows, heads, side, metrics} = this.begin, layers = rows.length, before = this.metric;
    const choose = (l, h) => {
      this.l = Math.max(0, Math.min(layers - 1, l));
      this.h = Math.max(0, Math.min(heads - 1, h));
      this.draw();
    };
    const of = (label) => ({
      layers, heads, choose, label,
      about: 'train-heads-read',
      move: (dl, dh) => choose(this.l + dl, this.h + dh),
      tell: (l, h) => this.tell(l, h),
      left: () => this.tell(this.l, this.h),
    });
    this.l = Math.min(this.l, layers - 1);
    this.h = Math.min(this.h, heads - 1);
    options(this.choice, metrics.map((m) => [m.key, this.nameOf(m.key)]));
    this.choice.value = before || 'entropy';
    if (!this.metric) this.choice.selectedIndex = 0;
    const host = el('div'), grid = el('figure', {}, el('figcaption', {'data-text': 'train_grid'}), host);
    this.grid = headsPicture(host, of(() => `${this.nameOf(this.metric)}. ${this.read.textContent}`));
    this.ramp = legend(grid);
    this.table = twin(null, () => headsTable(
        layers, heads, (l, h) => this.values[l][h] ?? NaN, tr('train_layer'),
        (l, h) => pictureWords.labelOf(this.frame.labels[l][h])));
    grid.append(this.read, this.table.box);
    this.body.append(grid);
    if (side) this.makeMaps(of, side);
    say(this.body);
    if (this.frame) this.draw();
  }

  makeMaps(of, side) {
    const host = el('div'), square = el('div', {className: 'square'});
    this.all = allPicture(host, of(() => `${tr('train_all')}. ${this.read.textContent}`));
    this.caption = el('figcaption');
    this.cell = [side - 1, 0];
    const at = (q, k) => {
      this.cell = [q, k].map((x) => Math.max(0, Math.min(side - 1, x)));
      this.drawMap();
    };
    this.one = heat(square, {
      label: () => `${this.caption.textContent}. ${this.mapRead.textContent}`,
      about: 'train-map-read',
      move: (dx, dy) => at(this.cell[0] + dy, this.cell[1] + dx),
      at: (x, y) => at(Math.floor(y * side), Math.floor(x * side)),
    });
    for (const [name, text] of [['axis-x', 'train_keys'], ['axis-y', 'train_queries']])
      square.append(el('span', {className: name, 'aria-hidden': 'true', 'data-text': text}));
    this.mapRead = el('p', {className: 'read', id: 'train-map-read'});
    this.mapTable = twin(
        () => [tr('train_row'), tr('train_strongest')],
        () => Array.from({length: side}, (_, q) => [this.token(q), this.strongest(q)]));
    this.body.append(
        el('figure', {}, el('figcaption', {'data-text': 'train_all'}), host),
        el('figure', {className: 'train-map'}, this.caption, square, this.mapRead, this.mapTable.box));
  }

  nameOf(key) { return key === 'sink' ? tr('train_h_first') : pictureWords.nameOf({key}); }
  rowName(l) {
    const {layer, cross} = this.begin.rows[l];
    return cross ? `${layer} ${tr('train_cross')}` : String(layer);
  }
  token(i) { return `${i} “${shown(this.begin.text.tokens[i] ?? '')}”`; }
  pixel(q, k) {
    const {heads, side} = this.begin;
    return this.pixels[((this.l * heads + this.h) * side + q) * side + k];
  }
  strongest(q) {
    return Array.from({length: this.begin.side}, (_, k) => [this.pixel(q, k), k])
        .filter(([p]) => p >= kSeen)
        .sort((a, b) => b[0] - a[0])
        .slice(0, 3)
        .map(([p, k]) => `${this.token(k)} ${number(p / 255)}`)
        .join(', ');
  }

  tell(l, h) {
    const x = this.values[l][h];
    this.read.textContent = tr('train_head_read', {
      l: this.rowName(l),
      h: String(h),
      name: this.nameOf(this.metric),
      x: number(x ?? NaN),
      label: withLabel(pictureWords.labelOf(this.frame.labels[l][h]))
    });
  }

  draw() {
    const {frame} = this;
    if (!frame || !this.grid) return;
    const {rows, heads, side, metrics} = this.begin;
    this.when.textContent = tr('train_step', {n: frame.step});
    this.slider.setAttribute('aria-valuetext', this.when.textContent);
    const flat = (f) => f.values[this.metric].flatMap(
        (line) => Array.from({length: heads}, (_, h) => line[h] ?? NaN));
    // One scale for all looks: colours can be compared along the slider.
    const {share} = metrics.find((m) => m.key === this.metric), rgb = painter.table();
    const scale = scaleOf(this.frames.flatMap(flat), share);
    this.grid.draw(flat(frame), share, rgb, scale);
    this.ramp(rgb, scale.low, scale.middle, scale.high);
    this.grid.choose(this.l, this.h);
    this.tell(this.l, this.h);
    this.grid.name();
    this.table.fill();
    if (!this.all) return;
    if (this.drawn !== frame) {
      this.drawn = frame;
      this.pixels = Uint8Array.from(atob(frame.maps), (c) => c.charCodeAt(0));
      const map = (i) => this.pixels.subarray(i * side * side, (i + 1) * side * side);
      this.all.show(Array.from({length: rows.length * heads}, (_, i) => ({rows: side, keys: side,
                                                                           pixels: map(i)})));
    }
    this.all.draw(true, rgb);
    this.all.choose(this.l, this.h);
    this.all.name();
    this.drawMap();
  }
  drawMap() {
    const {side} = this.begin, index = mapIndex(true), [q, k] = this.cell;
    this.caption.textContent = tr('train_one', {l: this.rowName(this.l), h: String(this.h)});
    const at = (x, y) => x > y && !this.pixel(y, x) ? -1 : index[this.pixel(y, x)];
    paint(this.one.canvas, side, side, at, painter.table());
    this.one.mark(k / side, q / side, 1 / side, 1 / side);
    this.mapRead.textContent =
        tr('train_map_read', {q: this.token(q), k: this.token(k), x: number(this.pixel(q, k) / 255)});
    this.one.name();
    this.mapTable.fill();
  }
}
