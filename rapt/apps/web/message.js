// SPDX-License-Identifier: Apache-2.0
// One message of a chat as it stands on the page, and what can be done with it.
import {el} from '/page/shared/dom.js';
import {perSecond, tr} from './i18n.js';
import {MarkdownView} from './markdown.js';
import {copyText} from './shell.js';
import {TokenStrip} from './tokens.js';

// Models that think aloud do it between <think> and </think> at the beginning, or the template has opened it
// for them.
export function splitThought(text) {
  const open = /^\s*<think>/.exec(text), end = text.indexOf('</think>');
  if (!open && end < 0) return {thought: '', text, thinking: false};
  const from = open ? open[0].length : 0;
  if (end < 0) return {thought: text.slice(from), text: '', thinking: true};
  return {thought: text.slice(from, end), text: text.slice(end + 8).replace(/^\s+/, ''), thinking: false};
}

// Where a token of an answer stands: what was read before it. An answer that was gone on with has several
// parts.
export function idsOf(node, index) {
  const parts = node.parts || [], last = parts.findLastIndex((p) => p.from <= index);
  const part = parts[last];
  if (!part || !part.promptIds) return {ids: null, at: -1};
  const to = parts[last + 1] ? parts[last + 1].from : node.tokens.length;
  const own = node.tokens.slice(part.from, to).map((t) => t.id);
  if (own.some((id) => id === null)) return {ids: null, at: -1};
  return {ids: [...part.promptIds, ...own], at: part.promptIds.length + index - part.from};
}
export function chosenToken(conversation, node, index) {
  const token = node.tokens[index];
  return {
    model: node.model,
    conversation,
    message: node.id,
    index,
    token,
    text: token.text,
    ...idsOf(node, index)
  };
}

// What an error means to whoever asked. [sentence, words of what else is known]
export function errorWords(error) {
  const n = error.numbers || [];
  switch (error.kind) {
    case 'offline':
      return tr('error_offline');
    case 'key':
      return tr('error_key');
    case 'cut':
      return tr('error_cut');
    case 'busy':
      return tr(
          error.code === 'draining'          ? 'error_draining' :
              error.code === 'out_of_memory' ? 'error_memory' :
                                               'error_busy');
    case 'context':
      return n.length >= 4 ? tr('error_context_answer', {prompt: n[0], answer: n[1], sum: n[2], most: n[3]}) :
          n.length >= 2    ? tr('error_context', {prompt: n[0], most: n[n.length - 1]}) :
                             tr('error_context_plain');
    default:
      if (error.code === 'model_not_found') return tr('error_model');
      if (error.code === 'stream_trimmed') return tr('error_trimmed');
      if (error.status === 413) return tr('error_large');
      if (error.status === 504) return tr('error_late');
      if (error.status >= 500) return tr('error_server');
      return tr('error_refused', {message: error.message});
  }
}

// acts: {copy, edit, again, go, remove, turn, retry} (node) → …;  place(node) → [at, of]
export class MessageView {
  constructor(conversation, node, acts) {
    Object.assign(
        this, {conversation, node, acts, markdown: null, strip: null, showTokens: false, wait: null});
    this.role = el('h3', {className: 'role'});
    this.thought = el('div', {className: 'markdown'});
    this.thinking = el('details', {className: 'thought', hidden: true}, el('summary'), this.thought);
    this.body =
        el('div',
           {className: node.role === 'user' ? 'said' : 'markdown', dir: node.role === 'user' ? 'auto' : ''});
    this.state = el('div', {className: 'progress', hidden: true});
    this.error = el('div', {className: 'error', hidden: true});
    this.about = el('span', {className: 'about'});
    this.tools = el('div', {className: 'message-tools'});
    this.element =
        el('article', {className: `message ${node.role}`, tabIndex: -1}, this.role, this.thinking, this.body,
           this.state, this.error, this.tools);
    this.element.dataset.id = node.id;
    this.words();
  }
  remove() {
    if (this.strip) this.strip.remove();
    clearInterval(this.wait);
    this.element.remove();
  }

