// SPDX-License-Identifier: Apache-2.0
// Address space is mapped without access, and opened from its beginning as places are taken: a system that
// counts promised memory counts only what is open.
#include "rapt/nn/slab.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "rapt/base/error.h"

namespace rapt {

Slab::Slab(std::size_t place_bytes, std::size_t limit) : bytes_((place_bytes + 63) / 64 * 64) {
  for (std::size_t bytes = std::max(limit, bytes_); bytes >= bytes_; bytes /= 2) {
    void* const at = mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED) continue;
    data_ = static_cast<std::byte*>(at);
    reserved_ = bytes;
    return;
  }
  fail("out of memory: no address space of ", bytes_, " bytes for a page of the key/value cache");
}

Slab::~Slab() {
  if (data_) munmap(data_, reserved_);
}
Slab::Slab(Slab&& other) noexcept { *this = std::move(other); }
Slab& Slab::operator=(Slab&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  std::swap(reserved_, other.reserved_);
  std::swap(usable_, other.usable_);
  std::swap(users_, other.users_);
  std::swap(warm_, other.warm_);
  std::swap(bare_, other.bare_);
  std::swap(shared_, other.shared_);
  return *this;
}

std::int32_t Slab::take() {
  for (std::vector<std::int32_t>* list : {&warm_, &bare_})
    if (!list->empty()) {
      const std::int32_t place = list->back();
      list->pop_back();
      users_[static_cast<std::size_t>(place)] = 1;
      return place;
    }
  const std::size_t end = (users_.size() + 1) * bytes_;
  if (end > reserved_) return -1;
  if (end > usable_) {
    // A few at a time: each call joins neighbours into one mapping. Memory comes when a place is written.
    constexpr std::size_t kStep = std::size_t{8} << 20;
    const std::size_t upto = std::min(reserved_, (end + kStep - 1) / kStep * kStep);
    if (mprotect(data_ + usable_, upto - usable_, PROT_READ | PROT_WRITE) != 0) return -1;
    usable_ = upto;
  }
  // Lists that a place may be put back into: giving it back never allocates.
  const std::size_t all = users_.size() + 1;
  if (warm_.capacity() < all) warm_.reserve(2 * all);
  if (bare_.capacity() < all) bare_.reserve(2 * all);
  users_.push_back(1);
  return static_cast<std::int32_t>(users_.size() - 1);
}

bool Slab::give(std::int32_t place) {
  const int left = --users_[static_cast<std::size_t>(place)];
  shared_ -= left == 1;
  if (left > 0) return false;
  warm_.push_back(place);
  return true;
}

bool Slab::discard_one() {
  if (warm_.empty()) return false;
  const std::int32_t place = warm_.back();
  warm_.pop_back();
  bare_.push_back(place);
  // Whole pages of the system only: what it shares with its neighbours stays.
  static const auto kPage = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  const std::size_t from = static_cast<std::size_t>(place) * bytes_,
                    first = (from + kPage - 1) / kPage * kPage, last = (from + bytes_) / kPage * kPage;
  if (last > first) madvise(data_ + first, last - first, MADV_DONTNEED);
  return true;
}

}  // namespace rapt
