// SPDX-License-Identifier: Apache-2.0
// Bytes of a connection → requests, as RFC 9112 writes them and stricter where two readers could disagree on
// where a request ends: what is not exactly as below is refused, and nothing behind it may be read.
//
//   request = [CRLF] method SP target SP "HTTP/1." ("0" | "1") CRLF *(name ":" value CRLF) CRLF body
//   name, method = 1*tchar        target = "/"… | "http://host"… | "*"        value = VCHAR, obs-text, SP, HTAB
//   body = Content-Length bytes, or with "Transfer-Encoding: chunked"
//          *(1*16HEX [";" extension] CRLF data CRLF) 1*16"0" [";" extension] CRLF *(name ":" value CRLF) CRLF
//
// Each byte is looked at once, and what is held at any time is bounded by the limits, not by what a length
// promises. How the bytes were cut when they arrived changes nothing (tests/fuzz/http_fuzz.cc).
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "rapt/http/message.h"

namespace rapt::http {

struct ParserLimits {
  std::size_t head_bytes = 16 << 10;  // of the head; as many again of chunk extensions and trailers
  int headers = 100;
  std::size_t body_bytes = 2 << 20;
};

class Parser {
 public:
  enum class Result {
    more,  // all bytes are read, and the request is not over
    head,  // request() has all but the body; said once, then feed() goes on
    done,  // the request is there: take() it
    refused,  // status() and why(); there is no way on
  };
  explicit Parser(const ParserLimits& limits, std::string peer = {});

  // Reads from the front of `bytes`, which keeps what was not read.
  Result feed(std::string_view& bytes);
  const Request& request() const { return request_; }
  Request take();  // after `done`; the next request can be fed
  bool untouched() const { return !begun_; }  // no byte of a request was read since the last one
  // From `head` on:
  bool keeps_alive() const { return keeps_alive_; }  // what the client asked for
  bool wants_continue() const { return wants_continue_; }  // it waits for "100 Continue" before the body
  int status() const { return status_; }
  const std::string& why() const { return why_; }

 private:
  enum class Step {
    request_line,
    headers,
    head,
    length,
    chunk_size,
    extension,
    size_end,
    data,
    data_end,
    trailers,
    done,
    refused
  };
  struct Framing;

  Result refuse(int status, std::string why);
  bool read_line(std::string_view& bytes);  // true: line_ is whole, or refused
  void request_line();
  void target();
  void header_line(bool trailer);
  void end_of_head();
  void read_size(std::string_view& bytes);
  void read_extension(std::string_view& bytes);
  void end_of_chunk_size();
  void read_data(std::string_view& bytes);
  void expect_end(std::string_view& bytes, Step next);
  void reset();

  ParserLimits limits_;
  std::string peer_;
  Request request_;
  Step step_ = Step::request_line;
  std::string line_;
  bool cr_ = false;  // a CR was read, and its LF was not
  bool begun_ = false, blank_ = false, keeps_alive_ = false, wants_continue_ = false;
  std::size_t head_bytes_ = 0;  // of the head so far; then of extensions and trailers
  int headers_ = 0;
  std::uint64_t left_ = 0;  // bytes of the body, or of its chunk, that are to come
  int digits_ = 0;  // of a chunk's size
  int status_ = 0;
  std::string why_;
};

}  // namespace rapt::http
