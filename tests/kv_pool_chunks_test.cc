// SPDX-License-Identifier: Apache-2.0
// Parts with a state in a pool: rows in pieces, sequences that share their beginning and are cut, what is
// kept of long ones, and prefixes that are not read again. Everything is compared with a text read at once,
// bit for bit.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "rapt/base/rng.h"
#include "rapt/nn/kv_pool.h"
#include "rapt/nn/parts/delta.h"
#include "rapt/use/engine.h"
#include "tests/memory_checkpoint.h"
#include "tests/model_tools.h"
#include "tests/naive_model.h"
#include "tests/tools.h"

namespace rapt::test {
namespace {

struct Kind {
  const char* name;
  const char* part;
  bool attention;
  Dim sinks;
};
const Kind kKinds[] = {
    {"delta", R"({"delta":{"norm_in":"rms","key_heads":2,"value_heads":4,"key_dim":6,"value_dim":5}})", true,
     2},
    {"delta alone", R"({"delta":{"norm_in":"rms","key_heads":1,"key_dim":20,"value_dim":17,"conv":2}})",
     false, 0},
    {"conv", R"({"conv":{"norm_in":"rms","kernel":4,"bias":true}})", true, 0},
    {"conv alone", R"({"conv":{"norm_in":"rms"}})", false, 3},
};

Recipe chunk_recipe(const Kind& k) {
  Recipe r = parse_recipe(concat(
      R"({"name":"toy","width":24,"vocab":40,"context":4096,"embed":{"sink_tokens":)", k.sinks,
      R"(},"decoder":{"layers":4,"final_norm":"rms","pattern":")", k.attention ? "SSL" : "S",
      R"(","kinds":{"S":{"parts":[)", k.part, R"(,{"ffn":{"norm_in":"rms","width":30}}]})",
      k.attention ? R"(,"L":{"parts":[{"self":{"norm_in":"rms","heads":4,"kv_heads":2,"pos":{"rope":{}}}},
        {"ffn":{"norm_in":"rms","width":30}}]})"
                  : "",
      "}}}"));
  return r;
}

struct ChunkWorld {
  Device device{{.threads = 2}};
  Model model;
  std::vector<std::int32_t> tokens, other;
  explicit ChunkWorld(const Kind& k, Dim length = 400) : model(resolve(chunk_recipe(k)), device.real) {
    randomise(model, 3);
    for (Dim i = 0; i < length; ++i) {
      tokens.push_back(static_cast<std::int32_t>(random_below(40, 7, static_cast<std::uint64_t>(i))));
      other.push_back(static_cast<std::int32_t>(random_below(40, 8, static_cast<std::uint64_t>(i))));
    }
  }
  // The first `common` tokens of one text, and the other after them.
  std::vector<std::int32_t> joined(Dim common) const {
    std::vector<std::int32_t> text = other;
    std::copy_n(tokens.begin(), common, text.begin());
    return text;
  }
  // Tokens up to `end` in pieces; what the model says about the last of them.
  std::vector<double> read(KvPool& pool, std::uint64_t id, std::span<const std::int32_t> from, Dim end,
                           Dim piece) {
    std::vector<double> last;
    for (Dim at = pool.length(id); at < end; at = pool.length(id)) {
      rapt::Run run(device);
      const Dim n = std::min(piece, end - at);
      const Batch b{.tokens = from.subspan(static_cast<std::size_t>(at), static_cast<std::size_t>(n)),
                    .sequences = {{.first = 0, .count = n, .past = at, .id = id}},
                    .want = kWantLast};
      last = all_values(forward(run, model, b, nullptr, &pool));
    }
    return last;
  }
  std::vector<double> whole(std::span<const std::int32_t> from, Dim end) {
    rapt::Run run(device);
    const Batch b{.tokens = from.first(static_cast<std::size_t>(end)),
                  .sequences = {{.first = 0, .count = end}},
                  .want = kWantLast};
    return all_values(forward(run, model, b));
  }
};

TEST(KvPoolChunks, PiecesHaveTheBitsOfTheWhole) {
  for (const Kind& kind : kKinds) {
    SCOPED_TRACE(kind.name);
    ChunkWorld w(kind);
    const std::vector<double> expected = w.whole(w.tokens, 300);
    KvPool pool(w.model);
    std::uint64_t id = 0;
    for (const Dim piece : {300, 1, 3, 64, 100, 127}) {
      // Attention alone may differ in its last digits: few rows and many have orders of addition of their own
      // (ops/attention.h); here they do not.
      EXPECT_EQ(w.read(pool, ++id, w.tokens, 300, piece), expected) << piece;
      pool.drop(id);
    }
    EXPECT_EQ(pool.pages(), 0u);
    EXPECT_EQ(pool.bytes(), 0u);
  }
}

