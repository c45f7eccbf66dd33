// SPDX-License-Identifier: Apache-2.0
// Rules → NFAs → subsets → a grammar without what leads nowhere.
#include "rapt/text/grammar/compile.h"

#include <algorithm>
#include <deque>
#include <unordered_map>

#include "rapt/base/text.h"
#include "rapt/base/unicode.h"

namespace rapt {
namespace {

using Expression = GrammarBuilder::State::Expression;
using Kind = Expression::Kind;

struct NfaState {
  std::vector<Grammar::Range> ranges;
  std::vector<Grammar::Call> calls;
  std::vector<Grammar::Special> specials;
  std::vector<std::uint32_t> free;
  std::uint16_t run = 0;
};

// The NFA of one rule.
class RuleNfa {
 public:
  RuleNfa(GrammarBuilder::State& source, const std::vector<std::uint8_t>& nullable)
      : source_(source), nullable_(nullable) {}
  void make(std::uint32_t body) {
    states_.clear();
    add(), add();
    emit(source_.expressions[body], 0, 1);
  }
  static constexpr std::uint32_t kStart = 0, kEnd = 1;
  const NfaState& operator[](std::uint32_t i) const { return states_[i]; }
  std::size_t size() const { return states_.size(); }

 private:
  std::uint32_t add() {
    source_.budget.pay();
    if (states_.size() >= 4 * GrammarLimits::kStates) throw GrammarError("a rule of too many parts");
    states_.emplace_back();
    return static_cast<std::uint32_t>(states_.size() - 1);
  }
  void range(std::uint32_t from, std::uint32_t first, std::uint32_t last, std::uint32_t to) {
    source_.budget.pay();
    states_[from].ranges.push_back({static_cast<std::uint8_t>(first), static_cast<std::uint8_t>(last), to});
  }
  void free(std::uint32_t from, std::uint32_t to) {
    source_.budget.pay();
    if (from != to) states_[from].free.push_back(to);
  }
  void call(std::uint32_t from, std::uint32_t rule, std::uint32_t to) {
    source_.budget.pay();
    states_[from].calls.push_back({rule, to});
    if (nullable_[rule]) free(from, to);  // a call itself says something
  }
  void safe(std::uint32_t from, std::uint32_t to) {
    for (const char* p = kSafeBytes; *p; p += 2)
      range(from, static_cast<std::uint8_t>(p[0]), static_cast<std::uint8_t>(p[1]), to);
  }

