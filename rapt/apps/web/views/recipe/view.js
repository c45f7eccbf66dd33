// SPDX-License-Identifier: Apache-2.0
// Recipes (rapt serve --lab): a preset or one's own as a form and as JSON, either of which may be edited, its
// drawing and its costs beside it, and what differs from another one. The server says what holds
// (/v1/recipe/show); nothing is computed here.
import {el} from '/page/shared/dom.js';

import {askJson} from '../../api.js';
import {count, say, tr} from '../../i18n.js';
import {errorWords} from '../../message.js';
import {copyText, openView, saveFile} from '../../shell.js';
import {follow, set, state} from '../../state.js';

import {Form, textOf, withValue, written} from './form.js';

const kFirst = 'gpt-char', kPause = 250;

const ui = {};
let known = null;  // {presets, schema}
let form = null;
let text = '', value = null;  // the recipe as JSON, and as a value where the JSON is whole
let base = {name: '', text: ''};  // the preset it began as
let reply = null, error = null;  // of the server, about the text
let other = null;  // what it is compared with: {preset} | {text, name}
let timer = 0, coming = null, picture = '';

// -------------------------------------------------------------------------------------------- asking
// The schema with its lines of meaning in the page's language.
async function help() {
  known = await askJson(`/v1/recipe?lang=${state.lang}`);
  if (form) form.schema = known.schema;
}

async function load() {
  try {
    await help();
  } catch (e) {
    ui.error.hidden = false;
    ui.error.textContent = errorWords(e);
    return;
  }
  ui.error.hidden = true;
  form = new Form(ui.form, {schema: known.schema, put, presets: known.presets.map((p) => p.name)});
  const list = () => known.presets.map((p) => el('option', {value: p.name, textContent: p.name}));
  ui.preset.replaceChildren(...list());
  ui.other.replaceChildren(
      el('option', {value: '', textContent: tr('recipe_nothing')}),
      el('option', {value: '=', textContent: tr('recipe_as_now')}), ...list());
  ui.body.hidden = false;
  await take(kFirst);
}

async function take(name) {
  ui.preset.value = name;
  try {
    const there = await askJson('/v1/recipe/show', {body: {preset: name, lang: state.lang}});
    text = there.written.trimEnd();
    base = {name, text};
    value = JSON.parse(text);
    ui.text.value = text;
    accept(there);
    drawForm();
    compare();
  } catch (e) {
    refuse(e);
  }
}

// The text has changed; what it means is asked for when nobody has typed for a moment.
function later() {
  clearTimeout(timer);
  ui.busy.hidden = false;
  timer = setTimeout(ask, kPause);
}
async function ask() {
  if (coming) coming.abort();
  coming = new AbortController();
  const {signal} = coming;
  try {
    accept(await askJson('/v1/recipe/show', {body: {text, lang: state.lang}, signal}));
    drawForm();
    compare();
  } catch (e) {
    if (e.name !== 'AbortError') refuse(e);
  }
}

function accept(there) {
  reply = there;
  error = null;
  ui.busy.hidden = true;
  ui.error.hidden = true;
  ui.text.removeAttribute('aria-invalid');
  drawReply();
}

// recipe:LINE:COLUMN: FIELD: reason, or recipe "name": FIELD: reason.
function refuse(e) {
  ui.busy.hidden = true;
  const [, line, column, rest] = e.message.match(/^recipe:(\d+):(\d+): (.*)$/s) ||
      [null, 0, 0, e.message.replace(/^recipe "[^]*?": /, '')];
  const [, path, reason] = rest.match(/^([\w.[\]]+): (.*)$/s) || [null, '', rest];
  error = {line: Number(line), column: Number(column), path, reason};
  const ours = e.kind === 'refused' && /^recipe/.test(e.message);
  ui.error.hidden = false;
  ui.error.replaceChildren(el('span', {
    textContent: !ours ? errorWords(e) :
        line           ? tr('recipe_wrong_at', {line: Number(line), column: Number(column), x: rest}) :
                         tr('recipe_wrong', {x: rest})
  }));
  if (line) {
    const go = el('button', {type: 'button', className: 'small', textContent: tr('recipe_go')});
    go.addEventListener('click', goTo);
    ui.error.append(' ', go);
  }
  if (ours) ui.text.setAttribute('aria-invalid', 'true');
  ui.result.classList.add('old');
  if (form && value) form.draw(value, error);
}

