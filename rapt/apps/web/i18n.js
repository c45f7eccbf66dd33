// SPDX-License-Identifier: Apache-2.0
// The page's words, words/en.json and words/zh.json: sentences with {places}; {n|one|many} chooses by a
// number. Elements name theirs: data-text (what they say), data-label (aria-label), data-hint (title),
// data-ghost (placeholder); each change of the language says them anew.
import {follow, state} from './state.js';

const words = {};

// Those of a view that has a folder of its own.
export async function addWords(folder) {
  await Promise.all(['en', 'zh'].map(async (lang) => {
    const reply = await fetch(`${folder}${lang}.json`);
    if (!reply.ok) throw new Error(reply.url);
    words[lang] = {...words[lang], ...await reply.json()};
  }));
}

export async function loadWords() {
  await addWords('/page/words/');
  follow('lang', () => {
    document.documentElement.lang = state.lang === 'zh' ? 'zh-Hans' : 'en';
    say(document);
  });
}

export function tr(key, values = {}) {
  const text = words[state.lang][key];
  if (text === undefined) return key;
  return text.replace(
      /\{(\w+)(?:\|([^|}]*)\|([^}]*))?\}/g,
      (_, name, one, many) => one === undefined ?
          (typeof values[name] === 'number' ? count(values[name]) : values[name]) :
          values[name] === 1 ? one :
                               many);
}

export function say(root) {
  const each = (name, put) => {
    for (const e of root.querySelectorAll(`[data-${name}]`)) put(e, tr(e.dataset[name]));
    if (root.dataset && root.dataset[name]) put(root, tr(root.dataset[name]));
  };
  each('text', (e, text) => {
    e.textContent = text;
  });
  each('label', (e, text) => {
    e.setAttribute('aria-label', text);
  });
  each('hint', (e, text) => {
    e.title = text;
  });
  each('ghost', (e, text) => {
    e.placeholder = text;
  });
  return root;
}

export const count = (n) =>
    new Intl.NumberFormat(state.lang === 'zh' ? 'zh-CN' : 'en-US', {maximumFractionDigits: 3}).format(n);
export const perSecond = (x) => x < 10 ? x.toFixed(1) : count(Math.round(x));
export const fixed = (x, digits) => x.toFixed(digits);
export const when = (time) =>
    new Intl
        .DateTimeFormat(state.lang === 'zh' ? 'zh-CN' : 'en-GB', {dateStyle: 'medium', timeStyle: 'short'})
        .format(time);
