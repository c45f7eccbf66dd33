// SPDX-License-Identifier: Apache-2.0
// A recipe as formulas in LaTeX (amsmath, amssymb), one align* a part, in the order of the forward. Vectors
// are columns; x is the residual stream, h what a part reads, y what it gives.
#include <algorithm>
#include <cmath>
#include <cstdio>

#include "rapt/base/text.h"
#include "rapt/inspect/show.h"
#include "rapt/inspect/show_parts.h"
#include "rapt/nn/size.h"
#include "rapt/recipe/recipe_fields.h"
#include "rapt/recipe/recurrent_recipe.h"

namespace rapt {
namespace {

// 128{,}256: no space behind the comma.
std::string tex(Dim n) {
  std::string out;
  for (const char c : with_commas(n)) out += c == ',' ? std::string("{,}") : std::string(1, c);
  return out;
}

std::string tex(double x) {
  if (x == std::floor(x) && std::abs(x) < 1e12) return tex(static_cast<Dim>(x));
  char text[40];
  std::snprintf(text, sizeof text, "%.6g", x);
  const std::string s = text;
  const std::size_t e = s.find('e');
  if (e == s.npos) return s;
  const std::string mantissa = s.substr(0, e), power = std::to_string(std::stoi(s.substr(e + 1)));
  return concat(mantissa == "1" ? "" : mantissa + " \\cdot ", "10^{", power, "}");
}

std::string matrix(Dim rows, Dim columns) {
  return concat("\\in \\mathbb{R}^{", tex(rows), " \\times ", tex(columns), "}");
}

std::string shape(std::string_view name, Dim rows, Dim columns) {
  return concat(name, " ", matrix(rows, columns));
}

std::string act_tex(Act act) {
  switch (act) {
    case Act::sigmoid: return "\\sigma";
    case Act::tanh: return "\\tanh";
    case Act::relu: return "\\mathrm{ReLU}";
    case Act::relu2: return "\\mathrm{ReLU}^2";
    case Act::gelu: return "\\mathrm{GELU}";
    case Act::gelu_tanh: return "\\mathrm{GELU}_{\\tanh}";
    case Act::silu: return "\\mathrm{SiLU}";
    case Act::quick_gelu: return "\\mathrm{GELU}_{1.702}";
    case Act::ns_sigmoid: return "\\sigma_{\\mathrm{ns}}";
    default: return "\\mathrm{softplus}";
  }
}

std::string act_formula(Act act) {
  switch (act) {
    case Act::sigmoid: return "\\frac{1}{1 + e^{-u}}";
    case Act::tanh: return "";
    case Act::relu: return "\\max(0, u)";
    case Act::relu2: return "\\max(0, u)^2";
    case Act::gelu: return "u \\, \\Phi(u) = \\tfrac{u}{2} \\bigl(1 + \\mathrm{erf}(u / \\sqrt{2})\\bigr)";
    case Act::gelu_tanh:
      return "\\tfrac{u}{2} \\bigl(1 + \\tanh(\\sqrt{2 / \\pi} \\, (u + 0.044715 \\, u^3))\\bigr)";
    case Act::silu: return "u \\, \\sigma(u)";
    case Act::quick_gelu: return "u \\, \\sigma(1.702 \\, u)";
    case Act::ns_sigmoid: return "\\tfrac{1}{2} + \\tfrac{1}{2} \\sigma(u)";
    default: return "\\ln(1 + e^{u})";
  }
}

class RecipeFormulas {
 public:
  RecipeFormulas(const Recipe& recipe, Language language) : r_(recipe), words_(language), C_(recipe.width) {}

  std::string text() {
    const bool both = r_.encoder && r_.decoder;
    if (r_.encoder) {
      embedding(both);
      stack(*r_.encoder, "encoder");
    }
    if (both) line("m_s", "x_s", note("latex.memory"));
    if (r_.decoder) {
      embedding(false);
      stack(*r_.decoder, "decoder");
    }
    head();
    definitions();
    close();
    return heading() + out_;
  }

 private:
  // -------------------------------------------------------------------------------------- the paper
  std::string note(std::string_view key) const { return concat("\\text{", words_(key), "}"); }
  template <class... Values>
  std::string note(std::string_view key, Values&&... values) const {
    return concat("\\text{", words_(key, std::forward<Values>(values)...), "}");
  }
  void close() {
    if (open_) out_ += "\n\\end{align*}\n";
    open_ = false;
  }
  void part(const std::string& title) {
    close();
    out_ += concat("\n% ", title, "\n");
  }
  void line(const std::string& left, const std::string& right, const std::string& beside = "",
            const char* sign = "=") {
    out_ += open_ ? " \\\\\n" : "\\begin{align*}\n";
    open_ = true;
    out_ += concat("  ", left, " &", sign, " ", right, beside.empty() ? "" : concat(" && ", beside));
  }
  void becomes(const std::string& left, const std::string& right, const std::string& beside = "") {
    line(left, right, beside, "\\leftarrow");
  }

  std::string heading() const {
    std::string out =
        concat("% ", r_.name, ": ", words_("latex.heading"), "\n% ", words_("latex.needs"), "\n%\n");
    const auto row = [&](const std::string& letter, const std::string& what) {
      out += concat("%   ", padded(letter, 4), " ", what, "\n");
    };
    row("C", words_("sizes.width", with_commas(r_.width)));
    if (r_.vocab > 0) row("V", words_("sizes.vocab", with_commas(r_.vocab)));
    row("T", words_("sizes.context", with_commas(r_.context)));
    row("", words_("sizes.parameters", with_commas(count_parameters(r_).total)));
    return out;
  }

