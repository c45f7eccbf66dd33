// SPDX-License-Identifier: Apache-2.0
// Heat maps as SVG and PNG: the cells, words or numbers along two sides, what the sides are, and the colours
// with the values they mean.
#include <zlib.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <map>

#include "rapt/base/sha256.h"
#include "rapt/base/text.h"
#include "rapt/report/bitmap_font.h"
#include "rapt/report/colors.h"
#include "rapt/report/picture_parts.h"

namespace rapt {
namespace picture_parts {

Shares::Shares(const HeatMap& m) : map(m) {
  const std::size_t cells = m.rows.size() * m.columns.size();
  if (m.rows.empty() || m.columns.empty())
    fail("heat map: ", m.rows.size(), " rows and ", m.columns.size(), " columns; there is nothing to draw");
  if (m.values.size() != cells || (!m.cells.empty() && m.cells.size() != cells))
    fail("heat map: ", m.values.size(), " values and ", m.cells.size(), " words for ", m.rows.size(),
         " rows and ", m.columns.size(), " columns");
  if (!std::isfinite(m.top) || m.top < 0) fail("heat map: the darkest value is said to be ", m.top);
  if (m.top > 0) top = m.top;
  else
    for (double v : m.values)
      if (std::isfinite(v)) top = std::max(top, both_signs() ? std::abs(v) : v);
  if (top == 0) top = 1;
}

double Shares::of(double v) const {
  if (!std::isfinite(v)) return -1;
  if (both_signs()) return 0.5 + 0.5 * std::clamp(v / top, -1.0, 1.0);
  const double share = std::clamp(v / top, 0.0, 1.0);
  return map.scale == HeatMap::Scale::root ? std::sqrt(share) : share;
}

double Shares::at(double share) const {
  if (both_signs()) return top * (2 * share - 1);
  return top * (map.scale == HeatMap::Scale::root ? share * share : share);
}

}  // namespace picture_parts

namespace {

using namespace picture_parts;

constexpr int kShades = 65;  // of one picture; odd: zero between two signs is the paper
// More cells than these are points of an embedded image in SVG, and a palette's in PNG: files stay small.
constexpr std::size_t kManyCells = 3600;
constexpr Dim kLabel = 24;   // columns of a label at most

int shade(double share) { return std::min(kShades - 1, static_cast<int>(share * kShades)); }
Rgb shade_color(int shade, bool both_signs, bool dark) {
  const double t = static_cast<double>(shade) / (kShades - 1);
  return both_signs ? signed_color(2 * t - 1, dark) : heat_color(t, dark);
}

std::string value_text(double v) {
  if (!std::isfinite(v)) return std::isnan(v) ? "no number" : v > 0 ? "infinite" : "minus infinite";
  return number(v, 3);
}

// Values of the legend, with their places on it.
struct Tick {
  double share;
  std::string text;
};
std::vector<Tick> ticks_of(const Shares& s) {
  std::vector<double> values = {0, 0.5, 1};
  if (s.both_signs()) values = {-1, 0, 1};
  if (s.map.scale == HeatMap::Scale::root) values = {0, 0.1, 0.5, 1};
  const int digits = std::clamp(1 - static_cast<int>(std::floor(std::log10(s.top))), 0, 6);
  std::vector<Tick> out;
  for (double v : values) out.push_back({s.of(v * s.top), number(v * s.top, v == 0 ? 0 : digits)});
  return out;
}
std::string legend_text(const HeatMap& map) {
  const std::string name = map.value_name.empty() ? "value" : map.value_name;
  return map.scale == HeatMap::Scale::root ? name + ", square-root scale" : name;
}

// Words in lines of at most `most` columns; a longer word stays whole.
std::vector<std::string> lines_of(std::string_view text, Dim most) {
  std::vector<std::string> lines;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find(' ', at), text.size());
    const std::string word(text.substr(at, end - at));
    if (!lines.empty() && text_width(lines.back()) + 1 + text_width(word) <= most) lines.back() += " " + word;
    else lines.push_back(word);
    at = end + 1;
  }
  return lines;
}

