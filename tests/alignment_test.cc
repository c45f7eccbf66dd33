// SPDX-License-Identifier: Apache-2.0
// Alignments: weights beside transformers' cross-attentions (tests/golden/use/alignment.json), words out of
// tokens, recurrent decoders.
#include "rapt/inspect/alignment.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/memory_checkpoint.h"
#include "tests/toy_checkpoint.h"

namespace rapt::test {
namespace {

using Ids = std::vector<std::int32_t>;

Device& device() {
  static Device one({.threads = 2});
  return one;
}

TEST(Alignment, WeightsAreTransformers) {
  const Json golden = parse_json(
      read_text_file(std::string(RAPT_SOURCE_DIR) + "/tests/golden/use/alignment.json"), "alignment.json");
  for (const Json& m : golden.find("maps")->array()) {
    const Checkpoint c = open_toy(m.find("toy")->string(), device());
    const Ids source = ids_of(*m.find("source")), target = ids_of(*m.find("target"));
    const auto& heads = m.find("heads")->array();  // [layer, head] one after the other
    const int layers = static_cast<int>(m.find("layers")->integer()),
              H = static_cast<int>(heads.size()) / layers;
    auto want = [&](int layer, int head, std::size_t t, std::size_t s) {
      return heads[static_cast<std::size_t>(layer * H + head)].array()[t].array()[s].number();
    };
    auto expect = [&](const AlignmentOptions& o, int first, int last, int head) {
      const Alignment a = alignment(device(), c, source, target, o);
      ASSERT_EQ(a.target.size(), target.size());
      ASSERT_EQ(a.source.size(), source.size());
      ASSERT_EQ(a.layers.size(), static_cast<std::size_t>(last - first));
      EXPECT_EQ(a.layers[0], first);
      double worst = 0;
      for (std::size_t t = 0; t < target.size(); ++t)
        for (std::size_t s = 0; s < source.size(); ++s) {
          double sum = 0, n = 0;
          for (int layer = first; layer < last; ++layer)
            for (int h = 0; h < H; ++h)
              if (head < 0 || h == head) sum += want(layer, h, t, s), n += 1;
          worst = std::max(worst, std::abs(a.weights[t * source.size() + s] - sum / n));
        }
      EXPECT_LE(worst, 2e-5) << m.find("toy")->string();
    };
    using Layers = AlignmentOptions::Layers;
    expect({}, std::max(0, layers - 2), std::max(0, layers - 2) + 1, -1);
    expect({.layers = Layers::all}, 0, layers, -1);
    expect({.layers = Layers::one, .layer = -1}, layers - 1, layers, -1);
    expect({.layers = Layers::one, .layer = 0, .head = 2}, 0, 1, 2);
    EXPECT_THROW(alignment(device(), c, source, target, {.layers = Layers::one, .layer = layers}), Error);
    EXPECT_THROW(alignment(device(), c, source, target, {.head = H}), Error);
    EXPECT_THROW(alignment(device(), c, Ids{}, target), Error);
    EXPECT_THROW(alignment(device(), c, source, Ids{}), Error);
  }
}

TEST(Alignment, WordsOutOfLetters) {
  const LetterTokenizer t(40);
  auto words = [&](const Ids& ids) {
    std::vector<std::string> out;
    const std::vector<std::size_t> starts = word_starts(t, ids);
    for (std::size_t i = 0; i < starts.size(); ++i)
      out.push_back(t.decode(
          std::span(ids).subspan(starts[i], (i + 1 < starts.size() ? starts[i + 1] : ids.size()) - starts[i]),
          true));
    return out;
  };
  using Words = std::vector<std::string>;
  // <s> a b _ c _ _ d é </s>, and "<31>": signs and digits
  EXPECT_EQ(words({0, 2, 3, 28, 4, 28, 28, 5, 29, 30, 1}), (Words{"<s>", "ab", " c", "  d\xC3\xA9", "</s>"}));
  EXPECT_EQ(words({2, 31, 3}), (Words{"a", "<31>", "b"}));
  EXPECT_EQ(words({29, 30}), (Words{"\xC3\xA9"}));
  EXPECT_EQ(words({28, 28}), (Words{"  "}));
  EXPECT_TRUE(words({}).empty());
}

Checkpoint recurrent(const std::string& preset) {
  Recipe r = parse_recipe(concat(R"({ "preset": ")", preset, R"(", "width": 16 })"));
  r.vocab = 40;
  for (auto* stack : {&*r.encoder, &*r.decoder}) stack->recurrent->width = 12;
  Checkpoint c = memory_checkpoint(r, 5);
  c.decoder_start = 0;
  return c;
}

TEST(Alignment, WordsAreMeansOfRowsAndSumsOfColumns) {
  const Ids source = {2, 3, 28, 4, 28, 5, 6, 7, 1}, target = {8, 28, 9, 10, 28, 11, 1};
  for (const char* preset : {"bahdanau", "luong-general", "luong-dot"}) {
    const Checkpoint c = recurrent(preset);
    const Alignment words = alignment(device(), c, source, target),
                    tokens = alignment(device(), c, source, target, {.words = false});
    EXPECT_EQ(words.source, (std::vector<std::string>{"ab", "c", "def", "</s>"}));
    EXPECT_EQ(words.target, (std::vector<std::string>{"g", "hi", "j", "</s>"}));
    EXPECT_EQ(words.target_ids[1], (Ids{28, 9, 10}));
    ASSERT_EQ(tokens.weights.size(), source.size() * target.size());
    double uneven = 0;
    for (std::size_t t = 0; t < target.size(); ++t) {
      double sum = 0;
      for (std::size_t s = 0; s < source.size(); ++s) {
        sum += tokens.weights[t * source.size() + s];
        uneven = std::max(uneven, std::abs(tokens.weights[t * source.size() + s] - 1.0 / 9));
      }
      EXPECT_NEAR(sum, 1, 1e-5) << preset;
    }
    EXPECT_GT(uneven, 1e-3) << preset;
    // "hi" is tokens 1 … 3 of the target, "def" tokens 4 … 7 of the source.
    double sum = 0;
    for (std::size_t t = 1; t <= 3; ++t)
      for (std::size_t s = 4; s <= 7; ++s) sum += tokens.weights[t * source.size() + s] / 3;
    EXPECT_NEAR(words.weights[1 * 4 + 2], sum, 1e-9) << preset;
    const HeatMap map = heat_map(words, "x");
    EXPECT_EQ(map.values, words.weights);
    EXPECT_EQ(map.columns, Labels(words.source));
  }
  const Checkpoint d = memory_checkpoint(small_decoder(), 1);
  EXPECT_TRUE(holds(error_of([&] { alignment(device(), d, source, target); }), "no encoder and decoder"));
}

}  // namespace
}  // namespace rapt::test
