// SPDX-License-Identifier: Apache-2.0
// Attention beside PyTorch's scaled_dot_product_attention: both processes stay warm and compute in turn,
// never at the same time. Reported are bests over interleaved rounds; beside them, the share of the FMA peak
// measured between the runs.
//   attention [--quick] [--rounds N] [--threads 1,2] [PEER COMMAND …]
#include <immintrin.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "rapt/base/rng.h"
#include "rapt/ops/attention.h"

namespace {

using namespace rapt;

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

struct Shape {
  Dim d, t, heads;
  bool causal;
  double flop() const { return 4.0 * static_cast<double>(heads * t * t * d) * (causal ? 0.5 : 1); }
};
constexpr double kBackward = 3.5;  // operations of forward + backward, in forwards: 2 and 5 products

// The peer answers "threads d t heads causal backward seconds" with the best time of one call.
class Peer {
 public:
  explicit Peer(char** command) {
    int to[2], from[2];
    if (pipe(to) != 0 || pipe(from) != 0) fail("bench/attention: no pipe to the peer");
    pid_ = fork();
    if (pid_ == 0) {
      dup2(to[0], 0);
      dup2(from[1], 1);
      close(to[1]);
      close(from[0]);
      execvp(command[0], command);
      std::fprintf(stderr, "bench/attention: cannot start %s\n", command[0]);
      _exit(127);
    }
    close(to[0]);
    close(from[1]);
    in_ = fdopen(from[0], "r");
    out_ = fdopen(to[1], "w");
    char line[200];
    if (!std::fgets(line, sizeof line, in_)) fail("bench/attention: the peer did not start");
    name = std::string(line, std::strcspn(line, "\n"));
  }
  ~Peer() {
    std::fclose(out_);
    std::fclose(in_);
    waitpid(pid_, nullptr, 0);
  }
  double ask(int threads, const Shape& s, bool backward, double seconds) {
    std::fprintf(out_, "%d %lld %lld %lld %d %d %g\n", threads, static_cast<long long>(s.d),
                 static_cast<long long>(s.t), static_cast<long long>(s.heads), s.causal, backward, seconds);
    std::fflush(out_);
    double best = 0;
    if (std::fscanf(in_, "%lf", &best) != 1) fail("bench/attention: the peer died");
    return best;
  }
  std::string name;