Dim widest(const Labels& labels, std::size_t step) {
  Dim most = 0;
  for (std::size_t i = 0; i < labels.size(); i += step)
    most = std::max(most, text_width(terminal_text(labels[i], kLabel)));
  return most;
}

// Of so many labels every n-th, so that they stand at least `room` apart; where some are left out, twice as
// far, and n is 2, 5, 10, 20 …, as on other axes.
std::size_t label_step(double room, double cell) {
  const double least = room <= cell ? 1 : 2 * room / cell;
  for (double power = 1;; power *= 10)
    for (const double m : {1.0, 2.0, 5.0})
      if (m * power >= least) return static_cast<std::size_t>(m * power);
}

// ------------------------------------------------------------------------------------------------ SVG
std::string shade_rules(bool both_signs, bool dark) {
  std::string out;
  for (int i = 0; i < kShades; ++i)
    out += concat(".rapt-picture .", both_signs ? "d" : "h", i, "{fill:#",
                  hex_of(shade_color(i, both_signs, dark)), "}");
  return out + "\n";
}

// The cells as rectangles; `named`: each tells its value to the pointer, else neighbours alike are one.
std::string cells_svg(const Shares& share, double left, double top, double cell_w, double cell_h,
                      bool named) {
  const HeatMap& map = share.map;
  const std::size_t R = map.rows.size(), C = map.columns.size();
  const bool words = !map.cells.empty();
  const auto look = [&](std::size_t r, std::size_t c) {
    const double s = share(r, c);
    return s < 0 ? std::string("none") : concat(share.both_signs() ? "d" : "h", shade(s));
  };
  std::string out = "<g shape-rendering=\"crispEdges\">\n";  // no hair lines between neighbours
  for (std::size_t r = 0; r < R; ++r)
    for (std::size_t c = 0; c < C;) {
      const std::string here = look(r, c);
      std::size_t end = c + 1;  // neighbours of one colour are one rectangle where none has to be named
      while (!named && end < C && look(r, end) == here) ++end;
      out += concat("<rect class=\"", here, "\" x=\"", place(left + cell_w * static_cast<double>(c)),
                    "\" y=\"", place(top + cell_h * static_cast<double>(r)), "\" width=\"",
                    place(cell_w * static_cast<double>(end - c)), "\" height=\"", place(cell_h), "\"");
      if (named)
        out += concat("><title>", markup_text(map.rows[r]), " \xC2\xB7 ", markup_text(map.columns[c]), ": ",
                      words ? concat(markup_text(map.cells[r * C + c]), " ") : "",
                      value_text(share.value(r, c)), "</title></rect>\n");
      else out += "/>\n";
      c = end;
    }
  return out + "</g>\n";
}

