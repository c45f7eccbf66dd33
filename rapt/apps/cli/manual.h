// SPDX-License-Identifier: Apache-2.0
// The man page and the completions of shells, made from the verbs: their help texts, and the flags they
// ask for.
#pragma once
#include <string>
#include <vector>

#include "rapt/apps/cli/verb.h"

namespace rapt::cli {

// Every flag that a verb takes, in the order it asks; of inspect: of all views.
std::vector<Args::Flag> flags_of(const Verb& verb);
std::string man_page();                                // rapt(1)

}  // namespace rapt::cli
