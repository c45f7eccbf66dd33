// SPDX-License-Identifier: Apache-2.0
// A recipe as a form: one group for each of its objects, in it the fields that are written, and a list of
// those that are not. The value is never changed in place: put(path, value) is told what a field becomes.
//   schema  of GET /v1/recipe (rapt/recipe/recipe_schema.h says its shape)
//   path    a list of keys and indices; textOf(path) as the server writes it
import {el} from '/page/shared/dom.js';

import {tr} from '../../i18n.js';

export const textOf = (path) => path.reduce(
    (text, step) => typeof step === 'number' ? `${text}[${step}]` :
        text ? `${text}.${step}` :
               step,
    '');

// The value with another one at a path; undefined takes it away.
export function withValue(root, path, value) {
  if (!path.length) return value;
  const [step, ...rest] = path;  // a word that stands for an object makes way for it
  const out = Array.isArray(root) ? [...root] : typeof root === 'object' ? {...root} : {};
  const next = withValue(out[step] ?? (typeof rest[0] === 'number' ? [] : {}), rest, value);
  if (next !== undefined) out[step] = next;
  else if (Array.isArray(out)) out.splice(step, 1);
  else delete out[step];
  return out;
}

// 1e-5, not 0.00001.
const numberText = (x) =>
    typeof x === 'number' && x !== 0 && Math.abs(x) < 1e-4 ? x.toExponential() : JSON.stringify(x);

// JSON with what fits a line on one line.
export function written(value, indent = '') {
  if (typeof value !== 'object' || value === null) return numberText(value);
  const list = Array.isArray(value), deeper = `${indent}  `, [open, shut] = list ? '[]' : '{}';
  const named = (key, text) => list ? text : `${JSON.stringify(key)}: ${text}`;
  const inside = (into) => Object.entries(value).map(([key, v]) => named(key, written(v, into)));
  const flat = `${open}${inside(deeper).join(', ')}${shut}`;
  if (flat === `${open}${shut}` || (indent && indent.length + flat.length <= 64 && !flat.includes('\n')))
    return flat;
  return `${open}\n${inside(deeper).map((line) => deeper + line).join(',\n')}\n${indent}${shut}`;
}

const isObject = (x) => typeof x === 'object' && x !== null && !Array.isArray(x);

export class Form {
  constructor(host, {schema, put, presets}) {
    Object.assign(this, {host, schema, put, presets});
    this.places = [];  // fields that may be opened: {path, field, there}
    this.closed = new Set();
  }
  // error: {path, reason} or null
  draw(value, error = null) {
    const had = document.activeElement && this.host.contains(document.activeElement) ?
        document.activeElement.dataset.at :
        null;
    this.error = error;
    this.places = [];
    this.host.replaceChildren(this.group('Recipe', this.fieldsOf('Recipe'), value, []));
    if (had) this.focus(had);
  }
  focus(at) {
    const there = this.host.querySelector(`[data-at="${CSS.escape(at)}"]`);
    if (!there) return false;
    for (let e = there.parentElement; e && e !== this.host; e = e.parentElement)
      if (e.tagName === 'DETAILS') e.open = true;
    there.focus();
    return true;
  }
  fieldsOf(struct) {
    const fields = this.schema.structs[struct].fields || [];
    if (struct !== 'Recipe') return fields;
    return [{name: 'preset', kind: 'word', words: this.presets, meaning: ''}, ...fields];
  }
  // What a field holds when it is opened.
  standard(shape) {
    if (shape.default !== undefined && !shape.required) return shape.default;
    switch (shape.kind) {
      case 'bool': return false;
      case 'text': return '';
      case 'list': return [];
      case 'letters': return {};
      case 'word': return shape.words[0];
      case 'struct': {
        const {words, options} = this.schema.structs[shape.of];
        return words ? words[0] : options ? options[0].name : {};
      }
      default: return Math.max(shape.low ?? 1, shape.above || shape.nonzero ? 1 : -Infinity);
    }
  }

  // ---------------------------------------------------------------------------------------------- groups
  group(title, fields, value, path, remove = null) {
    const at = textOf(path), box = el('details', {className: 'group', open: !this.closed.has(at)});
    box.addEventListener('toggle', () => box.open ? this.closed.delete(at) : this.closed.add(at));
    const head = el('summary', {}, el('strong', {textContent: title}));
    box.append(head);
    if (remove) box.append(this.taker(remove, title));
    const there = isObject(value) ? value : {}, absent = [];
    for (const field of fields) {
      const own = [...path, field.name];
      this.places.push({path: own, field, there: field.name in there});
      if (field.name in there) box.append(this.row(field, there[field.name], own));
      else absent.push(field);
    }
    for (const key of Object.keys(there))
      if (!fields.some((f) => f.name === key)) box.append(this.strange(there[key], [...path, key]));
    if (absent.length) box.append(this.adder(absent, path, at));
    return box;
  }
  adder(absent, path, at) {
    const pick =
        el('select', {className: 'small add', 'aria-label': tr('recipe_add_to', {x: at || 'recipe'})});
    pick.dataset.at = `${at}+`;
    pick.append(el('option', {value: '', textContent: tr('recipe_add', {n: absent.length})}));
    for (const f of absent) {
      const what = f.meaning;
      pick.append(el('option', {
        value: f.name,
        textContent: what ? `${f.name} · ${what.length > 60 ? `${what.slice(0, 59)}…` : what}` : f.name
      }));
    }
    pick.addEventListener('change', () => {
      if (pick.value) this.open([...path, pick.value], absent.find((f) => f.name === pick.value));
    });
    return pick;
  }
  open(path, field) {
    this.put(path, this.standard(field));
    this.focus(textOf(path));
  }
  taker(path, title) {
    const b = el('button', {
      type: 'button',
      className: 'small take',
      textContent: '✕',
      title: tr('recipe_take'),
      'aria-label': tr('recipe_take_x', {x: title})
    });
    b.addEventListener('click', () => {
      this.put(path, undefined);
      for (let up = path.slice(0, -1); !this.focus(`${textOf(up)}+`) && up.length;) up = up.slice(0, -1);
    });
    return b;
  }

