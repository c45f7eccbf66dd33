// SPDX-License-Identifier: Apache-2.0
// Files whose sizes all agree, so that every reader of bytes takes them, and whose meaning is wrong: the
// loader must refuse them.
#include <gtest/gtest.h>

#include "rapt/load/checkpoint.h"
#include "rapt/load/family.h"
#include "tests/hostile/bytes.h"
#include "tests/tools.h"

namespace rapt::test {
namespace {

// A Llama of one layer, two heads of `head_dim` over one key head, numbers as small as they get.
std::string llama_gguf(Dim head_dim, std::uint32_t turned) {
  const auto width = static_cast<std::uint64_t>(2 * head_dim), keys = static_cast<std::uint64_t>(head_dim);
  constexpr std::uint64_t kVocab = 6, kFfn = 8;
  GgufBytes g;
  g.keys = {key("general.architecture", kText, gguf_text("llama")),
            key_u32("llama.embedding_length", static_cast<std::uint32_t>(width)),
            key_u32("llama.block_count", 1),
            key_u32("llama.attention.head_count", 2),
            key_u32("llama.attention.head_count_kv", 1),
            key_u32("llama.feed_forward_length", kFfn),
            key_u32("llama.context_length", 16),
            key_u32("llama.rope.dimension_count", turned),
            key("llama.attention.layer_norm_rms_epsilon", kF32, raw(1e-5f)),
            key("tokenizer.ggml.model", kText, gguf_text("no_vocab"))};
  const auto add = [&](const char* name, const std::vector<std::uint64_t>& sizes) {
    g.tensors.push_back(tensor(name, sizes, 0, g.data));
    std::size_t bytes = 4;
    for (const std::uint64_t n : sizes) bytes *= n;
    g.data += (bytes + 31) / 32 * 32;
  };
  add("token_embd.weight", {width, kVocab});
  add("output_norm.weight", {width});
  add("blk.0.attn_norm.weight", {width});
  add("blk.0.attn_q.weight", {width, width});
  add("blk.0.attn_k.weight", {width, keys});
  add("blk.0.attn_v.weight", {width, keys});
  add("blk.0.attn_output.weight", {width, width});
  add("blk.0.ffn_norm.weight", {width});
  add("blk.0.ffn_gate.weight", {width, kFfn});
  add("blk.0.ffn_up.weight", {width, kFfn});
  add("blk.0.ffn_down.weight", {kFfn, width});
  return g.make();
}

TEST(HostileModel, OddHeadsHaveNoOrderInPairs) {
  const TempFolder temp;
  const std::string path = temp / "m.gguf";
  put_file(path, llama_gguf(6, 4));
  EXPECT_EQ(open_checkpoint(path).model->recipe.width, 12);  // the file is right but for its odd heads
  for (const Dim head_dim : {5, 1}) {
    put_file(path, llama_gguf(head_dim, head_dim == 5 ? 4 : 1));
    for (const std::string& said :
         {error_of([&] { check_checkpoint(path); }), error_of([&] { open_checkpoint(path); })})
      EXPECT_TRUE(said.starts_with(path) && (head_dim == 1 || holds(said, "heads of 5 channels have none")))
          << said;
  }
}

TEST(HostileModel, RowsStayWithinTheirHead) {
  TensorUse use;
  use.head_dim = 6, use.first = 12;
  std::vector<Dim> rows;
  for (Dim r = 0; r < 12; ++r) rows.push_back(use.row(r));
  EXPECT_EQ(rows, (std::vector<Dim>{12, 14, 16, 13, 15, 17, 18, 20, 22, 19, 21, 23}));
  use.head_dim = 5;
  EXPECT_EQ(use.row(1), 14);
  EXPECT_THROW(use.row(4), Error);  // would be the first of the next head
}

}  // namespace
}  // namespace rapt::test
