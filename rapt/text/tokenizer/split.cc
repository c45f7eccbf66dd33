// SPDX-License-Identifier: Apache-2.0
// A matcher per pattern says where a match ends; segments() walks the text, arrange() makes pieces of them.
#include "rapt/text/tokenizer/split.h"

#include <algorithm>
#include <span>

#include "rapt/base/unicode.h"
#include "rapt/text/tokenizer/patterns.h"

namespace rapt {
namespace {

using namespace unicode;

struct Symbol {
  std::uint32_t code;
  std::uint32_t length;
  Category category;
  bool space;
};

// The characters of one piece. Asking beyond its end gives a character of no class, so look-ahead needs no
// bounds of its own.
class Line {
 public:
  explicit Line(std::string_view text) {
    symbols_.reserve(text.size());
    for (std::size_t i = 0; i < text.size();) {
      const Char c = read(text, i);
      symbols_.push_back({c.code, c.length, category(c.code), is_space(c.code)});
      i += c.length;
    }
  }
  std::size_t size() const { return symbols_.size(); }
  std::uint32_t length(std::size_t i) const { return symbols_[i].length; }
  std::uint32_t code(std::size_t i) const { return i < size() ? symbols_[i].code : kNone; }
  bool letter(std::size_t i) const { return i < size() && symbols_[i].category <= Lo; }
  bool mark(std::size_t i) const {
    return i < size() && symbols_[i].category >= Mn && symbols_[i].category <= Me;
  }
  bool number(std::size_t i) const {
    return i < size() && symbols_[i].category >= Nd && symbols_[i].category <= No;
  }
  bool punctuation(std::size_t i) const {
    return i < size() && symbols_[i].category >= Pc && symbols_[i].category <= Po;
  }
  bool symbol(std::size_t i) const {
    return i < size() && symbols_[i].category >= Sm && symbols_[i].category <= So;
  }
  bool space(std::size_t i) const { return i < size() && symbols_[i].space; }
  bool line_end(std::size_t i) const { return code(i) == '\r' || code(i) == '\n'; }
  // [^\s\p{L}\p{N}]
  bool other(std::size_t i) const { return i < size() && !space(i) && !letter(i) && !number(i); }
  Category category_at(std::size_t i) const { return i < size() ? symbols_[i].category : Cn; }

