// SPDX-License-Identifier: Apache-2.0
// Texts packed by zlib must come back; cuts, damage, bombs and texts beyond the limit must be refused.
#include "rapt/io/gzip.h"

#include <gtest/gtest.h>
#include <zlib.h>

#include "tests/tools.h"

namespace rapt {
namespace {

using test::error_of;
using test::holds;

constexpr std::uint64_t kMost = std::uint64_t{1} << 30;

std::string gzip(std::string_view text) {
  z_stream z{};
  EXPECT_EQ(deflateInit2(&z, 6, Z_DEFLATED, 16 + MAX_WBITS, 8, Z_DEFAULT_STRATEGY), Z_OK);
  std::string out(deflateBound(&z, static_cast<uLong>(text.size())) + 64, '\0');
  z.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  z.avail_in = static_cast<uInt>(text.size());
  z.next_out = reinterpret_cast<Bytef*>(out.data());
  z.avail_out = static_cast<uInt>(out.size());
  EXPECT_EQ(deflate(&z, Z_FINISH), Z_STREAM_END);
  out.resize(z.total_out);
  deflateEnd(&z);
  return out;
}

std::string long_text() {
  std::string text;
  for (int i = 0; i < 60000; ++i) text += std::to_string(i * 7919 % 10007) + (i % 11 ? " " : "\n");
  return text;
}

TEST(Gzip, TextComesBack) {
  for (const std::string& text :
       {std::string(), std::string("one line\n"), std::string(3, '\0'), long_text()}) {
    EXPECT_EQ(gunzip(gzip(text), kMost, "x.gz"), text);
  }
}

TEST(Gzip, MembersFollowEachOther) {
  EXPECT_EQ(gunzip(gzip("first\n") + gzip("") + gzip("second\n"), kMost, "x.gz"), "first\nsecond\n");
  EXPECT_EQ(gunzip(gzip("padded") + std::string(512, '\0'), kMost, "x.gz"), "padded");
}

TEST(Gzip, NeverMoreThanAllowed) {
  const std::string text = long_text(), packed = gzip(text);
  EXPECT_EQ(gunzip(packed, text.size(), "x.gz"), text);
  EXPECT_TRUE(
      holds(error_of([&] { gunzip(packed, text.size() - 1, "x.gz"); }), "x.gz: unpacks to more than"));
  const std::string bomb = gzip(std::string(std::size_t{1} << 24, 'a'));
  EXPECT_LT(bomb.size(), std::size_t{1} << 16);
  EXPECT_TRUE(holds(error_of([&] { gunzip(bomb, 1 << 20, "x.gz"); }), "more than 1 MiB"));
  // Many small members add up.
  EXPECT_TRUE(holds(error_of([&] { gunzip(gzip("12345") + gzip("67890"), 9, "x.gz"); }), "more than 9 B"));
}

TEST(Gzip, BombsAreRefused) {
  const std::string zeros(std::size_t{17} << 20, 'a');
  EXPECT_TRUE(holds(error_of([&] { gunzip(gzip(zeros), std::uint64_t{1} << 32, "b.gz"); }),
                    "b.gz: unpacks to more than 200 times its size"));
  const std::string fine(std::size_t{15} << 20, 'a');
  EXPECT_EQ(gunzip(gzip(fine), std::uint64_t{1} << 32, "f.gz"), fine);
}

TEST(Gzip, EveryCutIsAnError) {
  const std::string packed = gzip("a short text, a short text, and its end");
  for (std::size_t n = 2; n < packed.size(); ++n) {
    const std::string message = error_of([&] { gunzip(packed.substr(0, n), kMost, "cut.gz"); });
    EXPECT_TRUE(holds(message, "cut.gz: ends in the middle of the compressed text")) << n << ": " << message;
  }
  EXPECT_TRUE(
      holds(error_of([] { gunzip("plain", kMost, "p.gz"); }), "p.gz: does not begin like a gzip file"));
  EXPECT_TRUE(holds(error_of([] { gunzip("", kMost, "p.gz"); }), "does not begin like"));
}

TEST(Gzip, DamageIsFound) {
  const std::string packed = gzip(long_text());
  const auto with = [&](std::size_t i, char flip) {
    std::string bytes = packed;
    bytes[i] = static_cast<char>(bytes[i] ^ flip);
    return error_of([&] { gunzip(bytes, kMost, "d.gz"); });
  };
  EXPECT_TRUE(holds(with(packed.size() - 6, 1), "incorrect data check"));    // crc32
  EXPECT_TRUE(holds(with(packed.size() - 2, 1), "incorrect length check"));
  EXPECT_TRUE(holds(with(2, 7), "d.gz: byte "));                             // an unknown method
  for (std::size_t i = 10; i < packed.size(); i += packed.size() / 97) EXPECT_NE(with(i, 64), "") << i;
  const std::string garbage = error_of([&] { gunzip(gzip("text") + "garbage", kMost, "g.gz"); });
  EXPECT_TRUE(holds(garbage, "7 bytes follow the compressed text")) << garbage;
}

TEST(Gzip, FilesByTheirFirstBytes) {
  const test::TempFolder folder;
  test::put_file(folder / "a.txt", "plain text\n");
  test::put_file(folder / "b.txt", gzip("packed, whatever the name says\n"));
  EXPECT_EQ(read_text_or_gz(folder / "a.txt"), "plain text\n");
  EXPECT_EQ(read_text_or_gz(folder / "b.txt"), "packed, whatever the name says\n");
  EXPECT_TRUE(holds(error_of([&] { read_text_or_gz(folder / "c.txt"); }), "no such file"));
}

}  // namespace
}  // namespace rapt
