// SPDX-License-Identifier: Apache-2.0
// One pass over a text whose attention can be looked at again afterwards: any row of any head, computed anew
// by the op itself from what the layer read, so masks, windows, sinks, caps and biases are the model's own.
// Nothing of size T x T is kept: per layer its input [T,C].
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "rapt/inspect/look.h"
#include "rapt/nn/model.h"

namespace rapt {

struct AttentionPlace {  // one attention of a model
  Stack stack = Stack::decoder;
  int layer = 0;
  bool cross = false;
  int number = 0;  // which of the layer's attentions of that kind, from 1; 0: the only one
  auto operator<=>(const AttentionPlace&) const = default;
};
AttentionPlace place_of(const Model& model, const Tapped& t);  // of the attention that shows a value

struct RecordOptions {
  // Whose rows will be asked for; absent: all. The others cost no memory.
  std::function<bool(const AttentionPlace&)> keep = {};
  Dim chunk = 1024;                        // rows that pass at a time, where the model is a causal decoder
  Dim first_keys = 1;                      // what "the first keys" are in the statistics
  bool row_stats = false;                  // statistics of every row are kept, not their sums alone
  Taps* taps = nullptr;                    // further observers and edits of the same pass
  double most_bytes = 8e9;                 // fails before it keeps more than this
  // The pass is somebody else's: observers are put on `taps`, which are given then, and the record may be
  // asked once that pass is over; until then it stays where it is. The text may come in pieces, each a share
  // of its pass (run/taps.h), every row once. Self-attention of decoders alone.
  bool elsewhere = false;
};

constexpr double kClosedGate = 0.1;  // a gate value below is closed

// Sums over the rows of the text, of one head.
struct HeadSums {
  Dim rows = 0, seeing = 0;  // rows that see something, and that see the first key
  double entropy = 0, first = 0, self = 0, previous = 0, distance = 0, max_logit = 0;
  // Entropy, were all that a row sees of equal weight, learned slots and logits with it.
  double even = 0;
  Dim gates = 0;  // values of the gate on this head's result
  double gate = 0, closed = 0;  // their sum, and how many are below kClosedGate
};

// Adds the rows of one site::attn_stats; `before`: rows before the text's (learned sink tokens). The kernel
// knows nothing of them: where there are some, `first` is of the first learned one and `previous` and
// `distance` look at them too (AttentionRecord::sums() does not). `learned`: what each row sees besides its
// keys (learned_keys()).
void add_stats(const Tapped& stats, Dim before, std::vector<HeadSums>& sums, Dim learned = 0);
Dim learned_keys(const Attention& a);  // slots, and the one more logit of a softmax that has it

// What a weight is multiplied by to be a share of its row `w`: 1, in sigmoid attention 1 / the row's sum.
double share_unit(const AttentionSpec& spec, std::span<const float> w);

// Which keys of the text one row sees: the first `kept`, and [low, high).
struct RowSight {
  Dim kept = 0, low = 0, high = 0;
  Dim all = 0;  // how many it sees, learned ones with them
  bool sees(Dim key) const { return key >= 0 && key < high && (key >= low || key < kept); }
};

class AttentionRecord {
 public:
  // An encoder-decoder needs `source`, the encoder's tokens.
  AttentionRecord(Device& device, const Model& model, Ids ids, Ids source = {},
                  const RecordOptions& options = {});

