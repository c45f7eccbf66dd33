// SPDX-License-Identifier: Apache-2.0
// JSON appended to a string, piece by piece: replies, and chunks whose constant part is made once.
#include "rapt/apps/server/protocol_reply.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>
#include <utility>

#include "rapt/base/unicode.h"

namespace rapt::server {
namespace {

// --------------------------------------------------------------------------------------------------- values
void append_integer(std::string& out, std::int64_t x) {
  char buffer[24];
  out.append(buffer, std::to_chars(buffer, buffer + sizeof buffer, x).ptr);
}

template <class Real>
void append_real(std::string& out, Real x) {  // the fewest digits that read back as the same value
  if (!std::isfinite(x)) {
    out += "null";
    return;
  }
  char buffer[40];
  out.append(buffer, std::to_chars(buffer, buffer + sizeof buffer, x).ptr);
}

void append_milli(std::string& out, double x) { append_real(out, std::round(x * 1000) / 1000); }

void append_key(std::string& out, std::string_view name) {  // ,"name":
  if (!out.empty() && out.back() != '{') out += ',';
  out += '"';
  out += name;
  out += "\":";
}

template <class T>
void append_numbers(std::string& out, std::span<const T> numbers) {  // 1,2,3
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    if (i > 0) out += ',';
    append_integer(out, static_cast<std::int64_t>(numbers[i]));
  }
}

void separate(std::string& list) {
  if (!list.empty()) list += ',';
}

// A token as it stands inside a text.
std::string token_bytes(const Tokenizer* tokenizer, std::int32_t id) {
  return tokenizer && id >= 0 && id < tokenizer->size() ? tokenizer->bytes_of(id) : concat("<", id, ">");
}

// Characters that begin in these bytes: all bytes but those inside a character. Python's len() of a text.
std::int64_t characters(std::string_view bytes) {
  return std::count_if(bytes.begin(), bytes.end(),
                       [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; });
}

// ---------------------------------------------------------------------------------- log-probabilities, chat
void append_token_entry(std::string& out, const Tokenizer* tokenizer, std::int32_t id, float logprob) {
  const std::string bytes = token_bytes(tokenizer, id);
  out += "{\"token\":";
  append_quoted(out, bytes);
  out += ",\"logprob\":";
  append_logprob(out, logprob);
  out += ",\"bytes\":[";
  append_numbers(out, std::span(reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size()));
  out += ']';
}

void append_content_entry(std::string& out, const Tokenizer* tokenizer, const TokenChoice& token, int top) {
  separate(out);
  append_token_entry(out, tokenizer, token.id, token.logprob);
  out += ",\"top_logprobs\":[";
  for (std::size_t i = 0; i < token.top.size() && i < static_cast<std::size_t>(top); ++i) {
    if (i > 0) out += ',';
    append_token_entry(out, tokenizer, token.top[i].first, token.top[i].second);
    out += '}';
  }
  out += "]}";
}

// ---------------------------------------------------------------------------------- log-probabilities, text
// {"text": value}: the most probable, and the token itself. Of equal texts the larger value stays: whoever
// looks for the best one must find it.
void append_top_map(std::string& out, const Tokenizer* tokenizer, const TokenChoice& token, int top) {
  std::vector<std::pair<std::string, float>> entries;
  const auto add = [&](std::int32_t id, float logprob) {
    std::string text;
    append_quoted(text, token_bytes(tokenizer, id));
    for (auto& [known, value] : entries)
      if (known == text) return void(value = std::max(value, logprob));
    entries.emplace_back(std::move(text), logprob);
  };
  for (std::size_t i = 0; i < token.top.size() && i < static_cast<std::size_t>(top); ++i)
    add(token.top[i].first, token.top[i].second);
  add(token.id, token.logprob);
  out += '{';
  for (std::size_t i = 0; i < entries.size(); ++i) {
    if (i > 0) out += ',';
    out += entries[i].first;
    out += ':';
    append_logprob(out, entries[i].second);
  }
  out += '}';
}

// vLLM's prompt_logprobs: null for the first, then {"id": {logprob, rank, decoded_token}}.
void append_prompt_logprobs(std::string& out, const Tokenizer* tokenizer, std::span<const TokenChoice> prompt,
                            int top) {
  out += "[null";
  for (const TokenChoice& token : prompt) {
    out += ",{";
    bool own = false, first = true;
    const auto add = [&](std::int32_t id, float logprob, std::int64_t rank) {
      if (!first) out += ',';
      first = false;
      out += '"';
      append_integer(out, id);
      out += "\":{\"logprob\":";
      append_logprob(out, logprob);
      out += ",\"rank\":";
      if (rank > 0) append_integer(out, rank);
      else out += "null";
      out += ",\"decoded_token\":";
      append_quoted(out, token_bytes(tokenizer, id));
      out += '}';
    };
    for (std::size_t i = 0; i < token.top.size() && i < static_cast<std::size_t>(top); ++i) {
      add(token.top[i].first, token.top[i].second, static_cast<std::int64_t>(i) + 1);
      own = own || token.top[i].first == token.id;
    }
    if (!own) add(token.id, token.logprob, 0);
    out += '}';
  }
  out += ']';
}

// ----------------------------------------------------------------------------------------- parts of replies
void append_usage(std::string& out, const Usage& usage) {
  out += "{\"prompt_tokens\":";
  append_integer(out, usage.prompt_tokens);
  out += ",\"completion_tokens\":";
  append_integer(out, usage.completion_tokens);
  out += ",\"total_tokens\":";
  append_integer(out, usage.prompt_tokens + usage.completion_tokens);
  out += ",\"prompt_tokens_details\":{\"cached_tokens\":";
  append_integer(out, usage.cached_tokens);
  out += '}';
  if (usage.reasoning_tokens >= 0) {
    out += ",\"completion_tokens_details\":{\"reasoning_tokens\":";
    append_integer(out, usage.reasoning_tokens);
    out += '}';
  }
  out += '}';
}

void append_list_usage(std::string& out, Dim prompt_tokens) {  // of what has no answer
  out += ",\"usage\":{\"prompt_tokens\":";
  append_integer(out, prompt_tokens);
  out += ",\"total_tokens\":";
  append_integer(out, prompt_tokens);
  out += '}';
}

// llama.cpp's names.
void append_timings(std::string& out, const GenerateTimes& times) {
  const auto part = [&](const char* name, Dim tokens, double seconds) {
    const auto n = static_cast<double>(tokens);
    const auto key = [&](const char* end) {
      out += ",\"";
      out += name;
      out += end;
    };
    key("_n\":"), append_integer(out, tokens);
    key("_ms\":"), append_milli(out, seconds * 1000);
    key("_per_token_ms\":"), append_milli(out, tokens > 0 ? seconds * 1000 / n : 0);
    key("_per_second\":"), append_milli(out, seconds > 0 ? n / seconds : 0);
  };
  out += "{\"cache_n\":";
  append_integer(out, times.reused_tokens);
  part("prompt", times.prompt_tokens, times.prompt_seconds);
  part("predicted", times.decoded_tokens, times.decode_seconds);
  if (times.guessed_tokens > 0) {
    out += ",\"draft_n\":";
    append_integer(out, times.guessed_tokens);
    out += ",\"draft_n_accepted\":";
    append_integer(out, times.right_guesses);
  }
  out += '}';
}

void append_sampling(std::string& out, const SamplerOptions& s) {
  out += '{';
  const auto number = [&](const char* name, double x, double off) {
    if (x == off) return;
    append_key(out, name);
    append_real(out, x);
  };
  constexpr double kAlways = -1e30;
  number("temperature", s.temperature, kAlways);
  number("top_p", s.top_p, kAlways);
  number("top_k", static_cast<double>(s.top_k), kAlways);
  number("min_p", s.min_p, kAlways);
  number("typical_p", s.typical_p, 1);
  number("repeat_penalty", s.repeat_penalty, 1);
  if (s.repeat_penalty != 1) number("repeat_last_n", static_cast<double>(s.penalty_last), kAlways);
  number("frequency_penalty", s.frequency_penalty, 0);
  number("presence_penalty", s.presence_penalty, 0);
  number("mirostat", s.mirostat, 0);
  if (s.mirostat != 0) number("mirostat_tau", s.mirostat_tau, kAlways);
  if (s.mirostat != 0) number("mirostat_eta", s.mirostat_eta, kAlways);
  out += '}';
}

void append_ending(std::string& out, const ReplyChoice& choice) {  // "hash", "finish"
  if (choice.hash) {
    append_key(out, "hash");
    append_quoted(out, hash_text(*choice.hash));
  }
  append_key(out, "finish");
  append_quoted(out, choice.finish_detail.empty() ? finish_reason(choice.finish) : choice.finish_detail);
}

// Several choices end in one reply: each in a list of its own.
std::string rapt_object(const RaptInfo& info, std::span<const ReplyChoice> choices, std::string_view more) {
  std::string out = "{";
  if (info.seed) {
    append_key(out, "seed");
    append_integer(out, static_cast<std::int64_t>(*info.seed));
  }
  if (choices.size() == 1) append_ending(out, choices[0]);
  if (choices.size() > 1) {
    append_key(out, "choices");
    out += '[';
    for (const ReplyChoice& choice : choices) {
      if (out.back() != '[') out += ',';
      out += "{\"index\":";
      append_integer(out, choice.index);
      append_ending(out, choice);
      out += '}';
    }
    out += ']';
  }
  if (info.sampling) {
    append_key(out, "sampling");
    append_sampling(out, *info.sampling);
  }
  const auto count = [&](const char* name, Dim n) {
    if (n == 0) return;
    append_key(out, name);
    append_integer(out, n);
  };
  count("paused", info.paused);
  count("reused", info.reused);
  count("dropped", info.dropped);
  for (const std::string_view members : {std::string_view(info.more), more}) {
    if (members.empty()) continue;
    out += ',';
    out += members;
  }
  return out += '}';
}

std::string head_text(const ReplyHead& head, std::string_view object) {
  std::string out = "{\"id\":";
  append_quoted(out, head.id);
  out += ",\"object\":\"";
  out += object;
  out += "\",\"created\":";
  append_integer(out, head.created);
  out += ",\"model\":";
  append_quoted(out, head.model);
  out += ",\"system_fingerprint\":";
  append_quoted(out, head.fingerprint);
  return out;
}

void append_base64(std::string& out, std::span<const float> values) {
  static constexpr char kLetters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  const std::size_t bytes = values.size() * 4;
  const auto byte = [&](std::size_t i) -> std::uint32_t {  // little-endian whatever this machine is
    return i < bytes ? std::bit_cast<std::uint32_t>(values[i / 4]) >> (8 * (i % 4)) & 0xFF : 0;
  };
  out.reserve(out.size() + (bytes + 2) / 3 * 4 + 2);
  for (std::size_t i = 0; i < bytes; i += 3) {
    const std::uint32_t three = byte(i) << 16 | byte(i + 1) << 8 | byte(i + 2);
    out += kLetters[three >> 18];
    out += kLetters[three >> 12 & 63];
    out += i + 1 < bytes ? kLetters[three >> 6 & 63] : '=';
    out += i + 2 < bytes ? kLetters[three & 63] : '=';
  }
}

}  // namespace

