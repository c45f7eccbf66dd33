// SPDX-License-Identifier: Apache-2.0
// What a model remembers of many sequences between passes, within a budget. Layers of equal shape, format
// and window form a group; a page id means kPageKeys keys in every layer of its group, and a sequence has
// one list of page ids per group. Cross-attention has groups of its own, and so have the angles of keys that
// are stored without their bias. Sequences may share pages: one that writes into a shared page writes into
// a copy of its own. A page that no later row may look at (behind a window, after the kept keys) goes back;
// nothing is ever moved, so no bit depends on eviction.
//
// Parts with a state (delta rule, short convolution) have pages of chunks of kPageKeys rows: of a chunk's
// rows, and of the state at a chunk's end. They behave like a window that no stream changes: a sequence
// keeps the rows of its present chunk and the one before, and the state before its present chunk, so it can
// end anywhere in the present chunk. Chunks that a pass runs through from end to end get no pages at all;
// where a pass ends, what is there can be held for others to begin with.
//
// States of fixed size (recurrent cells) lie in two halves: a pass reads one and writes the other, and they
// change places when it has succeeded. Sequences that share a state have a copy each.
//
// A pass first reserves (KvPass): pages for its new rows and the copies that shared pages need. Nothing is
// taken afterwards, so no pass fails halfway for want of room; one that ends otherwise than by commit()
// leaves everything as it was. One thread at a time.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "rapt/nn/layers.h"
#include "rapt/nn/recurrent.h"
#include "rapt/nn/slab.h"
#include "rapt/ops/delta.h"
#include "rapt/run/kv_view.h"
#include "rapt/run/run.h"

namespace rapt {

struct Model;

// What a pass adds to a sequence.
struct KvGrowth {
  std::uint64_t id = 0;
  Dim tokens = 0;
  Dim memory = 0;  // keys that cross-attention will look at; 0: those that are there already
  Stream stream = {};
};

class KvPool {
 public:
  // stored: in blocks, too, keys are written with their bias; for comparison only
  enum class KeyBias { apart, stored };
  static constexpr std::size_t kNoLimit = 0;
  // format: f32, bf16, f16, q8_0 or q4_0. A device of doubles stores doubles. budget: bytes.
  KvPool(const Model& model, DType format, std::size_t budget = kNoLimit, KeyBias key_bias = KeyBias::apart);
  explicit KvPool(const Model& model);
  ~KvPool();
  KvPool(const KvPool&) = delete;
  KvPool& operator=(const KvPool&) = delete;

  const Model& model() const { return model_; }
  DType format() const { return format_; }
  bool has(std::uint64_t id) const { return entries_.contains(id); }
  Dim length(std::uint64_t id) const;  // tokens a sequence has here
  Dim memory(std::uint64_t id) const;  // keys its cross-attention looks at
  void drop(std::uint64_t id);
  // `to` becomes a sequence that begins with the first `length` tokens of `from`, without a copy of pages;
  // what it held is dropped. Only a state (recurrent models) is copied, and needs room.
  void share(std::uint64_t from, std::uint64_t to, Dim length);
  // The sequence ends after `length` tokens. Fails where tokens that the next row would see have left a
  // window, where a part's state would have to go back to an earlier chunk, and where a recurrent state
  // would have to go back to anywhere but the start (as share does).
  void truncate(std::uint64_t id, Dim length);
  // Of the next pass over a sequence that is there, the last `rows` rows may be taken back by truncate(),
  // which is then called in any case: until then nothing leaves a window that the rows before them see. Not
  // for recurrent states.
  void guess(std::uint64_t id, Dim rows);

