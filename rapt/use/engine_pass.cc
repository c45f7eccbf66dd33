// SPDX-License-Identifier: Apache-2.0
// A pass, what its rows lead to, and how requests end.
#include <algorithm>
#include <utility>

#include "rapt/use/engine_state.h"

namespace rapt {

// ------------------------------------------------------------------------------------------------ a pass
std::span<const float> Engine::State::numbers(const Tensor& t) {
  if (t.dtype == DType::f32) return t.as<const float>();
  wide.resize(at(t.elements()));
  for (std::size_t i = 0; i < wide.size(); ++i) wide[i] = static_cast<float>(t.at(static_cast<Dim>(i)));
  return wide;
}

// What a pass reads, put together sequence by sequence.
struct Engine::State::Assembly {
  std::vector<std::int32_t> tokens, source, wanted;
  Batch batch, from;
  Taps taps;  // shares of those that watch, in their order
  Dim rows = 0;  // with learned tokens

  // Tokens `ids` of a sequence, of which those at `which` (counted from its first here) are wanted. Returns
  // where they stand among all that are wanted.
  Dim add(const Job& job, Sequence s, Ids ids, bool begins, std::span<const Dim> which, Dim hidden,
          bool muted) {
    const Dim first = s.first = static_cast<Dim>(tokens.size()), row = static_cast<Dim>(wanted.size()),
              added = s.past == 0 ? hidden : 0;
    s.count = static_cast<Dim>(ids.size());
    s.prefix = job.r.prefix;
    s.stream = job.r.stream;
    s.adapters = job.adapters;
    batch.sequences.push_back(s);
    tokens.insert(tokens.end(), ids.begin(), ids.end());
    TapShare share{.taps = job.r.taps,
                   .rows = {rows, s.count + added},
                   .wanted = {row, static_cast<Dim>(which.size())},
                   .position = s.past == 0 ? 0 : s.past + hidden,
                   .muted = muted};
    share.source = share.rows;  // of an encoder alone
    if (begins) {
      share.source = {static_cast<Dim>(source.size()), static_cast<Dim>(job.r.source.size())};
      from.sequences.push_back(
          {.first = share.source.first, .count = share.source.count, .id = s.id, .adapters = job.adapters});
      source.insert(source.end(), job.r.source.begin(), job.r.source.end());
    }
    for (const Dim i : which) wanted.push_back(static_cast<std::int32_t>(first + i));
    rows += s.count + added;
    if (job.r.taps) taps.shares.push_back(std::move(share));
    return row;
  }
};

// `alone`: the only request of the pass, which may end between two layers.
Tensor Engine::State::compute(Assembly& a, const Job* alone, KvPool* with) {
  a.batch.tokens = a.tokens;
  a.from.tokens = a.source;
  run.reset();
  run.taps = a.taps.shares.empty() ? nullptr : &a.taps;
  run.cancel = !alone ? nullptr : alone->r.cancel ? alone->r.cancel : &alone->stop;
  struct Reset {
    Run& run;
    ~Reset() { run.taps = nullptr, run.cancel = nullptr; }
  } const reset{run};
  const auto started = Clock::now();
  const Tensor out = forward(run, model, a.batch, a.source.empty() ? nullptr : &a.from, with);
  counts.last.compute += seconds_since(started);
  ++counts.passes;
  return out;
}

// Rows of one adapter side by side, else in their order: one product for all of them.
void Engine::State::gather_adapters(std::span<Piece> pieces) {
  std::map<std::uint64_t, std::vector<Piece>> by_adapter;
  const auto first_adapter = [](const Piece& p) {
    return p.job->adapters.empty() ? std::uint64_t{0} : p.job->adapters[0].adapter->hash[0];
  };
  if (std::ranges::none_of(pieces, first_adapter)) return;
  for (Piece& p : pieces) by_adapter[first_adapter(p)].push_back(std::move(p));
  auto to = pieces.begin();
  for (auto& [adapter, list] : by_adapter) to = std::ranges::move(list, to).out;
}

void Engine::State::pass(std::span<Piece> pieces) {
  if (pieces.empty()) return;
  gather_adapters(pieces);
  Assembly a;
  Job* const first = pieces[0].job;
  const auto others =
      std::find_if(pieces.begin(), pieces.end(), [&](const Piece& p) { return p.job != first; });
  Tensor out;
  try {
    std::vector<std::int32_t> text;
    for (Piece& p : pieces) {
      const Job& job = *p.job;
      const Branch* branch = p.branch < 0 ? nullptr : &job.branches[at(p.branch)];
      const Dim past = branch ? job.prompt() + branch->read : job.read;
      const Ids ids = branch ? with_guesses(p, text) : Ids(job.r.tokens).subspan(at(job.read), at(p.count));
      std::vector<Dim> which;
      for (const Dim i : p.wanted) which.push_back(i - past);
      // Rows of guesses lead to a choice each, if it comes to that.
      for (Dim i = p.count - 1 - p.guessed; p.last && i < p.count; ++i)
        if (which.empty() || which.back() < i) which.push_back(i);
      if (branch) pool.guess(branch->sequence, p.guessed);
      p.wanted_row = a.add(job, {.past = past, .id = growth(p).id, .opened = context}, ids, p.source, which,
                           pool.hidden(), branch ? branch->read < branch->shown : job.read < job.shown);
      p.row = p.last ? p.wanted_row + static_cast<Dim>(which.size()) - 1 - p.guessed : -1;
    }
    a.batch.want = {.rows = a.wanted.empty() ? Want::Rows::none : Want::Rows::chosen, .chosen = a.wanted};
    out = compute(a, others == pieces.end() ? first : nullptr, &pool);
  } catch (const Cancelled&) {  // the only one's flag, or the thread's for all (CancelScope)
    for (const Piece& p : pieces)
      if (p.job->phase != Phase::over) end(*p.job, Finish::cancelled);
    return;
  } catch (...) {
    // Whose fault it was shows when each has a pass of its own. Nothing has changed yet.
    if (others == pieces.end()) {
      fail_job(*first, std::current_exception());
      return;
    }
    pass(pieces.first(static_cast<std::size_t>(others - pieces.begin())));
    pass(pieces.subspan(static_cast<std::size_t>(others - pieces.begin())));
    return;
  }
  // An observer that threw ends its own request.
  std::size_t share = 0;
  for (const Piece& p : pieces) {
    if (!p.job->r.taps) continue;
    if (a.taps.shares[share].error && !p.job->error) p.job->error = a.taps.shares[share].error;
    ++share;
  }
  take_rows(pieces, out);
}

// What the rows of a pass lead to.
void Engine::State::take_rows(std::span<Piece> pieces, const Tensor& result) {
  const std::span<const float> logits = result ? numbers(result) : std::span<const float>{};
  const auto V = at(vocab);
  const auto row = [&](Dim i) { return logits.subspan(at(i) * V, V); };

  // Where the sequences stand now.
  for (Piece& p : pieces) {
    Job& job = *p.job;
    if (p.branch >= 0) {
      Branch& b = job.branches[at(p.branch)];
      b.read += p.count - p.guessed;
      b.shown = std::max(b.shown, b.read);
      continue;
    }
    if (!job.error && !p.wanted.empty())
      take_prompt_rows(job, p, result.slice(p.wanted_row, static_cast<Dim>(p.wanted.size())),
                       logits.subspan(at(p.wanted_row) * V));
    const bool again = job.read < job.shown;
    job.read += p.count;
    job.shown = std::max(job.shown, job.read);
    if (!again) {
      job.answer->times.prompt_tokens += p.count;
      counts.prompt_tokens += static_cast<std::uint64_t>(p.count);
      events.push_back({.kind = Event::Kind::prompt,
                        .request = job.id,
                        .read = job.read,
                        .of = job.prompt(),
                        .reused = job.answer->times.reused_tokens});
    }
  }

  // Tokens are chosen on all threads: every answer for itself, every search for itself.
  std::vector<Choice> choices;
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    Piece& p = pieces[i];
    Job& job = *p.job;
    if (!p.last || job.error) continue;
    if (p.branch < 0) {
      job.read_at = Clock::now();
      if (job.r.generate.beams > 0) {
        const std::int32_t last = before(job).empty() ? -1 : before(job).back();
        job.search.emplace(job.r.generate, stops, tokenizer, last, job.most, vocab, job.r.mask,
                           job.r.constraint.get());
        choices.push_back({&job, 0, p.row});
        continue;
      }
      const GenerateOptions& o = job.r.generate;
      job.samples.reserve(at(o.samples));
      for (std::size_t s = 0; s < at(o.samples); ++s) {
        Sample& sample = job.samples.emplace_back(job.sampling, s, o.stops);
        if (job.history) sample.history.assign(before(job).begin(), before(job).end());
        if (job.r.constraint) sample.constraint = job.r.constraint->copy();
        if (tokenizer) {
          sample.stream.emplace(*tokenizer, false, o.shown_ids);
          // The answer's first word keeps its space.
          if (!before(job).empty()) sample.stream->push(before(job).back());
        }
        if (!job.unwanted.empty() && job.unwanted[s]) close(job, s, Finish::cancelled);
        else choices.push_back({&job, s, p.row});
      }
    } else if (!job.search) {
      choices.push_back({&job, at(p.branch), p.row});
    } else if (p.branch == 0) {
      choices.push_back({&job, 0, p.row});
    }
  }
  std::vector<std::vector<std::size_t>> parents(choices.size());
  const auto take = [&](Dim i) {
    const Choice& c = choices[at(i)];
    if (!c.job->search) {
      choose(*c.job, c.sample, row(c.row));
      return;
    }
    try {
      parents[at(i)] = c.job->search->advance(logits.subspan(at(c.row) * V, c.job->search->live() * V));
    } catch (...) {
      c.job->error = std::current_exception();
    }
  };
  const auto choose_all = [&] {
    const auto started = Clock::now();
    if (choices.size() == 1) take(0);  // the buffers of one sampler stay with one thread
    else device.team().each(static_cast<Dim>(choices.size()), take);
    counts.last.choose += seconds_since(started);
  };
  choose_all();
  std::vector<Choice> next;  // behind guesses that were right

