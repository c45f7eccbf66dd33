// SPDX-License-Identifier: Apache-2.0
// Records as lines and back, the store, the file.
#include "rapt/apps/server/replay_store.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <utility>

#include "rapt/apps/server/protocol_reply.h"
#include "rapt/base/clock.h"
#include "rapt/base/json.h"

namespace rapt::server {
namespace {

constexpr std::size_t kMostWaiting = std::size_t{16} << 20;  // bytes of lines that wait for the disk
constexpr std::string_view kForms[] = {"chat",     "text",        "responses",
                                       "messages", "ollama_chat", "ollama_generate"};  // as Form has them
constexpr std::size_t kOverhead = 512;  // of a record: its maps and blocks

void append_ids(std::string& out, std::span<const std::int32_t> ids) {
  out += '[';
  for (const std::int32_t id : ids) {
    char digits[16];
    if (out.back() != '[') out += ',';
    out.append(digits, std::to_chars(digits, digits + sizeof digits, id).ptr);
  }
  out += ']';
}

// "name":"text", with a comma before it.
void append_text(std::string& out, std::string_view name, std::string_view text) {
  out += concat(",\"", name, "\":");
  append_quoted(out, text);
}

const Json& member(const Json& object, const char* name) {
  const Json* value = object.find(name);
  if (!value) fail("it has no '", name, "'");
  return *value;
}

std::string text_of(const Json& object, const char* name, std::size_t most) {
  const Json& value = member(object, name);
  if (!value.is_string() || value.string().size() > most)
    fail("its '", name, "' is no text of at most ", most, " bytes");
  return value.string();
}

std::int64_t integer_of(const Json& object, const char* name) {
  const Json& value = member(object, name);
  if (!value.is_integer()) fail("its '", name, "' is no integer");
  return value.integer();
}

bool boolean_of(const Json& object, const char* name) {
  const Json& value = member(object, name);
  if (!value.is_bool()) fail("its '", name, "' is neither true nor false");
  return value.boolean();
}

const Json::Array& list_of(const Json& object, const char* name, std::size_t most) {
  const Json& value = member(object, name);
  if (!value.is_array() || value.array().size() > most) fail("its '", name, "' is no list of at most ", most);
  return value.array();
}

std::vector<std::int32_t> ids_of(const Json& list, const char* what) {
  if (!list.is_array() || list.array().size() > kMostIds) fail(what, " are no list of ids");
  std::vector<std::int32_t> ids;
  ids.reserve(list.array().size());
  for (const Json& id : list.array()) {
    if (!id.is_integer() || id.integer() < 0 || id.integer() > 0x7fffffff) fail(what, " hold what is no id");
    ids.push_back(static_cast<std::int32_t>(id.integer()));
  }
  return ids;
}

std::uint64_t hash_of(const std::string& text) {
  std::uint64_t hash = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), hash, 16);
  if (text.size() != 16 || error != std::errc{} || end != text.data() + text.size())
    fail("a hash has 16 hexadecimal digits");
  return hash;
}

}  // namespace

// -------------------------------------------------------------------------------------------------- records
std::size_t ReplayRecord::bytes() const {
  std::size_t n = kOverhead + sizeof *this + id.size() + key.size() + model.size() + fingerprint.size() +
                  route.size() + chat_template.size() + body.size();
  for (const auto& ids : prompts) n += sizeof(std::vector<std::int32_t>) + ids.size() * sizeof(std::int32_t);
  for (const Choice& c : choices) n += sizeof c + c.ids.size() * sizeof(std::int32_t) + c.finish.size();
  return n;
}

std::string record_line(const ReplayRecord& r) {
  std::string out = "{\"id\":";
  append_quoted(out, r.id);
  append_text(out, "key", r.key);
  append_text(out, "model", r.model);
  append_text(out, "fingerprint", r.fingerprint);
  append_text(out, "route", r.route);
  append_text(out, "template", r.chat_template);
  out += concat(",\"created\":", r.created, ",\"seed\":", static_cast<std::int64_t>(r.seed),
                ",\"context\":", r.context, ",\"form\":\"", kForms[static_cast<std::size_t>(r.form)], "\"",
                ",\"ignore_eos\":", r.ignore_eos ? "true" : "false", ",\"prompts\":[");
  for (const auto& ids : r.prompts) {
    if (out.back() != '[') out += ',';
    append_ids(out, ids);
  }
  out += "],\"choices\":[";
  for (const ReplayRecord::Choice& c : r.choices) {
    out += out.back() == '[' ? "{\"ids\":" : ",{\"ids\":";
    append_ids(out, c.ids);
    append_text(out, "hash", hash_text(c.hash));
    append_text(out, "finish", c.finish);
    out += '}';
  }
  return out += concat("],\"request\":", r.body, "}");
}