  // -------------------------------------------------------------------------------------- names
  std::string norm(const NormRecipe& n, const std::string& of) {
    auto it = std::find(norms_.begin(), norms_.end(), n);
    if (it == norms_.end()) it = norms_.insert(norms_.end(), n);
    return concat(norm_name(static_cast<std::size_t>(it - norms_.begin())), "(", of, ")");
  }
  // Several of one kind that differ have letters.
  std::string norm_name(std::size_t i) const {
    static constexpr const char* kNames[] = {"LayerNorm", "RMSNorm", "L2Norm", "BatchNorm"};
    std::size_t before = 0;
    for (std::size_t j = 0; j < i; ++j) before += norms_[j].kind == norms_[i].kind ? 1 : 0;
    const std::string name = concat("\\mathrm{", kNames[static_cast<std::size_t>(norms_[i].kind)], "}");
    return before == 0 ? name : concat(name, "_{", before + 1, "}");
  }
  std::string act(Act a, const std::string& of) {
    if (std::find(acts_.begin(), acts_.end(), a) == acts_.end()) acts_.push_back(a);
    const bool uses_sigmoid = a == Act::silu || a == Act::quick_gelu || a == Act::ns_sigmoid;
    if (uses_sigmoid && std::find(acts_.begin(), acts_.end(), Act::sigmoid) == acts_.end())
      acts_.push_back(Act::sigmoid);
    return concat(act_tex(a), "(", of, ")");
  }

  // -------------------------------------------------------------------------------------- embedding and head
  void embedding(bool source) {
    const EmbedRecipe& e = r_.embed;
    const Dim narrow = e.width > 0 ? e.width : C_,
              summed = e.project == EmbedRecipe::Project::sum ? narrow : C_;
    part(words_(source ? "latex.source_embedding" : "latex.embedding"));
    if (e.patches) {
      const PatchRecipe& p = *e.patches;
      const Dim pixels = p.channels * p.size * p.size;
      line("x_t", concat("W_P \\, p_t", p.bias ? " + b_P" : ""),
           concat(shape("W_P", C_, pixels), ", \\ ", note("latex.patches", p.size, p.rows * p.columns)));
      if (p.named() > 0) line("x_0", "c", note("embed.cls"));
    } else if (r_.vocab > 0) {
      const Dim rows = source && e.source_vocab > 0 ? e.source_vocab : r_.vocab;
      line("x_t",
           concat(e.scale_sqrt_width ? concat("\\sqrt{", tex(C_), "} \\, ")
                  : e.scale != 1     ? tex(e.scale) + " \\, "
                                     : "",
                  "E_{w_t}"),
           shape("E", rows, narrow));
    }
    const auto project = [&](EmbedRecipe::Project at) {
      if (narrow != C_ && e.project == at)
        becomes("x_t", concat("W_E \\, x_t", e.project_bias ? " + b_E" : ""), shape("W_E", C_, narrow));
    };
    project(EmbedRecipe::Project::tokens);
    if (e.sink_tokens > 0)
      line(concat("x_{-", e.sink_tokens - 1, "}, \\dots, x_{0}"), "\\text{learned}",
           note("embed.sinks", tex(e.sink_tokens)));
    if (e.pos == EmbedRecipe::Pos::learned)
      becomes("x_t", "x_t + P_t", shape("P", e.patches ? e.patches->positions() : r_.context, summed));
    if (e.pos == EmbedRecipe::Pos::sinusoid) {
      const bool pairs = e.layout == SinusoidLayout::pairs;
      const std::string at = e.first > 0 ? concat("(t + ", e.first, ")") : "t";
      const std::string angle =
          concat(at, " / 10{,}000^{",
                 e.table == SinusoidTable::marian ? concat("i / ", C_ / 2 - 1) : concat("2i / ", C_), "}");
      becomes("x_t", "x_t + P_t");
      line(pairs ? "P_{t, 2i}" : "P_{t, i}", concat("\\sin(", angle, ")"),
           concat("i = 0, \\dots, ", C_ / 2 - 1));
      line(pairs ? "P_{t, 2i + 1}" : concat("P_{t, ", C_ / 2, " + i}"), concat("\\cos(", angle, ")"));
    }
    if (e.types > 0) becomes("x_t", "x_t + T_{\\tau_t}", shape("T", e.types, summed));
    if (e.patches && e.patches->registers > 0)
      line("x_{\\mathrm{reg}}", "\\text{learned}", note("embed.registers", e.patches->registers));
    if (e.norm) becomes("x_t", norm(*e.norm, "x_t"));
    project(EmbedRecipe::Project::sum);
  }

