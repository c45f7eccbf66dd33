// SPDX-License-Identifier: Apache-2.0
// Pictures read back: points of SVG paths, pixels of PNG files and lines of text against the numbers drawn.
#include "rapt/report/picture.h"

#include <gtest/gtest.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>

#include "rapt/report/colors.h"
#include "tests/tools.h"

namespace rapt::test {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// Tags close in the order they were opened, '<' and '&' stand where XML allows them, no control characters.
// "" or what is wrong.
std::string xml_fault(const std::string& text) {
  std::vector<std::string> open;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (static_cast<unsigned char>(text[i]) < 32 && text[i] != '\n' && text[i] != '\t')
      return "a control character at " + std::to_string(i);
    if (text[i] == '&') {
      const std::string name = text.substr(i + 1, std::min(text.find(';', i), text.size()) - i - 1);
      if (name != "amp" && name != "lt" && name != "gt" && name != "quot" && name != "#39") return "&" + name;
    }
    if (text[i] == '>') return "a lone > at " + std::to_string(i);
    if (text[i] != '<') continue;
    bool quoted = false;
    std::size_t end = i + 1;
    for (; end < text.size() && (quoted || text[end] != '>'); ++end) {
      if (text[end] == '"') quoted = !quoted;
      if (text[end] == '<') return "< inside a tag at " + std::to_string(end);
    }
    if (end >= text.size()) return "an open tag at " + std::to_string(i);
    const std::string tag = text.substr(i + 1, end - i - 1);
    if (tag.starts_with('/')) {
      if (open.empty() || open.back() != tag.substr(1)) return "</" + tag + "> closes nothing";
      open.pop_back();
    } else if (!tag.ends_with('/')) {
      open.push_back(tag.substr(0, tag.find(' ')));
    }
    i = end;
  }
  return open.empty() ? "" : open.back() + " stays open";
}

int count_of(const std::string& text, const std::string& piece) {
  int n = 0;
  for (std::size_t at = text.find(piece); at != std::string::npos; at = text.find(piece, at + 1)) ++n;
  return n;
}

// The d="…" of curve k.
std::string path_of(const std::string& svg, int k) {
  const std::size_t at = svg.find("<path class=\"c" + std::to_string(k) + "\"");
  if (at == std::string::npos) return "";
  const std::size_t d = svg.find(" d=\"", at) + 4;
  return svg.substr(d, svg.find('"', d) - d);
}

std::vector<std::array<double, 2>> points_of(const std::string& path) {
  std::vector<std::array<double, 2>> out;
  for (std::size_t i = 0; i < path.size(); ++i)
    if (path[i] == 'M' || path[i] == 'L') {
      std::array<double, 2> p{};
      EXPECT_EQ(std::sscanf(path.c_str() + i + 1, "%lf %lf", &p[0], &p[1]), 2);
      out.push_back(p);
    }
  return out;
}

TEST(Chart, CurvesStandWhereTheirNumbersAre) {
  Chart chart{.title = "Loss",
              .x_label = "step",
              .y_label = "nats",
              .curves = {{"train", {0, 10, 20, 40}, {4, 2, 1, 0}}, {"held out", {0, 40}, {4, 4}}}};
  const std::string svg = chart_svg(chart);
  EXPECT_EQ(xml_fault(svg), "");
  const auto p = points_of(path_of(svg, 0)), q = points_of(path_of(svg, 1));
  ASSERT_EQ(p.size(), 4u);
  ASSERT_EQ(q.size(), 2u);
  // Linear both ways: distances keep their proportions; y grows downwards.
  EXPECT_NEAR((p[1][0] - p[0][0]) * 2, p[2][0] - p[0][0], 0.03);
  EXPECT_NEAR((p[1][0] - p[0][0]) * 4, p[3][0] - p[0][0], 0.05);
  EXPECT_NEAR((p[1][1] - p[0][1]), 2 * (p[2][1] - p[1][1]), 0.03);
  EXPECT_GT(p[3][1], p[0][1]);
  EXPECT_EQ(q[0][1], p[0][1]);
  EXPECT_EQ(q[1][0], p[3][0]);
  for (const auto& [x, y] : p) {
    EXPECT_GE(x, 0);
    EXPECT_LE(x, 720);
    EXPECT_GE(y, 0);
    EXPECT_LE(y, 400);
  }
  for (const char* word : {">Loss<", ">step<", ">nats<", ">train<", ">held out<", ">0<", ">10<", ">40<",
                           ">3.0<", "prefers-color-scheme:dark"})
    EXPECT_TRUE(holds(svg, word)) << word;
  EXPECT_EQ(svg, chart_svg(chart));
  chart.curves[0].x.pop_back();
  EXPECT_TRUE(holds(error_of([&] { chart_svg(chart); }), "3 places and 4 values"));
  EXPECT_THROW(chart_svg(Chart{}, 20, 20), Error);
  EXPECT_TRUE(holds(chart_svg(Chart{}), "no data"));
}

