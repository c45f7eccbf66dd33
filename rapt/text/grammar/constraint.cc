// SPDX-License-Identifier: Apache-2.0
// Masks: the tree of tokens is walked with the configurations of a grammar. What one state allows whatever is
// around it is kept, so that most masks are a few words copied.
#include "rapt/text/grammar/constraint.h"

#include <algorithm>
#include <array>

#include "rapt/text/grammar/grammar.h"
#include "rapt/text/grammar/token_trie.h"

namespace rapt {

class TokenGrammar {
 public:
  static constexpr std::size_t kMaskMemory = std::size_t{32} << 20;
  TokenGrammar(std::shared_ptr<const Grammar> grammar, std::shared_ptr<const TokenTrie> trie)
      : grammar_(std::move(grammar)), trie_(std::move(trie)), masks_(grammar_->states.size(), kMaskMemory) {}
  const Grammar& grammar() const { return *grammar_; }
  const TokenTrie& trie() const { return *trie_; }
  // `own` keeps it where there is no room for more.
  const StateMask& mask(std::uint32_t state, std::unique_ptr<const StateMask>& own) const;
  std::size_t memory() const { return grammar_->memory() + masks_.memory(); }

 private:
  std::shared_ptr<const Grammar> grammar_;
  std::shared_ptr<const TokenTrie> trie_;
  MaskTable masks_;
};

namespace {

void set_bit(std::span<std::uint64_t> bits, std::size_t i) { bits[i / 64] |= std::uint64_t{1} << i % 64; }
bool get_bit(std::span<const std::uint64_t> bits, std::size_t i) { return bits[i / 64] >> i % 64 & 1; }

// Walks subtrees, one after the other, with the configurations that stand before them.
class TrieWalk {
 public:
  TrieWalk(const Grammar& grammar, const TokenTrie& trie, ReturnStacks& stacks, std::span<std::uint64_t> bits)
      : g_(grammar), trie_(trie), stacks_(stacks), bits_(bits) {}

  // Tokens below `node` (all: of the whole tree) that go on from `from`. Where `pending` is given, the bottom
  // of the stack stands for rules that are not known, and the nodes where it was reached are added. Subtrees
  // of at most `run` harmless characters are left out.
  static constexpr std::uint32_t kAll = ~std::uint32_t{0};
  void walk(std::uint32_t node, Configuration from, std::vector<std::uint32_t>* pending, unsigned run) {
    const std::vector<TokenTrie::Node>& nodes = trie_.nodes();
    std::size_t i = 0, end = nodes.size(), depth = 0;
    if (node != kAll) i = node + 1, end = node + nodes[node].size, depth = nodes[node].depth;
    levels_[depth] = {from, 1, 0};
    while (i < end) {
      stacks_.pay();
      const TokenTrie::Node n = nodes[i];
      if (run > 0 && trie_.run(i) <= run) {
        i += n.size;
        continue;
      }
      const Level& above = levels_[n.depth - 1u];
      Level& here = levels_[n.depth];
      const auto byte = static_cast<std::uint8_t>(n.byte);
      if (above.count == 1 && plain(above.one.state)) {
        here = {{g_.next(above.one.state, byte), above.one.stack}, 1, above.used};
        if (here.one.state == Grammar::kNone) {
          i += n.size;
          continue;
        }
      } else if (!several(above, here, byte)) {
        i += n.size;
        continue;
      }
      if (n.token != TokenTrie::kNoToken) set_bit(bits_, n.token);
      if (pending && n.size > 1 && may_end_at(here)) pending->push_back(static_cast<std::uint32_t>(i));
      ++i;
    }
  }

