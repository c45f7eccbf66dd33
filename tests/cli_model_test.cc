// SPDX-License-Identifier: Apache-2.0
// The verbs that open models, on a toy checkpoint that the test writes in llama2.c's format.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <termios.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstring>

#include "rapt/base/json.h"
#include "rapt/base/rng.h"
#include "rapt/base/text.h"
#include "tests/adapter_tools.h"
#include "tests/cli.h"
#include "tests/tools.h"

namespace rapt::test {
namespace {

namespace fs = std::filesystem;

template <class T>
void put(std::ofstream& out, T value) {
  out.write(reinterpret_cast<const char*>(&value), sizeof value);
}

constexpr int kVocab = 320, kContext = 128;

// Header of seven integers, then f32 weights in llama2.c's order; beside it tokenizer.bin: longest token,
// then score, length, bytes each. Ids: 0 <unk>, 1 <s>, 2 </s>, 3 … 258 the bytes, then a space, letters and
// a few words.
void write_toy(const fs::path& folder, const std::string& name = "toy.bin") {
  const int dim = 32, hidden = 48, layers = 2, heads = 4, kv = 2, head = dim / heads;
  std::ofstream out(folder / name, std::ios::binary);
  for (int x : {dim, hidden, layers, heads, kv, kVocab, kContext}) put(out, x);
  std::uint64_t at = 0;
  auto weights = [&](int n, double spread, double mean = 0) {
    for (int i = 0; i < n; ++i) put(out, static_cast<float>(mean + spread * random_normal(17, at++)));
  };
  weights(kVocab * dim, 1.0);
  weights(layers * dim, 0.2, 1);
  weights(layers * dim * dim, 0.25);
  weights(layers * dim * kv * head, 0.25);
  weights(layers * dim * kv * head, 0.25);
  weights(layers * dim * dim, 0.25);
  weights(layers * dim, 0.2, 1);
  weights(layers * dim * hidden, 0.2);
  weights(layers * dim * hidden, 0.2);
  weights(layers * dim * hidden, 0.2);
  weights(dim, 0.2, 1);
  for (int i = 0; i < kContext * head; ++i) put(out, 0.0f);  // RoPE tables, which nobody needs
  std::ofstream tok(folder / "tokenizer.bin", std::ios::binary);
  put(tok, 8);
  std::vector<std::string> pieces = {"<unk>", "\n<s>\n", "\n</s>\n"};
  for (int b = 0; b < 256; ++b) {
    char text[8];
    std::snprintf(text, sizeof text, "<0x%02X>", b);
    pieces.emplace_back(text);
  }
  pieces.emplace_back(" ");
  for (char c = 'a'; c <= 'z'; ++c) pieces.emplace_back(1, c);
  for (const char* w : {"th", "the", " t", " the", "he", "in", "er", "an", "re", "on", "at", "en",
                        "nd", "ti",  "es", "or",   "te", "of", "ed", "is", "it", "al", "ar", "st"})
    pieces.emplace_back(w);
  while (pieces.size() < kVocab) pieces.push_back(concat("x", pieces.size()));
  for (std::size_t i = 0; i < kVocab; ++i) {
    put(tok, static_cast<float>(i < 286 ? 0 : -static_cast<double>(i)));
    put(tok, static_cast<int>(pieces[i].size()));
    tok.write(pieces[i].data(), static_cast<std::streamsize>(pieces[i].size()));
  }
}

class CliModel : public Cli {
 protected:
  void SetUp() override {
    Cli::SetUp();
    if (IsSkipped()) return;
    write_toy(folder);
    toy = "'" + (folder / "toy.bin").string() + "'";
  }
  std::string path(const std::string& name) const { return (folder / name).string(); }
  Outcome quiet(const std::string& args, const std::string& before = "") const {
    return run(args + (before.empty() ? " </dev/null" : ""), before);
  }

