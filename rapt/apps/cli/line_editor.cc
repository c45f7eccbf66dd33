// SPDX-License-Identifier: Apache-2.0
// In this order: the history file, drawing, bytes to keys, keys to changes. The text is drawn as a whole.
#include "rapt/apps/cli/line_editor.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/stat.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <utility>

#include "rapt/base/terminal.h"
#include "rapt/base/text_width.h"

namespace rapt::cli {

// ------------------------------------------------------------------------------------------------ history
namespace {

std::string escaped(std::string_view text) {  // one line: \n and \\ as in C
  std::string out;
  for (char c : text) out += c == '\n' ? "\\n" : c == '\\' ? "\\\\" : std::string(1, c);
  return out;
}
std::string unescaped(std::string_view line) {
  std::string out;
  for (std::size_t i = 0; i < line.size(); ++i) {
    const bool sign = line[i] == '\\' && i + 1 < line.size();
    if (sign) ++i;
    out += sign && line[i] == 'n' ? '\n' : line[i];
  }
  return out;
}

void write_private(const std::string& path, std::string_view text, int how) {
  const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW | how, 0600);
  if (file < 0) return;
  // A full disk costs the last text only.
  [[maybe_unused]] const ssize_t n = ::write(file, text.data(), text.size());
  ::close(file);
}

}  // namespace

std::string History::default_path() {
  const auto of = [](const char* name) {
    const char* value = std::getenv(name);
    return std::string(value ? value : "");
  };
  if (const std::string own = of("RAPT_HISTORY"); !own.empty()) return own == "off" ? "" : own;
  if (const std::string state = of("XDG_STATE_HOME"); !state.empty()) return state + "/rapt/history";
  const std::string home = of("HOME");
  return home.empty() ? "" : home + "/.local/state/rapt/history";
}

History::History(std::string path) : path_(std::move(path)) {
  if (path_.empty()) return;
  std::error_code ignored;
  if (const auto folder = std::filesystem::path(path_).parent_path(); !folder.empty())
    std::filesystem::create_directories(folder, ignored);
  if (std::filesystem::exists(path_, ignored) && !std::filesystem::is_regular_file(path_, ignored)) {
    path_.clear();
    return;
  }
  std::ifstream in(path_);
  // No memory for a line is not the end of the file, which is written anew below.
  in.exceptions(std::ios::badbit);
  for (std::string line; std::getline(in, line);) texts_.push_back(unescaped(line));
  if (texts_.size() <= kMost) return;
  texts_.erase(texts_.begin(), texts_.end() - kMost);
  std::string kept;
  for (const std::string& t : texts_) kept += escaped(t) + "\n";
  write_private(path_, kept, O_TRUNC);
}

void History::add(const std::string& text) {
  if (text.find_first_not_of(" \t\n") == std::string::npos || (!texts_.empty() && texts_.back() == text))
    return;
  texts_.push_back(text);
  if (texts_.size() > kMost) texts_.erase(texts_.begin());
  constexpr std::size_t kLongest = 1 << 16;  // a pasted book is remembered in this session only
  if (!path_.empty() && text.size() <= kLongest) write_private(path_, escaped(text) + "\n", O_APPEND);
}

// --------------------------------------------------------------------------------------------- the terminal
namespace {

int resized[2] = {-1, -1};  // a pipe: a signal that came just before poll() is not lost
struct sigaction before_resize;

constexpr std::string_view kMore = "... ";  // before the second and later lines of a text

bool continues(char c) { return (static_cast<unsigned char>(c) & 0xC0) == 0x80; }

// A text as rows of the screen. Rows that go on without a line end are left to the terminal to wrap, so that
// it can reflow them.
struct Layout {
  std::vector<std::string> rows;
  std::vector<bool> wrapped;  // this row goes on from the one before
  std::size_t row = 0, column = 0;
};

Layout lay_out(std::string_view prompt, std::string_view text, std::size_t at, Dim width) {
  Layout l{{std::string(prompt)}, {false}};
  Dim column = text_width(prompt);
  auto next = [&](bool wrapped) {
    l.rows.emplace_back(wrapped ? "" : kMore);
    l.wrapped.push_back(wrapped);
    column = wrapped ? 0 : static_cast<Dim>(kMore.size());
  };
  auto mark = [&](std::size_t i) {
    if (i == at) l.row = l.rows.size() - 1, l.column = static_cast<std::size_t>(std::min(column, width - 1));
  };
  for (std::size_t i = 0; i < text.size();) {
    const Utf8Char c = read_utf8(text, i);
    if (c.code == '\n') {
      mark(i);
      next(false);
    } else if (c.code == '\t') {
      for (int k = 0; k < 4; ++k) {
        if (column + 1 > width) next(true);
        if (k == 0) mark(i);
        l.rows.back() += ' ', ++column;
      }
    } else {
      const bool control = c.code < 0x20 || (c.code >= 0x7F && c.code < 0xA0);
      const std::string_view shown = !c.valid  ? "\xEF\xBF\xBD"
                                     : control ? "\xC2\xB7"
                                               : text.substr(i, c.length);
      const Dim w = control ? 1 : char_width(c.code);
      if (column + w > width) next(true);
      mark(i);
      l.rows.back() += shown, column += w;
    }
    i += c.length;
  }
  if (column >= width) next(true);  // the cursor needs a place
  mark(text.size());
  return l;
}

}  // namespace

