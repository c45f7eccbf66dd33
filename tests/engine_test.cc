// SPDX-License-Identifier: Apache-2.0
// The engine, one rule at a time: who is let in, what is told, what stays. That no bit of an answer depends
// on the others: schedules_test.cc. Whose turn it is: engine_fair_test.cc.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <map>

#include "rapt/run/cancel.h"
#include "tests/build_kind.h"
#include "tests/engine_world.h"
#include "tests/model_tools.h"
#include "tests/tools.h"

namespace rapt::test {
namespace {

// -------------------------------------------------------------------------------------------- who is let in
TEST(Engine, RefusesWhatItCannotMean) {
  EngineWorld w, translator({}, "translator"), encoder({}, "encoder");
  const auto refused = [](EngineWorld& world, const char* words, const auto& change) {
    Request r = asks(prompt_text(10), 5);
    change(r);
    const std::string said = error_of([&] { world.engine.add(r); });
    EXPECT_TRUE(holds(said, words)) << "'" << said << "' does not say '" << words << "'";
    EXPECT_TRUE(world.engine.idle());
  };
  refused(w, "the prompt has no tokens", [](Request& r) { r.tokens.clear(); });
  refused(w, "token 40 at place 3", [](Request& r) { r.tokens[3] = 40; });
  refused(w, "the forced token -1", [](Request& r) { r.forced = {-1}; });
  refused(w, "forced tokens and beams", [](Request& r) { r.forced = {3}, r.generate.beams = 2; });
  refused(w, "does not fit the context of 256 tokens", [](Request& r) { r.tokens = prompt_text(256); });
  refused(w, "does not fit the context of 256",
          [](Request& r) { r.tokens = prompt_text(257), r.generate.max_tokens = 0; });
  refused(w, "takes no source", [](Request& r) { r.source = {3, 4}; });
  refused(w, "samples of 2 beams", [](Request& r) { r.generate.samples = 3, r.generate.beams = 2; });
  refused(w, "ask for 0 tokens", [](Request& r) { r.one_piece = true; });
  refused(w, "ask for 0 tokens", [](Request& r) { r.whole = true; });
  refused(w, "hidden states are those of a whole text", [](Request& r) {
    r.rows = {.which = WantedRows::all, .hidden = true, .see = [](auto, const Tensor&) {}};
  });
  refused(w, "nobody looks at them", [](Request& r) { r.rows.which = WantedRows::all; });
  refused(w, "row 10 is wanted of a text of 10 tokens", [](Request& r) {
    r.rows = {.which = WantedRows::chosen, .chosen = {2, 10}, .see = [](auto, const Tensor&) {}};
  });
  refused(w, "each once", [](Request& r) {
    r.rows = {.which = WantedRows::chosen, .chosen = {2, 2}, .see = [](auto, const Tensor&) {}};
  });
  refused(w, "the window at least 1", [](Request& r) { r.stream = {.keep = -1, .window = 5}; });
  refused(w, "the window at least 1", [](Request& r) { r.stream = {.keep = Dim{1} << 62, .window = 5}; });
  refused(w, "a prefix of 11 tokens of a text of 10", [](Request& r) { r.prefix = 11; });
  refused(w, "5000 samples; at most 4096", [](Request& r) { r.generate.samples = 5000; });
  refused(w, "5000 beams; at most 4096", [](Request& r) { r.generate.beams = 5000; });
  refused(w, "give max_tokens",
          [](Request& r) { r.stream.window = 9, r.generate.beams = 2, r.generate.max_tokens = -1; });
  refused(translator, "the source has no tokens", [](Request&) {});
  refused(translator, "outside the vocabulary", [](Request& r) { r.source = {41}; });
  refused(translator, "is no decoder-only model", [](Request& r) { r.source = {4}, r.stream.window = 9; });
  refused(encoder, "reads whole texts", [](Request& r) { r.generate.max_tokens = 0; });
}

TEST(Engine, SoManyMayWait) {
  EngineWorld w({.most_waiting = 2, .most_waiting_tokens = 100});
  w.engine.add(asks(prompt_text(30), 3));
  w.engine.add(asks(prompt_text(30), 3));
  EXPECT_TRUE(holds(error_of([&] { w.engine.add(asks(prompt_text(10), 3)); }), "2 requests wait already"));
  EXPECT_EQ(w.engine.status().waiting, 2);
  w.step();
  EXPECT_EQ(w.engine.status().waiting, 0);
  EXPECT_EQ(w.engine.status().running, 2);
  w.engine.add(asks(prompt_text(80), 3));
  EXPECT_TRUE(holds(error_of([&] { w.engine.add(asks(prompt_text(30), 3)); }), "80 tokens wait already"));
  w.finish_all();
  const Engine::Status s = w.engine.status();
  EXPECT_EQ(s.waiting + s.running + s.rows, 0);
  EXPECT_EQ(s.pages + s.bytes, 0u);
  EXPECT_EQ(s.prompt_tokens, 140u);
  EXPECT_EQ(s.decoded_tokens, 9u);
}

TEST(Engine, OnlySoManyAnswersSideBySide) {
  EngineWorld w({.rows = 2});
  std::vector<Engine::Id> ids;
  for (std::uint64_t i = 0; i < 5; ++i) ids.push_back(w.engine.add(asks(prompt_text(5, i), 6)));
  Dim most = 0;
  while (!w.engine.idle()) {
    w.step();
    most = std::max(most, w.engine.status().rows);
  }
  EXPECT_EQ(most, 2);
  for (std::uint64_t i = 0; i < 5; ++i)
    EXPECT_TRUE(same_answer(w.answer(ids[i]), said_alone(asks(prompt_text(5, i), 6))));
}

// From one page up: add() refuses with numbers, or the request comes to an end.
TEST(Engine, APoolOfAnySizeNeverFailsInMidPass) {
  for (const char* model : {"gqa", "windows", "sinks", "translator", "lstm", "gru-attention", "prefix"}) {
    SCOPED_TRACE(model);
    const ToyModel& toy = toy_model(model);
    const KvPool pool(*toy.checkpoint.model, toy.cache);
    const std::size_t unit = std::max<std::size_t>(pool.page_bytes(), pool.state_bytes());
    int refused = 0, ended = 0, early = 0;
    for (std::size_t budget = unit; budget <= 12 * unit; budget += kSanitized ? 3 * unit / 2 : unit / 2) {
      SCOPED_TRACE(budget);
      EngineWorld w({.cache = toy.cache, .budget = budget, .prefixes = true}, model);
      std::vector<Engine::Id> ids;
      std::vector<Request> asked;
      for (std::uint64_t i = 0; i < 4; ++i) {
        Request r = asks(prompt_text(toy.translates() ? 3 : 50 + 30 * static_cast<Dim>(i % 3), i % 2), 40);
        if (toy.translates()) r.source = prompt_text(20 + 20 * static_cast<Dim>(i), 9);
        if (i == 1) r.generate.samples = 2;
        if (i == 2) r.generate.beams = 2;
        if (i == 3) r.generate.max_tokens = -1, r.tokens.resize(std::min<std::size_t>(r.tokens.size(), 6));
        if (toy.prefix) r.prefix = static_cast<Dim>(r.tokens.size()) / 2;
        const std::string said = error_of([&] { ids.push_back(w.engine.add(r)), asked.push_back(r); });
        EXPECT_TRUE(said.empty() || (holds(said, "bytes of the pool") && holds(said, concat(budget))))
            << said;
        refused += !said.empty();
      }
      for (int n = 0; !w.engine.idle(); ++n) {
        ASSERT_LT(n, 5000);
        w.step(1 + n % 50);
        EXPECT_LE(w.engine.status().bytes, budget);
      }
      for (std::size_t i = 0; i < ids.size(); ++i) {
        EXPECT_EQ(w.error(ids[i]), "");
        const Generated whole = said_alone(asked[i], model, {.cache = toy.cache}), &said = w.answer(ids[i]);
        if (asked[i].generate.beams > 0 && said.ids != whole.ids) {
          ++early;
          continue;
        }
        ASSERT_LE(said.ids.size(), whole.ids.size());
        EXPECT_TRUE(std::equal(said.ids.begin(), said.ids.end(), whole.ids.begin()));
        if (said.ids.size() < whole.ids.size()) EXPECT_EQ(said.finish, Finish::length), ++early;
        else ++ended;
      }
      w.engine.drop_prefixes();
      EXPECT_EQ(w.engine.status().pages + w.engine.status().bytes, 0u);
    }
    EXPECT_GT(refused, 0);
    EXPECT_GT(ended, 0);
    if (pool.page_bytes() > 0 && !toy.translates()) EXPECT_GT(early, 0);
  }
}

// A text in one piece wants all its pages in one pass, whatever a window would hold later.
TEST(Engine, OnePieceCountsAllItsPages) {
  const ToyModel& toy = toy_model("windows");
  const KvPool pool(*toy.checkpoint.model, DType::f32);
  int seen = 0;
  Request r = asks(prompt_text(200), 0);
  r.one_piece = true;
  r.stream = {.keep = 0, .window = 20};
  r.rows = {.which = WantedRows::all,
            .see = [&](std::span<const Dim> p, const Tensor&) { seen += static_cast<int>(p.size()); }};
  const std::size_t all = pool.bytes_at_once(200);
  EXPECT_LT(pool.bytes_of(200, 0, r.stream), all);
  EngineWorld small({.budget = all - 1}, "windows"), large({.budget = all}, "windows");
  EXPECT_TRUE(holds(error_of([&] { small.engine.add(r); }), "bytes of the pool"));
  const Engine::Id id = large.engine.add(r);
  large.finish_all(3);
  EXPECT_EQ(large.error(id), "");
  EXPECT_EQ(seen, 200);
  EXPECT_EQ(large.engine.status().passes, 1u);
}

// --------------------------------------------------------------------------------------------- what is told
TEST(Engine, ForcedTokensAreSaidAndScored) {
  EngineWorld w;
  Request r = asks(prompt_text(20), 8);
  r.forced = {7, 1, 30};  // an end that is forced is a token like others, where it is ignored
  const Generated said = w.engine.finish(w.engine.add(r)).samples[0];
  ASSERT_EQ(said.ids.size(), 8u);
  EXPECT_EQ(said.ids[0], 7);
  EXPECT_EQ(said.ids[1], 1);
  EXPECT_EQ(said.ids[2], 30);
  // What follows is what follows the same text as a prompt; and their log-probabilities are a prompt's.
  Request scored = asks(prompt_text(20), 5);
  scored.tokens.insert(scored.tokens.end(), {7, 1, 30});
  scored.prompt_logprobs = 0;
  const Answer a = w.engine.finish(w.engine.add(scored));
  EXPECT_EQ(std::vector(said.ids.begin() + 3, said.ids.end()), a.samples[0].ids);
  ASSERT_EQ(a.prompt.size(), 22u);
  for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(a.prompt[19 + i].logprob, said.tokens[i].logprob);
}

TEST(Engine, AMaskIsKeptTo) {
  EngineWorld w;
  for (const bool beams : {false, true}) {
    Request r = asks(prompt_text(20), 10);
    r.generate.sampler.temperature = beams ? 0 : 1;
    r.generate.beams = beams ? 3 : 0;
    r.mask = [](std::span<const std::int32_t> answer, std::span<std::uint64_t> allowed) {
      for (std::uint64_t& word : allowed) word = 0;
      const auto even = static_cast<int>(answer.size() % 2);  // even and odd ids in turn
      for (int t = 2 + even; t < 40; t += 2) allowed[0] |= std::uint64_t{1} << t;
    };
    const Generated said = w.engine.finish(w.engine.add(r)).samples[0];
    ASSERT_EQ(said.ids.size(), 10u);
    for (std::size_t i = 0; i < 10; ++i) EXPECT_EQ(static_cast<std::size_t>(said.ids[i]) % 2, i % 2) << i;
  }
}

// The same answer however the mask was made: token by token, as bits, or by whoever asks for a mask alone.
TEST(Engine, AConstraintIsAMaskThatRemembers) {
  EngineWorld w;
  const auto same_mask = [](std::span<const std::int32_t> answer, std::span<std::uint64_t> allowed) {
    SaltedConstraint c(7);
    for (const std::int32_t id : answer) c.accept(id);
    c.mask(allowed);
  };
  for (const double temperature : {0.0, 1.0})
    for (const int beams : {0, 3}) {
      if (beams > 0 && temperature > 0) continue;
      Request r = asks(prompt_text(20), 12);
      r.generate.sampler.temperature = temperature;
      r.generate.sampler.seed = 5;
      r.generate.beams = beams, r.generate.samples = 3;
      r.generate.ignore_eos = false;
      r.generate.top_logprobs = 2;
      Request masked = r;
      r.constraint = std::make_shared<SaltedConstraint>(7);
      masked.mask = same_mask;
      const Answer a = w.engine.finish(w.engine.add(r)), b = w.engine.finish(w.engine.add(masked));
      ASSERT_EQ(a.samples.size(), 3u);
      for (std::size_t i = 0; i < 3; ++i) {
        EXPECT_EQ(a.samples[i].ids, b.samples[i].ids);
        EXPECT_EQ(a.samples[i].hash, b.samples[i].hash);
        EXPECT_EQ(a.samples[i].finish, b.samples[i].finish);
        SaltedConstraint kept(7);
        for (const std::int32_t id : a.samples[i].ids) kept.accept(id);
      }
    }
}

TEST(Engine, AConstraintLeavesLogProbabilitiesToTheModel) {
  EngineWorld w;
  Request r = asks(prompt_text(20), 6);
  r.constraint = std::make_shared<SaltedConstraint>(3);
  const Generated said = w.engine.finish(w.engine.add(r)).samples[0];
  ASSERT_FALSE(said.ids.empty());
  Request scored = asks(prompt_text(20), 0);
  scored.tokens.insert(scored.tokens.end(), said.ids.begin(), said.ids.end());
  scored.prompt_logprobs = 0;
  const Answer a = w.engine.finish(w.engine.add(scored));
  for (std::size_t i = 0; i < said.ids.size(); ++i)
    EXPECT_EQ(a.prompt[19 + i].logprob, said.tokens[i].logprob) << i;
}

TEST(Engine, WhatNothingIsLeftOfIsAnError) {
  EngineWorld w;
  for (const double temperature : {0.0, 1.0})
    for (const int beams : {0, 2}) {
      Request r = asks(prompt_text(20), 6);
      r.generate.sampler.temperature = beams > 0 ? 0 : temperature;
      r.generate.beams = beams;
      SaltedConstraint c(3);
      for (std::int32_t t = 0; t < 40; ++t)  // all that it allows first
        if (c.allows(t)) r.generate.sampler.bias.emplace_back(t, -std::numeric_limits<float>::infinity());
      r.constraint = std::make_shared<SaltedConstraint>(3);
      const std::string error = error_of([&] { w.engine.finish(w.engine.add(r)); });
      EXPECT_TRUE(error.find(beams > 0 ? "forbid every token" : "leave none") != std::string::npos) << error;
    }
}

// A constraint that fails takes its own request with it; who is in the same passes does not see it.
TEST(Engine, AConstraintThatFailsEndsItsRequestAlone) {
  class Failing : public SaltedConstraint {
   public:
    Failing() : SaltedConstraint(7) {}
    std::unique_ptr<Constraint> copy() const override { return std::make_unique<Failing>(*this); }
    void accept(std::int32_t id) override {
      if (++said_ == 3) fail("a constraint that fails");
      SaltedConstraint::accept(id);
    }

   private:
    int said_ = 0;
  };
  const auto ask = [] {
    Request r = asks(prompt_text(20), 10);
    r.constraint = std::make_shared<SaltedConstraint>(7);
    return r;
  };
  EngineWorld alone, w;
  const Answer wanted = alone.engine.finish(alone.engine.add(ask()));
  const Engine::Id other = w.engine.add(ask());
  Request failing = asks(prompt_text(20), 10);
  failing.constraint = std::make_shared<Failing>();
  const Engine::Id own = w.engine.add(failing);
  EXPECT_EQ(error_of([&] { w.engine.finish(own); }), "a constraint that fails");
  EXPECT_EQ(w.engine.finish(other).samples.at(0).hash, wanted.samples.at(0).hash);
}

// Log-softmax of what forward() says, in double.
TEST(Engine, LogProbabilitiesOfAPromptAreThoseOfItsRows) {
  EngineWorld w;
  const std::vector<std::int32_t> ids = prompt_text(90);
  const Model& model = *w.toy.checkpoint.model;
  rapt::Run run(toy_device());
  const Tensor logits =
      forward(run, model, {.tokens = ids, .sequences = {{.first = 0, .count = 90, .opened = 256}}});
  for (const Dim rows : {1, 7, 200}) {
    Request r = asks(ids, 0);
    r.prompt_logprobs = 2;
    const Engine::Id id = w.engine.add(r);
    w.finish_all(rows);
    const std::vector<TokenChoice>& said = w.done(id).answer->prompt;
    ASSERT_EQ(said.size(), 89u);
    for (Dim i = 0; i < 89; ++i) {
      double sum = 0, best = -1e9;
      std::int32_t which = -1;
      for (Dim t = 0; t < 40; ++t) {
        const double x = logits.at(i * 40 + t);
        sum += std::exp(x);
        if (x > best) best = x, which = static_cast<std::int32_t>(t);
      }
      const TokenChoice& c = said[static_cast<std::size_t>(i)];
      const std::int32_t next = ids[static_cast<std::size_t>(i + 1)];
      EXPECT_EQ(c.id, next);
      EXPECT_NEAR(c.logprob, logits.at(i * 40 + next) - std::log(sum), 1e-5);
      ASSERT_EQ(c.top.size(), 2u);
      EXPECT_EQ(c.top[0].first, which);
      EXPECT_NEAR(c.top[0].second, best - std::log(sum), 1e-5);
      if (which == next) EXPECT_EQ(c.top[0].second, c.logprob);
    }
  }
}

TEST(Engine, RowsAreThoseOfForward) {
  EngineWorld w;
  const std::vector<std::int32_t> ids = prompt_text(100);
  const Model& model = *w.toy.checkpoint.model;
  for (const bool whole : {false, true})
    for (const bool hidden : {false, true}) {
      if (hidden && !whole) continue;
      rapt::Run run(toy_device());
      Batch batch{.tokens = ids, .sequences = {{.first = 0, .count = 100, .opened = 256}}};
      batch.want.hidden = hidden;
      const Tensor all = forward(run, model, batch);
      std::map<Dim, int> told;
      Request r = asks(ids, 0);
      r.whole = whole;
      r.rows = {.which = WantedRows::chosen, .chosen = {0, 3, 63, 64, 99}, .hidden = hidden};
      r.rows.see = [&](std::span<const Dim> positions, const Tensor& rows) {
        for (std::size_t i = 0; i < positions.size(); ++i) {
          ++told[positions[i]];
          EXPECT_EQ(hash_of_row(rows, static_cast<Dim>(i)), hash_of_row(all, positions[i])) << positions[i];
        }
      };
      w.engine.add(r);
      w.finish_all(30);
      EXPECT_EQ(told, (std::map<Dim, int>{{0, 1}, {3, 1}, {63, 1}, {64, 1}, {99, 1}}));
    }
}

TEST(Engine, EventsTellHowFarAPromptIsRead) {
  EngineWorld w;
  const Engine::Id id = w.engine.add(asks(prompt_text(100), 2));
  for (int i = 0; i < 4; ++i) w.step(30);
  std::vector<Dim> read;
  for (const Event& e : w.events[id])
    if (e.kind == EventKind::prompt) {
      EXPECT_EQ(e.of, 100);
      read.push_back(e.read);
    }
  EXPECT_EQ(read, (std::vector<Dim>{0, 30, 60, 90, 100}));
}

// The hash by hand, from the logits of a pass over the whole text: of every token said, and of the one that
// ended the answer.
TEST(Engine, AHashIsThatOfIdsAndTheirLogits) {
  EngineWorld w;
  const Model& model = *w.toy.checkpoint.model;
  ASSERT_FALSE(w.engine.stops().empty());
  const std::int32_t end = w.engine.stops()[0];
  for (const bool beams : {false, true}) {
    Request r = asks(prompt_text(20), 6);
    r.generate.ignore_eos = false;
    r.generate.beams = beams ? 1 : 0;
    r.generate.sampler.bias = {{7, 2.f}};  // changes who is chosen, not the logit that counts
    r.mask = [&](std::span<const std::int32_t> answer, std::span<std::uint64_t> allowed) {
      const std::uint64_t only = std::uint64_t{1} << end;
      allowed[0] = answer.size() == 4 ? only : allowed[0] & ~only;
    };
    const Generated said = w.engine.finish(w.engine.add(r)).samples[0];
    ASSERT_EQ(said.ids.size(), 4u);
    EXPECT_EQ(said.finish, Finish::stop);
    std::vector<std::int32_t> text = r.tokens, chosen = said.ids;
    chosen.push_back(end);
    std::uint64_t hash = kNothingChosen, other_id = hash, other_logit = hash;
    for (const std::int32_t id : chosen) {
      rapt::Run run(toy_device());
      const Dim n = static_cast<Dim>(text.size());
      const Tensor logits =
          forward(run, model, {.tokens = text, .sequences = {{.first = 0, .count = n, .opened = 256}}});
      const auto logit = static_cast<float>(logits.at((n - 1) * 40 + id));
      add_choice(hash, id, logit);
      add_choice(other_id, id == chosen[2] ? id + 1 : id, logit);
      add_choice(other_logit, id, id == chosen[1] ? std::nextafter(logit, 1e9f) : logit);
      text.push_back(id);
    }
    EXPECT_EQ(said.hash, hash) << (beams ? "beams" : "");
    EXPECT_NE(hash, other_id);
    EXPECT_NE(hash, other_logit);
  }
}

TEST(Engine, EventsCarryWhatWasChosenAndWhen) {
  EngineWorld w({.rows = 1});
  Request r = asks(prompt_text(20), 6), plain = r;
  r.generate.top_logprobs = 3;
  plain.generate.logprobs = false;
  const Engine::Id one = w.engine.add(r), two = w.engine.add(plain);
  w.finish_all();
  std::size_t n = 0;
  double before = 0;
  for (const Event& e : w.events[one]) {
    if (e.kind != EventKind::token || e.id < 0) continue;
    const TokenChoice& c = w.answer(one).tokens.at(n++);
    EXPECT_EQ(e.choice.id, e.id);
    EXPECT_EQ(e.choice.logprob, c.logprob);
    EXPECT_EQ(e.choice.top, c.top);
    EXPECT_EQ(c.top.size(), 3u);
    EXPECT_GE(e.seconds, before);
    before = e.seconds;
  }
  EXPECT_EQ(n, 6u);
  for (const Event& e : w.events[two]) EXPECT_EQ(e.choice.id, -1);
  EXPECT_TRUE(w.answer(two).tokens.empty());
  // The second waits for the first.
  const GenerateTimes &first = w.done(one).answer->times, &second = w.done(two).answer->times;
  EXPECT_GT(second.queue_seconds, first.queue_seconds);
  EXPECT_GE(second.queue_seconds, first.prompt_seconds + first.decode_seconds);
  EXPECT_NEAR(second.queue_seconds + second.prompt_seconds + second.decode_seconds, w.done(two).seconds,
              0.01);
}

// --------------------------------------------------------------------------------- what stays for the next
TEST(Engine, AHeldTextIsGoneOnWithToTheToken) {
  for (const char* model : {"gqa", "windows", "sinks", "lstm", "translator", "lstm-attention"}) {
    SCOPED_TRACE(model);
    const ToyModel& toy = toy_model(model);
    EngineWorld w({.cache = toy.cache}, model);
    Request r = asks(prompt_text(toy.translates() ? 5 : 77), 9);
    if (toy.translates()) r.source = prompt_text(30, 8);
    r.hold = 5;
    const Engine::Id first = w.engine.add(r);
    w.finish_all();
    const Generated said = w.answer(first);
    EXPECT_TRUE(same_answer(said, said_alone(r, model, {.cache = toy.cache})));
    const Dim whole = static_cast<Dim>(r.tokens.size() + said.ids.size());
    EXPECT_EQ(w.engine.held(5), whole - 1);  // the last token was not read
    EXPECT_GT(w.engine.status().bytes, 0u);

    Request next = r;
    next.tokens.insert(next.tokens.end(), said.ids.begin(), said.ids.end());
    next.tokens.push_back(11);
    const Engine::Id second = w.engine.add(next);
    w.finish_all();
    EXPECT_EQ(w.reused(second), whole - 1);
    EXPECT_EQ(w.done(second).answer->times.reused_tokens, whole - 1);
    EXPECT_TRUE(same_answer(w.answer(second), said_alone(next, model, {.cache = toy.cache})));

    // Cut in the middle, other words: pages go back a little, a state does not.
    Request other = next;
    other.tokens.resize(other.tokens.size() - 6);
    other.tokens.push_back(2), other.tokens.push_back(3);
    const Engine::Id third = w.engine.add(other);
    w.finish_all();
    EXPECT_EQ(w.reused(third), toy.recurrent() ? 0 : static_cast<Dim>(next.tokens.size()) - 6);
    EXPECT_TRUE(same_answer(w.answer(third), said_alone(other, model, {.cache = toy.cache})));
    w.engine.release(5);
    EXPECT_EQ(w.engine.held(5), 0);
    EXPECT_EQ(w.engine.status().pages + w.engine.status().bytes, 0u);
  }
}

TEST(Engine, AHeldTextOfAnotherSourceOrOtherEditsIsReadAnew) {
  EngineWorld w({}, "translator");
  Request r = asks(prompt_text(5), 4);
  r.source = prompt_text(20, 8);
  r.hold = 5;
  w.engine.add(r);
  w.finish_all();
  Request other = r;
  other.source = prompt_text(25, 9);
  const Engine::Id id = w.engine.add(other);
  w.finish_all();
  EXPECT_EQ(w.reused(id), 0);
  EXPECT_TRUE(same_answer(w.answer(id), said_alone(other, "translator")));

  EngineWorld plain;
  Request edited = asks(prompt_text(50), 4);
  edited.hold = 5;
  Taps taps;
  taps.edit(site::resid_out, [](const Tapped& t) {
    for (Dim i = 0; i < t.value.elements(); ++i) t.value.set(i, t.value.at(i) * 0.5);
  });
  Request unedited = edited;
  edited.taps = &taps;
  plain.engine.add(edited);
  plain.finish_all();
  const Engine::Id same = plain.engine.add(edited);
  plain.finish_all();
  EXPECT_GT(plain.reused(same), 0);
  const Engine::Id without = plain.engine.add(unedited);
  plain.finish_all();
  EXPECT_EQ(plain.reused(without), 0);
  EXPECT_TRUE(same_answer(plain.answer(without), said_alone(unedited)));
}

TEST(Engine, AHeldPrefixThatDiffersIsReadAnew) {
  EngineWorld w({}, "prefix");
  Request r = asks(prompt_text(30), 4);
  r.prefix = 20;
  r.hold = 5;
  w.engine.add(r);
  w.finish_all();
  Request other = r;
  other.tokens[12] = other.tokens[12] == 9 ? 8 : 9;
  const Engine::Id id = w.engine.add(other);
  w.finish_all();
  EXPECT_EQ(w.error(id), "");
  EXPECT_EQ(w.reused(id), 0);
  EXPECT_TRUE(same_answer(w.answer(id), said_alone(other, "prefix")));
  other.tokens[25] = other.tokens[25] == 9 ? 8 : 9;  // behind it
  const Engine::Id behind = w.engine.add(other);
  w.finish_all();
  EXPECT_EQ(w.reused(behind), 25);
  EXPECT_TRUE(same_answer(w.answer(behind), said_alone(other, "prefix")));
}

// One waits for a held text that another runs in, is cancelled, and a third waits on.
TEST(Engine, WhoIsCancelledWhileItWaitsLeavesTheHeldTextAlone) {
  EngineWorld w;
  Request r = asks(prompt_text(50), 20);
  r.hold = 5;
  const Engine::Id first = w.engine.add(r);
  w.step();
  const Engine::Id second = w.engine.add(r), third = w.engine.add(r);
  w.step();
  w.engine.cancel(second);
  w.step();
  EXPECT_TRUE(w.is_done(second));
  EXPECT_FALSE(w.is_done(first));
  EXPECT_EQ(w.count(third, EventKind::prompt), 0);  // it waits
  w.finish_all();
  EXPECT_TRUE(same_answer(w.answer(first), w.answer(third)));
  EXPECT_EQ(w.reused(third), 49);
  w.engine.release(5);
  EXPECT_EQ(w.engine.status().pages + w.engine.status().bytes, 0u);
}

// A request that waits all the same takes nothing from those that hold a text.
TEST(Engine, NothingIsEvictedForOneThatWaits) {
  const std::size_t page = EngineWorld().engine.pool().page_bytes();
  EngineWorld w({.budget = 6 * page});
  Request held = asks(prompt_text(70, 5), 1);
  held.hold = 4;
  w.engine.add(held);
  w.finish_all();
  ASSERT_EQ(w.engine.held(4), 70);
  const Engine::Id writes = w.engine.add(asks(prompt_text(64, 6), 190));
  w.step();
  const Engine::Id waits = w.engine.add(asks(prompt_text(250, 7), 1));  // four pages, and one for each row
  for (int i = 0; i < 60; ++i) w.step();
  EXPECT_FALSE(w.is_done(waits));
  EXPECT_EQ(w.engine.held(4), 70);
  w.finish_all();
  EXPECT_EQ(w.answer(writes).ids.size(), 190u);
  EXPECT_TRUE(same_answer(w.answer(waits), said_alone(asks(prompt_text(250, 7), 1))));
}

// Some beams of a search can only end: fewer live, and the pages of these are kept.
TEST(Engine, ASearchThatShrinksSharesItsPages) {
  EngineWorld w({.prefixes = true});
  ASSERT_FALSE(w.engine.stops().empty());
  const auto end = static_cast<std::size_t>(w.engine.stops()[0]);
  Request r = asks(prompt_text(60, 8), 30);
  r.generate.beams = 4;
  r.generate.ignore_eos = false;
  std::vector<std::int32_t> best;  // it ends; the others go on
  int ending = 0, going = 0;
  r.mask = [&](std::span<const std::int32_t> answer, std::span<std::uint64_t> allowed) {
    if (answer.size() != 3) return;
    if (best.empty()) best.assign(answer.begin(), answer.end());
    if (std::ranges::equal(answer, best)) {
      std::ranges::fill(allowed, std::uint64_t{0});
      allowed[end / 64] = std::uint64_t{1} << end % 64;
      ++ending;
    } else {
      ++going;
    }
  };
  const Engine::Id id = w.engine.add(r);
  w.finish_all();
  EXPECT_EQ(w.error(id), "");
  EXPECT_GT(ending * going, 0) << "it matters";
  EXPECT_TRUE(same_answer(w.answer(id), said_alone(r)));
}

TEST(Engine, BeginningsAreReusedByWholePages) {
  for (const char* model : {"gqa", "windows", "sinks", "lstm"}) {
    SCOPED_TRACE(model);
    const ToyModel& toy = toy_model(model);
    const Dim hidden = toy.recipe().embed.sink_tokens;
    EngineWorld w({.cache = toy.cache, .prefixes = true}, model);
    const Request r = asks(prompt_text(150), 5);
    const Engine::Id first = w.engine.add(r);
    w.finish_all();
    EXPECT_EQ(w.reused(first), 0);
    const Engine::Id again = w.engine.add(r);
    w.finish_all();
    EXPECT_EQ(w.reused(again), 128 - hidden);
    EXPECT_EQ(w.done(again).answer->times.prompt_tokens, 150 - (128 - hidden));
    EXPECT_TRUE(same_answer(w.answer(again), w.answer(first)));
    Request shorter = r, spaced = r, streamed = r, scored = r, wanted = r;
    shorter.tokens.resize(100);
    shorter.tokens[80] = shorter.tokens[80] == 9 ? 8 : 9;
    spaced.space = "another";
    scored.prompt_logprobs = 0;
    wanted.rows = {.which = WantedRows::chosen, .chosen = {70}, .see = [](auto, const Tensor&) {}};
    const Engine::Id one = w.engine.add(shorter), two = w.engine.add(spaced), three = w.engine.add(scored),
                     four = w.engine.add(wanted);
    w.finish_all();
    // Of a state there is one where a piece of the text ended: after 128 tokens.
    const Dim shared = toy.recurrent() ? 0 : 64 - hidden;
    EXPECT_EQ(w.reused(one), shared);
    EXPECT_TRUE(same_answer(w.answer(one), said_alone(shorter, model, {.cache = toy.cache})));
    EXPECT_EQ(w.reused(two), 0);
    EXPECT_EQ(w.reused(three), 0);
    EXPECT_LE(w.reused(four), 70);
    for (const Engine::Id id : {two, three, four}) EXPECT_TRUE(same_answer(w.answer(id), w.answer(first)));
    EXPECT_EQ(w.engine.status().reused_tokens,
              static_cast<std::uint64_t>(128 - hidden + shared + w.reused(four)));
    EXPECT_GT(w.engine.status().prefixes, 0u);
    w.engine.drop_prefixes();
    EXPECT_EQ(w.engine.status().pages + w.engine.status().bytes, 0u);
  }
}

TEST(Engine, EqualPromptsAreComputedOnce) {
  EngineWorld w({.prefixes = true});
  const Request r = asks(prompt_text(200), 4);
  const Engine::Id first = w.engine.add(r), second = w.engine.add(r), third = w.engine.add(r);
  w.finish_all(40);
  EXPECT_EQ(w.reused(first), 0);
  EXPECT_EQ(w.reused(second), 192);
  EXPECT_EQ(w.reused(third), 192);
  EXPECT_EQ(w.engine.status().prompt_tokens, 216u);
  EXPECT_TRUE(same_answer(w.answer(first), w.answer(second)) &&
              same_answer(w.answer(first), w.answer(third)));
}

// A window lets go of pages that prefixes still hold: they are room for who needs it.
TEST(Engine, PrefixesOfPagesBehindAWindowGiveWay) {
  const ToyModel& toy = toy_model("windows");
  const KvPool pool(*toy.checkpoint.model, DType::f32);
  const Request r = asks(prompt_text(60), 180);
  EngineWorld w({.budget = pool.bytes_of(241), .prefixes = true}, "windows");
  const Engine::Id id = w.engine.add(r);
  w.finish_all();
  EXPECT_TRUE(same_answer(w.answer(id), said_alone(r, "windows")));
}

// ------------------------------------------------------------------------------------------------ pauses
struct Pressed : EngineWorld {
  std::vector<Request> asked;
  std::vector<Engine::Id> ids;
  explicit Pressed(double pages) : EngineWorld({.budget = bytes(pages)}) {}
  static std::size_t bytes(double pages) {
    const KvPool pool(*toy_model("gqa").checkpoint.model, DType::f32);
    return static_cast<std::size_t>(pages * static_cast<double>(pool.page_bytes()));
  }
  void ask(const Request& r) {
    asked.push_back(r);
    ids.push_back(engine.add(r));
  }
};

TEST(Engine, PausesAreToldAndChangeNothing) {
  Pressed w(7);
  for (std::uint64_t i = 0; i < 3; ++i) w.ask(asks(prompt_text(60, i), 100));
  w.finish_all();
  int pauses = 0;
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_TRUE(same_answer(w.answer(w.ids[i]), said_alone(w.asked[i])));
    EXPECT_EQ(w.count(w.ids[i], EventKind::paused), w.done(w.ids[i]).answer->pauses);
    pauses += w.done(w.ids[i]).answer->pauses;
  }
  EXPECT_GT(pauses, 0);
  EXPECT_EQ(w.done(w.ids[0]).answer->pauses, 0);  // the oldest goes on
  EXPECT_EQ(w.engine.status().pauses, static_cast<std::uint64_t>(pauses));
}

// A text that is paused while it is read: no row is told or shown twice.
TEST(Engine, APauseWhileReadingTellsNothingTwice) {
  int reading = 0;
  for (const bool prefixes : {false, true})
    for (double pages = 9; pages < 13; pages += kSanitized ? 1 : 0.5) {
      SCOPED_TRACE(concat(pages, " pages", prefixes ? ", prefixes" : ""));
      EngineWorld w({.budget = Pressed::bytes(pages), .prefixes = prefixes});
      std::map<Dim, int> told, shown;
      Taps taps;
      taps.see(site::embed, [&](const Tapped& t) {
        for (Dim i = 0; i < t.value[0]; ++i) ++shown[t.position + i];
      });
      std::vector<Engine::Id> writers;
      for (std::uint64_t i = 0; i < 3; ++i) writers.push_back(w.engine.add(asks(prompt_text(60, i), 140)));
      w.step(200);
      Request r = asks(prompt_text(130, 3), 3);
      r.prompt_logprobs = 0;
      r.rows = {.which = WantedRows::all, .see = [&](std::span<const Dim> positions, const Tensor&) {
                  for (const Dim p : positions) ++told[p];
                }};
      r.taps = &taps;
      const Engine::Id id = w.engine.add(r);
      w.finish_all(1);
      Dim read = 0;
      for (const Event& e : w.events[id]) {
        if (e.kind == EventKind::prompt) read = e.read;
        reading += e.kind == EventKind::paused && read > 0 && read < 130;
      }
      ASSERT_EQ(w.error(id), "");
      EXPECT_EQ(told.size(), 130u);
      int twice = 0;
      for (const auto& [position, times] : told) twice += times != 1;
      for (const auto& [position, times] : shown) twice += times != 1;
      EXPECT_EQ(twice, 0);
      const std::vector<TokenChoice>& said = w.done(id).answer->prompt;
      EXPECT_EQ(said.size(), 129u);
      for (std::size_t i = 0; i < std::min<std::size_t>(said.size(), 129); ++i)
        EXPECT_EQ(said[i].id, r.tokens[i + 1]);
      r.taps = nullptr;
      EXPECT_TRUE(same_answer(w.answer(id), said_alone(r)));
      for (std::uint64_t i = 0; i < 3; ++i)
        EXPECT_TRUE(same_answer(w.answer(writers[i]), said_alone(asks(prompt_text(60, i), 140))));
    }
  EXPECT_GT(reading, 0);
}

// A text that was paused while it was read, and of which more is in the cache when it is read again: what was
// not shown is shown now, what was found at first is all that is said to be reused.
TEST(Engine, APauseWhileReadingHidesNothing) {
  const Request first = asks(prompt_text(60, 0), 140);
  Request r = asks(first.tokens, 3);
  const Generated said = said_alone(first);
  r.tokens.insert(r.tokens.end(), said.ids.begin(), said.ids.begin() + 90);
  int paused = 0;
  for (double pages = 8; pages < 14; pages += kSanitized ? 1 : 0.25)
    for (const Dim rows : {1, 2, 3}) {
      SCOPED_TRACE(concat(pages, " pages, ", rows, " rows"));
      EngineWorld w({.budget = Pressed::bytes(pages), .prefixes = true});
      std::map<Dim, int> shown;
      Taps taps;
      taps.see(site::embed, [&](const Tapped& t) {
        for (Dim i = 0; i < t.value[0]; ++i) ++shown[t.position + i];
      });
      w.engine.add(first);
      for (std::uint64_t i = 1; i < 3; ++i) w.engine.add(asks(prompt_text(60, i), 140));
      w.step(200);
      Request watched = r;
      watched.taps = &taps;
      const Engine::Id id = w.engine.add(watched);
      w.finish_all(rows);
      Dim read = 0;
      for (const Event& e : w.events[id]) {
        if (e.kind == EventKind::prompt) read = e.read;
        paused += e.kind == EventKind::paused && read > 0 && read < 150;
      }
      ASSERT_EQ(w.error(id), "");
      const Dim reused = w.reused(id);
      EXPECT_EQ(w.done(id).answer->times.reused_tokens, reused);
      for (Dim p = 0; p < 152; ++p) EXPECT_EQ(shown[p], p < reused ? 0 : 1) << "position " << p;
      EXPECT_TRUE(same_answer(w.answer(id), said_alone(r)));
    }
  EXPECT_GT(paused, 0);
}

TEST(Engine, TheOnlyOneEndsWhereThePoolDoes) {
  Pressed w(3);
  Request r = asks(prompt_text(60), -1);
  w.ask(r);
  w.finish_all();
  const Generated& said = w.answer(w.ids[0]);
  EXPECT_EQ(said.finish, Finish::length);
  EXPECT_EQ(said.ids.size(), 3 * 64 - 60 + 1u);
  const Generated whole = said_alone(r);
  EXPECT_TRUE(std::equal(said.ids.begin(), said.ids.end(), whole.ids.begin()));
  EXPECT_EQ(whole.ids.size(), 256u - 60);
}

// --------------------------------------------------------------------------- who fails, who is cancelled
TEST(Engine, OneThatFailsLeavesTheOthersAlone) {
  EngineWorld w;
  const Request good = asks(prompt_text(40), 10);
  Taps taps;
  int calls = 0;
  taps.see(site::z, [&](const Tapped&) {
    if (++calls == 8) fail("enough");
  });
  Request watched = good, masked = good, told = good, beams = good;
  watched.taps = &taps;
  masked.mask = beams.mask = [](std::span<const std::int32_t> answer, std::span<std::uint64_t> allowed) {
    if (answer.size() == 3) std::ranges::fill(allowed, 0);
  };
  beams.generate.beams = 2;
  told.rows = {.which = WantedRows::all, .see = [](auto, const Tensor&) { fail("no rows, please"); }};
  const Engine::Id first = w.engine.add(good), one = w.engine.add(watched), two = w.engine.add(masked),
                   three = w.engine.add(told), four = w.engine.add(beams), last = w.engine.add(good);
  w.finish_all();
  EXPECT_EQ(w.error(one), "enough");
  EXPECT_TRUE(holds(w.error(two), "the mask forbids every token"));
  EXPECT_EQ(w.error(three), "no rows, please");
  EXPECT_NE(w.error(four), "");
  for (const Engine::Id id : {first, last}) EXPECT_TRUE(same_answer(w.answer(id), said_alone(good)));
  EXPECT_EQ(w.engine.status().pages + w.engine.status().bytes, 0u);
  EXPECT_TRUE(holds(error_of([&] { w.engine.finish(w.engine.add(masked)); }), "the mask forbids"));
}

TEST(Engine, CancelledBeforeItStarted) {
  EngineWorld w({.rows = 1});
  const Engine::Id first = w.engine.add(asks(prompt_text(30), 10)),
                   second = w.engine.add(asks(prompt_text(30), 10)),
                   third = w.engine.add(asks(prompt_text(30), 3));
  w.engine.cancel(third);
  w.step();
  EXPECT_TRUE(w.is_done(third));
  EXPECT_EQ(w.answer(third).finish, Finish::cancelled);
  w.engine.cancel(second);
  w.step();
  EXPECT_TRUE(w.is_done(second));
  EXPECT_EQ(w.answer(second).finish, Finish::cancelled);
  EXPECT_TRUE(w.answer(second).ids.empty());
  w.finish_all();
  EXPECT_EQ(w.answer(first).ids.size(), 10u);
  w.engine.cancel(first);  // nobody is there any more
  w.engine.cancel(77);
  w.step();
}

TEST(Engine, AThreadsCancelScopeEndsAllThatAPassReads) {
  EngineWorld w, encoder({}, "encoder");
  std::atomic<bool> flag{true};
  const auto cancelled = [&](EngineWorld& world, Engine::Id id) {
    return world.done(id).answer->samples.at(0).finish == Finish::cancelled;
  };
  const Engine::Id one = w.engine.add(asks(prompt_text(10), 5)),
                   other = w.engine.add(asks(prompt_text(12), 5));
  const auto whole = [](Dim length) {
    Request r{.tokens = prompt_text(length)};
    r.generate.max_tokens = 0;
    r.whole = true;
    return r;
  };
  const Engine::Id first = encoder.engine.add(whole(7)), second = encoder.engine.add(whole(9));
  {
    const CancelScope scope(flag);
    w.step();
    encoder.step();
  }
  EXPECT_TRUE(cancelled(w, one) && cancelled(w, other));
  EXPECT_TRUE(cancelled(encoder, first) && cancelled(encoder, second));
  EXPECT_TRUE(w.engine.idle() && encoder.engine.idle());
  EXPECT_EQ(w.engine.status().pages, 0u);
  // Behind it everything is as it was.
  const Request again = asks(prompt_text(10), 5);
  const Engine::Id id = w.engine.add(again);
  w.finish_all();
  EXPECT_EQ(w.answer(id).ids, said_alone(again).ids);
}

TEST(Engine, OneSampleIsCancelledAlone) {
  Request r = asks(prompt_text(90), 12);
  r.generate.samples = 3;
  r.generate.sampler.temperature = 1;
  EngineWorld whole;
  const Engine::Id all = whole.engine.add(r);
  whole.finish_all();
  for (const int steps : {0, 1, 4}) {  // while the prompt is read, too
    SCOPED_TRACE(steps);
    EngineWorld w;
    const Engine::Id id = w.engine.add(r);
    for (int i = 0; i < steps; ++i) w.step(50);
    w.engine.cancel(id, 1);
    w.events.clear();
    w.finish_all();
    for (const Event& e : w.events[id])
      EXPECT_FALSE(e.kind == EventKind::token && e.sample == 1 && e.id >= 0);
    EXPECT_TRUE(same_answer(w.answer(id, 0), whole.answer(all, 0)));
    EXPECT_TRUE(same_answer(w.answer(id, 2), whole.answer(all, 2)));
    const Generated &said = w.answer(id, 1), &right = whole.answer(all, 1);
    EXPECT_EQ(said.finish, Finish::cancelled);
    EXPECT_EQ(said.ids.size(), steps < 4 ? 0u : 3u);
    EXPECT_TRUE(std::equal(said.ids.begin(), said.ids.end(), right.ids.begin()));
  }
  EngineWorld w;  // all of them, one after the other
  const Engine::Id id = w.engine.add(r);
  w.step(50);
  for (int i = 0; i < 3; ++i) w.engine.cancel(id, i);
  w.step(50);
  EXPECT_TRUE(w.is_done(id));
  for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(w.answer(id, i).finish, Finish::cancelled);
}

// Beams of a recurrent model copy states: as much room as add() asked for is enough.
TEST(Engine, BeamsOfStatesFitTheRoomTheyAskedFor) {
  for (const char* model : {"lstm", "lstm-attention"}) {
    SCOPED_TRACE(model);
    const ToyModel& toy = toy_model(model);
    Request r = asks(prompt_text(9), 12);
    if (toy.translates()) r.source = prompt_text(30, 8);
    r.generate.beams = 4;
    std::size_t least = 0;
    for (std::size_t budget = 100; least == 0; budget += 100) {
      EngineWorld w({.budget = budget}, model);
      if (error_of([&] { w.engine.add(r); }).empty()) least = budget;
    }
    EngineWorld w({.budget = least}, model);
    const Engine::Id id = w.engine.add(r);
    w.finish_all();
    EXPECT_TRUE(same_answer(w.answer(id), said_alone(r, model)));
  }
}

}  // namespace
}  // namespace rapt::test
