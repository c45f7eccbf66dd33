// SPDX-License-Identifier: Apache-2.0
// Chat templates: an interpreter of the Jinja subset that released templates use. Values only (none, bool,
// int, float, string, list, map), no host objects, no files, no clock but the date that is passed in. The
// result is text in pieces that know whether they come from the template or from the user, so that user text
// never becomes a special token.
//
// A template may mean harm. It gets a million steps, and a step is at most 128 bytes made or copied, so that
// no template takes more than about a second, 256 MiB and 256 KiB of stack. What the user gives adds to that
// (a step for two bytes, 1,000 for a message, four bytes of result for a byte): long conversations
// are legal.
//
// The template's own: its text and literals, bos_token, eos_token, numbers, and a message's role where it is
// one of the known ones (some templates make special tokens of it: '<|' + role + '|>'). The user's: every
// other string of messages and variables, through every operation, character by character; JSON and printed
// lists that hold such a string, as a whole.
//
// Set as in transformers: trim_blocks, lstrip_blocks, loop controls, `generation`; tools and documents are
// none where not given.
#pragma once
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "rapt/base/json.h"

namespace rapt {

struct ChatMessage {
  std::string role, content;
};

struct ChatPiece {
  std::string text;
  bool trusted;  // written by the template
};

struct ChatOptions {
  bool add_generation_prompt = true;
  std::string bos_token, eos_token;
  Json variables;          // more names for the template: an object or null (tools, enable_thinking …)
  std::string date;        // for strftime_now: "2026-11-15"; "": the function is refused
};

class ChatTemplate {
 public:
  // Fails with line and column.
  explicit ChatTemplate(std::string_view source, std::string_view where = "chat template");
  ~ChatTemplate();
  ChatTemplate(ChatTemplate&&) noexcept;
  ChatTemplate& operator=(ChatTemplate&&) noexcept;

  std::vector<ChatPiece> render(std::span<const ChatMessage> messages, const ChatOptions& options) const;
  // Messages as JSON, for templates that want tool calls or lists of parts.
  std::vector<ChatPiece> render(const Json& messages, const ChatOptions& options) const;

  // With nothing given.
  static constexpr std::int64_t kFuel = 1'000'000, kDepth = 32, kMostOutput = 4 << 20;

 private:
  struct Program;
  std::unique_ptr<Program> program_;
};

}  // namespace rapt
