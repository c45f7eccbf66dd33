// SPDX-License-Identifier: Apache-2.0
// The only code that touches bytes of a file. Every read compares what it wants with what is left; every
// number that sizes memory is checked before it is used. Parsers see bytes through here and nowhere else.
#pragma once
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "rapt/base/error.h"

namespace rapt {

// A file mapped read-only. Only plain files: a folder, a pipe or a device is an error.
class MappedFile {
 public:
  // "no such file" and friends as errors that say what to do
  explicit MappedFile(const std::string& path);
  std::span<const std::byte> bytes() const { return bytes_; }
  const std::string& path() const { return path_; }
  std::shared_ptr<const void> storage() const { return map_; }  // keeps the bytes mapped
  // Fails where the file was written to, cut or replaced since it was opened: call it after the bytes
  // were used.
  void check_unchanged() const;
  // Bytes from `offset` on, read instead of mapped: where somebody cuts the file meanwhile this is an
  // error, while touching the map would end the program.
  void copy(std::uint64_t offset, std::span<std::byte> out) const;

 private:
  struct Identity {
    std::uint64_t device, node, size;
    std::int64_t seconds, nanoseconds;
    bool operator==(const Identity&) const = default;
  };
  std::string path_;
  std::shared_ptr<const void> map_;
  std::shared_ptr<const int> descriptor_;  // open as long as a copy of this lives
  std::span<const std::byte> bytes_;
  Identity identity_{};
};

// Little-endian values one after the other: of bytes in memory, or of a file. A file is read and not looked
// at through its map, so one that is cut meanwhile is an error; what take() and text() give of it holds
// until the next of them.
class Reader {
 public:
  Reader(std::span<const std::byte> bytes, std::string name)
      : all_(bytes), rest_(bytes), name_(std::move(name)) {}
  // Which must outlive it.
  explicit Reader(const MappedFile& file) : Reader(file.bytes(), file.path()) { file_ = &file; }

  std::uint64_t left() const { return rest_.size(); }
  std::uint64_t position() const { return all_.size() - rest_.size(); }
  const std::string& name() const { return name_; }

  std::span<const std::byte> take(std::uint64_t n, std::string_view what);  // a view of the next n bytes
  // Where they lie, without a look at them.
  std::span<const std::byte> skip(std::uint64_t n, std::string_view what);
  template <class T>
  T get(std::string_view what) {  // an integer, float, double or bool
    static_assert(std::is_arithmetic_v<T>);
    const auto bytes = take(sizeof(T), what);
    if constexpr (std::is_same_v<T, bool>) {
      if (bytes[0] > std::byte{1})
        refuse(what, " is neither true (1) nor false (0) but ", static_cast<int>(bytes[0]));
      return bytes[0] == std::byte{1};
    } else {
      T value;
      std::memcpy(&value, bytes.data(), sizeof(T));
      return value;
    }
  }
  std::string_view text(std::uint64_t n, std::string_view what);  // n bytes of valid UTF-8
  // n items of at least `smallest` bytes each are still to come: fails where they cannot all be there,
  // before memory is made for them.
  void expect_items(std::uint64_t n, std::uint64_t smallest, std::string_view what) const;
  // Memory that is made for what was read, and for `ahead` bytes that come next: fails beyond 16 MiB and
  // four times their number.
  void spend(std::uint64_t memory, std::uint64_t ahead = 0);
  template <class... Parts>
  [[noreturn]] void refuse(const Parts&... parts) const {  // "NAME: byte 123: …"
    fail(name_, ": byte ", position(), ": ", parts...);
  }

 private:
  std::span<const std::byte> look(std::uint64_t n);  // at the next n bytes, which are there

  std::span<const std::byte> all_, rest_;
  std::string name_;
  const MappedFile* file_ = nullptr;
  std::vector<std::byte> window_;  // of the file
  std::uint64_t window_at_ = 0, spent_ = 0;
};

// What a heap takes for a block of n bytes, for Reader::spend.
constexpr std::uint64_t block_memory(std::uint64_t n) {
  return n == 0 ? 0 : (n + 8 + 15) / 16 * 16 + (n <= 8 ? 16 : 0);
}
inline std::uint64_t string_memory(std::uint64_t n) {
  return sizeof(std::string) + (n < 16 ? 0 : block_memory(n + 1));
}

std::vector<std::byte> read_file(const std::string& path);  // all of it, in memory of its own
// A whole small text file (config.json, tokenizer.json); larger than `most` is refused.
std::string read_text_file(const std::string& path, std::uint64_t most = std::uint64_t{64} << 20);
// Files of a model's folder come from strangers: a link among them may lead to a file inside the folder, or
// to the blobs of a download cache (…/models--X/blobs/…, where the files of …/models--X/snapshots/REVISION/
// lie). One that leads elsewhere is an error.
void check_link(const std::string& folder, const std::string& path);
// Of every file with a name that models have: *.json, *.safetensors, tokenizers, templates.
void check_links(const std::string& folder);
// strict: no overlong forms, no surrogates, nothing beyond U+10FFFF
bool valid_utf8(std::string_view text);
// 'a name of a file' for messages: control characters and broken bytes as \x1b, long ones cut.
std::string quote_name(std::string_view name);
// What a file is that begins like this where it is none of ours ("a pickle or PyTorch file …"); "" where
// nothing is known about it.
std::string foreign_format(std::span<const std::byte> start);

// A process that was killed leaves .FILE.PROCESS-NUMBER.tmp behind; those of processes that are gone are
// removed. A FileWriter does this once for each folder it writes to.
void clear_leftovers(const std::string& folder);
// The process is gone and nobody holds the file or folder locked.
bool left_behind(const std::string& path, long process);

// Writes beside `path` and renames at commit(), after fsync: a full disk or a crash leaves what was there.
// Without commit() nothing stays.
class FileWriter {
 public:
  FileWriter(const std::string& path, bool force);  // an existing file is refused unless `force`
  ~FileWriter();
  FileWriter(const FileWriter&) = delete;
  FileWriter& operator=(const FileWriter&) = delete;
  void write(std::span<const std::byte> bytes);
  void write(std::string_view text) { write(std::as_bytes(std::span(text.data(), text.size()))); }
  template <class T>
  void put(T value) {  // little-endian
    write(std::as_bytes(std::span(&value, 1)));
  }
  void pad_to(std::uint64_t alignment);  // with zeros
  std::uint64_t position() const;
  void commit();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace rapt
