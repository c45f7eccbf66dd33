// SPDX-License-Identifier: Apache-2.0
// What all kinds of data share: ids in memory or a file, the order of epochs, the tokenizer, the identity.
#include "rapt/use/data.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <filesystem>

#include "rapt/base/memory.h"
#include "rapt/base/text.h"
#include "rapt/io/fs.h"
#include "rapt/io/gzip.h"
#include "rapt/io/reader.h"
#include "rapt/text/tokenizer/spec.h"
#include "rapt/text/tokenizer/train_bpe.h"
#include "rapt/use/data_parts.h"

namespace rapt {

const char* name_of(Objective objective) {
  switch (objective) {
    case Objective::causal: return "causal";
    case Objective::masked: return "masked";
    case Objective::translation: return "translation";
    case Objective::classification: return "classification";
  }
  return "";
}

namespace data {

Ids::Ids(std::vector<std::int32_t> ids)
    : own_(std::make_shared<const std::vector<std::int32_t>>(std::move(ids))),
      size_(static_cast<Dim>(own_->size())) {}

Ids::Ids(File file, Dim count) : file_(std::make_shared<const File>(std::move(file))), size_(count) {}

void Ids::append_to(std::vector<std::int32_t>& out, Dim first, Dim count) const {
  if (first < 0 || count < 0 || first > size_ || count > size_ - first)
    fail("data: ", count, " ids from ", first, " on are wanted, there are ", size_);
  if (count == 0) return;
  if (own_) {
    out.insert(out.end(), own_->begin() + first, own_->begin() + first + count);
    return;
  }
  const File& f = *file_;
  const std::uint64_t all = static_cast<std::uint64_t>(size_) * f.width,
                      begin = static_cast<std::uint64_t>(first) * f.width,
                      end = begin + static_cast<std::uint64_t>(count) * f.width,
                      from = begin / kBlock * kBlock,
                      to = std::min(all, (end + kBlock - 1) / kBlock * kBlock);
  std::vector<std::byte> bytes(static_cast<std::size_t>(to - from));
  f.file.copy(f.offset + from, bytes);
  for (std::uint64_t at = from; at < to; at += kBlock) {
    const auto block = std::span(bytes).subspan(static_cast<std::size_t>(at - from),
                                                static_cast<std::size_t>(std::min(kBlock, to - at)));
    const std::size_t k = static_cast<std::size_t>(at / kBlock);
    if (crc32(block, f.sums[k]) != f.sums[k + 1])
      fail(f.file.path(), ": byte ", f.offset + at,
           ": was changed while it was in use; leave it alone and start the run again");
  }
  const std::byte* at = bytes.data() + (begin - from);
  for (Dim i = 0; i < count; ++i, at += f.width) {
    std::uint16_t narrow = 0;
    std::int32_t id = 0;
    if (f.width == 2) std::memcpy(&narrow, at, sizeof narrow), id = narrow;
    else std::memcpy(&id, at, sizeof id);
    out.push_back(id);
  }
}

std::uint32_t Ids::sum() const {
  std::uint32_t sum = 0;
  std::vector<std::int32_t> part;
  for (Dim at = 0; at < size_; at += 65536) {
    part.clear();
    append_to(part, at, std::min<Dim>(65536, size_ - at));
    sum = crc32(std::as_bytes(std::span(part)), sum);
  }
  return sum;
}

Permutation::Permutation(std::uint64_t n, std::uint64_t key) : n_(n) {
  half_ = (static_cast<int>(std::bit_width(n > 1 ? n - 1 : std::uint64_t{1})) + 1) / 2;
  mask_ = (std::uint64_t{1} << half_) - 1;
  for (int r = 0; r < kRounds; ++r) keys_[r] = draw(key, static_cast<std::uint64_t>(r), 0x6F72646572);
}

std::uint64_t Permutation::operator()(std::uint64_t i) const {
  do {
    std::uint64_t left = i >> half_, right = i & mask_;
    for (const std::uint64_t k : keys_) {
      std::uint64_t z = (right ^ k) * 0xBF58476D1CE4E5B9u;
      z = (z ^ z >> 29) * 0x94D049BB133111EBu;
      const std::uint64_t next = left ^ ((z ^ z >> 32) & mask_);
      left = right;
      right = next;
    }
    i = left << half_ | right;
  } while (i >= n_);
  return i;
}

std::int32_t start_of(const Tokenizer& t) { return t.bos >= 0 ? t.bos : t.pad >= 0 ? t.pad : t.eos; }

std::vector<std::string> split_list(const std::string& text, char at) {
  std::vector<std::string> out(1);
  for (const char c : text) {
    if (c == at) out.emplace_back();
    else out.back() += c;
  }
  return out;
}

std::vector<std::string_view> lines_of(std::string_view text) {
  std::vector<std::string_view> out;
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    std::string_view line = text.substr(0, end);
    if (line.ends_with('\r')) line.remove_suffix(1);
    out.push_back(line);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  }
  return out;
}

std::string text_file(const std::string& path, const DataOptions& options) {
  // The text, four bytes for each of its tokens, and what is made on the way: ten times its size where
  // every byte is a token.
  constexpr std::uint64_t kMost = std::uint64_t{1} << 32, kTimes = 10, kAlways = std::uint64_t{64} << 20;
  const std::uint64_t free = available_memory(),
                      most = free == 0 ? kMost : std::clamp(free / kTimes, kAlways, kMost);
  std::error_code ignored;
  if (const auto size = std::filesystem::file_size(path, ignored); !ignored && size > most)
    fail(path, ": has ", byte_count(static_cast<double>(size)), ", and learning from a text takes up to ",
         kTimes, " times its size of memory, of which ", byte_count(static_cast<double>(free)),
         " are free; take a part of it");
  return checked_text(read_text_or_gz(path, most), path, options);
}

std::string checked_text(std::string text, const std::string& path, const DataOptions& options) {
  if (text.starts_with("\xEF\xBB\xBF")) text.erase(0, 3);
  const bool named = !options.tokenizer.empty() || options.own_tokenizer,
             bytes = !named && options.vocab.kind == VocabKind::bytes;
  if (!bytes && !valid_utf8(text)) {
    const std::string what =
        foreign_format(std::as_bytes(std::span(text.data(), std::min<std::size_t>(text.size(), 512))));
    fail(path, ": is no UTF-8 text", what.empty() ? "" : ": it looks like ", what,
         what.empty() ? "; convert it (iconv -t UTF-8), or learn its bytes with a vocabulary of bytes" : "");
  }
  return text;
}

namespace {

// Roles that an objective cannot do without.
VocabOptions with_specials(VocabOptions v, const DataOptions& o) {
  const auto set = [](std::string& role, const char* text) {
    if (role.empty()) role = text;
  };
  switch (o.objective) {
    case Objective::causal:
      if (o.documents || o.begin || v.kind != VocabKind::characters) set(v.eos, "<|endoftext|>");
      if (v.eos == "<|endoftext|>") set(v.bos, "<|endoftext|>");
      v.add_bos = v.add_bos || o.begin;
      break;
    case Objective::masked:
    case Objective::classification:
      set(v.pad, "[PAD]");
      set(v.unk, "[UNK]");
      set(v.cls, "[CLS]");
      set(v.sep, "[SEP]");
      set(v.mask, "[MASK]");
      break;
    case Objective::translation:
      set(v.pad, "<pad>");
      if (v.kind == VocabKind::characters) set(v.unk, "<unk>");  // bytes spell everything
      set(v.eos, "</s>");
      v.add_eos = true;
      break;
  }
  return v;
}

// Parts of a text give the ids of the whole: characters, bytes and GPT-2's splitting, with nothing that
// looks further.
bool in_parts(const TokenizerSpec& spec) {
  if (spec.kind != Tokenizer::Kind::bpe) return false;
  const bool pieces = spec.splits.empty() ? spec.merges.empty()
                                          : spec.splits == std::vector<SplitStep>{{.pattern = Pattern::gpt2}};
  return pieces &&
         std::all_of(spec.added.begin(), spec.added.end(), [](const AddedToken& t) { return t.special; }) &&
         std::all_of(spec.normal.begin(), spec.normal.end(),
                     [](const NormalStep& s) { return s.kind == NormalStep::Kind::lower; });
}

}  // namespace

std::vector<std::int32_t> encode_long(const Tokenizer& tokenizer, std::string_view text) {
  constexpr std::size_t kPart = std::size_t{1} << 19;
  if (text.size() <= kPart || !in_parts(spec_of(tokenizer))) return tokenizer.encode(text);
  std::vector<std::int32_t> out;
  while (!text.empty()) {
    const std::size_t n = cut_for_gpt2(text, kPart);
    const std::vector<std::int32_t> part = tokenizer.encode(text.substr(0, n));
    out.insert(out.end(), part.begin(), part.end());
    text.remove_prefix(n);
  }
  return out;
}

void choose_tokenizer(Corpus& corpus, const DataOptions& o, std::span<const std::string_view> texts,
                      std::span<const std::string_view> held_out) {
  if (!o.tokenizer.empty() || o.own_tokenizer) {
    corpus.tokenizer = o.tokenizer.empty() ? o.own_tokenizer : open_tokenizer(o.tokenizer);
    if (!corpus.tokenizer) fail(o.tokenizer, ": has no tokenizer");
    corpus.files = tokenizer_files(*corpus.tokenizer);
  } else {
    VocabOptions v = with_specials(o.vocab, o);
    if (o.progress) {
      v.progress = [&](Dim done, Dim of) {
        o.progress(0.5 * static_cast<double>(done) / static_cast<double>(of));
      };
    }
    std::vector<std::string_view> all(texts.begin(), texts.end());
    if (v.kind == VocabKind::characters && v.unk.empty())
      all.insert(all.end(), held_out.begin(), held_out.end());
    corpus.files = train_vocabulary(all, v);
    corpus.tokenizer =
        tokenizer_from_json(corpus.files.tokenizer_json, corpus.files.tokenizer_config_json, "vocabulary");
  }
}

void take_corpus(TrainData& data, const Corpus& corpus, const DataOptions& o) {
  data.objective = o.objective;
  data.tokenizer = corpus.tokenizer;
  data.tokenizer_files = corpus.files;
  data.vocab = corpus.tokenizer->size();
  data.class_names = corpus.class_names;
  data.classes = static_cast<Dim>(corpus.class_names.size());
  data.pad = corpus.tokenizer->pad;
  data.stop = corpus.tokenizer->eos;
  if (o.objective == Objective::translation) data.start = start_of(*corpus.tokenizer);
  std::uint64_t id = mix_key(corpus.ids.sum(), static_cast<std::uint64_t>(corpus.ids.size()));
  const std::uint64_t parts[] = {o.seed,
                                 static_cast<std::uint64_t>(o.objective),
                                 static_cast<std::uint64_t>(corpus.split),
                                 crc32(std::as_bytes(std::span(corpus.starts))),
                                 crc32(std::as_bytes(std::span(corpus.labels))),
                                 static_cast<std::uint64_t>(o.batch),
                                 static_cast<std::uint64_t>(o.length),
                                 static_cast<std::uint64_t>(o.batch_tokens),
                                 static_cast<std::uint64_t>(o.windows),
                                 o.documents,
                                 std::bit_cast<std::uint64_t>(o.mask_share)};
  for (const std::uint64_t p : parts) id = mix_key(id, p);
  if (o.begin) id = mix_key(id, 0xBE61);  // runs from before this option keep their identity
  data.identity = id;
}

namespace {

bool exists(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::exists(path, ignored);
}

Corpus read_corpus(const DataOptions& o) {
  switch (o.objective) {
    case Objective::causal:
    case Objective::masked: return read_text(o);
    case Objective::translation: return read_pairs(o);
    case Objective::classification: return read_lines(o);
  }
  fail("data: unknown objective");
}

}  // namespace
}  // namespace data

