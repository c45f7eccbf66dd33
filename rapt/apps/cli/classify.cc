// SPDX-License-Identifier: Apache-2.0
// rapt classify: the class of a text.
#include <algorithm>
#include <numeric>

#include "rapt/apps/cli/model_args.h"
#include "rapt/base/text.h"
#include "rapt/use/read_texts.h"

namespace rapt::cli {
namespace {

std::vector<std::size_t> best_first(const std::vector<float>& probabilities, std::size_t most) {
  std::vector<std::size_t> order(probabilities.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return probabilities[a] != probabilities[b] ? probabilities[a] > probabilities[b] : a < b;
  });
  order.resize(std::min(most, order.size()));
  return order;
}

int run(Args& args) {
  const CommonArgs common = common_args(args);
  const auto top = static_cast<std::size_t>(args.number("top-k", 1, 1 << 20).value_or(5));
  const std::optional<std::string> in = args.value("in");
  const std::vector<std::string> words = args.operands(1, std::size_t{1} << 20, "a model, and texts");
  const std::vector<std::string> texts = given_texts(std::span(words).subspan(1), in);
  const OpenModel m = open_model(words[0], common);
  Progress bar("reading", common.quiet);
  Dim cut = 0;
  const auto probabilities = classify_texts(
      *m.device, m.checkpoint, texts,
      [&](Dim done, Dim of) { bar.step(static_cast<double>(done), static_cast<double>(of)); }, &cut);
  bar.clear();
  if (cut > 0 && !common.quiet)
    note(concat("note: ", cut, " of ", texts.size(),
                " texts are longer than the model reads; their ends were left out"));
  for (std::size_t i = 0; i < probabilities.size(); ++i) {
    const std::vector<float>& p = probabilities[i];
    if (!common.json) {
      std::string line;
      for (const std::size_t k : best_first(p, top))
        line += concat(line.empty() ? "" : "  ", class_name(m.checkpoint, k), " ",
                       fixed(static_cast<double>(p[k]), 4));
      print(for_stdout(line) + "\n");
      continue;
    }
    Json j = Json::Object{};
    j.set("index", static_cast<Dim>(i));
    j.set("text", bytes_json(texts[i]));
    Json::Array classes;
    for (const std::size_t k : best_first(p, top)) {
      Json one = Json::Object{};
      one.set("label", class_name(m.checkpoint, k));
      one.set("probability", static_cast<double>(p[k]));
      classes.push_back(std::move(one));
    }
    j.set("classes", std::move(classes));
    print(j.dump(0) + "\n");
  }
  return 0;
}

}  // namespace

extern const Verb kClassify;
const Verb kClassify = {
    "classify", "the class of a text",
    "Usage: rapt classify MODEL [TEXT…] [flags]\n"
    "\n"
    "MODEL is a classifier (BertForSequenceClassification, or what `rapt train` made from labelled lines).\n"
    "One line per TEXT: its classes with their probabilities, the most probable first. Without a TEXT (or\n"
    "with -), each line of standard input is one. `rapt eval MODEL --classify LABEL=FILE,…` measures how\n"
    "often it is right.\n"
    "\n"
    "  -k, --top-k N     at most so many classes (5)\n"
    "  --in FILE         texts are the lines of FILE (may be .gz)\n"
    "  --json            one JSON object per text: classes with label and probability\n"
    "  -t, --threads N   threads (as many as the process may use)\n"
    "  -q, --quiet       no progress, no notes\n"
    "\n"
    "Examples:\n"
    "  rapt train bert --data de=train.de,en=train.en --set width=64 --set layers=2 --set heads=4 --set "
    "ffn=128 --out out/language\n"
    "  rapt classify out/language 'Ein Hund läuft.' 'A dog runs.'\n"
    "  rapt classify out/language --in lines.txt --json\n",
    run};

}  // namespace rapt::cli
