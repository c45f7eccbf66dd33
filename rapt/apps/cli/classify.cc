// SPDX-License-Identifier: Apache-2.0
// rapt classify: the class of a text or a picture.
#include <algorithm>
#include <functional>
#include <numeric>

#include "rapt/apps/cli/model_args.h"
#include "rapt/base/text.h"
#include "rapt/use/picture_files.h"
#include "rapt/use/read_pictures.h"
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

// One text or picture: its name in the output, and what it is.
struct Subject {
  std::string_view key;  // "text" or "image"
  std::string name;
  Dim index = 0;
  bool named = false;  // also on a plain line
};

void print_classes(const Subject& subject, const std::vector<float>& p, std::size_t top, bool json,
                   const std::function<std::string(std::size_t)>& label) {
  if (!json) {
    std::string line;
    for (const std::size_t k : best_first(p, top))
      line += concat(line.empty() ? "" : "  ", label(k), " ", fixed(static_cast<double>(p[k]), 4));
    print(for_stdout(subject.named ? concat(subject.name, ": ", line) : line) + "\n");
    return;
  }
  Json j = Json::Object{};
  j.set("index", subject.index);
  j.set(subject.key, bytes_json(subject.name));
  Json::Array classes;
  for (const std::size_t k : best_first(p, top)) {
    Json one = Json::Object{};
    one.set("label", label(k));
    one.set("probability", static_cast<double>(p[k]));
    classes.push_back(std::move(one));
  }
  j.set("classes", std::move(classes));
  print(j.dump(0) + "\n");
}

int classify_lines(const std::string& name, const CommonArgs& common, std::size_t top,
                   const std::vector<std::string>& texts) {
  const OpenModel m = open_model(name, common);
  refuse_texts_for_pictures(m.checkpoint, "classify");
  Progress bar("reading", common.quiet);
  Dim cut = 0;
  const auto probabilities = classify_texts(
      *m.device, m.checkpoint, texts,
      [&](Dim done, Dim of) { bar.step(static_cast<double>(done), static_cast<double>(of)); }, &cut);
  bar.clear();
  if (cut > 0 && !common.quiet)
    note(concat("note: ", cut, " of ", texts.size(),
                " texts are longer than the model reads; their ends were left out"));
  for (std::size_t i = 0; i < probabilities.size(); ++i)
    print_classes({"text", texts[i], static_cast<Dim>(i)}, probabilities[i], top, common.json,
                  [&](std::size_t k) { return class_name(m.checkpoint, k); });
  return 0;
}

// Labels for a model that compares pictures with texts.
struct ZeroShot {
  std::vector<std::string> labels, texts;
};
ZeroShot zero_shot_labels(const std::string& list, const std::optional<std::string>& frame) {
  const std::string around = frame.value_or("This is a photo of {}.");
  const std::size_t place = around.find("{}");
  if (place == std::string::npos)
    fail_usage("--template: '", around, "' has no {}, where the label goes, as in 'a photo of a {}.'");
  ZeroShot out;
  for (std::size_t at = 0; at <= list.size();) {
    const std::size_t end = std::min(list.find(',', at), list.size());
    const std::size_t first = list.find_first_not_of(' ', at), last = list.find_last_not_of(' ', end - 1);
    if (first < end && end > at) out.labels.push_back(list.substr(first, last + 1 - first));
    at = end + 1;
  }
  if (out.labels.empty()) fail_usage("--labels: no label; give some with commas between them: 'a cat,a dog'");
  for (const std::string& label : out.labels)
    out.texts.push_back(std::string(around).replace(place, 2, label));
  return out;
}

