// SPDX-License-Identifier: Apache-2.0
// Request bodies as values: OpenAI's, with the extras of llama.cpp and vLLM that clients really send, and our
// own object `rapt`. Everything that can be refused without a model is refused here, before anything is
// allocated for it. What a field may hold: the tables in protocol_request.cc.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "rapt/apps/server/protocol_error.h"
#include "rapt/apps/server/protocol_tools.h"
#include "rapt/base/json.h"
#include "rapt/run/batch.h"
#include "rapt/text/answer_form.h"
#include "rapt/text/chat_template.h"
#include "rapt/use/generation.h"

namespace rapt::server {

// The body of a request: JSON, an object. 400 invalid_json where it is not, or nested deeper than
// Json::kDepth, with more than kMostMembers members in all, a byte order mark, or a key that stands twice.
Json read_body(std::string_view body);

inline constexpr std::size_t kMostMembers = 100'000, kMostMessages = 4096, kMostParts = 1024,
                             kMostInputs = 2048, kMostChoices = 2048, kMostIds = std::size_t{1} << 20,
                             kMostEditNumbers = std::size_t{1} << 18;

// What the sampler does where a request says nothing: OpenAI's 1 and 1, every cut off, no penalty.
SamplerOptions openai_sampling();

struct ReadOptions {
  SamplerOptions sampling = openai_sampling();  // or what the model's generation_config.json says
  Dim vocabulary = 0;  // ids from here on are refused; 0: not known
  int most_choices = 8;  // n
  // What whoever calls can do; a request for the rest is 400 unsupported_parameter.
  bool min_tokens = false;  // by Request::mask: the stops are cleared until so many tokens are there
  bool stop_token_ids = false;  // needs ids beside Engine::stops() that end one answer
  bool look = true, edits = true, endless = true;  // `rapt`
};

struct TextOrIds {
  std::string text;
  std::vector<std::int32_t> ids;  // used as they are: nothing is put before them
  bool is_ids = false;
};

// rapt.continue: what whoever asks has of the answer already, from a server that died.
struct Continued {
  std::vector<std::vector<std::int32_t>> ids;  // of each choice; of those behind the last one nothing
  std::string fingerprint, basis;  // "": not said
  bool any() const;
  // Of a choice that is not in `ids`: none.
  std::span<const std::int32_t> of(int index) const;
};

// /v1/chat/completions and /v1/completions.
struct CompletionRequest {
  bool chat = true;
  std::string model;  // "": not said

  // --- chat: what ChatTemplate::render takes
  // Objects of role, content (always a string: the parts of a list joined by line ends, null is ""), and of
  // name, tool_calls (arguments as an object where they are one), tool_call_id, reasoning_content where
  // given. "developer" has become "system". Other members are dropped: templates look at them.
  Json messages;
  // chat_template_kwargs and reasoning_effort; an object or null. Names of the template's own are refused.
  Json variables;
  bool add_generation_prompt = true;
  bool continue_final = false;  // the last message, an assistant's, is gone on with: cut_after_final()
  ToolRequest tools;

  AnswerFormat format;  // what the text of an answer must be
  // How the answer is told apart, and what its prompt has of a thought; set by who knows the model
  // (served_answers.h). null: all of it is text.
  const AnswerForm* form = nullptr;
  PromptThought thought = PromptThought::none;

  // --- text
  std::vector<TextOrIds> prompts;  // choice number = prompt * generate.samples + sample
  bool add_special_tokens = true;  // false: no BOS before texts (ids never get one)
  bool echo = false;

  // --- the answer
  // samples = n. logprobs, top_logprobs as asked. sampler.seed only where `seeded`: else draw one, below 2^53
  // so that JavaScript reads it back, and report it.
  GenerateOptions generate;
  bool seeded = false;
  // frequency_penalty and presence_penalty came by OpenAI's names and count over the answer alone, while
  // repeat_penalty counts over the last sampler.penalty_last tokens of prompt and answer. The sampler counts
  // all three over the latter. What it would need: where the answer begins in `history` (a Dim
  // SamplerOptions::penalty_from = 0, which Engine sets to the length of the prompt), and that these two
  // count ids from there on, without `penalty_last`. Set only where one of the two is not 0.
  bool penalties_answer_only = false;
  Dim min_tokens = 0;  // no stop id before; ReadOptions::min_tokens
  std::vector<std::int32_t> stop_token_ids;  // ReadOptions::stop_token_ids
  int prompt_logprobs = -1;  // Request::prompt_logprobs; set by echo with logprobs too
  int show_prompt_logprobs = -1;  // … those asked for by vLLM's name: `prompt_logprobs` of the reply

  // --- how it is told
  bool stream = false, include_usage = false, continuous_usage = false;
  bool return_progress = false, timings_per_token = false, return_token_ids = false;
  Json told;  // members that the reply says again (/v1/responses): an object or null

  // --- who and where
  std::string user, cache_salt;  // cache_salt: part of Request::space
  bool cache_prompt = true;  // false: nothing is shared
  int priority = 0;  // vLLM: lower is sooner