// As in KvPool.WhatIsLeftInFreedPagesIsNeverRead: states and rows that somebody left are NaN here.
TEST(KvPoolChunks, WhatIsLeftInFreedPagesIsNeverRead) {
  for (const Kind& kind : kKinds) {
    SCOPED_TRACE(kind.name);
    ChunkWorld w(kind);
    const std::vector<double> wanted = w.whole(w.tokens, 200);
    KvPool pool(w.model);
    for (Weight& x : w.model.weights)
      for (Dim r = 0; r < x.rows; ++r)
        for (Dim c = 0; c < x.cols; ++c) x.set(r, c, std::nan(""));
    for (const double x : w.read(pool, 1, w.other, 400, 50)) ASSERT_TRUE(std::isnan(x));
    pool.drop(1);
    randomise(w.model, 3);
    for (const Dim piece : {200, 1, 60}) {
      EXPECT_EQ(w.read(pool, 2, w.tokens, 200, piece), wanted) << piece;
      pool.drop(2);
    }
  }
}

TEST(KvPoolChunks, SharedAndCutSequencesEqualFreshOnes) {
  for (const Kind& kind : kKinds) {
    SCOPED_TRACE(kind.name);
    ChunkWorld w(kind);
    for (const Dim cut : {129, 130, 150, 190}) {
      const Dim sinks = kind.sinks, first = (cut + sinks) / 64 * 64 - sinks;  // of the present chunk
      SCOPED_TRACE(cut);
      KvPool pool(w.model);
      w.read(pool, 1, w.tokens, cut, 50);
      const std::size_t pages = pool.pages();
      pool.share(1, 2, cut);
      EXPECT_EQ(pool.pages(), pages);
      const std::vector<std::int32_t> text = w.joined(cut);
      EXPECT_EQ(w.read(pool, 2, text, 260, 30), w.whole(text, 260));
      EXPECT_EQ(w.read(pool, 1, w.tokens, cut + 70, 9), w.whole(w.tokens, cut + 70));
      // Back to anywhere in the present chunk, and no further.
      w.read(pool, 3, w.tokens, cut, 1);
      for (const Dim back : {(cut + first) / 2, first}) {
        pool.truncate(3, back);
        pool.share(3, 4, back);
        const std::vector<std::int32_t> again = w.joined(back);
        EXPECT_EQ(w.read(pool, 4, again, 230, 41), w.whole(again, 230)) << back;
      }
      const std::string why = error_of([&] { pool.truncate(3, first - 1); });
      EXPECT_NE(why.find("layers with a state"), std::string::npos) << why;
      EXPECT_EQ(pool.length(3), first);
      pool.truncate(3, 0);
      EXPECT_EQ(w.read(pool, 3, w.tokens, 99, 99), w.whole(w.tokens, 99));
      for (const std::uint64_t id : {1, 2, 3, 4}) pool.drop(id);
      EXPECT_EQ(pool.bytes(), 0u);
    }
  }
}

TEST(KvPoolChunks, WhatIsKeptDoesNotGrow) {
  for (const Kind& kind : kKinds) {
    if (kind.attention) continue;
    SCOPED_TRACE(kind.name);
    ChunkWorld w(kind, 1000);
    KvPool pool(w.model);
    std::size_t most = 0;
    for (const Dim end : {130, 200, 333, 720, 1000}) {
      w.read(pool, 1, w.tokens, end, 100);
      most = std::max(most, pool.pages());
      EXPECT_LE(pool.pages(), 3u) << end;  // two of rows, one state
      EXPECT_LE(pool.bytes(), pool.bytes_of(end)) << end;
    }
    EXPECT_GE(most, 2u);
    EXPECT_EQ(pool.bytes_of(300), pool.bytes_of(1000));
  }
}

TEST(KvPoolChunks, EveryFormatOfKeysHasTheSameStates) {
  ChunkWorld w(kKinds[1]);  // no attention
  KvPool wide(w.model, DType::f32), narrow(w.model, DType::q8_0);
  EXPECT_EQ(w.read(wide, 1, w.tokens, 150, 40), w.read(narrow, 1, w.tokens, 150, 7));
}

