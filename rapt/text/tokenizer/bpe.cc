// SPDX-License-Identifier: Apache-2.0
// Byte pair encoding, two ways. By merges: a list of pairs by rank (GPT-2 and its children; Llama and Gemma
// in tokenizer.json). By score: any neighbours whose text together is a token, the best score first
// (SentencePiece). Both keep neighbours in a linked list and candidates in a heap: n log n for n characters.
#include <algorithm>
#include <bit>
#include <cstring>
#include <functional>
#include <unordered_map>
#include <unordered_set>

#include "rapt/base/unicode.h"
#include "rapt/io/reader.h"
#include "rapt/text/tokenizer/model.h"
#include "rapt/text/tokenizer/trie.h"

namespace rapt {
namespace {

using Role = Tokenizer::Role;

class Bpe final : public PieceModel {
 public:
  Bpe(const TokenizerSpec& spec, const TokenIds& ids)
      : spec_(spec), ids_(ids), byte_ids_(256, -1), last_ids_(256, -1) {
    if (spec.byte_level) {
      for (int b = 0; b < 256; ++b) {
        std::string text;
        unicode::append(text, byte_to_printable(static_cast<std::uint8_t>(b)));
        if (const auto at = find(text); at != ids.end()) byte_ids_[static_cast<std::size_t>(b)] = at->second;
        if (const auto at = find(text + spec.suffix); at != ids.end())
          last_ids_[static_cast<std::size_t>(b)] = at->second;
      }
    } else if (spec.byte_fallback) {
      byte_ids_ = byte_ids(spec, ids);
    }
    merges_.reserve(spec.merges.size());
    std::string text;
    for (std::size_t rank = 0; rank < spec.merges.size(); ++rank) {
      const std::string &a = spec.merges[rank].first, &b = spec.merges[rank].second;
      text.assign(a).append(b);
      const auto left = ids.find(a), right = ids.find(b), both = ids.find(text);
      const auto missing = [&](const std::string& what) {
        fail(spec.where, ": merge ", rank, " joins '", a, "' and '", b, "', but '", what,
             "' is no token of the vocabulary (do vocabulary and merges belong together?)");
      };
      if (left == ids.end()) missing(a);
      if (right == ids.end()) missing(b);
      if (both == ids.end()) missing(a + b);
      if (spec.roles[static_cast<std::size_t>(both->second)] == Role::control) continue;
      merges_.add(key(left->second, right->second),
                  std::uint64_t{rank} << 32 | static_cast<std::uint32_t>(both->second));
    }
    for (std::size_t i = 0; i < spec.tokens.size(); ++i) longest_ = std::max(longest_, spec.tokens[i].size());
  }

  void encode(std::string_view piece, std::vector<std::int32_t>& out) const override {
    if (piece.empty()) return;
    if (spec_.ignore_merges && whole(piece, out)) return;
    std::vector<Symbol> symbols;
    symbols.reserve(piece.size());
    if (spec_.byte_level) {
      for (const char c : piece.substr(0, piece.size() - 1))
        add(symbols, byte_ids_[static_cast<std::uint8_t>(c)]);
      add(symbols, last_ids_[static_cast<std::uint8_t>(piece.back())]);
    } else {
      characters(piece, symbols);
    }
    merge(symbols);
    for (std::int32_t i = symbols.empty() ? -1 : 0; i >= 0; i = symbols[static_cast<std::size_t>(i)].next) {
      out.push_back(symbols[static_cast<std::size_t>(i)].id);
    }
  }

 private:
  struct Symbol {
    std::int32_t id, previous, next;  // id -1: merged into the one before
  };
  struct Candidate {
    std::uint32_t rank;
    std::int32_t at, id;  // left neighbour, what they become
    bool operator>(const Candidate& o) const { return rank != o.rank ? rank > o.rank : at > o.at; }
  };
  static std::uint64_t key(std::int32_t a, std::int32_t b) {
    return std::uint64_t{static_cast<std::uint32_t>(a)} << 32 | static_cast<std::uint32_t>(b);
  }

