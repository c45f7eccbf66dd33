// SPDX-License-Identifier: Apache-2.0
// Words and flags as bytes: a length, then the text.
#include "rapt/use/together.h"

#include <algorithm>
#include <cstdint>

#include "rapt/base/error.h"
#include "rapt/use/ranks.h"

namespace rapt {

std::vector<bool> all_say(Comm& comm, bool mine) {
  const char say = mine;
  const std::vector<std::size_t> one(static_cast<std::size_t>(comm.size()), 1);
  const std::vector<char> all = gather<char>(comm, {&say, 1}, one);
  return {all.begin(), all.end()};
}

std::vector<std::string> all_say(Comm& comm, const std::string& mine) {
  const std::size_t length = mine.size();
  const std::vector<std::size_t> one(static_cast<std::size_t>(comm.size()), 1),
      lengths = gather<std::size_t>(comm, {&length, 1}, one);
  const std::vector<char> text = gather<char>(comm, mine, lengths);
  std::vector<std::string> out;
  std::size_t at = 0;
  for (const std::size_t n : lengths) out.emplace_back(text.data() + at, n), at += n;
  return out;
}

bool any_rank(Comm& comm, bool mine) {
  const std::vector<bool> all = all_say(comm, mine);
  return std::find(all.begin(), all.end(), true) != all.end();
}

bool rank_0_says(Comm& comm, bool mine) {
  std::byte say{mine};
  comm.broadcast({&say, 1}, 0);
  return say != std::byte{0};
}

std::string rank_0_says(Comm& comm, const std::string& mine) {
  std::uint64_t length = mine.size();
  comm.broadcast(std::as_writable_bytes(std::span(&length, 1)), 0);
  std::string text = mine;
  text.resize(length);
  comm.broadcast(std::as_writable_bytes(std::span(text)), 0);
  return text;
}

std::string on_rank_0(Comm& comm, const std::function<std::string()>& f) {
  if (comm.size() == 1) return f();
  std::string answer;
  bool failed = false;
  if (comm.rank() == 0) try {
      answer = f();
    } catch (const Error& e) {
      answer = e.what(), failed = true;
    }
  failed = rank_0_says(comm, failed);
  answer = rank_0_says(comm, answer);
  if (failed) throw Error(answer);
  return answer;
}

}  // namespace rapt
