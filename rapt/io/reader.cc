// SPDX-License-Identifier: Apache-2.0
// A Reader takes bytes of a file by pread: a cut is an error. Writers sync a file beside, then rename it.
#include "rapt/io/reader.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cerrno>
#include <charconv>
#include <filesystem>
#include <mutex>
#include <set>

#include "rapt/io/folder.h"

namespace rapt {
namespace {

static_assert(std::endian::native == std::endian::little, "values of files are read as they lie in memory");

class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }

 private:
  int fd_;
};

[[noreturn]] void fail_open(const std::string& path, int error) {
  if (error == ENOENT) fail_missing(path, ": no such file; check the name and the folder");
  const char* why = error == EACCES   ? "no permission to read it"
                    : error == EISDIR ? "is a folder, a file is wanted"
                                      : std::strerror(error);
  fail(path, ": ", why);
}

// Opens without waiting (a pipe would), and looks what it is before anything is read.
int open_for_reading(const std::string& path, struct stat& is) {
  if (path.find('\0') != std::string::npos) fail(quote_name(path), ": a path cannot hold a zero byte");
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) fail_open(path, errno);
  if (::fstat(fd, &is) != 0) {
    const int error = errno;
    ::close(fd);
    fail_open(path, error);
  }
  if (S_ISDIR(is.st_mode)) {
    ::close(fd);
    fail_open(path, EISDIR);
  }
  return fd;
}

std::string folder_of(const std::string& path) {
  const auto slash = path.rfind('/');
  return slash == std::string::npos ? "." : slash == 0 ? "/" : path.substr(0, slash);
}

}  // namespace

MappedFile::MappedFile(const std::string& path) : path_(path) {
  struct stat is;
  const int file = open_for_reading(path, is);
  descriptor_ = std::shared_ptr<const int>(new int(file), [](const int* fd) {
    ::close(*fd);
    delete fd;
  });
  if (!S_ISREG(is.st_mode)) fail(path, ": is a pipe or a device; a plain file is wanted");
  identity_ = {static_cast<std::uint64_t>(is.st_dev), static_cast<std::uint64_t>(is.st_ino),
               static_cast<std::uint64_t>(is.st_size), static_cast<std::int64_t>(is.st_mtim.tv_sec),
               static_cast<std::int64_t>(is.st_mtim.tv_nsec)};
  const auto size = static_cast<std::size_t>(is.st_size);
  if (size == 0) return;  // nothing to map
  void* start = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file, 0);
  if (start == MAP_FAILED) fail(path, ": cannot be mapped into memory: ", std::strerror(errno));
  map_ = std::shared_ptr<const void>(start, [size](const void* p) { ::munmap(const_cast<void*>(p), size); });
  bytes_ = {static_cast<const std::byte*>(start), size};
}

void MappedFile::check_unchanged() const {
  struct stat is;
  if (::stat(path_.c_str(), &is) != 0) fail(path_, ": vanished while it was read");
  const Identity now{static_cast<std::uint64_t>(is.st_dev), static_cast<std::uint64_t>(is.st_ino),
                     static_cast<std::uint64_t>(is.st_size), static_cast<std::int64_t>(is.st_mtim.tv_sec),
                     static_cast<std::int64_t>(is.st_mtim.tv_nsec)};
  if (!(now == identity_))
    fail(path_, ": changed while it was read; wait until whoever writes it has finished, then try again");
}

