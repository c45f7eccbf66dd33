// SPDX-License-Identifier: Apache-2.0
// Sockets of Linux. Failures to listen are errors with the address in them; options that a kernel lacks are
// done without.
#include "rapt/http/socket.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <system_error>

#include "rapt/base/error.h"

namespace rapt::http {
namespace {

constexpr int kBacklog = 1024;

std::string error_text(int code) { return std::generic_category().message(code); }

void switch_on(int fd, int level, int option, int value) {
  ::setsockopt(fd, level, option, &value, sizeof value);
}

// 0 or the errno.
int try_listen(const addrinfo& a, int port, bool only_v6, Fd& out) {
  Fd fd(::socket(a.ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd) return errno;
  switch_on(fd.get(), SOL_SOCKET, SO_REUSEADDR, 1);
  if (a.ai_family == AF_INET6) switch_on(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, only_v6 ? 1 : 0);
  sockaddr_storage address = {};
  std::memcpy(&address, a.ai_addr, std::min<std::size_t>(a.ai_addrlen, sizeof address));
  const auto bits = htons(static_cast<std::uint16_t>(port));
  if (a.ai_family == AF_INET6) reinterpret_cast<sockaddr_in6&>(address).sin6_port = bits;
  else reinterpret_cast<sockaddr_in&>(address).sin_port = bits;
  if (::bind(fd.get(), reinterpret_cast<sockaddr*>(&address), a.ai_addrlen) != 0) return errno;
  if (::listen(fd.get(), kBacklog) != 0) return errno;
  out = std::move(fd);
  return 0;
}

int port_of(int fd) {
  sockaddr_storage address = {};
  socklen_t size = sizeof address;
  if (::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) != 0)
    fail("a listening socket does not tell its port: ", error_text(errno));
  if (address.ss_family == AF_INET6) return ntohs(reinterpret_cast<sockaddr_in6&>(address).sin6_port);
  return ntohs(reinterpret_cast<sockaddr_in&>(address).sin_port);
}

std::string_view what_to_do(int code) {
  switch (code) {
    case EADDRINUSE: return " (another program listens there: end it, or choose another port)";
    case EACCES: return " (ports below 1024 are for root: choose another one)";
    case EADDRNOTAVAIL:
      return " (this machine has no such address: 127.0.0.1 is for itself, 0.0.0.0 for all)";
    default: return "";
  }
}

}  // namespace

void Fd::close() {
  if (fd_ >= 0) ::close(fd_);
  fd_ = -1;
}

std::vector<Fd> listen_tcp(const std::string& host, int& port) {
  const std::string where = concat(host.find(':') == std::string::npos ? host : "[" + host + "]", ":", port);
  if (port < 0 || port > 65535) fail_usage("cannot listen on ", where, ": ports go from 0 (any) to 65535");
  addrinfo wanted = {};
  wanted.ai_socktype = SOCK_STREAM;
  wanted.ai_flags = AI_PASSIVE;
  addrinfo* found = nullptr;
  if (const int code = ::getaddrinfo(host.empty() ? nullptr : host.c_str(), "0", &wanted, &found); code != 0)
    fail("cannot listen on ", where, ": ", code == EAI_SYSTEM ? error_text(errno) : ::gai_strerror(code));
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> list(found, ::freeaddrinfo);
  bool v4 = false;
  for (const addrinfo* a = found; a != nullptr; a = a->ai_next) v4 = v4 || a->ai_family == AF_INET;

  // A port that is free at the first address may be taken at the second: then another one.
  const int wanted_port = port;
  for (int attempt = 0;; ++attempt) {
    std::vector<Fd> out;
    int code = 0, absent = 0, got = wanted_port;
    for (const addrinfo* a = found; a != nullptr && code == 0; a = a->ai_next) {
      if (a->ai_family != AF_INET && a->ai_family != AF_INET6) continue;
      Fd fd;
      code = try_listen(*a, got, v4, fd);
      if (code == EADDRNOTAVAIL || code == EAFNOSUPPORT) {  // localhost is ::1, too, on machines without IPv6
        absent = std::exchange(code, 0);
        continue;
      }
      if (code != 0) break;
      if (got == 0) got = port_of(fd.get());
      out.push_back(std::move(fd));
    }
    if (code == 0 && !out.empty()) {
      port = got;
      return out;
    }
    if (code == EADDRINUSE && wanted_port == 0 && attempt < 20) continue;
    if (code == 0) code = absent != 0 ? absent : EADDRNOTAVAIL;
    fail("cannot listen on ", where, ": ", error_text(code), what_to_do(code));
  }
}

UnixListener::UnixListener(const std::string& path) : path_(path) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  if (path.empty() || path.size() >= sizeof address.sun_path || path.find('\0') != std::string::npos)
    fail_usage("cannot listen on the UNIX socket '", path, "': a path has 1 to ", sizeof address.sun_path - 1,
               " bytes");
  std::memcpy(address.sun_path, path.c_str(), path.size());
  const auto* name = reinterpret_cast<const sockaddr*>(&address);

