// SPDX-License-Identifier: Apache-2.0
// Markdown that is still being written, as elements: blocks that ended are never touched again, only the open
// one is made anew. Nothing here can make markup from a text: elements are created by name, texts are text
// nodes, addresses are http, https or mailto and nothing is loaded from them. Every step takes time in
// proportion to the text's length, whatever stands in it.
//   block  = fence | heading | rule | quote | item | table | maths | paragraph;  an item is a block of its
//   own inline = `code` *em* **strong** ~~del~~ [text](address) <address> address $TeX$ \(TeX\) line break
import {el} from '/page/shared/dom.js';
import {familyOf, highlightLine} from './highlight.js';

const kMost = 200 * 1024;  // characters of a message that are laid out
const kDeep = 8;           // quotes and lists inside each other
const kDeepInline = 16;    // elements inside each other in a line

// ------------------------------------------------------------------------------------------------ blocks
const isBlank = (line) => line.trim() === '';
function indentOf(line) {
  let columns = 0;
  for (let i = 0; i < line.length; ++i) {
    if (line[i] === ' ') ++columns;
    else if (line[i] === '\t') columns += 4 - columns % 4;
    else break;
  }
  return columns;
}
function withoutIndent(line, columns) {
  let i = 0, seen = 0;
  for (; i < line.length && seen < columns; ++i) {
    if (line[i] === ' ') ++seen;
    else if (line[i] === '\t') seen += 4 - seen % 4;
    else break;
  }
  return ' '.repeat(Math.max(0, seen - columns)) + line.slice(i);
}
function isRule(line) {
  const signs = line.replace(/[ \t]/g, '');
  return signs.length >= 3 && '-*_'.includes(signs[0]) && [...signs].every((s) => s === signs[0]);
}
const fenceOf = (line) => /^ {0,3}(`{3,}|~{3,})[ \t]*([^`\s]{0,40})[^`]*$/.exec(line);
const itemOf = (line) => /^([ \t]*)([-+*]|\d{1,9}[.)])(?=[ \t]|$)/.exec(line);
const headingOf = (line) => /^ {0,3}(#{1,6})(?=[ \t]|$)/.exec(line);
const isQuote = (line) => /^ {0,3}>/.test(line);
const isMaths = (line) => /^ {0,3}(?:\$\$|\\\[)/.test(line);

function cellsOf(line) {
  let text = line.trim();
  if (text.startsWith('|')) text = text.slice(1);
  if (text.endsWith('|') && !text.endsWith('\\|')) text = text.slice(0, -1);
  return text.split(/(?<!\\)\|/).map((cell) => cell.trim().replace(/\\\|/g, '|'));
}
function sidesOf(line) {  // of a table's second line; null: it is none
  if (!line.includes('-') || !/^[ \t|:-]+$/.test(line)) return null;
  const cells = cellsOf(line);
  if (!cells.every((cell) => /^:?-+:?$/.test(cell))) return null;
  return cells.map((cell) => cell.endsWith(':') ? (cell.startsWith(':') ? 'center' : 'end') : 'start');
}

// Whether a line ends the paragraph before it.
function interrupts(line) {
  if (fenceOf(line) || headingOf(line) || isQuote(line) || isRule(line)) return true;
  const item = itemOf(line);
  return Boolean(item) && (/^[-+*]/.test(item[2]) || parseInt(item[2], 10) === 1) &&
      !isBlank(line.slice(item[0].length));
}

// Where the block that begins at this line ends, and what it is. Lines: without their ends.
function blockAt(lines, i) {
  const line = lines[i], last = lines.length;
  const fence = fenceOf(line);
  if (fence) {
    let to = i + 1;
    const close = new RegExp(`^ {0,3}${fence[1][0] === '`' ? '`' : '~'}{${fence[1].length},}[ \\t]*$`);
    while (to < last && !close.test(lines[to])) ++to;
    return {
      kind: 'fence',
      lang: fence[2],
      indent: indentOf(line),
      from: i,
      text: i + 1,
      end: to,
      to: Math.min(last, to + 1)
    };
  }
  const heading = headingOf(line);
  if (heading) return {kind: 'heading', level: heading[1].length, from: i, to: i + 1};
  if (isRule(line)) return {kind: 'rule', from: i, to: i + 1};
  if (isQuote(line)) {
    let to = i + 1;
    while (to < last && (isQuote(lines[to]) || (!isBlank(lines[to]) && !interrupts(lines[to])))) ++to;
    return {kind: 'quote', from: i, to};
  }
  const item = itemOf(line);
  if (item) return itemAt(lines, i, item);
  if (isMaths(line)) {
    const end = line.trim().startsWith('$$') ? '$$' : '\\]';
    const closed = (text, from) => text.indexOf(end, from) >= 0;
    let to = i;
    if (!closed(line, line.indexOf(end === '$$' ? '$$' : '\\[') + 2))
      for (++to; to < last && !isBlank(lines[to]) && !closed(lines[to], 0);) ++to;
    if (to >= last || !isBlank(lines[to])) return {kind: 'maths', from: i, to: Math.min(last, to + 1)};
  }
  if (line.includes('|') && i + 1 < last) {
    const sides = sidesOf(lines[i + 1]);
    if (sides && sides.length === cellsOf(line).length) {
      let to = i + 2;
      while (to < last && !isBlank(lines[to]) && (lines[to].includes('|') || !interrupts(lines[to]))) ++to;
      return {kind: 'table', sides, from: i, to};
    }
  }
  let to = i + 1;
  while (to < last && !isBlank(lines[to]) && !interrupts(lines[to])) ++to;
  return {kind: 'paragraph', from: i, to};
}

function itemAt(lines, i, item) {
  const sign = item[2], ordered = /\d/.test(sign), before = indentOf(lines[i]);
  const behind = indentOf(lines[i].slice(item[0].length)),
        width = sign.length + (behind > 4 || behind === 0 ? 1 : behind);
  const need = before + Math.min(width, 2);
  let to = i + 1, fence = fenceOf(lines[i].slice(item[0].length).trimStart());
  for (let n = i + 1; n < lines.length; ++n) {
    const line = lines[n];
    if (isBlank(line)) continue;  // belongs to the item if what follows does
    if (indentOf(line) >= need) {
      const inner = fenceOf(line.trimStart());
      if (inner)
        fence = fence ?
            (inner[2] === '' && inner[1].length >= fence[1].length && inner[1][0] === fence[1][0] ? null :
                                                                                                    fence) :
            inner;
    } else if (fence || isBlank(lines[n - 1]) || interrupts(line) || itemOf(line)) {
      break;
    }
    to = n + 1;
  }
  return {
    kind: 'item',
    ordered,
    start: ordered ? parseInt(sign, 10) : 0,
    sign: sign[sign.length - 1],
    width: before + width,
    from: i,
    to
  };
}

export function blocksOf(lines) {
  const list = [];
  for (let i = 0; i < lines.length;) {
    if (isBlank(lines[i])) {
      ++i;
      continue;
    }
    const block = blockAt(lines, i);
    list.push(block);
    i = block.to;
  }
  return list;
}

// ------------------------------------------------------------------------------------------------ inline
// An address that may be clicked at, or null.
export function safeAddress(text) {
  if (/[\u0000-\u0020\u007f-\u009f\u200b-\u200f\u2028-\u202e\u2066-\u2069\\]/.test(text)) return null;
  let url;
  try {
    url = new URL(text);  // absolute only
  } catch { return null; }
  if (url.protocol === 'mailto:') return url.href;
  if (url.protocol !== 'http:' && url.protocol !== 'https:') return null;
  return url.username || url.password ? null : url.href;
}

// Where a link leads, as people read it.
function targetOf(address) {
  const short = (s) => s.length > 60 ? s.slice(0, 59) + '…' : s;
  if (address.startsWith('mailto:')) return short(address.slice(7));
  const url = new URL(address);
  return short(
      (url.protocol === 'http:' ? 'http://' : '') + url.host + (url.pathname === '/' ? '' : url.pathname) +
      url.search);
}

function linkTo(address, children, said) {
  const link =
      el('a', {href: address, target: '_blank', rel: 'noopener noreferrer', title: address}, ...children);
  const bare = (s) => s.replace(/^https?:\/\//, '').replace(/\/$/, '');
  if (bare(said.trim()) === bare(address) || said.trim() === address.replace(/^mailto:/, '')) return [link];
  return [link, el('span', {className: 'target', textContent: ` (${targetOf(address)})`})];
}

// What stands in the parentheses behind [text]: {address, to} or null.
function destinationAt(text, at) {
  let i = at;
  const spaces = () => {
    while (text[i] === ' ' || text[i] === '\n') ++i;
  };
  spaces();
  let address = '';
  if (text[i] === '<') {
    const end = text.slice(i, i + 2000).search(/[>\n]/);
    if (end < 0 || text[i + end] !== '>') return null;
    address = text.slice(i + 1, i + end);
    i += end + 1;
  } else {
    const from = i;
    for (let deep = 0; i < text.length && i - from < 2000; ++i) {
      const c = text[i];
      if (c === '(' && ++deep > 8) return null;
      if (c === ')' && --deep < 0) break;
      if (c <= ' ') break;
    }
    address = text.slice(from, i);
  }
  spaces();
  const quote = {'"': '"', '\'': '\'', '(': ')'}[text[i]];
  if (quote) {
    const end = text.slice(i + 1, i + 500).indexOf(quote);
    if (end < 0) return null;
    i += end + 2;
    spaces();
  }
  return text[i] === ')' ? {address, to: i + 1} : null;
}

const wide =
    /[\p{Script=Han}\p{Script=Hiragana}\p{Script=Katakana}\p{Script=Hangul}\u3000-\u303f\uff00-\uffef]/u;
const mark = /[\p{P}\p{S}]/u;
const none = (c) => c === undefined || /\s/.test(c);

// Chinese and Japanese write without spaces: their characters count as such beside a sign of emphasis.
function flanks(sign, before, after) {
  const left = !none(after) && (!mark.test(after) || none(before) || mark.test(before) || wide.test(before));
  const right = !none(before) && (!mark.test(before) || none(after) || mark.test(after) || wide.test(after));
  if (sign !== '_') return {open: left, close: right};
  return {open: left && (!right || mark.test(before)), close: right && (!left || mark.test(after))};
}

// Pairs of signs get their beginnings and ends; a sign without a partner stays a text.
function pair(list) {
  const stack = [], open = {'*': 0, '_': 0, '~': 0};
  for (const one of list) {
    if (!one.sign) continue;
    while (one.close && one.n > 0 && open[one.sign] > 0) {
      let other = stack[stack.length - 1];
      while (other.sign !== one.sign) --open[stack.pop().sign], other = stack[stack.length - 1];
      const use = one.sign === '~' ? 2 : Math.min(2, one.n, other.n);
      const tag = one.sign === '~' ? 'del' : use === 2 ? 'strong' : 'em';
      other.begins.unshift(tag);
      one.ends += 1;
      one.n -= use;
      other.n -= use;
      if (other.n === 0) --open[stack.pop().sign];
    }
    if (one.open && one.n > 0) {
      stack.push(one);
      ++open[one.sign];
    }
  }
}

function build(host, list) {
  pair(list);
  const parents = [host];
  const top = () => parents[parents.length - 1];
  for (const one of list) {
    if (one.text !== undefined) top().append(one.text);
    else if (one.node) top().append(one.node);
    else {
      for (let i = 0; i < one.ends; ++i) parents.pop();
      if (one.n > 0) top().append(one.sign.repeat(one.n));
      for (const tag of one.begins) {
        const inner = parents.length > kDeepInline ? top() : el(tag);
        if (inner !== top()) top().append(inner);
        parents.push(inner);
      }
    }
  }
}

const special = /[\\`*_~[\]!<$\n]|https?:\/\//g;

