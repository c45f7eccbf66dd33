// SPDX-License-Identifier: Apache-2.0
// Wrong files and the words their errors must hold.
#pragma once
#include <string>
#include <vector>

#include "rapt/base/error.h"
#include "tests/hostile/bytes.h"

namespace rapt::test {

struct HostileCase {
  std::string name, bytes, words;
};

inline const char* const kIncomplete = "is the download complete?";

// Sequences that are not UTF-8, each for another reason.
inline const std::vector<std::string>& broken_utf8() {
  static const std::vector<std::string> kBroken = {"\x80",         "a\xC3",        "\xC0\x80",
                                                   "\xE0\x80\x80", "\xED\xA0\x80", "\xF4\x90\x80\x80",
                                                   "\xFF",         "\xF0\x9F\x98"};
  return kBroken;
}

// What begins like this is some other format.
struct Foreign {
  std::string name, start, words;
};
inline std::vector<Foreign> foreign_starts() {
  return {{"zip (torch)", "PK\x03\x04rest of it", "pickle"},
          {"pickle 2", "\x80\x02}q\x01.......", "pickle"},
          {"pickle 4", "\x80\x04\x95\x01......", "pickle"},
          {"hdf5", "\x89HDF\r\n\x1a\n.......", "HDF5"},
          {"ggjt", "tjgg\x03...........", "before GGUF"},
          {"ggml", "lmgg\x03...........", "before GGUF"},
          {"git lfs", "version https://git-lfs.github.com/spec/v1\noid sha256:00", "Git LFS"},
          {"web page", "<!DOCTYPE html><html>", "web page"}};
}

}  // namespace rapt::test