// ----------------------------------------------------------------------------------------------- small ones
std::string sse(std::string_view json) {
  std::string out;
  out.reserve(json.size() + 8);
  out += "data: ";
  out += json;
  return out += "\n\n";
}

void append_quoted(std::string& out, std::string_view text) {
  static constexpr char kHex[] = "0123456789abcdef";
  out += '"';
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t from = at;
    const auto plain = [](char c) {
      return static_cast<unsigned char>(c) >= 0x20 && static_cast<unsigned char>(c) < 0x80 && c != '"' &&
             c != '\\';
    };
    while (at < text.size() && plain(text[at])) ++at;
    out.append(text, from, at - from);
    if (at == text.size()) break;
    const auto c = static_cast<unsigned char>(text[at]);
    if (c >= 0x80) {
      const unicode::Char character = unicode::read(text, at);
      if (character.valid) out.append(text, at, character.length);
      else out += unicode::kReplacementText;
      at += character.length;
      continue;
    }
    ++at;
    switch (c) {
      case '"': out += "\\\""; break;
      case '\\': out += "\\\\"; break;
      case '\n': out += "\\n"; break;
      case '\r': out += "\\r"; break;
      case '\t': out += "\\t"; break;
      default: out += "\\u00", out += kHex[c >> 4], out += kHex[c & 15];
    }
  }
  out += '"';
}

