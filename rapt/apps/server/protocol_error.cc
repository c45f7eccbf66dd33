// SPDX-License-Identifier: Apache-2.0
// Statuses, error bodies and the headers that steer a client's retries.
#include "rapt/apps/server/protocol_error.h"

#include <algorithm>
#include <cmath>
#include <new>

#include "rapt/apps/server/protocol_reply.h"
#include "rapt/base/text.h"

namespace rapt::server {

std::string_view error_type(int status) {
  switch (status) {
    case 401: return "authentication_error";
    case 403: return "permission_error";
    case 404: return "not_found_error";
    case 408:
    case 504: return "timeout_error";
    case 429: return "rate_limit_error";
    case 503: return "unavailable_error";
    default: return status >= 500 ? "server_error" : "invalid_request_error";
  }
}

ApiError::ApiError(int status_, std::string_view code_, std::string message_, std::string_view param_,
                   double retry_after_)
    : status(status_),
      type(error_type(status_)),
      code(code_),
      param(param_),
      message(std::move(message_)),
      retry_after(retry_after_) {}

std::string error_body(const ApiError& error) {
  std::string out = "{\"error\":{\"message\":";
  const auto text_or_null = [&](std::string_view text) {
    if (text.empty()) out += "null";
    else append_quoted(out, text);
  };
  append_quoted(out, error.message);
  out += ",\"type\":";
  append_quoted(out, error.type);
  out += ",\"param\":";
  text_or_null(error.param);
  out += ",\"code\":";
  text_or_null(error.code);
  return out += "}}";
}

std::string error_event(const ApiError& error) { return sse(error_body(error)); }

http::Reply error_reply(const ApiError& error) {
  http::Reply reply{
      .status = error.status, .headers = {{"Content-Type", "application/json"}}, .body = error_body(error)};
  if (error.retry_after > 0) {
    const double seconds = std::clamp(error.retry_after, 0.001, 120.0);
    const auto whole = static_cast<Dim>(std::clamp(std::ceil(seconds), 1.0, 120.0));
    reply.headers.push_back({"Retry-After", std::to_string(whole)});
    reply.headers.push_back({"retry-after-ms", std::to_string(static_cast<Dim>(std::ceil(seconds * 1000)))});
  }
  if (error.status == 401) reply.headers.push_back({"WWW-Authenticate", "Bearer"});
  if (error.status == 500) reply.headers.push_back({"x-should-retry", "false"});
  return reply;
}

ApiError api_error(const std::exception_ptr& thrown, bool of_request) {
  try {
    if (thrown) std::rethrow_exception(thrown);
  } catch (const ApiError& error) {
    return error;
  } catch (const Error& error) {
    if (of_request || error.is_usage()) return {400, "invalid_value", error.what()};
  } catch (const std::bad_alloc&) {
    return {503, "out_of_memory", "There is not enough memory for this request now; try again later.", "", 5};
  } catch (...) {}
  return {500, "internal_error", "The server could not answer this request; its log says why."};
}

ApiError context_error(Dim prompt, Dim answer, Dim context) {
  const std::string asked = answer > 0 ? concat(" and an answer of ", counted(answer, "token"), " make ",
                                                with_commas(prompt + answer), ", and")
                                       : concat(prompt < context ? "," : " leaves no room for an answer:");
  return {
      400, "context_length_exceeded",
      concat("The prompt of ", counted(prompt, "token"), asked, " the context holds ", with_commas(context),
             ". Shorten the prompt", answer > 0 ? " or ask for fewer tokens." : "."),
      answer > 0 ? "max_tokens" : "messages"};
}

ApiError model_error(std::string_view model, std::string_view names) {
  return {404, "model_not_found",
          concat("There is no model '", model.substr(0, 128), "' here; there is ", names, "."), "model"};
}

}  // namespace rapt::server
