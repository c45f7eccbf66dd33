// SPDX-License-Identifier: Apache-2.0
// A new file: reserve, write, sync, close; the first error is told. At the end: CRC-32 by zlib, and XXH64.
#include "rapt/io/fs.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <utility>

#include "rapt/base/checked.h"
#include "rapt/io/folder.h"

namespace rapt {
namespace {

[[noreturn]] void refuse(const std::string& path, const char* doing, int error) {
  const char* why = error == ENOSPC || error == EDQUOT ? "the disk is full"
                    : error == EIO
                        ? "the disk reports an error (EIO); what was being written is lost, look at the drive"
                    : error == EROFS ? "the file system is mounted for reading only"
                                     : std::strerror(error);
  fail(path, ": cannot ", doing, ": ", why);
}

// Calls until it was not a signal that ended it.
template <class F>
auto again(F&& f) {
  for (;;) {
    const auto answer = f();
    if (answer != -1 || errno != EINTR) return answer;
  }
}

// Owns an open file. Closing is a step that can fail (NFS reports a full disk there), so it has its own
// call; the destructor is for the way out.
class Open {
 public:
  Open(const std::string& path, const char* doing, int flags, mode_t mode = 0) {
    fd_ = again([&] { return ::open(path.c_str(), flags | O_CLOEXEC, mode); });
    if (fd_ < 0) refuse(path, doing, errno);
  }
  ~Open() {
    if (fd_ >= 0) ::close(fd_);
  }
  Open(const Open&) = delete;
  Open& operator=(const Open&) = delete;
  int fd() const { return fd_; }
  // 0 or the error. The descriptor is gone either way; after EINTR, too: another try could close
  // somebody else's.
  int close() { return ::close(std::exchange(fd_, -1)) == 0 || errno == EINTR ? 0 : errno; }

 private:
  int fd_ = -1;
};

// 0 or the error. An error is final: the kernel may have marked the pages clean though they never reached
// the disk, and a second call would say that all is well. Only a call that a signal cut short is made again:
// it has reported nothing yet.
int sync(int fd) {
#ifdef F_FULLFSYNC
  // macOS: fsync alone stops at the drive's cache
  if (again([&] { return ::fcntl(fd, F_FULLFSYNC); }) != -1) return 0;
#endif
  return again([&] { return ::fsync(fd); }) == 0 ? 0 : errno;
}

// Room first, so that a full disk shows before the work; 0 or the error.
int reserve(int fd, std::uint64_t bytes) {
#ifdef __APPLE__
  (void)fd, (void)bytes;
  return 0;
#else
  int error = 0;
  do error = ::posix_fallocate(fd, 0, static_cast<off_t>(bytes));  // returns the error, errno stays
  while (error == EINTR);
  // A file system that cannot reserve.
  return error == EOPNOTSUPP || error == EINVAL || error == ENOSYS ? 0 : error;
#endif
}

int write_all(int fd, std::span<const std::byte> bytes) {  // 0 or the error
  while (!bytes.empty()) {
    const std::size_t most = std::min(bytes.size(), std::size_t{1} << 30);
    const ssize_t n = again([&] { return ::write(fd, bytes.data(), most); });
    if (n < 0) return errno;
    if (n == 0) return EIO;  // neither progress nor an error: not a file
    bytes = bytes.subspan(static_cast<std::size_t>(n));
  }
  return 0;
}

bool present(const std::string& path) {
  struct stat is;
  if (::lstat(path.c_str(), &is) == 0) return true;
  if (errno == ENOENT || errno == ENOTDIR) return false;
  refuse(path, "be looked at", errno);
}

class RealFile final : public NewFile {
 public:
  RealFile(const std::string& path, std::uint64_t bytes)
      : path_(path), expected_(bytes), file_(path, "create", O_WRONLY | O_CREAT | O_EXCL, 0666) {
    if (bytes > 0) need("reserve room for", reserve(file_.fd(), bytes));
  }
  ~RealFile() override {
    if (!finished_) ::unlink(path_.c_str());
  }
  void write(std::span<const std::byte> bytes) override {
    written_ += bytes.size();
    if (written_ > expected_) fail(path_, ": more than the ", expected_, " bytes that were to be written");
    need("write", write_all(file_.fd(), bytes));
  }
  void finish() override {
    if (written_ != expected_)
      fail(path_, ": ", written_, " bytes were written, ", expected_, " were to come");
    need("sync", sync(file_.fd()));
    need("close", file_.close());
    finished_ = true;
  }

