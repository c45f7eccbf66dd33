// SPDX-License-Identifier: Apache-2.0
// What a recipe may be: ranges of its fields (a visitor over recipe_fields.h) and the rules between them.
#include <algorithm>
#include <cmath>
#include <set>

#include "rapt/base/checked.h"
#include "rapt/base/json.h"
#include "rapt/base/text.h"
#include "rapt/recipe/recipe_fields.h"
#include "rapt/recipe/recurrent_recipe.h"
#include "rapt/recipe/show.h"

namespace rapt {
namespace {

// ------------------------------------------------------------------------------------------------ ranges of a recipe made in C++
template <class T>
class Checker;

void check(bool, const std::string&, const Range&, std::string_view) {}
void check(const std::string&, const std::string&, const Range&, std::string_view) {}
void check(double v, const std::string& path, const Range& range, std::string_view meaning) {
  if (const std::string why = breaks(range, v); !why.empty()) fail(path, ": ", why, ", is ", v, " (", meaning, ")");
}
void check(Dim v, const std::string& path, const Range& range, std::string_view meaning) {
  check(static_cast<double>(v), path, range, meaning);
}
template <Enum E>
void check(E v, const std::string& path, const Range&, std::string_view) {
  if (static_cast<std::size_t>(v) >= names_of(E{}).size()) fail(path, ": a recipe cannot have this value; ", name_hint("", names<E>()));
}
template <class T>
  requires std::is_class_v<T>
void check(const T& v, const std::string& path, const Range& = {}, std::string_view = {}) {
  Checker<T> checker{v, path};
  fields(Of<T>{}, checker);
}
template <class T>
void check(const std::optional<T>& v, const std::string& path, const Range& range, std::string_view meaning) {
  if (v) check(*v, path, range, meaning);
}
template <class T>
void check(const std::vector<T>& v, const std::string& path, const Range& range, std::string_view meaning) {
  for (std::size_t i = 0; i < v.size(); ++i) check(v[i], concat(path, "[", i, "]"), range, meaning);
}
std::string part_path(const std::string& parts, std::size_t i, const PartRecipe& p) {
  return concat(parts, "[", i, "].", names_of(p.kind)[static_cast<std::size_t>(p.kind)]);
}
void check(const std::vector<PartRecipe>& v, const std::string& path, const Range&, std::string_view) {
  for (std::size_t i = 0; i < v.size(); ++i) {
    check(v[i].kind, path, {}, {});
    const std::string at = part_path(path, i, v[i]);
    check(v[i], at);
    if (v[i].kind == PartRecipe::Kind::ffn) check(v[i].ffn, at);
    else check(v[i].attn, at);
  }
}
void check(const std::map<std::string, LayerRecipe>& v, const std::string& path, const Range&, std::string_view) {
  for (const auto& [name, layer] : v) check(layer, under(path, name));
}

template <class T>
class Checker {
 public:
  Checker(const T& in, const std::string& path) : in_(in), path_(path) {}
  void about(std::string_view, std::string_view) {}
  template <class M>
  void field(std::string_view name, M T::* member, std::string_view meaning, Range range = {}) {
    check(in_.*member, under(path_, name), range, meaning);
  }
  template <class E, class... Options>
  void choice(std::string_view name, E T::* kind, std::string_view, const Options&... options) {
    const std::string path = name.empty() ? path_ : under(path_, name);
    const auto chosen = static_cast<std::size_t>(in_.*kind);
    if (chosen >= sizeof...(options)) fail(path, ": a recipe cannot have this value");
    std::size_t i = 0;
    ((i++ == chosen ? option(options, path) : void()), ...);
  }

