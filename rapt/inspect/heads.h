// SPDX-License-Identifier: Apache-2.0
// What each attention head does on a text, from the statistics of the fused kernel; and one head's map, row by row.
#pragma once
#include <span>
#include <string>
#include <vector>

#include "rapt/nn/model.h"

namespace rapt {

struct HeadStats {  // of one head, over the rows of a text but the first (which sees one key only in a causal model)
  Stack stack = Stack::decoder;
  int layer = 0, head = 0;
  double first = 0, self = 0, previous = 0;  // mean weight on the first key, on the row's own, on the one before
  double entropy = 0, distance = 0;          // nats; mean distance from the row to where its weight lies
  double max_logit = 0;                      // largest scaled score
};

// Self-attention of every layer on one text (encoder-decoders: of the encoder, or of the decoder given `source`).
std::vector<HeadStats> head_stats(Device& device, const Model& model, std::span<const std::int32_t> ids,
                                  std::span<const std::int32_t> source = {});

// Weights of one head [rows][keys], the text's tokens on both sides; learned slots are left out.
std::vector<double> head_map(Device& device, const Model& model, std::span<const std::int32_t> ids, Stack stack, int layer, int head,
                             std::span<const std::int32_t> source = {});

}  // namespace rapt
