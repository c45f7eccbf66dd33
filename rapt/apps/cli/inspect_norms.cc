// SPDX-License-Identifier: Apache-2.0
// rapt inspect norms: how long the vectors are.
#include "rapt/apps/cli/inspect_view.h"
#include "rapt/inspect/documents.h"

namespace rapt::cli {
namespace {

std::function<Document(const ViewRequest&)> parse(Args&) { return norms_document; }

}  // namespace

extern const View kNormsView;
const View kNormsView = {"norms", kNormsSummary, "", parse};

}  // namespace rapt::cli
