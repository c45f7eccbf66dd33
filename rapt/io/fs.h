// SPDX-License-Identifier: Apache-2.0
// The few file operations that a durable save is made of, as an interface: the real file system, and in
// tests one that records what was written and replays every crash.
#pragma once
#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "rapt/base/error.h"

namespace rapt {

// A file that is being written. Gone again where it is not finished.
class NewFile {
 public:
  virtual ~NewFile() = default;
  virtual void write(std::span<const std::byte> bytes) = 0;
  virtual void finish() = 0;  // synced and closed
};

class Fs {
 public:
  virtual ~Fs() = default;
  // All of them fail with path and reason. Nothing is durable before its sync.
  virtual void make_folder(const std::string& path) = 0;  // must not exist; 0700
  // A file that was not there, for so many bytes; room for them is taken at once.
  virtual std::unique_ptr<NewFile> open_new(const std::string& path, std::uint64_t bytes) = 0;
  // The same with all of them.
  void create(const std::string& path, std::span<const std::byte> bytes) {
    const std::unique_ptr<NewFile> file = open_new(path, bytes.size());
    file->write(bytes);
    file->finish();
  }
  virtual void sync_folder(const std::string& path) = 0;
  virtual void rename(const std::string& from, const std::string& to) = 0;  // `to` must not exist
  virtual void remove_all(const std::string& path) = 0;  // a file or a folder; absent is no error
  virtual bool exists(const std::string& path) const = 0;
  virtual std::vector<std::string> list(const std::string& folder) const = 0;  // names, sorted
  virtual std::vector<std::byte> read(const std::string& path) const = 0;
  virtual std::uint64_t size(const std::string& path) const = 0;  // of a plain file
  virtual std::uint64_t free_bytes(const std::string& folder) const = 0;
  // The file piece by piece, so that one larger than memory can be summed. What `take` throws ends it.
  virtual void visit(const std::string& path,
                     const std::function<void(std::span<const std::byte>)>& take) const {
    take(read(path));
  }
  // Nobody else gets this lock while the answer lives, and a process that dies gives it back; empty:
  // somebody has it. The file is made where it is not there and stays. Real ones are flock(2)'s: on a file
  // system without locks everybody gets them.
  virtual std::shared_ptr<void> lock(const std::string& path) = 0;
};

Fs& real_fs();

// The CRC of gzip, PNG and zlib (polynomial 0x04C11DB7, reflected); `before`: of the bytes that came
// earlier.
std::uint32_t crc32(std::span<const std::byte> bytes, std::uint32_t before = 0);

// XXH64 with seed 0: a second, wider sum. Bytes may come in pieces.
class Hash64 {
 public:
  Hash64();
  void add(std::span<const std::byte> bytes);
  std::uint64_t value() const;

 private:
  std::array<std::uint64_t, 4> lanes_;
  std::array<std::byte, 32> rest_;  // what is left of a stripe: size_ % 32 bytes
  std::uint64_t size_ = 0;
};
std::uint64_t hash64(std::span<const std::byte> bytes);

}  // namespace rapt
