// SPDX-License-Identifier: Apache-2.0
// Every field of the recipe, once: its name, its member, what it means, its range. JSON in and out, range checks and docs/recipe.md
// are visitors over this table. Rules between fields: recipe_rules.cc.
//
// A visitor offers
//   about(title, meaning)                                     the struct itself
//   field(name, &T::member, meaning[, range])                 numbers, words, structs, optional structs, lists
//   choice(name, &T::kind, meaning, options…)                 one of several, in the order of the enum; name "": the struct is the choice
// where an option is word(name) | bare(name, &T::number) | body(name, &T::member) | group(name, fields of the same struct).
#pragma once
#include <array>
#include <cmath>
#include <limits>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "rapt/base/text.h"
#include "rapt/recipe/recipe.h"

namespace rapt {

template <class T>
struct Of {};  // picks the table of a struct

// ------------------------------------------------------------------------------------------------ ranges
struct Range {
  double low = -std::numeric_limits<double>::infinity(), high = std::numeric_limits<double>::infinity();
  bool above = false, below = false;  // the ends themselves are excluded
  bool nonzero = false;
};
constexpr double kMostSize = 2147483647;  // rows, positions and token ids are 32-bit in kernels
constexpr Range kAnyNumber{}, kNonzero{.nonzero = true};
constexpr Range kSize{0, kMostSize}, kCount{1, kMostSize};
constexpr Range kShare{0, 1, false, true};        // dropout
constexpr Range kPart{0, 1, true, false};         // rope.part
constexpr Range kPositive{0, std::numeric_limits<double>::infinity(), true};
constexpr Range kNotNegative{0, std::numeric_limits<double>::infinity()};
constexpr Range kEps{0, 1, true, false};
constexpr Range kLayers{1, 10000};

// ------------------------------------------------------------------------------------------------ names of values
#define RAPT_NAMES(Enum, ...) \
  inline constexpr auto names_of(Enum) { return std::to_array<std::string_view>({__VA_ARGS__}); }
RAPT_NAMES(NormRecipe::Kind, "layer", "rms", "l2", "batch")
RAPT_NAMES(NormRecipe::Gain, "none", "one", "plus_one")
RAPT_NAMES(QkNormRecipe::Span, "head", "full")
RAPT_NAMES(QkNormRecipe::Weights, "shared", "per_head")
RAPT_NAMES(QkNormRecipe::At, "before_pos", "after_pos")
RAPT_NAMES(ScaleRecipe::Per, "layer", "head")
RAPT_NAMES(GateRecipe::At, "sdpa", "q", "k", "v", "out")
RAPT_NAMES(GateRecipe::From, "input", "constant")
RAPT_NAMES(GateRecipe::Heads, "own", "shared")
RAPT_NAMES(GateRecipe::Op, "mul", "add")
RAPT_NAMES(GateGrain, "element", "head")
RAPT_NAMES(AttnRecipe::ScoreKind, "dot", "general", "additive", "concat", "cosine", "l2")
RAPT_NAMES(AttnRecipe::MaskKind, "causal", "full", "prefix", "chunk")
RAPT_NAMES(Normal, "softmax", "sigmoid")
RAPT_NAMES(FfnRecipe::Kind, "mlp", "glu")
RAPT_NAMES(PartRecipe::Kind, "self", "cross", "ffn")
RAPT_NAMES(AlignRecipe::At, "previous", "current")
RAPT_NAMES(AlignRecipe::Score, "dot", "general", "additive", "concat")
RAPT_NAMES(AlignRecipe::Readout, "tanh", "maxout")
RAPT_NAMES(RecurrentRecipe::Cell, "gru", "lstm")
RAPT_NAMES(RecurrentRecipe::Start, "last", "projected", "zero")
RAPT_NAMES(HeadRecipe::Kind, "vocab", "none", "classes")
RAPT_NAMES(HeadRecipe::Pool, "first", "mean", "last")
RAPT_NAMES(InitRecipe::Scheme, "normal", "xavier", "t5")
RAPT_NAMES(RopeLayout, "halves", "pairs")
RAPT_NAMES(SinusoidLayout, "pairs", "halves")
RAPT_NAMES(SinusoidTable, "paper", "marian")
// softcap and scale of the enum are no activations of a network: a recipe cannot say them.
RAPT_NAMES(Act, "relu", "relu2", "gelu", "gelu_tanh", "silu", "quick_gelu", "sigmoid", "ns_sigmoid", "softplus", "tanh")
#undef RAPT_NAMES

// ------------------------------------------------------------------------------------------------ options of a choice
struct Word {
  std::string_view name, meaning;
};
template <class T, class M>
struct Bare {  // written as the number itself
  std::string_view name;
  M T::* member;
  std::string_view meaning;
  Range range;
};
template <class T, class M>
struct Body {  // { "name": the member }
  std::string_view name;
  M T::* member;
  std::string_view meaning;
  Range range;
};
template <class F>
struct Group {  // { "name": { fields of the same struct } }; fields is called with a visitor
  std::string_view name, meaning;
  F fields;
};
constexpr Word word(std::string_view name, std::string_view meaning) { return {name, meaning}; }
template <class T, class M>
constexpr Bare<T, M> bare(std::string_view name, M T::* member, std::string_view meaning, Range range = {}) {
  return {name, member, meaning, range};
}
template <class T, class M>
constexpr Body<T, M> body(std::string_view name, M T::* member, std::string_view meaning, Range range = {}) {
  return {name, member, meaning, range};
}
template <class F>
constexpr Group<F> group(std::string_view name, std::string_view meaning, F fields) {
  return {name, meaning, fields};
}

// Structs whose JSON is a choice, not an object of fields.
template <class T>
inline constexpr bool kIsChoice = false;
template <>
inline constexpr bool kIsChoice<PosRecipe> = true;
template <>
inline constexpr bool kIsChoice<ScaleRecipe> = true;
template <>
inline constexpr bool kIsChoice<ExtraRecipe> = true;

// Words that stand for a whole struct.
template <class T>
std::vector<std::pair<std::string_view, T>> shorthands(Of<T>) {
  return {};
}
inline std::vector<std::pair<std::string_view, BiasRecipe>> shorthands(Of<BiasRecipe>) {
  return {{"none", {}}, {"all", {true, true, true, true}}, {"qkv", {true, true, true, false}}};
}
inline std::vector<std::pair<std::string_view, NormRecipe>> shorthands(Of<NormRecipe>) {
  using Kind = NormRecipe::Kind;
  return {{"layer", {.kind = Kind::layer}}, {"rms", {.kind = Kind::rms}}, {"l2", {.kind = Kind::l2}}, {"batch", {.kind = Kind::batch}}};
}

// ------------------------------------------------------------------------------------------------ the table
template <class V>
void fields(Of<NormRecipe>, V& v) {
  using T = NormRecipe;
  v.about("Norm", "A norm of rows. The name of a kind alone stands for that kind with everything else at its default: `\"rms\"`.");
  v.field("kind", &T::kind,
          "layer: mean and deviation of the row; rms: root of the mean square; l2: length; batch: mean and deviation of each channel over "
          "the tokens of a batch");
  v.field("eps", &T::eps, "added under the root", kEps);
  v.field("weight", &T::weight, "gain per channel: none, a weight, or a weight stored minus one (Gemma)");
  v.field("bias", &T::bias, "shift per channel");
  v.field("leaks_ok", &T::leaks_ok, "batch norm in a causal stack: training then looks ahead, and that is meant");
}

template <class V>
void fields(Of<BiasRecipe>, V& v) {
  using T = BiasRecipe;
  v.about("Bias", "Which projections of attention have a bias. `\"none\"`, `\"qkv\"` and `\"all\"` stand for the usual sets.");
  v.field("q", &T::q, "on queries");
  v.field("k", &T::k, "on keys (without effect in plain softmax attention, needed with RoPE, QK-norm, soft-cap or an extra logit)");
  v.field("v", &T::v, "on values");
  v.field("o", &T::o, "on the output projection");
}

template <class V>
void fields(Of<QkNormRecipe>, V& v) {
  using T = QkNormRecipe;
  v.about("QkNorm", "A norm on queries and keys, each with weights of its own.");
  v.field("norm", &T::norm, "the norm");
  v.field("span", &T::span, "over each head, or over the whole projection (OLMo 2)");
  v.field("weights", &T::weights, "one gain for all heads (Qwen3), or each head its own (Cohere)");
  v.field("at", &T::at, "before or after RoPE (Llama 4: after)");
}

template <class V>
void fields(Of<RopeSpec>, V& v) {
  using T = RopeSpec;
  v.about("Rope", "Rotary positions: pairs of channels of q and k are turned by position times frequency.");
  v.field("theta", &T::theta, "base of the frequencies", kPositive);
  v.field("part", &T::part, "share of the head's channels that turn, from the first on", kPart);
  v.field("layout", &T::layout, "a channel turns with the one half a head away, or with its neighbour");
  v.choice(
      "scaling", &T::scaling, "how frequencies change for contexts beyond the trained one", word("none", "frequencies as they are"),
      group("linear", "positions divided by factor", [](auto& g) { g.field("factor", &T::factor, "context after / before", kPositive); }),
      group("ntk", "a larger base for all", [](auto& g) { g.field("factor", &T::factor, "context after / before", kPositive); }),
      group("dynamic", "a larger base for sequences opened longer than `original`",
            [](auto& g) {
              g.field("factor", &T::factor, "context after / before", kPositive);
              g.field("original", &T::original, "context the model was trained for", kPositive);
            }),
      group("yarn", "low frequencies interpolated, high ones kept, a ramp between, cos and sin enlarged",
            [](auto& g) {
              g.field("factor", &T::factor, "context after / before", kPositive);
              g.field("original", &T::original, "context the model was trained for", kPositive);
              g.field("beta_fast", &T::beta_fast, "turns over the trained context from which on nothing changes", kPositive);
              g.field("beta_slow", &T::beta_slow, "turns up to which everything is interpolated", kPositive);
              g.field("truncate", &T::truncate, "ends of the ramp on whole channel numbers");
              g.field("attention_factor", &T::attention_factor, "factor on cos and sin; 0: 0.1 ln(factor) + 1", kNotNegative);
              g.field("mscale", &T::mscale, "DeepSeek's part of that factor; 0: none", kNotNegative);
              g.field("mscale_all_dim", &T::mscale_all_dim, "DeepSeek's divisor of it; 0: none", kNotNegative);
            }),
      group("llama3", "Llama 3.1: by wavelength, three zones",
            [](auto& g) {
              g.field("factor", &T::factor, "context after / before", kPositive);
              g.field("original", &T::original, "context the model was trained for", kPositive);
              g.field("low_freq", &T::low_freq, "wavelengths longer than original / low_freq are divided by factor", kPositive);
              g.field("high_freq", &T::high_freq, "wavelengths shorter than original / high_freq stay", kPositive);
            }),
      group("longrope", "Phi-3: a factor per frequency, one list for short and one for long sequences",
            [](auto& g) {
              g.field("factor", &T::factor, "context after / before; 1: max_context / original", kPositive);
              g.field("original", &T::original, "context the model was trained for", kPositive);
              g.field("max_context", &T::max_context, "context after scaling", kNotNegative);
              g.field("attention_factor", &T::attention_factor, "factor on cos and sin; 0: its own rule", kNotNegative);
              g.field("short_factor", &T::short_factor, "one divisor per turned pair, sequences up to `original`", kPositive);
              g.field("long_factor", &T::long_factor, "one divisor per turned pair, longer sequences", kPositive);
            }),
      group("proportional", "the turned pairs take the frequencies of the whole head (Gemma 4)",
            [](auto& g) { g.field("factor", &T::factor, "frequencies divided by", kPositive); }));
}

template <class V>
void fields(Of<BucketRecipe>, V& v) {
  using T = BucketRecipe;
  v.about("Bucket", "A learned bias per head and bucket of distance (T5).");
  v.field("count", &T::count, "buckets; half of them for keys after the query where the mask shows those", kCount);
  v.field("max", &T::max, "distances from here on share the last bucket", kCount);
  v.field("shared", &T::shared, "one table for all layers of the stack");
}

template <class V>
void fields(Of<PosRecipe>, V& v) {
  using T = PosRecipe;
  v.about("Pos", "How attention knows positions. Absolute ones belong to the embedding.");
  v.choice("", &T::kind, "", word("none", "not at all (NoPE, or positions in the embedding)"), body("rope", &T::rope, "rotary"),
           word("alibi", "a penalty proportional to distance, its slope fixed per head"),
           body("bucket", &T::bucket, "learned bias by distance"));
}

template <class V>
void fields(Of<ScaleRecipe>, V& v) {
  using T = ScaleRecipe;
  v.about("Scale", "The factor on scores.");
  v.choice("", &T::kind, "", word("auto", "1 / sqrt(head_dim); 1 for cosine, additive and concat scores"),
           bare("number", &T::number, "this number (T5: 1; Gemma 2: 0.0625)", kNonzero),
           group("learned", "learned with the model", [](auto& g) {
             g.field("per", &T::per, "one for the layer, or one per head");
             g.field("init", &T::number, "its value at the start", kNonzero);
             g.field("max", &T::max, "never above this; 0: no limit", kNotNegative);
           }));
}

template <class V>
void fields(Of<ExtraRecipe>, V& v) {
  using T = ExtraRecipe;
  v.about("Extra", "What takes part in the softmax besides the keys.");
  v.choice("", &T::kind, "", word("none", "nothing"), word("zero_logit", "a logit of 0: rows may sum to less than one (off by one)"),
           word("learned_logit", "a learned logit per head (gpt-oss)"),
           body("kv_slots", &T::slots, "this many learned keys and values, seen by every row, without position", Range{1, 65536}));
}

template <class V>
void fields(Of<GateRecipe>, V& v) {
  using T = GateRecipe;
  v.about("Gate",
          "A gate in attention: x * act(W h), h being the input of the layer's projections (for k and v of cross-attention: the memory).");
  v.field("at", &T::at,
          "on attention's result before the output projection (G1), on q (G4), k (G3), v (G2), or after the output projection (G5)");
  v.field("from", &T::from, "computed from the input, or one learned constant for all tokens");
  v.field("grain", &T::grain, "one number per channel, or per head");
  v.field("heads", &T::heads, "each head its own, or all heads the same");
  v.field("act", &T::act, "makes the gate of its logit; ns_sigmoid is 0.5 + 0.5 sigmoid");
  v.field("op", &T::op, "multiply by the gate, or add it");
}

template <class V>
void fields(Of<AttnRecipe>, V& v) {
  using T = AttnRecipe;
  v.about("Attention", "The fields of a `self` or `cross` part, beside those of every part.");
  v.field("heads", &T::heads, "query heads", kCount);
  v.field("kv_heads", &T::kv_heads, "key and value heads; 0: as many as heads (MHA); 1: MQA; between: GQA", kSize);
  v.field("head_dim", &T::head_dim, "channels of a query or key head; 0: width / heads", kSize);
  v.field("v_dim", &T::v_dim, "channels of a value head; 0: head_dim", kSize);
  v.field("score", &T::score, "q.k; q.Wk (Luong); w.tanh(q+k) (Bahdanau; concat: Luong's); cosine of q and k; -|q-k|^2");
  v.field("normal", &T::normal, "softmax over the visible keys, or a sigmoid of each score");
  v.field("scale", &T::scale, "the factor on scores");
  v.field("bias", &T::bias, "biases of the projections");
  v.field("qk_norm", &T::qk_norm, "a norm on queries and keys");
  v.field("v_norm", &T::v_norm, "a norm on each value head");
  v.field("z_norm", &T::z_norm, "a norm on each head of attention's result");
  v.field("pos", &T::pos, "positions inside attention");
  v.field("mask", &T::mask,
          "which keys a row of self-attention sees: up to itself; all; all of a prefix, then up to itself; up to itself within its chunk");
  v.field("chunk", &T::chunk, "mask chunk: its length", kSize);
  v.field("window", &T::window, "the last so many keys only, the row itself included; 0: all", kSize);
  v.field("keep", &T::keep, "with a window: first keys of the sequence that stay visible (streaming)", kSize);
  v.field("cap", &T::cap, "scores softly limited to this: cap * tanh(score / cap); 0: not", kNotNegative);
  v.field("extra", &T::extra, "an extra logit or learned keys");
  v.field("gate", &T::gate, "gates, at most one at each place");
  v.field("attn_dropout", &T::dropout, "on attention weights", kShare);
}

template <class V>
void fields(Of<FfnRecipe>, V& v) {
  using T = FfnRecipe;
  v.about("Ffn", "The fields of an `ffn` part, beside those of every part.");
  v.field("kind", &T::kind, "down(act(up(x))), or gated: down(act(gate(x)) * up(x))");
  v.field("act", &T::act, "the activation; glu with silu is SwiGLU, with gelu_tanh GeGLU");
  v.field("width", &T::width, "hidden width; 0: 4 * the model's width", kSize);
  v.field("bias", &T::bias, "on every matrix");
  v.field("clamp", &T::clamp, "glu: gate at most this, up within plus and minus this; 0: free (gpt-oss: 7)", kNotNegative);
  v.field("alpha", &T::alpha, "glu with silu: x * sigmoid(alpha x) (gpt-oss: 1.702)", kPositive);
  v.field("up_offset", &T::up_offset, "glu: added to up (gpt-oss: 1)", kAnyNumber);
  v.field("ffn_dropout", &T::dropout, "on the hidden layer", kShare);
}

template <class V>
void fields(Of<PartRecipe>, V& v) {  // what every part has; the rest are the fields of its AttnRecipe or FfnRecipe
  using T = PartRecipe;
  v.about("Part",
          "One step of a layer: x + residual_scale * dropout(norm_out(f(norm_in(x)))), then norm_sum. Written `{\"self\": {...}}`, "
          "`{\"cross\": {...}}` or `{\"ffn\": {...}}`, "
          "with these fields and those of Attention or Ffn inside.");
  v.field("norm_in", &T::norm_in, "before f: pre-norm");
  v.field("norm_out", &T::norm_out, "after f: alone as in OLMo 2, with norm_in as in Gemma 2");
  v.field("norm_sum", &T::norm_sum, "after the sum: post-norm, the order of 2017");
  v.field("residual_scale", &T::residual_scale, "factor on the branch", kNonzero);
  v.field("dropout", &T::dropout, "on the branch, before it is added", kShare);
}

template <class V>
void fields(Of<LayerRecipe>, V& v) {
  using T = LayerRecipe;
  v.about("Layer", "What one layer does, part after part.");
  v.field("parallel", &T::parallel, "all parts read the same input and their results are added together (PaLM, ViT-22B)");
  v.field("norm_in", &T::norm_in, "parallel with one norm for all parts; with a norm each, they stand on the parts");
  v.field("parts", &T::parts,
          "a list of parts. On top of a preset an object `{\"self\": {...}}` changes the parts of that name that are there, and leaves the "
          "others");
}

template <class V>
void fields(Of<AlignRecipe>, V& v) {
  using T = AlignRecipe;
  v.about("Align",
          "How a recurrent decoder looks at the encoder's result: one head, once per step, seen as cross-attention of its last layer.");
  v.field("at", &T::at,
          "which state of the last layer asks: the one before the step, whose answer enters the first layer's cell (Bahdanau), or the one "
          "after it (Luong)");
  v.field("score", &T::score, "h.s; h.Ws; v.tanh(Wh + Us) (Bahdanau); concat: the same sum, as Luong writes it: v.tanh(W[h; s])");
  v.field("width", &T::width, "hidden units of additive and concat scores and of the predicted place; 0: the cells' width", kSize);
  v.field("feed", &T::feed, "the readout of a step enters the next one's first cell (input feeding); needs at current");
  v.choice("window", &T::window, "which words a step sees", word("none", "all of the source"),
           group("monotonic", "those around its own position (Luong's local-m)",
                 [](auto& g) { g.field("reach", &T::reach, "words to each side", Range{1, kMostSize}); }),
           group("predictive",
                 "those around a place it predicts, p = S sigmoid(v.tanh(W h)), weights times a Gaussian of deviation reach / 2 around it "
                 "(local-p)",
                 [](auto& g) { g.field("reach", &T::reach, "words to each side", Range{1, kMostSize}); }));
  v.field(
      "readout", &T::readout,
      "of the state that asked, h, and the context c, as wide as the model: tanh(W[c; h]) (Luong), or the larger of each two of W[h; x; "
      "c], x being the step's input (Bahdanau)");
}

template <class V>
void fields(Of<RecurrentRecipe>, V& v) {
  using T = RecurrentRecipe;
  v.about("Recurrent", "Cells that read a text word by word.");
  v.field("cell", &T::cell, "gru (the reset gate after the product, as in PyTorch), or lstm");
  v.field("layers", &T::layers, "on top of each other", kLayers);
  v.field("width", &T::width, "of a state; 0: the model's width", kSize);
  v.field("both_ways", &T::both_ways, "encoder: a second row of cells reads from the end; both states stand beside each other");
  v.field("dropout", &T::dropout, "between layers", kShare);
  v.field(
      "start", &T::start,
      "decoder: the first state. last: the encoder's last states, layer by layer, of both directions beside each other (zeros without an "
      "encoder); projected: tanh(W of the last layer's last state; both ways: of the one that read backwards); zero");
  v.field("attention", &T::attention, "decoder: how it looks at the source");
}

template <class V>
void fields(Of<StackRecipe>, V& v) {
  using T = StackRecipe;
  v.about("Stack", "Layers on top of each other.");
  v.field("layers", &T::layers, "how many", kLayers);
  v.field("pattern", &T::pattern, "letters of `kinds`, repeated from the first layer on: \"LLLLLG\"");
  v.field("kinds", &T::kinds, "a layer for each letter; on top of a preset null removes one");
  v.field("final_norm", &T::final_norm, "after the last layer");
  v.field("dropout", &T::dropout, "after the final norm (T5)", kShare);
  v.field("recurrent", &T::recurrent,
          "cells instead of layers: no kinds and no norm then; without an encoder or attention they are as wide as the model");
}

template <class V>
void fields(Of<EmbedRecipe>, V& v) {
  using T = EmbedRecipe;
  v.about("Embed", "From token ids to vectors.");
  v.choice("scale", &T::scale_sqrt_width, "factor on token vectors", bare("number", &T::scale, "this number", kNonzero),
           word("sqrt(width)", "the root of the width (2017, Gemma)"));
  v.choice("pos", &T::pos, "absolute positions, added to token vectors", word("none", "not here"),
           group("sinusoid", "sines and cosines",
                 [](auto& g) {
                   g.field("layout", &T::layout, "sine and cosine alternate (2017), or all sines first (Marian)");
                   g.field("table", &T::table, "frequencies 10000^(-2i/d), or 10000^(-i/(d/2-1)) (marian-dev, fairseq)");
                 }),
           word("learned", "one vector per position below `context`"));
  v.field("norm", &T::norm, "on the sum");
  v.field("types", &T::types, "token types with a vector each (BERT: 2)", Range{0, 65536});
  v.field("sink_tokens", &T::sink_tokens, "learned tokens put before every sequence", Range{0, 65536});
  v.field("dropout", &T::dropout, "on the result", kShare);
}

template <class V>
void fields(Of<HeadTransform>, V& v) {
  using T = HeadTransform;
  v.about("Transform", "BERT's step before the output matrix: a square matrix with bias, an activation, a norm.");
  v.field("act", &T::act, "the activation");
  v.field("norm", &T::norm, "the norm after it; null: none (BERT's pooler: act tanh, no norm)");
}

template <class V>
void fields(Of<HeadRecipe>, V& v) {
  using T = HeadRecipe;
  v.about("Head", "From the last hidden state to the result.");
  v.field(
      "kind", &T::kind,
      "logits over the vocabulary; or none: the hidden state is the result; or classes: one row of logits per sequence, over `classes`");
  v.field("classes", &T::classes, "kind classes: how many, at least 2", kSize);
  v.field("pool", &T::pool, "kind classes: the first row of a sequence, the mean of its rows, or its last one");
  v.field("tied", &T::tied, "the output matrix is the table of token vectors");
  v.field("bias", &T::bias, "on the logits");
  v.field("scale", &T::scale, "on the hidden state before the matrix (T5: width^-0.5)", kNonzero);
  v.field("cap", &T::cap, "logits softly limited to this (Gemma 2: 30); 0: not", kNotNegative);
  v.field("transform", &T::transform, "a step before the matrix");
}

template <class V>
void fields(Of<InitRecipe>, V& v) {
  using T = InitRecipe;
  v.about("Init", "Starting values of weights.");
  v.field("scheme", &T::scheme, "normal with `std`; xavier: uniform by fan in and out; t5: by role");
  v.field("std", &T::std, "deviation of the normal scheme", kPositive);
  v.field("scale_residual", &T::scale_residual, "output projections divided by sqrt(2 * layers) (GPT-2)");
}

template <class V>
void fields(Of<Recipe>, V& v) {
  using T = Recipe;
  v.about("Recipe",
          "A whole model. `\"preset\": NAME` starts from a preset; what is written beside it overrides: objects merge, lists and values "
          "replace, null removes.");
  v.field("name", &T::name, "what it is called");
  v.field("note", &T::note, "one line about it");
  v.field("width", &T::width, "channels of the residual stream", kCount);
  v.field("vocab", &T::vocab, "token ids; 0 only without a head: the model then reads vectors, not tokens", kSize);
  v.field("context", &T::context, "longest sequence it is meant for", kCount);
  v.field("embed", &T::embed, "the embedding");
  v.field("encoder", &T::encoder, "a stack that reads a whole text (BERT), or the source of a translation");
  v.field("decoder", &T::decoder, "a stack that writes token by token (GPT); with an encoder its layers need a `cross` part");
  v.field("head", &T::head, "the output");
  v.field("init", &T::init, "starting values");
}

// ------------------------------------------------------------------------------------------------ what visitors share
template <class T>
concept Enum = std::is_enum_v<T>;
inline std::string under(const std::string& path, std::string_view name) {
  return path.empty() ? std::string(name) : path + "." + std::string(name);
}

template <Enum E>
std::vector<std::string> names() {
  const auto all = names_of(E{});
  return {all.begin(), all.end()};
}

// "must be at least 1": how a number breaks its range, or "".
inline std::string breaks(const Range& r, double x) {
  if (!std::isfinite(x)) return "must be a finite number";
  if (r.nonzero && x == 0) return "must not be 0";
  if (x < r.low || (r.above && x == r.low)) return concat("must be ", r.above ? "above " : "at least ", shortest(r.low));
  if (x > r.high || (r.below && x == r.high)) return concat("must be ", r.below ? "below " : "at most ", shortest(r.high));
  return "";
}

}  // namespace rapt
