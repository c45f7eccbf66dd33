// SPDX-License-Identifier: Apache-2.0
// Two answers from one prompt and one seed, what each side says of the other's text, and what the heads of
// both do with it. All that is known is plain data (`data`), which can be kept, exported and shown again:
//   {setup, chat, sides: [side, side], scores: [score, score], heads: [[H, H], [H, H]], error}
//   side    {model, root, edits, sampling, text, tokens, promptIds, hash, finish, detail, stopped, error,
//            stream, events, over}; tokens as run.js has them
//   score   of side i's text by the other one, token by token: {logprob: [], top: [[[text, logprob] …]]};
//           'other' where the two models cut texts differently, null while it is not known
//   heads   [i][k]: of side i's text, read by side k: {layers, heads, metrics, values, labels, sampled}
import {askJson} from '../../api.js';
import {Answer, Run, samplingFields, tokenFields} from '../../run.js';

export const kPresets = {
  model: {},
  precise: {temperature: 0},
  balanced: {temperature: 0.7, top_p: 0.95},
  lively: {temperature: 1, min_p: 0.05},
};
const kMostHeads = 2048;  // tokens of a text whose heads are looked at

// What `rapt.edits` takes, of the form's choice.
export function editsOf(edit) {
  const {kind, layer = 0, head = 0, channel = 0, text = ''} = edit || {};
  switch (kind) {
    case 'head':
      return [`z.${layer}@h${head}:zero`];
    case 'attention':
      return [`attn_out.${layer}:zero`];
    case 'ffn':
      return [`mlp_out.${layer}:zero`];
    case 'channel':
      return [`resid_post.${layer}@c${channel}:zero`];
    case 'own':
      return text.split('\n')
          .map((line) => line.trim())
          .filter(Boolean)
          .map((line) => line.startsWith('{') ? JSON.parse(line) : line);
    default:
      return [];
  }
}
export const samplingOf = (s) =>
    s.preset === 'own' ? {temperature: s.temperature ?? 1, top_p: s.top_p ?? 1} : kPresets[s.preset] || {};

// Where two answers part: `same` tokens are common; at: [i, k] the first that differ (null: none do, or one
// side goes on where the other one ends). Models with different vocabularies are compared by letters.
export function parting(sides, oneVocabulary) {
  const [a, b] = sides.map((s) => s.tokens);
  if (!oneVocabulary) {
    const [x, y] = [a, b].map((list) => list.map((t) => t.text).join(''));
    let n = 0;
    while (n < x.length && n < y.length && x[n] === y[n]) ++n;
    const placeOf = (list) => {
      let i = 0;
      for (let at = 0; i < list.length && at + list[i].text.length <= n; ++i) at += list[i].text.length;
      return i;
    };
    const at = [placeOf(a), placeOf(b)];
    return {same: at, at: n < x.length && n < y.length ? at : null};
  }
  let n = 0;
  while (n < a.length && n < b.length && a[n].id === b[n].id && a[n].text === b[n].text) ++n;
  return {same: [n, n], at: n < a.length && n < b.length ? [n, n] : null};
}

// The largest difference of the log-probabilities of tokens that both have; {at, by}.
export function furthest(sides, count) {
  let at = -1, by = 0;
  for (let i = 0; i < count; ++i) {
    const d = Math.abs(sides[0].tokens[i].logprob - sides[1].tokens[i].logprob);
    if (d > by) [at, by] = [i, d];
  }
  return {at, by};
}

export class Comparison {
  // changed(): something is new;  keep(): something that is worth keeping is
  constructor(data, {changed, keep}) {
    Object.assign(this, {data, changed, keep, runs: [null, null], control: new AbortController()});
    this.writing = this.looking = false;
  }
  get busy() { return this.writing || this.looking; }

  body(side) {
    const {setup, chat} = this.data;
    const more = {
      model: side.model,
      seed: setup.seed,
      ...samplingFields({...side.sampling, max_tokens: setup.length}),
      ...tokenFields(chat),
      rapt: side.edits.length ? {edits: side.edits} : {},
    };
    if (!chat) return {prompt: setup.prompt, ...more};
    const before = setup.before || [], system = setup.system ? [{role: 'system', content: setup.system}] : [];
    return {messages: [...system, ...before, {role: 'user', content: setup.prompt}], ...more};
  }

  // Writes both, or goes on with what was being written before a reload; then reads both texts once more.
  async start() {
    this.writing = true;
    this.changed();
    await Promise.all(this.data.sides.map((side, i) => side.over ? null : this.write(side, i)));
    this.writing = false;
    this.keep();
    if (this.data.sides.every((s) => s.tokens.length && !s.error)) await this.look();
    this.changed();
  }
  stop() {
    for (const run of this.runs)
      if (run) run.stop();
    this.control.abort();
  }