// ------------------------------------------------------------------------------------------------ PNG files
// The signature, then chunks: length (big-endian), four letters, bytes, CRC-32 of letters and bytes. IHDR:
// width, height, 8 bits, colour type 2 (RGB) or 3 (numbers of colours in PLTE), no interlace. IDAT: zlib of
// the rows, each after a byte that names its filter (0: none; repeated rows: 2, the row above).
std::vector<std::byte> png_file(int width, int height, std::span<const unsigned char> pixels,
                                std::span<const Rgb> palette = {}) {
  const std::size_t row = static_cast<std::size_t>(width) * (palette.empty() ? 3 : 1);
  std::vector<unsigned char> raw;
  raw.reserve((row + 1) * static_cast<std::size_t>(height));
  for (std::size_t y = 0; y < static_cast<std::size_t>(height); ++y) {
    const auto line = pixels.begin() + static_cast<std::ptrdiff_t>(y * row),
               end = line + static_cast<std::ptrdiff_t>(row);
    const bool again = y > 0 && std::equal(line, end, line - static_cast<std::ptrdiff_t>(row));
    raw.push_back(again ? 2 : 0);
    if (again) raw.insert(raw.end(), row, 0);
    else raw.insert(raw.end(), line, end);
  }
  uLongf size = compressBound(static_cast<uLong>(raw.size()));
  std::vector<unsigned char> packed(size);
  if (compress2(packed.data(), &size, raw.data(), static_cast<uLong>(raw.size()), 9) != Z_OK)
    fail("heat map: zlib could not pack ", raw.size(), " bytes");
  packed.resize(size);

  std::vector<std::byte> out;
  auto big = [](std::uint64_t n) {
    return std::array<unsigned char, 4>{static_cast<unsigned char>(n >> 24),
                                        static_cast<unsigned char>(n >> 16),
                                        static_cast<unsigned char>(n >> 8), static_cast<unsigned char>(n)};
  };
  auto append = [&](std::span<const unsigned char> bytes) {
    out.insert(out.end(), std::as_bytes(bytes).begin(), std::as_bytes(bytes).end());
  };
  auto chunk = [&](const char* name, std::span<const unsigned char> body) {
    append(big(body.size()));
    const std::size_t from = out.size();
    append({reinterpret_cast<const unsigned char*>(name), 4});
    append(body);
    const auto* counted = reinterpret_cast<const Bytef*>(out.data() + from);
    append(big(::crc32(::crc32(0, nullptr, 0), counted, static_cast<uInt>(out.size() - from))));
  };
  append(std::array<unsigned char, 8>{0x89, 'P', 'N', 'G', '\r', '\n', 0x1A, '\n'});
  std::vector<unsigned char> header, colors;
  for (const int n : {width, height})
    for (const unsigned char b : big(static_cast<std::uint64_t>(n))) header.push_back(b);
  header.insert(header.end(), {8, static_cast<unsigned char>(palette.empty() ? 2 : 3), 0, 0, 0});
  chunk("IHDR", header);
  for (const Rgb c : palette) colors.insert(colors.end(), {c.r, c.g, c.b});
  if (!palette.empty()) chunk("PLTE", colors);
  chunk("IDAT", packed);
  chunk("IEND", {});
  return out;
}

// The cells as an image with a point each, in the colours of one theme.
std::string cells_image(const Shares& share, bool dark) {
  const std::size_t R = share.map.rows.size(), C = share.map.columns.size();
  std::vector<Rgb> palette;
  for (int i = 0; i < kShades; ++i) palette.push_back(shade_color(i, share.both_signs(), dark));
  palette.push_back(dark ? Rgb{0x30, 0x36, 0x3d} : Rgb{0xd0, 0xd7, 0xde});  // no number
  std::vector<unsigned char> numbers;
  for (std::size_t r = 0; r < R; ++r)
    for (std::size_t c = 0; c < C; ++c) {
      const double s = share(r, c);
      numbers.push_back(static_cast<unsigned char>(s < 0 ? kShades : shade(s)));
    }
  return base64(png_file(static_cast<int>(C), static_cast<int>(R), numbers, palette));
}

}  // namespace

