// SPDX-License-Identifier: Apache-2.0
// Many requests in one engine: whatever comes, waits, is paused, shared, watched, changed or cancelled, every
// answer has the bits it has alone. RAPT_SCHEDULES: how many schedules, RAPT_FIRST_SCHEDULE: from which seed
// on (a difference names its seed). scripts/test --long schedules runs 10,000.
#include <gtest/gtest.h>

#include <cstdlib>

#include "rapt/base/rng.h"
#include "tests/build_kind.h"
#include "tests/model_tools.h"
#include "tests/schedules.h"
#include "tests/tools.h"

namespace rapt::test {
namespace {

std::uint64_t number_from(const char* name, std::uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text ? std::strtoull(text, nullptr, 10) : otherwise;
}

std::string lines_of(const std::vector<std::string>& lines) {
  std::string all;
  for (std::size_t i = 0; i < lines.size() && i < 12; ++i) all += "\n  " + lines[i];
  return lines.size() > 12 ? all + concat("\n  … and ", lines.size() - 12, " more") : all;
}

void print_coverage(const char* what, const Coverage& c) {
  std::printf(
      "%s: %zu requests in %zu steps, %zu tokens (%zu guessed, %zu right); %zu pauses (%zu while reading), "
      "%zu tokens reused, %zu places looked at, %zu rows told; suspended for %zu steps, %zu cancelled, %zu "
      "failed, %zu refused, %zu ended early\n",
      what, c.requests, c.steps, c.tokens, c.guessed, c.right, c.pauses, c.paused_reading, c.reused, c.looks,
      c.rows, c.rested, c.cancelled, c.failed, c.refused, c.early);
}

TEST(Schedules, EveryAnswerIsAsAlone) {
  const std::uint64_t count = number_from("RAPT_SCHEDULES", kSanitized ? 100 : 300),
                      first = number_from("RAPT_FIRST_SCHEDULE", 0);
  Coverage c;
  int bad = 0;
  for (std::uint64_t seed = first; seed < first + count && bad < 5; ++seed) {
    const std::vector<std::string> found = differences(draw_schedule(seed), &c);
    bad += !found.empty();
    EXPECT_TRUE(found.empty()) << lines_of(found);
  }
  print_coverage("schedules", c);
  if (count < 300) return;  // all that they are made for takes place
  EXPECT_GT(c.pauses, count / 20);
  EXPECT_GT(c.rested, 5 * count);
  EXPECT_GT(c.reused, 5 * count);
  EXPECT_GT(c.cancelled, count / 10);
  EXPECT_GT(c.failed, count / 50);
  EXPECT_GT(c.early, 0u);
  EXPECT_GT(c.right, count);
  EXPECT_GT(c.guessed, 2 * c.right);
  EXPECT_GT(c.refused, 0u);
  EXPECT_LT(c.refused, c.requests / 10);
}

TEST(Schedules, AnotherThreadAddsAndCancels) {
  const std::uint64_t count = number_from("RAPT_SCHEDULES", kThreadsSanitized ? 100 : kSanitized ? 10 : 40);
  Coverage c;
  int bad = 0;
  for (std::uint64_t seed = 0; seed < count && bad < 5; ++seed) {
    const std::vector<std::string> found = threaded_differences(draw_schedule(1'000'000 + seed), &c);
    bad += !found.empty();
    EXPECT_TRUE(found.empty()) << lines_of(found);
  }
  print_coverage("two threads", c);
}

// Would a fault be seen? Each is, within a few schedules.
TEST(Schedules, PlantedFaultsAreCaught) {
  RAPT_NOT_SANITIZED("faults in memory that is the program's own");
  const auto caught = [](const char* what, const Focus& focus, const auto& plant) {
    constexpr std::uint64_t kMost = 100;
    for (std::uint64_t seed = 0; seed < kMost; ++seed) {
      Schedule s = draw_schedule(2'000'000 + seed, focus);
      ASSERT_TRUE(differences(s).empty()) << what << ": wrong before anything is planted, seed " << s.seed;
      plant(s);
      const std::vector<std::string> found = differences(s);
      if (found.empty()) continue;
      std::printf("%s: caught by schedule %d: %s\n", what, static_cast<int>(seed + 1), found[0].c_str());
      return;
    }
    ADD_FAILURE() << what << ": not caught by " << kMost << " schedules";
  };
  caught("an edit that leaks", {.model = "gqa", .edits = true}, [](Schedule& s) { s.leaks = true; });
  caught("a shared page written without a copy", {.model = "gqa", .samples = true},
         [](Schedule& s) { s.fault = KvPool::Fault::no_copy; });
  caught("a state written in place", {.model = "lstm", .cancelled_holds = true},
         [](Schedule& s) { s.fault = KvPool::Fault::no_half; });
  caught("rows of a chunk written without a copy", {.model = "conv", .samples = true},
         [](Schedule& s) { s.fault = KvPool::Fault::no_copy; });
  caught("a prefix that was read with another adapter", {.model = "gqa"}, [](Schedule& s) {
    bool other = false;  // every second one
    for (PlannedRequest& p : s.requests) {
      if (!p.request.adapters) continue;
      for (AdapterUse& use : *p.request.adapters)
        if (use.adapter == s.model->adapters[0] && (other = !other)) use.adapter = s.model->adapters[2];
    }
  });
  caught("the state at a chunk's end written over the last one", {.model = "delta", .samples = true},
         [](Schedule& s) { s.fault = KvPool::Fault::same_state; });
}

// ------------------------------------------------------------------------------------------ cancelled passes
struct Reading {
  const ToyModel& toy;
  const Model& model = *toy.checkpoint.model;
  std::vector<std::int32_t> tokens, source;
  explicit Reading(const ToyModel& t) : toy(t) {
    for (std::uint64_t i = 0; i < 120; ++i)
      tokens.push_back(static_cast<std::int32_t>(random_below(40, 7, i)));
    if (t.translates()) source.assign(tokens.rbegin(), tokens.rbegin() + 70);
  }
  // Tokens up to `end` of these sequences, in one pass; what the model says of the last ones.
  std::vector<double> read(KvPool& pool, std::span<const std::uint64_t> ids, Dim end, Taps* taps = nullptr,
                           const std::atomic<bool>* cancel = nullptr) const {
    rapt::Run run(toy_device());
    run.taps = taps;
    run.cancel = cancel;
    Batch batch{.want = kWantLast}, from;
    std::vector<std::int32_t> rows, sources;
    for (const std::uint64_t id : ids) {
      const Dim past = pool.length(id);
      batch.sequences.push_back({.first = static_cast<Dim>(rows.size()),
                                 .count = end - past,
                                 .past = past,
                                 .id = id,
                                 .opened = 256});
      rows.insert(rows.end(), tokens.begin() + past, tokens.begin() + end);
      if (past > 0 || source.empty()) continue;
      from.sequences.push_back(
          {.first = static_cast<Dim>(sources.size()), .count = static_cast<Dim>(source.size()), .id = id});
      sources.insert(sources.end(), source.begin(), source.end());
    }
    batch.tokens = rows;
    from.tokens = sources;
    return all_values(forward(run, model, batch, sources.empty() ? nullptr : &from, &pool));
  }
};

struct Held {  // of a pool
  std::size_t pages, bytes;
  Dim first, second;
  explicit Held(const KvPool& p)
      : pages(p.pages()), bytes(p.bytes()), first(p.length(1)), second(p.length(2)) {}
  bool operator==(const Held&) const = default;
};

// Counts what it is shown, and cancels at one of them.
struct Canceller {
  Taps taps;
  std::atomic<bool> cancel{false};
  int calls = 0, at = -1;
  Canceller() {
    taps.see(site::resid_out, [this](const Tapped&) {
      if (calls++ == at) cancel = true;
    });
  }
};

TEST(Schedules, APassCancelledAfterAnyLayerLeavesAllAsItWas) {
  constexpr std::uint64_t kOne[] = {1}, kBoth[] = {1, 2};
  for (const ToyModel& toy : toy_models()) {
    if (toy.reads_whole()) continue;
    SCOPED_TRACE(toy.name);
    const Reading r(toy);
    KvPool whole(r.model, toy.cache);
    Canceller counts;
    r.read(whole, kOne, 70, &counts.taps, &counts.cancel);
    const int first = std::exchange(counts.calls, 0);
    whole.share(1, 2, 70);
    const std::vector<double> right = r.read(whole, kBoth, 100, &counts.taps, &counts.cancel),
                              end = r.read(whole, kBoth, 120);
    const int second = counts.calls;
    EXPECT_GE(second,
              toy.recurrent() ? toy.recipe().decoder->recurrent->layers : toy.recipe().decoder->layers);
    for (int layer = 0; layer < first + second; ++layer) {
      SCOPED_TRACE(layer);
      KvPool pool(r.model, toy.cache);
      Canceller c;
      c.at = layer < first ? layer : layer - first;
      if (layer < first) EXPECT_THROW(r.read(pool, kOne, 70, &c.taps, &c.cancel), Cancelled);
      EXPECT_EQ(pool.pages() + pool.bytes(), 0u);
      EXPECT_FALSE(pool.has(1));
      r.read(pool, kOne, 70);
      pool.share(1, 2, 70);
      const Held before(pool);
      if (layer >= first) EXPECT_THROW(r.read(pool, kBoth, 100, &c.taps, &c.cancel), Cancelled);
      EXPECT_EQ(Held(pool), before);
      EXPECT_EQ(r.read(pool, kBoth, 100), right);
      EXPECT_EQ(r.read(pool, kBoth, 120), end);
      pool.drop(1);
      pool.drop(2);
      EXPECT_EQ(pool.pages() + pool.bytes(), 0u);
    }
  }
}

// The same in an engine: what a request held is there to the token, and what goes on from it is as alone.
TEST(Schedules, ARequestCancelledAfterAnyLayerLeavesWhatItHeld) {
  for (const ToyModel& toy : toy_models()) {
    if (toy.reads_whole()) continue;
    SCOPED_TRACE(toy.name);
    const Reading r(toy);
    Request request{.tokens = r.tokens, .source = r.source};
    request.generate.max_tokens = 6;
    request.generate.ignore_eos = true;
    request.generate.sampler.temperature = 0;
    request.generate.logprobs = true;
    const auto answer = [&](Engine& engine, const Request& q) {
      return engine.finish(engine.add(q)).samples[0];
    };
    Engine alone(toy_device(), toy.checkpoint, {.cache = toy.cache});
    const Generated right = answer(alone, request);
    Canceller counts;
    request.taps = &counts.taps;
    answer(alone, request);
    const int most = counts.calls;
    for (int call = 0; call < most; ++call) {
      SCOPED_TRACE(call);
      Engine engine(toy_device(), toy.checkpoint, {.cache = toy.cache});
      Canceller c;
      c.at = call;
      Request held = request;
      held.hold = 9;
      Engine::Id id = 0;
      Taps taps;  // Engine::cancel in every second
      taps.see(site::resid_out, [&](const Tapped&) {
        if (c.calls++ != c.at) return;
        if (call % 2) engine.cancel(id);
        else c.cancel = true;
      });
      held.taps = &taps;
      if (call % 2 == 0) held.cancel = &c.cancel;
      id = engine.add(held);
      Engine::Status before = engine.status();
      Dim read = 0;
      for (bool done = false; !done;) {
        before = engine.status();
        const std::vector<Event> events = engine.step(50);
        for (const Event& e : events) {
          if (e.kind == Event::Kind::prompt) read = e.read;
          if (e.kind != Event::Kind::done) continue;
          done = true;
          EXPECT_FALSE(e.error);
          ASSERT_EQ(e.answer->samples.size(), 1u);
          EXPECT_EQ(e.answer->samples[0].finish, Finish::cancelled);
          const std::size_t said = e.answer->samples[0].ids.size();
          ASSERT_LE(said, right.ids.size());
          // The last token was chosen, but not read.
          if (said > 0) read = static_cast<Dim>(r.tokens.size() + said) - 1;
        }
      }
      const Engine::Status after = engine.status();
      EXPECT_EQ(after.pages, before.pages);
      EXPECT_EQ(after.bytes, before.bytes);
      EXPECT_EQ(engine.held(9), read);
      held.taps = nullptr;
      held.cancel = nullptr;
      const Generated again = answer(engine, held);
      EXPECT_EQ(again.ids, right.ids);
      ASSERT_EQ(again.tokens.size(), right.tokens.size());
      for (std::size_t i = 0; i < right.tokens.size(); ++i)
        EXPECT_EQ(again.tokens[i].logprob, right.tokens[i].logprob) << i;
      engine.release(9);
      EXPECT_EQ(engine.status().pages + engine.status().bytes, 0u);
    }
  }
}

// What all is compared with: the largest logit of a pass over the whole text, again for every token.
TEST(Schedules, AloneIsWhatPassesWithoutACacheSay) {
  for (const ToyModel& toy : toy_models()) {
    if (toy.reads_whole() || toy.cache != DType::f32) continue;
    SCOPED_TRACE(toy.name);
    const Reading r(toy);
    Request request{.tokens = {r.tokens.begin(), r.tokens.begin() + 75}, .source = r.source};
    request.generate.max_tokens = 12;
    request.generate.ignore_eos = true;
    request.generate.sampler.temperature = 0;
    request.generate.logprobs = true;
    Engine engine(toy_device(), toy.checkpoint, {});
    const Generated said = engine.finish(engine.add(request)).samples[0];
    ASSERT_EQ(said.ids.size(), 12u);
    std::vector<std::int32_t> text = request.tokens;
    const Batch from{.tokens = r.source,
                     .sequences = {{.first = 0, .count = static_cast<Dim>(r.source.size())}}};
    for (std::size_t i = 0; i < 12; ++i) {
      rapt::Run run(toy_device());
      const Batch batch{.tokens = text,
                        .sequences = {{.first = 0, .count = static_cast<Dim>(text.size()), .opened = 256}},
                        .want = kWantLast};
      const Tensor logits = forward(run, r.model, batch, r.source.empty() ? nullptr : &from);
      double sum = 0;
      Dim best = -1;
      for (Dim t = 0; t < 40; ++t) {
        sum += std::exp(logits.at(t));
        if (t != 1 && (best < 0 || logits.at(t) > logits.at(best))) best = t;  // 1 ends, and is ignored
      }
      EXPECT_EQ(said.ids[i], best) << i;
      EXPECT_NEAR(said.tokens[i].logprob, logits.at(best) - std::log(sum), 1e-5) << i;
      text.push_back(static_cast<std::int32_t>(best));
    }
  }
}

}  // namespace
}  // namespace rapt::test
