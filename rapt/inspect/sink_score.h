// SPDX-License-Identifier: Apache-2.0
// Attention sinks by the definition of Gu et al. (ICLR 2025). Of one text of T tokens, per layer l and head
// h, with keys counted from 1:
//   alpha_k = mean over the rows t >= k of A[t,k]
//   Sink_k = mean over texts, layers and heads of [alpha_k > epsilon]   (the question is asked text by text)
// A row whose window does not reach back to key k gives it 0, as in the paper's sum: the few early rows that
// see it do not stand for all. Rows of attention that is not normalised (sigmoid) are divided by their sum +
// 1e-8. The value falls with T: compare equal T only.
// What makes a sink is shown apart: lengths of the first key and value, and the cosine between queries and
// the first key.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "rapt/inspect/attention_map.h"

namespace rapt {

// Of an encoder-decoder the encoder is asked about.
struct SinkOptions {
  double epsilon = 0.3;
  int keys = 4;          // first keys that are asked about
  Dim geometry = 8;      // texts whose lengths and cosines are looked at
  const Taps* taps = nullptr;  // edits of every pass
};

struct HeadSink {
  AttentionPlace place;
  int head = 0;
  // By key: mean of alpha over the texts; share of texts with alpha above epsilon.
  std::vector<double> alpha, share;
  // Means over texts; "others": tokens after the first.
  // NaN where there are none.
  double key_first = 0, key_others = 0, value_first = 0, value_others = 0;  // lengths
  // Of queries after the first with the first key; with the other keys they see.
  double cosine_first = 0, cosine_others = 0;
};

struct SinkScore {
  std::vector<HeadSink> heads;   // self-attention
  std::vector<double> sink;      // Sink_k, 0 … 1; of no more keys than the shortest text has tokens
  Dim texts = 0, tokens = 0;     // tokens: of the longest text
};

SinkScore sink_score(Device& device, const Model& model, std::span<const std::vector<std::int32_t>> texts,
                     const SinkOptions& options = {});

}  // namespace rapt
