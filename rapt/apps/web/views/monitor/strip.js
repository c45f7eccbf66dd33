// SPDX-License-Identifier: Apache-2.0
// A strip chart on a canvas: curves over the last minutes, drawn anew twice a second. Colours are those of
// elements that the style sheet colours, so both themes fit; a curve's dashes tell it apart, too.
import {el} from '/page/shared/dom.js';
import {number} from '/page/shared/numbers.js';

const kDashes = [[], [6, 3], [2, 2]];
const kHeight = 98, kLeft = 4, kRight = 52, kTop = 14, kBottom = 4;

// The whole width is the time since the first value, between half a minute and `seconds`. `least`: what the
// height is at least.
const kLeastSeconds = 30;
export class Strip {
  constructor(seconds, least) {
    Object.assign(this, {seconds, least});
    this.canvas = el('canvas', {role: 'img'});
    this.keys = el('p', {className: 'monitor-keys'});
    this.box = el('figure', {className: 'monitor-strip'}, el('figcaption'), this.canvas, this.keys);
  }
  // title: a text; curves: [{name, value: what it is now, as a text}]
  words(title, curves) {
    this.box.firstElementChild.textContent = title;
    this.keys.replaceChildren(...curves.map(
        (c, i) =>
            el('span', {className: `curve-key k${i}`}, el('i', {'aria-hidden': 'true'}), c.name, ' ',
               el('b', {textContent: c.value}))));
    this.canvas.setAttribute(
        'aria-label', `${title}: ${curves.map((c) => `${c.name} ${c.value}`).join(', ')}`);
  }
  // times: seconds, rising; lists: of each curve its values, null: not known
  draw(times, lists) {
    const width = this.canvas.clientWidth || 320, scale = window.devicePixelRatio || 1;
    this.canvas.width = Math.round(width * scale);
    this.canvas.height = Math.round(kHeight * scale);
    const g = this.canvas.getContext('2d');
    g.scale(scale, scale);
    const now = times.length ? times[times.length - 1] : 0;
    const all = Math.min(this.seconds, Math.max(kLeastSeconds, now - times[0] || 0));
    const most = Math.max(this.least, ...lists.map((list) => list.reduce((m, y) => Math.max(m, y ?? 0), 0)));
    const x = (t) => kLeft + (width - kLeft - kRight) * (1 - (now - t) / all);
    const y = (v) => kHeight - kBottom - (kHeight - kTop - kBottom) * v / most;
    const inks = [...this.keys.children].map((key) => getComputedStyle(key.firstElementChild).color);
    g.strokeStyle = g.fillStyle = getComputedStyle(this.keys).color;
    g.globalAlpha = 0.35;
    g.beginPath();
    for (const v of [0, most / 2, most]) {
      g.moveTo(kLeft, Math.round(y(v)) + 0.5);
      g.lineTo(width - kRight, Math.round(y(v)) + 0.5);
    }
    g.stroke();
    g.globalAlpha = 1;
    g.font = '11px system-ui, sans-serif';
    g.textBaseline = 'middle';
    g.fillText(number(most), width - kRight + 5, y(most) + 1);
    g.fillText('0', width - kRight + 5, y(0) - 4);
    g.fillText(`−${Math.round(all)} s`, kLeft, kTop - 1);
    lists.forEach((list, n) => {
      g.strokeStyle = inks[n] || g.fillStyle;
      g.lineWidth = 1.6;
      g.setLineDash(kDashes[n % kDashes.length]);
      g.beginPath();
      let pen = false;
      list.forEach((v, i) => {
        if (v === null || v === undefined || times[i] < now - all) {
          pen = false;
          return;
        }
        if (pen)
          g.lineTo(x(times[i]), y(v));
        else
          g.moveTo(x(times[i]), y(v));
        pen = true;
      });
      g.stroke();
    });
    g.setLineDash([]);
  }
}
