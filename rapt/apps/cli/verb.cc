// SPDX-License-Identifier: Apache-2.0
#include "rapt/apps/cli/verb.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "rapt/apps/cli/help_text.h"
#include "rapt/base/terminal.h"
#include "rapt/base/text.h"
#include "rapt/base/text_width.h"

namespace rapt::cli {
namespace {
std::string dashed(std::string_view name) { return concat(name.size() == 1 ? "-" : "--", name); }
}  // namespace

Args::Args(std::vector<std::string> words) : words_(std::move(words)) {
  const auto end = std::find(words_.begin(), words_.end(), "--");
  if (end == words_.end()) return;
  after_.assign(end + 1, words_.end());
  words_.erase(end, words_.end());
}

std::string Args::first() const { return words_.empty() || words_[0].starts_with('-') ? "" : words_[0]; }

void Args::letter(char short_name, std::string_view name) {
  const std::string from = {'-', short_name}, to = dashed(name);
  known_.push_back(from);
  for (std::string& w : words_)
    if (w == from) w = to;
    else if (w.starts_with(from + "=")) w = to + w.substr(2);
}

bool Args::flag(std::string_view name) {
  const std::string word = dashed(name);
  known_.push_back(word);
  for (const std::string& w : words_)
    if (w.starts_with(word + "=")) fail_usage(word, " takes no value; write just ", word);
  return std::erase(words_, word) > 0;
}

std::optional<std::string> Args::value(std::string_view name) {
  const std::vector<std::string> all = values(name);
  return all.empty() ? std::nullopt : std::optional(all.back());
}

std::vector<std::string> Args::values(std::string_view name) {
  const std::string word = dashed(name);
  known_.push_back(word);
  std::vector<std::string> out;
  for (std::size_t i = 0; i < words_.size();) {
    const bool joined = words_[i].starts_with(word + "=");
    if (words_[i] != word && !joined) {
      ++i;
      continue;
    }
    if (!joined && i + 1 >= words_.size()) fail_usage(word, " needs a value: ", word, " VALUE");
    out.push_back(joined ? words_[i].substr(word.size() + 1) : words_[i + 1]);
    const auto first = words_.begin() + static_cast<std::ptrdiff_t>(i);
    words_.erase(first, first + (joined ? 1 : 2));
  }
  return out;
}

std::optional<Dim> Args::number(std::string_view name, Dim least, Dim most) {
  const std::optional<std::string> text = value(name);
  if (!text) return std::nullopt;
  Dim n = 0;
  const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), n);
  if (error != std::errc{} || end != text->data() + text->size() || n < least || n > most)
    fail_usage(dashed(name), ": '", *text, "' is no whole number from ", least, " to ", most);
  return n;
}

std::optional<double> Args::real(std::string_view name) {
  const std::optional<std::string> text = value(name);
  if (!text) return std::nullopt;
  double x = 0;
  const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), x);
  if (error != std::errc{} || end != text->data() + text->size() || !std::isfinite(x))
    fail_usage(dashed(name), ": '", *text, "' is no number");
  return x;
}

std::vector<std::string> Args::operands() {
  std::vector<std::string> out;
  for (const std::string& w : words_) {
    if (w.size() > 1 && w[0] == '-') fail_usage("unknown flag '", w, "'; ", name_hint(w.substr(0, w.find('=')), known_));
    out.push_back(w);
  }
  out.insert(out.end(), after_.begin(), after_.end());
  return out;
}

std::vector<std::string> Args::operands(std::size_t least, std::size_t most, std::string_view what) {
  std::vector<std::string> out = operands();
  if (out.size() < least || out.size() > most)
    fail_usage("wants ", least == most ? std::to_string(least) : concat(least, " to ", most), " ", what, ", got ", out.size(),
               out.empty() ? "" : ": " + join(out));
  return out;
}

