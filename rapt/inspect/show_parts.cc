// SPDX-License-Identifier: Apache-2.0
// Attention in lanes for q, k and v, in the order of attend() (nn/parts/attention.cc); then the other kinds;
// then heads and groups.
#include "rapt/inspect/show_parts.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <memory>
#include <optional>

#include "rapt/base/checked.h"
#include "rapt/base/text.h"
#include "rapt/recipe/drawing.h"

namespace rapt {
namespace {

using Lines = std::vector<std::string>;

}  // namespace

std::string act_word(Act act) {
  switch (act) {
    case Act::relu: return "ReLU";
    case Act::relu2: return "ReLU²";
    case Act::gelu: return "GELU";
    case Act::gelu_tanh: return "GELU_tanh";
    case Act::silu: return "SiLU";
    case Act::quick_gelu: return "quick GELU";
    case Act::sigmoid: return "σ";
    case Act::ns_sigmoid: return "½ + ½ σ";
    default: return std::string(name_text(act));
  }
}

namespace {

std::string number_text(double x) {
  const auto whole = whole_number(x);
  return whole ? with_commas(*whole) : shortest(x);
}

}  // namespace

std::string size_text(Dim from, Dim to, bool bias) {
  return concat(with_commas(from), " → ", with_commas(to), bias ? " + b" : "");
}

Block norm_block(const ShowWords& words, const NormRecipe& n, std::string more) {
  using Kind = NormRecipe::Kind;
  const char* name = n.kind == Kind::layer ? "LayerNorm"
                     : n.kind == Kind::rms ? "RMSNorm"
                     : n.kind == Kind::l2  ? "L2Norm"
                                           : "BatchNorm";
  std::string detail = concat("ε ", shortest(n.eps));
  if (n.weight == NormRecipe::Gain::none) detail = concat(detail, " · ", words("no_gain"));
  if (n.weight == NormRecipe::Gain::plus_one) detail += " · 1 + w";
  if (n.bias) detail += " · + b";
  return box_block({name, detail, std::move(more)}, "norm");
}

// ------------------------------------------------------------------------------------------------ attention
namespace {

class AttentionBlock {
 public:
  AttentionBlock(const ShowWords& words, const AttnRecipe& attention, Dim width)
      : words_(words), a_(attention), C_(width) {}

  Block whole() {
    std::vector<Block> below;
    below.push_back(fan(lanes(), core(), "core", a_.cross ? 2 : 0));
    if (auto g = gate(GateRecipe::At::sdpa)) below.push_back(*g);
    if (a_.z_norm) below.push_back(norm_block(words_, *a_.z_norm, words_("each_head")));
    below.push_back(box_block(
        {"W_O", concat(heads_by(a_.heads, a_.v_dim), " → ", with_commas(C_), a_.bias.o ? " + b" : "")},
        "matrix"));
    if (auto g = gate(GateRecipe::At::out)) below.push_back(*g);
    return column(std::move(below), 12);
  }

 private:
  enum Lane { q, k, v };
  using Row = std::array<std::optional<Block>, 3>;

  std::optional<Block> gate(GateRecipe::At at) const {
    for (const GateRecipe& g : a_.gate) {
      if (g.at != at) continue;
      const bool input = g.from == GateRecipe::From::input;
      const auto [heads, channels] = gate_shape(a_, at, C_);
      const bool shared = g.heads == GateRecipe::Heads::shared, per_head = g.grain == GateGrain::head;
      const std::string of = input ? "W_G h" : "g";
      std::string value =
          g.act == Act::ns_sigmoid ? concat("(½ + ½ σ(", of, "))") : concat(act_word(g.act), "(", of, ")");
      std::string size = input ? with_commas(C_) + " → " : "";
      size += at == GateRecipe::At::out ? with_commas(channels)
              : per_head                ? with_commas(shared ? 1 : heads)
              : shared                  ? with_commas(channels)
                                        : heads_by(heads, channels);
      Lines lines = {concat(g.op == GateRecipe::Op::mul ? "⊙ " : "+ ", value), size};
      if (per_head) lines.push_back(words_("gate_per_head"));
      if (shared) lines.push_back(words_("gate_shared"));
      if (!input) lines.push_back(words_("gate_constant"));
      return box_block(lines, "gate");
    }
    return std::nullopt;
  }