ReplayRecord read_record(std::string_view line) {
  const Json json = parse_json(line, "line");
  if (!json.is_object()) fail("it is no object");
  ReplayRecord r;
  r.id = text_of(json, "id", 128);
  if (r.id.empty() || !std::all_of(r.id.begin(), r.id.end(), [](char c) {
        return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
               c == '_';
      }))
    fail("its 'id' is none of an answer");
  r.key = text_of(json, "key", 64);
  r.model = text_of(json, "model", 256);
  r.fingerprint = text_of(json, "fingerprint", 64);
  r.route = text_of(json, "route", 64);
  r.chat_template = text_of(json, "template", 16);
  r.created = integer_of(json, "created");
  r.seed = static_cast<std::uint64_t>(integer_of(json, "seed"));
  r.context = integer_of(json, "context");
  if (r.context < 1) fail("its 'context' is not above 0");
  const auto form = std::find(std::begin(kForms), std::end(kForms), text_of(json, "form", 64));
  if (form == std::end(kForms)) fail("its 'form' is none that is known");
  r.form = static_cast<Form>(form - std::begin(kForms));
  r.ignore_eos = boolean_of(json, "ignore_eos");
  for (const Json& ids : list_of(json, "prompts", kMostInputs)) {
    r.prompts.push_back(ids_of(ids, "its prompts"));
    if (r.prompts.back().empty()) fail("one of its prompts has no tokens");
  }
  for (const Json& c : list_of(json, "choices", kMostChoices))
    r.choices.push_back({.ids = ids_of(member(c, "ids"), "its choices"),
                         .hash = hash_of(text_of(c, "hash", 16)),
                         .finish = text_of(c, "finish", 64)});
  if (r.prompts.empty() || r.choices.empty() || r.choices.size() % r.prompts.size() != 0)
    fail("it has ", r.prompts.size(), " prompts and ", r.choices.size(), " choices");
  const Json& body = member(json, "request");
  if (!body.is_object()) fail("its 'request' is no object");
  r.body = body.dump(0);
  return r;
}

std::string record_reply(const ReplayRecord& r, bool with_text) {
  std::string out = "{\"object\":\"rapt.answer\"";
  append_text(out, "id", r.id);
  append_text(out, "route", r.route.starts_with("/api/") ? r.route : concat("/v1", r.route));
  append_text(out, "model", r.model);
  append_text(out, "system_fingerprint", r.fingerprint);
  out += concat(",\"created\":", r.created, ",\"seed\":", static_cast<std::int64_t>(r.seed),
                ",\"prompt_tokens\":[");
  for (const auto& ids : r.prompts) out += concat(out.back() == '[' ? "" : ",", ids.size());
  out += "],\"choices\":[";
  for (const ReplayRecord::Choice& c : r.choices) {
    out += concat(out.back() == '[' ? "" : ",", "{\"tokens\":", c.ids.size());
    append_text(out, "hash", hash_text(c.hash));
    append_text(out, "finish", c.finish);
    if (with_text) out += ",\"ids\":", append_ids(out, c.ids);
    out += '}';
  }
  out += ']';
  if (with_text) {
    out += ",\"prompts\":[";
    for (const auto& ids : r.prompts) {
      if (out.back() != '[') out += ',';
      append_ids(out, ids);
    }
    out += concat("],\"request\":", r.body);
  }
  return out += '}';
}

// ---------------------------------------------------------------------------------------------------- store
void ReplayStore::drop_oldest(Answers& of) {
  const std::size_t size = of.list.front()->bytes();
  by_id_.erase(of.list.front()->id);
  of.list.pop_front();
  of.bytes -= size;
  bytes_ -= size;
}

bool ReplayStore::add(ReplayRecord record) {
  const std::size_t size = record.bytes();
  if (size > kKeyBytes) return false;
  const std::lock_guard hold(lock_);
  if (by_id_.contains(record.id)) return true;  // a file may say it twice
  Answers& own = keys_[record.key];
  const auto kept = std::make_shared<const ReplayRecord>(std::move(record));
  by_id_.emplace(kept->id, kept);
  own.list.push_back(kept);
  own.bytes += size;
  bytes_ += size;
  while (own.list.size() > kAnswers || own.bytes > kKeyBytes) drop_oldest(own);
  while (bytes_ > kBytes)
    drop_oldest(std::max_element(keys_.begin(), keys_.end(), [](const auto& a, const auto& b) {
                  return a.second.bytes < b.second.bytes;
                })->second);
  return true;
}

ReplayPtr ReplayStore::find(std::string_view id, std::string_view key) const {
  const std::lock_guard hold(lock_);
  const auto it = by_id_.find(std::string(id));
  return it != by_id_.end() && it->second->key == key ? it->second : nullptr;
}

ReplayStore::Counts ReplayStore::counts() const {
  const std::lock_guard hold(lock_);
  return {by_id_.size(), bytes_};
}