 private:
  void option(const Word&, const std::string&) {}
  template <class M>
  void option(const Bare<T, M>& o, const std::string& path) {
    check(in_.*(o.member), path, o.range, o.meaning);
  }
  template <class M>
  void option(const Body<T, M>& o, const std::string& path) {
    check(in_.*(o.member), under(path, o.name), o.range, o.meaning);
  }
  template <class F>
  void option(const Group<F>& o, const std::string& path) {
    Checker checker(in_, under(path, o.name));
    o.fields(checker);
  }
  const T& in_;
  const std::string path_;
};
// ------------------------------------------------------------------------------------------------ rules between fields

using Kind = NormRecipe::Kind;

struct Rules {
  Recipe& recipe;
  const bool both;  // encoder and decoder

  void norm(const NormRecipe& n, const std::string& path, bool causal, bool batch_possible = true) const {
    if (n.kind == Kind::batch && !batch_possible)
      fail(path, ": batch norm takes statistics over tokens, and this norm works inside one token's heads; choose layer, rms or l2");
    if (n.kind == Kind::batch && causal && !n.leaks_ok)
      fail(path,
           ": batch norm in a causal stack lets training look at later tokens; choose another norm, or say \"leaks_ok\": true if that is "
           "meant");
    if (n.leaks_ok && n.kind != Kind::batch) fail(path, ".leaks_ok: only batch norm can leak; remove it");
    if (n.kind == Kind::l2 && n.weight == NormRecipe::Gain::plus_one)
      fail(path, ": l2 with weight plus_one exists in no model and is not built; use weight \"one\"");
    if (n.kind == Kind::batch && n.weight == NormRecipe::Gain::plus_one)
      fail(path, ": batch norm with weight plus_one exists in no model and is not built; use weight \"one\"");
    if (n.kind == Kind::l2 && n.bias)
      fail(path, ".bias: l2 gives a direction of length one and has no bias; use layer or rms, or remove it");
    if (n.bias && n.weight == NormRecipe::Gain::none)
      fail(path, ".bias: a bias without a weight beside it is not built; use weight \"one\" or no bias");
  }
  void norm(const std::optional<NormRecipe>& n, const std::string& path, bool causal, bool batch_possible = true) const {
    if (n) norm(*n, path, causal, batch_possible);
  }

  // Channels that turn.
  void rope(const RopeSpec& r, Dim head_dim, const std::string& path) const {
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
      fail(path, ".scaling: NTK changes the base by factor^(R/(R-2)), and only R = ", turned, " channels turn; 4 are needed");
    if (r.scaling == yarn && !(r.theta > 1)) fail(path, ".theta: yarn needs a theta above 1, it is ", r.theta);
    if (r.scaling == yarn && r.beta_fast < r.beta_slow)
      fail(path, ".scaling.yarn: beta_fast ", r.beta_fast, " is below beta_slow ", r.beta_slow,
           "; fast channels turn more often, exchange the two");
    if (r.scaling == llama3 && !(r.high_freq > r.low_freq))
      fail(path, ".scaling.llama3: high_freq ", r.high_freq, " must be above low_freq ", r.low_freq, " (1 and 4 are usual)");
    if ((r.scaling == yarn || r.scaling == llama3 || r.scaling == longrope) && !(r.original > 1))
      fail(path, ".scaling: original must be above 1, is ", r.original, " (context the model was trained for)");
    if (r.scaling == longrope)
      for (const auto* list : {&r.short_factor, &r.long_factor})
        if (static_cast<Dim>(list->size()) != turned / 2)
          fail(path, ".scaling.longrope.", list == &r.short_factor ? "short_factor" : "long_factor", ": has ", list->size(),
               " entries; one per turned pair is needed: ", turned / 2);
  }

  void gates(const AttnRecipe& a, const std::string& path) const {
    using At = GateRecipe::At;
    std::set<At> seen;
    for (std::size_t i = 0; i < a.gate.size(); ++i) {
      const GateRecipe& g = a.gate[i];
      const std::string at = concat(path, ".gate[", i, "]");
      const auto place = names_of(g.at)[static_cast<std::size_t>(g.at)];
      if (!seen.insert(g.at).second) fail(at, ": a second gate at ", place, "; one place holds one gate");
      if (g.at == At::out && g.grain == GateGrain::head)
        fail(at, ".grain: after the output projection there are no heads; use grain \"element\" there, or put the gate at \"sdpa\"");
      if (g.at == At::out && g.heads == GateRecipe::Heads::shared)
        fail(at, ".heads: after the output projection there are no heads to share a gate; use \"own\" there, or put the gate at \"sdpa\"");
    }
  }

