// SPDX-License-Identifier: Apache-2.0
// The views massive, outliers, gates, lens, norms, compare and positions as people call them: on toys whose
// values transformers computed.
#include <algorithm>

#include "rapt/base/json.h"
#include "rapt/load/model_folder.h"
#include "rapt/recipe/recipe_set.h"
#include "tests/cli.h"
#include "tests/model_tools.h"
#include "tests/toy_checkpoint.h"

namespace rapt::test {
namespace {

class CliViews : public Cli {
 protected:
  TempFolder folder;
  std::string toy(const std::string& name) {
    const std::string path = folder / name;
    if (!std::filesystem::exists(path)) write_folder(read_toy(name), path);
    return "'" + path + "'";
  }
  Json facts(const std::string& args) const {
    const Outcome o = run("inspect " + args + " --json -q -t 1");
    EXPECT_EQ(o.code, 0) << args << "\n" << o.err;
    return o.code == 0 ? *parse_json(o.out).find("data") : Json(Json::Object{});
  }
};

// Paragraphs are broken into lines wherever they end: words are looked for in one line.
bool says(std::string text, std::string_view words) {
  std::replace(text.begin(), text.end(), '\n', ' ');
  return has(text, words);
}

double at(const Json& grid, std::size_t row, std::size_t column) {
  return grid.array()[row].array()[column].number();
}

TEST_F(CliViews, ValuesAreThoseOfTransformers) {
  const std::string path = std::string(RAPT_SOURCE_DIR) + "/tests/golden/use/lens.json";
  const Json golden = parse_json(read_text_file(path), path);
  for (const Json& c : golden.find("cases")->array()) {
    const std::string name = c.find("toy")->string();
    if (!c.find("source")->array().empty()) continue;  // the program gives a decoder its start only
    std::string ids;
    for (const Json& id : c.find("tokens")->array()) ids += " " + std::to_string(id.integer());
    const std::string on = toy(name) + " --ids '" + ids + "'";
    const Json lens = facts("lens " + on), norms = facts("norms " + on), massive = facts("massive " + on);
    const Json::Array& rows = c.find("rows")->array();
    for (std::size_t r = 0; r < rows.size(); ++r)
      for (std::size_t t = 0; t < 9; ++t) {
        const auto want = [&](const char* key) { return rows[r].find(key)->array()[t].number(); };
        EXPECT_NEAR(at(*lens.find("entropy"), r, t), want("entropy"), 1e-4) << name;
        EXPECT_EQ(lens.find("top_ids")->array()[r].array()[t].array()[0].number(), want("top")) << name;
        EXPECT_EQ(at(*lens.find("rank"), r, t), want("rank")) << name;
        EXPECT_NEAR(at(*norms.find("stacks")->array()[0].find("residual"), r, t), want("length"), 1e-3)
            << name;
        EXPECT_NEAR(at(*massive.find("stacks")->array()[0].find("largest"), r, t), want("largest"), 1e-3)
            << name;
      }
  }
}

TEST_F(CliViews, TextSaysWhatItMeans) {
  const std::string ids = " --ids '3 5 7 5 7 9 11 4' -q -t 1";
  const Outcome massive =
      run("inspect massive " + toy("llama3.1") + ids + " --zero --mean --above 1 --ratio 2 --window 4");
  ASSERT_EQ(massive.code, 0) << massive.err;
  EXPECT_TRUE(says(massive.out, "Yes, there are massive activations")) << massive.out;
  EXPECT_TRUE(says(massive.out, "massive activations set to zero"));
  EXPECT_TRUE(says(massive.out, "in 2 windows of the text"));
  const Outcome none = run("inspect massive " + toy("t5") + ids);
  EXPECT_TRUE(says(none.out, "In the encoder stack: No, nothing meets the criterion")) << none.out;
  const Outcome outliers = run("inspect outliers " + toy("llama3.1") + ids + " --above 1.5");
  EXPECT_TRUE(says(outliers.out, "|x| of 1.5 or more in at least 25 % of the layers and 6 % of the rows"))
      << outliers.out << outliers.err;
  const Outcome bert = run("inspect lens " + toy("bert") + ids + " --top 2");
  EXPECT_TRUE(says(bert.out, "no norm (this model norms every layer's result")) << bert.out;
  EXPECT_TRUE(says(bert.out, "Token number 2 by probability"));
  const Outcome positions = run("inspect positions llama3.1 -q");
  EXPECT_TRUE(says(positions.out, "scaling llama3 by 8")) << positions.out << positions.err;
}

TEST_F(CliViews, AModelComparedWithItselfIsEqual) {
  const std::string ids = " --ids '3 5 7 5 7 9 11 4'";
  const Json same = facts("compare " + toy("llama3.1") + " " + toy("llama3.1") + ids);
  EXPECT_EQ(same.find("kl_mean")->number(), 0);
  EXPECT_EQ(same.find("top1_agreement")->number(), 1);
  EXPECT_EQ(same.find("layers")->array().size(), 4u);
  // Two layers: only the answers are compared.
  const Json other = facts("compare " + toy("llama3.1") + " " + toy("llama1") + ids);
  EXPECT_GT(other.find("kl_mean")->number(), 0.01);
  EXPECT_TRUE(other.find("layers")->array().empty());
}

// Without a target the decoder reads what it would answer itself: its last layer has every next token of
// that answer in front.
TEST_F(CliViews, AnEncoderDecoderIsSeenReadingItsOwnAnswer) {
  const Json lens = facts("lens " + toy("t5") + " --ids '3 5 7 9 4'");
  const Json::Array& ranks = lens.find("rank")->array();
  const Json::Array& last = ranks.back().array();
  ASSERT_GT(last.size(), 1u);
  for (std::size_t i = 0; i + 1 < last.size(); ++i) EXPECT_EQ(last[i].integer(), 1) << i;
  EXPECT_EQ(last.back().integer(), 0);  // nothing stands behind the last token
  EXPECT_TRUE(
      says(run("inspect norms " + toy("t5") + " --ids '3 5 7 9 4' -q").out, "5 tokens of the source"));
}

// All logits alike: the answer is the first token of the vocabulary over and over, and every token is as
// improbable as the vocabulary is large.
TEST_F(CliViews, EditsReachAnswersAndRefuseWhatNeedsOnePass) {
  const std::string on = "run " + toy("gpt2") + " --ids '3 5 7' --temp 0 -n 4 --ignore-eos --json -q -t 1";
  const auto ids = [&](const std::string& flags) {
    return parse_json(run(on + flags).out).find("samples")->array()[0].find("ids")->dump(0);
  };
  EXPECT_EQ(ids(" --edit logits:scale=0"), "[0, 0, 0, 0]");
  EXPECT_NE(ids(""), "[0, 0, 0, 0]");
  // A position is one of the text, in whatever pieces it is read; the last of a text that goes on is none.
  EXPECT_EQ(ids(" --edit resid_post.0@p2:scale=9"), ids(" --edit resid_post.0@p2:scale=9 --chunk 1"));
  EXPECT_NE(ids(" --edit resid_post.0@p2:scale=9"), ids(" --edit resid_post.0:scale=9"));
  const Outcome place = run(on + " --edit L0H0@p-1:zero");
  EXPECT_EQ(place.code, 2);
  EXPECT_TRUE(says(place.err, "rapt inspect does it on one text")) << place.err;
  const Outcome loss = run("eval " + toy("gpt2") + " --loss x --edit L0H0:zero");
  EXPECT_EQ(loss.code, 2);
  EXPECT_TRUE(says(loss.err, "--edit belongs to --perplexity")) << loss.err;
}

// Cross-attention looks at another text: there is no token itself and none before it.
TEST_F(CliViews, CrossAttentionHasNoTokenItself) {
  const Outcome o = run("inspect attention " + toy("t5") + " --cross --ids '3 5 7 9 4' -q -t 1");
  EXPECT_EQ(o.code, 0) << o.err;
  EXPECT_TRUE(says(o.out, "cross-attention, layer") && !says(o.out, "itself") &&
              !says(o.out, "the one before"))
      << o.out;
  const Json heads = facts("heads " + toy("t5") + " --ids '3 5 7 9 4'");
  for (const Json& h : heads.find("heads")->array()) {
    EXPECT_EQ(h.find("self")->is_null(), h.find("cross")->boolean());
    EXPECT_TRUE(h.find("sink")->is_number());
  }
}

// The attention of a recurrent decoder (Bahdanau et al. 2015): one head, to the source.
TEST_F(CliViews, RecurrentDecodersShowTheirAttention) {
  Model model(with_settings(preset("bahdanau"),
                            std::vector<std::string>{"width=16", "vocab=31", "encoder.recurrent.width=12",
                                                     "decoder.recurrent.width=12"}));
  randomise(model, 3);
  write_model_folder(model, {.decoder_start = 2}, folder / "bahdanau", false);
  const std::string on = "'" + folder / "bahdanau" + "' --ids '3 5 7 9'";
  const Json map = facts("attention " + on + " --cross");
  const Json::Array& rows = map.find("weights")->array();
  ASSERT_GT(rows.size(), 0u);
  for (const Json& row : rows) {
    ASSERT_EQ(row.array().size(), 4u);
    double sum = 0;
    for (const Json& w : row.array()) sum += w.number();
    EXPECT_NEAR(sum, 1, 1e-5);
  }
  for (const char* view : {"heads ", "report "}) {
    const Outcome o = run(std::string("inspect ") + view + on + " -q -t 1" +
                          (view[0] == 'r' ? " --html '" + folder / "r.html" + "'" : ""));
    EXPECT_EQ(o.code, 1) << o.err;
    EXPECT_TRUE(says(o.err, "rapt translate --alignment")) << o.err;
  }
}

TEST_F(CliViews, SaysWhyNot) {
  const std::string ids = " --ids '3 5 7' -q -t 1";
  const Outcome gates = run("inspect gates " + toy("gpt2") + ids);
  EXPECT_EQ(gates.code, 1);
  EXPECT_TRUE(says(gates.err, "has no gates")) << gates.err;
  const Outcome lens = run("inspect lens " + toy("minilm") + ids);
  EXPECT_EQ(lens.code, 1);
  EXPECT_TRUE(says(lens.err, "no output matrix")) << lens.err;
  const Outcome layer = run("inspect massive " + toy("gpt2") + ids + " --layer 1");
  EXPECT_EQ(layer.code, 2);
  EXPECT_TRUE(says(layer.err, "belong to --zero or --mean")) << layer.err;
  const Outcome zero = run("inspect massive " + toy("bert") + ids + " --zero");
  EXPECT_EQ(zero.code, 1);
  EXPECT_TRUE(says(zero.err, "does not predict the next token")) << zero.err;
  const Outcome target = run("inspect norms " + toy("gpt2") + ids + " --target b");
  EXPECT_EQ(target.code, 2);
  EXPECT_TRUE(says(target.err, "has no encoder")) << target.err;
}

}  // namespace
}  // namespace rapt::test
