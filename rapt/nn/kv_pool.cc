// SPDX-License-Identifier: Apache-2.0
// Groups are found once, from the model's parts; a page's users are counted by its slab. KvPass notes what
// it takes, so that it can give it back.
#include "rapt/nn/kv_pool.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

#include "rapt/base/memory.h"
#include "rapt/nn/model.h"

namespace rapt {
namespace {

std::size_t at(Dim i) { return static_cast<std::size_t>(i); }
Dim pages_for(Dim keys) { return (keys + kPageKeys - 1) / kPageKeys; }

// Address space to reserve where nobody set a limit: what the machine has.
std::size_t machine_memory() {
  const long pages = sysconf(_SC_PHYS_PAGES), size = sysconf(_SC_PAGESIZE);
  return pages > 0 && size > 0 ? static_cast<std::size_t>(pages) * static_cast<std::size_t>(size)
                               : std::size_t{1} << 36;
}

}  // namespace

static_assert(kChunkRows == kPageKeys);

Dim KvPool::Group::pages(Dim keys) const {
  return kind == Kind::states ? keys / kPageKeys : pages_for(keys);  // states are those of whole chunks
}
// Of chunks: the page before the one that the next row goes into is the oldest that is needed.
Dim KvPool::Group::left(const Stream& stream) const {
  if (chunks()) return kPageKeys;
  Dim most = 0;
  for (const Mask& m : masks) most = std::max(most, m.of({.stream = stream}).left);
  return most;
}
Dim KvPool::Group::keep(const Stream& stream) const {
  Dim most = 0;
  for (const Mask& m : masks) most = std::max(most, m.of({.stream = stream}).keep);
  return most;
}

KvPool::KvPool(const Model& model) : KvPool(model, model.real) {}

KvPool::KvPool(const Model& model, DType format, std::size_t budget, KeyBias key_bias)
    : model_(model),
      real_(model.real),
      format_(model.real == DType::f64 ? model.real : format),
      key_bias_(key_bias),
      budget_(budget),
      hidden_(model.recipe.embed.sink_tokens) {
  if (!model.decoder) return;
  for (const Layer& layer : model.decoder->layers)
    for (const Part& part : layer.parts)
      std::visit(
          [&](const auto& body) {
            if (const auto keys = cached_keys(body)) add_keys(*keys);
            if (const auto chunks = cached_chunks(body)) add_chunks(*chunks);
          },
          part.body);
  std::size_t limit = budget > 0 ? budget : machine_memory();
  // A process with little address space needs some for other things.
  rlimit space{};
  if (getrlimit(RLIMIT_AS, &space) == 0 && space.rlim_cur != RLIM_INFINITY)
    limit = std::min<std::size_t>(limit, available_memory() / (2 * (groups_.size() + 1)));
  for (Group& g : groups_)
    g.slab = Slab(static_cast<std::size_t>(g.layout.page_bytes) * static_cast<std::size_t>(g.layers), limit);
  if (const auto& r = model.decoder->recurrent) {
    state_half_ = 2 * at(recurrent_state_values(*r)) * size_of(real_);
    memory_row_ = at(recurrent_memory_values(*r)) * size_of(real_);
    states_ = Slab(2 * state_half_, limit);
  }
}
KvPool::~KvPool() = default;

void KvPool::add_keys(const CachedKeys& keys) {
  const Kind kind = keys.cross ? Kind::cross : Kind::keys;
  const auto slot = static_cast<std::size_t>(keys.slot);
  if (slot >= places_.size()) places_.resize(slot + 1);
  Place& place = places_[slot];
  const auto same = [&](const Group& g) {
    return g.kind == kind && g.layout.kv_heads == keys.kv_heads && g.layout.d == keys.head_dim &&
           g.layout.dv == keys.v_dim && g.layout.values_in_keys == keys.values_in_keys &&
           g.masks[0] == keys.mask;
  };
  auto it = std::find_if(groups_.begin(), groups_.end(), same);
  if (it == groups_.end())
    it = groups_.insert(groups_.end(), Group{.kind = kind,
                                             .layout = kv_layout(format_, keys.kv_heads, keys.head_dim,
                                                                 keys.v_dim, keys.values_in_keys),
                                             .masks = {keys.mask}});
  place.group = static_cast<int>(it - groups_.begin());
  place.layer = it->layers++;
  if (!keys.bias_under || key_bias_ != KeyBias::apart || !is_block(format_)) return;
  const RopeSpec& rope = *keys.bias_under;
  it = std::find_if(groups_.begin(), groups_.end(), [&](const Group& g) {
    return g.kind == Kind::angles && g.head_dim == keys.head_dim && g.rope == rope;
  });
  if (it == groups_.end()) {
    Group g{.kind = Kind::angles, .layers = 1, .rope = rope, .head_dim = keys.head_dim};
    g.half = static_cast<Dim>(rope_frequencies(rope, keys.head_dim, 1).inverse.size());
    g.rows = 2 * g.half + (2 * g.half < keys.head_dim);
    g.layout.page_bytes = g.rows * kPageKeys * static_cast<Dim>(size_of(real_));
    it = groups_.insert(groups_.end(), std::move(g));
  }
  if (std::find(it->masks.begin(), it->masks.end(), keys.mask) == it->masks.end())
    it->masks.push_back(keys.mask);
  place.angles = static_cast<int>(it - groups_.begin());
}

void KvPool::add_chunks(const CachedChunks& chunks) {
  const auto slot = static_cast<std::size_t>(chunks.slot);
  if (slot >= places_.size()) places_.resize(slot + 1);
  const auto place = [&](Kind kind, Dim values, int& group, int& layer) {
    const Dim bytes = values * static_cast<Dim>(size_of(real_));
    auto it = std::find_if(groups_.begin(), groups_.end(),
                           [&](const Group& g) { return g.kind == kind && g.layout.page_bytes == bytes; });
    if (it == groups_.end())
      it = groups_.insert(groups_.end(), Group{.kind = kind, .layout = {.page_bytes = bytes}, .masks = {}});
    group = static_cast<int>(it - groups_.begin());
    layer = it->layers++;
  };
  Place& at = places_[slot];
  at.inputs = chunks.inputs;
  place(Kind::rows, kPageKeys * chunks.row_values, at.group, at.layer);
  if (chunks.state_values > 0) place(Kind::states, chunks.state_values, at.states, at.state_layer);
  has_chunks_ = true;
}

Dim KvPool::length(std::uint64_t id) const {
  const auto it = entries_.find(id);
  return it == entries_.end() ? 0 : it->second.length;
}

Dim KvPool::memory(std::uint64_t id) const {
  const auto it = entries_.find(id);
  if (it == entries_.end()) return 0;
  if (it->second.memory) return it->second.memory->keys;
  for (std::size_t g = 0; g < groups_.size(); ++g)
    if (groups_[g].kind == Kind::cross) return it->second.tables[g].length;
  return 0;
}

std::size_t KvPool::pages() const {
  std::size_t n = 0;
  for (const Group& g : groups_) n += g.slab.taken();
  return n;
}

std::size_t KvPool::shared_pages() const {
  std::size_t n = 0;
  for (const Group& g : groups_) n += g.slab.shared();
  return n;
}

std::size_t KvPool::free_bytes() const {
  if (budget_ == kNoLimit) return std::numeric_limits<std::size_t>::max();
  return budget_ > bytes() ? budget_ - bytes() : 0;
}

std::size_t KvPool::page_bytes() const {
  std::size_t n = 0;
  for (const Group& g : groups_)
    if (g.kind != Kind::cross) n += g.slab.place_bytes();
  return n;
}

// Free places of other slabs keep their memory for the next who wants it, unless the budget says otherwise.
std::int32_t KvPool::take(Slab& slab) {
  if (budget_ != kNoLimit && slab.warm() == 0) {
    std::size_t holds = bytes() + slab.place_bytes();
    for (const Group& g : groups_) holds += g.slab.warm() * g.slab.place_bytes();
    for (Group& g : groups_)
      while (holds > budget_ && g.slab.discard_one()) holds -= g.slab.place_bytes();
  }
  const std::int32_t place = slab.take();
  if (place < 0)
    fail("out of memory: the key/value cache asked for a page of ", slab.place_bytes(), " bytes after ",
         bytes(), "; use a shorter context, fewer sequences or a narrower cache format");
  used_ += slab.place_bytes();
  return place;
}

void KvPool::give(Slab& slab, std::int32_t place) {
  if (slab.give(place)) used_ -= slab.place_bytes();
}

void KvPool::give_pages(Group& group, Table& table, std::size_t from) {
  for (std::size_t p = from; p < table.pages.size(); ++p)
    if (table.pages[p] >= 0) give(group.slab, table.pages[p]);
  if (table.pages.size() > from) table.pages.resize(from);
}

void KvPool::drop(std::uint64_t id) {
  const auto it = entries_.find(id);
  if (it == entries_.end()) return;
  for (std::size_t g = 0; g < groups_.size(); ++g) give_pages(groups_[g], it->second.tables[g], 0);
  if (it->second.state >= 0) give(states_, it->second.state);
  entries_.erase(it);
}

// The next row stands at the table's length, or as many rows before it as were guessed, and sees keys from
// there less `left` on.
void KvPool::evict(Entry& e) {
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    Group& group = groups_[g];
    const Dim left = group.left(e.stream), keep = group.keep(e.stream);
    if (group.kind == Kind::cross || left >= Mask::kAll) continue;
    Table& t = e.tables[g];
    for (std::size_t p = 0; p < t.pages.size(); ++p) {
      const Dim begin = static_cast<Dim>(p) * kPageKeys;
      if (begin + kPageKeys > t.length - e.guessed - left) break;
      if (begin < keep || t.pages[p] < 0) continue;
      give(group.slab, t.pages[p]);
      t.pages[p] = -1;
    }
  }
}

