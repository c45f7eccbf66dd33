// SPDX-License-Identifier: Apache-2.0
// Steps of several ranks, as threads: the bits of one rank, whatever is cut, missing or bad; what they send;
// and what would have other bits.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <cstring>
#include <limits>
#include <thread>

#include "rapt/base/json.h"
#include "rapt/comm/comm.h"
#include "rapt/comm/traffic.h"
#include "rapt/nn/model.h"
#include "rapt/ops/embed.h"
#include "rapt/ops/linear.h"
#include "rapt/ops/loss.h"
#include "rapt/ops/norm.h"
#include "rapt/recipe/recipe_set.h"
#include "rapt/use/leaves.h"
#include "rapt/use/timeline.h"
#include "rapt/use/train.h"
#include "rapt/use/train_plan.h"
#include "tests/build_kind.h"
#include "tests/tools.h"
#include "tests/train_tools.h"

namespace rapt {
namespace {

using namespace test;
using testing::AllOf;
using testing::HasSubstr;

// Steps on so many ranks, each with a model and a thread of its own: reports and weights of each.
struct RankOutcome {
  std::vector<std::vector<double>> reports;  // by rank: loss, norm, tokens and whether it was done
  std::vector<std::vector<std::byte>> weights;
};

RankOutcome train_ranks(int ranks, const Recipe& recipe, const TrainOptions& o, const TrainData& data,
                        const Kernels* kernels = nullptr) {
  RankOutcome out;
  out.reports.resize(static_cast<std::size_t>(ranks)), out.weights.resize(static_cast<std::size_t>(ranks));
  run_ranks(ranks, [&](Comm& comm) {
    const DeviceOptions one{.threads = 1};
    const auto device = kernels ? std::make_unique<Device>(*kernels, one) : std::make_unique<Device>(one);
    Model model(recipe, device->real);
    init(model, 1);
    Trainer trainer(*device, model, data, o, &comm);
    const auto r = static_cast<std::size_t>(comm.rank());
    for (int step = 0; step < 4; ++step) {
      const StepReport report = trainer.step();
      for (const double x : {report.loss, report.norm, static_cast<double>(report.tokens),
                             static_cast<double>(report.fate == StepReport::Fate::done)})
        out.reports[r].push_back(x);
    }
    out.weights[r] = weights_of(model);
  });
  return out;
}

// One hash for any number of ranks: with more of them than leaves, with leaves that count nothing, weights
// that are cut, experts that nobody chose, matrices that muon moves.
TEST(TrainRanks, TheBitsAreThoseOfOneRank) {
  struct Case {
    Recipe recipe;
    Dim leaves;
    OptimizerOptions::Kind kind;
  };
  Recipe experts = small("mixtral", {"kv_heads=1"});
  for (PartRecipe& p : experts.decoder->kinds.begin()->second.parts)
    if (p.moe()) p.moe()->balance = 0.3;
  const Recipe wide = small("gpt2", {"width=48", "ffn=400", "dropout=0.1"});
  const Case cases[] = {{experts, 6, OptimizerOptions::Kind::adamw},
                        {wide, 13, OptimizerOptions::Kind::adamw},
                        {wide, 8, OptimizerOptions::Kind::muon},
                        {small("qwen3", {"kv_heads=3"}), 1, OptimizerOptions::Kind::sgd}};
  const Uneven data;
  std::size_t bucket = 1000;  // from a few for each layer to one for all
  for (const Case& c : cases) {
    TrainOptions o = options(9);
    o.bucket_bytes = bucket *= 4;
    o.accumulate = c.leaves;
    o.optimizer.kind = c.kind;
    o.optimizer.clip = 0.5;
    const RankOutcome one = train_ranks(1, c.recipe, o, data);
    EXPECT_EQ(one.reports[0][3], 1);
    for (const int ranks : {2, 3, 4, 5, 7, 8}) {
      const RankOutcome many = train_ranks(ranks, c.recipe, o, data);
      for (std::size_t r = 0; r < many.weights.size(); ++r) {
        EXPECT_EQ(many.reports[r], one.reports[0]) << "rank " << r << " of " << ranks;
        EXPECT_EQ(many.weights[r], one.weights[0]) << "rank " << r << " of " << ranks;
      }
    }
  }
}

// All ranks throw a step away together, whoever saw that it is bad.
TEST(TrainRanks, SkipABadLeafTogether) {
  class Marked : public Uneven {
   public:
    TrainBatch batch(std::uint64_t number) const override {
      return number == 9 ? Chain(7, 19).batch(9) : Uneven::batch(number);
    }
  };
  const Marked data;
  static Dim bad_rows;
  bad_rows = static_cast<Dim>(data.batch(9).targets.size());
  static const Kernels* plain = &kernels_for(available_isas().back());
  Kernels kernels = *plain;
  kernels.cross_entropy = [](Queue& q, const CrossEntropyArgs& a) noexcept {
    plain->cross_entropy(q, a);
    if (a.rows == bad_rows) *static_cast<float*>(a.mean) = std::numeric_limits<float>::infinity();
  };
  TrainOptions o = options(9);
  o.accumulate = 5;
  const RankOutcome one = train_ranks(1, small(), o, data, &kernels);
  EXPECT_EQ(one.reports[0][3], 1);
  EXPECT_EQ(one.reports[0][7], 0);  // batches 5 to 9
  EXPECT_EQ(one.reports[0][11], 1);
  for (const int ranks : {2, 3, 6}) {
    const RankOutcome many = train_ranks(ranks, small(), o, data, &kernels);
    for (std::size_t r = 0; r < many.weights.size(); ++r) {
      EXPECT_EQ(many.reports[r], one.reports[0]) << "rank " << r << " of " << ranks;
      EXPECT_EQ(many.weights[r], one.weights[0]) << "rank " << r << " of " << ranks;
    }
  }
}

// A state's bytes do not depend on the number of ranks, and any number goes on from it.
TEST(TrainRanks, GoOnInAnyNumber) {
  const Recipe recipe = small("gpt2", {"width=48", "ffn=400", "dropout=0.1"});
  const Uneven data;
  for (const auto kind : {OptimizerOptions::Kind::adamw, OptimizerOptions::Kind::muon}) {
    TrainOptions o = options(9);
    o.accumulate = 6;
    o.optimizer.kind = kind;
    const TempFolder straight, changing;
    // Each number of ranks makes two steps and saves.
    const auto run = [&](const std::string& folder, std::initializer_list<int> numbers) {
      Stored last;
      for (const int ranks : numbers)
        run_ranks(ranks, [&](Comm& comm) {
          Device device({.threads = 1});
          Model model(recipe, device.real);
          init(model, 1);
          Trainer trainer(device, model, data, o, &comm);
          Store store(folder);
          if (const auto stored = store.latest()) trainer.restore(store, *stored);
          comm.barrier();
          trainer.step(), trainer.step();
          const std::vector<StoredFile> files = trainer.files();
          if (comm.rank() == 0) last = store.save(trainer.steps(), files, trainer.state());
          comm.barrier();
        });
      return last;
    };
    const Stored one = run(straight.path(), {1, 1, 1, 1}), many = run(changing.path(), {2, 8, 1, 3});
    EXPECT_EQ(one.step, 8);
    EXPECT_EQ(one.state, many.state);
    for (const char* name : {"model.safetensors", "optimizer.safetensors"})
      EXPECT_EQ(Store(straight.path()).file(one, name), Store(changing.path()).file(many, name)) << name;
  }
}

TEST(TrainRanks, RefuseWhatWouldNotBeOneRun) {
  const Chain data;
  const auto with = [&](const Recipe& recipe, const std::function<void(int, TrainOptions&)>& change) {
    return test::error_of([&] {
      run_ranks(3, [&](Comm& comm) {
        Device device({.threads = 1});
        Model model(recipe, device.real);
        TrainOptions o = options(3);
        change(comm.rank(), o);
        Trainer trainer(device, model, data, o, &comm);
        Gradients none(device.real);
        trainer.apply(none);
      });
    });
  };
  EXPECT_THAT(with(small(), [](int, TrainOptions&) {}), HasSubstr("a step by hand"));
  EXPECT_THAT(with(small(), [](int rank, TrainOptions& o) { o.seed = rank == 2 ? 7 : 0; }),
              AllOf(HasSubstr("rank 2 trains otherwise than rank 0"), HasSubstr("\"seed\": 7")));
  Recipe normed = small("gpt2");
  for (PartRecipe& p : normed.decoder->kinds["L"].parts)
    p.norm_in = NormRecipe{.kind = NormRecipe::Kind::batch, .eps = 1e-5, .bias = true, .leaks_ok = true};
  EXPECT_THAT(with(normed, [](int, TrainOptions&) {}), HasSubstr("batch norm"));
}

// Forgotten layers, shared ones and a table that is also the head: gradients that are complete late, or in
// several parts.
TEST(TrainRanks, WeightsThatAreUsedOftenAreSentOnce) {
  const Recipe shared = small("gpt2", {"layers=4", "decoder.groups=2", "head.tied=true"}),
               both = small("transformer-2017", {"encoder.layers=2", "decoder.layers=2"});
  class Pairs : public Uneven {
   public:
    Pairs() { objective = Objective::translation; }
    TrainBatch batch(std::uint64_t number) const override {
      TrainBatch b = Uneven::batch(number);
      const TrainBatch from = Chain(static_cast<Dim>(b.sequences.size()), 11).batch(number + 100);
      b.source = from.tokens, b.source_sequences = from.sequences;
      return b;
    }
  };
  const Uneven text;
  const Pairs pairs;
  for (const bool recompute : {false, true})
    for (const auto& [recipe, data] :
         {std::pair<const Recipe&, const TrainData&>(shared, text), {both, pairs}}) {
      TrainOptions o = options(9);
      o.accumulate = 5;
      o.recompute = recompute;
      o.bucket_bytes = 8000;
      const RankOutcome one = train_ranks(1, recipe, o, data);
      EXPECT_EQ(one.reports[0][3], 1);
      for (const int ranks : {2, 3, 6}) {
        const RankOutcome many = train_ranks(ranks, recipe, o, data);
        for (std::size_t r = 0; r < many.weights.size(); ++r) {
          EXPECT_EQ(many.reports[r], one.reports[0]) << "rank " << r << " of " << ranks;
          EXPECT_EQ(many.weights[r], one.weights[0]) << "rank " << r << " of " << ranks;
        }
      }
    }
}

// Of a model whose pieces divide evenly: every rank sends its sums but for its own part, and its part of the
// weights to each other one.
TEST(TrainRanks, SendWhatTheFormulaSays) {
  const Recipe recipe = small("gpt2", {"width=256", "layers=3", "heads=4", "ffn=1024", "context=32"});
  const Uneven data;
  const auto N = [&] {
    Dim n = 0;
    for (const Weight& w : Model(recipe).weights) n += w.stored();
    return static_cast<double>(n);
  }();
  for (const auto& [ranks, leaves, nodes] :
       {std::tuple{2, 4, 1}, {4, 8, 1}, {8, 8, 1}, {2, 6, 2}, {2, 1, 0}}) {
    TrainOptions o = options(9);
    o.accumulate = leaves;
    std::vector<Traffic> sent(static_cast<std::size_t>(ranks));
    run_ranks(ranks, [&](Comm& comm) {
      CountedComm counted(comm);
      Device device({.threads = 1});
      Model model(recipe, device.real);
      init(model, 1);
      Trainer trainer(device, model, data, o, &counted);
      counted.sent = {};
      EXPECT_EQ(trainer.step().fate, StepReport::Fate::done);
      sent[static_cast<std::size_t>(comm.rank())] = counted.sent;
    });
    TrainingPlan plan{.recipe = "gpt2", .own = recipe};
    plan.options.accumulate = leaves;
    const PlanForm planned = plan_training(plan, ranks).forms[1];
    double gradients = 0, weights = 0;
    for (const Traffic& t : sent) {
      if (nodes > 0)
        EXPECT_NEAR(static_cast<double>(t.all_to_all), planned.sent_gradients, 0.02 * planned.sent_gradients);
      EXPECT_NEAR(static_cast<double>(t.all_gather), planned.sent_weights, 0.02 * planned.sent_weights);
      gradients += static_cast<double>(t.all_to_all), weights += static_cast<double>(t.all_gather);
      EXPECT_EQ(t.broadcast, 0u);
      if (nodes != 1) continue;
      const double formula = 4 * N * (ranks - 1) / ranks;
      EXPECT_NEAR(static_cast<double>(t.all_to_all), formula, 0.02 * formula) << ranks;
      EXPECT_NEAR(static_cast<double>(t.all_gather), formula, 0.02 * formula) << ranks;
    }
    // Of all ranks together; leaves that fill no node of their own are sent as more nodes, and a rank without
    // leaves sends none.
    const int all_nodes = nodes == 0 ? 1 : nodes * ranks;
    const double one_node = 4 * N * (ranks - 1) / ranks;
    EXPECT_NEAR(gradients, all_nodes * one_node, 0.02 * all_nodes * one_node) << ranks << " " << leaves;
    EXPECT_NEAR(weights, ranks * one_node, 0.02 * ranks * one_node) << ranks << " " << leaves;
  }
}

// Sums in another order, or over what an earlier step left, have other bits: a test that compares bits sees
// both. The leaves are those of a step of eight.
TEST(TrainRanks, OtherSumsHaveOtherBits) {
  const Chain data;
  Device device({.threads = 1});
  Model model(small("gpt2"), device.real);
  init(model, 1);
  constexpr std::uint64_t kLeaves = 8;
  std::vector<Gradients> leaves;
  for (std::uint64_t n = 0; n < kLeaves; ++n) {
    leaves.emplace_back(device.real);
    batch_gradients(device, model, data.batch(n), leaves.back());
  }
  const auto values = [&](const Gradients& g) {
    std::vector<float> out;
    for (const Weight& w : model.weights) {
      const auto* p = reinterpret_cast<const float*>(g.find(w));
      out.insert(out.end(), p, p + w.stored());
    }
    return out;
  };
  std::vector<std::vector<float>> parts;
  for (const Gradients& g : leaves) parts.push_back(values(g));
  // Each element's sum in an order of leaves that may depend on the element.
  const auto chain = [&](const auto& leaf_of) {
    std::vector<float> sum(parts[0].size());
    for (std::size_t i = 0; i < sum.size(); ++i) {
      sum[i] = parts[leaf_of(i, 0)][i];
      for (std::size_t n = 1; n < kLeaves; ++n) sum[i] += parts[leaf_of(i, n)][i];
    }
    return sum;
  };
  LeafGradients tree(device, model);
  for (Gradients& g : leaves) tree.push(g);
  Gradients sum(device.real);
  tree.finish(sum);
  std::vector<float> expected(parts[0].size());
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const auto at = [&](std::size_t n) { return parts[n][i]; };
    expected[i] = ((at(0) + at(1)) + (at(2) + at(3))) + ((at(4) + at(5)) + (at(6) + at(7)));
  }
  EXPECT_EQ(values(sum), expected);
  // As they arrive: the fourth rank was first.
  EXPECT_NE(chain([](std::size_t, std::size_t n) { return (n + 6) % kLeaves; }), expected);
  // A ring's all-reduce of four ranks with two leaves each, which began their own sums: every quarter of the
  // numbers begins at another rank.
  std::vector<float> ring(expected.size());
  for (std::size_t i = 0; i < ring.size(); ++i) {
    const auto own = [&](std::size_t rank) { return parts[2 * rank][i] + parts[2 * rank + 1][i]; };
    const std::size_t first = 4 * i / ring.size();
    ring[i] = own(first);
    for (std::size_t hop = 1; hop < 4; ++hop) ring[i] += own((first + hop) % 4);
  }
  EXPECT_NE(ring, expected);
}

// A leaf that begins with what the one before it left, instead of zero, is another gradient.
TEST(TrainRanks, ALeafThatIsNotZeroedIsSeen) {
  const Chain data;
  Device device({.threads = 1});
  Model model(small("gpt2"), device.real);
  init(model, 1);
  const auto gradient = [&](Gradients& into, std::uint64_t number) {
    const TrainBatch b = data.batch(number);
    Tape tape(into);
    rapt::Run run(device);
    run.tape = &tape;
    backward(run, cross_entropy(run, forward(run, model, {.tokens = b.tokens, .sequences = b.sequences}),
                                b.targets, 0)
                      .mean);
  };
  const auto total = [&](bool zeroed) {
    LeafGradients tree(device, model);
    Gradients leaf(device.real), sum(device.real);
    for (std::uint64_t n = 0; n < 4; ++n) {
      if (!zeroed && n == 2) gradient(leaf, 1);  // left from before
      gradient(leaf, n);
      tree.push(leaf);
    }
    tree.finish(sum);
    std::vector<double> out;
    for (const Weight& w : model.weights)
      for (Dim c = 0; c < w.cols; ++c) out.push_back(sum.get(w, 0, c));
    return out;
  };
  EXPECT_EQ(total(true), total(true));
  EXPECT_NE(total(true), total(false));
}

// A rank that fails in the middle of the way back, while buckets are under way, ends the job with its reason.
TEST(TrainRanks, AFailureOnTheWayBackEndsTheJob) {
  if (test::kSanitized) GTEST_SKIP() << "sanitizers end a program that asks for so much memory";
  static const Kernels* plain = &kernels_for(available_isas().back());
  static thread_local int backward_calls;
  static thread_local bool fails;
  Kernels kernels = *plain;
  kernels.norm_backward = [](Queue& q, const NormBackwardArgs& a) noexcept {
    plain->norm_backward(q, a);
    // Memory that nobody has: the call fails as it does where the machine has no more.
    if (++backward_calls == 3 && fails) q.team->scratch(0, std::size_t{1} << 60);
  };
  const Uneven data;
  const Recipe recipe = small("gpt2", {"layers=4"});
  for (const int bad : {0, 2}) {
    const std::string error = test::error_of([&] {
      run_ranks(3, [&](Comm& comm) {
        backward_calls = 0;
        fails = comm.rank() == bad;
        Device device(kernels, {.threads = 1});
        Model model(recipe, device.real);
        init(model, 1);
        TrainOptions o = options(9);
        o.accumulate = 3;
        o.bucket_bytes = 1000;
        Trainer trainer(device, model, data, o, &comm);
        trainer.step();
        ADD_FAILURE() << "rank " << comm.rank() << " finished its step";
      });
    });
    EXPECT_THAT(error, AllOf(HasSubstr(concat("rank ", bad, " of 3: ")), HasSubstr("memory")));
  }
}

// The last op of the way back waits here until both ranks have begun to send a bucket.
TEST(TrainRanks, BucketsAreSentBeforeBackwardEnds) {
  static std::atomic<int> sending;
  static std::atomic<bool> late;
  sending = 0, late = false;
  class Noted final : public Comm {
   public:
    explicit Noted(Comm& of) : of_(of) {}
    int rank() const override { return of_.rank(); }
    int size() const override { return of_.size(); }
    void barrier() override { of_.barrier(); }
    void all_to_all(std::span<const Bytes> send, std::span<const Space> receive) override {
      ++sending;
      of_.all_to_all(send, receive);
    }
    void all_gather(Bytes mine, std::span<const Space> all) override { of_.all_gather(mine, all); }
    void broadcast(Space bytes, int from) override { of_.broadcast(bytes, from); }
    [[noreturn]] void abort(const std::string& why) override { of_.abort(why); }
    void at(const Doing& doing) override { of_.at(doing); }

   private:
    Comm& of_;
  };
  static const Kernels* plain = &kernels_for(available_isas().back());
  Kernels kernels = *plain;
  kernels.embed_backward = [](Queue& q, const EmbedBackwardArgs& a) noexcept {
    for (int ms = 0; sending < 2 && !late; ++ms) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      if (ms > 60'000) late = true;  // nobody sends: they wait for the end
    }
    plain->embed_backward(q, a);
  };
  const Uneven data;
  run_ranks(2, [&](Comm& comm) {
    Noted noted(comm);
    Device device(kernels, {.threads = 1});
    Model model(small("gpt2"), device.real);
    init(model, 1);
    TrainOptions o = options(9);
    o.accumulate = 2;
    o.bucket_bytes = 10'000;
    Trainer trainer(device, model, data, o, &noted);
    EXPECT_EQ(trainer.step().fate, StepReport::Fate::done);
  });
  EXPECT_FALSE(late);
}

TEST(TrainRanks, ATimelineHasWhatRanksDid) {
  const Chain data;
  const Recipe recipe = small("gpt2", {"layers=6"});
  std::vector<Timeline> times(2);
  run_ranks(2, [&](Comm& comm) {
    Device device({.threads = 1});
    Model model(recipe, device.real);
    init(model, 1);
    TrainOptions o = options(9);
    o.accumulate = 4;
    o.bucket_bytes = 20'000;
    Trainer trainer(device, model, data, o, &comm);
    trainer.note_times(&times[static_cast<std::size_t>(comm.rank())], 1);
    trainer.step(), trainer.step();
  });
  for (int rank = 0; rank < 2; ++rank) {
    std::vector<std::string> computed, sent;
    for (const Timeline::Span& s : times[static_cast<std::size_t>(rank)].spans()) {
      EXPECT_GE(s.end, s.begin);
      (s.lane == Timeline::Lane::compute ? computed : sent).push_back(s.name);
    }
    const std::string one = std::to_string(2 * rank), two = std::to_string(2 * rank + 1);
    EXPECT_EQ(computed,
              (std::vector<std::string>{"forward " + one, "backward " + one, "forward " + two,
                                        "backward " + two, "wait", "norm", "optimizer", "weights"}));
    ASSERT_GE(sent.size(), 9u);
    EXPECT_EQ(sent[0], "losses");
    EXPECT_EQ(sent[1], "send 0");
    EXPECT_EQ(sent[2], "add 0");
    const Json trace = parse_json(times[static_cast<std::size_t>(rank)].json(rank));
    EXPECT_EQ(trace.find("traceEvents")->array().size(), 3 + computed.size() + sent.size());
  }
}

}  // namespace
}  // namespace rapt
