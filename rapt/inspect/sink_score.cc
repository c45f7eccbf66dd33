// SPDX-License-Identifier: Apache-2.0
// One record per text, every row computed once; columns are added per head. Geometry: the first texts only.
#include "rapt/inspect/sink_score.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

namespace rapt {
namespace {

double length(std::span<const float> x) {
  double sum = 0;
  for (float v : x) sum += static_cast<double>(v) * static_cast<double>(v);
  return std::sqrt(sum);
}
double dot(std::span<const float> a, std::span<const float> b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += static_cast<double>(a[i]) * static_cast<double>(b[i]);
  return sum;
}

struct Mean {
  double sum = 0;
  Dim count = 0;
  void add(double x) { sum += x, ++count; }
  double value() const { return sum / static_cast<double>(count); }
};
struct Geometry {
  Mean key[2], value[2], cosine[2];  // first, others
};

// Row r, head h of [rows][heads][d].
std::span<const float> at(const std::vector<float>& x, Dim r, Dim heads, Dim h, Dim d) {
  return std::span(x).subspan(static_cast<std::size_t>((r * heads + h) * d), static_cast<std::size_t>(d));
}

void add_geometry(const AttentionRecord& record, const AttentionPlace& place,
                  const std::vector<float>& values, std::span<Geometry> to) {
  const AttentionSpec& s = record.attention(place).spec;
  const Dim n = static_cast<Dim>(record.row_ids(place).size());
  const std::vector<float> q = record.queries(place), k = record.keys(place);
  std::vector<double> key_length(static_cast<std::size_t>(n * s.kv_heads));
  for (Dim r = 0; r < n; ++r)
    for (Dim h = 0; h < s.kv_heads; ++h)
      key_length[static_cast<std::size_t>(r * s.kv_heads + h)] = length(at(k, r, s.kv_heads, h, s.head_dim));
  for (Dim h = 0; h < s.heads; ++h) {
    Geometry& g = to[static_cast<std::size_t>(h)];
    const Dim kv = h / (s.heads / s.kv_heads);
    for (Dim r = 0; r < n; ++r) {
      g.key[r > 0].add(key_length[static_cast<std::size_t>(r * s.kv_heads + kv)]);
      g.value[r > 0].add(length(at(values, r, s.kv_heads, kv, s.v_dim)));
      if (r == 0) continue;
      const auto query = at(q, r, s.heads, h, s.head_dim);
      const double query_length = length(query);
      const auto [low, high] = record.sight(place, r);
      for (Dim j = low; j < high; ++j)
        g.cosine[j > 0].add(
            dot(query, at(k, j, s.kv_heads, kv, s.head_dim)) /
            std::max(query_length * key_length[static_cast<std::size_t>(j * s.kv_heads + kv)], 1e-30));
    }
  }
}

}  // namespace

SinkScore sink_score(Device& device, const Model& model, std::span<const std::vector<std::int32_t>> texts,
                     const SinkOptions& options) {
  if (texts.empty()) fail("sinks: there is no text");
  if (options.keys < 1 || options.epsilon < 0)
    fail("sinks: at least one key and an epsilon of at least 0 are needed");
  SinkScore score;
  std::map<AttentionPlace, std::vector<Geometry>> geometry;
  auto keys = static_cast<std::size_t>(options.keys);
  for (const std::vector<std::int32_t>& ids : texts) keys = std::min(keys, ids.size());
  if (keys == 0) fail("sinks: a text has no tokens");
  // The decoder must read something: one token is the least.
  const bool both = model.encoder && model.decoder;
  const auto asked = [&](const AttentionPlace& p) {
    return !p.cross && (!both || p.stack == Stack::encoder);
  };
  for (const std::vector<std::int32_t>& ids : texts) {
    score.tokens = std::max(score.tokens, static_cast<Dim>(ids.size()));
    std::map<AttentionPlace, std::vector<float>> values;
    Taps taps = options.taps ? *options.taps : Taps{};
    const bool look_closer = score.texts < options.geometry;
    if (look_closer)
      taps.see(site::v, [&](const Tapped& t) {
        const AttentionPlace place = place_of(model, t);
        if (!asked(place)) return;
        std::vector<float>& v = values[place];
        const Dim skip = t.value[0] - static_cast<Dim>(ids.size()), width = t.value[1] * t.value[2];
        for (Dim i = skip * width; i < t.value.elements(); ++i)
          v.push_back(static_cast<float>(t.value.at(i)));
      });
    const std::span<const std::int32_t> text(ids);
    const AttentionRecord record(device, model, both ? text.first(1) : text, both ? text : text.first(0),
                                 {.keep = asked, .chunk = Mask::kAll, .taps = &taps});
    std::size_t next = 0;
    for (const AttentionPlace& place : record.places()) {
      const Dim n = static_cast<Dim>(record.row_ids(place).size());
      const auto heads = static_cast<std::size_t>(record.heads(place));
      const bool sigmoid = record.attention(place).spec.normal == Normal::sigmoid;
      std::vector<double> column(heads * keys);
      std::vector<Dim> rows(static_cast<std::size_t>(n));
      std::iota(rows.begin(), rows.end(), Dim{0});
      record.rows(place, -1, rows, [&](Dim row, int head, std::span<const float> w) {
        double unit = 1;
        if (sigmoid) {
          double sum = 0;
          for (float x : w) sum += static_cast<double>(x);
          unit = 1 / (sum + 1e-8);
        }
        for (std::size_t k = 0; k < std::min(keys, static_cast<std::size_t>(row) + 1); ++k)
          column[static_cast<std::size_t>(head) * keys + k] += static_cast<double>(w[k]) * unit;
      });
      if (look_closer) {
        std::vector<Geometry>& g = geometry[place];
        g.resize(heads);
        add_geometry(record, place, values.at(place), g);
      }
      for (std::size_t h = 0; h < heads; ++h, ++next) {
        if (score.texts == 0)
          score.heads.push_back({.place = place,
                                 .head = static_cast<int>(h),
                                 .alpha = std::vector<double>(keys),
                                 .share = std::vector<double>(keys)});
        for (std::size_t k = 0; k < keys; ++k) {
          const double alpha = column[h * keys + k] / static_cast<double>(n - static_cast<Dim>(k));
          score.heads[next].alpha[k] += alpha;
          score.heads[next].share[k] += alpha > options.epsilon;
        }
      }
    }
    ++score.texts;
  }
  score.sink.resize(keys);
  for (HeadSink& h : score.heads) {
    for (std::size_t k = 0; k < keys; ++k) {
      h.alpha[k] /= static_cast<double>(score.texts);
      h.share[k] /= static_cast<double>(score.texts);
      score.sink[k] += h.share[k] / static_cast<double>(score.heads.size());
    }
    const auto it = geometry.find(h.place);
    if (it == geometry.end()) continue;
    const Geometry& g = it->second[static_cast<std::size_t>(h.head)];
    h.key_first = g.key[0].value(), h.key_others = g.key[1].value();
    h.value_first = g.value[0].value(), h.value_others = g.value[1].value();
    h.cosine_first = g.cosine[0].value(), h.cosine_others = g.cosine[1].value();
  }
  return score;
}

}  // namespace rapt
