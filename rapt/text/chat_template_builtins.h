// SPDX-License-Identifier: Apache-2.0
// What chat templates find ready: filters, tests, methods, operators. A name that is not here is an error
// that says so.
#pragma once
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include "rapt/text/chat_template_parse.h"
#include "rapt/text/chat_template_value.h"

namespace rapt::chat {

struct Arguments {
  std::vector<Value> by_position;
  std::vector<std::pair<std::string, Value>> by_name;
};

// Arguments sorted to the names of a built-in's parameters. Too many, twice, or unknown: an error with the
// built-in's name.
class Taken {
 public:
  Taken(Meter& meter, std::string_view of, const Arguments& arguments,
        std::initializer_list<std::string_view> names, std::size_t least = 0);
  const Value* operator[](std::size_t i) const { return values_[i]; }
  bool flag(std::size_t i, bool fallback = false) const {
    return values_[i] ? values_[i]->truth() : fallback;
  }
  std::int64_t integer(std::size_t i, std::int64_t fallback) const;
  const Text& text(std::size_t i) const;  // fails unless a string is there

 private:
  Meter& meter_;
  std::string of_;
  std::vector<std::string_view> names_;
  std::vector<const Value*> values_;
};

struct Loop {
  std::size_t index0 = 0, length = 0;
  Value previous, next;
};

Value apply_filter(Meter& meter, const std::string& name, const Value& self, const Arguments& arguments);
bool apply_test(Meter& meter, const std::string& name, const Value& self, const Arguments& arguments);
Value call_method(Meter& meter, const Value& self, const std::string& name, const Arguments& arguments);

// self.name: methods first, then keys
Value attribute(Meter& meter, const Value& self, const std::string& name);
// self[key]: keys first, then attributes
Value item(Meter& meter, const Value& self, const Value& key);
// None: absent
Value slice(Meter& meter, const Value& self, const Value& from, const Value& to, const Value& step);
Value binary(Meter& meter, Op op, const Value& a, const Value& b);             // arithmetic and joining
Value format_percent(Meter& meter, const Text& pattern, const Value& values);  // "%s of %d" % (a, b)

// Shared by filters and methods.
Text change_case(Meter& meter, const Text& text, bool up);
Text capitalize(Meter& meter, const Text& text);
// A capital first and after such characters; `whole`: Ǆ and not ǅ, as Jinja's filter has it and str.title()
// has not.
Text title_case(Meter& meter, const Text& text, bool whole, bool (*starts_after)(std::uint32_t));
Text replace_text(Meter& meter, const Text& text, const Text& old, const Text& by, std::int64_t count);
Text strip_text(Meter& meter, const Text& text, const Text* characters, bool left, bool right);
Text join_texts(Meter& meter, const std::vector<Value>& items, const Text& between);
std::vector<Value> split_lines(Meter& meter, const Text& text);

}  // namespace rapt::chat
