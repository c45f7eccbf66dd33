// SPDX-License-Identifier: Apache-2.0
// What is said to people, in the language they read. The sentences are data, one file a language
// (rapt/report/words/en.json, zh.json): a tree whose leaves are sentences with places {0}, {1} … for values.
//
//   say("lab.gate.share", digits(x, 2))     →  lab: { gate: { share: "G1 leaves {0} of it." } }
//
// A Text is a string in English (JSON, logs and files have that), and knows how to say itself in the others.
#pragma once
#include <concepts>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "rapt/base/json.h"

namespace rapt {

enum class Language { en, zh };
inline constexpr Language kLanguages[] = {Language::en, Language::zh};
const char* language_name(Language language);  // "en", "zh"
// Of "zh", "zh_CN.UTF-8", "en-GB"; nothing where the name means none of ours ("C", "de_DE").
std::optional<Language> find_language(std::string_view name);

class Text : public std::string {
 public:
  Text() = default;
  // Words that are the same in every language: names, numbers, what a user wrote.
  Text(std::string plain) : std::string(std::move(plain)) {}
  Text(std::string_view plain) : std::string(plain) {}
  Text(const char* plain) : std::string(plain) {}

  std::string in(Language language) const;
  bool plain() const { return !sentence_; }
  // "words", or {"say": key, "with": [values]} (key "": sentences one after the other); and back.
  Json json() const;
  static Text of(const Json& json);

  // Would change the English words alone.
  Text& operator+=(std::string_view) = delete;
  Text& append(std::string_view) = delete;

 private:
  struct Sentence;
  friend Text say_with(std::string_view key, std::vector<Text> values);
  friend Text sentences(std::vector<Text> all);
  std::shared_ptr<const Sentence> sentence_;
};

// The sentence of that name; its values are texts themselves. A name that the dictionary does not have is
// said as it is: tests find those.
Text say_with(std::string_view key, std::vector<Text> values);

inline Text as_text(Text text) { return text; }
template <std::integral T>
Text as_text(T number) {
  return Text(std::to_string(number));
}
template <class... Values>
Text say(std::string_view key, Values&&... values) {
  return say_with(key, std::vector<Text>{as_text(std::forward<Values>(values))...});
}
// One after the other, as the language parts sentences; empty ones are left out.
Text sentences(std::vector<Text> all);
// "a, b and c".
Text listed(const std::vector<Text>& items);

// Every sentence of a language: name and template, in the file's order.
const std::vector<std::pair<std::string, std::string>>& dictionary(Language language);
// A part of a language's file as it stands there, for pages: "page". Fails where there is none.
const Json& dictionary_part(Language language, std::string_view name);
const Json* find_dictionary_part(Language language, std::string_view name);  // null where there is none

struct WordFile {  // of rapt/report/words, inside the program (cmake/assets.cmake)
  std::string_view name, text;
};
std::span<const WordFile> word_files();

}  // namespace rapt
