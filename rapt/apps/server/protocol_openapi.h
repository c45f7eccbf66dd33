// SPDX-License-Identifier: Apache-2.0
// An OpenAPI 3.1 document of the routes: paths from a table of routes, request schemas from the tables of
// fields that the readers use (protocol_fields.h).
#pragma once
#include <span>
#include <string>
#include <string_view>

namespace rapt::server {

struct Route {
  std::string_view method, path;  // "POST", "/v1/models/{id}"
  std::string_view summary;
  std::string_view request = {};  // a table of fields: "chat"; "": no body
  bool open = false;              // answered without a key
  bool streams = false;           // may answer with text/event-stream
  std::string_view reply = "application/json";
};
// Those that this protocol is about, under one name each.
std::span<const Route> protocol_routes();

std::string openapi_json(std::span<const Route> routes, std::string_view version);

}  // namespace rapt::server
