// SPDX-License-Identifier: Apache-2.0
// Self- and cross-attention as a part of a layer: fields, rules, drawing. Built and run by
// nn/parts/attention.
#pragma once
#include <optional>
#include <vector>

#include "rapt/ops/activation.h"
#include "rapt/ops/attention.h"
#include "rapt/ops/rope.h"
#include "rapt/recipe/norm_recipe.h"
#include "rapt/recipe/parts/part.h"

namespace rapt {

struct BiasRecipe {
  bool q = false, k = false, v = false, o = false;
  bool operator==(const BiasRecipe&) const = default;
};

struct QkNormRecipe {
  enum class Span { head, full };  // over each head, or over the whole projection (OLMo 2)
  enum class Weights { shared, per_head };  // one gain for all heads (Qwen3), or each its own (Cohere)
  enum class At { before_pos, after_pos };  // before or after RoPE (Llama 4)
  NormRecipe norm;
  Span span = Span::head;
  Weights weights = Weights::shared;
  At at = At::before_pos;
  bool operator==(const QkNormRecipe&) const = default;
};

struct BucketRecipe {
  Dim count = 32, max = 128;
  bool shared = true;  // one table for all layers of the stack (T5)
  bool operator==(const BucketRecipe&) const = default;
};

// Disentangled attention (DeBERTa): a table of vectors for distances, one for the stack. Each layer makes
// keys and queries of it with its own projections, and their products with its queries and keys join the
// scores.
struct RelativeRecipe {
  Dim buckets = 256, max = 512;
  bool keys = true, queries = true;  // which terms there are
  std::optional<NormRecipe> norm;  // of the table
  Dim terms() const { return 1 + (keys ? 1 : 0) + (queries ? 1 : 0); }  // of a score
  bool operator==(const RelativeRecipe&) const = default;
};

struct PosRecipe {  // inside attention; absolute positions belong to EmbedRecipe
  enum class Kind { none, rope, alibi, bucket, relative, grid, xl };
  Kind kind = Kind::none;
  RopeSpec rope;
  double alibi_max = 8, alibi_factor = 1;
  BucketRecipe bucket;
  RelativeRecipe relative;
  double grid_theta = 100;  // grid: a patch turns by its row and its column (DINOv3)
  bool operator==(const PosRecipe&) const = default;
};

struct ScaleRecipe {
  // automatic: 1 / sqrt(head_dim), with relative positions 1 / sqrt(terms * head_dim); for cosine and
  // additive scores 1
  enum class Kind { automatic, number, learned };
  enum class Per { layer, head };
  Kind kind = Kind::automatic;
  double number = 1;  // number: the scale itself; learned: its value at the start
  Per per = Per::layer;  // learned
  double max = 0;  // learned: never above this (0: no limit)
  bool operator==(const ScaleRecipe&) const = default;
};

struct ExtraRecipe {
  // Learned sink tokens are input tokens: EmbedRecipe::sink_tokens.
  enum class Kind { none, zero_logit, learned_logit, kv_slots };
  Kind kind = Kind::none;
  Dim slots = 1;  // kv_slots: learned key/value pairs seen by every row
  bool operator==(const ExtraRecipe&) const = default;
};

struct GateRecipe {
  enum class At { sdpa, q, k, v, out };
  enum class From { input, constant };
  enum class Heads { own, shared };
  enum class Op { mul, add };
  At at = At::sdpa;
  From from = From::input;
  GateGrain grain = GateGrain::element;
  Heads heads = Heads::own;
  Act act = Act::sigmoid;
  Op op = Op::mul;
  bool operator==(const GateRecipe&) const = default;
};

// Queries times 1 + factor * ln(1 + floor((position + first) / length)) (Llama 4, Ministral 3).
struct TemperatureRecipe {
  double factor = 0.1;
  Dim length = 8192, first = 1;
  bool operator==(const TemperatureRecipe&) const = default;
};

// Keys and values of all heads made of one short vector per token, the latent, which is what the cache keeps,
// beside one key that turns and that all heads share (DeepSeek V2). A head's key is [W_k c | k_r].
struct LatentRecipe {
  Dim rank = 512;  // of the latent c
  Dim q_rank = 0;  // of the queries' own latent; 0: queries come straight from the input
  Dim rope_dim = 64;  // channels of a head that turn, its last ones
  NormRecipe norm, q_norm;
  bool operator==(const LatentRecipe&) const = default;
};

struct AttnRecipe {
  bool cross = false;  // of the decoder's rows to the encoder's result
  enum class ScoreKind { dot, general, additive, concat, cosine, l2 };
  enum class MaskKind { causal, full, prefix, chunk };
  ScoreKind score = ScoreKind::dot;
  Normal normal = Normal::softmax;
  ScaleRecipe scale;
  Dim heads = 8, kv_heads = 0, head_dim = 0, v_dim = 0;  // 0: heads, width / heads, head_dim
  BiasRecipe bias;
  std::optional<LatentRecipe> latent;
  std::optional<QkNormRecipe> qk_norm;
  std::optional<NormRecipe> v_norm, z_norm;  // over each head
  PosRecipe pos;
  MaskKind mask = MaskKind::causal;
  Dim chunk = 0;  // mask chunk
  Dim window = 0;  // keys a row sees, itself included; 0: all
  Dim keep = 0;  // first keys that stay visible (streaming: with window)
  double cap = 0;
  double clip = 0;  // q, k and v within plus and minus this, before positions (OLMo 1, MPT); 0: not
  std::optional<TemperatureRecipe> temperature;
  ExtraRecipe extra;
  std::vector<GateRecipe> gate;
  double dropout = 0;
  Dim rope_channels() const { return latent ? latent->rope_dim : head_dim; }  // that RoPE may turn
  bool operator==(const AttnRecipe&) const = default;
};

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
RAPT_NAMES(RopeLayout, "halves", "pairs")

template <>
inline constexpr bool kIsChoice<PosRecipe> = true;
template <>
inline constexpr bool kIsChoice<ScaleRecipe> = true;
template <>
inline constexpr bool kIsChoice<ExtraRecipe> = true;
inline std::vector<std::pair<std::string_view, BiasRecipe>> shorthands(Of<BiasRecipe>) {
  return {{"none", {}}, {"all", {true, true, true, true}}, {"qkv", {true, true, true, false}}};
}

template <class V>
void fields(Of<BiasRecipe>, V& v) {
  using T = BiasRecipe;
  v.about(
      "Bias",
      "Which projections of attention have a bias. `\"none\"`, `\"qkv\"` and `\"all\"` stand for the usual "
      "sets.");
  v.field("q", &T::q, "on queries");
  v.field("k", &T::k,
          "on keys (without effect in plain softmax attention, needed with RoPE, QK-norm, "
          "soft-cap or an extra logit)");
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
      "scaling", &T::scaling, "how frequencies change for contexts beyond the trained one",
      word("none", "frequencies as they are"),
      group("linear", "positions divided by factor",
            [](auto& g) { g.field("factor", &T::factor, "context after / before", kPositive); }),
      group("ntk", "a larger base for all",
            [](auto& g) { g.field("factor", &T::factor, "context after / before", kPositive); }),
      group("dynamic", "a larger base for sequences opened longer than `original`",
            [](auto& g) {
              g.field("factor", &T::factor, "context after / before", kPositive);
              g.field("original", &T::original, "context the model was trained for", kPositive);
            }),
      group("yarn", "low frequencies interpolated, high ones kept, a ramp between, cos and sin enlarged",
            [](auto& g) {
              g.field("factor", &T::factor, "context after / before", kPositive);
              g.field("original", &T::original, "context the model was trained for", kPositive);
              g.field("beta_fast", &T::beta_fast,
                      "turns over the trained context from which on nothing changes", kPositive);
              g.field("beta_slow", &T::beta_slow, "turns up to which everything is interpolated", kPositive);
              g.field("truncate", &T::truncate, "ends of the ramp on whole channel numbers");
              g.field("attention_factor", &T::attention_factor,
                      "factor on cos and sin; 0: 0.1 ln(factor) + 1", kNotNegative);
              g.field("mscale", &T::mscale, "DeepSeek's part of that factor; 0: none", kNotNegative);
              g.field("mscale_all_dim", &T::mscale_all_dim, "DeepSeek's divisor of it; 0: none",
                      kNotNegative);
            }),
      group("llama3", "Llama 3.1: by wavelength, three zones",
            [](auto& g) {
              g.field("factor", &T::factor, "context after / before", kPositive);
              g.field("original", &T::original, "context the model was trained for", kPositive);
              g.field("low_freq", &T::low_freq,
                      "wavelengths longer than original / low_freq are divided by factor", kPositive);
              g.field("high_freq", &T::high_freq, "wavelengths shorter than original / high_freq stay",
                      kPositive);
            }),
      group("longrope", "Phi-3: a factor per frequency, one list for short and one for long sequences",
            [](auto& g) {
              g.field("factor", &T::factor, "context after / before; 1: max_context / original", kPositive);
              g.field("original", &T::original, "context the model was trained for", kPositive);
              g.field("max_context", &T::max_context, "context after scaling", kNotNegative);
              g.field("attention_factor", &T::attention_factor, "factor on cos and sin; 0: its own rule",
                      kNotNegative);
              g.field("short_factor", &T::short_factor,
                      "one divisor per turned pair, sequences up to `original`", kPositive);
              g.field("long_factor", &T::long_factor, "one divisor per turned pair, longer sequences",
                      kPositive);
            }),
      group("proportional", "the turned pairs take the frequencies of the whole head (Gemma 4)",
            [](auto& g) { g.field("factor", &T::factor, "frequencies divided by", kPositive); }));
}

