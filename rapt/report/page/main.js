// SPDX-License-Identifier: Apache-2.0
// Puts the page together.
function bar() {
  const host = byId('bar');
  const stepper = (key, name, text) => {
    const label = el('span', {className: 'now'});
    const button = (sign, step, word) => {
      const b = el('button', {type: 'button', textContent: sign});
      b.addEventListener('click', () => set({[key]: state[key] + step}));
      follow('lang', () => b.setAttribute('aria-label', `${tr(name)}: ${tr(word)}`));
      return b;
    };
    host.append(el('span', {className: `stepper step-${key}`}, button('‹', -1, 'previous'), label, button('›', 1, 'next')));
    follow(`${key} lang`, () => { label.textContent = text(); });
  };
  stepper('l', 'layer', () => `${tr('layer')} ${state.l}`);
  stepper('h', 'head', () => `${tr('head')} ${state.h}`);
  stepper('t', 'token', () => quoted(state.t));
  const label = el('span', {className: 'badge'});
  host.append(label);
  follow('l h lang', () => {
    label.textContent = labelOf(state.l, state.h);
    label.hidden = !label.textContent;
  });
}

function tools() {
  const lang = byId('lang'), theme = byId('theme');
  lang.addEventListener('click', () => set({lang: state.lang === 'en' ? 'zh' : 'en'}));
  theme.addEventListener('click', () => set({theme: state.theme === 'dark' ? 'light' : 'dark'}));
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', (event) => {
    defaults.theme = event.matches ? 'dark' : 'light';
    set({theme: defaults.theme});
  });
  follow('lang', () => {
    lang.textContent = tr('other');
    lang.setAttribute('aria-label', tr('other_label'));
    lang.lang = state.lang === 'en' ? 'zh-Hans' : 'en';
  });
  follow('lang theme', () => { theme.textContent = tr(state.theme === 'dark' ? 'light' : 'dark'); });
}

async function main() {
  byId('title').textContent = data.title;
  byId('model').textContent = data.model;
  if (typeof DecompressionStream === 'undefined') {
    byId('model').textContent = data.words.en.words.old;
    return;
  }
  await unpack();
  begin();
  document.querySelector('main').hidden = false;
  follow('theme', () => { document.documentElement.dataset.theme = state.theme; });
  follow('lang', words);
  tools();
  bar();
  strip();
  headsView();
  mapView();
  arcsView();
  allView();
  gridView();
  documentsView();
  follow('l h t lang', () => {
    byId('live').textContent = tr('live', {l: state.l, h: state.h, label: withLabel(labelOf(state.l, state.h)), t: quoted(state.t)});
  });
  for (const one of listeners) one.fn();
  document.documentElement.dataset.ready = 'yes';
  performance.mark('ready');
}
main();
