// SPDX-License-Identifier: Apache-2.0
// Resolving references: their parts, and paths without dots.
#include "rapt/text/grammar/uri.h"

namespace rapt {
namespace {

struct Parts {
  std::string_view scheme, authority, path, query, fragment;  // with their marks: "http:", "//x", "?q", "#f"
};

Parts parts_of(std::string_view uri) {
  Parts p;
  const auto take = [&](std::size_t n) {
    const std::string_view head = uri.substr(0, n);
    uri.remove_prefix(head.size());
    return head;
  };
  const std::size_t hash = uri.find('#');
  if (hash != uri.npos) p.fragment = uri.substr(hash), uri = uri.substr(0, hash);
  if (const std::size_t mark = uri.find('?'); mark != uri.npos)
    p.query = uri.substr(mark), uri = uri.substr(0, mark);
  if (const std::size_t end = uri.find_first_of(":/"); end != uri.npos && uri[end] == ':' && end > 0)
    p.scheme = take(end + 1);
  if (uri.starts_with("//")) p.authority = take(uri.find('/', 2));
  p.path = uri;
  return p;
}

std::string without_dots(std::string_view path) {
  std::string out;
  while (!path.empty()) {
    const std::size_t end = path.find('/', 1);
    const std::string_view part = path.substr(0, end);
    path.remove_prefix(part.size());
    if (part == "/." || part == "." || part == "/.." || part == "..") {
      if (part.ends_with("..")) out.erase(out.rfind('/') == out.npos ? 0 : out.rfind('/'));
      if (path.empty()) out += '/';
      continue;
    }
    out += part;
  }
  return out;
}

}  // namespace

std::string resolve_uri(std::string_view reference, std::string_view base) {
  Parts r = parts_of(reference);
  const Parts b = parts_of(base);
  if (!r.scheme.empty() || base.empty()) return std::string(reference);
  std::string path;
  if (!r.authority.empty()) {
    path = without_dots(r.path);
  } else {
    r.authority = b.authority;
    if (r.path.empty()) {
      path = b.path;
      if (r.query.empty()) r.query = b.query;
    } else if (r.path.starts_with('/')) {
      path = without_dots(r.path);
    } else {
      const std::size_t end = b.path.rfind('/');
      const std::string folder(b.path.substr(0, end == b.path.npos ? 0 : end + 1));
      path = without_dots((folder.empty() && !b.authority.empty() ? "/" : folder) + std::string(r.path));
    }
  }
  return std::string(b.scheme) + std::string(r.authority) + path + std::string(r.query) +
         std::string(r.fragment);
}

}  // namespace rapt