// ----------------------------------------------------------------------------------------------------- file
std::uint64_t read_lines(int file, std::uint64_t from,
                         const std::function<void(std::string_view line, Dim number)>& see) {
  std::string rest;
  std::vector<char> piece(std::size_t{1} << 16);
  bool skips = false;  // the line under way is too long
  Dim number = 0;
  std::uint64_t at = from;
  const auto tell = [&](std::string_view line) {
    ++number;
    if (skips || !line.empty()) see(skips ? std::string_view{} : line, number);
    skips = false;
  };
  while (true) {
    const ssize_t n = pread(file, piece.data(), piece.size(), static_cast<off_t>(at));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail("the file cannot be read: ", std::strerror(errno));
    if (n == 0) break;
    at += static_cast<std::uint64_t>(n);
    std::string_view bytes(piece.data(), static_cast<std::size_t>(n));
    for (std::size_t end; (end = bytes.find('\n')) != bytes.npos; bytes.remove_prefix(end + 1)) {
      rest += bytes.substr(0, end);
      tell(rest);
      rest.clear();
    }
    if (rest.size() + bytes.size() > kMostLine) {
      skips = true;
      rest.clear();
    } else if (!skips) {
      rest += bytes;
    }
  }
  if (skips || !rest.empty()) tell(rest);
  return at - from;
}

ReplayLog::ReplayLog(std::string path, std::function<void(const std::string&)> warn)
    : path_(std::move(path)), warn_(std::move(warn)) {
  file_ = open(path_.c_str(), O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC | O_NOCTTY | O_NONBLOCK, 0600);
  if (file_ < 0) fail("--replay-log ", path_, ": it cannot be opened: ", std::strerror(errno));
  const auto refuse = [&](const std::string& why) {
    close(file_);
    fail("--replay-log ", path_, ": ", why);
  };
  struct stat about{};
  if (fstat(file_, &about) != 0 || !S_ISREG(about.st_mode)) refuse("it is no plain file; name another");
  if ((about.st_mode & 077) != 0)
    refuse(concat("others can read it, and prompts are written to it: chmod 600 ", path_));
  if (flock(file_, LOCK_EX | LOCK_NB) != 0) refuse("another server writes to it; name another file");
  if (char last = '\n'; about.st_size > 0 && pread(file_, &last, 1, about.st_size - 1) == 1)
    torn_ = last != '\n';
  thread_ = std::thread([this] { run(); });
}

ReplayLog::~ReplayLog() {
  {
    const std::lock_guard hold(lock_);
    quit_ = true;
  }
  there_.notify_all();
  thread_.join();
  close(file_);
}

void ReplayLog::read(const std::function<void(std::string_view line, Dim number)>& see) const {
  struct stat about{};
  if (fstat(file_, &about) != 0) return;
  const auto size = static_cast<std::uint64_t>(about.st_size);
  const std::uint64_t from = size > kMostRead ? size - kMostRead : 0;
  bool first = from > 0;  // it began before
  read_lines(file_, from, [&](std::string_view line, Dim number) {
    if (!std::exchange(first, false)) see(line, number);
  });
}

void ReplayLog::append(const ReplayRecord& record) {
  std::string line = record_line(record);
  line += '\n';
  {
    const std::lock_guard hold(lock_);
    if (waiting_ + line.size() > kMostWaiting) {
      ++counts_.lost;
      return;
    }
    waiting_ += line.size();
    lines_.push_back(std::move(line));
  }
  there_.notify_all();
}

ReplayLog::Counts ReplayLog::counts() const {
  const std::lock_guard hold(lock_);
  return counts_;
}

bool ReplayLog::write(std::string_view line) {
  std::string whole = torn_ ? "\n" : "";  // what was cut is a line of its own
  whole += line;
  std::string_view rest = whole;
  while (!rest.empty()) {
    const ssize_t n = ::write(file_, rest.data(), rest.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) {
      const int why = errno;
      torn_ = torn_ || rest.size() < whole.size();
      if (!std::exchange(warned_, true) && warn_)
        warn_(concat("--replay-log ", path_, ": an answer could not be written: ", std::strerror(why)));
      return false;
    }
    rest.remove_prefix(static_cast<std::size_t>(n));
  }
  torn_ = warned_ = false;
  return true;
}

void ReplayLog::run() {
  bool unsaved = false;
  Clock::time_point saved = Clock::now();
  std::unique_lock hold(lock_);
  while (true) {
    const auto wakes = [&] { return quit_ || !lines_.empty(); };
    if (unsaved) there_.wait_until(hold, saved + std::chrono::seconds(1), wakes);
    else there_.wait(hold, wakes);
    while (!lines_.empty()) {
      const std::string line = std::move(lines_.front());
      lines_.pop_front();
      waiting_ -= line.size();
      hold.unlock();
      const bool written = write(line);
      unsaved = unsaved || written;
      hold.lock();
      ++(written ? counts_.written : counts_.lost);
    }
    if (unsaved && (quit_ || Clock::now() >= saved + std::chrono::seconds(1))) {
      hold.unlock();
      fdatasync(file_);
      saved = Clock::now();
      unsaved = false;
      hold.lock();
    }
    if (quit_ && lines_.empty()) return;
  }
}

}  // namespace rapt::server