  void head() {
    const HeadRecipe& h = r_.head;
    const bool classes = h.kind == HeadRecipe::Kind::classes, pools = h.pools();
    part(words_("latex.head"));
    std::string row = "x_t";
    if (pools) {
      const char* rows[] = {"x_0",     "\\frac{1}{T} \\sum_t x_t",
                            "x_T",     "[x_0; \\tfrac{1}{T} \\sum_t x_t]",
                            "x_{t^*}", "\\mathrm{Attn}(q, x_{1 \\dots T})"};
      row = "u";
      line(row, rows[static_cast<std::size_t>(h.pool)], note(concat("pool.", name_text(h.pool))));
      if (h.pool_norm) becomes(row, norm(*h.pool_norm, row));
    }
    if (h.kind == HeadRecipe::Kind::none) return line("y_t", row, note("out.hidden"));
    const Dim wide = h.pool == HeadRecipe::Pool::both              ? 2 * C_
                     : h.transform && !pools && r_.embed.width > 0 ? r_.embed.width
                                                                   : C_;
    if (h.transform) {
      std::string made = concat("W_T \\, ", row, h.transform->bias ? " + b_T" : "");
      if (!h.transform->linear) made = act(h.transform->act, made);
      if (h.transform->norm) made = norm(*h.transform->norm, made);
      becomes(row, made, shape("W_T", wide, C_));
    }
    if (pools && !classes && h.width == 0) return line("y", row, note("out.vectors"));
    const Dim to = classes ? h.classes : pools ? h.width : r_.vocab;
    std::string result = concat("W_U \\, ", h.scale != 1 ? concat("(", tex(h.scale), " \\, ", row, ")") : row,
                                h.bias ? " + b_U" : "");
    if (h.cap > 0) result = concat(tex(h.cap), " \\tanh\\bigl((", result, ") / ", tex(h.cap), "\\bigr)");
    line(pools ? "\\ell" : "\\ell_t", result,
         h.tied ? concat("W_U = E, \\ ", note("head.tied")) : shape("W_U", to, wide));
    if (!pools) line("p(w \\mid \\dots)", "\\mathrm{softmax}(\\ell_t)_w");
  }

  void definitions() {
    if (norms_.empty() && acts_.empty()) return;
    part(words_("latex.where"));
    for (std::size_t i = 0; i < norms_.size(); ++i) {
      const NormRecipe& n = norms_[i];
      using Kind = NormRecipe::Kind;
      const std::string eps = tex(n.eps);
      std::string value =
          n.kind == Kind::rms  ? concat("\\frac{u}{\\sqrt{\\frac{1}{n} \\sum_{j=1}^{n} u_j^2 + ", eps, "}}")
          : n.kind == Kind::l2 ? concat("\\frac{u}{\\sqrt{\\sum_{j=1}^{n} u_j^2 + ", eps, "}}")
                               : concat("\\frac{u - \\mu}{\\sqrt{s^2 + ", eps, "}}");
      if (n.weight == NormRecipe::Gain::one) value += " \\odot g";
      if (n.weight == NormRecipe::Gain::plus_one) value += " \\odot (1 + g)";
      if (n.bias) value += " + b";
      line(norm_name(i) + "(u)", value,
           n.kind == Kind::layer
               ? "\\mu = \\tfrac{1}{n} \\sum_j u_j, \\ s^2 = \\tfrac{1}{n} \\sum_j (u_j - \\mu)^2"
           : n.kind == Kind::batch ? note("latex.batch")
                                   : "");
    }
    for (const Act a : acts_)
      if (const std::string f = act_formula(a); !f.empty()) line(concat(act_tex(a), "(u)"), f);
  }

  // -------------------------------------------------------------------------------------- stacks and layers
  void stack(const StackRecipe& s, const std::string& name) {
    if (s.recurrent) return recurrent(*s.recurrent, name);
    std::string seen;
    for (const char kind : s.pattern) {
      if (seen.find(kind) != seen.npos) continue;
      seen += kind;
      Dim count = 0;
      for (Dim i = 0; i < s.layers; ++i)
        count += s.pattern[static_cast<std::size_t>(i) % s.pattern.size()] == kind ? 1 : 0;
      const std::string which =
          count == s.layers
              ? words_("layers", with_commas(s.layers))
              : concat(words_("kind", std::string(1, kind), with_commas(count), with_commas(s.layers)), ", ",
                       words_("latex.pattern", s.pattern));
      layer(s.kinds.at(std::string(1, kind)), concat(words_(name), ", ", which));
    }
    if (s.final_norm) {
      part(words_("latex.final_norm"));
      becomes("x_t", norm(*s.final_norm, "x_t"));
    }
  }

  void layer(const LayerRecipe& l, const std::string& where) {
    std::string sum = "x_t";
    int number = 0;
    for (const PartRecipe& p : l.parts) {
      ++number;
      part(concat(where, ": ", words_(concat("part.", part_name(p).word))));
      if (l.parallel && l.norm_in && number == 1)
        line("h_t", norm(*l.norm_in, "x_t"), note("latex.parallel"));
      else if (p.norm_in) line("h_t", norm(*p.norm_in, "x_t"));
      else if (!(l.parallel && l.norm_in)) line("h_t", "x_t");
      const std::string y = l.parallel ? concat("y^{(", number, ")}_t") : "y_t";
      y_ = y;
      std::visit([&](const auto& b) { body(b); }, p.body);
      if (p.norm_out) becomes(y, norm(*p.norm_out, y));
      if (p.layer_scale != 0) becomes(y, "\\lambda \\odot " + y, note("layer_scale"));
      const std::string branch = p.residual_scale != 1 ? concat(tex(p.residual_scale), " \\, ", y) : y;
      if (l.parallel) {
        sum += " + " + branch;
        continue;
      }
      becomes("x_t", "x_t + " + branch);
      if (p.norm_sum) becomes("x_t", norm(*p.norm_sum, "x_t"));
    }
    if (l.parallel) becomes("x_t", sum);
  }

