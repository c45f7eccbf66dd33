// SPDX-License-Identifier: Apache-2.0
// Reading GGUF; writing stands in gguf_write.cc. Little-endian, nothing aligned but the tensors:
//
//   file    = "GGUF", u32 version (1, 2, 3), count tensors, count keys, key*, tensor*, padding, data
//   count   = u32 in version 1, u64 after it; also of lengths and sizes below
//   string  = count length, bytes
//   key     = string name, u32 type, value              names are unique
//   value   = the number, one byte 0 or 1 for a boolean, string, or u32 element type, count n, n values (no
//             arrays of arrays)
//   tensor  = string name, u32 dims (1 … 4), count size* (fastest axis first), u32 type, u64 offset
//             into data
//   data    = tensors at multiples of the key general.alignment (32), without gaps beyond padding and
//             without overlap, to the end of file
//
// A model in several files: NAME-00001-of-0000N.gguf … with the keys split.no (from 0), split.count,
// split.tensors.count.
#include "rapt/io/gguf.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "rapt/base/checked.h"
#include "rapt/tensor/formats.h"

namespace rapt {
namespace {

// What no released model comes near. Reader::spend bounds the memory.
constexpr std::uint64_t kMostHeader = std::uint64_t{64} << 20, kMostKeys = 65536,
                        kMostTensors = std::uint64_t{1} << 20, kMostKeyBytes = 65536, kMostNameBytes = 1024,
                        kMostAlignment = 65536, kMostFiles = 99999;
constexpr std::uint32_t kMostDims = 4;

// Of a key: itself and its node in the map; of a tensor: its place, its view, its sizes and its node; names
// longer than 15 apart.
constexpr std::uint64_t kKeyMemory = sizeof(std::pair<std::string, GgufValue>) + 96,
                        kTensorMemory = 80 + sizeof(TensorView) + 48 + 96 + 8;

using Type = GgufValue::Type;

const char* name_of_type(Type t) {
  static constexpr const char* kNames[] = {"u8",      "i8",     "u16",   "i16", "u32", "i32", "f32",
                                           "boolean", "string", "array", "u64", "i64", "f64"};
  return kNames[static_cast<std::size_t>(t)];
}

class Parser {
 public:
  explicit Parser(Reader in) : in_(std::move(in)), size_(in_.left()) {}

  void begin(GgufFile& file) {
    constexpr std::string_view kMagic = "GGUF";
    if (in_.left() < 4) in_.refuse("no GGUF file: it has ", in_.left(), " bytes (is the download complete?)");
    const Reader start = in_;
    const auto magic = in_.take(in_.left() < 64 ? in_.left() : 64, "the start");
    if (!std::equal(kMagic.begin(), kMagic.end(), reinterpret_cast<const char*>(magic.data()))) {
      const std::string what = foreign_format(magic);
      start.refuse("no GGUF file, it begins with ",
                   quote_name({reinterpret_cast<const char*>(magic.data()), 4}),
                   what.empty() ? "" : ": this is ", what);
    }
    in_ = start;
    in_.take(4, "the magic");
    version_ = in_.get<std::uint32_t>("the version");
    if (version_ != 0 && (version_ & 0xFFFF) == 0)
      in_.refuse(
          "a big-endian GGUF file; this program reads little-endian ones: convert the model again "
          "without the big-endian option");
    if (version_ < 1 || version_ > 3)
      in_.refuse("GGUF version ", version_, " is not known; versions 1, 2 and 3 are read");
    file.version = version_;
    tensors_ = count("the number of tensors");
    keys_ = count("the number of keys");
    if (tensors_ > kMostTensors)
      in_.refuse(tensors_, " tensors are announced, more than ", kMostTensors, " are not read");
    if (keys_ > kMostKeys) in_.refuse(keys_, " keys are announced, more than ", kMostKeys, " are not read");
    in_.expect_items(keys_, smallest_key(), "keys");
    in_.expect_items(tensors_, smallest_tensor(), "tensors");
    in_.spend(keys_ * kKeyMemory, keys_ * smallest_key());
    in_.spend(tensors_ * kTensorMemory, keys_ * smallest_key() + tensors_ * smallest_tensor());
  }

