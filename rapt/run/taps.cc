// SPDX-License-Identifier: Apache-2.0
// What a pass shows is cut to the rows of each share; what a share throws stays with it.
#include "rapt/run/taps.h"

#include <algorithm>
#include <atomic>

#include "rapt/base/error.h"
#include "rapt/run/batch.h"

namespace rapt {
namespace {

bool alive(const TapShare& s) { return s.taps && !s.error; }
bool watches(const TapShare& s) { return alive(s) && !s.muted; }

const TapShare::Range& range_of(const TapShare& s, const Tapped& t) {
  switch (t.rows) {
    case Tapped::Rows::wanted: return s.wanted;
    case Tapped::Rows::memory: return s.source;
    case Tapped::Rows::own: break;
  }
  return t.stack == Stack::encoder ? s.source : s.rows;
}

// Encoders read whole texts: their rows, and the memory, begin at 0.
Dim position_of(const TapShare& s, const Tapped& t) {
  return t.rows == Tapped::Rows::own && t.stack == Stack::decoder ? s.position : 0;
}

Tapped cut(const TapShare& s, std::size_t index, const Tapped& t) {
  Tapped mine = t;
  mine.position = position_of(s, t);
  mine.share = static_cast<int>(index);
  return mine;
}

Tensor rows_of(const Tensor& value, const TapShare::Range& r) {
  if (r.first < 0 || r.first + r.count > value[0])
    fail("taps: a share has rows ", r.first, " to ", r.first + r.count, ", a value has ", value[0]);
  return value.slice(r.first, r.count);
}

// As it would be if the pass had no rows but these. `keys`: where its keys begin, among k that are at hand;
// those of a cache begin at 0 as they are.
RowPlan plan_of(const RowPlan& all, const TapShare::Range& rows, Dim keys) {
  RowPlan plan;
  for (RowPlan::Part p : all.parts) {
    if (p.q_first < rows.first || p.q_first + p.q_count > rows.first + rows.count) continue;
    p.q_first -= rows.first;
    p.k_first = std::max<Dim>(0, p.k_first - keys);
    plan.parts.push_back(p);
  }
  const auto some = [&](const std::vector<std::int32_t>& list) {
    const auto first = list.begin() + rows.first;
    return std::vector<std::int32_t>(first, first + rows.count);
  };
  plan.low = some(all.low);
  plan.high = some(all.high);
  plan.position = some(all.position);
  plan.kept_position = some(all.kept_position);
  return plan;
}

// Whatever an observer throws is kept for its request.
template <class F>
void guarded(TapShare& s, F&& f) {
  try {
    f();
  } catch (...) {
    s.error = std::current_exception();
  }
}

}  // namespace

std::uint64_t Taps::next_stamp() {
  static std::atomic<std::uint64_t> last{0};
  return ++last;
}

bool Taps::edits_anything() const {
  const auto any = [](const Taps& t) {
    return !t.rows_.empty() || std::any_of(t.observers_.begin(), t.observers_.end(),
                                           [](const Observers& o) { return !o.edit.empty(); });
  };
  return any(*this) || std::any_of(shares.begin(), shares.end(),
                                   [&](const TapShare& s) { return alive(s) && any(*s.taps); });
}

bool Taps::share_sees(Site site) const {
  return std::any_of(shares.begin(), shares.end(),
                     [&](const TapShare& s) { return watches(s) && s.taps->sees_itself(site); });
}

bool Taps::share_edits(Site site) const {
  return std::any_of(shares.begin(), shares.end(),
                     [&](const TapShare& s) { return alive(s) && s.taps->edits_itself(site); });
}

void Taps::show_shares(const Tapped& t) {
  const bool weights = t.row >= 0;  // one row, of whoever asked for it
  for (std::size_t i = 0; i < shares.size(); ++i) {
    TapShare& s = shares[i];
    const TapShare::Range& r = range_of(s, t);
    if (r.count == 0 || !watches(s) || !s.taps->sees_itself(t.site)) continue;
    if (weights && t.share != static_cast<int>(i)) continue;
    if (t.first_keys >= 0 && t.first_keys != s.taps->first_keys) continue;
    guarded(s, [&] {
      Tapped mine = cut(s, i, t);
      if (weights) mine.row -= r.first;
      else mine.value = rows_of(t.value, r);
      RowPlan plan;
      if (t.plan) {
        plan = plan_of(*t.plan, r, t.cross ? s.source.first : r.first);
        mine.plan = &plan;
      }
      s.taps->show_itself(mine);
    });
  }
}

void Taps::change_shares(const Tapped& t) {
  for (std::size_t i = 0; i < shares.size(); ++i) {
    TapShare& s = shares[i];
    const TapShare::Range& r = range_of(s, t);
    if (r.count == 0 || !alive(s) || !s.taps->edits_itself(t.site)) continue;
    guarded(s, [&] {
      Tapped mine = cut(s, i, t);
      mine.value = rows_of(t.value, r);
      s.taps->change_itself(mine);
    });
  }
}

bool Taps::edits_rows() const {
  return !rows_.empty() || std::any_of(shares.begin(), shares.end(),
                                       [](const TapShare& s) { return alive(s) && !s.taps->rows_.empty(); });
}

namespace {

// f(the share whose row this is, the row as it has it)
template <class F>
void of_row(std::vector<TapShare>& shares, const Tapped& t, const F& f) {
  for (std::size_t i = 0; i < shares.size(); ++i) {
    TapShare& s = shares[i];
    const TapShare::Range& r = range_of(s, t);
    if (!alive(s) || t.row < r.first || t.row >= r.first + r.count) continue;
    Tapped mine = cut(s, i, t);
    AttentionRow row = *t.attention;
    mine.row -= r.first, row.rows = r.count, mine.attention = &row;
    guarded(s, [&] { f(s, mine); });
  }
}

}  // namespace

bool Taps::touches_row(const Tapped& where) {
  bool touched = touches_row_itself(where);
  of_row(shares, where,
         [&](TapShare& s, const Tapped& mine) { touched = s.taps->touches_row_itself(mine) || touched; });
  return touched;
}

void Taps::change_row(const Tapped& t) {
  change_row_itself(t);
  of_row(shares, t, [](TapShare& s, const Tapped& mine) { s.taps->change_row_itself(mine); });
}

std::vector<Taps::HeadRow> Taps::chosen_itself(const Tapped& where, Dim heads, Dim rows) const {
  std::vector<HeadRow> list;
  if (choose_ && !muted) list = choose_(where);
  for (HeadRow& c : list) {
    if (c.head < 0 || c.head >= heads || c.row < 0 || c.row >= rows)
      fail("attention: weights of head ", c.head, ", row ", c.row, " were asked for; there ",
           heads == 1 ? "is 1 head" : concat("are ", heads, " heads"), " and ", rows, " rows");
    c.share = where.share;
  }
  return list;
}

std::vector<Taps::HeadRow> Taps::chosen(const Tapped& where, Dim heads, Dim rows) {
  std::vector<HeadRow> list = chosen_itself(where, heads, rows);
  for (std::size_t i = 0; i < shares.size() && !muted; ++i) {
    TapShare& s = shares[i];
    const TapShare::Range& r = range_of(s, where);
    if (r.count == 0 || !watches(s) || !s.taps->choose_) continue;
    guarded(s, [&] {
      for (HeadRow c : s.taps->chosen_itself(cut(s, i, where), heads, r.count)) {
        c.row += r.first;
        list.push_back(c);
      }
    });
  }
  return list;
}

std::vector<Dim> Taps::first_keys_asked(Site stats) const {
  std::vector<Dim> list;
  const auto ask = [&](const Taps& t) {
    if (t.sees_itself(stats) && std::find(list.begin(), list.end(), t.first_keys) == list.end())
      list.push_back(t.first_keys);
  };
  ask(*this);
  for (const TapShare& s : shares)
    if (watches(s) && !muted) ask(*s.taps);
  return list;
}

void Taps::refuse_edits(Site site, const std::string& why) {
  if (edits_itself(site)) fail(why);
  for (TapShare& s : shares)
    if (alive(s) && s.taps->edits_itself(site)) guarded(s, [&] { fail(why); });
}

}  // namespace rapt
