// SPDX-License-Identifier: Apache-2.0
// Against the plain recurrence, row by row, in double; gradients over several chunks; and bits of rows that
// come one by one, a few at a time or all at once, from pages.
#include "rapt/ops/delta.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "rapt/ops/op_test.h"

RAPT_GRADIENT_CHECKED(decay)
RAPT_GRADIENT_CHECKED(gated_delta)

namespace rapt::test {
namespace {

using Arrays = std::vector<Array>;
using Tensors = std::vector<Tensor>;
using Weights = std::vector<Weight>;
std::size_t at(Dim i) { return static_cast<std::size_t>(i); }

std::vector<Sequence> sequences_of(const std::vector<Dim>& lengths) {
  std::vector<Sequence> out;
  Dim first = 0;
  for (const Dim n : lengths) {
    out.push_back({.first = first, .count = n});
    first += n;
  }
  return out;
}

// q and k of length 1, g below 0, beta between 0 and 1.
Arrays inputs_of(const GatedDeltaSpec& s, Dim T, double forgetting = 0.3) {
  Arrays in = {array({T, s.key_heads, s.key_dim}, 1), array({T, s.key_heads, s.key_dim}, 2),
               array({T, s.value_heads, s.value_dim}, 3), array({T, s.value_heads}, 4),
               array({T, s.value_heads}, 5)};
  for (int i = 0; i < 2; ++i)
    for (Dim r = 0; r < T * s.key_heads; ++r) {
      double sum = 0;
      for (Dim d = 0; d < s.key_dim; ++d) sum += std::pow(in[at(i)].values[at(r * s.key_dim + d)], 2);
      for (Dim d = 0; d < s.key_dim; ++d) {
        double& x = in[at(i)].values[at(r * s.key_dim + d)];
        x = static_cast<float>(x / std::sqrt(sum));
      }
    }
  for (double& g : in[3].values) g = static_cast<float>(-forgetting * std::abs(g));
  for (double& b : in[4].values) b = static_cast<float>(1 / (1 + std::exp(-b)));
  return in;
}

// The recurrence of delta.h, row by row. norms: |S| after every row.
std::vector<double> reference(const GatedDeltaSpec& s, const std::vector<Sequence>& sequences,
                              const Arrays& in, std::vector<double>* norms = nullptr) {
  const Dim dk = s.key_dim, dv = s.value_dim;
  std::vector<double> o(in[2].values.size());
  if (norms) norms->resize(in[3].values.size());
  for (const Sequence& seq : sequences)
    for (Dim h = 0; h < s.value_heads; ++h) {
      std::vector<double> S(at(dk * dv));
      const Dim key_head = s.turns ? h % s.key_heads : h / (s.value_heads / s.key_heads);
      for (Dim t = seq.first; t < seq.first + seq.count; ++t) {
        const double *q = &in[0].values[at((t * s.key_heads + key_head) * dk)],
                     *k = &in[1].values[at((t * s.key_heads + key_head) * dk)],
                     *v = &in[2].values[at((t * s.value_heads + h) * dv)];
        const double g = in[3].values[at(t * s.value_heads + h)],
                     beta = in[4].values[at(t * s.value_heads + h)];
        for (double& x : S) x *= std::exp(g);
        double square = 0;
        for (Dim c = 0; c < dv; ++c) {
          double told = 0, out = 0;
          for (Dim d = 0; d < dk; ++d) told += S[at(d * dv + c)] * k[d];
          for (Dim d = 0; d < dk; ++d) {
            double& x = S[at(d * dv + c)];
            x += k[d] * beta * (v[c] - told);
            out += x * q[d];
            square += x * x;
          }
          o[at((t * s.value_heads + h) * dv + c)] = s.scale * out;
        }
        if (norms) (*norms)[at(t * s.value_heads + h)] = std::sqrt(square);
      }
    }
  return o;
}

OpCase delta_case(const std::string& name, const GatedDeltaSpec& spec, const std::vector<Dim>& lengths,
                  double forgetting = 0.3) {
  const std::vector<Sequence> sequences = sequences_of(lengths);
  OpCase c;
  c.name = name;
  c.inputs = inputs_of(spec, sequences.back().first + sequences.back().count, forgetting);
  c.op = [=](rapt::Run& run, const Tensors& in, const Weights&) -> Tensors {
    return {gated_delta(run, spec, {in[0], in[1], in[2], in[3], in[4]}, sequences)};
  };
  c.reference = [=](const Arrays& in, const Weights&) { return reference(spec, sequences, in); };
  return c;
}

TEST(GatedDelta, HeadsAndLengths) {
  check(delta_case("one head", {1, 1, 3, 5}, {7, 1, 13}));
  check(delta_case("4 value heads of 2 key heads", {2, 4, 5, 7, 0.4}, {9, 2}));
  check(delta_case("6 value heads of 2 key heads in turns", {2, 6, 4, 3, 0.4, true}, {70, 3}));
  check(delta_case("3 value heads of 1 key head, odd widths", {1, 3, 20, 37, 0.2}, {17}));
  check(delta_case("one channel", {1, 1, 1, 1}, {5}));
}

TEST(GatedDelta, SeveralChunksPacked) {
  check(delta_case("130 rows", {1, 2, 2, 3, 0.7}, {130}));
  check(delta_case("chunks that end just there", {1, 1, 3, 2}, {64, 1, 128, 65}));
  OpCase wide = delta_case("wide", {2, 2, 33, 40, 0.2}, {200, 70});
  wide.gradient = false;
  check(wide);
}

TEST(GatedDelta, StrongAndNoForgetting) {
  // e^{c} is 0 in float here; nothing may become infinite.
  check(delta_case("all is forgotten", {1, 2, 3, 4}, {70}, 40));
  OpCase never = delta_case("nothing is forgotten", {1, 1, 5, 4}, {140}, 0);
  never.inputs[3].differentiable = false;
  check(never);
}

TEST(GatedDelta, NormsOfTheState) {
  const GatedDeltaSpec spec{2, 4, 5, 7, 0.4};
  const std::vector<Sequence> sequences = sequences_of({3, 140});
  const Arrays in = inputs_of(spec, 143);
  std::vector<double> expected;
  reference(spec, sequences, in, &expected);
  Device device({.threads = 2});
  rapt::Run run(device);
  Tensor t[5], norms;
  t[0] = run.upload({143, 2, 5}, in[0].values), t[1] = run.upload({143, 2, 5}, in[1].values);
  t[2] = run.upload({143, 4, 7}, in[2].values), t[3] = run.upload({143, 4}, in[3].values);
  t[4] = run.upload({143, 4}, in[4].values);
  gated_delta(run, spec, {t[0], t[1], t[2], t[3], t[4]}, sequences, nullptr, &norms);
  EXPECT_LT(nmse(values_of(norms), expected), 1e-12);
}

// StatePages of one sequence, all there; what the op may not read is poisoned.
struct StatePages {
  Dim chunks;
  std::vector<float> rows, states;
  std::vector<std::int32_t> row_ids, state_ids;
  StatePages(const GatedDeltaSpec& s, Dim length)
      : chunks((length + kChunkRows - 1) / kChunkRows),
        rows(at(chunks * kChunkRows * s.row_values()), NAN),
        states(at(chunks * s.state_values()), NAN) {
    for (Dim p = 0; p < chunks; ++p) {  // in another order than the chunks
      row_ids.push_back(static_cast<std::int32_t>(chunks - 1 - p));
      state_ids.push_back(static_cast<std::int32_t>(chunks - 1 - p));
    }
  }
  ChunkPages view(const GatedDeltaSpec& s) {
    ChunkPages pages;
    pages.rows = reinterpret_cast<std::byte*>(rows.data());
    pages.states = reinterpret_cast<std::byte*>(states.data());
    pages.row_stride = kChunkRows * s.row_values() * static_cast<Dim>(sizeof(float));
    pages.state_stride = s.state_values() * static_cast<Dim>(sizeof(float));
    pages.sequences = {{row_ids, state_ids}};
    return pages;
  }
};

TEST(GatedDelta, BitsDoNotDependOnPieces) {
  const GatedDeltaSpec spec{2, 4, 21, 35, 0.3};
  const Dim T = 300, H = spec.value_heads;
  const Arrays in = inputs_of(spec, T);
  for (const std::string& isa : available_isas()) {
    SCOPED_TRACE(isa);
    Device device({.threads = 2, .isa = isa});
    rapt::Run run(device);
    const Tensor q = run.upload({T, 2, 21}, in[0].values), k = run.upload({T, 2, 21}, in[1].values),
                 v = run.upload({T, 4, 35}, in[2].values), g = run.upload({T, H}, in[3].values),
                 beta = run.upload({T, H}, in[4].values);
    const std::vector<Sequence> whole = sequences_of({T});
    Tensor expected_norms;
    const Tensor expected = gated_delta(run, spec, {q, k, v, g, beta}, whole, nullptr, &expected_norms);
    for (const std::vector<Dim>& pieces :
         {std::vector<Dim>{300}, {1}, {3}, {64}, {63, 1}, {70, 200, 1, 29}, {128, 100}, {5, 140}}) {
      StatePages pages(spec, T);
      Dim past = 0;
      for (std::size_t i = 0; past < T; ++i) {
        const Dim n = std::min(pieces[i % pieces.size()], T - past);
        const std::vector<Sequence> rows = {{.first = 0, .count = n, .past = past}};
        const ChunkPages view = pages.view(spec);
        Tensor norms;
        const Tensor o = gated_delta(
            run, spec,
            {q.slice(past, n), k.slice(past, n), v.slice(past, n), g.slice(past, n), beta.slice(past, n)},
            rows, &view, &norms);
        const auto same = [&](const Tensor& a, const Tensor& b) {
          return std::memcmp(a.data, b.data, at(a.elements()) * sizeof(float)) == 0;
        };
        ASSERT_TRUE(same(o, expected.slice(past, n))) << pieces[0] << " rows at " << past;
        ASSERT_TRUE(same(norms, expected_norms.slice(past, n))) << pieces[0] << " rows at " << past;
        past += n;
      }
    }
  }
}

// A sequence has the bits that it has alone, in results and gradients.
TEST(GatedDelta, BitsDoNotDependOnCompany) {
  const GatedDeltaSpec spec{1, 2, 9, 19, 0.3};
  const Arrays in = inputs_of(spec, 150);
  const auto compute = [&](Dim first, const std::vector<Dim>& lengths, int threads) {
    Device device({.threads = threads});
    Gradients gradients(device.real);
    Tape tape(gradients);
    rapt::Run run(device);
    run.tape = &tape;
    Dim n = 0;
    for (const Dim l : lengths) n += l;
    Tensor t[5];
    for (std::size_t i = 0; i < 5; ++i) {
      const Dim cols = in[i].shape.size() == 3 ? in[i].shape[1] * in[i].shape[2] : in[i].shape[1];
      const auto values = std::span(in[i].values).subspan(at(first * cols), at(n * cols));
      t[i] = in[i].shape.size() == 3 ? run.upload({n, in[i].shape[1], in[i].shape[2]}, values)
                                     : run.upload({n, cols}, values);
    }
    const Tensor o = gated_delta(run, spec, {t[0], t[1], t[2], t[3], t[4]}, sequences_of(lengths));
    auto* d = static_cast<float*>(run.grad(o));
    for (Dim i = 0; i < o.elements(); ++i) d[i] = static_cast<float>(2 * o.at(i));
    tape.play_back(run);
    std::vector<std::vector<double>> out = {values_of(o)};
    for (const Tensor& x : t) {
      const auto* from = static_cast<const float*>(run.grad(x));
      out.emplace_back(from, from + x.elements());
    }
    return out;
  };
  const auto all = compute(0, {70, 5, 75}, 2);
  Dim first = 0;
  for (const Dim n : {70, 5, 75}) {
    const auto one = compute(first, {n}, 1);
    for (std::size_t i = 0; i < one.size(); ++i) {
      const std::size_t cols = one[i].size() / at(n);
      for (std::size_t j = 0; j < one[i].size(); ++j) ASSERT_EQ(all[i][at(first) * cols + j], one[i][j]) << i;
    }
    first += n;
  }
}

TEST(GatedDelta, RefusesWhatDoesNotFit) {
  Device device({.threads = 1});
  rapt::Run run(device);
  const GatedDeltaSpec spec{1, 2, 3, 4};
  const Tensor q = run.make({5, 1, 3}), v = run.make({5, 2, 4}), g = run.make({5, 2});
  EXPECT_NO_THROW(gated_delta(run, spec, {q, q, v, g, g}, sequences_of({2, 3})));
  EXPECT_THROW(gated_delta(run, spec, {q, v, v, g, g}, sequences_of({5})), Error);
  EXPECT_THROW(gated_delta(run, spec, {q, q, v, g, q}, sequences_of({5})), Error);
  EXPECT_THROW(gated_delta(run, spec, {q, q, v, g, g}, sequences_of({2, 4})), Error);
  EXPECT_THROW(gated_delta(run, spec, {q, q, v, g, g}, sequences_of({2})), Error);
  EXPECT_THROW(gated_delta(run, {2, 3, 3, 4}, {q, q, v, g, g}, sequences_of({5})), Error);
  StatePages pages(spec, 5);
  const ChunkPages view = pages.view(spec);
  EXPECT_THROW(gated_delta(run, spec, {q, q, v, g, g}, sequences_of({2, 3}), &view), Error);
  const std::vector<Sequence> later = {{.first = 0, .count = 5, .past = 60}};
  EXPECT_THROW(gated_delta(run, spec, {q, q, v, g, g}, later, &view), Error);
}

TEST(Decay, Formula) {
  for (const auto& [rows, n] : {std::pair<Dim, Dim>{5, 3}, {17, 37}, {1, 1}}) {
    OpCase c;
    c.name = "decay";
    c.inputs = {array({rows, n}, 1, 3)};
    c.weights.push_back(weight(1, n, 2));
    c.weights.push_back(weight(1, n, 3));
    c.op = [](rapt::Run& run, const Tensors& in, const Weights& w) -> Tensors {
      return {decay(run, in[0], w[0], w[1])};
    };
    c.reference = [n](const Arrays& in, const Weights& w) {
      std::vector<double> g;
      for (std::size_t i = 0; i < in[0].values.size(); ++i) {
        const Dim h = static_cast<Dim>(i) % n;
        g.push_back(-std::exp(w[0].get(0, h)) * std::log1p(std::exp(in[0].values[i] + w[1].get(0, h))));
      }
      return g;
    };
    check(c);
  }
}

}  // namespace
}  // namespace rapt::test
