// SPDX-License-Identifier: Apache-2.0
// Charts, as SVG and as text, and files by their endings. Heat maps: heat_picture.cc and heat_text.cc.
#include "rapt/report/picture.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <limits>

#include "rapt/base/text.h"
#include "rapt/base/unicode.h"
#include "rapt/io/reader.h"
#include "rapt/report/colors.h"
#include "rapt/report/picture_parts.h"

namespace rapt {
namespace picture_parts {

std::string number(double x, int digits) {
  char text[64];
  std::snprintf(text, sizeof text, "%.*f", digits, x);
  const std::string_view s = text;
  // No -0.00.
  if (s.starts_with('-') && s.find_first_not_of("-0.") == std::string_view::npos) return text + 1;
  return text;
}
std::string place(double x) { return number(x, 2); }

std::string svg_head(int width, int height, std::string_view title, std::string_view light,
                     std::string_view dark) {
  std::string out = concat("<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"rapt-picture\" width=\"", width,
                           "\" height=\"", height, "\" viewBox=\"0 0 ", width, " ", height,
                           "\" font-family=\"system-ui, sans-serif\" font-size=\"12\">\n");
  if (!title.empty()) out += concat("<title>", markup_text(title), "</title>\n");
  out += concat(
      "<style>\n"
      ".rapt-picture .page{fill:#ffffff}.rapt-picture .ink{fill:#1f2328}.rapt-picture .soft{fill:#59636e}\n"
      ".rapt-picture .grid{stroke:#e3e7eb}.rapt-picture .axis{stroke:#8c959f;fill:none}\n",
      light,
      "@media (prefers-color-scheme:dark){\n"
      ".rapt-picture .page{fill:#0d1117}.rapt-picture .ink{fill:#e6edf3}.rapt-picture .soft{fill:#9198a1}\n"
      ".rapt-picture .grid{stroke:#21262d}.rapt-picture .axis{stroke:#656c76}\n",
      dark, "}\n</style>\n");
  out += concat("<rect class=\"page\" width=\"", width, "\" height=\"", height, "\"/>\n");
  return out;
}

}  // namespace picture_parts

namespace {

using namespace picture_parts;

// ------------------------------------------------------------------------------------------------ texts
std::string right_aligned(const std::string& text, Dim width) {
  return std::string(static_cast<std::size_t>(std::max<Dim>(0, width - text_width(text))), ' ') + text;
}

// ------------------------------------------------------------------------------------------------ axes
struct Axis {
  double low = 0, high = 1;
  bool log = false;
  std::vector<std::pair<double, std::string>> ticks;
  double share(double value) const {  // 0 … 1 from low to high
    return log ? (std::log10(value) - std::log10(low)) / (std::log10(high) - std::log10(low))
               : (value - low) / (high - low);
  }
};

// Distances of 1, 2 or 5 times a power of ten: the smallest that gives at most `most` ticks.
double round_step(double range, int most) {
  const double power = std::pow(10, std::floor(std::log10(range / most)));
  for (const double m : {1.0, 2.0, 5.0})
    if (range / (m * power) <= most) return m * power;
  return 10 * power;
}

std::string tick_text(double value, double step) {
  const int digits = std::max(0, static_cast<int>(-std::floor(std::log10(step) + 1e-9)));
  if (digits > 5 || std::abs(value) >= 1e12) {
    char text[32];
    std::snprintf(text, sizeof text, "%.3g", value);
    return text;
  }
  if (digits == 0) return with_commas(static_cast<Dim>(std::llround(value)));
  return number(value, digits);
}

Axis linear_axis(double low, double high, int most, bool widen) {
  if (!(high > low)) {
    const double half = low != 0 ? std::abs(low) * 0.1 : 0.5;
    low -= half, high += half;
  }
  Axis a;
  const double step = round_step(high - low, most);
  a.low = widen ? std::floor(low / step + 1e-9) * step : low;
  a.high = widen ? std::ceil(high / step - 1e-9) * step : high;
  for (double i = std::ceil(a.low / step - 1e-9); i * step <= a.high + step * 1e-9; ++i)
    a.ticks.emplace_back(i * step, tick_text(i * step, step));
  return a;
}

Axis log_axis(double low, double high, int most) {
  if (!(high > low)) low /= 1.5, high *= 1.5;
  Axis a;
  if (high / low < 5) {  // within a decade round numbers of a plain axis tell more
    a = linear_axis(low, high, most, false);
    const double margin = std::pow(high / low, 0.04);
    a.low = low / margin, a.high = high * margin;
    std::erase_if(a.ticks, [&](const auto& t) { return t.first < a.low || t.first > a.high; });
    a.log = true;
    return a;
  }
  a.log = true;
  const double margin = std::pow(high / low, 0.03);
  a.low = low / margin, a.high = high * margin;
  const int first = static_cast<int>(std::floor(std::log10(a.low))),
            last = static_cast<int>(std::ceil(std::log10(a.high)));
  const int every =
      std::max(1, (last - first) / std::max(1, most) + ((last - first) % std::max(1, most) != 0 ? 1 : 0));
  const bool between = last - first <= 3;
  for (int e = first; e <= last; ++e)
    for (const double m : {1.0, 2.0, 5.0}) {
      if (m > 1 && !between) continue;
      if (m == 1 && !between && (e - first) % every != 0) continue;
      const double v = m * std::pow(10, e);
      if (v < a.low || v > a.high) continue;
      char text[32];
      std::snprintf(text, sizeof text, e >= -4 && e < 6 ? "%g" : "%.0e", v);
      a.ticks.emplace_back(v, text);
    }
  return a;
}

struct Ranges {
  Axis x, y;
  bool empty = true;
};

bool drawn(const Chart& chart, double x, double y) {
  return std::isfinite(x) && std::isfinite(y) && (!chart.log_y || y > 0);
}

Ranges ranges_of(const Chart& chart, int ticks_x, int ticks_y) {
  constexpr double inf = std::numeric_limits<double>::infinity();
  double x0 = inf, x1 = -inf, y0 = inf, y1 = -inf;
  for (const Curve& c : chart.curves) {
    if (c.x.size() != c.y.size())
      fail("chart: curve '", c.name, "' has ", c.x.size(), " places and ", c.y.size(), " values");
    for (std::size_t i = 0; i < c.x.size(); ++i) {
      if (!drawn(chart, c.x[i], c.y[i])) continue;
      x0 = std::min(x0, c.x[i]), x1 = std::max(x1, c.x[i]);
      y0 = std::min(y0, c.y[i]), y1 = std::max(y1, c.y[i]);
    }
  }
  Ranges r;
  r.empty = !(x0 <= x1);
  if (r.empty) x0 = y0 = chart.log_y ? 0.1 : 0, x1 = y1 = 1;
  if (chart.share) y0 = std::min(y0, 0.0), y1 = std::max(y1, 1.0);
  r.x = linear_axis(x0, x1, ticks_x, false);
  r.y = chart.log_y ? log_axis(y0, y1, ticks_y) : linear_axis(y0, y1, ticks_y, true);
  return r;
}

// ------------------------------------------------------------------------------------------------ SVG
constexpr int kColors = 8;

std::string curve_colors(bool dark) {
  static constexpr const char* kLight[kColors] = {"#0969da", "#cf222e", "#1a7f37", "#9a6700",
                                                  "#8250df", "#bf3989", "#0e7c86", "#6e7781"};
  static constexpr const char* kDark[kColors] = {"#58a6ff", "#ff7b72", "#56d364", "#e3b341",
                                                 "#bc8cff", "#f778ba", "#39c5cf", "#a5adb6"};
  std::string out;
  for (int i = 0; i < kColors; ++i)
    out += concat(".rapt-picture .c", i, "{stroke:", dark ? kDark[i] : kLight[i], "}");
  return out + "\n";
}

struct Point {
  double x, y;
};

// Of the points that fall into one column of pixels only the first, the lowest, the highest and the last are
// told apart by the eye.
std::vector<Point> thinned(const std::vector<Point>& points) {
  std::vector<Point> out;
  for (std::size_t i = 0; i < points.size();) {
    std::size_t end = i, low = i, high = i;
    while (end < points.size() && std::floor(points[end].x) == std::floor(points[i].x)) {
      if (points[end].y < points[low].y) low = end;
      if (points[end].y > points[high].y) high = end;
      ++end;
    }
    std::array<std::size_t, 4> keep = {i, std::min(low, high), std::max(low, high), end - 1};
    for (std::size_t k = 0; k < 4; ++k)
      if (k == 0 || keep[k] != keep[k - 1]) out.push_back(points[keep[k]]);
    i = end;
  }
  return out;
}

void check_size(const char* what, int width, int height, int least_width, int least_height) {
  if (width < least_width || height < least_height || width > 20000 || height > 20000)
    fail_usage(what, ": a size of ", width, " x ", height, "; it must be at least ", least_width, " x ",
               least_height, " and at most 20,000 each way");
}

}  // namespace

std::string markup_text(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size();) {
    const unicode::Char c = unicode::read(text, i);
    if (c.code == '&') out += "&amp;";
    else if (c.code == '<') out += "&lt;";
    else if (c.code == '>') out += "&gt;";
    else if (c.code == '"') out += "&quot;";
    else if (c.code == '\'') out += "&#39;";
    else if (!c.valid || (c.code < 0x20 && c.code != '\t' && c.code != '\n') || c.code == 0xFFFE ||
             c.code == 0xFFFF)
      out += unicode::kReplacementText;
    else out += text.substr(i, c.length);
    i += c.length;
  }
  return out;
}

