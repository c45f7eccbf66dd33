// SPDX-License-Identifier: Apache-2.0
// A session is one engine whose requests hold one conversation.
#include "rapt/use/generate.h"

#include <algorithm>
#include <limits>
#include <map>

#include "rapt/base/clock.h"
#include "rapt/base/text.h"

namespace rapt {
namespace {

constexpr std::uint64_t kConversation = 1;

}  // namespace

void stream_windows(Recipe& recipe, Dim keep, Dim window) {
  check_streams(recipe, {keep, window});
  for (auto& [name, layer] : recipe.decoder->kinds)
    for (auto& part : layer.parts)
      if (AttnRecipe* a = part.self(); a && a->window == 0 && a->mask == AttnRecipe::MaskKind::causal) {
        a->window = window;
        a->keep = keep;
      }
}

struct Session::State {
  const Checkpoint& checkpoint;
  Session::Options options;
  Engine engine;
  GenerateTimes times;
  std::shared_ptr<const Constraint> constraint = {};

  State(Device& device, const Checkpoint& c, const Session::Options& o)
      : checkpoint(c),
        options(o),
        engine(device, c,
               {.cache = o.cache,
                .context = o.context,
                .rows = std::numeric_limits<Dim>::max() / 4,
                // A state cannot be cut back: where a conversation leaves what was said, it goes on from a
                // snapshot.
                .prefixes = remembers_by_state(c.model->recipe) && o.stream.window == 0,
                .idle_prefix_bytes = std::size_t{512} << 20,
                .speculate = o.speculate,
                .draft = o.draft,
                .always_guess = o.always_guess}) {}

