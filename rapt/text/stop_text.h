// SPDX-License-Identifier: Apache-2.0
// A text that ends at the first of some strings and never shows a part of one: push() hands out what surely
// comes before any of them.
#pragma once
#include <span>
#include <string>
#include <string_view>

namespace rapt {

class StopText {
 public:
  explicit StopText(std::span<const std::string> stops) : stops_(stops) {}  // must outlive it
  std::string push(std::string_view text);
  std::string finish();  // what was held back
  bool found() const { return found_; }
  int which() const { return which_; }  // of them it was; -1 before

 private:
  std::span<const std::string> stops_;
  std::string held_;
  bool found_ = false;
  int which_ = -1;
};

}  // namespace rapt