  // All that is said in the page's language.
  words() {
    const node = this.node, answer = node.role === 'assistant';
    this.role.textContent = answer ? node.model || tr('model') : tr('you');
    this.markdownWords =
        {copy: tr('copy'), code: tr('code'), image: tr('image'), rest: tr('rest'), onCopy: copyText};
    const button = (key, act, more = {}) => {
      const b = el('button', {type: 'button', className: `small act-${key}`, textContent: tr(key), ...more});
      b.addEventListener('click', () => act(b));
      return b;
    };
    this.switch = el('span', {className: 'switch', role: 'group', 'aria-label': tr('branches')});
    this.buttons = [
      button('copy', (b) => copyText(answer ? splitThought(node.text).text : node.text, b)),
      button('edit', () => this.acts.edit(node))
    ];
    if (answer) {
      this.goOn = button('go_on', () => this.acts.go(node), {title: tr('go_on_hint')});
      this.tokensButton = button(
          'tokens', () => this.toggleTokens(),
          {title: tr('tokens_hint'), 'aria-pressed': String(this.showTokens)});
      this.buttons.push(
          button('again', () => this.acts.again(node), {title: tr('again_hint')}), this.goOn,
          this.tokensButton);
      if (this.acts.compare)
        this.buttons.push(
            button('to_compare', () => this.acts.compare(node), {title: tr('to_compare_hint')}));
    }
    this.buttons.push(button('cut', () => this.acts.remove(node), {title: tr('cut_hint')}));
    this.tools.replaceChildren(this.switch, ...this.buttons, this.about);
    if (this.markdown) {
      this.markdown.words = this.markdownWords;
      this.markdown.reset();
    }
    this.update(this.busy);
  }

  toggleTokens() {
    this.showTokens = !this.showTokens;
    this.tokensButton.setAttribute('aria-pressed', String(this.showTokens));
    this.update(this.busy);
  }

  // As the node is now. run: the one that writes it, or null.
  update(run) {
    this.busy = run;
    const node = this.node, writing = Boolean(run);
    this.element.setAttribute('aria-busy', String(writing));
    if (node.role === 'user') {
      if (this.body.textContent !== node.text) this.body.textContent = node.text;
    } else {
      this.answer(writing);
    }
    this.switchers();
    this.progress(run);
    this.figures(writing);
    this.failure(writing);
    for (const b of this.buttons) b.disabled = writing && !/act-(copy|tokens)/.test(b.className);
    // Of an answer that never came there is nothing to copy, to change or to go on with.
    if (node.role === 'assistant')
      for (const b of this.buttons)
        if (/act-(copy|edit|go_on|to_compare)/.test(b.className)) b.hidden = !node.text;
    if (this.tokensButton) this.tokensButton.hidden = !node.tokens || !node.tokens.length;
  }

  answer(writing) {
    const node = this.node, parts = splitThought(node.text);
    const thought = (node.reasoning || '') + parts.thought;
    this.thinking.hidden = !thought.trim();
    if (thought.trim()) {
      this.thoughts ||= new MarkdownView(this.thought, this.markdownWords);
      this.thinking.firstChild.textContent = tr(writing && !parts.text ? 'thinking' : 'thought');
      this.thoughts.set(thought, !writing);
    }
    if (this.showTokens && node.tokens && node.tokens.length) {
      if (this.markdown) this.markdown = this.body.replaceChildren();
      this.strip ||= new TokenStrip(this.body, {
        choose: (i) => chosenToken(this.conversation.id, node, i),
        same: (chosen) => chosen.message === node.id,
        owner: this.node.id,
      });
      this.strip.update(node.tokens);
    } else {
      if (this.strip) this.strip = this.strip.remove();
      this.markdown ||= new MarkdownView(this.body, this.markdownWords);
      this.markdown.set(parts.text, !writing);
    }
    this.body.classList.toggle('growing', writing);
  }

