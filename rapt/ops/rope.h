// SPDX-License-Identifier: Apache-2.0
// Rotary positions: pairs of channels turned by position * frequency. Angles are computed in float64 on
// the host.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "rapt/run/run.h"

namespace rapt {

// Channel i turns with i + R/2 (Hugging Face), or 2i with 2i + 1 (original weights).
enum class RopeLayout : int { halves, pairs };
enum class RopeScaling : int { none, linear, ntk, dynamic, yarn, llama3, longrope, proportional };
const char* name_of(RopeScaling scaling);

struct RopeSpec {
  double theta = 10000;
  // Share of the head's channels that turn: the first part * D of them (proportional: see rope.cc).
  double part = 1;
  RopeLayout layout = RopeLayout::halves;
  RopeScaling scaling = RopeScaling::none;
  double factor = 1;
  double original = 0;  // context the model was trained for, before scaling
  double beta_fast = 32, beta_slow = 1;       // yarn
  bool truncate = true;                       // yarn: whole channel numbers for its ramp
  double attention_factor = 0;                // yarn, longrope: 0 = the scaling's own rule
  double mscale = 0, mscale_all_dim = 0;      // yarn (DeepSeek)
  double low_freq = 1, high_freq = 4;         // llama3
  // longrope: context after scaling; dynamic: stands for `original` where that is not given
  double max_context = 0;
  std::vector<double> short_factor = {}, long_factor = {};  // longrope, one per frequency
  bool operator==(const RopeSpec&) const = default;
};

// Frequencies and the factor on cos and sin for a sequence opened for `length` tokens (dynamic and longrope
// depend on it).
struct RopeFrequencies {
  std::vector<double> inverse;  // radians per position, one per turned pair
  double magnitude = 1;
};
RopeFrequencies rope_frequencies(const RopeSpec& spec, Dim head_dim, Dim length);

// cos and sin for rows at the given positions: [T, R/2] each, constants of a pass. `lengths`: of each row's
// sequence, or one for all rows.
struct RopeTable {
  Tensor cos, sin;
  RopeLayout layout = RopeLayout::halves;
};
RopeTable rope_table(Run& run, const RopeSpec& spec, Dim head_dim, std::span<const std::int32_t> positions,
                     std::span<const Dim> lengths);

// x [T,H,D] -> the same, turned: channels from `first` on. Those before it and beyond 2 * R/2 pass unchanged.
Tensor rope(Run& run, const Tensor& x, const RopeTable& table, Dim first = 0);

struct RopeArgs {
  std::int64_t rows, heads, d, first, half;  // half = R/2
  RopeLayout layout;
  const void *x, *cos, *sin;
  void* y;
};
struct RopeBackwardArgs {
  std::int64_t rows, heads, d, first, half;
  RopeLayout layout;
  const void *dy, *cos, *sin;
  void* dx;
};

// Sinusoid tables, added to embeddings. `pairs`: sin and cos alternate (2017); `halves`: all sines, then all
// cosines (Marian).
enum class SinusoidLayout : int { pairs, halves };
// 10000^(-2i/d), or 10000^(-i/(d/2-1)) (marian-dev, fairseq)
enum class SinusoidTable : int { paper, marian };
// [T,C], constant
Tensor sinusoid(Run& run, SinusoidLayout layout, SinusoidTable table, Dim width,
                std::span<const std::int32_t> positions);

}  // namespace rapt