  Block matrix(const char* name, Dim from, Dim heads, Dim channels, bool bias) const {
    return box_block(
        {name, concat(with_commas(from), " →"), heads_by(heads, channels) + (bias ? " + b" : "")}, "matrix");
  }

  void qk_norm(std::vector<Row>& rows, QkNormRecipe::At at) const {
    if (!a_.qk_norm || a_.qk_norm->at != at) return;
    const QkNormRecipe& n = *a_.qk_norm;
    const std::string over = words_(n.span == QkNormRecipe::Span::full             ? "whole_projection"
                                    : n.weights == QkNormRecipe::Weights::per_head ? "each_head_own"
                                                                                   : "each_head");
    Row row;
    row[q] = norm_block(words_, n.norm, over), row[k] = norm_block(words_, n.norm, over);
    rows.push_back(std::move(row));
  }

  Lines rope() const {
    if (a_.pos.kind == PosRecipe::Kind::grid)
      return {"RoPE", concat("θ ", number_text(a_.pos.grid_theta)), words_("rope_grid")};
    const RopeSpec& r = a_.pos.rope;
    Lines lines = {"RoPE", concat("θ ", number_text(r.theta))};
    if (a_.latent) lines.push_back(words_("rope_last", with_commas(a_.latent->rope_dim)));
    else if (r.part != 1)
      lines.push_back(words_("rope_part",
                             with_commas(static_cast<Dim>(r.part * static_cast<double>(a_.head_dim))),
                             with_commas(a_.head_dim)));
    if (r.scaling != RopeScaling::none)
      lines.push_back(concat(name_of(r.scaling), r.factor != 1 ? concat(" ×", shortest(r.factor)) : ""));
    return lines;
  }

  // Queries, and the latent that keys and values are made of.
  std::vector<Block> latent_lanes() const {
    const LatentRecipe& l = *a_.latent;
    std::vector<Block> queries, latent;
    if (l.q_rank > 0) {
      queries.push_back(box_block({"W_DQ", size_text(C_, l.q_rank, a_.bias.q)}, "matrix"));
      queries.push_back(norm_block(words_, l.q_norm));
      queries.push_back(matrix("W_UQ", l.q_rank, a_.heads, a_.head_dim, false));
    } else {
      queries.push_back(matrix("W_Q", C_, a_.heads, a_.head_dim, a_.bias.q));
    }
    if (auto g = gate(GateRecipe::At::q)) queries.push_back(*g);
    const bool turns = a_.pos.kind == PosRecipe::Kind::rope;
    if (turns) queries.push_back(box_block(rope(), "position"));
    if (auto t = temperature()) queries.push_back(*t);
    latent.push_back(box_block({"W_DKV",
                                concat(with_commas(C_), " → ", with_commas(l.rank),
                                       turns ? concat(" + ", l.rope_dim) : "", a_.bias.k ? " + b" : ""),
                                turns ? "[c | k_R]" : "c"},
                               "matrix"));
    latent.push_back(norm_block(words_, l.norm, words_("of_latent")));
    const Dim plain = a_.head_dim - l.rope_dim;
    latent.push_back(
        box_block({turns ? "k = [W_UK c | RoPE(k_R)]" : "k = W_UK c",
                   concat(with_commas(l.rank), " → ", heads_by(a_.heads, plain)),
                   turns ? words_("rope_shared", with_commas(l.rope_dim)) : "",
                   concat("v = W_UV c:  ", with_commas(l.rank), " → ", heads_by(a_.heads, a_.v_dim))},
                  "matrix"));
    return {column(std::move(queries), 12), column(std::move(latent), 12)};
  }

  std::optional<Block> temperature() const {
    if (!a_.temperature) return std::nullopt;
    const TemperatureRecipe& t = *a_.temperature;
    return box_block({words_("temperature"),
                      concat("1 + ", shortest(t.factor), " ln(1 + ⌊i / ", with_commas(t.length), "⌋)")},
                     "position");
  }

