// SPDX-License-Identifier: Apache-2.0
// One pass keeps the streams; then blocks of tokens take the head, last row first: KL is measured from it.
#include "rapt/inspect/lens.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace rapt {
namespace {

struct Distribution {
  double log_sum = 0;  // log of the sum of exp(logit)
  double mean = 0;     // of the logits, weighted with their probabilities
};

template <class Real>
Distribution distribution(std::span<const Real> x) {
  const Real top = *std::max_element(x.begin(), x.end());
  double sum = 0, weighted = 0;
  for (Real v : x) {
    const auto e = static_cast<double>(std::exp(v - top));
    sum += e;
    weighted += e * static_cast<double>(v);
  }
  return {static_cast<double>(top) + std::log(sum), weighted / sum};
}

// Of equal ones the smaller id.
template <class Real>
void most_probable(std::span<const Real> x, std::size_t count, std::int32_t* ids) {
  std::size_t have = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    if (have == count && !(x[i] > x[static_cast<std::size_t>(ids[have - 1])])) continue;
    std::size_t to = have < count ? have++ : count - 1;
    for (; to > 0 && x[i] > x[static_cast<std::size_t>(ids[to - 1])]; --to) ids[to] = ids[to - 1];
    ids[to] = static_cast<std::int32_t>(i);
  }
}

// 1: the most probable; of equal ones the smaller id comes first
template <class Real>
std::int32_t rank_of(std::span<const Real> x, std::int32_t id) {
  const Real mine = x[static_cast<std::size_t>(id)];
  std::int32_t rank = 1;
  for (std::size_t i = 0; i < x.size(); ++i)
    rank += x[i] > mine || (x[i] == mine && i < static_cast<std::size_t>(id));
  return rank;
}

struct ResidualRows {  // the residual stream of the tokens looked at: [rows][tokens][C]
  std::vector<std::byte> bytes;
  std::size_t row_bytes = 0;
  Dim tokens = 0, width = 0;
  DType dtype = DType::f32;
  Tensor rows(int row, Dim first, Dim count) {
    const Dim sizes[] = {count, width};
    const std::size_t token = row_bytes / static_cast<std::size_t>(tokens);
    return tensor_over(
        bytes.data() + static_cast<std::size_t>(row) * row_bytes + static_cast<std::size_t>(first) * token,
        nullptr, dtype, sizes);
  }
};

// One cell. `answer`: probabilities of the last row, which is read first and fills them in; `less`: minus
// its entropy.
template <class Real>
void read_cell(Lens& out, int row, Dim token, std::int32_t truth, std::span<const Real> x,
               std::span<float> answer, double& less) {
  const std::size_t c = out.cell(row, token), top = static_cast<std::size_t>(out.top);
  const Distribution d = distribution(x);
  const auto probability = [&](auto id) {
    return static_cast<float>(std::exp(static_cast<double>(x[static_cast<std::size_t>(id)]) - d.log_sum));
  };
  most_probable(x, top, &out.ids[c * top]);
  for (std::size_t i = 0; i < top; ++i) out.probabilities[c * top + i] = probability(out.ids[c * top + i]);
  out.entropy[c] = static_cast<float>(d.log_sum - d.mean);
  if (row == out.rows - 1) {
    for (std::size_t i = 0; i < x.size(); ++i) answer[i] = probability(i);
    less = d.mean - d.log_sum;
  } else {  // KL(p || q) = sum p log p - sum p (x - log_sum)
    double mean = 0;
    for (std::size_t i = 0; i < x.size(); ++i)
      mean += static_cast<double>(answer[i]) * static_cast<double>(x[i]);
    out.kl[c] = static_cast<float>(std::max(0.0, less - mean + d.log_sum));
  }
  if (truth < 0) return;
  out.rank[c] = rank_of(x, truth);
  out.truth[c] = probability(truth);
}

}  // namespace

NextToken next_token(std::span<const float> logits, std::int32_t truth, int top) {
  NextToken out;
  const Distribution d = distribution(logits);
  const auto logprob = [&](std::int32_t id) {
    return static_cast<float>(static_cast<double>(logits[static_cast<std::size_t>(id)]) - d.log_sum);
  };
  out.entropy = static_cast<float>(d.log_sum - d.mean);
  std::vector<std::int32_t> ids(std::min(static_cast<std::size_t>(top), logits.size()));
  if (!ids.empty()) most_probable(logits, ids.size(), ids.data());
  for (const std::int32_t id : ids) out.top.emplace_back(id, logprob(id));
  if (truth >= 0) out.logprob = logprob(truth), out.rank = rank_of(logits, truth);
  return out;
}

