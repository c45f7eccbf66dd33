// SPDX-License-Identifier: Apache-2.0
// The guide: every question is whole, what it says is what was measured, and docs/guide is what it writes.
#include "rapt/lab/guide.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <set>

#include "rapt/base/text.h"

namespace rapt {
namespace {

std::string read(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

TEST(Guide, EveryQuestionIsWhole) {
  std::set<int> items;
  std::size_t questions = 0;
  for (const GuideTopic& t : guide_topics())
    for (const GuideQuestion& q : t.questions) {
      const std::string where = concat(t.name, ".", q.name);
      ++questions;
      items.insert(q.items.begin(), q.items.end());
      EXPECT_TRUE(q.command.starts_with("rapt ")) << where;
      for (const char* what : {"says", "why"}) {
        const Text said = say(concat("guide.", where, ".", what));
        EXPECT_NE(said.in(Language::en), said.in(Language::zh)) << where;
        EXPECT_GT(said.size(), 10u) << where;
      }
      if (!q.experiment.empty() && q.experiment.find('@') == std::string::npos &&
          q.command.starts_with("rapt lab"))
        EXPECT_NO_THROW(find_experiment(q.experiment)) << where;
      if (const GuideResult* r = guide_result(q.experiment))
        for (const std::size_t i : q.findings) EXPECT_LT(i, r->results.at(0).findings.size()) << where;
      // What stands beside is the same experiment: the same sentences, with other values perhaps.
      for (const std::string& other : q.beside) {
        const GuideResult *r = guide_result(q.experiment), *of = guide_result(other);
        ASSERT_TRUE(r && of) << where << ": " << other;
        ASSERT_EQ(r->results.at(0).findings.size(), of->results.at(0).findings.size()) << other;
        for (std::size_t i = 0; i < r->results[0].findings.size(); ++i)
          EXPECT_EQ(r->results[0].findings[i].what.json().find("say")->string(),
                    of->results[0].findings[i].what.json().find("say")->string());
      }
      for (const auto& [other, rows] : q.below) {
        const GuideResult *r = guide_result(q.experiment), *of = guide_result(other);
        ASSERT_TRUE(r && of) << where << ": " << other;
        EXPECT_EQ(r->seeds, of->seeds) << where << ": " << other;
        for (const std::size_t i : rows) EXPECT_LT(i, of->results.at(0).findings.size()) << where;
      }
    }
  EXPECT_GT(questions, 90u);
  // The list of items: all but an analogy that asks nothing (138).
  for (int i = 1; i <= 184; ++i) EXPECT_TRUE(items.contains(i) || i == 138) << "item " << i;
}

// Every experiment that can be run without a model has a place in the guide.
TEST(Guide, EveryExperimentIsInIt) {
  std::set<std::string> asked;
  for (const GuideTopic& t : guide_topics())
    for (const GuideQuestion& q : t.questions) asked.insert(q.experiment);
  for (const Experiment& e : experiments()) EXPECT_TRUE(asked.contains(e.name)) << e.name;
}

TEST(Guide, PagesAreWhatTheProgramWrites) {
  const std::filesystem::path docs = std::filesystem::path(RAPT_SOURCE_DIR) / "docs" / "guide";
  std::set<std::string> written;
  for (const auto& [path, text] : guide_files()) {
    EXPECT_TRUE(read(docs / path) == text)
        << path << ": write it again with rapt guide --pages docs/guide --force";
    EXPECT_LT(text.size(), 300'000u) << path;
    written.insert(path);
  }
  for (const auto& entry : std::filesystem::recursive_directory_iterator(docs))
    if (entry.is_regular_file())
      EXPECT_TRUE(written.contains(std::filesystem::relative(entry.path(), docs).generic_string()))
          << entry.path() << " is no page of the guide";
}

}  // namespace
}  // namespace rapt