bool KvPool::bias_apart(const Attention& a) const {
  return places_[static_cast<std::size_t>(a.slot)].angles >= 0;
}

// ------------------------------------------------------------------------------------------------ room
template <class F>
void KvPool::each_needed(const Group& group, const Table* table, Dim upto, const F& f) {
  const Dim past = table ? table->length : 0;
  // Chunks that a pass runs through from end to end, or beyond, leave nothing.
  const Dim first = group.chunks() ? std::max(past / kPageKeys, upto / kPageKeys - 1) : past / kPageKeys;
  for (Dim p = first; p < group.pages(upto); ++p) {
    const std::int32_t there = table && p < static_cast<Dim>(table->pages.size()) ? table->pages[at(p)] : -1;
    if (there < 0 || group.slab.users(there) > 1) f(p, there);
  }
}

// Learned tokens come before the first.
Dim KvPool::keys_after(const Table* table, Dim tokens) const {
  return table && table->length > 0 ? table->length + tokens : hidden_ + tokens;
}

std::size_t KvPool::need(std::span<const KvGrowth> growths) const {
  std::size_t bytes = 0;
  for (const KvGrowth& w : growths) {
    const auto it = entries_.find(w.id);
    const Entry* e = it == entries_.end() ? nullptr : &it->second;
    for (std::size_t g = 0; g < groups_.size(); ++g) {
      const Group& group = groups_[g];
      const bool cross = group.kind == Kind::cross;
      if (cross && w.memory == 0) continue;
      const Table* table = e && !cross ? &e->tables[g] : nullptr;
      each_needed(group, table, cross ? w.memory : keys_after(table, w.tokens),
                  [&](Dim, std::int32_t) { bytes += group.slab.place_bytes(); });
    }
    if (state_half_ > 0 && (!e || e->state < 0)) bytes += states_.place_bytes();
    bytes += at(w.memory) * memory_row_;
  }
  return bytes;
}

