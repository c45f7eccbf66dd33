// SPDX-License-Identifier: Apache-2.0
// In this order: parameters and costs are counted, the diagram is drawn, two recipes are compared as JSON.
#include "rapt/recipe/show.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "rapt/base/checked.h"
#include "rapt/base/json.h"
#include "rapt/base/text.h"
#include "rapt/base/text_width.h"
#include "rapt/recipe/recipe_fields.h"
#include "rapt/recipe/recurrent_recipe.h"

namespace rapt {
namespace {

using PartKind = PartRecipe::Kind;

template <class E>
std::string name_of(E e) {
  return std::string(names_of(e)[static_cast<std::size_t>(e)]);
}

Dim times(Dim a, Dim b) { return checked_mul(a, b, "size of the model"); }
template <class... More>
Dim times(Dim a, Dim b, More... more) {
  return times(times(a, b), more...);
}
Dim plus(Dim a, Dim b) { return checked_add(a, b, "size of the model"); }
template <class... More>
Dim plus(Dim a, Dim b, More... more) {
  return plus(plus(a, b), more...);
}

// ------------------------------------------------------------------------------------------------ counting
Dim norm_size(const NormRecipe& n, Dim channels) { return (n.weight != NormRecipe::Gain::none ? channels : 0) + (n.bias ? channels : 0); }
Dim norm_size(const std::optional<NormRecipe>& n, Dim channels) { return n ? norm_size(*n, channels) : 0; }

struct PartSize {
  Dim projections = 0, biases = 0, gates = 0, rest = 0;  // rest: norms inside attention, scale, extra logits, slots, own buckets
  Dim kv = 0;       // of the projections: those of k and v
  Dim source = 0;   // matrices applied to the memory: kv and gates on k and v
  Dim extra = 0;    // multiplications per token beyond one per weight: the D x D matrix of score general, once per head
};

// Heads and channels a gate acts on.
std::pair<Dim, Dim> gate_place(const AttnRecipe& a, const GateRecipe& g, Dim width) {
  using At = GateRecipe::At;
  if (g.at == At::out) return {1, width};
  return {g.at == At::k || g.at == At::v ? a.kv_heads : a.heads, g.at == At::sdpa || g.at == At::v ? a.v_dim : a.head_dim};
}
Dim gate_logits(const AttnRecipe& a, const GateRecipe& g, Dim width) {
  const auto [heads, d] = gate_place(a, g, width);
  return times(g.heads == GateRecipe::Heads::shared ? 1 : heads, g.grain == GateGrain::head ? 1 : d);
}

PartSize attention_size(const AttnRecipe& a, Dim C) {
  const Dim q = times(a.heads, a.head_dim), k = times(a.kv_heads, a.head_dim), v = times(a.kv_heads, a.v_dim), z = times(a.heads, a.v_dim);
  PartSize s;
  s.kv = times(C, plus(k, v));
  s.projections = plus(times(C, q), s.kv, times(z, C));
  s.biases = (a.bias.q ? q : 0) + (a.bias.k ? k : 0) + (a.bias.v ? v : 0) + (a.bias.o ? C : 0);
  s.source = s.kv;
  for (const GateRecipe& g : a.gate) {
    const Dim n = gate_logits(a, g, C), size = g.from == GateRecipe::From::input ? times(n, C) : n;
    s.gates = plus(s.gates, size);
    if (g.from == GateRecipe::From::input && (g.at == GateRecipe::At::k || g.at == GateRecipe::At::v)) s.source = plus(s.source, size);
  }
  using Score = AttnRecipe::ScoreKind;
  if (a.score == Score::general) {
    s.projections = plus(s.projections, times(a.head_dim, a.head_dim));
    s.extra = times(a.heads - 1, a.head_dim, a.head_dim);
  }
  if (a.score == Score::additive || a.score == Score::concat) s.rest = plus(s.rest, q);
  if (a.qk_norm) {
    const bool all = a.qk_norm->span == QkNormRecipe::Span::full || a.qk_norm->weights == QkNormRecipe::Weights::per_head;
    s.rest = plus(s.rest, norm_size(a.qk_norm->norm, all ? q : a.head_dim), norm_size(a.qk_norm->norm, all ? k : a.head_dim));
  }
  s.rest = plus(s.rest, norm_size(a.v_norm, a.v_dim), norm_size(a.z_norm, a.v_dim));
  if (a.scale.kind == ScaleRecipe::Kind::learned) s.rest = plus(s.rest, a.scale.per == ScaleRecipe::Per::head ? a.heads : 1);
  if (a.extra.kind == ExtraRecipe::Kind::learned_logit) s.rest = plus(s.rest, a.heads);
  if (a.extra.kind == ExtraRecipe::Kind::kv_slots) s.rest = plus(s.rest, times(a.extra.slots, plus(k, v)));
  if (a.pos.kind == PosRecipe::Kind::bucket && !a.pos.bucket.shared) s.rest = plus(s.rest, times(a.pos.bucket.count, a.heads));
  return s;
}

PartSize ffn_size(const FfnRecipe& f, Dim C) {
  const Dim wide = f.kind == FfnRecipe::Kind::glu ? 2 : 1;
  return {.projections = times(wide + 1, C, f.width), .biases = f.bias ? plus(times(wide, f.width), C) : 0};
}

// Layers of each kind: pattern "LLG" over 7 layers gives L 5, G 2.
std::vector<std::pair<std::string, Dim>> kinds_in_order(const StackRecipe& s) {
  std::vector<std::pair<std::string, Dim>> out;
  const Dim whole = s.layers / static_cast<Dim>(s.pattern.size()), left = s.layers % static_cast<Dim>(s.pattern.size());
  for (std::size_t i = 0; i < s.pattern.size(); ++i) {
    const std::string name(1, s.pattern[i]);
    const Dim n = whole + (static_cast<Dim>(i) < left ? 1 : 0);
    const auto it = std::find_if(out.begin(), out.end(), [&](const auto& e) { return e.first == name; });
    if (it == out.end()) out.emplace_back(name, n);
    else it->second += n;
  }
  return out;
}

struct Groups {
  ParameterCount& count;
  void add(const std::string& group, Dim n) {
    if (n == 0) return;
    const auto it = std::find_if(count.groups.begin(), count.groups.end(), [&](const auto& g) { return g.first == group; });
    if (it == count.groups.end()) count.groups.emplace_back(group, n);
    else it->second = plus(it->second, n);
    count.total = plus(count.total, n);
  }
};

void count_stack(Groups& groups, const Recipe& r, const StackRecipe& s, const std::string& name) {
  if (s.recurrent) {
    const RecurrentSize size = recurrent_size(r, *s.recurrent, name == "decoder");
    groups.add(name + " cells", plus(size.cells, size.start));
    groups.add(name + " attention", size.attention);
    return;
  }
  const Dim C = r.width;
  bool shared_buckets = false;
  for (const auto& [kind, layers] : kinds_in_order(s)) {
    const LayerRecipe& l = s.kinds.at(kind);
    for (const PartRecipe& p : l.parts) {
      const bool ffn = p.kind == PartKind::ffn;
      const PartSize size = ffn ? ffn_size(p.ffn, C) : attention_size(p.attn, C);
      groups.add(name + (ffn                         ? " ffn"
                         : p.kind == PartKind::cross ? " cross-attention"
                                                     : " attention"),
                 times(layers, plus(size.projections, size.biases, size.rest)));
      groups.add(name + " gates", times(layers, size.gates));
      if (!ffn && p.attn.pos.kind == PosRecipe::Kind::bucket && p.attn.pos.bucket.shared && !std::exchange(shared_buckets, true))
        groups.add(name + " attention", times(p.attn.pos.bucket.count, p.attn.heads));
    }
  }
  Dim norms = norm_size(s.final_norm, C);
  for (const auto& [kind, layers] : kinds_in_order(s)) {
    const LayerRecipe& l = s.kinds.at(kind);
    Dim n = norm_size(l.norm_in, C);
    for (const PartRecipe& p : l.parts) n = plus(n, norm_size(p.norm_in, C), norm_size(p.norm_out, C), norm_size(p.norm_sum, C));
    norms = plus(norms, times(layers, n));
  }
  groups.add(name + " norms", norms);
}

// Keys the token at position `context - 1` sees.
double keys_seen(const AttnRecipe& a, Dim context) {
  Dim n = context;
  if (a.window > 0) n = std::min(n, a.window + a.keep);
  if (a.mask == AttnRecipe::MaskKind::chunk) n = std::min(n, a.chunk);
  if (a.extra.kind == ExtraRecipe::Kind::kv_slots) n += a.extra.slots;
  return static_cast<double>(n);
}

}  // namespace

ParameterCount count_parameters(const Recipe& r) {
  ParameterCount out;
  Groups groups{out};
  const Dim C = r.width;
  const EmbedRecipe& e = r.embed;
  groups.add("embedding", times(r.vocab, C));
  if (e.pos == EmbedRecipe::Pos::learned) groups.add("positions", times(plus(r.context, e.sink_tokens), C));
  groups.add("embedding", plus(times(plus(e.types, e.sink_tokens), C), norm_size(e.norm, C)));
  if (r.encoder) count_stack(groups, r, *r.encoder, "encoder");
  if (r.decoder) count_stack(groups, r, *r.decoder, "decoder");
  if (r.head.kind != HeadRecipe::Kind::none) {
    const Dim results = r.head.kind == HeadRecipe::Kind::classes ? r.head.classes : r.vocab;
    if (r.head.transform) groups.add("head", plus(times(C, C), C, norm_size(r.head.transform->norm, C)));
    if (!r.head.tied) groups.add("head", times(results, C));
    if (r.head.bias) groups.add("head", results);
  }
  return out;
}

Cost count_cost(const Recipe& r, Dim context) {
  Cost cost;
  const auto C = static_cast<double>(r.width);
  const bool both = r.encoder && r.decoder;
  auto add_stack = [&](const StackRecipe& s, Cost::Pass& pass, bool last) {
    if (s.recurrent) {
      const RecurrentSize size = recurrent_size(r, *s.recurrent, last);
      pass.matrices += size.matrices;
      cost.source.matrices += size.source;
      // Half of the kept values are keys and half values, or both are the same: two operations for each read.
      const AlignRecipe* a = s.recurrent->attention ? &*s.recurrent->attention : nullptr;
      const Dim seen = !a ? 0 : a->window == AlignRecipe::Window::none ? context : std::min(context, 2 * a->reach + 1);
      pass.attention +=
          2 * static_cast<double>(seen) * static_cast<double>(size.memory * (a && a->score == AlignRecipe::Score::dot ? 2 : 1));
      cost.memory_values += size.memory;
      if (last) cost.state_values = size.state;
      return;
    }
    for (const auto& [kind, layers] : kinds_in_order(s))
      for (const PartRecipe& p : s.kinds.at(kind).parts) {
        const auto n = static_cast<double>(layers);
        if (p.kind == PartKind::ffn) {
          pass.matrices += n * 2 * static_cast<double>(ffn_size(p.ffn, r.width).projections);
          continue;
        }
        const AttnRecipe& a = p.attn;
        const bool cross = p.kind == PartKind::cross;
        const PartSize size = attention_size(a, r.width);
        Dim constant = 0;
        for (const GateRecipe& g : a.gate)
          if (g.from == GateRecipe::From::constant) constant += gate_logits(a, g, r.width);
        const double all = 2 * static_cast<double>(size.projections + size.extra + size.gates - constant),
                     memory = cross ? 2 * static_cast<double>(size.source) : 0;
        pass.matrices += n * (all - memory);
        cost.source.matrices += n * memory;
        pass.attention +=
            n * 2 * static_cast<double>(a.heads * (a.head_dim + a.v_dim)) * (cross ? static_cast<double>(context) : keys_seen(a, context));
        if (!last) continue;
        const Dim values = times(layers, a.kv_heads, a.head_dim + a.v_dim);
        if (cross) cost.memory_values += values;
        else cost.kv_values += values;
        if (!cross && (a.window > 0 || a.mask == AttnRecipe::MaskKind::chunk)) cost.kv_forgotten += values;
      }
  };
  if (both) add_stack(*r.encoder, cost.source, false);
  add_stack(r.decoder ? *r.decoder : *r.encoder, cost.token, r.decoder.has_value());
  if (r.head.kind == HeadRecipe::Kind::vocab) cost.token.matrices += 2 * C * (static_cast<double>(r.vocab) + (r.head.transform ? C : 0));
  return cost;
}

// ------------------------------------------------------------------------------------------------ drawing
namespace {

class Drawing {
 public:
  Drawing(bool color, Dim width) : color_(color), width_(std::clamp<Dim>(width, 24, 100)), box_(std::min<Dim>(width_, 92)) {}

