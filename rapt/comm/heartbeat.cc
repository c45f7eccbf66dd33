// SPDX-License-Identifier: Apache-2.0
// The file is mapped: what a rank noted last stays when it is killed. Others read it through open and read,
// which shows what is new on a file system over a network as well; there the page is written out each second.
#include "rapt/comm/heartbeat.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <filesystem>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "rapt/base/text.h"

namespace rapt {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::milliseconds kBeat{50};

enum class End : std::uint64_t { none, done, failed, signalled };

// Numbers are written one by one, each whole; texts before the number that says they are there.
struct Record {
  static constexpr std::uint64_t kMagic = 0x31'6b6e'6172'7470;  // of this layout
  std::uint64_t magic = 0, ranks = 0, pid = 0;
  std::uint64_t beats = 0, seen = 0;  // seen: when it noted something last, unix time in ms
  std::uint64_t calls = 0;  // twice those it came back from; odd: it is in one
  std::uint64_t phase = 0, step = 0, leaf = 0, since = 0;  // leaf: number + 1; since: of the phase, as seen
  std::uint64_t end = 0;
  std::array<char, 64> host{};
  std::array<char, 360> why{};
};
static_assert(sizeof(Record) == 512);

std::atomic_ref<std::uint64_t> number(std::uint64_t& n) { return std::atomic_ref(n); }

std::uint64_t unix_ms() {
  return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::milliseconds>(
                                        std::chrono::system_clock::now().time_since_epoch())
                                        .count());
}

std::string file_of(const std::string& folder, int rank) { return concat(folder, "/rank-", rank); }

template <std::size_t N>
std::string text_of(const std::array<char, N>& text) {
  std::string out(text.data(), ::strnlen(text.data(), N));
  for (char& c : out)
    if (static_cast<unsigned char>(c) < ' ') c = ' ';
  return out;
}

std::optional<Record> read_record(const std::string& path) {
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return std::nullopt;
  Record r;
  const ssize_t n = ::pread(file, &r, sizeof r, 0);
  ::close(file);
  if (n != static_cast<ssize_t>(sizeof r) || r.magic != Record::kMagic) return std::nullopt;
  return r;
}

const char* name_of(std::uint64_t phase) {
  constexpr const char* kNames[] = {"starting", "reading data", "computing", "exchanging",
                                    "updating", "judging",      "saving",    "ending"};
  return phase < std::size(kNames) ? kNames[phase] : "at something unknown";
}

// "step 12, leaf 3, computing"
std::string place(const Record& r) {
  return concat(r.step > 0 ? concat("step ", r.step, ", ") : "",
                r.leaf > 0 ? concat("leaf ", r.leaf - 1, ", ") : "", name_of(r.phase));
}

std::string seconds(double s) { return concat(static_cast<std::int64_t>(s), " s"); }

bool is_local(int file) {
  struct statfs fs{};
  if (::fstatfs(file, &fs) != 0) return true;
  constexpr std::array<std::uint32_t, 7> kLocal = {0xEF53,     0x58465342, 0x9123683E, 0x01021994,
                                                   0x794c7630, 0x858458f6, 0x2fc12fc1};
  return std::find(kLocal.begin(), kLocal.end(), static_cast<std::uint32_t>(fs.f_type)) != kLocal.end();
}

// What one rank has seen of another: a beat that does not move is told by the own clock, whatever the other
// machine's says.
struct Seen {
  std::uint64_t beats = 0, calls = 0;
  Clock::time_point beat{}, call{};
};

}  // namespace

