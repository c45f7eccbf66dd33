// SPDX-License-Identifier: Apache-2.0
// rapt fill: words for the masks of a text.
#include "rapt/apps/cli/model_args.h"
#include "rapt/base/text.h"
#include "rapt/use/read_texts.h"

namespace rapt::cli {
namespace {

Json as_json(const Tokenizer& tokenizer, const FilledMasks& f, std::size_t index, const std::string& text) {
  Json j = Json::Object{};
  j.set("index", static_cast<Dim>(index));
  j.set("text", bytes_json(text));
  Json::Array masks;
  for (std::size_t k = 0; k < f.places.size(); ++k) {
    Json::Array guesses;
    for (const MaskGuess& g : f.guesses[k]) {
      Json one = Json::Object{};
      one.set("id", static_cast<Dim>(g.id));
      one.set("token", bytes_json(guess_text(tokenizer, g.id)));
      one.set("probability", static_cast<double>(g.probability));
      one.set("sequence", bytes_json(filled_text(tokenizer, f, k, g.id)));
      guesses.push_back(std::move(one));
    }
    Json mask = Json::Object{};
    mask.set("position", f.places[k]);
    mask.set("guesses", std::move(guesses));
    masks.push_back(std::move(mask));
  }
  j.set("masks", std::move(masks));
  return j;
}

// In quotes where it could not be seen: spaces, line breaks.
std::string shown(const std::string& token) {
  const bool plain = !token.empty() && token.find_first_of("\n\r\t\v\f") == token.npos &&
                     token.front() != ' ' && token.back() != ' ';
  return for_stdout(plain ? token : json_quote(token));
}

int run(Args& args) {
  CommonArgs common = common_args(args);
  lora_args(args, common);
  const Dim top = args.number("top-k", 1, 1 << 20).value_or(5);
  const std::optional<std::string> in = args.value("in");
  const std::vector<std::string> words = args.operands(1, std::size_t{1} << 20, "a model, and texts");
  const std::vector<std::string> texts = given_texts(std::span(words).subspan(1), in);
  const OpenModel m = open_model(words[0], common);
  Progress bar("reading", common.quiet);
  const std::vector<FilledMasks> filled =
      fill_masks(*m.device, m.checkpoint, texts, top,
                 [&](Dim done, Dim of) { bar.step(static_cast<double>(done), static_cast<double>(of)); });
  bar.clear();
  const Tokenizer& tokenizer = *m.checkpoint.tokenizer;
  for (std::size_t i = 0; i < filled.size(); ++i) {
    const FilledMasks& f = filled[i];
    if (common.json) {
      print(as_json(tokenizer, f, i, texts[i]).dump(0) + "\n");
      continue;
    }
    if (filled.size() > 1) print(concat(i > 0 ? "\n" : "", for_stdout(texts[i]), "\n"));
    for (std::size_t k = 0; k < f.places.size(); ++k) {
      if (f.places.size() > 1) print(concat("mask ", k + 1, "\n"));
      for (const MaskGuess& g : f.guesses[k])
        print(concat("  ", fixed(static_cast<double>(g.probability), 4), "  ",
                     shown(guess_text(tokenizer, g.id)), "\n"));
    }
  }
  return 0;
}

}  // namespace

extern const Verb kFill;
const Verb kFill = {
    "fill", "words for the masks of a text",
    "Usage: rapt fill MODEL [TEXT…] [flags]\n"
    "\n"
    "MODEL was trained on masked words (BERT, or what `rapt train` made with --objective\n"
    "masked). Each TEXT holds its mask, [MASK], once or more; printed are the most\n"
    "probable tokens for each, with their probabilities. Several masks are guessed at\n"
    "once, each without knowing the others' words. Without a TEXT (or with -), each line\n"
    "of standard input is one.\n"
    "\n"
    "  -k, --top-k N     so many tokens for a mask (5)\n"
    "  --in FILE         texts are the lines of FILE (may be .gz)\n"
    "  --lora FILE[=S]   an adapter (LoRA) beside the model's weights, times S; may come many times\n"
    "  --json            one JSON object per text: masks with position and guesses (id,\n"
    "                    token, probability, sequence)\n"
    "  -t, --threads N   threads (as many as the process may use)\n"
    "  -q, --quiet       no progress\n"
    "\n"
    "Examples:\n"
    "  rapt fill bert-base-uncased 'to be or [MASK] to be'\n"
    "  rapt train bert --data shakespeare.txt --set width=128 --set layers=4 --set heads=4 --set ffn=512 "
    "--out out/bert\n"
    "  rapt fill out/bert 'to [MASK] or [MASK] to be' --top-k 3 --json\n",
    run};

}  // namespace rapt::cli