int classify_files(const std::string& name, const CommonArgs& common, std::size_t top,
                   const std::vector<std::string>& paths, const std::optional<ZeroShot>& zero_shot) {
  const OpenModel m = open_model(name, common, {.tower = Tower::vision});
  const ImageProcess process = image_process_of(m.checkpoint, "classify");
  const bool compares = m.checkpoint.logit_scale.has_value();
  if (!zero_shot && compares && m.checkpoint.model->recipe.head.kind != HeadRecipe::Kind::classes)
    fail_usage(
        "classify: ", m.checkpoint.path,
        " compares pictures with texts and has no classes of its own; name some: --labels 'a cat,a dog'");
  if (zero_shot && !compares)
    fail_usage("classify: --labels: ", m.checkpoint.path, " (", m.checkpoint.family,
               ") does not compare pictures with texts; CLIP and SigLIP do");
  std::vector<std::vector<float>> words;
  if (zero_shot) {
    const Checkpoint text = open_text_tower(name, m);
    Dim cut = 0;
    words = embed_texts(*m.device, text, zero_shot->texts, std::nullopt, false, {}, &cut);
    if (cut > 0 && !common.quiet)
      note(concat("note: ", cut, " of ", words.size(),
                  " labels are longer than the model reads; their ends were left out"));
  }
  Progress bar("reading", common.quiet);
  read_picture_files(process, paths, [&](std::size_t first, std::span<const Picture> pictures) {
    const auto probabilities =
        zero_shot ? match_vectors(m.checkpoint, embed_pictures(*m.device, m.checkpoint, pictures), words)
                        .probabilities
                  : classify_pictures(*m.device, m.checkpoint, pictures);
    bar.clear();
    for (std::size_t i = 0; i < probabilities.size(); ++i)
      print_classes({"image", paths[first + i], static_cast<Dim>(first + i), paths.size() > 1},
                    probabilities[i], top, common.json, [&](std::size_t k) {
                      return zero_shot ? zero_shot->labels[k] : class_name(m.checkpoint, k);
                    });
    bar.step(static_cast<double>(first + pictures.size()), static_cast<double>(paths.size()));
  });
  return 0;
}

int run(Args& args) {
  CommonArgs common = common_args(args);
  lora_args(args, common);
  const auto top = static_cast<std::size_t>(args.number("top-k", 1, 1 << 20).value_or(5));
  const std::optional<std::string> in = args.value("in"), labels = args.value("labels"),
                                   frame = args.value("template");
  std::vector<std::string> images = args.values("image");
  const std::vector<std::string> words =
      args.operands(1, std::size_t{1} << 20, "a model, and texts or pictures");
  if (images.empty()) {
    if (labels || frame) fail_usage(labels ? "--labels" : "--template", " is for pictures: --image FILE");
    return classify_lines(words[0], common, top, given_texts(std::span(words).subspan(1), in));
  }
  if (in) fail_usage("--in names texts, --image a picture; a model reads one of the two");
  if (frame && !labels) fail_usage("--template puts words around --labels, which are missing");
  images.insert(images.end(), words.begin() + 1, words.end());
  std::optional<ZeroShot> zero_shot;
  if (labels) zero_shot = zero_shot_labels(*labels, frame);
  return classify_files(words[0], common, top, picture_paths(images), zero_shot);
}

}  // namespace

extern const Verb kClassify;
const Verb kClassify = {
    "classify", "the class of a text or a picture",
    "Usage: rapt classify MODEL [TEXT…] [flags]\n"
    "       rapt classify MODEL --image FILE… [--labels 'a cat,a dog'] [flags]\n"
    "\n"
    "MODEL is a classifier (BertForSequenceClassification, or what `rapt train` made from labelled lines).\n"
    "One line per TEXT: its classes with their probabilities, the most probable first. Without a TEXT (or\n"
    "with -), each line of standard input is one. `rapt eval MODEL --classify LABEL=FILE,…` measures how\n"
    "often it is right.\n"
    "\n"
    "--image: MODEL is a classifier of pictures (ViT, DeiT, DINOv2), or compares pictures with texts\n"
    "(CLIP, SigLIP) and gets the labels to choose from. Pictures are PNG or JPEG files, or folders of such;\n"
    "they are prepared as the model's preprocessor_config.json says. One line per picture.\n"
    "\n"
    "  --image FILE      a picture, or a folder of pictures; all further words are pictures, too\n"
    "  --labels A,B,…    CLIP and SigLIP: what to choose from. CLIP's probabilities add up to 1, SigLIP's\n"
    "                    are each for itself\n"
    "  --template T      words around a label ('This is a photo of {}.')\n"
    "  -k, --top-k N     at most so many classes (5)\n"
    "  --in FILE         texts are the lines of FILE (may be .gz)\n"
    "  --lora FILE[=S]   an adapter (LoRA) beside the model's weights, times S; may come many times\n"
    "  --json            one JSON object per text or picture: classes with label and probability\n"
    "  -t, --threads N   threads (as many as the process may use)\n"
    "  -q, --quiet       no progress, no notes\n"
    "\n"
    "Examples:\n"
    "  rapt train bert --data de=train.de,en=train.en --set width=64 --set layers=2 --set heads=4 --set "
    "ffn=128 --out out/language\n"
    "  rapt classify out/language 'Ein Hund läuft.' 'A dog runs.'\n"
    "  rapt classify out/language --in lines.txt --json\n"
    "  rapt classify vit-base-patch16-224 --image cat.jpg dog.png\n"
    "  rapt classify clip-vit-base-patch32 --image photos --labels 'cat,dog' --template 'a photo of a {}.'\n",
    run};

}  // namespace rapt::cli