TEST(Chart, TicksAreRoundNumbers) {
  auto labels = [](double low, double high) {
    std::vector<std::string> out;
    const std::string svg = chart_svg({.curves = {{"", {0, 1}, {low, high}}}});
    for (std::size_t at = svg.find("text-anchor=\"end\">"); at != std::string::npos;
         at = svg.find("text-anchor=\"end\">", at + 1))
      out.push_back(svg.substr(at + 18, svg.find('<', at) - at - 18));
    return out;
  };
  using Labels = std::vector<std::string>;
  EXPECT_EQ(labels(0, 1), (Labels{"0.0", "0.2", "0.4", "0.6", "0.8", "1.0"}));
  EXPECT_EQ(labels(-3, 17), (Labels{"-5", "0", "5", "10", "15", "20"}));
  EXPECT_EQ(labels(1.901, 1.934),
            (Labels{"1.900", "1.905", "1.910", "1.915", "1.920", "1.925", "1.930", "1.935"}));
  EXPECT_EQ(labels(0, 120000), (Labels{"0", "20,000", "40,000", "60,000", "80,000", "100,000", "120,000"}));
  EXPECT_FALSE(labels(7, 7).empty());  // a flat line has an axis too
  EXPECT_FALSE(labels(0, 1e-9).empty());
  EXPECT_FALSE(labels(-1e300, 1e300).empty());
}

TEST(Chart, WhatIsNoNumberIsAGap) {
  const Chart chart{.curves = {{"", {0, 1, 2, 3, 4, 5, 6}, {1, 2, kNan, 3, INFINITY, 4, 5}}}};
  const std::string path = path_of(chart_svg(chart), 0);
  EXPECT_EQ(count_of(path, "M"), 3);
  EXPECT_EQ(points_of(path).size(), 5u);
  EXPECT_EQ(count_of(path, "h0"), 1);  // a point of its own is a dot
  const Chart log{.curves = {{"", {0, 1, 2, 3}, {100, 0, -1, 1}}}, .log_y = true};
  EXPECT_EQ(points_of(path_of(chart_svg(log), 0)).size(), 2u);
}

TEST(Chart, LogarithmsOnTheAxis) {
  const Chart chart{.curves = {{"", {0, 1, 2}, {1000, 10, 0.1}}}, .log_y = true};
  const std::string svg = chart_svg(chart);
  const auto p = points_of(path_of(svg, 0));
  ASSERT_EQ(p.size(), 3u);
  EXPECT_NEAR(p[1][1] - p[0][1], p[2][1] - p[1][1], 0.03);  // a hundredth each
  for (const char* word : {">0.1<", ">1<", ">10<", ">100<", ">1000<"}) EXPECT_TRUE(holds(svg, word)) << word;
  const std::string narrow = chart_svg({.curves = {{"", {0, 1}, {1.9, 4.3}}}, .log_y = true});
  EXPECT_TRUE(holds(narrow, ">2.5<") || holds(narrow, ">3<") || holds(narrow, ">3.0<")) << narrow;
}

TEST(Chart, ManyPointsBecomeFewAndKeepTheirPeaks) {
  Curve c;
  for (int i = 0; i < 200000; ++i)
    c.x.push_back(i), c.y.push_back(std::sin(i * 0.001) + (i == 123456 ? 9 : 0));
  const std::string svg = chart_svg({.curves = {c}});
  const auto p = points_of(path_of(svg, 0));
  EXPECT_LT(p.size(), 720u * 4);
  double peak = 1e9, usual = 0;
  for (const auto& [x, y] : p) peak = std::min(peak, y), usual += y / double(p.size());
  EXPECT_LT(peak, usual - 200);
}

