// SPDX-License-Identifier: Apache-2.0
// Models that read a text at once and write none: the class of a text, words for the masks in it. And what
// all readers share, embed_texts (generate.h) included: texts as the model wants them, many in one pass. No
// text's result depends on its neighbours. `taps` watch and change every text for itself.
#pragma once
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "rapt/load/checkpoint.h"
#include "rapt/use/engine.h"

namespace rapt {

// Texts as token ids in the model's frame ([CLS] … [SEP], BOS); what is longer than it reads is cut at its
// end, and counted.
struct FramedTexts {
  std::vector<std::vector<std::int32_t>> ids;
  Dim cut = 0;
};
FramedTexts frame_texts(const Checkpoint& checkpoint, std::span<const std::string> texts, const char* verb);

using ReadProgress = std::function<void(Dim done, Dim of)>;
// Reads all of them, whole texts side by side: `ask` says what is wanted of a text.
void read_whole(Device& device, const Checkpoint& checkpoint, const FramedTexts& texts,
                const std::function<void(std::size_t text, Request& request)>& ask,
                const ReadProgress& progress = {});

// What an engine is asked for one text that is framed already; `out`, which must outlive the request, gets
// the result: an embedding as embed_texts() gives it, or probabilities of classes as classify_texts().
Request embed_request(const Checkpoint& checkpoint, std::vector<std::int32_t> ids, std::vector<float>& out,
                      std::optional<Pool> pool = {}, std::optional<bool> normalize = {});
Request classify_request(const Checkpoint& checkpoint, std::vector<std::int32_t> ids,
                         std::vector<float>& out);
// A text that is read at once and of which nothing is kept; what is wanted of it is still to be said.
Request whole_request(std::vector<std::int32_t> ids);

// Probabilities [texts][classes] of a classifier: a softmax over its classes; of a single class, the
// logistic function. As the text-classification pipeline of transformers.
std::vector<std::vector<float>> classify_texts(Device& device, const Checkpoint& checkpoint,
                                               std::span<const std::string> texts,
                                               const ReadProgress& progress = {}, Dim* cut = nullptr,
                                               Taps* taps = nullptr);
// The name of a class, LABEL_3 where the model's files name none.
std::string class_name(const Checkpoint& checkpoint, std::size_t index);

// What a model of masked words puts in place of each mask, most probable first. A text holds the mask token
// as the vocabulary spells it ("[MASK]"), once or more; other special tokens in it stay text. As the
// fill-mask pipeline of transformers. Fails where a text has no mask or is longer than the model reads.
struct MaskGuess {
  std::int32_t id = 0;
  float probability = 0;
};
struct FilledMasks {
  std::vector<std::int32_t> ids;  // of the framed text, masks included
  std::vector<Dim> places;  // of the masks in it
  std::vector<std::vector<MaskGuess>> guesses;  // [masks][top]
};
std::vector<FilledMasks> fill_masks(Device& device, const Checkpoint& checkpoint,
                                    std::span<const std::string> texts, Dim top,
                                    const ReadProgress& progress = {}, Taps* taps = nullptr);
// A token as the pipeline shows it: its text, and that a piece continues a word ("##ing").
std::string guess_text(const Tokenizer& tokenizer, std::int32_t id);
// The text with a token in place of one mask. Special tokens and unknown words are left out, unless other
// masks stand there that are to be seen; padding always.
std::string filled_text(const Tokenizer& tokenizer, const FilledMasks& filled, std::size_t mask,
                        std::int32_t id);

}  // namespace rapt