  // -------------------------------------------------------------------------------------- attention
  void gate(const AttnRecipe& a, GateRecipe::At at, const std::string& on, const std::string& input) {
    for (const GateRecipe& g : a.gate) {
      if (g.at != at) continue;
      const auto [heads, channels] = gate_shape(a, at, C_);
      const bool from_input = g.from == GateRecipe::From::input,
                 shared = g.heads == GateRecipe::Heads::shared, per_head = g.grain == GateGrain::head;
      static constexpr const char* kNames[] = {"Z", "Q", "K", "V", "O"};
      const std::string of = kNames[static_cast<std::size_t>(at)];
      const char* head = at == GateRecipe::At::out || shared                  ? ""
                         : at == GateRecipe::At::k || at == GateRecipe::At::v ? "_g"
                                                                              : "_i";
      const std::string value =
          from_input ? concat(per_head ? "w" : "W", "^{G", of, per_head ? "\\top}" : "}", head, " ", input)
                     : concat("c^{", of, "}", head);
      const std::string size =
          from_input ? per_head ? concat("w^{G", of, "}", head, " \\in \\mathbb{R}^{", tex(C_), "}")
                                : concat("W^{G", of, "}", head, " ", matrix(channels, C_))
                     : note("gate_constant");
      const std::string opened = act(g.act, value);
      becomes(on,
              concat(on,
                     g.op == GateRecipe::Op::add ? " + "
                     : per_head                  ? " \\cdot "
                                                 : " \\odot ",
                     opened),
              shared ? concat(size, ", \\ ", note("gate_shared")) : size);
    }
  }

  std::string mask_set(const AttnRecipe& a) const {
    using Mask = AttnRecipe::MaskKind;
    if (a.cross || (a.mask == Mask::full && a.window == 0)) return note("latex.all");
    if (a.mask == Mask::full) return concat("\\{s : |s - t| < ", tex(a.window), "\\}");
    if (a.window > 0)
      return concat("\\{s : t - ", tex(a.window), " < s \\le t\\}",
                    a.keep > 0 ? concat(" \\cup \\{0, \\dots, ", a.keep - 1, "\\}") : "");
    if (a.mask == Mask::chunk)
      return concat("\\{s \\le t : \\lfloor s / ", a.chunk, " \\rfloor = \\lfloor t / ", a.chunk,
                    " \\rfloor\\}");
    if (a.mask == Mask::prefix) return concat("\\{s : s \\le t\\} \\cup ", note("latex.prefix"));
    return "\\{s : s \\le t\\}";
  }

  void rope(const AttnRecipe& a) {
    const bool grid = a.pos.kind == PosRecipe::Kind::grid;
    if (!grid && a.pos.kind != PosRecipe::Kind::rope) return;
    if (!a.latent) {
      becomes("q_{t,i}", "R_t \\, q_{t,i}", note("latex.rope"));
      becomes("k_{s,g}", "R_s \\, k_{s,g}");
    }
    if (grid)
      return line("\\theta_j", concat("2 \\pi \\, ", tex(a.pos.grid_theta), "^{-4j / ", a.head_dim, "}"),
                  note("rope_grid"));
    const RopeSpec& r = a.pos.rope;
    const Dim turned = static_cast<Dim>(r.part * static_cast<double>(a.rope_channels()));
    const std::string pair =
        r.layout == RopeLayout::halves ? concat("(j, \\ j + ", turned / 2, ")") : "(2j, \\ 2j + 1)";
    std::string beside =
        concat("j = 0, \\dots, ", turned / 2 - 1, ", \\ ", note("latex.pairs"), " \\ ", pair);
    line("\\theta_j", concat(tex(r.theta), "^{-2j / ", turned, "}"), beside);
    if (r.scaling != RopeScaling::none)
      becomes("\\theta_j", concat("\\mathrm{", name_of(r.scaling), "}(\\theta_j)"),
              note("latex.scaled", shortest(r.factor), with_commas(static_cast<Dim>(r.original))));
  }

  void qk_norm(const AttnRecipe& a, QkNormRecipe::At at) {
    if (!a.qk_norm || a.qk_norm->at != at) return;
    const bool full = a.qk_norm->span == QkNormRecipe::Span::full;
    const std::string q = full ? "q_t" : "q_{t,i}", k = full ? "k_s" : "k_{s,g}";
    becomes(q, norm(a.qk_norm->norm, q), note(full ? "whole_projection" : "each_head"));
    becomes(k, norm(a.qk_norm->norm, k));
  }

  void latent(const AttnRecipe& a) {
    const LatentRecipe& l = *a.latent;
    const Dim plain = a.head_dim - l.rope_dim;
    const bool turns = a.pos.kind == PosRecipe::Kind::rope;
    if (l.q_rank > 0) {
      line("c^Q_t", norm(l.q_norm, concat("W^{DQ} h_t", a.bias.q ? " + b^{DQ}" : "")),
           shape("W^{DQ}", l.q_rank, C_));
      line("q_{t,i}", "W^{UQ}_i \\, c^Q_t", shape("W^{UQ}_i", a.head_dim, l.q_rank));
    } else {
      line("q_{t,i}", concat("W^Q_i \\, h_t", a.bias.q ? " + b^Q_i" : ""), shape("W^Q_i", a.head_dim, C_));
    }
    gate(a, GateRecipe::At::q, "q_{t,i}", "h_t");
    const std::string bias = a.bias.k ? " + b^{DKV}" : "";
    line("c_s", norm(l.norm, concat("W^{DKV} h_s", bias)), shape("W^{DKV}", l.rank, C_));
    if (turns) {
      line("r_s", concat("R_s (W^{KR} h_s", a.bias.k ? " + b^{KR}" : "", ")"),
           concat(shape("W^{KR}", l.rope_dim, C_), ", \\ ", note("latex.shared_key")));
      becomes("q_{t,i}", concat("[q_{t,i}^{1 \\dots ", plain, "}; \\ R_t \\, q_{t,i}^{", plain + 1,
                                " \\dots ", a.head_dim, "}]"));
    }
    line("k_{s,i}", turns ? "[W^{UK}_i c_s; \\ r_s]" : "W^{UK}_i c_s", shape("W^{UK}_i", plain, l.rank));
    line("v_{s,i}", "W^{UV}_i c_s", shape("W^{UV}_i", a.v_dim, l.rank));
    rope(a);
  }

