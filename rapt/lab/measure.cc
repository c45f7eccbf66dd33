// SPDX-License-Identifier: Apache-2.0
// Plain loops over numbers in double; then AttentionRig, a model of one attention layer over two sequences.
#include "rapt/lab/measure.h"

#include <time.h>

#include <algorithm>
#include <cmath>

#include "rapt/base/rng.h"

namespace rapt {

std::vector<double> normal_values(std::uint64_t key, Dim count, double scale) {
  std::vector<double> v(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < v.size(); ++i) v[i] = scale * random_normal(key, i);
  return v;
}

Tensor normal_tensor(Run& run, std::initializer_list<Dim> sizes, std::uint64_t key, double scale) {
  Dim count = 1;
  for (Dim s : sizes) count *= s;
  return run.upload(sizes, normal_values(key, count, scale));
}

Weight normal_weight(DType real, Dim rows, Dim cols, std::uint64_t key, double scale, Packing packing) {
  Weight w = make_weight("lab", rows, cols, real, packing);
  for (Dim r = 0; r < rows; ++r)
    for (Dim c = 0; c < cols; ++c)
      w.set(r, c, scale * random_normal(key, static_cast<std::uint64_t>(r * cols + c)));
  return w;
}

std::vector<double> values_of(const Tensor& t) {
  std::vector<double> v(static_cast<std::size_t>(t.elements()));
  for (std::size_t i = 0; i < v.size(); ++i) v[i] = t.at(static_cast<Dim>(i));
  return v;
}

std::vector<double> gradient_of(Run& run, const Tensor& t) {
  Tensor view = t;
  view.data = static_cast<std::byte*>(run.grad(t));
  return values_of(view);
}

std::vector<double> gradient_of(const Gradients& gradients, const Weight& w) {
  std::vector<double> v;
  for (Dim r = 0; r < w.rows; ++r)
    for (Dim c = 0; c < w.cols; ++c) v.push_back(gradients.get(w, r, c));
  return v;
}

std::vector<double> values_of(const Weight& w) {
  std::vector<double> v;
  for (Dim r = 0; r < w.rows; ++r)
    for (Dim c = 0; c < w.cols; ++c) v.push_back(w.get(r, c));
  return v;
}

double length(std::span<const double> x) {
  double sum = 0;
  for (double v : x) sum += v * v;
  return std::sqrt(sum);
}

double largest(std::span<const double> x) {
  double most = 0;
  for (double v : x) most = std::max(most, std::abs(v));
  return most;
}

double largest_difference(std::span<const double> a, std::span<const double> b) {
  if (a.size() != b.size()) fail("lab: ", a.size(), " numbers against ", b.size());
  double most = 0;
  for (std::size_t i = 0; i < a.size(); ++i) most = std::max(most, std::abs(a[i] - b[i]));
  return most;
}

double relative_difference(std::span<const double> a, std::span<const double> b) {
  if (a.size() != b.size()) fail("lab: ", a.size(), " numbers against ", b.size());
  double error = 0, power = 0;
  for (std::size_t i = 0; i < a.size(); ++i) error += (a[i] - b[i]) * (a[i] - b[i]), power += b[i] * b[i];
  return std::sqrt(error / power);
}

double slope(std::span<const double> x, std::span<const double> y) {
  const auto n = static_cast<double>(x.size());
  double sx = 0, sy = 0, sxx = 0, sxy = 0;
  for (std::size_t i = 0; i < x.size(); ++i) sx += x[i], sy += y[i], sxx += x[i] * x[i], sxy += x[i] * y[i];
  return (n * sxy - sx * sy) / (n * sxx - sx * sx);
}

bool all_hold(const std::vector<Finding>& findings) {
  return std::all_of(findings.begin(), findings.end(),
                     [](const Finding& f) { return f.holds || !f.every_seed; });
}

double thread_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

void backward_from(Run& run, const Tensor& y, std::uint64_t key) {
  void* g = run.grad(y);
  for (Dim i = 0; i < y.elements(); ++i) {
    const double c = random_normal(key, static_cast<std::uint64_t>(i));
    if (y.dtype == DType::f64) static_cast<double*>(g)[i] = c;
    else static_cast<float*>(g)[i] = static_cast<float>(c);
  }
  run.tape->play_back(run);
}

// -------------------------------------------------------------------------------------- one attention layer
AttentionRig::AttentionRig(Device& f64, const AttnRecipe& attn, std::uint64_t seed, Place place,
                           EmbedRecipe::Pos pos)
    : device_(f64), seed_(seed), place_(place) {
  Recipe r;
  r.name = "rig";
  r.width = kWidth;
  r.vocab = 64;
  r.context = 64;
  r.embed.pos = pos;
  r.head.kind = HeadRecipe::Kind::none;
  AttnRecipe a = attn;
  a.heads = kHeads, a.kv_heads = kKvHeads, a.head_dim = kHeadDim, a.v_dim = kHeadDim;
  a.bias = {true, true, true, true};
  if (place == Place::encoder) a.mask = AttnRecipe::MaskKind::full;
  LayerRecipe layer, memory;
  a.cross = place == Place::cross;
  layer.parts.push_back({.body = a});
  if (place == Place::cross) {
    memory.parts.push_back({.body = FfnRecipe{.width = kWidth}});
    r.encoder = StackRecipe{.layers = 1, .kinds = {{"L", memory}}};
  }
  (place == Place::encoder ? r.encoder : r.decoder) = StackRecipe{.layers = 1, .kinds = {{"L", layer}}};
  model_ = std::make_unique<Model>(r, f64.real);
  std::uint64_t at = 0;
  for (Weight& w : model_->weights) {  // sizes that give scores of a few units
    const double std = w.name == "embed.tokens" || w.rows == 1 ? 1 : 0.35;
    for (Dim i = 0; i < w.size(); ++i)
      w.set(i / w.cols, i % w.cols, std * random_normal(mix_key(seed, 0xB1A5), at++));
  }
  for (std::uint64_t i = 0; i < 2 * kRows; ++i) {
    tokens_.push_back(static_cast<std::int32_t>(random_below(64, mix_key(seed, 1), i)));
    source_.push_back(static_cast<std::int32_t>(random_below(64, mix_key(seed, 2), i)));
  }
}

Weight& AttentionRig::weight(std::string_view name) {
  return model_->weight(concat(place_ == Place::encoder ? "encoder.0.self."
                               : place_ == Place::cross ? "decoder.0.cross."
                                                        : "decoder.0.self.",
                               name));
}

Tensor AttentionRig::forward_on(Run& run) {
  run.training = training;
  run.random = {seed_, 1};
  Batch batch{.tokens = tokens_}, source{.tokens = source_};
  for (Dim n = 0; n < 2; ++n) {
    batch.sequences.push_back({.first = n * kRows, .count = kRows, .id = static_cast<std::uint64_t>(n)});
    source.sequences.push_back({.first = n * kRows, .count = kRows, .id = static_cast<std::uint64_t>(n)});
  }
  return forward(run, *model_, batch, place_ == Place::cross ? &source : nullptr);
}

std::vector<double> AttentionRig::out() {
  Run run(device_);
  return values_of(forward_on(run));
}

std::vector<double> AttentionRig::gradient(std::string_view name) {
  Run run(device_);
  Gradients gradients(device_.real);
  Tape tape(gradients);
  run.tape = &tape;
  backward_from(run, forward_on(run), mix_key(seed_, 3));
  return gradient_of(gradients, weight(name));
}

std::vector<std::vector<double>> AttentionRig::weights(Dim head) {
  Run run(device_);
  Taps taps;
  run.taps = &taps;
  std::vector<std::vector<double>> rows(static_cast<std::size_t>(kRows));
  taps.want_weights(
      site::attn_weights,
      [&](const Tapped&) {
        std::vector<Taps::HeadRow> wanted;
        for (Dim r = 0; r < kRows; ++r) wanted.push_back({head, r});
        return wanted;
      },
      [&](const Tapped& t) { rows[static_cast<std::size_t>(t.row)] = values_of(t.value); });
  forward_on(run);
  return rows;
}

void AttentionRig::fold_value_bias() {
  Weight &v = weight("v.bias"), &o = weight("o.bias");
  const Weight& w = weight("o.weight");
  for (Dim c = 0; c < kWidth; ++c) {
    double sum = o.get(0, c);
    for (Dim h = 0; h < kHeads; ++h)
      for (Dim d = 0; d < kHeadDim; ++d)
        sum += w.get(c, h * kHeadDim + d) * v.get(0, h / (kHeads / kKvHeads) * kHeadDim + d);
    o.set(0, c, sum);
  }
  for (Dim i = 0; i < v.size(); ++i) v.set(0, i, 0);
}

}  // namespace rapt