// Pages of a sequence with so many keys, one that is being written included.
std::size_t KvPool::held_pages(const Group& group, Dim keys, const Stream& stream) const {
  const Dim left = group.left(stream), all = group.pages(keys);
  if (left >= Mask::kAll) return at(all);
  if (group.chunks()) return at(std::min<Dim>(all, group.kind == Kind::states ? 2 : 3));
  return at(std::min(all, pages_for(group.keep(stream)) + pages_for(left + 1) + 1));
}

std::size_t KvPool::bytes_of(Dim tokens, Dim memory, const Stream& stream) const {
  std::size_t bytes = state_half_ > 0 ? states_.place_bytes() : 0;
  for (const Group& g : groups_)
    bytes += (g.kind == Kind::cross ? at(pages_for(memory)) : held_pages(g, tokens + hidden_, stream)) *
             g.slab.place_bytes();
  return bytes + at(memory) * memory_row_;
}

std::size_t KvPool::bytes_at_once(Dim tokens, Dim memory) const {
  std::size_t bytes = state_half_ > 0 ? states_.place_bytes() : 0;
  for (const Group& g : groups_) {
    const Dim pages = g.pages(g.kind == Kind::cross ? memory : tokens + hidden_),
              most = g.kind == Kind::states ? 1 : 2;
    bytes += at(g.chunks() ? std::min(pages, most) : pages) * g.slab.place_bytes();
  }
  return bytes + at(memory) * memory_row_;
}

