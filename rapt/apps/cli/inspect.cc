// SPDX-License-Identifier: Apache-2.0
// rapt inspect VIEW MODEL [TEXT]: reads the model and the text, lets the view make its document, and writes it as asked. Views:
// inspect_*.cc, one line each in the table below.
#include <algorithm>
#include <filesystem>

#include "rapt/apps/cli/inspect_view.h"
#include "rapt/base/text.h"
#include "rapt/inspect/picture.h"
#include "rapt/nn/presets.h"
#include "rapt/use/generate.h"

namespace rapt::cli {

extern const View kHeadsView, kAttentionView, kSinksView;
extern const View kMassiveView, kOutliersView, kGatesView, kLensView, kNormsView, kCompareView, kPositionsView, kReportView, kTensorsView;

std::string stack_name(Stack stack) { return stack == Stack::encoder ? "encoder" : "decoder"; }

namespace {

const View* const kViews[] = {&kHeadsView, &kAttentionView, &kSinksView,   &kMassiveView,   &kOutliersView, &kGatesView,
                              &kLensView,  &kNormsView,     &kCompareView, &kPositionsView, &kTensorsView,  &kReportView};

const char* const kDefaultText =
    "The cat sat on the mat because it was warm, and the dog, who had been out in the rain, lay down beside it.";

std::string make_help() {
  std::string help = "Usage: rapt inspect VIEW MODEL [TEXT]\n\nViews:\n";
  for (const View* v : kViews) help += concat("  ", padded(v->name, 12), v->summary, "\n");
  help +=
      "\nTEXT may be - for standard input; without one a sentence of ours is taken. The numbers come from the model as it runs: fused,\n"
      "quantized, at any length.\n"
      "\n"
      "  --file FILE          the text of a file\n"
      "  --ids \"1 2 3\"        token ids instead of a text\n"
      "  --tokens N           only the first N tokens\n"
      "  --target TEXT        of an encoder-decoder: what its decoder reads (the first 64 tokens of its own answer)\n"
      "  --json               everything as JSON\n"
      "  --out FILE           the first map or chart as .svg, .png or .txt; FOLDER/: all of them\n"
      "  --html FILE          one page that needs no network\n"
      "  --force              replaces files\n"
      "  -t, --threads N      threads\n";
  for (const View* v : kViews)
    if (*v->flags) help += concat("\n", v->name, ":\n", v->flags);
  return help +
         "\nExamples:\n"
         "  rapt inspect heads SmolLM2-135M-Instruct.Q4_1.gguf --metric previous\n"
         "  rapt inspect attention gemma-3-270m-q4_k_m.gguf --file book.txt --layer 5 --head 1 --out map.png\n"
         "  rapt inspect sinks SmolLM2-135M-Instruct.Q4_1.gguf --file book.txt\n";
}
const std::string kHelp = make_help();

const View& find_view(const std::string& name) {
  std::vector<std::string> known;
  for (const View* v : kViews) {
    if (name == v->name) return *v;
    known.push_back(v->name);
  }
  fail_usage("'", name, "' is no view; known: ", join(known), " (rapt inspect --help)");
}

struct Input {
  std::optional<std::string> ids, file, target;
  Dim tokens = 0;  // at most; 0: all
};

// What the decoder of an encoder-decoder reads: its start and the target, or what it would answer itself.
std::vector<std::int32_t> decoder_ids(const Subject& s, const Input& in) {
  constexpr Dim kAnswer = 64;
  const Checkpoint& c = s.model.checkpoint;
  if (c.decoder_start < 0)
    fail(c.path, " does not say which token its answers start from; its config.json should have decoder_start_token_id");
  std::vector<std::int32_t> ids = {c.decoder_start}, rest;
  if (in.target) {
    rest = tokenizer_of(c).encode(*in.target);
  } else {
    GenerateOptions greedy{.max_tokens = c.model->recipe.context > 0 ? std::min(kAnswer, c.model->recipe.context - 1) : kAnswer};
    greedy.sampler.temperature = 0;
    rest = Session(s.device(), c, {}).translate(s.source, greedy).at(0).ids;
  }
  ids.insert(ids.end(), rest.begin(), rest.end());
  if (c.model->recipe.context > 0 && static_cast<Dim>(ids.size()) > c.model->recipe.context)
    fail_usage("--target has ", rest.size(), " tokens; with its start ", c.model->recipe.context, " fit the model");
  return ids;
}

void read_text(Subject& s, const Input& in, const std::string* operand) {
  const Checkpoint& c = s.model.checkpoint;
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
  const Dim most = in.tokens > 0 ? in.tokens : c.model->recipe.context, whole = static_cast<Dim>(ids.size()) + frame;
  if (most > 0 && whole > most) {
    if (most <= frame) fail_usage("--tokens ", most, ": ", frame, " stand around every text of this model; give more");
    if (in.tokens == 0) note(concat("note: only the first ", most, " of ", whole, " tokens fit the model"));
    ids.resize(static_cast<std::size_t>(most - frame));
  }
  if (framed) ids = c.tokenizer->frame(std::move(ids));
  for (std::int32_t id : ids) s.words.push_back(c.tokenizer ? c.tokenizer->decode(std::span(&id, 1), true) : std::to_string(id));
  if (c.model->encoder && c.model->decoder) {
    s.source = std::move(ids);
    s.ids = decoder_ids(s, in);
  } else {
    if (in.target) fail_usage("--target: ", c.path, " has no encoder; its text is TEXT alone");
    s.ids = std::move(ids);
  }
}

bool is_picture(const auto& part) { return std::holds_alternative<HeatMap>(part) || std::holds_alternative<Chart>(part); }

void write_part(const auto& part, const std::string& path, bool force) {
  if (const auto* map = std::get_if<HeatMap>(&part)) write_picture(*map, path, force);
  else write_picture(std::get<Chart>(part), path, force);
}

void write_pictures(const Document& d, const std::string& out, bool force) {
  const bool folder = out.ends_with('/') || std::filesystem::is_directory(out);
  if (folder) std::filesystem::create_directories(out);
  int n = 0;
  for (const auto& part : d.parts) {
    if (!is_picture(part)) continue;
    ++n;
    if (!folder) return write_part(part, out, force);
    write_part(part, concat(out, out.ends_with('/') ? "" : "/", d.name, "-", n, ".svg"), force);
  }
  if (n == 0) fail("inspect: view ", d.name, " has no map or chart for ", out, "; use --json or --html");
}

bool is_preset(const std::string& name) {
  const auto files = preset_files();
  return std::any_of(files.begin(), files.end(), [&](const PresetFile& f) { return f.name == name; });
}

int run(Args& args) {
  // The view's name decides which other flags there are, so it comes first.
  const std::string name = args.first();
  if (name.empty()) fail_usage("a view, a model and perhaps a text are needed: rapt inspect heads MODEL (rapt inspect --help)");
  const View& view = find_view(name);
  const CommonArgs common = common_args(args);
  Input in{.ids = args.value("ids"),
           .file = args.value("file"),
           .target = args.value("target"),
           .tokens = args.number("tokens", 1, Dim{1} << 40).value_or(0)};
  const std::optional<std::string> out = args.value("out"), html = args.value("html");
  const bool force = args.flag("force");
  const auto make = view.parse(args);
  const auto models = static_cast<std::size_t>(view.models);
  const std::vector<std::string> words = args.operands(
      1 + models, 2 + models, view.models > 1 ? "words: compare, two models, and a text" : "words: a view, a model, and a text");
  const std::string* text = words.size() > 1 + models ? &words.back() : nullptr;
  if ((text != nullptr) + in.ids.has_value() + in.file.has_value() > 1) fail_usage("one text is looked at: TEXT, --ids or --file");
  if (out && !out->ends_with('/') && !std::filesystem::is_directory(*out)) check_picture_name(*out, true);

  OpenModel first, second;
  if (view.preset && is_preset(words[1]) && !std::filesystem::exists(words[1])) {
    first.device = std::make_unique<Device>(DeviceOptions{.threads = common.threads});
    first.checkpoint.path = words[1];
  } else {
    first = open_model(words[1], common);
  }
  Subject s{.model = first, .ids = {}, .source = {}, .words = {}, .common = common, .html = html.value_or(""), .force = force};
  if (!view.preset) read_text(s, in, text);
  else if (text || in.ids || in.file || in.target) fail_usage(view.name, " looks at no text");
  if (models > 1) {
    second = open_model(words[2], common);
    s.other = &second;
  }
  const Document d = make(s);
  if (out) write_pictures(d, *out, force);
  if (html && !view.page) {
    FileWriter file(*html, force);
    file.write(documents_html(d.title, std::span(&d, 1)));
    file.commit();
  }
  if (common.json) print(document_json(d).dump() + "\n");
  else if (!out && (!html || view.page)) print(document_text(d, color_on_stdout(), columns_of_stdout()));
  return 0;
}

}  // namespace

extern const Verb kInspect;
const Verb kInspect = {"inspect", "looks inside a model while it reads a text", kHelp.c_str(), run};

}  // namespace rapt::cli
