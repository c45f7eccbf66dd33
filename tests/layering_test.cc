// SPDX-License-Identifier: Apache-2.0
// The layout of docs/layers.md, checked on the sources: who may include whom, and what every file must or
// must not contain. That each header compiles alone is checked by building rapt_headers_alone
// (cmake/tests.cmake).
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "rapt/base/text_width.h"

namespace rapt::test {
namespace {

namespace fs = std::filesystem;

// For each folder of rapt/, all it may include besides itself.
const std::map<std::string, std::set<std::string>>& allowed() {
  static const auto table = [] {
    std::map<std::string, std::set<std::string>> t;
    std::set<std::string> right;
    for (const char* folder : {"base", "tensor", "device", "comm", "run", "ops"}) {
      t[folder] = right;
      right.insert(folder);
    }
    t["comm"] = {"base"};  // bytes between ranks: nothing that could be added
    t["io"] = {"tensor", "base"};
    t["text"] = {"io", "tensor", "base"};
    t["report"] = {"io", "base"};
    t["image"] = {"io", "base"};
    t["http"] = {"base"};
    right.insert("io");  // readers of files: from the recipe on
    for (const char* folder : {"recipe", "nn"}) {
      t[folder] = right;
      right.insert(folder);
    }
    right.insert({"text", "image"});
    t["load"] = right;
    right.insert({"load", "report"});
    for (const char* folder : {"inspect", "use", "lab", "api", "apps"}) {
      t[folder] = right;
      right.insert(folder);
    }
    t["apps"].insert("http");
    return t;
  }();
  return table;
}

const fs::path kRoot = RAPT_SOURCE_DIR;

std::string read(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

// Files of the tree, as paths from its root; without builds and hidden folders other than .ci.
std::vector<fs::path> tree() {
  std::vector<fs::path> files;
  for (auto it = fs::recursive_directory_iterator(kRoot); it != fs::recursive_directory_iterator(); ++it) {
    const std::string name = it->path().filename().string();
    const bool build = it.depth() == 0 && name.starts_with("build");
    if (it->is_directory() && (build || name == "__pycache__" || (name.starts_with('.') && name != ".ci")))
      it.disable_recursion_pending();
    // .git is a file in a git worktree
    if (it->is_regular_file() && name != ".git") files.push_back(fs::relative(it->path(), kRoot));
  }
  std::sort(files.begin(), files.end());
  return files;
}

bool is_source(const fs::path& path) {
  static const std::set<std::string> kinds = {".cc", ".h", ".cu", ".cuh"};
  return kinds.contains(path.extension().string());
}

std::vector<std::string> includes(const std::string& text) {
  std::vector<std::string> found;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with("#include")) continue;
    const std::size_t begin = line.find_first_of("\"<");
    const std::size_t end = line.find_first_of("\">", begin + 1);
    if (end != std::string::npos) found.push_back(line.substr(begin + 1, end - begin - 1));
  }
  return found;
}

// Headers that only kernel sources share: what they define stands in the namespace of one instruction set.
bool is_kernel_header(const std::string& header) {
  static std::map<std::string, bool> known;
  const auto [at, fresh] = known.try_emplace(header, false);
  if (fresh && header.starts_with("rapt/ops/"))
    at->second = read(kRoot / header).find("namespace rapt::RAPT_ISA") != std::string::npos;
  return at->second;
}

// The headers that are installed: RAPT_PUBLIC_HEADERS of cmake/folders.cmake.
const std::set<std::string>& public_headers() {
  static const auto list = [] {
    const std::string text = read(kRoot / "cmake" / "folders.cmake"), key = "set(RAPT_PUBLIC_HEADERS ";
    const std::size_t begin = text.find(key) + key.size();
    std::istringstream words(text.substr(begin, text.find(')', begin) - begin));
    std::set<std::string> names;
    for (std::string name; words >> name;) names.insert(name);
    return names;
  }();
  return list;
}

// "" or what is wrong with `file` including `header`.
std::string refusal(const std::string& file, const std::string& header) {
  const fs::path path(file);
  if (path.begin()->string() != "rapt") return "";  // tests, benchmarks and examples may use everything
  const std::string name = path.filename().string();
  if (name.ends_with("_cpu.cc") || is_kernel_header(file)) {
    // Compiled once per instruction set: only declarations may come in, so no header that lives by
    // inline functions.
    // Constants only.
    static const std::set<std::string> plain = {"math.h",
                                                "stddef.h",
                                                "stdint.h",
                                                "string.h",
                                                "immintrin.h",
                                                "arm_neon.h",
                                                "rapt/ops/isa.h",
                                                "rapt/device/kernels.h",
                                                "rapt/tensor/panel_kind.h"};
    // attention_forward_cpu.cc belongs to attention.h
    const std::string op = fs::path(header).stem().string();
    const bool own = header == "rapt/ops/" + op + ".h" && name.starts_with(op + "_");
    if (plain.contains(header) || own || is_kernel_header(header)) return "";
    return "kernel code may include its op's header, other kernel headers (simd.h) and C headers only";
  }
  if (is_kernel_header(header)) return "only kernel sources (*_cpu.cc) may include a kernel header";
  if (!header.starts_with("rapt/")) return "";
  if (public_headers().contains(file))
    return public_headers().contains(header) ? "" : "users have no such header: it is not installed";
  if (header == "rapt/error.h" || header == "rapt/export.h") return "";  // what everybody throws
  const auto part = [](const fs::path& p, int n) { return std::next(p.begin(), n)->string(); };
  const std::string from = part(path, 1), to = header == "rapt/rapt.h" ? "api" : part(fs::path(header), 1);
  if (!allowed().contains(from)) return "folder rapt/" + from + " has no place in the order of layers";
  if (from == to || allowed().at(from).contains(to)) return "";
  return "rapt/" + from + " may not include rapt/" + to + " (docs/layers.md)";
}

TEST(Layering, FoldersIncludeOnlyWhatStandsToTheirRight) {
  int checked = 0;
  for (const fs::path& file : tree()) {
    if (!is_source(file)) continue;
    for (const std::string& header : includes(read(kRoot / file))) {
      EXPECT_EQ(refusal(file.string(), header), "") << file << " includes " << header;
      ++checked;
    }
  }
  EXPECT_GT(checked, 100);  // the walk found the sources
}

TEST(Layering, TheRuleCatchesWhatItShould) {
  EXPECT_NE(refusal("rapt/ops/norm.cc", "rapt/recipe/recipe.h"), "");
  EXPECT_NE(refusal("rapt/base/team.cc", "rapt/tensor/tensor.h"), "");
  EXPECT_NE(refusal("rapt/comm/threads.cc", "rapt/tensor/tensor.h"), "");
  EXPECT_NE(refusal("rapt/device/device.cc", "rapt/comm/comm.h"), "");
  EXPECT_EQ(refusal("rapt/use/train.cc", "rapt/comm/comm.h"), "");
  EXPECT_NE(refusal("rapt/io/gguf.cc", "rapt/run/run.h"), "");
  EXPECT_NE(refusal("rapt/http/server.cc", "rapt/io/reader.h"), "");
  EXPECT_NE(refusal("rapt/use/engine.cc", "rapt/http/server.h"), "");
  EXPECT_NE(refusal("rapt/ops/norm_cpu.cc", "vector"), "");
  EXPECT_NE(refusal("rapt/ops/norm_cpu.cc", "rapt/ops/rope.h"), "");
  EXPECT_NE(refusal("rapt/extra/a.cc", "rapt/base/error.h"), "");
  EXPECT_EQ(refusal("rapt/nn/model.cc", "rapt/io/reader.h"), "");
  EXPECT_EQ(refusal("rapt/apps/cli/main.cc", "rapt/lab/experiment.h"), "");
  EXPECT_NE(refusal("rapt/ops/norm.cc", "rapt/ops/simd.h"), "");
  EXPECT_NE(refusal("rapt/ops/simd.h", "cstring"), "");
  EXPECT_EQ(refusal("rapt/ops/attention_backward_cpu.cc", "rapt/ops/attention.h"), "");
  EXPECT_NE(refusal("rapt/api/model.h", "rapt/load/checkpoint.h"), "");
  EXPECT_NE(refusal("rapt/rapt.h", "rapt/api/state.h"), "");
  EXPECT_NE(refusal("rapt/use/train.cc", "rapt/rapt.h"), "");
  EXPECT_EQ(refusal("rapt/base/error.h", "rapt/error.h"), "");
  EXPECT_EQ(refusal("rapt/api/model.cc", "rapt/load/checkpoint.h"), "");
}

// rapt/rapt.h leads to every header that is installed, and there are few of them. Examples and consumers use
// nothing else.
TEST(Layering, ThePublicFaceIsSmallAndWhole) {
  std::vector<std::string> reached = {"rapt/rapt.h"};
  for (std::size_t i = 0; i < reached.size(); ++i)
    for (const std::string& header : includes(read(kRoot / reached[i])))
      if (header.starts_with("rapt/") && std::find(reached.begin(), reached.end(), header) == reached.end())
        reached.push_back(header);
  EXPECT_EQ(std::set<std::string>(reached.begin(), reached.end()), public_headers());
  EXPECT_LE(reached.size(), 20u);
  for (const fs::path& file : tree()) {
    const bool user = file.string().starts_with("examples/") || file.string().starts_with("tests/consumer/");
    if (!user || !is_source(file)) continue;
    for (const std::string& header : includes(read(kRoot / file)))
      EXPECT_TRUE(!header.starts_with("rapt/") || header == "rapt/rapt.h") << file << " includes " << header;
  }
}

TEST(Layering, EveryHeaderHasAGuardAndEverySourceALicenceAndAFirstLine) {
  const std::string licence = std::string("SPDX-License-") + "Identifier: Apache-2.0";
  for (const fs::path& file : tree()) {
    const bool script = file.begin()->string() == "scripts" || file.begin()->string() == ".ci";
    if (!is_source(file) && file.extension() != ".cmake" && file.extension() != ".py" &&
        file.filename() != "CMakeLists.txt" && !script)
      continue;
    const std::string text = read(kRoot / file);
    EXPECT_LT(text.find(licence), 200u) << file << " does not state the licence near its top";
    EXPECT_TRUE(file.extension() != ".h" || text.find("\n#pragma once\n") != std::string::npos)
        << file << " has no #pragma once";
    if (is_source(file) && file.begin()->string() == "rapt")
      EXPECT_EQ(text.find("\n// "), text.find('\n'))
          << file << " does not begin with a line that says what it is";
  }
}

// What a checkout elsewhere could not use. Written in pieces, or this file would find itself.
TEST(Layering, NoMachinePathsAndNoPackageHosts) {
  std::vector<std::string> bad;
  for (const char* folder : {"work", "root", "tmp", "farm", "home"})
    bad.push_back(std::string("/") + folder + "/");
  for (const char* host : {"pypi", "pythonhosted", "npmjs", "crates", "ghcr", "docker"})
    for (const char* end : {"org", "com", "io"}) bad.push_back(std::string(host) + "." + end);
  for (const fs::path& file : tree()) {
    const std::string text = read(kRoot / file);
    for (const std::string& word : bad)
      EXPECT_EQ(text.find(word), std::string::npos) << file << " contains " << word;
  }
}

TEST(Layering, TheExampleInReadmeIsTheOneThatIsCompiled) {
  std::string example = read(kRoot / "examples" / "five_lines.cc");
  example = example.substr(example.find("#include"));
  EXPECT_NE(read(kRoot / "README.md").find("```cpp\n" + example + "```"), std::string::npos);
}

TEST(Layering, TheExamplesOfTheLibraryAreThoseThatAreCompiled) {
  const std::string example = read(kRoot / "examples" / "library.cc"),
                    page = read(kRoot / "docs" / "library.md");
  int blocks = 0;
  for (std::size_t at = example.find("// docs: "); at != std::string::npos;
       at = example.find("// docs: ", at + 1)) {
    const std::size_t begin = example.find('\n', at) + 1, end = example.find("// docs: end", begin);
    if (example.compare(at, 12, "// docs: end") == 0) continue;
    EXPECT_NE(page.find("```cpp\n" + example.substr(begin, end - begin) + "```"), std::string::npos)
        << example.substr(at, begin - at);
    ++blocks;
  }
  EXPECT_EQ(blocks, 3);
}

// docs/layers.md names real files, and no more of them than it promises.
TEST(Layering, TheFilesNamedInLayersExist) {
  const std::string text = read(kRoot / "docs" / "layers.md");
  int named = 0;
  for (std::size_t at = text.find("`rapt/"); at != std::string::npos; at = text.find("`rapt/", at + 1)) {
    const std::string name = text.substr(at + 1, text.find('`', at + 1) - at - 1);
    if (name.find_first_of("*… {<") != std::string::npos) continue;  // a pattern, not a file
    EXPECT_TRUE(fs::exists(kRoot / name)) << "docs/layers.md names " << name;
    ++named;
  }
  EXPECT_GT(named, 10);
}

// Lines that a reader need not scroll: at most 110 columns, but for what cannot be broken.
TEST(Layering, LinesHaveAtMost110Columns) {
  // Patterns, templates and sums inside a literal; what a program wrote.
  const std::set<std::string> longer = {
      "docs/lab.md",
      "scripts/check-doubles",
      "scripts/get-models",
      "tests/golden/compare_tokenizers.py",
      "tests/golden/make_templates.py",
      "tests/golden/make_tokenizers.py",
  };
  for (const fs::path& file : tree()) {
    const std::string kind = file.extension().string(), top = file.begin()->string();
    const bool page = kind == ".md";
    const bool script = kind.empty() && (top == "scripts" || top == "bench" || top == ".ci");
    if (!is_source(file) && !page && !script && kind != ".py" && kind != ".cmake" &&
        file.filename() != "CMakeLists.txt")
      continue;
    if (longer.contains(file.generic_string())) continue;
    if (file.generic_string().starts_with("docs/guide/")) continue;  // written by rapt guide --pages
    std::istringstream text(read(kRoot / file));
    std::string line, raw_end;
    bool fence = false, mark = false;
    for (int number = 1; std::getline(text, line); ++number) {
      bool whole = !raw_end.empty() || fence || mark;
      if (page) {
        if (line.starts_with("```")) fence = !fence;
        if (line.starts_with("<!--")) whole = mark = true;
        if (line.find("-->") != std::string::npos) mark = false;
        whole = whole || line.starts_with("|") || line.starts_with("    ");
      } else if (is_source(file)) {
        if (!raw_end.empty() && line.find(raw_end) != std::string::npos) raw_end.clear();
        for (std::size_t at = line.find("R\""); raw_end.empty() && at != std::string::npos;
             at = line.find("R\"", at + 1)) {
          const std::string end = ")" + line.substr(at + 2, line.find('(', at) - at - 2) + "\"";
          if (line.find(end, at) == std::string::npos) raw_end = end;
          whole = true;
        }
      }
      if (!whole && text_width(line) > 110)
        ADD_FAILURE() << file << ":" << number << ": " << text_width(line) << " columns";
    }
  }
}

}  // namespace
}  // namespace rapt::test