std::string heat_svg(const HeatMap& map) {
  const Shares share(map);
  const std::size_t R = map.rows.size(), C = map.columns.size();
  if (R * C > 250000) fail("heat map: ", R, " x ", C, " cells are too many for SVG; write a .png");
  const bool words = !map.cells.empty(), many = R * C > kManyCells && !words;
  const bool named = R * C <= 1600;  // a cell tells its value to the pointer
  const double columns = static_cast<double>(C), rows = static_cast<double>(R);
  const double square = std::clamp(std::floor(760.0 / std::max(rows, columns)), 2.0, 26.0);
  const double cell_w = words ? std::clamp(std::floor(1800 / columns), 44.0, 72.0) : square,
               cell_h = words ? 20 : square;
  constexpr double kFont = 11, kLetter = 6.8;  // about the width of a character of this size
  const std::size_t row_step = label_step(12, cell_h), column_step = label_step(14, cell_w);
  // columns are written upwards at 45°
  const double slant = 0.7071 * kLetter * static_cast<double>(widest(map.columns, column_step)) + 8;
  const double left =
      18 + kLetter * static_cast<double>(widest(map.rows, row_step)) + (map.row_name.empty() ? 0 : 18);
  const double wide = cell_w * columns, high = cell_h * rows;
  const double room = std::max(
      {left + wide + slant, 420.0, left + kLetter * static_cast<double>(text_width(legend_text(map)))});
  const std::vector<std::string> title = lines_of(map.title, static_cast<Dim>((room - 14) / 8.2));
  const double names = 12 + 20.0 * static_cast<double>(title.size()),
               top = names + (map.column_name.empty() ? 0 : 18) + slant + 6;
  const double legend = top + high + 18, bar = std::clamp(wide, 140.0, 260.0);
  const int width = static_cast<int>(std::ceil(room + 14)), height = static_cast<int>(std::ceil(legend + 46));

  const auto rules = [&](bool dark) {
    return concat(shade_rules(share.both_signs(), dark),
                  ".rapt-picture .none{fill:", dark ? "#30363d" : "#d0d7de", "}",
                  words ? concat(".rapt-picture .on-low{fill:", dark ? "#f6f6f6" : "#111111",
                                 "}.rapt-picture .on-high{fill:", dark ? "#111111" : "#f6f6f6", "}")
                        : "",
                  many ? concat(".rapt-picture .", dark ? "day" : "night", "{display:none}.rapt-picture .",
                                dark ? "night" : "day", "{display:inline}")
                       : "",
                  "\n");
  };
  const auto text = [](const char* look, double x, double y, std::string_view more, std::string_view label) {
    return concat("<text class=\"", look, "\" x=\"", place(x), "\" y=\"", place(y), "\"", more, ">",
                  markup_text(label), "</text>\n");
  };
  std::string out = svg_head(width, height, map.title, rules(false), rules(true));
  for (std::size_t i = 0; i < title.size(); ++i)
    out += text("ink", 14, 22 + 20.0 * static_cast<double>(i), " font-size=\"15\" font-weight=\"600\"",
                title[i]);
  // →
  if (!map.column_name.empty()) out += text("soft", left, names + 14, "", map.column_name + " \xE2\x86\x92");
  // ←, which points down here
  if (!map.row_name.empty())
    out += concat("<text class=\"soft\" text-anchor=\"end\" transform=\"translate(18 ", place(top),
                  ") rotate(-90)\">\xE2\x86\x90 ", markup_text(map.row_name), "</text>\n");
  out += concat("<g font-size=\"", place(kFont), "\">\n");
  for (std::size_t c = 0; c < C; c += column_step)
    out += concat("<text class=\"ink\" transform=\"translate(",
                  place(left + cell_w * (static_cast<double>(c) + 0.5) + 3), " ", place(top - 6),
                  ") rotate(-45)\">", markup_text(terminal_text(map.columns[c], kLabel)), "</text>\n");
  for (std::size_t r = 0; r < R; r += row_step)
    out += text("ink", left - 6, top + cell_h * (static_cast<double>(r) + 0.5) + 4, " text-anchor=\"end\"",
                terminal_text(map.rows[r], kLabel));
  out += "</g>\n";
  if (many) {
    // One image for each theme; where both would be large, the light one alone.
    constexpr std::size_t kMostImages = 270000;
    const std::string day = cells_image(share, false), night = cells_image(share, true);
    const bool both = day.size() + night.size() <= kMostImages;
    const auto image = [&](const char* look, const std::string& png) {
      return concat(
          "<image", look, " x=\"", place(left), "\" y=\"", place(top), "\" width=\"", place(wide),
          "\" height=\"", place(high),
          "\" preserveAspectRatio=\"none\" image-rendering=\"pixelated\" href=\"data:image/png;base64,", png,
          "\"/>\n");
    };
    out += image(both ? " class=\"day\"" : "", day);
    if (both) out += image(" class=\"night\"", night);
  } else {
    out += cells_svg(share, left, top, cell_w, cell_h, named);
  }
  if (words) {
    out += "<g font-size=\"10\" text-anchor=\"middle\" pointer-events=\"none\">\n";
    for (std::size_t i = 0; i < R * C; ++i) {
      const std::size_t row = i / C, column = i % C;
      const double s = share(row, column);
      const bool high_ink = share.both_signs() ? std::abs(s - 0.5) > 0.3 : s > 0.45;
      out += text(high_ink ? "on-high" : "on-low", left + cell_w * (static_cast<double>(column) + 0.5),
                  top + cell_h * (static_cast<double>(row) + 0.5) + 3.5, "",
                  terminal_text(map.cells[i], static_cast<Dim>((cell_w - 4) / 5.6)));
    }
    out += "</g>\n";
  }
  out += concat("<rect class=\"axis\" x=\"", place(left), "\" y=\"", place(top), "\" width=\"", place(wide),
                "\" height=\"", place(high), "\"/>\n");
  // The legend: colours from the least to the most, their values below.
  const char* const kind = share.both_signs() ? "d" : "h";
  out += "<g shape-rendering=\"crispEdges\">\n";
  for (int i = 0; i < kShades; ++i)
    out += concat("<rect class=\"", kind, i, "\" x=\"", place(left + bar * i / kShades), "\" y=\"",
                  place(legend), "\" width=\"", place(bar / kShades), "\" height=\"10\"/>\n");
  out += "</g>\n";
  for (const Tick& t : ticks_of(share))
    out +=
        text("soft", left + bar * t.share, legend + 24, " font-size=\"11\" text-anchor=\"middle\"", t.text);
  out += text("soft", left, legend + 40, " font-size=\"11\"", legend_text(map));
  return out + "</svg>\n";
}

