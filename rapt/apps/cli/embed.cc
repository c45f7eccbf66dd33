// SPDX-License-Identifier: Apache-2.0
// rapt embed: texts or pictures to vectors.
#include "rapt/apps/cli/model_args.h"
#include "rapt/base/text.h"
#include "rapt/io/npy.h"
#include "rapt/use/picture_files.h"
#include "rapt/use/read_pictures.h"

namespace rapt::cli {
namespace {

std::optional<Pool> pool_of(Args& args) {
  const auto name = args.value("pool");
  if (!name) return std::nullopt;
  const std::vector<std::string> names = {"mean", "cls", "last"};
  const Pool values[] = {Pool::mean, Pool::first, Pool::last};
  for (std::size_t i = 0; i < names.size(); ++i)
    if (*name == names[i]) return values[i];
  fail_usage("--pool: '", *name, "' is no way to pool; ", name_hint(*name, names));
}

struct EmbedArgs {
  std::optional<Pool> pool{};
  std::optional<bool> normalize{};
};

std::vector<std::vector<float>> text_vectors(const OpenModel& m, const CommonArgs& common,
                                             const EmbedArgs& how, const std::vector<std::string>& texts) {
  refuse_texts_for_pictures(m.checkpoint, "embed");
  Progress bar("embedding", common.quiet);
  Dim cut = 0;
  auto vectors = embed_texts(
      *m.device, m.checkpoint, texts, how.pool, how.normalize,
      [&](Dim done, Dim of) { bar.step(static_cast<double>(done), static_cast<double>(of)); }, &cut);
  bar.clear();
  if (cut > 0 && !common.quiet)
    note(concat("note: ", cut, " of ", texts.size(),
                " texts are longer than the model reads; their ends were left out"));
  return vectors;
}

std::vector<std::vector<float>> picture_vectors(const OpenModel& m, const CommonArgs& common,
                                                const EmbedArgs& how, const std::vector<std::string>& paths) {
  const ImageProcess process = image_process_of(m.checkpoint, "embed");
  std::vector<std::vector<float>> vectors;
  Progress bar("embedding", common.quiet);
  read_picture_files(process, paths, [&](std::size_t, std::span<const Picture> pictures) {
    for (auto& v : embed_pictures(*m.device, m.checkpoint, pictures, how.pool,
                                  how.normalize.value_or(m.checkpoint.normalize)))
      vectors.push_back(std::move(v));
    bar.step(static_cast<double>(vectors.size()), static_cast<double>(paths.size()));
  });
  return vectors;
}

void print_vectors(const std::vector<std::vector<float>>& vectors, std::string_view key,
                   const std::vector<std::string>& names, bool json) {
  for (std::size_t i = 0; i < vectors.size(); ++i) {
    if (!json) {
      std::string line;
      for (float x : vectors[i]) line += (line.empty() ? "" : " ") + fixed(static_cast<double>(x), 7);
      print(line + "\n");
      continue;
    }
    Json row = Json::Object{};
    row.set("index", static_cast<Dim>(i));
    row.set(key, bytes_json(names[i]));
    Json::Array values;
    for (float x : vectors[i]) values.emplace_back(static_cast<double>(x));
    row.set("embedding", std::move(values));
    print(row.dump(0) + "\n");
  }
}

int run(Args& args) {
  CommonArgs common = common_args(args);
  lora_args(args, common);
  EmbedArgs how{.pool = pool_of(args)};
  if (args.flag("normalize")) how.normalize = true;
  if (args.flag("no-normalize")) how.normalize = false;
  const std::optional<std::string> out = args.value("out"), in = args.value("in");
  std::vector<std::string> images = args.values("image");
  const bool force = args.flag("force");
  const std::vector<std::string> words =
      args.operands(1, std::size_t{1} << 20, "a model, and texts or pictures");
  const bool pictures = !images.empty();
  if (pictures && in) fail_usage("--in names texts, --image a picture; a model reads one of the two");
  if (pictures) images.insert(images.end(), words.begin() + 1, words.end());
  const std::vector<std::string> names =
      pictures ? picture_paths(images) : given_texts(std::span(words).subspan(1), in);

  const OpenModel m = open_model(words[0], common, {.tower = pictures ? Tower::vision : Tower::text});
  const auto vectors =
      pictures ? picture_vectors(m, common, how, names) : text_vectors(m, common, how, names);
  if (!out) {
    print_vectors(vectors, pictures ? "image" : "text", names, common.json);
    return 0;
  }
  const Dim width = static_cast<Dim>(vectors[0].size());
  NpyWriter file(*out, {static_cast<Dim>(vectors.size()), width}, force);
  for (const auto& v : vectors) file.write(v);
  file.commit();
  if (!common.quiet)
    note(concat(*out, ": ", counted(static_cast<Dim>(vectors.size()), "vector"), " of ", width, " numbers"));
  return 0;
}

}  // namespace

extern const Verb kEmbed;
const Verb kEmbed = {
    "embed", "texts or pictures to vectors",
    "Usage: rapt embed MODEL [TEXT…] [flags]\n"
    "       rapt embed MODEL --image FILE… [flags]\n"
    "\n"
    "One vector per TEXT, or per line of standard input where there is none (or it is -). Printed as one\n"
    "line of numbers each. Pooling and normalisation are the model's own unless a flag says otherwise.\n"
    "--image: one vector per picture, of ViT, DeiT, DINOv2, CLIP or SigLIP (of these two, texts and\n"
    "pictures give vectors that can be compared). Pictures are PNG or JPEG files, or folders of such.\n"
    "\n"
    "  --image FILE      a picture, or a folder of pictures; all further words are pictures, too\n"
    "  --lora FILE[=S]   an adapter (LoRA) beside the model's weights, times S; may come many times\n"
    "  --pool P          mean, cls (first token) or last\n"
    "  --normalize       vectors of length 1; --no-normalize: as they come\n"
    "  --in FILE         texts are the lines of FILE (may be .gz)\n"
    "  --out FILE.npy    a NumPy array [texts or pictures, width] instead; --force overwrites\n"
    "  --json            one JSON object per line: index, text (or image), embedding\n"
    "  -t, --threads N   threads (as many as the process may use)\n"
    "  -q, --quiet       no progress, no notes\n"
    "\n"
    "Examples:\n"
    "  rapt embed all-MiniLM-L6-v2 'a small cat' 'a kitten'\n"
    "  rapt embed all-MiniLM-L6-v2 --out lines.npy < lines.txt\n"
    "  rapt embed dinov2-small --image photos --out photos.npy\n",
    run};

}  // namespace rapt::cli
