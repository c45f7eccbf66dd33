// SPDX-License-Identifier: Apache-2.0
// Reading safetensors; writing stands in safetensors_write.cc.
//
//   file   = u64 length, header (`length` bytes of JSON, spaces after it allowed), data
//   header = "{" entry ("," entry)* "}"                 begins with "{" at once; names are unique
//   entry  = "__metadata__" ":" { string ":" string } | name ":" tensor
//   tensor = { "dtype": string, "shape": [ natural* ], "data_offsets": [ begin, end ] }
//            these three keys, in any order
//   data   = tensors from 0 to the end of the file, without gaps and without overlap
//
// The header is read as a stream and not as a tree of values, so a file of n bytes never takes more than a
// few n of memory.
#include "rapt/io/safetensors.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <optional>
#include <set>

#include "rapt/base/checked.h"
#include "rapt/base/json.h"
#include "rapt/io/folder.h"
#include "rapt/tensor/formats.h"

namespace rapt {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kMostHeader = std::uint64_t{64} << 20, kMostTensors = std::uint64_t{1} << 20,
                        kMostIndex = std::uint64_t{32} << 20;
constexpr std::size_t kMostNameBytes = 1024, kMostDims = 8;

// The JSON of a header, value by value. Every member function takes what it names or fails at that byte of
// the file.
class HeaderText {
 public:
  HeaderText(std::string_view text, const std::string& name) : text_(text), name_(name) {}