// A share has a known range: one that is always 0 lies at the bottom, not in the middle of -0.6 to 0.6.
TEST(Chart, SharesStandBetweenZeroAndOne) {
  const std::string svg = chart_svg({.curves = {{"a", {0, 1}, {0, 0}}}, .share = true});
  EXPECT_TRUE(holds(svg, ">0.0</text>") && holds(svg, ">1.0</text>") && !holds(svg, ">-")) << svg;
}

TEST(Chart, LabelsAreEscapedAndCannotLeaveTheirPlace) {
  const std::string nasty = "<script>alert('a & \"b\"')</script>\x01\xff";
  const std::string svg = chart_svg(
      {.title = nasty, .x_label = nasty, .y_label = nasty, .curves = {{nasty, {0, 1}, {0, 1}}}}, 1600, 400);
  EXPECT_EQ(xml_fault(svg), "");
  EXPECT_FALSE(holds(svg, "<script"));
  EXPECT_EQ(count_of(svg, "&lt;script&gt;alert(&#39;a &amp; &quot;b&quot;&#39;)"), 5);
  EXPECT_EQ(count_of(svg, "\xEF\xBF\xBD\xEF\xBF\xBD"), 5);
  const std::string heat = heat_svg({.title = nasty, .rows = {nasty}, .columns = {nasty}, .values = {0.5}});
  EXPECT_EQ(xml_fault(heat), "");
  const std::string text = heat_text(
      {.title = "a\033[2Jb\nc", .rows = {"\033]0;x\a"}, .columns = {"\x9b\xe2\x80\xae"}, .values = {0.5}},
      false);
  EXPECT_EQ(text.find('\033'), std::string::npos);
  EXPECT_EQ(text.find('\a'), std::string::npos);
  EXPECT_FALSE(holds(text, "\xe2\x80\xae"));
}

TEST(Chart, TextShowsARisingLine) {
  Chart chart{.title = "up", .x_label = "step", .curves = {{"a", {}, {}}}};
  for (int i = 0; i <= 100; ++i) chart.curves[0].x.push_back(i), chart.curves[0].y.push_back(i);
  const std::string text = chart_text(chart, false, 40, 8);
  std::vector<std::string> lines;
  for (std::size_t at = 0; at < text.size(); at = text.find('\n', at) + 1)
    lines.push_back(text.substr(at, text.find('\n', at) - at));
  ASSERT_EQ(lines.size(), 13u);  // title, 8 rows, axis, numbers, label, legend
  EXPECT_EQ(lines[0], "up");
  Dim before = 1000;
  for (int i = 1; i <= 8; ++i) {  // the line's end moves to the left from row to row
    const Dim width = text_width(lines[static_cast<std::size_t>(i)]);
    EXPECT_LT(width, before) << text;
    EXPECT_LE(width, 40);
    before = width;
  }
  EXPECT_TRUE(holds(lines[10], "0") && holds(lines[10], "50") && holds(lines[10], "100")) << text;
  EXPECT_EQ(text.find('\033'), std::string::npos);
  EXPECT_NE(chart_text(chart, true).find('\033'), std::string::npos);
  EXPECT_NO_THROW(chart_text(Chart{}, true));
}

TEST(Chart, TextTellsCurvesApartWithoutColours) {
  Chart chart{.y_label = "loss",
              .curves = {{"first", {0, 1}, {0, 0}}, {"second", {0, 1}, {1, 1}}, {"a dot", {0.5}, {0.5}}}};
  const std::string text = chart_text(chart, false, 60, 6);
  EXPECT_TRUE(holds(text, "↑ loss\n"));
  EXPECT_TRUE(holds(text, "\nA first   B second   C a dot\n")) << text;
  std::vector<std::string> rows;
  for (std::size_t at = 0; at < text.size(); at = text.find('\n', at) + 1)
    rows.push_back(text.substr(at, text.find('\n', at) - at));
  EXPECT_GE(count_of(rows[6], "A"), 2) << text;  // along the lowest row
  EXPECT_GE(count_of(rows[1], "B"), 2) << text;
  EXPECT_EQ(count_of(text, "C"), 2) << text;     // once on the curve, once in the legend
  EXPECT_FALSE(holds(chart_text(chart, true, 60, 6), "A first"));
  EXPECT_TRUE(holds(chart_text(chart, false, 24, 6), "\nA first   B second\nC a dot\n"))
      << chart_text(chart, false, 24, 6);
}