  // Kept ones: encoder first, layers in order.
  const std::vector<AttentionPlace>& places() const { return places_; }
  const Attention& attention(const AttentionPlace& place) const;
  int heads(const AttentionPlace& place) const { return static_cast<int>(attention(place).spec.heads); }
  // Tokens of the rows, and of the keys.
  std::span<const std::int32_t> row_ids(const AttentionPlace& place) const;
  std::span<const std::int32_t> key_ids(const AttentionPlace& place) const;
  bool sees(const AttentionPlace& place, Dim row, Dim key) const;
  // Keys [first, end) outside of which a row sees nothing.
  std::pair<Dim, Dim> sight(const AttentionPlace& place, Dim row) const;
  RowSight row_sight(const AttentionPlace& place, Dim row) const;
  Dim first_keys() const { return first_keys_; }
  // By head, from the statistics of the fused kernel; places among the text's keys alone: where learned
  // sink tokens stand before them, `first`, `self`, `previous` and `distance` come from rows
  // computed anew.
  const std::vector<HeadSums>& sums(const AttentionPlace& place) const;
  // The statistics of every row, places among the text's keys alone: [AttentionStat::count][heads][tokens].
  // Of sigmoid attention shares of the row's sum. RecordOptions::row_stats asks for them beforehand.
  std::vector<float> row_stats(const AttentionPlace& place) const;
  std::size_t bytes() const;  // kept

  // Weights of some rows (numbers of tokens, ascending) of one head, or of every head where `head` is
  // -1: one call for each row and head. They stand for the tokens of the text; learned slots and sink
  // tokens before it are left out. Rows of sigmoid attention do not sum to 1.
  using See = std::function<void(Dim row, int head, std::span<const float> weights)>;
  void rows(const AttentionPlace& place, int head, std::span<const Dim> rows, const See& see) const;
  // Queries [rows][H][D] and keys [keys][K][D] as the attention reads them, of the whole text.
  std::vector<float> queries(const AttentionPlace& place) const;
  std::vector<float> keys(const AttentionPlace& place) const;

 private:
  struct Kept;
  struct Passing;
  void watch(Taps& taps, const std::shared_ptr<Passing>& passing);
  void plan();
  Kept& kept(const AttentionPlace& place) const;  // fails where there is none
  void forget_keys(const Kept* but) const;

  Device& device_;
  const Model& model_;
  Dim first_keys_;
  std::vector<std::int32_t> ids_, source_;
  std::vector<AttentionPlace> places_;
  std::map<AttentionPlace, std::shared_ptr<Kept>> kept_;
};

// A window of one head's map: rows [row_begin, row_end) x keys [key_begin, key_end), made of at most
// `pixels` in each direction. A pixel is the largest weight in it. Of more than `most_rows` rows that many
// are taken, evenly spread.
struct MapWindow {
  Dim row_begin = 0, row_end = -1, key_begin = 0, key_end = -1;  // -1: to the end
  Dim pixels = 1024, most_rows = 1024;
};
// How rows of weights become such a map, whoever has them.
struct MapPooling {
  MapPooling(const MapWindow& asked, Dim all_rows, Dim all_keys);  // fails where they are outside
  MapWindow window;  // ends filled in
  Dim high = 0, wide = 0;  // pixels
  std::vector<Dim> which;  // rows that are taken, ascending
  std::vector<float> empty() const { return std::vector<float>(static_cast<std::size_t>(high * wide)); }
  // weights: of row which[i] on every key of the text.
  void add(Dim i, std::span<const float> weights, std::vector<float>& values) const;
};
struct HeadMap {
  AttentionPlace place;
  int head = 0;
  MapWindow window;  // as asked, ends filled in
  Dim rows = 0, keys = 0;  // pixels
  std::vector<float> values;  // [rows][keys]
};
HeadMap head_map(const AttentionRecord& record, const AttentionPlace& place, int head, MapWindow window = {});
// Every head of every attention that was kept.
std::vector<HeadMap> head_maps(const AttentionRecord& record, const MapWindow& window);

// The `count` strongest keys of each row, exact weights, strongest first.
struct StrongestKeys {
  AttentionPlace place;
  int head = 0, count = 0;
  std::vector<std::int32_t> keys;  // [rows][count]; -1: none
  std::vector<float> weights;
};
std::vector<StrongestKeys> strongest_keys(const AttentionRecord& record, int count);

}  // namespace rapt
