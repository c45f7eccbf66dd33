// SPDX-License-Identifier: Apache-2.0
// Conversations in this browser (IndexedDB): one record for each conversation without its messages, one for
// each message, so that a long answer that grows rewrites itself alone. Where the browser keeps nothing, the
// page works from memory and says so. Files: {"rapt": "history", "version": 1, "conversations": [...]}.
import {newId, repaired} from './tree.js';

const kMostText = 4 << 20;  // characters of one message in a file
const kMostNodes = 100000;

let database = null;
const memory = {
  conversations: new Map(),
  messages: new Map()
};
export let persistent = true;
let tellLoss = () => {};
export function onLoss(fn) { tellLoss = fn; }  // once, when the browser keeps no more

export async function openHistory() {
  try {
    database = await new Promise((done, fail) => {
      const request = indexedDB.open('rapt', 1);
      request.onupgradeneeded = () => {
        request.result.createObjectStore('conversations', {keyPath: 'id'});
        request.result.createObjectStore('messages', {keyPath: 'id'})
            .createIndex('conversation', 'conversation');
      };
      request.onsuccess = () => done(request.result);
      request.onerror = () => fail(request.error);
      request.onblocked = () => fail(new Error('blocked'));
    });
    database.onversionchange = () => database.close();
  } catch { persistent = false; }
}

const settle = (request) => new Promise((done, fail) => {
  request.onsuccess = () => done(request.result);
  request.onerror = () => fail(request.error);
});
// work(store…) returns requests to wait for, or nothing; true when it is kept.
async function change(work) {
  if (!database) return false;
  const t = database.transaction(['conversations', 'messages'], 'readwrite');
  work(t.objectStore('conversations'), t.objectStore('messages'));
  await new Promise((done, fail) => {
    t.oncomplete = done;
    t.onerror = t.onabort = () => fail(t.error);
  });
  return true;
}

const headOf = ({nodes, ...rest}) => ({...rest});
const recordOf = (c, node) => ({...node, conversation: c.id});

// The conversation, and those of its messages that changed.
export async function save(c, nodes = []) {
  memory.conversations.set(c.id, headOf(c));
  const records = nodes.filter(Boolean).map((n) => recordOf(c, n));
  if (!database) {
    for (const r of records) memory.messages.set(r.id, r);
    return;
  }
  try {
    await change((conversations, messages) => {
      conversations.put(headOf(c));
      for (const r of records) messages.put(r);
    });
  } catch {
    if (persistent) tellLoss();
    persistent = false;  // the disk is full, most likely; the next one tries again
    return;
  }
  persistent = true;
}

export async function list() {
  const all = database ?
      await settle(database.transaction('conversations').objectStore('conversations').getAll()) :
      [...memory.conversations.values()];
  return all.sort((a, b) => b.updated - a.updated);
}

async function messagesOf(id) {
  if (!database) return [...memory.messages.values()].filter((m) => m.conversation === id);
  return settle(database.transaction('messages').objectStore('messages').index('conversation').getAll(id));
}

export async function load(id) {
  const head = database ?
      await settle(database.transaction('conversations').objectStore('conversations').get(id)) :
      memory.conversations.get(id);
  return head ? repaired({...head}, await messagesOf(id)) : null;
}

export async function removeNodes(c, ids) {
  for (const id of ids) memory.messages.delete(id);
  await change((conversations, messages) => {
    conversations.put(headOf(c));
    for (const id of ids) messages.delete(id);
  });
}

// What brings it back: the whole conversation.
export async function remove(id) {
  const c = await load(id);
  memory.conversations.delete(id);
  for (const n of c ? c.nodes.keys() : []) memory.messages.delete(n);
  await change((conversations, messages) => {
    conversations.delete(id);
    for (const n of c ? c.nodes.keys() : []) messages.delete(n);
  });
  return c;
}
export const restore = (c) => save(c, [...c.nodes.values()]);

// Ids of the conversations whose title or messages hold every word.
export async function search(text) {
  const words = text.toLocaleLowerCase().split(/\s+/).filter(Boolean), found = new Map();
  const holds = (id, said) => {
    const low = said.toLocaleLowerCase(), rest = found.get(id) || new Set(words);
    for (const w of [...rest])
      if (low.includes(w)) rest.delete(w);
    found.set(id, rest);
  };
  for (const c of await list()) holds(c.id, `${c.title}\n${c.text || ''}`);
  if (!database)
    for (const m of memory.messages.values()) holds(m.conversation, m.text);
  else
    await new Promise((done, fail) => {
      const request = database.transaction('messages').objectStore('messages').openCursor();
      request.onerror = () => fail(request.error);
      request.onsuccess = () => {
        const at = request.result;
        if (!at) return done();
        holds(at.value.conversation, at.value.text);
        at.continue();
      };
    });
  return new Set([...found].filter(([, rest]) => rest.size === 0).map(([id]) => id));
}