void check_data(const DataOptions& o) {
  if (o.path.empty()) fail_usage("data: nothing to learn from is named");
  if (o.batch < 1 || o.batch >= data::kMostSequences)
    fail_usage("data: a batch of ", o.batch, " sequences; between 1 and ", data::kMostSequences - 1,
               " are possible");
  if (o.length < 2 || o.length > (Dim{1} << 30))
    fail_usage("data: a length of ", o.length, "; at least 2 tokens are wanted");
  if (o.batch_tokens < 0) fail_usage("data: batch_tokens is ", o.batch_tokens, "; 0 leaves it to batch");
  if (!(o.share >= 0 && o.share < 1))
    fail_usage("data: share held out is ", o.share, "; it lies between 0 and 1");
  if (!(o.mask_share > 0 && o.mask_share <= 1))
    fail_usage("data: mask_share is ", o.mask_share, "; it lies between 0 and 1");
  if (o.documents && o.objective != Objective::causal)
    fail_usage("data: documents belong to the causal objective, this is ", name_of(o.objective));
  if (o.begin && (o.objective != Objective::causal || o.documents))
    fail_usage("data: --begin belongs to windows of a causal text, this has ",
               o.documents ? "documents (which begin as their tokenizer says)" : "the objective ",
               o.documents ? "" : name_of(o.objective));
}

