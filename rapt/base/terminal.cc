// SPDX-License-Identifier: Apache-2.0
// The system is asked first, then COLUMNS and LINES; else the default stands. TERM=dumb means no escapes.
#include "rapt/base/terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <string_view>

namespace rapt {
namespace {

Dim number_of(const char* name) {  // of the environment; 0 where there is none
  const char* text = std::getenv(name);
  return text ? std::clamp<Dim>(std::atol(text), 0, 10000) : 0;
}

}  // namespace

bool is_terminal(int file) { return isatty(file) == 1; }

TerminalSize terminal_size(int file) {
  winsize w{};
  const bool told = ioctl(file, TIOCGWINSZ, &w) == 0;
  TerminalSize size;
  if (const Dim n = told && w.ws_col > 0 ? w.ws_col : number_of("COLUMNS"); n > 0) size.columns = n;
  if (const Dim n = told && w.ws_row > 0 ? w.ws_row : number_of("LINES"); n > 0) size.rows = n;
  return size;
}

Dim print_columns(int file) {
  if (is_terminal(file)) return terminal_size(file).columns;
  const Dim wish = number_of("COLUMNS");
  return wish > 0 ? wish : kPipeColumns;
}

bool has_escapes(int file) {
  const char* term = std::getenv("TERM");
  return is_terminal(file) && !(term && std::string_view(term) == "dumb");
}

}  // namespace rapt
