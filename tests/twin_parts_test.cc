// SPDX-License-Identifier: Apache-2.0
// Layers with two parts of one kind, which a recipe may have: a number tells them apart in names, edits,
// views and pictures.
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "rapt/inspect/attention_map.h"
#include "rapt/inspect/capture.h"
#include "rapt/inspect/compare.h"
#include "rapt/inspect/edits.h"
#include "rapt/inspect/gates.h"
#include "rapt/inspect/lens.h"
#include "rapt/inspect/norms.h"
#include "rapt/inspect/sink_score.h"
#include "rapt/load/model_folder.h"
#include "tests/cli.h"
#include "tests/model_tools.h"
#include "tests/tools.h"

namespace rapt::test {
namespace {

// Two self-attention parts with `second` heads in the second; or an encoder-decoder whose decoder looks at
// its source twice.
Recipe twice_self(int second, int gates = 0) {
  const std::string gate = gates ? R"(,"gate":[{"at":"sdpa"}])" : "";
  return parse_recipe(concat(
      R"({"name":"twice","width":32,"vocab":31,"context":40,"decoder":{"layers":2,"final_norm":"rms","kinds":{"L":{"parts":[
    {"self":{"norm_in":"rms","heads":4,"pos":{"rope":{}})",
      gate, R"(}},{"self":{"norm_in":"rms","heads":)", second,
      R"(,"window":8,"pos":{"rope":{}}}},{"ffn":{"norm_in":"rms"}}]}}}})"));
}
Recipe twice_cross() {
  return parse_recipe(R"({"name":"twice","width":32,"vocab":31,"context":40,
    "encoder":{"layers":1,"final_norm":"rms","kinds":{"L":{"parts":[{"self":{"norm_in":"rms","heads":4,"mask":"full"}},{"ffn":{"norm_in":"rms"}}]}}},
    "decoder":{"layers":1,"final_norm":"rms","kinds":{"L":{"parts":[{"self":{"norm_in":"rms","heads":4}},
      {"cross":{"norm_in":"rms","heads":4}},{"cross":{"norm_in":"rms","heads":2}},{"ffn":{"norm_in":"rms"}}]}}}})");
}
const std::vector<std::int32_t> kIds = {3, 5, 7, 5, 9, 11, 4, 6, 8, 2, 3, 5}, kSource = {4, 6, 8, 3};

struct Twins {
  Device device{{.threads = 1}};
  Model model;
  explicit Twins(const Recipe& recipe) : model(recipe, device.real) { randomise(model, 3); }
};

// Weights of one head, from the q and k that pass by: a softmax over the keys that the mask shows.
std::vector<double> dense_weights(const Model& model, Device& device, int part, Dim head, Dim row) {
  const Attention& a = *model.decoder->layers[0].parts[static_cast<std::size_t>(part)].attention();
  std::vector<double> q, k;
  Taps taps;
  taps.see(site::q, [&](const Tapped& t) {
    if (t.layer == 0 && t.part == part) q = all_values(t.value);
  });
  taps.see(site::k, [&](const Tapped& t) {
    if (t.layer == 0 && t.part == part) k = all_values(t.value);
  });
  look(device, model, taps, kIds);
  const Dim H = a.spec.heads, D = a.spec.head_dim,
            low = a.mask.left == Mask::kAll ? 0 : std::max<Dim>(0, row - a.mask.left);
  std::vector<double> w(kIds.size());
  double sum = 0;
  for (Dim j = low; j <= row; ++j) {
    double score = 0;
    for (Dim d = 0; d < D; ++d)
      score += q[static_cast<std::size_t>((row * H + head) * D + d)] *
               k[static_cast<std::size_t>((j * H + head) * D + d)];
    sum += w[static_cast<std::size_t>(j)] = std::exp(score * a.spec.scale);
  }
  for (double& x : w) x /= sum;
  return w;
}

TEST(TwinParts, EachHasItsOwnNameAndItsOwnValues) {
  for (int second : {2, 4, 8}) {
    Twins t(twice_self(second, second == 4));
    // A name that means two things is refused; with a number it means one, with a star all.
    EXPECT_TRUE(holds(error_of([&] { find_points(t.model, "z.0"); }), "write z.0.1 … z.0.2"));
    EXPECT_TRUE(holds(error_of([&] { find_points(t.model, "z.0.3"); }),
                      "has 2 self-attention parts, counted from 1"));
    EXPECT_TRUE(holds(error_of([&] { find_points(t.model, "mlp_out.0.2"); }), "has 1 feed-forward part"));
    EXPECT_EQ(find_points(t.model, "attn_weights.*").size(), 4u);
    EXPECT_EQ(find_points(t.model, "z.1.2").at(0).name, "z.1.2");
    EXPECT_EQ(find_points(t.model, "z.1.2").at(0).shape.at(1), second);
    EXPECT_EQ(find_points(t.model, "resid_post.*").size(), 2u);
    EXPECT_EQ(find_points(t.model, "mlp_out.*").size(), 2u);

    const AttentionRecord record(t.device, t.model, kIds);
    ASSERT_EQ(record.places().size(), 4u);
    for (int number : {1, 2}) {
      const AttentionPlace place{Stack::decoder, 0, false, number};
      EXPECT_EQ(record.heads(place), number == 1 ? 4 : second);
      for (const Dim row : {Dim{3}, Dim{11}}) {
        const std::vector<double> wanted = dense_weights(t.model, t.device, number - 1, 1, row);
        record.rows(place, 1, std::vector<Dim>{row}, [&](Dim, int, std::span<const float> w) {
          for (std::size_t i = 0; i < w.size(); ++i)
            EXPECT_NEAR(static_cast<double>(w[i]), wanted[i], 1e-5) << number << " " << row;
        });
        const Asked asked = ask_points(t.model, std::vector{concat("attn_weights.0.", number)}).at(0);
        const Captured got = capture(t.device, t.model, {&asked, 1}, kIds).tensors.at(0);
        for (std::size_t i = 0; i < wanted.size(); ++i)
          EXPECT_NEAR(static_cast<double>(got.values[(12 + static_cast<std::size_t>(row)) * 12 + i]),
                      wanted[i], 1e-5);
      }
    }
    EXPECT_EQ(sink_score(t.device, t.model, std::vector<std::vector<std::int32_t>>{kIds}).heads.size(),
              static_cast<std::size_t>(2 * (4 + second)));
    EXPECT_EQ(norms(t.device, t.model, kIds).heads.size(), static_cast<std::size_t>(3 * 2 * (4 + second)));
    if (second == 4)
      // The second has none.
      for (const GateStats& g : gates(t.device, t.model, kIds)) EXPECT_EQ(g.number, 1);
    EXPECT_EQ(lens(t.device, t.model, kIds).rows, 3);
    const Comparison same = compare(t.device, t.model, t.device, t.model, kIds);
    EXPECT_EQ(same.layers.size(), 3u);
    EXPECT_EQ(same.heads.size(), static_cast<std::size_t>(2 * (4 + second)));
  }
}

// An edit of one leaves the other as it was: zeroing a head's z takes away just what its columns of the
// output matrix add.
TEST(TwinParts, AnEditReachesTheOneItNames) {
  Twins t(twice_self(4));
  const auto streams = [&](const char* edit) {
    std::map<std::pair<int, int>, std::vector<double>> z;
    Taps taps;
    std::vector<Edit> edits;
    if (*edit) edits.push_back(parse_edit(edit));
    const auto check = install_edits(taps, t.model, edits);
    taps.see(site::z, [&](const Tapped& p) { z[{p.layer, p.part}] = all_values(p.value); });
    look(t.device, t.model, taps, kIds);
    check();
    return z;
  };
  const auto plain = streams(""), first = streams("L0.1H3:zero"), last = streams("L0.2H3:zero");
  const auto zeros = [](const std::vector<double>& z) {  // [T,4,8]: values of head 3 that are 0
    Dim n = 0;
    for (std::size_t i = 0; i < z.size(); ++i) n += i / 8 % 4 == 3 && z[i] == 0;
    return n;
  };
  EXPECT_EQ(zeros(plain.at({0, 0})), 0);
  EXPECT_EQ(zeros(first.at({0, 0})), 12 * 8);
  EXPECT_NE(first.at({0, 1}), plain.at({0, 1}));  // it reads what the first wrote
  EXPECT_EQ(last.at({0, 0}), plain.at({0, 0}));
  EXPECT_EQ(zeros(last.at({0, 1})), 12 * 8);
  Taps taps;
  EXPECT_TRUE(holds(error_of([&] { install_edits(taps, t.model, std::vector{parse_edit("L0H3:zero")}); }),
                    "means 2 things"));
}

TEST(TwinParts, TwoCrossAttentions) {
  Twins t(twice_cross());
  const AttentionRecord record(t.device, t.model, kIds, kSource);
  ASSERT_EQ(record.places().size(), 4u);  // the encoder's, the decoder's own, and two across
  EXPECT_EQ(record.heads({Stack::decoder, 0, true, 1}), 4);
  EXPECT_EQ(record.heads({Stack::decoder, 0, true, 2}), 2);
  EXPECT_TRUE(holds(error_of([&] { find_points(t.model, "decoder.cross_z.0"); }), "write cross_z.0.1"));
  EXPECT_EQ(find_points(t.model, "decoder.cross_z.0.2").at(0).shape.at(1), 2);
  EXPECT_EQ(find_points(t.model, "decoder.z.0").size(), 1u);
}

class CliTwins : public Cli {};

TEST_F(CliTwins, EveryViewWorks) {
  const TempFolder folder;
  const auto write = [&](const Recipe& recipe, const std::string& name, std::int32_t start) {
    Model m(recipe);
    randomise(m, 5);
    write_model_folder(m, {.eos = 1, .decoder_start = start}, folder / name, false);
  };
  write(twice_self(2), "self2", -1);
  write(twice_self(8), "self8", -1);
  write(twice_cross(), "cross", 2);
  struct Case {
    const char* view;
    int self, cross;  // exit codes
  };
  const Case cases[] = {{"heads", 0, 0},
                        {"attention", 0, 0},
                        {"attention --layer 0 --head 1", 0, 0},
                        {"attention --cross --stack decoder", 1, 0},  // there is none
                        {"sinks", 0, 0},
                        {"massive", 0, 0},
                        {"outliers", 0, 0},
                        {"gates", 1, 1},  // there are none
                        {"lens", 0, 0},
                        {"norms", 0, 0},
                        {"tensors", 0, 0},
                        {"tensors --points resid_post.0", 0, 2},  // of which stack
                        {"tensors --points decoder.cross_attn_weights.0", 2, 2},
                        {"tensors --points decoder.cross_attn_weights.0.2", 2, 0},
                        {"tensors --points z.0,attn_weights.0", 2, 2},
                        {"tensors --points z.0.1,attn_weights.0.2", 0, 2},
                        {"tensors --points logits --edit decoder.cross_z.0:zero", 2, 2},
                        {"tensors --points logits --edit decoder.cross_z.0.1:zero", 2, 0},
                        {"report --stack decoder --html '", 0, 0}};
  for (const Case& c : cases)
    for (const char* name : {"self2", "self8", "cross"}) {
      std::string args = c.view;
      if (args.starts_with("report")) args += folder / (std::string(name) + ".html") + "'";
      const std::size_t space = std::min(args.find(' '), args.size());
      const Outcome o = run("inspect " + args.substr(0, space) + " '" + folder / name + "'" +
                            args.substr(space) + " --ids '3 5 7 5 9 11 4 6 8' -q -t 1");
      EXPECT_EQ(o.code, name[0] == 's' ? c.self : c.cross) << args << " " << name << "\n" << o.err;
      if (o.code == 1)
        EXPECT_TRUE(has(o.err, "has no gates") || has(o.err, "none of the attentions")) << o.err;
    }
  EXPECT_EQ(
      run("inspect compare '" + folder / "self2" + "' '" + folder / "self2" + "' --ids '3 5 7' -q -t 1").code,
      0);
}

}  // namespace
}  // namespace rapt::test
