// SPDX-License-Identifier: Apache-2.0
// Subsets, products, and automata for decimals.
#include "rapt/text/grammar/char_dfa.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <map>
#include <unordered_map>

#include "rapt/base/text.h"
#include "rapt/base/unicode.h"

namespace rapt {
namespace {

constexpr std::uint32_t kDead = ~std::uint32_t{0};

struct SetHash {
  std::size_t operator()(const std::vector<std::uint32_t>& set) const {
    std::uint64_t h = set.size();
    for (const std::uint32_t x : set) h = (h ^ x) * 0x9E3779B97F4A7C15u, h ^= h >> 29;
    return static_cast<std::size_t>(h);
  }
};

[[noreturn]] void too_many_states() {
  throw GrammarError(concat("this needs an automaton of more than ", GrammarLimits::kDfaStates,
                            " states: allow less at once (shorter repetitions, a simpler pattern)"));
}

void check_states(std::size_t count) {
  if (count > GrammarLimits::kDfaStates) too_many_states();
}

// Neighbours that lead to the same state become one.
void append(std::vector<CharDfa::Edge>& edges, std::uint32_t first, std::uint32_t last, std::uint32_t to) {
  if (!edges.empty() && edges.back().to == to && edges.back().last + 1 == first) edges.back().last = last;
  else edges.push_back({first, last, to});
}

std::uint32_t follow(const CharDfa& dfa, std::uint32_t state, std::uint32_t c) {
  for (const CharDfa::Edge& e : dfa.states[state].edges)
    if (c >= e.first && c <= e.last) return e.to;
  return kDead;
}

}  // namespace

void GrammarBudget::spent() {
  throw GrammarError(concat("compiling this takes more than ", GrammarLimits::kWork,
                            " steps: make it smaller (fewer alternatives, shorter repetitions)"));
}

CharSet char_set(CharSet ranges) {
  std::sort(ranges.begin(), ranges.end());
  CharSet joined;
  for (const auto& [first, last] : ranges) {
    if (!joined.empty() && first <= joined.back().second + 1)
      joined.back().second = std::max(joined.back().second, last);
    else joined.push_back({first, last});
  }
  CharSet out;
  for (auto [first, last] : joined) {
    last = std::min(last, kLastChar);
    if (first < 0xD800 && last >= 0xD800) out.push_back({first, 0xD7FF}), first = 0xE000;
    if (first >= 0xD800 && first <= 0xDFFF) first = 0xE000;
    if (last >= 0xD800 && last <= 0xDFFF) last = 0xD7FF;
    if (first <= last) out.push_back({first, last});
  }
  return out;
}

CharSet complement(const CharSet& set) {
  CharSet out;
  std::uint32_t next = 0;
  for (const auto& [first, last] : set) {
    if (first > next) out.push_back({next, first - 1});
    next = last + 1;
  }
  if (next <= kLastChar) out.push_back({next, kLastChar});
  return char_set(out);
}

const CharSet& any_char() {
  static const CharSet all = char_set({{0, kLastChar}});
  return all;
}

bool CharDfa::accepts(std::string_view text) const {
  if (states.empty()) return false;
  std::uint32_t state = 0;
  for (std::size_t i = 0; i < text.size();) {
    const unicode::Char c = unicode::read(text, i);
    if (!c.valid || (state = follow(*this, state, c.code)) == kDead) return false;
    i += c.length;
  }
  return states[state].accepts;
}

void CharDfa::trim() {
  GrammarBudget budget;
  trim(budget);
}

void CharDfa::trim(GrammarBudget& budget) {
  const std::size_t n = states.size();
  if (n == 0) return;
  // Backwards from what accepts.
  std::vector<std::vector<std::uint32_t>> into(n);
  std::vector<std::uint32_t> todo;
  std::vector<std::uint8_t> alive(n, 0);
  for (std::uint32_t s = 0; s < n; ++s) {
    for (const Edge& e : states[s].edges) into[e.to].push_back(s);
    budget.pay(states[s].edges.size() + 1);
    if (states[s].accepts) alive[s] = 1, todo.push_back(s);
  }
  while (!todo.empty()) {
    const std::uint32_t s = todo.back();
    todo.pop_back();
    for (const std::uint32_t from : into[s])
      if (!alive[from]) alive[from] = 1, todo.push_back(from);
  }
  if (!alive[0]) {
    states.clear();
    return;
  }
  for (State& s : states) std::erase_if(s.edges, [&](const Edge& e) { return !alive[e.to]; });
  // Classes of states that accept the same, finer in every round.
  std::vector<std::uint32_t> kind(n);
  for (std::uint32_t s = 0; s < n; ++s) kind[s] = alive[s] ? states[s].accepts : kDead;
  std::size_t count = 0;
  for (std::vector<std::uint32_t> next(n), key;;) {
    std::unordered_map<std::vector<std::uint32_t>, std::uint32_t, SetHash> classes;
    for (std::uint32_t s = 0; s < n; ++s) {
      if (!alive[s]) continue;
      key.assign({kind[s]});
      for (const Edge& e : states[s].edges) {
        const std::uint32_t to = kind[e.to];
        if (key.size() > 1 && key.back() == to && key[key.size() - 2] + 1 == e.first)
          key[key.size() - 2] = e.last;
        else key.insert(key.end(), {e.first, e.last, to});
      }
      budget.pay(states[s].edges.size() + 1);
      next[s] = classes.emplace(key, static_cast<std::uint32_t>(classes.size())).first->second;
    }
    const bool same = classes.size() == count;
    count = classes.size();
    kind = next;
    if (same) break;
  }
  std::vector<State> small(count);
  std::vector<std::uint8_t> made(count, 0);
  const std::uint32_t first = kind[0];
  const auto place = [&](std::uint32_t k) { return k == first ? 0 : k < first ? k + 1 : k; };
  for (std::uint32_t s = 0; s < n; ++s) {
    if (!alive[s] || made[kind[s]]) continue;
    made[kind[s]] = 1;
    State& out = small[place(kind[s])];
    out.accepts = states[s].accepts;
    for (const Edge& e : states[s].edges) append(out.edges, e.first, e.last, place(kind[e.to]));
  }
  states = std::move(small);
}

// ---------------------------------------------------------------------------------------------- subsets
std::uint32_t CharNfa::add() {
  if (states_.size() >= 8 * GrammarLimits::kDfaStates) too_many_states();
  states_.emplace_back();
  return static_cast<std::uint32_t>(states_.size() - 1);
}

void CharNfa::edge(std::uint32_t from, const CharSet& set, std::uint32_t to) {
  for (const auto& [first, last] : set) states_[from].edges.push_back({first, last, to});
}

void CharNfa::close(std::vector<std::uint32_t>& set, bool begin, bool end, std::vector<std::uint8_t>& seen,
                    GrammarBudget& budget) const {
  for (const std::uint32_t s : set) seen[s] = 1;
  for (std::size_t i = 0; i < set.size(); ++i) {
    budget.pay(states_[set[i]].free.size() + 1);
    for (const FreeEdge& e : states_[set[i]].free) {
      if ((e.when == Free::begin && !begin) || (e.when == Free::end && !end) || seen[e.to]) continue;
      seen[e.to] = 1;
      set.push_back(e.to);
    }
  }
  for (const std::uint32_t s : set) seen[s] = 0;
  std::sort(set.begin(), set.end());
}

CharDfa CharNfa::determinize(std::uint32_t start, std::uint32_t accept, GrammarBudget& budget) const {
  CharDfa dfa;
  std::vector<std::uint8_t> seen(states_.size(), 0);
  std::unordered_map<std::vector<std::uint32_t>, std::uint32_t, SetHash> known;
  std::vector<std::vector<std::uint32_t>> sets;
  const auto accepts = [&](std::vector<std::uint32_t> set, bool begin) {
    close(set, begin, true, seen, budget);
    return std::binary_search(set.begin(), set.end(), accept);
  };
  const auto state_of = [&](std::vector<std::uint32_t> set, bool begin) {
    close(set, begin, false, seen, budget);
    if (begin) {  // a state of its own: there ^ may still be passed on the way to $
      sets.push_back(set);
      dfa.states.push_back({{}, accepts(set, true)});
      return 0u;
    }
    const auto [at, fresh] = known.emplace(std::move(set), static_cast<std::uint32_t>(sets.size()));
    if (fresh) {
      check_states(sets.size() + 1);
      sets.push_back(at->first);
      dfa.states.push_back({{}, accepts(at->first, false)});
    }
    return at->second;
  };
  state_of({start}, true);
  std::vector<std::uint32_t> cuts, active;
  std::vector<CharDfa::Edge> edges;
  for (std::size_t i = 0; i < sets.size(); ++i) {
    edges.clear();
    for (const std::uint32_t s : sets[i])
      edges.insert(edges.end(), states_[s].edges.begin(), states_[s].edges.end());
    cuts.clear();
    for (const CharDfa::Edge& e : edges) cuts.insert(cuts.end(), {e.first, e.last + 1});
    std::sort(cuts.begin(), cuts.end());
    cuts.erase(std::unique(cuts.begin(), cuts.end()), cuts.end());
    std::sort(edges.begin(), edges.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
    std::size_t next = 0;
    active.clear();  // edges that are open between two cuts
    for (std::size_t c = 0; c + 1 < cuts.size(); ++c) {
      std::erase_if(active, [&](std::uint32_t e) { return edges[e].last < cuts[c]; });
      while (next < edges.size() && edges[next].first == cuts[c])
        active.push_back(static_cast<std::uint32_t>(next++));
      budget.pay(active.size() + 4);
      if (active.empty()) continue;
      std::vector<std::uint32_t> to;
      for (const std::uint32_t e : active) to.push_back(edges[e].to);
      std::sort(to.begin(), to.end());
      to.erase(std::unique(to.begin(), to.end()), to.end());
      const std::uint32_t target = state_of(std::move(to), false);
      append(dfa.states[i].edges, cuts[c], cuts[c + 1] - 1, target);
    }
  }
  dfa.trim(budget);
  return dfa;
}

// ---------------------------------------------------------------------------------------------- products
namespace {

CharDfa product(const CharDfa& a, const CharDfa& b, bool subtract, GrammarBudget& budget) {
  CharDfa out;
  if (a.nothing()) return out;
  if (b.nothing()) return subtract ? a : out;
  std::unordered_map<std::uint64_t, std::uint32_t> known;
  std::vector<std::pair<std::uint32_t, std::uint32_t>> pairs;
  const auto state_of = [&](std::uint32_t x, std::uint32_t y) {
    const auto [at, fresh] =
        known.emplace(std::uint64_t{x} << 32 | y, static_cast<std::uint32_t>(pairs.size()));
    if (fresh) {
      check_states(pairs.size() + 1);
      pairs.push_back({x, y});
      const bool in_b = y != kDead && b.states[y].accepts;
      out.states.push_back({{}, a.states[x].accepts && in_b != subtract});
    }
    return at->second;
  };
  state_of(0, 0);
  const std::vector<CharDfa::Edge> none;
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    const auto [x, y] = pairs[i];
    const std::vector<CharDfa::Edge>& other = y == kDead ? none : b.states[y].edges;
    std::size_t k = 0;
    std::vector<CharDfa::Edge> edges;  // state_of() moves the states
    for (const CharDfa::Edge& e : a.states[x].edges) {
      budget.pay();
      std::uint32_t at = e.first;
      while (k < other.size() && other[k].last < at) ++k;
      for (std::size_t j = k; at <= e.last; ++j) {
        budget.pay();
        if (j >= other.size() || other[j].first > e.last) {
          if (subtract) edges.push_back({at, e.last, state_of(e.to, kDead)});
          break;
        }
        if (other[j].first > at) {
          if (subtract) edges.push_back({at, other[j].first - 1, state_of(e.to, kDead)});
          at = other[j].first;
        }
        const std::uint32_t last = std::min(e.last, other[j].last);
        edges.push_back({at, last, state_of(e.to, other[j].to)});
        at = last + 1;
      }
    }
    for (const CharDfa::Edge& e : edges) append(out.states[i].edges, e.first, e.last, e.to);
  }
  out.trim(budget);
  return out;
}

}  // namespace

CharDfa both(const CharDfa& a, const CharDfa& b, GrammarBudget& budget) {
  return product(a, b, false, budget);
}
CharDfa without(const CharDfa& a, const CharDfa& b, GrammarBudget& budget) {
  return product(a, b, true, budget);
}

CharDfa any_text(int min_length, int max_length) {
  CharDfa dfa;
  if (max_length >= 0 && max_length < min_length) return dfa;
  const int last = max_length < 0 ? min_length : max_length;
  check_states(static_cast<std::size_t>(last) + 1);
  for (int i = 0; i <= last; ++i) {
    CharDfa::State s{{}, i >= min_length};
    const int to = i < last ? i + 1 : max_length < 0 ? i : -1;
    if (to >= 0)
      for (const auto& [first, end] : any_char())
        s.edges.push_back({first, end, static_cast<std::uint32_t>(to)});
    dfa.states.push_back(std::move(s));
  }
  return dfa;
}

CharDfa one_of(const std::vector<std::string_view>& texts, GrammarBudget& budget) {
  CharNfa nfa;
  const std::uint32_t start = nfa.add(), end = nfa.add();
  for (const std::string_view text : texts) {
    std::uint32_t at = start;
    for (const std::uint32_t c : unicode::codes(text)) {
      const std::uint32_t next = nfa.add();
      nfa.edge(at, {{c, c}}, next);
      at = next;
    }
    nfa.free(at, end);
  }
  return nfa.determinize(start, end, budget);
}

// ---------------------------------------------------------------------------------------------- decimals
namespace {

void digits(CharDfa& dfa, std::uint32_t from, char first, char last, std::uint32_t to) {
  if (first > last) return;
  dfa.states[from].edges.push_back({static_cast<std::uint32_t>(first), static_cast<std::uint32_t>(last), to});
}
std::uint32_t add(CharDfa& dfa, bool accepts) {
  dfa.states.push_back({{}, accepts});
  return static_cast<std::uint32_t>(dfa.states.size() - 1);
}
void order(CharDfa& dfa) {
  for (CharDfa::State& s : dfa.states)
    std::sort(s.edges.begin(), s.edges.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
}

// The digits behind '.', all of them free: what stands before has decided.
std::uint32_t add_fraction(CharDfa& dfa, bool accepts) {
  const std::uint32_t dot = add(dfa, false), more = add(dfa, accepts);
  digits(dfa, dot, '0', '9', more);
  digits(dfa, more, '0', '9', more);
  return dot;
}

// Adds the automaton of magnitudes that compare so with whole.part, and says where it begins.
std::uint32_t add_magnitude(CharDfa& dfa, std::string_view whole, std::string_view part, bool less,
                            bool equal, bool greater) {
  const auto n = whole.size();
  const std::uint32_t less_dot = add_fraction(dfa, less), greater_dot = add_fraction(dfa, greater);
  // Behind '.', as long as everything was equal: at[q] has read q digits of `part`; behind it only zeros are.
  // What ends within `part`, which does not end with 0, is less.
  std::vector<std::uint32_t> at;
  for (std::size_t q = 0; q <= part.size(); ++q)
    at.push_back(add(dfa, q > 0 && (q < part.size() ? less : equal)));
  if (part.empty()) at.push_back(add(dfa, equal));
  for (std::size_t q = 0; q < at.size(); ++q) {
    const char d = q < part.size() ? part[q] : '0';
    const std::uint32_t same =
        std::min<std::uint32_t>(static_cast<std::uint32_t>(q) + 1, static_cast<std::uint32_t>(at.size()) - 1);
    digits(dfa, at[q], '0', static_cast<char>(d - 1), less_dot + 1);
    digits(dfa, at[q], d, d, at[same]);
    digits(dfa, at[q], static_cast<char>(d + 1), '9', greater_dot + 1);
  }
  const bool point_is_less = !part.empty();  // whole without a fraction, beside whole.part
  const std::uint32_t start = add(dfa, false);
  // Longer than `whole`: greater whatever follows.
  const std::uint32_t longer = add(dfa, greater);
  digits(dfa, longer, '0', '9', longer);
  digits(dfa, longer, '.', '.', greater_dot);
  // p digits read: less, equal or greater than the first p digits of `whole`.
  enum { kLess, kEqual, kGreater };
  std::vector<std::array<std::uint32_t, 3>> read(n + 1);
  for (std::size_t p = 1; p <= n; ++p) {
    const bool all = p == n;
    read[p][kLess] = add(dfa, less);
    read[p][kEqual] = add(dfa, all ? (point_is_less ? less : equal) : less);
    read[p][kGreater] = add(dfa, all ? greater : less);
    digits(dfa, read[p][kLess], '.', '.', less_dot);
    digits(dfa, read[p][kEqual], '.', '.', all ? at[0] : less_dot);
    digits(dfa, read[p][kGreater], '.', '.', all ? greater_dot : less_dot);
  }
  for (std::size_t p = 1; p <= n; ++p) {
    if (p == n) {
      for (const std::uint32_t s : read[p]) digits(dfa, s, '0', '9', longer);
      continue;
    }
    const char d = whole[p];
    digits(dfa, read[p][kLess], '0', '9', read[p + 1][kLess]);
    digits(dfa, read[p][kGreater], '0', '9', read[p + 1][kGreater]);
    digits(dfa, read[p][kEqual], '0', static_cast<char>(d - 1), read[p + 1][kLess]);
    digits(dfa, read[p][kEqual], d, d, read[p + 1][kEqual]);
    digits(dfa, read[p][kEqual], static_cast<char>(d + 1), '9', read[p + 1][kGreater]);
  }
  // 0 alone before the point, or no 0 in front.
  const std::uint32_t zero = add(dfa, whole == "0" ? (point_is_less ? less : equal) : less);
  digits(dfa, zero, '.', '.', whole == "0" ? at[0] : less_dot);
  digits(dfa, start, '0', '0', zero);
  const char d = whole[0];
  digits(dfa, start, '1', static_cast<char>(d - 1), read[1][kLess]);
  if (d != '0') digits(dfa, start, d, d, read[1][kEqual]);
  digits(dfa, start, static_cast<char>(std::max(d + 1, int{'1'})), '9', read[1][kGreater]);
  return start;
}

}  // namespace

CharDfa decimal_compare(std::string_view bound, bool less, bool equal, bool greater) {
  const bool negative = bound.starts_with('-');
  if (negative) bound.remove_prefix(1);
  const std::size_t dot = bound.find('.');
  const std::string_view whole = bound.substr(0, dot);
  std::string_view part = dot == bound.npos ? "" : bound.substr(dot + 1);
  while (part.ends_with('0')) part.remove_suffix(1);
  const bool zero = whole == "0" && part.empty();
  CharDfa dfa;
  const std::uint32_t start = add(dfa, false);
  // x ≥ 0 beside the bound, and -x: its order is the other way round.
  const std::uint32_t up = negative && !zero ? add_magnitude(dfa, "0", "", greater, greater, greater)
                                             : add_magnitude(dfa, whole, part, less, equal, greater);
  const std::uint32_t down = negative || zero ? add_magnitude(dfa, whole, part, greater, equal, less)
                                              : add_magnitude(dfa, "0", "", less, less, less);
  dfa.states[start].edges = dfa.states[up].edges;
  digits(dfa, start, '-', '-', down);
  order(dfa);
  dfa.trim();
  return dfa;
}

CharDfa integer_text() {
  CharDfa dfa;
  dfa.states = {{{{'-', '-', 1}, {'0', '0', 2}, {'1', '9', 3}}, false},
                {{{'1', '9', 3}}, false},
                {{}, true},
                {{{'0', '9', 3}}, true}};
  return dfa;
}

CharDfa decimal_text() { return decimal_compare("0", true, true, true); }

CharDfa multiple_text(std::uint64_t step, int places, GrammarBudget& budget) {
  // The value so far, times 10^places once all places are read, modulo `step`.
  if (step == 0 || step > GrammarLimits::kDfaStates / static_cast<std::size_t>(places + 2)) too_many_states();
  const auto m = static_cast<std::uint32_t>(step);
  CharDfa dfa;
  const std::uint32_t start = add(dfa, false), sign = add(dfa, false);
  std::vector<std::uint32_t> power(static_cast<std::size_t>(places) + 1, 1 % m);  // 10^i mod m
  for (std::size_t i = 1; i < power.size(); ++i) power[i] = power[i - 1] * 10 % m;
  const auto rest = [&](std::uint32_t r, int read) {
    return std::uint64_t{r} * power[static_cast<std::size_t>(places - read)] % m == 0;
  };
  std::vector<std::uint32_t> whole(m);
  for (std::uint32_t r = 0; r < m; ++r) whole[r] = add(dfa, rest(r, 0));
  const std::uint32_t zero = add(dfa, true);
  std::vector<std::vector<std::uint32_t>> part(static_cast<std::size_t>(places) + 1);
  for (int q = 0; q <= places; ++q)
    for (std::uint32_t r = 0; r < m; ++r)
      part[static_cast<std::size_t>(q)].push_back(add(dfa, q > 0 && rest(r, q)));
  const std::uint32_t zeros_dot = add(dfa, false), zeros = add(dfa, true);  // .000 behind a multiple
  digits(dfa, zeros_dot, '0', '0', zeros);
  digits(dfa, zeros, '0', '0', zeros);
  for (std::uint32_t r = 0; r < m; ++r) {
    budget.pay(10 * (static_cast<std::size_t>(places) + 2));
    for (char d = '0'; d <= '9'; ++d) {
      const std::uint32_t to = (r * 10 + static_cast<std::uint32_t>(d - '0')) % m;
      digits(dfa, whole[r], d, d, whole[to]);
      for (int q = 0; q < places; ++q)
        digits(dfa, part[static_cast<std::size_t>(q)][r], d, d, part[static_cast<std::size_t>(q) + 1][to]);
    }
    if (places > 0) digits(dfa, whole[r], '.', '.', part[0][r]);
    else if (r == 0) digits(dfa, whole[r], '.', '.', zeros_dot);
  }
  if (places > 0 && !part.back().empty()) digits(dfa, part.back()[0], '0', '0', zeros);
  digits(dfa, zero, '.', '.', places > 0 ? part[0][0] : zeros_dot);
  digits(dfa, start, '-', '-', sign);
  for (const std::uint32_t s : {start, sign}) {
    digits(dfa, s, '0', '0', zero);
    for (char d = '1'; d <= '9'; ++d) digits(dfa, s, d, d, whole[static_cast<std::uint32_t>(d - '0') % m]);
  }
  order(dfa);
  dfa.trim(budget);
  return dfa;
}

std::string decimal_of(const Json& number) {
  const double x = number.number();
  if (!number.is_real()) return concat(number.integer());
  char text[400];  // 309 digits before the point, or 17 behind 324 zeros
  std::string out(text, std::to_chars(text, text + sizeof(text), x, std::chars_format::fixed).ptr);
  if (const std::size_t dot = out.find('.'); dot != out.npos) {
    while (out.ends_with('0')) out.pop_back();
    if (out.ends_with('.')) out.pop_back();
  }
  return out == "-0" ? "0" : out;
}

}  // namespace rapt
