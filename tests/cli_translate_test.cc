// SPDX-License-Identifier: Apache-2.0
// rapt translate and the figures of rapt eval, on the toy T5 of tests/golden/families with a vocabulary of
// letters beside it.
#include <gtest/gtest.h>

#include <cmath>

#include "rapt/load/model_folder.h"
#include "rapt/report/picture.h"
#include "rapt/use/metrics.h"
#include "rapt/use/translate.h"
#include "tests/cli.h"
#include "tests/memory_checkpoint.h"
#include "tests/toy_checkpoint.h"

namespace rapt::test {
namespace {

// Byte-level letters: 0 <pad>, 1 </s>, 2 <unk>, 3 a space, then a … z, some signs, and fillers up to the
// toy's 61.
std::string letters_json() {
  Json vocab = Json::Object{};
  Dim next = 0;
  for (const char* t : {"<pad>", "</s>", "<unk>", "\xC4\xA0"}) vocab.set(t, next++);
  for (char c = 'a'; c <= 'z'; ++c) vocab.set(std::string(1, c), next++);
  for (const char* t : {".", ",", "!", "?", "'", "-"}) vocab.set(t, next++);
  while (next < 61) {
    const Dim n = next++;
    vocab.set(concat("w", n), n);
  }
  const std::string special =
      R"("single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": true)";
  return concat(
      R"({ "version": "1.0", "truncation": null, "padding": null, "added_tokens": [)",
      R"({"id": 0, "content": "<pad>", )", special, R"(}, {"id": 1, "content": "</s>", )", special,
      R"(}, {"id": 2, "content": "<unk>", )", special, "}],",
      R"( "normalizer": null, "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true},)",
      R"( "post_processor": {"type": "TemplateProcessing", "single": [{"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": "</s>", "type_id": 0}}],)",
      R"( "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 0}}], "special_tokens": {"</s>": {"id": "</s>", "ids": [1], "tokens": ["</s>"]}}},)",
      R"( "decoder": {"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true},)",
      R"( "model": {"type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null, "end_of_word_suffix": null, "fuse_unk": false,)",
      R"( "byte_fallback": false, "ignore_merges": false, "merges": [], "vocab": )", vocab.dump(0), "}}");
}

class CliTranslate : public Cli {
 protected:
  void SetUp() override {
    Cli::SetUp();
    if (IsSkipped()) return;
    write_folder(read_toy("t5"), folder / "t5");
    put_file(folder / "t5/tokenizer.json", letters_json());
    put_file(
        folder / "t5/tokenizer_config.json",
        R"({"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>"})");
    toy = "'" + (folder / "t5") + "'";
  }
  std::string path(const std::string& name) const { return folder / name; }
  std::string quoted(const std::string& name) const { return "'" + path(name) + "'"; }
  Outcome quiet(const std::string& args) const { return run(args + " </dev/null"); }

  TempFolder folder;
  std::string toy;
};

TEST_F(CliTranslate, LinesComeBackAsLines) {
  const Outcome one = quiet("translate " + toy + " 'a dog.' --max-tokens 12");
  ASSERT_EQ(one.code, 0) << one.err;
  EXPECT_EQ(std::count(one.out.begin(), one.out.end(), '\n'), 1);
  EXPECT_GT(one.out.size(), 3u);
  const std::string tokens = " --max-tokens 12";
  const Outcome two = quiet("translate " + toy + " 'two cats' --max-tokens 12"),
                three = quiet("translate " + toy + " 'three, or four' --max-tokens 12");
  put_file(path("in"), "a dog.\n\ntwo cats\n  \nthree, or four\na dog.\n");
  const std::string want = one.out + "\n" + two.out + "\n" + three.out + one.out;
  for (const char* flags : {"", " --batch 1", " --batch 100 -t 2"}) {
    EXPECT_EQ(quiet("translate " + toy + " --in " + quoted("in") + tokens + flags).out, want) << flags;
    EXPECT_EQ(run("translate " + toy + tokens + flags, "cat " + quoted("in") + " |").out, want) << flags;
  }
  EXPECT_EQ(run("translate " + toy + " -" + tokens, "cat " + quoted("in") + " |").out, want);
  EXPECT_EQ(quiet("translate " + toy + " 'a dog.' '' 'two cats'" + tokens).out, one.out + "\n" + two.out);
  EXPECT_EQ(quiet("translate " + toy + " --prefix 'a ' dog." + tokens).out, one.out);
  EXPECT_NE(quiet("translate " + toy + " 'a dog.' --beams 1" + tokens).out, one.out);

  const Outcome out =
      quiet("translate " + toy + " --in " + quoted("in") + " --out " + quoted("out") + tokens);
  EXPECT_EQ(out.code, 0) << out.err;
  EXPECT_EQ(out.out, "");
  EXPECT_EQ(read_text_file(path("out")), want);
  const Outcome again =
      quiet("translate " + toy + " --in " + quoted("in") + " --out " + quoted("out") + tokens);
  EXPECT_EQ(again.code, 1);
  EXPECT_TRUE(has(again.err, "--force")) << again.err;
  EXPECT_EQ(
      quiet("translate " + toy + " --in " + quoted("in") + " --force --out " + quoted("out") + tokens).code,
      0);
}

