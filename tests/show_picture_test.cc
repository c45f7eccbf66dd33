// SPDX-License-Identifier: Apache-2.0
// Recipes as pictures and as formulas: every preset, nothing over anything else, and what must and must not
// be there.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "rapt/base/text.h"
#include "rapt/inspect/show.h"
#include "rapt/report/diagram.h"
#include "tests/tools.h"

namespace rapt {
namespace {

using test::holds;

std::string svg_of(const char* name, Language language = Language::en) {
  return recipe_svg(resolve(preset(name)), language);
}

// An element's number by name: x="12.50".
double number_of(std::string_view tag, std::string_view name, double otherwise) {
  const std::size_t at = tag.find(concat(" ", name, "=\""));
  return at == tag.npos ? otherwise : std::strtod(tag.data() + at + name.size() + 3, nullptr);
}

struct PictureWords {
  std::string text;
  double left, right, top, bottom;
};
// Texts of a picture with the room that they take at most.
std::vector<PictureWords> words_of(const std::string& svg) {
  std::vector<PictureWords> out;
  for (std::size_t at = svg.find("<text"); at != svg.npos; at = svg.find("<text", at + 1)) {
    const std::size_t open = svg.find('>', at), end = svg.find("</text>", at);
    const std::string tag = svg.substr(at, open - at);
    std::string text;
    bool inside = true;
    for (char c : svg.substr(open + 1, end - open - 1)) {
      if (c == '<') inside = false;
      if (inside) text += c;
      if (c == '>') inside = true;
    }
    const double size = number_of(tag, "font-size", 12), x = number_of(tag, "x", 0),
                 y = number_of(tag, "y", 0), wide = text_pixels(text, size);
    const double left = holds(tag, "middle") ? x - wide / 2 : holds(tag, "\"end\"") ? x - wide : x;
    out.push_back({text, left, left + wide, y - 0.8 * size, y + 0.15 * size});
  }
  return out;
}

double height_of(const std::string& svg, std::string_view text) {  // of the first one
  for (const PictureWords& w : words_of(svg))
    if (w.text == text) return w.bottom;
  ADD_FAILURE() << "no text '" << text << "'";
  return 0;
}

std::size_t count(std::string_view text, std::string_view what) {
  std::size_t n = 0;
  for (std::size_t at = text.find(what); at != text.npos; at = text.find(what, at + what.size())) ++n;
  return n;
}

TEST(ShowPicture, NoTextOfAnyPresetLiesOverAnotherOrIsCut) {
  for (const std::string& name : preset_names())
    for (const Language language : kLanguages) {
      const std::string svg = svg_of(name.c_str(), language);
      const std::string head = svg.substr(0, svg.find('>'));
      const double width = number_of(head, "width", 0), height = number_of(head, "height", 0);
      const std::vector<PictureWords> all = words_of(svg);
      EXPECT_GT(all.size(), 10u) << name;
      EXPECT_LT(svg.size(), 100000u) << name;
      EXPECT_FALSE(holds(svg, "show.")) << name;  // every word is in the dictionary
      EXPECT_EQ(count(svg, "<text"), count(svg, "</text>")) << name;
      for (std::size_t i = 0; i < all.size(); ++i) {
        const PictureWords& a = all[i];
        EXPECT_TRUE(a.left >= 0 && a.right <= width && a.top >= 0 && a.bottom <= height)
            << name << ": " << a.text;
        for (std::size_t j = i + 1; j < all.size(); ++j) {
          const PictureWords& b = all[j];
          EXPECT_FALSE(a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom)
              << name << ": " << a.text << " over " << b.text;
        }
      }
    }
}

TEST(ShowPicture, NormsStandWhereTheRecipeHasThem) {
  const std::string pre = svg_of("llama3"), post = svg_of("bert"), out = svg_of("olmo2");
  EXPECT_LT(height_of(pre, "RMSNorm"), height_of(pre, "self-attention · GQA"));
  EXPECT_GT(height_of(out, "RMSNorm"), height_of(out, "self-attention · MHA"));  // that of q and k, inside
  const auto norms = [](const std::string& svg, double above, double below, std::string_view name) {
    std::size_t n = 0;
    for (const PictureWords& w : words_of(svg))
      n += w.text == name && w.bottom > above && w.bottom < below ? 1 : 0;
    return n;
  };
  // Post: after the sum; one of the embedding before the layers, none between the title and the attention.
  EXPECT_EQ(norms(post, height_of(post, "encoder · 12 layers, each:"), height_of(post, "feed-forward"),
                  "LayerNorm"),
            1u);
  EXPECT_GT(height_of(post, "WO"), height_of(post, "self-attention · MHA"));
  // Sandwich: before and after each of two parts, in two kinds of layers; q and k; the final one.
  const std::string sandwich = svg_of("gemma3");
  EXPECT_EQ(count(sandwich, ">RMSNorm<"), 2u * (4 + 2) + 1);
  EXPECT_EQ(count(svg_of("gemma2"), ">RMSNorm<"), 2u * 4 + 1);
  EXPECT_EQ(count(svg_of("palm"), ">LayerNorm<"), 2u);  // one for both parts, the final one
  EXPECT_EQ(count(svg_of("palm"), "<circle"), 2u);      // the parts' sum, then the stream's
  EXPECT_EQ(count(svg_of("llama3"), "<circle"), 2u);    // a sum for each part
}

TEST(ShowPicture, GatesStandWhereTheyAct) {
  const std::string core = "z = softmax(s) v";
  const auto gate = [&](const char* name) {
    const std::string svg = svg_of(name);
    return std::pair(height_of(svg, "⊙ σ(WG h)") - height_of(svg, core),
                     height_of(svg, "⊙ σ(WG h)") - height_of(svg, "WO"));
  };
  EXPECT_GT(gate("qwen3-gate-g1").first, 0);   // behind the weighted sum, before the output projection
  EXPECT_LT(gate("qwen3-gate-g1").second, 0);
  for (const char* name : {"qwen3-gate-g2", "qwen3-gate-g3", "qwen3-gate-g4"})
    EXPECT_LT(gate(name).first, 0) << name;
  EXPECT_GT(gate("qwen3-gate-g5").second, 0);
  EXPECT_TRUE(holds(svg_of("qwen3-gate-g1-head"), "one per head"));
  EXPECT_TRUE(holds(svg_of("qwen3-gate-g1-add-silu"), ">+ SiLU(W"));
  EXPECT_FALSE(holds(svg_of("qwen3"), "σ"));
}

TEST(ShowPicture, HeadsAndGroups) {
  const std::string mha = svg_of("gpt2"), gqa = svg_of("llama3"), mqa = svg_of("palm"),
                    mla = svg_of("deepseek-v2-lite");
  EXPECT_TRUE(holds(mha, ">q11<") && holds(mha, ">kv11<"));
  EXPECT_TRUE(holds(gqa, ">q0<") && holds(gqa, ">q31<") && holds(gqa, ">kv7<") && holds(gqa, ">…<"));
  EXPECT_TRUE(holds(gqa,
                    "4 query heads share each key and value head. Keys and values of a token: "
                    "2,048 numbers a layer; MHA: 8,192."));
  EXPECT_TRUE(holds(mqa, ">kv0<") && !holds(mqa, ">kv1<"));
  EXPECT_TRUE(holds(mla, "Cached a token and layer: 576 numbers; whole keys and values would be 5,120."));
  const std::string both = svg_of("transformer-2017");
  EXPECT_TRUE(holds(both, "K, V ← the encoder&#39;s result"));
  EXPECT_TRUE(holds(svg_of("gemma3"), "decoder · self-attention · 4 query heads"));  // both kinds alike
  EXPECT_TRUE(holds(svg_of("qwen3-next"), "32 value heads, 16 query and key heads"));
}

TEST(ShowPicture, WhatPresetsHaveAndHaveNot) {
  struct Case {
    const char* name;
    std::vector<const char*> has, has_not;
  };
  for (const Case& c : std::vector<Case>{
           {"gpt2", {"learned positions", "GELU", "LayerNorm", "tied"}, {"RoPE", "RMSNorm", "GQA", "σ"}},
           {"llama3", {"RoPE", "θ 500,000", "SiLU(g) ⊙ u"}, {"learned positions", "LayerNorm", "tied"}},
           {"t5", {"bias(i − j): 32 buckets", "s = q·k<", "ReLU"}, {"√", "RoPE"}},
           {"gemma2", {"50 tanh(s / 50)", "sees the last 4,096 tokens", "1 + w", "30 tanh"}, {"LayerNorm"}},
           {"mixtral", {"2 of 8 experts a token", "weights sum to 1"}, {"shared expert"}},
           {"deepseek-v2-lite",
            {"shared expert", "RoPE(k", "512 + 64", "√192 · 1.5896"},
            {"weights sum to 1"}},
           {"qwen3-next", {"gated delta rule", "64 of 256 channels", "convolution"}, {}},
           {"vit", {"patches of 16 × 16 pixels, 196 of them", "cls token", "first row"}, {"token embedding"}},
           {"bahdanau",
            {"reads last to first", "maxout", "v·tanh(W h + U s"},
            {"enters the next step", "Heads and groups"}},
           {"luong-local-p", {"enters the next step", "tanh(W [c"}, {"reads last to first"}}}) {
    const std::string svg = svg_of(c.name);
    for (const char* what : c.has) EXPECT_TRUE(holds(svg, what)) << c.name << ": " << what;
    for (const char* what : c.has_not) EXPECT_FALSE(holds(svg, what)) << c.name << ": " << what;
  }
}

// ------------------------------------------------------------------------------------------------ formulas
// x^2^3: two superscripts, or two subscripts, of one thing, which TeX refuses.
bool has_double_script(std::string_view tex) {
  bool up = false, down = false;
  for (std::size_t i = 0; i < tex.size(); ++i) {
    if (tex[i] != '^' && tex[i] != '_') {
      up = down = false;
      continue;
    }
    bool& seen = tex[i] == '^' ? up : down;
    if (std::exchange(seen, true)) return true;
    std::size_t end = i + 1;
    int depth = 0;
    do {
      depth += tex[end] == '{' ? 1 : tex[end] == '}' ? -1 : 0;
      ++end;
    } while (depth > 0 && end < tex.size());
    if (has_double_script(tex.substr(i + 1, end - i - 1))) return true;
    i = end - 1;
  }
  return false;
}

// Braces, environments and rows of every preset stand as LaTeX wants them.
TEST(ShowLatex, EveryPresetIsBalanced) {
  for (const std::string& name : preset_names())
    for (const Language language : kLanguages) {
      const std::string tex = recipe_latex(resolve(preset(name)), language);
      EXPECT_EQ(count(tex, "\\begin{align*}"), count(tex, "\\end{align*}")) << name;
      EXPECT_FALSE(holds(tex, "show.")) << name;
      int depth = 0;
      bool inside = false;
      for (std::string_view rest = tex; !rest.empty();) {
        const std::string_view line = rest.substr(0, rest.find('\n'));
        rest.remove_prefix(std::min(rest.size(), line.size() + 1));
        if (line.starts_with("%")) continue;
        if (line == "\\end{align*}") inside = false;
        EXPECT_TRUE(line.empty() || inside || line == "\\begin{align*}" || line == "\\end{align*}")
            << name << line;
        for (std::size_t i = 0; i < line.size(); ++i) {
          const bool escaped = i > 0 && line[i - 1] == '\\';
          if (!escaped) depth += line[i] == '{' ? 1 : line[i] == '}' ? -1 : 0;
          EXPECT_GE(depth, 0) << name << ": " << line;
        }
        EXPECT_FALSE(has_double_script(line)) << name << ": " << line;
        EXPECT_EQ(depth, 0) << name << ": " << line;  // a row closes what it opens
        if (inside) {
          EXPECT_LE(count(line, "&"), 3u) << name << ": " << line;
          EXPECT_EQ(count(line, "\\left("), count(line, "\\right)")) << line;
        }
        if (line == "\\begin{align*}") inside = true;
      }
    }
}

TEST(ShowLatex, WhatPresetsHaveAndHaveNot) {
  struct Case {
    const char* name;
    std::vector<const char*> has, has_not;
  };
  for (const Case& c : std::vector<Case>{
           {"gpt2",
            {"x_t + P_t", "b^Q_i", "\\mathrm{LayerNorm}(x_t)", "W_U = E", "\\sqrt{64}"},
            {"R_t", "g(i)", "RMSNorm"}},
           {"llama3",
            {"R_t \\, q_{t,i}", "500{,}000^{-2j / 128}", "\\lceil i / 4 \\rceil", "+ 10^{-5}",
             "\\mathrm{SiLU}"},
            {"b^Q_i", "P_t", "W_U = E"}},
           {"bert",
            {"x_t &\\leftarrow \\mathrm{LayerNorm}(x_t)", "h_t &= x_t", "W_T"},
            {"h_t &= \\mathrm{LayerNorm}", "s \\le t"}},
           {"palm", {"x_t + y^{(1)}_t + y^{(2)}_t", "g(i) &= 1"}, {"x_t + y_t"}},
           {"gemma2",
            {"50 \\tanh(s_{t,s,i} / 50)", "y_t &\\leftarrow \\mathrm{RMSNorm}(y_t)", "(1 + g)",
             "t - 4{,}096 < s"},
            {}},
           {"qwen3", {"q_{t,i} &\\leftarrow \\mathrm{RMSNorm}"}, {"W^{GZ}"}},
           {"qwen3-gate-g1", {"z_{t,i} &\\leftarrow z_{t,i} \\odot \\sigma(W^{GZ}_i h_t)"}, {}},
           {"t5", {"m_s", "B_{\\mathrm{bucket}(s - t)", "W^K_g \\, m_s"}, {"\\sqrt{64}"}},
           {"deepseek-v2-lite", {"W^{DKV}", "[W^{UK}_i c_s; \\ r_s]", "\\mathrm{top}_{6}", "S(h_t)"}, {}},
           {"qwen3-next", {"S_{t-1,i}", "\\mathrm{conv}_{4}"}, {}},
           {"lfm2", {"b_{t-j} \\odot u_{t-j}"}, {}},
           {"bahdanau", {"v^{\\top} \\tanh(W_a h_{t-1} + U_a m_s)", "\\overleftarrow{h}", "\\tilde y_t"}, {}},
           {"luong-local-p", {"\\tanh(W_c [k_t; h_t]", "p_t &= S"}, {"\\overleftarrow"}}}) {
    const std::string tex = recipe_latex(resolve(preset(c.name)));
    for (const char* what : c.has) EXPECT_TRUE(holds(tex, what)) << c.name << ": " << what << "\n" << tex;
    for (const char* what : c.has_not) EXPECT_FALSE(holds(tex, what)) << c.name << ": " << what;
  }
}

}  // namespace
}  // namespace rapt
