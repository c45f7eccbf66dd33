// SPDX-License-Identifier: Apache-2.0
#include "rapt/apps/cli/line_editor.h"

#include <termios.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <string_view>

#include "rapt/apps/cli/verb.h"
#include "rapt/base/text.h"

namespace rapt::cli {
namespace {

struct RawTerminal {  // as long as a line is edited
  termios before;
  RawTerminal() {
    tcgetattr(STDIN_FILENO, &before);
    termios raw = before;
    raw.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO | ISIG | IEXTEN);
    raw.c_iflag &= ~static_cast<tcflag_t>(IXON | ICRNL);
    raw.c_cc[VMIN] = 1;
    raw.c_cc[VTIME] = 0;
    tcsetattr(STDIN_FILENO, TCSADRAIN, &raw);
  }
  ~RawTerminal() { tcsetattr(STDIN_FILENO, TCSADRAIN, &before); }
};

int next_byte() {
  unsigned char c = 0;
  while (true) {
    const ssize_t n = ::read(STDIN_FILENO, &c, 1);
    if (n == 1) return c;
    if (n == 0 || errno != EINTR) return -1;
  }
}

bool continues(char c) { return (static_cast<unsigned char>(c) & 0xC0) == 0x80; }

void put(std::string_view text) {
  while (!text.empty()) {
    const ssize_t n = ::write(STDOUT_FILENO, text.data(), text.size());
    if (n <= 0) return;
    text.remove_prefix(static_cast<std::size_t>(n));
  }
}

}  // namespace

std::optional<std::string> LineEditor::read(const std::string& prompt) {
  flush();
  if (is_terminal_stdin()) {
    std::optional<std::string> line = edit(prompt);
    if (line && !line->empty() && (history_.empty() || history_.back() != *line)) history_.push_back(*line);
    return line;
  }
  std::string line;
  for (int c; (c = std::getc(stdin)) != EOF;) {
    if (c == '\n') return line;
    line += static_cast<char>(c);
  }
  return line.empty() ? std::nullopt : std::optional(line);
}

std::optional<std::string> LineEditor::edit(const std::string& prompt) {
  const RawTerminal raw;
  std::string line, draft;
  std::size_t at = 0, place = history_.size();
  auto draw = [&] {
    std::string out = "\r\033[K" + prompt + line;
    const Dim back = columns(std::string_view(line).substr(at));
    if (back > 0) out += concat("\033[", back, "D");
    put(out);
  };
  auto left = [&] {
    if (at == 0) return;
    do --at;
    while (at > 0 && continues(line[at]));
  };
  auto right = [&] {
    if (at == line.size()) return;
    do ++at;
    while (at < line.size() && continues(line[at]));
  };
  auto erase_left = [&](std::size_t from) {
    line.erase(from, at - from);
    at = from;
  };
  auto recall = [&](std::size_t to) {
    if (place == history_.size()) draft = line;
    place = to;
    line = place == history_.size() ? draft : history_[place];
    at = line.size();
  };
  draw();
  while (true) {
    const int c = next_byte();
    if (c < 0) return std::nullopt;
    if (c == '\r' || c == '\n') {
      put("\n");
      return line;
    }
    if (c == 3) {  // Ctrl-C
      put("^C\n");
      return std::string{};
    }
    if (c == 4) {  // Ctrl-D: the end on an empty line, else delete
      if (line.empty()) {
        put("\n");
        return std::nullopt;
      }
      const std::size_t from = at;
      right();
      erase_left(from);
    } else if (c == 1) {
      at = 0;
    } else if (c == 5) {
      at = line.size();
    } else if (c == 11) {  // Ctrl-K
      line.resize(at);
    } else if (c == 21) {  // Ctrl-U
      erase_left(0);
    } else if (c == 23) {  // Ctrl-W: the word before
      std::size_t from = at;
      while (from > 0 && line[from - 1] == ' ') --from;
      while (from > 0 && line[from - 1] != ' ') --from;
      erase_left(from);
    } else if (c == 127 || c == 8) {
      const std::size_t end = at;
      left();
      line.erase(at, end - at);
    } else if (c == 27) {
      const int kind = next_byte();
      if (kind != '[' && kind != 'O') continue;
      int key = next_byte(), number = 0;
      while (key >= '0' && key <= '9') number = number * 10 + (key - '0'), key = next_byte();
      if (key == 'A' && place > 0) recall(place - 1);
      else if (key == 'B' && place < history_.size()) recall(place + 1);
      else if (key == 'C') right();
      else if (key == 'D') left();
      else if (key == 'H' || (key == '~' && (number == 1 || number == 7))) at = 0;
      else if (key == 'F' || (key == '~' && (number == 4 || number == 8))) at = line.size();
      else if (key == '~' && number == 3) {
        const std::size_t from = at;
        right();
        erase_left(from);
      }
    } else if (c >= 32 || c == '\t') {
      line.insert(at++, 1, static_cast<char>(c));
      int more = c >= 0xF0 ? 3 : c >= 0xE0 ? 2 : c >= 0xC0 ? 1 : 0;  // the rest of a character comes with it
      while (more-- > 0) {
        const int b = next_byte();
        if (b < 0) return std::nullopt;
        line.insert(at++, 1, static_cast<char>(b));
      }
    }
    draw();
  }
}

}  // namespace rapt::cli
