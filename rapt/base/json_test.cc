// SPDX-License-Identifier: Apache-2.0
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
  for (const std::int64_t n : {std::int64_t{0}, std::int64_t{-1}, std::int64_t{9007199254740993}, std::numeric_limits<std::int64_t>::max(),
                               std::numeric_limits<std::int64_t>::min()}) {
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

}  // namespace
}  // namespace rapt
