// SPDX-License-Identifier: Apache-2.0
// Writers of APIs that give one answer as a list of parts: what was thought, text, calls of functions
// (text/answer_parts.h). One class tells the parts apart, for streams and whole replies alike; each API says
// how a part looks.
#pragma once
#include "rapt/apps/server/protocol_fields.h"
#include "rapt/apps/server/protocol_vendors.h"
#include "rapt/text/answer_parts.h"

namespace rapt::server {

// What is known when an answer has ended.
struct AnswerEnd {
  const ReplyChoice& choice;
  const Usage& usage;
  const GenerateTimes& times;
  const RaptInfo& info;
  bool called = false;  // it ended with calls of functions
};

class PartWriter : public AnswerWriter {
 public:
  void token(std::string& out, int index, std::string_view text, std::int32_t id, const TokenChoice* token,
             const ChunkExtras& extras) final;
  void finish(std::string& out, const ReplyChoice& choice, const RaptInfo& info,
              const ChunkExtras& extras) final;
  void done(std::string& out, const Usage& usage, const GenerateTimes* times) final;
  std::string whole(std::span<const ReplyChoice> choices, const Usage& usage, const GenerateTimes* times,
                    const RaptInfo& info) final;

 protected:
  PartWriter(const CompletionRequest& request, const ReplyHead& head, const Tokenizer* tokenizer)
      : request_(request), head_(head), tokenizer_(tokenizer) {}

  virtual void begin(std::string& /*out*/, const Usage&) {}  // before the first part: the prompt's tokens
  virtual void part(std::string& out, const AnswerPart& part) = 0;
  virtual void end(std::string& out, const AnswerEnd& end) = 0;
  virtual std::string reply(const AnswerMessage& message, const AnswerEnd& end) = 0;

  const CompletionRequest& request_;
  const ReplyHead& head_;
  const Tokenizer* tokenizer_;
  std::string logprobs_;  // entries of tokens that no part has shown yet
  bool begun_ = false;

 private:
  void start(std::string& out, const Usage& usage);
  void tell(std::string& out, std::span<const AnswerPart> parts);

  std::optional<AnswerParser> parser_;
  ReplyChoice choice_;
  RaptInfo info_;
  bool called_ = false;
};

bool is_json_object(std::string_view text);

// Rules of the tables, for the document.
std::span<const FieldRule> messages_rules();
std::span<const FieldRule> messages_prompt_rules();
std::span<const FieldRule> messages_output_rules();
std::span<const FieldRule> responses_rules();
std::span<const FieldRule> responses_text_rules();
std::span<const FieldRule> responses_reasoning_rules();
std::span<const FieldRule> ollama_rules(std::string_view name);

class MessagesWriter final : public PartWriter {
 public:
  MessagesWriter(const CompletionRequest& request, const ReplyHead& head, const Tokenizer* tokenizer)
      : PartWriter(request, head, tokenizer) {}
  std::string error(const ApiError& error) override;

 private:
  void begin(std::string& out, const Usage& usage) override;
  void part(std::string& out, const AnswerPart& part) override;
  void end(std::string& out, const AnswerEnd& end) override;
  std::string reply(const AnswerMessage& message, const AnswerEnd& end) override;
  std::string head(std::string_view content, std::string_view stop, const std::string& usage) const;
  void open(std::string& out, AnswerPart::Kind kind, std::string_view block);
  void close(std::string& out);

  int index_ = -1;  // of the block that is open, or was last
  bool open_ = false;
  AnswerPart::Kind kind_ = AnswerPart::Kind::text;
};

class ResponsesWriter final : public PartWriter {
 public:
  ResponsesWriter(const CompletionRequest& request, const ReplyHead& head, const Tokenizer* tokenizer)
      : PartWriter(request, head, tokenizer) {}
  std::string error(const ApiError& error) override;

 private:
  struct Item {
    AnswerPart::Kind kind;
    std::string text, logprobs, call_id, name;  // text: of a call its arguments
    bool whole = true;
  };
  void begin(std::string& out, const Usage& usage) override;
  void part(std::string& out, const AnswerPart& part) override;
  void end(std::string& out, const AnswerEnd& end) override;
  std::string reply(const AnswerMessage& message, const AnswerEnd& end) override;
  void event(std::string& out, std::string_view type, std::string_view members);
  void open(std::string& out, Item item);
  void close(std::string& out, bool cut);
  std::string item_id(std::size_t index) const;
  std::string item_json(std::size_t index, std::string_view status) const;
  std::string place() const;  // "item_id":…,"output_index":…
  std::string response(std::string_view status, const AnswerEnd* end) const;

  std::vector<Item> items_;
  bool open_ = false;
  std::int64_t sequence_ = 0;
};

class OllamaWriter : public PartWriter {
 public:
  std::string error(const ApiError& error) override;
  std::string ping() const override;
  std::string_view content_type() const override { return "application/x-ndjson"; }

 protected:
  OllamaWriter(const CompletionRequest& request, const ReplyHead& head, const Tokenizer* tokenizer)
      : PartWriter(request, head, tokenizer) {}
  // "message":{…} or "response":…
  virtual std::string said(std::string_view text, std::string_view thought, std::string_view calls) const = 0;

 private:
  void part(std::string& out, const AnswerPart& part) override;
  void end(std::string& out, const AnswerEnd& end) override;
  std::string reply(const AnswerMessage& message, const AnswerEnd& end) override;
  std::string line(std::string_view said, std::string_view logprobs, std::string_view ending = {}) const;
  std::string ending(const AnswerEnd& end) const;

  static std::string call_json(std::string_view id, std::string_view name, std::string_view arguments);

  bool calling_ = false;  // a call is being written
  std::string name_, id_, arguments_;
};

class OllamaChatWriter final : public OllamaWriter {
 public:
  OllamaChatWriter(const CompletionRequest& request, const ReplyHead& head, const Tokenizer* tokenizer)
      : OllamaWriter(request, head, tokenizer) {}

 private:
  std::string said(std::string_view text, std::string_view thought, std::string_view calls) const override;
};

class OllamaGenerateWriter final : public OllamaWriter {
 public:
  OllamaGenerateWriter(const CompletionRequest& request, const ReplyHead& head, const Tokenizer* tokenizer)
      : OllamaWriter(request, head, tokenizer) {}

 private:
  std::string said(std::string_view text, std::string_view thought, std::string_view calls) const override;
};

}  // namespace rapt::server
