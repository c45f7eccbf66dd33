// SPDX-License-Identifier: Apache-2.0
// The page's files as they are served: without comments, and without white space that means nothing. Names
// and what they do stay; so do most ends of lines.
#pragma once
#include <string>
#include <string_view>

namespace rapt::server {

// A module of JavaScript. It knows strings, templates and regular expressions; one of the latter may not
// stand behind ')' or '}', where it would look like a division.
std::string lean_script(std::string_view text);
std::string lean_style(std::string_view text);  // CSS
std::string lean_lines(std::string_view text);  // without indentation, for JSON as we write it

}  // namespace rapt::server
