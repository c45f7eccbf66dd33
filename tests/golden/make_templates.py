#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Chat templates of our own writing that use what released ones use, rendered by jinja2 as transformers sets
# it up. Writes chat_templates/cases.json: {"conversations": {name: messages}, "cases": [{template,
# conversation, variables, add, expected}]}. Needs jinja2 (3.1.6); the build and the tests do not.
import json
import pathlib

import jinja2
import jinja2.ext
import jinja2.sandbox

CONVERSATIONS = {
    "empty": [],
    "hello": [{"role": "user", "content": "Hello"}],
    "system": [{"role": "system", "content": "  Be brief.\n"}, {"role": "user", "content": "Hi  there \n"}],
    "turns": [{"role": "system", "content": "S"}, {"role": "user", "content": "one"},
              {"role": "assistant", "content": "two"},
              {"role": "user", "content": "three"}, {"role": "assistant",
                                                     "content": "<think>\nhm\n</think>\n\nfour"},
              {"role": "user", "content": "five"}],
    "signs": [{"role": "user", "content": "é日本 'single' \"double\" \\ \t <b> & \u0001 🙂"},
              {"role": "assistant", "content": ""}],
    "parts": [{"role": "user", "content": [{"type": "text", "text": "look: "}, {"type": "image"},
                                           {"type": "text", "text": "what?"}]}],
    "tools": [{"role": "user", "content": "weather?"},
              {"role": "assistant", "content": None,
               "tool_calls": [{"id": "abc", "type": "function", "function": {
                  "name": "weather", "arguments": {
                      "city": "Bonn", "days": 2, "exact": True, "at": [
                          50.7, 7.0, 1e-7, 1e16], "none": None}}}]},
              {"role": "tool", "content": "{\"t\": 20}", "tool_call_id": "abc"},
              {"role": "assistant", "content": "20"}],
}
TOOLS = [{"type": "function", "function": {"name": "weather", "description": "The weather's state",
                                           "parameters": {
    "type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer", "enum": [1, 2]}},
    "required": ["city"]}}}]
ALL = list(CONVERSATIONS)
SOME = ["hello", "system", "turns"]

