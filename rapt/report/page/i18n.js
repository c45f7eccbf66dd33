// SPDX-License-Identifier: Apache-2.0
// Words of the page in English and Chinese; numbers and tokens as people read them.
// They are the part "page" of the dictionaries (report/words), which the program puts among the data.
const kDictionary = data.words;
function tr(key, values = {}) {
  return kDictionary[state.lang].words[key].replace(/\{(\w+)\}/g, (_, name) => values[name]);
}
const nameOf = (x) => kDictionary[state.lang].names[x.key] || x.name;
// What the label of a head begins with.
function labelOf(layer, head) {
  const label = data.labels[layer * data.heads + head] || '', {en, zh} = kDictionary;
  if (state.lang === 'en') return label;
  const key = Object.keys(en.labels).find((k) => label.startsWith(en.labels[k]));
  return key ? zh.labels[key] + label.slice(en.labels[key].length) : label;
}
const withLabel = (label) => label ? ` · ${label}` : '';

const quoted = (t) => `${t} “${shown(data.tokens[t])}”`;

function number(x) {
  if (!Number.isFinite(x)) return tr('no_number');
  const size = Math.abs(x);
  if (size >= 1e5 || (size > 0 && size < 5e-4)) return x.toExponential(1);
  return x.toFixed(size >= 100 ? 0 : size >= 10 ? 1 : size >= 1 ? 2 : 3);
}

function words() {
  document.documentElement.lang = state.lang === 'zh' ? 'zh-Hans' : 'en';
  for (const e of document.querySelectorAll('[data-text]')) e.textContent = tr(e.dataset.text);
  for (const e of document.querySelectorAll('[data-label]')) e.setAttribute('aria-label', tr(e.dataset.label));
}
