// SPDX-License-Identifier: Apache-2.0
// Does the time of a refusal tell how much of a key was right? Access::key_of off-line, two kinds of keys in
// random order, Welch's t between their times (as dudect does: Reparaz, Balasch, Verbauwhede 2017). A plain
// comparison that stops at the first difference goes through the same test, to show that the test would see
// it. Part of bench/serve-times.
//   bench_serve_times [--tries 1000000] [--json]
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include "rapt/apps/server/access.h"
#include "rapt/base/rng.h"
#if defined(__x86_64__)
#include <x86intrin.h>
#endif

namespace {

std::uint64_t ticks() {
#if defined(__x86_64__)
  unsigned core = 0;
  return __rdtscp(&core);
#else
  return static_cast<std::uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
#endif
}

struct Result {
  double t = 0, difference = 0;  // of means, in ticks
  double mean = 0;
};

// Times of both kinds, in random order; the slowest tenth (interrupts) is left out of both by one bound.
// `prepare` puts what a kind is about into one place, the same for both, before the clock runs.
Result compare(long tries, const std::function<void(int kind)>& prepare, const std::function<void()>& call) {
  std::vector<std::uint64_t> times(static_cast<std::size_t>(tries));
  std::vector<char> kinds(times.size());
  for (std::size_t i = 0; i < times.size(); ++i)
    kinds[i] = static_cast<char>(rapt::mix_key(41, static_cast<std::uint64_t>(i)) >> 63);
  for (std::size_t i = 0; i < times.size(); ++i) {
    prepare(kinds[i]);
    const std::uint64_t start = ticks();
    call();
    times[i] = ticks() - start;
  }
  std::vector<std::uint64_t> sorted = times;
  std::nth_element(sorted.begin(), sorted.begin() + static_cast<long>(sorted.size() * 9 / 10), sorted.end());
  const std::uint64_t bound = sorted[sorted.size() * 9 / 10];
  double n[2] = {}, mean[2] = {}, squares[2] = {};
  for (std::size_t i = 0; i < times.size(); ++i) {
    if (times[i] > bound) continue;
    const auto k = static_cast<std::size_t>(kinds[i]);
    const double x = static_cast<double>(times[i]), d = x - mean[k];
    mean[k] += d / ++n[k];
    squares[k] += d * (x - mean[k]);
  }
  const double error = std::sqrt(squares[0] / (n[0] - 1) / n[0] + squares[1] / (n[1] - 1) / n[1]);
  return {.t = (mean[1] - mean[0]) / error, .difference = mean[1] - mean[0], .mean = mean[0]};
}

bool equal_until_first_difference(const std::string& a, const std::string& b) {
  if (a.size() != b.size()) return false;
  for (std::size_t i = 0; i < a.size(); ++i)
    if (a[i] != b[i]) return false;
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  long tries = 1000000;
  bool json = false;
  for (int i = 1; i < argc; ++i) {
    const std::string flag = argv[i];
    if (flag == "--json") json = true;
    else if (flag == "--tries" && i + 1 < argc) tries = std::max(1000L, std::atol(argv[++i]));
    else return std::fprintf(stderr, "bench_serve_times [--tries N] [--json]\n"), 2;
  }
  const std::string right = "rapt-Zk3vQ8mW1xN5cT7yB2hJ4gF6dS9aL0pR";
  std::string none = right, nearly = right;
  none[0] = '#', nearly.back() = '#';
  std::vector<std::string> keys;
  for (int i = 0; i < 7; ++i) keys.push_back(right + static_cast<char>('a' + i));
  keys.push_back(right);
  const rapt::server::Access access({.keys = keys, .hosts = {}, .origins = {}});
  const std::string refused[2] = {none, nearly}, accepted[2] = {keys.front(), keys[6]};
  rapt::http::Request request;
  request.headers.push_back({"authorization", ""});
  std::string shown(right.size(), ' ');
  long found = 0;
  const auto ask = [&] { found += access.key_of(request).has_value(); };
  const auto show = [&](const std::string& key) { request.headers[0].value.assign("Bearer ").append(key); };

  struct Case {
    const char* name;
    Result result;
  } cases[] = {
      {"wrong in the first letter, or in the last", compare(
                                                        tries, [&](int k) { show(refused[k]); }, ask)},
      {"the first of eight keys, or the seventh", compare(
                                                      tries, [&](int k) { show(accepted[k]); }, ask)},
      {"control: stops at the first difference",
       compare(
           tries, [&](int k) { shown = refused[k]; },
           [&] { found += equal_until_first_difference(shown, right); })},
  };
  if (json) std::printf("[");
  for (const Case& c : cases) {
    if (json)
      std::printf("%s{\"case\":\"%s\",\"tries\":%ld,\"t\":%.3f,\"difference\":%.3f,\"mean\":%.1f}",
                  &c == cases ? "" : ",", c.name, tries, c.result.t, c.result.difference, c.result.mean);
    else
      std::printf("%s: t = %.2f, %.2f of %.0f ticks, %ld tries\n", c.name, c.result.t, c.result.difference,
                  c.result.mean, tries);
  }
  if (json) std::printf("]\n");
  return found == tries ? 0 : 1;  // every accepted key was, nothing else
}