// ------------------------------------------------------------------------------------------------ PNG
namespace {

class Canvas {
 public:
  Canvas(int width, int height)
      : width_(width), height_(height), rgb_(static_cast<std::size_t>(width * height) * 3, 255) {}
  void fill(int x, int y, int wide, int high, Rgb c) {
    for (int j = std::max(0, y); j < std::min(height_, y + high); ++j)
      for (int i = std::max(0, x); i < std::min(width_, x + wide); ++i) {
        unsigned char* to = &rgb_[static_cast<std::size_t>(j * width_ + i) * 3];
        to[0] = c.r, to[1] = c.g, to[2] = c.b;
      }
  }
  // From (x, y), the text's upper left corner; `upwards`: turned by 90°, from its lower left corner.
  void text(int x, int y, std::string_view text, int scale, Rgb c, bool upwards = false) {
    for (const std::array<std::uint8_t, 7>& glyph : bitmap_text(text)) {
      for (int row = 0; row < 7; ++row)
        for (int column = 0; column < 5; ++column)
          if (glyph[static_cast<std::size_t>(row)] >> (4 - column) & 1)
            fill(x + (upwards ? row : column) * scale, y + (upwards ? -column - 1 : row) * scale, scale,
                 scale, c);
      (upwards ? y : x) += (upwards ? -6 : 6) * scale;
    }
  }
  std::vector<std::byte> png(bool few_colors) const;

