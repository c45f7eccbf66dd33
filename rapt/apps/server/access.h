// SPDX-License-Identifier: Apache-2.0
// Who may ask: keys, names of this machine (against pages that rebind a name of theirs to it), origins of web
// pages. Nothing is allowed that no rule allows.
#pragma once
#include <array>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "rapt/http/message.h"

namespace rapt::server {

class Access {
 public:
  struct Options {
    std::vector<std::string> keys;  // none: everybody who reaches the port may ask
    std::vector<std::string> hosts;  // names in the Host header, besides loopback's
    std::vector<std::string> origins;  // of web pages: "https://example.org"
    // Bound to more than loopback: addresses written as numbers are names of it as well (nobody can rebind a
    // number).
    bool reachable = false;
  };
  explicit Access(Options options);

  bool keyed() const { return !digests_.empty(); }
  // The number of the key that a request shows, 0 where none is asked for; nothing: wrong or absent. Every
  // key is compared, in a time that does not depend on which one it is or how much of it is right.
  std::optional<std::size_t> key_of(const http::Request& request) const;
  // A name of a key that may stand in a file: it stays where the order of keys changes, and does not lead back
  // to a key that cannot be guessed. "" where none is asked for.
  std::string key_name(std::size_t key) const;
  bool host_allowed(const http::Request& request) const;
  // Of a page: same host, loopback, or listed. Requests without an Origin are not of a page.
  bool origin_allowed(const http::Request& request) const;
  // What a page must be told so that it may read the reply; empty without an Origin.
  std::vector<http::Header> cors(const http::Request& request) const;
  // Answer to a browser that asks before it sends.
  http::Reply preflight(const http::Request& request) const;

 private:
  Options options_;
  std::vector<std::array<std::byte, 32>> digests_;
};

// "localhost:8642" is "localhost", "[::1]:80" is "::1": in lower case, without port and closing dot; "" where
// it is no host.
std::string host_name(std::string_view host);
bool is_loopback(std::string_view host);  // 127.0.0.0/8, ::1, localhost, *.localhost
bool is_address(std::string_view host);  // written as a number

// Keys of a file, one a line; empty lines and lines that begin with # do not count. Fails where it is
// readable by others, holds none, or one is shorter than 8 characters.
std::vector<std::string> read_keys(const std::string& path);

}  // namespace rapt::server
