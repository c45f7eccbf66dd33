// SPDX-License-Identifier: Apache-2.0
// What a verb of the program is, and what all of them share: arguments, output, colours. A new verb is one file that defines a Verb
// and one line in main.cc.
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "rapt/base/error.h"

namespace rapt::cli {

// The words after the verb. Take the flags first, then operands(), which refuses what nobody took.
class Args {
 public:
  explicit Args(std::vector<std::string> words);

  bool flag(std::string_view name);                          // --name, or one letter: -n
  std::optional<std::string> value(std::string_view name);   // --name VALUE or --name=VALUE; the last one counts
  std::optional<Dim> number(std::string_view name, Dim least, Dim most);
  std::vector<std::string> operands();                       // everything else; all words after "--", and "-"
  std::vector<std::string> operands(std::size_t least, std::size_t most, std::string_view what);

 private:
  std::vector<std::string> words_, after_;
  std::vector<std::string> known_;
};

struct Verb {
  const char *name, *summary;
  const char* help;             // usage, flags, examples: what --help prints after the summary
  int (*run)(Args& args);       // returns the exit code; throws Error
};

// Results go to standard output, through here: a full disk is an error, a closed pipe ends the program quietly.
void print(std::string_view text);
// Colours: only on a terminal, and not where NO_COLOR is set.
bool color_on_stdout();
bool is_terminal_stderr();
// All of standard input, at most `most` bytes.
std::string read_stdin(std::size_t most);

}  // namespace rapt::cli
