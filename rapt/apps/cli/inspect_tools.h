// SPDX-License-Identifier: Apache-2.0
// What several views of `rapt inspect` share.
#pragma once
#include <optional>

#include "rapt/apps/cli/inspect_view.h"
#include "rapt/inspect/look.h"
#include "rapt/report/facts.h"

namespace rapt::cli {

std::optional<Stack> stack_arg(Args& args);  // --stack encoder | decoder

}  // namespace rapt::cli
