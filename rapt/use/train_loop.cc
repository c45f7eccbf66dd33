// SPDX-License-Identifier: Apache-2.0
// A run: steps, looks at the held-out part, states saved, and back to the last one.
#include <chrono>

#include "rapt/base/text.h"
#include "rapt/use/together.h"
#include "rapt/use/train.h"

namespace rapt {
namespace {

// Of several ranks one speaks; what becomes part of a state is every rank's.
TrainEvents heard_by(int rank, TrainEvents events) {
  if (rank == 0) return events;
  return {.clock = std::move(events.clock),
          .extra_files = std::move(events.extra_files),
          .state_file = events.state_file};
}

std::string list_of(const std::vector<int>& ranks) {  // "1, 2, 3 …"
  std::string out;
  for (std::size_t i = 0; i < ranks.size() && i < 8; ++i) out += concat(i > 0 ? ", " : "", ranks[i]);
  return out + (ranks.size() > 8 ? " …" : "");
}

}  // namespace

TrainLoop::TrainLoop(Trainer& trainer, const TrainOptions& options, Store& store, TrainEvents events)
    : trainer_(trainer),
      options_(options),
      store_(store),
      comm_(trainer.comm()),
      events_(heard_by(comm_.rank(), std::move(events))) {
  if (const std::optional<Stored> last = newest()) {
    for (const std::string& note : trainer_.restore(store_, *last)) say(note);
    saved_ = last->step;
    say(concat("goes on from ", last->folder, " (step ", last->step, ")"));
  } else {
    save_state();  // so that there is always something to go back to
    saved_ = 0;
  }
  saved_at_ = minutes();
}

void TrainLoop::say(const std::string& text) const {
  if (events_.say) events_.say(text);
}

double TrainLoop::minutes() const {
  if (events_.clock) return events_.clock();
  return std::chrono::duration<double, std::ratio<60>>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

std::optional<Stored> TrainLoop::newest() {
  if (comm_.size() == 1) return store_.latest([&](const std::string& text) { say(text); });
  const std::string found = on_rank_0(comm_, [&]() -> std::string {
    const std::optional<Stored> last = store_.latest([&](const std::string& text) { say(text); });
    if (!last) return "";
    Json j = Json::Object{};
    j.set("step", last->step);
    j.set("folder", last->folder);
    j.set("state", last->state);
    return j.dump(0);
  });
  if (found.empty()) return std::nullopt;
  const Json j = parse_json(found, "the newest state");
  return Stored{j.find("step")->integer(), j.find("folder")->string(), *j.find("state")};
}

void TrainLoop::save_state() {
  comm_.at({.phase = Phase::saving, .step = trainer_.steps()});
  const std::unique_ptr<StateFiles> files = trainer_.state_files(
      events_.extra_files ? events_.extra_files() : std::vector<StoredFile>{}, events_.state_file);
  const Stored stored = store_.save(trainer_.steps(), *files, trainer_.state(), comm_);
  if (store_.blind() != blind_) {
    blind_ = store_.blind();
    if (blind_.empty()) say(concat("note: every rank sees ", store_.folder(), " of rank 0 again"));
    else
      say(concat("note: ", blind_.size(), " of ", comm_.size(), " ranks (", list_of(blind_), ") do not see ",
                 store_.folder(), " of rank 0: the others write their part of the states"));
  }
  if (events_.saved) events_.saved(stored);
}

void TrainLoop::save() {
  if (saved_ == trainer_.steps()) return;
  save_state();
  saved_ = trainer_.steps(), saved_at_ = minutes();
}

void TrainLoop::judge() {
  if (judged_ == trainer_.steps()) return;
  judged_ = trainer_.steps();
  if (!rank_0_says(comm_, static_cast<bool>(events_.judged))) return;
  comm_.at({.phase = Phase::judging, .step = judged_});
  const Judgement judgement = trainer_.judge(options_.eval_batches);
  if (events_.judged) events_.judged(judged_, judgement);
}

void TrainLoop::go_back(const StepReport& r) {
  const std::optional<Stored> back = newest();
  if (!back)
    fail("train: ", options_.guard.skips, " of ", options_.guard.within,
         " steps were skipped and there is no saved state to go back to");
  const Dim rewinds = trainer_.rewind(store_, *back);
  if (rewinds > options_.guard.rewinds)
    fail("train: went back ", options_.guard.rewinds, " times and steps still fail (last: ", r.why,
         "); lower optimizer.rate, raise schedule.warmup, or look at the data from batch ", r.batch);
  say(concat("goes back to step ", back->step, ", past batch ", r.batch, ", ", options_.guard.slow,
             " steps at half the rate (", rewinds, " of ", options_.guard.rewinds, ")"));
}

StepReport TrainLoop::step() {
  const StepReport r = trainer_.step();
  if (events_.step) events_.step(r);
  if (r.fate != StepReport::Fate::done) {
    say(concat("step ", r.step + 1, " skipped (batch ", r.batch, "): ", r.why));
    if (r.fate == StepReport::Fate::rewound) go_back(r);
    return r;
  }
  const TrainOptions& o = options_;
  if (o.eval_every > 0 && r.step % o.eval_every == 0) judge();
  const bool by_steps = o.save_every > 0 && r.step % o.save_every == 0;
  const bool timed = o.save_minutes > 0 && o.average == 0;
  if (by_steps || (timed && rank_0_says(comm_, minutes() - saved_at_ >= o.save_minutes))) {
    save_state();
    saved_ = r.step, saved_at_ = minutes();
  }
  return r;
}

bool TrainLoop::stopped(const std::atomic<int>& stop) {
  return any_rank(comm_, stop.load(std::memory_order_relaxed) != 0);
}

bool TrainLoop::end() {
  save();
  if (!done()) return false;
  judge();
  return true;
}

bool train(Trainer& trainer, const TrainOptions& o, Store& store, const TrainEvents& events,
           const std::atomic<int>& stop) {
  TrainLoop loop(trainer, o, store, events);
  while (!loop.done() && !loop.stopped(stop)) loop.step();
  return loop.end();
}

}  // namespace rapt
