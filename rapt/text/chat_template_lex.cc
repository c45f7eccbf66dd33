// SPDX-License-Identifier: Apache-2.0
// Text up to a tag, then the tag's tokens; white space around a tag goes or stays by its '-' and '+'.
#include "rapt/text/chat_template_lex.h"

#include <charconv>

namespace rapt::chat {
namespace {

bool is_word(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
         static_cast<unsigned char>(c) >= 0x80;
}
bool is_digit(char c) { return c >= '0' && c <= '9'; }

// From characters to tokens, with Jinja's rules of white space as transformers sets them (trim_blocks,
// lstrip_blocks).
class Lexer {
 public:
  explicit Lexer(const Source& source) : source_(source), s_(source.text) {}

  std::vector<Token> run() {
    while (at_ < s_.size()) outside();
    push(Token::Kind::end, s_.size());
    return std::move(tokens_);
  }

 private:
  void push(Token::Kind kind, std::size_t at, std::string text = {}) {
    tokens_.push_back({kind, at, std::move(text), 0, 0});
  }

  // Text up to the next tag, then the tag.
  void outside() {
    std::size_t open = at_;
    while (true) {
      open = s_.find('{', open);
      if (open == std::string::npos || open + 1 >= s_.size()) {
        push_text(at_, s_.size());
        at_ = s_.size();
        return;
      }
      if (s_[open + 1] == '{' || s_[open + 1] == '%' || s_[open + 1] == '#') break;
      ++open;
    }
    const char kind = s_[open + 1];
    const char sign = open + 2 < s_.size() ? s_[open + 2] : ' ';
    std::size_t end = open;
    if (sign == '-') {
      end = strip_end(at_, open);
    } else if (kind != '{' && sign != '+') {  // only blanks since the line began: they go
      std::size_t line = open;
      while (line > at_ && s_[line - 1] != '\n' && blank(s_[line - 1])) --line;
      if (line > at_ ? s_[line - 1] == '\n' : line_start_) end = line;
    }
    push_text(at_, end);
    at_ = open + 2;
    if (kind == '#') {
      comment(open);
      return;
    }
    if (sign == '-' || (sign == '+' && kind == '%')) ++at_;
    if (kind == '%' && raw(open)) return;
    push(kind == '{' ? Token::Kind::print_begin : Token::Kind::tag_begin, open);
    inside(kind == '{' ? '}' : '%', open);
  }

  void push_text(std::size_t from, std::size_t to) {
    if (from < to) push(Token::Kind::text, from, s_.substr(from, to - from));
  }
  static bool blank(char c) { return c == ' ' || (c >= 9 && c <= 13 && c != '\n'); }

  std::size_t strip_end(std::size_t from, std::size_t to) const {  // rstrip()
    while (to > from) {
      std::size_t start = to - 1;
      while (start > from && to - start < 4 && (static_cast<unsigned char>(s_[start]) & 0xc0) == 0x80)
        --start;
      const Character c = character(s_, start);
      if (!is_space(c.code) || start + c.bytes != to) return to;
      to = start;
    }
    return to;
  }
  void skip_spaces() {
    while (at_ < s_.size()) {
      const Character c = character(s_, at_);
      if (!is_space(c.code)) return;
      at_ += c.bytes;
    }
  }
  // After a closing mark: '-' eats all white space; a tag or comment eats one newline, unless '+'.
  void after_close(char sign, bool trims) {
    if (sign == '-') skip_spaces();
    else if (sign != '+' && trims && at_ < s_.size() && s_[at_] == '\n') ++at_;
    line_start_ = s_[at_ - 1] == '\n';
  }

  void comment(std::size_t open) {
    const std::size_t close = s_.find("#}", at_);
    if (close == std::string::npos)
      source_.fail(open, "a comment begins here and never ends: '#}' is missing");
    const char sign = close > at_ && (s_[close - 1] == '-' || s_[close - 1] == '+') ? s_[close - 1] : ' ';
    at_ = close + 2;
    after_close(sign, true);
  }

