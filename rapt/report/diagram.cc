// SPDX-License-Identifier: Apache-2.0
// The pen first, then blocks.
#include "rapt/report/diagram.h"

#include <algorithm>
#include <cmath>
#include <memory>

#include "rapt/base/text.h"
#include "rapt/base/text_width.h"
#include "rapt/base/unicode.h"
#include "rapt/report/picture_parts.h"

namespace rapt {
namespace {

using picture_parts::place;

constexpr double kTip = 5;       // of an arrow
constexpr double kMargin = 18;   // around the whole
constexpr double kPad = 10;      // inside boxes and frames
constexpr double kTitle = 24;    // of a frame
constexpr double kBus = 16;      // above and below lanes

std::string rules(bool dark) {
  struct Look {
    const char *name, *light, *light_edge, *dark, *dark_edge;
  };
  static constexpr Look kLooks[] = {{"matrix", "#ddf4ff", "#54aeff", "#0f2a4a", "#316dca"},
                                    {"norm", "#fff8c5", "#d4a72c", "#332b0b", "#9e7a1c"},
                                    {"position", "#dafbe1", "#4ac26b", "#10301b", "#347d39"},
                                    {"gate", "#ffebe9", "#ff8182", "#3d1a1b", "#c93c37"},
                                    {"core", "#fbefff", "#c297ff", "#2a1a45", "#8256d0"},
                                    {"plain", "#f6f8fa", "#8c959f", "#1c2128", "#656c76"},
                                    {"frame", "#f6f8fa", "#d0d7de", "#161b22", "#30363d"},
                                    {"part", "#ffffff", "#d0d7de", "#0d1117", "#30363d"}};
  std::string out;
  for (const Look& l : kLooks)
    out += concat(".rapt-picture .", l.name, "{fill:", dark ? l.dark : l.light,
                  ";stroke:", dark ? l.dark_edge : l.light_edge, "}");
  return concat(out, "\n.rapt-picture .tip{fill:", dark ? "#656c76" : "#8c959f", "}\n");
}

}  // namespace

double text_pixels(std::string_view text, double size) {
  double em = 0;
  for (std::size_t i = 0; i < text.size();) {
    const unicode::Char c = unicode::read(text, i);
    i += c.length;
    const std::string_view narrow = " .,:;'|!ijlI()[]/ftr", wide = "mwMW@%";
    if (c.code < 0x80 && narrow.find(static_cast<char>(c.code)) != narrow.npos) em += 0.42;
    else if (c.code < 0x80 && wide.find(static_cast<char>(c.code)) != wide.npos) em += 0.99;
    else if (c.code >= 'A' && c.code <= 'Z') em += 0.72;
    else if (c.code < 0x80) em += 0.64;
    else if (c.code >= 0x2E80) em += 1.02;
    else if (c.code == 0xB7) em += 0.32;
    else em += 0.84;
  }
  return em * size;
}

void Diagram::reach(double x, double y) { width_ = std::max(width_, x), height_ = std::max(height_, y); }

void Diagram::box(double x, double y, double width, double height, std::string_view look, double radius) {
  reach(x + width, y + height);
  out_ += concat("<rect class=\"", look, "\" x=\"", place(x), "\" y=\"", place(y), "\" width=\"",
                 place(width), "\" height=\"", place(height), "\" rx=\"", place(radius), "\"/>\n");
}

void Diagram::put(double x, double y, std::string_view text, const std::string& markup, double size,
                  std::string_view look, Anchor anchor, bool bold) {
  const double wide = text_pixels(text, size) * (bold ? 1.1 : 1);
  reach(x + (anchor == Anchor::start ? wide : anchor == Anchor::middle ? wide / 2 : 0), y + 4);
  out_ += concat("<text class=\"", look, "\" x=\"", place(x), "\" y=\"", place(y), "\"");
  if (size != 12) out_ += concat(" font-size=\"", place(size), "\"");
  if (bold) out_ += " font-weight=\"600\"";
  if (anchor != Anchor::start)
    out_ += concat(" text-anchor=\"", anchor == Anchor::middle ? "middle" : "end", "\"");
  out_ += concat(">", markup, "</text>\n");
}

void Diagram::text(double x, double y, std::string_view text, double size, std::string_view look,
                   Anchor anchor, bool bold) {
  put(x, y, text, markup_text(text), size, look, anchor, bold);
}

void Diagram::formula(double x, double y, std::string_view text, double size, std::string_view look,
                      Anchor anchor) {
  std::string out;
  const auto letter = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
  };
  double back = 0;  // what the next letters must move by to stand on the line again
  const auto moved = [&](double by, std::string_view words, bool small) {
    if (words.empty()) return;
    out += by == 0 && !small ? markup_text(words)
                             : concat("<tspan dy=\"", place(by), "\"",
                                      small ? concat(" font-size=\"", place(0.75 * size), "\"") : "", ">",
                                      markup_text(words), "</tspan>");
  };
  std::size_t from = 0, i = 0;
  while (i < text.size()) {
    const bool script = (text[i] == '_' || text[i] == '^') && i > from && i + 1 < text.size() &&
                        (text[i + 1] == '{' || letter(text[i + 1]));
    if (!script) {
      ++i;
      continue;
    }
    moved(back, text.substr(from, i - from), false);
    const double by = text[i] == '_' ? 0.25 * size : -0.35 * size;
    std::size_t first = i + 1, end = first;
    if (text[first] == '{') {
      end = std::min(text.find('}', first), text.size());
      ++first;
      i = end + 1;
    } else {
      while (end < text.size() && letter(text[end])) ++end;
      i = end;
    }
    moved(by, text.substr(first, end - first), true);
    back = -by;
    from = std::min(i, text.size());
  }
  moved(back, text.substr(from), false);
  put(x, y, text, out, size, look, anchor, false);
}