  for (std::size_t i = 0; i < choices.size(); ++i) {
    Job& job = *choices[i].job;
    if (job.error) continue;
    if (!job.search) {
      if (take_row(choices[i])) next.push_back(choices[i].behind());
      continue;
    }
    counts.decoded_tokens += job.search->live();
    if (job.began) job.answer->times.decoded_tokens += static_cast<Dim>(job.branches.size());
    if (!job.began) {  // the prompt itself is the one that lives
      job.began = true;
      job.branches.assign(1, {});
      if (job.r.hold != 0) {
        job.branches[0].sequence = next_sequence++;
        pool.share(job.root, job.branches[0].sequence, job.prompt());
      } else {
        job.branches[0].sequence = std::exchange(job.root, 0);
      }
      job.phase = Phase::writing;
    }
    // Children take over their parents' pages; the parents go.
    std::vector<Branch> children;
    for (const std::size_t parent : parents[i]) {
      const Branch& from = job.branches[parent];
      children.push_back({next_sequence++, from.read, from.shown});
      pool.share(from.sequence, children.back().sequence, job.prompt() + from.read);
    }
    for (const Branch& b : job.branches) pool.drop(b.sequence);
    job.branches = std::move(children);
    if (job.search->over()) finish(job);
  }
  while (!next.empty()) {
    choices = std::exchange(next, {});
    choose_all();
    for (const Choice& c : choices)
      if (!c.job->error && take_row(c)) next.push_back(c.behind());
  }
  for (const Piece& p : pieces) {
    if (p.guessed == 0) continue;
    const Branch& b = p.job->branches[at(p.branch)];
    if (b.sequence != 0) pool.truncate(b.sequence, p.job->prompt() + b.read);
  }

