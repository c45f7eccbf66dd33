// SPDX-License-Identifier: Apache-2.0
// Replies as JSON text, written without a tree. Texts may hold broken UTF-8, which becomes U+FFFD; -inf
// becomes -9999.0; a log-probability is printed with the fewest digits that give the same float, so that one
// value has the same digits wherever it stands.
//
// What clients choke on, and what is therefore never written: an `id:` or `event:` line, a chunk without
// `object` or `index`, a second `role`, choices out of order at the start, numbers inside `delta` (helpers
// add them up: what is ours stands at the top level of a chunk).
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "rapt/apps/server/protocol_request.h"
#include "rapt/text/answer_parts.h"
#include "rapt/text/tokenizer/tokenizer.h"

namespace rapt::server {

std::string in_quotes(std::string_view text);  // append_quoted
std::string sse(std::string_view json);  // data: json\n\n
inline constexpr std::string_view kSseDone = "data: [DONE]\n\n", kSsePing = ":\n\n";
void append_quoted(std::string& out, std::string_view text);  // a JSON string; broken UTF-8 → U+FFFD
void append_logprob(std::string& out, float logprob);  // -0.2, -9999.0
void append_floats(std::string& out, std::span<const float> values);  // 0.1,-2
std::string hash_text(std::uint64_t hash);  // 16 hexadecimal digits

// What all chunks of a reply have in common.
struct ReplyHead {
  std::string id;  // "chatcmpl-…", "cmpl-…"
  std::int64_t created = 0;
  std::string model, fingerprint;
  std::string basis = {};  // of CompletionRequest::continued: what else the answer follows from, as a hash
};

struct Usage {
  Dim prompt_tokens = 0, completion_tokens = 0, cached_tokens = 0;
  Dim reasoning_tokens = -1;  // -1: not counted, not written
};

// Top level of a reply and of a stream's finishing chunks.
struct RaptInfo {
  std::optional<std::uint64_t> seed = {};  // printed as the int64 that a client may send back
  const SamplerOptions* sampling = nullptr;
  int paused = 0;  // this and the next are written where they are not 0
  Dim reused = 0, dropped = 0;
  std::string more = {};  // further members as JSON: "\"look\":{…}"
};

struct ReplyChoice {
  int index = 0;
  std::string_view text = {};
  Finish finish = Finish::stop;
  std::string_view finish_detail = {};  // rapt.finish: "eos", "stop_string", "length", "context", "deadline"
  std::optional<std::uint64_t> hash = {};
  std::span<const std::int32_t> ids = {};  // return_token_ids
  std::span<const TokenChoice> tokens = {};  // Generated::tokens, where log-probabilities were asked for
  // Of its prompt: echo, return_token_ids, prompt_logprobs. `prompt` is Answer::prompt: all but the first.
  std::string_view prompt_text = {};
  std::span<const std::int32_t> prompt_ids = {};
  std::span<const TokenChoice> prompt = {};
  std::string stop = {};  // which of GenerateOptions::stops ended it
};
// cancelled (a deadline): "length"; called: it ends with calls of functions.
std::string_view finish_reason(Finish finish, bool called = false);
// Tells the answer of this choice apart; nothing where all of it is text.
std::optional<AnswerParser> answer_parser(const CompletionRequest& request, const ReplyHead& head, int index);
AnswerMessage answer_message(const CompletionRequest& request, const ReplyHead& head,
                             const ReplyChoice& choice);
// `rapt` of a reply with one choice: {"seed":…,"hash":…,…}.
std::string rapt_text(const RaptInfo& info, const ReplyChoice& choice);
// {"token":…,"logprob":…,"bytes":[…],"top_logprobs":[…]}; behind another one: with a comma before it.
void append_token_logprobs(std::string& list, const Tokenizer* tokenizer, const TokenChoice& token, int top);

// The whole reply of a chat or a text completion, as `request` asked for it. `tokenizer`: for
// log-probabilities; may be null without them. times: null leaves `timings` away.
std::string completion_reply(const CompletionRequest& request, const ReplyHead& head,
                             std::span<const ReplyChoice> choices, const Usage& usage,
                             const Tokenizer* tokenizer, const GenerateTimes* times, const RaptInfo& info);

// Log-probabilities of a text completion: four lists side by side, as the insides of JSON lists.
struct TextLogprobs {
  std::string tokens = {}, values = {}, tops = {}, offsets = {};
  std::int64_t offset = 0;  // characters so far, as Python counts them
  bool first = false;  // the next token is the first of its text: SentencePiece shows it without its space
  // token: null where there is no log-probability (the first of a prompt).
  void add(const Tokenizer* tokenizer, std::int32_t id, const TokenChoice* token, int top);
  void append(
      std::string& out) const;  // {"tokens":[…],"token_logprobs":[…],"top_logprobs":[…],"text_offset":[…]}
  void clear();
  bool empty() const { return tokens.empty(); }
};

// What stands at the top level of one chunk beside its choice, where it is given and was asked for.
struct ChunkExtras {
  const Usage* usage = nullptr;  // so far (continuous_usage)
  const GenerateTimes* times = nullptr;  // so far (timings_per_token; of a finish chunk always)
  std::string_view rapt = {};  // members as JSON: "\"look\":{…}"
};

// What becomes of an engine's events in one API: a stream, or a reply in one piece. Every call appends what
// is to be sent to `out`; none waits for the next. What an API has no place for is left out.
class AnswerWriter {
 public:
  virtual ~AnswerWriter() = default;
  // Event::Kind::prompt, where return_progress was asked for (else nothing): no choice in it.
  virtual void progress(std::string&, Dim /*read*/, Dim /*of*/, Dim /*reused*/, double /*seconds*/) {}
  // What echo and return_token_ids say of a prompt; once per prompt before the first token of all.
  virtual void prompt(std::string&, int /*prompt*/, std::string_view /*text*/, std::span<const std::int32_t>,
                      std::span<const TokenChoice>) {}
  // Event::Kind::token. `index` is the choice's number. token: where log-probabilities were asked for.
  // extras.usage: so far.
  virtual void token(std::string& out, int index, std::string_view text, std::int32_t id,
                     const TokenChoice* token, const ChunkExtras& extras) = 0;
  // Without a choice: members of `rapt` as JSON.
  virtual void aside(std::string&, std::string_view /*rapt*/) {}
  virtual void finish(std::string& out, const ReplyChoice& choice, const RaptInfo& info,
                      const ChunkExtras& extras) = 0;
  virtual void done(std::string& out, const Usage& usage, const GenerateTimes* times) = 0;
  // Instead of all these: the reply in one piece.
  virtual std::string whole(std::span<const ReplyChoice> choices, const Usage& usage,
                            const GenerateTimes* times, const RaptInfo& info) = 0;

