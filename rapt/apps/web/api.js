// SPDX-License-Identifier: Apache-2.0
// Asking the server: the key, errors as values, streams of events. No sentence for people is made here.
import {set} from './state.js';

export class ApiError extends Error {
  // kind: 'offline' | 'key' | 'busy' | 'context' | 'cut' | 'refused'; seconds: after which to try again, or 0
  constructor(kind, {status = 0, code = '', message = '', seconds = 0} = {}) {
    super(message || kind);
    Object.assign(this, {kind, status, code, seconds});
    this.numbers = (message.match(/\d[\d,]*/g) || []).map((n) => Number(n.replaceAll(',', '')));
  }
}

// In memory; in the tab's own storage where the user asked for that.
let key = '';
try {
  key = sessionStorage.getItem('rapt.key') || '';
} catch {
  // no storage: asked for again after a reload
}
export function setKey(text, keep) {
  key = text.trim();
  try {
    if (keep && key) sessionStorage.setItem('rapt.key', key);
    else sessionStorage.removeItem('rapt.key');
  } catch {
    // as above
  }
}

async function errorOf(response) {
  let error = {};
  try {
    error = (await response.json()).error || {};
  } catch {
    // not ours: a proxy, perhaps
  }
  return apiError(response.status, error, Number(response.headers.get('retry-after')) || 0);
}
export function apiError(status, error, seconds = 0) {
  const code = String(error.code || ''), message = String(error.message || '');
  const kind = status === 401            ? 'key' :
      code === 'context_length_exceeded' ? 'context' :
      status === 429 || status === 503   ? 'busy' :
                                           'refused';
  return new ApiError(kind, {status, code, message, seconds});
}

// A request; throws ApiError. body: a value that becomes JSON, or nothing.
export async function ask(path, {body, method, signal} = {}) {
  const headers = {};
  if (key) headers.Authorization = `Bearer ${key}`;
  if (body !== undefined) headers['Content-Type'] = 'application/json';
  let response;
  try {
    response = await fetch(path, {
      method: method || (body === undefined ? 'GET' : 'POST'),
      headers,
      signal,
      cache: 'no-store',
      body: body === undefined ? undefined : JSON.stringify(body)
    });
  } catch (error) {
    if (error.name === 'AbortError') throw error;
    set({online: false});
    throw new ApiError('offline');
  }
  set({online: true});
  if (!response.ok) throw await errorOf(response);
  return response;
}

export const askJson = async (path, more) => (await ask(path, more)).json();
