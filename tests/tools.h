// SPDX-License-Identifier: Apache-2.0
// What many tests need: the message of the error that something ends in, a value that a file must have, a
// folder that goes away again, a file with a text.
#pragma once
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <string>
#include <string_view>

#include "rapt/base/error.h"
#include "rapt/base/json.h"
#include "rapt/io/reader.h"

namespace rapt::test {

template <class F>
std::string error_of(F&& f) {  // "" where there is none
  try {
    f();
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

inline bool holds(const std::string& text, const std::string& words) {
  return text.find(words) != std::string::npos;
}

inline const Json& need(const Json& json, std::string_view key) {
  const Json* found = json.find(key);
  if (!found) fail("'", key, "' is missing in a file of expected values");
  return *found;
}

class TempFolder {  // tests run side by side: the process number keeps them apart
 public:
  TempFolder() {
    static std::atomic<int> count{0};
    path_ = std::filesystem::temp_directory_path() / concat("rapt-test-", ::getpid(), "-", count++);
    std::filesystem::create_directories(path_);
  }
  ~TempFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;
  std::string operator/(std::string_view name) const { return (path_ / name).string(); }
  std::string path() const { return path_.string(); }

 private:
  std::filesystem::path path_;
};

inline void put_file(const std::string& path, std::string_view text) {
  FileWriter out(path, true);
  out.write(text);
  out.commit();
}

}  // namespace rapt::test