 private:
  int width_, height_;
  std::vector<unsigned char> rgb_;
};

// Few colours are a palette, a byte a pixel.
std::vector<std::byte> Canvas::png(bool few_colors) const {
  std::vector<Rgb> palette;
  std::vector<unsigned char> numbers;
  std::map<std::array<unsigned char, 3>, unsigned char> known;
  for (std::size_t i = 0; few_colors && i < rgb_.size(); i += 3) {
    const std::array<unsigned char, 3> c = {rgb_[i], rgb_[i + 1], rgb_[i + 2]};
    const auto [at, fresh] = known.try_emplace(c, static_cast<unsigned char>(palette.size()));
    if (fresh && palette.size() == 256) return png_file(width_, height_, rgb_);
    if (fresh) palette.push_back({c[0], c[1], c[2]});
    numbers.push_back(at->second);
  }
  return few_colors ? png_file(width_, height_, numbers, palette) : png_file(width_, height_, rgb_);
}

constexpr Rgb kGlow{255, 210, 0};

// The picture below a cell in grey, and so much of the colour over it as the share says.
void lay_over(Canvas& canvas, const HeatMap::Backdrop& under, const PngLayout& l, int x, int y, Rgb over,
              double share) {
  const int tile_w = std::max(l.wide / under.across, 1), tile_h = std::max(l.high / under.down, 1);
  const double weight = std::clamp(share, 0.0, 1.0);
  for (int j = y; j < y + l.cell; ++j)
    for (int i = x; i < x + l.cell; ++i) {
      const int from_x = std::min((i - l.left) % tile_w * under.width / tile_w, under.width - 1),
                from_y = std::min((j - l.top) % tile_h * under.height / tile_h, under.height - 1);
      const unsigned char* p = &under.rgb[static_cast<std::size_t>(from_y * under.width + from_x) * 3];
      const double grey = 0.55 * (0.299 * p[0] + 0.587 * p[1] + 0.114 * p[2]);
      const auto mix = [&](unsigned char c) {
        return static_cast<unsigned char>(
            std::lround(grey * (1 - weight) + weight * (0.75 * c + 0.25 * grey)));
      };
      canvas.fill(i, j, 1, 1, {mix(over.r), mix(over.g), mix(over.b)});
    }
}

constexpr Dim kPngLabel = 16;  // letters of a label at most

Dim png_letters(const Labels& labels, std::size_t step) {
  Dim most = 0;
  for (std::size_t i = 0; i < labels.size(); i += step)
    most = std::max(most, static_cast<Dim>(bitmap_text(terminal_text(labels[i], kPngLabel)).size()));
  return most;
}

}  // namespace

PngLayout heat_png_layout(const HeatMap& map, int cell) {
  if (cell < 0 || cell > 1024)
    fail_usage("heat map: cells of ", cell, " pixels; give 1 to 1,024, or 0 for a picture of about 900");
  const int R = static_cast<int>(map.rows.size()), C = static_cast<int>(map.columns.size()),
            most = std::max({R, C, 1});
  PngLayout l;
  l.cell = cell > 0 ? cell : std::clamp(900 / most, 1, 32);
  l.letter = l.cell * most >= 360 ? 2 : 1;  // pixels of a letter's dot
  const int em = 6 * l.letter, line = 10 * l.letter;
  l.row_step = static_cast<int>(label_step(line, l.cell)),
  l.column_step = static_cast<int>(label_step(line, l.cell));
  const int name = map.row_name.empty() ? 0 : line + 4, column_name = map.column_name.empty() ? 0 : line + 4;
  l.left = 12 + name + em * static_cast<int>(png_letters(map.rows, static_cast<std::size_t>(l.row_step))) + 6;
  l.wide = l.cell * C, l.high = l.cell * R;
  l.width = std::max(
      {l.left + l.wide + 16, 320, l.left + em * static_cast<int>(bitmap_text(legend_text(map)).size()) + 16});
  l.title = static_cast<int>(lines_of(map.title, (l.width - 24) / em).size());
  l.top = 10 + line * l.title + column_name +
          em * static_cast<int>(png_letters(map.columns, static_cast<std::size_t>(l.column_step))) + 8;
  l.height = l.top + l.high + 16 + 8 * l.letter + 2 * line + 8;
  return l;
}

