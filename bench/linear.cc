// SPDX-License-Identifier: Apache-2.0
// rapt's linear beside oneDNN and OpenBLAS (where they were found at build time), f32, as a markdown table
// on standard output. Everyone keeps its weights the way it likes best (ours in panels, oneDNN's in the
// layout it asks for, OpenBLAS's row-major) on huge pages, and multiplies the same row-major activations.
// Rounds are interleaved and the best call of all rounds counts.
//   bench/linear [--rounds N] [--threads 1,2] [--shape NxK]… [--rows M]… [--backward | --bf16] [--alone]
#include <sched.h>
#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "rapt/base/rng.h"
#include "rapt/ops/linear.h"
#if defined(RAPT_BENCH_ONEDNN)
#include <dnnl.hpp>
extern "C" {  // libgomp, the runtime of Debian's oneDNN
void omp_set_num_threads(int);
int omp_get_thread_num(void);
void GOMP_parallel(void (*)(void*), void*, unsigned, unsigned);
}
#endif
#if defined(RAPT_BENCH_OPENBLAS)
#include <cblas.h>
#endif
#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace {

using rapt::Dim;
using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point t) { return std::chrono::duration<double>(Clock::now() - t).count(); }

// Floats on huge pages, filled with small random numbers.
struct Floats {
  explicit Floats(Dim n, std::uint64_t seed = 0) {
    const std::size_t page = std::size_t{2} << 20,
                      bytes = (static_cast<std::size_t>(n) * 4 + page - 1) / page * page;
    data.reset(static_cast<float*>(std::aligned_alloc(page, bytes)));
    madvise(data.get(), bytes, MADV_HUGEPAGE);
    for (Dim i = 0; i < n; ++i)
      data.get()[i] =
          static_cast<float>(static_cast<int>(rapt::mix_key(seed, static_cast<std::uint64_t>(i)) >> 48) -
                             32768) *
          1e-5f;
  }
  struct Free {
    void operator()(float* p) const { std::free(p); }
  };
  std::unique_ptr<float, Free> data;
};

// ---------------------------------------------------------------------------------- what the machine can do
#if defined(__x86_64__)
__attribute__((target("avx512f"))) void fma_512(Dim rounds) {
  __m512 a[16], x = _mm512_set1_ps(1.0f), y = _mm512_set1_ps(1e-9f);
  for (auto& v : a) v = x;
  for (Dim i = 0; i < rounds; ++i) {
#pragma GCC unroll 16
    for (auto& v : a) v = _mm512_fmadd_ps(v, x, y);
    asm volatile("" : "+v"(x), "+v"(y));
  }
  for (auto& v : a) asm volatile("" ::"v"(v));
}
__attribute__((target("avx2,fma"))) void fma_256(Dim rounds) {
  __m256 a[12], x = _mm256_set1_ps(1.0f), y = _mm256_set1_ps(1e-9f);
  for (auto& v : a) v = x;
  for (Dim i = 0; i < rounds; ++i) {
#pragma GCC unroll 12
    for (auto& v : a) v = _mm256_fmadd_ps(v, x, y);
    asm volatile("" : "+x"(x), "+x"(y));
  }
  for (auto& v : a) asm volatile("" ::"x"(v));
}
__attribute__((target("avx512f"))) void read_512(const float* p, Dim n) {
  __m512 s[8] = {};
  for (Dim i = 0; i + 128 <= n; i += 128)
#pragma GCC unroll 8
    for (int j = 0; j < 8; ++j) s[j] = _mm512_add_ps(s[j], _mm512_load_ps(p + i + 16 * j));
  for (auto& v : s) asm volatile("" ::"v"(v));
}
__attribute__((target("avx2"))) void read_256(const float* p, Dim n) {
  __m256 s[8] = {};
  for (Dim i = 0; i + 64 <= n; i += 64)
#pragma GCC unroll 8
    for (int j = 0; j < 8; ++j) s[j] = _mm256_add_ps(s[j], _mm256_load_ps(p + i + 8 * j));
  for (auto& v : s) asm volatile("" ::"x"(v));
}

