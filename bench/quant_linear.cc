// SPDX-License-Identifier: Apache-2.0
// The quantized products of one pass through SmolLM2-135M's layers (30 layers, 576 wide, 1,536 hidden, 9 and
// 3 heads of 64; formats with blocks of 256: 768 wide), every layer with weights of its own so that one row
// reads them from memory, as a markdown table with what the machine can do beside: vpdpbusd in registers and
// reading memory.
//   bench/quant_linear [--rounds N] [--threads 2] [--rows M]… [--format q4_0]… [--layers 30] [--isa avx512]
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "rapt/base/rng.h"
#include "rapt/ops/linear.h"
#include "rapt/tensor/pack.h"
#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace {

using rapt::Dim;
using rapt::DType;
using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point t) { return std::chrono::duration<double>(Clock::now() - t).count(); }

#if defined(__x86_64__)
__attribute__((target("avx512f,avx512vnni"))) void dots_512(Dim rounds) {
  __m512i a[16], x = _mm512_set1_epi8(1), y = _mm512_set1_epi8(3);
  for (auto& v : a) v = x;
  for (Dim i = 0; i < rounds; ++i) {
#pragma GCC unroll 16
    for (auto& v : a) v = _mm512_dpbusd_epi32(v, x, y);
    asm volatile("" : "+v"(x), "+v"(y));
  }
  for (auto& v : a) asm volatile("" ::"v"(v));
}
bool has_vnni() { return __builtin_cpu_supports("avx512vnni"); }
#else
void dots_512(Dim) {}
bool has_vnni() { return false; }
#endif

double dot_peak(rapt::Device& device) {  // GMAC/s
  if (!has_vnni()) return 0;
  constexpr Dim rounds = 20000;
  double best = 1e9;
  for (int i = 0; i < 200; ++i) {
    const auto start = Clock::now();
    rapt::run_tasks(
        device.queue(), device.threads(), [](void*, Dim, int) noexcept { dots_512(rounds); }, nullptr);
    best = std::min(best, seconds_since(start));
  }
  return static_cast<double>(rounds) * 16 * 64 * device.threads() / best * 1e-9;
}

double read_bandwidth(rapt::Device& device) {  // GB/s, 128 MB
  constexpr Dim bytes = Dim{128} << 20;
  const rapt::Weight memory = rapt::make_weight("memory", 1, bytes / 4, DType::f32);
  struct Context {
    const std::uint64_t* p;
    Dim words;
    std::uint64_t sum[64 * 8];
  } c{reinterpret_cast<const std::uint64_t*>(memory.data.get()), bytes / 8 / device.threads(), {}};
  double best = 1e9;
  for (int i = 0; i < 10; ++i) {
    const auto start = Clock::now();
    rapt::run_tasks(
        device.queue(), device.threads(),
        [](void* context, Dim task, int) noexcept {
          Context& k = *static_cast<Context*>(context);
          const std::uint64_t* p = k.p + task * k.words;
          std::uint64_t s[8] = {};
          for (Dim w = 0; w + 8 <= k.words; w += 8)  // one word of each line is enough
            s[w / 8 % 8] += p[w];
          for (std::uint64_t v : s) k.sum[task % 64 * 8] += v;
        },
        &c);
    best = std::min(best, seconds_since(start));
  }
  return static_cast<double>(bytes) / best * 1e-9;
}

rapt::Weight random_weight(DType format, Dim n, Dim k, std::uint64_t seed) {
  rapt::Weight w = rapt::make_weight("w", n, k, format, rapt::Packing::panels);
  if (!rapt::is_block(format)) {
    for (Dim i = 0; i < w.stored(); ++i) {
      const float v =
          static_cast<float>(static_cast<int>(rapt::mix_key(seed, static_cast<std::uint64_t>(i)) >> 48) -
                             32768) *
          1e-6f;
      if (format == DType::f32) reinterpret_cast<float*>(w.data.get())[i] = v;
      else
        reinterpret_cast<std::uint16_t*>(w.data.get())[i] =
            format == DType::bf16 ? rapt::to_bf16(v) : rapt::to_f16(v);
    }
    return w;
  }
  // Speed does not depend on the values, as long as no scale is infinite: every 16-bit word is an f16
  // below 2.
  auto* p = reinterpret_cast<std::uint16_t*>(w.data.get());
  for (std::size_t i = 0; i < w.bytes() / 2; ++i)
    p[i] = static_cast<std::uint16_t>(rapt::mix_key(seed, i) & 0xbfff);
  return w;
}

