// SPDX-License-Identifier: Apache-2.0
// Facts from llama.cpp (src/llama-quant.cpp, commit b21e4de, August 2026), which decides by the name of a
// tensor, how many of its kind came before it, and four numbers of the model.
#include "rapt/load/quant_mix.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <map>
#include <numeric>

#include "rapt/base/error.h"

namespace rapt {
namespace mixes {  // short names, that other sources may use as well
namespace {

using enum DType;

constexpr QuantMix kMixes[] = {
    {"q8_0", q8_0, 7},    {"q6_k", q6_k, 18},       {"q5_k_m", q5_k, 17},   {"q5_k_s", q5_k, 16},
    {"q5_0", q5_0, 8},    {"q5_1", q5_1, 9},        {"q4_k_m", q4_k, 15},   {"q4_k_s", q4_k, 14},
    {"q4_0", q4_0, 2},    {"q4_1", q4_1, 3},        {"iq4_nl", iq4_nl, 25}, {"iq4_xs", iq4_xs, 30},
    {"mxfp4", mxfp4, 38}, {"mxfp4_moe", mxfp4, 38}, {"q3_k_l", q3_k, 13},   {"q3_k_m", q3_k, 12},
    {"q3_k_s", q3_k, 11}, {"q2_k", q2_k, 10},       {"q2_k_s", q2_k, 21},
};

// -------------------------------------------------------------------------------------------------- kinds
enum class Kind { output, table, v, k, o, down, other };

constexpr std::string_view kOwnTable = "embed.tokens";

// By llama.cpp's names; ours stand in files of models that only we know.
Kind kind_of(std::string_view name) {
  const auto has = [&](std::string_view part) { return name.find(part) != std::string_view::npos; };
  if (name == "output.weight" || name == "head.weight") return Kind::output;
  if (name == "token_embd.weight" || name == "per_layer_token_embd.weight" || name == kOwnTable)
    return Kind::table;
  // Q, K and V in one matrix count as V does.
  if (has("attn_qkv.weight") || has("attn_kv_b.weight") || has("attn_v.weight") || has(".self.v.weight"))
    return Kind::v;
  if (has("attn_k.weight") || has(".self.k.weight")) return Kind::k;
  if (has("attn_q.weight")) return Kind::other;
  if (has("attn_output.weight") || has(".self.o.weight")) return Kind::o;
  if (has("ffn_up") || has("ffn_gate")) return Kind::other;
  if (has("ffn_down") || has(".ffn.down.weight")) return Kind::down;
  return Kind::other;
}

// Norms, routers, positions and what is small keep their type.
bool is_quantized(const MixedTensor& t) {
  static constexpr std::string_view kKept[] = {"_norm.weight",
                                               "ffn_gate_inp.weight",
                                               "ffn_gate_tid2eid.weight",
                                               "altup",
                                               "laurel",
                                               "per_layer_model_proj",
                                               "ssm_conv1d",
                                               "shortconv.conv.weight",
                                               "indexer.k_proj.weight",
                                               "indexer.q_proj.weight",
                                               "attn_rel_b.weight",
                                               ".position_embd",
                                               ".rel_pos",
                                               ".patch_embd",
                                               ".patch_merger"};
  if (!t.matrix || t.shape.size() < 2 || (!t.name.ends_with("weight") && t.name != kOwnTable)) return false;
  // Axes of size 1 at the end do not count: a matrix of one row is a vector there.
  std::size_t axes = t.shape.size();
  for (std::size_t i = 0; i + 1 < t.shape.size() && t.shape[i] == 1; ++i) --axes;
  if (axes < 2 || t.name == "position_embd.weight" || t.name == "token_types.weight") return false;
  return std::ranges::none_of(kKept, [&](std::string_view part) { return t.name.find(part) != t.name.npos; });
}

// -------------------------------------------------------------------------------------------------- rules
struct Turn {  // of a tensor among those of its kind
  std::int64_t i = 0, n = 0;
  bool gqa4 = false, falcon = false, experts8 = false;
};
using When = bool (*)(const Turn&);
bool always(const Turn&) { return true; }
bool gqa4(const Turn& p) { return p.gqa4; }
bool first_two(const Turn& p) { return p.i < 2; }
bool first_four(const Turn& p) { return p.i < 4; }
bool first_eighth(const Turn& p) { return p.i < p.n / 8; }
bool first_sixteenth(const Turn& p) { return p.i < p.n / 16; }
// The first and the last eighth of the layers, and every third between them.
bool more_bits(const Turn& p) { return p.i < p.n / 8 || p.i >= 7 * p.n / 8 || (p.i - p.n / 8) % 3 == 2; }
bool falcon(const Turn& p) { return p.falcon; }
bool not_falcon(const Turn& p) { return !p.falcon; }
bool falcon_sixteenth(const Turn& p) { return p.falcon && first_sixteenth(p); }
bool falcon_more(const Turn& p) { return p.falcon && more_bits(p); }
bool other_more(const Turn& p) { return !p.falcon && more_bits(p); }
bool other_eighth(const Turn& p) { return !p.falcon && first_eighth(p); }
bool other_or_more(const Turn& p) { return !p.falcon || more_bits(p); }
bool experts8(const Turn& p) { return p.experts8; }
bool other_experts8(const Turn& p) { return !p.falcon && p.experts8; }
bool other_not_experts8(const Turn& p) { return !p.falcon && !p.experts8; }

struct Rule {
  std::string_view mix;  // "": every one
  Kind kind;
  When when;
  DType type;
};
// The first that fits decides; none: the mix's own type.
constexpr Rule kRules[] = {
    {"", Kind::v, experts8, q8_0},
    {"q2_k", Kind::v, gqa4, q4_k},
    {"q2_k", Kind::v, always, q3_k},
    {"q2_k_s", Kind::v, gqa4, q4_k},
    {"q3_k_m", Kind::v, first_two, q5_k},
    {"q3_k_m", Kind::v, always, q4_k},
    {"q3_k_l", Kind::v, always, q5_k},
    {"q4_k_s", Kind::v, first_four, q5_k},
    {"q4_k_m", Kind::v, more_bits, q6_k},
    {"q5_k_m", Kind::v, more_bits, q6_k},
    {"iq4_nl", Kind::v, gqa4, q5_k},
    {"iq4_xs", Kind::v, gqa4, q5_k},

    {"", Kind::k, experts8, q8_0},

    {"q2_k", Kind::down, always, q3_k},
    {"q2_k_s", Kind::down, first_eighth, q4_k},
    {"q3_k_m", Kind::down, first_sixteenth, q5_k},
    {"q3_k_m", Kind::down, other_or_more, q4_k},
    {"q3_k_l", Kind::down, falcon, q4_k},
    {"q3_k_l", Kind::down, not_falcon, q5_k},
    {"q4_k_s", Kind::down, other_eighth, q5_k},
    {"q4_k_m", Kind::down, falcon_sixteenth, q6_k},
    {"q4_k_m", Kind::down, falcon_more, q5_k},
    {"q4_k_m", Kind::down, other_more, q6_k},
    {"q5_k_m", Kind::down, more_bits, q6_k},
    {"iq4_nl", Kind::down, first_eighth, q5_k},
    {"iq4_xs", Kind::down, first_eighth, q5_k},

    {"q2_k", Kind::o, other_experts8, q5_k},
    {"q3_k_s", Kind::o, other_experts8, q5_k},
    {"q3_k_m", Kind::o, other_experts8, q5_k},
    {"q4_k_s", Kind::o, other_experts8, q5_k},
    {"q4_k_m", Kind::o, other_experts8, q5_k},
    {"iq4_nl", Kind::o, other_experts8, q5_k},
    {"iq4_xs", Kind::o, other_experts8, q5_k},
    {"q2_k", Kind::o, other_not_experts8, q3_k},
    {"q3_k_m", Kind::o, other_not_experts8, q4_k},
    {"q3_k_l", Kind::o, other_not_experts8, q5_k},
    {"q3_k_l", Kind::o, falcon, q4_k},
};

// Models of about 70 billion weights: V is an eighth of Q, and gets more bits for little.
bool is_70b(const MixedModel& m) {
  if (m.arch == "llama") return m.layers == 80 && m.experts != 8 && m.heads != m.kv_heads;
  if (m.arch == "jais2") return m.layers == 68;
  return m.layers == 80 && (m.arch == "qwen2" || m.arch == "olmo" || m.arch == "deci");
}

// N of "blk.N.…" (ours: "decoder.N.…"); -1: another name.
std::int64_t layer_of(std::string_view name) {
  for (const std::string_view begin : {"blk.", "decoder."}) {
    std::int64_t n = -1;
    if (!name.starts_with(begin)) continue;
    const auto [end, wrong] = std::from_chars(name.data() + begin.size(), name.data() + name.size(), n);
    if (wrong == std::errc{} && end != name.data() + name.size() && *end == '.') return n;
  }
  return -1;
}

DType wanted(const QuantMix& mix, const MixedModel& model, const MixedTensor& t, Kind kind, bool tied,
             Turn turn) {
  const std::string_view name = mix.name;
  const Dim cols = t.shape.back();
  if (kind == Kind::output || (kind == Kind::table && tied)) {
    if (name == "mxfp4_moe" || turn.falcon || cols % static_cast<Dim>(info_of(mix.type).block) != 0)
      return q8_0;
    return mix.type == q8_0 ? q8_0 : q6_k;
  }
  if (name == "mxfp4_moe") return t.shape.size() > 2 && t.shape[t.shape.size() - 3] > 1 ? mxfp4 : q8_0;
  DType type = mix.type;
  for (const Rule& r : kRules)
    if ((r.mix.empty() || r.mix == name) && r.kind == kind && r.when(turn)) {
      type = r.type;
      break;
    }
  if (kind == Kind::v && (type == q3_k || type == q4_k) && is_70b(model)) type = q5_k;
  return type;
}

}  // namespace
}  // namespace mixes

using namespace mixes;

std::span<const QuantMix> quant_mixes() { return kMixes; }

const QuantMix* find_mix(std::string_view name) {
  std::string low(name);
  for (char& c : low) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  if (low == "q3_k" || low == "q4_k" || low == "q5_k") low += "_m";
  const auto it = std::ranges::find(kMixes, low, &QuantMix::name);
  return it == std::end(kMixes) ? nullptr : it;
}

const QuantMix& mix_of(DType type) {
  const QuantMix* mix = find_mix(name_of(type));
  if (!mix) fail("quantize: ", name_of(type), " is read, not made");
  return *mix;
}

DType fitting_type(DType type, Dim cols) {
  using enum DType;
  const auto fits = [&](DType t) { return cols % static_cast<Dim>(info_of(t).block) == 0; };
  if (fits(type)) return type;
  DType next = f16;
  switch (type) {
    case q2_k:
    case q3_k: next = q4_0; break;
    case q4_k: next = q5_0; break;
    case q5_k: next = q5_1; break;
    case q6_k: next = q8_0; break;
    case iq4_xs: next = iq4_nl; break;
    default: break;
  }
  return fits(next) ? next : f16;
}

std::vector<MixedType> mixed_types(const QuantMix& mix, const MixedModel& model,
                                   std::span<const MixedTensor> tensors) {
  // Counted in the order of layers, then of names.
  std::vector<std::size_t> order(tensors.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::sort(order, [&](std::size_t a, std::size_t b) {
    const std::int64_t x = layer_of(tensors[a].name), y = layer_of(tensors[b].name);
    return x != y ? x < y : tensors[a].name < tensors[b].name;
  });
  std::map<Kind, std::int64_t> before, of;
  bool tied = true;
  for (const MixedTensor& t : tensors) {
    const Kind kind = kind_of(t.name);
    ++of[kind];
    tied = tied && kind != Kind::output;
  }
  if (model.layers > 0) of[Kind::down] = model.layers;
  std::vector<MixedType> out(tensors.size());
  for (const std::size_t at : order) {
    const MixedTensor& t = tensors[at];
    if (!is_quantized(t)) continue;
    const Kind kind = kind_of(t.name);
    Turn turn{.i = before[kind]++,
              .n = of[kind],
              .gqa4 = model.kv_heads > 0 && model.heads / model.kv_heads >= 4,
              .falcon = model.arch == "falcon",
              .experts8 = model.experts == 8};
    if (kind == Kind::down && model.experts > 1) turn.i = layer_of(t.name);
    MixedType& type = out[at];
    type.quantized = true;
    type.wanted = wanted(mix, model, t, kind, tied, turn);
    type.got = fitting_type(type.wanted, t.shape.back());
  }
  return out;
}

}  // namespace rapt
