// SPDX-License-Identifier: Apache-2.0
// An engine of a toy model with all it said, for tests that look at one rule at a time.
#pragma once
#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "rapt/base/rng.h"
#include "rapt/use/engine.h"
#include "tests/schedules.h"
#include "tests/tools.h"

namespace rapt::test {

using EventKind = Event::Kind;
using WantedRows = Request::Rows::Which;

inline std::vector<std::int32_t> prompt_text(Dim length, std::uint64_t key = 3) {
  std::vector<std::int32_t> ids;
  for (Dim i = 0; i < length; ++i)
    ids.push_back(static_cast<std::int32_t>(2 + random_below(38, key, static_cast<std::uint64_t>(i))));
  return ids;
}
// Greedy, with log-probabilities.
inline Request asks(std::vector<std::int32_t> tokens, Dim most) {
  Request r{.tokens = std::move(tokens)};
  r.generate.max_tokens = most;
  r.generate.ignore_eos = true;
  r.generate.logprobs = true;
  r.generate.sampler.temperature = 0;
  return r;
}

struct EngineWorld {
  const ToyModel& toy;
  Engine engine;
  std::map<Engine::Id, std::vector<Event>> events;
  explicit EngineWorld(const Engine::Options& options = {}, std::string_view model = "gqa")
      : toy(toy_model(model)), engine(toy_device(), toy.checkpoint, options) {}

  void step(Dim rows = 0) {
    for (Event& e : engine.step(rows)) events[e.request].push_back(std::move(e));
  }
  void finish_all(Dim rows = 0) {
    for (int n = 0; !engine.idle(); ++n) {
      if (n > 5000) fail("the engine does not come to an end");
      step(rows);
    }
  }
  const Event& done(Engine::Id id) {
    for (const Event& e : events[id])
      if (e.kind == EventKind::done) return e;
    fail("request ", id, " is not done");
  }
  bool is_done(Engine::Id id) {
    return std::ranges::any_of(events[id], [](const Event& e) { return e.kind == EventKind::done; });
  }
  std::string error(Engine::Id id) {
    const Event& e = done(id);
    return e.error ? error_of([&] { std::rethrow_exception(e.error); }) : "";
  }
  const Generated& answer(Engine::Id id, std::size_t sample = 0) {
    return done(id).answer->samples.at(sample);
  }
  Dim reused(Engine::Id id) {
    for (const Event& e : events[id])
      if (e.kind == EventKind::prompt) return e.reused;
    return 0;
  }
  int count(Engine::Id id, EventKind kind) {
    return static_cast<int>(
        std::ranges::count_if(events[id], [&](const Event& e) { return e.kind == kind; }));
  }
};

inline Generated said_alone(const Request& request, std::string_view model = "gqa",
                            const Engine::Options& options = {}) {
  EngineWorld w(options, model);
  Request r = request;
  r.hold = 0;
  return w.engine.finish(w.engine.add(r)).samples.at(0);
}

inline bool same_answer(const Generated& a, const Generated& b) {
  return a.ids == b.ids && a.finish == b.finish && a.text == b.text && a.hash == b.hash &&
         std::equal(a.tokens.begin(), a.tokens.end(), b.tokens.begin(), b.tokens.end(),
                    [](const TokenChoice& x, const TokenChoice& y) {
                      return x.id == y.id && x.logprob == y.logprob && x.top == y.top;
                    });
}

}  // namespace rapt::test
