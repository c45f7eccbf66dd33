// SPDX-License-Identifier: Apache-2.0
// Files in memory do what the real ones do for a store of states.
#include "rapt/io/memory_fs.h"

#include <gtest/gtest.h>

namespace rapt::test {
namespace {

std::vector<std::byte> bytes(std::string_view text) {
  const auto all = std::as_bytes(std::span(text));
  return {all.begin(), all.end()};
}

TEST(MemoryFs, FilesAndFoldersByTheirPaths) {
  MemoryFs fs;
  fs.make_folder("a");
  fs.make_folder("a/b");
  fs.create("a/b/one", bytes("1"));
  fs.create("a/two", bytes("22"));
  fs.create("ab", bytes("another"));
  EXPECT_EQ(fs.list("a"), (std::vector<std::string>{"b", "two"}));
  EXPECT_EQ(fs.read("a/b/one"), bytes("1"));
  fs.rename("a/b", "a/c");
  EXPECT_FALSE(fs.exists("a/b"));
  EXPECT_FALSE(fs.exists("a/b/one"));
  EXPECT_EQ(fs.read("a/c/one"), bytes("1"));
  fs.remove_all("a");
  EXPECT_FALSE(fs.exists("a"));
  EXPECT_FALSE(fs.exists("a/c/one"));
  EXPECT_TRUE(fs.exists("ab")) << "its name only begins the same";
}

TEST(MemoryFs, NothingIsWrittenOverAndTheRoomIsBounded) {
  MemoryFs fs(10);
  fs.make_folder("a");
  fs.make_folder("b");
  EXPECT_THROW(fs.make_folder("a"), Error);
  EXPECT_THROW(fs.rename("a", "b"), Error);
  EXPECT_THROW(fs.rename("c", "d"), Error);
  EXPECT_THROW((void)fs.read("a/none"), Error);
  fs.create("a/x", bytes("123456"));
  EXPECT_THROW(fs.create("a/x", bytes("1")), Error);
  EXPECT_EQ(fs.free_bytes("a"), 4U);
  EXPECT_THROW(fs.create("a/y", bytes("12345")), Error);
  fs.remove_all("a/x");
  EXPECT_EQ(fs.free_bytes("a"), 10U);
}

}  // namespace
}  // namespace rapt::test
