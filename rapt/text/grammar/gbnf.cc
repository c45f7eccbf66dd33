// SPDX-License-Identifier: Apache-2.0
// Grammars as llama.cpp writes them (GBNF), as expressions of a builder:
//
//   grammar  = (rule | line end)*                 rule = name "::=" choice line end
//   choice   = sequence ("|" sequence)*           sequence = (item quantifier*)*
//   item     = string | class | "." | "(" choice ")" | name
//   quantifier = "*" | "+" | "?" | "{" m "}" | "{" m "," n? "}"
//   string   = '"' (character | escape)* '"'      class = "[" "^"? (character | escape | range)* "]"
//   escape   = \n \r \t \\ \" \[ \] \- \^ | \xHH | \uHHHH | \UHHHHHHHH
//
// "#" begins a comment. Blanks are free; a line may end inside brackets, behind "::=" and behind "|". The
// rule `root` is the whole text.
#include <algorithm>

#include "rapt/base/text.h"
#include "rapt/base/unicode.h"
#include "rapt/text/grammar/compile.h"

namespace rapt {
namespace {

using Node = GrammarBuilder::Node;

class GbnfParser {
 public:
  GbnfParser(GrammarBuilder& builder, std::string_view text, std::string_view where)
      : b_(builder), text_(text), where_(where) {
    if (text.size() > GrammarLimits::kSourceBytes) wrong("a grammar of more than 65,536 bytes");
  }

  void parse() {
    blanks(true);
    while (more()) {
      const std::string rule = name();
      if (rule.empty()) wrong("a rule is missing: name ::= …");
      blanks(false);
      if (!take("::=")) wrong("'::=' is missing behind '", rule, "'");
      blanks(true);
      // Rules of their own names: those of every grammar have names, too.
      b_.define(reference(rule), choice(0, false));
      if (more() && peek() != '\n' && peek() != '\r') wrong("the end of the rule '", rule, "' was expected");
      blanks(true);
    }
    bool root = false;
    for (const auto& [rule, at] : first_use_) {
      root |= rule == "root";
      if (b_.state().rules[b_.state().names.find(rule)->second].body == kUndefined)
        wrong_at(at, "the rule '", rule, "' is not defined");
    }
    if (!root) wrong("there is no rule 'root', the whole text");
  }
  Node root() { return b_.rule("root"); }

 private:
  static constexpr int kGroups = 128;  // one in the other

  template <class... Parts>
  [[noreturn]] void wrong_at(std::size_t at, const Parts&... parts) const {
    const std::string_view before = text_.substr(0, at);
    const auto line = std::count(before.begin(), before.end(), '\n') + 1;
    const std::size_t begin = before.rfind('\n') + 1;
    throw GrammarError(concat(where_, ":", line, ":", at - begin + 1, ": ", parts...));
  }
  template <class... Parts>
  [[noreturn]] void wrong(const Parts&... parts) const {
    wrong_at(std::min(at_, text_.size()), parts...);
  }
  bool more() const { return at_ < text_.size(); }
  char peek() const { return more() ? text_[at_] : '\0'; }
  bool take(std::string_view what) {
    if (!text_.substr(at_).starts_with(what)) return false;
    at_ += what.size();
    return true;
  }
  void blanks(bool lines) {
    while (more()) {
      if (peek() == '#') {
        while (more() && peek() != '\n' && peek() != '\r') ++at_;
      } else if (peek() == ' ' || peek() == '\t' || (lines && (peek() == '\n' || peek() == '\r'))) {
        ++at_;
      } else {
        return;
      }
    }
  }
  static bool in_name(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
  }
  std::string name() {
    const std::size_t begin = at_;
    while (more() && in_name(peek())) ++at_;
    return std::string(text_.substr(begin, at_ - begin));
  }
  Node reference(const std::string& rule) {
    first_use_.try_emplace(rule, at_);
    return b_.rule(rule);
  }

  Node choice(int depth, bool lines) {
    if (depth > kGroups) wrong("more than ", kGroups, " groups in one another");
    std::vector<Node> parts;
    do {
      blanks(true);
      parts.push_back(sequence(depth, lines));
    } while (take("|"));
    return b_.choice(std::move(parts));
  }