void append_logprob(std::string& out, float logprob) {
  if (!(logprob > -9999.0f)) return void(out += "-9999.0");  // JSON has no -inf
  const std::size_t from = out.size();
  append_real(out, std::min(logprob, 0.0f) + 0.0f);  // no -0, and rounding puts nothing above certainty
  if (out.find_first_of(".e", from) == std::string::npos) out += ".0";  // typed clients read a float
}

void append_floats(std::string& out, std::span<const float> values) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (i > 0) out += ',';
    append_real(out, values[i]);
  }
}

std::string hash_text(std::uint64_t hash) {
  char buffer[16];
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, hash, 16).ptr;
  std::string out(16 - static_cast<std::size_t>(end - buffer), '0');
  return out.append(buffer, end);
}

std::string in_quotes(std::string_view text) {
  std::string out;
  append_quoted(out, text);
  return out;
}

std::string rapt_text(const RaptInfo& info, const ReplyChoice& choice) {
  return rapt_object(info, {&choice, 1}, {});
}

void append_token_logprobs(std::string& list, const Tokenizer* tokenizer, const TokenChoice& token, int top) {
  append_content_entry(list, tokenizer, token, top);
}

std::string_view finish_reason(Finish finish, bool called) {
  return finish != Finish::stop ? "length" : called ? "tool_calls" : "stop";
}

std::optional<AnswerParser> answer_parser(const CompletionRequest& request, const ReplyHead& head,
                                          int index) {
  if (!request.chat || !request.form) return std::nullopt;
  return AnswerParser(*request.form, {.thinks = request.thought == PromptThought::begun,
                                      .calls = request.tools.active(),
                                      .must_call = request.tools.choice == ToolRequest::Choice::required,
                                      .seed = concat(head.id, "/", index)});
}