  // Who is done; whose prompt has just been read.
  for (const Piece& p : pieces) {
    Job& job = *p.job;
    if (job.phase == Phase::over) continue;
    if (job.error) {
      finish(job);
      continue;
    }
    if (p.branch < 0 && job.shares && job.root != 0) insert_prefix(job, job.root, 0, true);
    if (job.phase == Phase::reading && job.read == job.prompt()) {
      if (job.most == 0) {
        job.read_at = Clock::now();
        end(job, Finish::length);
        continue;
      }
      branch_out(job);
    }
    // A search may have fewer branches now.
    if (p.branch >= 0 && job.shares && at(p.branch) < job.branches.size() &&
        job.branches[at(p.branch)].sequence != 0)
      insert_prefix(job, job.branches[at(p.branch)].sequence, at(p.branch), false);
    if (!job.search && job.began &&
        std::none_of(job.samples.begin(), job.samples.end(), [](const Sample& s) { return s.open; }))
      finish(job);
  }
}

// The prompt is read: every answer gets a sequence that begins with it.
void Engine::State::branch_out(Job& job) {
  job.began = true;
  job.phase = Phase::writing;
  const std::size_t n = job.search ? job.search->live() : job.samples.size();
  job.branches.resize(n);
  bool root_used = false;
  for (std::size_t b = 0; b < n; ++b) {
    if (!job.open(b)) continue;
    Branch& branch = job.branches[b];
    branch.read = 0;
    const bool takes = !root_used && (job.search ? job.r.hold == 0 && b + 1 == n : b == 0);
    if (takes) {
      branch.sequence = job.root;
      root_used = true;
      continue;
    }
    branch.sequence = next_sequence++;
    pool.share(job.root, branch.sequence, job.prompt());
  }
  if (root_used) job.root = 0;
  else if (job.r.hold == 0) pool.drop(std::exchange(job.root, 0));
}