// ------------------------------------------------------------------------------------------------ heat maps
struct Image {
  std::uint32_t width = 0, height = 0;
  std::vector<unsigned char> rgb;
  std::array<int, 3> at(std::uint32_t x, std::uint32_t y) const {
    const std::size_t i = (std::size_t{y} * width + x) * 3;
    return {rgb[i], rgb[i + 1], rgb[i + 2]};
  }
};

// A reader of the PNG files that heat_png writes, by the standard: signature, chunks with their CRC, filters
// none and up.
Image read_png(const std::vector<std::byte>& file) {
  Image image;
  auto byte = [&](std::size_t i) { return std::to_integer<std::uint32_t>(file.at(i)); };
  auto big = [&](std::size_t i) {
    return byte(i) << 24 | byte(i + 1) << 16 | byte(i + 2) << 8 | byte(i + 3);
  };
  const unsigned char signature[] = {137, 80, 78, 71, 13, 10, 26, 10};
  EXPECT_EQ(std::memcmp(file.data(), signature, 8), 0);
  std::vector<unsigned char> packed;
  std::vector<std::string> order;
  for (std::size_t i = 8; i < file.size();) {
    const std::uint32_t length = big(i);
    const std::string name(reinterpret_cast<const char*>(file.data()) + i + 4, 4);
    order.push_back(name);
    const auto* body = reinterpret_cast<const Bytef*>(file.data()) + i + 8;
    EXPECT_EQ(crc32(0, body - 4, length + 4), big(i + 8 + length)) << name;
    if (name == "IHDR") {
      EXPECT_EQ(length, 13u);
      image.width = big(i + 8), image.height = big(i + 12);
      EXPECT_EQ(byte(i + 16), 8u);
      EXPECT_EQ(byte(i + 17), 2u);
      EXPECT_EQ(big(i + 17) & 0xFFFFFF, 0u);
    }
    if (name == "IDAT") packed.insert(packed.end(), body, body + length);
    i += 12 + length;
    if (name == "IEND") EXPECT_EQ(i, file.size());
  }
  EXPECT_EQ(order, (std::vector<std::string>{"IHDR", "IDAT", "IEND"}));
  const std::size_t row = std::size_t{image.width} * 3;
  std::vector<unsigned char> raw((row + 1) * image.height);
  uLongf size = raw.size();
  EXPECT_EQ(uncompress(raw.data(), &size, packed.data(), packed.size()), Z_OK);
  EXPECT_EQ(size, raw.size());
  image.rgb.resize(row * image.height);
  for (std::size_t y = 0; y < image.height; ++y) {
    const int filter = raw[y * (row + 1)];
    EXPECT_TRUE(filter == 0 || (filter == 2 && y > 0));
    for (std::size_t x = 0; x < row; ++x)
      image.rgb[y * row + x] = static_cast<unsigned char>(raw[y * (row + 1) + 1 + x] +
                                                          (filter == 2 ? image.rgb[(y - 1) * row + x] : 0));
  }
  return image;
}

const HeatMap kMap{
    .title = "", .rows = {"a", "b"}, .columns = {"x", "y", "z"}, .values = {0, 0.5, 1, 2, -1, kNan}};

std::array<int, 3> triple(Rgb c) { return {c.r, c.g, c.b}; }

