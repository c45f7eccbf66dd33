// SPDX-License-Identifier: Apache-2.0
// Sentences in two languages: what the dictionaries hold, what the sources ask of them, and how a text says
// itself.
#include "rapt/report/text.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <set>

#include "rapt/base/text.h"
#include "rapt/report/document_data.h"

namespace rapt {
namespace {

std::set<std::string> places(const std::string& form) {
  std::set<std::string> out;
  static const std::regex place(R"(\{(\w+)\})");
  for (std::sregex_iterator i(form.begin(), form.end(), place), end; i != end; ++i) out.insert((*i)[1]);
  return out;
}

std::map<std::string, std::string> all_of(Language l) {
  std::map<std::string, std::string> out;
  for (const auto& [name, form] : dictionary(l))
    EXPECT_TRUE(out.emplace(name, form).second) << name << " twice";
  return out;
}

bool chinese(const std::string& text) {
  for (std::size_t i = 0; i + 2 < text.size(); ++i)
    if (static_cast<unsigned char>(text[i]) >= 0xE4 && static_cast<unsigned char>(text[i]) <= 0xE9)
      return true;
  return false;
}

// Every sentence is there in both languages with the same places, and a sentence of several words that is
// not said in Chinese at all has been forgotten.
TEST(Dictionary, BothLanguagesSayTheSame) {
  const auto en = all_of(Language::en), zh = all_of(Language::zh);
  ASSERT_GT(en.size(), 100u);
  for (const auto& [name, form] : en) {
    const auto other = zh.find(name);
    ASSERT_NE(other, zh.end()) << name << " is missing in zh.json";
    EXPECT_EQ(places(form), places(other->second)) << name;
    EXPECT_FALSE(form.empty()) << name;
    static const std::regex words("[a-z]{3,} [a-z]{2,} [a-z]{2,}");
    if (std::regex_search(form, words) && !name.ends_with(".paper"))
      EXPECT_TRUE(chinese(other->second)) << name << ": " << other->second;
  }
  for (const auto& [name, form] : zh) EXPECT_TRUE(en.contains(name)) << name << " is missing in en.json";
}

// What the sources say is in the dictionary, with values for all of its places; what is in the dictionary is
// said somewhere.
TEST(Dictionary, SourcesAndDictionaryFit) {
  const auto en = all_of(Language::en);
  std::string sources;
  std::set<std::string> said;
  static const std::regex call(R"re(say\(\s*"([\w.@-]+)"\s*([,)]))re"),
      name(R"re("([a-z]+(?:\.[\w-]+)+)")re");
  for (const auto& entry :
       std::filesystem::recursive_directory_iterator(std::filesystem::path(RAPT_SOURCE_DIR) / "rapt")) {
    const std::string path = entry.path().string();
    if (!path.ends_with(".cc") && !path.ends_with(".h")) continue;
    if (path.ends_with("_test.cc") || path.ends_with("report/text.h")) continue;
    std::ifstream in(path);
    const std::string text((std::istreambuf_iterator<char>(in)), {});
    sources += text;
    for (std::sregex_iterator i(text.begin(), text.end(), call), end; i != end; ++i) {
      const std::string key = (*i)[1];
      EXPECT_TRUE(en.contains(key)) << path << " says " << key << ", which no dictionary has";
      if (en.contains(key) && (*i)[2] == ")")
        EXPECT_TRUE(places(en.at(key)).empty()) << key << " wants values";
    }
    for (std::sregex_iterator i(text.begin(), text.end(), name), end; i != end; ++i) said.insert((*i)[1]);
  }
  // Names that are put together: lab.NAME.question, guide.TOPIC.…, page.…
  static const std::regex made(R"(^(guide|page)\..*|^lab\.[\w@-]+\.(question|claim)$|^lab\.terms\..*)");
  for (const auto& [key, form] : en) {
    if (std::regex_match(key, made) || said.contains(key)) continue;
    // A stem that a source puts an end to: concat("lab.x.v.", …).
    bool stem = false;
    for (std::size_t dot = key.rfind('.'); dot != std::string::npos && !stem && dot > 0;
         dot = key.rfind('.', dot - 1))
      stem = sources.find(concat("\"", key.substr(0, dot + 1), "\"")) != std::string::npos;
    EXPECT_TRUE(stem) << key << " is said nowhere";
  }
}

TEST(Text, SaysItselfInBothLanguages) {
  const Text plain("G1"), one = say("lab.seed", 3), list = listed({"a", one, "c"});
  EXPECT_TRUE(plain.plain());
  EXPECT_EQ(plain.in(Language::zh), "G1");
  EXPECT_EQ(one, "seed 3");
  EXPECT_EQ(one.in(Language::zh), "种子 3");
  EXPECT_EQ(list, "a, seed 3 and c");
  EXPECT_EQ(list.in(Language::zh), "a、种子 3和c");
  const Text both = sentences({say("lab.alike_one", 1), {}, say("lab.alike_one", 2)});
  EXPECT_EQ(both, "Seed 1 says the same with other numbers. Seed 2 says the same with other numbers.");
  EXPECT_EQ(both.in(Language::zh), "种子 1 结论相同，只是数字不同。种子 2 结论相同，只是数字不同。");
  for (const Text& t : {plain, one, list, both}) {
    const Text again = Text::of(parse_json(t.json().dump()));
    EXPECT_EQ(again, t);
    EXPECT_EQ(again.in(Language::zh), t.in(Language::zh));
  }
  EXPECT_EQ(say("no.such", "x"), "no.such");
  // A value that looks like a place is a value.
  EXPECT_EQ(say("lab.named", "{1}", "{0}"), "{1}: {0}");
}

TEST(Text, LanguagesByTheirNames) {
  EXPECT_EQ(find_language("zh"), Language::zh);
  EXPECT_EQ(find_language("zh_CN.UTF-8"), Language::zh);
  EXPECT_EQ(find_language("zh-Hans"), Language::zh);
  EXPECT_EQ(find_language("en_GB"), Language::en);
  EXPECT_EQ(find_language("C.UTF-8"), std::nullopt);
  EXPECT_EQ(find_language("zhuyin"), std::nullopt);
  EXPECT_EQ(find_language(""), std::nullopt);
}

// A document kept as data comes back whole, and speaks the other language.
TEST(Text, DocumentsAreKeptInNoLanguage) {
  Document d{.name = "x", .title = say("lab.seed", 1)};
  d.parts.push_back(Words{say("lab.story", "s"), true});
  d.parts.push_back(Table{say("lab.measured"), {say("lab.what"), "b"}, {{say("lab.yes"), Cell(0.12345678)}}});
  d.parts.push_back(Chart{.title = say("lab.loss"),
                          .x_label = say("lab.step"),
                          .y_label = "y",
                          .curves = {{.name = say("lab.variant"), .x = {1, 2}, .y = {0.5, std::nan("")}}},
                          .log_y = true});
  d.parts.push_back(HeatMap{.title = say("lab.weight"),
                            .rows = {say("lab.query")},
                            .columns = {"k"},
                            .values = {-0.25},
                            .top = 2,
                            .scale = HeatMap::Scale::both_signs,
                            .row_name = say("lab.query"),
                            .cells = {"c"}});
  const Document again = document_from(parse_json(document_data(d).dump()));
  for (Language l : kLanguages) {
    EXPECT_EQ(document_text(again, false, 80, l), document_text(d, false, 80, l));
    EXPECT_EQ(document_markdown(again, l), document_markdown(d, l));
  }
  const std::string zh = document_text(d, false, 80, Language::zh);
  for (const char* word : {"种子 1", "常见说法", "测量值", "损失", "方案", "注意力权重"})
    EXPECT_NE(zh.find(word), std::string::npos) << word << "\n" << zh;
  EXPECT_EQ(document_json(d).dump().find("种子"), std::string::npos);
  const Document documents[] = {d};
  const std::string html = documents_html("t", documents);
  for (const char* word : {"种子 1", "seed 1", "show-zh", "lang=\"zh-Hans\""})
    EXPECT_NE(html.find(word), std::string::npos) << word;
  EXPECT_EQ(html.find("<script"), std::string::npos);
}

}  // namespace
}  // namespace rapt
