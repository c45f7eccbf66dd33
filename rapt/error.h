// SPDX-License-Identifier: Apache-2.0
// The one error type: files, recipes, shapes, options. Everybody throws it, so it includes nothing but the
// standard library.
#pragma once
#include <stdexcept>
#include <string>

#include "rapt/export.h"

namespace rapt {

// A message says what is wrong, where, why, and what to do about it. usage: what the caller asked for cannot
// be meant (a program ends with 2); name: likewise, for there is nothing of the name that was given; failure:
// a file, the memory or a number was not as it should be (1); missing: likewise, for there is no such file or
// model.
class RAPT_API Error : public std::runtime_error {
 public:
  enum class Kind { failure, usage, missing, name };
  explicit Error(const std::string& message, Kind kind = Kind::failure)
      : std::runtime_error(message), kind_(kind) {}
  Kind kind() const { return kind_; }
  bool is_usage() const { return kind_ == Kind::usage || kind_ == Kind::name; }

 private:
  Kind kind_;
};

}  // namespace rapt