AnswerMessage answer_message(const CompletionRequest& request, const ReplyHead& head,
                             const ReplyChoice& choice) {
  AnswerMessage message;
  std::optional<AnswerParser> parser = answer_parser(request, head, choice.index);
  if (!parser) {
    message.text = choice.text;
    return message;
  }
  for (const AnswerPart& part : parser->push(choice.text)) message.add(part);
  for (const AnswerPart& part : parser->finish()) message.add(part);
  return message;
}

// ------------------------------------------------------------------------------------------- text log-probs
// Log-probabilities of a text completion: four lists side by side.
void TextLogprobs::add(const Tokenizer* tokenizer, std::int32_t id, const TokenChoice* token, int top) {
  const std::string bytes = token_bytes(tokenizer, id);
  separate(tokens), separate(values), separate(tops), separate(offsets);
  append_quoted(tokens, bytes);
  const bool inside = !bytes.empty() && (static_cast<unsigned char>(bytes[0]) & 0xC0) == 0x80;
  append_integer(offsets, std::max<std::int64_t>(0, offset - (inside ? 1 : 0)));
  if (token) {
    append_logprob(values, token->logprob);
    append_top_map(tops, tokenizer, *token, top);
  } else {
    values += "null";
    tops += "null";
  }
  // What a text leaves out, or shows differently at its beginning, takes no place in it.
  const bool known = tokenizer && id >= 0 && id < tokenizer->size();
  const bool control = known && tokenizer->role(id) == Tokenizer::Role::control;
  if (control) return;
  offset += characters(first && known ? tokenizer->decode({&id, 1}) : bytes);
  first = false;
}

void TextLogprobs::append(std::string& out) const {
  out += "{\"tokens\":[";
  out += tokens;
  out += "],\"token_logprobs\":[";
  out += values;
  out += "],\"top_logprobs\":[";
  out += tops;
  out += "],\"text_offset\":[";
  out += offsets;
  out += "]}";
}

void TextLogprobs::clear() { tokens.clear(), values.clear(), tops.clear(), offsets.clear(); }

// -------------------------------------------------------------------------------------------- whole replies
namespace {

// What stands behind "content": in a message. Whether it ends with calls.
bool append_message(std::string& out, const CompletionRequest& request, const ReplyHead& head,
                    const ReplyChoice& choice) {
  const AnswerMessage message = answer_message(request, head, choice);
  if (message.text.empty() && !message.calls.empty()) out += "null";
  else append_quoted(out, message.text);
  if (!message.reasoning.empty())
    out += concat(",\"reasoning_content\":", server::in_quotes(message.reasoning));
  if (message.calls.empty()) return false;
  out += ",\"tool_calls\":[";
  for (const AnswerMessage::Call& call : message.calls) {
    if (out.back() != '[') out += ',';
    out += concat("{\"id\":", server::in_quotes(call.id),
                  ",\"type\":\"function\",\"function\":{\"name\":", server::in_quotes(call.name),
                  ",\"arguments\":", server::in_quotes(call.arguments), "}}");
  }
  out += ']';
  return message.called();
}

}  // namespace

std::string completion_reply(const CompletionRequest& request, const ReplyHead& head,
                             std::span<const ReplyChoice> choices, const Usage& usage,
                             const Tokenizer* tokenizer, const GenerateTimes* times, const RaptInfo& info) {
  const int top = request.generate.top_logprobs;
  std::string out = head_text(head, request.chat ? "chat.completion" : "text_completion");
  if (request.chat && !choices.empty()) {
    if (request.return_token_ids) {
      out += ",\"prompt_token_ids\":[";
      append_numbers(out, choices[0].prompt_ids);
      out += ']';
    }
    if (request.show_prompt_logprobs >= 0) {
      out += ",\"prompt_logprobs\":";
      append_prompt_logprobs(out, tokenizer, choices[0].prompt, request.show_prompt_logprobs);
    }
  }
  out += ",\"choices\":[";
  for (const ReplyChoice& choice : choices) {
    if (out.back() != '[') out += ',';
    bool called = false;
    if (request.chat) {
      out += "{\"index\":";
      append_integer(out, choice.index);
      out += ",\"message\":{\"role\":\"assistant\",\"content\":";
      called = append_message(out, request, head, choice);
      out += ",\"refusal\":null},\"logprobs\":";
      if (request.generate.logprobs) {
        std::string entries;
        for (const TokenChoice& token : choice.tokens) append_content_entry(entries, tokenizer, token, top);
        out += "{\"content\":[";
        out += entries;
        out += "],\"refusal\":null}";
      } else {
        out += "null";
      }
    } else {
      out += "{\"text\":";
      append_quoted(out, request.echo ? concat(choice.prompt_text, choice.text) : choice.text);
      out += ",\"index\":";
      append_integer(out, choice.index);
      out += ",\"logprobs\":";
      if (request.generate.logprobs) {
        TextLogprobs lists{.first = request.echo};
        if (request.echo)
          for (std::size_t i = 0; i < choice.prompt_ids.size(); ++i)
            lists.add(tokenizer, choice.prompt_ids[i],
                      i > 0 && i <= choice.prompt.size() ? &choice.prompt[i - 1] : nullptr, top);
        for (const TokenChoice& token : choice.tokens) lists.add(tokenizer, token.id, &token, top);
        lists.append(out);
      } else {
        out += "null";
      }
    }
    out += ",\"finish_reason\":\"";
    out += finish_reason(choice.finish, called);
    out += '"';
    if (request.return_token_ids) {
      out += ",\"token_ids\":[";
      append_numbers(out, choice.ids);
      out += ']';
      if (!request.chat) {
        out += ",\"prompt_token_ids\":[";
        append_numbers(out, choice.prompt_ids);
        out += ']';
      }
    }
    if (!request.chat && request.show_prompt_logprobs >= 0) {
      out += ",\"prompt_logprobs\":";
      append_prompt_logprobs(out, tokenizer, choice.prompt, request.show_prompt_logprobs);
    }
    out += '}';
  }
  out += "],\"usage\":";
  append_usage(out, usage);
  if (times) {
    out += ",\"timings\":";
    append_timings(out, *times);
  }
  out += ",\"rapt\":";
  out += rapt_object(info, choices, {});
  return out += '}';
}