  virtual std::string error(const ApiError& error) = 0;  // the last event of a stream that breaks
  virtual std::string ping() const { return std::string(kSsePing); }  // a sign of life
  virtual std::string_view content_type() const { return "text/event-stream; charset=utf-8"; }
};

// The same as a stream: every call appends events to `out`, none of them waits for the next. Before the first
// event the role chunks of all choices are written, in order (chat). Entries of log-probabilities and ids
// whose text is not certain yet (an unfinished character, the beginning of a stop) wait for the chunk that
// has it. With echo the prompt is the first chunk of its choices: prompt().
//
// With rapt.continue (CompletionRequest::continued) the first chunk says what another server needs to go on,
// chunks have ids, and the ids of a token stand in the last of its chunks: who has them has its text. What
// was told before, by the ids that were sent along, is written and dropped.
class ChunkWriter final : public AnswerWriter {
 public:
  // The first two must outlive it.
  ChunkWriter(const CompletionRequest& request, const ReplyHead& head, const Tokenizer* tokenizer);

  void progress(std::string& out, Dim read, Dim of, Dim reused, double seconds) override;
  void prompt(std::string& out, int prompt, std::string_view text, std::span<const std::int32_t> ids,
              std::span<const TokenChoice> logprobs) override;
  void token(std::string& out, int index, std::string_view text, std::int32_t id, const TokenChoice* token,
             const ChunkExtras& extras = {}) override;
  // A chunk of its own. Nothing that waits is in it.
  void aside(std::string& out, std::string_view rapt) override;
  // What waited, then `delta: {}` with the reason and `rapt`.
  void finish(std::string& out, const ReplyChoice& choice, const RaptInfo& info,
              const ChunkExtras& extras = {}) override;
  // The usage chunk where it was asked for, then [DONE].
  void done(std::string& out, const Usage& usage, const GenerateTimes* times = nullptr) override;
  std::string whole(std::span<const ReplyChoice> choices, const Usage& usage, const GenerateTimes* times,
                    const RaptInfo& info) override;
  std::string error(const ApiError& error) override { return error_event(error); }
  bool begun() const { return begun_; }

