// SPDX-License-Identifier: Apache-2.0
// Heat maps as text, for terminals and .txt files.
#include <algorithm>
#include <cmath>
#include <cstdio>

#include "rapt/base/text.h"
#include "rapt/report/colors.h"
#include "rapt/report/picture_parts.h"

namespace rapt {
namespace {

using picture_parts::Shares;

// Where a value stands between nothing (0) and the darkest (1); of values with a sign, -1 … 1.
double strength(const Shares& share, double value) {
  return share.both_signs() ? 2 * share.of(value) - 1 : share.of(value);
}
double least_value(const Shares& share, double strength) {
  return share.at(share.both_signs() ? (strength + 1) / 2 : strength);
}

constexpr const char* kShades[] = {" ", "░", "▒", "▓", "█"};
constexpr const char* kBelow[] = {" ", "·", "-", "=", "#"};  // of values below zero
constexpr double kLeast[] = {0, 0.05, 0.2, 0.45, 0.7};       // weights of 0.1 already tell something

const char* shade(double strength) {
  int i = 4;
  while (i > 0 && std::abs(strength) < kLeast[i]) --i;
  return strength < 0 ? kBelow[i] : kShades[i];
}

std::string cells(const Shares& share, double strength, std::size_t columns) {
  return concat("\033[48;5;",
                share.both_signs() ? signed_terminal_color(strength) : heat_terminal_color(strength), "m",
                std::string(columns, ' '));
}

std::string short_number(double x) {  // two digits that tell something
  char text[32];
  std::snprintf(text, sizeof text, "%.2g", x);
  return text;
}

// Columns that are too many: neighbours share one that has the largest of their values (of values with a
// sign, the one furthest from zero).
HeatMap joined(const HeatMap& m, std::size_t step) {
  const std::size_t C = m.columns.size();
  HeatMap out = m;
  out.columns.clear(), out.values.clear(), out.cells.clear();
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

// What the sides are, and what the shades mean; beside each other where there is room.
std::string legend(const Shares& share, bool color, Dim width) {
  const HeatMap& map = share.map;
  Flow sides{width}, scale{width};
  auto words = [](Flow& flow, const std::string& text, Dim gap) {
    if (!text.empty()) flow.add(text, text_width(text), gap);
  };
  if (!map.row_name.empty()) words(sides, "↓ " + terminal_text(map.row_name, 30), 3);
  if (!map.column_name.empty()) words(sides, "→ " + terminal_text(map.column_name, 30), 3);
  if (!map.value_name.empty()) words(scale, terminal_text(map.value_name, 30) + ":", 3);
  const bool sign = map.scale == HeatMap::Scale::both_signs;
  if (color) {
    for (int i = sign ? -4 : 0; i <= 4; ++i) {
      const std::string number = short_number(least_value(share, i / 4.0));
      scale.add(concat(cells(share, i / 4.0, 2), "\033[0m ", number), 3 + text_width(number), 2);
    }
  } else {
    for (int i = 4; sign && i > 0; --i)
      words(scale, concat(kBelow[i], " ", short_number(least_value(share, -kLeast[i]))), 2);
    for (int i = sign ? 1 : 0; i < 5; ++i)
      words(scale, concat(i == 0 ? "blank" : kShades[i], " ", short_number(least_value(share, kLeast[i]))),
            2);
  }
  words(scale, color || sign ? "" : "and more", 2);
  words(scale, map.scale == HeatMap::Scale::root ? "(by the square root)" : "", 2);
  const bool one = sides.filled + 3 + scale.filled <= width && scale.out.find('\n') == std::string::npos;
  return concat(sides.out, sides.out.empty() ? "" : one ? "   " : "\n", scale.out, "\n");
}

}  // namespace

std::string heat_text(const HeatMap& whole, bool color, Dim width) {
  const Shares all(whole);
  width = std::max<Dim>(20, width);
  const Dim longest = std::min<Dim>(24, width / 3);
  Dim labels = 0;
  for (const std::string& s : whole.rows) labels = std::max(labels, text_width(terminal_text(s, longest)));
  // Columns are numbered, and the numbers explained below; labels that are numbers themselves (heads, say)
  // stand there as they are.
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
  Shares share(map);
  share.top = all.top;

  std::string out;
  std::string title = terminal_text(map.title, 1000);
  if (step > 1) title += concat(title.empty() ? "" : " ", "(a column is the largest of ", step, ")");
  if (!title.empty()) out += join(fold_text(title, width), "\n") + "\n";
  // Numbers above: of every column where its cell holds them, else of some, from their column on.
  std::string head(static_cast<std::size_t>(labels) + 1, ' ');
  for (std::size_t c = 0; c < C; ++c) {
    const Text name = own ? map.columns[c] : Text(std::to_string(c * step + 1));
    if (cell > digits) head += right_aligned(name, static_cast<Dim>(cell));
    else if (c % (cell == 1 ? 10 : 5) == 0 && static_cast<std::size_t>(labels) + 1 + c * cell + name.size() <=
                                                  static_cast<std::size_t>(width)) {
      head.resize(std::max(head.size(), static_cast<std::size_t>(labels) + 1 + c * cell + (cell > 1 ? 1 : 0)),
                  ' ');
      head += name;
    }
  }
  out += head + "\n";
  for (std::size_t r = 0; r < map.rows.size(); ++r) {
    std::string line = right_aligned(terminal_text(map.rows[r], longest), labels) + " ";
    for (std::size_t c = 0; c < C; ++c) {
      const double v = map.values[r * C + c];
      const std::string gap(cell > 1 ? 1 : 0, ' ');
      if (!std::isfinite(v)) {
        line += right_aligned("?", static_cast<Dim>(cell));
      } else if (color) {
        line += cells(share, strength(share, v), cell);
        if (c + 1 == C || !std::isfinite(map.values[r * C + c + 1])) line += "\033[0m";
      } else {
        line += gap;
        for (std::size_t i = gap.size(); i < cell; ++i) line += shade(strength(share, v));
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
  return out + legend(share, color, width);
}

}  // namespace rapt