  // Control tokens are no part of any text, even where merges could spell them.
  TokenIds::const_iterator find(std::string_view text) const {
    const auto found = ids_.find(text);
    return found != ids_.end() && spec_.roles[static_cast<std::size_t>(found->second)] == Role::control
               ? ids_.end()
               : found;
  }

  bool whole(std::string_view piece, std::vector<std::int32_t>& out) const {
    if (piece.size() > longest_) return false;
    TokenIds::const_iterator found;
    if (spec_.byte_level) {
      std::string text;
      for (const char c : piece) unicode::append(text, byte_to_printable(static_cast<std::uint8_t>(c)));
      found = ids_.find(text);
    } else {
      found = ids_.find(piece);
    }
    if (found == ids_.end()) return false;
    const Role role = spec_.roles[static_cast<std::size_t>(found->second)];
    if (role != Role::normal && role != Role::user) return false;
    out.push_back(found->second);
    return true;
  }

  // A byte without a token disappears, as in the original where there is no unknown token.
  void add(std::vector<Symbol>& symbols, std::int32_t id) const {
    if (id < 0) {
      if (spec_.unk < 0 || spec_.unknown_drops) return;
      id = spec_.unk;
    }
    const auto n = static_cast<std::int32_t>(symbols.size());
    if (n > 0) symbols.back().next = n;
    symbols.push_back({id, n - 1, -1});
  }

  void characters(std::string_view piece, std::vector<Symbol>& symbols) const {
    bool unknown_before = false;
    for (std::size_t i = 0; i < piece.size();) {
      const unicode::Char c = unicode::read(piece, i);
      const std::string_view text = c.valid ? piece.substr(i, c.length) : unicode::kReplacementText;
      i += c.length;
      if (const auto found = find(text); found != ids_.end()) {
        add(symbols, found->second);
        unknown_before = false;
        continue;
      }
      if (spec_.byte_fallback && std::all_of(text.begin(), text.end(), [&](char b) {
            return byte_ids_[static_cast<std::uint8_t>(b)] >= 0;
          })) {
        for (const char b : text) add(symbols, byte_ids_[static_cast<std::uint8_t>(b)]);
        unknown_before = false;
        continue;
      }
      if (spec_.characters && spec_.unknown_drops) {
        fail(spec_.where, ": the character ", quote_name(text), " (byte ", i - c.length,
             " of the text) is not in the vocabulary of characters, which has no token for unknown ones");
      }
      if (!(unknown_before && spec_.fuse_unknown)) add(symbols, -1);
      unknown_before = true;
    }
  }

  void merge(std::vector<Symbol>& symbols) const {
    std::vector<Candidate> heap;
    const auto offer = [&](std::int32_t at, bool push) {
      const Symbol& a = symbols[static_cast<std::size_t>(at)];
      if (a.next < 0) return;
      if (const std::uint64_t* m = merges_.find(key(a.id, symbols[static_cast<std::size_t>(a.next)].id))) {
        heap.push_back(
            {static_cast<std::uint32_t>(*m >> 32), at, static_cast<std::int32_t>(*m & 0xFFFFFFFF)});
        if (push) std::push_heap(heap.begin(), heap.end(), std::greater<>());
      }
    };
    for (std::size_t i = 0; i + 1 < symbols.size(); ++i) offer(static_cast<std::int32_t>(i), false);
    std::make_heap(heap.begin(), heap.end(), std::greater<>());
    while (!heap.empty()) {
      const Candidate best = heap.front();
      std::pop_heap(heap.begin(), heap.end(), std::greater<>());
      heap.pop_back();
      Symbol& a = symbols[static_cast<std::size_t>(best.at)];
      if (a.id < 0 || a.next < 0) continue;
      Symbol& b = symbols[static_cast<std::size_t>(a.next)];
      const std::uint64_t* m = merges_.find(key(a.id, b.id));
      // A neighbour has changed since.
      if (!m || static_cast<std::int32_t>(*m & 0xFFFFFFFF) != best.id) continue;
      a.id = best.id;
      b.id = -1;
      a.next = b.next;
      if (a.next >= 0) symbols[static_cast<std::size_t>(a.next)].previous = best.at;
      if (a.previous >= 0) offer(a.previous, true);
      offer(best.at, true);
    }
  }