struct LineEditor::Raw {  // as long as a text is edited: keys as they come, pastes marked, sizes followed
  LineEditor& editor;
  termios before{};
  explicit Raw(LineEditor& e) : editor(e) {
    tcgetattr(editor.in_, &before);
    if (resized[0] < 0 && ::pipe(resized) == 0)
      for (int end : resized) ::fcntl(end, F_SETFL, O_NONBLOCK), ::fcntl(end, F_SETFD, FD_CLOEXEC);
    struct sigaction action{};
    action.sa_handler = [](int) {
      const int saved = errno;
      [[maybe_unused]] const ssize_t ignored = ::write(resized[1], "", 1);
      errno = saved;
    };
    action.sa_flags = SA_RESTART;
    sigaction(SIGWINCH, &action, &before_resize);
    begin();
  }
  ~Raw() {
    end();
    sigaction(SIGWINCH, &before_resize, nullptr);
  }
  void begin() const {
    termios raw = before;
    raw.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO | ISIG | IEXTEN);
    raw.c_iflag &= ~static_cast<tcflag_t>(IXON | ICRNL | INLCR);
    raw.c_cc[VMIN] = 1;
    raw.c_cc[VTIME] = 0;
    tcsetattr(editor.in_, TCSADRAIN, &raw);
    editor.put("\033[?2004h");
  }
  void end() const {
    editor.put("\033[?2004l");
    tcsetattr(editor.in_, TCSADRAIN, &before);
  }
  void suspend() const {
    editor.leave();
    end();
    ::raise(SIGTSTP);  // returns when the shell brings the program back
    begin();
  }
};

LineEditor::LineEditor(std::string history_path, int in, int out)
    : in_(in), out_(out), history_(std::move(history_path)) {}

