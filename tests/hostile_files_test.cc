// SPDX-License-Identifier: Apache-2.0
// Wrong GGUF and safetensors files end in the right rapt::Error: a list made by hand, and every truncation
// and many byte changes of one good file of each. Memory is capped meanwhile (where no sanitizer needs it),
// so that a number from a file cannot become an allocation.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <fstream>
#include <functional>
#include <set>

#include "rapt/io/gguf.h"
#include "rapt/io/safetensors.h"
#include "tests/build_kind.h"
#include "tests/hostile/gguf_cases.h"
#include "tests/hostile/safetensors_cases.h"

namespace rapt::test {
namespace {

// 64 MiB more than the process has now; no file here is larger than some KiB, unless it says so.
class MemoryCap {
 public:
  explicit MemoryCap(std::size_t more = std::size_t{64} << 20) {
    if (kSanitized) return;
    ::getrlimit(RLIMIT_AS, &before_);
    std::ifstream status("/proc/self/statm");
    rlim_t pages = 0;
    if (!(status >> pages)) return;
    struct rlimit now = before_;
    now.rlim_cur = std::min(before_.rlim_max, pages * 4096 + more);
    capped_ = ::setrlimit(RLIMIT_AS, &now) == 0;
  }
  ~MemoryCap() {
    if (capped_) ::setrlimit(RLIMIT_AS, &before_);
  }