  template <class... Parts>
  [[noreturn]] void refuse(const Parts&... parts) const {
    fail(name_, ": byte ", 8 + at_, ": ", parts...);
  }
  bool accept(char c) {
    space();
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  void expect(char c, const char* where) {
    if (!accept(c)) refuse("expected '", c, "' ", where, ", found ", here());
  }
  // { key: … , key: … }: `member` reads the value.
  template <class Member>
  void object(const char* where, Member member) {
    expect('{', where);
    if (accept('}')) return;
    do {
      std::string key = string("a name");
      expect(':', "after a name");
      member(std::move(key));
    } while (accept(','));
    expect('}', where);
  }
  template <class Element>
  void list(const char* where, Element element) {
    expect('[', where);
    if (accept(']')) return;
    do element();
    while (accept(','));
    expect(']', where);
  }
  std::string string(const char* what) {
    space();
    if (at_ >= text_.size() || text_[at_] != '"')
      refuse("expected ", what, " in double quotes, found ", here());
    std::size_t end = at_ + 1;
    bool plain = true;
    for (; end < text_.size() && text_[end] != '"'; ++end) {
      const auto c = static_cast<unsigned char>(text_[end]);
      if (c < 0x20) refuse("control character ", int{c}, " inside a string");
      if (c == '\\') plain = false, ++end;
    }
    if (end >= text_.size()) refuse("a string without its closing quote");
    const std::string_view literal = text_.substr(at_, end + 1 - at_);
    std::string out(literal.substr(1, literal.size() - 2));
    if (!plain) out = parse_json(literal, concat(name_, ": byte ", 8 + at_)).string();
    at_ = end + 1;
    return out;
  }
  std::uint64_t natural(const char* what) {  // 0, 1, 2, …: no sign, no point, no leading zero
    space();
    const std::size_t first = at_;
    std::uint64_t n = 0;
    for (; at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9'; ++at_) {
      const auto digit = static_cast<std::uint64_t>(text_[at_] - '0');
      if (__builtin_mul_overflow(n, std::uint64_t{10}, &n) || __builtin_add_overflow(n, digit, &n))
        refuse(what, " is larger than any machine can count");
    }
    if (at_ == first) refuse("expected ", what, " (a whole number, not negative), found ", here());
    if (text_[first] == '0' && at_ - first > 1) refuse(what, " begins with 0");
    if (at_ < text_.size() && (text_[at_] == '.' || text_[at_] == 'e' || text_[at_] == 'E'))
      refuse(what, " must be a whole number");
    return n;
  }
  void end() {
    space();
    if (at_ < text_.size()) refuse("text after the header's last '}': ", here());
  }

 private:
  void space() {
    while (at_ < text_.size() &&
           (text_[at_] == ' ' || text_[at_] == '\t' || text_[at_] == '\n' || text_[at_] == '\r'))
      ++at_;
  }
  std::string here() const {
    return at_ < text_.size() ? quote_name(text_.substr(at_, 1)) : "the end of the header";
  }

  std::string_view text_;
  const std::string& name_;
  std::size_t at_ = 0;
};

// U8 and BOOL only occur in buffers (masks) that no model reads; their bytes are held as i8.
std::optional<DType> dtype_of(std::string_view name) {
  if (name == "F32") return DType::f32;
  if (name == "F16") return DType::f16;
  if (name == "BF16") return DType::bf16;
  if (name == "F64") return DType::f64;
  if (name == "I64") return DType::i64;
  if (name == "I32") return DType::i32;
  if (name == "I16") return DType::i16;
  if (name == "I8" || name == "U8" || name == "BOOL") return DType::i8;
  return std::nullopt;
}
bool known_to_others(std::string_view name) {
  static constexpr std::string_view kNames[] = {"U16",     "U32",     "U64",         "F8_E4M3",
                                                "F8_E5M2", "F8_E8M0", "F8_E4M3FNUZ", "F8_E5M2FNUZ",
                                                "F6_E2M3", "F6_E3M2", "F4",          "C64"};
  return std::find(std::begin(kNames), std::end(kNames), name) != std::end(kNames);
}

struct Entry {
  std::string name;
  DType dtype = DType::f32;
  std::vector<Dim> shape;
  std::uint64_t begin = 0, end = 0;
};

Entry read_entry(HeaderText& in, std::string name) {
  Entry e;
  e.name = std::move(name);
  const std::string tensor = "tensor " + quote_name(e.name);
  if (e.name.empty()) in.refuse("a tensor without a name");
  if (e.name.size() > kMostNameBytes)
    in.refuse("a tensor's name of ", e.name.size(), " bytes; more than ", kMostNameBytes, " are not read");
  bool dtype = false, shape = false, offsets = false;
  auto once = [&](bool& seen, const char* key) {
    if (seen) in.refuse(tensor, " has two of '", key, "'");
    seen = true;
  };
  in.object("around a tensor", [&](const std::string& key) {
    if (key == "dtype") {
      once(dtype, "dtype");
      const std::string type = in.string("the dtype");
      const auto known = dtype_of(type);
      if (!known && known_to_others(type))
        in.refuse("type ", type, " of ", tensor,
                  " is not supported yet; convert the model to F32, F16 or BF16");
      if (!known) in.refuse("type ", quote_name(type), " of ", tensor, " is not known");
      e.dtype = *known;
    } else if (key == "shape") {
      once(shape, "shape");
      in.list("around the shape", [&] {
        const std::uint64_t n = in.natural("a size");
        if (n == 0 || n > std::uint64_t{INT64_MAX}) in.refuse(tensor, " has a size of ", n);
        if (e.shape.size() == kMostDims) in.refuse(tensor, " has more than ", kMostDims, " dimensions");
        e.shape.push_back(static_cast<Dim>(n));
      });
    } else if (key == "data_offsets") {
      once(offsets, "data_offsets");
      in.expect('[', "around data_offsets");
      e.begin = in.natural("where the data begins");
      in.expect(',', "between the two data_offsets");
      e.end = in.natural("where the data ends");
      in.expect(']', "after the second of data_offsets");
    } else {
      in.refuse(tensor, " has a key ", quote_name(key), "; known: dtype, shape, data_offsets");
    }
  });
  if (!dtype || !shape || !offsets)
    in.refuse(tensor, " lacks '", !dtype ? "dtype" : !shape ? "shape" : "data_offsets", "'");
  return e;
}

}  // namespace

SafetensorsFile SafetensorsFile::parse(std::span<const std::byte> bytes, std::string name) {
  return parse(Reader(bytes, std::move(name)));
}

SafetensorsFile SafetensorsFile::parse(Reader in) {
  const std::string name = in.name();
  const std::uint64_t size = in.left();
  {
    Reader start = in;
    const auto first = start.take(std::min<std::uint64_t>(size, 64), "the start");
    if (const std::string other = foreign_format(first);
        !other.empty() && !other.starts_with("a safetensors"))
      in.refuse("no safetensors file: this is ", other);
  }
  const auto length = in.get<std::uint64_t>("the length of the header");
  if (length > kMostHeader)
    fail(name, ": byte 0: a header of ", length, " bytes; more than ", kMostHeader,
         " are not read (is this a safetensors file?)");
  if (length < 2) fail(name, ": byte 0: a header of ", length, " bytes; the shortest is {}");
  const std::string_view text = in.text(length, "the header");
  in.spend(length);  // a copy, where it comes from a file
  if (text[0] != '{')
    fail(name, ": byte 8: the header begins with ", quote_name(text.substr(0, 1)),
         ", it must begin with '{'");
  HeaderText header(text, name);
  SafetensorsFile file;
  std::vector<Entry> entries;
  std::set<std::string, std::less<>> names;
  header.object("around the header", [&](std::string key) {
    if (!names.insert(key).second)
      header.refuse(key == "__metadata__" ? "" : "tensor ", quote_name(key), " stands twice in the header");
    // The entry while the list grows, its sizes, three nodes or places of its name.
    in.spend(3 * sizeof(Entry) + sizeof(TensorView) + 48 + 2 * (64 + string_memory(key.size())));
    if (key != "__metadata__") {
      entries.push_back(read_entry(header, std::move(key)));
      if (entries.size() > kMostTensors) header.refuse("more than ", kMostTensors, " tensors are not read");
      return;
    }
    std::set<std::string, std::less<>> keys;
    header.object("around __metadata__", [&](std::string k) {
      if (!keys.insert(k).second) header.refuse("key ", quote_name(k), " stands twice in __metadata__");
      std::string value = header.string("a value of __metadata__");
      in.spend(3 * 2 * sizeof(std::string) + 64 + 2 * string_memory(k.size()) + string_memory(value.size()));
      file.metadata.emplace_back(std::move(k), std::move(value));
    });
  });
  header.end();

  const std::uint64_t start = in.position();
  const auto data = in.skip(in.left(), "the tensors");
  std::vector<std::size_t> order(entries.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::sort(order.begin(), order.end(),
            [&](std::size_t a, std::size_t b) { return entries[a].begin < entries[b].begin; });
  std::uint64_t end = 0;
  for (const std::size_t i : order) {
    const Entry& e = entries[i];
    const std::string tensor = "tensor " + quote_name(e.name), where = name + ": " + tensor;
    Dim elements = 1;
    for (const Dim d : e.shape) elements = checked_mul(elements, d, where);
    const std::uint64_t want = bytes_of(e.dtype, elements, where);
    if (e.end < e.begin) fail(where, " ends at ", e.end, " of the data, before it begins at ", e.begin);
    if (e.end - e.begin != want)
      fail(where, " of ", elements, " ", name_of(e.dtype), " takes ", want, " bytes, data_offsets give it ",
           e.end - e.begin);
    if (e.begin < end)
      fail(where, " overlaps the tensor before it: begins at ", e.begin, " of the data, that one ends at ",
           end);
    if (e.begin > end)
      fail(where, " begins at ", e.begin, " of the data, the tensor before it ends at ", end,
           ": a gap; every byte must belong to a tensor");
    if (e.end > data.size())
      fail(where, " ends at byte ", checked_add(start, e.end, where), ", the file has ", size,
           " (is the download complete?)");
    end = e.end;
  }
  if (end != data.size())
    fail(name, ": byte ", start + end, ": ", data.size() - end,
         " bytes follow after the last tensor that belong to none");
  for (Entry& e : entries)
    file.tensors.add(in, std::move(e.name), e.dtype, std::move(e.shape),
                     data.subspan(e.begin, e.end - e.begin));
  return file;
}

SafetensorsFile SafetensorsFile::open(const std::string& path) {
  const MappedFile map(path);
  SafetensorsFile file = parse(Reader(map));
  map.check_unchanged();
  file.tensors.hold(map);
  return file;
}

namespace {

bool is_there(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

// A plain name inside the folder, so that an index cannot make us read elsewhere.
std::string shard_path(const fs::path& folder, const std::string& index, const std::string& shard) {
  if (shard.empty() || shard[0] == '.' ||
      shard.find_first_of(std::string_view("/\\\0", 3)) != std::string::npos)
    fail(index, ": ", quote_name(shard), " is no plain name of a file in the folder");
  if (!shard.ends_with(".safetensors"))
    fail(index, ": ", quote_name(shard),
         " does not end in .safetensors; other files (pickle) are not opened");
  const fs::path path = folder / shard;
  if (!is_there(path))
    fail(path.string(), ": is named by ", index, " and is missing (is the download complete?)");
  check_link(folder.string(), path.string());
  return path.string();
}

TensorTable open_index(const fs::path& folder, const std::string& index) {
  const Json json = parse_json(read_text_file(index, kMostIndex), index);
  const Json* map = json.find("weight_map");
  if (!map || !map->is_object()) fail(index, ": lacks the object 'weight_map' (tensor: file)");
  std::map<std::string, std::set<std::string_view>> shards;
  for (const Json::Member& m : map->object()) {
    if (!m.value.is_string())
      fail(index, ":", m.value.line, ":", m.value.column, ": the file of tensor ", quote_name(m.key), " is ",
           m.value.type_name(), ", it must be a string");
    shards[m.value.string()].insert(m.key);
  }
  if (shards.empty()) fail(index, ": 'weight_map' names no tensor");
  TensorTable all;
  for (const auto& [shard, names] : shards) {
    const std::string path = shard_path(folder, index, shard);
    SafetensorsFile file = SafetensorsFile::open(path);
    for (const TensorView& t : file.tensors.all())
      if (!names.contains(t.name()))
        fail(path, ": holds tensor ", quote_name(t.name()), ", which ", index, " does not place there");
    for (const std::string_view name : names)
      if (!file.tensors.find(name))
        fail(path, ": lacks tensor ", quote_name(name), ", which ", index, " places there");
    all.merge(std::move(file.tensors), path);
  }
  return all;
}

}  // namespace

TensorTable open_safetensors_folder(const std::string& folder) {
  const fs::path root(folder);
  const fs::path one = root / "model.safetensors", index = root / "model.safetensors.index.json";
  check_link(folder, one.string());
  check_link(folder, index.string());
  if (is_there(one)) return SafetensorsFile::open(one.string()).tensors;
  if (is_there(index)) return open_index(root, index.string());
  std::error_code error;
  std::string pickle;
  for (const fs::path& p : paths_in(root, error)) {
    const std::string ending = p.extension().string();
    if (pickle.empty() &&
        (ending == ".bin" || ending == ".pt" || ending == ".pth" || ending == ".ckpt" || ending == ".pkl"))
      pickle = p.filename().string();
  }
  if (error) fail(folder, ": cannot be read as a folder: ", error.message());
  if (!pickle.empty())
    fail(folder, ": holds ", quote_name(pickle),
         " and no safetensors file; pickle files can run any program when they are "
         "read and are never opened: ",
         "convert the model to safetensors");
  fail(folder, ": holds neither model.safetensors nor model.safetensors.index.json");
}

}  // namespace rapt