bool wide() { return __builtin_cpu_supports("avx512f"); }

double fma_peak(rapt::Device& device) {  // GFLOP/s
  // About 0.1 ms: short enough to fall between the interruptions of a busy machine.
  constexpr Dim rounds = 20000;
  double best = 1e9;
  for (int i = 0; i < 500; ++i) {
    const auto start = Clock::now();
    rapt::run_tasks(
        device.queue(), device.threads(),
        [](void*, Dim, int) noexcept { wide() ? fma_512(rounds) : fma_256(rounds); }, nullptr);
    best = std::min(best, seconds_since(start));
  }
  return static_cast<double>(rounds) * (wide() ? 16 * 16 : 12 * 8) * 2 * device.threads() / best * 1e-9;
}

double read_bandwidth(rapt::Device& device, Dim bytes) {  // GB/s
  static const Floats memory(Dim{256} << 18);
  struct Context {
    Dim floats, pieces;
    const float* p;
  } c{bytes / 4, device.threads(), memory.data.get()};
  double best = 1e9;
  for (int i = 0; i < 12; ++i) {
    const auto start = Clock::now();
    rapt::run_tasks(
        device.queue(), c.pieces,
        [](void* p, Dim task, int) noexcept {
          const Context& k = *static_cast<Context*>(p);
          const Dim each = k.floats / k.pieces;
          wide() ? read_512(k.p + task * each, each) : read_256(k.p + task * each, each);
        },
        &c);
    best = std::min(best, seconds_since(start));
  }
  return static_cast<double>(bytes) / best * 1e-9;
}
#else
double fma_peak(rapt::Device&) { return 0; }
double read_bandwidth(rapt::Device&, Dim) { return 0; }
#endif

// ----------------------------------------------------------------------------------------------- contenders
struct Problem {
  Dim n, k, m;
  int threads;
};
struct Contender {
  std::string name;
  std::function<void()> call;
};

rapt::Weight packed(Dim n, Dim k, rapt::DType format = rapt::DType::f32) {
  rapt::Weight w = rapt::make_weight("w", n, k, format, rapt::Packing::panels);
  w.index = 0;
  for (Dim i = 0; i < w.stored(); ++i) {
    const float v =
        static_cast<float>(static_cast<int>(rapt::mix_key(1, static_cast<std::uint64_t>(i)) >> 48) - 32768) *
        1e-6f;
    if (format == rapt::DType::bf16) reinterpret_cast<std::uint16_t*>(w.data.get())[i] = rapt::to_bf16(v);
    else reinterpret_cast<float*>(w.data.get())[i] = v;
  }
  return w;
}

Contender rapt_linear(rapt::Device& device, const Problem& p, rapt::DType format) {
  struct State {
    rapt::Weight w;
    rapt::Run run;
    std::unique_ptr<Floats> x;
    rapt::Tensor view;
  };
  auto s = std::shared_ptr<State>(
      new State{packed(p.n, p.k, format), rapt::Run(device), std::make_unique<Floats>(p.m * p.k, 2), {}});
  const Dim sizes[] = {p.m, p.k};
  s->view =
      rapt::tensor_over(reinterpret_cast<std::byte*>(s->x->data.get()), nullptr, rapt::DType::f32, sizes);
  return {format == rapt::DType::bf16 ? "rapt bf16" : "rapt", [s] {
            s->run.reset();
            rapt::linear(s->run, s->view, s->w);
          }};
}

#if defined(RAPT_BENCH_ONEDNN)
void pin_openmp(int threads) {
  omp_set_num_threads(threads);
  GOMP_parallel(
      [](void*) {
        cpu_set_t one;
        CPU_ZERO(&one);
        CPU_SET(omp_get_thread_num(), &one);
        sched_setaffinity(0, sizeof one, &one);
      },
      nullptr, static_cast<unsigned>(threads), 0);
}

