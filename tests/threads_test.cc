// SPDX-License-Identifier: Apache-2.0
// One device, many threads: whoever computes, made it or not, alone or in company, in a child of fork(),
// after an exception: the same bits. The preset tsan builds these with the thread sanitizer.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cmath>
#include <cstring>
#include <fstream>
#include <functional>
#include <future>
#include <limits>
#include <stdexcept>
#include <thread>

#include "rapt/ops/loss.h"
#include "rapt/use/generate.h"
#include "tests/build_kind.h"
#include "tests/memory_checkpoint.h"

namespace rapt::test {
namespace {

using Values = std::vector<double>;

bool same(const Values& a, const Values& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(double)) == 0;
}

std::vector<SomeText> texts_of(const Model& model, Dim length = 40) {
  const Dim lengths[] = {length, 7, 19};
  return some_texts(model.recipe, lengths, 3);
}

// Logits so small that denormals decide about their bits.
std::unique_ptr<Model> small_numbers() {
  auto model = std::make_unique<Model>(resolve(small_decoder()), DType::f32);
  randomise(*model, 5);
  for (Weight& w : model->weights)
    if (w.name == "head.weight" || (model->recipe.head.tied && w.name == "embed.tokens"))
      for (Dim r = 0; r < w.rows; ++r)
        for (Dim c = 0; c < w.cols; ++c) w.set(r, c, static_cast<float>(w.get(r, c) * 1e-36));
  return model;
}

bool denormals_are_kept() {
  volatile float small = 1e-38f, tenth = 0.1f;
  return small * tenth != 0;
}

TEST(Threads, AThreadOlderThanTheDeviceGivesTheSameBits) {
  std::promise<Device*> made;
  const auto model = small_numbers();
  const std::vector<SomeText> texts = texts_of(*model);
  Values theirs;
  bool kept = false;
  std::thread older([&, device = made.get_future()]() mutable {
    theirs = logits_of(*device.get(), *model, texts);
    kept = denormals_are_kept();
  });
  Device device({.threads = 2});
  EXPECT_TRUE(denormals_are_kept()) << "making a device changed how its maker computes";
  const Values ours = logits_of(device, *model, texts);
  EXPECT_TRUE(denormals_are_kept()) << "a pass changed how its caller computes";
  made.set_value(&device);
  older.join();
  EXPECT_TRUE(kept);
  EXPECT_TRUE(same(ours, theirs));
  double largest = 0, smallest = 1;
  for (double x : ours)
    largest = std::max(largest, std::abs(x)), smallest = x != 0 ? std::min(smallest, std::abs(x)) : smallest;
  EXPECT_GT(largest, 0);
  EXPECT_LT(smallest, 1e-37);  // the case is one: there are products below the smallest normal number

  Device one({.threads = 1});
  EXPECT_TRUE(same(ours, logits_of(one, *model, texts)));
}

std::vector<std::int32_t> answer(Device& device, const Checkpoint& c, int which) {
  std::vector<std::int32_t> prompt = {0};
  for (int i = 0; i < 5 + 7 * which; ++i)
    prompt.push_back(static_cast<std::int32_t>(2 + (i * (which + 3)) % 27));
  GenerateOptions o;
  o.sampler.temperature = 0.8;
  o.sampler.seed = static_cast<std::uint64_t>(which);
  o.ignore_eos = true;
  o.max_tokens = 12;
  o.samples = 2;
  Session session(device, c, {});
  std::vector<std::int32_t> ids;
  for (const Generated& g : session.generate(prompt, o)) ids.insert(ids.end(), g.ids.begin(), g.ids.end());
  return ids;
}

TEST(Threads, FourSessionsAtOnceOnOneDeviceAnswerAsAlone) {
  const Checkpoint c = memory_checkpoint(small_decoder(), 2);
  Device device({.threads = 2});
  constexpr int kThreads = 4;
  std::vector<std::vector<std::int32_t>> alone;
  for (int i = 0; i < kThreads; ++i) alone.push_back(answer(device, c, i));
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i)
    threads.emplace_back([&, i] {
      for (int round = 0; round < 10; ++round)
        wrong += answer(device, c, i) != alone[static_cast<std::size_t>(i)];
    });
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(wrong, 0);
}