  const TokenizerSpec& spec_;
  const TokenIds& ids_;
  std::vector<std::int32_t> byte_ids_, last_ids_;  // last: of a piece's last byte, with the suffix
  KeyTable merges_;  // (left, right) → rank << 32 | id
  std::size_t longest_ = 0;
};

class Spm final : public PieceModel {
 public:
  Spm(const TokenizerSpec& spec, const TokenIds& ids) : spec_(spec), byte_ids_(byte_ids(spec, ids)) {
    for (std::size_t i = 0; i < spec.tokens.size(); ++i) {
      const Role role = spec.roles[i];
      if (spec.tokens[i].empty() || (role != Role::normal && role != Role::user && role != Role::unused))
        continue;
      const auto id = static_cast<std::int32_t>(i);
      if (ids.at(spec.tokens[i]) != id) continue;
      pieces_.insert_or_assign(spec.tokens[i], id);
      longest_ = std::max(longest_, spec.tokens[i].size());
      if (role == Role::user) user_.add(spec.tokens[i], id);
      const std::string_view token = spec.tokens[i];
      for (std::size_t at = token.find(kMetaSpace, 1); at != std::string_view::npos;
           at = token.find(kMetaSpace, at + 1)) {
        crossing_.insert(last_character(token.substr(0, at)));
      }
    }
  }

  void encode(std::string_view text, std::vector<std::int32_t>& out) const override {
    bool unknown_before = false;
    while (!text.empty()) {  // up to a visible space that no token reaches over
      std::size_t end = text.find(kMetaSpace, 1);
      while (end != std::string_view::npos && crossing_.contains(last_character(text.substr(0, end))))
        end = text.find(kMetaSpace, end + 1);
      end = std::min(end, text.size());
      encode_part(text.substr(0, end), unknown_before, out);
      text.remove_prefix(end);
    }
  }

 private:
  static std::uint32_t last_character(std::string_view text) {
    std::size_t begin = text.size() - 1;
    while (begin > 0 && text.size() - begin < 4 && (static_cast<std::uint8_t>(text[begin]) & 0xC0) == 0x80)
      --begin;
    return unicode::read(text, begin).code;
  }