  switchers() {
    const [at, of] = this.acts.place(this.node);
    this.switch.hidden = of < 2;
    const key = `${at} ${of} ${this.switch.getAttribute('aria-label')} ${Boolean(this.busy)}`;
    if (of < 2 || this.shownPlace === key) return;
    this.shownPlace = key;
    const step = (sign, by, word) => {
      const b = el('button', {
        type: 'button',
        className: 'small',
        textContent: sign,
        'aria-label': tr(word),
        disabled: at + by < 0 || at + by >= of || Boolean(this.busy)
      });
      b.addEventListener('click', () => this.acts.turn(this.node, by));
      return b;
    };
    this.switch.replaceChildren(
        step('‹', -1, 'branch_before'), el('span', {textContent: `${at + 1}/${of}`}),
        step('›', 1, 'branch_after'));
  }

  progress(run) {
    const p = run && run.answer.progress, begun = run && (run.answer.text || run.answer.tokens.length);
    this.state.hidden = !run || Boolean(begun);
    if (this.state.hidden) return;
    if (!this.state.firstChild) this.state.append(el('progress', {max: 1}), el('span'));
    const [bar, words] = this.state.children;
    bar.setAttribute('aria-label', tr('reading'));
    if (!p) {
      bar.removeAttribute('value');
      words.textContent = tr('waiting');
      return;
    }
    bar.value = p.total ? p.processed / p.total : 0;
    words.textContent =
        tr(p.cache ? 'reading_cached' : 'reading_n', {n: p.processed, of: p.total, cache: p.cache});
  }

  figures(writing) {
    const node = this.node, said = [];
    if (node.role === 'assistant') {
      const n = node.tokens ? node.tokens.length : 0;
      if (n || node.count) said.push(tr('n_tokens', {n: node.count || n}));
      if (node.speed) said.push(tr('per_second', {x: perSecond(node.speed)}));
      if (!writing && node.detail === 'length') said.push(tr('finish_length'));
      else if (!writing && node.detail === 'context') said.push(tr('finish_context'));
      else if (!writing && node.stopped) said.push(tr('finish_stopped'));
      else if (!writing && !node.finish && node.text && !node.error) said.push(tr('finish_cut'));
      if (!writing && node.seed !== null && node.seed !== undefined)
        said.push(tr('seed_n', {n: String(node.seed)}));
    }
    this.about.textContent = said.join(' · ');
  }

  failure(writing) {
    const error = !writing && this.node.error;
    this.error.hidden = !error;
    if (!error) {
      clearInterval(this.wait);
      this.shownError = null;
      return;
    }
    if (this.shownError === error && this.errorLang === document.documentElement.lang) return;
    this.shownError = error;
    this.errorLang = document.documentElement.lang;
    clearInterval(this.wait);
    const retry = el(
        'button',
        {type: 'button', className: 'small', textContent: tr(error.kind === 'key' ? 'key_enter' : 'retry')});
    retry.addEventListener('click', () => this.acts.retry(this.node));
    const words = el('span', {role: 'alert', textContent: errorWords(error)}),
          left = el('span', {className: 'left'});
    this.error.replaceChildren(words, ' ', left, ' ', retry);
    // An old refusal that is shown again asks for nothing by itself.
    if (error.kind !== 'busy' || !error.seconds || !(error.until > Date.now())) return;
    const cancel = el('button', {type: 'button', className: 'small', textContent: tr('retry_not')});
    cancel.addEventListener('click', () => {
      clearInterval(this.wait);
      left.textContent = '';
      cancel.remove();
    });
    this.error.append(cancel);
    const tick = () => {
      const seconds = Math.ceil((error.until - Date.now()) / 1000);
      left.textContent = tr('retry_in', {n: Math.max(0, seconds)});
      if (seconds > 0) return;
      clearInterval(this.wait);
      this.acts.retry(this.node);
    };
    this.wait = setInterval(tick, 500);
    tick();
  }
}
