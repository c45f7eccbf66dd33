// SPDX-License-Identifier: Apache-2.0
// A session: what is cached of the prompt is reused, the rest read in chunks, then samples or beams decode.
#include "rapt/use/generate.h"

#include <algorithm>
#include <limits>

#include "rapt/base/clock.h"
#include "rapt/base/text.h"
#include "rapt/use/decoder.h"

namespace rapt {
namespace {

constexpr Dim kNoLimit = std::numeric_limits<Dim>::max() / 4;

// Every self-attention of the decoder.
template <class RecipeType, class F>
void each_self(RecipeType& recipe, F&& f) {
  if (!recipe.decoder) return;
  for (auto& [name, layer] : recipe.decoder->kinds)
    for (auto& part : layer.parts)
      if (auto* a = part.self()) f(name, *a);
}

void check(const GenerateOptions& o) {
  check(o.sampler);
  if (o.samples < 1) fail_usage("generate: ", o.samples, " samples; ask for at least one");
  if (o.beams < 0) fail_usage("generate: ", o.beams, " beams; give a number above 0, or 0 for none");
  if (o.beams > 0 && o.samples > o.beams)
    fail_usage("generate: ", o.samples, " samples of ", o.beams,
               " beams; a search gives at most as many answers as it has beams");
  if (!(o.length_penalty >= -100 && o.length_penalty <= 100))
    fail_usage("generate: length_penalty is ", o.length_penalty, "; it must lie between -100 and 100");
  if (o.chunk < 1) fail_usage("generate: prompt chunks of ", o.chunk, " tokens; give at least 1");
  if (o.max_tokens < -1)
    fail_usage("generate: max_tokens is ", o.max_tokens, "; give a number, or -1 for no limit");
  if (o.top_logprobs < 0) fail_usage("generate: top_logprobs is ", o.top_logprobs);
}

}  // namespace

void stream_windows(Recipe& recipe, Dim keep, Dim window) {
  if (keep < 0 || window < 1)
    fail_usage("streaming: keep ", keep, " and window ", window,
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
  each_self(recipe, [&](const std::string& name, AttnRecipe& a) {
    if (a.pos.kind == PosRecipe::Kind::bucket)
      fail("streaming: layers '", name, "' of model ", recipe.name,
           " look up distances in buckets; streaming needs RoPE or ALiBi");
    if (a.window > 0 || a.mask != AttnRecipe::MaskKind::causal) return;
    a.window = window;
    a.keep = keep;
  });
}

struct Session::State {
  const Checkpoint& checkpoint;
  Session::Options options;
  Dim context;
  Dim visible = 0;                    // streaming: keys a row sees in the widest layer
  std::vector<std::int32_t> stops;
  Decoder decoder;
  std::vector<std::int32_t> cached;   // what sequence 0 of the cache was computed from
  GenerateTimes times;

  State(Device& device, const Checkpoint& c, const Session::Options& o, Dim ctx)
      : checkpoint(c), options(o), context(ctx), decoder(device, *c.model, o.cache, ctx, o.taps) {}

  void forget() {
    decoder.cache.drop(0);
    cached.clear();
  }
  std::vector<Generated> decode(std::span<const float> logits, const DecodeJob& job);
  void check_source(std::span<const std::int32_t> source, const std::string& where) const;
  GenerateOptions translate_options(const GenerateOptions& o) const;
};

Session::Session(Device& device, const Checkpoint& checkpoint, Options options) {
  const Recipe& r = checkpoint.model->recipe;
  if (!r.decoder)
    fail("generate: ", checkpoint.path, " is an encoder (", checkpoint.family,
         "): it reads a text at once and writes none; use `rapt ",
         r.head.kind == HeadRecipe::Kind::classes ? "classify`"
         : r.head.kind == HeadRecipe::Kind::vocab
             ? "fill`, which finds words for the masks of a text, or `rapt embed`"
             : "embed`");
  if (r.head.kind == HeadRecipe::Kind::classes)
    fail("generate: ", checkpoint.path, " is a classifier: it gives one of ", r.head.classes,
         " classes for a text and writes none; use `rapt classify`");
  if (r.head.kind != HeadRecipe::Kind::vocab)
    fail("generate: ", checkpoint.path, " has no output matrix over its vocabulary, so it gives no tokens");
  if (options.context < 0)
    fail_usage("generate: a context of ", options.context,
               " tokens; give a number above 0, or 0 for the model's own");
  if (options.context > r.context && r.embed.pos == EmbedRecipe::Pos::learned)
    fail_usage("generate: a context of ", options.context, " tokens, but ", checkpoint.path,
               " has learned positions for ", r.context);
  const Dim context = options.context > 0 ? options.context : r.context;
  state_ = std::make_unique<State>(device, checkpoint, options, context);
  State& s = *state_;
  s.stops = checkpoint.stops;
  if (checkpoint.tokenizer)
    for (std::int32_t id : checkpoint.tokenizer->stops)
      if (std::find(s.stops.begin(), s.stops.end(), id) == s.stops.end()) s.stops.push_back(id);
  std::erase_if(s.stops, [&](std::int32_t id) { return id < 0 || id >= r.vocab; });
  if (options.stream) {
    if (r.embed.pos != EmbedRecipe::Pos::none)
      fail("streaming: model ", r.name,
           " adds an absolute position to every token; streaming needs RoPE or ALiBi");
    each_self(r, [&](const std::string& name, const AttnRecipe& a) {
      if (a.window == 0)
        fail("streaming: layers '", name, "' of ", checkpoint.path,
             " see every key; load the model with stream_windows() as LoadOptions::change");
      s.visible = std::max(s.visible, a.window + a.keep);
    });
  }
}
Session::~Session() = default;

const GenerateTimes& Session::times() const { return state_->times; }
Dim Session::cached() const { return static_cast<Dim>(state_->cached.size()); }
Dim Session::context() const { return state_->context; }

// All samples side by side, one token each per pass. Sample i is sequence i of the cache; sequence 0 stays
// there for the next call.
std::vector<Generated> Session::State::decode(std::span<const float> logits, const DecodeJob& job) {
  const GenerateOptions& o = job.options;
  const auto n = static_cast<std::size_t>(o.samples);
  SamplerOptions sampling = o.sampler;
  if (o.ignore_eos)
    for (std::int32_t id : job.stops) sampling.bias.emplace_back(id, -std::numeric_limits<float>::infinity());
  const bool wants_logprobs = o.logprobs || o.top_logprobs > 0;
  const bool wants_history =
      o.sampler.repeat_penalty != 1 || o.sampler.frequency_penalty != 0 || o.sampler.presence_penalty != 0;

  struct Sample {
    Sampler sampler;
    std::vector<std::int32_t> history;
    std::optional<TextStream> stream;
    StopText stop;
    bool open = true;
    Sample(const SamplerOptions& s, std::size_t i, std::span<const std::string> stops)
        : sampler(s, i), stop(stops) {}
  };
  std::vector<Generated> out(n);
  std::vector<Sample> samples;
  samples.reserve(n);
  for (std::size_t i = 0; i < n; ++i) {
    Sample& s = samples.emplace_back(sampling, i, o.stops);
    if (wants_history) s.history.assign(job.prompt.begin(), job.prompt.end());
    if (job.tokenizer) {
      s.stream.emplace(*job.tokenizer);
      // The answer's first word keeps its space.
      if (!job.prompt.empty()) s.stream->push(job.prompt.back());
    }
    if (i > 0) decoder.cache.share(0, i, decoder.cache.length(0));
  }
  auto close = [&](std::size_t i, Finish why) {
    Sample& s = samples[i];
    s.open = false;
    std::string rest = s.stream && !s.stop.found() ? s.stop.push(s.stream->finish()) : std::string{};
    rest += s.stop.finish();
    out[i].finish = s.stop.found() ? Finish::stop : why;
    out[i].text += rest;
    if (job.on_token && !rest.empty()) job.on_token(static_cast<int>(i), -1, rest);
    if (i > 0) decoder.cache.drop(i);
  };

  const Dim start = static_cast<Dim>(job.prompt.size());
  std::vector<float> allowed;  // logits of a row without those of bad words
  std::vector<std::size_t> rows(n, 0);  // where a sample's logits lie; at first all share the prompt's
  for (Dim length = 0;; ++length) {
    std::vector<Decoder::Piece> pieces;
    for (std::size_t i = 0; i < n; ++i) {
      Sample& s = samples[i];
      if (!s.open) continue;
      if (job.cancelled()) {
        close(i, Finish::cancelled);
        continue;
      }
      if (length >= job.most) {
        close(i, Finish::length);
        continue;
      }
      const auto V = static_cast<std::size_t>(decoder.vocab);
      std::span<const float> row = logits.subspan(rows[i] * V, V);
      if (!o.bad_words.empty()) {
        allowed.assign(row.begin(), row.end());
        // A sampler takes numbers only.
        forbid(o.bad_words, out[i].ids, allowed, std::numeric_limits<float>::lowest());
        row = allowed;
      }
      TokenChoice choice =
          s.sampler.choose(row, s.history, start + length, wants_logprobs ? o.top_logprobs : -1);
      const std::int32_t id = choice.id;
      if (!o.ignore_eos && std::find(job.stops.begin(), job.stops.end(), id) != job.stops.end()) {
        close(i, Finish::stop);
        continue;
      }
      out[i].ids.push_back(id);
      if (wants_history) s.history.push_back(id);
      if (wants_logprobs) out[i].tokens.push_back(std::move(choice));
      ++times.decoded_tokens;
      const std::string text = s.stream ? s.stop.push(s.stream->push(id)) : std::string{};
      out[i].text += text;
      const bool go_on = !job.on_token || job.on_token(static_cast<int>(i), id, text);
      if (s.stop.found()) close(i, Finish::stop);
      else if (!go_on) close(i, Finish::cancelled);
      else if (length + 1 >= job.most) close(i, Finish::length);
      else {
        rows[i] = pieces.size();
        pieces.push_back({i, std::span(out[i].ids).last(1)});
      }
    }
    if (pieces.empty()) return out;
    logits = decoder.step(pieces);
    if (pieces[0].id == 0) cached.push_back(out[0].ids.back());
  }
}

std::vector<Generated> Session::generate(std::span<const std::int32_t> prompt, const GenerateOptions& o,
                                         const OnToken& on_token, const OnPrompt& on_prompt,
                                         const std::atomic<bool>* cancel) {
  State& s = *state_;
  const Recipe& r = s.checkpoint.model->recipe;
  check(o);
  if (r.encoder)
    fail("generate: ", s.checkpoint.path, " translates a source text (", s.checkpoint.family,
         "); use translate()");
  const Dim length = static_cast<Dim>(prompt.size());
  if (length == 0)
    fail_usage(
        "generate: the prompt has no tokens; a model continues a text, so give it at least one (a "
        "beginning-of-text token will do)");
  for (Dim i = 0; i < length; ++i)
    if (prompt[static_cast<std::size_t>(i)] < 0 || prompt[static_cast<std::size_t>(i)] >= r.vocab)
      fail_usage("generate: token ", prompt[static_cast<std::size_t>(i)], " at place ", i,
                 " of the prompt is outside the vocabulary of ", r.vocab);
  if (!s.options.stream && length >= s.context)
    fail("the prompt (", length, " tokens) does not fit the context of ", s.context,
         " tokens with room for an answer",
         s.context < r.context
             ? concat("; the model reads up to ", r.context, ": give a larger context (--ctx-size)")
             : "",
         "; shorten the prompt, or let the beginning be forgotten (--overflow stream)");
  const Dim room = s.options.stream ? kNoLimit : s.context - length;
  const Dim most = o.max_tokens < 0 ? room : std::min(room, o.max_tokens);
  if (o.beams > 0 && most == kNoLimit)
    fail_usage("beam search ends only where the answer has a limit; give max_tokens (-n)");

  s.times = {};
  // Rows of the cache that the prompt begins with stay; the last token is always computed, for its logits.
  std::size_t same = 0;
  while (same < s.cached.size() && same + 1 < prompt.size() && s.cached[same] == prompt[same]) ++same;
  if (same < s.cached.size()) {
    try {
      if (same > 0) s.decoder.cache.truncate(0, static_cast<Dim>(same));
      s.cached.resize(same);
    } catch (const Error&) {  // keys that would be seen again have left a window: read anew
      same = 0;
    }
    if (same == 0) s.forget();
  }
  s.times.reused_tokens = static_cast<Dim>(same);

  try {
    auto started = Clock::now();
    std::span<const float> logits;
    if (on_prompt) on_prompt(static_cast<Dim>(same), length);
    for (std::size_t at = same; at < prompt.size();) {
      if (cancel && cancel->load(std::memory_order_relaxed)) {
        s.times.prompt_seconds = seconds_since(started);
        return std::vector<Generated>(static_cast<std::size_t>(o.samples),
                                      Generated{.finish = Finish::cancelled});
      }
      const std::size_t n = std::min(prompt.size() - at, static_cast<std::size_t>(o.chunk));
      const Decoder::Piece piece{0, prompt.subspan(at, n)};
      logits = s.decoder.step({&piece, 1});
      s.cached.insert(s.cached.end(), piece.tokens.begin(), piece.tokens.end());
      at += n;
      s.times.prompt_tokens += static_cast<Dim>(n);
      if (on_prompt) on_prompt(static_cast<Dim>(at), length);
    }
    s.times.prompt_seconds = seconds_since(started);
    started = Clock::now();
    const DecodeJob job{s.checkpoint.tokenizer.get(), prompt, s.stops, o, most, on_token, cancel};
    std::vector<Generated> out;
    if (o.beams > 0 && most > 0) {
      const std::vector<float> first(logits.begin(), logits.end());
      constexpr std::uint64_t kRoot = 1 << 20;
      s.decoder.cache.share(0, kRoot, length);
      out = beam_search(s.decoder, kRoot, first, job, s.times.decoded_tokens);
    } else {
      out = s.decode(logits, job);
    }
    s.times.decode_seconds = seconds_since(started);
    if (s.visible > 0) s.times.dropped_tokens = std::max<Dim>(0, s.decoder.cache.length(0) - s.visible);
    return out;
  } catch (...) {  // what was computed is not known for sure
    for (std::size_t i = 1; i < static_cast<std::size_t>(o.samples); ++i) s.decoder.cache.drop(i);
    s.forget();
    throw;
  }
}

// What is the same for one source and for many.
void Session::State::check_source(std::span<const std::int32_t> source, const std::string& where) const {
  const Recipe& r = checkpoint.model->recipe;
  const Dim length = static_cast<Dim>(source.size());
  if (length == 0) fail_usage("translate: the source", where, " has no tokens");
  if (r.embed.pos != EmbedRecipe::Pos::none && length > r.context)
    fail("the source", where, " (", length, " tokens) does not fit the model's ", r.context,
         " positions; translate it in pieces");
  for (std::int32_t id : source)
    if (id < 0 || id >= r.vocab)
      fail_usage("translate: token ", id, " of the source", where, " is outside the vocabulary of ", r.vocab);
}

GenerateOptions Session::State::translate_options(const GenerateOptions& o) const {
  const Recipe& r = checkpoint.model->recipe;
  check(o);
  if (!r.encoder)
    fail("translate: ", checkpoint.path, " has no encoder (", checkpoint.family, "); use generate()");
  const std::int32_t start = checkpoint.decoder_start;
  if (start < 0 || start >= r.vocab)
    fail("translate: ", checkpoint.path,
         " does not say which token its answers start from (decoder_start_token_id)");
  // The start token is also the padding of these families, never a part of an answer.
  GenerateOptions out = o;
  if (std::find(stops.begin(), stops.end(), start) == stops.end())
    out.sampler.bias.emplace_back(start, -std::numeric_limits<float>::infinity());
  // An end alone is no bad word: nothing would end.
  for (const std::vector<std::int32_t>& word : checkpoint.bad_words)
    if (word.size() > 1 || std::find(stops.begin(), stops.end(), word[0]) == stops.end())
      out.bad_words.push_back(word);
  out.renormalize = out.renormalize || checkpoint.renormalize;
  return out;
}

std::vector<Generated> Session::translate(std::span<const std::int32_t> source, const GenerateOptions& o,
                                          const OnToken& on_token, const std::atomic<bool>* cancel) {
  State& s = *state_;
  const GenerateOptions options = s.translate_options(o);
  s.check_source(source, "");
  const std::int32_t start = s.checkpoint.decoder_start;
  s.times = {};
  s.forget();
  const Dim room = s.context - 1, most = o.max_tokens < 0 ? room : std::min(room, o.max_tokens);
  try {
    auto started = Clock::now();
    Batch from{.tokens = source};
    from.sequences.push_back({.first = 0, .count = static_cast<Dim>(source.size())});
    const Decoder::Piece piece{0, {&start, 1}};
    const std::span<const float> logits = s.decoder.step({&piece, 1}, &from);
    s.times.prompt_tokens = static_cast<Dim>(source.size());
    s.times.prompt_seconds = seconds_since(started);
    started = Clock::now();
    const std::span<const std::int32_t> nothing;  // the answer is a text of its own
    const DecodeJob job{s.checkpoint.tokenizer.get(), nothing, s.stops, options, most, on_token, cancel};
    std::vector<Generated> out;
    if (o.beams > 0 && most > 0) out = beam_search(s.decoder, 0, logits, job, s.times.decoded_tokens);
    else out = s.decode(logits, job);
    s.times.decode_seconds = seconds_since(started);
    s.forget();
    return out;
  } catch (...) {
    for (std::size_t i = 1; i < static_cast<std::size_t>(o.samples); ++i) s.decoder.cache.drop(i);
    s.forget();
    throw;
  }
}

std::vector<std::vector<Generated>> Session::translate_all(std::span<const std::vector<std::int32_t>> sources,
                                                           const GenerateOptions& o, Dim rows,
                                                           const OnDone& on_done,
                                                           const std::atomic<bool>* cancel) {
  State& s = *state_;
  GenerateOptions options = s.translate_options(o);
  if (options.beams == 0) {
    if (options.sampler.temperature != 0 || options.samples != 1)
      fail_usage(
          "translate: many sources at once are translated greedily or with beams; samples are drawn "
          "for one source at a time");
    options.beams = 1;
  }
  if (rows < 1) fail_usage("translate: passes of ", rows, " rows; give at least 1");
  for (std::size_t i = 0; i < sources.size(); ++i)
    s.check_source(sources[i], sources.size() > 1 ? concat(" ", i + 1) : "");
  const std::int32_t start = s.checkpoint.decoder_start;
  const Dim room = s.context - 1, most = o.max_tokens < 0 ? room : std::min(room, o.max_tokens);
  const Session::OnToken no_token;
  const DecodeJob job{s.checkpoint.tokenizer.get(), {}, s.stops, options, most, no_token, cancel};
  s.times = {};
  s.forget();

  std::vector<std::vector<Generated>> out(sources.size());
  if (most == 0) {
    for (std::size_t i = 0; i < out.size(); ++i) out[i] = {{.finish = Finish::length}};
    return out;
  }
  struct Running {
    BeamSearch search;
    std::size_t source;
  };
  std::vector<Running> running;
  std::size_t next_source = 0;
  std::uint64_t next_id = 1;
  // Sources side by side.
  const std::size_t side = std::max<std::size_t>(1, static_cast<std::size_t>(rows / options.beams));
  // Reads logits of the searches from `first` on, one row per live sequence; those that are over leave.
  auto advance = [&](std::size_t first, std::span<const float> logits) {
    const auto V = static_cast<std::size_t>(s.decoder.vocab);
    std::size_t row = 0;
    for (std::size_t i = first; i < running.size(); ++i) {
      const std::size_t live = running[i].search.live();
      running[i].search.advance(s.decoder.cache, logits.subspan(row * V, live * V), next_id);
      row += live;
    }
    std::erase_if(running, [&](Running& r) {
      if (!r.search.over()) return false;
      out[r.source] = r.search.answers();
      if (on_done) on_done(r.source, out[r.source][0]);
      return true;
    });
  };
  try {
    while (next_source < sources.size() || !running.empty()) {
      if (job.cancelled()) {
        for (Running& r : running) {
          r.search.cancel(s.decoder.cache);
          out[r.source] = r.search.answers();
        }
        for (; next_source < sources.size(); ++next_source)
          out[next_source] = {{.finish = Finish::cancelled}};
        break;
      }
      // Several at once: their encoder pass is worth it.
      if (next_source < sources.size() && running.size() * 2 <= side) {
        const auto started = Clock::now();
        const std::size_t first = running.size();
        std::vector<std::int32_t> tokens;
        std::vector<Decoder::Piece> pieces;
        Batch from;
        while (next_source < sources.size() && running.size() < side) {
          const std::vector<std::int32_t>& source = sources[next_source];
          from.sequences.push_back({.first = static_cast<Dim>(tokens.size()),
                                    .count = static_cast<Dim>(source.size()),
                                    .id = next_id});
          tokens.insert(tokens.end(), source.begin(), source.end());
          pieces.push_back({next_id, {&start, 1}});
          running.push_back({BeamSearch(job, s.decoder.vocab, next_id++), next_source++});
        }
        from.tokens = tokens;
        s.times.prompt_tokens += static_cast<Dim>(tokens.size());
        const std::span<const float> logits = s.decoder.step(pieces, &from);
        s.times.prompt_seconds += seconds_since(started);
        advance(first, logits);
      } else {
        const auto started = Clock::now();
        std::vector<Decoder::Piece> pieces;
        for (const Running& r : running)
          for (const Decoder::Piece& p : r.search.pieces()) pieces.push_back(p);
        const std::span<const float> logits = s.decoder.step(pieces);
        s.times.decoded_tokens += static_cast<Dim>(pieces.size());
        advance(0, logits);
        s.times.decode_seconds += seconds_since(started);
      }
    }
    return out;
  } catch (...) {
    for (Running& r : running) r.search.cancel(s.decoder.cache);
    s.forget();
    throw;
  }
}

}  // namespace rapt