// -------------------------------------------------------------------------------------------------- streams
ChunkWriter::ChunkWriter(const CompletionRequest& request, const ReplyHead& head, const Tokenizer* tokenizer)
    : request_(request),
      head_(head),
      chat_(request.chat),
      usage_(request.include_usage),
      continuous_(request.continuous_usage),
      progress_(request.return_progress),
      timings_(request.timings_per_token),
      ids_(request.return_token_ids || request.continued),
      echo_(request.echo),
      logprobs_(request.generate.logprobs),
      top_(request.generate.top_logprobs),
      samples_(request.generate.samples),
      tokenizer_(tokenizer),
      prefix_("data: ") {
  prefix_ += head_text(head, chat_ ? "chat.completion.chunk" : "text_completion");
  prefix_ += ",\"choices\":[";
  const std::size_t prompts = chat_ ? 1 : request.prompts.size();
  choices_.resize(std::max<std::size_t>(1, prompts) * static_cast<std::size_t>(std::max(1, samples_)));
  for (std::size_t i = 0; i < choices_.size(); ++i) {
    choices_[i].parser = answer_parser(request, head, static_cast<int>(i));
    if (request.continued) choices_[i].had = request.continued->of(static_cast<int>(i)).size();
  }
}

// Clients make a choice when they first see its number, in order, and add up texts: one role each, first.
void ChunkWriter::begin(std::string& out) {
  if (begun_) return;
  begun_ = true;
  std::string state;
  if (request_.continued) {
    state = concat("\"continue\":{\"seed\":", static_cast<std::int64_t>(request_.generate.sampler.seed),
                   ",\"fingerprint\":", server::in_quotes(head_.fingerprint),
                   ",\"basis\":", server::in_quotes(head_.basis), "}");
    if (!chat_ || choices_[0].had > 0) out += prefix_, close(out, {.rapt = std::exchange(state, {})});
  }
  if (!chat_) return;
  std::string ids = std::exchange(prompt_ids_, {});
  for (std::size_t i = 0; i < choices_.size(); ++i) {
    if (choices_[i].had > 0) continue;
    out += prefix_;
    out += "{\"index\":";
    append_integer(out, static_cast<std::int64_t>(i));
    out += ",\"delta\":{\"role\":\"assistant\",\"content\":\"\"},\"logprobs\":null,\"finish_reason\":null}";
    close(out, {.rapt = std::exchange(state, {})}, {}, std::exchange(ids, {}));
  }
}

// What stands behind the choices.
void ChunkWriter::close(std::string& out, const ChunkExtras& extras, std::string_view info,
                        std::string_view prompt_ids) const {
  out += ']';
  if (!prompt_ids.empty()) {
    out += ",\"prompt_token_ids\":[";
    out += prompt_ids;
    out += ']';
  }
  if (continuous_ && extras.usage) {
    out += ",\"usage\":";
    append_usage(out, *extras.usage);
  } else if (usage_) {
    out += ",\"usage\":null";
  }
  if (extras.times && (timings_ || !info.empty())) {
    out += ",\"timings\":";
    append_timings(out, *extras.times);
  }
  if (!info.empty()) {
    out += ",\"rapt\":";
    out += info;
  } else if (!extras.rapt.empty()) {
    out += ",\"rapt\":{";
    out += extras.rapt;
    out += '}';
  }
  out += "}\n\n";
}

