// SPDX-License-Identifier: Apache-2.0
// Any bytes as a safetensors file: they parse or end in rapt::Error, and what parses covers the file without
// a gap.
#include <cstdint>
#include <cstdlib>

#include "rapt/io/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    const rapt::SafetensorsFile file =
        rapt::SafetensorsFile::parse(std::as_bytes(std::span(data, size)), "fuzz");
    std::uint64_t header = 0;
    for (int i = 7; i >= 0; --i) header = header << 8 | data[i];
    if (file.tensors.bytes() + header + 8 != size) std::abort();
    for (const rapt::TensorView& t : file.tensors.all()) {
      if (file.tensors.find(t.name()) != &t || !rapt::valid_utf8(t.name())) std::abort();
      volatile float sink = 0;
      for (const float x : t.values()) sink = x;
      (void)sink;
    }
    for (const auto& [key, value] : file.metadata)
      if (!rapt::valid_utf8(key) || !rapt::valid_utf8(value)) std::abort();
  } catch (const rapt::Error&) {}
  return 0;
}