std::unique_ptr<TrainData> open_data(const DataOptions& options) {
  using namespace data;
  check_data(options);
  if (options.pictures) return picture_data(options);
  if (!options.text && is_task(options.path) && !exists(options.path)) return task_data(options);
  const bool text = options.objective == Objective::causal || options.objective == Objective::masked;
  if (options.text && !text)
    fail_usage(options.path, ": is one text, from which ", name_of(options.objective),
               " cannot be learned; choose a recipe that goes on with texts or fills gaps");
  Corpus corpus;
  if (!options.text && is_packed(options.path)) {
    if (!options.held_out.empty())
      fail_usage(options.path,
                 ": a packed file says itself what is held out; give --held-out when it is made");
    if (!options.tokenizer.empty())
      fail_usage(options.path, ": a packed file holds its own tokenizer; give --tokenizer when it is made");
    corpus = read_packed(options.path, options.progress);
    const Corpus::Kind wanted = text                                          ? Corpus::Kind::text
                                : options.objective == Objective::translation ? Corpus::Kind::pairs
                                                                              : Corpus::Kind::lines;
    if (corpus.kind != wanted) {
      const char* const kinds[] = {"", "text (objective causal or masked)", "pairs (objective translation)",
                                   "labelled lines (objective classification)"};
      fail(options.path, ": holds ", kinds[static_cast<int>(corpus.kind)], ", the objective here is ",
           name_of(options.objective));
    }
  } else {
    corpus = read_corpus(options);
  }
  if (options.progress) options.progress(1);
  return text ? text_data(std::move(corpus), options) : items_data(std::move(corpus), options);
}

namespace data {
Corpus corpus_to_pack(const DataOptions& o) {
  check_data(o);
  if (is_task(o.path) && !exists(o.path))
    fail_usage(o.path, ": is made in code, batch by batch; there is nothing to pack");
  if (is_packed(o.path)) fail_usage(o.path, ": is packed already");
  return read_corpus(o);
}
}  // namespace data

}  // namespace rapt
