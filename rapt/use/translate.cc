// SPDX-License-Identifier: Apache-2.0
// Blank lines are left out and stay empty; answers come in any order and are told in that of the lines.
#include "rapt/use/translate.h"

#include <algorithm>

namespace rapt {

std::vector<std::int32_t> source_ids(const Tokenizer& tokenizer, std::string_view text) {
  std::vector<std::int32_t> ids = tokenizer.frame(tokenizer.encode(text));
  if (tokenizer.eos >= 0 && (ids.empty() || ids.back() != tokenizer.eos)) ids.push_back(tokenizer.eos);
  return ids;
}

std::vector<std::int32_t> decoder_ids(Device& device, const Checkpoint& checkpoint,
                                      std::span<const std::int32_t> source,
                                      const std::optional<std::string>& target) {
  constexpr Dim kAnswer = 64;
  const Dim context = checkpoint.model->recipe.context;
  if (checkpoint.decoder_start < 0)
    fail(checkpoint.path,
         " does not say which token its answers start from; its config.json should have "
         "decoder_start_token_id");
  std::vector<std::int32_t> ids = {checkpoint.decoder_start}, rest;
  if (target) {
    rest = tokenizer_of(checkpoint).encode(*target);
  } else {
    GenerateOptions greedy{.max_tokens = context > 0 ? std::min(kAnswer, context - 1) : kAnswer};
    greedy.sampler.temperature = 0;
    rest = Session(device, checkpoint, {}).translate(source, greedy).at(0).ids;
  }
  ids.insert(ids.end(), rest.begin(), rest.end());
  if (context > 0 && static_cast<Dim>(ids.size()) > context)
    fail_usage("the target has ", rest.size(), " tokens; with its start ", context, " fit the model");
  return ids;
}

std::vector<std::string> text_lines(std::string_view text) {
  std::vector<std::string> lines;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    std::string_view line = text.substr(at, end - at);
    if (line.ends_with('\r')) line.remove_suffix(1);
    lines.emplace_back(line);
    at = end + 1;
  }
  return lines;
}

std::vector<TranslatedLine> translate_lines(Session& session, const Checkpoint& checkpoint,
                                            std::span<const std::string> lines,
                                            const TranslateOptions& options, const OnLine& on_line,
                                            const std::function<void(std::size_t done)>& progress,
                                            const std::atomic<bool>* cancel) {
  if (!checkpoint.tokenizer)
    fail("translate: ", checkpoint.path, " has no tokenizer beside its weights; put tokenizer.json there");
  const Recipe& r = checkpoint.model->recipe;
  std::vector<TranslatedLine> out(lines.size());
  std::vector<std::vector<std::int32_t>> sources;
  std::vector<std::size_t> of;  // line of each source
  for (std::size_t i = 0; i < lines.size(); ++i) {
    if (lines[i].find_first_not_of(" \t\r\n\v\f") == std::string::npos) continue;
    out[i].source = source_ids(*checkpoint.tokenizer, options.prefix + lines[i]);
    if (r.embed.pos != EmbedRecipe::Pos::none && static_cast<Dim>(out[i].source.size()) > r.context)
      fail("line ", i + 1, " (", out[i].source.size(), " tokens) does not fit the model's ", r.context,
           " positions; split it into sentences");
    sources.push_back(out[i].source);
    of.push_back(i);
  }

  std::vector<char> done(lines.size());
  for (std::size_t i = 0; i < lines.size(); ++i) done[i] = out[i].source.empty();
  std::size_t told = 0, finished = lines.size() - sources.size();
  auto tell = [&] {
    for (; told < lines.size() && done[told]; ++told)
      if (on_line) on_line(told, out[told]);
    if (progress) progress(finished);
  };
  auto take = [&](std::size_t source, const Generated& best) {
    TranslatedLine& t = out[of[source]];
    t.text = best.text;
    std::replace_if(
        t.text.begin(), t.text.end(), [](char c) { return c == '\n' || c == '\r' || c == '\v' || c == '\f'; },
        ' ');
  };
  tell();
  std::vector<std::vector<Generated>> answers = session.translate_all(
      sources, options.generate, options.side * std::max(1, options.generate.beams),
      [&](std::size_t source, const Generated& best) {
        take(source, best);
        done[of[source]] = 1;
        ++finished;
        tell();
      },
      cancel);
  for (std::size_t i = 0; i < answers.size(); ++i) {
    if (!done[of[i]]) take(i, answers[i][0]);  // cancelled
    out[of[i]].answers = std::move(answers[i]);
  }
  return out;
}

}  // namespace rapt
