// SPDX-License-Identifier: Apache-2.0
// Reserved address space, cut into places of equal size. A place takes memory when it is first taken, and
// gives it back when it is discarded; its address never changes. One thread at a time.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

namespace rapt {

class Slab {
 public:
  Slab() = default;
  // At most `limit` bytes; fewer where the system reserves no more.
  Slab(std::size_t place_bytes, std::size_t limit);
  ~Slab();
  Slab(Slab&& other) noexcept;
  Slab& operator=(Slab&& other) noexcept;

  std::byte* data() const { return data_; }
  std::byte* at(std::int32_t place) const { return data_ + static_cast<std::size_t>(place) * bytes_; }
  std::size_t place_bytes() const { return bytes_; }

  // A place with one user; -1 where the address space ends or the system has no memory.
  std::int32_t take();
  void add_user(std::int32_t place) { shared_ += ++users_[static_cast<std::size_t>(place)] == 2; }
  int users(std::int32_t place) const { return users_[static_cast<std::size_t>(place)]; }
  bool give(std::int32_t place);  // true: it had no other user and is free
  std::size_t taken() const { return users_.size() - warm_.size() - bare_.size(); }
  std::size_t shared() const { return shared_; }  // places with more users than one
  // Free places that still hold memory, and the memory of one of them given back.
  std::size_t warm() const { return warm_.size(); }
  bool discard_one();

 private:
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0, reserved_ = 0, usable_ = 0;  // usable_: may be written, from the beginning on
  std::vector<std::int32_t> users_;                    // of every place that was ever taken
  std::vector<std::int32_t> warm_, bare_;              // free ones, with and without memory
  std::size_t shared_ = 0;
};

}  // namespace rapt
