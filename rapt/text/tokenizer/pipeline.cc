// SPDX-License-Identifier: Apache-2.0
// The one implementation behind Tokenizer: runs a TokenizerSpec.
#include <algorithm>
#include <array>
#include <cmath>

#include "rapt/base/unicode.h"
#include "rapt/text/tokenizer/model.h"
#include "rapt/text/tokenizer/normalize.h"
#include "rapt/text/tokenizer/split.h"
#include "rapt/text/tokenizer/trie.h"

namespace rapt {
namespace {

using Role = Tokenizer::Role;
using unicode::is_space;
using unicode::is_word;

// Finds added tokens: at every place the longest one, from left to right. Control tokens count only inside a
// trusted stretch.
class AddedMatcher {
 public:
  void add(const AddedToken& token, std::string_view text) {
    if (text.empty()) return;
    trie_.add(text, static_cast<std::int32_t>(tokens_.size()));
    tokens_.push_back(token);
    begins_[static_cast<std::uint8_t>(text[0])] = true;
  }
  bool empty() const { return tokens_.empty(); }

  struct Stretch {
    std::size_t begin, end;
    std::int32_t id;  // -1: text
  };
  // `trusted`: sorted, apart from each other.
  std::vector<Stretch> cut(std::string_view text, const std::vector<Span>& trusted,
                           std::string_view where) const {
    std::vector<Stretch> out;
    WalkWork work(text.size(), where);
    std::size_t open = 0, zone = 0;
    for (std::size_t i = 0; i < text.size();) {
      if (!begins_[static_cast<std::uint8_t>(text[i])]) {
        ++i;
        continue;
      }
      while (zone < trusted.size() && trusted[zone].end <= i) ++zone;
      const bool inside = zone < trusted.size() && trusted[zone].begin <= i;
      std::size_t length = 0;
      const AddedToken* token = nullptr;
      std::uint32_t node = 0;
      std::size_t k = i;
      for (; k < text.size() && trie_.step(node, text[k]); ++k) {
        if (trie_.value(node) < 0) continue;
        const AddedToken& t = tokens_[static_cast<std::size_t>(trie_.value(node))];
        if (t.special && !(inside && k + 1 <= trusted[zone].end)) continue;
        token = &t;
        length = k + 1 - i;
      }
      work.pay(k - i);
      if (!token) {
        ++i;
        continue;
      }
      std::size_t begin = i, end = i + length;
      i = end;
      if (token->single_word && (word_before(text, begin) || word_after(text, end))) continue;
      if (token->left_strip) {
        while (begin > open && space_before(text, begin) > 0 && space_before(text, begin) <= begin - open)
          begin -= space_before(text, begin);
      }
      if (token->right_strip) {
        while (end < text.size() && is_space(unicode::read(text, end).code))
          end += unicode::read(text, end).length;
      }
      if (open < begin) out.push_back({open, begin, -1});
      out.push_back({begin, end, token->id});
      open = i = end;
    }
    if (open < text.size()) out.push_back({open, text.size(), -1});
    return out;
  }

 private:
  // The character that ends there; length 0: none.
  static unicode::Char before(std::string_view text, std::size_t at) {
    if (at == 0) return {};
    std::size_t begin = at - 1;
    while (begin > 0 && at - begin < 4 && (static_cast<std::uint8_t>(text[begin]) & 0xC0) == 0x80) --begin;
    const unicode::Char c = unicode::read(text, begin);
    return begin + c.length == at ? c : unicode::Char{unicode::kReplacement, 1, false};
  }
  static bool word_before(std::string_view text, std::size_t at) {
    return at > 0 && is_word(before(text, at).code);
  }
  static bool word_after(std::string_view text, std::size_t at) {
    return at < text.size() && is_word(unicode::read(text, at).code);
  }
  static std::size_t space_before(std::string_view text, std::size_t at) {
    const unicode::Char c = before(text, at);
    return c.length > 0 && c.valid && is_space(c.code) ? c.length : 0;
  }

