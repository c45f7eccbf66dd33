// SPDX-License-Identifier: Apache-2.0
// A new chunk is at least twice as large as the last, in whole huge pages; no request spans two chunks.
#include "rapt/base/arena.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>

namespace rapt {

namespace {
constexpr std::size_t kHugePage = std::size_t{2} << 20;
std::size_t up_to(std::size_t bytes, std::size_t unit) { return (bytes + unit - 1) / unit * unit; }
}  // namespace

std::byte* allocate(std::size_t bytes) {
  const bool huge = bytes >= kHugePage;
  const std::size_t unit = huge ? kHugePage : Arena::kAlign,
                    size = up_to(std::max<std::size_t>(bytes, 1), unit);
  auto* data = static_cast<std::byte*>(std::aligned_alloc(unit, size));
  if (data && huge) madvise(data, size, MADV_HUGEPAGE);
  return data;
}

void Arena::Free::operator()(std::byte* p) const { std::free(p); }

std::byte* Arena::take(std::size_t bytes) {
  bytes = up_to(std::max<std::size_t>(bytes, 1), kAlign);
  while (chunk_ < chunks_.size() && used_ + bytes > chunks_[chunk_].size) {
    ++chunk_;
    used_ = 0;
  }
  if (chunk_ == chunks_.size()) {
    const std::size_t last = chunks_.empty() ? 0 : chunks_.back().size;
    const std::size_t size = up_to(std::max(bytes, 2 * last), kHugePage);
    std::byte* data = allocate(size);
    if (!data)
      fail("out of memory: a pass asked for ", size,
           " bytes of scratch; use a shorter sequence or a smaller batch");
    chunks_.push_back({std::unique_ptr<std::byte, Free>(data), size});
    used_ = 0;
  }
  std::byte* p = chunks_[chunk_].data.get() + used_;
  used_ += bytes;
  return p;
}

std::size_t Arena::reserved() const {
  std::size_t sum = 0;
  for (const Chunk& c : chunks_) sum += c.size;
  return sum;
}

}  // namespace rapt
