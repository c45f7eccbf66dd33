// SPDX-License-Identifier: Apache-2.0
// Packed block formats: unpacked rows against dequantised blocks, bit for bit, and where bytes lie.
#include "rapt/tensor/pack.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "rapt/base/rng.h"
#include "rapt/tensor/formats.h"
#include "rapt/tensor/panel_kind.h"
#include "tests/block_formats.h"

namespace rapt {
namespace {

using test::block_formats;

// Any bytes are a matrix, with any scales but f16 infinities and NaN.
std::vector<std::byte> any_bytes(std::size_t n, std::uint64_t seed) {
  std::vector<std::byte> b(n);
  for (std::size_t i = 0; i < n; ++i) b[i] = static_cast<std::byte>(mix_key(seed, i) >> 32);
  return b;
}
void tame_scales(DType format, std::vector<std::byte>& b) {
  for (std::size_t at = 0; at < b.size(); at += size_of(format)) test::make_finite(format, b.data() + at);
}

TEST(Pack, UnpackedRowsAreTheDequantizedOnesBitForBit) {
  for (DType format : block_formats())
    for (Dim rows : {1, 31, 32, 33, 100})
      for (Dim cols : {Dim(info_of(format).block), Dim(3 * info_of(format).block)}) {
        std::vector<std::byte> blocks = any_bytes(bytes_of(format, rows * cols, "test"), 3);
        tame_scales(format, blocks);
        Weight w = make_weight("w", rows, cols, format, Packing::panels);
        // in two pieces where there is more than a panel, the last one first
        const std::size_t row_bytes = bytes_of(format, cols, "test");
        const Dim split = rows > kPanel ? kPanel : 0;
        pack_rows(w, split, rows - split,
                  std::span(blocks).subspan(static_cast<std::size_t>(split) * row_bytes));
        pack_rows(w, 0, split, std::span(blocks).first(static_cast<std::size_t>(split) * row_bytes));
        std::vector<float> want(static_cast<std::size_t>(rows * cols)), got(static_cast<std::size_t>(cols));
        dequantize(format, blocks, want);
        for (Dim r = 0; r < rows; ++r) {
          unpack_row(w, r, got);
          ASSERT_EQ(std::memcmp(got.data(), want.data() + r * cols, got.size() * 4), 0)
              << name_of(format) << " [" << rows << "," << cols << "] row " << r;
        }
      }
}

TEST(Pack, NumbersStandWhereTheGrammarSays) {
  // q4_0: one block a row; row r, column c is (r + c) % 16, scale r.
  std::vector<std::byte> blocks(33 * 18);
  for (int r = 0; r < 33; ++r) {
    const std::uint16_t d = to_f16(static_cast<float>(r));
    std::memcpy(&blocks[static_cast<std::size_t>(r * 18)], &d, 2);
    for (int i = 0; i < 16; ++i)
      blocks[static_cast<std::size_t>(r * 18 + 2 + i)] =
          static_cast<std::byte>((r + i) % 16 | (r + i + 16) % 16 << 4);
  }
  Weight w = make_weight("w", 33, 32, DType::q4_0, Packing::panels);
  pack_rows(w, 0, 33, blocks);
  EXPECT_EQ(w.bytes(), std::size_t{2 * 576});
  const auto* p = reinterpret_cast<const std::uint8_t*>(w.data.get());
  for (int r = 0; r < 33; ++r) {
    const std::uint8_t* panel = p + r / 32 * 576;
    std::uint16_t d;
    std::memcpy(&d, panel + r % 32 * 2, 2);
    EXPECT_EQ(from_f16(d), static_cast<float>(r));
    for (int c = 0; c < 32; ++c)
      EXPECT_EQ(panel[64 + c / 4 % 4 * 128 + r % 32 * 4 + c % 4] >> c / 16 * 4 & 15, (r + c) % 16)
          << r << " " << c;
  }
  for (int i = 2; i < 576; ++i) {  // lanes without a row stay zero
    if (i < 64 || (i - 64) % 128 >= 4) {
      EXPECT_EQ(p[576 + i], 0) << i;
    }
  }
}

TEST(Pack, SizesOfTheGrammar) {
  const int kBytes[] = {144, 160, 176, 192, 272, 164, 146, 148, 180, 274, 144, 144, 138,
                        138, 138, 146, 146, 138, 146, 138, 144, 144, 160, 144, 144};  // a row of 256
  const std::vector<DType> formats = block_formats();
  ASSERT_EQ(formats.size(), std::size(kBytes));
  for (std::size_t i = 0; i < std::size(kBytes); ++i) {
    EXPECT_EQ(packed_bytes(formats[i], 33, 512), static_cast<std::size_t>(2 * 32 * 2 * kBytes[i]))
        << name_of(formats[i]);
    const PanelKind k = panel_kind(formats[i]);
    EXPECT_EQ(k.stride() % 64, 0);
    EXPECT_EQ(k.columns(), static_cast<int>(info_of(formats[i]).block));
  }
}

TEST(Pack, Errors) {
  const auto message = [](auto&& f) -> std::string {
    try {
      f();
    } catch (const Error& e) {
      return e.what();
    }
    return "";
  };
  EXPECT_NE(message([] { packed_bytes(DType::q8_0, 4, 48); }).find("32"), std::string::npos);
  EXPECT_NE(message([] { make_weight("ffn", 4, 576, DType::q4_k, Packing::panels); }).find("256"),
            std::string::npos);
  EXPECT_THROW(packed_bytes(DType::f32, 4, 32), Error);
  EXPECT_THROW(packed_bytes(DType::q8_0, Dim{1} << 60, 1024), Error);
  Weight w = make_weight("w", 40, 32, DType::q8_0, Packing::panels);
  const std::vector<std::byte> blocks(40 * 34);
  EXPECT_THROW(pack_rows(w, 1, 39, std::span(blocks).first(39 * 34)), Error);  // not at a panel
  EXPECT_THROW(pack_rows(w, 0, 20, std::span(blocks).first(20 * 34)), Error);  // half a panel
  EXPECT_THROW(pack_rows(w, 32, 9, std::span(blocks).first(9 * 34)), Error);   // beyond the end
  EXPECT_THROW(pack_rows(w, 0, 40, std::span(blocks).first(39 * 34)), Error);  // too few bytes
  std::vector<float> row(32), wrong(31);
  EXPECT_THROW(unpack_row(w, 40, row), Error);
  EXPECT_THROW(unpack_row(w, -1, row), Error);
  EXPECT_THROW(unpack_row(w, 0, wrong), Error);
  const Weight rows = make_weight("r", 40, 32, DType::q8_0, Packing::rows);
  EXPECT_EQ(rows.bytes(), std::size_t{40 * 34});
  EXPECT_THROW(unpack_row(rows, 0, row), Error);
  EXPECT_NE(message([&] { (void)w.get(0, 0); }).find("unpack_row"), std::string::npos);
}

}  // namespace
}  // namespace rapt
