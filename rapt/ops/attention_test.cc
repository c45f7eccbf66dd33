// SPDX-License-Identifier: Apache-2.0
// Against loops over rows, heads and keys in double; a row's bits alone against those in pages and batches.
#include "rapt/ops/attention.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "rapt/ops/elementwise.h"
#include "rapt/ops/op_test.h"

RAPT_GRADIENT_CHECKED(attention)

namespace rapt::test {
namespace {

// A whole attention: what it computes, its sizes and its options. Tensors and weights come in a fixed order,
// absent ones left out.
struct Scene {
  std::string name;
  AttentionSpec spec;
  std::vector<Sequence> sequences;
  Mask mask;
  std::vector<Sequence> memory = {};  // cross-attention: the keys' sequences
  Dim slots = 0, buckets = 0, dense_heads = 0;
  bool q_kept = false;
  double scale_of_inputs = 1;

  RowPlan plan() const { return spec.cross ? plan_cross(sequences, memory) : plan_rows(mask, sequences); }
  Dim rows() const {
    Dim n = 0;
    for (const Sequence& s : sequences) n += s.count;
    return n;
  }
  Dim keys() const {
    Dim n = 0;
    for (const Sequence& s : spec.cross ? memory : sequences) n += s.count;
    return n;
  }
  Dim longest() const {
    Dim n = 0;
    for (const RowPlan::Part& p : plan().parts) n = std::max(n, p.k_count);
    return n;
  }
  std::vector<Array> inputs() const {
    std::vector<Array> a = {array({rows(), spec.heads, spec.head_dim}, 1, scale_of_inputs),
                            array({keys(), spec.kv_heads, spec.head_dim}, 2, scale_of_inputs),
                            array({keys(), spec.kv_heads, spec.v_dim}, 3)};
    if (q_kept) a.push_back(array({rows(), spec.heads, spec.head_dim}, 4, scale_of_inputs));
    if (dense_heads) a.push_back(array({dense_heads, rows(), longest()}, 5));
    return a;
  }
  std::vector<Weight> weights() const {
    std::vector<Weight> w;
    if (slots) {
      w.push_back(weight(slots, spec.kv_heads * spec.head_dim, 6));
      w.push_back(weight(slots, spec.kv_heads * spec.v_dim, 7));
    }
    if (spec.score == Score::additive) w.push_back(weight(spec.heads, spec.head_dim, 8));
    if (spec.extra == Extra::learned_logit) w.push_back(weight(1, spec.heads, 9));
    if (buckets) w.push_back(weight(buckets, spec.heads, 10));
    return w;
  }
};

template <class T, class W>
struct Parts {  // the same order again
  const T *q, *k, *v, *q_kept = nullptr, *dense = nullptr;
  const W *slot_k = nullptr, *slot_v = nullptr, *score_weight = nullptr, *extra = nullptr, *buckets = nullptr;
  Parts(const Scene& s, const std::vector<T>& in, const std::vector<W>& w) : q(&in[0]), k(&in[1]), v(&in[2]) {
    std::size_t i = 3, n = 0;
    if (s.q_kept) q_kept = &in[i++];
    if (s.dense_heads) dense = &in[i++];
    if (s.slots) slot_k = &w[n++], slot_v = &w[n++];
    if (s.spec.score == Score::additive) score_weight = &w[n++];
    if (s.spec.extra == Extra::learned_logit) extra = &w[n++];
    if (s.buckets) buckets = &w[n++];
  }
};

AttentionInputs inputs_of(const Scene& s, const std::vector<Tensor>& in, const std::vector<Weight>& w) {
  const Parts<Tensor, Weight> p(s, in, w);
  AttentionInputs a{.q = *p.q, .k = *p.k};
  if (!s.spec.values_in_keys) a.v = *p.v;
  if (p.q_kept) a.q_kept = *p.q_kept;
  if (p.dense) a.dense_bias = *p.dense;
  a.slot_k = p.slot_k, a.slot_v = p.slot_v, a.score_weight = p.score_weight, a.extra_logit = p.extra,
  a.buckets = p.buckets;
  return a;
}

// The random choice of dropout, written once more: 0 or 1 / (1 - p) for a row's key, a head and a key's
// place (slots count down from the top).
double dropped(std::uint32_t row_key, Dim head, std::uint32_t column, double p, bool f32) {
  std::uint32_t x = row_key + static_cast<std::uint32_t>(head + 1) * 0x9E3779B9u;
  x = (x ^ x >> 16) * 0x85EBCA6Bu;
  x = (x ^ x >> 13) * 0xC2B2AE35u;
  x += column * 0x9E3779B9u;
  x = (x ^ x >> 16) * 0x85EBCA6Bu;
  x = (x ^ x >> 13) * 0xC2B2AE35u;
  x ^= x >> 16;
  const double limit = f32 ? static_cast<float>(p) : p;
  return (x >> 8) * 0x1p-24 < limit ? 0 : 1 / (1 - p);
}

struct Expected {
  // [T,H,Dv] [T,H,8] and [slots + keys] of each (row, head), one after the other
  std::vector<double> out, stats, weights;
};

// The definition: loops over rows, heads and keys, in double.
Expected reference(const Scene& s, const std::vector<Array>& in, const std::vector<Weight>& w,
                   bool training = false, Dim first_keys = 4) {
  const AttentionSpec& spec = s.spec;
  const Parts<Array, Weight> x(s, in, w);
  const RowPlan plan = s.plan();
  const Dim H = spec.heads, K = spec.kv_heads, D = spec.head_dim, Dv = spec.v_dim, T = s.rows();
  const std::vector<double> slopes = alibi_slopes(H);
  std::vector<std::uint32_t> drop_keys;
  if (training && spec.dropout > 0) {
    Device device({.threads = 1, .isa = "f64"});
    rapt::Run run(device);
    const std::uint32_t* keys = row_keys(run, T, 0x61747400 + (spec.cross ? 1 : 0));
    drop_keys.assign(keys, keys + T);
  }
  Expected e;
  for (const RowPlan::Part& part : plan.parts)
    for (Dim t = part.q_first; t < part.q_first + part.q_count; ++t)
      for (Dim h = 0; h < H; ++h) {
        const auto row = static_cast<std::size_t>(t);
        const Dim kv = h / (H / K), n = s.slots + part.k_count;
        std::vector<double> z(static_cast<std::size_t>(n)), p(z.size());
        std::vector<bool> seen(z.size());
        double top = -INFINITY;
        for (Dim i = 0; i < n; ++i) {
          const Dim key = i - s.slots;
          const bool slot = key < 0;
          const auto at = static_cast<std::size_t>(i);
          seen[at] = slot || (key < plan.high[row] && (key >= plan.low[row] || key < part.keep));
          if (!seen[at]) continue;
          const Array& q = !slot && key < part.keep && x.q_kept ? *x.q_kept : *x.q;
          double score = 0, qq = 0, kk = 0;
          for (Dim d = 0; d < D; ++d) {
            const double a = q.values[static_cast<std::size_t>((t * H + h) * D + d)];
            const double b =
                slot ? x.slot_k->get(i, kv * D + d)
                     : x.k->values[static_cast<std::size_t>(((part.k_first + key) * K + kv) * D + d)];
            score += spec.score == Score::additive ? x.score_weight->get(h, d) * std::tanh(a + b) : a * b;
            qq += a * a;
            kk += b * b;
          }
          if (spec.score == Score::l2) score = 2 * score - kk - qq;
          double logit = spec.scale * score;
          if (spec.cap > 0) logit = spec.cap * std::tanh(logit / spec.cap);
          if (!slot) {
            const Dim distance = key - (key < part.keep ? plan.kept_position[row] : plan.position[row]);
            if (spec.bias == Bias::alibi)
              logit -= slopes[static_cast<std::size_t>(h)] * static_cast<double>(std::abs(distance));
            if (spec.bias == Bias::bucket)
              logit +=
                  x.buckets->get(relative_bucket(distance, s.buckets, spec.bucket_max, spec.bucket_both), h);
            if (spec.bias == Bias::dense)
              logit += x.dense->values[static_cast<std::size_t>(
                  ((s.dense_heads == 1 ? 0 : h) * T + t) * s.longest() + key)];
          }
          z[at] = logit;
          top = std::max(top, logit);
        }
        const double extra = spec.extra == Extra::learned_logit ? x.extra->get(0, h) : 0;
        double sum = spec.extra == Extra::none ? 0 : std::exp(extra);
        for (std::size_t i = 0; i < p.size(); ++i) {
          if (!seen[i]) continue;
          p[i] = spec.normal == Normal::sigmoid ? 1 / (1 + std::exp(-z[i])) : std::exp(z[i]);
          if (spec.normal == Normal::softmax) sum += p[i];
        }
        if (spec.normal == Normal::softmax && sum > 0)
          for (double& v : p) v /= sum;
        std::vector<double> out(static_cast<std::size_t>(Dv));
        for (Dim i = 0; i < n; ++i)
          for (Dim d = 0; d < Dv; ++d) {
            const Dim key = i - s.slots;
            const auto column = static_cast<std::uint32_t>(
                key < 0 ? 0xFFFFFFFFu - static_cast<std::uint32_t>(i) : static_cast<std::uint32_t>(key));
            const double factor =
                drop_keys.empty() ? 1 : dropped(drop_keys[row], h, column, spec.dropout, false);
            out[static_cast<std::size_t>(d)] +=
                factor * p[static_cast<std::size_t>(i)] *
                (key < 0 ? x.slot_v->get(i, kv * Dv + d)
                 : spec.values_in_keys
                     ? x.k->values[static_cast<std::size_t>(((part.k_first + key) * K + kv) * D + d)]
                     : x.v->values[static_cast<std::size_t>(((part.k_first + key) * K + kv) * Dv + d)]);
          }
        e.out.insert(e.out.end(), out.begin(), out.end());
        e.weights.insert(e.weights.end(), p.begin(), p.end());
        // statistics: over the weights; for sigmoid, over the weights divided by their sum
        double total = 0, stat[AttentionStat::count] = {}, best = -INFINITY;
        for (double v : p) total += v;
        const double norm = spec.normal == Normal::sigmoid && total > 0 ? 1 / total : 1;
        for (Dim i = 0; i < n; ++i) {
          const Dim key = i - s.slots;
          const auto at = static_cast<std::size_t>(i);
          const double v = p[at] * norm;
          if (v > 0) stat[AttentionStat::entropy] -= v * std::log(v);
          if (key < 0) continue;
          if (key < first_keys) stat[AttentionStat::first] += v;
          if (key == plan.position[row]) stat[AttentionStat::self] = v;
          if (key == plan.position[row] - 1) stat[AttentionStat::previous] = v;
          stat[AttentionStat::distance] += v * static_cast<double>(std::abs(key - plan.position[row]));
          if (seen[at] && z[at] > best) {
            best = z[at];
            stat[AttentionStat::strongest] = static_cast<double>(key);
          }
        }
        stat[AttentionStat::max_logit] = std::isfinite(top) ? top : 0;
        stat[AttentionStat::sum] = total;
        e.stats.insert(e.stats.end(), stat, stat + AttentionStat::count);
      }
  return e;
}

void check(const Scene& s, bool training = false) {
  OpCase c;
  c.name = s.name;
  c.inputs = s.inputs();
  c.weights = s.weights();
  c.training = training;
  c.op = [s](rapt::Run& run, const std::vector<Tensor>& in,
             const std::vector<Weight>& w) -> std::vector<Tensor> {
    const RowPlan plan = s.plan();  // gone before backward
    return {attention(run, s.spec, inputs_of(s, in, w), plan)};
  };
  c.reference = [s, training](const std::vector<Array>& in, const std::vector<Weight>& w) {
    return reference(s, in, w, training).out;
  };
  check(c);
}

AttentionSpec sizes(Dim heads, Dim kv_heads, Dim d, Dim dv) {
  AttentionSpec spec;
  spec.heads = heads, spec.kv_heads = kv_heads, spec.head_dim = d, spec.v_dim = dv;
  spec.scale = 1 / std::sqrt(static_cast<double>(d));
  return spec;
}

Mask causal(Dim left = Mask::kAll, Dim keep = 0) { return {.left = left, .right = 0, .keep = keep}; }

std::vector<Sequence> sequences(std::initializer_list<Dim> counts) {
  std::vector<Sequence> s;
  Dim first = 0;
  for (Dim n : counts) {
    s.push_back({.first = first, .count = n, .prefix = n / 3});
    first += n;
  }
  return s;
}

// Latent attention: the value of a key is its first channels.
AttentionSpec latent(Dim heads, Dim kv_heads, Dim d, Dim dv) {
  AttentionSpec spec = sizes(heads, kv_heads, d, dv);
  spec.values_in_keys = true;
  return spec;
}

TEST(Attention, ValuesInKeys) {
  const Dim shapes[][4] = {{1, 1, 1, 1}, {3, 1, 7, 5}, {4, 2, 9, 9}, {6, 1, 36, 32}, {2, 1, 130, 20}};
  for (const auto& n : shapes)
    check({.name = concat("values in keys, heads ", n[0], "/", n[1], " of ", n[2], " and ", n[3]),
           .spec = latent(n[0], n[1], n[2], n[3]),
           .sequences = n[0] * n[3] > 100 ? sequences({19, 1}) : sequences({19, 1, 37}),
           .mask = causal()});
  auto with = [&](const char* name, auto change, Mask mask = causal()) {
    Scene s{.name = name, .spec = latent(4, 1, 10, 7), .sequences = sequences({23, 9}), .mask = mask};
    change(s);
    check(s);
  };
  with("values in keys, cap and logit",
       [](Scene& s) { s.spec.cap = 1.5, s.spec.extra = Extra::learned_logit; });
  with("values in keys, sigmoid", [](Scene& s) { s.spec.normal = Normal::sigmoid; });
  with("values in keys, alibi", [](Scene& s) { s.spec.bias = Bias::alibi; });
  with("values in keys, all keys", [](Scene&) {}, Mask{});
  with("values in keys, streaming", [](Scene& s) { s.q_kept = true; }, causal(9, 3));
}

TEST(Attention, HeadsAndSizes) {
  const Dim shapes[][4] = {{1, 1, 1, 1},   {2, 2, 5, 3},   {4, 2, 8, 8},   {6, 2, 7, 9},
                           {5, 1, 16, 17}, {3, 3, 64, 31}, {8, 2, 33, 64}, {2, 1, 130, 20}};
  for (const auto& n : shapes)
    check({.name = concat("causal, heads ", n[0], "/", n[1], " of ", n[2], " and ", n[3]),
           .spec = sizes(n[0], n[1], n[2], n[3]),
           .sequences = n[0] * n[3] > 100 ? sequences({19, 1}) : sequences({19, 1, 37}),
           .mask = causal()});
}

TEST(Attention, EveryMask) {
  const AttentionSpec spec = sizes(4, 2, 12, 10);
  const auto two = sequences({75, 23});
  check({.name = "full", .spec = spec, .sequences = two, .mask = {}});
  check({.name = "window", .spec = spec, .sequences = two, .mask = causal(17)});
  check({.name = "window both ways", .spec = spec, .sequences = two, .mask = {.left = 5, .right = 3}});
  check({.name = "prefix", .spec = spec, .sequences = two, .mask = {.right = 0, .prefix = true}});
  check({.name = "chunk", .spec = spec, .sequences = two, .mask = {.right = 0, .chunk = 16}});
  check({.name = "keep and window", .spec = spec, .sequences = two, .mask = causal(9, 3)});
  check({.name = "streaming", .spec = spec, .sequences = two, .mask = causal(9, 3), .q_kept = true});
  check({.name = "streaming, more kept than a block",
         .spec = spec,
         .sequences = two,
         .mask = causal(2, 70),
         .q_kept = true});
  auto streams = sequences({75, 23, 40, 31});
  streams[0].stream = {.keep = 3, .window = 10};
  streams[2].stream = {.keep = 20, .window = 1};
  streams[3].stream = {.keep = 0, .window = 7};
  check({.name = "streams of several sequences",
         .spec = sizes(2, 1, 12, 10),
         .sequences = streams,
         .mask = causal(),
         .q_kept = true});
  AttentionSpec cross = spec;
  cross.cross = true;
  check({.name = "cross",
         .spec = cross,
         .sequences = sequences({5, 70}),
         .mask = {},
         .memory = sequences({67, 3})});
  check({.name = "cross, nothing to see for one",
         .spec = cross,
         .sequences = sequences({5, 7}),
         .mask = {},
         .memory = sequences({9, 0})});
}

TEST(Attention, EveryScoreAndOption) {
  const auto two = sequences({23, 9});
  auto with = [&](const char* name, auto change, Mask mask = causal()) {
    Scene s{.name = name, .spec = sizes(4, 2, 9, 7), .sequences = two, .mask = mask};
    change(s);
    check(s);
  };
  with("l2", [](Scene& s) { s.spec.score = Score::l2; });
  with("l2 with a cap and an extra logit",
       [](Scene& s) { s.spec.score = Score::l2, s.spec.cap = 3, s.spec.extra = Extra::learned_logit; });
  with("l2 streaming", [](Scene& s) { s.spec.score = Score::l2, s.q_kept = true; }, causal(9, 3));
  with("additive", [](Scene& s) { s.spec.score = Score::additive, s.spec.scale = 1; });
  with(
      "additive streaming with slots",
      [](Scene& s) { s.spec.score = Score::additive, s.q_kept = true, s.slots = 2; }, causal(9, 3));
  with("l2 with buckets and slots, one sequence streaming", [](Scene& s) {
    s.sequences[0].stream = {.keep = 3, .window = 10};
    s.spec.score = Score::l2, s.spec.bias = Bias::bucket, s.buckets = 8, s.slots = 2, s.q_kept = true;
  });
  with("cap", [](Scene& s) { s.spec.cap = 1.5; });
  with("no scale", [](Scene& s) { s.spec.scale = 0; });
  with("negative scale", [](Scene& s) { s.spec.scale = -0.3; });
  with("alibi", [](Scene& s) { s.spec.bias = Bias::alibi; });
  with("alibi both ways", [](Scene& s) { s.spec.bias = Bias::alibi; }, Mask{});
  with("alibi streaming", [](Scene& s) { s.spec.bias = Bias::alibi, s.q_kept = true; }, causal(9, 3));
  with("buckets", [](Scene& s) { s.spec.bias = Bias::bucket, s.buckets = 8, s.spec.bucket_max = 20; });
  with(
      "buckets both ways",
      [](Scene& s) {
        s.spec.bias = Bias::bucket, s.buckets = 12, s.spec.bucket_max = 16, s.spec.bucket_both = true;
      },
      Mask{});
  with(
      "buckets streaming with a cap",
      [](Scene& s) { s.spec.bias = Bias::bucket, s.buckets = 8, s.spec.bucket_max = 20, s.spec.cap = 2; },
      causal(9, 3));
  with("dense", [](Scene& s) { s.spec.bias = Bias::dense, s.dense_heads = 4; });
  with("dense shared by the heads", [](Scene& s) { s.spec.bias = Bias::dense, s.dense_heads = 1; }, Mask{});
  with(
      "dense with a cap, windowed",
      [](Scene& s) { s.spec.bias = Bias::dense, s.dense_heads = 1, s.spec.cap = 2; }, causal(5, 2));
  with("zero logit", [](Scene& s) { s.spec.extra = Extra::zero_logit; });
  with("learned logit", [](Scene& s) { s.spec.extra = Extra::learned_logit; });
  with("sigmoid", [](Scene& s) { s.spec.normal = Normal::sigmoid; });
  with("sigmoid with a cap, alibi and slots", [](Scene& s) {
    s.spec.normal = Normal::sigmoid, s.spec.cap = 2, s.spec.bias = Bias::alibi, s.slots = 3;
  });
  with("slots", [](Scene& s) { s.slots = 3; });
  with("many slots, learned logit", [](Scene& s) { s.slots = 70, s.spec.extra = Extra::learned_logit; });
  with(
      "slots with buckets, windowed",
      [](Scene& s) { s.slots = 2, s.spec.bias = Bias::bucket, s.buckets = 8; }, causal(4));
}

TEST(Attention, Dropout) {
  for (int form = 0; form < 4; ++form) {
    Scene s{.name = concat("dropout ", form),
            .spec = sizes(4, 2, 9, 7),
            .sequences = sequences({35, 9}),
            .mask = causal()};
    s.spec.dropout = 0.25;
    if (form == 1) s.spec.extra = Extra::learned_logit, s.slots = 2;
    if (form == 2) s.spec.normal = Normal::sigmoid;
    if (form == 3) s.spec.score = Score::l2, s.spec.cap = 2, s.spec.bias = Bias::alibi;
    check(s, true);
  }
}

// Several splits and more than one backward chunk. Finite differences would take minutes: f64 stands
// for them.
TEST(Attention, Splits) {
  for (int form = 0; form < 3; ++form) {
    Scene s{.name = concat("splits ", form),
            .spec = sizes(2, 1, 8, 6),
            .sequences = sequences({70}),
            .mask = {},
            .memory = sequences({2300})};
    s.spec.cross = true;
    if (form == 1) s.spec.extra = Extra::learned_logit, s.slots = 2;
    if (form == 2) s.spec.normal = Normal::sigmoid;
    OpCase c;
    c.name = s.name;
    c.inputs = s.inputs();
    c.weights = s.weights();
    c.op = [s](rapt::Run& run, const std::vector<Tensor>& in,
               const std::vector<Weight>& w) -> std::vector<Tensor> {
      return {attention(run, s.spec, inputs_of(s, in, w), s.plan())};
    };
    c.reference = [s](const std::vector<Array>& in, const std::vector<Weight>& w) {
      return reference(s, in, w).out;
    };
    for (Array& a : c.inputs) a.differentiable = form == 1;
    check(c);
  }
}

// Sequences long enough that whole key blocks of the backward lie between what a stream keeps and its window:
// each has the gradients it has alone, under a mask of its own.
TEST(Attention, GradientsOfAStreamAreItsOwn) {
  const AttentionSpec spec = sizes(2, 1, 8, 6);
  const Stream streams[] = {{.keep = 3, .window = 40}, {}, {.keep = 300, .window = 5}, {.window = 30}};
  const Dim length = 700;
  // dq, dq_kept, dk, dv of sequences that begin at row `from` of the inputs
  auto gradients_of = [&](Device& device, const Mask& mask, std::span<const Sequence> batch, Dim from) {
    rapt::Run run(device);
    Gradients gradients(device.real);
    Tape tape(gradients);
    run.tape = &tape;
    const Dim rows = static_cast<Dim>(batch.size()) * length;
    auto input = [&](Dim heads, Dim d, std::uint64_t seed) {
      const std::vector<double> all = normals(static_cast<std::size_t>(4 * length * heads * d), seed);
      return run.upload({rows, heads, d}, std::span(all).subspan(static_cast<std::size_t>(from * heads * d),
                                                                 static_cast<std::size_t>(rows * heads * d)));
    };
    const Tensor in[] = {input(2, 8, 1), input(2, 8, 2), input(1, 8, 3), input(1, 6, 4)};
    const Tensor z =
        attention(run, spec, {.q = in[0], .q_kept = in[1], .k = in[2], .v = in[3]}, plan_rows(mask, batch));
    const Tensor dz = input(2, 6, 5);
    std::memcpy(run.grad(z), dz.data, dz.as<float>().size_bytes());
    tape.play_back(run);
    std::vector<std::vector<double>> out;
    for (const Tensor& t : in) {
      const auto* g = static_cast<const float*>(run.grad(t));
      out.emplace_back(g, g + t.elements());
    }
    return out;
  };
  for (const std::string& isa : available_isas()) {
    Device device({.threads = 2, .isa = isa});
    std::vector<Sequence> batch;
    for (const Stream& s : streams)
      batch.push_back({.first = static_cast<Dim>(batch.size()) * length, .count = length, .stream = s});
    const auto together = gradients_of(device, causal(), batch, 0);
    for (std::size_t i = 0; i < batch.size(); ++i) {
      const Stream& s = streams[i];
      const Sequence one{.count = length};
      const Mask mask = s.window > 0 ? causal(s.window - 1, s.keep) : causal();
      const auto alone = gradients_of(device, mask, {&one, 1}, batch[i].first);
      for (std::size_t t = 0; t < alone.size(); ++t) {
        const std::size_t n = alone[t].size();
        const std::span<const double> part = std::span(together[t]).subspan(i * n, n);
        if (t == 1 && s.keep == 0)
          EXPECT_TRUE(std::all_of(part.begin(), part.end(), [](double x) { return x == 0; }));
        else EXPECT_LT(nmse(part, alone[t]), 1e-11) << isa << ", sequence " << i << ", input " << t;
      }
    }
  }
}

// -------------------------------------------------------------------------------- statistics, weights, bits
struct Pass {
  std::vector<double> out, stats;
  std::vector<std::vector<double>> weights;
};

Tensor upload(rapt::Run& run, const Array& a) {
  return run.upload({a.shape[0], a.shape[1], a.shape[2]}, a.values);
}

std::vector<Weight> convert(const std::vector<Weight>& from, DType real) {
  std::vector<Weight> to;
  for (const Weight& w : from) {
    to.push_back(make_weight(w.name, w.rows, w.cols, real));
    for (Dim r = 0; r < w.rows; ++r)
      for (Dim k = 0; k < w.cols; ++k) to.back().set(r, k, w.get(r, k));
    to.back().index = static_cast<int>(to.size()) - 1;
  }
  return to;
}

Pass forward(const Scene& s, Device& device, bool watched, const std::vector<Taps::HeadRow>& chosen = {}) {
  rapt::Run run(device);
  Taps taps;
  Pass pass;
  if (watched) {
    run.taps = &taps;
    taps.see(site::attn_stats, [&](const Tapped& t) { pass.stats = values_of(t.value); });
    if (!chosen.empty())
      taps.want_weights(
          site::attn_weights, [&](const Tapped&) { return chosen; },
          [&](const Tapped& t) { pass.weights.push_back(values_of(t.value)); });
  }
  std::vector<Tensor> in;
  for (const Array& a : s.inputs()) in.push_back(upload(run, a));
  pass.out = values_of(attention(run, s.spec, inputs_of(s, in, convert(s.weights(), device.real)), s.plan()));
  return pass;
}

std::vector<Scene> watched_scenes() {
  std::vector<Scene> all;
  auto add = [&](const char* name, Mask mask, auto change) {
    Scene s{.name = name, .spec = sizes(4, 2, 16, 12), .sequences = sequences({150, 70}), .mask = mask};
    change(s);
    all.push_back(s);
  };
  add("causal", causal(), [](Scene&) {});
  add("full", {}, [](Scene&) {});
  add("window and keep", causal(20, 3), [](Scene& s) { s.q_kept = true; });
  add("extra", causal(), [](Scene& s) { s.spec.extra = Extra::learned_logit; });
  add("slots, alibi", causal(), [](Scene& s) { s.slots = 5, s.spec.bias = Bias::alibi; });
  add("sigmoid with slots", {}, [](Scene& s) { s.spec.normal = Normal::sigmoid, s.slots = 2; });
  add("additive, cap", causal(), [](Scene& s) { s.spec.score = Score::additive, s.spec.cap = 2; });
  add("l2, dense", {},
      [](Scene& s) { s.spec.score = Score::l2, s.spec.bias = Bias::dense, s.dense_heads = 4; });
  add("buckets", causal(), [](Scene& s) { s.spec.bias = Bias::bucket, s.buckets = 8; });
  add("long", {},
      [](Scene& s) { s.spec.cross = true, s.sequences = sequences({5}), s.memory = sequences({2100}); });
  add("nothing to see", {},
      [](Scene& s) { s.spec.cross = true, s.sequences = sequences({5, 4}), s.memory = sequences({9, 0}); });
  return all;
}

TEST(Attention, StatisticsAndWeightsByValue) {
  std::vector<std::string> isas = available_isas();
  isas.push_back("f64");
  for (const Scene& s : watched_scenes()) {
    const Expected expected = reference(s, s.inputs(), s.weights());
    const Dim H = s.spec.heads;
    const std::vector<Taps::HeadRow> chosen = {{0, 0}, {H - 1, s.rows() - 1}, {1, s.rows() / 2}};
    for (const std::string& isa : isas) {
      SCOPED_TRACE(concat(s.name, " on ", isa));
      Device device({.threads = 2, .isa = isa});
      const Pass pass = forward(s, device, true, chosen), plain = forward(s, device, false);
      EXPECT_EQ(pass.out, plain.out) << "watching changes bits";
      ASSERT_EQ(pass.stats.size(), expected.stats.size());
      for (int c = 0; c < AttentionStat::count; ++c) {
        std::vector<double> got, want;
        for (std::size_t i = static_cast<std::size_t>(c); i < pass.stats.size(); i += AttentionStat::count)
          got.push_back(pass.stats[i]), want.push_back(expected.stats[i]);
        EXPECT_LE(nmse(got, want), isa == "f64" ? 1e-20 : 1e-11) << "column " << c;
      }
      ASSERT_EQ(pass.weights.size(), chosen.size());
      for (std::size_t n = 0; n < chosen.size(); ++n) {
        std::size_t at = 0;  // where the weights of this row and head begin
        std::vector<double> want;
        for (const RowPlan::Part& p : s.plan().parts)
          for (Dim t = p.q_first; t < p.q_first + p.q_count; ++t)
            for (Dim h = 0; h < H; ++h) {
              const auto size = static_cast<std::size_t>(s.slots + p.k_count);
              if (t == chosen[n].row && h == chosen[n].head)
                want.assign(expected.weights.begin() + static_cast<std::ptrdiff_t>(at),
                            expected.weights.begin() + static_cast<std::ptrdiff_t>(at + size));
              at += size;
            }
        EXPECT_LE(nmse(pass.weights[n], want), isa == "f64" ? 1e-20 : 1e-11) << "weights " << n;
      }
    }
  }
}

// Weights of some rows of a head times two: their results are twice what they were, those of all other rows
// and heads have the same bits. The way by scores as well, whose change is none here.
TEST(Attention, ChangedRowsByValue) {
  std::vector<std::string> isas = available_isas();
  isas.push_back("f64");
  for (const Scene& s : watched_scenes())
    for (const std::string& isa : isas)
      for (const bool scores : {false, true}) {
        SCOPED_TRACE(concat(s.name, " on ", isa, scores ? " by scores" : ""));
        Device device({.threads = 2, .isa = isa});
        const std::vector<double> plain = forward(s, device, false).out;
        const auto mine = [](const Tapped& t) { return t.head == 1 && t.row % 3 != 1; };
        rapt::Run run(device);
        Taps taps;
        run.taps = &taps;
        if (scores) taps.edit_rows(site::attn_scores, mine, [](const Tapped&) {});
        taps.edit_rows(site::attn_weights, mine, [](const Tapped& t) {
          for (Dim i = 0; i < t.value.elements(); ++i) t.value.set(i, 2 * t.value.at(i));
        });
        std::vector<Tensor> in;
        for (const Array& a : s.inputs()) in.push_back(upload(run, a));
        const std::vector<Weight> weights = convert(s.weights(), device.real);
        const std::vector<double> got =
            values_of(attention(run, s.spec, inputs_of(s, in, weights), s.plan()));
        std::vector<double> twice, want;
        const Dim H = s.spec.heads, D = s.spec.v_dim;
        for (std::size_t i = 0; i < got.size(); ++i) {
          const Dim row = static_cast<Dim>(i) / (H * D), head = static_cast<Dim>(i) / D % H;
          if (head == 1 && row % 3 != 1) twice.push_back(got[i]), want.push_back(2 * plain[i]);
          else ASSERT_EQ(got[i], plain[i]) << "row " << row << ", head " << head;
        }
        EXPECT_LE(nmse(twice, want), isa == "f64" ? 1e-20 : 1e-11);
      }
}

// Like every edit (run/taps.h): what comes back through a changed row is what would come back without it.
TEST(Attention, TheGradientPassesAsIfNoRowWereChanged) {
  Device device({.threads = 1});
  const auto pass = [&](bool edited, std::vector<double>& z) {
    rapt::Run run(device);
    Gradients gradients(device.real);
    Tape tape(gradients);
    Taps taps;
    if (edited)
      taps.edit_rows(
          site::attn_weights, [](const Tapped& t) { return t.head == 1; },
          [](const Tapped& t) { t.value.set(0, 0); });
    run.tape = &tape;
    run.taps = &taps;
    const Tensor in[] = {run.upload({20, 2, 8}, normals(320, 1)), run.upload({20, 2, 8}, normals(320, 2)),
                         run.upload({20, 2, 8}, normals(320, 3))};
    const Tensor out = attention(run, sizes(2, 2, 8, 8), {.q = in[0], .k = in[1], .v = in[2]},
                                 plan_rows(causal(), sequences({20})));
    z = values_of(out);
    const Tensor dout = run.upload({20, 2, 8}, normals(320, 4));
    std::memcpy(run.grad(out), dout.data, dout.as<float>().size_bytes());
    tape.play_back(run);
    std::vector<double> all;
    for (const Tensor& t : in) {
      const auto* g = static_cast<const float*>(run.grad(t));
      all.insert(all.end(), g, g + t.elements());
    }
    return all;
  };
  std::vector<double> plain, changed;
  EXPECT_EQ(pass(false, plain), pass(true, changed));
  EXPECT_NE(plain, changed);
}

TEST(Attention, ARowThatSeesNothingIsZeroAndPassesNoGradient) {
  for (const std::string& isa : available_isas())
    for (Normal normal : {Normal::softmax, Normal::sigmoid}) {
      Device device({.threads = 1, .isa = isa});
      rapt::Run run(device);
      Gradients gradients(device.real);
      Tape tape(gradients);
      run.tape = &tape;
      AttentionSpec spec = sizes(2, 2, 8, 8);
      spec.normal = normal;
      RowPlan plan = plan_rows(causal(), sequences({20}));
      plan.low[3] = plan.high[3] = 0;  // nothing
      plan.low[7] = 15, plan.high[7] = 9;  // an empty interval
      const Tensor q = run.upload({20, 2, 8}, normals(320, 1)), k = run.upload({20, 2, 8}, normals(320, 2)),
                   v = run.upload({20, 2, 8}, normals(320, 3));
      const Tensor out = attention(run, spec, {.q = q, .k = k, .v = v}, plan);
      for (std::size_t i = 0; i < 320; ++i) static_cast<float*>(run.grad(out))[i] = 1;
      tape.play_back(run);
      for (Dim row = 0; row < 20; ++row)
        for (Dim i = row * 16; i < row * 16 + 16; ++i) {
          EXPECT_TRUE(std::isfinite(out.at(i)));
          EXPECT_TRUE(std::isfinite(static_cast<float*>(run.grad(q))[i]));
          if (row != 3 && row != 7) continue;
          EXPECT_EQ(out.at(i), 0);
          EXPECT_FALSE(std::signbit(out.at(i)));
          EXPECT_EQ(static_cast<float*>(run.grad(q))[i], 0);
        }
    }
}

// Rows [begin, begin + count) of a sequence, its keys in the cache's pages or in a plain buffer.
struct Bits {
  Scene s;
  Device device;
  std::vector<Array> in;
  std::vector<Weight> weights;
  Dim length;
  Bits(Scene scene, const std::string& isa, int threads = 1)
      : s(std::move(scene)),
        device({.threads = threads, .isa = isa}),
        in(s.inputs()),
        weights(convert(s.weights(), device.real)),
        length(s.sequences[0].count) {}

