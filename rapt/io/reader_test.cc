// SPDX-License-Identifier: Apache-2.0
// Bytes and files made here are read back; what is cut, changed, too large or linked out must be refused.
#include "rapt/io/reader.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>
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
using test::TempFolder;

namespace fs = std::filesystem;

std::size_t files_in(const TempFolder& f) {
  return static_cast<std::size_t>(std::distance(fs::directory_iterator(f.path()), fs::directory_iterator()));
}

void put(const std::string& path, std::string_view text, bool force = false) {
  FileWriter out(path, force);
  out.write(text);
  out.commit();
}

TEST(Reader, TakesWhatIsThereAndNoMore) {
  const unsigned char bytes[] = {1, 2, 3, 4, 0, 0, 0x80, 0x3F, 1, 2, 'a', 0xC3, 0xA9, 0xFF};
  Reader in(std::as_bytes(std::span(bytes)), "file");
  EXPECT_EQ(in.get<std::uint32_t>("x"), 0x04030201u);
  EXPECT_EQ(in.get<float>("x"), 1.0f);
  EXPECT_TRUE(in.get<bool>("x"));
  EXPECT_EQ(error_of([&] { in.get<bool>("flag"); }),
            "file: byte 10: flag is neither true (1) nor false (0) but 2");
  EXPECT_EQ(in.text(3, "x"), "aé");
  EXPECT_EQ(in.left(), 1u);
  EXPECT_EQ(error_of([&] { in.text(1, "a name"); }), "file: byte 13: a name is not UTF-8: '\\xff'");
  EXPECT_EQ(error_of([&] { in.take(2, "the rest"); }),
            "file: byte 13: the rest wants 2 bytes, 1 are left (is the download complete?)");
  EXPECT_THROW(in.take(UINT64_MAX, "x"), Error);
}

TEST(Reader, CountsItemsBeforeTheyAreRead) {
  const std::byte bytes[10] = {};
  const Reader in(bytes, "file");
  in.expect_items(5, 2, "pairs");
  EXPECT_NE(error_of([&] { in.expect_items(6, 2, "pairs"); }).find("6 pairs are announced"),
            std::string::npos);
  EXPECT_THROW(in.expect_items(UINT64_MAX, 1, "x"), Error);
  EXPECT_THROW(in.expect_items(1ull << 63, 2, "x"), Error);  // the product would wrap to 0
}

TEST(Reader, Utf8IsStrict) {
  for (const char* good : {"", "plain", "é", "€", "😀", "\xED\x9F\xBF", "\xEE\x80\x80", "\xF4\x8F\xBF\xBF"})
    EXPECT_TRUE(valid_utf8(good)) << good;
  EXPECT_TRUE(valid_utf8(std::string_view("\0", 1)));
  for (const char* bad :
       {"\x80", "\xC3", "\xC0\x80", "\xC1\xBF", "\xE0\x80\x80", "\xE0\x9F\xBF", "\xED\xA0\x80",
        "\xED\xBF\xBF", "\xF0\x80\x80\x80", "\xF0\x8F\xBF\xBF", "\xF4\x90\x80\x80", "\xF5\x80\x80\x80",
        "\xFF", "a\xE2\x82", "\xE2\x28\xA1", "\xF0\x9F\x98"})
    EXPECT_FALSE(valid_utf8(bad)) << bad;
}

TEST(Reader, NamesInMessagesAreHarmless) {
  EXPECT_EQ(quote_name("layer.0"), "'layer.0'");
  EXPECT_EQ(quote_name("\x1b[2J\n"), "'\\x1b[2J\\x0a'");
  EXPECT_EQ(quote_name("é"), "'é'");
  EXPECT_EQ(quote_name("\xff"), "'\\xff'");
  const std::string cut = quote_name(std::string(1000, 'x'));
  EXPECT_EQ(cut.size(), 120 + std::string("''…").size());
  EXPECT_TRUE(valid_utf8(quote_name(std::string(119, 'x') + "éé")));
}

TEST(MappedFileTest, OpensPlainFilesOnly) {
  const TempFolder folder;
  put(folder / "a", "hello");
  const MappedFile file(folder / "a");
  EXPECT_EQ(file.bytes().size(), 5u);
  EXPECT_EQ(static_cast<char>(file.bytes()[4]), 'o');
  file.check_unchanged();
  put(folder / "empty", "");
  EXPECT_EQ(MappedFile(folder / "empty").bytes().size(), 0u);
  EXPECT_NE(error_of([&] { MappedFile f(folder / "none"); }).find("no such file"), std::string::npos);
  EXPECT_NE(error_of([&] { MappedFile f(folder.path()); }).find("is a folder"), std::string::npos);
  ASSERT_EQ(::mkfifo((folder / "pipe").c_str(), 0600), 0);
  EXPECT_NE(error_of([&] { MappedFile f(folder / "pipe"); }).find("pipe or a device"), std::string::npos);
  EXPECT_NE(error_of([&] { MappedFile f(std::string("a\0b", 3)); }).find("zero byte"), std::string::npos);
}

