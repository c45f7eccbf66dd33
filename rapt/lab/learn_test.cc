// SPDX-License-Identifier: Apache-2.0
// Tasks and looks against plain recomputation; whole experiments at effort 0.003 must give finite numbers.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "rapt/lab/experiments_learn.h"
#include "rapt/lab/toy.h"
#include "tests/build_kind.h"

namespace rapt {
namespace {

TEST(Toy, TrainingLowersTheLossAndThreadsChangeNothing) {
  RAPT_NOT_SANITIZED("a long training");
  const ToyTask task = copy_task(3);
  std::vector<Toy> toys(2);
  toys[0] = {.name = "a",
             .recipe = toy_recipe(1),
             .task = task,
             .seed = 1,
             .steps = 40,
             .batch = 8,
             .length = 16,
             .warmup = 5,
             .looks = 2};
  toys[1] = toys[0];
  toys[1].seed = 2;
  std::vector<std::vector<double>> losses;
  for (int threads : {1, 2}) {
    Device device({.threads = threads});
    const std::vector<Trained> runs = train_toys({device}, toys);
    ASSERT_EQ(runs.size(), 2u);
    EXPECT_LT(runs[0].end().excess, 0.7 * runs[0].looks.front().excess);
    EXPECT_EQ(runs[0].end().step, 40);
    EXPECT_EQ(runs[0].looks.size(), 3u);
    EXPECT_NE(runs[0].losses, runs[1].losses);
    losses.push_back(runs[1].losses);
  }
  EXPECT_EQ(losses[0], losses[1]);
}

TEST(Toy, ATaskIsWhatItSays) {
  const CopyTask::Batch with = copy_task(5)(7, 2, 9), without = copy_task(5, false)(7, 2, 8);
  EXPECT_EQ(with.tokens[0], CopyTask::kBegin);
  for (std::int32_t t : without.tokens) EXPECT_NE(t, CopyTask::kBegin);
  EXPECT_EQ(without.kind[0], -1);
  EXPECT_EQ(without.kind[8], -1);
  for (std::size_t t = 1; t < 8; ++t) {
    EXPECT_TRUE(without.kind[t] != 1 || without.targets[t] == without.tokens[t - 1]) << t;
    EXPECT_TRUE(t + 1 == 8 || without.targets[t] == without.tokens[t + 1]) << t;
  }

  const CopyTask::Batch lookup = lookup_task(5, 2)(1, 3, 32);
  int questions = 0;
  for (std::size_t s = 0; s < 3; ++s) {
    std::vector<int> value(8, -1);
    for (std::size_t t = s * 32; t < s * 32 + 32; ++t) {
      const int token = lookup.tokens[t];
      ASSERT_LT(token, kLookupVocab);
      if (token < 64) {
        EXPECT_TRUE(value[static_cast<std::size_t>(token / 8)] == -1 ||
                    value[static_cast<std::size_t>(token / 8)] == token % 8);
        value[static_cast<std::size_t>(token / 8)] = token % 8;
        EXPECT_EQ(lookup.targets[t], -1);
      } else {
        const int a = value[static_cast<std::size_t>((token - 64) / 8)],
                  b = value[static_cast<std::size_t>((token - 64) % 8)];
        ASSERT_GE(std::min(a, b), 0) << "a key that was not shown";
        EXPECT_EQ(lookup.targets[t], 8 * a + b);
        ++questions;
      }
    }
  }
  EXPECT_GT(questions, 20);

  const CopyTask::Batch delay = delay_task(1, 3)(0, 1, 10);
  for (std::size_t t = 0; t < 10; ++t) EXPECT_EQ(delay.targets[t], t < 3 ? -1 : delay.tokens[t - 3]);
}

// Every number of a look, computed again from the weights of each row and the values that pass by.
TEST(Toy, ALookIsWhatAPlainRecomputationSees) {
  Device device({.threads = 1, .isa = "f64"});
  for (Normal normal : {Normal::softmax, Normal::sigmoid}) {
    Recipe r = toy_recipe(2);
    self_attn(r).normal = normal;
    self_attn(r).gate.push_back({});
    Model model(r, device.real);
    init(model, 3);
    const ToyTask task = copy_task(2);
    constexpr Dim kCount = 3, kLength = 9;
    const ToyLook look = look_at(device, model, task, kCount, kLength, 5);
    const CopyTask::Batch data = task(5, kCount, kLength);

    rapt::Run run(device);
    Taps taps;
    run.taps = &taps;
    std::vector<double> first(2), sums(2), rows(2), copying(2), copying_rows(2), peak(2), gate(2),
        values[2] = {{0, 0}, {0, 0}};
    double low = 0, gates = 0, least = INFINITY;
    taps.want_weights(
        site::attn_weights,
        [&](const Tapped&) {
          std::vector<Taps::HeadRow> all;
          for (Dim row = 0; row < kCount * kLength; ++row) all.push_back({0, row});
          return all;
        },
        [&](const Tapped& t) {
          const int kind = data.kind[static_cast<std::size_t>(t.row)];
          const auto l = static_cast<std::size_t>(t.layer);
          if (kind == 0) {
            double sum = 0;
            for (Dim i = 0; i < t.value.elements(); ++i) sum += t.value.at(i);
            first[l] += t.value.at(0), sums[l] += t.value.at(0) / sum, rows[l] += 1;
          } else if (kind == 1) {
            copying[l] += t.value.at(0), copying_rows[l] += 1;
          }
        });
    taps.see(site::resid_out, [&](const Tapped& t) {
      for (Dim i = 0; i < t.value.elements(); ++i)
        if (data.kind[static_cast<std::size_t>(i / 48)] < 0)
          peak[static_cast<std::size_t>(t.layer)] =
              std::max(peak[static_cast<std::size_t>(t.layer)], std::abs(t.value.at(i)));
    });
    see_gates(taps, [&](const Tapped& t) {
      double sum = 0, n = 0;
      for (Dim i = 0; i < t.value.elements(); ++i)
        if (data.kind[static_cast<std::size_t>(i / 48)] == 0) sum += t.value.at(i), n += 1;
      for (Dim i = 0; i < t.value.elements(); ++i)
        if (data.kind[static_cast<std::size_t>(i / 48)] >= 0)
          low += t.value.at(i) < 0.1, gates += 1, least = std::min(least, t.value.at(i));
      gate[static_cast<std::size_t>(t.layer)] = sum / n;
    });
    taps.see(site::v, [&](const Tapped& t) {
      for (Dim row = 0; row < t.value[0]; ++row) {
        double square = 0;
        for (Dim c = 0; c < 48; ++c) square += t.value.at(row * 48 + c) * t.value.at(row * 48 + c);
        values[row % kLength != 0][static_cast<std::size_t>(t.layer)] += std::sqrt(square);
      }
    });
    const Tensor logits = forward(run, model, toy_batch(data, kLength));
    double loss = 0, floor = 0;
    for (std::size_t row = 0; row < data.targets.size(); ++row) {
      double sum = 0;
      for (Dim v = 0; v < CopyTask::kVocab; ++v)
        sum += std::exp(logits.at(static_cast<Dim>(row) * CopyTask::kVocab + v));
      loss += std::log(sum) - logits.at(static_cast<Dim>(row) * CopyTask::kVocab + data.targets[row]);
      floor += data.floor[row];
    }
    EXPECT_NEAR(look.loss, loss / (kCount * kLength), 1e-12);
    EXPECT_NEAR(look.excess, (loss - floor) / (kCount * kLength), 1e-12);
    EXPECT_NEAR(look.gate_low, low / gates, 1e-12);
    EXPECT_EQ(look.gate_least, least);
    for (std::size_t l = 0; l < 2; ++l) {
      EXPECT_NEAR(look.idle[l], first[l] / rows[l], 1e-9) << l;
      EXPECT_NEAR(look.idle_of_sum[l], sums[l] / rows[l], 1e-9) << l;
      ASSERT_GT(copying_rows[l], 0) << "choose another seed";
      EXPECT_NEAR(look.trigger[l], copying[l] / copying_rows[l], 1e-9) << l;
      EXPECT_NEAR(look.first_peak[l], peak[l], 1e-12) << l;
      EXPECT_NEAR(look.gate_idle[l], gate[l], 1e-12) << l;
      EXPECT_NEAR(look.value_ratio[l], values[0][l] / values[1][l] * (kLength - 1), 1e-9) << l;
    }
  }
}

// With a learned token before it the first token is still the task's own.
TEST(Toy, ALookTellsLearnedTokensFromTheFirst) {
  Device device({.threads = 1, .isa = "f64"});
  Recipe r = toy_recipe(2, 2);
  r.embed.sink_tokens = 1;
  Model model(r, device.real);
  init(model, 3);
  const ToyTask task = copy_task(2);
  constexpr Dim kCount = 3, kLength = 9, kStride = kLength + 1;
  const ToyLook look = look_at(device, model, task, kCount, kLength, 5);
  const CopyTask::Batch data = task(5, kCount, kLength);
  rapt::Run run(device);
  Taps taps;
  run.taps = &taps;
  double learned[2] = {}, first[2] = {}, rows[2] = {}, copying[2] = {}, copying_rows[2] = {}, peak[2] = {},
         keys[2][2] = {};
  auto kind_of = [&](Dim row) {
    return data.kind[static_cast<std::size_t>(row / kStride * kLength + row % kStride - 1)];
  };
  taps.want_weights(
      site::attn_weights,
      [&](const Tapped&) {
        std::vector<Taps::HeadRow> all;
        for (Dim row = 0; row < kCount * kStride; ++row)
          for (Dim head : {0, 1})
            if (row % kStride > 0) all.push_back({head, row});
        return all;
      },
      [&](const Tapped& t) {
        if (kind_of(t.row) == 0)
          learned[t.layer] += t.value.at(0), first[t.layer] += t.value.at(1), rows[t.layer] += 1;
        if (kind_of(t.row) == 1) copying[t.layer] += t.value.at(1), copying_rows[t.layer] += 1;
      });
  taps.see(site::resid_out, [&](const Tapped& t) {
    for (Dim s = 0; s < kCount; ++s)
      for (Dim c = 0; c < 48; ++c)
        peak[t.layer] = std::max(peak[t.layer], std::abs(t.value.at((s * kStride + 1) * 48 + c)));
  });
  taps.see(site::k, [&](const Tapped& t) {
    for (Dim row = 0; row < t.value[0]; ++row) {
      double square = 0;
      for (Dim c = 0; c < 48; ++c) square += t.value.at(row * 48 + c) * t.value.at(row * 48 + c);
      if (row % kStride > 0) keys[row % kStride > 1][t.layer] += std::sqrt(square);
    }
  });
  forward(run, model, toy_batch(data, kLength));
  for (std::size_t l = 0; l < 2; ++l) {
    ASSERT_GT(copying_rows[l], 0) << "choose another seed";
    EXPECT_NEAR(look.idle_learned[l], learned[l] / rows[l], 1e-9) << l;
    EXPECT_NEAR(look.idle[l], first[l] / rows[l], 1e-9) << l;
    EXPECT_NEAR(look.trigger[l], copying[l] / copying_rows[l], 1e-9) << l;
    EXPECT_NEAR(look.first_peak[l], peak[l], 1e-12) << l;
    EXPECT_NEAR(look.key_ratio[l], keys[0][l] / keys[1][l] * (kLength - 1), 1e-9) << l;
  }
}

TEST(Toy, TheSinkEmergesInAShortRun) {
  RAPT_NOT_SANITIZED("a long training");
  Device device({.threads = 1});
  const std::vector<Trained> runs = train_toys({device}, {{.name = "softmax",
                                                           .recipe = toy_recipe(),
                                                           .task = copy_task(0),
                                                           .steps = 200,
                                                           .batch = 16,
                                                           .looks = 1}});
  const ToyLook &before = runs[0].looks.front(), &after = runs[0].end();
  EXPECT_LT(most_of(before.idle), 0.2);  // about 1 / keys
  EXPECT_GT(most_of(after.idle), 0.3);
  EXPECT_LT(most_of(after.trigger), 0.2);
  EXPECT_LT(after.excess, 0.2 * before.excess);
}

void check(const char* name, LabResult (*run)(const Lab&)) {
  SCOPED_TRACE(name);
  Device device({.threads = 2});
  const LabResult r = run({.device = device, .seed = 1, .effort = 0.003});
  EXPECT_FALSE(r.verdict.empty());
  EXPECT_EQ(r.verdict.find("nan"), std::string::npos) << r.verdict;
  ASSERT_FALSE(r.findings.empty());
  for (const Finding& f : r.findings) {
    EXPECT_TRUE(std::isfinite(f.measured)) << f.what;
    EXPECT_FALSE(f.what.empty() || f.expected.empty());
  }
  int tables = 0, charts = 0;
  for (const auto& part : r.document.parts) {
    if (const auto* t = std::get_if<Table>(&part)) {
      ++tables;
      EXPECT_FALSE(t->rows.empty());
      for (const auto& row : t->rows) EXPECT_EQ(row.size(), t->columns.size()) << t->title;
    } else if (const auto* c = std::get_if<Chart>(&part)) {
      ++charts;
      EXPECT_FALSE(c->curves.empty());
      for (const Curve& curve : c->curves) EXPECT_EQ(curve.x.size(), curve.y.size()) << curve.name;
    }
  }
  EXPECT_GT(tables, 0);
  EXPECT_GT(charts, 0);
}

TEST(Learn, SinkExperimentsRun) {
  RAPT_NOT_SANITIZED("whole experiments");
  check("sink", sink);
  check("massive", massive);
  check("gate", gate);
  check("overfit", overfit);
}
TEST(Learn, StreamingAndRoundingRun) {
  RAPT_NOT_SANITIZED("whole experiments");
  check("streaming", streaming_toy);
  check("quant", quant);
}
TEST(Learn, NormExperimentsRun) {
  RAPT_NOT_SANITIZED("whole experiments");
  check("qk_norm", qk_norm);
  check("v_norm", v_norm);
  check("rms_vs_layer", rms_vs_layer);
  check("batchnorm", batchnorm);
  check("norm_place_training", norm_place_training);
}
TEST(Learn, AttentionExperimentsRun) {
  RAPT_NOT_SANITIZED("whole experiments");
  check("heads", heads);
  check("gqa_quality", gqa_quality);
  check("score_quality", score_quality);
  check("positions_extrapolation", positions_extrapolation);
  check("long_distance", long_distance);
}

}  // namespace
}  // namespace rapt
