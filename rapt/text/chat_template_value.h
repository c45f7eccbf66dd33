// SPDX-License-Identifier: Apache-2.0
// What a chat template computes with: Python's values without its objects. Strings know, for every byte,
// whether the template wrote it. Used by the interpreter only (chat_template.cc); the language is in
// chat_template_parse.h.
#pragma once
#include <algorithm>
#include <concepts>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "rapt/base/json.h"

namespace rapt::chat {

// The source of a template, for messages: "chat template:3:14: …".
struct Source {
  std::string text, where;
  template <class... Parts>
  [[noreturn]] void fail(std::size_t at, const Parts&... parts) const {
    rapt::fail(place(at), ": ", parts...);
  }
  std::string place(std::size_t at) const;
};

// A string and, in runs, who wrote it.
class Text {
 public:
  struct Run {
    std::size_t end;
    bool trusted;
  };
  Text() = default;
  Text(std::string bytes, bool trusted) : bytes_(std::move(bytes)) {
    if (!bytes_.empty()) runs_.push_back({bytes_.size(), trusted});
  }
  const std::string& bytes() const { return bytes_; }
  std::size_t size() const { return bytes_.size(); }
  const std::vector<Run>& runs() const { return runs_; }
  // Bytes of memory: the runs count where there are several.
  std::size_t cost() const { return bytes_.size() + (runs_.size() > 1 ? runs_.size() * sizeof(Run) : 0); }
  void append(std::string_view bytes, bool trusted);
  void append(const Text& text, std::size_t from = 0, std::size_t to = std::string::npos);
  bool trusted_at(std::size_t at) const;
  bool trusted() const;  // all of it
  void distrust();
  void shrink() {  // what appending reserved and did not use
    bytes_.shrink_to_fit();
    runs_.shrink_to_fit();
  }

 private:
  std::string bytes_;
  std::vector<Run> runs_;  // neighbours differ
};

// How much of the C++ stack has gone since this was made. Frames differ by compiler and sanitizer, so depth
// alone says little.
class StackGauge {
 public:
  // With what values and errors need below, a thread of 256 KiB is enough.
  static constexpr std::ptrdiff_t kMost = 160 << 10;
  bool spent() const {
    const std::ptrdiff_t used = start_ - static_cast<const char*>(__builtin_frame_address(0));
    return used > kMost || used < -kMost;
  }

 private:
  const char* start_ = static_cast<const char*>(__builtin_frame_address(0));
};

// What a rendering may still spend, and the place it has reached. Everything pays here: a step for what is
// small, and one for every 128 bytes that are made or copied, 32 that are read character by character. So
// fuel bounds time and memory alike, whatever is kept.
struct Meter {
  const Source& source;
  std::int64_t fuel;
  std::size_t most_bytes;  // of one string with its runs
  std::size_t at = 0;
  StackGauge stack{};
  void pay(std::size_t steps = 1) {
    if (fuel < static_cast<std::int64_t>(steps)) out_of_fuel();
    fuel -= static_cast<std::int64_t>(steps);
  }
  void pay_bytes(std::size_t bytes) { pay(bytes / 128); }
  void pay_characters(std::size_t bytes) { pay(bytes / 32); }
  // Of a list: 56 bytes each, and their owners count one more.
  void pay_items(std::size_t count) { pay(count / 2); }
  void pay_text(const Text& text) { pay_bytes(text.cost()); }
  void check_size(std::size_t bytes) const {
    if (bytes > most_bytes)
      fail("a text of more than ", most_bytes, " bytes; a template may not make longer ones");
  }
  void check_stack() const {
    if (stack.spent()) fail("nested too deeply for the stack");
  }
  template <class... Parts>
  [[noreturn]] void fail(const Parts&... parts) const {
    source.fail(at, parts...);
  }
  [[noreturn]] void out_of_fuel() const;
};

std::string shown_name(std::string_view name);  // for messages: no more than its first 60 bytes

class Value;
struct List;
struct Map;
struct Namespace;
struct Callable;
struct Loop;
using TextPtr = std::shared_ptr<const Text>;
using ListPtr = std::shared_ptr<const List>;
using MapPtr = std::shared_ptr<const Map>;

struct Undefined {
  // "'x' is undefined": the message of whoever needs it after all
  std::shared_ptr<const std::string> what;
};
struct None {};
struct Method {
  std::shared_ptr<const Value> self;
  std::string name;
};

// Lists and maps never change after they are made, so no value can hold itself; what may change (namespaces)
// or refer to a scope (macros, loops) belongs to the rendering and ends with it.
class Value {
 public:
  using Variant = std::variant<Undefined, None, bool, std::int64_t, double, TextPtr, ListPtr, MapPtr,
                               Namespace*, const Callable*, const Loop*, Method>;
  Value() = default;
  Value(None) : v(None{}) {}
  Value(std::same_as<bool> auto b) : v(b) {}  // and nothing that only converts to bool: pointers do
  Value(std::int64_t n) : v(n) {}
  Value(double x) : v(x) {}
  Value(Text t) : v(std::make_shared<const Text>(std::move(t))) {}
  Value(TextPtr t) : v(std::move(t)) {}
  Value(ListPtr l) : v(std::move(l)) {}
  Value(MapPtr m) : v(std::move(m)) {}
  Value(Namespace* n) : v(n) {}
  Value(const Callable* c) : v(c) {}
  Value(const Loop* l) : v(l) {}
  Value(Method m) : v(std::move(m)) {}
  static Value undefined(std::string what) {
    Value u;
    u.v = Undefined{std::make_shared<const std::string>(std::move(what))};
    return u;
  }

