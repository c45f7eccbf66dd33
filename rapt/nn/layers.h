// SPDX-License-Identifier: Apache-2.0
// A model's layers as structs of weights, built from a resolved recipe. No behaviour lives here: block.h and
// parts/ do the work.
#pragma once
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "rapt/nn/parts/attention.h"
#include "rapt/nn/parts/conv.h"
#include "rapt/nn/parts/delta.h"
#include "rapt/nn/parts/ffn.h"
#include "rapt/nn/parts/moe.h"

namespace rapt {

// The kinds of parts (parts/part.h), each built from its AnyPartRecipe.
using AnyPart = std::variant<Attention, Ffn, Moe, Delta, Conv>;

struct Part {
  PartName name;
  int number = 0, of = 1;  // which of the parts of this name in its layer, from 0, and how many they are
  std::optional<NormLayer> norm_in, norm_out, norm_sum;
  double residual_scale = 1, dropout = 0;
  const Weight* layer_scale = nullptr;  // [C]
  AnyPart body;

  // nullptr where it is another kind.
  const Attention* attention() const { return std::get_if<Attention>(&body); }
  const Ffn* ffn() const { return std::get_if<Ffn>(&body); }
  const Moe* moe() const { return std::get_if<Moe>(&body); }
  const Delta* delta() const { return std::get_if<Delta>(&body); }
  const Conv* conv() const { return std::get_if<Conv>(&body); }
};

struct Layer {
  bool parallel = false;
  std::optional<NormLayer> norm_in;
  std::vector<Part> parts;
  // Index of the first weight that no layer before it uses.
  int first_weight = 0;
};

// Gates of a cell: x of its input, h of its state before the step. An LSTM's bias stands on x alone.
struct CellLayer {
  LinearLayer x, h;
};

struct RecurrentStack {
  RecurrentRecipe recipe;
  std::vector<CellLayer> cells, back;  // one per layer; back: those that read from the end
  std::vector<LinearLayer> start;      // projected first states
  // Attention of a decoder; absent where its recipe has none.
  const Weight *q = nullptr, *k = nullptr, *score = nullptr;  // scores
  const Weight *place = nullptr, *place_score = nullptr;      // predicted place
  const Weight *context = nullptr, *feed = nullptr;           // into the gates of the first cell
  LinearLayer out_context, out_state, out_input;              // readout
  Dim memory = 0;                                             // width of what it looks at
};

struct LayerStack {
  std::vector<Layer> layers;
  std::optional<NormLayer> final_norm;
  double dropout = 0;
  std::optional<RecurrentStack> recurrent;  // instead of layers
  int depth() const {
    return recurrent ? static_cast<int>(recurrent->recipe.layers) : static_cast<int>(layers.size());
  }
};

LayerStack build_stack(WeightTable& table, const Recipe& recipe, const StackRecipe& stack,
                       const std::string& name);

}  // namespace rapt
