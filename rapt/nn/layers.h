// SPDX-License-Identifier: Apache-2.0
// A model's layers as structs of weights. No behaviour lives here: free functions in attend.h, block.h and model.h do the work.
// An absent norm, gate or bias is a null pointer or an empty optional, and means the identity.
#pragma once
#include <array>
#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "rapt/recipe/recipe.h"
#include "rapt/tensor/weight.h"

namespace rapt {

struct NormLayer {
  NormRecipe recipe;
  const Weight *weight = nullptr, *bias = nullptr;
  const Weight* running = nullptr;  // batch norm: [2,C] mean and variance
  bool causal = false;              // batch norm: stands in a causal stack
};

struct LinearLayer {
  const Weight *w = nullptr, *b = nullptr;
};

struct GateLayer {
  GateSpec spec;
  const Weight* w = nullptr;      // from the input: [n, C]
  const Weight* value = nullptr;  // constant: [1, n]
};

struct Attention {
  AttentionSpec spec;
  Mask mask;
  LinearLayer q, k, v, o;
  std::optional<NormLayer> q_norm, k_norm, v_norm, z_norm;
  bool norm_full = false;       // q_norm and k_norm over the whole projection
  bool norm_after_pos = false;  // … and after RoPE
  bool cosine = false;          // unit q and k
  std::optional<RopeSpec> rope;
  std::array<std::optional<GateLayer>, 5> gate;  // by GateRecipe::At
  const Weight *scale = nullptr, *extra_logit = nullptr, *slot_k = nullptr, *slot_v = nullptr, *buckets = nullptr;
  const Weight *score = nullptr, *general = nullptr;
  double scale_max = 0;
  int slot = 0;  // its number among the attention parts of the stack: where the cache keeps its keys

  const std::optional<GateLayer>& gate_at(GateRecipe::At at) const { return gate[static_cast<std::size_t>(at)]; }
};

struct Ffn {
  FfnRecipe recipe;
  LinearLayer gate, up, down;
};

struct Part {
  PartRecipe::Kind kind = PartRecipe::Kind::self;
  std::optional<NormLayer> norm_in, norm_out, norm_sum;
  double residual_scale = 1, dropout = 0;
  Attention attn;
  Ffn ffn;
};

struct Layer {
  bool parallel = false;
  std::optional<NormLayer> norm_in;
  std::vector<Part> parts;
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
  std::optional<int> cross_slot;  // of the first cross-attention
  int depth() const { return recurrent ? static_cast<int>(recurrent->recipe.layers) : static_cast<int>(layers.size()); }
};

// matrix: for `linear`, in panels, decays. table: vectors by number (tokens, positions), in rows or blocks in panels, decays.
// vector: norms, biases; in rows, does not decay.
enum class WeightRole { matrix, table, vector };
// Makes a weight's storage in the format it shall have; a loader keeps that of its file.
using WeightMaker = std::function<Weight(std::string name, Dim rows, Dim cols, WeightRole role)>;

// Every weight of a model, made in a fixed order; pointers to them stay valid.
class WeightTable {
 public:
  WeightTable(std::deque<Weight>& weights, WeightMaker make) : weights_(weights), make_(std::move(make)) {}
  const Weight* matrix(const std::string& name, Dim rows, Dim cols);  // for `linear`: panels
  const Weight* table(const std::string& name, Dim rows, Dim cols);   // rows, decays
  const Weight* vector(const std::string& name, Dim size);            // rows, does not decay
 private:
  const Weight* add(const std::string& name, Dim rows, Dim cols, WeightRole role);
  std::deque<Weight>& weights_;
  WeightMaker make_;
};

LayerStack build_stack(WeightTable& table, const Recipe& recipe, const StackRecipe& stack, const std::string& name);
std::optional<NormLayer> build_norm(WeightTable& table, const std::optional<NormRecipe>& norm, const std::string& name, Dim cols,
                                    bool causal = false);

}  // namespace rapt