TEST(MappedFileTest, SeesThatTheFileChanged) {
  const TempFolder folder;
  put(folder / "a", "hello");
  const MappedFile file(folder / "a");
  put(folder / "a", "other", true);
  EXPECT_EQ(static_cast<char>(file.bytes()[0]), 'h');  // still the old file
  EXPECT_NE(error_of([&] { file.check_unchanged(); }).find("changed while it was read"), std::string::npos);
  fs::remove(folder / "a");
  EXPECT_NE(error_of([&] { file.check_unchanged(); }).find("vanished"), std::string::npos);
}

TEST(MappedFileTest, CopiesWhereTheMapWouldEndTheProgram) {
  const TempFolder folder;
  put(folder / "a", std::string(10000, 'x') + "end");
  const MappedFile file(folder / "a");
  std::vector<std::byte> out(4);
  file.copy(9999, out);
  EXPECT_EQ(static_cast<char>(out[0]), 'x');
  EXPECT_EQ(static_cast<char>(out[3]), 'd');
  EXPECT_NE(error_of([&] { file.copy(10000, out); }).find("the file has 10003"), std::string::npos);
  EXPECT_NE(error_of([&] { file.copy(~std::uint64_t{0}, out); }).find("are wanted"), std::string::npos);
  const MappedFile again = file;  // copies share the open file
  fs::resize_file(folder / "a", 9000);
  again.copy(8996, out);
  EXPECT_NE(error_of([&] { again.copy(8998, out); }).find("was cut before byte 9000"), std::string::npos);
  EXPECT_NE(error_of([&] { again.copy(9999, out); }).find("was cut before byte 9999"), std::string::npos);
}

TEST(ReadTextFile, WholeButBounded) {
  const TempFolder folder;
  put(folder / "a", std::string(100000, 'x'));
  EXPECT_EQ(read_text_file(folder / "a").size(), 100000u);
  EXPECT_NE(error_of([&] { read_text_file(folder / "a", 99999); }).find("100000 bytes"), std::string::npos);
  EXPECT_EQ(read_text_file(folder / "a", 100000).size(), 100000u);
  EXPECT_NE(error_of([&] { read_text_file("/dev/zero", 1000); }).find("more than 1000 bytes"),
            std::string::npos);
  EXPECT_NE(error_of([&] { read_text_file(folder.path()); }).find("is a folder"), std::string::npos);
}

TEST(FileWriterTest, AppearsWholeOrNotAtAll) {
  const TempFolder folder;
  {
    FileWriter out(folder / "a", false);
    out.write("half");
    EXPECT_FALSE(fs::exists(folder / "a"));
  }
  EXPECT_EQ(files_in(folder), 0u);
  {
    FileWriter out(folder / "a", false);
    out.put(std::uint16_t{0x0201});
    out.pad_to(8);
    out.write(std::string(3000000, 'y'));
    EXPECT_EQ(out.position(), 3000008u);
    out.commit();
    EXPECT_THROW(out.commit(), Error);
  }
  EXPECT_EQ(files_in(folder), 1u);
  const std::string text = read_text_file(folder / "a");
  EXPECT_EQ(text.size(), 3000008u);
  EXPECT_EQ(text.substr(0, 9), std::string("\1\2\0\0\0\0\0\0y", 9));
}

TEST(FileWriterTest, ReplacesOnlyByForce) {
  const TempFolder folder;
  put(folder / "a", "old");
  EXPECT_NE(error_of([&] { put(folder / "a", "new"); }).find("exists already"), std::string::npos);
  {
    FileWriter late(folder / "b", false);  // someone else writes b meanwhile
    late.write("mine");
    put(folder / "b", "theirs");
    EXPECT_NE(error_of([&] { late.commit(); }).find("appeared while"), std::string::npos);
  }
  EXPECT_EQ(read_text_file(folder / "b"), "theirs");
  put(folder / "a", "new", true);
  EXPECT_EQ(read_text_file(folder / "a"), "new");
  EXPECT_EQ(files_in(folder), 2u);
  EXPECT_NE(error_of([&] { put(folder.path(), "x", true); }).find("is a folder"), std::string::npos);
  EXPECT_NE(error_of([&] { put(folder / "no/such/a", "x"); }).find("there is no folder"), std::string::npos);
  EXPECT_NE(error_of([&] { put("", "x"); }).find("no name of a file"), std::string::npos);
}

