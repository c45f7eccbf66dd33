// SPDX-License-Identifier: Apache-2.0
// Wrong pictures end in the right rapt::Error: a list made by hand, every truncation and many byte changes
// of good files, with memory capped where no sanitizer needs it.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <fstream>
#include <set>

#include "rapt/image/image.h"
#include "tests/build_kind.h"
#include "tests/hostile/cases.h"
#include "tests/image_files.h"

namespace rapt::test {
namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20;

// More than the process has now.
class PictureMemoryCap {
 public:
  explicit PictureMemoryCap(std::size_t more) {
    if (kSanitized) return;
    ::getrlimit(RLIMIT_AS, &before_);
    std::ifstream status("/proc/self/statm");
    rlim_t pages = 0;
    if (!(status >> pages)) return;
    struct rlimit now = before_;
    now.rlim_cur = std::min(before_.rlim_max, pages * 4096 + more);
    capped_ = ::setrlimit(RLIMIT_AS, &now) == 0;
  }
  ~PictureMemoryCap() {
    if (capped_) ::setrlimit(RLIMIT_AS, &before_);
  }

 private:
  struct rlimit before_{};
  bool capped_ = false;
};

const std::string kEnd = png_chunk("IEND", "");
// Two by two, RGB.
const std::string kRows("\0\1\2\3\4\5\6\0\1\2\3\4\5\6", 14);

std::string png_of(const std::string& header, const std::string& rest) { return kPngStart + header + rest; }
std::string good_png() { return png_of(png_header(2, 2), png_pixels(kRows) + kEnd); }
std::string with_byte(std::string bytes, std::size_t at, int value) {
  bytes.at(at) = static_cast<char>(value);
  return bytes;
}

std::vector<HostileCase> png_headers() {
  const std::string pixels = png_pixels(kRows) + kEnd, sizes = big_endian(2) + big_endian(2);
  const auto header = [&](int depth, int color, int compression, int filter, int interlace) {
    std::string data = sizes;
    for (const int v : {depth, color, compression, filter, interlace}) data += static_cast<char>(v);
    return png_of(png_chunk("IHDR", data), pixels);
  };
  return {
      {"signature alone", kPngStart, "ends before its last chunk"},
      {"half a length", kPngStart + "\1\2", kIncomplete},
      {"zero width", png_of(png_header(0, 2), pixels), "0 x 2 pixels"},
      {"zero height", png_of(png_header(2, 0), pixels), "2 x 0 pixels"},
      {"no size at all", png_of(png_header(0, 0), pixels), "0 x 0 pixels"},
      {"2^31 wide", png_of(png_header(1ull << 31, 1), pixels), "2147483648 x 1"},
      {"2^32 - 1 both", png_of(png_header(0xFFFFFFFF, 0xFFFFFFFF), pixels), "4294967295 x 4294967295"},
      {"product wraps to 0", png_of(png_header(1ull << 31, 1ull << 31), pixels), "a side may have 65,535"},
      {"65 million", png_of(png_header(65000, 1000), pixels), "65,000,000 together; at most 64,000,000"},
      {"63 million in few bytes", png_of(png_header(63000, 1000), pixels), "cannot be packed in"},
      {"64 million interlaced", png_of(png_header(8000, 8000, 16, 6, 1), pixels), "cannot be packed in"},
      {"header too short", png_of(png_chunk("IHDR", sizes), pixels), "8 bytes instead of 13"},
      {"header too long", png_of(png_chunk("IHDR", sizes + "\x08\x02........"), pixels), "instead of 13"},
      {"depth 0", header(0, 2, 0, 0, 0), "colour type 2 with 0 bits"},
      {"depth 3", header(3, 0, 0, 0, 0), "colour type 0 with 3 bits"},
      {"RGB of 4 bits", header(4, 2, 0, 0, 0), "colour type 2 with 4 bits"},
      {"palette of 16 bits", header(16, 3, 0, 0, 0), "colour type 3 with 16 bits"},
      {"depth 255", header(255, 6, 0, 0, 0), "colour type 6 with 255 bits"},
      {"colour type 1", header(8, 1, 0, 0, 0), "colour type 1"},
      {"colour type 5", header(8, 5, 0, 0, 0), "colour type 5"},
      {"colour type 7", header(8, 7, 0, 0, 0), "colour type 7"},
      {"compression 1", header(8, 2, 1, 0, 0), "unknown compression method 1"},
      {"filter method 1", header(8, 2, 0, 1, 0), "unknown filter method 1"},
      {"interlacing 2", header(8, 2, 0, 0, 2), "unknown interlacing 2"},
  };
}

std::vector<HostileCase> png_chunks() {
  const std::string head = png_header(2, 2), pixels = png_pixels(kRows), good = good_png();
  const std::string packed = zlib_packed(kRows), palette = png_chunk("PLTE", std::string(6, '\7'));
  const std::string paletted = png_header(2, 1, 8, 3), indices = png_pixels(std::string("\0\0\1", 3));
  return {
      {"no header", kPngStart + pixels + kEnd, "begins with IDAT"},
      {"two headers", png_of(head, head + pixels + kEnd), "a second header"},
      {"a header after the pixels", png_of(head, pixels + head + kEnd), "a second header"},
      {"wrong sum of the header", with_byte(good, 8 + 8 + 13, 0x5A), "the chunk IHDR is damaged"},
      {"wrong byte of the header", with_byte(good, 8 + 8 + 3, 3), "the chunk IHDR is damaged"},
      {"wrong sum of the pixels", with_byte(good, 8 + 25 + 8 + packed.size(), 0x5A),
       "the chunk IDAT is damaged"},
      {"wrong sum of the end", with_byte(good, good.size() - 1, 0x5A), "the chunk IEND is damaged"},
      {"wrong sum of a text", png_of(head, with_byte(png_chunk("tEXt", "a"), 9, 1) + pixels + kEnd),
       "tEXt is damaged"},
      {"a length of 2^31", png_of(head, big_endian(1u << 31) + "IDAT...."), "more than the format allows"},
      {"a length of 2^31 - 1", png_of(head, big_endian((1u << 31) - 1) + "IDAT...."), kIncomplete},
      {"a type with digits", png_of(head, png_chunk("ID4T", "")), "not four letters"},
      {"a type with zeros", png_of(head, png_chunk(std::string(4, '\0'), "")), "not four letters"},
      {"an unknown critical chunk", png_of(head, png_chunk("ABCD", "") + pixels + kEnd),
       "unknown chunk ABCD"},
      {"no end", png_of(head, pixels), "ends before its last chunk"},
      {"an end with data", png_of(head, pixels + png_chunk("IEND", "x")), "1 bytes instead of none"},
      {"no pixels", png_of(head, kEnd), "has no pixels"},
      {"empty pixels", png_of(head, png_chunk("IDAT", "") + kEnd), "end before the last row"},
      {"pixels in two places",
       png_of(head, png_chunk("IDAT", packed.substr(0, 5)) + png_chunk("tEXt", "") +
                        png_chunk("IDAT", packed.substr(5)) + kEnd),
       "with tEXt between them"},
      {"no palette", png_of(paletted, indices + kEnd), "palette (PLTE) is missing"},
      {"palette after the pixels", png_of(png_header(2, 2), pixels + palette + kEnd),
       "PLTE after the pixels"},
      {"two palettes", png_of(paletted, palette + palette + indices + kEnd), "a second palette"},
      {"palette in grey", png_of(png_header(2, 1, 8, 0), palette + indices + kEnd), "in a grey picture"},
      {"palette of 4 bytes", png_of(paletted, png_chunk("PLTE", "abcd") + indices + kEnd), "has 4 bytes"},
      {"empty palette", png_of(paletted, png_chunk("PLTE", "") + indices + kEnd), "has 0 bytes"},
      {"palette of 257", png_of(paletted, png_chunk("PLTE", std::string(771, 'a')) + indices + kEnd),
       "771 bytes"},
      {"index out of the palette", png_of(paletted, palette + png_pixels(std::string("\0\0\2", 3)) + kEnd),
       "colour 2 of a palette of 2"},
      {"tRNS before the palette", png_of(paletted, png_chunk("tRNS", "a") + palette + indices + kEnd),
       "tRNS before"},
      {"tRNS longer than the palette", png_of(paletted, palette + png_chunk("tRNS", "abc") + indices + kEnd),
       "tRNS has 3 entries, the palette 2"},
      {"tRNS of 5 bytes", png_of(head, png_chunk("tRNS", "abcde") + pixels + kEnd), "5 bytes instead of 6"},
      {"two tRNS", png_of(head, png_chunk("tRNS", "abcdef") + png_chunk("tRNS", "abcdef") + pixels + kEnd),
       "a second tRNS"},
      {"tRNS beside alpha", png_of(png_header(1, 1, 8, 6), png_chunk("tRNS", "ab") + pixels + kEnd),
       "alpha already"},
      {"tRNS after the pixels", png_of(head, pixels + png_chunk("tRNS", "abcdef") + kEnd),
       "tRNS after the pixels"},
  };
}

std::vector<HostileCase> png_streams() {
  const std::string head = png_header(2, 2), packed = zlib_packed(kRows);
  const auto stream = [&](const std::string& data) { return png_of(head, png_chunk("IDAT", data) + kEnd); };
  const std::string adam7 = png_header(9, 9, 8, 2, 1);
  return {
      {"not a stream", stream("hello, hello"), "are damaged: incorrect header check"},
      {"a stream with a dictionary",
       stream("\x78\xBB"
              "abcdefgh"),
       "are damaged"},
      {"bad blocks", stream("\x78\xDA\xFF\xFF\xFF\xFF"), "are damaged: invalid block type"},
      {"wrong sum of the stream", stream(with_byte(packed, packed.size() - 1, 0x77)), "incorrect data check"},
      {"half a stream", stream(packed.substr(0, packed.size() / 2)), "end before the last row"},
      {"a row missing", png_of(head, png_pixels(kRows.substr(0, 7)) + kEnd), "end before the last row"},
      {"a byte missing", png_of(head, png_pixels(kRows.substr(0, 13)) + kEnd), "end before the last row"},
      {"a byte more", png_of(head, png_pixels(kRows + "x") + kEnd), "more is packed in IDAT"},
      {"a bomb", png_of(head, png_pixels(kRows + std::string(64 * kMiB, 'x')) + kEnd),
       "more is packed in IDAT"},
      {"filter 5", png_of(head, png_pixels(with_byte(kRows, 0, 5)) + kEnd), "row 0 has filter 5"},
      {"filter 255", png_of(head, png_pixels(with_byte(kRows, 7, 255)) + kEnd), "row 1 has filter 255"},
      {"Adam7 with rows of none", png_of(adam7, png_pixels(std::string(9 * 28, '\0')) + kEnd),
       "end before the last row"},
      {"Adam7 with a bad filter", png_of(adam7, png_pixels(std::string(500, '\6')) + kEnd), "has filter 6"},
      {"Adam7 too long", png_of(adam7, png_pixels(std::string(500, '\0')) + kEnd), "more is packed in IDAT"},
  };
}

// Where a segment begins, and bytes after it.
std::size_t at_marker(const std::string& jpeg, int marker) {
  return jpeg.find(std::string("\xFF") + static_cast<char>(marker));
}
std::string jpeg_size(std::string jpeg, int width, int height) {
  const std::size_t at = at_marker(jpeg, 0xC0);
  return jpeg.replace(
      at + 5, 4,
      big_endian(static_cast<std::uint64_t>(height), 2) + big_endian(static_cast<std::uint64_t>(width), 2));
}
std::string without_segment(std::string jpeg, int marker) {
  const std::size_t at = at_marker(jpeg, marker);
  const auto byte = [&](std::size_t i) {
    return static_cast<std::size_t>(static_cast<unsigned char>(jpeg[i]));
  };
  return jpeg.erase(at, 2 + byte(at + 2) * 256 + byte(at + 3));
}

std::vector<HostileCase> jpegs() {
  const std::string good = golden_image("jpeg-444"), progressive = golden_image("jpeg-progressive");
  const std::string start = "\xFF\xD8\xFF";
  const std::size_t frame = at_marker(good, 0xC0), scan = at_marker(good, 0xDA);
  std::string many = progressive;  // its first scan of detail again and again
  const std::size_t first = at_marker(progressive, 0xDA), second = progressive.find("\xFF\xC4", first);
  for (int i = 0; i < 200; ++i) many.insert(second, progressive.substr(first, second - first));
  return {
      {"start alone", start, kIncomplete},
      {"start and end", start + "\xD9", "JPEG: "},
      {"zero bytes", start + std::string(20, '\0'), "JPEG: "},
      {"no frame", without_segment(good, 0xC0), "JPEG: "},
      {"two frames", std::string(good).insert(frame, good.substr(frame, 19)), "JPEG: "},
      {"two starts", std::string(good).insert(2, "\xFF\xD8"), "JPEG: "},
      {"zero width", jpeg_size(good, 0, 13), "JPEG: "},
      {"zero height", jpeg_size(good, 19, 0), "JPEG: "},
      {"65535 both", jpeg_size(good, 65535, 65535), "JPEG: "},
      {"65500 both", jpeg_size(good, 65500, 65500), "65500 x 65500 pixels"},
      {"65 million", jpeg_size(good, 65000, 1000), "65,000,000 together"},
      {"63 million in few bytes", jpeg_size(good, 63000, 1000), "cannot be packed in"},
      {"12 bits", with_byte(good, frame + 4, 12), "precision"},
      {"0 bits", with_byte(good, frame + 4, 0), "precision"},
      {"arithmetic coding", with_byte(good, frame + 1, 0xC9), "arithmetic coding"},
      {"lossless", with_byte(good, frame + 1, 0xC3), "JPEG: "},
      {"hierarchical", with_byte(good, frame + 1, 0xC5), "JPEG: "},
      {"no components", with_byte(good, frame + 9, 0), "JPEG: "},
      {"200 components", with_byte(good, frame + 9, 200), "JPEG: "},
      {"sampling 0", with_byte(good, frame + 11, 0), "ampling"},
      {"sampling 15", with_byte(good, frame + 11, 0xFF), "ampling"},
      {"quantization table 9", with_byte(good, frame + 12, 9), "JPEG: "},
      {"no quantization tables", without_segment(without_segment(good, 0xDB), 0xDB), "uantization table"},
      {"bad Huffman table", with_byte(good, at_marker(good, 0xC4) + 5, 200), "Huffman"},
      {"Huffman table 9", with_byte(good, at_marker(good, 0xC4) + 4, 9), "JPEG: "},
      {"a segment of length 0", with_byte(with_byte(good, scan + 2, 0), scan + 3, 0), "JPEG: "},
      {"a scan of 9 components", with_byte(good, scan + 4, 9), "JPEG: "},
      {"a scan of unknown components", with_byte(good, scan + 5, 99), "JPEG: "},
      {"a scan cut", good.substr(0, scan + 20), kIncomplete},
      {"without its end", good.substr(0, good.size() - 2), kIncomplete},
      {"progressive cut", progressive.substr(0, progressive.size() * 3 / 4), kIncomplete},
      {"two hundred scans", many, "more than 100 scans"},
  };
}

std::vector<HostileCase> hostile_pictures() {
  std::vector<HostileCase> all;
  for (auto* list : {png_headers, png_chunks, png_streams, jpegs})
    for (HostileCase& c : list()) all.push_back(std::move(c));
  return all;
}

TEST(HostilePictures, AreManyAndDiffer) {
  std::set<std::string> names, contents;
  for (const HostileCase& c : hostile_pictures()) {
    names.insert(c.name);
    contents.insert(c.bytes);
  }
  EXPECT_GE(names.size(), 95u);
  EXPECT_EQ(contents.size(), hostile_pictures().size());
  EXPECT_EQ(decode_image(as_span(good_png()), "good").width, 2);
}

TEST(HostilePictures, EachEndsInItsError) {
  const std::vector<HostileCase> cases = hostile_pictures();
  const PictureMemoryCap cap(64 * kMiB);
  for (const HostileCase& c : cases) {
    try {
      decode_image(as_span(c.bytes), "hostile");
      ADD_FAILURE() << c.name << ": was read";
    } catch (const Error& e) {
      const std::string message = e.what();
      EXPECT_TRUE(holds(message, c.words)) << c.name << ": says: " << message;
      EXPECT_TRUE(message.starts_with("hostile")) << c.name << ": does not name the file: " << message;
      EXPECT_LT(message.size(), 400u) << c.name;
    } catch (const std::exception& e) {
      ADD_FAILURE() << c.name << ": ended in " << e.what();
    }
  }
}

void decode_cut(const std::string& bytes, std::size_t n, const char* name) {
  const std::string cut = bytes.substr(0, n);
  decode_image(as_span(cut), name);
}

TEST(HostilePictures, EveryTruncationIsAnError) {
  for (const char* name : {"png-6-8", "png-3-4-adam7", "png-pieces", "png-palette-alpha", "jpeg-420",
                           "jpeg-restart", "jpeg-progressive", "jpeg-cmyk"}) {
    const std::string good = golden_image(name);
    for (std::size_t n = 0; n < good.size(); ++n)
      EXPECT_NE(error_of([&] { decode_cut(good, n, name); }), "") << name << ", " << n;
  }
}

// Any change of a PNG is found by its sums, or the picture is whole. With sums made right again, and in a JPEG,
// which has none, anything may be read, but nothing else may happen.
TEST(HostilePictures, ChangedBytesAreReadOrRefused) {
  int read = 0, refused = 0;
  const auto attempt = [&](const std::string& bytes, const char* name) {
    try {
      const Image image = decode_image(as_span(bytes), name);
      EXPECT_EQ(static_cast<Dim>(image.rgb.size()), 3 * image.width * image.height);
      ++read;
    } catch (const Error&) {
      ++refused;
    }
  };
  for (const char* name : {"png-6-8", "png-3-4-adam7", "png-0-1", "png-palette-alpha", "jpeg-420",
                           "jpeg-restart", "jpeg-progressive", "jpeg-ycck"}) {
    const std::string good = golden_image(name);
    for (std::size_t at = 8; at < good.size(); ++at) {
      const auto was = static_cast<unsigned char>(good[at]);
      for (const int value : {0, 1, 0x7F, 0xFF, was ^ 1, was ^ 0x20}) {
        std::string bytes = with_byte(good, at, value);
        if (at % 8) repair_png(bytes);
        attempt(bytes, name);
      }
    }
  }
  EXPECT_GT(read, 1000);
  EXPECT_GT(refused, 5000);
}

}  // namespace
}  // namespace rapt::test
