// SPDX-License-Identifier: Apache-2.0
// rapt inspect massive: the few huge numbers of the residual stream, and what the model is without them.
#include "rapt/apps/cli/inspect_view.h"
#include "rapt/inspect/documents.h"

namespace rapt::cli {
namespace {

std::function<Document(const ViewRequest&)> parse(Args& args) {
  MassiveDocumentOptions f;
  f.which.above = args.real("above").value_or(f.which.above);
  f.which.ratio = args.real("ratio").value_or(f.which.ratio);
  f.which.top = static_cast<int>(args.number("top", 1, 1000).value_or(1));
  f.zero = args.flag("zero");
  f.mean = args.flag("mean");
  const std::optional<Dim> layer = args.number("layer", 0, 100000);
  if (layer) f.layer = static_cast<int>(*layer);
  const std::optional<Dim> window = args.number("window", 4, 1 << 20);
  f.window = window.value_or(f.window);
  if ((layer || window) && !f.zero && !f.mean) fail_usage("--layer and --window belong to --zero or --mean");
  return [f](const ViewRequest& s) { return massive_document(s, f); };
}

}  // namespace

extern const View kMassiveView;
const View kMassiveView = {"massive", kMassiveSummary,
                           "  --above X            massive: |x| above this (100)\n"
                           "  --ratio X            ... and at least this many times the median of its\n"
                           "                       layer (1000)\n"
                           "  --top N              how many activations of each layer are listed (1)\n"
                           "  --zero, --mean       set them to zero, or to their mean over windows of the\n"
                           "                       text, and tell the perplexity\n"
                           "  --layer N            after this layer (where they appear)\n"
                           "  --window N           tokens of a window (256)\n",
                           parse};

}  // namespace rapt::cli