struct Heartbeat::State {
  State(std::string where, int own, int all, Options o)
      : folder(std::move(where)), rank(own), ranks(all), options(std::move(o)) {
    std::error_code error;
    std::filesystem::create_directories(folder, error);
    const std::string path = file_of(folder, rank);
    const int file = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (file < 0 || ::ftruncate(file, sizeof(Record)) != 0) {
      const int why = errno;
      if (file >= 0) ::close(file);
      fail(path, ": this rank cannot say there what it is at: ", std::strerror(why),
           "; --out must be a folder that all ranks can write");
    }
    local = is_local(file);
    void* memory = ::mmap(nullptr, sizeof(Record), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    ::close(file);
    if (memory == MAP_FAILED) fail(path, ": cannot be mapped: ", std::strerror(errno));
    record = new (memory) Record;
    record->ranks = static_cast<std::uint64_t>(ranks), record->pid = static_cast<std::uint64_t>(::getpid());
    record->since = record->seen = unix_ms();
    ::gethostname(record->host.data(), record->host.size() - 1);
    number(record->magic) = Record::kMagic;
    seen.resize(static_cast<std::size_t>(ranks));
    for (Seen& s : seen) s.beat = s.call = Clock::now();
    thread = std::thread([this] { run(); });
  }
  ~State() {
    {
      const std::lock_guard hold(lock);
      stop = true;
    }
    changed.notify_all();
    thread.join();
    flush();
    ::munmap(record, sizeof(Record));
  }
  void flush() const { ::msync(record, sizeof(Record), local ? MS_ASYNC : MS_SYNC); }
  void touch() const { number(record->seen) = unix_ms(); }

  void run() {
    std::unique_lock hold(lock);
    for (int tick = 0; !changed.wait_for(hold, kBeat, [&] { return stop; }); ++tick) {
      hold.unlock();
      ++number(record->beats);
      touch();
      if (tick % 20 == 0) {
        if (!local) flush();
        look();
      }
      hold.lock();
    }
  }

  // Once a second: whether this rank waits too long, and for whom.
  void look() {
    const std::uint64_t calls = number(record->calls);
    const auto now = Clock::now();
    if (calls != watched_calls) watched_calls = calls, waits_since = now;
    const double waited = std::chrono::duration<double>(now - waits_since).count();
    const bool waits = calls % 2 == 1;
    if (!named.empty() && (!waits || calls != named_in)) {
      tell(concat(named, named_many ? " go on after " : " goes on after ",
                  seconds(std::chrono::duration<double>(now - named_since).count())));
      named.clear();
    }
    // Others' beats are seen to move or not from the middle of the wait on.
    if (!waits || waited < options.patience / 2) return reset(now);
    std::vector<int> behind;
    std::vector<std::string> lines;
    for (int r = 0; r < ranks; ++r) {
      if (r == rank) continue;
      Seen& s = seen[static_cast<std::size_t>(r)];
      const std::optional<Record> other = read_record(file_of(folder, r));
      if (!other) {
        behind.push_back(r);
        lines.push_back("of which there is no word");
        continue;
      }
      if (other->beats != s.beats) s.beats = other->beats, s.beat = now;
      const double silent = std::chrono::duration<double>(now - s.beat).count();
      const bool alive = silent < dead;
      // Who waits is not who is waited for, though it may wait in an earlier call; the lowest of them tells.
      const bool waits_too = other->calls % 2 == 1;
      if (alive && waits_too && r < rank) return;
      if (alive && (waits_too || other->calls >= calls)) continue;
      behind.push_back(r);
      const double at = static_cast<double>(std::max(unix_ms(), other->since) - other->since) / 1000;
      lines.push_back(
          concat(place(*other), alive ? concat(" for ", seconds(at)) : "",
                 alive ? ""
                       : concat("; its process ", other->pid, " on ", text_of(other->host),
                                " shows no life for ", seconds(silent), ": it is stopped, dead or cut off")));
    }
    if (waited < options.patience || !named.empty()) return;
    name(behind, lines, waited, calls);
  }
  void reset(Clock::time_point now) {
    for (Seen& s : seen) s.beat = now;
  }
  void name(const std::vector<int>& behind, const std::vector<std::string>& lines, double waited,
            std::uint64_t calls) {
    constexpr std::size_t kMost = 8;
    named_in = calls, named_since = waits_since, named_many = behind.size() != 1;
    if (behind.empty()) {
      named = "the ranks";
      return tell(concat("all ", ranks, " ranks have waited for each other for ", seconds(waited),
                         ": what they send does not arrive; look at the network between their machines"));
    }
    named = behind.size() == 1 ? concat("rank ", behind[0], " of ", ranks)
                               : concat(behind.size(), " ranks of ", ranks);
    std::string text = concat("others wait for ", seconds(waited), " for ");
    for (std::size_t i = 0; i < std::min(behind.size(), kMost); ++i)
      text += concat(i > 0 ? "; " : "", "rank ", behind[i], i == 0 ? concat(" of ", ranks) : "", " (",
                     lines[i], ")");
    if (behind.size() > kMost) text += concat("; and ", behind.size() - kMost, " more");
    tell(text);
  }
  void tell(const std::string& text) const {
    if (options.say) options.say(text);
  }

  const std::string folder;
  const int rank, ranks;
  const Options options;
  const double dead = std::min(3.0, options.patience / 3);  // after so many seconds without a beat
  bool local = true;
  Record* record = nullptr;
  std::thread thread;
  std::mutex lock;
  std::condition_variable changed;
  bool stop = false;
  // The thread's own.
  std::uint64_t watched_calls = 0, named_in = 0;
  Clock::time_point waits_since = Clock::now(), named_since{};
  std::string named;
  bool named_many = false;
  std::vector<Seen> seen;
};

namespace {
std::atomic<Record*> of_this_process{nullptr};  // for signal handlers
}

Heartbeat::Heartbeat(std::string folder, int rank, int ranks, Options options)
    : state_(std::make_unique<State>(std::move(folder), rank, ranks, std::move(options))) {
  of_this_process = state_->record;
}
Heartbeat::~Heartbeat() { of_this_process = nullptr; }

void Heartbeat::at(const Doing& doing) {
  Record& r = *state_->record;
  if (r.phase != static_cast<std::uint64_t>(doing.phase)) number(r.since) = unix_ms();
  number(r.phase) = static_cast<std::uint64_t>(doing.phase);
  number(r.step) = static_cast<std::uint64_t>(std::max<Dim>(0, doing.step));
  number(r.leaf) = static_cast<std::uint64_t>(std::max<Dim>(0, doing.leaf + 1));
  state_->touch();
}
void Heartbeat::begin_call() { ++number(state_->record->calls), state_->touch(); }
void Heartbeat::end_call() { ++number(state_->record->calls), state_->touch(); }

void Heartbeat::failed(const std::string& why) {
  Record& r = *state_->record;
  std::memcpy(r.why.data(), why.data(), std::min(why.size(), r.why.size() - 1));
  state_->touch();
  number(r.end) = static_cast<std::uint64_t>(End::failed);
  state_->flush();
}
void Heartbeat::done() {
  number(state_->record->end) = static_cast<std::uint64_t>(End::done);
  state_->flush();
}
void Heartbeat::signalled(int) noexcept {
  std::uint64_t none = 0;
  if (Record* r = of_this_process)
    number(r->end).compare_exchange_strong(none, static_cast<std::uint64_t>(End::signalled));
}

namespace {

class Watched final : public Comm {
 public:
  Watched(Comm& comm, Heartbeat& heartbeat) : comm_(comm), heartbeat_(heartbeat) {}
  int rank() const override { return comm_.rank(); }
  int size() const override { return comm_.size(); }
  void barrier() override {
    const Noted call(heartbeat_);
    comm_.barrier();
  }
  void all_to_all(std::span<const Bytes> send, std::span<const Space> receive) override {
    const Noted call(heartbeat_);
    comm_.all_to_all(send, receive);
  }
  void all_gather(Bytes mine, std::span<const Space> all) override {
    const Noted call(heartbeat_);
    comm_.all_gather(mine, all);
  }
  void broadcast(Space bytes, int from) override {
    const Noted call(heartbeat_);
    comm_.broadcast(bytes, from);
  }
  [[noreturn]] void abort(const std::string& why) override {
    heartbeat_.failed(why);
    comm_.abort(why);
    std::terminate();  // never: g++ 12 does not take its word for it
  }
  void at(const Doing& doing) override { heartbeat_.at(doing); }

