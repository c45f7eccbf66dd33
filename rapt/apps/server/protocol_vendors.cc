// SPDX-License-Identifier: Apache-2.0
// Which reader and writer a form has, errors in each vendor's shape, and what the readers share.
#include "rapt/apps/server/protocol_vendors.h"

#include "rapt/apps/server/protocol_fields.h"
#include "rapt/apps/server/protocol_writers.h"

namespace rapt::server {
namespace {

template <class Writer>
std::unique_ptr<AnswerWriter> make_answer_writer(const CompletionRequest& request, const ReplyHead& head,
                                                 const Tokenizer* tokenizer) {
  return std::make_unique<Writer>(request, head, tokenizer);
}

std::string_view anthropic_type(int status) {
  switch (status) {
    case 401: return "authentication_error";
    case 403: return "permission_error";
    case 404: return "not_found_error";
    case 408:
    case 504: return "timeout_error";
    case 413: return "request_too_large";
    case 429: return "rate_limit_error";
    case 503: return "overloaded_error";
    default: return status >= 500 ? "api_error" : "invalid_request_error";
  }
}

void replace_all(std::string& text, std::string_view from, std::string_view to) {
  for (std::size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size())
    text.replace(at, from.size(), to);
}

}  // namespace

const Dialect& dialect(Form form) {
  static constexpr Dialect kDialects[] = {
      {"chatcmpl-", read_chat, read_template, make_answer_writer<ChunkWriter>},
      {"cmpl-", read_completion, read_template, make_answer_writer<ChunkWriter>},
      {"resp_", read_responses, read_responses, make_answer_writer<ResponsesWriter>},
      {"msg_", read_messages, read_messages_prompt, make_answer_writer<MessagesWriter>},
      {"ollama-", read_ollama_chat, read_ollama_chat, make_answer_writer<OllamaChatWriter>},
      {"ollama-", read_ollama_generate, read_ollama_generate, make_answer_writer<OllamaGenerateWriter>},
  };
  return kDialects[static_cast<std::size_t>(form)];
}

// -------------------------------------------------------------------------------------------------- errors
Vendor vendor_of(std::string_view path) {
  if (path.starts_with("/v1/")) path.remove_prefix(3);
  if (path == "/api" || path.starts_with("/api/")) return Vendor::ollama;
  if (path == "/messages" || path.starts_with("/messages/")) return Vendor::anthropic;
  return Vendor::openai;
}

std::string error_body(const ApiError& error, Vendor vendor, std::string_view request_id) {
  switch (vendor) {
    case Vendor::anthropic:
      return concat("{\"type\":\"error\",\"error\":{\"type\":\"", anthropic_type(error.status),
                    "\",\"message\":", in_quotes(error.message), "},\"request_id\":", in_quotes(request_id),
                    "}");
    case Vendor::ollama: return concat("{\"error\":", in_quotes(error.message), "}");
    default: return error_body(error);
  }
}

http::Reply error_reply(const ApiError& error, Vendor vendor, std::string_view request_id) {
  http::Reply reply = error_reply(error);
  if (vendor != Vendor::openai) reply.body = error_body(error, vendor, request_id);
  return reply;
}

std::span<const FieldTable> vendor_tables() {
  static const FieldTable tables[] = {{"messages", messages_rules()},
                                      {"count_tokens", messages_prompt_rules()},
                                      {"messages_output", messages_output_rules()},
                                      {"responses", responses_rules()},
                                      {"responses_text", responses_text_rules()},
                                      {"responses_reasoning", responses_reasoning_rules()},
                                      {"ollama_chat", ollama_rules("ollama_chat")},
                                      {"ollama_generate", ollama_rules("ollama_generate")},
                                      {"ollama_options", ollama_rules("ollama_options")},
                                      {"ollama_embed", ollama_rules("ollama_embed")},
                                      {"ollama_show", ollama_rules("ollama_show")}};
  return tables;
}

// ------------------------------------------------------------------------------------------------- readers
CompletionRequest Translation::read(CompletionRequest (*reader)(const Json&, const ReadOptions&),
                                    const ReadOptions& options) const {
  const auto rename = [&](std::string& text) {
    for (const auto& [ours, theirs] : renames) replace_all(text, ours, theirs);
  };
  try {
    CompletionRequest request = reader(chat, options);
    for (ToolFunction& f : request.tools.functions) rename(f.path);
    rename(request.format.path);
    return request;
  } catch (ApiError& error) {
    rename(error.message);
    rename(error.param);
    throw;
  }
}

Json function_tool(const Json& name, const Json* description, const Json* parameters, const Json* strict) {
  Json function, out;
  function.set("name", name);
  if (description) function.set("description", *description);
  if (parameters) function.set("parameters", *parameters);
  if (strict) function.set("strict", *strict);
  out.set("type", "function");
  out.set("function", std::move(function));
  return out;
}

}  // namespace rapt::server
