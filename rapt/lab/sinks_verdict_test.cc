// SPDX-License-Identifier: Apache-2.0
// Verdicts about sinks, gates and int8 that can fail: a changed model turns a finding and its sentence round.
#include <gtest/gtest.h>

#include "rapt/lab/experiments_learn.h"
#include "rapt/lab/toy.h"
#include "tests/build_kind.h"
#include "tests/tools.h"

namespace rapt {
namespace {

using test::holds;

LabResult run_sink_lab(LabResult (*experiment)(const Lab&), double effort,
                       std::function<void(std::string_view, Recipe&)> change) {
  Device device({.threads = 2});
  return experiment({.device = device, .seed = 0, .effort = effort, .change = std::move(change)});
}

const Finding& finding(const LabResult& r, std::string_view key) {
  for (const Finding& f : r.findings)
    if (f.what == say(key)) return f;
  ADD_FAILURE() << "no finding " << key;
  return r.findings.front();
}

// The first words of a sentence, up to its first number.
std::string start_of(std::string_view key) {
  const std::string words = say(key, "{", "{", "{", "{", "{");
  return words.substr(0, words.find('{'));
}

// A first token that nobody sees cannot be a sink.
TEST(SinkVerdict, NeedsAFirstTokenInSight) {
  RAPT_ONLY_LONG("two trainings");
  RAPT_NOT_SANITIZED("whole experiments");
  auto other_variants_small = [](std::string_view name, Recipe& r) {
    if (name != "softmax") r.decoder->layers = 1;
  };
  const LabResult whole = run_sink_lab(sink, 0.2, other_variants_small);
  EXPECT_TRUE(finding(whole, "lab.sink.f.idle").holds) << finding(whole, "lab.sink.f.idle").measured;
  EXPECT_TRUE(holds(whole.verdict, start_of("lab.sink.v.share"))) << whole.verdict;
  const LabResult blind = run_sink_lab(sink, 0.2, [&](std::string_view name, Recipe& r) {
    other_variants_small(name, r);
    if (name == "softmax") self_attn(r).window = 3;
  });
  EXPECT_FALSE(finding(blind, "lab.sink.f.idle").holds) << finding(blind, "lab.sink.f.idle").measured;
  EXPECT_TRUE(holds(blind.verdict, start_of("lab.sink.v.no_sink"))) << blind.verdict;
}

// Without the gate there is one map from input to output for all rows.
TEST(GateVerdict, NeedsTheGate) {
  RAPT_NOT_SANITIZED("whole experiments");
  const LabResult gated = run_sink_lab(gate, 0.01, {});
  EXPECT_TRUE(finding(gated, "lab.gate.f.maps").holds) << finding(gated, "lab.gate.f.maps").measured;
  EXPECT_TRUE(holds(gated.verdict, start_of("lab.gate.v.maps"))) << gated.verdict;
  const LabResult without = run_sink_lab(gate, 0.01, [](std::string_view name, Recipe& r) {
    if (name == "G1" || name == "G1, copying") self_attn(r).gate.clear();
  });
  const Finding& maps = finding(without, "lab.gate.f.maps");
  EXPECT_FALSE(maps.holds);
  EXPECT_NEAR(maps.measured, 1, 1e-6);
  EXPECT_NEAR(finding(without, "lab.gate.f.not_fixed").measured, 0, 1e-9);
  EXPECT_TRUE(holds(without.verdict, start_of("lab.gate.v.maps_not"))) << without.verdict;
  // The same model twice: nothing gained on text, nothing taken from the sink.
  EXPECT_FALSE(finding(without, "lab.gate.f.loss").holds);
  EXPECT_FALSE(finding(without, "lab.gate.f.share").holds);
  EXPECT_TRUE(holds(without.verdict, start_of("lab.gate.v.no_gain"))) << without.verdict;
}

// It is the norm that keeps a massive activation from what matrices read.
TEST(QuantVerdict, NeedsTheNorm) {
  RAPT_NOT_SANITIZED("whole experiments");
  const LabResult normed = run_sink_lab(quant, 0.05, {});
  EXPECT_TRUE(finding(normed, "lab.quant.f.massive_input").holds);
  EXPECT_TRUE(finding(normed, "lab.quant.f.outlier_row").holds);
  EXPECT_TRUE(holds(normed.verdict, start_of("lab.quant.v.input_not"))) << normed.verdict;
  EXPECT_TRUE(holds(normed.verdict, say("lab.quant.v.enemy"))) << normed.verdict;
  const LabResult bare = run_sink_lab(quant, 0.05, [](std::string_view name, Recipe& r) {
    if (name == "planted") r.decoder->kinds.at("L").parts[0].norm_in.reset();
  });
  EXPECT_FALSE(finding(bare, "lab.quant.f.massive_input").holds);
  EXPECT_TRUE(holds(bare.verdict, start_of("lab.quant.v.input"))) << bare.verdict;
  EXPECT_TRUE(holds(bare.verdict, say("lab.quant.v.enemy_open"))) << bare.verdict;
}

}  // namespace
}  // namespace rapt
