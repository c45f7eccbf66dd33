// SPDX-License-Identifier: Apache-2.0
// What a verb of the program is, and what all of them share: arguments, output, colours. A new verb is one
// file that defines a Verb and one line in main.cc.
#pragma once
#include <array>
#include <chrono>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "rapt/base/error.h"
#include "rapt/report/text.h"

namespace rapt::cli {

// One name for one thing, the same in every verb: its letter, and what earlier versions and other programs
// call it. A verb asks for the name alone and gets the other spellings with it.
struct FlagName {
  std::string_view name, letter;                // letter: "-n" or ""
  std::array<std::string_view, 4> also;         // "--predict" …
  std::string_view meaning;
};
std::span<const FlagName> flag_names();
// "predict" is "max-tokens"; itself where it is no other spelling
std::string_view flag_name(std::string_view spelling);

// The words after the verb. Take the flags first, then operands(), which refuses what nobody took.
class Args {
 public:
  explicit Args(std::vector<std::string> words, std::string verb = "");

  // As if these had been written behind the others: where one counts, they do.
  void append(std::span<const std::string> words);
  // … before them: the others count.
  void prepend(std::span<const std::string> words);
  // The first word where it is no flag: a name that decides which flags there are.
  std::string first() const;
  bool flag(std::string_view name);  // --name
  // --name VALUE or --name=VALUE; the last one counts
  std::optional<std::string> value(std::string_view name);
  std::vector<std::string> values(std::string_view name);  // of a flag that may come many times
  std::optional<Dim> number(std::string_view name, Dim least, Dim most);
  std::optional<double> real(std::string_view name);  // finite
  std::vector<std::string> operands();  // everything else; all words after "--", and "-"
  // what: the end of a sentence that begins with "wants", as in "a model and a text".
  std::vector<std::string> operands(std::size_t least, std::size_t most, std::string_view what);

  // For man page and completions: a verb that is run with probe() asks for its flags and comes no further
  // than operands().
  struct Flag {
    std::string name;  // without dashes
    bool takes_value;
    bool operator==(const Flag&) const = default;
  };
  static Args probe(std::vector<std::string> words);
  const std::vector<Flag>& flags() const { return flags_; }

 private:
  // Words that fit no form of the verb: names its help.
  [[noreturn]] void refuse(const std::string& message) const;
  std::string verb_;
  std::vector<std::string> words_, after_;
  std::vector<Flag> flags_;
  bool probe_ = false;
};

struct Verb {
  const char *name, *summary;
  const char* help;  // usage, flags, examples: what --help prints after the summary
  int (*run)(Args& args);  // returns the exit code; throws Error
  std::string (*make_help)() = nullptr;  // of a verb whose help lists what is there: instead of `help`
};
std::span<const Verb* const> verbs();
std::string help_text(const Verb& verb);  // what stands below its summary: usage, flags, examples
std::string version_line();  // "rapt 0.1.0 (commit 1234567, clang 19.1)"

// Results go to standard output, through here: a full disk is an error, a closed pipe ends the program
// quietly.
void print(std::string_view text);
void flush();  // what was printed is seen now
// One line of standard error: what people should know and scripts need not. Ends a progress bar first.
void note(std::string_view text);
void silence_notes();  // --quiet: lines that begin with "note: " are left away from now on
// Text from a file or a model, for a terminal: control characters but tab and newline become visible (an
// escape is ␛), so that no file can drive the terminal. for_stdout: only where standard output is one.
std::string visible(std::string_view text);
std::string for_stdout(std::string_view text);
// Colours: only on a terminal, and not where NO_COLOR is set.
bool color_on_stdout();
bool is_terminal_stderr();
bool is_terminal_stdin();
Dim columns_of_stdout();  // for tables, prose and pictures
// --lang, or else what RAPT_LANG, LC_ALL, LC_MESSAGES or LANG (the first that is set) names; English where
// that is none of ours. Of what is said: help, errors, JSON and files of numbers are English.
Language language_of(Args& args);
// All of standard input, at most `most` bytes; "" where it is closed.
std::string read_stdin(std::size_t most);
// Something to read lies in standard input from its start: a file nobody has begun to read, a pipe with
// bytes in it.
bool stdin_waits();

// "1 2 3" or "1,2,3".
std::vector<std::int32_t> parse_ids(std::string_view text, std::string_view flag,
                                    std::string_view what = "token id");

// How far something is, on standard error: a bar on a terminal, redrawn at most ten times a second; nothing
// elsewhere, where it would fill logs. Work that takes less than half a second shows nothing.
class Progress {
 public:
  Progress(std::string what, bool quiet)
      : what_(std::move(what)), quiet_(quiet), bar_(is_terminal_stderr()) {}
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