  void encode_part(std::string_view text, bool& unknown_before, std::vector<std::int32_t>& out) const {
    std::vector<Symbol> symbols;
    symbols.reserve(text.size());
    WalkWork work(text.size(), spec_.where);
    for (std::size_t i = 0; i < text.size();) {
      std::size_t length = user_.empty() ? 0 : user_.longest(text.substr(i), work).first;
      const bool frozen = length > 0;
      if (!frozen) length = unicode::read(text, i).length;
      const auto n = static_cast<std::int32_t>(symbols.size());
      if (n > 0) symbols.back().next = n;
      symbols.push_back({text.substr(i, length), n - 1, -1, frozen});
      i += length;
    }
    if (symbols.empty()) return;
    std::vector<Candidate> heap;
    // Of unused tokens, to undo them.
    std::unordered_map<std::string_view, std::pair<std::string_view, std::string_view>> halves;
    const auto offer = [&](std::int32_t left, std::int32_t right, bool push) {
      if (left < 0 || right < 0) return;
      const Symbol &a = symbols[static_cast<std::size_t>(left)],
                   &b = symbols[static_cast<std::size_t>(right)];
      if (a.frozen || b.frozen || a.text.size() + b.text.size() > longest_) return;
      const std::string_view both(a.text.data(), a.text.size() + b.text.size());
      const auto found = pieces_.find(both);
      if (found == pieces_.end()) return;
      heap.push_back({spec_.scores[static_cast<std::size_t>(found->second)], left, right, both.size()});
      if (push) std::push_heap(heap.begin(), heap.end());
      if (spec_.roles[static_cast<std::size_t>(found->second)] == Role::unused)
        halves[both] = {a.text, b.text};
    };
    for (std::size_t i = 0; i + 1 < symbols.size(); ++i)
      offer(static_cast<std::int32_t>(i), static_cast<std::int32_t>(i + 1), false);
    std::make_heap(heap.begin(), heap.end());
    while (!heap.empty()) {
      const Candidate best = heap.front();
      std::pop_heap(heap.begin(), heap.end());
      heap.pop_back();
      Symbol &a = symbols[static_cast<std::size_t>(best.left)],
             &b = symbols[static_cast<std::size_t>(best.right)];
      if (a.text.empty() || b.text.empty() || a.text.size() + b.text.size() != best.size) continue;
      a.text = std::string_view(a.text.begin(), b.text.end());
      b.text = {};
      a.next = b.next;
      if (b.next >= 0) symbols[static_cast<std::size_t>(b.next)].previous = best.left;
      offer(a.previous, best.left, true);
      offer(best.left, a.next, true);
    }
    std::vector<std::string_view> todo;  // a stack: unused tokens fall apart again
    for (std::int32_t i = 0; i >= 0; i = symbols[static_cast<std::size_t>(i)].next) {
      todo.push_back(symbols[static_cast<std::size_t>(i)].text);
      while (!todo.empty()) {
        const std::string_view piece = todo.back();
        todo.pop_back();
        const auto found = pieces_.find(piece);
        if (found == pieces_.end()) {
          unknown(piece, unknown_before, out);
          continue;
        }
        if (spec_.roles[static_cast<std::size_t>(found->second)] == Role::unused) {
          if (const auto h = halves.find(piece); h != halves.end()) {
            todo.push_back(h->second.second);
            todo.push_back(h->second.first);
            continue;
          }
        }
        out.push_back(found->second);
        unknown_before = false;
      }
    }
  }

  struct Symbol {
    std::string_view text;  // empty: merged into the one before
    std::int32_t previous, next;
    bool frozen;  // a user-defined token: merges with nothing
  };
  struct Candidate {
    float score;
    std::int32_t left, right;
    std::size_t size;
    bool operator<(const Candidate& o) const { return score != o.score ? score < o.score : left > o.left; }
  };

  void unknown(std::string_view piece, bool& before, std::vector<std::int32_t>& out) const {
    if (spec_.byte_fallback) {
      for (const char c : piece) {
        const std::int32_t id = byte_ids_[static_cast<std::uint8_t>(c)];
        if (id >= 0) out.push_back(id);
        else if (spec_.unk >= 0) out.push_back(spec_.unk);
      }
      return;
    }
    if (!before && spec_.unk >= 0) out.push_back(spec_.unk);
    before = true;
  }

  const TokenizerSpec& spec_;
  std::vector<std::int32_t> byte_ids_;
  TokenIds pieces_;  // no control, unknown or byte tokens: text never becomes one of those
  Trie user_;
  std::size_t longest_ = 0;
  // Characters that some token has before a visible space. Elsewhere nothing merges over the space, so
  // that word by word is the same as the whole text at once, with a heap that stays in the cache (five
  // times as fast on 1 MB).
  std::unordered_set<std::uint32_t> crossing_;
};

}  // namespace

std::int32_t TokenIds::at(std::string_view text) const {
  const auto found = find(text);
  if (found == end()) fail("'", text, "' is no token");
  return found->second;
}

void TokenIds::reserve(std::size_t count) {
  entries_.reserve(count);
  if (count * 2 <= slots_.size()) return;
  slots_.assign(std::bit_ceil(std::max<std::size_t>(count * 2, 16)), {});
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    const std::uint32_t h = hash(entries_[i].first);
    slots_[slot_of(entries_[i].first, h)] = {h, static_cast<std::uint32_t>(i + 1)};
  }
}