TEST(Heat, PngHasThePixelsOfTheValues) {
  const std::array<int, 3> none = {208, 215, 222};
  const auto cell_at = [](const HeatMap& map, int cell, int row, int column) {
    const PngLayout l = heat_png_layout(map, cell);
    const Image image = read_png(heat_png(map, cell));
    EXPECT_EQ(image.width, static_cast<unsigned>(l.width));
    EXPECT_EQ(image.height, static_cast<unsigned>(l.height));
    // Its first pixel and its last.
    for (const auto& [x, y] : {std::pair{0, 0}, std::pair{l.cell - 1, l.cell - 1}})
      EXPECT_EQ(image.at(static_cast<unsigned>(l.left + column * l.cell + x),
                         static_cast<unsigned>(l.top + row * l.cell + y)),
                image.at(static_cast<unsigned>(l.left + column * l.cell),
                         static_cast<unsigned>(l.top + row * l.cell)));
    return image.at(static_cast<unsigned>(l.left + column * l.cell),
                    static_cast<unsigned>(l.top + row * l.cell));
  };
  for (const int cell : {0, 1, 5, 16}) {
    const std::array<int, 3> want[2][3] = {
        {triple(heat_color(0, false)), triple(heat_color(0.5, false)), triple(heat_color(1, false))},
        {triple(heat_color(1, false)), triple(heat_color(0, false)), none}};
    for (int r = 0; r < 2; ++r)
      for (int c = 0; c < 3; ++c)
        EXPECT_EQ(cell_at(kMap, cell, r, c), want[r][c]) << cell << " " << r << "," << c;
  }
  HeatMap map = kMap;
  map.top = 0;  // the largest there is: 2
  EXPECT_EQ(cell_at(map, 4, 1, 0), triple(heat_color(1, false)));
  EXPECT_EQ(cell_at(map, 4, 0, 2), triple(heat_color(0.5, false)));
  map.scale = HeatMap::Scale::root;
  EXPECT_EQ(cell_at(map, 4, 0, 1), triple(heat_color(0.5, false)));  // 0.5 of 2
  map.scale = HeatMap::Scale::both_signs;
  EXPECT_EQ(cell_at(map, 4, 1, 1), triple(signed_color(-0.5, false)));
  EXPECT_EQ(cell_at(map, 4, 0, 0), triple(signed_color(0, false)));
  map.values.assign(6, 0);
  EXPECT_EQ(heat_png(kMap), heat_png(kMap));
}

// 51,200 cells were 6.6 MB of rectangles once. Large maps are images inside the SVG, in the colours of both
// themes where there is room; small ones stay rectangles. Zero between two signs is the paper.
TEST(Heat, LargeMapsStaySmallFiles) {
  const auto labels = [](std::size_t n) {
    std::vector<std::string> out;
    for (std::size_t i = 0; i < n; ++i) out.emplace_back(std::to_string(i));
    return out;
  };
  HeatMap waves{.title = "Sinusoids", .rows = labels(100), .columns = labels(512), .values = {}};
  waves.scale = HeatMap::Scale::both_signs;
  for (std::size_t t = 0; t < 100; ++t)
    for (std::size_t c = 0; c < 512; ++c)
      waves.values.push_back(std::sin(static_cast<double>(t) * std::pow(1e4, -static_cast<double>(c) / 512)));
  const std::string svg = heat_svg(waves);
  EXPECT_LT(svg.size(), 200000u);
  EXPECT_EQ(xml_fault(svg), "");
  EXPECT_EQ(count_of(svg, "<image"), 2);
  EXPECT_TRUE(holds(svg, "class=\"night\"") && holds(svg, ".night{display:none}"));
  EXPECT_LT(heat_png(waves).size(), 300000u);
  HeatMap noise{.title = "Noise", .rows = labels(500), .columns = labels(500), .values = {}};
  std::uint32_t x = 1;
  for (int i = 0; i < 250000; ++i) noise.values.push_back((x = x * 1664525 + 1013904223) / 4294967296.0);
  EXPECT_LT(heat_svg(noise).size(), 300000u);  // what is hardest to pack: one theme alone
  for (const std::size_t n : {std::size_t{40}, std::size_t{60}}) {  // cells with names, cells without
    HeatMap small{.title = "Noise", .rows = labels(n), .columns = labels(n), .values = {}};
    small.values.assign(noise.values.begin(), noise.values.begin() + static_cast<std::ptrdiff_t>(n * n));
    EXPECT_LT(heat_svg(small).size(), 300000u);
    EXPECT_EQ(count_of(heat_svg(small), "<image"), 0);
  }
  EXPECT_EQ(signed_color(0, false), (Rgb{255, 255, 255}));
}

