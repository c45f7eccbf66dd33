// SPDX-License-Identifier: Apache-2.0
// Cached keys and values of many sequences: pages of kPageKeys keys per layer, taken from a common pool, in
// the format of the cache. A page that no later row may look at (behind a window, after the kept keys) goes
// back to the pool; nothing is ever moved, so no bit depends on eviction. Sequences may share pages: one
// that writes into a shared page writes into a copy of its own. Of a recurrent decoder it keeps the state
// after the last token and what it looks at (nn/recurrent.h), always as the device computes; sequences that
// share those hold the same ones, since a pass replaces a state and never changes it.
#pragma once
#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "rapt/nn/layers.h"
#include "rapt/nn/recurrent.h"
#include "rapt/ops/rope.h"
#include "rapt/run/kv_view.h"
#include "rapt/run/run.h"

namespace rapt {

class KvCache {
 public:
  // stored: in blocks, too, keys are written with their bias; for comparison only
  enum class KeyBias { apart, stored };
  // real: what the device computes in; format: f32, bf16, f16, q8_0 or q4_0. A device of doubles stores
  // doubles.
  KvCache(DType real, DType format, KeyBias key_bias = KeyBias::apart)
      : real_(real), format_(real == DType::f64 ? real : format), key_bias_(key_bias) {}
  explicit KvCache(DType real) : KvCache(real, real) {}
  KvCache(KvCache&&) = default;
  KvCache& operator=(KvCache&&) = default;

  DType format() const { return format_; }
  Dim length(std::uint64_t id) const;  // tokens a sequence has in the cache
  void drop(std::uint64_t id);
  // `to` becomes a sequence that begins with the first `length` tokens of `from`, without a copy of full
  // pages; what it held is dropped.
  void share(std::uint64_t from, std::uint64_t to, Dim length);
  // The sequence ends after `length` tokens. Fails where tokens that the next row would see have left a
  // window, and where a recurrent state would have to go back to anywhere but the start (as share does).
  void truncate(std::uint64_t id, Dim length);
  std::size_t pages() const { return made_ - free_count_; }  // held by sequences, shared ones once
  std::size_t bytes() const { return held_bytes_; }          // of them

  // Whether keys with a bias under RoPE (Qwen2) are stored without it here: in a cache in blocks
  // (run/kv_view.h).
  bool bias_apart(const Attention& a) const;

  // Called by the model, in the order of a pass: room for the rows of each sequence, their keys and values
  // written, what to read. `table`: the rows' angles; needed where bias_apart(a).
  void write(Run& run, const Attention& a, std::span<const Sequence> sequences, const Tensor& k,
             const Tensor& v, const RopeTable* table = nullptr);
  KvView view(const Attention& a, std::span<const Sequence> sequences) const;
  // After a pass: lengths grow, unreachable pages are freed.
  void advance(std::span<const Sequence> sequences, Dim hidden_rows = 0);
  bool has(int slot, std::uint64_t id) const;          // keys of this layer were written (cross-attention)
  Dim slot_length(int slot, std::uint64_t id) const;   // keys of this layer
  const RecurrentEntry* recurrent(std::uint64_t id) const;  // nullptr: nothing is known of the sequence
  void set_recurrent(std::uint64_t id, RecurrentEntry entry);

 private:
  struct Slot {  // one attention layer of one sequence
    std::vector<std::byte*> pages = {};
    Dim length = 0;
    Dim left = Mask::kAll, keep = 0;
    bool cross = false;  // keys of another sequence: their number does not follow the tokens
  };
  struct Angles {  // angles of the positions, for the layers that rotate alike
    RopeSpec spec;
    Dim head_dim = 0, half = 0, rows = 0;
    Slot slot;
  };
  struct Entry {
    Dim length = 0, hidden = 0;  // hidden: rows before the first token (sinks)
    std::vector<Slot> slots;
    std::vector<Angles> angles;
    RecurrentEntry recurrent = {};
  };
  std::byte* take_page(std::size_t bytes);
  void give_page(std::byte* page);
  void grow(Slot& slot, Dim past, Dim length, std::size_t page_bytes);
  void shrink(Slot& slot, Dim length);
  void evict(Slot& slot);
  void check_not_evicted(std::uint64_t id, const Entry& e, Dim length) const;
  static const Angles* angles_of(const Entry& e, const Attention& a);
  template <class F>
  static void each_slot(Entry& e, const F& f) {
    for (Slot& s : e.slots) f(s);
    for (Angles& t : e.angles) f(t.slot);
  }

  DType real_, format_;
  KeyBias key_bias_;
  std::unordered_map<std::uint64_t, Entry> entries_;
  std::unordered_map<std::size_t, std::vector<std::byte*>> free_;
  struct Free {
    void operator()(std::byte* p) const;
  };
  std::vector<std::unique_ptr<std::byte, Free>> owned_;
  std::size_t made_ = 0, made_bytes_ = 0, free_count_ = 0, held_bytes_ = 0;
};

}  // namespace rapt