void Engine::State::insert_prefix(Job& job, std::uint64_t sequence, std::size_t branch, bool prompt) {
  const Dim length = pool.length(sequence);
  if (length < prefixes.first_end(job.r.prefix) ||
      (prompt && (length + pool.hidden()) / kPageKeys == (job.inserted + pool.hidden()) / kPageKeys))
    return;
  if (prompt) {
    prefixes.insert(job.key, job.r.tokens, job.r.prefix, sequence, length < page_end(job.prompt() - 1));
    job.inserted = length;
    return bound_prefixes();
  }
  if ((length + pool.hidden()) % kPageKeys != 0) return;  // no page was filled just now
  std::vector<std::int32_t> ids = job.r.tokens;
  ids.insert(ids.end(), job.ids(branch).begin(), job.ids(branch).end());
  prefixes.insert(job.key, ids, job.r.prefix, sequence, true);
  bound_prefixes();
}

void Engine::State::bound_prefixes() {
  if (options.idle_prefix_bytes == 0) return;
  const std::size_t most = std::max(options.idle_prefix_bytes, 4 * pool.page_bytes());
  while (prefixes.reclaimable() > most && prefixes.evict_idle()) {}
}

// Logits of prompt rows, for who wants them and for the log-probabilities of the next tokens.
void Engine::State::take_prompt_rows(Job& job, const Piece& p, const Tensor& rows,
                                     std::span<const float> logits) {
  try {
    if (job.r.prompt_logprobs >= 0) {
      const auto V = at(vocab);
      std::vector<TokenChoice> choices(p.wanted.size());
      device.team().each(static_cast<Dim>(choices.size()), [&](Dim i) {
        const Dim position = p.wanted[at(i)];
        if (position + 1 >= job.prompt()) return;
        const std::span<const float> row = logits.subspan(at(i) * V, V);
        const double whole = log_sum_exp(row);
        TokenChoice& c = choices[at(i)];
        c.id = job.r.tokens[at(position + 1)];
        c.logprob = static_cast<float>(row[at(c.id)] - whole);
        for (const auto& [logit, id] : largest(row, job.r.prompt_logprobs))
          c.top.emplace_back(id, static_cast<float>(logit - whole));
      });
      for (TokenChoice& c : choices)
        if (c.id >= 0) job.answer->prompt.push_back(std::move(c));
    }
    if (!job.r.rows.see) return;
    // Log-probabilities may want more rows than are shown.
    if (job.r.rows.which == Request::Rows::Which::chosen && job.r.prompt_logprobs >= 0) {
      for (std::size_t i = 0; i < p.wanted.size(); ++i)
        if (std::ranges::binary_search(job.r.rows.chosen, p.wanted[i]))
          job.r.rows.see(std::span(&p.wanted[i], 1), rows.slice(static_cast<Dim>(i), 1));
    } else if (job.r.rows.which != Request::Rows::Which::none) {
      job.r.rows.see(p.wanted, rows);
    }
  } catch (...) {
    job.error = std::current_exception();
  }
}

