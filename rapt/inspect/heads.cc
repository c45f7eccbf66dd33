// SPDX-License-Identifier: Apache-2.0
// Induction, variance and strongest weight come from sampled rows; a name is given against equal weights.
#include "rapt/inspect/heads.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>
#include <map>
#include <utility>

#include "rapt/base/text.h"
#include "rapt/run/run.h"

namespace rapt {
namespace {

constexpr double kFaint = 0.01;     // weights below do not count as induction
constexpr double kStandsOut = 0.3;  // share of the weight from which a head has a name
constexpr double kBeyond = 0.2;     // and by how much it must be above what equal weights give
constexpr double kEven = 0.9;       // of the entropy of equal weights

std::string share_text(double x) {
  char text[32];
  std::snprintf(text, sizeof text, "%.2f", x);
  return text;
}

// Equal weights have one name, whatever the text makes of them: where a token comes again and again, nearly
// all keys stand behind an earlier one of its kind.
std::string label_of(const HeadMetrics& m, double even_entropy) {
  if (even_entropy > 0 && m.entropy >= kEven * even_entropy)
    return concat("uniform ", share_text(m.entropy / even_entropy));
  if (m.place.cross) return "";
  const HeadKind* best = nullptr;
  for (const HeadKind& kind : head_kinds())
    if (m.*kind.share >= kStandsOut && kind.beyond(m) >= kBeyond &&
        (!best || kind.beyond(m) > best->beyond(m)))
      best = &kind;
  return best ? concat(best->name, " ", share_text(m.*best->share)) : "";
}

// For each row, where its token stood last before; -1: nowhere.
std::vector<std::int32_t> last_occurrences(std::span<const std::int32_t> ids) {
  std::map<std::int32_t, std::int32_t> last;
  std::vector<std::int32_t> out;
  for (std::int32_t id : ids) {
    std::int32_t& before = last.try_emplace(id, -1).first->second;
    out.push_back(std::exchange(before, static_cast<std::int32_t>(out.size())));
  }
  return out;
}

struct Anew {  // sums over rows computed anew
  double square = 0, induction = 0, strongest = 0;
  Dim repeats = 0;
};

double mean(double sum, Dim count) { return count > 0 ? sum / static_cast<double>(count) : 0.0; }

// What equal weights would give; `which`: the rows that induction is measured on.
HeadMetrics even_shares(const AttentionRecord& record, const AttentionPlace& place,
                        std::span<const std::int32_t> earlier, std::span<const Dim> which) {
  HeadMetrics even;
  Dim rows = 0, repeats = 0;
  const Dim n = static_cast<Dim>(record.row_ids(place).size()),
            keys = static_cast<Dim>(record.key_ids(place).size());
  for (Dim r = 0; r < n; ++r) {
    const RowSight sight = record.row_sight(place, r);
    if (sight.all == 0) continue;
    ++rows;
    Dim first = 0;
    for (Dim k = 0; k < std::min(record.first_keys(), keys); ++k) first += sight.sees(k);
    const double weight = 1 / static_cast<double>(sight.all);
    even.even_sink += weight * static_cast<double>(first);
    even.even_self += weight * sight.sees(r);
    even.even_previous += weight * sight.sees(r - 1);
  }
  for (Dim r : which) {
    std::int32_t at = earlier[static_cast<std::size_t>(r)];
    if (place.cross || at < 0) continue;
    ++repeats;
    const RowSight sight = record.row_sight(place, r);
    Dim after = 0;
    for (; at >= 0; at = earlier[static_cast<std::size_t>(at)]) after += sight.sees(at + 1);
    even.even_induction += static_cast<double>(after) / static_cast<double>(std::max<Dim>(1, sight.all));
  }
  even.even_sink = mean(even.even_sink, rows);
  even.even_self = mean(even.even_self, rows);
  even.even_previous = mean(even.even_previous, rows - 1);
  even.even_induction = mean(even.even_induction, repeats);
  return even;
}

}  // namespace

std::span<const HeadKind> head_kinds() {
  static constexpr HeadKind kKinds[] = {
      {"sink", &HeadMetrics::sink, &HeadMetrics::even_sink},
      {"previous token", &HeadMetrics::previous, &HeadMetrics::even_previous},
      {"self", &HeadMetrics::self, &HeadMetrics::even_self},
      {"induction", &HeadMetrics::induction, &HeadMetrics::even_induction}};
  return kKinds;
}

std::vector<HeadMetrics> head_metrics(const AttentionRecord& record, Dim most_rows,
                                      const std::atomic<bool>* gone) {
  std::vector<HeadMetrics> all;
  std::span<const std::int32_t> ids;  // whose tokens `earlier` is of
  std::vector<std::int32_t> earlier;
  for (const AttentionPlace& place : record.places()) {
    if (gone && *gone) throw Cancelled();
    const Dim n = static_cast<Dim>(record.row_ids(place).size()), taken = std::min(n, most_rows);
    if (record.row_ids(place).data() != ids.data()) {
      ids = record.row_ids(place);
      earlier = last_occurrences(ids);
    }
    std::vector<Dim> which;
    for (Dim i = 0; i < taken; ++i) which.push_back(i * n / taken);
    std::vector<Anew> anew(static_cast<std::size_t>(record.heads(place)));
    record.rows(place, -1, which, [&](Dim row, int head, std::span<const float> w) {
      Anew& a = anew[static_cast<std::size_t>(head)];
      const auto [low, high] = record.sight(place, row);
      const double unit = share_unit(record.attention(place).spec, w);
      double square = 0;
      for (Dim k = low; k < high; ++k) {
        const double x = w[static_cast<std::size_t>(k)] * unit, d = static_cast<double>(row - k);
        square += x * d * d;
        if (row > 0 && k > 0) a.strongest = std::max(a.strongest, x);
      }
      a.square += square;
      std::int32_t at = earlier[static_cast<std::size_t>(row)];
      if (place.cross || at < 0) return;
      ++a.repeats;
      for (; at >= 0; at = earlier[static_cast<std::size_t>(at)]) {
        const double x = w[static_cast<std::size_t>(at) + 1] * unit;
        if (x >= kFaint) a.induction += x;
      }
    });
    const HeadMetrics even = even_shares(record, place, earlier, which);
    for (int h = 0; h < record.heads(place); ++h) {
      const HeadSums& s = record.sums(place)[static_cast<std::size_t>(h)];
      const Anew& a = anew[static_cast<std::size_t>(h)];
      HeadMetrics m = even;
      m.place = place, m.head = h, m.rows = n, m.sampled = taken;
      m.first = mean(s.first, s.seeing);
      m.sink = mean(s.first, s.rows);
      m.self = mean(s.self, s.rows);
      m.previous = mean(s.previous, s.rows - 1);
      m.entropy = mean(s.entropy, s.rows);
      m.distance = mean(s.distance, s.rows);
      m.variance = std::max(0.0, mean(a.square, taken) - m.distance * m.distance);
      m.induction = mean(a.induction, a.repeats);
      m.strongest = a.strongest;
      m.max_logit = s.max_logit;
      if (s.gates > 0) m.gate = mean(s.gate, s.gates), m.gate_closed = mean(s.closed, s.gates);
      m.label = label_of(m, mean(s.even, s.rows));
      // The kernel's statistics leave out what is no number: rows computed anew show it.
      if (std::isnan(a.square)) {
        for (double HeadMetrics::* figure :
             {&HeadMetrics::first, &HeadMetrics::sink, &HeadMetrics::self, &HeadMetrics::previous,
              &HeadMetrics::entropy, &HeadMetrics::distance, &HeadMetrics::variance, &HeadMetrics::induction,
              &HeadMetrics::strongest, &HeadMetrics::max_logit})
          m.*figure = a.square;
        m.label = "";
      }
      all.push_back(std::move(m));
    }
  }
  return all;
}

std::span<const HeadMetric> head_metric_list() {
  static constexpr auto known = [](double x) { return x < 0 ? std::numeric_limits<double>::quiet_NaN() : x; };
  static const HeadMetric list[] = {
      {"first", true, [](const HeadMetrics& m) { return m.first; }},
      {"entropy", false, [](const HeadMetrics& m) { return m.entropy; }},
      {"self", true, [](const HeadMetrics& m) { return m.self; }},
      {"previous", true, [](const HeadMetrics& m) { return m.previous; }},
      {"induction", true, [](const HeadMetrics& m) { return m.induction; }},
      {"distance", false, [](const HeadMetrics& m) { return m.distance; }},
      {"variance", false, [](const HeadMetrics& m) { return m.variance; }},
      {"strongest", true, [](const HeadMetrics& m) { return m.strongest; }},
      {"max_logit", false, [](const HeadMetrics& m) { return m.max_logit; }},
      {"gate", true, [](const HeadMetrics& m) { return known(m.gate); }},
      {"gate_closed", true, [](const HeadMetrics& m) { return known(m.gate_closed); }},
  };
  return list;
}

}  // namespace rapt
