// SPDX-License-Identifier: Apache-2.0
// The colour tables, which the program gives (rapt/report/colors.h): 256 colours of six hexadecimal digits
// each, one after the other. Shared by the report and the page of `rapt serve`.
export function coloursOf(texts) {
  const byte = (text, i) => parseInt(text.slice(2 * i, 2 * i + 2), 16);
  const bytes = (text) => Uint8Array.from({length: 768}, (_, i) => byte(text, i));
  const tables = Object.fromEntries(Object.entries(texts).map(([name, text]) => [name, bytes(text)]));
  return {
    table: (theme, signed = false) => tables[theme + (signed ? '_signed' : '')],
    css: (index, theme) => `rgb(${tables[theme].slice(3 * index, 3 * index + 3).join(' ')})`,
    ink: (index, theme) => (theme === 'dark') === (index > 115) ? '#111' : '#f6f6f6',
  };
}

// The colours of the theme that holds now, as all pictures take them. theme() → 'light' | 'dark'
export function painterOf(colours, theme) {
  return {
    table: (signed = false) => colours.table(theme(), signed),
    css: (index) => colours.css(index, theme()),
    ink: (index) => colours.ink(index, theme()),
  };
}