void ChunkWriter::progress(std::string& out, Dim read, Dim of, Dim reused, double seconds) {
  if (!progress_) return;
  out += prefix_;
  out += ']';
  if (usage_) out += ",\"usage\":null";
  out += ",\"prompt_progress\":{\"total\":";
  append_integer(out, of);
  out += ",\"cache\":";
  append_integer(out, reused);
  out += ",\"processed\":";
  append_integer(out, read);
  out += ",\"time_ms\":";
  append_integer(out, static_cast<std::int64_t>(seconds * 1000));
  out += "}}\n\n";
}

// One choice's text, with all that waited for it.
void ChunkWriter::chunk(std::string& out, int index, std::string_view text, const ChunkExtras& extras) {
  delta_chunk(out, index,
              chat_ ? concat("{\"content\":", server::in_quotes(text), "}") : server::in_quotes(text),
              extras);
}

// The parts of what a token made certain, a chunk each; what waited stands in the first.
void ChunkWriter::parts(std::string& out, int index, std::span<const AnswerPart> parts,
                        const ChunkExtras& extras) {
  const auto call = [](const AnswerPart& part, std::string_view more) {
    return concat("{\"tool_calls\":[{\"index\":", part.call, more, "}]}");
  };
  std::size_t last = parts.size();  // that is a chunk
  for (std::size_t i = 0; i < parts.size(); ++i)
    if (parts[i].kind != AnswerPart::Kind::call_end) last = i;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const AnswerPart& part = parts[i];
    const auto put = [&](std::string_view delta) {
      delta_chunk(out, index, delta, extras, !request_.continued || i == last);
    };
    switch (part.kind) {
      case AnswerPart::Kind::text: put(concat("{\"content\":", server::in_quotes(part.text), "}")); break;
      case AnswerPart::Kind::reasoning:
        put(concat("{\"reasoning_content\":", server::in_quotes(part.text), "}"));
        break;
      case AnswerPart::Kind::call_begin:
        put(call(part, concat(",\"id\":", server::in_quotes(part.id),
                              ",\"type\":\"function\",\"function\":{\"name\":", server::in_quotes(part.text),
                              ",\"arguments\":\"\"}")));
        break;
      case AnswerPart::Kind::call_arguments:
        put(call(part, concat(",\"function\":{\"arguments\":", server::in_quotes(part.text), "}")));
        break;
      case AnswerPart::Kind::call_end: choices_[static_cast<std::size_t>(index)].called = true; break;
    }
  }
}

void ChunkWriter::delta_chunk(std::string& out, int index, std::string_view delta, const ChunkExtras& extras,
                              bool waited) {
  Waiting& w = choices_[static_cast<std::size_t>(index)];
  const auto clear = [&] {
    w.content.clear(), w.lists.clear(), w.ids.clear(), w.prompt_ids.clear();
    w.told += std::exchange(w.id_count, 0);
  };
  if (w.told < w.had) {  // the client has it
    if (waited) clear();
    return;
  }
  const Waiting none;
  const Waiting& with = waited ? w : none;
  out += prefix_;
  if (chat_) {
    out += "{\"index\":";
    append_integer(out, index);
    out += ",\"delta\":";
    out += delta;
    out += ",\"logprobs\":";
    if (with.content.empty()) {
      out += "null";
    } else {
      out += "{\"content\":[";
      out += with.content;
      out += "],\"refusal\":null}";
    }
  } else {
    out += "{\"text\":";
    out += delta;
    out += ",\"index\":";
    append_integer(out, index);
    out += ",\"logprobs\":";
    if (with.lists.empty()) out += "null";
    else with.lists.append(out);
  }
  out += ",\"finish_reason\":null";
  if (!with.ids.empty()) {
    out += ",\"token_ids\":[";
    out += with.ids;
    out += ']';
  }
  if (!with.prompt_ids.empty()) {
    out += ",\"prompt_token_ids\":[";
    out += with.prompt_ids;
    out += ']';
  }
  out += '}';
  if (waited) clear();
  close(out, extras);
}

void ChunkWriter::prompt(std::string& out, int prompt, std::string_view text,
                         std::span<const std::int32_t> ids, std::span<const TokenChoice> logprobs) {
  if (chat_ && request_.return_token_ids) append_numbers(prompt_ids_, ids);
  for (int sample = 0; sample < samples_ && !chat_; ++sample) {
    const int index = prompt * samples_ + sample;
    if (index < 0 || static_cast<std::size_t>(index) >= choices_.size()) return;
    Waiting& w = choices_[static_cast<std::size_t>(index)];
    if (request_.return_token_ids) append_numbers(w.prompt_ids, ids);
    if (!echo_) continue;
    w.lists.first = true;
    if (logprobs_)
      for (std::size_t i = 0; i < ids.size(); ++i)
        w.lists.add(tokenizer_, ids[i], i > 0 && i <= logprobs.size() ? &logprobs[i - 1] : nullptr, top_);
    begin(out);
    chunk(out, index, text, {});
  }
}

