// SPDX-License-Identifier: Apache-2.0
// The pair seen most often becomes a token, again and again. Counts of pairs are kept up to date word by
// word, and candidates wait in a heap with the words they were seen in when they were put there: a merge
// touches these words only.
//
// Three habits of tokenizers' BpeTrainer decide its result, so they are ours:
//   * a candidate is taken only if its count is still true; else it goes back with the count of now;
//   * a token that two different pairs spell (ab+c, a+bc) is one token. Pairs with it may then wait in the
//     heap twice, each time with other words; each time is a merge of its own, and the last one gives the
//     pair its rank;
//   * the count of a merged pair is not taken back.
#include "rapt/text/tokenizer/train_bpe.h"

#include <algorithm>
#include <queue>

#include "rapt/text/tokenizer/split.h"
#include "rapt/text/tokenizer/trie.h"

namespace rapt {

std::size_t cut_for_gpt2(std::string_view text, std::size_t most) {
  if (text.size() <= most) return text.size();
  const auto sign = [](char c) { return c > ' ' && c < 0x7F; };
  const auto good = [&](std::size_t i) { return text[i] == '\n' && sign(text[i - 1]) && sign(text[i + 1]); };
  for (std::size_t i = most - 1; i > most / 2 && i > 0; --i) {
    if (good(i)) return i + 1;
  }
  for (std::size_t i = std::max<std::size_t>(most, 1); i + 1 < text.size(); ++i) {
    if (good(i)) return i + 1;
  }
  return text.size();
}

void WordCounts::add(std::string_view text) {
  constexpr std::size_t kPart = std::size_t{1} << 20;
  while (!text.empty()) {
    const std::size_t n = cut_for_gpt2(text, kPart);
    Pieces pieces{std::string(text.substr(0, n)), {{0, n}}, true};
    EncodeWork work(n, "vocabulary");
    split(pieces, SplitStep{.pattern = Pattern::gpt2}, work);
    for (const Span& s : pieces.spans) {
      if (s.begin == s.end) continue;
      const std::string_view piece = std::string_view(pieces.text).substr(s.begin, s.end - s.begin);
      auto found = places_.find(piece);
      if (found == places_.end()) {
        found = places_.emplace(piece, words_.size()).first;
        words_.emplace_back(piece, 0);
      }
      ++words_[found->second].second;
    }
    text.remove_prefix(n);
  }
}

namespace {

using Words = std::vector<std::uint32_t>;  // ascending, each once

struct Candidate {
  std::int64_t count;
  std::uint64_t pair;  // left id << 32 | right id
  std::uint32_t place;  // of its count
  std::uint64_t born;  // equal candidates in the order they came
  Words in;
  bool operator<(const Candidate& o) const {
    if (count != o.count) return count < o.count;
    return pair != o.pair ? pair > o.pair : born > o.born;
  }
};

class Learner {
 public:
  Learner(const WordCounts& words, const std::vector<std::int32_t>& byte_ids) {
    for (const auto& [text, count] : words.words()) {
      std::vector<std::uint32_t> ids;
      ids.reserve(text.size());
      for (const char c : text)
        ids.push_back(static_cast<std::uint32_t>(byte_ids[static_cast<std::uint8_t>(c)]));
      words_.push_back(std::move(ids));
      counts_.push_back(count);
    }
    for (std::size_t w = 0; w < words_.size(); ++w) {
      for (std::size_t i = 0; i + 1 < words_[w].size(); ++i) change(words_[w][i], words_[w][i + 1], 1, w);
    }
    put_new_ones();
  }

  // The next pair to merge, and the words it is merged in; false: none is left that was seen
  // `least` times.
  bool next(Dim least, Candidate& best) {
    while (!heap_.empty()) {
      std::pop_heap(heap_.begin(), heap_.end());
      best = std::move(heap_.back());
      heap_.pop_back();
      const std::int64_t now = pairs_[best.place].count;
      if (best.count == now) return best.count >= 1 && best.count >= least;
      best.count = now;
      heap_.push_back(std::move(best));
      std::push_heap(heap_.begin(), heap_.end());
    }
    return false;
  }