  std::uint64_t keys() const { return keys_; }

  std::pair<std::string, GgufValue> key() {
    const std::uint64_t length = count("the length of a key");
    if (length == 0) in_.refuse("a key without a name");
    if (length > kMostKeyBytes)
      in_.refuse("a key of ", length, " bytes; more than ", kMostKeyBytes, " are not read");
    std::string name(in_.text(length, "a key"));
    in_.spend(2 * (string_memory(length) - sizeof(std::string)));
    what_ = "the value of key " + quote_name(name);
    GgufValue v;
    v.type = type();
    if (v.type == Type::array) read_array(v);
    else read_one(v);
    bound();
    return {std::move(name), std::move(v)};
  }

  void read_tensors(GgufFile& file) {
    struct Place {
      std::uint64_t offset, bytes;
      std::string name;
      DType dtype;
      std::vector<Dim> shape;
    };
    std::vector<Place> places;
    places.reserve(tensors_);
    for (std::uint64_t i = 0; i < tensors_; ++i) {
      Place p;
      const std::uint64_t length = count("the length of a tensor's name");
      if (length == 0) in_.refuse("tensor ", i, " has no name");
      if (length > kMostNameBytes)
        in_.refuse("a tensor's name of ", length, " bytes; more than ", kMostNameBytes, " are not read");
      p.name = in_.text(length, "a tensor's name");
      in_.spend(2 * (string_memory(length) - sizeof(std::string)));
      const std::string tensor = "tensor " + quote_name(p.name);
      const auto dims = in_.get<std::uint32_t>(tensor);
      if (dims < 1 || dims > kMostDims)
        in_.refuse(tensor, " has ", dims, " dimensions; 1 to ", kMostDims, " are read");
      const std::string where = in_.name() + ": " + tensor;
      Dim elements = 1;
      for (std::uint32_t k = 0; k < dims; ++k) {
        const std::uint64_t n = count(tensor);
        if (n == 0 || n > std::uint64_t{INT64_MAX})
          in_.refuse(tensor, " has a size of ", n, " in dimension ", k);
        elements = checked_mul(elements, static_cast<Dim>(n), where);
        p.shape.insert(p.shape.begin(), static_cast<Dim>(n));
      }
      p.dtype = dtype_of_gguf(in_.get<std::uint32_t>(tensor), in_, p.name);
      const auto block = static_cast<Dim>(info_of(p.dtype).block);
      if (p.shape.back() % block != 0)
        in_.refuse(tensor, ": rows of ", p.shape.back(), " elements are no whole blocks of ",
                   name_of(p.dtype), ", which hold ", block, " each");
      p.bytes = bytes_of(p.dtype, elements, where);
      p.offset = in_.get<std::uint64_t>(tensor);
      if (p.offset % file.alignment != 0)
        in_.refuse(tensor, " begins at ", p.offset, " of the data, which is no multiple of the alignment ",
                   file.alignment);
      bound();
      places.push_back(std::move(p));
    }
    if (tensors_ == 0) {  // a vocabulary alone: padding may follow or not
      if (in_.left() >= file.alignment)
        in_.refuse(in_.left(), " bytes follow though the file has no tensors");
      return;
    }
    // The data begins at the next multiple, whether or not padding is there to reach it.
    const std::uint64_t padding = (file.alignment - in_.position() % file.alignment) % file.alignment;
    in_.take(padding, "the padding before the tensors");
    const std::uint64_t start = in_.position();
    const auto data = in_.skip(in_.left(), "the tensors");
    std::vector<std::size_t> order(places.size());
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
    std::sort(order.begin(), order.end(),
              [&](std::size_t a, std::size_t b) { return places[a].offset < places[b].offset; });
    std::uint64_t end = 0;  // of the tensor before, without padding
    for (const std::size_t i : order) {
      const Place& p = places[i];
      const std::string tensor = "tensor " + quote_name(p.name);
      if (p.offset < end)
        fail(in_.name(), ": byte ", start + p.offset, ": ", tensor,
             " overlaps the tensor before it, which ends at byte ", start + end);
      if (p.offset - end >= file.alignment)
        fail(in_.name(), ": byte ", start + end, ": a gap of ", p.offset - end, " bytes before ", tensor,
             "; every byte must belong to a tensor");
      end = checked_add(p.offset, p.bytes, in_.name() + ": " + tensor);
      if (end > data.size())
        fail(in_.name(), ": ", tensor, " ends at byte ", checked_add(start, end, in_.name()),
             ", the file has ", size_, " (is the download complete?)");
    }
    if (data.size() - end >= file.alignment)
      fail(in_.name(), ": byte ", start + end, ": ", data.size() - end,
           " bytes follow after the last tensor that belong to none");
    for (Place& p : places)
      file.tensors.add(in_, std::move(p.name), p.dtype, std::move(p.shape), data.subspan(p.offset, p.bytes));
  }