  std::size_t pages() const;  // held by sequences and prefixes, shared ones once
  std::size_t shared_pages() const;  // of them, those that several hold
  std::size_t bytes() const { return used_ + *memory_used_; }  // of them, of states and memories
  std::size_t budget() const { return budget_; }  // kNoLimit: none
  std::size_t free_bytes() const;  // what may still be taken
  // Bytes that a pass over these would take, and whether they are there.
  std::size_t need(std::span<const KvGrowth> growths) const;
  bool room(std::span<const KvGrowth> growths) const { return need(growths) <= free_bytes(); }
  // The least with which a sequence of so many tokens can be read, a few at a time, and go on.
  std::size_t bytes_of(Dim tokens, Dim memory = 0, const Stream& stream = {}) const;
  std::size_t bytes_at_once(Dim tokens, Dim memory = 0) const;  // … when they come in one pass
  std::size_t page_bytes() const;  // of one page in every group that follows the tokens
  std::size_t state_bytes() const { return states_.place_bytes(); }

  // Whether keys with a bias under RoPE (Qwen2) are stored without it here: in a cache in blocks
  // (run/kv_view.h).
  bool bias_apart(const Attention& a) const;

  // Whole pages of a sequence that outlive it: what later sequences begin with (use/prefixes.h). Pages
  // [first, first + count) of every group that follows the tokens, -1 where a window has let go of one or a
  // pass ran through a chunk; and
  // the state, where the sequence ends just there.
  struct Held {
    std::vector<std::vector<std::int32_t>> pages;  // by group; of other groups none
    std::int32_t state = -1;
  };
  Held hold(std::uint64_t id, Dim first, Dim count);
  void let_go(Held& held);
  // Bytes that letting go of these, or dropping the sequence, gives back.
  std::size_t freed_by(const Held& held) const;
  std::size_t freed_by(std::uint64_t id) const;
  bool frees(const Held& held) const { return freed_by(held) > 0; }
  // No page was let go, and the state is there where there are states: a sequence may go on from its end.
  bool whole(const Held& held) const;
  void forget_chunks(Held& held);  // states of parts: none may go on from its end then
  bool has_chunks(const Held& held) const;
  // Whether a sequence of `length` tokens may go on from these, one after the other from page 0 on.
  bool continues(std::span<const Held* const> chain, Dim length, const Stream& stream) const;
  void begin(std::uint64_t id, std::span<const Held* const> chain, Dim length, const Stream& stream);
  // What goes wrong on purpose, so that tests know they would see it: a page that is shared is written
  // without a copy, a state is written in place, the state at a chunk's end is written where the last one
  // was.
  enum class Fault { none, no_copy, no_half, same_state } fault = Fault::none;

  Dim hidden() const { return hidden_; }  // rows before a sequence's first token (learned tokens)
  bool has_states() const { return states_.place_bytes() > 0; }
  bool has_chunks() const { return has_chunks_; }  // parts with a state: pieces should end where a page does

 private:
  friend class KvPass;
  enum class Kind { keys, cross, angles, rows, states };  // rows, states: of chunks
  struct Group {
    Kind kind;
    KvLayout layout;  // of one layer; angles, rows, states: page_bytes alone
    std::vector<Mask> masks;  // of its layers; keys: one; rows, states: none
    int layers = 0;
    RopeSpec rope = {};  // angles
    Dim head_dim = 0, half = 0, rows = 0;  // angles
    Slab slab = {};
    bool chunks() const { return kind == Kind::rows || kind == Kind::states; }
    // Pages of a sequence with so many keys.
    Dim pages(Dim keys) const;
    // The window of a sequence here: the widest of its layers.
    Dim left(const Stream& stream) const;
    Dim keep(const Stream& stream) const;
  };
  struct Place {  // of a part, by its slot
    int group = -1, layer = 0, angles = -1;
    int states = -1, state_layer = 0;  // of a part with a state
    Dim inputs = 0;  // … and numbers of a row that come first
  };
  struct Table {
    std::vector<std::int32_t> pages = {};
    Dim length = 0;  // keys
  };
  struct Entry {
    Dim length = 0, hidden = 0, guessed = 0;
    Stream stream = {};
    std::vector<Table> tables;  // by group
    std::int32_t state = -1;  // its place; half: which of its two is the present one
    int half = 0;
    std::shared_ptr<const RecurrentMemory> memory = {};
  };