  bool is_undefined() const { return v.index() == 0; }
  bool is_none() const { return v.index() == 1; }
  bool is_bool() const { return v.index() == 2; }
  bool is_integer() const { return v.index() == 3; }
  bool is_real() const { return v.index() == 4; }
  bool is_number() const { return v.index() >= 2 && v.index() <= 4; }  // True is 1
  bool is_text() const { return v.index() == 5; }
  bool is_list() const { return v.index() == 6; }
  bool is_map() const { return v.index() == 7; }
  bool is_namespace() const { return v.index() == 8; }
  const Text& text() const { return *std::get<TextPtr>(v); }
  const List& list() const { return *std::get<ListPtr>(v); }
  const Map& map() const { return *std::get<MapPtr>(v); }
  double number() const;                              // of a number
  std::optional<std::int64_t> integer() const;        // of a bool or an integer
  bool truth() const;
  const char* type_name() const;                      // "a string", …
  int depth() const;                                  // of lists in lists

  Variant v;
};

struct List {
  std::vector<Value> items;
  bool tuple = false;
  int depth = 1;
  std::string printed;  // "range(0, 3)"; else "": by its items
};

// In order of first insertion; 1, 1.0 and True are one key, as in Python.
struct Map {
  std::vector<std::pair<Value, Value>> items;
  std::unordered_map<std::string, std::size_t> index;
  int depth = 1;
  const Value* find(const Value& key) const;
  const Value* find(std::string_view key) const;
};

struct Namespace {
  std::vector<std::pair<std::string, Value>> items;
  Value* find(std::string_view name);
};

// Lists in lists; more is refused, so that walking them needs little stack.
constexpr int kValueDepth = 64;

Value make_list(Meter& meter, std::vector<Value> items, bool tuple = false);
// Later values of a key replace earlier ones in their place.
Value make_map(Meter& meter, std::vector<std::pair<Value, Value>> items);
Value make_text(Meter& meter, Text text);
Value from_json(Meter& meter, const Json& json, bool trusted);

bool equal(Meter& meter, const Value& a, const Value& b);
// < 0, 0, > 0; fails where Python has no order
int compare(Meter& meter, const Value& a, const Value& b, std::string_view what);
bool contains(Meter& meter, const Value& in, const Value& what);
// Of a list, the keys of a map, the characters of a string; fails else.
std::vector<Value> iterate(Meter& meter, const Value& value);
std::size_t length(Meter& meter, const Value& value);

Text to_text(Meter& meter, const Value& value);                // Python's str()
struct JsonStyle {
  std::optional<std::string> indent;
  std::string between = ", ", after_key = ": ";
  bool ascii = false, sorted = false;
};
Text to_json(Meter& meter, const Value& value, const JsonStyle& style);
std::string real_text(double x);                               // Python's repr: 1.0, 0.1, 1e-05, inf

// Stable, and safe with an order that contradicts itself (nan): a hostile `less` costs time, never memory.
template <class T, class Less>
void merge_sort(std::vector<T>& items, Less less) {
  std::vector<T> other(items.size());
  for (std::size_t width = 1; width < items.size(); width *= 2) {
    for (std::size_t from = 0; from < items.size(); from += 2 * width) {
      const std::size_t middle = std::min(from + width, items.size()),
                        end = std::min(from + 2 * width, items.size());
      std::size_t a = from, b = middle;
      for (std::size_t to = from; to < end; ++to)
        other[to] =
            std::move(a < middle && (b >= end || !less(items[b], items[a])) ? items[a++] : items[b++]);
    }
    items.swap(other);
  }
}

// Strings as sequences of characters. Broken UTF-8: each bad byte is a character of its own.
struct Character {
  std::uint32_t code;
  std::size_t bytes;
};
Character character(std::string_view s, std::size_t at);
void put_character(std::string& out, std::uint32_t code);
std::size_t count_characters(std::string_view s);
bool is_space(std::uint32_t code);
// First place of `what` at or after `from`, npos where there is none. Linear also for hostile arguments.
std::size_t find_bytes(std::string_view s, std::string_view what, std::size_t from);

}  // namespace rapt::chat