export function inline(host, text, words) {
  const list = [], brackets = [];
  let plain = '', at = 0;
  const flush = () => {
    if (plain) list.push({text: plain});
    plain = '';
  };
  const node = (...nodes) => {
    flush();
    for (const n of nodes) list.push({node: n});
  };
  // Of each run of backticks the next one of its length.
  const closing = new Map(), runs = [...text.matchAll(/`+/g)], seen = new Map();
  for (let i = runs.length; i-- > 0;) {
    closing.set(runs[i].index, seen.get(runs[i][0].length));
    seen.set(runs[i][0].length, runs[i].index);
  }
  const tex = (end, from, most) => {
    const n = text.slice(from, from + most).indexOf(end);
    return n > 0 ? n : -1;
  };
  while (at < text.length) {
    special.lastIndex = at;
    const found = special.exec(text), next = found ? found.index : text.length;
    plain += text.slice(at, next);
    at = next;
    if (!found) break;
    const c = text[at];
    if (c === '\\') {
      const after = text[at + 1],
            n = after === '(' ? tex('\\)', at + 2, 600) :
          after === '['       ? tex('\\]', at + 2, 600) :
                                -1;
      if (n > 0) {
        node(el('code', {className: 'tex', textContent: text.slice(at + 2, at + 2 + n)}));
        at += n + 4;
      } else if (after === '\n') {
        node(el('br'));
        at += 2;
      } else if (after !== undefined && mark.test(after) && after.charCodeAt(0) < 128) {
        plain += after;
        at += 2;
      } else {
        plain += c;
        ++at;
      }
    } else if (c === '`') {
      let n = 1;
      while (text[at + n] === '`') ++n;
      const end = closing.get(at);
      if (end === undefined) {
        plain += '`'.repeat(n);
        at += n;
      } else {
        const inner = text.slice(at + n, end).replace(/\n/g, ' ');
        node(el('code', {textContent: /^ .*[^ ].* $/.test(inner) ? inner.slice(1, -1) : inner}));
        at = end + n;
      }
    } else if (c === '*' || c === '_' || c === '~') {
      let n = 1;
      while (text[at + n] === c) ++n;
      const sides = flanks(c, text[at - 1], text[at + n]);
      if (c === '~' && n !== 2) {
        plain += c.repeat(n);
      } else {
        flush();
        list.push({sign: c, n, ...sides, begins: [], ends: 0});
      }
      at += n;
    } else if (c === '!' && text[at + 1] === '[') {
      flush();
      brackets.push({at: list.length, image: true, from: at + 2});
      list.push({text: '!['});
      at += 2;
    } else if (c === '[') {
      flush();
      brackets.push({at: list.length, image: false, from: at + 1});
      list.push({text: '['});
      ++at;
    } else if (c === ']') {
      const open = brackets.pop(), to = open && text[at + 1] === '(' ? destinationAt(text, at + 2) : null;
      const address = to && safeAddress(to.address);
      if (!address) {
        plain += c;
        ++at;
        continue;
      }
      flush();
      const inside = list.splice(open.at).slice(1), box = el('span'), said = text.slice(open.from, at);
      build(box, inside);
      const children = [...box.childNodes];
      if (open.image) node(...linkTo(address, [`${words.image}: ${box.textContent}`], ''));
      else
        node(...linkTo(
            address, children.length ? children : [targetOf(address)], children.length ? said : address));
      if (!open.image) brackets.length = 0;  // no link inside a link
      at = to.to;
    } else if (c === '<') {
      const rest = text.slice(at, at + 2048), auto = /^<((?:https?:\/\/|mailto:)[^\s<>]+)>/i.exec(rest),
            line = /^<br ?\/?>/i.exec(rest);
      const address = auto && safeAddress(auto[1]);
      if (address) node(...linkTo(address, [auto[1]], auto[1]));
      else if (line) node(el('br'));
      else plain += c;
      at += address ? auto[0].length : line ? line[0].length : 1;
    } else if (c === '$') {
      const twice = text[at + 1] === '$', from = at + (twice ? 2 : 1);
      let n = tex(twice ? '$$' : '$', from, 400);
      if (!twice && n > 0) {
        const inner = text.slice(from, from + n);
        if (/^\s|\s$|\n/.test(inner) || /\d/.test(text[from + n + 1] || ''))
          n = -1;  // two prices, not a formula
      }
      if (n > 0) node(el('code', {className: 'tex', textContent: text.slice(from, from + n).trim()}));
      else plain += text.slice(at, from);
      at = n > 0 ? from + n + (twice ? 2 : 1) : from;
    } else if (c === '\n') {
      plain = plain.replace(/ +$/, '');
      node(el('br'));
      ++at;
    } else if (c === 'h') {
      let address = /^https?:\/\/[^\s<>"'`|\\{}^\u3000-\u303f\uff00-\uff65“”‘’]*/.exec(
          text.slice(at, at + 2000))[0];
      address = trimmed(address);
      const safe = brackets.length ? null : safeAddress(address);  // inside [ ] the link is the bracket's
      if (safe) node(...linkTo(safe, [address], address));
      else plain += address;
      at += address.length;
    } else {
      plain += c;
      ++at;
    }
  }
  flush();
  build(host, list);
}

