// SPDX-License-Identifier: Apache-2.0
// What the page shows (data), what is chosen (state), and who wants to know. The chosen things are the address's hash: a link is a view.
const data = JSON.parse(byId('data').textContent);
const tokens = data.tokens.length;

// The numbers: zlib, in base64; little-endian arrays one after the other, in the order told at the top of page.cc.
async function unpack() {
  const text = atob(byId('bytes').textContent), packed = new Uint8Array(text.length);
  for (let i = 0; i < text.length; ++i) packed[i] = text.charCodeAt(i);
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream('deflate'));
  const buffer = await new Response(stream).arrayBuffer();
  let at = 0;
  const take = (Type, count) => {
    const array = new Type(buffer, at, count);
    at += array.byteLength;
    return array;
  };
  for (const m of data.metrics) m.values = take(Float32Array, data.layers * data.heads);
  for (const g of data.grids) g.values = take(Float32Array, g.rows.length * tokens);
  for (const g of data.grids) g.said = g.texts.length ? take(Uint32Array, g.rows.length * tokens) : null;
  for (const s of data.strongest) s.keys = take(Uint16Array, tokens * s.count);        // [rank][token]; 65535: none
  for (const s of data.strongest) s.weights = take(Uint16Array, tokens * s.count);     // thousandths
  for (const m of data.maps) m.pixels = take(Uint8Array, m.rows * m.keys);
  const at_head = (list) => {
    const table = new Array(data.layers * data.heads).fill(null);
    for (const x of list) table[x.l * data.heads + x.h] = x;
    return table;
  };
  data.maps = at_head(data.maps);
  data.strongest = at_head(data.strongest);
}

// l, h: layer and head; t: token that looks; k: key under the crosshair, -1 none; m: metric; g: grid; c: what colours the text; s: scale.
const state = {l: 0, h: 0, t: 0, k: -1, m: '', g: '', c: 'attention', s: 'root', lang: '', theme: ''};
const kNumbers = {l: () => data.layers, h: () => data.heads, t: () => tokens, k: () => tokens};
const kChoices = {
  m: () => data.metrics.map((m) => m.key),
  g: () => data.grids.map((g) => g.key),
  c: () => ['attention', ...data.grids.map((g) => g.key), 'none'],
  s: () => ['root', 'linear'],
  lang: () => ['en', 'zh'],
  theme: () => ['light', 'dark'],
};
const listeners = [];

// fn runs when one of the keys (a word of letters and names) changes, and once at the start.
function follow(keys, fn) { listeners.push({keys: keys.split(' '), fn}); }

function set(patch) {
  const changed = [];
  for (const [key, wanted] of Object.entries(patch)) {
    let value = wanted;
    if (key in kNumbers) value = Math.max(key === 'k' ? -1 : 0, Math.min(kNumbers[key]() - 1, value));
    else if (!kChoices[key]().includes(value)) continue;
    if (state[key] !== value) {
      state[key] = value;
      changed.push(key);
    }
  }
  if (!changed.length) return;
  try {
    history.replaceState(null, '', '#' + hashOfState());
  } catch {  // a page in a frame of a notebook has no address of its own
  }
  for (const one of listeners) if (one.keys.some((key) => changed.includes(key))) one.fn();
}

function hashOfState() {
  const parts = [`l=${state.l}`, `h=${state.h}`, `t=${state.t}`];
  if (state.k >= 0) parts.push(`k=${state.k}`);
  for (const key of Object.keys(kChoices)) if (state[key] !== defaults[key]) parts.push(`${key}=${encodeURIComponent(state[key])}`);
  return parts.join('&');
}
function stateOfHash() {
  const patch = {};
  for (const [key, value] of new URLSearchParams(location.hash.slice(1))) {
    if (key in kNumbers && /^-?\d{1,9}$/.test(value)) patch[key] = Number(value);
    else if (key in kChoices) patch[key] = value;
  }
  return patch;
}

// What is shown where the address says nothing: the text's last token, and a head that shows something: of those with a name the clearest
// that is no sink and not uniform; else the one with the strongest weight outside the first token; else the first.
const defaults = {};
function begin() {
  const worth = data.labels.map((label) => /^(sink|uniform|$)/.test(label) ? -Infinity : Number(label.split(' ').pop()));
  const strongest = data.metrics.find((m) => m.key === 'strongest') || data.metrics[0];
  const values = worth.some((v) => v > 0) ? worth : strongest ? [...strongest.values] : [];
  let best = 0;
  for (let i = 0; i < values.length; ++i) if (values[i] > values[best] || Number.isNaN(values[best])) best = i;
  Object.assign(state, {
    l: Math.floor(best / data.heads), h: best % data.heads, t: tokens - 1,
    m: data.metrics.length ? data.metrics[0].key : '', g: data.grids.length ? data.grids[0].key : '',
    lang: /^zh/i.test(navigator.language) ? 'zh' : 'en',
    theme: matchMedia('(prefers-color-scheme: dark)').matches ? 'dark' : 'light',
  });
  Object.assign(defaults, state);
  set(stateOfHash());
  window.addEventListener('hashchange', () => set({...defaults, ...stateOfHash()}));
}

const atHead = () => state.l * data.heads + state.h;
const metric = () => data.metrics.find((m) => m.key === state.m);
const grid = () => data.grids.find((g) => g.key === state.g);
// Grids may have rows before the first layer (the embedding).
const rowOfLayer = (g, layer) => g.rows.length - data.layers + layer;
