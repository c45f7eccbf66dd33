// SPDX-License-Identifier: Apache-2.0
#include "rapt/apps/cli/verb.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "rapt/base/text.h"

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

bool Args::flag(std::string_view name) {
  const std::string word = dashed(name);
  known_.push_back(word);
  for (const std::string& w : words_)
    if (w.starts_with(word + "=")) fail_usage(word, " takes no value; write just ", word);
  return std::erase(words_, word) > 0;
}

std::optional<std::string> Args::value(std::string_view name) {
  const std::string word = dashed(name);
  known_.push_back(word);
  std::optional<std::string> out;
  for (std::size_t i = 0; i < words_.size();) {
    const bool joined = words_[i].starts_with(word + "=");
    if (words_[i] != word && !joined) {
      ++i;
      continue;
    }
    if (!joined && i + 1 >= words_.size()) fail_usage(word, " needs a value: ", word, " VALUE");
    out = joined ? words_[i].substr(word.size() + 1) : words_[i + 1];
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

bool color_on_stdout() {
  const char *off = std::getenv("NO_COLOR"), *term = std::getenv("TERM");
  return isatty(STDOUT_FILENO) && !(off && *off) && !(term && std::string_view(term) == "dumb");
}
bool is_terminal_stderr() { return isatty(STDERR_FILENO); }

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
