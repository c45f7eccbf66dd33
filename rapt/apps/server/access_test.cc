// SPDX-License-Identifier: Apache-2.0
// Keys, names of this machine and origins of pages, one by one.
#include "rapt/apps/server/access.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>

#include "rapt/apps/server/metrics.h"
#include "rapt/base/error.h"

namespace rapt::server {
namespace {

using testing::HasSubstr;

http::Request asked(std::vector<http::Header> headers) {
  http::Request r;
  r.method = "POST";
  r.path = "/v1/chat/completions";
  r.peer = "127.0.0.1";
  r.headers = std::move(headers);
  return r;
}

TEST(Access, KeysAreComparedWhole) {
  const Access open({});
  EXPECT_FALSE(open.keyed());
  EXPECT_TRUE(open.key_of(asked({})));
  EXPECT_TRUE(open.key_of(asked({{"authorization", "Bearer whatever"}})));
  const Access keyed({.keys = {"first-key-1", "second-key-2"}});
  const auto key = [&](const char* name, const char* value) { return keyed.key_of(asked({{name, value}})); };
  EXPECT_EQ(key("authorization", "Bearer first-key-1"), 0u);
  EXPECT_EQ(key("authorization", "bearer second-key-2"), 1u);
  EXPECT_EQ(key("x-api-key", "second-key-2"), 1u);
  EXPECT_FALSE(keyed.key_of(asked({})));
  for (const char* wrong : {"Bearer first-key", "Bearer first-key-11", "Bearer ", "Bearer",
                            "Basic first-key-1", "first-key-1", "Bearer FIRST-KEY-1"})
    EXPECT_FALSE(key("authorization", wrong)) << wrong;
}

TEST(Access, OnlyNamesOfThisMachineAreAnswered) {
  const Access local({.hosts = {"models.example"}}), reachable({.reachable = true});
  const auto allowed = [](const Access& a, const char* host) {
    return a.host_allowed(asked({{"host", host}}));
  };
  for (const char* host :
       {"localhost", "localhost:8642", "LOCALHOST:1", "127.0.0.1:8642", "127.1.2.3", "[::1]:8642", "[::1]",
        "a.localhost", "localhost.", "models.example:99", "Models.Example."})
    EXPECT_TRUE(allowed(local, host)) << host;
  for (const char* host :
       {"evil.example", "evil.example:8642", "localhost.evil.example", "127.0.0.1.evil.example",
        "192.168.1.2", "::1", "[::1", "[::1]x", "", "localhost:99999999", "localhost:a", "evil.example."})
    EXPECT_FALSE(allowed(local, host)) << host;
  EXPECT_FALSE(local.host_allowed(asked({})));
  EXPECT_TRUE(allowed(reachable, "192.168.1.2:8642"));
  EXPECT_FALSE(allowed(reachable, "evil.example"));
  http::Request by_socket = asked({});
  by_socket.peer = "unix";
  EXPECT_TRUE(local.host_allowed(by_socket));
}

TEST(Access, PagesOfOtherOriginsGetNothing) {
  const Access a({.hosts = {"models.example"}, .origins = {"https://notes.example"}});
  const auto allowed = [&](const char* origin, const char* host = "127.0.0.1:8642") {
    return a.origin_allowed(asked({{"host", host}, {"origin", origin}}));
  };
  EXPECT_TRUE(a.origin_allowed(asked({{"host", "127.0.0.1"}})));
  for (const char* origin :
       {"http://localhost:3000", "http://127.0.0.1", "https://notes.example", "HTTPS://Notes.Example"})
    EXPECT_TRUE(allowed(origin)) << origin;
  EXPECT_TRUE(allowed("https://models.example", "models.example:8642"));
  for (const char* origin :
       {"null", "file://", "https://evil.example", "http://localhost.evil.example",
        "http://localhost@evil.example", "https://models.example", "ftp://localhost", ""})
    EXPECT_FALSE(allowed(origin)) << origin;
  EXPECT_TRUE(a.cors(asked({{"host", "127.0.0.1"}, {"origin", "https://evil.example"}})).empty());
  const auto headers = a.cors(asked({{"host", "127.0.0.1"}, {"origin", "http://localhost:3000"}}));
  ASSERT_FALSE(headers.empty());
  EXPECT_EQ(headers[0].value, "http://localhost:3000");
  const http::Reply pre =
      a.preflight(asked({{"host", "127.0.0.1"},
                         {"origin", "http://localhost:3000"},
                         {"access-control-request-headers", "Authorization, X-Evil,x-stainless-os"}}));
  EXPECT_EQ(pre.status, 204);
  bool told = false;
  for (const http::Header& h : pre.headers)
    if (h.name == "Access-Control-Allow-Headers") told = h.value == "authorization, x-stainless-os";
  EXPECT_TRUE(told);
}

TEST(Access, KeyFilesAreSecret) {
  const std::string path = std::filesystem::temp_directory_path() / "rapt-access-keys";
  const auto put = [&](const char* text, mode_t mode) {
    std::ofstream(path) << text;
    chmod(path.c_str(), mode);
  };
  const auto error = [&] {
    try {
      read_keys(path);
    } catch (const Error& e) {
      return std::string(e.what());
    }
    return std::string();
  };
  put("# ours\nabcdefgh12\n\nsecond-key  \n", 0600);
  EXPECT_EQ(read_keys(path), (std::vector<std::string>{"abcdefgh12", "second-key"}));
  put("abcdefgh12\n", 0644);
  EXPECT_THAT(error(), HasSubstr("chmod 600"));
  put("# none\n", 0600);
  EXPECT_THAT(error(), HasSubstr("no key"));
  put("short\n", 0600);
  EXPECT_THAT(error(), HasSubstr("8 characters"));
  std::filesystem::remove(path);
  EXPECT_THAT(error(), HasSubstr("cannot be read"));
}

TEST(Metrics, HistogramsCountByBounds) {
  Histogram h(kSeconds);
  for (const double x : {0.0005, 0.001, 0.0011, 0.049, 0.05, 700.0}) h.add(x);
  h.add(0.02, 4);
  EXPECT_EQ(h.count(), 10u);
  EXPECT_DOUBLE_EQ(h.sum(), 0.0005 + 0.001 + 0.0011 + 0.049 + 0.05 + 700 + 4 * 0.02);
  EXPECT_DOUBLE_EQ(h.quantile(0.2), 0.001);
  EXPECT_DOUBLE_EQ(h.quantile(0.7), 0.02);
  EXPECT_DOUBLE_EQ(h.quantile(0.9), 0.05);
  EXPECT_TRUE(h.quantile(1) > 1e300);
  std::string out;
  h.write(out, "x", label("model", "a\"b\n"));
  EXPECT_THAT(out, HasSubstr("x_bucket{model=\"a\\\"b\\n\",le=\"0.001\"} 2\n"));
  EXPECT_THAT(out, HasSubstr("le=\"0.05\"} 9\n"));
  EXPECT_THAT(out, HasSubstr("le=\"+Inf\"} 10\n"));
  EXPECT_THAT(out, HasSubstr("x_count{model=\"a\\\"b\\n\"} 10\n"));
}

}  // namespace
}  // namespace rapt::server