// ------------------------------------------------------------------------------------- sharing and cutting
// Whether the row after `length` tokens would see what an eviction took.
void KvPool::check_not_evicted(std::uint64_t id, const Entry& e, Dim length) const {
  if (length < 0 || length > e.length)
    fail("key/value cache: sequence ", id, " has ", e.length, " tokens, it cannot end after ", length);
  if (e.state >= 0 && length != 0 && length != e.length)
    fail("key/value cache: sequence ", id, " cannot go back to ", length, " of its ", e.length,
         " tokens: of a recurrent model only the state after the last one is kept; "
         "drop the sequence and read it again");
  const Dim keys = length > 0 ? length + e.hidden : 0;
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    const Group& group = groups_[g];
    if (group.kind == Kind::cross) continue;
    const Dim left = group.left(e.stream);
    const std::vector<std::int32_t>& pages = e.tables[g].pages;
    for (Dim p = 0; p < static_cast<Dim>(pages.size()) && p < group.pages(keys); ++p) {
      if (pages[at(p)] >= 0 || (p + 1) * kPageKeys <= keys - left) continue;
      if (group.chunks())
        fail("key/value cache: sequence ", id, " cannot go back to ", length, " of its ", e.length,
             " tokens: layers with a state keep the one before their present chunk of ", kPageKeys,
             " tokens; drop the sequence and read it again");
      fail("key/value cache: sequence ", id, " cannot go back to ", length, " of its ", e.length,
           " tokens: a window of ", left + 1, " keys has let go of keys ", p * kPageKeys, " … ",
           (p + 1) * kPageKeys - 1, "; drop the sequence and read it again");
    }
  }
}

void KvPool::truncate(std::uint64_t id, Dim length) {
  const auto it = entries_.find(id);
  if (it == entries_.end()) {
    if (length != 0) fail("key/value cache: there is no sequence ", id, " to cut to ", length, " tokens");
    return;
  }
  Entry& e = it->second;
  check_not_evicted(id, e, length);
  e.guessed = 0;
  if (length == e.length) return evict(e);
  // none: the next pass brings the hidden rows again
  const Dim keys = length > 0 ? length + e.hidden : 0;
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    if (groups_[g].kind == Kind::cross) continue;
    give_pages(groups_[g], e.tables[g], at(groups_[g].pages(keys)));
    e.tables[g].length = keys;
  }
  e.length = length;
  evict(e);
  if (e.state >= 0) {  // length is 0: the state before the first token
    std::byte* half = states_.at(e.state) + static_cast<std::size_t>(e.half) * state_half_;
    std::memcpy(half, half + state_half_ / 2, state_half_ / 2);
  }
}

void KvPool::guess(std::uint64_t id, Dim rows) {
  if (const auto it = entries_.find(id); it != entries_.end()) it->second.guessed = rows;
}

void KvPool::share(std::uint64_t from, std::uint64_t to, Dim length) {
  const auto it = entries_.find(from);
  if (it == entries_.end()) fail("key/value cache: there is no sequence ", from, " to share");
  if (from == to) fail("key/value cache: sequence ", from, " cannot be shared with itself; truncate cuts it");
  check_not_evicted(from, it->second, length);
  Entry e = it->second;  // the pages are counted below
  if (e.state >= 0) {
    e.state = take(states_);
    std::memcpy(states_.at(e.state), states_.at(it->second.state), 2 * state_half_);
  }
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    Table& t = e.tables[g];
    if (groups_[g].kind != Kind::cross) {
      t.length = length > 0 ? length + e.hidden : 0;
      t.pages.resize(std::min(t.pages.size(), at(groups_[g].pages(t.length))));
    }
    for (const std::int32_t page : t.pages)
      if (page >= 0) groups_[g].slab.add_user(page);
  }
  drop(to);
  Entry& made = entries_[to] = std::move(e);
  if (length != made.length) {
    made.length = length;
    if (made.state >= 0) {
      std::byte* half = states_.at(made.state) + static_cast<std::size_t>(made.half) * state_half_;
      std::memcpy(half, half + state_half_ / 2, state_half_ / 2);
    }
  }
}

// ----------------------------------------------------------------------------- pages that outlive a sequence
KvPool::Held KvPool::hold(std::uint64_t id, Dim first, Dim count) {
  const auto it = entries_.find(id);
  if (it == entries_.end()) fail("key/value cache: there is no sequence ", id, " to hold pages of");
  const Entry& e = it->second;
  Held held;
  held.pages.resize(groups_.size());
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    if (groups_[g].kind == Kind::cross) continue;
    if ((first + count) * kPageKeys > e.tables[g].length)
      fail("key/value cache: sequence ", id, " has ", e.tables[g].length, " keys, pages ", first, " … ",
           first + count - 1, " of it are not full");
    held.pages[g].assign(e.tables[g].pages.begin() + first, e.tables[g].pages.begin() + first + count);
  }
  if (e.state >= 0 && e.length + e.hidden == (first + count) * kPageKeys &&
      states_.place_bytes() <= free_bytes()) {
    held.state = take(states_);
    const std::size_t half = static_cast<std::size_t>(e.half) * state_half_;
    std::memcpy(states_.at(held.state), states_.at(e.state) + half, state_half_);
  }
  for (std::size_t g = 0; g < groups_.size(); ++g)
    for (const std::int32_t page : held.pages[g])
      if (page >= 0) groups_[g].slab.add_user(page);
  return held;
}

