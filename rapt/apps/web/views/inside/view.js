// SPDX-License-Identifier: Apache-2.0
// Inside: what the model does while it reads a text: the conversation's (the token chosen in the chat, in
// texts or in a comparison: state.chosen) or one that is typed here. What is chosen and known: seen.js; how
// it is asked for: reading.js; frames of an answer on its way: live.js.
import {el} from '/page/shared/dom.js';
import {follow, state} from '/page/state.js';
import {repaintTokens} from '/page/tokens.js';

import {allPart, headsPart} from './heads.js';
import {layersPart, massivePart, tokenPart} from './layers.js';
import {beginColourings, watch} from './live.js';
import {arcsPart, mapPart} from './map.js';
import {afterWriting, beginsWriting, keys, looking, showFrame, stop} from './play.js';
import {choose, open, read} from './reading.js';
import {saidPart} from './said.js';
import {changed, on, pick, seen} from './seen.js';
import {barPart, sourcePart, statusPart} from './source.js';
import {textPart} from './text.js';

let own = null;  // looks at the text that is typed

// The token that was chosen elsewhere.
function followChosen() {
  const c = state.chosen;
  if (!c || !c.ids) return;
  const same = seen.subject && seen.subject.from && seen.subject.from.message === c.message &&
      seen.subject.ids && seen.subject.ids.length === c.ids.length &&
      seen.subject.ids.every((id, i) => id === c.ids[i]) && seen.subject.model === c.model;
  if (same && seen.all) choose({t: c.at});
  else
    open({
      model: c.model,
      ids: c.ids,
      token: c.at,
      from: {message: c.message, conversation: c.conversation, begin: c.at - c.index}
    });
}

export function mount(panel) {
  const room = el('div', {className: 'inside'});
  const source = sourcePart(statusPart(panel));
  const said = saidPart(), text = textPart();
  room.append(
      source.element, said, barPart(), text,
      el('div', {className: 'trio'}, headsPart(), mapPart(), arcsPart()), allPart(), tokenPart(),
      layersPart(), massivePart());
  panel.append(room);
  own = source.own;
  on('tokens', () => {
    // Whoever comes from a token looks for it; whoever opens a text, for what is found in it.
    const before = seen.subject.from ? text : source.element;
    if (before.nextElementSibling !== said) before.after(said);
    for (const name of ['heads', 'map', 'arcs', 'all'])
      document.getElementById(`inside-${name}`).hidden = !seen.all.shape.heads;
  });
  panel.tabIndex = -1;
  panel.addEventListener('keydown', keys);
  beginColourings(pick, () => ['entropy', 'distance', 'max_logit'].includes(pick.metric) ? 6 : 1);
  watch(showFrame);
  looking();
  follow('chosen', followChosen, true);
  follow('writing', afterWriting, true);
  follow('edits', () => {
    if (!seen.subject) return;
    changed('l', 'extra');
    if (seen.visible) read();
    else seen.stale = true;
  }, true);
  follow('lang', () => {
    changed('lang');
    changed('status');
    repaintTokens();
  }, true);
  follow('theme', () => changed('theme'), true);
  follow('model', () => {
    if (!state.model || (seen.subject && seen.subject.model === state.model)) return;
    if (seen.subject && !seen.subject.from) open({model: state.model, text: seen.subject.text, from: null});
    else own();
  }, true);
  beginsWriting(state.writing);
  if (state.chosen && state.chosen.ids) followChosen();
  else if (state.model) own();
  changed('lang');
}
export function show() {
  seen.visible = true;
  if (!seen.subject && state.model) own();
  else if (seen.stale && seen.subject) read();
  changed('live');
}
export function hide() {
  seen.visible = false;
  stop();
}