  std::string scaled(const AttnRecipe& a, std::string score) const {
    switch (a.scale.kind) {
      case ScaleRecipe::Kind::automatic:
        if (automatic_scale(a) > 0) score = concat("\\frac{", score, "}{\\sqrt{", automatic_scale(a), "}}");
        if (const double f = yarn_score_factor(a); f != 1) score = concat(tex(f), " \\cdot ", score);
        return score;
      case ScaleRecipe::Kind::number:
        return a.scale.number == 1 ? score : concat(tex(a.scale.number), " \\cdot ", score);
      case ScaleRecipe::Kind::learned: break;
    }
    const std::string g = a.scale.per == ScaleRecipe::Per::head ? "\\gamma_i" : "\\gamma";
    return concat(a.scale.max > 0 ? concat("\\min(", g, ", ", tex(a.scale.max), ")") : g, " \\cdot ", score);
  }

  void body(const AttnRecipe& a) {
    using At = GateRecipe::At;
    using Score = AttnRecipe::ScoreKind;
    using Pos = PosRecipe::Kind;
    const std::string from = a.cross ? "m_s" : "h_s", key = a.latent ? "i" : "g";
    if (a.latent) {
      latent(a);
    } else {
      const bool shares = a.kv_heads != a.heads;
      line("q_{t,i}", concat("W^Q_i \\, h_t", a.bias.q ? " + b^Q_i" : ""),
           concat(shape("W^Q_i", a.head_dim, C_), ", \\ i = 1, \\dots, ", a.heads));
      line("k_{s,g}", concat("W^K_g \\, ", from, a.bias.k ? " + b^K_g" : ""),
           concat(shape("W^K_g", a.head_dim, C_), ", \\ g = 1, \\dots, ", a.kv_heads));
      line("v_{s,g}", concat("W^V_g \\, ", from, a.bias.v ? " + b^V_g" : ""), shape("W^V_g", a.v_dim, C_));
      gate(a, At::q, "q_{t,i}", "h_t");
      gate(a, At::k, "k_{s,g}", from);
      gate(a, At::v, "v_{s,g}", from);
      if (a.score == Score::general) becomes("q_{t,i}", "W^S q_{t,i}", shape("W^S", a.head_dim, a.head_dim));
      if (a.score == Score::cosine) {
        becomes("q_{t,i}", "q_{t,i} / \\lVert q_{t,i} \\rVert");
        becomes("k_{s,g}", "k_{s,g} / \\lVert k_{s,g} \\rVert");
      }
      qk_norm(a, QkNormRecipe::At::before_pos);
      if (a.v_norm) becomes("v_{s,g}", norm(*a.v_norm, "v_{s,g}"), note("each_head"));
      if (a.clip > 0)
        for (const char* what : {"q_{t,i}", "k_{s,g}", "v_{s,g}"})
          becomes(what, concat("\\max(-", tex(a.clip), ", \\min(", tex(a.clip), ", ", what, "))"));
      rope(a);
      qk_norm(a, QkNormRecipe::At::after_pos);
      if (shares)
        line("g(i)", a.kv_heads == 1 ? "1" : concat("\\lceil i / ", a.heads / a.kv_heads, " \\rceil"),
             concat("\\text{", sharing(a), "}"));
      if (shares) key_ = "g(i)";
      else key_ = "i";
    }
    if (a.latent) key_ = "i";
    if (a.temperature)
      becomes("q_{t,i}", concat("\\bigl(1 + ", tex(a.temperature->factor), " \\ln(1 + \\lfloor (t + ",
                                a.temperature->first, ") / ", tex(a.temperature->length),
                                " \\rfloor)\\bigr) \\, q_{t,i}"));
    const std::string k = concat("k_{s,", key_, "}");
    std::string score = a.score == Score::l2 ? concat("-\\lVert q_{t,i} - ", k, " \\rVert^2")
                        : a.score == Score::additive || a.score == Score::concat
                            ? concat("w_i^{\\top} \\tanh(q_{t,i} + ", k, ")")
                            : concat("q_{t,i}^{\\top} ", k);
    if (a.pos.kind == Pos::relative) {
      if (a.pos.relative.keys)
        score += concat(" + q_{t,i}^{\\top} W^K_", key_ == "i" ? "i" : "{g(i)}", " d_{t-s}");
      if (a.pos.relative.queries) score += concat(" + ", k, "^{\\top} W^Q_i d_{t-s}");
    }
    line("s_{t,s,i}", scaled(a, score), a.scale.kind == ScaleRecipe::Kind::learned ? note("learned") : "");
    if (a.cap > 0) becomes("s_{t,s,i}", concat(tex(a.cap), " \\tanh(s_{t,s,i} / ", tex(a.cap), ")"));
    if (a.pos.kind == Pos::alibi) {
      Dim power = 1;
      while (power * 2 <= a.heads) power *= 2;
      const std::string factor = a.pos.alibi_factor != 1 ? concat(tex(a.pos.alibi_factor), " \\cdot ") : "";
      becomes("s_{t,s,i}", "s_{t,s,i} - \\beta_i \\, |t - s|",
              concat("\\beta_i = ", factor, "2^{-", tex(a.pos.alibi_max), " i / ", power, "}",
                     power == a.heads ? "" : concat(", \\ ", note("latex.alibi"))));
    }
    if (a.pos.kind == Pos::bucket)
      becomes("s_{t,s,i}", "s_{t,s,i} + B_{\\mathrm{bucket}(s - t), \\, i}",
              concat(shape("B", a.pos.bucket.count, a.heads),
                     a.pos.bucket.shared ? concat(", \\ ", note("latex.one_table")) : ""));
    line("\\mathcal{V}(t)", mask_set(a), note("latex.sees"));
    weights(a);
    line("z_{t,i}",
         concat("\\sum_{s \\in \\mathcal{V}(t)} a_{t,s,i} \\, v_{s,", key_, "}",
                a.extra.kind == ExtraRecipe::Kind::kv_slots ? " + \\sum_{r} a_{t,r,i} \\, \\hat v_{r}" : ""));
    gate(a, At::sdpa, "z_{t,i}", "h_t");
    if (a.z_norm) becomes("z_{t,i}", norm(*a.z_norm, "z_{t,i}"), note("each_head"));
    line(y_, concat("W^O [z_{t,1}; \\dots; z_{t,", a.heads, "}]", a.bias.o ? " + b^O" : ""),
         shape("W^O", C_, a.heads * a.v_dim));
    gate(a, At::out, y_, "h_t");
  }

