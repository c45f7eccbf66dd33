// SPDX-License-Identifier: Apache-2.0
// rapt inspect tensors as people run it, on a toy checkpoint that the test writes.
#include "rapt/base/json.h"
#include "rapt/io/safetensors.h"
#include "tests/cli.h"
#include "tests/toy_checkpoint.h"

namespace rapt::test {
namespace {

class CliTensors : public Cli {
 protected:
  TempFolder folder;
  void SetUp() override {
    Cli::SetUp();
    if (!IsSkipped()) write_folder(read_toy("smollm2"), folder / "toy");
  }
  Outcome tensors(const std::string& more) const {
    return run("inspect tensors '" + (folder / "toy") + "' --ids '1 2 3 4 5 3' -t 1 --quiet " + more);
  }
};

TEST_F(CliTensors, ListsShowsAndWritesPoints) {
  const Outcome list = tensors("");
  EXPECT_EQ(list.code, 0) << list.err;
  EXPECT_TRUE(has(list.out, "blocks.L.attn.hook_pattern")) << list.out;
  EXPECT_TRUE(has(list.out, "[4,T,T]"));
  const std::string file = folder / "some.safetensors";
  const Outcome some = tensors("--points 'attn_weights.1,resid_post.*' --json --out '" + file + "'");
  EXPECT_EQ(some.code, 0) << some.err;
  EXPECT_EQ(parse_json(some.out).find("view")->string(), "tensors");
  const SafetensorsFile written = SafetensorsFile::open(file);
  ASSERT_EQ(written.tensors.all().size(), 3u);
  const std::vector<float> weights = written.tensors.find("attn_weights.1")->values();
  double sum = 0;
  for (float w : weights) sum += static_cast<double>(w);
  EXPECT_NEAR(sum, 4 * 6, 1e-4);  // every row of every head sums to 1
  EXPECT_TRUE(has(tensors("--points z.0 --out '" + file + "'").err, "exists already"));
  EXPECT_EQ(tensors("--points z.0 --force --out '" + file + "'").code, 0);
}

TEST_F(CliTensors, EditsChangeThePassAndMistakesAreToldApart) {
  const std::string plain = tensors("--points logits --json").out;
  const Outcome edited =
      tensors("--points logits --json --edit L1H2:zero --edit 'resid_post.0@-1:scale=0.5'");
  EXPECT_EQ(edited.code, 0) << edited.err;
  EXPECT_TRUE(has(edited.out, "L1H2:zero"));
  EXPECT_NE(edited.out, plain);
  const Outcome wrong = tensors("--points resid_pst.1");
  EXPECT_EQ(wrong.code, 2);
  EXPECT_TRUE(has(wrong.err, "did you mean 'resid_post'")) << wrong.err;
  EXPECT_EQ(tensors("--out x.npy").code, 2);
  EXPECT_EQ(tensors("--points z.0 --edit z.0:spoil").code, 2);
}

}  // namespace
}  // namespace rapt::test