  // `chunk` rows at a time through pages
  std::vector<float> through_pages(Dim chunk, bool watched) {
    const Dim K = s.spec.kv_heads, D = s.spec.head_dim, Dv = s.spec.v_dim, H = s.spec.heads;
    const KvLayout layout = kv_layout(DType::f32, K, D, Dv, s.spec.values_in_keys);
    const Dim count_of_pages = (length + kPageKeys - 1) / kPageKeys;
    std::vector<float> memory(static_cast<std::size_t>(count_of_pages * layout.page_bytes) / sizeof(float),
                              NAN);
    auto* const slab = reinterpret_cast<std::byte*>(memory.data());
    std::vector<std::int32_t> pages(static_cast<std::size_t>(count_of_pages));
    std::iota(pages.rbegin(), pages.rend(), 0);  // the last one first in memory
    std::vector<float> out;
    for (Dim begin = 0; begin < length; begin += chunk) {
      const Dim count = std::min(chunk, length - begin);
      rapt::Run run(device);
      Taps taps;
      if (watched) {
        run.taps = &taps;
        taps.see(site::attn_stats, [](const Tapped&) {});
      }
      auto rows = [&](const Array& a) {
        const auto size = static_cast<std::size_t>(a.shape[1] * a.shape[2]);
        return run.upload({count, a.shape[1], a.shape[2]},
                          std::span(a.values).subspan(static_cast<std::size_t>(begin) * size,
                                                      static_cast<std::size_t>(count) * size));
      };
      const Tensor k = rows(in[1]), v = rows(in[2]);
      const AttentionPart part{0, count, 0, begin + count, pages.data()};
      run.kernels().kv_write(run.queue(), {.layout = layout,
                                           .part_count = 1,
                                           .parts = &part,
                                           .k = k.data,
                                           .v = s.spec.values_in_keys ? nullptr : v.data,
                                           .slab = slab,
                                           .page_stride = layout.page_bytes});
      const std::vector<Sequence> here = {{.first = 0, .count = count, .past = begin}};
      KvView view{layout, slab, layout.page_bytes, {pages}};
      AttentionInputs a =
          inputs_of(s, {Tensor{}, Tensor{}, Tensor{}, s.q_kept ? rows(in[3]) : Tensor{}}, weights);
      a.q = rows(in[0]);
      a.cache = &view;
      const Tensor z = attention(run, s.spec, a, plan_rows(s.mask, here));
      EXPECT_EQ(z.elements(), count * H * Dv);
      for (float x : z.as<float>()) out.push_back(x);
    }
    return out;
  }