  struct stat info = {};
  if (::lstat(path.c_str(), &info) == 0) {
    if (!S_ISSOCK(info.st_mode))
      fail("cannot listen on the UNIX socket ", path,
           ": there is a file that is no socket; choose another path");
    const Fd probe(::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    if (::connect(probe.get(), name, sizeof address) == 0 || errno != ECONNREFUSED)
      fail("cannot listen on the UNIX socket ", path,
           ": another program does (end it, or choose another path)");
    ::unlink(path.c_str());
  }
  fd = Fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  // On Linux bind() gives the file the mode of the socket: it is never open to others, not even for a moment.
  if (!fd || ::fchmod(fd.get(), 0600) != 0 || ::bind(fd.get(), name, sizeof address) != 0 ||
      ::chmod(path.c_str(), 0600) != 0 || ::listen(fd.get(), kBacklog) != 0)
    fail("cannot listen on the UNIX socket ", path, ": ", error_text(errno));
  if (::lstat(path.c_str(), &info) == 0) {
    device_ = info.st_dev;
    inode_ = info.st_ino;
  }
}

UnixListener::~UnixListener() {
  struct stat info = {};
  if (::lstat(path_.c_str(), &info) == 0 && info.st_dev == device_ && info.st_ino == inode_)
    ::unlink(path_.c_str());
}

Peer peer_of(const sockaddr_storage& address) {
  char text[INET6_ADDRSTRLEN] = {};
  const auto v4 = [&](const void* bytes) -> Peer {
    ::inet_ntop(AF_INET, bytes, text, sizeof text);
    const bool own = *static_cast<const unsigned char*>(bytes) == 127;
    return {text, own ? "" : text};
  };
  if (address.ss_family == AF_INET) return v4(&reinterpret_cast<const sockaddr_in&>(address).sin_addr);
  if (address.ss_family != AF_INET6) return {"unix", ""};
  const in6_addr& v6 = reinterpret_cast<const sockaddr_in6&>(address).sin6_addr;
  if (IN6_IS_ADDR_V4MAPPED(&v6)) return v4(v6.s6_addr + 12);
  ::inet_ntop(AF_INET6, &v6, text, sizeof text);
  if (IN6_IS_ADDR_LOOPBACK(&v6)) return {text, ""};
  return {text, std::string(reinterpret_cast<const char*>(v6.s6_addr), 8)};
}

void set_tcp_options(int fd) {
  switch_on(fd, IPPROTO_TCP, TCP_NODELAY, 1);
  switch_on(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
  switch_on(fd, IPPROTO_TCP, TCP_KEEPIDLE, 30);
  switch_on(fd, IPPROTO_TCP, TCP_KEEPINTVL, 10);
  switch_on(fd, IPPROTO_TCP, TCP_KEEPCNT, 3);
  switch_on(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, 30'000);
  // What a slow reader has not taken waits with us, where write() counts it, and not in the kernel's megabytes.
  switch_on(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, 128 << 10);
}

}  // namespace rapt::http
