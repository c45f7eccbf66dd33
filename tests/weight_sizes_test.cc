// SPDX-License-Identifier: Apache-2.0
// Sizes of weights read from files: against the same weights loaded, for every family and form; and the
// document that shows them, by value.
#include "rapt/load/weight_sizes.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "rapt/inspect/documents.h"
#include "rapt/load/model_folder.h"
#include "tests/cli.h"
#include "tests/toy_checkpoint.h"
#include "tests/views_tools.h"

namespace rapt::test {
namespace {

Device& sizes_device() {
  static Device one({.threads = 2});
  return one;
}

void expect_as_loaded(const std::string& path) {
  SCOPED_TRACE(path);
  const CheckpointSizes sizes = checkpoint_sizes(path, sizes_device());
  const Checkpoint c = open_checkpoint(path, {.matrices = DType::f32});
  EXPECT_EQ(sizes.family, c.family);
  std::size_t at = 0;
  for (const Weight& w : c.model->weights) {
    if (!is_parameter(w)) continue;
    ASSERT_LT(at, sizes.weights.size());
    const WeightSize& s = sizes.weights[at++];
    ASSERT_EQ(s.name, w.name);
    double squares = 0, largest = 0;
    const bool plus_one = is_norm_weight(w.name) && c.model->starts.at(w.index) == 0;
    for (Dim r = 0; r < w.rows; ++r)
      for (Dim k = 0; k < w.cols; ++k) {
        const double x = w.get(r, k) + (plus_one ? 1 : 0);
        squares += x * x;
        largest = std::max(largest, std::abs(x));
      }
    EXPECT_NEAR(s.squares, squares, 1e-9 * squares) << w.name;
    EXPECT_DOUBLE_EQ(s.largest, largest) << w.name;
  }
  EXPECT_EQ(at, sizes.weights.size());
}

// In x out, fused and grouped projections, pairs order, experts in one tensor, norms stored minus one.
TEST(WeightSizes, EveryFamilyHasThoseOfTheLoadedModel) {
  const TempFolder temp;
  for (const std::string& name : toy_names()) {
    write_folder(read_toy(name), temp / name, DType::bf16);
    expect_as_loaded(temp / name);
  }
}

TEST(WeightSizes, GgufAndBlocksToo) {
  const TempFolder temp;
  for (const std::string name : {"llama3.1", "gemma3", "gpt2"}) {
    write_folder(read_toy(name), temp / name);
    write_checkpoint(temp / name, temp / (name + ".gguf"), {});
    expect_as_loaded(temp / (name + ".gguf"));
  }
  Model m(resolve(
      with_settings(preset("qwen2"), std::vector<std::string>{"width=64", "layers=2", "heads=2", "kv_heads=1",
                                                              "ffn=96", "vocab=50", "context=32"})));
  randomise(m, 3);
  write_model_folder(m, {}, temp / "m", false);
  write_checkpoint(temp / "m", temp / "m.gguf", {.type = DType::q8_0});
  expect_as_loaded(temp / "m.gguf");
  EXPECT_EQ(checkpoint_sizes(temp / "m.gguf", sizes_device()).weights[2].stored, DType::q8_0);
}

// Three layers whose key biases are known: (3, -4, 0, …) in layer 1, half a tenth of it elsewhere.
TEST(WeightSizes, TheDocumentNamesTheLargest) {
  const TempFolder temp;
  Model m(resolve(toy_recipe("qwen2")));
  randomise(m, 3);
  for (Dim l = 0; l < 3; ++l)
    for (Weight& w : m.weights) {
      if (w.name.find(".bias") == w.name.npos || !w.name.starts_with(concat("decoder.", l, "."))) continue;
      for (Dim c = 0; c < w.cols; ++c) w.set(0, c, 0);
      if (!w.name.ends_with(".k.bias")) continue;
      w.set(0, 0, l == 1 ? 3 : 0.15);
      w.set(0, 1, l == 1 ? -4 : 0.2);
    }
  write_model_folder(m, {}, temp / "m", false);
  const Document d = weights_document(temp / "m", sizes_device());
  std::string text = document_text(d, false);
  std::replace(text.begin(), text.end(), '\n', ' ');  // wherever its lines end
  EXPECT_TRUE(holds(text,
                    "Of the biases the largest by Euclidean norm is self.k.bias of layer 1 with 5.00, "
                    "20.00 times the median of its layers (0.2500)"))
      << text;
  EXPECT_TRUE(holds(text, "A key bias is the same in every key of its layer")) << text;
  int seen = 0;
  for (const Json& j : need(d.facts, "weights").array()) {
    if (need(j, "kind").string() != "self.k.bias" || need(j, "layer").integer() != 1) continue;
    ++seen;
    EXPECT_EQ(need(j, "group").string(), "biases");
    EXPECT_EQ(need(j, "numbers").integer(), 12);
    EXPECT_DOUBLE_EQ(need(j, "norm").number(), 5);
    EXPECT_DOUBLE_EQ(need(j, "rms").number(), std::sqrt(25.0 / 12));
    EXPECT_DOUBLE_EQ(need(j, "largest").number(), 4);
  }
  EXPECT_EQ(seen, 1);
  const Document rms = weights_document(temp / "m", sizes_device(), WeightMeasure::rms);
  EXPECT_TRUE(holds(document_text(rms, false), "biases: root mean square"));
}

class WeightsView : public Cli {};

TEST_F(WeightsView, AsPeopleCallIt) {
  const TempFolder temp;
  write_folder(read_toy("gemma3"), temp / "gemma3");
  const Outcome o = run("inspect weights '" + (temp / "gemma3") + "' --measure largest -q");
  EXPECT_EQ(o.code, 0) << o.err;
  EXPECT_TRUE(has(o.out, "gains: largest magnitude")) << o.out;
  EXPECT_EQ(run("inspect weights '" + (temp / "gemma3") + "' --measure size -q").code, 2);
  const Outcome text = run("inspect weights '" + (temp / "gemma3") + "' hello -q");
  EXPECT_TRUE(has(text.err, "looks at no text")) << text.err;
  EXPECT_NE(run("inspect weights llama3 -q").code, 0);  // a preset has no weights
}

}  // namespace
}  // namespace rapt::test