  Answer finish(Request request, const OnToken& on_token, const OnPrompt& on_prompt);
  Request translation(std::span<const std::int32_t> source, const GenerateOptions& o,
                      const std::string& where) const {
    Request r = translation_request(checkpoint, engine.stops(), source, o, where);
    r.taps = options.taps;
    return r;
  }
};

void check_writes(const Checkpoint& checkpoint, Dim context, const Stream& stream) {
  const Recipe& r = checkpoint.model->recipe;
  if (!r.decoder)
    fail("generate: ", checkpoint.path, " is an encoder (", checkpoint.family, "): it reads a ",
         r.embed.patches ? "picture" : "text", " at once and writes none; use `rapt ",
         r.embed.patches                            ? "classify` or `rapt embed`"
         : r.head.kind == HeadRecipe::Kind::classes ? "classify`"
         : r.head.kind == HeadRecipe::Kind::vocab
             ? "fill`, which finds words for the masks of a text, or `rapt embed`"
             : "embed`");
  if (r.head.kind == HeadRecipe::Kind::classes)
    fail("generate: ", checkpoint.path, " is a classifier: it gives one of ", r.head.classes,
         " classes for a text and writes none; use `rapt classify`");
  if (r.head.kind != HeadRecipe::Kind::vocab)
    fail("generate: ", checkpoint.path, " has no output matrix over its vocabulary, so it gives no tokens");
  if (context < 0)
    fail_usage("generate: a context of ", context,
               " tokens; give a number above 0, or 0 for the model's own");
  if (context > r.context && r.embed.pos == EmbedRecipe::Pos::learned)
    fail_usage("generate: a context of ", context, " tokens, but ", checkpoint.path,
               " has learned positions for ", r.context);
  if (stream.window > 0) check_streams(r, stream);
}

Session::Session(Device& device, const Checkpoint& checkpoint, Options options) {
  check_writes(checkpoint, options.context, options.stream);
  state_ = std::make_unique<State>(device, checkpoint, options);
}
Session::~Session() = default;

void Session::constrain(std::shared_ptr<const Constraint> constraint) {
  state_->constraint = std::move(constraint);
}
const std::vector<std::int32_t>& Session::stops() const { return state_->engine.stops(); }
const GenerateTimes& Session::times() const { return state_->times; }
Dim Session::cached() const { return state_->engine.held(kConversation); }
Dim Session::context() const { return state_->engine.context(); }

// Events become calls; a sample whose listener has heard enough ends.
Answer Session::State::finish(Request request, const OnToken& on_token, const OnPrompt& on_prompt) {
  // What a listener was told before its event came.
  std::map<int, Dim> heard;
  if (on_token)
    request.hear = [&](const Event& e) {
      ++heard[e.sample];
      return on_token(e.sample, e.id, e.text);
    };
  const Engine::Id id = engine.add(std::move(request));
  try {
    return engine.finish(id, [&](const Event& e) {
      if (e.kind == Event::Kind::prompt && on_prompt) on_prompt(e.read, e.of);
      if (e.kind != Event::Kind::token || !on_token) return;
      if (e.id >= 0 && heard[e.sample] > 0) {
        --heard[e.sample];
        return;
      }
      if (!on_token(e.sample, e.id, e.text) && e.id >= 0) engine.cancel(id, e.sample);
    });
  } catch (...) {  // a listener may throw: nothing of this request goes on
    engine.cancel(id);
    if (!engine.idle()) engine.step();
    engine.release(kConversation);
    throw;
  }
}

std::vector<Generated> Session::generate(std::span<const std::int32_t> prompt, const GenerateOptions& o,
                                         const OnToken& on_token, const OnPrompt& on_prompt,
                                         const std::atomic<bool>* cancel) {
  State& s = *state_;
  if (s.checkpoint.model->recipe.encoder)
    fail("generate: ", s.checkpoint.path, " translates a source text (", s.checkpoint.family,
         "); use translate()");
  s.times = {};
  Request r;
  r.tokens.assign(prompt.begin(), prompt.end());
  r.generate = o;
  r.stream = s.options.stream;
  r.taps = s.options.taps;
  r.hold = kConversation;
  r.constraint = s.constraint;
  r.cancel = cancel;
  Answer answer = s.finish(std::move(r), on_token, on_prompt);
  s.times = answer.times;
  return std::move(answer.samples);
}

// What is the same for one source and for many.
Request translation_request(const Checkpoint& checkpoint, std::span<const std::int32_t> ends,
                            std::span<const std::int32_t> source, const GenerateOptions& o,
                            const std::string& where) {
  const Recipe& recipe = checkpoint.model->recipe;
  if (!recipe.encoder)
    fail("translate: ", checkpoint.path, " has no encoder (", checkpoint.family, "); use generate()");
  const Dim length = static_cast<Dim>(source.size());
  if (length == 0) fail_usage("translate: the source", where, " has no tokens");
  if (recipe.embed.pos != EmbedRecipe::Pos::none && length > recipe.context)
    fail("the source", where, " (", length, " tokens) does not fit the model's ", recipe.context,
         " positions; translate it in pieces");
  for (const std::int32_t id : source)
    if (id < 0 || id >= recipe.vocab)
      fail_usage("translate: token ", id, " of the source", where, " is outside the vocabulary of ",
                 recipe.vocab);
  Request r;
  r.source.assign(source.begin(), source.end());
  r.generate = o;
  // The start token is also the padding of these families, never a part of an answer.
  const auto is_end = [&](std::int32_t id) { return std::find(ends.begin(), ends.end(), id) != ends.end(); };
  const std::int32_t start = checkpoint.decoder_start;
  if (start >= 0 && start < recipe.vocab && !is_end(start))
    r.generate.sampler.bias.emplace_back(start, -std::numeric_limits<float>::infinity());
  // An end alone is no bad word: nothing would end.
  for (const std::vector<std::int32_t>& word : checkpoint.bad_words)
    if (word.size() > 1 || !is_end(word[0])) r.generate.bad_words.push_back(word);
  r.generate.renormalize = o.renormalize || checkpoint.renormalize;
  return r;
}

std::vector<Generated> Session::translate(std::span<const std::int32_t> source, const GenerateOptions& o,
                                          const OnToken& on_token, const std::atomic<bool>* cancel) {
  State& s = *state_;
  s.times = {};
  Request r = s.translation(source, o, "");
  r.cancel = cancel;
  Answer answer = s.finish(std::move(r), on_token, {});
  s.times = answer.times;
  s.times.prompt_tokens = static_cast<Dim>(source.size());
  return std::move(answer.samples);
}

std::vector<std::vector<Generated>> Session::translate_all(std::span<const std::vector<std::int32_t>> sources,
                                                           const GenerateOptions& o, Dim rows,
                                                           const OnDone& on_done,
                                                           const std::atomic<bool>* cancel) {
  State& s = *state_;
  GenerateOptions options = o;
  if (options.beams == 0) {
    if (options.sampler.temperature != 0 || options.samples != 1)
      fail_usage(
          "translate: many sources at once are translated greedily or with beams; samples are drawn "
          "for one source at a time");
    options.beams = 1;
  }
  if (rows < 1) fail_usage("translate: passes of ", rows, " rows; give at least 1");
  s.times = {};
  s.engine.limit_rows(rows);
  const auto started = Clock::now();
  const double sources_before = s.engine.status().source_seconds;
  std::vector<std::vector<Generated>> out(sources.size());
  std::map<Engine::Id, std::size_t> of;
  try {
    for (std::size_t i = 0; i < sources.size(); ++i)
      of[s.engine.add([&] {
        Request r = s.translation(sources[i], options, sources.size() > 1 ? concat(" ", i + 1) : "");
        r.cancel = cancel;
        return r;
      }())] = i;
    while (!s.engine.idle())
      for (Event& e : s.engine.step()) {
        if (e.kind != Event::Kind::done) continue;
        if (e.error) std::rethrow_exception(e.error);
        const std::size_t i = of.at(e.request);
        out[i] = std::move(e.answer->samples);
        s.times.prompt_tokens += static_cast<Dim>(sources[i].size());
        s.times.decoded_tokens += e.answer->times.decoded_tokens;
        if (on_done && !(cancel && cancel->load())) on_done(i, out[i][0]);
      }
  } catch (...) {
    for (const auto& [id, i] : of) s.engine.cancel(id);
    while (!s.engine.idle()) s.engine.step();
    throw;
  }
  // Sources have passes of their own: what is left of the time is writing.
  s.times.prompt_seconds = s.engine.status().source_seconds - sources_before;
  s.times.decode_seconds = seconds_since(started) - s.times.prompt_seconds;
  return out;
}

}  // namespace rapt
