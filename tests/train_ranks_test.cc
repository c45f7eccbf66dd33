// SPDX-License-Identifier: Apache-2.0
// A run on several ranks is the run of one: its states, what is heard of it, its result, whoever decides.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>

#include "rapt/use/store.h"
#include "tests/tools.h"
#include "tests/train_tools.h"

namespace rapt {
namespace {

using namespace test;
using testing::HasSubstr;

// More held-out batches than ranks, of different sizes.
class Judged : public Uneven {
 public:
  Dim held_out() const override { return 11; }
  TrainBatch held_out_batch(Dim number) const override {
    return Chain(1 + number * 3 % 5).held_out_batch(number);
  }
};

std::string exact(double x) {
  char text[40];
  std::snprintf(text, sizeof text, "%a", x);
  return text;
}

struct Outcome {
  std::vector<std::string> heard;              // by rank 0; of others every word is a mistake
  std::vector<std::vector<std::byte>> weights; // by rank, when it had finished
  std::vector<StoredFile> files;               // of the last state
  Json state;
};

struct Plan {
  Recipe recipe;
  TrainOptions options;
  const TrainData& data;
  const Kernels* kernels = nullptr;
};

// A run to its end, in a folder of its own or in one that is given.
Outcome run_to_end(int ranks, const Plan& plan, const std::string& given = "") {
  const TempFolder own;
  const std::string folder = given.empty() ? own.path() : given;
  Outcome out;
  out.weights.resize(static_cast<std::size_t>(ranks));
  run_ranks(ranks, [&](Comm& comm) {
    const DeviceOptions one{.threads = 1};
    const auto device =
        plan.kernels ? std::make_unique<Device>(*plan.kernels, one) : std::make_unique<Device>(one);
    Model model(plan.recipe, device->real);
    init(model, 1);
    Trainer trainer(*device, model, plan.data, plan.options, &comm);
    Store store(folder, real_fs(), static_cast<int>(std::max<Dim>(2, plan.options.average)));
    const auto hear = [&](const auto&... parts) {
      EXPECT_EQ(comm.rank(), 0);
      out.heard.push_back(concat(parts...));
    };
    TrainEvents events;
    events.step = [&](const StepReport& r) {
      hear("step ", r.step, " of batch ", r.batch, ": ", exact(r.loss), " ", exact(r.norm), " ", r.why);
    };
    events.judged = [&](Dim step, const Judgement& j) {
      hear("judged ", step, ": ", exact(j.loss), " ", exact(j.accuracy), " ", j.counted);
    };
    events.saved = [&](const Stored& s) { hear("saved ", s.step); };
    events.say = [&](const std::string& text) { hear(text.substr(0, text.find(folder))); };
    EXPECT_TRUE(train(trainer, plan.options, store, events, kNever));
    if (comm.rank() == 0) {
      const Stored last = *store.latest();
      out.state = last.state;
      for (const std::string& name : real_fs().list(last.folder))
        if (name != "manifest.json") out.files.push_back({name, store.file(last, name)});
    }
    trainer.finish(store);
    const Judgement j = trainer.judge();
    if (comm.rank() == 0) hear("finished: ", exact(j.loss));
    out.weights[static_cast<std::size_t>(comm.rank())] = weights_of(model);
  });
  return out;
}

void expect_same(const Outcome& many, const Outcome& one) {
  EXPECT_EQ(many.heard, one.heard);
  EXPECT_EQ(many.state, one.state);
  ASSERT_EQ(many.files.size(), one.files.size());
  for (std::size_t f = 0; f < one.files.size(); ++f) {
    EXPECT_EQ(many.files[f].name, one.files[f].name);
    EXPECT_EQ(many.files[f].bytes, one.files[f].bytes) << one.files[f].name;
  }
  for (std::size_t r = 0; r < many.weights.size(); ++r)
    EXPECT_EQ(many.weights[r], one.weights[0]) << "rank " << r << " of " << many.weights.size();
}

const Judged kJudged;

// With looks, states, a moving average (of moments and of matrices that muon moves as a whole), and the mean of
// the last states.
TEST(TrainRanks, ARunIsThatOfOneRank) {
  TrainOptions averaged = options(12);
  averaged.accumulate = 5;
  averaged.eval_every = 4, averaged.save_every = 5;
  averaged.optimizer.ema = 0.8;
  TrainOptions muon = averaged;
  muon.optimizer.kind = OptimizerOptions::Kind::muon;
  TrainOptions mean = averaged;
  mean.optimizer.ema = 0;
  mean.average = 3, mean.eval_batches = 4;
  mean.optimizer.kind = OptimizerOptions::Kind::sgd;
  const Recipe wide = small("gpt2", {"width=48", "ffn=400", "dropout=0.1"});
  for (const TrainOptions& o : {averaged, muon, mean}) {
    const Plan plan{.recipe = wide, .options = o, .data = kJudged};
    const Outcome one = run_to_end(1, plan);
    EXPECT_THAT(one.heard, testing::Contains(HasSubstr("judged 8: ")));
    EXPECT_THAT(one.heard, testing::Contains("saved 10"));
    for (const int ranks : {2, 3, 5, 8}) expect_same(run_to_end(ranks, plan), one);
  }
}

// One that keeps failing goes back on all ranks, and goes on as one rank does.
TEST(TrainRanks, GoBackTogether) {
  class Bad : public Judged {
   public:
    TrainBatch batch(std::uint64_t number) const override {
      TrainBatch b = Uneven::batch(number);
      // Steps 5 to 7 find nothing to learn from.
      if (number >= 20 && number < 32) b.targets.assign(b.targets.size(), -1), b.counted = 0;
      return b;
    }
  };
  const Bad data;
  TrainOptions o = options(10);
  o.accumulate = 4, o.save_every = 3;
  const Plan plan{.recipe = small(), .options = o, .data = data};
  const Outcome one = run_to_end(1, plan);
  EXPECT_THAT(one.heard, testing::Contains(HasSubstr("goes back to step 3")));
  for (const int ranks : {2, 3}) expect_same(run_to_end(ranks, plan), one);
}

// A run that is stopped and goes on in other numbers of ranks, by a signal that any of them gets, and with
// states that only rank 0's clock asks for.
TEST(TrainRanks, StopAndSaveTogether) {
  TrainOptions o = options(12);
  o.accumulate = 6, o.save_minutes = 5;
  const Recipe recipe = small("gpt2", {"dropout=0.1"});
  const Outcome whole = run_to_end(1, {.recipe = recipe, .options = o, .data = kJudged});
  const TempFolder folder;
  std::vector<std::string> heard;
  const auto part = [&](int ranks, int asked, Dim after) {
    run_ranks(ranks, [&](Comm& comm) {
      Device device({.threads = 1});
      Model model(recipe, device.real);
      init(model, 1);
      Trainer trainer(device, model, kJudged, o, &comm);
      Store store(folder.path());
      std::atomic<int> stop{0};
      TrainEvents events;
      events.clock = [&] {
        if (comm.rank() == asked && trainer.steps() == after) stop = 1;  // called by every rank at every step
        return comm.rank() == 0 ? 2.5 * static_cast<double>(trainer.steps()) : -1e9 * comm.rank();
      };
      events.saved = [&](const Stored& s) { heard.push_back(concat("saved ", s.step)); };
      EXPECT_EQ(train(trainer, o, store, events, stop), after == 12);
      EXPECT_EQ(trainer.steps(), after);
    });
  };
  part(3, 2, 3), part(7, 0, 4), part(1, 0, 9), part(2, 1, 12);
  EXPECT_THAT(heard, testing::ElementsAre("saved 0", "saved 2", "saved 3", "saved 4", "saved 6", "saved 8",
                                          "saved 9", "saved 11", "saved 12"));
  const Store store(folder.path());
  const Stored last = store.all().back();
  EXPECT_EQ(last.state, whole.state);
  for (const StoredFile& f : whole.files) EXPECT_EQ(store.file(last, f.name), f.bytes) << f.name;
}

}  // namespace
}  // namespace rapt
