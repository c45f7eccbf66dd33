// SPDX-License-Identifier: Apache-2.0
// A state machine over bytes: lines of the head and of trailers are collected in line_ and read when whole,
// bodies are taken in pieces as they come.
#include "rapt/http/parser.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "rapt/base/error.h"

namespace rapt::http {
namespace {

constexpr int kMostSizeDigits = 16;

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
bool is_token_char(char c) {
  return is_digit(c) || is_letter(c) ||
         (c != 0 && std::string_view("!#$%&'*+-.^_`|~").find(c) != std::string_view::npos);
}
bool is_token(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), is_token_char);
}
char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }
bool same(std::string_view a, std::string_view b) {  // but for upper and lower case
  return a.size() == b.size() &&
         std::equal(a.begin(), a.end(), b.begin(), [](char x, char y) { return lower(x) == lower(y); });
}
int hex_digit(char c) {
  if (is_digit(c)) return c - '0';
  const char l = lower(c);
  return l >= 'a' && l <= 'f' ? l - 'a' + 10 : -1;
}
std::string_view trimmed(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(" \t");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t") + 1 - begin);
}
bool control(char c) { return (static_cast<unsigned char>(c) < 0x20 && c != '\t') || c == 0x7f; }

// Calls f with each item of a list "a, b ,c".
template <class F>
void each_item(std::string_view list, F&& f) {
  while (true) {
    const std::size_t comma = list.find(',');
    f(trimmed(list.substr(0, comma)));
    if (comma == std::string_view::npos) return;
    list.remove_prefix(comma + 1);
  }
}

// What may stand in Host: names, addresses, a port. No user, no path, no list.
bool is_host(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) {
    return is_digit(c) || is_letter(c) ||
           (c != 0 && std::string_view("-._~[]:%").find(c) != std::string_view::npos);
  });
}

}  // namespace

// What the head says about where the body ends.
struct Parser::Framing {
  int lengths = 0, transfers = 0, hosts = 0;
  std::string_view length, transfer, host;
};

Parser::Parser(const ParserLimits& limits, std::string peer) : limits_(limits), peer_(std::move(peer)) {
  reset();
}

void Parser::reset() {
  request_ = {};
  request_.peer = peer_;
  step_ = Step::request_line;
  line_ = std::string();  // its memory, too: connections wait long
  cr_ = begun_ = blank_ = keeps_alive_ = wants_continue_ = false;
  head_bytes_ = 0;
  headers_ = 0;
  left_ = 0;
  digits_ = 0;
}

Request Parser::take() {
  Request request = std::move(request_);
  reset();
  return request;
}

Parser::Result Parser::refuse(int status, std::string why) {
  step_ = Step::refused;
  status_ = status;
  why_ = std::move(why);
  return Result::refused;
}

Parser::Result Parser::feed(std::string_view& bytes) {
  if (step_ == Step::head) {  // said; now what follows it
    head_bytes_ = 0;
    headers_ = 0;
    step_ = left_ == 0 ? Step::done : Step::length;
    if (const std::string* transfer = request_.find("transfer-encoding"); transfer != nullptr) {
      step_ = Step::chunk_size;
      left_ = 0;
    }
  }
  while (true) {
    switch (step_) {
      case Step::done: return Result::done;
      case Step::refused: return Result::refused;
      case Step::head: return Result::head;
      default: break;
    }
    if (bytes.empty()) return Result::more;
    switch (step_) {
      case Step::request_line:
      case Step::headers:
      case Step::trailers:
        if (!read_line(bytes) || step_ == Step::refused) break;
        if (step_ == Step::request_line) request_line();
        else if (!line_.empty()) header_line(step_ == Step::trailers);
        else if (step_ == Step::headers) end_of_head();
        else step_ = Step::done;
        line_.clear();
        break;
      case Step::length:
      case Step::data: read_data(bytes); break;
      case Step::chunk_size: read_size(bytes); break;
      case Step::extension: read_extension(bytes); break;
      case Step::size_end: expect_end(bytes, Step::data); break;
      case Step::data_end: expect_end(bytes, Step::chunk_size); break;
      default: break;
    }
  }
}

