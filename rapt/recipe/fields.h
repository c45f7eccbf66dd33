// SPDX-License-Identifier: Apache-2.0
// How a struct of the recipe lists its fields: each once, with its name, member, meaning and range. JSON in
// and out, range checks and docs/recipe.md are visitors over these lists. The lists stand beside their
// structs (parts/) and in recipe_fields.h.
//
// A visitor offers
//   about(title, meaning)                      the struct itself
//   field(name, &T::member, meaning[, range])  numbers, words, structs, optional structs, lists
//   choice(name, &T::kind, meaning, options…)  one of several, in the order of the enum; name "": the struct
//                                              is the choice
// where an option is word(name) | bare(name, &T::number) | body(name, &T::member) | group(name, fields of
// the same struct).
#pragma once
#include <array>
#include <cmath>
#include <limits>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "rapt/base/text.h"

namespace rapt {

template <class T>
struct Of {};  // picks the list of a struct

// ------------------------------------------------------------------------------------------------ ranges
struct Range {
  double low = -std::numeric_limits<double>::infinity(), high = std::numeric_limits<double>::infinity();
  bool above = false, below = false;  // the ends themselves are excluded
  bool nonzero = false;
};
constexpr double kMostSize = 2147483647;  // rows, positions and token ids are 32-bit in kernels
constexpr Range kAnyNumber{}, kNonzero{.nonzero = true};
constexpr Range kSize{0, kMostSize}, kCount{1, kMostSize};
constexpr Range kShare{0, 1, false, true};        // dropout
constexpr Range kPart{0, 1, true, false};         // rope.part
constexpr Range kPositive{0, std::numeric_limits<double>::infinity(), true};
constexpr Range kNotNegative{0, std::numeric_limits<double>::infinity()};
constexpr Range kEps{0, 1, true, false};
constexpr Range kLayers{1, 10000};

// ------------------------------------------------------------------------------------------ names of values
#define RAPT_NAMES(Enum, ...) \
  inline constexpr auto names_of(Enum) { return std::to_array<std::string_view>({__VA_ARGS__}); }

// -------------------------------------------------------------------------------------- options of a choice
struct Word {
  std::string_view name, meaning;
};
template <class T, class M>
struct Bare {  // written as the number itself
  std::string_view name;
  M T::* member;
  std::string_view meaning;
  Range range;
};
template <class T, class M>
struct Body {  // { "name": the member }
  std::string_view name;
  M T::* member;
  std::string_view meaning;
  Range range;
};
template <class F>
struct Group {  // { "name": { fields of the same struct } }; fields is called with a visitor
  std::string_view name, meaning;
  F fields;
};
constexpr Word word(std::string_view name, std::string_view meaning) { return {name, meaning}; }
template <class T, class M>
constexpr Bare<T, M> bare(std::string_view name, M T::* member, std::string_view meaning, Range range = {}) {
  return {name, member, meaning, range};
}
template <class T, class M>
constexpr Body<T, M> body(std::string_view name, M T::* member, std::string_view meaning, Range range = {}) {
  return {name, member, meaning, range};
}
template <class F>
constexpr Group<F> group(std::string_view name, std::string_view meaning, F fields) {
  return {name, meaning, fields};
}

// Structs whose JSON is a choice, not an object of fields.
template <class T>
inline constexpr bool kIsChoice = false;

// Words that stand for a whole struct.
template <class T>
std::vector<std::pair<std::string_view, T>> shorthands(Of<T>) {
  return {};
}

// -------------------------------------------------------------------------------------- what visitors share
template <class T>
concept Enum = std::is_enum_v<T>;
inline std::string under(const std::string& path, std::string_view name) {
  return path.empty() ? std::string(name) : path + "." + std::string(name);
}

// "silu": how a recipe says a value.
template <Enum E>
std::string name_text(E e) {
  return std::string(names_of(e)[static_cast<std::size_t>(e)]);
}
template <Enum E>
std::vector<std::string> names() {
  const auto all = names_of(E{});
  return {all.begin(), all.end()};
}

// "must be at least 1": how a number breaks its range, or "".
inline std::string breaks(const Range& r, double x) {
  if (!std::isfinite(x)) return "must be a finite number";
  if (r.nonzero && x == 0) return "must not be 0";
  if (x < r.low || (r.above && x == r.low))
    return concat("must be ", r.above ? "above " : "at least ", shortest(r.low));
  if (x > r.high || (r.below && x == r.high))
    return concat("must be ", r.below ? "below " : "at most ", shortest(r.high));
  return "";
}

}  // namespace rapt