  // {% raw %} … {% endraw %}: everything between is text.
  bool raw(std::size_t open) {
    std::size_t at = at_;
    const auto spaces = [&] {
      while (at < s_.size() && (blank(s_[at]) || s_[at] == '\n')) ++at;
    };
    const auto closes = [&](char& sign) {  // [-+]? "%}"
      spaces();
      sign = ' ';
      if (at < s_.size() && (s_[at] == '-' || s_[at] == '+')) sign = s_[at++];
      if (s_.compare(at, 2, "%}") != 0) return false;
      at += 2;
      return true;
    };
    spaces();
    if (s_.compare(at, 3, "raw") != 0 || (at + 3 < s_.size() && is_word(s_[at + 3]))) return false;
    at += 3;
    char sign = ' ';
    if (!closes(sign)) return false;
    at_ = at;
    after_close(sign, false);  // Jinja keeps the newline here
    for (std::size_t end = at_; (end = s_.find("{%", end)) != std::string::npos; end += 2) {
      at = end + 2;
      const char before = at < s_.size() ? s_[at] : ' ';
      if (before == '-' || before == '+') ++at;
      spaces();
      if (s_.compare(at, 6, "endraw") != 0) continue;
      at += 6;
      if (!closes(sign)) continue;
      std::size_t stop = end;
      if (before == '-') {
        stop = strip_end(at_, end);
      } else if (before != '+') {
        std::size_t line = end;
        while (line > at_ && s_[line - 1] != '\n' && blank(s_[line - 1])) --line;
        if (line > at_ ? s_[line - 1] == '\n' : line_start_) stop = line;
      }
      push_text(at_, stop);
      at_ = at;
      after_close(sign, true);
      return true;
    }
    source_.fail(open, "'raw' begins here and never ends: '{% endraw %}' is missing");
  }

  // Tokens up to "}}" or "%}" outside of brackets.
  void inside(char close, std::size_t open) {
    const char* end_mark = close == '}' ? "}}" : "%}";
    std::string brackets;
    while (true) {
      while (at_ < s_.size() && (blank(s_[at_]) || s_[at_] == '\n')) ++at_;
      if (at_ >= s_.size())
        source_.fail(open, "a tag begins here and never ends: '", end_mark, "' is missing");
      if (brackets.empty()) {
        char sign = ' ';
        std::size_t at = at_;
        if (s_[at] == '-' || (s_[at] == '+' && close == '%')) sign = s_[at++];
        if (s_.compare(at, 2, end_mark) == 0) {
          push(close == '}' ? Token::Kind::print_end : Token::Kind::tag_end, at_);
          at_ = at + 2;
          after_close(sign, close == '%');
          return;
        }
      }
      const char c = s_[at_];
      if (is_digit(c)) number();
      else if (is_word(c)) name();
      else if (c == '\'' || c == '"') string(c);
      else mark(brackets);
    }
  }

  void name() {
    const std::size_t from = at_;
    while (at_ < s_.size() && is_word(s_[at_])) ++at_;
    push(Token::Kind::name, from, s_.substr(from, at_ - from));
  }

  // 0x1F, 0o17, 0b101
  bool based_number() {
    static constexpr std::pair<char, int> kBases[] = {{'x', 16}, {'o', 8}, {'b', 2}};
    if (s_[at_] != '0' || at_ + 2 >= s_.size()) return false;
    for (const auto& [letter, base] : kBases) {
      if ((s_[at_ + 1] | 32) != letter) continue;
      const std::size_t from = at_;
      std::string digits;
      for (at_ += 2; at_ < s_.size() && is_word(s_[at_]); ++at_)
        if (s_[at_] != '_') digits += s_[at_];
      Token token{Token::Kind::integer, from, digits, 0, 0};
      const char *begin = digits.data(), *stop = begin + digits.size();
      const auto result = std::from_chars(begin, stop, token.integer, base);
      if (result.ec == std::errc::result_out_of_range)
        source_.fail(from, "the number ", shown_name(s_.substr(from, at_ - from)), " is out of range");
      if (result.ec != std::errc() || result.ptr != stop)
        source_.fail(from, "'", shown_name(s_.substr(from, at_ - from)), "' is no number");
      tokens_.push_back(std::move(token));
      return true;
    }
    return false;
  }

