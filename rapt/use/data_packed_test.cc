// SPDX-License-Identifier: Apache-2.0
// Packed files against the data they were made of, batch by batch; then cut, flipped and forged bytes.
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>

#include "rapt/io/fs.h"
#include "tests/training_data.h"

namespace rapt {
namespace {

using namespace test;

std::string file_bytes(const std::string& path) { return read_text_file(path, std::uint64_t{1} << 30); }

TEST(PackedData, SaysWhatTheFilesSay) {
  TempFolder folder;
  put_file(folder / "a.txt", long_text(80));
  std::string a, b;
  for (int i = 0; i < 50; ++i)
    a += words(3 + i % 4, 1) + std::to_string(i) + "\n", b += words(2 + i % 5, 2) + std::to_string(i) + "\n";
  put_file(folder / "a.de", a + "\n");
  put_file(folder / "a.en", b + "x\n");
  const std::string pairs = (folder / "a.de") + "," + (folder / "a.en"),
                    lines = "de=" + (folder / "a.de") + ",en=" + (folder / "a.en");
  const VocabOptions bpe{.size = 300}, characters{.kind = VocabKind::characters};
  std::vector<DataOptions> all = {
      {.path = folder / "a.txt", .vocab = bpe, .batch = 3, .length = 20},
      {.path = folder / "a.txt", .vocab = characters, .batch = 3, .length = 20, .documents = true},
      {.path = folder / "a.txt",
       .objective = Objective::masked,
       .vocab = bpe,
       .batch = 3,
       .length = 20,
       .windows = DataOptions::Windows::shuffled},
      {.path = pairs, .objective = Objective::translation, .vocab = bpe, .batch = 3, .length = 40},
      {.path = pairs,
       .objective = Objective::translation,
       .vocab = characters,
       .length = 60,
       .batch_tokens = 100},
      {.path = lines, .objective = Objective::classification, .vocab = bpe, .batch = 7, .length = 20},
  };
  for (DataOptions& o : all) {
    const std::string file = folder / "p.bin";
    write_packed(file, o, true);
    EXPECT_TRUE(is_packed(file));
    const auto plain = open_data(o);
    DataOptions p = o;
    p.path = file;
    const auto packed = open_data(p);
    EXPECT_EQ(packed->about(), plain->about());
    EXPECT_EQ(packed->identity, plain->identity);
    EXPECT_EQ(packed->vocab, plain->vocab);
    EXPECT_EQ(packed->start, plain->start);
    EXPECT_EQ(packed->stop, plain->stop);
    EXPECT_EQ(packed->class_names, plain->class_names);
    EXPECT_EQ(packed->tokenizer_files->tokenizer_json, plain->tokenizer_files->tokenizer_json);
    EXPECT_EQ(packed->tokenizer_files->tokenizer_config_json, plain->tokenizer_files->tokenizer_config_json);
    for (std::uint64_t n = 0; n < 30; ++n) EXPECT_TRUE(same(packed->batch(n), plain->batch(n))) << n;
    ASSERT_EQ(packed->held_out(), plain->held_out());
    for (Dim n = 0; n < plain->held_out(); ++n)
      EXPECT_TRUE(same(packed->held_out_batch(n), plain->held_out_batch(n))) << n;
    const Json j = packed_summary(file);
    const Json* documents = j.find("documents");
    EXPECT_TRUE(!documents || documents->integer() == (o.documents ? 16 : 1));
    EXPECT_EQ(j.find("vocabulary")->integer(), plain->vocab);
    EXPECT_TRUE(holds(error_of([&] { write_packed(file, o, false); }), file));
    EXPECT_TRUE(holds(error_of([&] { write_packed(folder / "q.bin", p, false); }), "packed already"));
    if (o.objective == Objective::causal && !o.documents) {
      DataOptions many = p;
      many.documents = true;
      EXPECT_TRUE(holds(error_of([&] { open_data(many); }), "one document only"));
    }
    DataOptions wrong = p;
    wrong.objective = o.objective == Objective::translation ? Objective::causal : Objective::translation;
    wrong.documents = false;
    EXPECT_TRUE(holds(error_of([&] { open_data(wrong); }), "the objective here is"));
  }
}

TEST(PackedData, RefusesWhatIsDamagedOrHostile) {
  TempFolder folder;
  put_file(folder / "a.de", "ein Hund\nzwei Hunde\ndrei\nvier Hunde\n");
  put_file(folder / "a.en", "a dog\ntwo dogs\nthree\nfour dogs\n");
  const std::string lines = "de=" + (folder / "a.de") + ",en=" + (folder / "a.en"), file = folder / "p.bin",
                    bad = folder / "bad.bin";
  const DataOptions o{.path = lines,
                      .objective = Objective::classification,
                      .vocab = {.kind = VocabKind::characters},
                      .batch = 2,
                      .length = 32};
  write_packed(file, o, true);
  const std::string good = file_bytes(file);
  const auto try_bytes = [&](const std::string& bytes) {
    std::ofstream(bad, std::ios::binary) << bytes;  // hundreds of files: without waiting for the disk
    DataOptions p = o;
    p.path = bad;
    return error_of([&] { open_data(p); });
  };
  EXPECT_EQ(try_bytes(good), "");
  for (std::size_t n = 0; n < good.size(); n += n < 300 ? 1 : 37)
    EXPECT_NE(try_bytes(good.substr(0, n)), "") << n;
  EXPECT_TRUE(holds(try_bytes(good + "x"), "bytes follow the last id"));
  for (std::size_t i = 0; i < good.size(); i += i < 200 ? 1 : 13) {
    std::string bytes = good;
    bytes[i] = static_cast<char>(bytes[i] ^ 0x10);
    EXPECT_NE(try_bytes(bytes), "") << i;
  }

  // With sums made right again, so that the checks behind them speak. Header: place → number of 8 bytes.
  const auto with = [&](std::size_t place, std::uint64_t value, std::size_t width) {
    std::string bytes = good;
    std::memcpy(bytes.data() + place, &value, width);
    const auto sum = [&](std::size_t from, std::size_t size) {
      return crc32(std::as_bytes(std::span(bytes.data() + from, size)));
    };
    const auto number = [&](std::size_t at) {
      std::uint64_t v;
      std::memcpy(&v, good.data() + at, 8);
      return static_cast<std::size_t>(v);
    };
    const std::size_t meta = (number(64) + 63) / 64 * 64, items = number(40),
                      index = ((items + 1) * 8 + items * 4 + 63) / 64 * 64;
    const std::uint32_t sums[] = {sum(128, meta), sum(128 + meta, index),
                                  sum(128 + meta + index, number(32) * 2)};
    std::memcpy(bytes.data() + 72, sums, sizeof sums);
    const std::uint32_t header = sum(0, 84);
    std::memcpy(bytes.data() + 84, &header, 4);
    return try_bytes(bytes);
  };
  std::uint64_t meta_size;
  std::memcpy(&meta_size, good.data() + 64, 8);
  const std::size_t index = 128 + (meta_size + 63) / 64 * 64;
  std::uint64_t items, ids;
  std::memcpy(&ids, good.data() + 32, 8);
  std::memcpy(&items, good.data() + 40, 8);
  ASSERT_EQ(items, 8u);
  const std::size_t first_id = index + ((items + 1) * 8 + items * 4 + 63) / 64 * 64;
  ASSERT_EQ(good.size(), first_id + ids * 2);
  EXPECT_EQ(with(24, static_cast<std::uint64_t>(open_data(o)->vocab), 8), "");
  EXPECT_TRUE(holds(with(8, 2, 4), "version 2"));
  EXPECT_TRUE(holds(with(12, 9, 4), "kind 9"));
  EXPECT_TRUE(holds(with(16, 3, 4), "ids of 3 bytes"));
  EXPECT_TRUE(holds(with(20, 3, 4), "0 is wanted"));
  EXPECT_TRUE(holds(with(24, 77777, 8), "vocabulary of 77777"));
  EXPECT_TRUE(holds(with(32, ~std::uint64_t{0}, 8), "no file holds so many"));
  EXPECT_TRUE(holds(with(32, ids + 1, 8), "ids wants"));
  EXPECT_TRUE(holds(with(40, ~std::uint64_t{0}, 8), "are announced"));
  EXPECT_TRUE(holds(with(40, std::uint64_t{1} << 61, 8), "are announced"));
  EXPECT_TRUE(holds(with(48, 9, 8), "held out from 9 on"));
  EXPECT_TRUE(holds(with(64, ~std::uint64_t{0}, 8), "description of"));
  EXPECT_TRUE(holds(with(index, 1, 8), "do not begin with the first id"));
  EXPECT_TRUE(holds(with(index + 8, ids + 5, 8), "items overlap"));
  EXPECT_TRUE(holds(with(index + 72, 7, 4), "a label is 7"));
  EXPECT_TRUE(holds(with(index + 72, ~std::uint64_t{0}, 4), "a label is -1"));
  EXPECT_TRUE(holds(with(first_id, 60000, 2), "id 0 is 60000"));
}

// Whoever cuts or overwrites the file under a run is found out; other valid ids too.
TEST(PackedData, ChangesUnderARunAreErrors) {
  TempFolder folder;
  put_file(folder / "a.txt", long_text(400));
  const std::string file = folder / "p.bin";
  const DataOptions o{
      .path = folder / "a.txt", .vocab = {.kind = VocabKind::characters}, .batch = 1, .length = 16};
  write_packed(file, o, true);
  DataOptions p = o;
  p.path = file;
  const std::string good = file_bytes(file);
  const auto data = open_data(p);
  ASSERT_GT(data->held_out(), 0);
  const auto read_all = [&] {
    return error_of([&] {
      for (Dim i = 0; i < data->held_out(); ++i) data->held_out_batch(i);
    });
  };
  EXPECT_EQ(read_all(), "");
  {
    std::string other = good;  // two neighbours change places near the end: every id is still one
    std::size_t at = other.size() - 2;
    while (other.substr(at, 2) == other.substr(at - 2, 2)) at -= 2;
    std::swap_ranges(other.begin() + static_cast<std::ptrdiff_t>(at),
                     other.begin() + static_cast<std::ptrdiff_t>(at) + 2,
                     other.begin() + static_cast<std::ptrdiff_t>(at) - 2);
    std::fstream(file, std::ios::binary | std::ios::in | std::ios::out) << other;
  }
  EXPECT_TRUE(holds(read_all(), file + ": byte ") && holds(read_all(), "was changed while it was in use"))
      << read_all();
  std::fstream(file, std::ios::binary | std::ios::in | std::ios::out) << good;
  EXPECT_EQ(read_all(), "");
  std::filesystem::resize_file(file, 4096);
  EXPECT_TRUE(holds(read_all(), "was cut before byte")) << read_all();
}

}  // namespace
}  // namespace rapt
