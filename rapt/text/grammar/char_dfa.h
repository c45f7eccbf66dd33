// SPDX-License-Identifier: Apache-2.0
// Finite automata over code points: what a pattern, a format, the range of a number or the keys that a schema
// does not name say about one string. Made whole (subsets of an NFA), combined, and then spelled as bytes by
// the builder.
#pragma once
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "rapt/text/grammar/builder.h"

namespace rapt {

// What one compilation may still do. Every loop that a schema, a pattern or a grammar chooses pays here, so
// that time and memory are bounded whatever it says.
class GrammarBudget {
 public:
  void pay(std::size_t steps = 1) {
    if (steps > left_) spent();
    left_ -= steps;
  }
  std::size_t used() const { return GrammarLimits::kWork - left_; }

 private:
  [[noreturn]] static void spent();
  std::size_t left_ = GrammarLimits::kWork;
};

// Code points: ranges in their order, not touching. Surrogates are no code points.
using CharSet = std::vector<std::pair<std::uint32_t, std::uint32_t>>;
inline constexpr std::uint32_t kLastChar = 0x10FFFF;
CharSet char_set(CharSet ranges);  // any ranges: sorted, joined, without surrogates
CharSet complement(const CharSet& set);
const CharSet& any_char();

class CharDfa {
 public:
  struct Edge {
    std::uint32_t first, last, to;
  };
  struct State {
    std::vector<Edge> edges;  // in their order, disjoint; a character without one is refused
    bool accepts = false;
  };
  // The first is where it begins. From each an accepting one is reached; none at all: nothing is accepted.
  std::vector<State> states;

  bool nothing() const { return states.empty(); }
  bool accepts(std::string_view text) const;  // of UTF-8
  void trim();  // drops what leads nowhere, and joins states that accept the same
  void trim(GrammarBudget& budget);
};

// An NFA with edges that are passed at the beginning or at the end of the text only (^ and $).
class CharNfa {
 public:
  enum class Free : std::uint8_t { always, begin, end };
  std::uint32_t add();
  void edge(std::uint32_t from, const CharSet& set, std::uint32_t to);
  void free(std::uint32_t from, std::uint32_t to, Free when = Free::always) {
    states_[from].free.push_back({to, when});
  }
  std::size_t size() const { return states_.size(); }
  // Fails with more than kDfaStates states.
  CharDfa determinize(std::uint32_t start, std::uint32_t accept, GrammarBudget& budget) const;

 private:
  struct FreeEdge {
    std::uint32_t to;
    Free when;
  };
  struct State {
    std::vector<CharDfa::Edge> edges;
    std::vector<FreeEdge> free;
  };
  void close(std::vector<std::uint32_t>& set, bool begin, bool end, std::vector<std::uint8_t>& seen,
             GrammarBudget& budget) const;
  std::vector<State> states_;
};

// What both accept; what the first accepts and the second does not.
CharDfa both(const CharDfa& a, const CharDfa& b, GrammarBudget& budget);
CharDfa without(const CharDfa& a, const CharDfa& b, GrammarBudget& budget);
CharDfa any_text(int min_length = 0, int max_length = -1);
CharDfa one_of(const std::vector<std::string_view>& texts, GrammarBudget& budget);

// --- numbers in decimals, -?(0|[1-9][0-9]*)(\.[0-9]+)?
// How it compares with `bound`, which is written so, too: accepted where it is less, equal, greater as asked.
CharDfa decimal_compare(std::string_view bound, bool less, bool equal, bool greater);
CharDfa integer_text();
CharDfa decimal_text();
// Multiples of digits / 10^places.
CharDfa multiple_text(std::uint64_t digits, int places, GrammarBudget& budget);
// A JSON number in decimals, without exponent: exact for integers, else the fewest digits that read back.
std::string decimal_of(const Json& number);

}  // namespace rapt