void Diagram::wire(const std::vector<Spot>& way, bool arrow, bool dashed) {
  std::vector<Spot> points = way;
  if (points.size() < 2) return;
  const Spot from = points[points.size() - 2], to = points.back();
  const double length = std::hypot(to.x - from.x, to.y - from.y);
  if (length == 0) arrow = false;
  const double ux = length > 0 ? (to.x - from.x) / length : 0, uy = length > 0 ? (to.y - from.y) / length : 0;
  if (arrow) points.back() = {to.x - kTip * ux, to.y - kTip * uy};
  std::string path;
  for (std::size_t i = 0; i < points.size(); ++i) {
    reach(points[i].x + 1, points[i].y + 1);
    path += concat(i == 0 ? "M" : "L", place(points[i].x), " ", place(points[i].y));
  }
  out_ += concat("<path class=\"axis\" stroke-width=\"1.3\"", dashed ? " stroke-dasharray=\"4 3\"" : "",
                 " d=\"", path, "\"/>\n");
  if (!arrow) return;
  const double wide = 0.6 * kTip;
  out_ += concat("<path class=\"tip\" d=\"M", place(to.x), " ", place(to.y), "L",
                 place(to.x - kTip * ux - wide * uy), " ", place(to.y - kTip * uy + wide * ux), "L",
                 place(to.x - kTip * ux + wide * uy), " ", place(to.y - kTip * uy - wide * ux), "Z\"/>\n");
}

void Diagram::circle(double x, double y, std::string_view sign) {
  out_ += concat("<circle class=\"plain\" cx=\"", place(x), "\" cy=\"", place(y), "\" r=\"8\"/>\n");
  text(x, y + 4.5, sign, 13, "ink", Anchor::middle);
}

std::string Diagram::svg(std::string_view title) const {
  const int wide = static_cast<int>(std::ceil(width_ + kMargin)),
            high = static_cast<int>(std::ceil(height_ + kMargin));
  return picture_parts::svg_head(wide, high, title, rules(false), rules(true)) + out_ + "</svg>\n";
}

// ------------------------------------------------------------------------------------------------ blocks
Block box_block(std::vector<std::string> lines, std::string look, double least_width) {
  std::erase_if(lines, [](const std::string& l) { return l.empty(); });
  Block b;
  double widest = 0;
  for (std::size_t i = 0; i < lines.size(); ++i)
    widest = std::max(widest, text_pixels(lines[i], i == 0 ? 12 : 11));
  b.width = std::max(least_width, widest + 2 * kPad);
  b.height = 11 + 15 * static_cast<double>(lines.size());
  b.port = b.exit = b.width / 2;
  b.draw = [lines = std::move(lines), look = std::move(look), w = b.width, h = b.height](Diagram& d, double x,
                                                                                         double y) {
    d.box(x, y, w, h, look);
    for (std::size_t i = 0; i < lines.size(); ++i)
      d.formula(x + w / 2, y + 17.5 + 15 * static_cast<double>(i), lines[i], i == 0 ? 12 : 11,
                i == 0 ? "ink" : "soft", Diagram::Anchor::middle);
  };
  return b;
}

Block words_block(std::string text) {
  const double wide = text_pixels(text, 12) * 1.1;
  return {wide, 16, wide / 2, wide / 2, [text = std::move(text), wide](Diagram& d, double x, double y) {
            d.text(x + wide / 2, y + 12, text, 12, "ink", Diagram::Anchor::middle, true);
          }};
}

Block gap_block(double height) {
  return {.height = height,
          .draw = [height](Diagram& d, double x, double y) { d.wire({{x, y}, {x, y + height}}); },
          .tip = false};
}

Block moved_port(Block block, double port, bool from_right) {
  if (2 * port >= block.width) return block;
  block.port = block.exit = from_right ? block.width - port : port;
  return block;
}

