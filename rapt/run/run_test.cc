// SPDX-License-Identifier: Apache-2.0
// Row plans against the mask's rule, key by key; what gradients, tape, random keys and taps promise.
#include "rapt/run/run.h"

#include <gtest/gtest.h>

#include <set>

#include "rapt/run/batch.h"

namespace rapt {
namespace {

// ------------------------------------------------------------------------------------------------ masks

// The rule of Mask, key by key.
bool visible(const Mask& m, Dim prefix, Dim p, Dim key) {
  const bool not_after = key <= p + m.right || (m.prefix && p < prefix && key < prefix);
  const bool not_before = key >= p - m.left && (m.chunk == 0 || key / m.chunk >= p / m.chunk);
  return not_after && (not_before || key < m.keep);
}

TEST(PlanRows, GivesTheIntervalOfEveryMask) {
  const std::vector<Sequence> sequences = {{.first = 0, .count = 13, .prefix = 5},
                                           {.first = 13, .count = 1, .past = 9},
                                           {.first = 14, .count = 0},
                                           {.first = 14, .count = 6, .past = 4, .prefix = 7},
                                           {.first = 20, .count = 3, .prefix = 50}};
  int masks = 0;
  for (Dim left : {Mask::kAll, Dim{0}, Dim{3}, Dim{100}})
    for (Dim right : {Mask::kAll, Dim{0}, Dim{2}})
      for (Dim keep : {0, 2, 40})
        for (Dim chunk : {0, 4})
          for (bool prefix : {false, true}) {
            const Mask mask{.left = left, .right = right, .keep = keep, .chunk = chunk, .prefix = prefix};
            const RowPlan plan = plan_rows(mask, sequences);
            ++masks;
            ASSERT_EQ(plan.parts.size(), sequences.size());
            ASSERT_EQ(plan.low.size(), 23u);
            std::size_t row = 0;
            for (std::size_t s = 0; s < sequences.size(); ++s) {
              const Sequence& q = sequences[s];
              const Dim length = q.past + q.count;
              EXPECT_EQ(plan.parts[s].q_first, q.first);
              EXPECT_EQ(plan.parts[s].q_count, q.count);
              EXPECT_EQ(plan.parts[s].k_first, q.first);
              EXPECT_EQ(plan.parts[s].k_count, length);
              EXPECT_EQ(plan.parts[s].keep, keep);
              for (Dim i = 0; i < q.count; ++i, ++row) {
                const Dim p = q.past + i;
                EXPECT_EQ(plan.position[row], p);
                EXPECT_EQ(plan.kept_position[row],
                          keep > 0 && left < Mask::kAll ? std::min(p, keep + left) : p);
                EXPECT_GE(plan.low[row], 0);
                EXPECT_LE(plan.high[row], length);
                for (Dim key = 0; key < length; ++key) {
                  const bool planned = key < plan.high[row] && (key >= plan.low[row] || key < keep);
                  ASSERT_EQ(planned, visible(mask, q.prefix, p, key))
                      << "left " << left << " right " << right << " keep " << keep << " chunk " << chunk
                      << " prefix " << prefix << " position " << p << " key " << key;
                }
              }
            }
          }
  EXPECT_EQ(masks, 144);
}

// One pass, sequences with keep and window of their own: each sees what its own rule says, and masks that
// are more than causal know nothing of streaming.
TEST(PlanRows, AStreamBelongsToItsSequence) {
  const std::vector<Sequence> sequences = {
      {.first = 0, .count = 13, .prefix = 4, .stream = {.keep = 2, .window = 5}},
      {.first = 13, .count = 9, .past = 3},
      {.first = 22, .count = 1, .past = 30, .stream = {.keep = 4, .window = 1}},
      {.first = 23, .count = 6, .past = 10, .stream = {.keep = 0, .window = 8}},
      {.first = 29, .count = 3, .past = 20, .stream = {.keep = 7, .window = 0}},
      {.first = 32, .count = 4, .past = 2, .stream = {.keep = 9, .window = 100}}};
  int streaming = 0;
  for (Dim left : {Mask::kAll, Dim{3}})
    for (Dim right : {Mask::kAll, Dim{0}, Dim{2}})
      for (Dim keep : {0, 3})
        for (Dim chunk : {0, 4})
          for (bool prefix : {false, true}) {
            const Mask mask{.left = left, .right = right, .keep = keep, .chunk = chunk, .prefix = prefix};
            const bool plain = left == Mask::kAll && right == 0 && keep == 0 && chunk == 0 && !prefix;
            EXPECT_EQ(mask.streams(), plain);
            streaming += plain;
            const RowPlan plan = plan_rows(mask, sequences);
            ASSERT_EQ(plan.parts.size(), sequences.size());
            ASSERT_EQ(plan.low.size(), 36u);
            std::size_t row = 0;
            for (std::size_t i = 0; i < sequences.size(); ++i) {
              const Sequence& s = sequences[i];
              const bool on = plain && s.stream.window > 0;
              const Dim length = s.past + s.count, kept = on ? s.stream.keep : keep;
              EXPECT_EQ(plan.parts[i].keep, kept);
              EXPECT_EQ(mask.of(s) == mask, !on);
              for (Dim p = s.past; p < length; ++p, ++row) {
                Dim towards = p;
                if (on && kept > 0) towards = std::min(p, kept + s.stream.window - 1);
                else if (kept > 0 && left < Mask::kAll) towards = std::min(p, kept + left);
                EXPECT_EQ(plan.kept_position[row], towards);
                for (Dim key = 0; key < length; ++key) {
                  const bool planned = key < plan.high[row] && (key >= plan.low[row] || key < kept);
                  const bool expected = on ? key <= p && (key < s.stream.keep || key > p - s.stream.window)
                                           : visible(mask, s.prefix, p, key);
                  ASSERT_EQ(planned, expected) << "sequence " << i << " position " << p << " key " << key;
                }
              }
            }
          }
  EXPECT_EQ(streaming, 1);
}

TEST(PlanRows, ARowsPlanDoesNotDependOnHowItsSequenceIsCut) {
  for (const Mask& mask :
       {Mask{.right = 0}, Mask{.left = 3, .right = 0, .keep = 2}, Mask{.right = 0, .chunk = 4}}) {
    const RowPlan whole = plan_rows(mask, std::vector<Sequence>{{.count = 12}});
    for (Dim past = 0; past < 12; ++past) {
      const RowPlan one = plan_rows(mask, std::vector<Sequence>{{.count = 1, .past = past}});
      const auto r = static_cast<std::size_t>(past);
      EXPECT_EQ(one.low[0], whole.low[r]);
      EXPECT_EQ(one.high[0], whole.high[r]);
      EXPECT_EQ(one.position[0], whole.position[r]);
      EXPECT_EQ(one.kept_position[0], whole.kept_position[r]);
    }
  }
}

TEST(PlanCross, EveryRowSeesAllOfItsMemory) {
  const std::vector<Sequence> queries = {{.first = 0, .count = 2, .past = 3}, {.first = 2, .count = 1}},
                              memory = {{.first = 0, .count = 5}, {.first = 5, .count = 7}};
  const RowPlan plan = plan_cross(queries, memory);
  EXPECT_EQ(plan.low, (std::vector<std::int32_t>{0, 0, 0}));
  EXPECT_EQ(plan.high, (std::vector<std::int32_t>{5, 5, 7}));
  EXPECT_EQ(plan.position, (std::vector<std::int32_t>{3, 4, 0}));
  EXPECT_EQ(plan.parts[1].keep, 0);
  EXPECT_EQ(plan.parts[1].k_first, 5);
  EXPECT_EQ(plan.parts[1].k_count, 7);
  EXPECT_THROW(plan_cross(queries, std::vector<Sequence>{{.count = 5}}), Error);
}

// ------------------------------------------------------------------------------------------------ gradients

// Whoever is told to write a gradient writes all of it; everybody else finds zeros or what was added.
TEST(Gradients, AreWrittenOnceAndOnlyAsAWhole) {
  Device device({.threads = 1});
  rapt::Run run(device);
  Gradients gradients(device.real);
  Tape tape(gradients);
  run.tape = &tape;
  Weight w = make_weight("w", 3, 4, device.real);
  w.index = 0;
  bool write = false;
  void* g = run.grad(&w, write);
  EXPECT_TRUE(write);
  EXPECT_EQ(run.grad(&w, write), g);
  EXPECT_FALSE(write);
  std::memset(g, 0, 48);
  gradients.zero();
  EXPECT_EQ(run.grad(&w), g);
  EXPECT_EQ(gradients.get(w, 2, 3), 0);  // zeroed, though the memory may hold anything
  run.grad(&w, write);
  EXPECT_FALSE(write);
  EXPECT_EQ(run.grad(static_cast<const Weight*>(nullptr), write), nullptr);

  const Tensor whole = run.make({2, 6}), cut = run.make({4, 3});
  g = run.grad(whole.reshape({12}), write);
  EXPECT_TRUE(write);
  std::fill_n(static_cast<float*>(g), 12, 5.0f);
  EXPECT_EQ(run.grad(whole, write), g);
  EXPECT_FALSE(write);
  g = run.grad(cut.slice(1, 2), write);  // a part is never written: nobody would zero the rest
  EXPECT_FALSE(write);
  EXPECT_EQ(g, static_cast<std::byte*>(run.grad(cut)) + 3 * sizeof(float));
  for (int i = 0; i < 12; ++i) EXPECT_EQ(static_cast<float*>(run.grad(cut))[i], 0);
  EXPECT_EQ(run.grad(cut.constant(), write), nullptr);
  EXPECT_FALSE(write);
}

TEST(Gradients, StartAtZeroKeepTheOrderOfTheWeightAndForget) {
  for (DType real : {DType::f32, DType::f64}) {
    Gradients gradients(real);
    Weight w = make_weight("w", 33, 3, real, Packing::panels), other = make_weight("other", 1, 4, real);
    EXPECT_THROW(gradients.of(w), Error);  // belongs to no model
    EXPECT_EQ(gradients.find(w), nullptr);
    w.index = 7;
    other.index = 2;
    EXPECT_EQ(gradients.find(w), nullptr);
    EXPECT_EQ(gradients.get(w, 32, 2), 0);
    std::byte* g = gradients.of(w);
    EXPECT_EQ(gradients.of(w), g);
    EXPECT_EQ(gradients.find(w), g);
    EXPECT_EQ(gradients.get(w, 32, 2), 0);
    const auto at = static_cast<std::size_t>(w.offset(32, 2));
    if (real == DType::f64) reinterpret_cast<double*>(g)[at] = 5;
    else reinterpret_cast<float*>(g)[at] = 5;
    EXPECT_EQ(gradients.get(w, 32, 2), 5);
    EXPECT_EQ(gradients.get(w, 31, 2), 0);
    EXPECT_NE(gradients.of(other), g);
    gradients.zero();
    EXPECT_EQ(gradients.find(w), nullptr);
    EXPECT_EQ(gradients.get(w, 32, 2), 0);
    EXPECT_EQ(gradients.of(w), g);  // the memory stays
    EXPECT_EQ(gradients.get(w, 32, 2), 0);
  }
}

TEST(RunGrad, ViewsShareTheGradientOfTheirBufferByOffset) {
  Device device({.threads = 1});
  rapt::Run run(device);
  const Tensor x = run.make({4, 6});
  auto* g = static_cast<std::byte*>(run.grad(x));
  EXPECT_EQ(run.grad(x), g);
  EXPECT_EQ(run.grad(x.reshape({2, 12})), g);
  EXPECT_EQ(run.grad(x.slice(1, 2)), g + 6 * size_of(device.real));
  EXPECT_EQ(run.grad(x.slice(1, 2).slice(1, 1).reshape({2, 3})), g + 12 * size_of(device.real));
  for (std::size_t i = 0; i < 24 * size_of(device.real); ++i) EXPECT_EQ(g[i], std::byte{0});
  EXPECT_EQ(run.grad(x.constant()), nullptr);
  EXPECT_EQ(run.grad(static_cast<const Weight*>(nullptr)), nullptr);
  EXPECT_NE(run.grad(run.make({4, 6})), g);
}

// --------------------------------------------------------------------------------------------- run and tape

TEST(Run, MakesTensorsOfTheDevicesNumbers) {
  for (const std::string& isa : {std::string("f64"), available_isas().front()}) {
    Device device({.threads = 1, .isa = isa});
    rapt::Run run(device);
    const Tensor x = run.upload({2, 2}, std::vector<double>{1, 2, 3, 0.1});
    EXPECT_EQ(x.dtype, device.real);
    EXPECT_EQ(x.at(2), 3);
    EXPECT_EQ(run.like(run.make({1, 2, 3, 4})).shape(), "[1,2,3,4]");
    EXPECT_EQ(run.like(run.make({5})).shape(), "[5]");
    EXPECT_EQ(run.make({3}, DType::i32).dtype, DType::i32);
    EXPECT_THROW(run.upload({2, 2}, std::vector<double>(3)), Error);
  }
}

TEST(Run, TheNextPassGetsTheSameAddresses) {
  Device device({.threads = 1});
  rapt::Run run(device);
  const std::byte* first = run.make({100}).data;
  run.layer = 3;
  run.reset();
  EXPECT_EQ(run.layer, -1);
  EXPECT_EQ(run.make({100}).data, first);
}

struct Noted {
  std::vector<int>* order;
  int number;
};
void note(Run&, const Noted& n) { n.order->push_back(n.number); }

TEST(Tape, PlaysBackwardsOnceAndOnlyWhereThereIsOne) {
  Device device({.threads = 1});
  rapt::Run run(device);
  std::vector<int> order;
  run.record(note, Noted{&order, 0});  // no tape: nothing to remember
  const Tensor loss = run.make({1});
  EXPECT_THROW(backward(run, loss), Error);

  Gradients gradients(device.real);
  Tape tape(gradients);
  run.tape = &tape;
  for (int i = 1; i <= 3; ++i) run.record(note, Noted{&order, i});
  EXPECT_EQ(tape.size(), 3u);
  EXPECT_THROW(backward(run, run.make({2})), Error);  // not one number
  backward(run, loss);
  EXPECT_EQ(order, (std::vector<int>{3, 2, 1}));
  EXPECT_EQ(tape.size(), 0u);
  Tensor g = loss;
  g.data = static_cast<std::byte*>(run.grad(loss));
  EXPECT_EQ(g.at(0), 1);
}

TEST(Run, RandomKeysDifferBySeedStepStackLayerAndSite) {
  Device device({.threads = 1});
  rapt::Run run(device);
  std::set<std::uint64_t> keys;
  std::size_t made = 0;
  for (std::uint64_t seed : {0, 1, 2})
    for (std::uint64_t step : {0, 1, 2})
      for (Stack stack : {Stack::encoder, Stack::decoder})
        for (int layer : {-1, 0, 1, 2})
          for (std::uint64_t site : {0, 1, 2, 1000}) {
            run.random = {seed, step};
            run.stack = stack;
            run.layer = layer;
            keys.insert(run.random_key(site));
            EXPECT_EQ(run.random_key(site), run.random_key(site));
            ++made;
          }
  EXPECT_EQ(keys.size(), made);
}

TEST(Taps, AreAskedBeforehand) {
  Device device({.threads = 1});
  rapt::Run run(device);
  EXPECT_FALSE(run.wants(Site{"q"}));
  Taps taps;
  run.taps = &taps;
  EXPECT_FALSE(run.wants(Site{"q"}));
  taps.see(Site{"q"}, [](const Tapped&) {});
  EXPECT_TRUE(run.wants(Site{"q"}));
  EXPECT_FALSE(run.wants(Site{"k"}));
  EXPECT_TRUE(
      taps.chosen({.site = Site{"attn_weights"}, .stack = Stack::decoder, .layer = 0, .value = {}}, 9, 2)
          .empty());
  taps.want_weights(
      Site{"attn_weights"}, [](const Tapped& t) { return std::vector<Taps::HeadRow>{{t.layer, 1}}; },
      [](const Tapped&) {});
  EXPECT_TRUE(run.wants(Site{"attn_weights"}));
  EXPECT_EQ(
      taps.chosen({.site = Site{"attn_weights"}, .stack = Stack::decoder, .layer = 5, .value = {}}, 9, 2)
          .at(0)
          .head,
      5);
  taps.muted = true;
  EXPECT_FALSE(run.wants(Site{"q"}));
  EXPECT_TRUE(
      taps.chosen({.site = Site{"attn_weights"}, .stack = Stack::decoder, .layer = 5, .value = {}}, 9, 2)
          .empty());
}

}  // namespace
}  // namespace rapt
