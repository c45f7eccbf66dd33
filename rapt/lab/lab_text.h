// SPDX-License-Identifier: Apache-2.0
// The text that experiments learn where they are given none: prose of this project's own documentation as it
// stood in November 2026 (rapt/lab/text/own.txt), inside the program. It does not change with the
// documentation, so that numbers can be compared.
#pragma once
#include <span>
#include <string_view>

namespace rapt {

struct LabText {
  std::string_view name, text;
};
std::span<const LabText> lab_texts();

}  // namespace rapt
