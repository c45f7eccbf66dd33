// SPDX-License-Identifier: Apache-2.0
// A stack of recurrent cells in the place of layers: encoders that read one or both ways, decoders with the attention of Bahdanau and of
// Luong. Rows are packed without padding: sequences are sorted by length, so that those which still run at a step are the first, and all
// rows of a step stand together. What does not wait for a state (products with the input, readouts) is done for all steps at once.
#pragma once
#include <memory>
#include <span>
#include <vector>

#include "rapt/nn/layers.h"
#include "rapt/run/batch.h"
#include "rapt/run/run.h"

namespace rapt {

class KvCache;

// What an encoder leaves to a decoder besides its result: the last states of each sequence [sequences, n or 2n], of each layer.
struct LastStates {
  std::vector<Tensor> h, c;  // c: LSTM
  Tensor back;               // of the last layer, of the direction that ended at the first word (one way: at the last)
};

// x [T,C] -> [T, n or 2n], in the order of the batch.
Tensor run_recurrent_encoder(Run& run, const LayerStack& stack, const Tensor& x, std::span<const Sequence> sequences, LastStates* last);

struct RecurrentSource {
  Tensor memory;                           // the encoder's result [S,M]; absent: none, or in the cache
  std::vector<Sequence> sequences;         // its rows, one per sequence of the batch
  const LastStates* last = nullptr;
};
// x [T,C] -> [T,C]. With a cache each sequence continues from its state there; its memory is kept there once per source.
Tensor run_recurrent_decoder(Run& run, const LayerStack& stack, const Tensor& x, std::span<const Sequence> sequences,
                             const RecurrentSource& source, KvCache* cache);

// What a cache keeps of one sequence. Never changed, only replaced: sequences that share it (beams) hold the same memory.
struct RecurrentMemory {
  Dim keys = 0;
  std::vector<std::byte> k, v;  // v [keys,M]; k [keys,d], empty where the scores read v itself
};
struct RecurrentKept {
  std::shared_ptr<const RecurrentMemory> memory;
  std::shared_ptr<const std::vector<std::byte>> start, state;  // h of each layer, c of each layer, the fed readout
};

RecurrentStack build_recurrent(WeightTable& table, const Recipe& recipe, const RecurrentRecipe& r, const std::string& name);

// Rules between the fields of a recurrent stack and the model; fills in what 0 stands for. Encoder first.
void resolve_recurrent(Recipe& recipe, StackRecipe& stack, const std::string& path, bool decoder);
// Sizes of its matrices and vectors, for show.h.
struct RecurrentSize {
  Dim cells = 0, attention = 0, start = 0;  // parameters; attention: scores, place and readout
  double matrices = 0;                      // multiplications per token, times two
  double source = 0;                        // … per source token (keys)
  Dim memory = 0;                           // values kept per source token
  Dim state = 0;                            // values kept per sequence
};
// Sizes that rules, weights and costs share.
Dim gates_of(const RecurrentRecipe& r);
bool is_additive(const AlignRecipe& a);
Dim memory_width(const Recipe& recipe);
Dim readout_width(const Recipe& recipe, const AlignRecipe& a);
RecurrentSize recurrent_size(const Recipe& recipe, const RecurrentRecipe& r, bool decoder);

}  // namespace rapt
