// SPDX-License-Identifier: Apache-2.0
// Padding masks: what shapes they have, and what goes wrong without them. A small encoder and a small decoder
// read two texts of different lengths in one batch, padded as other programs do it, against each text alone;
// then one head in plain loops, where the mask is an array, for masks that leave a row nothing and for
// positions counted from the padding. Packed rows, as this engine has them, need none of it.
#include <algorithm>
#include <cmath>
#include <functional>

#include "rapt/base/rng.h"
#include "rapt/lab/experiments_math.h"
#include "rapt/lab/measure.h"
#include "rapt/lab/toy.h"

namespace rapt {
namespace {

constexpr Dim kPadWidth = 32, kPaddedRows = 9, kRealRows = 5;
constexpr std::int32_t kPad = 0;

Recipe padded_model(bool causal) {
  LayerRecipe layer;
  AttnRecipe attn{.heads = 4, .mask = causal ? AttnRecipe::MaskKind::causal : AttnRecipe::MaskKind::full};
  attn.pos.kind = PosRecipe::Kind::rope;
  layer.parts.push_back({.norm_in = NormRecipe{}, .body = attn});
  layer.parts.push_back({.norm_in = NormRecipe{}, .body = FfnRecipe{.width = 2 * kPadWidth}});
  Recipe r;
  r.name = "padding";
  r.width = kPadWidth;
  r.vocab = 50;
  r.context = 64;
  r.head.kind = HeadRecipe::Kind::none;
  r.init.std = 0.3;
  (causal ? r.decoder : r.encoder) =
      StackRecipe{.layers = 2, .kinds = {{"L", layer}}, .final_norm = NormRecipe{}};
  return r;
}

using Tokens = std::vector<std::int32_t>;

// Texts one after the other in one pass, each as long as it is.
std::vector<double> passed(Device& device, const Model& model, const std::vector<Tokens>& texts) {
  Tokens all;
  Batch batch;
  for (const Tokens& t : texts) {
    batch.sequences.push_back({.first = static_cast<Dim>(all.size()), .count = static_cast<Dim>(t.size())});
    all.insert(all.end(), t.begin(), t.end());
  }
  batch.tokens = all;
  Run run(device);
  return values_of(forward(run, model, batch));
}

std::span<const double> rows_of(const std::vector<double>& y, std::size_t first, std::size_t count) {
  return {y.data() + first * kPadWidth, count * kPadWidth};
}

std::vector<double> mean_row(std::span<const double> y) {
  std::vector<double> mean(kPadWidth);
  for (std::size_t i = 0; i < y.size(); ++i)
    mean[i % kPadWidth] += y[i] * kPadWidth / static_cast<double>(y.size());
  return mean;
}

// One head over n rows by plain loops. `visible`: of a query and a key; what a hidden score becomes is
// `hidden`; positions are added to the rows (a learned table) or turn q and k (RoPE).
struct LoopHead {
  std::size_t d = 8;
  std::vector<double> x, wq, wk, wv, table;
  bool rope = false;

