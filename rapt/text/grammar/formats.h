// SPDX-License-Identifier: Apache-2.0
// What `format` means in a schema: patterns of whole texts (regex.h).
#pragma once
#include <string>
#include <string_view>

namespace rapt {

// The pattern of a format; "" where it is not known. Dates are those of the calendar from the year 1 on,
// without leap seconds.
std::string format_pattern(std::string_view format);
std::string format_names();  // for messages

}  // namespace rapt