  void weights(const AttnRecipe& a) {
    if (a.normal == Normal::sigmoid) return line("a_{t,s,i}", "\\sigma(s_{t,s,i})");
    using Extra = ExtraRecipe::Kind;
    std::string more;
    if (a.extra.kind == Extra::zero_logit) more = " + 1";
    if (a.extra.kind == Extra::learned_logit) more = " + e^{b_i}";
    if (a.extra.kind == Extra::kv_slots)
      more = concat(" + \\sum_{r=1}^{", a.extra.slots, "} e^{q_{t,i}^{\\top} \\hat k_r}");
    line("a_{t,s,i}", concat("\\frac{e^{s_{t,s,i}}}{\\sum_{u \\in \\mathcal{V}(t)} e^{s_{t,u,i}}", more, "}"),
         more.empty() ? ""
                      : note(a.extra.kind == Extra::zero_logit      ? "extra_zero"
                             : a.extra.kind == Extra::learned_logit ? "extra_learned"
                                                                    : "latex.slots"));
  }

  static const char* sharing(const AttnRecipe& a) { return a.kv_heads == 1 ? "MQA" : "GQA"; }

  // -------------------------------------------------------------------------------------- the other parts
  std::string net(const FfnRecipe& f, const std::string& x, const std::string& mark) {
    const auto b = [&](const char* of) { return f.bias ? concat(" + b^{", of, "}", mark) : ""; };
    if (f.kind == FfnRecipe::Kind::mlp)
      return concat("W^{down}", mark, " \\, ", act(f.act, concat("W^{up}", mark, " ", x, b("up"))),
                    b("down"));
    std::string gate = concat("W^{gate}", mark, " ", x, b("gate")),
                up = concat("W^{up}", mark, " ", x, b("up"));
    if (f.clamp > 0) {
      gate = concat("\\min(", tex(f.clamp), ", ", gate, ")");
      up = concat("\\max(-", tex(f.clamp), ", \\min(", tex(f.clamp), ", ", up, "))");
    }
    if (f.up_offset != 0) up = concat(up, " + ", tex(f.up_offset));
    const std::string opened =
        f.alpha != 1 ? concat("(", gate, ") \\odot ", act(Act::sigmoid, concat(tex(f.alpha), "(", gate, ")")))
                     : act(f.act, gate);
    return concat("W^{down}", mark, " \\bigl(", opened, " \\odot (", up, ")\\bigr)", b("down"));
  }
  std::string sizes(const FfnRecipe& f) const {
    return concat(f.kind == FfnRecipe::Kind::glu ? "W^{gate}, " : "", "W^{up} ", matrix(f.width, C_),
                  ", \\ W^{down} ", matrix(C_, f.width));
  }

  void body(const FfnRecipe& f) { line(y_, net(f, "h_t", ""), sizes(f)); }