  // ---------------------------------------------------------------------------------------------- fields
  row(field, value, path) {
    const at = textOf(path), id = `recipe-${at}`, box = el('div', {className: 'field'});
    const head = el('div', {className: 'field-head'}, el('label', {htmlFor: id, textContent: field.name}));
    const wrong = this.error && this.error.path === at;
    const help = [field.meaning, this.range(field)];
    const hint = el('small', {id: `${id}-help`, textContent: help.filter(Boolean).join(' · ')});
    const made = this.control(field, value, path);
    if (!made.control && !made.inside) made.control = this.raw(value, path);
    if (!made.control && made.inside.matches('.group')) {  // an object: its group says its name
      made.inside.querySelector('strong').textContent = field.name;
      made.inside.firstChild.after(hint, this.taker(path, field.name));
      return made.inside;
    }
    if (made.inside && made.inside.matches('.group'))  // its name stands in the row
      Object.assign(made.inside, {open: true, className: 'group plain'});
    if (made.control) {
      Object.assign(made.control, {id});
      made.control.dataset.at = at;
      made.control.setAttribute('aria-describedby', hint.id);
      if (wrong) made.control.setAttribute('aria-invalid', 'true');
      head.append(made.control);
    }
    if (!field.required) head.append(this.taker(path, field.name));
    box.append(head, hint);
    if (wrong) box.append(el('small', {className: 'reason', textContent: this.error.reason}));
    if (made.inside) box.append(made.inside);
    return box;
  }
  strange(value, path) {
    return el(
        'div', {className: 'field'},
        el('code', {textContent: `${path[path.length - 1]}: ${JSON.stringify(value)}`}),
        this.taker(path, String(path[path.length - 1])));
  }
  range(f) {
    const low = f.low === undefined ? '' : `${f.low} ${f.above ? '<' : '≤'} x`;
    const high = f.high === undefined || f.high > 2e9 ? '' : `x ${f.below ? '<' : '≤'} ${f.high}`;
    const both = low && high ? `${low}${high.slice(1)}` : low ? `x ${f.above ? '>' : '≥'} ${f.low}` : high;
    const standard =
        f.default === undefined || f.required ? '' : tr('recipe_default', {x: numberText(f.default)});
    return [f.nonzero ? 'x ≠ 0' : both, standard].filter(Boolean).join(' · ');
  }
  // {control, inside}: the element that holds the value, and what stands below it.
  control(shape, value, path) {
    const put = (x) => this.put(path, x);
    switch (shape.kind) {
      case 'bool': {
        const box = el('input', {type: 'checkbox', checked: value === true});
        box.addEventListener('change', () => put(box.checked));
        return {control: box};
      }
      case 'whole':
      case 'number':
        return {
          control: this.line(
              numberText(value),
              (text) => text.trim() === ''      ? undefined :
                  Number.isFinite(Number(text)) ? Number(text) :
                                                  text,
              put, 'decimal')
        };
      case 'text': return {control: this.line(String(value), (text) => text, put)};
      case 'word': return {control: this.choose(shape.words.map((w) => [w, w]), value, put)};
      case 'choice': return this.choice(shape.options, value, path);
      case 'struct': return this.struct(shape, value, path);
      case 'letters': return {inside: this.letters(shape, value, path)};
      default: return this.list(shape, value, path);
    }
  }
  line(value, read, put, inputMode = '') {
    const input = el('input', {type: 'text', value, inputMode, autocomplete: 'off', spellcheck: false});
    input.addEventListener('change', () => put(read(input.value)));
    return input;
  }
  // As JSON: lists of numbers, and what is not of the kind that the field wants.
  raw(value, path) {
    const read = (text) => {
      try {
        return JSON.parse(text);
      } catch {
        return text;
      }
    };
    return this.line(JSON.stringify(value), read, (x) => this.put(path, x));
  }
  choose(list, value, put) {
    const own = list.some(([v]) => v === value) ? [] : [[String(value), String(value)]];
    const select =
        el('select', {},
           ...[...own, ...list].map(
               ([v, text]) => el('option', {value: v, textContent: text, selected: v === value})));
    select.addEventListener('change', () => put(select.value));
    return select;
  }
  choice(options, value, path) {
    const number = options.find((o) => o.form === 'number');
    const name = typeof value === 'number' && number ? number.name :
        isObject(value)                              ? Object.keys(value)[0] :
                                                       value;
    const option = options.find((o) => o.name === name);
    const control = this.choose(options.map((o) => [o.name, o.name]), name, (chosen) => {
      const o = options.find((x) => x.name === chosen);
      const plain =
          o.form === 'word' || o.form === 'group' || (o.form === 'body' && o.inside.kind === 'struct');
      this.put(
          path,
          plain                   ? o.name :
              o.form === 'number' ? this.standard(o.inside) :
                                    {[o.name]: this.standard(o.inside)});
    });
    if (!option || option.form === 'word') return {control};
    const inside = isObject(value) ? value[name] : undefined, own = [...path, name];
    const box = el('div', {}, el('small', {textContent: option.meaning}));
    if (option.form === 'number') box.append(this.bare(option.inside, value, path, name));
    else if (option.form === 'group') box.append(this.group(name, option.fields, inside, own));
    else if (option.inside.kind === 'struct')
      box.append(this.group(name, this.fieldsOf(option.inside.of), inside, own));
    else box.append(this.bare(option.inside, inside, own, name));
    return {control, inside: box};
  }
  bare(shape, value, path, label) {
    const {control} = this.control(shape, value, path);
    control.dataset.at = `${textOf(path)}=`;
    control.setAttribute('aria-label', label);
    return control;
  }
  struct(shape, value, path) {
    const {words = [], options} = this.schema.structs[shape.of];
    if (options) return this.choice(options, value, path);
    const list = [
      ...(shape.absent ? [['null', tr('recipe_absent')]] : []), ...words.map((w) => [w, w]), ['{}', '{ … }']
    ];
    const now = value === null ? 'null' : isObject(value) ? '{}' : value;
    const spelt = shape.of === 'Norm' && words.includes(value) ? {kind: value} : {};
    const put = (chosen) => this.put(path, chosen === 'null' ? null : chosen === '{}' ? spelt : chosen);
    const control = list.length < 2 ? null : this.choose(list, now, put);
    if (!isObject(value)) return {control};
    return {control, inside: this.group(shape.of, this.fieldsOf(shape.of), value, path)};
  }
  list(shape, value, path) {
    const of = shape.of;
    if (of.of === 'Part') return {inside: this.parts(value, path)};
    if (of.kind !== 'struct' || !Array.isArray(value)) return {control: this.raw(value, path)};
    const box =
        el('div', {},
           ...value.map(
               (item, i) =>
                   this.group(`${of.of} ${i + 1}`, this.fieldsOf(of.of), item, [...path, i], [...path, i])));
    box.append(this.more(of.of, () => this.put([...path, value.length], this.standard(of)), textOf(path)));
    return {inside: box};
  }
  more(what, make, at) {
    const b = el('button', {type: 'button', className: 'small', textContent: tr('recipe_more', {x: what})});
    b.dataset.at = `${at}+`;
    b.addEventListener('click', make);
    return b;
  }
  parts(value, path) {
    const box = el('div'), list = Array.isArray(value);
    const one = (word, inside, own, remove) => {
      const struct = this.schema.parts[word];
      if (!struct) return this.strange(inside, own);
      return this.group(word, [...this.fieldsOf(struct), ...this.fieldsOf('Part')], inside, own, remove);
    };
    if (!list)  // changes to the parts of a preset
      for (const [word, inside] of Object.entries(isObject(value) ? value : {}))
        box.append(one(word, inside, [...path, word], [...path, word]));
    else
      value.forEach((part, i) => {
        const word = isObject(part) ? Object.keys(part)[0] : '';
        box.append(one(word, isObject(part) ? part[word] : part, [...path, i, word], [...path, i]));
      });
    const pick =
        el('select', {className: 'small add', 'aria-label': tr('recipe_add_part')},
           el('option', {value: '', textContent: tr('recipe_add_part')}),
           ...Object.keys(this.schema.parts).map((w) => el('option', {value: w, textContent: w})));
    pick.dataset.at = `${textOf(path)}+`;
    pick.addEventListener('change', () => {
      if (pick.value)
        this.put(list ? [...path, value.length] : [...path, pick.value], list ? {[pick.value]: {}} : {});
    });
    box.append(pick);
    return box;
  }
  letters(shape, value, path) {
    const box = el('div'), there = isObject(value) ? value : {};
    for (const [letter, layer] of Object.entries(there))
      box.append(this.group(
          `${shape.of} ${letter}`, this.fieldsOf(shape.of), layer, [...path, letter], [...path, letter]));
    const free = [...'LGABCDEFHIJKMNOPQRSTUVWXYZ'].find((c) => !(c in there));
    if (free)
      box.append(this.more(
          `${shape.of} ${free}`, () => this.put([...path, free], {parts: [{self: {}}, {ffn: {}}]}),
          textOf(path)));
    return box;
  }
}
