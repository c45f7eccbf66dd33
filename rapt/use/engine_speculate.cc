// SPDX-License-Identifier: Apache-2.0
// Guesses at what answers say next, as rows of a pass, and what came of them.
#include <algorithm>
#include <cmath>
#include <utility>

#include "rapt/use/engine_state.h"

namespace rapt {
namespace {

constexpr Dim kMostGuesses = 31;  // of an answer in a pass
constexpr Dim kMostCopies = Dim{1} << 22;  // tokens of prompts that the samples of a request look up

// Of a draft model: tokens that it says ahead, at most and where it is only tried; rows of a text that it
// reads in a step; a pass of it beside one of the model, until it is measured, where their files do not tell
// their sizes.
constexpr Dim kMostDraft = 12, kTriedDraft = 2, kAlwaysDraft = 4, kDraftRows = 256;
constexpr double kAssumedDraft = 0.2;
constexpr Dim kPatience = 16, kMostPatience = 1024;  // tokens of an answer until it is tried again
constexpr int kAnswersUntried = 16;  // … until it is tried in one more, as if that were worth so much:
constexpr double kTriedGain = 1.25;
constexpr double kAssumedAnswer = 128;  // tokens, before one has ended
constexpr double kNoNeedOfDraft = 0.8;

// About as many guesses are remembered, of an answer and of all.
constexpr double kRemembered = 32, kAllRemembered = 512;

// The draft draws with the number that the model will draw with at that place: where the two agree about
// what is likely, they choose the same. What mirostat adjusts follows from the model's draws: not here.
SamplerOptions draft_options(SamplerOptions o) {
  o.mirostat = 0;
  return o;
}

}  // namespace

// ------------------------------------------------------------------------------------ what is known already
// Of what this answer is known to begin with: what it has not said yet. Nothing once it said something else.
Engine::State::Ids Engine::State::known_rest(const Job& job, std::size_t sample) const {
  if (sample >= job.r.known.size() || job.search || job.r.taps || pool.has_states()) return {};
  const Ids known = job.r.known[sample], said = job.samples[sample].out.ids;
  if (said.size() >= known.size() || said.size() < job.r.forced.size()) return {};
  return std::ranges::equal(said, known.first(said.size())) ? known.subspan(said.size()) : Ids{};
}

bool Engine::State::knows_more(std::span<const Piece> pieces) const {
  return std::ranges::any_of(pieces, [&](const Piece& p) {
    return p.branch >= 0 && p.last && !known_rest(*p.job, at(p.branch)).empty();
  });
}

// Tokens that are known are rows behind the one that must be, like guesses, but always: they are as good as a
// prompt that is read. At most `rows` in all; of each answer up to the end of its page.
void Engine::State::plan_known(std::span<Piece> pieces, Dim rows) {
  rows = std::min(rows, kMostLogits / std::max<Dim>(1, vocab) - static_cast<Dim>(pieces.size()));
  for (Piece& p : pieces) {
    if (p.branch < 0 || !p.last) continue;
    Job& job = *p.job;
    const Ids rest = known_rest(job, at(p.branch));
    if (rest.empty()) continue;
    Sample& s = job.samples[at(p.branch)];
    const Dim most = std::min({rows, static_cast<Dim>(rest.size()), guesses_left(job, at(p.branch))});
    s.guesses.clear();
    s.guessed = std::max<Dim>(0, most);
    for (const std::int32_t id : rest.first(at(s.guessed))) s.guesses.push_back({id, kKnown});
    rows -= s.guessed;
    p.guessed = s.guessed;
    p.count += s.guessed;
  }
}

// How many rows may stand behind an answer's last token: none that takes room, none behind the answer's end.
Dim Engine::State::guesses_left(const Job& job, std::size_t sample) const {
  const Dim length = static_cast<Dim>(job.samples[sample].out.ids.size()),
            past = job.prompt() + job.branches[sample].read,
            // The state at a chunk's end is kept when the row before it is certain.
      page = page_end(past + kPageKeys) - past - (pool.has_chunks() ? 2 : 1);
  return std::min(job.most - length - 1, page);
}

// ------------------------------------------------------------------------------------------------- guesses
// Behind the rows that must be. They take no room: a guess stays in the page of the row before it, which the
// pass has anyway. So the end of a page is where a pass ends, too, and what fills it can be found later.
void Engine::State::plan_guesses(std::span<Piece> pieces) {
  if ((options.speculate == Speculate::off && !options.guess) || pool.has_states()) return;
  std::vector<Dim> room(pieces.size(), 0);
  Dim rows = 0;
  bool asks = false;
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    const Piece& p = pieces[i];
    rows += p.count;
    Job& job = *p.job;
    if (p.branch < 0 || !p.last || job.search || job.r.taps || !job.r.speculate) continue;
    Sample& s = job.samples[at(p.branch)];
    if (p.guessed > 0) continue;  // known
    const Dim length = static_cast<Dim>(s.out.ids.size()),
              most = std::min(kMostGuesses, guesses_left(job, at(p.branch)));
    s.guesses.clear();
    s.guessed = 0;
    if (most < 1 || length < static_cast<Dim>(job.r.forced.size())) continue;
    if (options.guess) {
      for (const std::int32_t id : options.guess(job.r.tokens, s.out.ids, most)) {
        if (id < 0 || id >= vocab || static_cast<Dim>(s.guesses.size()) >= most) break;
        s.guesses.push_back({id, 0});
      }
      continue;
    }
    room[i] = most;
    asks = draft != nullptr;
    if (job.rows() * job.prompt() > std::max(kMostCopies, job.prompt())) continue;
    while (s.look.size() < job.prompt()) s.look.push(job.r.tokens[at(s.look.size())]);
    while (s.look.size() < job.prompt() + length) s.look.push(s.out.ids[at(s.look.size() - job.prompt())]);
    s.guesses = s.look.guess(most);
    // What a draft model says costs more; where the text repeats itself there is no need of it.
    if (draft && !s.guesses.empty() && HitRates::of(s.rates, rates, s.guesses[0].kind) >= kNoNeedOfDraft)
      room[i] = 0;
  }
  if (asks) ask_draft(pieces, room);