void MappedFile::copy(std::uint64_t offset, std::span<std::byte> out) const {
  if (offset > bytes_.size() || out.size() > bytes_.size() - offset)
    fail(path_, ": ", out.size(), " bytes from ", offset, " on are wanted, the file has ", bytes_.size());
  while (!out.empty()) {
    const ssize_t n = ::pread(*descriptor_, out.data(), out.size(), static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail(path_, ": cannot be read: ", std::strerror(errno));
    if (n == 0)
      fail(path_, ": was cut before byte ", offset,
           " while it was read; wait until whoever writes it has finished, then try again");
    offset += static_cast<std::uint64_t>(n);
    out = out.subspan(static_cast<std::size_t>(n));
  }
}

std::span<const std::byte> Reader::look(std::uint64_t n) {
  const auto size = static_cast<std::size_t>(n);
  if (!file_) return rest_.first(size);
  constexpr std::uint64_t kWindow = std::uint64_t{1} << 16;
  const std::uint64_t at = position();
  if (at < window_at_ || at - window_at_ > window_.size() || n > window_.size() - (at - window_at_)) {
    window_.resize(static_cast<std::size_t>(std::min(left(), std::max(n, kWindow))));
    window_at_ = at;
    file_->copy(at, window_);
  }
  return std::span<const std::byte>(window_).subspan(static_cast<std::size_t>(at - window_at_), size);
}

std::span<const std::byte> Reader::skip(std::uint64_t n, std::string_view what) {
  if (n > rest_.size())
    refuse(what, " wants ", n, " bytes, ", rest_.size(), " are left (is the download complete?)");
  const auto taken = rest_.first(static_cast<std::size_t>(n));
  rest_ = rest_.subspan(static_cast<std::size_t>(n));
  return taken;
}

std::span<const std::byte> Reader::take(std::uint64_t n, std::string_view what) {
  if (n > rest_.size()) skip(n, what);  // says so
  const auto taken = look(n);
  skip(n, what);
  return taken;
}

std::string_view Reader::text(std::uint64_t n, std::string_view what) {
  if (n > rest_.size()) skip(n, what);
  const auto bytes = look(n);
  const std::string_view s(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  if (!valid_utf8(s)) refuse(what, " is not UTF-8: ", quote_name(s));
  skip(n, what);
  return s;
}

void Reader::spend(std::uint64_t memory, std::uint64_t ahead) {
  constexpr std::uint64_t kSpare = std::uint64_t{16} << 20, kTimes = 4;
  const std::uint64_t most = kSpare + kTimes * (position() + std::min(ahead, left()));
  if (memory > most - std::min(most, spent_))
    refuse("what the header announces takes more than ", most, " bytes of memory (16 MiB and ", kTimes,
           " times its size); no model does, so it is not read");
  spent_ += memory;
}

void Reader::expect_items(std::uint64_t n, std::uint64_t smallest, std::string_view what) const {
  if (n > rest_.size() / smallest)
    refuse(n, " ", what, " are announced, which take ", smallest, " bytes each at least; ", rest_.size(),
           " bytes are left (is the download complete?)");
}

std::vector<std::byte> read_file(const std::string& path) {
  const MappedFile file(path);
  std::vector<std::byte> bytes(file.bytes().size());
  file.copy(0, bytes);
  file.check_unchanged();
  return bytes;
}

std::string read_text_file(const std::string& path, std::uint64_t most) {
  struct stat is;
  const Descriptor file(open_for_reading(path, is));
  if (S_ISREG(is.st_mode) && static_cast<std::uint64_t>(is.st_size) > most)
    fail(path, ": has ", is.st_size, " bytes, more than ", most, " are not read as one text");
  std::string text;
  std::array<char, 65536> part;
  for (;;) {  // until the end, whatever the size said: /proc and growing files
    const ssize_t n = ::read(file.get(), part.data(), part.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail(path, ": cannot be read: ", std::strerror(errno));
    if (n == 0) return text;
    text.append(part.data(), static_cast<std::size_t>(n));
    if (text.size() > most) fail(path, ": has more than ", most, " bytes, which are not read as one text");
  }
}

void check_link(const std::string& folder, const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code error;
  if (!fs::is_symlink(path, error)) return;
  const fs::path root = fs::canonical(folder, error), target = fs::weakly_canonical(path, error);
  const bool inside =
      std::mismatch(root.begin(), root.end(), target.begin(), target.end()).first == root.end();
  const fs::path blobs = target.parent_path();
  const bool cached =
      blobs.filename() == "blobs" && blobs.parent_path().filename().string().starts_with("models--");
  if (error || (!inside && !cached))
    fail(path, ": is a link that leads out of the model's folder, to ", quote_name(target.string()),
         "; put the file itself there, or open the folder that it lies in");
}

void check_links(const std::string& folder) {
  constexpr std::string_view kEnds[] = {".json", ".txt", ".model", ".spm", ".safetensors", ".jinja"};
  std::error_code error;
  for (const std::filesystem::path& p : paths_in(folder, error)) {
    const std::string name = p.filename().string();
    if (std::any_of(std::begin(kEnds), std::end(kEnds),
                    [&](std::string_view end) { return name.ends_with(end); }))
      check_link(folder, p.string());
  }
}

bool valid_utf8(std::string_view text) {
  std::size_t i = 0;
  while (i < text.size()) {
    const auto lead = static_cast<unsigned char>(text[i]);
    if (lead < 0x80) {
      ++i;
      continue;
    }
    if (lead < 0xC2 || lead > 0xF4) return false;
    const std::size_t size = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
    if (size > text.size() - i) return false;
    std::uint32_t code = lead & (0xFFu >> (size + 1));
    for (std::size_t k = 1; k < size; ++k) {
      const auto c = static_cast<unsigned char>(text[i + k]);
      if ((c & 0xC0) != 0x80) return false;
      code = code << 6 | (c & 0x3Fu);
    }
    if (code < (size == 4   ? 0x10000u
                : size == 3 ? 0x800u
                            : 0x80u) ||
        code > 0x10FFFF || (code >= 0xD800 && code < 0xE000))
      return false;
    i += size;
  }
  return true;
}

std::string quote_name(std::string_view name) {
  constexpr std::size_t kMost = 120;
  const bool cut = name.size() > kMost, plain = valid_utf8(name);
  std::size_t end = cut ? kMost : name.size();
  // Not inside a character.
  while (plain && cut && end > 0 && (static_cast<unsigned char>(name[end]) & 0xC0) == 0x80) --end;
  std::string out = "'";
  for (const char c : name.substr(0, end)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == 0x7F || (byte >= 0x80 && !plain))
      out += "\\x", out += "0123456789abcdef"[byte / 16], out += "0123456789abcdef"[byte % 16];
    else out += c;
  }
  return out + (cut ? "…'" : "'");
}

std::string foreign_format(std::span<const std::byte> start) {
  const std::string_view s(reinterpret_cast<const char*>(start.data()), start.size());
  // 0x80 0x02 … 0x05 are also how the length of a safetensors header begins (640, 896, …); after it stands
  // its '{'.
  auto pickle = [&] {
    return s.size() >= 2 && s[0] == '\x80' && s[1] >= 2 && s[1] <= 5 && !(s.size() >= 9 && s[8] == '{');
  };
  if (s.starts_with("PK\x03\x04") || pickle())
    return "a pickle or PyTorch file, which can run any program when it is read and is therefore never "
           "opened; convert it to safetensors";
  if (s.starts_with("GGUF")) return "a GGUF file; give it a name that ends in .gguf";
  if (s.starts_with("FUGG")) return "a GGUF file with its bytes in the wrong order";
  if (s.starts_with("lmgg") || s.starts_with("fmgg") || s.starts_with("tjgg") || s.starts_with("ggml") ||
      s.starts_with("ggjt"))
    return "a GGML file from before GGUF (2023); convert the model again with a current converter";
  if (s.starts_with("\x89HDF")) return "an HDF5 file (Keras); convert it to safetensors";
  if (s.starts_with("version https://git-lfs"))
    return "a Git LFS pointer and not the file itself; fetch it with git lfs pull";
  if (s.starts_with("<!DOCTYPE") || s.starts_with("<!doctype") || s.starts_with("<html"))
    return "a web page and not the file itself; download it again";
  if (s.size() >= 9 && s[8] == '{' && s[5] == 0 && s[6] == 0 && s[7] == 0)
    return "a safetensors file; give it a name that ends in .safetensors";
  return "";
}

bool left_behind(const std::string& path, long process) {
  if (process <= 0 || process == ::getpid() || ::kill(static_cast<pid_t>(process), 0) == 0 || errno != ESRCH)
    return false;
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC));
  // Another machine or container has other numbers.
  return file.get() >= 0 && ::flock(file.get(), LOCK_EX | LOCK_NB) == 0;
}