  Trie trie_;
  std::vector<AddedToken> tokens_;
  std::array<bool, 256> begins_{};
};

constexpr std::size_t kLongestAdded = 1024;  // the search for added tokens looks this far ahead at most

class Pipeline final : public Tokenizer {
 public:
  explicit Pipeline(TokenizerSpec from) : spec(std::move(from)), normalizer_(spec.normal, spec.where) {
    kind = spec.kind;
    name = spec.name;
    bos = spec.bos, eos = spec.eos, unk = spec.unk, pad = spec.pad, sep = spec.sep, cls = spec.cls,
    mask = spec.mask;
    before = spec.before, after = spec.after;
    add_bos = !before.empty();
    add_eos = !after.empty();
    ids_.reserve(spec.tokens.size());
    for (std::size_t i = 0; i < spec.tokens.size(); ++i) {
      if (!spec.tokens[i].empty())
        // The last of equals, as a dict has it.
        ids_.insert_or_assign(spec.tokens[i], static_cast<std::int32_t>(i));
    }
    for (const AddedToken& t : spec.added) {
      if (t.normalized && !t.special && !normalizer_.empty()) {
        EncodeWork work(8 * kLongestAdded, std::size_t{1} << 20, spec.where);
        late_.add(t, normalizer_.apply(t.text, {}, work));
      } else {
        early_.add(t, t.text);
      }
    }
    for (std::size_t i = 0; i < spec.tokens.size(); ++i) {
      if (spec.roles[i] == Role::user && !spec.tokens[i].empty())
        user_.add(spec.tokens[i], static_cast<std::int32_t>(i));
    }
    switch (spec.kind) {
      case Kind::bpe: model_ = make_bpe(spec, ids_); break;
      case Kind::spm: model_ = make_spm(spec, ids_); break;
      case Kind::unigram: model_ = make_unigram(spec, ids_); break;
      case Kind::wordpiece: model_ = make_wordpiece(spec, ids_); break;
    }
    roles_ = spec.roles;
    stops = stop_ids(spec);
  }

  std::vector<std::int32_t> encode(std::span<const TextPiece> pieces) const override {
    std::string text;
    std::vector<Span> trusted;
    for (const TextPiece& p : pieces) {
      if (p.special && !p.text.empty()) {
        if (!trusted.empty() && trusted.back().end == text.size()) trusted.back().end += p.text.size();
        else trusted.push_back({text.size(), text.size() + p.text.size()});
      }
      text += p.text;
    }
    std::vector<std::int32_t> out;
    out.reserve(text.size() / 3);
    EncodeWork work(text.size(), spec.where);
    if (early_.empty()) {
      encode_text(text, true, work, out);
      return out;
    }
    for (const auto& s : early_.cut(text, trusted, spec.where)) {
      if (s.id >= 0) out.push_back(s.id);
      else encode_text(std::string_view(text).substr(s.begin, s.end - s.begin), s.begin == 0, work, out);
    }
    return out;
  }

  std::string bytes_of(std::int32_t id) const override {
    if (!known(id)) return {};
    const std::string& text = text_of(id);
    switch (roles_[static_cast<std::size_t>(id)]) {
      case Role::control:
      case Role::unknown: return text;
      case Role::user:
        if (spec.kind == Kind::bpe) return text;
        break;
      case Role::byte:
        if (const int b = byte_of_token(text); b >= 0) return std::string(1, static_cast<char>(b));
        return text;
      case Role::normal:
      case Role::unused: break;
    }
    if (spec.byte_level && !spec.suffix.empty() && text.ends_with(spec.suffix))
      return from_printable(text.substr(0, text.size() - spec.suffix.size())) + " ";
    if (spec.byte_level) return from_printable(text);
    if (spec.kind == Kind::wordpiece) {
      if (spec.phantom_space)
        return text.starts_with(kMetaSpace) ? " " + text.substr(kMetaSpace.size()) : text;
      return text.starts_with(spec.continuing) ? text.substr(spec.continuing.size()) : " " + text;
    }
    if (spec.characters) return text;
    std::string out;
    for (std::size_t i = 0; i < text.size();) {
      const bool mark = text.compare(i, kMetaSpace.size(), kMetaSpace) == 0;
      out += mark ? ' ' : text[i];
      i += mark ? kMetaSpace.size() : 1;
    }
    return out;
  }

