// SPDX-License-Identifier: Apache-2.0
// Vocabularies made from text: every character, every byte, or byte-level BPE. Each comes out as the files a
// folder holds (tokenizer.json, tokenizer_config.json), which our own reader and Hugging Face tokenizers
// load alike.
#pragma once
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "rapt/text/tokenizer/write.h"

namespace rapt {

enum class VocabKind { characters, bytes, bpe };

struct VocabOptions {
  VocabKind kind = VocabKind::bpe;
  Dim size = 4096;                    // bpe: tokens in all, specials included
  Dim least = 2;                      // bpe: a pair seen less often is not merged
  bool lower = false;                 // bpe: text is lower-cased first (NFC otherwise untouched)
  // Special tokens, first in the vocabulary in this order (pad is 0, as most models have it); one text may
  // have several roles. Absent roles are "".
  std::string pad, unk, cls, sep, mask, bos, eos;
  // What the files put around a text: cls and sep always, where both are there; bos and eos only where
  // asked for (encoder-decoders expect eos behind a source; GPT-2 expects nothing).
  bool add_bos = false, add_eos = false;
  std::function<void(Dim done, Dim of)> progress;
};

// Texts may be views into one large text; they are UTF-8 (bytes: anything). Character vocabularies hold the
// characters of the texts in code-point order; one not seen becomes `unk`, or is an error of the encoder
// where there is none. Bytes: 256 tokens in the order of GPT-2's printable stand-ins. BPE: GPT-2's
// splitting, then the pair with the highest count is merged, ties by the smaller pair of ids: what
// tokenizers' BpeTrainer does, to the token.
TokenizerFiles train_vocabulary(std::span<const std::string_view> texts, const VocabOptions& options);

}  // namespace rapt
