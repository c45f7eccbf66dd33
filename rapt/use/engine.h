// SPDX-License-Identifier: Apache-2.0
// The loop over many requests to one model: add() takes one, step() computes one pass for all that run and
// tells what came of it. A pass mixes a row for every answer that is being written with pieces of the prompts
// that are being read; pages come from one pool (nn/kv_pool.h). No bit of an answer depends on the others, on
// the size of the pieces, on what was found in the cache, or on pauses.
//
// A request waits until the pool has room for it and its client's turn comes (engine_fair.cc says in which
// order, and that nothing starves). When room runs out, prefixes that nobody uses go first, then who is
// suspended, then work in the background, then the youngest request of the client that has most in the pool
// pauses: its pages are dropped, its tokens kept, and it reads them again later. The only one that is left
// ends where the pool does (Finish::length).
//
// Calls that say "any thread" may be made while another steps; the rest like step(), by one at a time. The
// device is leased for a step: others may use it in between.
#pragma once
#include <atomic>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "rapt/load/checkpoint.h"
#include "rapt/use/generation.h"
#include "rapt/use/speculate.h"

namespace rapt {

struct Event;

struct Request {
  // The text to go on from. Of an encoder-decoder: what the answer begins with; its start token where empty.
  std::vector<std::int32_t> tokens;
  std::vector<std::int32_t> source;  // encoder-decoder: what is translated
  GenerateOptions generate;  // max_tokens 0: nothing is written
  std::vector<std::int32_t> forced;  // the first tokens of every answer: not drawn. No beams
  TokenMask mask = {};  // on the next token; several threads may ask at once, for samples of one request
  // What every answer must be; each goes on with a copy of its own. The stops it allows are where it may end.
  // It does not see the forced tokens.
  std::shared_ptr<const Constraint> constraint = {};

  // Layers that see everything see the first `keep` tokens and the last `window` instead, and there is no
  // limit on the length.
  Stream stream = {};
  Dim prefix = 0;  // leading tokens that see each other (prefix masks)

  // Who watches and changes the rows of this request, and only these; must outlive it. A row is shown once:
  // one that was found in the cache is not shown (Event::reused), nor is one that is read again.
  Taps* taps = nullptr;
  // What the edits among them are, for those who share prefixes: requests with equal texts have equal edits.
  // Edits without it share nothing, but for what a request of the same observers held.
  std::string edits = {};

  // LoRA adapters of all its rows, each with a scale, added in this order; absent: the checkpoint's own. Who
  // shares prefixes has equal ones.
  std::optional<std::vector<AdapterUse>> adapters = {};

  // Rows of `tokens` whose logits are wanted, or their hidden states (after the final norm, before the head;
  // with `whole` only). `see` gets them as they come: their positions, and [positions, V or C], valid during
  // the call; of a classifier one row for the whole text, at no position.
  struct Rows {
    enum class Which { none, all, chosen } which = Which::none;
    std::vector<Dim> chosen = {};  // ascending
    bool hidden = false;
    std::function<void(std::span<const Dim> positions, const Tensor& rows)> see = {};
  } rows = {};
  int prompt_logprobs = -1;  // >= 0: of every token but the first, with so many others (Answer::prompt)
  // The tokens come in one pass (an edit that needs the whole text: needs_whole of inspect/edits.h). Nothing
  // is written then.
  bool one_piece = false;
  bool whole = false;  // … and nothing is kept of them: encoders, classifiers, rows of many short texts

  std::string space = {};  // requests of equal spaces share prefixes
  // Who is charged: clients get equal parts, inside one it is first come, first served; empty: the space is.
  std::string client = {};
  // Begins after others, and gets a third of the prompt rows at most while anybody else runs.
  bool background = false;
  std::uint64_t hold = 0;  // not 0: what was read stays for the next request of this name, to the token
  // Where several tokens of an answer come of one pass (Options::speculate): called behind each of them but
  // the last, before the next one is chosen; false ends that sample there. Its event comes as well, later.
  std::function<bool(const Event& token)> hear = {};
  bool speculate = true;  // false: not for this one
  // What the answers are known to begin with, a list for each: a pass computes many of these tokens' rows, as
  // it does those of guesses, and from the first token on that is another one nothing is known. No bit of an
  // answer depends on it. Of no use where nothing is guessed either (see Options::speculate); no beams.
  std::vector<std::vector<std::int32_t>> known = {};
  // Beside Engine::cancel; where it is given, it is what is looked at between layers.
  const std::atomic<bool>* cancel = nullptr;
};

// What a request has come to.
struct Answer {
  std::vector<Generated> samples;  // beams: best first
  std::vector<TokenChoice> prompt;  // prompt_logprobs
  GenerateTimes times;
  int pauses = 0;
};

struct Event {
  enum class Kind {
    prompt,  // `read` of `of` tokens are read; `reused`: of them found in the cache
    token,  // of one sample: an id, and text that has become certain; at its end what was held back, id -1
    paused,
    done,  // `answer`, or `error`
  } kind;
  std::uint64_t request;
  int sample = 0;
  std::int32_t id = -1;
  std::string text = {};
  TokenChoice choice = {};  // of `id`, where log-probabilities were asked for (not of beams)
  double seconds = 0;  // token, done: since add()
  Dim read = 0, of = 0, reused = 0;
  std::shared_ptr<Answer> answer = {};
  std::exception_ptr error = {};
};

class Engine {
 public:
  struct Options {
    DType cache = DType::f32;  // f32, f16, bf16, q8_0, q4_0
    Dim context = 0;  // tokens of prompt and answer; 0: the model's
    std::size_t budget = 0;  // bytes of the pool; 0: no limit
    Dim chunk = 512;  // prompt rows of a pass while nobody writes
    double step_seconds = 0.05;  // what a pass with prompt rows may take while others write
    Dim rows = 64;  // answers that are written side by side; the rest waits
    bool prefixes = false;  // whole pages are kept for later requests that begin alike
    // … so many bytes of them that no text uses, or a few pages where those are more; 0: as the budget allows
    std::size_t idle_prefix_bytes = 0;
    Dim most_waiting = 0, most_waiting_tokens = 0;  // 0: no limit. Beyond, add() refuses
    // Tokens are guessed, and their rows computed with the one before them, where that is measured to pay
    // (use/speculate.h). Not in beams, nor where rows are watched or edited, nor with recurrent states.
    Speculate speculate = Speculate::off;
    // Speculate::draft: the model that is asked. It has the same tokens, and outlives the engine. What it
    // reads lies in a pool of its own, an eighth of `budget` beside it.
    const Checkpoint* draft = nullptr;
    // For tests: what is guessed is computed, whatever it costs; and what that is, in the place of the rest.
    bool always_guess = false;
    std::function<std::vector<std::int32_t>(std::span<const std::int32_t> prompt,
                                            std::span<const std::int32_t> answer, Dim most)>
        guess = {};
  };
  using Id = std::uint64_t;

