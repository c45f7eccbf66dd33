// SPDX-License-Identifier: Apache-2.0
// rapt eval: how well a model predicts a text.
#include <chrono>

#include "rapt/apps/cli/model_args.h"
#include "rapt/base/text.h"

namespace rapt::cli {
namespace {

int run(Args& args) {
  const CommonArgs common = common_args(args);
  const std::optional<std::string> file = args.value("perplexity");
  args.letter('c', "context");
  const Dim context = args.number("context", 4, Dim{1} << 30).value_or(512);
  const Dim chunks = args.number("chunks", -1, Dim{1} << 40).value_or(-1);
  const std::string name = args.operands(1, 1, "model")[0];
  if (!file) fail_usage("what to measure? --perplexity FILE is what there is");
  const std::string text = *file == "-" ? read_stdin(std::size_t{1} << 30) : read_text_file(*file, std::uint64_t{1} << 30);

  const OpenModel m = open_model(name, common);
  const Tokenizer& tokenizer = tokenizer_of(m.checkpoint);
  const auto started = std::chrono::steady_clock::now();
  std::vector<std::int32_t> ids = tokenizer.encode(text);
  const double seconds_tokens = std::chrono::duration<double>(std::chrono::steady_clock::now() - started).count();
  if (tokenizer.add_bos && tokenizer.bos >= 0) ids.insert(ids.begin(), tokenizer.bos);
  if (context > m.checkpoint.model->recipe.context)
    note(concat("note: a context of ", context, " tokens is more than the model was made for (", m.checkpoint.model->recipe.context, ")"));
  Progress bar("perplexity", common.quiet);
  const auto start = std::chrono::steady_clock::now();
  const Perplexity p = perplexity(*m.device, m.checkpoint, ids, context, chunks, [&](Dim done, Dim of, double so_far) {
    bar.step(static_cast<double>(done), static_cast<double>(of), fixed(so_far, 4));
  });
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  bar.clear();
  const double rate = static_cast<double>(p.chunks * context) / seconds;
  if (common.json) {
    Json j = Json::Object{};
    j.set("model", name);
    j.set("perplexity", p.perplexity);
    j.set("error", p.error);
    j.set("nll", p.nll);
    j.set("context", context);
    j.set("chunks", p.chunks);
    j.set("tokens", p.tokens);
    j.set("text_tokens", static_cast<Dim>(ids.size()));
    j.set("seconds", seconds);
    j.set("tokens_per_second", rate);
    print(j.dump() + "\n");
    return 0;
  }
  print(concat("perplexity ", fixed(p.perplexity, 4), " ± ", fixed(p.error, 4), "  (", p.chunks, " windows of ", context, " tokens, ",
               with_commas(p.tokens), " tokens counted)\n"));
  if (common.verbose)
    note(concat("loaded in ", fixed(m.seconds, 2), " s, ", ids.size(), " tokens made in ", fixed(seconds_tokens, 2), " s, computed in ",
                fixed(seconds, 1), " s: ", fixed(rate, 0), " tokens/s on ", m.device->threads(), " threads (", m.device->kernels.isa, ")"));
  return 0;
}

}  // namespace

extern const Verb kEval;
const Verb kEval = {
    "eval", "how well a model predicts a text (perplexity)",
    "Usage: rapt eval MODEL --perplexity FILE [--context 512] [--chunks N] [flags]\n"
    "\n"
    "The text is cut into windows of --context tokens, one after the other; in each, the second half counts (each token there is\n"
    "predicted from at least half a window). A model that wants a beginning-of-text token gets it in the place of each window's\n"
    "first token. This is llama-perplexity's definition, so numbers can be compared. FILE may be - for standard input.\n"
    "\n"
    "  -c, --context N   tokens of a window (512)\n"
    "  --chunks N        only the first N windows\n"
    "  --json            the figures as JSON\n"
    "  --verbose         times\n"
    "  -t, --threads N   threads (as many as the process may use)\n"
    "  -q, --quiet       no progress\n"
    "\n"
    "Examples:\n"
    "  rapt eval model.gguf --perplexity wiki.test.raw\n"
    "  rapt eval model.gguf --perplexity wiki.test.raw --chunks 20 --json\n",
    run};

}  // namespace rapt::cli
