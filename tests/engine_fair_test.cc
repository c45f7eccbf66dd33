// SPDX-License-Identifier: Apache-2.0
// Whose turn it is, counted: clients, short texts behind long ones, work in the background, who is suspended,
// who gives way; and what other threads are told meanwhile. That no bit depends on it: schedules_test.cc.
#include <gtest/gtest.h>

#include <atomic>
#include <mutex>
#include <string_view>
#include <thread>

#include "rapt/base/clock.h"
#include "rapt/use/engine_speed.h"
#include "tests/build_kind.h"
#include "tests/engine_world.h"

namespace rapt::test {
namespace {

Request asks_as(const char* client, Dim length, Dim most, std::uint64_t key) {
  Request r = asks(prompt_text(length, key), most);
  r.client = client;
  return r;
}

const Engine::JobStatus* job_of(const std::vector<Engine::JobStatus>& jobs, Engine::Id id) {
  for (const Engine::JobStatus& j : jobs)
    if (j.id == id) return &j;
  return nullptr;
}

// Tokens of its prompts and answers so far, by client.
std::map<std::string, Dim> served(EngineWorld& w, const std::map<Engine::Id, std::string>& clients) {
  std::map<std::string, Dim> tokens;
  for (const auto& [id, client] : clients) {
    Dim read = 0;
    for (const Event& e : w.events[id]) {
      if (e.kind == EventKind::prompt) read = e.read;
      tokens[client] += e.kind == EventKind::token && e.id >= 0;
    }
    tokens[client] += read;
  }
  return tokens;
}

// One client has ten long prompts under way and ten that wait; another comes with a short one. It begins in
// the next step, and its 20 tokens are among the first 24 rows that are handed out (16 of 64 go by age).
TEST(EngineFair, AShortPromptPassesLongOnesOfAnotherClient) {
  EngineWorld w({.rows = 16});
  std::vector<Engine::Id> longs;
  for (std::uint64_t i = 0; i < 20; ++i) longs.push_back(w.engine.add(asks_as("many", 240, 8, i)));
  w.step(64);
  w.step(64);
  const Request r = asks_as("one", 20, 5, 99);
  const Engine::Id id = w.engine.add(r);
  w.step(64);
  // The rows of options.rows are full of the first sixteen: one of them must end before it begins.
  int steps = 1;
  for (; w.count(id, EventKind::prompt) == 0; ++steps) {
    ASSERT_LT(steps, 200);
    w.step(64);
  }
  const auto done_before = std::ranges::count_if(longs, [&](Engine::Id i) { return w.is_done(i); });
  EXPECT_LE(done_before, 1) << "it is the next to begin";
  int after = 0;
  for (; !w.is_done(id); ++after) {
    ASSERT_LT(after, 20);
    w.step(64);
  }
  EXPECT_LE(after, 6);  // one step for its prompt and its first token, one for each other token
  w.finish_all(64);
  EXPECT_TRUE(same_answer(w.answer(id), said_alone(r)));
}

// Where there is a row for it: begins at once, is read in its first step, done after as many steps as it has
// tokens.
TEST(EngineFair, AShortPromptIsReadInItsFirstStep) {
  for (const char* client : {"other", "many"}) {  // inside one client, too
    SCOPED_TRACE(client);
    EngineWorld w({.rows = 64});
    for (std::uint64_t i = 0; i < 10; ++i) w.engine.add(asks_as("many", 240, 8, i));
    w.step(64);
    const Engine::Id id = w.engine.add(asks_as(client, 20, 5, 99));
    for (int i = 0; i < 5; ++i) w.step(64);
    EXPECT_TRUE(w.is_done(id));
  }
}

// Two clients that always want more: what they were given differs by no more than what one request may take
// at once, the rows of a step and the answers that are under way, whoever has more and longer requests.
TEST(EngineFair, TwoClientsGetEqualParts) {
  EngineWorld w({.rows = 8});
  std::map<Engine::Id, std::string> of;
  std::uint64_t key = 0;
  for (int i = 0; i < 60; ++i) of[w.engine.add(asks_as("long", 230, 10, key++))] = "long";
  for (int i = 0; i < 700; ++i) of[w.engine.add(asks_as("short", 15, 10, key++))] = "short";
  for (int step = 0; step < 250; ++step) {
    w.step(48);
    std::map<std::string, Dim> tokens = served(w, of);
    EXPECT_LE(std::abs(tokens["long"] - tokens["short"]), 240 + 48 + 8 * 10) << "step " << step;
  }
  std::map<std::string, Dim> tokens = served(w, of);
  EXPECT_GT(tokens["long"], 4000);
}

// Who was away has saved nothing, and owes nothing: it gets its half from now on.
TEST(EngineFair, NobodySavesUp) {
  EngineWorld w({.rows = 8});
  std::map<Engine::Id, std::string> of;
  std::uint64_t key = 0;
  for (int i = 0; i < 80; ++i) of[w.engine.add(asks_as("first", 200, 4, key++))] = "first";
  for (int step = 0; step < 100; ++step) w.step(48);
  const Dim before = served(w, of)["first"];
  EXPECT_GT(before, 3000);
  for (int i = 0; i < 80; ++i) of[w.engine.add(asks_as("second", 200, 4, key++))] = "second";
  for (int step = 0; step < 100; ++step) w.step(48);
  std::map<std::string, Dim> tokens = served(w, of);
  EXPECT_LE(std::abs(tokens["first"] - before - tokens["second"]), 204 + 48 + 8 * 4 + 200);
}

// The oldest text gets a quarter of the rows however many short ones come: 240 tokens, 16 rows of 64 a step.
TEST(EngineFair, ALongPromptIsNotStarved) {
  for (const char* client : {"", "crowd"}) {
    SCOPED_TRACE(client);
    EngineWorld w({.rows = 64});
    const Engine::Id id = w.engine.add(asks_as(client, 240, 2, 1));
    std::uint64_t key = 2;
    int steps = 0;
    for (; w.count(id, EventKind::token) == 0; ++steps) {
      ASSERT_LT(steps, 17);
      for (int i = 0; i < 4; ++i) w.engine.add(asks_as("crowd", 40, 1, key++));
      w.step(64);
    }
    EXPECT_GE(steps, 4);
    w.finish_all();
  }
}

// Ever new clients, one in a step, come before one that has had much, until the level has risen to there: its
// 252 tokens, times the two clients that want some in a step.
TEST(EngineFair, NewClientsDoNotKeepOneOut) {
  EngineWorld w({.rows = 1});
  std::uint64_t key = 0;
  const auto newcomer = [&] { w.engine.add(asks_as(concat("new ", key).c_str(), 3, 1, key)), ++key; };
  w.engine.add(asks_as("had much", 250, 2, key++));
  newcomer();
  w.step();
  const Engine::Id id = w.engine.add(asks_as("had much", 250, 2, key++));
  int begun = 0;
  for (; w.count(id, EventKind::prompt) == 0; ++begun) {
    ASSERT_LT(begun, 1000);
    newcomer();
    w.step();
  }
  const Engine::Status s = w.engine.status();
  EXPECT_GT(begun, 50);  // they do come before it
  EXPECT_LE(s.prompt_tokens + s.decoded_tokens, 252u + 2 * (252u + 4) + 250u);  // with its own first step
  w.finish_all();
}

TEST(EngineFair, WorkInTheBackgroundGetsAThird) {
  EngineWorld w({.rows = 16});
  const Engine::Id writes = w.engine.add(asks_as("a", 5, 100, 1));
  w.step();
  Request r = asks_as("b", 240, 3, 2);
  r.background = true;
  const Engine::Id back = w.engine.add(r);
  Dim read = 0;
  for (int step = 0; step < 12; ++step) {
    w.step(60);
    Dim now = 0;
    for (const Event& e : w.events[back])
      if (e.kind == EventKind::prompt) now = e.read;
    EXPECT_LE(now - read, 20);
    EXPECT_EQ(w.count(writes, EventKind::token), step + 2);
    read = now;
  }
  EXPECT_EQ(read, 240);
  w.finish_all();
  EXPECT_TRUE(same_answer(w.answer(back), said_alone(r)));
  // Alone it gets all there is.
  const Engine::Id alone = w.engine.add(r);
  w.step(240);
  EXPECT_EQ(w.count(alone, EventKind::token), 1);
  w.finish_all();
  // It begins after others that came later.
  EngineWorld one({.rows = 1});
  one.engine.add(asks_as("a", 5, 3, 1));
  one.step();
  const Engine::Id last = one.engine.add(r), first = one.engine.add(asks_as("b", 9, 2, 3));
  while (!one.is_done(first)) {
    EXPECT_EQ(one.count(last, EventKind::prompt), 0);
    one.step();
  }
  one.finish_all();
  EXPECT_TRUE(same_answer(one.answer(last), said_alone(r)));
}

// Whole texts beside somebody who writes: no more rows on average than prompts would have.
TEST(EngineFair, WholeTextsLeaveTimeForWhoWrites) {
  EngineWorld w;
  const Engine::Id id = w.engine.add(asks_as("a", 5, 60, 1));
  w.step();
  std::vector<Engine::Id> texts;
  for (std::uint64_t i = 0; i < 40; ++i) {
    Request r = asks_as("b", 100, 0, i);
    r.whole = true;
    r.rows = {.which = WantedRows::chosen, .chosen = {3}, .see = [](auto, const Tensor&) {}};
    texts.push_back(w.engine.add(r));
  }
  for (int step = 0; step < 30; ++step) w.step(50);
  const auto done = std::ranges::count_if(texts, [&](Engine::Id i) { return w.is_done(i); });
  EXPECT_EQ(w.count(id, EventKind::token), 31);
  EXPECT_GE(done, 14);
  EXPECT_LE(done, 16);  // 30 steps of 50 rows, 100 each
  w.finish_all();
}

// ------------------------------------------------------------------------------------------------ suspended
TEST(EngineFair, WhoIsSuspendedTakesNoRowsAndKeepsItsPages) {
  for (const char* model : {"gqa", "windows", "delta", "lstm", "translator"}) {
    SCOPED_TRACE(model);
    EngineWorld w({}, model);
    Request r = asks(prompt_text(w.toy.translates() ? 5 : 100), 20);
    if (w.toy.translates()) r.source = prompt_text(30, 8);
    r.generate.samples = 2;
    r.generate.sampler.temperature = 1;
    for (const int steps : {0, 1, 2, 6}) {  // waits, is read, has written
      w.events.clear();
      const Engine::Id id = w.engine.add(r), other = w.engine.add(r);
      for (int i = 0; i < steps; ++i) w.step(40);
      const std::size_t events = w.events[id].size();
      const std::uint64_t passes = w.engine.status().passes;
      w.engine.suspend(id, true);
      EXPECT_TRUE(w.engine.runnable());
      w.engine.suspend(other, true);
      EXPECT_FALSE(w.engine.runnable());
      EXPECT_FALSE(w.engine.idle());
      const Engine::Status before = w.engine.status();
      EXPECT_EQ(before.suspended, 2);
      for (int i = 0; i < 3; ++i) EXPECT_TRUE(w.engine.step().empty());
      EXPECT_EQ(w.engine.status().passes, passes);
      EXPECT_EQ(w.engine.status().bytes, before.bytes);
      EXPECT_STREQ(job_of(w.engine.jobs(), id)->phase, "suspended");
      w.engine.suspend(other, false);
      EXPECT_TRUE(w.engine.runnable());
      while (!w.is_done(other)) w.step(40);
      EXPECT_EQ(w.events[id].size(), events);
      EXPECT_FALSE(w.engine.runnable());
      w.engine.suspend(id, false);
      EXPECT_TRUE(w.engine.runnable());
      w.finish_all(40);
      EXPECT_FALSE(w.engine.runnable());
      EXPECT_EQ(w.done(id).answer->pauses, 0);
      for (std::size_t i = 0; i < 2; ++i) EXPECT_TRUE(same_answer(w.answer(id, i), w.answer(other, i)));
      EXPECT_TRUE(same_answer(w.answer(id), said_alone(r, model)));
      EXPECT_EQ(w.engine.status().suspended, 0);
    }
  }
}

TEST(EngineFair, WhoIsSuspendedMayBeCancelled) {
  EngineWorld w;
  const Engine::Id id = w.engine.add(asks(prompt_text(30), 10)),
                   waits = w.engine.add(asks(prompt_text(30), 10));
  w.engine.suspend(waits, true);
  w.step();
  w.engine.suspend(id, true);
  w.step();
  for (const Engine::Id i : {id, waits}) {
    EXPECT_FALSE(w.engine.runnable());
    w.engine.cancel(i);
    EXPECT_TRUE(w.engine.runnable());
    w.step();
    EXPECT_TRUE(w.is_done(i));
  }
  EXPECT_TRUE(w.engine.idle());
  EXPECT_EQ(w.engine.status().suspended, 0);
  EXPECT_EQ(w.engine.status().bytes, 0u);
  w.engine.suspend(id, true);  // nobody is there any more
  w.engine.suspend(77, true);
  EXPECT_FALSE(w.engine.runnable());
}

// A pool that is full: who is suspended pauses first, for one that begins and for one that goes on.
TEST(EngineFair, WhoIsSuspendedGivesWayFirst) {
  const std::size_t page = EngineWorld().engine.pool().page_bytes();
  for (const bool begins : {true, false}) {
    SCOPED_TRACE(begins);
    EngineWorld w({.budget = 5 * page});
    const Request old = asks(prompt_text(100, 1), 30), young = asks(prompt_text(100, 2), begins ? 20 : 120);
    const Engine::Id first = w.engine.add(old);
    w.step();
    const Engine::Id second = begins ? 0 : w.engine.add(young);
    w.step();
    w.engine.suspend(first, true);
    w.step();
    const Engine::Id next = begins ? w.engine.add(asks(prompt_text(200, 2), 20)) : second;
    for (int i = 0; !w.is_done(next); ++i) {
      ASSERT_LT(i, 300);
      w.step();
    }
    EXPECT_EQ(w.count(next, EventKind::paused), 0);
    EXPECT_EQ(w.count(first, EventKind::paused), 1);
    EXPECT_EQ(w.engine.status().paused, 1);
    EXPECT_FALSE(w.engine.runnable());
    w.engine.suspend(first, false);
    w.finish_all();
    EXPECT_EQ(w.engine.status().paused, 0);
    EXPECT_TRUE(same_answer(w.answer(first), said_alone(old)));
  }
}

// One waits for a text that a suspended one holds: a step finds nothing to do, and says so.
TEST(EngineFair, NobodySpinsForAHeldText) {
  EngineWorld w;
  Request r = asks(prompt_text(50), 20);
  r.hold = 5;
  const Engine::Id first = w.engine.add(r);
  w.step();
  w.engine.suspend(first, true);
  const Engine::Id second = w.engine.add(r);
  EXPECT_TRUE(w.engine.runnable());
  w.step();
  EXPECT_FALSE(w.engine.runnable());
  w.engine.suspend(first, false);
  EXPECT_TRUE(w.engine.runnable());
  w.finish_all();
  EXPECT_TRUE(same_answer(w.answer(first), w.answer(second)));
}

// The client that has most in the pool gives way, its youngest request; work in the background before that.
TEST(EngineFair, WhoHasMostGivesWay) {
  const std::size_t page = EngineWorld().engine.pool().page_bytes();
  for (const bool background : {false, true}) {
    EngineWorld w({.budget = 11 * page});
    std::vector<Request> asked;
    for (const char* client : {"much", "much", "much", "little"})
      asked.push_back(asks_as(client, 60, 120, asked.size()));
    asked[3].background = background;
    std::vector<Engine::Id> ids;
    for (const Request& r : asked) ids.push_back(w.engine.add(r));
    w.finish_all();
    EXPECT_EQ(w.done(ids[0]).answer->pauses, 0);
    if (!background) EXPECT_GT(w.done(ids[2]).answer->pauses, 0);
    EXPECT_EQ(w.done(ids[3]).answer->pauses > 0, background);
    for (std::size_t i = 0; i < 4; ++i) EXPECT_TRUE(same_answer(w.answer(ids[i]), said_alone(asked[i])));
  }
}

// ------------------------------------------------------------------------------------------------ told
TEST(EngineFair, JobsTellWhereTheyAre) {
  EngineWorld w({.rows = 2, .prefixes = true});
  const Engine::Id old = w.engine.add(asks_as("z", 100, 3, 1));
  w.finish_all();
  EXPECT_TRUE(w.engine.jobs().empty());
  const Engine::Id writes = w.engine.add(asks_as("a", 20, 50, 2)),
                   reads = w.engine.add(asks_as("b", 200, 5, 3)), waits = w.engine.add(asks_as("", 70, 5, 1));
  for (int i = 0; i < 3; ++i) w.step(40);
  std::vector<Engine::JobStatus> jobs = w.engine.jobs();
  ASSERT_EQ(jobs.size(), 3u);
  EXPECT_EQ(job_of(jobs, old), nullptr);
  const Engine::JobStatus &one = jobs[0], &two = jobs[1], &three = jobs[2];
  EXPECT_EQ(one.id, writes);
  EXPECT_STREQ(one.phase, "writing");
  EXPECT_EQ(one.client, "a");
  EXPECT_EQ(one.written_tokens, 3);
  EXPECT_EQ(one.read_tokens, 20);
  EXPECT_EQ(two.id, reads);
  EXPECT_STREQ(two.phase, "reading");
  EXPECT_GT(two.read_tokens, 60);
  EXPECT_LT(two.read_tokens, 120);
  EXPECT_EQ(two.prompt_tokens, 200);
  EXPECT_EQ(three.id, waits);
  EXPECT_STREQ(three.phase, "waiting");
  EXPECT_EQ(three.read_tokens, 0);
  EXPECT_GE(one.seconds, three.seconds);
  const Engine::Status s = w.engine.status();
  EXPECT_EQ(s.waiting, 1);
  EXPECT_EQ(s.running, 2);
  EXPECT_GT(s.last.compute, 0);
  EXPECT_GT(s.last.choose, 0);
  EXPECT_GE(s.last.all, s.last.compute + s.last.choose);
  EXPECT_GE(s.total.all, s.last.all);
  EXPECT_GT(s.idle_bytes, 0u);
  w.finish_all();
  EXPECT_EQ(w.engine.status().idle_bytes, w.engine.status().bytes);  // prefixes alone are left
  const Engine::Id again = w.engine.add(asks_as("a", 100, 30, 1));
  w.step();
  EXPECT_EQ(job_of(w.engine.jobs(), again)->reused_tokens, 64);
  EXPECT_GT(w.engine.status().shared_pages, 0u);
  w.finish_all();
  EXPECT_EQ(w.engine.status().shared_pages, 0u);
}

TEST(EngineFair, AWaitIsEstimated) {
  EngineWorld w({.rows = 2});
  EXPECT_EQ(w.engine.estimate_wait(100), 0);
  w.engine.add(asks_as("a", 200, 20, 1));
  w.finish_all();
  EXPECT_EQ(w.engine.estimate_wait(100), 0);  // nobody is there
  double before = 0;
  std::vector<Engine::Id> ids;
  for (std::uint64_t i = 0; i < 8; ++i) {
    ids.push_back(w.engine.add(asks_as("a", 100, 20, i)));
    w.step(50);
    const double now = w.engine.estimate_wait(100);
    if (i > 2) EXPECT_GT(now, before);
    before = i > 1 ? now * 0.5 : 0;  // times are learned anew in every step
  }
  // Against what it takes in fact: within a factor of a few, on a machine that does other things besides.
  const double said = w.engine.estimate_wait(20);
  const auto started = Clock::now();
  const Engine::Id last = w.engine.add(asks_as("a", 20, 5, 50));
  while (w.count(last, EventKind::prompt) == 0) w.step();
  const double took = seconds_since(started);
  EXPECT_GT(said, took / 30);
  EXPECT_LT(said, took * 30);
  std::printf("estimated %.4f s, it took %.4f s\n", said, took);
  w.finish_all();
}

TEST(EngineFair, SpeedIsMeasured) {
  for (const char* model : {"gqa", "delta", "lstm", "translator", "encoder", "classifier"}) {
    SCOPED_TRACE(model);
    EngineWorld w({.prefixes = true}, model);
    const auto started = Clock::now();
    const EngineSpeed speed = measure_speed(w.engine);
    if (!kSanitized) EXPECT_LT(seconds_since(started), 5);
    EXPECT_GT(speed.row_seconds, 0);
    EXPECT_GE(speed.useful_rows, 1);
    EXPECT_GE(speed.running(), 8);
    if (w.toy.recipe().decoder) EXPECT_GT(speed.decode_seconds[0], 0);
    EXPECT_TRUE(w.engine.idle());
    const Engine::Status s = w.engine.status();
    EXPECT_EQ(s.passes + s.prompt_tokens + s.decoded_tokens + s.pages + s.bytes + s.prefixes, 0u);
  }
  EngineWorld busy;
  busy.engine.add(asks(prompt_text(5), 3));
  EXPECT_TRUE(holds(error_of([&] { measure_speed(busy.engine); }), "measure before"));
  const std::size_t page = EngineWorld().engine.pool().page_bytes();
  EngineWorld small({.budget = 2 * page});  // no room for many answers side by side
  EXPECT_GT(measure_speed(small.engine).row_seconds, 0);
}

// Several threads ask, suspend and resume while one steps; the preset tsan looks at it.
TEST(EngineFair, ManyThreadsAskWhileOneSteps) {
  EngineWorld w({.budget = 12 * EngineWorld().engine.pool().page_bytes(), .rows = 6, .prefixes = true});
  constexpr int kThreads = 3, kEach = 6;
  std::atomic<int> left{kThreads}, seen{0};
  std::mutex lock;
  std::map<Engine::Id, Request> asked;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t)
    threads.emplace_back([&, t] {
      std::vector<Engine::Id> mine;
      for (int i = 0; i < kEach; ++i) {
        const Request r =
            asks_as(t == 0 ? "a" : "b", 30 + 20 * i, 25, static_cast<std::uint64_t>(10 * t + i));
        const std::lock_guard hold(lock);
        mine.push_back(w.engine.add(r));
        asked[mine.back()] = r;
      }
      for (int round = 0; round < 40; ++round) {
        for (const Engine::Id id : mine) w.engine.suspend(id, (id + static_cast<Engine::Id>(round)) % 3 == 0);
        for (const Engine::JobStatus& j : w.engine.jobs())
          seen += std::string_view(j.phase) == "suspended" || j.read_tokens <= j.prompt_tokens;
        seen += w.engine.estimate_wait(50) >= 0 && w.engine.status().running >= 0;
        w.engine.runnable();
        std::this_thread::yield();
      }
      for (const Engine::Id id : mine) w.engine.suspend(id, false);
      --left;
    });
  for (int n = 0; left > 0 || !w.engine.idle(); ++n) {
    if (n > 1'000'000) break;
    if (w.engine.runnable()) w.step(30);
    else std::this_thread::yield();
  }
  for (std::thread& t : threads) t.join();
  EXPECT_TRUE(w.engine.idle());
  EXPECT_GT(seen, 0);
  for (const auto& [id, r] : asked) EXPECT_TRUE(same_answer(w.answer(id), said_alone(r)));
}

}  // namespace
}  // namespace rapt::test
