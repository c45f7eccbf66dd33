// SPDX-License-Identifier: Apache-2.0
// The drawing of a model in the columns of a terminal: wires at the left, boxes for stacks, a branch for
// every part. Parts draw their own lines (parts/part.h); inspect/show.h puts the whole together.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "rapt/base/error.h"
#include "rapt/ops/activation.h"

namespace rapt {

class Drawing {
 public:
  Drawing(bool color, Dim width);

  Dim width() const { return width_; }
  std::string bold(std::string_view s) const {
    return color_ ? concat("\033[1m", s, "\033[0m") : std::string(s);
  }
  std::string faint(std::string_view s) const {
    return color_ ? concat("\033[2m", s, "\033[0m") : std::string(s);
  }

  void text(const std::string& s) { out_ += s + "\n"; }
  // A title in bold, words behind it; what goes on below begins under `hang`.
  void words(std::string_view title, std::string_view s, Dim hang);
  // Name and value in two columns.
  void pair(std::string_view name, std::string_view value);
  void box_top(std::string_view title);
  void box_bottom();
  void wire() { out_ += faint("  │") + "\n"; }
  // A row of a table inside the picture: name, then what it is.
  void row(std::string_view lines, std::string_view name, std::string_view what);
  void branch(std::string_view title) { out_ += faint(open_ ? "│ ├─╮ " : "  ├─╮ ") + bold(title) + "\n"; }
  void inside(std::string_view name, std::string_view what) { row("│ │   ", name, what); }
  void join_up(std::string_view what) {
    out_ += faint("│ ⊕─╯") + (what.empty() ? "" : " " + std::string(what)) + "\n";
  }
  void on_stream(std::string_view name, std::string_view what) { row("│     ", name, what); }

  std::string take() { return std::move(out_); }

 private:
  static constexpr Dim kName = 11;
  // Wires at the left, a name, and what it is, folded beside them; in a narrow window below the name.
  void put(std::string_view wires, const std::string& name, std::string_view what);
  bool color_, open_ = false;
  Dim width_, box_;
  std::string out_;
};

// Words that several parts use.
std::string heads_by(Dim heads, Dim channels);       // "8×64"
std::string act_text(Act act, std::string_view of);  // "silu(gate)"
std::string dropout_text(double p);                  // "" where there is none

}  // namespace rapt