// Up to its CRLF, which is left out.
bool Parser::read_line(std::string_view& bytes) {
  std::size_t at = 0;
  while (at < bytes.size()) {
    const char c = bytes[at++];
    if (++head_bytes_ > limits_.head_bytes) {
      refuse(431, concat(step_ == Step::trailers ? "extensions and trailers of the chunks"
                                                 : "the head of the request",
                         ": more than ", limits_.head_bytes, " bytes"));
      break;
    }
    if (cr_) {
      if (c != '\n') {
        refuse(400, "a carriage return without a line feed in the head");
        break;
      }
      cr_ = false;
      if (step_ == Step::request_line && !begun_ && !blank_) {  // clients of old send one behind a body
        blank_ = true;
        continue;
      }
      bytes.remove_prefix(at);
      return true;
    }
    if (c == '\r') {
      cr_ = true;
    } else if (c == '\n') {
      refuse(400, "a line feed without a carriage return in the head");
      break;
    } else if (control(c)) {
      if (!begun_ && c == 0x16)
        refuse(400, "this is how TLS begins, and here plain HTTP is spoken: use http://");
      else refuse(400, "a control character in the head");
      break;
    } else {
      begun_ = true;
      if (line_.size() == line_.capacity())  // never more than the limit: std::string would double it
        line_.reserve(std::min(std::max<std::size_t>(2 * line_.capacity(), 128),
                               std::max<std::size_t>(limits_.head_bytes, 1)));
      line_ += c;
    }
  }
  bytes.remove_prefix(at);
  return step_ == Step::refused;
}

void Parser::request_line() {
  const std::string_view line = line_;
  const std::size_t first = line.find(' '), last = line.rfind(' ');
  if (first == std::string_view::npos || first == last || first == 0 || last + 1 == line.size()) {
    refuse(400, "the first line is not METHOD TARGET HTTP/1.1");
    return;
  }
  const std::string_view method = line.substr(0, first), goal = line.substr(first + 1, last - first - 1),
                         version = line.substr(last + 1);
  if (!is_token(method)) {
    refuse(400, "the method is not a word");
    return;
  }
  if (goal.empty() || !std::all_of(goal.begin(), goal.end(), [](char c) { return c > 0x20 && c < 0x7f; })) {
    refuse(400, "the target has blanks or bytes that must be written as %XX");
    return;
  }
  if (version.size() != 8 || version.substr(0, 5) != "HTTP/" || !is_digit(version[5]) || version[6] != '.' ||
      !is_digit(version[7])) {
    refuse(400, "the first line does not end with HTTP/1.1");
    return;
  }
  if (version[5] != '1' || version[7] > '1') {
    refuse(505, concat(version, ": this server speaks HTTP/1.1 and HTTP/1.0"));
    return;
  }
  request_.method = method;
  request_.target = goal;
  request_.minor = version[7] - '0';
  step_ = Step::headers;
  target();
}

void Parser::target() {
  std::string_view rest = request_.target;
  if (request_.method == "CONNECT") {
    refuse(501, "CONNECT: this server is no proxy");
    return;
  }
  if (rest.find('#') != std::string_view::npos) {
    refuse(400, "the target has a '#': fragments are not sent");
    return;
  }
  if (rest == "*" && request_.method == "OPTIONS") {
    request_.path = rest;
    return;
  }
  if (rest[0] != '/') {  // "http://host/path", as proxies are asked; end_of_head() compares the host
    const std::size_t colon = rest.find("://");
    if (colon == std::string_view::npos ||
        !(same(rest.substr(0, colon), "http") || same(rest.substr(0, colon), "https"))) {
      refuse(400, "the target begins neither with / nor with http://");
      return;
    }
    rest.remove_prefix(colon + 3);
    rest.remove_prefix(std::min(rest.find_first_of("/?"), rest.size()));
  }
  const std::size_t mark = std::min(rest.find('?'), rest.size());
  if (mark < rest.size()) request_.query = rest.substr(mark + 1);
  rest = rest.substr(0, mark);
  std::string& path = request_.path;
  path.reserve(rest.size());
  for (std::size_t i = 0; i < rest.size(); ++i) {
    if (rest[i] != '%') {
      path += rest[i];
      continue;
    }
    const int high = i + 2 < rest.size() ? hex_digit(rest[i + 1]) : -1,
              low = i + 2 < rest.size() ? hex_digit(rest[i + 2]) : -1;
    const int value = 16 * high + low;
    if (high < 0 || low < 0 || value == 0) {
      refuse(400, value == 0 ? "the path has a zero byte"
                             : "the path has a '%' without two hexadecimal digits behind it");
      return;
    }
    if (value == '/') path += rest.substr(i, 3);
    else path += static_cast<char>(value);
    i += 2;
  }
  if (path.empty()) path = "/";
}