// ------------------------------------------------------------------------------------------------ prefixes
struct Served {
  Device device{{.threads = 2}};
  Checkpoint checkpoint;
  Engine engine;
  explicit Served(const Kind& k)
      : checkpoint(memory_checkpoint(chunk_recipe(k), 5)), engine(device, checkpoint, {.prefixes = true}) {}
  Answer ask(std::vector<std::int32_t> tokens, Dim answer = 3) {
    Request r{.tokens = std::move(tokens)};
    r.generate.max_tokens = answer;
    r.generate.ignore_eos = true;
    r.generate.sampler.temperature = 0;
    r.generate.logprobs = true;
    return engine.finish(engine.add(std::move(r)));
  }
};

std::vector<std::int32_t> some_tokens(Dim n, std::uint64_t key) {
  std::vector<std::int32_t> out;
  for (Dim i = 0; i < n; ++i)
    out.push_back(static_cast<std::int32_t>(random_below(40, key, static_cast<std::uint64_t>(i))));
  return out;
}

TEST(KvPoolChunks, AKnownBeginningIsNotReadAgain) {
  for (const Kind& kind : kKinds) {
    SCOPED_TRACE(kind.name);
    for (const Dim length : std::initializer_list<Dim>{200, 192 - kind.sinks, 65, 800}) {
      SCOPED_TRACE(length);
      Served served(kind);
      const std::vector<std::int32_t> text = some_tokens(length, 1);
      const Answer first = served.ask(text), again = served.ask(text);
      const Dim known = (length - 1 + kind.sinks) / 64 * 64 - kind.sinks;
      EXPECT_EQ(first.times.reused_tokens, 0);
      EXPECT_EQ(again.times.reused_tokens, known);
      EXPECT_EQ(again.times.prompt_tokens, length - known);
      EXPECT_EQ(again.samples[0].ids, first.samples[0].ids);
      for (std::size_t i = 0; i < 3; ++i)
        EXPECT_EQ(again.samples[0].tokens[i].logprob, first.samples[0].tokens[i].logprob);
      // One that goes on otherwise begins with what both have.
      std::vector<std::int32_t> longer = text;
      for (const std::int32_t t : some_tokens(100, 2)) longer.push_back(t);
      const Answer other = served.ask(longer);
      EXPECT_EQ(other.times.reused_tokens, (length + kind.sinks) / 64 * 64 - kind.sinks);
      Served fresh(kind);
      const Answer alone = fresh.ask(longer);
      EXPECT_EQ(other.samples[0].ids, alone.samples[0].ids);
      EXPECT_EQ(other.samples[0].tokens[0].logprob, alone.samples[0].tokens[0].logprob);
    }
  }
}

// A conversation: the next prompt is the last one with its answer, and later the answer in other words.
TEST(KvPoolChunks, AnswersAreKnownToo) {
  for (const Kind& kind : kKinds) {
    SCOPED_TRACE(kind.name);
    Served served(kind);
    std::vector<std::int32_t> text = some_tokens(100, 1);
    const Answer first = served.ask(text, 300);
    std::vector<std::int32_t> next = text;
    next.insert(next.end(), first.samples[0].ids.begin(), first.samples[0].ids.end());
    next.push_back(7);
    const Dim all = static_cast<Dim>(next.size()) - 2;  // the last token of the answer was not read
    EXPECT_EQ(served.ask(next).times.reused_tokens, (all + kind.sinks) / 64 * 64 - kind.sinks);
    text.push_back(9);
    text.push_back(11);
    EXPECT_EQ(served.ask(text).times.reused_tokens, (99 + kind.sinks) / 64 * 64 - kind.sinks);
  }
}

// A conversation that is held and leaves what was said: its state cannot be cut back, so it goes on from the
// snapshot at its prompt.
TEST(KvPoolChunks, AHeldConversationGoesOnFromItsPrompt) {
  for (const Kind& kind : kKinds) {
    SCOPED_TRACE(kind.name);
    Served served(kind), fresh(kind);
    const auto ask = [](Served& s, std::vector<std::int32_t> tokens, Dim answer) {
      Request r{.tokens = std::move(tokens), .hold = 9};
      r.generate.max_tokens = answer;
      r.generate.ignore_eos = true;
      r.generate.sampler.temperature = 0;
      return s.engine.finish(s.engine.add(std::move(r)));
    };
    std::vector<std::int32_t> text = some_tokens(200, 4);
    const Answer first = ask(served, text, 150);
    for (const std::int32_t t : some_tokens(20, 5)) text.push_back(t);  // its answer is taken out
    const Answer second = ask(served, text, 5), alone = ask(fresh, text, 5);
    EXPECT_EQ(second.times.reused_tokens, (199 + kind.sinks) / 64 * 64 - kind.sinks);
    EXPECT_EQ(second.samples[0].ids, alone.samples[0].ids);
    // And one that only goes on reads what is new.
    text.insert(text.end(), second.samples[0].ids.begin(), second.samples[0].ids.end());
    text.push_back(3);
    EXPECT_EQ(ask(served, text, 5).times.reused_tokens, static_cast<Dim>(text.size()) - 2);
  }
}

