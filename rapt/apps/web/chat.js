// SPDX-License-Identifier: Apache-2.0
// The chat: messages of the open conversation, what one writes, and what follows from each button. How an
// answer comes in: work.js; what a message looks like: message.js.
import {el} from '/page/shared/dom.js';
import {askJson} from './api.js';
import {editChips} from './edits.js';
import * as history from './history.js';
import {perSecond, say, tr} from './i18n.js';
import {MessageView, splitThought} from './message.js';
import {samplingFields, tokenFields} from './run.js';
import {chats, contextOf, openSettings, sampling, translates} from './settings.js';
import {notice, openView} from './shell.js';
import {follow, kept, set, state} from './state.js';
import * as tree from './tree.js';
import {stop, workOf, write} from './work.js';

const kExamples = ['example_1', 'example_2', 'example_3'];

export class Chat {
  constructor() {
    this.conversation = null;
    this.views = new Map();
    this.asking = new Set();  // conversations whose question is being kept
    this.drawn = false;
  }

  mount(panel) {
    this.panel = panel;
    this.messages = el('div', {className: 'messages'});
    this.scroll =
        el('div', {className: 'chat-scroll', tabIndex: -1}, this.systemBox(), this.messages,
           this.empty = el('div', {className: 'empty-chat'}));
    this.down = el('button', {
      type: 'button',
      className: 'to-end',
      'data-label': 'to_end',
      'data-hint': 'to_end',
      textContent: '↓',
      hidden: true
    });
    panel.append(this.scroll, this.down, this.composer());
    this.scroll.addEventListener('scroll', () => this.follows());
    this.down.addEventListener('click', () => this.toEnd());
    panel.addEventListener('keydown', (event) => {
      // Escape inside a composition takes that back and nothing else.
      if (event.key === 'Escape' && !event.isComposing && this.work()) {
        event.preventDefault();
        stop(this.conversation.id);
      }
    });
    this.stick = true;
    new ResizeObserver(() => {
      if (this.stick) this.toEnd();
    }).observe(this.messages);
    follow('lang', () => {
      for (const view of this.views.values()) view.words();
      this.draw();
    }, true);
    follow('model props', () => this.draw(), true);
    this.draw();
  }
  show() {
    if (!this.conversation) this.begin();
    this.tell();
    this.input.focus({preventScroll: true});
  }

  // ---------------------------------------------------------------------------------------- conversations
  begin() { this.open(tree.newConversation('chat', {model: state.model})); }
  open(c) {
    this.conversation = c;
    for (const view of this.views.values()) view.remove();
    this.views.clear();
    this.messages.replaceChildren();
    this.system.value = c.system || '';
    this.systemDetails.open = false;
    this.stick = true;
    this.tell();
    this.input.value = '';
    this.grow();
    this.draw();
  }
  work() { return this.conversation ? workOf(this.conversation.id) : null; }
  busy() { return Boolean(this.work()) || this.asking.has(this.conversation); }
  // An answer may begin and end between two drawings: what was drawn of it before is not what it is now.
  changed(c, node) {
    if (c !== this.conversation) return;
    const view = this.views.get(node.id);
    if (view) view.settled = false;
    this.later();
  }

  later() {
    if (this.waits) return;
    this.waits = true;
    const run = () => {
      this.waits = false;
      this.draw();
    };
    if (document.visibilityState === 'visible') requestAnimationFrame(run);
    else setTimeout(run, 200);
  }

  // An empty conversation is none yet.
  tell() {
    const c = this.conversation;
    set({conversation: c.nodes.size || c.title ? c.id : null});
  }