  const TempFolder temp;
  const fs::path folder = temp.path();
  std::string toy;
};

std::vector<Dim> integers(const Json& list) {
  std::vector<Dim> out;
  for (const Json& x : list.array()) out.push_back(x.integer());
  return out;
}

TEST_F(CliModel, RunContinuesAText) {
  const Outcome a = quiet("run " + toy + " 'the end' --temp 0 -n 12");
  EXPECT_EQ(a.code, 0) << a.err;
  EXPECT_EQ(a.err, "");
  EXPECT_TRUE(a.out.ends_with("\n"));
  EXPECT_GT(a.out.size(), 6u);
  EXPECT_EQ(quiet("run " + toy + " 'the end' --temp 0 --predict=12 -t 2").out, a.out);
  EXPECT_EQ(run("run " + toy + " --temp 0 -n 12", "printf 'the end' |").out, a.out);
  EXPECT_EQ(run("run " + toy + " - --temp 0 -n 12", "printf 'the end' |").out, a.out);
  // Standard input stands where - does.
  EXPECT_EQ(run("run " + toy + " - 'the end' --temp 0 -n 12", "echo in |").out,
            quiet("run " + toy + " \"$(printf 'in\\nthe end')\" --temp 0 -n 12").out);
  EXPECT_EQ(run("run " + toy + " 'the end' - --temp 0 -n 12", "printf in |").out,
            quiet("run " + toy + " \"$(printf 'the end\\nin')\" --temp 0 -n 12").out);
  EXPECT_EQ(quiet("run " + toy + " x -n 10 -s 5").out, quiet("run " + toy + " x -n 10 -s 5").out);
  EXPECT_NE(quiet("run " + toy + " x -n 10 -s 5 --temp 2").out,
            quiet("run " + toy + " x -n 10 -s 6 --temp 2").out);
  const Outcome verbose = quiet("run " + toy + " x -n 5 --ignore-eos --verbose");
  EXPECT_TRUE(has(verbose.err, "answer    5 tokens")) << verbose.err;
  EXPECT_TRUE(has(verbose.err, "tokens/s")) << verbose.err;
  // It falls out of the prompt: no rate.
  const Outcome single = quiet("run " + toy + " x -n 1 --ignore-eos --verbose");
  const std::string answer = single.err.substr(single.err.find("answer "));
  EXPECT_TRUE(has(answer, "answer    1 token, ") && !has(answer, "tokens/s")) << single.err;
}

// Looked up, or by a draft model (here the model itself, which is always right): the same answer.
TEST_F(CliModel, GuessedTokensChangeNothing) {
  const std::string asks =
      "run " + toy + " 'the end is the end is the end' --ignore-eos --json -q -s 3 -n 40 ";
  for (const char* how : {"--temp 0", "--temp 1", "--samples 2", "--mirostat 2"}) {
    const auto samples = [&](const std::string& flags) {
      const Outcome o = quiet(asks + how + " " + flags);
      EXPECT_EQ(o.code, 0) << o.err;
      return parse_json(o.out).find("samples")->dump();
    };
    const std::string plain = samples("--speculate off");
    EXPECT_EQ(samples(""), plain);
    EXPECT_EQ(samples("--speculate lookup"), plain);
    EXPECT_EQ(samples("--draft " + toy), plain);
  }
  const auto refused = [&](const std::string& flags, std::string_view words) {
    const Outcome o = quiet("run " + toy + " x -n 2 " + flags);
    EXPECT_NE(o.code, 0);
    EXPECT_TRUE(has(o.err, words)) << o.err;
  };
  refused("--speculate maybe", "is none of off, lookup, draft");
  refused("--speculate draft", "--draft MODEL");
  refused("--speculate lookup --draft " + toy, "asks none");
  refused("--draft '" + kBuildFolder + "/default.gguf'", "does not have the tokens of");
}

// With a prompt nobody reads standard input: a loop over lines keeps its lines, a closed one is no matter.
TEST_F(CliModel, APromptLeavesStandardInputAlone) {
  const std::string answer = quiet("run " + toy + " 'the end' --temp 0 -n 12").out;
  const Outcome closed = run("run " + toy + " 'the end' --temp 0 -n 12 <&-");
  EXPECT_EQ(closed.code, 0) << closed.err;
  EXPECT_EQ(closed.out, answer);
  std::ofstream(path("lines")) << "one\ntwo\nthree\n";
  const Outcome loop = run("run " + toy + " \"$l\" --temp 0 -n 2; done < '" + path("lines") + "'",
                           "while read l; do echo \"[$l]\";");
  EXPECT_EQ(loop.code, 0) << loop.err;
  for (const char* l : {"[one]", "[two]", "[three]"}) EXPECT_TRUE(has(loop.out, l)) << loop.out;
  EXPECT_FALSE(has(loop.err, "note:")) << loop.err;
  // What used to be read is told, once, and not with -q.
  const Outcome file = run("run " + toy + " 'the end' --temp 0 -n 12 < '" + path("lines") + "'");
  EXPECT_EQ(file.out, answer);
  EXPECT_TRUE(has(file.err, "standard input is not read where there is a prompt")) << file.err;
  EXPECT_EQ(run("run " + toy + " 'the end' --temp 0 -n 12 -q < '" + path("lines") + "'").err, "");
  EXPECT_EQ(run("run " + toy + " 'the end' --temp 0 -n 12 -q < '" + path("lines") + "'").out, answer);
}

TEST_F(CliModel, NoPromptIsAUsageError) {
  for (const std::string& args :
       {"run " + toy + " </dev/null", "run " + toy + " - </dev/null", "run " + toy + " <&-"}) {
    const Outcome o = run(args);
    EXPECT_EQ(o.code, 2) << args;
    EXPECT_TRUE(has(o.err, "standard input is empty")) << o.err;
  }
  EXPECT_EQ(quiet("run " + toy + " '' -n 3 --ignore-eos").code, 0);  // an empty prompt that was meant
  const Outcome many = quiet("run " + toy + " why is it");
  EXPECT_EQ(many.code, 2);
  EXPECT_TRUE(has(many.err, "a prompt in quotes; got")) << many.err;
  EXPECT_TRUE(has(quiet("run " + toy + " why not").err, "put it in quotes"));
  EXPECT_TRUE(has(quiet("run " + toy + " - -").err, "read once"));
}

// One name for one thing; what earlier versions and other programs say still works.
TEST_F(CliModel, OtherSpellingsOfFlagsWork) {
  const std::string answer = quiet("run " + toy + " 'the end' --temp 0 --max-tokens 12").out;
  for (const char* flags :
       {"-n 12 --temp 0", "--predict 12 --temperature 0", "--n-predict=12 --temp=0",
        "--max-new-tokens 12 --temp 0", "-n=12 --no-template --temp 0", "--predict 3 -n 12 --temp 0"})
    EXPECT_EQ(quiet("run " + toy + " 'the end' " + flags).out, answer) << flags;
  EXPECT_EQ(quiet("run " + toy + " 'the end' -n 8 --beam 3").out,
            quiet("run " + toy + " 'the end' -n 8 --beams 3").out);
  std::ofstream(path("text")) << std::string(2000, 'a') + " the end ";
  const std::string eval = "eval " + toy + " --perplexity '" + path("text") + "' --chunks 2 --json ";
  auto figures = [&](const char* flag) {  // without the time it took
    const std::string out = quiet(eval + flag).out;
    return out.substr(0, out.find("\"seconds\""));
  };
  EXPECT_EQ(figures("--context 32"), figures("--ctx-size 32"));
  EXPECT_TRUE(has(figures("--ctx-size 32"), "\"context\": 32"));
  EXPECT_EQ(quiet("bench " + toy + " -p 0 --gen 2 -r 1 --json").code, 0);
  for (const char* flag : {"--vocab-size", "--size"}) {
    const Outcome o =
        quiet("data '" + path("text") + "' --force --out '" + path("packed.bin") + "' " + flag + " 300");
    EXPECT_EQ(o.code, 0) << o.err;
  }
  const std::string logits = "logits " + toy + " --ids 1 -o '" + path("l.npy") + "'";
  EXPECT_EQ(quiet(logits).code, 0);
  const Outcome again = quiet(logits);
  EXPECT_EQ(again.code, 1);
  EXPECT_TRUE(has(again.err, "exists already; --force overwrites it")) << again.err;
}

TEST_F(CliModel, ListAndShowTellOfFiles) {
  const std::string models = "RAPT_MODELS='" + folder.string() + "'";
  ASSERT_EQ(quiet("convert " + toy + " '" + path("Small-Toy.Q8_0.gguf") + "' --type q8_0 -q").code, 0);
  std::ofstream(path("broken.gguf")) << "GGUF";
  const Outcome list = run("list", models);
  EXPECT_EQ(list.code, 0) << list.err;
  for (const char* word : {"NAME", "toy.bin", "Small-Toy.Q8_0.gguf", "q8_0", "llama", "128", "broken.gguf",
                           "rapt check broken.gguf", "default.gguf"})
    EXPECT_TRUE(has(list.out, word)) << word << "\n" << list.out;
  EXPECT_FALSE(has(list.out, "tokenizer.bin")) << list.out;
  const Json j = parse_json(run("list --json", models).out);
  const auto row = std::find_if(j.array().begin(), j.array().end(), [](const Json& r) {
    return r.find("name")->string() == "Small-Toy.Q8_0.gguf";
  });
  ASSERT_NE(row, j.array().end());
  EXPECT_EQ(row->find("type")->string(), "q8_0/f16");
  EXPECT_EQ(row->find("context")->integer(), kContext);
  EXPECT_TRUE(has(run("list", "RAPT_MODELS=").err, "RAPT_MODELS is not set"));

  const Outcome show = run("show small-toy", models);  // its beginning, in any case
  EXPECT_EQ(show.code, 0) << show.err;
  for (const char* word : {"Small-Toy.Q8_0.gguf", "q8_0: ", "tokenizer: ", "family llama"})
    EXPECT_TRUE(has(show.out, word)) << show.out;
  EXPECT_TRUE(has(quiet("bench '" + path("Small-Toy.Q8_0.gguf") + "' -p 2 -n 0 -r 1").out,
                  "| Small-Toy.Q8_0.gguf |"));
  EXPECT_TRUE(has(quiet("inspect tensors '" + path("Small-Toy.Q8_0.gguf") + "'").out,
                  "Points of Small-Toy.Q8_0.gguf"));
  const Outcome none = quiet("show " + toy + " --template");
  EXPECT_EQ(none.code, 1);
  EXPECT_TRUE(has(none.err, "no chat template")) << none.err;
}

TEST_F(CliModel, QuietMeansQuiet) {
  EXPECT_EQ(quiet("check " + toy + " --quiet").out, "");
  EXPECT_EQ(quiet("check " + toy + " --quiet").code, 0);
  const std::string longer = "run " + toy + " x -n 1 -c 1000";
  EXPECT_TRUE(has(quiet(longer).err, "note: "));
  EXPECT_EQ(quiet(longer + " -q").err, "");
  std::ofstream(path("long")) << std::string(400, 'z');
  const std::string stream = "run " + toy + " --overflow stream -n 2 --ignore-eos";
  EXPECT_TRUE(has(run(stream + " < '" + path("long") + "'").err, "no longer seen"));
  EXPECT_EQ(run(stream + " -q < '" + path("long") + "'").err, "");
}

// Rows of 32 and 48 hold no block of 256, and weights that were rounded before are rounded again: both
// are said.
TEST_F(CliModel, QuantizeSaysWhatItDidOtherwise) {
  const Outcome k = quiet("quantize " + toy + " '" + path("k.gguf") + "' --type q4_k");
  EXPECT_EQ(k.code, 0) << k.err;
  EXPECT_TRUE(has(k.err, "no whole blocks of q4_k: stored as q5_0")) << k.err;
  const Outcome again = quiet("quantize '" + path("k.gguf") + "' '" + path("8.gguf") + "' --type q8_0");
  EXPECT_TRUE(has(again.err, "was quantized before")) << again.err;
  EXPECT_EQ(quiet("quantize '" + path("k.gguf") + "' '" + path("8.gguf") + "' --type q8_0 -q --force").err,
            "");
  const Outcome iq = quiet("quantize " + toy + " '" + path("iq.gguf") + "' --type iq2_xs");
  EXPECT_EQ(iq.code, 2);
  EXPECT_FALSE(has(iq.err, "i64")) << iq.err;
  EXPECT_TRUE(has(iq.err, "known: f32, f16, bf16, q8_0, q6_k, q5_k_m")) << iq.err;
  EXPECT_TRUE(has(iq.err, "q2_k_s; iq2_xs is read, not made")) << iq.err;
  EXPECT_EQ(quiet("quantize " + toy + " '" + path("i.gguf") + "' --type i8").code, 2);
}

TEST_F(CliModel, QuantizeShowsTypesWithoutWriting) {
  const std::string words = "quantize " + toy + " '" + path("dry.gguf") + "' --type Q4_K_M --dry-run";
  const Outcome o = quiet(words);
  EXPECT_EQ(o.code, 0) << o.err;
  EXPECT_TRUE(has(o.out, "blk.0.attn_q.weight [32,32] q5_0\n")) << o.out;
  EXPECT_TRUE(has(o.out, "output_norm.weight [32] f32\n")) << o.out;
  EXPECT_TRUE(has(o.err, "bits an element; nothing was written")) << o.err;
  EXPECT_FALSE(std::filesystem::exists(path("dry.gguf")));
  const Outcome j = quiet(words + " --json");
  EXPECT_TRUE(has(j.out, "\"type\": \"q5_0\"")) << j.out;
  EXPECT_EQ(quiet("quantize " + toy + " '" + path("folder") + "' --type f16 --dry-run").code, 2);
}

// What a file is called, or holds, cannot drive a terminal from a message.
TEST_F(CliModel, EscapesOfFilesAreShownNotObeyed) {
  const Outcome o = run("check \"$(printf '\\033]0;x\\007.gguf')\"");
  EXPECT_EQ(o.code, 1);
  EXPECT_FALSE(has(o.err, "\033")) << o.err;
  EXPECT_FALSE(has(o.err, "\007")) << o.err;
  EXPECT_TRUE(has(o.err, "␛]0;x␇.gguf")) << o.err;
  // A pipe gets the model's own bytes: token 30 of the toy is the byte 27.
  EXPECT_EQ(run("run " + toy + " x -n 2 --temp 0 --ignore-eos --logit-bias 30=1000").out, "\033\033\n");
}

TEST_F(CliModel, RunAsJson) {
  const Outcome o = quiet("run " + toy + " 'the' --json --temp 0 -n 6 --ignore-eos --logprobs 3");
  ASSERT_EQ(o.code, 0) << o.err;
  const Json j = parse_json(o.out);
  const Json& sample = j.find("samples")->array()[0];
  const std::vector<Dim> ids = integers(*sample.find("ids"));
  EXPECT_EQ(ids.size(), 6u);
  EXPECT_EQ(sample.find("finish")->string(), "length");
  EXPECT_EQ(sample.find("logprobs")->array().size(), 6u);
  const Json& first = sample.find("logprobs")->array()[0];
  EXPECT_EQ(first.find("id")->integer(), ids[0]);
  EXPECT_EQ(first.find("top")->array().size(), 3u);
  EXPECT_EQ(first.find("top")->array()[0].find("id")->integer(), ids[0]);  // greedy
  EXPECT_EQ(first.find("top")->array()[0].find("logprob")->number(), first.find("logprob")->number());
  // The same prompt as ids.
  const std::string prompt = quiet("tokenize " + toy + " the").out;
  const Json again = parse_json(quiet("run " + toy + " --json --temp 0 -n 6 --ignore-eos --ids '1 " +
                                      prompt.substr(0, prompt.size() - 1) + "'")
                                    .out);
  EXPECT_EQ(integers(*again.find("samples")->array()[0].find("ids")), ids);
  EXPECT_EQ(again.find("prompt_tokens")->integer(), j.find("prompt_tokens")->integer());

  const Json three = parse_json(quiet("run " + toy + " the --json -n 6 -s 3 --samples 3 --temp 1.5").out);
  EXPECT_EQ(three.find("samples")->array().size(), 3u);
  const Json one = parse_json(quiet("run " + toy + " the --json -n 6 -s 3 --temp 1.5").out);
  EXPECT_EQ(*one.find("samples")->array()[0].find("ids"), *three.find("samples")->array()[0].find("ids"));
  const Json beams = parse_json(quiet("run " + toy + " the --json -n 6 --beams 4 --samples 2").out);
  EXPECT_GE(beams.find("samples")->array()[0].find("score")->number(),
            beams.find("samples")->array()[1].find("score")->number());
  const std::string text = quiet("run " + toy + " the --temp 0 -n 30 --ignore-eos").out;
  const std::string stop = text.substr(text.size() / 2, 2);
  const bool plain = std::all_of(stop.begin(), stop.end(),
                                 [](char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0; });
  if (plain)
    EXPECT_EQ(quiet("run " + toy + " the --temp 0 -n 30 --ignore-eos --stop '" + stop + "'").out,
              text.substr(0, text.find(stop)) + "\n");
}

TEST_F(CliModel, ContextsOverflowLoudly) {
  std::string longer;
  for (int i = 0; i < 200; ++i) longer += " the";
  const Outcome error = quiet("run " + toy + " '" + longer + "'");
  EXPECT_EQ(error.code, 1);
  EXPECT_EQ(error.out, "");
  EXPECT_TRUE(has(error.err, "128 tokens")) << error.err;
  EXPECT_TRUE(has(error.err, "--overflow stream")) << error.err;
  const Outcome stream = quiet("run " + toy + " '" + longer + "' --overflow stream -n 3 --ignore-eos");
  EXPECT_EQ(stream.code, 0) << stream.err;
  EXPECT_TRUE(has(stream.err, "no longer seen")) << stream.err;
  const Outcome window =
      quiet("run " + toy + " the --stream --keep 2 --window 16 -n 200 --ignore-eos --json");
  EXPECT_EQ(window.code, 0) << window.err;
  EXPECT_EQ(parse_json(window.out).find("samples")->array()[0].find("ids")->array().size(), 200u);
  EXPECT_GT(parse_json(window.out).find("dropped_tokens")->integer(), 150);
  const Outcome full = quiet("run " + toy + " the --ignore-eos");
  EXPECT_EQ(full.code, 0);
  EXPECT_TRUE(has(full.err, "context of 128 tokens is full")) << full.err;
}

TEST_F(CliModel, TokenizeBothWays) {
  const std::string text = "the old <s> man's boot\n";
  std::ofstream(path("text")) << text;
  const Outcome ids = run("tokenize " + toy + " - < '" + path("text") + "'");
  EXPECT_EQ(ids.code, 0) << ids.err;
  EXPECT_EQ(std::count(ids.out.begin(), ids.out.end(), '\n'), 1);
  EXPECT_FALSE(has(" " + ids.out, " 1 ")) << "<s> in a text is text: " << ids.out;
  EXPECT_EQ(
      run("tokenize " + toy + " --decode -", "printf '" + ids.out.substr(0, ids.out.size() - 1) + "' |").out,
      text + "\n");
  const Json j = parse_json(quiet("tokenize " + toy + " the --json").out);
  EXPECT_EQ(j.array()[0].find("id")->integer(), std::stol(quiet("tokenize " + toy + " the").out));
  EXPECT_EQ(quiet("tokenize " + toy + " ''").out, "\n");
  EXPECT_EQ(quiet("tokenize " + toy + " --frame the").out, "1 " + quiet("tokenize " + toy + " the").out);
  EXPECT_EQ(quiet("tokenize " + toy + " --decode 320").code, 2);
}

std::vector<float> read_npy(const std::string& file, Dim& rows, Dim& cols) {
  std::stringstream text;
  text << std::ifstream(file, std::ios::binary).rdbuf();
  const std::string all = text.str();
  if (all.size() < 10 || all.substr(0, 8) != std::string("\x93NUMPY\x01\x00", 8)) return {};
  const std::size_t header = static_cast<unsigned char>(all[8]) + 256u * static_cast<unsigned char>(all[9]);
  EXPECT_EQ((10 + header) % 64, 0u);
  const std::string shape = all.substr(10, header);
  EXPECT_TRUE(has(shape, "'descr': '<f4'") && has(shape, "'fortran_order': False")) << shape;
  long r = 0, c = 0;
  EXPECT_EQ(std::sscanf(shape.c_str() + shape.find("'shape': (") + 10, "%ld, %ld)", &r, &c), 2);
  rows = r, cols = c;
  std::vector<float> values((all.size() - 10 - header) / 4);
  std::memcpy(values.data(), all.data() + 10 + header, values.size() * 4);
  return values;
}

TEST_F(CliModel, LogitsAreAnArray) {
  const std::string out = path("l.npy");
  const Outcome o = quiet("logits " + toy + " --ids '1 300 290 270 265' --out '" + out + "'");
  EXPECT_EQ(o.code, 0) << o.err;
  Dim rows = 0, cols = 0;
  const std::vector<float> logits = read_npy(out, rows, cols);
  EXPECT_EQ(rows, 5);
  EXPECT_EQ(cols, kVocab);
  ASSERT_EQ(logits.size(), static_cast<std::size_t>(5 * kVocab));
  // Its last row decides the greedy token.
  const auto last = logits.end() - kVocab;
  const Json j =
      parse_json(quiet("run " + toy + " --json --temp 0 -n 1 --ignore-eos --ids '1 300 290 270 265'").out);
  auto best = std::max_element(last, logits.end());
  if (best - last == 2) best = std::max_element(last, last + 2);
  EXPECT_EQ(integers(*j.find("samples")->array()[0].find("ids"))[0], best - last);
  const Outcome refused = quiet("logits " + toy + " --ids '1' --out '" + out + "'");
  EXPECT_EQ(refused.code, 1);
  EXPECT_TRUE(has(refused.err, "--force") || has(refused.err, "exists")) << refused.err;
  EXPECT_EQ(quiet("logits " + toy + " --ids '1 300 290 270 265' --chunk 1 --force --out '" + out + "'").code,
            0);
  EXPECT_EQ(read_npy(out, rows, cols), logits);  // the same bits token by token
  EXPECT_EQ(quiet("logits " + toy + " --ids '1 320' --out '" + path("no.npy") + "'").code, 1);
  EXPECT_FALSE(fs::exists(path("no.npy")));
}

TEST_F(CliModel, EvalEmbedBench) {
  std::ofstream text(path("text"));
  for (int i = 0; i < 120; ++i)
    text << "the old man is in the boat and " << (i % 3 ? "it rains " : "he reads ");
  text.close();
  const Outcome e =
      quiet("eval " + toy + " --perplexity '" + path("text") + "' --ctx-size 32 --chunks 5 --json");
  ASSERT_EQ(e.code, 0) << e.err;
  const Json j = parse_json(e.out);
  EXPECT_EQ(j.find("chunks")->integer(), 5);
  EXPECT_EQ(j.find("tokens")->integer(), 5 * 15);
  EXPECT_NEAR(std::log(j.find("perplexity")->number()), j.find("nll")->number(), 1e-9);
  EXPECT_TRUE(
      has(quiet("eval " + toy + " --perplexity '" + path("text") + "' -c 32 --chunks 2").out, "perplexity "));
  EXPECT_EQ(quiet("eval " + toy + " --perplexity '" + path("missing") + "'").code, 1);

  const Outcome v = quiet("embed " + toy + " 'the man' 'a boat' --json");
  ASSERT_EQ(v.code, 0) << v.err;
  EXPECT_EQ(std::count(v.out.begin(), v.out.end(), '\n'), 2);
  EXPECT_EQ(parse_json(v.out.substr(0, v.out.find('\n'))).find("embedding")->array().size(), 32u);
  EXPECT_EQ(run("embed " + toy + " --out '" + path("e.npy") + "'", "printf 'the man\\na boat\\n' |").code, 0);
  Dim rows = 0, cols = 0;
  const std::vector<float> vectors = read_npy(path("e.npy"), rows, cols);
  EXPECT_EQ(rows, 2);
  EXPECT_EQ(cols, 32);
  EXPECT_NEAR(vectors[0],
              parse_json(v.out.substr(0, v.out.find('\n'))).find("embedding")->array()[0].number(), 1e-6);

  const Outcome b = quiet("bench " + toy + " -p 16,32 -n 4 -d 0,8 -r 2");
  EXPECT_EQ(b.code, 0) << b.err;
  for (const char* test : {"| pp16 |", "| pp32 |", "| tg4 |", "| pp16 @ d8 |", "| tg4 @ d8 |"})
    EXPECT_TRUE(has(b.out, test)) << b.out;
  const Json many = parse_json(quiet("bench " + toy + " --parallel 1,3 -p 5 -n 4 -r 1 --json").out);
  ASSERT_EQ(many.array().size(), 2u);
  EXPECT_EQ(many.array()[1].find("pl")->integer(), 3);
  EXPECT_EQ(many.array()[1].find("pp")->integer(), 5);
  EXPECT_GT(many.array()[1].find("speed_tg")->number(), 0);
  EXPECT_TRUE(
      has(quiet("bench " + toy + " --parallel 2 -p 70 -n 3 -r 1 --pool 1").out, "| 70 | 3 | 2 | 146 |"));
  EXPECT_TRUE(has(quiet("bench " + toy + " --parallel 0").err, "give at least 1"));
  const Json rates = parse_json(quiet("bench " + toy + " -p 0 -n 4 -r 1 --json --cache-type f16").out);
  ASSERT_EQ(rates.array().size(), 1u);
  EXPECT_GT(rates.array()[0].find("avg_ts")->number(), 0);
}

TEST_F(CliModel, AdaptersStandBesideTheModel) {
  PeftToy peft = read_peft_toy("llama");  // of a model whose attention has these sizes
  std::erase_if(peft.adapter.tensors, [](const ToyTensor& t) { return has(t.name, "mlp"); });
  const TempFolder temp;
  const std::string folder = temp / "adapter";
  write_adapter_folder(peft.adapter, folder);
  const auto ids = [&](const std::string& flags) {
    const Outcome o = quiet("run " + toy + " --ids '1 5 70 9' --temp 0 -n 12 --ignore-eos --json " + flags);
    EXPECT_EQ(o.code, 0) << o.err;
    return parse_json(o.out).find("samples")->array()[0].find("ids")->dump(0);
  };
  const std::string plain = ids(""), with = ids("--lora " + folder);
  EXPECT_NE(plain, with);
  EXPECT_EQ(ids("--lora " + folder + "=0"), plain);
  EXPECT_EQ(ids("--lora " + folder + "=0.5 --lora " + folder + "=-0.5"), plain);  // they cancel to rounding
  const auto vector = [&](const std::string& flags) {
    const Outcome o = quiet("embed " + toy + " 'a b' " + flags);
    EXPECT_EQ(o.code, 0) << o.err;
    return o.out;
  };
  EXPECT_NE(vector(""), vector("--lora " + folder));
  const Outcome many = quiet("bench " + toy + " --parallel 3 -p 5 -n 4 -r 1 --lora none --lora " + folder);
  EXPECT_EQ(many.code, 0) << many.err;
  const Outcome missing = quiet("run " + toy + " --ids 1 --lora nothing");
  EXPECT_EQ(missing.code, 1);
  EXPECT_TRUE(has(missing.err, "nothing: there is no such file or folder")) << missing.err;
  const Outcome scale = quiet("run " + toy + " --ids 1 --lora " + folder + "=x");
  EXPECT_EQ(scale.code, 2);
  EXPECT_TRUE(has(scale.err, "'x' is no scale")) << scale.err;
}

// What a log says is not trusted: of two prompts the second one has no room. The first one is answered, and
// the next line, too.
TEST_F(CliModel, ReplayGoesOnBehindALineThatCannotBeAnswered) {
  const Json said = parse_json(quiet("run " + toy + " 'the end' --temp 0 -n 5 --json").out);
  const std::vector<Dim> ids = integers(*said.find("samples")->array()[0].find("ids"));
  const auto list = [](const std::vector<Dim>& of) {
    std::string out;
    for (const Dim id : of) out += concat(out.empty() ? "[" : ",", id);
    return out + "]";
  };
  std::string prompt = "[" + quiet("tokenize " + toy + " 'the end' --frame").out;
  prompt.back() = ']';  // of the line
  std::replace(prompt.begin(), prompt.end(), ' ', ',');
  const auto line = [&](const char* id, const std::string& prompts, const std::string& choices) {
    return concat(R"({"id":")", id,
                  R"(","key":"","model":"toy","fingerprint":"none","route":"/completions",)",
                  R"("template":"","created":0,"seed":0,"context":128,"form":"text","ignore_eos":false,)",
                  R"("prompts":)", prompts, R"(,"choices":)", choices,
                  R"(,"request":{"prompt":["the end","the end"],"temperature":0,"max_tokens":5}})", "\n");
  };
  const std::string choice =
      concat(R"({"ids":)", list(ids), R"(,"hash":")", "0123456789abcdef", R"(","finish":"length"})");
  put_file(path("log.jsonl"), line("cmpl-1", concat("[", prompt, ",", list(std::vector<Dim>(500, 5)), "]"),
                                   concat("[", choice, ",", choice, "]")) +
                                  line("cmpl-2", concat("[", prompt, "]"), concat("[", choice, "]")));
  const Outcome o = quiet("replay '" + path("log.jsonl") + "' toy=" + toy + " --json -q");
  EXPECT_EQ(o.code, 1) << o.err;
  const Json told = parse_json(o.out);
  EXPECT_EQ(told.find("failed")->integer(), 1) << o.out;
  EXPECT_EQ(told.find("different")->integer(), 1) << o.out;
  const Json::Array& why = told.find("differences")->array();
  ASSERT_EQ(why.size(), 2u);
  EXPECT_TRUE(has(std::string(why[0].find("why")->string()), "128")) << o.out;
  EXPECT_TRUE(has(std::string(why[1].find("why")->string()), "the same tokens, other logits")) << o.out;
}

