// SPDX-License-Identifier: Apache-2.0
// The last usable table of kIsas is taken, unless the options or RAPT_ISA name one; f64 only by name.
#include "rapt/device/device.h"

#include <cstdlib>

namespace rapt {

// One table per instruction set, defined in ops/tables_cpu.cc, compiled once per set.
#define RAPT_TABLE(isa)          \
  namespace isa {                \
  extern const Kernels kKernels; \
  }
RAPT_TABLE(f64)
#if defined(RAPT_HAVE_SCALAR)
RAPT_TABLE(scalar)
#endif
#if defined(RAPT_HAVE_AVX2)
RAPT_TABLE(avx2)
#endif
#if defined(RAPT_HAVE_AVX512)
RAPT_TABLE(avx512)
#endif
#if defined(RAPT_HAVE_NEON)
RAPT_TABLE(neon)
#endif
#undef RAPT_TABLE

namespace {

struct Isa {
  const char* name;
  const Kernels* kernels;
  bool (*usable)();
};

bool always() { return true; }
#if defined(RAPT_HAVE_AVX2)
bool has_avx2() { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"); }
#endif
#if defined(RAPT_HAVE_AVX512)
bool has_avx512() {
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
         __builtin_cpu_supports("avx512vnni");
}
#endif

const Isa kIsas[] = {
    {"f64", &f64::kKernels, always},
#if defined(RAPT_HAVE_SCALAR)
    {"scalar", &scalar::kKernels, always},
#endif
#if defined(RAPT_HAVE_AVX2)
    {"avx2", &avx2::kKernels, has_avx2},
#endif
#if defined(RAPT_HAVE_AVX512)
    {"avx512", &avx512::kKernels, has_avx512},
#endif
#if defined(RAPT_HAVE_NEON)
    {"neon", &neon::kKernels, always},
#endif
};

std::string best_isa() {
  const char* forced = std::getenv("RAPT_ISA");
  if (forced && *forced) return forced;
  const std::vector<std::string> usable = available_isas();
  if (usable.empty())
    fail(
        "this program was built for the processor of another machine only (RAPT_ISAS=own); build it here, "
        "or anywhere with cmake --preset release");
  return usable.back();
}

int default_threads() {
  const char* forced = std::getenv("RAPT_THREADS");
  if (!forced || !*forced) return processors();
  char* end = nullptr;
  const long n = std::strtol(forced, &end, 10);
  if (*end || n < 1 || n > 1024)
    fail_usage("RAPT_THREADS: '", forced, "' is not a number of threads from 1 to 1024");
  return static_cast<int>(n);
}

}  // namespace

std::vector<std::string> available_isas() {
  std::vector<std::string> names;
  for (const Isa& i : kIsas)
    if (i.usable() && i.kernels->real == DType::f32) names.emplace_back(i.name);
  return names;
}

const Kernels& kernels_for(std::string_view isa) {
  std::string known;
  for (const Isa& i : kIsas) {
    if (isa == i.name && i.usable()) return *i.kernels;
    if (isa == i.name)
      fail_usage("instruction set '", isa,
                 "': this processor does not have it; leave RAPT_ISA unset to use the best one it has");
    known += std::string(known.empty() ? "" : ", ") + i.name;
  }
  fail_usage("instruction set '", isa, "' is not known; RAPT_ISA may be one of ", known);
}

Device::Device(const DeviceOptions& options)
    : Device(kernels_for(options.isa.empty() ? best_isa() : options.isa), options) {}

Device::Device(const Kernels& table, const DeviceOptions& options)
    : kernels(table),
      real(kernels.real),
      team_(std::make_unique<Team>(options.threads > 0 ? options.threads : default_threads(), options.pin)),
      queue_{team_.get()} {}

void Device::fail_starved(std::size_t bytes) const {
  fail("out of memory: a kernel asked for ", bytes, " bytes of scratch for each of ", threads(),
       " threads; use fewer threads, a shorter sequence or a smaller batch");
}

void run_tasks(Queue& queue, Dim tasks, void (*task)(void*, Dim, int) noexcept, void* context) noexcept {
  queue.team->run(tasks, task, context);
}
std::byte* scratch_of(Queue& queue, int worker, std::size_t bytes) noexcept {
  return queue.team->scratch(worker, bytes);
}
int threads_of(Queue& queue) noexcept { return queue.team->threads(); }

}  // namespace rapt
