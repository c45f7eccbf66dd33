// SPDX-License-Identifier: Apache-2.0
// Only self-attention of the last stack is written. There is one text, so statistics have one sample.
#include "rapt/inspect/headvis.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>

#include "rapt/base/json.h"
#include "rapt/base/text.h"
#include "rapt/io/reader.h"
#include "rapt/report/document.h"

namespace rapt {
namespace {

constexpr int kKeys = 8;
constexpr double kLeast = 0.005;
constexpr int kIntervals = 5, kBins = 50;
constexpr std::size_t kTokens = 50;
constexpr Dim kEdges[] = {0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096};

struct Figure {
  const char *name, *what;
  double HeadMetrics::* value;
};
constexpr Figure kFigures[] = {
    {"self_attention_score", "Mean weight of a token on itself", &HeadMetrics::self},
    {"prev_token_score", "Mean weight on the token before", &HeadMetrics::previous},
    {"pattern_entropy", "Mean entropy of a row of weights, in nats", &HeadMetrics::entropy},
    {"qk_distance", "Mean distance |q - k|, weighted", &HeadMetrics::distance},
    {"qk_distance_variance", "Variance of that distance", &HeadMetrics::variance},
    {"induction_score", "Mean weight on the tokens after earlier occurrences of the same token",
     &HeadMetrics::induction},
};

double rounded(double x) { return std::round(x * 1e4) / 1e4; }
Json figure(double x) { return std::isfinite(x) ? Json(rounded(x)) : Json(); }  // JSON has no NaN: null

Json object(std::initializer_list<std::pair<const char*, Json>> members) {
  Json j = Json::Object{};
  for (const auto& [key, value] : members) j.set(key, value);
  return j;
}

void write_json(const std::string& path, const Json& json, bool force) {
  FileWriter file(path, force);
  file.write(json.dump(0) + "\n");
  file.commit();
}

Json top_tokens(std::map<std::string, double>& weight_of) {
  std::vector<std::pair<std::string, double>> ranked(weight_of.begin(), weight_of.end());
  std::sort(ranked.begin(), ranked.end(), [](const auto& a, const auto& b) {
    return a.second > b.second || (a.second == b.second && a.first < b.first);
  });
  if (ranked.size() > kTokens) ranked.resize(kTokens);
  Json::Array out;
  for (const auto& [token, weight] : ranked)
    out.push_back(object({{"token", token}, {"weight", rounded(weight)}}));
  return out;
}

Json head_json(const StrongestKeys& strongest, const HeadMetrics& m, std::span<const std::string> words) {
  const Dim n = static_cast<Dim>(words.size());
  Json::Array indices, values, tokens;
  std::vector<double> distances(std::size(kEdges) - 1);
  std::map<std::string, double> queries, keys;
  for (Dim q = 0; q < n; ++q) {
    std::vector<std::pair<Dim, double>> row;
    for (int i = 0; i < strongest.count; ++i) {
      const auto at = static_cast<std::size_t>(q * strongest.count + i);
      if (strongest.keys[at] >= 0 && static_cast<double>(strongest.weights[at]) >= kLeast)
        row.emplace_back(strongest.keys[at], rounded(static_cast<double>(strongest.weights[at])));
    }
    std::sort(row.begin(), row.end());
    for (const auto& [k, weight] : row) {
      indices.push_back(static_cast<std::int64_t>(q * n + k));
      values.push_back(weight);
      // The last bin is open.
      const auto* edge = std::upper_bound(std::begin(kEdges), std::end(kEdges) - 1, std::abs(q - k));
      distances[static_cast<std::size_t>(edge - kEdges - 1)] += weight;
      queries[words[static_cast<std::size_t>(q)]] += weight;
      keys[words[static_cast<std::size_t>(k)]] += weight;
    }
  }
  for (const std::string& w : words) tokens.push_back(w);
  Json::Array edges, bins, activation_edges, activation_bins;
  for (Dim e : kEdges) edges.push_back(static_cast<std::int64_t>(e));
  for (double d : distances) bins.push_back(rounded(d));
  const int bin = std::clamp(static_cast<int>(m.strongest * kBins), 0, kBins - 1);
  for (int i = 0; i <= kBins; ++i) activation_edges.push_back(rounded(static_cast<double>(i) / kBins));
  for (int i = 0; i < kBins; ++i) activation_bins.push_back(i == bin ? 1 : 0);
  const Json sequence = object({{"sequence_id", 0},
                                {"interval", kIntervals},
                                {"tokens", tokens},
                                {"attention_indices", indices},
                                {"attention_values", values},
                                {"seq_len", static_cast<std::int64_t>(n)},
                                {"max_activation", rounded(m.strongest)}});
  return object({{"sequences", Json::Array{sequence}},
                 {"qk_distance_histogram", object({{"bin_edges", edges}, {"bin_values", bins}})},
                 {"top_query_tokens", top_tokens(queries)},
                 {"top_key_tokens", top_tokens(keys)},
                 {"histogram", object({{"bin_edges", activation_edges}, {"bin_values", activation_bins}})},
                 {"statistics", object({{"n_samples", 1}, {"mean_max_activation", rounded(m.strongest)}})}});
}

Json labelled(std::initializer_list<std::pair<const char*, const char*>> keys) {
  Json::Array out;
  for (const auto& [key, label] : keys) out.push_back(object({{"key", key}, {"label", label}}));
  return out;
}

}  // namespace

void write_headvis(const AttentionRecord& record, std::span<const HeadMetrics> metrics,
                   const std::string& model_name, std::span<const std::string> tokens,
                   const std::string& folder, bool force) {
  if (metrics.empty()) fail("headvis: there is no head to write");
  // Encoder first: the last one is the decoder's, where there is one.
  const Stack stack = metrics.back().place.stack;
  const auto shown = [&](const AttentionPlace& p) { return p.stack == stack && !p.cross; };
  std::vector<std::string> words;
  for (const std::string& t : tokens) words.push_back(valid_text(t));  // a token may be half a character
  std::error_code error;
  std::filesystem::create_directories(std::filesystem::path(folder) / "heads", error);
  if (error) fail(folder, ": cannot make the folder: ", error.message());
  Json::Array heads, scatter;
  int layers = 0, most = 0;
  std::map<std::pair<int, int>, const HeadMetrics*> of;
  for (const HeadMetrics& m : metrics) {
    if (!shown(m.place)) continue;
    if (m.place.number > 0)
      fail("headvis: layer ", m.place.layer,
           " has several attentions, and HeadVis knows one for each layer; `rapt inspect heads` shows them");
    layers = std::max(layers, m.place.layer + 1);
    most = std::max(most, m.head + 1);
    of[{m.place.layer, m.head}] = &m;
    heads.push_back(Json::Array{m.place.layer, m.head});
    Json row = object({{"layer", m.place.layer}, {"head", m.head}});
    for (const Figure& f : kFigures) row.set(f.name, figure(m.*f.value));
    scatter.push_back(std::move(row));
  }
  for (const StrongestKeys& s : strongest_keys(record, kKeys)) {
    if (!shown(s.place)) continue;
    if (words.size() != record.row_ids(s.place).size())
      fail("headvis: ", words.size(), " words for ", record.row_ids(s.place).size(), " tokens");
    write_json(concat(folder, "/heads/L", s.place.layer, "H", s.head, ".json"),
               head_json(s, *of.at({s.place.layer, s.head}), words), force);
  }
  Json::Array names;
  Json descriptions = Json::Object{};
  for (const Figure& f : kFigures) names.push_back(f.name), descriptions.set(f.name, f.what);
  write_json(folder + "/scatter_data.json", scatter, force);
  write_json(folder + "/server_config.json", Json::Object{}, force);
  write_json(folder + "/config.json",
             object({{"model_name", model_name},
                     {"heads", heads},
                     {"n_layers", layers},
                     {"n_heads", most},
                     {"n_intervals", kIntervals},
                     {"metrics", names},
                     {"metric_descriptions", descriptions},
                     {"head_data_pattern", "L{layer}H{head}.json"},
                     {"has_umap", false},
                     {"custom_plots",
                      labelled({{"qk_distance_histogram", "Distance"}, {"histogram", "Strongest weight"}})},
                     {"custom_tables", labelled({{"top_query_tokens", "Tokens that look"},
                                                 {"top_key_tokens", "Tokens looked at"}})},
                     {"statistics_display",
                      object({{"n_samples", object({{"label", "Texts"}, {"format", "default"}})},
                              {"mean_max_activation",
                               object({{"label", "Mean strongest weight"}, {"format", "default"}})}})}}),
             force);
}

}  // namespace rapt