// A sentence's signs behind an address are the sentence's.
function trimmed(address) {
  let to = address.length;
  for (;;) {
    const c = address[to - 1];
    if (c === ')' && address.slice(0, to).split(')').length > address.slice(0, to).split('(').length) --to;
    else if ('.,;:!?]*_~'.includes(c) && to > 8) --to;
    else return address.slice(0, Math.max(to, 7));
  }
}

// ---------------------------------------------------------------------------------------------- elements
// What would turn the order of characters around in code is shown as a sign.
const seen = (text) => text.replace(/[\u202a-\u202e\u2066-\u2069\u0000-\u0008\u000b-\u001f]/g, '\ufffd');

class Fence {
  constructor(block, words) {
    this.code = el('code');
    this.family = familyOf(block.lang);
    this.state = null;
    this.lines = 0;
    this.open = el('span');
    this.text = '';
    const copy = el('button', {type: 'button', className: 'small', textContent: words.copy});
    copy.addEventListener('click', () => words.onCopy(this.text, copy));
    this.element =
        el('div', {className: 'code'},
           el('div', {className: 'code-head'}, el('span', {textContent: block.lang || words.code}), copy),
           el('pre', {dir: 'ltr'}, this.code));
    this.code.append(this.open);
  }
  line(text) {
    const {parts, state} = highlightLine(seen(text), this.state, this.family);
    return {
      state,
      nodes: parts.map(
          ([kind, t]) => kind === 'other' ? t : el('span', {className: `k-${kind}`, textContent: t}))
    };
  }
  // All its lines so far; of an open block the last one may still grow.
  update(lines, open) {
    this.text = lines.join('\n') + (lines.length ? '\n' : '');
    const whole = open ? lines.length - 1 : lines.length;
    for (; this.lines < whole; ++this.lines) {
      const {state, nodes} = this.line(lines[this.lines]);
      this.open.before(...nodes, '\n');
      this.state = state;
    }
    this.open.replaceChildren(...(open && lines.length ? this.line(lines[whole]).nodes : []));
  }
}

