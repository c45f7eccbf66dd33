// SPDX-License-Identifier: Apache-2.0
// Texts that may be compressed.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

namespace rapt {

// The text of a gzip file held in memory (several members follow each other); more than `most` bytes, more
// than 200 times the size (beyond 16 MiB: a bomb), a wrong checksum or a cut file are errors that say where.
std::string gunzip(std::string_view bytes, std::uint64_t most, std::string_view where);
// A whole text file, unpacked where it begins like gzip, whatever its name.
std::string read_text_or_gz(const std::string& path, std::uint64_t most = std::uint64_t{1} << 32);

}  // namespace rapt
