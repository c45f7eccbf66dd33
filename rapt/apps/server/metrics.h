// SPDX-License-Identifier: Apache-2.0
// What the server counts, and its text for Prometheus (version 0.0.4). Names: "rapt_" and vLLM's meanings, so
// that dashboards carry over. Used on the server's thread only; what the engine's thread knows arrives with
// its events.
#pragma once
#include <array>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace rapt::server {

class Histogram {
 public:
  explicit Histogram(std::span<const double> bounds) : bounds_(bounds), counts_(bounds.size() + 1) {}
  void add(double value, std::uint64_t times = 1);
  std::uint64_t count() const { return count_; }
  double sum() const { return sum_; }
  // The bound below which a share of the values lie; infinity where that is the last.
  double quantile(double share) const;
  void write(std::string& out, std::string_view name, std::string_view labels = "") const;

 private:
  std::span<const double> bounds_;  // ascending
  std::vector<std::uint64_t> counts_;
  std::uint64_t count_ = 0;
  double sum_ = 0;
};

extern const std::array<double, 24> kSeconds;  // 1 ms … 600 s, fine around a step's time
extern const std::array<double, 12> kRows;  // 1 … 2,048

// Of one model.
struct ModelMetrics {
  Histogram first_token{kSeconds}, between_tokens{kSeconds}, whole{kSeconds}, queue{kSeconds},
      prefill{kSeconds}, decode{kSeconds}, step_rows{kRows}, step{kSeconds};
  std::uint64_t prompt_tokens = 0, cached_tokens = 0, generated_tokens = 0, paused = 0, guessed_tokens = 0,
                right_guesses = 0;
  std::map<std::string, std::uint64_t> finished;  // by reason: stop, length, cancelled, error
  std::map<std::string, std::uint64_t> cancelled;  // by phase: waiting, reading, writing
  double step_seconds = 0, choose_seconds = 0;  // all steps
  // By layer, means over the rows of answers that were watched.
  struct Layer {
    double entropy = 0, sink = 0;
    std::uint64_t rows = 0;
  };
  std::vector<Layer> layers;
};

struct Metrics {
  std::map<std::string, std::uint64_t> refused;  // by code
  std::map<std::pair<std::string, int>, std::uint64_t> replies;  // by route and status
  std::map<std::string, std::uint64_t> replays;  // by what came of them: equal, different, edited
  std::map<std::string, ModelMetrics, std::less<>> models;
};

// One line of a metric with its labels, and its head.
void write_head(std::string& out, std::string_view name, std::string_view kind, std::string_view help);
void write_value(std::string& out, std::string_view name, std::string_view labels, double value);
// key="value", escaped.
std::string label(std::string_view key, std::string_view value);
std::string prometheus_text(const Metrics& metrics);
// With what vLLM has as well under its names once more (vllm:…), for dashboards that were made for it.
std::string with_aliases(const std::string& text);

}  // namespace rapt::server