  // Messages that are shown get their views; those of other branches lose theirs.
  draw() {
    if (!this.messages || !this.conversation) return;
    const c = this.conversation, shown = tree.path(c), work = this.work();
    const ids = new Set(shown.map((n) => n.id));
    for (const [id, view] of this.views)
      if (!ids.has(id)) {
        view.remove();
        this.views.delete(id);
      }
    shown.forEach((node, i) => {
      let view = this.views.get(node.id);
      const run = work && work.node === node ? work.run : null;
      if (!view) {
        view = new MessageView(c, node, this.acts());
        this.views.set(node.id, view);
      }
      if (this.messages.children[i] !== view.element)
        this.messages.insertBefore(view.element, this.messages.children[i] || null);
      if (run || view.busy || !view.settled || view.at !== this.branches(node)) view.update(run);
      view.settled = !run;
      view.at = this.branches(node);
    });
    this.empty.hidden = shown.length > 0;
    if (!shown.length) this.welcome();
    this.systemDetails.hidden = translates();
    this.send.hidden = Boolean(work);
    this.stopButton.hidden = !work;
    if (!work && document.activeElement === document.body && this.hadStop) this.input.focus();
    this.hadStop = Boolean(work);
    this.meter(shown, work);
    if (this.stick) this.toEnd();
  }
  branches(node) {
    return tree.place(this.conversation, node.id).join('/') + Boolean(this.work()) +
        (node.error ? node.error.until : '');
  }
  refresh(node) {
    const view = this.views.get(node.id);
    if (view) view.settled = false;
    this.draw();
  }

  welcome() {
    const key = `${state.lang} ${state.model} ${translates()}`;
    if (this.empty.dataset.key === key) return;
    this.empty.dataset.key = key;
    const examples = translates() ? [] : kExamples.map((name) => {
      const b = el('button', {type: 'button', textContent: tr(name)});
      b.addEventListener('click', () => {
        this.input.value = tr(name);
        this.grow();
        this.input.focus();
        this.submit();
      });
      return b;
    });
    this.empty.replaceChildren(
        el('h2', {textContent: tr('hello', {model: state.model || '…'})}),
        el('p', {textContent: tr(translates() ? 'hello_translate' : 'hello_more')}),
        el('div', {className: 'examples'}, ...examples));
  }

  // -------------------------------------------------------------------------------------------- composing
  systemBox() {
    this.system = el('textarea', {rows: 3, 'data-ghost': 'system_ghost', 'data-label': 'system'});
    this.system.addEventListener('change', () => {
      this.conversation.system = this.system.value;
      if (this.conversation.nodes.size) history.save(this.conversation);
    });
    return this.systemDetails =
               say(el('details', {className: 'system'}, el('summary', {'data-text': 'system'}), this.system));
  }

  composer() {
    this.input = el(
        'textarea',
        {id: 'input', rows: 1, 'data-ghost': 'ask', 'data-label': 'ask', enterKeyHint: 'send', dir: 'auto'});
    this.send = el('button', {type: 'button', id: 'send', className: 'main', 'data-text': 'send'});
    this.stopButton = el('button', {
      type: 'button',
      id: 'stop',
      className: 'main stop',
      'data-text': 'stop',
      'data-hint': 'stop_hint',
      hidden: true
    });
    this.settings =
        el('button', {type: 'button', id: 'settings', className: 'small', 'data-text': 'settings'});
    this.meterBar = el('meter', {min: 0, hidden: true, 'data-label': 'context'});
    this.meterText = el('span', {className: 'meter-text'});
    this.send.addEventListener('click', () => this.submit());
    this.stopButton.addEventListener('click', () => stop(this.conversation.id));
    this.settings.addEventListener('click', openSettings);
    this.input.addEventListener('input', () => {
      this.grow();
      this.estimate();
    });
    this.input.addEventListener('keydown', (event) => {
      // Enter that ends the composition of a character belongs to the input method (229: browsers that say so
      // late).
      if (event.key !== 'Enter' || event.isComposing || event.keyCode === 229) return;
      const sends =
          kept.get('enter', true) ? !event.shiftKey && !event.altKey : event.ctrlKey || event.metaKey;
      if (!sends) return;
      event.preventDefault();
      this.submit();
    });
    const edits = el('div');
    editChips(edits);
    return say(
        el('div', {className: 'composer'}, edits,
           el('div', {className: 'write'}, this.input, this.send, this.stopButton),
           el('div', {className: 'under'}, this.settings, this.meterText, this.meterBar)));
  }
  grow() {
    this.input.style.height = 'auto';
    this.input.style.height = `${Math.min(this.input.scrollHeight + 2, Math.max(72, innerHeight * 0.35))}px`;
  }