std::string terminal_text(std::string_view text, Dim most) {
  std::string out;
  Dim width = 0;
  for (std::size_t i = 0; i < text.size();) {
    const unicode::Char c = unicode::read(text, i);
    std::string one(text.substr(i, c.length));
    i += c.length;
    if (c.code == '\n') one = "\xE2\x86\xB5";                                      // ↵
    else if (c.code < 0x20 || (c.code >= 0x7F && c.code < 0xA0)) one = "\xC2\xB7";  // ·
    else if (!c.valid || (c.code >= 0x202A && c.code <= 0x202E) || (c.code >= 0x2066 && c.code <= 0x2069))
      one = unicode::kReplacementText;
    const Dim w = text_width(one), rest = i < text.size() ? 1 : 0;
    if (width + w + rest > most) return out + "\xE2\x80\xA6";  // …
    out += one;
    width += w;
  }
  return out;
}

std::string chart_svg(const Chart& chart, int width, int height) {
  check_size("chart", width, height, 200, 140);
  const Ranges r = ranges_of(chart, std::max(2, width / 90), std::max(2, height / 50));
  constexpr double kLetter = 6.6;  // about the width of a character of this size

  // Legend: names in rows under the title, as many as fit beside each other.
  struct Entry {
    double x;
    int row;
  };
  std::vector<Entry> legend;
  bool named = false;
  for (const Curve& c : chart.curves) named = named || !c.name.empty();
  double at = 0, labels = 0;
  int rows = 0;
  for (const auto& [value, text] : r.y.ticks)
    labels = std::max(labels, kLetter * static_cast<double>(text_width(text)));
  const double left = labels + (chart.y_label.empty() ? 18 : 38), right = width - 18.0;
  if (named) {
    rows = 1;
    for (const Curve& c : chart.curves) {
      const double wide = 26 + kLetter * static_cast<double>(text_width(c.name)) + 14;
      if (at > 0 && left + at + wide > right) at = 0, ++rows;
      legend.push_back({left + at, rows - 1});
      at += wide;
    }
  }
  const double title_height = chart.title.empty() ? 14 : 38;
  const double top = title_height + 18.0 * rows, bottom = height - (chart.x_label.empty() ? 28.0 : 46.0);
  if (bottom - top < 40 || right - left < 60)
    fail_usage("chart: ", chart.curves.size(), " names leave no room for curves in ", width, " x ", height,
               "; make it larger");
  auto px = [&](double x) { return left + r.x.share(x) * (right - left); };
  auto py = [&](double y) { return bottom - r.y.share(y) * (bottom - top); };

  std::string out = svg_head(width, height, chart.title, curve_colors(false), curve_colors(true));
  if (!chart.title.empty())
    out += concat("<text class=\"ink\" x=\"", place(left),
                  "\" y=\"22\" font-size=\"15\" font-weight=\"600\">", markup_text(chart.title), "</text>\n");
  for (const auto& [value, text] : r.y.ticks) {
    const std::string y = place(py(value));
    out += concat("<line class=\"grid\" x1=\"", place(left), "\" x2=\"", place(right), "\" y1=\"", y,
                  "\" y2=\"", y, "\"/>\n");
    out += concat("<text class=\"soft\" x=\"", place(left - 8), "\" y=\"", place(py(value) + 4),
                  "\" text-anchor=\"end\">", markup_text(text), "</text>\n");
  }
  for (const auto& [value, text] : r.x.ticks) {
    const std::string x = place(px(value));
    out += concat("<line class=\"axis\" x1=\"", x, "\" x2=\"", x, "\" y1=\"", place(bottom), "\" y2=\"",
                  place(bottom + 5), "\"/>\n");
    out += concat("<text class=\"soft\" x=\"", x, "\" y=\"", place(bottom + 19), "\" text-anchor=\"middle\">",
                  markup_text(text), "</text>\n");
  }
  out += concat("<path class=\"axis\" d=\"M", place(left), " ", place(top), "V", place(bottom), "H",
                place(right), "\"/>\n");
  if (!chart.x_label.empty())
    out += concat("<text class=\"ink\" x=\"", place((left + right) / 2), "\" y=\"", place(height - 10.0),
                  "\" text-anchor=\"middle\">", markup_text(chart.x_label), "</text>\n");
  if (!chart.y_label.empty())
    out += concat("<text class=\"ink\" text-anchor=\"middle\" transform=\"translate(14 ",
                  place((top + bottom) / 2), ") rotate(-90)\">", markup_text(chart.y_label), "</text>\n");

  for (std::size_t k = 0; k < chart.curves.size(); ++k) {
    const Curve& c = chart.curves[k];
    const std::string look =
        concat("class=\"c", k % kColors, "\"", k / kColors % 2 == 1 ? " stroke-dasharray=\"5 3\"" : "");
    std::string path;
    std::vector<Point> stretch;
    auto close = [&] {  // one stretch without gaps; a lone point becomes a dot
      const std::vector<Point> points = thinned(stretch);
      for (std::size_t i = 0; i < points.size(); ++i)
        path += concat(i == 0 ? "M" : "L", place(points[i].x), " ", place(points[i].y));
      if (points.size() == 1) path += "h0";
      stretch.clear();
    };
    for (std::size_t i = 0; i < c.x.size(); ++i) {
      if (drawn(chart, c.x[i], c.y[i])) stretch.push_back({px(c.x[i]), py(c.y[i])});
      else close();
    }
    close();
    if (!path.empty())
      out += concat(
          "<path ", look,
          " fill=\"none\" stroke-width=\"1.8\" stroke-linejoin=\"round\" stroke-linecap=\"round\" d=\"", path,
          "\"/>\n");
    if (!named) continue;
    const double y = title_height + 18.0 * legend[k].row - 4 + 6;
    out += concat("<line ", look, " stroke-width=\"3\" x1=\"", place(legend[k].x), "\" x2=\"",
                  place(legend[k].x + 18), "\" y1=\"", place(y - 4), "\" y2=\"", place(y - 4), "\"/>\n");
    out += concat("<text class=\"ink\" x=\"", place(legend[k].x + 24), "\" y=\"", place(y), "\">",
                  markup_text(c.name), "</text>\n");
  }
  if (r.empty)
    out += concat("<text class=\"soft\" x=\"", place((left + right) / 2), "\" y=\"",
                  place((top + bottom) / 2), "\" text-anchor=\"middle\">no data</text>\n");
  return out + "</svg>\n";
}