 private:
  // The configurations at one depth: one alone, or the last `count` of the first `used` of `at_`.
  struct Level {
    Configuration one;
    std::size_t count, used;
  };
  bool several(const Level& above, Level& here, std::uint8_t byte) {
    const std::size_t stop = above.used;
    at_.resize(stop);
    bool fits = true;
    if (above.count == 1) fits = step(g_, stacks_, above.one, byte, at_, stop);
    else
      for (std::size_t c = stop - above.count; c < stop && fits; ++c)
        fits = step(g_, stacks_, at_[c], byte, at_, stop);
    const std::size_t count = at_.size() - stop;
    // More readings than are followed: such a token is not allowed.
    if (!fits || count == 0) return false;
    here = {at_[stop], count, count == 1 ? stop : at_.size()};
    return true;
  }
  bool may_end_at(const Level& level) const {
    if (level.count == 1) return g_.states[level.one.state].final && may_end(g_, stacks_, level.one);
    for (std::size_t c = 0; c < level.count; ++c)
      if (may_end(g_, stacks_, at_[level.used - level.count + c])) return true;
    return false;
  }
  bool plain(std::uint32_t state) const {
    const Grammar::State& s = g_.states[state];
    return s.call_count == 0 && !s.final;
  }
  const Grammar& g_;
  const TokenTrie& trie_;
  ReturnStacks& stacks_;
  std::span<std::uint64_t> bits_;
  Configurations at_;
  std::array<Level, TokenTrie::kLongest + 1> levels_;
};

StateMask make_state_mask(const Grammar& grammar, const TokenTrie& trie, std::uint32_t state) {
  StateMask mask;
  mask.bits.assign(trie.words(), 0);
  unsigned run = grammar.states[state].run;
  if (run > 0) mask.bits = trie.slice(run);
  ReturnStacks stacks;
  stacks.allow(GrammarLimits::kMaskWork);
  TrieWalk(grammar, trie, stacks, mask.bits).walk(TrieWalk::kAll, {state, 0}, &mask.pending, run);
  std::size_t count = 0;
  for (const std::uint64_t word : mask.bits) count += static_cast<std::size_t>(__builtin_popcountll(word));
  if (count * 2 < mask.bits.size()) {  // four bytes each instead of a bit for every token
    for (std::size_t w = 0; w < mask.bits.size(); ++w)
      for (std::uint64_t rest = mask.bits[w]; rest != 0; rest &= rest - 1)
        mask.ids.push_back(
            static_cast<std::int32_t>(w * 64 + static_cast<std::size_t>(__builtin_ctzll(rest))));
    mask.bits.clear();
    mask.bits.shrink_to_fit();
    mask.ids.shrink_to_fit();
  }
  mask.pending.shrink_to_fit();
  return mask;
}

class TokenConstraint final : public GrammarConstraint {
 public:
  TokenConstraint(std::shared_ptr<const TokenGrammar> grammar, std::vector<std::int32_t> ends,
                  std::int64_t least)
      : grammar_(std::move(grammar)), ends_(std::move(ends)), left_(least) {
    const Grammar& g = grammar_->grammar();
    now_ = {{g.rules[g.root].start, 0}};
  }

  std::unique_ptr<Constraint> copy() const override { return std::make_unique<TokenConstraint>(*this); }

  void mask(std::span<std::uint64_t> allowed) override {
    // End ids may lie behind the vocabulary of the tokenizer, so they are asked before the words are changed.
    ends_asked_.clear();
    if (end_allowed()) {
      for (const std::int32_t id : ends_) {
        const auto i = static_cast<std::size_t>(id);
        if (id >= 0 && i / 64 < allowed.size() && get_bit(allowed, i)) ends_asked_.push_back(i);
      }
    }
    if (ended_) {
      std::fill(allowed.begin(), allowed.end(), 0);
    } else {
      const std::vector<std::uint64_t>& bits = current_mask();
      for (std::size_t w = 0; w < allowed.size(); ++w) allowed[w] &= w < bits.size() ? bits[w] : 0;
    }
    // An id that ends answers is no text, whatever its bytes are.
    for (const std::int32_t id : ends_) {
      const auto i = static_cast<std::size_t>(id);
      if (id >= 0 && i / 64 < allowed.size() && !is_symbol(id))
        allowed[i / 64] &= ~(std::uint64_t{1} << i % 64);
    }
    for (const std::size_t i : ends_asked_) set_bit(allowed, i);
  }