  Dim width() const { return width_; }
  std::string bold(std::string_view s) const { return color_ ? concat("\033[1m", s, "\033[0m") : std::string(s); }
  std::string faint(std::string_view s) const { return color_ ? concat("\033[2m", s, "\033[0m") : std::string(s); }

  void text(const std::string& s) { out_ += s + "\n"; }
  // A title in bold, words behind it; what goes on below begins under `hang`.
  void words(std::string_view title, std::string_view s, Dim hang) {
    const std::vector<std::string> lines = fold_text(concat(title, s), width_ - hang);
    for (std::size_t i = 0; i < lines.size(); ++i)
      out_ += i == 0 && lines[0].starts_with(title) ? bold(title) + lines[0].substr(title.size()) + "\n"
                                                    : std::string(static_cast<std::size_t>(i == 0 ? 0 : hang), ' ') + lines[i] + "\n";
  }
  // Name and value in two columns.
  void pair(std::string_view name, std::string_view value) { put("", padded(name, std::min<Dim>(20, width_ / 2)), value); }
  void box_top(std::string_view title) {
    open_ = true;
    const std::vector<std::string> lines = fold_text(title, box_ - 7);
    out_ += faint("┌─┴─ ") + bold(lines[0]) + faint(" " + rule(box_ - 6 - text_width(lines[0]))) + "\n";
    for (std::size_t i = 1; i < lines.size(); ++i) out_ += faint("│    ") + bold(lines[i]) + "\n";
  }
  void box_bottom() {
    out_ += faint("└─┬" + rule(box_ - 3)) + "\n";
    open_ = false;
  }
  void wire() { out_ += faint("  │") + "\n"; }
  // A row of a table inside the picture: name, then what it is.
  void row(std::string_view lines, std::string_view name, std::string_view what) {
    put(concat(open_ ? "│ " : "  ", lines), name.empty() ? "" : padded(name, kName), what);
  }
  void branch(std::string_view title) { out_ += faint(open_ ? "│ ├─╮ " : "  ├─╮ ") + bold(title) + "\n"; }
  void inside(std::string_view name, std::string_view what) { row("│ │   ", name, what); }
  void join_up(std::string_view what) { out_ += faint("│ ⊕─╯") + (what.empty() ? "" : " " + std::string(what)) + "\n"; }
  void on_stream(std::string_view name, std::string_view what) { row("│     ", name, what); }

