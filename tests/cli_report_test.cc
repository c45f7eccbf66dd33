// SPDX-License-Identifier: Apache-2.0
// rapt inspect report as people use it: one file per run, from models of several kinds. What the page does:
// tests/browser.
#include <gtest/gtest.h>

#include "rapt/base/json.h"
#include "tests/cli.h"
#include "tests/toy_checkpoint.h"

namespace rapt::test {
namespace {

class CliReport : public Cli {
 protected:
  TempFolder folder;

  // The page's names and texts.
  Json report(const std::string& toy, const std::string& flags) {
    write_folder(read_toy(toy), folder / toy);
    const std::string html = folder / (toy + ".html");
    const Outcome o = run("inspect report '" + folder / toy + "' --ids '3 5 7 5 7 9 11' --html '" + html +
                          "' -q -t 1 " + flags);
    EXPECT_EQ(o.code, 0) << o.err;
    std::stringstream text;
    text << std::ifstream(html, std::ios::binary).rdbuf();
    const std::string page = text.str(), begin = "id=\"data\">";
    const std::size_t at = page.find(begin) + begin.size();
    return parse_json(page.substr(at, page.find("</script>", at) - at));
  }
  static std::vector<std::string> keys(const Json& list) {
    std::vector<std::string> out;
    for (const Json& one : list.array()) out.push_back(one.find("key")->string());
    return out;
  }
};

TEST_F(CliReport, OnePageOfADecoder) {
  const Json page = report("smollm2", "");
  const auto layers = static_cast<std::size_t>(page.find("layers")->integer()),
             heads = static_cast<std::size_t>(page.find("heads")->integer());
  EXPECT_EQ(page.find("title")->string(), "smollm2");
  EXPECT_EQ(page.find("ids")->array().size(), 7u);
  EXPECT_EQ(page.find("maps")->array().size(), layers * heads);
  EXPECT_EQ(page.find("maps")->array()[0].find("rows")->integer(), 7);  // a short text is not pooled
  EXPECT_EQ(page.find("strongest")->array().size(), layers * heads);
  EXPECT_EQ(page.find("labels")->array().size(), layers * heads);
  EXPECT_EQ(keys(*page.find("metrics"))[0], "first");
  EXPECT_EQ(keys(*page.find("grids")), (std::vector<std::string>{"lens", "massive", "residual", "attn_out",
                                                                 "ffn_out", "lens_truth", "lens_entropy"}));
  EXPECT_EQ(page.find("grids")->array()[0].find("rows")->array().size(), layers + 1);
  EXPECT_EQ(page.find("documents")->find("en")->array().size(), 3u);

  // A file that is there is not lost, and nothing is computed before that is said.
  const std::string again = "inspect report '" + folder / "smollm2" + "' --ids '3 5' --html '" +
                            folder / "smollm2.html" + "' -q -t 1";
  const Outcome refused = run(again);
  EXPECT_EQ(refused.code, 1);
  EXPECT_TRUE(has(refused.err, "--force")) << refused.err;
  const Outcome forced = run(again + " --force --json");
  ASSERT_EQ(forced.code, 0) << forced.err;
  const Json facts = *parse_json(forced.out).find("data");
  EXPECT_EQ(facts.find("bytes")->integer(),
            static_cast<std::int64_t>(std::filesystem::file_size(folder / "smollm2.html")));
}

TEST_F(CliReport, EncodersAndPairsOfStacks) {
  // No vocabulary, no lens.
  EXPECT_EQ(keys(*report("minilm", "--pixels 4 --keys 2").find("grids"))[0], "massive");
  const Json t5 = report("t5", "--no-lens");
  EXPECT_EQ(t5.find("tokens")->array().size(), 7u);  // of the source: the encoder is shown
  EXPECT_TRUE(has(t5.find("model")->string(), "encoder"));
  const Json decoder = report("t5", "--stack decoder --force");
  EXPECT_TRUE(has(decoder.find("model")->string(), "decoder"));
  EXPECT_EQ(keys(*decoder.find("grids"))[0], "lens");
}

}  // namespace
}  // namespace rapt::test
