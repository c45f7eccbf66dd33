// SPDX-License-Identifier: Apache-2.0
// A run on several ranks is the run of one: its states, what is heard of it, its result, whoever decides.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>

#include "rapt/load/checkpoint.h"
#include "rapt/load/model_folder.h"
#include "rapt/use/store.h"
#include "tests/crash_fs.h"
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

struct RanksOutcome {
  std::vector<std::string> heard;              // by rank 0; of others every word is a mistake
  std::vector<std::vector<std::byte>> weights; // by rank, when it had finished
  std::vector<StoredFile> files;               // of the last state
  Json state;
};

struct RunPlan {
  Recipe recipe;
  TrainOptions options;
  const TrainData& data;
  const Kernels* kernels = nullptr;
};

// A run to its end, in a folder of its own or in one that is given.
RanksOutcome run_to_end(int ranks, const RunPlan& plan, const std::string& given = "") {
  const TempFolder own;
  const std::string folder = given.empty() ? own.path() : given;
  RanksOutcome out;
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

void expect_same(const RanksOutcome& many, const RanksOutcome& one) {
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

// With looks, states, a moving average (of moments and of matrices that muon moves as a whole), and the mean
// of the last states.
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
    const RunPlan plan{.recipe = wide, .options = o, .data = kJudged};
    const RanksOutcome one = run_to_end(1, plan);
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
  const RunPlan plan{.recipe = small(), .options = o, .data = data};
  const RanksOutcome one = run_to_end(1, plan);
  EXPECT_THAT(one.heard, testing::Contains(HasSubstr("goes back to step 3")));
  for (const int ranks : {2, 3}) expect_same(run_to_end(ranks, plan), one);
}

// A run that is stopped and goes on in other numbers of ranks, by a signal that any of them gets, and with
// states that only rank 0's clock asks for.
TEST(TrainRanks, StopAndSaveTogether) {
  TrainOptions o = options(12);
  o.accumulate = 6, o.save_minutes = 5;
  const Recipe recipe = small("gpt2", {"dropout=0.1"});
  const RanksOutcome whole = run_to_end(1, {.recipe = recipe, .options = o, .data = kJudged});
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

// ------------------------------------------------------------------------------------------- states in parts
// A state that is cut into files is a model folder that opens, its tensors are those of whole files, and any
// number of ranks writes the same bytes.
TEST(TrainRanks, StatesAreCutAlikeByAnyNumber) {
  TrainOptions o = options(4);
  o.accumulate = 3;
  o.optimizer.ema = 0.9;
  const Recipe recipe = small("gpt2", {"width=48", "ffn=400"});
  const auto save = [&](const std::string& folder, int ranks, std::uint64_t most) {
    run_ranks(ranks, [&](Comm& comm) {
      Device device({.threads = 1});
      Model model(recipe, device.real);
      init(model, 1);
      Trainer trainer(device, model, kJudged, o, &comm);
      Store store(folder);
      TrainEvents events;
      events.state_file = most;
      events.extra_files = [&] {
        std::vector<StoredFile> files;
        for (auto& [name, bytes] : model_folder_description(model, {.own = true}))
          files.push_back({name, std::move(bytes)});
        return files;
      };
      EXPECT_TRUE(train(trainer, o, store, events, kNever));
    });
    const Store store(folder);
    return store.all().back();
  };
  const TempFolder whole, cut;
  const Stored one = save(whole.path(), 1, kStateFile), parts = save(cut.path(), 1, 40'000);
  const std::vector<std::string> names = Store(cut.path()).names(parts);
  EXPECT_THAT(names, testing::Contains("model-00001-of-00010.safetensors"));
  EXPECT_THAT(names, testing::Contains("model.safetensors.index.json"));
  EXPECT_THAT(names, testing::Contains("optimizer.safetensors.index.json"));
  EXPECT_THAT(Store(whole.path()).names(one), testing::Contains("model.safetensors"));
  const auto tensors = [](const std::string& folder) {
    std::vector<std::byte> out;
    const Checkpoint c = open_checkpoint(folder);
    for (const Weight& w : c.model->weights) {
      const std::vector<std::byte> bytes = row_major(w);
      out.insert(out.end(), bytes.begin(), bytes.end());
    }
    return out;
  };
  EXPECT_EQ(tensors(parts.folder), tensors(one.folder));
  for (const int ranks : {2, 3, 8}) {
    const TempFolder folder;
    const Stored many = save(folder.path(), ranks, 40'000);
    EXPECT_EQ(Store(folder.path()).names(many), names);
    for (const std::string& name : names)
      EXPECT_EQ(Store(folder.path()).file(many, name), Store(cut.path()).file(parts, name)) << name;
  }
  // A run goes on from it, cut otherwise than before.
  o.steps = 6, o.schedule.kind = Schedule::Kind::constant;
  TrainOptions first = o;
  first.steps = 4;
  std::swap(o, first);
  const TempFolder straight, turns;
  save(straight.path(), 1, kStateFile);
  save(turns.path(), 3, 40'000);
  std::swap(o, first);
  const Stored a = save(straight.path(), 1, kStateFile), b = save(turns.path(), 2, kStateFile);
  for (const char* name : {"model.safetensors", "optimizer.safetensors"})
    EXPECT_EQ(Store(straight.path()).file(a, name), Store(turns.path()).file(b, name)) << name;
}

// Ranks that share no folder with rank 0: it has all states, and says so once.
TEST(TrainRanks, NeedNoFolderInCommon) {
  TrainOptions o = options(6);
  o.accumulate = 4, o.save_every = 2;
  const Recipe recipe = small("gpt2");
  const RanksOutcome one = run_to_end(1, {.recipe = recipe, .options = o, .data = kJudged});
  const TempFolder folder, elsewhere;
  std::vector<std::string> said;
  for (const int ranks : {3, 2})  // the second only reads and judges
    run_ranks(ranks, [&](Comm& comm) {
      Device device({.threads = 1});
      Model model(recipe, device.real);
      init(model, 1);
      Trainer trainer(device, model, kJudged, o, &comm);
      Store store(comm.rank() == 0 ? folder.path() : elsewhere.path());
      TrainEvents events;
      events.say = [&](const std::string& text) { said.push_back(text); };
      EXPECT_TRUE(train(trainer, o, store, events, kNever));
      EXPECT_EQ(weights_of(model), one.weights[0]);
    });
  EXPECT_THAT(said,
              testing::ElementsAre(HasSubstr("2 of 3 ranks (1, 2) do not see"), HasSubstr("goes on from")));
  const Store store(folder.path());
  for (const StoredFile& f : one.files) EXPECT_EQ(store.file(store.all().back(), f.name), f.bytes) << f.name;
  EXPECT_TRUE(real_fs().list(elsewhere.path()).empty());
}

// ---------------------------------------------------------------------------------------------------- kills
// A job of which one rank is killed at one of the moments that are counted: calls between ranks, calls of a
// file system, batches that are read. From then on nothing reaches a disk any more.
struct Mortality {
  int victim = -1;
  std::int64_t left = 0;
  std::atomic<bool> dead{false};
  std::array<std::atomic<std::int64_t>, 8> moments{};  // by rank

  void moment(int rank) {
    if (dead) throw Error("the job is dead");
    const std::int64_t n = ++moments[static_cast<std::size_t>(rank)];
    if (rank != victim || n < left) return;
    dead = true;
    throw Error("killed");
  }
};

class MortalComm : public Comm {
 public:
  MortalComm(Comm& under, Mortality& m) : under_(under), m_(m) {}
  int rank() const override { return under_.rank(); }
  int size() const override { return under_.size(); }
  void barrier() override { m_.moment(rank()), under_.barrier(); }
  void all_to_all(std::span<const Bytes> send, std::span<const Space> receive) override {
    m_.moment(rank()), under_.all_to_all(send, receive);
  }
  void all_gather(Bytes mine, std::span<const Space> all) override {
    m_.moment(rank()), under_.all_gather(mine, all);
  }
  void broadcast(Space bytes, int from) override { m_.moment(rank()), under_.broadcast(bytes, from); }
  [[noreturn]] void abort(const std::string& why) override { under_.abort(why); }

 private:
  Comm& under_;
  Mortality& m_;
};

class MortalData : public Judged {
 public:
  MortalData(int rank, Mortality& m) : rank_(rank), m_(m) {}
  TrainBatch batch(std::uint64_t number) const override {
    m_.moment(rank_);
    return Judged::batch(number);
  }
  TrainBatch held_out_batch(Dim number) const override {
    m_.moment(rank_);
    return Judged::held_out_batch(number);
  }

 private:
  const int rank_;
  Mortality& m_;
};

// One start of the job: to its end, or to its death. `saved`: the last state that was reported.
bool live(int ranks, const std::string& folder, const Recipe& recipe, const TrainOptions& o, Mortality& m,
          std::int64_t& saved) {
  try {
    run_ranks(ranks, [&](Comm& under) {
      MortalComm comm(under, m);
      const MortalData data(comm.rank(), m);
      HookFs fs(real_fs(), [&](const char*, const std::string&) { m.moment(comm.rank()); });
      Device device({.threads = 1});
      Model model(recipe, device.real);
      init(model, 1);
      Trainer trainer(device, model, data, o, &comm);
      Store store(folder, fs);
      TrainEvents events;
      events.state_file = 30'000;
      events.saved = [&](const Stored& s) { saved = s.step; };
      train(trainer, o, store, events, kNever);
    });
    return true;
  } catch (const Error&) {
    EXPECT_TRUE(m.dead);
    return false;
  }
}

// A random rank dies at a random moment, again and again, and each time another number of them goes on: the
// result is that of a run that nobody touched, and no state that was reported is ever missing.
TEST(TrainRanks, KilledAnywhereAndGoneOnByAnyNumber) {
  TrainOptions o = options(9);
  o.accumulate = 5, o.save_every = 1, o.eval_every = 3;
  o.optimizer.ema = 0.9;
  const Recipe recipe = small("gpt2", {"width=48", "ffn=400", "dropout=0.1"});
  std::int64_t whole_moments = 0;  // of rank 0, which has the most
  std::vector<StoredFile> expected;
  const auto files_in = [](const std::string& folder) {
    const Store store(folder);
    const Stored last = store.all().back();
    std::vector<StoredFile> out;
    for (const std::string& name : store.names(last)) out.push_back({name, store.file(last, name)});
    return out;
  };
  {
    const TempFolder folder;
    Mortality never;
    std::int64_t saved = -1;
    ASSERT_TRUE(live(3, folder.path(), recipe, o, never, saved));
    whole_moments = never.moments[0];
    expected = files_in(folder.path());
  }
  int kills = 0, finished = 0, lost = 0, half = 0;
  std::uint64_t draw = 0;
  const auto random = [&](Dim below) { return random_below(below, 23, ++draw); };
  while (kills < 20 || finished == 0) {
    const TempFolder folder;
    std::int64_t saved = -1;
    for (bool done = false; !done;) {
      const auto ranks = static_cast<int>(1 + random(8));
      Mortality m;
      if (kills < 20) m.victim = static_cast<int>(random(ranks)), m.left = 1 + random(whole_moments / 2);
      done = live(ranks, folder.path(), recipe, o, m, saved);
      kills += !done;
      const Store store(folder.path());
      std::vector<std::string> said;
      const std::optional<Stored> newest =
          Store(folder.path()).latest([&](const std::string& text) { said.push_back(text); });
      half += !said.empty();
      lost += (newest ? newest->step : -1) < saved;
    }
    ++finished;
    const std::vector<StoredFile> files = files_in(folder.path());
    ASSERT_EQ(files.size(), expected.size());
    for (std::size_t f = 0; f < files.size(); ++f) {
      EXPECT_EQ(files[f].name, expected[f].name);
      EXPECT_EQ(files[f].bytes, expected[f].bytes) << files[f].name << " after " << kills << " kills";
    }
  }
  std::printf("[  COUNTS  ] %d kills, %d runs to their end: %d states lost, %d half written\n", kills,
              finished, lost, half);
  EXPECT_EQ(lost, 0);
  EXPECT_EQ(half, 0);
}

}  // namespace
}  // namespace rapt
