// SPDX-License-Identifier: Apache-2.0
// The program as people meet it: what it prints where, and its exit codes.
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "tests/cli.h"

namespace rapt::test {
namespace {

TEST_F(Cli, HelpAndVersion) {
  for (const char* args : {"", "--help", "-h", "help"}) {
    const Outcome o = run(args);
    EXPECT_EQ(o.code, 0);
    EXPECT_TRUE(has(o.out, "Usage: rapt VERB")) << args;
    EXPECT_EQ(o.err, "");
  }
  for (const char* args : {"show --help", "help show", "show llama3 -h"})
    EXPECT_TRUE(has(run(args).out, "Examples:")) << args;
  for (const char* verb :
       {"run", "embed", "eval", "bench", "tokenize", "logits", "convert", "quantize", "check"}) {
    EXPECT_TRUE(has(run("").out, std::string("  ") + verb)) << verb;
    const Outcome o = run(std::string(verb) + " --help");
    EXPECT_EQ(o.code, 0);
    EXPECT_TRUE(has(o.out, std::string("Usage: rapt ") + verb)) << o.out;
    EXPECT_TRUE(has(o.out, "Examples:")) << o.out;
  }
  const Outcome v = run("--version");
  EXPECT_TRUE(has(v.out, "rapt ")) << v.out;
  EXPECT_TRUE(has(v.out, "available: scalar")) << v.out;
  EXPECT_TRUE(has(run("--version", "RAPT_ISA=scalar").out, "instruction set: scalar"));
  EXPECT_EQ(run("--version", "RAPT_ISA=nonsense").code, 2);
}

TEST_F(Cli, UsageErrorsEndWithTwo) {
  const std::pair<const char*, const char*> cases[] = {
      {"shwo", "did you mean 'show'"},
      {"--verson", "did you mean '--version'"},
      {"show --jsno", "did you mean '--json'"},
      {"show --json=1 gpt2", "takes no value"},
      {"show a b", "wants one recipe or model, or none; got a, b"},
      {"show --diff gpt2", "wants two recipes with --diff; got gpt2"},
      {"show --diff - -", "not both"},
      {"help nothing", "unknown verb 'nothing'"},
      {"run", "wants a model, and a prompt in quotes; got nothing"},
      {"run m.gguf --tmep 1", "did you mean '--temp'"},
      {"run m.gguf --temp warm", "no number"},
      {"run m.gguf --top-k 1.5", "no whole number"},
      {"run m.gguf --temp -1 x", "temperature"},
      {"run m.gguf x --logit-bias 5", "ID=VALUE"},
      {"run m.gguf x --logprobs 2", "--json"},
      {"run m.gguf x --window 9", "--stream"},
      {"run m.gguf x --overflow wrap", "neither error nor stream"},
      {"run m.gguf x --cache-type q4_k", "f32, f16, bf16, q8_0 or q4_0, not as 'q4_k'"},
      {"run m.gguf x --cache-type q3", "kept as f32, f16, bf16, q8_0 or q4_0, not as 'q3'"},
      {"run m.gguf --ids '1 x'", "no token id"},
      {"eval m.gguf", "--perplexity FILE"},
      {"logits m.gguf --out a.npy", "--ids is missing"},
      {"logits m.gguf --ids 1", "--out is missing"},
      {"quantize a b", "--type is missing"},
      {"quantize a b --type q4_9", "did you mean 'q4_0'"},
      {"embed m.gguf x --pool max", "known: mean, cls, last"},
      {"bench m.gguf -p x", "is no length"},
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
  // What is not there is a failure, whatever it is; how the verb is used was right.
  const std::pair<const char*, const char*> missing[] = {
      {"show lama3", "did you mean 'llama3'"}, {"show missing.json", "no such file"},
      {"run missing.gguf x", "no such file"},  {"eval default --perplexity missing.txt", "missing.txt"},
      {"check missing.gguf", "no such file"},
  };
  for (const auto& [args, message] : missing) {
    const Outcome m = run(args);
    EXPECT_EQ(m.code, 1) << args;
    EXPECT_TRUE(has(m.err, message)) << args << ": " << m.err;
    EXPECT_FALSE(has(m.err, "--help")) << args << ": " << m.err;
  }
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
  // What it prints it reads.
  EXPECT_TRUE(has(run("show --json -", "'" + program + "' show --all gemma2 |").out, "\"scale\": 0.0625"));
}

TEST_F(Cli, AClosedPipeEndsQuietly) {
  const Outcome o = run("show --schema | head -c 1");
  EXPECT_EQ(o.err, "");
  const Outcome ignored = run("show --schema | head -c 1", "trap '' PIPE;");
  EXPECT_EQ(ignored.err, "");
}

}  // namespace
}  // namespace rapt::test
