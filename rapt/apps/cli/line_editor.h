// SPDX-License-Identifier: Apache-2.0
// One line from a terminal, with what fingers expect: arrows, Home, End, Ctrl-A E K U W, earlier lines by up and down. UTF-8 moves by
// characters. Where standard input is no terminal, lines are read as they come.
#pragma once
#include <optional>
#include <string>
#include <vector>

namespace rapt::cli {

class LineEditor {
 public:
  // Without a value at the end of input (Ctrl-D on an empty line). Ctrl-C gives an empty line.
  std::optional<std::string> read(const std::string& prompt);

 private:
  std::optional<std::string> edit(const std::string& prompt);
  std::vector<std::string> history_;
};

}  // namespace rapt::cli
