// SPDX-License-Identifier: Apache-2.0
// Runs the program as people do: what it prints where, and its exit code.
#pragma once
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <string_view>

#include "tests/build_kind.h"

namespace rapt::test {

struct Outcome {
  int code = -1;
  std::string out, err;
};

class Cli : public testing::Test {
 protected:
  const std::string program = kBuildFolder + "/rapt";
  void SetUp() override {
    if (!std::filesystem::exists(program)) GTEST_SKIP() << program << " is not built";
  }

  // `args` as in a shell; `before` may set variables or feed a pipe.
  Outcome run(const std::string& args, const std::string& before = "") const {
    // Tests run side by side.
    const std::string errors = testing::TempDir() + "rapt_cli_test." + std::to_string(getpid());
    const std::string command = before + " '" + program + "' " + args + " 2>'" + errors + "'";
    Outcome o;
    FILE* pipe = popen(command.c_str(), "r");
    if (!pipe) return o;
    char buffer[4096];
    while (const std::size_t n = fread(buffer, 1, sizeof buffer, pipe)) o.out.append(buffer, n);
    const int status = pclose(pipe);
    o.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128;
    std::stringstream text;
    text << std::ifstream(errors).rdbuf();
    o.err = text.str();
    std::filesystem::remove(errors);
    return o;
  }
};

inline bool has(const std::string& text, std::string_view piece) {
  return text.find(piece) != std::string::npos;
}

}  // namespace rapt::test