// A short text in between does not make a long one unknown.
TEST(KvPoolChunks, WhatIsHeldDoesNotHideWhatIsKnown) {
  for (const Kind& kind : kKinds) {
    SCOPED_TRACE(kind.name);
    Served served(kind);
    const auto ask = [&](std::vector<std::int32_t> tokens) {
      Request r{.tokens = std::move(tokens), .hold = 9};
      r.generate.max_tokens = 3;
      r.generate.ignore_eos = true;
      return served.engine.finish(served.engine.add(std::move(r))).times.reused_tokens;
    };
    const std::vector<std::int32_t> text = some_tokens(300, 6);
    ask(text);
    std::vector<std::int32_t> short_one(text.begin(), text.begin() + 20);
    short_one.push_back((text[20] + 1) % 40);
    ask(short_one);
    EXPECT_EQ(ask(text), 256 - kind.sinks);
  }
}

// Texts that nobody uses any more are kept up to a limit.
TEST(KvPoolChunks, IdlePrefixesHaveALimit) {
  for (const Kind& kind : kKinds) {
    SCOPED_TRACE(kind.name);
    Device device({.threads = 2});
    const Checkpoint c = memory_checkpoint(chunk_recipe(kind), 5);
    Engine bounded(device, c, {.prefixes = true, .idle_prefix_bytes = 1}),
        free(device, c, {.prefixes = true});
    const auto bytes_after = [&](Engine& e, std::uint64_t first, std::uint64_t end) {
      for (std::uint64_t i = first; i < end; ++i) {
        Request r{.tokens = some_tokens(150, 100 + i)};
        r.generate.max_tokens = 2;
        e.finish(e.add(std::move(r)));
      }
      return e.status().bytes;
    };
    const std::size_t few = bytes_after(bounded, 0, 10), other = bytes_after(free, 0, 10);
    EXPECT_LE(bytes_after(bounded, 10, 30), few);
    EXPECT_GT(bytes_after(free, 10, 30), 2 * other);
  }
}

// Leading tokens that see each other come at once, wherever pages end.
TEST(KvPoolChunks, LeadingTokensComeAtOnce) {
  Recipe recipe = chunk_recipe(kKinds[0]);
  for (PartRecipe& p : recipe.decoder->kinds.at("L").parts)
    if (AttnRecipe* a = p.self()) a->mask = AttnRecipe::MaskKind::prefix;
  Device device({.threads = 2});
  const Checkpoint c = memory_checkpoint(recipe, 5);
  for (const Dim prefix : {30, 100, 140}) {
    Engine engine(device, c, {.prefixes = true}), alone(device, c, {});
    const auto ask = [&](Engine& e) {
      Request r{.tokens = some_tokens(141, 1), .prefix = prefix};
      r.generate.max_tokens = 4;
      r.generate.ignore_eos = true;
      r.generate.sampler.temperature = 0;
      return e.finish(e.add(std::move(r)));
    };
    const Answer first = ask(engine), again = ask(engine);
    EXPECT_EQ(first.samples[0].ids, ask(alone).samples[0].ids) << prefix;
    EXPECT_EQ(again.samples[0].ids, first.samples[0].ids) << prefix;
    EXPECT_EQ(again.times.reused_tokens, prefix <= 126 ? 126 : 0) << prefix;  // two sinks stand before
  }
}

// Snapshots of a long text become rare behind its end.
TEST(KvPoolChunks, FewStatesOfALongPrompt) {
  Served served(kKinds[1]);
  Request r{.tokens = some_tokens(64 * 40, 3)};
  r.generate.max_tokens = 1;
  r.generate.chunk = 64;  // a piece for every page
  served.engine.finish(served.engine.add(r));
  // 40 pages of prompt; every node holds a page of rows and a state, or nothing.
  EXPECT_LE(served.engine.status().pages, 2u * 14);
  EXPECT_EQ(served.ask(r.tokens).times.reused_tokens, 64 * 39);
  std::vector<std::int32_t> half(r.tokens.begin(), r.tokens.begin() + 64 * 33);
  half.push_back(3);
  EXPECT_GE(served.ask(half).times.reused_tokens, 64 * 24);
}

}  // namespace
}  // namespace rapt::test
