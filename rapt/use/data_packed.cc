// SPDX-License-Identifier: Apache-2.0
// Training data as one file.
//
//   file   = header meta index ids
//            little-endian; header, meta and index end with zeros up to a multiple of 64 bytes
//   header = "RAPTDATA" version:u32 kind:u32 width:u32 0:u32 vocab:u64 ids:u64 items:u64 split:u64 empty:u64
//            meta:u64 meta_sum:u32 index_sum:u32 ids_sum:u32 header_sum:u32
//            kind 1 text, 2 pairs, 3 labelled lines; width 2 or 4: bytes of an id
//            sums: crc32 (the header's: of all before it)
//            split: what is held out begins there: text: an id; pairs, lines: a pair, a line
//            empty: pairs or lines left out
//   meta   = JSON: { "tokenizer": tokenizer.json as text, "tokenizer_config": …, "classes": [names] }
//   index  = start:u64 × (items + 1), then for lines label:i32 × items
//            items: documents; source and target in turn; lines
//   ids    = u16 or i32 × ids
//
// Nothing is believed: sums, sizes, order and range of every number are checked before the first batch.
#include <algorithm>
#include <cstring>

#include "rapt/base/checked.h"
#include "rapt/base/text.h"
#include "rapt/io/fs.h"
#include "rapt/io/reader.h"
#include "rapt/use/data_parts.h"

