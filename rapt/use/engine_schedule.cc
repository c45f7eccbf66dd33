// SPDX-License-Identifier: Apache-2.0
// Who may begin, who has room, and which tokens the next pass reads.
#include <algorithm>

#include "rapt/use/engine_state.h"

namespace rapt {

namespace {

// Pages that must be free beside its own before a paused request reads again.
constexpr std::size_t kResumePages = 4;

}  // namespace

// -------------------------------------------------------------------------------------------- who may begin
void Engine::State::take_inbox() {
  const std::lock_guard hold(lock);
  changed = false;
  told.waiting += static_cast<Dim>(inbox.size());
  for (; !inbox.empty(); inbox.pop_front()) waiting.push_back(std::move(inbox.front()));
}

// Those that wait no longer.
void Engine::State::leave_queue() {
  Dim tokens = 0;
  for (const JobPtr& job : waiting)
    if (job->phase != Phase::waiting) tokens += job->tokens();
  std::erase_if(waiting, [](const JobPtr& job) { return job->phase != Phase::waiting; });
  const std::lock_guard hold(lock);
  waiting_tokens -= tokens;
}

void Engine::State::take_cancels() {
  std::vector<std::pair<JobPtr, int>> samples;
  {
    const std::lock_guard hold(lock);
    for (const auto& [id, sample] : unwanted_samples)
      if (const auto it = live.find(id); it != live.end()) samples.emplace_back(it->second, sample);
    unwanted_samples.clear();
  }
  for (const auto& [pointer, i] : samples) {
    Job& job = *pointer;
    if (job.phase == Phase::over || job.r.generate.beams > 0 || i < 0 || i >= job.r.generate.samples)
      continue;
    if (job.samples.empty()) {
      job.unwanted.resize(at(job.r.generate.samples));
      job.unwanted[at(i)] = true;
      if (std::ranges::find(job.unwanted, false) == job.unwanted.end()) end(job, Finish::cancelled);
    } else if (job.samples[at(i)].open) {
      close(job, at(i), Finish::cancelled);
      if (std::none_of(job.samples.begin(), job.samples.end(), [](const Sample& s) { return s.open; }))
        finish(job);
    }
  }
  const auto look_at = [&](Job& job) {
    if (job.phase != Phase::over && job.cancelled()) end(job, Finish::cancelled);
    job.resting = job.suspended.load(std::memory_order_relaxed);
  };
  for (const auto& job : running) look_at(*job);
  for (const auto& job : waiting) look_at(*job);
  std::erase_if(running, [](const JobPtr& job) { return job->phase == Phase::over; });
  leave_queue();
}

// Copies of states that are made when answers branch.
std::size_t Engine::State::extra_states(const Job& job) const {
  return pool.has_states() ? at(2 * job.rows()) * pool.state_bytes() : 0;
}

// Prefixes that nobody uses, then conversations that wait for their next turn, then who is suspended, the
// youngest first.
bool Engine::State::make_room(std::size_t bytes) {
  while (pool.free_bytes() < bytes)
    if (!prefixes.evict_one()) {
      auto oldest = holds.end();
      for (auto it = holds.begin(); it != holds.end(); ++it)
        if (it->second.busy == 0 && (oldest == holds.end() || it->second.used < oldest->second.used))
          oldest = it;
      if (oldest != holds.end()) {
        pool.drop(oldest->second.sequence);
        holds.erase(oldest);
        continue;
      }
      const auto rests =
          std::find_if(running.rbegin(), running.rend(), [](const JobPtr& job) { return job->resting; });
      if (rests == running.rend()) return false;
      pause(JobPtr(*rests));
    }
  return true;
}

// Whether there is room to read it all, and for those that run to go on.
bool Engine::State::fits(const Job& job) {
  if (pool.budget() == 0 || nobody_runs()) return true;
  std::size_t pages = at(job.rows());
  for (const JobPtr& other : running)
    if (!other->resting) pages += at(other->rows());
  if (job.began) pages += kResumePages;
  Dim longest = 0;
  for (std::size_t b = 0; b < job.branches.size(); ++b)
    if (job.open(b)) longest = std::max(longest, static_cast<Dim>(job.ids(b).size()));
  // Its prompt, and what of it must come at once.
  const auto prompt_bytes = [&](const Job& j) {
    const Dim source = static_cast<Dim>(j.r.source.size()), once = j.r.one_piece ? j.prompt() : j.r.prefix;
    return std::max(pool.bytes_of(j.prompt(), source, j.r.stream),
                    once > 0 ? pool.bytes_at_once(once, source) : 0);
  };
  std::size_t bytes = prompt_bytes(job) + extra_states(job) + pages * pool.page_bytes();
  if (longest > 0)
    bytes += job.branches.size() * (pool.bytes_of(longest, 0, job.r.stream) + pool.page_bytes());
  // What others are still to read counts as taken.
  for (const JobPtr& other : running)
    if (other->phase == Phase::reading && !other->resting) {
      const std::size_t all = prompt_bytes(*other),
                        there = other->read > 0 ? pool.bytes_of(other->read, 0, other->r.stream) : 0;
      bytes += all > there ? all - there : 0;
    }
  // Nothing is evicted for one that waits all the same.
  std::size_t could = pool.free_bytes();
  if (could < bytes) {
    could += prefixes.reclaimable();
    for (const auto& [name, held] : holds)
      if (held.busy == 0) could += pool.freed_by(held.sequence);
    for (const JobPtr& other : running) {
      if (!other->resting) continue;
      could += pool.freed_by(other->root);
      for (const Branch& b : other->branches) could += pool.freed_by(b.sequence);
    }
  }
  return could >= bytes && make_room(bytes);
}

// The clock of the prompt runs from here.
void Engine::State::start(Job& job) {
  if (job.started != Clock::time_point{}) return;
  job.started = Clock::now();
  job.answer->times.queue_seconds = std::chrono::duration<double>(job.started - job.added).count();
}

// Its sequence, with what is known of it already.
void Engine::State::begin(const JobPtr& pointer) {
  Job& job = *pointer;
  start(job);
  counts.paused -= std::exchange(job.paused, false);
  job.root = next_sequence++;
  job.read = 0;
  // Rows that somebody looks at must be computed, and the last one, for its logits.
  Dim most = job.prompt() - 1;
  if (job.r.prompt_logprobs >= 0) most = 0;
  if (job.r.rows.which == Request::Rows::Which::all) most = 0;
  if (job.r.rows.which == Request::Rows::Which::chosen && !job.r.rows.chosen.empty())
    most = std::min(most, job.r.rows.chosen[0]);
  if (job.began) most = job.prompt();  // what was wanted has been told
  if (job.r.one_piece) most = 0;
  // After a pause: what was said to be reused stays that, the rest of the rows are shown.
  if (job.answer->pauses > 0 && !job.began && job.r.taps) most = std::min(most, job.shown);
  const auto held = holds.find(job.r.hold);
  if (job.r.hold != 0 && held != holds.end() && held->second.busy == 0) {
    Held& h = held->second;
    Dim same = 0;
    while (same < static_cast<Dim>(h.tokens.size()) && same < most &&
           h.tokens[at(same)] == job.r.tokens[at(same)])
      ++same;
    if (same < job.r.prefix) same = 0;  // its rows saw what differs
    // Where a state remembers, a text of before may begin with more.
    if (pool.has_chunks() && job.shares && same < most &&
        prefixes.find(job.key, job.r.tokens, most, job.r.prefix, job.r.stream) > same)
      same = 0;
    if (h.key == job.key && same > 0) {
      try {
        pool.truncate(h.sequence, same);
        job.root = h.sequence;
        job.read = same;
      } catch (const Error&) {  // keys that would be seen again have left a window: read anew
      }
    }
    if (job.read == 0) pool.drop(h.sequence);
    holds.erase(held);
  }
  if (job.read == 0 && job.shares)
    job.read = prefixes.begin(job.key, job.r.tokens, most, job.r.prefix, job.r.stream, job.root);
  if (job.answer->pauses == 0) {
    job.answer->times.reused_tokens = job.read;
    counts.reused_tokens += static_cast<std::uint64_t>(job.read);
  }
  job.shown = std::max(job.shown, job.read);
  job.inserted = job.read;
  if (job.r.hold != 0) holds[job.r.hold] = {job.root, {}, job.key, ++clock, job.id};
  job.phase = Phase::reading;
  running.push_back(pointer);
  events.push_back({.kind = Event::Kind::prompt,
                    .request = job.id,
                    .read = job.read,
                    .of = job.prompt(),
                    .reused = job.answer->times.reused_tokens});
  if (job.began && job.read == job.prompt()) branch_out(job);
}

void Engine::State::admit() {
  Dim rows = 0;
  for (const JobPtr& job : running) rows += job->resting ? 0 : job->rows();
  // Several sources at once: their encoder pass is worth it.
  if (translates() && rows * 2 > options.rows) return;
  // One that waits for pages which another is just computing lets later ones pass, a few at a time.
  int passed = 0;
  for (std::size_t i = 0; i < waiting.size(); ++i) {
    const JobPtr job = waiting[i];
    if (job->r.whole || job->resting) continue;
    if (!nobody_runs() && rows + job->rows() > options.rows) break;
    const auto busy = holds.find(job->r.hold);
    bool later = job->r.hold != 0 && busy != holds.end() && busy->second.busy != 0;
    if (job->shares && !later) {
      const Dim found =
          prefixes.find(job->key, job->r.tokens, job->prompt() - 1, job->r.prefix, job->r.stream);
      const Dim next = found > 0 ? found + kPageKeys : prefixes.first_end(job->r.prefix);
      for (const JobPtr& other : running)
        later =
            later ||
            (!other->resting && other->shares && other->phase == Phase::reading && other->key == job->key &&
             next < job->prompt() && next <= other->prompt() && other->read < next &&
             std::equal(job->r.tokens.begin(), job->r.tokens.begin() + next, other->r.tokens.begin()));
    }
    if (later) {
      if (++passed == 64) break;
      continue;
    }
    const std::size_t before = waiting.size();
    const bool room = fits(*job);
    i += waiting.size() - before;  // who was suspended and paused stands at the front now
    if (!room) break;
    rows += job->rows();
    begin(job);
  }
  leave_queue();
}

// ------------------------------------------------------------------------------------------------ room
KvGrowth Engine::State::growth(const Piece& p) const {
  const std::uint64_t sequence = p.branch < 0 ? p.job->root : p.job->branches[at(p.branch)].sequence;
  return {sequence, p.count, p.source ? static_cast<Dim>(p.job->r.source.size()) : 0, p.job->r.stream};
}

std::size_t Engine::State::need(std::span<const Piece> pieces) const {
  std::vector<KvGrowth> growths;
  std::size_t bytes = 0;
  for (const Piece& p : pieces) {
    growths.push_back(growth(p));
    // Copies are made before their parents go, of all beams of a search at once; add() asked for room for
    // both.
    if (pool.has_states() && p.last && (p.branch < 0 || (p.branch == 0 && p.job->search)))
      bytes += at(p.job->rows() + (p.branch < 0 ? 1 : 0)) * pool.state_bytes();
  }
  return pool.need(growths) + bytes;
}

// The youngest of those whose space holds most rows; none where only one runs.
Engine::State::JobPtr Engine::State::victim() const {
  if (std::ranges::count_if(running, [](const JobPtr& job) { return !job->resting; }) < 2) return nullptr;
  std::map<std::string_view, Dim> of;
  for (const JobPtr& job : running) of[job->r.space] += job->rows();
  const auto most = std::max_element(of.begin(), of.end(),
                                     [](const auto& x, const auto& y) { return x.second < y.second; });
  for (auto it = running.rbegin(); it != running.rend(); ++it)
    if ((*it)->r.space == most->first) return *it;
  return running.back();
}

// Its pages go, its tokens stay.
void Engine::State::pause(const JobPtr& job) {
  drop_sequences(*job);
  for (Branch& b : job->branches) b.read = 0;
  job->read = 0;
  job->phase = Phase::waiting;
  if (const auto it = holds.find(job->r.hold); it != holds.end() && it->second.busy == job->id)
    holds.erase(it);
  ++job->answer->pauses;
  ++counts.pauses;
  counts.paused += !std::exchange(job->paused, true);
  events.push_back({.kind = Event::Kind::paused, .request = job->id});
  std::erase(running, job);
  waiting.push_front(job);
  const std::lock_guard hold(lock);
  waiting_tokens += job->tokens();
  job->told.phase = "waiting";
  job->told.read_tokens = 0;
  job->told.pauses = job->answer->pauses;
}

// One row for every answer. Where they have no room, somebody pauses, or the last one ends.
void Engine::State::plan_writing(std::vector<Piece>& pieces) {
  while (true) {
    pieces.clear();
    for (const JobPtr& job : running) {
      if (job->resting || !job->ready()) continue;
      for (std::size_t b = 0; b < job->branches.size(); ++b)
        if (job->unread(b) == 1) pieces.push_back({job.get(), static_cast<int>(b), 1, true});
    }
    if (pieces.empty() || make_room(need(pieces))) return;
    if (const JobPtr job = victim()) {
      pause(job);
    } else {
      const JobPtr last = running.front();  // who was suspended has paused
      end(*last, Finish::length);
      running.clear();
    }
  }
}

// Rows that a pass may have beside those that write, so that it stays within its time.
Dim Engine::State::prompt_rows(Dim writing) const {
  if (writing == 0 || counts.row_seconds <= 0) return options.chunk;
  const double target = std::max(options.step_seconds, 2 * counts.decode_seconds),
               rows = (target - counts.decode_seconds) / counts.row_seconds;
  const Dim whole = static_cast<Dim>(std::min(rows, 1e6)) / 16 * 16;
  return std::clamp<Dim>(whole, std::min<Dim>(16, options.chunk), options.chunk);
}

// What a pass took, with so many rows that wrote and that read.
void Engine::State::learn(double seconds, Dim writing, Dim read) {
  const auto take = [](double& value, double now) { value = value == 0 ? now : 0.8 * value + 0.2 * now; };
  if (read == 0) {
    take(counts.decode_seconds, seconds);
  } else if (read >= 8) {
    const double beside = writing > 0 ? counts.decode_seconds : 0;
    take(counts.row_seconds, std::max(0.0, seconds - beside) / static_cast<double>(read));
  }
}

// Tokens that are not in the pool and lead to no choice yet: prompts, and answers read again. Each in its
// turn gets what is left of the rows.
void Engine::State::plan_reading(std::vector<Piece>& pieces, Dim rows) {
  // Logits that this pass may still hold.
  Dim logits = std::max<Dim>(1, kMostLogits / std::max<Dim>(1, vocab));
  const auto add = [&](Piece p) {
    // As many tokens as there are pages for.
    const Dim whole = p.count;
    // What must come at once comes at once or not at all.
    const Dim least = p.job->r.one_piece ? whole : p.branch < 0 ? p.job->r.prefix - p.job->read : 0;
    while (p.count > 0) {
      pieces.push_back(p);
      if (make_room(need(pieces))) break;
      pieces.pop_back();
      p.count = p.count <= least ? 0 : std::max(p.count / 2, least);
      p.last = false;
      std::erase_if(p.wanted, [&](Dim i) { return i >= p.job->read + p.count; });
    }
    if (p.count < whole && p.branch < 0) p.last = false;
    rows -= p.count;
    logits -= static_cast<Dim>(p.wanted.size());
  };
  const bool states = options.prefixes && (pool.has_states() || pool.has_chunks());
  const std::vector<JobPtr> all = running;  // some that are suspended may pause
  for (const JobPtr& pointer : all) {
    Job& job = *pointer;
    if (job.resting) continue;
    if (job.phase == Phase::reading) {
      Piece p{&job, -1, std::min({job.prompt() - job.read, std::max<Dim>(rows, 0), job.r.generate.chunk})};
      p.source = translates() && job.read == 0;
      const bool again = job.read < job.shown;
      if (job.r.one_piece) p.count = rows > 0 || pieces.empty() ? job.prompt() - job.read : 0;
      if (job.read < job.r.prefix && p.count < job.r.prefix) p.count = rows > 0 ? job.r.prefix : 0;
      // Rows that were shown and rows that were not come apart; a state is kept where a page ends.
      if (again) p.count = std::min(p.count, job.shown - job.read);
      const auto ends_at = [&](Dim token) {  // but for what must come at once
        if (states && job.shares && token > job.read && token >= job.r.prefix) p.count = token - job.read;
      };
      ends_at(page_end(job.read + p.count));
      // One of them where the same text may be gone on with that has been read to its last token but one.
      if (pool.has_chunks() && job.read + p.count == job.prompt()) ends_at(page_end(job.prompt() - 1));
      if (p.count < 1) continue;
      const auto wants = [&](Dim i) { p.wanted.push_back(i); };
      if (!job.began && !again) {
        const Dim most = job.r.one_piece || job.read < job.r.prefix ? kUnlimited : logits;
        if (job.r.prompt_logprobs >= 0 || job.r.rows.which == Request::Rows::Which::all)
          p.count = std::min(p.count, most);
        if (job.r.prompt_logprobs >= 0 || job.r.rows.which == Request::Rows::Which::all)
          for (Dim i = job.read; i < job.read + p.count; ++i) wants(i);
        else if (job.r.rows.which == Request::Rows::Which::chosen)
          for (const Dim i : job.r.rows.chosen)
            if (i >= job.read && i < job.read + p.count) {
              if (static_cast<Dim>(p.wanted.size()) >= most) {
                p.count = i - job.read;
                break;
              }
              wants(i);
            }
        p.last = job.read + p.count == job.prompt() && job.most > 0;
        if (p.count < 1) continue;
      }
      add(std::move(p));
    } else if (job.phase == Phase::writing && !job.ready()) {
      for (std::size_t b = 0; b < job.branches.size() && rows > 0; ++b) {
        const Dim again = job.unread(b) - 1;
        if (again > 0) add({&job, static_cast<int>(b), std::min(again, rows)});
      }
    }
  }
  // Some have begun, none can go on: whoever came last gives way.
  if (pieces.empty() && !nobody_runs()) {
    if (const JobPtr youngest = victim()) {
      pause(youngest);
      plan_reading(pieces, rows);
    } else {
      const JobPtr job = *std::ranges::find_if(running, [](const JobPtr& j) { return !j->resting; });
      std::erase(running, job);
      if (job->began) {
        end(*job, Finish::length);
      } else {
        try {
          fail("request: the pool of ", pool.budget(), " bytes has no room for the ", job->prompt(),
               " tokens of the prompt");
        } catch (...) {
          fail_job(*job, std::current_exception());
        }
      }
    }
  }
}

}  // namespace rapt
