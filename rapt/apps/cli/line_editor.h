// SPDX-License-Identifier: Apache-2.0
// A text typed at a terminal, with what fingers expect: arrows and words, Home, End, Ctrl-A E B F K U W Y L,
// Alt-b f d, earlier texts by up, down and Ctrl-R, Ctrl-Z. Long lines take several rows, wide characters two
// columns, windows may change their size. A paste of several lines is one text (bracketed paste), and
// Alt-Enter begins a new line. Where there is no such terminal, lines are read as they come.
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "rapt/base/error.h"

namespace rapt::cli {

// Texts that were sent before, oldest first; in a file of mode 600 where a path is given, one line each. A
// file that cannot be read or written is no history, and no error.
class History {
 public:
  explicit History(std::string path = "");
  void add(const std::string& text);  // neither empty ones nor the same twice in a row
  const std::vector<std::string>& all() const { return texts_; }
  // RAPT_HISTORY ("off": ""), else rapt/history in XDG_STATE_HOME or ~/.local/state.
  static std::string default_path();
  static constexpr std::size_t kMost = 1000;  // texts kept

 private:
  std::string path_;
  std::vector<std::string> texts_;
};

class LineEditor {
 public:
  explicit LineEditor(std::string history_path = "", int in = 0, int out = 1);
  // Without a value at the end of input (Ctrl-D on an empty line). Ctrl-C gives an empty text.
  std::optional<std::string> read(const std::string& prompt);
  bool interrupted() const { return interrupted_; }  // Ctrl-C ended the last text

 private:
  enum class Key;
  struct Raw;

  std::optional<std::string> edit();
  bool apply(Key key);  // false: this key changes nothing here
  Key search();         // Ctrl-R; the key that ended it
  Key read_key();
  Key escape_key();
  std::string read_paste();
  int next_byte(int wait_ms = -1);  // -1: the end of input, -2: none came in time
  bool input_waits() const;
  void draw();
  void leave(std::string_view sign = "");  // the cursor goes below the text
  void put(std::string_view text) const;
  void insert(std::string_view text);
  void erase(std::size_t from, std::size_t to, bool keep);  // keep: Ctrl-Y brings it back
  void recall(std::size_t place);

  int in_, out_;
  History history_;
  // draft: what stood here before going up; typed: of Key::text and Key::paste
  std::string prompt_, text_, draft_, killed_, typed_;
  std::size_t at_ = 0, place_ = 0;  // byte of the cursor; of the history, its size: the draft
  // On the screen: the cursor's row from the first one, what was drawn, and at which width; 0: nothing.
  std::size_t drawn_row_ = 0, drawn_at_ = 0;
  std::string drawn_prompt_, drawn_text_;
  Dim drawn_width_ = 0;
  int unread_ = -1;
  bool interrupted_ = false;
};

}  // namespace rapt::cli