void clear_leftovers(const std::string& folder) {
  std::error_code error;
  std::vector<std::string> gone;
  for (const std::filesystem::path& path : paths_in(folder, error)) {
    std::string_view name = path.native();
    name.remove_prefix(name.rfind('/') + 1);
    if (!name.starts_with('.') || !name.ends_with(".tmp")) continue;
    name.remove_suffix(4);  // .FILE.PROCESS-NUMBER
    const std::size_t dash = name.rfind('-'), dot = name.rfind('.', dash);
    long process = 0;
    unsigned number = 0;
    const auto digits = [&](std::string_view text, auto& n) {
      const auto [end, bad] = std::from_chars(text.data(), text.data() + text.size(), n);
      return bad == std::errc{} && end == text.data() + text.size();
    };
    if (dash == name.npos || dot == name.npos || dot < 2 ||
        !digits(name.substr(dot + 1, dash - dot - 1), process) || !digits(name.substr(dash + 1), number))
      continue;
    if (std::filesystem::is_regular_file(path, error) && left_behind(path.native(), process))
      gone.push_back(path.native());
  }
  for (const std::string& path : gone) ::unlink(path.c_str());
}

namespace {

void clear_leftovers_once(const std::string& folder) {
  static std::mutex lock;
  static std::set<std::string> done;
  const std::lock_guard hold(lock);
  if (done.insert(folder).second) clear_leftovers(folder);
}

}  // namespace

