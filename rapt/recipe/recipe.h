// SPDX-License-Identifier: Apache-2.0
// The one description of a model: plain grouped structs, absent = optional without value. Architecture only;
// numerics and training live elsewhere. JSON in and out, defaults, ranges, docs: one list of fields per
// struct (fields.h, recipe_fields.h, parts/). Rules between fields: recipe_rules.cc, parts/.
#pragma once
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "rapt/recipe/norm_recipe.h"
#include "rapt/recipe/parts/attention.h"
#include "rapt/recipe/parts/conv.h"
#include "rapt/recipe/parts/delta.h"
#include "rapt/recipe/parts/ffn.h"
#include "rapt/recipe/parts/moe.h"

namespace rapt {

// The kinds of parts (parts/part.h).
using AnyPartRecipe = std::variant<AttnRecipe, FfnRecipe, MoeRecipe, DeltaRecipe, ConvRecipe>;

struct PartRecipe {
  // pre = in; post = sum; sandwich = in + out; OLMo 2 = out
  std::optional<NormRecipe> norm_in, norm_out, norm_sum;
  double residual_scale = 1;
  // Not 0: a learned factor per channel on the branch, which starts from this (DINOv2, CaiT).
  double layer_scale = 0;
  double dropout = 0;  // on the branch, before it is added
  AnyPartRecipe body;