std::uint32_t TokenIds::hash(std::string_view text) {
  constexpr std::uint64_t kOdd = 0x9E3779B97F4A7C15u;
  std::uint64_t h = text.size() * kOdd;
  const auto mix = [&](std::uint64_t x) {
    h = (h ^ x) * kOdd;
    h ^= h >> 32;
  };
  std::size_t i = 0;
  for (; i + 8 <= text.size(); i += 8) {
    std::uint64_t x;
    std::memcpy(&x, text.data() + i, 8);
    mix(x);
  }
  std::uint64_t last = 0;
  for (std::size_t k = i; k < text.size(); ++k) last = last << 8 | static_cast<std::uint8_t>(text[k]);
  mix(last);
  return static_cast<std::uint32_t>(h * kOdd >> 32);
}

std::pair<TokenIds::Entry*, bool> TokenIds::add(std::string_view text, std::int32_t id) {
  if ((entries_.size() + 1) * 2 > slots_.size()) reserve(std::max<std::size_t>(entries_.size() * 2, 16));
  const std::uint32_t h = hash(text);
  Slot& s = slots_[slot_of(text, h)];
  const bool fresh = s.place == 0;
  if (fresh) {
    entries_.push_back({text, id});
    s = {h, static_cast<std::uint32_t>(entries_.size())};
  }
  return {&entries_[s.place - 1], fresh};
}

std::unique_ptr<PieceModel> make_bpe(const TokenizerSpec& spec, const TokenIds& ids) {
  return std::make_unique<Bpe>(spec, ids);
}
std::unique_ptr<PieceModel> make_spm(const TokenizerSpec& spec, const TokenIds& ids) {
  return std::make_unique<Spm>(spec, ids);
}

std::uint32_t byte_to_printable(std::uint8_t b) {
  static const auto table = [] {
    std::vector<std::uint32_t> t(256);
    std::uint32_t next = 256;
    for (std::uint32_t i = 0; i < 256; ++i) {
      const bool itself = (i >= 33 && i <= 126) || (i >= 161 && i <= 172) || i >= 174;
      t[i] = itself ? i : next++;
    }
    return t;
  }();
  return table[b];
}

int printable_to_byte(std::uint32_t code) {
  static const auto table = [] {
    std::vector<int> t(256 + 68, -1);
    for (int b = 0; b < 256; ++b) t[byte_to_printable(static_cast<std::uint8_t>(b))] = b;
    return t;
  }();
  return code < table.size() ? table[code] : -1;
}

std::string byte_token(std::uint8_t byte) {
  constexpr char kHex[] = "0123456789ABCDEF";
  return std::string("<0x") + kHex[byte >> 4] + kHex[byte & 15] + ">";
}

int byte_of_token(std::string_view text) {
  if (text.size() != 6 || !text.starts_with("<0x") || text[5] != '>') return -1;
  const auto digit = [](char c) {
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
                                  : -1;
  };
  const int high = digit(text[3]), low = digit(text[4]);
  return high < 0 || low < 0 ? -1 : high * 16 + low;
}

std::vector<std::int32_t> byte_ids(const TokenizerSpec& spec, const TokenIds& ids) {
  std::vector<std::int32_t> out(256, -1);
  if (!spec.byte_fallback) return out;
  for (int b = 0; b < 256; ++b) {
    if (const auto at = ids.find(byte_token(static_cast<std::uint8_t>(b))); at != ids.end())
      out[static_cast<std::size_t>(b)] = at->second;
  }
  return out;
}

}  // namespace rapt
