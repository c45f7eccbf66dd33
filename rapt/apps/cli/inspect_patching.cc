// SPDX-License-Identifier: Apache-2.0
// rapt inspect patching: activations of a clean text in a corrupted one.
#include "rapt/apps/cli/inspect_view.h"
#include "rapt/inspect/documents.h"

namespace rapt::cli {
namespace {

struct Flags {
  std::optional<std::string> corrupted, ids;
  std::string metric;
  PatchingOptions options;
};

Document view(const ViewRequest& s, const Flags& f) {
  if (f.corrupted.has_value() == f.ids.has_value())
    fail_usage(
        "patching: TEXT is the clean text; give the corrupted one, of as many tokens, with "
        "--corrupted TEXT or --corrupted-ids \"1 2 3\"");
  const std::vector<std::int32_t> corrupted =
      f.ids ? parse_ids(*f.ids, "corrupted-ids")
            : tokenizer_of(s.checkpoint).frame(tokenizer_of(s.checkpoint).encode(*f.corrupted));
  const Metric metric =
      f.metric.empty() ? Metric{.kind = Metric::Kind::difference} : parse_metric(f.metric, s.tokenizer());
  return patching_document(s, corrupted, metric, f.options);
}

std::function<Document(const ViewRequest&)> parse(Args& args) {
  Flags f{.corrupted = args.value("corrupted"), .ids = args.value("corrupted-ids")};
  f.metric = args.value("metric").value_or("");
  if (const std::optional<std::string> what = args.value("what")) {
    f.options.what.clear();
    for (std::size_t at = 0; at <= what->size();) {
      const std::size_t end = std::min(what->find(',', at), what->size());
      if (end > at) f.options.what.push_back(what->substr(at, end - at));
      at = end + 1;
    }
  }
  return [f](const ViewRequest& s) { return view(s, f); };
}

}  // namespace

extern const View kPatchingView;
const View kPatchingView = {
    "patching", kPatchingSummary,
    "  --corrupted TEXT     what is read again and again, with one activation of TEXT in its place each\n"
    "                       time; as many tokens as TEXT\n"
    "  --corrupted-ids IDS  the same as token ids\n"
    "  --metric METRIC      what should come back: difference=TOKEN,TOKEN (without it: of what the model\n"
    "                       would say after either text), logit=TOKEN, logprob=TOKEN; TOKEN and @POSITION\n"
    "                       as in attribution\n"
    "  --what A,B,…         some of resid_pre, attn_out, ffn_out (layer by position) and heads (layer by\n"
    "                       head) (all of them)\n",
    parse};

}  // namespace rapt::cli
