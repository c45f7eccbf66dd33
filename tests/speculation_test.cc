// SPDX-License-Identifier: Apache-2.0
// Guessed tokens change nothing but time: answers with right guesses, wrong ones and what is no token, beside
// the same answers without, bit for bit; and what the engine and the pool hold afterwards. Random schedules
// with guesses: schedules_test.cc. What is guessed and when: rapt/use/speculate_test.cc.
#include <gtest/gtest.h>

#include <algorithm>

#include "rapt/use/generate.h"
#include "tests/engine_world.h"
#include "tests/memory_checkpoint.h"
#include "tests/tools.h"

namespace rapt::test {
namespace {

using Said = std::vector<std::int32_t>;

// Guesses at an answer that is known: with `wrong` > 0 every so many-th is another token.
Engine::Options knowing(Engine::Options options, std::vector<Said> answers, Dim count,
                        std::size_t wrong = 0) {
  options.guess = [=](std::span<const std::int32_t>, std::span<const std::int32_t> answer, Dim most) {
    Said out;
    for (const Said& whole : answers)
      if (whole.size() > answer.size() && std::equal(answer.begin(), answer.end(), whole.begin()))
        out.assign(whole.begin() + static_cast<std::ptrdiff_t>(answer.size()), whole.end());
    out.resize(std::min(out.size(), static_cast<std::size_t>(std::min(most, count))));
    for (std::size_t i = 0; i < out.size() && wrong > 0; ++i)
      if ((answer.size() + i) % wrong == wrong - 1) out[i] = (out[i] + 1) % 40;
    return out;
  };
  return options;
}

struct Case {
  const char* what;
  std::string model;
  DType cache;
  std::function<void(Request&)> change;
};

std::vector<Case> cases() {
  const auto none = [](Request&) {};
  std::vector<Case> all;
  for (const char* model :
       {"gqa", "windows", "alibi", "experts", "latent", "delta", "conv", "translator", "prefix"})
    all.push_back({"greedy", model, DType::f32, none});
  for (const DType cache : {DType::f16, DType::bf16}) all.push_back({"greedy", "windows", cache, none});
  for (const DType cache : {DType::q8_0, DType::q4_0})
    for (const char* model : {"sinks", "latent"}) all.push_back({"greedy", model, cache, none});
  const auto add = [&](const char* what, const std::function<void(GenerateOptions&)>& change) {
    all.push_back({what, "windows", DType::f32, [=](Request& r) { change(r.generate); }});
  };
  add("temperature", [](GenerateOptions& o) { o.sampler.temperature = 1; });
  add("hot",
      [](GenerateOptions& o) { o.sampler = {.top_k = 0, .top_p = 1, .min_p = 0, .temperature = 1.5}; });
  add("penalties", [](GenerateOptions& o) {
    o.sampler = {.repeat_penalty = 1.3, .frequency_penalty = 0.5, .presence_penalty = 0.2, .penalty_last = 9};
  });
  add("penalties of the answer", [](GenerateOptions& o) {
    o.sampler = {.frequency_penalty = 0.5, .answer_begins = 70, .temperature = 0};
  });
  for (const int version : {1, 2})
    add("mirostat", [=](GenerateOptions& o) { o.sampler.mirostat = version, o.sampler.temperature = 1; });
  add("bias", [](GenerateOptions& o) { o.sampler.bias = {{7, 2.f}, {9, -3.f}}; });
  add("bad words", [](GenerateOptions& o) { o.bad_words = {{5}, {6, 7}, {8, 9}}; });
  add("several", [](GenerateOptions& o) { o.samples = 3, o.sampler.temperature = 1; });
  add("stop text", [](GenerateOptions& o) { o.stops = {"ab", "q", "<3"}, o.sampler.temperature = 1; });
  add("stop ids", [](GenerateOptions& o) { o.stop_ids = {5, 11, 17}, o.sampler.temperature = 1; });
  add("its own end", [](GenerateOptions& o) { o.ignore_eos = false, o.sampler.temperature = 1.3; });
  add("one token", [](GenerateOptions& o) { o.max_tokens = 1; });
  add("two tokens", [](GenerateOptions& o) { o.max_tokens = 2; });
  add("to the context's end", [](GenerateOptions& o) { o.max_tokens = -1; });
  all.push_back({"mask", "windows", DType::f32, [](Request& r) {
                   r.mask = [](std::span<const std::int32_t> answer, std::span<std::uint64_t> allowed) {
                     for (std::size_t t = 2; t < 40; ++t)
                       if ((t + answer.size()) % 3 == 0) allowed[0] &= ~(std::uint64_t{1} << t);
                   };
                 }});
  for (const char* model : {"windows", "delta"})
    for (const double temperature : {0.0, 1.0})
      all.push_back({"constraint", model, DType::f32, [=](Request& r) {
                       r.generate.sampler.temperature = temperature;
                       r.constraint = std::make_shared<SaltedConstraint>(11);
                     }});
  all.push_back({"forced", "windows", DType::f32, [](Request& r) { r.forced = {3, 9, 3, 9}; }});
  all.push_back({"stream", "gqa", DType::f32, [](Request& r) { r.stream = {.keep = 4, .window = 21}; }});
  all.push_back({"stream", "windows", DType::f16, [](Request& r) { r.stream = {.keep = 0, .window = 70}; }});
  all.push_back({"prefix", "prefix", DType::f32, [](Request& r) { r.prefix = 30; }});
  return all;
}

TEST(Speculation, NoBitDependsOnGuesses) {
  std::uint64_t right = 0, guessed = 0;
  for (const Case& c : cases()) {
    SCOPED_TRACE(concat(c.what, ", ", c.model, ", ", name_of(c.cache)));
    const ToyModel& toy = toy_model(c.model);
    Request r = asks(prompt_text(toy.translates() ? 3 : 70), 90);
    if (toy.translates()) r.source = prompt_text(30, 9);
    r.generate.top_logprobs = 2;
    c.change(r);
    const Engine::Options plain{.cache = c.cache, .prefixes = true};
    EngineWorld alone(plain, c.model);
    const Engine::Id id = alone.engine.add(r);
    alone.finish_all();
    const Answer& whole = *alone.done(id).answer;
    std::vector<Said> answers;
    for (const Generated& g : whole.samples) answers.push_back(g.ids);
    struct How {
      Dim count;
      std::size_t wrong;
    };
    for (const How how : {How{4, 0}, How{31, 0}, How{5, 3}, How{3, 1}}) {
      SCOPED_TRACE(concat(how.count, " guesses, wrong ", how.wrong));
      EngineWorld w(knowing(plain, answers, how.count, how.wrong), c.model);
      const Engine::Id with = w.engine.add(r);
      w.finish_all();
      const Answer& said = *w.done(with).answer;
      ASSERT_EQ(said.samples.size(), whole.samples.size());
      for (std::size_t i = 0; i < said.samples.size(); ++i)
        EXPECT_TRUE(same_answer(said.samples[i], whole.samples[i])) << i;
      EXPECT_EQ(said.times.decoded_tokens, whole.times.decoded_tokens);
      const Engine::Status s = w.engine.status();
      EXPECT_EQ(s.guessed_tokens, static_cast<std::uint64_t>(said.times.guessed_tokens));
      EXPECT_EQ(s.right_guesses, static_cast<std::uint64_t>(said.times.right_guesses));
      if (how.wrong == 0) EXPECT_EQ(s.right_guesses, s.guessed_tokens);
      if (how.wrong == 1) EXPECT_EQ(s.right_guesses, 0u);
      if (how.wrong == 0 && how.count == 31 && whole.samples[0].ids.size() > 40)
        EXPECT_LT(s.passes, alone.engine.status().passes / 3);
      right += s.right_guesses, guessed += s.guessed_tokens;
      // What is found of it later is the same, too: pages that guesses filled are whole.
      EXPECT_EQ(s.prefixes, alone.engine.status().prefixes);
      w.engine.drop_prefixes();
      EXPECT_EQ(w.engine.status().pages + w.engine.status().bytes, 0u);
    }
  }
  EXPECT_GT(right, 2000u);
  EXPECT_GT(guessed, right + 1000);
}

// An answer that is gone on with: what it began with is known, all of it, half, or wrongly from somewhere on.
TEST(Speculation, NoBitDependsOnWhatIsKnown) {
  for (const Case& c : cases()) {
    SCOPED_TRACE(concat(c.what, ", ", c.model, ", ", name_of(c.cache)));
    const ToyModel& toy = toy_model(c.model);
    Request r = asks(prompt_text(toy.translates() ? 3 : 70), 90);
    if (toy.translates()) r.source = prompt_text(30, 9);
    r.generate.top_logprobs = 2;
    r.speculate = false;
    c.change(r);
    const Engine::Options options{.cache = c.cache, .prefixes = true};
    EngineWorld alone(options, c.model);
    const Engine::Id id = alone.engine.add(r);
    alone.finish_all();
    const Answer& whole = *alone.done(id).answer;
    for (const int how : {0, 1, 2, 3}) {
      SCOPED_TRACE(how);
      Request more = r;
      for (const Generated& g : whole.samples) {
        Said known = g.ids;
        if (how == 1) known.resize(known.size() / 2);
        if (how == 2 && known.size() > 20) known[known.size() / 2] = (known[known.size() / 2] + 1) % 40;
        if (how == 3) known.insert(known.end(), 30, 5);  // beyond its end
        more.known.push_back(known);
      }
      EngineWorld w(options, c.model);
      const Engine::Id with = w.engine.add(more);
      w.finish_all();
      const Answer& said = *w.done(with).answer;
      ASSERT_EQ(said.samples.size(), whole.samples.size());
      for (std::size_t i = 0; i < said.samples.size(); ++i)
        EXPECT_TRUE(same_answer(said.samples[i], whole.samples[i])) << i;
      const Engine::Status s = w.engine.status();
      EXPECT_EQ(s.guessed_tokens + s.right_guesses, 0u);
      if (how != 2 && whole.samples[0].ids.size() > 80)
        EXPECT_LT(s.passes, alone.engine.status().passes * (how == 1 ? 2 : 1) / (how == 1 ? 3 : 10));
      EXPECT_EQ(s.prefixes, alone.engine.status().prefixes);
      w.engine.drop_prefixes();
      EXPECT_EQ(w.engine.status().pages + w.engine.status().bytes, 0u);
    }
  }
}

TEST(Speculation, WhatIsNoTokenIsNotKnown) {
  for (const std::int32_t odd : {-1, 40, std::numeric_limits<std::int32_t>::max()}) {
    Request r = asks(prompt_text(30), 20);
    r.known = {{3, odd}};
    EngineWorld w;
    EXPECT_THROW(w.engine.add(r), Error);
  }
}

TEST(Speculation, WhatIsNoTokenIsNotGuessed) {
  const Request r = asks(prompt_text(30), 20);
  for (const std::int32_t odd : {-1, 40, std::numeric_limits<std::int32_t>::max()}) {
    Engine::Options options;
    options.guess = [=](auto, auto, Dim most) { return Said(static_cast<std::size_t>(most) + 5, odd); };
    EngineWorld w(options);
    EXPECT_TRUE(same_answer(w.engine.finish(w.engine.add(r)).samples[0], said_alone(r)));
    EXPECT_EQ(w.engine.status().guessed_tokens, 0u);
  }
}

// Rows that are watched or edited are shown once each; beams and recurrent states have one row.
TEST(Speculation, NotWhereRowsAreWatchedNorInBeamsNorWhereNobodyWantsIt) {
  const auto guesses = [](Engine::Options options = {}) {
    options.guess = [](auto, auto, Dim) { return Said{3, 4}; };
    return options;
  };
  const auto guessed = [&](const Request& r, const char* model) {
    EngineWorld w(guesses(), model);
    w.engine.finish(w.engine.add(r));
    return w.engine.status().guessed_tokens;
  };
  Request r = asks(prompt_text(20), 10), beams = r, watched = r, without = r;
  EXPECT_GT(guessed(r, "gqa"), 0u);
  EXPECT_EQ(guessed(r, "lstm"), 0u);
  beams.generate.beams = 2;
  EXPECT_EQ(guessed(beams, "gqa"), 0u);
  Taps taps;
  Dim rows = 0;
  taps.see(site::resid_out, [&](const Tapped& t) { rows += t.layer == 0 ? t.value[0] : 0; });
  watched.taps = &taps;
  EXPECT_EQ(guessed(watched, "gqa"), 0u);
  EXPECT_EQ(rows, 29);
  without.speculate = false;
  EXPECT_EQ(guessed(without, "gqa"), 0u);
}

// A conversation goes on from what is held; it is held to the token that was said.
TEST(Speculation, WhatIsHeldEndsWithTheAnswer) {
  for (const char* model : {"gqa", "windows", "delta"})
    for (const char* stop : {"", "b"}) {
      SCOPED_TRACE(concat(model, " ", stop));
      Request r = asks(prompt_text(50), 40);
      r.hold = 7;
      r.generate.sampler.temperature = 1;
      if (*stop) r.generate.stops = {stop};
      EngineWorld plain({}, model);
      const Generated first = plain.engine.finish(plain.engine.add(r)).samples[0];
      EngineWorld w(knowing({}, {first.ids}, 9), model);
      EXPECT_TRUE(same_answer(w.engine.finish(w.engine.add(r)).samples[0], first));
      EXPECT_GT(w.engine.status().right_guesses, 0u);
      EXPECT_EQ(w.engine.held(7), plain.engine.held(7));
      Request next = r;
      next.tokens.insert(next.tokens.end(), first.ids.begin(), first.ids.end());
      next.tokens.push_back(5);
      const Answer a = w.engine.finish(w.engine.add(next)), b = plain.engine.finish(plain.engine.add(next));
      EXPECT_TRUE(same_answer(a.samples[0], b.samples[0]));
      EXPECT_EQ(a.times.reused_tokens, b.times.reused_tokens);
      EXPECT_EQ(w.engine.status().bytes, plain.engine.status().bytes);
    }
}

// Guesses take no room: in the smallest pool answers end where they end without.
TEST(Speculation, GuessesTakeNoRoom) {
  for (const char* model : {"gqa", "windows", "delta"}) {
    const ToyModel& toy = toy_model(model);
    Request r = asks(prompt_text(20), -1);
    std::vector<std::size_t> lengths;
    const std::size_t page = KvPool(*toy.checkpoint.model, DType::f32).page_bytes();
    for (std::size_t pages = 2; pages < 9; ++pages) {
      SCOPED_TRACE(concat(model, ", ", pages, " pages"));
      EngineWorld plain({.budget = pages * page / 2}, model);
      Generated alone;
      try {
        alone = plain.engine.finish(plain.engine.add(r)).samples[0];
      } catch (const Error&) {
        continue;
      }
      lengths.push_back(alone.ids.size());
      EngineWorld w(knowing({.budget = pages * page / 2}, {said_alone(r, model).ids}, 31, 17), model);
      EXPECT_TRUE(same_answer(w.engine.finish(w.engine.add(r)).samples[0], alone));
      EXPECT_GT(w.engine.status().right_guesses, 0u);
    }
    EXPECT_GT(lengths.size(), 2u);
  }
}

// A listener that has heard enough has heard no more than it wanted, and the answer ends there.
TEST(Speculation, AListenerStopsInTheMiddleOfWhatWasGuessed) {
  const ToyModel& toy = toy_model("gqa");
  Said prompt = prompt_text(30);
  prompt.insert(prompt.end(), prompt.begin(), prompt.end());
  GenerateOptions o;
  o.max_tokens = 150, o.ignore_eos = true;
  o.sampler.temperature = 0;
  for (const int most : {1, 2, 7, 45, 121}) {
    std::vector<Generated> answers;
    std::vector<int> told;
    std::vector<Dim> guessed;
    for (const Speculate how : {Speculate::off, Speculate::lookup}) {
      Session session(toy_device(), toy.checkpoint, {.speculate = how, .always_guess = true});
      int count = 0;
      answers.push_back(session.generate(
          prompt, o, [&](int, std::int32_t id, std::string_view) { return id < 0 || ++count < most; })[0]);
      told.push_back(count);
      guessed.push_back(session.times().right_guesses);
    }
    EXPECT_EQ(told, (std::vector<int>{most, most}));
    EXPECT_TRUE(same_answer(answers[0], answers[1]));
    EXPECT_EQ(answers[1].finish, Finish::cancelled);
    if (most == 121) EXPECT_GT(guessed[1], 0);
  }
}

TEST(Speculation, AnErrorOfAListenerEndsTheAnswer) {
  const ToyModel& toy = toy_model("gqa");
  GenerateOptions o;
  o.max_tokens = 60, o.ignore_eos = true;
  o.sampler.temperature = 0;
  Session session(toy_device(), toy.checkpoint, {.speculate = Speculate::lookup, .always_guess = true});
  for (int when = 1; when < 40; when += 3) {
    int count = 0;
    EXPECT_EQ(error_of([&] {
                session.generate(prompt_text(20), o, [&](int, std::int32_t, std::string_view) -> bool {
                  if (++count == when) fail("enough");
                  return true;
                });
              }),
              "enough");
    EXPECT_EQ(count, when);
  }
  EXPECT_EQ(session.generate(prompt_text(20), o)[0].ids, said_alone(asks(prompt_text(20), 60)).ids);
}

// By look-up and by measured times: whatever they say, the bits stay.
TEST(Speculation, LookUpAndItsTimesChangeNothing) {
  Said text = prompt_text(30);
  text.insert(text.end(), text.begin(), text.end());
  Request r = asks(text, 120);
  const Generated alone = said_alone(r);
  for (const bool always : {true, false}) {
    EngineWorld w({.speculate = Speculate::lookup, .always_guess = always});
    std::vector<Engine::Id> ids;
    for (int i = 0; i < 3; ++i) ids.push_back(w.engine.add(r));
    w.finish_all();
    for (const Engine::Id id : ids) EXPECT_TRUE(same_answer(w.answer(id), alone));
    if (always) EXPECT_GT(w.engine.status().right_guesses, 30u);  // a greedy toy repeats itself
  }
}

// ------------------------------------------------------------------------------------------- a draft model
TEST(Speculation, ADraftModelSaysWhatItSays) {
  for (const char* model : {"gqa", "windows"})
    for (const double temperature : {0.0, 1.0}) {
      SCOPED_TRACE(concat(model, " ", temperature));
      // The model itself is right as often as can be; another one hardly ever.
      const Checkpoint other = memory_checkpoint(small_decoder(24), 77);
      for (const bool same : {true, false}) {
        const Checkpoint& draft = same ? toy_model(model).checkpoint : other;
        Request r = asks(prompt_text(70), 60);
        r.generate.sampler.temperature = temperature;
        r.generate.sampler.repeat_penalty = 1.1;
        EngineWorld w({.speculate = Speculate::draft, .draft = &draft, .always_guess = true}, model);
        std::vector<Engine::Id> ids;
        for (int i = 0; i < 2; ++i) {
          r.generate.sampler.seed = static_cast<std::uint64_t>(i);
          ids.push_back(w.engine.add(r));
        }
        w.finish_all();
        for (std::uint64_t i = 0; i < 2; ++i) {
          r.generate.sampler.seed = i;
          EXPECT_TRUE(same_answer(w.answer(ids[i]), said_alone(r, model)));
        }
        const Engine::Status s = w.engine.status();
        EXPECT_GT(s.guessed_tokens, 60u);
        // Its draws are the model's own, so the same model is never wrong, whatever the temperature.
        if (same) EXPECT_EQ(s.right_guesses, s.guessed_tokens);
        else EXPECT_LT(s.right_guesses, s.guessed_tokens / 2);
        EXPECT_EQ(s.pages + s.bytes, 0u);
      }
    }
}

TEST(Speculation, ADraftModelMustHaveTheSameTokens) {
  const ToyModel& toy = toy_model("gqa");
  const auto refused = [&](const Checkpoint& draft) {
    return error_of(
        [&] { Engine(toy_device(), toy.checkpoint, {.speculate = Speculate::draft, .draft = &draft}); });
  };
  Checkpoint fewer = memory_checkpoint(small_decoder(0, 256, 39), 3);
  EXPECT_TRUE(holds(refused(fewer), "it has 39 of them, the model 40")) << refused(fewer);
  class Other : public LetterTokenizer {
   public:
    using LetterTokenizer::LetterTokenizer;
    std::string bytes_of(std::int32_t id) const override {
      return id == 17 ? "!" : LetterTokenizer::bytes_of(id);
    }
  };
  Checkpoint others = memory_checkpoint(small_decoder(), 3);
  others.tokenizer = std::make_shared<Other>(40);
  EXPECT_TRUE(holds(refused(others), "token 17 is")) << refused(others);
  EXPECT_TRUE(holds(refused(toy_model("lstm").checkpoint), "cannot go back"));
  EXPECT_TRUE(holds(refused(toy_model("translator").checkpoint), "translates"));
  EXPECT_TRUE(holds(error_of([&] { Engine(toy_device(), toy.checkpoint, {.speculate = Speculate::draft}); }),
                    "need a model"));
}

// A draft model with little room or a short context says nothing where it has none.
TEST(Speculation, ADraftModelWithoutRoomIsSilent) {
  const Checkpoint draft = memory_checkpoint(small_decoder(0, 90), 8);
  const std::size_t page = KvPool(*draft.model, DType::f32).page_bytes();
  Request r = asks(prompt_text(70), 60);
  for (const std::size_t budget : {std::size_t{0}, 8 * page, 64 * page}) {
    EngineWorld w({.budget = budget, .speculate = Speculate::draft, .draft = &draft, .always_guess = true});
    const Engine::Id one = w.engine.add(r), two = w.engine.add(r);
    w.finish_all();
    EXPECT_TRUE(same_answer(w.answer(one), said_alone(r)));
    EXPECT_TRUE(same_answer(w.answer(two), said_alone(r)));
  }
}

// -------------------------------------------------------------------------------------------------- the pool
// After so many guesses a pool is as if they had never been, behind windows and in chunks, too.
TEST(Speculation, APoolForgetsGuesses) {
  for (const char* model : {"gqa", "windows", "sinks", "delta", "conv"}) {
    SCOPED_TRACE(model);
    const ToyModel& toy = toy_model(model);
    const Model& m = *toy.checkpoint.model;
    KvPool plain(m, DType::f32), pool(m, DType::f32);
    const Said text = prompt_text(200), wrong = prompt_text(40, 8);
    const auto read = [&](KvPool& p, std::span<const std::int32_t> ids, Dim past, Dim guessed) {
      rapt::Run run(toy_device());
      const Batch batch{
          .tokens = ids,
          .sequences =
              {{.first = 0, .count = static_cast<Dim>(ids.size()), .past = past, .id = 1, .opened = 256}},
          .want = {.rows = Want::Rows::all}};
      p.guess(1, guessed);
      const Tensor out = forward(run, m, batch, nullptr, &p);
      std::vector<float> first(out.as<const float>().begin(), out.as<const float>().begin() + 40);
      return first;
    };
    const Dim hidden = plain.hidden();
    for (Dim i = 0; i < 200; ++i) {
      const std::span<const std::int32_t> one(&text[static_cast<std::size_t>(i)], 1);
      const Dim most = std::min<Dim>(9, 63 - (i + hidden) % 64 - (pool.has_chunks() ? 1 : 0)),
                n = std::max<Dim>(0, i % 3 == 0 ? 0 : most);
      Said with(one.begin(), one.end());
      with.insert(with.end(), wrong.begin(), wrong.begin() + n);
      EXPECT_EQ(read(pool, with, i, n), read(plain, one, i, 0)) << i;
      if (n > 0) pool.truncate(1, i + 1);
      ASSERT_EQ(pool.length(1), i + 1);
      ASSERT_EQ(pool.bytes(), plain.bytes()) << i;
    }
  }
}

}  // namespace
}  // namespace rapt::test
