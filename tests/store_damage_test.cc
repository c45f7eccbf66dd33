// SPDX-License-Identifier: Apache-2.0
// Files that change after they were saved: every damage is noticed, said, and costs no more than the state
// it hit.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>

#include "tests/crash_fs.h"
#include "tests/store_tools.h"

namespace rapt::test {
namespace {

const std::string kRun = "/run";

// Saves 1 and 2 stand; `damage` changes something in the folder of save 2.
class StoreDamage : public testing::Test {
 protected:
  void SetUp() override {
    Store store(kRun, fs_);
    for (std::int64_t n = 1; n <= 2; ++n) store.save(n, files_of(n), state_of(n));
  }
  static std::vector<std::byte>& bytes(DiskImage& disk, const std::string& path) {
    return disk.nodes[static_cast<std::size_t>(disk.find(kRun + "/" + path))].bytes;
  }
  static DiskImage::Node& folder(DiskImage& disk, const std::string& path) {
    return disk.nodes[static_cast<std::size_t>(disk.find(kRun + "/" + path))];
  }
  Found after(auto&& damage) const {
    DiskImage disk = fs_.live();
    damage(disk);
    CrashFs fs(disk);
    return load_checked(kRun, fs);
  }
  // Passed over, loudly, with the name of what is wrong in the message.
  void expect_noticed(const Found& found, const std::string& name, const std::string& what) const {
    EXPECT_EQ(1, found.newest) << what;
    EXPECT_EQ(1, found.valid) << what;
    EXPECT_TRUE(found.right) << what;
    ASSERT_EQ(1u, found.said.size()) << what;
    EXPECT_NE(found.said[0].find("step-2/" + name), std::string::npos) << what << ": " << found.said[0];
    EXPECT_NE(found.said[0].find("WARNING"), std::string::npos) << found.said[0];
    EXPECT_NE(found.said[0].find("passed over"), std::string::npos) << found.said[0];
  }
  CrashFs fs_;
};

// Positions to try: all of a small file, samples of a large one with both ends.
std::vector<std::size_t> positions(std::size_t size, std::size_t all, std::size_t sample) {
  std::vector<std::size_t> out;
  if (size <= all)
    for (std::size_t i = 0; i < size; ++i) out.push_back(i);
  else
    for (std::size_t i = 0; i < sample; ++i)
      out.push_back(i == 0 ? 0 : i == 1 ? size - 1 : random_below(static_cast<std::uint32_t>(size), 5, i));
  return out;
}

TEST_F(StoreDamage, EveryFlippedBitIsNoticed) {
  std::size_t flips = 0, missed = 0;
  Store store(kRun, fs_);
  std::vector<StoredFile> files = files_of(2);
  files.push_back({"manifest.json", fs_.read(kRun + "/step-2/manifest.json")});
  for (const StoredFile& file : files)
    for (const std::size_t at : positions(file.bytes.size(), 1000, 200))
      for (int bit = 0; bit < 8; ++bit) {
        std::byte& byte = fs_.damage(kRun + "/step-2/" + file.name)[at];
        byte ^= static_cast<std::byte>(1 << bit);
        std::vector<std::string> said;
        const auto newest = store.latest([&](const std::string& s) { said.push_back(s); });
        const bool noticed = newest && number_of(*newest) == 1 && said.size() == 1 &&
                             said[0].find(file.name) != std::string::npos;
        byte ^= static_cast<std::byte>(1 << bit);
        ++flips, missed += !noticed;
        ASSERT_TRUE(noticed) << file.name << " byte " << at << " bit " << bit;
      }
  std::printf("[  COUNTS  ] bit flips: %zu, missed: %zu\n", flips, missed);
  RecordProperty("flips", static_cast<int>(flips));
  EXPECT_GT(flips, 5'000u);
  EXPECT_EQ(2, number_of(*store.latest()));  // all put right again
}

// The test of the test: the flips above do reach the bytes that are handed out.
TEST_F(StoreDamage, ALoaderWithoutSumsMissesThem) {
  std::size_t missed = 0;
  for (const StoredFile& file : files_of(2))
    for (const std::size_t at : positions(file.bytes.size(), 100, 50)) {
      DiskImage disk = fs_.live();
      bytes(disk, "step-2/" + file.name)[at] ^= std::byte{1};
      CrashFs fs(disk);
      // What such a loader would have taken for good.
      missed += fs.read(kRun + "/step-2/" + file.name) != file.bytes;
    }
  EXPECT_GT(missed, 100u);
}

TEST_F(StoreDamage, EveryLengthIsNoticed) {
  std::vector<StoredFile> files = files_of(2);
  files.push_back({"manifest.json", fs_.read(kRun + "/step-2/manifest.json")});
  for (const StoredFile& file : files) {
    for (const std::size_t size : positions(file.bytes.size(), 1000, 100))
      expect_noticed(after([&](DiskImage& disk) { bytes(disk, "step-2/" + file.name).resize(size); }),
                     file.name, concat(file.name, " cut to ", size));
    expect_noticed(
        after([&](DiskImage& disk) { bytes(disk, "step-2/" + file.name).push_back(std::byte{0}); }),
        file.name, file.name + " longer");
    expect_noticed(after([&](DiskImage& disk) { folder(disk, "step-2").names.erase(file.name); }), file.name,
                   file.name + " missing");
    expect_noticed(after([&](DiskImage& disk) { folder(disk, "step-2/" + file.name).folder = true; }),
                   file.name, file.name + " is a folder");
  }
}

TEST_F(StoreDamage, FilesOfAnotherStateAreNoticed) {
  for (const StoredFile& file : files_of(1)) {
    if (file.bytes.empty()) continue;
    const std::string name = file.name;
    expect_noticed(
        after([&](DiskImage& disk) { bytes(disk, "step-2/" + name) = bytes(disk, "step-1/" + name); }), name,
        name + " of step 1");
  }
  const auto manifest = [&](DiskImage& disk) {
    bytes(disk, "step-2/manifest.json") = bytes(disk, "step-1/manifest.json");
  };
  expect_noticed(after(manifest), "manifest.json: is that of step 1", "manifest of step 1");
  const auto folder_copy = [&](DiskImage& disk) {
    folder(disk, "step-2").names = folder(disk, "step-1").names;
  };
  expect_noticed(after(folder_copy), "manifest.json: is that of step 1", "all of step 1");
  const auto swapped = [&](DiskImage& disk) {
    auto& names = folder(disk, "step-2").names;
    std::swap(names["model.safetensors"], names["optimizer.safetensors"]);
  };
  expect_noticed(after(swapped), "model.safetensors", "swapped");
}

TEST_F(StoreDamage, SwappedFilesOfOneLengthAreNoticed) {
  CrashFs fs;
  Store store(kRun, fs);
  std::vector<StoredFile> files{{"a", std::vector<std::byte>(700, std::byte{1})},
                                {"b", std::vector<std::byte>(700, std::byte{2})}};
  store.save(1, files, {});
  DiskImage disk = fs.live();
  auto& names = folder(disk, "step-1").names;
  std::swap(names["a"], names["b"]);
  CrashFs damaged(disk);
  EXPECT_FALSE(Store(kRun, damaged).latest());
}

TEST_F(StoreDamage, AnotherFileInTheFolderIsSaidAndNotRead) {
  const Found found = after([&](DiskImage& disk) {
    disk.nodes.push_back({});
    folder(disk, "step-2").names["stranger"] = static_cast<int>(disk.nodes.size()) - 1;
  });
  EXPECT_EQ(2, found.newest);  // nothing that was saved has changed
  EXPECT_TRUE(found.right);
  ASSERT_EQ(1u, found.said.size());
  EXPECT_NE(found.said[0].find("'stranger'"), std::string::npos) << found.said[0];
}

TEST_F(StoreDamage, AllDamagedIsNoStateAndEachIsSaid) {
  const Found found = after([&](DiskImage& disk) {
    bytes(disk, "step-1/note")[0] ^= std::byte{4};
    bytes(disk, "step-2/note")[0] ^= std::byte{4};
  });
  EXPECT_EQ(-1, found.newest);
  EXPECT_EQ(2u, found.said.size());
}

// A damaged state does not count as kept: as long as there are not two good ones, nothing is removed.
TEST_F(StoreDamage, DoesNotCountAsKept) {
  DiskImage disk = fs_.live();
  bytes(disk, "step-2/model.safetensors")[10] ^= std::byte{4};
  CrashFs fs(disk);
  Store store(kRun, fs);
  store.save(3, files_of(3), state_of(3));
  EXPECT_TRUE(fs.exists(kRun + "/step-1"));  // 1 and 3 are the two
  EXPECT_EQ(2u, store.all().size());
  store.save(4, files_of(4), state_of(4));
  EXPECT_FALSE(fs.exists(kRun + "/step-1"));
  EXPECT_FALSE(fs.exists(kRun + "/step-2"));  // older than two good ones: it goes
  EXPECT_EQ(2u, store.all().size());
}

TEST_F(StoreDamage, FoundLaterInTheSameProcessDoesNotCountEither) {
  Store store(kRun, fs_);
  ASSERT_TRUE(store.latest());
  fs_.remove_all(kRun + "/step-2/note");  // it was valid when it was read
  store.save(3, files_of(3), state_of(3));
  EXPECT_TRUE(fs_.exists(kRun + "/step-1"));
}

// The damaged step is saved again under a new name, which is the newest then.
TEST_F(StoreDamage, IsReplacedByTheNextGeneration) {
  DiskImage disk = fs_.live();
  bytes(disk, "step-2/model.safetensors")[10] ^= std::byte{4};
  CrashFs fs(disk);
  Store store(kRun, fs);
  const auto newest = store.latest();
  ASSERT_TRUE(newest);
  EXPECT_EQ(1, newest->step);
  EXPECT_EQ(kRun + "/step-2.g2", store.save(2, files_of(7), state_of(7)).folder);
  const Found found = load_checked(kRun, fs);
  EXPECT_EQ(7, found.newest);
  EXPECT_TRUE(found.said.empty());
}

}  // namespace
}  // namespace rapt::test
