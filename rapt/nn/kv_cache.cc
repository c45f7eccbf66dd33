// SPDX-License-Identifier: Apache-2.0
#include "rapt/nn/kv_cache.h"

#include <algorithm>
#include <cstdlib>

namespace rapt {

void KvCache::Free::operator()(std::byte* p) const { std::free(p); }

Dim KvCache::length(std::uint64_t id) const {
  const auto it = entries_.find(id);
  return it == entries_.end() ? 0 : it->second.length;
}

void KvCache::drop(std::uint64_t id) {
  const auto it = entries_.find(id);
  if (it == entries_.end()) return;
  for (Slot& s : it->second.slots)
    for (std::byte* page : s.pages)
      if (page) give_page(page, s.page_bytes);
  entries_.erase(it);
}

std::byte* KvCache::take_page(std::size_t bytes) {
  std::vector<std::byte*>& pool = free_[bytes];
  if (!pool.empty()) {
    std::byte* page = pool.back();
    pool.pop_back();
    --free_count_;
    return page;
  }
  auto* page = static_cast<std::byte*>(std::aligned_alloc(64, (bytes + 63) / 64 * 64));
  if (!page)
    fail("out of memory: the key/value cache asked for a page of ", bytes, " bytes after ", made_bytes_,
         "; use a shorter context or fewer sequences");
  owned_.emplace_back(page);
  ++made_;
  made_bytes_ += bytes;
  return page;
}

void KvCache::give_page(std::byte* page, std::size_t bytes) {
  free_[bytes].push_back(page);
  ++free_count_;
}

void KvCache::write(Run& run, int slot, const Attention& a, std::span<const Sequence> sequences, const Tensor& k, const Tensor& v) {
  const AttentionSpec& s = a.spec;
  std::vector<AttentionPart> parts;
  for (const Sequence& q : sequences) {
    Entry& e = entries_[q.id];
    if (static_cast<std::size_t>(slot) >= e.slots.size()) e.slots.resize(static_cast<std::size_t>(slot) + 1);
    Slot& place = e.slots[static_cast<std::size_t>(slot)];
    place.left = a.mask.left;
    place.keep = a.mask.keep;
    place.page_bytes = static_cast<std::size_t>(kPageKeys * s.kv_heads * (s.head_dim + s.v_dim)) * size_of(real_);
    const Dim length = q.past + q.count;  // not place.length: a pass that failed midway may have written already
    while (static_cast<Dim>(place.pages.size()) * kPageKeys < length) place.pages.push_back(take_page(place.page_bytes));
    place.length = length;
    parts.push_back({q.first, q.count, 0, length, place.pages.data()});
  }
  run.kernels().kv_write(run.queue(), {.kv_heads = s.kv_heads,
                                       .d = s.head_dim,
                                       .dv = s.v_dim,
                                       .part_count = static_cast<Dim>(parts.size()),
                                       .parts = parts.data(),
                                       .k = k.data,
                                       .v = v.data});
}

KvView KvCache::view(int slot, const Attention& a, std::span<const Sequence> sequences) const {
  KvView view{.kv_heads = a.spec.kv_heads, .d = a.spec.head_dim, .dv = a.spec.v_dim, .pages = {}};
  for (const Sequence& q : sequences) {
    const Slot& s = entries_.at(q.id).slots[static_cast<std::size_t>(slot)];
    view.pages.emplace_back(s.pages.data(), s.pages.size());
  }
  return view;
}

bool KvCache::has(int slot, std::uint64_t id) const { return slot_length(slot, id) > 0; }

Dim KvCache::slot_length(int slot, std::uint64_t id) const {
  const auto it = entries_.find(id);
  if (it == entries_.end() || static_cast<std::size_t>(slot) >= it->second.slots.size()) return 0;
  return it->second.slots[static_cast<std::size_t>(slot)].length;
}

void KvCache::advance(std::span<const Sequence> sequences, Dim hidden_rows) {
  for (const Sequence& q : sequences) {
    Entry& e = entries_[q.id];
    e.length = q.past + q.count - hidden_rows;
    for (Slot& s : e.slots) {
      if (s.left >= Mask::kAll) continue;
      // The next row stands at s.length and sees keys from s.length - left on.
      const Dim first_seen = s.length - s.left;
      for (std::size_t p = 0; p < s.pages.size(); ++p) {
        const Dim begin = static_cast<Dim>(p) * kPageKeys;
        if (begin + kPageKeys > first_seen) break;
        if (begin < s.keep || !s.pages[p]) continue;
        give_page(s.pages[p], s.page_bytes);
        s.pages[p] = nullptr;
      }
    }
  }
}

}  // namespace rapt
