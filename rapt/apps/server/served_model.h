// SPDX-License-Identifier: Apache-2.0
// A model behind the server: its weights, its engine, and what follows from them for requests.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "rapt/apps/server/protocol_reply.h"
#include "rapt/apps/server/protocol_request.h"
#include "rapt/apps/server/protocol_vendors.h"
#include "rapt/apps/server/served_answers.h"
#include "rapt/inspect/edits.h"
#include "rapt/load/checkpoint.h"
#include "rapt/text/chat_template.h"
#include "rapt/use/engine.h"
#include "rapt/use/engine_speed.h"

namespace rapt::server {

struct ModelOptions {
  std::string path, name;  // name: what clients call it; "": the file's
  // Of the same file, where it is open already; of a model in memory, whose path is "".
  std::shared_ptr<const Checkpoint> weights;
  DType cache = DType::f16;
  Dim context = 0;  // 0: the model's
  std::size_t budget = 0;  // bytes of its pool
  double step_seconds = 0.05;
  Dim rows = 0;  // answers side by side; 0: by the batch that is measured to be useful
  bool prefixes = true;
  Speculate speculate = Speculate::lookup;
  std::string draft;  // Speculate::draft: the model that is asked
  std::string chat_template;  // a text that takes the place of the model's own; "": none does
};

// An adapter that clients name as if it were a model of its own.
struct NamedAdapter {
  std::string name, fingerprint;
  AdapterUse use;
  ModelCard card;
};

struct ServedModel {
  explicit ServedModel(std::shared_ptr<const Checkpoint> of) : weights(std::move(of)), checkpoint(*weights) {}

  std::string name, fingerprint;
  Device* device = nullptr;  // where it computes
  const std::shared_ptr<const Checkpoint> weights;  // may be those of another one
  const Checkpoint& checkpoint;
  std::shared_ptr<const Checkpoint> draft;  // null: none
  std::optional<ChatTemplate> chat;
  std::string template_source, template_hash;
  std::optional<ServedAnswers> answers;  // of a model that writes
  std::unique_ptr<Engine> engine;
  EngineSpeed speed;
  ReadOptions read;
  ModelCard card;
  std::int64_t modified = 0;  // its file, seconds since 1970
  std::vector<NamedAdapter> adapters;
  Dim rows = 0;

  const Recipe& recipe() const { return checkpoint.model->recipe; }
  bool translates() const { return recipe().encoder && recipe().decoder; }
  bool classifies() const { return recipe().head.kind == HeadRecipe::Kind::classes; }
  bool writes() const { return recipe().decoder && recipe().head.kind == HeadRecipe::Kind::vocab; }
  bool embeds() const { return !translates() && !classifies(); }

  // Ids of a conversation: through the template, or the messages' texts one after the other.
  std::vector<std::int32_t> chat_ids(const CompletionRequest& asked) const;
  // … and with them how its answer is told apart (ServedAnswers::set_form).
  std::vector<std::int32_t> chat_prompt(CompletionRequest& asked) const;
  std::string chat_text(const CompletionRequest& asked) const;
  std::vector<ChatPiece> render(const CompletionRequest& asked) const;
  // Of a text prompt as it was asked for.
  std::vector<std::int32_t> prompt_ids(const TextOrIds& prompt, bool add_special) const;
  // What is asked of the engine for one prompt: everything that decides its answer but edits. Who asks and
  // who watches is the caller's to say.
  Request request(const CompletionRequest& asked, const std::vector<std::int32_t>& prompt,
                  std::shared_ptr<const Constraint> constraint) const;
  // Of an answer that is given again: what ended with the context of then does so with another one, too.
  void end_with_context(Request& request, Dim then) const;
  // What the answer must be; null where it may be anything. Of a conversation after chat_prompt() or, where
  // its prompt is known already, set_form(). Fails with an ApiError 400.
  std::shared_ptr<const Constraint> constraint(const CompletionRequest& asked);
  bool fits(const std::vector<std::vector<std::int32_t>>& prompts) const;  // all ids are of the vocabulary
  void set_form(CompletionRequest& asked, const std::vector<std::int32_t>& prompt) const;
};

// Those of a request, for an answer that is written token by token. Fails with an ApiError that names the
// field where one of them cannot be meant.
std::vector<Edit> read_edits(const std::vector<Json>& list, const Model& model, std::string_view field);

// As Ollama's clients are told of it. Its digest is one of the fingerprint, not of the file's bytes.
OllamaModel ollama_model(const ServedModel& model);

// From now on the model can also be asked for as `name`. Before it answers anybody.
void add_adapter(ServedModel& model, const std::string& name, const std::string& path);

// What clients call a file that is given no name.
std::string name_of_file(const std::string& path);

// Fails with the reason where a model has no tokenizer or reads pictures.
std::unique_ptr<ServedModel> serve_model(
    Device& device, const ModelOptions& options, const std::string& program,
    const std::function<void(std::uint64_t, std::uint64_t)>& progress = {});

}  // namespace rapt::server