// ------------------------------------------------------------------------------------------- curves as text
namespace {
char curve_letter(int k) { return static_cast<char>(k % 52 < 26 ? 'A' + k % 52 : 'a' + k % 52 - 26); }
}  // namespace

std::string chart_text(const Chart& chart, bool color, int width, int height) {
  check_size("chart", width, height, 24, 4);
  const Ranges r = ranges_of(chart, std::max(2, width / 16), std::max(2, height / 3));
  static constexpr int kTerminal[kColors] = {39, 203, 77, 178, 141, 205, 44, 247};
  Dim labels = 0;
  for (const auto& [value, text] : r.y.ticks) labels = std::max(labels, text_width(text));
  const int cells = width - static_cast<int>(labels) - 2;
  if (cells < 8) fail_usage("chart: ", width, " columns are too few for its numbers");
  int named = 0;
  for (const Curve& c : chart.curves) named += c.name.empty() ? 0 : 1;
  const bool letters = !color && named > 1;  // A, B, C … on the curves instead of colours

  // A character has 2 x 4 dots. Where curves cross, the later one gives the colour.
  const int dots_x = cells * 2, dots_y = height * 4;
  std::vector<std::uint8_t> bits(static_cast<std::size_t>(cells * height));
  std::vector<int> owner(bits.size(), -1);
  // [curves][cells]
  std::vector<int> height_at(static_cast<std::size_t>(cells) * std::max<std::size_t>(1, chart.curves.size()),
                             -1);
  static constexpr std::uint8_t kDot[2][4] = {{0x01, 0x02, 0x04, 0x40}, {0x08, 0x10, 0x20, 0x80}};
  auto dot = [&](int x, int y, int curve) {
    x = std::clamp(x, 0, dots_x - 1), y = std::clamp(y, 0, dots_y - 1);
    const auto cell = static_cast<std::size_t>(y / 4 * cells + x / 2);
    bits[cell] = static_cast<std::uint8_t>(bits[cell] | kDot[x % 2][y % 4]);
    owner[cell] = curve;
    height_at[static_cast<std::size_t>(curve * cells + x / 2)] = y / 4;
  };
  for (std::size_t k = 0; k < chart.curves.size(); ++k) {
    const Curve& c = chart.curves[k];
    bool begun = false;
    int fx = 0, fy = 0;  // the dot before
    for (std::size_t i = 0; i < c.x.size(); ++i) {
      if (!drawn(chart, c.x[i], c.y[i])) {
        begun = false;
        continue;
      }
      const int x = static_cast<int>(std::lround(r.x.share(c.x[i]) * (dots_x - 1)));
      const int y = static_cast<int>(std::lround((1 - r.y.share(c.y[i])) * (dots_y - 1)));
      if (!begun) fx = x, fy = y;
      const int steps = std::max({std::abs(x - fx), std::abs(y - fy), 1});
      for (int s = 0; s <= steps; ++s)
        dot(fx + (x - fx) * s / steps, fy + (y - fy) * s / steps, static_cast<int>(k));
      begun = true, fx = x, fy = y;
    }
  }
  // Each curve has its letter in columns of its own, several times along the way, and at least once.
  std::vector<char> marks_on(bits.size(), 0);
  const int curves = static_cast<int>(chart.curves.size()), every = std::max({curves, 12, cells / 4});
  for (int k = 0; letters && k < curves; ++k) {
    int last = -1, shown = 0;
    for (int i = 0; i < cells; ++i) {
      const int row = height_at[static_cast<std::size_t>(k * cells + i)];
      if (row < 0) continue;
      last = row * cells + i;
      if (i % every == (k * every / curves + every / (2 * curves)) % every)
        marks_on[static_cast<std::size_t>(last)] = curve_letter(k), ++shown;
    }
    if (shown == 0 && last >= 0) marks_on[static_cast<std::size_t>(last)] = curve_letter(k);
  }
  std::string out;
  if (!chart.title.empty())
    out += concat(join(fold_text(terminal_text(chart.title, 1000), width), "\n"), "\n");
  // ↑
  if (!chart.y_label.empty()) out += concat("\xE2\x86\x91 ", terminal_text(chart.y_label, width - 2), "\n");
  for (int row = 0; row < height; ++row) {
    std::string label;
    for (const auto& [value, text] : r.y.ticks)
      if (std::lround((1 - r.y.share(value)) * (dots_y - 1)) / 4 == row) label = text;
    // │ ┤
    std::string line = right_aligned(label, labels) + (label.empty() ? " \xE2\x94\x82" : " \xE2\x94\xA4");
    int now = -1;
    std::size_t ink = line.size();
    for (int i = 0; i < cells; ++i) {
      const auto cell = static_cast<std::size_t>(row * cells + i);
      const int wanted = bits[cell] ? owner[cell] : -1;
      if (color && wanted != now && wanted >= 0)
        line += concat("\033[38;5;", kTerminal[wanted % kColors], "m");
      if (wanted >= 0) now = wanted;
      if (marks_on[cell]) line += marks_on[cell], ink = line.size();
      else if (bits[cell]) unicode::append(line, 0x2800u + bits[cell]), ink = line.size();
      else line += ' ';
    }
    line.resize(ink);
    out += line + (color && now >= 0 ? "\033[0m" : "") + "\n";
  }
  std::string base = std::string(static_cast<std::size_t>(labels) + 1, ' ') + "\xE2\x94\x94",
              under(static_cast<std::size_t>(width) + 8, ' ');  // └
  std::vector<bool> marks(static_cast<std::size_t>(cells));
  std::size_t used = 0;
  for (const auto& [value, text] : r.x.ticks) {
    const auto cell = static_cast<std::size_t>(
        std::clamp(static_cast<int>(r.x.share(value) * (dots_x - 1)) / 2, 0, cells - 1));
    marks[cell] = true;
    const std::size_t middle = static_cast<std::size_t>(labels) + 2 + cell, half = text.size() / 2;
    const std::size_t begin =
        std::min(middle > half ? middle - half : 0,
                 static_cast<std::size_t>(std::max(0, width - static_cast<int>(text.size()))));
    if (begin < used) continue;
    under.replace(begin, text.size(), text);
    used = begin + text.size() + 1;
  }
  for (int i = 0; i < cells; ++i)
    base += marks[static_cast<std::size_t>(i)] ? "\xE2\x94\xAC" : "\xE2\x94\x80";  // ┬ ─
  under.resize(under.find_last_not_of(' ') == std::string::npos ? 0 : under.find_last_not_of(' ') + 1);
  out += base + "\n" + under + "\n";
  if (!chart.x_label.empty()) out += right_aligned(terminal_text(chart.x_label, width), width) + "\n";
  std::string legend;
  Dim filled = 0;
  for (std::size_t k = 0; k < chart.curves.size(); ++k) {
    if (chart.curves[k].name.empty()) continue;
    const std::string sign =
        letters ? std::string(1, curve_letter(static_cast<int>(k))) : "\xE2\x94\x81\xE2\x94\x81";  // ━━
    const std::string name = terminal_text(chart.curves[k].name, std::min(60, width - 3));
    const Dim wide = text_width(sign) + 1 + text_width(name);
    if (filled > 0 && filled + 3 + wide > width) legend += "\n", filled = 0;
    if (filled > 0) legend += "   ", filled += 3;
    legend += concat(color ? concat("\033[38;5;", kTerminal[k % kColors], "m") : "", sign,
                     color ? "\033[0m" : "", " ", name);
    filled += wide;
  }
  if (!legend.empty()) out += legend + "\n";
  return out;
}

// ------------------------------------------------------------------------------------------------ files
void check_picture_name(std::string_view path, bool heat) {
  if (path.ends_with(".svg") || path.ends_with(".txt") || (heat && path.ends_with(".png"))) return;
  fail_usage("a picture goes into a file that ends in .svg, ", heat ? ".png or .txt" : "or .txt", ", and '",
             path, "' does not");
}

void check_can_write(const std::string& path, bool force) { FileWriter(path, force); }

void write_picture(const HeatMap& map, const std::string& path, bool force) {
  check_picture_name(path, true);
  const std::vector<std::byte> png = path.ends_with(".png") ? heat_png(map) : std::vector<std::byte>{};
  const std::string text = path.ends_with(".svg")   ? heat_svg(map)
                           : path.ends_with(".txt") ? heat_text(map, false)
                                                    : "";
  FileWriter file(path, force);
  file.write(png);
  file.write(text);
  file.commit();
}

void write_picture(const Chart& chart, const std::string& path, bool force) {
  check_picture_name(path, false);
  const std::string text = path.ends_with(".svg") ? chart_svg(chart) : chart_text(chart, false);
  FileWriter file(path, force);
  file.write(text);
  file.commit();
}

}  // namespace rapt
