// SPDX-License-Identifier: Apache-2.0
// rapt inspect experts: which experts the tokens chose, and how evenly they are used.
#include "rapt/apps/cli/inspect_view.h"
#include "rapt/inspect/experts.h"

namespace rapt::cli {
namespace {

std::function<Document(const ViewRequest&)> parse(Args&) { return experts_document; }

}  // namespace

extern const View kExpertsView;
const View kExpertsView = {"experts", kExpertsSummary, "", parse};

}  // namespace rapt::cli
