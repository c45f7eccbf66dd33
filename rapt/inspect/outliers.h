// SPDX-License-Identifier: Apache-2.0
// Outlier features (Dettmers et al. 2022, LLM.int8): channels of what linear layers read (after the norm)
// that are large in many layers and at many tokens, and spoil the rounding of whole rows to int8. They are
// not massive activations, which are few numbers of the residual stream at one or two tokens: see massive.h.
#pragma once
#include <vector>

#include "rapt/inspect/look.h"

namespace rapt {

struct OutlierOptions {
  double magnitude = 6;  // |x| from which on a number is large
  double layers = 0.25;  // share of the layers in which a channel is large at some token
  double tokens = 0.06;  // share of all rows read (tokens x inputs) in which it is large
};

struct OutlierFeature {
  Dim channel = 0;
  double layers = 0, tokens = 0, largest = 0;
};
struct OutlierInput {  // what attention, or the feed-forward part, of one layer reads
  int layer = 0;
  bool ffn = false;
  Dim large = 0;  // channels that are large at some token
  double largest = 0;
  // Rows rounded to int8 with one scale each (largest magnitude / 127): error of the channels that are no
  // outlier features, as a share of their size. With the outliers in the row, and with those kept apart.
  double error = 0, apart = 0;
};
struct Outliers {  // of one stack
  Stack stack = Stack::decoder;
  Dim width = 0, tokens = 0;
  int layers = 0;
  std::vector<OutlierFeature> features;  // that meet all three, most tokens first
  std::vector<OutlierFeature> next;  // the closest that do not, at most 5
  std::vector<OutlierInput> inputs;  // layer by layer
};

std::vector<Outliers> outliers(Device& device, const Model& model, Ids ids, Ids source = {},
                               const OutlierOptions& options = {});

}  // namespace rapt