  async write(side, i) {
    const going = Boolean(side.stream);
    const answer = going ?
        new Answer(structuredClone(
            {text: side.text, tokens: side.tokens, promptIds: side.promptIds, events: side.events})) :
        new Answer();
    const absorb = () => {
      const {text, tokens, promptIds, events, hash, finish, detail} = answer;
      Object.assign(side, {text, tokens, promptIds, events, hash, finish, detail});
    };
    const run = this.runs[i] = new Run({
      answer,
      name: (id) => {
        side.stream = id;
        this.keep();
      },
      change: () => {
        absorb();
        this.changed();
      },
    });
    try {
      if (going)
        await run.resume(side.stream);
      else
        await run.start(this.data.chat ? '/v1/chat/completions' : '/v1/completions', this.body(side));
    } catch (error) {
      if (run.stopped)
        side.stopped = true;
      else if (!leaving)
        side.error = plainError(error);
    }
    if (leaving) return;
    absorb();
    side.over = true;
    this.changed();
  }

  // Each text by both sides, one reading after the other.
  async look() {
    const {sides} = this.data;
    this.looking = true;
    this.data.error = null;
    const alike = sides[0].tokens.length === sides[1].tokens.length &&
        sides[0].tokens.every((t, k) => t.id === sides[1].tokens[k].id) &&
        String(sides[0].promptIds) === String(sides[1].promptIds);
    try {
      for (const i of alike ? [0] : [0, 1])
        for (const k of [1 - i, i]) {
          this.changed();
          await this.lookAt(i, k);
          this.keep();
        }
      if (alike) {
        this.data.heads[1] = this.data.heads[0];
        this.data.scores[1] = this.data.scores[0] === 'other' ? 'other' : scoreOf(sides[0].tokens);
      }
    } catch (error) {
      if (error.name !== 'AbortError' && !leaving) this.data.error = plainError(error);
    }
    this.looking = false;
    this.keep();
  }

  // Side k reads side i's text, behind its own prompt.
  async lookAt(i, k) {
    const {sides, scores, heads} = this.data, text = sides[i], reader = sides[k];
    const own = text.tokens.map((t) => t.id);
    if (!reader.promptIds || own.some((id) => id === null)) return;
    if (i !== k && !this.data.oneVocabulary) {
      scores[i] = 'other';
      return;
    }
    const ids = [...reader.promptIds, ...own], from = reader.promptIds.length;
    const want = [...i === k ? [] : ['tokens'], ...ids.length <= kMostHeads ? ['heads'] : []];
    if (!want.length) return;
    const body = {model: reader.model, ids, want, edits: reader.edits, top: tokenFields(false).logprobs};
    const seen = await this.patiently(() => askJson('/v1/look', {body, signal: this.control.signal}));
    if (seen.tokens) {
      const t = seen.tokens, whole = (n) => t.bytes[from + n] === null;
      if (text.tokens.some(
              (one, n) => whole(n) && !/^<[0-9a-f]{2}>/.test(one.text) && t.text[from + n] !== one.text)) {
        this.data.oneVocabulary = false;
        scores[i] = 'other';
        return;
      }
      scores[i] = {
        logprob: t.logprob.slice(from),
        top: t.top.slice(from).map((list) => list.map((one) => [one.text, one.logprob]))
      };
    }
    if (seen.heads) {
      const {layers, heads: count} = seen.shape, {metrics, values, labels, sampled} = seen.heads;
      heads[i][k] = {layers, heads: count, metrics, values, labels, sampled};
    }
  }

  // A server with many looks under way is asked again a few times.
  async patiently(ask) {
    for (let tries = 0;; ++tries) try {
        return await ask();
      } catch (error) {
        if (error.kind !== 'busy' || tries === 5) throw error;
        await new Promise((done) => setTimeout(done, 1000 * Math.max(1, error.seconds || 1)));
        if (this.control.signal.aborted) throw error;
      }
  }
}

// What a text's own tokens say, in the form of another side's score.
const scoreOf = (tokens) => ({logprob: tokens.map((t) => t.logprob), top: tokens.map((t) => t.top)});

export function newData(setup, {chat, oneVocabulary, roots}) {
  return {
    setup,
    chat,
    oneVocabulary,
    sides: setup.sides.map((s, i) => ({
                             model: s.model,
                             root: roots[i].root,
                             cache: roots[i].cache,
                             edits: editsOf(s.edit),
                             sampling: samplingOf(s.sampling),
                             text: '',
                             tokens: [],
                             promptIds: null,
                             hash: '',
                             over: false
                           })),
    scores: [null, null],
    heads: [[null, null], [null, null]],
    error: null
  };
}

const plainError = ({kind = 'cut', status, code, message, numbers, seconds}) =>
    ({kind, status, code, message, numbers, seconds});

let leaving = false;
window.addEventListener('pagehide', () => {
  leaving = true;
});
window.addEventListener('pageshow', () => {
  leaving = false;
});
