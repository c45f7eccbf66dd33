// SPDX-License-Identifier: Apache-2.0
// The real file system: what is made, renamed, removed, locked, refused. Sums against zlib and xxHash.
#include "rapt/io/fs.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>

#include "tests/tools.h"

namespace rapt {
namespace {

using test::error_of;
using test::holds;
using test::TempFolder;

std::span<const std::byte> bytes_of(std::string_view s) {
  return std::as_bytes(std::span(s.data(), s.size()));
}
std::string text_of(const std::vector<std::byte>& b) {
  return {reinterpret_cast<const char*>(b.data()), b.size()};
}

TEST(Fs, MakesFoldersAndFilesThatNobodyHad) {
  const TempFolder folder;
  Fs& fs = real_fs();
  fs.make_folder(folder / "a");
  struct stat is;
  ASSERT_EQ(0, ::stat((folder / "a").c_str(), &is));
  EXPECT_EQ(0700u, is.st_mode & 0777u);
  EXPECT_TRUE(holds(error_of([&] { fs.make_folder(folder / "a"); }), folder / "a"));
  EXPECT_TRUE(holds(error_of([&] { fs.make_folder(folder / "b/c"); }), "No such file"));

  for (const std::string& text : {std::string(), std::string("x"), std::string(3'000'001, 'y')}) {
    const std::string path = folder / concat("a/file", text.size()).c_str();
    EXPECT_FALSE(fs.exists(path));
    fs.create(path, bytes_of(text));
    EXPECT_TRUE(fs.exists(path));
    EXPECT_EQ(text, text_of(fs.read(path)));
    std::size_t parts = 0;
    std::string seen;
    fs.visit(path, [&](std::span<const std::byte> part) {
      ++parts, seen.append(reinterpret_cast<const char*>(part.data()), part.size());
    });
    EXPECT_EQ(text, seen);
    EXPECT_EQ(parts, (text.size() + (1 << 20) - 1) >> 20);  // piece by piece
    EXPECT_TRUE(holds(error_of([&] { fs.create(path, bytes_of("z")); }), "File exists"));
    EXPECT_EQ(text, text_of(fs.read(path)));
  }
  fs.sync_folder(folder / "a");
  EXPECT_EQ((std::vector<std::string>{"file0", "file1", "file3000001"}), fs.list(folder / "a"));
  EXPECT_GT(fs.free_bytes(folder.path()), 0u);
}

TEST(Fs, RenameRefusesWhatStands) {
  const TempFolder folder;
  Fs& fs = real_fs();
  fs.create(folder / "a", bytes_of("a"));
  fs.create(folder / "b", bytes_of("b"));
  EXPECT_TRUE(holds(error_of([&] { fs.rename(folder / "a", folder / "b"); }), "exists already"));
  EXPECT_EQ("b", text_of(fs.read(folder / "b")));
  fs.make_folder(folder / "empty");
  fs.make_folder(folder / "other");
  // Plain rename would replace it.
  EXPECT_TRUE(holds(error_of([&] { fs.rename(folder / "other", folder / "empty"); }), "exists already"));
  fs.rename(folder / "a", folder / "c");
  EXPECT_FALSE(fs.exists(folder / "a"));
  EXPECT_EQ("a", text_of(fs.read(folder / "c")));
  EXPECT_TRUE(holds(error_of([&] { fs.rename(folder / "absent", folder / "d"); }), "No such file"));
}

TEST(Fs, RemovesTreesButFollowsNoLink) {
  const TempFolder folder;
  Fs& fs = real_fs();
  fs.make_folder(folder / "a");
  fs.make_folder(folder / "a/b");
  fs.make_folder(folder / "kept");
  fs.create(folder / "a/b/file", bytes_of("x"));
  fs.create(folder / "kept/file", bytes_of("x"));
  ASSERT_EQ(0, ::symlink((folder / "kept").c_str(), (folder / "a/link").c_str()));
  fs.remove_all(folder / "a");
  EXPECT_FALSE(fs.exists(folder / "a"));
  EXPECT_TRUE(fs.exists(folder / "kept/file"));
  fs.remove_all(folder / "a");  // absent is no error
  fs.remove_all(folder / "kept/file");
  EXPECT_FALSE(fs.exists(folder / "kept/file"));
}

TEST(Fs, ErrorsNameThePath) {
  const TempFolder folder;
  Fs& fs = real_fs();
  EXPECT_TRUE(holds(error_of([&] { (void)fs.read(folder / "absent"); }), folder / "absent"));
  EXPECT_TRUE(holds(error_of([&] { (void)fs.list(folder / "absent"); }), folder / "absent"));
  EXPECT_TRUE(holds(error_of([&] { fs.sync_folder(folder / "absent"); }), folder / "absent"));
  EXPECT_TRUE(holds(error_of([&] { (void)fs.free_bytes(folder / "absent"); }), folder / "absent"));
  EXPECT_TRUE(holds(error_of([&] { fs.create(folder / "absent/file", {}); }), "absent/file"));
  EXPECT_TRUE(holds(error_of([&] { (void)fs.read(folder.path()); }), "no plain file"));
  ASSERT_EQ(0, ::mkfifo((folder / "pipe").c_str(), 0600));
  // And does not wait for a writer.
  EXPECT_TRUE(holds(error_of([&] { (void)fs.read(folder / "pipe"); }), "no plain file"));
  fs.create(folder / "file", bytes_of("x"));
  EXPECT_TRUE(holds(error_of([&] { fs.sync_folder(folder / "file"); }), folder / "file"));
  EXPECT_THROW(fs.visit(folder / "file", [](std::span<const std::byte>) { fail("enough"); }), Error);
}

TEST(Fs, AFileThatDoesNotFitLeavesNothing) {
  const TempFolder folder;
  const auto handler = ::signal(SIGXFSZ, SIG_IGN);
  rlimit before;
  ASSERT_EQ(0, ::getrlimit(RLIMIT_FSIZE, &before));
  const rlimit small{10'000, before.rlim_max};
  ASSERT_EQ(0, ::setrlimit(RLIMIT_FSIZE, &small));
  const std::string why =
      error_of([&] { real_fs().create(folder / "large", bytes_of(std::string(100'000, 'x'))); });
  ::setrlimit(RLIMIT_FSIZE, &before);
  ::signal(SIGXFSZ, handler);
  EXPECT_TRUE(holds(why, folder / "large")) << why;
  EXPECT_FALSE(real_fs().exists(folder / "large"));
}

TEST(Fs, OneHolderOfALock) {
  const TempFolder folder;
  Fs& fs = real_fs();
  auto lock = fs.lock(folder / "lock");
  ASSERT_TRUE(lock);
  EXPECT_FALSE(fs.lock(folder / "lock"));
  lock.reset();
  lock = fs.lock(folder / "lock");
  EXPECT_TRUE(lock);
  lock.reset();
  int ends[2];
  ASSERT_EQ(0, ::pipe(ends));
  const pid_t child = ::fork();
  if (child == 0) {
    const auto held = fs.lock(folder / "lock");
    if (::write(ends[1], "x", 1) == 1) ::pause();
    ::_exit(held ? 0 : 1);
  }
  char c;
  ASSERT_EQ(1, ::read(ends[0], &c, 1));
  EXPECT_FALSE(fs.lock(folder / "lock"));
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  EXPECT_TRUE(fs.lock(folder / "lock"));  // the dead give theirs back
  ::close(ends[0]);
  ::close(ends[1]);
}

// Values of the reference libraries (zlib, xxHash) for bytes (31 i^2 + 7) mod 251.
TEST(Sums, AreThoseOfTheReference) {
  const struct {
    std::size_t n;
    std::uint32_t crc;
    std::uint64_t hash;
  } cases[] = {{1, 0x4C667A2Eu, 0xA96C7F0CE858BBB7u},     {3, 0x4D619E29u, 0xEFEBCA82948A6577u},
               {4, 0x329A670Du, 0x702A7BB473B84AFDu},     {7, 0xFD302FFDu, 0x2692D6EE735034F4u},
               {8, 0x0B29857Eu, 0x73A02C7A936EC1CCu},     {11, 0x3210FB3Au, 0xEB66AA48946FC504u},
               {12, 0xAEEC10C1u, 0x0D235FEF715B21D6u},    {31, 0x857153C6u, 0x7566B9BB6C0EA3AFu},
               {32, 0x6C8C8ECEu, 0x3510439346E39A6Bu},    {33, 0x80068135u, 0x595A8BE7B84E5492u},
               {63, 0x9C0F3F9Fu, 0xDC7DE53F74F289B4u},    {64, 0x9A2CD6F9u, 0x06248A33156BA810u},
               {65, 0xB19EAF82u, 0x1B49ECC17D73BADEu},    {95, 0x3F1981B5u, 0x26F82A9C654AD112u},
               {100, 0xBC91D3ECu, 0xC9708E09D320A615u},   {1000, 0xC95F9C32u, 0xA445745DF539E0A1u},
               {4096, 0xF816C735u, 0xC66CB4DECF0FAF00u},  {65537, 0x41CEC877u, 0xF37A564C92987172u},
               {100003, 0x64F8FA6Cu, 0x41FF269C12C1C003u}};
  std::vector<std::byte> bytes;
  for (std::uint64_t i = 0; i < 100003; ++i) bytes.push_back(static_cast<std::byte>((i * i * 31 + 7) % 251));
  const std::span<const std::byte> all(bytes);
  for (const auto& c : cases) {
    EXPECT_EQ(c.crc, crc32(all.first(c.n))) << c.n;
    EXPECT_EQ(c.hash, hash64(all.first(c.n))) << c.n;
    // In pieces: the same.
    for (const std::size_t piece : {std::size_t{1}, std::size_t{5}, std::size_t{32}, std::size_t{77}}) {
      Hash64 hash;
      std::uint32_t crc = 0;
      for (std::size_t at = 0; at < c.n; at += piece) {
        const auto part = all.subspan(at, std::min(piece, c.n - at));
        hash.add(part);
        crc = crc32(part, crc);
      }
      EXPECT_EQ(c.hash, hash.value()) << c.n << " in pieces of " << piece;
      EXPECT_EQ(c.crc, crc) << c.n << " in pieces of " << piece;
    }
  }
  EXPECT_EQ(0xEF46DB3751D8E999u, hash64({}));
  EXPECT_EQ(0x44BC2CF5AD770999u, hash64(bytes_of("abc")));
  EXPECT_EQ(0xCBF43926u, crc32(bytes_of("123456789")));
}

}  // namespace
}  // namespace rapt