namespace rapt {
namespace data {
namespace {

constexpr std::string_view kMagic = "RAPTDATA";
constexpr std::uint32_t kVersion = 1;
constexpr std::uint64_t kHeader = 88, kAlign = 64, kMostMeta = std::uint64_t{1} << 28;

template <class T>
void put(std::string& out, T value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof value);
}
void pad(std::string& out) { out.resize((out.size() + kAlign - 1) / kAlign * kAlign, '\0'); }
std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

void skip_zeros(Reader& in, std::uint32_t* sum = nullptr) {
  const std::uint64_t n = (kAlign - in.position() % kAlign) % kAlign;
  const auto zeros = in.take(n, "padding");
  for (const std::byte b : zeros) {
    if (b != std::byte{0}) in.refuse("zeros are wanted up to the next multiple of ", kAlign);
  }
  if (sum) *sum = crc32(zeros, *sum);
}

void write(FileWriter& out, const Corpus& c) {
  const Dim vocab = c.tokenizer->size(), n = c.ids.size();
  const int width = vocab <= 65536 ? 2 : 4;
  Json meta = Json::Object{};
  meta.set("tokenizer", c.files.tokenizer_json);
  meta.set("tokenizer_config", c.files.tokenizer_config_json);
  Json::Array classes;
  for (const std::string& name : c.class_names) classes.emplace_back(name);
  meta.set("classes", std::move(classes));
  std::string meta_text = meta.dump();
  const std::uint64_t meta_size = meta_text.size();
  pad(meta_text);

  std::string index;
  for (const std::uint64_t s : c.starts) put(index, s);
  for (const std::int32_t l : c.labels) put(index, l);
  pad(index);

  // Part by part, twice: for the sum, which stands before them, and for the file.
  const auto each_part = [&](auto&& use) {
    std::string part;
    std::vector<std::int32_t> ids;
    for (Dim i = 0; i < n; i += 65536) {
      part.clear();
      ids.clear();
      c.ids.append_to(ids, i, std::min<Dim>(65536, n - i));
      for (const std::int32_t id : ids) {
        if (width == 2) put(part, static_cast<std::uint16_t>(id));
        else put(part, id);
      }
      use(bytes_of(part));
    }
  };
  std::uint32_t ids_sum = 0;
  each_part([&](std::span<const std::byte> part) { ids_sum = crc32(part, ids_sum); });

  std::string header(kMagic);
  put(header, kVersion);
  put(header, static_cast<std::uint32_t>(c.kind));
  put(header, static_cast<std::uint32_t>(width));
  put(header, std::uint32_t{0});
  for (const Dim value : {vocab, n, c.items(), c.split, c.empty})
    put(header, static_cast<std::uint64_t>(value));
  put(header, meta_size);
  put(header, crc32(bytes_of(meta_text)));
  put(header, crc32(bytes_of(index)));
  put(header, ids_sum);
  put(header, crc32(bytes_of(header)));
  pad(header);
  out.write(header);
  out.write(meta_text);
  out.write(index);
  each_part([&](std::span<const std::byte> part) { out.write(part); });
}

}  // namespace

Corpus read_packed(const std::string& path, const std::function<void(double)>& progress) {
  const MappedFile file(path);
  std::vector<std::byte> header(std::min<std::size_t>(file.bytes().size(), kHeader));
  file.copy(0, header);
  Reader in(header, path);
  Corpus c;
  if (in.text(kMagic.size(), "the first word") != kMagic) in.refuse("this is no packed training data");
  const auto version = in.get<std::uint32_t>("version");
  if (version != kVersion)
    in.refuse("version ", version, " of packed data is not known to this program, which reads version ",
              kVersion, "; pack it again");
  const auto kind = in.get<std::uint32_t>("kind"), width = in.get<std::uint32_t>("width"),
             zero = in.get<std::uint32_t>("zero");
  if (kind < 1 || kind > 3) in.refuse("kind ", kind, " is not known (1 text, 2 pairs, 3 labelled lines)");
  if (width != 2 && width != 4) in.refuse("ids of ", width, " bytes; they have 2 or 4");
  if (zero != 0) in.refuse("0 is wanted, this is ", zero);
  const auto vocab = in.get<std::uint64_t>("vocabulary size"), n = in.get<std::uint64_t>("number of ids"),
             items = in.get<std::uint64_t>("number of items"), split = in.get<std::uint64_t>("split"),
             empty = in.get<std::uint64_t>("empty items"),
             meta_size = in.get<std::uint64_t>("size of the description");
  const auto meta_sum = in.get<std::uint32_t>("sum"), index_sum = in.get<std::uint32_t>("sum"),
             ids_sum = in.get<std::uint32_t>("sum");
  const std::uint32_t sum_now = crc32(std::span(header).first(static_cast<std::size_t>(in.position())));
  if (in.get<std::uint32_t>("sum of the header") != sum_now)
    in.refuse("the header's checksum is wrong: the file is damaged; make it again");
  in = Reader(file);
  in.skip(kHeader, "header");
  skip_zeros(in);
  c.kind = static_cast<Corpus::Kind>(kind);

  if (meta_size > kMostMeta)
    in.refuse("a description of ", meta_size, " bytes; at most ", kMostMeta, " are read");
  const std::string meta_text(in.text(meta_size, "description"));
  std::uint32_t sum = crc32(bytes_of(meta_text));
  skip_zeros(in, &sum);
  if (sum != meta_sum) in.refuse("the description's checksum is wrong: the file is damaged; make it again");

  in.expect_items(items, 8, "items");
  in.expect_items(items + 1, 8, "starts of items");
  const auto starts = in.take((items + 1) * 8, "starts of items");
  sum = crc32(starts);
  c.starts.resize(static_cast<std::size_t>(items) + 1);
  std::memcpy(c.starts.data(), starts.data(), starts.size());
  if (c.kind == Corpus::Kind::lines) {
    const auto labels = in.take(items * 4, "labels");
    sum = crc32(labels, sum);
    c.labels.resize(static_cast<std::size_t>(items));
    if (items > 0) std::memcpy(c.labels.data(), labels.data(), labels.size());
  }
  skip_zeros(in, &sum);
  if (sum != index_sum) in.refuse("the index's checksum is wrong: the file is damaged; make it again");

  if (n > (std::uint64_t{1} << 48)) in.refuse(n, " ids are announced; no file holds so many");
  Ids::File ids{.file = file, .offset = in.position(), .width = width, .sums = {0}};
  Reader(in).skip(n * width, "ids");  // they are all there
  std::uint64_t bad = n, bad_id = 0;  // the first id outside the vocabulary
  constexpr std::uint64_t kStep = std::uint64_t{1} << 20;
  for (std::uint64_t left = n * width; left > 0;) {
    const auto part = in.take(std::min(left, kStep), "ids");
    left -= part.size();
    for (std::size_t at = 0; at < part.size(); at += Ids::kBlock)
      ids.sums.push_back(
          crc32(part.subspan(at, std::min<std::size_t>(Ids::kBlock, part.size() - at)), ids.sums.back()));
    const std::uint64_t first = (in.position() - ids.offset - part.size()) / width;
    for (std::uint64_t i = 0; bad == n && i < part.size() / width; ++i) {
      std::uint32_t id = 0;  // below zero is beyond every vocabulary
      std::memcpy(&id, part.data() + i * width, width);
      if (id >= vocab) bad = first + i, bad_id = id;
    }
    if (progress) progress(1 - static_cast<double>(left) / static_cast<double>(n * width));
  }
  if (in.left() != 0)
    in.refuse(in.left(), " bytes follow the last id; the file was not written by this program as it is");
  if (ids.sums.back() != ids_sum)
    fail(path, ": the checksum of the ids is wrong: the file is damaged; make it again");

  const Json meta = parse_json(meta_text, path);
  const auto text = [&](const char* key) -> std::string {
    const Json* v = meta.find(key);
    if (!v || !v->is_string()) fail(path, ": the description has no text '", key, "'");
    return v->string();
  };
  c.files = {text("tokenizer"), text("tokenizer_config")};
  c.tokenizer = tokenizer_from_json(c.files.tokenizer_json, c.files.tokenizer_config_json, path);
  const Json* classes = meta.find("classes");
  if (!classes || !classes->is_array()) fail(path, ": the description has no list 'classes'");
  for (const Json& name : classes->array()) {
    if (!name.is_string()) fail(path, ": the name of a class is ", name.type_name());
    c.class_names.push_back(name.string());
  }
  if (vocab != static_cast<std::uint64_t>(c.tokenizer->size()))
    fail(path, ": ids of a vocabulary of ", vocab, " tokens, but the tokenizer inside has ",
         c.tokenizer->size());
  if (vocab > 65536 && width == 2) fail(path, ": ids of 2 bytes cannot name ", vocab, " tokens");

  if (c.starts.front() != 0 || c.starts.back() != n)
    fail(path, ": items do not begin with the first id and end with the last");
  if (!std::is_sorted(c.starts.begin(), c.starts.end())) fail(path, ": items overlap");
  if (c.kind == Corpus::Kind::pairs && items % 2 != 0) fail(path, ": ", items, " texts are no pairs");
  const std::uint64_t most = c.kind == Corpus::Kind::text    ? n
                             : c.kind == Corpus::Kind::pairs ? items / 2
                                                             : items;
  if (split > most) fail(path, ": held out from ", split, " on, but there are ", most);
  for (const std::int32_t l : c.labels) {
    if (l < 0 || static_cast<std::size_t>(l) >= c.class_names.size())
      fail(path, ": a label is ", l, ", there are ", c.class_names.size(), " classes");
  }
  if (empty > (std::uint64_t{1} << 48)) fail(path, ": ", empty, " empty items are announced");
  c.split = static_cast<Dim>(split);
  c.empty = static_cast<Dim>(empty);
  if (bad < n) fail(path, ": id ", bad, " is ", bad_id, ", outside the vocabulary of ", vocab);
  c.ids = Ids(std::move(ids), static_cast<Dim>(n));
  file.check_unchanged();
  return c;
}

}  // namespace data