std::vector<std::byte> heat_png(const HeatMap& map, int cell) {
  const Shares share(map);
  const PngLayout l = heat_png_layout(map, cell);
  if (static_cast<std::uint64_t>(l.width) * static_cast<std::uint64_t>(l.height) > (std::uint64_t{1} << 26))
    fail("heat map: a picture of ", l.width, " x ", l.height, " pixels is too large; use smaller cells");
  constexpr Rgb kInk{31, 35, 40}, kSoft{89, 99, 110}, kNone{208, 215, 222};
  const int em = 6 * l.letter, line = 10 * l.letter, glyph = 7 * l.letter;
  Canvas canvas(l.width, l.height);
  const std::vector<std::string> title = lines_of(map.title, (l.width - 24) / em);
  for (std::size_t i = 0; i < title.size(); ++i)
    canvas.text(12, 10 + line * static_cast<int>(i), title[i], l.letter, kInk);
  if (!map.column_name.empty())
    canvas.text(l.left, 10 + line * l.title, map.column_name + " \xE2\x86\x92", l.letter, kSoft);
  if (!map.row_name.empty()) {
    const std::string name = "\xE2\x86\x90 " + map.row_name;
    canvas.text(12, l.top + em * static_cast<int>(bitmap_text(name).size()), name, l.letter, kSoft, true);
  }
  for (std::size_t c = 0; c < map.columns.size(); c += static_cast<std::size_t>(l.column_step))
    canvas.text(l.left + l.cell * static_cast<int>(c) + (l.cell - glyph) / 2, l.top - 6,
                terminal_text(map.columns[c], kPngLabel), l.letter, kInk, true);
  for (std::size_t r = 0; r < map.rows.size(); r += static_cast<std::size_t>(l.row_step)) {
    const std::string label = terminal_text(map.rows[r], kPngLabel);
    canvas.text(l.left - 6 - em * static_cast<int>(bitmap_text(label).size()),
                l.top + l.cell * static_cast<int>(r) + (l.cell - glyph) / 2, label, l.letter, kInk);
  }
  const bool many = map.rows.size() * map.columns.size() > kManyCells && map.backdrop.width == 0;
  const auto color = [&](double s) {
    if (many) return shade_color(shade(s), share.both_signs(), false);
    return share.both_signs() ? signed_color(2 * s - 1, false) : heat_color(s, false);
  };
  canvas.fill(l.left - 1, l.top - 1, l.wide + 2, l.high + 2, kSoft);
  for (std::size_t r = 0; r < map.rows.size(); ++r)
    for (std::size_t c = 0; c < map.columns.size(); ++c) {
      const double s = share(r, c);
      const int x = l.left + l.cell * static_cast<int>(c), y = l.top + l.cell * static_cast<int>(r);
      canvas.fill(x, y, l.cell, l.cell, s < 0 ? kNone : color(s));
      if (map.backdrop.width > 0) lay_over(canvas, map.backdrop, l, x, y, s < 0 ? kNone : kGlow, s);
    }
  for (int i = 1; i < map.backdrop.across; ++i)  // tiles stand apart
    canvas.fill(l.left + l.wide / map.backdrop.across * i - 1, l.top, 2, l.high, {255, 255, 255});
  for (int i = 1; i < map.backdrop.down; ++i)
    canvas.fill(l.left, l.top + l.high / map.backdrop.down * i - 1, l.wide, 2, {255, 255, 255});
  const int bar = std::clamp(l.wide, 140, 360), below = l.top + l.high + 12;
  for (int x = 0; x < bar; ++x) {
    const double s = static_cast<double>(x) / (bar - 1);
    const auto glow = [&](unsigned char c) { return static_cast<unsigned char>(std::lround(s * c)); };
    canvas.fill(l.left + x, below, 1, 8 * l.letter,
                map.backdrop.width > 0 ? Rgb{glow(kGlow.r), glow(kGlow.g), glow(kGlow.b)} : color(s));
  }
  int free = 0;  // ticks do not run into each other
  for (const Tick& t : ticks_of(share)) {
    const int wide = em * static_cast<int>(t.text.size());
    const int x = std::clamp(l.left + static_cast<int>(bar * t.share) - wide / 2, 0, l.width - wide);
    if (x < free) continue;
    canvas.text(x, below + 10 * l.letter, t.text, l.letter, kSoft);
    free = x + wide + em;
  }
  canvas.text(l.left, below + 20 * l.letter, legend_text(map), l.letter, kSoft);
  return canvas.png(many);
}

}  // namespace rapt