TEST_F(CliTranslate, JsonTellsScoresAndSeveralAnswers) {
  const Outcome o = quiet("translate " + toy + " 'a dog.' '' --json --n-best 3 --max-tokens 10");
  ASSERT_EQ(o.code, 0) << o.err;
  const std::vector<std::string> lines = text_lines(o.out);
  ASSERT_EQ(lines.size(), 2u);
  const Json j = parse_json(lines[0]);
  EXPECT_EQ(j.find("source")->string(), "a dog.");
  const auto& answers = j.find("answers")->array();
  ASSERT_EQ(answers.size(), 3u);
  EXPECT_EQ(j.find("text")->string(), answers[0].find("text")->string());
  EXPECT_GE(answers[0].find("score")->number(), answers[2].find("score")->number());
  EXPECT_EQ(parse_json(lines[1]).find("text")->string(), "");
  // The two forms of the penalty rank by other scores.
  const Json g = parse_json(
      quiet("translate " + toy + " 'a dog.' --json --max-tokens 10 --length-penalty 2 --penalty-form gnmt")
          .out);
  const Json p = parse_json(
      quiet("translate " + toy + " 'a dog.' --json --max-tokens 10 --length-penalty 2 --penalty-form power")
          .out);
  EXPECT_NE(g.find("answers")->array()[0].find("score")->number(),
            p.find("answers")->array()[0].find("score")->number());
}

TEST_F(CliTranslate, AlignmentsAsPicturesTextAndJson) {
  const std::string ask = "translate " + toy + " 'a dog.' --max-tokens 8";
  const Outcome text = quiet(ask + " --alignment -");
  ASSERT_EQ(text.code, 0) << text.err;
  EXPECT_TRUE(has(text.out, "1 a   2 dog   3 .   4 </s>\n")) << text.out;
  EXPECT_TRUE(text.out.starts_with(quiet(ask).out));
  const Outcome svg = quiet(ask + " --alignment " + quoted("a.svg"));
  EXPECT_EQ(svg.code, 0) << svg.err;
  EXPECT_EQ(svg.out, quiet(ask).out);
  EXPECT_TRUE(has(svg.err, "a.svg: ")) << svg.err;
  EXPECT_TRUE(has(read_text_file(path("a.svg")), ">dog</text>"));
  EXPECT_EQ(quiet(ask + " --alignment " + quoted("a.png") + " -q").code, 0);
  EXPECT_EQ(MappedFile(path("a.png")).bytes()[1], std::byte{'P'});
  EXPECT_EQ(quiet("translate " + toy + " 'a dog.' 'x' -n 5 -q --alignment " + quoted("b.txt")).code, 0);
  EXPECT_TRUE(has(read_text_file(path("b-1.txt")), "2 dog"));
  EXPECT_TRUE(has(read_text_file(path("b-2.txt")), "1 x   2 </s>\n"));
  const Json j = parse_json(quiet(ask + " --json --alignment - --alignment-layer all").out);
  const Json& a = *j.find("alignment");
  ASSERT_EQ(a.find("source")->array().size(), 4u);
  for (const Json& row : a.find("weights")->array()) {
    double sum = 0;
    for (const Json& x : row.array()) sum += x.number();
    EXPECT_NEAR(sum, 1, 1e-4);
  }
  EXPECT_EQ(parse_json(quiet(ask + " --json --alignment - --alignment-tokens").out)
                .find("alignment")
                ->find("source")
                ->array()
                .size(),
            7u);
  EXPECT_NE(quiet(ask + " --json --alignment - --alignment-layer 0").out,
            quiet(ask + " --json --alignment - --alignment-layer -1").out);
}

