// SPDX-License-Identifier: Apache-2.0
// What the file looks like from outside; what it does in a browser is tests/browser/page_test.py.
#include "rapt/report/page.h"

#include <gtest/gtest.h>
#include <zlib.h>

#include <cstring>

#include "rapt/base/sha256.h"

namespace rapt {
namespace {

Page small() {
  Page p{.title = "a <b> & \"c\"",
         .model = "toy",
         .tokens = {"<s>", " b", "c"},
         .ids = {1, 2, 3},
         .layers = 1,
         .heads = 2};
  p.metrics.push_back({.key = "first", .name = "first token", .values = {0.25f, 0.75f}});
  p.labels = {"", "sink 0.75"};
  p.maps.push_back({.layer = 0, .head = 1, .rows = 2, .keys = 2, .top = 1, .pixels = {255, 0, 64, 191}});
  p.strongest.push_back({.layer = 0,
                         .head = 1,
                         .count = 2,
                         .keys = {0, -1, 0, 1, 2, 0},
                         .weights = {1, 0, 0.5f, 0.25f, 0.75f, 0.125f}});
  p.grids.push_back({.key = "lens",
                     .name = "lens",
                     .rows = {"embed", "0"},
                     .values = {1, 2, 3, 4, 5, 6},
                     .texts = {"x", "y", "x", "z", "y", "x"}});
  return p;
}

// What stands between `begin` and the next `end`.
std::string between(const std::string& text, std::string_view begin, std::string_view end) {
  const std::size_t from = text.find(begin);
  if (from == std::string::npos) return "nothing begins so";
  const std::size_t at = from + begin.size();
  return text.substr(at, text.find(end, at) - at);
}
Json data_of(const std::string& html) {
  return parse_json(between(html, "<script type=\"application/json\" id=\"data\">", "</script>"));
}
std::size_t count(const std::string& text, std::string_view piece) {
  std::size_t n = 0;
  for (std::size_t at = text.find(piece); at != std::string::npos; at = text.find(piece, at + 1)) ++n;
  return n;
}

std::vector<unsigned char> bytes_of(const std::string& html) {
  static constexpr std::string_view kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::vector<unsigned char> packed, out(4096);
  std::uint32_t group = 0;
  int bits = 0;
  for (const char c : between(html, "<script type=\"text/plain\" id=\"bytes\">", "</script>")) {
    if (c == '=') break;
    group = group << 6 | static_cast<std::uint32_t>(kDigits.find(c));
    if ((bits += 6) >= 8) packed.push_back(static_cast<unsigned char>(group >> (bits -= 8)));
  }
  uLongf size = out.size();
  EXPECT_EQ(uncompress(out.data(), &size, packed.data(), static_cast<uLong>(packed.size())), Z_OK);
  out.resize(size);
  return out;
}

TEST(Page, ThePolicyKnowsScriptAndStyleByTheirHashes) {
  const std::string html = page_html(small());
  const std::string script = between(html, "<script>", "</script>"),
                    style = between(html, "<style>", "</style>");
  EXPECT_GT(script.size(), 10000u);
  EXPECT_GT(style.size(), 5000u);
  EXPECT_EQ(between(html, "Content-Security-Policy\" content=\"", "\""),
            concat("default-src 'none'; script-src 'sha256-", base64(sha256(script)), "'; style-src 'sha256-",
                   base64(sha256(style)), "'; img-src data:; base-uri 'none'; form-action 'none'"));
  EXPECT_EQ(count(html, "<script"), 3u);
  EXPECT_EQ(count(html, "</script"), 3u);
  EXPECT_EQ(count(html, "{{"), 0u);
  EXPECT_EQ(count(html, "://"), 1u) << "the only address is the name of SVG";
  for (const char* bad : {"innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "fetch(",
                          "XMLHttpRequest", " style=\""})
    EXPECT_EQ(count(html, bad), 0u) << bad;
  EXPECT_EQ(between(html, "<title>", "</title>"), "a &lt;b&gt; &amp; &quot;c&quot;");
  EXPECT_EQ(html, page_html(small()));
}

TEST(Page, NamesAndTextsAreJson) {
  Page p = small();
  p.documents.push_back(
      {.name = "d", .title = "D", .parts = {Words{"w"}}, .facts = Json::Object{{"secret", 1}}});
  const Json data = data_of(page_html(p));
  EXPECT_EQ(data.find("title")->string(), p.title);
  EXPECT_EQ(data.find("tokens")->array()[1].string(), " b");
  EXPECT_EQ(data.find("ids")->array()[2].integer(), 3);
  EXPECT_EQ(data.find("labels")->array()[1].string(), "sink 0.75");
  EXPECT_EQ(data.find("maps")->array()[0].find("h")->integer(), 1);
  EXPECT_EQ(data.find("strongest")->array()[0].find("count")->integer(), 2);
  EXPECT_EQ(data.find("grids")->array()[0].find("texts")->array().size(), 3u);  // each once
  const Json& said = data.find("documents")->find("en")->array()[0];
  EXPECT_EQ(said.find("parts")->array()[0].find("text")->string(), "w");
  EXPECT_TRUE(said.find("facts")->is_null());
}

TEST(Page, NumbersStandInTheOrderThatTheScriptReads) {
  const std::vector<unsigned char> bytes = bytes_of(page_html(small()));
  const float floats[] = {0.25f, 0.75f, 1, 2, 3, 4, 5, 6};
  const std::uint32_t places[] = {0, 1, 0, 2, 1, 0};
  // Keys by rank, then weights by rank.
  const std::uint16_t links[] = {0, 0, 2, 65535, 1, 0, 1000, 500, 750, 0, 250, 125};
  const unsigned char pixels[] = {255, 0, 64, 191};
  ASSERT_EQ(bytes.size(), sizeof floats + sizeof places + sizeof links + sizeof pixels);
  const unsigned char* at = bytes.data();
  EXPECT_EQ(std::memcmp(at, floats, sizeof floats), 0);
  EXPECT_EQ(std::memcmp(at += sizeof floats, places, sizeof places), 0);
  EXPECT_EQ(std::memcmp(at += sizeof places, links, sizeof links), 0);
  EXPECT_EQ(std::memcmp(at += sizeof links, pixels, sizeof pixels), 0);
}

TEST(Page, HostileTextsStayInsideTheirBlock) {
  Page p = small();
  p.title = "</title><script>alert(1)</script>";
  p.tokens = {"</script><script>alert(1)</script>", "<!--<script>", "\xFF \xE2\x80\xA8 \"\\ \x01"};
  p.grids[0].texts[0] = "</SCRIPT>";
  const std::string html = page_html(p);
  EXPECT_EQ(count(html, "<script"), 3u);
  EXPECT_EQ(count(html, "</script"), 3u);
  EXPECT_EQ(count(html, "</SCRIPT"), 0u);
  EXPECT_EQ(count(html, "<!--"), 0u);
  EXPECT_EQ(count(html, "\xE2\x80\xA8"), 0u);
  const Json data = data_of(html);  // valid UTF-8, or the parser would refuse it
  EXPECT_EQ(data.find("tokens")->array()[0].string(), p.tokens[0]);
  EXPECT_EQ(data.find("tokens")->array()[1].string(), p.tokens[1]);
  EXPECT_EQ(data.find("tokens")->array()[2].string(), "\xEF\xBF\xBD \xE2\x80\xA8 \"\\ \x01");
}

TEST(Page, WhatDoesNotFitIsRefused) {
  const auto refused = [](auto&& change) {
    Page p = small();
    change(p);
    EXPECT_THROW(page_html(p), Error);
  };
  refused([](Page& p) { p.tokens.clear(), p.ids.clear(); });
  refused([](Page& p) { p.ids.pop_back(); });
  refused([](Page& p) { p.heads = 0; });
  refused([](Page& p) { p.metrics[0].values.pop_back(); });
  refused([](Page& p) { p.labels.pop_back(); });
  refused([](Page& p) { p.maps[0].head = 2; });
  refused([](Page& p) { p.maps[0].pixels.pop_back(); });
  refused([](Page& p) { p.strongest[0].keys[0] = 3; });
  refused([](Page& p) { p.strongest[0].weights.pop_back(); });
  refused([](Page& p) { p.grids[0].values.pop_back(); });
  refused([](Page& p) { p.grids[0].texts.pop_back(); });
  refused([](Page& p) { p.layers = 3; });
}

}  // namespace
}  // namespace rapt
