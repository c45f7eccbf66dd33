// SPDX-License-Identifier: Apache-2.0
// Files built byte by byte are read as they are meant; what we write comes back. Wrong files:
// tests/hostile_files_test.cc.
#include "rapt/io/gguf.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <limits>

#include "rapt/tensor/formats.h"
#include "tests/data.h"
#include "tests/hostile/bytes.h"
#include "tests/tools.h"

namespace rapt {
namespace {

using namespace rapt::test;
namespace fs = std::filesystem;

TEST(Gguf, ReadsEveryKindOfValue) {
  const std::string bytes = good_gguf().make();
  const GgufFile f = GgufFile::parse(as_span(bytes), "f");
  EXPECT_EQ(f.version, 3u);
  EXPECT_EQ(f.metadata().size(), 17u);
  EXPECT_EQ(f.metadata()[1].first, "u8");
  EXPECT_EQ(f.text("general.architecture"), "test");
  const std::int64_t most = INT64_MAX, least = INT64_MIN;
  EXPECT_EQ(f.integer("u8", least, most), 200);
  EXPECT_EQ(f.integer("i8", least, most), -3);
  EXPECT_EQ(f.integer("u16", least, most), 60000);
  EXPECT_EQ(f.integer("i16", least, most), -300);
  EXPECT_EQ(f.integer("u32", least, most), 4000000000);
  EXPECT_EQ(f.integer("i32", least, most), -70000);
  EXPECT_EQ(f.integer("u64", least, most), std::int64_t{1} << 40);
  EXPECT_EQ(f.integer("i64", least, most), -5);
  EXPECT_EQ(f.number("f32"), 1.5);
  EXPECT_EQ(f.number("f64"), 0.1);
  EXPECT_EQ(f.number("u8"), 200);
  EXPECT_TRUE(f.boolean_or("bool", false));
  EXPECT_EQ(*f.texts("texts"), (GgufValue::Strings{"a", "", "\xff"}));
  EXPECT_EQ(*f.integers("i32s"), (GgufValue::Integers{-1, 7}));
  EXPECT_EQ(*f.numbers("f32s"), (GgufValue::Numbers{0.5, -2}));
  EXPECT_EQ(*f.integers("bools"), (GgufValue::Integers{0, 1}));
  EXPECT_TRUE(f.texts("none")->empty());
}

TEST(Gguf, AccessorsSayWhatIsWrong) {
  const std::string bytes = good_gguf().make();
  const GgufFile f = GgufFile::parse(as_span(bytes), "file");
  EXPECT_EQ(error_of([&] { f.integer("x", 0, 1); }), "file: key 'x' is missing");
  EXPECT_EQ(error_of([&] { f.integer("u8", 0, 100); }), "file: key 'u8' is 200, it must be from 0 to 100");
  EXPECT_EQ(error_of([&] { f.integer("f32", 0, 100); }), "file: key 'f32' is f32, it must be an integer");
  EXPECT_EQ(error_of([&] { f.texts("i32s"); }),
            "file: key 'i32s' is an array of i32, it must be an array of strings");
  EXPECT_THROW(f.integer("bool", 0, 1), Error);
  EXPECT_THROW(f.text("u8"), Error);
  EXPECT_THROW(f.number("texts"), Error);
  EXPECT_THROW(f.boolean_or("u8", true), Error);
  EXPECT_THROW(f.numbers("i32s"), Error);
  EXPECT_THROW(f.integers("f32s"), Error);
  EXPECT_EQ(f.integer_or("x", 9, 0, 1), 9);
  EXPECT_THROW(f.integer_or("u8", 9, 0, 1), Error);
  EXPECT_EQ(f.number_or("x", 0.5), 0.5);
  EXPECT_EQ(f.text_or("x", "none"), "none");
  EXPECT_TRUE(f.boolean_or("x", true));
  EXPECT_EQ(f.texts("x"), nullptr);
  GgufBytes g;
  g.keys = {key("inf", kF32, raw(std::numeric_limits<float>::infinity())),
            key("nan", kF64, raw(std::numeric_limits<double>::quiet_NaN()))};
  const std::string odd = g.make();
  const GgufFile o = GgufFile::parse(as_span(odd), "file");
  EXPECT_TRUE(holds(error_of([&] { o.number("inf"); }), "finite"));
  EXPECT_TRUE(holds(error_of([&] { o.number("nan"); }), "finite"));
}

TEST(Gguf, TensorsAreSeenSlowestAxisFirst) {
  const std::string bytes = good_gguf().make();
  const GgufFile f = GgufFile::parse(as_span(bytes), "f");
  ASSERT_EQ(f.tensors.all().size(), 3u);
  const TensorView& one = *f.tensors.find("one");
  EXPECT_EQ(one.shape_text(), "[2,3]");
  EXPECT_EQ(one.bytes().size(), 24u);
  EXPECT_EQ(one.rows(), 2);
  EXPECT_EQ(one.row_bytes(1, 1).data(), one.bytes().data() + 12);
  EXPECT_THROW(one.row_bytes(1, 2), Error);
  EXPECT_THROW(one.row_bytes(-1, 1), Error);
  EXPECT_THROW(one.row_bytes(0, INT64_MAX), Error);
  const TensorView& two = *f.tensors.find("two");
  EXPECT_EQ(two.dtype(), DType::q4_0);
  EXPECT_EQ(two.shape_text(), "[2,1,32]");
  EXPECT_EQ(two.values().size(), 64u);
  EXPECT_EQ(f.tensors.find("three")->values(), std::vector<float>(5, 1.0f));
  EXPECT_EQ(f.tensors.find("four"), nullptr);
  EXPECT_EQ(f.tensors.bytes(), 24u + 36 + 5);
}

TEST(Gguf, OlderVersions) {
  const std::string v1 = "GGUF" + u32(1) + u32(1) + u32(2) +  //
                         u32(1) + "k" + u32(kText) + u32(5) + "value" +                                  //
                         u32(1) + "n" + u32(kArray) + u32(kU16) + u32(2) + std::string("\1\0\2\0", 4) +  //
                         u32(1) + "t" + u32(2) + u32(2) + u32(3) + u32(0) + u64(0);
  std::string padded = v1;
  padded.resize((v1.size() + 31) / 32 * 32);
  padded.resize(padded.size() + 24);
  const GgufFile one = GgufFile::parse(as_span(padded), "v1");
  EXPECT_EQ(one.version, 1u);
  EXPECT_EQ(one.text("k"), "value");
  EXPECT_EQ(*one.integers("n"), (GgufValue::Integers{1, 2}));
  EXPECT_EQ(one.tensors.find("t")->shape_text(), "[3,2]");
  GgufBytes g = good_gguf();
  g.version = 2;
  const std::string two = g.make();
  EXPECT_EQ(GgufFile::parse(as_span(two), "v2").version, 2u);
}

TEST(Gguf, AlignmentAndOrderOfTensors) {
  GgufBytes g;
  g.alignment = 8;
  g.keys = {key_u32("general.alignment", 8)};
  // Out of order, seven bytes of padding between.
  g.tensors = {tensor("late", {3}, 0, 16), tensor("early", {9}, 24, 0)};
  g.data = 16 + 12;
  const std::string bytes = g.make();
  const GgufFile f = GgufFile::parse(as_span(bytes), "f");
  EXPECT_EQ(f.alignment, 8u);
  EXPECT_EQ(f.tensors.all()[0].name(), "late");
  EXPECT_EQ(f.tensors.find("late")->bytes().data(), as_span(bytes).data() + bytes.size() - 12);
}

using Metadata = std::vector<std::pair<std::string, GgufValue>>;

TEST(Gguf, WritesWhatItReads) {
  const TempFolder folder;
  Metadata values = {{"general.architecture", GgufValue::text("test")},
                     {"a.u", GgufValue::u32(7)},
                     {"a.i", GgufValue::i32(-7)},
                     {"a.f", GgufValue::f32(0.1f)},
                     {"a.b", GgufValue::boolean(true)},
                     {"a.texts", GgufValue::texts({"x", "\xfe", ""})},
                     {"a.is", GgufValue::i32s({1, -2, 3})},
                     {"a.fs", GgufValue::f32s({0.5f, 3e38f})}};
  GgufValue odd;
  odd.type = GgufValue::Type::array;
  odd.element = GgufValue::Type::boolean;
  odd.value = GgufValue::Integers{1, 0};
  values.emplace_back("a.bools", odd);
  odd.type = GgufValue::Type::u64;
  odd.value = std::int64_t{1} << 62;
  values.emplace_back("a.u64", odd);
  std::vector<GgufTensorPlan> plans;
  std::vector<std::vector<std::byte>> contents;
  int k = 0;
  for (const DType t : {DType::f32,  DType::bf16,  DType::f16,    DType::q4_0,   DType::q4_1,  DType::q5_0,
                        DType::q5_1, DType::q8_0,  DType::q2_k,   DType::q3_k,   DType::q4_k,  DType::q5_k,
                        DType::q6_k, DType::mxfp4, DType::iq4_nl, DType::iq4_xs, DType::iq1_m, DType::nvfp4,
                        DType::i8,   DType::i16,   DType::i32,    DType::i64,    DType::f64}) {
    const auto block = static_cast<Dim>(info_of(t).block);
    const std::vector<Dim> shape = block > 1 ? std::vector<Dim>{3, 2 * block} : std::vector<Dim>{2, 1, 5, 3};
    std::vector<std::byte> bytes(block > 1 ? 6 * info_of(t).bytes : 30 * info_of(t).bytes);
    for (std::size_t i = 0; i < bytes.size(); ++i)
      bytes[i] = static_cast<std::byte>(i * 7 + static_cast<std::size_t>(k));
    contents.push_back(bytes);
    plans.push_back({concat("t", k++), t, shape, [bytes](FileWriter& out) { out.write(bytes); }});
  }
  std::size_t done = 0;
  write_gguf(folder / "a.gguf", values, plans, false,
             [&](std::size_t n, std::size_t of) { done = of == plans.size() ? n : 0; });
  EXPECT_EQ(done, plans.size());
  const GgufFile f = GgufFile::open(folder / "a.gguf");
  ASSERT_EQ(f.metadata().size(), values.size());
  for (std::size_t i = 0; i < values.size(); ++i) {
    EXPECT_EQ(f.metadata()[i].first, values[i].first);
    EXPECT_EQ(f.metadata()[i].second.type, values[i].second.type);
    EXPECT_EQ(f.metadata()[i].second.value, values[i].second.value) << values[i].first;
  }
  ASSERT_EQ(f.tensors.all().size(), plans.size());
  for (std::size_t i = 0; i < plans.size(); ++i) {
    const TensorView& t = f.tensors.all()[i];
    EXPECT_EQ(t.dtype(), plans[i].dtype);
    EXPECT_TRUE(std::equal(t.shape().begin(), t.shape().end(), plans[i].shape.begin(), plans[i].shape.end()));
    EXPECT_TRUE(std::equal(t.bytes().begin(), t.bytes().end(), contents[i].begin(), contents[i].end()))
        << name_of(t.dtype());
  }
  EXPECT_TRUE(
      holds(error_of([&] { write_gguf(folder / "a.gguf", values, plans, false); }), "exists already"));
  write_gguf(folder / "a.gguf", {}, {}, true);
  EXPECT_EQ(GgufFile::open(folder / "a.gguf").tensors.all().size(), 0u);
}

TEST(Gguf, RefusesToWriteWhatItWouldNotRead) {
  const TempFolder folder;
  auto written = [&](const Metadata& m, const std::vector<GgufTensorPlan>& t) {
    return error_of([&] { write_gguf(folder / "a.gguf", m, t, true); });
  };
  auto plan = [](std::string name, DType t, std::vector<Dim> shape, std::size_t bytes) {
    return GgufTensorPlan{std::move(name), t, std::move(shape),
                          [bytes](FileWriter& out) { out.write(std::string(bytes, 'x')); }};
  };
  EXPECT_TRUE(holds(written({{"a", GgufValue::u32(1)}, {"a", GgufValue::u32(1)}}, {}), "stands twice"));
  EXPECT_TRUE(holds(written({{"\xff", GgufValue::u32(1)}}, {}), "no name"));
  EXPECT_TRUE(holds(written({{"general.alignment", GgufValue::u32(3)}}, {}), "power of two"));
  GgufValue wrong = GgufValue::u32(1);
  wrong.type = GgufValue::Type::u8;
  wrong.value = std::int64_t{256};
  EXPECT_TRUE(holds(written({{"a", wrong}}, {}), "does not fit"));
  wrong.value = std::string("x");
  EXPECT_TRUE(holds(written({{"a", wrong}}, {}), "not of the type"));
  EXPECT_TRUE(holds(written({}, {plan("t", DType::q4_0, {31}, 18)}), "whole blocks"));
  EXPECT_TRUE(holds(written({}, {plan("t", DType::q4_0, {2, 16}, 18)}), "whole blocks"));
  EXPECT_TRUE(holds(written({}, {plan("t", DType::f32, {2}, 7)}), "7 bytes were given, it takes 8"));
  EXPECT_TRUE(holds(written({}, {plan("t", DType::f32, {0}, 0)}), "size of 0"));
  EXPECT_TRUE(holds(written({}, {plan("t", DType::f32, {1, 1, 1, 1, 1}, 4)}), "dimensions"));
  EXPECT_TRUE(
      holds(written({}, {plan("t", DType::f32, {1}, 4), plan("t", DType::f32, {1}, 4)}), "stands twice"));
  EXPECT_TRUE(holds(written({}, {plan("", DType::f32, {1}, 4)}), "name must be"));
  EXPECT_TRUE(holds(written({}, {plan("t", DType::f32, {Dim{1} << 40, Dim{1} << 40}, 4)}),
                    "larger than any machine"));
  EXPECT_TRUE(fs::is_empty(folder.path()));
}

GgufBytes part(std::uint64_t no, std::uint64_t of, const std::string& name, std::int32_t tensors = 2) {
  GgufBytes g;
  g.keys = {key("split.no", kU16, raw(static_cast<std::uint16_t>(no))),
            key("split.count", kU16, raw(static_cast<std::uint16_t>(of))),
            key("split.tensors.count", kI32, raw(tensors))};
  g.tensors = {tensor(name, {3}, 0, 0)};
  g.data = 12;
  return g;
}

TEST(Gguf, SeveralFiles) {
  const TempFolder folder;
  const std::string first = folder / "m-00001-of-00002.gguf", second = folder / "m-00002-of-00002.gguf";
  put_file(first, part(0, 2, "a").make());
  put_file(second, part(1, 2, "b").make());
  const GgufFile f = GgufFile::open(first);
  EXPECT_EQ(f.tensors.all().size(), 2u);
  EXPECT_EQ(f.tensors.find("b")->elements(), 3);
  EXPECT_TRUE(holds(error_of([&] { GgufFile::open(second); }), "open the first: " + first));
  auto wrong = [&](const std::string& words) {
    const std::string message = error_of([&] { GgufFile::open(first); });
    EXPECT_TRUE(holds(message, words)) << message;
  };
  put_file(second, part(1, 2, "a").make());
  wrong("another file of the model too");
  put_file(second, part(1, 3, "b").make());
  wrong("calls itself file 2 of 3");
  put_file(second, part(0, 2, "b").make());
  wrong("calls itself file 1 of 2");
  put_file(second, part(1, 2, "b").make());
  put_file(first, part(0, 2, "a", 5).make());
  wrong("5 tensors are announced");
  put_file(first, part(0, 3, "a").make());
  wrong("the name says 2 files");
  put_file(first, part(0, 2, "a").make());
  fs::remove(second);
  wrong("no such file");
  put_file(folder / "m.gguf", part(0, 2, "a").make());
  EXPECT_TRUE(holds(error_of([&] { GgufFile::open(folder / "m.gguf"); }), "rename it"));
  put_file(folder / "one-00001-of-00001.gguf", part(0, 1, "a", 1).make());
  EXPECT_EQ(GgufFile::open(folder / "one-00001-of-00001.gguf").tensors.all().size(), 1u);
}

TEST(Gguf, TypesHaveTheirNumbers) {
  const Reader at({}, "file");
  EXPECT_EQ(gguf_type_of(DType::q4_k), 12u);
  EXPECT_EQ(gguf_type_of(DType::bf16), 30u);
  for (std::uint32_t n = 0; n < 60; ++n) {
    try {
      EXPECT_EQ(gguf_type_of(dtype_of_gguf(n, at, "x")), n);
    } catch (const Error& e) {
      EXPECT_TRUE(
          holds(e.what(), n < 43 ? "of tensor 'x' is not supported yet; re-quantize" : "is not known"))
          << e.what();
    }
  }
}

TEST(Gguf, OpensVocabularies) {
  for (const char* name :
       {"vocab/ggml-vocab-llama-spm.gguf", "vocab/ggml-vocab-gpt-2.gguf", "vocab/ggml-vocab-bert-bge.gguf"}) {
    const auto path = data_file(name);
    if (!path) GTEST_SKIP() << no_data(name);
    const GgufFile f = GgufFile::open(path->string());
    EXPECT_GT(f.texts("tokenizer.ggml.tokens")->size(), 30000u) << name;
    EXPECT_TRUE(f.tensors.all().empty());
  }
}

}  // namespace
}  // namespace rapt
