// SPDX-License-Identifier: Apache-2.0
// What a model learns from. A batch is a pure function of (seed, its number): there is no reader state to
// save, so a run resumes at a number. Sequences of a batch follow each other without padding.
#pragma once
#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "rapt/image/preprocess.h"
#include "rapt/recipe/recipe.h"
#include "rapt/run/batch.h"
#include "rapt/text/tokenizer/tokenizer.h"
#include "rapt/text/tokenizer/train.h"

namespace rapt {

enum class Objective { causal, masked, translation, classification };
const char* name_of(Objective objective);

struct TrainBatch {
  std::vector<std::int32_t> tokens;     // of the decoder, or of the only stack
  std::vector<std::int32_t> targets;    // per token, -1: does not count; classification: per sequence
  std::vector<Sequence> sequences;      // ids differ from batch to batch: they name rows in random numbers
  std::vector<std::int32_t> source;     // encoder-decoder
  std::vector<Sequence> source_sequences;
  Dim counted = 0;                      // targets that count
  std::vector<Picture> pictures = {};   // in the place of tokens: one for each sequence
  std::vector<std::shared_ptr<const void>> held = {};  // what the pictures look at
};

class TrainData {
 public:
  virtual ~TrainData() = default;
  // Training, in an order drawn from the seed; thread-safe.
  virtual TrainBatch batch(std::uint64_t number) const = 0;
  virtual Dim held_out() const = 0;                // batches of the held-out part, in their order; 0: none
  virtual TrainBatch held_out_batch(Dim number) const = 0;
  // How often the data was seen after so many batches.
  virtual double epochs(std::uint64_t batches) const = 0;
  virtual std::string about() const = 0;           // "1,003,854 tokens, 111,540 held out" for the log

  Objective objective = Objective::causal;
  std::shared_ptr<const Tokenizer> tokenizer;     // of a task: its letters
  std::optional<TokenizerFiles> tokenizer_files;  // what a model folder gets beside the weights
  Dim vocab = 0, classes = 0;                     // what the recipe must have at least
  std::int32_t start = -1, stop = -1, pad = -1;   // translation: first decoder token, end of a text
  std::vector<std::string> class_names;
  // Of everything that decides the batches: ids, options, seed.
  std::uint64_t identity = 0;
};

// How a model reads pictures: its patches, and what is done to a file before.
struct PictureOptions {
  PatchRecipe patches;
  ImageProcess process;
};

struct DataOptions {
  // "text.txt", a folder of texts, a folder with one of pictures for each class (where `pictures` is there),
  // "a.de,a.en" (parallel lines, plain or .gz), "label=file,label=file"
  // (classification), a file made by `rapt data`, or a task made in code: "copy", "sort", "date".
  std::string path, held_out;  // held_out "": `share` of path's end is kept apart
  // Causal and masked: the text itself; `path` is what messages call it, and no file is opened.
  std::shared_ptr<const std::string> text = {};
  double share = 0.1;  // 0 with held_out "": nothing is held out
  Objective objective = Objective::causal;
  // Made from the training part, unless `tokenizer` names one. Special tokens that the objective needs and
  // nobody named are added: causal <|endoftext|> (characters: only where there are documents); masked and
  // classification [PAD] [UNK] [CLS] [SEP] [MASK]; translation <pad> </s>, characters <unk>. Characters
  // without `unk` are taken from the held-out part too, which could not be read otherwise.
  VocabOptions vocab;
  std::string tokenizer;  // a folder or a GGUF file
  std::shared_ptr<const Tokenizer> own_tokenizer = {};  // … or one that is there
  std::uint64_t seed = 0;
  Dim batch = 12, length = 256;  // sequences of a batch and their longest length
  // > 0: translation, classification: about so many target tokens, similar lengths together
  Dim batch_tokens = 0;
  // Causal text, masked: any offset (nanoGPT), or each window once per epoch in a drawn order.
  enum class Windows { random, shuffled } windows = Windows::random;
  // Causal text: files (or what an empty line parts) are documents of their own; a window holds several,
  // which do not see each other.
  bool documents = false;
  // Causal text: every window begins with the vocabulary's begin token, and the tokenizer that a model gets
  // puts it before a text by itself: the first token is then always the same one.
  bool begin = false;
  double mask_share = 0.15;  // masked: 80 % become [MASK], 10 % another token, 10 % stay
  // tasks (or objective translation): source and target apart; else one sequence, and only the
  // answer counts
  bool encoder_decoder = false;
  std::optional<PictureOptions> pictures = {};  // the model reads pictures
  std::function<void(double done)> progress;
};

// As flags and logs have them, in the order of the values.
inline constexpr auto names_of(Objective) {
  return std::to_array<std::string_view>({"causal", "masked", "translation", "classification"});
}
inline constexpr auto names_of(VocabKind) {
  return std::to_array<std::string_view>({"characters", "bytes", "bpe"});
}
inline constexpr auto names_of(DataOptions::Windows) {
  return std::to_array<std::string_view>({"random", "shuffled"});
}

void check_data(const DataOptions& options);  // fails where a number is out of its range; reads nothing
std::unique_ptr<TrainData> open_data(const DataOptions& options);

// The packed binary form: a header (kind, vocabulary size, tokenizer files inside, counts), then ids as 16
// or 32 bits, mapped when read.
void write_packed(const std::string& path, const DataOptions& options, bool force);
bool is_packed(const std::string& path);  // by its first bytes; false where it cannot be read
Json packed_summary(const std::string& path);  // what it holds, after all of it was checked

}  // namespace rapt
