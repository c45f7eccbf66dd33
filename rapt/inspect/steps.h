// SPDX-License-Identifier: Apache-2.0
// Attention of one query in its three steps, with numbers: products with the keys, softmax, weighted sum of
// the values. Numbers are those of the pass (capture.h); what is computed here is computed in double.
#pragma once
#include <string>
#include <vector>

#include "rapt/inspect/subject.h"
#include "rapt/report/document.h"

namespace rapt {

struct StepsOptions {
  int layer = 0, head = 0;  // layer: below 0 from the last one
  Dim token = -1;  // the query; below 0 from the last one
};

struct AttentionSteps {
  int layer = 0, head = 0, kv_head = 0;
  Dim token = 0;
  double scale = 1, cap = 0;  // cap 0: none
  struct Key {
    bool seen = false;
    double product = 0;  // q.k
    double scaled = 0;  // scale * product, capped
    double score = 0;  // of the pass: scaled, and what positions add
    double weight = 0;  // of the pass
    double length = 0;  // of the value
    double added() const { return score - scaled; }
  };
  std::vector<Key> keys;
  std::vector<std::vector<double>> values;  // [keys][channels]
  std::vector<double> z;  // sum of weight * value
  double weights() const;  // their sum: 1, less where something else takes part in the softmax
};
// Fails where scores are no products of queries and keys (additive, distances), or the layer has no
// self-attention.
AttentionSteps attention_steps(Device& device, const Model& model, Ids ids, const StepsOptions& options = {},
                               Ids source = {});

Document steps_document(const Subject& subject, const AttentionSteps& steps);
// The three steps as one picture. Of many keys those of the largest weights.
std::string steps_svg(const AttentionSteps& steps, const std::vector<std::string>& words, Language language);

}  // namespace rapt
