// SPDX-License-Identifier: Apache-2.0
// Sessions against a plain loop without a cache, beams against exhaustive search, perplexity by definition.
#include "rapt/use/generate.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "rapt/inspect/edits.h"
#include "rapt/text/stop_text.h"
#include "tests/memory_checkpoint.h"

namespace rapt::test {
namespace {

using Ids = std::vector<std::int32_t>;

// Logits after the last token, the whole sequence computed anew: no cache, no chunks, no company.
std::vector<float> plain_logits(Device& device, const Model& model, const Ids& ids, const Ids& source = {},
                                Dim opened = 0, Taps* taps = nullptr) {
  rapt::Run run(device);
  run.taps = taps;
  Batch batch{.tokens = ids}, from{.tokens = source};
  batch.sequences.push_back({.first = 0, .count = static_cast<Dim>(ids.size()), .opened = opened});
  if (!source.empty()) from.sequences.push_back({.first = 0, .count = static_cast<Dim>(source.size())});
  const Tensor out = forward(run, model, batch, source.empty() ? nullptr : &from);
  const Dim V = out.last(), T = out.rows();
  std::vector<float> row;
  for (Dim i = 0; i < V; ++i) row.push_back(static_cast<float>(out.at((T - 1) * V + i)));
  return row;
}

// The plain loop: sample number `sample` of what generate() should give.
Ids plain_generate(Device& device, const Checkpoint& c, const Ids& prompt, const SamplerOptions& o, Dim count,
                   std::uint64_t sample = 0, Taps* taps = nullptr) {
  Sampler sampler(o, sample);
  Ids all = prompt;
  while (static_cast<Dim>(all.size() - prompt.size()) < count) {
    const std::int32_t id =
        sampler.choose(plain_logits(device, *c.model, all, {}, 0, taps), all, static_cast<Dim>(all.size()))
            .id;
    if (id == 1) break;
    all.push_back(id);
  }
  return {all.begin() + static_cast<std::ptrdiff_t>(prompt.size()), all.end()};
}

GenerateOptions greedy(Dim tokens) {
  GenerateOptions o;
  o.sampler.temperature = 0;
  o.max_tokens = tokens;
  return o;
}

const Ids kPrompt = {0, 5, 9, 28, 12, 7, 7, 3, 28, 20, 31, 6};

class Generate : public testing::Test {
 protected:
  Device device{{.threads = 2}};
};

// Heads switched off and streams steered while a text is read in pieces and written token by token: as in
// one pass over the whole.
TEST_F(Generate, EditsChangePromptAndAnswerAlike) {
  const Checkpoint c = memory_checkpoint(small_decoder(), 2);
  const Ids plain = plain_generate(device, c, kPrompt, greedy(12).sampler, 12);
  int changed = 0;
  for (const char* text : {"L0H0:zero", "resid_post.0:add=0.4", "value.1:scale=-2", "embeddings:scale=0.2"}) {
    const std::vector<Edit> edits = {parse_edit(text)};
    Taps taps;
    const auto check = install_edits(taps, *c.model, edits, Passes::many);
    GenerateOptions o = greedy(12);
    o.chunk = 5;
    const Ids ids = Session(device, c, {.taps = &taps}).generate(kPrompt, o).at(0).ids;
    check();
    EXPECT_EQ(ids, plain_generate(device, c, kPrompt, o.sampler, 12, 0, &taps)) << text;
    changed += ids != plain;
  }
  EXPECT_GE(changed, 3);
  Taps taps;
  for (const char* text : {"L0H0@p-2:zero", "z.0:mean"}) {
    const std::vector<Edit> edits = {parse_edit(text)};
    EXPECT_THROW(install_edits(taps, *c.model, edits, Passes::many), Error) << text;
  }
}

TEST_F(Generate, EditsReachThePerplexity) {
  const Checkpoint c = memory_checkpoint(small_decoder(), 2);
  Ids ids;
  for (int i = 0; i < 40; ++i) ids.push_back(i * 7 % 31 + 1);
  const std::vector<Edit> edits = {parse_edit("logits:scale=0")};
  Taps taps;
  install_edits(taps, *c.model, edits, Passes::many);
  const double all_alike = perplexity(device, c, ids, 16, -1, {}, &taps).perplexity,
               V = static_cast<double>(c.model->recipe.vocab);
  EXPECT_NEAR(all_alike, V, 1e-4 * V);
  EXPECT_GT(std::abs(perplexity(device, c, ids, 16, -1).perplexity - V), 0.1);
}

TEST_F(Generate, GreedyIsTheArgmaxOfThePlainPassWhateverTheChunks) {
  int longest = 0;
  for (const Dim window : {0, 5}) {
    for (const std::uint64_t seed : {1, 2, 3}) {
      const Checkpoint c = memory_checkpoint(small_decoder(window), seed);
      const Ids want = plain_generate(device, c, kPrompt, greedy(0).sampler, 24);
      longest = std::max(longest, static_cast<int>(want.size()));
      for (const Dim chunk : {1, 5, 12, 512}) {
        Session session(device, c, {});
        GenerateOptions o = greedy(24);
        o.chunk = chunk;
        const std::vector<Generated> got = session.generate(kPrompt, o);
        ASSERT_EQ(got.size(), 1u);
        EXPECT_EQ(got[0].ids, want) << "window " << window << ", chunk " << chunk;
        EXPECT_EQ(got[0].finish, want.size() == 24 ? Finish::length : Finish::stop);
        EXPECT_EQ(session.times().prompt_tokens, 12);
        EXPECT_EQ(session.times().decoded_tokens, static_cast<Dim>(want.size()));
      }
    }
  }
  EXPECT_GT(longest, 10);
}

TEST_F(Generate, SamplesTogetherAreSamplesAlone) {
  const Checkpoint c = memory_checkpoint(small_decoder(7), 4);
  GenerateOptions o;
  o.max_tokens = 20;
  o.samples = 4;
  o.sampler.seed = 11, o.sampler.temperature = 1.2, o.sampler.repeat_penalty = 1.1,
  o.sampler.frequency_penalty = 0.1;
  Session session(device, c, {});
  const std::vector<Generated> got = session.generate(kPrompt, o);
  ASSERT_EQ(got.size(), 4u);
  for (std::uint64_t i = 0; i < 4; ++i)
    EXPECT_EQ(got[i].ids, plain_generate(device, c, kPrompt, o.sampler, 20, i)) << "sample " << i;
  EXPECT_NE(got[0].ids, got[1].ids);
  o.samples = 1;  // and the first one does not depend on the others
  EXPECT_EQ(session.generate(kPrompt, o)[0].ids, got[0].ids);
  EXPECT_EQ(session.times().reused_tokens, 11);
}

TEST_F(Generate, AConversationReadsItsNewTokensOnly) {
  for (const Dim window : {0, 4}) {
    const Checkpoint c = memory_checkpoint(small_decoder(window), 5);
    Session session(device, c, {});
    GenerateOptions o = greedy(6);
    o.ignore_eos = true;
    Ids text = kPrompt;
    const Ids first = session.generate(text, o)[0].ids;
    ASSERT_EQ(first.size(), 6u);
    EXPECT_EQ(session.times().reused_tokens, 0);
    text.insert(text.end(), first.begin(), first.end());
    text.insert(text.end(), {28, 14, 15});
    const Ids second = session.generate(text, o)[0].ids;
    EXPECT_EQ(session.times().reused_tokens, 17);  // the last token of the first answer was never fed
    EXPECT_EQ(session.times().prompt_tokens, 4);
    EXPECT_EQ(second, Session(device, c, {}).generate(text, o)[0].ids);

    Ids other = kPrompt;  // parts from what is cached after eight tokens
    other[8] = 19;
    const Ids third = session.generate(other, o)[0].ids;
    EXPECT_EQ(session.times().reused_tokens + session.times().prompt_tokens, 12);
    if (window == 0) EXPECT_EQ(session.times().reused_tokens, 8);
    EXPECT_EQ(third, Session(device, c, {}).generate(other, o)[0].ids);
    EXPECT_EQ(session.generate(kPrompt, o)[0].ids, first);
  }
}

TEST_F(Generate, IgnoreEosForbidsIt) {
  // A model whose greedy answer ends: look for one.
  for (std::uint64_t seed = 1; seed < 60; ++seed) {
    const Checkpoint c = memory_checkpoint(small_decoder(), seed);
    Session session(device, c, {});
    const Generated short_one = session.generate(kPrompt, greedy(30))[0];
    if (short_one.finish != Finish::stop) continue;
    GenerateOptions o = greedy(30);
    o.ignore_eos = true;
    const Generated long_one = session.generate(kPrompt, o)[0];
    EXPECT_EQ(long_one.ids.size(), 30u);
    EXPECT_EQ(long_one.finish, Finish::length);
    EXPECT_TRUE(std::equal(short_one.ids.begin(), short_one.ids.end(), long_one.ids.begin()));
    EXPECT_EQ(std::count(long_one.ids.begin(), long_one.ids.end(), 1), 0);
    EXPECT_EQ(std::count(short_one.ids.begin(), short_one.ids.end(), 1), 0);
    return;
  }
  FAIL() << "no model ended its answer";
}

TEST(StopText, HoldsBackWhatMayBecomeAStop) {
  const std::vector<std::string> stops = {"END", "\n\n", "ENDE!"};
  StopText t(stops);
  EXPECT_EQ(t.push("one E"), "one ");
  EXPECT_EQ(t.push("N"), "");
  EXPECT_EQ(t.push("X two\n"), "ENX two");
  EXPECT_EQ(t.push("three"), "\nthree");
  EXPECT_EQ(t.push("\n"), "");
  EXPECT_EQ(t.push("\nrest"), "");
  EXPECT_TRUE(t.found());
  EXPECT_EQ(t.which(), 1);
  EXPECT_EQ(t.push("more"), "");
  EXPECT_EQ(t.finish(), "");
  StopText u(stops);
  EXPECT_EQ(u.push("abcE"), "abc");
  EXPECT_EQ(u.finish(), "E");
  EXPECT_FALSE(u.found());
  EXPECT_EQ(u.which(), -1);
  StopText first(stops);  // the earlier one, whatever their order
  EXPECT_EQ(first.push("x\n\nyEND"), "x");
  EXPECT_EQ(first.which(), 1);
  const std::vector<std::string> twice = {"aab"};
  StopText v(twice);
  EXPECT_EQ(v.push("aa"), "");
  EXPECT_EQ(v.push("a"), "a");  // "aa" may still go on
  EXPECT_EQ(v.push("b!"), "");
  EXPECT_TRUE(v.found());
}

TEST_F(Generate, StopStringsEndTheAnswerAndAreNeverPrinted) {
  const Checkpoint c = memory_checkpoint(small_decoder(), 6);
  Session session(device, c, {});
  GenerateOptions o = greedy(20);
  o.ignore_eos = true;
  const Generated whole = session.generate(kPrompt, o)[0];
  ASSERT_GE(whole.text.size(), 8u) << whole.text;
  std::string printed;
  auto collect = [&](int, std::int32_t, std::string_view text) {
    printed += text;
    return true;
  };
  for (std::size_t at = 1; at + 3 <= whole.text.size(); ++at) {
    printed.clear();
    o.stops = {whole.text.substr(at, 3), "never said"};
    const Generated g = session.generate(kPrompt, o, collect)[0];
    EXPECT_EQ(g.finish, Finish::stop);
    EXPECT_EQ(g.text, whole.text.substr(0, whole.text.find(o.stops[0])));
    EXPECT_EQ(printed, g.text);
  }
  printed.clear();
  // Begins like the answer, never comes: everything is handed out at the end.
  o.stops = {whole.text + "more"};
  EXPECT_EQ(session.generate(kPrompt, o, collect)[0].text, whole.text);
  EXPECT_EQ(printed, whole.text);
}

TEST_F(Generate, CancelEndsAtTheNextTokenAndChunk) {
  const Checkpoint c = memory_checkpoint(small_decoder(), 6);
  Session session(device, c, {});
  GenerateOptions o = greedy(50);
  o.ignore_eos = true;
  std::atomic<bool> cancel = false;
  int calls = 0;
  const Generated g = session.generate(
      kPrompt, o,
      [&](int, std::int32_t id, std::string_view) {
        if (id >= 0 && ++calls == 7) cancel = true;
        return true;
      },
      {}, &cancel)[0];
  EXPECT_EQ(g.finish, Finish::cancelled);
  EXPECT_EQ(g.ids.size(), 7u);

  cancel = false;
  Session fresh(device, c, {});
  o.chunk = 4;
  Dim seen = 0;
  const Generated none =
      fresh.generate(kPrompt, o, {}, [&](Dim done, Dim) { seen = done, cancel = done >= 4; }, &cancel)[0];
  EXPECT_EQ(none.finish, Finish::cancelled);
  EXPECT_TRUE(none.ids.empty());
  EXPECT_EQ(seen, 4);
  EXPECT_EQ(fresh.cached(), 4);  // what was read stays
  cancel = false;
  EXPECT_EQ(fresh.generate(kPrompt, greedy(5))[0].ids,
            Session(device, c, {}).generate(kPrompt, greedy(5))[0].ids);
  EXPECT_EQ(fresh.times().reused_tokens, 4);

  o.samples = 3;  // one sample is told to stop, the others go on
  const std::vector<Generated> three =
      session.generate(kPrompt, o, [](int sample, std::int32_t, std::string_view) { return sample != 1; });
  EXPECT_EQ(three[1].finish, Finish::cancelled);
  EXPECT_EQ(three[1].ids.size(), 1u);
  EXPECT_EQ(three[2].ids.size(), 50u);
}

TEST_F(Generate, AFullContextIsAnErrorWithNumbers) {
  const Checkpoint c = memory_checkpoint(small_decoder(0, 64), 6);
  Session session(device, c, {.context = 12});
  try {
    session.generate(kPrompt, greedy(5));
    FAIL();
  } catch (const Error& e) {
    const std::string text = e.what();
    EXPECT_NE(text.find("12 tokens"), std::string::npos) << text;
    EXPECT_NE(text.find("up to 64"), std::string::npos) << text;
    EXPECT_NE(text.find("--overflow stream"), std::string::npos) << text;
  }
  Session wider(device, c, {.context = 20});
  GenerateOptions o = greedy(-1);
  o.ignore_eos = true;
  const Generated g = wider.generate(kPrompt, o)[0];
  EXPECT_EQ(g.finish, Finish::length);
  EXPECT_EQ(g.ids.size(), 8u);
  EXPECT_THROW(wider.generate(Ids{}, o), Error);
  EXPECT_THROW(wider.generate(Ids{40}, o), Error);
  EXPECT_THROW(Session(device, memory_checkpoint(small_learned(64), 1), {.context = 65}), Error);
}

TEST_F(Generate, StreamingRunsOnAndSaysWhatIsForgotten) {
  // The window belongs to the sequence; a recipe that has it gives the same.
  Recipe r = small_decoder(0, 32);
  const Checkpoint plain = memory_checkpoint(r, 8);
  stream_windows(r, 4, 12);
  const Checkpoint windowed = memory_checkpoint(r, 8);
  GenerateOptions o = greedy(120);
  o.ignore_eos = true;
  std::vector<Generated> first;
  for (const Dim chunk : {1, 7, 64}) {
    Ids prompt;
    for (int i = 0; i < 70; ++i) prompt.push_back(2 + (i * 7) % 30);
    for (const Checkpoint* c : {&plain, &windowed}) {
      Session session(device, *c, {.stream = {4, 12}});
      o.chunk = chunk;
      o.logprobs = true;
      const std::vector<Generated> g = session.generate(prompt, o);
      EXPECT_EQ(g[0].ids.size(), 120u);
      EXPECT_EQ(session.times().dropped_tokens, 70 + 119 - 16);
      if (first.empty()) first = g;
      EXPECT_EQ(g[0].ids, first[0].ids) << "chunk " << chunk;
      for (std::size_t i = 0; i < first[0].tokens.size(); ++i)
        EXPECT_EQ(g[0].tokens[i].logprob, first[0].tokens[i].logprob) << "token " << i;
    }
  }
  EXPECT_THROW(Session(device, memory_checkpoint(small_learned(), 8), {.stream = {4, 12}}), Error);
}

TEST_F(Generate, StreamingIsRefusedWherePositionsAreAbsolute) {
  Recipe learned = small_learned();
  try {
    stream_windows(learned, 4, 16);
    FAIL();
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("learned position"), std::string::npos) << e.what();
    EXPECT_NE(std::string(e.what()).find("64"), std::string::npos) << e.what();
  }
  Recipe t5 = preset("t5"), ok = small_decoder(5);
  EXPECT_THROW(stream_windows(t5, 4, 16), Error);
  EXPECT_THROW(stream_windows(ok, -1, 16), Error);
  EXPECT_THROW(stream_windows(ok, 4, 0), Error);
  stream_windows(ok, 4, 16);
  for (const PartRecipe& p : ok.decoder->kinds.at("W").parts)  // a window of its own stays
    if (p.self()) EXPECT_EQ(std::pair(p.self()->window, p.self()->keep), std::pair(Dim{5}, Dim{0}));
  for (const PartRecipe& p : ok.decoder->kinds.at("L").parts)
    if (p.self()) EXPECT_EQ(std::pair(p.self()->window, p.self()->keep), std::pair(Dim{16}, Dim{4}));
}

TEST_F(Generate, LogProbabilitiesOfTheAnswer) {
  const Checkpoint c = memory_checkpoint(small_decoder(), 9);
  GenerateOptions o = greedy(5);
  o.ignore_eos = true;
  o.logprobs = true, o.top_logprobs = 3;
  const Generated g = Session(device, c, {}).generate(kPrompt, o)[0];
  ASSERT_EQ(g.tokens.size(), 5u);
  Ids all = kPrompt;
  for (std::size_t i = 0; i < 5; ++i) {
    const std::vector<float> logits = plain_logits(device, *c.model, all);
    EXPECT_NEAR(g.tokens[i].logprob, logits[static_cast<std::size_t>(g.ids[i])] - log_sum_exp(logits), 1e-5);
    EXPECT_EQ(g.tokens[i].top.size(), 3u);
    all.push_back(g.ids[i]);
  }
}

// ------------------------------------------------------------------------------------------------ beams

struct Best {
  Ids ids;
  double score = -1e300;
};

// Every answer of at most `most` tokens, scored by the definition; the first best.
Best exhaustive(Device& device, const Checkpoint& c, const Ids& prompt, Dim most, double penalty,
                std::int32_t forbidden = -1, const Ids& source = {}) {
  Best best;
  const Dim V = c.model->recipe.vocab;
  std::function<void(const Ids&, double)> grow = [&](const Ids& answer, double sum) {
    Ids all = prompt;
    all.insert(all.end(), answer.begin(), answer.end());
    const std::vector<float> logits = plain_logits(device, *c.model, all, source);
    const double whole = log_sum_exp(logits);
    for (std::int32_t id = 0; id < V; ++id) {
      if (id == forbidden) continue;
      const double s = sum + logits[static_cast<std::size_t>(id)] - whole,
                   length = static_cast<double>(answer.size()) + 1;
      Ids longer = answer;
      if (id != 1) longer.push_back(id);
      if (id == 1 || static_cast<Dim>(length) == most) {
        if (s / std::pow(length, penalty) > best.score) best = {longer, s / std::pow(length, penalty)};
      } else {
        grow(longer, s);
      }
    }
  };
  grow({}, 0);
  return best;
}

TEST_F(Generate, WideBeamsFindTheBestAnswer) {
  int ended = 0;
  for (const std::uint64_t seed : {1, 2, 3, 4}) {
    for (const double penalty : {0.0, 1.0, 2.0}) {
      const Checkpoint c = memory_checkpoint(small_decoder(0, 64, 6), seed);
      const Ids prompt = {0, 3, 4, 2};
      GenerateOptions o = greedy(4);
      o.beams = 256;  // more than 5^4: nothing is cut
      o.length_penalty = penalty;
      o.samples = 3;
      Session session(device, c, {});
      const std::vector<Generated> got = session.generate(prompt, o);
      const Best want = exhaustive(device, c, prompt, 4, penalty);
      ASSERT_EQ(got.size(), 3u);
      EXPECT_EQ(got[0].ids, want.ids) << "seed " << seed << ", penalty " << penalty;
      EXPECT_NEAR(got[0].score, want.score, 1e-5);
      EXPECT_GE(got[0].score, got[1].score);
      EXPECT_GE(got[1].score, got[2].score);
      ended += got[0].finish == Finish::stop;
      // The conversation is still there, and the search left nothing behind in it.
      EXPECT_EQ(session.cached(), 4);
      EXPECT_EQ(session.generate(prompt, greedy(3))[0].ids,
                Session(device, c, {}).generate(prompt, greedy(3))[0].ids);
    }
  }
  EXPECT_GT(ended, 0);
}

TEST_F(Generate, OneBeamIsGreedy) {
  for (const std::uint64_t seed : {1, 2, 3}) {
    const Checkpoint c = memory_checkpoint(small_decoder(), seed);
    GenerateOptions o = greedy(12);
    o.ignore_eos = true;
    const Ids want = Session(device, c, {}).generate(kPrompt, o)[0].ids;
    o.beams = 1;
    EXPECT_EQ(Session(device, c, {}).generate(kPrompt, o)[0].ids, want);
  }
  const Checkpoint c = memory_checkpoint(small_decoder(), 1);
  GenerateOptions o = greedy(4);
  o.beams = 2, o.samples = 3;
  EXPECT_THROW(Session(device, c, {}).generate(kPrompt, o), Error);
}

// ----------------------------------------------------------------------------------------- encoder-decoders

Recipe small_translator(Dim vocab) {
  Recipe r = parse_recipe(
      R"({ "preset": "t5", "width": 16, "encoder": { "layers": 2 }, "decoder": { "layers": 2 } })");
  r.vocab = vocab, r.context = 32;
  for (auto* stack : {&*r.encoder, &*r.decoder})
    for (auto& [name, layer] : stack->kinds)
      for (PartRecipe& p : layer.parts) {
        if (AttnRecipe* a = p.attention()) a->heads = 2, a->head_dim = 8;
        if (FfnRecipe* f = p.ffn()) f->width = 24;
      }
  return r;
}

TEST_F(Generate, TranslateIsThePlainLoopAndTheBestBeam) {
  for (const std::uint64_t seed : {1, 2, 3}) {
    Checkpoint c = memory_checkpoint(small_translator(7), seed);
    c.decoder_start = 0;
    const Ids source = {3, 5, 2, 6, 4, 1};
    Session session(device, c, {});
    Ids want, all = {0};
    while (want.size() < 10) {
      std::vector<float> logits = plain_logits(device, *c.model, all, source);
      logits[0] = -1e30f;  // the start token is no answer
      const auto id =
          static_cast<std::int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
      if (id == 1) break;
      want.push_back(id);
      all.push_back(id);
    }
    const Generated g = session.translate(source, greedy(10))[0];
    EXPECT_EQ(g.ids, want);
    GenerateOptions o = greedy(10);
    o.samples = 3;
    for (const Generated& s : session.translate(source, o)) EXPECT_EQ(s.ids, want);
    o = greedy(3);
    o.beams = 300;
    const Best best = exhaustive(device, c, {0}, 3, 1, 0, source);
    EXPECT_EQ(session.translate(source, o)[0].ids, best.ids);
    EXPECT_THROW(session.generate(source, o), Error);
  }
  const Checkpoint d = memory_checkpoint(small_decoder(), 1);
  EXPECT_THROW(Session(device, d, {}).translate(kPrompt, greedy(3)), Error);
}

// -------------------------------------------------------------------------------- perplexity and embeddings

TEST_F(Generate, PerplexityCountsTheSecondHalfOfEachWindow) {
  for (const bool bos : {false, true}) {
    const Checkpoint c = memory_checkpoint(small_decoder(6), 3, DType::f32, bos);
    Ids ids;
    for (int i = 0; i < 133; ++i) ids.push_back(2 + (i * i + 3 * i) % 37);
    for (const Dim n : {8, 21, 40}) {
      double sum = 0, squares = 0;
      Dim count = 0;
      for (Dim at = 0; at + n <= 133; at += n) {
        Ids window(ids.begin() + at, ids.begin() + at + n);
        if (bos) window[0] = 0;
        for (Dim i = n / 2; i + 1 < n; ++i) {
          const std::vector<float> logits =
              plain_logits(device, *c.model, Ids(window.begin(), window.begin() + i + 1), {}, n);
          const double x =
              log_sum_exp(logits) - logits[static_cast<std::size_t>(window[static_cast<std::size_t>(i + 1)])];
          sum += x, squares += x * x;
          ++count;
        }
      }
      Dim calls = 0;
      const Perplexity p =
          perplexity(device, c, ids, n, -1, [&](Dim, Dim of, double) { calls += of == 133 / n; });
      EXPECT_EQ(p.tokens, count);
      EXPECT_EQ(p.chunks, 133 / n);
      EXPECT_EQ(calls, 133 / n);
      EXPECT_NEAR(p.nll, sum / double(count), 1e-6);
      EXPECT_NEAR(p.perplexity, std::exp(sum / double(count)), 1e-4);
      const double mean = sum / double(count), variance = squares / double(count) - mean * mean;
      EXPECT_NEAR(p.error, std::sqrt(variance / double(count - 1)) * p.perplexity, 1e-4);
      EXPECT_EQ(perplexity(device, c, ids, n, 2).chunks, 2);
    }
    EXPECT_THROW(perplexity(device, c, ids, 134, -1), Error);
    EXPECT_THROW(perplexity(device, c, ids, 3, -1), Error);
    EXPECT_THROW(perplexity(device, c, ids, 8, 0), Error);
  }
}

TEST_F(Generate, EmbeddingsArePooledHiddenStates) {
  for (const bool head : {false, true}) {
    for (const bool decoder : {false, true}) {
      Recipe r;
      if (decoder) {
        r = small_decoder();
      } else {
        r = parse_recipe(R"({ "preset": "bert", "width": 24, "context": 16, "encoder": { "layers": 2 } })");
        r.vocab = 40;
        for (PartRecipe& p : r.encoder->kinds.at("L").parts)
          if (AttnRecipe* a = p.self()) a->heads = 3;
      }
      if (decoder) r.context = 16;
      if (!head) r.head = {.kind = HeadRecipe::Kind::none};
      Checkpoint c = memory_checkpoint(r, 2);
      c.pool = Pool::mean, c.normalize = true;
      // The same weights without a head tell the hidden state.
      Recipe bare_recipe = r;
      bare_recipe.head = {.kind = HeadRecipe::Kind::none};
      Model bare(resolve(bare_recipe));
      for (Weight& w : bare.weights)
        for (Dim i = 0; i < w.rows; ++i)
          for (Dim j = 0; j < w.cols; ++j) w.set(i, j, c.model->weight(w.name).get(i, j));
      const std::vector<std::string> texts = {"hello", "a", "the quick brown fox jumps", ""};
      Dim cut = 0;
      const auto mean = embed_texts(device, c, texts, {}, {}, {}, &cut);
      EXPECT_EQ(cut, 1);
      if (!head && !decoder) {  // a Dense module behind the pooling
        const auto raw = embed_texts(device, c, texts, {}, false);
        c.dense = {{.in = r.width, .out = 2, .weight = {}, .bias = {0.5f, -0.25f}, .tanh = true}};
        for (Dim i = 0; i < 2 * r.width; ++i) c.dense[0].weight.push_back(0.01f * static_cast<float>(i % 11));
        const auto dense = embed_texts(device, c, texts, {}, false);
        for (std::size_t t = 0; t < texts.size(); ++t)
          for (std::size_t o = 0; o < 2; ++o) {
            double sum = c.dense[0].bias[o];
            for (std::size_t i = 0; i < static_cast<std::size_t>(r.width); ++i)
              sum += c.dense[0].weight[o * static_cast<std::size_t>(r.width) + i] * raw[t][i];
            EXPECT_NEAR(dense[t][o], std::tanh(sum), 1e-5);
          }
        c.dense.clear();
      }
      const auto cls = embed_texts(device, c, texts, Pool::first, false),
                 last = embed_texts(device, c, texts, Pool::last, false);
      ASSERT_EQ(mean.size(), 4u);
      for (std::size_t t = 0; t < texts.size(); ++t) {
        Ids ids = {0};
        const Ids words = c.tokenizer->encode(texts[t]);
        ids.insert(ids.end(), words.begin(), words.end());
        if (ids.size() > 16) ids.resize(16);
        rapt::Run run(device);
        Batch batch{.tokens = ids};
        batch.sequences.push_back({.first = 0, .count = static_cast<Dim>(ids.size())});
        const Tensor hidden = forward(run, bare, batch);
        const Dim C = r.width, T = hidden.rows();
        double squares = 0;
        std::vector<double> m(static_cast<std::size_t>(C));
        for (Dim i = 0; i < C; ++i) {
          for (Dim row = 0; row < T; ++row)
            m[static_cast<std::size_t>(i)] += hidden.at(row * C + i) / double(T);
          squares += m[static_cast<std::size_t>(i)] * m[static_cast<std::size_t>(i)];
        }
        for (Dim i = 0; i < C; ++i) {
          const auto at = static_cast<std::size_t>(i);
          EXPECT_NEAR(mean[t][at], m[at] / std::sqrt(squares), 1e-5);
          EXPECT_NEAR(cls[t][at], hidden.at(i), 1e-5);
          EXPECT_NEAR(last[t][at], hidden.at((T - 1) * C + i), 1e-5);
        }
      }
    }
  }
}

}  // namespace
}  // namespace rapt::test
