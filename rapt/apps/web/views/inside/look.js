// SPDX-License-Identifier: Apache-2.0
// Asking POST /v1/look: one request at a time, and of each kind only the newest counts. Arrays come as
// base64.
import {askJson} from '/page/api.js';

const going = new Map();  // kind → AbortController
let line = Promise.resolve();

// The reply, or null where a newer request of the same kind took its place. Throws ApiError.
export function look(kind, body) {
  going.get(kind)?.abort();
  const control = new AbortController();
  going.set(kind, control);
  const mine = line.then(async () => {
    if (control.signal.aborted) return null;
    try {
      return await askJson('/v1/look', {body, signal: control.signal});
    } catch (error) {
      if (error.name === 'AbortError') return null;
      throw error;
    } finally {
      if (going.get(kind) === control) going.delete(kind);
    }
  });
  line = mine.catch(() => {});
  return mine;
}
export function forget() {
  for (const control of going.values()) control.abort();
  going.clear();
}

function bytesOf(text) {
  const raw = atob(text), bytes = new Uint8Array(raw.length);
  for (let i = 0; i < raw.length; ++i) bytes[i] = raw.charCodeAt(i);
  return bytes;
}
export function half(h) {
  const sign = h & 0x8000 ? -1 : 1, exponent = h >> 10 & 31, fraction = h & 1023;
  if (exponent === 31) return fraction ? NaN : sign * Infinity;
  return sign * (exponent ? 2 ** (exponent - 25) * (1024 + fraction) : 2 ** -24 * fraction);
}
export function halves(text) {
  const bytes = bytesOf(text), out = new Float32Array(bytes.length / 2);
  for (let i = 0; i < out.length; ++i) out[i] = half(bytes[2 * i] | bytes[2 * i + 1] << 8);
  return out;
}
// One of them, without reading the rest.
export function halfAt(text, i) {
  const at = 2 * i, from = Math.floor(at / 3);
  const raw = atob(text.slice(4 * from, 4 * from + 8)), off = at - 3 * from;
  return half(raw.charCodeAt(off) | raw.charCodeAt(off + 1) << 8);
}
// An array of a reply as numbers; u8 stays as it is, its scale is array.scale.
export function numbersOf(array) {
  if (array.encoding === 'f16') return halves(array.data);
  const bytes = bytesOf(array.data);
  return array.encoding === 'u8' ? bytes : new Float32Array(bytes.buffer);
}
// Lists of lists as one array of numbers; null: NaN.
export const flat = (rows) => Float32Array.from(rows.flat(), (x) => x === null ? NaN : x);
