// SPDX-License-Identifier: Apache-2.0
// Templates that are broken or mean harm: each ends in an error that names the place and the reason, soon
// and in little memory.
#include <gtest/gtest.h>
#include <pthread.h>

#include <functional>
#include <string>

#include "rapt/text/chat_template.h"
#include "rapt/text/chat_template_builtins.h"

namespace rapt {
namespace {

std::string repeat(std::string_view s, int n) {
  std::string out;
  for (int i = 0; i < n; ++i) out += s;
  return out;
}

// The message, or the text where there is none.
std::string outcome(std::string_view source) {
  const std::vector<ChatMessage> messages = {{"user", "hello"}, {"assistant", "x"}};
  try {
    std::string text;
    for (const ChatPiece& p : ChatTemplate(source, "t").render(messages, {true, "<s>", "</s>", Json(), ""}))
      text += p.text;
    return "rendered: " + text.substr(0, 100);
  } catch (const Error& e) {
    return e.what();
  }
}

struct Bad {
  std::string source;
  const char* words;  // in the message, which begins with the place
};

void check(const std::vector<Bad>& all) {
  for (const Bad& bad : all) {
    const std::string got = outcome(bad.source);
    EXPECT_NE(got.find(bad.words), std::string::npos)
        << "template: " << bad.source.substr(0, 200) << "\nwords: " << bad.words << "\ngot: " << got;
    EXPECT_EQ(got.rfind("t:", 0), 0u) << got;
  }
}

TEST(HostileTemplate, BrokenSyntax) {
  check({
      {"{{", "t:1:1: a tag begins here and never ends: '}}' is missing"},
      {"a\nb {% if x", "t:2:3: a tag begins here and never ends: '%}' is missing"},
      {"{# never", "a comment begins here and never ends"},
      {"{% raw %} {{ x }}", "'raw' begins here and never ends"},
      {"{{ }}", "an expression is expected, found '}}'"},
      {"{% %}", "a statement's name is expected"},
      {"{% if true %}", "'if' begins here and never ends: '{% endif %}' is missing"},
      {"{% for x in y %}", "'for' begins here and never ends: '{% endfor %}' is missing"},
      {"{% macro f() %}", "'macro' begins here and never ends"},
      {"{% set x %}", "'set' begins here and never ends"},
      {"{% if true %}{% endfor %}", "the statement 'endfor'"},
      {"{% endif %}", "'endif' closes nothing that is open"},
      {"{% else %}", "'else' closes nothing that is open"},
      {"{% if %}{% endif %}", "an expression is expected, found '%}'"},
      {"{% for in y %}{% endfor %}", "'in' cannot be set"},
      {"{% for x y %}{% endfor %}", "'in' is expected after the names of a loop, found 'y'"},
      {"{% for 1 in y %}{% endfor %}", "a name is expected, found '1'"},
      {"{% set 1 = 2 %}", "a name is expected, found '1'"},
      {"{% set true = 2 %}", "'true' cannot be set"},
      {"{% set x = %}", "an expression is expected, found '%}'"},
      {"{% set a.b.c = 1 %}", "'%}' is expected after the name, found '.'"},
      {"{% set a, b %}{% endset %}", "'=' is expected after the names"},
      {"{% break %}", "'break' stands outside of a loop"},
      {"{% for x in [1] %}{% macro f() %}{% continue %}{% endmacro %}{% endfor %}",
       "'continue' stands outside of a loop"},
      {"{% macro f(a, a) %}{% endmacro %}", "two parameters are called 'a'"},
      {"{% macro (a) %}{% endmacro %}", "a name is expected, found '('"},
      {"{{ 'abc }}", "a string begins here and never ends"},
      {"{{ '\\xZZ' }}", "wants 2 hexadecimal digits"},
      {"{{ '\\ud800' }}", "half a surrogate pair"},
      {"{{ (1 }}", "'}' closes nothing; ')' is expected first"},
      {"{{ 1) }}", "')' closes nothing"},
      {"{{ [1, 2 }}", "'}' closes nothing; ']' is expected first"},
      {"{{ {'a' 1} }}", "':' is expected between key and value, found '1'"},
      {"{{ [1 2] }}", "',' is expected between the items of a list, found '2'"},
      {"{{ a b }}", "'}}' is expected after the expression, found 'b'"},
      {"{{ a. }}", "an attribute's name is expected"},
      {"{{ a | }}", "a filter's name is expected"},
      {"{{ a is }}", "a test's name is expected"},
      {"{{ a is defined is none }}", "tests with 'is' cannot follow one another"},
      {"{{ 1 + }}", "an expression is expected"},
      {"{{ a ? b }}", "'?' means nothing here"},
      {"{{ a && b }}", "'&' means nothing here"},
      {"{{ 12abc }}", "is no number"},
      {"{{ 99999999999999999999 }}", "is out of range"},
      {"{{ f(a=1, 2) }}", "an argument by position cannot follow one by name"},
      {"{{ f(*a) }}", "arguments from a list ('*')"},
      {"{% call 1 %}{% endcall %}", "'call' wants the call of a macro"},
      {"{% for x in y recursive %}{% endfor %}", "recursive loops"},
  });
}

TEST(HostileTemplate, WhatChatTemplatesMayNotDo) {
  check({
      {"{% include 'x' %}", "the statement 'include' is not one chat templates may use"},
      {"{% import 'x' as y %}", "the statement 'import'"},
      {"{% from 'x' import y %}", "the statement 'from'"},
      {"{% extends 'x' %}", "the statement 'extends'"},
      {"{% block b %}{% endblock %}", "the statement 'block'"},
      {"{% do x.append(1) %}", "the statement 'do'"},
      {"{% autoescape true %}{% endautoescape %}", "the statement 'autoescape'"},
      {"{{ ''.__class__.__mro__ }}", "a string has no '__class__', so it has no '__mro__'"},
      {"{{ cycler.__init__.__globals__ }}", "'cycler' is undefined"},
      {"{{ lipsum() }}", "'lipsum' is undefined, so it cannot be called"},
      {"{{ self._TemplateReference__context }}", "'self' is undefined"},
      {"{{ messages.append(1) }}", "'append' would change a list"},
      {"{{ messages[0].update({'role': 'system'}) }}", "'update' would change a mapping"},
      {"{{ messages[0].pop('role') }}", "'pop' would change a mapping"},
      {"{{ x | nosuch }}", "there is no filter 'nosuch'"},
      {"{{ [1] | map('nosuch') | list }}", "there is no filter 'nosuch'"},
      {"{{ x | attr('y') }}", "there is no filter 'attr'"},
      {"{{ x is nosuch }}", "there is no test 'nosuch'"},
      {"{{ 'a'.encode() }}", "a string has no 'encode', so it cannot be called"},
      {"{{ 'a'.format.x.y }}", "a method has no 'x'"},
      {"{{ '{0.__class__}'.format(1) }}", "is more than chat templates may use"},
      {"{{ strftime_now('%Y') }}", "no date was given"},
      {"{{ raise_exception('go away') }}", "the template refuses: go away"},
      {"{% set messages.x = 1 %}", "'messages' is no namespace"},
  });
}

TEST(HostileTemplate, WrongValues) {
  check({
      {"{{ missing.x }}", "t:1:11: 'missing' is undefined, so it has no 'x'"},
      {"{{ missing() }}", "'missing' is undefined, so it cannot be called"},
      {"{{ missing + 1 }}", "'+': 'missing' is undefined"},
      {"{{ messages[7].role }}", "the list has 2 items and none at 7"},
      {"{{ none + 'a' }}", "'+' has no meaning for none and a string"},
      {"{{ 'a' + 1 }}", "'+' has no meaning for a string and an integer"},
      {"{{ [1] - 1 }}", "'-' has no meaning"},
      {"{{ 'a' < 1 }}", "a string and an integer have no order"},
      {"{{ [1, 'a'] | sort }}", "have no order"},
      {"{{ 1 in 'abc' }}", "'in' a string wants a string"},
      {"{{ 1 in none }}", "'in' wants a string, a list or a mapping"},
      {"{% for x in 5 %}{% endfor %}", "an integer cannot be gone through"},
      {"{% for x in none %}{% endfor %}", "none cannot be gone through"},
      {"{% for a, b in [1] %}{% endfor %}", "an integer cannot be gone through"},
      {"{% for a, b in [[1]] %}{% endfor %}", "2 names for 1 values"},
      {"{{ 1 // 0 }}", "division by zero"},
      {"{{ 1 / 0 }}", "division by zero"},
      {"{{ 1 % 0 }}", "division by zero"},
      {"{{ 9223372036854775807 + 1 }}", "does not fit an integer of 64 bits"},
      {"{{ 9223372036854775807 * 2 }}", "does not fit"},
      {"{{ 10 ** 100 }}", "does not fit"},
      {"{{ (-9223372036854775807 - 1) // -1 }}", "does not fit"},
      {"{{ -'a' }}", "the sign before a string has no meaning"},
      {"{{ {[1]: 2} }}", "a list cannot be a key"},
      {"{{ 5(1) }}", "an integer cannot be called"},
      {"{{ none | length }}", "none has no length"},
      {"{{ missing | tojson }}", "an undefined value cannot be written as JSON"},
      {"{{ range }}", "a function cannot be printed"},
      {"{{ range(1, 2, 0) }}", "the step cannot be 0"},
      {"{{ range('a') }}", "range"},
      {"{{ 'abc'[::0] }}", "a slice's step cannot be 0"},
      {"{{ 'abc'['a':] }}", "a slice's bounds are integers"},
      {"{{ 5[1:] }}", "a slice of an integer"},
      {"{{ 'a'.split('') }}", "the separator is empty"},
      {"{{ 'a'.split(1) }}", "sep is an integer, not a string"},
      {"{{ 'a' | trim(1, 2) }}", "'trim' takes at most 1 arguments, not 2"},
      {"{{ 'a' | trim(x=1) }}", "'trim' has no argument 'x'"},
      {"{{ 'a' | replace('b') }}", "'replace' wants its argument 'new'"},
      {"{% macro f(a) %}{% endmacro %}{{ f(1, 2) }}", "takes at most 1 arguments, not 2"},
      {"{% macro f(a) %}{% endmacro %}{{ f(b=1) }}", "has no parameter 'b'"},
      {"{% macro f(a) %}{% endmacro %}{{ f(1, a=1) }}", "gets 'a' twice"},
      {"{{ '%d' % 'a' }}", "'%d' wants a number"},
      {"{{ '%s %s' % 'a' }}", "wants more values"},
      {"{{ '{}'.format() }}", "there is no value for"},
      {"{{ ','.join([1]) }}", "'join' wants strings"},
  });
}

// Loops without end, towers of brackets, strings that double: each reaches a limit, not the machine's.
TEST(HostileTemplate, LimitsEndThem) {
  const std::string r = "range(100000)";
  check({
      {"{% for a in " + r + " %}{% for b in " + r + " %}{% endfor %}{% endfor %}", "too many steps"},
      {"{{ range(100001) }}", "more than 100,000 numbers"},
      {"{{ range(-9223372036854775807, 9223372036854775807) }}", "more than 100,000 numbers"},
      {"{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "macros"},
      {"{% macro f(n) %}{{ g(n) }}{% endmacro %}{% macro g(n) %}{{ f(n + 1) }}{% endmacro %}{{ f(0) }}",
       "macros"},
      {"{% macro f(n) %}{% if n < 30 %}{{ f(n + 1) }}{{ f(n + 1) }}{% endif %}{% endmacro %}{{ f(0) }}",
       "too many steps"},
      {"{% set ns = namespace(s='aaaaaaaa') %}{% for i in range(100) "
       "%}{% set ns.s = ns.s + ns.s %}{% endfor %}",
       "a text of more than 4194304 bytes"},
      {"{% set ns = namespace(s='a') %}{% for i in range(100000) %}{% set ns.s = ns.s ~ "
       "'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa' %}{% endfor %}",
       "too many steps"},
      {"{{ 'a' * 100000000000 }}", "a text of more than"},
      {"{{ 'abc' * 9223372036854775807 }}", "a text of more than"},
      {"{{ [0] * 100000000000 }}", "too many steps"},
      {"{{ 'a'.rjust(100000000000) }}", "a text of more than"},
      {"{{ ('a' * 1000) | replace('a', 'b' * 10000) }}", "a text of more than"},
      {"{% for i in " + r + " %}{{ 'a' * 1000 }}{% endfor %}", "the result is longer than 4194304 bytes"},
      {"{% set x = 'a' * 4000000 %}{% for i in " + r + " %}{% if x == x ~ '' %}{% endif %}{% endfor %}",
       "too many steps"},
      {"{% set ns = namespace(l=[]) %}{% for i in " + r + " %}{% set ns.l = [ns.l] %}{% endfor %}",
       "lists nested deeper than 64"},
      {"{% set ns = namespace(l={}) %}{% for i in " + r + " %}{% set ns.l = {'a': ns.l} %}{% endfor %}",
       "mappings nested deeper than 64"},
      {"{% set ns = namespace(l=[1]) %}{% for i in range(60) %}{% set ns.l = [ns.l, ns.l] %}{% endfor %}{{ "
       "ns.l | tojson }}",
       "too many steps"},
      {"{% set ns = namespace(l=[1]) %}{% for i in range(60) %}{% set ns.l = [ns.l, ns.l] %}{% endfor %}{{ "
       "ns.l == [ns.l[0], ns.l[1]] }}{{ ns.l }}",
       "too many steps"},
      {"{% set ns = namespace(l=[1]) %}{% for i in range(60) %}{% set ns.l = ns.l + ns.l %}{% endfor %}",
       "too many steps"},
      {"{{ (range(100000) | list) | unique | list }}", "too many steps"},
      {"{{ ('ab' * 1000000).split('a') | length }}", "too many steps"},
      {"{% set a = 'a' * 2000000 %}{% for i in range(1000) %}{{ a.rfind('a' * 1000 ~ 'b') }}{% endfor %}",
       "too many steps"},
      {"{{ " + repeat("(", 1000) + "1" + repeat(")", 1000) + " }}", "nested deeper than 64"},
      {"{{ " + repeat("[", 100000) + " }}", "nested deeper than 64"},
      {"{{ " + repeat("-", 100000) + "1 }}", "nested deeper than 64"},
      {"{{ 1" + repeat(" if 1 else 1", 1000) + " }}", "nested deeper than 64"},
      {"{{ 1" + repeat(" if 1", 1000) + " }}", "nested deeper than 64"},
      {repeat("{% if true %}", 1000), "nested deeper than 64"},
      {repeat("{% for x in y %}", 10000), "nested deeper than 64"},
      {"{{ f" + repeat("(f", 1000) + repeat(")", 1000) + " }}", "nested deeper than 64"},
      {"{{ a" + repeat("[a", 1000) + repeat("]", 1000) + " }}", "nested deeper than 64"},
      {"{{ a" + repeat(" | default(a", 1000) + repeat(")", 1000) + " }}", "nested deeper than 64"},
      {"{% set ns = namespace() %}{% set ns.self = ns %}{{ ns.self.self.self }}",
       "a namespace cannot be printed"},
  });
}

// What touches a text pays for its bytes, whatever it gives back: nothing is free because its result
// is short.
TEST(HostileTemplate, EveryOperationPaysForItsBytes) {
  using namespace chat;
  constexpr std::size_t kSize = 1 << 16;
  constexpr std::int64_t kFuel = std::int64_t{1} << 40, kLeast = kSize / 128;
  const chat::Source source{"", "t"};
  const Value x(chat::Text(std::string(kSize, 'a'), true)), one(chat::Text("b", true)), none(None{}),
      zero(std::int64_t{0});
  const auto cost = [&](const std::function<void(Meter&)>& run) {
    Meter meter{source, kFuel, std::size_t{1} << 28};
    run(meter);
    return kFuel - meter.fuel;
  };
  const auto method = [&](const char* name, std::vector<Value> given) {
    EXPECT_GE(cost([&](Meter& m) { call_method(m, x, name, {given, {}}); }), kLeast) << name;
  };
  for (const char* name :
       {"strip", "lstrip", "rstrip", "split", "rsplit", "splitlines", "upper", "lower", "title", "capitalize",
        "isdigit", "isalpha", "isalnum", "isspace", "isupper", "islower", "isnumeric", "format"})
    method(name, {});
  for (const char* name : {"ljust", "rjust", "zfill"}) method(name, {zero});
  for (const char* name : {"find", "rfind", "index", "count", "partition", "rpartition", "split", "strip"})
    method(name, {chat::Text("a", true)});
  method("startswith", {one, zero});
  method("replace", {one, one});
  method("join", {make_list(*std::make_unique<Meter>(Meter{source, kFuel, 100}), {one, one})});
  for (const char* name : {"trim", "length", "upper", "lower", "title", "capitalize", "indent", "tojson",
                           "int", "float", "list", "first", "last", "reverse", "format"})
    EXPECT_GE(cost([&](Meter& m) { apply_filter(m, name, x, {}); }), kLeast) << name;
  EXPECT_GE(cost([&](Meter& m) { apply_filter(m, "tojson", zero, {{}, {{"indent", x}}}); }), kLeast);
  EXPECT_GE(cost([&](Meter& m) { apply_filter(m, "map", make_list(m, {one}), {{}, {{"attribute", x}}}); }),
            kLeast);
  EXPECT_GE(cost([&](Meter& m) { apply_test(m, "lower", x, {}); }), kLeast);
  EXPECT_GE(cost([&](Meter& m) { slice(m, x, none, none, std::int64_t{-1}); }), kLeast);
  EXPECT_GE(cost([&](Meter& m) { slice(m, x, zero, zero, none); }), kLeast);
  EXPECT_GE(cost([&](Meter& m) { item(m, x, zero); }), kLeast);
  EXPECT_GE(cost([&](Meter& m) { item(m, zero, x); }), kLeast);
  EXPECT_GE(cost([&](Meter& m) { attribute(m, make_map(m, {}), x.text().bytes()); }), kLeast);
  EXPECT_GE(cost([&](Meter& m) { binary(m, Op::join, x, one); }), kLeast);
  EXPECT_GE(cost([&](Meter& m) { format_percent(m, x.text(), make_list(m, {}, true)); }), kLeast);
  EXPECT_GE(cost([&](Meter& m) { contains(m, x, one); }), kLeast);
  EXPECT_GE(cost([&](Meter& m) { contains(m, make_map(m, {}), x); }), kLeast);
  EXPECT_GE(cost([&](Meter& m) { equal(m, x, Value(chat::Text(x.text().bytes(), false))); }), kLeast);
}

// Fuel bounds what is kept as well: a step stands for 128 bytes at most.
TEST(HostileTemplate, WhatIsKeptIsPaid) {
  using namespace chat;
  const chat::Source source{"", "t"};
  Meter meter{source, std::int64_t{1} << 40, std::size_t{4} << 20};
  const Value x(chat::Text(std::string(1 << 20, 'a'), true));
  const Value missing = item(meter, std::int64_t{1}, x);
  ASSERT_TRUE(missing.is_undefined());
  EXPECT_LT(std::get<Undefined>(missing.v).what->size(), 200u);  // not the name of a mebibyte
  chat::Text mixed("a", true);
  mixed.append("b", false);
  EXPECT_EQ(mixed.cost(), 2 + 2 * sizeof(chat::Text::Run));
  const std::int64_t before = meter.fuel;
  const Value many = binary(meter, Op::multiply, Value(mixed), std::int64_t{50'000});
  EXPECT_EQ(many.text().runs().size(), 100'000u);
  EXPECT_GE(before - meter.fuel, static_cast<std::int64_t>(many.text().cost() / 128));
  check({
      // Two runs of 16 bytes for each.
      {"{{ (messages[0].content ~ 'a') * 2000000 }}", "a text of more than 4194304 bytes"},
      {"{% set x = 'a' * 4194304 %}{% for i in range(75000) %}{% if x.ljust(0) %}{% endif %}{% endfor %}",
       "too many steps"},
      {"{% set x = 'a' * 4194304 %}{{ range(100000) | map(attribute=x) | list | length }}", "too many steps"},
      {"{% set x = 'a' * 4000000 %}{% set ns = namespace(l=[]) %}{% for i in range(1000) %}{% set ns.l = "
       "ns.l + [x ~ i] %}{% endfor %}",
       "too many steps"},
      {"{% macro f(" + repeat("a, ", 255) + "b) %}{% endmacro %}", "two parameters are called 'a'"},
      {"{{ f(" + repeat("1, ", 255) + "1) }}", "a call has more than 255 arguments"},
      {"{{ '%100001d' % 1 }}", "more than 100,000 characters"},
  });
  std::string macro = "{% macro f(p0";
  for (int i = 1; i < 256; ++i) macro += concat(", p", i);
  check({{macro + ") %}{% endmacro %}", "a macro has more than 255 parameters"}});
  EXPECT_NE(outcome(std::string((512 << 10) + 1, 'a')).find("a chat template of 524289 bytes"),
            std::string::npos);
}

// Everything that nests, in a thread with 256 KiB of stack: a text or an error.
TEST(HostileTemplate, ASmallStackIsEnough) {
  static const std::vector<std::string> deep = [] {
    std::vector<std::string> all;
    for (const int n : {20, 40, 60, 63, 64}) {
      all.push_back("{{ " + repeat("(", n) + "1" + repeat(")", n) + " }}");
      all.push_back("{{ " + repeat("[", n) + "1" + repeat("]", n) + " | tojson }}");
      all.push_back("{{ " + repeat("{'a': ", n) + "1" + repeat("}", n) + " }}");
      all.push_back("{{ " + repeat("-", n) + "1 }}");
      all.push_back("{{ 1" + repeat(" if 1", n) + " }}");
      all.push_back("{{ " + repeat("1 if 0 else ", n) + "1 }}");
      all.push_back("{{ a" + repeat(" | default(a", n) + repeat(")", n) + " }}");
      all.push_back("{{ a" + repeat("[a", n) + repeat("]", n) + " }}");
      all.push_back(repeat("{% if true %}", n) + "x" + repeat("{% endif %}", n));
      all.push_back(repeat("{% for i in [1] %}", n) + "x" + repeat("{% endfor %}", n));
      all.push_back(repeat("{% filter upper %}", n) + "x" + repeat("{% endfilter %}", n));
      all.push_back(repeat("{% set x %}", n) + "x" + repeat("{% endset %}", n));
      all.push_back(repeat("{% for " + repeat("(", n / 2) + "a" + repeat(")", n / 2) + " in [1] %}", 2) +
                    repeat("{% endfor %}", 2));
      all.push_back(concat("{% macro f(n) %}{% for i in [n] %}{% if n < ", n,
                           " %}{{ [f(n + 1)] | join }}{% endif %}{% endfor %}", "{% endmacro %}{{ f(0) }}"));
      all.push_back(
          concat("{% macro f(n) %}{% if n < ", n,
                 " %}{% call(m) f(n + 1) %}{{ m }}{% endcall %}{% endif %}{% endmacro %}{{ f(0) }}"));
      all.push_back(
          concat("{% set ns = namespace(l=[1.5]) %}{% for i in range(", n,
                 ") %}{% set ns.l = [ns.l, {'a': ns.l}] %}",
                 "{% endfor %}{{ ns.l == [ns.l[0], ns.l[1]] }}{{ ([ns.l, ns.l] | sort) == ns.l }}"));
      all.push_back(concat("{% set ns = namespace(l=[1.5]) %}{% for i in range(", n - 2,
                           ") %}{% set ns.l = [ns.l] %}{% endfor %}",
                           "{{ ns.l }}{{ ns.l | tojson(indent=1) }}"));
      all.push_back("{% macro f(n) %}" + repeat("{% if true %}", n / 2) + "{{ " + repeat("[", n / 3) +
                    "f(n)" + repeat("]", n / 3) + " }}" + repeat("{% endif %}", n / 2) +
                    "{% endmacro %}{{ f(0) }}");
    }
    return all;
  }();
  static std::size_t ended;
  ended = 0;
  pthread_attr_t attributes;
  ASSERT_EQ(pthread_attr_init(&attributes), 0);
  ASSERT_EQ(pthread_attr_setstacksize(&attributes, 256 << 10), 0);
  pthread_t thread;
  ASSERT_EQ(pthread_create(
                &thread, &attributes,
                [](void*) -> void* {
                  for (const std::string& source : deep) ended += !outcome(source).empty();
                  return nullptr;
                },
                nullptr),
            0);
  pthread_join(thread, nullptr);
  pthread_attr_destroy(&attributes);
  EXPECT_EQ(ended, deep.size());
  // Real nesting still fits: twenty macros deep, thirty brackets.
  EXPECT_EQ(
      outcome("{% macro f(n) %}{% if n < 20 %}{{ f(n + 1) }}{% else %}x{% endif %}{% endmacro %}{{ f(0) }}"),
      "rendered: x");
  EXPECT_EQ(outcome("{{ " + repeat("(", 30) + "1" + repeat(")", 30) + " }}"), "rendered: 1");
}

// Long but flat is no harm.
TEST(HostileTemplate, LongAndFlatIsFine) {
  EXPECT_EQ(outcome("{{ 1" + repeat(" + 1", 5000) + " }}"), "rendered: 5001");
  EXPECT_EQ(outcome("{{ 'a'" + repeat(" | trim", 5000) + " }}"), "rendered: a");
  EXPECT_EQ(outcome("{{ " + repeat("not ", 5001) + "1 }}"), "rendered: False");
  EXPECT_EQ(outcome(repeat("{% if 1 %}a{% endif %}", 5)), "rendered: aaaaa");
  EXPECT_EQ(outcome("{% if 0 %}" + repeat("{% elif 0 %}", 5000) + "{% else %}x{% endif %}"), "rendered: x");
  // Not UTF-8: bytes stay what they are.
  EXPECT_EQ(outcome("\xff\xfe{{ '\xc3' | upper }}\x80"), "rendered: \xff\xfe\xc3\x80");
  EXPECT_EQ(outcome(""), "rendered: ");
}

// Every beginning of a good template, and the template with any one byte changed: an error or a text,
// never more.
TEST(HostileTemplate, EveryTruncationAndByte) {
  const std::string good =
      "{%- macro show(m, deep=[1, {'a': 2.5}]) -%}<|{{ m.role }}|>{{ m.content | trim | replace('a', 'b') "
      "}}{%- endmacro -%}\n"
      "{% set ns = namespace(n=0) %}{% for m in messages[::-1] if m.role != 'tool' %}{{ show(m) ~ '\\n' if "
      "not loop.last else \"end\" }}"
      "{% set ns.n = ns.n + 1 %}{% else %}none{% endfor %}{# comment #}{{ ns.n // 2 ** 1 "
      ">= 1 and 'x' in 'xyz' }}";
  EXPECT_EQ(outcome(good).rfind("rendered: ", 0), 0u) << outcome(good);
  for (std::size_t n = 0; n < good.size(); ++n) outcome(good.substr(0, n));
  for (std::size_t n = 0; n < good.size(); ++n)
    for (const char c : {'\0', '{', '}', '%', '(', ')', '\'', '\\', ' ', '-', '|', '\n', '\xff', '0', 'a'}) {
      std::string changed = good;
      changed[n] = c;
      outcome(changed);
    }
}

}  // namespace
}  // namespace rapt
