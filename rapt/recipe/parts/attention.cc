// SPDX-License-Identifier: Apache-2.0
// Rules of attention fail with the field's path and what to do instead. Then its lines in a drawing.
#include "rapt/recipe/parts/attention.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "rapt/base/checked.h"
#include "rapt/recipe/drawing.h"
#include "rapt/recipe/recipe.h"

namespace rapt {

GateShape gate_shape(const AttnRecipe& a, GateRecipe::At at, Dim width) {
  using At = GateRecipe::At;
  if (at == At::out) return {1, width};
  return {at == At::k || at == At::v ? a.kv_heads : a.heads,
          at == At::sdpa || at == At::v ? a.v_dim : a.head_dim};
}

// ------------------------------------------------------------------------------------------------ rules
namespace {

// Channels that turn.
void check_rope(const RopeSpec& r, Dim head_dim, const std::string& path) {
  using enum RopeScaling;
  const bool proportional_pairs = r.scaling == proportional;
  const double channels = r.part * static_cast<double>(head_dim);
  const Dim turned = proportional_pairs ? 2 * static_cast<Dim>(channels / 2) : static_cast<Dim>(channels);
  if (turned < 2 || turned % 2 != 0 || (proportional_pairs && head_dim % 2 != 0))
    fail(path, ": ",
         r.part == 1 ? concat("head_dim ", head_dim)
                     : concat("part ", r.part, " of head_dim ", head_dim, ", that is ", turned, " channels,"),
         " cannot be turned: RoPE turns channels in pairs; choose an even number of at least 2");
  if ((r.scaling == ntk || r.scaling == dynamic) && turned < 4)
    fail(path, ".scaling: NTK changes the base by factor^(R/(R-2)), and only R = ", turned,
         " channels turn; 4 are needed");
  if (r.scaling == yarn && !(r.theta > 1)) fail(path, ".theta: yarn needs a theta above 1, it is ", r.theta);
  if (r.scaling == yarn && r.beta_fast < r.beta_slow)
    fail(path, ".scaling.yarn: beta_fast ", r.beta_fast, " is below beta_slow ", r.beta_slow,
         "; fast channels turn more often, exchange the two");
  if (r.scaling == llama3 && !(r.high_freq > r.low_freq))
    fail(path, ".scaling.llama3: high_freq ", r.high_freq, " must be above low_freq ", r.low_freq,
         " (1 and 4 are usual)");
  if ((r.scaling == yarn || r.scaling == llama3 || r.scaling == longrope) && !(r.original > 1))
    fail(path, ".scaling: original must be above 1, is ", r.original, " (context the model was trained for)");
  if (r.scaling == longrope)
    for (const auto* list : {&r.short_factor, &r.long_factor})
      if (static_cast<Dim>(list->size()) != turned / 2)
        fail(path, ".scaling.longrope.", list == &r.short_factor ? "short_factor" : "long_factor", ": has ",
             list->size(), " entries; one per turned pair is needed: ", turned / 2);
}

void check_gates(const AttnRecipe& a, const std::string& path) {
  using At = GateRecipe::At;
  std::set<At> seen;
  for (std::size_t i = 0; i < a.gate.size(); ++i) {
    const GateRecipe& g = a.gate[i];
    const std::string at = concat(path, ".gate[", i, "]");
    const std::string place = name_text(g.at);
    if (!seen.insert(g.at).second) fail(at, ": a second gate at ", place, "; one place holds one gate");
    if (g.at == At::out && g.grain == GateGrain::head)
      fail(at,
           ".grain: after the output projection there are no heads; use grain \"element\" there, "
           "or put the gate at \"sdpa\"");
    if (g.at == At::out && g.heads == GateRecipe::Heads::shared)
      fail(at,
           ".heads: after the output projection there are no heads to share a gate; use \"own\" there, "
           "or put the gate at \"sdpa\"");
  }
}

constexpr Dim kMostLatentHeads = 4096;  // each has weights of its own
// What latent attention does not go together with. Its heads share one key and value, whose first channels
// the value is: nothing may stand between the latent and them.
void check_latent(const AttnRecipe& a, const std::string& path) {
  using At = GateRecipe::At;
  const LatentRecipe& l = *a.latent;
  const std::string at = path + ".latent";
  if (a.cross)
    fail(at,
         ": it is built for self-attention; cross-attention keeps its memory's keys once, use plain ones");
  if (a.heads > kMostLatentHeads)
    fail(path, ".heads: is ", a.heads, ", surely a mistake with latent: at most ", kMostLatentHeads);
  if (a.kv_heads != a.heads)
    fail(path,
         ".kv_heads: with latent every head has a key and value of its own, made of one vector; remove "
         "it, or use kv_heads without latent");
  if (a.score != AttnRecipe::ScoreKind::dot)
    fail(at, ": heads take their key's matrix into the query, which needs products q.k; use score dot, not ",
         name_text(a.score));
  const auto gated = [&](At where) {
    return std::any_of(a.gate.begin(), a.gate.end(), [&](const GateRecipe& g) { return g.at == where; });
  };
  const char* between = a.qk_norm                                     ? "qk_norm"
                        : a.v_norm                                    ? "v_norm"
                        : a.clip > 0                                  ? "clip"
                        : gated(At::k)                                ? "a gate on k"
                        : gated(At::v)                                ? "a gate on v"
                        : a.extra.kind == ExtraRecipe::Kind::kv_slots ? "extra kv_slots"
                        : a.pos.kind == PosRecipe::Kind::relative     ? "pos relative"
                        : a.pos.kind == PosRecipe::Kind::xl           ? "pos xl"
                                                                      : nullptr;
  if (between)
    fail(at, ": keys and values of heads are never formed, so they cannot have ", between,
         "; remove one of the two");
  if (a.pos.kind == PosRecipe::Kind::rope && (a.pos.rope.part != 1 || l.rope_dim == 0))
    fail(at, ".rope_dim: ", l.rope_dim, " channels turn, all of them: ",
         l.rope_dim == 0 ? "set it to an even number, or pos to \"none\"" : "remove part from pos.rope");
  if (a.pos.kind != PosRecipe::Kind::rope && l.rope_dim > 0)
    fail(at, ".rope_dim: channels that turn need pos rope; set it to 0, or pos to rope");
  if (a.bias.v)
    fail(path,
         ".bias.v: values are made of the latent by a matrix alone; remove it (bias.k is the latent's)");
}

void check_sizes(AttnRecipe& a, const PartPlace& place) {
  const std::string& path = place.path;
  if (a.kv_heads == 0) a.kv_heads = a.heads;
  if (a.heads % a.kv_heads != 0)
    fail(path, ".kv_heads: ", a.heads, " heads cannot share ", a.kv_heads,
         " key heads evenly; choose a divisor of ", a.heads);
  if (a.head_dim == 0) {
    if (place.recipe.width % a.heads != 0)
      fail(path, ".heads: width ", place.recipe.width, " is not divisible by ", a.heads,
           " heads; change one of them or set head_dim");
    a.head_dim = place.recipe.width / a.heads;
  }
  if (a.latent && a.head_dim <= a.latent->rope_dim)
    fail(path, ".head_dim: ", a.head_dim, " channels, of which ", a.latent->rope_dim,
         " turn (latent.rope_dim); some without position are needed besides");
  if (a.v_dim == 0) a.v_dim = a.head_dim - (a.latent ? a.latent->rope_dim : 0);
  if (checked_mul(a.heads, std::max(a.head_dim, a.v_dim), path) > static_cast<Dim>(kMostSize))
    fail(path, ": ", a.heads, " heads of ", std::max(a.head_dim, a.v_dim), " channels are more than ",
         with_commas(static_cast<Dim>(kMostSize)), " in all");
  if (!a.latent) return;
  const Dim whole = a.latent->rank + a.latent->rope_dim;
  if (checked_mul(a.heads, whole, path) > static_cast<Dim>(kMostSize))
    fail(path, ".latent: ", a.heads, " queries of ", whole, " channels are more than ",
         with_commas(static_cast<Dim>(kMostSize)), " in all");
  check_norm(a.latent->norm, path + ".latent.norm", place.decoder, true);
  check_norm(a.latent->q_norm, path + ".latent.q_norm", place.decoder, true);
  check_latent(a, path);
}

void check_scores(const AttnRecipe& a, const PartPlace& place) {
  using Score = AttnRecipe::ScoreKind;
  using Pos = PosRecipe::Kind;
  const std::string& path = place.path;
  const bool additive = a.score == Score::additive || a.score == Score::concat;
  if (additive && a.pos.kind == Pos::rope)
    fail(path,
         ".pos: RoPE works through the product of q and k, and additive scores have none; use alibi, bucket "
         "or positions in the "
         "embedding");
  if (a.score == Score::general && a.pos.kind == Pos::rope)
    fail(path,
         ".pos: with score general a matrix stands between q and k, so turned channels would no longer meet "
         "their partners; use score "
         "dot, or alibi, bucket or "
         "positions in the embedding");
  if (a.score == Score::cosine && a.qk_norm)
    fail(path, ".qk_norm: cosine scores already norm q and k; remove it, or use score dot");
  if (a.scale.kind == ScaleRecipe::Kind::learned && (additive || a.score == Score::l2))
    fail(
        path,
        ".scale.learned: it multiplies the query, which scales the score only where that is a product; use a "
        "number, or score dot, "
        "general or cosine");
  if (a.scale.kind == ScaleRecipe::Kind::learned && a.scale.max > 0 && a.scale.max < a.scale.number)
    fail(path, ".scale.learned: starts at ", a.scale.number, ", above its max ", a.scale.max);
  if (a.qk_norm) {
    const QkNormRecipe& n = *a.qk_norm;
    check_norm(n.norm, path + ".qk_norm.norm", place.decoder, true);
    if (n.span == QkNormRecipe::Span::full && n.weights == QkNormRecipe::Weights::per_head)
      fail(path,
           ".qk_norm: span full already has a weight for every channel of every head; weights per_head "
           "belongs to span head");
    if (n.weights == QkNormRecipe::Weights::per_head && n.norm.weight == NormRecipe::Gain::none)
      fail(
          path,
          ".qk_norm.weights: per_head, but the norm has no weight; give it weight \"one\" or use \"shared\"");
  }
  check_norm(a.v_norm, path + ".v_norm", place.decoder, true);
  check_norm(a.z_norm, path + ".z_norm", place.decoder, true);
  if (a.normal == Normal::sigmoid &&
      (a.extra.kind == ExtraRecipe::Kind::zero_logit || a.extra.kind == ExtraRecipe::Kind::learned_logit))
    fail(path,
         ".extra: sigmoid attention has no sum that an extra logit could join; use softmax, or extra none");
}

void check_mask(const AttnRecipe& a, const PartPlace& place) {
  using Mask = AttnRecipe::MaskKind;
  const std::string& path = place.path;
  if (a.cross && a.mask != AttnRecipe{}.mask && a.mask != Mask::full)
    fail(path, ".mask: cross-attention sees the whole memory and has no mask; remove it");
  if (a.cross && (a.window > 0 || a.keep > 0))
    fail(path, ".", a.window > 0 ? "window" : "keep",
         ": only self-attention has one; cross-attention sees the whole memory");
  if (!a.cross) {
    if (place.decoder && a.mask == Mask::full)
      fail(path,
           ".mask: a decoder writes token by token and may not see later ones; use causal, prefix or chunk, "
           "or make this stack an "
           "encoder");
    if (a.window > 0 && a.mask != Mask::causal && a.mask != Mask::full)
      fail(path, ".window: only causal and full self-attention have a window, the mask is ",
           name_text(a.mask), a.mask == Mask::chunk ? "; a chunk is its own limit" : "");
    if (a.keep > 0 && a.mask != Mask::causal)
      fail(path, ".keep: only causal self-attention keeps first keys, the mask is ", name_text(a.mask));
  }
  if (a.keep > 0 && a.window == 0)
    fail(path,
         ".keep: first keys are kept beside a window; set window, "
         "or leave keep away (without a window every key is seen)");
  if (a.keep > 0 && place.recipe.embed.pos != EmbedRecipe::Pos::none)
    fail(
        path, ".keep: with ", place.recipe.embed.pos == EmbedRecipe::Pos::learned ? "learned" : "sinusoid",
        " positions in the embedding, kept keys carry their absolute position and cannot move along with the "
        "window; use rope, alibi or "
        "bucket");
  if (a.mask == Mask::chunk && a.chunk == 0) fail(path, ".chunk: mask chunk needs the length of a chunk");
  if (a.mask != Mask::chunk && a.chunk > 0)
    fail(path, ".chunk: only mask chunk has one; set \"mask\": \"chunk\" or remove it");
}

void check_relative(const AttnRecipe& a, const std::string& path) {
  using At = GateRecipe::At;
  const RelativeRecipe& r = a.pos.relative;
  const std::string at = path + ".pos.relative";
  if (a.mask != AttnRecipe::MaskKind::full)
    fail(at, ": it is built for encoders, where rows see all keys and no cache is kept; the mask is ",
         name_text(a.mask), "; use mask full in an encoder, or rope, alibi or bucket");
  if (a.window > 0) fail(at, ": it is built without a window; remove the window, or use rope");
  if (a.score != AttnRecipe::ScoreKind::dot)
    fail(at, ": its terms are products like q.k; use score dot, not ", name_text(a.score));
  const bool gated = std::any_of(a.gate.begin(), a.gate.end(),
                                 [](const GateRecipe& g) { return g.at == At::q || g.at == At::k; });
  const char* between = a.qk_norm                                    ? "qk_norm"
                        : a.scale.kind == ScaleRecipe::Kind::learned ? "a learned scale"
                        : a.clip > 0                                 ? "clip"
                        : a.temperature                              ? "temperature"
                        : gated                                      ? "a gate on q or k"
                                                                     : nullptr;
  if (between)
    fail(at,
         ": keys and queries of distances are projections and nothing else, so those of tokens cannot have ",
         between, "; remove one of the two");
  if (a.cap > 0) fail(at, ": a cap would limit q.k and not its terms; remove cap, or use rope");
  if (!r.keys && !r.queries) fail(at, ": without keys and without queries nothing is left; use pos none");
  if (r.buckets < 2) fail(at, ".buckets: ", r.buckets, " is too few; at least 2 are needed");
  if (r.max - 1 <= r.buckets / 2)
    fail(at, ".max: ", r.max, " must lie beyond the ", r.buckets / 2,
         " distances that have a vector each; raise max or lower buckets");
  check_norm(r.norm, at + ".norm", false, true);
}

void check_xl(const AttnRecipe& a, const std::string& path, Dim width) {
  using Mask = AttnRecipe::MaskKind;
  const std::string at = path + ".pos.xl";
  if (a.mask != Mask::causal && a.mask != Mask::full)
    fail(at, ": it is built for causal and full masks, the mask is ", name_text(a.mask),
         "; use rope, alibi or bucket with it");
  if (a.keep > 0)
    fail(at, ": first keys that are kept would stand at a second distance; remove keep, or use rope");
  if (a.score != AttnRecipe::ScoreKind::dot)
    fail(at, ": its terms are products like q.k; use score dot, not ", name_text(a.score));
  const char* both = a.scale.kind == ScaleRecipe::Kind::learned ? "a learned scale"
                     : a.temperature                            ? "temperature"
                     : a.cap > 0                                ? "cap"
                                                                : nullptr;
  if (both)
    fail(at, ": ", both,
         " would act on q.k and not on what is added to it; remove one of the two, or use rope");
  if (width % 2 != 0) fail(at, ": sines and cosines come in pairs, and the model's width is ", width);
}

void check_positions(const AttnRecipe& a, const std::string& path, const Recipe& recipe) {
  using Mask = AttnRecipe::MaskKind;
  using Pos = PosRecipe::Kind;
  if (a.cross && a.pos.kind != Pos::none)
    fail(path, ".pos: rows and memory of cross-attention have no common positions; use \"none\"");
  if (a.pos.kind == Pos::relative) check_relative(a, path);
  if (a.pos.kind == Pos::xl) check_xl(a, path, recipe.width);
  if (a.pos.kind == Pos::grid &&
      (!recipe.embed.patches || a.head_dim % 4 != 0 || a.score != AttnRecipe::ScoreKind::dot))
    fail(path,
         ".pos.grid: rows and columns of patches turn quarters of a head: it needs embed.patches, score ",
         "dot and heads of a multiple of 4 channels, which have ", a.head_dim);
  if (a.cross && a.temperature)
    fail(path, ".temperature: it grows with a row's position towards its keys, and the memory has none");
  if (a.pos.kind == Pos::rope) check_rope(a.pos.rope, a.rope_channels(), path + ".pos.rope");
  if (a.pos.kind == Pos::bucket) {
    const BucketRecipe& b = a.pos.bucket;
    const bool ahead = a.mask == Mask::full || a.mask == Mask::prefix;
    if (ahead && b.count % 2 != 0)
      fail(path, ".pos.bucket.count: ", b.count,
           " is odd; rows of this mask also see later keys, which take half of the buckets");
    const Dim exact = (ahead ? b.count / 2 : b.count) / 2;  // one bucket per distance up to here
    if (exact < 1)
      fail(path, ".pos.bucket.count: ", b.count, " buckets are too few; at least ", ahead ? 4 : 2,
           " are needed");
    if (b.max <= exact)
      fail(path, ".pos.bucket.max: ", b.max, " must lie beyond the ", exact,
           " distances that have a bucket each; raise max or lower count");
  }
}

}  // namespace

void resolve(AttnRecipe& a, const PartPlace& place) {
  check_sizes(a, place);
  check_scores(a, place);
  check_mask(a, place);
  check_positions(a, place.path, place.recipe);
  check_gates(a, place.path);
}

Dim automatic_scale(const AttnRecipe& a) {
  using Kind = AttnRecipe::ScoreKind;
  if (a.score == Kind::additive || a.score == Kind::concat || a.score == Kind::cosine) return 0;
  return a.head_dim * (a.pos.kind == PosRecipe::Kind::relative ? a.pos.relative.terms() : 1);
}

double yarn_score_factor(const AttnRecipe& a) {
  const RopeSpec& r = a.pos.rope;
  if (!a.latent || a.pos.kind != PosRecipe::Kind::rope || r.scaling != RopeScaling::yarn ||
      !(r.mscale_all_dim > 0) || !(r.factor > 1))
    return 1;
  const double m = 0.1 * r.mscale_all_dim * std::log(r.factor) + 1;
  return m * m;
}

// ------------------------------------------------------------------------------------------------ drawing
namespace {

std::string scale_text(const AttnRecipe& a) {
  const double factor = yarn_score_factor(a);
  switch (a.scale.kind) {
    case ScaleRecipe::Kind::automatic:
      return automatic_scale(a) == 0
                 ? ""
                 : concat(" / √", automatic_scale(a),
                          factor == 1 ? "" : concat(" · ", shortest(std::round(1e4 * factor) / 1e4)));
    case ScaleRecipe::Kind::number: return a.scale.number == 1 ? "" : concat(" · ", shortest(a.scale.number));
    case ScaleRecipe::Kind::learned: break;
  }
  return concat(" · s", a.scale.per == ScaleRecipe::Per::head ? " per head" : "", " (learned from ",
                shortest(a.scale.number), a.scale.max > 0 ? concat(", at most ", shortest(a.scale.max)) : "",
                ")");
}

std::string score_text(const AttnRecipe& a) {
  using Score = AttnRecipe::ScoreKind;
  switch (a.score) {
    case Score::dot: return "q·k";
    case Score::general: return "q·Wk";
    case Score::additive:
    case Score::concat: return "w·tanh(q+k)";
    case Score::cosine: return "cos(q,k)";
    case Score::l2: return "-|q-k|²";
  }
  return "";
}

std::string mask_text(const AttnRecipe& a) {
  using Mask = AttnRecipe::MaskKind;
  if (a.window > 0 && a.mask == Mask::full) return concat("keys less than ", with_commas(a.window), " away");
  if (a.window > 0)
    return concat("the last ", with_commas(a.window), " keys",
                  a.keep > 0 ? concat(" and the first ", a.keep) : "");
  switch (a.mask) {
    case Mask::causal: return "causal";
    case Mask::full: return "all keys";
    case Mask::prefix: return "all of the prefix, then causal";
    case Mask::chunk: return concat("causal within chunks of ", with_commas(a.chunk));
  }
  return "";
}

std::string rope_text(const RopeSpec& r, Dim head_dim) {
  const auto theta = whole_number(r.theta);
  std::string s = concat("q, k turned: θ ", theta ? with_commas(*theta) : shortest(r.theta));
  if (r.part != 1)
    s +=
        concat(", ", static_cast<Dim>(r.part * static_cast<double>(head_dim)), " of ", head_dim, " channels");
  s += r.layout == RopeLayout::halves ? ", halves" : ", pairs";
  static constexpr const char* kScalings[] = {"",     "linear", "ntk",      "dynamic",
                                              "yarn", "llama3", "longrope", "proportional"};
  if (r.scaling != RopeScaling::none) {
    s += concat(", scaled ", kScalings[static_cast<std::size_t>(r.scaling)]);
    if (r.factor != 1) s += concat(" ×", shortest(r.factor));
    if (r.original > 0) s += concat(" from ", with_commas(saturated<Dim>(r.original)));
  }
  return s;
}

const char* sharing(const AttnRecipe& a) {
  return a.kv_heads == a.heads ? "" : a.kv_heads == 1 ? "   (MQA)" : "   (GQA)";
}

void draw_gate(Drawing& d, const AttnRecipe& a, GateRecipe::At at, Dim C, std::string_view on) {
  for (const GateRecipe& g : a.gate) {
    if (g.at != at) continue;
    const auto [heads, channels] = gate_shape(a, at, C);
    const Dim n =
        (g.heads == GateRecipe::Heads::shared ? 1 : heads) * (g.grain == GateGrain::head ? 1 : channels);
    const char* symbol = g.op == GateRecipe::Op::mul ? " ⊙ " : " + ";
    std::string what =
        concat(on, symbol, act_text(g.act, g.from == GateRecipe::From::input ? "W h" : "g"), "   ");
    if (g.from == GateRecipe::From::input) what += concat(with_commas(C), " → ");
    what += at == GateRecipe::At::out              ? with_commas(n)
            : g.grain == GateGrain::head           ? concat(with_commas(n), n == 1 ? " number" : " heads")
            : g.heads == GateRecipe::Heads::shared ? with_commas(channels)
                                                   : heads_by(heads, channels);
    if (g.heads == GateRecipe::Heads::shared) what += ", the same for all heads";
    if (g.from == GateRecipe::From::constant) what += ", learned, the same for all tokens";
    d.inside("gate", what);
  }
}

void draw_latent(Drawing& d, const AttnRecipe& a, Dim C) {
  const LatentRecipe& l = *a.latent;
  const std::string from = with_commas(C) + " → ";
  const auto with_bias = [](bool b) { return b ? " + bias" : ""; };
  const std::string turned = l.rope_dim > 0 ? concat(", of which the last ", l.rope_dim, " turn") : "";
  if (l.q_rank > 0)
    d.inside("q latent", concat(from, with_commas(l.q_rank), with_bias(a.bias.q), ", ", norm_text(l.q_norm)));
  d.inside("q", concat(l.q_rank > 0 ? with_commas(l.q_rank) + " → " : from, heads_by(a.heads, a.head_dim),
                       with_bias(a.bias.q && l.q_rank == 0), turned));
  d.inside("latent",
           concat(from, with_commas(l.rank),
                  l.rope_dim > 0 ? concat(" and ", l.rope_dim, " that turn, one key for all heads") : "",
                  with_bias(a.bias.k), "; ", norm_text(l.norm), "   (MLA)"));
  d.inside("k",
           concat(with_commas(l.rank), " → ", heads_by(a.heads, a.head_dim - l.rope_dim), ", taken into q"));
  d.inside("v", concat(with_commas(l.rank), " → ", heads_by(a.heads, a.v_dim), ", behind the weighted sum"));
}

}  // namespace

void draw(Drawing& d, const AttnRecipe& a, Dim C, const std::string& stream) {
  using At = GateRecipe::At;
  auto with_bias = [](bool b) { return b ? " + bias" : ""; };
  const std::string from = with_commas(C) + " → ";
  d.inside("from", a.cross ? concat("Q of ", stream, "; K and V of the encoder's result")
                           : concat("Q, K and V of ", stream));
  if (a.latent) draw_latent(d, a, C);
  else d.inside("q", concat(from, heads_by(a.heads, a.head_dim), with_bias(a.bias.q)));
  if (a.latent) {  // all drawn
  } else if (a.head_dim == a.v_dim && a.bias.k == a.bias.v) {
    d.inside("k, v",
             concat(from, heads_by(a.kv_heads, a.head_dim), " each", with_bias(a.bias.k), sharing(a)));
  } else {
    d.inside("k", concat(from, heads_by(a.kv_heads, a.head_dim), with_bias(a.bias.k), sharing(a)));
    d.inside("v", concat(from, heads_by(a.kv_heads, a.v_dim), with_bias(a.bias.v)));
  }
  if (a.clip > 0) d.inside("clip", concat("q, k, v within ±", shortest(a.clip)));
  draw_gate(d, a, At::q, C, "q");
  draw_gate(d, a, At::k, C, "k");
  draw_gate(d, a, At::v, C, "v");
  auto qk_norm = [&](QkNormRecipe::At at) {
    if (!a.qk_norm || a.qk_norm->at != at) return;
    const bool full = a.qk_norm->span == QkNormRecipe::Span::full;
    d.inside("qk_norm",
             concat(norm_text(a.qk_norm->norm), full ? ", over the whole projection" : ", over each head",
                    a.qk_norm->weights == QkNormRecipe::Weights::per_head ? ", a weight per head" : ""));
  };
  qk_norm(QkNormRecipe::At::before_pos);
  if (a.v_norm) d.inside("v_norm", concat(norm_text(*a.v_norm), ", over each head"));
  if (a.pos.kind == PosRecipe::Kind::rope) d.inside("rope", rope_text(a.pos.rope, a.rope_channels()));
  if (a.pos.kind == PosRecipe::Kind::grid)
    d.inside("rope", concat("by a patch's row and column, theta ", shortest(a.pos.grid_theta)));
  qk_norm(QkNormRecipe::At::after_pos);

  const bool relative = a.pos.kind == PosRecipe::Kind::relative;
  if (relative) {
    const RelativeRecipe& r = a.pos.relative;
    d.inside("distances",
             concat("vectors of ", with_commas(r.buckets), " to each side, up to ", with_commas(r.max),
                    " tokens away, one table for all layers",
                    r.norm ? concat(", normed: ", norm_text(*r.norm)) : "", "; ", r.keys ? "keys K" : "",
                    r.keys && r.queries ? " and " : "", r.queries ? "queries Q" : "", " of it"));
  }
  std::string score = score_text(a);
  if (relative)
    score =
        concat("(", score, a.pos.relative.keys ? " + q·K" : "", a.pos.relative.queries ? " + k·Q" : "", ")");
  if (a.pos.kind == PosRecipe::Kind::xl) {
    d.inside("distances", concat("W r: ", with_commas(C), " → ", heads_by(a.kv_heads, a.head_dim),
                                 ", r the sinusoids of the distance; u, v: ", heads_by(a.heads, a.head_dim)));
    score = "((q + u)·k + (q + v)·W r)";
  }
  score += scale_text(a);
  if (a.cap > 0) score = concat("cap ", shortest(a.cap), " (", score, ")");
  if (a.pos.kind == PosRecipe::Kind::alibi) score += " − slope · distance";
  if (a.temperature)
    score = concat("(1 + ", shortest(a.temperature->factor), " ln(1 + ⌊position / ",
                   with_commas(a.temperature->length), "⌋)) ", score);
  if (a.pos.kind == PosRecipe::Kind::bucket)
    score += concat(" + bias of ", a.pos.bucket.count, " distances up to ", a.pos.bucket.max,
                    a.pos.bucket.shared ? ", one table for all layers" : "");
  d.inside("weights", concat(name_text(a.normal), "(", score, ")"));
  d.inside("sees", a.cross ? "all of the encoder's result" : mask_text(a));
  if (a.extra.kind == ExtraRecipe::Kind::zero_logit) d.inside("extra", "a logit of 0 in the softmax");
  if (a.extra.kind == ExtraRecipe::Kind::learned_logit)
    d.inside("extra", "a learned logit per head in the softmax");
  if (a.extra.kind == ExtraRecipe::Kind::kv_slots)
    d.inside("extra", concat(a.extra.slots, " learned keys and values"));
  if (a.dropout > 0) d.inside("dropout", concat(shortest(a.dropout), " on weights"));
  draw_gate(d, a, At::sdpa, C, "z");
  if (a.z_norm) d.inside("z_norm", concat(norm_text(*a.z_norm), ", over each head"));
  d.inside("out", concat(heads_by(a.heads, a.v_dim), " → ", with_commas(C), with_bias(a.bias.o)));
  draw_gate(d, a, At::out, C, "out");
}

}  // namespace rapt