void Parser::header_line(bool trailer) {
  const std::string_view line = line_;
  if (line[0] == ' ' || line[0] == '\t') {
    refuse(400, "a header that goes on in a second line");
    return;
  }
  const std::size_t colon = line.find(':');
  if (colon == std::string_view::npos || !is_token(line.substr(0, colon))) {
    const bool blank =
        colon != std::string_view::npos && colon > 0 && (line[colon - 1] == ' ' || line[colon - 1] == '\t');
    refuse(400, blank ? "a blank between a header's name and its colon" : "a header is not NAME: VALUE");
    return;
  }
  if (++headers_ > limits_.headers) {
    refuse(431, concat("more than ", limits_.headers, trailer ? " trailers" : " headers"));
    return;
  }
  if (trailer) return;
  Header& header = request_.headers.emplace_back();
  header.name = line.substr(0, colon);
  for (char& c : header.name) c = lower(c);
  header.value = trimmed(line.substr(colon + 1));
}

void Parser::end_of_head() {
  Framing f;
  bool close = false, keep = false, other_coding = false, other_expectation = false;
  for (const Header& header : request_.headers) {
    if (header.name == "content-length") {
      ++f.lengths;
      f.length = header.value;
    } else if (header.name == "transfer-encoding") {
      ++f.transfers;
      f.transfer = header.value;
    } else if (header.name == "host") {
      ++f.hosts;
      f.host = header.value;
    } else if (header.name == "connection") {
      each_item(header.value, [&](std::string_view item) {
        close = close || same(item, "close");
        keep = keep || same(item, "keep-alive");
      });
    } else if (header.name == "content-encoding") {
      other_coding = other_coding || !same(header.value, "identity");
    } else if (header.name == "expect") {
      if (same(header.value, "100-continue")) wants_continue_ = true;
      else other_expectation = true;
    }
  }
  keeps_alive_ = !close && (request_.minor == 1 || keep);

  const auto bad = [&](std::string_view why) { refuse(400, std::string(why)); };
  if (f.lengths > 0 && f.transfers > 0) return bad("both Content-Length and Transfer-Encoding");
  if (f.lengths > 1) return bad("more than one Content-Length");
  if (f.transfers > 1) return bad("more than one Transfer-Encoding");
  if (f.transfers == 1 && request_.minor == 0) return bad("Transfer-Encoding in HTTP/1.0, which has none");
  if (f.transfers == 1 && !same(f.transfer, "chunked")) return bad("Transfer-Encoding is not \"chunked\"");
  if (f.lengths == 1 && (f.length.empty() || !std::all_of(f.length.begin(), f.length.end(), is_digit)))
    return bad("Content-Length is not a number");
  if (f.hosts > 1) return bad("more than one Host");
  if (f.hosts == 0 && request_.minor == 1) return bad("no Host, which HTTP/1.1 asks for");
  if (!is_host(f.host)) return bad("Host is not a name or an address with a port");
  if (request_.target[0] != '/' && request_.target != "*") {
    std::string_view host = request_.target;
    host.remove_prefix(host.find("://") + 3);
    host = host.substr(0, host.find_first_of("/?"));
    if (host.empty() || !is_host(host))
      return bad("the target's host is not a name or an address with a port");
    if (f.hosts == 1 && !same(host, f.host)) return bad("the target names another host than Host does");
  }
  if (other_expectation) {
    refuse(417, "Expect: only 100-continue is known");
    return;
  }
  if (other_coding) {
    refuse(415, "Content-Encoding: send the body as it is, not compressed");
    return;
  }
  left_ = 0;
  if (f.lengths == 1) {
    constexpr std::uint64_t kMost = std::numeric_limits<std::uint64_t>::max();
    for (const char c : f.length) {
      const auto digit = static_cast<std::uint64_t>(c - '0');
      left_ = left_ > (kMost - digit) / 10 ? kMost : 10 * left_ + digit;
    }
    if (left_ > limits_.body_bytes) {
      refuse(413, concat("the body: at most ", limits_.body_bytes, " bytes are taken"));
      return;
    }
  }
  wants_continue_ = wants_continue_ && request_.minor == 1 && (left_ > 0 || f.transfers == 1);
  step_ = Step::head;
}