template <class V>
void fields(Of<BucketRecipe>, V& v) {
  using T = BucketRecipe;
  v.about("Bucket", "A learned bias per head and bucket of distance (T5).");
  v.field("count", &T::count, "buckets; half of them for keys after the query where the mask shows those",
          kCount);
  v.field("max", &T::max, "distances from here on share the last bucket", kCount);
  v.field("shared", &T::shared, "one table for all layers of the stack");
}

template <class V>
void fields(Of<RelativeRecipe>, V& v) {
  using T = RelativeRecipe;
  v.about(
      "Relative",
      "Disentangled attention (DeBERTa v2, v3), of encoders: a vector for every distance before and "
      "behind, one table for all layers of the stack. Each layer makes keys K and queries Q of it with its "
      "own projections; a score is the sum of q.k, q.K and k.Q, K and Q being those of the distance, over "
      "sqrt(terms * head_dim). Needs memory for rows times keys in every head.");
  v.field("buckets", &T::buckets,
          "vectors to each side: one for each distance up to half of them, then by its logarithm", kCount);
  v.field("max", &T::max, "distances from here on share the last vector", kCount);
  v.field("keys", &T::keys, "queries meet keys of distances (c2p)");
  v.field("queries", &T::queries, "keys meet queries of distances (p2c)");
  v.field("norm", &T::norm, "a norm on the table");
}

