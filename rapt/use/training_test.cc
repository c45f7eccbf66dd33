// SPDX-License-Identifier: Apache-2.0
// A training from a text and a recipe that are no files, with its states in memory: the same steps as from
// files, with states in a folder.
#include "rapt/use/training.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "tests/tools.h"
#include "tests/training_data.h"

namespace rapt::test {
namespace {

TrainingPlan small_plan() {
  TrainingPlan plan{
      .recipe = "gpt-char", .settings = {"width=16", "layers=1", "heads=2"}, .batch = 4, .length = 16};
  plan.data.vocab.kind = VocabKind::characters;
  plan.options.steps = 8;
  plan.options.save_every = 2;
  return plan;
}

std::vector<double> losses(TrainingRun& run, Dim stop_after = 100) {
  std::vector<double> out;
  std::atomic<int> stop = 0;
  TrainEvents events;
  events.step = [&](const StepReport& r) {
    out.push_back(r.loss);
    if (r.step == stop_after) stop = 1;
  };
  EXPECT_EQ(run.run(events, stop), stop_after > 8);
  return out;
}

TEST(TrainingRun, InMemoryAsFromFiles) {
  const TempFolder folder;
  const std::string text = long_text(200);
  put_file(folder / "a.txt", text);
  TrainingPlan plan = small_plan();
  plan.data.path = folder / "a.txt";
  Device device;
  TrainingRun files(device, plan);
  files.open_folder(folder / "run", false, {});
  const std::vector<double> wanted = losses(files);
  ASSERT_EQ(wanted.size(), 8U);

  plan = small_plan();
  plan.own = preset("gpt-char");
  plan.recipe = "no file of this name";
  plan.data.path = "no file";
  plan.data.text = std::make_shared<const std::string>(text);
  const auto there = [] {
    return std::distance(std::filesystem::directory_iterator("."), std::filesystem::directory_iterator());
  };
  const auto before = there();
  TrainingRun memory(device, plan);
  memory.open_memory();
  EXPECT_EQ(losses(memory), wanted);
  EXPECT_EQ(memory.finish().model, "");
  EXPECT_EQ(memory.sample(device, "a", 3), files.sample(device, "a", 3));
  EXPECT_EQ(there(), before) << "nothing is written";

  // Stopped and gone on with from the state in memory.
  TrainingRun halves(device, plan);
  halves.open_memory();
  std::vector<double> both = losses(halves, 5);
  for (const double loss : losses(halves)) both.push_back(loss);
  EXPECT_EQ(both, wanted);
}

}  // namespace
}  // namespace rapt::test