  void attention(PartRecipe& part, const std::string& path, bool decoder) const {
    AttnRecipe& a = part.attn;
    using Score = AttnRecipe::ScoreKind;
    using Mask = AttnRecipe::MaskKind;
    using Pos = PosRecipe::Kind;
    const bool cross = part.kind == PartRecipe::Kind::cross;
    const bool additive = a.score == Score::additive || a.score == Score::concat;

    // Sizes.
    if (a.kv_heads == 0) a.kv_heads = a.heads;
    if (a.heads % a.kv_heads != 0)
      fail(path, ".kv_heads: ", a.heads, " heads cannot share ", a.kv_heads, " key heads evenly; choose a divisor of ", a.heads);
    if (a.head_dim == 0) {
      if (recipe.width % a.heads != 0)
        fail(path, ".heads: width ", recipe.width, " is not divisible by ", a.heads, " heads; change one of them or set head_dim");
      a.head_dim = recipe.width / a.heads;
    }
    if (a.v_dim == 0) a.v_dim = a.head_dim;
    if (checked_mul(a.heads, std::max(a.head_dim, a.v_dim), path) > static_cast<Dim>(kMostSize))
      fail(path, ": ", a.heads, " heads of ", std::max(a.head_dim, a.v_dim), " channels are more than ",
           with_commas(static_cast<Dim>(kMostSize)), " in all");

    // Scores.
    if (additive && a.pos.kind == Pos::rope)
      fail(path,
           ".pos: RoPE works through the product of q and k, and additive scores have none; use alibi, bucket or positions in the "
           "embedding");
    if (a.score == Score::general && a.pos.kind == Pos::rope)
      fail(path,
           ".pos: with score general a matrix stands between q and k, so turned channels would no longer meet their partners; use score "
           "dot, or alibi, bucket or "
           "positions in the embedding");
    if (a.score == Score::cosine && a.qk_norm) fail(path, ".qk_norm: cosine scores already norm q and k; remove it, or use score dot");
    if (a.scale.kind == ScaleRecipe::Kind::learned && (additive || a.score == Score::l2))
      fail(path,
           ".scale.learned: it multiplies the query, which scales the score only where that is a product; use a number, or score dot, "
           "general or cosine");
    if (a.scale.kind == ScaleRecipe::Kind::learned && a.scale.max > 0 && a.scale.max < a.scale.number)
      fail(path, ".scale.learned: starts at ", a.scale.number, ", above its max ", a.scale.max);
    if (a.qk_norm) {
      const QkNormRecipe& n = *a.qk_norm;
      norm(n.norm, path + ".qk_norm.norm", decoder, false);
      if (n.span == QkNormRecipe::Span::full && n.weights == QkNormRecipe::Weights::per_head)
        fail(path, ".qk_norm: span full already has a weight for every channel of every head; weights per_head belongs to span head");
      if (n.weights == QkNormRecipe::Weights::per_head && n.norm.weight == NormRecipe::Gain::none)
        fail(path, ".qk_norm.weights: per_head, but the norm has no weight; give it weight \"one\" or use \"shared\"");
    }
    norm(a.v_norm, path + ".v_norm", decoder, false);
    norm(a.z_norm, path + ".z_norm", decoder, false);
    if (a.normal == Normal::sigmoid && (a.extra.kind == ExtraRecipe::Kind::zero_logit || a.extra.kind == ExtraRecipe::Kind::learned_logit))
      fail(path, ".extra: sigmoid attention has no sum that an extra logit could join; use softmax, or extra none");

    // Which keys.
    if (cross && a.mask != AttnRecipe{}.mask && a.mask != Mask::full)
      fail(path, ".mask: cross-attention sees the whole memory and has no mask; remove it");
    if (cross && (a.window > 0 || a.keep > 0))
      fail(path, ".", a.window > 0 ? "window" : "keep", ": only causal self-attention has one; cross-attention sees the whole memory");
    if (!cross) {
      if (decoder && a.mask == Mask::full)
        fail(path,
             ".mask: a decoder writes token by token and may not see later ones; use causal, prefix or chunk, or make this stack an "
             "encoder");
      if (a.window > 0 && a.mask != Mask::causal)
        fail(path, ".window: only causal self-attention has a window of last keys, the mask is ",
             names_of(a.mask)[static_cast<std::size_t>(a.mask)], a.mask == Mask::chunk ? "; a chunk is its own limit" : "");
      if (a.keep > 0 && a.mask != Mask::causal)
        fail(path, ".keep: only causal self-attention keeps first keys, the mask is ", names_of(a.mask)[static_cast<std::size_t>(a.mask)]);
    }
    if (a.keep > 0 && a.window == 0)
      fail(path, ".keep: first keys are kept beside a window; set window, or leave keep away (without a window every key is seen)");
    if (a.keep > 0 && recipe.embed.pos != EmbedRecipe::Pos::none)
      fail(path, ".keep: with ", recipe.embed.pos == EmbedRecipe::Pos::learned ? "learned" : "sinusoid",
           " positions in the embedding, kept keys carry their absolute position and cannot move along with the window; use rope, alibi or "
           "bucket");
    if (a.mask == Mask::chunk && a.chunk == 0) fail(path, ".chunk: mask chunk needs the length of a chunk");
    if (a.mask != Mask::chunk && a.chunk > 0) fail(path, ".chunk: only mask chunk has one; set \"mask\": \"chunk\" or remove it");

    // Positions.
    if (cross && a.pos.kind != Pos::none) fail(path, ".pos: rows and memory of cross-attention have no common positions; use \"none\"");
    if (a.pos.kind == Pos::rope) rope(a.pos.rope, a.head_dim, path + ".pos.rope");
    if (a.pos.kind == Pos::bucket) {
      const BucketRecipe& b = a.pos.bucket;
      const bool ahead = a.mask == Mask::full || a.mask == Mask::prefix;
      if (ahead && b.count % 2 != 0)
        fail(path, ".pos.bucket.count: ", b.count, " is odd; rows of this mask also see later keys, which take half of the buckets");
      const Dim exact = (ahead ? b.count / 2 : b.count) / 2;  // one bucket per distance up to here
      if (exact < 1) fail(path, ".pos.bucket.count: ", b.count, " buckets are too few; at least ", ahead ? 4 : 2, " are needed");
      if (b.max <= exact)
        fail(path, ".pos.bucket.max: ", b.max, " must lie beyond the ", exact,
             " distances that have a bucket each; raise max or lower count");
    }
    gates(a, path);
  }

