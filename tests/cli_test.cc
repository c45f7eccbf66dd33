// SPDX-License-Identifier: Apache-2.0
// The program as people meet it: what it prints where, and its exit codes.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

namespace rapt::test {
namespace {

struct Outcome {
  int code = -1;
  std::string out, err;
};

class Cli : public testing::Test {
 protected:
  const std::string program = std::string(RAPT_BINARY_DIR) + "/rapt";
  void SetUp() override {
    if (!std::filesystem::exists(program)) GTEST_SKIP() << program << " is not built";
  }

  // `args` as in a shell; `before` may set variables or feed a pipe.
  Outcome run(const std::string& args, const std::string& before = "") const {
    const std::string errors = testing::TempDir() + "rapt_cli_test." + std::to_string(getpid());  // tests run side by side
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

bool has(const std::string& text, std::string_view piece) { return text.find(piece) != std::string::npos; }

TEST_F(Cli, HelpAndVersion) {
  for (const char* args : {"", "--help", "-h", "help"}) {
    const Outcome o = run(args);
    EXPECT_EQ(o.code, 0);
    EXPECT_TRUE(has(o.out, "Usage: rapt VERB")) << args;
    EXPECT_EQ(o.err, "");
  }
  for (const char* args : {"show --help", "help show", "show llama3 -h"}) EXPECT_TRUE(has(run(args).out, "Examples:")) << args;
  const Outcome v = run("--version");
  EXPECT_TRUE(has(v.out, "rapt ")) << v.out;
  EXPECT_TRUE(has(v.out, "available: scalar")) << v.out;
  EXPECT_TRUE(has(run("--version", "RAPT_ISA=scalar").out, "instruction set: scalar"));
  EXPECT_EQ(run("--version", "RAPT_ISA=nonsense").code, 2);
}

TEST_F(Cli, UsageErrorsEndWithTwo) {
  const std::pair<const char*, const char*> cases[] = {
      {"shwo", "did you mean 'show'"},          {"--verson", "did you mean '--version'"},
      {"show --jsno", "did you mean '--json'"}, {"show --json=1 gpt2", "takes no value"},
      {"show lama3", "did you mean 'llama3'"},  {"show a b", "wants 0 to 1 recipe"},
      {"show --diff gpt2", "wants 2 recipes"},  {"show --diff - -", "not both"},
      {"show missing.json", "no such file"},    {"help nothing", "unknown verb 'nothing'"},
  };
  for (const auto& [args, message] : cases) {
    const Outcome o = run(args);
    EXPECT_EQ(o.code, 2) << args;
    EXPECT_EQ(o.out, "") << args;
    EXPECT_TRUE(o.err.starts_with("error: ")) << o.err;
    EXPECT_TRUE(has(o.err, message)) << args << ": " << o.err;
  }
}

TEST_F(Cli, FailuresEndWithOne) {
  const Outcome o = run("show -", "echo '{\"preset\": \"gpt2\", \"widht\": 3}' |");
  EXPECT_EQ(o.code, 1);
  EXPECT_TRUE(has(o.err, "error: standard input:1:")) << o.err;
  EXPECT_TRUE(has(o.err, "widht: unknown key; did you mean 'width'?")) << o.err;
  EXPECT_EQ(run("show -", "echo '{\"preset\": \"gpt2\", \"width\": 13}' |").code, 1);
  EXPECT_EQ(run("show -", "printf '' |").code, 1);
  if (std::filesystem::exists("/dev/full")) {
    const Outcome full = run("show >/dev/full");
    EXPECT_EQ(full.code, 1);
    EXPECT_TRUE(has(full.err, "standard output")) << full.err;
  }
}

TEST_F(Cli, Show) {
  EXPECT_TRUE(has(run("show").out, "llama3-gate-g5"));
  EXPECT_TRUE(has(run("show --json").out, "\"parameters\": 124439808"));
  const Outcome o = run("show qwen3");
  EXPECT_EQ(o.code, 0);
  EXPECT_TRUE(has(o.out, "596,049,920")) << o.out;
  EXPECT_FALSE(has(o.out, "\033")) << "colours on something that is no terminal";
  EXPECT_TRUE(has(run("show --json -- qwen3").out, "\"head_dim\": 128"));
  EXPECT_TRUE(has(run("show --diff llama3 mistral").out, "self.window: 0 → 4096"));
  EXPECT_TRUE(has(run("show --diff llama3 llama3").out, "no difference"));
  EXPECT_TRUE(has(run("show --json -", "'" + program + "' show --all gemma2 |").out, "\"scale\": 0.0625"));  // what it prints it reads
}

TEST_F(Cli, AClosedPipeEndsQuietly) {
  const Outcome o = run("show --schema | head -c 1");
  EXPECT_EQ(o.err, "");
  const Outcome ignored = run("show --schema | head -c 1", "trap '' PIPE;");
  EXPECT_EQ(ignored.err, "");
}

}  // namespace
}  // namespace rapt::test
