// SPDX-License-Identifier: Apache-2.0
// Wrong GGUF files: every count, length, type, size and offset in several ways.
#pragma once
#include <tuple>

#include "tests/hostile/cases.h"

namespace rapt::test {

inline std::vector<HostileCase> hostile_gguf() {
  std::vector<HostileCase> all;
  const std::uint64_t kHuge[] = {1ull << 21, 1ull << 32, 1ull << 62, 1ull << 63, ~0ull};
  auto add = [&](std::string name, std::string bytes, std::string words) {
    all.push_back({"gguf: " + name, std::move(bytes), std::move(words)});
  };
  auto with_key = [](std::string k) {
    GgufBytes g;
    g.keys.push_back(std::move(k));
    return g.make();
  };
  auto with_tensors = [](std::vector<std::string> t, std::size_t data) {
    GgufBytes g;
    g.tensors = std::move(t);
    g.data = data;
    return g.make();
  };
  const GgufBytes good = good_gguf();

  // The start.
  add("empty", "", kIncomplete);
  add("three bytes", "GGU", kIncomplete);
  add("only magic", "GGUF", kIncomplete);
  for (const char* magic : {"gguf", "GGUG", "FUGG", "XXXX", "GGU\xff"}) {
    GgufBytes g = good;
    g.magic = magic;
    add(concat("magic ", magic), g.make(), "no GGUF file");
  }
  for (const Foreign& f : foreign_starts()) add("really " + f.name, f.start, f.words);
  add("really safetensors", safetensors("{" + entry("a", "I8", "[1]", "[0,1]") + "}", 1),
      "this is a safetensors file");
  for (const std::uint32_t version : {0u, 4u, 5u, 100u, 0xFFFFFFFFu}) {
    GgufBytes g = good;
    g.version = version;
    add(concat("version ", version), g.make(), "is not known");
  }
  for (const std::uint32_t version : {1u, 2u, 3u}) {
    GgufBytes g = good;
    g.version = version << 24;
    add(concat("big-endian ", version), g.make(), "big-endian");
  }
  for (const std::uint64_t n : kHuge) {
    GgufBytes g = good;
    g.tensor_count = n;
    add(concat(n, " tensors announced"), g.make(),
        n > 1ull << 20 ? "tensors are announced, more than" : kIncomplete);
    g = good;
    g.key_count = n;
    add(concat(n, " keys announced"), g.make(), "keys are announced, more than");
  }
  {
    GgufBytes g = good;
    g.key_count = 60000;
    add("keys that cannot all be there", g.make(), "keys are announced, which take");
    g = good;
    g.tensor_count = 1 << 20;
    add("tensors that cannot all be there", g.make(), "tensors are announced, which take");
    g = GgufBytes{};
    g.key_count = 2;
    g.keys.push_back("\1");
    add("a key less than announced", g.make(), kIncomplete);
  }

  // Keys.
  add("key without name", with_key(key("", kU32, u32(1))), "a key without a name");
  add("key too long", with_key(key(std::string(65537, 'k'), kU32, u32(1))), "a key of 65537 bytes");
  for (const std::uint64_t n : kHuge)
    add(concat("key length ", n), with_key(u64(n) + "abc" + u32(kU32) + u32(1)), "a key of");
  add("key longer than the file", with_key(u64(1000) + "abc" + u32(kU32) + u32(1)), kIncomplete);
  for (std::size_t i = 0; i < broken_utf8().size(); ++i)
    add(concat("key not UTF-8 ", i), with_key(key(broken_utf8()[i], kU32, u32(1))), "is not UTF-8");
  for (const std::uint32_t type : {13u, 14u, 255u, 0xFFFFFFFFu})
    add(concat("value type ", type), with_key(key("k", type, u64(0))), "which is not known");
  add("key twice", with_key(key("general.architecture", kText, gguf_text("x"))),
      "'general.architecture' stands twice");
  {
    GgufBytes g = good;
    g.keys.push_back(key_u32("u8", 1));
    add("key twice, another type", g.make(), "'u8' stands twice");
  }

  // Values.
  const std::size_t kSizes[] = {1, 1, 2, 2, 4, 4, 4, 1, 8, 4, 8, 8, 8};
  for (std::uint32_t type = 0; type < 13; ++type) {
    add(concat("value of type ", type, " cut"), with_key(key("k", type, std::string(kSizes[type] - 1, '\0'))),
        kIncomplete);
    if (type == kArray) continue;
    for (const std::uint64_t n : {1000ull, 1ull << 61, ~0ull})
      add(concat("array of ", n, " of type ", type),
          with_key(key("k", kArray, array(type, n, std::string(16, '\0')))),
          "values of the value of key 'k' are announced");
  }
  for (const int b : {2, 3, 128, 255})
    add(concat("boolean ", b), with_key(key("k", kBool, raw(static_cast<std::uint8_t>(b)))),
        "neither true (1) nor false (0)");
  add("boolean 2 in an array", with_key(key("k", kArray, array(kBool, 2, "\1\2"))),
      "neither true (1) nor false (0)");
  add("u64 of 2^63", with_key(key("k", kU64, u64(1ull << 63))), "beyond 2^63");
  add("u64 of 2^64-1", with_key(key("k", kU64, u64(~0ull))), "beyond 2^63");
  add("u64 of 2^63 in an array", with_key(key("k", kArray, array(kU64, 1, u64(1ull << 63)))), "beyond 2^63");
  add("string longer than the file", with_key(key("k", kText, u64(100) + "abc")), kIncomplete);
  for (const std::uint64_t n : {1ull << 27, 1ull << 63, ~0ull})
    add(concat("string of ", n), with_key(key("k", kText, u64(n) + "abc")), "is a string of");
  add("second string of an array too long",
      with_key(key("k", kArray, array(kText, 2, gguf_text("ok") + u64(99) + "x"))), kIncomplete);
  add("second string of an array huge",
      with_key(key("k", kArray, array(kText, 2, gguf_text("ok") + u64(~0ull) + "x"))), "is a string of");
  add("array of arrays", with_key(key("k", kArray, array(kArray, 1, array(kU8, 1, "\1")))),
      "array of arrays");
  for (const std::uint32_t type : {13u, 99u, 0x80000000u})
    add(concat("array of type ", type), with_key(key("k", kArray, array(type, 1, u64(0)))),
        "which is not known");
  for (const std::uint32_t a : {0u, 3u, 33u, 96u, 65537u, 131072u, 0x80000000u, 0xFFFFFFFFu})
    add(concat("alignment ", a), with_key(key_u32("general.alignment", a)), "power of two from 1 to 65536");
  add("alignment u64", with_key(key("general.alignment", kU64, u64(32))), "it must be u32");
  add("alignment i32", with_key(key("general.alignment", kI32, u32(32))), "it must be u32");
  add("alignment text", with_key(key("general.alignment", kText, gguf_text("32"))), "it must be u32");
  add("alignment array", with_key(key("general.alignment", kArray, array(kU32, 1, u32(32)))),
      "it must be u32");
  add("alignment boolean", with_key(key("general.alignment", kBool, "\1")), "it must be u32");

  // Tensors: names, dimensions, types.
  add("tensor without name", with_tensors({tensor("", {1}, 0, 0)}, 4), "has no name");
  add("tensor name too long", with_tensors({tensor(std::string(1025, 't'), {1}, 0, 0)}, 4),
      "a tensor's name of 1025 bytes");
  for (const std::uint64_t n : kHuge)
    add(concat("tensor name length ", n), with_tensors({u64(n) + std::string(40, 't')}, 4),
        "a tensor's name of");
  add("tensor name longer than the file", with_tensors({u64(1000) + std::string(40, 't')}, 4), kIncomplete);
  for (std::size_t i = 0; i < broken_utf8().size(); ++i)
    add(concat("tensor name not UTF-8 ", i), with_tensors({tensor(broken_utf8()[i], {1}, 0, 0)}, 4),
        "is not UTF-8");
  add("tensor name twice", with_tensors({tensor("t", {8}, 0, 0), tensor("t", {8}, 0, 32)}, 64),
      "tensor 't' stands twice");
  for (const std::uint32_t dims : {0u, 5u, 100u, 0xFFFFFFFFu})
    add(concat(dims, " dimensions"), with_tensors({gguf_text("t") + u32(dims) + u64(1) + u64(1) + u64(1)}, 4),
        "dimensions; 1 to 4 are read");
  for (std::size_t k = 0; k < 4; ++k) {
    std::vector<std::uint64_t> sizes(4, 2);
    sizes[k] = 0;
    add(concat("size 0 in dimension ", k), with_tensors({tensor("t", sizes, 0, 0)}, 64),
        concat("has a size of 0 in dimension ", k));
    for (const std::uint64_t n : {1ull << 63, ~0ull}) {
      sizes[k] = n;
      add(concat("size ", n, " in dimension ", k), with_tensors({tensor("t", sizes, 0, 0)}, 64),
          "has a size of");
    }
  }
  const std::vector<std::vector<std::uint64_t>> kProducts = {{1ull << 32, 1ull << 32},
                                                             {1ull << 62, 2},
                                                             {1ull << 62, 4},
                                                             {1ull << 31, 1ull << 31, 1ull << 31},
                                                             {1ull << 16, 1ull << 16, 1ull << 16, 1ull << 16},
                                                             {(1ull << 63) - 1, 3},
                                                             {3, 6148914691236517206ull}};
  for (std::size_t i = 0; i < kProducts.size(); ++i)
    add(concat("product of sizes overflows ", i), with_tensors({tensor("t", kProducts[i], 0, 0)}, 64),
        "larger than any machine can count");
  add("bytes overflow, f32", with_tensors({tensor("t", {1ull << 62}, 0, 0)}, 64),
      "larger than any machine can count");
  add("bytes overflow, f64", with_tensors({tensor("t", {1ull << 31, 1ull << 30}, 28, 0)}, 64),
      "larger than any machine can count");
  add("bytes of exabytes", with_tensors({tensor("t", {1ull << 59}, 0, 0)}, 64), kIncomplete);
  const std::vector<std::pair<std::uint32_t, const char*>> kUnsupported = {
      {4, "Q4_2"},      {5, "Q4_3"},      {9, "Q8_1"},        {15, "Q8_K"},       {31, "Q4_0_4_4"},
      {32, "Q4_0_4_8"}, {33, "Q4_0_8_8"}, {36, "IQ4_NL_4_4"}, {37, "IQ4_NL_4_8"}, {38, "IQ4_NL_8_8"}};
  for (const auto& [n, name] : kUnsupported)
    add(concat("type ", name), with_tensors({tensor("t", {256}, n, 0)}, 64),
        concat("type ", name, " of tensor 't' is not supported yet; re-quantize"));
  for (const std::uint32_t n : {43u, 100u, 0x80000000u, 0xFFFFFFFFu})
    add(concat("type ", n), with_tensors({tensor("t", {256}, n, 0)}, 64),
        concat("type ", n, " of tensor 't' is not known"));
  for (const std::uint32_t n : {2u,  3u,  6u,  7u,  8u,  10u, 11u, 12u, 13u, 14u, 16u, 17u, 18u,
                                19u, 20u, 21u, 22u, 23u, 29u, 34u, 35u, 39u, 40u, 41u, 42u})
    for (const std::uint64_t row : {1ull, n < 10               ? 33ull
                                          : n == 41            ? 64ull
                                          : n == 20 || n >= 39 ? 48ull
                                                               : 128ull})
      add(concat("row of ", row, " in type ", n), with_tensors({tensor("t", {row, 256}, n, 0)}, 4096),
          "are no whole blocks of");
  // Three rows of two blocks, the last byte missing; and a block that belongs to nothing.
  for (const auto& [n, elements, bytes] :
       std::initializer_list<std::tuple<std::uint32_t, std::uint64_t, std::size_t>>{{16, 256, 66},
                                                                                    {17, 256, 74},
                                                                                    {18, 256, 98},
                                                                                    {19, 256, 50},
                                                                                    {20, 32, 18},
                                                                                    {21, 256, 110},
                                                                                    {22, 256, 82},
                                                                                    {23, 256, 136},
                                                                                    {29, 256, 56},
                                                                                    {34, 256, 54},
                                                                                    {35, 256, 66},
                                                                                    {39, 32, 17},
                                                                                    {40, 64, 36},
                                                                                    {41, 128, 18},
                                                                                    {42, 64, 18}}) {
    add(concat("blocks of type ", n, " cut"),
        with_tensors({tensor("t", {2 * elements, 3}, n, 0)}, 6 * bytes - 1), kIncomplete);
    add(concat("a row of type ", n, " too many"),
        with_tensors({tensor("t", {2 * elements, 3}, n, 0)}, 8 * bytes + 32),
        "bytes follow after the last tensor");
  }

  // Tensors: places.
  for (const std::uint64_t offset : {1ull, 16ull, 31ull, 33ull, (1ull << 63) + 1, ~0ull})
    add(concat("offset ", offset), with_tensors({tensor("t", {8}, 0, offset)}, 64),
        "no multiple of the alignment");
  for (const std::uint64_t offset : {32ull, 64ull, 1ull << 40, 1ull << 63, ~0ull - 31})
    add(concat("gap of ", offset), with_tensors({tensor("t", {8}, 0, offset)}, 64), "a gap of");
  add("places beyond 2^64",
      with_tensors({tensor("s", {1ull << 60}, 28, 0), tensor("t", {1ull << 60}, 28, 1ull << 63)}, 64),
      kIncomplete);
  add("same place", with_tensors({tensor("s", {8}, 0, 0), tensor("t", {8}, 0, 0)}, 32),
      "overlaps the tensor before it");
  add("overlap", with_tensors({tensor("s", {16}, 0, 0), tensor("t", {8}, 0, 32)}, 64),
      "overlaps the tensor before it");
  add("one inside another", with_tensors({tensor("s", {64}, 0, 0), tensor("t", {8}, 0, 64)}, 256),
      "overlaps the tensor before it");
  add("overlap, out of order", with_tensors({tensor("t", {8}, 0, 32), tensor("s", {16}, 0, 0)}, 64),
      "overlaps the tensor before it");
  add("hole between", with_tensors({tensor("s", {8}, 0, 0), tensor("t", {8}, 0, 64)}, 96),
      "a gap of 32 bytes before tensor 't'");
  add("hole of a block between", with_tensors({tensor("s", {7}, 0, 0), tensor("t", {8}, 0, 64)}, 96),
      "a gap of 36 bytes");
  for (const std::size_t extra : {32u, 33u, 1000u})
    add(concat(extra, " bytes behind"), with_tensors({tensor("t", {8}, 0, 0)}, 32 + extra),
        "bytes follow after the last tensor");
  for (const std::size_t have : {0u, 1u, 16u, 31u})
    add(concat(have, " bytes of 32"), with_tensors({tensor("t", {8}, 0, 0)}, have), kIncomplete);
  {
    GgufBytes g;
    g.data = 40;
    add("data without tensors", g.make(), "though the file has no tensors");
    g = GgufBytes{};
    g.tensors = {tensor("t", {8}, 0, 0)};
    g.padded = false;
    add("not even padding", g.make(), kIncomplete);
    g.alignment = 64;
    g.keys.push_back(key_u32("general.alignment", 64));
    g.tensors = {tensor("s", {8}, 0, 0), tensor("t", {8}, 0, 32)};
    g.padded = true;
    g.data = 64;
    add("aligned to 32 where 64 is said", g.make(), "no multiple of the alignment 64");
  }
  add(
      "many tensors at one place",
      [&] {
        std::vector<std::string> t;
        for (int i = 0; i < 3000; ++i) t.push_back(tensor(concat("t", i), {8}, 0, 0));
        return with_tensors(t, 32);
      }(),
      "overlaps the tensor before it");

  // Version 1: the same with counts of 32 bits.
  auto v1 = [](std::uint32_t tensors, std::uint32_t keys, const std::string& rest) {
    return "GGUF" + u32(1) + u32(tensors) + u32(keys) + rest;
  };
  add("version 1, many keys", v1(0, 0xFFFFFFFF, ""), "keys are announced");
  add("version 1, many tensors", v1(0xFFFFFFFF, 0, ""), "tensors are announced");
  add("version 1, long key", v1(0, 1, u32(0xFFFFFFFF) + std::string(20, 'k')), "a key of 4294967295 bytes");
  add("version 1, long array", v1(0, 1, u32(1) + "k" + u32(kArray) + u32(kF64) + u32(0xFFFFFFFF)),
      "are announced");
  add("version 1, sizes overflow",
      v1(1, 0,
         u32(1) + "t" + u32(4) + u32(1u << 31) + u32(1u << 31) + u32(1u << 31) + u32(1u << 31) + u32(0) +
             u64(0)),
      "larger than any machine");
  add("version 1, size 0", v1(1, 0, u32(1) + "t" + u32(1) + u32(0) + u32(0) + u64(0)), "has a size of 0");
  return all;
}

}  // namespace rapt::test
