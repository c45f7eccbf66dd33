// SPDX-License-Identifier: Apache-2.0
// What it costs that a step's bits do not depend on its ranks: the tree of leaves beside a chain, two ranks
// of one thread beside one of two threads, what is sent, and when.
//   bench_ranks_cost [--model char|gpt2] [--batch B] [--length T] [--leaves L] [--rounds N] [--timeline FILE]
//     [--parts tree,ranks,overlap]
// Times are processor seconds of all threads, so other work on the machine counts little; beside them the
// seconds on the clock. The two of each pair take turns, a step each. One JSON object on standard output.
#include <time.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "bench/machine.h"
#include "rapt/base/json.h"
#include "rapt/base/rng.h"
#include "rapt/comm/traffic.h"
#include "rapt/nn/model.h"
#include "rapt/ops/activation.h"
#include "rapt/ops/loss.h"
#include "rapt/recipe/recipe_set.h"
#include "rapt/use/leaves.h"
#include "rapt/use/timeline.h"
#include "rapt/use/train.h"

namespace {

using namespace rapt;

double cpu(clockid_t clock) {
  timespec t{};
  clock_gettime(clock, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

double median(std::vector<double> v) {
  std::ranges::sort(v);
  return v[v.size() / 2];
}
double least(const std::vector<double>& v) { return *std::ranges::min_element(v); }

struct Options {
  std::string model = "char", timeline, parts = "tree,ranks,overlap";
  Dim batch = 12, length = 256, leaves = 8;
  int rounds = 8;
};

class Random final : public TrainData {
 public:
  Random(Dim batch, Dim length, Dim tokens) : batch_(batch), length_(length) { vocab = tokens; }
  TrainBatch batch(std::uint64_t number) const override {
    TrainBatch b;
    for (Dim s = 0; s < batch_; ++s)
      b.sequences.push_back(
          {.first = s * length_, .count = length_, .id = number * 1000 + static_cast<std::uint64_t>(s)});
    const auto v = static_cast<std::uint64_t>(vocab);
    for (Dim i = 0; i < batch_ * length_; ++i) {
      b.tokens.push_back(static_cast<std::int32_t>(mix_key(number, static_cast<std::uint64_t>(i)) % v));
      b.targets.push_back(static_cast<std::int32_t>(mix_key(number, static_cast<std::uint64_t>(i + 1)) % v));
    }
    b.counted = batch_ * length_;
    return b;
  }
  Dim held_out() const override { return 0; }
  TrainBatch held_out_batch(Dim) const override { return {}; }
  double epochs(std::uint64_t) const override { return 0; }
  std::string about() const override { return "random tokens"; }

 private:
  Dim batch_, length_;
};

Recipe recipe_of(const Options& o) {
  if (o.model == "gpt2") return preset("gpt2");
  return with_settings(preset("gpt2"), std::vector<std::string>{"width=384", "layers=6", "heads=6",
                                                                "ffn=1536", "vocab=65", "context=1024"});
}

// Leaves into one gradient, each added to what is there by its ops, or each from zero and then in the tree.
double step(const Model& model, const Random& data, const Options& o, Gradients& gradients,
            LeafGradients* leaves, Run& run) {
  Tape& tape = *run.tape;
  tape.passed = nullptr;
  if (leaves) tape.passed = [&](int first) { leaves->pass(gradients, first); };
  gradients.zero();
  if (leaves) leaves->begin(0);
  const double start = cpu(CLOCK_PROCESS_CPUTIME_ID);
  for (Dim i = 0; i < o.leaves; ++i) {
    run.reset();
    run.random = {0, static_cast<std::uint64_t>(i)};
    const TrainBatch b = data.batch(static_cast<std::uint64_t>(i));
    const Loss loss =
        cross_entropy(run, forward(run, model, {.tokens = b.tokens, .sequences = b.sequences}), b.targets, 0);
    backward(run, activation(run, Act::scale, loss.mean, 1.0 / static_cast<double>(o.leaves)));
    if (leaves) leaves->push(gradients);
  }
  if (leaves) leaves->finish(gradients);
  return cpu(CLOCK_PROCESS_CPUTIME_ID) - start;
}

void tree_and_chain(const Options& o, Json& out) {
  Device device({.threads = 1});
  Model model(recipe_of(o), device.real);
  init(model, 1);
  const Random data(o.batch, o.length, model.recipe.vocab);
  const auto layout = std::make_shared<GradientLayout>(gradient_layout(model, std::size_t{25} << 20));
  Gradients gradients(device.real, layout), plain(device.real, layout);
  LeafGradients leaves(device, model, layout);
  Tape tape(gradients), tape_plain(plain);
  Run run(device);
  run.training = true;
  std::vector<double> tree, chain, ratios;
  for (int round = -1; round < o.rounds; ++round) {
    double t = 0, c = 0;
    const auto one = [&](bool is_tree) {
      run.tape = is_tree ? &tape : &tape_plain;
      (is_tree ? t : c) = step(model, data, o, is_tree ? gradients : plain, is_tree ? &leaves : nullptr, run);
    };
    one(round % 2 == 0), one(round % 2 != 0);
    if (round < 0) continue;  // memory is made
    tree.push_back(t), chain.push_back(c), ratios.push_back(t / c);
  }
  out.set("parameters", model.parameters());
  out.set("leaf_rows", o.batch * o.length);
  out.set("leaves", o.leaves);
  out.set("chain_cpu_seconds", median(chain));
  out.set("tree_cpu_seconds", median(tree));
  out.set("tree_over_chain_median_of_pairs", median(ratios));
  out.set("tree_over_chain_least", least(tree) / least(chain));
}

struct Timed {
  double wall = 0, cpu = 0;
  Traffic sent;
};

// Some steps of so many ranks in one process; per step.
Timed ranks_of(int ranks, int threads, const Options& o, int steps, std::vector<Timeline>* times) {
  Timed out;
  std::mutex lock;
  run_ranks(ranks, [&](Comm& comm) {
    CountedComm counted(comm);
    Device device({.threads = threads});
    Model model(recipe_of(o), device.real);
    init(model, 1);
    const Random data(o.batch, o.length, model.recipe.vocab);
    TrainOptions options;
    options.accumulate = o.leaves, options.health_every = 0;
    Trainer trainer(device, model, data, options, ranks > 1 ? &counted : nullptr);
    trainer.step();  // memory is made
    comm.barrier();
    counted.sent = {};
    if (times) trainer.note_times(&(*times)[static_cast<std::size_t>(comm.rank())], steps);
    const double wall = cpu(CLOCK_MONOTONIC), all = cpu(CLOCK_PROCESS_CPUTIME_ID);
    for (int i = 0; i < steps; ++i) trainer.step();
    comm.barrier();
    const std::lock_guard hold(lock);
    if (comm.rank() > 0) return;
    out = {(cpu(CLOCK_MONOTONIC) - wall) / steps, (cpu(CLOCK_PROCESS_CPUTIME_ID) - all) / steps,
           counted.sent};
  });
  return out;
}

void ranks_and_threads(const Options& o, Json& out) {
  std::vector<double> wall, work;
  Timed two, one;
  for (int round = 0; round < std::max(1, o.rounds / 2); ++round) {
    const auto turn = [&](bool ranks) {
      (ranks ? two : one) = ranks ? ranks_of(2, 1, o, 2, nullptr) : ranks_of(1, 2, o, 2, nullptr);
    };
    turn(round % 2 == 0), turn(round % 2 != 0);
    wall.push_back(one.wall / two.wall), work.push_back(two.cpu / one.cpu);
  }
  out.set("two_ranks_speed_over_two_threads", median(wall));
  out.set("two_ranks_cpu_over_two_threads", median(work));
  double N = 0;
  const Model model(recipe_of(o));
  for (const Weight& w : model.weights) N += static_cast<double>(w.stored());
  out.set("sent_bytes_a_step", static_cast<double>(two.sent.total()) / 2);
  out.set("sent_over_formula", static_cast<double>(two.sent.total()) / 2 / (2 * 4 * N / 2));
}

// The share of what the courier did that lay inside of backward.
void overlap(const Options& o, Json& out) {
  std::vector<Timeline> times(2);
  ranks_of(2, 1, o, 2, &times);
  double inside = 0, all = 0, waited = 0, steps = 0;
  for (const Timeline& t : times) {
    const auto spans = t.spans();
    for (const Timeline::Span& s : spans) {
      if (s.lane == Timeline::Lane::compute) {
        steps += s.end - s.begin;
        if (s.name == "wait") waited += s.end - s.begin;
        continue;
      }
      if (s.name == "losses") continue;
      all += s.end - s.begin;
      for (const Timeline::Span& c : spans)
        if (c.lane == Timeline::Lane::compute && c.name.starts_with("backward"))
          inside += std::max(0.0, std::min(s.end, c.end) - std::max(s.begin, c.begin));
    }
  }
  out.set("exchange_inside_of_backward", all > 0 ? inside / all : 0);
  out.set("waiting_share_of_step", steps > 0 ? waited / steps : 0);
  if (o.timeline.empty()) return;
  Json::Array events;
  for (std::size_t r = 0; r < times.size(); ++r) {
    const Json one = parse_json(times[r].json(static_cast<int>(r)));
    for (const Json& e : one.find("traceEvents")->array()) events.push_back(e);
  }
  Json trace = Json::Object{};
  trace.set("traceEvents", events);
  std::ofstream(o.timeline) << trace.dump(0) << "\n";
}

}  // namespace

int main(int argc, char** argv) {
  Options o;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string flag = argv[i], value = argv[i + 1];
    if (flag == "--model") o.model = value;
    else if (flag == "--batch") o.batch = std::atoi(value.c_str());
    else if (flag == "--length") o.length = std::atoi(value.c_str());
    else if (flag == "--leaves") o.leaves = std::atoi(value.c_str());
    else if (flag == "--rounds") o.rounds = std::atoi(value.c_str());
    else if (flag == "--timeline") o.timeline = value;
    else if (flag == "--parts") o.parts = value;
    else {
      std::fprintf(stderr, "bench_ranks_cost: unknown flag %s\n", flag.c_str());
      return 2;
    }
  }
  Json out = Json::Object{};
  const auto asked = [&](const char* part) { return o.parts.find(part) != std::string::npos; };
  if (asked("tree")) tree_and_chain(o, out);
  if (asked("ranks")) ranks_and_threads(o, out);
  if (asked("overlap")) overlap(o, out);
  std::printf("%s\n", out.dump(0).c_str());
  return 0;
}
