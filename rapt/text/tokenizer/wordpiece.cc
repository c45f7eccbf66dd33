// SPDX-License-Identifier: Apache-2.0
// WordPiece: the longest token the word begins with, then the longest continuation, and so on; a word that
// does not come out is unknown.
#include "rapt/base/unicode.h"
#include "rapt/text/tokenizer/model.h"
#include "rapt/text/tokenizer/trie.h"

namespace rapt {
namespace {

using Role = Tokenizer::Role;

class WordPiece final : public PieceModel {
 public:
  WordPiece(const TokenizerSpec& spec, const TokenIds& ids) : spec_(spec) {
    for (std::size_t i = 0; i < spec.tokens.size(); ++i) {
      const std::string_view text = spec.tokens[i];
      const auto id = static_cast<std::int32_t>(i);
      if (text.empty() || spec.roles[i] == Role::control || spec.roles[i] == Role::unknown ||
          ids.at(text) != id)
        continue;
      if (spec.phantom_space) {
        if (text.starts_with(kMetaSpace)) first_.add(text.substr(kMetaSpace.size()), id);
        else next_.add(text, id);
      } else {
        first_.add(text, id);  // "##ing" as a word of its own never comes: # is punctuation
        if (text.starts_with(spec.continuing)) next_.add(text.substr(spec.continuing.size()), id);
      }
    }
  }

  void encode(std::string_view word, std::vector<std::int32_t>& out) const override {
    if (word.empty()) return;
    int characters = 0;
    for (std::size_t i = 0; i < word.size() && characters <= spec_.longest_word;
         i += unicode::read(word, i).length)
      ++characters;
    const std::size_t before = out.size();
    bool known = characters <= spec_.longest_word;
    WalkWork work(word.size(), spec_.where);
    for (std::size_t i = 0; known && i < word.size();) {
      const auto [length, id] = (i == 0 ? first_ : next_).longest(word.substr(i), work);
      known = length > 0;
      if (known) out.push_back(id);
      i += length;
    }
    if (known) return;
    out.resize(before);
    out.push_back(spec_.unk);
  }

 private:
  const TokenizerSpec& spec_;
  Trie first_, next_;
};

}  // namespace

std::unique_ptr<PieceModel> make_wordpiece(const TokenizerSpec& spec, const TokenIds& ids) {
  if (spec.unk < 0)
    fail(spec.where, ": a WordPiece vocabulary needs an unknown token ([UNK]), and this one has none");
  return std::make_unique<WordPiece>(spec, ids);
}

}  // namespace rapt
