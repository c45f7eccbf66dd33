// SPDX-License-Identifier: Apache-2.0
// A small terminal for tests: what a program that believes in one has put on its screen. Wraps at the edge
// as terminals do (a full row wraps when the next character comes), knows wide characters, scrolls, and
// reflows its rows when it gets another width.
#pragma once
#include <fcntl.h>
#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "rapt/base/text_width.h"

namespace rapt::test {

class Screen {
 public:
  Screen(int width, int height) : width_(width), height_(height), rows_(1) {}

  void feed(std::string_view bytes) {
    input_ += bytes;
    std::size_t i = 0;
    while (i < input_.size()) {
      const std::size_t used = one(std::string_view(input_).substr(i));
      if (used == 0) break;  // half a character or sequence
      i += used;
    }
    input_.erase(0, i);
  }

  // Rows from the first ever written to the last that holds something; what scrolled away is still here.
  std::vector<std::string> rows() const {
    std::vector<std::string> out;
    for (const Row& r : rows_) {
      std::string text;
      for (const std::string& c : r.cells) text += c == kFiller ? " " : c;
      text.erase(text.find_last_not_of(' ') + 1);
      out.push_back(text);
    }
    while (!out.empty() && out.back().empty()) out.pop_back();
    return out;
  }
  std::string text() const {
    std::string out;
    for (const std::string& r : rows()) out += r + "\n";
    return out;
  }
  int row() const { return row_; }
  int column() const { return column_; }

  void resize(int width, int height) {
    std::vector<Row> lines;  // without the ends that the width made
    int line = 0, place = 0;
    for (int r = 0; r < static_cast<int>(rows_.size()); ++r) {
      Row& from = rows_[static_cast<std::size_t>(r)];
      if (!from.wrapped || lines.empty()) lines.emplace_back();
      if (r == row_)
        line = static_cast<int>(lines.size()) - 1,
        place = static_cast<int>(lines.back().cells.size()) + column_ + pending_;
      const bool goes_on =
          r + 1 < static_cast<int>(rows_.size()) && rows_[static_cast<std::size_t>(r) + 1].wrapped;
      std::erase(from.cells, kFiller);
      if (goes_on) from.cells.resize(std::max<std::size_t>(from.cells.size(), 1));
      lines.back().cells.insert(lines.back().cells.end(), from.cells.begin(), from.cells.end());
    }
    width_ = width, height_ = height, pending_ = false;
    rows_.clear();
    for (int l = 0; l < static_cast<int>(lines.size()); ++l) {
      const std::vector<std::string>& cells = lines[static_cast<std::size_t>(l)].cells;
      rows_.emplace_back();
      if (l == line) row_ = static_cast<int>(rows_.size()) - 1, column_ = std::min(place, width_ - 1);
      for (int c = 0; c < static_cast<int>(cells.size()); ++c) {
        const bool wide = c + 1 < static_cast<int>(cells.size()) &&
                          cells[static_cast<std::size_t>(c) + 1].empty() &&
                          !cells[static_cast<std::size_t>(c)].empty();
        if (static_cast<int>(rows_.back().cells.size()) + (wide ? 2 : 1) > width_) {
          rows_.emplace_back();
          rows_.back().wrapped = true;
        }
        rows_.back().cells.push_back(cells[static_cast<std::size_t>(c)]);
        if (l == line && c + 1 == place)
          row_ = static_cast<int>(rows_.size()) - 1,
          column_ = std::min<int>(static_cast<int>(rows_.back().cells.size()), width_ - 1);
      }
    }
  }

 private:
  struct Row {
    std::vector<std::string> cells;
    bool wrapped = false;
  };
  inline static const std::string kFiller = "\x01";  // where a wide character found no room

  int top() const { return std::max(0, static_cast<int>(rows_.size()) - height_); }
  Row& here() {
    while (static_cast<int>(rows_.size()) <= row_) rows_.emplace_back();
    return rows_[static_cast<std::size_t>(row_)];
  }
  void down(bool wrapped) {
    ++row_;
    Row& r = here();
    if (wrapped) r.wrapped = true;
    pending_ = false;
  }

