// SPDX-License-Identifier: Apache-2.0
// gzip by zlib: member = header, deflate stream, crc32 and length of what it holds; a file is one member or
// several.
#include "rapt/io/gzip.h"

#include <zlib.h>

#include <algorithm>
#include <memory>

#include "rapt/base/text.h"
#include "rapt/io/reader.h"

namespace rapt {
namespace {

bool begins_like_gzip(std::string_view bytes) { return bytes.starts_with("\x1f\x8b"); }

struct Inflate {
  z_stream z{};
  explicit Inflate(std::string_view where) {
    if (inflateInit2(&z, 16 + MAX_WBITS) != Z_OK) fail(where, ": zlib could not be started: out of memory?");
  }
  ~Inflate() { inflateEnd(&z); }
  Inflate(const Inflate&) = delete;
  Inflate& operator=(const Inflate&) = delete;
};

}  // namespace

std::string gunzip(std::string_view bytes, std::uint64_t most, std::string_view where) {
  if (!begins_like_gzip(bytes)) fail(where, ": does not begin like a gzip file");
  // Zlib counts in 32 bits.
  constexpr std::size_t kChunk = std::size_t{1} << 18, kFeed = std::size_t{1} << 30;
  // text: 3 to 10 times, a log of equal lines some dozens
  constexpr std::size_t kMostTimes = 200, kAlways = std::size_t{16} << 20;
  std::string out;
  const auto chunk = std::make_unique<char[]>(kChunk);
  Inflate inflate_state(where);
  z_stream& z = inflate_state.z;
  std::size_t at = 0;  // of what zlib has been given
  const auto position = [&] { return at - z.avail_in; };
  for (;;) {
    if (z.avail_in == 0 && at < bytes.size()) {
      const std::size_t n = std::min(kFeed, bytes.size() - at);
      z.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data() + at));  // zlib reads it only
      z.avail_in = static_cast<uInt>(n);
      at += n;
    }
    z.next_out = reinterpret_cast<Bytef*>(chunk.get());
    z.avail_out = static_cast<uInt>(kChunk);
    const int result = inflate(&z, Z_NO_FLUSH);
    const std::size_t made = kChunk - z.avail_out;
    if (made > most - std::min<std::uint64_t>(most, out.size()))
      fail(where, ": unpacks to more than ", byte_count(static_cast<double>(most)),
           ", which is the most that is read");
    if (out.size() + made > kAlways && (out.size() + made) / kMostTimes > position())
      fail(where, ": unpacks to more than ", kMostTimes,
           " times its size, which no text does: a file made to fill the memory? ",
           "If it is meant, unpack it with gunzip and give the result");
    out.append(chunk.get(), made);
    if (result == Z_STREAM_END) {
      const std::string_view rest = bytes.substr(position());
      // Padding of tapes and block devices.
      if (rest.find_first_not_of('\0') == std::string_view::npos) return out;
      if (!begins_like_gzip(rest))
        fail(where, ": byte ", position(), ": ", rest.size(),
             " bytes follow the compressed text and are none (is it two files in one?)");
      if (inflateReset(&z) != Z_OK) fail(where, ": zlib could not be started again");
    } else if (result == Z_OK) {
      continue;
    } else if (result == Z_BUF_ERROR && position() == bytes.size()) {
      fail(where, ": ends in the middle of the compressed text, at byte ", bytes.size(),
           " (is the download complete?)");
    } else if (result == Z_MEM_ERROR) {
      fail(where, ": out of memory while unpacking");
    } else if (result != Z_BUF_ERROR) {
      fail(where, ": byte ", position(),
           ": the compressed text is damaged: ", z.msg ? z.msg : "no reason given");
    }
  }
}

std::string read_text_or_gz(const std::string& path, std::uint64_t most) {
  std::string bytes = read_text_file(path, most);
  if (!begins_like_gzip(bytes)) return bytes;
  return gunzip(bytes, most, path);
}

}  // namespace rapt
