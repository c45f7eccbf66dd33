// SPDX-License-Identifier: Apache-2.0
// PNG.
//
//   file  = "\x89PNG\r\n\x1a\n" IHDR other* PLTE? other* tRNS? other* IDAT+ other* IEND   numbers: big-endian
//   chunk = length:u32 type:4 data:length crc:u32            crc32 of type and data
//   IHDR  = width:u32 height:u32 depth:u8 color:u8 compression:u8=0 filter:u8=0 interlace:u8 (0, 1: Adam7)
//   color = 0 grey, 2 RGB, 3 palette, 4 grey and alpha, 6 RGBA
//   data of all IDAT chunks = one zlib stream of rows; row = filter:u8 samples, packed, padded to a byte
//
// Rows are unpacked one at a time, and never more of them than the header says, so memory is that of the
// result and of two rows. Chunks that only decorate (colour profiles, texts, times, frames of animations) are
// checked for damage and skipped.
//
// As Pillow 13 makes RGB of it: of 16 bits the upper eight are taken, but of 16-bit grey alone every value
// above 255 becomes 255. The transparent colour (tRNS) is compared with what that gives; of one bit 0 and 255
// are compared. (In grey of two and four bits it is therefore seldom met; the standard means the value
// before.)
#include "rapt/image/png.h"

#include <zlib.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>

#include "rapt/base/text.h"
#include "rapt/io/reader.h"

namespace rapt {
namespace {

constexpr std::string_view kSignature("\x89PNG\r\n\x1a\n", 8);
constexpr std::uint64_t kMostExpansion = 1032;  // deflate: 258 bytes of two bits and no less
enum PngColor { kGrey = 0, kRgb = 2, kPalette = 3, kGreyAlpha = 4, kRgba = 6 };

std::uint32_t big_endian(const std::byte* p) {
  std::uint32_t v = 0;
  for (int i = 0; i < 4; ++i) v = v << 8 | static_cast<std::uint32_t>(p[i]);
  return v;
}
std::uint32_t big_endian_16(const std::byte* p) {
  return static_cast<std::uint32_t>(p[0]) << 8 | static_cast<std::uint32_t>(p[1]);
}

struct PngHeader {
  Dim width = 0, height = 0;
  int depth = 0, color = 0;
  bool interlaced = false;

  int channels() const { return color == kRgb ? 3 : color == kGreyAlpha ? 2 : color == kRgba ? 4 : 1; }
  int bits() const { return depth * channels(); }
  std::size_t row_bytes(Dim pixels) const { return static_cast<std::size_t>((pixels * bits() + 7) / 8); }
};

// Where the pixels of a pass lie. Without interlacing there is one pass, every pixel.
struct PngPass {
  Dim x, y, dx, dy;
  Dim columns(const PngHeader& h) const { return h.width > x ? (h.width - x + dx - 1) / dx : 0; }
  Dim rows(const PngHeader& h) const { return h.height > y ? (h.height - y + dy - 1) / dy : 0; }
};
constexpr PngPass kWhole[] = {{0, 0, 1, 1}};
constexpr PngPass kAdam7[] = {{0, 0, 8, 8}, {4, 0, 8, 8}, {0, 4, 4, 8}, {2, 0, 4, 4},
                              {0, 2, 2, 4}, {1, 0, 2, 2}, {0, 1, 1, 2}};
std::span<const PngPass> passes(const PngHeader& h) {
  return h.interlaced ? std::span<const PngPass>(kAdam7) : kWhole;
}

struct PngFile {
  PngHeader header;
  std::vector<std::array<std::uint8_t, 3>> palette{};
  std::vector<std::uint8_t> palette_alpha{};
  std::optional<std::array<std::uint32_t, 3>> transparent{};  // a colour, grey in the first
  std::vector<std::span<const std::byte>> packed{};  // the IDAT chunks
};

class ChunkReader {
 public:
  struct Chunk {
    std::string type;
    std::span<const std::byte> data;
  };
  ChunkReader(std::span<const std::byte> bytes, const std::string& name) : in_(bytes, name) {
    in_.take(kSignature.size(), "the signature");
  }
  Chunk next() {
    at_ = in_.position();
    if (in_.left() == 0) refuse("ends before its last chunk (IEND); is the download complete?");
    const std::uint32_t length = big_endian(in_.take(4, "the length of a chunk").data());
    if (length > 0x7FFFFFFFu) refuse("a chunk claims ", length, " bytes, more than the format allows");
    const auto type = in_.take(4, "the type of a chunk");
    const auto letter = [](std::byte b) {
      const int c = static_cast<int>(b) | 32;
      return c >= 'a' && c <= 'z';
    };
    if (!std::all_of(type.begin(), type.end(), letter)) refuse("the type of a chunk is not four letters");
    Chunk chunk{std::string(reinterpret_cast<const char*>(type.data()), 4), {}};
    chunk.data = in_.take(length, concat("the chunk ", chunk.type));
    const auto* first =
        reinterpret_cast<const Bytef*>(type.data());  // type and data lie one behind the other
    const auto sum = static_cast<std::uint32_t>(crc32_z(0, first, std::size_t{4} + length));
    if (sum != big_endian(in_.take(4, concat("the checksum of ", chunk.type)).data()))
      refuse("the chunk ", chunk.type, " is damaged: its checksum (CRC) is wrong");
    return chunk;
  }
  template <class... Parts>
  [[noreturn]] void refuse(const Parts&... parts) const {
    fail(in_.name(), ": byte ", at_, ": PNG: ", parts...);
  }

