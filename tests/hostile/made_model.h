// SPDX-License-Identifier: Apache-2.0
// Whole models of every family whose sizes agree with each other, because they are made from the family's
// own description: the bytes choose the family, the form, every hyper-parameter (odd ones too), types of
// tensors, and perhaps one thing that is wrong. The loader reads the file to the last weight or ends in
// rapt::Error.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace rapt::test {

// About what the choices for one model take; zeros follow.
inline constexpr std::size_t kMadeModelBytes = 400;

// Files of a folder are written into `folder`, over those that are there.
void open_made_model(std::span<const std::uint8_t> bytes, const std::string& folder);

}  // namespace rapt::test