 private:
  // Half a file helps nobody; the first error is the one to tell.
  void need(const char* doing, int error) {
    if (error == 0) return;
    if (!std::exchange(finished_, true)) ::unlink(path_.c_str());
    refuse(path_, doing, error);
  }

  const std::string path_;
  const std::uint64_t expected_;
  std::uint64_t written_ = 0;
  Open file_;
  bool finished_ = false;  // or given up
};

class RealFs final : public Fs {
 public:
  void make_folder(const std::string& path) override {
    if (::mkdir(path.c_str(), 0700) != 0) refuse(path, "make this folder", errno);
  }

  std::unique_ptr<NewFile> open_new(const std::string& path, std::uint64_t bytes) override {
    return std::make_unique<RealFile>(path, bytes);
  }

  void sync_folder(const std::string& path) override {
    Open folder(path, "open this folder", O_RDONLY | O_DIRECTORY);
    int error = sync(folder.fd());
    // A file system whose folders cannot be synced; it has no stronger promise to give.
    if (error == EINVAL) error = 0;
    if (const int closed = folder.close(); error == 0) error = closed;
    if (error != 0) refuse(path, "sync this folder", error);
  }

  void rename(const std::string& from, const std::string& to) override {
#if defined(__linux__) && defined(RENAME_NOREPLACE)
    if (::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_NOREPLACE) == 0) return;
    if (errno == EEXIST) fail(to, ": exists already, ", from, " is not renamed to it");
    if (errno != EINVAL && errno != ENOSYS) refuse(from, concat("rename to ", to).c_str(), errno);
#endif
    // A file system or a kernel without that call: look first. Whoever saves holds the lock, so nobody
    // comes in between.
    if (present(to)) fail(to, ": exists already, ", from, " is not renamed to it");
    if (::rename(from.c_str(), to.c_str()) != 0) refuse(from, concat("rename to ", to).c_str(), errno);
  }

  void remove_all(const std::string& path) override {  // links are removed, not followed
    std::error_code error;
    remove_tree(path, error);
    if (error) refuse(path, "remove", error.value());
  }

  bool exists(const std::string& path) const override { return present(path); }

  std::vector<std::string> list(const std::string& folder) const override {
    std::vector<std::string> names;
    std::error_code error;
    for (const std::filesystem::path& p : paths_in(folder, error)) names.push_back(p.filename().string());
    if (error) refuse(folder, "list this folder", error.value());
    return names;
  }

  std::vector<std::byte> read(const std::string& path) const override {
    std::vector<std::byte> bytes;
    each_part(
        path, [&](std::uint64_t size) { bytes.reserve(static_cast<std::size_t>(size)); },
        [&](std::span<const std::byte> part) { bytes.insert(bytes.end(), part.begin(), part.end()); });
    return bytes;
  }

  void visit(const std::string& path,
             const std::function<void(std::span<const std::byte>)>& take) const override {
    each_part(path, [](std::uint64_t) {}, take);
  }

  std::uint64_t size(const std::string& path) const override {
    struct stat is;
    if (::lstat(path.c_str(), &is) != 0) refuse(path, "be looked at", errno);
    if (!S_ISREG(is.st_mode)) fail(path, ": is no plain file");
    return static_cast<std::uint64_t>(is.st_size);
  }

  std::uint64_t free_bytes(const std::string& folder) const override {
    struct statvfs is;
    if (again([&] { return ::statvfs(folder.c_str(), &is); }) != 0)
      refuse(folder, "ask for free space of", errno);
    return checked_mul(std::uint64_t{is.f_bavail}, std::uint64_t{is.f_frsize}, "free space");
  }

  std::shared_ptr<void> lock(const std::string& path) override {
    auto file = std::make_shared<Open>(path, "open", O_RDWR | O_CREAT, 0666);
    if (again([&] { return ::flock(file->fd(), LOCK_EX | LOCK_NB); }) == 0) return file;
    if (errno == EWOULDBLOCK) return nullptr;
    // No locks here: nobody is kept out.
    if (errno == ENOTSUP || errno == ENOSYS || errno == EINVAL || errno == ENOLCK) return file;
    refuse(path, "lock", errno);
  }

