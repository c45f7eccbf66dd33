// SPDX-License-Identifier: Apache-2.0
// RoPE and sinusoids against their plain loops; inverse frequencies against numbers of transformers 5.22.
#include "rapt/ops/rope.h"

#include <gtest/gtest.h>

#include <cmath>

#include "rapt/ops/op_test.h"

RAPT_GRADIENT_CHECKED(rope)

namespace rapt::test {
namespace {

using Positions = std::vector<std::int32_t>;

// The plain loop: channel pair i of every head turns by position * frequency.
std::vector<double> reference_rope(const Array& x, const RopeSpec& spec, const Positions& positions,
                                   const std::vector<Dim>& lengths) {
  const auto T = static_cast<std::size_t>(x.shape[0]), H = static_cast<std::size_t>(x.shape[1]),
             D = static_cast<std::size_t>(x.shape[2]);
  std::vector<double> y = x.values;
  for (std::size_t t = 0; t < T; ++t) {
    const RopeFrequencies f = rope_frequencies(spec, x.shape[2], lengths[t]);
    const std::size_t half = f.inverse.size();
    for (std::size_t h = 0; h < H; ++h)
      for (std::size_t i = 0; i < half; ++i) {
        const std::size_t row = (t * H + h) * D;
        const std::size_t a = row + (spec.layout == RopeLayout::halves ? i : 2 * i),
                          b = row + (spec.layout == RopeLayout::halves ? i + half : 2 * i + 1);
        // What the op is given: cos and sin as f32 on the f32 sets, so the reference rounds nothing
        // and the harness' bound covers it.
        const double angle = positions[t] * f.inverse[i], c = std::cos(angle) * f.magnitude,
                     s = std::sin(angle) * f.magnitude;
        y[a] = x.values[a] * c - x.values[b] * s;
        y[b] = x.values[b] * c + x.values[a] * s;
      }
  }
  return y;
}

OpCase rope_case(const std::string& name, const RopeSpec& spec, Dim heads, Dim d, const Positions& positions,
                 const std::vector<Dim>& lengths) {
  OpCase c;
  c.name = name;
  c.inputs = {array({static_cast<Dim>(positions.size()), heads, d}, 1)};
  c.op = [=](rapt::Run& run, const std::vector<Tensor>& in,
             const std::vector<Weight>&) -> std::vector<Tensor> {
    return {rope(run, in[0], rope_table(run, spec, d, positions, lengths))};
  };
  c.reference = [=](const std::vector<Array>& in, const std::vector<Weight>&) {
    return reference_rope(in[0], spec, positions, lengths);
  };
  return c;
}

TEST(Rope, BothLayoutsPartsAndOddSizes) {
  const Positions positions = {0, 1, 2, 100, 7};
  const std::vector<Dim> lengths(5, 101);
  for (RopeLayout layout : {RopeLayout::halves, RopeLayout::pairs})
    for (double part : {1.0, 0.5, 0.3})
      for (Dim heads : {1, 3})
        for (Dim d : {8, 10, 38, 64, 100})
          check(rope_case(
              concat("rope layout ", static_cast<int>(layout), " part ", part, " heads ", heads, " d ", d),
              {.part = part, .layout = layout}, heads, d, positions, lengths));
}

// Latent attention: the last channels of a head turn, by a table made for them alone.
TEST(Rope, ChannelsFromAPlaceOn) {
  const Positions positions = {0, 5, 2};
  for (RopeLayout layout : {RopeLayout::halves, RopeLayout::pairs})
    for (Dim first : {1, 4, 37})
      for (Dim behind : {0, 3}) {
        const RopeSpec spec{.layout = layout};
        const Dim turned = 10, d = first + turned + behind;
        OpCase c;
        c.name = concat("rope from ", first, " of ", d, ", layout ", static_cast<int>(layout));
        c.inputs = {array({3, 2, d}, 1)};
        c.op = [=](rapt::Run& run, const std::vector<Tensor>& in,
                   const std::vector<Weight>&) -> std::vector<Tensor> {
          return {rope(run, in[0], rope_table(run, spec, turned, positions, std::vector<Dim>(3, 6)), first)};
        };
        c.reference = [=](const std::vector<Array>& in, const std::vector<Weight>&) {
          std::vector<double> y = in[0].values;
          Array part{{3, 2, turned}, {}};
          for (std::size_t r = 0; r < 6; ++r)
            for (std::size_t i = 0; i < 10; ++i)
              part.values.push_back(y[r * static_cast<std::size_t>(d) + static_cast<std::size_t>(first) + i]);
          const std::vector<double> t = reference_rope(part, spec, positions, std::vector<Dim>(3, 6));
          for (std::size_t r = 0; r < 6; ++r)
            for (std::size_t i = 0; i < 10; ++i)
              y[r * static_cast<std::size_t>(d) + static_cast<std::size_t>(first) + i] = t[r * 10 + i];
          return y;
        };
        check(c);
      }
  Device device({.threads = 1});
  rapt::Run run(device);
  const RopeTable table = rope_table(run, {}, 10, positions, std::vector<Dim>(3, 6));
  EXPECT_THROW(rope(run, run.make({3, 2, 12}), table, 3), Error);
  EXPECT_THROW(rope(run, run.make({3, 2, 12}), table, -1), Error);
}

TEST(Rope, EveryScalingThroughTheOp) {
  const Positions positions = {0, 3, 50, 90};
  const std::vector<double> list = {1, 1.5, 2, 4};
  for (RopeLayout layout : {RopeLayout::halves, RopeLayout::pairs})
    for (int s = 0; s < 8; ++s) {
      const RopeSpec spec{.part = 0.5,
                          .layout = layout,
                          .scaling = static_cast<RopeScaling>(s),
                          .factor = 4,
                          .original = 32,
                          .short_factor = list,
                          .long_factor = list};
      check(rope_case(concat("rope scaling ", s, " layout ", static_cast<int>(layout)), spec, 2, 16,
                      positions, {91, 91, 91, 91}));
    }
}

TEST(Rope, RowsOfSequencesOfDifferentLengths) {
  const RopeSpec dynamic{.scaling = RopeScaling::dynamic, .factor = 2, .original = 16};
  const Positions positions = {0, 9, 0, 39, 9};
  const std::vector<Dim> lengths = {10, 10, 40, 40, 10};
  check(rope_case("rope of mixed lengths", dynamic, 2, 12, positions, lengths));
  // A row's table is the one it would have alone.
  Device device({.threads = 2});
  rapt::Run run(device);
  const RopeTable all = rope_table(run, dynamic, 12, positions, lengths);
  for (std::size_t t = 0; t < positions.size(); ++t) {
    const RopeTable one =
        rope_table(run, dynamic, 12, std::span(positions).subspan(t, 1), std::span(lengths).subspan(t, 1));
    EXPECT_EQ(values_of(one.cos), values_of(all.cos.slice(static_cast<Dim>(t), 1)));
    EXPECT_EQ(values_of(one.sin), values_of(all.sin.slice(static_cast<Dim>(t), 1)));
  }
  EXPECT_NE(values_of(all.cos.slice(1, 1)),
            values_of(rope_table(run, dynamic, 12, Positions{9}, std::vector<Dim>{40}).cos));
  // One length for all rows.
  const RopeTable same = rope_table(run, dynamic, 12, positions, std::vector<Dim>{40});
  EXPECT_EQ(values_of(same.cos.slice(3, 1)), values_of(all.cos.slice(3, 1)));
}

// q at m times k at n depends on m - n only (magnitude 1), whatever the positions.
TEST(Rope, ScoresDependOnTheDistanceOnly) {
  Device device({.threads = 1, .isa = "f64"});
  const Array q = array({1, 1, 24}, 1), k = array({1, 1, 24}, 2);
  for (RopeLayout layout : {RopeLayout::halves, RopeLayout::pairs})
    for (double part : {1.0, 0.5}) {
      auto score = [&](std::int32_t m, std::int32_t n) {
        rapt::Run run(device);
        const RopeSpec spec{.part = part, .layout = layout};
        const std::vector<Dim> length = {1};
        const auto a = values_of(
            rope(run, run.upload({1, 1, 24}, q.values), rope_table(run, spec, 24, Positions{m}, length)));
        const auto b = values_of(
            rope(run, run.upload({1, 1, 24}, k.values), rope_table(run, spec, 24, Positions{n}, length)));
        double sum = 0;
        for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
        return sum;
      };
      for (std::int32_t distance : {0, 1, 17, 300}) {
        const double at_start = score(distance, 0);
        for (std::int32_t n : {1, 10, 1000, 100000})
          EXPECT_NEAR(score(n + distance, n), at_start, 1e-9) << "distance " << distance << " from " << n;
      }
      EXPECT_GT(std::abs(score(1, 0) - score(2, 0)), 1e-3);
    }
}

// Inverse frequencies and the factor on cos and sin as transformers 5.22 computes them in f32
// (modeling_rope_utils, a Llama config with the head_dim, max_position_embeddings and rope_parameters named
// in each line).
struct Reference {
  const char* name;
  RopeSpec spec;
  Dim head_dim, length;
  std::size_t pairs;
  double magnitude;
  std::vector<std::pair<std::size_t, double>> inverse;
};

std::vector<Reference> references() {
  using enum RopeScaling;
  const std::vector<double> shorts = {1, 1.125, 1.25, 1.375, 1.5, 1.625, 1.75, 1.875},
                            longs = {1, 2.5, 4, 5.5, 7, 8.5, 10, 11.5};
  const RopeSpec gpt_oss{.theta = 150000, .scaling = yarn, .factor = 32, .original = 4096, .truncate = false};
  RopeSpec truncated = gpt_oss;
  truncated.truncate = true;
  const RopeSpec twice{.scaling = dynamic, .factor = 2, .original = 4096};
  const RopeSpec phi{.scaling = longrope,
                     .original = 4096,
                     .max_context = 131072,
                     .short_factor = shorts,
                     .long_factor = longs};
  RopeSpec phi_factor = phi, phi_attention = phi;
  phi_factor.factor = 4;
  phi_attention.attention_factor = 1.1;
  return {
      {"linear: factor 8, theta 1e6, head_dim 64",
       {.theta = 1e6, .scaling = linear, .factor = 8},
       64,
       1,
       32,
       1,
       {{0, 0.125}, {1, 0.0811727047}, {8, 0.00395284733}, {16, 0.000125000006}, {31, 1.92490816e-07}}},
      {"linear: as before, partial_rotary_factor 0.25",
       {.theta = 1e6, .part = 0.25, .scaling = linear, .factor = 8},
       64,
       1,
       8,
       1,
       {{0, 0.125}, {1, 0.0222284924}, {4, 0.000125000006}, {7, 7.02926684e-07}}},
      {"dynamic: factor 2, max_position_embeddings 4096, head_dim 128, seq_len 4096",
       twice,
       128,
       4096,
       64,
       1,
       {{0, 1}, {1, 0.865964353}, {16, 0.100000001}, {32, 0.00999999978}, {63, 0.000115478193}}},
      {"dynamic: the same, seq_len 6000",
       twice,
       128,
       6000,
       64,
       1,
       {{0, 1}, {1, 0.856975615}, {16, 0.0846243575}, {32, 0.00716128107}, {63, 5.98429579e-05}}},
      {"dynamic: the same, seq_len 16384",
       twice,
       128,
       16384,
       64,
       1,
       {{1, 0.839625776}, {16, 0.0610059127}, {32, 0.00372172147}, {63, 1.6496886e-05}}},
      {"yarn of gpt-oss: factor 32, theta 150000, original 4096, truncate false, head_dim 64",
       gpt_oss,
       64,
       1,
       32,
       1.3465735902799727,
       {{0, 1},
        {6, 0.107024424},
        {9, 0.0317056961},
        {12, 0.00679495931},
        {15, 0.00105260219},
        {18, 3.83088118e-05},
        {31, 3.0235114e-07}}},
      {"yarn: the same, truncate true",
       truncated,
       64,
       1,
       32,
       1.3465735902799727,
       {{0, 1},
        {6, 0.107024424},
        {9, 0.0316207521},
        {12, 0.00701571396},
        {15, 0.00120613095},
        {18, 3.83088118e-05},
        {31, 3.0235114e-07}}},
      {"yarn: factor 40, original 4096, mscale 0.707, mscale_all_dim 1, head_dim 64",
       {.scaling = yarn, .factor = 40, .original = 4096, .mscale = 0.707, .mscale_all_dim = 1},
       64,
       1,
       32,
       0.9210423553163399,
       {{0, 1},
        {8, 0.100000001},
        {12, 0.0268793609},
        {16, 0.00550000044},
        {20, 0.000790569407},
        {24, 2.49999994e-05},
        {31, 3.33380353e-06}}},
      {"yarn: factor 4, original 4096, attention_factor 1.25, head_dim 64",
       {.scaling = yarn, .factor = 4, .original = 4096, .attention_factor = 1.25},
       64,
       1,
       32,
       1.25,
       {{8, 0.100000001},
        {12, 0.0279739965},
        {16, 0.00653846189},
        {20, 0.00133788679},
        {24, 0.000250000012},
        {31, 3.33380376e-05}}},
      {"yarn: factor 4, original 4096, partial_rotary_factor 0.5, head_dim 64",
       {.part = 0.5, .scaling = yarn, .factor = 4, .original = 4096},
       64,
       1,
       16,
       1.138629436111989,
       {{0, 1},
        {4, 0.100000001},
        {6, 0.0282346234},
        {8, 0.00678571407},
        {10, 0.00146820047},
        {12, 0.000250000012},
        {15, 4.44569851e-05}}},
      {"llama3 of 3.1: factor 8, low 1, high 4, original 8192, theta 5e5, head_dim 128",
       {.theta = 5e5, .scaling = llama3, .factor = 8, .original = 8192},
       128,
       1,
       64,
       1,
       {{0, 1},
        {16, 0.0376060307},
        {28, 0.00321144611},
        {29, 0.00216657063},
        {30, 0.00137189368},
        {32, 0.000524846022},
        {35, 9.55621217e-05},
        {36, 7.78465546e-05},
        {63, 3.06892588e-07}}},
      {"llama3 of 3.2: factor 32, else the same, head_dim 64",
       {.theta = 5e5, .scaling = llama3, .factor = 32, .original = 8192},
       64,
       1,
       32,
       1,
       {{0, 1},
        {14, 0.00321144611},
        {15, 0.00129054801},
        {16, 0.000429556705},
        {17, 9.70828623e-05},
        {18, 1.94616387e-05},
        {31, 9.41830649e-08}}},
      {"longrope: short 1 + i/8, long 1 + 1.5 i, original 4096, max_position_embeddings 131072, "
       "head_dim 16, seq_len 4096",
       phi,
       16,
       4096,
       8,
       1.1902380714238083,
       {{0, 1}, {1, 0.281091362}, {2, 0.0799999982}, {4, 0.00666666683}, {7, 0.000168654806}}},
      {"longrope: the same, seq_len 4097",
       phi,
       16,
       4097,
       8,
       1.1902380714238083,
       {{0, 1}, {1, 0.126491114}, {2, 0.0250000004}, {4, 0.00142857141}, {7, 2.74980684e-05}}},
      {"longrope: the same with factor 4",
       phi_factor,
       16,
       4097,
       8,
       1.0801234497346435,
       {{1, 0.126491114}, {7, 2.74980684e-05}}},
      {"longrope: the same with attention_factor 1.1",
       phi_attention,
       16,
       4097,
       8,
       1.1,
       {{1, 0.126491114}, {7, 2.74980684e-05}}},
      {"proportional: theta 1e6, partial_rotary_factor 0.25, head_dim 64",
       {.theta = 1e6, .part = 0.25, .scaling = proportional},
       64,
       1,
       32,
       1,
       {{0, 1}, {1, 0.649381638}, {4, 0.177827939}, {7, 0.0486967526}, {8, 0}, {31, 0}}},
      {"proportional: the same with factor 2",
       {.theta = 1e6, .part = 0.25, .scaling = proportional, .factor = 2},
       64,
       1,
       32,
       1,
       {{0, 0.5}, {1, 0.324690819}, {4, 0.0889139697}, {7, 0.0243483763}, {8, 0}, {31, 0}}},
      {"proportional: partial_rotary_factor 0.3, head_dim 20",
       {.part = 0.3, .scaling = proportional},
       20,
       1,
       10,
       1,
       {{0, 1}, {1, 0.398107171}, {2, 0.158489317}, {3, 0}, {9, 0}}},
  };
}

TEST(RopeFrequencies, EqualTransformers) {
  for (const Reference& k : references()) {
    SCOPED_TRACE(k.name);
    const RopeFrequencies f = rope_frequencies(k.spec, k.head_dim, k.length);
    ASSERT_EQ(f.inverse.size(), k.pairs);
    EXPECT_NEAR(f.magnitude, k.magnitude, 1e-12);
    for (const auto& [i, expected] : k.inverse)
      EXPECT_NEAR(f.inverse[i], expected, 1e-6 * expected) << "frequency " << i;
  }
}

TEST(RopeFrequencies, PlainNtkAndOddParts) {
  const RopeFrequencies plain = rope_frequencies({}, 10, 1);
  for (std::size_t i = 0; i < 5; ++i)
    EXPECT_DOUBLE_EQ(plain.inverse[i], std::pow(10000.0, -2.0 * static_cast<double>(i) / 10));
  // NTK: the fastest pair keeps its frequency, the slowest is interpolated by exactly the factor.
  const RopeFrequencies ntk = rope_frequencies({.scaling = RopeScaling::ntk, .factor = 8}, 10, 1);
  EXPECT_EQ(ntk.inverse[0], 1);
  EXPECT_NEAR(ntk.inverse[4], plain.inverse[4] / 8, 1e-12);
  // 0.3 of 10 channels: R = 3 turns two pairs with exponents 2i/3, as transformers does.
  const RopeFrequencies odd = rope_frequencies({.part = 0.3}, 10, 1);
  ASSERT_EQ(odd.inverse.size(), 2u);
  EXPECT_DOUBLE_EQ(odd.inverse[1], std::pow(10000.0, -2.0 / 3));
  // dynamic: a config that names only max_position_embeddings means the trained context by it.
  EXPECT_EQ(
      rope_frequencies({.scaling = RopeScaling::dynamic, .factor = 2, .original = 64}, 16, 100).inverse,
      rope_frequencies({.scaling = RopeScaling::dynamic, .factor = 2, .max_context = 64}, 16, 100).inverse);
}

TEST(RopeFrequencies, RefusesSpecsThatMeanNothing) {
  using enum RopeScaling;
  const std::vector<double> four(4, 1.0), three(3, 1.0);
  EXPECT_THROW(rope_frequencies({.theta = 0}, 8, 1), Error);
  EXPECT_THROW(rope_frequencies({.part = 0}, 8, 1), Error);
  EXPECT_THROW(rope_frequencies({.part = 1.5}, 8, 1), Error);
  EXPECT_THROW(rope_frequencies({.part = 0.1}, 8, 1), Error);  // no channel left
  EXPECT_THROW(rope_frequencies({}, 7, 1), Error);  // the last channel has no partner
  EXPECT_THROW(rope_frequencies({.part = 0.5, .scaling = proportional}, 7, 1), Error);
  EXPECT_THROW(rope_frequencies({.scaling = linear, .factor = 0}, 8, 1), Error);
  EXPECT_THROW(rope_frequencies({.scaling = ntk, .factor = 2}, 2, 1), Error);
  // Nothing says what the model was trained for.
  EXPECT_THROW(rope_frequencies({.scaling = dynamic, .factor = 2}, 8, 1), Error);
  EXPECT_THROW(rope_frequencies({.scaling = yarn, .factor = 2}, 8, 1), Error);
  EXPECT_THROW(
      rope_frequencies({.scaling = yarn, .factor = 2, .original = 64, .beta_fast = 1, .beta_slow = 2}, 8, 1),
      Error);
  EXPECT_THROW(rope_frequencies({.scaling = llama3, .factor = 2}, 8, 1), Error);
  EXPECT_THROW(
      rope_frequencies({.scaling = llama3, .factor = 2, .original = 64, .low_freq = 4, .high_freq = 4}, 8, 1),
      Error);
  EXPECT_THROW(rope_frequencies(
                   {.scaling = longrope, .original = 64, .short_factor = four, .long_factor = three}, 8, 1),
               Error);
  EXPECT_THROW(
      rope_frequencies(
          {.scaling = longrope, .original = 64, .short_factor = {1, 1, 0, 1}, .long_factor = four}, 8, 1),
      Error);
  EXPECT_NO_THROW(rope_frequencies(
      {.scaling = longrope, .original = 64, .short_factor = four, .long_factor = four}, 8, 1));
}

TEST(Rope, RefusesTablesThatDoNotFit) {
  Device device({.threads = 1});
  rapt::Run run(device);
  const std::vector<Dim> lengths = {3, 3, 3};
  const RopeTable table = rope_table(run, {}, 8, Positions{0, 1, 2}, lengths);
  EXPECT_THROW(rope(run, run.make({2, 1, 8}), table), Error);
  EXPECT_THROW(rope(run, run.make({3, 1, 6}), table), Error);
  EXPECT_THROW(rope(run, run.make({3, 8}), table), Error);
  EXPECT_THROW(rope_table(run, {}, 8, Positions{0, 1}, lengths), Error);
  EXPECT_EQ(
      rope(run, run.make({0, 2, 8}), rope_table(run, {}, 8, Positions{}, std::vector<Dim>{})).elements(), 0);
}

TEST(Sinusoid, BothLayoutsAndTablesByTheFormula) {
  const Positions positions = {0, 1, 5, 511, 100000};
  for (const std::string& isa : {std::string("f64"), available_isas().front()})
    for (SinusoidLayout layout : {SinusoidLayout::pairs, SinusoidLayout::halves})
      for (SinusoidTable table : {SinusoidTable::paper, SinusoidTable::marian})
        for (Dim width : {4, 6, 34, 512}) {
          Device device({.threads = 2, .isa = isa});
          rapt::Run run(device);
          const Tensor y = sinusoid(run, layout, table, width, positions);
          EXPECT_EQ(y.buffer, nullptr);
          ASSERT_EQ(y.shape(), concat("[5,", width, "]"));
          // An angle of 1e5 has an ulp of 1.5e-11.
          const double tolerance = y.dtype == DType::f64 ? 1e-10 : 1e-7;
          for (Dim t = 0; t < 5; ++t) {
            double norm = 0;
            for (Dim i = 0; i < width / 2; ++i) {
              const double exponent = table == SinusoidTable::paper
                                          ? 2.0 * static_cast<double>(i) / static_cast<double>(width)
                                          : static_cast<double>(i) / (static_cast<double>(width) / 2 - 1);
              const double angle = positions[static_cast<std::size_t>(t)] / std::pow(10000.0, exponent);
              const double s = y.at(t * width + (layout == SinusoidLayout::pairs ? 2 * i : i)),
                           c = y.at(t * width +
                                    (layout == SinusoidLayout::pairs ? 2 * i + 1 : width / 2 + i));
              EXPECT_NEAR(s, std::sin(angle), tolerance);
              EXPECT_NEAR(c, std::cos(angle), tolerance);
              norm += s * s + c * c;
            }
            // |PE|^2 = d/2: every position has the same length
            EXPECT_NEAR(norm, static_cast<double>(width) / 2, 1e-4);
          }
        }
}

TEST(Sinusoid, RefusesWidthsThatAreNoPairs) {
  Device device({.threads = 1});
  rapt::Run run(device);
  EXPECT_THROW(sinusoid(run, SinusoidLayout::pairs, SinusoidTable::paper, 7, Positions{0}), Error);
  EXPECT_THROW(sinusoid(run, SinusoidLayout::pairs, SinusoidTable::paper, 0, Positions{0}), Error);
  EXPECT_THROW(sinusoid(run, SinusoidLayout::halves, SinusoidTable::marian, 2, Positions{0}), Error);
  EXPECT_NO_THROW(sinusoid(run, SinusoidLayout::halves, SinusoidTable::paper, 2, Positions{0}));
}

}  // namespace
}  // namespace rapt::test
