// SPDX-License-Identifier: Apache-2.0
// Flags of a beam search over lines: what `rapt translate` and `rapt eval --translate` share.
#pragma once
#include "rapt/apps/cli/verb.h"
#include "rapt/use/translate.h"

namespace rapt::cli {

// --beams --length-penalty --penalty-form --max-tokens --batch --prefix
TranslateOptions translate_args(Args& args);

}  // namespace rapt::cli
