// SPDX-License-Identifier: Apache-2.0
// A page counts its users in the 64 bytes before it; the last who gives it back puts it into the pool.
#include "rapt/nn/kv_cache.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

namespace rapt {
namespace {

// Stands in the 64 bytes before a page.
struct Head {
  std::size_t bytes;
  int users;  // sequences that hold it
};
Head& head_of(std::byte* page) { return *reinterpret_cast<Head*>(page - 64); }

}  // namespace

void KvCache::Free::operator()(std::byte* p) const { std::free(p); }

Dim KvCache::length(std::uint64_t id) const {
  const auto it = entries_.find(id);
  return it == entries_.end() ? 0 : it->second.length;
}

void KvCache::drop(std::uint64_t id) {
  const auto it = entries_.find(id);
  if (it == entries_.end()) return;
  each_slot(it->second, [&](Slot& s) { shrink(s, 0); });
  entries_.erase(it);
}

std::byte* KvCache::take_page(std::size_t bytes) {
  std::vector<std::byte*>& pool = free_[bytes];
  std::byte* page = nullptr;
  if (!pool.empty()) {
    page = pool.back();
    pool.pop_back();
    --free_count_;
  } else {
    const std::size_t all = (64 + bytes + 63) / 64 * 64;
    auto* memory = static_cast<std::byte*>(std::aligned_alloc(64, all));
    if (!memory)
      fail("out of memory: the key/value cache asked for a page of ", bytes, " bytes after ", made_bytes_,
           "; use a shorter context, fewer sequences or a narrower cache format");
    owned_.emplace_back(memory);
    page = memory + 64;
    ++made_;
    made_bytes_ += bytes;
  }
  head_of(page) = {bytes, 1};
  held_bytes_ += bytes;
  return page;
}

void KvCache::give_page(std::byte* page) {
  Head& h = head_of(page);
  if (--h.users > 0) return;
  held_bytes_ -= h.bytes;
  free_[h.bytes].push_back(page);
  ++free_count_;
}

// Room for keys [past, length), in pages that are this sequence's alone.
void KvCache::grow(Slot& s, Dim past, Dim length, std::size_t page_bytes) {
  for (auto p = static_cast<std::size_t>(past / kPageKeys); static_cast<Dim>(p) * kPageKeys < length; ++p) {
    if (p >= s.pages.size()) s.pages.resize(p + 1, nullptr);
    std::byte*& page = s.pages[p];
    if (page && head_of(page).users == 1) continue;
    std::byte* own = take_page(page_bytes);
    if (page) {
      if (static_cast<Dim>(p) * kPageKeys < past) std::memcpy(own, page, page_bytes);
      give_page(page);
    }
    page = own;
  }
  s.length = length;
}

void KvCache::shrink(Slot& s, Dim length) {
  const auto count = static_cast<std::size_t>((length + kPageKeys - 1) / kPageKeys);
  for (std::size_t p = count; p < s.pages.size(); ++p)
    if (s.pages[p]) give_page(s.pages[p]);
  if (s.pages.size() > count) s.pages.resize(count);
  s.length = length;
}

// The next row stands at s.length and sees keys from s.length - left on.
void KvCache::evict(Slot& s) {
  if (s.left >= Mask::kAll) return;
  const Dim first_seen = s.length - s.left;
  for (std::size_t p = 0; p < s.pages.size(); ++p) {
    const Dim begin = static_cast<Dim>(p) * kPageKeys;
    if (begin + kPageKeys > first_seen) break;
    if (begin < s.keep || !s.pages[p]) continue;
    give_page(s.pages[p]);
    s.pages[p] = nullptr;
  }
}

bool KvCache::bias_apart(const Attention& a) const {
  return key_bias_ == KeyBias::apart && is_block(format_) && !a.spec.cross && a.spec.score == Score::dot &&
         a.rope && a.k.b && a.k.b->format == real_ && !a.k_norm && !a.cosine && !a.gate_at(GateRecipe::At::k);
}

const KvCache::Angles* KvCache::angles_of(const Entry& e, const Attention& a) {
  for (const Angles& t : e.angles)
    if (t.head_dim == a.spec.head_dim && t.spec == *a.rope) return &t;
  return nullptr;
}

void KvCache::write(Run& run, const Attention& a, std::span<const Sequence> sequences, const Tensor& k,
                    const Tensor& v, const RopeTable* table) {
  const AttentionSpec& s = a.spec;
  const KvLayout layout = kv_layout(format_, s.kv_heads, s.head_dim, s.v_dim);
  std::vector<AttentionPart> parts;
  for (const Sequence& q : sequences) {
    Entry& e = entries_[q.id];
    const auto slot = static_cast<std::size_t>(a.slot);
    if (slot >= e.slots.size()) e.slots.resize(slot + 1);
    Slot& place = e.slots[slot];
    place.left = a.mask.left;
    place.keep = a.mask.keep;
    place.cross = s.cross;
    // Not place.length: a pass that failed midway may have written already.
    const Dim length = q.past + q.count;
    grow(place, q.past, length, static_cast<std::size_t>(layout.page_bytes));
    parts.push_back({q.first, q.count, 0, length, place.pages.data()});
    if (!bias_apart(a)) continue;

    // The angles of the new positions, once for all layers that rotate alike.
    if (!table || !table->cos)
      fail("key/value cache: keys without their bias need the angles of their positions");
    const Dim half = table->cos[1], rows = 2 * half + (2 * half < s.head_dim);
    if (!angles_of(e, a))
      e.angles.push_back({*a.rope, s.head_dim, half, rows, {.left = a.mask.left, .keep = a.mask.keep}});
    Angles& t = const_cast<Angles&>(*angles_of(e, a));
    t.slot.left = std::max(t.slot.left, a.mask.left);
    t.slot.keep = std::max(t.slot.keep, a.mask.keep);
    if (t.slot.length == length) continue;
    grow(t.slot, q.past, length, static_cast<std::size_t>(rows * kPageKeys) * size_of(real_));
    auto put = [&](auto* zero) {
      using T = std::remove_pointer_t<decltype(zero)>;
      const std::span<T> cos = table->cos.as<T>(), sin = table->sin.as<T>();
      for (Dim i = 0; i < q.count; ++i) {
        const Dim key = q.past + i;
        T* to =
            reinterpret_cast<T*>(t.slot.pages[static_cast<std::size_t>(key / kPageKeys)]) + key % kPageKeys;
        for (Dim c = 0; c < half; ++c) {
          const auto from = static_cast<std::size_t>((q.first + i) * half + c);
          to[c * kPageKeys] = cos[from];
          to[(half + c) * kPageKeys] = sin[from];
        }
        if (rows > 2 * half) to[2 * half * kPageKeys] = 1;
      }
    };
    if (real_ == DType::f64) put(static_cast<double*>(nullptr));
    else put(static_cast<float*>(nullptr));
  }
  run.call(&Kernels::kv_write, {.layout = layout,
                                .part_count = static_cast<Dim>(parts.size()),
                                .parts = parts.data(),
                                .k = k.data,
                                .v = v.data});
}

KvView KvCache::view(const Attention& a, std::span<const Sequence> sequences) const {
  KvView view{.layout = kv_layout(format_, a.spec.kv_heads, a.spec.head_dim, a.spec.v_dim), .pages = {}};
  for (const Sequence& q : sequences) {
    const Entry& e = entries_.at(q.id);
    const Slot& s = e.slots[static_cast<std::size_t>(a.slot)];
    view.pages.emplace_back(s.pages.data(), s.pages.size());
    if (!bias_apart(a)) continue;
    const Angles& t = *angles_of(e, a);
    view.bias.bias = a.k.b->data.get();
    view.bias.half = t.half;
    view.bias.rows = t.rows;
    view.bias.neighbours = a.rope->layout == RopeLayout::pairs;
    view.bias.angles.emplace_back(t.slot.pages.data(), t.slot.pages.size());
  }
  return view;
}

bool KvCache::has(int slot, std::uint64_t id) const { return slot_length(slot, id) > 0; }

Dim KvCache::slot_length(int slot, std::uint64_t id) const {
  const auto it = entries_.find(id);
  if (it == entries_.end() || static_cast<std::size_t>(slot) >= it->second.slots.size()) return 0;
  return it->second.slots[static_cast<std::size_t>(slot)].length;
}

const RecurrentEntry* KvCache::recurrent(std::uint64_t id) const {
  const auto it = entries_.find(id);
  return it == entries_.end() ? nullptr : &it->second.recurrent;
}

void KvCache::set_recurrent(std::uint64_t id, RecurrentEntry entry) {
  entries_[id].recurrent = std::move(entry);
}

void KvCache::advance(std::span<const Sequence> sequences, Dim hidden_rows) {
  for (const Sequence& q : sequences) {
    Entry& e = entries_[q.id];
    e.length = q.past + q.count - hidden_rows;
    e.hidden = hidden_rows;
    each_slot(e, [&](Slot& s) { evict(s); });
  }
}

// Whether the row after `length` tokens would see what an eviction took.
void KvCache::check_not_evicted(std::uint64_t id, const Entry& e, Dim length) const {
  if (length < 0 || length > e.length)
    fail("key/value cache: sequence ", id, " has ", e.length, " tokens, it cannot end after ", length);
  if (e.recurrent.state && length != 0 && length != e.length)
    fail("key/value cache: sequence ", id, " cannot go back to ", length, " of its ", e.length,
         " tokens: of a recurrent model only the state after the last one is kept; "
         "drop the sequence and read it again");
  const Dim keys = length > 0 ? length + e.hidden : 0;
  for (const Slot& s : e.slots)
    for (Dim p = 0; !s.cross && p < static_cast<Dim>(s.pages.size()) && p * kPageKeys < keys; ++p)
      if (!s.pages[static_cast<std::size_t>(p)] && (p + 1) * kPageKeys > keys - s.left)
        fail("key/value cache: sequence ", id, " cannot go back to ", length, " of its ", e.length,
             " tokens: a window of ", s.left + 1, " keys has let go of keys ", p * kPageKeys, " … ",
             (p + 1) * kPageKeys - 1, "; drop the sequence and read it again");
}

void KvCache::truncate(std::uint64_t id, Dim length) {
  const auto it = entries_.find(id);
  if (it == entries_.end()) {
    if (length != 0) fail("key/value cache: there is no sequence ", id, " to cut to ", length, " tokens");
    return;
  }
  Entry& e = it->second;
  check_not_evicted(id, e, length);
  if (length == e.length) return;
  each_slot(e, [&](Slot& s) {
    // none: the next pass brings the hidden rows again
    if (!s.cross) shrink(s, length > 0 ? length + e.hidden : 0);
  });
  e.length = length;
  if (length == 0) e.recurrent.state = e.recurrent.start;
}

void KvCache::share(std::uint64_t from, std::uint64_t to, Dim length) {
  const auto it = entries_.find(from);
  if (it == entries_.end()) fail("key/value cache: there is no sequence ", from, " to share");
  if (from == to) fail("key/value cache: sequence ", from, " cannot be shared with itself; truncate cuts it");
  check_not_evicted(from, it->second, length);
  Entry e = it->second;  // the pages are counted below
  each_slot(e, [&](Slot& s) {
    if (!s.cross) {
      s.length = length > 0 ? length + e.hidden : 0;
      s.pages.resize(
          std::min(s.pages.size(), static_cast<std::size_t>((s.length + kPageKeys - 1) / kPageKeys)));
    }
    for (std::byte* page : s.pages)
      if (page) ++head_of(page).users;
  });
  e.length = length;
  if (length == 0) e.recurrent.state = e.recurrent.start;
  drop(to);
  entries_[to] = std::move(e);
}

}  // namespace rapt