void ChunkWriter::token(std::string& out, int index, std::string_view text, std::int32_t id,
                        const TokenChoice* token, const ChunkExtras& extras) {
  if (index < 0 || static_cast<std::size_t>(index) >= choices_.size()) return;
  begin(out);
  Waiting& w = choices_[static_cast<std::size_t>(index)];
  if (id >= 0) {
    if (ids_) separate(w.ids), append_integer(w.ids, id), ++w.id_count;
    if (logprobs_ && token && chat_) append_content_entry(w.content, tokenizer_, *token, top_);
    if (logprobs_ && token && !chat_) w.lists.add(tokenizer_, id, token, top_);
  }
  if (w.parser) {
    const std::size_t before = out.size();
    parts(out, index, w.parser->push(text), extras);
    if (out.size() > before) return;
  } else if (!text.empty()) {
    return chunk(out, index, text, extras);
  }
  if (extras.rapt.empty()) return;
  out += prefix_;  // what was seen inside does not wait for the text
  close(out, extras);
}

void ChunkWriter::aside(std::string& out, std::string_view rapt) {
  begin(out);
  out += prefix_;
  close(out, {.rapt = rapt});
}

void ChunkWriter::finish(std::string& out, const ReplyChoice& choice, const RaptInfo& info,
                         const ChunkExtras& extras) {
  if (choice.index < 0 || static_cast<std::size_t>(choice.index) >= choices_.size()) return;
  begin(out);
  Waiting& w = choices_[static_cast<std::size_t>(choice.index)];
  if (w.parser) parts(out, choice.index, w.parser->finish(), {});
  if (w.any()) chunk(out, choice.index, "", {});
  out += prefix_;
  if (chat_) {
    out += "{\"index\":";
    append_integer(out, choice.index);
    out += ",\"delta\":{}";
  } else {
    out += "{\"text\":\"\",\"index\":";
    append_integer(out, choice.index);
  }
  out += ",\"logprobs\":null,\"finish_reason\":\"";
  out += finish_reason(choice.finish, w.called);
  out += "\"}";
  close(out, extras, rapt_object(info, {&choice, 1}, extras.rapt));
}

void ChunkWriter::done(std::string& out, const Usage& usage, const GenerateTimes* times) {
  begin(out);
  if (usage_) {
    out += prefix_;
    out += "],\"usage\":";
    append_usage(out, usage);
    if (times) {
      out += ",\"timings\":";
      append_timings(out, *times);
    }
    out += "}\n\n";
  }
  out += kSseDone;
}

std::string ChunkWriter::whole(std::span<const ReplyChoice> choices, const Usage& usage,
                               const GenerateTimes* times, const RaptInfo& info) {
  return completion_reply(request_, head_, choices, usage, tokenizer_, times, info);
}

// ----------------------------------------------------------------------------------------------- the others
std::string embeddings_reply(std::string_view model, std::span<const std::vector<float>> vectors, bool base64,
                             Dim prompt_tokens) {
  std::string out = "{\"object\":\"list\",\"data\":[";
  for (std::size_t i = 0; i < vectors.size(); ++i) {
    if (i > 0) out += ',';
    out += "{\"object\":\"embedding\",\"index\":";
    append_integer(out, static_cast<std::int64_t>(i));
    out += ",\"embedding\":";
    if (base64) {
      out += '"';
      append_base64(out, vectors[i]);
      out += '"';
    } else {
      out += '[';
      append_floats(out, vectors[i]);
      out += ']';
    }
    out += '}';
  }
  out += "],\"model\":";
  append_quoted(out, model);
  append_list_usage(out, prompt_tokens);
  return out += '}';
}

std::string rerank_reply(const RerankRequest& request, std::string_view model,
                         std::vector<RerankScore> scores, Dim prompt_tokens) {
  std::sort(scores.begin(), scores.end(), [](const RerankScore& a, const RerankScore& b) {
    return a.score != b.score ? a.score > b.score : a.index < b.index;
  });
  if (request.top_n > 0 && static_cast<std::size_t>(request.top_n) < scores.size())
    scores.resize(static_cast<std::size_t>(request.top_n));
  std::string list = "[";
  for (const RerankScore& s : scores) {
    if (list.back() != '[') list += ',';
    list += "{\"index\":";
    append_integer(list, s.index);
    list += request.tei ? ",\"score\":" : ",\"relevance_score\":";
    append_real(list, s.score);
    const auto at = static_cast<std::size_t>(s.index);
    if (request.return_documents && at < request.documents.size()) {
      list += request.tei ? ",\"text\":" : ",\"document\":{\"text\":";
      append_quoted(list, request.documents[at]);
      if (!request.tei) list += '}';
    }
    list += '}';
  }
  list += ']';
  if (request.tei) return list;
  std::string out = "{\"model\":";
  append_quoted(out, model);
  out += ",\"object\":\"list\",\"results\":";
  out += list;
  append_list_usage(out, prompt_tokens);
  return out += '}';
}

