// SPDX-License-Identifier: Apache-2.0
// JSON as a value: objects keep their order, integers stay exact, every value knows its line and column. The
// parser trusts nothing: depth is limited, duplicate keys, lone surrogates, broken UTF-8 and trailing text
// are errors that say where.
//
//   value  = object | array | string | number | "true" | "false" | "null"
//   number = "-"? ("0" | [1-9][0-9]*) ("." [0-9]+)? ([eE] [+-]? [0-9]+)?
//            with neither dot nor exponent: an exact integer if it fits
//
// A value takes 16 bytes and what it holds one block of memory, so that a text from outside never takes more
// than kSpare and kTimes times its size: what it will take is counted before the first value is made.
#pragma once
#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "rapt/base/error.h"

namespace rapt {

class Json;

// Characters that a Json holds, for as long as it lives unmoved; becomes a std::string where one is wanted.
class JsonText : public std::string_view {
 public:
  constexpr JsonText() = default;
  constexpr JsonText(std::string_view s) : std::string_view(s) {}
  constexpr JsonText(const char* s) : std::string_view(s) {}
  JsonText(const std::string& s) : std::string_view(s) {}
  operator std::string() const { return std::string(data(), size()); }
  JsonText substr(std::size_t from, std::size_t count = npos) const {
    return std::string_view::substr(from, count);
  }
  friend std::string operator+(JsonText a, JsonText b) { return std::string(a).append(b); }
};

// A list in one block of memory: as small as a pointer, exactly as long as asked for.
template <class T>
class JsonList {
 public:
  JsonList() = default;
  JsonList(std::initializer_list<T> items);
  JsonList(const JsonList& other);
  JsonList(JsonList&& other) noexcept : block_(std::exchange(other.block_, nullptr)) {}
  JsonList& operator=(JsonList other) noexcept { return std::swap(block_, other.block_), *this; }
  ~JsonList();

  std::size_t size() const { return block_ ? block_->size : 0; }
  std::size_t capacity() const { return block_ ? block_->capacity : 0; }
  bool empty() const { return size() == 0; }
  T* begin() { return block_ ? block_->items() : nullptr; }
  T* end() { return begin() + size(); }
  const T* begin() const { return block_ ? block_->items() : nullptr; }
  const T* end() const { return begin() + size(); }
  T& operator[](std::size_t i) { return begin()[i]; }
  const T& operator[](std::size_t i) const { return begin()[i]; }
  T& back() { return end()[-1]; }
  const T& back() const { return end()[-1]; }
  void reserve(std::size_t n);
  void push_back(T value);
  template <class... Parts>
  T& emplace_back(Parts&&... parts) {
    push_back(T(std::forward<Parts>(parts)...));
    return back();
  }
  bool operator==(const JsonList& other) const;

 private:
  struct Block {
    std::uint32_t size, capacity;
    T* items() { return reinterpret_cast<T*>(this + 1); }
    const T* items() const { return reinterpret_cast<const T*>(this + 1); }
  };
  Block* block_ = nullptr;
};

template <class Value>  // a template only because it must wait for Json to be complete
struct JsonMember {
  // Held by the object; one made by hand only points at its characters until an object takes it.
  JsonText key;
  Value value;
  bool operator==(const JsonMember& other) const { return key == other.key && value == other.value; }
};

// Members in their order, and an index of the keys where there are many.
class JsonObject {
 public:
  using Member = JsonMember<Json>;
  JsonObject() = default;
  JsonObject(std::initializer_list<Member> members);
  JsonObject(const JsonObject& other);
  JsonObject(JsonObject&& other) noexcept : body_(std::exchange(other.body_, nullptr)) {}
  JsonObject& operator=(JsonObject other) noexcept { return std::swap(body_, other.body_), *this; }
  ~JsonObject();