  std::string take() { return std::move(out_); }

 private:
  static constexpr Dim kName = 11;
  // Wires at the left, a name, and what it is, folded beside them; in a narrow window below the name.
  void put(std::string_view wires, const std::string& name, std::string_view what) {
    const Dim left = text_width(wires);
    Dim column = left + text_width(name);
    if (width_ - column < 20 && !name.empty()) {
      out_ += faint(wires) + name.substr(0, name.find_last_not_of(' ') + 1) + "\n";
      column = left + 2;
    } else {
      out_ += faint(wires) + name;
    }
    const std::vector<std::string> lines = fold_text(what, width_ - column);
    for (std::size_t i = 0; i < lines.size(); ++i) {
      const bool beside = i == 0 && column == left + text_width(name);
      out_ += (beside ? "" : faint(wires) + std::string(static_cast<std::size_t>(column - left), ' ')) + lines[i] + "\n";
    }
  }
  static std::string rule(Dim n) {
    std::string s;
    for (Dim i = 0; i < n; ++i) s += "─";
    return s;
  }
  bool color_, open_ = false;
  Dim width_, box_;
  std::string out_;
};

std::string heads_by(Dim heads, Dim d) { return concat(with_commas(heads), "×", with_commas(d)); }

std::string norm_text(const NormRecipe& n) {
  std::string s = concat(name_of(n.kind), ", eps ", shortest(n.eps));
  if (n.weight == NormRecipe::Gain::none) s += ", no weight";
  if (n.weight == NormRecipe::Gain::plus_one) s += ", weight + 1";
  if (n.bias) s += ", bias";
  return s;
}

std::string dropout_text(double p) { return p > 0 ? concat("dropout ", shortest(p)) : ""; }

std::string act_text(Act act, std::string_view of) {
  if (act == Act::ns_sigmoid) return concat("(½ + ½ sigmoid(", of, "))");
  return concat(name_of(act), "(", of, ")");
}

std::string scale_text(const AttnRecipe& a) {
  const bool one =
      a.score == AttnRecipe::ScoreKind::additive || a.score == AttnRecipe::ScoreKind::concat || a.score == AttnRecipe::ScoreKind::cosine;
  switch (a.scale.kind) {
    case ScaleRecipe::Kind::automatic: return one ? "" : concat(" / √", a.head_dim);
    case ScaleRecipe::Kind::number: return a.scale.number == 1 ? "" : concat(" · ", shortest(a.scale.number));
    case ScaleRecipe::Kind::learned: break;
  }
  return concat(" · s", a.scale.per == ScaleRecipe::Per::head ? " per head" : "", " (learned from ", shortest(a.scale.number),
                a.scale.max > 0 ? concat(", at most ", shortest(a.scale.max)) : "", ")");
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
  if (a.window > 0) return concat("the last ", with_commas(a.window), " keys", a.keep > 0 ? concat(" and the first ", a.keep) : "");
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
  if (r.part != 1) s += concat(", ", static_cast<Dim>(r.part * static_cast<double>(head_dim)), " of ", head_dim, " channels");
  s += r.layout == RopeLayout::halves ? ", halves" : ", pairs";
  static constexpr const char* kScalings[] = {"", "linear", "ntk", "dynamic", "yarn", "llama3", "longrope", "proportional"};
  if (r.scaling != RopeScaling::none) {
    s += concat(", scaled ", kScalings[static_cast<std::size_t>(r.scaling)]);
    if (r.factor != 1) s += concat(" ×", shortest(r.factor));
    if (r.original > 0) s += concat(" from ", with_commas(saturated<Dim>(r.original)));
  }
  return s;
}

const char* sharing(const AttnRecipe& a) { return a.kv_heads == a.heads ? "" : a.kv_heads == 1 ? "   (MQA)" : "   (GQA)"; }

void draw_gate(Drawing& d, const AttnRecipe& a, GateRecipe::At at, Dim C, std::string_view on) {
  for (const GateRecipe& g : a.gate) {
    if (g.at != at) continue;
    const auto [heads, channels] = gate_place(a, g, C);
    const Dim n = gate_logits(a, g, C);
    const char* symbol = g.op == GateRecipe::Op::mul ? " ⊙ " : " + ";
    std::string what = concat(on, symbol, act_text(g.act, g.from == GateRecipe::From::input ? "W h" : "g"), "   ");
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

// `stream`: what the part reads.
void draw_attention(Drawing& d, const AttnRecipe& a, Dim C, bool cross, const std::string& stream) {
  using At = GateRecipe::At;
  auto with_bias = [](bool b) { return b ? " + bias" : ""; };
  const std::string from = with_commas(C) + " → ";
  d.inside("from", cross ? concat("Q of ", stream, "; K and V of the encoder's result") : concat("Q, K and V of ", stream));
  d.inside("q", concat(from, heads_by(a.heads, a.head_dim), with_bias(a.bias.q)));
  if (a.head_dim == a.v_dim && a.bias.k == a.bias.v) {
    d.inside("k, v", concat(from, heads_by(a.kv_heads, a.head_dim), " each", with_bias(a.bias.k), sharing(a)));
  } else {
    d.inside("k", concat(from, heads_by(a.kv_heads, a.head_dim), with_bias(a.bias.k), sharing(a)));
    d.inside("v", concat(from, heads_by(a.kv_heads, a.v_dim), with_bias(a.bias.v)));
  }
  draw_gate(d, a, At::q, C, "q");
  draw_gate(d, a, At::k, C, "k");
  draw_gate(d, a, At::v, C, "v");
  auto qk_norm = [&](QkNormRecipe::At at) {
    if (!a.qk_norm || a.qk_norm->at != at) return;
    const bool full = a.qk_norm->span == QkNormRecipe::Span::full;
    d.inside("qk_norm", concat(norm_text(a.qk_norm->norm), full ? ", over the whole projection" : ", over each head",
                               a.qk_norm->weights == QkNormRecipe::Weights::per_head ? ", a weight per head" : ""));
  };
  qk_norm(QkNormRecipe::At::before_pos);
  if (a.v_norm) d.inside("v_norm", concat(norm_text(*a.v_norm), ", over each head"));
  if (a.pos.kind == PosRecipe::Kind::rope) d.inside("rope", rope_text(a.pos.rope, a.head_dim));
  qk_norm(QkNormRecipe::At::after_pos);

  std::string score = score_text(a) + scale_text(a);
  if (a.cap > 0) score = concat("cap ", shortest(a.cap), " (", score, ")");
  if (a.pos.kind == PosRecipe::Kind::alibi) score += " − slope · distance";
  if (a.pos.kind == PosRecipe::Kind::bucket)
    score += concat(" + bias of ", a.pos.bucket.count, " distances up to ", a.pos.bucket.max,
                    a.pos.bucket.shared ? ", one table for all layers" : "");
  d.inside("weights", concat(name_of(a.normal), "(", score, ")"));
  d.inside("sees", cross ? "all of the encoder's result" : mask_text(a));
  if (a.extra.kind == ExtraRecipe::Kind::zero_logit) d.inside("extra", "a logit of 0 in the softmax");
  if (a.extra.kind == ExtraRecipe::Kind::learned_logit) d.inside("extra", "a learned logit per head in the softmax");
  if (a.extra.kind == ExtraRecipe::Kind::kv_slots) d.inside("extra", concat(a.extra.slots, " learned keys and values"));
  if (a.dropout > 0) d.inside("dropout", concat(shortest(a.dropout), " on weights"));
  draw_gate(d, a, At::sdpa, C, "z");
  if (a.z_norm) d.inside("z_norm", concat(norm_text(*a.z_norm), ", over each head"));
  d.inside("out", concat(heads_by(a.heads, a.v_dim), " → ", with_commas(C), with_bias(a.bias.o)));
  draw_gate(d, a, At::out, C, "out");
}

void draw_ffn(Drawing& d, const FfnRecipe& f, Dim C) {
  const std::string bias = f.bias ? " + bias" : "";
  const std::string drop = f.dropout > 0 ? ", " + dropout_text(f.dropout) : "";
  if (f.kind == FfnRecipe::Kind::glu) {
    d.inside("gate, up", concat(with_commas(C), " → ", with_commas(f.width), " each", bias));
    std::string up = f.up_offset != 0 ? concat("(up + ", shortest(f.up_offset), ")") : "up";
    std::string act = f.alpha != 1 ? concat("gate · sigmoid(", shortest(f.alpha), " gate)") : act_text(f.act, "gate");
    d.inside("hidden", concat(act, " ⊙ ", up, f.clamp > 0 ? concat(", clamped to ", shortest(f.clamp)) : "", drop));
  } else {
    d.inside("up", concat(with_commas(C), " → ", with_commas(f.width), bias));
    d.inside("hidden", concat(act_text(f.act, "up"), drop));
  }
  d.inside("down", concat(with_commas(f.width), " → ", with_commas(C), bias));
}

void draw_layer(Drawing& d, const LayerRecipe& l, const std::string& stack, Dim C) {
  if (l.parallel)
    d.on_stream(l.norm_in ? "h = norm" : "parallel",
                l.norm_in ? norm_text(*l.norm_in) + "; all parts read h" : "all parts read the layer's input");
  for (const PartRecipe& p : l.parts) {
    static constexpr const char* kTitles[] = {"self-attention", "cross-attention", "feed-forward"};
    d.branch(concat(kTitles[static_cast<std::size_t>(p.kind)], l.parallel ? (l.norm_in ? " of h" : " of the layer's input") : ""));
    if (p.norm_in) d.inside("norm_in", norm_text(*p.norm_in));
    if (p.kind == PartKind::ffn) draw_ffn(d, p.ffn, C);
    else
      draw_attention(d, p.attn, C, p.kind == PartKind::cross,
                     l.parallel && l.norm_in ? "h" : concat("the ", stack, "'s stream", p.norm_in ? " after norm_in" : ""));
    if (p.norm_out) d.inside("norm_out", norm_text(*p.norm_out));
    std::string sum;
    if (p.dropout > 0) sum = dropout_text(p.dropout);
    if (p.residual_scale != 1) sum = concat("times ", shortest(p.residual_scale), sum.empty() ? "" : ", ", sum);
    d.join_up(sum);
    if (p.norm_sum) d.on_stream("norm_sum", norm_text(*p.norm_sum));
  }
}

void draw_recurrent(Drawing& d, const Recipe& r, const StackRecipe& s, const std::string& name) {
  const RecurrentRecipe& c = *s.recurrent;
  const AlignRecipe* a = c.attention ? &*c.attention : nullptr;
  const bool gru = c.cell == RecurrentRecipe::Cell::gru, previous = a && a->at == AlignRecipe::At::previous;
  d.wire();
  d.box_top(concat(name, ": ", c.layers, c.layers == 1 ? " layer" : " layers", " of ", gru ? "GRU" : "LSTM", " cells",
                   c.both_ways ? ", reading both ways" : ""));
  if (name == "decoder" && r.encoder) {
    static constexpr const char* kStarts[] = {"the encoder's last states", "tanh(W s + b), s the encoder's last state", "zeros"};
    const bool back = c.start == RecurrentRecipe::Start::projected && r.encoder->recurrent->both_ways;
    d.on_stream("start", concat(kStarts[static_cast<std::size_t>(c.start)], back ? " of the backward cells" : ""));
  }
  std::string in = with_commas(r.width);
  if (previous) in += " + context";
  if (a && a->feed) in += " + the readout before";
  d.on_stream("cell", concat(in, " → state ", with_commas(c.width), c.both_ways ? " each way" : "", gru ? "" : " and memory cell"));
  if (c.layers > 1) d.on_stream("between", c.dropout > 0 ? dropout_text(c.dropout) : "no dropout");
  if (a) {
    static constexpr const char* kScores[] = {"h·s", "h·W s", "v·tanh(W h + U s)", "v·tanh(W [h; s])"};
    d.branch("attention");
    std::string score = kScores[static_cast<std::size_t>(a->score)];
    if (a->score == AlignRecipe::Score::additive || a->score == AlignRecipe::Score::concat)
      score += concat(", hidden ", with_commas(a->width));
    d.inside("from", concat("Q: the decoder's state h ", previous ? "before" : "after", " the step; K and V: the encoder's states s"));
    d.inside("weights", concat("softmax(", score, ")"));
    d.inside("sees", a->window == AlignRecipe::Window::none ? "all of the encoder's result"
                     : a->window == AlignRecipe::Window::monotonic
                         ? concat("words t − ", a->reach, " … t + ", a->reach)
                         : concat("words within ", a->reach, " of p = S·sigmoid(v·tanh(W h)), times a Gaussian around p"));
    d.inside("readout", a->readout == AlignRecipe::Readout::tanh
                            ? concat("tanh(W [c; h])  → ", with_commas(r.width))
                            : concat("maxout(W [h; x; c])  ", with_commas(2 * r.width), " → ", with_commas(r.width)));
  }
  d.box_bottom();
  if (s.dropout > 0) d.on_stream("dropout", shortest(s.dropout));
}

void draw_stack(Drawing& d, const StackRecipe& s, const std::string& name, Dim C) {
  const auto kinds = kinds_in_order(s);
  std::string title = concat(name, ": ", s.layers, s.layers == 1 ? " layer" : " layers");
  if (kinds.size() > 1) {
    title += concat(" ", s.pattern, "…, ");
    for (std::size_t i = 0; i < kinds.size(); ++i) title += concat(i ? " + " : "", kinds[i].second, " ", kinds[i].first);
  }
  d.wire();
  d.box_top(kinds.size() > 1 ? concat(title, "; this is ", kinds[0].first) : title);
  const LayerRecipe& first = s.kinds.at(kinds[0].first);
  draw_layer(d, first, name, C);
  for (std::size_t i = 1; i < kinds.size(); ++i) {
    const LayerRecipe& l = s.kinds.at(kinds[i].first);
    Recipe one, other;  // only to compare two layers by the names of their fields
    one.decoder.emplace().kinds["x"] = first;
    other.decoder.emplace().kinds["x"] = l;
    const std::vector<Difference> changes = diff_recipes(one, other);
    d.box_bottom();
    d.box_top(concat(kinds[i].first, changes.size() <= 8 ? concat(": like ", kinds[0].first, ", but") : ""));
    if (changes.size() > 8) {
      draw_layer(d, l, name, C);
      continue;
    }
    for (const Difference& c : changes) {
      std::string path = c.path.substr(std::string_view("decoder.kinds.x.").size());
      if (path.starts_with("parts[")) path.erase(0, path.find("].") + 2);
      d.on_stream("", concat(path, ": ", c.a, " → ", c.b));
    }
  }
  d.box_bottom();
  if (s.final_norm || s.dropout > 0)
    d.on_stream("norm", concat(s.final_norm ? norm_text(*s.final_norm) : "none", s.dropout > 0 ? ", " + dropout_text(s.dropout) : ""));
}

void draw_embedding(Drawing& d, const Recipe& r) {
  const EmbedRecipe& e = r.embed;
  if (r.vocab > 0) {
    d.on_stream("embed", concat(with_commas(r.vocab), " × ", with_commas(r.width),
                                e.scale_sqrt_width ? concat(", times √", r.width)
                                : e.scale != 1     ? concat(", times ", shortest(e.scale))
                                                   : ""));
  }
  if (e.sink_tokens > 0) d.on_stream("+ sinks", concat(e.sink_tokens, " learned tokens before every sequence"));
  if (e.pos == EmbedRecipe::Pos::learned)
    d.on_stream("+ position", concat(with_commas(r.context), " × ", with_commas(r.width), ", learned"));
  if (e.pos == EmbedRecipe::Pos::sinusoid)
    d.on_stream("+ position",
                concat("sinusoids, ", e.layout == SinusoidLayout::pairs ? "sine and cosine alternating" : "sines before cosines",
                       e.table == SinusoidTable::marian ? ", marian's frequencies" : ""));
  if (e.types > 0) d.on_stream("+ type", concat(e.types, " × ", with_commas(r.width)));
  if (e.norm) d.on_stream("norm", norm_text(*e.norm));
  if (e.dropout > 0) d.on_stream("dropout", shortest(e.dropout));
}

std::string percent(Dim part, Dim whole) {
  char buffer[32];
  std::snprintf(buffer, sizeof buffer, "%5.1f %%", 100 * static_cast<double>(part) / static_cast<double>(std::max<Dim>(whole, 1)));
  return buffer;
}

std::string right(std::string_view s, Dim width) {
  return std::string(static_cast<std::size_t>(std::max<Dim>(0, width - text_width(s))), ' ') + std::string(s);
}

std::string both_bytes(double values) { return concat(byte_count(4 * values), " f32, ", byte_count(2 * values), " bf16"); }

void numbers(Drawing& d, const Recipe& r) {
  const ParameterCount count = count_parameters(r);
  Dim names = 0;
  for (const auto& [group, n] : count.groups) names = std::max(names, text_width(group) + 2);
  const bool exact = names + text_width(with_commas(count.total)) + 12 <= d.width();  // else with three digits, as the total beside it
  auto number = [&](Dim n) { return exact ? with_commas(n) : short_count(static_cast<double>(n)); };
  const Dim digits = std::max<Dim>(6, text_width(number(count.total))) + 2;
  d.text(concat(d.bold("parameters"), right(number(count.total), std::max<Dim>(names - 10, 0) + digits),
                exact ? "   " + short_count(static_cast<double>(count.total)) : ""));
  for (const auto& [group, n] : count.groups)
    d.text(concat("  ", padded(group, names - 2), right(number(n), digits),
                  names + digits + 9 <= d.width() ? "  " + percent(n, count.total) : ""));
  d.pair("weights", both_bytes(static_cast<double>(count.total)));
  const Cost cost = count_cost(r, r.context);
  if (r.decoder) {
    const auto kv = static_cast<double>(cost.kv_values);
    if (r.decoder->recurrent) d.pair("state", concat(both_bytes(static_cast<double>(cost.state_values)), " per sequence"));
    else
      d.pair("KV per token",
             concat(both_bytes(kv), cost.kv_forgotten == cost.kv_values && kv > 0 ? "; forgotten behind the window"
                                    : cost.kv_forgotten > 0 ? concat("; ", byte_count(2 * static_cast<double>(cost.kv_forgotten)),
                                                                     " of bf16 forgotten behind windows")
                                                            : ""));
    if (cost.memory_values > 0) d.pair("  per source token", both_bytes(static_cast<double>(cost.memory_values)));
  }
  auto operations = [](double n) {  // 15.0 G: nobody says billions of operations
    std::string s = short_count(n);
    if (s.ends_with('B')) s.back() = 'G';
    return s;
  };
  auto flops = [&](const Cost::Pass& p) {
    return concat(operations(p.matrices), " in matrices + ", operations(p.attention), " in attention");
  };
  d.pair("FLOPs per token", concat(flops(cost.token), " at context ", with_commas(r.context)));
  if (r.encoder && r.decoder) d.pair("  per source token", flops(cost.source));
}

}  // namespace

std::string draw_recipe(const Recipe& r, bool color, Dim width) {
  Drawing d(color, width);
  d.words(r.name, r.note.empty() ? "" : "  " + r.note, 2);
  d.text("");
  auto source = [&](const char* what) {
    d.text(concat("  ", what));
    d.wire();
    draw_embedding(d, r);
  };
  const bool both = r.encoder && r.decoder;
  if (r.encoder) {
    source(both ? "source tokens" : r.vocab > 0 ? "tokens" : "vectors");
    if (r.encoder->recurrent) draw_recurrent(d, r, *r.encoder, "encoder");
    else draw_stack(d, *r.encoder, "encoder", r.width);
  }
  if (both) {
    d.text("  ▼");
    d.words("", r.decoder->recurrent ? "  memory: what the decoder looks at" : "  memory: keys and values of cross-attention", 2);
    d.text("");
  }
  if (r.decoder) {
    source(both ? "target tokens" : r.vocab > 0 ? "tokens" : "vectors");
    if (r.decoder->recurrent) draw_recurrent(d, r, *r.decoder, "decoder");
    else draw_stack(d, *r.decoder, "decoder", r.width);
  }
  const HeadRecipe& h = r.head;
  const bool classes = h.kind == HeadRecipe::Kind::classes;
  if (classes)
    d.on_stream("pool",
                concat("the ", h.pool == HeadRecipe::Pool::mean ? "mean of a sequence's rows" : name_of(h.pool) + " row of a sequence"));
  if (h.kind != HeadRecipe::Kind::none) {
    if (h.transform)
      d.on_stream("transform", concat(act_text(h.transform->act, concat(with_commas(r.width), " → ", with_commas(r.width), " + bias")),
                                      h.transform->norm ? ", norm " + norm_text(*h.transform->norm) : ""));
    std::string what = concat(with_commas(r.width), " → ", with_commas(classes ? h.classes : r.vocab), classes ? " classes" : "",
                              h.tied ? ", the table of the embedding" : "", h.bias ? " + bias" : "");
    if (h.scale != 1) what += concat(", input times ", shortest(h.scale));
    if (h.cap > 0) what += concat(", capped at ", shortest(h.cap));
    d.on_stream("head", what);
  }
  d.text("  ▼");
  d.text(classes ? "  logits, one row per sequence" : h.kind == HeadRecipe::Kind::vocab ? "  logits" : "  hidden states");
  d.text("");
  numbers(d, r);
  return d.take();
}

// ------------------------------------------------------------------------------------------------ differences
namespace {

std::string brief(const Json* j) {
  if (!j || j->is_null()) return "absent";
  std::string s = j->dump(0);
  constexpr std::size_t kMost = 100;
  if (s.size() <= kMost) return s;
  std::size_t cut = kMost;
  while (cut > 0 && (static_cast<unsigned char>(s[cut]) & 0xC0) == 0x80) --cut;
  return s.substr(0, cut) + "…";
}

void diff_json(const Json* a, const Json* b, const std::string& path, std::vector<Difference>& out) {
  if (a && b && *a == *b) return;
  if (a && b && a->is_object() && b->is_object()) {
    bool common = a->object().empty() || b->object().empty();
    for (const auto& m : a->object()) common = common || b->find(m.key);
    if (common) {  // else: two different choices, shown whole
      auto under = [&](const std::string& key) { return path.empty() ? key : path + "." + key; };
      for (const auto& m : a->object()) diff_json(&m.value, b->find(m.key), under(m.key), out);
      for (const auto& m : b->object())
        if (!a->find(m.key)) diff_json(nullptr, &m.value, under(m.key), out);
      return;
    }
  }
  if (a && b && a->is_array() && b->is_array()) {
    const auto &x = a->array(), &y = b->array();
    for (std::size_t i = 0; i < std::max(x.size(), y.size()); ++i)
      diff_json(i < x.size() ? &x[i] : nullptr, i < y.size() ? &y[i] : nullptr, concat(path, "[", i, "]"), out);
    return;
  }
  out.push_back({path, brief(a), brief(b)});
}

}  // namespace

std::vector<Difference> diff_recipes(const Recipe& a, const Recipe& b) {
  Recipe x = a, y = b;
  x.name = y.name;
  x.note = y.note;
  std::vector<Difference> out;
  const Json first = parse_json(recipe_json(x, true)), second = parse_json(recipe_json(y, true));
  diff_json(&first, &second, "", out);
  return out;
}

}  // namespace rapt
