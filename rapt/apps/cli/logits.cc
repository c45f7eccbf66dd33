// SPDX-License-Identifier: Apache-2.0
// rapt logits: what the model computes for given ids, as an array.
#include <algorithm>
#include <cmath>

#include "rapt/apps/cli/model_args.h"
#include "rapt/base/text.h"
#include "rapt/io/npy.h"

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

int run(Args& args) {
  const CommonArgs common = common_args(args);
  const std::optional<std::string> ids_text = args.value("ids"), decoder_text = args.value("decoder-ids"),
                                   out = args.value("out");
  const DType cache_format = cache_type(args);
  const Dim chunk = args.number("chunk", 1, 1 << 20).value_or(256);
  const bool force = args.flag("force");
  const std::string name = args.operands(1, 1, "one model")[0];
  if (!ids_text) fail_usage("--ids is missing: the tokens, as in --ids \"1 2 3\"");
  if (!out) fail_usage("--out is missing: the file to write, as in --out logits.npy");
  const std::vector<std::int32_t> ids =
      parse_ids(*ids_text == "-" ? read_stdin(std::size_t{1} << 28) : *ids_text, "--ids");
  const std::vector<std::int32_t> target =
      decoder_text ? parse_ids(*decoder_text, "--decoder-ids") : std::vector<std::int32_t>{};
  if (ids.empty()) fail_usage("--ids: no ids");

  const OpenModel m = open_model(name, common);
  const Model& model = *m.checkpoint.model;
  const Recipe& r = model.recipe;
  const bool both = r.encoder && r.decoder;
  if (both && target.empty())
    fail_usage("--decoder-ids is missing: ", name, " is an encoder-decoder, --ids is what its encoder reads");
  if (!both && decoder_text)
    fail_usage("--decoder-ids: ", name, " has no encoder and decoder; --ids is all it reads");
  const std::vector<std::int32_t>& rows = both ? target : ids;
  const bool classes = r.head.kind == HeadRecipe::Kind::classes;
  const Dim T = static_cast<Dim>(rows.size()), results = classes ? 1 : T,
            width = classes                                 ? r.head.classes
                    : r.head.kind == HeadRecipe::Kind::none ? r.width
                                                            : r.vocab;

  NpyWriter file(*out, {results, width}, force);
  rapt::Run pass(*m.device);
  Batch source{.tokens = ids};
  source.sequences.push_back({.first = 0, .count = static_cast<Dim>(ids.size())});
  // A decoder goes through a cache in pieces, so that a long text needs no [T,V] in memory; the bits are
  // those of one pass.
  KvPool cache(model, cache_format);
  const bool pieces = r.decoder && !classes;
  const Dim piece = pieces ? chunk : T;
  Progress bar("computing", common.quiet);
  Dim broken = 0;
  for (Dim at = 0; at < T; at += piece) {
    const Dim n = std::min(piece, T - at);
    Batch batch{.tokens = std::span(rows).subspan(static_cast<std::size_t>(at), static_cast<std::size_t>(n))};
    batch.sequences.push_back({.first = 0, .count = n, .past = at, .opened = T});
    pass.reset();
    broken += write_rows(
        file, forward(pass, model, batch, both && at == 0 ? &source : nullptr, pieces ? &cache : nullptr));
    bar.step(static_cast<double>(at + n), static_cast<double>(T));
  }
  file.commit();
  bar.clear();
  if (broken > 0)
    note(concat("warning: ", with_commas(broken), " of ", with_commas(results * width),
                " values are NaN or infinite: the weights are broken, or values outgrew their format"));
  if (common.json) {
    Json j = Json::Object{};
    j.set("out", *out);
    j.set("rows", results);
    j.set("columns", width);
    j.set("not_finite", broken);
    j.set("what", std::string(r.head.kind == HeadRecipe::Kind::none ? "hidden" : "logits"));
    print(j.dump() + "\n");
  } else if (!common.quiet) {
    note(concat(*out, ": ", r.head.kind == HeadRecipe::Kind::none ? "last hidden state" : "logits", " [",
                results, ", ", width, "]"));
  }
  return 0;
}

}  // namespace

extern const Verb kLogits;
const Verb kLogits = {
    "logits", "what a model computes for given ids, as a NumPy array",
    "Usage: rapt logits MODEL --ids \"1 2 3\" [--decoder-ids \"0 4\"] --out FILE.npy [flags]\n"
    "\n"
    "Writes the logits of every token, [tokens, vocabulary] in f32; the last hidden state [tokens, width]\n"
    "where the model has no output matrix; one row [1, classes] of a classifier. Ids are taken as they\n"
    "are: nothing is put around them. --ids - reads them from standard input.\n"
    "\n"
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
    "  rapt logits opus-mt-en-de --ids \"76 21 0\" --decoder-ids \"58100\" --out logits.npy\n",
    run};

}  // namespace rapt::cli
