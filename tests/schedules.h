// SPDX-License-Identifier: Apache-2.0
// Random schedules of an engine (use/engine.h): a few requests to a toy model that come, share beginnings,
// wait for room, are watched, changed and cancelled. Everything about one follows from a seed of 64 bits.
// What came of each request is compared, bit for bit, with the same request alone in an engine of its own,
// without a limit and without prefixes. Differences are told, not asserted: faults that were planted on
// purpose must be among them.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "rapt/use/engine.h"

namespace rapt::test {

struct ToyModel {
  std::string name;
  Checkpoint checkpoint;
  DType cache = DType::f32;  // what the model is there for
  bool blocks = false;       // heads are wide enough for caches in blocks
  bool prefix = false;       // leading tokens may see each other
  // Two, and one that says it is the first and is another; none where nothing can be changed.
  std::vector<std::shared_ptr<const Adapter>> adapters = {};
  const Recipe& recipe() const { return checkpoint.model->recipe; }
  bool reads_whole() const { return !recipe().decoder || recipe().head.kind == HeadRecipe::Kind::classes; }
  bool translates() const { return recipe().encoder && recipe().decoder; }
  bool recurrent() const { return recipe().decoder && recipe().decoder->recurrent; }
  bool streams() const;
};
const std::vector<ToyModel>& toy_models();  // made once
const ToyModel& toy_model(std::string_view name);
Device& toy_device();

// Two tokens of five, by all that came before; the end where that allows it.
class SaltedConstraint : public Constraint {
 public:
  explicit SaltedConstraint(std::uint64_t salt, Dim vocab = 40) : state_(salt), vocab_(vocab) {}
  std::unique_ptr<Constraint> copy() const override { return std::make_unique<SaltedConstraint>(*this); }
  void mask(std::span<std::uint64_t> allowed) override;
  bool allows(std::int32_t id) override;
  void accept(std::int32_t id) override;

 private:
  std::uint64_t state_;
  Dim vocab_;
};

// One request, and what happens to it.
struct PlannedRequest {
  Request request;  // without observers
  bool looks = false;
  int edit = -1;      // which point is scaled (kEditSites); -1: none
  double factor = 1;
  int arrives = 0;    // before this step
  int after = -1;     // … and not before this request is done
  std::vector<std::pair<int, int>> rests = {};  // steps from … to before … in which it is suspended
  bool resting(int step) const;
  // Cancelled or failed. step: before a step; seen: by its own observer, in the middle of a pass; flag: as
  // seen, by Request::cancel; other: by its own observer, but not itself; throws: its observer fails.
  enum class End { none, step, sample, seen, flag, other, throws } end = End::none;
  int when = 0;  // a step, or how often its observer was called
  int whom = 0;  // sample: which; other: which request
  Dim most_tokens() const;  // of an answer, where nothing ends it before
};

struct Schedule {
  std::uint64_t seed = 0;
  const ToyModel* model = nullptr;
  Engine::Options options;
  bool tiny = false;  // a pool in which answers may end early
  std::vector<PlannedRequest> requests;
  std::vector<Dim> prompt_rows;  // of the steps, again and again
  // Tokens of answers are guessed: so many in a hundred are right. -1: none are guessed.
  int guesses = -1;
  // Planted: edits reach into the row behind their own; the pool's own faults.
  bool leaks = false;
  KvPool::Fault fault = KvPool::Fault::none;
};

// What some schedules are about.
struct Focus {
  std::string model = {};  // "": any
  bool edits = false;      // many; short answers side by side
  bool samples = false;    // many samples and beams
  bool cancelled_holds = false;  // held sequences whose pass is cancelled, and what continues them
};
Schedule draw_schedule(std::uint64_t seed, const Focus& focus = {});

// Everything a request said.
struct RequestOutcome {
  std::string refused, error;
  bool done = false;
  std::vector<Generated> samples;
  std::vector<TokenChoice> prompt;
  std::vector<std::vector<std::int32_t>> ids;  // as events told them, by sample
  std::vector<std::vector<TokenChoice>> choices;
  std::vector<std::string> texts;
  Dim reused = 0;
  int pauses = 0, paused_events = 0, paused_reading = 0;
  // Rows that were seen, by site, stack, layer, part, kind of rows and cross; then by position, as hashes of
  // their numbers. Several answers have rows at one position: sorted.
  using Point = std::tuple<std::string, Stack, int, int, Tapped::Rows, bool>;
  std::map<Point, std::vector<std::vector<std::uint64_t>>> looks;
  // Statistics of attention agree to rounding only: a few rows and many have orders of addition of their own.
  std::map<Point, std::vector<std::vector<float>>> stats;
  std::map<Dim, std::vector<std::uint64_t>> rows;  // wanted ones; of a classifier at -1
};

// The same request, undisturbed.
RequestOutcome answer_alone(const Schedule& schedule, const PlannedRequest& request);

// How much of what schedules are made for took place.
struct Coverage {
  std::size_t requests = 0, refused = 0, early = 0, cancelled = 0, failed = 0;
  std::size_t rested = 0;  // steps of suspended requests
  std::size_t guessed = 0, right = 0;  // tokens of answers
  std::size_t pauses = 0, paused_reading = 0, reused = 0, looks = 0, rows = 0, tokens = 0, steps = 0;
};
// All differences, each with the request and its seed; empty: as it should be.
std::vector<std::string> differences(const Schedule& schedule, Coverage* coverage = nullptr);
// The same while another thread adds and cancels.
std::vector<std::string> threaded_differences(const Schedule& schedule, Coverage* coverage = nullptr);

std::uint64_t hash_of_row(const Tensor& value, Dim row);

}  // namespace rapt::test
