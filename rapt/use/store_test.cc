// SPDX-License-Identifier: Apache-2.0
// The store on the real file system. Crashes: tests/store_crash_test.cc; damaged files:
// tests/store_damage_test.cc; kills: tests/kill_test.cc.
#include "rapt/use/store.h"

#include <gtest/gtest.h>
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

namespace disk = std::filesystem;

std::vector<std::byte> bytes_of(std::string_view s) {
  const auto b = std::as_bytes(std::span(s.data(), s.size()));
  return {b.begin(), b.end()};
}

class StoreTest : public testing::Test {
 protected:
  void SetUp() override { disk::create_directories(root); }
  void TearDown() override { disk::remove_all(root); }
  std::vector<std::string> names() const { return real_fs().list(folder); }
  static std::vector<StoredFile> files(std::string_view text) {
    return {{"model", bytes_of(text)}, {"notes.txt", bytes_of("n")}};
  }
  // A manifest by hand, with the sum that makes it one.
  static std::string manifest(const std::string& body) {
    const std::string digits = [&] {
      char out[17];
      std::snprintf(out, sizeof out, "%016llx", static_cast<unsigned long long>(hash64(bytes_of(body))));
      return std::string(out);
    }();
    return body + ",\n  \"sum\": \"" + digits + "\"\n}\n";
  }
  void put(const std::string& path, const std::string& text) const {
    disk::create_directories(disk::path(path).parent_path());
    std::ofstream(path, std::ios::binary) << text;
  }

  const std::string root = (disk::temp_directory_path() / concat("rapt-store-", ::getpid())).string();
  const std::string folder = root + "/runs/one";
};

TEST_F(StoreTest, GivesBackWhatItWasGiven) {
  Json state = Json::Object{};
  state.set("rate", 0.1 + 0.2);
  state.set("whole", 2.0);
  state.set("count", std::int64_t{9007199254740993});
  state.set("name", "Löwe \"x\"\n");
  state.set("list", Json::Array{1, true, Json()});
  {
    Store store(folder + "//");
    EXPECT_EQ(folder, store.folder());
    EXPECT_FALSE(store.latest());
    EXPECT_TRUE(store.all().empty());
    EXPECT_FALSE(disk::exists(folder));  // asking makes nothing
    const Stored saved = store.save(7, files("seven"), state);
    EXPECT_EQ(folder + "/step-7", saved.folder);
    EXPECT_EQ((std::vector<std::string>{".lock", "step-7"}), names());
  }
  Store store(folder);
  const auto found = store.latest([](const std::string& s) { ADD_FAILURE() << s; });
  ASSERT_TRUE(found);
  EXPECT_EQ(7, found->step);
  EXPECT_EQ(folder + "/step-7", found->folder);
  EXPECT_EQ(state.dump(), found->state.dump());
  EXPECT_EQ(0.1 + 0.2, found->state.find("rate")->number());
  EXPECT_EQ(9007199254740993, found->state.find("count")->integer());
  EXPECT_EQ(bytes_of("seven"), store.file(*found, "model"));
  EXPECT_TRUE(holds(error_of([&] { (void)store.file(*found, "modle"); }), "did you mean 'model'?"));
  struct stat is;
  ASSERT_EQ(0, ::stat(found->folder.c_str(), &is));
  EXPECT_EQ(0700u, is.st_mode & 0777u);
}

TEST_F(StoreTest, KeepsTheNewestAndNamesNoneTwice) {
  Store store(folder);
  store.save(0, files("0"), {});
  store.save(9, files("9"), {});
  store.save(10, files("10"), {});  // 10 is newer than 9, whatever the alphabet says
  EXPECT_EQ((std::vector<std::string>{".lock", "step-10", "step-9"}), names());
  EXPECT_EQ(folder + "/step-10.g2", store.save(10, files("10b"), {}).folder);
  EXPECT_EQ(folder + "/step-10.g3", store.save(10, files("10c"), {}).folder);
  EXPECT_EQ((std::vector<std::string>{".lock", "step-10.g2", "step-10.g3"}), names());
  // Not step-10 again, though that is free now.
  EXPECT_EQ(folder + "/step-10.g4", store.save(10, files("10d"), {}).folder);
  EXPECT_EQ(bytes_of("10d"), store.file(*store.latest(), "model"));
  const auto all = store.all();
  ASSERT_EQ(2u, all.size());
  EXPECT_EQ(folder + "/step-10.g3", all[0].folder);  // oldest first

  Store more(folder, real_fs(), 4);
  for (const int step : {11, 12, 13, 14}) more.save(step, files("x"), {});
  EXPECT_EQ((std::vector<std::string>{".lock", "step-11", "step-12", "step-13", "step-14"}), names());
  EXPECT_THROW(Store(folder, real_fs(), 1), Error);
  EXPECT_THROW(Store(""), Error);
}

TEST_F(StoreTest, RefusesAStepBelowOneThatStands) {
  Store store(folder);
  store.save(5, files("5"), {});
  const std::string why = error_of([&] { store.save(4, files("4"), {}); });
  EXPECT_TRUE(holds(why, "step-5 stands there and is newer")) << why;
  EXPECT_EQ((std::vector<std::string>{".lock", "step-5"}), names());
}