  // Bytes of UTF-8 from low to high, both of n bytes; equal tails are shared.
  struct Tail {
    std::uint32_t low, high, to;
    int n;
    auto operator<=>(const Tail&) const = default;
  };
  std::uint32_t tail(std::uint32_t low, std::uint32_t high, int n, std::uint32_t to) {
    const auto [at, fresh] = tails_.try_emplace(Tail{low, high, to, n}, 0);
    if (fresh) {
      const std::uint32_t state = at->second = add();
      bytes(state, low, high, n, to);
      return state;
    }
    return at->second;
  }
  void bytes(std::uint32_t from, std::uint32_t low, std::uint32_t high, int n, std::uint32_t to) {
    if (n == 1) return range(from, low, high, to);
    const int shift = 8 * (n - 1);
    const std::uint32_t mask = (1u << shift) - 1, least = 0x808080 & mask, most = 0xBFBFBF & mask;
    std::uint32_t first = low >> shift, last = high >> shift;
    if (first == last) return range(from, first, first, tail(low & mask, high & mask, n - 1, to));
    if ((low & mask) != least) {
      range(from, first, first, tail(low & mask, most, n - 1, to));
      ++first;
    }
    if ((high & mask) != most) {
      range(from, last, last, tail(least, high & mask, n - 1, to));
      --last;
    }
    if (first <= last) range(from, first, last, tail(least, most, n - 1, to));
  }
  static std::uint32_t packed(std::uint32_t code) {
    std::string text;
    unicode::append(text, code);
    std::uint32_t out = 0;
    for (const char c : text) out = out << 8 | static_cast<std::uint8_t>(c);
    return out;
  }
  void utf8(std::uint32_t from, std::uint32_t first, std::uint32_t last, std::uint32_t to) {
    static constexpr std::uint32_t kEnds[] = {0x7F, 0x7FF, 0xFFFF, kLastChar};
    for (int n = 1; n <= 4; ++n) {
      const std::uint32_t begin = n == 1 ? 0 : kEnds[n - 2] + 1, end = kEnds[n - 1];
      const std::uint32_t low = std::max(first, begin), high = std::min(last, end);
      if (low <= high) bytes(from, packed(low), packed(high), n, to);
    }
  }
  // As in a JSON string: what must be escaped is, in its shortest form.
  void escaped(std::uint32_t from, std::uint32_t first, std::uint32_t last, std::uint32_t to) {
    std::uint32_t slash = kUndefined, zeros = kUndefined;
    const auto behind_slash = [&] {
      if (slash == kUndefined) range(from, '\\', '\\', slash = add());
      return slash;
    };
    for (std::uint32_t c = first; c <= std::min(last, std::uint32_t{0x1F}); ++c) {
      static constexpr std::string_view kCodes = "\b\t\n\f\r", kLetters = "btnfr";
      if (const std::size_t at = kCodes.find(static_cast<char>(c)); at != kCodes.npos) {
        range(behind_slash(), static_cast<std::uint8_t>(kLetters[at]),
              static_cast<std::uint8_t>(kLetters[at]), to);
        continue;
      }
      if (zeros == kUndefined) {
        std::uint32_t at = behind_slash();
        for (const char d : {'u', '0', '0'}) {
          const std::uint32_t next = add();
          range(at, static_cast<std::uint8_t>(d), static_cast<std::uint8_t>(d), next);
          at = next;
        }
        zeros = at;
      }
      const std::uint32_t low = add();
      range(zeros, '0' + (c >> 4), '0' + (c >> 4), low);
      const std::uint32_t d = c & 15;
      range(low, d < 10 ? '0' + d : 'a' + d - 10, d < 10 ? '0' + d : 'a' + d - 10, to);
      if (d >= 10) range(low, 'A' + d - 10, 'A' + d - 10, to);
    }
    for (const std::uint32_t c : {std::uint32_t{'"'}, std::uint32_t{'\\'}})
      if (first <= c && c <= last) range(behind_slash(), c, c, to);
    static constexpr std::pair<std::uint32_t, std::uint32_t> kPlain[] = {
        {0x20, '"' - 1}, {'"' + 1, '\\' - 1}, {'\\' + 1, kLastChar}};
    for (const auto& [low, high] : kPlain)
      if (std::max(first, low) <= std::min(last, high))
        utf8(from, std::max(first, low), std::min(last, high), to);
  }

  void emit(const Expression& e, std::uint32_t from, std::uint32_t to) {
    source_.budget.pay();
    switch (e.kind) {
      case Kind::nothing: break;
      case Kind::literal: {
        if (e.text.empty()) return free(from, to);
        for (std::size_t i = 0; i < e.text.size(); ++i) {
          const auto b = static_cast<std::uint8_t>(e.text[i]);
          const std::uint32_t next = i + 1 == e.text.size() ? to : add();
          range(from, b, b, next);
          from = next;
        }
        break;
      }
      case Kind::special: states_[from].specials.push_back({e.ids[0], to}); break;
      case Kind::byte: range(from, e.set[0].first, e.set[0].second, to); break;
      case Kind::character:
        for (const auto& [first, last] : e.set) utf8(from, first, last, to);
        break;
      case Kind::automaton: {
        std::vector<std::uint32_t> at;
        for (std::size_t i = 0; i < e.dfa->states.size(); ++i) at.push_back(add());
        free(from, at[0]);
        for (std::size_t i = 0; i < at.size(); ++i) {
          if (e.dfa->states[i].accepts) free(at[i], to);
          if (stays(*e.dfa, static_cast<std::uint32_t>(i))) states_[at[i]].run = Grammar::kFree;
          for (const CharDfa::Edge& edge : e.dfa->states[i].edges) {
            if (e.escaped) escaped(at[i], edge.first, edge.last, at[edge.to]);
            else utf8(at[i], edge.first, edge.last, at[edge.to]);
          }
        }
        break;
      }
      case Kind::sequence: {
        for (std::size_t i = 0; i < e.parts.size(); ++i) {
          const std::uint32_t next = i + 1 == e.parts.size() ? to : add();
          emit(part(e, i), from, next);
          from = next;
        }
        if (e.parts.empty()) free(from, to);
        break;
      }
      case Kind::choice:
        // No part comes back to its own beginning, so they may share one.
        for (std::size_t i = 0; i < e.parts.size(); ++i) emit(part(e, i), from, to);
        break;
      case Kind::repeat: repeat(e, from, to); break;
      case Kind::rule: call(from, e.rule, to); break;
      case Kind::string: string(e, from, to); break;
      case Kind::text: text(e, from, to); break;
      case Kind::graph: {
        std::vector<std::uint32_t> vertices;
        for (int i = 0; i < e.min; ++i) vertices.push_back(add());
        free(from, vertices[0]);
        free(vertices[1], to);
        for (std::size_t i = 0; i < e.parts.size(); ++i)
          emit(part(e, i), vertices[static_cast<std::size_t>(e.ids[2 * i])],
               vertices[static_cast<std::size_t>(e.ids[2 * i + 1])]);
        break;
      }
    }
  }
  const Expression& part(const Expression& e, std::size_t i) const {
    return source_.expressions[e.parts[i].index];
  }

