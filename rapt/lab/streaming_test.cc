// SPDX-License-Identifier: Apache-2.0
// A text streamed through the cache against one pass over the whole of it with the same windows.
#include "rapt/lab/streaming.h"

#include <gtest/gtest.h>

#include <cmath>

#include "rapt/use/generate.h"

namespace rapt {
namespace {

Recipe toy() {
  AttnRecipe a{.heads = 2, .head_dim = 16};
  a.pos.kind = PosRecipe::Kind::rope;
  LayerRecipe layer;
  layer.parts.push_back({.norm_in = NormRecipe{}, .body = a});
  layer.parts.push_back({.norm_in = NormRecipe{}, .body = FfnRecipe{.width = 48}});
  Recipe r;
  r.name = "toy";
  r.width = 32;
  r.vocab = 40;
  r.context = 64;
  r.init.std = 0.3;
  r.decoder = StackRecipe{.layers = 2, .kinds = {{"L", layer}}, .final_norm = NormRecipe{}};
  return r;
}

std::vector<std::int32_t> some_text(Dim n) {
  std::vector<std::int32_t> ids;
  for (Dim i = 0; i < n; ++i) ids.push_back(static_cast<std::int32_t>((i * i + 3 * (i / 7)) % 40));
  return ids;
}

// What streams through the cache is what one pass over the whole text computes with the same windows.
TEST(Streaming, EqualsOnePassWithTheSameWindows) {
  Device device({.threads = 2});
  const StreamingOptions o{.window = 70, .keep = {0, 4}, .tokens = 700, .samples = 37, .timed = 3};
  const std::vector<std::int32_t> ids = some_text(o.tokens);
  for (Dim keep : o.keep) {
    Recipe r = toy();
    stream_windows(r, keep, o.window);
    Model model(r, device.real);
    init(model, 5);
    const StreamingRow row = stream_text(device, model, ids, keep, o);

    rapt::Run run(device);
    Batch batch{.tokens = ids};
    batch.sequences.push_back({.first = 0, .count = o.tokens});
    const Tensor logits = forward(run, model, batch);
    double nll = 0;
    for (Dim at : streaming_samples(o)) {
      double sum = 0;
      for (Dim v = 0; v < r.vocab; ++v) sum += std::exp(logits.at(at * r.vocab + v));
      nll += std::log(sum) - logits.at(at * r.vocab + ids[static_cast<std::size_t>(at) + 1]);
    }
    EXPECT_NEAR(row.nll, nll / static_cast<double>(o.samples), 1e-6) << keep;
    EXPECT_NEAR(row.perplexity, std::exp(row.nll), 1e-9);
    // Constant, however long the text.
    EXPECT_LE(row.pages[2], 2u * 4u) << "two layers of 70 + 4 keys in pages of 64";
    EXPECT_EQ(row.pages[1] > 0 && row.bytes[2] > 0, true);
    for (double seconds : row.token_seconds) EXPECT_GT(seconds, 0);
  }
}

TEST(Streaming, SamplesSeeAFullWindowAndATokenToPredict) {
  const StreamingOptions o{.window = 100, .keep = {0, 8}, .tokens = 5000, .samples = 1000};
  const std::vector<Dim> at = streaming_samples(o);
  ASSERT_EQ(at.size(), 1000u);
  EXPECT_GE(at.front(), 108);
  EXPECT_EQ(at.back(), 4998);
  for (std::size_t i = 1; i < at.size(); ++i) EXPECT_GT(at[i], at[i - 1]);
}

TEST(Streaming, RefusesWhatCannotBeMeasured) {
  Device device({.threads = 1});
  Model model(toy(), device.real);
  const std::vector<std::int32_t> ids = some_text(300);
  // Too short.
  EXPECT_THROW(
      stream_text(device, model, ids, 0, {.window = 100, .keep = {0}, .tokens = 200, .samples = 100}), Error);
  // No such text.
  EXPECT_THROW(stream_text(device, model, ids, 0, {.window = 10, .keep = {0}, .tokens = 5000, .samples = 10}),
               Error);
  EXPECT_THROW(stream_text(device, model, ids, 0, {.window = 0, .keep = {0}, .tokens = 300, .samples = 1}),
               Error);
  EXPECT_THROW(stream_text(device, model, ids, 0, {.window = 10, .keep = {}, .tokens = 300, .samples = 1}),
               Error);
}

}  // namespace
}  // namespace rapt
