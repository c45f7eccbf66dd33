// SPDX-License-Identifier: Apache-2.0
// Each rank sends each other one its numbers of every node it has; who receives them adds, in the tree.
#include "rapt/use/ranks.h"

#include <algorithm>
#include <cstring>

#include "rapt/nn/weight_table.h"
#include "rapt/ops/elementwise.h"
#include "rapt/ops/optimize.h"
#include "rapt/report/document.h"

namespace rapt {
namespace {

std::size_t bytes_of(const ShardRange& range, DType real) {
  return static_cast<std::size_t>(range.end - range.begin) * size_of(real);
}

// Which nodes a range of leaves leaves.
LeafTree<char> nodes_of(LeafRange range) {
  LeafTree<char> tree;
  for (Dim n = range.first; n < range.end; ++n) tree.push({.first = n, .value = 0}, [](char&, char) {});
  return tree;
}

}  // namespace

LeafRange leaves_of(Dim leaves, int rank, int ranks) {
  return {leaves * rank / ranks, leaves * (rank + 1) / ranks};
}

std::vector<Shard> shards_of(const Model& model, int ranks, const std::function<bool(const Weight&)>& whole) {
  std::vector<Shard> shards(static_cast<std::size_t>(ranks));
  Dim all = 0, before = 0;
  for (const Weight& w : model.weights)
    if (is_parameter(w)) all += w.stored();
  for (const Weight& w : model.weights) {
    if (!is_parameter(w)) continue;
    const Dim piece = whole(w) ? std::max<Dim>(w.stored(), 1) : Dim{kOptimizePiece};
    for (Dim begin = 0; begin < w.stored(); begin += piece) {
      const Dim end = std::min(w.stored(), begin + piece);
      // The rank in whose even part the middle of the piece lies.
      Shard& shard = shards[static_cast<std::size_t>((before + (end - begin) / 2) * ranks / all)];
      if (!shard.empty() && shard.back().weight == w.index) shard.back().end = end;
      else shard.push_back({w.index, begin, end});
      before += end - begin;
    }
  }
  return shards;
}

void check_alike(Comm& comm, const std::string& what) {
  const std::vector<std::size_t> one(static_cast<std::size_t>(comm.size()), 1);
  const std::uint64_t length = what.size();
  const std::vector<std::uint64_t> lengths = gather<std::uint64_t>(comm, {&length, 1}, one);
  const std::vector<std::size_t> counts(lengths.begin(), lengths.end());
  const std::vector<char> texts = gather<char>(comm, what, counts);
  std::size_t at = 0;
  for (std::size_t r = 0; r < counts.size(); at += counts[r], ++r) {
    const std::string_view first(texts.data(), counts[0]), other(texts.data() + at, counts[r]);
    if (first == other) continue;
    const auto same = std::mismatch(first.begin(), first.end(), other.begin(), other.end()).first;
    const auto from = static_cast<std::size_t>(std::max<std::ptrdiff_t>(0, same - first.begin() - 20));
    const auto part = [&](std::string_view text) {
      return valid_text(text.substr(std::min(from, text.size()), 60));
    };
    fail("train: rank ", r, " trains otherwise than rank 0: … ", part(other), " …, there … ", part(first),
         " …; give every rank the same command, data and RAPT_ISA");
  }
}

void RankSum::add(std::vector<LeafTree<Gradients>::Node>& nodes, Dim leaves) {
  const auto ranks = static_cast<std::size_t>(comm_.size()), me = static_cast<std::size_t>(comm_.rank());
  const std::size_t weights = model_.weights.size();
  std::vector<std::size_t> node_counts, flag_counts;
  for (int r = 0; r < comm_.size(); ++r) {
    node_counts.push_back(nodes_of(leaves_of(leaves, r, comm_.size())).nodes().size());
    flag_counts.push_back(node_counts.back() * weights);
  }
  // Which node has a gradient of which weight.
  std::vector<char> own;
  for (const auto& node : nodes)
    for (const Weight& w : model_.weights) own.push_back(node.value.find(w) != nullptr);
  const std::vector<char> flags = gather<char>(comm_, own, flag_counts);

  sent_.assign(ranks, {});
  received_.assign(ranks, {});
  std::size_t first_flag = 0;
  for (std::size_t r = 0; r < ranks; first_flag += flag_counts[r], ++r) {
    if (r == me) continue;
    for (const auto& node : nodes)
      for (const ShardRange& range : shards_[r]) {
        const std::byte* g = node.value.find(model_.weights[static_cast<std::size_t>(range.weight)]);
        if (!g) continue;
        g += static_cast<std::size_t>(range.begin) * size_of(model_.real);
        sent_[r].insert(sent_[r].end(), g, g + bytes_of(range, model_.real));
      }
    std::size_t bytes = 0;
    for (std::size_t n = 0; n < node_counts[r]; ++n)
      for (const ShardRange& range : shards_[me])
        if (flags[first_flag + n * weights + static_cast<std::size_t>(range.weight)])
          bytes += bytes_of(range, model_.real);
    received_[r].resize(bytes);
  }
  const std::vector<Comm::Bytes> send(sent_.begin(), sent_.end());
  const std::vector<Comm::Space> receive(received_.begin(), received_.end());
  comm_.all_to_all(send, receive);

  // Of a node, the numbers that this rank moves: where each range of its shard begins, nullptr where it has
  // none.
  using Slice = std::vector<std::byte*>;
  LeafTree<Slice> tree;
  const auto add = [&](Slice& left, const Slice& right) {
    for (std::size_t k = 0; k < left.size(); ++k) {
      if (!right[k]) continue;
      if (!left[k]) {
        left[k] = right[k];
        continue;
      }
      const ShardRange& range = shards_[me][k];
      device_.call(
          &Kernels::add,
          {.elements = range.end - range.begin, .scale = 1, .a = left[k], .b = right[k], .y = left[k]});
    }
  };
  live.assign(weights, false);
  at.assign(weights, nullptr);
  first_flag = 0;
  for (std::size_t r = 0; r < ranks; ++r) {
    std::byte* next = received_[r].data();
    const LeafTree<char> order = nodes_of(leaves_of(leaves, static_cast<int>(r), comm_.size()));
    for (std::size_t n = 0; n < node_counts[r]; ++n, first_flag += weights) {
      for (std::size_t w = 0; w < weights; ++w)
        if (flags[first_flag + w]) live[w] = true;
      Slice slice;
      for (const ShardRange& part : shards_[me]) {
        const Weight& w = model_.weights[static_cast<std::size_t>(part.weight)];
        if (!flags[first_flag + static_cast<std::size_t>(part.weight)]) {
          slice.push_back(nullptr);
        } else if (r == me) {
          slice.push_back(nodes[n].value.of(w) + static_cast<std::size_t>(part.begin) * size_of(model_.real));
        } else {
          slice.push_back(next);
          next += bytes_of(part, model_.real);
        }
      }
      tree.push({order.nodes()[n].first, order.nodes()[n].count, std::move(slice)}, add);
    }
  }
  tree.finish(add);
  if (tree.nodes().empty()) return;
  for (std::size_t k = 0; k < shards_[me].size(); ++k)
    at[static_cast<std::size_t>(shards_[me][k].weight)] = tree.nodes().front().value[k];
}

Weight gather_state(Comm& comm, const Model& model, const std::vector<Shard>& shards, const Weight& of,
                    const std::string& name, const Weight& part) {
  std::vector<std::size_t> counts;
  for (const Shard& shard : shards) {
    counts.push_back(0);
    for (const ShardRange& range : shard)
      if (range.weight == of.index) counts.back() += bytes_of(range, model.real);
  }
  Weight whole = make_weight(name, of.rows, of.cols, model.real, of.packing);
  const std::size_t mine = counts[static_cast<std::size_t>(comm.rank())];
  const std::vector<std::byte> all = gather<std::byte>(comm, {part.data.get(), mine}, counts);
  std::memcpy(whole.data.get(), all.data(), all.size());
  return whole;
}

void gather_weights(Comm& comm, Model& model, const std::vector<Shard>& shards) {
  if (comm.size() == 1) return;
  std::vector<std::byte> mine;
  std::vector<std::size_t> counts;
  const auto place = [&](const ShardRange& range) {
    return model.weights[static_cast<std::size_t>(range.weight)].data.get() +
           static_cast<std::size_t>(range.begin) * size_of(model.real);
  };
  for (const Shard& shard : shards) {
    counts.push_back(0);
    for (const ShardRange& range : shard) counts.back() += bytes_of(range, model.real);
  }
  for (const ShardRange& range : shards[static_cast<std::size_t>(comm.rank())])
    mine.insert(mine.end(), place(range), place(range) + bytes_of(range, model.real));
  const std::vector<std::byte> all = gather<std::byte>(comm, mine, counts);
  std::size_t at = 0;
  for (const Shard& shard : shards)
    for (const ShardRange& range : shard) {
      std::memcpy(place(range), all.data() + at, bytes_of(range, model.real));
      at += bytes_of(range, model.real);
    }
}

}  // namespace rapt