  std::string decode(std::span<const std::int32_t> ids, bool special) const override {
    std::string out;
    bool first = true;
    for (const std::int32_t id : ids) {
      if (!known(id) || (role(id) == Role::control && !special)) continue;
      std::string piece = bytes_of(id);
      const bool word = spec.kind == Kind::wordpiece;
      if (word && (role(id) == Role::control || role(id) == Role::unknown)) piece.insert(0, " ");
      const bool dummy = word || (spec.strip_prefix && role(id) != Role::control);
      if (first && dummy && piece.starts_with(' ')) piece.erase(0, 1);
      if (word && spec.cleanup) clean(piece);
      out += piece;
      first = false;
    }
    if (!spec.suffix.empty() && out.ends_with(' ')) out.pop_back();
    return out;
  }

  const std::string& text_of(std::int32_t id) const override {
    return spec.tokens[static_cast<std::size_t>(checked(id))];
  }
  std::optional<std::int32_t> id_of(std::string_view text) const override {
    const auto found = ids_.find(text);
    return found == ids_.end() ? std::nullopt : std::optional(found->second);
  }

  const TokenizerSpec spec;

 private:
  // Models have more rows than their vocabulary has tokens where the rows were rounded up; such an id has
  // no text.
  bool known(std::int32_t id) const {
    if (id < 0) fail("token ", id, " is no id");
    return static_cast<std::size_t>(id) < spec.tokens.size();
  }
  std::int32_t checked(std::int32_t id) const {
    if (!known(id)) {
      fail("token ", id, " is not in the vocabulary of ", spec.tokens.size(), " tokens");
    }
    return id;
  }

  void encode_text(std::string_view text, bool first, EncodeWork& work,
                   std::vector<std::int32_t>& out) const {
    if (normalizer_.empty()) return encode_normal(std::string(text), first, work, out);
    WalkWork walk(2 * text.size(), spec.where);  // SentencePiece asks twice for the spaces before a text
    const PrefixMatcher user = [&](std::string_view rest) { return user_.longest(rest, walk).first; };
    std::string normal = normalizer_.apply(std::string(text), user_.empty() ? PrefixMatcher{} : user, work);
    if (late_.empty()) return encode_normal(std::move(normal), first, work, out);
    for (const auto& s : late_.cut(normal, {}, spec.where)) {
      if (s.id >= 0) out.push_back(s.id);
      else encode_normal(normal.substr(s.begin, s.end - s.begin), first && s.begin == 0, work, out);
    }
  }

  void encode_normal(std::string text, bool first, EncodeWork& work, std::vector<std::int32_t>& out) const {
    Pieces pieces{std::move(text), {}, first};
    if (pieces.text.empty()) return;
    pieces.spans.push_back({0, pieces.text.size()});
    for (const SplitStep& step : spec.splits) split(pieces, step, work);
    for (const Span& s : pieces.spans)
      model_->encode(std::string_view(pieces.text).substr(s.begin, s.end - s.begin), out);
  }

  static std::string from_printable(const std::string& text) {
    std::string out;
    for (std::size_t i = 0; i < text.size();) {
      const unicode::Char c = unicode::read(text, i);
      const int b = c.valid ? printable_to_byte(c.code) : -1;
      if (b < 0) return text;  // not of the byte alphabet: stands for itself
      out += static_cast<char>(b);
      i += c.length;
    }
    return out;
  }

