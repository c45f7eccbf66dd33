// SPDX-License-Identifier: Apache-2.0
// The frame of the page: views as tabs, language, light and dark, the list of conversations as a drawer on a
// phone, notices, dialogs. A view is added with
//   registerView({name, title, history, offers, needs, mount, show, hide})
//   or {name, title, offers, needs, folder: true}
//     name     in the address: #view=name
//     title    key of its tab's words (words/en.json, words/zh.json); view_NAME_is: a sentence about it
//     history  true: the list of conversations stands beside it
//     offers   (state) → whether the view is there for the chosen model; absent: always
//     needs    key of the sentence that says what a view that is not offered wants; absent: not spoken of
//     mount    (element) called once, before it is first shown; the element is a tabpanel that scrolls
//     show     (state) each time it becomes the one that is seen; hide () when it is no longer
//     folder   true: mount, show and hide are exports of /page/views/NAME/view.js, which is fetched with its
//              style.css, en.json and zh.json (keys begin with NAME_) when the view is first opened
// Sentences of finished text for those who listen: announce(text).
import {byId, el} from '/page/shared/dom.js';
import {fillHelp, modelFacts} from './help.js';
import {addWords, say, tr} from './i18n.js';
import {follow, kept, set, state} from './state.js';

const views = [];
const offered = (v) => !v.offers || v.offers(state);

export function registerView(view) {
  const panel = el('section', {
    id: `view-${view.name}`,
    className: 'view',
    role: 'tabpanel',
    'aria-labelledby': `tab-${view.name}`,
    hidden: true
  });
  const tab = el('button', {
    type: 'button',
    id: `tab-${view.name}`,
    role: 'tab',
    'aria-controls': panel.id,
    'aria-selected': 'false',
    tabIndex: -1
  });
  tab.dataset.text = view.title;
  tab.dataset.hint = `view_${view.name}_is`;
  tab.addEventListener('click', () => openView(view.name));
  views.push({history: false, ...view, panel, tab, mounted: false});
  byId('tabs').append(say(tab));
  byId('views').append(panel);
}

export function openView(name) {
  const view = views.find((v) => v.name === name && offered(v)) || views.find(offered);
  if (!view) return;
  for (const v of views) {
    const on = v === view, was = !v.panel.hidden;
    v.tab.setAttribute('aria-selected', String(on));
    v.tab.tabIndex = on ? 0 : -1;
    v.panel.hidden = !on;
    if (on) v.tab.scrollIntoView({block: 'nearest', inline: 'nearest'});
    if (was && !on && v.hide) v.hide();
  }
  document.documentElement.classList.toggle('with-side', view.history);
  set({view: view.name});
  if (!view.mounted && view.folder) fetchView(view);
  else showView(view);
}

function showView(view) {
  if (!view.mounted) {
    view.mounted = true;
    view.mount(view.panel);
    say(view.panel);
  }
  if (view.show) view.show(state);
}

// A view's own files; one that could not be had is asked for again when it is next opened.
async function fetchView(view) {
  if (view.coming) return;
  view.coming = true;
  view.panel.setAttribute('aria-busy', 'true');
  const folder = `/page/views/${view.name}/`;
  try {
    const [module] = await Promise.all([import(`${folder}view.js`), addWords(folder), style(folder)]);
    Object.assign(view, {mount: module.mount, show: module.show, hide: module.hide, folder: null});
    view.panel.replaceChildren();
    if (!view.panel.hidden) showView(view);
  } catch {
    view.panel.replaceChildren(el('p', {className: 'empty', textContent: tr('view_failed')}));
  }
  view.coming = false;
  view.panel.removeAttribute('aria-busy');
}

function style(folder) {
  const link = el('link', {rel: 'stylesheet', href: `${folder}style.css`});
  return new Promise((done, failed) => {
    link.addEventListener('load', done);
    link.addEventListener('error', () => {
      link.remove();
      failed(new Error(link.href));
    });
    document.head.append(link);
  });
}

// The address says what is shown: #view=chat&c=ID, and where in a view one is (at=…), as long as it is the
// view's own business.
const hashParts = () => new URLSearchParams(location.hash.slice(1));
export const place = () => hashParts().get('at') || '';
export function setPlace(at) {
  if (hashParts().get('view') === state.view) writeAddress(at);
}
export function writeAddress(at) {
  const before = hashParts(), parts = new URLSearchParams({view: state.view});
  if (state.conversation) parts.set('c', state.conversation);
  const kept = at ?? (before.get('view') === state.view ? before.get('at') : '');
  if (kept) parts.set('at', kept);
  const hash = `#${parts}`;
  if (location.hash !== hash) history.replaceState(null, '', hash);
}
export function readAddress() {
  const parts = hashParts();
  return {view: parts.get('view') || '', conversation: parts.get('c')};
}

function tabs() {
  byId('tabs').addEventListener('keydown', (event) => {
    const there = views.filter(offered), at = there.findIndex((v) => v.name === state.view);
    const to = {ArrowLeft: at - 1, ArrowRight: at + 1, Home: 0, End: there.length - 1}[event.key];
    if (to === undefined) return;
    event.preventDefault();
    const view = there[(to + there.length) % there.length];
    openView(view.name);
    view.tab.focus();
  });
  follow('props models model', () => {
    for (const v of views) v.tab.hidden = !offered(v);
    byId('tabs').hidden = views.filter(offered).length < 2;
    const now = views.find((v) => v.name === state.view);
    if (now && !offered(now)) openView('');
  });
  follow('view conversation', () => writeAddress(), true);
}

