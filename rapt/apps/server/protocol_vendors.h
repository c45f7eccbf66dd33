// SPDX-License-Identifier: Apache-2.0
// The same completions in the words of several vendors: OpenAI's chat, texts and responses, Anthropic's
// messages, Ollama's chat and generate. A body of theirs is read through a table of its own fields into the
// body of a chat (or a text), which read_chat reads: so one set of rules and one way to the engine hold for
// all, and errors name the fields that were sent. Each has a writer for what comes back.
#pragma once
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "rapt/apps/server/protocol_reply.h"
#include "rapt/apps/server/protocol_request.h"

namespace rapt::server {

enum class Form { chat, text, responses, messages, ollama_chat, ollama_generate };

// What is asked for and how it is answered, by form.
struct Dialect {
  const char* id;  // what the reply's id begins with
  CompletionRequest (*read)(const Json& body, const ReadOptions& options);
  CompletionRequest (*read_prompt)(const Json& body, const ReadOptions& options);  // only what makes it
  // The first two must outlive it.
  std::unique_ptr<AnswerWriter> (*writer)(const CompletionRequest& request, const ReplyHead& head,
                                          const Tokenizer* tokenizer);
};
const Dialect& dialect(Form form);

// --- errors
enum class Vendor { openai, anthropic, ollama };
// By the path alone, known or not: who asks for "/api/…" reads Ollama's errors.
Vendor vendor_of(std::string_view path);
std::string error_body(const ApiError& error, Vendor vendor, std::string_view request_id);
http::Reply error_reply(const ApiError& error, Vendor vendor, std::string_view request_id);

// --- Anthropic
CompletionRequest read_messages(const Json& body, const ReadOptions& options);
CompletionRequest read_messages_prompt(const Json& body, const ReadOptions& options);
std::string count_tokens_reply(Dim tokens);
// Claude Code writes a stamp that changes with every request at the head of its system prompt
// ("x-anthropic-billing-header: …; cch=1a2b3;"): without its value beginnings are found again.
std::string without_stamp(std::string system);

// --- OpenAI's responses
CompletionRequest read_responses(const Json& body, const ReadOptions& options);

// --- Ollama
CompletionRequest read_ollama_chat(const Json& body, const ReadOptions& options);
CompletionRequest read_ollama_generate(const Json& body, const ReadOptions& options);
EmbeddingsRequest read_ollama_embed(const Json& body, const ReadOptions& options);
std::string ollama_embed_reply(std::string_view model, std::span<const std::vector<float>> vectors,
                               Dim prompt_tokens, double seconds);
// The reply to a request without a prompt, which only wants the model to be loaded; "": there is a prompt.
std::string ollama_load_reply(Form form, const Json& body, std::string_view model, std::int64_t created);
struct OllamaModel {
  std::string name, family, format, type, digest, chat_template;
  std::int64_t modified = 0;  // seconds since 1970
  Dim bytes = 0, parameters = 0, context = 0, width = 0, layers = 0, heads = 0, kv_heads = 0, vocabulary = 0;
  SamplerOptions sampling;
  std::vector<std::string> capabilities;  // "completion", "embedding", "tools", "thinking"
};
std::string ollama_tags_reply(std::span<const OllamaModel> models);
std::string ollama_ps_reply(std::span<const OllamaModel> models);
std::string ollama_show_reply(const OllamaModel& model);
void check_ollama_show(const Json& body);
std::string ollama_parameter_size(Dim n);  // "134.52M"
std::string rfc3339(std::int64_t seconds);  // "2026-11-19T15:13:04Z"

// --- what they share
// A body on its way to read_chat or read_completion. `renames`: names of theirs, and what was sent in their
// place, for errors.
struct Translation {
  Json chat = Json::Object{};
  std::vector<std::pair<std::string, std::string>> renames = {};

  void set(std::string_view name, Json value) { chat.set(name, std::move(value)); }
  CompletionRequest read(CompletionRequest (*reader)(const Json&, const ReadOptions&),
                         const ReadOptions& options) const;
};
// {"type": "function", "function": {…}}
Json function_tool(const Json& name, const Json* description, const Json* parameters, const Json* strict);

}  // namespace rapt::server
