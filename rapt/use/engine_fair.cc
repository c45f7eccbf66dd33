// SPDX-License-Identifier: Apache-2.0
// Whose turn it is. Clients are charged for the rows of passes, one for every token that is read or written;
// of those that want rows, who was served least comes first (deficits, as in VTC, OSDI '24). A level rises by
// what they are served on average, and who comes to want some begins there: nobody saves up, nobody owes for
// what was free.
//
// Nothing starves:
//   beginning   inside a client first come, first served. Ever new clients do not keep one out that has had D
//               tokens more than the level: it rises by T / n when T tokens are computed for n clients that
//               want some, so after D n of them all that come later stand behind it. Who is next and has no
//               room lets nobody pass. Work in the background begins when no other waits: no promise there.
//   reading     a quarter of a step's prompt rows (at least one) goes to the oldest text that is being read:
//               with R rows a step, a text of p tokens and older ones of q that are being read before it,
//               it is read after at most (p + q) / max(1, R / 4) steps, and one for each of them.
// The other three quarters go to clients in rounds, inside a client to who has least to read: short texts
// pass long ones. Rows that write are never held back.
#include <algorithm>

#include "rapt/use/engine_state.h"

namespace rapt {

namespace {

constexpr Dim kRoundRows = 16;  // that a client gets at a time
constexpr Dim kByAge = 4;  // the part of the rows that goes by age
constexpr std::size_t kManyClients = 1024;

}  // namespace

// ------------------------------------------------------------------------------------------------ clients
void Engine::State::enter(Job& job) {
  if (job.client) return;  // memory ran out behind it
  job.client = &clients[job.r.client.empty() ? job.r.space : job.r.client];
  ++job.client->live;
  background += job.r.background;
}

void Engine::State::leave(Job& job) {
  --job.client->live;
  background -= job.r.background;
}

// Who wants rows that are handed out, and where they all stand.
void Engine::State::settle_clients() {
  if (clients.size() == 1) {
    Client& only = clients.begin()->second;
    level = std::max(level, only.used);
    only.wants = true;
  }
  if (clients.size() < 2) return;
  for (auto& [name, c] : clients) c.wanted = std::exchange(c.wants, false);
  for (const JobPtr& job : waiting) job->client->wants |= !job->resting;
  for (const JobPtr& job : running) job->client->wants |= !job->resting && !job->ready();
  std::int64_t least = std::numeric_limits<std::int64_t>::max(), most = level;
  for (auto& [name, c] : clients) {
    if (!c.wants) continue;
    if (!c.wanted) c.used = std::max(c.used, level);
    least = std::min(least, c.used);
    most = std::max(most, c.used);
  }
  if (least <= most) level = std::clamp(level, least, most);
  std::erase_if(clients, [&](const auto& c) {
    return c.second.live == 0 && (c.second.used <= level || clients.size() > kManyClients);
  });
}

void Engine::State::charge(std::span<const Piece> pieces, std::span<const JobPtr> whole) {
  std::int64_t served = 0;  // of those that want rows
  const auto take = [&](Client& c, Dim tokens) {
    c.used += tokens;
    if (c.wants) served += tokens;
  };
  for (const Piece& p : pieces)
    take(*p.job->client, p.count + (p.source ? static_cast<Dim>(p.job->r.source.size()) : 0));
  for (const JobPtr& job : whole) take(*job->client, job->tokens());
  if (clients.size() < 2) return;
  const auto n = std::ranges::count_if(clients, [](const auto& c) { return c.second.wants; });
  // Up to where the first of them stands.
  std::int64_t most = level;
  for (const auto& [name, c] : clients)
    if (c.wants) most = std::max(most, c.used);
  if (n > 0) level = std::min(most, level + (served + n - 1) / n);
}

// ------------------------------------------------------------------------------------------- who is next
// What a request that begins will be charged for before it writes.
Dim Engine::State::unread_tokens(const Job& job) {
  return job.prompt() - job.read + (job.read == 0 ? static_cast<Dim>(job.r.source.size()) : 0);
}

// Those that wait, one after the other: who paused, then others, then who works in the background. With one
// client and no background work it is the order they came in, and nothing is made for it.
Engine::State::Line::Line(State& state, bool whole)
    : s(state), whole_(whole), plain_(state.clients.size() < 2 && state.background == 0) {
  size_ = s.waiting.size();
  if (plain_) return;
  for (const JobPtr& job : s.waiting)
    if (job->r.whole == whole_ && !job->resting && job->phase == Phase::waiting) queue_.push_back(job);
  for (auto& [name, c] : s.clients) c.given = 0;
  for (const JobPtr& job : s.running)
    if (job->phase == Phase::reading && !job->resting) job->client->given += unread_tokens(*job);
}

Engine::State::JobPtr Engine::State::Line::next() {
  if (plain_) {
    // Who was suspended and had to pause stands at the front now.
    at_ += s.waiting.size() - size_;
    for (size_ = s.waiting.size(); at_ < size_; ++at_) {
      const JobPtr& job = s.waiting[at_];
      if (job->r.whole == whole_ && !job->resting && job->phase == Phase::waiting) return s.waiting[at_++];
    }
    return nullptr;
  }
  if (queue_.empty()) return nullptr;
  const auto rank = [](const Job& job) { return 2 * job.r.background + !job.paused; };
  auto best = queue_.begin();
  for (auto it = queue_.begin(); it != queue_.end(); ++it) {
    const Job &a = **it, &b = **best;
    if (rank(a) != rank(b)) {
      if (rank(a) < rank(b)) best = it;
    } else if (!a.paused && a.client->used + a.client->given < b.client->used + b.client->given) {
      best = it;
    }
  }
  const JobPtr job = *best;
  queue_.erase(best);
  return job;
}

void Engine::State::Line::begins(const Job& job) { job.client->given += unread_tokens(job); }

// ------------------------------------------------------------------------------------------- who gets rows
// How many of the step's prompt rows each of them may have.
void Engine::State::share_rows(std::span<Reader> readers, Dim rows) {
  if (readers.empty()) return;
  if (readers.size() == 1 && background == 0) {
    for (Reader& r : readers) r.rows = rows;
    return;
  }
  Dim all = 0;
  for (const Reader& r : readers) all += r.left;
  if (all <= rows && background == 0) {
    for (Reader& r : readers) r.rows = r.left;
    return;
  }
  // Work in the background gets a third while anybody else runs.
  const bool others =
      std::ranges::any_of(running, [](const JobPtr& job) { return !job->resting && !job->r.background; });
  Dim left = rows, spare = others ? std::max<Dim>(1, rows / 3) : rows;
  const auto wants = [&](const Reader& r) {
    const Dim n = std::min(left, r.left - r.rows);
    return r.job->r.background ? std::min(n, spare) : n;
  };
  const auto give = [&](Reader& r, Dim most) {
    const Dim n = std::min(most, wants(r));
    r.rows += n;
    left -= n;
    if (r.job->r.background) spare -= n;
    r.job->client->given += n;
  };
  for (const Reader& r : readers) r.job->client->given = 0;
  give(*std::ranges::min_element(readers, {}, [](const Reader& r) { return r.job->id; }),
       std::max<Dim>(1, rows / kByAge));
  while (left > 0) {
    Reader* best = nullptr;
    const auto before = [](const Reader& a, const Reader& b) {
      const Client &x = *a.job->client, &y = *b.job->client;
      if (&x != &y && x.used + x.given != y.used + y.given) return x.used + x.given < y.used + y.given;
      if (a.job->r.background != b.job->r.background) return b.job->r.background;
      return a.left != b.left ? a.left < b.left : a.job->id < b.job->id;
    };
    for (Reader& r : readers)
      if (wants(r) > 0 && (!best || before(r, *best))) best = &r;
    if (!best) return;
    give(*best, kRoundRows);
  }
}

// Rows of whole texts in this step. A text cannot be divided: where others run, one may take more than its
// part, and the next waits until that has been made up for. They get half of the prompt rows where others
// read, all where nobody does, a third for work in the background.
Dim Engine::State::whole_rows(Dim rows) {
  if (nobody_runs()) {
    whole_credit = 0;
    return kWholeRows;
  }
  bool any = false, front = false, reading = false;
  for (const JobPtr& job : waiting)
    if (job->r.whole && !job->resting) any = true, front = front || !job->r.background;
  if (!any) {
    whole_credit = 0;
    return 0;
  }
  for (const JobPtr& job : running) reading = reading || (!job->resting && !job->ready());
  whole_credit = std::min(kWholeRows, whole_credit + std::max<Dim>(1, !front    ? rows / 3
                                                                      : reading ? rows / 2
                                                                                : rows));
  return whole_credit;
}

// -------------------------------------------------------------------------------------------- who gives way
// Where room runs out: work in the background, else a request of the client that has most in the pool; of
// these the youngest. None where only one runs.
Engine::State::JobPtr Engine::State::victim() const {
  if (std::ranges::count_if(running, [](const JobPtr& job) { return !job->resting; }) < 2) return nullptr;
  std::map<std::pair<bool, const Client*>, Dim> of;  // background comes after others
  for (const JobPtr& job : running) {
    if (job->resting) continue;
    Dim tokens = job->root != 0 ? job->read : 0;
    for (const Branch& b : job->branches)
      if (b.sequence != 0) tokens += job->prompt() + b.read;
    of[{job->r.background, job->client}] += tokens;
  }
  const auto most = std::ranges::max_element(of, [](const auto& x, const auto& y) {
    return x.first.first != y.first.first ? y.first.first : x.second < y.second;
  });
  JobPtr youngest;
  for (const JobPtr& job : running)
    if (!job->resting && job->r.background == most->first.first && job->client == most->first.second &&
        (!youngest || job->id > youngest->id))
      youngest = job;
  return youngest;
}

}  // namespace rapt
