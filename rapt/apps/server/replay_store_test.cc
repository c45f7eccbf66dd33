// SPDX-License-Identifier: Apache-2.0
// Records as lines, what the store keeps, and bodies of repetitions.
#include "rapt/apps/server/replay_store.h"

#include <gtest/gtest.h>

#include "rapt/apps/server/protocol_request.h"
#include "rapt/base/rng.h"

namespace rapt::server {
namespace {

ReplayRecord answer(std::string id, std::string key = "", std::size_t body = 2) {
  return {.id = std::move(id),
          .key = std::move(key),
          .model = "m\"\n",
          .fingerprint = "rapt-0123456789abcdef",
          .route = "/completions",
          .body = body <= 2 ? "{}" : "{\"a\":\"" + std::string(body - 8, 'x') + "\"}",
          .created = 1700000000,
          .seed = 0xfedcba9876543210u,
          .context = 8192,
          .form = Form::text,
          .ignore_eos = true,
          .prompts = {{1, 2, 2147483647}, {7}},
          .choices = {{{5, 6}, 0xabcdefu, "eos"}, {{}, 1, "length"}}};
}

TEST(ReplayStore, ALineIsItsRecord) {
  const ReplayRecord a = answer("cmpl-1");
  const std::string line = record_line(a);
  EXPECT_EQ(line.find('\n'), line.npos);
  const ReplayRecord b = read_record(line);
  EXPECT_EQ(record_line(b), line);
  EXPECT_EQ(b.seed, a.seed);
  EXPECT_EQ(b.prompts, a.prompts);
  EXPECT_EQ(b.model, a.model);
  ASSERT_EQ(b.choices.size(), 2U);
  EXPECT_EQ(b.choices[0].hash, 0xabcdefu);
  EXPECT_EQ(record_reply(a, false).find("request"), std::string::npos);
  EXPECT_NE(record_reply(a, true).find("\"prompts\":[[1,2,2147483647],[7]],\"request\":{}"),
            std::string::npos);
}

// Bytes changed, lost, doubled: a record or an error.
TEST(ReplayStore, DamagedLinesAreErrors) {
  const std::string line = record_line(answer("cmpl-1"));
  int read = 0, refused = 0;
  for (std::uint64_t i = 0; i < 4000; ++i) {
    std::string s = line;
    for (std::uint64_t k = 0; k <= i % 3; ++k) {
      const std::size_t at = random_below(static_cast<std::uint32_t>(s.size()), 1, i, 3 * k);
      const auto what = random_below(4, 2, i, k);
      if (what == 0) s[at] = static_cast<char>(random_below(256, 3, i, k));
      else if (what == 1) s.erase(at, 1 + random_below(20, 4, i, k));
      else if (what == 2) s.insert(at, s.substr(at / 2, 1 + random_below(30, 5, i, k)));
      else s[at] = "0123456789-\"{}[],e."[random_below(19, 6, i, k)];
      if (s.empty()) s = " ";
    }
    try {
      const ReplayRecord r = read_record(s);
      EXPECT_FALSE(r.prompts.empty());
      EXPECT_EQ(record_line(read_record(record_line(r))), record_line(r));
      ++read;
    } catch (const Error&) {
      ++refused;
    }
  }
  EXPECT_GT(read, 100);
  EXPECT_GT(refused, 1000);
}

TEST(ReplayStore, KeepsTheLastOfEachKey) {
  ReplayStore store;
  EXPECT_TRUE(store.add(answer("other", "b")));
  for (int i = 0; i < 300; ++i) EXPECT_TRUE(store.add(answer("id" + std::to_string(i), "a")));
  EXPECT_EQ(store.counts().answers, 257U);
  EXPECT_FALSE(store.find("id43", "a"));
  EXPECT_TRUE(store.find("id44", "a"));
  EXPECT_TRUE(store.find("id299", "a"));
  EXPECT_FALSE(store.find("id299", "b"));
  EXPECT_FALSE(store.find("id299", ""));
  EXPECT_TRUE(store.find("other", "b"));
  EXPECT_FALSE(store.add(answer("huge", "a", ReplayStore::kKeyBytes)));
  EXPECT_TRUE(store.find("id44", "a"));  // nothing went for it
}

TEST(ReplayStore, BytesAreBoundedOfAKeyAndInAll) {
  constexpr std::size_t kMiB = std::size_t{1} << 20;
  ReplayStore store;
  for (int i = 0; i < 20; ++i) store.add(answer("a" + std::to_string(i), "a", kMiB));
  EXPECT_LE(store.counts().bytes, ReplayStore::kKeyBytes);
  EXPECT_EQ(store.counts().answers, 7U);  // of a MiB and a little
  for (int k = 0; k < 12; ++k)
    for (int i = 0; i < 7; ++i)
      store.add(answer("k" + std::to_string(k) + "-" + std::to_string(i), "key" + std::to_string(k), kMiB));
  EXPECT_LE(store.counts().bytes, ReplayStore::kBytes);
  EXPECT_GT(store.counts().bytes, ReplayStore::kBytes - 2 * kMiB);
  EXPECT_TRUE(store.find("k11-6", "key11"));
  EXPECT_TRUE(store.find("a19", "a"));  // the newest of each is there: who has most gives
  EXPECT_FALSE(store.find("a13", "a"));
}

std::string replayed(const char* asked, const char* first, bool chat = true) {
  return read_replay(parse_json(asked), parse_json(first), chat).body.dump(0);
}

TEST(ReplayStore, ARepetitionAsksForWhatWasAskedThen) {
  const ReadOptions options;
  const char* first = R"({"messages":[{"role":"user","content":"a"}],"seed":5,"temperature":0.5,"stream":true,
      "stream_options":{"include_usage":true},"logprobs":true,"top_logprobs":4,"unknown":{"x":1},
      "rapt":{"look":["layers"],"edits":["z.0@1:zero"],"cache_salt":"s","resume":true}})";
  CompletionRequest r = read_chat(parse_json(replayed("{}", first)), options);
  EXPECT_FALSE(r.stream || r.include_usage || r.resume);
  EXPECT_TRUE(r.look.empty() && r.generate.logprobs);
  EXPECT_EQ(r.generate.top_logprobs, 4);
  EXPECT_EQ(r.edits.size(), 1U);
  EXPECT_EQ(r.cache_salt, "s");
  EXPECT_EQ(r.generate.sampler.temperature, 0.5);
  r = read_chat(
      parse_json(replayed(
          R"({"stream":true,"logprobs":false,"rapt":{"edits":[],"look":["heads"],"resume":true}})", first)),
      options);
  EXPECT_TRUE(r.stream && r.resume && r.edits.empty() && !r.generate.logprobs);
  EXPECT_EQ(r.look.size(), 1U);
  r = read_completion(parse_json(replayed(R"({"top_logprobs":2,"rapt":{"compare":{"edits":["z.0@1:zero"]}}})",
                                          R"({"prompt":"a"})", false)),
                      options);
  EXPECT_TRUE(r.generate.logprobs && r.compare);
  EXPECT_EQ(r.generate.top_logprobs, 2);
  EXPECT_EQ(r.compare_edits.size(), 1U);
  EXPECT_TRUE(read_replay(parse_json(R"({"rapt":{"edits":[]}})"), parse_json("{}"), true).edited);
  for (const char* bad : {R"({"seed":1})", R"({"rapt":{"stream":{"window":3}}})", R"({"logprobs":3})",
                          R"({"logprobs":false,"top_logprobs":1})", R"({"rapt":[]})"})
    EXPECT_THROW(replayed(bad, first), ApiError) << bad;
}

}  // namespace
}  // namespace rapt::server