  std::vector<Block> lanes() const {
    if (a_.latent) return latent_lanes();
    std::vector<Row> rows(1);
    rows[0][q] = matrix("W_Q", C_, a_.heads, a_.head_dim, a_.bias.q);
    rows[0][k] = matrix("W_K", C_, a_.kv_heads, a_.head_dim, a_.bias.k);
    rows[0][v] = matrix("W_V", C_, a_.kv_heads, a_.v_dim, a_.bias.v);
    Row gates;
    gates[q] = gate(GateRecipe::At::q), gates[k] = gate(GateRecipe::At::k),
    gates[v] = gate(GateRecipe::At::v);
    rows.push_back(std::move(gates));
    const std::size_t before = rows.size();
    qk_norm(rows, QkNormRecipe::At::before_pos);
    if (a_.v_norm) {
      if (rows.size() == before) rows.emplace_back();
      rows.back()[v] = norm_block(words_, *a_.v_norm, words_("each_head"));
    }
    if (a_.clip > 0) {
      const Block clip = box_block({words_("clip"), concat("± ", shortest(a_.clip))}, "plain");
      rows.push_back({clip, clip, clip});
    }
    if (a_.pos.kind == PosRecipe::Kind::rope || a_.pos.kind == PosRecipe::Kind::grid) {
      Row row;
      row[q] = box_block(rope(), "position"), row[k] = box_block(rope(), "position");
      rows.push_back(std::move(row));
    }
    qk_norm(rows, QkNormRecipe::At::after_pos);
    if (a_.temperature) rows.push_back({temperature(), std::nullopt, std::nullopt});
    std::array<std::vector<Block>, 3> lane;
    for (const Row& row : rows) {
      double height = 0;
      for (const auto& b : row) height = std::max(height, b ? b->height : 0);
      if (height == 0) continue;
      for (std::size_t i = 0; i < 3; ++i) {
        Block b = row[i] ? *row[i] : gap_block(height);
        if (row[i] && b.height < height) b = column({b, gap_block(height - b.height)}, 0);
        lane[i].push_back(std::move(b));
      }
    }
    const Block all[] = {column(lane[q], 12), column(lane[k], 12), column(lane[v], 12)};
    if (a_.cross) return {all[k], all[v], all[q]};  // the memory comes from the left
    return {all[q], all[k], all[v]};
  }

  std::string score() const {
    using Score = AttnRecipe::ScoreKind;
    std::string s = a_.score == Score::dot       ? "q·k"
                    : a_.score == Score::general ? "q·W k"
                    : a_.score == Score::cosine  ? "cos(q, k)"
                    : a_.score == Score::l2      ? "−|q − k|²"
                                                 : "w·tanh(q + k)";
    if (a_.pos.kind == PosRecipe::Kind::relative)
      s = concat("(", s, a_.pos.relative.keys ? " + q·K_R" : "", a_.pos.relative.queries ? " + k·Q_R" : "",
                 ")");
    switch (a_.scale.kind) {
      case ScaleRecipe::Kind::automatic:
        if (automatic_scale(a_) > 0) s += concat(" / √", automatic_scale(a_));
        if (yarn_score_factor(a_) != 1)
          s += concat(" · ", shortest(std::round(1e4 * yarn_score_factor(a_)) / 1e4));
        break;
      case ScaleRecipe::Kind::number:
        if (a_.scale.number != 1) s += concat(" · ", shortest(a_.scale.number));
        break;
      case ScaleRecipe::Kind::learned: s += concat(" · g (", words_("learned"), ")");
    }
    return s;
  }

  std::string sees() const {
    using Mask = AttnRecipe::MaskKind;
    if (a_.cross) return words_("mask.memory");
    if (a_.window > 0 && a_.mask == Mask::full) return words_("mask.near", with_commas(a_.window));
    if (a_.window > 0 && a_.keep > 0)
      return words_("mask.keep", with_commas(a_.window), with_commas(a_.keep));
    if (a_.window > 0) return words_("mask.window", with_commas(a_.window));
    if (a_.mask == Mask::chunk) return words_("mask.chunk", with_commas(a_.chunk));
    return words_(concat("mask.", name_text(a_.mask)));
  }

