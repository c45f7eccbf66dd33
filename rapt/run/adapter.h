// SPDX-License-Identifier: Apache-2.0
// LoRA: W + scale * B A for some of a model's matrices, with A [r,K] and B [N,r] of low rank. W stays as it
// is, in whatever format; the rows of a pass that use the adapter get scale * B (A x) beside W x, in `linear`
// (ops/linear.cc). A pass may mix rows of many adapters and of none.
#pragma once
#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "rapt/tensor/weight.h"

namespace rapt {

struct Model;  // nn/model.h

// Read by many threads; changed by none once it was made (load/adapter.h).
struct Adapter {
  // Which rows meet a matrix: those of its own stack, those of the encoder's result (keys and values of
  // cross-attention), those that the head reads.
  enum class Rows : std::uint8_t { own, memory, wanted };
  struct Term {
    const Weight* of = nullptr;  // W, of `model`
    std::shared_ptr<const Weight> a;  // one A may serve several matrices (q, k, v of a joined one)
    Weight b;
    float scale = 1;  // alpha / r
    Rows rows = Rows::own;
  };
  const Model* model = nullptr;
  std::string path;
  std::array<std::uint64_t, 2> hash{};  // of what it computes: equal adapters have equal ones
  std::vector<Term> terms;
  std::vector<std::int32_t> by_weight;  // by Weight::index: which term, or -1

  const Term* find(const Weight& w) const {
    const auto i = static_cast<std::size_t>(w.index);
    if (w.index < 0 || i >= by_weight.size() || by_weight[i] < 0) return nullptr;
    const Term& t = terms[static_cast<std::size_t>(by_weight[i])];
    return t.of == &w ? &t : nullptr;
  }
};

struct AdapterUse {
  std::shared_ptr<const Adapter> adapter;
  float scale = 1;  // beside the adapter's own
};

// Who uses what in a pass: ranges of rows, for each kind of rows. What a row uses is added in the order of
// the ranges, which is that of its sequence's list.
struct AdaptedRows {
  struct Range {
    std::int64_t first, count;
    const Adapter* adapter;
    float scale;
  };
  struct List {
    std::int64_t rows = 0;
    std::vector<Range> ranges;
  };
  std::array<List, 3> lists;  // by Adapter::Rows
  List& of(Adapter::Rows rows) { return lists[static_cast<std::size_t>(rows)]; }
  const List& of(Adapter::Rows rows) const { return lists[static_cast<std::size_t>(rows)]; }
  bool adapts(const Weight& w) const {
    for (const List& list : lists)
      for (const Range& r : list.ranges)
        if (r.adapter->find(w)) return true;
    return false;
  }
};

}  // namespace rapt
