// SPDX-License-Identifier: Apache-2.0
// Any bytes as what a client sends: requests and then perhaps a refusal, never more memory than the limits
// allow, and the same however the bytes are cut. The first byte chooses the pieces.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "rapt/http/parser.h"

namespace {

using rapt::http::Parser;
using rapt::http::Request;

constexpr rapt::http::ParserLimits kLimits = {.head_bytes = 512, .headers = 8, .body_bytes = 256};

struct FuzzedStream {
  std::vector<Request> requests;
  std::vector<int> heads;  // how many requests were over when a head was told
  int status = 0;
  std::string why;
  bool untouched = false;
};

void require(bool right) {
  if (!right) std::abort();
}

FuzzedStream fuzz_parse(std::string_view stream, std::uint32_t cuts) {
  Parser parser(kLimits);
  FuzzedStream out;
  while (!stream.empty()) {
    std::size_t n = stream.size();
    if (cuts != 0) {
      cuts = cuts * 1664525u + 1013904223u;
      n = std::min<std::size_t>(n, 1 + (cuts >> 24) % ((cuts >> 16 & 1) != 0 ? 3 : 40));
    }
    std::string_view bytes = stream.substr(0, n);
    stream.remove_prefix(n);
    for (bool more = false; !more;) {
      const Parser::Result result = parser.feed(bytes);
      const Request& r = parser.request();
      std::size_t held = r.method.size() + r.target.size();
      for (const auto& h : r.headers) held += h.name.size() + h.value.size();
      require(held <= kLimits.head_bytes && r.headers.size() <= 8 && r.body.size() <= kLimits.body_bytes);
      if (result == Parser::Result::more) {
        require(bytes.empty());
        more = true;
      } else if (result == Parser::Result::head) {
        require(r.body.empty() && (r.minor == 0 || r.find("host") != nullptr));
        out.heads.push_back(static_cast<int>(out.requests.size()));
      } else if (result == Parser::Result::done) {
        require(r.path.find('\0') == std::string::npos && !r.path.empty());
        require(r.find("content-length") == nullptr || r.find("transfer-encoding") == nullptr);
        out.requests.push_back(parser.take());
        require(parser.untouched());
      } else {
        require(parser.status() >= 400 && parser.status() < 600 && !parser.why().empty());
        require(parser.feed(bytes) == Parser::Result::refused);  // for good
        out.status = parser.status();
        out.why = parser.why();
        return out;
      }
    }
  }
  out.untouched = parser.untouched();
  return out;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string_view stream(reinterpret_cast<const char*>(data) + 1, size - 1);
  const FuzzedStream whole = fuzz_parse(stream, 0), pieces = fuzz_parse(stream, 1u + data[0]);
  require(whole.heads == pieces.heads && whole.status == pieces.status && whole.why == pieces.why &&
          whole.untouched == pieces.untouched && whole.requests.size() == pieces.requests.size());
  for (std::size_t i = 0; i < whole.requests.size(); ++i) {
    const Request &a = whole.requests[i], &b = pieces.requests[i];
    require(a.method == b.method && a.target == b.target && a.path == b.path && a.query == b.query &&
            a.minor == b.minor && a.headers == b.headers && a.body == b.body);
  }
  return 0;
}
