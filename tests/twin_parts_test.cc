// SPDX-License-Identifier: Apache-2.0
// Layers with two parts of one kind, which a recipe may have: what names parts by their layer refuses them with the reason, memory stays
// whole, and what does not name parts works.
#include <gtest/gtest.h>

#include "rapt/inspect/attention_map.h"
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

// Two self-attention parts with `second` heads in the second; or an encoder-decoder whose decoder looks at its source twice.
Recipe twice_self(int second, int gates = 0) {
  const std::string gate = gates ? R"(,"gate":[{"at":"sdpa"}])" : "";
  return parse_recipe(
      concat(R"({"name":"twice","width":32,"vocab":31,"context":40,"decoder":{"layers":2,"final_norm":"rms","kinds":{"L":{"parts":[
    {"self":{"norm_in":"rms","heads":4,"pos":{"rope":{}})",
             gate, R"(}},{"self":{"norm_in":"rms","heads":)", second, R"(,"window":8,"pos":{"rope":{}}}},{"ffn":{"norm_in":"rms"}}]}}}})"));
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

TEST(TwinParts, AttentionIsRefusedWithTheReason) {
  for (int second : {2, 4, 8}) {
    Twins t(twice_self(second, second == 4));
    const std::string wanted = "layer 0 of its decoder has 2 self-attention parts";
    EXPECT_TRUE(holds(error_of([&] { AttentionRecord(t.device, t.model, kIds); }), wanted));
    EXPECT_TRUE(holds(error_of([&] { sink_score(t.device, t.model, std::vector<std::vector<std::int32_t>>{kIds}); }), wanted));
    EXPECT_TRUE(holds(error_of([&] { norms(t.device, t.model, kIds); }), wanted));
    EXPECT_TRUE(holds(error_of([&] { gates(t.device, t.model, kIds); }), wanted));
    EXPECT_TRUE(holds(error_of([&] { find_points(t.model, "z.0"); }), wanted));
    EXPECT_TRUE(holds(error_of([&] { find_points(t.model, "attn_weights.*"); }), wanted));
    Taps taps;
    EXPECT_TRUE(holds(error_of([&] { install_edits(taps, t.model, std::vector{parse_edit("L0H3:zero")}); }), wanted));
    // What stands between parts and layers has a name of its own.
    EXPECT_EQ(find_points(t.model, "resid_post.*").size(), 2u);
    EXPECT_EQ(find_points(t.model, "mlp_out.*").size(), 2u);
    EXPECT_EQ(lens(t.device, t.model, kIds).rows, 3);
    const Comparison same = compare(t.device, t.model, t.device, t.model, kIds);
    EXPECT_EQ(same.layers.size(), 3u);
    EXPECT_TRUE(same.heads.empty());
  }
}

TEST(TwinParts, TwoCrossAttentions) {
  Twins t(twice_cross());
  const std::string wanted = "layer 0 of its decoder has 2 cross-attention parts";
  EXPECT_TRUE(holds(error_of([&] { AttentionRecord(t.device, t.model, kIds, kSource); }), wanted));
  EXPECT_TRUE(holds(error_of([&] { find_points(t.model, "decoder.cross_z.0"); }), wanted));
  // Its self-attention is one of its kind.
  const AttentionRecord record(t.device, t.model, kIds, kSource, {.keep = [](const AttentionPlace& p) { return !p.cross; }});
  EXPECT_EQ(record.places().size(), 2u);
  EXPECT_EQ(find_points(t.model, "decoder.z.0").size(), 1u);
}

class CliTwins : public Cli {};

TEST_F(CliTwins, EveryViewEndsInWordsOrWorks) {
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
  const Case cases[] = {{"heads", 1, 1},
                        {"attention", 1, 0},  // of an encoder-decoder the encoder's
                        {"attention --cross --stack decoder", 1, 1},
                        {"sinks", 1, 0},
                        {"massive", 0, 0},
                        {"outliers", 0, 0},
                        {"gates", 1, 1},
                        {"lens", 0, 0},
                        {"norms", 1, 1},
                        {"tensors", 0, 0},
                        {"tensors --points resid_post.0", 0, 2},
                        {"tensors --points decoder.cross_attn_weights.0", 2, 2},
                        {"tensors --points z.0,attn_weights.0", 2, 2},
                        {"tensors --points logits --edit decoder.cross_z.0:zero", 2, 2},
                        {"report --stack decoder --html '", 1, 0}};
  for (const Case& c : cases)
    for (const char* name : {"self2", "self8", "cross"}) {
      std::string args = c.view;
      if (args.starts_with("report")) args += folder / (std::string(name) + ".html") + "'";
      const std::size_t space = std::min(args.find(' '), args.size());
      const Outcome o =
          run("inspect " + args.substr(0, space) + " '" + folder / name + "'" + args.substr(space) + " --ids '3 5 7 5 9 11 4 6 8' -q -t 1");
      EXPECT_EQ(o.code, name[0] == 's' ? c.self : c.cross) << args << " " << name << "\n" << o.err;
      if (o.code == 1) EXPECT_TRUE(has(o.err, " parts, and a name with") || has(o.err, "none of the attentions")) << o.err;
    }
  EXPECT_EQ(run("inspect compare '" + folder / "self2" + "' '" + folder / "self2" + "' --ids '3 5 7' -q -t 1").code, 0);
}

}  // namespace
}  // namespace rapt::test