// ------------------------------------------------------------------------------------------------ tokens
// Runs on any thread: touches its own sample alone.
void Engine::State::choose(Job& job, std::size_t i, std::span<const float> row) noexcept {
  Sample& s = job.samples[i];
  const GenerateOptions& o = job.r.generate;
  const bool logprobs = o.logprobs || o.top_logprobs > 0;
  try {
    const auto length = static_cast<Dim>(s.out.ids.size());
    if (length < static_cast<Dim>(job.r.forced.size())) {
      s.next = {.id = job.r.forced[at(length)]};
      s.logit = row[at(s.next.id)];
      if (!logprobs) return;
      const double whole = log_sum_exp(row);
      s.next.logprob = static_cast<float>(row[at(s.next.id)] - whole);
      for (const auto& [logit, id] : largest(row, o.top_logprobs))
        s.next.top.emplace_back(id, static_cast<float>(logit - whole));
      return;
    }
    std::vector<std::uint64_t> allowed;
    if (!o.bad_words.empty() || job.r.mask) {
      allowed = all_tokens(row.size());
      apply_mask(job.r.mask, s.out.ids, allowed);
      forbid(o.bad_words, s.out.ids, allowed);
    }
    const Dim start = static_cast<Dim>(before(job).size());
    s.next = s.sampler.choose(row, s.history, start + length, logprobs ? o.top_logprobs : -1,
                              {.allowed = allowed, .constraint = s.constraint.get()});
    s.logit = row[at(s.next.id)];
  } catch (...) {
    s.error = std::current_exception();
  }
}

// `more`: the next one is known already.
void Engine::State::take_choice(Job& job, std::size_t i, bool more) {
  Sample& s = job.samples[i];
  const GenerateOptions& o = job.r.generate;
  if (s.error) {
    job.error = s.error;
    return;
  }
  const std::int32_t id = s.next.id;
  add_choice(s.out.hash, id, s.logit);
  const auto ends = [&](const std::vector<std::int32_t>& ids) {
    return std::find(ids.begin(), ids.end(), id) != ids.end();
  };
  if ((!o.ignore_eos && ends(stops)) || ends(o.stop_ids)) {
    s.out.stop_id = id;
    close(job, i, Finish::stop);
    return;
  }
  if (s.constraint && static_cast<Dim>(s.out.ids.size()) >= static_cast<Dim>(job.r.forced.size())) {
    try {
      s.constraint->accept(id);
    } catch (...) {  // of this request alone
      job.error = std::current_exception();
      return;
    }
  }
  s.out.ids.push_back(id);
  if (job.history) s.history.push_back(id);
  const bool logprobs = o.logprobs || o.top_logprobs > 0;
  if (logprobs) s.out.tokens.push_back(std::move(s.next));
  ++job.answer->times.decoded_tokens;
  ++counts.decoded_tokens;
  std::string text = s.stream ? s.stop.push(s.stream->push(id)) : std::string{};
  s.out.text += text;
  events.push_back({.kind = Event::Kind::token,
                    .request = job.id,
                    .sample = static_cast<int>(i),
                    .id = id,
                    .text = std::move(text),
                    .choice = logprobs ? s.out.tokens.back() : TokenChoice{},
                    .seconds = seconds_since(job.added)});
  if (s.stop.found()) close(job, i, Finish::stop);
  else if (static_cast<Dim>(s.out.ids.size()) >= job.most) close(job, i, Finish::length);
  else if (more && job.r.hear) {
    try {
      if (!job.r.hear(events.back())) close(job, i, Finish::cancelled);
    } catch (...) {
      job.error = std::current_exception();
    }
  }
}

