// SPDX-License-Identifier: Apache-2.0
// rapt inspect heads, attention and sinks as people run them, on a toy checkpoint that the test writes.
#include "rapt/base/json.h"
#include "tests/cli.h"
#include "tests/toy_checkpoint.h"

namespace rapt::test {
namespace {

class CliInspect : public Cli {
 protected:
  void SetUp() override {
    Cli::SetUp();
    folder = testing::TempDir() + "rapt_cli_inspect." + std::to_string(getpid());
    std::filesystem::create_directories(folder);
    write_folder(read_toy("llama3.1"), folder + "/toy");
  }
  void TearDown() override { std::filesystem::remove_all(folder); }
  Outcome look(const std::string& view, const std::string& more = "") const {
    return run("inspect " + view + " '" + folder + "/toy' --ids '1 2 3 4 5 3 4 5 3 4' -t 1 --quiet " + more);
  }
  std::string folder;
};

TEST_F(CliInspect, HeadsAsTextAndAsJson) {
  const Outcome text = look("heads");
  EXPECT_EQ(text.code, 0) << text.err;
  EXPECT_TRUE(has(text.out, "layer by head")) << text.out;
  const Outcome json = look("heads", "--json --metric entropy");
  ASSERT_EQ(json.code, 0) << json.err;
  const Json d = parse_json(json.out);
  EXPECT_EQ(d.find("name")->string(), "heads");
  const Json::Array& heads = d.find("facts")->find("heads")->array();
  ASSERT_FALSE(heads.empty());
  for (const Json& h : heads) {
    EXPECT_GE(h.find("entropy")->number(), 0);
    EXPECT_LE(h.find("first")->number(), 1 + 1e-6);
  }
  const Outcome files = look("heads", "--headvis '" + folder + "/headvis'");
  EXPECT_EQ(files.code, 0) << files.err;
  EXPECT_TRUE(std::filesystem::exists(folder + "/headvis/heads/L0H0.json"));
  EXPECT_EQ(look("heads", "--metric none").code, 2);
}

TEST_F(CliInspect, AttentionAsAPicture) {
  const Outcome o = look("attention", "--layer 0 --head 1 --rows 2:8 --keys 1:5 --out '" + folder + "/map.svg' --json");
  ASSERT_EQ(o.code, 0) << o.err;
  EXPECT_TRUE(std::filesystem::exists(folder + "/map.svg"));
  const Json d = parse_json(o.out);
  const Json& facts = *d.find("facts");
  EXPECT_EQ(facts.find("head")->integer(), 1);
  EXPECT_EQ(facts.find("rows")->array()[1].integer(), 8);
  EXPECT_EQ(look("attention", "--rows 5").code, 2);
  EXPECT_EQ(look("attention", "--rows 5:50").code, 1);
  EXPECT_EQ(look("attention", "--head 99").code, 2);
}

TEST_F(CliInspect, SinksOfSeveralTexts) {
  const Outcome o = look("sinks", "--length 5 --first 2 --epsilon 0.2 --json");
  ASSERT_EQ(o.code, 0) << o.err;
  const Json d = parse_json(o.out);
  EXPECT_EQ(d.find("facts")->find("texts")->integer(), 2);
  EXPECT_EQ(d.find("facts")->find("tokens")->integer(), 5);
  EXPECT_EQ(d.find("facts")->find("sink")->array().size(), 2u);
  EXPECT_EQ(look("sinks", "--epsilon 2").code, 2);
}

TEST_F(CliInspect, ViewsComeFirstAndAreKnown) {
  const Outcome unknown = run("inspect hads model");
  EXPECT_EQ(unknown.code, 2);
  EXPECT_TRUE(has(unknown.err, "heads")) << unknown.err;
  EXPECT_EQ(run("inspect --json").code, 2);
  EXPECT_EQ(run("inspect heads").code, 2);
  EXPECT_TRUE(has(run("inspect --help").out, "--epsilon"));
}

}  // namespace
}  // namespace rapt::test