void Parser::read_data(std::string_view& bytes) {
  const auto n = static_cast<std::size_t>(std::min<std::uint64_t>(left_, bytes.size()));
  std::string& body = request_.body;
  if (body.capacity() - body.size() < n) {
    // Twice as much as before, never more than may come: memory follows what was sent, not what was promised.
    const std::size_t most =
        step_ == Step::length ? body.size() + static_cast<std::size_t>(left_) : limits_.body_bytes;
    body.reserve(std::min(std::max(2 * body.capacity(), body.size() + n), most));
  }
  body.append(bytes.substr(0, n));
  bytes.remove_prefix(n);
  left_ -= n;
  if (left_ == 0) step_ = step_ == Step::length ? Step::done : Step::data_end;
}

void Parser::read_size(std::string_view& bytes) {
  while (!bytes.empty()) {
    const char c = bytes[0];
    if (const int digit = hex_digit(c); digit >= 0) {
      if (++digits_ > kMostSizeDigits) {
        refuse(400, "the size of a chunk has more than 16 digits");
        return;
      }
      left_ = left_ << 4 | static_cast<unsigned>(digit);
      bytes.remove_prefix(1);
      continue;
    }
    if (digits_ == 0 || (c != '\r' && c != ';')) {
      refuse(400, "the size of a chunk is not a hexadecimal number");
      return;
    }
    step_ = c == ';' ? Step::extension : Step::size_end;
    return;
  }
}

void Parser::read_extension(std::string_view& bytes) {
  while (!bytes.empty()) {
    const char c = bytes[0];
    if (c == '\r') {
      step_ = Step::size_end;
      return;
    }
    if (control(c)) {
      refuse(400, "a control character in the extension of a chunk");
      return;
    }
    if (++head_bytes_ > limits_.head_bytes) {
      refuse(400, concat("extensions of chunks: more than ", limits_.head_bytes, " bytes"));
      return;
    }
    bytes.remove_prefix(1);
  }
}

// CRLF behind a chunk's size or data.
void Parser::expect_end(std::string_view& bytes, Step next) {
  while (!bytes.empty()) {
    const char c = bytes[0];
    if (c != (cr_ ? '\n' : '\r')) {
      refuse(400, next == Step::data ? "the size of a chunk does not end its line"
                                     : "a chunk is longer than its size");
      return;
    }
    bytes.remove_prefix(1);
    cr_ = !cr_;
    if (cr_) continue;
    step_ = next;
    if (next == Step::data) end_of_chunk_size();
    return;
  }
}

void Parser::end_of_chunk_size() {
  digits_ = 0;
  if (left_ == 0) step_ = Step::trailers;
  else if (left_ > limits_.body_bytes - request_.body.size())
    refuse(413, concat("the body: at most ", limits_.body_bytes, " bytes are taken"));
}

}  // namespace rapt::http
