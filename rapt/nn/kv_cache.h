// SPDX-License-Identifier: Apache-2.0
// Cached keys and values of many sequences: pages of kPageKeys keys per layer, taken from a common pool. A page that no later row
// may look at (behind a window, after the kept keys) goes back to the pool; nothing is ever moved, so no bit depends on eviction.
#pragma once
#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "rapt/nn/layers.h"
#include "rapt/run/kv_view.h"
#include "rapt/run/run.h"

namespace rapt {

class KvCache {
 public:
  explicit KvCache(DType real) : real_(real) {}

  Dim length(std::uint64_t id) const;  // tokens a sequence has in the cache
  void drop(std::uint64_t id);
  std::size_t pages() const { return made_ - free_count_; }  // held by sequences

  // Called by the model, in the order of a pass: room for the rows of each sequence, their keys and values written, what to read.
  void write(Run& run, int slot, const Attention& a, std::span<const Sequence> sequences, const Tensor& k, const Tensor& v);
  KvView view(int slot, const Attention& a, std::span<const Sequence> sequences) const;
  void advance(std::span<const Sequence> sequences, Dim hidden_rows = 0);  // after a pass: lengths grow, unreachable pages are freed
  bool has(int slot, std::uint64_t id) const;                              // keys of this layer were written (cross-attention)
  Dim slot_length(int slot, std::uint64_t id) const;                       // keys of this layer

 private:
  struct Slot {  // one attention layer of one sequence
    std::vector<std::byte*> pages;
    Dim length = 0;
    Dim left = Mask::kAll, keep = 0;
    std::size_t page_bytes = 0;
  };
  struct Entry {
    Dim length = 0;
    std::vector<Slot> slots;
  };
  std::byte* take_page(std::size_t bytes);
  void give_page(std::byte* page, std::size_t bytes);

  DType real_;
  std::unordered_map<std::uint64_t, Entry> entries_;
  std::unordered_map<std::size_t, std::vector<std::byte*>> free_;
  struct Free {
    void operator()(std::byte* p) const;
  };
  std::vector<std::unique_ptr<std::byte, Free>> owned_;
  std::size_t made_ = 0, made_bytes_ = 0, free_count_ = 0;
};

}  // namespace rapt
