// SPDX-License-Identifier: Apache-2.0
// Each model passes alone and leaves its streams; then rows are compared, and both heads run in blocks.
#include "rapt/inspect/compare.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "rapt/inspect/attention_map.h"

namespace rapt {
namespace {

std::vector<double> doubles(const Tensor& x) {
  std::vector<double> out;
  with_values(x, [&](auto values) { out.assign(values.begin(), values.end()); });
  return out;
}

struct ModelTrace {
  std::vector<ComparedLayer> places;
  std::vector<std::vector<float>> residual;  // [T,C] of each place
  std::vector<ComparedHead> heads;           // first[0] and entropy[0] only
};

ModelTrace trace_of(Device& device, const Model& model, Ids ids, Ids source) {
  ModelTrace trace;
  Taps taps;
  taps.first_keys = 1;
  watch_residual(taps, model, [&](Stack stack, int row, const Tensor& x) {
    trace.places.push_back({.stack = stack, .row = row});
    with_values(x, [&](auto values) { trace.residual.emplace_back(values.begin(), values.end()); });
  });
  std::map<AttentionPlace, std::vector<HeadSums>> sums;
  taps.see(site::attn_stats, [&](const Tapped& t) {
    if (!t.cross) add_stats(t, 0, sums[place_of(model, t)]);
  });
  look(device, model, taps, ids, source);
  // What the kernel calls the first key is not the text's.
  if (model.recipe.embed.sink_tokens > 0 && !sums.empty()) {
    const AttentionRecord record(device, model, ids, source,
                                 {.keep = [&](const AttentionPlace& p) { return sums.contains(p); }});
    for (const AttentionPlace& p : record.places()) sums[p] = record.sums(p);
  }
  const auto mean = [](double sum, Dim count) { return count > 0 ? sum / static_cast<double>(count) : 0.0; };
  for (const auto& [place, heads] : sums)
    for (int h = 0; const HeadSums& s : heads)
      trace.heads.push_back({.stack = place.stack,
                             .layer = place.layer,
                             .number = place.number,
                             .head = h++,
                             .first = {mean(s.first, s.seeing)},
                             .entropy = {mean(s.entropy, s.rows)}});
  return trace;
}

void compare_rows(ComparedLayer& layer, const std::vector<float>& a, const std::vector<float>& b,
                  std::size_t width) {
  double difference = 0, size = 0, cosines = 0;
  const std::size_t tokens = a.size() / width;
  layer.worst = 1;
  for (std::size_t t = 0; t < tokens; ++t) {
    double aa = 0, bb = 0, ab = 0;
    for (std::size_t i = t * width; i < (t + 1) * width; ++i) {
      const auto x = static_cast<double>(a[i]), y = static_cast<double>(b[i]);
      aa += x * x, bb += y * y, ab += x * y;
      difference += (x - y) * (x - y);
    }
    const double cosine = aa > 0 && bb > 0 ? ab / std::sqrt(aa * bb) : aa == bb;
    cosines += cosine;
    layer.worst = std::min(layer.worst, cosine);
    size += aa;
  }
  layer.cosine = cosines / static_cast<double>(tokens);
  layer.error = size > 0 ? std::sqrt(difference / size) : 0;
}

// The answers of one model for up to kHeadRows tokens, as log probabilities [m][V].
std::vector<double> answers(Device& device, const Model& model, std::vector<float>& residual, Dim first,
                            Dim count) {
  Run run(device);
  const Dim width = model.recipe.width;
  std::vector<double> rows;
  for (Dim i = first * width; i < (first + count) * width; ++i)
    rows.push_back(static_cast<double>(residual[static_cast<std::size_t>(i)]));
  std::vector<double> out;
  through_head(device, model, run.upload({count, width}, rows),
               [&](Dim, const Tensor& logits) { out = doubles(logits); });
  const auto V = static_cast<std::size_t>(model.recipe.vocab);
  for (std::size_t row = 0; row < out.size(); row += V) {
    const auto begin = out.begin() + static_cast<std::ptrdiff_t>(row),
               end = begin + static_cast<std::ptrdiff_t>(V);
    const double top = *std::max_element(begin, end);
    double sum = 0;
    for (auto it = begin; it != end; ++it) sum += std::exp(*it - top);
    for (auto it = begin; it != end; ++it) *it -= top + std::log(sum);
  }
  return out;
}

}  // namespace

double Comparison::kl_at(double share) const {
  std::vector<double> sorted = kl;
  std::sort(sorted.begin(), sorted.end());
  if (sorted.empty()) return 0;
  const double place = std::ceil(share * static_cast<double>(sorted.size())) - 1;
  return sorted[static_cast<std::size_t>(std::clamp(place, 0.0, static_cast<double>(sorted.size() - 1)))];
}

Comparison compare(Device& device_a, const Model& a, Device& device_b, const Model& b, Ids ids, Ids source) {
  ModelTrace sa = trace_of(device_a, a, ids, source), sb = trace_of(device_b, b, ids, source);
  Comparison out;
  out.tokens = static_cast<Dim>(ids.size());
  const auto same = [](const auto& x, const auto& y) {
    return x.stack == y.stack && x.layer == y.layer && x.head == y.head;
  };
  out.same_shape = a.recipe.width == b.recipe.width && sa.places.size() == sb.places.size() &&
                   std::equal(sa.places.begin(), sa.places.end(), sb.places.begin(),
                              [](const ComparedLayer& x, const ComparedLayer& y) {
                                return x.stack == y.stack && x.row == y.row;
                              });
  if (out.same_shape)
    for (std::size_t i = 0; i < sa.places.size(); ++i) {
      out.layers.push_back(sa.places[i]);
      compare_rows(out.layers.back(), sa.residual[i], sb.residual[i],
                   static_cast<std::size_t>(a.recipe.width));
    }
  out.same_heads = sa.heads.size() == sb.heads.size() &&
                   std::equal(sa.heads.begin(), sa.heads.end(), sb.heads.begin(), same);
  if (out.same_heads)
    for (std::size_t i = 0; i < sa.heads.size(); ++i) {
      out.heads.push_back(sa.heads[i]);
      out.heads.back().first[1] = sb.heads[i].first[0];
      out.heads.back().entropy[1] = sb.heads[i].entropy[0];
    }
  const auto vocabulary = [](const Model& m) { return m.recipe.head.kind == HeadRecipe::Kind::vocab; };
  out.predicts =
      vocabulary(a) && vocabulary(b) && a.recipe.vocab == b.recipe.vocab && last_stack(a) == last_stack(b);
  if (!out.predicts) return out;

  const std::vector<std::int32_t> truth = truth_of(a, ids);
  const auto V = static_cast<std::size_t>(a.recipe.vocab);
  double loss[2] = {}, said = 0;
  for (Dim first = 0; first < out.tokens; first += kHeadRows) {
    const Dim count = std::min(kHeadRows, out.tokens - first);
    const std::vector<double> pa = answers(device_a, a, sa.residual.back(), first, count);
    const std::vector<double> pb = answers(device_b, b, sb.residual.back(), first, count);
    for (Dim t = 0; t < count; ++t) {
      const double *x = &pa[static_cast<std::size_t>(t) * V], *y = &pb[static_cast<std::size_t>(t) * V];
      double kl = 0;
      for (std::size_t i = 0; i < V; ++i) kl += std::exp(x[i]) * (x[i] - y[i]);
      out.kl.push_back(std::max(0.0, kl));
      out.agree += std::max_element(x, x + V) - x == std::max_element(y, y + V) - y;
      const std::int32_t id = truth[static_cast<std::size_t>(first + t)];
      if (id < 0) continue;
      loss[0] -= x[id], loss[1] -= y[id], said += 1;
    }
  }
  out.agree /= static_cast<double>(out.tokens);
  for (int i = 0; i < 2; ++i) out.perplexity[i] = said > 0 ? std::exp(loss[i] / said) : std::nan("");
  return out;
}

}  // namespace rapt