Block column(std::vector<Block> blocks, double gap) {
  double low = 0, high = 0, at = 0, height = 0;
  std::vector<double> left;  // of each block, the first one's port being 0
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    left.push_back(at - blocks[i].port);
    low = std::min(low, left[i]), high = std::max(high, left[i] + blocks[i].width);
    at = left[i] + blocks[i].exit;
    height += blocks[i].height + (i > 0 ? gap : 0);
  }
  for (double& l : left) l -= low;
  Block out{high - low, height, -low, at - low};
  out.tip = blocks.empty() || blocks.front().tip;
  out.draw = [blocks = std::move(blocks), left, gap](Diagram& d, double x, double y) {
    for (std::size_t i = 0; i < blocks.size(); ++i) {
      const Block& b = blocks[i];
      if (i > 0) {
        const double px = x + left[i] + b.port;
        d.wire({{px, y}, {px, y + gap}}, b.tip);
        y += gap;
      }
      b.draw(d, x + left[i], y);
      y += b.height;
    }
  };
  return out;
}

Block fan(std::vector<Block> lanes, const std::vector<std::string>& below, const std::string& look,
          std::size_t first) {
  constexpr double kApart = 10;
  double lane = 0, height = 0;
  for (const Block& b : lanes) {
    lane = std::max(lane, 2 * std::max(b.port, b.width - b.port)), height = std::max(height, b.height);
  }
  const double n = static_cast<double>(lanes.size());
  const Block least = box_block(below, look);
  lane = std::max(lane, (least.width - kApart * (n - 1)) / n);
  const double width = n * lane + kApart * (n - 1);
  const Block last = box_block(below, look, width);
  const auto middle = [=](std::size_t i) { return lane / 2 + (lane + kApart) * static_cast<double>(i); };
  Block out{width, 2 * kBus + height + last.height, 0, width / 2, {}, false};
  out.port = first == 0 ? width / 2 : (middle(first) + middle(lanes.size() - 1)) / 2;
  out.draw = [=, lanes = std::move(lanes)](Diagram& d, double x, double y) {
    const auto bus = [&](std::size_t from, std::size_t to, double at) {
      if (to - from > 1) d.wire({{x + middle(from), at}, {x + middle(to - 1), at}});
    };
    const double level = y + kBus / 2 - 2;
    bus(first, lanes.size(), level);
    d.wire({{x + out.port, y}, {x + out.port, level}});
    if (first > 0) {
      bus(0, first, level);
      d.entries.push_back({x + middle(0), level});
    }
    for (std::size_t i = 0; i < lanes.size(); ++i) {
      const double c = x + middle(i), end = y + kBus + lanes[i].height;
      d.wire({{c, level}, {c, y + kBus}}, lanes[i].tip);
      lanes[i].draw(d, c - lanes[i].port, y + kBus);
      d.wire({{c, end}, {c, y + kBus + height + kBus}}, true);
    }
    last.draw(d, x, y + 2 * kBus + height);
  };
  return out;
}

Block beside(std::vector<Block> lanes, const std::string& joined) {
  constexpr double kApart = 14;
  double width = 0, height = 0;
  std::vector<double> left;
  for (const Block& b : lanes) {
    left.push_back(width + (width > 0 ? kApart : 0));
    width = left.back() + b.width;
    height = std::max(height, b.height);
  }
  const double first = lanes.front().port, last = left.back() + lanes.back().port;
  Block out{width, height + 2 * kBus + 8, (first + last) / 2, (first + last) / 2, {}, false};
  out.draw = [=, lanes = std::move(lanes)](Diagram& d, double x, double y) {
    const double level = y + kBus / 2 - 2, sum = y + kBus + height + kBus;
    d.wire({{x + out.port, y}, {x + out.port, level}});
    d.wire({{x + first, level}, {x + last, level}});
    for (std::size_t i = 0; i < lanes.size(); ++i) {
      const Block& b = lanes[i];
      d.wire({{x + left[i] + b.port, level}, {x + left[i] + b.port, y + kBus}}, b.tip);
      b.draw(d, x + left[i], y + kBus);
      const double c = x + left[i] + b.exit, side = c < x + out.exit ? -8 : 8;
      d.wire({{c, y + kBus + b.height}, {c, sum}, {x + out.exit + side, sum}}, true);
    }
    d.circle(x + out.exit, sum, joined);
  };
  return out;
}

Block framed(const std::string& title, Block inner, const std::string& look) {
  const double wide = text_pixels(title, 12) * 1.1 + kPad;
  const bool right_of_flow = inner.port < inner.width / 2 - 1;
  double left = kPad, right = kPad;
  if (right_of_flow) right += std::max(0.0, inner.port + kPad + wide - inner.width);
  else left += std::max(0.0, wide - inner.port);
  Block out{left + inner.width + right,
            kTitle + inner.height + kPad,
            left + inner.port,
            left + inner.exit,
            {},
            false};
  out.draw = [=, inner = std::move(inner)](Diagram& d, double x, double y) {
    d.box(x, y, out.width, out.height, look, 6);
    d.text(right_of_flow ? x + out.port + kPad : x + kPad, y + 16, title, 12, "ink", Diagram::Anchor::start,
           true);
    d.wire({{x + out.port, y}, {x + out.port, y + kTitle}});
    inner.draw(d, x + left, y + kTitle);
    d.wire({{x + out.exit, y + kTitle + inner.height}, {x + out.exit, y + out.height}});
  };
  return out;
}

}  // namespace rapt
