// SPDX-License-Identifier: Apache-2.0
// JPEG by libjpeg-turbo, with its defaults (exact integer transform, smooth upsampling), so that pixels are
// those of Pillow. The library leaves by a jump where it meets an error: the functions that it jumps through
// hold nothing with a destructor. What it only warns of (a damaged block in the middle) is tolerated as
// Pillow does; a file that ends early is an error.
//
// Files are not trusted: sizes are known from the header before memory is made, a picture needs at least a
// bit for every block of 8 x 8, and the number of scans of a progressive file, each of which goes over the
// whole picture, is limited.
#include "rapt/image/jpeg.h"

#include <csetjmp>
#include <cstdio>
#include <cstring>

#include <jerror.h>
#include <jpeglib.h>

namespace rapt {
namespace {

constexpr int kMostScans = 100;  // an encoder writes ten or so

struct JpegDecoder {
  jpeg_decompress_struct info{};
  jpeg_error_mgr errors{};
  jpeg_progress_mgr progress{};
  std::jmp_buf escape{};
  char message[JMSG_LENGTH_MAX] = "";
  bool made = false;

  JpegDecoder() = default;
  ~JpegDecoder() {
    if (made) jpeg_destroy_decompress(&info);
  }
  JpegDecoder(const JpegDecoder&) = delete;
  JpegDecoder& operator=(const JpegDecoder&) = delete;
};

JpegDecoder& decoder_of(j_common_ptr info) { return *static_cast<JpegDecoder*>(info->client_data); }

[[noreturn]] void leave(j_common_ptr info) {
  JpegDecoder& d = decoder_of(info);
  if (d.message[0] == 0) info->err->format_message(info, d.message);
  std::longjmp(d.escape, 1);
}
void say_nothing(j_common_ptr) {}
boolean out_of_bytes(j_decompress_ptr info) {
  JpegDecoder& d = decoder_of(reinterpret_cast<j_common_ptr>(info));
  std::snprintf(d.message, sizeof d.message, "ends in the middle of the picture (is the download complete?)");
  leave(reinterpret_cast<j_common_ptr>(info));
}
void count_scans(j_common_ptr info) {
  if (!info->is_decompressor || reinterpret_cast<j_decompress_ptr>(info)->input_scan_number <= kMostScans)
    return;
  JpegDecoder& d = decoder_of(info);
  std::snprintf(d.message, sizeof d.message, "has more than %d scans: a file made to take long?", kMostScans);
  leave(info);
}

// False: the message says why. Both jump out of the library, so nothing here may need to be destroyed.
bool read_header(JpegDecoder& d, const unsigned char* bytes, unsigned long size) {
  if (setjmp(d.escape)) return false;
  d.info.err = jpeg_std_error(&d.errors);
  d.errors.error_exit = leave;
  d.errors.output_message = say_nothing;
  d.info.client_data = &d;
  jpeg_create_decompress(&d.info);
  d.made = true;
  d.progress.progress_monitor = count_scans;
  d.info.progress = &d.progress;
  jpeg_mem_src(&d.info, bytes, size);
  d.info.src->fill_input_buffer = out_of_bytes;
  jpeg_read_header(&d.info, TRUE);
  return true;
}
bool read_pixels(JpegDecoder& d, unsigned char* out) {
  if (setjmp(d.escape)) return false;
  jpeg_start_decompress(&d.info);
  const std::size_t row_bytes =
      std::size_t{d.info.output_width} * static_cast<unsigned>(d.info.output_components);
  while (d.info.output_scanline < d.info.output_height) {
    JSAMPROW row = out + d.info.output_scanline * row_bytes;
    jpeg_read_scanlines(&d.info, &row, 1);
  }
  return true;
}

// Adobe's files hold the complements of the inks; Pillow takes every file for one of Adobe's. Colours as
// Pillow mixes them: (255 − ink) · (255 − black) / 255, rounded.
void mix_inks(const std::vector<std::uint8_t>& inks, std::vector<std::uint8_t>& rgb) {
  for (std::size_t i = 0; i < inks.size() / 4; ++i) {
    const int light = inks[4 * i + 3];
    for (std::size_t k = 0; k < 3; ++k) {
      const int dark = ((255 - inks[4 * i + k]) * light * 2 + 255) / 510;
      rgb[3 * i + k] = static_cast<std::uint8_t>(light - dark);
    }
  }
}

void check_header(const jpeg_decompress_struct& info, const std::string& name, std::size_t bytes) {
  check_image_size(name, info.image_width, info.image_height);
  if (info.arith_code)
    fail(name, ": JPEG: is packed by arithmetic coding, which is not read: save it again as a plain JPEG");
  const int n = info.num_components;
  if (n != 1 && n != 3 && n != 4)
    fail(name, ": JPEG: has ", n, " colour components; 1 (grey), 3 (colour) and 4 (CMYK) are read");
  const std::uint64_t blocks = std::uint64_t{(info.image_width + 7) / 8} * ((info.image_height + 7) / 8);
  if (blocks / 8 > bytes)
    fail(name, ": JPEG: ", info.image_width, " x ", info.image_height, " pixels cannot be packed in ", bytes,
         " bytes; is the download complete?");
}

}  // namespace

bool is_jpeg(std::span<const std::byte> bytes) {
  return bytes.size() >= 3 && std::memcmp(bytes.data(), "\xFF\xD8\xFF", 3) == 0;
}

Image decode_jpeg(std::span<const std::byte> bytes, const std::string& name) {
  JpegDecoder d;
  const auto* data = reinterpret_cast<const unsigned char*>(bytes.data());
  if (!read_header(d, data, static_cast<unsigned long>(bytes.size()))) fail(name, ": JPEG: ", d.message);
  check_header(d.info, name, bytes.size());
  const bool inks = d.info.num_components == 4, grey = d.info.num_components == 1;
  d.info.out_color_space = inks ? JCS_CMYK : grey ? JCS_GRAYSCALE : JCS_RGB;

  Image image{static_cast<Dim>(d.info.image_width), static_cast<Dim>(d.info.image_height), {}};
  const std::size_t pixels = static_cast<std::size_t>(image.width * image.height);
  image.rgb.resize(3 * pixels);
  std::vector<std::uint8_t> other(inks ? 4 * pixels : grey ? pixels : 0);
  if (!read_pixels(d, other.empty() ? image.rgb.data() : other.data())) fail(name, ": JPEG: ", d.message);
  if (inks) mix_inks(other, image.rgb);
  if (grey)
    for (std::size_t i = 0; i < 3 * pixels; ++i) image.rgb[i] = other[i / 3];
  return image;
}

}  // namespace rapt