std::string classify_reply(std::string_view model, std::span<const ClassScores> items, Dim prompt_tokens) {
  std::string out = "{\"object\":\"list\",\"model\":";
  append_quoted(out, model);
  out += ",\"data\":[";
  for (std::size_t i = 0; i < items.size(); ++i) {
    const ClassScores& item = items[i];
    if (i > 0) out += ',';
    out += "{\"index\":";
    append_integer(out, static_cast<std::int64_t>(i));
    out += ",\"label\":";
    append_quoted(out, item.label);
    out += ",\"probs\":[";
    for (std::size_t k = 0; k < item.probabilities.size(); ++k) {
      if (k > 0) out += ',';
      append_real(out, item.probabilities[k]);
    }
    out += "],\"labels\":[";
    for (std::size_t k = 0; k < item.labels.size(); ++k) {
      if (k > 0) out += ',';
      append_quoted(out, item.labels[k]);
    }
    out += "],\"num_classes\":";
    append_integer(out, static_cast<std::int64_t>(item.probabilities.size()));
    out += '}';
  }
  out += ']';
  append_list_usage(out, prompt_tokens);
  return out += '}';
}

std::string model_reply(const ModelCard& model) {
  std::string out = "{\"id\":";
  append_quoted(out, model.id);
  out += ",\"object\":\"model\",\"created\":";
  append_integer(out, model.created);
  out += ",\"owned_by\":";
  append_quoted(out, model.owned_by);
  out += ",\"root\":";
  append_quoted(out, model.root.empty() ? model.id : model.root);
  out += ",\"parent\":";
  if (model.parent.empty()) out += "null";
  else append_quoted(out, model.parent);
  out += ",\"max_model_len\":";
  append_integer(out, model.context);
  out += ",\"meta\":{\"n_ctx\":";
  append_integer(out, model.context);
  const auto meta = [&](const char* name, Dim n) {
    append_key(out, name);
    append_integer(out, n);
  };
  meta("n_ctx_train", model.context_trained);
  meta("n_vocab", model.vocabulary);
  meta("n_embd", model.width);
  meta("n_params", model.parameters);
  meta("size", model.bytes);
  if (model.layers > 0) meta("n_layer", model.layers);
  if (model.heads > 0) meta("n_head", model.heads);
  if (!model.cache_type.empty()) {
    append_key(out, "cache_type");
    append_quoted(out, model.cache_type);
  }
  out += "},\"tasks\":[";
  for (std::size_t i = 0; i < model.tasks.size(); ++i) {
    if (i > 0) out += ',';
    append_quoted(out, model.tasks[i]);
  }
  return out += "]}";
}

std::string models_reply(std::span<const ModelCard> models) {
  std::string out = "{\"object\":\"list\",\"data\":[";
  for (std::size_t i = 0; i < models.size(); ++i) {
    if (i > 0) out += ',';
    out += model_reply(models[i]);
  }
  return out += "]}";
}

std::string tokenize_reply(const TokenizeRequest& request, std::span<const std::int32_t> ids,
                           const Tokenizer& tokenizer, Dim context) {
  std::string out = "{\"tokens\":[";
  if (request.with_pieces) {
    for (std::size_t i = 0; i < ids.size(); ++i) {
      const std::string bytes = token_bytes(&tokenizer, ids[i]);
      bool valid = true;
      for (std::size_t at = 0; valid && at < bytes.size();) {
        const unicode::Char c = unicode::read(bytes, at);
        valid = c.valid;
        at += c.length;
      }
      if (i > 0) out += ',';
      out += "{\"id\":";
      append_integer(out, ids[i]);
      out += ",\"piece\":";
      if (valid) {
        append_quoted(out, bytes);
      } else {
        out += '[';
        append_numbers(out, std::span(reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size()));
        out += ']';
      }
      out += '}';
    }
  } else {
    append_numbers(out, ids);
  }
  out += "],\"count\":";
  append_integer(out, static_cast<std::int64_t>(ids.size()));
  out += ",\"max_model_len\":";
  append_integer(out, context);
  if (request.return_token_strs) {
    out += ",\"token_strs\":[";
    for (std::size_t i = 0; i < ids.size(); ++i) {
      if (i > 0) out += ',';
      append_quoted(out, token_bytes(&tokenizer, ids[i]));
    }
    out += ']';
  }
  return out += '}';
}

std::string detokenize_reply(std::string_view text) {
  std::string quoted;
  append_quoted(quoted, text);
  return concat("{\"content\":", quoted, ",\"prompt\":", quoted, "}");
}
std::string template_reply(std::string_view prompt) {
  std::string out = "{\"prompt\":";
  append_quoted(out, prompt);
  return out += '}';
}
std::string input_tokens_reply(Dim tokens) {
  return concat("{\"input_tokens\":", tokens, ",\"object\":\"response.input_tokens\"}");
}

}  // namespace rapt::server
