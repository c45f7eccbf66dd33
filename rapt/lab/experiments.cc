// SPDX-License-Identifier: Apache-2.0
// The list of all experiments. Their results as documents: lab_report.cc.
#include "rapt/lab/experiment.h"

#include <algorithm>
#include <cmath>
#include <iterator>

#include "rapt/base/text.h"
#include "rapt/lab/experiments_learn.h"
#include "rapt/lab/experiments_math.h"

namespace rapt {
namespace {

// Experiments of two halves: what is seen without training, and what training shows.
template <LabResult (*first)(const Lab&), LabResult (*second)(const Lab&)>
LabResult both(const Lab& lab) {
  LabResult a = first(lab), b = second(lab);
  std::move(b.findings.begin(), b.findings.end(), std::back_inserter(a.findings));
  a.verdict = sentences({a.verdict, b.verdict});
  std::move(b.document.parts.begin(), b.document.parts.end(), std::back_inserter(a.document.parts));
  for (const Json::Member& m : b.document.facts.object()) a.document.facts.set(m.key, m.value);
  return a;
}

// clang-format off
const Experiment kExperiments[] = {
    // How attention scores
    {"softmax", 0.1, softmax_differences},
    {"scale", 0.1, scale},
    {"score", 0.5, both<score_math, score_quality>},
    {"cost", 0.5, cost},
    {"heads", 0.5, heads},
    {"gqa", 0.5, both<gqa_math, gqa_quality>},
    {"mqa-long", 0.5, mqa_long},
    {"mla", 0.3, mla},
    {"distance", 0.5, long_distance},
    {"rnn", 0.2, rnn},
    {"moe", 0.3, moe},
    {"masks", 0.1, masks},
    {"padding", 0.1, padding_masks},
    {"code", 0.1, usual_code},
    // Positions
    {"positions", 0.5, both<positions_extrapolation, positions_math>},
    // Biases
    {"key-bias", 0.1, key_bias},
    {"value-bias", 0.1, value_bias},
    {"query-bias", 0.1, query_bias},
    {"norm-bias", 0.1, norm_bias},
    {"bias-stability", 0.4, bias_stability},
    {"cache-bias", 0.2, cache_bias},
    // Norms and depth
    {"no-norm", 0.4, no_norm},
    {"norm-place", 0.5, both<norm_place_math, norm_place_training>},
    {"norm-race", 0.5, norm_race},
    {"depth", 0.3, depth},
    {"residual", 0.2, residual},
    {"ffn", 0.2, feed_forward},
    {"rms-vs-layer", 0.5, rms_vs_layer},
    {"batchnorm", 0.5, batchnorm},
    {"qk-norm", 0.5, qk_norm},
    {"v-norm", 0.5, v_norm},
    // Sinks and gates
    {"sink", 0.5, sink},
    {"massive", 0.5, massive},
    {"quant", 0.5, quant},
    {"streaming", 0.5, streaming_toy},
    {"gate", 0.8, gate},
    {"overfit", 0.4, overfit},
};
// clang-format on

}  // namespace

std::span<const Experiment> experiments() { return kExperiments; }

const Experiment& find_experiment(std::string_view name) {
  std::vector<std::string> names;
  for (const Experiment& e : kExperiments) {
    if (e.name == name) return e;
    names.push_back(e.name);
  }
  fail_name("there is no experiment '", name, "'; ", name_hint(name, names));
}

Text question_of(const Experiment& e) {
  return e.words ? e.words->question : say(concat("lab.", e.name, ".question"));
}
Text claim_of(const Experiment& e) {
  return e.words ? e.words->claim : say(concat("lab.", e.name, ".claim"));
}

}  // namespace rapt