function drawer() {
  const menu = byId('menu'), root = document.documentElement;
  const open = (on) => {
    root.classList.toggle('side-open', on);
    menu.setAttribute('aria-expanded', String(on));
    if (on) (byId('side').querySelector('input, button') || menu).focus();
  };
  menu.addEventListener('click', () => open(!root.classList.contains('side-open')));
  document.addEventListener('keydown', (event) => {
    if (event.key !== 'Escape' || !root.classList.contains('side-open')) return;
    open(false);
    menu.focus();
  });
  document.addEventListener('pointerdown', (event) => {
    if (root.classList.contains('side-open') && !byId('side').contains(event.target) &&
        !menu.contains(event.target))
      open(false);
  });
  follow('conversation view', () => open(false), true);
}

function languages() {
  const lang = byId('lang'), theme = byId('theme'), dark = matchMedia('(prefers-color-scheme: dark)');
  const language = kept.get('lang') || (/^zh/i.test(navigator.language) ? 'zh' : 'en');
  const wanted = () => ['light', 'dark'].includes(kept.get('theme')) ? kept.get('theme') : 'system';
  const apply = () => {
    const name = wanted() === 'system' ? (dark.matches ? 'dark' : 'light') : wanted();
    document.documentElement.dataset.theme = name;
    set({theme: name});
    theme.textContent = tr(`theme_${wanted()}`);
    theme.title = tr('theme_label', {now: tr(`theme_${wanted()}`)});
    theme.setAttribute('aria-label', theme.title);
  };
  set({lang: language === 'zh' ? 'zh' : 'en'});
  lang.addEventListener('click', () => {
    kept.set('lang', state.lang === 'en' ? 'zh' : 'en');
    set({lang: kept.get('lang') || (state.lang === 'en' ? 'zh' : 'en')});
  });
  theme.addEventListener('click', () => {
    const order = ['system', 'light', 'dark'];
    kept.set('theme', order[(order.indexOf(wanted()) + 1) % 3]);
    apply();
  });
  dark.addEventListener('change', apply);
  follow('lang', () => {
    lang.textContent = tr('other');
    lang.lang = state.lang === 'en' ? 'zh-Hans' : 'en';
    lang.setAttribute('aria-label', tr('other_label'));
    apply();
  });
}

// ------------------------------------------------------------------------------------------------ notices
// A line at the bottom for some seconds, with a thing to do: [word's key, function].
export function notice(text, action = null) {
  const line = el('div', {className: 'notice'}, el('span', {textContent: text}));
  let timer = 0;
  const away = () => line.remove();
  const wait = () => {
    timer = setTimeout(away, action ? 9000 : 5000);
  };
  if (action) {
    const button = el('button', {type: 'button', className: 'small', textContent: tr(action[0])});
    button.addEventListener('click', () => {
      away();
      action[1]();
    });
    line.append(button);
  }
  line.addEventListener('pointerenter', () => clearTimeout(timer));
  line.addEventListener('pointerleave', wait);
  line.addEventListener('focusin', () => clearTimeout(timer));
  byId('notices').append(line);
  wait();
}

export function announce(text) { byId('live').textContent = text; }

// A dialog that Escape and a click beside it close; `title`: a key of the words. fill(box, close).
export function dialog(title, fill) {
  const close = () => box.close();
  const shut =
      el('button', {type: 'button', className: 'small shut', textContent: '✕', 'aria-label': tr('close')});
  const body = el('div', {className: 'dialog-body'});
  const box =
      el('dialog', {'aria-labelledby': 'dialog-title'},
         el('div', {className: 'dialog-head'}, el('h2', {id: 'dialog-title', textContent: tr(title)}), shut),
         body);
  shut.addEventListener('click', close);
  box.addEventListener('pointerdown', (event) => {
    const r = box.getBoundingClientRect();
    if (event.target === box &&
        (event.clientX < r.left || event.clientX > r.right || event.clientY < r.top ||
         event.clientY > r.bottom))
      close();
  });
  box.addEventListener('close', () => box.remove());
  document.body.append(box);
  fill(body, close);
  box.showModal();
  (body.querySelector('input:checked') || body.querySelector('input, select, textarea') || shut).focus();
  return box;
}

export async function copyText(text, button) {
  let done = true;
  try {
    await navigator.clipboard.writeText(text);
  } catch {  // not on a page without https that is not on this machine
    const area = el('textarea', {value: text, className: 'sr'});
    document.body.append(area);
    area.select();
    done = document.execCommand('copy');
    area.remove();
  }
  const before = button.textContent;
  button.textContent = tr(done ? 'copied' : 'copy_failed');
  setTimeout(() => {
    button.textContent = before;
  }, 1500);
}

export function saveFile(name, text) {
  const url = URL.createObjectURL(new Blob([text], {type: 'application/json'}));
  el('a', {href: url, download: name}).click();
  setTimeout(() => URL.revokeObjectURL(url), 1000);
}

function help() {
  follow('model models lang', () => {
    byId('model-box').title = [modelFacts(), tr('model_hint')].filter(Boolean).join('\n');
  });
  byId('help').addEventListener('click', () => dialog('help_title', (body, close) => {
    const watches = Boolean(state.props && state.props.watch);
    fillHelp(
        body,
        views.map((v) => ({...v, there: offered(v)})).filter((v) => v.there || (v.needs && !watches)),
        (v) => {
          close();
          openView(v.name);
        });
  }));
}

export function beginShell() {
  languages();
  tabs();
  drawer();
  help();
  follow('online lang', () => {
    byId('offline').hidden = state.online;
    byId('offline').textContent = state.online ? '' : tr('offline');
  });
}
