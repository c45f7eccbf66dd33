// SPDX-License-Identifier: Apache-2.0
// Files built byte by byte are read as they are meant; what we write comes back. Wrong files:
// tests/hostile_files_test.cc.
#include "rapt/io/safetensors.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "tests/hostile/bytes.h"
#include "tests/tools.h"

namespace rapt {
namespace {

using namespace rapt::test;
namespace fs = std::filesystem;

TEST(Safetensors, ReadsTensorsAndMetadata) {
  const std::string bytes = good_safetensors();
  const SafetensorsFile f = SafetensorsFile::parse(as_span(bytes), "f");
  EXPECT_EQ(f.metadata, (std::vector<std::pair<std::string, std::string>>{{"format", "pt"}, {"a\n", "é"}}));
  ASSERT_EQ(f.tensors.all().size(), 3u);
  EXPECT_EQ(f.tensors.find("one")->shape_text(), "[2,3]");
  EXPECT_EQ(f.tensors.find("one")->bytes().size(), 24u);
  EXPECT_EQ(f.tensors.find("two")->dtype(), DType::bf16);
  EXPECT_EQ(f.tensors.find("three")->shape_text(), "[]");
  EXPECT_EQ(f.tensors.find("three")->elements(), 1);
  EXPECT_EQ(f.tensors.find("three")->rows(), 1);
  EXPECT_EQ(f.tensors.bytes(), 36u);
}

TEST(Safetensors, EveryType) {
  const struct {
    const char* name;
    DType dtype;
  } kTypes[] = {{"F32", DType::f32}, {"F16", DType::f16}, {"BF16", DType::bf16}, {"F64", DType::f64},
                {"I64", DType::i64}, {"I32", DType::i32}, {"I16", DType::i16},   {"I8", DType::i8},
                {"U8", DType::i8},   {"BOOL", DType::i8}};
  for (const auto& [name, dtype] : kTypes) {
    const std::size_t size = size_of(dtype) * 3;
    const std::string bytes =
        safetensors("{" + entry("x", name, "[3]", concat("[0,", size, "]")) + "}", size);
    EXPECT_EQ(SafetensorsFile::parse(as_span(bytes), "f").tensors.find("x")->dtype(), dtype) << name;
  }
  const std::string empty = safetensors("{}");
  EXPECT_EQ(SafetensorsFile::parse(as_span(empty), "f").tensors.all().size(), 0u);
}

// These lengths begin with the bytes of a pickle: 0x80 and 0x02 … 0x05.
TEST(Safetensors, HeadersOfEveryLengthAreNoPickles) {
  const TempFolder folder;
  for (const std::size_t length : {640u, 896u, 1152u, 1408u, 65536u + 640u}) {
    std::string header = "{" + entry("x", "I8", "[1]", "[0,1]") + "}";
    header.resize(length, ' ');
    const std::string bytes = safetensors(header, 1);
    EXPECT_EQ(SafetensorsFile::parse(as_span(bytes), "f").tensors.all().size(), 1u) << length;
    // Written by us, with as much metadata as it takes.
    const std::string path = folder / concat(length, ".safetensors");
    const std::vector<SafetensorPlan> plans = {
        {"x", DType::i8, {1}, [](FileWriter& out) { out.write("b"); }}};
    std::uint64_t written = 0;
    for (std::size_t pad = 1; written != length; pad += length - written) {
      const std::vector<std::pair<std::string, std::string>> metadata = {{"note", std::string(pad, 'n')}};
      write_safetensors(path, plans, metadata, true);
      const std::string file = read_text_file(path);
      std::memcpy(&written, file.data(), sizeof written);
    }
    EXPECT_EQ(SafetensorsFile::open(path).tensors.all().size(), 1u) << length;
  }
}

SafetensorPlan plan(std::string name, DType t, std::vector<Dim> shape, std::string bytes) {
  return {std::move(name), t, std::move(shape), [bytes](FileWriter& out) { out.write(bytes); }};
}

TEST(Safetensors, WritesWhatItReads) {
  const TempFolder folder;
  const std::string path = folder / "a.safetensors";
  const std::vector<SafetensorPlan> plans = {
      plan("a \"quoted\"\n", DType::f32, {2, 2}, std::string(16, 'a')), plan("é", DType::i8, {}, "b"),
      plan("c", DType::f16, {1, 2, 3, 1, 1, 1, 1, 1}, std::string(12, 'c'))};
  const std::vector<std::pair<std::string, std::string>> metadata = {{"format", "pt"},
                                                                     {"note", "line\n\"two\""}};
  write_safetensors(path, plans, metadata, false);
  const SafetensorsFile f = SafetensorsFile::open(path);
  EXPECT_EQ(f.metadata, metadata);
  ASSERT_EQ(f.tensors.all().size(), 3u);
  for (std::size_t i = 0; i < plans.size(); ++i) {
    const TensorView& t = f.tensors.all()[i];
    EXPECT_EQ(t.name(), plans[i].name);
    EXPECT_EQ(t.dtype(), plans[i].dtype);
    EXPECT_TRUE(std::equal(t.shape().begin(), t.shape().end(), plans[i].shape.begin(), plans[i].shape.end()));
    EXPECT_EQ(static_cast<char>(t.bytes()[0]), static_cast<char>('a' + i));
  }
  EXPECT_TRUE(holds(error_of([&] { write_safetensors(path, plans, metadata, false); }), "exists already"));
  auto refused = [&](const SafetensorPlan& p) {
    return error_of([&] { write_safetensors(path, std::span(&p, 1), {}, true); });
  };
  EXPECT_TRUE(holds(refused(plan("q", DType::q4_0, {32}, std::string(18, 'x'))), "has no type for q4_0"));
  EXPECT_TRUE(holds(refused(plan("q", DType::f32, {3}, "short")), "5 bytes were given, it takes 12"));
  EXPECT_TRUE(holds(refused(plan("__metadata__", DType::i8, {1}, "x")), "not __metadata__"));
  EXPECT_TRUE(holds(refused(plan("", DType::i8, {1}, "x")), "name must be"));
  EXPECT_TRUE(holds(refused(plan("x", DType::i8, {0}, "")), "size of 0"));
  EXPECT_TRUE(holds(refused(plan("x", DType::i8, {1, 1, 1, 1, 1, 1, 1, 1, 1}, "x")), "dimensions"));
  const std::vector<SafetensorPlan> twice = {plan("x", DType::i8, {1}, "x"), plan("x", DType::i8, {1}, "x")};
  EXPECT_TRUE(holds(error_of([&] { write_safetensors(path, twice, {}, true); }), "stands twice"));
  EXPECT_EQ(SafetensorsFile::open(path).tensors.all().size(), 3u);  // every failure left it as it was
}

TEST(Safetensors, FoldersWithShards) {
  const TempFolder folder;
  std::vector<SafetensorPlan> plans;
  for (int i = 0; i < 10; ++i)
    plans.push_back(plan(concat("t", i), DType::f32, {4, 2}, std::string(32, static_cast<char>('0' + i))));
  const std::string where = folder / "model";
  write_safetensors_folder(where, plans, 100, false);  // three tensors in each
  EXPECT_TRUE(fs::exists(where + "/model-00004-of-00004.safetensors"));
  const TensorTable table = open_safetensors_folder(where);
  ASSERT_EQ(table.all().size(), 10u);
  for (int i = 0; i < 10; ++i) EXPECT_EQ(static_cast<char>(table.find(concat("t", i))->bytes()[31]), '0' + i);
  EXPECT_TRUE(holds(error_of([&] { write_safetensors_folder(where, plans, 100, false); }), "exists already"));
  EXPECT_TRUE(holds(error_of([&] { write_safetensors_folder(where, plans, 0, false); }), "exists already"));
  write_safetensors_folder(where, plans, 0, true);  // one file replaces the shards
  EXPECT_FALSE(fs::exists(where + "/model.safetensors.index.json"));
  EXPECT_EQ(open_safetensors_folder(where).all().size(), 10u);
  // And back: a tensor larger than a shard has one of its own.
  write_safetensors_folder(where, plans, 1, true);
  EXPECT_FALSE(fs::exists(where + "/model.safetensors"));
  EXPECT_TRUE(fs::exists(where + "/model-00010-of-00010.safetensors"));
  EXPECT_EQ(open_safetensors_folder(where).all().size(), 10u);
  // A failure in the last shard leaves the old model whole.
  auto broken = plans;
  broken.back() = plan("t9", DType::f32, {4, 2}, "short");
  EXPECT_THROW(write_safetensors_folder(where, broken, 100, true), Error);
  EXPECT_EQ(static_cast<char>(open_safetensors_folder(where).find("t9")->bytes()[0]), '9');
  std::size_t hidden = 0;
  for (const auto& e : fs::directory_iterator(where)) hidden += e.path().filename().string()[0] == '.';
  EXPECT_EQ(hidden, 0u);
}

TEST(Safetensors, FoldersThatAreWrong) {
  const TempFolder folder;
  const std::string index = folder / "model.safetensors.index.json";
  auto opened = [&] { return error_of([&] { open_safetensors_folder(folder.path()); }); };
  auto with_index = [&](std::string_view json) {
    put_file(index, json);
    return opened();
  };
  EXPECT_TRUE(holds(opened(), "neither model.safetensors nor"));
  put_file(folder / "pytorch_model.bin", "PK\x03\x04");
  EXPECT_TRUE(
      holds(opened(), "'pytorch_model.bin' and no safetensors file; pickle files can run any program"))
      << opened();
  EXPECT_TRUE(
      holds(error_of([&] { open_safetensors_folder(folder / "none"); }), "cannot be read as a folder"));
  put_file(
      folder / "s.safetensors",
      safetensors("{" + entry("a", "I8", "[1]", "[0,1]") + "," + entry("b", "I8", "[1]", "[1,2]") + "}", 2));
  EXPECT_EQ(with_index(R"({"weight_map":{"a":"s.safetensors","b":"s.safetensors"}})"), "");
  EXPECT_TRUE(holds(with_index(R"({"weight_map":{"a":"s.safetensors"}})"), "holds tensor 'b'"));
  EXPECT_TRUE(
      holds(with_index(R"({"weight_map":{"a":"s.safetensors","b":"s.safetensors","c":"s.safetensors"}})"),
            "lacks tensor 'c'"));
  put_file(folder / "r.safetensors", safetensors("{" + entry("b", "I8", "[1]", "[0,1]") + "}", 1));
  EXPECT_TRUE(
      holds(with_index(R"({"weight_map":{"a":"s.safetensors","b":"r.safetensors"}})"), "holds tensor 'b'"));
  EXPECT_TRUE(
      holds(with_index(R"({"weight_map":{"a":"t.safetensors"}})"), "is missing (is the download complete?)"));
  EXPECT_TRUE(holds(with_index(R"({"weight_map":{"a":1}})"), "is a number, it must be a string"));
  EXPECT_TRUE(holds(with_index(R"({"weight_map":{}})"), "names no tensor"));
  EXPECT_TRUE(holds(with_index(R"({"weight_map":[]})"), "lacks the object"));
  EXPECT_TRUE(holds(with_index(R"({})"), "lacks the object"));
  EXPECT_TRUE(holds(with_index(R"([1])"), "lacks the object"));
  EXPECT_TRUE(holds(with_index(R"({"weight_map":)"), "expected a value"));
  EXPECT_TRUE(holds(with_index(R"({"weight_map":{"a":"s.safetensors","a":"s.safetensors"}})"), "twice"));
  for (const char* bad : {"../s.safetensors", "/etc/x.safetensors", "a/../s.safetensors", ".s.safetensors",
                          "", "..", "a\\\\b.safetensors", "s.safetensors\\u0000.safetensors"})
    EXPECT_TRUE(holds(with_index(concat(R"({"weight_map":{"a":")", bad, R"("}})")), "no plain name")) << bad;
  EXPECT_TRUE(
      holds(with_index(R"({"weight_map":{"a":"pytorch_model.bin"}})"), "does not end in .safetensors"));

  // A link may lead to the blobs of a download cache, not anywhere else.
  const fs::path cache = fs::path(folder.path()) / "models--x", snapshot = cache / "snapshots" / "1";
  fs::create_directories(snapshot);
  fs::create_directories(cache / "blobs");
  fs::copy_file(folder / "s.safetensors", cache / "blobs" / "0123");
  fs::create_symlink("../../blobs/0123", snapshot / "s.safetensors");
  put_file((snapshot / "model.safetensors.index.json").string(),
           R"({"weight_map":{"a":"s.safetensors","b":"s.safetensors"}})");
  EXPECT_EQ(open_safetensors_folder(snapshot.string()).all().size(), 2u);
  fs::remove(snapshot / "s.safetensors");
  fs::create_symlink("../../../s.safetensors", snapshot / "s.safetensors");
  EXPECT_TRUE(holds(error_of([&] { open_safetensors_folder(snapshot.string()); }),
                    "leads out of the model's folder"));
}

}  // namespace
}  // namespace rapt
