// SPDX-License-Identifier: Apache-2.0
// rapt inspect heads, attention and sinks as people run them, on a toy checkpoint that the test writes.
#include <cmath>

#include "rapt/base/json.h"
#include "tests/cli.h"
#include "tests/toy_checkpoint.h"

namespace rapt::test {
namespace {

class CliInspect : public Cli {
 protected:
  void SetUp() override {
    Cli::SetUp();
    write_folder(read_toy("llama3.1"), folder + "/toy");
  }
  Outcome look(const std::string& view, const std::string& more = "") const {
    return run("inspect " + view + " '" + folder + "/toy' --ids '1 2 3 4 5 3 4 5 3 4' -t 1 --quiet " + more);
  }
  const TempFolder temp;
  const std::string folder = temp.path();
};

TEST_F(CliInspect, HeadsAsTextAndAsJson) {
  const Outcome text = look("heads");
  EXPECT_EQ(text.code, 0) << text.err;
  EXPECT_TRUE(has(text.out, "layer by head")) << text.out;
  const Outcome json = look("heads", "--json --metric entropy");
  ASSERT_EQ(json.code, 0) << json.err;
  const Json d = parse_json(json.out);
  EXPECT_EQ(d.find("view")->string(), "heads");
  const Json::Array& heads = d.find("data")->find("heads")->array();
  ASSERT_FALSE(heads.empty());
  for (const Json& h : heads) {
    EXPECT_GE(h.find("entropy")->number(), 0);
    EXPECT_LE(h.find("first")->number(), 1 + 1e-6);
  }
  const Outcome files = look("heads", "--headvis '" + folder + "/headvis'");
  EXPECT_EQ(files.code, 0) << files.err;
  EXPECT_TRUE(std::filesystem::exists(folder + "/headvis/heads/L0H0.json"));
  EXPECT_EQ(look("heads", "--metric none").code, 2);
}

TEST_F(CliInspect, AttentionAsAPicture) {
  const Outcome o =
      look("attention", "--layer 0 --head 1 --rows 2:8 --keys 1:5 --out '" + folder + "/map.svg' --json");
  ASSERT_EQ(o.code, 0) << o.err;
  EXPECT_TRUE(std::filesystem::exists(folder + "/map.svg"));
  const Json d = parse_json(o.out);
  const Json& facts = *d.find("data");
  EXPECT_EQ(facts.find("head")->integer(), 1);
  EXPECT_EQ(facts.find("rows")->array()[1].integer(), 8);
  EXPECT_EQ(look("attention", "--rows 5").code, 2);
  EXPECT_EQ(look("attention", "--rows 5:50").code, 1);
  EXPECT_EQ(look("attention", "--head 99").code, 2);
}

// docs/inspect-json.md: model, tokens and numbers, shapes named; the page's parts under their own flag.
TEST_F(CliInspect, JsonIsData) {
  const Json lens = parse_json(look("lens", "--json --top 2").out);
  EXPECT_EQ(lens.find("view")->string(), "lens");
  EXPECT_EQ(lens.find("model")->string(), "toy");
  EXPECT_EQ(lens.find("text")->find("ids")->array().size(), 10u);
  EXPECT_EQ(lens.find("text")->find("tokens")->array()[1].string(), "<2>");
  const Json& data = *lens.find("data");
  const Json::Array& rows = data.find("top_ids")->array();
  EXPECT_EQ(rows[0].array().size(), 10u);
  EXPECT_EQ(rows[0].array()[0].array().size(), 2u);
  EXPECT_EQ(data.find("top_probabilities")->array()[0].array()[9].array().size(), 2u);
  EXPECT_EQ(data.find("shapes")->find("top_ids")->dump(0), "[\"row\", \"token\", \"rank\"]");
  const Json map = parse_json(look("attention", "--layer 0 --head 1 --json").out);
  const Json::Array& weights = map.find("data")->find("weights")->array();
  ASSERT_EQ(weights.size(), 10u);
  for (const Json& row : weights) {
    double sum = 0;
    for (const Json& w : row.array()) sum += w.number();
    EXPECT_NEAR(sum, 1, 1e-5);
  }
  const Json parts = parse_json(look("heads", "--parts").out);
  EXPECT_EQ(parts.find("parts")->array()[0].find("row_name")->string(), "layer");
  const Json list = parse_json(run("inspect tensors '" + folder + "/toy' --ids '1 2' --json -q").out);
  EXPECT_TRUE(list.find("data")->find("points")->array()[0].find("editable")->boolean());
}

TEST_F(CliInspect, FilesAreAskedForFirstAndSaidAfterwards) {
  const std::string quiet = " '" + folder + "/toy' --ids '1 2 3 4' -t 1 ";
  const Outcome picture = run("inspect attention" + quiet + "--scale linear --out '" + folder + "/a.png'");
  ASSERT_EQ(picture.code, 0) << picture.err;
  EXPECT_TRUE(has(picture.err, folder + "/a.png: layer ")) << picture.err;
  const Outcome page = run("inspect heads" + quiet + "--html '" + folder + "/a.html'");
  EXPECT_TRUE(has(page.err, folder + "/a.html: Attention heads of toy")) << page.err;
  // The model that is named does not exist: the file is looked at before it.
  for (const std::string& flags :
       {"heads --html '" + folder + "/none/a.html'", "attention --out '" + folder + "/none/a.png'",
        "report --html '" + folder + "/none/a.html'"}) {
    const std::size_t space = flags.find(' ');
    const Outcome o = run("inspect " + flags.substr(0, space) + " no-such-model" + flags.substr(space));
    EXPECT_EQ(o.code, 1) << flags;
    EXPECT_TRUE(has(o.err, "there is no folder")) << o.err;
  }
  EXPECT_EQ(look("attention", "--scale cubic").code, 2);
}

TEST_F(CliInspect, NumbersThatAreNoneAreSaid) {
  Toy broken = read_toy("llama3.1");
  for (ToyTensor& t : broken.tensors)
    if (t.name.find("layers.1.self_attn.o_proj") != std::string::npos) t.values[0] = std::nanf("");
  write_folder(broken, folder + "/broken");
  const std::string on = " '" + folder + "/broken' --ids '1 2 3 4' -t 1 ";
  const Outcome logits = run("logits" + on + "--out '" + folder + "/l.npy' --json -q");
  EXPECT_EQ(logits.code, 0) << logits.err;
  EXPECT_TRUE(has(logits.err, "values are NaN or infinite")) << logits.err;
  EXPECT_GT(parse_json(logits.out).find("not_finite")->integer(), 0);
  for (const char* view :
       {"heads", "lens", "norms", "attention --layer 2", "tensors --points resid_post.1"}) {
    const std::string words = view;
    const std::size_t space = std::min(words.find(' '), words.size());
    const Outcome o = run("inspect " + words.substr(0, space) + on + words.substr(space) + " -q --json");
    EXPECT_EQ(o.code, 0) << o.err;
    EXPECT_TRUE(has(o.err, "NaN or infinite")) << view << ": " << o.err;
  }
  EXPECT_EQ(look("heads").err, "");
}

TEST_F(CliInspect, SinksOfSeveralTexts) {
  const Outcome o = look("sinks", "--length 5 --first 2 --epsilon 0.2 --json");
  ASSERT_EQ(o.code, 0) << o.err;
  const Json d = parse_json(o.out);
  EXPECT_EQ(d.find("data")->find("texts")->integer(), 2);
  EXPECT_EQ(d.find("data")->find("tokens")->integer(), 5);
  EXPECT_EQ(d.find("data")->find("sink")->array().size(), 2u);
  EXPECT_EQ(look("sinks", "--epsilon 2").code, 2);
}

TEST_F(CliInspect, ViewsComeFirstAndAreKnown) {
  const Outcome unknown = run("inspect hads model");
  EXPECT_EQ(unknown.code, 2);
  EXPECT_TRUE(has(unknown.err, "heads")) << unknown.err;
  EXPECT_EQ(run("inspect --json").code, 2);
  EXPECT_EQ(run("inspect heads").code, 2);
  EXPECT_TRUE(has(run("inspect --help").out, "--epsilon"));
}

}  // namespace
}  // namespace rapt::test