  void ffn(FfnRecipe& f, const std::string& path) const {
    if (f.width == 0) f.width = checked_mul(4, recipe.width, path);
    if (f.kind == FfnRecipe::Kind::mlp && (f.clamp != 0 || f.alpha != 1 || f.up_offset != 0))
      fail(path, ": clamp, alpha and up_offset belong to kind glu; remove them or change kind");
    if (f.kind == FfnRecipe::Kind::glu && (f.act == Act::ns_sigmoid || f.act == Act::softplus))
      fail(path, ".act: glu with ", names_of(f.act)[static_cast<std::size_t>(f.act)],
           " exists in no model and is not built; use relu, relu2, gelu, gelu_tanh, silu, quick_gelu, sigmoid or tanh");
    if (f.alpha != 1 && f.act != Act::silu)
      fail(path, ".alpha: the slope inside silu; act is ", names_of(f.act)[static_cast<std::size_t>(f.act)]);
  }

  void layer(LayerRecipe& l, const std::string& path, bool decoder) const {
    using PartKind = PartRecipe::Kind;
    if (l.parts.empty()) fail(path, ".parts: a layer needs at least one part, {\"self\": {…}} or {\"ffn\": {…}}");
    bool causal = decoder;
    for (const PartRecipe& p : l.parts) causal = causal || (p.kind == PartKind::self && p.attn.mask != AttnRecipe::MaskKind::full);
    if (l.norm_in && !l.parallel) fail(path, ".norm_in: belongs to parallel layers; elsewhere norms stand on the parts");
    norm(l.norm_in, path + ".norm_in", causal);
    for (std::size_t i = 0; i < l.parts.size(); ++i) {
      PartRecipe& p = l.parts[i];
      const std::string at = part_path(path + ".parts", i, p);
      if (p.kind == PartKind::cross && !decoder) fail(at, ": an encoder has no memory to look at; cross parts belong to a decoder");
      if (p.kind == PartKind::cross && !both) fail(at, ": there is no encoder whose result could be looked at; add one or remove the part");
      if (l.parallel && l.norm_in && p.norm_in) fail(at, ".norm_in: the layer has a norm_in for all parts already; keep one of the two");
      if (l.parallel && p.norm_sum)
        fail(at, ".norm_sum: parts of a parallel layer are added together, so there is no sum after one of them; use norm_in or norm_out");
      norm(p.norm_in, at + ".norm_in", causal);
      norm(p.norm_out, at + ".norm_out", causal);
      norm(p.norm_sum, at + ".norm_sum", causal);
      if (p.kind == PartKind::ffn) ffn(p.ffn, at);
      else attention(p, at, decoder);
    }
  }

