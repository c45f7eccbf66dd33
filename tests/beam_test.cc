// SPDX-License-Identifier: Apache-2.0
// Beam search beside transformers' own (tests/golden/use/beam.json), and many sources at once beside one at
// a time.
#include <gtest/gtest.h>

#include <cmath>

#include "rapt/io/reader.h"
#include "rapt/use/generate.h"
#include "tests/memory_checkpoint.h"
#include "tests/toy_checkpoint.h"

namespace rapt::test {
namespace {

using Ids = std::vector<std::int32_t>;

Device& beam_device() {
  static Device one({.threads = 2});
  return one;
}

GenerateOptions beams(int n, double penalty, Dim tokens) {
  GenerateOptions o;
  o.sampler.temperature = 0;
  o.beams = n, o.samples = std::max(1, n), o.length_penalty = penalty, o.max_tokens = tokens;
  return o;
}

TEST(Beam, AnswersAndScoresAreTransformers) {
  const std::string path = std::string(RAPT_SOURCE_DIR) + "/tests/golden/use/beam.json";
  const Json golden = parse_json(read_text_file(path), "beam.json");
  const Dim tokens = golden.find("tokens")->integer();
  std::map<std::string, Checkpoint> toys;
  int ended = 0, cases = 0, differ = 0;
  for (const Json& c : golden.find("cases")->array()) {
    const std::string& name = c.find("toy")->string();
    if (!toys.contains(name)) toys.emplace(name, open_toy(name, beam_device()));
    const Checkpoint& toy = toys.at(name);
    GenerateOptions o =
        beams(static_cast<int>(c.find("beams")->integer()), c.find("penalty")->number(), tokens);
    for (std::int32_t stop : toy.stops)
      o.sampler.bias.emplace_back(stop, static_cast<float>(c.find("end_bias")->number()));
    Session session(beam_device(), toy, {});
    const std::vector<Generated> got = session.translate(ids_of(*c.find("source")), o);
    const auto& want = c.find("answers")->array();
    ASSERT_EQ(got.size(), want.size());
    for (std::size_t i = 0; i < want.size(); ++i) {
      EXPECT_EQ(got[i].ids, ids_of(*want[i].find("ids"))) << c.dump(0) << " answer " << i;
      EXPECT_EQ(got[i].finish == Finish::stop, want[i].find("ended")->boolean());
      if (const Json* score = want[i].find("score")) EXPECT_NEAR(got[i].score, score->number(), 2e-4);
      ended += want[i].find("ended")->boolean();
    }
    ++cases;
    GenerateOptions plain = o;
    plain.beams = 0, plain.samples = 1;
    differ += session.translate(ids_of(*c.find("source")), plain)[0].ids != got[0].ids;
    if (o.beams == 1) EXPECT_EQ(session.translate(ids_of(*c.find("source")), plain)[0].ids, got[0].ids);
  }
  EXPECT_GE(cases, 100);
  EXPECT_GE(ended, 100);
  EXPECT_GE(differ, 20);  // a search finds other answers than the greedy one
}

// bad_words_ids and renormalize_logits of generation_config.json (tests/family_test.cc reads them
// from there).
TEST(Beam, BadWordsAndRenormalisationAreTransformers) {
  const Json golden =
      parse_json(read_text_file(std::string(RAPT_SOURCE_DIR) + "/tests/golden/use/beam_options.json"),
                 "beam_options.json");
  std::map<std::string, Checkpoint> toys;
  int words = 0, renormalised = 0, differ = 0;
  for (const Json& c : golden.find("cases")->array()) {
    const std::string& name = c.find("toy")->string();
    if (!toys.contains(name)) toys.emplace(name, open_toy(name, beam_device()));
    Checkpoint& toy = toys.at(name);
    GenerateOptions o = beams(static_cast<int>(c.find("beams")->integer()), c.find("penalty")->number(),
                              golden.find("tokens")->integer());
    for (std::int32_t stop : toy.stops)
      o.sampler.bias.emplace_back(stop, static_cast<float>(c.find("end_bias")->number()));
    const Ids source = ids_of(*c.find("source"));
    toy.bad_words.clear(), toy.renormalize = false;
    const double plain = Session(beam_device(), toy, {}).translate(source, o)[0].score;
    if (const Json* list = c.find("bad_words_ids"))
      for (const Json& word : list->array()) toy.bad_words.push_back(ids_of(word));
    toy.renormalize = c.find("renormalize_logits") != nullptr;
    words += !toy.bad_words.empty(), renormalised += toy.renormalize;

    const std::vector<Generated> got = Session(beam_device(), toy, {}).translate(source, o);
    const auto& want = c.find("answers")->array();
    ASSERT_EQ(got.size(), want.size());
    for (std::size_t i = 0; i < want.size(); ++i) {
      EXPECT_EQ(got[i].ids, ids_of(*want[i].find("ids"))) << c.dump(0) << " answer " << i;
      if (const Json* score = want[i].find("score")) EXPECT_NEAR(got[i].score, score->number(), 2e-4);
    }
    differ += plain != got[0].score;
    GenerateOptions greedy = o;
    greedy.beams = 0, greedy.samples = 1;
    if (o.beams == 1) EXPECT_EQ(Session(beam_device(), toy, {}).translate(source, greedy)[0].ids, got[0].ids);
  }
  EXPECT_GE(words, 20);
  EXPECT_GE(renormalised, 20);
  EXPECT_GE(differ, 40);
}

// Two biases whose sum is beyond the largest number still mean that token.
TEST(Beam, AHugeBiasIsNotLost) {
  const Checkpoint toy = open_toy("marian", beam_device());
  GenerateOptions o = beams(3, 1, 4);
  o.ignore_eos = true;
  o.sampler.bias = {{5, 3e38f}, {5, 3e38f}};
  const Ids source = {3, 7, 9};
  EXPECT_EQ(Session(beam_device(), toy, {}).translate(source, o)[0].ids, (Ids{5, 5, 5, 5}));
}

TEST(Beam, WhereEveryTokenIsForbiddenThatIsSaid) {
  const Checkpoint toy = open_toy("marian", beam_device());
  GenerateOptions o = beams(3, 1, 4);
  o.ignore_eos = true;
  for (std::int32_t id = 0; id < 61; ++id) o.bad_words.push_back({id});
  o.bad_words.push_back({});  // nothing, and nothing of this vocabulary
  o.bad_words.push_back({99});
  const Ids source = {3, 7, 9};
  EXPECT_NE(
      error_of([&] { Session(beam_device(), toy, {}).translate(source, o); }).find("forbid every token"),
      std::string::npos);
}

TEST(Beam, TheDivisorsOfBothForms) {
  const Checkpoint toy = open_toy("marian", beam_device());
  const Ids source = {5, 9, 33, 7, 1};
  for (const auto form : {GenerateOptions::PenaltyForm::power, GenerateOptions::PenaltyForm::gnmt}) {
    GenerateOptions o = beams(4, 0.6, 12);
    o.penalty_form = form, o.logprobs = true;
    for (std::int32_t stop : toy.stops) o.sampler.bias.emplace_back(stop, 3.0f);
    for (const Generated& g : Session(beam_device(), toy, {}).translate(source, o)) {
      if (g.finish != Finish::length) continue;
      double sum = 0;
      for (const TokenChoice& t : g.tokens) sum += static_cast<double>(t.logprob);
      const double n = static_cast<double>(g.ids.size());
      const double want = form == GenerateOptions::PenaltyForm::power
                              ? sum / std::pow(n, 0.6)
                              : sum / (std::pow(5 + n, 0.6) / std::pow(6, 0.6));
      EXPECT_NEAR(g.score, want, 1e-4);
    }
  }
}

void expect_same(const Checkpoint& c, const std::vector<Ids>& sources, const GenerateOptions& o,
                 const std::string& what) {
  std::vector<std::vector<Generated>> alone;
  for (const Ids& s : sources) alone.push_back(Session(beam_device(), c, {}).translate(s, o));
  for (const Dim rows : {1, 7, 24, 1000}) {
    Session session(beam_device(), c, {});
    std::vector<int> heard(sources.size());
    const auto together =
        session.translate_all(sources, o, rows, [&](std::size_t i, const Generated&) { ++heard[i]; });
    ASSERT_EQ(together.size(), sources.size());
    for (std::size_t i = 0; i < sources.size(); ++i) {
      EXPECT_EQ(heard[i], 1);
      ASSERT_EQ(together[i].size(), alone[i].size()) << what;
      for (std::size_t k = 0; k < alone[i].size(); ++k) {
        EXPECT_EQ(together[i][k].ids, alone[i][k].ids) << what << ", source " << i << ", rows " << rows;
        EXPECT_EQ(together[i][k].text, alone[i][k].text);
        EXPECT_EQ(together[i][k].finish, alone[i][k].finish);
        if (o.beams > 0) EXPECT_EQ(together[i][k].score, alone[i][k].score) << what;  // the bits
      }
    }
  }
}

TEST(Beam, ManySourcesTogetherAreThoseSourcesAlone) {
  std::vector<Ids> sources;
  for (int i = 0; i < 9; ++i) {
    Ids s;
    for (int k = 0; k < 1 + (i * 7) % 13; ++k) s.push_back(2 + (i * i + k * 11) % 50);
    sources.push_back(s);
  }
  for (const char* name : {"marian", "t5"}) {
    const Checkpoint toy = open_toy(name, beam_device());
    for (const int n : {0, 1, 3}) {
      GenerateOptions o = beams(n, 1, 14);
      for (std::int32_t stop : toy.stops) o.sampler.bias.emplace_back(stop, 4.0f);
      expect_same(toy, sources, o, name);
    }
  }
  // A recurrent one, with states instead of keys.
  Recipe r = parse_recipe(R"({ "preset": "luong-general", "width": 16 })");
  r.vocab = 52;
  for (auto* stack : {&*r.encoder, &*r.decoder}) stack->recurrent->width = 12;
  Checkpoint c = memory_checkpoint(r, 5);
  c.decoder_start = 0;
  for (const int n : {1, 4}) expect_same(c, sources, beams(n, 1, 14), "luong");
}

TEST(Beam, ManySourcesCanBeCancelledAndRefused) {
  const Checkpoint toy = open_toy("marian", beam_device());
  Session session(beam_device(), toy, {});
  const std::vector<Ids> sources(6, Ids{4, 5, 6, 1});
  std::atomic<bool> cancel = false;
  GenerateOptions o = beams(2, 1, 30);
  o.ignore_eos = true;
  cancel = true;
  for (const auto& answers : session.translate_all(sources, o, 4, {}, &cancel))
    EXPECT_EQ(answers.at(0).finish, Finish::cancelled);
  cancel = false;
  EXPECT_TRUE(session.translate_all({}, o).empty());
  const std::vector<Ids> wrong = {{4, 1}, {}};
  EXPECT_TRUE(holds(error_of([&] { session.translate_all(wrong, o); }), "source 2 has no tokens"));
  const std::vector<Ids> outside = {{4, 61}};
  EXPECT_TRUE(holds(error_of([&] { session.translate_all(outside, o); }), "outside the vocabulary of 61"));
  o.beams = 0, o.samples = 1, o.sampler.temperature = 1;
  EXPECT_THROW(session.translate_all(sources, o), Error);
  EXPECT_EQ(session.translate_all(sources, beams(2, 1, 5))[5][0].ids,
            session.translate(sources[0], beams(2, 1, 5))[0].ids);
}

}  // namespace
}  // namespace rapt::test