struct Layer {
  rapt::Weight q, k, v, o, gate, up, down;
};
struct Net {
  Dim width, hidden = 1536, kv;
  std::vector<Layer> layers;
  double weights = 0, bytes = 0;
};
Net net_of(DType format, int layers) {
  Net net{.width = rapt::info_of(format).block == 256 ? 768 : 576, .kv = 192};
  for (int i = 0; i < layers; ++i) {
    const auto make = [&](Dim n, Dim k) {
      rapt::Weight w = random_weight(format, n, k, static_cast<std::uint64_t>(i * 8) + 1);
      net.weights += static_cast<double>(n * k);
      net.bytes += static_cast<double>(w.bytes());
      return w;
    };
    const Dim c = net.width, f = net.hidden;
    net.layers.push_back(
        {make(c, c), make(net.kv, c), make(net.kv, c), make(c, c), make(f, c), make(f, c), make(c, f)});
  }
  return net;
}

// All products of a pass, one after the other, on the same numbers.
void pass(rapt::Run& run, const Net& net, const rapt::Tensor& x, const rapt::Tensor& h) {
  for (const Layer& l : net.layers) {
    const auto mark = run.arena.mark();
    rapt::Tensor qkv[3], glu[2];
    const rapt::Projection three[] = {{&l.q}, {&l.k}, {&l.v}}, two[] = {{&l.gate}, {&l.up}};
    rapt::project(run, x, three, qkv);
    rapt::linear_add(run, x, qkv[0], l.o);
    rapt::project(run, x, two, glu);
    rapt::linear_add(run, x, h, l.down);
    run.arena.release(mark);
  }
}

std::vector<double> small_numbers(Dim n) {
  std::vector<double> v(static_cast<std::size_t>(n));
  for (std::size_t i = 0; i < v.size(); ++i)
    v[i] = static_cast<double>(rapt::mix_key(9, i) >> 40) * 0x1p-24 - 0.5;
  return v;
}

struct Options {
  int rounds = 5, threads = 2, layers = 30;
  std::string isa;
  std::vector<Dim> rows;
  std::vector<DType> formats;
};
Options parse(int argc, char** argv) {
  Options o;
  for (int i = 1; i < argc; ++i) {
    const std::string flag = argv[i];
    if (i + 1 >= argc) rapt::fail_usage("bench/quant_linear: ", flag, " needs a value");
    const char* value = argv[++i];
    if (flag == "--rounds") o.rounds = std::atoi(value);
    else if (flag == "--threads") o.threads = std::atoi(value);
    else if (flag == "--layers") o.layers = std::atoi(value);
    else if (flag == "--isa") o.isa = value;
    else if (flag == "--rows") o.rows.push_back(std::atol(value));
    else if (flag == "--format") {
      const auto t = rapt::dtype_named(value);
      if (!t || (!rapt::is_block(*t) && !rapt::is_float(*t)))
        rapt::fail_usage("bench/quant_linear: no format of weights is called ", value);
      o.formats.push_back(*t);
    } else {
      rapt::fail_usage("bench/quant_linear: unknown flag ", flag,
                       "; known: --rounds --threads --layers --isa --rows --format");
    }
  }
  if (o.rows.empty()) o.rows = {1, 8, 64, 512};
  if (o.formats.empty())
    o.formats = {DType::q4_0, DType::q4_1, DType::q8_0, DType::q5_0, DType::q5_1,
                 DType::q4_k, DType::q5_k, DType::q6_k, DType::q3_k, DType::q2_k};
  return o;
}

}  // namespace

int main(int argc, char** argv) try {
  const Options o = parse(argc, argv);
  rapt::Device device({.threads = o.threads, .isa = o.isa, .pin = true});
  const double peak = dot_peak(device), bandwidth = read_bandwidth(device);
  std::printf("%s, %d threads; vpdpbusd %.0f GMAC/s, memory %.1f GB/s\n\n| format | M |", device.kernels.isa,
              device.threads(), peak, bandwidth);
  std::printf(
      " GMAC/s | of vpdpbusd | weights, GB/s | of memory | ms a pass |\n|---|---|---|---|---|---|---|\n");
  for (DType format : o.formats) {
    const Net net = net_of(format, o.layers);
    for (Dim m : o.rows) {
      rapt::Run run(device);
      const rapt::Tensor x = run.upload({m, net.width}, small_numbers(m * net.width)),
                         h = run.upload({m, net.hidden}, small_numbers(m * net.hidden));
      double best = 1e9;
      for (int i = 0; i <= o.rounds * (m <= 8 ? 8 : 1); ++i) {
        const auto start = Clock::now();
        pass(run, net, x, h);
        if (i > 0) best = std::min(best, seconds_since(start));
      }
      const double macs = net.weights * static_cast<double>(m) / best * 1e-9, bytes = net.bytes / best * 1e-9;
      std::printf("| %s | %ld | %.0f | %.0f %% | %.1f | %.0f %% | %.2f |\n", rapt::name_of(format),
                  static_cast<long>(m), macs, peak > 0 ? macs / peak * 100 : 0, bytes,
                  bytes / bandwidth * 100, best * 1e3);
      std::fflush(stdout);
    }
  }
} catch (const rapt::Error& e) {
  std::fprintf(stderr, "%s\n", e.what());
  return 1;
}