  std::size_t one(std::string_view s) {
    if (s[0] == '\033') return escape(s);
    if (s[0] == '\r') return column_ = 0, pending_ = false, 1;
    if (s[0] == '\n') return down(false), 1;
    if (s[0] == '\b') return column_ = std::max(0, column_ - 1), pending_ = false, 1;
    if (s[0] == '\a') return 1;
    const auto lead = static_cast<unsigned char>(s[0]);
    if (s.size() < (lead >= 0xF0 ? 4u : lead >= 0xE0 ? 3u : lead >= 0xC0 ? 2u : 1u)) return 0;
    const Utf8Char c = read_utf8(s, 0);
    const int w = char_width(c.code);
    if (w == 0) {
      if (!here().cells.empty())
        here().cells[std::min<std::size_t>(here().cells.size(),
                                           static_cast<std::size_t>(std::max(1, column_))) -
                     1] += s.substr(0, c.length);
      return c.length;
    }
    if (pending_ || column_ + w > width_) {
      here().cells.resize(static_cast<std::size_t>(width_),
                          column_ + w > width_ && !pending_ ? kFiller : " ");
      down(true), column_ = 0;
    }
    std::vector<std::string>& cells = here().cells;
    if (static_cast<int>(cells.size()) < column_ + w)
      cells.resize(static_cast<std::size_t>(column_ + w), " ");
    cells[static_cast<std::size_t>(column_)] = s.substr(0, c.length);
    if (w == 2) cells[static_cast<std::size_t>(column_) + 1] = "";
    column_ += w;
    if (column_ >= width_) column_ = width_ - 1, pending_ = true;
    return c.length;
  }

  std::size_t escape(std::string_view s) {
    if (s.size() < 2) return 0;
    if (s[1] != '[') return 2;
    std::size_t i = 2;
    while (i < s.size() && (s[i] < 0x40 || s[i] > 0x7E)) ++i;
    if (i == s.size()) return 0;
    const int n = std::max(1, std::atoi(std::string(s.substr(2, i - 2)).c_str()));
    if (s[i] != 'm' && s[i] != 'h' && s[i] != 'l') pending_ = false;
    switch (s[i]) {
      case 'A': row_ = std::max(top(), row_ - n); break;
      case 'B': row_ = std::min(top() + height_ - 1, row_ + n), here(); break;
      case 'C': column_ = std::min(width_ - 1, column_ + n); break;
      case 'D': column_ = std::max(0, column_ - n); break;
      case 'H': row_ = top(), column_ = 0; break;
      case 'J':
        if (s.substr(2, i - 2) == "2") {
          for (int r = top(); r < static_cast<int>(rows_.size()); ++r)
            rows_[static_cast<std::size_t>(r)] = {};
          break;
        }
        rows_.resize(static_cast<std::size_t>(row_) + 1 <= rows_.size() ? static_cast<std::size_t>(row_) + 1
                                                                        : rows_.size());
        [[fallthrough]];
      case 'K':
        if (s.substr(2, i - 2) == "2") here().cells.clear();
        else if (static_cast<int>(here().cells.size()) > column_)
          here().cells.resize(static_cast<std::size_t>(column_));
        break;
      default: break;  // colours and modes
    }
    return i + 1;
  }

  int width_, height_, row_ = 0, column_ = 0;
  bool pending_ = false;
  std::vector<Row> rows_;
  std::string input_;
};

// A program, or a function, that runs behind such a screen.
class OnTerminal {
 public:
  OnTerminal(int width, int height, const std::function<void()>& child) : screen(width, height) {
    const winsize size{static_cast<unsigned short>(height), static_cast<unsigned short>(width), 0, 0};
    child_ = forkpty(&terminal_, nullptr, nullptr, &size);
    if (child_ == 0) {
      setenv("TERM", "xterm-256color", 1);
      setenv("RAPT_HISTORY", "off", 1);
      child();
      std::fflush(nullptr);
      _exit(0);
    }
  }
  ~OnTerminal() {
    ::close(terminal_);
    ::kill(child_, SIGKILL);
    ::waitpid(child_, nullptr, 0);
  }
  OnTerminal(const OnTerminal&) = delete;
  OnTerminal& operator=(const OnTerminal&) = delete;

  void type(std::string_view keys) const {
    while (!keys.empty()) {
      const ssize_t n = ::write(terminal_, keys.data(), keys.size());
      if (n <= 0) return;
      keys.remove_prefix(static_cast<std::size_t>(n));
    }
  }
  void resize(int width, int height) {
    screen.resize(width, height);
    const winsize size{static_cast<unsigned short>(height), static_cast<unsigned short>(width), 0, 0};
    ioctl(terminal_, TIOCSWINSZ, &size);
  }
  // Reads until the screen shows `words`, or the program ends; false where it never does.
  bool shows(std::string_view words) {
    return until([&] { return screen.text().find(words) != std::string::npos; });
  }
  bool until(const std::function<bool()>& done) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    while (!done()) {
      pollfd p{terminal_, POLLIN, 0};
      if (std::chrono::steady_clock::now() > end) return false;
      if (::poll(&p, 1, 1000) <= 0) continue;
      char buffer[4096];
      const ssize_t n = ::read(terminal_, buffer, sizeof buffer);
      if (n <= 0) return ended_ = true, done();
      screen.feed({buffer, static_cast<std::size_t>(n)});
    }
    return true;
  }
  bool ends() {
    until([&] { return ended_; });
    return ended_;
  }

  Screen screen;

 private:
  int terminal_ = -1;
  pid_t child_ = -1;
  bool ended_ = false;
};

}  // namespace rapt::test
