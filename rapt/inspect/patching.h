// SPDX-License-Identifier: Apache-2.0
// Activation patching: a clean text and a corrupted one of as many tokens, and a metric that tells them
// apart. The corrupted text is read again and again, each time with one activation of the clean text in its
// place: how much of the metric comes back says what was decided there.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "rapt/inspect/metric.h"

namespace rapt {

struct PatchingOptions {
  // Any of resid_pre, attn_out, ffn_out (layer by position: what enters a layer, what its attention and its
  // feed-forward part add) and heads (layer by head, z at all positions).
  std::vector<std::string> what = {"resid_pre", "attn_out", "ffn_out", "heads"};
  // How many rows a pass may have: copies of the text side by side, whose bits do not depend on each other.
  Dim rows = 2048;
  std::function<void(Dim done, Dim of)> progress = {};
};

struct PatchedGrid {
  std::string what;
  std::vector<std::string> layers;  // "0", or "0.2" where a layer has two parts of this kind
  Dim columns = 0;  // positions or heads
  std::vector<double> value;  // [layers][columns]: the metric, patched
  std::vector<double> recovered;  // the same, 0 as in the corrupted text, 1 as in the clean one
};

struct Patching {
  Metric metric;  // with its tokens and its position from the front
  double clean = 0, corrupted = 0;
  std::vector<PatchedGrid> grids;
};

// A metric without tokens compares the most probable token of the clean text, at its position, with that of
// the corrupted one (difference), or is of the clean text's (logprob). Fails where the texts differ in
// length, or the metric does not tell them apart.
Patching patching(Device& device, const Model& model, const Metric& metric, Ids clean, Ids corrupted,
                  const PatchingOptions& options = {});

}  // namespace rapt
