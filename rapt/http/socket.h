// SPDX-License-Identifier: Apache-2.0
// Sockets: a file descriptor that closes itself, listening ones by address or path, who is at the other end.
#pragma once
#include <sys/socket.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace rapt::http {

class Fd {
 public:
  Fd() = default;
  explicit Fd(int fd) : fd_(fd) {}
  Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Fd& operator=(Fd&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Fd() { close(); }
  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }
  void close();

 private:
  int fd_ = -1;
};

// Non-blocking, on every address that the host has; port 0: any, the same for all. Gives the port back.
std::vector<Fd> listen_tcp(const std::string& host, int& port);

// A socket of mode 0600 at the path, which is removed with it.
class UnixListener {
 public:
  explicit UnixListener(const std::string& path);
  UnixListener(const UnixListener&) = delete;
  UnixListener& operator=(const UnixListener&) = delete;
  ~UnixListener();
  Fd fd;

 private:
  std::string path_;
  std::uint64_t device_ = 0, inode_ = 0;  // of the path: another server may have replaced it
};

struct Peer {
  std::string name;   // "127.0.0.1", "::1", "unix"
  std::string group;  // who counts as one address: IPv4, or /64 of IPv6; "" is not counted (this machine)
};
Peer peer_of(const sockaddr_storage& address);

// No waiting for more bytes, and a peer that vanished is noticed.
void set_tcp_options(int fd);

}  // namespace rapt::http
