// SPDX-License-Identifier: Apache-2.0
// Answers that can be given again: the last ones of each key in memory, and as lines of a file where one is
// asked for. What is kept of an answer is what decides its bits: the body as it was asked, the ids of its
// prompts (a template may have put the date into them), and the seed, which may have been drawn; and what
// came of it: ids and hash of each choice.
//
//   line    = {"id", "key", "model", "fingerprint", "route", "template", "created", "seed", "context",
//              "form", "ignore_eos", "prompts": [ids], "choices": [{"ids", "hash", "finish"}],
//              "request": body}
//   key     = name of the key that asked (Access::key_name), never the key
#pragma once
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <unordered_map>
#include <vector>

#include "rapt/apps/server/protocol_vendors.h"
#include "rapt/base/error.h"

namespace rapt::server {

struct ReplayRecord {
  std::string id, key, model, fingerprint, route;
  std::string chat_template;  // ServedModel::template_hash: constraints on answers follow from it
  std::string body;  // JSON: an object, as its form reads it
  std::int64_t created = 0;
  std::uint64_t seed = 0;  // given or drawn
  Dim context = 0;  // of the engine, where an answer without a limit ends
  Form form = Form::chat;
  bool ignore_eos = false;
  std::vector<std::vector<std::int32_t>> prompts;
  struct Choice {
    std::vector<std::int32_t> ids;
    std::uint64_t hash = 0;
    std::string finish;
  };
  std::vector<Choice> choices;  // those of the first prompt first

  std::size_t bytes() const;  // in memory
};
using ReplayPtr = std::shared_ptr<const ReplayRecord>;
std::string record_line(const ReplayRecord& record);  // without the end of the line
// Fails with what is wrong. Nothing in a line is trusted; what its body means is checked where it is asked
// for again.
ReplayRecord read_record(std::string_view line);
// JSON for GET /v1/replay/{id}. with_text: its body and the ids of prompts and answers, too.
std::string record_reply(const ReplayRecord& record, bool with_text);

// Any thread.
class ReplayStore {
 public:
  static constexpr std::size_t kAnswers = 256, kKeyBytes = std::size_t{8} << 20,
                               kBytes = std::size_t{64} << 20;
  // The oldest of its key go where that has more than its part; then, where all have more than theirs, the
  // oldest of the key with most bytes. One that alone is larger than a key's part is not kept: false.
  bool add(ReplayRecord record);
  // nullptr: there is none, or it is another key's.
  ReplayPtr find(std::string_view id, std::string_view key) const;
  struct Counts {
    std::size_t answers = 0, bytes = 0;
  };
  Counts counts() const;

 private:
  struct Answers {
    std::deque<ReplayPtr> list;  // the oldest first
    std::size_t bytes = 0;
  };
  void drop_oldest(Answers& of);

  mutable std::mutex lock_;
  std::map<std::string, Answers, std::less<>> keys_;
  std::unordered_map<std::string, ReplayPtr> by_id_;
  std::size_t bytes_ = 0;
};

// Lines of an open file from `from` on, one after the other; those longer than kMostLine come as "". Returns
// how many bytes it had.
inline constexpr std::size_t kMostLine = std::size_t{32} << 20;
std::uint64_t read_lines(int file, std::uint64_t from,
                         const std::function<void(std::string_view line, Dim number)>& see);

// A file that answers are appended to, a line each (mode 600: their prompts are in it). Lines are written by
// a thread of its own, so that no answer waits for a disk; what was written is brought to the disk once a
// second, and at the end. A line that finds the queue full or the disk full is not written, and counted.
class ReplayLog {
 public:
  // Fails where the file is none, can be read by others, or another server writes to it. `warn` is called
  // from its thread.
  ReplayLog(std::string path, std::function<void(const std::string&)> warn);
  ~ReplayLog();  // what waits is written
  ReplayLog(const ReplayLog&) = delete;
  ReplayLog& operator=(const ReplayLog&) = delete;

  // The lines that were there, of the last kMostRead bytes; before the first append().
  static constexpr std::uint64_t kMostRead = std::uint64_t{64} << 20;
  void read(const std::function<void(std::string_view line, Dim number)>& see) const;
  void append(const ReplayRecord& record);  // any thread
  struct Counts {
    std::uint64_t written = 0, lost = 0;
  };
  Counts counts() const;

 private:
  void run();
  bool write(std::string_view line);

  const std::string path_;
  const std::function<void(const std::string&)> warn_;
  int file_ = -1;
  mutable std::mutex lock_;
  std::condition_variable there_;
  std::deque<std::string> lines_;  // that wait
  std::size_t waiting_ = 0;  // … bytes of them
  bool quit_ = false, torn_ = false, warned_ = false;  // torn: the file ends in the middle of a line
  Counts counts_;
  std::thread thread_;
};

}  // namespace rapt::server