  std::size_t size() const;
  bool empty() const { return size() == 0; }
  const Member* begin() const;
  const Member* end() const;
  const Member& operator[](std::size_t i) const;
  const Member& back() const;
  const Json* find(std::string_view key) const;  // the first of that name; nullptr where there is none
  void reserve(std::size_t members, std::size_t key_bytes = 0);
  // Asks nothing: a second one of a name can be made, and is not found.
  void push_back(const Member& member);
  void push_back(std::string_view key, Json value);
  Json& value(std::size_t i);
  bool operator==(const JsonObject& other) const;
  std::size_t memory() const;  // of its own blocks, without what its values hold

 private:
  struct Body;
  Body* body_ = nullptr;
};

class Json {
 public:
  using Member = JsonMember<Json>;
  using Array = JsonList<Json>;
  using Object = JsonObject;
  static constexpr int kDepth = 64;
  // Most memory of a parsed text: kSpare + kTimes · its bytes.
  static constexpr std::size_t kSpare = std::size_t{16} << 20, kTimes = 4;

  Json() : line(0), column(0), kind_(kNull), integer_(0) {}
  template <std::same_as<bool> B>  // a pointer is no boolean
  Json(B b) : line(0), column(0), kind_(kBoolean), boolean_(b) {}
  Json(int n) : Json(static_cast<std::int64_t>(n)) {}
  Json(std::int64_t n) : line(0), column(0), kind_(kInteger), integer_(n) {}
  Json(double x) : line(0), column(0), kind_(kReal), real_(x) {}
  Json(const char* s) : Json(std::string_view(s)) {}
  Json(const std::string& s) : Json(std::string_view(s)) {}
  Json(JsonText s) : Json(std::string_view(s)) {}
  Json(std::string_view s);
  Json(Array a) : line(0), column(0), kind_(kList), list_(std::move(a)) {}
  Json(Object o) : line(0), column(0), kind_(kObject), object_(std::move(o)) {}
  Json(const Json& other);
  Json(Json&& other) noexcept;
  Json& operator=(Json other) noexcept;
  ~Json() {
    if (kind_ >= kText) clear();
  }

  bool is_null() const { return kind_ == kNull; }
  bool is_bool() const { return kind_ == kBoolean; }
  bool is_number() const { return kind_ == kInteger || kind_ == kReal; }
  bool is_integer() const;  // also 1e3 and 2.0, up to 2^53
  bool is_real() const { return kind_ == kReal; }  // written with a dot or an exponent, or too large
  bool is_string() const { return kind_ == kShort || kind_ == kText; }
  bool is_array() const { return kind_ == kList; }
  bool is_object() const { return kind_ == kObject; }
  const char* type_name() const;  // "null", "a number", … for messages

  // The value as a type it is known to have (ask first; another type is a failure).
  bool boolean() const;
  double number() const;
  std::int64_t integer() const;
  JsonText string() const;
  const Array& array() const;
  const Object& object() const;

  const Json* find(std::string_view key) const;  // of an object; nullptr where absent or no object
  void set(std::string_view key, Json value);    // makes this an object; replaces the key where it stands

  // indent 0: one line; else what fits 100 columns stays on its line
  std::string dump(int indent = 2) const;
  bool operator==(const Json& other) const;  // places do not count
  std::size_t memory() const;                // bytes behind this value, as an allocator counts its blocks

  std::int64_t line : 30, column : 30;  // where it stood; 0: not from a text

 private:
  enum Kind { kNull, kBoolean, kInteger, kReal, kShort, kText, kList, kObject };
  struct Text {
    std::uint32_t size;
    const char* chars() const { return reinterpret_cast<const char*>(this + 1); }
  };
  // Characters that need no block; the eighth byte is their number.
  static constexpr std::size_t kShortest = 7;
  void clear() noexcept;
  void take(Json& other) noexcept;
  void write(std::string& out, int indent, int depth) const;

  std::int64_t kind_ : 4;
  union {
    bool boolean_;
    std::int64_t integer_;
    double real_;
    char short_[8];
    Text* text_;
    Array list_;
    Object object_;
  };
};
static_assert(sizeof(Json) == 16);

// `where` names the text in messages: "recipe.json:3:14: …".
Json parse_json(std::string_view text, std::string_view where = "json");
// The string in quotes, escaped.
std::string json_quote(std::string_view s);

}  // namespace rapt
