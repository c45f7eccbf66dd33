// SPDX-License-Identifier: Apache-2.0
// Keys are kept as their SHA-256 only.
#include "rapt/apps/server/access.h"

#include <arpa/inet.h>
#include <sys/stat.h>

#include <algorithm>
#include <cctype>
#include <fstream>

#include "rapt/base/error.h"
#include "rapt/base/sha256.h"

namespace rapt::server {
namespace {

std::string lower_case(std::string_view s) {
  std::string out(s);
  for (char& c : out)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return out;
}

// "http://name:port" → "name"; "" for what is none (null, file://, a path behind it).
std::string origin_host(std::string_view origin) {
  for (const std::string_view scheme : {"http://", "https://"})
    if (lower_case(origin.substr(0, scheme.size())) == scheme) {
      const std::string_view rest = origin.substr(scheme.size());
      return rest.find_first_of("/?#@") == rest.npos ? host_name(rest) : "";
    }
  return "";
}

// Headers that clients send: a page may send them too.
bool header_allowed(std::string_view name) {
  for (const std::string_view known :
       {"authorization", "content-type", "accept", "x-api-key", "x-request-id", "x-request-timeout"})
    if (name == known) return true;
  for (const std::string_view family : {"openai-", "anthropic-", "x-stainless-"})
    if (name.starts_with(family)) return true;
  return false;
}

}  // namespace

std::string host_name(std::string_view host) {
  std::string_view name = host;
  if (name.starts_with('[')) {
    const std::size_t end = name.find(']');
    if (end == name.npos) return "";
    const std::string_view port = name.substr(end + 1);
    if (!port.empty() && port[0] != ':') return "";
    name = name.substr(1, end - 1);
  } else if (const std::size_t colon = name.find(':'); colon != name.npos) {
    if (name.find(':', colon + 1) != name.npos) return "";  // an address of version 6 needs its brackets
    const std::string_view port = name.substr(colon + 1);
    if (port.size() > 5 ||
        !std::all_of(port.begin(), port.end(), [](char c) { return c >= '0' && c <= '9'; }))
      return "";
    name = name.substr(0, colon);
  }
  if (name.size() > 1 && name.back() == '.') name.remove_suffix(1);
  return lower_case(name);
}

bool is_address(std::string_view host) {
  unsigned char bytes[16];
  const std::string text(host);
  return inet_pton(AF_INET, text.c_str(), bytes) == 1 || inet_pton(AF_INET6, text.c_str(), bytes) == 1;
}

bool is_loopback(std::string_view host) {
  if (host == "localhost" || host == "::1" || host.ends_with(".localhost")) return true;
  return host.starts_with("127.") && is_address(host);
}

Access::Access(Options options) : options_(std::move(options)) {
  for (std::string& key : options_.keys) {
    digests_.push_back(sha256(key));
    std::fill(key.begin(), key.end(), '\0');
  }
  options_.keys.clear();
  for (std::string& h : options_.hosts) h = host_name(h);
  for (std::string& o : options_.origins) o = lower_case(o);
}

std::optional<std::size_t> Access::key_of(const http::Request& request) const {
  if (digests_.empty()) return 0;
  std::string_view shown;
  if (const std::string* a = request.find("authorization")) {
    if (a->size() > 7 && lower_case(a->substr(0, 7)) == "bearer ") shown = std::string_view(*a).substr(7);
  } else if (const std::string* k = request.find("x-api-key")) {
    shown = *k;
  }
  while (shown.starts_with(' ')) shown.remove_prefix(1);
  const std::array<std::byte, 32> digest = sha256(shown);
  std::optional<std::size_t> found;
  for (std::size_t i = 0; i < digests_.size(); ++i) {
    unsigned differs = 0;
    for (std::size_t b = 0; b < digest.size(); ++b)
      differs |= std::to_integer<unsigned>(digest[b] ^ digests_[i][b]);
    if (differs == 0) found = i;
  }
  return found;
}

std::string Access::key_name(std::size_t key) const {
  if (key >= digests_.size()) return "";
  std::string text = "rapt replay\n";
  for (const std::byte b : digests_[key]) text += static_cast<char>(b);
  const std::array<std::byte, 32> digest = sha256(text);
  std::string out;
  for (std::size_t i = 0; i < 16; ++i)
    for (const int shift : {4, 0})
      out += "0123456789abcdef"[std::to_integer<unsigned>(digest[i]) >> shift & 15U];
  return out;
}

bool Access::host_allowed(const http::Request& request) const {
  if (request.peer == "unix") return true;
  const std::string* host = request.find("host");
  const std::string name = host ? host_name(*host) : "";
  if (name.empty()) return false;
  if (is_loopback(name) || (options_.reachable && is_address(name))) return true;
  return std::find(options_.hosts.begin(), options_.hosts.end(), name) != options_.hosts.end();
}

bool Access::origin_allowed(const http::Request& request) const {
  const std::string* origin = request.find("origin");
  if (!origin) return true;
  if (std::find(options_.origins.begin(), options_.origins.end(), lower_case(*origin)) !=
      options_.origins.end())
    return true;
  const std::string name = origin_host(*origin);
  if (name.empty()) return false;
  if (is_loopback(name)) return true;
  const std::string* host = request.find("host");
  return host && host_name(*host) == name && host_allowed(request);
}

std::vector<http::Header> Access::cors(const http::Request& request) const {
  const std::string* origin = request.find("origin");
  if (!origin || !origin_allowed(request)) return {};
  return {
      {"Access-Control-Allow-Origin", *origin},
      {"Access-Control-Expose-Headers", "x-request-id, retry-after, rapt-model, rapt-stream, rapt-replay"},
      {"Vary", "Origin"}};
}

http::Reply Access::preflight(const http::Request& request) const {
  http::Reply reply{.status = 204, .headers = cors(request)};
  reply.headers.push_back({"Access-Control-Allow-Methods", "GET, POST, HEAD, DELETE, OPTIONS"});
  if (const std::string* asked = request.find("access-control-request-headers")) {
    std::string allowed;
    std::string_view rest = *asked;
    while (!rest.empty()) {
      const std::size_t comma = std::min(rest.find(','), rest.size());
      std::string_view name = rest.substr(0, comma);
      while (name.starts_with(' ')) name.remove_prefix(1);
      while (name.ends_with(' ')) name.remove_suffix(1);
      if (const std::string n = lower_case(name); header_allowed(n))
        allowed += (allowed.empty() ? "" : ", ") + n;
      rest.remove_prefix(std::min(comma + 1, rest.size()));
    }
    if (!allowed.empty()) reply.headers.push_back({"Access-Control-Allow-Headers", allowed});
  }
  reply.headers.push_back({"Access-Control-Max-Age", "600"});
  return reply;
}

std::vector<std::string> read_keys(const std::string& path) {
  struct stat about{};
  std::ifstream in(path);
  if (!in || ::stat(path.c_str(), &about) != 0)
    fail("--key-file: ", path, " cannot be read; give a file with one key a line");
  if ((about.st_mode & 077) != 0)
    fail("--key-file: ", path, " can be read by others; keys are secrets: chmod 600 ", path);
  std::vector<std::string> keys;
  for (std::string line; std::getline(in, line);) {
    while (!line.empty() && std::isspace(static_cast<unsigned char>(line.back()))) line.pop_back();
    if (line.empty() || line[0] == '#') continue;
    if (line.size() < 8)
      fail("--key-file: a key of ", path, " has fewer than 8 characters; it would be guessed");
    keys.push_back(line);
  }
  if (keys.empty()) fail("--key-file: ", path, " holds no key; write one a line, of at least 8 characters");
  return keys;
}

}  // namespace rapt::server