  // All rows at once, `before` and `after` rows of other sequences around them in the batch.
  std::vector<float> in_a_batch(Dim before, Dim after) {
    rapt::Run run(device);
    auto around = [&](const Array& a, std::uint64_t seed) {
      const auto size = static_cast<std::size_t>(a.shape[1] * a.shape[2]);
      std::vector<double> all = normals(static_cast<std::size_t>(before) * size, seed),
                          tail = normals(static_cast<std::size_t>(after) * size, seed + 1);
      all.insert(all.end(), a.values.begin(), a.values.end());
      all.insert(all.end(), tail.begin(), tail.end());
      return run.upload({before + length + after, a.shape[1], a.shape[2]}, all);
    };
    std::vector<Sequence> batch;
    if (before) batch.push_back({.first = 0, .count = before});
    batch.push_back({.first = before, .count = length});
    if (after) batch.push_back({.first = before + length, .count = after});
    std::vector<Tensor> t;
    for (std::size_t i = 0; i < in.size(); ++i) t.push_back(around(in[i], 100 + i));
    const Tensor z = attention(run, s.spec, inputs_of(s, t, weights), plan_rows(s.mask, batch));
    const auto size = static_cast<std::size_t>(s.spec.heads * s.spec.v_dim);
    const auto values = z.as<float>().subspan(static_cast<std::size_t>(before) * size,
                                              static_cast<std::size_t>(length) * size);
    return {values.begin(), values.end()};
  }
};

bool same(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

TEST(Attention, TheBitsOfARowDoNotDependOnItsCompany) {
  std::vector<Scene> all;
  auto add = [&](const char* name, Mask mask, Dim length, auto change) {
    Scene s{.name = name, .spec = sizes(6, 2, 16, 12), .sequences = sequences({length}), .mask = mask};
    change(s);
    all.push_back(s);
  };
  add("causal", causal(), 201, [](Scene&) {});
  add("causal, more than one split", causal(), 1100, [](Scene& s) { s.spec = sizes(3, 1, 8, 8); });
  add("window", causal(37), 201, [](Scene&) {});
  add("streaming", causal(37, 3), 201, [](Scene& s) { s.q_kept = true; });
  add("chunks", {.right = 0, .chunk = 50}, 201, [](Scene&) {});
  add("everything", causal(90, 5), 150, [](Scene& s) {
    s.spec.cap = 5, s.spec.bias = Bias::bucket, s.buckets = 8, s.spec.extra = Extra::learned_logit,
    s.slots = 3, s.q_kept = true;
  });
  add("sigmoid, alibi", causal(), 150,
      [](Scene& s) { s.spec.normal = Normal::sigmoid, s.spec.bias = Bias::alibi; });
  add("additive", causal(), 90, [](Scene& s) { s.spec.score = Score::additive; });
  add("l2", causal(), 150, [](Scene& s) { s.spec.score = Score::l2; });
  add("values in keys", causal(), 201, [](Scene& s) { s.spec = latent(6, 1, 21, 16); });
  add("values in keys, many heads", causal(), 80, [](Scene& s) { s.spec = latent(130, 1, 12, 9); });
  add("values in keys, streaming", causal(37, 3), 330,
      [](Scene& s) { s.spec = latent(5, 1, 40, 33), s.spec.extra = Extra::learned_logit, s.q_kept = true; });
  for (const Scene& s : all)
    for (const std::string& isa : available_isas()) {
      if (s.sequences[0].count > 1000 && isa == "scalar") continue;
      SCOPED_TRACE(concat(s.name, " on ", isa));
      Bits one(s, isa, 1);
      const std::vector<float> alone = one.in_a_batch(0, 0);
      for (Dim chunk : {Dim{1}, Dim{7}, Dim{64}, s.sequences[0].count})
        EXPECT_TRUE(same(alone, one.through_pages(chunk, chunk == 7)))
            << "in pages, " << chunk << " rows at a time";
      for (int threads = 2; threads <= 4; ++threads)
        EXPECT_TRUE(same(alone, Bits(s, isa, threads).in_a_batch(0, 0))) << threads << " threads";
      EXPECT_TRUE(same(alone, one.in_a_batch(1, 0)));
      EXPECT_TRUE(same(alone, one.in_a_batch(77, 5)));
      EXPECT_TRUE(same(alone, Bits(s, isa, 3).in_a_batch(130, 200)));
    }
}

// The comparison above can fail: blocks and splits counted from the buffer instead of the sequence change
// bits. The same rows and keys, shown as the tail of a longer sequence whose first keys are hidden, are such
// a variant; hiding them is exact otherwise.
TEST(Attention, CountingBlocksFromTheBufferWouldBeCaught) {
  Scene s{.name = "shifted", .spec = sizes(2, 1, 16, 16), .sequences = sequences({300}), .mask = causal()};
  for (const std::string& isa : available_isas()) {
    Bits bits(s, isa);
    const std::vector<float> right = bits.in_a_batch(0, 0);
    auto shifted = [&](Dim by) {
      rapt::Run run(bits.device);
      auto behind = [&](const Array& a) {
        std::vector<double> all = normals(static_cast<std::size_t>(by * a.shape[1] * a.shape[2]), 50);
        all.insert(all.end(), a.values.begin(), a.values.end());
        return run.upload({by + 300, a.shape[1], a.shape[2]}, all);
      };
      RowPlan plan = plan_rows(s.mask, s.sequences);
      plan.parts[0].k_count += by;
      for (std::size_t i = 0; i < 300; ++i) {
        plan.low[i] += static_cast<std::int32_t>(by);
        plan.high[i] += static_cast<std::int32_t>(by);
        plan.position[i] += static_cast<std::int32_t>(by);
      }
      const Tensor z =
          attention(run, s.spec,
                    {.q = upload(run, bits.in[0]), .k = behind(bits.in[1]), .v = behind(bits.in[2])}, plan);
      return std::vector<float>(z.as<float>().begin(), z.as<float>().end());
    };
    EXPECT_FALSE(same(right, shifted(13))) << "blocks, " << isa;  // blocks begin elsewhere
    // Blocks begin at the same keys, a split begins in between.
    EXPECT_FALSE(same(right, shifted(1024 - 128))) << "splits, " << isa;
    EXPECT_TRUE(same(right, shifted(1024))) << "whole splits before the first key change nothing, " << isa;
  }
}

TEST(Attention, SlopesAndBuckets) {
  EXPECT_EQ(alibi_slopes(8),
            (std::vector<double>{0.5, 0.25, 0.125, 0.0625, 0.03125, 0.015625, 0.0078125, 0.00390625}));
  const std::vector<double> six = alibi_slopes(6), want = {0.25, 0.0625, 0.015625, 0.00390625, 0.5, 0.125};
  ASSERT_EQ(six.size(), want.size());
  for (std::size_t i = 0; i < 6; ++i) EXPECT_DOUBLE_EQ(six[i], want[i]);
  // 32 buckets up to 128: the first half one distance each, then logarithmic
  EXPECT_EQ(relative_bucket(5, 32, 128, false), 0);
  EXPECT_EQ(relative_bucket(-5, 32, 128, false), 5);
  EXPECT_EQ(relative_bucket(-16, 32, 128, false), 16);
  EXPECT_EQ(relative_bucket(-32, 32, 128, false), 21);
  EXPECT_EQ(relative_bucket(-127, 32, 128, false), 31);
  EXPECT_EQ(relative_bucket(-100000, 32, 128, false), 31);
  EXPECT_EQ(relative_bucket(-5, 32, 128, true), 5);
  EXPECT_EQ(relative_bucket(5, 32, 128, true), 21);
  EXPECT_EQ(relative_bucket(16, 32, 128, true), 26);
  EXPECT_EQ(relative_bucket(64, 32, 128, true), 30);
  EXPECT_EQ(relative_bucket(-64, 32, 128, true), 14);
  EXPECT_EQ(relative_bucket(1000, 32, 128, true), 31);
}

TEST(Attention, RefusesWhatDoesNotFit) {
  Device device({.threads = 1});
  rapt::Run run(device);
  const auto seqs = sequences({6});
  const RowPlan plan = plan_rows(causal(), seqs);
  const AttentionSpec spec = sizes(4, 2, 8, 8);
  const Tensor q = run.make({6, 4, 8}), k = run.make({6, 2, 8}), v = run.make({6, 2, 8});
  auto refused = [&](AttentionSpec other, AttentionInputs in, const RowPlan& p) {
    EXPECT_THROW(attention(run, other, in, p), Error);
  };
  auto change = [&](auto f) {
    AttentionSpec other = spec;
    f(other);
    return other;
  };
  EXPECT_NO_THROW(attention(run, spec, {.q = q, .k = k, .v = v}, plan));
  refused(change([](AttentionSpec& s) { s.kv_heads = 3; }), {.q = q, .k = k, .v = v}, plan);
  refused(change([](AttentionSpec& s) { s.dropout = 1; }), {.q = q, .k = k, .v = v}, plan);
  refused(change([](AttentionSpec& s) { s.normal = Normal::sigmoid, s.extra = Extra::zero_logit; }),
          {.q = q, .k = k, .v = v}, plan);
  refused(change([](AttentionSpec& s) { s.score = Score::additive; }), {.q = q, .k = k, .v = v}, plan);
  refused(change([](AttentionSpec& s) { s.bias = Bias::bucket; }), {.q = q, .k = k, .v = v}, plan);
  refused(change([](AttentionSpec& s) { s.bias = Bias::dense; }),
          {.q = q, .k = k, .v = v, .dense_bias = run.make({2, 6, 6})}, plan);
  refused(change([](AttentionSpec& s) { s.extra = Extra::learned_logit; }), {.q = q, .k = k, .v = v}, plan);
  refused(spec, {.q = q, .k = k}, plan);
  refused(spec, {.q = q, .k = k, .v = run.make({5, 2, 8})}, plan);
  refused(spec, {.q = run.make({5, 4, 8}), .k = k, .v = v}, plan);
  refused(spec, {.q = q, .q_kept = run.make({6, 4, 7}), .k = k, .v = v}, plan);
  refused(spec, {.q = q, .k = k, .v = v}, plan_rows(causal(), sequences({3, 2})));
  std::vector<std::int32_t> pages = {-1};
  const KvLayout layout = kv_layout(DType::f32, 2, 8, 8);
  std::vector<std::byte> page(static_cast<std::size_t>(layout.page_bytes));
  KvView view{layout, page.data(), layout.page_bytes, {pages}};
  refused(spec, {.q = q, .cache = &view}, plan);  // evicted, yet seen
  pages[0] = 0;
  refused(spec, {.q = q, .k = k, .v = v, .cache = &view}, plan);  // keys twice
  for (const KvView& wrong : {KvView{layout, nullptr, layout.page_bytes, {pages}},
                              KvView{layout, page.data(), layout.page_bytes - 1, {pages}}})
    refused(spec, {.q = q, .cache = &wrong}, plan);
  Gradients gradients(device.real);
  Tape tape(gradients);
  run.tape = &tape;
  refused(spec, {.q = q, .cache = &view}, plan);
}

}  // namespace
}  // namespace rapt::test
