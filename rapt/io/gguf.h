// SPDX-License-Identifier: Apache-2.0
// GGUF, versions 1 to 3, little-endian, read and write. The grammar stands above the reader in gguf.cc.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "rapt/io/tensor_file.h"

namespace rapt {

// One metadata value. Integers of every width are held as int64 (uint64 beyond its range is refused), f32
// and f64 as double.
class GgufValue {
 public:
  enum class Type : std::uint32_t { u8, i8, u16, i16, u32, i32, f32, boolean, string, array, u64, i64, f64 };
  using Integers = std::vector<std::int64_t>;
  using Numbers = std::vector<double>;
  using Strings = std::vector<std::string>;  // bytes of a vocabulary: not always UTF-8

  // Copied by hand, a value first and then into its place: a std::variant of libstdc++ 12 whose own copy
  // throws jumps to nowhere.
  class Held : public std::variant<bool, std::int64_t, double, std::string, Integers, Numbers, Strings> {
   public:
    using variant::variant;
    using variant::operator=;
    Held() = default;
    Held(Held&&) = default;
    Held& operator=(Held&&) = default;
    Held(const Held& other) : Held() {
      std::visit([this](auto copy) { *this = std::move(copy); }, static_cast<const variant&>(other));
    }
    Held& operator=(const Held& other) { return *this = Held(other); }
  };

  Type type = Type::u32;          // of the value, or array
  Type element = Type::u32;       // of an array's elements
  Held value;                     // booleans in arrays are integers

  static GgufValue u32(std::uint32_t x), i32(std::int32_t x), f32(float x), boolean(bool x),
      text(std::string x);
  static GgufValue texts(Strings x), i32s(const std::vector<std::int32_t>& x),
      f32s(const std::vector<float>& x);
};

class GgufFile {
 public:
  // Also the first of NAME-00001-of-00003.gguf: all of them.
  static GgufFile open(const std::string& path);
  // Tests and fuzzing; bytes must outlive it.
  static GgufFile parse(std::span<const std::byte> bytes, std::string name);
  static GgufFile parse(Reader in);

  std::uint32_t version = 3;
  std::uint32_t alignment = 32;
  std::string name;  // for messages
  TensorTable tensors;

  const std::vector<std::pair<std::string, GgufValue>>& metadata() const { return values_; }
  const GgufValue* find(std::string_view key) const;
  // The value of a key, with a message that names it where it is absent or of another type. The _or forms
  // take a default.
  std::int64_t integer(std::string_view key, std::int64_t least, std::int64_t most) const;
  std::int64_t integer_or(std::string_view key, std::int64_t otherwise, std::int64_t least,
                          std::int64_t most) const;
  double number(std::string_view key) const;  // finite
  double number_or(std::string_view key, double otherwise) const;
  bool boolean_or(std::string_view key, bool otherwise) const;
  const std::string& text(std::string_view key) const;
  std::string text_or(std::string_view key, std::string_view otherwise) const;
  // nullptr where absent; another type is an error
  const GgufValue::Strings* texts(std::string_view key) const;
  const GgufValue::Numbers* numbers(std::string_view key) const;
  const GgufValue::Integers* integers(std::string_view key) const;

 private:
  std::vector<std::pair<std::string, GgufValue>> values_;
  std::map<std::string, std::size_t, std::less<>> by_key_;
};

// GGML's number of a type, and back; an unknown or unsupported one (Q8_K …) fails with its name and
// what to do.
std::uint32_t gguf_type_of(DType type);
DType dtype_of_gguf(std::uint32_t type, const Reader& at, std::string_view tensor);

// Writes version 3. Tensors are announced first (name, type, shape with the slowest axis first), then
// `bytes` is asked for each in order, so that a model larger than memory can be written.
struct GgufTensorPlan {
  std::string name;
  DType dtype;
  std::vector<Dim> shape;
  std::function<void(FileWriter&)> write;  // exactly the tensor's bytes; checked
};
void write_gguf(const std::string& path, std::span<const std::pair<std::string, GgufValue>> metadata,
                std::span<const GgufTensorPlan> tensors, bool force,
                const std::function<void(std::size_t done, std::size_t of)>& progress = {});

}  // namespace rapt