TEST_F(CliModel, FilesAreConvertedAndChecked) {
  const Outcome ok = quiet("check " + toy);
  EXPECT_EQ(ok.code, 0) << ok.err;
  EXPECT_TRUE(ok.out.ends_with("ok\n")) << ok.out;
  EXPECT_TRUE(has(quiet("show " + toy).out, "decoder")) << quiet("show " + toy).err;

  const std::string gguf = path("toy.gguf"), want = quiet("run " + toy + " 'the end' --temp 0 -n 12").out;
  const Outcome c = quiet("convert " + toy + " '" + gguf + "'");
  ASSERT_EQ(c.code, 0) << c.err;
  EXPECT_EQ(quiet("check '" + gguf + "'").code, 0);
  EXPECT_EQ(quiet("run '" + gguf + "' 'the end' --temp 0 -n 12").out, want);
  EXPECT_EQ(quiet("convert " + toy + " '" + gguf + "'").code, 1) << "an existing file stays";
  const Outcome q = quiet("quantize '" + gguf + "' '" + path("q8.gguf") + "' --type q8_0 --json");
  ASSERT_EQ(q.code, 0) << q.err;
  EXPECT_LT(parse_json(q.out).find("to_bytes")->number(), parse_json(q.out).find("from_bytes")->number());
  EXPECT_EQ(quiet("run '" + path("q8.gguf") + "' 'the end' --temp 0 -n 12").code, 0);
  ASSERT_EQ(quiet("convert '" + gguf + "' '" + path("folder") + "'").code, 0);
  EXPECT_EQ(quiet("run '" + path("folder") + "' 'the end' --temp 0 -n 12").out, want);

  fs::resize_file(path("toy.bin"), fs::file_size(path("toy.bin")) - 5);
  const Outcome broken = quiet("check " + toy);
  EXPECT_EQ(broken.code, 1);
  EXPECT_TRUE(has(broken.err, "toy.bin")) << broken.err;
  const Outcome as_json = quiet("check " + toy + " --json");
  EXPECT_EQ(as_json.code, 1);
  EXPECT_FALSE(parse_json(as_json.out).find("ok")->boolean());
  const Outcome missing = quiet("run '" + path("none.gguf") + "' x");
  EXPECT_NE(missing.code, 0);
  EXPECT_TRUE(has(missing.err, "none.gguf")) << missing.err;
}

