// SPDX-License-Identifier: Apache-2.0
// rapt inspect sinks: how much attention the first tokens collect, and whether length or direction does it.
#include "rapt/apps/cli/inspect_view.h"
#include "rapt/inspect/documents.h"

namespace rapt::cli {
namespace {

std::function<Document(const ViewRequest&)> parse(Args& args) {
  SinksOptions o;
  o.score.epsilon = args.real("epsilon").value_or(o.score.epsilon);
  if (o.score.epsilon < 0 || o.score.epsilon >= 1) fail_usage("--epsilon must be from 0 to below 1");
  o.score.keys = static_cast<int>(args.number("first", 1, 64).value_or(o.score.keys));
  o.length = args.number("length", 2, Dim{1} << 20).value_or(o.length);
  o.texts = args.number("texts", 1, 1000000).value_or(o.texts);
  o.note = [](const std::string& text) { note("note: " + text); };
  return [o](const ViewRequest& s) { return sinks_document(s, o); };
}

}  // namespace

extern const View kSinksView;
const View kSinksView = {
    "sinks", kSinksSummary,
    "  --epsilon X          mean weight above which a head has a sink (0.3); the mean is over all rows\n"
    "                       from token k on, and a row whose window does not reach back to it gives it 0\n"
    "  --length T           tokens of a text: a longer one is cut into texts of T (64)\n"
    "  --texts N            at most so many of them (100)\n"
    "  --first K            the first K tokens are asked about (4)\n",
    parse};

}  // namespace rapt::cli
