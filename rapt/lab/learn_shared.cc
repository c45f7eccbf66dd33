// SPDX-License-Identifier: Apache-2.0
// Keys and values shared among heads, trained: at equal size, after conversion, on long contexts.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "rapt/base/rng.h"
#include "rapt/lab/experiments_learn.h"
#include "rapt/lab/lookup.h"
#include "rapt/nn/size.h"

namespace rapt {
namespace {

// Key and value heads of each group become one: their mean, or the first of them.
std::unique_ptr<Model> converted(const Model& from, const Recipe& recipe, bool mean) {
  std::unique_ptr<Model> to = with_weights(from, recipe);
  const AttnRecipe &a = *from.recipe.decoder->layer(0).parts[0].self(),
                   &b = *to->recipe.decoder->layer(0).parts[0].self();
  const Dim group = a.kv_heads / b.kv_heads, d = a.head_dim;
  for (Weight& w : to->weights) {
    if (!w.name.ends_with(".self.k.weight") && !w.name.ends_with(".self.v.weight")) continue;
    for (const Weight& f : from.weights) {
      if (f.name != w.name) continue;
      for (Dim r = 0; r < w.rows; ++r)
        for (Dim c = 0; c < w.cols; ++c) {
          double sum = 0;
          for (Dim g = 0; g < (mean ? group : 1); ++g) sum += f.get((r / d * group + g) * d + r % d, c);
          w.set(r, c, sum / static_cast<double>(mean ? group : 1));
        }
    }
  }
  return to;
}

// With fewer key and value heads; a wider feed-forward part makes up for their weights.
Recipe sharing(const Recipe& full, Dim kv_heads, bool equal_size) {
  Recipe r = full;
  self_attn(r).kv_heads = kv_heads;
  const Dim missing = Model(full).parameters() - Model(r).parameters();
  if (equal_size) ffn_of(r).width += missing / (3 * r.width * r.decoder->layers);
  return r;
}

Text shared_name(Dim heads, Dim kv_heads) {
  return kv_heads == heads ? Text("MHA") : kv_heads == 1 ? Text("MQA") : Text(concat("GQA-", kv_heads));
}

}  // namespace

LabResult gqa_quality(const Lab& lab) {
  const ToyTask task = lookup_task(lab.seed, 2);
  const Recipe full = lookup_recipe(1, 4);
  constexpr Dim kSteps = 1000;
  constexpr Dim kKvHeads[] = {4, 2, 1};
  std::vector<Toy> toys;
  for (Dim kv : kKvHeads)
    toys.push_back({.name = shared_name(4, kv),
                    .recipe = sharing(full, kv, true),
                    .task = task,
                    .seed = lab.seed,
                    .steps = kSteps,
                    .cosine = true});
  const std::vector<Trained> runs = train_toys(lab, std::move(toys));

  std::vector<std::unique_ptr<Model>> starts;
  std::vector<Toy> more;
  std::vector<double> before;
  for (Dim kv : {2, 1})
    for (bool mean : {true, false}) {
      starts.push_back(converted(*runs[0].model, sharing(full, kv, false), mean));
      before.push_back(look_at(lab.device, *starts.back(), task, scaled_batch(lab, 128), 32).trigger_loss);
      more.push_back({.name = say(mean ? "lab.gqa.by_mean" : "lab.gqa.by_first", shared_name(4, kv)),
                      .recipe = sharing(full, kv, false),
                      .task = task,
                      .seed = lab.seed + 1,
                      .steps = kSteps / 20,
                      .rate = 1e-3,
                      .warmup = 5,
                      .start = starts.back().get()});
    }
  const std::vector<Trained> up = train_toys(lab, std::move(more));

  LabResult out;
  Table table{
      .title = say("lab.gqa.equal"),
      .columns = {say("lab.variant"), say("lab.heads.parameters"), say("lab.loss"), say("lab.gqa.cached")},
      .rows = {}};
  for (std::size_t i = 0; i < runs.size(); ++i)
    table.rows.push_back({runs[i].name, Cell(static_cast<double>(runs[i].model->parameters()), 0),
                          Cell(runs[i].end().trigger_loss),
                          Cell(static_cast<double>(2 * 12 * kKvHeads[i]), 0)});
  Table moved{.title = say("lab.gqa.moved"),
              .columns = {say("lab.variant"), say("lab.gqa.at_once"), say("lab.gqa.after")},
              .rows = {}};
  for (std::size_t i = 0; i < up.size(); ++i)
    moved.rows.push_back({up[i].name, Cell(before[i]), Cell(up[i].end().trigger_loss)});
  out.document.parts = {table, moved, loss_chart(say("lab.gqa.losses"), runs)};
  auto loss = [&](std::size_t i) { return runs[i].end().trigger_loss; };
  auto after = [&](std::size_t i) { return up[i].end().trigger_loss; };
  const double apart = look_at_lookup(lab.device, *runs[2].model, task, scaled_batch(lab, 16), 32).apart;
  constexpr double kApart = 0.1;
  out.findings = {
      above(say("lab.gqa.f.apart"), apart, kApart, ""),
      below(say("lab.gqa.f.gqa"), loss(1) - loss(0), 0.01, "nats", say("lab.gqa.p.gqa"), false),
      above(say("lab.gqa.f.mqa"), loss(2) - loss(1), 0, "nats", say("lab.gqa.p.mqa"), false),
      below(say("lab.gqa.f.uptrain"), after(0) / before[0], 1, "x", say("lab.gqa.p.uptrain")),
      below(say("lab.gqa.f.mean"), before[2] / before[3], 1, "x", say("lab.gqa.p.mean"), false),
      below(say("lab.gqa.f.mean_after"), after(2) / after(3), 1, "x", "", false),
  };
  out.verdict = sentences(
      {apart > kApart ? say("lab.gqa.v.apart", digits(apart, 2)) : say("lab.gqa.v.alike", digits(apart, 2)),
       say("lab.gqa.v.losses", digits(loss(0), 3), digits(loss(1), 3), digits(loss(2), 3)),
       loss(2) <= loss(1) ? say("lab.gqa.v.no_worse") : say("lab.gqa.v.worse"),
       say("lab.gqa.v.converted", digits(before[0], 2), digits(before[2], 2), digits(after(0), 2),
           digits(after(2), 2), digits(after(1), 2), digits(after(3), 2))});
  return out;
}

// ------------------------------------------------------------------------------------------ long contexts
namespace {

constexpr Dim kLongKeys = 48, kLongValues = 8, kLongHeads = 8, kKvCounts[] = {8, 2, 1};

// First half: every key once with its value, in any order. Second half: questions. Nothing is shown twice, so
// one item among all of them must be found.
ToyTask long_lookup_task(std::uint64_t seed) {
  return [key = mix_key(seed, 0x1046)](std::uint64_t step, Dim count, Dim length) {
    CopyTask::Batch out;
    for (Dim n = 0; n < count; ++n) {
      const std::uint64_t own = mix_key(mix_key(key, step + 1), static_cast<std::uint64_t>(n));
      auto draw = [&](Dim below_this, Dim at, std::uint64_t use) {
        return random_below(static_cast<std::uint32_t>(below_this), own, static_cast<std::uint64_t>(at), use);
      };
      std::vector<std::int32_t> order(static_cast<std::size_t>(kLongKeys));
      std::iota(order.begin(), order.end(), 0);
      for (Dim i = kLongKeys - 1; i > 0; --i)
        std::swap(order[static_cast<std::size_t>(i)], order[draw(i + 1, i, 1)]);
      for (Dim t = 0; t < length; ++t) {
        const bool question = t >= length / 2;
        const std::int32_t k = order[question ? draw(length / 2, t, 3) : static_cast<std::size_t>(t)];
        const auto value = static_cast<std::int32_t>(draw(kLongValues, k, 2));
        const auto items = static_cast<std::int32_t>(kLongKeys * kLongValues);
        out.tokens.push_back(question ? items + k : k * static_cast<std::int32_t>(kLongValues) + value);
        out.targets.push_back(question ? value : -1);
        out.floor.push_back(0);
        out.kind.push_back(t == 0 ? -1 : question);
      }
    }
    return out;
  };
}

double kv_numbers(const Recipe& r) { return static_cast<double>(count_cost(resolve(r), 32).kv_values); }

}  // namespace

LabResult mqa_long(const Lab& lab) {
  constexpr Dim kLong = 256, kShort = 32, kItems = 2 * kLongKeys;
  Recipe items = with_ffn(toy_recipe(1, kLongHeads, kLongKeys * (kLongValues + 1)));
  items.context = kItems;
  self_attn(items).pos.kind = PosRecipe::Kind::none;
  const TextTask text = text_task(lab);
  Recipe words = with_ffn(toy_recipe(2, kLongHeads, text.vocab));
  words.context = kLong;
  std::vector<Toy> toys;
  // Lookups, as tried: 64 items, embeddings of unit size: nothing learned in 250 steps; 24 items, small ones:
  // all three solve it in 500; 48 items, small ones: in 700 they are on the way, and apart.
  auto add = [&](const char* key, const Recipe& full, Dim kv, const ToyTask& task, Dim steps, Dim length,
                 double rate) {
    toys.push_back({.name = say(concat("lab.mqa-long.", key), shared_name(kLongHeads, kv), concat(rate)),
                    .recipe = sharing(full, kv, true),
                    .task = task,
                    .seed = lab.seed,
                    .steps = steps,
                    .batch = 1024 / length,
                    .length = length,
                    .rate = rate,
                    .cosine = rate < 5e-3,
                    .small_tokens = length == kItems});
  };
  for (Dim kv : kKvCounts) add("lookup", items, kv, long_lookup_task(lab.seed), 700, kItems, 3e-3);
  for (Dim kv : kKvCounts) add("far", words, kv, text.task, 300, kLong, 3e-3);
  for (Dim kv : kKvCounts) add("near", words, kv, text.task, 300, kShort, 3e-3);
  constexpr double kRates[] = {1e-2, 3e-2, 1e-1};
  for (double rate : kRates)
    for (Dim kv : {kLongHeads, Dim{1}}) add("fast", words, kv, text.task, 250, kShort, rate);
  const std::vector<Trained> runs = train_toys(lab, std::move(toys));

  LabResult out;
  Table table{.title = say("lab.mqa-long.table"),
              .columns = {say("lab.variant"), say("lab.heads.parameters"), say("lab.gqa.cached"),
                          say("lab.loss"), say("lab.mqa-long.above_mha")},
              .rows = {}};
  auto loss = [&](std::size_t i) { return i < 3 ? runs[i].end().trigger_loss : runs[i].end().loss; };
  for (std::size_t i = 0; i < 9; ++i)
    table.rows.push_back({runs[i].name, Cell(static_cast<double>(runs[i].model->parameters()), 0),
                          Cell(kv_numbers(runs[i].model->recipe), 0), Cell(loss(i)),
                          Cell(loss(i) - loss(i / 3 * 3))});
  Chart chart{.title = say("lab.mqa-long.chart"),
              .x_label = say("lab.gqa.kv_heads"),
              .y_label = say("lab.mqa-long.above"),
              .curves = {}};
  const char* names[] = {"lab.mqa-long.lookup_curve", "lab.mqa-long.far_curve", "lab.mqa-long.near_curve"};
  for (std::size_t k = 0; k < 3; ++k) {
    Curve c{.name = say(names[k])};
    for (std::size_t i = 3; i-- > 0;)
      c.x.push_back(static_cast<double>(kKvCounts[i])), c.y.push_back(loss(3 * k + i) - loss(3 * k));
    chart.curves.push_back(std::move(c));
  }
  Table fast{
      .title = say("lab.mqa-long.fast_table"),
      .columns = {say("lab.mqa-long.rate"), say("lab.mqa-long.mha_spikes"), say("lab.mqa-long.mqa_spikes"),
                  say("lab.mqa-long.mha_loss"), say("lab.mqa-long.mqa_loss")},
      .rows = {}};
  std::vector<Trained> at_high_rates;
  double mha_spikes = 0, mqa_spikes = 0;
  for (std::size_t i = 0; i < std::size(kRates); ++i) {
    const Trained &mha = runs[9 + 2 * i], &mqa = runs[10 + 2 * i];
    fast.rows.push_back({Cell(kRates[i], 2), Cell(mha.spikes, 0), Cell(mqa.spikes, 0), Cell(mha.end().loss),
                         Cell(mqa.end().loss)});
    mha_spikes += mha.spikes, mqa_spikes += mqa.spikes;
  }
  Chart losses{.title = say("lab.mqa-long.fast_chart"),
               .x_label = say("lab.step"),
               .y_label = say("lab.heads.nats"),
               .curves = {}};
  for (std::size_t i = 11; i < runs.size(); ++i) losses.curves.push_back(loss_curve(runs[i]));
  out.document.parts = {chart, table, fast, losses};
  const double lookup = loss(2) - loss(0), far = loss(5) - loss(3), near = loss(8) - loss(6),
               cache = kv_numbers(runs[2].model->recipe) / kv_numbers(runs[0].model->recipe);
  constexpr double kWorse = 0.01;
  out.findings = {
      below(say("lab.mqa-long.f.cache"), cache, 0.2, "x"),
      above(say("lab.mqa-long.f.lookup"), lookup, kWorse, "nats", say("lab.gqa.p.average"), false),
      below(say("lab.mqa-long.f.gqa"), loss(1) - loss(0), loss(2) - loss(0), "nats", say("lab.gqa.p.average"),
            false),
      above(say("lab.mqa-long.f.far"), far, kWorse, "nats", say("lab.mqa-long.p.long"), false),
      above(say("lab.mqa-long.f.longer"), far - near, 0, "nats", "", false),
      above(say("lab.mqa-long.f.spikes"), mqa_spikes - mha_spikes, 0, "", say("lab.mqa-long.p.spikes"),
            false),
  };
  out.verdict =
      sentences({cache < 0.2 ? say("lab.mqa-long.v.cache", digits(cache, 3))
                             : say("lab.mqa-long.v.no_cache", digits(cache, 3)),
                 std::min(loss(0), loss(2)) > 0.5 * std::log(static_cast<double>(kLongValues))
                     ? say("lab.mqa-long.v.lookup_not_learned", kLongKeys, digits(loss(0), 3),
                           digits(loss(1), 3), digits(loss(2), 3))
                 : lookup > kWorse ? say("lab.mqa-long.v.lookup", kLongKeys, digits(loss(0), 3),
                                         digits(loss(1), 3), digits(loss(2), 3))
                                   : say("lab.mqa-long.v.lookup_same", kLongKeys, digits(loss(0), 3),
                                         digits(loss(1), 3), digits(loss(2), 3)),
                 far > kWorse && far > near
                     ? say("lab.mqa-long.v.far", digits(far, 3), kLong, digits(near, 3), kShort)
                     : say("lab.mqa-long.v.not_far", digits(far, 3), kLong, digits(near, 3), kShort),
                 mqa_spikes > mha_spikes
                     ? say("lab.mqa-long.v.spikes", digits(mqa_spikes, 0), digits(mha_spikes, 0))
                     : say("lab.mqa-long.v.no_spikes", digits(mqa_spikes, 0), digits(mha_spikes, 0))});
  return out;
}

}  // namespace rapt
