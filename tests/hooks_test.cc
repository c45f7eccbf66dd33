// SPDX-License-Identifier: Apache-2.0
// Functions at named points: what they see is what a capture holds, what they change is what an edit changes;
// names that other tools have; edits whose values are given as numbers.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "rapt/inspect/capture.h"
#include "rapt/inspect/edits.h"
#include "tests/toy_checkpoint.h"

namespace rapt {
namespace {

using test::error_of;

struct HookedToy {
  Device device{{.threads = 1}};
  Checkpoint checkpoint;
  std::vector<std::int32_t> ids, source;
  explicit HookedToy(const std::string& name) : checkpoint(test::open_toy(name, device)) {
    for (std::int32_t i = 0; i < 9; ++i) ids.push_back(i * i % 17 + 3);
    if (model().encoder && model().decoder) source = {5, 9, 4, 11};
  }
  const Model& model() const { return *checkpoint.model; }
  std::vector<float> result(const Taps& taps) {
    return capture(device, model(), {}, ids, source, {.taps = &taps, .result = true}).result.values;
  }
};

constexpr const char* kHookedToys[] = {"gpt2", "llama3.1", "bert", "t5", "gemma2", "gpt-neox", "qwen3-next"};

std::vector<std::string> points_of_all_kinds(const Model& model) {
  std::vector<std::string> names;
  for (const PointLine& line : list_points(model)) {
    std::string name = line.name;
    if (line.first >= 0) name.replace(name.find(".L") + 1, 1, std::to_string(line.first));
    names.push_back(name);
  }
  return names;
}

TEST(Hooks, WhatIsSeenIsWhatACaptureHolds) {
  for (const char* name : kHookedToys) {
    HookedToy toy(name);
    const std::vector<Asked> asked = ask_points(toy.model(), points_of_all_kinds(toy.model()));
    const Capture want = capture(toy.device, toy.model(), asked, toy.ids, toy.source, {.result = true});
    Taps taps;
    std::vector<int> seen(asked.size());
    watch_points(taps, toy.model(), asked, static_cast<Dim>(toy.ids.size()),
                 static_cast<Dim>(toy.source.size()), [&](std::size_t i, Captured&& value) {
                   ++seen[i];
                   EXPECT_EQ(value.name, asked[i].name);
                   EXPECT_EQ(value.shape, want.tensors[i].shape) << name << " " << value.name;
                   EXPECT_EQ(value.values, want.tensors[i].values) << name << " " << value.name;
                 });
    EXPECT_EQ(toy.result(taps), want.result.values) << name;
    EXPECT_EQ(seen, std::vector<int>(asked.size(), 1)) << name;
    EXPECT_EQ(want.result.values, toy.result({})) << name;
  }
}

TEST(Hooks, AFunctionChangesWhatAnEditChanges) {
  for (const char* name : kHookedToys) {
    HookedToy toy(name);
    const std::string stack = toy.source.empty() ? "" : "decoder.";
    for (const std::string point : {"resid_post.0", "mlp_out.1"}) {
      const std::vector<std::string> names = {stack + point};
      const std::vector<Edit> edits = {parse_edit(names[0] + ":scale=0.25")};
      Taps edited, changed;
      const auto check_edits = install_edits(edited, toy.model(), edits);
      const std::vector<Asked> asked = ask_points(toy.model(), names);
      const auto came = edit_points(changed, asked, [](std::size_t, const Tapped& t) {
        for (float& x : t.value.as<float>()) x *= 0.25f;
      });
      const std::vector<float> got = toy.result(changed);
      EXPECT_EQ(got, toy.result(edited)) << name << " " << point;
      EXPECT_NE(got, toy.result({})) << name << " " << point;
      EXPECT_NO_THROW(came());
      EXPECT_NO_THROW(check_edits());
    }
  }
}

TEST(Hooks, PointsThatCannotBeChangedSayWhy) {
  HookedToy toy("gpt2");
  const auto refused = [&](const std::string& name) {
    Taps taps;
    return error_of(
        [&] { edit_points(taps, ask_points(toy.model(), {&name, 1}), [](std::size_t, const Tapped&) {}); });
  };
  EXPECT_NE(refused("attn_normalized.1").find("cannot be changed"), std::string::npos);
  EXPECT_NE(refused("attn_weights.1").find("cannot be changed"), std::string::npos);
  // A point that does not come by: the pass of a model that ends before it.
  Taps taps;
  const std::string name = "z.1";
  const auto came = edit_points(taps, ask_points(toy.model(), {&name, 1}), [](std::size_t, const Tapped&) {});
  EXPECT_NE(error_of(came).find("did not come by"), std::string::npos);
}

TEST(Hooks, EveryOtherNameFindsItsPoint) {
  for (const char* name : kHookedToys) {
    HookedToy toy(name);
    const std::vector<PointLine> lines = list_points(toy.model());
    const std::vector<std::vector<std::string>> others = other_names(toy.model(), lines);
    ASSERT_EQ(others.size(), lines.size());
    int lens = 0;
    for (std::size_t i = 0; i < lines.size(); ++i) {
      const PointLine& line = lines[i];
      if (!line.lens.empty()) {
        ++lens;
        EXPECT_NE(std::find(others[i].begin(), others[i].end(), line.lens), others[i].end()) << line.lens;
      }
      for (std::string other : others[i]) {
        const std::size_t at = other.rfind('L');
        if (line.first >= 0) {
          const std::size_t block = other.find(".L.");
          other.replace(block == std::string::npos ? at : block + 1, 1, std::to_string(line.first));
        }
        const std::vector<Point> found = find_points(toy.model(), other);
        ASSERT_EQ(found.size(), 1u) << other;
        EXPECT_EQ(found[0].name, line.example.name) << other;
      }
    }
    EXPECT_GT(lens, 15) << name;
  }
}

TEST(Hooks, ValuesOfEditsAreGivenAsNumbersToo) {
  HookedToy toy("llama3.1");
  const Dim C = toy.model().recipe.width;
  const auto result = [&](const Edit& e) {
    Taps taps;
    install_edits(taps, toy.model(), {&e, 1});
    return toy.result(taps);
  };
  const std::vector<float> way(static_cast<std::size_t>(C), 0.5f);
  EXPECT_EQ(result(parse_edit("resid_post.0:add", way, {C})), result(parse_edit("resid_post.0:add=0.5")));
  EXPECT_EQ(result(parse_edit("resid_post.0:add", {0.5f}, {})), result(parse_edit("resid_post.0:add=0.5")));
  EXPECT_NE(error_of([&] { parse_edit("resid_post.0:add=1", way, {C}); }).find("another beside it"),
            std::string::npos);
  EXPECT_NE(error_of([&] { parse_edit("resid_post.0:add", {}, {0}); }).find("no numbers"), std::string::npos);
  EXPECT_NE(error_of([&] { parse_edit("resid_post.0:zero", way, {C}); }).find("take no value"),
            std::string::npos);
  const EditSet a({parse_edit("resid_post.0:add", way, {C})}), b({parse_edit("resid_post.0:add", way, {C})});
  std::vector<float> other = way;
  other[3] = 0.25f;
  EXPECT_EQ(a.key, b.key);
  EXPECT_NE(a.key, EditSet({parse_edit("resid_post.0:add", other, {C})}).key);
  EXPECT_NE(a.key, EditSet({}).key);
}

}  // namespace
}  // namespace rapt
