// SPDX-License-Identifier: Apache-2.0
// Texts of a grammar by chance: what a schema allows, to look at and to test with.
#pragma once
#include <cstdint>
#include <string>

#include "rapt/text/grammar/grammar.h"

namespace rapt {

// One text; it turns to its end about `length` bytes from the beginning. The same seed gives the same text.
// Empty where only special tokens lead on.
std::string sample_text(const Grammar& grammar, std::uint64_t seed, std::size_t length = 200);

}  // namespace rapt
