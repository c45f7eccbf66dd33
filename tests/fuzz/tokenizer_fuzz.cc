// SPDX-License-Identifier: Apache-2.0
// Any bytes as a tokenizer file: they load or end in rapt::Error, and what loads encodes and decodes any
// bytes with ids of its vocabulary. The first byte chooses the format; behind the last 0xFE byte, where
// there is one, stands the text to encode.
#include <cstdint>
#include <cstdlib>
#include <string>

#include "rapt/io/gguf.h"
#include "rapt/io/reader.h"
#include "rapt/text/tokenizer/from_files.h"
#include "rapt/text/tokenizer/write.h"

namespace {

using namespace rapt;

std::shared_ptr<const Tokenizer> load(int format, const std::string& content) {
  const auto bytes = std::as_bytes(std::span(content.data(), content.size()));
  const std::size_t cut = std::min(content.find('\0'), content.size());
  const std::string head = content.substr(0, cut), tail = cut < content.size() ? content.substr(cut + 1) : "";
  switch (format) {
    case 0: return tokenizer_from_json(content, "", "fuzz");
    case 1: return tokenizer_from_sentencepiece(bytes, "fuzz");
    case 2: return tokenizer_from_llama2c(bytes, 6, "fuzz");
    case 3: return tokenizer_from_gguf(GgufFile::parse(bytes, "fuzz"));
    case 4: return tokenizer_from_vocab_txt(content, Json(Json::Object{}), "fuzz");
    case 5: return tokenizer_from_bpe_files(head, tail, Json(Json::Object{}), "fuzz");
    case 6:
      return tokenizer_from_marian(std::as_bytes(std::span(tail.data(), tail.size())), head,
                                   Json(Json::Object{}), "fuzz");
    default: return tokenizer_from_json(head, tail, "fuzz");
  }
}

void check(bool holds) {
  if (!holds) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string all(reinterpret_cast<const char*>(data) + 1, size - 1);
  const std::size_t mark = all.rfind('\xFE');
  const std::string content = all.substr(0, mark),
                    text = mark == std::string::npos ? "ab <s>\n'll 12\xC3\xA9" : all.substr(mark + 1);
  try {
    const auto t = load(data[0] & 7, content);
    for (const bool special : {false, true}) {
      const auto ids = t->encode(text, special);
      for (const std::int32_t id : ids) check(id >= 0 && id < t->size());
      TextStream stream(*t, special);
      for (const std::int32_t id : t->frame(ids)) check(valid_utf8(stream.push(id)));
      check(valid_utf8(stream.finish()));
      t->decode(ids, special);
      if (special) continue;
      for (const std::int32_t id : ids) check(t->role(id) != Tokenizer::Role::control);
    }
    tokenizer_metadata(*t);
    tokenizer_files(*t);
  } catch (const Error&) {}
  return 0;
}