 private:
  static constexpr std::uint32_t kNone = 0xFFFFFFFF;
  std::vector<Symbol> symbols_;
};

template <class Test>
std::size_t run(const Line&, std::size_t i, Test test) {
  while (test(i)) ++i;
  return i;
}

// 's 't 'm 'd 're 've 'll: its length, or 0. Without case the long s (U+017F) is an s, as for the engine the
// patterns were written for.
std::size_t contraction(const Line& x, std::size_t i, bool any_case) {
  if (x.code(i) != '\'') return 0;
  const auto letter = [&](std::size_t k) {
    const std::uint32_t c = x.code(k);
    if (!any_case) return c;
    return c == 0x17F ? std::uint32_t{'s'} : c >= 'A' && c <= 'Z' ? c + 32 : c;
  };
  const std::uint32_t a = letter(i + 1), b = letter(i + 2);
  if (a == 's' || a == 't' || a == 'm' || a == 'd') return 2;
  return (a == 'r' && b == 'e') || (a == 'v' && b == 'e') || (a == 'l' && b == 'l') ? 3 : 0;
}

// \s+(?!\S)|\s+ : a run of white space leaves its last character to the word behind it.
std::size_t white(const Line& x, std::size_t i) {
  const std::size_t end = run(x, i, [&](std::size_t k) { return x.space(k); });
  return end < x.size() && end - i > 1 ? end - 1 : end;
}

// \s*[\r\n]+ : to the last line end of a run of white space; i where there is none. `one`: \s*[\r\n], which
// is the same place.
std::size_t to_line_end(const Line& x, std::size_t i) {
  std::size_t last = i;
  for (std::size_t k = i; x.space(k); ++k) {
    if (x.line_end(k)) last = k + 1;
  }
  return last;
}

std::size_t match_gpt2(const Line& x, std::size_t i) {
  if (const std::size_t n = contraction(x, i, false)) return i + n;
  const std::size_t k = x.code(i) == ' ' ? i + 1 : i;
  if (x.letter(k)) return run(x, k, [&](std::size_t j) { return x.letter(j); });
  if (x.number(k)) return run(x, k, [&](std::size_t j) { return x.number(j); });
  if (x.other(k)) return run(x, k, [&](std::size_t j) { return x.other(j); });
  return white(x, i);
}

// How the patterns that followed Llama 3's differ.
struct Llama3 {
  std::size_t digits = 3;
  bool marks = false;           // letters bring their marks
  bool ends_after = true;       // [\r\n]* behind punctuation
};

std::size_t match_llama3(const Line& x, std::size_t i, const Llama3& how) {
  if (const std::size_t n = contraction(x, i, true)) return i + n;
  const auto in_word = [&](std::size_t k) { return x.letter(k) || (how.marks && x.mark(k)); };
  if (in_word(i)) return run(x, i, in_word);
  if (!x.line_end(i) && !x.number(i) && in_word(i + 1)) return run(x, i + 1, in_word);
  if (x.number(i)) {
    std::size_t k = i;
    while (k - i < how.digits && x.number(k)) ++k;
    return k;
  }
  const auto other = [&](std::size_t k) { return x.other(k) && !(how.marks && x.mark(k)); };
  const std::size_t k = x.code(i) == ' ' ? i + 1 : i;
  if (other(k)) {
    const std::size_t end = run(x, k, other);
    return how.ends_after ? run(x, end, [&](std::size_t j) { return x.line_end(j); }) : end;
  }
  if (const std::size_t end = to_line_end(x, i); end > i) return end;
  return white(x, i);
}

// Words by case: [upper or caseless]* [lower or caseless]+, else [upper or caseless]+ [lower or caseless]*.
std::size_t match_cased(const Line& x, std::size_t i, bool with_contraction, std::size_t digits) {
  const auto upper = [&](std::size_t k) {
    const Category c = x.category_at(k);
    return k < x.size() && (c == Lu || c == Lt || c == Lm || c == Lo || x.mark(k));
  };
  const auto lower = [&](std::size_t k) {
    const Category c = x.category_at(k);
    return k < x.size() && (c == Ll || c == Lm || c == Lo || x.mark(k));
  };
  const auto tail = [&](std::size_t k) { return with_contraction ? k + contraction(x, k, true) : k; };
  // May stand before the word; a mark may also be of the word.
  const bool lead = !x.line_end(i) && !x.letter(i) && !x.number(i);
  for (int pass = 0; pass < 2; ++pass) {      // 0: words that end low, 1: words that begin high
    for (int skip = lead ? 1 : 0; skip >= 0; --skip) {
      const std::size_t from = i + static_cast<std::size_t>(skip);
      const std::size_t high = run(x, from, upper);
      if (pass == 1) {
        if (high > from) return tail(run(x, high, lower));
        continue;
      }
      if (lower(high)) return tail(run(x, high, lower));
      // The upper run gives back up to its last caseless letter.
      for (std::size_t k = high; k > from; --k) {
        if (lower(k - 1)) return tail(k);
      }
    }
  }
  if (x.number(i)) {
    std::size_t k = i;
    while (k - i < digits && x.number(k)) ++k;
    return k;
  }
  const std::size_t k = x.code(i) == ' ' ? i + 1 : i;
  if (x.other(k)) {
    const std::size_t end = run(x, k, [&](std::size_t j) { return x.other(j); });
    return run(x, end, [&](std::size_t j) { return x.line_end(j) || x.code(j) == '/'; });
  }
  if (const std::size_t end = to_line_end(x, i); end > i) return end;
  return white(x, i);
}

std::size_t match_deepseek3(const Line& x, std::size_t i) {
  const auto latin = [&](std::size_t k) {
    const std::uint32_t c = x.code(k);
    return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
  };
  const auto in_word = [&](std::size_t k) { return x.letter(k) || x.mark(k); };
  const auto sign = [&](std::size_t k) { return x.punctuation(k) || x.symbol(k); };
  if (is_ascii_punctuation(x.code(i)) && latin(i + 1)) return run(x, i + 1, latin);
  if (in_word(i)) return run(x, i, in_word);
  if (!x.line_end(i) && !sign(i) && in_word(i + 1)) return run(x, i + 1, in_word);
  const std::size_t k = x.code(i) == ' ' ? i + 1 : i;
  if (sign(k)) return run(x, run(x, k, sign), [&](std::size_t j) { return x.line_end(j); });
  if (const std::size_t end = to_line_end(x, i); end > i) return end;
  return white(x, i);
}

template <class Test>
std::size_t spaced(const Line& x, std::size_t i, Test test) {  // \s?[class]+
  if (x.space(i) && test(i + 1)) return run(x, i + 1, test);
  return run(x, i, test);
}

bool in_ranges(std::span<const CodeRange> ranges, std::uint32_t c) {
  const auto after = std::upper_bound(ranges.begin(), ranges.end(), c,
                                      [](std::uint32_t v, const CodeRange& r) { return v < r.first; });
  return after != ranges.begin() && c <= std::prev(after)->last;
}

bool bloom_stop(std::uint32_t c) {
  switch (c) {
    case '(':
    case ')':
    case '|':
    case '.':
    case ',':
    case '!':
    case '?':
    case 0x2026:
    case 0x3002:
    case 0xFF0C:
    case 0x3001:
    case 0x964:
    case 0x6D4:
    case 0x60C: return true;
    default: return false;
  }
}

// Where the match that begins at i ends; i: there is none.
std::size_t match(const Line& x, std::size_t i, Pattern pattern) {
  const auto bit = [&](bool yes) { return i + (yes ? 1 : 0); };
  switch (pattern) {
    case Pattern::gpt2: return match_gpt2(x, i);
    case Pattern::llama3: return match_llama3(x, i, {});
    case Pattern::qwen2:
    case Pattern::bailing: return match_llama3(x, i, {.digits = 1});
    case Pattern::minicpm: return match_llama3(x, i, {.digits = SIZE_MAX});
    case Pattern::qwen35: return match_llama3(x, i, {.digits = 1, .marks = true});
    case Pattern::seed_coder: return match_llama3(x, i, {.digits = 1, .ends_after = false});
    case Pattern::gpt4o: return match_cased(x, i, true, 3);
    case Pattern::tekken: return match_cased(x, i, false, 1);
    case Pattern::deepseek3: return match_deepseek3(x, i);
    case Pattern::bloom: {
      const auto in = [&](std::size_t k) { return k < x.size() && !x.space(k) && !bloom_stop(x.code(k)); };
      return x.code(i) == ' ' && in(i + 1) ? run(x, i + 1, in) : run(x, i, in);
    }
    case Pattern::clip: {
      if (const std::size_t n = contraction(x, i, false)) return i + n;
      if (x.letter(i)) return run(x, i, [&](std::size_t k) { return x.letter(k); });
      return x.number(i) ? i + 1 : run(x, i, [&](std::size_t k) { return x.other(k); });
    }
    case Pattern::number: return bit(x.number(i));
    case Pattern::numbers: return run(x, i, [&](std::size_t k) { return x.number(k); });
    case Pattern::numbers3: return run(x, i, [&](std::size_t k) { return k - i < 3 && x.number(k); });
    case Pattern::three_digits: {
      const std::size_t end =
          run(x, i, [&](std::size_t k) { return k - i < 3 && x.code(k) >= '0' && x.code(k) <= '9'; });
      return end - i == 3 ? end : i;
    }
    case Pattern::line_end: return bit(x.line_end(i));
    case Pattern::spaced_letters: return spaced(x, i, [&](std::size_t k) { return x.letter(k); });
    case Pattern::spaced_punctuation: return spaced(x, i, [&](std::size_t k) { return x.punctuation(k); });
    case Pattern::deepseek_letters:
      return spaced(x, i, [&](std::size_t k) {
        return k < x.size() && in_ranges(deepseek_letter_ranges(), x.code(k));
      });
    case Pattern::deepseek_punctuation:
      return spaced(x, i, [&](std::size_t k) {
        const std::uint32_t c = x.code(k);
        return (c >= '!' && c <= '/') || (c >= ':' && c <= '~') || (c >= 0xFF01 && c <= 0xFF0F) ||
               (c >= 0xFF1A && c <= 0xFF5E) || (c >= 0x2018 && c <= 0x201F) || (c >= 0x3000 && c <= 0x3002);
      });
    case Pattern::trailing_space: return i;  // found from the end, see segments()
    case Pattern::cjk:
      return run(x, i, [&](std::size_t k) {
        const std::uint32_t c = x.code(k);
        return (c >= 0x800 && c <= 0x9FA5) || (c >= 0xAC00 && c <= 0xD7FF);
      });
    case Pattern::cjk3:
      return run(x, i, [&](std::size_t k) {
        const std::uint32_t c = x.code(k);
        return (c >= 0x4E00 && c <= 0x9FA5) || (c >= 0x3040 && c <= 0x30FF);
      });
    case Pattern::falcon_punctuation:
    case Pattern::default_punctuation:
      return run(x, i, [&](std::size_t k) {
        const std::uint32_t c = x.code(k);
        return x.punctuation(k) || c == '$' || c == '+' || c == '<' || c == '=' || c == '>' || c == '^' ||
               c == '~' || c == '|' || (c == '`' && pattern == Pattern::falcon_punctuation);
      });
    case Pattern::word: {
      const auto word = [&](std::size_t k) { return k < x.size() && is_word(x.code(k)); };
      if (word(i)) return run(x, i, word);
      return run(x, i, [&](std::size_t k) { return k < x.size() && !x.space(k) && !word(k); });
    }
    case Pattern::space: return bit(x.space(i));
    case Pattern::spaces: return run(x, i, [&](std::size_t k) { return x.space(k); });
    case Pattern::punctuation: {
      const Category k = category8(x.code(i));
      return bit((k >= Pc && k <= Po) || is_ascii_punctuation(x.code(i)));
    }
    case Pattern::not_line: {
      const bool line = x.code(i) == '\n';
      return run(x, i, [&](std::size_t k) { return k < x.size() && (x.code(k) == '\n') == line; });
    }
    case Pattern::literal: return i;  // by bytes, see segments()
  }
  return i;
}

struct Segment {
  std::size_t begin, end;
  bool matched;
};

std::vector<Segment> segments(std::string_view text, std::size_t base, const SplitStep& step) {
  std::vector<Segment> out;
  std::size_t open = 0;  // begin of what matched nothing so far
  const auto emit = [&](std::size_t begin, std::size_t end) {
    if (open < begin) out.push_back({base + open, base + begin, false});
    out.push_back({base + begin, base + end, true});
    open = end;
  };
  if (step.pattern == Pattern::literal) {
    for (std::size_t at = text.find(step.text); at != std::string_view::npos;
         at = text.find(step.text, at + step.text.size())) {
      emit(at, at + step.text.size());
    }
  } else if (step.pattern == Pattern::trailing_space) {
    const Line x(text);
    std::size_t i = x.size(), begin = text.size();
    while (i > 0 && x.space(i - 1)) begin -= x.length(--i);
    if (begin < text.size()) emit(begin, text.size());
  } else {
    const Line x(text);
    for (std::size_t i = 0, at = 0; i < x.size();) {
      const std::size_t end = match(x, i, step.pattern);
      if (end == i) {
        at += x.length(i++);
        continue;
      }
      const std::size_t begin = at;
      while (i < end) at += x.length(i++);
      emit(begin, at);
    }
  }
  if (open < text.size()) out.push_back({base + open, base + text.size(), false});
  return out;
}

void arrange(std::vector<Segment> found, const SplitStep& step, std::vector<Span>& out) {
  if (step.invert) {
    for (Segment& s : found) s.matched = !s.matched;
  }
  const std::size_t first = out.size();
  switch (step.behavior) {
    case SplitStep::Behavior::isolated:
      for (const Segment& s : found) out.push_back({s.begin, s.end});
      break;
    case SplitStep::Behavior::removed:
      for (const Segment& s : found) {
        if (!s.matched) out.push_back({s.begin, s.end});
      }
      break;
    case SplitStep::Behavior::contiguous:
      for (std::size_t i = 0; i < found.size(); ++i) {
        if (i > 0 && found[i].matched == found[i - 1].matched) out.back().end = found[i].end;
        else out.push_back({found[i].begin, found[i].end});
      }
      break;
    case SplitStep::Behavior::with_previous:
      for (std::size_t i = 0; i < found.size(); ++i) {
        if (found[i].matched && i > 0 && !found[i - 1].matched) out.back().end = found[i].end;
        else out.push_back({found[i].begin, found[i].end});
      }
      break;
    case SplitStep::Behavior::with_next:
      for (std::size_t i = found.size(); i-- > 0;) {
        if (found[i].matched && i + 1 < found.size() && !found[i + 1].matched)
          out.back().begin = found[i].begin;
        else out.push_back({found[i].begin, found[i].end});
      }
      std::reverse(out.begin() + static_cast<std::ptrdiff_t>(first), out.end());
      break;
  }
}

void metaspace(Pieces& pieces, const SplitStep& step, const EncodeWork& work) {
  Pieces out;
  out.first = pieces.first;
  const std::string& mark = step.text;
  for (std::size_t n = 0; n < pieces.spans.size(); ++n) {
    const Span span = pieces.spans[n];
    const std::size_t begin = out.text.size();
    const std::string_view piece = std::string_view(pieces.text).substr(span.begin, span.end - span.begin);
    const bool wants = step.prefix == SplitStep::Prefix::always ||
                       (step.prefix == SplitStep::Prefix::first && pieces.first && span.begin == 0);
    if (wants && !piece.starts_with(' ') && !piece.starts_with(mark)) out.text += mark;
    for (const char c : piece) {
      if (c == ' ') out.text += mark;
      else out.text += c;
      work.check_size(out.text.size());
    }
    if (!step.cut) {
      out.spans.push_back({begin, out.text.size()});
      continue;
    }
    const SplitStep at_mark{
        .pattern = Pattern::literal, .behavior = SplitStep::Behavior::with_next, .text = mark};
    arrange(segments(std::string_view(out.text).substr(begin), begin, at_mark), at_mark, out.spans);
  }
  pieces = std::move(out);
}

}  // namespace

void split(Pieces& pieces, const SplitStep& step, EncodeWork& work) {
  work.pay(pieces.text.size());
  if (step.kind == SplitStep::Kind::metaspace) return metaspace(pieces, step, work);
  if (step.kind == SplitStep::Kind::prefix_space) {
    Pieces out;
    out.first = pieces.first;
    for (const Span span : pieces.spans) {
      const std::size_t begin = out.text.size();
      const std::string_view piece = std::string_view(pieces.text).substr(span.begin, span.end - span.begin);
      if (!piece.empty() && piece[0] != ' ') out.text += ' ';
      out.text += piece;
      out.spans.push_back({begin, out.text.size()});
    }
    pieces = std::move(out);
    return;
  }
  std::vector<Span> spans;
  spans.reserve(pieces.spans.size());
  for (const Span span : pieces.spans) {
    arrange(
        segments(std::string_view(pieces.text).substr(span.begin, span.end - span.begin), span.begin, step),
        step, spans);
  }
  pieces.spans = std::move(spans);
}

}  // namespace rapt
