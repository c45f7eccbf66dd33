// SPDX-License-Identifier: Apache-2.0
// What the laboratory measures of SmolLM2, against the same measured with transformers in float64 on the
// file's weights dequantized (tests/golden/real_massive.py). With matrices as f32 both compute the same; as
// the blocks of the file ours round what they read to int8, and the limits are wider. Skipped where the model
// is not there; what the guide shows of it is compared everywhere.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <sstream>

#include "rapt/base/json.h"
#include "rapt/inspect/massive.h"
#include "rapt/inspect/sink_score.h"
#include "rapt/lab/guide.h"
#include "rapt/lab/real.h"
#include "tests/build_kind.h"
#include "tests/data.h"
#include "tests/tools.h"

namespace rapt::test {
namespace {

constexpr const char* kFile = "SmolLM2-135M-Instruct.Q4_1.gguf";

const Json& golden(std::string_view part) {
  static const Json all = [] {
    const std::string path = std::string(RAPT_SOURCE_DIR) + "/tests/golden/real/smollm2.json";
    std::stringstream text;
    text << std::ifstream(path).rdbuf();
    return parse_json(text.str(), path);
  }();
  return need(all, part);
}

double number(const Json& json, std::string_view key) { return need(json, key).number(); }
std::vector<double> numbers(const Json& list) {
  std::vector<double> out;
  for (const Json& x : list.array()) out.push_back(x.number());
  return out;
}
TokenIds golden_ids(const Json& list) {
  TokenIds ids;
  for (const Json& x : list.array()) ids.push_back(static_cast<std::int32_t>(x.integer()));
  return ids;
}

void expect_near(double got, double want, double relative, const std::string& what) {
  EXPECT_NEAR(got, want, relative * std::abs(want)) << what;
}
void expect_all(const std::vector<double>& got, const std::vector<double>& want, double absolute,
                const std::string& what) {
  ASSERT_EQ(got.size(), want.size()) << what;
  for (std::size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], want[i], absolute) << what << ", " << i;
}

struct Opened {
  Device device;
  Lab lab{.device = device};
  RealSubject subject;
  explicit Opened(const std::string& path) : subject(real_subject(lab, {.model = path})) {}
};

// What a measurement may be off by.
struct Limits {
  double value, ratio;  // of massive activations, relative
  double weight;  // attention weights: absolute
  double length, cosine;  // of keys and values, relative; absolute
  double flips;  // heads of one text that may fall on the other side of 0.3
};
constexpr Limits kNumbers{1e-4, 1e-4, 1e-4, 1e-4, 1e-4, 0}, kBlocks{2e-2, 3e-2, 1e-2, 5e-2, 1e-2, 4};

const char* kNames[] = {"prose", "chinese", "list", "code", "random", "repeated"};

TEST(RealInside, SmolLM2ReadsTheTextsOfTheReference) {
  const auto file = model_file(kFile);
  if (!file) GTEST_SKIP() << no_model(kFile);
  const RealSubject s = Opened(file->string()).subject;
  EXPECT_TRUE(s.before.empty());
  const TokenIds prose = golden_ids(golden("prose"));
  EXPECT_EQ(first_tokens(s.prose, 1024), prose) << "another text: make real/smollm2.json anew";
  ASSERT_EQ(s.texts.size(), std::size(kNames));
  for (std::size_t i = 1; i + 1 < s.texts.size(); ++i)
    EXPECT_EQ(s.texts[i].ids, golden_ids(need(golden("texts"), kNames[i]))) << kNames[i];
  EXPECT_EQ(s.texts.back().ids, TokenIds(128, static_cast<std::int32_t>(golden("repeated").integer())));
}

// Place, value and ratio of the largest, text by text; those that are massive, and where.
void expect_massive(const Opened& o, std::optional<DType> matrices, const Limits& limits) {
  const Checkpoint c = o.subject.open(matrices);
  const Json::Array& want = need(golden("massive"), "texts").array();
  for (std::size_t i = 0; i < std::size(kNames); ++i) {
    const std::string name = kNames[i];
    const TokenIds ids = first_tokens(o.subject.texts[i].ids, 128);
    const Massive m = massive(o.lab.device, *c.model, ids, {}, {.top = 8}).front();
    const Json& w = want[i];
    const std::vector<double> medians = numbers(need(w, "medians")), peaks = numbers(need(w, "peaks"));
    ASSERT_EQ(m.median.size(), medians.size());
    for (std::size_t r = 0; r < medians.size(); ++r) {
      expect_near(m.median[r], medians[r], limits.ratio, concat(name, ": median of row ", r));
      if (r == 0) continue;
      const auto first = m.largest.begin() + static_cast<std::ptrdiff_t>(r) * m.tokens;
      expect_near(static_cast<double>(*std::max_element(first, first + m.tokens)), peaks[r - 1], limits.ratio,
                  concat(name, ": peak after layer ", r - 1));
    }
    const auto at = std::find_if(m.top.begin(), m.top.end(), [&](const Activation& a) {
      return a.row == static_cast<int>(number(w, "layer")) + 1;
    });
    ASSERT_NE(at, m.top.end());
    expect_near(at->value, number(w, "value"), limits.value, name + ": value");
    expect_near(at->ratio, number(w, "ratio"), limits.ratio, name + ": ratio");
    EXPECT_EQ(at->channel, need(w, "channel").integer()) << name;
    EXPECT_EQ(m.found, number(w, "massive") > 0) << name;
    // Of one token repeated every row has the same state but for rounding, so the place is anybody's.
    if (name != "repeated") EXPECT_EQ(at->token, need(w, "token").integer()) << name;
  }
}

TEST(RealInside, SmolLM2sMassiveActivationsAreThoseOfTransformers) {
  RAPT_NOT_SANITIZED("a whole released model");
  const auto file = model_file(kFile);
  if (!file) GTEST_SKIP() << no_model(kFile);
  const Opened o(file->string());
  expect_massive(o, DType::f32, kNumbers);
  expect_massive(o, {}, kBlocks);
}

// What the model and its sink are without them.
TEST(RealInside, SmolLM2WithoutThemIsWhatTransformersHas) {
  RAPT_ONLY_LONG("a released model in f32, many times");
  RAPT_NOT_SANITIZED("a whole released model");
  const auto file = model_file(kFile);
  if (!file) GTEST_SKIP() << no_model(kFile);
  const Opened o(file->string());
  const Json& want = golden("massive");
  const Checkpoint c = o.subject.open(DType::f32);
  const std::vector<TokenIds> windows = framed_pieces(o.subject, o.subject.prose, 256, 4);
  const int layer = static_cast<int>(number(want, "layer"));
  const Json& perplexity = need(want, "perplexity");
  for (const auto& [to, name] : {std::pair{MassiveEdit::To::zero, "zero"}, {MassiveEdit::To::mean, "mean"}}) {
    const MassiveEffect e = massive_effect(o.lab.device, *c.model, windows, {.to = to, .layer = layer});
    EXPECT_EQ(e.predicted, need(want, "predicted").integer());
    const Json::Array& set = need(want, "set").array();
    ASSERT_EQ(e.set.size(), set.size()) << name;
    for (std::size_t i = 0; i < set.size(); ++i) {
      const std::vector<double> spot = numbers(set[i]);
      EXPECT_EQ((std::vector<double>{static_cast<double>(e.window[i]), static_cast<double>(e.set[i].token),
                                     static_cast<double>(e.set[i].channel)}),
                (std::vector<double>{spot[0], spot[1], spot[2]}));
      expect_near(e.set[i].value, spot[3], 1e-4, concat(name, ": value ", i));
      if (to == MassiveEdit::To::mean)
        expect_near(e.became[i], need(want, "means").array()[i].number(), 1e-4, concat("mean ", i));
    }
    expect_near(e.before, number(perplexity, "nothing"), 1e-4, "perplexity");
    expect_near(e.control, number(perplexity, "control"), 1e-4, "perplexity, ordinary ones at zero");
    // At zero the model is a wreck: 17 nats a token, which rounding moves more.
    expect_near(e.after, number(perplexity, name), to == MassiveEdit::To::zero ? 1e-3 : 1e-4, name);
    if (to == MassiveEdit::To::zero) {
      // The two windows that the sink is looked at in, edited as the lab does.
      const auto weights =
          first_weights(o.lab, *c.model, std::span(windows).first(2), [&](std::size_t w, Taps& taps) {
            taps.edit(site::resid_out, [&, w](const Tapped& t) {
              if (t.layer != layer) return;
              for (std::size_t i = 0; i < e.set.size(); ++i)
                if (e.window[i] == static_cast<int>(w))
                  t.value.set(e.set[i].token * t.value[1] + e.set[i].channel, 0);
            });
          });
      expect_all(weights, numbers(need(need(want, "first_weights"), "zero")), 1e-3,
                 "weight on the first token by layer, at zero");
    }
  }
  expect_all(first_weights(o.lab, *c.model, std::span(windows).first(2)),
             numbers(need(need(want, "first_weights"), "nothing")), 1e-4,
             "weight on the first token by layer");
}

void expect_sink(const Opened& o, std::optional<DType> matrices, const Limits& limits) {
  const Json& want = golden("sink");
  const Json::Array& groups = need(want, "groups").array();
  const Checkpoint c = o.subject.open(matrices);
  const RealSubject& s = o.subject;
  for (std::size_t i = 0; i < std::size(kNames); ++i) {
    const std::string name = kNames[i];
    std::vector<TokenIds> texts = framed_pieces(s, i == 0 ? s.prose : s.texts[i].ids, 64,
                                                name == "prose"    ? 16
                                                : name == "random" ? 8
                                                                   : 1);
    if (name == "repeated") {
      texts = {TokenIds(64, s.texts[i].ids[0])};
      for (std::size_t t = 0; t < 7; ++t) texts.emplace_back(64, s.texts[i - 1].ids[t]);
    }
    const SinkScore score = sink_score(o.lab.device, *c.model, texts, {.epsilon = 0.3});
    const Json& w = groups[i];
    ASSERT_EQ(score.texts, need(w, "texts").integer()) << name;
    const double asked = static_cast<double>(score.heads.size()) * static_cast<double>(score.texts);
    expect_all(score.sink, numbers(need(w, "sink")),
               (limits.flips * static_cast<double>(score.texts) + 0.5) / asked, name + ": Sink by key");
    std::vector<double> layers(static_cast<std::size_t>(c.model->decoder->depth())), heads(layers);
    for (const HeadSink& h : score.heads) {
      layers[static_cast<std::size_t>(h.place.layer)] += h.alpha[0];
      heads[static_cast<std::size_t>(h.place.layer)] += 1;
    }
    for (std::size_t l = 0; l < layers.size(); ++l) layers[l] /= heads[l];
    expect_all(layers, numbers(need(w, "first_weights")), limits.weight, name + ": weight by layer");
    if (i > 0) continue;
    const Json::Array& of_heads = need(want, "heads").array();
    ASSERT_EQ(of_heads.size(), score.heads.size());
    for (std::size_t h = 0; h < of_heads.size(); ++h) {
      const HeadSink& got = score.heads[h];
      const std::vector<double> x = numbers(of_heads[h]);
      const std::string head = concat("layer ", got.place.layer, ", head ", got.head);
      EXPECT_NEAR(got.alpha[0], x[0], 3 * limits.weight) << head;
      expect_near(got.key_first, x[1], limits.length, head + ": first key");
      expect_near(got.key_others, x[2], limits.length, head + ": other keys");
      expect_near(got.value_first, x[3], limits.length, head + ": first value");
      expect_near(got.value_others, x[4], limits.length, head + ": other values");
      EXPECT_NEAR(got.cosine_first, x[5], limits.cosine) << head;
      EXPECT_NEAR(got.cosine_others, x[6], limits.cosine) << head;
    }
  }
}

TEST(RealInside, SmolLM2sSinkIsThatOfTransformers) {
  RAPT_NOT_SANITIZED("a whole released model");
  const auto file = model_file(kFile);
  if (!file) GTEST_SKIP() << no_model(kFile);
  expect_sink(Opened(file->string()), DType::f32, kNumbers);
}

TEST(RealInside, SmolLM2sSinkInBlocksIsNearIt) {
  RAPT_NOT_SANITIZED("a whole released model");
  const auto file = model_file(kFile);
  if (!file) GTEST_SKIP() << no_model(kFile);
  expect_sink(Opened(file->string()), {}, kBlocks);
}

// The guide's tables have transformers' numbers beside ours. Massive activations are measured with
// matrices as f32, sinks with the file's blocks.
TEST(RealInside, TheGuideHasTransformersBesideUs) {
  const Json &m = golden("massive"), &s = golden("sink");
  const Json& p = need(m, "perplexity");
  const auto behind = [&](const char* name) {
    const std::vector<double> all = numbers(need(need(m, "first_weights"), name));
    double sum = 0;
    for (std::size_t l = static_cast<std::size_t>(number(m, "layer")) + 1; l < all.size(); ++l) sum += all[l];
    return sum;
  };
  const auto score = [&](std::size_t group) {
    return 100 * numbers(need(need(s, "groups").array()[group], "sink"))[0];
  };
  struct Shown {
    double want, off;  // off: absolute
  };
  const std::pair<const char*, std::vector<Shown>> all[] = {
      {"massive@SmolLM2-135M",
       {{number(need(m, "texts").array()[0], "ratio"), 2},
        {1, 0},
        {number(p, "zero") / number(p, "nothing"), 0.001 * number(p, "zero") / number(p, "nothing")},
        {number(p, "mean") / number(p, "nothing"), 2e-4},
        {number(p, "control") / number(p, "nothing"), 2e-4},
        {behind("zero") / behind("nothing"), 2e-3},
        {behind("mean") / behind("nothing"), 2e-4}}},
      {"sink@SmolLM2-135M",
       {{score(0), 0.5},
        {score(4), 0.5},
        {score(5), 0},
        {number(s, "key"), 0.01},
        {number(s, "angle"), 0.005},
        {number(s, "value"), 0.01}}}};
  for (const auto& [name, shown] : all) {
    const GuideResult* r = guide_result(name);
    ASSERT_TRUE(r) << name;
    for (std::size_t i = 0; i < shown.size(); ++i) {
      Finding f = r->results.at(0).findings.at(i);
      EXPECT_NEAR(f.measured, shown[i].want, shown[i].off) << name << ": " << f.what;
      f.measured = shown[i].want;
      EXPECT_TRUE(holds(f.paper, concat("transformers 5.22.2: ", measured_text(f))))
          << name << ": " << f.what << " has beside it \"" << f.paper << "\", not " << measured_text(f)
          << "; run tests/golden/real_massive.py --beside";
    }
  }
}

// Rounding to int8 makes draws of these losses: with steps changed by less than 1e-4 of their size,
// transformers' own come out between 0.54 and 0.69 nats a tensor, 0.000 and 0.026 a token (real_massive.py
// --draws).
TEST(RealInside, TheGuidesInt8IsNearTransformers) {
  const GuideResult* r = guide_result("quant@SmolLM2-135M");
  ASSERT_TRUE(r);
  const std::vector<Finding>& f = r->results.at(0).findings;
  for (const char* type : {"float64", "float32"}) {
    const Json& q = need(golden("quant"), type);
    const double plain = number(q, "plain"), tensor = number(q, "tensor") - plain;
    const auto spared = [&](const char* name) { return 100 * (tensor - (number(q, name) - plain)) / tensor; };
    EXPECT_NEAR(f.at(0).measured, tensor, 0.15) << type;
    EXPECT_NEAR(f.at(1).measured, number(q, "token") - plain, 0.03) << type;
    EXPECT_NEAR(f.at(2).measured, spared("tensor_rows"), 5) << type;
    EXPECT_NEAR(f.at(3).measured, spared("tensor_columns"), 5) << type;
  }
}

}  // namespace
}  // namespace rapt::test