  // Every character that a JSON string need not escape leads back to this state.
  static bool stays(const CharDfa& dfa, std::uint32_t state) {
    std::uint32_t next = 0x20;
    for (const CharDfa::Edge& e : dfa.states[state].edges) {
      while (next == '"' || next == '\\') ++next;
      if (next == 0xD800) next = 0xE000;
      if (e.last < next) continue;
      if (e.first > next || e.to != state) return false;
      next = e.last + 1;
    }
    return next > kLastChar;
  }

  void repeat(const Expression& e, std::uint32_t from, std::uint32_t to) {
    const auto once = [&] {
      const std::uint32_t next = add();
      emit(part(e, 0), from, next);
      from = next;
    };
    for (int i = 0; i < e.min; ++i) once();
    if (e.max < 0) {
      const std::uint32_t loop = add(), back = add();
      free(from, loop);
      emit(part(e, 0), loop, back);
      free(back, loop);
      return free(loop, to);
    }
    for (int i = e.min; i < e.max; ++i) {
      free(from, to);
      once();
    }
    free(from, to);
  }

  // Characters are counted; without an upper end the last state is the one that all strings share.
  void string(const Expression& e, std::uint32_t from, std::uint32_t to) {
    std::uint32_t at = add();
    range(from, '"', '"', at);
    const int last = e.max < 0 ? e.min : e.max;
    for (int i = 0; i < last; ++i) {
      const std::uint32_t next = add();
      safe(at, next);
      call(at, SharedRules::kChar, next);
      if (i >= e.min) range(at, '"', '"', to);
      states_[at].run = e.max < 0 ? Grammar::kFree : static_cast<std::uint16_t>(last - i);
      at = next;
    }
    if (e.max < 0) call(at, SharedRules::kRest, to);
    else range(at, '"', '"', to);
  }

  // Aho and Corasick's automaton without the states in which one of the texts was found.
  void text(const Expression& e, std::uint32_t from, std::uint32_t to) {
    struct Place {
      std::map<std::uint8_t, std::uint32_t> next;
      std::uint32_t fallback = 0;
      bool found = false;
    };
    std::vector<Place> places(1);
    for (const std::string& stop : e.stops) {
      std::uint32_t at = 0;
      for (const char c : stop) {
        const auto [edge, fresh] = places[at].next.try_emplace(static_cast<std::uint8_t>(c),
                                                               static_cast<std::uint32_t>(places.size()));
        at = edge->second;
        if (fresh) places.emplace_back();
      }
      places[at].found = true;
    }
    const auto follow = [&](std::uint32_t at, std::uint8_t b) {
      for (;; at = places[at].fallback) {
        source_.budget.pay();
        if (const auto edge = places[at].next.find(b); edge != places[at].next.end()) return edge->second;
        if (at == 0) return at;
      }
    };
    std::deque<std::uint32_t> order = {0};
    for (; !order.empty(); order.pop_front()) {
      const std::uint32_t at = order.front();
      for (const auto& [b, to_place] : places[at].next) {
        places[to_place].fallback = at == 0 ? 0 : follow(places[at].fallback, b);
        places[to_place].found |= places[places[to_place].fallback].found;
        order.push_back(to_place);
      }
    }
    std::vector<std::uint32_t> state(places.size());
    for (std::uint32_t& s : state) s = add();
    free(from, state[0]);
    for (std::uint32_t p = 0; p < places.size(); ++p) {
      if (places[p].found) continue;
      free(state[p], to);
      for (const std::int32_t id : e.ids) states_[state[p]].specials.push_back({id, state[0]});
      std::uint32_t begin = 0;
      for (std::uint32_t b = 0; b < 256; ++b) {
        const std::uint32_t here = follow(p, static_cast<std::uint8_t>(b));
        if (b < 255 && follow(p, static_cast<std::uint8_t>(b + 1)) == here) continue;
        if (!places[here].found) range(state[p], begin, b, state[here]);
        begin = b + 1;
      }
    }
  }