 private:
  pid_t pid_;
  std::FILE *in_, *out_;
};

// FMAs on registers over the device's threads, shared in small pieces like the real work: what this machine
// gives at this moment.
#if defined(__x86_64__)
__attribute__((target("avx512f"))) void fma_512() {
  __m512 c[12], a = _mm512_set1_ps(1), s = _mm512_set1_ps(1e-9f);
  for (auto& x : c) x = a;
  for (int i = 0; i < 2000; ++i) {
    asm volatile("" : "+v"(a), "+v"(s));
    for (auto& x : c) x = _mm512_fmadd_ps(a, s, x);
    asm volatile(""
                 : "+v"(c[0]), "+v"(c[1]), "+v"(c[2]), "+v"(c[3]), "+v"(c[4]), "+v"(c[5]), "+v"(c[6]),
                   "+v"(c[7]), "+v"(c[8]), "+v"(c[9]), "+v"(c[10]), "+v"(c[11]));
  }
}
__attribute__((target("avx2,fma"))) void fma_256() {
  __m256 c[12], a = _mm256_set1_ps(1), s = _mm256_set1_ps(1e-9f);
  for (auto& x : c) x = a;
  for (int i = 0; i < 2000; ++i) {
    asm volatile("" : "+x"(a), "+x"(s));
    for (auto& x : c) x = _mm256_fmadd_ps(a, s, x);
    asm volatile(""
                 : "+x"(c[0]), "+x"(c[1]), "+x"(c[2]), "+x"(c[3]), "+x"(c[4]), "+x"(c[5]), "+x"(c[6]),
                   "+x"(c[7]), "+x"(c[8]), "+x"(c[9]), "+x"(c[10]), "+x"(c[11]));
  }
}
double peak(Device& device, double seconds) {  // FLOP/s, best of pieces
  const bool wide = std::string(device.kernels.isa) == "avx512";
  const Dim count = 256;
  double best = 0;
  for (const double end = now() + seconds; now() < end;) {
    const double t = now();
    if (wide) run_tasks(device.queue(), count, [](void*, Dim, int) noexcept { fma_512(); }, nullptr);
    else run_tasks(device.queue(), count, [](void*, Dim, int) noexcept { fma_256(); }, nullptr);
    best = std::max(best, static_cast<double>(count) * 2000 * 12 * (wide ? 32 : 16) / (now() - t));
  }
  return best;
}
#else
double peak(Device&, double) { return 0; }
#endif

// One shape through the real op: a run whose arena is reset before each call, so nothing is allocated after
// the first.
class Ours {
 public:
  Ours(Device& device, const Shape& s)
      : gradients_(device.real), tape_(gradients_), inputs_(device), run_(device) {
    spec_.heads = spec_.kv_heads = s.heads;
    spec_.head_dim = spec_.v_dim = s.d;
    spec_.scale = 1 / std::sqrt(static_cast<double>(s.d));
    const Sequence sequence{.first = 0, .count = s.t};
    plan_ = plan_rows(Mask{.right = s.causal ? 0 : Mask::kAll}, {&sequence, 1});
    std::uint64_t seed = 0;
    for (Tensor* t : {&q_, &k_, &v_, &g_}) {
      *t = inputs_.make({s.t, s.heads, s.d});
      ++seed;
      for (std::size_t i = 0; i < t->as<float>().size(); ++i)
        t->as<float>()[i] = static_cast<float>(random_uniform(seed, i) * 3.4 - 1.7);
    }
    taps_.see(site::attn_stats, [](const Tapped&) {});
  }
  double forward(bool stats, double seconds) {
    run_.tape = nullptr;
    run_.taps = stats ? &taps_ : nullptr;
    return best([&] { attention(run_, spec_, {.q = q_, .k = k_, .v = v_}, plan_); }, seconds);
  }
  double both(double seconds) {
    run_.tape = &tape_;
    run_.taps = nullptr;
    return best(
        [&] {
          for (const Tensor* t : {&q_, &k_, &v_}) t->buffer->grad = nullptr;
          const Tensor out = attention(run_, spec_, {.q = q_, .k = k_, .v = v_}, plan_);
          out.buffer->grad = g_.data;
          tape_.play_back(run_);
        },
        seconds);
  }

