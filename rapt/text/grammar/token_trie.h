// SPDX-License-Identifier: Apache-2.0
// The bytes of a vocabulary's tokens as a tree in depth-first order: whoever walks it and is refused at a
// byte skips all tokens that begin so. One per tokenizer, made once, shared.
#pragma once
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "rapt/base/error.h"

namespace rapt {

class Tokenizer;

// What may come next in one state of a grammar, whatever rules are open around it.
struct StateMask {
  std::vector<std::uint64_t> bits;  // tokens that need nothing of what is around; empty where `ids` is used
  std::vector<std::int32_t> ids;  // the same, where they are few
  std::vector<std::uint32_t>
      pending;  // nodes where the rule may have ended: what follows depends on the rest
  std::size_t memory() const { return sizeof(*this) + bits.size() * 8 + ids.size() * 4 + pending.size() * 4; }
};

// A mask for every state, made by whoever first wants it. Readers never wait: a mask is made beside and put
// into its place at once; of two that are made at the same time one is thrown away. What does not fit the
// limit is made again each time.
class MaskTable {
 public:
  MaskTable(std::size_t states, std::size_t limit);
  ~MaskTable();
  MaskTable(const MaskTable&) = delete;
  MaskTable& operator=(const MaskTable&) = delete;
  // The mask of a state; `own` keeps one for which there was no room.
  const StateMask& get(std::size_t state, const std::function<StateMask()>& make,
                       std::unique_ptr<const StateMask>& own) const;
  std::size_t memory() const { return memory_ + states_ * sizeof(masks_[0]); }

 private:
  std::size_t states_, limit_;
  std::unique_ptr<std::atomic<const StateMask*>[]> masks_;
  mutable std::atomic<std::size_t> memory_ = 0;
};

class TokenTrie {
 public:
  static constexpr std::uint32_t kNoToken = 0xFFFFFF;
  static constexpr std::size_t kLongest = 255;  // bytes; longer tokens are never allowed
  static constexpr std::uint8_t kUnsafe = 255;
  static constexpr int kSlices = 33;  // strings that may go on for 1 to 32 characters, or for kUnsafe - 1
  struct Node {
    std::uint64_t size : 24, byte : 8, token : 24, depth : 8;  // size: nodes of its subtree, itself included
  };

  explicit TokenTrie(const Tokenizer& tokenizer);
  // Bytes of every token; "" for those that are no text.
  explicit TokenTrie(std::vector<std::string> texts);

  std::size_t vocabulary() const { return texts_.size(); }
  std::size_t words() const { return (texts_.size() + 63) / 64; }
  const std::string& text(std::size_t id) const { return texts_[id]; }
  const std::vector<Node>& nodes() const { return nodes_; }
  // Of a node's tokens the most characters, where all of them are runs of characters that a JSON string holds
  // unescaped; else kUnsafe.
  std::uint8_t run(std::size_t node) const { return runs_[node]; }
  // The tokens that are such runs of at most n characters; n becomes the number that was meant (0: none).
  const std::vector<std::uint64_t>& slice(unsigned& n) const;
  // Tokens with the bytes of another one: {that one, the other}.
  const std::vector<std::pair<std::int32_t, std::int32_t>>& twins() const { return twins_; }
  const MaskTable& shared_masks() const { return *shared_; }

 private:
  void build();
  std::vector<std::string> texts_;
  std::vector<Node> nodes_;
  std::vector<std::uint8_t> runs_;
  std::vector<std::vector<std::uint64_t>> slices_;
  std::vector<std::pair<std::int32_t, std::int32_t>> twins_;
  std::unique_ptr<MaskTable> shared_;  // of the states that all grammars have
};

}  // namespace rapt