 private:
  static void each_part(const std::string& path, auto&& size, auto&& take) {
    Open file(path, "open", O_RDONLY | O_NONBLOCK);  // a pipe of that name must not make us wait
    struct stat is;
    if (::fstat(file.fd(), &is) != 0) refuse(path, "be looked at", errno);
    if (!S_ISREG(is.st_mode)) fail(path, ": is no plain file");
    size(static_cast<std::uint64_t>(is.st_size));
    std::vector<std::byte> part(static_cast<std::size_t>(std::clamp<off_t>(is.st_size, 1, off_t{1} << 20)));
    for (;;) {  // to the end, whatever the size said
      const ssize_t n = again([&] { return ::read(file.fd(), part.data(), part.size()); });
      if (n < 0) refuse(path, "read", errno);
      if (n == 0) return;
      take(std::span<const std::byte>(part).first(static_cast<std::size_t>(n)));
    }
  }
};

// XXH64 as its specification gives it: four lanes eat stripes of 32 bytes, are merged, then the rest by 8, 4
// and 1.
constexpr std::uint64_t kPrime1 = 0x9E3779B185EBCA87, kPrime2 = 0xC2B2AE3D27D4EB4F,
                        kPrime3 = 0x165667B19E3779F9, kPrime4 = 0x85EBCA77C2B2AE63,
                        kPrime5 = 0x27D4EB2F165667C5;

std::uint64_t mixed(std::uint64_t lane, std::uint64_t word) {
  return std::rotl(lane + word * kPrime2, 31) * kPrime1;
}

template <class T>
T word_at(const std::byte* at) {
  static_assert(std::endian::native == std::endian::little, "the hash reads words as they lie in memory");
  T word;
  std::memcpy(&word, at, sizeof word);
  return word;
}

}  // namespace

Fs& real_fs() {
  static RealFs fs;
  return fs;
}

std::uint32_t crc32(std::span<const std::byte> bytes, std::uint32_t before) {
  return static_cast<std::uint32_t>(
      ::crc32_z(before, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size()));
}

Hash64::Hash64() : lanes_{kPrime1 + kPrime2, kPrime2, 0, 0 - kPrime1}, rest_{} {}

void Hash64::add(std::span<const std::byte> bytes) {
  const auto eat = [this](const std::byte* stripe) {
    for (std::size_t i = 0; i < 4; ++i) lanes_[i] = mixed(lanes_[i], word_at<std::uint64_t>(stripe + 8 * i));
  };
  const std::size_t held = size_ % 32;
  size_ += bytes.size();
  if (held > 0) {
    const std::size_t n = std::min(bytes.size(), 32 - held);
    std::copy_n(bytes.begin(), n, rest_.begin() + static_cast<std::ptrdiff_t>(held));
    bytes = bytes.subspan(n);
    if (held + n < 32) return;
    eat(rest_.data());
  }
  for (; bytes.size() >= 32; bytes = bytes.subspan(32)) eat(bytes.data());
  std::copy(bytes.begin(), bytes.end(), rest_.begin());
}

std::uint64_t Hash64::value() const {
  std::uint64_t h = kPrime5;
  if (size_ >= 32) {
    h = std::rotl(lanes_[0], 1) + std::rotl(lanes_[1], 7) + std::rotl(lanes_[2], 12) +
        std::rotl(lanes_[3], 18);
    for (const std::uint64_t lane : lanes_) h = (h ^ mixed(0, lane)) * kPrime1 + kPrime4;
  }
  h += size_;
  std::span<const std::byte> left = std::span(rest_).first(size_ % 32);
  for (; left.size() >= 8; left = left.subspan(8))
    h = std::rotl(h ^ mixed(0, word_at<std::uint64_t>(left.data())), 27) * kPrime1 + kPrime4;
  for (; left.size() >= 4; left = left.subspan(4))
    h = std::rotl(h ^ word_at<std::uint32_t>(left.data()) * kPrime1, 23) * kPrime2 + kPrime3;
  for (const std::byte b : left) h = std::rotl(h ^ static_cast<std::uint64_t>(b) * kPrime5, 11) * kPrime1;
  h = (h ^ h >> 33) * kPrime2;
  h = (h ^ h >> 29) * kPrime3;
  return h ^ h >> 32;
}

std::uint64_t hash64(std::span<const std::byte> bytes) {
  Hash64 hash;
  hash.add(bytes);
  return hash.value();
}

}  // namespace rapt
