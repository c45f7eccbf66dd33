// SPDX-License-Identifier: Apache-2.0
// A whole training step (forward, loss, backward, clipping to 1, AdamW) of GPT-2's shape or of nanoGPT's
// character setting.
//   bench_train [--model gpt2-char|gpt2] [--batch B] [--length T] [--precision f32|bf16] [--threads 2]
//     [--seconds 5] [--profile]
// One JSON object on standard output: tokens/s (best and median step) and what the machine allows (bf16:
// products of weights at the rate of multiply-adds of bf16 pairs where the processor has them, attention at
// that of f32). --profile: time by kernel as a table.
// --serve: one such object for every line "SECONDS" on standard input, so that bench/train can let two
// programs take turns.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "bench/machine.h"
#include "rapt/base/json.h"
#include "rapt/base/rng.h"
#include "rapt/nn/model.h"
#include "rapt/ops/linear.h"
#include "rapt/ops/loss.h"
#include "rapt/use/optimizer.h"

namespace {

using namespace rapt;
using bench::now;

constexpr const char* kChar = R"({
  "width": 128, "vocab": 65, "context": 64, "embed": { "pos": "learned" },
  "decoder": { "layers": 4, "pattern": "L", "kinds": { "L": { "parts": [
      { "self": { "heads": 4, "norm_in": { "kind": "layer", "eps": 1e-5 } } },
      { "ffn": { "kind": "mlp", "act": "gelu", "norm_in": { "kind": "layer", "eps": 1e-5 } } } ] } },
    "final_norm": { "kind": "layer", "eps": 1e-5 } },
  "head": { "tied": true }, "init": { "std": 0.02, "scale_residual": true } })";
constexpr const char* kGpt2 = R"({
  "width": 768, "vocab": 50304, "context": 1024, "embed": { "pos": "learned" },
  "decoder": { "layers": 12, "pattern": "L", "kinds": { "L": { "parts": [
      { "self": { "heads": 12, "bias": "all", "norm_in": { "kind": "layer", "eps": 1e-5, "bias": true } } },
      { "ffn": { "kind": "mlp", "act": "gelu", "bias": true, "norm_in": { "kind": "layer", "eps": 1e-5, "bias": true } } } ] } },
    "final_norm": { "kind": "layer", "eps": 1e-5, "bias": true } },
  "head": { "tied": true }, "init": { "std": 0.02, "scale_residual": true } })";

// ------------------------------------------------------------------------------------------- time by kernel
struct Spent {
  double seconds = 0, flop = 0;
  int calls = 0;
};
std::map<std::string, Spent> spent;
const Kernels* timed = nullptr;  // the table whose kernels are wrapped

template <class Args>
std::string label(const char* name, const Args&, double&) {
  return name;
}
template <class Args>
std::string products(const char* name, const Args& a, double each, double& flop) {
  Dim n = 0;
  for (int i = 0; i < a.count; ++i) n += a.parts[i].n;
  flop = each * static_cast<double>(a.rows * a.k * n);
  return concat(name, " ", a.k, " to ", n);
}
std::string label(const char* name, const LinearArgs& a, double& flop) { return products(name, a, 2, flop); }
std::string label(const char* name, const LinearBackwardArgs& a, double& flop) {
  return products(name, a, a.dx ? 4 : 2, flop);
}

template <class Args>
void measured(const char* name, Queue& queue, const Args& a,
              void (*kernel)(Queue&, const Args&) noexcept) noexcept {
  const double start = now();
  kernel(queue, a);
  const double seconds = now() - start;
  double flop = 0;
  Spent& s = spent[label(name, a, flop)];
  s.seconds += seconds;
  s.flop += flop;
  ++s.calls;
}