 private:
  template <class F>
  double best(F f, double seconds) {
    double least = 1e30;
    run_.reset();
    f();  // grows the arena, wakes the threads
    const double end = now() + seconds;
    do {
      run_.reset();
      const double t = now();
      f();
      least = std::min(least, now() - t);
    } while (now() < end);
    return least;
  }
  Gradients gradients_;
  Tape tape_;
  rapt::Run inputs_, run_;
  Taps taps_;
  AttentionSpec spec_;
  RowPlan plan_;
  Tensor q_, k_, v_, g_;
};

struct Best {
  double forward = 1e30, both = 1e30, plain = 1e30, stats = 1e30, peer_forward = 1e30, peer_both = 1e30,
         peak = 0;
};
void keep(double& best, double x) { best = std::min(best, x); }

struct Mean {
  double log_sum = 0, least = 1e30;
  int n = 0;
  void add(double x) {
    log_sum += std::log(x);
    least = std::min(least, x);
    ++n;
  }
  double value() const { return n ? std::exp(log_sum / n) : 0; }
};

int bench(int argc, char** argv) {
  bool quick = false;
  int rounds = 6;
  std::vector<int> thread_counts = {2, 1};
  double slice = 0.06;
  Dim only_t = 0, only_d = 0;
  int i = 1;
  for (; i < argc && argv[i][0] == '-'; ++i) {
    const std::string a = argv[i];
    auto value = [&] { return i + 1 < argc ? std::string(argv[++i]) : std::string(); };
    if (a == "--quick") quick = true;
    else if (a == "--rounds") rounds = std::max(1, std::atoi(value().c_str()));
    else if (a == "--seconds") slice = std::atof(value().c_str());
    else if (a == "--t") only_t = std::atoi(value().c_str());
    else if (a == "--d") only_d = std::atoi(value().c_str());
    else if (a == "--threads") {
      thread_counts.clear();
      for (const char c : value())
        if (c >= '1' && c <= '9') thread_counts.push_back(c - '0');
    } else
      fail_usage("bench/attention: unknown option ", a,
                 "; known are --quick, --rounds N, --seconds S, --threads 2,1, --t T, --d D");
  }
  std::unique_ptr<Peer> peer = i < argc ? std::make_unique<Peer>(argv + i) : nullptr;
  std::vector<Shape> shapes;
  for (Dim d : {64, 128})
    for (Dim t : {128, 512, 2048, 8192})
      for (bool causal : {false, true})
        if ((!quick || (t != 8192 && (d == 64 || t == 2048))) && (!only_t || t == only_t) &&
            (!only_d || d == only_d))
          shapes.push_back({d, t, t < 8192 ? 8 : 2, causal});
  std::map<int, std::unique_ptr<Device>> devices;
  // The pinned pair first: threads inherit the binding of the one that makes them.
  std::sort(thread_counts.rbegin(), thread_counts.rend());
  for (int threads : thread_counts)
    devices[threads] = std::make_unique<Device>(DeviceOptions{.threads = threads, .pin = true});
  std::printf(
      "Attention in f32, %s, beside %s. Bests of %d rounds in turn; causal counts half the "
      "operations, forward + backward 3.5 times.\n",
      devices.begin()->second->kernels.isa, peer ? peer->name.c_str() : "nothing (no peer)", rounds);
  for (int threads : thread_counts) {
    Device& device = *devices[threads];
    std::printf(
        "\n%d thread%s\n\n"
        "| D | T | H | mask | forward GFLOP/s | peer | ratio | of peak | forward + backward | peer | "
        "ratio | of peak | statistics |\n|---|---|---|---|---|---|---|---|---|---|---|---|---|\n",
        threads, threads > 1 ? "s" : "");
    Mean forward, both, share_long;
    double worst_long = 0, worst_short = 0;
    for (const Shape& s : shapes) {
      Best b;
      Ours ours(device, s);
      for (int round = 0; round < rounds; ++round) {
        b.peak = std::max(b.peak, peak(device, slice / 4));
        // With and without statistics in turn: their difference is small.
        for (int turn = 0; turn < 3; ++turn) {
          keep(b.plain, ours.forward(false, slice / 3));
          keep(b.stats, ours.forward(true, slice / 3));
        }
        b.peak = std::max(b.peak, peak(device, slice / 4));
        if (peer) keep(b.peer_forward, peer->ask(threads, s, false, slice));
        keep(b.both, ours.both(slice));
        if (peer) keep(b.peer_both, peer->ask(threads, s, true, slice));
      }
      b.forward = b.plain;
      const double f = s.flop() / b.forward, g = kBackward * s.flop() / b.both,
                   pf = s.flop() / b.peer_forward, pg = kBackward * s.flop() / b.peer_both;
      const double cost = b.stats / b.plain - 1;
      std::printf(
          "| %lld | %lld | %lld | %s | %.0f | %.0f | %.2f | %.0f %% | %.0f | %.0f | %.2f "
          "| %.0f %% | %+.1f %% |\n",
          static_cast<long long>(s.d), static_cast<long long>(s.t), static_cast<long long>(s.heads),
          s.causal ? "causal" : "full", f / 1e9, peer ? pf / 1e9 : 0, peer ? f / pf : 0, 100 * f / b.peak,
          g / 1e9, peer ? pg / 1e9 : 0, peer ? g / pg : 0, 100 * g / b.peak, 100 * cost);
      std::fflush(stdout);
      forward.add(peer ? f / pf : 1);
      both.add(peer ? g / pg : 1);
      if (s.t >= 2048) share_long.add(f / b.peak), worst_long = std::max(worst_long, cost);
      else worst_short = std::max(worst_short, cost);
    }
    if (peer)
      std::printf("\nGeometric mean: forward %.2f x, forward + backward %.2f x; least: %.2f x and %.2f x.\n",
                  forward.value(), both.value(), forward.least, both.least);
    std::printf(
        "%sAt T >= 2048: at least %.0f %% of the FMA peak forward (mean %.0f %%), statistics at most "
        "%+.1f %%; below: %+.1f %%.\n",
        peer ? "" : "\n", 100 * share_long.least, 100 * share_long.value(), 100 * worst_long,
        100 * worst_short);
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return bench(argc, argv);
  } catch (const rapt::Error& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return e.is_usage() ? 2 : 1;
  }
}
