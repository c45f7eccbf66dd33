// SPDX-License-Identifier: Apache-2.0
// A node's hash is that of its parent with its tokens added.
#include "rapt/use/prefixes.h"

#include <algorithm>

#include "rapt/base/rng.h"

namespace rapt {

void PrefixHash::add(std::uint64_t x) {
  a = mix_key(a, x);
  b = mix_key(b ^ 0xA4093822299F31D0u, x);
}
void PrefixHash::add(std::string_view text) {
  add(text.size());
  for (const char c : text) add(static_cast<unsigned char>(c));
}
void PrefixHash::add(std::span<const std::int32_t> ids) {
  add(ids.size());
  for (const std::int32_t id : ids) add(static_cast<std::uint64_t>(static_cast<std::uint32_t>(id)));
}

// Pages are counted in keys, and learned tokens stand before the text.
Dim PrefixIndex::first_end(Dim whole) const {
  const Dim keys = std::max<Dim>(1, whole) + pool_.hidden();
  return (keys + kPageKeys - 1) / kPageKeys * kPageKeys - pool_.hidden();
}

std::vector<PrefixIndex::Node*> PrefixIndex::chain(const PrefixHash& root, std::span<const std::int32_t> ids,
                                                   Dim most, Dim whole, const Stream& stream) const {
  std::vector<Node*> nodes;
  PrefixHash hash = root;
  Dim from = 0;
  for (Dim end = first_end(whole); end <= most && end <= static_cast<Dim>(ids.size()); end += kPageKeys) {
    const auto mine = ids.subspan(static_cast<std::size_t>(from), static_cast<std::size_t>(end - from));
    hash.add(mine);
    const auto it = nodes_.find(hash);
    if (it == nodes_.end() || it->second->parent != (nodes.empty() ? nullptr : nodes.back()) ||
        !std::ranges::equal(it->second->ids, mine))
      break;
    nodes.push_back(it->second.get());
    from = end;
  }
  // Back to where every group can go on: a window's pages may be gone, a state may not have been kept.
  const auto held = [&] {
    std::vector<const KvPool::Held*> list;
    for (const Node* n : nodes) list.push_back(&n->held);
    return list;
  };
  while (!nodes.empty() && !pool_.continues(held(), nodes.back()->end, stream)) nodes.pop_back();
  return nodes;
}

Dim PrefixIndex::find(const PrefixHash& root, std::span<const std::int32_t> ids, Dim most, Dim whole,
                      const Stream& stream) const {
  const std::vector<Node*> nodes = chain(root, ids, most, whole, stream);
  return nodes.empty() ? 0 : nodes.back()->end;
}

Dim PrefixIndex::begin(const PrefixHash& root, std::span<const std::int32_t> ids, Dim most, Dim whole,
                       const Stream& stream, std::uint64_t sequence) {
  const std::vector<Node*> nodes = chain(root, ids, most, whole, stream);
  if (nodes.empty()) return 0;
  std::vector<const KvPool::Held*> held;
  for (Node* n : nodes) held.push_back(&n->held), touch(*n);
  if (pool_.has_states() && pool_.state_bytes() > pool_.free_bytes()) return 0;
  pool_.begin(sequence, held, nodes.back()->end, stream);
  return nodes.back()->end;
}

void PrefixIndex::insert(const PrefixHash& root, std::span<const std::int32_t> ids, Dim whole,
                         std::uint64_t sequence, bool passing) {
  const Dim length = std::min(pool_.length(sequence), static_cast<Dim>(ids.size()));
  const auto first_page = [&](Dim token) { return token > 0 ? (token + pool_.hidden()) / kPageKeys : 0; };
  const auto page_count = [&](Dim first, Dim last) {
    return (last + pool_.hidden()) / kPageKeys - first_page(first);
  };
  PrefixHash hash = root;
  Node* parent = nullptr;
  Dim from = 0;
  for (Dim end = first_end(whole); end <= length; from = end, end += kPageKeys) {
    const auto mine = ids.subspan(static_cast<std::size_t>(from), static_cast<std::size_t>(end - from));
    hash.add(mine);
    const auto it = nodes_.find(hash);
    if (it != nodes_.end()) {
      if (it->second->parent != parent || !std::ranges::equal(it->second->ids, mine)) return;
      parent = it->second.get();
      touch(*parent);
      // A window may have let go of pages, or no piece have ended here: this sequence may have what was
      // missing.
      if (!pool_.whole(parent->held)) {
        KvPool::Held again = pool_.hold(sequence, first_page(from), page_count(from, end));
        if (pool_.whole(again)) std::swap(again, parent->held);
        pool_.let_go(again);
      }
      continue;
    }
    auto node = std::make_unique<Node>();
    node->hash = hash;
    node->parent = parent;
    node->ids.assign(mine.begin(), mine.end());
    node->end = end;
    node->used = ++clock_;
    node->held = pool_.hold(sequence, first_page(from), page_count(from, end));
    if (parent) {
      if (parent->children++ == 0) leaves_.erase({parent->used, parent});
    }
    leaves_.insert({node->used, node.get()});
    parent = node.get();
    nodes_.emplace(hash, std::move(node));
  }
  if (!parent) return;
  if (parent->end == length) parent->passing = parent->passing && passing;
  thin(*parent);
}

void PrefixIndex::thin(const Node& newest) {
  if (!pool_.has_chunks()) return;
  const auto page = [&](const Node& n) { return (n.end + pool_.hidden()) / kPageKeys; };
  int ends = 0;  // of prompts, the newest first
  for (Node* n = newest.parent; n; n = n->parent) {
    const Dim at = page(*n), stays = 2 * (at & -at);
    if (!n->passing && ++ends <= kEndsKept) continue;
    if (n->children < 2 && page(newest) - at > stays) pool_.forget_chunks(n->held);
  }
}

void PrefixIndex::touch(Node& node) {
  const bool leaf = leaves_.erase({node.used, &node}) > 0;
  node.used = ++clock_;
  if (leaf) leaves_.insert({node.used, &node});
}

bool PrefixIndex::evict_idle() {
  for (const auto& [used, leaf] : leaves_)
    if (pool_.frees(leaf->held)) {
      evict(leaf);
      return true;
    }
  return false;
}

// A leaf whose pages are all in use gives nothing back, unless it stands before a node that does: a sequence
// lets go of the pages behind its window and still uses the last.
bool PrefixIndex::evict_one() {
  if (evict_idle()) return true;
  for (const auto& [used, leaf] : leaves_)
    for (const Node* n = leaf; n; n = n->parent)
      if (pool_.frees(n->held)) {
        evict(leaf);
        return true;
      }
  return false;
}

void PrefixIndex::evict(Node* node) {
  leaves_.erase({node->used, node});
  if (Node* parent = node->parent; parent && --parent->children == 0) leaves_.insert({parent->used, parent});
  pool_.let_go(node->held);
  nodes_.erase(node->hash);
}

std::size_t PrefixIndex::reclaimable() const {
  std::size_t bytes = 0;
  for (const auto& [hash, node] : nodes_) bytes += pool_.freed_by(node->held);
  return bytes;
}

void PrefixIndex::clear() {
  while (!leaves_.empty()) evict(leaves_.begin()->second);
}

}  // namespace rapt