void KvPool::let_go(Held& held) {
  for (std::size_t g = 0; g < held.pages.size(); ++g)
    for (const std::int32_t page : held.pages[g])
      if (page >= 0) give(groups_[g].slab, page);
  if (held.state >= 0) give(states_, held.state);
  held = {};
}

std::size_t KvPool::freed_by(const Held& held) const {
  std::size_t bytes = held.state >= 0 ? states_.place_bytes() : 0;
  for (std::size_t g = 0; g < held.pages.size(); ++g)
    for (const std::int32_t page : held.pages[g])
      if (page >= 0 && groups_[g].slab.users(page) == 1) bytes += groups_[g].slab.place_bytes();
  return bytes;
}

std::size_t KvPool::freed_by(std::uint64_t id) const {
  const auto it = entries_.find(id);
  if (it == entries_.end()) return 0;
  std::size_t bytes = it->second.state >= 0 ? states_.place_bytes() : 0;
  for (std::size_t g = 0; g < groups_.size(); ++g)
    for (const std::int32_t page : it->second.tables[g].pages)
      if (page >= 0 && groups_[g].slab.users(page) == 1) bytes += groups_[g].slab.place_bytes();
  return bytes;
}

bool KvPool::whole(const Held& held) const {
  for (std::size_t g = 0; g < held.pages.size(); ++g) {
    const std::vector<std::int32_t>& pages = held.pages[g];
    for (std::size_t p = groups_[g].chunks() && !pages.empty() ? pages.size() - 1 : 0; p < pages.size(); ++p)
      if (pages[p] < 0) return false;
  }
  return held.state >= 0 || !has_states();
}

void KvPool::forget_chunks(Held& held) {
  for (std::size_t g = 0; g < held.pages.size(); ++g)
    if (groups_[g].chunks())
      for (std::int32_t& page : held.pages[g])
        if (page >= 0) give(groups_[g].slab, std::exchange(page, -1));
}
bool KvPool::has_chunks(const Held& held) const {
  for (std::size_t g = 0; g < held.pages.size(); ++g)
    if (groups_[g].chunks() && !held.pages[g].empty() && held.pages[g].back() >= 0) return true;
  return false;
}

bool KvPool::continues(std::span<const Held* const> chain, Dim length, const Stream& stream) const {
  if (chain.empty() || length < 1) return false;
  if (has_states() && chain.back()->state < 0) return false;
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    if (groups_[g].kind == Kind::cross) return false;
    const Dim left = groups_[g].left(stream), keep = groups_[g].keep(stream), keys = length + hidden_;
    Dim p = 0;
    for (const Held* h : chain)
      for (const std::int32_t page : h->pages[g]) {
        const bool seen = p * kPageKeys < keep || (p + 1) * kPageKeys > keys - left;
        if (page < 0 && seen) return false;
        ++p;
      }
    if (p * kPageKeys != keys) return false;
  }
  return true;
}

void KvPool::begin(std::uint64_t id, std::span<const Held* const> chain, Dim length, const Stream& stream) {
  if (!continues(chain, length, stream))
    fail("key/value cache: these pages are not the whole beginning of ", length, " tokens");
  Entry e{
      .length = length, .hidden = hidden_, .stream = stream, .tables = std::vector<Table>(groups_.size())};
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    e.tables[g].length = length + hidden_;
    for (const Held* h : chain)
      e.tables[g].pages.insert(e.tables[g].pages.end(), h->pages[g].begin(), h->pages[g].end());
  }
  if (has_states()) {
    e.state = take(states_);
    std::memcpy(states_.at(e.state), states_.at(chain.back()->state), state_half_);
  }
  for (std::size_t g = 0; g < groups_.size(); ++g)
    for (const std::int32_t page : e.tables[g].pages)
      if (page >= 0) groups_[g].slab.add_user(page);
  drop(id);
  evict(entries_[id] = std::move(e));
}