class Table {
  constructor(block, words) {
    this.words = words;
    this.sides = block.sides;
    this.body = el('tbody');
    this.rows = 0;
    this.head = el('tr');
    this.element = el('div', {className: 'scroll'}, el('table', {}, el('thead', {}, this.head), this.body));
  }
  row(line, tag) {
    const cells = cellsOf(line), tr = el('tr');
    this.sides.forEach((side, i) => {
      const cell = el(tag, {className: `to-${side}`});
      if (tag === 'th') cell.scope = 'col';
      inline(cell, cells[i] || '', this.words);
      cell.dir = 'auto';
      tr.append(cell);
    });
    return tr;
  }
  update(lines, open) {  // header, signs, rows
    if (!this.head.firstChild) this.head.append(...this.row(lines[0], 'th').childNodes);
    const whole = lines.length - 2 - (open ? 1 : 0);
    if (this.last) this.last.remove();
    this.last = null;
    for (; this.rows < whole; ++this.rows) this.body.append(this.row(lines[2 + this.rows], 'td'));
    if (open && lines.length > 2) this.body.append(this.last = this.row(lines[lines.length - 1], 'td'));
  }
}

// A block that is complete, or made anew each time.
function element(block, lines, words, deep) {
  const own = lines.slice(block.from, block.to);
  switch (block.kind) {
    case 'fence': {
      const fence = new Fence(block, words);
      fence.update(lines.slice(block.text, block.end).map((l) => withoutIndent(l, block.indent)), false);
      return fence.element;
    }
    case 'heading': {
      let text = own[0].trim().slice(block.level).trim();
      let end = text.length;
      while (end > 0 && text[end - 1] === '#') --end;
      if (end < text.length && (end === 0 || text[end - 1] === ' ')) text = text.slice(0, end).trim();
      const heading = el(`h${Math.min(6, block.level + 2)}`);
      inline(heading, text, words);
      heading.dir = 'auto';
      return heading;
    }
    case 'rule':
      return el('hr');
    case 'quote': {
      const quote = el('blockquote');
      fill(quote, own.map((l) => l.replace(/^ {0,3}> ?/, '')), words, deep + 1);
      quote.dir = 'auto';
      return quote;
    }
    case 'maths':
      return el('pre', {className: 'tex', dir: 'ltr'}, el('code', {
                  textContent: seen(own.join('\n').trim().replace(/^(?:\$\$|\\\[)\s*|\s*(?:\$\$|\\\])$/g, ''))
                }));
    case 'table': {
      const table = new Table(block, words);
      table.update(own, false);
      return table.element;
    }
    default: {
      const p = el('p');
      inline(p, own.map((l) => l.trimStart()).join('\n').trimEnd(), words);
      p.dir = 'auto';
      return p;
    }
  }
}

