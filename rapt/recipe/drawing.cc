// SPDX-License-Identifier: Apache-2.0
// Lines are folded to the width; what goes on stands below its beginning.
#include "rapt/recipe/drawing.h"

#include <algorithm>

#include "rapt/base/text.h"
#include "rapt/base/text_width.h"
#include "rapt/recipe/parts/part.h"

namespace rapt {
namespace {

std::string rule(Dim n) {
  std::string s;
  for (Dim i = 0; i < n; ++i) s += "─";
  return s;
}

}  // namespace

Drawing::Drawing(bool color, Dim width)
    : color_(color), width_(std::clamp<Dim>(width, 24, 100)), box_(std::min<Dim>(width_, 92)) {}

void Drawing::words(std::string_view title, std::string_view s, Dim hang) {
  const std::vector<std::string> lines = fold_text(concat(title, s), width_ - hang);
  for (std::size_t i = 0; i < lines.size(); ++i)
    out_ += i == 0 && lines[0].starts_with(title)
                ? bold(title) + lines[0].substr(title.size()) + "\n"
                : std::string(static_cast<std::size_t>(i == 0 ? 0 : hang), ' ') + lines[i] + "\n";
}

void Drawing::pair(std::string_view name, std::string_view value) {
  put("", padded(name, std::min<Dim>(20, width_ / 2)), value);
}

void Drawing::box_top(std::string_view title) {
  open_ = true;
  const std::vector<std::string> lines = fold_text(title, box_ - 7);
  out_ += faint("┌─┴─ ") + bold(lines[0]) + faint(" " + rule(box_ - 6 - text_width(lines[0]))) + "\n";
  for (std::size_t i = 1; i < lines.size(); ++i) out_ += faint("│    ") + bold(lines[i]) + "\n";
}

void Drawing::box_bottom() {
  out_ += faint("└─┬" + rule(box_ - 3)) + "\n";
  open_ = false;
}

void Drawing::row(std::string_view lines, std::string_view name, std::string_view what) {
  put(concat(open_ ? "│ " : "  ", lines), name.empty() ? "" : padded(name, kName), what);
}

void Drawing::put(std::string_view wires, const std::string& name, std::string_view what) {
  const Dim left = text_width(wires);
  Dim column = left + text_width(name);
  if (width_ - column < 20 && !name.empty()) {
    out_ += faint(wires) + name.substr(0, name.find_last_not_of(' ') + 1) + "\n";
    column = left + 2;
  } else {
    out_ += faint(wires) + name;
  }
  const std::vector<std::string> lines = fold_text(what, width_ - column);
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const bool beside = i == 0 && column == left + text_width(name);
    out_ += (beside ? "" : faint(wires) + std::string(static_cast<std::size_t>(column - left), ' ')) +
            lines[i] + "\n";
  }
}

std::string heads_by(Dim heads, Dim d) { return concat(with_commas(heads), "×", with_commas(d)); }

std::string dropout_text(double p) { return p > 0 ? concat("dropout ", shortest(p)) : ""; }

std::string act_text(Act act, std::string_view of) {
  if (act == Act::ns_sigmoid) return concat("(½ + ½ sigmoid(", of, "))");
  return concat(name_text(act), "(", of, ")");
}

}  // namespace rapt
