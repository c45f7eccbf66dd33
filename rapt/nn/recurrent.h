// SPDX-License-Identifier: Apache-2.0
// A stack of recurrent cells in the place of layers: encoders that read one or both ways, decoders with the
// attention of Bahdanau and of Luong. Rows are packed without padding: sequences are sorted by length, so
// that those which still run at a step are the first, and all rows of a step stand together. What does not
// wait for a state (products with the input, readouts) is done for all steps at once.
#pragma once
#include <span>
#include <vector>

#include "rapt/nn/layers.h"
#include "rapt/recipe/recurrent_recipe.h"
#include "rapt/run/batch.h"
#include "rapt/run/run.h"

namespace rapt {

class KvPass;

// What an encoder leaves to a decoder besides its result: the last states of each sequence [sequences, n or
// 2n], of each layer.
struct LastStates {
  std::vector<Tensor> h, c;  // c: LSTM
  Tensor back;  // of the last layer, of the direction that ended at the first word (one way: at the last)
};

// x [T,C] -> [T, n or 2n], in the order of the batch.
Tensor run_recurrent_encoder(Run& run, const LayerStack& stack, const Tensor& x,
                             std::span<const Sequence> sequences, LastStates* last);

struct RecurrentSource {
  Tensor memory;                           // the encoder's result [S,M]; absent: none, or in the cache
  std::vector<Sequence> sequences;         // its rows, one per sequence of the batch
  const LastStates* last = nullptr;
};
// x [T,C] -> [T,C]. With a cache each sequence continues from its state there; its memory is kept there once
// per source.
Tensor run_recurrent_decoder(Run& run, const LayerStack& stack, const Tensor& x,
                             std::span<const Sequence> sequences, const RecurrentSource& source,
                             KvPass* cache);

// What a pool keeps of one sequence: what it looks at, never changed, so that sequences that share it (beams)
// hold the same; and its state: h of each layer, c of each layer, the fed readout.
struct RecurrentMemory {
  Dim keys = 0;
  std::vector<std::byte> k, v;  // v [keys,M]; k [keys,d], empty where the scores read v itself
};
Dim recurrent_state_values(const RecurrentStack& stack);
Dim recurrent_memory_values(const RecurrentStack& stack);  // of one key and its value

RecurrentStack build_recurrent(WeightTable& table, const Recipe& recipe, const RecurrentRecipe& r,
                               const std::string& name);

}  // namespace rapt
