// SPDX-License-Identifier: Apache-2.0
// Keys of the header are searched for, not parsed as Python; sizes are bounded before values are read.
#include "rapt/io/npy.h"

#include <algorithm>
#include <cctype>

namespace rapt {

NpyWriter::NpyWriter(const std::string& path, const std::vector<Dim>& shape, bool force)
    : file_(path, force) {
  std::string header = "{'descr': '<f4', 'fortran_order': False, 'shape': (";
  for (std::size_t i = 0; i < shape.size(); ++i) {
    header += concat(i ? ", " : "", shape[i]);
    left_ *= shape[i];
  }
  header += shape.size() == 1 ? ",), }" : "), }";
  while ((10 + header.size() + 1) % 64 != 0) header += ' ';
  header += '\n';
  file_.write(std::string_view("\x93NUMPY\x01\x00", 8));
  file_.put(static_cast<std::uint16_t>(header.size()));
  file_.write(header);
}

void NpyWriter::write(std::span<const float> values) {
  file_.write(std::as_bytes(values));
  left_ -= static_cast<Dim>(values.size());
}

void NpyWriter::commit() {
  if (left_ != 0) fail("npy: ", left_, " values are missing");
  file_.commit();
}

namespace {

// What stands behind a key of the header, up to `end`.
std::string_view field(const Reader& in, std::string_view header, std::string_view key,
                       std::string_view end) {
  const std::size_t at = header.find(key);
  const std::size_t from = at == std::string_view::npos ? at : header.find(':', at);
  const std::size_t to = from == std::string_view::npos ? from : header.find_first_of(end, from + 1);
  if (to == std::string_view::npos) in.refuse("the header of the array has no ", key);
  return header.substr(from + 1, to - from - 1);
}

std::vector<Dim> read_shape(const Reader& in, std::string_view text) {
  constexpr Dim kMost = Dim{1} << 40;
  std::vector<Dim> shape;
  Dim elements = 1;
  for (std::size_t i = 0; i < text.size();) {
    if (!std::isdigit(static_cast<unsigned char>(text[i]))) {
      if (text[i] != ' ' && text[i] != '(' && text[i] != ',')
        in.refuse("the array's shape has '", text[i], "' in it");
      ++i;
      continue;
    }
    Dim n = 0;
    for (; i < text.size() && std::isdigit(static_cast<unsigned char>(text[i])); ++i) {
      n = n * 10 + (text[i] - '0');
      if (n > kMost) in.refuse("an axis of the array is longer than ", kMost);
    }
    shape.push_back(n);
    if (shape.size() > 8) in.refuse("the array has more than 8 axes");
    if (n != 0 && elements > kMost / n) in.refuse("the array has more than ", kMost, " elements");
    elements *= n;
  }
  return shape;
}

template <class T>
void take_values(Reader& in, std::vector<float>& values, Dim elements) {
  in.expect_items(static_cast<std::uint64_t>(elements), sizeof(T), "the array");
  for (Dim i = 0; i < elements; ++i) values.push_back(static_cast<float>(in.get<T>("a value")));
}

}  // namespace

NpyArray parse_npy(std::span<const std::byte> bytes, const std::string& name) {
  Reader in(bytes, name);
  const auto magic = in.take(6, "the mark of a .npy file");
  if (std::memcmp(magic.data(), "\x93NUMPY", 6) != 0)
    fail(name, " is no .npy file: it does not begin with \\x93NUMPY");
  const auto major = in.get<std::uint8_t>("the version");
  in.get<std::uint8_t>("the version");
  if (major < 1 || major > 3)
    in.refuse("version ", static_cast<int>(major), " of .npy is not known; 1 to 3 are");
  const std::uint64_t length = major == 1 ? in.get<std::uint16_t>("the header's length")
                                          : in.get<std::uint32_t>("the header's length");
  const auto head = in.take(length, "the header");
  const std::string_view header(reinterpret_cast<const char*>(head.data()), head.size());
  NpyArray array;
  array.shape = read_shape(in, field(in, header, "'shape'", ")"));
  if (field(in, header, "'fortran_order'", ",}").find("False") == std::string_view::npos)
    in.refuse("the array is in Fortran order; save it as numpy.ascontiguousarray(a)");
  Dim elements = 1;
  for (Dim n : array.shape) elements *= n;
  const std::string_view type = field(in, header, "'descr'", ",}");
  if (type.find("<f4") != std::string_view::npos) take_values<float>(in, array.values, elements);
  else if (type.find("<f8") != std::string_view::npos) take_values<double>(in, array.values, elements);
  else
    in.refuse("the array's type is", type,
              "; float32 ('<f4') and float64 ('<f8') are read: save it as a.astype('<f4')");
  return array;
}

NpyArray read_npy(const std::string& path) { return parse_npy(read_file(path), path); }

}  // namespace rapt