// --------------------------------------------------------------------------------------------------- files
export async function exported(ids) {
  const conversations = [];
  for (const id of ids) {
    const c = await load(id);
    if (c)
      conversations.push(
          {...headOf(c), nodes: [...c.nodes.values()].map(({stream, conversation, ...n}) => n)});
  }
  return JSON.stringify({rapt: 'history', version: 1, conversations}, null, 1);
}

const text = (x, most = kMostText) => typeof x === 'string' ? x.slice(0, most) : '';
const number = (x, otherwise) => Number.isFinite(x) ? x : otherwise;
const ids = (x) => Array.isArray(x) ? x.filter((i) => typeof i === 'string').slice(0, kMostNodes) : [];
const tokens = (x) => Array.isArray(x) ?
    x.slice(0, 200000)
        .filter((t) => t && typeof t.text === 'string')
        .map((t) => ({
               text: t.text,
               id: Number.isInteger(t.id) ? t.id : null,
               logprob: Number.isFinite(t.logprob) ? t.logprob : null,
               top: Array.isArray(t.top) ?
                   t.top.slice(0, 20).filter(
                       (o) => Array.isArray(o) && typeof o[0] === 'string' && Number.isFinite(o[1])) :
                   [],
             })) :
    [];
const parts = (x) => Array.isArray(x) ? x.slice(0, 1000).filter(Boolean).map((p) => ({
                                                                               from: number(p.from, 0),
                                                                               at: number(p.at, 0),
                                                                               thought: number(p.thought, 0),
                                                                               count: number(p.count, 0),
                                                                               events: 0,
                                                                               promptIds: numbers(p.promptIds)
                                                                             })) :
                                        [];
const numbers = (x) => Array.isArray(x) && x.every(Number.isInteger) ? x.slice(0, 1 << 20) : null;

// A file's conversations, every value of the kind it must have; throws where it is no such file. Those that
// are here already come as copies.
export async function imported(source) {
  const file = JSON.parse(source);
  if (!file || file.rapt !== 'history' || !Array.isArray(file.conversations)) throw new Error('no history');
  const known = new Set((await list()).map((c) => c.id));
  let count = 0;
  for (const c of file.conversations.slice(0, 10000)) {
    if (!c || typeof c !== 'object' || !['chat', 'text'].includes(c.kind)) continue;
    const copy = typeof c.id !== 'string' || known.has(c.id), fresh = new Map();
    const own = (id) => {  // ids of their own: a file overwrites no message that is here
      if (typeof id !== 'string') return null;
      if (!fresh.has(id)) fresh.set(id, newId());
      return fresh.get(id);
    };
    const nodes = (Array.isArray(c.nodes) ? c.nodes.slice(0, kMostNodes) : [])
                      .filter((n) => n && typeof n.id === 'string')
                      .map((n) => ({
                             id: own(n.id),
                             role: n.role === 'assistant' ? 'assistant' : 'user',
                             text: text(n.text),
                             reasoning: text(n.reasoning),
                             children: ids(n.children).map(own),
                             chosen: own(n.chosen),
                             created: number(n.created, Date.now()),
                             model: text(n.model, 300),
                             tokens: tokens(n.tokens),
                             parts: parts(n.parts),
                             finish: text(n.finish, 40),
                             detail: text(n.detail, 40),
                             seed: number(n.seed, null),
                             hash: text(n.hash, 40),
                             used: number(n.used, 0),
                             speed: number(n.speed, 0),
                           }));
    const clean = {
      id: copy ? newId() : c.id,
      kind: c.kind,
      title: text(c.title, 300),
      named: c.named === true,
      created: number(c.created, Date.now()),
      updated: number(c.updated, Date.now()),
      model: text(c.model, 300),
      system: text(c.system),
      text: text(c.text),
      roots: ids(c.roots).map(own),
      chosen: own(c.chosen)
    };
    await restore(repaired(clean, nodes));
    known.add(clean.id);
    ++count;
  }
  return count;
}
