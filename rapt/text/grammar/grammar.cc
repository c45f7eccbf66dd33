// SPDX-License-Identifier: Apache-2.0
// One step of a pushdown automaton, and its stacks.
#include "rapt/text/grammar/grammar.h"

#include <algorithm>

namespace rapt {

// ------------------------------------------------------------------------------------------------- stacks
std::size_t ReturnStacks::slot(const Frame& f) const {
  std::uint64_t h = (std::uint64_t{f.state} << 32 | f.below) * 0x9E3779B97F4A7C15u;
  std::size_t i = static_cast<std::size_t>(h >> 32) & (table_.size() - 1);
  while (table_[i] != 0 && (frames_[table_[i]].state != f.state || frames_[table_[i]].below != f.below))
    i = (i + 1) & (table_.size() - 1);
  return i;
}

void ReturnStacks::grow() {
  table_.assign(std::max<std::size_t>(16, table_.size() * 2), 0);
  for (std::uint32_t i = 1; i < frames_.size(); ++i) table_[slot(frames_[i])] = i;
}

std::uint32_t ReturnStacks::push(std::uint32_t state, std::uint32_t below) {
  if (frames_.size() * 2 > table_.size()) grow();
  const std::size_t at = slot({state, below});
  if (table_[at] == 0) {
    table_[at] = static_cast<std::uint32_t>(frames_.size());
    frames_.push_back({state, below});
  }
  return table_[at];
}

// In the order opposite to that in which they came, so that no chain of slots is broken.
void ReturnStacks::shrink(std::size_t size) {
  while (frames_.size() > size) {
    table_[slot(frames_.back())] = 0;
    frames_.pop_back();
  }
}

void ReturnStacks::spent() {
  throw GrammarError(
      "this grammar can be read in too many ways at once: give its rules different beginnings, and leave out "
      "parts that may be empty one behind the other");
}

// -------------------------------------------------------------------------------------------------- steps
namespace {

constexpr std::size_t kMostVisited = 512;  // calls in one step

bool put(Configurations& out, std::size_t begin, Configuration c) {
  for (std::size_t i = begin; i < out.size(); ++i)
    if (out[i] == c) return true;
  if (out.size() - begin >= GrammarLimits::kConfigurations) return false;
  out.push_back(c);
  return true;
}

// A rule that was called must say something: that it may be empty is an edge of the caller. Recursion ends:
// rules that begin with each other are at most GrammarLimits::kOpening (the compiler sees to it), and where
// several ways lead to one call it is followed once.
template <class Next, class Begins>
bool step_inside(const Grammar& g, ReturnStacks& stacks, Configuration from, const Next& next,
                 const Begins& begins, Configurations& out, std::size_t begin) {
  const Grammar::State& s = g.states[from.state];
  stacks.pay();
  if (const std::uint32_t to = next(s, from.state); to != Grammar::kNone)
    if (!put(out, begin, {to, from.stack})) return false;
  for (std::uint32_t i = 0; i < s.call_count; ++i) {
    const Grammar::Call& call = g.calls[s.calls + i];
    if (!begins(g.rules[call.rule])) continue;
    const Configuration inside{g.rules[call.rule].start,
                               g.states[call.to].bare ? from.stack : stacks.push(call.to, from.stack)};
    Configurations& visited = stacks.visited;
    stacks.pay(1 + visited.size() / 8);
    if (std::find(visited.begin(), visited.end(), inside) != visited.end()) continue;
    if (visited.size() >= kMostVisited) return false;
    visited.push_back(inside);
    if (!step_inside(g, stacks, inside, next, begins, out, begin)) return false;
  }
  return true;
}

template <class Next, class Begins>
bool step_from(const Grammar& g, ReturnStacks& stacks, Configuration from, const Next& next,
               const Begins& begins, Configurations& out, std::size_t begin) {
  stacks.visited.clear();
  for (;;) {
    if (!step_inside(g, stacks, from, next, begins, out, begin)) return false;
    if (!g.states[from.state].final || from.stack == 0) return true;
    from = {stacks[from.stack].state, stacks[from.stack].below};
  }
}

}  // namespace

bool step(const Grammar& g, ReturnStacks& stacks, Configuration from, std::uint8_t byte, Configurations& out,
          std::size_t begin) {
  return step_from(
      g, stacks, from, [&](const Grammar::State&, std::uint32_t state) { return g.next(state, byte); },
      [&](const Grammar::Rule& rule) { return rule.first[byte]; }, out, begin);
}

bool step_special(const Grammar& g, ReturnStacks& stacks, Configuration from, std::int32_t id,
                  Configurations& out) {
  const auto next = [&](const Grammar::State& s, std::uint32_t) {
    for (std::uint32_t i = 0; i < s.special_count; ++i)
      if (g.special_edges[s.specials + i].id == id) return g.special_edges[s.specials + i].to;
    return Grammar::kNone;
  };
  const auto begins = [&](const Grammar::Rule& rule) {
    return std::binary_search(rule.first_specials.begin(), rule.first_specials.end(), id);
  };
  return step_from(g, stacks, from, next, begins, out, 0);
}

bool may_end(const Grammar& g, const ReturnStacks& stacks, Configuration at) {
  while (g.states[at.state].final) {
    if (at.stack == 0) return true;
    at = {stacks[at.stack].state, stacks[at.stack].below};
  }
  return false;
}

bool accepts(const Grammar& g, std::string_view text) {
  ReturnStacks stacks;
  Configurations now = {{g.rules[g.root].start, 0}}, next;
  for (const char c : text) {
    next.clear();
    for (const Configuration& at : now)
      if (!step(g, stacks, at, static_cast<std::uint8_t>(c), next)) return false;
    now.swap(next);
    if (now.empty()) return false;
  }
  return std::any_of(now.begin(), now.end(), [&](const Configuration& c) { return may_end(g, stacks, c); });
}

}  // namespace rapt
