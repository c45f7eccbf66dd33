// SPDX-License-Identifier: Apache-2.0
// What a client is told when its request cannot be answered: a status, and OpenAI's error body
//   {"error": {"message": string, "type": string, "param": string | null, "code": string | null}}
// Clients retry by status (408, 429 and from 500 on), so bad input is never a 5xx.
#pragma once
#include <cstdint>
#include <exception>
#include <string>
#include <string_view>

#include "rapt/base/error.h"
#include "rapt/http/message.h"

namespace rapt::server {

struct ApiError : std::exception {
  // The type follows from the status: invalid_request_error, rate_limit_error …
  ApiError(int status, std::string_view code, std::string message, std::string_view param = "",
           double retry_after = 0);
  const char* what() const noexcept override { return message.c_str(); }

  int status;
  std::string type, code, param, message;  // code and param: "" is null
  double retry_after;                      // seconds, by the queue's own estimate; 0: no header
};

std::string_view error_type(int status);
std::string error_body(const ApiError& error);   // {"error":{…}}
std::string error_event(const ApiError& error);  // data: {"error":{…}}\n\n: the last event of a broken stream
// With Content-Type; Retry-After as whole seconds of 1 to 120 (above, OpenAI's clients do not retry at all)
// and retry-after-ms where retry_after is set; WWW-Authenticate with 401; x-should-retry: false with 500.
http::Reply error_reply(const ApiError& error);

// What something that was thrown means to a client: an ApiError itself; rapt::Error of the kind usage a 400
// `invalid_value` with its message; no memory a 503 `out_of_memory`; everything else a 500 whose message says
// nothing of the inside.
ApiError api_error(const std::exception_ptr& thrown);
// 400 context_length_exceeded, with the numbers. answer < 0: none was asked for.
ApiError context_error(Dim prompt, Dim answer, Dim context);
// 404 model_not_found with the names there are.
ApiError model_error(std::string_view model, std::string_view names);

}  // namespace rapt::server