TEST(Threads, AnObserverRunsAPassInsideAPass) {
  Device device({.threads = 2});
  Model model(resolve(small_decoder()), device.real);
  randomise(model, 1);
  const std::vector<SomeText> texts = texts_of(model);
  const Values plain = logits_of(device, model, texts);
  Taps taps;
  int seen = 0;
  taps.see(site::resid_out, [&](const Tapped&) { seen += same(logits_of(device, model, texts), plain); });
  rapt::Run run(device);
  run.taps = &taps;
  const PackedBatch packed(texts);
  EXPECT_TRUE(same(all_values(forward(run, model, packed.batch)), plain));
  EXPECT_EQ(seen, 3);
}

// What f() returns in a child of fork(), as an exit code; a child that hangs is ended.
int in_child(const std::function<int()>& f) {
  const pid_t child = fork();
  if (child == 0) {
    alarm(60);
    _exit(f());
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(Threads, AForkedChildComputes) {
  Device device({.threads = 3});
  Model model(resolve(small_decoder()), device.real);
  randomise(model, 1);
  const std::vector<SomeText> texts = texts_of(model);
  const Values plain = logits_of(device, model, texts);
  const auto same_in_child = [&] {
    return in_child(
        [&] { return same(logits_of(device, model, texts), plain) && device.threads() == 3 ? 0 : 1; });
  };
  EXPECT_EQ(same_in_child(), 0);

  // While another thread is in the middle of its passes: the child has neither that thread nor what
  // it held.
  std::atomic<bool> stop{false};
  std::thread other([&] {
    while (!stop) logits_of(device, model, texts);
  });
  for (int i = 0; i < 5; ++i) EXPECT_EQ(same_in_child(), 0);
  stop = true;
  other.join();

  // From inside a pass: the child is the thread that holds the lease. It goes on with the pass, and lets
  // others in afterwards.
  Taps taps;
  int code = -1, layer = 0;
  taps.see(site::resid_out, [&](const Tapped&) {
    if (layer++ == 1) code = same_in_child();
  });
  rapt::Run run(device);
  run.taps = &taps;
  const PackedBatch packed(texts);
  EXPECT_TRUE(same(all_values(forward(run, model, packed.batch)), plain));
  EXPECT_EQ(code, 0);
  EXPECT_TRUE(same(logits_of(device, model, texts), plain));  // the parent has lost nothing
}

// How many of ten tasks get no scratch of this size.
int without_scratch(Team& team, std::size_t bytes) {
  struct Count {
    Team& team;
    std::size_t bytes;
    std::atomic<int> none{0};
  } count{team, bytes};
  team.run(
      10,
      [](void* p, Dim, int worker) noexcept {
        auto& c = *static_cast<Count*>(p);
        c.none += c.team.scratch(worker, c.bytes) == nullptr;
      },
      &count);
  return count.none;
}

// A task that finds no memory says so; the region ends, and the next one is a new beginning.
TEST(Threads, ScratchThatIsNotToBeHadIsTold) {
  RAPT_NOT_SANITIZED("a program that asks for too much is ended there");
  Team team(2);
  const std::size_t most = std::numeric_limits<std::size_t>::max() / 4;
  EXPECT_EQ(without_scratch(team, most), 10);
  EXPECT_EQ(team.starved(), most);
  EXPECT_EQ(team.starved(), 0u);
  EXPECT_EQ(without_scratch(team, 100), 0);
  EXPECT_EQ(team.starved(), 0u);
}

TEST(Threads, ATeamGoesOnWithTheThreadsThereAre) {
  RAPT_NOT_SANITIZED("a sanitizer takes much address space itself");
  EXPECT_EQ(in_child([] {  // room for the stacks of a few threads only
              std::ifstream statm("/proc/self/statm");
              rlim_t pages = 0;
              statm >> pages;
              const rlim_t bytes = pages * static_cast<rlim_t>(sysconf(_SC_PAGESIZE)) + (rlim_t{40} << 20);
              const rlimit limit{bytes, bytes};
              if (setrlimit(RLIMIT_AS, &limit) != 0) return 2;
              Team team(64);
              std::atomic<int> done{0};
              team.each(1000, [&](Dim) { ++done; });
              return team.threads() < 64 && done == 1000 ? 0 : 1;
            }),
            0);
}

struct TrainedStep {
  double loss = 0;
  Values gradients;
  bool operator==(const TrainedStep& o) const {
    return std::memcmp(&loss, &o.loss, sizeof loss) == 0 && same(gradients, o.gradients);
  }
};

TrainedStep train_step(rapt::Run& run, const Model& model, const PackedBatch& packed) {
  run.reset();
  Gradients& gradients = run.tape->gradients;
  gradients.zero();
  run.random = {7, 1};
  std::vector<std::int32_t> targets(packed.tokens.begin() + 1, packed.tokens.end());
  targets.push_back(-1);
  const Loss loss = cross_entropy(run, forward(run, model, packed.batch), targets);
  TrainedStep step{.loss = loss.mean.at(0), .gradients = {}};
  backward(run, loss.mean);
  for (const Weight& w : model.weights)
    for (Dim r = 0; r < w.rows; ++r)
      for (Dim c = 0; c < w.cols; ++c) step.gradients.push_back(gradients.get(w, r, c));
  return step;
}

// An edit that throws at its n-th call, for every n: in the forward, and where a layer is run again on the
// way back.
TEST(Threads, AfterAnExceptionARunHasTheSameBits) {
  Device device({.threads = 2});
  Recipe recipe = small_decoder();
  for (auto& [name, layer] : recipe.decoder->kinds)
    for (PartRecipe& p : layer.parts) p.dropout = 0.1;
  Model model(resolve(recipe), device.real);
  randomise(model, 1);
  const PackedBatch packed(texts_of(model));
  for (const bool recompute : {true, false}) {
    Gradients gradients(device.real);
    Tape tape(gradients);
    Taps taps;
    rapt::Run run(device);
    run.tape = &tape;
    run.taps = &taps;
    run.training = true;
    run.recompute = recompute;
    int calls = 0, at = -1, shown = 0;
    taps.edit(site::ffn_out, [&](const Tapped&) {
      if (calls++ == at) throw std::runtime_error("enough");
    });
    taps.see(site::ffn_out, [&](const Tapped&) { ++shown; });
    const TrainedStep whole = train_step(run, model, packed);
    EXPECT_EQ(calls, recompute ? 6 : 3);
    EXPECT_EQ(shown, 3);
    for (int n = 0; n < (recompute ? 6 : 3); ++n) {
      calls = 0, at = n;
      EXPECT_THROW(train_step(run, model, packed), std::runtime_error);
      EXPECT_EQ(run.tape, &tape);
      EXPECT_EQ(tape.size(), 0u);
      EXPECT_EQ(run.layer, -1);
      EXPECT_EQ(run.part, -1);
      EXPECT_FALSE(run.recomputing);
      EXPECT_FALSE(taps.muted);
      EXPECT_TRUE(run.row_ids.empty());
      at = -1, shown = 0;
      EXPECT_TRUE(train_step(run, model, packed) == whole) << "recompute " << recompute << ", call " << n;
      EXPECT_EQ(shown, 3);
    }
    // A pass that fails leaves what was on the tape before it, and gives its memory back.
    run.reset();
    forward(run, model, packed.batch);
    const std::size_t before = tape.size();
    const Arena::Mark mark = run.arena.mark();
    calls = 0, at = 1;
    EXPECT_THROW(forward(run, model, packed.batch), std::runtime_error);
    EXPECT_EQ(tape.size(), before);
    EXPECT_EQ(run.arena.mark().chunk, mark.chunk);
    EXPECT_EQ(run.arena.mark().used, mark.used);
    tape.clear();
  }
}

}  // namespace
}  // namespace rapt::test
