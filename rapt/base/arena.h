// SPDX-License-Identifier: Apache-2.0
// Scratch memory of one pass: a pointer that moves forward, and scopes that move it back. Chunks are kept
// between passes, so the second pass allocates nothing and gets the same addresses as the first.
#pragma once
#include <cstddef>
#include <memory>
#include <vector>

#include "rapt/base/error.h"

namespace rapt {

// Uninitialised memory that free() takes back: aligned to 64, and from 2 MiB on in huge pages where the
// kernel grants them (a step of GPT-2 124M walks over 2 GB of weights, gradients and moments). nullptr where
// there is none.
std::byte* allocate(std::size_t bytes);

class Arena {
 public:
  static constexpr std::size_t kAlign = 64;  // one cache line and one 512-bit vector

  Arena() = default;
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  std::byte* take(std::size_t bytes);  // uninitialised
  template <class T>
  T* take_array(Dim n) {
    return reinterpret_cast<T*>(take(sizeof(T) * static_cast<std::size_t>(n)));
  }

  struct Mark {
    std::size_t chunk, used;
  };
  Mark mark() const { return {chunk_, used_}; }
  void release(Mark m) {
    chunk_ = m.chunk;
    used_ = m.used;
  }
  void reset() { release({0, 0}); }
  std::size_t reserved() const;  // bytes held in all chunks

 private:
  struct Free {
    void operator()(std::byte* p) const;
  };
  struct Chunk {
    std::unique_ptr<std::byte, Free> data;
    std::size_t size;
  };
  std::vector<Chunk> chunks_;
  std::size_t chunk_ = 0, used_ = 0;
};

}  // namespace rapt