TEST_F(StoreTest, ADamagedNewerStepIsNoObstacle) {
  Store(folder).save(5, files("5"), {});
  put(folder + "/step-5/model", "changed");
  Store store(folder);
  store.save(4, files("4"), {});
  std::vector<std::string> said;
  EXPECT_EQ(4, store.latest([&](const std::string& s) { said.push_back(s); })->step);
  ASSERT_EQ(1u, said.size());
  EXPECT_TRUE(holds(said[0], "step-5/model")) << said[0];
}

TEST_F(StoreTest, RefusesWhatItCouldNotGiveBack) {
  Store store(folder);
  for (const char* name : {"", ".", "..", "a/b", "/etc/x", "manifest.json", "a\nb", "\xff"})
    EXPECT_THROW(store.save(1, std::vector<StoredFile>{{name, {}}}, {}), Error) << name;
  EXPECT_THROW(store.save(1, std::vector<StoredFile>{{std::string("a\0b", 3), {}}}, {}), Error);
  EXPECT_THROW(store.save(1, std::vector<StoredFile>{{"a", {}}, {"a", {}}}, {}), Error);
  EXPECT_THROW(store.save(-1, files("x"), {}), Error);
  EXPECT_THROW(store.save(1, files("x"), Json("\xff")), Error);  // no text
  EXPECT_THROW(store.save(1, files("x"), Json(std::numeric_limits<double>::infinity())), Error);
  EXPECT_THROW(store.save(1, files("x"), Json(Json::Object{{"a", 1}, {"a", 2}})), Error);  // a key twice
  Json deep = 1;
  for (int i = 0; i < 100; ++i) deep = Json(Json::Array{deep});
  EXPECT_THROW(store.save(1, files("x"), deep), Error);
  EXPECT_FALSE(disk::exists(folder));  // all of it before the disk was touched
}

TEST_F(StoreTest, FullDiskIsToldBeforeTheWork) {
  class Small : public Fs {
   public:
    void make_folder(const std::string& p) override { real_fs().make_folder(p); }
    std::unique_ptr<NewFile> open_new(const std::string& p, std::uint64_t bytes) override {
      ++created;
      return real_fs().open_new(p, bytes);
    }
    void sync_folder(const std::string& p) override { real_fs().sync_folder(p); }
    void rename(const std::string& a, const std::string& b) override { real_fs().rename(a, b); }
    void remove_all(const std::string& p) override { real_fs().remove_all(p); }
    bool exists(const std::string& p) const override { return real_fs().exists(p); }
    std::vector<std::string> list(const std::string& p) const override { return real_fs().list(p); }
    std::vector<std::byte> read(const std::string& p) const override { return real_fs().read(p); }
    std::uint64_t size(const std::string& p) const override { return real_fs().size(p); }
    std::uint64_t free_bytes(const std::string&) const override { return free; }
    std::shared_ptr<void> lock(const std::string& p) override { return real_fs().lock(p); }
    std::uint64_t free = 1 << 30;
    int created = 0;
  } fs;
  Store store(folder, fs);
  store.save(1, files("1"), {});
  fs.free = 3 << 20;
  fs.created = 0;
  const std::vector<StoredFile> large{{"model", std::vector<std::byte>(std::size_t{4} << 20)}};
  const std::string why = error_of([&] { store.save(2, large, {}); });
  EXPECT_TRUE(holds(why, "3 MiB are free")) << why;
  EXPECT_TRUE(holds(why, "are missing")) << why;
  EXPECT_TRUE(holds(why, "nothing that was saved before is lost: step-1")) << why;
  EXPECT_EQ(0, fs.created);
  EXPECT_EQ((std::vector<std::string>{".lock", "step-1"}), names());
  fs.free = 1 << 30;
  EXPECT_EQ(2, store.save(2, large, {}).step);
}

TEST_F(StoreTest, ClearsLeftoversAwayAndNothingElse) {
  Store(folder).save(1, files("1"), {});
  put(folder + "/.tmp-step-2-99999/model", "half");
  put(folder + "/.tmp-del-step-0-99999/model", "half");
  put(folder + "/metrics.jsonl", "{}");
  put(folder + "/step-two/x", "not ours");
  put(folder + "/step-03/x", "not ours");
  put(folder + "/step-3.g1/x", "not ours");
  EXPECT_EQ(1, Store(folder).latest([](const std::string& s) { ADD_FAILURE() << s; })->step);
  EXPECT_EQ(
      (std::vector<std::string>{".lock", "metrics.jsonl", "step-03", "step-1", "step-3.g1", "step-two"}),
      names());
}

