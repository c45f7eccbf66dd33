// SPDX-License-Identifier: Apache-2.0
// Beginnings of sequences that later ones may start from: whole pages of a pool, found by a chained hash over
// what they depend on besides the tokens (the root) and the tokens, which are compared on a hit. A tree: a
// node holds the tokens and pages that follow its parent's. When room is wanted, the leaf that was used
// longest ago goes first.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "rapt/nn/kv_pool.h"

namespace rapt {

struct PrefixHash {
  std::uint64_t a = 0x243F6A8885A308D3u, b = 0x13198A2E03707344u;
  bool operator==(const PrefixHash&) const = default;
  void add(std::uint64_t x);
  void add(std::string_view text);  // with its length
  void add(std::span<const std::int32_t> ids);
};

class PrefixIndex {
 public:
  explicit PrefixIndex(KvPool& pool) : pool_(pool) {}
  ~PrefixIndex() { clear(); }
  PrefixIndex(const PrefixIndex&) = delete;
  PrefixIndex& operator=(const PrefixIndex&) = delete;

  // The tokens that a sequence of `ids` may begin with, at most `most` of them; 0: none. `whole`: leading
  // tokens that see each other and come in one node. Then `sequence` of the pool holds them.
  Dim begin(const PrefixHash& root, std::span<const std::int32_t> ids, Dim most, Dim whole,
            const Stream& stream, std::uint64_t sequence);
  // How many tokens that would be.
  Dim find(const PrefixHash& root, std::span<const std::int32_t> ids, Dim most, Dim whole,
           const Stream& stream) const;
  // The full pages of a sequence that is `ids` as far as the pool has it. `passing`: it goes on from here,
  // in an answer or in the middle of a prompt. Of states of parts, which are large, those of passing ends
  // become rare behind the newest one: at page e they stay until page e + 2 (the largest power of 2 that
  // divides e). So do those of ends of prompts, but for the newest kEndsKept of a text.
  void insert(const PrefixHash& root, std::span<const std::int32_t> ids, Dim whole, std::uint64_t sequence,
              bool passing);
  static constexpr int kEndsKept = 4;
  bool evict_one();  // gives pages back; false: there is none that would
  bool evict_idle();  // the same, only of what no sequence uses
  std::size_t reclaimable() const;  // bytes that all evictions would give back
  void clear();
  std::size_t size() const { return nodes_.size(); }
  // The first node of a sequence ends at a token, and every 64 tokens there is a next.
  Dim first_end(Dim whole) const;

 private:
  struct Node {
    PrefixHash hash;
    Node* parent = nullptr;
    std::vector<std::int32_t> ids;
    KvPool::Held held;
    Dim end = 0;  // tokens up to here
    int children = 0;
    bool passing = true;
    std::uint64_t used = 0;
  };
  struct Hasher {
    std::size_t operator()(const PrefixHash& h) const { return h.a; }
  };
  std::vector<Node*> chain(const PrefixHash& root, std::span<const std::int32_t> ids, Dim most, Dim whole,
                           const Stream& stream) const;
  void touch(Node& node);
  void thin(const Node& newest);
  void evict(Node* node);

  KvPool& pool_;
  std::unordered_map<PrefixHash, std::unique_ptr<Node>, Hasher> nodes_;
  std::set<std::pair<std::uint64_t, Node*>> leaves_;
  std::uint64_t clock_ = 0;
};

}  // namespace rapt