TEST_F(CliTranslate, MistakesAreTold) {
  put_file(path("a"), "x\n");
  auto fails = [&](const std::string& args, int code, const char* words) {
    const Outcome o = quiet(args);
    EXPECT_EQ(o.code, code) << args;
    EXPECT_TRUE(has(o.err, words)) << args << ": " << o.err;
  };
  fails("translate", 2, "wants a model, and texts; got nothing");
  fails("translate " + toy + " x --beams 0", 2, "--beams");
  fails("translate " + toy + " x --penalty-form gmnt", 2, "did you mean 'gnmt'");
  fails("translate " + toy + " x --alignment a.gif", 2, ".svg, .png or .txt");
  fails("translate " + toy + " x --alignment-head 1", 2, "give that too");
  fails("translate " + toy + " x -n 3 --alignment - --alignment-head 99", 2, "has 4 heads");
  fails("translate " + toy + " x --in " + quoted("a"), 2, "leave the word");
  fails("translate " + toy + " x --n-best 9", 2, "9 of 4 beams");
  fails("translate " + toy + " --in " + quoted("missing"), 1, "missing");
  fails("eval " + toy, 2, "what to measure?");
  fails("eval " + toy + " --loss a --perplexity b", 2, "one measure at a time");
  fails("eval --hypothesis " + quoted("a"), 2, "--reference");
  fails("eval " + toy + " --translate " + quoted("a"), 2, "--reference");
  fails("eval " + toy + " --perplexity " + quoted("a"), 1, "use a decoder");
  fails("eval " + toy + " --classify x=" + quoted("a"), 1, "no classes");
}

TEST_F(CliTranslate, BleuOfFilesAndOfTheModel) {
  put_file(path("ref"), "the dog runs .\nTwo cats sleep in the sun, quietly.\nhello\n");
  put_file(path("hyp"), "the dog runs .\nTwo cats slept in the sun quietly.\nhallo\n");
  const Outcome o = quiet("eval --hypothesis " + quoted("hyp") + " --reference " + quoted("ref") + " --json");
  ASSERT_EQ(o.code, 0) << o.err;
  const Json j = parse_json(o.out);
  const std::vector<std::string> h = text_lines(read_text_file(path("hyp"))),
                                 r = text_lines(read_text_file(path("ref")));
  EXPECT_NEAR(j.find("bleu")->number(), bleu(h, r).score, 1e-9);
  EXPECT_NEAR(j.find("chrf")->number(), chrf(h, r), 1e-9);
  EXPECT_GT(j.find("bleu")->number(), 20);
  EXPECT_EQ(j.find("lines")->integer(), 3);
  const Outcome text = quiet("eval --hypothesis " + quoted("ref") + " --reference " + quoted("ref"));
  EXPECT_TRUE(text.out.starts_with("BLEU 100.00   chrF2 100.00  (3 lines")) << text.out;
  put_file(path("short"), "a\n");
  EXPECT_TRUE(has(quiet("eval --hypothesis " + quoted("short") + " --reference " + quoted("ref")).err,
                  "has 1 lines"));

  // What the model says is a perfect translation of what it says.
  put_file(path("src"), "a dog.\n\ntwo cats\n");
  const std::string flags = " --beams 2 --max-tokens 10";
  EXPECT_EQ(quiet("translate " + toy + " --in " + quoted("src") + " --out " + quoted("said") + flags).code,
            0);
  const Outcome self = quiet("eval " + toy + " --translate " + quoted("src") + " " + quoted("said") +
                             " --json --out " + quoted("kept") + flags);
  ASSERT_EQ(self.code, 0) << self.err;
  EXPECT_NEAR(parse_json(self.out).find("chrf")->number(), 100, 1e-6);
  EXPECT_EQ(read_text_file(path("kept")), read_text_file(path("said")));
  EXPECT_EQ(parse_json(quiet("eval " + toy + " --source " + quoted("src") + " --reference " + quoted("said") +
                             " --json" + flags)
                           .out)
                .find("bleu")
                ->number(),
            parse_json(self.out).find("bleu")->number());
}

