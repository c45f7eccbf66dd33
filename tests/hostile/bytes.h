// SPDX-License-Identifier: Apache-2.0
// Builds GGUF and safetensors files byte by byte, right or wrong in any place: what a careful writer would
// never write.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace rapt::test {

inline std::span<const std::byte> as_span(const std::string& s) {
  return std::as_bytes(std::span(s.data(), s.size()));
}

template <class T>
std::string raw(T x) {  // little-endian
  static_assert(std::is_arithmetic_v<T>);
  return std::string(reinterpret_cast<const char*>(&x), sizeof(T));
}
inline std::string u32(std::uint64_t x) { return raw(static_cast<std::uint32_t>(x)); }
inline std::string u64(std::uint64_t x) { return raw(x); }
inline std::string gguf_text(std::string_view s) { return u64(s.size()) + std::string(s); }

// GGUF's numbers
enum : std::uint32_t { kU8, kI8, kU16, kI16, kU32, kI32, kF32, kBool, kText, kArray, kU64, kI64, kF64 };

inline std::string key(std::string_view name, std::uint32_t type, std::string_view value) {
  return gguf_text(name) + u32(type) + std::string(value);
}
inline std::string key_u32(std::string_view name, std::uint32_t x) { return key(name, kU32, u32(x)); }
inline std::string array(std::uint32_t element, std::uint64_t n, std::string_view values) {
  return u32(element) + u64(n) + std::string(values);
}

inline std::string tensor(std::string_view name, const std::vector<std::uint64_t>& sizes, std::uint32_t type,
                          std::uint64_t offset) {
  std::string s = gguf_text(name) + u32(sizes.size());
  for (const std::uint64_t n : sizes) s += u64(n);
  return s + u32(type) + u64(offset);
}

struct GgufBytes {
  std::string magic = "GGUF";
  std::uint32_t version = 3;
  std::vector<std::string> keys = {key("general.architecture", kText, gguf_text("test"))};
  std::vector<std::string> tensors = {};
  std::size_t data = 0;                            // bytes after the padding
  std::optional<std::uint64_t> tensor_count{}, key_count{};  // what the file says where it lies
  std::size_t alignment = 32;
  bool padded = true;

  std::string make() const {
    std::string s = magic + u32(version) + u64(tensor_count.value_or(tensors.size())) +
                    u64(key_count.value_or(keys.size()));
    for (const auto& k : keys) s += k;
    for (const auto& t : tensors) s += t;
    if (padded && (data > 0 || !tensors.empty()))
      s.resize((s.size() + alignment - 1) / alignment * alignment, '\0');
    return s.append(data, '\x01');
  }
};

// One of everything: every type of value, three tensors.
inline GgufBytes good_gguf() {
  GgufBytes g;
  g.keys = {key("general.architecture", kText, gguf_text("test")),
            key("u8", kU8, raw(std::uint8_t{200})),
            key("i8", kI8, raw(std::int8_t{-3})),
            key("u16", kU16, raw(std::uint16_t{60000})),
            key("i16", kI16, raw(std::int16_t{-300})),
            key("u32", kU32, u32(4000000000)),
            key("i32", kI32, raw(std::int32_t{-70000})),
            key("f32", kF32, raw(1.5f)),
            key("bool", kBool, raw(std::uint8_t{1})),
            key("u64", kU64, u64(1ull << 40)),
            key("i64", kI64, raw(std::int64_t{-5})),
            key("f64", kF64, raw(0.1)),
            key("texts", kArray, array(kText, 3, gguf_text("a") + gguf_text("") + gguf_text("\xff"))),
            key("i32s", kArray, array(kI32, 2, raw(std::int32_t{-1}) + raw(std::int32_t{7}))),
            key("f32s", kArray, array(kF32, 2, raw(0.5f) + raw(-2.0f))),
            key("bools", kArray, array(kBool, 2, std::string("\x00\x01", 2))),
            key("none", kArray, array(kText, 0, ""))};
  // f32, q4_0, i8
  g.tensors = {tensor("one", {3, 2}, 0, 0), tensor("two", {32, 1, 2}, 2, 32), tensor("three", {5}, 24, 96)};
  g.data = 96 + 5;
  return g;
}

inline std::string safetensors(std::string_view header, std::size_t data = 0,
                               std::optional<std::uint64_t> length = {}) {
  return u64(length.value_or(header.size())) + std::string(header) + std::string(data, '\x01');
}
inline std::string entry(std::string_view name, std::string_view dtype, std::string_view shape,
                         std::string_view offsets) {
  return "\"" + std::string(name) + "\":{\"dtype\":\"" + std::string(dtype) +
         "\",\"shape\":" + std::string(shape) + ",\"data_offsets\":" + std::string(offsets) + "}";
}
inline std::string good_safetensors() {
  return safetensors("{\"__metadata__\":{\"format\":\"pt\",\"a\\n\":\"\\u00e9\"}," +
                         entry("one", "F32", "[2,3]", "[0,24]") + "," +
                         entry("three", "I64", "[]", "[28,36]") + ", " +
                         entry("t\\u0077o", "BF16", "[ 2 ]", "[24,28]") + "}   ",
                     36);
}

}  // namespace rapt::test
