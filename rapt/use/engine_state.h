// SPDX-License-Identifier: Apache-2.0
// The inside of the engine: a request with all that belongs to it, and who does what. Its functions stand in
// engine.cc (requests, a step), engine_schedule.cc (who may begin, who has room), engine_pass.cc (a pass and
// what its rows lead to), engine_speculate.cc (guesses at that), engine_fair.cc (whose turn it is),
// engine_status.cc (what other threads ask).
#pragma once
#include <algorithm>
#include <deque>
#include <limits>
#include <map>
#include <mutex>
#include <optional>
#include <unordered_map>

#include "rapt/base/clock.h"
#include "rapt/text/stop_text.h"
#include "rapt/use/beam.h"
#include "rapt/use/draft_model.h"
#include "rapt/use/engine.h"
#include "rapt/use/prefixes.h"

namespace rapt {

// Every self-attention of the decoder.
template <class F>
void each_self_attention(const Recipe& recipe, const F& f) {
  if (!recipe.decoder) return;
  for (const auto& [name, layer] : recipe.decoder->kinds)
    for (const auto& part : layer.parts)
      if (const AttnRecipe* a = part.self()) f(name, *a);
}

struct Engine::State {
  using Ids = std::span<const std::int32_t>;

  static constexpr Dim kUnlimited = std::numeric_limits<Dim>::max() / 4;
  // Rows of a pass over whole texts: enough for the matrices, little enough to stay in the cache.
  static constexpr Dim kWholeRows = 2048;
  // Logits of one pass: 256 MiB.
  static constexpr Dim kMostLogits = Dim{64} << 20;

  static std::size_t at(Dim i) { return static_cast<std::size_t>(i); }

  // One answer that is being written.
  struct Sample {
    Sampler sampler;
    std::vector<std::int32_t> history;
    std::optional<TextStream> stream;
    StopText stop;
    Generated out = {};
    bool open = true;
    std::unique_ptr<Constraint> constraint = {};
    TokenChoice next = {};
    float logit = 0;  // of `next`, as the model gave it
    std::exception_ptr error = {};
    // Guesses behind the last token; the first `guessed` of them are rows of the pass.
    std::vector<Guess> guesses = {};
    Dim guessed = 0;
    bool knows() const { return !guesses.empty() && guesses[0].kind == kKnown; }
    LookUp look = {};
    HitRates rates = {};
    std::uint64_t draft = 0;  // its number there; 0: never asked
    std::optional<Sampler> draft_sampler = {};
    Dim rest = 0, patience = 0;  // tokens until the draft model is asked again
    Sample(const SamplerOptions& s, std::size_t i, std::span<const std::string> stops)
        : sampler(s, i), stop(stops) {}
  };

  // A sequence of the pool that an answer is written into.
  struct Branch {
    std::uint64_t sequence = 0;  // 0: none
    Dim read = 0;  // tokens of the answer in the pool
    Dim shown = 0;  // … that observers have seen
  };

  // Who is charged for rows.
  struct Client {
    std::int64_t used = 0;  // tokens, above those of clients that came later
    Dim live = 0;  // requests that are not done
    bool wants = false, wanted = false;  // rows that are handed out: in this step, in the one before
    std::int64_t given = 0;  // while rows are handed out
  };

  enum class Phase { waiting, reading, writing, over };

  // A request with all that belongs to it.
  struct Job {
    Id id = 0;
    Request r;
    Client* client = nullptr;  // from the first step on
    Phase phase = Phase::waiting;
    std::uint64_t root = 0;  // reads the prompt; later what a hold keeps
    Dim read = 0;  // tokens of the prompt in the pool
    Dim shown = 0;  // … that observers have seen, or never will
    bool began = false;  // the first tokens of the answers were chosen
    Dim most = 0;  // tokens of an answer
    std::vector<AdapterUse> adapters;
    std::vector<Sample> samples;
    std::optional<BeamSearch> search;
    std::vector<Branch> branches;  // of samples, or of live beams
    SamplerOptions sampling;
    bool history = false;  // the sampler looks back
    PrefixHash key;
    bool shares = false;  // prefixes
    Dim inserted = 0;  // tokens of the prompt that the index has
    std::shared_ptr<Answer> answer = std::make_shared<Answer>();
    Clock::time_point added = {}, started = {}, read_at = {};
    std::atomic<bool> stop = false;
    std::atomic<bool> suspended = false;  // as others want it
    bool resting = false;  // … as it is in this step
    bool paused = false;  // waits for room to go on
    JobStatus told = {};  // under the engine's lock
    std::vector<bool> unwanted;  // by sample: cancelled before they began
    std::exception_ptr error = {};