// A limit on the size of files stands in for a full disk: the same failing write.
TEST(FileWriterTest, AFullDiskLosesNothing) {
  const TempFolder folder;
  put(folder / "a", "precious");
  struct rlimit before;
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  const struct rlimit small = {1 << 20, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  const std::string large = error_of([&] { put(folder / "a", std::string(5 << 20, 'z'), true); });
  const struct rlimit tiny = {10, before.rlim_max};
  ::setrlimit(RLIMIT_FSIZE, &tiny);
  const std::string at_commit = error_of([&] { put(folder / "a", std::string(100, 'z'), true); });
  ::setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
  EXPECT_NE(large.find("cannot write"), std::string::npos) << large;
  EXPECT_NE(at_commit.find("is unchanged"), std::string::npos) << at_commit;
  EXPECT_EQ(read_text_file(folder / "a"), "precious");
  EXPECT_EQ(files_in(folder), 1u);
}

// What a file says is read, not looked at: cutting it under the reader is an error.
TEST(ReaderTest, FilesAreRead) {
  const TempFolder folder;
  std::string text;
  for (int i = 0; i < 200000; ++i) text += static_cast<char>('a' + i % 26);
  put(folder / "a", text);
  const MappedFile file(folder / "a");
  Reader in(file);
  EXPECT_EQ(in.get<char>("a letter"), 'a');
  EXPECT_EQ(in.text(3, "letters"), "bcd");
  EXPECT_EQ(in.skip(100000, "the middle").data(), file.bytes().data() + 4);
  EXPECT_EQ(in.text(70000, "many"), text.substr(100004, 70000));
  EXPECT_EQ(in.position(), 170004u);
  Reader copy = in;
  EXPECT_EQ(copy.text(4, "four"), text.substr(170004, 4));
  EXPECT_NE(error_of([&] {
              copy.take(40000, "too many");
            }).find("byte 170008: too many wants 40000 bytes, 29992 are left"),
            std::string::npos);
  fs::resize_file(folder / "a", 5000);
  EXPECT_NE(error_of([&] { in.take(29996, "the rest"); }).find("was cut before byte"), std::string::npos);
  Reader again(file);
  EXPECT_NE(error_of([&] { again.take(10000, "the start"); }).find("was cut before byte 5000"),
            std::string::npos);
}

TEST(ReaderTest, MemoryForAHeaderIsBounded) {
  const std::string bytes(1 << 20, 'x');
  Reader in(std::as_bytes(std::span(bytes.data(), bytes.size())), "h");
  in.take(1 << 10, "some");
  in.spend((16 << 20) + (4 << 10));
  EXPECT_NE(error_of([&] {
              in.spend(1);
            }).find("h: byte 1024: what the header announces takes more than 16781312 bytes"),
            std::string::npos);
  in.spend(4000, 1000);
  EXPECT_THROW(in.spend(1000, 1000), Error);
  EXPECT_THROW(in.spend(~std::uint64_t{0}, ~std::uint64_t{0}), Error);
}

TEST(ReaderTest, LinksStayInTheFolder) {
  const TempFolder folder;
  const fs::path model = folder / "model", cache = folder / "models--a--b";
  fs::create_directories(model / "inside");
  fs::create_directories(cache / "blobs");
  fs::create_directories(cache / "snapshots" / "1");
  put((cache / "blobs" / "12ab").string(), "{}");
  put(folder / "secret.json", "{}");
  put((model / "inside" / "a.json").string(), "{}");
  fs::create_symlink("inside/a.json", model / "config.json");
  // A local folder of links into the cache.
  fs::create_symlink(cache / "blobs" / "12ab", model / "tokenizer.json");
  fs::create_symlink("../../blobs/12ab", cache / "snapshots" / "1" / "config.json");
  fs::create_symlink("../secret.json", model / "README.md");  // nobody reads it
  check_links(model.string());
  check_links((cache / "snapshots" / "1").string());
  for (const char* name : {"vocab.txt", "tokenizer.model", "model.safetensors", "source.spm",
                           "chat_template.jinja", "config2.json"}) {
    fs::create_symlink("../secret.json", model / name);
    const std::string said = error_of([&] { check_links(model.string()); });
    EXPECT_NE(said.find(std::string(name) + ": is a link that leads out of the model's folder"),
              std::string::npos)
        << said;
    fs::remove(model / name);
  }
}

// A process that is gone left them; those of living ones, and what is not ours, stay.
TEST(FileWriterTest, LeftoversOfTheDeadAreCleared) {
  const TempFolder folder;
  const fs::path inside = folder / "leftovers";
  fs::create_directories(inside);
  const pid_t dead = ::fork();
  if (dead == 0) ::_exit(0);
  ASSERT_GT(dead, 0);
  ASSERT_EQ(::waitpid(dead, nullptr, 0), dead);
  const auto name = [&](long process, const char* end) {
    return (inside / concat(".metrics.jsonl.", process, "-0", end)).string();
  };
  const std::string gone = name(dead, ".tmp");
  for (const std::string& path : {gone, name(dead, ".txt"), name(::getpid(), ".tmp"), name(1, ".tmp"),
                                  (inside / ".x.y-0.tmp").string()})
    std::ofstream(path) << "x";
  put((inside / "a").string(), "new");
  EXPECT_FALSE(fs::exists(gone));
  EXPECT_EQ(std::distance(fs::directory_iterator(inside), fs::directory_iterator()), 5);
  std::ofstream(gone) << "x";  // held by somebody: on another machine the number says nothing
  const int file = ::open(gone.c_str(), O_RDONLY);
  ::flock(file, LOCK_EX);
  clear_leftovers(inside.string());
  EXPECT_TRUE(fs::exists(gone));
  ::close(file);
  clear_leftovers(inside.string());
  EXPECT_FALSE(fs::exists(gone));
}

}  // namespace
}  // namespace rapt
