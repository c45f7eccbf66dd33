// SPDX-License-Identifier: Apache-2.0
// Passes of at most 256 tokens end at each sample; at three places tokens come one by one and are timed.
#include "rapt/lab/streaming.h"

#include <algorithm>
#include <cmath>

#include "rapt/base/clock.h"
#include "rapt/nn/kv_pool.h"
#include "rapt/use/generate.h"

namespace rapt {
namespace {

// Rows of a pass; larger ones read the prompt no faster here and hold more memory.
constexpr Dim kChunk = 256;

// -log p(next) from the only row of logits.
double surprise(const Tensor& logits, std::int32_t next) {
  double most = -INFINITY, sum = 0;
  const Dim n = logits.last();
  for (Dim i = 0; i < n; ++i) most = std::max(most, logits.at(i));
  for (Dim i = 0; i < n; ++i) sum += std::exp(logits.at(i) - most);
  return most + std::log(sum) - logits.at(next);
}

Dim widest(const StreamingOptions& o) { return *std::max_element(o.keep.begin(), o.keep.end()); }

void check(const StreamingOptions& o) {
  if (o.keep.empty()) fail_usage("streaming: no number of kept tokens to try");
  for (Dim k : o.keep)
    if (k < 0 || k > 1024) fail_usage("streaming: ", k, " kept tokens; give 0 to 1,024");
  if (o.window < 1) fail_usage("streaming: a window of ", o.window, " tokens; give at least 1");
  if (o.samples < 1) fail_usage("streaming: ", o.samples, " samples; give at least 1");
  if (o.timed < 1) fail_usage("streaming: ", o.timed, " timed tokens; give at least 1");
  const Dim least = widest(o) + std::max<Dim>(o.recompute, 0) + o.window + o.samples + 4 * o.timed + 1;
  if (o.tokens < least)
    fail_usage("streaming: ", o.tokens, " tokens are too few for a window of ", o.window, " and ", o.samples,
               " samples; at least ", least, " are needed");
}

}  // namespace

std::vector<Dim> streaming_samples(const StreamingOptions& o) {
  // The last token is only predicted.
  const Dim first = std::max(widest(o), o.recompute) + o.window, last = o.tokens - 2;
  std::vector<Dim> at;
  for (Dim i = 0; i < o.samples; ++i) at.push_back(first + (last - first) * (i + 1) / o.samples);
  return at;
}

StreamingRow stream_text(Device& device, const Model& model, std::span<const std::int32_t> ids, Dim keep,
                         const StreamingOptions& o, const StreamingProgress& progress) {
  check(o);
  if (static_cast<Dim>(ids.size()) < o.tokens)
    fail("streaming: the text has ", ids.size(), " tokens, ", o.tokens, " are asked for");
  const std::vector<Dim> samples = streaming_samples(o);
  const Dim full = widest(o) + o.window, end = o.tokens - 1;
  const Dim timed_from[3] = {full, full + (end - full) / 2 - o.timed / 2, end - o.timed};

  StreamingRow row{.keep = keep};
  KvPool cache(model, o.cache);
  Run run(device);
  std::size_t next = 0;  // sample
  const auto started = Clock::now();
  std::vector<double> times;
  for (Dim at = 0; at < end;) {
    // One token where time is taken; else up to the next sample, the next such place, or a whole chunk.
    Dim count = std::min(kChunk, end - at);
    if (next < samples.size()) count = std::min(count, samples[next] + 1 - at);
    int timing = -1;
    for (int i = 0; i < 3; ++i) {
      if (at >= timed_from[i] && at < timed_from[i] + o.timed) timing = i;
      else if (at < timed_from[i]) count = std::min(count, timed_from[i] - at);
    }
    if (timing >= 0) count = 1;

    const auto pass = Clock::now();
    Batch batch{.tokens = ids.subspan(static_cast<std::size_t>(at), static_cast<std::size_t>(count)),
                .want = kWantLast};
    batch.sequences.push_back({.first = 0, .count = count, .past = at, .opened = o.tokens});
    run.reset();
    const Tensor logits = forward(run, model, batch, nullptr, &cache);
    at += count;
    if (timing >= 0) {
      times.push_back(seconds_since(pass));
      if (at == timed_from[timing] + o.timed) {
        std::nth_element(times.begin(), times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2),
                         times.end());
        row.token_seconds[timing] = times[times.size() / 2];
        row.pages[timing] = cache.pages();
        row.bytes[timing] = cache.bytes();
        times.clear();
      }
    }
    if (next < samples.size() && at == samples[next] + 1) {
      row.nll += surprise(logits, ids[static_cast<std::size_t>(at)]);
      ++next;
      if (progress) progress(concat("keep ", keep), at, end, std::exp(row.nll / static_cast<double>(next)));
    }
  }
  row.nll /= static_cast<double>(samples.size());
  row.perplexity = std::exp(row.nll);
  row.seconds = seconds_since(started);
  return row;
}

StreamingReport run_streaming(Device& device, const std::string& path, std::span<const std::int32_t> ids,
                              const StreamingOptions& o, const StreamingProgress& progress) {
  check(o);
  StreamingReport report{.tokens = o.tokens, .samples = o.samples, .window = o.window};
  for (Dim keep : o.keep) {
    LoadOptions load{.real = device.real, .device = &device};
    load.change = [&](Recipe& r) { stream_windows(r, keep, o.window); };
    const Checkpoint checkpoint = open_checkpoint(path, load);
    report.rows.push_back(stream_text(device, *checkpoint.model, ids, keep, o, progress));
  }
  if (o.recompute < 0) return report;

  const Checkpoint checkpoint = open_checkpoint(path, {.real = device.real, .device = &device});
  const std::vector<Dim> samples = streaming_samples(o);
  const auto started = Clock::now();
  report.recomputed = o.recompute + o.window;
  Run run(device);
  for (std::size_t i = 0; i < samples.size(); ++i) {
    const auto first = static_cast<std::size_t>(samples[i] + 1 - report.recomputed);
    Batch batch{.tokens = ids.subspan(first, static_cast<std::size_t>(report.recomputed)), .want = kWantLast};
    batch.sequences.push_back({.first = 0, .count = report.recomputed});
    run.reset();
    report.recomputed_nll +=
        surprise(forward(run, *checkpoint.model, batch), ids[static_cast<std::size_t>(samples[i]) + 1]);
    if (progress)
      progress("reading anew", static_cast<Dim>(i) + 1, o.samples,
               std::exp(report.recomputed_nll / static_cast<double>(i + 1)));
  }
  report.recomputed_nll /= static_cast<double>(samples.size());
  report.recomputed_perplexity = std::exp(report.recomputed_nll);
  report.recomputed_seconds = seconds_since(started);
  return report;
}

}  // namespace rapt
