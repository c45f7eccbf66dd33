// SPDX-License-Identifier: Apache-2.0
// A text that the model goes on with: for models that were never taught to answer, and for trying out any
// other. What is written by hand is the conversation's text; each continuation is a message at the root of
// its tree, so another ending is a branch.
import {el} from '/page/shared/dom.js';
import {editChips} from './edits.js';
import * as history from './history.js';
import {perSecond, say, tr} from './i18n.js';
import {chosenToken, errorWords} from './message.js';
import {samplingFields, tokenFields} from './run.js';
import {chats, contextOf, openSettings, sampling} from './settings.js';
import {follow, kept, set, state} from './state.js';
import {TokenStrip} from './tokens.js';
import * as tree from './tree.js';
import {stop, workOf, write} from './work.js';

const kLengths = [16, 32, 64, 128, 256, 512];
const kExamples = ['text_example_1', 'text_example_2', 'text_example_3'];

export class Writer {
  constructor() {
    this.conversation = null;
    this.strip = null;
  }

  mount(panel) {
    const button = (key, act, more = {}) => {
      const b = el('button', {type: 'button', 'data-text': key, ...more});
      b.addEventListener('click', act);
      return b;
    };
    this.area = el('textarea', {
      className: 'paper',
      'data-label': 'text_label',
      'data-ghost': 'text_ghost',
      dir: 'auto',
      spellcheck: false
    });
    this.area.addEventListener('input', () => this.typed());
    this.area.addEventListener('keydown', (event) => {
      if (event.key === 'Enter' && (event.ctrlKey || event.metaKey) && !event.isComposing) {
        event.preventDefault();
        this.goOn();
      } else if (event.key === 'Escape' && !event.isComposing && this.work()) {
        stop(this.conversation.id);
      }
    });
    this.go =
        button('text_go', () => this.goOn(), {className: 'main', id: 'go', 'data-hint': 'text_go_hint'});
    this.stopButton = button(
        'stop', () => stop(this.conversation.id),
        {className: 'main stop', 'data-hint': 'stop_hint', hidden: true});
    this.another = button('text_another', () => this.goOn(true), {'data-hint': 'text_another_hint'});
    this.back = button('text_back', () => this.takeBack(), {'data-hint': 'text_back_hint'});
    this.switch = el('span', {className: 'switch', role: 'group', 'data-label': 'branches'});
    this.length = el('select', {}, ...kLengths.map((n) => el('option', {value: n, textContent: n})));
    this.length.value = kept.get('length', 64);
    this.length.addEventListener('change', () => kept.set('length', Number(this.length.value)));
    this.error = el('div', {className: 'error', role: 'alert', hidden: true});
    this.meterText = el('span', {className: 'meter-text'});
    this.examples = el('div', {className: 'examples'});
    this.tokens = el('div', {className: 'text-tokens', hidden: true}, el('h3', {'data-text': 'text_tokens'}));
    const edits = el('div');
    editChips(edits);
    panel.append(say(
        el('div', {className: 'writer'}, el('p', {className: 'hint lead', 'data-text': 'text_lead'}),
           this.area, this.examples, edits, this.error,
           el('div', {className: 'row'}, this.go, this.stopButton, this.another, this.back, this.switch,
              el('label', {className: 'hint'}, el('span', {'data-text': 'text_length'}), ' ', this.length),
              button('settings', openSettings, {className: 'small'}), this.meterText),
           this.tokens)));
    follow('lang', () => {
      this.drawExamples();
      this.draw();
    });
    follow('props', () => {
      panel.querySelector('.lead').dataset.text = chats() ? 'text_lead_any' : 'text_lead';
      say(panel.querySelector('.lead'));
    });
    this.draw();
  }
  show() {
    if (!this.conversation) this.open(tree.newConversation('text', {model: state.model, text: ''}));
    this.tell();
    this.area.focus({preventScroll: true});
  }
  drawExamples() {
    this.examples.replaceChildren(...kExamples.map((name) => {
      const b = el('button', {type: 'button', textContent: tr(name)});
      b.addEventListener('click', () => {
        this.area.value = tr(name);
        this.typed();
        this.area.focus();
      });
      return b;
    }));
  }
  open(c) {
    this.conversation = c;
    this.tell();
    this.forget();
    this.draw();
  }
  // A text that nothing was added to is no conversation yet.
  tell() {
    const c = this.conversation;
    set({conversation: c.title ? c.id : null});
  }
  work() { return this.conversation ? workOf(this.conversation.id) : null; }
  changed(c) {
    if (c !== this.conversation || this.waits) return;
    this.waits = true;
    requestAnimationFrame(() => {
      this.waits = false;
      this.draw();
    });
  }
  node() { return tree.path(this.conversation)[0] || null; }
  whole() { return (this.conversation.text || '') + (this.node() ? this.node().text : ''); }