// A limit on the size of files stands in for a full disk: a message, and nothing is left.
TEST_F(CliModel, AFullDiskLeavesNothing) {
  const std::string to = path("full");
  const Outcome o = run("convert " + toy + " " + to + " -q", "ulimit -f 8;");
  EXPECT_EQ(o.code, 1);
  EXPECT_TRUE(has(o.err, "cannot write: no file may become that large")) << o.err;
  EXPECT_FALSE(std::filesystem::exists(to));
  std::filesystem::create_directories(to);
  EXPECT_EQ(run("convert " + toy + " " + to + " -q", "ulimit -f 8;").code, 1);
  EXPECT_TRUE(std::filesystem::is_empty(to));
}

TEST_F(CliModel, NumbersBeyondAllBounds) {
  const Outcome o = run("run " + toy + " hi -n 1 --top-k 1e30 -q");
  EXPECT_EQ(o.code, 2);
  EXPECT_TRUE(has(o.err, "--top-k: 1e+30 is no whole number")) << o.err;
}

TEST_F(CliModel, ModelsAreFoundByName) {
  const Outcome o = quiet("tokenize toy.bin the", "RAPT_MODELS=/nowhere:'" + folder.string() + "' ");
  EXPECT_EQ(o.code, 0) << o.err;
  EXPECT_EQ(o.out, quiet("tokenize " + toy + " the").out);
}

