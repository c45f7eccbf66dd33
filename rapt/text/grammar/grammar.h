// SPDX-License-Identifier: Apache-2.0
// A compiled grammar: what may follow, byte by byte. Immutable, shared by all who use it.
//
// Every rule is an automaton over bytes, special tokens and calls of other rules, deterministic but where a
// call and a byte (or two calls) can begin alike. Where one stands is a set of configurations, usually one: a
// state, and the states to which the rules that are open will return.
#pragma once
#include <bitset>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "rapt/text/grammar/builder.h"

namespace rapt {

class Grammar {
 public:
  static constexpr std::uint32_t kNone = ~std::uint32_t{0};
  static constexpr std::uint16_t kFree = 0xFFFF;

  struct Range {
    std::uint8_t first, last;
    std::uint32_t to;
  };
  struct Call {
    std::uint32_t rule, to;
  };
  struct Special {
    std::int32_t id;
    std::uint32_t to;
  };
  struct State {
    std::uint32_t dense = kNone;  // row of `rows`, instead of ranges
    std::uint32_t ranges = 0, calls = 0, specials = 0;
    std::uint32_t range_count = 0, call_count = 0, special_count = 0;
    // This many characters of a JSON string, any that need no escape, may follow whatever else may.
    // kFree: without end.
    std::uint16_t run = 0;
    bool final = false;  // the rule may end here
    bool bare = false;  // … and can do nothing else: nobody needs to return to it
  };
  struct Rule {
    std::uint32_t start = 0;
    std::bitset<256> first;  // bytes that it can begin with
    std::vector<std::int32_t> first_specials;  // … special tokens, in their order
  };

  std::vector<State> states;
  std::vector<Range> ranges;
  std::vector<std::uint32_t> rows;  // 256 each
  std::vector<Call> calls;
  std::vector<Special> special_edges;
  std::vector<Rule> rules;
  std::vector<std::int32_t> specials;  // ids that appear, in their order
  std::uint32_t root = 0;  // the rule of the whole text
  std::uint32_t shared = 0;  // states below are those of every grammar: JSON strings, numbers, any value
  std::size_t steps = 0;  // that compiling took

  std::size_t memory() const {  // bytes, about
    return states.size() * sizeof(State) + ranges.size() * sizeof(Range) + rows.size() * 4 +
           calls.size() * sizeof(Call) + special_edges.size() * sizeof(Special) + rules.size() * sizeof(Rule);
  }
  std::uint32_t next(std::uint32_t state, std::uint8_t byte) const {
    const State& s = states[state];
    if (s.dense != kNone) return rows[std::size_t{s.dense} * 256 + byte];
    for (std::uint32_t i = 0; i < s.range_count; ++i) {
      const Range& r = ranges[s.ranges + i];
      if (byte < r.first) return kNone;
      if (byte <= r.last) return r.to;
    }
    return kNone;
  }
};

struct Configuration {
  std::uint32_t state, stack;
  bool operator==(const Configuration&) const = default;
};
using Configurations = std::vector<Configuration>;

// States to return to, as chains that share their ends; 0 is the end of all. Equal chains have equal numbers.
// And what the steps with them cost: a grammar can be written so that a byte has many ways, each long.
class ReturnStacks {
 public:
  struct Frame {
    std::uint32_t state, below;
  };
  std::uint32_t push(std::uint32_t state, std::uint32_t below);
  const Frame& operator[](std::uint32_t i) const { return frames_[i]; }
  std::size_t size() const { return frames_.size(); }
  void shrink(std::size_t size);  // forgets the newest

  // From here on so many visits of states; the next one fails with a GrammarError.
  void allow(std::uint64_t visits) { left_ = visits; }
  void pay(std::uint64_t visits = 1) {
    if (visits > left_) spent();
    left_ -= visits;
  }
  Configurations visited;  // by the step that is made

 private:
  [[noreturn]] static void spent();
  std::size_t slot(const Frame& f) const;
  void grow();
  std::vector<Frame> frames_ = {{Grammar::kNone, 0}};
  std::vector<std::uint32_t> table_;  // places of frames; 0: free
  std::uint64_t left_ = ~std::uint64_t{0};
};

// Adds to `out` where byte (or special token) leads from a configuration. At the bottom of the stack nothing
// follows. False: there would be more than GrammarLimits::kConfigurations, or many more on the way.
bool step(const Grammar& grammar, ReturnStacks& stacks, Configuration from, std::uint8_t byte,
          Configurations& out, std::size_t begin = 0);
bool step_special(const Grammar& grammar, ReturnStacks& stacks, Configuration from, std::int32_t id,
                  Configurations& out);
// The rules that are open may all end here.
bool may_end(const Grammar& grammar, const ReturnStacks& stacks, Configuration at);

// A text of bytes: does the grammar accept the whole of it? For grammars without special tokens.
bool accepts(const Grammar& grammar, std::string_view text);

}  // namespace rapt
