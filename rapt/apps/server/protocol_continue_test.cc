// SPDX-License-Identifier: Apache-2.0
// Streams that another writer goes on with: cut between any two chunks, they end as the undisturbed ones do.
#include <gtest/gtest.h>

#include <random>

#include "rapt/apps/server/protocol_reply.h"
#include "rapt/base/json.h"

namespace rapt::server {
namespace {

const ReplyHead kHead{
    .id = "chatcmpl-1", .created = 1, .model = "m", .fingerprint = "rapt-1", .basis = "0123"};

// One token of one choice, as the engine tells it: `id` -1 with what was held back until the end.
struct Said {
  int index;
  std::string text;
  std::int32_t id;
};

std::vector<Json> chunks_of(std::string_view wire) {
  std::vector<Json> out;
  while (!wire.empty()) {
    const std::size_t end = wire.find("\n\n");
    const std::string_view data = wire.substr(6, end - 6);
    if (data != "[DONE]") out.push_back(parse_json(data));
    wire.remove_prefix(end + 2);
  }
  return out;
}

std::vector<Json> written(const CompletionRequest& request, const std::vector<Said>& said) {
  ChunkWriter writer(request, kHead, nullptr);
  std::string out;
  for (const Said& s : said) {
    const TokenChoice token{.id = s.id, .logprob = -1 - static_cast<float>(s.id) / 8};
    writer.token(out, s.index, s.text, s.id, s.id >= 0 ? &token : nullptr);
  }
  for (int i = 0; i < request.generate.samples; ++i) writer.finish(out, {.index = i, .hash = 7}, {.seed = 5});
  writer.done(out, {});
  return chunks_of(out);
}

// What a client keeps: chunks up to those with ids or an end, and the ids.
struct Client {
  std::vector<std::vector<std::string>> kept, held;
  std::vector<std::vector<std::int32_t>> ids;
  std::vector<bool> ended;
  explicit Client(int choices)
      : kept(static_cast<std::size_t>(choices)), held(kept.size()), ids(kept.size()), ended(kept.size()) {}
  void take(const Json& chunk) {
    if (chunk.find("choices")->array().empty()) return;
    const Json& choice = chunk.find("choices")->array()[0];
    const auto i = static_cast<std::size_t>(choice.find("index")->integer());
    if (ended[i]) return;
    held[i].push_back(choice.dump(0));
    const Json* list = choice.find("token_ids");
    ended[i] = !choice.find("finish_reason")->is_null();
    if (!list && !ended[i]) return;
    if (list)
      for (const Json& id : list->array()) ids[i].push_back(static_cast<std::int32_t>(id.integer()));
    kept[i].insert(kept[i].end(), held[i].begin(), held[i].end());
    held[i].clear();
  }
};

TEST(ProtocolContinue, AnyCutEndsAsTheUndisturbedStream) {
  const std::string whole =
      "<think>why 你好 not</think>\n\nLook: {\"name\": \"f\", \"arguments\": {\"x\": \"}\"}}";
  AnswerForm form{.think_begin = "<think>", .think_end = "</think>", .calls = plain_call_form()};
  std::mt19937 random(3);
  int several = 0;
  for (int round = 0; round < 60; ++round) {
    CompletionRequest request;
    request.chat = round % 3 != 0;
    request.stream = true;
    request.generate.samples = 1 + static_cast<int>(random() % 3);
    request.generate.logprobs = random() % 2;
    request.generate.sampler.seed = 5;
    request.prompts.resize(request.chat ? 0 : 1);
    request.continued.emplace();
    if (request.chat && round % 3 == 1) {
      request.form = &form;
      request.tools.functions.push_back({.name = "f"});
      request.tools.choice = ToolRequest::Choice::required;
    }
    // Tokens of any length, some of whose text waits; choices in no order.
    std::vector<Said> said;
    std::vector<std::size_t> at(static_cast<std::size_t>(request.generate.samples), 0);
    std::vector<std::string> late(at.size());
    for (int id = 0; id < 60; ++id) {
      const int index = static_cast<int>(random() % at.size());
      std::size_t& from = at[static_cast<std::size_t>(index)];
      std::string& waits = late[static_cast<std::size_t>(index)];
      const std::size_t n = 1 + random() % (round % 2 ? 40 : 6);
      waits += whole.substr(std::min(from, whole.size()), n);
      from += n;
      const bool wait = random() % 4 == 0;
      said.push_back({index, wait ? "" : std::exchange(waits, {}), id});
    }
    for (std::size_t i = 0; i < at.size(); ++i)
      if (!late[i].empty()) said.push_back({static_cast<int>(i), late[i], -1});

    const std::vector<Json> undisturbed = written(request, said);
    Client wanted(request.generate.samples);
    bool pending = false;
    for (const Json& chunk : undisturbed) {
      wanted.take(chunk);
      bool holds = false;
      for (const auto& list : wanted.held) holds = holds || !list.empty();
      several += holds && pending;
      pending = holds;
    }
    for (std::size_t cut = 0; cut <= undisturbed.size(); ++cut) {
      Client client(request.generate.samples);
      for (std::size_t i = 0; i < cut; ++i) client.take(undisturbed[i]);
      for (auto& list : client.held) list.clear();
      CompletionRequest rest = request;
      rest.continued->ids = client.ids;
      for (const Json& chunk : written(rest, said)) client.take(chunk);
      ASSERT_EQ(client.kept, wanted.kept) << "round " << round << ", cut at " << cut;
      ASSERT_EQ(client.ids, wanted.ids);
    }
  }
  EXPECT_GT(several, 100) << "tokens of several chunks";
}

TEST(ProtocolContinue, TheFirstChunkSaysWhatIsNeeded) {
  CompletionRequest request;
  request.continued.emplace();
  request.generate.sampler.seed = 9;
  const auto state = [](const Json& chunk) {
    const Json* rapt = chunk.find("rapt");
    return rapt ? rapt->dump(0) : std::string();
  };
  const std::string wanted =
      parse_json(R"({"continue":{"seed":9,"fingerprint":"rapt-1","basis":"0123"}})").dump(0);
  for (const bool chat : {true, false})
    for (const bool begun : {true, false}) {
      request.chat = chat;
      request.prompts.resize(chat ? 0 : 1);
      request.continued->ids.clear();
      if (begun) request.continued->ids = {{3}};
      const std::vector<Json> chunks = written(request, {{0, "a", 3}, {0, "b", 4}});
      EXPECT_EQ(state(chunks[0]), wanted);
      // A role comes once, from whoever begins.
      EXPECT_EQ(chunks[0].find("choices")->array().empty(), !chat || begun);
      EXPECT_EQ(chunks.size(), (begun ? 1u : 2u) + 2u);
    }
  request.continued.reset();
  for (const Json& chunk : written(request, {{0, "a", 3}}))
    EXPECT_EQ(chunk.dump(0).find("continue"), std::string::npos);
}

}  // namespace
}  // namespace rapt::server