  // How much of the context the conversation takes: of the last answer, and of what is being written.
  meter(shown, work) {
    const most = contextOf(), last = [...shown].reverse().find((n) => n.used);
    const used = this.estimated || (work ? work.node.used : 0) || (last ? last.used : 0);
    this.meterBar.hidden = !most || !used;
    if (most)
      Object.assign(
          this.meterBar,
          {max: most, low: 0.75 * most, high: 0.9 * most, optimum: 0, value: Math.min(most, used)});
    const speed = work && work.node.speed ? ` · ${tr('per_second', {x: perSecond(work.node.speed)})}` : '';
    this.meterText.textContent = used && most ? tr('context_used', {n: used, of: most}) + speed :
        most                                  ? tr('context_of', {of: most}) :
                                                '';
  }
  estimate() {
    clearTimeout(this.estimating);
    this.estimated = 0;
    const text = this.input.value;
    if (!text.trim() || !chats()) return;
    this.estimating = setTimeout(async () => {
      try {
        const {input_tokens: n} = await askJson(
            '/v1/chat/completions/input_tokens',
            {body: {model: state.model, messages: [...this.said(), {role: 'user', content: text}]}});
        if (this.input.value !== text) return;
        this.estimated = n;
        this.meter(tree.path(this.conversation), this.work());
      } catch {
        // the meter shows what it knows
      }
    }, 400);
  }

  follows() {
    const s = this.scroll;
    this.stick = s.scrollHeight - s.scrollTop - s.clientHeight < 60;
    this.down.hidden = this.stick;
  }
  toEnd() {
    this.scroll.scrollTop = this.scroll.scrollHeight;
    this.stick = true;
    this.down.hidden = true;
  }

  // ---------------------------------------------------------------------------------------------- asking
  // Messages as the server wants them, to and with `until`. What was thought aloud is not sent again.
  said(until = null, c = this.conversation) {
    const list = until ? tree.lineage(c, until.id) : tree.path(c), out = [];
    if (c.system.trim() && !translates()) out.push({role: 'system', content: c.system});
    for (const n of list)
      out.push(
          {role: n.role, content: n.role === 'user' || n === until ? n.text : splitThought(n.text).text});
    return out;
  }

  submit() {
    const text = this.input.value;
    if (!text.trim() || !state.model || this.busy()) return;
    const c = this.conversation, shown = tree.path(c), last = shown[shown.length - 1];
    c.system = this.system.value;
    this.input.value = '';
    this.estimated = 0;
    this.grow();
    this.ask(tree.add(c, last ? last.id : null, 'user', text));
  }

  // A new answer below a message of the user; a second click may come before the first one's is begun.
  async ask(question) {
    const c = this.conversation;
    this.asking.add(c);
    if (!c.named && !c.title) c.title = tree.titleOf(question.text);
    c.model = state.model;
    c.updated = Date.now();
    const node = tree.add(c, question.id, 'assistant', '', {model: state.model, tokens: []});
    await history.save(c, [question, node, c.nodes.get(question.parent)]);
    this.asking.delete(c);
    if (c === this.conversation) set({conversation: c.id});
    this.stick = true;
    this.run(node, {messages: this.said(question, c)}, c);
  }

  async run(node, fields, c = this.conversation) {
    const body = () => ({
      model: node.model,
      ...fields,
      ...samplingFields(sampling()),
      ...(kept.get('logprobs', true) ? tokenFields(true) : {}),
      rapt: {
        ...(state.look.length ? {look: state.look} : {}),
        ...(state.edits.length ? {edits: state.edits} : {})
      },
    });
    const request = {path: '/v1/chat/completions', body: body()};
    const again = await write(c, node, request, () => this.changed(c, node));
    if (again && !node.text) this.retry(node);
  }

  retry(node) {
    const c = this.conversation;
    if (this.busy() || !c.nodes.has(node.id)) return;
    if (node.text) return this.goOn(node);
    node.error = null;
    node.model = state.model;
    node.parts = [];
    this.refresh(node);
    this.run(node, {messages: this.said(c.nodes.get(node.parent))});
  }
  goOn(node) {
    if (this.busy()) return;
    // A model without special signs for turns simply reads on.
    this.run(node, {messages: this.said(node), continue_final_message: true, add_generation_prompt: false});
  }