 private:
  Reader in_;
  std::uint64_t at_ = 0;  // where the chunk at hand begins
};

PngHeader parse_header(const ChunkReader& in, std::span<const std::byte> data, const std::string& name) {
  if (data.size() != 13) in.refuse("the header (IHDR) has ", data.size(), " bytes instead of 13");
  const std::uint32_t width = big_endian(data.data()), height = big_endian(data.data() + 4);
  const auto at = [&](std::size_t i) { return static_cast<int>(data[i]); };
  const PngHeader h{static_cast<Dim>(width), static_cast<Dim>(height), at(8), at(9), at(12) == 1};
  const bool small = h.depth == 1 || h.depth == 2 || h.depth == 4, large = h.depth == 16;
  const bool fits = h.color == kGrey      ? small || large || h.depth == 8
                    : h.color == kPalette ? small || h.depth == 8
                    : h.color == kRgb || h.color == kGreyAlpha || h.color == kRgba ? large || h.depth == 8
                                                                                   : false;
  if (!fits) in.refuse("colour type ", h.color, " with ", h.depth, " bits a sample is none of the format");
  if (at(10) != 0) in.refuse("unknown compression method ", at(10));
  if (at(11) != 0) in.refuse("unknown filter method ", at(11));
  if (at(12) > 1) in.refuse("unknown interlacing ", at(12));
  check_image_size(name, width, height);
  return h;
}

void parse_palette(const ChunkReader& in, PngFile& file, std::span<const std::byte> data) {
  if (!file.palette.empty()) in.refuse("a second palette (PLTE)");
  if (file.header.color == kGrey || file.header.color == kGreyAlpha)
    in.refuse("a palette (PLTE) in a grey picture");
  if (data.empty() || data.size() % 3 != 0 || data.size() > 768)
    in.refuse("the palette (PLTE) has ", data.size(), " bytes, which are not 1 to 256 colours of three");
  file.palette.resize(data.size() / 3);
  std::memcpy(file.palette.data(), data.data(), data.size());
}

void parse_transparency(const ChunkReader& in, PngFile& file, std::span<const std::byte> data) {
  const PngHeader& h = file.header;
  if (file.transparent || !file.palette_alpha.empty()) in.refuse("a second tRNS chunk");
  if (h.color == kPalette) {
    if (file.palette.empty()) in.refuse("tRNS before the palette (PLTE)");
    if (data.size() > file.palette.size())
      in.refuse("tRNS has ", data.size(), " entries, the palette ", file.palette.size());
    for (const std::byte b : data) file.palette_alpha.push_back(static_cast<std::uint8_t>(b));
    return;
  }
  if (h.color == kGreyAlpha || h.color == kRgba) in.refuse("tRNS in a picture that has alpha already");
  const std::size_t n = h.color == kRgb ? 3 : 1;
  if (data.size() != 2 * n) in.refuse("tRNS has ", data.size(), " bytes instead of ", 2 * n);
  std::array<std::uint32_t, 3> key{};
  for (std::size_t i = 0; i < n; ++i) key[i] = big_endian_16(data.data() + 2 * i);
  if (h.color == kGrey && h.depth == 1) key[0] = key[0] ? 255 : 0;
  file.transparent = key;
}

PngFile parse_chunks(std::span<const std::byte> bytes, const std::string& name) {
  ChunkReader in(bytes, name);
  PngFile file;
  std::string before;
  for (;;) {
    const auto [type, data] = in.next();
    if (before.empty()) {
      if (type != "IHDR") in.refuse("begins with ", type, " and not with its header (IHDR)");
      file.header = parse_header(in, data, name);
    } else if (type == "IHDR") {
      in.refuse("a second header (IHDR)");
    } else if (type == "PLTE" || type == "tRNS") {
      if (!file.packed.empty()) in.refuse(type, " after the pixels (IDAT)");
      type == "PLTE" ? parse_palette(in, file, data) : parse_transparency(in, file, data);
    } else if (type == "IDAT") {
      if (!file.packed.empty() && before != "IDAT") in.refuse("IDAT chunks with ", before, " between them");
      if (file.header.color == kPalette && file.palette.empty())
        in.refuse("the palette (PLTE) is missing before the pixels");
      file.packed.push_back(data);
    } else if (type == "IEND") {
      if (!data.empty()) in.refuse("the last chunk (IEND) has ", data.size(), " bytes instead of none");
      if (file.packed.empty()) in.refuse("has no pixels (IDAT)");
      return file;
    } else if ((type[0] & 32) == 0) {  // a capital: who does not know it cannot show the picture
      in.refuse("unknown chunk ", type, ", which is needed to show the picture");
    }
    before = type;
  }
}

// The zlib stream that the IDAT chunks hold together.
class PackedRows {
 public:
  PackedRows(const PngFile& file, const std::string& name) : packed_(file.packed), name_(name) {
    if (inflateInit(&z_) != Z_OK) fail(name_, ": zlib could not be started: out of memory?");
  }
  ~PackedRows() { inflateEnd(&z_); }
  PackedRows(const PackedRows&) = delete;
  PackedRows& operator=(const PackedRows&) = delete;

