// SPDX-License-Identifier: Apache-2.0
// Loading for the server, what is measured then, and prompts as tokens.
#include "rapt/apps/server/served_model.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <map>

#include "rapt/base/rng.h"
#include "rapt/base/sha256.h"
#include "rapt/device/device.h"
#include "rapt/load/adapter.h"
#include "rapt/nn/model.h"
#include "rapt/text/prompt.h"
#include "rapt/use/conversation.h"
#include "rapt/use/translate.h"

namespace rapt::server {
namespace {

namespace fs = std::filesystem;

void mix_text(std::uint64_t& hash, std::string_view text) {
  for (const char c : text) hash = mix_key(hash, static_cast<unsigned char>(c));
}

// Of what decides the bits: program, instruction set, cache, and the model's files (their sizes, beginnings
// and ends: reading a large model twice would take long).
std::string fingerprint_of(const std::string& program, const Device& device, const ModelOptions& options,
                           const std::string& path) {
  std::uint64_t hash = 0;
  mix_text(hash, program);
  hash = mix_key(hash, static_cast<std::uint64_t>(options.cache));
  for (const std::string& isa : available_isas())
    if (&kernels_for(isa) == &device.kernels) mix_text(hash, isa);
  std::vector<fs::path> files;
  std::error_code ignored;
  if (path.empty()) {  // a model in memory
    for (const Weight& w : options.weights->model->weights)
      mix_text(hash,
               {reinterpret_cast<const char*>(w.data.get()), std::min(w.bytes(), std::size_t{1} << 16)});
    return "rapt-" + hash_text(hash);
  }
  if (fs::is_directory(path, ignored)) {
    for (const auto& entry : fs::directory_iterator(path, ignored))
      if (entry.is_regular_file(ignored)) files.push_back(entry.path());
    std::sort(files.begin(), files.end());
  } else {
    files.emplace_back(path);
  }
  for (const fs::path& f : files) {
    std::ifstream in(f, std::ios::binary);
    std::string part(1 << 16, '\0');
    in.read(part.data(), static_cast<std::streamsize>(part.size()));
    mix_text(hash, std::string_view(part).substr(0, static_cast<std::size_t>(in.gcount())));
    const auto size = fs::file_size(f, ignored);
    hash = mix_key(hash, size);
    if (size > part.size()) {
      in.clear();
      in.seekg(-static_cast<std::streamoff>(part.size()), std::ios::end);
      in.read(part.data(), static_cast<std::streamsize>(part.size()));
      mix_text(hash, part);
    }
  }
  return "rapt-" + hash_text(hash);
}

// No id that ends an answer before so many tokens are there.
TokenMask not_before(Dim least, std::vector<std::int32_t> stops) {
  return [least, stops = std::move(stops)](std::span<const std::int32_t> answer,
                                           std::span<std::uint64_t> allowed) {
    if (static_cast<Dim>(answer.size()) >= least) return;
    for (const std::int32_t id : stops)
      allowed[static_cast<std::size_t>(id) / 64] &=
          ~(std::uint64_t{1} << (static_cast<std::size_t>(id) % 64));
  };
}

// Seconds since 1970; now where there is no file.
std::int64_t modified_at(const std::string& path) {
  std::error_code error;
  const auto at = fs::last_write_time(path, error);
  const auto moment =
      error || path.empty() ? std::chrono::system_clock::now() : std::chrono::file_clock::to_sys(at);
  return std::chrono::duration_cast<std::chrono::seconds>(moment.time_since_epoch()).count();
}

}  // namespace

OllamaModel ollama_model(const ServedModel& m) {
  OllamaModel o{.name = m.name,
                .family = m.checkpoint.family.empty() ? "rapt" : m.checkpoint.family,
                .format = m.checkpoint.format == "folder" ? "safetensors" : m.checkpoint.format,
                .chat_template = m.template_source,
                .modified = m.modified,
                .bytes = m.card.bytes,
                .parameters = m.card.parameters,
                .context = m.card.context,
                .width = m.card.width,
                .layers = m.card.layers,
                .heads = m.card.heads,
                .vocabulary = m.card.vocabulary,
                .sampling = m.read.sampling};
  for (const std::byte b : sha256(m.fingerprint)) {
    constexpr char kHex[] = "0123456789abcdef";
    o.digest += kHex[std::to_integer<int>(b) >> 4];
    o.digest += kHex[std::to_integer<int>(b) & 15];
  }
  if (const auto& decoder = m.checkpoint.model->decoder)
    for (const Layer& layer : decoder->layers)
      for (const Part& p : layer.parts)
        if (const Attention* a = p.attention(); a && !a->spec.cross)
          o.kv_heads = std::max<Dim>(o.kv_heads, a->spec.kv_heads);
  std::map<DType, std::size_t> types;  // the one that most bytes have
  for (const Weight& w : m.checkpoint.model->weights) types[w.format] += w.bytes();
  const auto most = std::max_element(types.begin(), types.end(),
                                     [](const auto& a, const auto& b) { return a.second < b.second; });
  if (most != types.end())
    for (const char c : std::string_view(name_of(most->first)))
      o.type += static_cast<char>(c >= 'a' && c <= 'z' ? c - 32 : c);
  if (m.writes()) o.capabilities.emplace_back("completion");
  if (m.embeds()) o.capabilities.emplace_back("embedding");
  if (m.answers && m.answers->knows_calls()) o.capabilities.emplace_back("tools");
  if (m.answers && m.answers->knows_thoughts()) o.capabilities.emplace_back("thinking");
  return o;
}

std::string name_of_file(const std::string& path) {
  fs::path p(path);
  if (p.filename().empty()) p = p.parent_path();
  return p.extension() == ".gguf" || p.extension() == ".bin" ? p.stem().string() : p.filename().string();
}

std::unique_ptr<ServedModel> serve_model(Device& device, const ModelOptions& options,
                                         const std::string& program,
                                         const std::function<void(std::uint64_t, std::uint64_t)>& progress) {
  const std::string path = options.weights && options.path.empty() ? "" : find_model(options.path);
  std::shared_ptr<const Checkpoint> weights = options.weights;
  if (!weights) {
    LoadOptions load;
    load.real = device.real;
    load.device = &device;
    load.progress = progress;
    weights = std::make_shared<const Checkpoint>(open_checkpoint(path, load));
  }
  auto m = std::make_unique<ServedModel>(std::move(weights));
  m->device = &device;
  const Recipe& r = m->recipe();
  if (r.embed.patches) fail(path, " reads pictures; the server has no way to send it one yet");
  tokenizer_of(m->checkpoint);
  m->name = !options.name.empty() ? options.name : path.empty() ? "model" : name_of_file(path);
  m->template_source = options.chat_template.empty() ? m->checkpoint.chat_template : options.chat_template;
  if (!m->template_source.empty())
    m->chat.emplace(m->template_source,
                    options.chat_template.empty() ? concat(path, ": chat template") : "--chat-template");
  std::uint64_t hash = 0;
  mix_text(hash, m->template_source);
  m->template_hash = hash_text(hash);
  m->fingerprint = fingerprint_of(program, device, options, path);

  Engine::Options engine;
  engine.cache = options.cache;
  engine.context = options.context;
  engine.budget = options.budget;
  engine.step_seconds = options.step_seconds;
  engine.prefixes = options.prefixes;
  engine.speculate = options.speculate;
  if (options.speculate == Speculate::draft) {
    m->draft = std::make_shared<const Checkpoint>(
        open_checkpoint(find_model(options.draft), {.real = device.real, .device = &device}));
    engine.draft = m->draft.get();
  }
  m->engine = std::make_unique<Engine>(device, m->checkpoint, engine);
  if (m->writes() && !m->translates())
    m->answers.emplace(m->chat ? &*m->chat : nullptr, m->checkpoint.tokenizer, m->engine->stops());
  if (m->writes() && !m->translates()) m->speed = measure_speed(*m->engine);
  // More answers side by side than four times the useful batch only make each of them slower.
  m->rows = options.rows > 0 ? options.rows : std::clamp<Dim>(4 * m->speed.useful_rows, 8, 64);
  m->engine->limit_rows(m->rows);

  m->modified = modified_at(path);
  m->read.vocabulary = r.vocab;
  m->read.min_tokens = m->read.stop_token_ids = true;
  if (m->translates()) m->read.sampling.temperature = 0;  // a translation is not drawn unless asked for
  m->card = {.id = m->name,
             .root = m->name,
             .created = std::chrono::duration_cast<std::chrono::seconds>(
                            std::chrono::system_clock::now().time_since_epoch())
                            .count(),
             .context = m->engine->context(),
             .context_trained = r.context,
             .vocabulary = r.vocab,
             .width = r.width,
             .parameters = m->checkpoint.model->parameters(),
             .bytes = static_cast<Dim>(m->checkpoint.file_bytes),
             .cache_type = m->writes() ? std::string(name_of(options.cache)) : ""};
  if (const auto& decoder = m->checkpoint.model->decoder) {
    m->card.layers = static_cast<Dim>(decoder->layers.size());
    for (const Layer& layer : decoder->layers) {
      Dim heads = 0;
      for (const Part& p : layer.parts)
        if (const Attention* a = p.attention(); a && !a->spec.cross) heads += a->spec.heads;
      m->card.heads = std::max(m->card.heads, heads);
    }
  }
  if (m->translates()) m->card.tasks = {"translation", "chat"};
  else if (m->classifies()) m->card.tasks = {"classification"};
  else if (m->writes()) m->card.tasks = {"chat", "completion", "embedding"};
  else m->card.tasks = {"embedding"};
  return m;
}

void add_adapter(ServedModel& model, const std::string& name, const std::string& path) {
  NamedAdapter a{
      .name = name, .fingerprint = {}, .use = load_adapter_use(path, model.checkpoint), .card = model.card};
  a.fingerprint = concat(model.fingerprint, "-", hash_text(a.use.adapter->hash[0]));
  if (a.use.scale != 1) a.fingerprint += concat("-", shortest(static_cast<double>(a.use.scale)));
  a.card.id = name;
  a.card.parent = model.name;
  model.adapters.push_back(std::move(a));
}

// ------------------------------------------------------------------------------------------------ prompts
std::vector<ChatPiece> ServedModel::render(const CompletionRequest& asked) const {
  if (!chat || translates()) {
    std::string text;
    const Json messages = answers ? answers->messages(asked) : asked.messages;
    for (const Json& message : messages.array()) {
      const JsonText content = message.find("content")->string();
      if (translates()) text = std::string(content);  // the last one is what is translated
      else text += (text.empty() ? "" : "\n") + std::string(content);
    }
    return {{std::move(text), false}};
  }
  ChatOptions o = chat_options(*checkpoint.tokenizer);
  o.add_generation_prompt = asked.add_generation_prompt && !asked.continue_final;
  o.variables = answers ? answers->variables(asked) : asked.variables;
  std::vector<ChatPiece> pieces = chat->render(answers ? answers->messages(asked) : asked.messages, o);
  if (!asked.continue_final) return pieces;
  return cut_after_final(std::move(pieces), asked.messages.array().back().find("content")->string());
}

std::string ServedModel::chat_text(const CompletionRequest& asked) const {
  std::string out;
  for (const ChatPiece& p : render(asked)) out += p.text;
  return out;
}

std::vector<std::int32_t> ServedModel::chat_ids(const CompletionRequest& asked) const {
  const Tokenizer& t = *checkpoint.tokenizer;
  if (translates()) return source_ids(t, chat_text(asked));
  if (!chat) return text_ids(t, chat_text(asked));
  return rapt::chat_ids(t, render(asked));
}

std::vector<std::int32_t> ServedModel::chat_prompt(CompletionRequest& asked) const {
  const std::vector<ChatPiece> pieces = render(asked);
  std::string text;
  for (const ChatPiece& p : pieces) text += p.text;
  if (answers) answers->set_form(asked, text);
  const Tokenizer& t = *checkpoint.tokenizer;
  return translates() ? source_ids(t, text) : chat ? rapt::chat_ids(t, pieces) : text_ids(t, text);
}

std::vector<std::int32_t> ServedModel::prompt_ids(const TextOrIds& prompt, bool add_special) const {
  if (prompt.is_ids) return prompt.ids;
  const Tokenizer& t = *checkpoint.tokenizer;
  if (translates()) return source_ids(t, prompt.text);
  return add_special ? text_ids(t, prompt.text) : t.encode(prompt.text);
}

std::vector<Edit> read_edits(const std::vector<Json>& list, const Model& model, std::string_view field) {
  std::vector<Edit> edits;
  try {
    for (const Json& e : list) edits.push_back(e.is_string() ? parse_edit(e.string()) : read_edit(e));
    if (!edits.empty() && needs_whole(model, edits))
      throw ApiError(
          400, "invalid_value",
          concat(field,
                 ": one of them needs the whole text at once (a mean over it, positions from its end, a "
                 "tensor for all tokens), and an answer is written token by token; name positions from the "
                 "start"),
          field);
  } catch (const Error& e) {
    throw ApiError(400, "invalid_value", concat(field, ": ", e.what()), field);
  }
  return edits;
}

std::shared_ptr<const Constraint> ServedModel::constraint(const CompletionRequest& asked) {
  if (answers) return answers->constraint(asked);
  if (asked.tools.active() || asked.format.kind != AnswerFormat::Kind::text)
    throw ApiError(
        400, "unsupported_parameter",
        concat("model '", name, "' translates; it calls no functions, and its answers have no form"),
        asked.tools.active() ? "tools" : asked.format.path);
  return nullptr;
}

void ServedModel::end_with_context(Request& request, Dim then) const {
  Dim& limit = request.generate.max_tokens;
  if (limit == 0 || request.stream.window > 0 || translates() || engine->context() == then) return;
  const Dim rest = std::max<Dim>(1, then - static_cast<Dim>(request.tokens.size()));
  limit = limit < 0 ? rest : std::min(limit, rest);
}

bool ServedModel::fits(const std::vector<std::vector<std::int32_t>>& prompts) const {
  return std::all_of(prompts.begin(), prompts.end(), [&](const auto& ids) {
    return std::all_of(ids.begin(), ids.end(),
                       [&](std::int32_t id) { return id >= 0 && id < recipe().vocab; });
  });
}

void ServedModel::set_form(CompletionRequest& asked, const std::vector<std::int32_t>& prompt) const {
  if (answers) answers->set_form(asked, checkpoint.tokenizer->decode(prompt, true));
}

Request ServedModel::request(const CompletionRequest& asked, const std::vector<std::int32_t>& prompt,
                             std::shared_ptr<const Constraint> constraint) const {
  Request r;
  (translates() ? r.source : r.tokens) = prompt;
  r.generate = asked.generate;
  r.generate.stop_ids = asked.stop_token_ids;
  if (asked.form) r.generate.shown_ids = answers->shown_ids();
  r.constraint = std::move(constraint);
  if (asked.penalties_answer_only)
    r.generate.sampler.answer_begins = translates() ? 0 : static_cast<Dim>(prompt.size());
  if (asked.min_tokens > 0 && !r.constraint) {  // which knows of it
    std::vector<std::int32_t> stops = engine->stops();
    stops.insert(stops.end(), asked.stop_token_ids.begin(), asked.stop_token_ids.end());
    r.mask = not_before(asked.min_tokens, std::move(stops));
  }
  r.stream = asked.endless;
  r.edits = asked.edits_text;
  r.prompt_logprobs = asked.prompt_logprobs;
  return r;
}

}  // namespace rapt::server
