// SPDX-License-Identifier: Apache-2.0
// entries() lists every name: those of the stack from here, those inside parts from the parts. A name is
// split into stack, word, layer and number, looked up, placed in the model.
#include "rapt/inspect/sites.h"

#include <algorithm>
#include <charconv>
#include <functional>
#include <optional>
#include <set>
#include <utility>

#include "rapt/base/text.h"

namespace rapt {
namespace {

using Kind = Point::Kind;

// What an entry of the table is asked about: a stack, a layer of it, a part of that.
struct Place {
  const Model& model;
  Stack which;
  const LayerStack& stack;
  int layer = -1, part = -1;
  const Layer& its_layer() const { return stack.layers[static_cast<std::size_t>(layer)]; }
  const Part& its_part() const { return its_layer().parts[static_cast<std::size_t>(part)]; }
  bool last_stack() const { return which == (model.decoder ? Stack::decoder : Stack::encoder); }
};

using Absent = std::string (*)(const Place&);  // why this place has no such point; "" where it has

std::string no_positions(const Place& p) {
  return p.model.recipe.embed.pos == EmbedRecipe::Pos::none
             ? "nothing is added to its embeddings for positions"
             : "";
}
std::string no_final_norm(const Place& p) {
  return p.stack.final_norm ? "" : "it has no final norm: the last layer's resid_post is what the head reads";
}
std::string no_head(const Place& p) {
  if (!p.last_stack()) return "the head stands on the decoder";
  return p.model.recipe.head.kind == HeadRecipe::Kind::none
             ? "it has no head: its last hidden state is the result"
         : !p.model.head.w ? "its head has no matrix: the pooled row is the result"
                           : "";
}
std::string no_middle(const Place& p) {
  if (p.its_layer().parallel)
    return "its attention and feed-forward parts read the same input and are added at once, so there is no "
           "stream between them";
  return p.its_layer().parts.size() < 2 ? "its layers have one part only" : "";
}
std::string no_middle_cross(const Place& p) {
  return p.its_layer().parts.size() < 3 ? "its layers have no cross-attention" : no_middle(p);
}
std::string no_sum_norm(const Place& p) {
  return p.its_layer().parts[static_cast<std::size_t>(p.part)].norm_sum
             ? ""
             : "no norm of it stands on the residual stream itself";
}
std::string no_norm(const std::optional<NormLayer>& norm) {
  if (!norm) return "there is no such norm in it";
  const NormRecipe::Kind kind = norm->recipe.kind;
  return kind == NormRecipe::Kind::layer || kind == NormRecipe::Kind::rms
             ? ""
             : "only LayerNorm and RMSNorm have this value";
}
// The norm a part reads through, or that stands on the sum behind it; of a parallel layer the one
// they share.
const std::optional<NormLayer>& norm_around(const Layer& layer, const Part& part) {
  if (layer.parallel && layer.norm_in) return layer.norm_in;
  return part.norm_in ? part.norm_in : part.norm_sum;
}
std::string no_part_norm(const Place& p) { return no_norm(norm_around(p.its_layer(), p.its_part())); }
std::string no_last_norm(const Place& p) { return no_norm(p.stack.final_norm); }
std::vector<std::string_view> split(std::string_view words) {
  std::vector<std::string_view> out;
  while (!words.empty()) {
    const std::size_t end = std::min(words.find(' '), words.size());
    if (end > 0) out.push_back(words.substr(0, end));
    words.remove_prefix(std::min(end + 1, words.size()));
  }
  return out;
}

enum class Owner { stack, layer, part };
constexpr int kNone = -2, kFirst = 0, kSecond = 1, kLast = -1;

// A name that points can have. Axes: T rows, S rows that are looked at, R rows of the result, C width, U
// results, 1; others are the part's. Hooks: TransformerLens's names inside a block, the usual one first.
struct Entry {
  std::string name;
  Owner of;
  Site site;
  std::string axes, hooks;
  Absent absent = nullptr;
  Kind kind = Kind::value;
  int part = kNone;  // of a layer: which part shows it; kLast: the last one
  std::string fixed = {};
  PartName its = {};  // of a part: which parts have it
  std::function<std::string(const Part&)> absent_in = {};
  std::function<Dim(const Part&, char)> axis = {};
};

// clang-format off
const Entry kBegin[] = {
  {"embeddings", Owner::stack, site::tokens, "TC", "hook_embed embed.hook_out"},
  {"pos_embeddings", Owner::stack, site::positions, "TC", "hook_pos_embed pos_embed.hook_out", no_positions},
  {"full_embeddings", Owner::stack, site::embed, "TC", "hook_full_embed"},
  {"resid_pre", Owner::layer, site::resid_in, "TC", "hook_resid_pre hook_in", nullptr, Kind::value, kFirst},
};
const Entry kEnd[] = {
  {"resid_mid_sum", Owner::layer, site::resid_sum, "TC", "", no_sum_norm, Kind::value, kFirst},
  {"resid_mid", Owner::layer, site::resid_in, "TC", "hook_resid_mid", no_middle, Kind::value, kSecond},
  {"resid_mid_cross", Owner::layer, site::resid_in, "TC", "hook_resid_mid_cross", no_middle_cross,
   Kind::value, kLast},
  {"resid_post_sum", Owner::layer, site::resid_sum, "TC", "", no_sum_norm, Kind::value, kLast},
  {"resid_post", Owner::layer, site::resid_out, "TC", "hook_resid_post hook_out hook_normalized_resid_post"},
  {"final_norm_scale", Owner::stack, site::resid_out, "T1", "ln_final.hook_scale", no_last_norm,
   Kind::norm_scale, kNone, kComputedBeside},
  {"final_normalized", Owner::stack, site::resid_out, "TC", "ln_final.hook_normalized", no_last_norm,
   Kind::normalized, kNone, kComputedBeside},
  {"final_norm", Owner::stack, site::final_norm, "TC", "ln_final.hook_out", no_final_norm},
  {"lm_head", Owner::stack, site::unembed, "RU", "unembed.hook_out hook_unembed", no_head},
  {"logits", Owner::stack, site::logits, "RU", "", no_head},
};
// clang-format on

// What a kind of part Y names itself, with the prefix of each use of it.
template <class Y>
void add_points(std::vector<Entry>& all, std::span<const PartName> uses) {
  for (const PartName& use : uses)
    for (const PartPoint<Y>& p : part_points(Of<Y>{})) {
      Entry e{.name = concat(use.prefix, p.name),
              .of = Owner::part,
              .site = p.site,
              .axes = p.axes,
              .hooks = {},
              .kind = p.kind};
      // attn.hook_z -> cross_attn.hook_z, hook_attn_out -> hook_cross_attn_out
      for (std::string_view hook : split(p.hooks)) {
        std::string h(hook);
        h.insert(h.starts_with("hook_") ? 5 : 0, use.prefix);
        e.hooks += concat(e.hooks.empty() ? "" : " ", h);
      }
      if (p.kind == Kind::normalized || p.kind == Kind::norm_scale) e.absent = no_part_norm;
      e.fixed = p.fixed;
      e.its = use;
      if (p.absent)
        e.absent_in = [absent = p.absent](const Part& part) { return absent(std::get<Y>(part.body)); };
      e.axis = [](const Part& part, char axis) { return axis_size(std::get<Y>(part.body), axis); };
      all.push_back(std::move(e));
    }
}

const std::vector<Entry>& entries() {
  static const std::vector<Entry> kAll = [] {
    std::vector<Entry> all(std::begin(kBegin), std::end(kBegin));
    [&]<class... Y, class... X>(std::variant<Y...>*, std::variant<X...>*) {
      (add_points<Y>(all, part_names(Of<X>{})), ...);
    }(static_cast<AnyPart*>(nullptr), static_cast<AnyPartRecipe*>(nullptr));
    all.insert(all.end(), std::begin(kEnd), std::end(kEnd));
    return all;
  }();
  return kAll;
}

// Names of TransformerLens that are known and have no tensor here.
struct Refused {
  const char *hook, *why;
};
const Refused kRefused[] = {
    {"attn.hook_result",
     "each head's own part of the output is not held: multiply z by the head's columns of the output matrix"},
    {"hook_attn_in",
     "TransformerLens means the residual stream before the norm (use_attn_in): "
     "that is resid_pre; after the norm: attn_in"},
    {"hook_cross_attn_in",
     "TransformerLens means the residual stream before the norm: that is resid_mid; "
     "after the norm: cross_attn_in"},
    {"hook_mlp_in",
     "TransformerLens means the residual stream before the norm (use_hook_mlp_in): that is resid_mid; after "
     "the norm: mlp_in"},
    {"hook_q_input", "copies of the input per head are not made: attn_in is what all heads read"},
    {"hook_k_input", "copies of the input per head are not made: attn_in is what all heads read"},
    {"hook_v_input", "copies of the input per head are not made: attn_in is what all heads read"},
    {"mlp.hook_mid", "there is no norm inside the feed-forward part"},
    {"mlp.hook_expert_indices",
     "TransformerLens means them by rank: expert_indices.L has them in ascending order (where there are no "
     "experts, neither)"},
    {"mlp.hook_expert_weights",
     "TransformerLens means the softmax over all experts: router_logits.L is what it is made of, "
     "expert_weights.L what the chosen ones weigh (where there are no experts, none of it)"},
    {"hook_token_type_embed", "embeddings of token types are not held apart: full_embeddings has them in it"},
    {"hook_tokens", "tokens are written beside the tensors"},
    {"Qcur",
     "ggml calls queries so before and after their rotation: write q.L (before) "
     "or attn_q.L (what attention reads)"},
    {"Kcur",
     "ggml calls keys so before and after their rotation: write k.L (before) "
     "or attn_k.L (what attention reads)"},
    {"kq", "ggml's are not scaled yet: attn_scores.L are, and masked"},
    {"inp_tokens", "tokens are written beside the tensors"},
    {"inp_pos", "positions are the rows' numbers"},
    {"rotary_emb.hook_cos", "tables of angles are no tensors of a layer: rapt inspect positions shows them"},
    {"rotary_emb.hook_sin", "tables of angles are no tensors of a layer: rapt inspect positions shows them"},
};

// What nnterp and ggml's graphs call our points, in our words or as a hook.
struct Alias {
  const char *theirs, *ours;
  bool brackets = false;  // layers_input[5] (nnterp), not l_out-5 (ggml)
};
const Alias kAliases[] = {
    {"token_embeddings", "embeddings", true},
    {"layers_input", "resid_pre", true},
    {"layers_output", "resid_post", true},
    {"attentions_input", "attn_in", true},
    {"attentions_output", "attn_out", true},
    {"attention_probabilities", "attn_weights", true},
    {"mlps_input", "mlp_in", true},
    {"mlps_output", "mlp_out", true},
    {"inp_embd", "embeddings"},
    {"attn_norm", "attn_in"},
    {"Vcur", "value"},
    {"kq_soft_max", "attn_weights"},
    {"kqv", "z"},
    {"kqv_out", "z"},
    {"attn_out", "attn_out"},
    {"ffn_inp", "resid_mid"},
    {"ffn_norm", "mlp_in"},
    {"ffn_gate", "mlp.gate.hook_out"},
    {"ffn_up", "mlp.in.hook_out"},
    {"ffn_swiglu", "mlp_act"},
    {"ffn_geglu", "mlp_act"},
    {"ffn_out", "mlp_out"},
    {"l_out", "resid_post"},
    {"result_norm", "final_norm"},
    {"result_output", "logits"},
    {"Qcur", "Qcur"},
    {"Kcur", "Kcur"},
    {"kq", "kq"},
    {"inp_tokens", "inp_tokens"},
    {"inp_pos", "inp_pos"},
};
// clang-format on

const LayerStack& stack_at(const Model& model, Stack which) {
  return which == Stack::encoder ? *model.encoder : *model.decoder;
}
const char* word_for(Stack which) { return which == Stack::encoder ? "encoder" : "decoder"; }

// The point of an entry at a place, or why there is none.
struct Found {
  std::optional<Point> point;
  std::string why;
};

Dim size_of_axis(char axis, const Entry& e, const Place& p) {
  switch (axis) {
    case 'T': return Point::kRows;
    case 'S':
      return p.its_part().attention() && p.its_part().attention()->spec.cross ? Point::kKeys : Point::kRows;
    case 'R': return p.model.recipe.head.pools() ? 1 : Point::kResults;
    case 'C':
      return p.stack.recurrent && e.site == site::resid_out ? p.stack.recurrent->recipe.out_width()
                                                            : p.model.recipe.width;
    case 'U': return p.model.head.w->rows;
    case '1': return 1;
    default: return e.axis(p.its_part(), axis);
  }
}

// Numbers of the parts of a layer that have an entry; -1 where it belongs to no part.
std::vector<int> parts_with(const Entry& e, const LayerStack& stack, int layer) {
  if (e.of != Owner::part || stack.recurrent) return {-1};
  std::vector<int> out;
  const std::vector<Part>& parts = stack.layers[static_cast<std::size_t>(layer)].parts;
  for (std::size_t i = 0; i < parts.size(); ++i)
    if (parts[i].name.word == e.its.word) out.push_back(static_cast<int>(i));
  return out;
}

// `p.part`: the part that is asked for, where the entry is one of parts.
Found point_at(const Entry& e, Place p) {
  if (p.stack.recurrent && ((e.of != Owner::stack && !(e.site == site::resid_out)) || e.kind != Kind::value))
    return {{}, "its layers are recurrent cells: they show resid_post, and nothing inside"};
  const bool inside = e.of == Owner::part;
  if (!inside && e.part != kNone) {
    const int last = static_cast<int>(p.its_layer().parts.size()) - 1;
    p.part = e.part == kLast ? last : std::min(e.part, last);
  }
  std::string why = e.absent ? e.absent(p) : "";
  if (why.empty() && e.absent_in) why = e.absent_in(p.its_part());
  if (!why.empty()) return {{}, std::move(why)};

  const bool both = p.model.encoder && p.model.decoder;
  Point point{
      .kind = e.kind, .site = e.site, .stack = p.which, .layer = p.layer, .part = p.part, .fixed = e.fixed};
  point.name = concat(both ? concat(word_for(p.which), ".") : "", e.name,
                      e.of == Owner::stack ? "" : concat(".", p.layer));
  if (inside && p.its_part().of > 1) point.name += concat(".", p.its_part().number + 1);
  if (inside) point.attention = p.its_part().attention();
  if (e.kind == Kind::normalized || e.kind == Kind::norm_scale) {  // the site is the norm's input
    point.norm = inside ? &*norm_around(p.its_layer(), p.its_part()) : &*p.stack.final_norm;
    if (!inside) point.layer = p.stack.depth() - 1;
    else if (p.its_layer().parallel) point.part = 0;
    else if (!p.its_part().norm_in) point.site = site::resid_sum;
  }
  for (const char axis : e.axes) point.shape.push_back(size_of_axis(axis, e, p));
  return {std::move(point), ""};
}

// ------------------------------------------------------------------------------------------------ names
struct Wanted {
  const Entry* entry = nullptr;
  std::string why = {};  // no entry: a name that is known and refused
  int number = 0;  // which of the parts of its kind, from 1; 0: not said
};

// Kinds of parts share names (mlp_in): the entry of the kind that the layer has.
Wanted in_layer(Wanted w, const LayerStack& stack, int layer) {
  if (!w.entry || w.entry->of != Owner::part || layer < 0 || !parts_with(*w.entry, stack, layer).empty())
    return w;
  for (const Entry& e : entries())
    if (e.name == w.entry->name && !parts_with(e, stack, layer).empty()) w.entry = &e;
  return w;
}

Wanted by_own_name(std::string_view name) {
  if (name == "attn_probs" || name == "cross_attn_probs")
    name = name[0] == 'a' ? "attn_weights" : "cross_attn_weights";
  for (const Entry& e : entries())
    if (name == e.name) return {&e};
  for (const Refused& r : kRefused)
    if (name == r.hook) return {nullptr, r.why};
  return {};
}

// ln1, ln2, … are the norms of a layer's parts in their order.
Wanted by_norm_hook(const Layer& layer, std::string_view hook) {
  const std::size_t i =
      hook.size() > 4 && hook[3] == '.' ? static_cast<std::size_t>(hook[2] - '1') : layer.parts.size();
  if (i >= layer.parts.size())
    return {nullptr, concat("this layer has ", layer.parts.size(), " parts, so its norms are ln1 … ln",
                            layer.parts.size())};
  const Part& part = layer.parts[i];
  const bool last = i + 1 == layer.parts.size();
  const bool on_sum = !layer.parallel && !part.norm_in && part.norm_sum;
  const std::string_view what = hook.substr(4);
  const auto of_part = [&](const char* end) {
    Wanted w = by_own_name(concat(part.name.prefix, part.name.stem, end));
    w.number = part.number + 1;
    return w;
  };
  if (what == "hook_normalized") return of_part("_normalized");
  if (what == "hook_scale") return of_part("_norm_scale");
  const char* const stream = i == 0 ? "resid_mid" : last ? "resid_post" : "resid_mid_cross";
  if (what == "hook_in")
    return by_own_name(on_sum                     ? concat(stream, "_sum")
                       : i == 0 || layer.parallel ? "resid_pre"
                       : i == 1                   ? "resid_mid"
                                                  : "resid_mid_cross");
  if (what == "hook_out") return on_sum ? by_own_name(stream) : of_part("_in");
  return {};
}

// What TransformerLens's Bridge calls the inputs and outputs of the matrices of a layer, where nothing stands
// between them and those of the part.
struct BridgeName {
  const char *theirs, *ours;
  bool (*there)(const Part&);
};
bool plain_attention(const Part& p) { return p.attention() && !p.attention()->latent; }
bool no_gate_behind(const Part& p) { return p.attention() && !p.attention()->gate_at(GateRecipe::At::out); }
bool plain_ffn(const Part& p) { return p.ffn(); }
bool gated_ffn(const Part& p) { return p.ffn() && p.ffn()->recipe.kind == FfnRecipe::Kind::glu; }
const BridgeName kBridge[] = {
    {"attn.q.hook_in", "attn.hook_in", plain_attention}, {"attn.k.hook_in", "attn.hook_in", plain_attention},
    {"attn.v.hook_in", "attn.hook_in", plain_attention}, {"attn.o.hook_out", "attn.hook_out", no_gate_behind},
    {"mlp.in.hook_in", "mlp.hook_in", plain_ffn},        {"mlp.gate.hook_in", "mlp.hook_in", gated_ffn},
};

bool has_sum_norm(const Layer& layer) {
  return std::any_of(layer.parts.begin(), layer.parts.end(),
                     [](const Part& p) { return p.norm_sum.has_value(); });
}

// `layer` is absent for the names that stand outside the blocks.
Wanted by_hook(const Layer* layer, std::string_view hook) {
  if (layer && hook.starts_with("ln")) return by_norm_hook(*layer, hook);
  std::string name(hook);
  if (name.starts_with("self_attn.")) name.erase(0, 5);
  if (layer && has_sum_norm(*layer) && (name == "hook_resid_post" || name == "hook_resid_mid"))
    return {nullptr,
            concat("its norms stand on the residual stream, and TransformerLens means the sum before "
                   "that norm in one of its "
                   "versions and what comes after it in the other: write ",
                   name.substr(5), ".L (after) or ", name.substr(5), "_sum.L (before)")};
  if (layer && !has_sum_norm(*layer) && name == "hook_normalized_resid_post")
    return {nullptr, "no norm of it stands on the residual stream itself"};
  if (layer && name == "mlp.in.hook_out")
    for (const Part& p : layer->parts)
      if (p.ffn() && p.ffn()->recipe.kind == FfnRecipe::Kind::mlp) name = "mlp.hook_pre";
  for (const BridgeName& b : kBridge)
    if (layer && name == b.theirs && std::any_of(layer->parts.begin(), layer->parts.end(), b.there))
      name = b.ours;
  for (const Refused& r : kRefused)
    if (name == r.hook) return {nullptr, r.why};
  for (const Entry& e : entries()) {
    if ((e.of == Owner::stack) != !layer) continue;
    for (std::string_view h : split(e.hooks))
      if (h == name) return {&e};
  }
  return {};
}

// "k" -> "attn.hook_k", as TransformerLens's get_act_name says it. `norm`: "ln1" and so on, or "".
std::string hook_of_short(std::string_view word, std::string_view norm) {
  if (word == "attn") word = "pattern";
  if (word == "attn_logits") word = "attn_scores";
  if (word == "key") word = "k";
  if (word == "query") word = "q";
  if (word == "mlp_post") word = "post";
  for (const char* inside : {"q", "k", "v", "z", "rot_q", "rot_k", "result", "pattern", "attn_scores"})
    if (word == inside) return concat("attn.hook_", word);
  for (const char* inside : {"pre", "post", "mid", "pre_linear"})
    if (word == inside) return concat("mlp.hook_", word);
  return concat(norm, norm.empty() ? "" : ".", "hook_", word);
}

bool is_layer(std::string_view text) {
  if (text == "*") return true;
  if (text.starts_with('-')) text.remove_prefix(1);
  return !text.empty() && text.size() < 7 &&
         std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

struct Name {
  std::optional<Stack> stack;
  std::string word, layer;  // layer: "" where none was written
  bool hook = false;  // a name of TransformerLens
  int number = 0;  // behind the layer: which of the parts of one kind, from 1; 0: not said
};

// layers_output[5], l_out-5, result_norm; nothing where the name is none of these.
std::optional<Name> read_alias(std::string_view text, std::optional<Stack> stack) {
  std::string_view word = text, layer;
  if (const std::size_t open = text.find('['); open != std::string_view::npos && text.ends_with(']'))
    word = text.substr(0, open), layer = text.substr(open + 1, text.size() - open - 2);
  else if (const std::size_t dash = text.find('-'); dash != std::string_view::npos)
    word = text.substr(0, dash), layer = text.substr(dash + 1);
  if (!layer.empty() && !is_layer(layer)) return {};
  for (const Alias& a : kAliases)
    if (word == a.theirs) {
      const std::string_view ours = a.ours;
      return Name{stack, std::string(ours), std::string(layer),
                  ours.find(".hook_") != std::string_view::npos};
    }
  return {};
}

Name read_name(std::string_view text) {
  Name n;
  std::string_view rest = text;
  auto take = [&](std::string_view prefix) {
    if (!rest.starts_with(prefix)) return false;
    rest.remove_prefix(prefix.size());
    return true;
  };
  for (Stack which : {Stack::encoder, Stack::decoder}) {
    if (take(concat(word_for(which), "_final_ln.")) || take(concat(word_for(which), "_ln_final.")))
      return {which, concat("ln_final.", rest), "", true};
    if (take(concat(word_for(which), "_blocks.")) || take(concat(word_for(which), "."))) n.stack = which;
  }
  if (std::optional<Name> alias = read_alias(rest, n.stack)) return *alias;
  const bool block = n.stack || take("blocks.");
  const std::size_t dot = rest.find('.');
  if (block && dot != std::string_view::npos && is_layer(rest.substr(0, dot)))
    return {n.stack, std::string(rest.substr(dot + 1)), std::string(rest.substr(0, dot)), true};
  if (rest.starts_with("hook_") || rest.find(".hook_") != std::string_view::npos)
    return {n.stack, std::string(rest), "", true};
  const std::size_t end = rest.rfind('.');
  n.word = rest;
  if (end != std::string_view::npos && is_layer(rest.substr(end + 1))) {
    n.word = rest.substr(0, end);
    n.layer = rest.substr(end + 1);
    const std::size_t before = n.word.rfind('.');  // z.5.2: of layer 5 the second
    if (before != std::string::npos && is_layer(n.word.substr(before + 1)) && n.layer[0] >= '1' &&
        n.layer[0] <= '9') {
      n.number = std::stoi(n.layer);
      n.layer = n.word.substr(before + 1);
      n.word.resize(before);
    }
  }
  if (const Wanted w = by_own_name(n.word); w.entry || !w.why.empty()) return n;
  // A short form: letters, a layer's number, which norm.
  std::string norm;
  if (n.layer.empty()) {
    const std::size_t digit = n.word.find_first_of("0123456789");
    if (digit != std::string::npos) {
      const std::size_t after = std::min(n.word.find_first_not_of("0123456789", digit), n.word.size());
      norm = n.word.substr(after);
      n.layer = n.word.substr(digit, after - digit);
      n.word = n.word.substr(0, digit);
    }
  }
  if (norm.empty() && by_own_name(n.word).entry && !n.layer.empty()) return n;
  n.word = hook_of_short(n.word, norm);
  n.hook = true;
  return n;
}

// The name TransformerLens has for an entry in a layer, or "". Of two parts of one kind neither has one, but
// their norms.
std::string usual_hook(const Entry& e, const Layer* layer, int part) {
  std::vector<std::string> names;
  const bool alone = part < 0 || layer->parts[static_cast<std::size_t>(part)].of == 1;
  for (std::string_view hook : split(e.hooks))
    if (alone) names.emplace_back(hook);
  if (part >= 0 && (e.kind == Kind::normalized || e.kind == Kind::norm_scale))
    names.push_back(concat("ln", part + 1, e.kind == Kind::normalized ? ".hook_normalized" : ".hook_scale"));
  for (std::string& name : names)
    if (const Wanted w = by_hook(layer, name); w.entry && w.entry->name == e.name) return std::move(name);
  return "";
}

std::vector<Stack> stacks_of(const Model& model) {
  std::vector<Stack> out;
  if (model.encoder) out.push_back(Stack::encoder);
  if (model.decoder) out.push_back(Stack::decoder);
  return out;
}

// What there is instead: the points of one layer, or those outside the layers.
std::string instead(const Model& model, Stack which, int layer) {
  std::vector<std::string> names;
  for (const Entry& e : entries()) {
    if ((e.of == Owner::stack) != (layer < 0)) continue;
    const std::vector<int> parts = parts_with(e, stack_at(model, which), layer);
    if (std::any_of(parts.begin(), parts.end(), [&](int part) {
          return point_at(e, {model, which, stack_at(model, which), layer, part}).point.has_value();
        }))
      names.push_back(e.name);
  }
  return join(names);
}

}  // namespace

std::vector<Point> find_points(const Model& model, std::string_view text) {
  const Name name = read_name(text);
  const std::vector<Stack> stacks = stacks_of(model);
  const auto refuse = [&](std::string_view why, Stack which, int layer) {
    fail_usage("there is no '", text, "' in ", model.recipe.name, ": ", why, "; ",
               layer < 0 ? "outside its layers" : concat("layer ", layer), " has ",
               instead(model, which, layer));
  };
  Stack which = stacks.back();
  if (name.stack) {
    which = *name.stack;
    if (std::find(stacks.begin(), stacks.end(), which) == stacks.end())
      fail_usage("there is no '", text, "' in ", model.recipe.name, ": it has no ", word_for(which));
  }
  const LayerStack& stack = stack_at(model, which);
  const int depth = stack.depth();
  const auto wanted = [&](int layer) {
    if (!name.hook) return by_own_name(name.word);
    return by_hook(layer < 0 || stack.recurrent ? nullptr : &stack.layers[static_cast<std::size_t>(layer)],
                   name.word);
  };

  std::vector<int> layers;
  if (name.layer == "*") {
    for (int i = 0; i < depth; ++i) layers.push_back(i);
  } else if (!name.layer.empty()) {
    int i = 0;
    std::from_chars(name.layer.data(), name.layer.data() + name.layer.size(), i);
    if (name.layer[0] == '-') i += depth;
    if (i < 0 || i >= depth)
      fail_usage("there is no '", text, "' in ", model.recipe.name, ": its ", word_for(which),
                 " has layers 0 to ", depth - 1);
    layers.push_back(i);
  } else {
    layers.push_back(-1);
  }

  std::vector<Point> points;
  std::string why;
  for (int layer : layers) {
    const Wanted w = in_layer(wanted(layer), stack, layer);
    if (!w.entry) {
      if (!w.why.empty()) refuse(w.why, which, layer);
      if (layer < 0 && name.hook && !stack.layers.empty() && by_hook(&stack.layers[0], name.word).entry)
        fail_usage("'", text, "' is a point of every layer: say which, as in blocks.0.", name.word);
      std::vector<std::string> known;
      for (const Entry& e : entries()) known.push_back(e.name);
      fail_name("'", text, "' is no point; ", name_hint(text.substr(0, text.rfind('.')), known),
                " (rapt inspect tensors MODEL lists all)");
    }
    const bool of_stack = w.entry->of == Owner::stack;
    if (of_stack && layer >= 0)
      fail_usage("'", text, "' stands outside the layers: write it without a number");
    if (!of_stack && layer < 0)
      fail_usage("'", text, "' is a point of every layer: say which, as in ", name.word, ".0 … ", name.word,
                 ".", depth - 1, ", or ", name.word, ".* for all");
    if (stacks.size() == 2 && !name.stack && w.entry->absent != no_head) {
      const std::string_view rest = text.substr(text.starts_with("blocks.") ? 7 : 0);
      fail_usage("'", text, "': ", model.recipe.name, " has an encoder and a decoder; write encoder.", rest,
                 " or decoder.", rest);
    }
    const std::vector<int> parts = parts_with(*w.entry, stack, layer);
    if (parts.empty() && why.empty())
      why = w.entry->its.word == "moe" ? "this layer has no experts"
                                       : concat("this layer has no ", w.entry->its.title,
                                                w.entry->its.title == "feed-forward" ? " part" : "");
    const int number = name.number > 0 ? name.number : w.number, count = static_cast<int>(parts.size());
    if (name.number > 0 && (w.entry->of != Owner::part || number > count))
      fail_usage("there is no '", text, "' in ", model.recipe.name, ": layer ", layer, " has ",
                 w.entry->of != Owner::part
                     ? concat("one ", w.entry->name)
                     : concat(count, " ", w.entry->its.title, count == 1 ? " part" : " parts"),
                 ", counted from 1");
    if (count > 1 && number == 0 && name.layer != "*")
      fail_usage("'", text, "' means ", count, " things: layer ", layer, " of ", model.recipe.name, " has ",
                 count, " ", w.entry->its.title, " parts; write ", w.entry->name, ".", layer, ".1 … ",
                 w.entry->name, ".", layer, ".", count);
    for (int i = 0; i < count; ++i) {
      if (number > 0 && i != number - 1) continue;
      Found found = point_at(*w.entry, {model, which, stack, layer, parts[static_cast<std::size_t>(i)]});
      if (found.point) points.push_back(std::move(*found.point));
      else if (why.empty()) why = found.why;
    }
  }
  if (points.empty()) refuse(why, which, layers.empty() ? -1 : layers[0]);
  return points;
}

std::vector<PointLine> list_points(const Model& model) {
  std::vector<PointLine> lines;
  const std::vector<Stack> stacks = stacks_of(model);
  for (Stack which : stacks) {
    const LayerStack& stack = stack_at(model, which);
    for (const Entry& e : entries()) {
      int most = 1;  // parts of this kind in a layer
      for (int layer = 0; layer < stack.depth() && e.of == Owner::part; ++layer)
        most = std::max(most, static_cast<int>(parts_with(e, stack, layer).size()));
      for (int number = 0; number < most; ++number) {
        PointLine line;
        int part = -1;
        for (int layer = e.of == Owner::stack ? -1 : 0; layer < (e.of == Owner::stack ? 0 : stack.depth());
             ++layer) {
          const std::vector<int> parts = parts_with(e, stack, layer);
          if (number >= static_cast<int>(parts.size())) continue;
          Found found = point_at(e, {model, which, stack, layer, parts[static_cast<std::size_t>(number)]});
          if (!found.point) continue;
          if (line.layers++ == 0)
            line.example = std::move(*found.point), line.first = layer,
            part = parts[static_cast<std::size_t>(number)];
        }
        if (line.layers == 0) continue;
        line.name = concat(stacks.size() == 2 ? concat(word_for(which), ".") : "", e.name,
                           e.of == Owner::stack ? "" : ".L", most > 1 ? concat(".", number + 1) : "");
        const bool outside = e.of == Owner::stack || stack.recurrent;
        const std::string hook =
            usual_hook(e, outside ? nullptr : &stack.layers[static_cast<std::size_t>(line.first)], part);
        const std::string block = stacks.size() == 2 ? word_for(which) : e.of == Owner::stack ? "" : "blocks";
        if (!hook.empty())
          line.lens = concat(block, block.empty() ? "" : ".", e.of == Owner::stack ? "" : "L.", hook);
        const auto same =
            std::find_if(lines.begin(), lines.end(), [&](const PointLine& l) { return l.name == line.name; });
        if (same == lines.end()) lines.push_back(std::move(line));
        else same->layers += line.layers;  // of another kind of part
      }
    }
  }
  return lines;
}

std::vector<std::vector<std::string>> other_names(const Model& model, std::span<const PointLine> lines) {
  std::vector<std::vector<std::string>> out(lines.size());
  const bool both = model.encoder && model.decoder;
  // Every name there is, looked up once for each place where lines begin.
  std::set<std::pair<Stack, int>> places;
  for (const PointLine& line : lines) places.emplace(line.example.stack, line.first);
  for (const auto& [which, layer] : places) {
    const bool inside = layer >= 0;
    const std::string stack = both ? concat(word_for(which), ".") : "", block = !inside ? stack
                                                                                : both  ? concat(stack, "L.")
                                                                                        : "blocks.L.";
    std::vector<std::string> names;
    for (const Entry& e : entries())
      for (std::string_view hook : split(e.hooks)) names.push_back(concat(block, hook));
    for (int part = 1; inside && part <= 9; ++part)
      for (const char* hook : {".hook_in", ".hook_scale", ".hook_normalized", ".hook_out"})
        names.push_back(concat(block, "ln", part, hook));
    for (const BridgeName& b : kBridge)
      if (inside) names.push_back(concat(block, b.theirs));
    for (const Alias& a : kAliases)
      names.push_back(concat(stack, a.theirs, !inside ? "" : a.brackets ? "[L]" : "-L"));
    for (const std::string& name : names) {
      std::string here = name;
      if (inside) here.replace(here.find('L', stack.size()), 1, std::to_string(layer));
      std::vector<Point> found;
      try {
        found = find_points(model, here);
      } catch (const Error&) {  // there is no such point here
        continue;
      }
      for (std::size_t i = 0; i < lines.size() && found.size() == 1; ++i)
        if (lines[i].example.stack == which && lines[i].first == layer &&
            lines[i].example.name == found[0].name && name != lines[i].name &&
            std::find(out[i].begin(), out[i].end(), name) == out[i].end())
          out[i].push_back(name);
    }
  }
  return out;
}

std::vector<Dim> point_shape(const Model& model, const Point& point, Dim rows, Dim source) {
  const bool both = model.encoder && model.decoder, of_source = both && point.stack == Stack::encoder;
  std::vector<Dim> shape = point.shape;
  for (Dim& n : shape) {
    if (n == Point::kRows) n = of_source ? source : rows + model.recipe.embed.sink_tokens;
    if (n == Point::kKeys) n = source;
    if (n == Point::kResults) n = rows;
  }
  return shape;
}

std::string shape_text(const Point& point) {
  std::string out;
  for (Dim n : point.shape)
    out += concat(out.empty() ? "" : ",", n == Point::kRows || n == Point::kResults ? "T"
                                          : n == Point::kKeys                       ? "S"
                                                                                    : std::to_string(n));
  return concat("[", out, "]");
}

bool is_at(const Tapped& t, const Point& p) {
  return t.site == p.site && t.stack == p.stack && (p.layer < 0 || t.layer == p.layer) &&
         (p.part < 0 || t.part == p.part);
}

}  // namespace rapt
