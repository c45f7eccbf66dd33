// SPDX-License-Identifier: Apache-2.0
#include "rapt/run/run.h"

#include <cstdlib>

#include "rapt/base/rng.h"

namespace rapt {

Tensor Run::make(std::initializer_list<Dim> sizes, DType dtype) {
  Tensor t = tensor_over(nullptr, nullptr, dtype, {sizes.begin(), sizes.size()});
  const std::size_t bytes = static_cast<std::size_t>(t.elements()) * size_of(dtype);
  t.data = arena.take(bytes);
  t.buffer = new (arena.take(sizeof(Buffer))) Buffer{t.data, nullptr, bytes};
  return t;
}

Tensor Run::like(const Tensor& t) {
  switch (t.rank) {
    case 1: return make({t[0]});
    case 2: return make({t[0], t[1]});
    case 3: return make({t[0], t[1], t[2]});
    default: return make({t[0], t[1], t[2], t[3]});
  }
}

Tensor Run::upload(std::initializer_list<Dim> sizes, std::span<const double> values) {
  Tensor t = make(sizes);
  if (t.elements() != static_cast<Dim>(values.size())) fail("upload: ", values.size(), " values for a tensor of shape ", t.shape());
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (t.dtype == DType::f64) t.as<double>()[i] = values[i];
    else t.as<float>()[i] = static_cast<float>(values[i]);
  }
  return t;
}

void* Run::grad(const Tensor& t) {
  if (!t.buffer) return nullptr;
  Buffer& b = *t.buffer;
  if (!b.grad) {
    b.grad = arena.take(b.bytes);
    std::memset(b.grad, 0, b.bytes);
  }
  return b.grad + (t.data - b.data);
}

std::uint64_t Run::random_key(std::uint64_t site) const {
  const std::uint64_t place = static_cast<std::uint64_t>(stack) << 32 | static_cast<std::uint32_t>(layer + 1);
  return mix_key(mix_key(mix_key(random.seed, random.step), place), site);
}

std::byte* Gradients::of(const Weight& w) {
  if (w.index < 0) fail("gradient of weight ", w.name, ": it belongs to no model (its index is not set)");
  const auto i = static_cast<std::size_t>(w.index);
  if (i >= slots_.size()) slots_.resize(i + 1);
  Slot& s = slots_[i];
  if (!s.live) {
    const std::size_t bytes = (static_cast<std::size_t>(w.stored()) * size_of(real_) + 63) / 64 * 64;
    if (s.bytes < bytes) {
      s.data = std::shared_ptr<std::byte>(static_cast<std::byte*>(std::aligned_alloc(64, bytes)), [](std::byte* p) { std::free(p); });
      if (!s.data) fail("out of memory: the gradient of ", w.name, " needs ", bytes, " bytes");
      s.bytes = bytes;
    }
    std::memset(s.data.get(), 0, s.bytes);
    s.live = true;
  }
  return s.data.get();
}

const std::byte* Gradients::find(const Weight& w) const {
  const auto i = static_cast<std::size_t>(w.index);
  return w.index >= 0 && i < slots_.size() && slots_[i].live ? slots_[i].data.get() : nullptr;
}

double Gradients::get(const Weight& w, Dim row, Dim col) const {
  const std::byte* g = find(w);
  if (!g) return 0;
  const auto i = static_cast<std::size_t>(w.offset(row, col));
  return real_ == DType::f64 ? reinterpret_cast<const double*>(g)[i] : reinterpret_cast<const float*>(g)[i];
}

void Gradients::zero() {
  for (Slot& s : slots_) s.live = false;
}

void Tape::play_back(Run& run) {
  while (!nodes_.empty()) {
    const Node n = nodes_.back();
    nodes_.pop_back();
    n.backward(run, n.saved);
  }
  held_.clear();
}

void backward(Run& run, const Tensor& loss) {
  if (!run.tape) fail("backward: the pass ran without a tape; set run.tape before the forward");
  if (loss.elements() != 1) fail("backward: the loss has shape ", loss.shape(), ", one number is needed");
  void* g = run.grad(loss);
  if (loss.dtype == DType::f64) *static_cast<double*>(g) = 1;
  else *static_cast<float*>(g) = 1;
  run.tape->play_back(run);
}

}  // namespace rapt
