// SPDX-License-Identifier: Apache-2.0
// Training data from a function of a program's own, in the place of a file. The function is pure in the
// number of the batch, so a run resumes at a number; the same tokens as from a file are the same bits.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "rapt/use/data.h"

namespace rapt {

// Sequences one after the other, without padding.
struct OwnBatch {
  std::vector<std::int32_t> tokens;  // of the decoder, or of the only stack
  std::vector<Dim> lengths;          // of each sequence
  // Per token, -1: does not count; classification: per sequence. Empty, causal: the next token of the same
  // sequence, none for its last.
  std::vector<std::int32_t> targets;
  std::vector<std::int32_t> source;  // encoder-decoder: a source for each sequence
  std::vector<Dim> source_lengths;
};

struct OwnDataOptions {
  Objective objective = Objective::causal;
  Dim vocab = 0, classes = 0;
  std::string identity;  // names what the function gives: a state of a run on data of another name is refused
  std::function<OwnBatch(std::uint64_t number)> batch;  // any thread
  Dim held_out = 0;
  std::function<OwnBatch(Dim number)> held_out_batch = {};
  // Of the model: a folder or a GGUF file; "": ids are all it knows.
  std::string tokenizer = {};
  std::vector<std::string> class_names = {};
};

std::unique_ptr<TrainData> own_data(OwnDataOptions options);

// As a training reads it, with the names that the sequences of batch `number` have. Fails where lengths,
// targets or ids cannot be meant; `where` is what messages call it.
TrainBatch as_train_batch(OwnBatch batch, const OwnDataOptions& options, std::uint64_t number,
                          const std::string& where);

}  // namespace rapt