  template <class... Parts>
  [[noreturn]] void refuse(const Parts&... parts) const {
    in_.refuse(parts...);
  }

 private:
  std::uint64_t width() const { return version_ == 1 ? 4 : 8; }
  std::uint64_t smallest_key() const { return width() + 1 + 4 + 1; }
  std::uint64_t smallest_tensor() const { return width() + 1 + 4 + width() + 4 + 8; }
  std::uint64_t count(std::string_view what) {
    return version_ == 1 ? in_.get<std::uint32_t>(what) : in_.get<std::uint64_t>(what);
  }
  void bound() const {
    if (in_.position() > kMostHeader) in_.refuse("the header is larger than ", kMostHeader, " bytes");
  }

  Type type() {
    const auto t = in_.get<std::uint32_t>(what_);
    if (t > static_cast<std::uint32_t>(Type::f64)) in_.refuse(what_, " has type ", t, ", which is not known");
    return static_cast<Type>(t);
  }

  std::string string() {
    const std::uint64_t length = count(what_);
    if (length > kMostHeader)
      in_.refuse(what_, " is a string of ", length, " bytes; more than ", kMostHeader, " are not read");
    const auto bytes = in_.take(length, what_);
    return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  }

  std::int64_t integer(Type t) {
    switch (t) {
      case Type::u8: return in_.get<std::uint8_t>(what_);
      case Type::i8: return in_.get<std::int8_t>(what_);
      case Type::u16: return in_.get<std::uint16_t>(what_);
      case Type::i16: return in_.get<std::int16_t>(what_);
      case Type::u32: return in_.get<std::uint32_t>(what_);
      case Type::i32: return in_.get<std::int32_t>(what_);
      case Type::boolean: return in_.get<bool>(what_);
      case Type::i64: return in_.get<std::int64_t>(what_);
      default: break;
    }
    const auto n = in_.get<std::uint64_t>(what_);
    if (n > std::uint64_t{INT64_MAX}) in_.refuse(what_, " is ", n, ", beyond 2^63");
    return static_cast<std::int64_t>(n);
  }

  void read_one(GgufValue& v) {
    switch (v.type) {
      case Type::f32: v.value = double{in_.get<float>(what_)}; break;
      case Type::f64: v.value = in_.get<double>(what_); break;
      case Type::boolean: v.value = in_.get<bool>(what_); break;
      case Type::string: {
        std::string text = string();
        in_.spend(string_memory(text.size()) - sizeof(std::string));
        v.value = std::move(text);
        break;
      }
      default: v.value = integer(v.type);
    }
  }

