// SPDX-License-Identifier: Apache-2.0
// SHA-256 and base64: what a content policy names an inline script by.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace rapt {

std::array<std::byte, 32> sha256(std::string_view text);
std::string base64(std::span<const std::byte> bytes);  // with padding, on one line

}  // namespace rapt