TEST_F(CliTranslate, LossOfPairs) {
  put_file(path("a.src"), "a dog.\nb\n");
  put_file(path("a.ref"), "cats\nno, no\n");
  const Outcome o = quiet("eval " + toy + " --loss '" + path("a.src") + "," + path("a.ref") + "' --json");
  ASSERT_EQ(o.code, 0) << o.err;
  const Json j = parse_json(o.out);
  EXPECT_EQ(j.find("objective")->string(), "translation");
  EXPECT_EQ(j.find("counted")->integer(), 5 + 7);
  // The same by hand: logits of the whole target, one pair at a time.
  Device device({.threads = 1});
  const Checkpoint c = open_checkpoint(path("t5"), {.device = &device});
  double sum = 0, right = 0;
  const std::string pairs[][2] = {{"a dog.", "cats"}, {"b", "no, no"}};
  for (const auto& [source, target] : pairs) {
    const std::vector<std::int32_t> from = source_ids(*c.tokenizer, source);
    std::vector<std::int32_t> want = c.tokenizer->encode(target), given = {c.decoder_start};
    given.insert(given.end(), want.begin(), want.end());
    want.push_back(1);
    rapt::Run run(device);
    Batch batch{.tokens = given, .sequences = {{.first = 0, .count = static_cast<Dim>(given.size())}}};
    Batch source_batch{.tokens = from, .sequences = {{.first = 0, .count = static_cast<Dim>(from.size())}}};
    const Tensor logits = forward(run, *c.model, batch, &source_batch);
    for (std::size_t t = 0; t < want.size(); ++t) {
      double whole = 0, top = -1e30;
      Dim best = 0;
      for (Dim v = 0; v < 61; ++v) {
        const double x = logits.at(static_cast<Dim>(t) * 61 + v);
        whole += std::exp(x);
        if (x > top) top = x, best = v;
      }
      sum += std::log(whole) - logits.at(static_cast<Dim>(t) * 61 + want[t]);
      right += best == want[t];
    }
  }
  EXPECT_NEAR(j.find("loss")->number(), sum / 12, 1e-5);
  EXPECT_NEAR(j.find("accuracy")->number(), right / 12, 1e-9);
  EXPECT_NEAR(j.find("perplexity")->number(), std::exp(sum / 12), 1e-3);
}

// The last thing a pass gives, row by row: loss of a target and the best id.
struct Judged {
  double loss = 0, right = 0;
  void add(const Tensor& logits, Dim row, std::int32_t target) {
    double whole = 0, top = -1e30;
    Dim best = 0;
    const Dim V = logits.last();
    for (Dim v = 0; v < V; ++v) {
      const double x = logits.at(row * V + v);
      whole += std::exp(x);
      if (x > top) top = x, best = v;
    }
    loss += std::log(whole) - logits.at(row * V + target);
    right += best == target;
  }
};

TEST_F(CliTranslate, LossOfADecoder) {
  write_folder(read_toy("gpt2"), folder / "gpt2");
  put_file(folder / "gpt2/tokenizer.json", letters_json());
  std::string text;
  for (int i = 0; i < 60; ++i)
    text +=
        concat(i % 3 == 0 ? "the dog " : "a cat, ", static_cast<char>('a' + i % 26), i % 7 == 0 ? ". " : " ");
  put_file(path("text"), text);
  const Outcome o = quiet("eval " + quoted("gpt2") + " --loss " + quoted("text") + " --ctx-size 32 --json");
  ASSERT_EQ(o.code, 0) << o.err;
  const Json j = parse_json(o.out);
  Device device({.threads = 1});
  const Checkpoint c = open_checkpoint(path("gpt2"), {.device = &device});
  const std::vector<std::int32_t> ids = c.tokenizer->encode(text);
  ASSERT_EQ(ids.size(), text.size());
  Judged want;
  for (std::size_t at = 0; at + 1 < ids.size(); at += 32) {
    const std::size_t n = std::min<std::size_t>(32, ids.size() - 1 - at);
    rapt::Run run(device);
    Batch batch{.tokens = std::span(ids).subspan(at, n),
                .sequences = {{.first = 0, .count = static_cast<Dim>(n)}}};
    const Tensor logits = forward(run, *c.model, batch);
    for (std::size_t t = 0; t < n; ++t) want.add(logits, static_cast<Dim>(t), ids[at + t + 1]);
  }
  const double n = static_cast<double>(ids.size() - 1);
  EXPECT_EQ(j.find("counted")->integer(), static_cast<Dim>(ids.size()) - 1);
  EXPECT_NEAR(j.find("loss")->number(), want.loss / n, 1e-5);
  EXPECT_NEAR(j.find("accuracy")->number(), want.right / n, 1e-9);
  EXPECT_EQ(j.find("objective")->string(), "causal");
  EXPECT_TRUE(quiet("eval " + quoted("gpt2") + " --accuracy " + quoted("text")).out.starts_with("loss "));
  EXPECT_TRUE(has(quiet("eval " + quoted("gpt2") + " --loss " + quoted("text") + " --ctx-size 500").err,
                  "learned positions for 128"));
}

