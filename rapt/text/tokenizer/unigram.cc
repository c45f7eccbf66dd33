// SPDX-License-Identifier: Apache-2.0
// SentencePiece Unigram: the segmentation with the best sum of scores, by dynamic programming from left to
// right (Viterbi). One step per character and token that begins there.
#include <algorithm>
#include <cmath>

#include "rapt/base/unicode.h"
#include "rapt/text/tokenizer/model.h"
#include "rapt/text/tokenizer/trie.h"

namespace rapt {
namespace {

using Role = Tokenizer::Role;

// Number: what scores are added in. SentencePiece adds in f32, Hugging Face in f64; near ties fall
// differently.
template <class Number>
class Unigram final : public PieceModel {
 public:
  Unigram(const TokenizerSpec& spec, const TokenIds& ids) : spec_(spec), byte_ids_(byte_ids(spec, ids)) {
    Number least = 0, most = 0;
    bool any = false;
    const auto add = [&](const std::string& text, Number score, Role role, std::int32_t id) {
      if (role == Role::normal) {
        least = any ? std::min(least, score) : score;
        most = any ? std::max(most, score) : score;
        any = true;
      }
      // Hugging Face finds "<unk>" in a text, SentencePiece does not
      const bool spelt_unknown = role == Role::unknown && !spec.exact_scores.empty();
      if (text.empty() || (role != Role::normal && role != Role::user && !spelt_unknown)) return;
      trie_.add(text, static_cast<std::int32_t>(entries_.size()));
      entries_.push_back({score, role == Role::user, static_cast<std::int32_t>(text.size()), id});
    };
    if (!spec.pieces.empty()) {
      // A piece that stands for a control token is one, whatever source.spm calls it.
      for (const auto& p : spec.pieces) {
        const bool control = spec.roles[static_cast<std::size_t>(p.id)] == Role::control;
        add(p.text, static_cast<Number>(p.score), control ? Role::control : p.role, p.id);
      }
    } else {
      for (std::size_t i = 0; i < spec.tokens.size(); ++i) {
        const Number score = spec.exact_scores.empty() ? static_cast<Number>(spec.scores[i])
                                                       : static_cast<Number>(spec.exact_scores[i]);
        add(spec.tokens[i], score, spec.roles[i], static_cast<std::int32_t>(i));
      }
    }
    unknown_ = least - Number{10};
    for (Entry& e : entries_) {
      if (e.user)
        // Wins against its parts.
        e.score = static_cast<Number>(static_cast<float>(e.length) * static_cast<float>(most) - 0.1f);
    }
  }

  void encode(std::string_view text, std::vector<std::int32_t>& out) const override {
    struct Best {
      Number score = 0;
      std::int32_t begin = -1;  // of the last token; -1: nothing ends here
      std::int32_t entry = -1;  // -1: unknown
    };
    if (text.empty()) return;
    if (text.size() > 0x7FFFFFFF)
      fail(spec_.where, ": a text of ", text.size(), " bytes without a break is too long");
    std::vector<Best> best(text.size() + 1);
    WalkWork work(text.size(), spec_.where);
    for (std::size_t i = 0; i < text.size();) {
      const std::size_t character = unicode::read(text, i).length;
      const Number here = best[i].score;
      const auto offer = [&](std::size_t end, Number score, std::int32_t entry) {
        Best& b = best[end];
        if (b.begin < 0 || score > b.score) b = {score, static_cast<std::int32_t>(i), entry};
      };
      bool single = false;
      std::uint32_t node = 0;
      std::size_t k = i;
      for (; k < text.size() && trie_.step(node, text[k]); ++k) {
        const std::int32_t e = trie_.value(node);
        if (e < 0) continue;
        offer(k + 1, here + entries_[static_cast<std::size_t>(e)].score, e);
        single = single || k + 1 - i == character;
      }
      work.pay(k - i);
      if (!single) offer(i + character, here + unknown_, -1);
      i += character;
    }
    const std::size_t first = out.size();
    bool unknown_after = false;
    for (std::size_t end = text.size(); end > 0;) {
      const Best& b = best[end];
      const auto begin = static_cast<std::size_t>(b.begin);
      if (b.entry >= 0 && entries_[static_cast<std::size_t>(b.entry)].id == spec_.unk &&
          spec_.pieces.empty()) {
        if (!unknown_after) out.push_back(spec_.unk);
        unknown_after = true;
      } else if (b.entry >= 0) {
        out.push_back(entries_[static_cast<std::size_t>(b.entry)].id);
        unknown_after = false;
      } else {
        unknown(text.substr(begin, end - begin), unknown_after, out);
      }
      end = begin;
    }
    std::reverse(out.begin() + static_cast<std::ptrdiff_t>(first), out.end());
  }

 private:
  struct Entry {
    Number score;
    bool user;
    std::int32_t length, id;
  };

  void unknown(std::string_view piece, bool& after, std::vector<std::int32_t>& out) const {  // backwards
    if (spec_.byte_fallback && std::all_of(piece.begin(), piece.end(), [&](char c) {
          return byte_ids_[static_cast<std::uint8_t>(c)] >= 0;
        })) {
      for (std::size_t i = piece.size(); i-- > 0;)
        out.push_back(byte_ids_[static_cast<std::uint8_t>(piece[i])]);
      return;
    }
    if (!after) out.push_back(spec_.unk);
    after = true;
  }

  const TokenizerSpec& spec_;
  std::vector<std::int32_t> byte_ids_;
  Trie trie_;
  std::vector<Entry> entries_;
  Number unknown_ = 0;
};

}  // namespace

std::unique_ptr<PieceModel> make_unigram(const TokenizerSpec& spec, const TokenIds& ids) {
  if (spec.unk < 0)
    fail(spec.where, ": a Unigram vocabulary needs an unknown token, and this one names none");
  if (!spec.exact_scores.empty()) return std::make_unique<Unigram<double>>(spec, ids);
  return std::make_unique<Unigram<float>>(spec, ids);
}

}  // namespace rapt