  void merge(const Candidate& best, std::uint32_t into) {
    const auto a = static_cast<std::uint32_t>(best.pair >> 32), b = static_cast<std::uint32_t>(best.pair);
    for (const std::uint32_t w : best.in) {
      std::vector<std::uint32_t>& ids = words_[w];
      std::size_t out = 0;
      for (std::size_t i = 0; i < ids.size(); ++i, ++out) {
        if (ids[i] != a || i + 1 == ids.size() || ids[i + 1] != b) {
          ids[out] = ids[i];
          continue;
        }
        ++i;
        if (out > 0) {
          change(ids[out - 1], a, -1, w);
          change(ids[out - 1], into, 1, w);
        }
        if (i + 1 < ids.size()) {
          change(b, ids[i + 1], -1, w);
          change(into, ids[i + 1], 1, w);
        }
        ids[out] = into;
      }
      ids.resize(out);
    }
    put_new_ones();
  }

 private:
  struct Pair {
    std::uint64_t key;
    std::int64_t count = 0;
    Words fresh;  // words it came to in this round
  };

  void change(std::uint32_t a, std::uint32_t b, int by, std::size_t word) {
    const std::uint64_t key = std::uint64_t{a} << 32 | b;
    const auto [place, is_new] = table_.add(key, pairs_.size());
    const std::uint64_t at = *place;
    if (is_new) pairs_.push_back({key});
    Pair& p = pairs_[at];
    p.count += by * counts_[word];
    if (by < 0) return;
    if (p.fresh.empty()) touched_.push_back(static_cast<std::uint32_t>(at));
    if (p.fresh.empty() || p.fresh.back() != word) p.fresh.push_back(static_cast<std::uint32_t>(word));
  }

  void put_new_ones() {
    for (const std::uint32_t at : touched_) {
      Pair& p = pairs_[at];
      if (p.count > 0) {
        heap_.push_back({p.count, p.key, at, born_++, std::move(p.fresh)});
        std::push_heap(heap_.begin(), heap_.end());
      }
      p.fresh = {};
    }
    touched_.clear();
  }

  std::vector<std::vector<std::uint32_t>> words_;
  std::vector<std::int64_t> counts_;
  KeyTable table_;  // pair → place in pairs_
  std::vector<Pair> pairs_;
  std::vector<std::uint32_t> touched_;
  std::vector<Candidate> heap_;
  std::uint64_t born_ = 0;
};

}  // namespace

std::vector<std::pair<std::int32_t, std::int32_t>> learn_merges(
    const WordCounts& words, std::vector<std::string>& tokens, const std::vector<std::int32_t>& byte_ids,
    Dim size, Dim least, const std::function<void(Dim done, Dim of)>& progress) {
  Learner learner(words, byte_ids);
  std::unordered_map<std::string, std::uint32_t> ids;
  for (std::size_t i = 0; i < tokens.size(); ++i) ids.emplace(tokens[i], static_cast<std::uint32_t>(i));
  std::vector<std::uint64_t> merges;
  Candidate best;
  while (static_cast<Dim>(tokens.size()) < size && learner.next(least, best)) {
    std::string text = tokens[best.pair >> 32] + tokens[best.pair & 0xFFFFFFFF];
    const auto [found, is_new] = ids.emplace(std::move(text), static_cast<std::uint32_t>(tokens.size()));
    if (is_new) tokens.push_back(found->first);
    merges.push_back(best.pair);
    learner.merge(best, found->second);
    if (progress && merges.size() % 64 == 0) progress(static_cast<Dim>(tokens.size()), size);
  }
  if (progress) progress(size, size);
  KeyTable seen;
  std::vector<std::pair<std::int32_t, std::int32_t>> out;
  for (std::size_t i = merges.size(); i-- > 0;) {
    if (seen.add(merges[i], 0).second)
      out.emplace_back(static_cast<std::int32_t>(merges[i] >> 32), static_cast<std::int32_t>(merges[i]));
  }
  std::reverse(out.begin(), out.end());
  return out;
}

}  // namespace rapt
