// SPDX-License-Identifier: Apache-2.0
// References of schemas to each other.
#pragma once
#include <string>
#include <string_view>

namespace rapt {

// What a reference means where `base` holds (RFC 3986, 5.2); without a base it stays as it is.
std::string resolve_uri(std::string_view reference, std::string_view base);

}  // namespace rapt
