// SPDX-License-Identifier: Apache-2.0
// What the tests of the store save, so that every byte found later can be told right or wrong.
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstring>
#include <string>
#include <vector>

#include "rapt/base/rng.h"
#include "rapt/use/store.h"
#include "tests/crash_fs.h"

namespace rapt::test {

// The files of the n-th save: one of several pages, one of several sectors, one tiny, one empty. All are
// another each time, sizes too.
inline std::vector<StoredFile> files_of(std::int64_t n, std::size_t large = 9000) {
  std::vector<StoredFile> files{
      {"model.safetensors", {}}, {"optimizer.safetensors", {}}, {"note", {}}, {"empty", {}}};
  const std::size_t sizes[] = {large + static_cast<std::size_t>(n % 7),
                               1800 + static_cast<std::size_t>(n % 5), 3, 0};
  for (std::size_t f = 0; f < files.size(); ++f) {
    std::uint64_t x = mix_key(static_cast<std::uint64_t>(n), f);
    files[f].bytes.resize(sizes[f]);
    for (std::size_t i = 0; i < sizes[f]; i += sizeof x) {
      x = x * 6364136223846793005u + 1442695040888963407u;
      const std::uint64_t word = x ^ x >> 32;
      std::memcpy(files[f].bytes.data() + i, &word, std::min(sizeof word, sizes[f] - i));
    }
  }
  return files;
}

inline Json state_of(std::int64_t n) {
  Json state = Json::Object{};
  state.set("save", n);
  state.set("rate", 0.1 / static_cast<double>(n + 1));
  return state;
}

// The number of a save, from what it stored.
inline std::int64_t number_of(const Stored& stored) {
  const Json* n = stored.state.find("save");
  return n && n->is_integer() ? n->integer() : -1;
}

inline bool right(const Store& store, const Stored& stored, std::size_t large = 9000) {
  const std::int64_t n = number_of(stored);
  if (!(stored.state.dump() == state_of(n).dump())) return false;
  for (const StoredFile& f : files_of(n, large))
    if (store.file(stored, f.name) != f.bytes) return false;
  return true;
}

// What our own loader finds.
inline Found load_checked(const std::string& folder, Fs& fs, std::size_t large = 9000) {
  Store store(folder, fs);
  Found found;
  found.valid = static_cast<std::int64_t>(store.all().size());
  if (const auto newest = store.latest([&](const std::string& s) { found.said.push_back(s); })) {
    found.newest = number_of(*newest);
    found.right = right(store, *newest, large);
  }
  return found;
}

}  // namespace rapt::test
