// SPDX-License-Identifier: Apache-2.0
// Answers that are being written, whatever is shown meanwhile: one for each conversation. Keeps what came
// once a second and at the end, remembers streams for a reload of this tab, and tells who watches.
import * as history from './history.js';
import {splitThought} from './message.js';
import {Answer, Run} from './run.js';
import {announce} from './shell.js';
import {set} from './state.js';
import {askKey} from './settings.js';

const kRemembered = 24 * 3600 * 1000;  // after which a stream that was left is not asked for
const kLeft = 55e3;  // the server keeps a stream without a reader for a minute
const runs = new Map();  // id of a conversation → {run, conversation, node}
const frames = new Set();

export const workOf = (conversation) => runs.get(conversation) || null;
// fn(frame, {node, conversation, answer}): what is seen inside while a token is written (see state.look).
export function onFrame(fn) {
  frames.add(fn);
  return () => frames.delete(fn);
}

// --- streams that this tab left when it was reloaded
function remembered() {
  try {
    return JSON.parse(sessionStorage.getItem('rapt.streams')) || {};
  } catch { return {}; }
}
function remember(id, value) {
  const all = remembered();
  if (value) all[id] = value;
  else delete all[id];
  try {
    sessionStorage.setItem('rapt.streams', JSON.stringify(all));
  } catch {
    // no storage: no going on after a reload
  }
}

// What of the answer is the node's: behind what it had before, where it was gone on with.
function absorb(node, answer) {
  const part = node.parts[node.parts.length - 1];
  part.promptIds = answer.promptIds;
  part.events = answer.events;
  node.text = node.text.slice(0, part.at) + answer.text;
  node.reasoning = (node.reasoning || '').slice(0, part.thought) + answer.reasoning;
  for (let i = node.tokens.length - part.from; i < answer.tokens.length; ++i)
    node.tokens.push(answer.tokens[i]);
  node.used = answer.used();
  node.speed = answer.speed();
  node.seed = answer.seed ?? node.seed ?? null;
  node.count = part.count + (answer.ids.length || answer.tokens.length);
  Object.assign(node, {hash: answer.hash, finish: answer.finish, detail: answer.detail});
}

// Sentences that ended are said to those who listen, not each token.
function speaker() {
  let said = 0;
  return (text, over) => {
    const rest = text.slice(said), ends = [...rest.matchAll(/[.!?…](?=\s)|[。！？]|\n+/g)],
          last = ends[ends.length - 1];
    const to = over ? rest.length : last ? last.index + last[0].length : 0;
    const sentence = rest.slice(0, to).replace(/```[^\n]*|[*_`#>|]/g, '').trim();
    said += to;
    if (sentence) announce(sentence.slice(-600));
  };
}

// A connection that breaks while the server goes on: the stream is read on from where it broke, for as long
// as the server keeps it.
async function lasting(run, begin) {
  let next = begin, since = performance.now(), wait = 250, events = 0, broke = null;
  for (;;) {
    try {
      return await next();
    } catch (error) {
      if (run.answer.events > events) since = performance.now(), wait = 250;
      events = run.answer.events;
      const gone = run.stopped || leaving || !run.stream || !['cut', 'offline'].includes(error.kind);
      if (gone || performance.now() - since > kLeft) throw broke || error;
      broke = error;
      await new Promise((done) => setTimeout(done, wait));
      if (run.stopped || leaving) throw broke;
      wait = Math.min(2 * wait, 8000);
      next = () => run.resume(run.stream);
    }
  }
}

// Writes into a node. request: {path, body}, or {stream: id} of one that goes on. Returns when it is over;
// errors stand in node.error. changed(): something is new.
export async function write(conversation, node, request, changed) {
  node.parts ||= [];
  node.tokens ||= [];
  const going = Boolean(request.stream);
  if (!going)
    node.parts.push({
      from: node.tokens.length,
      at: node.text.length,
      thought: (node.reasoning || '').length,
      count: node.count || 0,
      promptIds: null,
      events: 0
    });
  const part = node.parts[node.parts.length - 1];
  const answer = going ? new Answer({
    text: node.text.slice(part.at),
    reasoning: (node.reasoning || '').slice(part.thought),
    tokens: node.tokens.slice(part.from),
    promptIds: part.promptIds,
    events: part.events
  }) :
                         new Answer();
  Object.assign(node, {error: null, stopped: false, finish: '', detail: '', hash: ''});
  const say = speaker();
  let savedAt = performance.now();
  const run = new Run({
    answer,
    name: (id) => {
      remember(node.id, {stream: id, conversation: conversation.id, time: Date.now()});
      history.save(conversation, [node]);
    },
    live: (frame) => {
      for (const fn of frames) fn(frame, {node, conversation, answer});
    },
    change: () => {
      absorb(node, answer);
      say(splitThought(node.text).text, false);
      if (performance.now() - savedAt > 1000) {
        savedAt = performance.now();
        history.save(conversation, [node]);
      }
      changed();
    },
  });
  runs.set(conversation.id, {run, conversation, node});
  set({writing: node.id});
  changed();
  try {
    await lasting(run, () => going ? run.resume(request.stream) : run.start(request.path, request.body));
  } catch (error) {
    if (leaving) return '';
    if (run.stopped) node.stopped = true;
    else if (!going || error.status !== 404) {  // a stream that is gone: what came is kept as cut
      const {kind, status, code, message, numbers, seconds} = error;
      if (!kind) console.error(error);
      node.error = {
        kind: kind || 'cut',
        status,
        code,
        message,
        numbers,
        seconds,
        until: seconds ? Date.now() + 1000 * seconds : 0
      };
    }
  }
  absorb(node, answer);
  say(splitThought(node.text).text, true);
  if (runs.get(conversation.id)?.run === run) runs.delete(conversation.id);
  conversation.updated = Date.now();
  await history.save(conversation, [node]);
  remember(node.id, null);  // only now: a reload before it is kept asks for the end again
  set({writing: [...runs.values()].map((r) => r.node.id)[0] || null});
  changed();
  if (node.error && node.error.kind === 'key' && await askKey()) return 'again';
  return '';
}

export function stop(conversation) {
  const one = runs.get(conversation);
  if (one) one.run.stop();
}
// What breaks off because this page goes away is neither an error nor over.
let leaving = false;
window.addEventListener('pageshow', () => { leaving = false; });
window.addEventListener('pagehide', () => {
  leaving = true;
  for (const {conversation, node} of runs.values()) history.save(conversation, [node]);
});

// After a reload: what was being written goes on. find(id) → the conversation; changed(conversation, node).
export async function resumeAll(find, changed) {
  for (const [id, {stream, conversation, time}] of Object.entries(remembered())) {
    const c = Date.now() - time < kRemembered ? await find(conversation) : null,
          node = c && c.nodes.get(id);
    if (!node || !node.parts || !node.parts.length) {
      remember(id, null);
      continue;
    }
    write(c, node, {stream}, () => changed(c, node)).then(() => changed(c, node));
  }
}