 private:
  struct Noted {
    explicit Noted(Heartbeat& h) : heartbeat(h) { heartbeat.begin_call(); }
    ~Noted() { heartbeat.end_call(); }
    Heartbeat& heartbeat;
  };
  Comm& comm_;
  Heartbeat& heartbeat_;
};

}  // namespace

std::unique_ptr<Comm> watched(Comm& comm, Heartbeat& heartbeat) {
  return std::make_unique<Watched>(comm, heartbeat);
}

std::string last_words(const std::string& folder) {
  std::vector<std::pair<int, Record>> records;
  for (int r = 0;; ++r) {
    const std::optional<Record> record = read_record(file_of(folder, r));
    if (!record) break;
    records.emplace_back(r, *record);
  }
  const auto with = [&](End end) {
    std::vector<std::pair<int, Record>> out;
    for (const auto& r : records)
      if (r.second.end == static_cast<std::uint64_t>(end)) out.push_back(r);
    std::sort(out.begin(), out.end(),
              [](const auto& a, const auto& b) { return a.second.seen < b.second.seen; });
    return out;
  };
  const std::size_t ranks = records.size();
  // What others heard of it begins with its name.
  for (const auto& [rank, r] : with(End::failed))
    if (const std::string why = text_of(r.why); !why.starts_with("rank "))
      return concat("the run before this one ended when rank ", rank, " of ", ranks, " failed (", place(r),
                    "): ", why);
  // Of those that said nothing the one that was silent first; others may have been killed because of it, a
  // moment later.
  const auto silent = with(End::none);
  if (silent.empty()) return "";
  constexpr std::uint64_t kMoment = 2 * kBeat.count();  // two beats tell
  const auto& [rank, first] = silent.front();
  std::vector<std::string> others;
  for (const auto& [r, record] : silent)
    if (r != rank && record.seen <= first.seen + kMoment) others.push_back(std::to_string(r));
  return concat("the run before this one ended without a word of rank ", rank, " of ", ranks, " (",
                place(first), ", process ", first.pid, " on ", text_of(first.host), ")",
                others.empty() ? "" : concat("; all but at the same time went ", join(others)));
}

double rank_patience() {
  const char* set = std::getenv("RAPT_RANK_PATIENCE");
  if (!set || !*set) return Heartbeat::Options{}.patience;
  char* end = nullptr;
  const double s = std::strtod(set, &end);
  if (*end || !(s >= 1) || s > 1e6)
    fail_usage("RAPT_RANK_PATIENCE=", set, " in the environment: seconds, from 1 on");
  return s;
}

}  // namespace rapt
