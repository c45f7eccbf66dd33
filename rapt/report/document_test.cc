// SPDX-License-Identifier: Apache-2.0
// One sample document in each output against expected strings; widths of lines; the page's style policy.
#include "rapt/report/document.h"

#include <gtest/gtest.h>

#include "rapt/base/sha256.h"
#include "tests/tools.h"

namespace rapt {
namespace {

using test::holds;

Document sample() {
  Document d{.name = "sample", .title = "A title"};
  d.parts.push_back(Words{"Section", true});
  d.parts.push_back(
      Words{"One paragraph of text that is long enough to be broken somewhere before it reaches "
            "the end of a line of one "
            "hundred columns, <b>&</b> so on."});
  d.parts.push_back(
      Table{"Numbers",
            {"name", "value"},
            {{"first | one", Cell(0.12345)}, {"second", Cell(-12.5, 1)}, {"tiny", Cell(2e-13)}}});
  d.parts.push_back(HeatMap{"Map", {"a", "b"}, {"x", "y"}, {0, 0.5, 1, NAN}});
  d.parts.push_back(Chart{"Chart", "steps", "loss", {{"one", {0, 1, 2}, {3, 2, 1}}}});
  d.facts.set("seed", 7);
  return d;
}

TEST(Document, CellsShowTheirDigits) {
  EXPECT_EQ(Cell(0.12345).text, "0.123");
  EXPECT_EQ(Cell(3.0, 0).text, "3");
  EXPECT_EQ(Cell(0.0).text, "0.000");
  EXPECT_EQ(Cell(2.04e-13).text, "2.0e-13");
  EXPECT_EQ(Cell(1e12, 1).text, "1.0e+12");
  EXPECT_EQ(Cell(HUGE_VAL).text, "–");
  EXPECT_EQ(Cell(0.12345).number, 0.12345);
  EXPECT_TRUE(std::isnan(Cell("words").number));
}

TEST(Document, TextAlignsTablesAndStaysInItsColumns) {
  const std::string text = document_text(sample(), false);
  EXPECT_TRUE(holds(text, "A title\n\nSection\n"));
  EXPECT_TRUE(holds(text,
                    "name           value\n───────────  ───────\nfirst | one    0.123\nsecond         -12.5\n"
                    "tiny         2.0e-13\n"))
      << text;
  EXPECT_TRUE(holds(text, "━━ one")) << text;
  std::size_t begin = 0;
  for (std::size_t i = 0; i < text.size(); ++i)
    if (text[i] == '\n') {
      EXPECT_LE(text_width(std::string_view(text).substr(begin, i - begin)), 100);
      begin = i + 1;
    }
  EXPECT_FALSE(holds(text, "\033"));
  EXPECT_TRUE(holds(document_text(sample(), true), "\033[1mA title\033[0m"));
}

bool fits(const std::string& text, Dim width) {
  for (std::size_t at = 0; at < text.size(); at = text.find('\n', at) + 1)
    if (text_width(text.substr(at, text.find('\n', at) - at)) > width) return false;
  return true;
}

TEST(Document, FitsAnyWindow) {
  for (const Dim width : {200, 100, 80, 40, 24})
    EXPECT_TRUE(fits(document_text(sample(), false, width), width)) << document_text(sample(), false, width);
}

TEST(Document, ATableOfNumbersGoesOnBelow) {
  Table t{"Heads", {"layer"}, {}};
  for (int h = 0; h < 12; ++h) t.columns.push_back(concat("head ", h));
  for (int l = 0; l < 3; ++l) {
    t.rows.push_back({concat(l)});
    for (int h = 0; h < 12; ++h) t.rows.back().push_back(Cell(l + h / 100.0));
  }
  const std::string text = document_text({.parts = {t}}, false, 40);
  EXPECT_TRUE(fits(text, 40)) << text;
  EXPECT_TRUE(holds(text, "layer  head 0  head 1  head 2  head 3\n")) << text;
  EXPECT_TRUE(holds(text, "\nlayer  head 8  head 9  head 10  head 11\n")) << text;
}

TEST(Document, WordyHeadsOfNumbersAreFolded) {
  Table t{"",
          {"layer", "what attention adds to it", "what feed-forward adds to it"},
          {{"0", Cell(1.5), Cell(22.25)}}};
  for (int i = 0; i < 4; ++i) t.columns.push_back("others"), t.rows[0].push_back(Cell(i));
  const std::string text = document_text({.parts = {t}}, false, 40);
  EXPECT_TRUE(fits(text, 40)) << text;
  EXPECT_TRUE(
      text.starts_with("layer          what          what\n"
                       "          attention  feed-forward\n"
                       "         adds to it    adds to it\n"))
      << text;
}

TEST(Document, ATableOfWordsBecomesItsRows) {
  const Table t{
      "",
      {"what", "why", "where"},
      {{"first thing", "because of a reason", "here and elsewhere"}, {"second", "none", Cell(2.5, 1)}}};
  EXPECT_EQ(document_text({.parts = {t}}, false, 26),
            "what   first thing\n"
            "why    because of a reason\n"
            "where  here and elsewhere\n"
            "\n"
            "what   second\n"
            "why    none\n"
            "where  2.5\n");
}

TEST(Document, WideCellsWrapAndBrokenTextIsMadeHarmless) {
  Document d;
  std::string words;
  for (int i = 0; i < 40; ++i) words += "word ";
  d.parts.push_back(Table{"", {"left", "right"}, {{words, words}, {std::string(150, 'x'), "\033[31m\xFF"}}});
  const std::string text = document_text(d, false);
  std::size_t begin = 0, lines = 0, found = 0;
  for (std::size_t i = 0; i < text.size(); ++i)
    if (text[i] == '\n') {
      EXPECT_LE(text_width(std::string_view(text).substr(begin, i - begin)), 100);
      begin = i + 1, ++lines;
    }
  for (std::size_t at = text.find("word"); at != std::string::npos; at = text.find("word", at + 1)) ++found;
  EXPECT_EQ(found, 80u);
  EXPECT_EQ(std::count(text.begin(), text.end(), 'x'), 150);
  EXPECT_GT(lines, 8u);
  EXPECT_FALSE(holds(text, "\033"));
  d.parts.push_back(Table{"bad", {"a", "b"}, {{"1"}}});
  EXPECT_THROW(document_text(d, false), Error);
  EXPECT_THROW(document_json(d), Error);
  EXPECT_THROW(document_markdown(d), Error);
  EXPECT_THROW(documents_html("t", {{d}}), Error);
}

TEST(Document, Markdown) {
  const std::string text = document_markdown(sample());
  EXPECT_TRUE(holds(text, "## A title\n\n### Section\n"));
  EXPECT_TRUE(holds(text, "&lt;b>&&lt;/b> so on."));
  EXPECT_TRUE(holds(text, "**Numbers**\n\n| name | value |\n|---|---:|\n| first \\| one | 0.123 |\n"));
  EXPECT_FALSE(holds(text, "Map"));
}

TEST(Document, JsonHasEveryDigit) {
  const Json j = document_json(sample());
  const Json::Array& parts = j.find("parts")->array();
  ASSERT_EQ(parts.size(), 5u);
  EXPECT_EQ(parts[2].find("rows")->array()[0].array()[1].number(), 0.12345);
  EXPECT_EQ(parts[2].find("rows")->array()[0].array()[0].string(), "first | one");
  EXPECT_TRUE(parts[3].find("values")->array()[3].is_null());
  EXPECT_EQ(parts[4].find("curves")->array()[0].find("y")->array()[2].number(), 1);
  EXPECT_EQ(j.find("facts")->find("seed")->integer(), 7);
  EXPECT_EQ(parse_json(j.dump()).dump(), j.dump());
  EXPECT_EQ(
      document_json(sample(), true).find("parts")->array()[2].find("rows")->array()[0].array()[1].string(),
      "0.123");
}

// The policy knows the one style by its hash; there is no other style, no script, and nothing from
// elsewhere.
TEST(Document, HtmlAllowsOnlyItsOwnStyle) {
  const Document two[] = {sample(), sample()};
  const std::string page = documents_html("All & more", two);
  const std::size_t begin = page.find("<style>"), end = page.find("</style>");
  ASSERT_NE(begin, std::string::npos);
  EXPECT_EQ(page.find("<style", begin + 1), std::string::npos);
  EXPECT_TRUE(holds(page, concat("default-src 'none'; style-src 'sha256-",
                                 base64(sha256(page.substr(begin + 7, end - begin - 7))), "';")));
  for (const char* no : {"<script", "style=\"", "src=\"", "url(", "@import"})
    EXPECT_FALSE(holds(page, no)) << no;
  EXPECT_TRUE(holds(page, ".rapt-picture .c0{stroke:"));   // rules of both kinds of pictures came along
  EXPECT_TRUE(holds(page, ".rapt-picture .h63{fill:"));
  EXPECT_TRUE(holds(page, "All &amp; more"));
  EXPECT_TRUE(holds(page, "&lt;b&gt;&amp;"));
  EXPECT_TRUE(holds(page, "<a href=\"#part-2\">sample</a>: A title"));
  EXPECT_TRUE(holds(page, "<section id=\"part-2\">"));
  EXPECT_EQ(page, documents_html("All & more", two));
  EXPECT_FALSE(holds(documents_html("one", {two, 1}), "<nav"));
  // A title stands once, and words in backticks are code.
  Document one{.name = "one", .title = "Same"};
  one.parts.push_back(Words{"Made by `rapt lab a<b` and `c`, `open"});
  const std::string single = documents_html("Same", {&one, 1});
  EXPECT_TRUE(holds(single, "<h1>Same</h1>") && !holds(single, "<h2>")) << single;
  EXPECT_TRUE(holds(single, "Made by <code>rapt lab a&lt;b</code> and <code>c</code>, `open")) << single;
}

}  // namespace
}  // namespace rapt