    Dim prompt() const { return static_cast<Dim>(r.tokens.size()); }
    Dim tokens() const { return prompt() + static_cast<Dim>(r.source.size()); }
    Ids ids(std::size_t branch) const { return search ? search->ids(branch) : Ids(samples[branch].out.ids); }
    bool open(std::size_t branch) const { return search || samples[branch].open; }
    bool cancelled() const {
      return stop.load(std::memory_order_relaxed) || (r.cancel && r.cancel->load(std::memory_order_relaxed));
    }
    // Tokens of an answer that are not in the pool.
    Dim unread(std::size_t branch) const {
      return open(branch) ? static_cast<Dim>(ids(branch).size()) - branches[branch].read : 0;
    }
    // Every answer waits for its last token only.
    bool ready() const {
      for (std::size_t b = 0; b < branches.size(); ++b)
        if (unread(b) > 1) return false;
      return phase == Phase::writing;
    }
    Dim rows() const { return r.generate.beams > 0 ? r.generate.beams : r.generate.samples; }
  };
  using JobPtr = std::shared_ptr<Job>;

  // Some tokens of one sequence in a pass.
  struct Piece {
    Job* job;
    int branch;  // -1: the prompt
    Dim count;
    bool last = false;  // logits of its last row are wanted, to go on from
    bool source = false;  // begins with its source
    std::vector<Dim> wanted = {};  // positions of the prompt whose logits are wanted besides
    Dim guessed = 0;  // of its tokens, the last ones
    // Filled in by the pass:
    Dim row = -1, wanted_row = -1;
  };

  Device& device;
  const Checkpoint* checkpoint = nullptr;
  const Model& model;
  Options options;
  const Dim context, vocab;
  const Tokenizer* tokenizer = nullptr;
  std::vector<std::int32_t> stops;
  KvPool pool;
  PrefixIndex prefixes;
  Run run;
  std::vector<float> wide;  // logits of a device that computes in double

  mutable std::mutex lock;  // of what other threads touch: the next ones, and Job::told
  std::deque<JobPtr> inbox;
  std::unordered_map<Id, JobPtr> live;
  Dim waiting_tokens = 0;
  std::vector<std::pair<Id, int>> unwanted_samples;  // cancelled, one by one
  Status told;
  Dim most_rows = 0, unread = 0;  // Options::rows; tokens of prompts that are being read
  Dim suspended = 0;  // of those that live
  bool changed = false;  // something was asked for since the last step began
  bool stalled = false;  // … which found nothing to do

  std::deque<JobPtr> waiting;
  std::vector<JobPtr> running;  // in the order they began
  std::map<std::string, Client, std::less<>> clients;
  // Of Client::used: where those that come to want rows begin.
  std::int64_t level = 0;
  Dim background = 0;  // requests that are not done
  Dim whole_credit = 0;  // rows that whole texts may have
  // Those that wait, in the order in which they may begin.
  class Line {
   public:
    Line(State& state, bool whole);
    JobPtr next();  // none is left: null
    void begins(const Job& job);

   private:
    State& s;
    bool whole_, plain_;
    std::size_t at_ = 0, size_ = 0;
    std::vector<JobPtr> queue_ = {};
  };
  // A text that is being read, and its part of the step's prompt rows.
  struct Reader {
    Job* job;
    Dim left, rows = 0;
  };
  struct Held {
    std::uint64_t sequence;
    std::vector<std::int32_t> tokens;
    PrefixHash key;
    std::uint64_t used;
    Id busy = 0;  // the request that runs in it
  };
  std::map<std::uint64_t, Held> holds;
  std::vector<Event> events;
  std::uint64_t next_job = 1, next_sequence = 1, clock = 0;
  Status counts;  // of the thread that steps
  HitRates rates;
  PassTimes pass_times;
  SpeculationPlan speculation;
  std::unique_ptr<DraftModel> draft;
  int untried = 0;  // answers that the draft model was not asked about
  Clock::time_point idle_counted = {};

