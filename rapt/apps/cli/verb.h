// SPDX-License-Identifier: Apache-2.0
// What a verb of the program is, and what all of them share: arguments, output, colours. A new verb is one file that defines a Verb
// and one line in main.cc.
#pragma once
#include <chrono>
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

  std::string first() const;  // the first word where it is no flag: a name that decides which flags there are
  void letter(char short_name, std::string_view name);  // -n is --predict; call it before that flag is asked for
  bool flag(std::string_view name);  // --name, or one letter: -n
  std::optional<std::string> value(std::string_view name);  // --name VALUE or --name=VALUE; the last one counts
  std::vector<std::string> values(std::string_view name);  // of a flag that may come many times
  std::optional<Dim> number(std::string_view name, Dim least, Dim most);
  std::optional<double> real(std::string_view name);  // finite
  std::vector<std::string> operands();  // everything else; all words after "--", and "-"
  std::vector<std::string> operands(std::size_t least, std::size_t most, std::string_view what);

 private:
  std::vector<std::string> words_, after_;
  std::vector<std::string> known_;
};

struct Verb {
  const char *name, *summary;
  const char* help;  // usage, flags, examples: what --help prints after the summary
  int (*run)(Args& args);  // returns the exit code; throws Error
};

// Results go to standard output, through here: a full disk is an error, a closed pipe ends the program quietly.
void print(std::string_view text);
void flush();  // what was printed is seen now
// One line of standard error: what people should know and scripts need not. Ends a progress bar first.
void note(std::string_view text);
// Colours: only on a terminal, and not where NO_COLOR is set.
bool color_on_stdout();
bool is_terminal_stderr();
bool is_terminal_stdin();
Dim columns_of_stdout();  // for tables, prose and pictures
// All of standard input, at most `most` bytes.
std::string read_stdin(std::size_t most);

std::string fixed(double x, int digits);
// "1 2 3" or "1,2,3".
std::vector<std::int32_t> parse_ids(std::string_view text, std::string_view flag, std::string_view what = "token id");

// How far something is, on standard error: a bar on a terminal, redrawn at most ten times a second; nothing elsewhere, where it would
// fill logs. Work that takes less than half a second shows nothing.
class Progress {
 public:
  Progress(std::string what, bool quiet) : what_(std::move(what)), quiet_(quiet), bar_(is_terminal_stderr()) {}
  ~Progress() { clear(); }
  void step(double done, double of, std::string_view more = "");  // more: a word beside the numbers
  void clear();  // takes the bar away

 private:
  std::string what_;
  bool quiet_, bar_, drawn_ = false;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now(), last_{};
};
// One line of at most `width` columns; `more` behind the share.
std::string progress_line(std::string_view what, double share, std::string_view more, Dim width);

}  // namespace rapt::cli