  // Only `model` is needed for requests without text: without a tokenizer answers are ids.
  Engine(Device& device, const Checkpoint& checkpoint, const Options& options);
  Engine(Device& device, const Model& model, const Options& options);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  Id add(Request request);  // any thread. Fails where it cannot be meant, or can never fit
  // Any thread. Ends it at the next step, or between two layers of a pass that is its own. sample >= 0: that
  // one alone.
  void cancel(Id id, int sample = -1);
  // Any thread. From the next step on it takes no rows, or does so again. It keeps its pages until others
  // need the room: then it pauses before anybody else does. It is none of Options::rows meanwhile.
  void suspend(Id id, bool on);
  // One pass. `prompt_rows`: of this one; 0: as many as the options' time allows. Where all that are left are
  // suspended, nothing happens.
  std::vector<Event> step(Dim prompt_rows = 0);
  bool idle() const;  // any thread: nothing is left to do
  bool runnable() const;  // any thread: a step would do something now
  // Steps until the request, which nobody suspends, is done. An error of it is thrown.
  Answer finish(Id id, const std::function<void(const Event&)>& on_event = {});

  void release(std::uint64_t hold);  // what a request held
  Dim held(std::uint64_t hold) const;  // its tokens in the pool
  void drop_prefixes();
  void limit_rows(Dim rows);  // Options::rows, from the next step on

  struct StepTimes {
    double all = 0;  // seconds
    double compute = 0;  // … of passes
    double choose = 0;  // … of choosing tokens from their logits
  };
  struct Status {
    Dim waiting = 0, running = 0, rows = 0;  // rows: answers being written
    Dim suspended = 0;  // of those that wait and run
    Dim paused = 0;  // of those that wait: began, and gave their pages back
    std::size_t pages = 0, bytes = 0, budget = 0, prefixes = 0;
    std::size_t shared_pages = 0;  // of several texts, or of a text and a prefix
    std::size_t free_bytes = 0;  // 0 without a budget
    std::size_t idle_bytes = 0;  // of prefixes alone: what goes first; of many prefixes a quarter second old
    StepTimes last, total;  // of steps that computed something
    std::uint64_t passes = 0, pauses = 0, prompt_tokens = 0, reused_tokens = 0, decoded_tokens = 0;
    std::uint64_t guessed_tokens = 0, right_guesses = 0;  // whose rows were computed; that were said
    // Learned: a pass that only writes (with guesses: its part for a token of each answer), a prompt row,
    // tokens of an answer.
    double decode_seconds = 0, row_seconds = 0, answer_tokens = 0;
    double source_seconds = 0;  // all passes that read sources (encoder-decoder)
  };
  Status status() const;  // any thread: as of the last step, or of the pass that is under way
  // Any thread: seconds until a request of so many tokens could begin if it were added now. All prompts that
  // wait or are being read are read first, and so many answers end that it has a row and room for its pages.
  // From what was learned so far: 0 before that.
  double estimate_wait(Dim tokens) const;
  void reset_counts();  // totals of Status begin anew; what was learned of times stays
  struct JobStatus {
    Id id = 0;
    const char* phase = "";  // waiting, reading, writing, suspended
    std::string client = {};
    Dim prompt_tokens = 0, read_tokens = 0, reused_tokens = 0, written_tokens = 0;
    int pauses = 0;
    double seconds = 0;  // since add()
  };
  std::vector<JobStatus> jobs() const;  // any thread: those that are not done, as the last step left them
  Dim context() const;
  const Model& model() const;
  const std::vector<std::int32_t>& stops() const;  // ids that end an answer
  KvPool& pool();  // for tests

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Fails with the reason where a request cannot stream: positions that cannot be counted anew inside a
// window, layers that see every key.
void check_streams(const Recipe& recipe, const Stream& stream);

}  // namespace rapt
