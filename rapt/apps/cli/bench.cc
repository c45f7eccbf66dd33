// SPDX-License-Identifier: Apache-2.0
// rapt bench: how fast a model reads a prompt and writes tokens, of one text or of many at once.
#include <algorithm>
#include <cmath>
#include <filesystem>

#include "rapt/apps/cli/model_args.h"
#include "rapt/base/clock.h"
#include "rapt/base/rng.h"
#include "rapt/base/text.h"
#include "rapt/load/adapter.h"
#include "rapt/use/engine.h"

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

// Many sequences at once: all read their prompts, then all write.
struct ParallelResult {
  Dim prompt, generated, sequences;
  double prompt_seconds, write_seconds;
  double prompt_rate() const { return static_cast<double>(prompt * sequences) / prompt_seconds; }
  double write_rate() const { return static_cast<double>(generated * sequences) / write_seconds; }
};

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

class Bench {
 public:
  // adapters: text i uses the i-th, again and again; null: none.
  Bench(Device& device, const Model& model, DType cache, Dim chunk, Dim longest, Dim pool,
        std::vector<AdapterUse> adapters)
      : model_(model),
        adapters_(std::move(adapters)),
        chunk_(chunk),
        engine_(device, model,
                {.cache = cache,
                 .context = std::max(longest, model.recipe.context) + 1,
                 .budget = static_cast<std::size_t>(pool) << 20,
                 .chunk = chunk,
                 .step_seconds = 1e9,
                 .rows = 1 << 20}) {}

  // Reads `depth` tokens, which later measurements go on from.
  void prepare(Dim depth) {
    if (depth > 0) run({request(1, depth, depth, 0)});
  }
  double read(Dim depth, Dim count) { return run({request(1, depth, depth + count, 0)}); }
  double write(Dim depth, Dim count) { return run({request(1, depth, depth + 1, count)}); }
  void forget() { engine_.release(1); }

  ParallelResult parallel(Dim prompt, Dim generated, Dim sequences) {
    std::vector<Request> reading, writing;
    for (Dim i = 0; i < sequences; ++i) {
      const auto hold = static_cast<std::uint64_t>(2 + i);
      reading.push_back(request(hold, 0, prompt, 0));
      writing.push_back(reading.back());
      // The token that the first pass of writing reads.
      writing.back().tokens.push_back(token(hold + 1000, prompt));
      ask(writing.back(), generated);
    }
    ParallelResult out{prompt, generated, sequences, 0, 0};
    out.prompt_seconds = run(std::move(reading));
    out.write_seconds = run(std::move(writing));
    for (Dim i = 0; i < sequences; ++i) engine_.release(static_cast<std::uint64_t>(2 + i));
    return out;
  }

 private:
  std::int32_t token(std::uint64_t key, Dim i) const {
    return static_cast<std::int32_t>(
        random_below(static_cast<std::uint32_t>(model_.recipe.vocab), key, static_cast<std::uint64_t>(i)));
  }
  // Tokens that are given, one pass each: nothing is drawn.
  void ask(Request& r, Dim count) {
    for (Dim i = 0; i < count; ++i) r.forced.push_back(token(++drawn_, i));
    r.generate.max_tokens = count;
    r.generate.ignore_eos = true;
  }
  // The first `same` tokens are always the same ones, the others never.
  Request request(std::uint64_t hold, Dim same, Dim tokens, Dim count) {
    ++drawn_;
    Request r;
    for (Dim i = 0; i < tokens; ++i) r.tokens.push_back(token(i < same ? 1 : drawn_ << 20 | hold, i));
    r.hold = hold;
    if (!adapters_.empty())
      if (const AdapterUse& use = adapters_[hold % adapters_.size()]; use.adapter) r.adapters = {use};
    r.generate.chunk = chunk_;
    r.generate.max_tokens = 0;
    if (count > 0) ask(r, count);
    return r;
  }
  double run(std::vector<Request> requests) {
    for (Request& r : requests) engine_.add(std::move(r));
    const auto start = Clock::now();
    while (!engine_.idle())
      for (const Event& e : engine_.step())
        if (e.error) std::rethrow_exception(e.error);
    return seconds_since(start);
  }

  const Model& model_;
  const std::vector<AdapterUse> adapters_;
  const Dim chunk_;
  Engine engine_;
  std::uint64_t drawn_ = 0;
};

