// SPDX-License-Identifier: Apache-2.0
// Any bytes as a GGUF file: they parse or end in rapt::Error, and what parses can be read through to the
// last byte.
#include <cmath>
#include <cstdint>
#include <cstdlib>

#include "rapt/io/gguf.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    const rapt::GgufFile file = rapt::GgufFile::parse(std::as_bytes(std::span(data, size)), "fuzz");
    std::uint64_t bytes = 0;
    for (const rapt::TensorView& t : file.tensors.all()) {
      if (file.tensors.find(t.name()) != &t || t.elements() != t.rows() * t.last()) std::abort();
      bytes += t.bytes().size();
      volatile float sink = 0;
      for (const float x : t.values()) sink = x;
      (void)sink;
      if (t.row_bytes(t.rows(), 0).size() != 0 || t.row_bytes(0, t.rows()).size() != t.bytes().size())
        std::abort();
    }
    if (bytes > size) std::abort();
    for (const auto& [key, value] : file.metadata()) {
      if (file.find(key) != &value) std::abort();
      try {
        if (!std::isfinite(file.number(key)) || file.integer(key, -5, 5) > 5) std::abort();
      } catch (const rapt::Error&) {}
    }
  } catch (const rapt::Error&) {}
  return 0;
}
