// SPDX-License-Identifier: Apache-2.0
// Values to go through, one training for each: "rate=0.01,0.03" and "seed=0,1" are four runs.
//
//   sweep  = key "=" value ("," value)*
//   value  = text; a comma inside of { }, [ ] or " " does not end it
#pragma once
#include <span>
#include <string>
#include <vector>

namespace rapt {

struct SweepKey {
  std::string key;
  std::vector<std::string> values;
};
SweepKey parse_sweep(const std::string& text);  // fails: no key, an empty value, one that stands twice

struct SweepRun {
  std::vector<std::string> values;  // of each key
  // "rate=0.01,seed=0": a name for a folder. Keys by the end of their path, letters that file systems
  // mind left out; what would be called the same gets a sum behind it.
  std::string name;
};
constexpr std::size_t kMostSweepRuns = 100;
// All combinations, the last key first through its values. Fails: a key twice, too many.
std::vector<SweepRun> sweep_runs(std::span<const SweepKey> keys);

}  // namespace rapt