  std::int32_t take(Slab& slab);
  void give(Slab& slab, std::int32_t place);
  void give_pages(Group& group, Table& table, std::size_t from);
  void evict(Entry& e);
  void check_not_evicted(std::uint64_t id, const Entry& e, Dim length) const;
  void add_keys(const CachedKeys& keys);
  void add_chunks(const CachedChunks& chunks);
  // f(number, page that is copied or -1) for every page that keys up to `upto` of a table need anew.
  template <class F>
  static void each_needed(const Group& group, const Table* table, Dim upto, const F& f);
  Dim keys_after(const Table* table, Dim tokens) const;
  std::size_t held_pages(const Group& group, Dim keys, const Stream& stream) const;

  const Model& model_;
  DType real_, format_;
  KeyBias key_bias_;
  std::size_t budget_;
  Dim hidden_;
  std::vector<Group> groups_;
  std::vector<Place> places_;
  Slab states_;  // two halves each, a half: the state, and the one before the first token
  std::size_t state_half_ = 0;  // bytes
  bool has_chunks_ = false;
  std::size_t memory_row_ = 0;  // bytes of one row of a recurrent decoder's memory
  std::unordered_map<std::uint64_t, Entry> entries_;
  std::size_t used_ = 0;
  std::shared_ptr<std::size_t> memory_used_ =
      std::make_shared<std::size_t>(0);  // bytes of recurrent memories
};

// One pass over some sequences of a pool, in this order.
class KvPass {
 public:
  // Takes the room. Fails where there is none, and then nothing was taken.
  KvPass(KvPool& pool, std::span<const KvGrowth> growths);
  ~KvPass();
  KvPass(const KvPass&) = delete;
  KvPass& operator=(const KvPass&) = delete;
  void commit();  // lengths grow, states change places, pages behind windows go

  bool bias_apart(const Attention& a) const { return pool_.bias_apart(a); }
  // Keys and values of the new rows: `rows` are the sequences of the pass, of cross-attention their memories.
  // `table`: the rows' angles; needed where bias_apart(a).
  void write(Run& run, const Attention& a, std::span<const Sequence> rows, const Tensor& k, const Tensor& v,
             const RopeTable* table);
  KvView view(const Attention& a) const;

  // Parts with a state, by their slot. `rows`: the sequences of the pass.
  ChunkPages chunk_pages(int slot) const;
  // The `count` rows of numbers [first, first + cols) before each sequence's first row:
  // [sequences,count,cols], the nearest last; those before a sequence's beginning are left as they are.
  Tensor rows_before(Run& run, int slot, std::span<const Sequence> rows, Dim first, Dim cols,
                     Dim count) const;
  void write_rows(int slot, std::span<const Sequence> rows, Dim first, const Tensor& x);

  // Recurrent decoders. A state is one block of bytes; absent: the sequence has none yet.
  Dim past(std::size_t i) const { return entries_[i]->length; }
  const std::byte* state(std::size_t i) const;
  const std::byte* start(std::size_t i) const;  // before its first token
  std::byte* next_state(std::size_t i);  // written by the pass
  std::byte* next_start(std::size_t i);
  const std::shared_ptr<const RecurrentMemory>& memory(std::size_t i) const;
  void set_memory(std::size_t i, RecurrentMemory memory);

 private:
  using Entry = KvPool::Entry;
  struct Taken {  // one page
    std::size_t sequence, group, index;
    std::int32_t page, before;  // before: shared, whose content this has; -1: none
  };
  void take_all();
  void undo() noexcept;

  KvPool& pool_;
  const std::vector<KvGrowth> growths_;
  std::vector<Entry*> entries_;
  std::vector<bool> fresh_;  // made by this pass
  std::vector<std::int32_t> states_;  // taken by this pass; -1
  std::vector<std::shared_ptr<const RecurrentMemory>> memories_;
  std::vector<Taken> taken_;
  // Of cross-attention, by sequence: what was there, by group.
  std::vector<std::vector<std::pair<std::size_t, KvPool::Table>>> replaced_;
  std::vector<bool> angles_written_;  // by group
  std::size_t memory_bytes_ = 0;
  bool done_ = false;
};

}  // namespace rapt
