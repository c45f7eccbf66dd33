// SPDX-License-Identifier: Apache-2.0
// What the files of Store share: names of states, and the manifest with its sums (docs/formats.md).
#pragma once
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "rapt/base/json.h"
#include "rapt/io/fs.h"

namespace rapt {

constexpr std::string_view kManifest = "manifest.json", kLeftover = ".tmp-";
constexpr std::uint64_t kMostManifest = std::uint64_t{64} << 20;

struct StateName {
  std::int64_t step = 0, generation = 1;
  std::string text;
  bool operator<(const StateName& other) const {
    return std::tie(step, generation) < std::tie(other.step, other.generation);
  }
};

std::string name_of(std::int64_t step, std::int64_t generation);
// step-N or step-N.gK, K from 2; exactly as name_of writes it, anything else is not ours.
std::optional<StateName> parse_name(const std::string& text);
std::vector<StateName> states_in(const Fs& fs, const std::string& folder);  // oldest first
// What a failed save leaves to the reader of its message.
std::string what_stands(const Fs& fs, const std::string& folder);

struct ManifestEntry {
  std::string name;
  std::uint64_t bytes = 0, hash = 0;
  std::uint32_t crc = 0;
};

struct Manifest {
  std::int64_t step = 0;
  std::vector<ManifestEntry> files;
  Json state;
};

std::string write_manifest(const Manifest& m);
Manifest parse_manifest(const std::string& text, const std::string& where);
Manifest read_manifest(const Fs& fs, const std::string& folder, std::int64_t step);
std::vector<std::string> names_in(const Manifest& m);  // the manifest's own, too; sorted
// Why a name cannot be one of a file in a state; "" where it can.
std::string_view bad_name(std::string_view name);

// Both sums of bytes that come in pieces, against what was saved.
class ManifestCheck {
 public:
  ManifestCheck(const ManifestEntry& entry, std::string where) : entry_(entry), where_(std::move(where)) {}
  void add(std::span<const std::byte> part);
  void finish() const;

 private:
  const ManifestEntry& entry_;
  std::string where_;
  std::uint64_t bytes_ = 0;
  std::uint32_t crc_ = 0;
  Hash64 hash_;
};
// Every byte of a state; fails with the first thing that is wrong.
Manifest check_state(const Fs& fs, const std::string& folder, std::int64_t step);

inline std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

}  // namespace rapt
