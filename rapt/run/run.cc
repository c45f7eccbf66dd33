// SPDX-License-Identifier: Apache-2.0
// Tensors from the arena, gradients made when first asked for, the tape played back, a run after an error.
#include "rapt/run/run.h"

#include <algorithm>
#include <cstdlib>
#include <exception>

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
  if (t.elements() != static_cast<Dim>(values.size()))
    fail("upload: ", values.size(), " values for a tensor of shape ", t.shape());
  for (std::size_t i = 0; i < values.size(); ++i) t.set(static_cast<Dim>(i), values[i]);
  return t;
}

namespace {

// By all threads: at width 128 and 768 rows one thread zeroing took 2 % of a training step.
void zero(Queue& queue, std::byte* data, std::size_t bytes) {
  static constexpr std::size_t kPiece = std::size_t{1} << 16;
  struct Range {
    std::byte* data;
    std::size_t bytes;
  } range{data, bytes};
  run_tasks(
      queue, static_cast<Dim>((bytes + kPiece - 1) / kPiece),
      [](void* p, Dim task, int) noexcept {
        const auto& [from, all] = *static_cast<const Range*>(p);
        const std::size_t at = static_cast<std::size_t>(task) * kPiece;
        std::memset(from + at, 0, std::min(kPiece, all - at));
      },
      &range);
}

// An element that an op forgot to write must not pass for a number.
void spoil([[maybe_unused]] std::byte* data, [[maybe_unused]] std::size_t bytes) {
#if !defined(NDEBUG)
  std::memset(data, 0xff, bytes);
#endif
}

}  // namespace

void* Run::grad(const Tensor& t) {
  if (!t.buffer) return nullptr;
  Buffer& b = *t.buffer;
  if (!b.grad) {
    b.grad = arena.take(b.bytes);
    zero(queue(), b.grad, b.bytes);
  }
  return b.grad + (t.data - b.data);
}

void* Run::grad(const Tensor& t, bool& write) {
  const bool whole = t.buffer && static_cast<std::size_t>(t.elements()) * size_of(t.dtype) == t.buffer->bytes;
  write = whole && !t.buffer->grad && t.contiguous();
  if (!write) return grad(t);
  t.buffer->grad = arena.take(t.buffer->bytes);
  spoil(t.buffer->grad, t.buffer->bytes);
  return t.buffer->grad;
}

std::uint64_t Run::random_key(std::uint64_t site) const {
  const std::uint64_t place = static_cast<std::uint64_t>(stack) << 32 | static_cast<std::uint32_t>(layer + 1);
  return mix_key(mix_key(mix_key(random.seed, random.step), place), site);
}

namespace {

struct FirstUse {
  int weight;
};

void passed(Run& run, const FirstUse& use) {
  if (run.tape->passed) run.tape->passed(use.weight);
}

}  // namespace

void Run::first_use(int weight) { record(rapt::passed, FirstUse{weight}); }

std::byte* Gradients::slab() {
  if (slab_) return slab_.get();
  const std::size_t bytes = static_cast<std::size_t>(layout_->size) * size_of(real_);
  slab_ = std::shared_ptr<std::byte>(allocate(bytes), [](std::byte* p) { std::free(p); });
  if (!slab_) fail("out of memory: the gradients of a model need ", bytes, " bytes");
  slots_.resize(layout_->place.size());
  for (std::size_t i = 0; i < slots_.size(); ++i)
    if (layout_->place[i] >= 0)
      slots_[i].data = {slab_, slab_.get() + static_cast<std::size_t>(layout_->place[i]) * size_of(real_)};
  return slab_.get();
}

std::byte* Gradients::of(const Weight& w) {
  bool write = false;
  std::byte* data = of(w, write);
  if (write) std::memset(data, 0, slots_[static_cast<std::size_t>(w.index)].bytes);
  return data;
}

std::byte* Gradients::of(const Weight& w, bool& write) {
  if (w.index < 0) fail("gradient of weight ", w.name, ": it belongs to no model (its index is not set)");
  if (w.index >= closed_)
    fail("gradient of weight ", w.name, ": an op adds to it after the pass was done with it");
  const auto i = static_cast<std::size_t>(w.index);
  if (layout_) slab();
  if (i >= slots_.size()) slots_.resize(i + 1);
  Slot& s = slots_[i];
  write = !s.live;
  if (!s.live) {
    const std::size_t bytes = static_cast<std::size_t>(w.stored()) * size_of(real_);
    if (layout_) {
      s.bytes = bytes;
    } else if (s.bytes < bytes) {
      s.data = std::shared_ptr<std::byte>(allocate(bytes), [](std::byte* p) { std::free(p); });
      if (!s.data) fail("out of memory: the gradient of ", w.name, " needs ", bytes, " bytes");
      s.bytes = bytes;
    }
    spoil(s.data.get(), s.bytes);
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
  open();
}

void Tape::release(Mark m) {
  while (nodes_.size() > m.nodes) nodes_.pop_back();
  while (held_.size() > m.held) held_.pop_back();
}

void Tape::play_back(Run& run) {
  const RunGuard guard(run);
  struct Clear {
    Tape& tape;
    ~Clear() { tape.clear(); }
  } const clear{*this};
  while (!nodes_.empty()) {
    const Node n = nodes_.back();
    nodes_.pop_back();
    n.backward(run, n.saved);
  }
}

RunGuard::RunGuard(Run& run)
    : run_(run),
      exceptions_(std::uncaught_exceptions()),
      tape_(run.tape),
      taps_(run.taps),
      muted_(run.taps && run.taps->muted),
      recomputing_(run.recomputing),
      stack_(run.stack),
      layer_(run.layer),
      part_(run.part),
      row_ids_(run.row_ids),
      adapted_(run.adapted),
      arena_(run.arena.mark()),
      tape_mark_(run.tape ? run.tape->mark() : Tape::Mark{}) {}

RunGuard::~RunGuard() {
  if (std::uncaught_exceptions() == exceptions_) return;
  run_.tape = tape_;
  run_.taps = taps_;
  if (taps_) taps_->muted = muted_;
  run_.recomputing = recomputing_;
  run_.stack = stack_;
  run_.layer = layer_;
  run_.part = part_;
  run_.row_ids = row_ids_;
  run_.adapted = adapted_;
  run_.arena.release(arena_);
  if (tape_) tape_->release(tape_mark_);
}

void backward(Run& run, const Tensor& loss) {
  if (!run.tape) fail("backward: the pass ran without a tape; set run.tape before the forward");
  if (loss.elements() != 1) fail("backward: the loss has shape ", loss.shape(), ", one number is needed");
  const Lease lease(run.device.team());
  void* g = run.grad(loss);
  if (loss.dtype == DType::f64) *static_cast<double*>(g) = 1;
  else *static_cast<float*>(g) = 1;
  run.tape->play_back(run);
}

}  // namespace rapt