  bool allows(std::int32_t id) override {
    Configurations to;
    const std::size_t size = stacks_.size();
    const bool yes = follow(id, to) || (is_end(id) && end_allowed());
    stacks_.shrink(size);
    return yes;
  }

  void accept(std::int32_t id) override {
    Configurations to;
    --left_;
    if (follow(id, to)) {
      now_ = std::move(to);
      if (stacks_.size() > kMostFrames) compact();
    } else if (is_end(id) && may_end()) {
      ended_ = true;
    } else {
      fail("token ", id, " does not fit the grammar here: ask allows() before accept()");
    }
  }

  bool may_end() const override {
    return std::any_of(now_.begin(), now_.end(), [&](const Configuration& c) {
      return rapt::may_end(grammar_->grammar(), stacks_, c);
    });
  }

  bool at_end() const override {
    if (ended_) return true;
    const Grammar& g = grammar_->grammar();
    return std::all_of(now_.begin(), now_.end(), [&](Configuration c) {
      for (;; c = {stacks_[c.stack].state, stacks_[c.stack].below}) {
        if (!g.states[c.state].bare) return false;
        if (c.stack == 0) return true;
      }
    });
  }

 private:
  static constexpr std::size_t kMostFrames = 1 << 14;
  static constexpr std::size_t kKept = 4;
  struct Kept {
    Configurations at;
    std::vector<std::uint64_t> bits;
  };

  bool end_allowed() const { return ended_ || (may_end() && (left_ <= 0 || at_end())); }
  bool is_end(std::int32_t id) const { return std::find(ends_.begin(), ends_.end(), id) != ends_.end(); }

  bool is_symbol(std::int32_t id) const {
    const std::vector<std::int32_t>& specials = grammar_->grammar().specials;
    return std::binary_search(specials.begin(), specials.end(), id);
  }

  // Where a token leads that is no end; false: nowhere.
  bool follow(std::int32_t id, Configurations& to) {
    if (ended_ || id < 0) return false;
    const Grammar& g = grammar_->grammar();
    if (is_symbol(id)) {
      for (const Configuration& c : now_)
        if (!step_special(g, stacks_, c, id, to)) return false;
      return !to.empty();
    }
    const TokenTrie& trie = grammar_->trie();
    if (is_end(id) || static_cast<std::size_t>(id) >= trie.vocabulary()) return false;
    const std::string& text = trie.text(static_cast<std::size_t>(id));
    if (text.empty()) return false;
    Configurations at = now_;
    stacks_.allow(GrammarLimits::kMaskWork);
    for (const char b : text) {
      to.clear();
      for (const Configuration& c : at)
        if (!step(g, stacks_, c, static_cast<std::uint8_t>(b), to)) return false;
      if (to.empty()) return false;
      at.swap(to);
    }
    to.swap(at);
    return true;
  }

  const std::vector<std::uint64_t>& current_mask() {
    for (const auto& kept : kept_)
      if (kept->at == now_) return kept->bits;
    auto made = std::make_shared<Kept>();
    made->at = now_;
    fill(made->bits);
    if (kept_.size() < kKept) kept_.push_back(std::move(made)), oldest_ = kept_.size() - 1;
    else kept_[oldest_ = (oldest_ + 1) % kKept] = std::move(made);
    return kept_[oldest_]->bits;
  }

