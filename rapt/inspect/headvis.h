// SPDX-License-Identifier: Apache-2.0
// The figures and strongest weights of every head as the files that HeadVis shows:
//   config.json         what there is: heads, names and descriptions of figures, where a head's file lies
//   scatter_data.json   [{layer, head, figures …}]
//   heads/L{l}H{h}.json {sequences: [{sequence_id, interval, tokens, attention_indices (row * seq_len
//     + key),
//                       attention_values, seq_len, max_activation}], qk_distance_histogram,
//                       top_query_tokens, top_key_tokens, histogram, statistics}
//   server_config.json  {}: no server behind it
// Of each row the 8 strongest keys from 0.005 on, four decimals. max_activation leaves the first row and the
// first key out. The last bin of distances has all that lies farther, too. A figure that is not finite
// is null.
#pragma once
#include <span>
#include <string>

#include "rapt/inspect/heads.h"

namespace rapt {

// Self-attention of the decoder, or of the encoder where there is none. `tokens`: of the text, readable.
void write_headvis(const AttentionRecord& record, std::span<const HeadMetrics> metrics,
                   const std::string& model_name, std::span<const std::string> tokens,
                   const std::string& folder, bool force);

}  // namespace rapt