// Words, what the sides are, and the legend: more than the cells alone would be, and larger maps stay of a
// size to look at.
TEST(Heat, PngHasLabelsAndASaneSize) {
  HeatMap map = kMap;
  const PngLayout bare = heat_png_layout(map);
  map.row_name = "query", map.column_name = "key", map.title = "A title that says what this is and why";
  const PngLayout named = heat_png_layout(map);
  EXPECT_GT(named.left, bare.left);
  EXPECT_GT(named.top, bare.top);
  const Image image = read_png(heat_png(map));
  const auto dark = [&](unsigned x0, unsigned x1, unsigned y0, unsigned y1) {
    int count = 0;
    for (unsigned y = y0; y < y1; ++y)
      for (unsigned x = x0; x < x1; ++x) count += image.at(x, y)[0] < 100;
    return count;
  };
  const auto left = static_cast<unsigned>(named.left), top = static_cast<unsigned>(named.top);
  EXPECT_GT(dark(0, left - 2, top, image.height - 60), 40);               // rows, and their name
  EXPECT_GT(dark(left, image.width, 0, top - 2), 40);                     // title, columns, and their name
  // Values of the legend.
  EXPECT_GT(dark(left, image.width, top + static_cast<unsigned>(named.high) + 4, image.height), 40);
  for (const std::size_t n : {8u, 256u, 900u}) {
    const HeatMap large{.rows = std::vector<std::string>(n, "word"),
                        .columns = std::vector<std::string>(n, "word"),
                        .values = std::vector<double>(n * n, 0.5)};
    const PngLayout l = heat_png_layout(large);
    EXPECT_LE(std::max(l.width, l.height), 1200) << n;
    EXPECT_GE(l.wide, 256) << n;
    EXPECT_GE(l.row_step * l.cell, 10 * l.letter) << n;  // labels do not overlap
  }
}

TEST(Heat, SvgNamesEveryCell) {
  const HeatMap map{.title = "Alignment",
                    .rows = {"the", "house"},
                    .columns = {"das", "Haus", "</s>"},
                    .values = {0.9, 0.05, 0.05, 0.125, 0.75, 0.125}};
  const std::string svg = heat_svg(map);
  EXPECT_EQ(xml_fault(svg), "");
  EXPECT_TRUE(holds(svg, "<title>house \xC2\xB7 Haus: 0.750</title>")) << svg;
  EXPECT_EQ(count_of(svg, "</title></rect>"), 6);
  EXPECT_EQ(count_of(svg, "<rect class=\"h48\""), 2);  // 0.75 of 64 shades: the cell, and the legend's
  EXPECT_EQ(count_of(svg, "rotate(-45)"), 3);
  EXPECT_TRUE(holds(svg, ">&lt;/s&gt;</text>"));
  EXPECT_EQ(count_of(heat_svg(kMap), "class=\"none\""), 1);
  EXPECT_EQ(svg, heat_svg(map));
}

TEST(Heat, SvgSaysWhatItsSidesAndColoursAre) {
  HeatMap map{
      .title = "a", .rows = {"r"}, .columns = {"c", "d"}, .values = {0.04, 1}, .scale = HeatMap::Scale::root};
  map.row_name = "query", map.column_name = "key", map.value_name = "weight";
  std::string svg = heat_svg(map);
  for (const char* words :
       {"query</text>", ">key ", "weight, square-root scale", ">0.1</text>", ">1.0</text>"})
    EXPECT_TRUE(holds(svg, words)) << words << svg;
  EXPECT_EQ(count_of(svg, "<rect class=\"h13\""), 2);  // the root of 0.04 is 0.2
  map.scale = HeatMap::Scale::both_signs;
  map.values = {-2, 2};
  map.top = 2;
  svg = heat_svg(map);
  for (const char* words : {">-2.0</text>", ">0</text>", ">2.0</text>"})
    EXPECT_TRUE(holds(svg, words)) << words << svg;
  EXPECT_EQ(count_of(svg, "<rect class=\"d0\""), 2);
  EXPECT_EQ(count_of(svg, "<rect class=\"d64\""), 2);
  // Words in the cells, in a colour that can be read on them.
  map.cells = {"low", "<high>"};
  svg = heat_svg(map);
  EXPECT_EQ(xml_fault(svg), "");
  EXPECT_TRUE(holds(svg, ">low</text>") && holds(svg, ">&lt;high&gt;</text>")) << svg;
  map.cells.pop_back();
  EXPECT_THROW(heat_svg(map), Error);
  // Of many labels some, so that they do not overlap.
  HeatMap wide{
      .rows = {"r"}, .columns = std::vector<std::string>(200, "word"), .values = std::vector<double>(200, 1)};
  EXPECT_LE(count_of(heat_svg(wide), "rotate(-45)"), 50);
}