function itemElement(block, lines, words, deep) {
  const item = el('li');
  const own = lines.slice(block.from, block.to)
                  .map((l, i) => i ? withoutIndent(l, block.width) : l.replace(itemOf(l)[0], '').trimStart());
  const task = /^\[([ xX])\] /.exec(own[0]);
  if (task) {
    own[0] = own[0].slice(4);
    item.className = 'task';
    item.append(el('span', {'aria-hidden': 'true', textContent: task[1] === ' ' ? '☐ ' : '☑ '}));
  }
  const loose = own.some((l, i) => isBlank(l) && i > 0 && i < own.length - 1);
  fill(item, own, words, deep + 1, !loose);
  item.dir = 'auto';  // at the end: each piece would be asked for its direction again
  return item;
}

// The list that an item goes on with, or a new one behind what is there.
function listFor(host, block) {
  const last = host.lastElementChild, tag = block.ordered ? 'OL' : 'UL';
  if (last && last.tagName === tag && last.dataset.sign === block.sign && host.lastChild === last)
    return last;
  const list = el(tag.toLowerCase());
  list.dataset.sign = block.sign;
  if (block.ordered && block.start !== 1) list.start = block.start;
  host.append(list);
  return list;
}

function fill(host, lines, words, deep, tight = false) {
  if (deep > kDeep) {
    host.append(lines.join('\n'));
    return;
  }
  for (const block of blocksOf(lines)) {
    if (block.kind === 'item') {
      listFor(host, block).append(itemElement(block, lines, words, deep));
    } else {
      const e = element(block, lines, words, deep);
      if (tight && block.kind === 'paragraph') host.append(...e.childNodes);
      else host.append(e);
    }
  }
}

