// SPDX-License-Identifier: Apache-2.0
// rapt inspect VIEW MODEL [TEXT]: reads the model and the text, lets the view make its document, and writes
// it as asked. Views: inspect_*.cc, one line each in the table below.
#include <algorithm>
#include <cmath>
#include <filesystem>

#include "rapt/apps/cli/document_files.h"
#include "rapt/apps/cli/inspect_tools.h"
#include "rapt/base/text.h"
#include "rapt/nn/patches.h"
#include "rapt/recipe/presets.h"
#include "rapt/report/picture.h"
#include "rapt/text/words.h"
#include "rapt/use/picture_files.h"
#include "rapt/use/translate.h"

namespace rapt::cli {

extern const View kHeadsView, kAttentionView, kSinksView;
extern const View kMassiveView, kOutliersView, kGatesView, kLensView, kNormsView, kCompareView, kExpertsView,
    kStateView, kPositionsView, kWeightsView, kReportView, kTensorsView, kStepsView, kAttributionView,
    kPatchingView;

namespace {

const View* const kViews[] = {
    &kHeadsView,    &kAttentionView, &kStepsView,     &kSinksView,   &kMassiveView, &kOutliersView,
    &kGatesView,    &kExpertsView,   &kStateView,     &kLensView,    &kNormsView,   &kAttributionView,
    &kPatchingView, &kCompareView,   &kPositionsView, &kWeightsView, &kTensorsView, &kReportView};

}  // namespace

std::vector<std::string> view_names() {
  std::vector<std::string> out;
  for (const View* v : kViews) out.emplace_back(v->name);
  return out;
}

namespace {

const char* const kDefaultText =
    "The cat sat on the mat because it was warm, and the dog, "
    "who had been out in the rain, lay down beside it.";

std::string make_help() {
  std::string help = "Usage: rapt inspect VIEW MODEL [TEXT]\n\nViews:\n";
  for (const View* v : kViews) help += concat("  ", padded(v->name, 12), v->summary, "\n");
  help +=
      "\nTEXT may be - for standard input; without one a sentence of ours is taken. The numbers come from\n"
      "the model as it runs: fused, quantized, at any length.\n"
      "\n"
      "  --file FILE          the text of a file\n"
      "  --ids \"1 2 3\"        token ids instead of a text\n"
      "  --image FILE         a picture, PNG or JPEG, for a model that reads such; its rows are called cls,\n"
      "                       register 0, patch 3,4\n"
      "  --tokens N           only the first N tokens\n"
      "  --target TEXT        of an encoder-decoder: what its decoder reads (the first 64 tokens of its\n"
      "                       own answer)\n"
      "  --json               the view's numbers, the tokens and the model as JSON (docs/inspect-json.md)\n"
      "  --parts              the page's tables, maps and charts as JSON instead\n"
      "  --out FILE           the first map or chart as .svg, .png or .txt; FOLDER/: all of them\n"
      "  --html FILE          one page that needs no network\n"
      "  --force              replaces files\n"
      "  -t, --threads N      threads\n";
  for (const View* v : kViews)
    if (*v->flags) help += concat("\n", v->name, ":\n", v->flags);
  return help +
         "\nExamples:\n"
         "  rapt inspect heads SmolLM2-135M-Instruct.Q4_1.gguf --metric previous\n"
         "  rapt inspect attention gemma-3-270m-q4_k_m.gguf --file book.txt --layer 5 "
         "--head 1 --out map.png\n"
         "  rapt inspect attention vit-base-patch16-224 --image cat.jpg --out map.png\n"
         "  rapt inspect sinks SmolLM2-135M-Instruct.Q4_1.gguf --file book.txt\n";
}

const View& find_view(const std::string& name) {
  std::vector<std::string> known;
  for (const View* v : kViews) {
    if (name == v->name) return *v;
    known.push_back(v->name);
  }
  fail_usage("'", name, "' is no view; known: ", join(known), " (rapt inspect --help)");
}

struct Input {
  std::optional<std::string> ids, file, target, image;
  Dim tokens = 0;  // at most; 0: all
};

void read_text(Subject& s, const Input& in, const std::string* operand) {
  const Checkpoint& c = s.checkpoint;
  std::vector<std::int32_t> ids;
  if (in.ids) {
    ids = parse_ids(*in.ids, "ids");
  } else {
    std::string text = operand ? *operand : kDefaultText;
    if (in.file) text = read_text_file(*in.file);
    else if (text == "-") text = read_stdin(std::size_t{64} << 20);
    ids = tokenizer_of(c).encode(text);
  }
  // What is too long is cut before its frame (BOS, [CLS] … [SEP]) is put around it.
  const bool framed = !in.ids;
  const Dim frame = framed ? static_cast<Dim>(c.tokenizer->before.size() + c.tokenizer->after.size()) : 0;
  const Dim most = in.tokens > 0 ? in.tokens : c.model->recipe.context,
            whole = static_cast<Dim>(ids.size()) + frame;
  if (most > 0 && whole > most) {
    if (most <= frame)
      fail_usage("--tokens ", most, ": ", frame, " stand around every text of this model; give more");
    if (in.tokens == 0) note(concat("note: only the first ", most, " of ", whole, " tokens fit the model"));
    ids.resize(static_cast<std::size_t>(most - frame));
  }
  if (framed) ids = c.tokenizer->frame(std::move(ids));
  if (c.model->encoder && c.model->decoder) {
    s.source = std::move(ids);
    s.ids = decoder_ids(s.device(), c, s.source, in.target);
  } else {
    if (in.target) fail_usage("--target: ", c.path, " has no encoder; its text is TEXT alone");
    s.ids = std::move(ids);
  }
}

// The picture as the model reads it, and as it looks: colours back from what they were made into.
void read_picture(ViewRequest& s, const std::string& path) {
  const ImageProcess process = image_process_of(s.checkpoint, "inspect");
  s.prepared = read_prepared_image(process, path);
  const PreparedImage& p = s.prepared;
  const Picture picture{p.pixels, p.height, p.width};
  const Batch batch = picture_batch(s.net().recipe, {&picture, 1});
  for (Dim i = 0; i < batch.sequences[0].count; ++i) s.ids.push_back(static_cast<std::int32_t>(i));
  s.ids.picture = picture;
  s.shown.width = static_cast<int>(p.width), s.shown.height = static_cast<int>(p.height);
  const auto area = static_cast<std::size_t>(p.width * p.height);
  for (std::size_t i = 0; i < area; ++i)
    for (std::size_t c = 0; c < 3; ++c) {
      double x = static_cast<double>(p.pixels[c * area + i]);
      if (process.normalize) x = x * process.std[c] + process.mean[c];
      if (process.rescale) x /= process.rescale_factor;
      s.shown.rgb.push_back(static_cast<unsigned char>(std::clamp(std::lround(x), 0L, 255L)));
    }
}

Json tokens_json(const Tokenizer* tokenizer, std::span<const std::int32_t> ids) {
  Json::Array numbers, texts;
  for (std::int32_t id : ids) numbers.emplace_back(static_cast<std::int64_t>(id));
  for (std::string& text : token_texts(tokenizer, ids)) texts.emplace_back(std::move(text));
  return Json::Object{{"ids", std::move(numbers)}, {"tokens", std::move(texts)}};
}

// Numbers of the view that are none: NaN or infinite.
Dim broken_numbers(const Json& j) {
  Dim count = j.is_number() && !std::isfinite(j.number());
  if (j.is_array())
    for (const Json& x : j.array()) count += broken_numbers(x);
  if (j.is_object())
    for (const Json::Member& m : j.object()) count += broken_numbers(m.value);
  return count;
}

// docs/inspect-json.md
Json data_json(const ViewRequest& s, const View& view, const Document& d) {
  const Checkpoint& c = s.checkpoint;
  Json j = Json::Object{{"view", view.name}, {"model", model_name(s.checkpoint)}};
  if (c.model) j.set("family", c.family);
  if (s.other) j.set("other_model", model_name(s.other->checkpoint));
  if (s.ids.picture) {
    Json::Array rows;
    for (std::string& row : s.words()) rows.emplace_back(std::move(row));
    j.set("picture",
          Json::Object{
              {"height", s.ids.picture->height}, {"width", s.ids.picture->width}, {"rows", std::move(rows)}});
  } else if (!s.ids.empty()) {
    j.set("text", tokens_json(c.tokenizer.get(), s.ids));
  }
  if (!s.source.empty()) j.set("source", tokens_json(c.tokenizer.get(), s.source));
  j.set("data", *document_json(d).find("facts"));
  return j;
}

bool is_preset(const std::string& name) {
  const auto files = preset_files();
  return std::any_of(files.begin(), files.end(), [&](const PresetFile& f) { return f.name == name; });
}

int run(Args& args) {
  // The view's name decides which other flags there are, so it comes first.
  const std::string name = args.first();
  if (name.empty())
    fail_usage(
        "a view, a model and perhaps a text are needed: rapt inspect heads MODEL (rapt inspect --help)");
  const View& view = find_view(name);
  const CommonArgs common = common_args(args);
  const std::vector<std::string> images = args.values("image");
  if (images.size() > 1) fail_usage("--image: one picture is looked at, ", images.size(), " are named");
  Input in{.ids = args.value("ids"),
           .file = args.value("file"),
           .target = args.value("target"),
           .image = images.empty() ? std::nullopt : std::optional(images[0]),
           .tokens = args.number("tokens", 1, Dim{1} << 40).value_or(0)};
  const std::optional<std::string> out = view.file ? std::nullopt : args.value("out"),
                                   html = args.value("html");
  const bool force = args.flag("force"), parts = args.flag("parts");
  const auto make = view.parse(args);
  const auto models = static_cast<std::size_t>(view.models);
  const std::vector<std::string> words = args.operands(
      1 + models, 2 + models,
      view.models > 1 ? "compare, two models, and perhaps a text" : "a view, a model, and perhaps a text");
  const std::string* text = words.size() > 1 + models ? &words.back() : nullptr;
  if ((text != nullptr) + in.ids.has_value() + in.file.has_value() + in.image.has_value() > 1)
    fail_usage("one text or picture is looked at: TEXT, --ids, --file or --image");
  const LoadOptions load{.tower = in.image ? Tower::vision : Tower::text};
  check_document_files(out, html, force);

  OpenModel first, second;
  const bool reads = view.needs == View::Needs::text, files = view.needs == View::Needs::files;
  if (files || (!reads && is_preset(words[1]) && !std::filesystem::exists(words[1]))) {
    first.device = std::make_unique<Device>(DeviceOptions{.threads = common.threads});
    note_threads(*first.device, common);
    first.checkpoint.path = files ? find_model(words[1]) : words[1];
  } else {
    first = open_model(words[1], common, load);
  }
  ViewRequest s(first, common);
  s.html = html.value_or(""), s.force = force;
  if (reads && !in.image && s.net().recipe.embed.patches)
    fail_usage(words[1], " reads pictures; give one with --image FILE");
  if (reads && in.image) read_picture(s, *in.image);
  else if (reads) read_text(s, in, text);
  else if (text || in.ids || in.file || in.target || in.image) fail_usage(view.name, " looks at no text");
  if (models > 1) {
    second = open_model(words[2], common, load);
    s.other = &second;
  }
  const Document d = make(s);
  if (const Dim broken = broken_numbers(d.facts); broken > 0)
    note(concat(
        "warning: ", with_commas(broken), broken == 1 ? " number" : " numbers",
        " of this view came out as NaN or infinite (the weights are broken, or values outgrew their format): "
        "null in JSON, grey in "
        "pictures"));
  if (out) write_pictures(d, *out, force, common.quiet);
  if (html && !view.page) write_page(d, *html, force, common.quiet);
  if (parts) print(document_json(d).dump() + "\n");
  else if (common.json) print(data_json(s, view, d).dump() + "\n");
  else if (!out && (!html || view.page)) print(document_text(d, color_on_stdout(), columns_of_stdout()));
  return 0;
}

}  // namespace

extern const Verb kInspect;
const Verb kInspect = {"inspect", "looks inside a model while it reads a text", "", run, make_help};

}  // namespace rapt::cli