TEST_F(StoreTest, LeavesWhatALivingProcessIsWriting) {
  Store writer(folder);
  writer.save(1, files("1"), {});
  writer.claim();
  put(folder + "/.tmp-step-2-1/model", "half");  // as if it were in the middle of a save
  EXPECT_EQ(1, Store(folder).latest()->step);  // a reader
  EXPECT_TRUE(disk::exists(folder + "/.tmp-step-2-1/model"));
  const std::string why = error_of([&] { Store(folder).claim(); });
  EXPECT_TRUE(holds(why, "somebody else saves here")) << why;
  EXPECT_TRUE(holds(error_of([&] { Store(folder).save(3, files("3"), {}); }), "somebody else saves here"));
  EXPECT_TRUE(disk::exists(folder + "/.tmp-step-2-1/model"));
  writer.save(2, files("2"), {});  // its own leftover goes
  EXPECT_FALSE(disk::exists(folder + "/.tmp-step-2-1"));
}

TEST_F(StoreTest, WithoutAClaimTwoMaySaveInTurn) {
  Store one(folder), two(folder);
  one.save(1, files("1"), {});
  two.save(2, files("2"), {});
  one.save(3, files("3"), {});
  EXPECT_EQ(3, two.latest()->step);
}

TEST_F(StoreTest, ReadsAFolderThatIsForReadingOnly) {
  Store(folder).save(1, files("1"), {});
  put(folder + "/.tmp-x", "");
  disk::permissions(folder, disk::perms::owner_read | disk::perms::owner_exec);
  EXPECT_EQ(1, Store(folder).latest()->step);
  disk::permissions(folder, disk::perms::owner_all);
}

// Manifests whose sum is right but which no save of ours wrote.
TEST_F(StoreTest, RefusesStrangeManifests) {
  const std::string file =
      R"({"name": "model", "bytes": 1, "crc32": "00000000", "hash64": "0000000000000000"})";
  const auto whole = [](const std::string& format, const std::string& step, const std::string& list,
                        const std::string& more = "") {
    return "{\n  \"format\": " + format + ",\n  \"step\": " + step + ",\n  \"files\": " + list +
           ",\n  \"state\": {}" + more;
  };
  const struct {
    std::string body, says;
  } cases[] = {
      {whole("2", "1", "[]"), "written by a newer one"},
      {whole("1", "2", "[]"), "is that of step 2, not of step 1"},
      {whole("1", "-1", "[]"), "negative"},
      {whole("1", "1.5", "[]"), "not an integer"},
      {whole("1", "1", "{}"), "not a list"},
      {whole("1", "1", "[1]"), "not a file"},
      {whole("1", "1", "[" + file + ", " + file + "]"), "stands twice"},
      {whole("1", "1",
             R"([{"name": "../x", "bytes": 1, "crc32": "00000000", "hash64": "0000000000000000"}])"),
       "not a plain name"},
      {whole("1", "1",
             R"([{"name": "/etc/passwd", "bytes": 1, "crc32": "00000000", "hash64": "0000000000000000"}])"),
       "not a plain name"},
      {whole("1", "1", R"([{"name": "a", "bytes": -1, "crc32": "00000000", "hash64": "0000000000000000"}])"),
       "negative"},
      {whole("1", "1", R"([{"name": "a", "bytes": 1, "crc32": "0", "hash64": "0000000000000000"}])"),
       "not 8 hexadecimal digits"},
      {whole("1", "1", R"([{"name": "a", "bytes": 1, "crc32": "0000000G", "hash64": "0000000000000000"}])"),
       "not 8 hexadecimal digits"},
      {whole("1", "1", R"([{"name": "a", "bytes": 1, "crc32": "00000000", "hash64": "000000000000000A"}])"),
       "not 16 hexadecimal digits"},
      {whole("1", "1", R"([{"name": "a", "bytes": 1, "crc32": "00000000"}])"), "no \"hash64\""},
      {whole("1", "1",
             R"([{"name": "a", "bytes": 0, "crc32": "00000000", "hash64": "0000000000000000", "x": 1}])"),
       "nothing else"},
      {whole(
           "1", "1",
           R"([{"name": "a", "bytes": 1000000000000000000, "crc32": "00000000", "hash64": "0000000000000000"}])"),
       "/a: "},
      {whole("1", "1", "[]", ",\n  \"more\": 1"), "nothing else"},
      {"{\n  \"format\": 1,\n  \"step\": 1,\n  \"files\": []", "no \"state\""},
      {"{\n  \"step\": 1,\n  \"files\": [],\n  \"state\": 1", "no \"format\""},
      {"{{", "expected a key"},
      {"[1", "']'"},
  };
  for (const auto& c : cases) {
    disk::remove_all(folder);
    put(folder + "/step-1/manifest.json", manifest(c.body));
    std::vector<std::string> said;
    EXPECT_FALSE(Store(folder).latest([&](const std::string& s) { said.push_back(s); })) << c.body;
    ASSERT_EQ(1u, said.size()) << c.body;
    EXPECT_TRUE(holds(said[0], c.says)) << said[0] << "\nshould say: " << c.says;
  }
  disk::remove_all(folder);
  put(folder + "/step-1/manifest.json", manifest(whole("1", "1", "[]")));  // and the plain one is taken
  EXPECT_TRUE(Store(folder).latest([](const std::string& s) { ADD_FAILURE() << s; }));
}

}  // namespace
}  // namespace rapt