// ------------------------------------------------------------------------------------------------ a pass
KvPass::KvPass(KvPool& pool, std::span<const KvGrowth> growths)
    : pool_(pool), growths_(growths.begin(), growths.end()), angles_written_(pool.groups_.size()) {
  const std::size_t need = pool.need(growths);
  if (need > pool.free_bytes())
    fail("key/value cache: a pass needs ", need, " bytes more, ", pool.free_bytes(), " of the budget of ",
         pool.budget(), " are left; use fewer or shorter sequences, or a larger budget");
  try {
    take_all();
  } catch (...) {
    undo();
    throw;
  }
}

void KvPass::take_all() {
  const std::size_t n = growths_.size(), groups = pool_.groups_.size();
  // Room for the notes first: what is noted can be undone.
  entries_.reserve(n);
  fresh_.reserve(n);
  states_.assign(n, -1);
  memories_.resize(n);
  replaced_.resize(n);
  for (std::size_t i = 0; i < n; ++i) {
    const KvGrowth& w = growths_[i];
    const auto [it, fresh] = pool_.entries_.try_emplace(w.id);
    Entry& e = it->second;
    entries_.push_back(&e);
    fresh_.push_back(fresh);
    if (fresh) {
      e.stream = w.stream;
      e.tables.resize(groups);
    }
    if (e.stream != w.stream)
      fail("key/value cache: sequence ", w.id, " was begun with another window (keep ", e.stream.keep,
           ", window ", e.stream.window, ")");
    for (std::size_t g = 0; g < groups; ++g) {
      KvPool::Group& group = pool_.groups_[g];
      const bool cross = group.kind == KvPool::Kind::cross;
      if (cross && w.memory == 0) continue;
      KvPool::Table& table = e.tables[g];
      if (cross) {
        replaced_[i].emplace_back(g, KvPool::Table{});
        std::swap(replaced_[i].back().second, table);
      }
      const Dim upto = cross ? w.memory : pool_.keys_after(&table, w.tokens);
      table.pages.reserve(at(pages_for(upto)));
      taken_.reserve(taken_.size() + 2 * at(pages_for(upto)) + 1);
      while (group.chunks() && table.pages.size() < at(group.pages(upto))) {
        taken_.push_back({i, g, table.pages.size(), -1, -1});
        table.pages.push_back(-1);
      }
      KvPool::each_needed(group, &table, upto, [&](Dim p, std::int32_t before) {
        if (before >= 0 && pool_.fault == KvPool::Fault::no_copy) return;
        std::int32_t page = -1;
        if (pool_.fault == KvPool::Fault::same_state && group.kind == KvPool::Kind::states && p > 0)
          page = table.pages[at(p - 1)];
        if (page >= 0) group.slab.add_user(page);
        else page = pool_.take(group.slab);
        if (before >= 0) std::memcpy(group.slab.at(page), group.slab.at(before), group.slab.place_bytes());
        if (at(p) == table.pages.size()) table.pages.push_back(page);
        else table.pages[at(p)] = page;
        taken_.push_back({i, g, at(p), page, before});
      });
    }
    if (pool_.has_states() && e.state < 0) e.state = states_[i] = pool_.take(pool_.states_);
  }
  std::size_t memory = 0;
  for (const KvGrowth& w : growths_) memory += at(w.memory) * pool_.memory_row_;
  pool_.used_ += memory_bytes_ = memory;
}

void KvPass::undo() noexcept {
  for (auto t = taken_.rbegin(); t != taken_.rend(); ++t) {
    KvPool::Table& table = entries_[t->sequence]->tables[t->group];
    if (t->page >= 0) pool_.give(pool_.groups_[t->group].slab, t->page);
    if (t->before >= 0) table.pages[t->index] = t->before;
    else if (table.pages.size() > t->index) table.pages.resize(t->index);
  }
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    for (auto& [g, before] : replaced_[i]) std::swap(before, entries_[i]->tables[g]);
    if (states_[i] >= 0) {
      pool_.give(pool_.states_, states_[i]);
      entries_[i]->state = -1;
    }
    if (fresh_[i]) pool_.entries_.erase(growths_[i].id);
  }
  pool_.used_ -= memory_bytes_;
}

KvPass::~KvPass() {
  if (!done_) undo();
}