  void number() {
    if (based_number()) return;
    const std::size_t from = at_;
    std::string digits;
    const auto take = [&] {
      while (at_ < s_.size() &&
             (is_digit(s_[at_]) || (s_[at_] == '_' && at_ + 1 < s_.size() && is_digit(s_[at_ + 1])))) {
        if (s_[at_] != '_') digits += s_[at_];
        ++at_;
      }
    };
    take();
    bool real = false;
    if (at_ + 1 < s_.size() && s_[at_] == '.' && is_digit(s_[at_ + 1]) &&
        !(from > 0 && s_[from - 1] == '.')) {
      real = true;
      digits += s_[at_++];
      take();
    }
    if (at_ + 1 < s_.size() && (s_[at_] == 'e' || s_[at_] == 'E') &&
        (is_digit(s_[at_ + 1]) ||
         ((s_[at_ + 1] == '-' || s_[at_ + 1] == '+') && at_ + 2 < s_.size() && is_digit(s_[at_ + 2])))) {
      real = true;
      digits += s_[at_++];
      if (!is_digit(s_[at_])) digits += s_[at_++];
      take();
    }
    if (at_ < s_.size() && is_word(s_[at_]))
      source_.fail(from, "'", shown_name(s_.substr(from, at_ - from + 1)), "' is no number");
    Token token{real ? Token::Kind::real : Token::Kind::integer, from, digits, 0, 0};
    const char *begin = digits.data(), *stop = begin + digits.size();
    const auto result =
        real ? std::from_chars(begin, stop, token.real) : std::from_chars(begin, stop, token.integer);
    if (result.ec != std::errc() || result.ptr != stop)
      source_.fail(from, "the number ", digits.substr(0, 40), " is out of range");
    tokens_.push_back(std::move(token));
  }

  void string(char quote) {
    const std::size_t from = at_++;
    std::string text;
    while (true) {
      if (at_ >= s_.size()) source_.fail(from, "a string begins here and never ends: ", quote, " is missing");
      const char c = s_[at_++];
      if (c == quote) break;
      if (c == '\\' && at_ < s_.size()) escape(text, from);
      else text += c;
    }
    push(Token::Kind::string, from, std::move(text));
  }

  void escape(std::string& text, std::size_t from) {  // Python's, but for \N{…}
    const char c = s_[at_++];
    const auto hex = [&](std::size_t digits) {
      std::uint32_t code = 0;
      const char* begin = s_.data() + at_;
      if (s_.size() - at_ < digits ||
          std::from_chars(begin, begin + digits, code, 16).ptr != begin + digits || code > 0x10ffff)
        source_.fail(at_ - 2, "'\\", c, "' wants ", digits, " hexadecimal digits of a character");
      at_ += digits;
      if (code >= 0xd800 && code <= 0xdfff) source_.fail(from, "half a surrogate pair is no character");
      put_character(text, code);
    };
    switch (c) {
      case '\n': break;
      case 'n': text += '\n'; break;
      case 't': text += '\t'; break;
      case 'r': text += '\r'; break;
      case 'a': text += '\a'; break;
      case 'b': text += '\b'; break;
      case 'f': text += '\f'; break;
      case 'v': text += '\v'; break;
      case '\\':
      case '\'':
      case '"': text += c; break;
      case 'x': hex(2); break;
      case 'u': hex(4); break;
      case 'U': hex(8); break;
      default:
        if (c >= '0' && c <= '7') {
          std::uint32_t code = static_cast<std::uint32_t>(c - '0');
          for (int i = 0; i < 2 && at_ < s_.size() && s_[at_] >= '0' && s_[at_] <= '7'; ++i)
            code = code * 8 + static_cast<std::uint32_t>(s_[at_++] - '0');
          put_character(text, code);
        } else {
          (text += '\\') += c;
        }
    }
  }

  void mark(std::string& brackets) {
    static constexpr std::string_view kTwo[] = {"**", "//", "==", "!=", "<=", ">="};
    static constexpr std::string_view kOne = "+-*/%~<>=()[]{}.,:|";
    const std::size_t from = at_;
    for (std::string_view two : kTwo)
      if (s_.compare(at_, 2, two) == 0) {
        at_ += 2;
        push(Token::Kind::mark, from, std::string(two));
        return;
      }
    const char c = s_[at_];
    if (kOne.find(c) == std::string_view::npos) {
      const Character odd = character(s_, at_);
      source_.fail(at_, "'", s_.substr(at_, odd.bytes), "' means nothing here");
    }
    if (c == '(' || c == '[' || c == '{') {
      if (brackets.size() >= kParseDepth) source_.fail(at_, "brackets nested deeper than ", kParseDepth);
      brackets += c == '(' ? ')' : c == '[' ? ']' : '}';
    } else if (c == ')' || c == ']' || c == '}') {
      if (brackets.empty() || brackets.back() != c)
        source_.fail(at_, "'", c, "' closes nothing",
                     brackets.empty() ? "" : concat("; '", brackets.back(), "' is expected first"));
      brackets.pop_back();
    }
    ++at_;
    push(Token::Kind::mark, from, std::string(1, c));
  }

  const Source& source_;
  const std::string& s_;
  std::size_t at_ = 0;
  bool line_start_ = true;
  std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> lex(const Source& source) { return Lexer(source).run(); }

}  // namespace rapt::chat