std::string fixed_text(double x) {
  char text[32];
  std::snprintf(text, sizeof text, "%.4f", x);
  return text;
}

TEST_F(CliTranslate, HiddenTokensOfAnEncoder) {
  write_folder(read_toy("bert"), folder / "bert");
  std::string json = letters_json();
  json.replace(json.find("<unk>"), 5, "<msk>");  // 2 hides
  json.replace(json.find("\"<unk>\""), 7, "\"<msk>\"");
  put_file(folder / "bert/tokenizer.json", json);
  put_file(
      folder / "bert/tokenizer_config.json",
      R"({"tokenizer_class": "PreTrainedTokenizerFast", "mask_token": "<msk>", "pad_token": "<pad>", "eos_token": "</s>"})");
  std::string text;
  for (int i = 0; i < 200; ++i) text += "the cat sees a dog ";
  put_file(path("text"), text);
  auto judged = [&](const std::string& more) {
    const Outcome o = quiet("eval " + quoted("bert") + " --loss " + quoted("text") + " --json" + more);
    EXPECT_EQ(o.code, 0) << o.err;
    return parse_json(o.out);
  };
  const Json a = judged(""), b = judged(" --seed 0"), other = judged(" --seed 1");
  EXPECT_EQ(a.find("objective")->string(), "masked");
  EXPECT_EQ(a.find("loss")->number(), b.find("loss")->number());
  EXPECT_NE(a.find("loss")->number(), other.find("loss")->number());
  const double share = a.find("counted")->number() / static_cast<double>(text.size());
  EXPECT_NEAR(share, 0.15, 0.02);
  // The commonest of "the cat sees a dog " is the space: 5 of 19.
  EXPECT_NEAR(a.find("commonest")->number(), 5.0 / 19, 0.04);
  EXPECT_GT(a.find("loss")->number(), 1);

  // rapt fill: words for the masks, from the command line, a file and standard input alike.
  const Outcome filled =
      quiet("fill " + quoted("bert") + " 'the <msk>at sees' 'a<msk><msk>' --top-k 3 --json");
  ASSERT_EQ(filled.code, 0) << filled.err;
  std::istringstream lines(filled.out);
  std::string first, second;
  ASSERT_TRUE(std::getline(lines, first) && std::getline(lines, second));
  const Json one = parse_json(first), two = parse_json(second);
  ASSERT_EQ(one.find("masks")->array().size(), 1u);
  EXPECT_EQ(two.find("masks")->array().size(), 2u);
  const Json& mask = one.find("masks")->array()[0];
  EXPECT_EQ(mask.find("position")->integer(), 4);
  ASSERT_EQ(mask.find("guesses")->array().size(), 3u);
  const Json& best = mask.find("guesses")->array()[0];
  EXPECT_GE(best.find("probability")->number(),
            mask.find("guesses")->array()[1].find("probability")->number());
  put_file(path("masked"), "the <msk>at sees\na<msk><msk>\n");
  EXPECT_EQ(quiet("fill " + quoted("bert") + " --in " + quoted("masked") + " -k 3 --json").out, filled.out);
  EXPECT_EQ(run("fill " + quoted("bert") + " - -k 3 --json", "cat " + quoted("masked") + " |").out,
            filled.out);
  const Outcome plain = quiet("fill " + quoted("bert") + " 'the <msk>at sees' -k 1");
  EXPECT_EQ(plain.out, "  " + fixed_text(best.find("probability")->number()) + "  " +
                           best.find("token")->string() + "\n");
  EXPECT_EQ(quiet("fill " + quoted("bert") + " 'no mask'").code, 2);
  EXPECT_TRUE(has(quiet("run " + quoted("bert") + " 'the <msk>'").err, "use `rapt fill`"));
}