  GrammarBuilder::State& source_;
  const std::vector<std::uint8_t>& nullable_;
  std::deque<NfaState> states_;
  std::map<Tail, std::uint32_t> tails_;

 public:
  void forget() { tails_.clear(); }
};

struct DfaState {
  std::vector<Grammar::Range> ranges;
  std::vector<Grammar::Call> calls;
  std::vector<Grammar::Special> specials;
  std::uint16_t run = 0;
  bool final = false, alive = false;
};

class Compiler {
 public:
  Compiler(GrammarBuilder::State& source, std::uint32_t root) : source_(source), root_(root) {}

  std::shared_ptr<const Grammar> run() {
    find_used();
    find_nullable();
    RuleNfa nfa(source_, nullable_);
    for (std::uint32_t r = 0; r < source_.rules.size(); ++r) {
      start_.push_back(Grammar::kNone);
      if (used_[r]) {
        nfa.forget();
        nfa.make(source_.rules[r].body);
        determinize(nfa);
      }
      if (r + 1 == SharedRules::kCount) shared_ = static_cast<std::uint32_t>(states_.size());
    }
    find_alive();
    return finish();
  }

 private:
  // Rules that the root leads to, and those of every grammar.
  void find_used() {
    used_.assign(source_.rules.size(), 0);
    std::vector<std::uint32_t> rules;
    const auto use = [&](std::uint32_t r) {
      if (!used_[r]) used_[r] = 1, rules.push_back(r);
    };
    for (std::uint32_t r = 0; r < SharedRules::kCount; ++r) use(r);
    use(root_);
    std::vector<std::uint8_t> seen(source_.expressions.size(), 0);
    std::vector<std::uint32_t> todo;
    while (!rules.empty()) {
      const GrammarBuilder::State::Rule& rule = source_.rules[rules.back()];
      rules.pop_back();
      if (rule.body == kUndefined) throw GrammarError(concat("the rule '", rule.name, "' is not defined"));
      todo.push_back(rule.body);
      while (!todo.empty()) {
        const std::uint32_t i = todo.back();
        todo.pop_back();
        if (seen[i]) continue;
        seen[i] = 1;
        const Expression& e = source_.expressions[i];
        source_.budget.pay(1 + e.parts.size());
        if (e.kind == Kind::rule) use(e.rule);
        for (const auto part : e.parts) todo.push_back(part.index);
      }
    }
  }

  // Parts stand before what is made of them, so one pass in their order is enough for all but the rules.
  void find_nullable() {
    nullable_.assign(source_.rules.size(), 0);
    std::vector<std::uint8_t> empty(source_.expressions.size(), 0);
    for (bool again = true; again;) {
      again = false;
      for (std::size_t i = 0; i < empty.size(); ++i) {
        const Expression& e = source_.expressions[i];
        source_.budget.pay();
        const auto is = [&](GrammarBuilder::Node n) { return empty[n.index] != 0; };
        switch (e.kind) {
          case Kind::literal: empty[i] = e.text.empty(); break;
          case Kind::automaton: empty[i] = e.dfa->states[0].accepts; break;
          case Kind::sequence: empty[i] = std::all_of(e.parts.begin(), e.parts.end(), is); break;
          case Kind::choice: empty[i] = std::any_of(e.parts.begin(), e.parts.end(), is); break;
          case Kind::repeat: empty[i] = e.min == 0 || is(e.parts[0]); break;
          case Kind::rule: empty[i] = nullable_[e.rule]; break;
          case Kind::text: empty[i] = 1; break;
          case Kind::graph: empty[i] = graph_empty(e, empty); break;
          default: break;
        }
      }
      for (std::size_t r = 0; r < nullable_.size(); ++r) {
        const std::uint32_t body = source_.rules[r].body;
        if (body == kUndefined || nullable_[r] || !empty[body]) continue;
        nullable_[r] = 1;
        again = true;
      }
    }
  }

