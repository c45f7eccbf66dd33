// SPDX-License-Identifier: Apache-2.0
// What a pass computes: rows of one or many sequences (tokens, or vectors or pictures in their place), one
// after the other, without padding. A row knows its sequence and its position there; nothing that is computed
// for it depends on its neighbours in the batch.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "rapt/base/error.h"
#include "rapt/run/adapter.h"
#include "rapt/tensor/tensor.h"

namespace rapt {

// StreamingLLM for one sequence: layers whose mask is plainly causal (no window, chunk or prefix of its own)
// see the first `keep` keys and the last `window`. window 0: off.
struct Stream {
  Dim keep = 0, window = 0;
  bool operator==(const Stream&) const = default;
};

struct Sequence {
  Dim first = 0, count = 0;  // its rows in the batch
  Dim past = 0;  // tokens of it that came before (in a cache): the first row stands at this position
  Dim prefix = 0;  // leading positions that all see each other (prefix mask)
  std::uint64_t id = 0;  // its name in random numbers
  Dim opened = 0;  // the length it is opened for (RoPE scalings that depend on length); 0: past + count
  Stream stream = {};
  std::span<const AdapterUse> adapters = {};  // of its rows, in this order; must outlive the pass
};

// What a pass gives back: of which rows, and logits or the hidden state they are made of.
struct Want {
  enum class Rows { all, last, chosen, none };  // last: of each sequence; none: there is no result
  Rows rows = Rows::all;
  std::span<const std::int32_t> chosen = {};  // rows of the batch, in the order wanted
  bool hidden = false;  // [rows, C] after the final norm, before the head
};
inline constexpr Want kWantLast{.rows = Want::Rows::last};

// A picture as a model reads it: [channels, height, width], scaled and normalised as the model wants it.
struct Picture {
  std::span<const float> pixels = {};
  Dim height = 0, width = 0;
};

struct Batch {
  std::span<const std::int32_t> tokens = {};
  std::vector<Sequence> sequences;
  std::span<const std::int32_t> types = {};  // token types (BERT); empty: all 0
  Want want = {};
  // [T,C] in the place of tokens and their vectors: patches of an image, a prompt that was learned
  Tensor rows = {};
  // In the place of tokens: one for each sequence, whose rows are the learned tokens of the model and the
  // picture's patches, row by row (nn/patches.h: picture_batch). Sizes may differ.
  std::vector<Picture> pictures = {};
};

// Which keys a query sees: position p sees keys from p - left to p + right, those of its own chunk and
// prefix, and the first `keep`.
struct Mask {
  static constexpr Dim kAll = Dim{1} << 40;
  Dim left = kAll, right = kAll;
  // First keys of the sequence that stay visible whatever `left` says (never beyond `right`).
  Dim keep = 0;
  Dim chunk = 0;  // > 0: keys before the start of the query's chunk are hidden (Llama 4)
  bool prefix = false;  // positions below Sequence::prefix see each other both ways
  bool operator==(const Mask&) const = default;

  // Plainly causal: a sequence may stream through it.
  bool streams() const { return right == 0 && left == kAll && keep == 0 && chunk == 0 && !prefix; }
  // The mask as this sequence has it.
  Mask of(const Sequence& s) const;
};

// A mask worked out for the rows of a batch: one interval of keys per row, in positions of its own sequence.
struct RowPlan {
  struct Part {  // one sequence
    Dim q_first, q_count;  // rows of q
    Dim k_first, k_count;  // rows of k (or its length in the cache)
    Dim keep = 0;  // first keys that its rows see besides their interval
  };
  std::vector<Part> parts;
  std::vector<std::int32_t> low, high;  // per row of q: keys [low, high), and below min(keep, high)
  std::vector<std::int32_t> position;  // per row of q: its position
  // The position it takes towards the kept keys: min(position, keep + left).
  std::vector<std::int32_t> kept_position;
};

// Self-attention, with the mask as each sequence has it. Without a cache the keys of a sequence are its rows
// of the batch; with one, everything up to the last row.
RowPlan plan_rows(const Mask& given, std::span<const Sequence> sequences);
// Cross-attention: every row of sequence i sees all of memory i.
RowPlan plan_cross(std::span<const Sequence> sequences, std::span<const Sequence> memory);

}  // namespace rapt
