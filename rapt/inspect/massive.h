// SPDX-License-Identifier: Apache-2.0
// Massive activations (Sun et al. 2024): a few numbers of the residual stream that are larger than all
// others by orders of magnitude. An activation is called massive where its magnitude is above `above` and at
// least `ratio` times the median magnitude of its layer, over all tokens and channels. Small models reach
// neither, so the ratio is told with the verdict.
#pragma once
#include <span>
#include <vector>

#include "rapt/inspect/look.h"

namespace rapt {

struct MassiveOptions {
  double above = 100, ratio = 1000;
  int top = 3;  // how many of each layer are listed
  const Taps* taps = nullptr;  // edits of the same pass
};

struct Activation {
  int row = 0;          // of the grid: 0 the embedding, l + 1 after layer l
  Dim token = 0, channel = 0;
  double value = 0, ratio = 0;
  bool massive = false;
};

struct Massive {  // of one stack
  Stack stack = Stack::decoder;
  Dim tokens = 0, width = 0;
  int rows = 0;                        // layers + 1
  std::vector<double> median;          // [rows]: of |x| over all tokens and channels
  std::vector<float> largest;          // [rows][tokens]: largest |x| over the channels
  std::vector<Activation> top;         // the largest of each row, row by row, largest first
  // Those of the largest activations of the whole stack, at most 4, strongest first.
  std::vector<Dim> channels;
  // [channels][rows]: value with the largest magnitude over the tokens, with its sign
  std::vector<float> trace;
  bool found = false;                  // some activation after a layer is massive
  // Where the largest appear: the first row above half of the largest magnitude of all rows.
  int first_row = 0;

  double log_ratio(int row, Dim token) const;  // log10(largest / median); of a zero median: 0
};

// Encoder first. The grid of a page: log_ratio(row, token).
std::vector<Massive> massive(Device& device, const Model& model, Ids ids, Ids source = {},
                             const MassiveOptions& options = {});

// The same of rows of the residual stream that somebody kept: [tokens,C] of each, embedding first.
Massive massive_of(Stack stack, std::span<const Tensor> rows, const MassiveOptions& options = {});

// What the model loses without them: after one layer, those activations (each its channel at its token) are
// set to zero or to their mean over all windows (first tokens apart from the others), and nothing else is
// touched.
struct MassiveEdit {
  enum class To { zero, mean } to = To::zero;
  int layer = -1;              // after this layer; -1: where they appear
  // Where nothing is massive by these, the largest activation of each window stands in.
  MassiveOptions which;
};
struct MassiveEffect {
  int layer = 0;
  bool criterion = false;      // the activations met it
  std::vector<Activation> set; // of all windows, token counted in its window
  std::vector<int> window;     // of each
  std::vector<double> became;  // the value it was set to
  // Perplexity; control: as many activations of median size set to zero instead.
  double before = 0, after = 0, control = 0;
  Dim predicted = 0;           // tokens it is measured on
};
// Windows of one text, each a sequence of its own. For models that predict the next token.
MassiveEffect massive_effect(Device& device, const Model& model,
                             std::span<const std::vector<std::int32_t>> windows, const MassiveEdit& edit);

}  // namespace rapt
