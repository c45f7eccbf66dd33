// SPDX-License-Identifier: Apache-2.0
// A conversation as a tree of messages: editing and regenerating add a branch, nothing is lost. Pure: no
// page, no storage.
//   conversation = {id, kind: 'chat', title, named, created, updated, model, system, nodes: Map, roots,
//   chosen} node         = {id, parent, role, text, children: [id], chosen: id of the child last shown, …}
// `roots` and `chosen` of the conversation are what `children` and `chosen` are of a node.

export function newId() {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return Array.from(bytes, (b) => b.toString(16).padStart(2, '0')).join('');
}

export function newConversation(kind, more = {}) {
  const now = Date.now();
  return {
    id: newId(),
    kind,
    title: '',
    named: false,
    created: now,
    updated: now,
    model: '',
    system: '',
    nodes: new Map(),
    roots: [],
    chosen: null,
    ...more
  };
}

const childrenOf = (c, parent) => parent ? c.nodes.get(parent).children : c.roots;
const chosenOf = (c, parent) => parent ? c.nodes.get(parent).chosen : c.chosen;
function choose(c, parent, id) {
  if (parent) c.nodes.get(parent).chosen = id;
  else c.chosen = id;
}

// A new message under parent (null: at the root); it is the branch that is shown.
export function add(c, parent, role, text, more = {}) {
  const node = {
    id: newId(),
    parent: parent || null,
    role,
    text,
    children: [],
    chosen: null,
    created: Date.now(),
    ...more
  };
  c.nodes.set(node.id, node);
  childrenOf(c, node.parent).push(node.id);
  choose(c, node.parent, node.id);
  return node;
}

// The messages that are shown, from the first to the last.
export function path(c) {
  const list = [];
  for (let id = c.chosen; id;) {
    const node = c.nodes.get(id);
    if (!node) break;
    list.push(node);
    id = node.chosen;
  }
  return list;
}

// The messages from the root to this one.
export function lineage(c, id) {
  const list = [];
  for (let node = c.nodes.get(id); node; node = c.nodes.get(node.parent)) list.unshift(node);
  return list;
}

// Where a message stands among its branches: [its place, how many there are].
export function place(c, id) {
  const all = childrenOf(c, c.nodes.get(id).parent);
  return [all.indexOf(id), all.length];
}

// The branch beside this one is shown; its own branches as they were left. The id that is shown now.
export function turn(c, id, step) {
  const node = c.nodes.get(id), all = childrenOf(c, node.parent);
  const other = all[Math.max(0, Math.min(all.length - 1, all.indexOf(id) + step))];
  choose(c, node.parent, other);
  return other;
}

// A message and all below it are taken out. The ids that went.
export function cut(c, id) {
  const node = c.nodes.get(id), all = childrenOf(c, node.parent), at = all.indexOf(id), gone = [];
  all.splice(at, 1);
  if (chosenOf(c, node.parent) === id) choose(c, node.parent, all[Math.min(at, all.length - 1)] || null);
  const take = (one) => {
    gone.push(one);
    for (const child of c.nodes.get(one).children) take(child);
    c.nodes.delete(one);
  };
  take(id);
  return gone;
}

// What a conversation is called before anyone gave it a name: the beginning of what was asked first.
export function titleOf(text) {
  const line = text.trim().split('\n')[0].replace(/\s+/g, ' ');
  return [...line].length > 48 ? [...line].slice(0, 47).join('') + '…' : line;
}

// From storage or a file, as a tree that holds together: what does not fit is left out.
export function repaired(c, list) {
  const nodes = new Map(list.map((n) => [n.id, n]));
  const reached = new Map();
  // What another tab wrote meanwhile: this one's lists of children do not know it, but it knows its parent.
  const listed = new Set([...(c.roots || []), ...list.flatMap((n) => n.children || [])]);
  for (const n of [...list].sort((a, b) => (a.created || 0) - (b.created || 0))) {
    if (listed.has(n.id) || (n.parent && !nodes.has(n.parent))) continue;
    if (n.parent) nodes.get(n.parent).children = [...(nodes.get(n.parent).children || []), n.id];
    else c.roots = [...(c.roots || []), n.id];
  }
  const visit = (ids, parent) => (ids || []).filter((id) => {
    const node = nodes.get(id);
    if (!node || reached.has(id)) return false;
    reached.set(id, node);
    node.parent = parent;
    return true;
  });
  const pick = (chosen, ids) => ids.includes(chosen) ? chosen : ids.length ? ids[ids.length - 1] : null;
  c.roots = visit(c.roots, null);
  c.chosen = pick(c.chosen, c.roots);
  for (const [id, node] of reached) {  // grows while it is walked: every child is visited once
    node.children = visit(node.children, id);
    node.chosen = pick(node.chosen, node.children);
  }
  c.nodes = reached;
  return c;
}
