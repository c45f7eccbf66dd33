// SPDX-License-Identifier: Apache-2.0
// The program with one failed allocation, for many places in turn: it ends with an error that says so, or,
// where it could do without, with the same result. Never by a signal, never with another result. Each trial
// is a child of fork(), so that nothing is loaded anew.
//
// RAPT_ALLOCATIONS: how many places of each command are tried (300). Half of them are the first ones, the
// others lie evenly between the rest; with at least as many as a command has, every one.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <string>
#include <vector>

#include "tests/allocation/fail_alloc.h"

int rapt_main(int argc, char** argv);  // rapt/apps/cli/main.cc

namespace rapt::test {
namespace {

namespace fs = std::filesystem;

std::string read(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

struct Outcome {
  int code = 0;    // as a shell has it: 128 and a signal's number
  std::string out, err;
  std::string files;  // of the folder that a command writes: names and bytes
  long allocations = 0;
};

class Allocation : public testing::Test {
 protected:
  static inline fs::path folder;

  static void SetUpTestSuite() {
    std::string name = testing::TempDir() + "rapt-allocation-XXXXXX";
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    folder = name;
    std::ofstream(folder / "recipe.json")
        << R"({"preset": "llama3", "width": 8, "context": 16, "decoder": {"layers": 1}})";
    std::ofstream data(folder / "data.txt");
    for (int i = 0; i < 40; ++i) data << "to be or not to be, that is the question: " << i % 7 << "\n";
    data.close();
    ASSERT_EQ(run(train("first"), 0, "").code, 0);
    ASSERT_EQ(run({"convert", "first/model", "toy.gguf", "-q"}, 0, "").code, 0);
  }
  static void TearDownTestSuite() { fs::remove_all(folder); }

  static std::vector<std::string> train(const std::string& out) {
    return {"train", "recipe.json", "--data", "data.txt",   "--vocab", "bytes",          "--length",
            "8",     "--batch",     "2",      "--steps",    "1",       "--eval-batches", "1",
            "--set", "heads=2",     "--set",  "kv_heads=1", "--set",   "ffn=16",         "--out",
            out,     "-q",          "-t",     "2"};
  }

  // The program in a child, whose n-th allocation fails.
  static Outcome run(const std::vector<std::string>& words, long n, const std::string& writes) {
    if (!writes.empty()) fs::remove_all(folder / writes);
    std::fflush(nullptr);
    const pid_t child = fork();
    if (child == 0) {
      alarm(60);
      if (chdir(folder.c_str()) != 0) _exit(99);
      for (const auto& [file, to] : {std::pair{"out", 1}, std::pair{"err", 2}, std::pair{"count", 9}}) {
        const int fd = open(file, O_CREAT | O_TRUNC | O_WRONLY, 0600);
        if (fd < 0 || dup2(fd, to) < 0) _exit(99);
      }
      std::vector<std::string> all = words;
      std::vector<char*> argv = {const_cast<char*>("rapt")};
      for (std::string& w : all) argv.push_back(w.data());
      argv.push_back(nullptr);
      fail_allocation(n);
      const int code = rapt_main(static_cast<int>(all.size()) + 1, argv.data());
      const long count = allocations();
      fail_allocation(0);
      std::fflush(nullptr);
      dprintf(9, "%ld", count);
      _exit(code);
    }
    int status = 0;
    waitpid(child, &status, 0);
    Outcome o{.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status)};
    o.out = read(folder / "out");
    o.err = read(folder / "err");
    o.allocations = std::atol(read(folder / "count").c_str());
    if (!writes.empty() && fs::exists(folder / writes)) {
      std::set<fs::path> paths;
      for (const auto& e : fs::recursive_directory_iterator(folder / writes))
        if (e.is_regular_file() && e.path().extension() == ".safetensors") paths.insert(e.path());
      for (const fs::path& p : paths) o.files += p.string() + "\n" + read(p);
    }
    return o;
  }

  static void try_all(const std::vector<std::string>& words, const std::string& writes = "") {
    const Outcome whole = run(words, 0, writes);
    ASSERT_EQ(whole.code, 0) << whole.err;
    ASSERT_TRUE(writes.empty() || !whole.files.empty());
    const char* set = std::getenv("RAPT_ALLOCATIONS");
    const long most = set ? std::atol(set) : 300, first = std::min(most / 2, whole.allocations);
    std::set<long> places;
    for (long n = 1; n <= first; ++n) places.insert(n);
    for (long i = 0; i < most - first; ++i)
      places.insert(first + 1 + i * (whole.allocations - first) / (most - first));
    int errors = 0, same = 0;
    std::vector<std::string> wrong;
    for (const long n : places) {
      const Outcome o = run(words, n, writes);
      const bool error =
          o.code == 1 && o.err.starts_with("error: ") && o.err.find("memory") != std::string::npos;
      const bool equal = o.code == 0 && o.out == whole.out && o.files == whole.files;
      errors += error;
      same += equal;
      if (!error && !equal)
        wrong.push_back("allocation " + std::to_string(n) + ": code " + std::to_string(o.code) +
                        (o.out == whole.out ? "" : ", other output") +
                        (o.files == whole.files ? "" : ", other files") + ", " + o.err);
    }
    std::printf("%zu of %ld allocations: %d errors, %d did without\n", places.size(), whole.allocations,
                errors, same);
    std::string list;
    for (std::size_t i = 0; i < std::min<std::size_t>(wrong.size(), 20); ++i) list += wrong[i] + "\n";
    EXPECT_TRUE(wrong.empty()) << wrong.size() << " went wrong:\n" << list;
    EXPECT_GT(errors, 0);
  }
};

TEST_F(Allocation, OfARunThatFailsIsAnError) {
  try_all({"run", "first/model", "to be", "-n", "4", "--temp", "0", "-t", "2"});
}
TEST_F(Allocation, OfATrainingThatFailsIsAnError) { try_all(train("again"), "again"); }
TEST_F(Allocation, OfALookThatFailsIsAnError) {
  try_all({"inspect", "heads", "toy.gguf", "to be or not", "--json", "-t", "2"});
}
TEST_F(Allocation, OfAConversionThatFailsIsAnError) {
  try_all({"convert", "first/model", "copy", "--force", "-q", "-t", "1"}, "copy");
}

}  // namespace
}  // namespace rapt::test