void write_packed(const std::string& path, const DataOptions& options, bool force) {
  FileWriter out(path, force);  // a file that is there is refused before the work, not after it
  data::write(out, data::corpus_to_pack(options));
  out.commit();
}

bool is_packed(const std::string& path) {
  try {
    const MappedFile file(path);
    Reader in(file);
    return std::memcmp(in.take(data::kMagic.size(), "the first word").data(), data::kMagic.data(),
                       data::kMagic.size()) == 0;
  } catch (const Error&) {
    return false;
  }
}

Json packed_summary(const std::string& path) {
  using data::Corpus;
  const Corpus c = data::read_packed(path, {});
  Json j = Json::Object{};
  const bool text = c.kind == Corpus::Kind::text, pairs = c.kind == Corpus::Kind::pairs;
  const Dim all = text ? c.ids.size() : pairs ? c.items() / 2 : c.items();
  j.set("path", path);
  j.set("kind", text ? "text" : pairs ? "pairs" : "labelled lines");
  j.set("objectives", Json::Array{text    ? Json("causal")
                                  : pairs ? Json("translation")
                                          : Json("classification")});
  if (text && c.tokenizer->mask >= 0) j.set("objectives", Json::Array{Json("masked"), Json("causal")});
  j.set("tokens", c.ids.size());
  if (text) j.set("documents", c.items());
  if (pairs) j.set("pairs", all);
  if (!text && !pairs) j.set("lines", all);
  j.set("held_out", all - c.split);
  if (c.empty > 0) j.set("left_out_empty", c.empty);
  j.set("vocabulary", c.tokenizer->size());
  Json special = Json::Object{};
  const std::pair<const char*, std::int32_t> roles[] = {
      {"pad", c.tokenizer->pad}, {"unk", c.tokenizer->unk},   {"cls", c.tokenizer->cls},
      {"sep", c.tokenizer->sep}, {"mask", c.tokenizer->mask}, {"bos", c.tokenizer->bos},
      {"eos", c.tokenizer->eos}};
  for (const auto& [name, id] : roles) {
    if (id >= 0) special.set(name, c.tokenizer->text_of(id));
  }
  j.set("special", std::move(special));
  if (!c.class_names.empty()) {
    Json::Array names;
    for (const std::string& name : c.class_names) names.emplace_back(name);
    j.set("classes", std::move(names));
  }
  return j;
}

}  // namespace rapt