  // Word by word, as Hugging Face's decoder does it.
  static void clean(std::string& piece) {
    static constexpr std::pair<std::string_view, std::string_view> kRules[] = {
        {" .", "."},   {" ?", "?"},           {" !", "!"},   {" ,", ","},     {" ' ", "'"},   {" n't", "n't"},
        {" 'm", "'m"}, {" do not", " don't"}, {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"}};
    for (const auto& [from, to] : kRules) {
      for (std::size_t at = piece.find(from); at != std::string::npos; at = piece.find(from, at + to.size()))
        piece.replace(at, from.size(), to);
    }
  }

  Normalizer normalizer_;
  TokenIds ids_;
  AddedMatcher early_, late_;
  Trie user_;
  std::unique_ptr<PieceModel> model_;
};

}  // namespace

std::shared_ptr<const Tokenizer> make_tokenizer(TokenizerSpec spec) {
  const auto size = spec.tokens.size();
  const std::string& where = spec.where;
  constexpr std::size_t kMost = std::size_t{1} << 24;
  if (size == 0) fail(where, ": the vocabulary is empty");
  if (size > kMost) fail(where, ": the vocabulary has ", size, " tokens; more than ", kMost, " are refused");
  if (spec.roles.size() != size) fail(where, ": ", size, " tokens, but ", spec.roles.size(), " token types");
  const bool scored =
      spec.kind == Tokenizer::Kind::spm || (spec.kind == Tokenizer::Kind::unigram && spec.pieces.empty());
  if (scored && spec.scores.size() != size)
    fail(where, ": ", size, " tokens, but ", spec.scores.size(), " scores");
  for (std::size_t i = 0; i < spec.scores.size(); ++i) {
    if (!std::isfinite(spec.scores[i])) fail(where, ": the score of token ", i, " is no finite number");
  }
  for (const double s : spec.exact_scores) {
    if (!std::isfinite(s)) fail(where, ": a score is no finite number");
  }
  for (const auto& p : spec.pieces) {
    if (!std::isfinite(p.score)) fail(where, ": the score of piece '", p.text, "' is no finite number");
    if (p.id < 0 || static_cast<std::size_t>(p.id) >= size)
      fail(where, ": piece '", p.text, "' stands for token ", p.id, " of ", size);
  }
  // Some writers call them normal or control.
  for (std::size_t i = 0; i < size && spec.byte_fallback; ++i) {
    if (byte_of_token(spec.tokens[i]) >= 0) spec.roles[i] = Tokenizer::Role::byte;
  }
  if (!spec.suffix.empty() && (spec.kind != Tokenizer::Kind::bpe || !spec.byte_level || spec.ignore_merges))
    fail(where, ": end_of_word_suffix is known for BPE of bytes (ByteLevel) without ignore_merges only");
  const auto check = [&](std::int32_t id, const char* what) {
    if (id >= 0 && static_cast<std::size_t>(id) >= size)
      fail(where, ": the ", what, " token is ", id, ", but the vocabulary has ", size, " tokens");
  };
  check(spec.bos, "bos");
  check(spec.eos, "eos");
  check(spec.unk, "unknown");
  check(spec.pad, "padding");
  check(spec.sep, "separator");
  check(spec.cls, "cls");
  check(spec.mask, "mask");
  for (const auto* ids : {&spec.before, &spec.after, &spec.more_stops}) {
    for (const std::int32_t id : *ids) {
      if (id < 0) fail(where, ": a text is to be framed by a token the vocabulary does not name");
      check(id, "framing");
    }
  }
  for (const AddedToken& t : spec.added) {
    if (t.id < 0) fail(where, ": added token '", t.text, "' has no id");
    check(t.id, "added");
    if (t.text.size() > kLongestAdded)
      fail(where, ": added token ", t.id, " is ", t.text.size(), " bytes long; at most ", kLongestAdded,
           " are read");
  }
  return std::make_shared<Pipeline>(std::move(spec));
}

const TokenizerSpec& spec_of(const Tokenizer& tokenizer) {
  const auto* pipeline = dynamic_cast<const Pipeline*>(&tokenizer);
  if (!pipeline) fail("this tokenizer was not read from files, so it cannot be written");
  return pipeline->spec;
}

}  // namespace rapt