void print(std::string_view text) {
  if (std::fwrite(text.data(), 1, text.size(), stdout) == text.size()) return;
  if (errno == EPIPE) std::_Exit(0);
  fail("standard output: ", std::strerror(errno));
}

void flush() {
  if (std::fflush(stdout) == 0) return;
  if (errno == EPIPE) std::_Exit(0);
  fail("standard output: ", std::strerror(errno));
}

void note(std::string_view text) {
  std::fflush(stdout);
  const bool screen = has_escapes(STDERR_FILENO);
  const std::string lines = is_terminal_stderr() ? folded_lines(text, terminal_size(STDERR_FILENO).columns) : std::string(text);
  std::fprintf(stderr, "%s%s\n", screen ? "\r\033[2K" : "", lines.c_str());
}

bool color_on_stdout() {
  const char* off = std::getenv("NO_COLOR");
  return has_escapes(STDOUT_FILENO) && !(off && *off);
}
bool is_terminal_stderr() { return is_terminal(STDERR_FILENO); }
bool is_terminal_stdin() { return is_terminal(STDIN_FILENO); }
Dim columns_of_stdout() { return print_columns(STDOUT_FILENO); }

std::string fixed(double x, int digits) {
  char text[64];
  std::snprintf(text, sizeof text, "%.*f", digits, x);
  return text;
}

std::vector<std::int32_t> parse_ids(std::string_view text, std::string_view flag, std::string_view what) {
  std::vector<std::int32_t> ids;
  while (true) {
    const std::size_t begin = text.find_first_not_of(" \t\r\n,");
    if (begin == std::string_view::npos) return ids;
    text.remove_prefix(begin);
    const std::string_view word = text.substr(0, text.find_first_of(" \t\r\n,"));
    std::int32_t id = 0;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), id);
    if (error != std::errc{} || end != word.data() + word.size() || id < 0)
      fail_usage(flag, ": '", word, "' is no ", what, "; write whole numbers from 0 with spaces between them");
    ids.push_back(id);
    text.remove_prefix(word.size());
  }
}

void Progress::step(double done, double of, std::string_view more) {
  if (quiet_ || !bar_ || !(of > 0)) return;
  const auto now = std::chrono::steady_clock::now();
  const double seconds = std::chrono::duration<double>(now - start_).count();
  if (done >= of) return clear();
  if (seconds < 0.5 || std::chrono::duration<double>(now - last_).count() < 0.1) return;
  last_ = now;
  drawn_ = true;
  const std::string left = concat("  ", fixed(done > 0 ? seconds / done * (of - done) : 0.0, 0), " s left");
  const std::string line = progress_line(what_, done / of, concat(more.empty() ? "" : "  ", more, left),
                                         terminal_size(STDERR_FILENO).columns - 1);
  std::fprintf(stderr, "\r\033[2K%s", line.c_str());
  std::fflush(stderr);
}

std::string progress_line(std::string_view what, double share, std::string_view more, Dim width) {
  const std::string text = concat(what, " ", fixed(100 * share, 0), " %", more);
  const Dim cells = std::min<Dim>(30, width - text_width(text) - 3);
  std::string line;
  if (cells >= 5) {
    line = "[";
    for (Dim i = 0; i < cells; ++i) line += i < static_cast<Dim>(static_cast<double>(cells) * share) ? "█" : "·";
    line += "] ";
  }
  return cut_text(line + text, width);
}

void Progress::clear() {
  if (!drawn_) return;
  drawn_ = false;
  std::fputs("\r\033[2K", stderr);
  std::fflush(stderr);
}

std::string read_stdin(std::size_t most) {
  std::string text;
  char buffer[65536];
  while (const std::size_t n = std::fread(buffer, 1, sizeof buffer, stdin)) {
    text.append(buffer, n);
    if (text.size() > most) fail("standard input: more than ", byte_count(static_cast<double>(most)), "; is this the right text?");
  }
  if (std::ferror(stdin)) fail("standard input: ", std::strerror(errno));
  return text;
}

}  // namespace rapt::cli
