// SPDX-License-Identifier: Apache-2.0
// A search in halves finds the first turn to keep. A full context is emptied to half: more turns then fit.
#include "rapt/use/conversation.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "rapt/text/channels.h"
#include "rapt/text/prompt.h"
#include "rapt/text/words.h"

namespace rapt {

std::optional<ChatTemplate> open_chat_template(const Checkpoint& checkpoint) {
  if (checkpoint.chat_template.empty()) return std::nullopt;
  return ChatTemplate(checkpoint.chat_template, concat(checkpoint.path, ": chat template"));
}

std::vector<std::int32_t> prompt_ids(const Checkpoint& checkpoint, std::string_view text, bool special) {
  const Tokenizer& t = tokenizer_of(checkpoint);
  const Recipe& r = checkpoint.model->recipe;
  if (r.encoder && r.decoder) return t.frame(t.encode(text, special));  // a source text ends
  return text_ids(t, text, special);
}

std::size_t first_turn(std::size_t turns, Dim most, Dim half, const std::function<Dim(std::size_t)>& tokens) {
  if (tokens(0) <= most) return 0;
  // Leaving more out never takes more tokens; all of them are left out at last.
  std::size_t low = 1, high = turns;
  while (low < high) {
    const std::size_t middle = (low + high) / 2;
    if (tokens(middle) <= half) high = middle;
    else low = middle + 1;
  }
  return std::min(low, turns);
}

Conversation::Prompt Conversation::prompt(const std::string& user, Dim context, Dim most,
                                          std::span<const std::int32_t> answered) {
  // An answer should find room: a quarter of the context, or as much as was asked for.
  const Dim room = std::min(most >= 0 ? most + 1 : context / 4, context / 2);
  const Dim fits = context > 0 ? context - room : std::numeric_limits<Dim>::max(), half = context / 2;
  const Tokenizer& t = tokenizer_of(checkpoint_);
  Prompt out;
  if (template_) {
    auto ids = [&](std::size_t left_out) {
      std::vector<ChatMessage> all;
      if (!system.empty()) all.push_back({"system", system});
      for (std::size_t i = first_ + left_out; i < turns_.size(); ++i) {
        all.push_back({"user", turns_[i].user});
        all.push_back({"assistant", turns_[i].answer});
      }
      all.push_back({"user", user});
      std::vector<std::int32_t> list = chat_ids(t, *template_, all);
      list.insert(list.end(), answered.begin(), answered.end());
      return list;
    };
    // The last prompt that was counted is most often the one that is read: a long text is not made into
    // ids twice.
    std::size_t made = 0;
    auto tokens = [&](std::size_t left_out) {
      out.ids = ids(made = left_out);
      return static_cast<Dim>(out.ids.size());
    };
    out.left_out = first_turn(turns_.size() - first_, fits, half, tokens);
    if (made != out.left_out) tokens(out.left_out);
    first_ += out.left_out;
    return out;
  }
  out.ids = text_;
  const std::vector<std::int32_t> more =
      text_.empty() ? prompt_ids(checkpoint_, user, special) : t.encode(user, special);
  out.ids.insert(out.ids.end(), more.begin(), more.end());
  out.ids.insert(out.ids.end(), answered.begin(), answered.end());
  // The oldest tokens but the first, which may begin every text.
  if (static_cast<Dim>(out.ids.size()) > fits) {
    const std::size_t kept = t.add_bos && t.bos >= 0 ? 1 : 0, fresh = more.size() + answered.size();
    const std::size_t old = out.ids.size() - fresh,
                      wanted = static_cast<std::size_t>(std::max<Dim>(0, half - static_cast<Dim>(fresh)));
    if (old > wanted + kept) out.left_out = old - std::max(wanted, kept);
    out.ids.erase(out.ids.begin() + static_cast<std::ptrdiff_t>(std::min(kept, old)),
                  out.ids.begin() + static_cast<std::ptrdiff_t>(std::min(kept, old) + out.left_out));
  }
  return out;
}

void Conversation::add(const std::string& user, const Prompt& prompt, const Generated& answer) {
  const Tokenizer* tokenizer = template_ ? checkpoint_.tokenizer.get() : nullptr;
  turns_.push_back({user, tokenizer ? answer_text(*tokenizer, answer.ids, answer.text) : answer.text});
  if (template_) return;
  earlier_.push_back(text_);
  text_ = prompt.ids;
  text_.insert(text_.end(), answer.ids.begin(), answer.ids.end());
}

Generated Conversation::reply(Session& session, const std::string& user, const GenerateOptions& options,
                              Dim context, const ReplyHooks& hooks) {
  const Dim limit = options.max_tokens;
  GenerateOptions now = options;
  Prompt read = prompt(user, context, limit);
  Generated all;
  while (true) {
    if (read.left_out > 0 && hooks.on_left_out) hooks.on_left_out(read.left_out);
    Generated more =
        std::move(session.generate(read.ids, now, hooks.on_token, hooks.on_prompt, hooks.cancel).at(0));
    const bool nothing = more.ids.empty();
    all.ids.insert(all.ids.end(), more.ids.begin(), more.ids.end());
    all.tokens.insert(all.tokens.end(), std::make_move_iterator(more.tokens.begin()),
                      std::make_move_iterator(more.tokens.end()));
    all.text += more.text;
    all.finish = more.finish;
    all.score = more.score;
    const Dim done = static_cast<Dim>(all.ids.size());
    if (all.finish != Finish::length || (limit >= 0 && done >= limit) || context == 0 || nothing ||
        !template_)
      break;
    // The context is full in the middle of the answer.
    Prompt next = prompt(user, context, limit, all.ids);
    if (next.left_out == 0) break;
    read = std::move(next);
    if (limit >= 0) now.max_tokens = limit - done;
  }
  add(user, read, all);
  return all;
}

bool Conversation::undo() {
  if (turns_.empty()) return false;
  turns_.pop_back();
  first_ = std::min(first_, turns_.size());
  if (!earlier_.empty()) text_ = std::move(earlier_.back()), earlier_.pop_back();
  return true;
}

void Conversation::clear() {
  turns_.clear(), text_.clear(), earlier_.clear();
  first_ = 0;
}

Json Conversation::json() const {
  Json::Array messages;
  auto put = [&](const char* role, const std::string& text) {
    messages.push_back(Json::Object{{"role", role}, {"content", bytes_json(text)}});
  };
  if (!system.empty()) put("system", system);
  for (const Turn& t : turns_) put("user", t.user), put("assistant", t.answer);
  return messages;
}

void Conversation::load(const Json& messages) {
  std::vector<Turn> turns;
  auto text = [](const Json& m, const char* key) {
    const Json* value = m.is_object() ? m.find(key) : nullptr;
    if (!value || !value->is_string())
      fail("a message has no \"", key, "\"; wanted: [{\"role\": \"user\", \"content\": \"…\"}, …]");
    return value->string();
  };
  if (!messages.is_array())
    fail("this is no list of messages; wanted: [{\"role\": \"user\", \"content\": \"…\"}, …]");
  bool open = false;  // a message of the user waits for its answer
  for (const Json& m : messages.array()) {
    const std::string role = text(m, "role"), content = text(m, "content");
    if (role == "system") continue;  // that of this conversation stays
    if (role != (open ? "assistant" : "user"))
      fail("a message of '", role, "' where one of the ", open ? "assistant" : "user", " belongs");
    if (open) turns.back().answer = content;
    else turns.push_back({content, ""});
    open = !open;
  }
  if (open) turns.pop_back();
  if (!template_) fail("a model without a chat template has no messages to load");
  clear();
  turns_ = std::move(turns);
}

}  // namespace rapt