std::string parallel_text(std::span<const ParallelResult> results) {
  std::string out =
      "| PP | TG | B | N_KV | T_PP s | S_PP t/s | T_TG s | S_TG t/s | T s | S t/s |\n"
      "|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|\n";
  for (const ParallelResult& x : results) {
    const double all = x.prompt_seconds + x.write_seconds;
    const Dim tokens = x.sequences * (x.prompt + x.generated);
    out += concat("| ", x.prompt, " | ", x.generated, " | ", x.sequences, " | ", tokens, " | ",
                  fixed(x.prompt_seconds, 3), " | ", fixed(x.prompt_rate(), 2), " | ",
                  fixed(x.write_seconds, 3), " | ", fixed(x.write_rate(), 2), " | ", fixed(all, 3), " | ",
                  fixed(static_cast<double>(tokens) / all, 2), " |\n");
  }
  return out;
}

int run(Args& args) {
  const CommonArgs common = common_args(args);
  const std::vector<Dim> parallel = numbers(args, "parallel", {}, 4096),
                         prompts = numbers(args, "prompt", {parallel.empty() ? 512 : 128}, 1 << 24),
                         generated = numbers(args, "max-tokens", {128}, 1 << 24),
                         depths = numbers(args, "depth", {0}, 1 << 24);
  const Dim repeat = args.number("repeat", 1, 10000).value_or(5),
            chunk = args.number("chunk", 1, 1 << 20).value_or(512),
            pool = args.number("pool", 0, 1 << 20).value_or(0);
  const DType cache_format = cache_type(args);
  const std::vector<std::string> lora = args.values("lora");
  const std::string name = args.operands(1, 1, "one model")[0];
  for (const Dim b : parallel)
    if (b < 1) fail_usage("--parallel: ", b, " sequences; give at least 1");
  if (!parallel.empty() && (depths.size() > 1 || depths[0] != 0))
    fail_usage("--parallel measures from empty sequences; leave --depth away");

  const OpenModel m = open_model(name, common);
  const Model& model = *m.checkpoint.model;
  const Recipe& r = model.recipe;
  if (!r.decoder || r.encoder) fail("bench: ", name, " (", m.checkpoint.family, ") is no decoder-only model");
  Dim longest = 0;
  for (Dim d : depths)
    for (const auto* list : {&prompts, &generated})
      for (Dim n : *list) longest = std::max(longest, d + n + 1);
  if (!parallel.empty())
    longest = *std::max_element(prompts.begin(), prompts.end()) +
              *std::max_element(generated.begin(), generated.end()) + 1;
  if (r.embed.pos == EmbedRecipe::Pos::learned && longest - 1 > r.context)
    fail_usage("bench: ", longest - 1, " tokens, but the model has learned positions for ", r.context);

  std::vector<AdapterUse> adapters;
  for (const std::string& words : lora)
    adapters.push_back(words == "none" ? AdapterUse{} : load_adapter_use(words, m.checkpoint));
  Bench bench(*m.device, model, cache_format, chunk, longest, pool, std::move(adapters));
  Progress bar("measuring", common.quiet);
  Json::Array rows;
  const auto about = [&] {
    Json row = Json::Object{};
    row.set("model", name);
    row.set("family", m.checkpoint.family);
    row.set("bytes", static_cast<double>(m.checkpoint.file_bytes));
    row.set("parameters", model.parameters());
    row.set("isa", std::string(m.device->kernels.isa));
    row.set("threads", static_cast<Dim>(m.device->threads()));
    row.set("cache_type", std::string(name_of(cache_format)));
    row.set("repeat", repeat);
    return row;
  };

  if (!parallel.empty()) {
    std::vector<ParallelResult> results;
    double done = 0, work = 0;
    for (const Dim b : parallel) work += static_cast<double>(b * repeat);
    work *= static_cast<double>(prompts.size() * generated.size());
    bench.parallel(16, 4, 1);  // warm
    for (const Dim p : prompts)
      for (const Dim n : generated) {
        if (p < 1 || n < 1) fail_usage("--parallel: prompts and answers of at least 1 token");
        for (const Dim b : parallel) {
          std::vector<double> reading, writing;
          for (Dim i = 0; i < repeat; ++i) {
            const ParallelResult x = bench.parallel(p, n, b);
            reading.push_back(x.prompt_seconds), writing.push_back(x.write_seconds);
            bar.step(done += static_cast<double>(b), work);
          }
          results.push_back({p, n, b, median(reading), median(writing)});
        }
      }
    bar.clear();
    if (!common.json) {
      print(parallel_text(results));
      return 0;
    }
    for (const ParallelResult& x : results) {
      Json row = about();
      row.set("pp", x.prompt), row.set("tg", x.generated), row.set("pl", x.sequences);
      row.set("t_pp", x.prompt_seconds), row.set("speed_pp", x.prompt_rate());
      row.set("t_tg", x.write_seconds), row.set("speed_tg", x.write_rate());
      rows.push_back(std::move(row));
    }
    print(Json(std::move(rows)).dump() + "\n");
    return 0;
  }

  double work = 0, done = 0;
  for (Dim d : depths)
    work +=
        static_cast<double>(d) +
        static_cast<double>((prompts.size() + generated.size()) * static_cast<std::size_t>(repeat + 1)) * 64;
  std::vector<Result> results;
  for (Dim d : depths) {
    bench.prepare(d);
    done += static_cast<double>(d);
    auto measure = [&](Dim n, bool decode) {
      if (n == 0) return;
      std::vector<double> rates;
      for (Dim i = 0; i <= repeat; ++i) {  // the first warms up, with a few tokens where it is decode
        const Dim count = i == 0 && decode ? std::min<Dim>(n, 8) : n;
        const double seconds = decode ? bench.write(d, count) : bench.read(d, count);
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
    bench.forget();
  }
  bar.clear();

  if (common.json) {
    for (const Result& x : results) {
      Json row = about();
      row.set("n_prompt", x.prompt);
      row.set("n_gen", x.generated);
      row.set("n_depth", x.depth);
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
                 byte_count(static_cast<double>(m.checkpoint.file_bytes)), " | ",
                 short_count(static_cast<double>(model.parameters())), " | ", m.device->kernels.isa, " | ",
                 m.device->threads(), " | ", name_of(cache_format), " | ", x.test, " | ", fixed(x.mean, 2),
                 " ± ", fixed(x.deviation, 2), " |\n"));
  return 0;
}

}  // namespace

extern const Verb kBench;
const Verb kBench = {
    "bench", "how fast a model reads and writes",
    "Usage: rapt bench MODEL [-p 512] [-n 128] [-d 0,2048] [-r 5] [flags]\n"
    "       rapt bench MODEL --parallel 1,2,4,8 [-p 128] [-n 128] [flags]\n"
    "\n"
    "Tokens per second, mean ± standard deviation: reading a prompt (pp), writing one token after the\n"
    "other (tg), each after -d tokens that are in the cache already. Random tokens, no sampling, one\n"
    "warm-up run each, as llama-bench does it. A markdown table.\n"
    "\n"
    "With --parallel many texts at once, as llama-batched-bench does it: all read their prompts (PP tokens\n"
    "each), then all write (TG tokens each, one row a pass). S_PP and S_TG are tokens per second of all B\n"
    "texts together, from the median times.\n"
    "\n"
    "  -p, --prompt N[,N]   prompt lengths (512); 0: none\n"
    "  -n, --max-tokens N[,N]  tokens to write (128); 0: none\n"
    "  -d, --depth N[,N]    tokens before them (0)\n"
    "  --parallel N[,N]     texts side by side; prompts then have 128 tokens unless -p says otherwise\n"
    "  -r, --repeat N       runs (5)\n"
    "  -b, --chunk N        prompt tokens per pass (512)\n"
    "  --pool N             MiB for keys and values (0: no limit); texts wait, or pause and are read again\n"
    "  --cache-type T       f32, f16, bf16, q8_0, q4_0 (f32)\n"
    "  --lora FILE[=S]      an adapter (LoRA); of several, texts side by side take turns (none: none)\n"
    "  -t, --threads N      threads (as many as the process may use)\n"
    "  --json               as JSON\n"
    "  -q, --quiet          no progress\n"
    "\n"
    "Examples:\n"
    "  rapt bench model.gguf\n"
    "  rapt bench model.gguf -p 512 -n 128 -d 0,2048 -r 3 --threads 2\n"
    "  rapt bench model.gguf --parallel 1,2,4,8 --cache-type f16\n",
    run};

}  // namespace rapt::cli
