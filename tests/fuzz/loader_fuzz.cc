// SPDX-License-Identifier: Apache-2.0
// Models with consistent sizes (tests/hostile/made_model.h) from the fuzzer's bytes.
#include <cstdlib>
#include <filesystem>

#include "rapt/base/error.h"
#include "tests/hostile/made_model.h"

namespace {

const std::string& folder() {
  static const std::string path = [] {
    std::string name = (std::filesystem::temp_directory_path() / "rapt-loader-XXXXXX").string();
    if (!::mkdtemp(name.data())) std::abort();
    return name;
  }();
  return path;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    rapt::test::open_made_model({data, size}, folder());
  } catch (const rapt::Error&) {}
  return 0;
}