void KvPass::commit() {
  done_ = true;
  pool_.used_ -= memory_bytes_;
  for (const Taken& t : taken_)
    if (t.before >= 0) pool_.give(pool_.groups_[t.group].slab, t.before);
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    Entry& e = *entries_[i];
    for (std::size_t g = 0; g < pool_.groups_.size(); ++g) {
      const bool cross = pool_.groups_[g].kind == KvPool::Kind::cross;
      if (!cross) e.tables[g].length = pool_.keys_after(&e.tables[g], growths_[i].tokens);
      if (cross && growths_[i].memory > 0) e.tables[g].length = growths_[i].memory;
    }
    for (auto& [g, before] : replaced_[i]) pool_.give_pages(pool_.groups_[g], before, 0);
    e.length += growths_[i].tokens;
    e.hidden = pool_.hidden_;
    if (e.state >= 0 && pool_.fault != KvPool::Fault::no_half) e.half ^= 1;
    if (memories_[i]) e.memory = std::move(memories_[i]);
    pool_.evict(e);
  }
}

void KvPass::write(Run& run, const Attention& a, std::span<const Sequence> rows, const Tensor& k,
                   const Tensor& v, const RopeTable* table) {
  const KvPool::Place& place = pool_.places_[static_cast<std::size_t>(a.slot)];
  KvPool::Group& group = pool_.groups_[static_cast<std::size_t>(place.group)];
  AttentionPart* parts = run.arena.take_array<AttentionPart>(static_cast<Dim>(rows.size()));
  for (std::size_t i = 0; i < rows.size(); ++i)
    parts[i] = {rows[i].first, rows[i].count, 0, rows[i].past + rows[i].count,
                entries_[i]->tables[static_cast<std::size_t>(place.group)].pages.data()};
  run.call(&Kernels::kv_write, {.layout = group.layout,
                                .part_count = static_cast<Dim>(rows.size()),
                                .parts = parts,
                                .k = k.data,
                                .v = v.data,
                                .slab = group.slab.data() + place.layer * group.layout.page_bytes,
                                .page_stride = static_cast<Dim>(group.slab.place_bytes())});
  // The angles of the new positions, once for all layers that rotate alike.
  if (place.angles < 0 || angles_written_[static_cast<std::size_t>(place.angles)]) return;
  const auto g = static_cast<std::size_t>(place.angles);
  angles_written_[g] = true;
  const KvPool::Group& angles = pool_.groups_[g];
  if (!table || !table->cos || table->cos[1] != angles.half)
    fail("key/value cache: keys without their bias need the angles of their positions");
  const Dim half = angles.half;
  auto put = [&](auto* zero) {
    using T = std::remove_pointer_t<decltype(zero)>;
    const std::span<T> cos = table->cos.as<T>(), sin = table->sin.as<T>();
    for (std::size_t i = 0; i < rows.size(); ++i)
      for (Dim r = 0; r < rows[i].count; ++r) {
        const Dim key = rows[i].past + r;
        T* to = reinterpret_cast<T*>(angles.slab.at(entries_[i]->tables[g].pages[at(key / kPageKeys)])) +
                key % kPageKeys;
        for (Dim c = 0; c < half; ++c) {
          const auto from = at((rows[i].first + r) * half + c);
          to[c * kPageKeys] = cos[from];
          to[(half + c) * kPageKeys] = sin[from];
        }
        if (angles.rows > 2 * half) to[2 * half * kPageKeys] = 1;
      }
  };
  if (pool_.real_ == DType::f64) put(static_cast<double*>(nullptr));
  else put(static_cast<float*>(nullptr));
}

KvView KvPass::view(const Attention& a) const {
  const KvPool::Place& place = pool_.places_[static_cast<std::size_t>(a.slot)];
  const KvPool::Group& group = pool_.groups_[static_cast<std::size_t>(place.group)];
  KvView view{.layout = group.layout,
              .slab = group.slab.data() + place.layer * group.layout.page_bytes,
              .stride = static_cast<Dim>(group.slab.place_bytes()),
              .pages = {}};
  view.pages.reserve(entries_.size());
  for (const Entry* e : entries_)
    view.pages.emplace_back(e->tables[static_cast<std::size_t>(place.group)].pages);
  if (place.angles < 0) return view;
  const KvPool::Group& angles = pool_.groups_[static_cast<std::size_t>(place.angles)];
  view.bias.bias = a.k.b->data.get();
  view.bias.half = angles.half;
  view.bias.rows = angles.rows;
  view.bias.neighbours = a.rope->layout == RopeLayout::pairs;
  view.bias.slab = angles.slab.data();
  view.bias.stride = static_cast<Dim>(angles.slab.place_bytes());
  for (const Entry* e : entries_)
    view.bias.angles.emplace_back(e->tables[static_cast<std::size_t>(place.angles)].pages);
  return view;
}

