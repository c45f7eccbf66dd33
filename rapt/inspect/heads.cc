// SPDX-License-Identifier: Apache-2.0
#include "rapt/inspect/heads.h"

#include <algorithm>

namespace rapt {
namespace {

void pass(Device& device, const Model& model, Taps& taps, std::span<const std::int32_t> ids, std::span<const std::int32_t> source) {
  if (ids.empty()) fail("inspect: the text has no tokens");
  Run run(device);
  run.taps = &taps;
  const auto batch = [](std::span<const std::int32_t> tokens) {
    return Batch{.tokens = tokens, .sequences = {{.first = 0, .count = static_cast<Dim>(tokens.size())}}};
  };
  const Batch from = batch(source);
  forward(run, model, batch(ids), source.empty() ? nullptr : &from);
}

}  // namespace

std::vector<HeadStats> head_stats(Device& device, const Model& model, std::span<const std::int32_t> ids,
                                  std::span<const std::int32_t> source) {
  std::vector<HeadStats> out;
  Taps taps;
  taps.first_keys = 1;
  taps.see(Site::attn_stats, [&](const Tapped& t) {
    if (t.cross) return;
    const Dim rows = t.value[0], heads = t.value[1], columns = t.value[2];
    const Dim from = rows > 1 ? 1 : 0;
    for (Dim h = 0; h < heads; ++h) {
      HeadStats s{.stack = t.stack, .layer = t.layer, .head = static_cast<int>(h)};
      for (Dim r = from; r < rows; ++r) {
        const auto at = [&](int column) { return t.value.at((r * heads + h) * columns + column); };
        s.first += at(AttentionStat::first);
        s.self += at(AttentionStat::self);
        s.previous += at(AttentionStat::previous);
        s.entropy += at(AttentionStat::entropy);
        s.distance += at(AttentionStat::distance);
        s.max_logit = r == from ? at(AttentionStat::max_logit) : std::max(s.max_logit, at(AttentionStat::max_logit));
      }
      for (double* sum : {&s.first, &s.self, &s.previous, &s.entropy, &s.distance}) *sum /= static_cast<double>(rows - from);
      out.push_back(s);
    }
  });
  pass(device, model, taps, ids, source);
  return out;
}

std::vector<double> head_map(Device& device, const Model& model, std::span<const std::int32_t> ids, Stack stack, int layer, int head,
                             std::span<const std::int32_t> source) {
  const auto n = static_cast<Dim>(stack == Stack::encoder && !source.empty() ? source.size() : ids.size());
  std::vector<double> map(static_cast<std::size_t>(n * n));
  Dim seen = 0;
  Taps taps;
  taps.want_weights(
      [&](Stack s, int l, bool cross) {
        std::vector<Taps::HeadRow> rows;
        if (s == stack && l == layer && !cross)
          for (Dim r = 0; r < n; ++r) rows.push_back({head, r});
        return rows;
      },
      [&](const Tapped& t) {
        const Dim keys = t.value.elements(), skip = std::max<Dim>(0, keys - n);
        for (Dim k = skip; k < keys; ++k) map[static_cast<std::size_t>(t.row * n + k - skip)] = t.value.at(k);
        ++seen;
      });
  pass(device, model, taps, ids, source);
  if (seen == 0)
    fail("inspect: model ", model.recipe.name, " has no layer ", layer, " with self-attention in its ",
         stack == Stack::encoder ? "encoder" : "decoder");
  return map;
}

}  // namespace rapt
