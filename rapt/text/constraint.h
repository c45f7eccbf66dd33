// SPDX-License-Identifier: Apache-2.0
// What an answer may say next, as seen by whoever draws its tokens. What makes one: grammar/constraint.h.
#pragma once
#include <cstdint>
#include <memory>
#include <span>

namespace rapt {

// What may come next in one answer, token by token; of one sequence, used by one thread at a time.
class Constraint {
 public:
  virtual ~Constraint() = default;
  virtual std::unique_ptr<Constraint> copy() const = 0;  // as it stands now: samples, beams
  // Bit t % 64 of word t / 64 is set for every token t of the vocabulary; those that may not come next are
  // cleared, but for a few at times that allows() refuses all the same (too many readings of the text).
  virtual void mask(std::span<std::uint64_t> allowed) = 0;
  virtual bool allows(std::int32_t id) = 0;  // the same for one token
  virtual void accept(std::int32_t id) = 0;  // it was chosen (one that allows() said yes to)
};

}  // namespace rapt
