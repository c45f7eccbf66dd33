// SPDX-License-Identifier: Apache-2.0
// Packed training data whose sums hold, so that what stands behind them is reached: the bytes choose the
// numbers of the header, the items, labels and ids. The file is refused with rapt::Error or gives batches of
// ids that are all in its vocabulary.
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "rapt/base/json.h"
#include "rapt/io/fs.h"
#include "rapt/use/data.h"
#include "tests/hostile/bytes.h"

namespace {

using namespace rapt;
using test::u32, test::u64, test::raw;

std::string padded_to_64(std::string s) {
  s.resize((s.size() + 63) / 64 * 64, '\0');
  return s;
}
std::string sum_of(const std::string& s) { return u32(crc32(test::as_span(s))); }

struct Bytes {
  const std::uint8_t* at;
  std::size_t left;
  std::uint8_t next() { return left == 0 ? 0 : (--left, *at++); }
  // Mostly what fits, sometimes anything.
  std::uint64_t near(std::uint64_t fitting) {
    const std::uint8_t how = next();
    if (how < 224) return fitting;
    return how < 240 ? fitting + next() % 5 - 2 : std::uint64_t{next()} << (next() % 64);
  }
};

const TokenizerFiles& vocabulary() {
  static const TokenizerFiles files = [] {
    const std::string_view texts[] = {"abc abd"};
    VocabOptions v{.kind = VocabKind::characters};
    v.pad = "<pad>", v.unk = "<unk>", v.eos = "</s>", v.cls = "[CLS]", v.sep = "[SEP]", v.mask = "[MASK]";
    return train_vocabulary(texts, v);
  }();
  return files;
}
std::uint64_t vocabulary_size() {
  static const auto size = static_cast<std::uint64_t>(
      tokenizer_from_json(vocabulary().tokenizer_json, vocabulary().tokenizer_config_json, "v")->size());
  return size;
}

std::string file_of(Bytes& in, std::uint32_t kind) {
  const std::uint64_t width = in.next() % 8 == 7 ? 4 : 2,
                      items = kind == 1 ? 1 + in.next() % 4 : 2 * (1 + in.next() % 8);
  std::string index, labels, ids;
  std::uint64_t count = 0;
  for (std::uint64_t i = 0; i < items; ++i) {
    index += u64(in.near(count));
    count += in.next() % 24;
    labels += u32(in.near(in.next() % 2));
  }
  index += u64(in.near(count));
  for (std::uint64_t i = 0; i < count; ++i) {
    const std::uint64_t id = in.near(in.next() % vocabulary_size());
    ids += width == 2 ? raw(static_cast<std::uint16_t>(id)) : u32(id);
  }
  if (kind == 3) index += labels;
  index = padded_to_64(std::move(index));
  const Json meta =
      Json::Object{{"tokenizer", vocabulary().tokenizer_json},
                   {"tokenizer_config", vocabulary().tokenizer_config_json},
                   {"classes", kind == 3 ? Json(Json::Array{"no", "yes"}) : Json(Json::Array{})}};
  std::string text = meta.dump();
  const std::uint64_t text_size = text.size();
  text = padded_to_64(std::move(text));
  std::string header = "RAPTDATA" + u32(1) + u32(in.near(kind)) + u32(width) + u32(0) +
                       u64(in.near(vocabulary_size())) + u64(in.near(count)) + u64(in.near(items)) +
                       u64(in.near(kind == 1 ? count / 2 : items / (kind == 2 ? 4 : 2))) + u64(in.near(0)) +
                       u64(in.near(text_size)) + sum_of(text) + sum_of(index) + sum_of(ids);
  header += sum_of(header);
  return padded_to_64(std::move(header)) + text + index + ids;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  Bytes in{data, size};
  const std::uint32_t kind = 1 + in.next() % 3;
  const std::string bytes = file_of(in, kind);
  const int file = ::memfd_create("data", MFD_CLOEXEC);
  if (file < 0 || ::write(file, bytes.data(), bytes.size()) != static_cast<ssize_t>(bytes.size()))
    std::abort();
  struct Close {
    int file;
    ~Close() { ::close(file); }
  } close{file};
  DataOptions o{.path = concat("/proc/self/fd/", file),
                .seed = in.next(),
                .batch = 1 + in.next() % 4,
                .length = 2 + in.next() % 12};
  o.objective = kind == 2       ? Objective::translation
                : kind == 3     ? Objective::classification
                : in.next() % 2 ? Objective::masked
                                : Objective::causal;
  o.windows = in.next() % 2 ? DataOptions::Windows::random : DataOptions::Windows::shuffled;
  o.documents = o.objective == Objective::causal && in.next() % 2;
  if (kind != 1 && in.next() % 2) o.batch_tokens = 1 + in.next();
  try {
    const auto opened = open_data(o);
    const auto check = [&](const TrainBatch& b) {
      for (const auto* list : {&b.tokens, &b.source})
        for (const std::int32_t id : *list)
          if (id < 0 || id >= opened->vocab) std::abort();
      if (kind != 3 && b.tokens.size() != b.targets.size()) std::abort();
      for (const std::int32_t id : b.targets)
        if (id < -1 || id >= std::max(opened->vocab, opened->classes)) std::abort();
    };
    for (std::uint64_t i = 0; i < 4; ++i) check(opened->batch(i * 37));
    for (Dim i = 0; i < opened->held_out(); ++i) check(opened->held_out_batch(i));
  } catch (const Error&) {}
  return 0;
}