// ------------------------------------------------------------------------------------------------ chunks
ChunkPages KvPass::chunk_pages(int slot) const {
  const KvPool::Place& place = pool_.places_[static_cast<std::size_t>(slot)];
  const KvPool::Group& rows = pool_.groups_[static_cast<std::size_t>(place.group)];
  const KvPool::Group& states = pool_.groups_[static_cast<std::size_t>(place.states)];
  ChunkPages out;
  const Dim inputs = kPageKeys * place.inputs * static_cast<Dim>(size_of(pool_.real_));
  out.rows = rows.slab.data() + place.layer * rows.layout.page_bytes + inputs;
  out.row_stride = static_cast<Dim>(rows.slab.place_bytes());
  out.states = states.slab.data() + place.state_layer * states.layout.page_bytes;
  out.state_stride = static_cast<Dim>(states.slab.place_bytes());
  for (const Entry* e : entries_)
    out.sequences.push_back({e->tables[static_cast<std::size_t>(place.group)].pages,
                             e->tables[static_cast<std::size_t>(place.states)].pages});
  return out;
}

Tensor KvPass::rows_before(Run& run, int slot, std::span<const Sequence> rows, Dim first, Dim cols,
                           Dim count) const {
  const KvPool::Place& place = pool_.places_[static_cast<std::size_t>(slot)];
  const KvPool::Group& group = pool_.groups_[static_cast<std::size_t>(place.group)];
  const std::size_t real = size_of(pool_.real_);
  const Tensor out = run.make({static_cast<Dim>(rows.size()), count, cols}).constant();
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const std::vector<std::int32_t>& pages = entries_[i]->tables[static_cast<std::size_t>(place.group)].pages;
    for (Dim r = std::max<Dim>(0, count - rows[i].past); r < count; ++r) {
      const Dim key = rows[i].past - count + r;
      const std::byte* page =
          group.slab.at(pages[at(key / kPageKeys)]) + place.layer * group.layout.page_bytes;
      std::memcpy(out.data + at((static_cast<Dim>(i) * count + r) * cols) * real,
                  page + at(key % kPageKeys * place.inputs + first) * real, at(cols) * real);
    }
  }
  return out;
}

void KvPass::write_rows(int slot, std::span<const Sequence> rows, Dim first, const Tensor& x) {
  const KvPool::Place& place = pool_.places_[static_cast<std::size_t>(slot)];
  const KvPool::Group& group = pool_.groups_[static_cast<std::size_t>(place.group)];
  const std::size_t real = size_of(pool_.real_);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const std::vector<std::int32_t>& pages = entries_[i]->tables[static_cast<std::size_t>(place.group)].pages;
    const Dim past = rows[i].past, end = past + rows[i].count;
    for (Dim key = std::max(past, (end / kPageKeys - 1) * kPageKeys); key < end; ++key) {
      std::byte* page = group.slab.at(pages[at(key / kPageKeys)]) + place.layer * group.layout.page_bytes;
      std::memcpy(page + at(key % kPageKeys * place.inputs + first) * real,
                  x.data + at((rows[i].first + key - past) * x[1]) * real, at(x[1]) * real);
    }
  }
}

// ------------------------------------------------------------------------------------------------ states
const std::byte* KvPass::state(std::size_t i) const {
  const Entry& e = *entries_[i];
  if (states_[i] >= 0) return nullptr;
  return pool_.states_.at(e.state) + static_cast<std::size_t>(e.half) * pool_.state_half_;
}
const std::byte* KvPass::start(std::size_t i) const {
  const std::byte* now = state(i);
  return now ? now + pool_.state_half_ / 2 : nullptr;
}
std::byte* KvPass::next_state(std::size_t i) {
  const Entry& e = *entries_[i];
  const int half = pool_.fault == KvPool::Fault::no_half ? e.half : e.half ^ 1;
  return pool_.states_.at(e.state) + static_cast<std::size_t>(half) * pool_.state_half_;
}
std::byte* KvPass::next_start(std::size_t i) { return next_state(i) + pool_.state_half_ / 2; }

const std::shared_ptr<const RecurrentMemory>& KvPass::memory(std::size_t i) const {
  return memories_[i] ? memories_[i] : entries_[i]->memory;
}
void KvPass::set_memory(std::size_t i, RecurrentMemory memory) {
  const std::size_t bytes = memory.k.size() + memory.v.size();
  auto used = pool_.memory_used_;
  memories_[i] = std::shared_ptr<const RecurrentMemory>(new RecurrentMemory(std::move(memory)),
                                                        [used, bytes](const RecurrentMemory* m) {
                                                          *used -= bytes;
                                                          delete m;
                                                        });
  *used += bytes;
}

}  // namespace rapt
