// SPDX-License-Identifier: Apache-2.0
// A bucket: which node has a gradient of which weight, each rank's part of every node to that rank, sums.
#include "rapt/use/exchange.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "rapt/ops/elementwise.h"

namespace rapt {
Exchange::Exchange(Comm& comm, Device& device, const Model& model, const GradientLayout& layout,
                   const Deal& deal)
    : comm_(comm), own_(device.kernels, {.threads = 1}), model_(model), layout_(layout), deal_(deal) {}

Exchange::~Exchange() { stop(); }

void Exchange::start(Dim leaves, std::vector<double> of_leaves, std::vector<LeafGradients::Node> nodes,
                     Gradients& spare) {
  if (leaves != leaves_) {
    leaves_ = leaves;
    all_.clear();
    counts_.clear();
    for (int r = 0; r < comm_.size(); ++r) {
      const auto tree = nodes_of(leaves_of(leaves, r, comm_.size()));
      for (std::size_t i = 0; i < tree.nodes().size(); ++i)
        all_.push_back({tree.nodes()[i].first, tree.nodes()[i].count, static_cast<std::size_t>(r), i});
      counts_.push_back(tree.nodes().size());
    }
  }
  losses = std::move(of_leaves);
  nodes_ = std::move(nodes);
  spare_ = &spare;
  for (const LeafGradients::Node& node : nodes_) node.sum->slab();  // not while both threads look
  spare.slab();
  at.assign(model_.weights.size(), nullptr);
  live.assign(model_.weights.size(), false);
  passed_ = std::numeric_limits<int>::max();
  stopped_ = false;
  error_ = nullptr;
  courier_ = std::thread([this] {
    try {
      carry();
    } catch (...) {
      error_ = std::current_exception();
    }
  });
}

void Exchange::pass(int first) {
  const std::lock_guard hold(lock_);
  passed_ = first;
  changed_.notify_one();
}

bool Exchange::wait_for(int first) {
  std::unique_lock hold(lock_);
  changed_.wait(hold, [&] { return passed_ <= first || stopped_; });
  return !stopped_;
}

void Exchange::finish() {
  courier_.join();
  if (error_) std::rethrow_exception(error_);
}

void Exchange::stop() noexcept {
  if (!courier_.joinable()) return;
  {
    const std::lock_guard hold(lock_);
    stopped_ = true;
    changed_.notify_one();
  }
  courier_.join();
}

void Exchange::carry() {
  std::vector<std::size_t> of_ranks;
  for (int r = 0; r < comm_.size(); ++r) {
    const LeafRange range = leaves_of(leaves_, r, comm_.size());
    of_ranks.push_back(static_cast<std::size_t>(range.end - range.first));
  }
  {
    const TimedScope span(timeline, Timeline::Lane::exchange, "losses");
    losses = gather<double>(comm_, losses, of_ranks);
  }
  if (!std::ranges::all_of(losses, [](double x) { return std::isfinite(x); })) return;
  for (std::size_t b = 0; b < layout_.buckets.size(); ++b) {
    if (!wait_for(layout_.buckets[b].first)) return;
    add_bucket(b);
  }
}

void Exchange::add_bucket(std::size_t b) {
  const GradientLayout::Bucket& bucket = layout_.buckets[b];
  const std::vector<Dim>& cuts = deal_.cuts[b];
  const std::size_t ranks = counts_.size(), me = static_cast<std::size_t>(comm_.rank()),
                    number = size_of(model_.real);
  const auto weights = static_cast<std::size_t>(bucket.end - bucket.first);
  const auto part = [&](Gradients& of, std::size_t rank) {
    return std::span(of.slab() + static_cast<std::size_t>(cuts[rank]) * number,
                     static_cast<std::size_t>(cuts[rank + 1] - cuts[rank]) * number);
  };
  std::vector<char> has;  // which node has a gradient of which of the bucket's weights
  std::vector<std::byte*> parts(all_.size());  // this rank's part of each node
  {
    const TimedScope span(timeline, Timeline::Lane::exchange, concat("send ", b));
    std::vector<std::size_t> flags;
    for (const std::size_t n : counts_) flags.push_back(n * weights);
    for (const auto& node : nodes_)
      for (int i = bucket.first; i < bucket.end; ++i)
        has.push_back(node.sum->find(model_.weights[static_cast<std::size_t>(i)]) != nullptr);
    has = gather<char>(comm_, has, flags);

    received_.resize(all_.size());
    const std::size_t mine = static_cast<std::size_t>(cuts[me + 1] - cuts[me]) * number;
    for (std::size_t n = 0; n < all_.size(); ++n) {
      if (all_[n].rank == me) continue;
      if (received_[n].size() < mine) received_[n].resize(mine);
      parts[n] = received_[n].data();
    }
    for (std::size_t n = 0; n < nodes_.size(); ++n) {
      const auto own = std::ranges::find_if(
          all_, [&](const RankNode& node) { return node.rank == me && node.number == n; });
      parts[static_cast<std::size_t>(own - all_.begin())] = part(*nodes_[n].sum, me).data();
    }
    // A call for every rank's first node, one for every second node …
    for (std::size_t round = 0; round < *std::ranges::max_element(counts_); ++round) {
      std::vector<Comm::Bytes> send(ranks);
      std::vector<Comm::Space> receive(ranks);
      if (round < nodes_.size())
        for (std::size_t r = 0; r < ranks; ++r)
          if (r != me) send[r] = part(*nodes_[round].sum, r);
      for (std::size_t n = 0; n < all_.size(); ++n)
        if (all_[n].number == round && all_[n].rank != me) receive[all_[n].rank] = {parts[n], mine};
      comm_.all_to_all(send, receive);
    }
  }

  const TimedScope span(timeline, Timeline::Lane::exchange, concat("add ", b));
  for (std::size_t n = 0; n < all_.size(); ++n)
    for (std::size_t w = 0; w < weights; ++w)
      if (has[n * weights + w]) live[static_cast<std::size_t>(bucket.first) + w] = true;
  // Of a node, the ranges of weights in this rank's part: where each begins, nullptr where it has none.
  std::vector<ShardRange> ranges;
  for (const ShardRange& range : deal_.shards[me])
    if (range.weight >= bucket.first && range.weight < bucket.end) ranges.push_back(range);
  const auto offset = [&](const ShardRange& range) {
    const Dim place = layout_.place[static_cast<std::size_t>(range.weight)] + range.begin;
    return static_cast<std::size_t>(place - cuts[me]) * number;
  };
  using Slice = std::vector<std::byte*>;
  const auto add = [&](Slice& left, const Slice& right) {
    for (std::size_t k = 0; k < left.size(); ++k) {
      if (!right[k]) continue;
      if (!left[k]) {
        left[k] = right[k];
        continue;
      }
      own_.call(&Kernels::add, {.elements = ranges[k].end - ranges[k].begin,
                                .scale = 1,
                                .a = left[k],
                                .b = right[k],
                                .y = left[k]});
    }
  };
  LeafTree<Slice> tree;
  for (std::size_t n = 0; n < all_.size(); ++n) {
    Slice slice;
    for (const ShardRange& range : ranges)
      slice.push_back(has[n * weights + static_cast<std::size_t>(range.weight - bucket.first)]
                          ? parts[n] + offset(range)
                          : nullptr);
    tree.push({all_[n].first, all_[n].count, std::move(slice)}, add);
  }
  tree.finish(add);
  std::byte* const result = part(*spare_, me).data();
  for (std::size_t k = 0; k < ranges.size(); ++k) {
    const std::byte* sum = tree.nodes().front().value[k];
    if (!sum) continue;
    std::byte* place = result + offset(ranges[k]);
    if (place != sum)
      std::memcpy(place, sum, static_cast<std::size_t>(ranges[k].end - ranges[k].begin) * number);
    at[static_cast<std::size_t>(ranges[k].weight)] = place;
  }
}

}  // namespace rapt