  Lines core() const {
    using Pos = PosRecipe::Kind;
    Lines lines = {concat("s = ", score())};
    if (a_.cap > 0) lines.push_back(concat("s ← ", shortest(a_.cap), " tanh(s / ", shortest(a_.cap), ")"));
    if (a_.pos.kind == Pos::alibi) lines.push_back(words_("alibi"));
    if (a_.pos.kind == Pos::bucket)
      lines.push_back(words_("bucket", with_commas(a_.pos.bucket.count), with_commas(a_.pos.bucket.max)));
    if (a_.pos.kind == Pos::relative)
      lines.push_back(words_("relative", with_commas(a_.pos.relative.buckets)));
    lines.push_back(sees());
    using Extra = ExtraRecipe::Kind;
    if (a_.extra.kind == Extra::zero_logit) lines.push_back(words_("extra_zero"));
    if (a_.extra.kind == Extra::learned_logit) lines.push_back(words_("extra_learned"));
    if (a_.extra.kind == Extra::kv_slots) lines.push_back(words_("extra_slots", with_commas(a_.extra.slots)));
    lines.push_back(a_.normal == Normal::softmax ? "z = softmax(s) v" : "z = σ(s) v");
    return lines;
  }

  const ShowWords& words_;
  const AttnRecipe& a_;
  const Dim C_;
};

Block body(const ShowWords& words, const AttnRecipe& a, Dim C) { return AttentionBlock(words, a, C).whole(); }

// ------------------------------------------------------------------------------------------------ the others
std::string glu_text(const FfnRecipe& f) {
  const std::string up = f.up_offset != 0 ? concat("(u + ", shortest(f.up_offset), ")") : "u";
  return concat(f.alpha != 1 ? concat("g σ(", shortest(f.alpha), " g)") : concat(act_word(f.act), "(g)"),
                " ⊙ ", up, f.clamp > 0 ? concat(", ±", shortest(f.clamp)) : "");
}

Block body(const ShowWords&, const FfnRecipe& f, Dim C) {
  const Block down = box_block({"W_down", size_text(f.width, C, f.bias)}, "matrix");
  if (f.kind == FfnRecipe::Kind::glu) {
    const Block gate = box_block({"g = W_gate x", size_text(C, f.width, f.bias)}, "matrix"),
                up = box_block({"u = W_up x", size_text(C, f.width, f.bias)}, "matrix");
    return column({fan({gate, up}, {glu_text(f)}, "core"), down}, 12);
  }
  return column({box_block({"W_up", size_text(C, f.width, f.bias)}, "matrix"),
                 box_block({act_word(f.act)}, "core"), down},
                12);
}

// Experts in a row, those that a token uses marked; which ones is an example.
Block expert_row(const MoeRecipe& m) {
  constexpr double side = 26, kApart = 5;
  constexpr Dim kMost = 6;
  const Dim drawn = std::min(m.experts, kMost);
  const bool cut = m.experts > kMost;
  const double width = static_cast<double>(drawn + (cut ? 1 : 0)) * (side + kApart) - kApart;
  Block out{width, 24, width / 2, width / 2};
  out.draw = [=, all = m.experts, used = m.used](Diagram& d, double x, double y) {
    const auto place = [&](Dim i) { return x + static_cast<double>(i) * (side + kApart); };
    const Dim marked = std::min<Dim>(used, cut ? 2 : used);
    for (Dim i = 0; i < drawn; ++i) {
      const bool last = cut && i == drawn - 1;
      const Dim at = last ? drawn : i, id = last ? all - 1 : i;
      d.box(place(at), y, side, 24,
            (i % 2 == 1 ? i / 2 < marked : false) || (!cut && used == all) ? "core" : "plain");
      d.text(place(at) + side / 2, y + 16, std::to_string(id), 11, "ink", Diagram::Anchor::middle);
    }
    if (cut) d.text(place(drawn - 1) + side / 2, y + 15, "…", 12, "soft", Diagram::Anchor::middle);
  };
  return out;
}

Block body(const ShowWords& words, const MoeRecipe& m, Dim C) {
  const RouterRecipe& r = m.router;
  const bool chosen = r.over == RouterRecipe::Over::chosen;
  Lines router = {words("moe.router"), size_text(C, m.experts, r.bias)};
  router.push_back(chosen                                    ? words("moe.softmax_chosen")
                   : r.score == RouterRecipe::Score::softmax ? "softmax"
                                                             : "σ");
  if (r.choice_bias) router.push_back(words("moe.choice_bias"));
  if (r.groups)
    router.push_back(words("moe.groups", with_commas(r.groups->used), with_commas(r.groups->count)));
  router.push_back(words("moe.uses", with_commas(m.used), with_commas(m.experts)));
  if (!chosen && r.renormalise) router.push_back(words("moe.renormalised"));
  if (r.scale != 1) router.push_back(concat("× ", shortest(r.scale)));
  const FfnRecipe expert = expert_of(m);
  const std::string inside = expert.kind == FfnRecipe::Kind::glu
                                 ? concat("W_down(", glu_text(expert), ")")
                                 : concat("W_down ", act_word(expert.act), "(W_up x)");
  const std::string sizes =
      concat(with_commas(C), " → ", with_commas(m.width), " → ", with_commas(C), m.bias ? " + b" : "");
  const Block routed = column(
      {box_block(router, "gate"), expert_row(m), box_block({words("moe.each"), inside, sizes}, "matrix")},
      12);
  const bool at_input = r.weight_at == RouterRecipe::WeightAt::input;
  const std::string sum = at_input ? "Σ E_e(w_e x)" : "Σ w_e E_e(x)";
  if (!m.shared) return column({routed, box_block({sum}, "core")}, 12);
  const Block shared =
      box_block({words("moe.shared"), inside,
                 concat(with_commas(C), " → ", with_commas(m.shared->width), " → ", with_commas(C)),
                 m.shared->gated ? "⊙ σ(w x)" : ""},
                "matrix");
  return fan({routed, shared}, {sum + (m.shared->gated ? " + σ(w x) S(x)" : " + S(x)")}, "core");
}

Block body(const ShowWords& words, const DeltaRecipe& r, Dim C) {
  const std::string from = with_commas(C) + " → ", keys = heads_by(r.key_heads, r.key_dim),
                    values = heads_by(r.value_heads, r.value_dim);
  const auto mixed = [&](const char* name, const std::string& size, bool one) {
    return column({box_block({name, from, size}, "matrix"),
                   box_block({words("delta.conv"), words("delta.rows", with_commas(r.conv))}, "position"),
                   box_block({act_word(r.act)}, "core"),
                   one ? box_block({"L2Norm", concat("ε ", shortest(r.eps))}, "norm") : gap_block(41)},
                  10);
  };
  const Block state =
      fan({mixed("W_q", keys, true), mixed("W_k", keys, true), mixed("W_v", values, false)},
          {"S ← e^g S + k uᵀ,   u = σ(b) (v − e^g Sᵀk)", "b = W_b x,   g = −e^A softplus(W_a x + dt)",
           words("delta.state", with_commas(r.value_heads), with_commas(r.key_dim), with_commas(r.value_dim)),
           concat("o = Sᵀq / √", r.key_dim)},
          "core");
  return column({state, norm_block(words, r.norm, words("each_head")),
                 box_block({concat("⊙ ", act_word(r.gate), "(W_z x)"), from + values}, "gate"),
                 box_block({"W_O", concat(values, " → ", with_commas(C))}, "matrix")},
                12);
}

Block body(const ShowWords& words, const ConvRecipe& r, Dim C) {
  const auto matrix = [&](const char* name) { return box_block({name, size_text(C, C, r.bias)}, "matrix"); };
  return column({fan({matrix("b = W_b x"), matrix("c = W_c x"), matrix("u = W_u x")},
                     {"c ⊙ conv(b ⊙ u)", words("conv.rows", with_commas(r.kernel))}, "core"),
                 box_block({"W_O", size_text(C, C, r.bias)}, "matrix")},
                12);
}

const char* sharing_word(const AttnRecipe& a) {
  if (a.latent) return "MLA";
  return a.heads == 1 ? "" : a.kv_heads == a.heads ? "MHA" : a.kv_heads == 1 ? "MQA" : "GQA";
}

}  // namespace

Block part_block(const ShowWords& words, const PartRecipe& part, Dim width) {
  std::string title = words(concat("part.", part_name(part).word));
  if (const AttnRecipe* a = part.attention(); a && *sharing_word(*a))
    title = concat(title, " · ", sharing_word(*a));
  return framed(title, std::visit([&](const auto& b) { return body(words, b, width); }, part.body), "part");
}

// -------------------------------------------------------------------------------------------- heads, groups
namespace {

// Which heads of a row are drawn: all of few, else the first ones and the last.
constexpr Dim kCut = -1;
std::vector<Dim> some_of(Dim first, Dim count, Dim most) {
  std::vector<Dim> out;
  for (Dim i = 0; i < count; ++i) {
    if (count > most && i == most - 1) out.push_back(kCut), i = count - 1;
    out.push_back(first + i);
  }
  return out;
}

struct Sharing {
  Dim upper, lower;  // heads of each row
  std::string above, below;  // letters on them
  std::string bar;  // what all of the lower row come from; empty: nothing
  bool turns = false;  // upper heads take lower ones in turns
};

Block sharing_block(const Sharing& s) {
  constexpr double kApart = 4, kGroups = 18, kHigh = 24, kBetween = 30;
  const double lower = std::max(30.0, text_pixels(concat(s.below, s.lower - 1), 11) + 8);
  const double side =
      s.upper == s.lower ? lower : std::max(30.0, text_pixels(concat(s.above, s.upper - 1), 11) + 8);
  const Dim group = s.upper / s.lower;
  struct Head {
    double x;
    Dim id;
  };
  struct Group {
    std::vector<Head> heads;
    double middle;
    Dim id;
  };
  auto groups = std::make_shared<std::vector<Group>>();
  auto cuts = std::make_shared<std::vector<double>>();
  double at = 0;
  const Dim heads_in = group <= 8 ? group : 5;
  for (Dim g : some_of(0, s.lower, std::max<Dim>(2, 16 / std::max<Dim>(1, heads_in)))) {
    if (at > 0) at += group > 1 ? kGroups : kApart;
    if (g == kCut) {
      cuts->push_back(at + 12);
      at += 24;
      continue;
    }
    Group to{{}, 0, g};
    const double first = at;
    for (Dim h : some_of(0, group, 8 >= group ? group : 5)) {
      if (at > first) at += kApart;
      const Dim id = h == kCut ? kCut : s.turns ? g + h * s.lower : g * group + h;
      to.heads.push_back({at, id});
      at += side;
    }
    to.middle = (first + at) / 2;
    groups->push_back(std::move(to));
  }
  const double width = std::max(at, s.bar.empty() ? 0 : text_pixels(s.bar, 11) + 20),
               shift = (width - at) / 2;
  Block out{width, 2 * kHigh + kBetween + (s.bar.empty() ? 0 : kBetween / 2 + kHigh), width / 2, width / 2};
  out.draw = [=](Diagram& d, double x, double y) {
    x += shift;
    const double below = y + kHigh + kBetween;
    for (const Group& g : *groups) {
      for (const Head& h : g.heads) {
        const double c = x + h.x + side / 2;
        if (h.id == kCut) {
          d.text(c, y + 16, "…", 12, "soft", Diagram::Anchor::middle);
          continue;
        }
        d.wire({{c, y + kHigh}, {x + g.middle, below}});
        d.box(x + h.x, y, side, kHigh, "matrix");
        d.text(c, y + 16, concat(s.above, h.id), 11, "ink", Diagram::Anchor::middle);
      }
      if (!s.bar.empty())
        d.wire({{x + g.middle, below + kHigh}, {x + g.middle, below + kHigh + kBetween / 2}});
      d.box(x + g.middle - lower / 2, below, lower, kHigh, "position");
      d.text(x + g.middle, below + 16, concat(s.below, g.id), 11, "ink", Diagram::Anchor::middle);
    }
    for (double c : *cuts) {
      d.text(x + c, y + 16, "…", 12, "soft", Diagram::Anchor::middle);
      d.text(x + c, below + 16, "…", 12, "soft", Diagram::Anchor::middle);
    }
    if (s.bar.empty()) return;
    d.box(x - shift, below + kHigh + kBetween / 2, width, kHigh, "core");
    d.text(x - shift + width / 2, below + kHigh + kBetween / 2 + 16, s.bar, 11, "ink",
           Diagram::Anchor::middle);
  };
  return out;
}

// Title, picture, then lines of words.
Block panel_block(const std::string& title, Block picture, const Lines& lines) {
  double width = std::max(picture.width, text_pixels(title, 12) * 1.1);
  for (const std::string& l : lines) width = std::max(width, text_pixels(l, 11));
  Block out{width, 26 + picture.height + 12 + 16 * static_cast<double>(lines.size()), 0, 0};
  out.draw = [=, picture = std::move(picture)](Diagram& d, double x, double y) {
    d.text(x, y + 12, title, 12, "ink", Diagram::Anchor::start, true);
    picture.draw(d, x, y + 26);
    for (std::size_t i = 0; i < lines.size(); ++i)
      d.text(x, y + 26 + picture.height + 20 + 16 * static_cast<double>(i), lines[i], 11, "soft");
  };
  return out;
}

}  // namespace

Block heads_panel(const ShowWords& words, const AttnRecipe& a, const HeadsPanel& p) {
  Sharing s{a.heads, a.kv_heads, "q", "kv", ""};
  const Dim group = a.heads / a.kv_heads, cached = a.kv_heads * (a.head_dim + a.v_dim),
            whole = a.heads * (a.head_dim + a.v_dim);
  std::string how;
  if (a.latent) {
    const Dim kept = a.latent->rank + a.latent->rope_dim;
    s.bar = words("heads.latent_bar", with_commas(a.latent->rank), with_commas(a.latent->rope_dim));
    how = words("heads.mla", with_commas(kept), with_commas(whole));
  } else if (a.kv_heads == a.heads) {
    how = words("heads.mha", with_commas(cached));
  } else {
    how = a.kv_heads == 1 ? words("heads.mqa", with_commas(cached), with_commas(whole))
                          : words("heads.gqa", with_commas(group), with_commas(cached), with_commas(whole));
  }
  const std::string title = a.latent || a.kv_heads == a.heads
                                ? concat(p.title, " · ", words("heads.equal", with_commas(a.heads)),
                                         a.latent      ? " (MLA)"
                                         : a.heads > 1 ? " (MHA)"
                                                       : "")
                                : concat(p.title, " · ",
                                         words(a.kv_heads == 1 ? "heads.one" : "heads.counts",
                                               with_commas(a.heads), with_commas(a.kv_heads)),
                                         " (", sharing_word(a), ")");
  Lines lines = {how};
  if (p.q_from == p.kv_from) lines.push_back(concat("Q, K, V ← ", p.q_from));
  else lines.insert(lines.end(), {concat("Q ← ", p.q_from), concat("K, V ← ", p.kv_from)});
  return panel_block(title, sharing_block(s), lines);
}

Block heads_panel(const ShowWords& words, const DeltaRecipe& r, const std::string& title) {
  const Sharing s{r.value_heads, r.key_heads, "v", "qk", "", r.share == DeltaRecipe::Share::turns};
  return panel_block(
      concat(title, " · ", words("heads.delta", with_commas(r.value_heads), with_commas(r.key_heads))),
      sharing_block(s), {words("heads.delta_state", with_commas(r.value_heads * r.key_dim * r.value_dim))});
}

}  // namespace rapt