template <class V>
void fields(Of<PosRecipe>, V& v) {
  using T = PosRecipe;
  v.about("Pos", "How attention knows positions. Absolute ones belong to the embedding.");
  v.choice(
      "", &T::kind, "", word("none", "not at all (NoPE, or positions in the embedding)"),
      body("rope", &T::rope, "rotary"),
      group("alibi", "a penalty proportional to distance, its slope fixed per head",
            [](auto& g) {
              g.field("max", &T::alibi_max, "slopes go down to 2^-max", kPositive);
              g.field("factor", &T::alibi_factor, "on all slopes (Falcon adds before scaling: head_dim^-0.5)",
                      kPositive);
            }),
      body("bucket", &T::bucket, "learned bias by distance"),
      body("relative", &T::relative, "learned vectors by distance, met by queries and keys (DeBERTa)"),
      group("grid",
            "pictures: rotary, a quarter of a head's channels by the row of a patch and a quarter by its "
            "column, each from -1 to 1 over the picture, times 2 pi theta^(-4i / head_dim); learned tokens "
            "do not turn (DINOv3)",
            [](auto& g) { g.field("theta", &T::grid_theta, "base of the frequencies", kPositive); }),
      word("xl",
           "relative positions of Transformer-XL (Gopher): a score is ((q + u).k + (q + v).W r) / "
           "sqrt(head_dim), r the sinusoids of the distance as wide as the model, W a matrix of the layer, u "
           "and v learned for each head. Needs memory for rows times keys in every head"));
}