  void body(const MoeRecipe& m) {
    const RouterRecipe& r = m.router;
    const bool chosen = r.over == RouterRecipe::Over::chosen,
               sigmoid = r.score == RouterRecipe::Score::sigmoid;
    line("\\ell_e", concat("W^{R}_e h_t", r.bias ? " + b^{R}_e" : ""), concat(shape("W^{R}", m.experts, C_)));
    if (!chosen)
      line("\\pi_e", sigmoid ? act(Act::sigmoid, "\\ell_e")
                             : concat("\\frac{e^{\\ell_e}}{\\sum_{f=1}^{", m.experts, "} e^{\\ell_f}}"));
    const std::string by = chosen ? "\\ell" : "\\pi";
    line(
        "\\mathcal{T}", concat("\\mathrm{top}_{", m.used, "}(", by, r.choice_bias ? " + c" : "", ")"),
        r.groups ? note("moe.groups", r.groups->used, r.groups->count) : note("moe.uses", m.used, m.experts));
    const std::string scale = r.scale != 1 ? tex(r.scale) + " \\, " : "";
    std::string weight = "\\pi_e", below = "\\sum_{f \\in \\mathcal{T}} \\pi_f";
    if (r.eps != 0)
      below = r.eps_as == RouterRecipe::Eps::least ? concat("\\max(", tex(r.eps), ", ", below, ")")
                                                   : concat(below, " + ", tex(r.eps));
    if (chosen) weight = "\\frac{e^{\\ell_e}}{\\sum_{f \\in \\mathcal{T}} e^{\\ell_f}}";
    else if (r.renormalise) weight = concat("\\frac{\\pi_e}{", below, "}");
    line("\\omega_e", scale + weight);
    const FfnRecipe expert = expert_of(m);
    line("E_e(u)", net(expert, "u", "_e"), sizes(expert));
    const bool at_input = r.weight_at == RouterRecipe::WeightAt::input;
    std::string sum =
        concat("\\sum_{e \\in \\mathcal{T}} ", at_input ? "E_e(\\omega_e h_t)" : "\\omega_e \\, E_e(h_t)");
    if (m.shared) {
      FfnRecipe shared = expert;
      shared.width = m.shared->width;
      line("S(u)", net(shared, "u", "_S"), concat(sizes(shared), ", \\ ", note("moe.shared")));
      sum +=
          m.shared->gated ? concat(" + ", act(Act::sigmoid, "w_S^{\\top} h_t"), " \\, S(h_t)") : " + S(h_t)";
    }
    line(y_, sum);
  }

  void body(const DeltaRecipe& r) {
    const auto mixed = [&](const char* letter, Dim heads, Dim channels, const char* index) {
      line(concat(letter, "_{t,", index, "}"),
           act(r.act, concat("\\mathrm{conv}_{", r.conv, "}(W^{", letter, "} h)_{t,", index, "}")),
           concat(shape(concat("W^{", letter, "}"), heads * channels, C_), ", \\ ", index, " = 1, \\dots, ",
                  heads));
    };
    mixed("q", r.key_heads, r.key_dim, "g");
    mixed("k", r.key_heads, r.key_dim, "g");
    mixed("v", r.value_heads, r.value_dim, "i");
    for (const char* what : {"q_{t,g}", "k_{t,g}"})
      becomes(what, concat(what, " / \\sqrt{\\lVert ", what, " \\rVert^2 + ", tex(r.eps), "}"));
    line("\\mathrm{conv}_{" + std::to_string(r.conv) + "}(u)_t",
         concat("\\sum_{j=0}^{", r.conv - 1, "} c_j \\odot u_{t-j}"));
    if (r.value_heads != r.key_heads)
      line("g(i)", r.share == DeltaRecipe::Share::turns
                       ? concat("1 + (i - 1) \\bmod ", r.key_heads)
                       : concat("\\lceil i / ", r.value_heads / r.key_heads, " \\rceil"));
    const std::string g = r.value_heads != r.key_heads ? "g(i)" : "i";
    line("\\beta_{t,i}", act(Act::sigmoid, "w^{b\\top}_i h_t"));
    line("\\alpha_{t,i}",
         concat("\\exp\\bigl(-e^{A_i} \\, ", act(Act::softplus, "w^{a\\top}_i h_t + \\delta_i"), "\\bigr)"));
    line("u_{t,i}", concat("\\beta_{t,i} \\, (v_{t,i} - \\alpha_{t,i} \\, S_{t-1,i}^{\\top} k_{t,", g, "})"));
    line("S_{t,i}", concat("\\alpha_{t,i} \\, S_{t-1,i} + k_{t,", g, "} \\, u_{t,i}^{\\top}"),
         shape("S_{t,i}", r.key_dim, r.value_dim));
    line("o_{t,i}", concat(norm(r.norm, concat("S_{t,i}^{\\top} q_{t,", g, "} / \\sqrt{", r.key_dim, "}")),
                           " \\odot ", act(r.gate, "W^{z}_i h_t")));
    line(y_, concat("W^O [o_{t,1}; \\dots; o_{t,", r.value_heads, "}]"),
         shape("W^O", C_, r.value_heads * r.value_dim));
  }

  void body(const ConvRecipe& r) {
    const std::string b = r.bias ? " + \\beta" : "";
    line("b_t, \\ c_t, \\ u_t", concat("W^{b} h_t", b, ", \\ W^{c} h_t", b, ", \\ W^{u} h_t", b),
         matrix(C_, C_).substr(4));
    line(y_,
         concat("W^O \\Bigl(c_t \\odot \\Bigl(\\sum_{j=0}^{", r.kernel - 1,
                "} w_j \\odot b_{t-j} \\odot u_{t-j}", b, "\\Bigr)\\Bigr)", b),
         shape("W^O", C_, C_));
  }

