// SPDX-License-Identifier: Apache-2.0
// What looking costs: a prompt and decoding with the statistics of every head on and off, in turns; and
// after one pass over a long text the time of a head's whole map and of a window of it, with the memory it
// all took. One line of JSON per question.
//
// Each cost is given twice: of the clock, and of the processor's time, which means something on a busy
// machine too (with --threads 1).
//
//   bench_inspect MODEL [--file TEXT] [--threads N] [--rounds N] [--prompt T]... [--decode N --depth D]
//     [--maps T]
#include <sys/resource.h>
#include <time.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <string>

#include "bench/machine.h"
#include "rapt/apps/cli/verb.h"
#include "rapt/inspect/heads.h"
#include "rapt/io/reader.h"
#include "rapt/load/checkpoint.h"

namespace {

using namespace rapt;
using bench::now;
using Sums = std::map<AttentionPlace, std::vector<HeadSums>>;

double megabytes() {  // the most this process has held
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) / 1024;
}

double processor() {
  timespec t{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}
struct Taken {
  std::vector<double> clock = {}, busy = {};
};

double median(std::vector<double> x) {
  std::sort(x.begin(), x.end());
  return x.empty() ? 0 : x[x.size() / 2];
}

struct Bench {
  Device& device;
  const Model& model;
  std::vector<std::int32_t> ids;  // of a text, as many as anybody asks for
  int rounds = 5;
  Run run{device};
  Taps taps = {};
  Sums sums = {};

  Bench(Device& d, const Model& m, std::vector<std::int32_t> text)
      : device(d), model(m), ids(std::move(text)) {
    taps.see(site::attn_stats,
             [this](const Tapped& t) { add_stats(t, 0, sums[{t.stack, t.layer, t.cross}]); });
  }

  void feed(KvPool& cache, Dim from, Dim count, bool watched) {
    run.reset();
    run.taps = watched ? &taps : nullptr;
    forward(
        run, model,
        {.tokens = std::span(ids).subspan(static_cast<std::size_t>(from), static_cast<std::size_t>(count)),
         .sequences = {{.first = 0, .count = count, .past = from}},
         .want = kWantLast},
        nullptr, &cache);
  }
  void feed_all(KvPool& cache, Dim tokens, bool watched) {
    for (Dim at = 0; at < tokens; at += 512) feed(cache, at, std::min<Dim>(512, tokens - at), watched);
  }
  template <class F>
  static void time(Taken& taken, const F& f) {
    const double clock = now(), busy = processor();
    f();
    taken.clock.push_back(now() - clock);
    taken.busy.push_back(processor() - busy);
  }

  void prompts(Dim tokens) {
    Taken taken[2];
    for (int r = 0; r < 2 * rounds; ++r) {
      const bool watched = (r / 2 + r) % 2;
      KvPool cache(model);
      time(taken[watched], [&] { feed_all(cache, tokens, watched); });
    }
    const double off = median(taken[0].clock), on = median(taken[1].clock);
    std::printf(
        "{\"prompt\": %ld, \"off_s\": %.4f, \"on_s\": %.4f, \"cost_percent\": %.2f, "
        "\"processor_cost_percent\": %.2f, \"peak_mb\": %.0f}\n",
        static_cast<long>(tokens), off, on, 100 * (on / off - 1),
        100 * (median(taken[1].busy) / median(taken[0].busy) - 1), megabytes());
    std::fflush(stdout);
  }

  // Single tokens after `depth`, watched and unwatched by turns.
  void decode(Dim count, Dim depth) {
    KvPool cache(model);
    feed_all(cache, depth, false);
    Taken taken[2];
    for (Dim i = 0; i < count; ++i) {
      const bool watched = (i / 2 + i) % 2;
      time(taken[watched], [&] { feed(cache, depth + i, 1, watched); });
    }
    const double off = median(taken[0].clock), on = median(taken[1].clock);
    std::printf(
        "{\"decode\": %ld, \"depth\": %ld, \"off_per_s\": %.1f, \"on_per_s\": %.1f, "
        "\"speed_kept_percent\": %.2f, "
        "\"processor_kept_percent\": %.2f, \"peak_mb\": %.0f}\n",
        static_cast<long>(count), static_cast<long>(depth), 1 / off, 1 / on, 100 * off / on,
        100 * median(taken[0].busy) / median(taken[1].busy), megabytes());
    std::fflush(stdout);
  }

  void maps(Dim tokens) {
    const double before = megabytes();
    double start = now();
    const AttentionRecord record(device, model, std::span(ids).first(static_cast<std::size_t>(tokens)));
    std::printf("{\"record\": %ld, \"seconds\": %.2f, \"kept_mb\": %.0f, \"peak_above_model_mb\": %.0f}\n",
                static_cast<long>(tokens), now() - start, static_cast<double>(record.bytes()) / (1 << 20),
                megabytes() - before);
    double worst_whole = 0, worst_window = 0;
    for (const AttentionPlace& place : record.places()) {
      for (const bool window : {false, true}) {
        MapWindow w{.pixels = 1024, .most_rows = 1024};
        if (window)
          w.row_begin = tokens - 1024, w.key_begin = std::max<Dim>(0, tokens / 2 - 512),
          w.key_end = w.key_begin + 1024;
        const int head = place.layer % record.heads(place);
        start = now();
        const HeadMap map = head_map(record, place, head, w);
        const double seconds = now() - start;
        (window ? worst_window : worst_whole) = std::max(window ? worst_window : worst_whole, seconds);
      }
    }
    std::printf(
        "{\"maps\": %ld, \"worst_whole_s\": %.3f, \"worst_window_s\": %.3f, \"peak_above_model_mb\": %.0f}\n",
        static_cast<long>(tokens), worst_whole, worst_window, megabytes() - before);
  }
};

}  // namespace

int main(int argc, char** argv) {
  try {
    cli::Args args({argv + 1, argv + argc});
    const auto threads = static_cast<int>(args.number("threads", 1, 1024).value_or(0));
    const int rounds = static_cast<int>(args.number("rounds", 1, 1000).value_or(5));
    const std::vector<std::string> prompts = args.values("prompt");
    const Dim decode = args.number("decode", 1, 100000).value_or(0),
              depth = args.number("depth", 0, 1 << 20).value_or(512);
    const Dim maps = args.number("maps", 1024, 1 << 20).value_or(0);
    const std::optional<std::string> file = args.value("file");
    const std::string path = args.operands(1, 1, "words: a model")[0];
    Device device({.threads = threads});
    const Checkpoint c = open_checkpoint(path, {.real = device.real, .device = &device});
    Dim need = std::max(decode + depth, maps);
    for (const std::string& p : prompts) need = std::max<Dim>(need, std::stol(p));
    std::vector<std::int32_t> ids;
    if (file && c.tokenizer)
      ids = c.tokenizer->frame(c.tokenizer->encode(read_text_file(*file).substr(0, 1 << 18)));
    for (Dim i = static_cast<Dim>(ids.size()); i < need; ++i)
      ids.push_back(static_cast<std::int32_t>((i * 2654435761u >> 7) % 30000));
    Bench bench(device, *c.model, std::move(ids));
    bench.rounds = rounds;
    for (const std::string& p : prompts) bench.prompts(std::stol(p));
    if (decode > 0) bench.decode(decode, depth);
    if (maps > 0) bench.maps(maps);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "error: %s\n", e.what());
    return 1;
  }
}
