// SPDX-License-Identifier: Apache-2.0
// The dictionaries, and sentences put together from them.
#include "rapt/report/text.h"

#include <map>

#include "rapt/base/error.h"
#include "rapt/base/text.h"

namespace rapt {
namespace {

struct Dictionary {
  Json tree;
  std::vector<std::pair<std::string, std::string>> in_order;
  std::map<std::string, std::string, std::less<>> by_name;

  void take(const Json& node, const std::string& name) {
    if (node.is_string()) {
      in_order.emplace_back(name, node.string());
      by_name.emplace(name, node.string());
      return;
    }
    for (const Json::Member& m : node.object())
      take(m.value, name.empty() ? std::string(m.key) : concat(name, ".", m.key));
  }
};

const Dictionary& words_of(Language language) {
  static const std::vector<Dictionary> all = [] {
    std::vector<Dictionary> read(std::size(kLanguages));
    for (const WordFile& f : word_files())
      if (const auto l = find_language(f.name.substr(0, f.name.find('.')))) {
        Dictionary& d = read[static_cast<std::size_t>(*l)];
        d.tree = parse_json(f.text, f.name);
        d.take(d.tree, "");
      }
    return read;
  }();
  return all[static_cast<std::size_t>(language)];
}

// Values at their places.
std::string filled(std::string_view form, const std::vector<std::string>& values) {
  std::string out;
  for (std::size_t i = 0; i < form.size(); ++i) {
    const std::size_t end = form.find('}', i);
    std::size_t n = 0;
    bool place = form[i] == '{' && end != form.npos && end > i + 1;
    for (std::size_t j = i + 1; place && j < end; ++j) {
      place = form[j] >= '0' && form[j] <= '9';
      n = 10 * n + static_cast<std::size_t>(form[j] - '0');
    }
    if (!place || n >= values.size()) {
      out += form[i];
      continue;
    }
    out += values[n];
    i = end;
  }
  return out;
}

}  // namespace

struct Text::Sentence {
  std::string key;  // empty: the values one after the other
  std::vector<Text> values;
};

const char* language_name(Language language) { return language == Language::zh ? "zh" : "en"; }

std::optional<Language> find_language(std::string_view name) {
  const std::string_view stem = name.substr(0, name.find_first_of("_-.@"));
  for (Language l : kLanguages)
    if (stem == language_name(l)) return l;
  return std::nullopt;
}

std::string Text::in(Language language) const {
  if (!sentence_ || language == Language::en) return *this;
  std::vector<std::string> values;
  for (const Text& v : sentence_->values) values.push_back(v.in(language));
  if (sentence_->key.empty()) return join(values, "");  // 。 parts sentences, no space does
  const auto& words = words_of(language).by_name;
  const auto form = words.find(sentence_->key);
  return form == words.end() ? std::string(*this) : filled(form->second, values);
}

Text say_with(std::string_view key, std::vector<Text> values) {
  const auto& words = words_of(Language::en).by_name;
  const auto form = words.find(key);
  Text out(form == words.end()
               ? std::string(key)
               : filled(form->second, std::vector<std::string>(values.begin(), values.end())));
  out.sentence_ = std::make_shared<const Text::Sentence>(Text::Sentence{std::string(key), std::move(values)});
  return out;
}

Text sentences(std::vector<Text> all) {
  std::erase_if(all, [](const Text& t) { return t.empty(); });
  if (all.size() == 1) return std::move(all[0]);
  Text out(join(std::vector<std::string>(all.begin(), all.end()), " "));
  if (!all.empty())
    out.sentence_ = std::make_shared<const Text::Sentence>(Text::Sentence{"", std::move(all)});
  return out;
}

Text listed(const std::vector<Text>& items) {
  if (items.empty()) return {};
  Text out = items[0];
  for (std::size_t i = 1; i < items.size(); ++i)
    out = say(i + 1 < items.size() ? "list.more" : "list.last", out, items[i]);
  return out;
}

Json Text::json() const {
  if (!sentence_) return Json(std::string_view(*this));
  Json::Array values;
  for (const Text& v : sentence_->values) values.push_back(v.json());
  return Json::Object{{"say", sentence_->key}, {"with", std::move(values)}};
}

Text Text::of(const Json& json) {
  if (json.is_string()) return Text(std::string(json.string()));
  const Json *key = json.find("say"), *with = json.find("with");
  if (!key || !key->is_string() || !with || !with->is_array())
    fail("a text is words, or {\"say\": name, \"with\": [values]}; this is ", json.type_name());
  std::vector<Text> values;
  for (const Json& v : with->array()) values.push_back(of(v));
  return key->string().empty() ? sentences(std::move(values)) : say_with(key->string(), std::move(values));
}

const std::vector<std::pair<std::string, std::string>>& dictionary(Language language) {
  return words_of(language).in_order;
}

const Json* find_dictionary_part(Language language, std::string_view name) {
  return words_of(language).tree.find(name);
}

const Json& dictionary_part(Language language, std::string_view name) {
  if (const Json* part = find_dictionary_part(language, name)) return *part;
  fail("the words of ", language_name(language), " have no part '", name, "'");
}

}  // namespace rapt
