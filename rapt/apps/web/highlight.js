// SPDX-License-Identifier: Apache-2.0
// Code in five kinds of words: comment, string, number, keyword, other. Line by line, with the state between
// lines handed on, so that a fence that still grows never colours a line twice.
const words = (text) => new Set(text.split(' '));

const kC =
    'if else for while do switch case default break continue return goto sizeof struct union enum ' +
    'typedef static const extern void int char float double long short unsigned signed bool true ' +
    'false null nullptr new delete class public private protected virtual override template typename ' +
    'namespace using auto constexpr inline this throw try catch operator friend explicit noexcept ' +
    'import export from as async await function let var of in instanceof typeof yield extends ' +
    'implements interface type final abstract package super undefined fn mut pub impl trait match ' +
    'loop move ref where use mod crate self Self dyn unsafe func defer go chan map range select ' +
    'string byte error nil fun val when object is foreach readonly sealed internal record';
const kPython =
    'and as assert async await break class continue def del elif else except False finally for from ' +
    'global if import in is lambda None nonlocal not or pass raise return True try while with yield ' +
    'match case self';
const kShell =
    'if then else elif fi for while until do done case esac in function return exit local export set ' +
    'unset source alias echo cd test read shift trap true false';
const kSql =
    'select from where and or not in is null like between join left right inner outer full on as ' +
    'group by having order asc desc limit offset insert into values update set delete create table ' +
    'view index drop alter add primary key foreign references unique default check union all distinct ' +
    'case when then else end exists with begin commit rollback int integer text varchar char real ' +
    'boolean date timestamp true false';
const kRuby =
    'def end if elsif else unless while until for in do begin rescue ensure class module return yield ' +
    'self nil true false and or not then case when require attr_accessor lambda proc raise local ' +
    'function repeat';
const kHaskell =
    'where let in do of case data type newtype class instance deriving module import if then else ' +
    'forall infixl infixr qualified as hiding fun val rec match with begin end';

// line: signs that begin a comment to the line's end. block: [begin, end]. quotes: signs of strings; long:
// those that reach over lines.
const family = (keywords, line, block, quotes, more = {}) =>
    ({keywords: words(keywords), line, block, quotes: quotes.split(' '), long: [], ...more});
const c = family(kC, ['//'], ['/*', '*/'], '" \'', {long: ['`']});
const python = family(kPython, ['#'], null, '" \'', {long: ['"""', '\'\'\'']});
const shell = family(kShell, ['#'], null, '" \'');
const sql = family(kSql, ['--'], ['/*', '*/'], '" \'', {plain: true});
const ruby = family(kRuby, ['#'], null, '" \'');
const lua = family(kRuby, ['--'], ['--[[', ']]'], '" \'');
const haskell = family(kHaskell, ['--'], ['{-', '-}'], '"');
const markup = family('', [], ['<!--', '-->'], '"', {tags: true});
const style = family('important media import from to and not only', [], ['/*', '*/'], '" \'');
const data = family('true false null yes no on off', ['#'], null, '" \'');
const json = family('true false null', ['//'], ['/*', '*/'], '"');

const kFamilies = {};
const named = (names, f) => {
  for (const n of names.split(' ')) kFamilies[n] = f;
};
named(
    'c h cc cpp c++ cxx hpp cuda cu js javascript mjs ts typescript jsx tsx java kotlin kt go golang ' +
    'rust rs cs csharp swift php dart scala zig glsl hlsl proto',
    c);
named('py python python3 gd', python);
named('sh bash shell zsh fish console make makefile dockerfile cmake r perl pl', shell);
named('sql sqlite mysql postgresql', sql);
named('rb ruby elixir ex julia jl', ruby);
named('lua', lua);
named('hs haskell ml ocaml fsharp elm ada', haskell);
named('html xml svg xhtml vue', markup);
named('css scss less', style);
named('yaml yml toml ini conf properties', data);
named('json json5 jsonc', json);

export const familyOf = (name) => kFamilies[(name || '').toLowerCase()] || null;

const number = /^(?:0[xX][\da-fA-F_]+|0[bB][01_]+|\d[\d_]*(?:\.\d[\d_]*)?(?:[eE][+-]?\d+)?)[a-zA-Z]{0,3}/;
const name = /^[\p{L}_$][\p{L}\p{N}_$]*/u;

// One line → {parts: [[kind, text]], state}; state is what must still end: null, or [kind, its end].
export function highlightLine(line, state, f) {
  if (!f) return {parts: [['other', line]], state: null};
  const parts = [];
  const put = (kind, text) => {
    if (!text) return;
    const last = parts[parts.length - 1];
    if (last && last[0] === kind) last[1] += text;
    else parts.push([kind, text]);
  };
  let at = 0;
  const until = (kind, end, from) => {  // at `from` behind its beginning; true: it ends in this line
    let stop = from;
    for (;;) {
      if (stop >= line.length) break;
      if (kind === 'string' && line[stop] === '\\') {
        stop += 2;
        continue;
      }
      if (line.startsWith(end, stop)) {
        put(kind, line.slice(at, stop + end.length));
        at = stop + end.length;
        return true;
      }
      ++stop;
    }
    put(kind, line.slice(at));
    at = line.length;
    return false;
  };
  if (state && !until(state[0], state[1], 0)) return {parts, state};
  while (at < line.length) {
    const rest = line.slice(at, at + 64);
    if (f.block && line.startsWith(f.block[0], at)) {
      if (!until('comment', f.block[1], at + f.block[0].length))
        return {parts, state: ['comment', f.block[1]]};
      continue;
    }
    const long = f.long.find((q) => line.startsWith(q, at));
    if (long) {
      if (!until('string', long, at + long.length)) return {parts, state: ['string', long]};
      continue;
    }
    const before = at > 0 ? line[at - 1] : ' ';
    if (f.line.some((s) => line.startsWith(s, at) && (s !== '#' || /[\s;({[]/.test(before)))) {
      put('comment', line.slice(at));
      break;
    }
    if (f.quotes.includes(line[at]) && !(line[at] === '\'' && /[\p{L}\p{N}]/u.test(before))) {
      until('string', line[at], at + 1);  // strings of one sign end with the line
      continue;
    }
    let m;
    if (f.tags && (m = /^<\/?[\w:-]+|^\/?>/.exec(rest))) put('keyword', m[0]);
    else if ((m = name.exec(rest)))
      put(f.keywords.has(f.plain ? m[0].toLowerCase() : m[0]) ? 'keyword' : 'other', m[0]);
    else if ((m = number.exec(rest))) put('number', m[0]);
    else put('other', (m = [String.fromCodePoint(line.codePointAt(at))])[0]);
    at += m[0].length;
  }
  return {parts, state: null};
}
