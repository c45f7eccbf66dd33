// SPDX-License-Identifier: Apache-2.0
// Heat maps as text, for terminals and .txt files.
#include <algorithm>
#include <cmath>
#include <cstdio>

#include "rapt/base/text.h"
#include "rapt/inspect/picture.h"

namespace rapt {
namespace {

// Where a value stands between nothing (0) and the darkest (1); of values with a sign, -1 … 1.
struct Strength {
  double top = 0;
  HeatMap::Scale scale;
  explicit Strength(const HeatMap& m) : scale(m.scale) {
    if (m.rows.empty() || m.columns.empty())
      fail("heat map: ", m.rows.size(), " rows and ", m.columns.size(), " columns; there is nothing to draw");
    if (m.values.size() != m.rows.size() * m.columns.size())
      fail("heat map: ", m.values.size(), " values for ", m.rows.size(), " rows and ", m.columns.size(), " columns");
    if (!std::isfinite(m.top) || m.top < 0) fail("heat map: the darkest value is said to be ", m.top);
    top = m.top;
    for (double v : m.values)
      if (m.top == 0 && std::isfinite(v)) top = std::max(top, scale == HeatMap::Scale::both_signs ? std::abs(v) : v);
    if (top == 0) top = 1;
  }
  double of(double value) const {
    const double share = value / top;
    if (scale == HeatMap::Scale::both_signs) return std::clamp(share, -1.0, 1.0);
    return scale == HeatMap::Scale::root ? std::sqrt(std::clamp(share, 0.0, 1.0)) : std::clamp(share, 0.0, 1.0);
  }
  double value(double strength) const {  // the least value that is drawn so
    return top * (scale == HeatMap::Scale::root ? strength * strength : strength);
  }
};

constexpr const char* kShades[] = {" ", "░", "▒", "▓", "█"};
constexpr const char* kBelow[] = {" ", "·", "-", "=", "#"};  // of values below zero
constexpr double kLeast[] = {0, 0.05, 0.2, 0.45, 0.7};       // weights of 0.1 already tell something

const char* shade(double strength) {
  int i = 4;
  while (i > 0 && std::abs(strength) < kLeast[i]) --i;
  return strength < 0 ? kBelow[i] : kShades[i];
}

constexpr int kRamp[] = {53, 55, 25, 30, 36, 77, 148, 220};  // of 256 colours, from dark violet to yellow, each lighter than the last
constexpr int kSteps = 8;
int terminal_color(double t) { return kRamp[std::clamp(static_cast<int>(t * kSteps), 0, kSteps - 1)]; }

std::string short_number(double x) {  // two digits that tell something
  char text[32];
  std::snprintf(text, sizeof text, "%.2g", x);
  return text;
}

// Columns that are too many: neighbours share one that has the largest of their values (of values with a sign, the one furthest from zero).
HeatMap joined(const HeatMap& m, std::size_t step) {
  const std::size_t C = m.columns.size();
  HeatMap out = m;
  out.columns.clear(), out.values.clear();
  for (std::size_t c = 0; c < C; c += step) out.columns.push_back(m.columns[c]);
  const bool sign = m.scale == HeatMap::Scale::both_signs;
  for (std::size_t r = 0; r < m.rows.size(); ++r)
    for (std::size_t c = 0; c < C; c += step) {
      double most = m.values[r * C + c];
      for (std::size_t i = c + 1; i < std::min(c + step, C); ++i) {
        const double v = m.values[r * C + i];
        if (std::isnan(most) || (sign ? std::abs(v) > std::abs(most) : v > most)) most = v;
      }
      out.values.push_back(most);
    }
  return out;
}

std::string right_aligned(const std::string& text, Dim width) {
  return std::string(static_cast<std::size_t>(std::max<Dim>(0, width - text_width(text))), ' ') + text;
}

// Pieces beside each other, as many as fit; `wide`: the columns they take where they hold colours.
struct Flow {
  Dim width;
  std::string out;
  Dim filled = 0;
  void add(const std::string& piece, Dim wide, Dim gap) {
    if (filled > 0 && filled + gap + wide > width) out += "\n", filled = 0;
    else if (filled > 0) out.append(static_cast<std::size_t>(gap), ' '), filled += gap;
    out += piece;
    filled += wide;
  }
};

std::string legend(const HeatMap& map, const Strength& strength, bool color, Dim width) {
  Flow flow{width};
  auto words = [&](const std::string& text, Dim gap = 3) { flow.add(text, text_width(text), gap); };
  if (!map.row_name.empty()) words("↓ " + terminal_text(map.row_name, 30));
  if (!map.column_name.empty()) words("→ " + terminal_text(map.column_name, 30));
  if (!map.value_name.empty()) words(terminal_text(map.value_name, 30) + ":");
  const bool sign = map.scale == HeatMap::Scale::both_signs;
  if (color) {
    for (int i = sign ? -4 : 0; i < (sign ? 4 : kSteps); ++i) {
      const double t = sign ? (i + 4) / 8.0 : i / static_cast<double>(kSteps);
      const std::string number = short_number(strength.value(sign ? i / 4.0 : t));
      flow.add(concat("\033[48;5;", terminal_color(t + 0.01), "m  \033[0m ", number), 3 + text_width(number), 2);
    }
  } else {
    for (int i = 4; sign && i > 0; --i) words(concat(kBelow[i], " ", short_number(-strength.value(kLeast[i]))), 2);
    for (int i = sign ? 1 : 0; i < 5; ++i) words(concat(i == 0 ? "blank" : kShades[i], " ", short_number(strength.value(kLeast[i]))), 2);
  }
  words(map.scale == HeatMap::Scale::root ? "and more (even steps of the square root)" : sign ? "" : "and more", 2);
  std::string out = flow.out;
  out.erase(out.find_last_not_of(' ') + 1);
  return out + "\n";
}

}  // namespace

std::string heat_text(const HeatMap& whole, bool color, Dim width) {
  const Strength strength(whole);
  width = std::max<Dim>(20, width);
  const Dim longest = std::min<Dim>(24, width / 3);
  Dim labels = 0;
  for (const std::string& s : whole.rows) labels = std::max(labels, text_width(terminal_text(s, longest)));
  // Columns are numbered, and the numbers explained below; labels that are numbers themselves (heads, say) stand there as they are.
  bool own = true;
  std::size_t widest = 1;
  for (const std::string& s : whole.columns) {
    own = own && !s.empty() && s.size() <= 5 && s.find_first_not_of("0123456789") == std::string::npos;
    widest = std::max(widest, s.size());
  }
  const std::size_t digits = own ? widest : std::to_string(whole.columns.size()).size();
  const auto room = static_cast<std::size_t>(width - labels - 1);
  std::size_t cell = digits + 1, step = 1;
  if (whole.columns.size() * cell > room) cell = whole.columns.size() * 2 <= room && digits > 1 ? 2 : 1;
  if (whole.columns.size() * cell > room) step = (whole.columns.size() + room - 1) / room;
  const HeatMap map = step > 1 ? joined(whole, step) : whole;
  const std::size_t C = map.columns.size();

  std::string out;
  std::string title = terminal_text(map.title, 1000);
  if (step > 1) title += concat(title.empty() ? "" : " ", "(a column is the largest of ", step, ")");
  if (!title.empty()) out += join(fold_text(title, width), "\n") + "\n";
  // Numbers above: of every column where its cell holds them, else of some, from their column on.
  std::string head(static_cast<std::size_t>(labels) + 1, ' ');
  for (std::size_t c = 0; c < C; ++c) {
    const std::string name = own ? map.columns[c] : std::to_string(c * step + 1);
    if (cell > digits) head += right_aligned(name, static_cast<Dim>(cell));
    else if (c % (cell == 1 ? 10 : 5) == 0 && static_cast<std::size_t>(labels) + 1 + c * cell + name.size() <= static_cast<std::size_t>(width)) {
      head.resize(std::max(head.size(), static_cast<std::size_t>(labels) + 1 + c * cell + (cell > 1 ? 1 : 0)), ' ');
      head += name;
    }
  }
  out += head + "\n";
  for (std::size_t r = 0; r < map.rows.size(); ++r) {
    std::string line = right_aligned(terminal_text(map.rows[r], longest), labels) + " ";
    for (std::size_t c = 0; c < C; ++c) {
      const double v = map.values[r * C + c], s = strength.of(v);
      const std::string gap(cell > 1 ? 1 : 0, ' ');
      if (!std::isfinite(v)) {
        line += right_aligned("?", static_cast<Dim>(cell));
      } else if (color) {
        const double t = map.scale == HeatMap::Scale::both_signs ? (s + 1) / 2 : s;
        line += concat("\033[48;5;", terminal_color(t), "m", std::string(cell, ' '));
        if (c + 1 == C || !std::isfinite(map.values[r * C + c + 1])) line += "\033[0m";
      } else {
        line += gap;
        for (std::size_t i = gap.size(); i < cell; ++i) line += shade(s);
      }
    }
    out += line + "\n";
  }
  if (!own) {
    Flow names{width};
    for (std::size_t c = 0; c < C; ++c) {
      const std::string one = concat(c * step + 1, " ", terminal_text(map.columns[c], longest));
      names.add(one, text_width(one), 3);
    }
    out += names.out + "\n";
  }
  return out + legend(map, strength, color, width);
}

}  // namespace rapt
