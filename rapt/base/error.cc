// SPDX-License-Identifier: Apache-2.0
// Numbers in messages, by to_chars: no locale changes them, and a double has six digits at most.
#include "rapt/base/error.h"

#include <charconv>

namespace rapt {
namespace {

template <class T, class... Form>
void append_chars(std::string& out, T x, Form... form) {
  char text[32];  // 20 digits, or "-1.23457e+308"
  out.append(text, std::to_chars(text, text + sizeof text, x, form...).ptr);
}

}  // namespace

void append_number(std::string& out, std::int64_t x) { append_chars(out, x); }
void append_number(std::string& out, std::uint64_t x) { append_chars(out, x); }
void append_number(std::string& out, double x) { append_chars(out, x, std::chars_format::general, 6); }

}  // namespace rapt