  acts() {
    return {
      place: (node) => tree.place(this.conversation, node.id),
      turn: (node, by) => this.turn(node, by),
      again: (node) => {
        if (!this.busy()) this.ask(this.conversation.nodes.get(node.parent));
      },
      go: (node) => this.goOn(node),
      retry: (node) => this.retry(node),
      edit: (node) => this.edit(node),
      remove: (node) => this.removeNode(node),
      compare: translates() ? null : (node) => this.compare(node),
    };
  }

  // The same question, seed and sampling in the view for it.
  compare(node) {
    const messages = this.said(this.conversation.nodes.get(node.parent));
    const to = {model: node.model, messages, seed: Number(node.seed), edits: state.edits};
    set({compare: {...to, sampling: sampling()}});
    openView('compare');
  }

  turn(node, by) {
    const c = this.conversation, parent = c.nodes.get(node.parent), id = tree.turn(c, node.id, by);
    this.stick = false;
    this.draw();
    history.save(c, [parent]);
    const view = this.views.get(id), all = view.switch.querySelectorAll('button:not(:disabled)');
    (view.switch.querySelectorAll('button')[by < 0 ? 0 : 1].disabled ?
         all[0] :
         view.switch.querySelectorAll('button')[by < 0 ? 0 : 1])
        .focus();
    view.element.scrollIntoView({block: 'nearest'});
  }

  // A changed message is a new branch; the old one stays behind ‹ ›.
  edit(node) {
    const view = this.views.get(node.id);
    if (this.busy() || view.element.querySelector('.editor')) return;
    const area = el('textarea', {value: node.text, 'aria-label': tr('edit'), dir: 'auto'});
    const done = el('button', {
      type: 'button',
      className: 'main',
      textContent: tr(node.role === 'user' ? 'edit_send' : 'edit_keep')
    });
    const no = el('button', {type: 'button', textContent: tr('cancel')});
    const box = el('div', {className: 'editor'}, area, el('div', {className: 'row'}, done, no));
    const close = () => {
      box.remove();
      view.body.hidden = view.tools.hidden = false;
      view.buttons[1].focus();
    };
    const keep = async () => {
      const text = area.value, c = this.conversation;
      if (!text.trim() || this.busy()) return;
      if (text === node.text && node.role === 'assistant') return close();
      close();
      const fresh = tree.add(
          c, node.parent, node.role, text,
          node.role === 'assistant' ? {model: node.model, tokens: [], finish: 'stop', edited: true} : {});
      if (node.role === 'user') return this.ask(fresh);
      await history.save(c, [fresh, c.nodes.get(node.parent)]);
      this.draw();
    };
    no.addEventListener('click', close);
    done.addEventListener('click', keep);
    area.addEventListener('keydown', (event) => {
      if (event.key === 'Escape' && !event.isComposing) {
        event.stopPropagation();
        close();
      } else if (event.key === 'Enter' && (event.ctrlKey || event.metaKey) && !event.isComposing) {
        keep();
      }
    });
    view.body.hidden = view.tools.hidden = true;
    view.body.after(box);
    area.style.height = `${Math.min(400, Math.max(72, 24 * (node.text.split('\n').length + 1)))}px`;
    area.focus();
  }

  async removeNode(node) {
    if (this.busy()) return;
    const c = this.conversation, parent = c.nodes.get(node.parent);
    const at = (parent ? parent.children : c.roots).indexOf(node.id);
    const kept_ = [];
    const collect = (id) => {
      const n = c.nodes.get(id);
      kept_.push({...n, children: [...n.children]});
      n.children.forEach(collect);
    };
    collect(node.id);
    await history.removeNodes(c, tree.cut(c, node.id));
    await history.save(c, [parent]);
    this.draw();
    this.input.focus();
    notice(tr('removed', {n: kept_.length}), [
      'undo',
      async () => {
        // What was written in the meantime stays beside it.
        const over = parent || c, now = parent ? parent.children : c.roots;
        if (parent && !c.nodes.has(parent.id)) return;
        if (!now.includes(node.id)) now.splice(Math.min(at, now.length), 0, node.id);
        over.chosen = node.id;
        for (const n of kept_) c.nodes.set(n.id, n);
        await history.save(c, [parent, ...kept_]);
        this.draw();
      }
    ]);
  }
}
