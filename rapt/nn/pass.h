// SPDX-License-Identifier: Apache-2.0
// What the layers of one stack share in one pass.
#pragma once
#include <vector>

#include "rapt/ops/rope.h"
#include "rapt/run/batch.h"
#include "rapt/run/run.h"

namespace rapt {

class KvPass;

// Who the rows are, and what only depends on that. Made whole before the first layer: each part says what it
// will ask for (prepare).
struct Pass {
  std::vector<Sequence> sequences;         // of the rows that run through this stack
  // decoder: the encoder's result, or absent where its keys are in the cache
  Tensor memory;
  std::vector<Sequence> memory_sequences;  // its rows; ids are those of `sequences`
  KvPass* cache = nullptr;

  struct Masked {
    Mask mask;
    RowPlan plan;
  };
  struct Rotated {
    RopeSpec spec;
    Dim head_dim;
    Mask mask;
    // `kept`: at the positions rows take towards kept keys; absent where they are the same
    RopeTable table, kept;
  };
  // Rows of pictures: where a patch's centre stands, its row and column from -1 to 1; NaN for learned tokens.
  // Empty where nothing is a picture.
  struct Place {
    double row, column;
  };
  std::vector<Place> places;
  struct Turned {  // by places
    double theta;
    Dim head_dim;
    RopeTable table;
  };
  std::vector<Turned> turned;
  // How often each expert was chosen so far, where the layers of a stack are balanced together (route.h).
  std::int64_t* expert_load = nullptr;

  std::vector<Masked> plans;
  std::vector<Rotated> tables;
  RowPlan cross;
};

}  // namespace rapt