  // What is there now was written by hand, all of it: continuations are part of the text.
  async typed() {
    const c = this.conversation, gone = [...c.nodes.keys()];
    c.text = this.area.value;
    Object.assign(c, {nodes: new Map(), roots: [], chosen: null});
    this.forget();
    this.draw();
    if (gone.length) await history.removeNodes(c, gone);
  }
  forget() {
    if (this.strip) this.strip = this.strip.remove();
    this.shown = null;
  }

  draw() {
    if (!this.area || !this.conversation) return;
    const c = this.conversation, work = this.work(), node = this.node(), text = this.whole();
    if (this.area.value !== text) {
      const atEnd =
          this.area.scrollHeight - this.area.scrollTop - this.area.clientHeight < 40 || Boolean(work);
      this.area.value = text;
      if (atEnd) this.area.scrollTop = this.area.scrollHeight;
    }
    this.area.readOnly = Boolean(work);
    this.examples.hidden = Boolean(text);
    this.go.hidden = Boolean(work);
    this.go.disabled = !text || !state.model;
    this.stopButton.hidden = !work;
    this.another.hidden = this.back.hidden = !node || Boolean(work);
    this.switches(node, work);
    const tokens = node && node.tokens.length > 0;
    this.tokens.hidden = !tokens;
    if (tokens) {
      if (this.shown !== node.id) this.forget();
      this.shown = node.id;
      this.strip ||= new TokenStrip(
          this.tokens,
          {
            choose: (i) => chosenToken(c.id, node, i),
            same: (chosen) => chosen.message === node.id,
            owner: node.id
          });
      this.strip.update(node.tokens);
    }
    const error = node && !work && node.error;
    this.error.hidden = !error;
    this.error.textContent = error ? errorWords(error) : '';
    const used = node && node.used, most = contextOf();
    const speed = node && node.speed ? ` · ${tr('per_second', {x: perSecond(node.speed)})}` : '';
    this.meterText.textContent = !most ? '' :
        used                           ? tr('context_used', {n: used, of: most}) + speed :
                                         tr('context_of', {of: most});
  }
  switches(node, work) {
    const [at, of] = node ? tree.place(this.conversation, node.id) : [0, 0];
    this.switch.hidden = of < 2 || Boolean(work);
    if (this.switch.hidden) return;
    const step = (sign, by, word) => {
      const b = el('button', {
        type: 'button',
        className: 'small',
        textContent: sign,
        'aria-label': tr(word),
        disabled: at + by < 0 || at + by >= of
      });
      b.addEventListener('click', () => {
        tree.turn(this.conversation, node.id, by);
        history.save(this.conversation);
        this.draw();
        const all = this.switch.querySelectorAll('button:not(:disabled)');
        (by < 0 ? all[0] : all[all.length - 1]).focus();
      });
      return b;
    };
    this.switch.replaceChildren(
        step('‹', -1, 'branch_before'), el('span', {textContent: `${at + 1}/${of}`}),
        step('›', 1, 'branch_after'));
  }

  // another: a second ending of the same text; else what is there now is the text.
  async goOn(another = false) {
    const c = this.conversation;
    if (this.work() || this.beginning || !this.whole() || !state.model) return;
    this.beginning = true;  // until it is kept: a second click may come
    if (!another) {
      const gone = [...c.nodes.keys()];
      c.text = this.whole();
      Object.assign(c, {nodes: new Map(), roots: [], chosen: null});
      if (gone.length) await history.removeNodes(c, gone);
    }
    if (!c.named) c.title = tree.titleOf(c.text);
    Object.assign(c, {model: state.model, updated: Date.now()});
    const node = tree.add(c, null, 'assistant', '', {model: state.model, tokens: []});
    await history.save(c, [node]);
    this.beginning = false;
    if (c === this.conversation) set({conversation: c.id});
    const s = samplingFields(sampling());
    if (another) delete s.seed;  // the same seed would only say the same
    const again = await write(
        c, node, {
          path: '/v1/completions',
          body: {
            model: state.model,
            prompt: c.text,
            ...s,
            max_tokens: Number(this.length.value),
            ...tokenFields(false),
            rapt: {
              ...(state.look.length ? {look: state.look} : {}),
              ...(state.edits.length ? {edits: state.edits} : {})
            },
          }
        },
        () => this.changed(c));
    if (node.text === '' && (node.error || again)) {
      tree.cut(c, node.id);
      await history.removeNodes(c, [node.id]);
      this.draw();
      if (node.error && !again) {
        this.error.hidden = false;
        this.error.textContent = errorWords(node.error);
      }
      if (again) return this.goOn(another);
    }
    this.draw();
    if (document.activeElement === document.body) this.area.focus();
  }
  async takeBack() {
    const c = this.conversation, node = this.node();
    if (!node || this.work()) return;
    await history.removeNodes(c, tree.cut(c, node.id));
    this.forget();
    this.draw();
    this.area.focus();
  }
}