  Node sequence(int depth, bool lines) {
    std::vector<Node> parts;
    for (blanks(lines); more(); blanks(lines)) {
      const char c = peek();
      Node item;
      if (c == '"') {
        item = string();
      } else if (c == '[') {
        item = bracket();
      } else if (c == '.') {
        ++at_;
        item = b_.character({{0, kLastChar}});
      } else if (c == '(') {
        ++at_;
        item = choice(depth + 1, true);
        blanks(true);
        if (!take(")")) wrong("')' is missing");
      } else if (in_name(c)) {
        const std::size_t begin = at_;
        const std::string rule = name();
        const std::size_t end = at_;
        blanks(false);
        if (text_.substr(at_).starts_with("::=")) {  // the next rule, inside brackets that were not closed
          at_ = begin;
          break;
        }
        at_ = end;
        item = reference(rule);
      } else {
        break;
      }
      parts.push_back(quantified(item, lines));
    }
    return parts.empty() ? b_.empty() : b_.sequence(std::move(parts));
  }

  int number() {
    int n = 0;
    if (peek() < '0' || peek() > '9') wrong("a number is missing in {…}");
    for (; peek() >= '0' && peek() <= '9'; ++at_) n = std::min(n * 10 + (peek() - '0'), 1 << 20);
    if (n > GrammarLimits::kRepetition)
      wrong("at most ", GrammarLimits::kRepetition, " repetitions are possible");
    return n;
  }

  Node quantified(Node item, bool lines) {
    for (int i = 0;; ++i) {
      blanks(lines);
      int min = 0, max = -1;
      if (take("*")) {
      } else if (take("+")) {
        min = 1;
      } else if (take("?")) {
        max = 1;
      } else if (take("{")) {
        blanks(true);
        min = max = number();
        blanks(true);
        if (take(",")) {
          blanks(true);
          max = peek() == '}' ? -1 : number();
          blanks(true);
        }
        if (!take("}")) wrong("'}' is missing");
        if (max >= 0 && max < min) wrong("{", min, ",", max, "} is empty");
      } else {
        return item;
      }
      if (i > 8) wrong("too many quantifiers behind one another");
      item = b_.repeat(item, min, max);
    }
  }

  std::uint32_t hex(int digits) {
    std::uint32_t x = 0;
    for (int i = 0; i < digits; ++i, ++at_) {
      const char c = peek();
      const char low = static_cast<char>(c | 32);
      if (c >= '0' && c <= '9') x = x * 16 + static_cast<std::uint32_t>(c - '0');
      else if (low >= 'a' && low <= 'f') x = x * 16 + static_cast<std::uint32_t>(low - 'a' + 10);
      else wrong("a hexadecimal digit is missing");
    }
    return x;
  }
  std::uint32_t character() {
    if (peek() != '\\') {
      const unicode::Char c = unicode::read(text_, at_);
      if (!c.valid) wrong("broken UTF-8");
      at_ += c.length;
      return c.code;
    }
    ++at_;
    const char c = peek();
    ++at_;
    std::uint32_t x = 0;
    switch (c) {
      case 'n': return '\n';
      case 'r': return '\r';
      case 't': return '\t';
      case 'x': x = hex(2); break;
      case 'u': x = hex(4); break;
      case 'U': x = hex(8); break;
      case '\\':
      case '"':
      case '[':
      case ']':
      case '-':
      case '^': return static_cast<std::uint32_t>(c);
      default: --at_, wrong("an escape that is not known");
    }
    if (x > kLastChar || (x >= 0xD800 && x <= 0xDFFF)) wrong("no character has this number");
    return x;
  }

  Node string() {
    std::string bytes;
    for (++at_; !take("\"");) {
      if (!more() || peek() == '\n') wrong("'\"' is missing");
      unicode::append(bytes, character());
    }
    return b_.literal(bytes);
  }

  Node bracket() {
    ++at_;
    const bool negated = take("^");
    std::vector<GrammarBuilder::Range> ranges;
    while (!take("]")) {
      if (!more() || peek() == '\n') wrong("']' is missing");
      const std::uint32_t first = character();
      std::uint32_t last = first;
      if (peek() == '-' && at_ + 1 < text_.size() && text_[at_ + 1] != ']') {
        ++at_;
        last = character();
        if (last < first) wrong("a range whose end is before its beginning");
      }
      ranges.push_back({first, last});
    }
    return b_.character(std::move(ranges), negated);
  }

  GrammarBuilder& b_;
  std::string_view text_;
  std::string where_;
  std::size_t at_ = 0;
  std::map<std::string, std::size_t> first_use_;
};

}  // namespace

std::shared_ptr<const Grammar> grammar_from_gbnf(std::string_view text, std::string_view where) {
  GrammarBuilder b;
  GbnfParser parser(b, text, where);
  parser.parse();
  try {
    return b.build(parser.root());
  } catch (const GrammarError& e) {
    throw GrammarError(concat(where, ": ", e.what()));
  }
}

}  // namespace rapt
