// SPDX-License-Identifier: Apache-2.0
// rapt inspect state: what layers with a state remember and forget.
#include "rapt/apps/cli/inspect_view.h"
#include "rapt/inspect/states.h"

namespace rapt::cli {
namespace {

std::function<Document(const ViewRequest&)> parse(Args&) { return states_document; }

}  // namespace

extern const View kStateView;
const View kStateView = {"state", kStatesSummary, "", parse};

}  // namespace rapt::cli
