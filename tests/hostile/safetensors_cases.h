// SPDX-License-Identifier: Apache-2.0
// Wrong safetensors files: lengths, JSON, types, shapes, offsets.
#pragma once
#include "tests/hostile/cases.h"

namespace rapt::test {

inline std::vector<HostileCase> hostile_safetensors() {
  std::vector<HostileCase> all;
  auto add = [&](std::string name, std::string bytes, std::string words) {
    all.push_back({"safetensors: " + name, std::move(bytes), std::move(words)});
  };
  auto json = [&](std::string name, std::string header, std::string words, std::size_t data = 4) {
    add(std::move(name), safetensors(header, data), std::move(words));
  };
  const std::string good = entry("a", "F32", "[1]", "[0,4]");
  auto one = [&](std::string name, std::string tensor, std::string words, std::size_t data = 4) {
    json(std::move(name), "{\"t\":" + tensor + "}", std::move(words), data);
  };

  // The start.
  for (std::size_t n = 0; n < 8; ++n) add(concat("only ", n, " bytes"), std::string(n, '\2'), kIncomplete);
  for (const Foreign& f : foreign_starts()) add("really " + f.name, f.start, f.words);
  add("really GGUF", good_gguf().make(), "this is a GGUF file");
  add("header of 0 bytes", safetensors("", 4), "the shortest is {}");
  add("header of 1 byte", safetensors("{", 0), "the shortest is {}");
  for (const std::uint64_t n : {(64ull << 20) + 1, 1ull << 32, 1ull << 63, ~0ull})
    add(concat("header of ", n), safetensors("{}", 0, n), "are not read");
  add("header longer than the file", safetensors("{" + good + "}", 4, 1000), kIncomplete);
  add("header longer by one", safetensors("{}", 0, 3), kIncomplete);
  add("header shorter by one", safetensors("{" + good + "}", 4, good.size() + 1), "the end of the header");
  for (const char* start : {" {}", "\n{}", "[]", "\"x\"", "null", "12", "}{"})
    json(concat("begins with ", start), start, "must begin with '{'", 0);
  json("byte order mark", "\xEF\xBB\xBF{}", "must begin with '{'", 0);
  for (std::size_t i = 0; i < broken_utf8().size(); ++i)
    json(concat("not UTF-8 ", i), "{" + entry(broken_utf8()[i], "F32", "[1]", "[0,4]") + "}", "is not UTF-8");

  // JSON.
  json("text after the header", "{} x", "text after the header", 0);
  json("two headers", "{}{}", "text after the header", 0);
  json("zero byte after the header", std::string("{}\0", 3), "text after the header", 0);
  json("not closed, later", "{" + good, "found the end of the header");
  json("key without quotes", "{a:1}", "in double quotes");
  json("key in single quotes", "{'a':1}", "in double quotes");
  json("no colon", "{\"a\" {}}", "expected ':'");
  json("comma at the end", "{" + good + ",}", "in double quotes");
  json("comma at the start", "{," + good + "}", "in double quotes");
  json("two commas", "{" + good + ",,}", "in double quotes");
  json("no comma", "{" + good + " " + entry("b", "F32", "[1]", "[4,8]") + "}", "expected '}'");
  json("string not closed", "{\"abc", "without its closing quote");
  json("string ends with a backslash", "{\"abc\\\"", "without its closing quote");
  json("control character in a name", "{\"a\nb\":{}}", "control character 10");
  json("zero byte in a name", std::string("{\"a\0b\":{}}", 10), "control character 0");
  json("unknown escape", "{\"a\\q\":{}}", "unknown escape");
  json("escape cut", "{\"a\\u12\":{}}", "four hexadecimal digits");
  json("lone surrogate", "{\"a\\ud800\":{}}", "surrogate");
  json("second half first", "{\"a\\udc00\":{}}", "surrogate");
  for (const char* value : {"null", "1", "\"x\"", "[]", "true", "-1"})
    one(concat("tensor is ", value), value, "expected '{' around a tensor");
  json("comment", "{/* */" + good + "}", "in double quotes");
  json("deep", "{\"t\":" + std::string(10000, '{'), "in double quotes");
  json("deep lists", "{\"t\":{\"shape\":" + std::string(10000, '['), "expected a size");
  json("name twice", "{" + good + "," + good + "}", "tensor 'a' stands twice");
  json("name twice, once escaped", "{" + good + "," + entry("\\u0061", "F32", "[1]", "[4,8]") + "}",
       "tensor 'a' stands twice", 8);
  json("name empty", "{" + entry("", "F32", "[1]", "[0,4]") + "}", "without a name");
  json("name too long", "{" + entry(std::string(1025, 'n'), "F32", "[1]", "[0,4]") + "}",
       "name of 1025 bytes");

  // Metadata.
  json("metadata twice", "{\"__metadata__\":{},\"__metadata__\":{}}", "stands twice", 0);
  json("metadata key twice", "{\"__metadata__\":{\"a\":\"1\",\"a\":\"2\"}}",
       "'a' stands twice in __metadata__", 0);
  for (const char* value : {"1", "null", "{}", "[]", "true"})
    json(concat("metadata value ", value), concat("{\"__metadata__\":{\"a\":", value, "}}"),
         "expected a value of __metadata__", 0);
  for (const char* value : {"1", "null", "\"x\"", "[]"})
    json(concat("metadata is ", value), concat("{\"__metadata__\":", value, "}"), "around __metadata__", 0);

  // One tensor.
  one("no dtype", R"({"shape":[1],"data_offsets":[0,4]})", "lacks 'dtype'");
  one("no shape", R"({"dtype":"F32","data_offsets":[0,4]})", "lacks 'shape'");
  one("no data_offsets", R"({"dtype":"F32","shape":[1]})", "lacks 'data_offsets'");
  one("nothing", "{}", "lacks 'dtype'");
  one("dtype twice", R"({"dtype":"F32","dtype":"F32","shape":[1],"data_offsets":[0,4]})", "two of 'dtype'");
  one("shape twice", R"({"dtype":"F32","shape":[1],"shape":[1],"data_offsets":[0,4]})", "two of 'shape'");
  one("data_offsets twice", R"({"dtype":"F32","shape":[1],"data_offsets":[0,4],"data_offsets":[0,4]})",
      "two of 'data_offsets'");
  one("unknown key", R"({"dtype":"F32","shape":[1],"data_offsets":[0,4],"strides":[1]})",
      "has a key 'strides'");
  one("key of another case", R"({"Dtype":"F32","shape":[1],"data_offsets":[0,4]})", "has a key 'Dtype'");
  for (const char* type : {"U16", "U32", "U64", "F8_E4M3", "F8_E5M2", "F8_E8M0", "F4", "C64"})
    json(concat("type ", type), "{" + entry("t", type, "[1]", "[0,4]") + "}",
         concat("type ", type, " of tensor 't' is not supported yet"));
  for (const char* type : {"", "f32", "F33", "FLOAT", "Q4_0", "F32 "})
    json(concat("type '", type, "'"), "{" + entry("t", type, "[1]", "[0,4]") + "}", "is not known");
  one("dtype a number", R"({"dtype":1,"shape":[1],"data_offsets":[0,4]})", "the dtype in double quotes");
  auto shape = [&](std::string s, std::string words) {
    json("shape " + s, "{" + entry("t", "F32", s, "[0,4]") + "}", std::move(words));
  };
  shape("[-1]", "not negative");
  shape("[1.0]", "must be a whole number");
  shape("[1e0]", "must be a whole number");
  shape("[01]", "begins with 0");
  shape("[0]", "has a size of 0");
  shape("[0,1]", "has a size of 0");
  shape("[9223372036854775808]", "has a size of");
  shape("[18446744073709551615]", "has a size of");
  shape("[18446744073709551616]", "larger than any machine can count");
  shape("[99999999999999999999999999]", "larger than any machine can count");
  shape("[4294967296,4294967296]", "larger than any machine can count");
  shape("[3,6148914691236517206]", "larger than any machine can count");
  shape("[4611686018427387904]", "larger than any machine can count");
  shape("[1152921504606846976]", "data_offsets give it 4");
  shape("[1,1,1,1,1,1,1,1,1]", "more than 8 dimensions");
  shape("[\"1\"]", "expected a size");
  shape("[null]", "expected a size");
  shape("[[1]]", "expected a size");
  shape("[1,]", "expected a size");
  shape("[,1]", "expected a size");
  shape("[1 1]", "expected ']'");
  shape("1", "expected '['");
  shape("null", "expected '['");
  shape("{}", "expected '['");
  shape("[2]", "takes 8 bytes, data_offsets give it 4");
  shape("[NaN]", "expected a size");
  auto offsets = [&](std::string s, std::string words, std::size_t data = 4) {
    json("offsets " + s, "{" + entry("t", "F32", "[1]", s) + "}", std::move(words), data);
  };
  offsets("[]", "where the data begins");
  offsets("[0]", "expected ','");
  offsets("[0,4,8]", "expected ']'");
  offsets("[-4,0]", "not negative");
  offsets("[0,-4]", "not negative");
  offsets("[0,4.0]", "must be a whole number");
  offsets("[00,4]", "begins with 0");
  offsets("[4,0]", "before it begins");
  offsets("[0,3]", "takes 4 bytes");
  offsets("[0,5]", "takes 4 bytes");
  offsets("[0,0]", "takes 4 bytes");
  offsets("[4,8]", "a gap");
  offsets("[1,5]", "a gap");
  offsets("[18446744073709551612,18446744073709551616]", "larger than any machine");
  offsets("[18446744073709551611,18446744073709551615]", "a gap");
  offsets("[18446744073709551615,3]", "before it begins");
  offsets("\"0,4\"", "expected '['");
  offsets("{\"0\":4}", "expected '['");
  offsets("[0,4]", kIncomplete, 3);

  // Several tensors.
  auto two = [&](std::string name, std::string a, std::string b, std::string words, std::size_t data = 8) {
    json(std::move(name), "{" + entry("a", "F32", "[1]", a) + "," + entry("b", "F32", "[1]", b) + "}",
         std::move(words), data);
  };
  two("same place", "[0,4]", "[0,4]", "overlaps the tensor before it", 4);
  two("overlap", "[0,4]", "[2,6]", "overlaps the tensor before it", 6);
  two("overlap, out of order", "[3,7]", "[0,4]", "overlaps the tensor before it", 7);
  two("hole", "[0,4]", "[5,9]", "a gap", 9);
  two("hole at the start", "[1,5]", "[5,9]", "a gap", 9);
  two("bytes behind", "[0,4]", "[4,8]", "bytes follow after the last tensor", 9);
  two("many bytes behind", "[0,4]", "[4,8]", "1000 bytes follow after the last tensor", 1008);
  two("second missing", "[0,4]", "[4,8]", kIncomplete, 4);
  two("second cut", "[0,4]", "[4,8]", kIncomplete, 7);
  two("no data", "[0,4]", "[4,8]", kIncomplete, 0);
  json("data without tensors", "{}", "4 bytes follow after the last tensor");
  return all;
}

}  // namespace rapt::test
