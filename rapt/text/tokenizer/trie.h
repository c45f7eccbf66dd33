// SPDX-License-Identifier: Apache-2.0
// Maps for vocabularies: byte strings by prefix, and pairs of ids. Both are open hash tables, so that
// 262,144 tokens load fast.
#pragma once
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "rapt/text/tokenizer/work.h"

namespace rapt {

// 64-bit keys to 64-bit values; the key kNone is not allowed.
class KeyTable {
 public:
  static constexpr std::uint64_t kNone = ~std::uint64_t{0};

  const std::uint64_t* find(std::uint64_t key) const {
    if (slots_.empty()) return nullptr;
    for (std::size_t i = place(key);; i = (i + 1) & (slots_.size() - 1)) {
      if (slots_[i].first == key) return &slots_[i].second;
      if (slots_[i].first == kNone) return nullptr;
    }
  }
  void reserve(std::size_t count) {
    while (slots_.size() < count * 2) grow();
  }
  // The value of a key, which is new with `value` where it was absent; true: it was.
  std::pair<std::uint64_t*, bool> add(std::uint64_t key, std::uint64_t value) {
    if ((count_ + 1) * 2 > slots_.size()) grow();
    for (std::size_t i = place(key);; i = (i + 1) & (slots_.size() - 1)) {
      if (slots_[i].first == key) return {&slots_[i].second, false};
      if (slots_[i].first == kNone) {
        slots_[i] = {key, value};
        ++count_;
        return {&slots_[i].second, true};
      }
    }
  }

 private:
  std::size_t place(std::uint64_t key) const {
    key *= 0x9E3779B97F4A7C15u;
    return static_cast<std::size_t>(key ^ key >> 29) & (slots_.size() - 1);
  }
  void grow() {
    std::vector<std::pair<std::uint64_t, std::uint64_t>> old(slots_.empty() ? 16 : slots_.size() * 2,
                                                             {kNone, 0});
    old.swap(slots_);
    count_ = 0;
    for (const auto& [key, value] : old) {
      if (key != kNone) add(key, value);
    }
  }
  std::vector<std::pair<std::uint64_t, std::uint64_t>> slots_;
  std::size_t count_ = 0;
};

// Byte strings to ids, walked byte by byte.
class Trie {
 public:
  static constexpr std::int32_t kNothing = -1;

  bool empty() const { return values_.size() == 1; }
  void add(std::string_view text, std::int32_t value) {  // a second value for a text replaces the first
    std::uint32_t node = 0;
    for (const char c : text) {
      const auto [next, fresh] =
          edges_.add(std::uint64_t{node} << 8 | static_cast<std::uint8_t>(c), values_.size());
      if (fresh) values_.push_back(kNothing);
      node = static_cast<std::uint32_t>(*next);
    }
    values_[node] = value;
  }
  // Goes down by one byte; false: there is nothing.
  bool step(std::uint32_t& node, char c) const {
    const std::uint64_t* next = edges_.find(std::uint64_t{node} << 8 | static_cast<std::uint8_t>(c));
    if (!next) return false;
    node = static_cast<std::uint32_t>(*next);
    return true;
  }
  std::int32_t value(std::uint32_t node) const { return values_[node]; }
  // The longest text in the trie that `text` begins with: its length and value.
  std::pair<std::size_t, std::int32_t> longest(std::string_view text, WalkWork& work) const {
    std::pair<std::size_t, std::int32_t> best{0, kNothing};
    std::uint32_t node = 0;
    std::size_t i = 0;
    for (; i < text.size() && step(node, text[i]); ++i) {
      if (values_[node] != kNothing) best = {i + 1, values_[node]};
    }
    work.pay(i);
    return best;
  }

 private:
  KeyTable edges_;
  std::vector<std::int32_t> values_ = {kNothing};
};

}  // namespace rapt