  // -------------------------------------------------------------------------------------- recurrent stacks
  void cell(const RecurrentRecipe& c, const std::string& input) {
    const std::string kind(name_text(c.cell));
    const auto gates = [&](const char* of) {
      return concat("W_", of, " ", input, " + b_", of, " + U_", of, " h_{t-1} + c_", of);
    };
    if (kind == "gru") {
      line("r_t", act(Act::sigmoid, gates("r")));
      line("z_t", act(Act::sigmoid, gates("z")));
      line("n_t", concat("\\tanh\\bigl(W_n ", input, " + b_n + r_t \\odot (U_n h_{t-1} + c_n)\\bigr)"));
      line("h_t", "(1 - z_t) \\odot n_t + z_t \\odot h_{t-1}",
           concat("h_t \\in \\mathbb{R}^{", tex(c.width), "}"));
    } else if (kind == "lstm") {
      const auto one = [&](const char* of) {
        return concat("W_", of, " ", input, " + U_", of, " h_{t-1} + b_", of);
      };
      line("i_t, \\ f_t, \\ o_t", concat(act(Act::sigmoid, one("i")), ", \\ ", act(Act::sigmoid, one("f")),
                                         ", \\ ", act(Act::sigmoid, one("o"))));
      line("c_t", concat("f_t \\odot c_{t-1} + i_t \\odot \\tanh(", one("g"), ")"));
      line("h_t", "o_t \\odot \\tanh(c_t)", concat("h_t \\in \\mathbb{R}^{", tex(c.width), "}"));
    } else {
      line("h_t", concat("\\tanh(W ", input, " + U h_{t-1} + b)"),
           concat("h_t \\in \\mathbb{R}^{", tex(c.width), "}"));
    }
  }

  void looking(const AlignRecipe& a) {
    const std::string h = a.at == AlignRecipe::At::previous ? "h_{t-1}" : "h_t";
    const std::string scores[] = {concat(h, "^{\\top} m_s"), concat(h, "^{\\top} W_a m_s"),
                                  concat("v^{\\top} \\tanh(W_a ", h, " + U_a m_s)"),
                                  concat("v^{\\top} \\tanh(W_a [", h, "; m_s])")};
    line("e_{t,s}", scores[static_cast<std::size_t>(a.score)],
         is_additive(a) ? concat("v \\in \\mathbb{R}^{", tex(a.width), "}") : "");
    const std::string near =
        a.window == AlignRecipe::Window::monotonic ? concat("|u - t| \\le ", a.reach) : "u";
    line("a_{t,s}", concat("\\frac{e^{e_{t,s}}}{\\sum_{", near, "} e^{e_{t,u}}}"));
    if (a.window == AlignRecipe::Window::predictive) {
      line("p_t", concat("S \\, ", act(Act::sigmoid, concat("v_p^{\\top} \\tanh(W_p ", h, ")"))),
           note("latex.source_length"));
      becomes("a_{t,s}",
              concat("a_{t,s} \\, \\exp\\Bigl(-\\frac{(s - p_t)^2}{2 \\cdot ",
                     tex(static_cast<double>(a.reach) / 2), "^2}\\Bigr)"),
              concat("|s - p_t| \\le ", a.reach));
    }
    line("k_t", "\\sum_s a_{t,s} \\, m_s", note("latex.context"));
  }

  void recurrent(const RecurrentRecipe& c, const std::string& name) {
    std::string kind(name_text(c.cell));
    for (char& l : kind) l = static_cast<char>(l >= 'a' && l <= 'z' ? l - 'a' + 'A' : l);
    part(concat(words_(name), ", ", words_("rnn.layers", with_commas(c.layers), kind)));
    if (name == "encoder") {
      cell(c, "x_t");
      if (c.layers > 1) becomes("x_t", "h_t", note("latex.next_layer"));
      line("x_s", c.both_ways ? "[\\overrightarrow{h}_s; \\overleftarrow{h}_s]" : "h_s",
           c.both_ways ? note("latex.both_ways") : "");
      return;
    }
    const AlignRecipe* a = c.attention ? &*c.attention : nullptr;
    const bool previous = a && a->at == AlignRecipe::At::previous;
    static constexpr const char* kStarts[] = {"rnn.start_last", "rnn.start_projected", "rnn.start_zero"};
    out_ += concat("% ", words_(kStarts[static_cast<std::size_t>(c.start)]), "\n");
    if (previous) looking(*a);
    cell(c, previous ? "[x_t; k_t]" : a && a->feed ? "[x_t; y_{t-1}]" : "x_t");
    if (c.layers > 1) becomes("x_t", "h_t", note("latex.next_layer"));
    if (a && !previous) looking(*a);
    if (!a) return becomes("x_t", "h_t");
    if (a->readout == AlignRecipe::Readout::tanh) {
      line("y_t", "\\tanh(W_c [k_t; h_t] + b_c)",
           shape("W_c", C_, c.width + r_.encoder->recurrent->out_width()));
    } else {
      line("\\tilde y_t", concat("W_o [", previous ? "h_{t-1}" : "h_t", "; x_t; k_t] + b_o"),
           concat("\\tilde y_t \\in \\mathbb{R}^{", tex(2 * C_), "}"));
      line("y_{t,j}", concat("\\max(\\tilde y_{t,j}, \\tilde y_{t,j+", C_, "})"));
    }
    becomes("x_t", "y_t");
  }

  const Recipe& r_;
  const ShowWords words_;
  const Dim C_;
  std::string out_, y_ = "y_t", key_ = "g";
  bool open_ = false;
  std::vector<NormRecipe> norms_;
  std::vector<Act> acts_;
};

}  // namespace

std::string recipe_latex(const Recipe& recipe, Language language) {
  return RecipeFormulas(recipe, language).text();
}

}  // namespace rapt