# (template, conversations, variables)
TEMPLATES = [
    # Whole templates in the styles that are around.
    ("{% for m in messages %}{{ '[' + m['role'] + ']\\n' + m['content'] + '[end]' + '\\n' }}{% endfor %}{% "
     "if add_generation_prompt %}{{ '[assistant]\\n' }}{% endif %}",
     SOME + ["signs"], {}),
    ("""{{- bos_token }}
{%- if messages and messages[0].role == 'system' %}
    {%- set system_message = messages[0].content | trim %}
    {%- set rest = messages[1:] %}
{%- else %}
    {%- set system_message = '' %}
    {%- set rest = messages %}
{%- endif %}
{%- for message in rest %}
    {%- if (message.role == 'user') != (loop.index0 % 2 == 0) %}
        {{- raise_exception('roles must take turns') }}
    {%- endif %}
    {%- if message['role'] == 'user' %}
        {%- if loop.first and system_message %}
            {{- '<<' ~ system_message ~ '>>' }}
        {%- endif %}
        {{- 'U: ' + message['content'].strip() + '\\n' }}
    {%- elif message['role'] == 'assistant' %}
        {{- 'A: ' + (message['content'] | trim) + eos_token }}
    {%- endif %}
{%- endfor %}
""", SOME + ["empty", "tools"], {}),
    ("""{% set ns = namespace(found=false, last=-1) %}
{% for m in messages %}
  {% if m.role == 'system' %}{% set ns.found = true %}{% endif %}
  {% if m.role == 'user' %}{% set ns.last = loop.index0 %}{% endif %}
{% endfor %}
{% if not ns.found %}
default system
{% endif %}
{% for m in messages %}
{% set content = m.content if m.content is string else '' %}
{% if m.role == 'assistant' and '</think>' in content %}
    {%- set content = content.split('</think>')[-1].lstrip('\\n') %}
{% endif %}
{{ m.role }}{{ '*' if loop.index0 == ns.last }}: {{ content }}
{% endfor %}
""", ALL, {}),
    ("""{%- macro show(message) -%}
  {%- if message.content is string -%}
    {{ message.content }}
  {%- elif message.content is not none and message.content is iterable -%}
    {%- for part in message.content -%}
      {%- if part.type == 'text' -%}{{ part.text }}{%- else -%}<{{ part['type'] }}_{{ loop.index }}>{%- endif -%}
    {%- endfor -%}
  {%- endif -%}
  {%- for call in message.tool_calls or [] %}
call {{ call.function.name }} {{ call.function.arguments | tojson }}
  {%- endfor -%}
{%- endmacro -%}
{%- if tools %}
Tools:
{% for tool in tools %}
{{ tool | tojson }}
{{ tool.function | tojson(indent=2) }}
{% endfor %}
{%- endif -%}
{%- for m in messages -%}
<|{{ m.role }}|>{{ show(m) }}{{ eos_token if not loop.last }}
{% endfor -%}
{%- if add_generation_prompt -%}<|assistant|>{%- endif -%}""", ALL, {"tools": TOOLS}),
    ("""{% generation %}{{ messages | length }}{% endgeneration %}{#- a comment -#}
  {# another #}
x
   {%+ if true %} kept {% endif +%}
end""", ["hello"], {}),
    # Loops.
    ("{% for m in messages if m.role != 'system' %}{{ loop.index }}/{{ loop.length }}{{ loop.first }}{{ "
     "loop.last }}{{ loop.revindex }}{{ loop.revindex0 }} {% else %}nobody{% endfor %}", ALL, {}),
    ("{% for m in messages %}{{ loop.previtem.role if loop.previtem is defined else '-' }}>{{ m.role }}>{{ "
     "loop.nextitem.role if loop.nextitem is defined else '-' }} {% endfor %}", ALL, {}),
    ("{% for k, v in {'b': 1, 'a': [1, 2]}.items() %}{{ k }}={{ v }};{% endfor %}{% for (a, b) in [(1, 2), "
     "[3, 4]] %}{{ a + b }},{% endfor %}", ["empty"], {}),
    ("{% for i in range(10) %}{% if i == 2 %}{% continue %}{% endif %}{% if i > 5 %}{% break %}{% endif %}{{ "
     "i }}{% endfor %} {{ range(3, 0, -1) | list }} {{ range(2, 9, 3) | list }}", ["empty"], {}),
    ("{% set x = 1 %}{% for i in [1, 2] %}{{ x }}{% set x = x + i %}{{ x }} {% endfor %}{{ x }}",
     ["empty"], {}),
    ("{% for row in [[1, 2], [3]] %}{% set outer = loop %}{% for c in row %}{{ outer.index }}.{{ loop.index "
     "}}={{ c }} {{ loop.depth }}{% endfor %}{% endfor %}", ["empty"], {}),
    ("{% for c in 'añ🙂' %}[{{ c }}]{% endfor %}{% for k in {'x': 1, 'y': 2} %}{{ k }}{{ loop.cycle('-', "
     "'+') }}{% endfor %}", ["empty"], {}),
    # Scopes, macros, blocks.
    ("{% macro f(a, b='B', c=none) %}{{ a }}{{ b }}{{ c }}{{ caller() if caller is defined }}{% endmacro "
     "%}{{ f(1) }} {{ f(1, 2) }} {{ f(c=3, a=4) }} {% call f(5) %}inner{% endcall %}", ["empty"], {}),
    ("{% macro fact(n) %}{{ 1 if n < 2 else n * fact(n - 1) | int }}{% endmacro %}{{ fact(10) }}",
     ["empty"], {}),
    ("{% set text %}a {{ 1 + 1 }} b{% endset %}[{{ text }}]{% set up | upper %}abc{% endset %}{{ up }}{% "
     "filter upper | replace('X', '-') %}x{{ 'y' }}x{% endfilter %}", ["empty"], {}),
    ("{% with a = 1, b = 2 %}{{ a + b }}{% set c = 5 %}{% endwith %}{{ c is defined }}{% set a, b = 1, 'two' "
     "%}{{ b ~ a }}", ["empty"], {}),
    ("{% set ns = namespace({'a': 1}, b=2) %}{% set ns.c = ns.a + ns.b %}{{ ns.c }}{{ ns['a'] }}{{ "
     "ns.nothing is defined }}", ["empty"], {}),
    ("{% raw %}{{ not a tag }} {% if %}{% endraw %}|{% raw -%}   x   {%- endraw %}|", ["empty"], {}),
    # Expressions.
    ("{{ 7 // 2 }} {{ -7 // 2 }} {{ 7 % 3 }} {{ -7 % 3 }} {{ 7 / 2 }} {{ 4 / 2 }} {{ 2 ** 10 }} {{ 2 ** -1 "
     "}} {{ 1.5 * 2 }} {{ -3 + +2 }} {{ 10 - 2 - 3 }} {{ 2 + 3 * 4 }} {{ (1 + 2) ~ 3 * 4 }}", ["empty"], {}),
    ("{{ 1 < 2 < 3 }} {{ 1 < 2 > 3 }} {{ 1 == 1.0 }} {{ true == 1 }} {{ 'a' < 'b' }} {{ [1, 2] < [1, 3] }} "
     "{{ (1, 2) == (1, 2) }} {{ [1] == (1,) }} {{ {'a': 1} == {'a': 1.0} }} {{ none == false }} {{ 'x' != "
     "'y' }}", ["empty"], {}),
    ("{{ 'a' in 'abc' }} {{ 'x' not in ['x'] }} {{ 1 in {'a': 1} }} {{ 'a' in {'a': 1} }} {{ not 1 in [1] }} "
     "{{ 2 is in [1, 2] }} {{ 'q' in nothing }}", ["empty"], {}),
    ("{{ 1 and 0 or 'x' }} {{ '' or [] or none }} {{ not '' }} {{ not not 3 }} {{ 'a' if false else 'b' if "
     "true else 'c' }} [{{ 'a' if false }}]", ["empty"], {}),
    ("{{ 'abcdef'[1:4] }} {{ 'abcdef'[::-1] }} {{ 'abcdef'[-2:] }} {{ 'abcdef'[:-1:2] }} {{ [1, 2, 3][1:] }} "
     "{{ [1, 2, 3][-1] }} {{ 'é日本'[1] }} {{ 'é日本'[::2] }} {{ (1, 2, 3)[:2] }} [{{ [1][5] }}] {{ [1, 2, "
     "3][5:1:-1] }}", ["empty"], {}),
    ("{{ [1, 'a', none, true, 2.5, {'k': 'v'}, (1,), (), \"it's\", 'q\"\\''] }} {{ {'a': [1], 2: 'b'} }} {{ "
     "'x\\ty\\n\\\\' }} {{ ['x\\ty\\n\\\\\\x07é\\u200b'] }}", ["empty"], {}),
    ("{{ 1e3 }} {{ 0.1 + 0.2 }} {{ 1e16 }} {{ 123456789012345.0 }} {{ 1e-5 }} {{ 0.0001 }} {{ -0.0 }} {{ "
     "1_000 }} {{ 3.0 }} {{ 1e22 }} {{ 2.5e-8 }}", ["empty"], {}),
    ("{{ 'a' 'b' \"c\" }} {{ '\\x41\\u00e9\\101\\q' }} {{ {'a': {'b': {}}} }} {{ ({'a': 1})['a'] }} {{ "
     "'a%sb%d%%' % ('x', 3) }} {{ '%s' % 'y' }} {{ 'ab' * 3 }} {{ [0] * 2 + [1] }}", ["empty"], {}),
    ("{{ '{} and {}'.format(1, 'b') }} {{ '{1}{0}{name}{{}}'.format('a', 'b', name=[1]) }} {{ "
     "'{i:d}'.format(i=3) }} {{ '%s-%s' | format('a', 1) }}", ["empty"], {}),
    ("{{ missing }}|{{ missing | default('d') }}|{{ none | default('d') }}|{{ '' | default('d', true) }}|{{ "
     "missing | length }}|{{ missing | join(',') }}|{{ missing | upper }}|{{ messages[0].nothing }}",
     ["hello"], {}),
    # Tests.
    ("{% for v in [none, true, 1, 1.5, 'a', [1], (1,), {'a': 1}, missing] %}{{ v is defined }},{{ v is none "
     "}},{{ v is string }},{{ v is mapping }},{{ v is iterable }},{{ v is sequence }},{{ v is number }},{{ v "
     "is integer }},{{ v is float }},{{ v is boolean }},{{ v is true }},{{ v is false }},{{ v is callable "
     "}};{% endfor %}", ["empty"], {}),
    ("{{ 3 is odd }}{{ 3 is even }}{{ 4 is divisibleby 2 }}{{ 4 is eq 4 }}{{ 4 is ne(4) }}{{ 3 is lt 4 }}{{ "
     "3 is ge 4 }}{{ 'a' is lower }}{{ 'A1' is upper }}{{ 1 is sameas true }}{{ 'a' is not string }}{{ range "
     "is callable }}{{ x is not defined and y is undefined }}", ["empty"], {}),
    # Filters.
    ("{{ ' a b ' | trim }}|{{ 'xxaxx' | trim('x') }}|{{ 'hello wORLD' | capitalize }}|{{ \"it's a-b (c) "
     "tEST\" | title }}|{{ 'Ünïçødé ß Ωμέγα Жук' | upper }}|{{ 'ÜNÏ ΩΜΈΓΑ ЖУК' | lower }}", ["empty"], {}),
    ("{{ [3, 1, 2] | sort }} {{ ['b', 'A', 'c'] | sort }} {{ ['b', 'A'] | sort(case_sensitive=true) }} {{ "
     "[3, 1, 2] | sort(reverse=true) }} {{ {'b': 2, 'A': 3, 'c': 1} | dictsort }} {{ {'b': 2, 'A': 3} | "
     "dictsort(by='value', reverse=true) }} {{ ['a', 'A', 'b', 'a'] | unique | list }}", ["empty"], {}),
    ("{{ messages | map(attribute='role') | join(', ') }} {{ messages | selectattr('role', 'equalto', "
     "'user') | list | length }} {{ messages | rejectattr('role', 'in', ['user']) | map(attribute='role') | "
     "list }} {{ messages | selectattr('content') | list | length }} {{ ['a', 'b'] | map('upper') | list }} "
     "{{ [0, 1, 2] | select | list }} {{ [0, 1, 2] | reject('odd') | list }} {{ [1, 2, 3] | select('gt', 1) |"
     " list }}", ALL, {}),
    ("{{ [1, 2, 3] | first }} {{ [1, 2, 3] | last }} {{ 'abc' | first }} {{ [] | first }} {{ 'abc' | list }} "
     "{{ 'abc' | reverse }} {{ [1, 2] | reverse | list }} {{ [1, 2, 3] | sum }} {{ [1, 5, 3] | max }} {{ "
     "['b', 'A'] | min }} {{ messages | sum(attribute='x', start=0) if false }} {{ {'a': 1} | items | list "
     "}} {{ [[1, 2], [3, 4]] | map('first') | list }}", ["hello"], {}),
    ("{{ '12' | int }} {{ 'x' | int(7) }} {{ '3.9' | int }} {{ 3.9 | int }} {{ '2.5' | float }} {{ 'x' | "
     "float }} {{ 2.567 | round(2) }} {{ 2.5 | round }} {{ 3.5 | round }} {{ 2.1 | round(method='ceil') }} "
     "{{ 7 | round }} {{ -3 | abs }} {{ 12 | string + '!' }} {{ true | string }} {{ [1] | string | length }}",
     ["empty"], {}),
    ("{{ 'a\\nb\\n\\nc' | indent }}|{{ 'a\\nb\\n\\nc' | indent(2, true) }}|{{ 'a\\n\\nc' | indent('> ', "
     "blank=true) }}|{{ 'aXbXc' | replace('X', '-') }}|{{ 'aXbXc' | replace('X', '-', 1) }}|{{ 'ab' | "
     "replace('', '.') }}|{{ [1, none, 'a'] | join('-') }}|{{ 'abc' | join('.') }}", ["empty"], {}),
    ("{{ messages | tojson }}\n{{ messages | tojson(indent=4) }}\n{{ messages | tojson(separators=(',', "
     "':')) }}\n{{ {'b': 1, 'a': [], 'c': {}} | tojson(sort_keys=true) }}\n{{ 'é🙂<&' | "
     "tojson(ensure_ascii=true) }}\n{{ [] | tojson(indent=2) }} {{ (1, 2) | tojson }} {{ {1: 2, none: 3} | "
     "tojson }}", ALL, {}),
    # Methods.
    ("{{ ' a '.strip() }}|{{ 'xxa'.lstrip('x') }}|{{ 'axx'.rstrip('x') }}|{{ 'a,b,,c'.split(',') }}|{{ ' a  "
     "b c '.split() }}|{{ 'a b c'.split(none, 1) }}|{{ 'a-b-c'.split('-', 1) }}|{{ 'a-b-c'.rsplit('-', 1) }}|"
     "{{ 'abc'.startswith('ab') }}|{{ 'abc'.endswith(('x', 'bc')) }}|{{ 'a\\nb\\r\\nc'.splitlines() }}",
     ["empty"], {}),
    ("{{ 'aXa'.replace('a', 'b', 1) }}|{{ 'Ab'.upper() }}{{ 'Ab'.lower() }}|{{ \"they're bill's\".title() }}|"
     "{{ 'aBC'.capitalize() }}|{{ 'abcabc'.find('c') }} {{ 'abcabc'.rfind('c') }} {{ 'abc'.find('x') }} {{ "
     "'aaa'.count('a') }}|{{ '-'.join(['a', 'b']) }}|{{ '12'.isdigit() }}{{ 'ab'.isalpha() }}{{ "
     "'a1'.isalnum() }}{{ ' '.isspace() }}{{ 'Ab'.isupper() }}|{{ 'abc'.removeprefix('a').removesuffix('c') "
     "}}|{{ 'a=b=c'.partition('=') }}{{ 'a=b=c'.rpartition('=') }}|{{ '7'.zfill(3) }}{{ 'a'.ljust(3) }}{{ "
     "'a'.rjust(3, '.') }}", ["empty"], {}),
    ("{{ {'a': 1}.get('a') }} {{ {'a': 1}.get('b') }} {{ {'a': 1}.get('b', 'c') }} {{ {'a': 1, 'b': "
     "2}.keys() | list }} {{ {'a': 1}.values() | list }} {{ {'items': 3}['items'] }} {{ dict(a=1, b=[2]) }} "
     "{{ dict([('k', 'v')]) }} {{ [1, 2, 1].count(1) }} {{ [1, 2].index(2) }} {{ {'a': 1}.items is defined }}", ["empty"], {}),
    ("{{ strftime_now('%d %B %Y, %a %A %b %m %y %%') }} {{ custom }} {{ flag is true }} {{ more.deep[1] }}",
     ["hello"], {"custom": "c", "flag": True, "more": {"deep": [1, 2.0]}}),
    # Numbers as Python rounds, reads and writes them.
    ("{{ 150 | round(-2) }} {{ 250 | round(-2) }} {{ 1234 | round(-2) }} {{ -150 | round(-2) }} {{ 7 | "
     "round(3) }} {{ 2.675 | round(2) }} {{ 0.5 | round }} {{ 1.005 | round(2) }} {{ 1234.5 | round(-2) }} "
     "{{ 2.5 | round(0, 'ceil') }} {{ 123 | round(-2, 'floor') }} {{ 1e300 | round(3) }} {{ 1.5 | round(400) "
     "}}", ["empty"], {}),
    ("{{ '0x1f' | int(0, 16) }} {{ '0b101' | int(0, 2) }} {{ '0o17' | int(base=8) }} {{ '0x1f' | int(7) }} "
     "{{ '0x1F' | int(0, 0) }} {{ '-0x10' | int(0, 16) }} {{ 'zz' | int(0, 36) }} {{ '１２' | int }} {{ "
     "'٣.٥' | float }} {{ '1_000' | int }} {{ '1__0' | int(5) }} {{ ' 12\n' | int }} {{ '+5' | int }} {{ '- "
     "5' | int(9) }} {{ '012' | int(3, 0) }} {{ '１２'.isdigit() }} {{ '½'.isnumeric() }} {{ '½'.isdigit() }}", ["empty"], {}),
    ("{{ 0x1F }} {{ 0b101 }} {{ 0o17 }} {{ 0xff + 1 }} {{ 0XaB_cd }} {{ [1, 2][0x1] }}", ["empty"], {}),
    ("[{{ '%5d' % 42 }}] [{{ '%-5d|' % 42 }}] [{{ '%05d' % -42 }}] [{{ '%+d' % 3 }}] [{{ '% d' % 3 }}] [{{ "
     "'%.2f' % 2.675 }}] [{{ '%8.3f' % 3.14159 }}] [{{ '%x %X %#x %o' % (255, 255, 255, 8) }}] [{{ '%e %G' % "
     "(12345.678, 0.00001) }}] [{{ '%10s|%-10s|%.2s' % ('ab', 'cd', 'efg') }}] [{{ '%r' % 'a' }}] [{{ "
     "'%(a)s-%(b)03d' % {'a': 'x', 'b': 7} }}] [{{ '%d' % 3.9 }}] [{{ '%3d%%' % 50 }}] [{{ '%s %5.1f' | "
     "format('a', 2) }}] [{{ '%i' % true }}]", ["empty"], {}),
    ("{{ range(3) }} {{ range(1, 4) }} {{ range(5, 0, -2) }} {{ range(3) | list }} {{ range(0) }} {{ "
     "[range(2)] }} {{ range(3) | length }} {{ range(3)[1] }}", ["empty"], {}),
    # Letters with more than one case.
    ("{{ 'ǆ' | upper }} {{ 'ǆ' | title }} {{ 'ǆ'.title() }} {{ 'ǆ' | capitalize }} {{ 'Ǆ' | lower }} {{ 'İ' |"
     " lower }} {{ 'ı' | upper }} {{ 'ΟΔΟΣ ΣΑΣ Σ' | lower }} {{ 'straße' | upper }} {{ 'ᲐᲑ' | lower }} {{ "
     "'ა' | upper }} {{ 'ꭰ'.upper() }} {{ 'ÿ' | upper }} {{ 'Å' | lower }} {{ 'ʰb'.isalpha() }} {{ "
     "'中文'.isalpha() }} {{ '٣'.isalnum() }}", ["empty"], {}),
    # Macros with what has no parameter, parts of strings, loops over nested tuples.
    ("{% macro f(a) %}{{ a }}:{{ varargs }}:{{ kwargs }}{% endmacro %}{{ f(1) }} {{ f(1, 2, 3) }} {{ f(1, 2, "
     "x=4, y='z') }} {{ f(x=1) }}", ["empty"], {}),
    ("{% macro f() %}{{ varargs | join('-') }}{% for k, v in kwargs.items() %}{{ k }}={{ v }}{% endfor %}{% "
     "endmacro %}{{ f('a', 'b', c='d') }}", ["empty"], {}),
    ("{% macro g(a) %}{{ a }}{% endmacro %}{{ g(b=2) }}", ["empty"], {}),
    ("{{ 'abcabc'.startswith('c', 2) }} {{ 'abcabc'.startswith('b', 1, 2) }} {{ 'abcabc'.startswith('bc', 1, "
     "2) }} {{ 'abc'.endswith('b', 0, 2) }} {{ 'abc'.startswith('', 3) }} {{ 'abc'.startswith('', 4) }} {{ "
     "'abc'.startswith('c', -1) }} {{ 'abcabc'.find('a', 1) }} {{ 'abcabc'.rfind('a', 0, 3) }} {{ "
     "'abcabc'.find('c', -2) }} {{ 'abcabc'.count('b', 2) }} {{ 'abc'.index('b', 1) }} {{ 'é日本é'.find('é', "
     "1) }} {{ 'abc'.find('', 4) }} {{ 'abc'.count('', 2, 1) }} {{ 'abc'.startswith(('x', 'b'), 1) }}",
     ["empty"], {}),
    ("{% for a, (b, c) in [(1, (2, 3)), (4, [5, 6])] %}{{ a }}{{ b }}{{ c }} {% endfor %}{% for i, (k, v) in "
     "[(0, ('a', 1))] %}{{ i }}{{ k }}{{ v }}{% endfor %} {% set a, (b, c) = 1, (2, 3) %}{{ a + b + c }} {% "
     "for ((a, b), c) in [((1, 2), 3)] %}{{ a }}{{ b }}{{ c }}{% endfor %}", ["empty"], {}),
    # White space.
    ("  {% if true %}\n  a\n  {% endif %}\n  b {% if true %}\n c{% endif %}\n{{ 1 }}\n\n  {#- x -#}  \n d\n\n", ["empty"], {}),
    ("a\n  {%- if true -%}\n  b  \n  {%- endif -%}\n  c\r\nd\re\n{{- 'f' -}}  \n g\n\t {% set x = 1 %} \n{%- "
     "set y = 2 %}\n  h\n", ["empty"], {}),
]


