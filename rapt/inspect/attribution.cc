// SPDX-License-Identifier: Apache-2.0
// One pass keeps the metric's row of everything that is added. What stands behind a term is linear once norms
// keep their scales, so it is one vector, pulled back from the logit: a share is a dot product.
#include "rapt/inspect/attribution.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "rapt/base/text.h"
#include "rapt/ops/linear.h"
#include "rapt/tensor/pack.h"

namespace rapt {
namespace {

using Row = std::vector<double>;

double dot(const Row& a, const Row& b) { return std::inner_product(a.begin(), a.end(), b.begin(), 0.0); }

Row row_of(const Model& model, const Tapped& t, Dim row) {
  const Tensor x = text_rows(model, t.stack, t.value);
  const Dim n = x.elements() / x[0];
  Row out(static_cast<std::size_t>(n));
  for (Dim i = 0; i < n; ++i) out[static_cast<std::size_t>(i)] = x.at(row * n + i);
  return out;
}

Row weight_row(const Weight& w, Dim row) {
  Row out(static_cast<std::size_t>(w.cols));
  if (is_block(w.format)) {
    std::vector<float> values(out.size());
    unpack_row(w, row, values);
    std::copy(values.begin(), values.end(), out.begin());
  } else {
    for (Dim c = 0; c < w.cols; ++c) out[static_cast<std::size_t>(c)] = w.get(row, c);
  }
  return out;
}

bool is_plain(const NormLayer& norm) {
  return norm.recipe.kind == NormRecipe::Kind::layer || norm.recipe.kind == NormRecipe::Kind::rms;
}

// way . norm(x + c) = way . norm(x) + pulled . c, with the norm's scale as x has it. `bias`: what the norm's
// own bias adds.
struct Pulled {
  Row way;
  double bias = 0;
};
Pulled through_norm(const NormLayer& norm, const Row& x, const Row& way) {
  const double n = static_cast<double>(x.size());
  const bool centres = norm.recipe.kind == NormRecipe::Kind::layer;
  const double mean = centres ? std::accumulate(x.begin(), x.end(), 0.0) / n : 0;
  double square = 0;
  for (double v : x) square += (v - mean) * (v - mean) / n;
  const double scale = std::sqrt(square + norm.recipe.eps);
  Pulled out{.way = way};
  double sum = 0;
  for (std::size_t i = 0; i < way.size(); ++i) {
    const auto c = static_cast<Dim>(i);
    const double gain =
        norm.weight ? norm.weight->get(0, c) + (norm.recipe.weight == NormRecipe::Gain::plus_one ? 1 : 0) : 1;
    if (norm.bias) out.bias += way[i] * norm.bias->get(0, c);
    out.way[i] = way[i] * gain / scale;
    sum += out.way[i];
  }
  if (centres)
    for (double& v : out.way) v -= sum / n;
  return out;
}

void check(const Model& model) {
  need_vocabulary(model, "attribution");
  const auto refuse = [&](const std::string& why) {
    fail("attribution: the logits of ", model.recipe.name, " are no sum of what its parts add: ", why);
  };
  const LayerStack& stack = stack_of(model, last_stack(model));
  if (stack.recurrent) refuse("it is made of recurrent cells");
  if (model.recipe.head.transform) refuse("its head has a layer and an activation before the output matrix");
  if (stack.final_norm && !is_plain(*stack.final_norm))
    refuse("its final norm is neither LayerNorm nor RMSNorm");
  for (const Layer& layer : stack.layers)
    for (const Part& part : layer.parts)
      if (part.norm_sum) refuse("its norms stand on the residual stream itself (post-norm)");
}

// What a pass leaves of the metric's row.
struct Seen {
  Row tokens, positions, embed, last;
  struct Of {
    Row out, z, attn_out;  // what the stream gains; of an attention: before its matrix, and behind it
  };
  std::map<std::pair<int, int>, Of> parts;  // by layer and part
};

Seen see(Device& device, const Model& model, Dim row, Ids ids, Ids source) {
  Seen seen;
  Taps taps;
  const Stack stack = last_stack(model);
  const int depth = stack_of(model, stack).depth();
  const auto keep = [&](Site site, auto place) {
    taps.see(site, [&, stack, place](const Tapped& t) {
      if (t.stack == stack) place(t) = row_of(model, t, row);
    });
  };
  keep(site::tokens, [&](const Tapped&) -> Row& { return seen.tokens; });
  keep(site::positions, [&](const Tapped&) -> Row& { return seen.positions; });
  keep(site::embed, [&](const Tapped&) -> Row& { return seen.embed; });
  const auto part = [&](const Tapped& t) -> Seen::Of& { return seen.parts[{t.layer, t.part}]; };
  keep(site::part_out, [&](const Tapped& t) -> Row& { return part(t).out; });
  keep(site::z, [&](const Tapped& t) -> Row& { return part(t).z; });
  keep(site::attn_out, [&](const Tapped& t) -> Row& { return part(t).attn_out; });
  taps.see(site::resid_out, [&](const Tapped& t) {
    if (t.stack == stack && t.layer == depth - 1) seen.last = row_of(model, t, row);
  });
  look(device, model, taps, ids, source);
  return seen;
}

// The logits of a row of the residual stream, before and behind the cap.
struct Logits {
  Row plain, capped;
};
Logits logits_of(Device& device, const Model& model, const Row& x) {
  Run run(device);
  Taps taps;
  Logits out;
  taps.see(site::unembed, [&](const Tapped& t) {
    for (Dim i = 0; i < t.value.elements(); ++i) out.plain.push_back(t.value.at(i));
  });
  run.taps = &taps;
  const Tensor row = run.upload({1, static_cast<Dim>(x.size())}, x).constant();
  const Tensor y = head_logits(run, model, apply(run, stack_of(model, last_stack(model)).final_norm, row));
  for (Dim i = 0; i < y.elements(); ++i) out.capped.push_back(y.at(i));
  return out;
}

// Each head's z through the output matrix, as the model computes products: [H,C].
std::vector<Row> head_results(Device& device, const Attention& a, const Row& z) {
  Run run(device);
  const Dim H = a.spec.heads, Z = a.z_dim();
  std::vector<double> apart(static_cast<std::size_t>(H * H * Z));
  for (Dim h = 0; h < H; ++h)
    for (Dim i = 0; i < Z; ++i)
      apart[static_cast<std::size_t>((h * H + h) * Z + i)] = z[static_cast<std::size_t>(h * Z + i)];
  const Tensor y = linear(run, run.upload({H, H * Z}, apart).constant(), *a.o.w);
  std::vector<Row> out(static_cast<std::size_t>(H));
  for (Dim h = 0; h < H; ++h)
    for (Dim c = 0; c < y[1]; ++c) out[static_cast<std::size_t>(h)].push_back(y.at(h * y[1] + c));
  return out;
}

}  // namespace

Attribution attribution(Device& device, const Model& model, const Metric& metric, Ids ids, Ids source) {
  check(model);
  if (metric.kind != Metric::Kind::logit && metric.kind != Metric::Kind::difference)
    fail_usage("attribution: ", metric_name(metric.kind),
               " is no sum of what the parts add; take a logit or the difference of two");
  Attribution out{.metric = placed(metric, model, static_cast<Dim>(ids.size()))};
  const Seen seen = see(device, model, out.metric.position, ids, source);
  const Logits logits = logits_of(device, model, seen.last);
  out.metric = named(out.metric, logits.plain);
  out.logit = value_of(out.metric, logits.plain), out.capped = value_of(out.metric, logits.capped);

  // From the logit back to the stream.
  Row way = weight_row(*model.head.w, out.metric.token);
  double head_bias = model.head.b ? model.head.b->get(0, out.metric.token) : 0;
  if (out.metric.other >= 0) {
    const Row other = weight_row(*model.head.w, out.metric.other);
    for (std::size_t i = 0; i < way.size(); ++i) way[i] -= other[i];
    if (model.head.b) head_bias -= model.head.b->get(0, out.metric.other);
  }
  for (double& v : way) v *= model.recipe.head.scale;
  const LayerStack& stack = stack_of(model, last_stack(model));
  double norm_bias = 0;
  if (stack.final_norm) {
    Pulled p = through_norm(*stack.final_norm, seen.last, way);
    way = std::move(p.way), norm_bias = p.bias;
  }

  // What enters the stack: apart where it is just the sum of the two.
  const auto add = [&](std::string name, double value) {
    out.parts.push_back({.name = std::move(name), .value = value});
  };
  double apart = 0, size = 0;
  if (seen.tokens.size() == seen.embed.size())
    for (std::size_t i = 0; i < seen.embed.size(); ++i) {
      const double sum = seen.tokens[i] + (seen.positions.empty() ? 0 : seen.positions[i]);
      apart = std::max(apart, std::abs(sum - seen.embed[i])), size = std::max(size, std::abs(seen.embed[i]));
    }
  if (seen.tokens.size() == seen.embed.size() && apart <= 1e-5 * size) {
    add("embeddings", dot(seen.tokens, way));
    if (!seen.positions.empty()) add("pos_embeddings", dot(seen.positions, way));
  } else {
    add("full_embeddings", dot(seen.embed, way));
  }

  for (const auto& [place, row] : seen.parts) {
    const auto& [l, p] = place;
    const Part& part = stack.layers[static_cast<std::size_t>(l)].parts[static_cast<std::size_t>(p)];
    const int number = part_number(part);
    const std::string label = layer_label(l, number);
    Contribution c{.name = concat(part.name.prefix, part.name.stem, "_out_post.", label),
                   .layer = l,
                   .number = number,
                   .value = dot(row.out, way) * part.residual_scale};
    const Attention* a = part.attention();
    c.cross = a && a->spec.cross;
    out.parts.push_back(c);
    if (!a) continue;
    if (a->gate_at(GateRecipe::At::out)) out.gated.push_back(c.name);
    else if (part.norm_out && !is_plain(*part.norm_out)) out.normed.push_back(c.name);
    if (a->gate_at(GateRecipe::At::out) || (part.norm_out && !is_plain(*part.norm_out))) continue;
    Row mine = way;
    for (std::size_t i = 0; i < mine.size(); ++i)
      mine[i] *= part.residual_scale * (part.layer_scale ? part.layer_scale->get(0, static_cast<Dim>(i)) : 1);
    double bias = 0;
    if (part.norm_out) {
      Pulled pulled = through_norm(*part.norm_out, row.attn_out, mine);
      mine = std::move(pulled.way), bias = pulled.bias;
    }
    const std::vector<Row> results = head_results(device, *a, row.z);
    c.name = concat(a->spec.cross ? "cross " : "", "L", label);
    for (std::size_t h = 0; h < results.size(); ++h)
      out.heads.push_back({.name = concat(c.name, "H", h),
                           .layer = l,
                           .number = number,
                           .head = static_cast<int>(h),
                           .cross = c.cross,
                           .value = dot(results[h], mine)});
    if (a->o.b)
      for (std::size_t i = 0; i < mine.size(); ++i) bias += mine[i] * a->o.b->get(0, static_cast<Dim>(i));
    if (a->o.b || (part.norm_out && part.norm_out->bias))
      out.heads.push_back(
          {.name = concat(c.name, " bias"), .layer = l, .number = number, .cross = c.cross, .value = bias});
  }
  if (stack.final_norm && stack.final_norm->bias) add("final_norm.bias", norm_bias);
  if (model.head.b) add("head.bias", head_bias);
  out.rest = out.logit;
  for (const Contribution& c : out.parts) out.rest -= c.value;
  return out;
}

}  // namespace rapt
