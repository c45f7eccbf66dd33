// SPDX-License-Identifier: Apache-2.0
// A tree with a link to its parent: listings against what was made; its removal leaves what lies outside.
#include "rapt/io/folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "tests/tools.h"

namespace rapt::test {
namespace {

namespace fs = std::filesystem;

TEST(Folder, ListsSortedAndRemovesWithoutFollowingLinks) {
  const TempFolder temporary;
  const fs::path root = temporary.path();
  fs::create_directories(root / "tree" / "deep" / "deeper");
  for (const char* name : {"tree/b", "tree/a", "tree/.hidden", "tree/deep/deeper/c", "outside"})
    std::ofstream(root / name) << "x";
  fs::create_directory_symlink(root, root / "tree" / "up");
  std::error_code error;
  EXPECT_THAT(paths_in(root / "tree", error),
              testing::ElementsAre(root / "tree/.hidden", root / "tree/a", root / "tree/b",
                                   root / "tree/deep", root / "tree/up"));
  EXPECT_FALSE(error);
  EXPECT_TRUE(paths_in(root / "absent", error).empty());
  EXPECT_EQ(error.value(), ENOENT);
  EXPECT_TRUE(paths_in(root / "outside", error).empty());
  EXPECT_EQ(error.value(), ENOTDIR);

  remove_tree(root / "tree", error);
  EXPECT_FALSE(error);
  EXPECT_THAT(paths_in(root, error), testing::ElementsAre(root / "outside"));
  remove_tree(root / "absent", error);
  EXPECT_FALSE(error);
}

}  // namespace
}  // namespace rapt::test