  bool graph_empty(const Expression& e, const std::vector<std::uint8_t>& empty) {
    std::vector<std::uint8_t> reached(static_cast<std::size_t>(e.min), 0);
    reached[0] = 1;
    for (bool again = true; again;) {
      again = false;
      for (std::size_t i = 0; i < e.parts.size(); ++i) {
        source_.budget.pay();
        const auto from = static_cast<std::size_t>(e.ids[2 * i]),
                   to = static_cast<std::size_t>(e.ids[2 * i + 1]);
        if (reached[from] && !reached[to] && empty[e.parts[i].index]) reached[to] = 1, again = true;
      }
    }
    return reached[1] != 0;
  }

  struct Hash {
    std::size_t operator()(const std::vector<std::uint32_t>& set) const {
      std::uint64_t h = set.size();
      for (const std::uint32_t x : set) h = (h ^ x) * 0x9E3779B97F4A7C15u, h ^= h >> 29;
      return static_cast<std::size_t>(h);
    }
  };

  void determinize(const RuleNfa& nfa) {
    std::unordered_map<std::vector<std::uint32_t>, std::uint32_t, Hash> known;
    std::vector<std::vector<std::uint32_t>> sets;
    std::vector<std::uint32_t> alone(nfa.size(), kUndefined);  // the state of a set of one
    std::vector<std::uint8_t> seen(nfa.size(), 0);
    const auto base = static_cast<std::uint32_t>(states_.size());
    const auto state_of = [&](const std::vector<std::uint32_t>& from) {
      if (from.size() == 1 && alone[from[0]] != kUndefined) return alone[from[0]];
      std::vector<std::uint32_t> set, reached = from;
      for (const std::uint32_t s : reached) seen[s] = 1;
      for (std::size_t i = 0; i < reached.size(); ++i) {
        const NfaState& s = nfa[reached[i]];
        source_.budget.pay(1 + s.free.size());
        if (reached[i] == RuleNfa::kEnd || !s.ranges.empty() || !s.calls.empty() || !s.specials.empty())
          set.push_back(reached[i]);
        for (const std::uint32_t to : s.free)
          if (!seen[to]) seen[to] = 1, reached.push_back(to);
      }
      for (const std::uint32_t s : reached) seen[s] = 0;
      std::sort(set.begin(), set.end());
      const auto [at, fresh] = known.try_emplace(set, base + static_cast<std::uint32_t>(sets.size()));
      if (fresh) {
        if (states_.size() >= GrammarLimits::kStates)
          throw GrammarError(
              concat("a grammar of more than ", GrammarLimits::kStates, " states: make it smaller"));
        sets.push_back(std::move(set));
        states_.emplace_back();
      }
      if (from.size() == 1) alone[from[0]] = at->second;
      return at->second;
    };
    start_.back() = state_of({RuleNfa::kStart});
    std::vector<Grammar::Range> ranges;
    std::vector<std::uint32_t> cuts, to;
    std::map<std::uint32_t, std::vector<std::uint32_t>> calls;
    std::map<std::int32_t, std::vector<std::uint32_t>> specials;
    for (std::size_t i = 0; i < sets.size(); ++i) {
      const std::uint32_t here = base + static_cast<std::uint32_t>(i);
      ranges.clear(), cuts.clear(), calls.clear(), specials.clear();
      for (const std::uint32_t s : sets[i]) {
        const NfaState& from = nfa[s];
        ranges.insert(ranges.end(), from.ranges.begin(), from.ranges.end());
        for (const Grammar::Call& c : from.calls) calls[c.rule].push_back(c.to);
        for (const Grammar::Special& c : from.specials) specials[c.id].push_back(c.to);
        states_[here].final |= s == RuleNfa::kEnd;
        states_[here].run = std::max(states_[here].run, from.run);
      }
      source_.budget.pay(ranges.size() + sets[i].size() + calls.size());
      std::sort(ranges.begin(), ranges.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
      for (const Grammar::Range& r : ranges)
        cuts.insert(cuts.end(), {std::uint32_t{r.first}, std::uint32_t{r.last} + 1});
      std::sort(cuts.begin(), cuts.end());
      cuts.erase(std::unique(cuts.begin(), cuts.end()), cuts.end());
      const auto target = [&](std::vector<std::uint32_t>& list) {
        std::sort(list.begin(), list.end());
        list.erase(std::unique(list.begin(), list.end()), list.end());
        return state_of(list);
      };
      for (std::size_t c = 0; c + 1 < cuts.size(); ++c) {
        to.clear();
        for (const Grammar::Range& r : ranges) {
          if (r.first > cuts[c]) break;
          source_.budget.pay();
          if (r.last >= cuts[c]) to.push_back(r.to);
        }
        if (to.empty()) continue;
        const std::uint32_t next = target(to);
        std::vector<Grammar::Range>& out = states_[here].ranges;
        if (!out.empty() && out.back().to == next && std::uint32_t{out.back().last} + 1 == cuts[c])
          out.back().last = static_cast<std::uint8_t>(cuts[c + 1] - 1);
        else
          out.push_back(
              {static_cast<std::uint8_t>(cuts[c]), static_cast<std::uint8_t>(cuts[c + 1] - 1), next});
      }
      for (auto& [rule, list] : calls) {
        const std::uint32_t next = target(list);
        states_[here].calls.push_back({rule, next});
      }
      for (auto& [id, list] : specials) {
        const std::uint32_t next = target(list);
        states_[here].specials.push_back({id, next});
      }
    }
  }

  // A state is alive where the end of its rule can be reached; the edges to others go, so that whoever
  // follows a grammar can always end.
  void find_alive() {
    struct Into {
      std::uint32_t from, rule;  // rule: a call of it leads here; kNone: a byte or a special token
    };
    std::vector<std::vector<Into>> into(states_.size());
    std::vector<std::vector<Grammar::Call>> callers(start_.size());  // {state of the caller, to}
    std::vector<std::uint32_t> todo;
    std::unordered_map<std::uint32_t, std::uint32_t> rule_of;
    for (std::uint32_t r = 0; r < start_.size(); ++r)
      if (start_[r] != Grammar::kNone) rule_of[start_[r]] = r;
    for (std::uint32_t s = 0; s < states_.size(); ++s) {
      for (const auto& r : states_[s].ranges) into[r.to].push_back({s, Grammar::kNone});
      for (const auto& c : states_[s].specials) into[c.to].push_back({s, Grammar::kNone});
      for (const auto& c : states_[s].calls) {
        into[c.to].push_back({s, c.rule});
        callers[c.rule].push_back({s, c.to});
      }
      source_.budget.pay(states_[s].ranges.size() + states_[s].calls.size() + 1);
      if (states_[s].final) states_[s].alive = true, todo.push_back(s);
    }
    const auto mark = [&](std::uint32_t s) {
      if (!states_[s].alive) states_[s].alive = true, todo.push_back(s);
    };
    while (!todo.empty()) {
      const std::uint32_t s = todo.back();
      todo.pop_back();
      for (const Into& edge : into[s])
        if (edge.rule == Grammar::kNone || states_[start_[edge.rule]].alive) mark(edge.from);
      if (const auto rule = rule_of.find(s); rule != rule_of.end())
        for (const Grammar::Call& c : callers[rule->second])
          if (states_[c.to].alive) mark(c.rule);
    }
    if (!states_[start_[root_]].alive) throw GrammarError("no text at all is allowed");
    bool cut = false;
    for (std::uint32_t s = shared_; s < states_.size(); ++s) {
      DfaState& state = states_[s];
      const auto gone = std::erase_if(state.ranges, [&](const auto& r) { return !states_[r.to].alive; }) +
                        std::erase_if(state.specials, [&](const auto& c) { return !states_[c.to].alive; }) +
                        std::erase_if(state.calls, [&](const auto& c) {
                          return !states_[c.to].alive || !states_[start_[c.rule]].alive;
                        });
      cut = cut || gone > 0;
    }
    // What was cut may have been the way on for a run of characters.
    for (std::uint32_t s = shared_; cut && s < states_.size(); ++s) states_[s].run = 0;
  }

  // What rules can begin with. They may begin with calls of each other, but never in a circle.
  void find_first(Grammar& g, std::uint32_t rule, int depth) {
    if (opening_[rule] == kDone) return;
    if (opening_[rule] == kOpen) {
      const std::string& name = source_.rules[rule].name;
      throw GrammarError(concat("the rule '", name.empty() ? "(unnamed)" : name,
                                "' can begin with itself: left recursion is not supported"));
    }
    if (depth > GrammarLimits::kOpening)
      throw GrammarError(concat("more than ", GrammarLimits::kOpening, " rules begin with one another"));
    opening_[rule] = kOpen;
    Grammar::Rule& out = g.rules[rule];
    const DfaState& s = states_[out.start = start_[rule]];
    for (const Grammar::Range& r : s.ranges)
      for (std::uint32_t b = r.first; b <= r.last; ++b) out.first.set(b);
    for (const Grammar::Special& c : s.specials) out.first_specials.push_back(c.id);
    for (const Grammar::Call& c : s.calls) {
      source_.budget.pay();
      find_first(g, c.rule, depth + 1);
      out.first |= g.rules[c.rule].first;
      const auto& more = g.rules[c.rule].first_specials;
      out.first_specials.insert(out.first_specials.end(), more.begin(), more.end());
    }
    std::sort(out.first_specials.begin(), out.first_specials.end());
    out.first_specials.erase(std::unique(out.first_specials.begin(), out.first_specials.end()),
                             out.first_specials.end());
    opening_[rule] = kDone;
  }

  std::shared_ptr<const Grammar> finish() {
    auto g = std::make_shared<Grammar>();
    g->rules.resize(start_.size());
    opening_.assign(start_.size(), kUnseen);
    for (std::uint32_t r = 0; r < start_.size(); ++r)
      if (start_[r] != Grammar::kNone) find_first(*g, r, 0);
    g->root = root_;
    g->shared = shared_;
    std::size_t dense = 0;
    for (const DfaState& s : states_) {
      Grammar::State out;
      out.run = s.run;
      out.final = s.final;
      out.bare = s.final && s.ranges.empty() && s.calls.empty() && s.specials.empty();
      out.calls = static_cast<std::uint32_t>(g->calls.size());
      out.call_count = static_cast<std::uint32_t>(s.calls.size());
      g->calls.insert(g->calls.end(), s.calls.begin(), s.calls.end());
      out.specials = static_cast<std::uint32_t>(g->special_edges.size());
      out.special_count = static_cast<std::uint32_t>(s.specials.size());
      g->special_edges.insert(g->special_edges.end(), s.specials.begin(), s.specials.end());
      for (const Grammar::Special& c : s.specials) g->specials.push_back(c.id);
      if (s.ranges.size() > 4 && dense < kDenseRows) {  // a table is faster; a kilobyte each
        out.dense = static_cast<std::uint32_t>(dense++);
        g->rows.resize(dense * 256, Grammar::kNone);
        for (const Grammar::Range& r : s.ranges)
          for (std::uint32_t b = r.first; b <= r.last; ++b) g->rows[(dense - 1) * 256 + b] = r.to;
      } else {
        out.ranges = static_cast<std::uint32_t>(g->ranges.size());
        out.range_count = static_cast<std::uint32_t>(s.ranges.size());
        g->ranges.insert(g->ranges.end(), s.ranges.begin(), s.ranges.end());
      }
      g->states.push_back(out);
    }
    std::sort(g->specials.begin(), g->specials.end());
    g->specials.erase(std::unique(g->specials.begin(), g->specials.end()), g->specials.end());
    g->steps = source_.budget.used();
    return g;
  }

  static constexpr std::size_t kDenseRows = 8192;
  enum Opening : std::uint8_t { kUnseen, kOpen, kDone };
  GrammarBuilder::State& source_;
  std::uint32_t root_, shared_ = 0;
  std::vector<std::uint8_t> used_, nullable_;
  std::vector<DfaState> states_;
  std::vector<std::uint32_t> start_;  // of each rule
  std::vector<Opening> opening_;
};

}  // namespace

std::shared_ptr<const Grammar> compile_rules(GrammarBuilder::State& state, std::uint32_t root) {
  return Compiler(state, root).run();
}

}  // namespace rapt