  void read(std::span<std::uint8_t> out) {
    if (unpack(out) < out.size())
      fail(name_, ": PNG: the pixels (IDAT) end before the last row (is the download complete?)");
  }
  // Nothing may follow the last row but the stream's own checksum.
  void finish() {
    std::uint8_t more = 0;
    if (unpack({&more, 1}) > 0) fail(name_, ": PNG: more is packed in IDAT than the header has pixels for");
  }

 private:
  std::size_t unpack(std::span<std::uint8_t> out) {
    z_.next_out = out.data();
    z_.avail_out = static_cast<uInt>(out.size());
    while (z_.avail_out > 0 && !ended_) {
      while (z_.avail_in == 0 && next_ < packed_.size()) feed(packed_[next_++]);
      const int result = inflate(&z_, Z_NO_FLUSH);
      ended_ = result == Z_STREAM_END;
      if (result == Z_BUF_ERROR && z_.avail_in == 0 && next_ == packed_.size()) break;
      if (result != Z_OK && result != Z_STREAM_END && result != Z_BUF_ERROR)
        fail(name_, ": PNG: the packed pixels (IDAT) are damaged: ", z_.msg ? z_.msg : "no reason given");
    }
    return out.size() - z_.avail_out;
  }
  void feed(std::span<const std::byte> data) {
    z_.next_in = reinterpret_cast<Bytef*>(const_cast<std::byte*>(data.data()));  // zlib reads it only
    z_.avail_in = static_cast<uInt>(data.size());
  }