 private:
  struct rlimit before_{};
  bool capped_ = false;
};

using Load = void (*)(const std::string& bytes);
void read_through(const TensorTable& tensors, std::size_t size) {
  ASSERT_LE(tensors.bytes(), size);
  for (const TensorView& t : tensors.all()) {
    ASSERT_EQ(tensors.find(t.name()), &t);
    ASSERT_EQ(static_cast<Dim>(t.values().size()), t.elements());
  }
}
void load_gguf(const std::string& bytes) {
  read_through(GgufFile::parse(as_span(bytes), "hostile").tensors, bytes.size());
}
void load_safetensors(const std::string& bytes) {
  read_through(SafetensorsFile::parse(as_span(bytes), "hostile").tensors, bytes.size());
}

void refuse_all(const std::vector<HostileCase>& cases, Load load) {
  const MemoryCap cap;
  for (const HostileCase& c : cases) {
    try {
      load(c.bytes);
      ADD_FAILURE() << c.name << ": was loaded";
    } catch (const Error& e) {
      const std::string message = e.what();
      EXPECT_NE(message.find(c.words), std::string::npos) << c.name << ": says: " << message;
      EXPECT_TRUE(message.starts_with("hostile")) << c.name << ": does not name the file: " << message;
      EXPECT_LT(message.size(), 1000u) << c.name;
      EXPECT_TRUE(valid_utf8(message)) << c.name;
    } catch (const std::exception& e) {
      ADD_FAILURE() << c.name << ": ended in " << e.what();
    }
  }
}

TEST(HostileFiles, AreMany) {
  std::set<std::string> names, contents;
  auto cases = hostile_gguf();
  for (auto& c : hostile_safetensors()) cases.push_back(std::move(c));
  std::size_t without_words = 0;
  for (const auto& c : cases) {
    EXPECT_TRUE(names.insert(c.name).second) << c.name;
    EXPECT_TRUE(contents.insert(c.name.substr(0, 4) + c.bytes).second)
        << c.name << ": the bytes stand in another case";
    without_words += c.words.empty();
  }
  EXPECT_EQ(without_words, 0u);
  EXPECT_GE(cases.size(), 350u);
}

TEST(HostileFiles, GgufRefused) { refuse_all(hostile_gguf(), load_gguf); }
TEST(HostileFiles, SafetensorsRefused) { refuse_all(hostile_safetensors(), load_safetensors); }

// Each file loads or ends in rapt::Error; anything else fails the test or the sanitizer. Returns how
// many loaded.
int try_all(Load load, const std::function<void(const std::function<void(const std::string&)>&)>& make) {
  const MemoryCap cap;
  int loaded = 0;
  make([&](const std::string& bytes) {
    try {
      load(bytes);
      ++loaded;
    } catch (const Error& e) {
      ASSERT_LT(std::string_view(e.what()).size(), 1000u);
    }
  });
  return loaded;
}

void truncate_and_change(const std::string& good, std::size_t header, Load load) {
  load(good);
  const int cut = try_all(load, [&](const auto& file) {
    for (std::size_t n = 0; n < good.size(); ++n) file(good.substr(0, n));
  });
  EXPECT_EQ(cut, 0);  // both formats end where their last tensor ends
  int tried = 0;
  const int changed = try_all(load, [&](const auto& file) {
    for (std::size_t at = 0; at < header; ++at) {
      const auto was = static_cast<unsigned char>(good[at]);
      for (const int value : {0, 1, 0x7F, 0x80, 0xFF, was ^ 1, was ^ 0x20, was + 1}) {
        std::string bytes = good;
        bytes[at] = static_cast<char>(value);
        file(bytes);
        ++tried;
      }
    }
  });
  EXPECT_EQ(tried, static_cast<int>(8 * header));
  EXPECT_GT(changed, tried / 100);  // letters of names may change
  EXPECT_LT(changed, tried);
}

// A header takes 16 MiB and four times its bytes at most, or it is refused; nothing that models have
// comes near.
TEST(HostileFiles, MemoryOfHeadersIsBounded) {
  const auto with = [](const std::string& name, GgufBytes g, bool loads) {
    const std::string bytes = g.make();
    // And what an allocator keeps.
    const MemoryCap cap((std::size_t{16} << 20) + 4 * bytes.size() + (std::size_t{2} << 20));
    try {
      load_gguf(bytes);
      EXPECT_TRUE(loads) << name << " was loaded";
    } catch (const Error& e) {
      EXPECT_FALSE(loads) << name << ": " << e.what();
      EXPECT_NE(std::string(e.what()).find("what the header announces takes more than"), std::string::npos)
          << name << ": " << e.what();
    } catch (const std::bad_alloc&) {
      ADD_FAILURE() << name << ": took more";
    }
  };
  const auto list = [](std::uint32_t type, std::uint64_t n, std::size_t bytes) {
    GgufBytes g;
    g.keys.push_back(key("list", kArray, array(type, n, std::string(bytes, '\0'))));
    return g;
  };
  with("a map of characters", list(kU8, 1 << 20, 1 << 20), true);
  with("8 MiB of u8", list(kU8, 8 << 20, 8 << 20), false);
  with("8 MiB of booleans", list(kBool, 8 << 20, 8 << 20), false);
  with("a million numbers", list(kF32, 1 << 20, 4 << 20), true);
  with("a million empty strings", list(kText, 1 << 20, 8 << 20), true);
  const auto many = [](std::uint64_t n, std::size_t digits) {
    GgufBytes g;
    for (std::uint64_t i = 0; i < n; ++i) {
      const std::string number = std::to_string(i);
      g.tensors.push_back(tensor(std::string(digits - number.size(), 't') + number, {1}, 24, i * 32));
    }
    g.data = n * 32;
    return g;
  };
  with("20,000 tensors", many(20000, 30), true);
  with("300,000 tensors", many(300000, 8), false);
}

TEST(HostileFiles, EveryTruncationAndByteOfAGguf) {
  const std::string good = good_gguf().make();
  truncate_and_change(good, good.size() - good_gguf().data, load_gguf);
}
TEST(HostileFiles, EveryTruncationAndByteOfASafetensors) {
  const std::string good = good_safetensors();
  truncate_and_change(good, good.size() - 36, load_safetensors);
}

// Counts at their limits, and names that all differ: no pass over them may be quadratic (this takes minutes
// if one is).
TEST(HostileFiles, ManyNamesAreReadInTime) {
  GgufBytes g;
  g.keys.clear();
  for (int i = 0; i < 65536; ++i) g.keys.push_back(key(concat("k", i), kBool, std::string(1, '\1')));
  for (std::uint64_t i = 0; i < 30000; ++i)
    g.tensors.push_back(tensor(concat("t", i), {8}, 0, 32 * (29999 - i)));
  g.data = 30000 * 32;
  const std::string gguf = g.make();
  EXPECT_EQ(GgufFile::parse(as_span(gguf), "f").tensors.all().size(), 30000u);
  std::string header = "{";
  for (int i = 0; i < 30000; ++i)
    header +=
        (i ? "," : "") + entry(concat("t", i), "I8", "[1]", concat("[", 29999 - i, ",", 30000 - i, "]"));
  const std::string st = safetensors(header + "}", 30000);
  EXPECT_EQ(SafetensorsFile::parse(as_span(st), "f").tensors.all().size(), 30000u);
}

}  // namespace
}  // namespace rapt::test
