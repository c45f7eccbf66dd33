// SPDX-License-Identifier: Apache-2.0
// Values, places and errors against ones written by hand, memory against its bound; text.h and checked.h.
#include "rapt/base/json.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "rapt/base/checked.h"
#include "rapt/base/rng.h"
#include "rapt/base/text.h"

namespace rapt {
namespace {

std::string error_of(std::string_view text) {
  try {
    parse_json(text, "t");
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

TEST(Json, ReadsValuesWithTheirPlaces) {
  const Json j = parse_json("{ \"a\": [1, -2.5, true, null],\n  \"é\": \"x\\n\\u00e9\\ud83d\\ude00\" }");
  ASSERT_TRUE(j.is_object());
  const Json& a = *j.find("a");
  EXPECT_EQ(a.array().size(), 4u);
  EXPECT_EQ(a.array()[0].integer(), 1);
  EXPECT_EQ(a.array()[1].number(), -2.5);
  EXPECT_TRUE(a.array()[2].boolean());
  EXPECT_TRUE(a.array()[3].is_null());
  EXPECT_EQ(a.array()[1].line, 1);
  EXPECT_EQ(a.array()[1].column, 12);
  const Json& s = *j.find("é");
  EXPECT_EQ(s.string(), "x\né😀");
  EXPECT_EQ(s.line, 2);
  EXPECT_EQ(s.column, 8);  // characters, not bytes
  EXPECT_EQ(j.find("b"), nullptr);
  EXPECT_EQ(j.object()[0].key, "a");  // order is kept
}

TEST(Json, KeepsIntegersExact) {
  for (const std::int64_t n :
       {std::int64_t{0}, std::int64_t{-1}, std::int64_t{9007199254740993},
        std::numeric_limits<std::int64_t>::max(), std::numeric_limits<std::int64_t>::min()}) {
    const Json j = parse_json(std::to_string(n));
    EXPECT_EQ(j.integer(), n);
    EXPECT_EQ(j.dump(0), std::to_string(n));
  }
  EXPECT_TRUE(parse_json("1e3").is_integer());
  EXPECT_EQ(parse_json("1e3").integer(), 1000);
  EXPECT_FALSE(parse_json("1.5").is_integer());
  EXPECT_FALSE(parse_json("9223372036854775808").is_integer());  // beyond 64 bits: a double
  EXPECT_EQ(parse_json("9223372036854775808").number(), 9223372036854775808.0);
  EXPECT_TRUE(std::signbit(parse_json("-0").number()));
}

TEST(Json, DoublesReadBackAsTheSameBits) {
  for (std::uint64_t i = 0; i < 20000; ++i) {
    const Random4 r = philox(1, i);
    std::uint64_t bits = std::uint64_t{r[0]} << 32 | r[1];
    double x;
    std::memcpy(&x, &bits, sizeof x);
    if (!std::isnormal(x)) continue;  // a device on this thread flushes denormals
    const double y = parse_json(Json(x).dump()).number();
    ASSERT_EQ(std::memcmp(&x, &y, sizeof x), 0) << Json(x).dump();
  }
  EXPECT_EQ(Json(1e-6).dump(), "1e-6");
  EXPECT_EQ(Json(0.1).dump(), "0.1");
  EXPECT_EQ(Json(500000.0).dump(), "500000");
  EXPECT_EQ(Json(1e20).dump(), "1e20");
  EXPECT_EQ(Json(1.5e-300).dump(), "1.5e-300");
  EXPECT_THROW(Json(std::nan("")).dump(), Error);
  EXPECT_THROW(Json(HUGE_VAL).dump(), Error);
}

TEST(Json, ErrorsSayWhere) {
  const std::vector<std::pair<std::string_view, std::string_view>> cases = {
      {"", "t:1:1: expected a value, found the end of the text"},
      {"{\n  \"a\" 1}", "t:2:7: expected ':'"},
      {"{\"a\": 1,}", "a comma before '}'"},
      {"[1, 2,]", "a comma before ']'"},
      {"[1 2]", "t:1:4: expected ',' or ']', found '2'"},
      {"{a: 1}", "expected a key in double quotes"},
      {"{\"a\": 1, \"b\": 2, \"a\": 3}", "t:1:18: the key \"a\" stands twice"},
      {"nul", "a word that is none"},
      {"truee", "text after the end"},
      {"1 1", "text after the end"},
      {"01", "does not begin with 0"},
      {"1.", "expected a digit after '.'"},
      {".5", "expected a value"},
      {"+1", "expected a value"},
      {"-", "expected a digit after '-'"},
      {"1e", "expected a digit in the exponent"},
      {"1e999", "beyond the range"},
      {"NaN", "expected a value"},
      {"\"abc", "without its closing quote"},
      {"\"a\nb\"", "control character 10"},
      {"\"\\x\"", "unknown escape"},
      {"\"\\", "unknown escape"},
      {"\"\\u12g4\"", "four hexadecimal digits"},
      {"\"\\ud800\"", "surrogate"},
      {"\"\\ud800\\u0041\"", "surrogate"},
      {"\"\\udc00\"", "surrogate"},
      {"\"\xff\"", "not UTF-8"},
      {"\"\xc0\xaf\"", "not UTF-8"},          // longer than needed
      {"\"\xed\xa0\x80\"", "not UTF-8"},      // a surrogate
      {"\"\xf4\x90\x80\x80\"", "not UTF-8"},  // beyond the last character
      {"\"\xe2\x82", "not UTF-8"},
      {"\xe2\x82\xac", "not ASCII"},
  };
  for (const auto& [text, message] : cases)
    EXPECT_NE(error_of(text).find(message), std::string::npos) << text << " gave: " << error_of(text);
  const std::string deep(100000, '[');
  EXPECT_NE(error_of(deep).find("nested deeper than 64"), std::string::npos);
  std::string just_right(64, '[');
  just_right += std::string(64, ']');
  EXPECT_EQ(error_of(just_right), "");
}

TEST(Json, WritesWhatItReads) {
  const char* text =
      R"({"a": [1, 2.5, "x\"\\\n", {"b": null}], "empty": {}, "none": [], "long": [)"
      R"("0123456789012345678901234567890123456789", "0123456789012345678901234567890123456789", "0123456789012345678901234567890123456789"]})";
  const Json j = parse_json(text);
  EXPECT_EQ(parse_json(j.dump(2)), j);
  EXPECT_EQ(parse_json(j.dump(0)), j);
  EXPECT_EQ(j.dump(0).find('\n'), std::string::npos);
  EXPECT_EQ(parse_json("\xEF\xBB\xBF{}"), Json(Json::Object{}));  // a byte order mark
  EXPECT_EQ(Json("\x01\x7f").dump(), "\"\\u0001\\u007f\"");
  Json made;
  made.set("x", 1);
  made.set("y", 2);
  made.set("x", 3);
  EXPECT_EQ(made.dump(0), R"({"x": 3, "y": 2})");
  EXPECT_THROW(made.string(), Error);
}

TEST(Text, NearestName) {
  const std::vector<std::string> names{"heads", "kv_heads", "head_dim", "window"};
  EXPECT_EQ(nearest("head", names), "heads");
  EXPECT_EQ(nearest("widnow", names), "window");
  EXPECT_EQ(nearest("KV_HEADS", names), "kv_heads");
  EXPECT_EQ(nearest("x", {}), "");
  EXPECT_EQ(edit_distance("widnow", "window"), 1);  // a swap counts once
  EXPECT_EQ(edit_distance("", "abc"), 3);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3);
  EXPECT_EQ(name_hint("haeds", names), "did you mean 'heads'?");
  EXPECT_EQ(name_hint("colour", names), "known: heads, kv_heads, head_dim, window");
  EXPECT_EQ(name_hint("win", names), "did you mean 'window'?");
  nearest(std::string(100000, 'a'), names);  // a hostile key costs little
}

TEST(Text, Numbers) {
  EXPECT_EQ(with_commas(0), "0");
  EXPECT_EQ(with_commas(999), "999");
  EXPECT_EQ(with_commas(1234567), "1,234,567");
  EXPECT_EQ(with_commas(-1000), "-1,000");
  EXPECT_EQ(short_count(999), "999");
  EXPECT_EQ(short_count(1000), "1.00 K");
  EXPECT_EQ(short_count(999999), "1.00 M");
  EXPECT_EQ(short_count(124439808), "124 M");
  EXPECT_EQ(short_count(8030261248.0), "8.03 B");
  EXPECT_EQ(byte_count(512), "512 B");
  EXPECT_EQ(byte_count(65536), "64 KiB");
  EXPECT_EQ(byte_count(1536), "1.5 KiB");
  EXPECT_EQ(counted(1, "token"), "1 token");
  EXPECT_EQ(counted(1234, "token"), "1,234 tokens");
  EXPECT_EQ(padded("é", 3), "é  ");
}

TEST(Checked, RefusesWhatWouldWrap) {
  EXPECT_EQ(checked_mul(1 << 20, 1 << 20, "size"), Dim{1} << 40);
  EXPECT_THROW(checked_mul(Dim{1} << 40, Dim{1} << 40, "size"), Error);
  EXPECT_THROW(checked_add(std::numeric_limits<Dim>::max(), 1, "size"), Error);
}

// What a text takes is known before its values are made: 16 MiB and four times the text, or it is refused.
TEST(Json, MemoryIsBounded) {
  const auto most = [](const std::string& text) { return Json::kSpare + Json::kTimes * text.size(); };
  const auto repeated = [](std::string_view one, std::size_t n, char open, char close) {
    std::string text(1, open);
    for (std::size_t i = 0; i < n; ++i) text.append(i ? "," : "").append(one);
    return text + close;
  };
  for (const char* one :
       {"0", "[]", "{}", "[0]", "\"\"", "[[[]]]", "{\"a\":1}", "\"12345678\"", "\"\\u0041234567\""}) {
    const std::string few = repeated(one, 2000, '[', ']'), many = repeated(one, 300000, '[', ']');
    EXPECT_LE(parse_json(few).memory(), most(few)) << one;
    try {
      EXPECT_LE(parse_json(many, "t").memory(), most(many)) << one;
    } catch (const Error& e) {
      EXPECT_TRUE(std::string(e.what()).starts_with("t: the values of this text would take more than"))
          << e.what();
    }
  }
  EXPECT_TRUE(error_of(repeated("0", 3000000, '[', ']'))
                  .starts_with("t: the values of this text would take more than"));
  EXPECT_TRUE(error_of(repeated("[[]]", 600000, '[', ']'))
                  .starts_with("t: the values of this text would take more than"));
  std::string keys = "{";
  for (int i = 0; i < 200000; ++i) keys.append(i ? ",\"" : "\"").append(std::to_string(i)) += "\":0";
  EXPECT_LE(parse_json(keys += "}").memory(), most(keys));
  // Counts that a text only pretends to have.
  for (const std::string& bad : {"{" + std::string(1 << 20, ':'), "[" + std::string(1 << 20, ','),
                                 "{\"a\"" + std::string(1 << 20, ':')})
    EXPECT_NE(error_of(bad), "");
}

// The largest vocabularies there are, written as tightly as possible: tokens of a few letters, merges
// as pairs.
TEST(Json, LargeVocabulariesAreRead) {
  std::string text = "{\"model\":{\"vocab\":{";
  const auto word = [](int i) {  // Ġ and one to four letters
    std::string s = "\xC4\xA0";
    for (; i > 0; i /= 26) s += static_cast<char>('a' + i % 26);
    return s;
  };
  for (int i = 0; i < 260000; ++i)
    text.append(i ? ",\"" : "\"").append(word(i)).append("\":") += std::to_string(i);
  text += "},\"merges\":[";
  for (int i = 0; i < 500000; ++i)
    text.append(i ? ",[\"" : "[\"").append(word(i % 700)).append(i % 26 < 13 ? "\",\"e\"]" : "\",\"ing\"]");
  text += "]}}";
  const Json j = parse_json(text);
  EXPECT_LE(j.memory(), Json::kSpare + Json::kTimes * text.size());
  const Json& vocab = *j.find("model")->find("vocab");
  ASSERT_EQ(vocab.object().size(), 260000u);
  for (int i = 0; i < 260000; ++i) {
    const Json* id = vocab.find(word(i));
    ASSERT_TRUE(id && id->integer() == i) << i;
  }
  EXPECT_EQ(vocab.find("none"), nullptr);
  EXPECT_EQ(j.find("model")->find("merges")->array()[499999].array()[0].string(), word(499999 % 700));
}

// Every key is found at once, however many there are; the first of two that somebody made is the one.
TEST(Json, ManyKeysHaveAnIndex) {
  Json j;
  for (int i = 0; i < 200000; ++i) {
    const std::string key = concat("k", i);
    ASSERT_EQ(j.find(key), nullptr);
    j.set(key, i);
  }
  for (int i = 0; i < 200000; i += 7) j.set(concat("k", i), -i);
  const Json copy = j;
  j = Json();
  ASSERT_EQ(copy.object().size(), 200000u);
  for (int i = 0; i < 200000; ++i) ASSERT_EQ(copy.find(concat("k", i))->integer(), i % 7 == 0 ? -i : i);
  EXPECT_EQ(copy.object()[3].key, "k3");
  Json::Object twice;
  for (int i = 0; i < 40; ++i) twice.push_back({concat("k", i % 20), i});
  EXPECT_EQ(twice.size(), 40u);
  EXPECT_EQ(twice.find("k19")->integer(), 19);
  std::string text = "{";
  for (int i = 0; i < 40; ++i) text += concat(i ? ",\n" : "", "\"k", i == 33 ? 5 : i, "\": 1");
  EXPECT_EQ(error_of(text + "}"), "t:34:1: the key \"k5\" stands twice in one object; keep one of them");
}

TEST(Json, StringsOfEveryLength) {
  Json::Array all;
  for (std::size_t n = 0; n < 40; ++n) all.push_back(std::string(n, static_cast<char>('a' + n % 26)));
  const Json a = all, b = parse_json(a.dump(0));
  EXPECT_EQ(a, b);
  for (std::size_t n = 0; n < 40; ++n)
    EXPECT_EQ(b.array()[n].string(), std::string(n, static_cast<char>('a' + n % 26)));
  Json c = b;
  c = c.array()[20];  // out of itself
  EXPECT_EQ(c.string(), std::string(20, 'u'));
  EXPECT_NE(Json("a"), Json("b"));
  EXPECT_NE(Json("12345678"), Json("1234567"));
}

TEST(Json, APointerIsNoBoolean) {
  static_assert(!std::is_constructible_v<Json, int*> && !std::is_constructible_v<Json, const void*>);
  static_assert(!std::is_constructible_v<Json, Json*>);
  EXPECT_TRUE(Json(true).is_bool());
  EXPECT_TRUE(Json("text").is_string());
}

}  // namespace
}  // namespace rapt
