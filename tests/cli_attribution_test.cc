// SPDX-License-Identifier: Apache-2.0
// rapt inspect attribution, patching and tensors --gradient as people run them, on toys that the test writes.
#include <cmath>

#include "rapt/base/json.h"
#include "tests/cli.h"
#include "tests/toy_checkpoint.h"

namespace rapt::test {
namespace {

class CliAttribution : public Cli {
 protected:
  TempFolder folder;
  void SetUp() override {
    Cli::SetUp();
    if (!IsSkipped()) write_folder(read_toy("llama3.1"), folder / "toy");
  }
  Outcome inspect(const std::string& view, const std::string& more) const {
    return run("inspect " + view + " '" + (folder / "toy") + "' --ids '1 2 3 4 5 3' -t 1 --quiet " + more);
  }
  Json data(const std::string& view, const std::string& more) const {
    const Outcome o = inspect(view, more + " --json");
    EXPECT_EQ(o.code, 0) << o.err;
    return o.code == 0 ? *parse_json(o.out).find("data") : Json(Json::Object{});
  }
};

TEST_F(CliAttribution, TakesALogitApart) {
  const Json a = data("attribution", "--metric difference=id:7,id:9@-2");
  EXPECT_EQ(a.find("metric")->find("kind")->string(), "difference");
  EXPECT_EQ(a.find("metric")->find("position")->integer(), 4);
  double sum = a.find("rest")->number();
  for (const Json& p : a.find("parts")->array()) sum += p.find("value")->number();
  EXPECT_NEAR(sum, a.find("logit")->number(), 1e-9);
  EXPECT_EQ(a.find("heads")->array().size(), 12u);
  EXPECT_EQ(a.find("parts")->array().size(), 7u);  // embeddings, three layers of two parts
  const Outcome text = inspect("attribution", "");
  EXPECT_EQ(text.code, 0) << text.err;
  EXPECT_TRUE(has(text.out, "attn_out_post.2")) << text.out;
  EXPECT_TRUE(has(text.out, "the logit of")) << text.out;
  EXPECT_EQ(inspect("attribution", "--metric logprob").code, 2);
  EXPECT_TRUE(has(inspect("attribution", "--metric logitt").err, "did you mean 'logit'"));
  EXPECT_EQ(inspect("attribution", "--out '" + (folder / "map.svg") + "'").code, 0);
}

TEST_F(CliAttribution, PatchesOneTextIntoAnother) {
  const Json p = data("patching", "--corrupted-ids '1 2 9 4 5 3' --metric logit=id:7 --what resid_pre,heads");
  ASSERT_EQ(p.find("grids")->array().size(), 2u);
  const Json& stream = p.find("grids")->array()[0];
  const auto recovered = [&](std::size_t layer, std::size_t at) {
    return stream.find("recovered")->array()[layer].array()[at].number();
  };
  // The only token that differs, before the first layer: everything comes back; any other: nothing.
  EXPECT_NEAR(recovered(0, 2), 1, 1e-4);
  for (const std::size_t at : {0u, 1u, 3u, 4u, 5u}) EXPECT_EQ(recovered(0, at), 0) << at;
  EXPECT_EQ(p.find("grids")->array()[1].find("value")->array()[0].array().size(), 4u);  // heads
  const Outcome text = inspect("patching", "--corrupted-ids '1 2 9 4 5 3' --metric logit=id:7");
  EXPECT_EQ(text.code, 0) << text.err;
  EXPECT_TRUE(has(text.out, "<3>|<9>")) << text.out;
  EXPECT_TRUE(has(inspect("patching", "").err, "--corrupted TEXT"));
  EXPECT_EQ(inspect("patching", "--corrupted-ids '1 2'").code, 2);
}

TEST_F(CliAttribution, GivesGradients) {
  const Json g =
      data("tensors", "--points z.1,resid_pre.0 --gradient loss --out '" + (folder / "g.safetensors") + "'");
  EXPECT_EQ(g.find("gradient_of")->find("kind")->string(), "loss");
  EXPECT_GT(g.find("metric_value")->number(), 0);
  EXPECT_GT(g.find("tensors")->array()[0].find("rms")->number(), 0);
  // Of a quantized file, too: its matrices are read as f32.
  const std::string blocks = (std::filesystem::path(program).parent_path() / "default.gguf").string();
  const Outcome of_blocks =
      run("inspect tensors '" + blocks + "' 'To be, or not' -t 1 --points z.0 --gradient 'logit= be'");
  EXPECT_EQ(of_blocks.code, 0) << of_blocks.err;
  EXPECT_TRUE(has(of_blocks.err, "matrices are read as f32")) << of_blocks.err;
  EXPECT_EQ(inspect("tensors", "--gradient loss").code, 2);
  EXPECT_EQ(inspect("tensors", "--points z.0 --gradient loss --edit z.0:zero").code, 2);
  EXPECT_EQ(inspect("tensors", "--points attn_weights.0 --gradient loss").code, 2);
}

}  // namespace
}  // namespace rapt::test