  // nullptr where it is another kind; self and cross are the two uses of attention.
  AttnRecipe* attention() { return std::get_if<AttnRecipe>(&body); }
  const AttnRecipe* attention() const { return std::get_if<AttnRecipe>(&body); }
  AttnRecipe* self() { return attention() && !attention()->cross ? attention() : nullptr; }
  const AttnRecipe* self() const { return attention() && !attention()->cross ? attention() : nullptr; }
  AttnRecipe* cross() { return attention() && attention()->cross ? attention() : nullptr; }
  const AttnRecipe* cross() const { return attention() && attention()->cross ? attention() : nullptr; }
  FfnRecipe* ffn() { return std::get_if<FfnRecipe>(&body); }
  const FfnRecipe* ffn() const { return std::get_if<FfnRecipe>(&body); }
  MoeRecipe* moe() { return std::get_if<MoeRecipe>(&body); }
  const MoeRecipe* moe() const { return std::get_if<MoeRecipe>(&body); }
  DeltaRecipe* delta() { return std::get_if<DeltaRecipe>(&body); }
  const DeltaRecipe* delta() const { return std::get_if<DeltaRecipe>(&body); }
  ConvRecipe* conv() { return std::get_if<ConvRecipe>(&body); }
  const ConvRecipe* conv() const { return std::get_if<ConvRecipe>(&body); }
  bool operator==(const PartRecipe&) const = default;
};
PartName part_name(const PartRecipe& part);
bool reads_memory(const PartRecipe& part);

struct LayerRecipe {
  bool parallel = false;  // all parts read the same input, their results are added together
  std::optional<NormRecipe> norm_in;  // parallel with one norm: on the layer; with two: on the parts
  std::vector<PartRecipe> parts;
  bool operator==(const LayerRecipe&) const = default;
};
bool is_causal(const LayerRecipe& layer);  // one of its parts sees no later row

struct AlignRecipe {  // how a recurrent decoder looks at the source, one head
  // Asks with the last layer's state before the step (Bahdanau) or after it (Luong).
  enum class At { previous, current };
  enum class Score { dot, general, additive, concat };
  // All of the source; around the row's own position; around a predicted one.
  enum class Window { none, monotonic, predictive };
  enum class Readout { tanh, maxout };
  At at = At::current;
  Score score = Score::dot;
  Dim width = 0;  // hidden units of additive and concat scores and of the predicted place; 0: the cells'
  bool feed = false;  // the readout enters the next step (Luong)
  Window window = Window::none;
  Dim reach = 10;  // of the window, to each side
  Readout readout = Readout::tanh;
  bool operator==(const AlignRecipe&) const = default;
};

struct RecurrentRecipe {
  enum class Cell { gru, lstm, rnn };
  // A decoder's first state: the encoder's last ones, tanh(W of one), zeros.
  enum class Start { last, projected, zero };
  Cell cell = Cell::gru;
  Dim layers = 1, width = 0;  // 0: the model's
  bool both_ways = false;  // encoder
  double dropout = 0;  // between layers
  Start start = Start::last;
  std::optional<AlignRecipe> attention;
  Dim out_width() const { return both_ways ? 2 * width : width; }  // of a resolved recipe
  bool operator==(const RecurrentRecipe&) const = default;
};

struct StackRecipe {
  Dim layers = 1;
  std::string pattern = "L";  // repeated to the number of layers: "LLLLLG"
  std::map<std::string, LayerRecipe> kinds;  // one letter each
  Dim groups = 0;  // layer i has the weights of group i * groups / layers (ALBERT: 1); 0: each its own
  std::optional<NormRecipe> final_norm;
  double dropout = 0;  // after the final norm (T5)
  std::optional<RecurrentRecipe> recurrent = {};  // instead of layers
  Dim group_of(Dim i) const { return groups > 0 ? i * groups / layers : i; }
  Dim depth() const { return recurrent ? recurrent->layers : layers; }
  const LayerRecipe& layer(Dim i) const;
  bool operator==(const StackRecipe&) const = default;
};

// Pictures in the place of tokens (ViT): squares of pixels times a matrix, learned tokens before them. A
// sequence's rows are cls, distill, the registers, then the patches row by row.
struct PatchRecipe {
  // How a table of positions is made to fit a picture of another size: cubic between its four neighbours, or
  // wider where it shrinks.
  enum class Resample { bicubic, antialias };
  Dim size = 16;  // pixels of a side
  Dim channels = 3;
  Dim rows = 14, columns = 14;  // of the picture the model is made for, in patches
  bool bias = true;  // of the matrix
  bool cls = true, distill = false;  // learned tokens with a position of their own
  Dim registers = 0;  // learned tokens without
  Resample resample = Resample::bicubic;
  Dim named() const { return (cls ? 1 : 0) + (distill ? 1 : 0); }  // learned tokens with a position
  Dim before() const { return named() + registers; }  // rows of a sequence before its patches
  Dim positions() const { return named() + rows * columns; }  // of the table
  bool operator==(const PatchRecipe&) const = default;
};

struct EmbedRecipe {
  enum class Pos { none, sinusoid, learned };
  double scale = 1;
  bool scale_sqrt_width = false;  // times sqrt(width) (2017, Gemma)
  std::optional<NormRecipe> norm;
  Dim types = 0;  // token types (BERT)
  Dim sink_tokens = 0;  // learned tokens put before every sequence
  Pos pos = Pos::none;
  SinusoidLayout layout = SinusoidLayout::pairs;
  SinusoidTable table = SinusoidTable::paper;
  Dim first = 0;  // sinusoid: the position of the first token (M2M100: 2)
  // Token vectors narrower than the model: a matrix makes them as wide, before positions are added (OPT) or
  // after the norm (ALBERT, ELECTRA).
  enum class Project { tokens, sum };
  Dim width = 0;  // 0: the model's
  Project project = Project::sum;
  bool project_bias = true;
  bool own_source = false;  // the encoder has positions and a norm of its own (BART)
  Dim source_vocab = 0;  // the encoder's vocabulary where it is another one; 0: one table for both
  double dropout = 0;
  std::optional<PatchRecipe> patches;
  bool operator==(const EmbedRecipe&) const = default;
};

// BERT: dense, activation, norm before the output matrix; its pooler: dense and tanh, no norm
struct HeadTransform {
  Act act = Act::gelu;
  bool linear = false;  // without the activation (OPT)
  std::optional<NormRecipe> norm = NormRecipe{};
  bool bias = true;
  bool operator==(const HeadTransform&) const = default;
};

// One row for a sequence by attention (SigLIP): a learned query looks at all rows, then x + ffn(norm(x)).
struct PoolAttention {
  Dim heads = 8;
  Act act = Act::gelu_tanh;
  Dim ffn = 0;  // 0: 4 * width
  NormRecipe norm = {.kind = NormRecipe::Kind::layer, .bias = true};
  bool operator==(const PoolAttention&) const = default;
};

struct HeadRecipe {
  // none: the last hidden state is the result; classes: one row of logits per sequence; vector: one vector
  // per sequence
  enum class Kind { vocab, none, classes, vector };
  // Which rows stand for a sequence; of pictures the mean is that of the patches. both: the first row beside
  // the mean of the patches (DINOv2); token: the first row that holds `token`.
  enum class Pool { first, mean, last, both, token, attention };
  Kind kind = Kind::vocab;
  Dim classes = 0;  // kind classes: how many
  Dim width = 0;  // kind vector: of the matrix; 0: none, the pooled row is the result
  Pool pool = Pool::first;
  Dim token = 0;  // pool token; 0: the row with the highest id (CLIP's old configs)
  PoolAttention attend;  // pool attention
  std::optional<NormRecipe> pool_norm;  // on the pooled row (CLIP)
  bool distilled = false;  // a second classifier on the second row, the result is the mean of both (DeiT)
  bool tied = false;  // the output matrix is the embedding table
  bool bias = false;
  double scale = 1;  // on the hidden state before the matrix (T5: width^-0.5)
  double cap = 0;  // on the logits (Gemma 2: 30)
  std::optional<HeadTransform> transform;
  bool pools() const { return kind == Kind::classes || kind == Kind::vector; }  // one row per sequence
  bool operator==(const HeadRecipe&) const = default;
};

struct InitRecipe {
  enum class Scheme { normal, xavier, t5 };  // N(0, std); uniform by fan; T5's per-role widths
  Scheme scheme = Scheme::normal;
  double std = 0.02;
  bool scale_residual = false;  // output projections times 1 / sqrt(2 * layers) (GPT-2)
  bool operator==(const InitRecipe&) const = default;
};

struct Recipe {
  std::string name = "custom";
  std::string note;  // one line for lists of presets
  Dim width = 0, vocab = 0, context = 0;
  EmbedRecipe embed;
  std::optional<StackRecipe> encoder, decoder;
  HeadRecipe head;
  InitRecipe init;
  bool operator==(const Recipe&) const = default;
};

// JSON text, a preset's name in "preset" or everything spelt out. Errors name the place
// ("decoder.kinds.L.parts[0].attn.kv_heads"), the reason and the nearest known key.
Recipe parse_recipe(std::string_view json, std::string_view where = "recipe");
std::string recipe_json(const Recipe& recipe, bool with_defaults = false);
// Fills in what 0 stands for (kv_heads, head_dim, v_dim, ffn width) and checks every range and cross-rule;
// fails with the reason.
Recipe resolve(Recipe recipe);

// Parts of the decoder remember by a state, of the whole text and of constant size (delta, conv).
bool remembers_by_state(const Recipe& recipe);

std::vector<std::string> preset_names();
Recipe preset(std::string_view name);
// A file's path or a preset's name.
Recipe find_recipe(const std::string& name_or_path);

}  // namespace rapt