Contender onednn(const Problem& p, bool inner_product) {
  using namespace dnnl;
  struct State {
    engine e{engine::kind::cpu, 0};
    stream s{e};
    primitive op;
    std::vector<Floats> memory;
    std::unordered_map<int, dnnl::memory> args;
  };
  auto s = std::make_shared<State>();
  using Tag = memory::format_tag;
  constexpr auto f32 = memory::data_type::f32;
  omp_set_num_threads(p.threads);
  const memory::desc x({p.m, p.k}, f32, Tag::ab), y({p.m, p.n}, f32, Tag::ab);
  memory::desc w, plain;
  if (inner_product) {
    plain = memory::desc({p.n, p.k}, f32, Tag::ab);
    const inner_product_forward::primitive_desc pd(
        {prop_kind::forward_inference, x, memory::desc({p.n, p.k}, f32, Tag::any), y}, s->e);
    s->op = inner_product_forward(pd);
    w = pd.weights_desc();
  } else {
    plain = memory::desc({p.k, p.n}, f32, Tag::ba);
    const matmul::primitive_desc pd({x, memory::desc({p.k, p.n}, f32, Tag::any), y}, s->e);
    s->op = matmul(pd);
    w = pd.weights_desc();
  }
  for (const auto& [arg, desc] :
       {std::pair{DNNL_ARG_SRC, x}, {DNNL_ARG_WEIGHTS, w}, {DNNL_ARG_DST, y}, {-1, plain}}) {
    s->memory.emplace_back(static_cast<Dim>(desc.get_size() / 4 + 1), 3);
    s->args[arg] = memory(desc, s->e, s->memory.back().data.get());
  }
  reorder(s->args[-1], s->args[DNNL_ARG_WEIGHTS]).execute(s->s, s->args[-1], s->args[DNNL_ARG_WEIGHTS]);
  s->s.wait();
  s->args.erase(-1);
  return {inner_product ? "oneDNN inner product" : "oneDNN matmul", [s, threads = p.threads] {
            omp_set_num_threads(threads);
            s->op.execute(s->s, s->args);
            s->s.wait();
          }};
}
#endif

#if defined(RAPT_BENCH_OPENBLAS)
Contender openblas(const Problem& p) {
  auto x = std::make_shared<Floats>(p.m * p.k, 4), w = std::make_shared<Floats>(p.n * p.k, 5),
       y = std::make_shared<Floats>(p.m * p.n);
  return {"OpenBLAS", [x, w, y, p] {
            openblas_set_num_threads(p.threads);
            cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, static_cast<int>(p.m), static_cast<int>(p.n),
                        static_cast<int>(p.k), 1, x->data.get(), static_cast<int>(p.k), w->data.get(),
                        static_cast<int>(p.k), 0, y->data.get(), static_cast<int>(p.n));
          }};
}
#endif

// Best time of one call, over rounds that visit every contender in turn. A pause lets the spinning threads
// of the last one sleep.
std::vector<double> race(const std::vector<Contender>& all, int rounds) {
  std::vector<double> best(all.size(), 1e9);
  for (int round = 0; round < rounds; ++round)
    for (std::size_t i = 0; i < all.size(); ++i) {
      if (all.size() > 1) std::this_thread::sleep_for(std::chrono::milliseconds(20));
      all[i].call();
      const auto start = Clock::now();
      for (int calls = 0; calls < 3 || seconds_since(start) < 0.02; ++calls) {
        const auto t = Clock::now();
        all[i].call();
        best[i] = std::min(best[i], seconds_since(t));
      }
    }
  return best;
}

struct Options {
  int rounds = 8;
  std::vector<int> threads;
  std::vector<std::pair<Dim, Dim>> shapes;
  std::vector<Dim> rows;
  bool backward = false, bf16 = false, alone = false;
};

