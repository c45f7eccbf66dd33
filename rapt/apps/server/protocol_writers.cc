// SPDX-License-Identifier: Apache-2.0
// Parts of an answer as they come, and all of them at once.
#include "rapt/apps/server/protocol_writers.h"

namespace rapt::server {

bool is_json_object(std::string_view text) {
  try {
    return parse_json(text).is_object();
  } catch (const Error&) {
    return false;
  }
}

void PartWriter::start(std::string& out, const Usage& usage) {
  if (begun_) return;
  begun_ = true;
  parser_ = answer_parser(request_, head_, 0);
  begin(out, usage);
}

void PartWriter::tell(std::string& out, std::span<const AnswerPart> parts) {
  for (const AnswerPart& p : parts) {
    called_ = called_ || p.kind == AnswerPart::Kind::call_end;
    part(out, p);
  }
}

void PartWriter::token(std::string& out, int /*index*/, std::string_view text, std::int32_t id,
                       const TokenChoice* token, const ChunkExtras& extras) {
  start(out, extras.usage ? *extras.usage : Usage{});
  if (id >= 0 && token && request_.generate.logprobs)
    append_token_logprobs(logprobs_, tokenizer_, *token, request_.generate.top_logprobs);
  if (text.empty()) return;
  if (parser_) return tell(out, parser_->push(text));
  const AnswerPart all[] = {{AnswerPart::Kind::text, std::string(text)}};
  tell(out, all);
}

void PartWriter::finish(std::string& /*out*/, const ReplyChoice& choice, const RaptInfo& info,
                        const ChunkExtras& /*extras*/) {
  choice_ = choice;
  info_ = info;
}

void PartWriter::done(std::string& out, const Usage& usage, const GenerateTimes* times) {
  start(out, usage);
  if (parser_) tell(out, parser_->finish());
  end(out, {choice_, usage, times ? *times : GenerateTimes{}, info_, called_});
}

std::string PartWriter::whole(std::span<const ReplyChoice> choices, const Usage& usage,
                              const GenerateTimes* times, const RaptInfo& info) {
  const ReplyChoice choice = choices.empty() ? ReplyChoice{} : choices[0];
  if (request_.generate.logprobs)
    for (const TokenChoice& t : choice.tokens)
      append_token_logprobs(logprobs_, tokenizer_, t, request_.generate.top_logprobs);
  const AnswerMessage message = answer_message(request_, head_, choice);
  return reply(message, {choice, usage, times ? *times : GenerateTimes{}, info, message.called()});
}

}  // namespace rapt::server