  std::span<const std::span<const std::byte>> packed_;
  const std::string& name_;
  z_stream z_{};
  std::size_t next_ = 0;
  bool ended_ = false;
};

int paeth(int left, int up, int corner) {
  const int guess = left + up - corner;
  const int a = std::abs(guess - left), b = std::abs(guess - up), c = std::abs(guess - corner);
  return a <= b && a <= c ? left : b <= c ? up : corner;
}

// Samples were stored as differences to the left, the row above, or a guess from both.
void unfilter(int filter, std::span<std::uint8_t> row, std::span<const std::uint8_t> above,
              std::size_t step) {
  const auto add = [](std::uint8_t& x, int y) { x = static_cast<std::uint8_t>(x + y); };
  const std::size_t n = row.size();
  switch (filter) {
    case 1:
      for (std::size_t i = step; i < n; ++i) add(row[i], row[i - step]);
      break;
    case 2:
      for (std::size_t i = 0; i < n; ++i) add(row[i], above[i]);
      break;
    case 3:
      for (std::size_t i = 0; i < n; ++i) add(row[i], ((i < step ? 0 : row[i - step]) + above[i]) / 2);
      break;
    case 4:
      for (std::size_t i = 0; i < n; ++i)
        add(row[i], i < step ? above[i] : paeth(row[i - step], above[i], above[i - step]));
      break;
    default: break;
  }
}

std::uint32_t sample(std::span<const std::uint8_t> row, std::size_t i, int depth) {
  if (depth == 8) return row[i];
  if (depth == 16) return static_cast<std::uint32_t>(row[2 * i] << 8 | row[2 * i + 1]);
  const std::size_t bit = i * static_cast<std::size_t>(depth);
  return static_cast<std::uint32_t>(row[bit / 8] >> (8 - depth - static_cast<int>(bit % 8))) &
         ((1u << depth) - 1);
}

struct Rgba {
  std::uint32_t color[3], alpha;
};

Rgba grey_pixel(const PngFile& file, std::span<const std::uint8_t> row, std::size_t i) {
  const PngHeader& h = file.header;
  const std::uint32_t v = sample(row, i, h.depth);
  const std::uint32_t grey = h.depth == 16 ? std::min(v, 255u) : v * (255u / ((1u << h.depth) - 1));
  return {{grey, grey, grey}, file.transparent && (*file.transparent)[0] == grey ? 0u : 255u};
}

Rgba palette_pixel(const PngFile& file, std::span<const std::uint8_t> row, std::size_t i,
                   const std::string& name) {
  const std::size_t index = sample(row, i, file.header.depth);
  if (index >= file.palette.size())
    fail(name, ": PNG: a pixel has colour ", index, " of a palette of ", file.palette.size());
  const auto& c = file.palette[index];
  return {{c[0], c[1], c[2]}, index < file.palette_alpha.size() ? file.palette_alpha[index] : 255u};
}

Rgba true_color_pixel(const PngFile& file, std::span<const std::uint8_t> row, std::size_t i) {
  const PngHeader& h = file.header;
  const auto channels = static_cast<std::size_t>(h.channels());
  const std::size_t bytes = static_cast<std::size_t>(h.depth) / 8;  // of 16 bits the upper eight
  const auto at = [&](std::size_t k) { return std::uint32_t{row[(i * channels + k) * bytes]}; };
  if (h.color == kGreyAlpha) return {{at(0), at(0), at(0)}, at(1)};
  Rgba p{{at(0), at(1), at(2)}, h.color == kRgba ? at(3) : 255u};
  if (file.transparent && std::equal(p.color, p.color + 3, file.transparent->begin())) p.alpha = 0;
  return p;
}

void put_pixel(const Rgba& p, Alpha alpha, std::uint8_t* out) {
  for (int k = 0; k < 3; ++k) {
    const std::uint32_t c = p.color[k];
    // c · a + 255 · (1 − a), rounded
    out[k] = static_cast<std::uint8_t>(
        alpha == Alpha::drop || p.alpha == 255 ? c : (2 * (c * p.alpha + 255 * (255 - p.alpha)) + 255) / 510);
  }
}

void decode_pass(const PngFile& file, const PngPass& pass, PackedRows& rows, const std::string& name,
                 Alpha alpha, Image& image) {
  const PngHeader& h = file.header;
  const Dim columns = pass.columns(h);
  if (columns == 0) return;
  const std::size_t bytes = h.row_bytes(columns), step = static_cast<std::size_t>(std::max(1, h.bits() / 8));
  std::vector<std::uint8_t> row(1 + bytes), above(1 + bytes);
  for (Dim r = 0; r < pass.rows(h); ++r) {
    rows.read(row);
    if (row[0] > 4)
      fail(name, ": PNG: row ", pass.y + r * pass.dy, " has filter ", int{row[0]}, "; there are 0 to 4");
    const auto samples = std::span(row).subspan(1);
    unfilter(row[0], samples, std::span(above).subspan(1), step);
    std::uint8_t* out = image.rgb.data() + 3 * ((pass.y + r * pass.dy) * h.width + pass.x);
    for (std::size_t i = 0; i < static_cast<std::size_t>(columns); ++i, out += 3 * pass.dx)
      put_pixel(h.color == kGrey      ? grey_pixel(file, samples, i)
                : h.color == kPalette ? palette_pixel(file, samples, i, name)
                                      : true_color_pixel(file, samples, i),
                alpha, out);
    std::swap(row, above);
  }
}

// Before memory is made for the pixels: what is packed must be able to hold them.
void check_packed_size(const PngFile& file, const std::string& name) {
  std::uint64_t needed = 0, packed = 0;
  for (const PngPass& p : passes(file.header))
    if (p.columns(file.header) > 0)
      needed += static_cast<std::uint64_t>(p.rows(file.header)) *
                (1 + file.header.row_bytes(p.columns(file.header)));
  for (const auto& data : file.packed) packed += data.size();
  if (needed / kMostExpansion > packed)
    fail(name, ": PNG: ", file.header.width, " x ", file.header.height, " pixels cannot be packed in ",
         packed, " bytes (IDAT); is the download complete?");
}

}  // namespace

bool is_png(std::span<const std::byte> bytes) {
  return bytes.size() >= kSignature.size() &&
         std::memcmp(bytes.data(), kSignature.data(), kSignature.size()) == 0;
}

Image decode_png(std::span<const std::byte> bytes, const std::string& name, Alpha alpha) {
  const PngFile file = parse_chunks(bytes, name);
  check_packed_size(file, name);
  const PngHeader& h = file.header;
  Image image{h.width, h.height, std::vector<std::uint8_t>(static_cast<std::size_t>(3 * h.width * h.height))};
  PackedRows rows(file, name);
  for (const PngPass& pass : passes(h)) decode_pass(file, pass, rows, name, alpha, image);
  rows.finish();
  return image;
}

}  // namespace rapt