void print_forward(const Options& o, rapt::Device& device, double peak) {
  std::printf("\n| N x K | M |");
  bool header = false;
  struct Mean {
    double logs = 0, worst = 1e9;
    int count = 0;
    std::string where;
  };
  std::map<Dim, Mean> means;
  for (const auto& [n, k] : o.shapes)
    for (Dim m : o.rows) {
      const Problem p{n, k, m, device.threads()};
      std::vector<Contender> all{rapt_linear(device, p, o.bf16 ? rapt::DType::bf16 : rapt::DType::f32)};
      if (!o.alone) {
#if defined(RAPT_BENCH_ONEDNN)
        all.push_back(onednn(p, true));
        all.push_back(onednn(p, false));
#endif
#if defined(RAPT_BENCH_OPENBLAS)
        all.push_back(openblas(p));
#endif
      }
      if (!header) {
        for (const Contender& c : all) std::printf(" %s |", c.name.c_str());
        std::printf(" of the best library | of the peak | weights, GB/s |\n|---|---|");
        for (std::size_t i = 0; i < all.size() + 3; ++i) std::printf("---|");
        std::printf("\n");
        header = true;
      }
      const std::vector<double> t = race(all, o.rounds);
      const double flops = 2.0 * static_cast<double>(n * k * m);
      std::printf("| %ldx%ld | %ld |", n, k, m);
      for (double s : t) std::printf(" %.0f |", flops / s * 1e-9);
      if (all.size() > 1) {
        const double ratio = *std::min_element(t.begin() + 1, t.end()) / t[0];
        std::printf(" %.2f |", ratio);
        Mean& mean = means[m];
        mean.logs += std::log(ratio);
        ++mean.count;
        if (ratio < mean.worst) {
          mean.worst = ratio;
          mean.where = rapt::concat(n, "x", k);
        }
      } else {
        std::printf(" |");
      }
      std::printf(" %.0f %% | %.0f |\n", flops / t[0] * 1e-7 / peak,
                  static_cast<double>(n * k) * (o.bf16 ? 2 : 4) / t[0] * 1e-9);
      std::fflush(stdout);
    }
  if (means.empty()) return;
  std::printf("\n| M | geometric mean of the ratios to the best library | worst shape |\n|---|---|---|\n");
  for (const auto& [m, mean] : means)
    std::printf("| %ld | %.3f | %.2f (%s) |\n", m, std::exp(mean.logs / mean.count), mean.worst,
                mean.where.c_str());
}

void print_backward(const Options& o, rapt::Device& device, double peak) {
  std::printf("\n| N x K | M | dx, GFLOP/s | dW | both | of the peak |\n|---|---|---|---|---|---|\n");
  for (const auto& [n, k] : o.shapes)
    for (Dim m : o.rows) {
      const rapt::Weight w = packed(n, k);
      const Floats x(m * k, 1), dy(m * n, 2), dx(m * k), dw(w.stored());
      auto call = [&](bool want_x, bool want_w) {
        rapt::LinearBackwardArgs a{.rows = m,
                                   .k = k,
                                   .x = x.data.get(),
                                   .dx = want_x ? dx.data.get() : nullptr,
                                   .count = want_w ? 1 : 0,
                                   .parts = {}};
        a.parts[0] = {.n = n,
                      .w = w.data.get(),
                      .format = w.format,
                      .scale = 1,
                      .dy = dy.data.get(),
                      .dw = want_w ? dw.data.get() : nullptr,
                      .dbias = nullptr,
                      .dresidual = nullptr};
        if (want_x && !want_w) a.count = 1;
        device.kernels.linear_backward(device.queue(), a);
      };
      const std::vector<double> t = race({{"dx", [&] { call(true, false); }},
                                          {"dW", [&] { call(false, true); }},
                                          {"both", [&] { call(true, true); }}},
                                         o.rounds);
      const double flops = 2.0 * static_cast<double>(n * k * m);
      std::printf("| %ldx%ld | %ld | %.0f | %.0f | %.0f | %.0f %% |\n", n, k, m, flops / t[0] * 1e-9,
                  flops / t[1] * 1e-9, 2 * flops / t[2] * 1e-9, 2 * flops / t[2] * 1e-7 / peak);
      std::fflush(stdout);
    }
}