// ------------------------------------------------------------------------------------------- what grows
// words: {copy, code, image, rest} and onCopy(text, button).
export class MarkdownView {
  constructor(host, words) {
    this.host = host;
    this.words = words;
    this.reset();
  }
  reset() {
    this.host.replaceChildren();
    this.text = '';
    this.settled = 0;   // characters whose blocks are complete
    this.passing = [];  // elements behind them, made anew each time
    this.grows = null;  // a fence or a table that is open: it takes new lines as they come
    this.note = null;
    this.over = false;
  }

  // The whole text so far: once a frame at most. over: nothing follows; where something does all the same
  // (an answer that is gone on with), it belongs to the block that was last.
  set(text, over = false) {
    const kept = text.length > kMost ? text.slice(0, kMost) : text;
    if (!kept.startsWith(this.text) || (this.over && !(over && kept === this.text))) this.reset();
    this.over = over;
    this.text = kept;
    const lines = kept.slice(this.settled).split('\n'), blocks = blocksOf(lines);
    // A block is complete where the first line of the next one is.
    let ended = over ? blocks.length : 0;
    while (ended + 1 < blocks.length && blocks[ended + 1].from < lines.length - 1) ++ended;
    for (const e of this.passing) {
      const list = e.tagName === 'LI' ? e.parentElement : null;
      e.remove();
      if (list && !list.firstChild) list.remove();
    }
    this.passing = [];
    blocks.forEach((block, i) => {
      const open = i >= ended,
            grows = i === 0 || !open || i === ended ? this.growing(block, open, lines) : null;
      if (grows) {
        grows.update(this.linesOf(block, lines), open && block.to === lines.length);
        if (!open) this.grows = null;
      } else {
        const e = this.append(block, lines);
        if (open) this.passing.push(e);
      }
    });
    const begin = ended < blocks.length ? blocks[ended].from : over ? lines.length : 0;
    for (let i = 0; i < begin; ++i) this.settled += lines[i].length + 1;
    this.settled = Math.min(this.settled, kept.length);
    if (text.length > kMost && !this.note)
      this.host.append(this.note = el('p', {className: 'note', textContent: this.words.rest}));
  }

  // The view of an open fence or table: the one that is there, or a new one; null: the block is neither.
  growing(block, open, lines) {
    const key = block.kind === 'fence' ? `fence ${block.lang}` : block.kind;
    if (this.grows && this.grows.key === key) return this.grows;
    if (this.grows) this.grows.element.remove();
    this.grows = null;
    if (!open || !['fence', 'table'].includes(block.kind) || block.from === lines.length - 1) return null;
    this.grows = new (block.kind === 'fence' ? Fence : Table)(block, this.words);
    this.grows.key = key;
    this.host.append(this.grows.element);
    return this.grows;
  }
  linesOf(block, lines) {
    return block.kind === 'fence' ?
        lines.slice(block.text, block.end).map((l) => withoutIndent(l, block.indent)) :
        lines.slice(block.from, block.to);
  }
  append(block, lines) {
    if (block.kind === 'item') {
      const item = itemElement(block, lines, this.words, 0);
      listFor(this.host, block).append(item);
      return item;
    }
    const e = element(block, lines, this.words, 0);
    this.host.append(e);
    return e;
  }
}