// -------------------------------------------------------------------------------------------- on a terminal

class Terminal {
 public:
  Terminal(const std::string& program, const std::vector<std::string>& args) {
    master_ = posix_openpt(O_RDWR | O_NOCTTY);
    if (master_ < 0 || grantpt(master_) != 0 || unlockpt(master_) != 0) return;
    const std::string name = ptsname(master_);
    pid_ = fork();
    if (pid_ == 0) {
      setsid();
      const int slave = open(name.c_str(), O_RDWR);  // becomes the controlling terminal
      for (int fd : {0, 1, 2}) dup2(slave, fd);
      std::vector<char*> argv = {const_cast<char*>(program.c_str())};
      for (const std::string& a : args) argv.push_back(const_cast<char*>(a.c_str()));
      argv.push_back(nullptr);
      execv(program.c_str(), argv.data());
      _exit(127);
    }
  }
  ~Terminal() {
    if (pid_ > 0) kill(pid_, SIGKILL), waitpid(pid_, nullptr, 0);
    if (master_ >= 0) close(master_);
  }
  bool open_ok() const { return pid_ > 0; }
  void type(const std::string& text) {
    EXPECT_EQ(write(master_, text.data(), text.size()), static_cast<ssize_t>(text.size()));
  }
  // What was written until `text` comes (and everything before it); at most 30 seconds.
  std::string until(const std::string& text) {
    for (int i = 0; i < 300; ++i) {
      const std::size_t at = seen_.find(text);
      if (at != std::string::npos) {
        std::string out = seen_.substr(0, at + text.size());
        seen_.erase(0, at + text.size());
        return out;
      }
      pollfd p{master_, POLLIN, 0};
      if (poll(&p, 1, 100) <= 0) continue;
      char buffer[4096];
      const ssize_t n = read(master_, buffer, sizeof buffer);
      if (n <= 0) break;
      seen_.append(buffer, static_cast<std::size_t>(n));
    }
    ADD_FAILURE() << "no '" << text << "' in: " << seen_;
    return {};
  }
  int wait() {
    int status = 0;
    for (int i = 0; i < 300; ++i) {
      if (waitpid(pid_, &status, WNOHANG) == pid_) {
        pid_ = -1;
        return WIFEXITED(status) ? WEXITSTATUS(status) : 128;
      }
      usleep(100000);
    }
    return -1;
  }