TEST(Colors, LightnessIsOrderedEverywhere) {
  const auto lightness = [](Rgb c) {  // L of Oklab
    const auto linear = [](int v) {
      return v / 255.0 <= 0.04045 ? v / 255.0 / 12.92 : std::pow((v / 255.0 + 0.055) / 1.055, 2.4);
    };
    const double r = linear(c.r), g = linear(c.g), b = linear(c.b);
    return 0.2104542553 * std::cbrt(0.4122214708 * r + 0.5363325363 * g + 0.0514459929 * b) +
           0.7936177850 * std::cbrt(0.2119034982 * r + 0.6806995451 * g + 0.1073969566 * b) -
           0.0040720468 * std::cbrt(0.0883024619 * r + 0.2817188376 * g + 0.6299787005 * b);
  };
  const auto terminal = [](int code) -> Rgb {  // the 6 x 6 x 6 cube and the greys
    const auto level = [](int i) { return static_cast<std::uint8_t>(i == 0 ? 0 : 55 + 40 * i); };
    if (code >= 232)
      return {static_cast<std::uint8_t>(8 + 10 * (code - 232)),
              static_cast<std::uint8_t>(8 + 10 * (code - 232)),
              static_cast<std::uint8_t>(8 + 10 * (code - 232))};
    return {level((code - 16) / 36), level((code - 16) / 6 % 6), level((code - 16) % 6)};
  };
  for (int i = 1; i < 64; ++i) {
    const double a = (i - 1) / 63.0, b = i / 63.0;
    EXPECT_GT(lightness(heat_color(a, false)), lightness(heat_color(b, false))) << i;
    EXPECT_LT(lightness(heat_color(a, true)), lightness(heat_color(b, true))) << i;
    for (const int sign : {-1, 1}) {
      EXPECT_GT(lightness(signed_color(sign * a, false)), lightness(signed_color(sign * b, false))) << i;
      EXPECT_LT(lightness(signed_color(sign * a, true)), lightness(signed_color(sign * b, true))) << i;
      EXPECT_LE(lightness(terminal(signed_terminal_color(sign * a))),
                lightness(terminal(signed_terminal_color(sign * b))))
          << i;
    }
    EXPECT_LE(lightness(terminal(heat_terminal_color(a))), lightness(terminal(heat_terminal_color(b)))) << i;
  }
  EXPECT_EQ(hex_of(heat_color(0, false)), "fcfaf1");
  EXPECT_NE(heat_terminal_color(0), heat_terminal_color(1));
}

TEST(Heat, TextShadesAndWidths) {
  const HeatMap map{.rows = {"ab", "\xE6\x97\xA5\xE6\x9C\xAC", "e\xCC\x81"},
                    .columns = {"x", "y"},
                    .values = {0, 1, 0.5, 0.25, kNan, 0.1}};
  const std::string text = heat_text(map, false);
  EXPECT_EQ(text,
            "      1 2\n"
            "  ab    \xE2\x96\x88\n"
            "\xE6\x97\xA5\xE6\x9C\xAC  \xE2\x96\x93 \xE2\x96\x92\n"
            "   e\xCC\x81  ? \xE2\x96\x91\n"
            "1 x   2 y\n"
            "blank 0  ░ 0.05  ▒ 0.2  ▓ 0.45  █ 0.7  and more\n");
  const std::string color = heat_text(map, true);
  EXPECT_EQ(count_of(color, "\033[48;5;"), 5 + 5);  // cells, and the scale
  EXPECT_TRUE(holds(color, "\033[48;5;230m  \033[0m\n")) << color;
}

TEST(Heat, TextNamesItsSidesAndItsScale) {
  HeatMap map{.rows = {"a"}, .columns = {"b"}, .values = {0.04}};
  map.scale = HeatMap::Scale::root;
  map.row_name = "query", map.column_name = "key", map.value_name = "weight";
  EXPECT_EQ(heat_text(map, false),
            "   1\na  ▒\n1 b\n"
            "↓ query   → key   weight:  blank 0  ░ 0.0025  ▒ 0.04  ▓ 0.2  █ 0.49  and "
            "more  (by the square root)\n");
  EXPECT_TRUE(
      heat_text(map, false, 40)
          .ends_with("\n↓ query   → key\nweight:  blank 0  ░ 0.0025  ▒ 0.04\n▓ 0.2  █ 0.49  and more\n"
                     "(by the square root)\n"))
      << heat_text(map, false, 40);
}

