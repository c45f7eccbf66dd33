// SPDX-License-Identifier: Apache-2.0
// rapt logits: what the model computes for given ids, as an array.
#include <algorithm>
#include <cmath>

#include "rapt/apps/cli/model_args.h"
#include "rapt/base/text.h"
#include "rapt/io/npy.h"
#include "rapt/nn/patches.h"
#include "rapt/use/read_pictures.h"

namespace rapt::cli {
namespace {

// Returns how many of them are NaN or infinite.
Dim write_rows(NpyWriter& file, const Tensor& rows) {
  std::vector<float> narrow;
  if (rows.dtype != DType::f32)
    for (Dim i = 0; i < rows.elements(); ++i) narrow.push_back(static_cast<float>(rows.at(i)));
  const std::span<const float> values =
      rows.dtype == DType::f32 ? std::span<const float>(rows.as<float>()) : narrow;
  file.write(values);
  return std::count_if(values.begin(), values.end(), [](float v) { return !std::isfinite(v); });
}

const char* what_of(const HeadRecipe& h, bool hidden) {
  return hidden || h.kind == HeadRecipe::Kind::none ? "last hidden state"
         : h.kind == HeadRecipe::Kind::vector       ? "vectors"
                                                    : "logits";
}

void tell(const CommonArgs& common, const std::string& out, const std::vector<Dim>& shape, const char* what,
          Dim broken) {
  std::string sizes;
  Dim all = 1;
  for (const Dim n : shape) sizes += concat(sizes.empty() ? "" : ", ", n), all *= n;
  if (broken > 0)
    note(concat("warning: ", with_commas(broken), " of ", with_commas(all),
                " values are NaN or infinite: the weights are broken, or values outgrew their format"));
  if (common.json) {
    Json j = Json::Object{};
    j.set("out", out);
    j.set("rows", all / shape.back());
    j.set("columns", shape.back());
    j.set("not_finite", broken);
    j.set("what", std::string(what) == "last hidden state" ? "hidden" : what);
    print(j.dump() + "\n");
  } else if (!common.quiet) {
    note(concat(out, ": ", what, " [", sizes, "]"));
  }
}

// Pictures as the model reads them: [N, channels, height, width], or one without the first axis.
int read_pixels(const std::string& name, const CommonArgs& common, const std::string& pixels,
                const std::string& out, bool hidden, bool force) {
  NpyArray array = read_npy(pixels);
  if (array.shape.size() == 3) array.shape.insert(array.shape.begin(), 1);
  if (array.shape.size() != 4)
    fail(pixels, ": pictures are an array [N, channels, height, width]; this one has ", array.shape.size(),
         " axes");
  if (array.values.empty()) fail(pixels, ": holds no picture: one of its axes is 0");
  const OpenModel m = open_model(name, common, {.tower = Tower::vision});
  const Recipe& r = m.checkpoint.model->recipe;
  const Dim N = array.shape[0], channels = array.shape[1], height = array.shape[2], width = array.shape[3];
  if (r.embed.patches && channels != r.embed.patches->channels)
    fail(pixels, ": its pictures have ", channels, " channels, ", name, " reads ", r.embed.patches->channels);
  std::vector<Picture> pictures;
  const auto size = static_cast<std::size_t>(channels * height * width);
  for (Dim i = 0; i < N; ++i)
    pictures.push_back(
        {std::span(array.values).subspan(static_cast<std::size_t>(i) * size, size), height, width});
  Progress bar("computing", common.quiet);
  const auto results =
      read_pictures(*m.device, m.checkpoint, pictures, "logits", hidden,
                    [&](Dim done, Dim of) { bar.step(static_cast<double>(done), static_cast<double>(of)); });
  bar.clear();
  const Dim wide = static_cast<Dim>(results[0].size());
  const bool rows = hidden || !r.head.pools();
  const std::vector<Dim> shape =
      rows ? std::vector<Dim>{N, wide / r.width, r.width} : std::vector<Dim>{N, wide};
  NpyWriter file(out, shape, force);
  Dim broken = 0;
  for (const auto& values : results) {
    file.write(values);
    broken += std::count_if(values.begin(), values.end(), [](float v) { return !std::isfinite(v); });
  }
  file.commit();
  tell(common, out, shape, what_of(r.head, hidden), broken);
  return 0;
}

int run(Args& args) {
  const CommonArgs common = common_args(args);
  const std::optional<std::string> ids_text = args.value("ids"), decoder_text = args.value("decoder-ids"),
                                   pixels = args.value("pixels"), out = args.value("out");
  const bool hidden = args.flag("hidden");
  const DType cache_format = cache_type(args);
  const Dim chunk = args.number("chunk", 1, 1 << 20).value_or(256);
  const bool force = args.flag("force");
  const std::string name = args.operands(1, 1, "one model")[0];
  if (pixels && (ids_text || decoder_text))
    fail_usage("--pixels: pictures and --ids together; a model reads one of the two");
  if (!ids_text && !pixels)
    fail_usage("--ids is missing: the tokens, as in --ids \"1 2 3\" (pictures: --pixels FILE.npy)");
  if (!out) fail_usage("--out is missing: the file to write, as in --out logits.npy");
  if (pixels) return read_pixels(name, common, *pixels, *out, hidden, force);
  const std::vector<std::int32_t> ids =
      parse_ids(*ids_text == "-" ? read_stdin(std::size_t{1} << 28) : *ids_text, "--ids");
  const std::vector<std::int32_t> target =
      decoder_text ? parse_ids(*decoder_text, "--decoder-ids") : std::vector<std::int32_t>{};
  if (ids.empty()) fail_usage("--ids: no ids");

  const OpenModel m = open_model(name, common);
  const Model& model = *m.checkpoint.model;
  const Recipe& r = model.recipe;
  if (r.embed.patches) fail_usage("--ids: ", name, " reads pictures; give them by --pixels FILE.npy");
  const bool both = r.encoder && r.decoder;
  if (both && target.empty())
    fail_usage("--decoder-ids is missing: ", name, " is an encoder-decoder, --ids is what its encoder reads");
  if (!both && decoder_text)
    fail_usage("--decoder-ids: ", name, " has no encoder and decoder; --ids is all it reads");
  const std::vector<std::int32_t>& rows = both ? target : ids;
  const bool classes = r.head.pools() && !hidden;
  const Dim T = static_cast<Dim>(rows.size()), results = classes ? 1 : T,
            width = hidden || r.head.kind == HeadRecipe::Kind::none ? r.width
                    : r.head.kind == HeadRecipe::Kind::classes      ? r.head.classes
                    : r.head.kind == HeadRecipe::Kind::vector ? (r.head.width > 0 ? r.head.width : r.width)
                                                              : r.vocab;

  NpyWriter file(*out, {results, width}, force);
  rapt::Run pass(*m.device);
  Batch source{.tokens = ids};
  source.sequences.push_back({.first = 0, .count = static_cast<Dim>(ids.size())});
  // A decoder goes through a cache in pieces, so that a long text needs no [T,V] in memory; the bits are
  // those of one pass.
  KvPool cache(model, cache_format);
  const bool pieces = r.decoder && !r.head.pools();
  const Dim piece = pieces ? chunk : T;
  Progress bar("computing", common.quiet);
  Dim broken = 0;
  for (Dim at = 0; at < T; at += piece) {
    const Dim n = std::min(piece, T - at);
    Batch batch{.tokens = std::span(rows).subspan(static_cast<std::size_t>(at), static_cast<std::size_t>(n))};
    batch.sequences.push_back({.first = 0, .count = n, .past = at, .opened = T});
    batch.want.hidden = hidden;
    pass.reset();
    broken += write_rows(
        file, forward(pass, model, batch, both && at == 0 ? &source : nullptr, pieces ? &cache : nullptr));
    bar.step(static_cast<double>(at + n), static_cast<double>(T));
  }
  file.commit();
  bar.clear();
  tell(common, *out, {results, width}, what_of(r.head, hidden), broken);
  return 0;
}

}  // namespace

extern const Verb kLogits;
const Verb kLogits = {
    "logits", "what a model computes for given ids, as a NumPy array",
    "Usage: rapt logits MODEL --ids \"1 2 3\" [--decoder-ids \"0 4\"] --out FILE.npy [flags]\n"
    "       rapt logits MODEL --pixels PICTURES.npy --out FILE.npy [flags]\n"
    "\n"
    "Writes the logits of every token, [tokens, vocabulary] in f32; the last hidden state [tokens, width]\n"
    "where the model has no output matrix; one row [1, classes] of a classifier, or a vector (CLIP). Ids\n"
    "are taken as they are: nothing is put around them. --ids - reads them from standard input.\n"
    "\n"
    "  --pixels FILE.npy  pictures, [N, channels, height, width] as the model wants them (scaled and\n"
    "                     normalised); gives [N, classes], [N, width] or hidden states [N, rows, width].\n"
    "                     Of a folder with two models (CLIP, SigLIP) --pixels takes the one of pictures,\n"
    "                     --ids that of texts\n"
    "  --hidden           the last hidden state, whatever the head\n"
    "  --decoder-ids IDS  encoder-decoders: what the decoder reads, its start token first (--ids is\n"
    "                     the source)\n"
    "  --cache-type T     how keys and values are kept: f32, f16, bf16, q8_0, q4_0 (f32)\n"
    "  -b, --chunk N      tokens per pass (256); the numbers do not depend on it\n"
    "  --force            overwrite FILE.npy\n"
    "  -t, --threads N    threads (as many as the process may use)\n"
    "  -q, --quiet        no progress, no message\n"
    "\n"
    "Examples:\n"
    "  rapt logits model.gguf --ids \"$(rapt tokenize model.gguf 'Hello')\" --out logits.npy\n"
    "  rapt logits clip-vit-base-patch32 --pixels pictures.npy --out vectors.npy\n"
    "  rapt logits opus-mt-en-de --ids \"76 21 0\" --decoder-ids \"58100\" --out logits.npy\n",
    run};

}  // namespace rapt::cli
