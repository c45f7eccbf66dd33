// SPDX-License-Identifier: Apache-2.0
// Words of the report in English and Chinese, which the program puts among the data; its colours and tokens.
const {tr, nameOf, labelOf: labelIn} = wordsOf(data.words, () => state.lang);
const painter = painterOf(coloursOf(data.colours), () => state.theme);
const labelOf = (layer, head) => labelIn(data.labels[layer * data.heads + head]);
const quoted = (t) => `${t} “${shown(data.tokens[t])}”`;
const valueOf = (x) => number(x, tr('no_number'));

function words() {
  document.documentElement.lang = state.lang === 'zh' ? 'zh-Hans' : 'en';
  for (const e of document.querySelectorAll('[data-text]')) e.textContent = tr(e.dataset.text);
  for (const e of document.querySelectorAll('[data-label]'))
    e.setAttribute('aria-label', tr(e.dataset.label));
}