// --------------------------------------------------------------------------------------------- whole texts
// Texts that are read at once and not kept: as many as fill a pass, all logits or all hidden states.
void Engine::State::pass_whole(std::span<const JobPtr> jobs) {
  const bool hidden = jobs[0]->r.rows.hidden, one_row = model.recipe.head.pools() && !hidden;
  Assembly a;
  std::vector<std::vector<Dim>> positions;
  std::vector<Dim> first_row;
  Tensor out;
  try {
    for (const JobPtr& job : jobs) {
      std::vector<Dim>& rows = positions.emplace_back(job->r.rows.chosen);
      if (job->r.rows.which == Request::Rows::Which::all && !one_row)
        for (Dim i = 0; i < job->prompt(); ++i) rows.push_back(i);
      first_row.push_back(
          a.add(*job, {.id = job->id}, job->r.tokens, translates(), rows, pool.hidden(), false));
      if (!one_row) continue;
      // A classifier or a model of vectors gives one row for each text.
      first_row.back() = static_cast<Dim>(first_row.size()) - 1;
      if (job->r.taps) a.taps.shares.back().wanted = {first_row.back(), 1};
    }
    a.batch.want.hidden = hidden;
    if (!one_row && a.wanted.size() != a.tokens.size()) {
      a.batch.want.rows = a.wanted.empty() ? Want::Rows::none : Want::Rows::chosen;
      a.batch.want.chosen = a.wanted;
    }
    out = compute(a, jobs.size() == 1 ? jobs[0].get() : nullptr, nullptr);
  } catch (const Cancelled&) {
    for (const JobPtr& job : jobs) end(*job, Finish::cancelled);
    return;
  } catch (...) {
    if (jobs.size() == 1) fail_job(*jobs[0], std::current_exception());
    else
      for (const JobPtr& job : jobs) pass_whole({&job, 1});
    return;
  }
  std::size_t share = 0;
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    Job& job = *jobs[i];
    if (job.r.taps) job.error = a.taps.shares[share++].error;
    try {
      const auto rows = one_row ? 1 : static_cast<Dim>(positions[i].size());
      if (job.r.rows.see && !job.error && rows > 0)
        job.r.rows.see(positions[i], out.slice(first_row[i], rows));
    } catch (...) {
      job.error = std::current_exception();
    }
    job.answer->times.prompt_tokens = job.prompt();
    counts.prompt_tokens += static_cast<std::uint64_t>(job.prompt());
    events.push_back(
        {.kind = Event::Kind::prompt, .request = job.id, .read = job.prompt(), .of = job.prompt()});
    finish(job);
  }
}

// ------------------------------------------------------------------------------------------------ ends
void Engine::State::close(Job& job, std::size_t i, Finish why) {
  Sample& s = job.samples[i];
  s.open = false;
  drop_draft(s);
  std::string rest = s.stream && !s.stop.found() ? s.stop.push(s.stream->finish()) : std::string{};
  rest += s.stop.finish();
  s.out.finish = s.stop.found() ? Finish::stop : why;
  s.out.stop_text = s.stop.found();
  s.out.stop_number = s.stop.which();
  s.out.text += rest;
  if (!rest.empty())
    events.push_back({.kind = Event::Kind::token,
                      .request = job.id,
                      .sample = static_cast<int>(i),
                      .text = std::move(rest)});
  if (i >= job.branches.size()) return;
  Branch& b = job.branches[i];
  // Of guesses behind its end nothing stays.
  if (b.sequence != 0 && pool.length(b.sequence) > job.prompt() + b.read)
    pool.truncate(b.sequence, job.prompt() + b.read);
  if (i == 0 && job.r.hold != 0 && b.sequence != 0) job.root = b.sequence;  // stays for the next request
  else if (b.sequence != 0) pool.drop(b.sequence);
  b.sequence = 0;
}

