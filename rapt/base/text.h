// SPDX-License-Identifier: Apache-2.0
// Small helpers for what people read: the name they probably meant, and numbers they can take in.
#pragma once
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "rapt/base/error.h"

namespace rapt {

// Insertions, deletions, replacements and swaps of neighbours that turn a into b; upper and lower case are
// the same.
Dim edit_distance(std::string_view a, std::string_view b);
// The name closest to what was written; "" for an empty list.
std::string nearest(std::string_view name, std::span<const std::string> names);
// "did you mean 'x'?" where some name is close, else "known: a, b, c": the last words of an error message.
std::string name_hint(std::string_view name, std::span<const std::string> names);

std::string join(std::span<const std::string> words, std::string_view between = ", ");
std::string with_commas(Dim n);     // 1,234,567
std::string short_count(double n);  // 999, 1.23 K, 1.23 M, 8.03 B, 1.50 T
std::string byte_count(double n);   // 512 B, 64 KiB, 1.5 MiB: powers of 1,024, no needless decimals
std::string fixed(double x, int digits);  // 3.140: so many digits behind the point
// The fewest digits that read back as the same number: 0.1, 500000, 1e-6.
std::string shortest(double x);

std::string counted(Dim n, std::string_view noun);  // 1 token, 1,234 tokens
// To `width` columns of a terminal, with spaces to the right.
std::string padded(std::string_view text, Dim width);

}  // namespace rapt
