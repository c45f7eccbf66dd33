// SPDX-License-Identifier: Apache-2.0
// What may be left out of scripts, styles and JSON, and what only looks so.
#include "rapt/apps/server/lean_text.h"

#include <gtest/gtest.h>

namespace rapt::server {
namespace {

TEST(LeanText, ScriptsKeepWhatTheyMean) {
  const std::pair<const char*, const char*> cases[] = {
      {"// a\nlet x = 1;  // b\n", "let x=1;"},
      {"/* a\n b */ const  f = (a, b) => {\n  return a + b;\n};\n", "const f=(a,b)=>{return a+b;};"},
      {"let a = b\nlet c = d\n", "let a=b\nlet c=d\n"},  // no semicolon: the line's end counts
      {"return\nx\n", "return\nx\n"},
      {"a = b + +c - -d + d++ + ++e;", "a=b+ +c- -d+d++ + ++e;"},
      {"s = 'a // b' + \"/* ' */\" + '\\'  x';", "s='a // b'+\"/* ' */\"+'\\'  x';"},
      {"t = `a  ${ b + `c  ${ {d: 1}.d }  e` }  f // g`;", "t=`a  ${b+`c  ${{d:1}.d}  e`}  f // g`;"},
      {"r = /[/'\"`]  \\/ \\[/g.test(x) || x / 2 / y;", "r=/[/'\"`]  \\/ \\[/g.test(x)||x/2/y;"},
      {"return /  a/.exec(s)", "return/  a/.exec(s)"},
      {"const {a = 1, ...rest} = b, \xC3\xA9 = 2;", "const{a=1,...rest}=b,\xC3\xA9=2;"},
      {"if (a) b();\nelse c();\n", "if(a)b();else c();"},
      {"x\n  .y()\n", "x\n.y()\n"},
      {"i++\nf(a +\n  b)\n", "i++\nf(a+b)\n"},
      {"'unended", "'unended"},
      {"`unended ${", "`unended ${"},
      {"/* unended", ""},
      {"a = /unended", "a=/unended"},
      {"", ""}};
  for (const auto& [text, wanted] : cases) EXPECT_EQ(lean_script(text), wanted) << text;
}

TEST(LeanText, Styles) {
  EXPECT_EQ(lean_style("/* a */\n.a .b > c,\n.d {\n  color: red;\n  margin: 0 calc(1px + 2px);\n}\n"),
            ".a .b > c,.d{color: red;margin: 0 calc(1px + 2px);}");
  EXPECT_EQ(lean_style(".a::after { content: \"  } /* \"; }"), ".a::after{content: \"  } /* \";}");
  EXPECT_EQ(lean_style("@media (a: 1px) and (b) { .c :is(d, e) { f: g; } }"),
            "@media (a: 1px) and (b){.c :is(d,e){f: g;}}");
  EXPECT_EQ(lean_style("a { b: c /*"), "a{b: c ");
}

TEST(LeanText, Lines) {
  EXPECT_EQ(lean_lines("{\n  \"a\": \"  b\",\n\n  \"c\": 1\n}"), "{\n\"a\": \"  b\",\n\n\"c\": 1\n}");
  EXPECT_EQ(lean_lines("  "), "");
}

}  // namespace
}  // namespace rapt::server