  std::vector<std::vector<double>> chances(pieces.size());
  std::vector<Dim> taken(pieces.size());
  const bool always = options.guess || options.always_guess;
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    const Piece& p = pieces[i];
    if (p.branch < 0 || !p.last || p.job->search || p.guessed > 0) continue;
    const Sample& s = p.job->samples[at(p.branch)];
    taken[i] = static_cast<Dim>(s.guesses.size());
    for (const Guess& g : s.guesses) chances[i].push_back(HitRates::of(s.rates, rates, g.kind));
  }
  if (!always)
    taken = speculation.plan(chances, pass_times, rows, kMostLogits / std::max<Dim>(1, vocab) - rows);
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    if (taken[i] == 0) continue;
    Piece& p = pieces[i];
    p.guessed = taken[i];
    p.count += taken[i];
    p.job->samples[at(p.branch)].guessed = taken[i];
  }
}

// Of the time of a pass, that one of the draft model takes: weights are read.
double Engine::State::draft_share() const {
  const std::uint64_t small = options.draft->file_bytes, all = checkpoint->file_bytes;
  return small > 0 && all > 0 ? static_cast<double>(small) / static_cast<double>(all) : kAssumedDraft;
}

// The draft model is asked by those who have room for so many guesses, if what it says has been right often
// enough. `most`: of each piece.
void Engine::State::ask_draft(std::span<Piece> pieces, std::span<const Dim> most) {
  const auto rows = static_cast<Dim>(pieces.size());
  if (pass_times.at(rows) <= 0 && !options.always_guess) return;
  const double said_seconds = draft->pass_seconds() > 0
                                  ? draft->pass_seconds()
                                  : draft_share() * pass_times.unit() * pass_times.at(rows);
  const auto texts = static_cast<Dim>(std::ranges::count_if(most, [](Dim n) { return n > 0; }));
  std::vector<DraftModel::Question> questions;
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    if (most[i] == 0) continue;
    Job& job = *pieces[i].job;
    const auto number = at(pieces[i].branch);
    Sample& s = job.samples[number];
    const auto length = static_cast<Dim>(s.out.ids.size());
    double gain = 1;
    Dim count = options.always_guess ? kAlwaysDraft
                                     : draft_length(HitRates::of(s.rates, rates, kAnyDraft), pass_times, rows,
                                                    texts, said_seconds, kMostDraft, gain);
    if (count == 0 && --s.rest <= 0) {  // now and then all the same
      s.patience = std::clamp<Dim>(2 * s.patience, kPatience, kMostPatience);
      s.rest = s.patience;
      if (s.draft != 0 || ++untried % kAnswersUntried == 0) count = kTriedDraft, gain = kTriedGain;
    } else if (count > 0) {
      s.patience = s.rest = 0;
    }
    if (count == 0) continue;
    if (s.draft == 0) s.draft = next_sequence++;
    DraftModel::Question q{s.draft, job.r.tokens, s.out.ids, std::min(count, most[i]), {}};
    // A text that is not read yet must be worth reading.
    if (const Dim rest = draft->unread(q); rest > 4 * kMostDraft && !options.always_guess) {
      const double expected = counts.answer_tokens > 0 ? counts.answer_tokens : kAssumedAnswer,
                   left = std::min(expected, static_cast<double>(job.most - length)),
                   row = draft->row_seconds() > 0 ? draft->row_seconds() : said_seconds / 4;
      const double saved =
          left / static_cast<double>(rows) * pass_times.at(rows) * pass_times.unit() * (1 - 1 / gain);
      if (row * static_cast<double>(rest) > saved / 2) continue;
    }
    // Behind a guess that is hardly right none comes: a pass and a row for it cost more than it gains.
    const double least = options.always_guess
                             ? 0
                             : (said_seconds / pass_times.unit() / static_cast<double>(texts) +
                                std::max(0.0, pass_times.at(rows + 1) - pass_times.at(rows))) *
                                   static_cast<double>(rows) / pass_times.at(rows);
    std::vector<std::int32_t> history = s.history;
    const Dim first = static_cast<Dim>(before(job).size()) + length;
    q.take = [this, &s, &job, number, least, history = std::move(history), first, chance = 1.0,
              said = Dim{0}](std::span<const float> row) mutable -> std::int32_t {
      if (chance < least) return -1;
      if (said == 0) s.guesses.clear();
      TokenChoice choice;
      const SamplerOptions& o = job.sampling;
      if (!s.draft_sampler) s.draft_sampler.emplace(draft_options(o), number);
      choice = s.draft_sampler->choose(row, history, first + said, 0);
      if (choice.id >= vocab) return -1;
      const int kind = draft_kind(std::exp(static_cast<double>(choice.logprob)));
      chance *= HitRates::of(s.rates, rates, kind);
      s.guesses.push_back({choice.id, kind});
      if (job.history) history.push_back(choice.id);
      ++said;
      return choice.id;
    };
    questions.push_back(std::move(q));
  }
  if (!questions.empty()) draft->ask(questions, kDraftRows);
}