TEST(Heat, TextOfValuesWithASign) {
  HeatMap map{.rows = {"a"}, .columns = {"1", "2", "3"}, .values = {-2, 0, 1}, .top = 2};
  map.scale = HeatMap::Scale::both_signs;
  EXPECT_EQ(heat_text(map, false),
            "   1 2 3\na  #   ▓\n"
            "# -1.4  = -0.9  - -0.4  · -0.1  ░ 0.1  ▒ 0.4  ▓ 0.9  █ 1.4\n");
}

TEST(Heat, TextGetsNarrowerCellsAndThenFewer) {
  HeatMap map{.rows = {"r"}, .columns = {}, .values = std::vector<double>(61, 0.0), .top = 1};
  for (int c = 0; c < 61; ++c) map.columns.push_back(std::to_string(c));
  map.values[34] = 1;
  EXPECT_TRUE(holds(heat_text(map, false, 200), "  0  1  2 ")) << heat_text(map, false, 200);
  EXPECT_TRUE(heat_text(map, false, 100).starts_with("  0         10        20"))
      << heat_text(map, false, 100);
  EXPECT_TRUE(holds(heat_text(map, false, 100), "\nr " + std::string(34, ' ') + "█"))
      << heat_text(map, false, 100);
  const std::string narrow = heat_text(map, false, 40);
  map.cells.assign(61, "a word in the cell, for SVG");
  EXPECT_EQ(heat_text(map, false, 40), narrow);
  map.cells.clear();
  EXPECT_TRUE(holds(narrow, "(a column is the largest of 2)\n")) << narrow;
  EXPECT_TRUE(holds(narrow, "\nr " + std::string(17, ' ') + "█")) << narrow;
  for (const Dim width : {100, 80, 40, 20})
    for (const bool own : {true, false}) {
      if (!own) map.columns.assign(61, "words");
      const std::string text = heat_text(map, false, width);
      for (std::size_t at = 0; at < text.size(); at = text.find('\n', at) + 1)
        EXPECT_LE(text_width(text.substr(at, text.find('\n', at) - at)), width) << text;
    }
}

TEST(Heat, WrongMapsAreRefused) {
  EXPECT_THROW(heat_svg({}), Error);
  // Labels that are numbers stand above their columns themselves, and nothing is explained below.
  EXPECT_EQ(heat_text({.rows = {"0"}, .columns = {"7", "10"}, .values = {1, 0}}, false),
            "    7 10\n0  ██   \nblank 0  ░ 0.05  ▒ 0.2  ▓ 0.45  █ 0.7  and more\n");
  EXPECT_THROW(heat_text({.rows = {"a"}, .columns = {"b"}, .values = {1, 2}}, false), Error);
  EXPECT_THROW(heat_png({.rows = {"a"}, .columns = {"b"}, .values = {1}, .top = -1}), Error);
  EXPECT_THROW(heat_png(kMap, -1), Error);
}

TEST(Picture, GoesIntoAFileByItsEnding) {
  const TempFolder folder;
  write_picture(kMap, folder / "a.svg", false);
  write_picture(kMap, folder / "a.txt", false);
  write_picture(kMap, folder / "a.png", false);
  EXPECT_EQ(read_text_file(folder / "a.svg"), heat_svg(kMap));
  EXPECT_EQ(read_text_file(folder / "a.txt"), heat_text(kMap, false));
  const std::vector<std::byte> png = heat_png(kMap);
  const MappedFile file(folder / "a.png");
  ASSERT_EQ(file.bytes().size(), png.size());
  EXPECT_EQ(std::memcmp(file.bytes().data(), png.data(), png.size()), 0);
  EXPECT_THROW(write_picture(kMap, folder / "a.svg", false), Error);  // it is there
  write_picture(kMap, folder / "a.svg", true);
  EXPECT_TRUE(holds(error_of([&] { write_picture(kMap, folder / "a.jpg", false); }), ".svg, .png or .txt"));
  const Chart chart{.curves = {{"a", {0, 1}, {0, 1}}}};
  write_picture(chart, folder / "c.svg", false);
  EXPECT_EQ(read_text_file(folder / "c.svg"), chart_svg(chart));
  EXPECT_TRUE(holds(error_of([&] { write_picture(chart, folder / "c.png", false); }), ".svg, or .txt"));
}

}  // namespace
}  // namespace rapt::test
