// SPDX-License-Identifier: Apache-2.0
// What other threads ask of an engine: everything here looks at copies that the steps leave under the lock.
#include <algorithm>

#include "rapt/use/engine_state.h"

namespace rapt {

// ------------------------------------------------------------------------------------------- left by a step
// What the pool holds; its copy for others is made with the lock held.
void Engine::State::publish_pool() {
  counts.pages = pool.pages();
  counts.shared_pages = pool.shared_pages();
  counts.bytes = pool.bytes();
  counts.budget = pool.budget();
  counts.free_bytes = pool.budget() > 0 ? pool.free_bytes() : 0;
  counts.prefixes = prefixes.size();
  // Every prefix is looked at: of thousands of them not in every step.
  constexpr std::size_t kFew = 64;
  const auto now = Clock::now();
  if (counts.prefixes <= kFew || now - idle_counted > std::chrono::milliseconds(250)) {
    counts.idle_bytes = prefixes.reclaimable();
    idle_counted = now;
  }
  const std::lock_guard hold(lock);
  const Dim waits = told.waiting;
  told = counts;
  told.waiting = waits;
}

// During the pass and after it.
void Engine::State::publish(Dim rows) {
  counts.running = static_cast<Dim>(running.size());
  counts.rows = rows;
  publish_pool();
  const std::lock_guard hold(lock);
  told.waiting = static_cast<Dim>(waiting.size());
  most_rows = options.rows;
  unread = 0;
  for (const JobPtr& job : running) {
    if (job->phase == Phase::reading && !job->resting) unread += job->prompt() - job->read;
    JobStatus& t = job->told;
    t.phase = job->phase == Phase::reading ? "reading" : "writing";
    t.read_tokens = job->phase == Phase::reading ? job->read : job->prompt();
    t.reused_tokens = job->answer->times.reused_tokens;
    t.written_tokens = job->answer->times.decoded_tokens;
    t.pauses = job->answer->pauses;
  }
}

// --------------------------------------------------------------------------------------------- any thread
void Engine::suspend(Id id, bool on) {
  State& s = *state_;
  const std::lock_guard hold(s.lock);
  const auto it = s.live.find(id);
  if (it == s.live.end() || it->second->suspended.exchange(on, std::memory_order_relaxed) == on) return;
  s.suspended += on ? 1 : -1;
  s.changed = true;
}

bool Engine::idle() const {
  const std::lock_guard hold(state_->lock);
  return state_->live.empty();
}

// One that is not suspended may wait all the same, for the text that a suspended one holds: a step has found
// that out.
bool Engine::runnable() const {
  const State& s = *state_;
  const std::lock_guard hold(s.lock);
  if (!s.unwanted_samples.empty()) return true;
  const bool may_find = s.changed || !s.stalled;
  for (const auto& [id, job] : s.live)
    if (job->cancelled() || (may_find && !job->suspended.load(std::memory_order_relaxed))) return true;
  return false;
}

Engine::Status Engine::status() const {
  const State& s = *state_;
  const std::lock_guard hold(s.lock);
  Status out = s.told;
  out.waiting += static_cast<Dim>(s.inbox.size());
  out.suspended = s.suspended;
  return out;
}

double Engine::estimate_wait(Dim tokens) const {
  const State& s = *state_;
  const std::lock_guard hold(s.lock);
  const Status& t = s.told;
  const Dim waits = t.waiting + static_cast<Dim>(s.inbox.size()), ahead = s.waiting_tokens + s.unread;
  // A row costs its own time and, beside those that write, its part of their pass.
  double row = t.row_seconds;
  if (t.rows > 0) row += t.decode_seconds / static_cast<double>(s.prompt_rows(t.rows, t));
  // Answers that must end: for a row …
  const Dim most = std::max<Dim>(1, s.most_rows);
  double ends = static_cast<double>(std::max<Dim>(0, t.rows + waits + 1 - most));
  // … and for room, with a page of an answer for each.
  if (t.budget > 0 && t.running > 0) {
    const double token_bytes = static_cast<double>(s.pool.page_bytes()) / kPageKeys,
                 wanted = static_cast<double>(ahead + tokens + kPageKeys * (waits + 1)) * token_bytes,
                 there = static_cast<double>(t.free_bytes + t.idle_bytes),
                 each = static_cast<double>(t.bytes - std::min(t.bytes, t.idle_bytes)) /
                        static_cast<double>(t.running);
    if (wanted > there && each > 0) ends = std::max(ends, (wanted - there) / each);
  }
  // Of the answers that are written side by side, so many end in a pass.
  constexpr double kAnswer = 128;  // tokens, before one has ended
  const double per_pass = static_cast<double>(std::clamp<Dim>(t.rows, 1, most)) /
                          (t.answer_tokens > 0 ? t.answer_tokens : kAnswer);
  return static_cast<double>(ahead) * row + ends / per_pass * t.decode_seconds;
}

void Engine::reset_counts() {
  Status& c = state_->counts;
  c.passes = c.pauses = c.prompt_tokens = c.reused_tokens = c.decoded_tokens = 0;
  c.source_seconds = c.answer_tokens = 0;
  c.last = c.total = {};
  state_->publish_pool();
}

std::vector<Engine::JobStatus> Engine::jobs() const {
  const State& s = *state_;
  std::vector<JobStatus> all;
  {
    const std::lock_guard hold(s.lock);
    all.reserve(s.live.size());
    for (const auto& [id, job] : s.live) {
      JobStatus& t = all.emplace_back(job->told);
      if (job->suspended.load(std::memory_order_relaxed)) t.phase = "suspended";
      t.seconds = seconds_since(job->added);
    }
  }
  std::ranges::sort(all, {}, &JobStatus::id);
  return all;
}

}  // namespace rapt
