// SPDX-License-Identifier: Apache-2.0
// What the kinds of training data share: ids in memory or in a file, orders drawn without state,
// vocabularies. Interface: data.h.
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "rapt/base/rng.h"
#include "rapt/io/reader.h"
#include "rapt/nn/patches.h"
#include "rapt/use/data.h"

namespace rapt::data {

// Token ids, in memory or read from a packed file with 16 or 32 bits each. Every block that is read is
// summed again: a file that was cut or written to after it was opened is an error, never another text.
class Ids {
 public:
  static constexpr std::uint64_t kBlock = 4096;  // bytes
  struct File {
    MappedFile file;
    std::uint64_t offset = 0;             // of the first id
    std::uint64_t width = 2;              // bytes of an id
    std::vector<std::uint32_t> sums;      // of the bytes before each block, and of all
  };
  Ids() = default;
  explicit Ids(std::vector<std::int32_t> ids);
  Ids(File file, Dim count);
  Dim size() const { return size_; }
  void append_to(std::vector<std::int32_t>& out, Dim first, Dim count) const;  // thread-safe
  std::uint32_t sum() const;  // of the ids, however they are stored

 private:
  std::shared_ptr<const std::vector<std::int32_t>> own_;
  std::shared_ptr<const File> file_;
  Dim size_ = 0;
};

// Everything that was read, as ids. Items: documents of a text; source and target in turn; lines.
struct Corpus {
  enum class Kind : std::uint32_t { text = 1, pairs = 2, lines = 3 };
  Kind kind = Kind::text;
  Ids ids;
  std::vector<std::uint64_t> starts;  // where items begin, and the end of the last
  std::vector<std::int32_t> labels;   // lines: of each
  // Held out is, of a text: from this id on; else: from this pair or line on.
  Dim split = 0;
  std::shared_ptr<const Tokenizer> tokenizer;
  TokenizerFiles files;
  std::vector<std::string> class_names;
  Dim empty = 0;                      // pairs or lines left out because there is no text

  Dim items() const { return static_cast<Dim>(starts.size()) - 1; }
  Dim start(Dim item) const { return static_cast<Dim>(starts[static_cast<std::size_t>(item)]); }
  Dim length(Dim item) const { return start(item + 1) - start(item); }
};

Corpus read_text(const DataOptions& options);
Corpus read_pairs(const DataOptions& options);
Corpus read_lines(const DataOptions& options);
Corpus corpus_to_pack(const DataOptions& options);
Corpus read_packed(const std::string& path, const std::function<void(double)>& progress);
std::unique_ptr<TrainData> text_data(Corpus corpus, const DataOptions& options);  // causal and masked
// Translation and classification.
std::unique_ptr<TrainData> items_data(Corpus corpus, const DataOptions& options);
std::unique_ptr<TrainData> task_data(const DataOptions& options);
std::unique_ptr<TrainData> picture_data(const DataOptions& options);
bool is_task(const std::string& path);

// The tokenizer that options name, or a vocabulary made from texts (see DataOptions::vocab).
void choose_tokenizer(Corpus& corpus, const DataOptions& options, std::span<const std::string_view> texts,
                      std::span<const std::string_view> held_out);
// Ids of a text of any size: in parts where that gives the same.
std::vector<std::int32_t> encode_long(const Tokenizer& tokenizer, std::string_view text);
// A file as UTF-8 text without its byte order mark; .gz is unpacked.
std::string text_file(const std::string& path, const DataOptions& options);
// A text that is there: without its byte order mark; fails where it is not UTF-8 and has to be.
std::string checked_text(std::string text, const std::string& path, const DataOptions& options);
// Without their ends; nothing behind the last end.
std::vector<std::string_view> lines_of(std::string_view text);
std::vector<std::string> split_list(const std::string& text, char at);
// What every kind of data sets from its corpus.
void take_corpus(TrainData& data, const Corpus& corpus, const DataOptions& options);
// The first token of a decoder: bos, else pad, else eos.
std::int32_t start_of(const Tokenizer& tokenizer);

// 64 random bits of a key and a counter.
inline std::uint64_t draw(std::uint64_t key, std::uint64_t low, std::uint64_t high = 0) {
  const Random4 r = philox(key, low, high);
  return std::uint64_t{r[0]} << 32 | r[1];
}
enum Purpose : std::uint64_t { kOrder = 1, kOffset, kMask, kHeldMask, kJitter, kTask, kHeldTask };
inline std::uint64_t key_of(std::uint64_t seed, Purpose purpose) {
  return mix_key(mix_key(seed, 0x64617461), purpose);
}

// An order of 0 … n-1 drawn from a key, place by place: a Feistel network over the next even number of bits;
// what falls outside goes on.
class Permutation {
 public:
  Permutation(std::uint64_t n, std::uint64_t key);
  std::uint64_t operator()(std::uint64_t i) const;

 private:
  static constexpr int kRounds = 7;
  std::uint64_t n_, mask_;
  int half_;
  std::uint64_t keys_[kRounds];
};

// Names of sequences: batch and place; held-out ones have names of their own.
constexpr std::uint64_t kHeldOutName = std::uint64_t{1} << 63;
constexpr Dim kMostSequences = Dim{1} << 20;
inline std::uint64_t sequence_name(std::uint64_t batch, std::size_t place) { return (batch << 20) + place; }

}  // namespace rapt::data