  void stack(StackRecipe& s, const std::string& path, bool decoder) const {
    if (s.recurrent) return resolve_recurrent(recipe, s, path, decoder);
    if (s.pattern.empty()) fail(path, ".pattern: is empty; name a kind for at least one layer, as in \"L\"");
    if (static_cast<Dim>(s.pattern.size()) > s.layers)
      fail(path, ".pattern: \"", s.pattern, "\" has ", s.pattern.size(), " letters for ", s.layers, " layers; shorten it or add layers");
    for (const auto& [name, l] : s.kinds) {
      const bool letter = name.size() == 1 && ((name[0] >= 'A' && name[0] <= 'Z') || (name[0] >= 'a' && name[0] <= 'z'));
      if (!letter) fail(path, ".kinds: '", name, "' is no letter; a kind is named by one letter, which `pattern` repeats");
      if (s.pattern.find(name[0]) == std::string::npos)
        fail(path, ".kinds.", name, ": the pattern \"", s.pattern,
             "\" never uses it; remove it (null on top of a preset) or put it into the pattern");
    }
    bool causal = decoder, has_cross = false;
    for (const char c : s.pattern) {
      const auto it = s.kinds.find(std::string(1, c));
      if (it == s.kinds.end())
        fail(path, ".pattern: names '", c, "', but kinds has no such layer; add kinds.", c, " or change the pattern");
      for (const PartRecipe& p : it->second.parts) {
        has_cross = has_cross || p.kind == PartRecipe::Kind::cross;
        causal = causal || (p.kind == PartRecipe::Kind::self && p.attn.mask != AttnRecipe::MaskKind::full);
      }
    }
    if (decoder && both && !has_cross)
      fail(path, ": no layer has a cross part, so nothing would read the encoder; add {\"cross\": {…}} or remove the encoder");
    norm(s.final_norm, path + ".final_norm", causal);
    const PartRecipe* shared = nullptr;
    for (auto& [name, l] : s.kinds) layer(l, concat(path, ".kinds.", name), decoder);
    for (auto& [name, l] : s.kinds)
      for (std::size_t i = 0; i < l.parts.size(); ++i) {
        const PartRecipe& p = l.parts[i];
        if (p.kind != PartRecipe::Kind::self || p.attn.pos.kind != PosRecipe::Kind::bucket || !p.attn.pos.bucket.shared) continue;
        if (!shared) shared = &p;
        if (p.attn.heads != shared->attn.heads || !(p.attn.pos.bucket == shared->attn.pos.bucket))
          fail(part_path(concat(path, ".kinds.", name, ".parts"), i, p),
               ".pos.bucket: layers share one table, so heads, count and max must agree; set shared to false");
      }
  }

