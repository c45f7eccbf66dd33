// SPDX-License-Identifier: Apache-2.0
// TLS between a socket and a connection, in memory: bytes in, bytes out, nothing waits. Built with RAPT_TLS;
// without it load_tls() fails and nothing else is called.
#pragma once
#include <memory>
#include <string>
#include <string_view>

namespace rapt::http {

// The server's end of one connection.
class TlsSession {
 public:
  virtual ~TlsSession() = default;
  // Bytes of the socket: what they hide is appended to `plain`, what must be sent because of them to `wire`.
  // False: the other side ended it, or broke the rules; what is in `wire` may still be sent.
  virtual bool receive(std::string_view bytes, std::string& plain, std::string& wire) = 0;
  virtual bool send(std::string_view plain, std::string& wire) = 0;
  virtual void end(std::string& wire) = 0;  // tells that nothing follows
};

// A certificate with its key; immutable.
class TlsContext {
 public:
  virtual ~TlsContext() = default;
  virtual std::unique_ptr<TlsSession> accept() const = 0;
};

// PEM files. Fails with the file and the reason.
std::shared_ptr<const TlsContext> load_tls(const std::string& certificate, const std::string& key);

}  // namespace rapt::http
