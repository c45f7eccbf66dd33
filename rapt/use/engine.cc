// SPDX-License-Identifier: Apache-2.0
// A step: what was asked for since the last one, who may begin, who has room; then the passes, then tokens.
// What a request needs is always "tokens that the pool should hold" less "tokens that it holds": prompts,
// answers and what is read again after a pause are the same.
#include "rapt/use/engine.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>

#include "rapt/base/text.h"
#include "rapt/use/engine_state.h"

namespace rapt {

void check_streams(const Recipe& recipe, const Stream& stream) {
  if (stream.keep < 0 || stream.window < 1 || std::max(stream.keep, stream.window) > Mask::kAll / 2)
    fail_usage("streaming: keep ", stream.keep, " and window ", stream.window,
               "; keep must be at least 0, the window at least 1");
  if (!recipe.decoder || recipe.encoder)
    fail("streaming: model ", recipe.name, " is no decoder-only model; only those run on without end");
  if (recipe.embed.pos != EmbedRecipe::Pos::none)
    fail("streaming: model ", recipe.name, " adds ",
         recipe.embed.pos == EmbedRecipe::Pos::learned ? "a learned" : "a sinusoid",
         " position to every token, and cached keys carry it: ",
         recipe.embed.pos == EmbedRecipe::Pos::learned
             ? concat("there is none after the first ", recipe.context)
             : "it cannot be counted anew inside the window",
         ". Streaming needs RoPE or ALiBi; use --overflow error and a shorter text");
  each_self_attention(recipe, [&](const std::string& name, const AttnRecipe& a) {
    if (a.pos.kind == PosRecipe::Kind::bucket)
      fail("streaming: layers '", name, "' of model ", recipe.name,
           " look up distances in buckets; streaming needs RoPE or ALiBi");
    if (a.window == 0 && a.mask != AttnRecipe::MaskKind::causal)
      fail("streaming: layers '", name, "' of model ", recipe.name,
           " see every key of a chunk or a prefix, so nothing of it may be forgotten");
  });
}

// ------------------------------------------------------------------------------------------------ requests
Engine::Engine(Device& device, const Checkpoint& checkpoint, const Options& options)
    : state_(std::make_unique<State>(device, &checkpoint, *checkpoint.model, options)) {}
Engine::Engine(Device& device, const Model& model, const Options& options)
    : state_(std::make_unique<State>(device, nullptr, model, options)) {}
Engine::~Engine() = default;

// Checks, and what follows from the model.
void Engine::State::prepare(Job& job) {
  Request& r = job.r;
  const Recipe& recipe = model.recipe;
  const GenerateOptions& o = r.generate;
  check(o);
  const bool writes = o.max_tokens != 0 && !r.whole && !r.one_piece;
  const bool classes = recipe.head.pools();
  if ((r.whole || r.one_piece) && o.max_tokens != 0)
    fail_usage("request: a text that is read in one piece is not gone on with; ask for 0 tokens");
  if (!r.whole && (!recipe.decoder || classes))
    fail_usage("request: model ", recipe.name,
               " reads whole texts and keeps nothing of them; ask for rows of a whole text");
  if (translates() && r.source.empty()) fail_usage("translate: the source has no tokens");
  if (!translates() && !r.source.empty())
    fail_usage("request: model ", recipe.name, " has no encoder and decoder, so it takes no source");
  if (translates() && r.tokens.empty() && checkpoint) {
    const std::int32_t start = checkpoint->decoder_start;
    if (start < 0 || start >= vocab)
      fail("translate: ", checkpoint->path,
           " does not say which token its answers start from (decoder_start_token_id)");
    r.tokens = {start};
  }
  if (r.tokens.empty())
    fail_usage(
        "generate: the prompt has no tokens; a model continues a text, so give it at least one (a "
        "beginning-of-text token will do)");
  const Dim length = job.prompt();
  if (r.prefix < 0 || r.prefix > length)
    fail_usage("request: a prefix of ", r.prefix, " tokens of a text of ", length);
  for (Dim i = 0; i < length; ++i)
    if (r.tokens[at(i)] < 0 || r.tokens[at(i)] >= vocab)
      fail_usage("generate: token ", r.tokens[at(i)], " at place ", i,
                 " of the prompt is outside the vocabulary of ", vocab);
  for (const std::int32_t id : r.source)
    if (id < 0 || id >= vocab)
      fail_usage("translate: token ", id, " of the source is outside the vocabulary of ", vocab);
  for (const std::int32_t id : r.forced)
    if (id < 0 || id >= vocab)
      fail_usage("generate: the forced token ", id, " is outside the vocabulary of ", vocab);
  if (r.constraint) r.generate.ignore_eos = false;
  if (!r.forced.empty() && o.beams > 0) fail_usage("generate: forced tokens and beams do not go together");
  for (const auto& ids : r.known)
    for (const std::int32_t id : ids)
      if (id < 0 || id >= vocab)
        fail_usage("generate: the known token ", id, " is outside the vocabulary of ", vocab);
  if (r.rows.hidden && !r.whole) fail_usage("request: hidden states are those of a whole text");
  if (r.rows.which != Request::Rows::Which::none && !r.rows.see)
    fail_usage("request: rows are wanted, but nobody looks at them");
  for (std::size_t i = 0; i < r.rows.chosen.size(); ++i)
    if (r.rows.chosen[i] < (i > 0 ? r.rows.chosen[i - 1] + 1 : 0) || r.rows.chosen[i] >= length)
      fail_usage("request: row ", r.rows.chosen[i], " is wanted of a text of ", length,
                 " tokens; rows are named in order, each once");
  if (r.prompt_logprobs >= 0 && (r.whole || recipe.head.kind != HeadRecipe::Kind::vocab))
    fail_usage("request: log-probabilities of a prompt need a decoder with a head over its vocabulary");
  const bool streams = r.stream.window > 0;
  if (streams) check_streams(recipe, r.stream);
  if (!streams && writes && length >= context)
    fail("the prompt (", length, " tokens) does not fit the context of ", context,
         " tokens with room for an answer",
         context < recipe.context
             ? concat("; the model reads up to ", recipe.context, ": give a larger context (--ctx-size)")
             : "",
         "; shorten the prompt, or let the beginning be forgotten (--overflow stream)");
  if (!streams && !writes && !r.whole && length > context)
    fail("the text (", length, " tokens) does not fit the context of ", context, " tokens");
  const Dim room = streams ? kUnlimited : std::max<Dim>(0, context - length);
  job.most = !writes ? 0 : o.max_tokens < 0 ? room : std::min(room, o.max_tokens);
  if (o.beams > 0 && job.most == kUnlimited)
    fail_usage("beam search ends only where the answer has a limit; give max_tokens (-n)");
  if (pool.budget() > 0 && !r.whole) {
    const Dim source = static_cast<Dim>(r.source.size()),
              keys = length + (o.max_tokens > 0 && !streams ? job.most : 1),
              at_once = r.one_piece ? length : std::min(r.prefix, length);
    const std::size_t least = std::max(pool.bytes_of(keys, source, r.stream),
                                       at_once > 0 ? pool.bytes_at_once(at_once, source) : 0) +
                              extra_states(job);
    if (least > pool.budget())
      fail_usage("request: ", length, " tokens of prompt",
                 o.max_tokens > 0 ? concat(" and ", job.most, " of the answer") : "", " need ", least,
                 " bytes of the pool, which has ", pool.budget(),
                 "; ask for less, or start with a larger pool");
  }
  job.adapters = r.adapters ? *r.adapters : checkpoint ? checkpoint->adapters : std::vector<AdapterUse>{};
  for (const AdapterUse& use : job.adapters) {
    if (!use.adapter || use.adapter->model != &model)
      fail_usage("request: the adapter ", use.adapter ? use.adapter->path : "(none)",
                 " was not loaded for this model, ", recipe.name);
    if (!std::isfinite(use.scale))
      fail_usage("request: the adapter ", use.adapter->path, " has the scale ", use.scale);
  }
  std::erase_if(job.adapters, [](const AdapterUse& use) { return use.scale == 0; });
  job.sampling = o.sampler;
  job.history =
      o.sampler.repeat_penalty != 1 || o.sampler.frequency_penalty != 0 || o.sampler.presence_penalty != 0;
  if (o.ignore_eos)
    for (const std::int32_t id : stops)
      job.sampling.bias.emplace_back(id, -std::numeric_limits<float>::infinity());
  job.shares = options.prefixes && !translates() && !r.whole && !r.one_piece && r.prompt_logprobs < 0 &&
               (!r.taps || !r.taps->edits_anything() || !r.edits.empty());
  job.key.add(model.changes.load(std::memory_order_relaxed));
  job.key.add(static_cast<std::uint64_t>(pool.format()));
  job.key.add(static_cast<std::uint64_t>(r.stream.keep));
  job.key.add(static_cast<std::uint64_t>(r.stream.window));
  job.key.add(static_cast<std::uint64_t>(context));
  job.key.add(static_cast<std::uint64_t>(r.prefix));
  job.key.add(std::string_view(r.space));
  job.key.add(std::string_view(r.edits));
  // Edits without a name are equal where they are the same ones.
  if (r.taps && r.edits.empty() && r.taps->edits_anything()) job.key.add(r.taps->stamp());
  job.key.add(static_cast<std::uint64_t>(job.adapters.size()));
  for (const AdapterUse& use : job.adapters) {
    for (const std::uint64_t part : use.adapter->hash) job.key.add(part);
    job.key.add(std::uint64_t{std::bit_cast<std::uint32_t>(use.scale)});
  }
  job.key.add(Ids(r.source));  // what is held of a translation looks at it
}

Engine::Id Engine::add(Request request) {
  State& s = *state_;
  const auto job = std::make_shared<State::Job>();
  job->added = Clock::now();
  job->r = std::move(request);
  s.prepare(*job);
  const std::lock_guard hold(s.lock);
  const Dim tokens = job->tokens(), waiting = s.told.waiting + static_cast<Dim>(s.inbox.size());
  if (s.options.most_waiting > 0 && waiting >= s.options.most_waiting)
    fail("busy: ", waiting, " requests wait already; try again later");
  if (s.options.most_waiting_tokens > 0 && s.waiting_tokens + tokens > s.options.most_waiting_tokens)
    fail("busy: ", s.waiting_tokens, " tokens wait already, these would be ", tokens,
         " more; try again later");
  job->id = s.next_job++;
  job->told = {.id = job->id,
               .phase = "waiting",
               .client = job->r.client.empty() ? job->r.space : job->r.client,
               .prompt_tokens = job->prompt()};
  s.waiting_tokens += tokens;
  s.changed = true;
  s.inbox.push_back(job);
  s.live.emplace(job->id, job);
  return job->id;
}

void Engine::cancel(Id id, int sample) {
  const std::lock_guard hold(state_->lock);
  const auto it = state_->live.find(id);
  if (it == state_->live.end()) return;
  state_->changed = true;
  if (sample < 0) it->second->stop.store(true, std::memory_order_relaxed);
  else state_->unwanted_samples.emplace_back(id, sample);
}

Answer Engine::finish(Id id, const std::function<void(const Event&)>& on_event) {
  while (true) {
    for (Event& e : step()) {
      if (on_event) on_event(e);
      if (e.kind != Event::Kind::done || e.request != id) continue;
      if (e.error) std::rethrow_exception(e.error);
      return std::move(*e.answer);
    }
    if (idle()) fail("engine: there is no request ", id);
  }
}

void Engine::release(std::uint64_t hold) {
  State& s = *state_;
  const auto it = s.holds.find(hold);
  if (it == s.holds.end() || it->second.busy != 0) return;
  s.pool.drop(it->second.sequence);
  s.holds.erase(it);
  s.publish_pool();
}
Dim Engine::held(std::uint64_t hold) const {
  const auto it = state_->holds.find(hold);
  return it == state_->holds.end() ? 0 : static_cast<Dim>(it->second.tokens.size());
}
void Engine::limit_rows(Dim rows) { state_->options.rows = rows; }
void Engine::drop_prefixes() {
  state_->prefixes.clear();
  state_->publish_pool();
}
Dim Engine::context() const { return state_->context; }
const Model& Engine::model() const { return state_->model; }
const std::vector<std::int32_t>& Engine::stops() const { return state_->stops; }
KvPool& Engine::pool() { return state_->pool; }

// ------------------------------------------------------------------------------------------------ a step
// Of those that read whole texts: who comes first, and others that want the same.
std::vector<Engine::State::JobPtr> Engine::State::take_whole(Dim most) {
  std::vector<JobPtr> whole;
  Dim rows = 0;
  if (most < 1) return whole;
  Line line(*this, true);
  while (const JobPtr job = line.next()) {
    const Dim with = rows + job->prompt();
    const bool hidden = job->r.rows.hidden;
    if (!whole.empty() &&
        (with > most || whole.front()->r.rows.hidden != hidden || (!hidden && with * vocab > kMostLogits)))
      break;
    rows = with;
    job->phase = Phase::reading;
    start(*job);
    whole.push_back(job);
    line.begins(*job);
  }
  if (!nobody_runs()) whole_credit -= rows;
  leave_queue();
  return whole;
}

std::vector<Event> Engine::step(Dim prompt_rows) {
  const Lease lease(state_->device.team());
  return state_->step(prompt_rows);
}

std::vector<Event> Engine::State::step(Dim rows) {
  const auto began = Clock::now();
  events.clear();
  counts.last = {};
  take_inbox();
  take_cancels();
  settle_clients();
  admit();
  std::vector<Piece> pieces;
  plan_writing(pieces);
  const auto writing = static_cast<Dim>(pieces.size());
  if (rows < 1) rows = prompt_rows(writing, counts);
  const std::vector<JobPtr> whole = take_whole(whole_rows(rows));
  // Whole texts that others run beside have taken half; so do tokens that are known.
  const bool known = knows_more(pieces);
  plan_reading(pieces, whole.empty() && !known ? rows : std::max<Dim>(1, rows / 2));
  if (known) plan_known(pieces, pieces.size() == at(writing) ? rows : std::max<Dim>(1, rows / 2));
  const auto guessing = Clock::now();
  // Beside prompts that are read, rows have another price.
  if (whole.empty() && (pieces.size() == at(writing) || options.guess)) plan_guesses(pieces);
  const double guess_seconds = seconds_since(guessing);
  charge(pieces, whole);
  const bool computes = !pieces.empty() || !whole.empty(), nothing = !computes && events.empty();
  publish(writing);

  if (!whole.empty()) pass_whole(whole);
  if (!pieces.empty()) {
    const auto started = Clock::now();
    const Status before = counts;
    // Those that begin with a source have a pass of their own: its encoder runs for them alone.
    std::vector<Piece> sources;
    for (Piece& p : pieces)
      if (p.source) sources.push_back(std::move(p));
    std::erase_if(pieces, [](const Piece& p) { return p.source; });
    Dim read = static_cast<Dim>(sources.size());
    Dim rows_in_all = 0;
    for (const Piece& p : pieces) {
      read += p.last && p.branch >= 0 ? 0 : p.count;
      rows_in_all += p.count;
    }
    if (read > 0)  // what is known beside
      for (const Piece& p : pieces) read += p.guessed;
    pass(pieces);
    const double before_sources = seconds_since(started);
    pass(sources);
    double seconds = seconds_since(started) + guess_seconds;
    if (!sources.empty()) counts.source_seconds += seconds - before_sources;
    if (read == 0 && whole.empty() && counts.passes == before.passes + 1) {
      pass_times.learn(rows_in_all, counts.last.compute - before.last.compute);
      const auto said = static_cast<Dim>(counts.decoded_tokens - before.decoded_tokens);
      if (rows_in_all > writing && said > writing)
        seconds *= static_cast<double>(writing) / static_cast<double>(said);
    }
    if (!known || read > 0) learn(seconds, writing, read);
  }
  std::erase_if(running, [](const JobPtr& job) { return job->phase == Phase::over; });
  Dim open = 0;
  for (const JobPtr& job : running)
    for (std::size_t b = 0; b < job->branches.size(); ++b) open += job->open(b);
  if (computes) {
    counts.last.all = seconds_since(began);
    counts.total.all += counts.last.all;
    counts.total.compute += counts.last.compute;
    counts.total.choose += counts.last.choose;
  }
  publish(open);
  {
    const std::lock_guard hold(lock);
    stalled = nothing;
  }
  return std::move(events);
}

}  // namespace rapt
