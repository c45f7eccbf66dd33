// SPDX-License-Identifier: Apache-2.0
// What make_unicode.py writes. Read through unicode.h.
#pragma once
#include <cstddef>
#include <cstdint>

namespace rapt::unicode {

extern const std::uint32_t kCategoryRuns[];       // first character << 5 | category
extern const std::size_t kCategoryRunsCount;
extern const std::int32_t kLowerRuns[];           // first, last, step, delta
extern const std::size_t kLowerRunsCount;
extern const std::uint32_t kCombiningRuns[];      // first character << 8 | canonical combining class
extern const std::size_t kCombiningRunsCount;
extern const std::uint32_t kNewerThan8[];         // first, last: punctuation, marks, format characters
extern const std::size_t kNewerThan8Count;
extern const std::uint32_t kNewerThan9[];         // first, last: marks and whatever has a decomposition
extern const std::size_t kNewerThan9Count;
// character << 8 | compatibility << 7 | length; parts follow each other in the pool
extern const std::uint32_t kDecompositions[];
extern const std::size_t kDecompositionsCount;
extern const std::uint32_t kDecompositionPool[];
extern const std::size_t kDecompositionPoolCount;
extern const std::uint32_t kCompositions[];       // first, second, composed; sorted
extern const std::size_t kCompositionsCount;

}  // namespace rapt::unicode