  // --- rapt
  std::vector<Json> look;  // strings and objects, as they came
  std::vector<Json> edits;  // for read_edit (objects) and parse_edit (strings); no value names a file
  std::string edits_text;  // equal for equal edits: Request::edits. "" without edits
  Stream endless;  // window > 0: Request::stream
  bool replay = true;  // kept for /v1/replay
  bool compare = false;  // a second answer under other edits, and by how much the two part
  std::string compare_model;  // an adapter, or the model without; "": the same
  std::vector<Json> compare_edits;
  std::string compare_edits_text;  // as edits_text
  bool speculate = true;  // Request::speculate
  bool resume = false;  // of a stream: it goes on without its reader for a while
  std::optional<Continued> continued;  // of a stream: what another server needs to go on is told with it
};
CompletionRequest read_chat(const Json& body, const ReadOptions& options = {});
CompletionRequest read_completion(const Json& body, const ReadOptions& options = {});
// /apply-template and /v1/chat/completions/input_tokens: the fields of a chat that make its prompt, no
// others.
CompletionRequest read_template(const Json& body, const ReadOptions& options = {});

// /v1/replay/{id}: what was asked then, `first`, with what is asked of its repetition in the place of it: how
// it is told, and what is looked at, edited and compared.
struct ReplayRequest {
  Json body;  // of a chat or a text completion, as `first` is
  bool edited = false;  // the edits are not those of then
};
ReplayRequest read_replay(const Json& asked, const Json& first, bool chat);

// A conversation that was rendered without a generation prompt, up to the end of its last message: what the
// template wrote behind the user's last text is taken away. 400 where that text is not the end of `content`
// (the last message's): the template writes more of the user's behind it, and cannot go on with a message.
std::vector<ChatPiece> cut_after_final(std::vector<ChatPiece> rendered, std::string_view content);

struct EmbeddingsRequest {
  std::string model, user;
  std::vector<TextOrIds> inputs;
  bool base64 = false;
  Dim dimensions = 0;  // 0: all. More than the model has: 400 by whoever knows
};
EmbeddingsRequest read_embeddings(const Json& body, const ReadOptions& options = {});

struct RerankRequest {
  std::string model, query;
  std::vector<std::string> documents;
  Dim top_n = 0;  // 0: all
  bool return_documents = false;  // TEI: return_text
  bool raw_scores = false;  // TEI
  bool tei = false;  // asked with `texts`: answered with a bare list
};
RerankRequest read_rerank(const Json& body, const ReadOptions& options = {});

struct ClassifyRequest {
  std::string model;
  std::vector<std::string> inputs;
};
ClassifyRequest read_classify(const Json& body, const ReadOptions& options = {});

struct TokenizeRequest {
  std::string model, text;
  std::optional<CompletionRequest> chat;  // vLLM: messages instead of a text
  bool add_special = false;  // BOS …; llama.cpp (`content`) false, vLLM (`prompt`) true if unsaid
  bool parse_special = true;  // names of special tokens in the text become these tokens
  bool with_pieces = false;  // llama.cpp: [{id, piece}]
  bool return_token_strs = false;  // vLLM
};
TokenizeRequest read_tokenize(const Json& body, const ReadOptions& options = {});

struct DetokenizeRequest {
  std::string model;
  std::vector<std::int32_t> ids;
};
DetokenizeRequest read_detokenize(const Json& body, const ReadOptions& options = {});

// /v1/look: a text that is read once more, and what is wanted of it.
inline constexpr Dim kMostLookTokens = 4096, kMostLookPixels = 512, kMostLookSample = 2048;
struct LookRequest {
  std::string model, text, answer;
  std::vector<std::int32_t> ids;  // one of these three is given
  std::optional<CompletionRequest> chat;  // with `answer` behind it
  bool tokens = false, heads = false, token_stats = false, map = false, row = false, maps = false,
       norms = false, massive = false, lens = false;
  Dim token = -1;  // negative: from the end
  Dim layer = -1, head = -1;  // -1: not said
  Dim row_begin = 0, row_end = -1, key_begin = 0, key_end = -1;  // of the map; -1: to the end
  Dim pixels = 256, sample = 512;
  int top = 5;
  Dim first_keys = 1;
  enum class Encoding { json, u8, f16, f32 } encoding = Encoding::json;
  std::vector<Json> edits;
};
LookRequest read_look(const Json& body, const ReadOptions& options = {});

// /v1/lab/run: an experiment of the laboratory, as `rapt lab NAME --seed N --effort E --text FILE` runs it.
struct LabRunRequest {
  std::string experiment, text;
  std::uint64_t seed = 0;
  double effort = 1;
};
LabRunRequest read_lab_run(const Json& body);

// /v1/recipe/show, and each side of /v1/recipe/diff, whose fields are named with `path` before them: one of
// a text, a recipe (as JSON on one line) and a preset.
struct RecipeRequest {
  std::string text, recipe, preset;
  std::vector<std::string> settings;
  bool chinese = false;
};
RecipeRequest read_recipe(const Json& body, std::string_view path = "");
struct RecipePair {
  RecipeRequest a, b;
};
RecipePair read_recipe_pair(const Json& body);

}  // namespace rapt::server
