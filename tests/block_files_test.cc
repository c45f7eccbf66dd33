// SPDX-License-Identifier: Apache-2.0
// Files of block formats as models: nvfp4 with the scale beside each tensor, and blocks or scales that are
// wrong.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <map>
#include <tuple>

#include "rapt/base/rng.h"
#include "rapt/io/gguf.h"
#include "rapt/load/checkpoint.h"
#include "rapt/tensor/formats.h"
#include "rapt/tensor/pack.h"
#include "tests/block_formats.h"
#include "tests/hostile/bytes.h"
#include "tests/tools.h"

namespace rapt::test {
namespace {

struct Extra {  // one more tensor
  std::string name;
  std::vector<std::uint64_t> sizes;
  std::uint32_t type = 0;
  std::string bytes = {};
};

// A Llama of one layer, rows of 256; its matrices but the table are of one type.
struct File {
  static constexpr std::uint64_t kWidth = 256, kFfn = 512, kVocab = 6;
  std::string bytes;
  std::map<std::string, std::size_t> at;  // where a tensor begins

  File(DType format, const std::vector<Extra>& extras) {
    const std::uint32_t type = gguf_type_of(format);
    GgufBytes g;
    g.keys = {key("general.architecture", kText, gguf_text("llama")),
              key_u32("llama.embedding_length", kWidth),
              key_u32("llama.block_count", 1),
              key_u32("llama.attention.head_count", 4),
              key_u32("llama.attention.head_count_kv", 4),
              key_u32("llama.feed_forward_length", kFfn),
              key_u32("llama.context_length", 16),
              key_u32("llama.rope.dimension_count", 64),
              key("llama.attention.layer_norm_rms_epsilon", kF32, raw(1e-5f)),
              key("tokenizer.ggml.model", kText, gguf_text("no_vocab"))};
    const auto add = [&](const std::string& name, const std::vector<std::uint64_t>& sizes, std::uint32_t t,
                         std::size_t size) {
      g.tensors.push_back(tensor(name, sizes, t, g.data));
      at[name] = g.data;
      g.data += (size + 31) / 32 * 32;
    };
    std::vector<std::pair<std::string, std::size_t>> matrices;
    const auto vector = [&](const std::string& name) { add(name, {kWidth}, 0, 4 * kWidth); };
    const auto matrix = [&](const std::string& name, std::uint64_t cols, std::uint64_t rows) {
      matrices.emplace_back(name, bytes_of(format, static_cast<Dim>(cols * rows), name));
      add(name, {cols, rows}, type, matrices.back().second);
    };
    add("token_embd.weight", {kWidth, kVocab}, 0, 4 * kWidth * kVocab);
    vector("output_norm.weight");
    vector("blk.0.attn_norm.weight");
    vector("blk.0.ffn_norm.weight");
    for (const char* name : {"q", "k", "v", "output"})
      matrix(concat("blk.0.attn_", name, ".weight"), kWidth, kWidth);
    matrix("blk.0.ffn_gate.weight", kWidth, kFfn);
    matrix("blk.0.ffn_up.weight", kWidth, kFfn);
    matrix("blk.0.ffn_down.weight", kFfn, kWidth);
    for (const Extra& e : extras) add(e.name, e.sizes, e.type, std::max(e.bytes.size(), std::size_t{4}));
    bytes = g.make();
    for (auto& [name, place] : at) place += bytes.size() - g.data;
    const auto begin = reinterpret_cast<std::byte*>(bytes.data());
    for (const auto& [name, size] : matrices)
      for (std::size_t b = 0; b < size; b += size_of(format)) {
        std::byte* block = begin + at[name] + b;
        for (std::size_t i = 0; i < size_of(format); ++i)
          block[i] = static_cast<std::byte>(mix_key(b + i, name.size()) >> 40);
        set_scales(format, block, 0.02f, 0.01f);
      }
    for (const Extra& e : extras) bytes.replace(at[e.name], e.bytes.size(), e.bytes);
  }
};

std::string both_errors(const std::string& path, const std::string& bytes) {
  put_file(path, bytes);
  const std::string a = error_of([&] { check_checkpoint(path); }),
                    b = error_of([&] { open_checkpoint(path); });
  EXPECT_EQ(a, b);
  return a;
}

TEST(BlockFiles, TheScaleBesideATensorMultipliesIt) {
  const TempFolder temp;
  const std::string path = temp / "m.gguf";
  for (const DType format : {DType::nvfp4, DType::tq2_0}) {  // BitNet has them too
    put_file(path, File(format, {{"blk.0.attn_v.scale", {1}, 0, raw(0.37f)},
                                 {"blk.0.ffn_down.scale", {1}, 0, raw(-2.5f)},
                                 {"blk.0.attn_v.input_scale", {1}, 0, raw(std::nanf(""))}})
                       .bytes);
    EXPECT_GE(check_checkpoint(path).size(), 4u);
    const Checkpoint packed = open_checkpoint(path), plain = open_checkpoint(path, {.matrices = DType::f32});
    const GgufFile file = GgufFile::open(path);
    for (const auto& [ours, theirs, gain] : {std::tuple{"self.v", "attn_v", 0.37f},
                                             {"ffn.down", "ffn_down", -2.5f},
                                             {"ffn.up", "ffn_up", 1.0f}}) {
      const Weight& w = packed.model->weight(concat("decoder.0.", ours, ".weight"));
      EXPECT_EQ(w.format, format);
      EXPECT_EQ(w.gain, gain) << theirs;
      const std::vector<float> all = file.tensors.find(concat("blk.0.", theirs, ".weight"))->values();
      std::vector<float> row(static_cast<std::size_t>(w.cols));
      const std::span<const float> want = std::span(all).subspan(7 * row.size(), row.size());
      unpack_row(w, 7, row);
      for (std::size_t c = 0; c < row.size(); ++c) ASSERT_EQ(row[c], want[c] * gain) << theirs;
      const Weight& exact = plain.model->weight(w.name);
      EXPECT_EQ(exact.gain, 1);
      for (Dim c = 0; c < w.cols; ++c) ASSERT_EQ(exact.get(7, c), want[static_cast<std::size_t>(c)] * gain);
    }
    // A folder has no scales beside tensors; a file keeps them, whatever becomes of the tensor.
    write_checkpoint(path, temp / "folder", {.force = true});
    write_checkpoint(path, temp / "q8.gguf", {.type = DType::q8_0, .force = true});
    write_checkpoint(path, temp / "same.gguf", {.force = true});
    EXPECT_EQ(GgufFile::open(temp / "q8.gguf").tensors.find("blk.0.attn_v.weight")->dtype(), DType::q8_0);
    EXPECT_EQ(GgufFile::open(temp / "same.gguf").tensors.find("blk.0.attn_v.weight")->dtype(), format);
    for (const char* copy : {"folder", "q8.gguf", "same.gguf"}) {
      const Checkpoint again = open_checkpoint(temp / copy, {.matrices = DType::f32});
      for (const char* ours : {"self.v", "ffn.down", "ffn.up", "self.q"}) {
        const std::string name = concat("decoder.0.", ours, ".weight");
        const Weight &x = plain.model->weight(name), &y = again.model->weight(name);
        for (Dim c = 0; c < x.cols; ++c) ASSERT_NEAR(x.get(9, c), y.get(9, c), 0.01) << copy << " " << ours;
      }
    }
  }
}

TEST(BlockFiles, WrongScalesBesideTensors) {
  const TempFolder temp;
  const std::string path = temp / "m.gguf";
  const auto said = [&](const Extra& e) { return both_errors(path, File(DType::nvfp4, {e}).bytes); };
  EXPECT_EQ(said({"blk.0.attn_v.scale", {1}, 0, raw(1.0f)}), "");
  EXPECT_EQ(said({"blk.0.attn_v.scale", {1}, 1, raw(std::uint16_t{0x3C00})}), "");  // f16
  const struct {
    Extra extra;
    const char* words;
  } kCases[] = {
      {{"blk.0.attn_v.scale", {2}, 0, std::string(8, '\1')}, "has shape [2]; it multiplies the numbers of"},
      {{"blk.0.attn_v.scale", {256}, 0, std::string(1024, '\1')}, "has shape [256]; it multiplies"},
      {{"blk.0.attn_v.scale", {1, 2}, 0, std::string(8, '\1')}, "has shape [2,1]; it multiplies"},
      {{"blk.0.ffn_up.scale", {256, 512}, 0, std::string(524288, '\1')}, "has shape [512,256]"},
      {{"blk.0.ffn_up.scale", {32}, 8, std::string(34, '\1')}, "has shape [32]"},
      {{"blk.0.ffn_up.scale", {1}, 26, u32(3)}, "holds i32; what multiplies a matrix is f32"},
      {{"blk.0.ffn_up.scale", {1}, 24, "\1"}, "holds i8"},
      {{"blk.0.ffn_down.scale", {1}, 0, raw(std::nanf(""))}, "'blk.0.ffn_down.scale' is nan; it multiplies"},
      {{"blk.0.ffn_down.scale", {1}, 0, raw(INFINITY)}, "is inf; it multiplies every number"},
      {{"blk.0.ffn_down.scale", {1}, 0, raw(-INFINITY)}, "is -inf; it multiplies"},
      {{"blk.0.ffn_down.scale", {1}, 1, raw(std::uint16_t{0x7E00})}, "is nan; it multiplies"},
      {{"blk.0.ffn_down.scale", {1}, 30, raw(std::uint16_t{0x7F80})}, "is inf; it multiplies"},
      {{"blk.0.attn_norm.scale", {1}, 0, raw(1.0f)}, "'blk.0.attn_norm.scale' [1] is read by nothing"},
      {{"blk.1.attn_v.scale", {1}, 0, raw(1.0f)}, "is read by nothing"},
      {{"blk.0.attn_v.weight.scale", {1}, 0, raw(1.0f)}, "is read by nothing"},
      {{"blk.0.attn_w.input_scale", {1}, 0, raw(1.0f)}, "is read by nothing"},
      {{".scale", {1}, 0, raw(1.0f)}, "is read by nothing"},
  };
  for (const auto& [extra, words] : kCases) {
    const std::string text = said(extra);
    EXPECT_TRUE(text.starts_with(path) && holds(text, words)) << words << ": says: " << text;
  }
}

// NaN and infinity where a block has its scale: `check` names the tensor, the row and the column.
TEST(BlockFiles, ScalesOfBlocksThatAreNoNumbers) {
  const TempFolder temp;
  const std::string path = temp / "m.gguf";
  int tried = 0;
  for (const DType format : block_formats()) {
    if (format < DType::mxfp4) continue;
    for (const std::uint16_t wrong : {0x7E00, 0x7C00, 0xFC00}) {
      File file(format, {});
      EXPECT_EQ(error_of([&] { put_file(path, file.bytes), check_checkpoint(path); }), "") << name_of(format);
      // The second block of the fourth row.
      const std::size_t row = bytes_of(format, File::kFfn, "row");
      char* block = file.bytes.data() + file.at["blk.0.ffn_down.weight"] + 3 * row + size_of(format);
      if (format == DType::nvfp4) continue;  // every byte is a finite scale
      if (format == DType::mxfp4) *block = '\xFF', block[1] = '\x77';
      else if (format == DType::iq1_m)
        for (int i = 0; i < 4; ++i)
          block[49 + 2 * i] = static_cast<char>((block[49 + 2 * i] & 15) | (wrong >> 4 * i & 15) << 4);
      else std::memcpy(block + halves_of(format)[0], &wrong, 2);
      put_file(path, file.bytes);
      const std::string said = error_of([&] { check_checkpoint(path); });
      EXPECT_TRUE(said.starts_with(path) &&
                  holds(said, "tensor 'blk.0.ffn_down.weight' [256,512]: row 3, column") &&
                  (holds(said, "is nan") || holds(said, "is -nan") || holds(said, "inf")))
          << name_of(format) << ": says: " << said;
      open_checkpoint(path);  // no signal
      ++tried;
    }
  }
  EXPECT_EQ(tried, 14 * 3);
}

}  // namespace
}  // namespace rapt::test
