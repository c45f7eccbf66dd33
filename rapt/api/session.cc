// SPDX-License-Identifier: Apache-2.0
// Sessions of the public face: options in the words of rapt/use/generate.h, and answers back.
#include "rapt/api/state.h"
#include "rapt/use/translate.h"

namespace rapt::api {
namespace {

rapt::GenerateOptions inside(const GenerateOptions& o, int samples) {
  rapt::GenerateOptions g;
  const Sampling& s = o.sampling;
  g.sampler = {.bias = s.bias,
               .repeat_penalty = s.repeat_penalty,
               .frequency_penalty = s.frequency_penalty,
               .presence_penalty = s.presence_penalty,
               .penalty_last = s.penalty_last,
               .top_k = s.top_k,
               .typical_p = s.typical_p,
               .top_p = s.top_p,
               .min_p = s.min_p,
               .temperature = s.temperature,
               .mirostat = s.mirostat,
               .mirostat_tau = s.mirostat_tau,
               .mirostat_eta = s.mirostat_eta,
               .seed = s.seed};
  check(g.sampler);
  for (const std::string& stop : o.stops)
    if (stop.empty()) fail_usage("stops: an empty text would stop every answer at once");
  g.max_tokens = o.max_tokens;
  g.stops = o.stops;
  g.ignore_eos = o.ignore_eos;
  g.samples = samples;
  g.beams = o.beams;
  g.length_penalty = o.length_penalty;
  g.logprobs = o.logprobs >= 0;
  g.top_logprobs = std::max(0, o.logprobs);
  return g;
}

Answer outside(Generated&& g) {
  Answer a{.text = std::move(g.text),
           .tokens = std::move(g.ids),
           .finish = static_cast<Finish>(g.finish),
           .score = g.score,
           .choices = {}};
  for (TokenChoice& t : g.tokens) a.choices.push_back({t.id, t.logprob, std::move(t.top)});
  return a;
}
static_assert(static_cast<int>(Finish::stop) == static_cast<int>(rapt::Finish::stop) &&
              static_cast<int>(Finish::length) == static_cast<int>(rapt::Finish::length) &&
              static_cast<int>(Finish::cancelled) == static_cast<int>(rapt::Finish::cancelled));

}  // namespace

Session::Session(const Model& model, const SessionOptions& options)
    : state_(std::make_shared<SessionState>()) {
  SessionState& s = *state_;
  s.model = Access::share(model);
  const std::optional<DType> cache = dtype_named(options.cache);
  const DType known[] = {DType::f32, DType::f16, DType::bf16, DType::q8_0, DType::q4_0};
  if (!cache || std::find(std::begin(known), std::end(known), *cache) == std::end(known))
    fail_usage("cache: keys and values are kept as f32, f16, bf16, q8_0 or q4_0, not as '", options.cache,
               "'");
  Stream stream = s.model->stream;
  if (options.streaming) {
    const Dim keep = options.streaming->keep,
              context = options.context > 0 ? options.context : s.model->net().recipe.context;
    stream = {keep, options.streaming->window > 0 ? options.streaming->window : context - keep};
    if (stream.window < 1)
      fail_usage("streaming: ", keep, " kept tokens leave no window in a context of ", context);
  }
  s.check_edits = install_edits(s.taps, s.model->net(), edits_of(options.edits), Passes::many);
  s.session = std::make_unique<rapt::Session>(
      s.model->on(), *s.model->checkpoint,
      rapt::Session::Options{.cache = *cache,
                             .context = options.context,
                             .stream = stream,
                             .taps = options.edits.empty() ? nullptr : &s.taps});
}

std::vector<Answer> Session::generate_many(int count, std::span<const Token> prompt,
                                           const GenerateOptions& options, const OnPiece& on_piece) {
  SessionState& s = *state_;
  if (count < 1) fail_usage("generate_many: ", count, " answers; at least one");
  const rapt::Recipe& r = s.model->net().recipe;
  s.cancel = false;
  rapt::Session::OnToken on_token;
  if (on_piece)
    on_token = [&](int sample, std::int32_t id, std::string_view text) {
      return on_piece({text, id, sample});
    };
  const rapt::GenerateOptions g = inside(options, count);
  std::vector<Answer> out;
  for (Generated& one : r.encoder&& r.decoder ? s.session->translate(prompt, g, on_token, &s.cancel)
                                              : s.session->generate(prompt, g, on_token, {}, &s.cancel))
    out.push_back(outside(std::move(one)));
  s.check_edits();
  return out;
}

Answer Session::generate(std::span<const Token> prompt, const GenerateOptions& options,
                         const OnPiece& on_piece) {
  return std::move(generate_many(1, prompt, options, on_piece).at(0));
}

Answer Session::generate(std::string_view prompt, const GenerateOptions& options, const OnPiece& on_piece) {
  return generate(model().prompt(prompt), options, on_piece);
}

Answer Session::chat(const std::vector<Message>& messages, const GenerateOptions& options,
                     const OnPiece& on_piece) {
  return generate(model().chat_prompt(messages), options, on_piece);
}

std::vector<std::string> Session::translate_all(const std::vector<std::string>& lines,
                                                const TranslateOptions& options) {
  SessionState& s = *state_;
  s.cancel = false;
  rapt::TranslateOptions o;
  o.generate.sampler.temperature = 0;
  o.generate.beams = options.beams;
  o.generate.length_penalty = options.length_penalty;
  o.generate.max_tokens = options.max_tokens;
  o.prefix = options.prefix;
  std::vector<std::string> out;
  for (TranslatedLine& line : translate_lines(*s.session, *s.model->checkpoint, lines, o, {}, {}, &s.cancel))
    out.push_back(std::move(line.text));
  s.check_edits();
  return out;
}

std::string Session::translate(const std::string& line, const TranslateOptions& options) {
  return std::move(translate_all({line}, options).at(0));
}

void Session::cancel() { state_->cancel = true; }

Times Session::times() const {
  const GenerateTimes& t = state_->session->times();
  return {.prompt_seconds = t.prompt_seconds,
          .answer_seconds = t.decode_seconds,
          .prompt_tokens = t.prompt_tokens,
          .reused_tokens = t.reused_tokens,
          .answer_tokens = t.decoded_tokens};
}

std::int64_t Session::context() const { return state_->session->context(); }
Model Session::model() const { return Access::handle(state_->model); }

}  // namespace rapt::api