  State(Device& d, const Checkpoint* c, const Model& m, const Options& o)
      : device(d),
        checkpoint(c),
        model(m),
        options(o),
        context(o.context > 0 ? o.context : m.recipe.context),
        vocab(m.recipe.vocab),
        pool(m, o.cache, o.budget),
        prefixes(pool),
        run(d) {
    if (o.chunk < 1 || o.rows < 1)
      fail_usage("engine: passes of ", o.chunk, " prompt rows and ", o.rows, " answers; give at least 1");
    publish_pool();
    if (!c) return;
    if (o.speculate == Speculate::draft) {
      if (!o.draft) fail_usage("engine: drafts need a model that says them");
      check_same_tokens(*o.draft, *c);
      draft = std::make_unique<DraftModel>(d, *o.draft, o.cache, o.budget / 8);
    }
    tokenizer = c->tokenizer.get();
    stops = c->stops;
    if (tokenizer)
      for (const std::int32_t id : tokenizer->stops)
        if (std::find(stops.begin(), stops.end(), id) == stops.end()) stops.push_back(id);
    std::erase_if(stops, [&](std::int32_t id) { return id < 0 || id >= vocab; });
  }

  // Where the last whole page of so many tokens ends.
  Dim page_end(Dim tokens) const { return (tokens + pool.hidden()) / kPageKeys * kPageKeys - pool.hidden(); }
  bool translates() const { return model.recipe.encoder && model.recipe.decoder; }
  // What the sampler and the text of an answer see before it: of a translation nothing.
  bool nobody_runs() const {  // but for who is suspended
    return std::ranges::all_of(running, [](const JobPtr& job) { return job->resting; });
  }
  Ids before(const Job& job) const { return translates() ? Ids{} : Ids(job.r.tokens); }

  void prepare(Job& job);
  std::vector<Event> step(Dim rows);
  std::vector<JobPtr> take_whole(Dim rows);
  void enter(Job& job);
  static Dim unread_tokens(const Job& job);
  void leave(Job& job);
  void settle_clients();
  void charge(std::span<const Piece> pieces, std::span<const JobPtr> whole);
  void share_rows(std::span<Reader> readers, Dim rows);
  Dim whole_rows(Dim rows);
  void take_inbox();
  void leave_queue();
  void publish(Dim rows);
  void publish_pool();
  void take_cancels();
  void admit();
  bool fits(const Job& job);
  void start(Job& job);
  void begin(const JobPtr& job);
  std::size_t extra_states(const Job& job) const;
  bool make_room(std::size_t bytes);
  void pause(const JobPtr& job);
  JobPtr victim() const;
  void plan_writing(std::vector<Piece>& pieces);
  void plan_reading(std::vector<Piece>& pieces, Dim rows);
  Ids known_rest(const Job& job, std::size_t sample) const;
  bool knows_more(std::span<const Piece> pieces) const;
  Dim guesses_left(const Job& job, std::size_t sample) const;
  void plan_known(std::span<Piece> pieces, Dim rows);
  void plan_guesses(std::span<Piece> pieces);
  void ask_draft(std::span<Piece> pieces, std::span<const Dim> most);
  void drop_draft(Sample& sample);
  double draft_share() const;
  Ids with_guesses(const Piece& piece, std::vector<std::int32_t>& room) const;
  Dim prompt_rows(Dim writing, const Status& learned) const;
  static void average(double& value, double now);
  void learn(double seconds, Dim writing, Dim read);
  std::size_t need(std::span<const Piece> pieces) const;
  KvGrowth growth(const Piece& piece) const;

  static void gather_adapters(std::span<Piece> pieces);
  void pass(std::span<Piece> pieces);
  void pass_whole(std::span<const JobPtr> jobs);
  struct Assembly;
  Tensor compute(Assembly& assembly, const Job* alone, KvPool* with);
  void take_rows(std::span<Piece> pieces, const Tensor& result);
  void take_prompt_rows(Job& job, const Piece& piece, const Tensor& rows, std::span<const float> logits);
  void choose(Job& job, std::size_t sample, std::span<const float> row) noexcept;
  void take_choice(Job& job, std::size_t sample, bool more = false);
  // A token that a row leads to. `index`: how many guesses of the pass were right before it.
  struct Choice {
    Job* job;
    std::size_t sample;
    Dim row;
    std::size_t index = 0;
    Choice behind() const { return {job, sample, row + 1, index + 1}; }
  };
  bool take_row(const Choice& choice);
  void branch_out(Job& job);
  void close(Job& job, std::size_t sample, Finish why);
  void drop_sequences(Job& job);
  void end(Job& job, Finish why);
  void fail_job(Job& job, std::exception_ptr error);
  void finish(Job& job);
  void insert_prefix(Job& job, std::uint64_t sequence, std::size_t branch, bool prompt);
  void bound_prefixes();
  std::span<const float> numbers(const Tensor& t);
};

}  // namespace rapt
