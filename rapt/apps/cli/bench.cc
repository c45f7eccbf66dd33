// SPDX-License-Identifier: Apache-2.0
// rapt bench: how fast a model reads a prompt and writes tokens.
#include <cmath>
#include <filesystem>

#include "rapt/apps/cli/model_args.h"
#include "rapt/base/clock.h"
#include "rapt/base/rng.h"
#include "rapt/base/text.h"
#include "rapt/use/decoder.h"

namespace rapt::cli {
namespace {

std::vector<Dim> numbers(Args& args, std::string_view name, std::vector<Dim> otherwise, Dim most) {
  const std::optional<std::string> text = args.value(name);
  if (!text) return otherwise;
  std::vector<Dim> out;
  for (std::int32_t n : parse_ids(*text, concat("--", name), "length")) {
    if (n > most) fail_usage("--", name, ": ", n, " is more than ", most);
    out.push_back(n);
  }
  return out;
}

struct Result {
  std::string test;
  Dim prompt = 0, generated = 0, depth = 0;
  double mean = 0, deviation = 0;  // tokens per second
};

int run(Args& args) {
  const CommonArgs common = common_args(args);
  const std::vector<Dim> prompts = numbers(args, "prompt", {512}, 1 << 24),
                         generated = numbers(args, "max-tokens", {128}, 1 << 24),
                         depths = numbers(args, "depth", {0}, 1 << 24);
  const Dim repeat = args.number("repeat", 1, 10000).value_or(5),
            chunk = args.number("chunk", 1, 1 << 20).value_or(512);
  const DType cache_format = cache_type(args);
  const std::string name = args.operands(1, 1, "one model")[0];

  const OpenModel m = open_model(name, common);
  const Model& model = *m.checkpoint.model;
  const Recipe& r = model.recipe;
  if (!r.decoder || r.encoder) fail("bench: ", name, " (", m.checkpoint.family, ") is no decoder-only model");
  Dim longest = 0;
  for (Dim d : depths)
    for (const auto* list : {&prompts, &generated})
      for (Dim n : *list) longest = std::max(longest, d + n);
  if (r.embed.pos == EmbedRecipe::Pos::learned && longest > r.context)
    fail_usage("bench: ", longest, " tokens, but the model has learned positions for ", r.context);

  std::vector<std::int32_t> tokens(static_cast<std::size_t>(longest));
  for (std::size_t i = 0; i < tokens.size(); ++i)
    tokens[i] = static_cast<std::int32_t>(random_below(static_cast<std::uint32_t>(r.vocab), 1, i));
  Decoder decoder(*m.device, model, cache_format, std::max(longest, r.context));
  auto feed = [&](std::uint64_t id, Dim from, Dim count, Dim piece) {
    for (Dim at = from; at < from + count; at += piece) {
      const Decoder::Piece p{
          id, std::span(tokens).subspan(static_cast<std::size_t>(at),
                                        static_cast<std::size_t>(std::min(piece, from + count - at)))};
      decoder.step({&p, 1});
    }
  };

  double work = 0, done = 0;
  for (Dim d : depths)
    work +=
        static_cast<double>(d) +
        static_cast<double>((prompts.size() + generated.size()) * static_cast<std::size_t>(repeat + 1)) * 64;
  Progress bar("measuring", common.quiet);
  std::vector<Result> results;
  for (Dim d : depths) {
    if (d > 0) feed(0, 0, d, chunk);
    done += static_cast<double>(d);
    auto measure = [&](Dim n, bool decode) {
      if (n == 0) return;
      std::vector<double> rates;
      for (Dim i = 0; i <= repeat; ++i) {  // the first warms up, with a few tokens where it is decode
        if (d > 0) decoder.cache.share(0, 1, d);
        const Dim count = i == 0 && decode ? std::min<Dim>(n, 8) : n;
        const auto start = Clock::now();
        feed(1, d, count, decode ? 1 : chunk);
        const double seconds = seconds_since(start);
        decoder.cache.drop(1);
        if (i > 0) rates.push_back(static_cast<double>(n) / seconds);
        bar.step(done += 64, work);
      }
      Result result{.test = concat(decode ? "tg" : "pp", n, d > 0 ? concat(" @ d", d) : ""),
                    .prompt = decode ? 0 : n,
                    .generated = decode ? n : 0,
                    .depth = d};
      for (double x : rates) result.mean += x / static_cast<double>(rates.size());
      for (double x : rates) result.deviation += (x - result.mean) * (x - result.mean);
      result.deviation =
          rates.size() > 1 ? std::sqrt(result.deviation / static_cast<double>(rates.size() - 1)) : 0;
      results.push_back(result);
    };
    for (Dim n : prompts) measure(n, false);
    for (Dim n : generated) measure(n, true);
    decoder.cache.drop(0);
  }
  bar.clear();

  const double size = static_cast<double>(m.checkpoint.file_bytes);
  if (common.json) {
    Json::Array rows;
    for (const Result& x : results) {
      Json row = Json::Object{};
      row.set("model", name);
      row.set("family", m.checkpoint.family);
      row.set("bytes", size);
      row.set("parameters", model.parameters());
      row.set("isa", std::string(m.device->kernels.isa));
      row.set("threads", static_cast<Dim>(m.device->threads()));
      row.set("cache_type", std::string(name_of(cache_format)));
      row.set("n_prompt", x.prompt);
      row.set("n_gen", x.generated);
      row.set("n_depth", x.depth);
      row.set("repeat", repeat);
      row.set("avg_ts", x.mean);
      row.set("stddev_ts", x.deviation);
      rows.push_back(std::move(row));
    }
    print(Json(std::move(rows)).dump() + "\n");
    return 0;
  }
  print(
      "| model | size | params | isa | threads | cache | test | t/s |\n"
      "|---|---:|---:|---|---:|---|---:|---:|\n");
  for (const Result& x : results)
    print(concat("| ", for_stdout(std::filesystem::path(m.checkpoint.path).filename().string()), " | ",
                 byte_count(size), " | ", short_count(static_cast<double>(model.parameters())), " | ",
                 m.device->kernels.isa, " | ", m.device->threads(), " | ", name_of(cache_format), " | ",
                 x.test, " | ", fixed(x.mean, 2), " ± ", fixed(x.deviation, 2), " |\n"));
  return 0;
}

}  // namespace

extern const Verb kBench;
const Verb kBench = {
    "bench", "how fast a model reads and writes",
    "Usage: rapt bench MODEL [-p 512] [-n 128] [-d 0,2048] [-r 5] [flags]\n"
    "\n"
    "Tokens per second, mean ± standard deviation: reading a prompt (pp), writing one token after the\n"
    "other (tg), each after -d tokens that are in the cache already. Random tokens, no sampling, one\n"
    "warm-up run each, as llama-bench does it. A markdown table.\n"
    "\n"
    "  -p, --prompt N[,N]   prompt lengths (512); 0: none\n"
    "  -n, --max-tokens N[,N]  tokens to write (128); 0: none\n"
    "  -d, --depth N[,N]    tokens before them (0)\n"
    "  -r, --repeat N       runs (5)\n"
    "  -b, --chunk N        prompt tokens per pass (512)\n"
    "  --cache-type T       f32, f16, bf16, q8_0, q4_0 (f32)\n"
    "  -t, --threads N      threads (as many as the process may use)\n"
    "  --json               as JSON\n"
    "  -q, --quiet          no progress\n"
    "\n"
    "Examples:\n"
    "  rapt bench model.gguf\n"
    "  rapt bench model.gguf -p 512 -n 128 -d 0,2048 -r 3 --threads 2\n",
    run};

}  // namespace rapt::cli
