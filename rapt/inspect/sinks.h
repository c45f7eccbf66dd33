// SPDX-License-Identifier: Apache-2.0
// How much attention goes to the first token of a sequence, layer by layer and head by head, from the statistics the fused kernel
// hands out. The model does not know it is watched.
#pragma once
#include <vector>

#include "rapt/run/taps.h"

namespace rapt {

// Rows may be told apart by class (e.g. queries with and without something to copy); a negative class is not counted.
class SinkMeter {
 public:
  // Watches self-attention of one stack from now on; `row_class` has one entry per row of the batches to come.
  SinkMeter(Taps& taps, Stack stack, std::vector<int> row_class, int classes = 1);

  int layers() const { return static_cast<int>(sums_.size()); }
  double first(int layer, int row_class = 0) const {
    return mean(layer, row_class, &Sum::first);
  }      // weight on the first token, mean over heads
  double entropy(int layer, int row_class = 0) const { return mean(layer, row_class, &Sum::entropy); }  // nats
  double value_ratio(int layer) const;    // |v| of first tokens against |v| of the others
  double largest_first(int layer) const;  // largest |h| of a first token after the layer

 private:
  struct Sum {
    double first = 0, entropy = 0, rows = 0;
  };
  struct LayerSums {
    std::vector<Sum> classes;
    double first_norm = 0, first_count = 0, other_norm = 0, other_count = 0, largest = 0;
  };
  double mean(int layer, int row_class, double Sum::* what) const;
  LayerSums& at(int layer);

  std::vector<int> row_class_;
  int classes_;
  std::vector<LayerSums> sums_;
};

}  // namespace rapt
