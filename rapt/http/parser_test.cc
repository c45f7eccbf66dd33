// SPDX-License-Identifier: Apache-2.0
// Requests as clients write them, as attackers write them, and in pieces of every size.
#include "rapt/http/parser.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace rapt::http::test {
namespace {

// What a parser makes of a stream: its requests, then the refusal if there is one.
struct ParsedStream {
  std::vector<Request> requests;
  std::vector<bool> keeps;
  int heads = 0, status = 0;
  std::string why, rest;
};

ParsedStream parse_stream(std::string_view stream, std::size_t piece = std::string::npos,
                          const ParserLimits& limits = {}) {
  Parser parser(limits, "somebody");
  ParsedStream out;
  while (true) {
    std::string_view bytes = stream.substr(0, piece);
    stream.remove_prefix(bytes.size());
    bool more = false;
    while (!more) {
      switch (parser.feed(bytes)) {
        case Parser::Result::more: more = true; break;
        case Parser::Result::head: ++out.heads; break;
        case Parser::Result::done:
          out.keeps.push_back(parser.keeps_alive());
          out.requests.push_back(parser.take());
          break;
        case Parser::Result::refused:
          out.status = parser.status();
          out.why = parser.why();
          out.rest = std::string(bytes) + std::string(stream);
          return out;
      }
    }
    if (stream.empty()) return out;
  }
}

// In one piece and byte by byte alike.
int status_of(const std::string& stream, const ParserLimits& limits = {}) {
  const ParsedStream whole = parse_stream(stream, std::string::npos, limits),
                     bytes = parse_stream(stream, 1, limits);
  EXPECT_EQ(whole.status, bytes.status) << stream;
  EXPECT_EQ(whole.why, bytes.why) << stream;
  EXPECT_EQ(whole.requests.size(), bytes.requests.size()) << stream;
  EXPECT_EQ(whole.why.empty(), whole.status == 0);
  return whole.status;
}

std::string get(const std::string& headers) { return "GET / HTTP/1.1\r\nHost: a\r\n" + headers + "\r\n"; }
std::string post(const std::string& headers, const std::string& body) {
  return "POST /x HTTP/1.1\r\nHost: a\r\n" + headers + "\r\n" + body;
}
const std::string kChunked = "Transfer-Encoding: chunked\r\n";

TEST(HttpParser, AnOrdinaryRequest) {
  const std::string text =
      "POST /v1/a%20b%2Fc%2f%25?q=%zz&r HTTP/1.1\r\nHost: localhost:8080\r\nX-Thing: \t a  b \t\r\nEMPTY:\r\n"
      "Content-Length: 5\r\n\r\nhello";
  for (std::size_t piece = 1; piece <= text.size(); ++piece) {
    const ParsedStream out = parse_stream(text, piece);
    ASSERT_EQ(out.requests.size(), 1u) << piece << " " << out.why;
    const Request& r = out.requests[0];
    EXPECT_EQ(out.heads, 1);
    EXPECT_EQ(r.method, "POST");
    EXPECT_EQ(r.target, "/v1/a%20b%2Fc%2f%25?q=%zz&r");
    EXPECT_EQ(r.path, "/v1/a b%2Fc%2f%");
    EXPECT_EQ(r.query, "q=%zz&r");
    EXPECT_EQ(r.minor, 1);
    EXPECT_EQ(r.body, "hello");
    EXPECT_EQ(r.peer, "somebody");
    ASSERT_EQ(r.headers.size(), 4u);
    ASSERT_NE(r.find("x-thing"), nullptr);
    EXPECT_EQ(*r.find("x-thing"), "a  b");
    EXPECT_EQ(*r.find("empty"), "");
    EXPECT_EQ(r.find("absent"), nullptr);
    EXPECT_TRUE(out.keeps[0]);
  }
}

TEST(HttpParser, ChunkedBodiesWithExtensionsAndTrailersInPieces) {
  const std::string text = post(kChunked,
                                "5\r\nhello\r\n00a;x=\"y\"\r\n, world of\r\n1\r\n!\r\n0;last\r\nDigest: 1\r\n"
                                "Host: other\r\n\r\n") +
                           get("");
  for (std::size_t piece = 1; piece <= text.size(); ++piece) {
    const ParsedStream out = parse_stream(text, piece);
    ASSERT_EQ(out.requests.size(), 2u) << piece << " " << out.why;
    EXPECT_EQ(out.requests[0].body, "hello, world of!");
    EXPECT_EQ(*out.requests[0].find("host"), "a");
    EXPECT_EQ(out.requests[0].find("digest"), nullptr);
    EXPECT_EQ(out.requests[1].method, "GET");
    EXPECT_EQ(out.requests[1].find("transfer-encoding"), nullptr);
  }
}

TEST(HttpParser, TargetsOfAllForms) {
  const auto one = [](const std::string& line) {
    const ParsedStream out = parse_stream(line + " HTTP/1.1\r\nHost: a:1\r\n\r\n");
    return out.status ? std::to_string(out.status) : out.requests.at(0).path + " " + out.requests.at(0).query;
  };
  EXPECT_EQ(one("GET /a//b/../c?x?y"), "/a//b/../c x?y");
  EXPECT_EQ(one("GET http://a:1/b?c"), "/b c");
  EXPECT_EQ(one("GET HTTPS://A:1?c"), "/ c");
  EXPECT_EQ(one("OPTIONS *"), "* ");
  for (const char* bad :
       {"GET *",          "GET a",     "GET ?a",   "GET http://b/", "GET http:///x", "GET http://u@a:1/",
        "GET ftp://a:1/", "GET /#x",   "GET /%",   "GET /%4",       "GET /%4g",      "GET /%00",
        "GET /\x80",      "GET /\x7f", "GET /a b", "GET  /",        "GET /  ",       " GET /",
        "G(T /",          "GET",       "GET /\x01"})
    EXPECT_EQ(one(bad), "400") << bad;
  EXPECT_EQ(one("CONNECT a:1"), "501");
}

TEST(HttpParser, Versions) {
  EXPECT_EQ(status_of("GET / HTTP/1.0\r\n\r\n"), 0);
  EXPECT_EQ(status_of("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), 505);
  EXPECT_EQ(status_of("GET / HTTP/1.2\r\n\r\n"), 505);
  EXPECT_EQ(status_of("GET / HTTP/3.0\r\n\r\n"), 505);
  for (const char* version :
       {"HTTP/1.10", "HTTP/11", "http/1.1", "HTTP/1,1", "HTTP/+.1", "HTTP 1.1", "ICY/1.1", "HTTP/1.1x"})
    EXPECT_EQ(status_of(std::string("GET / ") + version + "\r\nHost: a\r\n\r\n"), 400) << version;
  EXPECT_EQ(status_of("GET /\r\n\r\n"), 400);  // HTTP/0.9
  const ParsedStream tls = parse_stream(std::string("\x16\x03\x01\x02\x00", 5));
  EXPECT_EQ(tls.status, 400);
  EXPECT_NE(tls.why.find("TLS"), std::string::npos);
}

TEST(HttpParser, KeepsAlive) {
  const auto keeps = [](const std::string& text) { return bool(parse_stream(text).keeps.at(0)); };
  EXPECT_TRUE(keeps(get("")));
  EXPECT_FALSE(keeps(get("Connection: Close\r\n")));
  EXPECT_FALSE(keeps(get("Connection: te , close,x\r\n")));
  EXPECT_FALSE(keeps(get("Connection: keep-alive\r\nConnection: close\r\n")));
  EXPECT_TRUE(keeps(get("Connection: closed\r\n")));
  EXPECT_FALSE(keeps("GET / HTTP/1.0\r\n\r\n"));
  EXPECT_TRUE(keeps("GET / HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n"));
}

// Where a body ends, two readers must never disagree: what could be read in two ways is refused, and what
// follows is not read.
TEST(HttpParser, FramingThatCouldBeReadInTwoWaysIsRefused) {
  const std::string hidden = "0\r\n\r\n" + get("");
  for (const char* headers : {
           "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
           "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n",
           "Content-Length: 5\r\nContent-Length: 6\r\n",
           "Content-Length: 5\r\nContent-Length: 5\r\n",
           "Content-Length: 5, 5\r\n",
           "Content-Length: +5\r\n",
           "Content-Length: -5\r\n",
           "Content-Length: 0x5\r\n",
           "Content-Length: 5 5\r\n",
           "Content-Length: 5.0\r\n",
           "Content-Length:\r\n",
           "Transfer-Encoding: chunked, identity\r\n",
           "Transfer-Encoding: identity\r\n",
           "Transfer-Encoding: gzip, chunked\r\n",
           "Transfer-Encoding: xchunked\r\n",
           "Transfer-Encoding: \"chunked\"\r\n",
           "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
           "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n",
           "Transfer-Encoding:\r\n",
           "Transfer-Encoding : chunked\r\n",
           "Transfer-Encoding\t: chunked\r\n",
           " Transfer-Encoding: chunked\r\n",
           "X: y\r\n Transfer-Encoding: chunked\r\n",
           "X: y\r\n\tz\r\n",
           "X: y\nContent-Length: 5\r\n",
           "X: y\rContent-Length: 5\r\n",
           "X: y\r\r\n",
           "X: y\x01z\r\n",
           "X: y\x7fz\r\n",
           ": y\r\n",
           "X y\r\n",
           "X\xe9: y\r\n",
           "X;: y\r\n",
           "Host: a\r\n",
           "Host: b\r\n",
       }) {
    EXPECT_EQ(status_of(post(headers, hidden)), 400) << headers;
    EXPECT_EQ(parse_stream(post(headers, hidden)).requests.size(), 0u) << headers;
  }
  EXPECT_EQ(status_of(post(std::string("X: a\0b\r\n", 8), "")), 400);
  EXPECT_EQ(status_of(std::string("GET /\0 HTTP/1.1\r\nHost: a\r\n\r\n", 29)), 400);
  EXPECT_EQ(status_of("POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"), 400);
  EXPECT_EQ(status_of(post("transfer-encoding: Chunked\r\n", "0\r\n\r\n")), 0);
  EXPECT_EQ(status_of(post("Content-Length: 0005\r\n", "hello")), 0);
}

TEST(HttpParser, Hosts) {
  const auto with = [](const std::string& host) { return status_of("GET / HTTP/1.1\r\n" + host + "\r\n"); };
  EXPECT_EQ(with(""), 400);
  EXPECT_EQ(with("Host: a, b\r\n"), 400);
  EXPECT_EQ(with("Host: a/b\r\n"), 400);
  EXPECT_EQ(with("Host: u@a\r\n"), 400);
  EXPECT_EQ(with("Host: a b\r\n"), 400);
  EXPECT_EQ(with("Host: [::1]:80\r\n"), 0);
  EXPECT_EQ(with("Host:\r\n"), 0);
  EXPECT_EQ(status_of("GET / HTTP/1.0\r\nHost: a\r\nHost: a\r\n\r\n"), 400);
}

TEST(HttpParser, LinesEndWithBothCharacters) {
  EXPECT_EQ(status_of("GET / HTTP/1.1\nHost: a\n\n"), 400);
  EXPECT_EQ(status_of("GET / HTTP/1.1\r\nHost: a\r\n\n"), 400);
  EXPECT_EQ(status_of("\n" + get("")), 400);
  EXPECT_EQ(status_of("\r\n" + get("")), 0);  // one empty line before a request is passed over
  EXPECT_EQ(status_of("\r\n\r\n" + get("")), 400);
  EXPECT_EQ(status_of(get("") + "\r\n" + get("")), 0);
}

TEST(HttpParser, ChunksThatAreNotExact) {
  for (const char* body : {"-2\r\nab\r\n0\r\n\r\n",
                           "+2\r\nab\r\n0\r\n\r\n",
                           "0x2\r\nab\r\n0\r\n\r\n",
                           "2 \r\nab\r\n0\r\n\r\n",
                           " 2\r\nab\r\n0\r\n\r\n",
                           "2 ;x\r\nab\r\n0\r\n\r\n",
                           "g\r\n",
                           "\r\n",
                           ";x\r\n",
                           "2\nab\r\n0\r\n\r\n",
                           "2\rab\r\n0\r\n\r\n",
                           "2\r\nabc\r\n0\r\n\r\n",
                           "2\r\nab\n0\r\n\r\n",
                           "2\r\nab0\r\n\r\n",
                           "2;x\ny\r\nab\r\n0\r\n\r\n",
                           "2;\x01\r\nab\r\n0\r\n\r\n",
                           "00000000000000002\r\nab\r\n0\r\n\r\n",
                           "0\r\nX : y\r\n\r\n",
                           "0\r\nX: y\r\n z\r\n\r\n",
                           "0\r\nX: y\n\r\n",
                           "0\r\nnonsense\r\n\r\n"})
    EXPECT_EQ(status_of(post(kChunked, body)), 400) << body;
  EXPECT_EQ(status_of(post(kChunked, "ffffffffffffffff\r\nab")), 413);
  EXPECT_EQ(status_of(post(kChunked, "10000000000000000\r\nab")), 400);
  EXPECT_EQ(status_of(post(kChunked, "0000000000000002\r\nab\r\n0000\r\n\r\n")), 0);
}

TEST(HttpParser, Limits) {
  const ParserLimits small = {.head_bytes = 200, .headers = 5, .body_bytes = 10};
  EXPECT_EQ(status_of(post("Content-Length: 10\r\n", "0123456789"), small), 0);
  EXPECT_EQ(status_of(post("Content-Length: 11\r\n", ""), small), 413);  // before a byte of it is there
  EXPECT_EQ(status_of(post("Content-Length: 99999999999999999999999999\r\n", ""), small), 413);
  EXPECT_EQ(status_of(post(kChunked, "5\r\n01234\r\n5\r\n56789\r\n0\r\n\r\n"), small), 0);
  EXPECT_EQ(status_of(post(kChunked, "5\r\n01234\r\n6\r\n"), small), 413);
  EXPECT_EQ(status_of(post(kChunked, "b\r\n"), small), 413);
  EXPECT_EQ(status_of(get("a: 1\r\nb: 2\r\nc: 3\r\nd: 4\r\n"), small), 0);
  EXPECT_EQ(status_of(get("a: 1\r\nb: 2\r\nc: 3\r\nd: 4\r\ne: 5\r\n"), small), 431);
  const std::string head = get("a: \r\n");
  EXPECT_EQ(status_of(get("a: " + std::string(200 - head.size(), 'x') + "\r\n"), small), 0);
  EXPECT_EQ(status_of(get("a: " + std::string(201 - head.size(), 'x') + "\r\n"), small), 431);
  EXPECT_EQ(status_of("GET /" + std::string(300, 'x'), small), 431);
  EXPECT_EQ(status_of(post(kChunked, "1;" + std::string(300, 'x')), small), 400);
  std::string many;
  for (int i = 0; i < 8; ++i) many += "1;" + std::string(40, 'x') + "\r\na\r\n";
  EXPECT_EQ(status_of(post(kChunked, many), small), 400);
  EXPECT_EQ(status_of(post(kChunked, "0\r\nx: " + std::string(300, 'x')), small), 431);
  EXPECT_EQ(status_of(post(kChunked, "0\r\na:\r\nb:\r\nc:\r\nd:\r\ne:\r\nf:\r\n"), small), 431);
  std::string headers;
  for (int i = 0; i < 99; ++i) headers += "h: v\r\n";
  EXPECT_EQ(status_of(get(headers)), 0);
  EXPECT_EQ(status_of(get(headers + "h: v\r\n")), 431);
}

TEST(HttpParser, CodingsAndExpectations) {
  EXPECT_EQ(status_of(post("Content-Encoding: gzip\r\nContent-Length: 1\r\n", "a")), 415);
  EXPECT_EQ(status_of(post("Content-Encoding: identity, br\r\nContent-Length: 1\r\n", "a")), 415);
  EXPECT_EQ(status_of(post("Content-Encoding: Identity\r\nContent-Length: 1\r\n", "a")), 0);
  EXPECT_EQ(status_of(post("Expect: 200-ok\r\nContent-Length: 1\r\n", "a")), 417);
  const auto waits = [](const std::string& text) {
    Parser parser({});
    std::string_view bytes = text;
    EXPECT_EQ(parser.feed(bytes), Parser::Result::head);
    return parser.wants_continue();
  };
  EXPECT_TRUE(waits(post("Expect: 100-Continue\r\nContent-Length: 1\r\n", "")));
  EXPECT_TRUE(waits(post("Expect: 100-continue\r\n" + kChunked, "")));
  EXPECT_FALSE(waits(post("Expect: 100-continue\r\nContent-Length: 0\r\n", "")));
  EXPECT_FALSE(waits(post("Content-Length: 1\r\n", "")));
  EXPECT_FALSE(waits("POST / HTTP/1.0\r\nExpect: 100-continue\r\nContent-Length: 1\r\n\r\n"));
}

TEST(HttpParser, MemoryFollowsWhatWasSent) {
  Parser parser({.head_bytes = 16 << 10, .headers = 100, .body_bytes = std::size_t{1} << 40});
  const std::string head = post("Content-Length: 1000000000000\r\n", "abc");
  std::string_view bytes = head;
  EXPECT_EQ(parser.feed(bytes), Parser::Result::head);
  EXPECT_EQ(parser.feed(bytes), Parser::Result::more);
  EXPECT_EQ(parser.request().body, "abc");
  EXPECT_LT(parser.request().body.capacity(), 100u);
  // 64 MiB without a line end: refused behind the first 16 KiB.
  Parser other({});
  const std::string noise(64 << 20, 'x');
  bytes = noise;
  EXPECT_EQ(other.feed(bytes), Parser::Result::refused);
  EXPECT_EQ(other.status(), 431);
  EXPECT_EQ(bytes.size(), noise.size() - (16 << 10) - 1);
}

TEST(HttpParser, UntouchedBetweenRequests) {
  Parser parser({});
  EXPECT_TRUE(parser.untouched());
  const std::string text = get("") + "\r\nG";
  std::string_view bytes = text;
  EXPECT_EQ(parser.feed(bytes), Parser::Result::head);
  EXPECT_FALSE(parser.untouched());
  EXPECT_EQ(parser.feed(bytes), Parser::Result::done);
  EXPECT_EQ(parser.take().method, "GET");
  EXPECT_TRUE(parser.untouched());
  std::string_view blank = bytes.substr(0, 2);
  EXPECT_EQ(parser.feed(blank), Parser::Result::more);
  EXPECT_TRUE(parser.untouched());
  bytes.remove_prefix(2);
  EXPECT_EQ(parser.feed(bytes), Parser::Result::more);
  EXPECT_FALSE(parser.untouched());
}

}  // namespace
}  // namespace rapt::http::test
