// SPDX-License-Identifier: Apache-2.0
// The text format of Prometheus, by hand: a few lines for each kind.
#include "rapt/apps/server/metrics.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "rapt/base/error.h"
#include "rapt/base/text.h"

namespace rapt::server {

const std::array<double, 24> kSeconds = {0.001, 0.002, 0.005, 0.01, 0.015, 0.02, 0.03, 0.04,
                                         0.05,  0.06,  0.075, 0.1,  0.15,  0.2,  0.3,  0.5,
                                         0.75,  1,     2,     5,    10,    30,   120,  600};
const std::array<double, 12> kRows = {1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048};

void Histogram::add(double value, std::uint64_t times) {
  const auto at = std::lower_bound(bounds_.begin(), bounds_.end(), value) - bounds_.begin();
  counts_[static_cast<std::size_t>(at)] += times;
  count_ += times;
  sum_ += value * static_cast<double>(times);
}

double Histogram::quantile(double share) const {
  std::uint64_t seen = 0;
  for (std::size_t i = 0; i < bounds_.size(); ++i) {
    seen += counts_[i];
    if (count_ > 0 && static_cast<double>(seen) >= share * static_cast<double>(count_)) return bounds_[i];
  }
  return std::numeric_limits<double>::infinity();
}

void write_head(std::string& out, std::string_view name, std::string_view kind, std::string_view help) {
  out += concat("# HELP ", name, " ", help, "\n# TYPE ", name, " ", kind, "\n");
}

void write_value(std::string& out, std::string_view name, std::string_view labels, double value) {
  out += name;
  if (!labels.empty()) out += concat("{", labels, "}");
  out += concat(" ", shortest(value), "\n");
}

std::string label(std::string_view key, std::string_view value) {
  std::string out = concat(key, "=\"");
  for (const char c : value) {
    if (c == '\\' || c == '"') out += '\\';
    if (c == '\n') out += "\\n";
    else if (static_cast<unsigned char>(c) >= 0x20) out += c;
  }
  return out += '"';
}

void Histogram::write(std::string& out, std::string_view name, std::string_view labels) const {
  const std::string before = labels.empty() ? "" : concat(labels, ",");
  std::uint64_t seen = 0;
  for (std::size_t i = 0; i <= bounds_.size(); ++i) {
    seen += counts_[i];
    write_value(out, concat(name, "_bucket"),
                concat(before, label("le", i < bounds_.size() ? shortest(bounds_[i]) : "+Inf")),
                static_cast<double>(seen));
  }
  write_value(out, concat(name, "_sum"), labels, sum_);
  write_value(out, concat(name, "_count"), labels, static_cast<double>(count_));
}

namespace {

// Ours and vLLM's: dashboards and pickers that were made for that server find what they look for.
constexpr std::pair<std::string_view, std::string_view> kAliases[] = {
    {"rapt_num_requests_running", "vllm:num_requests_running"},
    {"rapt_num_requests_waiting", "vllm:num_requests_waiting"},
    {"rapt_kv_cache_usage_perc", "vllm:kv_cache_usage_perc"},
    {"rapt_kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"},  // of before 2025
    {"rapt_num_preemptions_total", "vllm:num_preemptions_total"},
    {"rapt_prefix_cache_queries_total", "vllm:prompt_tokens_total"},  // vLLM counts those of the cache, too
    {"rapt_prefix_cache_queries_total", "vllm:prefix_cache_queries_total"},
    {"rapt_generation_tokens_total", "vllm:generation_tokens_total"},
    {"rapt_request_success_total", "vllm:request_success_total"},
    {"rapt_prompt_tokens_cached_total", "vllm:prefix_cache_hits_total"},
    {"rapt_spec_decode_draft_tokens_total", "vllm:spec_decode_num_draft_tokens_total"},
    {"rapt_spec_decode_accepted_tokens_total", "vllm:spec_decode_num_accepted_tokens_total"},
    {"rapt_time_to_first_token_seconds", "vllm:time_to_first_token_seconds"},
    {"rapt_inter_token_latency_seconds", "vllm:inter_token_latency_seconds"},
    {"rapt_inter_token_latency_seconds", "vllm:time_per_output_token_seconds"},  // of before 2026
    {"rapt_e2e_request_latency_seconds", "vllm:e2e_request_latency_seconds"},
    {"rapt_request_queue_time_seconds", "vllm:request_queue_time_seconds"},
    {"rapt_request_prefill_time_seconds", "vllm:request_prefill_time_seconds"},
    {"rapt_request_decode_time_seconds", "vllm:request_decode_time_seconds"},
    {"rapt_iteration_tokens", "vllm:iteration_tokens_total"},
};

void replace_all(std::string& text, std::string_view from, std::string_view to) {
  for (std::size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size())
    text.replace(at, from.size(), to);
}

}  // namespace

std::string with_aliases(const std::string& text) {
  std::string more;
  for (const auto& [ours, theirs] : kAliases) {
    const std::size_t begin = text.find(concat("# HELP ", ours, " "));
    if (begin == std::string::npos) continue;
    std::string family = text.substr(begin, text.find("# HELP ", begin + 1) - begin);
    replace_all(family, ours, theirs);
    replace_all(family, "{model=", "{model_name=");
    more += family;
  }
  return text + more;
}

std::string prometheus_text(const Metrics& metrics) {
  std::string out;
  const auto histograms = [&](const char* name, const char* help, Histogram ModelMetrics::* which) {
    write_head(out, name, "histogram", help);
    for (const auto& [model, m] : metrics.models) (m.*which).write(out, name, label("model", model));
  };
  const auto counters = [&](const char* name, const char* help, const auto& value) {
    write_head(out, name, "counter", help);
    for (const auto& [model, m] : metrics.models)
      write_value(out, name, label("model", model), static_cast<double>(value(m)));
  };
  const auto by = [&](const char* name, const char* help, const char* key,
                      std::map<std::string, std::uint64_t> ModelMetrics::* which) {
    write_head(out, name, "counter", help);
    for (const auto& [model, m] : metrics.models)
      for (const auto& [reason, n] : m.*which)
        write_value(out, name, concat(label("model", model), ",", label(key, reason)),
                    static_cast<double>(n));
  };
  histograms("rapt_time_to_first_token_seconds", "from the request's arrival to its first token",
             &ModelMetrics::first_token);
  histograms("rapt_inter_token_latency_seconds", "between two tokens of an answer",
             &ModelMetrics::between_tokens);
  histograms("rapt_e2e_request_latency_seconds", "from arrival to the last token", &ModelMetrics::whole);
  histograms("rapt_request_queue_time_seconds", "from arrival until it was begun", &ModelMetrics::queue);
  histograms("rapt_request_prefill_time_seconds", "reading of the prompt", &ModelMetrics::prefill);
  histograms("rapt_request_decode_time_seconds", "writing of the answer", &ModelMetrics::decode);
  histograms("rapt_iteration_tokens", "rows of a step", &ModelMetrics::step_rows);
  histograms("rapt_iteration_seconds", "a step", &ModelMetrics::step);
  counters("rapt_prompt_tokens_total", "tokens of prompts that were read",
           [](auto& m) { return m.prompt_tokens; });
  counters("rapt_prompt_tokens_cached_total", "tokens of prompts that were found in the cache",
           [](auto& m) { return m.cached_tokens; });
  counters("rapt_prefix_cache_queries_total", "tokens of prompts that were looked up or read, both of these",
           [](auto& m) { return m.prompt_tokens + m.cached_tokens; });
  counters("rapt_generation_tokens_total", "tokens that were written",
           [](auto& m) { return m.generated_tokens; });
  counters("rapt_spec_decode_draft_tokens_total", "guessed tokens whose rows were computed",
           [](auto& m) { return m.guessed_tokens; });
  counters("rapt_spec_decode_accepted_tokens_total", "of them, those that were right",
           [](auto& m) { return m.right_guesses; });
  counters("rapt_num_preemptions_total", "pauses for want of room", [](auto& m) { return m.paused; });
  by("rapt_request_success_total", "requests that ended, by reason", "finished_reason",
     &ModelMetrics::finished);
  by("rapt_cancelled_total", "requests whose client left, by what they were doing", "phase",
     &ModelMetrics::cancelled);
  write_head(out, "rapt_step_seconds_total", "counter", "time of all steps, by part");
  for (const auto& [model, m] : metrics.models) {
    const std::string of = label("model", model);
    write_value(out, "rapt_step_seconds_total", concat(of, ",", label("part", "all")), m.step_seconds);
    write_value(out, "rapt_step_seconds_total", concat(of, ",", label("part", "choose")), m.choose_seconds);
  }
  const auto layers = [&](const char* name, const char* help, double ModelMetrics::Layer::* which) {
    write_head(out, name, "gauge", help);
    for (const auto& [model, m] : metrics.models)
      for (std::size_t l = 0; l < m.layers.size(); ++l)
        if (m.layers[l].rows > 0)
          write_value(out, name, concat(label("model", model), ",", label("layer", std::to_string(l))),
                      m.layers[l].*which);
  };
  layers("rapt_attention_entropy", "nats, mean over heads and rows of watched answers",
         &ModelMetrics::Layer::entropy);
  layers("rapt_sink_rate", "weight on the first tokens, mean over heads and rows of watched answers",
         &ModelMetrics::Layer::sink);
  write_head(out, "rapt_refused_total", "counter", "requests that were refused, by code");
  for (const auto& [code, n] : metrics.refused)
    write_value(out, "rapt_refused_total", label("reason", code), static_cast<double>(n));
  write_head(out, "rapt_http_requests_total", "counter", "replies, by route and status");
  for (const auto& [key, n] : metrics.replies)
    write_value(out, "rapt_http_requests_total",
                concat(label("route", key.first), ",", label("status", std::to_string(key.second))),
                static_cast<double>(n));
  return out;
}

}  // namespace rapt::server
