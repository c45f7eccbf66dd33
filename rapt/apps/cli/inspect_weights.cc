// SPDX-License-Identifier: Apache-2.0
// rapt inspect weights: how large the weights of a checkpoint are, read from its files alone.
#include "rapt/apps/cli/inspect_view.h"
#include "rapt/inspect/documents.h"

namespace rapt::cli {
namespace {

std::function<Document(const ViewRequest&)> parse(Args& args) {
  const std::string name = args.value("measure").value_or("norm");
  WeightMeasure measure = WeightMeasure::norm;
  if (name == "rms") measure = WeightMeasure::rms;
  else if (name == "largest") measure = WeightMeasure::largest;
  else if (name != "norm") fail_usage("--measure is norm, rms or largest, not '", name, "'");
  return [measure](const ViewRequest& s) { return weights_document(s.checkpoint.path, s.device(), measure); };
}

}  // namespace

extern const View kWeightsView;
const View kWeightsView = {
    "weights",
    kWeightsSummary,
    "  --measure NAME       of the tables by layer: norm (Euclidean, default), rms (root mean square) or\n"
    "                       largest; --json has all three\n",
    parse,
    1,
    View::Needs::files};

}  // namespace rapt::cli