  void read_array(GgufValue& v) {
    v.element = type();
    if (v.element == Type::array)
      in_.refuse(what_, " is an array of arrays, which no known model has; it is not read");
    const std::uint64_t n = count(what_);
    static constexpr std::uint64_t kSizes[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
    const std::uint64_t smallest =
        v.element == Type::string ? width() : kSizes[static_cast<std::size_t>(v.element)];
    in_.expect_items(n, smallest, "values of " + what_);
    if (n > kMostHeader / smallest)
      in_.refuse(what_, " is an array of ", n, " values; headers larger than ", kMostHeader,
                 " bytes are not read");
    const bool strings = v.element == Type::string;
    in_.spend(n * (strings ? sizeof(std::string) : sizeof(double)), n * smallest);
    auto fill = [&](auto list, auto next) {
      list.reserve(n);
      for (std::uint64_t i = 0; i < n; ++i) list.push_back(next());
      v.value = std::move(list);
    };
    auto one_string = [&] {
      std::string text = string();
      in_.spend(string_memory(text.size()) - sizeof(std::string));
      return text;
    };
    if (strings) fill(GgufValue::Strings{}, one_string);
    else if (v.element == Type::f32)
      fill(GgufValue::Numbers{}, [&] { return double{in_.get<float>(what_)}; });
    else if (v.element == Type::f64) fill(GgufValue::Numbers{}, [&] { return in_.get<double>(what_); });
    else fill(GgufValue::Integers{}, [&] { return integer(v.element); });
  }

  Reader in_;
  std::uint64_t size_;
  std::uint32_t version_ = 3;
  std::uint64_t tensors_ = 0, keys_ = 0;
  std::string what_;  // for messages
};

// NAME-00001-of-00003.gguf
struct SplitName {
  std::string stem;
  std::uint64_t number = 0, of = 0;
};
std::optional<SplitName> split_name(const std::string& path) {
  constexpr std::string_view kEnd = ".gguf";
  constexpr std::size_t kTail = 1 + 5 + 4 + 5;  // -00001-of-00003
  if (!path.ends_with(kEnd) || path.size() < kTail + kEnd.size()) return std::nullopt;
  const std::string_view tail = std::string_view(path).substr(path.size() - kEnd.size() - kTail, kTail);
  auto number = [](std::string_view digits) {
    std::uint64_t n = 0;
    for (const char c : digits)
      n = c >= '0' && c <= '9' && n <= kMostFiles ? 10 * n + static_cast<std::uint64_t>(c - '0')
                                                  : kMostFiles + 1;
    return n;
  };
  if (tail[0] != '-' || tail.substr(6, 4) != "-of-") return std::nullopt;
  SplitName s{path.substr(0, path.size() - kEnd.size() - kTail), number(tail.substr(1, 5)),
              number(tail.substr(10, 5))};
  if (s.number > kMostFiles || s.of > kMostFiles) return std::nullopt;
  return s;
}
std::string five(std::uint64_t n) {
  const std::string s = std::to_string(n);
  return std::string(s.size() < 5 ? 5 - s.size() : 0, '0') + s;
}
std::string split_path(const SplitName& s, std::uint64_t number) {
  return s.stem + "-" + five(number) + "-of-" + five(s.of) + ".gguf";
}

GgufFile open_one(const std::string& path) {
  const MappedFile map(path);
  GgufFile file = GgufFile::parse(Reader(map));
  map.check_unchanged();
  file.tensors.hold(map);
  return file;
}

constexpr const char* kSplitNumber = "split.no";
constexpr const char* kSplitCount = "split.count";
constexpr const char* kSplitTensors = "split.tensors.count";

}  // namespace

GgufFile GgufFile::parse(std::span<const std::byte> bytes, std::string name) {
  return parse(Reader(bytes, std::move(name)));
}

GgufFile GgufFile::parse(Reader reader) {
  GgufFile file;
  file.name = reader.name();
  Parser in(std::move(reader));
  in.begin(file);
  file.values_.reserve(in.keys());
  for (std::uint64_t i = 0; i < in.keys(); ++i) {
    auto key = in.key();
    if (!file.by_key_.emplace(key.first, file.values_.size()).second)
      in.refuse("key ", quote_name(key.first), " stands twice");
    file.values_.push_back(std::move(key));
  }
  if (const GgufValue* v = file.find("general.alignment")) {
    const std::int64_t* n = std::get_if<std::int64_t>(&v->value);
    if (v->type != Type::u32)
      in.refuse("general.alignment is of type ", name_of_type(v->type), ", it must be u32");
    if (!n || *n < 1 || *n > static_cast<std::int64_t>(kMostAlignment) || (*n & (*n - 1)) != 0)
      in.refuse("general.alignment is ", n ? *n : 0, "; it must be a power of two from 1 to ",
                kMostAlignment);
    file.alignment = static_cast<std::uint32_t>(*n);
  }
  in.read_tensors(file);
  return file;
}

GgufFile GgufFile::open(const std::string& path) {
  GgufFile first = open_one(path);
  const auto files =
      static_cast<std::uint64_t>(first.integer_or(kSplitCount, 0, 0, static_cast<std::int64_t>(kMostFiles)));
  if (files <= 1) return first;
  const auto s = split_name(path);
  if (!s)
    fail(path, ": is one of ", files, " files of a model (", kSplitCount,
         "), but its name does not end in -00001-of-", five(files), ".gguf; rename it");
  if (s->of != files) fail(path, ": the name says ", s->of, " files, the key ", kSplitCount, " says ", files);
  if (s->number != 1)
    fail(path, ": is file ", s->number, " of ", files, " of a model; open the first: ", split_path(*s, 1));
  for (std::uint64_t i = 1; i <= files; ++i) {
    GgufFile other;
    GgufFile* file = &first;
    if (i > 1) {
      other = open_one(split_path(*s, i));
      file = &other;
    }
    const std::int64_t no = file->integer(kSplitNumber, 0, static_cast<std::int64_t>(kMostFiles)),
                       of = file->integer(kSplitCount, 0, static_cast<std::int64_t>(kMostFiles));
    if (no + 1 != static_cast<std::int64_t>(i) || of != static_cast<std::int64_t>(files))
      fail(file->name, ": calls itself file ", no + 1, " of ", of, " (", kSplitNumber, ", ", kSplitCount,
           "), its name file ", i, " of ", files);
    if (i > 1) first.tensors.merge(std::move(other.tensors), file->name);
  }
  const auto have = static_cast<std::int64_t>(first.tensors.all().size());
  const std::int64_t want = first.integer_or(kSplitTensors, have, 0, static_cast<std::int64_t>(kMostTensors));
  if (want != have)
    fail(path, ": ", want, " tensors are announced (", kSplitTensors, "), the ", files, " files hold ", have,
         " (is one of another model?)");
  return first;
}

const GgufValue* GgufFile::find(std::string_view key) const {
  const auto it = by_key_.find(key);
  return it == by_key_.end() ? nullptr : &values_[it->second].second;
}

namespace {

std::string type_text(const GgufValue& v) {
  return v.type == Type::array ? concat("an array of ", name_of_type(v.element))
                               : std::string(name_of_type(v.type));
}
template <class T>
const T& want(const GgufFile& file, std::string_view key, const GgufValue& v, const char* what) {
  if (const T* x = std::get_if<T>(&v.value)) return *x;
  fail(file.name, ": key ", quote_name(key), " is ", type_text(v), ", it must be ", what);
}
const GgufValue& there(const GgufFile& file, std::string_view key) {
  if (const GgufValue* v = file.find(key)) return *v;
  fail(file.name, ": key ", quote_name(key), " is missing");
}

}  // namespace

std::int64_t GgufFile::integer(std::string_view key, std::int64_t least, std::int64_t most) const {
  const std::int64_t n = want<std::int64_t>(*this, key, there(*this, key), "an integer");
  if (n < least || n > most)
    fail(name, ": key ", quote_name(key), " is ", n, ", it must be from ", least, " to ", most);
  return n;
}
std::int64_t GgufFile::integer_or(std::string_view key, std::int64_t otherwise, std::int64_t least,
                                  std::int64_t most) const {
  return find(key) ? integer(key, least, most) : otherwise;
}
double GgufFile::number(std::string_view key) const {
  const GgufValue& v = there(*this, key);
  if (const auto* n = std::get_if<std::int64_t>(&v.value)) return static_cast<double>(*n);
  const double x = want<double>(*this, key, v, "a number");
  if (!std::isfinite(x)) fail(name, ": key ", quote_name(key), " is ", x, ", it must be finite");
  return x;
}
double GgufFile::number_or(std::string_view key, double otherwise) const {
  return find(key) ? number(key) : otherwise;
}
bool GgufFile::boolean_or(std::string_view key, bool otherwise) const {
  const GgufValue* v = find(key);
  return v ? want<bool>(*this, key, *v, "true or false") : otherwise;
}
const std::string& GgufFile::text(std::string_view key) const {
  return want<std::string>(*this, key, there(*this, key), "a string");
}
std::string GgufFile::text_or(std::string_view key, std::string_view otherwise) const {
  return find(key) ? text(key) : std::string(otherwise);
}
const GgufValue::Strings* GgufFile::texts(std::string_view key) const {
  const GgufValue* v = find(key);
  return v ? &want<GgufValue::Strings>(*this, key, *v, "an array of strings") : nullptr;
}
const GgufValue::Numbers* GgufFile::numbers(std::string_view key) const {
  const GgufValue* v = find(key);
  return v ? &want<GgufValue::Numbers>(*this, key, *v, "an array of f32 or f64") : nullptr;
}
const GgufValue::Integers* GgufFile::integers(std::string_view key) const {
  const GgufValue* v = find(key);
  return v ? &want<GgufValue::Integers>(*this, key, *v, "an array of integers") : nullptr;
}

namespace {

// GGML's numbers of types. A type without a DType is named and refused.
struct TypeNumber {
  std::uint32_t number;
  const char* name;
  std::optional<DType> dtype{};
};
constexpr TypeNumber kTypes[] = {{0, "F32", DType::f32},
                                 {1, "F16", DType::f16},
                                 {2, "Q4_0", DType::q4_0},
                                 {3, "Q4_1", DType::q4_1},
                                 {4, "Q4_2"},
                                 {5, "Q4_3"},
                                 {6, "Q5_0", DType::q5_0},
                                 {7, "Q5_1", DType::q5_1},
                                 {8, "Q8_0", DType::q8_0},
                                 {9, "Q8_1"},
                                 {10, "Q2_K", DType::q2_k},
                                 {11, "Q3_K", DType::q3_k},
                                 {12, "Q4_K", DType::q4_k},
                                 {13, "Q5_K", DType::q5_k},
                                 {14, "Q6_K", DType::q6_k},
                                 {15, "Q8_K"},
                                 {16, "IQ2_XXS", DType::iq2_xxs},
                                 {17, "IQ2_XS", DType::iq2_xs},
                                 {18, "IQ3_XXS", DType::iq3_xxs},
                                 {19, "IQ1_S", DType::iq1_s},
                                 {20, "IQ4_NL", DType::iq4_nl},
                                 {21, "IQ3_S", DType::iq3_s},
                                 {22, "IQ2_S", DType::iq2_s},
                                 {23, "IQ4_XS", DType::iq4_xs},
                                 {24, "I8", DType::i8},
                                 {25, "I16", DType::i16},
                                 {26, "I32", DType::i32},
                                 {27, "I64", DType::i64},
                                 {28, "F64", DType::f64},
                                 {29, "IQ1_M", DType::iq1_m},
                                 {30, "BF16", DType::bf16},
                                 {31, "Q4_0_4_4"},
                                 {32, "Q4_0_4_8"},
                                 {33, "Q4_0_8_8"},
                                 {34, "TQ1_0", DType::tq1_0},
                                 {35, "TQ2_0", DType::tq2_0},
                                 {36, "IQ4_NL_4_4"},
                                 {37, "IQ4_NL_4_8"},
                                 {38, "IQ4_NL_8_8"},
                                 {39, "MXFP4", DType::mxfp4},
                                 {40, "NVFP4", DType::nvfp4},
                                 {41, "Q1_0", DType::q1_0},
                                 {42, "Q2_0", DType::q2_0}};

}  // namespace

std::uint32_t gguf_type_of(DType type) {
  for (const TypeNumber& t : kTypes)
    if (t.dtype == type) return t.number;
  fail("gguf: ", name_of(type), " has no number in GGUF");
}

DType dtype_of_gguf(std::uint32_t type, const Reader& at, std::string_view tensor) {
  for (const TypeNumber& t : kTypes) {
    if (t.number != type) continue;
    if (t.dtype) return *t.dtype;
    at.refuse("type ", t.name, " of tensor ", quote_name(tensor),
              " is not supported yet; re-quantize the model to one that is: f16, bf16, ",
              "q8_0, q5_1, q5_0, q4_1, q4_0, q6_k, q5_k, q4_k, q3_k, q2_k, mxfp4, iq4_nl, iq4_xs");
  }
  at.refuse("type ", type, " of tensor ", quote_name(tensor), " is not known");
}

}  // namespace rapt
