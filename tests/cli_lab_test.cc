// SPDX-License-Identifier: Apache-2.0
// rapt lab as people meet it.
#include <gtest/gtest.h>

#include <filesystem>

#include "rapt/base/json.h"
#include "rapt/lab/experiment.h"
#include "tests/cli.h"
#include "tests/tools.h"

namespace rapt::test {
namespace {

TEST_F(Cli, LabListsItsExperiments) {
  const Outcome o = run("lab");
  EXPECT_EQ(o.code, 0);
  for (const char* name : {"scale", "key-bias", "sink", "norm-place", "cache-bias"})
    EXPECT_TRUE(has(o.out, name)) << o.out;
  EXPECT_TRUE(has(o.out, "Does a bias on the keys do anything?"));
  const Json all = parse_json(run("lab --json").out);
  EXPECT_GT(all.array().size(), 20u);
  EXPECT_EQ(all.array()[0].find("name")->string(), experiments()[0].name);
}

TEST_F(Cli, LabRunsAnExperimentInEveryForm) {
  const TempFolder folder;
  const Outcome text = run("lab masks -q");
  EXPECT_EQ(text.code, 0) << text.err;
  for (const char* words : {"The story: The printed shapes", "Verdict: Wrong", "no mask, token 9", "Seed 0"})
    EXPECT_TRUE(has(text.out, words)) << text.out;
  EXPECT_EQ(text.err, "");

  const Json one = parse_json(run("lab masks --seed 4 --json -q").out);
  EXPECT_EQ(one.find("name")->string(), "masks");
  EXPECT_EQ(one.find("facts")->find("seed")->integer(), 4);
  EXPECT_TRUE(one.find("facts")->find("findings")->array()[0].find("holds")->boolean());
  EXPECT_EQ(parse_json(run("lab masks --seeds 0,1 --json -q").out).array().size(), 2u);

  const std::string html = folder / "lab.html", markdown = folder / "lab.md",
                    files = "--html '" + html + "' --markdown '" + markdown + "'";
  EXPECT_EQ(run("lab masks --seeds 0,1,2 -q " + files).code, 0);
  const std::string page = read_text_file(html, 1 << 24), table = read_text_file(markdown, 1 << 24);
  EXPECT_TRUE(has(page, "<!doctype html>") && has(page, "seed 2</th>")) << page.substr(0, 400);
  EXPECT_TRUE(has(table, "| what | expected | seed 0 | seed 1 | seed 2 | papers |")) << table.substr(0, 400);
  const Outcome again = run("lab masks -q " + files);
  EXPECT_EQ(again.code, 1);
  EXPECT_TRUE(has(again.err, "--force")) << again.err;
  EXPECT_EQ(run("lab masks -q --force --effort 0.5 --seed 3 -t 1 " + files).code, 0);
  // The page says what was run, where and when.
  const std::string made = read_text_file(markdown, 1 << 24);
  EXPECT_TRUE(has(made, "Made by `rapt lab masks --seed 3 --effort 0.5 -t 1`: rapt ")) << made.substr(0, 600);
  EXPECT_TRUE(has(made, " on 1 thread (") && has(made, "This was effort 0.5")) << made.substr(0, 600);
  // Where a file cannot be written, nothing is measured.
  for (const char* flag : {"--html", "--markdown"}) {
    const Outcome no_folder = run(std::string("lab masks -q ") + flag + " '" + folder / "none/x.html" + "'");
    EXPECT_EQ(no_folder.code, 1);
    EXPECT_EQ(no_folder.out, "");
    EXPECT_TRUE(has(no_folder.err, "there is no folder")) << no_folder.err;
  }
}

TEST_F(Cli, LabShowsOneTraining) {
  const Outcome o = run("lab sink --steps 4 --layers 1 --gate -q");
  EXPECT_EQ(o.code, 0) << o.err;
  EXPECT_TRUE(has(o.out, "with a sigmoid gate after its attention")) << o.out;
  EXPECT_TRUE(has(o.out, "4 steps in")) << o.out;
  EXPECT_EQ(parse_json(run("lab sink --steps 2 --layers 1 --json -q").out).find("experiment")->string(),
            "sink");
}

TEST_F(Cli, LabUsageErrors) {
  const std::pair<const char*, const char*> cases[] = {
      {"lab kye-bias", "did you mean 'key-bias'"},
      {"lab masks scale", "wants one experiment"},
      {"lab masks --all", "masks is named too"},
      {"lab masks --seed 1 --seeds 2", "exclude each other"},
      {"lab masks --effort 2", "--effort"},
      {"lab masks --seeds x", "no seed"},
      {"lab masks --steps 3", "belong to rapt lab sink"},
      {"lab sink --steps 3 --html x.html", "one training to look at"},
      {"lab masks --keep 4", "belong to rapt lab streaming"},
      {"lab streaming a.gguf b.txt --gate", "streaming --window"},
      {"lab --seed 3", "wants the name"},
  };
  for (const auto& [args, message] : cases) {
    const Outcome o = run(args);
    EXPECT_EQ(o.code, 2) << args;
    EXPECT_EQ(o.out, "") << args;
    EXPECT_TRUE(has(o.err, message)) << args << ": " << o.err;
  }
}

}  // namespace
}  // namespace rapt::test
