// SPDX-License-Identifier: Apache-2.0
// Writing GGUF version 3 (grammar: gguf.cc). What is written is what gguf.cc would accept: the same rules
// are checked before the first byte.
#include <algorithm>
#include <limits>
#include <set>
#include <utility>

#include "rapt/base/checked.h"
#include "rapt/io/gguf.h"
#include "rapt/tensor/formats.h"

namespace rapt {

using Type = GgufValue::Type;

GgufValue GgufValue::u32(std::uint32_t x) { return {Type::u32, Type::u32, std::int64_t{x}}; }
GgufValue GgufValue::i32(std::int32_t x) { return {Type::i32, Type::u32, std::int64_t{x}}; }
GgufValue GgufValue::f32(float x) { return {Type::f32, Type::u32, double{x}}; }
GgufValue GgufValue::boolean(bool x) { return {Type::boolean, Type::u32, x}; }
GgufValue GgufValue::text(std::string x) { return {Type::string, Type::u32, std::move(x)}; }
GgufValue GgufValue::texts(Strings x) { return {Type::array, Type::string, std::move(x)}; }
GgufValue GgufValue::i32s(const std::vector<std::int32_t>& x) {
  return {Type::array, Type::i32, Integers(x.begin(), x.end())};
}
GgufValue GgufValue::f32s(const std::vector<float>& x) {
  return {Type::array, Type::f32, Numbers(x.begin(), x.end())};
}

namespace {

void put_string(FileWriter& out, std::string_view s) {
  out.put(std::uint64_t{s.size()});
  out.write(s);
}

template <class T>
void put_integer(FileWriter& out, std::int64_t n, const std::string& key) {
  if (!std::in_range<T>(n)) fail("gguf: key ", key, ": ", n, " does not fit its type");
  out.put(static_cast<T>(n));
}
void put_number(FileWriter& out, Type type, std::int64_t n, const std::string& key) {
  switch (type) {
    case Type::u8: return put_integer<std::uint8_t>(out, n, key);
    case Type::i8: return put_integer<std::int8_t>(out, n, key);
    case Type::u16: return put_integer<std::uint16_t>(out, n, key);
    case Type::i16: return put_integer<std::int16_t>(out, n, key);
    case Type::u32: return put_integer<std::uint32_t>(out, n, key);
    case Type::i32: return put_integer<std::int32_t>(out, n, key);
    case Type::u64: return put_integer<std::uint64_t>(out, n, key);
    case Type::i64: return put_integer<std::int64_t>(out, n, key);
    case Type::boolean:
      if (n != 0 && n != 1) fail("gguf: key ", key, ": ", n, " is neither true nor false");
      return out.put(static_cast<std::uint8_t>(n));
    default:
      fail("gguf: key ", key, ": an integer cannot be stored as type ", static_cast<std::uint32_t>(type));
  }
}
void put_number(FileWriter& out, Type type, double x, const std::string& key) {
  if (type == Type::f32) out.put(static_cast<float>(x));
  else if (type == Type::f64) out.put(x);
  else
    fail("gguf: key ", key, ": a number with a point cannot be stored as type ",
         static_cast<std::uint32_t>(type));
}

void put_value(FileWriter& out, const std::string& key, const GgufValue& v) {
  auto must = [&](bool right) {
    if (!right) fail("gguf: key ", key, ": its value is not of the type it names");
  };
  auto list = [&](const auto& values, auto put) {
    must(v.type == Type::array);
    out.put(v.element);
    out.put(std::uint64_t{values.size()});
    for (const auto& x : values) put(x);
  };
  out.put(v.type);
  if (const bool* b = std::get_if<bool>(&v.value))
    must(v.type == Type::boolean), out.put(static_cast<std::uint8_t>(*b));
  else if (const auto* n = std::get_if<std::int64_t>(&v.value))
    must(v.type != Type::boolean), put_number(out, v.type, *n, key);
  else if (const auto* x = std::get_if<double>(&v.value)) put_number(out, v.type, *x, key);
  else if (const auto* s = std::get_if<std::string>(&v.value))
    must(v.type == Type::string), put_string(out, *s);
  else if (const auto* i = std::get_if<GgufValue::Integers>(&v.value))
    list(*i, [&](std::int64_t e) { put_number(out, v.element, e, key); });
  else if (const auto* f = std::get_if<GgufValue::Numbers>(&v.value))
    list(*f, [&](double e) { put_number(out, v.element, e, key); });
  else {
    must(v.element == Type::string);
    list(std::get<GgufValue::Strings>(v.value), [&](const std::string& e) { put_string(out, e); });
  }
}

}  // namespace

void write_gguf(const std::string& path, std::span<const std::pair<std::string, GgufValue>> metadata,
                std::span<const GgufTensorPlan> tensors, bool force,
                const std::function<void(std::size_t done, std::size_t of)>& progress) {
  constexpr std::size_t kMostNameBytes = 1024, kMostDims = 4;
  std::uint64_t alignment = 32;
  std::set<std::string_view> keys, names;
  for (const auto& [key, value] : metadata) {
    if (key.empty() || !valid_utf8(key)) fail("gguf: ", quote_name(key), " is no name of a key");
    if (!keys.insert(key).second) fail("gguf: key ", quote_name(key), " stands twice");
    if (key == "general.alignment") {
      const auto* n = std::get_if<std::int64_t>(&value.value);
      if (value.type != Type::u32 || !n || *n < 1 || *n > 65536 || (*n & (*n - 1)) != 0)
        fail("gguf: general.alignment must be a power of two from 1 to 65536");
      alignment = static_cast<std::uint64_t>(*n);
    }
  }
  std::vector<std::uint64_t> offsets, sizes;
  std::uint64_t end = 0;
  for (const GgufTensorPlan& t : tensors) {
    const std::string tensor = "gguf: tensor " + quote_name(t.name);
    if (t.name.empty() || t.name.size() > kMostNameBytes || !valid_utf8(t.name))
      fail(tensor, ": the name must be UTF-8 of 1 to ", kMostNameBytes, " bytes");
    if (!names.insert(t.name).second) fail(tensor, " stands twice");
    if (t.shape.size() > kMostDims)
      fail(tensor, " has ", t.shape.size(), " dimensions; GGUF holds up to ", kMostDims);
    Dim elements = 1;
    for (const Dim d : t.shape) {
      if (d <= 0) fail(tensor, " has a size of ", d);
      elements = checked_mul(elements, d, tensor);
    }
    bytes_of(t.dtype, t.shape.empty() ? 1 : t.shape.back(), tensor + ", a row");
    sizes.push_back(bytes_of(t.dtype, elements, tensor));
    offsets.push_back(end);
    end = checked_add(end, checked_add(sizes.back(), alignment - 1, tensor) / alignment * alignment, tensor);
  }

  FileWriter out(path, force);
  out.write("GGUF");
  out.put(std::uint32_t{3});
  out.put(std::uint64_t{tensors.size()});
  out.put(std::uint64_t{metadata.size()});
  for (const auto& [key, value] : metadata) {
    put_string(out, key);
    put_value(out, quote_name(key), value);
  }
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const GgufTensorPlan& t = tensors[i];
    put_string(out, t.name);
    out.put(static_cast<std::uint32_t>(std::max<std::size_t>(t.shape.size(), 1)));
    if (t.shape.empty()) out.put(std::uint64_t{1});  // a scalar is a list of one
    for (auto d = t.shape.rbegin(); d != t.shape.rend(); ++d) out.put(static_cast<std::uint64_t>(*d));
    out.put(gguf_type_of(t.dtype));
    out.put(offsets[i]);
  }
  out.pad_to(alignment);
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const std::uint64_t start = out.position();
    tensors[i].write(out);
    if (out.position() - start != sizes[i])
      fail("gguf: tensor ", quote_name(tensors[i].name), ": ", out.position() - start,
           " bytes were given, it takes ", sizes[i]);
    out.pad_to(alignment);
    if (progress) progress(i + 1, tensors.size());
  }
  out.commit();
}

}  // namespace rapt