 private:
  int master_ = -1;
  pid_t pid_ = -1;
  std::string seen_;
};

TEST_F(CliModel, AModelCannotDriveTheTerminal) {
  std::vector<std::string> args = {"run",          path("toy.bin"), "x",      "--temp", "0", "-n", "2",
                                   "--ignore-eos", "--logit-bias",  "30=1000"};
  Terminal streamed(program, args);
  if (!streamed.open_ok()) GTEST_SKIP() << "no pseudo terminal here";
  EXPECT_FALSE(has(streamed.until("\r\n"), "\033"));
  args.insert(args.end(), {"--samples", "2"});
  Terminal listed(program, args);
  EXPECT_EQ(listed.until("\r\n"), "[1] ␛␛\r\n");
}

TEST_F(CliModel, AConversationOnATerminal) {
  Terminal t(program, {"run", path("toy.bin"), "--temp", "0", "-n", "8", "--ignore-eos", "-c", "1000000"});
  if (!t.open_ok()) GTEST_SKIP() << "no pseudo-terminal here";
  t.until(">>> ");
  t.type("/help\r");
  t.until("/clear");
  t.until(">>> ");
  t.type("/set temp 0.5\r/set temp hot\r");
  t.until("is no number");
  t.until(">>> ");
  t.type("/set\r");
  EXPECT_TRUE(has(t.until("mirostat"), "0.5"));
  t.until(">>> ");
  t.type("thX\x7f end\x01\x05 of\r");  // with a correction, a jump to the start and back
  t.until("th end of");
  t.until("\r\n");
  t.until("8 tokens");
  t.until(">>> ");
  t.type("\"\"\"in\rthe\r\"\"\"\r");
  t.until("... ");
  t.until("8 tokens");
  t.until(">>> ");
  t.type("\x1b[A");  // the line before comes back
  t.until("\"\"\"");
  t.type("\x03");  // and Ctrl-C takes it away
  t.until("^C");
  t.until(">>> ");
  t.type("/set predict 900000\rthe\r");
  t.until(">>> the");
  usleep(200000);
  t.type("\x03");  // stops the answer, not the program
  t.until("(stopped)");
  t.until(">>> ");
  t.type("/clear\r/nothing\r");
  t.until("unknown command");
  t.until(">>> ");  // between two lines the terminal itself would take a Ctrl-D
  t.type("\x04");
  EXPECT_EQ(t.wait(), 0);
}

}  // namespace
}  // namespace rapt::test