void Engine::State::drop_draft(Sample& s) {
  if (s.draft != 0) draft->drop(std::exchange(s.draft, 0));
}

// What a piece of an answer reads: tokens that were said, then guesses.
Engine::State::Ids Engine::State::with_guesses(const Piece& p, std::vector<std::int32_t>& room) const {
  const Ids said =
      p.job->ids(at(p.branch)).subspan(at(p.job->branches[at(p.branch)].read), at(p.count - p.guessed));
  if (p.guessed == 0) return said;
  const std::vector<Guess>& guesses = p.job->samples[at(p.branch)].guesses;
  room.assign(said.begin(), said.end());
  for (Dim i = 0; i < p.guessed; ++i) room.push_back(guesses[at(i)].id);
  return room;
}

// The token that a row leads to was chosen. Whether the next row is one behind it: its guess was right.
bool Engine::State::take_row(const Choice& c) {
  Job& job = *c.job;
  Sample& s = job.samples[c.sample];
  const std::int32_t id = s.error ? -1 : s.next.id;
  const bool guess = c.index < s.guesses.size(), right = guess && s.guesses[c.index].id == id,
             more = right && static_cast<Dim>(c.index) < s.guessed;
  const bool known = s.knows();
  if (guess && id >= 0 && !known) {
    const int kind = s.guesses[c.index].kind;
    s.rates.add(kind, right, kRemembered);
    rates.add(kind, right, kAllRemembered);
    if (kind >= kLookUpKinds) {
      s.rates.add(kAnyDraft, right, kRemembered);
      rates.add(kAnyDraft, right, kAllRemembered);
    }
  }
  if (c.index == 0 && !known) {
    job.answer->times.guessed_tokens += s.guessed;
    counts.guessed_tokens += static_cast<std::uint64_t>(s.guessed);
  }
  job.answer->times.right_guesses += more && !known;
  counts.right_guesses += more && !known;
  take_choice(job, c.sample, more);
  if (more && s.open && !job.error) {
    Branch& b = job.branches[c.sample];
    b.shown = std::max(b.shown, ++b.read);
    return true;
  }
  s.guesses.clear();
  s.guessed = 0;
  return false;
}

}  // namespace rapt
