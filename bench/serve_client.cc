// SPDX-License-Identifier: Apache-2.0
// The client of bench/serve: asks a server for completions by a schedule and writes down when what came. One
// thread around epoll, so that the cores stay with the server; it judges nothing: a JSON line for each
// request and one for the whole run go to stdout, bench/serve makes tables of them.
//
//   serve_client --port N --ids FILE --workload chat|prefix|mixed|fixed
//     (--rate R [--arrivals poisson|gamma] | --streams N) --seconds S [--requests N] [--seed N] [--drain S]
//     [--prompt N] [--answer N] [--key KEY] [--more '"rapt":{"look":["layers"]}'] [--host 127.0.0.1]
//
// --rate is an open loop: requests leave when the schedule says so, whether or not answers came, and times
// count from the schedule, not from when the client got to it. Gaps of a Poisson process, or of a gamma
// distribution of shape 0.5 and the same mean (bursts). --streams is a closed loop: so many at once, the next
// when one ended. Prompts are pieces of the tokens in FILE behind four drawn ones, so that no two begin alike
// unless they shall. A connection for each request: a server with a thread for each connection is not kept
// from others by idle ones.
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <fstream>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace {

[[noreturn]] void fail(const std::string& why) {
  std::fprintf(stderr, "serve_client: %s\n", why.c_str());
  std::exit(1);
}

double now() {
  timespec t{};
  clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9;
}

double processor_seconds() {
  rusage used{};
  getrusage(RUSAGE_SELF, &used);
  const auto seconds = [](const timeval& v) {
    return static_cast<double>(v.tv_sec) + static_cast<double>(v.tv_usec) * 1e-6;
  };
  return seconds(used.ru_utime) + seconds(used.ru_stime);
}

// --------------------------------------------------------------------------------------------------- draws
// A number for each (seed, what, which): every request is the same whenever it is made.
std::uint64_t mix(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}
double draw(std::uint64_t seed, std::uint64_t what, std::uint64_t which) {  // in (0, 1)
  const std::uint64_t bits = mix(mix(mix(seed) ^ what) ^ which);
  return (static_cast<double>(bits >> 11) + 0.5) * 0x1p-53;
}
int draw_between(int least, int most, double u) {  // log-uniform: short ones are frequent
  return static_cast<int>(std::lround(least * std::pow(static_cast<double>(most) / least, u)));
}

// ------------------------------------------------------------------------------------------------ requests
struct Options {
  std::string host = "127.0.0.1", ids, workload = "chat", arrivals = "poisson", key, more;
  int port = 0, streams = 0, prompt = 128;
  int answer = 0;  // 0: as the workload draws it
  long requests = 0;  // 0: as many as fit into the time
  double rate = 0, seconds = 30, drain = 20;
  std::uint64_t seed = 1;
};

enum What : std::uint64_t { kGap, kGap2, kPromptLength, kAnswerLength, kPlace, kHead, kTenant, kSystem };
constexpr int kTenants = 8, kSystemTokens = 1024, kUserTokens = 64, kLongPrompt = 4096, kLongEvery = 20;

struct Wanted {
  int prompt = 0, answer = 0, tenant = -1;
  bool is_long = false;
};

class Workload {
 public:
  explicit Workload(const Options& o) : o_(o) {
    std::ifstream in(o.ids);
    if (!in) fail(o.ids + ": cannot be read");
    for (int id; in >> id; in.ignore(1, ',')) corpus_.push_back(id);
    if (corpus_.size() < 2 * kLongPrompt)
      fail(o.ids + ": holds fewer than 8,192 tokens (numbers between commas or blanks)");
    if (o.workload != "chat" && o.workload != "prefix" && o.workload != "mixed" && o.workload != "fixed")
      fail("--workload: " + o.workload + " is none of chat, prefix, mixed, fixed");
  }

  Wanted wanted(std::uint64_t i) const {
    Wanted w;
    w.answer = draw_between(32, 256, draw(o_.seed, kAnswerLength, i));
    w.prompt = draw_between(64, 512, draw(o_.seed, kPromptLength, i));
    if (o_.workload == "fixed") w.prompt = o_.prompt;
    if (o_.answer > 0) w.answer = o_.answer;
    if (o_.workload == "prefix") {
      // The first ones meet each tenant once.
      w.tenant = i < kTenants ? static_cast<int>(i) : static_cast<int>(draw(o_.seed, kTenant, i) * kTenants);
      w.prompt = kSystemTokens + kUserTokens;
    }
    // One of twenty, at a place that a short run meets as well.
    if (o_.workload == "mixed" && i % kLongEvery == kLongEvery / 4) w.is_long = true, w.prompt = kLongPrompt;
    return w;
  }

  std::string request(std::uint64_t i, const Wanted& w) const {
    std::string body = "{\"model\":\"bench\",\"prompt\":[";
    int left = w.prompt;
    // Tenants' own texts are the same in every run: what is measured is that they are known.
    if (w.tenant >= 0) {
      append(body, place(7, kSystem, static_cast<std::uint64_t>(w.tenant)), std::min(left, kSystemTokens));
      left -= kSystemTokens;
    }
    const std::uint64_t of = w.tenant >= 0 ? i + (std::uint64_t{1} << 32) : i;
    for (std::uint64_t k = 0; k < 4 && left > 0; ++k, --left)
      append(body, place(o_.seed, kHead, of * 4 + k), 1);
    append(body, place(o_.seed, kPlace, of), left);
    body.back() = ']';
    body += ",\"max_tokens\":" + std::to_string(w.answer) +
            ",\"temperature\":0,\"ignore_eos\":true,\"stream\":true,"
            "\"stream_options\":{\"include_usage\":true}";
    if (!o_.more.empty()) body += "," + o_.more;
    body += "}";
    std::string head = "POST /v1/completions HTTP/1.1\r\nHost: " + o_.host + ":" + std::to_string(o_.port) +
                       "\r\nContent-Type: application/json\r\nConnection: close\r\n";
    if (!o_.key.empty()) head += "Authorization: Bearer " + o_.key + "\r\n";
    return head + "Content-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body;
  }

  // Seconds between request i - 1 and i.
  double gap(std::uint64_t i) const {
    const double u = draw(o_.seed, kGap, i), v = draw(o_.seed, kGap2, i);
    if (o_.arrivals == "poisson") return -std::log(u) / o_.rate;
    const double normal = std::sqrt(-2 * std::log(u)) * std::cos(2 * M_PI * v);
    return normal * normal / o_.rate;  // gamma of shape 1/2: half a chi square
  }

 private:
  std::size_t place(std::uint64_t seed, What what, std::uint64_t which) const {
    return static_cast<std::size_t>(draw(seed, what, which) *
                                    static_cast<double>(corpus_.size() - kLongPrompt));
  }
  void append(std::string& out, std::size_t from, int count) const {
    char digits[16];
    for (int k = 0; k < count; ++k) {
      const int n = std::snprintf(digits, sizeof digits, "%d,", corpus_[from + static_cast<std::size_t>(k)]);
      out.append(digits, static_cast<std::size_t>(n));
    }
  }

  const Options& o_;
  std::vector<int> corpus_;
};

// ------------------------------------------------------------------------------------------------- replies
// The value of a member of a chunk, where it stands: these servers write them without tricks.
std::string_view member(std::string_view json, std::string_view name) {
  std::size_t at = json.find(name);
  if (at == std::string_view::npos) return {};
  at += name.size();
  while (at < json.size() && (json[at] == ' ' || json[at] == ':')) ++at;
  return json.substr(at);
}
int number(std::string_view json, std::string_view name, int otherwise) {
  const std::string_view v = member(json, name);
  int out = 0;
  std::size_t i = 0;
  for (; i < v.size() && v[i] >= '0' && v[i] <= '9'; ++i) out = out * 10 + (v[i] - '0');
  return i > 0 ? out : otherwise;
}

struct Exchange {
  std::uint64_t index = 0;
  Wanted wanted;
  double at = 0, sent = 0;  // seconds since the start: when it was due, and when it left
  int fd = -1, status = 0;
  bool connected = false;
  std::string out;
  std::size_t written = 0;

  // The reply.
  std::string head, line, text;  // text: of an error
  bool in_body = false, chunked = false, complete = false, error_event = false;
  long chunk_left = -1;  // of chunked framing: -1 a size is read, -2 the line end behind a chunk
  std::string size_line;

  std::vector<double> times;  // of chunks with content
  double end = 0;
  int tokens = -1, prompt_tokens = -1, cached = -1;
  std::uint64_t hash = 0xcbf29ce484222325u;  // of the answer's text as it is quoted

  void event(std::string_view data, double t) {
    if (data == "[DONE]") return;
    for (const std::string_view name : {"\"text\"", "\"content\""}) {
      std::string_view v = member(data, name);
      if (v.size() < 2 || v[0] != '"') continue;
      v.remove_prefix(1);
      std::size_t n = 0;
      for (; n < v.size() && v[n] != '"'; ++n) {
        if (v[n] == '\\') ++n;
      }
      for (const char c : v.substr(0, n)) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
      if (n > 0) times.push_back(t);
      break;
    }
    if (data.find("\"usage\":{") != std::string_view::npos) {
      tokens = number(data, "\"completion_tokens\"", tokens);
      prompt_tokens = number(data, "\"prompt_tokens\"", prompt_tokens);
      cached = number(data, "\"cached_tokens\"", cached);
    }
    if (data.starts_with("{\"error\"")) error_event = true, text = data.substr(0, 300);
  }
  void body(std::string_view bytes, double t) {
    if (status != 200) {
      if (text.size() < 300) text += bytes.substr(0, 300);
      return;
    }
    for (std::size_t from = 0; from < bytes.size();) {
      const std::size_t end_of_line = bytes.find('\n', from);
      line += bytes.substr(from, end_of_line - from);
      if (end_of_line == std::string_view::npos) return;
      if (line.starts_with("data: ")) event(std::string_view(line).substr(6), t);
      line.clear();
      from = end_of_line + 1;
    }
  }
  void bytes(std::string_view in, double t) {
    if (!in_body) {
      head += in;
      const std::size_t blank = head.find("\r\n\r\n");
      if (blank == std::string::npos) return;
      in_body = true;
      if (head.size() > 12) status = std::atoi(head.c_str() + 9);
      std::string lower;
      for (const char c : head.substr(0, blank))
        lower += static_cast<char>(c >= 'A' && c <= 'Z' ? c + 32 : c);
      chunked = lower.find("transfer-encoding: chunked") != std::string::npos;
      const std::string rest = head.substr(blank + 4);
      head.resize(blank);
      return bytes(rest, t);
    }
    if (!chunked) return body(in, t);
    while (!in.empty() && !complete) {
      if (chunk_left > 0) {
        const std::size_t n = std::min(in.size(), static_cast<std::size_t>(chunk_left));
        body(in.substr(0, n), t);
        in.remove_prefix(n);
        if ((chunk_left -= static_cast<long>(n)) == 0) chunk_left = -2;
        continue;
      }
      const char c = in[0];
      in.remove_prefix(1);
      if (c == '\r') continue;
      if (c != '\n') {
        size_line += c;
      } else if (chunk_left == -2) {
        chunk_left = -1;
      } else {
        chunk_left = std::strtol(size_line.c_str(), nullptr, 16);
        size_line.clear();
        if (chunk_left == 0) complete = true;
      }
    }
  }
};

// ---------------------------------------------------------------------------------------------------- loop
class Client {
 public:
  Client(const Options& o, const Workload& w) : o_(o), workload_(w) {
    poll_ = epoll_create1(EPOLL_CLOEXEC);
    timer_ = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    if (poll_ < 0 || timer_ < 0) fail("epoll or timerfd is not there");
    epoll_event e{.events = EPOLLIN, .data = {.ptr = nullptr}};
    epoll_ctl(poll_, EPOLL_CTL_ADD, timer_, &e);
  }

  void run() {
    const double cpu = processor_seconds();
    start_ = now();
    const bool open_loop = o_.rate > 0;
    const double until = o_.seconds, latest = o_.seconds + o_.drain;
    double due = open_loop ? workload_.gap(0) : 0;
    if (!open_loop)
      for (int i = 0; i < o_.streams && more(0); ++i) send(elapsed());
    while (true) {
      double t = elapsed();
      if (open_loop)
        while (due <= t && due < until && more(due)) {
          send(due);
          due += workload_.gap(next_);
        }
      const bool sends = open_loop ? due < until && more(due) : t < until && more(t);
      if (!sends && live_.empty()) break;
      if (t >= latest) break;
      const double wake = open_loop && sends ? due : latest;
      set_timer(wake);
      epoll_event events[64];
      const int n = epoll_wait(poll_, events, 64, -1);
      for (int i = 0; i < n; ++i) {
        if (!events[i].data.ptr) {
          std::uint64_t ticks = 0;
          if (read(timer_, &ticks, sizeof ticks) < 0) continue;
        } else {
          serve(*static_cast<Exchange*>(events[i].data.ptr), events[i].events);
        }
      }
      for (std::size_t i = 0; i < live_.size();) {
        if (live_[i]->fd >= 0) {
          ++i;
          continue;
        }
        ended_.push_back(std::move(live_[i]));
        live_[i] = std::move(live_.back());
        live_.pop_back();
        t = elapsed();
        if (!open_loop && t < until && more(t)) send(t);
      }
    }
    abandoned_ = live_.size();
    for (auto& x : live_) {
      close(x->fd);
      ended_.push_back(std::move(x));
    }
    live_.clear();
    ran_ = elapsed();
    cpu_ = processor_seconds() - cpu;
  }

  void write() const {
    for (const auto& x : ended_) {
      std::printf(
          "{\"i\":%llu,\"at\":%.6f,\"sent\":%.6f,\"status\":%d,\"done\":%s,\"prompt\":%d,\"answer\":%d,"
          "\"long\":%s,\"tenant\":%d,\"tokens\":%d,\"prompt_tokens\":%d,\"cached\":%d,\"end\":%.6f,"
          "\"hash\":\"%016llx\",",
          static_cast<unsigned long long>(x->index), x->at, x->sent, x->status,
          x->complete && x->status == 200 && !x->error_event ? "true" : "false", x->wanted.prompt,
          x->wanted.answer, x->wanted.is_long ? "true" : "false", x->wanted.tenant, x->tokens,
          x->prompt_tokens, x->cached, x->end, static_cast<unsigned long long>(x->hash));
      if (!x->text.empty()) {
        std::string said;
        for (const char c : x->text.substr(0, 300))
          said += c == '"' || c == '\\' || static_cast<unsigned char>(c) < 0x20 ? '\'' : c;
        std::printf("\"error\":\"%s\",", said.c_str());
      }
      std::printf("\"times\":[");
      for (std::size_t i = 0; i < x->times.size(); ++i) std::printf("%s%.6f", i ? "," : "", x->times[i]);
      std::printf("]}\n");
    }
    std::printf("{\"run\":true,\"wall\":%.6f,\"cpu\":%.6f,\"requests\":%zu,\"abandoned\":%zu}\n", ran_, cpu_,
                ended_.size(), abandoned_);
  }

 private:
  double elapsed() const { return now() - start_; }
  bool more(double) const { return o_.requests == 0 || next_ < static_cast<std::uint64_t>(o_.requests); }
  void set_timer(double at) const {
    const double absolute = start_ + at;
    itimerspec spec{};
    spec.it_value.tv_sec = static_cast<time_t>(absolute);
    spec.it_value.tv_nsec = static_cast<long>((absolute - std::floor(absolute)) * 1e9);
    timerfd_settime(timer_, TFD_TIMER_ABSTIME, &spec, nullptr);
  }

  void send(double at) {
    auto x = std::make_unique<Exchange>();
    x->index = next_++;
    x->wanted = workload_.wanted(x->index);
    x->out = workload_.request(x->index, x->wanted);
    x->times.reserve(static_cast<std::size_t>(x->wanted.answer));
    x->at = at;
    x->fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (x->fd < 0) fail("no more sockets");
    const int on = 1;
    setsockopt(x->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(static_cast<std::uint16_t>(o_.port));
    inet_pton(AF_INET, o_.host.c_str(), &to.sin_addr);
    if (connect(x->fd, reinterpret_cast<const sockaddr*>(&to), sizeof to) != 0 && errno != EINPROGRESS) {
      x->text = "no connection";
      finish(*x);
    } else {
      epoll_event e{.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP, .data = {.ptr = x.get()}};
      epoll_ctl(poll_, EPOLL_CTL_ADD, x->fd, &e);
    }
    live_.push_back(std::move(x));
  }

  void serve(Exchange& x, std::uint32_t what) {
    if (x.fd < 0) return;
    if ((what & EPOLLOUT) && x.written < x.out.size()) {
      if (x.sent == 0) x.sent = elapsed();
      const ssize_t n =
          ::send(x.fd, x.out.data() + x.written, x.out.size() - x.written, MSG_NOSIGNAL | MSG_DONTWAIT);
      if (n > 0) x.written += static_cast<std::size_t>(n);
      else if (n < 0 && errno != EAGAIN) return x.text = std::strerror(errno), finish(x);
      if (x.written == x.out.size()) {
        epoll_event e{.events = EPOLLIN | EPOLLRDHUP, .data = {.ptr = &x}};
        epoll_ctl(poll_, EPOLL_CTL_MOD, x.fd, &e);
      }
    }
    if (!(what & (EPOLLIN | EPOLLRDHUP | EPOLLHUP | EPOLLERR))) return;
    static char buffer[1 << 16];
    while (true) {
      const ssize_t n = recv(x.fd, buffer, sizeof buffer, MSG_DONTWAIT);
      if (n < 0 && errno == EAGAIN) return;
      if (n <= 0) {
        if (!x.chunked && n == 0 && x.in_body) x.complete = true;
        return finish(x);
      }
      x.bytes({buffer, static_cast<std::size_t>(n)}, elapsed());
      if (x.complete) return finish(x);
      if (static_cast<std::size_t>(n) < sizeof buffer) return;  // another event comes if there is more
    }
  }

  void finish(Exchange& x) {
    x.end = elapsed();
    close(x.fd);
    x.fd = -1;
    x.out = {};
  }

  const Options& o_;
  const Workload& workload_;
  int poll_ = -1, timer_ = -1;
  double start_ = 0, ran_ = 0, cpu_ = 0;
  std::uint64_t next_ = 0;
  std::size_t abandoned_ = 0;
  std::vector<std::unique_ptr<Exchange>> live_, ended_;
};

}  // namespace

int main(int argc, char** argv) {
  Options o;
  for (int i = 1; i < argc; ++i) {
    const std::string flag = argv[i];
    if (i + 1 >= argc) fail(flag + " wants a value; the first lines of serve_client.cc list all flags");
    const std::string value = argv[++i];
    if (flag == "--host") o.host = value;
    else if (flag == "--port") o.port = std::atoi(value.c_str());
    else if (flag == "--ids") o.ids = value;
    else if (flag == "--workload") o.workload = value;
    else if (flag == "--arrivals") o.arrivals = value;
    else if (flag == "--rate") o.rate = std::atof(value.c_str());
    else if (flag == "--streams") o.streams = std::atoi(value.c_str());
    else if (flag == "--seconds") o.seconds = std::atof(value.c_str());
    else if (flag == "--requests") o.requests = std::atol(value.c_str());
    else if (flag == "--seed") o.seed = std::strtoull(value.c_str(), nullptr, 10);
    else if (flag == "--drain") o.drain = std::atof(value.c_str());
    else if (flag == "--prompt") o.prompt = std::atoi(value.c_str());
    else if (flag == "--answer") o.answer = std::atoi(value.c_str());
    else if (flag == "--key") o.key = value;
    else if (flag == "--more") o.more = value;
    else fail(flag + " is no flag; the first lines of serve_client.cc list all");
  }
  if (o.port <= 0 || o.port > 65535) fail("--port is wanted");
  if ((o.rate > 0) == (o.streams > 0)) fail("either --rate or --streams is wanted");
  if (o.arrivals != "poisson" && o.arrivals != "gamma") fail("--arrivals: poisson or gamma");
  if (o.prompt < 1 || o.prompt > kLongPrompt || o.answer < 0) fail("--prompt: 1 to 4,096");
  const Workload workload(o);
  Client client(o, workload);
  client.run();
  client.write();
  return 0;
}
