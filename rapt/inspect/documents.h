// SPDX-License-Identifier: Apache-2.0
// What some observers found, as documents: words, tables, maps, and the numbers for programs
// (docs/inspect-json.md). For `rapt inspect`, for the page of report.h, and for whoever else shows them.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "rapt/inspect/massive.h"
#include "rapt/inspect/metric.h"
#include "rapt/inspect/patching.h"
#include "rapt/inspect/sink_score.h"
#include "rapt/inspect/subject.h"
#include "rapt/report/document.h"

namespace rapt {

constexpr const char* kSinksSummary =
    "how much attention the first tokens collect (Sink_k), and whether length or direction does it";
struct SinksOptions {
  SinkOptions score;
  Dim length = 64, texts = 100;  // the text in pieces of so many tokens, at most so many of them
  std::function<void(const std::string&)> note = {};  // what people should know: the text is short
};
// The texts it asks about.
std::vector<std::vector<std::int32_t>> sink_texts(const Subject& subject, const SinksOptions& options);
Document sinks_document(const Subject& subject, const SinksOptions& options = {});

constexpr const char* kMassiveSummary = "the few huge numbers of the residual stream, layer by token";
struct MassiveDocumentOptions {
  MassiveOptions which{.top = 1};
  bool zero = false, mean = false;  // what the model is with them set to zero, to their mean
  int layer = -1;                   // … after this layer; -1: where they appear
  Dim window = 256;                 // tokens of a window of the text
};
Document massive_document(const Subject& subject, const MassiveDocumentOptions& options = {});

constexpr const char* kNormsSummary = "lengths: the residual stream, what each part adds, q, k and v";
Document norms_document(const Subject& subject);

constexpr const char* kAttributionSummary =
    "what a logit is made of: the share of every head and part (direct logit attribution)";
// Of a logit or the difference of two.
Document attribution_document(const Subject& subject, const Metric& metric);

constexpr const char* kPatchingSummary =
    "where two texts part: the clean one's activations in the corrupted one, one by one";
// The subject's text is the clean one.
Document patching_document(const Subject& subject, Ids corrupted, const Metric& metric,
                           const PatchingOptions& options = {});

constexpr const char* kWeightsSummary = "sizes of biases, gains, gates and matrices, layer by layer";
// What the tables and charts by layer show; the numbers for programs have all three.
enum class WeightMeasure { norm, rms, largest };
Document weights_document(const std::string& path, Device& device,
                          WeightMeasure measure = WeightMeasure::norm);

}  // namespace rapt
