// SPDX-License-Identifier: Apache-2.0
// Args takes a flag out of the words when it is asked for; operands() refuses the flags that are left.
#include "rapt/apps/cli/verb.h"

#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
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

constexpr FlagName kFlagNames[] = {
    {"max-tokens",
     "-n",
     {"--predict", "--n-predict", "--gen", "--max-new-tokens"},
     "most tokens of an answer"},
    {"ctx-size", "-c", {"--context"}, "tokens the model sees: prompt and answer, or one window"},
    {"seed", "-s", {}, "where chance starts"},
    {"chunk", "-b", {}, "prompt tokens per pass"},
    {"beams", "", {"--beam", "--num-beams"}, "beams of a search"},
    {"temp", "", {"--temperature"}, "temperature of the choice"},
    {"mirostat-tau", "", {"--mirostat-ent"}, "target of mirostat"},
    {"mirostat-eta", "", {"--mirostat-lr"}, "rate of mirostat"},
    {"raw", "", {"--no-template"}, "no chat template"},
    {"vocab-size", "", {"--size"}, "tokens of a new vocabulary"},
    {"out", "-o", {"--save"}, "the file or folder to write"},
    {"translate", "", {"--source"}, "what to translate"},
    {"top-k", "-k", {}, "so many at most: tokens to choose from, words for a mask, classes"},
    {"prompt", "-p", {}, "prompt lengths (bench)"},
    {"depth", "-d", {}, "tokens before them (bench)"},
    {"repeat", "-r", {}, "runs (bench)"},
    {"threads", "-t", {}, "threads"},
    {"quiet", "-q", {}, "no progress, no notes"},
};

std::string dashed(std::string_view name) { return concat("--", name); }

// All spellings of a flag, its own first.
std::vector<std::string> spellings(std::string_view name) {
  std::vector<std::string> all{dashed(name)};
  for (const FlagName& f : kFlagNames) {
    if (f.name != name) continue;
    if (!f.letter.empty()) all.emplace_back(f.letter);
    for (std::string_view s : f.also)
      if (!s.empty()) all.emplace_back(s);
  }
  return all;
}

}  // namespace

std::span<const FlagName> flag_names() { return kFlagNames; }

std::string_view flag_name(std::string_view spelling) {
  for (const FlagName& f : kFlagNames)
    for (std::string_view s : f.also)
      if (!s.empty() && s.substr(2) == spelling) return f.name;
  return spelling;
}

Args::Args(std::vector<std::string> words, std::string verb)
    : verb_(std::move(verb)), words_(std::move(words)) {
  const auto end = std::find(words_.begin(), words_.end(), "--");
  if (end == words_.end()) return;
  after_.assign(end + 1, words_.end());
  words_.erase(end, words_.end());
}

void Args::refuse(const std::string& message) const {
  fail_usage(message, "\n`rapt ", verb_, " --help` shows how it is used");
}

void Args::append(std::span<const std::string> words) {
  words_.insert(words_.end(), words.begin(), words.end());
}

void Args::prepend(std::span<const std::string> words) {
  words_.insert(words_.begin(), words.begin(), words.end());
}

std::string Args::first() const { return words_.empty() || words_[0].starts_with('-') ? "" : words_[0]; }

bool Args::flag(std::string_view name) {
  flags_.push_back({std::string(name), false});
  bool given = false;
  for (const std::string& word : spellings(name)) {
    for (const std::string& w : words_)
      if (w.starts_with(word + "=")) refuse(concat(word, " takes no value; write just ", word));
    given = std::erase(words_, word) > 0 || given;
  }
  return given;
}

std::optional<std::string> Args::value(std::string_view name) {
  const std::vector<std::string> all = values(name);
  return all.empty() ? std::nullopt : std::optional(all.back());
}

