// SPDX-License-Identifier: Apache-2.0
// Logs as runs leave them, whole and damaged; figures over layers; what differs, and how runs are called.
#include "rapt/use/compare_runs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <sstream>

#include "rapt/base/text.h"
#include "tests/tools.h"

namespace rapt {
namespace {

using test::error_of;
using test::put_file;
using test::TempFolder;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

std::string plan_line(const std::string& options, const std::string& data = R"("batch":4)",
                      const std::string& recipe = "") {
  const std::string model =
      recipe.empty()
          ? R"({"width":8,"vocab":11,"context":16,"decoder":{"layers":2,"kinds":{"L":{"parts":[{"self":{"heads":2}}]}}}})"
          : recipe;
  return concat(R"({"step":0,"plan":{"data":{)", data, R"(},"options":{)", options, R"(}},"recipe":)", model,
                R"(,"data":"100 tokens"})", "\n");
}

class Runs : public testing::Test {
 protected:
  TempFolder folder;
  std::string put(const std::string& name, const std::string& log) {
    std::filesystem::create_directories(folder / name);
    put_file((folder / name) + "/metrics.jsonl", log);
    return folder / name;
  }
  Document compared(std::vector<std::string> names) {
    std::vector<RunRecord> runs;
    for (const std::string& name : names) runs.push_back(read_run(folder / name));
    return compare_runs(runs);
  }
};

TEST_F(Runs, ALogIsReadAsItIsAndWhereItIsCut) {
  const RunLog log = read_run_log(
      put("a", plan_line(R"("steps":4)") +
                   "{\"step\":1,\"loss\":4.0,\"seconds\":0.5,\"attention\":["
                   "{\"stack\":\"decoder\",\"layer\":0,\"entropy\":1.0,\"max_logit\":3,\"massive\":9},"
                   "{\"stack\":\"decoder\",\"layer\":1,\"entropy\":3.0,\"max_logit\":7,\"massive\":2},"
                   "{\"stack\":\"decoder\",\"layer\":2,\"massive\":null}]}\n"
                   "{\"step\":2,\"loss\":null,\"seconds\":0.5}\n"
                   "{\"step\":2,\"loss\":99,\"seconds\":0.25,\"fate\":\"skipped\",\"why\":\"x\"}\n"
                   "\n"
                   "{\"step\":3,\"loss\":2.0,\"seconds\":0.25}\n"
                   "{\"step\":3,\"held_out_loss\":2.5}\n"
                   "[1,2]\n"
                   "{\"step\":4,\"loss\":1.") +
      "/metrics.jsonl");
  EXPECT_THAT(log.loss.x, ElementsAre(1, 2, 3));
  EXPECT_EQ(log.loss.y[0], 4);
  EXPECT_TRUE(std::isnan(log.loss.y[1]));
  EXPECT_DOUBLE_EQ(log.loss.y[2], 0.95 * 4 + 0.05 * 2);
  EXPECT_THAT(log.held_out.y, ElementsAre(2.5));
  EXPECT_EQ(log.steps, 3);
  EXPECT_EQ(log.skipped, 1);
  EXPECT_EQ(log.unread, 2);  // the list, and the line that was cut
  EXPECT_DOUBLE_EQ(log.seconds, 1.5);
  EXPECT_FALSE(log.finished);
  EXPECT_THAT(over_layers(log, "entropy", false).y, ElementsAre(2.0));  // of the two layers that attend
  EXPECT_THAT(over_layers(log, "max_logit", true).y, ElementsAre(7.0));
  EXPECT_TRUE(std::isnan(over_layers(log, "massive", true).y[0]));  // one of them was not finite
  EXPECT_TRUE(over_layers(log, "gate_mean", false).y.empty());
}

TEST_F(Runs, AreCalledByWhatDiffers) {
  const std::string end = "{\"step\":2,\"loss\":1.5,\"seconds\":1}\n{\"step\":2,\"held_out_loss\":1.25}\n";
  put("a", plan_line(R"("steps":2,"seed":0,"optimizer.rate":0.1,"eval_every":0)") + end);
  put("b", plan_line(R"("steps":2,"seed":1,"optimizer.rate":0.3,"eval_every":5)", R"("batch":8)") + end);
  const Document d = compared({"a", "b"});
  const Json& runs = *d.facts.find("runs");
  EXPECT_EQ(runs.array()[0].find("name")->string(), "rate=0.1 batch=4 seed=0");
  EXPECT_EQ(runs.array()[1].find("name")->string(), "rate=0.3 batch=8 seed=1");
  EXPECT_EQ(runs.array()[0].find("parameters")->integer(), 8 * 11 * 2 + 2 * (4 * 8 * 8));
  EXPECT_EQ(runs.array()[1].find("held_out_loss")->number(), 1.25);
  EXPECT_TRUE(runs.array()[1].find("finished")->boolean());
  std::vector<std::string> keys;
  for (const Json& x : d.facts.find("differences")->array()) keys.emplace_back(x.find("key")->string());
  EXPECT_THAT(keys, ElementsAre("train.optimizer.rate", "train.eval_every", "--batch", "train.seed"));
  EXPECT_EQ(d.facts.find("notes")->array().size(), 0u);
}

TEST_F(Runs, OfTheSameKindAreCalledByTheirFolders) {
  put("x/a", plan_line(R"("steps":2)"));
  put("y/a", plan_line(R"("steps":2)"));
  const Document d = compared({"x/a", "y/a/"});
  EXPECT_EQ(d.facts.find("runs")->array()[0].find("name")->string(), "x/a");
  EXPECT_EQ(d.facts.find("runs")->array()[1].find("name")->string(), "y/a");
  EXPECT_THAT(document_text(d, false, 80),
              AllOf(HasSubstr("Nothing that is known"), HasSubstr("x/a: its log has no step yet")));
}

TEST_F(Runs, SayWhatCannotBeCompared) {
  put("cut", plan_line(R"("steps":9)", R"("objective":"causal")") +
                 "{\"step\":1,\"loss\":null}\n{\"step\":2,\"loss\":3}\n"
                 "{\"step\":2,\"event\":\"failed: went back 3 times\"}\n{\"ste");
  put("other",
      plan_line(
          R"("steps":9)", R"("objective":"translation")",
          R"({"width":8,"vocab":7,"context":16,"decoder":{"layers":2,"kinds":{"L":{"parts":[{"self":{"heads":2}}]}}}})") +
          "{\"step\":4,\"loss\":3}\n");
  put("old", "{\"step\":1,\"loss\":3}\n{\"step\":2,\"loss\":2}\n");  // an earlier version's, without states
  const std::string text = document_text(compared({"cut", "other", "old"}), false, 80);
  EXPECT_THAT(text, AllOf(HasSubstr("cut failed after 2 steps: went back 3 times."),
                          HasSubstr("the loss of 1 step was not finite"), HasSubstr("1 line of its log"),
                          HasSubstr("other stands at step 4 of 9."),
                          HasSubstr("They learn different things (causal, translation)"),
                          HasSubstr("old: what it was trained with is not known"), HasSubstr("not known")));
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) EXPECT_LE(text_width(line), 80) << line;
  const std::string html = documents_html("t", std::vector<Document>{compared({"cut", "other", "old"})});
  EXPECT_THAT(html, HasSubstr("Training loss, smoothed"));
}

TEST_F(Runs, ManyLongNamesBecomeNumbers) {
  std::vector<std::string> names;
  for (int i = 0; i < 40; ++i) {
    names.push_back("a-run-with-a-name-that-takes-some-room-" + std::to_string(i));
    put(names.back(), "{\"step\":1,\"loss\":3}\n{\"step\":2,\"loss\":" + std::to_string(i) + "}\n");
  }
  const Document d = compared(names);
  EXPECT_THAT(documents_html("t", std::vector<Document>{d}), HasSubstr(">#40</text>"));
  EXPECT_THAT(document_text(d, false, 80), HasSubstr("#40 a-run"));
}

TEST_F(Runs, OverSeeds) {
  const auto run = [&](const char* name, const char* rate, int seed, double held) {
    put(name, plan_line(concat(R"("steps":1,"optimizer.rate":)", rate, R"(,"seed":)", seed)) +
                  concat("{\"step\":1,\"loss\":3}\n{\"step\":1,\"held_out_loss\":", held, "}\n"));
  };
  run("a", "0.1", 0, 2.0), run("b", "0.1", 1, 3.0), run("c", "0.2", 0, 5.0), run("d", "0.2", 1, 6.0);
  const Document d = compared({"a", "b", "c", "d"});
  const Table* seeds = nullptr;
  for (const auto& part : d.parts)
    if (const auto* t = std::get_if<Table>(&part); t && t->columns[1] == "seeds") seeds = t;
  ASSERT_NE(seeds, nullptr);
  ASSERT_EQ(seeds->rows.size(), 2u);
  EXPECT_EQ(seeds->rows[0][0].text, "rate=0.1");
  EXPECT_EQ(seeds->rows[0][2].number, 2.5);
  EXPECT_EQ(seeds->rows[1][3].number, 5.0);
  EXPECT_EQ(seeds->rows[1][4].number, 6.0);
}

TEST_F(Runs, FoldersThatAreNoRunsSayWhatTheyAre) {
  const std::string run = put("sweep/a", "");
  put("sweep/b", "");
  std::filesystem::create_directories(run + "/model");
  put_file(folder / "file", "x");
  EXPECT_THAT(error_of([&] { read_run(folder / "nowhere"); }), HasSubstr("there is no such folder"));
  EXPECT_THAT(error_of([&] { read_run(folder / "file"); }), HasSubstr("is no folder"));
  EXPECT_THAT(error_of([&] { read_run(run + "/model/"); }),
              AllOf(HasSubstr("holds no metrics.jsonl"), HasSubstr("here " + run)));
  EXPECT_THAT(run_folders(folder / "sweep"), ElementsAre(folder / "sweep/a", folder / "sweep/b"));
  EXPECT_THAT(run_folders(folder / "nowhere"), ElementsAre(folder / "nowhere"));
}

}  // namespace
}  // namespace rapt
