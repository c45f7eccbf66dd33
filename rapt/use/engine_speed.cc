// SPDX-License-Identifier: Apache-2.0
// Texts of a few tokens, so that no page of theirs becomes a prefix; a long one in one piece, which never is.
#include "rapt/use/engine_speed.h"

#include <algorithm>
#include <cmath>

#include "rapt/base/clock.h"

namespace rapt {
namespace {

constexpr Dim kPrompt = 8;

Request throw_away(const Engine& engine, Dim tokens) {
  const Recipe& recipe = engine.model().recipe;
  Request r;
  for (Dim i = 0; i < tokens; ++i) r.tokens.push_back(static_cast<std::int32_t>(i * 31 % recipe.vocab));
  if (recipe.encoder && recipe.decoder) r.source.assign(r.tokens.begin(), r.tokens.begin() + 1);
  r.generate.sampler.temperature = 0;
  r.generate.ignore_eos = true;
  r.generate.max_tokens = 0;
  r.speculate = false;
  return r;
}

double step_seconds(Engine& engine) {
  const auto started = Clock::now();
  for (const Event& e : engine.step())
    if (e.error) std::rethrow_exception(e.error);
  return seconds_since(started);
}

// Seconds of a pass that writes so many answers: the best of a few. 0: there is no room for them.
double writing_seconds(Engine& engine, Dim rows, double most) {
  Request r = throw_away(engine, std::min(kPrompt, engine.context() - 6));
  r.generate.samples = static_cast<int>(rows);
  r.generate.max_tokens = 6;
  if (static_cast<Dim>(r.tokens.size()) < 1) return 0;
  const auto started = Clock::now();
  Engine::Id id = 0;
  try {
    id = engine.add(std::move(r));
  } catch (const Error&) {
    return 0;
  }
  step_seconds(engine);
  double best = 0;
  for (int i = 0; i < 4 && !engine.idle(); ++i) {
    const double now = step_seconds(engine);
    best = best == 0 ? now : std::min(best, now);
    if (seconds_since(started) > most) break;
  }
  engine.cancel(id);
  while (!engine.idle()) engine.step();
  return best;
}

double reading_seconds(Engine& engine, Dim tokens) {
  const Recipe& recipe = engine.model().recipe;
  Request r = throw_away(engine, tokens);
  const bool whole = !recipe.decoder || recipe.head.pools();
  (whole ? r.whole : r.one_piece) = true;
  try {
    engine.add(std::move(r));
  } catch (const Error&) {
    return 0;
  }
  double seconds = 0;
  while (!engine.idle()) seconds += step_seconds(engine);
  return seconds;
}

}  // namespace

Dim EngineSpeed::running() const { return std::clamp<Dim>(4 * useful_rows, 8, 64); }

EngineSpeed measure_speed(Engine& engine, double seconds) {
  if (!engine.idle()) fail_usage("measure_speed: the engine has requests; measure before the first one");
  EngineSpeed speed;
  const auto started = Clock::now();
  const Recipe& recipe = engine.model().recipe;
  if (recipe.decoder && !recipe.head.pools())
    for (std::size_t i = 0; i < EngineSpeed::kRows.size(); ++i) {
      if (i > 0 && seconds_since(started) > seconds / 2) break;
      speed.decode_seconds[i] = writing_seconds(engine, EngineSpeed::kRows[i], seconds / 8);
      if (speed.decode_seconds[i] == 0) break;
    }
  // A short piece tells whether there is time for a long one.
  for (const Dim tokens : {Dim{32}, Dim{256}}) {
    const Dim chunk = std::min(tokens, engine.context());
    const double left = seconds - seconds_since(started);
    if (chunk <= speed.chunk || speed.row_seconds * static_cast<double>(chunk) > left) break;
    const double now = reading_seconds(engine, chunk);
    if (now == 0) break;
    speed.chunk = chunk;
    speed.row_seconds = now / static_cast<double>(chunk);
  }
  if (speed.row_seconds > 0 && speed.decode_seconds[0] > 0)
    speed.useful_rows =
        std::clamp<Dim>(static_cast<Dim>(std::lround(speed.decode_seconds[0] / speed.row_seconds)), 1, 64);
  engine.reset_counts();
  return speed;
}

}  // namespace rapt
