// SPDX-License-Identifier: Apache-2.0
// Direct logit attribution: which parts of a model a logit, or the difference of two, is made of. The
// residual stream before the final norm is a sum (embeddings, and what every part adds), and with the norm's
// scale taken as it came out everything behind it is linear: so each term of the sum has its share, and the
// shares add up to the logit (before a cap, where the head has one). An attention's share is that of its
// heads, one by one, and of the bias of its output matrix.
#pragma once
#include <string>
#include <vector>

#include "rapt/inspect/metric.h"

namespace rapt {

struct Contribution {
  std::string name;  // "embeddings", "attn_out_post.3", "L3H5", "final_norm.bias", "head.bias"
  int layer = -1, number = 0,
      head = -1;  // number: which of the parts of one kind in its layer; 0: the only one
  bool cross = false;
  double value = 0;
};

struct Attribution {
  Metric metric;  // logit or difference, with its token and its position from the front
  double logit = 0;  // as the model computes it, before a cap
  double capped = 0;  // … behind it; the same where there is none
  std::vector<Contribution> parts;  // in the order of the pass; they add up to the logit
  double rest = 0;  // logit - their sum: rounding, more of it in quantized models
  // Of each attention, head by head, then the bias of its output matrix ("L3 bias", head -1): they add up to
  // its share.
  std::vector<Contribution> heads;
  // Attentions whose heads cannot be told apart: a gate stands behind the output matrix, or a norm that is
  // neither LayerNorm nor RMSNorm.
  std::vector<std::string> gated, normed;
};

// Fails with the reason where the residual stream of a model is no sum that the head reads through one norm.
Attribution attribution(Device& device, const Model& model, const Metric& metric, Ids ids, Ids source = {});

}  // namespace rapt
