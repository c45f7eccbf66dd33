// SPDX-License-Identifier: Apache-2.0
// What is chosen on the page, and who wants to know.
//   state.view           name of the view that is shown
//   state.lang, theme    'en' | 'zh', 'light' | 'dark'
//   state.models         of /v1/models, those that write; state.model: the chosen one's id; state.props: its
//   /props state.online         false while the server does not answer state.conversation   id of the
//   conversation that is open, or null state.writing        id of the message that is being written, or null
//   state.chosen         the token that all views follow, or null:
//     {model, conversation, message, index, token, ids, at, text}
//       index   place among the answer's tokens;  token = {text, id, logprob, top: [[text, logprob]]}
//       ids     of the prompt and the whole answer, as POST /v1/look takes them (null: the server gave none)
//       at      place of the token in ids
//   state.look           names that views want in `rapt.look` of every answer (["live"])
//   state.recipe         JSON text of the recipe that the training view is to begin with, or null
//   state.edits          edits of the model that every answer is written with (docs/edits.md)
//   state.compare        an answer that the view of this name shall begin with, until it has taken it:
//     {model, messages, seed, sampling, edits}
export const state = {
  view: '',
  lang: 'en',
  theme: 'light',
  models: [],
  model: '',
  props: null,
  online: true,
  conversation: null,
  writing: null,
  chosen: null,
  look: [],
  edits: [],
  recipe: null,
  compare: null,
};

const listeners = [];

// fn(state) runs when one of the keys (words with spaces between) changes, and once now unless later is set.
// What it returns ends it.
export function follow(keys, fn, later = false) {
  const one = {keys: keys.split(' '), fn};
  listeners.push(one);
  if (!later) fn(state);
  return () => {
    const at = listeners.indexOf(one);
    if (at >= 0) listeners.splice(at, 1);
  };
}

export function set(patch) {
  const changed = Object.keys(patch).filter((key) => state[key] !== patch[key]);
  Object.assign(state, patch);
  if (changed.length)
    for (const one of [...listeners])
      if (one.keys.some((key) => changed.includes(key))) one.fn(state);
}

// What the browser keeps between visits; where it may not keep anything, it holds until the page is left.
const unkept = new Map();
export const kept = {
  get(name, otherwise = null) {
    if (unkept.has(name)) return unkept.get(name);
    try {
      const text = localStorage.getItem(`rapt.${name}`);
      return text === null ? otherwise : JSON.parse(text);
    } catch { return otherwise; }
  },
  set(name, value) {
    try {
      localStorage.setItem(`rapt.${name}`, JSON.stringify(value));
      unkept.delete(name);
    } catch { unkept.set(name, value); }  // full or forbidden
  },
};
