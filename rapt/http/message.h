// SPDX-License-Identifier: Apache-2.0
// An HTTP/1.1 request as it arrived, and a reply as it shall be sent (RFC 9110, 9112). How the bytes are
// read: parser.h; who moves them: server.h.
#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace rapt::http {

struct Header {
  std::string name, value;  // of a request: the name in lower case, the value without blanks around it
  bool operator==(const Header&) const = default;
};

struct Request {
  std::string method;  // "GET": as sent
  std::string target;  // as sent, query included
  std::string path;  // of it: percent-decoded once, but for "%2F", which stays
  std::string query;  // behind the "?", as sent
  int minor = 1;  // HTTP/1.minor
  std::vector<Header> headers;
  std::string body;
  std::string peer;  // who asks: "127.0.0.1", "::1", "unix"
  const std::string* find(std::string_view name) const;  // the first header of that name; null where absent
};

struct Reply {
  int status = 200;
  std::vector<Header> headers = {};  // without those of framing: length, transfer, connection, date
  std::string body = {};
  bool close = false;  // the connection ends behind it
};

std::string_view reason(int status);  // "Not Found"

}  // namespace rapt::http
