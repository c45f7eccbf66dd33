// SPDX-License-Identifier: Apache-2.0
// The page that browsers get: files out of a table inside the program, under a policy that lets them run and
// ask nothing but this server. A name is looked up, never opened: no path of a request reaches a file.
//   /             apps/web/index.html
//   /page/NAME    apps/web/NAME
//   /page/shared/NAME   of report/page/, scripts and styles; words.json, colours.json: what they draw with
#pragma once
#include <map>
#include <string>
#include <string_view>

#include "rapt/http/message.h"

namespace rapt::server {

class WebPage {
 public:
  WebPage();
  // 200 or 304, packed where the client takes that; 404 for a name that is not in the table.
  http::Reply reply(const http::Request& request) const;

 private:
  struct File {
    std::string_view type;
    std::string text, packed, tag;  // packed: gzip; "" where it would not be shorter
  };
  void add(std::string name, std::string text);
  std::map<std::string, File, std::less<>> files_;  // by path
};

// Whether a client takes gzip: Accept-Encoding, with its weights (RFC 9110, 12.5.3).
bool takes_gzip(const http::Request& request);

}  // namespace rapt::server