template <class V>
void fields(Of<ScaleRecipe>, V& v) {
  using T = ScaleRecipe;
  v.about("Scale", "The factor on scores.");
  v.choice(
      "", &T::kind, "",
      word("auto",
           "1 / sqrt(head_dim), with relative positions 1 / sqrt(terms * head_dim); 1 for cosine, additive "
           "and concat scores"),
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
  v.choice("", &T::kind, "", word("none", "nothing"),
           word("zero_logit", "a logit of 0: rows may sum to less than one (off by one)"),
           word("learned_logit", "a learned logit per head (gpt-oss)"),
           body("kv_slots", &T::slots,
                "this many learned keys and values, seen by every row, without position", Range{1, 65536}));
}

template <class V>
void fields(Of<TemperatureRecipe>, V& v) {
  using T = TemperatureRecipe;
  v.about("Temperature",
          "A factor on queries that grows with their position: 1 + factor ln(1 + floor((position + first) / "
          "length)).");
  v.field("factor", &T::factor, "of the logarithm", kAnyNumber);
  v.field("length", &T::length, "positions that share a step", kCount);
  v.field("first", &T::first, "added to the position, which counts from 0 (Llama 4: 1)", kSize);
}

template <class V>
void fields(Of<GateRecipe>, V& v) {
  using T = GateRecipe;
  v.about("Gate",
          "A gate in attention: x * act(W h), h being the input of the layer's projections (for k and v of "
          "cross-attention: the memory).");
  v.field("at", &T::at,
          "on attention's result before the output projection (G1), on q (G4), k (G3), v (G2), or after the "
          "output projection (G5)");
  v.field("from", &T::from, "computed from the input, or one learned constant for all tokens");
  v.field("grain", &T::grain, "one number per channel, or per head");
  v.field("heads", &T::heads, "each head its own, or all heads the same");
  v.field("act", &T::act, "makes the gate of its logit; ns_sigmoid is 0.5 + 0.5 sigmoid");
  v.field("op", &T::op, "multiply by the gate, or add it");
}

template <class V>
void fields(Of<LatentRecipe>, V& v) {
  using T = LatentRecipe;
  v.about("Latent",
          "Keys and values of all heads made of one vector per token (MLA, DeepSeek). Its `head_dim` is that "
          "of a whole query head: channels without position first, then those that turn.");
  v.field("rank", &T::rank, "channels of the vector that keys and values are made of", kCount);
  v.field("q_rank", &T::q_rank, "channels of a vector that queries are made of; 0: of the input itself",
          kSize);
  v.field("rope_dim", &T::rope_dim, "channels of a head that turn; all heads share that part of the key",
          kSize);
  v.field("norm", &T::norm, "the norm of keys' and values' vector");
  v.field("q_norm", &T::q_norm, "the norm of queries' vector, where they have one");
}

template <class V>
void fields(Of<AttnRecipe>, V& v) {
  using T = AttnRecipe;
  v.about("Attention", "The fields of a `self` or `cross` part, beside those of every part.");
  v.field("heads", &T::heads, "query heads", kCount);
  v.field("kv_heads", &T::kv_heads, "key and value heads; 0: as many as heads (MHA); 1: MQA; between: GQA",
          kSize);
  v.field("head_dim", &T::head_dim, "channels of a query or key head; 0: width / heads", kSize);
  v.field("v_dim", &T::v_dim, "channels of a value head; 0: head_dim (latent: those that do not turn)",
          kSize);
  v.field("score", &T::score,
          "q.k; q.Wk (Luong); w.tanh(q+k) (Bahdanau; concat: Luong's); cosine of q and k; -|q-k|^2");
  v.field("normal", &T::normal, "softmax over the visible keys, or a sigmoid of each score");
  v.field("scale", &T::scale, "the factor on scores");
  v.field("bias", &T::bias,
          "biases of the projections; latent: q and k of the input's projections to the two vectors");
  v.field("latent", &T::latent, "keys and values made of one short vector per token (MLA)");
  v.field("qk_norm", &T::qk_norm, "a norm on queries and keys");
  v.field("v_norm", &T::v_norm, "a norm on each value head");
  v.field("z_norm", &T::z_norm, "a norm on each head of attention's result");
  v.field("pos", &T::pos, "positions inside attention");
  v.field(
      "mask", &T::mask,
      "which keys a row of self-attention sees: up to itself; all; all of a prefix, then up to itself; up to "
      "itself within its chunk");
  v.field("chunk", &T::chunk, "mask chunk: its length", kSize);
  v.field("window", &T::window,
          "the last so many keys only, the row itself included; with mask full: keys less than so far away, "
          "before and behind; 0: all",
          kSize);
  v.field("keep", &T::keep, "with a window: first keys of the sequence that stay visible (streaming)", kSize);
  v.field("cap", &T::cap, "scores softly limited to this: cap * tanh(score / cap); 0: not", kNotNegative);
  v.field(
      "clip", &T::clip,
      "q, k (after their norm, before RoPE) and v within plus and minus this (OLMo 1, OLMoE, MPT); 0: not",
      kNotNegative);
  v.field("temperature", &T::temperature, "a factor on queries by their position (Llama 4)");
  v.field("extra", &T::extra, "an extra logit or learned keys");
  v.field("gate", &T::gate, "gates, at most one at each place");
  v.field("attn_dropout", &T::dropout, "on attention weights", kShare);
}

// ------------------------------------------------------------------------------------------------ as a part
constexpr auto part_names(Of<AttnRecipe>) {
  return std::array{PartName{"self", "self-attention", "attention", "", "attn"},
                    PartName{"cross", "cross-attention", "cross-attention", "cross_", "attn"}};
}
inline std::size_t name_index(const AttnRecipe& a) { return a.cross ? 1 : 0; }
inline void set_name(AttnRecipe& a, std::size_t index) { a.cross = index == 1; }
// A row of it sees no later one: what stands around it may not look ahead either.
inline bool is_causal(const AttnRecipe& a) { return !a.cross && a.mask != AttnRecipe::MaskKind::full; }
inline bool reads_memory(const AttnRecipe& a) { return a.cross; }
void resolve(AttnRecipe& a, const PartPlace& place);
void draw(Drawing& d, const AttnRecipe& a, Dim width, const std::string& stream);

// The scale of scores that `auto` stands for, as 1 / sqrt(this); 0: none. Latent attention multiplies it by
// DeepSeek's factor for YaRN: (0.1 mscale_all_dim ln(factor) + 1)^2, 1 without.
Dim automatic_scale(const AttnRecipe& a);
double yarn_score_factor(const AttnRecipe& a);

// Heads and channels that a gate acts on; `width` is the model's.
struct GateShape {
  Dim heads, channels;
};
GateShape gate_shape(const AttnRecipe& a, GateRecipe::At at, Dim width);

}  // namespace rapt