Options parse(int argc, char** argv) {
  Options o;
  for (int i = 1; i < argc; ++i) {
    const std::string flag = argv[i];
    auto value = [&]() -> const char* {
      if (i + 1 >= argc) rapt::fail_usage("bench/linear: ", flag, " needs a value");
      return argv[++i];
    };
    if (flag == "--rounds") o.rounds = std::atoi(value());
    else if (flag == "--rows") o.rows.push_back(std::atol(value()));
    else if (flag == "--backward") o.backward = true;
    else if (flag == "--bf16") o.bf16 = true;
    else if (flag == "--alone") o.alone = true;
    else if (flag == "--threads") {
      for (const char* v = value(); v && *v; v = std::strchr(v, ',') ? std::strchr(v, ',') + 1 : nullptr)
        o.threads.push_back(std::atoi(v));
    } else if (flag == "--shape") {
      long n = 0, k = 0;
      if (std::sscanf(value(), "%ldx%ld", &n, &k) != 2)
        rapt::fail_usage("bench/linear: --shape takes NxK, such as 576x1536");
      o.shapes.emplace_back(n, k);
    } else {
      rapt::fail_usage(
          "bench/linear: unknown flag ", flag,
          "; known: --rounds N, --threads 1,2, --shape NxK, --rows M, --backward, --bf16, --alone");
    }
  }
  if (o.threads.empty()) o.threads = {1, 2};
  if (o.shapes.empty())
    o.shapes = {{576, 576}, {768, 768}, {1024, 1024}, {1536, 576}, {3072, 768}, {2048, 2048}, {4096, 4096}};
  if (o.rows.empty()) o.rows = o.backward ? std::vector<Dim>{64, 256} : std::vector<Dim>{1, 8, 64, 512};
  return o;
}

}  // namespace

int main(int argc, char** argv) try {
  const Options o = parse(argc, argv);
#if !defined(RAPT_BENCH_ONEDNN)
  std::printf("oneDNN was not found at build time (Debian: libdnnl-dev): it is left out.\n");
#endif
#if !defined(RAPT_BENCH_OPENBLAS)
  std::printf("OpenBLAS was not found at build time (Debian: libopenblas-dev): it is left out.\n");
#endif
  // The devices that pin come first: a thread inherits the binding of the one that made it.
  std::map<int, std::unique_ptr<rapt::Device>> devices;
  for (auto it = o.threads.rbegin(); it != o.threads.rend(); ++it)
    devices[*it] =
        std::make_unique<rapt::Device>(rapt::DeviceOptions{.threads = *it, .isa = "", .pin = true});
#if defined(RAPT_BENCH_ONEDNN)
  pin_openmp(*std::max_element(o.threads.begin(), o.threads.end()));
#endif
  for (int threads : o.threads) {
    rapt::Device& device = *devices[threads];
    const double peak = fma_peak(device);
    std::printf(
        "\n## %d thread%s, %s, f32, GFLOP/s\n\n"
        "Measured: %.0f GFLOP/s of fused multiply-adds in registers; reading %.0f GB/s from 8 MiB, "
        "%.0f GB/s from 256 MiB.\n",
        threads, threads > 1 ? "s" : "", device.kernels.isa, peak, read_bandwidth(device, Dim{8} << 20),
        read_bandwidth(device, Dim{256} << 20));
    if (o.backward) print_backward(o, device, peak);
    else print_forward(o, device, peak);
  }
  return 0;
} catch (const rapt::Error& e) {
  std::fprintf(stderr, "%s\n", e.what());
  return e.is_usage() ? 2 : 1;
}
