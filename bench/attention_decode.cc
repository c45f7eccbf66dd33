// SPDX-License-Identifier: Apache-2.0
// A step of decoding as far as attention goes: one row against a cache of some depth, all layers (SmolLM2:
// 30 layers, 9 heads over 3 kv heads of 64), each with pages of its own, so that the cache is really read.
// Beside each time: the bytes of K and V, the bandwidth that means, and what the machine gives when the same
// number of bytes is merely added up by the same threads.
//   attention_decode [--threads N] [--rounds N] [--isa NAME] [--layers N] [--heads H] [--kv-heads K]
//     [--head-dim D] [--depths 128,2048]
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "rapt/base/rng.h"
#include "rapt/ops/attention.h"

namespace {

using namespace rapt;

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

struct Sizes {
  Dim layers = 30, heads = 9, kv_heads = 3, d = 64;
};

// Pages on one stretch of memory per layer, as a cache that grew by itself would have them.
struct Cache {
  KvLayout layout;
  std::vector<std::vector<std::byte>> memory;
  std::vector<std::byte*> slabs;
  std::vector<std::int32_t> pages;  // the same of every layer
  Cache(Device& device, const Sizes& s, DType format, Dim depth)
      : layout(kv_layout(format, s.kv_heads, s.d, s.d)) {
    rapt::Run run(device);
    const Tensor k = run.make({depth, s.kv_heads, s.d}), v = run.make({depth, s.kv_heads, s.d});
    for (std::size_t i = 0; i < k.as<float>().size(); ++i) {
      k.as<float>()[i] = static_cast<float>(random_uniform(1, i) * 2 - 1);
      v.as<float>()[i] = static_cast<float>(random_uniform(2, i) * 2 - 1);
    }
    const auto count = static_cast<std::size_t>((depth + kPageKeys - 1) / kPageKeys),
               bytes = static_cast<std::size_t>(layout.page_bytes);
    for (std::size_t p = 0; p < count; ++p) pages.push_back(static_cast<std::int32_t>(p));
    for (Dim l = 0; l < s.layers; ++l) {
      memory.emplace_back(count * bytes + 64);
      slabs.push_back(reinterpret_cast<std::byte*>(
          (reinterpret_cast<std::uintptr_t>(memory.back().data()) + 63) / 64 * 64));
      write(run, slabs.back(), {0, depth, 0, depth, pages.data()}, k, v);
    }
  }
  void write(Run& run, std::byte* slab, const AttentionPart& part, const Tensor& k, const Tensor& v) const {
    run.kernels().kv_write(run.queue(), {.layout = layout,
                                         .part_count = 1,
                                         .parts = &part,
                                         .k = k.data,
                                         .v = v.data,
                                         .slab = slab,
                                         .page_stride = layout.page_bytes});
  }
};

// Adds up `bytes` in pieces on all threads.
struct Reader {
  const std::vector<float>& data;
  std::size_t piece;
  std::vector<float> sums;
};
double read_time(Device& device, const std::vector<float>& data, int rounds) {
  constexpr std::size_t kPieces = 64;
  Reader reader{data, data.size() / kPieces / 64 * 64, std::vector<float>(kPieces)};
  double best = 1e30;
  for (int r = 0; r < rounds; ++r) {
    const double t = now();
    run_tasks(
        device.queue(), kPieces,
        [](void* c, Dim task, int) noexcept {
          auto& x = *static_cast<Reader*>(c);
          const float* p = x.data.data() + static_cast<std::size_t>(task) * x.piece;
          float s[64] = {};
          for (std::size_t i = 0; i < x.piece; i += 64)
            for (std::size_t j = 0; j < 64; ++j) s[j] += p[i + j];
          float sum = 0;
          for (float y : s) sum += y;
          x.sums[static_cast<std::size_t>(task)] = sum;
        },
        &reader);
    best = std::min(best, now() - t);
  }
  return best;
}

int bench(int argc, char** argv) {
  Sizes sizes;
  int threads = 2, rounds = 40;
  std::string isa;
  std::vector<Dim> depths = {128, 512, 2048, 8192};
  for (int i = 1; i < argc; ++i) {
    const std::string a = argv[i];
    auto value = [&] { return i + 1 < argc ? std::string(argv[++i]) : std::string(); };
    auto number = [&] { return std::max<Dim>(1, std::atoll(value().c_str())); };
    if (a == "--threads") threads = static_cast<int>(number());
    else if (a == "--rounds") rounds = static_cast<int>(number());
    else if (a == "--isa") isa = value();
    else if (a == "--layers") sizes.layers = number();
    else if (a == "--heads") sizes.heads = number();
    else if (a == "--kv-heads") sizes.kv_heads = number();
    else if (a == "--head-dim") sizes.d = number();
    else if (a == "--depths") {
      depths.clear();
      const std::string list = value();
      for (std::size_t at = 0; at < list.size();) {
        std::size_t end = std::min(list.find(',', at), list.size());
        depths.push_back(std::max<Dim>(1, std::atoll(list.substr(at, end - at).c_str())));
        at = end + 1;
      }
    } else
      fail_usage("bench/attention_decode: unknown option ", a,
                 "; they stand at the head of bench/attention_decode.cc");
  }
  Device device({.threads = threads, .isa = isa, .pin = true});
  std::printf(
      "Attention of one decoded token, %s, %d threads: %lld layers, %lld heads over %lld of %lld. "
      "Best of %d steps.\n\n",
      device.kernels.isa, threads, static_cast<long long>(sizes.layers), static_cast<long long>(sizes.heads),
      static_cast<long long>(sizes.kv_heads), static_cast<long long>(sizes.d), rounds);
  std::printf(
      "| depth | cache | ms | median | MB | GB/s | merely reading |\n|---|---|---|---|---|---|---|\n");
  for (Dim depth : depths)
    for (DType format : {DType::f32, DType::bf16, DType::f16, DType::q8_0, DType::q4_0}) {
      const Cache cache(device, sizes, format, depth);
      rapt::Run run(device), inputs(device);
      const Tensor q = inputs.make({1, sizes.heads, sizes.d}), k = inputs.make({1, sizes.kv_heads, sizes.d});
      for (std::size_t i = 0; i < q.as<float>().size(); ++i)
        q.as<float>()[i] = static_cast<float>(random_uniform(3, i) * 4 - 2);
      for (float& x : k.as<float>()) x = 0.5f;
      const Sequence sequence{.first = 0, .count = 1, .past = depth - 1};
      const RowPlan plan = plan_rows(Mask{.right = 0}, {&sequence, 1});
      AttentionSpec spec;
      spec.heads = sizes.heads;
      spec.kv_heads = sizes.kv_heads;
      spec.head_dim = spec.v_dim = sizes.d;
      spec.scale = 1 / std::sqrt(static_cast<double>(sizes.d));
      std::vector<double> times;
      for (int r = 0; r < rounds; ++r) {
        run.reset();
        const double t = now();
        for (std::byte* slab : cache.slabs) {
          cache.write(run, slab, {0, 1, 0, depth, cache.pages.data()}, k, k);
          const KvView view{cache.layout, slab, cache.layout.page_bytes, {cache.pages}};
          attention(run, spec, {.q = q, .cache = &view}, plan);
        }
        times.push_back(now() - t);
      }
      std::sort(times.begin(), times.end());
      const double bytes = static_cast<double>(sizes.layers * sizes.kv_heads * depth * 2 * sizes.d) *
                           static_cast<double>(size_of(format)) / static_cast<double>(info_of(format).block);
      const std::vector<float> plain(static_cast<std::size_t>(bytes) / 4 + 4096, 1.0f);
      const double reading = read_time(device, plain, rounds);
      std::printf("| %lld | %s | %.3f | %.3f | %.1f | %.1f | %.3f |\n", static_cast<long long>(depth),
                  name_of(format), times[0] * 1e3, times[times.size() / 2] * 1e3, bytes / 1e6,
                  bytes / times[0] / 1e9, reading * 1e3);
      std::fflush(stdout);
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
