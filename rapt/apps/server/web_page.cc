// SPDX-License-Identifier: Apache-2.0
// Packed once, at the start: a page of half a megabyte takes some 20 ms.
#include "rapt/apps/server/web_page.h"

#include <zlib.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdlib>
#include <span>

#include "rapt/apps/server/lean_text.h"
#include "rapt/apps/server/protocol_error.h"
#include "rapt/apps/server/web_files.h"
#include "rapt/base/sha256.h"
#include "rapt/base/text.h"
#include "rapt/report/page.h"
#include "rapt/report/page_files.h"

namespace rapt::server {
namespace {

constexpr const char* kPolicy =
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self' blob: data:; font-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'; require-trusted-types-for 'script'";

// Of rapt/report/page, what puts the report together: no business of this page.
constexpr std::string_view kReportAlone[] = {"index.html", "main.js",  "store.js", "strip.js",
                                             "i18n.js",    "views.js", "style.css"};

std::string_view type_of(std::string_view name) {
  static constexpr std::pair<std::string_view, std::string_view> kTypes[] = {
      {".html", "text/html; charset=utf-8"},    {".js", "text/javascript; charset=utf-8"},
      {".css", "text/css; charset=utf-8"},      {".json", "application/json"},
      {".svg", "image/svg+xml; charset=utf-8"}, {".txt", "text/plain; charset=utf-8"}};
  for (const auto& [ending, type] : kTypes)
    if (name.ends_with(ending)) return type;
  return "application/octet-stream";
}

std::string gzip(std::string_view text) {
  z_stream z{};
  constexpr int kGzip = 15 + 16;  // window bits; the head and tail of gzip instead of zlib's
  if (deflateInit2(&z, 9, Z_DEFLATED, kGzip, 8, Z_DEFAULT_STRATEGY) != Z_OK)
    fail("page: zlib cannot be started");
  std::string out(deflateBound(&z, static_cast<uLong>(text.size())), '\0');
  z.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  z.avail_in = static_cast<uInt>(text.size());
  z.next_out = reinterpret_cast<Bytef*>(out.data());
  z.avail_out = static_cast<uInt>(out.size());
  const int result = deflate(&z, Z_FINISH);
  out.resize(z.total_out);
  deflateEnd(&z);
  if (result != Z_STREAM_END) fail("page: a file could not be packed");
  return out;
}

std::string_view trimmed(std::string_view s) {
  while (s.starts_with(' ') || s.starts_with('\t')) s.remove_prefix(1);
  while (s.ends_with(' ') || s.ends_with('\t')) s.remove_suffix(1);
  return s;
}

std::string lean(std::string_view name, std::string_view text) {
  return name.ends_with(".js")     ? lean_script(text)
         : name.ends_with(".css")  ? lean_style(text)
         : name.ends_with(".json") ? lean_lines(text)
                                   : std::string(text);
}

// f of each entry between commas.
template <class F>
void each_entry(std::string_view list, const F& f) {
  while (!list.empty()) {
    const std::size_t comma = std::min(list.find(','), list.size());
    f(trimmed(list.substr(0, comma)));
    list.remove_prefix(std::min(comma + 1, list.size()));
  }
}

bool matches(const std::string* known, std::string_view tag) {
  bool found = false;
  if (known)
    each_entry(*known, [&](std::string_view one) {
      if (one.starts_with("W/")) one.remove_prefix(2);
      found = found || one == tag || one == "*";
    });
  return found;
}

}  // namespace

bool takes_gzip(const http::Request& request) {
  const std::string* accepted = request.find("accept-encoding");
  bool gzip = false, any = false, named = false;
  if (accepted)
    each_entry(*accepted, [&](std::string_view one) {
      const std::size_t semicolon = std::min(one.find(';'), one.size());
      std::string name(trimmed(one.substr(0, semicolon))), weight(trimmed(one.substr(semicolon)));
      for (char& c : name) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
      const std::size_t q = weight.find("q=");
      const bool wanted = q == std::string::npos || std::strtod(weight.c_str() + q + 2, nullptr) > 0;
      if (name == "gzip" || name == "x-gzip") named = true, gzip = wanted;
      else if (name == "*") any = wanted;
    });
  return named ? gzip : any;
}

WebPage::WebPage() {
  for (const WebFile& f : web_files()) add(concat("/page/", f.name), lean(f.name, f.text));
  for (const PageFile& f : page_files())
    if (std::find(std::begin(kReportAlone), std::end(kReportAlone), f.name) == std::end(kReportAlone))
      add(concat("/page/shared/", f.name), lean(f.name, f.text));
  add("/page/shared/words.json", page_words().dump(0));
  add("/page/shared/colours.json", page_colours().dump(0));
  if (const auto it = files_.find("/page/index.html"); it != files_.end()) files_.emplace("/", it->second);
}

void WebPage::add(std::string name, std::string text) {
  File f{.type = type_of(name), .text = std::move(text), .packed = {}, .tag = {}};
  const std::array<std::byte, 32> digest = sha256(f.text);
  f.tag = base64(std::span(digest).first(12));
  f.packed = gzip(f.text);
  if (f.packed.size() >= f.text.size()) f.packed.clear();
  files_.insert_or_assign(std::move(name), std::move(f));
}

http::Reply WebPage::reply(const http::Request& request) const {
  const auto it = files_.find(request.path);
  if (it == files_.end())
    throw ApiError(404, "route_not_found", concat("the page has no ", request.path.substr(0, 100)));
  const File& f = it->second;
  const bool packed = !f.packed.empty() && takes_gzip(request);
  // Two representations, two tags.
  const std::string tag = concat("\"", f.tag, packed ? "-gz\"" : "\"");
  http::Reply out{.headers = {{"ETag", tag},
                              {"Cache-Control", "no-cache"},
                              {"Vary", "Accept-Encoding"},
                              {"Content-Security-Policy", kPolicy},
                              {"Referrer-Policy", "no-referrer"},
                              {"Cross-Origin-Opener-Policy", "same-origin"},
                              {"Cross-Origin-Resource-Policy", "same-origin"}}};
  if (matches(request.find("if-none-match"), tag)) {
    out.status = 304;
    return out;
  }
  out.headers.push_back({"Content-Type", std::string(f.type)});
  if (packed) out.headers.push_back({"Content-Encoding", "gzip"});
  out.body = packed ? f.packed : f.text;
  return out;
}

}  // namespace rapt::server