 private:
  // Of one choice: what no chunk has shown yet.
  struct Waiting {
    std::string content;  // entries of log-probabilities (chat)
    TextLogprobs lists;  // … (text)
    std::string ids, prompt_ids;
    std::size_t id_count = 0;  // of `ids`
    std::size_t had = 0, told = 0;  // ids that the client had; those of chunks so far
    std::optional<AnswerParser> parser = {};
    bool called = false;  // a call of a function is whole
    bool any() const { return !content.empty() || !lists.empty() || !ids.empty() || !prompt_ids.empty(); }
  };
  void begin(std::string& out);
  void chunk(std::string& out, int index, std::string_view text, const ChunkExtras& extras);
  // waited: with what waited for this chunk.
  void delta_chunk(std::string& out, int index, std::string_view delta, const ChunkExtras& extras,
                   bool waited = true);
  void parts(std::string& out, int index, std::span<const AnswerPart> parts, const ChunkExtras& extras);
  void close(std::string& out, const ChunkExtras& extras, std::string_view info = {},
             std::string_view prompt_ids = {}) const;

  const CompletionRequest& request_;
  const ReplyHead& head_;
  bool chat_, usage_, continuous_, progress_, timings_, ids_, echo_, logprobs_;
  int top_, samples_;
  const Tokenizer* tokenizer_;
  std::string prefix_;  // data: {"id":…,"choices":[
  std::string prompt_ids_;  // of a chat, until the first chunk
  bool begun_ = false;
  std::vector<Waiting> choices_;
};

// --- lists and small replies
std::string embeddings_reply(std::string_view model, std::span<const std::vector<float>> vectors, bool base64,
                             Dim prompt_tokens);
struct RerankScore {
  int index = 0;
  double score = 0;
};
// Sorted here: the best first, equal ones by index; `request.top_n` of them.
std::string rerank_reply(const RerankRequest& request, std::string_view model,
                         std::vector<RerankScore> scores, Dim prompt_tokens);
struct ClassScores {
  std::string label;  // the most probable one
  std::vector<std::string> labels;
  std::vector<float> probabilities;
};
std::string classify_reply(std::string_view model, std::span<const ClassScores> items, Dim prompt_tokens);

struct ModelCard {
  std::string id, root;
  std::string parent = {};  // of an adapter: the model that it belongs to
  std::int64_t created = 0;
  std::string owned_by = "rapt";
  Dim context = 0, context_trained = 0, vocabulary = 0, width = 0, parameters = 0, bytes = 0;
  Dim layers = 0, heads = 0;  // of the decoder; the most heads that a layer has
  std::string cache_type;  // how keys and values are kept; "": it keeps none
  std::vector<std::string> tasks;  // "chat", "completion", "embedding" …
};
std::string models_reply(std::span<const ModelCard> models);
std::string model_reply(const ModelCard& model);

std::string tokenize_reply(const TokenizeRequest& request, std::span<const std::int32_t> ids,
                           const Tokenizer& tokenizer, Dim context);
std::string detokenize_reply(std::string_view text);
std::string template_reply(std::string_view prompt);
std::string input_tokens_reply(Dim tokens);

}  // namespace rapt::server
