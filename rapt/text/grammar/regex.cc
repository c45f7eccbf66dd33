// SPDX-License-Identifier: Apache-2.0
// Pattern → tree → NFA → DFA.
#include "rapt/text/grammar/regex.h"

#include <algorithm>
#include <map>
#include <mutex>

#include "rapt/base/unicode.h"

namespace rapt {
namespace {

constexpr int kGroups = 128;  // one in the other

struct Expression {
  enum class Kind : std::uint8_t { empty, set, sequence, choice, repeat, begin, end };
  Kind kind = Kind::empty;
  CharSet set = {};
  std::vector<Expression> parts = {};
  int min = 0, max = 0;
};

// Characters of a general category, by its short or long name: made when first asked for.
const CharSet* category_set(const std::string& name) {
  struct Names {
    std::string_view brief, full;
    unicode::Category first, last;
  };
  using enum unicode::Category;
  static constexpr Names kNames[] = {{"L", "Letter", Lu, Lo},
                                     {"Lu", "Uppercase_Letter", Lu, Lu},
                                     {"Ll", "Lowercase_Letter", Ll, Ll},
                                     {"Lt", "Titlecase_Letter", Lt, Lt},
                                     {"Lm", "Modifier_Letter", Lm, Lm},
                                     {"Lo", "Other_Letter", Lo, Lo},
                                     {"M", "Mark", Mn, Me},
                                     {"N", "Number", Nd, No},
                                     {"Nd", "Decimal_Number", Nd, Nd},
                                     {"Nl", "Letter_Number", Nl, Nl},
                                     {"No", "Other_Number", No, No},
                                     {"P", "Punctuation", Pc, Po},
                                     {"Pd", "Dash_Punctuation", Pd, Pd},
                                     {"S", "Symbol", Sm, So},
                                     {"Sc", "Currency_Symbol", Sc, Sc},
                                     {"Z", "Separator", Zs, Zp},
                                     {"Zs", "Space_Separator", Zs, Zs}};
  static std::mutex mutex;
  static std::map<std::string_view, CharSet> made;
  for (const Names& n : kNames) {
    if (name != n.brief && name != n.full && name != "gc=" + std::string(n.brief) &&
        name != "General_Category=" + std::string(n.full))
      continue;
    const std::lock_guard lock(mutex);
    const auto [at, fresh] = made.try_emplace(n.brief);
    if (fresh) {
      CharSet set;
      for (std::uint32_t c = 0; c <= kLastChar; ++c) {
        const unicode::Category k = unicode::category(c);
        if (k >= n.first && k <= n.last) {
          if (!set.empty() && set.back().second + 1 == c) set.back().second = c;
          else set.push_back({c, c});
        }
      }
      at->second = char_set(std::move(set));
    }
    return &at->second;
  }
  return nullptr;
}

class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {
    if (text.size() > GrammarLimits::kSourceBytes) wrong("is longer than 64 KiB");
  }
  Expression parse() {
    Expression e = choice(0);
    if (at_ < text_.size()) wrong("a ')' without its '('");
    return e;
  }

 private:
  using Kind = Expression::Kind;