class Generation(jinja2.ext.Extension):
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_same"), [], [], body).set_lineno(line)

    def _same(self, caller):
        return caller()


def environment():
    env = jinja2.sandbox.ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True,
                                                       extensions=[Generation, jinja2.ext.loopcontrols])

    def refuse(message):
        raise jinja2.exceptions.TemplateError(message)

    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators,
                          sort_keys=sort_keys)

    def now(pattern):
        import datetime
        return datetime.date(2026, 11, 15).strftime(pattern)

    env.filters["tojson"] = tojson
    env.globals.update(raise_exception=refuse, strftime_now=now)
    return env


def main():
    env = environment()
    cases = []
    for template, conversations, variables in TEMPLATES:
        compiled = env.from_string(template)
        for conversation in conversations:
            for add in (True, False) if "add_generation_prompt" in template else (True,):
                given = {"tools": None, "documents": None, "bos_token": "<s>", "eos_token": "</s>",
                         **variables}
                try:
                    expected = compiled.render(messages=CONVERSATIONS[conversation],
                                               add_generation_prompt=add, **given)
                except (jinja2.exceptions.TemplateError, TypeError) as error:
                    print(f"refused ({error}): {template[:60]!r} {conversation}")
                    expected = None
                cases.append({"template": template, "conversation": conversation, "variables": variables,
                              "add": add, "expected": expected})
    out = pathlib.Path(__file__).parent / "chat_templates" / "cases.json"
    out.write_text(json.dumps({"source": f"jinja2 {jinja2.__version__}", "conversations": CONVERSATIONS,
                               "cases": cases}, ensure_ascii=False, indent=1) + "\n")
    print(len(TEMPLATES), "templates,", len(cases), "cases")


if __name__ == "__main__":
    main()