  void fill(std::vector<std::uint64_t>& bits) {
    const Grammar& g = grammar_->grammar();
    const TokenTrie& trie = grammar_->trie();
    bits.assign(trie.words(), 0);
    const std::size_t frames = stacks_.size();
    stacks_.allow(GrammarLimits::kMaskWork);
    // Where a rule may end here, what follows it may come, too.
    Configurations all = now_;
    for (std::size_t i = 0; i < all.size(); ++i) {
      if (!g.states[all[i].state].final || all[i].stack == 0) continue;
      const Configuration below{stacks_[all[i].stack].state, stacks_[all[i].stack].below};
      stacks_.pay(1 + all.size() / 8);
      if (std::find(all.begin(), all.end(), below) == all.end()) all.push_back(below);
    }
    TrieWalk walk(g, trie, stacks_, bits);
    for (const Configuration& c : all) {
      std::unique_ptr<const StateMask> own;
      const StateMask& mask = grammar_->mask(c.state, own);
      for (std::size_t w = 0; w < mask.bits.size(); ++w) bits[w] |= mask.bits[w];
      for (const std::int32_t id : mask.ids) set_bit(bits, static_cast<std::size_t>(id));
      if (c.stack == 0) continue;
      const Configuration below{stacks_[c.stack].state, stacks_[c.stack].below};
      for (const std::uint32_t node : mask.pending) walk.walk(node, below, nullptr, 0);
    }
    for (const auto& [one, other] : trie.twins())
      if (get_bit(bits, static_cast<std::size_t>(one))) set_bit(bits, static_cast<std::size_t>(other));
    for (const std::int32_t id : g.specials) {
      if (id < 0 || static_cast<std::size_t>(id) >= trie.vocabulary()) continue;
      Configurations to;
      bool fits = true;
      for (const Configuration& c : now_) fits = fits && step_special(g, stacks_, c, id, to);
      if (fits && !to.empty()) set_bit(bits, static_cast<std::size_t>(id));
      else bits[static_cast<std::size_t>(id) / 64] &= ~(std::uint64_t{1} << id % 64);
    }
    stacks_.shrink(frames);
  }

  void compact() {
    ReturnStacks fresh;
    std::vector<std::uint32_t> frames;
    for (Configuration& c : now_) {
      frames.clear();
      for (std::uint32_t s = c.stack; s != 0; s = stacks_[s].below) frames.push_back(s);
      c.stack = 0;
      for (auto s = frames.rbegin(); s != frames.rend(); ++s)
        c.stack = fresh.push(stacks_[*s].state, c.stack);
    }
    stacks_ = std::move(fresh);
    kept_.clear();
  }

  std::shared_ptr<const TokenGrammar> grammar_;
  std::vector<std::int32_t> ends_;
  std::int64_t left_;  // tokens that come before an end
  Configurations now_;
  ReturnStacks stacks_;
  bool ended_ = false;
  std::vector<std::size_t> ends_asked_;
  std::vector<std::shared_ptr<const Kept>> kept_;  // the last masks; copies share them
  std::size_t oldest_ = 0;
};

}  // namespace

const StateMask& TokenGrammar::mask(std::uint32_t state, std::unique_ptr<const StateMask>& own) const {
  const bool shared = state < grammar_->shared;
  const MaskTable& table = shared ? trie_->shared_masks() : masks_;
  return table.get(
      shared ? state : state - grammar_->shared, [&] { return make_state_mask(*grammar_, *trie_, state); },
      own);
}

std::shared_ptr<const TokenTrie> make_token_trie(const Tokenizer& tokenizer) {
  return std::make_shared<const TokenTrie>(tokenizer);
}

std::shared_ptr<const TokenGrammar> make_token_grammar(std::shared_ptr<const Grammar> grammar,
                                                       std::shared_ptr<const TokenTrie> vocabulary) {
  return std::make_shared<const TokenGrammar>(std::move(grammar), std::move(vocabulary));
}

std::size_t memory_of(const TokenGrammar& grammar) { return grammar.memory(); }

std::unique_ptr<GrammarConstraint> make_constraint(std::shared_ptr<const TokenGrammar> grammar,
                                                   std::vector<std::int32_t> ends, std::int64_t least) {
  return std::make_unique<TokenConstraint>(std::move(grammar), std::move(ends), least);
}

}  // namespace rapt
