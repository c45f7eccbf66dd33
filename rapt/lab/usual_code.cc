// SPDX-License-Identifier: Apache-2.0
// The code that notes on attention usually show, and where it is wrong without saying so. Each habit is
// written once more as plain loops, with the rules by which array libraries stretch axes, and compared with
// this engine's attention: grouped queries whose keys lack the axis of the group, an encoder that takes the
// batch for the text, a decoder without a mask, weights handed out after dropout, masks of -1e20 and -inf.
#include <algorithm>
#include <cmath>
#include <functional>
#include <optional>

#include "rapt/base/rng.h"
#include "rapt/lab/experiments_math.h"
#include "rapt/lab/measure.h"
#include "rapt/lab/toy.h"
#include "rapt/ops/attention.h"

namespace rapt {
namespace {

using Values = std::vector<double>;

// softmax(q.k / sqrt(d)) v of one query over the keys that `key(j)` and `value(j)` point to, j < n.
using RowAt = std::function<const double*(std::size_t)>;
Values one_query(const double* q, std::size_t d, std::size_t n, const RowAt& key, const RowAt& value) {
  Values s(n), y(d);
  double top = -HUGE_VAL, sum = 0;
  for (std::size_t j = 0; j < n; ++j) {
    for (std::size_t c = 0; c < d; ++c) s[j] += q[c] * key(j)[c] / std::sqrt(static_cast<double>(d));
    top = std::max(top, s[j]);
  }
  for (double& w : s) sum += w = std::exp(w - top);
  for (std::size_t j = 0; j < n; ++j)
    for (std::size_t c = 0; c < d; ++c) y[c] += s[j] / sum * value(j)[c];
  return y;
}

// ------------------------------------------------------------------------------------------ grouped queries
struct Grouped {
  std::size_t B, H, G, S = 5, d = 4;  // batch, heads, groups, tokens, channels
  std::size_t heads_of_group() const { return H / G; }
  Values q, k, v;  // [B][H][S][d], [B][G][S][d]
  void draw(std::uint64_t seed) {
    q = normal_values(mix_key(seed, 1), static_cast<Dim>(B * H * S * d));
    k = normal_values(mix_key(seed, 2), static_cast<Dim>(B * G * S * d));
    v = normal_values(mix_key(seed, 3), static_cast<Dim>(B * G * S * d));
  }
};

// Of the queries [B][G][group][S][d] against keys [B][G][S][d]: axes are matched from the right, so the
// keys' batch meets the queries' group and the keys' group its heads. Nothing where the sizes do not fit, or
// the result no longer has the size that comes out at the end.
std::optional<Values> without_group_axis(const Grouped& g) {
  const std::size_t per = g.heads_of_group();
  const bool fits = (g.B == g.G || g.B == 1) && (g.G == per || g.G == 1);
  if (!fits) return std::nullopt;
  Values out;
  for (std::size_t b = 0; b < g.B; ++b)
    for (std::size_t group = 0; group < g.G; ++group)
      for (std::size_t i = 0; i < per; ++i)
        for (std::size_t t = 0; t < g.S; ++t) {
          const std::size_t from = ((g.B == 1 ? 0 : group) * g.G + (g.G == 1 ? 0 : i)) * g.S * g.d;
          const Values y = one_query(
              &g.q[(((b * g.G + group) * per + i) * g.S + t) * g.d], g.d, g.S,
              [&](std::size_t j) { return &g.k[from + j * g.d]; },
              [&](std::size_t j) { return &g.v[from + j * g.d]; });
          out.insert(out.end(), y.begin(), y.end());
        }
  return out;
}

// The engine's: [B][H][S][d] again.
Values grouped_attention(Device& f64, const Grouped& g) {
  auto rows = [&](const Values& x, std::size_t heads) {  // [B][heads][S][d] -> [B*S][heads][d]
    Values y;
    for (std::size_t b = 0; b < g.B; ++b)
      for (std::size_t t = 0; t < g.S; ++t)
        for (std::size_t h = 0; h < heads; ++h)
          for (std::size_t c = 0; c < g.d; ++c) y.push_back(x[((b * heads + h) * g.S + t) * g.d + c]);
    return y;
  };
  const Dim T = static_cast<Dim>(g.B * g.S), H = static_cast<Dim>(g.H), K = static_cast<Dim>(g.G),
            D = static_cast<Dim>(g.d);
  Run run(f64);
  std::vector<Sequence> sequences;
  for (std::size_t b = 0; b < g.B; ++b)
    sequences.push_back({.first = static_cast<Dim>(b * g.S), .count = static_cast<Dim>(g.S)});
  const Values y = values_of(attention(run,
                                       {.heads = H,
                                        .kv_heads = K,
                                        .head_dim = D,
                                        .v_dim = D,
                                        .scale = 1 / std::sqrt(static_cast<double>(g.d))},
                                       {.q = run.upload({T, H, D}, rows(g.q, g.H)),
                                        .k = run.upload({T, K, D}, rows(g.k, g.G)),
                                        .v = run.upload({T, K, D}, rows(g.v, g.G))},
                                       plan_rows(Mask{}, sequences)));
  Values back;
  for (std::size_t b = 0; b < g.B; ++b)
    for (std::size_t h = 0; h < g.H; ++h)
      for (std::size_t t = 0; t < g.S; ++t)
        for (std::size_t c = 0; c < g.d; ++c) back.push_back(y[((b * g.S + t) * g.H + h) * g.d + c]);
  return back;
}

// Which keys the heads of a batch of 2 read (2 groups of 2): those whose change moves them.
HeatMap who_reads(Device& f64, std::uint64_t seed) {
  Grouped g{.B = 2, .H = 4, .G = 2};
  g.draw(seed);
  HeatMap map{.title = say("lab.code.map"), .top = 0};
  map.row_name = say("lab.code.head"), map.column_name = say("lab.code.keys"),
  map.value_name = say("lab.code.moves");
  const Values right = grouped_attention(f64, g), wrong = without_group_axis(g).value_or(right);
  const std::size_t head = g.S * g.d, all = g.B * g.H;
  map.values.resize(all * 2 * g.B * g.G);
  for (std::size_t c = 0; c < g.B * g.G; ++c) {
    Grouped changed = g;
    for (std::size_t i = 0; i < head; ++i)
      changed.k[c * head + i] += 0.5 * (i % 3), changed.v[c * head + i] += 1;
    const Values now[] = {grouped_attention(f64, changed), without_group_axis(changed).value_or(right)};
    for (std::size_t h = 0; h < all; ++h)
      for (std::size_t w = 0; w < 2; ++w)
        map.values[h * 2 * g.B * g.G + w * g.B * g.G + c] = largest_difference(
            std::span(now[w]).subspan(h * head, head), std::span(w ? wrong : right).subspan(h * head, head));
  }
  for (std::size_t h = 0; h < all; ++h) map.rows.push_back(say("lab.code.of_head", h / g.H, h % g.H));
  for (const char* which : {"lab.code.right_keys", "lab.code.wrong_keys"})
    for (std::size_t c = 0; c < g.B * g.G; ++c) map.columns.push_back(say(which, c / g.G, c % g.G));
  return map;
}

// ---------------------------------------------------------------------------------------- batch and mask
// x [B][S][d], one head that is its own q, k and v. What a query (b, t) reads: its own text, all of it or up
// to itself, or, where the module takes the first axis for the text, the same place of all samples.
enum class Reads { text, text_before, batch };
Values self_attention(const Values& x, std::size_t B, std::size_t S, std::size_t d, Reads reads) {
  Values out;
  for (std::size_t b = 0; b < B; ++b)
    for (std::size_t t = 0; t < S; ++t) {
      const RowAt row = [&](std::size_t j) {
        return &x[reads == Reads::batch ? (j * S + t) * d : (b * S + j) * d];
      };
      const std::size_t n = reads == Reads::batch ? B : reads == Reads::text ? S : t + 1;
      const Values y = one_query(&x[(b * S + t) * d], d, n, row, row);
      out.insert(out.end(), y.begin(), y.end());
    }
  return out;
}

// How far outputs of rows [from, to) move when row `changed` does.
double moved(const Values& x, std::size_t B, std::size_t S, std::size_t d, Reads reads, std::size_t changed,
             std::size_t from, std::size_t to) {
  Values other = x;
  for (std::size_t c = 0; c < d; ++c) other[changed * d + c] += 1;
  const Values a = self_attention(x, B, S, d, reads), b = self_attention(other, B, S, d, reads);
  double most = 0;
  for (std::size_t r = from; r < to; ++r)
    if (r != changed)
      most =
          std::max(most, largest_difference(std::span(a).subspan(r * d, d), std::span(b).subspan(r * d, d)));
  return most;
}

}  // namespace

LabResult usual_code(const Lab& lab) {
  Device f64({.threads = 1, .isa = "f64"});
  LabResult r;
  struct Sizes {
    std::size_t B, H, G;
    const char* kind;
  };
  const Sizes sizes[] = {{1, 4, 1, "MQA"}, {2, 4, 1, "MQA"}, {1, 4, 2, "GQA"}, {2, 4, 2, "GQA"},
                         {3, 9, 3, "GQA"}, {2, 8, 2, "GQA"}, {1, 8, 2, "GQA"}, {4, 8, 4, "GQA"},
                         {1, 4, 4, "MHA"}, {2, 4, 4, "MHA"}};
  Table groups{.title = say("lab.code.groups"),
               .columns = {say("lab.code.kind"), say("lab.code.batch"), say("lab.code.heads"),
                           say("lab.code.key_heads"), say("lab.code.happens"), say("lab.code.error")}};
  double thrown = 0, silent = 0, least = HUGE_VAL, most = 0, right = 0;
  for (const Sizes& s : sizes) {
    Grouped g{.B = s.B, .H = s.H, .G = s.G};
    g.draw(mix_key(lab.seed, s.B * 100 + s.H * 10 + s.G));
    const std::optional<Values> y = without_group_axis(g);
    const double error = y ? largest_difference(*y, grouped_attention(f64, g)) : 0;
    const bool wrong = y && error > 1e-9;
    thrown += !y, silent += wrong, right += y && !wrong;
    if (wrong) least = std::min(least, error), most = std::max(most, error);
    groups.rows.push_back({s.kind, Cell(static_cast<double>(s.B), 0), Cell(static_cast<double>(s.H), 0),
                           Cell(static_cast<double>(s.G), 0),
                           say(!y      ? "lab.code.throws"
                               : wrong ? "lab.code.silent"
                                       : "lab.code.good"),
                           y ? Cell(error) : Cell("–")});
  }
  if (silent == 0) least = 0;

  constexpr std::size_t B = 2, S = 10, d = 16;
  const Values x = normal_values(mix_key(lab.seed, 7), B * S * d);
  const double sample = moved(x, B, S, d, Reads::batch, S + 5, 0, S),  // sample 1 changes, sample 0 moves
      text = moved(x, B, S, d, Reads::batch, 5, 0, S), later = moved(x, B, S, d, Reads::text, 9, 0, 1),
               masked = moved(x, B, S, d, Reads::text_before, 9, 0, 9),
               sample_right = moved(x, B, S, d, Reads::text, S + 5, 0, S);

  // A row that sees nothing: its scores all -inf or all -1e20.
  const double infinite = std::exp(-INFINITY - -INFINITY), large = std::exp(-1e20 - -1e20) / S;

  // Weights handed out after dropout of a tenth: what is left is divided by 0.9, and rows sum to anything.
  double low = HUGE_VAL, high = 0;
  for (std::uint64_t row = 0; row < 64; ++row) {
    double sum = 0, exps = 0;
    Values w = normal_values(mix_key(lab.seed, 100 + row), S);
    for (double& v : w) exps += v = std::exp(v);
    for (std::size_t j = 0; j < S; ++j)
      sum += random_uniform(mix_key(lab.seed, 200 + row), j) < 0.1 ? 0 : w[j] / exps / 0.9;
    low = std::min(low, sum), high = std::max(high, sum);
  }

  Table habits{.title = say("lab.code.habits"),
               .columns = {say("lab.code.habit"), say("lab.code.shape"), say("lab.code.shows"),
                           say("lab.code.value"), say("lab.code.should")}};
  auto habit = [&](const char* name, const char* shape, Cell value, Cell should) {
    habits.rows.push_back({say(concat("lab.code.h.", name)), shape, say(concat("lab.code.t.", name)),
                           std::move(value), std::move(should)});
  };
  habit("groups", "[B, S, H·d]", Cell(most), Cell(0.0));
  habit("axis", "[2, 10, 16]", Cell(sample), Cell(sample_right));
  habit("mask", "[2, 10, 16]", Cell(later), Cell(masked));
  habit("infinite", "[.., q, k]", std::isnan(infinite) ? Cell("NaN") : Cell(infinite), Cell(0.0));
  habit("large", "[.., q, k]", Cell(large), Cell(0.0));
  habit("dropout", "[.., q, k]", say("lab.value-bias.from_to", digits(low, 2), digits(high, 2)), Cell(1.0));

  r.findings = {
      above(say("lab.code.f.silent"), least, 0.1, "", say("lab.code.p.silent")),
      above(say("lab.code.f.thrown"), thrown, silent, "", say("lab.code.p.thrown")),
      above(say("lab.code.f.axis"), sample, 1e-3, "", say("lab.code.p.axis")),
      {.what = say("lab.code.f.text"), .measured = text, .expected = say("lab.zero"), .holds = text == 0},
      above(say("lab.code.f.mask"), later, 1e-3, "", say("lab.code.p.mask")),
      {.what = say("lab.code.f.masked"),
       .measured = masked,
       .expected = say("lab.zero"),
       .holds = masked == 0},
      {.what = say("lab.code.f.infinite"),
       .measured = std::isnan(infinite) ? 1.0 : 0.0,
       .expected = say("lab.code.nan"),
       .holds = std::isnan(infinite)},
      above(say("lab.code.f.large"), large, 0.01, ""),
      above(say("lab.code.f.dropout"), std::max(high - 1, 1 - low), 0.05, ""),
  };
  r.verdict = all_hold(r.findings)
                  ? sentences({say("lab.code.v.wrong"),
                               say("lab.code.v.groups", digits(thrown, 0), std::size(sizes),
                                   digits(silent, 0), digits(least, 2), digits(most, 2), digits(right, 0)),
                               say("lab.code.v.axis", digits(sample, 2), digits(later, 2)),
                               say("lab.code.v.nothing", digits(large, 2)),
                               say("lab.code.v.dropout", digits(low, 2), digits(high, 2))})
                  : say("lab.code.v.not");
  r.document.parts = {who_reads(f64, lab.seed), std::move(habits), std::move(groups)};
  return r;
}

}  // namespace rapt
