// SPDX-License-Identifier: Apache-2.0
// Which source words an encoder-decoder looks at while it says each target word: its cross-attention on a
// pair of texts, whatever the decoder is made of. The target is given to the decoder as in training; row t
// holds the weights with which token t was said.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "rapt/load/checkpoint.h"
#include "rapt/report/picture.h"

namespace rapt {

struct AlignmentOptions {
  // Counted from 0; negative: from the end. Layers before the last align best in Transformers (the last
  // one prepares the output), so the last but one is looked at where there are two or more.
  enum class Layers { usual, all, one } layers = Layers::usual;
  int layer = 0;        // one
  int head = -1;        // -1: the mean of all
  bool words = true;    // pieces of a word together: rows averaged, columns summed
};

struct Alignment {
  std::vector<std::string> target, source;  // words or tokens
  std::vector<double> weights;              // [target][source]
  std::vector<std::vector<std::int32_t>> target_ids, source_ids;  // which tokens stand behind each
  std::vector<int> layers;                  // of the decoder, the mean of which this is
};

// `source` as the encoder reads it (framed), `target` as the decoder said it (with the ending token or
// without).
Alignment alignment(Device& device, const Checkpoint& checkpoint, std::span<const std::int32_t> source,
                    std::span<const std::int32_t> target, const AlignmentOptions& options = {});
HeatMap heat_map(const Alignment& alignment, std::string title);

// Where words begin: at white space, between letters and punctuation, at every token of a script without
// spaces; control tokens are words of their own. Returns the first token of each word.
std::vector<std::size_t> word_starts(const Tokenizer& tokenizer, std::span<const std::int32_t> ids);

}  // namespace rapt
