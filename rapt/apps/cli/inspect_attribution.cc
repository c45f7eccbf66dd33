// SPDX-License-Identifier: Apache-2.0
// rapt inspect attribution: what a logit is made of.
#include "rapt/apps/cli/inspect_view.h"
#include "rapt/inspect/documents.h"

namespace rapt::cli {
namespace {

std::function<Document(const ViewRequest&)> parse(Args& args) {
  const std::string metric = args.value("metric").value_or("logit");
  return
      [metric](const ViewRequest& s) { return attribution_document(s, parse_metric(metric, s.tokenizer())); };
}

}  // namespace

extern const View kAttributionView;
const View kAttributionView = {
    "attribution", kAttributionSummary,
    "  --metric METRIC      what is taken apart (logit): logit=TOKEN, difference=TOKEN,TOKEN; without a\n"
    "                       token the most probable one; @POSITION behind it: whose logits (@-1, the last).\n"
    "                       A TOKEN is its text (\" Paris\") or its number (id:7)\n",
    parse};

}  // namespace rapt::cli
