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
  Curve product{.name = say("lab.positions.sinusoid"), .x = {}, .y = {}};
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

  Table t{.title = say("lab.positions.far_table"),
          .columns = {say("lab.positions.tokens"), "ALiBi", say("lab.positions.no_code")},
          .rows = {}};
  Chart far{.title = say("lab.positions.far"),
            .x_label = say("lab.positions.tokens"),
            .y_label = say("lab.positions.back")};
  far.curves = {{.name = "ALiBi", .x = {}, .y = {}},
                {.name = say("lab.positions.no_code"), .x = {}, .y = {}}};
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
      below(say("lab.positions.f.length"), length_error, 1e-9, "", say("lab.positions.p.length")),
      below(say("lab.positions.f.product"), spread, 1e-9, "", say("lab.positions.p.product")),
      above(say("lab.positions.f.alike"), largest_other, 0.5, ""),
      below(say("lab.positions.f.rope"), turned_spread, 1e-9, ""),
      below(say("lab.positions.f.rope_length"), turned_length, 1e-9, ""),
      above(say("lab.positions.f.never"), never_whole / 32, 0.1, ""),
      below(say("lab.positions.f.alibi"), alibi_growth / none_growth, 0.8, "x", say("lab.positions.p.alibi")),
  };
  r.verdict = all_hold(r.findings)
                  ? say("lab.positions.v.exact", digits(largest_other, 2), digits(100 * never_whole / 32, 0),
                        concat(far.curves[0].x.front()), concat(far.curves[0].x.back()),
                        digits(alibi_growth, 1), digits(none_growth, 1))
                  : say("lab.positions.v.not");
  HeatMap map{.title = say("lab.positions.map"), .scale = HeatMap::Scale::both_signs};
  map.row_name = "p", map.column_name = "p'", map.value_name = say("lab.positions.likeness");
  for (Dim a = 0; a < 64; a += 4) {
    map.rows.push_back(concat(a)), map.columns.push_back(concat(a));
    for (Dim b = 0; b < 64; b += 4)
      map.values.push_back(dot(pe, static_cast<std::size_t>(a), static_cast<std::size_t>(b), d) / (d / 2.0));
  }
  r.document.parts.push_back(std::move(map));
  r.document.parts.push_back(Chart{.title = say("lab.positions.by_distance"),
                                   .x_label = say("lab.positions.distance"),
                                   .y_label = say("lab.positions.likeness"),
                                   .curves = {product}});
  r.document.parts.push_back(std::move(t));
  r.document.parts.push_back(std::move(far));
  return r;
}

// ------------------------------------------------------------------------------- beyond the trained length
LabResult positions_extrapolation(const Lab& lab) {
  const ToyTask task = copy_task(lab.seed);
  std::vector<Toy> toys;
  auto add = [&](Text name, EmbedRecipe::Pos in_embedding, PosRecipe::Kind inside) {
    Recipe r = toy_recipe(2, 4);  // four heads: ALiBi's slope of a single one is 1/256
    r.context = 128;
    r.embed.pos = in_embedding;
    self_attn(r).pos.kind = inside;
    toys.push_back({.name = std::move(name), .recipe = r, .task = task, .seed = lab.seed});
  };
  using In = EmbedRecipe::Pos;
  using Kind = PosRecipe::Kind;
  add(say("lab.positions.none"), In::none, Kind::none);
  add(say("lab.positions.sin"), In::sinusoid, Kind::none);
  add(say("lab.positions.learned"), In::learned, Kind::none);
  add("RoPE", In::none, Kind::rope);
  add("ALiBi", In::none, Kind::alibi);
  const std::vector<Trained> runs = train_toys(lab, std::move(toys));
  LabResult out;
  Table table{.title = say("lab.positions.beyond_table"),
              .columns = {say("lab.positions.code"), "32", "64", "128"}};
  Chart chart{.title = say("lab.positions.beyond"),
              .x_label = say("lab.positions.tokens"),
              .y_label = say("lab.positions.copy_loss"),
              .log_y = true};
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
  out.document.parts = {chart, table};
  std::size_t best = 0;
  for (std::size_t i = 1; i < runs.size(); ++i)
    if (copy[i][2] < copy[best][2]) best = i;
  out.findings = {
      above(say("lab.positions.f.learned"), copy[2][2] - copy[2][0], 0.1, "nats",
            say("lab.positions.p.learned")),
      above(say("lab.positions.f.sinusoid"), copy[1][2] - copy[1][0], 0.1, "nats",
            say("lab.positions.p.sinusoid")),
      above(say("lab.positions.f.rope_far"), copy[3][2] - copy[3][0], 0.05, "nats", "", false),
      below(say("lab.positions.f.alibi_far"), copy[4][2] - copy[1][2], 0, "nats", "Press et al. 2022"),
  };
  std::vector<Text> costs, trained;
  for (std::size_t i = 0; i < runs.size(); ++i)
    for (std::size_t far : {0, 2})
      (far ? costs : trained).push_back(say("lab.positions.cost", runs[i].name, digits(copy[i][far], 2)));
  out.verdict =
      sentences({say(copy[1][2] - copy[1][0] > 0.1 ? "lab.positions.v.no_further" : "lab.positions.v.further",
                     digits(copy[1][0], 2), digits(copy[1][2], 2)),
                 say("lab.positions.v.costs", listed(costs), listed(trained)),
                 say("lab.positions.v.best", runs[best].name)});
  return out;
}

}  // namespace rapt