void Engine::State::drop_sequences(Job& job) {
  for (Branch& b : job.branches)
    if (b.sequence != 0) pool.drop(std::exchange(b.sequence, 0));
  if (job.root != 0) pool.drop(std::exchange(job.root, 0));
}

// All that is still open ends here.
void Engine::State::end(Job& job, Finish why) {
  if (job.search) {
    job.search->cut_off(why);
  } else {
    for (std::size_t i = 0; i < job.samples.size(); ++i)
      if (job.samples[i].open) close(job, i, why);
    if (job.samples.empty()) job.answer->samples.assign(at(job.r.generate.samples), Generated{.finish = why});
  }
  finish(job);
}

void Engine::State::fail_job(Job& job, std::exception_ptr error) {
  job.error = std::move(error);
  finish(job);
}

void Engine::State::finish(Job& job) {
  Answer& a = *job.answer;
  if (job.search && !job.error) {
    a.samples = job.search->answers();
    for (std::size_t i = 0; i < a.samples.size(); ++i)
      events.push_back({.kind = Event::Kind::token,
                        .request = job.id,
                        .sample = static_cast<int>(i),
                        .text = a.samples[i].text});
  } else if (!job.samples.empty()) {
    for (Sample& s : job.samples) a.samples.push_back(std::move(s.out));
  }
  if (job.phase != Phase::waiting || job.began) {
    const auto now = Clock::now();
    if (job.read_at == Clock::time_point{}) job.read_at = now;
    a.times.prompt_seconds = std::chrono::duration<double>(job.read_at - job.started).count();
    a.times.decode_seconds = std::chrono::duration<double>(now - job.read_at).count();
  } else {
    a.times.queue_seconds = seconds_since(job.added);
  }
  const auto it = holds.find(job.r.hold);
  const bool holds_it = job.r.hold != 0 && !job.error && job.root != 0 && pool.length(job.root) > 0;
  if (it != holds.end() && it->second.busy == job.id && !holds_it) holds.erase(it);
  if (holds_it) {
    Held& h = holds[job.r.hold];
    std::vector<std::int32_t> tokens = job.r.tokens;
    if (!job.search && !a.samples.empty())
      tokens.insert(tokens.end(), a.samples[0].ids.begin(), a.samples[0].ids.end());
    tokens.resize(std::min(tokens.size(), at(pool.length(job.root))));
    h = {std::exchange(job.root, 0), std::move(tokens), job.key, ++clock};
    if (job.r.stream.window > 0) {
      Dim visible = 0;
      each_self_attention(model.recipe, [&](const std::string&, const AttnRecipe& s) {
        visible =
            std::max(visible, s.window > 0 ? s.window + s.keep : job.r.stream.window + job.r.stream.keep);
      });
      // 0: no layer forgets.
      if (visible > 0) a.times.dropped_tokens = std::max<Dim>(0, pool.length(h.sequence) - visible);
    }
  }
  drop_sequences(job);
  for (Sample& s : job.samples) drop_draft(s);
  job.phase = Phase::over;
  events.push_back({.kind = Event::Kind::done,
                    .request = job.id,
                    .seconds = seconds_since(job.added),
                    .answer = job.answer,
                    .error = std::move(job.error)});
  counts.paused -= std::exchange(job.paused, false);
  leave(job);
  if (job.began && !job.error)
    average(counts.answer_tokens,
            static_cast<double>(a.times.decoded_tokens) / static_cast<double>(job.rows()));
  const std::lock_guard hold(lock);
  suspended -= job.suspended.load(std::memory_order_relaxed);
  live.erase(job.id);
}

}  // namespace rapt
