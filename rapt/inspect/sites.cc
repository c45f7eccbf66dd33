// SPDX-License-Identifier: Apache-2.0
// kEntries lists every point. A name is split into stack, word and layer, looked up, placed in the model.
#include "rapt/inspect/sites.h"

#include <algorithm>
#include <charconv>
#include <optional>

#include "rapt/base/text.h"
#include "rapt/inspect/look.h"

namespace rapt {
namespace {

using At = GateRecipe::At;
using Kind = Point::Kind;

// What an entry of the table is asked about: a stack, a layer of it, a part of that.
struct Place {
  const Model& model;
  Stack which;
  const LayerStack& stack;
  int layer = -1, part = -1;
  const Layer& its_layer() const { return stack.layers[static_cast<std::size_t>(layer)]; }
  const Part& its_part() const { return its_layer().parts[static_cast<std::size_t>(part)]; }
  const Attention& attention() const { return its_part().attn; }
  bool last_stack() const { return which == (model.decoder ? Stack::decoder : Stack::encoder); }
};

using Absent = std::string (*)(const Place&);  // why this place has no such point; "" where it has

std::string no_positions(const Place& p) {
  return p.model.recipe.embed.pos == EmbedRecipe::Pos::none ? "nothing is added to its embeddings for positions" : "";
}
std::string no_final_norm(const Place& p) {
  return p.stack.final_norm ? "" : "it has no final norm: the last layer's resid_post is what the head reads";
}
std::string no_head(const Place& p) {
  if (!p.last_stack()) return "the head stands on the decoder";
  return p.model.recipe.head.kind == HeadRecipe::Kind::none ? "it has no head: its last hidden state is the result" : "";
}
std::string no_middle(const Place& p) {
  if (p.its_layer().parallel)
    return "its attention and feed-forward parts read the same input and are added at once, so there is no stream between them";
  return p.its_layer().parts.size() < 2 ? "its layers have one part only" : "";
}
std::string no_middle_cross(const Place& p) { return p.its_layer().parts.size() < 3 ? "its layers have no cross-attention" : no_middle(p); }
std::string no_sum_norm(const Place& p) {
  return p.its_layer().parts[static_cast<std::size_t>(p.part)].norm_sum ? "" : "no norm of it stands on the residual stream itself";
}
std::string no_norm(const std::optional<NormLayer>& norm) {
  if (!norm) return "there is no such norm in it";
  const NormRecipe::Kind kind = norm->recipe.kind;
  return kind == NormRecipe::Kind::layer || kind == NormRecipe::Kind::rms ? "" : "only LayerNorm and RMSNorm have this value";
}
// The norm a part reads through, or that stands on the sum behind it; of a parallel layer the one they share.
const std::optional<NormLayer>& norm_around(const Layer& layer, const Part& part) {
  if (layer.parallel && layer.norm_in) return layer.norm_in;
  return part.norm_in ? part.norm_in : part.norm_sum;
}
std::string no_part_norm(const Place& p) { return no_norm(norm_around(p.its_layer(), p.its_part())); }
std::string no_last_norm(const Place& p) { return no_norm(p.stack.final_norm); }
std::string no_q_norm(const Place& p) { return p.attention().q_norm ? "" : "its queries and keys have no norm"; }
std::string no_q_norm_in(const Place& p) {
  const Attention& a = p.attention();
  if (!a.q_norm) return no_q_norm(p);
  return a.gate_at(At::q) || a.gate_at(At::k) || a.general || a.cosine || a.norm_after_pos
             ? "its norm does not read the projection itself, and what it reads is not held"
             : "";
}
std::string no_rotation(const Place& p) {
  const Attention& a = p.attention();
  if (!a.rope) return "its queries and keys are not rotated: attn_q and attn_k are what its attention reads";
  return a.norm_after_pos || a.scale ? "something stands behind its rotation: attn_q and attn_k are what its attention reads" : "";
}
template <At at>
std::string no_gate(const Place& p) {
  const auto& gate = p.attention().gate_at(at);
  if (!gate) return "its attention has no gate there";
  return gate->value ? "its gate is a constant" : "";
}
std::string no_glu(const Place& p) {
  return p.its_part().ffn.recipe.kind == FfnRecipe::Kind::glu ? "" : "its feed-forward parts have one projection only: mlp_pre";
}
std::string no_scores(const Place& p) {
  if (p.attention().mask.keep > 0 && (p.attention().rope || p.attention().spec.bias != Bias::none))
    return "its rows stand at a second position towards the kept first keys, which plain scores do not know; attn_weights has them";
  return "";
}

enum class Of { stack, layer, attention, ffn };
constexpr int kNone = -2, kFirst = 0, kSecond = 1, kLast = -1;

// Axes: T rows, S rows that are looked at, R rows of the result, C width, H heads, K kv heads, D head size, V value size, F hidden, G gate,
// U results, 1. Hooks: TransformerLens's names inside a block, the usual one first.
struct Entry {
  const char* name;
  Of of;
  Site site;
  const char* axes;
  const char* hooks;
  Absent absent = nullptr;
  Kind kind = Kind::value;
  int part = kNone;  // of a layer: which part shows it; kLast: the last one
  std::optional<At> gate = {};
  const char* fixed = "";
};
constexpr const char* kInside = "it lives inside the fused kernel; edit q, k, value or z of the same layer";
constexpr const char* kMade = "it is computed beside the pass; edit what it is made of";
constexpr const char* kGate = "the gate is applied in one step; edit the same point without _act";

// clang-format off
const Entry kEntries[] = {
  {"embeddings", Of::stack, Site::tokens, "TC", "hook_embed embed.hook_out"},
  {"pos_embeddings", Of::stack, Site::positions, "TC", "hook_pos_embed pos_embed.hook_out", no_positions},
  {"full_embeddings", Of::stack, Site::embed, "TC", "hook_full_embed"},
  {"resid_pre", Of::layer, Site::resid_in, "TC", "hook_resid_pre hook_in", nullptr, Kind::value, kFirst},
  {"attn_norm_scale", Of::attention, Site::resid_in, "T1", "", no_part_norm, Kind::norm_scale, kNone, {}, kMade},
  {"attn_normalized", Of::attention, Site::resid_in, "TC", "", no_part_norm, Kind::normalized, kNone, {}, kMade},
  {"attn_in", Of::attention, Site::attn_in, "TC", "attn.hook_in"},
  {"q", Of::attention, Site::q_proj, "THD", "attn.hook_q attn.q.hook_out"},
  {"k", Of::attention, Site::k_proj, "SKD", "attn.hook_k attn.k.hook_out"},
  {"value", Of::attention, Site::v_proj, "SKV", "attn.hook_v attn.v.hook_out"},
  {"q_norm_in", Of::attention, Site::q_proj, "THD", "attn.q_norm.hook_in", no_q_norm_in},
  {"k_norm_in", Of::attention, Site::k_proj, "SKD", "attn.k_norm.hook_in", no_q_norm_in},
  {"q_norm_out", Of::attention, Site::q_normed, "THD", "attn.q_norm.hook_out attn.hook_q_normed", no_q_norm},
  {"k_norm_out", Of::attention, Site::k_normed, "SKD", "attn.k_norm.hook_out attn.hook_k_normed", no_q_norm},
  {"rot_q", Of::attention, Site::q, "THD", "attn.hook_rot_q", no_rotation},
  {"rot_k", Of::attention, Site::k, "SKD", "attn.hook_rot_k", no_rotation},
  {"attn_q", Of::attention, Site::q, "THD", ""},
  {"attn_k", Of::attention, Site::k, "SKD", ""},
  {"attn_v", Of::attention, Site::v, "SKV", ""},
  {"attn_gate_q", Of::attention, Site::gate_in, "TG", "", no_gate<At::q>, Kind::value, kNone, At::q},
  {"attn_gate_q_act", Of::attention, Site::gate, "TG", "", no_gate<At::q>, Kind::value, kNone, At::q, kGate},
  {"attn_gate_k", Of::attention, Site::gate_in, "SG", "", no_gate<At::k>, Kind::value, kNone, At::k},
  {"attn_gate_k_act", Of::attention, Site::gate, "SG", "", no_gate<At::k>, Kind::value, kNone, At::k, kGate},
  {"attn_gate_v", Of::attention, Site::gate_in, "SG", "", no_gate<At::v>, Kind::value, kNone, At::v},
  {"attn_gate_v_act", Of::attention, Site::gate, "SG", "", no_gate<At::v>, Kind::value, kNone, At::v, kGate},
  {"attn_scores", Of::attention, Site::q, "HTS", "attn.hook_attn_scores", no_scores, Kind::scores, kNone, {}, kInside},
  {"attn_weights", Of::attention, Site::attn_weights, "HTS", "attn.hook_pattern", nullptr, Kind::weights, kNone, {}, kInside},
  {"attn_gate", Of::attention, Site::gate_in, "TG", "attn.hook_q_gate", no_gate<At::sdpa>, Kind::value, kNone, At::sdpa},
  {"attn_gate_act", Of::attention, Site::gate, "TG", "", no_gate<At::sdpa>, Kind::value, kNone, At::sdpa, kGate},
  {"z", Of::attention, Site::z, "THV", "attn.hook_z attn.o.hook_in"},
  {"attn_gate_out", Of::attention, Site::gate_in, "TG", "", no_gate<At::out>, Kind::value, kNone, At::out},
  {"attn_gate_out_act", Of::attention, Site::gate, "TG", "", no_gate<At::out>, Kind::value, kNone, At::out, kGate},
  {"attn_out", Of::attention, Site::attn_out, "TC", "attn.hook_out"},
  {"attn_out_post", Of::attention, Site::part_out, "TC", "hook_attn_out"},
  {"resid_mid_sum", Of::layer, Site::resid_sum, "TC", "", no_sum_norm, Kind::value, kFirst},
  {"resid_mid", Of::layer, Site::resid_in, "TC", "hook_resid_mid", no_middle, Kind::value, kSecond},
  {"resid_mid_cross", Of::layer, Site::resid_in, "TC", "hook_resid_mid_cross", no_middle_cross, Kind::value, kLast},
  {"mlp_norm_scale", Of::ffn, Site::resid_in, "T1", "", no_part_norm, Kind::norm_scale, kNone, {}, kMade},
  {"mlp_normalized", Of::ffn, Site::resid_in, "TC", "", no_part_norm, Kind::normalized, kNone, {}, kMade},
  {"mlp_in", Of::ffn, Site::ffn_in, "TC", "mlp.hook_in"},
  {"mlp_pre", Of::ffn, Site::ffn_pre, "TF", "mlp.hook_pre mlp.gate.hook_out"},
  {"mlp_pre_linear", Of::ffn, Site::ffn_linear, "TF", "mlp.hook_pre_linear mlp.in.hook_out", no_glu},
  {"mlp_act", Of::ffn, Site::ffn_hidden, "TF", "mlp.hook_post mlp.out.hook_in"},
  {"mlp_out", Of::ffn, Site::ffn_out, "TC", "mlp.hook_out mlp.out.hook_out"},
  {"mlp_out_post", Of::ffn, Site::part_out, "TC", "hook_mlp_out"},
  {"resid_post_sum", Of::layer, Site::resid_sum, "TC", "", no_sum_norm, Kind::value, kLast},
  {"resid_post", Of::layer, Site::resid_out, "TC", "hook_resid_post hook_out hook_normalized_resid_post"},
  {"final_norm_scale", Of::stack, Site::resid_out, "T1", "ln_final.hook_scale", no_last_norm, Kind::norm_scale, kNone, {}, kMade},
  {"final_normalized", Of::stack, Site::resid_out, "TC", "ln_final.hook_normalized", no_last_norm, Kind::normalized, kNone, {}, kMade},
  {"final_norm", Of::stack, Site::final_norm, "TC", "ln_final.hook_out", no_final_norm},
  {"lm_head", Of::stack, Site::unembed, "RU", "unembed.hook_out", no_head},
  {"logits", Of::stack, Site::logits, "RU", "", no_head},
};

// Names of TransformerLens that are known and have no tensor here.
struct Refused { const char *hook, *why; };
const Refused kRefused[] = {
  {"attn.hook_result", "each head's own part of the output is not held: multiply z by the head's columns of the output matrix"},
  {"hook_attn_in", "TransformerLens means the residual stream before the norm (use_attn_in): that is resid_pre; after the norm: attn_in"},
  {"hook_cross_attn_in", "TransformerLens means the residual stream before the norm: that is resid_mid; after the norm: cross_attn_in"},
  {"hook_mlp_in", "TransformerLens means the residual stream before the norm (use_hook_mlp_in): that is resid_mid; after the norm: mlp_in"},
  {"hook_q_input", "copies of the input per head are not made: attn_in is what all heads read"},
  {"hook_k_input", "copies of the input per head are not made: attn_in is what all heads read"},
  {"hook_v_input", "copies of the input per head are not made: attn_in is what all heads read"},
  {"mlp.hook_mid", "there is no norm inside the feed-forward part"},
  {"mlp.hook_expert_indices", "it has no experts"},
  {"mlp.hook_expert_weights", "it has no experts"},
  {"router_logits", "it has no experts"},
  {"expert_weights", "it has no experts"},
  {"expert_indices", "it has no experts"},
  {"hook_token_type_embed", "embeddings of token types are not held apart: full_embeddings has them in it"},
  {"hook_tokens", "tokens are written beside the tensors"},
  {"Qcur", "ggml calls queries so before and after their rotation: write q.L (before) or attn_q.L (what attention reads)"},
  {"Kcur", "ggml calls keys so before and after their rotation: write k.L (before) or attn_k.L (what attention reads)"},
  {"kq", "ggml's are not scaled yet: attn_scores.L are, and masked"},
  {"inp_tokens", "tokens are written beside the tensors"},
  {"inp_pos", "positions are the rows' numbers"},
  {"rotary_emb.hook_cos", "tables of angles are no tensors of a layer: rapt inspect positions shows them"},
  {"rotary_emb.hook_sin", "tables of angles are no tensors of a layer: rapt inspect positions shows them"},
};

// What nnterp and ggml's graphs call our points, in our words or as a hook.
struct Alias { const char *theirs, *ours; };
const Alias kAliases[] = {
  {"token_embeddings", "embeddings"}, {"layers_input", "resid_pre"}, {"layers_output", "resid_post"},
  {"attentions_input", "attn_in"}, {"attentions_output", "attn_out"}, {"attention_probabilities", "attn_weights"},
  {"mlps_input", "mlp_in"}, {"mlps_output", "mlp_out"},
  {"inp_embd", "embeddings"}, {"attn_norm", "attn_in"}, {"Vcur", "value"}, {"kq_soft_max", "attn_weights"}, {"kqv", "z"}, {"kqv_out", "z"},
  {"attn_out", "attn_out"}, {"ffn_inp", "resid_mid"}, {"ffn_norm", "mlp_in"}, {"ffn_gate", "mlp.gate.hook_out"},
  {"ffn_up", "mlp.in.hook_out"}, {"ffn_swiglu", "mlp_act"}, {"ffn_geglu", "mlp_act"}, {"ffn_out", "mlp_out"}, {"l_out", "resid_post"},
  {"result_norm", "final_norm"}, {"result_output", "logits"},
  {"Qcur", "Qcur"}, {"Kcur", "Kcur"}, {"kq", "kq"}, {"inp_tokens", "inp_tokens"}, {"inp_pos", "inp_pos"},
};
// clang-format on

std::vector<std::string_view> split(std::string_view words) {
  std::vector<std::string_view> out;
  while (!words.empty()) {
    const std::size_t end = std::min(words.find(' '), words.size());
    if (end > 0) out.push_back(words.substr(0, end));
    words.remove_prefix(std::min(end + 1, words.size()));
  }
  return out;
}

const LayerStack& stack_at(const Model& model, Stack which) { return which == Stack::encoder ? *model.encoder : *model.decoder; }
const char* word_for(Stack which) { return which == Stack::encoder ? "encoder" : "decoder"; }

int part_of(const Layer& layer, PartRecipe::Kind kind) {
  for (std::size_t i = 0; i < layer.parts.size(); ++i)
    if (layer.parts[i].kind == kind) return static_cast<int>(i);
  return -1;
}

std::string own_name(const Entry& e, bool cross) { return concat(cross ? "cross_" : "", e.name); }

// The point of an entry at a place, or why there is none.
struct Found {
  std::optional<Point> point;
  std::string why;
};

Dim size_of_axis(char axis, const Entry& e, const Place& p, bool cross) {
  switch (axis) {
    case 'T': return Point::kRows;
    case 'S': return cross ? Point::kKeys : Point::kRows;
    case 'R': return p.model.recipe.head.kind == HeadRecipe::Kind::classes ? 1 : Point::kResults;
    case 'C': return p.stack.recurrent && e.site == Site::resid_out ? p.stack.recurrent->recipe.out_width() : p.model.recipe.width;
    case 'H': return p.attention().spec.heads;
    case 'K': return p.attention().spec.kv_heads;
    case 'D': return p.attention().spec.head_dim;
    case 'V': return p.attention().spec.v_dim;
    case 'F': return p.its_part().ffn.up.w->rows;
    case 'G': return p.attention().gate_at(*e.gate)->w->rows;
    case 'U': return p.model.head.w->rows;
    default: return 1;
  }
}

Found point_at(const Entry& e, Place p, bool cross) {
  const bool inside = e.of == Of::attention || e.of == Of::ffn;
  if (p.stack.recurrent && ((e.of != Of::stack && e.site != Site::resid_out) || e.kind != Kind::value))
    return {{}, "its layers are recurrent cells: they show resid_post, and nothing inside"};
  if (inside) {
    const PartRecipe::Kind kind = e.of == Of::ffn ? PartRecipe::Kind::ffn : cross ? PartRecipe::Kind::cross : PartRecipe::Kind::self;
    p.part = part_of(p.its_layer(), kind);
    if (std::string why = why_nameless(p.model, p.which, p.layer, kind); !why.empty()) return {{}, std::move(why)};
    if (p.part < 0)
      return {{}, concat("this layer has no ", e.of == Of::ffn ? "feed-forward part" : cross ? "cross-attention" : "self-attention")};
  } else if (e.part != kNone) {
    const int last = static_cast<int>(p.its_layer().parts.size()) - 1;
    p.part = e.part == kLast ? last : std::min(e.part, last);
  }
  if (e.absent)
    if (std::string why = e.absent(p); !why.empty()) return {{}, std::move(why)};

  const bool both = p.model.encoder && p.model.decoder;
  Point point{.kind = e.kind, .site = e.site, .stack = p.which, .layer = p.layer, .cross = cross, .fixed = e.fixed};
  point.name = concat(both ? concat(word_for(p.which), ".") : "", own_name(e, cross), e.of == Of::stack ? "" : concat(".", p.layer));
  if (e.of == Of::attention) point.attention = &p.attention();
  if (e.site == Site::resid_in || e.site == Site::resid_sum || e.site == Site::part_out || e.gate) point.part = p.part;
  if (e.kind == Kind::normalized || e.kind == Kind::norm_scale) {  // the site is the norm's input
    point.norm = inside ? &*norm_around(p.its_layer(), p.its_part()) : &*p.stack.final_norm;
    if (!inside) point.layer = p.stack.depth() - 1;
    else if (p.its_layer().parallel) point.part = 0;
    else if (!p.its_part().norm_in) point.site = Site::resid_sum;
  }
  if (e.gate) {
    point.gate = 0;
    for (At at : {At::q, At::k, At::v, At::sdpa, At::out}) {
      if (at == *e.gate) break;
      point.gate += p.attention().gate_at(at) && p.attention().gate_at(at)->w;
    }
  }
  if (inside && p.attention().norm_after_pos && (e.site == Site::q_normed || e.site == Site::k_normed))
    point.site = e.site == Site::q_normed ? Site::q : Site::k;  // that norm stands behind the rotation
  for (const char* axis = e.axes; *axis; ++axis) point.shape.push_back(size_of_axis(*axis, e, p, cross));
  return {std::move(point), ""};
}

// ------------------------------------------------------------------------------------------------ names
struct Wanted {
  const Entry* entry = nullptr;
  bool cross = false;
  std::string why = {};  // no entry: a name that is known and refused
};

Wanted by_own_name(std::string_view name) {
  if (name == "attn_probs" || name == "cross_attn_probs") name = name[0] == 'a' ? "attn_weights" : "cross_attn_weights";
  for (const Entry& e : kEntries) {
    if (name == e.name) return {&e, false};
    if (e.of == Of::attention && name == own_name(e, true)) return {&e, true};
  }
  for (const Refused& r : kRefused)
    if (name == r.hook) return {nullptr, false, r.why};
  return {};
}

// ln1, ln2, … are the norms of a layer's parts in their order.
Wanted by_norm_hook(const Layer& layer, std::string_view hook) {
  const std::size_t i = hook.size() > 4 && hook[3] == '.' ? static_cast<std::size_t>(hook[2] - '1') : layer.parts.size();
  if (i >= layer.parts.size())
    return {nullptr, false, concat("this layer has ", layer.parts.size(), " parts, so its norms are ln1 … ln", layer.parts.size())};
  const Part& part = layer.parts[i];
  const bool cross = part.kind == PartRecipe::Kind::cross, ffn = part.kind == PartRecipe::Kind::ffn, last = i + 1 == layer.parts.size();
  const bool on_sum = !layer.parallel && !part.norm_in && part.norm_sum;
  const std::string_view what = hook.substr(4);
  if (what == "hook_normalized" || what == "hook_scale")
    return by_own_name(concat(ffn ? "mlp" : cross ? "cross_attn" : "attn", what == "hook_scale" ? "_norm_scale" : "_normalized"));
  const char* const stream = i == 0 ? "resid_mid" : last ? "resid_post" : "resid_mid_cross";
  if (what == "hook_in")
    return by_own_name(on_sum ? concat(stream, "_sum") : i == 0 || layer.parallel ? "resid_pre" : i == 1 ? "resid_mid" : "resid_mid_cross");
  if (what == "hook_out") return by_own_name(on_sum ? stream : ffn ? "mlp_in" : cross ? "cross_attn_in" : "attn_in");
  return {};
}

bool has_sum_norm(const Layer& layer) {
  return std::any_of(layer.parts.begin(), layer.parts.end(), [](const Part& p) { return p.norm_sum.has_value(); });
}

// `layer` is absent for the names that stand outside the blocks.
Wanted by_hook(const Layer* layer, std::string_view hook) {
  if (layer && hook.starts_with("ln")) return by_norm_hook(*layer, hook);
  bool cross = false;
  std::string name(hook);
  if (name.starts_with("cross_attn.")) cross = true, name.erase(0, 6);
  if (name.starts_with("self_attn.")) name.erase(0, 5);
  if (name == "hook_cross_attn_out") cross = true, name = "hook_attn_out";
  if (layer && has_sum_norm(*layer) && (name == "hook_resid_post" || name == "hook_resid_mid"))
    return {nullptr, false,
            concat("its norms stand on the residual stream, and TransformerLens means the sum before that norm in one of its versions and "
                   "what comes after it in the other: write ",
                   name.substr(5), ".L (after) or ", name.substr(5), "_sum.L (before)")};
  if (layer && !has_sum_norm(*layer) && name == "hook_normalized_resid_post")
    return {nullptr, false, "no norm of it stands on the residual stream itself"};
  if (layer && name == "mlp.in.hook_out")
    for (const Part& p : layer->parts)
      if (p.kind == PartRecipe::Kind::ffn && p.ffn.recipe.kind == FfnRecipe::Kind::mlp) name = "mlp.hook_pre";
  for (const Refused& r : kRefused)
    if (name == r.hook) return {nullptr, false, r.why};
  for (const Entry& e : kEntries) {
    if ((e.of == Of::stack) != !layer) continue;
    for (std::string_view h : split(e.hooks))
      if (h == name && (!cross || e.of == Of::attention)) return {&e, cross};
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
  return !text.empty() && text.size() < 7 && std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

struct Name {
  std::optional<Stack> stack;
  std::string word, layer;  // layer: "" where none was written
  bool hook = false;  // a name of TransformerLens
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
      return Name{stack, std::string(ours), std::string(layer), ours.find(".hook_") != std::string_view::npos};
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
  if (rest.starts_with("hook_") || rest.find(".hook_") != std::string_view::npos) return {n.stack, std::string(rest), "", true};
  const std::size_t end = rest.rfind('.');
  n.word = rest;
  if (end != std::string_view::npos && is_layer(rest.substr(end + 1))) {
    n.word = rest.substr(0, end);
    n.layer = rest.substr(end + 1);
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

// The name TransformerLens has for an entry in a layer, or "".
std::string usual_hook(const Entry& e, const Layer* layer, bool cross) {
  std::vector<std::string> names;
  for (std::string_view hook : split(e.hooks))
    names.push_back(!cross ? std::string(hook) : hook.starts_with("attn.") ? concat("cross_", hook) : "hook_cross_attn_out");
  if (layer && (e.kind == Kind::normalized || e.kind == Kind::norm_scale))
    for (std::size_t i = 1; i <= layer->parts.size(); ++i)
      names.push_back(concat("ln", i, e.kind == Kind::normalized ? ".hook_normalized" : ".hook_scale"));
  for (std::string& name : names)
    if (const Wanted w = by_hook(layer, name); w.entry == &e && w.cross == cross) return std::move(name);
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
  for (const Entry& e : kEntries)
    for (bool cross : {false, true}) {
      if ((e.of == Of::stack) != (layer < 0) || (cross && e.of != Of::attention)) continue;
      if (point_at(e, {model, which, stack_at(model, which), layer}, cross).point) names.push_back(own_name(e, cross));
    }
  return join(names);
}

}  // namespace

std::vector<Point> find_points(const Model& model, std::string_view text) {
  const Name name = read_name(text);
  const std::vector<Stack> stacks = stacks_of(model);
  const auto refuse = [&](std::string_view why, Stack which, int layer) {
    fail_usage("there is no '", text, "' in ", model.recipe.name, ": ", why, "; ",
               layer < 0 ? "outside its layers" : concat("layer ", layer), " has ", instead(model, which, layer));
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
    return by_hook(layer < 0 || stack.recurrent ? nullptr : &stack.layers[static_cast<std::size_t>(layer)], name.word);
  };

  std::vector<int> layers;
  if (name.layer == "*") {
    for (int i = 0; i < depth; ++i) layers.push_back(i);
  } else if (!name.layer.empty()) {
    int i = 0;
    std::from_chars(name.layer.data(), name.layer.data() + name.layer.size(), i);
    if (name.layer[0] == '-') i += depth;
    if (i < 0 || i >= depth)
      fail_usage("there is no '", text, "' in ", model.recipe.name, ": its ", word_for(which), " has layers 0 to ", depth - 1);
    layers.push_back(i);
  } else {
    layers.push_back(-1);
  }

  std::vector<Point> points;
  std::string why;
  for (int layer : layers) {
    const Wanted w = wanted(layer);
    if (!w.entry) {
      if (!w.why.empty()) refuse(w.why, which, layer);
      if (layer < 0 && name.hook && !stack.layers.empty() && by_hook(&stack.layers[0], name.word).entry)
        fail_usage("'", text, "' is a point of every layer: say which, as in blocks.0.", name.word);
      std::vector<std::string> known;
      for (const Entry& e : kEntries) known.push_back(e.name);
      fail_usage("'", text, "' is no point; ", name_hint(text.substr(0, text.rfind('.')), known),
                 " (rapt inspect tensors MODEL lists all)");
    }
    const bool of_stack = w.entry->of == Of::stack;
    if (of_stack && layer >= 0) fail_usage("'", text, "' stands outside the layers: write it without a number");
    if (!of_stack && layer < 0)
      fail_usage("'", text, "' is a point of every layer: say which, as in ", name.word, ".0 … ", name.word, ".", depth - 1, ", or ",
                 name.word, ".* for all");
    if (stacks.size() == 2 && !name.stack && w.entry->absent != no_head) {
      const std::string_view rest = text.substr(text.starts_with("blocks.") ? 7 : 0);
      fail_usage("'", text, "': ", model.recipe.name, " has an encoder and a decoder; write encoder.", rest, " or decoder.", rest);
    }
    Found found = point_at(*w.entry, {model, which, stack, layer}, w.cross);
    if (found.point) points.push_back(std::move(*found.point));
    else if (why.empty()) why = found.why;
  }
  if (points.empty()) refuse(why, which, layers.empty() ? -1 : layers[0]);
  return points;
}

std::vector<PointLine> list_points(const Model& model) {
  std::vector<PointLine> lines;
  const std::vector<Stack> stacks = stacks_of(model);
  for (Stack which : stacks) {
    const LayerStack& stack = stack_at(model, which);
    for (const Entry& e : kEntries)
      for (bool cross : {false, true}) {
        if (cross && e.of != Of::attention) continue;
        PointLine line;
        for (int layer = e.of == Of::stack ? -1 : 0; layer < (e.of == Of::stack ? 0 : stack.depth()); ++layer) {
          Found found = point_at(e, {model, which, stack, layer}, cross);
          if (!found.point) continue;
          if (line.layers++ == 0) line.example = std::move(*found.point), line.first = layer;
        }
        if (line.layers == 0) continue;
        line.name = concat(stacks.size() == 2 ? concat(word_for(which), ".") : "", own_name(e, cross), e.of == Of::stack ? "" : ".L");
        const bool outside = e.of == Of::stack || stack.recurrent;
        const std::string hook = usual_hook(e, outside ? nullptr : &stack.layers[static_cast<std::size_t>(line.first)], cross);
        const std::string block = stacks.size() == 2 ? word_for(which) : e.of == Of::stack ? "" : "blocks";
        if (!hook.empty()) line.lens = concat(block, block.empty() ? "" : ".", e.of == Of::stack ? "" : "L.", hook);
        lines.push_back(std::move(line));
      }
  }
  return lines;
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
    out += concat(out.empty() ? "" : ",", n == Point::kRows || n == Point::kResults ? "T" : n == Point::kKeys ? "S" : std::to_string(n));
  return concat("[", out, "]");
}

bool is_at(const Tapped& t, const Point& p) {
  return t.site == p.site && t.stack == p.stack && (p.layer < 0 || t.layer == p.layer) &&
         (p.part >= 0 ? t.part == p.part : t.cross == p.cross);
}

}  // namespace rapt