function goTo() {
  const at = text.split('\n').slice(0, error.line - 1).reduce((sum, l) => sum + l.length + 1, 0);
  ui.text.focus();
  ui.text.setSelectionRange(at + error.column - 1, at + error.column);
}

// ----------------------------------------------------------------------------------------- both sides
function put(path, x) {
  value = withValue(value, path, x);
  text = written(value);
  ui.text.value = text;
  error = null;
  drawForm();
  later();
}

function typed() {
  text = ui.text.value;
  try {
    const there = JSON.parse(text);
    value = typeof there === 'object' && there && !Array.isArray(there) ? there : null;
  } catch {
    value = null;
  }
  drawForm();
  later();
}

function drawForm() {
  ui.waits.hidden = value !== null;
  ui.form.inert = value === null;
  if (value && form) form.draw(value, error);
  find();
}

function find() {
  const wanted = ui.search.value.trim().toLowerCase();
  const hit = ({field}) => !wanted                 ? 0 :
      field.name.includes(wanted)                  ? 2 :
      field.meaning.toLowerCase().includes(wanted) ? 1 :
                                                     0;
  const found = !form || !wanted ? [] :
                                   form.places.map((p) => ({...p, rank: hit(p)}))
                                       .filter((p) => p.rank)
                                       .sort((a, b) => b.rank - a.rank)
                                       .slice(0, 12);
  ui.found.replaceChildren(...found.map((p) => {
    const b =
        el('button', {type: 'button', className: 'small'}, el('code', {textContent: textOf(p.path)}),
           el('span', {textContent: p.field.meaning}));
    b.addEventListener('click', () => {
      if (p.there) form.focus(textOf(p.path));
      else form.open(p.path, p.field);
    });
    return el('li', {}, b);
  }));
  ui.none.hidden = !wanted || found.length > 0;
}

// --------------------------------------------------------------------------------------------- reply
function pair(host, name, text) {
  host.append(el('dt', {textContent: tr(name)}), el('dd', {textContent: text}));
}
const bytes = (v) => tr('recipe_bytes', {a: v.short[0], b: v.short[1]});
const flops = (p) => tr('recipe_flops_are', {a: p.short[0], b: p.short[1]});

function facts(host, f) {
  host.replaceChildren();
  pair(
      host, 'recipe_parameters',
      f.parameters < 1000 ? count(f.parameters) : `${count(f.parameters)} (${f.short})`);
  if (f.active !== f.parameters) pair(host, 'recipe_active', count(f.active));
  pair(host, 'recipe_weights', bytes(f.weights));
  if (f.kv) pair(host, 'recipe_kv', bytes(f.kv));
  if (f.kv_source) pair(host, 'recipe_kv_source', bytes(f.kv_source));
  if (f.state) pair(host, 'recipe_state', bytes(f.state));
  pair(host, 'recipe_flops', flops(f.flops));
  if (f.flops_source) pair(host, 'recipe_flops_source', flops(f.flops_source));
}

function drawReply() {
  if (!reply) return;
  ui.result.classList.remove('old');
  ui.name.textContent = reply.name;
  ui.note.textContent = reply.note;
  facts(ui.facts, reply.facts);
  ui.groups.replaceChildren(...reply.facts.groups.map(
      (g) => el(
          'tr', {}, el('th', {scope: 'row', textContent: g.name}), el('td', {textContent: count(g.count)}))));
  ui.drawing.textContent = reply.drawing;
  // A picture of its own document: no script of it runs, and nothing of it is a part of this page.
  const themed = reply.svg.replace(
      /@media ?\(prefers-color-scheme: ?dark\)/g, state.theme === 'dark' ? '@media all' : '@media not all');
  const before = picture;
  picture = URL.createObjectURL(new Blob([themed], {type: 'image/svg+xml'}));
  ui.picture.src = picture;
  ui.picture.alt = tr('recipe_picture', {x: reply.name, n: reply.facts.short});
  if (before) URL.revokeObjectURL(before);
  commands();
}

