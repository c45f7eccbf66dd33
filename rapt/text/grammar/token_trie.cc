// SPDX-License-Identifier: Apache-2.0
// Sorted texts → nodes; slices; the table of masks.
#include "rapt/text/grammar/token_trie.h"

#include <algorithm>
#include <numeric>

#include "rapt/base/unicode.h"
#include "rapt/text/grammar/compile.h"
#include "rapt/text/grammar/constraint.h"
#include "rapt/text/tokenizer/tokenizer.h"

namespace rapt {
namespace {

constexpr std::size_t kSharedMemory = std::size_t{64} << 20;

// Characters that a JSON string holds as they are; the last one may be unfinished. kUnsafe: something else.
std::uint8_t safe_characters(std::string_view text) {
  std::size_t count = 0;
  for (std::size_t i = 0; i < text.size(); ++count) {
    const unicode::Char c = unicode::read(text, i);
    if (c.valid) {
      if (c.code < 0x20 || c.code == '"' || c.code == '\\') return TokenTrie::kUnsafe;
      i += c.length;
      continue;
    }
    // The beginning of a character: filled up with the least and the most that may follow, one is valid.
    bool begins = false;
    for (const char fill : {'\x80', '\x90', '\xA0', '\xBF'}) {
      std::string tail(text.substr(i));
      if (tail.size() >= 4) return TokenTrie::kUnsafe;
      for (const std::size_t n : {2u, 3u, 4u}) {
        if (n <= tail.size()) continue;
        std::string whole = tail;
        whole += fill;
        while (whole.size() < n) whole += '\x80';
        const unicode::Char filled = unicode::read(whole, 0);
        begins |= filled.valid && filled.length == n;
      }
    }
    if (!begins) return TokenTrie::kUnsafe;
    i = text.size();
  }
  return count < TokenTrie::kUnsafe ? static_cast<std::uint8_t>(count) : TokenTrie::kUnsafe;
}

std::vector<std::string> texts_of(const Tokenizer& tokenizer) {
  std::vector<std::string> texts(static_cast<std::size_t>(tokenizer.size()));
  for (std::int32_t id = 0; id < tokenizer.size(); ++id) {
    const Tokenizer::Role role = tokenizer.role(id);
    if (role == Tokenizer::Role::normal || role == Tokenizer::Role::user || role == Tokenizer::Role::byte)
      texts[static_cast<std::size_t>(id)] = tokenizer.bytes_of(id);
  }
  return texts;
}

}  // namespace

// --------------------------------------------------------------------------------------------------- masks
MaskTable::MaskTable(std::size_t states, std::size_t limit)
    : states_(states), limit_(limit), masks_(std::make_unique<std::atomic<const StateMask*>[]>(states)) {}

MaskTable::~MaskTable() {
  for (std::size_t i = 0; i < states_; ++i) delete masks_[i].load();
}

const StateMask& MaskTable::get(std::size_t state, const std::function<StateMask()>& make,
                                std::unique_ptr<const StateMask>& own) const {
  std::atomic<const StateMask*>& place = masks_[state];
  if (const StateMask* made = place.load(std::memory_order_acquire)) return *made;
  auto mask = std::make_unique<const StateMask>(make());
  const std::size_t size = mask->memory();
  if (memory_.fetch_add(size) + size > limit_) {
    memory_ -= size;
    own = std::move(mask);
    return *own;
  }
  const StateMask* before = nullptr;
  if (place.compare_exchange_strong(before, mask.get(), std::memory_order_acq_rel)) return *mask.release();
  memory_ -= size;
  return *before;
}

// ---------------------------------------------------------------------------------------------------- trie
TokenTrie::TokenTrie(const Tokenizer& tokenizer) : TokenTrie(texts_of(tokenizer)) {}

TokenTrie::TokenTrie(std::vector<std::string> texts) : texts_(std::move(texts)) {
  for (std::string& t : texts_)
    if (t.size() > kLongest) t.clear();
  build();
  static const std::size_t shared = grammar_of_json_object()->shared;
  shared_ = std::make_unique<MaskTable>(shared, kSharedMemory);
}

void TokenTrie::build() {
  if (texts_.size() >= kNoToken)
    fail("a vocabulary of ", texts_.size(), " tokens is too large for a grammar");
  std::vector<std::uint32_t> order;
  for (std::uint32_t id = 0; id < texts_.size(); ++id)
    if (!texts_[id].empty()) order.push_back(id);
  std::sort(order.begin(), order.end(), [&](std::uint32_t a, std::uint32_t b) {
    const int c = texts_[a].compare(texts_[b]);
    return c != 0 ? c < 0 : a < b;
  });
  std::vector<std::uint32_t> open;  // the nodes above, by depth
  const auto close = [&](std::size_t depth) {
    while (open.size() > depth) {
      const std::uint32_t i = open.back();
      open.pop_back();
      nodes_[i].size = (nodes_.size() - i) & 0xFFFFFF;
      if (!open.empty()) runs_[open.back()] = std::max(runs_[open.back()], runs_[i]);
    }
  };
  std::vector<std::uint8_t> characters(texts_.size(), kUnsafe);
  std::string_view before;
  std::uint32_t before_id = 0;
  for (const std::uint32_t id : order) {
    const std::string_view text = texts_[id];
    characters[id] = safe_characters(text);
    if (text == before) {
      twins_.push_back({static_cast<std::int32_t>(before_id), static_cast<std::int32_t>(id)});
      continue;
    }
    const auto common = static_cast<std::size_t>(
        std::mismatch(text.begin(), text.end(), before.begin(), before.end()).first - text.begin());
    close(common);
    for (std::size_t i = common; i < text.size(); ++i) {
      if (nodes_.size() >= kNoToken) fail("a vocabulary of more than ", kNoToken, " beginnings is too large");
      open.push_back(static_cast<std::uint32_t>(nodes_.size()));
      Node n{};
      n.byte = static_cast<std::uint8_t>(text[i]);
      n.depth = (i + 1) & 0xFF;
      n.token = i + 1 == text.size() ? id : kNoToken;
      nodes_.push_back(n);
      runs_.push_back(0);
    }
    runs_[open.back()] = std::max(runs_[open.back()], characters[id]);
    before = text;
    before_id = id;
  }
  close(0);
  slices_.assign(kSlices + 1, {});
  for (int s = 1; s <= kSlices; ++s) {
    const unsigned most = s < kSlices ? static_cast<unsigned>(s) : kUnsafe - 1u;
    std::vector<std::uint64_t>& bits = slices_[static_cast<std::size_t>(s)];
    bits.assign(words(), 0);
    for (std::size_t id = 0; id < texts_.size(); ++id)
      if (characters[id] <= most && !texts_[id].empty()) bits[id / 64] |= std::uint64_t{1} << id % 64;
  }
}

const std::vector<std::uint64_t>& TokenTrie::slice(unsigned& n) const {
  const std::size_t at = n >= kUnsafe - 1u ? kSlices : std::min<unsigned>(n, kSlices - 1);
  n = at == kSlices ? kUnsafe - 1u : static_cast<unsigned>(at);
  return slices_[at];
}

}  // namespace rapt