Kernels wrapped(const Kernels& kernels) {
  timed = &kernels;
  Kernels out = kernels;
#define RAPT_WRAP(name, Stem) \
  out.name = [](Queue& q, const Stem##Args& a) noexcept { measured(#name, q, a, timed->name); };
#define RAPT_WRAP_BOTH(name, Stem)                                           \
  RAPT_WRAP(name, Stem)                                                      \
  out.name##_backward = [](Queue& q, const Stem##BackwardArgs& a) noexcept { \
    measured(#name " backward", q, a, timed->name##_backward);               \
  };
  RAPT_OPS(RAPT_WRAP_BOTH)
  RAPT_PLAIN_KERNELS(RAPT_WRAP)
#undef RAPT_WRAP
#undef RAPT_WRAP_BOTH
  return out;
}

// ------------------------------------------------------------------------------------------------ the step
struct Options {
  std::string model = "gpt2-char";
  Dim batch = 0, length = 64;
  int threads = 2;
  double seconds = 5;
  Precision precision = Precision::f32;
  bool profile = false, serve = false;
};

class Training {
 public:
  Training(Device& device, const Options& o)
      : model_(parse_recipe(o.model == "gpt2" ? kGpt2 : kChar)),
        gradients_(device.real),
        tape_(gradients_),
        run_(device),
        precision_(o.precision),
        optimizer_(model_, OptimizerOptions{.rate = 1e-3, .clip = 1}) {
    init(model_, 0);
    for (Dim b = 0; b < o.batch; ++b)
      batch_.sequences.push_back(
          {.first = b * o.length, .count = o.length, .id = static_cast<std::uint64_t>(b)});
    const Dim rows = o.batch * o.length;
    // Fresh random tokens each step: a batch learned by heart would end in denormals, which cost one
    // side more than the other.
    for (Dim i = 0; i < kBatches * rows + 1; ++i)
      tokens_.push_back(static_cast<std::int32_t>(mix_key(1, static_cast<std::uint64_t>(i)) %
                                                  static_cast<std::uint64_t>(model_.recipe.vocab)));
    rows_ = static_cast<std::size_t>(rows);
  }

  double step() {  // the loss
    const std::size_t at = static_cast<std::size_t>(steps_++ % kBatches) * rows_;
    const std::span<const std::int32_t> tokens(tokens_);
    batch_.tokens = tokens.subspan(at, rows_);
    run_.reset();
    run_.tape = &tape_;
    run_.training = true;
    run_.products = precision_;
    const Loss loss = cross_entropy(run_, forward(run_, model_, batch_), tokens.subspan(at + 1, rows_), 0);
    backward(run_, loss.mean);
    const double start = now();
    const double norm = optimizer_.norm(run_.device, gradients_);
    norm_seconds += now() - start;
    optimizer_.step(run_.device, gradients_, norm);
    gradients_.zero();
    return loss.mean.at(0);
  }

  // Products of the weights, 6 a token (tables that are only looked up do none), and of attention: 2
  // forward and 5 backward of rows x keys x width each, half of them under a causal mask.
  struct Flop {
    double weights, attention;
  };
  Flop flop(const Options& o) const {
    double matrices = 0;
    for (const Weight& w : model_.weights)
      if (w.packing == Packing::panels) matrices += static_cast<double>(w.size());
    const double T = static_cast<double>(o.length),
                 layers = static_cast<double>(model_.recipe.decoder->layers);
    const double attention = 7 * 2 * T * T / 2 * static_cast<double>(model_.recipe.width) * layers;
    return {static_cast<double>(o.batch) * 6 * matrices * T, static_cast<double>(o.batch) * attention};
  }

  double norm_seconds = 0;

 private:
  static constexpr Dim kBatches = 16;
  Model model_;
  Gradients gradients_;
  Tape tape_;
  Run run_;
  Precision precision_;
  Optimizer optimizer_;
  Batch batch_;
  std::vector<std::int32_t> tokens_;
  std::size_t rows_ = 0;
  Dim steps_ = 0;
};

void report(Training& training, const Options& o, Device& device, double seconds) {
  std::vector<double> times;
  double loss = 0;
  const double peak = bench::fma_peak(device, 0.1),
               products = o.precision == Precision::bf16 ? bench::bf16_peak(device, 0.1) : peak;
  spent.clear();
  training.norm_seconds = 0;
  for (const double end = now() + seconds; times.size() < 2 || now() < end;) {
    const double start = now();
    loss = training.step();
    times.push_back(now() - start);
  }
  if (!std::isfinite(loss)) fail("bench/train: the loss is not finite");
  double sum = 0;
  for (double t : times) sum += t;
  std::vector<double> sorted = times;
  std::sort(sorted.begin(), sorted.end());
  const double tokens = static_cast<double>(o.batch * o.length),
               flop = training.flop(o).weights + training.flop(o).attention;
  const double allowed =
      peak > 0 ? training.flop(o).weights / products + training.flop(o).attention / peak : 0;  // seconds
  const double best = sorted.front(), median = sorted[sorted.size() / 2];
  std::printf(
      "{\"model\": \"%s\", \"precision\": \"%s\", \"batch\": %ld, \"length\": %ld, \"threads\": %d, "
      "\"steps\": %zu, \"best\": %.1f, \"median\": %.1f, "
      "\"best_ms\": %.3f, \"gflop\": %.3f, \"peak_gflops\": %.1f, \"limit\": %.1f, \"loss\": %.4f}\n",
      o.model.c_str(), o.precision == Precision::bf16 ? "bf16" : "f32", static_cast<long>(o.batch),
      static_cast<long>(o.length), device.threads(), times.size(), tokens / best, tokens / median, best * 1e3,
      flop * 1e-9, products * 1e-9, allowed > 0 ? tokens / allowed : 0, loss);
  std::fflush(stdout);
  if (!o.profile) return;
  spent["norm of the gradients"].seconds = training.norm_seconds;
  double kernels = 0;
  std::vector<std::pair<std::string, Spent>> rows(spent.begin(), spent.end());
  for (const auto& [name, s] : rows) kernels += s.seconds;
  rows.push_back({"outside of kernels (zeroing, ops)", {.seconds = sum - kernels}});
  std::sort(rows.begin(), rows.end(),
            [](const auto& a, const auto& b) { return a.second.seconds > b.second.seconds; });
  const double steps = static_cast<double>(times.size());
  std::printf(
      "\n| kernel | calls a step | ms a step | share | GFLOP/s | of the peak |\n|---|---|---|---|---|---|\n");
  for (const auto& [name, s] : rows) {
    std::printf("| %s | %.0f | %.3f | %.1f %% |", name.c_str(), s.calls / steps, s.seconds / steps * 1e3,
                s.seconds / sum * 100);
    if (s.flop > 0 && peak > 0)
      std::printf(" %.0f | %.0f %% |\n", s.flop / s.seconds * 1e-9, s.flop / s.seconds / products * 100);
    else std::printf(" | |\n");
  }
  std::printf("| all | | %.3f | | %.0f | %.0f %% |\n", sum / steps * 1e3, flop * steps / sum * 1e-9,
              allowed * steps / sum * 100);
}

Options parse(int argc, char** argv) {
  Options o;
  for (int i = 1; i < argc; ++i) {
    const std::string flag = argv[i];
    auto value = [&]() -> const char* {
      if (i + 1 >= argc) fail_usage("bench/train: ", flag, " needs a value");
      return argv[++i];
    };
    if (flag == "--model") o.model = value();
    else if (flag == "--batch") o.batch = std::atol(value());
    else if (flag == "--length") o.length = std::atol(value());
    else if (flag == "--threads") o.threads = std::atoi(value());
    else if (flag == "--precision") {
      const std::string name = value();
      if (name != "f32" && name != "bf16")
        fail_usage("bench/train: --precision is f32 or bf16, not '", name, "'");
      o.precision = name == "bf16" ? Precision::bf16 : Precision::f32;
    } else if (flag == "--seconds") o.seconds = std::atof(value());
    else if (flag == "--profile") o.profile = true;
    else if (flag == "--serve") o.serve = true;
    else
      fail_usage("bench/train: unknown flag ", flag,
                 "; known: --model gpt2-char|gpt2, --batch B, --length T, --precision f32|bf16, --threads N, "
                 "--seconds S, --profile, --serve");
  }
  if (o.model != "gpt2" && o.model != "gpt2-char")
    fail_usage("bench/train: --model is gpt2-char or gpt2, not '", o.model, "'");
  if (o.batch == 0) o.batch = o.model == "gpt2" ? 4 : 12;
  if (o.batch < 1 || o.length < 1) fail_usage("bench/train: --batch and --length start at 1");
  return o;
}

}  // namespace

int main(int argc, char** argv) try {
  const Options o = parse(argc, argv);
  const DeviceOptions where{.threads = o.threads, .isa = "", .pin = true};
  static const Kernels table = wrapped(Device({.threads = 1}).kernels);
  const auto device = o.profile ? std::make_unique<Device>(table, where) : std::make_unique<Device>(where);
  Training training(*device, o);
  training.step();  // memory is taken, helpers are awake
  if (!o.serve) {
    report(training, o, *device, o.seconds);
    return 0;
  }
  std::printf("ready\n");
  std::fflush(stdout);
  char line[64];
  while (std::fgets(line, sizeof line, stdin)) report(training, o, *device, std::atof(line));
  return 0;
} catch (const rapt::Error& e) {
  std::fprintf(stderr, "%s\n", e.what());
  return e.is_usage() ? 2 : 1;
}