// ------------------------------------------------------------------------------------------- commands
const fileName = () =>
    `${(reply.name.match(/[A-Za-z0-9_-][A-Za-z0-9._-]*/) || ['recipe'])[0].replace(/^-+/, '') || 'recipe'}`;
function command(verb) {
  const own = text.trim() !== base.text, what = own ? `${fileName()}.json` : base.name;
  const file = own ? `cat > ${what} <<'END'\n${text.trim()}\nEND\n` : '';
  return `${file}rapt ${verb} ${what}${verb === 'train' ? ` --data text.txt --out out/${fileName()}` : ''}\n`;
}
function commands() { ui.command.textContent = command('show') + command('train').split('\n').slice(-2)[0]; }

// -------------------------------------------------------------------------------------------- compare
async function compare() {
  ui.differ.hidden = !other;
  if (!other || error) return;
  try {
    const {name, ...spec} = other;
    const there = await askJson('/v1/recipe/diff', {body: {a: spec, b: {text}}});
    const row = (path, about, a, b) =>
        el('tr', {},
           el('th', {scope: 'row'}, el('code', {textContent: path}),
              ...(about ? [el('small', {textContent: about})] : [])),
           el('td', {textContent: a}), el('td', {textContent: b}));
    const f = [there.a, there.b];
    const costs = [
      ['recipe_parameters', (x) => count(x.parameters)], ['recipe_kv', (x) => x.kv ? bytes(x.kv) : '–'],
      ['recipe_flops', (x) => flops(x.flops)]
    ].filter(([, of]) => of(f[0]) !== of(f[1]));
    ui.differ_head.replaceChildren(
        el('th', {textContent: tr('recipe_field')}), el('th', {textContent: name || there.a.name}),
        el('th', {textContent: tr('recipe_this')}));
    ui.differ_body.replaceChildren(
        ...there.differences.map(
            (d) =>
                row(d.path, meaningAt(d.path), d.a === 'absent' ? tr('recipe_absent') : d.a,
                    d.b === 'absent' ? tr('recipe_absent') : d.b)),
        ...costs.map(([name_, of]) => row(tr(name_), '', of(f[0]), of(f[1]))));
    ui.differ_table.hidden = !there.differences.length;
    ui.differ_said.textContent = there.differences.length ?
        tr('recipe_differences', {n: there.differences.length, x: name || there.a.name}) :
        tr('recipe_same', {x: name || there.a.name});
  } catch (e) {
    ui.differ_table.hidden = true;
    ui.differ_said.textContent = errorWords(e);
  }
}

// The line of meaning of the field that a path ends in, by walking the schema.
function meaningAt(path) {
  const {structs, parts} = known.schema;
  let fields = form.fieldsOf('Recipe'), said = '';
  for (const step of path.split(/[.[\]]+/)) {
    const f = fields.find((x) => x.name === step);
    if (!f) continue;  // a letter, a place in a list
    said = f.meaning || said;
    const inside = f.inside || f, of = inside.of && (inside.of.of || inside.of);
    if (f.fields) fields = f.fields;
    else if (inside.options) fields = inside.options;
    else if (of === 'Part')
      fields = Object.entries(parts).map(
          ([name, struct]) => ({name, fields: [...form.fieldsOf(struct), ...form.fieldsOf('Part')]}));
    else if (structs[of]) fields = structs[of].options || form.fieldsOf(of);
  }
  return said;
}

// ---------------------------------------------------------------------------------------------- page
function button(name, run, className = 'small') {
  const b =
      el('button', {type: 'button', className: `${className} do-${name}`, 'data-text': `recipe_${name}`});
  b.addEventListener('click', () => run(b));
  return b;
}
const labelled = (name, control) =>
    el('label', {className: 'labelled'}, el('span', {'data-text': name}), control);

