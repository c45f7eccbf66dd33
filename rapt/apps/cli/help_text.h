// SPDX-License-Identifier: Apache-2.0
// Help is written once, in whatever width its source has, and laid out for the width there is:
//   text from the first column on       a paragraph, its lines joined and filled
//   Usage: …, and indented lines below  forms, folded under themselves
//     --flag VALUE   meaning            an entry; further lines that begin under the meaning belong to it
//   Examples: and what follows          commands, folded with a backslash so that they can be copied
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "rapt/base/error.h"

namespace rapt::cli {

std::vector<std::string> lines_of(std::string_view text);  // without their ends
std::string folded_help(std::string_view text, Dim width);
// Lines of at most `width` columns; line ends and indentation stay.
std::string folded_lines(std::string_view text, Dim width);

}  // namespace rapt::cli