struct FileWriter::State {
  std::string path, temporary;
  bool force = false, committed = false;
  int fd = -1;
  std::uint64_t position = 0;
  std::vector<std::byte> buffer;

  [[noreturn]] void failed(const char* doing, int error) const {
    fail(path, ": cannot ", doing, ": ",
         error == ENOSPC  ? "the disk is full"
         : error == EFBIG ? "no file may become that large (ulimit -f)"
                          : std::strerror(error),
         "; what stood there before is unchanged");
  }
  void flush() {
    const std::byte* from = buffer.data();
    std::size_t left = buffer.size();
    while (left > 0) {
      const ssize_t n = ::write(fd, from, left);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) failed("write", errno);
      from += n;
      left -= static_cast<std::size_t>(n);
    }
    buffer.clear();
  }
};

FileWriter::FileWriter(const std::string& path, bool force) : state_(std::make_unique<State>()) {
  static std::atomic<unsigned> counter{0};
  State& s = *state_;
  s.path = path;
  s.force = force;
  struct stat is;
  if (::stat(path.c_str(), &is) == 0) {
    if (S_ISDIR(is.st_mode)) fail(path, ": is a folder, a file name is wanted");
    if (!force) fail(path, ": exists already; --force overwrites it");
  }
  const auto slash = path.rfind('/');
  const std::string file = slash == std::string::npos ? path : path.substr(slash + 1);
  if (file.empty()) fail(path.empty() ? "''" : path, ": is no name of a file");
  clear_leftovers_once(folder_of(path));
  s.temporary = concat(folder_of(path), "/.", file, ".", ::getpid(), "-", counter++, ".tmp");
  s.fd = ::open(s.temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (s.fd < 0) {
    const int error = errno;
    if (error == ENOENT || error == ENOTDIR) fail_missing(path, ": there is no folder ", folder_of(path));
    s.failed("be written", error);
  }
  ::flock(s.fd, LOCK_EX | LOCK_NB);  // says that somebody still writes it
  s.buffer.reserve(std::size_t{1} << 20);
}

FileWriter::~FileWriter() {
  if (!state_) return;
  if (state_->fd >= 0) ::close(state_->fd);
  if (!state_->committed && !state_->temporary.empty()) ::unlink(state_->temporary.c_str());
}

void FileWriter::write(std::span<const std::byte> bytes) {
  State& s = *state_;
  constexpr std::size_t kBuffer = std::size_t{1} << 20;
  s.position += bytes.size();
  while (!bytes.empty()) {
    const std::size_t n = std::min(bytes.size(), kBuffer - s.buffer.size());
    s.buffer.insert(s.buffer.end(), bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(n));
    bytes = bytes.subspan(n);
    if (s.buffer.size() == kBuffer) s.flush();
  }
}

void FileWriter::pad_to(std::uint64_t alignment) {
  while (state_->position % alignment != 0) put(std::uint8_t{0});
}

std::uint64_t FileWriter::position() const { return state_->position; }

// fsync before rename: otherwise a power cut can leave the new name with no content. A failed fsync is not
// tried again: the pages may be marked clean though they were never written.
void FileWriter::commit() {
  State& s = *state_;
  if (s.committed) fail(s.path, ": was committed before");
  s.flush();
  int synced;
  do synced = ::fsync(s.fd);
  while (synced != 0 && errno == EINTR);  // a signal cut it short: it has reported nothing yet
  if (synced != 0) s.failed("write", errno);
  const int closed = ::close(s.fd);
  s.fd = -1;
  if (closed != 0 && errno != EINTR) s.failed("close", errno);  // EINTR: it is closed
  if (s.force) {
    if (::rename(s.temporary.c_str(), s.path.c_str()) != 0) s.failed("rename", errno);
  } else if (::link(s.temporary.c_str(), s.path.c_str()) == 0) {
    // link refuses a name that appeared meanwhile, rename would replace it
    ::unlink(s.temporary.c_str());
  } else if (errno == EEXIST) {
    fail(s.path, ": appeared while it was being written; --force overwrites it");
  } else if (::rename(s.temporary.c_str(), s.path.c_str()) != 0) {  // file systems without hard links
    s.failed("rename", errno);
  }
  s.committed = true;
  const Descriptor folder(::open(folder_of(s.path).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (folder.get() >= 0) ::fsync(folder.get());  // makes the name durable; not every file system can
}

}  // namespace rapt