TEST_F(CliTranslate, ClassesOfLines) {
  Recipe r = parse_recipe(R"({ "preset": "bert", "width": 24, "context": 12, "encoder": { "layers": 1 } })");
  r.vocab = 61;
  r.head = {.kind = HeadRecipe::Kind::classes, .classes = 3};
  for (PartRecipe& p : r.encoder->kinds.at("L").parts)
    if (AttnRecipe* a = p.self()) a->heads = 3;
  Model model(resolve(r));
  randomise(model, 3);
  const TokenizerFiles files{
      letters_json(),
      R"({"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "</s>", "pad_token": "<pad>"})"};
  write_model_folder(model,
                     {.tokenizer = std::make_shared<TokenizerFiles>(files),
                      .eos = 1,
                      .pad = 0,
                      .class_names = {"red", "green", "blue"}},
                     path("classes"), false);
  const std::vector<std::string> green = {"a dog", "two cats", "the sun is far too long a line", "x"},
                                 blue = {"no", "yes, yes", "why?"};
  std::string text;
  for (const std::string& s : green) text += s + "\n\n";
  put_file(path("green"), text);
  text.clear();
  for (const std::string& s : blue) text += s + "\n";
  put_file(path("blue"), text);
  const Outcome o = quiet("eval " + quoted("classes") + " --classify 'green=" + path("green") +
                          ",blue=" + path("blue") + "' --json");
  ASSERT_EQ(o.code, 0) << o.err;
  EXPECT_TRUE(has(o.err, "1 of 7 lines are longer")) << o.err;
  const Json j = parse_json(o.out);
  Device device({.threads = 1});
  const Checkpoint c = open_checkpoint(path("classes"), {.device = &device});
  Judged want, of_green;
  for (const auto* lines : {&green, &blue})
    for (const std::string& line : *lines) {
      std::vector<std::int32_t> ids = c.tokenizer->encode(line);
      if (ids.size() > 11) ids.resize(11);
      ids.push_back(1);
      rapt::Run run(device);
      Batch batch{.tokens = ids, .sequences = {{.first = 0, .count = static_cast<Dim>(ids.size())}}};
      const Tensor logits = forward(run, *c.model, batch);
      want.add(logits, 0, lines == &green ? 1 : 2);
      if (lines == &green) of_green.add(logits, 0, 1);
    }
  EXPECT_EQ(j.find("counted")->integer(), 7);

  // rapt classify: one line per text; its best class is what the accuracy above counted.
  const Outcome read = quiet("classify " + quoted("classes") + " --in " + quoted("green"));
  ASSERT_EQ(read.code, 0) << read.err;
  EXPECT_TRUE(has(read.err, "1 of 8 texts are longer")) << read.err;
  std::istringstream rows(read.out);
  Dim right = 0, line = 0;
  for (std::string row; std::getline(rows, row); ++line) {
    right += line % 2 == 0 && row.starts_with("green ");  // every other line is empty
    EXPECT_TRUE(has(row, "red 0.") && has(row, "green 0.") && has(row, "blue 0.")) << row;
  }
  EXPECT_EQ(line, 8);
  const double share = j.find("labels")->array()[0].find("accuracy")->number();
  EXPECT_EQ(static_cast<double>(right), 4 * share);
  const Json single = parse_json(quiet("classify " + quoted("classes") + " 'a dog' --json").out);
  ASSERT_EQ(single.find("classes")->array().size(), 3u);
  double sum = 0;
  for (const Json& k : single.find("classes")->array()) sum += k.find("probability")->number();
  EXPECT_NEAR(sum, 1, 1e-5);
  EXPECT_TRUE(has(quiet("run " + quoted("classes") + " 'a dog'").err, "use `rapt classify`"));
  EXPECT_NEAR(j.find("accuracy")->number(), want.right / 7, 1e-9);
  EXPECT_NEAR(j.find("loss")->number(), want.loss / 7, 1e-5);
  EXPECT_NEAR(j.find("labels")->array()[0].find("accuracy")->number(), of_green.right / 4, 1e-9);
  const Outcome plain = quiet("eval " + quoted("classes") + " -q --classify green=" + quoted("green") +
                              " --classify blue=" + quoted("blue"));
  EXPECT_TRUE(has(plain.out, "(7 lines)")) << plain.out << plain.err;
  const Outcome wrong = quiet("eval " + quoted("classes") + " --classify gren=" + quoted("green"));
  EXPECT_EQ(wrong.code, 2);
  EXPECT_TRUE(has(wrong.err, "did you mean 'green'")) << wrong.err;
}

}  // namespace
}  // namespace rapt::test
