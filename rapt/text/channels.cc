// SPDX-License-Identifier: Apache-2.0
// Special tokens move the state; a header is read when it is complete.
#include "rapt/text/channels.h"

namespace rapt {

AnswerChannels::AnswerChannels(const Tokenizer& t) {
  const auto control = [&](std::string_view name) {
    const std::optional<std::int32_t> id = t.id_of(name);
    return id && t.role(*id) != Tokenizer::Role::normal ? *id : -1;
  };
  const std::int32_t channel = control("<|channel|>");
  message_ = control("<|message|>");
  if (channel < 0 || message_ < 0) return;
  channel_ = channel;
  start_ = control("<|start|>");
  end_ = control("<|end|>");
}

AnswerChannels::Part AnswerChannels::push(std::int32_t id, std::string_view text) {
  if (!active()) return Part::answer;
  if (id >= 0 && id == channel_) {
    header_ += '\n';  // the channel's name begins a line of its own
    return part_ = Part::header;
  }
  if (id >= 0 && (id == start_ || id == end_)) {
    header_.clear();
    return part_ = Part::header;
  }
  if (id >= 0 && id == message_) {
    const std::size_t line = header_.find('\n');
    const std::string_view name = line == std::string::npos ? "" : std::string_view(header_).substr(line + 1);
    if (header_.find(" to=") != std::string::npos) part_ = Part::call;
    else part_ = name.empty() || name.starts_with("final") ? Part::answer : Part::thinking;
    header_.clear();
    return Part::header;
  }
  if (part_ == Part::header) header_ += text;
  return part_;
}

std::string answer_text(const Tokenizer& tokenizer, std::span<const std::int32_t> ids,
                        std::string_view text) {
  AnswerChannels channels(tokenizer);
  if (!channels.active()) return std::string(text);
  std::vector<std::int32_t> said;
  for (const std::int32_t id : ids)
    if (channels.push(id, tokenizer.bytes_of(id)) == AnswerChannels::Part::answer) said.push_back(id);
  return said.empty() ? std::string(text) : tokenizer.decode(said);
}

}  // namespace rapt
