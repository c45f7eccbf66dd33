// SPDX-License-Identifier: Apache-2.0
#include "tests/grid.h"

#include <functional>
#include <optional>
#include <set>

#include "rapt/base/rng.h"
#include "tests/build_kind.h"

namespace rapt::test {
namespace {

using ScoreKind = AttnRecipe::ScoreKind;
using MaskKind = AttnRecipe::MaskKind;
using Gain = NormRecipe::Gain;
using NormKindR = NormRecipe::Kind;

// A recipe in the making. Options write into it; build() puts the parts together.
struct Draft {
  int stacks = 0;  // 0 decoder, 1 encoder, 2 both
  AttnRecipe attn;
  NormRecipe norm;
  int wiring = 0;  // pre, post, sandwich, out, parallel with one norm, parallel with two
  FfnRecipe ffn{.width = 20};
  std::optional<MoeRecipe> moe;  // instead of ffn, with the fields of its net
  std::optional<AnyPartRecipe> mixer;  // layers with this instead of self-attention, beside the others
  bool pattern = false;
  double dropout = 0, residual_scale = 1, layer_scale = 0;
  Dim groups = 0;
  Recipe recipe;
};

struct Option {
  const char* name;
  std::function<void(Draft&)> apply;
};
struct Axis {
  const char* name;
  std::vector<Option> options;
};

QkNormRecipe qk(NormKindR kind, Gain gain, QkNormRecipe::Span span, QkNormRecipe::Weights weights,
                QkNormRecipe::At at) {
  return {.norm = {.kind = kind, .weight = gain}, .span = span, .weights = weights, .at = at};
}

RopeSpec rope(RopeLayout layout, double part, RopeScaling scaling) {
  RopeSpec r{.theta = 100, .part = part, .layout = layout, .scaling = scaling};
  if (scaling != RopeScaling::none) r.factor = 2, r.original = 4, r.max_context = 8;
  return r;
}

const std::vector<Axis>& axes() {
  using At = GateRecipe::At;
  using From = GateRecipe::From;
  using Heads = GateRecipe::Heads;
  using Op = GateRecipe::Op;
  using Span = QkNormRecipe::Span;
  using Weights = QkNormRecipe::Weights;
  using When = QkNormRecipe::At;
  static const auto gate = [](GateRecipe g) { return [g](Draft& d) { d.attn.gate.push_back(g); }; };
  static const auto pos = [](RopeSpec r) {
    return [r](Draft& d) { d.attn.pos = {.kind = PosRecipe::Kind::rope, .rope = r}; };
  };
  static const auto experts = [](Dim all, Dim used, RouterRecipe router,
                                 std::optional<SharedExpertRecipe> shared) {
    return [=](Draft& d) {
      d.moe = MoeRecipe{.experts = all, .used = used, .router = router, .shared = shared};
    };
  };
  static const auto none = [](Draft&) {};
  static const std::vector<Axis> all = {
      {"stack",
       {{"decoder", none},
        {"encoder", [](Draft& d) { d.stacks = 1; }},
        {"both", [](Draft& d) { d.stacks = 2; }}}},
      {"latent",
       {{"none", none},
        {"keys", [](Draft& d) { d.attn.latent = LatentRecipe{.rank = 5}; }},
        {"keys and queries",
         [](Draft& d) {
           d.attn.latent = LatentRecipe{.rank = 7, .q_rank = 6, .norm = {.kind = NormKindR::layer}};
         }}}},
      {"score",
       {{"dot", none},
        {"general", [](Draft& d) { d.attn.score = ScoreKind::general; }},
        {"additive", [](Draft& d) { d.attn.score = ScoreKind::additive; }},
        {"concat", [](Draft& d) { d.attn.score = ScoreKind::concat; }},
        {"cosine", [](Draft& d) { d.attn.score = ScoreKind::cosine; }},
        {"l2", [](Draft& d) { d.attn.score = ScoreKind::l2; }}}},
      {"normal", {{"softmax", none}, {"sigmoid", [](Draft& d) { d.attn.normal = Normal::sigmoid; }}}},
      {"scale",
       {{"auto", none},
        {"0.5", [](Draft& d) { d.attn.scale = {.kind = ScaleRecipe::Kind::number, .number = 0.5}; }},
        {"learned", [](Draft& d) { d.attn.scale = {.kind = ScaleRecipe::Kind::learned, .number = 0.7}; }},
        {"learned per head",
         [](Draft& d) {
           d.attn.scale = {.kind = ScaleRecipe::Kind::learned, .number = 1.5, .per = ScaleRecipe::Per::head,
               .max = 3};
         }}}},
      {"heads",
       {{"4/4", none},
        {"4/2", [](Draft& d) { d.attn.kv_heads = 2; }},
        {"4/1", [](Draft& d) { d.attn.kv_heads = 1; }}}},
      {"size",
       {{"D 4", none},
        {"D 6", [](Draft& d) { d.attn.head_dim = 6; }},
        {"D 6 Dv 3", [](Draft& d) { d.attn.head_dim = 6, d.attn.v_dim = 3; }}}},
      {"bias",
       {{"none", none},
        {"qkv", [](Draft& d) { d.attn.bias = {true, true, true, false}; }},
        {"all", [](Draft& d) { d.attn.bias = {true, true, true, true}; }},
        {"o", [](Draft& d) { d.attn.bias.o = true; }}}},
      {"qk_norm",
       {{"none", none},
        {"rms",
         [](Draft& d) {
           d.attn.qk_norm = qk(NormKindR::rms, Gain::one, Span::head, Weights::shared, When::before_pos);
         }},
        {"rms plus one",
         [](Draft& d) {
           d.attn.qk_norm = qk(NormKindR::rms, Gain::plus_one, Span::head, Weights::shared, When::before_pos);
         }},
        {"layer per head",
         [](Draft& d) {
           d.attn.qk_norm = qk(NormKindR::layer, Gain::one, Span::head, Weights::per_head, When::before_pos);
         }},
        {"l2",
         [](Draft& d) {
           d.attn.qk_norm = qk(NormKindR::l2, Gain::none, Span::head, Weights::shared, When::before_pos);
         }},
        {"rms full",
         [](Draft& d) {
           d.attn.qk_norm = qk(NormKindR::rms, Gain::one, Span::full, Weights::shared, When::before_pos);
         }},
        {"rms after pos",
         [](Draft& d) {
           d.attn.qk_norm = qk(NormKindR::rms, Gain::none, Span::head, Weights::shared, When::after_pos);
         }}}},
      {"v_norm",
       {{"none", none}, {"rms", [](Draft& d) { d.attn.v_norm = NormRecipe{.weight = Gain::none}; }}}},
      {"z_norm", {{"none", none}, {"rms", [](Draft& d) { d.attn.z_norm = NormRecipe{}; }}}},
      {"pos",
       {{"none", none},
        {"rope", pos(rope(RopeLayout::halves, 1, RopeScaling::none))},
        {"rope pairs half", pos(rope(RopeLayout::pairs, 0.5, RopeScaling::none))},
        {"rope linear", pos(rope(RopeLayout::halves, 1, RopeScaling::linear))},
        {"rope yarn", pos(rope(RopeLayout::pairs, 1, RopeScaling::yarn))},
        {"rope llama3", pos(rope(RopeLayout::halves, 1, RopeScaling::llama3))},
        {"rope ntk", pos(rope(RopeLayout::halves, 1, RopeScaling::ntk))},
        {"alibi", [](Draft& d) { d.attn.pos.kind = PosRecipe::Kind::alibi; }},
        {"alibi steep",
         [](Draft& d) {
           d.attn.pos = {.kind = PosRecipe::Kind::alibi, .alibi_max = 4, .alibi_factor = 0.7};
         }},
        {"bucket",
         [](Draft& d) {
           d.attn.pos = {.kind = PosRecipe::Kind::bucket, .bucket = {.count = 8, .max = 12, .shared = true}};
         }},
        {"bucket per layer",
         [](Draft& d) {
           d.attn.pos = {.kind = PosRecipe::Kind::bucket, .bucket = {.count = 8, .max = 12, .shared = false}};
         }},
        {"relative",
         [](Draft& d) {
           d.attn.pos = {.kind = PosRecipe::Kind::relative,
                         .relative = {.buckets = 4, .max = 9, .norm = NormRecipe{.kind = NormKindR::layer}}};
         }},
        {"relative keys",
         [](Draft& d) {
           d.attn.pos = {.kind = PosRecipe::Kind::relative,
                         .relative = {.buckets = 2, .max = 5, .queries = false}};
         }},
        {"xl", [](Draft& d) { d.attn.pos.kind = PosRecipe::Kind::xl; }}}},
      {"absolute",
       {{"none", none},
        {"learned", [](Draft& d) { d.recipe.embed.pos = EmbedRecipe::Pos::learned; }},
        {"sinusoid", [](Draft& d) { d.recipe.embed.pos = EmbedRecipe::Pos::sinusoid; }},
        {"sinusoid halves marian",
         [](Draft& d) {
           d.recipe.embed.pos = EmbedRecipe::Pos::sinusoid, d.recipe.embed.layout = SinusoidLayout::halves,
           d.recipe.embed.table = SinusoidTable::marian;
         }},
        {"sinusoid from 2",
         [](Draft& d) { d.recipe.embed.pos = EmbedRecipe::Pos::sinusoid, d.recipe.embed.first = 2; }}}},
      {"mask",
       {{"causal", none},
        {"prefix", [](Draft& d) { d.attn.mask = MaskKind::prefix; }},
        {"chunk", [](Draft& d) { d.attn.mask = MaskKind::chunk, d.attn.chunk = 4; }},
        {"full", [](Draft& d) { d.attn.mask = MaskKind::full; }}}},
      {"window",
       {{"all", none},
        {"3", [](Draft& d) { d.attn.window = 3; }},
        {"3 keep 2", [](Draft& d) { d.attn.window = 3, d.attn.keep = 2; }}}},
      {"cap", {{"none", none}, {"2", [](Draft& d) { d.attn.cap = 2; }}}},
      {"clip", {{"none", none}, {"0.8", [](Draft& d) { d.attn.clip = 0.8; }}}},
      {"temperature",
       {{"none", none},
        {"every 3", [](Draft& d) { d.attn.temperature = TemperatureRecipe{.factor = 0.4, .length = 3}; }}}},
      {"extra",
       {{"none", none},
        {"zero", [](Draft& d) { d.attn.extra.kind = ExtraRecipe::Kind::zero_logit; }},
        {"learned", [](Draft& d) { d.attn.extra.kind = ExtraRecipe::Kind::learned_logit; }},
        {"slots", [](Draft& d) { d.attn.extra = {.kind = ExtraRecipe::Kind::kv_slots, .slots = 2}; }},
        {"tokens", [](Draft& d) { d.recipe.embed.sink_tokens = 2; }}}},
      {"gate",
       {{"none", none},
        {"sdpa", gate({})},
        {"sdpa head", gate({.grain = GateGrain::head})},
        {"sdpa shared ns", gate({.heads = Heads::shared, .act = Act::ns_sigmoid})},
        {"sdpa constant", gate({.from = From::constant})},
        {"sdpa add silu", gate({.act = Act::silu, .op = Op::add})},
        {"sdpa head shared", gate({.grain = GateGrain::head, .heads = Heads::shared})},
        {"q", gate({.at = At::q})},
        {"k softplus", gate({.at = At::k, .act = Act::softplus})},
        {"v head", gate({.at = At::v, .grain = GateGrain::head})},
        {"v shared", gate({.at = At::v, .heads = Heads::shared})},
        {"out tanh", gate({.at = At::out, .act = Act::tanh})},
        {"out constant", gate({.at = At::out, .from = From::constant})},
        {"all five",
         [](Draft& d) {
           for (At at : {At::sdpa, At::q, At::k, At::v, At::out}) d.attn.gate.push_back({.at = at});
         }}}},
      {"attn dropout", {{"0", none}, {"0.3", [](Draft& d) { d.attn.dropout = 0.3; }}}},
      {"dropout", {{"0", none}, {"0.2", [](Draft& d) { d.dropout = 0.2; }}}},
      {"norm",
       {{"rms", none},
        {"rms plus one", [](Draft& d) { d.norm.weight = Gain::plus_one; }},
        {"layer", [](Draft& d) { d.norm = {.kind = NormKindR::layer, .bias = true}; }},
        {"layer no bias", [](Draft& d) { d.norm = {.kind = NormKindR::layer}; }},
        {"rms no weight", [](Draft& d) { d.norm.weight = Gain::none; }},
        {"batch",
         [](Draft& d) {
           d.norm = {.kind = NormKindR::batch, .eps = 1e-3, .bias = true, .leaks_ok = true};
         }}}},
      {"wiring",
       {{"pre", none},
        {"post", [](Draft& d) { d.wiring = 1; }},
        {"sandwich", [](Draft& d) { d.wiring = 2; }},
        {"out", [](Draft& d) { d.wiring = 3; }},
        {"parallel 1", [](Draft& d) { d.wiring = 4; }},
        {"parallel 2", [](Draft& d) { d.wiring = 5; }}}},
      {"ffn",
       {{"swiglu", none},
        {"gelu mlp bias",
         [](Draft& d) { d.ffn.kind = FfnRecipe::Kind::mlp, d.ffn.act = Act::gelu, d.ffn.bias = true; }},
        {"relu2 mlp", [](Draft& d) { d.ffn.kind = FfnRecipe::Kind::mlp, d.ffn.act = Act::relu2; }},
        {"geglu", [](Draft& d) { d.ffn.act = Act::gelu_tanh; }},
        {"clamped",
         [](Draft& d) { d.ffn.clamp = 7, d.ffn.alpha = 1.702, d.ffn.up_offset = 1, d.ffn.bias = true; }}}},
      {"experts",
       {{"none", none},
        {"Mixtral", experts(5, 2, {}, {})},
        {"Qwen2-MoE", experts(4, 3, {.renormalise = false}, SharedExpertRecipe{.width = 12, .gated = true})},
        {"gpt-oss", experts(6, 2, {.over = RouterRecipe::Over::chosen, .bias = true}, {})},
        {"Llama 4",
         experts(4, 1,
                 {.score = RouterRecipe::Score::sigmoid, .renormalise = false,
                  .weight_at = RouterRecipe::WeightAt::input},
                 SharedExpertRecipe{})},
        {"DeepSeek V3",
         experts(6, 2,
                 {.score = RouterRecipe::Score::sigmoid, .choice_bias = true,
                  .groups = GroupsRecipe{.count = 3, .used = 2}, .eps = 1e-20, .scale = 2.5},
                 SharedExpertRecipe{})},
        {"DeepSeek V2",
         experts(6, 3,
                 {.groups = GroupsRecipe{.count = 2, .used = 1, .score = GroupsRecipe::Score::max},
                  .renormalise = false, .scale = 4},
                 SharedExpertRecipe{.width = 9})},
        {"ERNIE",
         experts(3, 2, {.choice_bias = true, .eps = 1e-12, .eps_as = RouterRecipe::Eps::least}, {})}}},
      {"state",
       {{"none", none},
        {"delta", [](Draft& d) { d.mixer = DeltaRecipe{.key_heads = 2, .key_dim = 5, .value_dim = 3}; }},
        {"delta grouped",
         [](Draft& d) {
           d.mixer = DeltaRecipe{.key_heads = 2,
                                 .value_heads = 4,
                                 .conv = 3,
                                 .act = Act::gelu,
                                 .norm = {.weight = Gain::plus_one},
                                 .gate = Act::sigmoid};
         }},
        {"delta in turns",
         [](Draft& d) {
           d.mixer = DeltaRecipe{
               .key_heads = 2, .value_heads = 4, .share = DeltaRecipe::Share::turns, .key_dim = 3, .conv = 1};
         }},
        {"conv", [](Draft& d) { d.mixer = ConvRecipe{}; }},
        {"conv bias", [](Draft& d) { d.mixer = ConvRecipe{.kernel = 5, .bias = true}; }}}},
      {"head",
       {{"untied", none},
        {"tied", [](Draft& d) { d.recipe.head.tied = true; }},
        {"tied bias scale cap",
         [](Draft& d) { d.recipe.head = {.tied = true, .bias = true, .scale = 0.5, .cap = 5}; }},
        {"transform",
         [](Draft& d) {
           d.recipe.head.transform =
               HeadTransform{.norm = NormRecipe{.kind = NormKindR::layer, .bias = true}};
         }},
        {"transform linear",
         [](Draft& d) {
           d.recipe.head.tied = true;
           d.recipe.head.transform = HeadTransform{.linear = true, .norm = {}, .bias = false};
         }},
        {"none", [](Draft& d) { d.recipe.head.kind = HeadRecipe::Kind::none; }},
        {"classes mean",
         [](Draft& d) {
           d.recipe.head = {.kind = HeadRecipe::Kind::classes, .classes = 5, .pool = HeadRecipe::Pool::mean};
         }},
        {"classes pooler",
         [](Draft& d) {
           d.recipe.head = {.kind = HeadRecipe::Kind::classes, .classes = 3, .bias = true,
               .transform = HeadTransform{.act = Act::tanh, .norm = {}}};
         }}}},
      {"embed",
       {{"plain", none},
        {"sqrt", [](Draft& d) { d.recipe.embed.scale_sqrt_width = true; }},
        {"norm types",
         [](Draft& d) {
           d.recipe.embed.types = 2, d.recipe.embed.norm = NormRecipe{.kind = NormKindR::layer, .bias = true};
         }},
        {"narrow", [](Draft& d) { d.recipe.embed.width = 6, d.recipe.embed.norm = NormRecipe{}; }},
        {"narrow tokens",
         [](Draft& d) {
           d.recipe.embed.width = 10, d.recipe.embed.project = EmbedRecipe::Project::tokens;
           d.recipe.embed.project_bias = false;
         }},
        {"of each stack",
         [](Draft& d) {
           d.recipe.embed.own_source = true, d.recipe.embed.source_vocab = 23;
           d.recipe.embed.norm = NormRecipe{};
         }}}},
      {"layers",
       {{"2", none},
        {"pattern", [](Draft& d) { d.pattern = true; }},
        {"shared", [](Draft& d) { d.groups = 1; }}}},
      {"residual",
       {{"1", none},
        {"0.5", [](Draft& d) { d.residual_scale = 0.5; }},
        {"layer scale", [](Draft& d) { d.layer_scale = 0.7; }}}},
  };
  return all;
}

PartRecipe part(const Draft& d, const AnyPartRecipe& body) {
  PartRecipe p{
      .residual_scale = d.residual_scale, .layer_scale = d.layer_scale, .dropout = d.dropout, .body = body};
  if (FfnRecipe* f = p.ffn()) f->dropout = d.dropout;
  if (DeltaRecipe* r = p.delta()) r->dropout = d.dropout;
  if (ConvRecipe* c = p.conv()) c->dropout = d.dropout;
  if (MoeRecipe* m = p.moe()) {
    m->kind = d.ffn.kind, m->act = d.ffn.act, m->width = d.ffn.width, m->bias = d.ffn.bias;
    m->clamp = d.ffn.clamp, m->alpha = d.ffn.alpha, m->up_offset = d.ffn.up_offset;
    m->dropout = d.dropout;
  }
  if (AttnRecipe* a = p.cross()) {  // what belongs to positions stays in self-attention
    a->pos = {};
    a->mask = MaskKind::full;
    a->window = a->keep = a->chunk = 0;
    a->temperature = {};
    a->latent = {};
  }
  if (d.wiring == 0 || d.wiring == 2 || d.wiring == 5) p.norm_in = d.norm;
  if (d.wiring == 2 || d.wiring == 3) p.norm_out = d.norm;
  if (d.wiring == 1) p.norm_sum = d.norm;
  return p;
}

StackRecipe stack(const Draft& d, bool encoder, bool cross) {
  Draft own = d;
  if (encoder && d.stacks == 2)
    own.attn.mask = MaskKind::full, own.attn.window = own.attn.keep = own.attn.chunk = 0;
  if (!encoder && d.stacks == 2 && own.attn.pos.kind == PosRecipe::Kind::relative) own.attn.pos = {};
  LayerRecipe layer;
  layer.parallel = d.wiring >= 4;
  if (d.wiring == 4) layer.norm_in = d.norm;
  AttnRecipe to_memory = own.attn;
  to_memory.cross = true;
  layer.parts.push_back(part(own, own.attn));
  if (cross) layer.parts.push_back(part(own, to_memory));
  layer.parts.push_back(own.moe ? part(own, *own.moe) : part(own, own.ffn));
  StackRecipe s{
      .layers = 2, .kinds = {{"L", layer}}, .groups = d.groups, .final_norm = d.norm, .dropout = d.dropout};
  // A second kind of layer without its position and window, as Gemma and Llama 4 mix them.
  if (d.pattern) {
    LayerRecipe other = layer;
    AttnRecipe& a = *other.parts[0].self();
    a.window = a.keep = 0;
    if (a.pos.kind == PosRecipe::Kind::rope) a.pos.rope.theta = 1000;
    s.layers = 3;
    s.pattern = "LLG";
    s.kinds["G"] = other;
  }
  // A kind of layer that remembers by a state, between the others; where layers share their weights, all.
  if (d.mixer) {
    LayerRecipe with_state = layer;
    with_state.parts[0] = part(own, *d.mixer);
    s.kinds[d.groups > 0 ? "L" : "S"] = with_state;
    if (d.groups == 0) s.pattern = d.pattern ? "LSG" : "LS";
  }
  return s;
}

std::optional<GridCase> build(const std::vector<std::size_t>& choice) {
  Draft d;
  d.recipe.width = 16;
  d.recipe.vocab = 19;
  d.recipe.context = 32;
  d.attn.heads = 4;
  std::string name;
  for (std::size_t a = 0; a < axes().size(); ++a) {
    axes()[a].options[choice[a]].apply(d);
    if (choice[a] != 0)
      name +=
          std::string(name.empty() ? "" : ", ") + axes()[a].name + " " + axes()[a].options[choice[a]].name;
  }
  d.recipe.embed.dropout = d.dropout;
  d.recipe.name = "grid";
  if (d.attn.latent) {  // what follows from the other options
    d.attn.latent->rope_dim = d.attn.pos.kind != PosRecipe::Kind::rope ? 0 : d.attn.head_dim == 6 ? 4 : 2;
    d.attn.bias.v = false;
  }
  if (d.stacks != 0) d.recipe.encoder = stack(d, true, false);
  if (d.stacks != 1) d.recipe.decoder = stack(d, false, d.stacks == 2);
  try {
    return GridCase{name.empty() ? "all defaults" : name, resolve(d.recipe)};
  } catch (const Error&) {
    return std::nullopt;
  }
}

}  // namespace

const std::vector<GridCase>& option_grid(std::size_t count) {
  static const std::vector<GridCase> grid = [count] {
    std::vector<GridCase> cases;
    using Pair = std::pair<std::pair<std::size_t, std::size_t>, std::pair<std::size_t, std::size_t>>;
    std::set<Pair> open;
    const std::size_t n = axes().size();
    for (std::size_t a = 0; a < n; ++a)
      for (std::size_t b = a + 1; b < n; ++b)
        for (std::size_t i = 0; i < axes()[a].options.size(); ++i)
          for (std::size_t j = 0; j < axes()[b].options.size(); ++j) open.insert({{a, i}, {b, j}});
    std::uint64_t draw = 0;
    auto random = [&](std::size_t below) {
      return static_cast<std::size_t>(random_below(static_cast<std::uint32_t>(below), 0x9121D, draw++));
    };
    auto covers = [&](const std::vector<std::size_t>& c) {
      std::size_t found = 0;
      for (std::size_t a = 0; a < n; ++a)
        for (std::size_t b = a + 1; b < n; ++b) found += open.count({{a, c[a]}, {b, c[b]}});
      return found;
    };
    auto random_choice = [&] {
      std::vector<std::size_t> c(n);
      // Defaults are drawn more often where an axis has conflicts with many others, or few drafts
      // would be legal.
      for (std::size_t a = 0; a < n; ++a) c[a] = random(3) == 0 ? 0 : random(axes()[a].options.size());
      return c;
    };
    while (!open.empty() || cases.size() < count) {
      // Nearly every pair; the search itself takes longest there.
      if (kSanitized && cases.size() == 100) break;
      std::vector<std::size_t> best;
      std::size_t most = 0;
      const std::optional<Pair> wanted = open.empty() ? std::nullopt : std::optional<Pair>(*open.begin());
      for (int attempt = 0, legal = 0; attempt < 400 && legal < 12; ++attempt) {
        std::vector<std::size_t> c = random_choice();
        if (wanted)
          c[wanted->first.first] = wanted->first.second, c[wanted->second.first] = wanted->second.second;
        if (attempt > 200)  // a demanding pair: everything else plain
          for (std::size_t a = 0; a < n; ++a)
            if (wanted && a != wanted->first.first && a != wanted->second.first && random(4) != 0) c[a] = 0;
        if (!build(c)) continue;
        ++legal;
        const std::size_t found = covers(c) + 1;
        if (found > most) most = found, best = c;
      }
      if (best.empty()) {  // no legal recipe holds this pair
        if (wanted) open.erase(*wanted);
        continue;
      }
      for (std::size_t a = 0; a < n; ++a)
        for (std::size_t b = a + 1; b < n; ++b) open.erase({{a, best[a]}, {b, best[b]}});
      cases.push_back(*build(best));
    }
    return cases;
  }();
  return grid;
}

}  // namespace rapt::test