  void whole() const {
    const HeadRecipe& h = recipe.head;
    const EmbedRecipe& e = recipe.embed;
    if (!recipe.encoder && !recipe.decoder) fail("a model needs an encoder, a decoder or both; this recipe has neither");
    if (recipe.vocab == 0 && h.kind == HeadRecipe::Kind::vocab)
      fail("vocab: is 0, but the head gives logits over a vocabulary; set vocab, or head.kind \"none\"");
    if (recipe.vocab == 0 && e.sink_tokens > 0) fail("embed.sink_tokens: they stand beside tokens, and vocab is 0");
    if (e.scale_sqrt_width && e.scale != 1) fail("embed.scale: sqrt(width) and the number ", e.scale, " together; choose one");
    if (e.pos == EmbedRecipe::Pos::sinusoid) {
      if (recipe.width % 2 != 0) fail("embed.pos.sinusoid: sines and cosines come in pairs, width ", recipe.width, " is odd");
      if (e.table == SinusoidTable::marian && recipe.width < 4)
        fail("embed.pos.sinusoid.table: marian's frequencies need a width of at least 4, it is ", recipe.width);
    }
    const bool classes = h.kind == HeadRecipe::Kind::classes;
    if (classes && h.classes < 2)
      fail("head.classes: is ", h.classes, "; a classifier chooses between at least 2, or use kind \"vocab\" or \"none\"");
    if (classes && h.tied)
      fail("head.tied: the table of token vectors has a row per token, not per class; remove it, or use kind \"vocab\"");
    if (!classes && (h.classes != 0 || h.pool != HeadRecipe::Pool::first))
      fail("head.", h.classes != 0 ? "classes" : "pool", ": belongs to a head of kind \"classes\"; remove it, or set that kind");
    if (h.kind == HeadRecipe::Kind::none && (h.tied || h.bias || h.scale != 1 || h.cap != 0 || h.transform))
      fail("head.",
           h.tied         ? "tied"
           : h.bias       ? "bias"
           : h.scale != 1 ? "scale"
           : h.cap != 0   ? "cap"
                          : "transform",
           ": a head of kind none has no output matrix; remove it, or use kind \"vocab\"");
    bool causal = recipe.decoder.has_value();
    if (recipe.encoder) stack(*recipe.encoder, "encoder", false);
    if (recipe.decoder) stack(*recipe.decoder, "decoder", true);
    if (recipe.encoder)
      for (const auto& [name, l] : recipe.encoder->kinds)
        for (const PartRecipe& p : l.parts)
          causal = causal || (p.kind == PartRecipe::Kind::self && p.attn.mask != AttnRecipe::MaskKind::full);
    norm(e.norm, "embed.norm", causal);
    if (h.transform) norm(h.transform->norm, "head.transform.norm", causal);
    constexpr Dim kMostParameters = Dim{1} << 40;
    const Dim n = count_parameters(recipe).total;
    if (n > kMostParameters)
      fail("the model would have ", short_count(static_cast<double>(n)), " parameters; more than ",
           short_count(static_cast<double>(kMostParameters)), " are surely a mistake: check width, vocab, layers and heads");
  }
};

}  // namespace

Recipe resolve(Recipe recipe) {
  try {
    check(recipe, "");
    Rules{recipe, recipe.encoder && recipe.decoder}.whole();
  } catch (const Error& e) {
    throw Error(concat("recipe ", json_quote(recipe.name), ": ", e.what()), e.kind());
  }
  return recipe;
}

}  // namespace rapt