export function mount(panel) {
  panel.classList.add('recipe');
  Object.assign(ui, {
    preset: el('select', {id: 'recipe-preset'}),
    other: el('select', {id: 'recipe-other'}),
    search: el(
        'input',
        {type: 'search', id: 'recipe-search', 'data-ghost': 'recipe_search', 'data-label': 'recipe_search'}),
    found: el('ul', {className: 'found'}),
    none: el('p', {className: 'hint', hidden: true, 'data-text': 'recipe_none'}),
    form: el('form', {className: 'recipe-form', 'data-label': 'recipe_form'}),
    waits: el('p', {className: 'hint', hidden: true, 'data-text': 'recipe_waits'}),
    text:
        el('textarea',
           {id: 'recipe-text', spellcheck: false, 'data-label': 'recipe_json', autocapitalize: 'off'}),
    error: el('p', {className: 'error', role: 'alert', hidden: true}),
    busy: el('span', {className: 'hint', hidden: true, 'data-text': 'recipe_busy'}),
    name: el('h2'),
    note: el('p', {className: 'hint'}),
    facts: el('dl', {className: 'facts'}),
    groups: el('tbody'),
    picture: el('img', {className: 'recipe-picture'}),
    drawing: el('pre'),
    command: el('pre'),
    differ: el('section', {className: 'differ', hidden: true}),
    differ_said: el('p', {role: 'status'}),
    differ_head: el('tr'),
    differ_body: el('tbody'),
  });
  ui.preset.addEventListener('change', () => take(ui.preset.value));
  ui.other.addEventListener('change', () => {
    const v = ui.other.value;
    other = v === '=' ? {text, name: tr('recipe_before')} : v ? {preset: v} : null;
    compare();
  });
  ui.search.addEventListener('input', find);
  ui.form.addEventListener('submit', (event) => event.preventDefault());
  ui.text.addEventListener('input', typed);
  ui.differ_table =
      el('div', {className: 'scroll', tabIndex: 0},
         el('table', {className: 'numbers'}, el('thead', {}, ui.differ_head), ui.differ_body));
  ui.differ.append(ui.differ_said, ui.differ_table);
  const twin = (title, ...inner) =>
      el('details', {className: 'twin'}, el('summary', {'data-text': title}),
         el('div', {className: 'scroll'}, ...inner));
  ui.result =
      el('div', {className: 'recipe-result'}, el('div', {className: 'row'}, ui.name, ui.busy), ui.note,
         ui.facts, twin('recipe_shares', el('table', {className: 'numbers'}, ui.groups)), ui.picture,
         twin('recipe_as_text', ui.drawing));
  ui.body =
      el('div', {className: 'recipe-body', hidden: true},
         el('div', {className: 'row recipe-top'}, labelled('recipe_preset', ui.preset),
            labelled('recipe_with', ui.other),
            button(
                'train',
                () => {
                  set({recipe: text});
                  openView('train');
                },
                'main'),
            button('show', (b) => copyText(command('show'), b)),
            button('train_command', (b) => copyText(command('train'), b)),
            button('download', () => saveFile(`${fileName()}.json`, `${text}\n`))),
         twin('recipe_command', ui.command), ui.differ,
         el('div', {className: 'recipe-room'},
            el('section', {className: 'recipe-side'}, el('h3', {'data-text': 'recipe_form'}), ui.search,
               ui.found, ui.none, ui.waits, ui.form),
            el('section', {className: 'recipe-side'}, el('h3', {'data-text': 'recipe_json'}), ui.text),
            ui.result));
  panel.append(el('p', {className: 'recipe-lead', 'data-text': 'recipe_lead'}), ui.error, ui.body);
  say(panel);
  follow('lang', async () => {
    if (!known) return;
    ui.other.options[0].textContent = tr('recipe_nothing');
    ui.other.options[1].textContent = tr('recipe_as_now');
    drawReply();
    try {
      await help();
    } catch {
      // its lines stay in the other language
    }
    drawForm();
    ask();
  }, true);
  follow('theme', drawReply, true);
}

export function show() {
  if (!known) load();
}
