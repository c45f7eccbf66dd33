// SPDX-License-Identifier: Apache-2.0
// Puts the page together: words, history, model, the views (shell.js says how one is added), and what was
// being written when this tab was reloaded.
import {byId} from '/page/shared/dom.js';
import {Chat} from './chat.js';
import {loadFigures} from './figures.js';
import * as history from './history.js';
import {loadWords, tr} from './i18n.js';
import {chats, loadModels, modelChoice} from './settings.js';
import {beginShell, notice, openView, readAddress, registerView} from './shell.js';
import {Sidebar} from './sidebar.js';
import {set, state} from './state.js';
import {resumeAll, stop, workOf} from './work.js';
import {Writer} from './write.js';

async function main() {
  const wanted = readAddress();
  await Promise.all([loadWords(), loadFigures(), history.openHistory()]);
  beginShell();
  modelChoice(byId('model'));

  // `rapt train --watch` serves no model: there is a training to look at and nothing else.
  const watches = (s) => Boolean(s.props && s.props.watch), models = (s) => !watches(s);

  const chat = new Chat(), writer = new Writer();
  registerView({
    name: 'chat',
    title: 'view_chat',
    history: true,
    offers: (s) => !watches(s) && (!s.props || chats(s)),
    needs: 'needs_chat',
    mount: (e) => chat.mount(e),
    show: () => chat.show()
  });
  registerView({
    name: 'text',
    title: 'view_text',
    history: true,
    offers: models,
    mount: (e) => writer.mount(e),
    show: () => writer.show()
  });
  const lab = (s) => Boolean(s.props && s.props.lab);
  registerView({name: 'inside', title: 'view_inside', folder: true, offers: models});
  registerView({name: 'compare', title: 'view_compare', folder: true, offers: models});
  registerView({name: 'play', title: 'view_play', folder: true});
  registerView({name: 'lab', title: 'view_lab', folder: true, offers: lab, needs: 'needs_lab'});
  registerView({
    name: 'train',
    title: 'view_train',
    folder: true,
    offers: (s) => lab(s) || watches(s),
    needs: 'needs_lab'
  });
  registerView({name: 'recipe', title: 'view_recipe', folder: true, offers: lab, needs: 'needs_lab'});
  registerView({name: 'monitor', title: 'view_monitor', folder: true, offers: models});
  const viewOf = (c) => c.kind === 'text' ? writer : chat;

  // One object for each conversation that is open or being written.
  async function find(id) {
    if (workOf(id)) return workOf(id).conversation;
    for (const v of [chat, writer])
      if (v.conversation && v.conversation.id === id) return v.conversation;
    return history.load(id);
  }
  async function open(id) {
    const c = id && await find(id);
    if (id && !c) return false;
    const kind = c ? c.kind : state.view === 'text' || !chats() ? 'text' : 'chat';
    openView(kind);
    const view = kind === 'text' ? writer : chat;
    if (c) view.open(c);
    else view.conversation = null;
    view.show();
    return true;
  }
  new Sidebar(byId('side'), {
    open,
    find,
    busy: (id) => Boolean(workOf(id)),
    gone: (id) => {
      stop(id);
      for (const v of [chat, writer])
        if (v.conversation && v.conversation.id === id) {
          v.conversation = null;
          if (state.conversation === id) {
            set({conversation: null});
            v.show();
          }
        }
    },
  });
  window.addEventListener('hashchange', () => {
    const to = readAddress();
    if (to.conversation && to.conversation !== state.conversation) open(to.conversation);
    else if (to.view && to.view !== state.view) openView(to.view);
  });

  await loadModels();
  await resumeAll(find, (c, node) => viewOf(c).changed(c, node));
  if (watches(state)) openView(wanted.view === 'play' ? 'play' : 'train');
  else if (!(wanted.conversation && await open(wanted.conversation))) openView(wanted.view);
  else if (wanted.view && wanted.view !== state.view) openView(wanted.view);
  if (!history.persistent) notice(tr('history_off'));
  history.onLoss(() => notice(tr('history_full')));
  document.documentElement.dataset.ready = 'yes';
  performance.mark('ready');
}
main();
