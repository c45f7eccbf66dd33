// SPDX-License-Identifier: Apache-2.0
// What is exact about position codes. Sinusoids: every position has the length sqrt(d/2), and the product of
// two depends on their distance only. Rotations keep lengths, and a score depends on the distance only.
// ALiBi: where the weight lies hardly depends on the length. Then small models learn to copy at one length
// and are asked at twice and four times it.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "rapt/base/rng.h"
#include "rapt/lab/experiments_learn.h"
#include "rapt/lab/experiments_math.h"
#include "rapt/lab/measure.h"
#include "rapt/lab/toy.h"
#include "rapt/ops/attention.h"
#include "rapt/ops/rope.h"

namespace rapt {
namespace {

double dot(const std::vector<double>& x, std::size_t a, std::size_t b, std::size_t d) {
  return std::inner_product(x.begin() + static_cast<std::ptrdiff_t>(a * d),
                            x.begin() + static_cast<std::ptrdiff_t>((a + 1) * d),
                            x.begin() + static_cast<std::ptrdiff_t>(b * d), 0.0);
}

std::vector<std::int32_t> counted(Dim n, Dim from = 0) {
  std::vector<std::int32_t> p(static_cast<std::size_t>(n));
  std::iota(p.begin(), p.end(), static_cast<std::int32_t>(from));
  return p;
}

// One query and one key, turned as if they stood at positions p and p + distance: the score for several p.
double rope_spread(Device& f64, Dim d, std::uint64_t seed, double& length_error) {
  Run run(f64);
  const std::vector<double> q = normal_values(mix_key(seed, 1), d), k = normal_values(mix_key(seed, 2), d);
  double spread = 0;
  for (Dim distance : {0, 1, 7, 100, 1000}) {
    double low = HUGE_VAL, high = -HUGE_VAL;
    for (Dim p : {0, 3, 50, 999, 4000}) {
      std::vector<double> both = q;
      both.insert(both.end(), k.begin(), k.end());
      const Dim lengths[] = {8192};
      const std::int32_t at[] = {static_cast<std::int32_t>(p), static_cast<std::int32_t>(p + distance)};
      const std::vector<double> turned =
          values_of(rope(run, run.upload({2, 1, d}, both), rope_table(run, {}, d, at, lengths)));
      const double s = dot(turned, 0, 1, static_cast<std::size_t>(d));
      low = std::min(low, s), high = std::max(high, s);
      length_error = std::max({length_error, std::abs(length({turned.data(), q.size()}) - length(q)),
                               std::abs(length({turned.data() + d, k.size()}) - length(k))});
    }
    spread = std::max(spread, high - low);
  }
  return spread;
}

// Equal keys, so only the position code speaks: how far back the last row's weight lies, on average.
double mean_distance(Device& f64, Bias bias, Dim n) {
  Run run(f64);
  Taps taps;
  run.taps = &taps;
  double far = 0;
  taps.see(site::attn_stats, [&](const Tapped& t) {
    for (Dim h = 0; h < 8; ++h)
      far += t.value.at(((n - 1) * 8 + h) * AttentionStat::count + AttentionStat::distance) / 8;
  });
  const Tensor zero = run.upload({n, 8, 4}, std::vector<double>(static_cast<std::size_t>(n * 32)));
  attention(run, {.heads = 8, .kv_heads = 8, .head_dim = 4, .v_dim = 4, .bias = bias},
            {.q = zero, .k = zero, .v = zero},
            plan_rows(Mask{.right = 0}, {{Sequence{.first = 0, .count = n}}}));
  return far;
}

}  // namespace

LabResult positions_math(const Lab& lab) {
  Device f64({.threads = 1, .isa = "f64"});
  LabResult r;
  constexpr Dim d = 512;
  const Dim n = lab.effort < 0.5 ? 64 : 512;
  Run run(f64);
  const std::vector<double> pe =
      values_of(sinusoid(run, SinusoidLayout::pairs, SinusoidTable::paper, d, counted(n)));
  double length_error = 0, spread = 0, largest_other = -1;
  Curve product{.name = "sinusoids, width 512", .x = {}, .y = {}};
  for (Dim k = 0; k < n; ++k) {
    double low = HUGE_VAL, high = -HUGE_VAL;
    for (Dim p = 0; p + k < n; p += std::max<Dim>(1, n / 37)) {
      const double v = dot(pe, static_cast<std::size_t>(p), static_cast<std::size_t>(p + k), d);
      low = std::min(low, v), high = std::max(high, v);
    }
    spread = std::max(spread, high - low);
    if (k == 0) length_error = std::max(std::abs(low - d / 2.0), std::abs(high - d / 2.0));
    else largest_other = std::max(largest_other, high / (d / 2.0));
    product.x.push_back(static_cast<double>(k)), product.y.push_back(low / (d / 2.0));
  }
  double turned_length = 0;
  const double turned_spread = rope_spread(f64, 64, lab.seed, turned_length);

  // RoPE's slow channels have not turned once within a training length: angles beyond it are new.
  const std::vector<double> inverse = rope_frequencies({}, 64, 0).inverse;
  const Dim trained = 2048;
  double never_whole = 0;
  for (double w : inverse) never_whole += w * static_cast<double>(trained) < 2 * std::acos(-1.0);

  Table t{.title = "Where the last row's weight lies when all keys are equal: mean distance over 8 heads",
          .columns = {"tokens", "ALiBi", "no position code"},
          .rows = {}};
  Chart far{.title = "Mean distance of attention, equal keys", .x_label = "tokens", .y_label = "tokens back"};
  far.curves = {{.name = "ALiBi", .x = {}, .y = {}}, {.name = "none", .x = {}, .y = {}}};
  for (Dim length_now :
       lab.effort < 0.5 ? std::vector<Dim>{32, 128} : std::vector<Dim>{64, 128, 256, 512, 1024}) {
    const double with = mean_distance(f64, Bias::alibi, length_now),
                 without = mean_distance(f64, Bias::none, length_now);
    t.rows.push_back({Cell(static_cast<double>(length_now), 0), Cell(with, 1), Cell(without, 1)});
    for (Curve& c : far.curves) c.x.push_back(static_cast<double>(length_now));
    far.curves[0].y.push_back(with), far.curves[1].y.push_back(without);
  }
  const double alibi_growth = far.curves[0].y.back() / far.curves[0].y.front(),
               none_growth = far.curves[1].y.back() / far.curves[1].y.front();
  r.findings = {
      below("sinusoids: |PE(p)|^2 - d/2, largest over positions", length_error, 1e-9, "", "d/2 for every p"),
      below("sinusoids: spread of PE(p).PE(p+k) over p", spread, 1e-9, "",
            "6e-13 at d = 512 in another program"),
      above("sinusoids: largest likeness of two different positions (0 would be orthogonal)", largest_other,
            0.5, ""),
      below("RoPE: spread of a score over positions at equal distance", turned_spread, 1e-9, ""),
      below("RoPE: change of a vector's length", turned_length, 1e-9, ""),
      above("RoPE: share of a head's 32 frequencies that do not turn once in 2,048 tokens", never_whole / 32,
            0.1, ""),
      below("ALiBi: growth of the mean distance against that without a code, shortest to longest",
            alibi_growth / none_growth, 0.8, "x", "trains short, tests long (Press et al. 2022)"),
  };
  r.verdict =
      all_hold(r.findings)
          ? concat(
                "Exact: sinusoids have one length and a product that depends on the distance only; RoPE "
                "scores do not change when both "
                "positions shift. Not so: sinusoids are not orthogonal (the most alike ",
                digits(largest_other, 2), "), and ", digits(100 * never_whole / 32, 0),
                " % of RoPE's frequencies have not turned once at 2,048 tokens, so longer texts show angles "
                "nobody trained. From ",
                far.curves[0].x.front(), " to ", far.curves[0].x.back(),
                " tokens ALiBi's mean distance grows ", digits(alibi_growth, 1), " times, without a code ",
                digits(none_growth, 1), " times.")
          : "Something that should be exact about position codes is not; see the numbers.";
  HeatMap map{
      .title = "PE(p).PE(p') / (d/2), every 4th position up to 64", .rows = {}, .columns = {}, .values = {}};
  map.row_name = "p", map.column_name = "p'", map.value_name = "likeness";
  for (Dim a = 0; a < 64; a += 4) {
    map.rows.push_back(concat(a)), map.columns.push_back(concat(a));
    for (Dim b = 0; b < 64; b += 4)
      map.values.push_back(
          std::max(0.0, dot(pe, static_cast<std::size_t>(a), static_cast<std::size_t>(b), d) / (d / 2.0)));
  }
  r.document.parts.push_back(std::move(map));
  r.document.parts.push_back(Chart{.title = "Likeness of two positions by distance",
                                   .x_label = "distance",
                                   .y_label = "cosine",
                                   .curves = {product}});
  r.document.parts.push_back(std::move(t));
  r.document.parts.push_back(std::move(far));
  return r;
}

// ------------------------------------------------------------------------------------------------ beyond the trained length
LabResult positions_extrapolation(const Lab& lab) {
  const ToyTask task = copy_task(lab.seed);
  std::vector<Toy> toys;
  auto add = [&](std::string name, EmbedRecipe::Pos in_embedding, PosRecipe::Kind inside) {
    Recipe r = toy_recipe(2, 4);  // four heads: ALiBi's slope of a single one is 1/256
    r.context = 128;
    r.embed.pos = in_embedding;
    self_attn(r).pos.kind = inside;
    toys.push_back({.name = std::move(name), .recipe = r, .task = task, .seed = lab.seed});
  };
  using In = EmbedRecipe::Pos;
  using Kind = PosRecipe::Kind;
  add("none", In::none, Kind::none);
  add("sinusoid", In::sinusoid, Kind::none);
  add("learned", In::learned, Kind::none);
  add("RoPE", In::none, Kind::rope);
  add("ALiBi", In::none, Kind::alibi);
  const std::vector<Trained> runs = train_toys(lab, std::move(toys));
  LabResult out;
  Table table{
      .title =
          "trained at 32 tokens: loss of copying rows (guessing about 3.2 nats) / excess loss of the others",
      .columns = {"positions", "32", "64", "128"}};
  Chart chart{.title = "loss of copying rows", .x_label = "length", .y_label = "nats", .log_y = true};
  std::vector<std::vector<double>> copy;
  for (const Trained& t : runs) {
    std::vector<Cell> row = {t.name};
    Curve curve{.name = t.name};
    copy.push_back({});
    for (Dim length : {32, 64, 128}) {
      const ToyLook l = look_at(lab.device, *t.model, task, scaled_batch(lab, 64), length, ~std::uint64_t{2});
      row.push_back(digits(l.trigger_loss) + " / " + digits(l.idle_excess));
      curve.x.push_back(static_cast<double>(length));
      curve.y.push_back(l.trigger_loss);
      copy.back().push_back(l.trigger_loss);
    }
    table.rows.push_back(std::move(row));
    chart.curves.push_back(std::move(curve));
  }
  out.document.parts = {table, chart};
  std::size_t best = 0;
  for (std::size_t i = 1; i < runs.size(); ++i)
    if (copy[i][2] < copy[best][2]) best = i;
  out.findings = {
      above("loss of copying rows with learned positions, four times the length minus the trained one",
            copy[2][2] - copy[2][0], 0.1, "nats", "positions that were never trained"),
      above("loss of copying rows with sinusoids, four times the length minus the trained one",
            copy[1][2] - copy[1][0], 0.1, "nats",
            "hoped for in 2017; ALiBi's authors found it degrades (Press et al. 2022)"),
      above("loss of copying rows with RoPE, four times the length minus the trained one",
            copy[3][2] - copy[3][0], 0.05, "nats", "", false),
      below("loss of copying rows at four times the length, ALiBi minus sinusoid", copy[4][2] - copy[1][2], 0,
            "nats", "Press et al. 2022"),
  };
  out.verdict = concat(
      "At four times the trained length the copies cost: none ", digits(copy[0][2], 2), ", sinusoid ",
      digits(copy[1][2], 2), ", learned ", digits(copy[2][2], 2), ", RoPE ", digits(copy[3][2], 2),
      ", ALiBi ", digits(copy[4][2], 2), " nats (at the trained length ", digits(copy[0][0], 2), ", ",
      digits(copy[1][0], 2), ", ", digits(copy[2][0], 2), ", ", digits(copy[3][0], 2), ", ",
      digits(copy[4][0], 2), "). ", runs[best].name, " carries furthest; that sinusoids extrapolate is ",
      copy[1][2] - copy[1][0] > 0.1 ? "not what they do here." : "what they do in this run.");
  return out;
}

}  // namespace rapt
