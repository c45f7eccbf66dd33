// SPDX-License-Identifier: Apache-2.0
// What there is to know about the terminal behind a file descriptor. Sizes are asked for when something is
// drawn, never kept: windows change.
#pragma once
#include "rapt/base/error.h"

namespace rapt {

constexpr Dim kPipeColumns = 100;  // of tables and pictures in pipes and files

bool is_terminal(int file);
struct TerminalSize {
  Dim columns = 80, rows = 24;
};
TerminalSize terminal_size(int file);  // as the terminal says, else COLUMNS and LINES, else 80 x 24
// The width for tables, prose and pictures: a terminal's; COLUMNS where it is set, else kPipeColumns, in
// pipes and files.
Dim print_columns(int file);
// Escape sequences are understood: a terminal, and TERM is not "dumb".
bool has_escapes(int file);

}  // namespace rapt
