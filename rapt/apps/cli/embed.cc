// SPDX-License-Identifier: Apache-2.0
// rapt embed: texts to vectors.
#include "rapt/apps/cli/model_args.h"
#include "rapt/base/text.h"
#include "rapt/io/npy.h"

namespace rapt::cli {
namespace {

int run(Args& args) {
  const CommonArgs common = common_args(args);
  std::optional<Pool> pool;
  if (const auto name = args.value("pool")) {
    const std::vector<std::string> names = {"mean", "cls", "last"};
    const Pool values[] = {Pool::mean, Pool::first, Pool::last};
    for (std::size_t i = 0; i < names.size(); ++i)
      if (*name == names[i]) pool = values[i];
    if (!pool) fail_usage("--pool: '", *name, "' is no way to pool; ", name_hint(*name, names));
  }
  std::optional<bool> normalize;
  if (args.flag("normalize")) normalize = true;
  if (args.flag("no-normalize")) normalize = false;
  const std::optional<std::string> out = args.value("out"), in = args.value("in");
  const bool force = args.flag("force");
  const std::vector<std::string> words = args.operands(1, std::size_t{1} << 20, "a model, and texts");
  const std::vector<std::string> texts = given_texts(std::span(words).subspan(1), in);

  const OpenModel m = open_model(words[0], common);
  Progress bar("embedding", common.quiet);
  Dim cut = 0;
  const auto vectors = embed_texts(
      *m.device, m.checkpoint, texts, pool, normalize,
      [&](Dim done, Dim of) { bar.step(static_cast<double>(done), static_cast<double>(of)); }, &cut);
  bar.clear();
  if (cut > 0 && !common.quiet)
    note(concat("note: ", cut, " of ", texts.size(),
                " texts are longer than the model reads; their ends were left out"));
  const Dim width = static_cast<Dim>(vectors[0].size());
  if (out) {
    NpyWriter file(*out, {static_cast<Dim>(vectors.size()), width}, force);
    for (const auto& v : vectors) file.write(v);
    file.commit();
    if (!common.quiet)
      note(
          concat(*out, ": ", counted(static_cast<Dim>(vectors.size()), "vector"), " of ", width, " numbers"));
    return 0;
  }
  for (std::size_t i = 0; i < vectors.size(); ++i) {
    if (common.json) {
      Json row = Json::Object{};
      row.set("index", static_cast<Dim>(i));
      row.set("text", bytes_json(texts[i]));
      Json::Array values;
      for (float x : vectors[i]) values.emplace_back(static_cast<double>(x));
      row.set("embedding", std::move(values));
      print(row.dump(0) + "\n");
    } else {
      std::string line;
      for (float x : vectors[i]) line += (line.empty() ? "" : " ") + fixed(static_cast<double>(x), 7);
      print(line + "\n");
    }
  }
  return 0;
}

}  // namespace

extern const Verb kEmbed;
const Verb kEmbed = {
    "embed", "texts to vectors",
    "Usage: rapt embed MODEL [TEXT…] [flags]\n"
    "\n"
    "One vector per TEXT, or per line of standard input where there is none (or it is -). Printed as one\n"
    "line of numbers each. Pooling and normalisation are the model's own unless a flag says otherwise.\n"
    "\n"
    "  --pool P          mean, cls (first token) or last\n"
    "  --normalize       vectors of length 1; --no-normalize: as they come\n"
    "  --in FILE         texts are the lines of FILE (may be .gz)\n"
    "  --out FILE.npy    a NumPy array [texts, width] instead; --force overwrites\n"
    "  --json            one JSON object per line: index, text, embedding\n"
    "  -t, --threads N   threads (as many as the process may use)\n"
    "  -q, --quiet       no progress, no notes\n"
    "\n"
    "Examples:\n"
    "  rapt embed all-MiniLM-L6-v2 'a small cat' 'a kitten'\n"
    "  rapt embed all-MiniLM-L6-v2 --out lines.npy < lines.txt\n",
    run};

}  // namespace rapt::cli