std::vector<std::string> Args::values(std::string_view name) {
  flags_.push_back({std::string(name), true});
  const std::vector<std::string> names = spellings(name);
  std::vector<std::string> out;
  for (std::size_t i = 0; i < words_.size();) {
    const std::size_t equals = words_[i].find('=');
    const std::string word = words_[i].substr(0, equals);
    if (std::find(names.begin(), names.end(), word) == names.end()) {
      ++i;
      continue;
    }
    const bool joined = equals != std::string::npos;
    if (!joined && i + 1 >= words_.size()) refuse(concat(word, " needs a value: ", word, " VALUE"));
    out.push_back(joined ? words_[i].substr(equals + 1) : words_[i + 1]);
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

Args Args::probe(std::vector<std::string> words) {
  Args args(std::move(words));
  args.probe_ = true;
  return args;
}

std::vector<std::string> Args::operands() {
  if (probe_) fail("these were all flags");
  std::vector<std::string> out;
  for (const std::string& w : words_) {
    if (w.size() > 1 && w[0] == '-') {
      std::vector<std::string> names;
      for (const Flag& k : flags_) names.push_back(dashed(k.name));
      refuse(concat("unknown flag '", w, "'; ", name_hint(w.substr(0, w.find('=')), names)));
    }
    out.push_back(w);
  }
  out.insert(out.end(), after_.begin(), after_.end());
  return out;
}

std::vector<std::string> Args::operands(std::size_t least, std::size_t most, std::string_view what) {
  std::vector<std::string> out = operands();
  if (out.size() < least || out.size() > most)
    refuse(concat("wants ", what, "; got ", out.empty() ? "nothing" : join(out)));
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

namespace {
bool notes_silent = false;
}
void silence_notes() { notes_silent = true; }

void note(std::string_view text) {
  if (notes_silent && text.starts_with("note: ")) return;
  std::fflush(stdout);
  const std::string shown = visible(text);
  const std::string lines =
      is_terminal_stderr() ? folded_lines(shown, terminal_size(STDERR_FILENO).columns) : shown;
  std::fprintf(stderr, "%s%s\n", has_escapes(STDERR_FILENO) ? "\r\033[2K" : "", lines.c_str());
}

std::string visible(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto c = static_cast<unsigned char>(text[i]);
    if ((c < 0x20 && c != '\t' && c != '\n') || c == 0x7F) {
      // ␀ … ␟ and ␡ stand at U+2400 + code
      const unsigned char picture = c == 0x7F ? 0xA1 : static_cast<unsigned char>(0x80 + c);
      out += "\xE2\x90";
      out += static_cast<char>(picture);
    } else if (c == 0xC2 && i + 1 < text.size() && static_cast<unsigned char>(text[i + 1]) >= 0x80 &&
               static_cast<unsigned char>(text[i + 1]) < 0xA0) {  // U+0080 … U+009F: escapes of eight bits
      out += "\xEF\xBF\xBD";
      ++i;
    } else {
      out += text[i];
    }
  }
  return out;
}

std::string for_stdout(std::string_view text) {
  return isatty(STDOUT_FILENO) ? visible(text) : std::string(text);
}

bool color_on_stdout() {
  const char* off = std::getenv("NO_COLOR");
  return has_escapes(STDOUT_FILENO) && !(off && *off);
}
bool is_terminal_stderr() { return is_terminal(STDERR_FILENO); }
bool is_terminal_stdin() { return is_terminal(STDIN_FILENO); }
Dim columns_of_stdout() { return print_columns(STDOUT_FILENO); }

Language language_of(Args& args) {
  if (const auto name = args.value("lang")) {
    const auto found = find_language(*name);
    if (!found) fail_usage("--lang: '", *name, "' is no language that the program speaks; en and zh are");
    return *found;
  }
  for (const char* variable : {"RAPT_LANG", "LC_ALL", "LC_MESSAGES", "LANG"})
    if (const char* name = std::getenv(variable); name && *name)
      return find_language(name).value_or(Language::en);
  return Language::en;
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
      fail_usage(flag, ": '", word, "' is no ", what,
                 "; write whole numbers from 0 with spaces between them");
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
    for (Dim i = 0; i < cells; ++i)
      line += i < static_cast<Dim>(static_cast<double>(cells) * share) ? "█" : "·";
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

bool stdin_waits() {
  struct stat s{};
  if (isatty(STDIN_FILENO) || fstat(STDIN_FILENO, &s) != 0) return false;
  if (S_ISREG(s.st_mode)) return s.st_size > 0 && lseek(STDIN_FILENO, 0, SEEK_CUR) == 0;
  int bytes = 0;
  return S_ISFIFO(s.st_mode) && ioctl(STDIN_FILENO, FIONREAD, &bytes) == 0 && bytes > 0;
}

std::string read_stdin(std::size_t most) {
  std::string text;
  if (fcntl(STDIN_FILENO, F_GETFD) < 0 && errno == EBADF) return text;
  char buffer[65536];
  while (const std::size_t n = std::fread(buffer, 1, sizeof buffer, stdin)) {
    text.append(buffer, n);
    if (text.size() > most)
      fail("standard input: more than ", byte_count(static_cast<double>(most)), "; is this the right text?");
  }
  if (std::ferror(stdin)) fail("standard input: ", std::strerror(errno));
  return text;
}

}  // namespace rapt::cli