  std::vector<double> out(std::size_t n, const std::vector<int>& positions, double hidden,
                          const std::function<bool(std::size_t, std::size_t)>& visible) const {
    std::vector<double> q(n * d), k(n * d), v(n * d), y(n * d);
    for (std::size_t i = 0; i < n; ++i)
      for (std::size_t c = 0; c < d; ++c)
        for (std::size_t e = 0; e < d; ++e) {
          const double in = x[i * d + e] + (rope ? 0 : table[static_cast<std::size_t>(positions[i]) * d + e]);
          q[i * d + c] += in * wq[c * d + e], k[i * d + c] += in * wk[c * d + e],
              v[i * d + c] += in * wv[c * d + e];
        }
    for (std::size_t i = 0; rope && i < n; ++i)
      for (std::size_t c = 0; c < d; c += 2)
        for (std::vector<double>* m : {&q, &k}) {
          const double angle =
                           positions[i] * std::pow(100.0, -static_cast<double>(c) / static_cast<double>(d)),
                       a = (*m)[i * d + c], b = (*m)[i * d + c + 1];
          (*m)[i * d + c] = a * std::cos(angle) - b * std::sin(angle);
          (*m)[i * d + c + 1] = a * std::sin(angle) + b * std::cos(angle);
        }
    for (std::size_t i = 0; i < n; ++i) {
      std::vector<double> s(n);
      for (std::size_t j = 0; j < n; ++j) {
        for (std::size_t c = 0; c < d; ++c)
          s[j] += q[i * d + c] * k[j * d + c] / std::sqrt(static_cast<double>(d));
        if (!visible(i, j)) s[j] = hidden;
      }
      const double top = *std::max_element(s.begin(), s.end());
      double sum = 0;
      for (double& w : s) sum += w = std::exp(w - top);
      for (std::size_t j = 0; j < n; ++j)
        for (std::size_t c = 0; c < d; ++c) y[i * d + c] += s[j] / sum * v[j * d + c];
    }
    return y;
  }
};

// The mask of a text with `pads` in front, causal and padding together: who hides what.
HeatMap mask_picture(std::size_t pads, std::size_t real) {
  const std::size_t n = pads + real;
  HeatMap map{.title = say("lab.padding.map"),
              .row_name = say("lab.query"),
              .column_name = say("lab.key"),
              .value_name = say("lab.padding.sees")};
  for (std::size_t i = 0; i < n; ++i) {
    map.rows.push_back(i < pads ? Text("PAD") : say("lab.padding.token", i - pads));
    map.columns.push_back(map.rows.back());
    for (std::size_t j = 0; j < n; ++j) {
      const bool padded = j<pads, later = j> i;
      map.values.push_back(padded || later ? 0 : 1);
      map.cells.push_back(padded ? "P" : later ? "C" : "1");
    }
  }
  return map;
}

Finding none_at_all(Text what, double measured) {
  return {.what = std::move(what), .measured = measured, .expected = say("lab.zero"), .holds = measured == 0};
}

}  // namespace

LabResult padding_masks(const Lab& lab) {
  LabResult r;
  Tokens first, second;
  auto token = [&](std::uint64_t i) {
    return static_cast<std::int32_t>(1 + random_below(49, mix_key(lab.seed, 5), i));  // never the padding
  };
  for (Dim i = 0; i < kRealRows; ++i) first.push_back(token(static_cast<std::uint64_t>(i)));
  for (Dim i = 0; i < kPaddedRows; ++i) second.push_back(token(static_cast<std::uint64_t>(100 + i)));
  Tokens right = first, left(kPaddedRows - kRealRows, kPad);
  right.resize(kPaddedRows, kPad);
  left.insert(left.end(), first.begin(), first.end());

  // Of the short text's real tokens: how far padding that is not hidden moves them.
  struct Case {
    const char* name;  // lab.padding.k.…
    double rows, pooled;
  };
  std::vector<Case> cases;
  double packed = 0;
  for (bool causal : {false, true}) {
    Recipe recipe = padded_model(causal);
    if (lab.change) lab.change(causal ? "decoder" : "encoder", recipe);
    Model model(recipe, lab.device.real);
    init(model, lab.seed);
    const std::vector<double> alone = passed(lab.device, model, {first}),
                              both = passed(lab.device, model, {first, second});
    for (std::size_t i = 0; i < alone.size(); ++i) packed += alone[i] != both[i];
    for (bool at_right : {true, false}) {
      const std::vector<double> y = passed(lab.device, model, {at_right ? right : left, second});
      cases.push_back(
          {causal ? (at_right ? "decoder_right" : "decoder_left")
                  : (at_right ? "encoder_right" : "encoder_left"),
           relative_difference(rows_of(y, at_right ? 0 : kPaddedRows - kRealRows, kRealRows), alone),
           relative_difference(mean_row(rows_of(y, 0, kPaddedRows)), mean_row(alone))});
    }
  }

  // The mask as an array, in plain loops.
  LoopHead head;
  auto draw = [&](std::uint64_t use, std::size_t count) {
    return normal_values(mix_key(lab.seed, 20 + use), static_cast<Dim>(count));
  };
  head.x = draw(0, kPaddedRows * head.d), head.wq = draw(1, head.d * head.d),
  head.wk = draw(2, head.d * head.d), head.wv = draw(3, head.d * head.d), head.table = draw(4, 16 * head.d);
  constexpr std::size_t kPads = kPaddedRows - kRealRows;
  LoopHead bare = head;  // the text alone
  bare.x.assign(head.x.begin() + static_cast<std::ptrdiff_t>(kPads * head.d), head.x.end());
  auto positions = [](std::size_t n, int from) {
    std::vector<int> p(n);
    for (std::size_t i = 0; i < n; ++i) p[i] = std::max(0, static_cast<int>(i) + from);
    return p;
  };
  const auto causal = [](std::size_t i, std::size_t j) { return j <= i; };
  const auto both_masks = [](std::size_t i, std::size_t j) { return j <= i && j >= kPads; };
  auto real_rows = [&](const std::vector<double>& y) {
    return std::span<const double>(y.data() + kPads * head.d, kRealRows * head.d);
  };
  double shifted[2], counted = 0;
  for (bool rope : {false, true}) {
    head.rope = bare.rope = rope;
    const std::vector<double> want = bare.out(kRealRows, positions(kRealRows, 0), -1e20, causal);
    // positions counted from the padding, then from the first real token
    shifted[rope] = relative_difference(
        real_rows(head.out(kPaddedRows, positions(kPaddedRows, 0), -1e20, both_masks)), want);
    counted = std::max(
        counted,
        relative_difference(real_rows(head.out(kPaddedRows, positions(kPaddedRows, -static_cast<int>(kPads)),
                                               -1e20, both_masks)),
                            want));
  }
  const std::vector<double> infinite =
                                head.out(kPaddedRows, positions(kPaddedRows, 0), -INFINITY, both_masks),
                            large = head.out(kPaddedRows, positions(kPaddedRows, 0), -1e20, both_masks);
  double not_numbers = 0;
  for (std::size_t i = 0; i < kPads; ++i) not_numbers += std::isnan(infinite[i * head.d]);
  // -1e20 on a row that sees nothing: all scores equal, so the mean of all values, hidden ones too.
  const double average = length({large.data(), head.d});

  Table shapes{.title = say("lab.padding.shapes"),
               .columns = {say("lab.padding.what"), say("lab.padding.shape"), say("lab.padding.means")}};
  for (const auto& [name, shape] :
       {std::pair{"tokenizer", "[batch, seq]"}, std::pair{"keys", "[batch, 1, 1, k]"},
        std::pair{"causal", "[1, 1, q, k]"}, std::pair{"both", "[batch, 1, q, k]"},
        std::pair{"scores", "[batch, heads, q, k]"}, std::pair{"told", "[batch, heads, seq]"}})
    shapes.rows.push_back({say(concat("lab.padding.s.", name)), shape, say(concat("lab.padding.m.", name))});
  Table moved{.title = say("lab.padding.moved"),
              .columns = {say("lab.padding.case"), say("lab.padding.rows"), say("lab.padding.pooled")}};
  for (const Case& c : cases)
    moved.rows.push_back({say(concat("lab.padding.k.", c.name)), Cell(c.rows), Cell(c.pooled)});
  moved.rows.push_back({say("lab.padding.k.packed"), Cell(0.0), Cell(0.0)});

  r.findings = {
      above(say("lab.padding.f.encoder"), cases[0].rows, 0.05, ""),
      none_at_all(say("lab.padding.f.decoder_right"), cases[2].rows),
      above(say("lab.padding.f.decoder_left"), cases[3].rows, 0.05, ""),
      above(say("lab.padding.f.pooled"), cases[2].pooled, 0.05, ""),
      none_at_all(say("lab.padding.f.packed"), packed),
      below(say("lab.padding.f.rope"), shifted[1], 1e-10, ""),
      above(say("lab.padding.f.learned"), shifted[0], 0.05, ""),
      below(say("lab.padding.f.counted"), counted, 1e-10, ""),
      above(say("lab.padding.f.nan"), not_numbers, kPads - 0.5, ""),
      above(say("lab.padding.f.large"), average, 1e-3, ""),
  };
  r.verdict = all_hold(r.findings)
                  ? sentences({say("lab.padding.v.wrong"),
                               say("lab.padding.v.without", digits(100 * cases[0].rows, 0),
                                   digits(100 * cases[3].rows, 0), digits(100 * cases[2].pooled, 0)),
                               say("lab.padding.v.positions", digits(100 * shifted[0], 0)),
                               say("lab.padding.v.nothing", kPads), say("lab.padding.v.packed")})
                  : say("lab.padding.v.not");
  r.document.parts = {mask_picture(kPads, kRealRows), Words{say("lab.padding.read")}, std::move(shapes),
                      std::move(moved)};
  return r;
}

}  // namespace rapt