void LineEditor::put(std::string_view text) const {
  while (!text.empty()) {
    const ssize_t n = ::write(out_, text.data(), text.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return;
    text.remove_prefix(static_cast<std::size_t>(n));
  }
}

bool LineEditor::input_waits() const {
  pollfd p{in_, POLLIN, 0};
  return unread_ >= 0 || ::poll(&p, 1, 0) > 0;
}

int LineEditor::next_byte(int wait_ms) {
  if (unread_ >= 0) return std::exchange(unread_, -1);
  while (true) {
    pollfd p[2] = {{in_, POLLIN, 0}, {resized[0], POLLIN, 0}};
    const int n = ::poll(p, 2, wait_ms);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return -1;
    if (n == 0) return -2;
    if (p[1].revents & POLLIN) {
      char sink[64];
      while (::read(resized[0], sink, sizeof sink) > 0) {}
      draw();
      continue;
    }
    unsigned char c = 0;
    const ssize_t got = ::read(in_, &c, 1);
    if (got == 1) return c;
    if (got == 0 || errno != EINTR) return -1;
  }
}

void LineEditor::draw() {
  const TerminalSize size = terminal_size(out_);
  const Dim width = std::max<Dim>(8, size.columns);
  const Layout l = lay_out(prompt_, text_, at_, width);
  // Terminals reflow what they show: in another width the text that stands there takes other rows.
  if (drawn_width_ != 0 && drawn_width_ != width)
    drawn_row_ = lay_out(drawn_prompt_, drawn_text_, drawn_at_, width).row;
  const std::size_t height = static_cast<std::size_t>(std::max<Dim>(1, size.rows));
  std::size_t first = 0, last = l.rows.size();
  if (last > height) {  // more than the screen holds: the rows around the cursor
    first = std::min(l.row > height / 2 ? l.row - height / 2 : 0, last - height);
    last = first + height;
  }
  std::string out = drawn_row_ > 0 ? concat("\033[", std::min(drawn_row_, height - 1), "A") : "";
  out += "\r\033[J";
  for (std::size_t r = first; r < last; ++r) {
    if (r > first && !l.wrapped[r]) out += "\r\n";
    // A full row wraps only when something follows.
    if (r > first && l.wrapped[r] && l.rows[r].empty()) out += " \r\033[K";
    out += l.rows[r];
  }
  if (last - 1 > l.row) out += concat("\033[", last - 1 - l.row, "A");
  out += '\r';
  if (l.column > 0) out += concat("\033[", l.column, "C");
  put(out);
  drawn_row_ = l.row - first;
  drawn_prompt_ = prompt_, drawn_text_ = text_, drawn_at_ = at_, drawn_width_ = width;
}

void LineEditor::leave(std::string_view sign) {
  at_ = text_.size();
  draw();
  put(concat(sign, "\r\n"));
  drawn_row_ = 0, drawn_width_ = 0;
}

// ------------------------------------------------------------------------------------------------ keys
// clang-format off
enum class LineEditor::Key {
  none, text, paste, newline, enter, interrupt, end_of_input, closed,
  left, right, word_left, word_right, home, end, up, down,
  erase_left, erase_right, erase_word_left, erase_word_right, kill_rest, kill_start, yank,
  clear_screen, search, cancel, suspend
};
// clang-format on

LineEditor::Key LineEditor::read_key() {
  const int c = next_byte();
  switch (c) {
    case -1: return Key::closed;
    case 1: return Key::home;
    case 2: return Key::left;
    case 3: return Key::interrupt;
    case 4: return Key::end_of_input;
    case 5: return Key::end;
    case 6: return Key::right;
    case 7: return Key::cancel;
    case 8:
    case 127: return Key::erase_left;
    case 10:
    case 13: return Key::enter;
    case 11: return Key::kill_rest;
    case 12: return Key::clear_screen;
    case 14: return Key::down;
    case 16: return Key::up;
    case 18: return Key::search;
    case 21: return Key::kill_start;
    case 23: return Key::erase_word_left;
    case 25: return Key::yank;
    case 26: return Key::suspend;
    case 27: return escape_key();
    default: break;
  }
  if (c < 32 && c != '\t') return Key::none;
  typed_ = static_cast<char>(c);
  // The rest of a character comes with it.
  for (int more = c >= 0xF0 ? 3 : c >= 0xE0 ? 2 : c >= 0xC0 ? 1 : 0; more > 0; --more) {
    const int b = next_byte();
    if (b < 0) return Key::closed;
    if (!continues(static_cast<char>(b))) {
      unread_ = b;
      break;
    }
    typed_ += static_cast<char>(b);
  }
  return Key::text;
}

// Behind ESC:  '[' numbers with ';' between, one final byte  |  'O' the same, one letter
// |  a letter typed with Alt. The second number is 1 + (1 Shift, 2 Alt, 4 Ctrl). ESC with nothing behind it
// is the key of that name.
LineEditor::Key LineEditor::escape_key() {
  constexpr int kWait = 50;  // ms; the bytes of one key come together, also over a network
  int c = next_byte(kWait);
  bool alt = false;
  if (c == 27) alt = true, c = next_byte(kWait);  // some terminals put Alt before the whole sequence
  if (c == -1) return Key::closed;
  if (c == -2) return Key::cancel;
  if (c != '[' && c != 'O') {
    switch (c) {
      case 'b':
      case 'B': return Key::word_left;
      case 'f':
      case 'F': return Key::word_right;
      case 'd':
      case 'D': return Key::erase_word_right;
      case 8:
      case 127: return Key::erase_word_left;
      case 10:
      case 13: return Key::newline;
      default: return Key::none;
    }
  }
  const bool application = c == 'O';
  int numbers[2] = {0, 0}, n = 0;
  while (true) {
    c = next_byte(kWait);
    if (c == -1) return Key::closed;
    if (c < 0) return Key::none;
    if (c >= '0' && c <= '9')
      numbers[std::min(n, 1)] = std::min(numbers[std::min(n, 1)] * 10 + (c - '0'), 9999);
    else if (c == ';') ++n;
    else if (c >= 0x40 && c <= 0x7E) break;
    else if (c < 0x20 || c > 0x7E) return Key::none;
  }
  const int held = std::max(n > 0 ? numbers[1] : c != '~' ? numbers[0] : 0, 1) - 1;
  const bool word = alt || (held & 6) != 0;
  // rxvt's Ctrl
  if (application && (c == 'd' || c == 'c')) return c == 'd' ? Key::word_left : Key::word_right;
  if (c == 'A') return Key::up;
  if (c == 'B') return Key::down;
  if (c == 'C') return word ? Key::word_right : Key::right;
  if (c == 'D') return word ? Key::word_left : Key::left;
  if (c == 'H') return Key::home;
  if (c == 'F') return Key::end;
  if (c == 'M' && application) return Key::enter;  // of the number pad
  if (c == 'u' && numbers[0] == 13) return held > 0 ? Key::newline : Key::enter;
  if (c != '~') return Key::none;
  switch (numbers[0]) {
    case 1:
    case 7: return Key::home;
    case 4:
    case 8: return Key::end;
    case 3: return word ? Key::erase_word_right : Key::erase_right;
    case 200: typed_ = read_paste(); return Key::paste;
    default: return Key::none;
  }
}

std::string LineEditor::read_paste() {
  constexpr std::string_view kEnd = "\033[201~";
  std::string raw;
  while (!raw.ends_with(kEnd)) {
    const int c = next_byte();
    if (c < 0 || c == 3) break;  // Ctrl-C: a terminal that never ends its paste
    raw += static_cast<char>(c);
  }
  if (raw.ends_with(kEnd)) raw.resize(raw.size() - kEnd.size());
  std::string text;
  for (std::size_t i = 0; i < raw.size(); ++i) {
    if (raw[i] == '\r' && i + 1 < raw.size() && raw[i + 1] == '\n') continue;
    const char c = raw[i] == '\r' ? '\n' : raw[i];
    if (static_cast<unsigned char>(c) >= 32 || c == '\n' || c == '\t') text += c;
  }
  while (text.ends_with('\n')) text.pop_back();
  return text;
}

// ------------------------------------------------------------------------------------------------ editing
namespace {

// One step of the cursor: a character with the marks that stand on it.
std::size_t before(const std::string& text, std::size_t at) {
  while (at > 0) {
    do --at;
    while (at > 0 && continues(text[at]));
    if (char_width(read_utf8(text, at).code) > 0) break;
  }
  return at;
}
std::size_t after(const std::string& text, std::size_t at) {
  if (at < text.size()) at += read_utf8(text, at).length;
  while (at < text.size() && char_width(read_utf8(text, at).code) == 0) at += read_utf8(text, at).length;
  return at;
}

bool blank(char c) { return c == ' ' || c == '\n' || c == '\t'; }
// Words are what stands between blanks, as for Ctrl-W; a wide character is a word.
std::size_t word_before(const std::string& text, std::size_t at) {
  while (at > 0 && blank(text[at - 1])) --at;
  const std::size_t from = at;
  while (at > 0 && !blank(text[at - 1])) {
    const std::size_t one = before(text, at);
    if (char_width(read_utf8(text, one).code) == 2) return at == from ? one : at;
    at = one;
  }
  return at;
}
std::size_t word_after(const std::string& text, std::size_t at) {
  while (at < text.size() && blank(text[at])) ++at;
  const std::size_t from = at;
  while (at < text.size() && !blank(text[at])) {
    if (char_width(read_utf8(text, at).code) == 2) return at == from ? after(text, at) : at;
    at = after(text, at);
  }
  return at;
}

std::size_t line_begin(const std::string& text, std::size_t at) {
  const std::size_t end = at == 0 ? std::string::npos : text.rfind('\n', at - 1);
  return end == std::string::npos ? 0 : end + 1;
}
std::size_t line_end(const std::string& text, std::size_t at) {
  return std::min(text.find('\n', at), text.size());
}

}  // namespace

void LineEditor::insert(std::string_view text) {
  text_.insert(at_, text);
  at_ += text.size();
}

void LineEditor::erase(std::size_t from, std::size_t to, bool keep) {
  if (keep && to > from) killed_ = text_.substr(from, to - from);
  text_.erase(from, to - from);
  at_ = from;
}

void LineEditor::recall(std::size_t place) {
  if (place_ == history_.all().size()) draft_ = text_;
  place_ = place;
  text_ = place_ == history_.all().size() ? draft_ : history_.all()[place_];
  at_ = text_.size();
}

bool LineEditor::apply(Key key) {
  const std::size_t begin = line_begin(text_, at_), end = line_end(text_, at_);
  switch (key) {
    case Key::text:
    case Key::paste: insert(typed_); return true;
    case Key::newline: insert("\n"); return true;
    case Key::left: at_ = before(text_, at_); return true;
    case Key::right: at_ = after(text_, at_); return true;
    case Key::word_left: at_ = word_before(text_, at_); return true;
    case Key::word_right: at_ = word_after(text_, at_); return true;
    case Key::home: at_ = begin; return true;
    case Key::end: at_ = end; return true;
    case Key::erase_left: erase(before(text_, at_), at_, false); return true;
    case Key::erase_right: erase(at_, after(text_, at_), false); return true;
    case Key::erase_word_left: erase(word_before(text_, at_), at_, true); return true;
    case Key::erase_word_right: erase(at_, word_after(text_, at_), true); return true;
    case Key::kill_rest: erase(at_, end, true); return true;
    case Key::kill_start: erase(begin, at_, true); return true;
    case Key::yank: insert(killed_); return true;
    case Key::up:  // a line of this text, then earlier texts
      if (begin > 0) at_ = std::min(line_begin(text_, begin - 1) + (at_ - begin), begin - 1);
      else if (place_ > 0) recall(place_ - 1);
      break;
    case Key::down:
      if (end < text_.size()) at_ = std::min(end + 1 + (at_ - begin), line_end(text_, end + 1));
      else if (place_ < history_.all().size()) recall(place_ + 1);
      break;
    case Key::clear_screen:
      put("\033[H\033[2J");
      drawn_row_ = 0, drawn_width_ = 0;
      return true;
    default: return false;
  }
  while (at_ < text_.size() && continues(text_[at_])) ++at_;  // lines above and below count bytes
  return true;
}

LineEditor::Key LineEditor::search() {
  const std::string prompt = prompt_, text = text_;
  const std::vector<std::string>& all = history_.all();
  std::string query;
  std::size_t found = all.size();
  auto find = [&](std::size_t from) {  // the newest before `from`; stays where there is none
    for (std::size_t i = from; i-- > 0;)
      if (const std::size_t at = all[i].find(query); at != std::string::npos) {
        found = i, text_ = all[i], at_ = at;
        return;
      }
  };
  while (true) {
    prompt_ = concat("(search: ", query, ") ");
    draw();
    const Key key = read_key();
    if (key == Key::text && typed_ != "\t") query += typed_, find(std::min(found + 1, all.size()));
    else if (key == Key::erase_left) query.resize(before(query, query.size())), find(all.size());
    else if (key == Key::search) find(found);
    else {
      prompt_ = prompt;
      if (key == Key::cancel || key == Key::interrupt) {
        text_ = text, at_ = text.size();
        return Key::none;
      }
      if (found < all.size()) place_ = found, draft_ = text;
      return key;
    }
  }
}

std::optional<std::string> LineEditor::edit() {
  const Raw raw(*this);
  text_.clear(), draft_.clear();
  at_ = drawn_row_ = 0, drawn_width_ = 0;
  place_ = history_.all().size();
  draw();
  while (true) {
    Key key = read_key();
    if (key == Key::search) key = search();
    if (key == Key::enter || key == Key::closed || (key == Key::end_of_input && text_.empty())) {
      leave();
      return key == Key::enter ? std::optional(text_) : std::nullopt;
    }
    if (key == Key::interrupt) {
      leave("^C");
      interrupted_ = true;
      return std::string{};
    }
    if (key == Key::suspend) raw.suspend();
    else if (key == Key::end_of_input) apply(Key::erase_right);
    else apply(key);
    if (!input_waits()) draw();  // a text that comes faster than it can be drawn is drawn once
  }
}

std::optional<std::string> LineEditor::read(const std::string& prompt) {
  interrupted_ = false;
  if (has_escapes(in_) && has_escapes(out_)) {
    prompt_ = prompt;
    std::optional<std::string> text = edit();
    if (text) history_.add(*text);
    return text;
  }
  if (is_terminal(in_)) put(prompt);
  std::string line;
  while (true) {
    char c = 0;
    const ssize_t n = ::read(in_, &c, 1);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return line.empty() ? std::nullopt : std::optional(line);
    if (c == '\n') return line;
    line += c;
  }
}

}  // namespace rapt::cli
