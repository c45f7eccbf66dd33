// SPDX-License-Identifier: Apache-2.0
// What moves by itself: frames of an answer while it is written (live.js), playing through a text, and the
// keys of the view.
import {say} from '/page/i18n.js';
import {chosenToken} from '/page/message.js';
import {shown} from '/page/shared/signs.js';
import {kept, set, state} from '/page/state.js';

import {framesOf, kColumns, statsAt} from './live.js';
import {button} from './parts.js';
import {choose, open, setOver, wantDetail} from './reading.js';
import {changed, on, pick, seen} from './seen.js';

// Whether frames are wanted while answers are written.
export function looking() {
  const wants = kept.get('inside.live', true);
  set({look: wants ? [...new Set([...state.look, 'live'])] : state.look.filter((x) => x !== 'live')});
}
export function showFrame(one) {
  if (!seen.visible || seen.playing || state.writing !== one.node.id) return;
  const tokens = one.node.tokens, text = tokens.slice(-12).map((t) => t.text).join('');
  seen.live =
      {shape: one.shape.slice(0, 2), stats: statsAt(one, one.last), row: one.last, text: `… ${shown(text)}`};
  if (!kColumns.includes(pick.metric)) pick.metric = 'first', changed('metric');
  changed('live');
}
// An answer that was watched is what is looked at as soon as it is there.
let written = null;
export const beginsWriting = (id) => {
  written = id;
};
export function afterWriting() {
  if (state.writing) {
    written = state.writing;
    return;
  }
  if (!written) return;
  const one = framesOf(written);
  written = null;
  seen.live = null;
  changed('live');
  if (!one || !one.node.tokens.length) return;
  if (seen.subject && !seen.visible && state.chosen) return;
  const c = chosenToken(one.conversation, one.node, one.node.tokens.length - 1);
  if (c.ids)
    open({
      model: c.model,
      ids: c.ids,
      token: c.at,
      from: {message: c.message, conversation: c.conversation, begin: c.at - c.index}
    });
}

// Goes through the text, or through the frames of an answer.
let control = null;
export function playButton() {
  control = button(
      'inside_play', () => (seen.playing ? stop() : play()),
      {className: 'small', 'data-hint': 'inside_play_hint'});
  return control;
}
function play() {
  if (!seen.all || seen.live) return;
  const frames = seen.subject.from ? framesOf(seen.subject.from.message) : null;
  const rows = frames ?
      [...frames.rows.keys()].filter((r) => r < seen.all.shape.tokens).sort((a, b) => a - b) :
      [...Array(seen.all.shape.tokens).keys()];
  if (!rows.length) return;
  if (pick.over !== 'token') setOver('token');
  let i = rows.findIndex((r) => r > pick.t);
  if (i < 0) i = 0;
  const mine = seen.playing = Date.now();
  control.dataset.text = 'inside_pause';
  say(control);
  const step = async () => {
    if (seen.playing !== mine) return;
    choose({t: rows[i]});
    if (++i >= rows.length) return stop();
    // With frames nothing is asked for; else each token waits for its reply.
    const until = performance.now() + 4000;
    while (!frames && seen.playing === mine && !(seen.detail && seen.detail.token) &&
           performance.now() < until)
      await new Promise((done) => setTimeout(done, 30));
    setTimeout(step, 160);
  };
  step();
}
export function stop() {
  if (!seen.playing) return;
  seen.playing = 0;
  control.dataset.text = 'inside_play';
  say(control);
  if (seen.all) wantDetail();
}

export function keys(event) {
  if (event.altKey || event.ctrlKey || event.metaKey || event.isComposing) return;
  if (event.target.closest('textarea, input, select')) return;
  const own = event.target.closest('canvas, [role=listbox]');
  const step = {'[': {h: pick.h - 1}, ']': {h: pick.h + 1}}[event.key] || (own ? null : {
                 ArrowLeft: {t: pick.t - 1},
                 ArrowRight: {t: pick.t + 1},
                 ArrowUp: {l: pick.l - 1},
                 ArrowDown: {l: pick.l + 1}
               }[event.key]);
  if (step) choose(step);
  else if (event.key === ' ' && !event.target.closest('button, summary, a')) (seen.playing ? stop() : play());
  else return;
  event.preventDefault();
}

on('read', stop);