Lens lens(Device& device, const Model& model, Ids ids, Ids source, const LensOptions& options) {
  need_vocabulary(model, "lens");
  const auto length = static_cast<Dim>(ids.size());
  if (options.first < 0 || options.first >= length)
    fail_usage("lens: token ", options.first, " was asked for, the text has ", length);
  if (options.count == 0) fail_usage("lens: 0 tokens to look at; give 1 or more, or leave it away for all");
  if (options.top < 1 || options.top > model.recipe.vocab)
    fail_usage("lens: the ", options.top, " most probable tokens of a vocabulary of ", model.recipe.vocab);
  Lens out{.stack = last_stack(model), .first = options.first, .top = options.top, .own = !model.decoder};
  out.tokens = options.count < 0 ? length - options.first : std::min(options.count, length - options.first);
  out.rows = stack_of(model, out.stack).depth() + 1;
  ResidualRows residual{
      .bytes = {}, .row_bytes = 0, .tokens = out.tokens, .width = model.recipe.width, .dtype = device.real};
  residual.row_bytes =
      static_cast<std::size_t>(out.tokens * residual.width) * (device.real == DType::f64 ? 8 : 4);
  residual.bytes.resize(residual.row_bytes * static_cast<std::size_t>(out.rows));
  Taps taps = options.taps ? *options.taps : Taps{};
  watch_residual(taps, model, [&](Stack stack, int row, const Tensor& x) {
    if (stack == out.stack)
      std::memcpy(residual.rows(row, 0, out.tokens).data, x.slice(out.first, out.tokens).data,
                  residual.row_bytes);
  });
  look(device, model, taps, ids, source);
  std::vector<Tensor> rows;
  for (int row = 0; row < out.rows; ++row) rows.push_back(residual.rows(row, 0, out.tokens));
  const std::vector<std::int32_t> truth = truth_of(model, ids);
  return lens_of(
      device, model, rows,
      std::span(truth).subspan(static_cast<std::size_t>(out.first), static_cast<std::size_t>(out.tokens)),
      options);
}

Lens lens_of(Device& device, const Model& model, std::span<const Tensor> residual,
             std::span<const std::int32_t> truth, const LensOptions& options) {
  need_vocabulary(model, "lens");
  if (residual.empty() || residual[0][0] != static_cast<Dim>(truth.size()))
    fail("lens: ", residual.size(), " rows were kept, and the truth of ", truth.size(), " tokens");
  Lens out{.stack = last_stack(model), .first = options.first, .top = options.top, .own = !model.decoder};
  out.tokens = residual[0][0];
  out.rows = static_cast<int>(residual.size());

  const auto cells = static_cast<std::size_t>(out.rows) * static_cast<std::size_t>(out.tokens);
  out.ids.resize(cells * static_cast<std::size_t>(out.top));
  out.probabilities.resize(out.ids.size());
  out.entropy.resize(cells);
  out.kl.resize(cells);
  out.rank.resize(cells);
  out.truth.resize(cells);
  // A few tokens at a time, the model's own answer first: the other rows are held against it.
  const auto V = static_cast<std::size_t>(model.recipe.vocab);
  std::vector<float> answers(static_cast<std::size_t>(std::min(kHeadRows, out.tokens)) * V);
  std::vector<double> less(static_cast<std::size_t>(kHeadRows));
  for (Dim first = 0; first < out.tokens; first += kHeadRows)
    for (int row = out.rows - 1; row >= 0; --row)
      through_head(
          device, model,
          residual[static_cast<std::size_t>(row)].slice(first, std::min(kHeadRows, out.tokens - first)),
          [&](Dim, const Tensor& logits) {
            device.team().each(logits[0], [&](Dim i) {
              const auto n = static_cast<std::size_t>(i);
              with_values(logits.slice(i, 1), [&](auto x) {
                read_cell(out, row, first + i, truth[static_cast<std::size_t>(first + i)], x,
                          std::span(answers).subspan(n * V, V), less[n]);
              });
            });
          });
  return out;
}

}  // namespace rapt
