// SPDX-License-Identifier: Apache-2.0
// A model behind the server: its weights, its engine, and what follows from them for requests.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "rapt/apps/server/protocol_reply.h"
#include "rapt/apps/server/protocol_request.h"
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

struct ServedModel {
  explicit ServedModel(std::shared_ptr<const Checkpoint> of) : weights(std::move(of)), checkpoint(*weights) {}

  std::string name, fingerprint;
  Device* device = nullptr;  // where it computes
  const std::shared_ptr<const Checkpoint> weights;  // may be those of another one
  const Checkpoint& checkpoint;
  std::shared_ptr<const Checkpoint> draft;  // null: none
  std::optional<ChatTemplate> chat;
  std::string template_source;
  std::unique_ptr<Engine> engine;
  EngineSpeed speed;
  ReadOptions read;
  ModelCard card;
  Dim rows = 0;

  const Recipe& recipe() const { return checkpoint.model->recipe; }
  bool translates() const { return recipe().encoder && recipe().decoder; }
  bool classifies() const { return recipe().head.kind == HeadRecipe::Kind::classes; }
  bool writes() const { return recipe().decoder && recipe().head.kind == HeadRecipe::Kind::vocab; }
  bool embeds() const { return !translates() && !classifies(); }

  // Ids of a conversation: through the template, or the messages' texts one after the other.
  std::vector<std::int32_t> chat_ids(const CompletionRequest& asked) const;
  std::string chat_text(const CompletionRequest& asked) const;
  std::vector<ChatPiece> render(const CompletionRequest& asked) const;
  // Of a text prompt as it was asked for.
  std::vector<std::int32_t> prompt_ids(const TextOrIds& prompt, bool add_special) const;
};

// What clients call a file that is given no name.
std::string name_of_file(const std::string& path);

// Fails with the reason where a model has no tokenizer or reads pictures.
std::unique_ptr<ServedModel> serve_model(
    Device& device, const ModelOptions& options, const std::string& program,
    const std::function<void(std::uint64_t, std::uint64_t)>& progress = {});

}  // namespace rapt::server
