// SPDX-License-Identifier: Apache-2.0
// Words of the pictures in English and Chinese: the part "page" of the dictionaries (report/words). Shared:
// the report has it among its data, the page of `rapt serve` as /page/shared/words.json.
//   dictionary  {en: {words, names, labels}, zh: …};   lang()  which holds now
export function wordsOf(dictionary, lang) {
  return {
    tr: (key, values = {}) => dictionary[lang()].words[key].replace(/\{(\w+)\}/g, (_, name) => values[name]),
    // Of a figure: {key, name}.
    nameOf: (x) => dictionary[lang()].names[x.key] || x.name || x.key,
    // Of a head; English, as `rapt inspect heads` gives it.
    labelOf: (label) => {
      const {en, zh} = dictionary;
      if (!label || lang() === 'en') return label || '';
      const key = Object.keys(en.labels).find((k) => label.startsWith(en.labels[k]));
      return key ? zh.labels[key] + label.slice(en.labels[key].length) : label;
    },
  };
}
export const withLabel = (label) => label ? ` · ${label}` : '';