  template <class... Parts>
  [[noreturn]] void wrong(const Parts&... parts) const {
    std::size_t end = std::min<std::size_t>(text_.size(), 60);
    while (end < text_.size() && (static_cast<unsigned char>(text_[end]) & 0xC0) == 0x80) --end;
    const std::string_view shown = text_.substr(0, end);
    throw GrammarError(
        concat("pattern '", shown, shown.size() < text_.size() ? "…" : "", "' at ", at_ + 1, ": ", parts...));
  }
  bool more() const { return at_ < text_.size(); }
  char peek(std::size_t ahead = 0) const { return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\0'; }
  bool take(std::string_view what) {
    if (!text_.substr(at_).starts_with(what)) return false;
    at_ += what.size();
    return true;
  }
  std::uint32_t character() {
    const unicode::Char c = unicode::read(text_, at_);
    if (!c.valid) wrong("broken UTF-8");
    at_ += c.length;
    return c.code;
  }

  Expression choice(int depth) {
    if (depth > kGroups) wrong("more than ", kGroups, " groups in one another");
    Expression out{Kind::choice};
    do out.parts.push_back(branch(depth));
    while (take("|"));
    return out.parts.size() == 1 ? std::move(out.parts[0]) : std::move(out);
  }

  Expression branch(int depth) {
    Expression out{Kind::sequence};
    while (more() && peek() != '|' && peek() != ')') {
      Expression e = atom(depth);
      if (e.kind != Kind::begin && e.kind != Kind::end) e = quantified(std::move(e));
      out.parts.push_back(std::move(e));
    }
    return out;
  }

  int count() {
    int n = 0;
    if (peek() < '0' || peek() > '9') wrong("a number is missing in {…}");
    while (peek() >= '0' && peek() <= '9') {
      n = std::min(n * 10 + (peek() - '0'), 1 << 20);
      ++at_;
    }
    if (n > GrammarLimits::kRepetition)
      wrong("at most ", GrammarLimits::kRepetition, " repetitions are possible");
    return n;
  }

  Expression quantified(Expression e) {
    int min = 0, max = -1;
    if (take("*")) min = 0;
    else if (take("+")) min = 1;
    else if (take("?")) max = 1;
    else if (take("{")) {
      min = max = count();
      if (take(",")) max = peek() == '}' ? -1 : count();
      if (!take("}")) wrong("'}' is missing");
      if (max >= 0 && max < min) wrong("{", min, ",", max, "} is empty");
    } else {
      return e;
    }
    take("?");  // lazy: the same texts match
    if (peek() == '*' || peek() == '+' || peek() == '?') wrong("two quantifiers behind one another");
    Expression out{Kind::repeat};
    out.parts.push_back(std::move(e));
    out.min = min;
    out.max = max;
    return out;
  }

  Expression atom(int depth) {
    if (take("^")) return {Kind::begin};
    if (take("$")) return {Kind::end};
    if (take(".")) return set(complement({{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}}));
    if (take("[")) return set(bracket());
    if (take("(")) {
      if (take("?")) {
        if (peek() == '=' || peek() == '!' || (peek() == '<' && (peek(1) == '=' || peek(1) == '!')))
          wrong("look-ahead and look-behind are not supported");
        if (take("<")) {
          while (more() && peek() != '>') ++at_;
          if (!take(">")) wrong("'>' is missing behind the name of a group");
        } else if (!take(":")) {
          wrong("this kind of group is not supported");
        }
      }
      Expression e = choice(depth + 1);
      if (!take(")")) wrong("')' is missing");
      return e;
    }
    if (peek() == '*' || peek() == '+' || peek() == '?' || peek() == '{') wrong("nothing to repeat");
    if (peek() == '\\') return set(escape(false));
    const std::uint32_t c = character();
    return set({{c, c}});
  }
  static Expression set(CharSet s) { return {Kind::set, std::move(s)}; }

  std::uint32_t hex(int digits) {
    std::uint32_t x = 0;
    for (int i = 0; i < digits; ++i, ++at_) {
      const char c = peek();
      const int d = c >= '0' && c <= '9'   ? c - '0'
                    : c >= 'a' && c <= 'f' ? c - 'a' + 10
                    : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                           : -1;
      if (d < 0) wrong("a hexadecimal digit is missing");
      x = x * 16 + static_cast<std::uint32_t>(d);
    }
    return x;
  }

  std::uint32_t unicode_escape() {  // behind \u
    std::uint32_t x = 0;
    if (take("{")) {
      if (peek() == '}') wrong("a hexadecimal digit is missing");
      while (!take("}")) {
        x = x * 16 + hex(1);
        if (x > kLastChar) wrong("no character has this number");
      }
    } else {
      x = hex(4);
      if (x >= 0xD800 && x <= 0xDBFF && take("\\u")) {
        const std::uint32_t low = hex(4);
        if (low < 0xDC00 || low > 0xDFFF) wrong("half of a surrogate pair");
        return 0x10000 + ((x - 0xD800) << 10) + (low - 0xDC00);
      }
    }
    if (x >= 0xD800 && x <= 0xDFFF) wrong("half of a surrogate pair");
    return x;
  }

  static CharSet word() { return char_set({{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}}); }
  static CharSet blank() {
    return char_set({{'\t', '\r'},
                     {' ', ' '},
                     {0xA0, 0xA0},
                     {0x1680, 0x1680},
                     {0x2000, 0x200A},
                     {0x2028, 0x2029},
                     {0x202F, 0x202F},
                     {0x205F, 0x205F},
                     {0x3000, 0x3000},
                     {0xFEFF, 0xFEFF}});
  }

  CharSet escape(bool in_class) {
    ++at_;
    if (!more()) wrong("a pattern cannot end with '\\'");
    const char c = peek();
    ++at_;
    const auto one = [](std::uint32_t x) { return CharSet{{x, x}}; };
    switch (c) {
      case 'd': return {{'0', '9'}};
      case 'D': return complement({{'0', '9'}});
      case 'w': return word();
      case 'W': return complement(word());
      case 's': return blank();
      case 'S': return complement(blank());
      case 't': return one('\t');
      case 'n': return one('\n');
      case 'r': return one('\r');
      case 'f': return one('\f');
      case 'v': return one('\v');
      case 'x': return one(hex(2));
      case 'u': return one(unicode_escape());
      case 'c':
        if (!((peek() >= 'a' && peek() <= 'z') || (peek() >= 'A' && peek() <= 'Z')))
          wrong("\\c wants a letter");
        return one(static_cast<std::uint32_t>(text_[at_++] & 31));
      case 'p':
      case 'P': {
        const std::size_t end = text_.find('}', at_);
        if (peek() != '{' || end == text_.npos) wrong("\\", c, " wants {…}");
        const CharSet* found = category_set(std::string(text_.substr(at_ + 1, end - at_ - 1)));
        if (!found) wrong("only general categories are known here (\\p{L}, \\p{Nd}, …)");
        at_ = end + 1;
        return c == 'p' ? *found : complement(*found);
      }
      case 'b':
        if (in_class) return one('\b');
        [[fallthrough]];
      case 'B': wrong("word boundaries (\\", c, ") are not supported");
      case 'k': wrong("back-references are not supported");
      case '0':
        if (peek() < '0' || peek() > '9') return one(0);
        wrong("octal numbers are not supported");
      default: break;
    }
    if (c >= '1' && c <= '9') wrong("back-references are not supported");
    if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z')) wrong("'\\", c, "' has no meaning");
    --at_;
    return one(character());
  }

  CharSet bracket() {
    const bool negated = take("^");
    CharSet all;
    while (!take("]")) {
      if (!more()) wrong("']' is missing");
      CharSet first = peek() == '\\' ? escape(true) : one_character();
      const bool single = first.size() == 1 && first[0].first == first[0].second;
      if (single && peek() == '-' && peek(1) != ']' && peek(1) != '\0') {
        ++at_;
        const CharSet last = peek() == '\\' ? escape(true) : one_character();
        if (last.size() != 1 || last[0].first != last[0].second) wrong("a range ends with a set");
        if (last[0].first < first[0].first) wrong("a range whose end is before its beginning");
        first[0].second = last[0].first;
      }
      all.insert(all.end(), first.begin(), first.end());
    }
    all = char_set(std::move(all));
    return negated ? complement(all) : all;
  }
  CharSet one_character() {
    const std::uint32_t c = character();
    return {{c, c}};
  }

  std::string_view text_;
  std::size_t at_ = 0;
};

void emit(CharNfa& nfa, const Expression& e, std::uint32_t from, std::uint32_t to, GrammarBudget& budget) {
  using Kind = Expression::Kind;
  budget.pay(1 + e.set.size());
  switch (e.kind) {
    case Kind::empty: nfa.free(from, to); break;
    case Kind::set: nfa.edge(from, e.set, to); break;
    case Kind::begin: nfa.free(from, to, CharNfa::Free::begin); break;
    case Kind::end: nfa.free(from, to, CharNfa::Free::end); break;
    case Kind::choice:
      for (const Expression& part : e.parts) emit(nfa, part, from, to, budget);
      break;
    case Kind::sequence: {
      std::uint32_t at = from;
      for (const Expression& part : e.parts) {
        const std::uint32_t next = nfa.add();
        emit(nfa, part, at, next, budget);
        at = next;
      }
      nfa.free(at, to);
      break;
    }
    case Kind::repeat: {
      std::uint32_t at = from;
      const auto once = [&] {
        const std::uint32_t next = nfa.add();
        emit(nfa, e.parts[0], at, next, budget);
        at = next;
      };
      for (int i = 0; i < e.min; ++i) once();
      if (e.max < 0) {
        const std::uint32_t loop = nfa.add(), back = nfa.add();
        nfa.free(at, loop);
        emit(nfa, e.parts[0], loop, back, budget);
        nfa.free(back, loop);
        nfa.free(loop, to);
        break;
      }
      for (int i = e.min; i < e.max; ++i) {
        nfa.free(at, to);
        once();
      }
      nfa.free(at, to);
      break;
    }
  }
}

}  // namespace

CharDfa regex_dfa(std::string_view pattern, bool search, GrammarBudget& budget) {
  const Expression e = Parser(pattern).parse();
  CharNfa nfa;
  const std::uint32_t start = nfa.add(), end = nfa.add(), first = nfa.add(), last = nfa.add();
  emit(nfa, e, first, last, budget);
  nfa.free(start, first);
  nfa.free(last, end);
  if (search) {
    const std::uint32_t before = nfa.add();
    nfa.free(start, before);
    nfa.edge(before, any_char(), before);
    nfa.free(before, first);
    nfa.edge(end, any_char(), end);
  }
  return nfa.determinize(start, end, budget);
}

}  // namespace rapt
