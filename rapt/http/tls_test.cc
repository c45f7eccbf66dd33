// SPDX-License-Identifier: Apache-2.0
// TLS end to end, in builds that have it: a client of OpenSSL's on loopback, with certificates made here.
#ifdef RAPT_TLS
#include "rapt/http/tls.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>

#include "rapt/base/error.h"
#include "rapt/http/server.h"

namespace rapt::http::test {
namespace {

// A key and a certificate that signs itself, as two PEM files.
void make_certificate(const std::string& name, const std::string& certificate, const std::string& key) {
  EVP_PKEY* pair = ::EVP_EC_gen("P-256");
  X509* x = ::X509_new();
  ::ASN1_INTEGER_set(::X509_get_serialNumber(x), 1);
  ::X509_gmtime_adj(::X509_getm_notBefore(x), -60);
  ::X509_gmtime_adj(::X509_getm_notAfter(x), 3600);
  ::X509_set_pubkey(x, pair);
  X509_NAME* subject = ::X509_get_subject_name(x);
  ::X509_NAME_add_entry_by_txt(subject, "CN", MBSTRING_ASC,
                               reinterpret_cast<const unsigned char*>(name.c_str()), -1, -1, 0);
  ::X509_set_issuer_name(x, subject);
  ::X509_sign(x, pair, ::EVP_sha256());
  if (std::FILE* f = std::fopen(certificate.c_str(), "w")) {
    ::PEM_write_X509(f, x);
    std::fclose(f);
  }
  if (std::FILE* f = std::fopen(key.c_str(), "w")) {
    ::PEM_write_PrivateKey(f, pair, nullptr, nullptr, 0, nullptr, nullptr);
    std::fclose(f);
  }
  ::X509_free(x);
  ::EVP_PKEY_free(pair);
}

struct TlsAnswer {
  bool connected = false;
  std::string name, version, protocol, text;  // text: all that came until the end
};

TlsAnswer ask_by_tls(int port, const std::string& request, int most_version = TLS1_3_VERSION,
                     const std::string& offer = "http/1.1") {
  TlsAnswer out;
  const int fd = ::socket(AF_INET, SOCK_STREAM, 0);
  const timeval patience = {.tv_sec = 60, .tv_usec = 0};
  ::setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  sockaddr_in to = {};
  to.sin_family = AF_INET;
  to.sin_port = htons(static_cast<std::uint16_t>(port));
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(::connect(fd, reinterpret_cast<sockaddr*>(&to), sizeof to), 0);
  SSL_CTX* context = ::SSL_CTX_new(::TLS_client_method());
  ::SSL_CTX_set_security_level(context, 0);
  ::SSL_CTX_set_min_proto_version(context, TLS1_VERSION);
  ::SSL_CTX_set_max_proto_version(context, most_version);
  const std::string list = static_cast<char>(offer.size()) + offer;
  ::SSL_CTX_set_alpn_protos(context, reinterpret_cast<const unsigned char*>(list.data()),
                            static_cast<unsigned>(list.size()));
  SSL* ssl = ::SSL_new(context);
  ::SSL_set_fd(ssl, fd);
  if (::SSL_connect(ssl) == 1) {
    out.connected = true;
    out.version = ::SSL_get_version(ssl);
    const unsigned char* chosen = nullptr;
    unsigned size = 0;
    ::SSL_get0_alpn_selected(ssl, &chosen, &size);
    out.protocol.assign(reinterpret_cast<const char*>(chosen), size);
    if (X509* x = ::SSL_get1_peer_certificate(ssl)) {
      char text[100] = {};
      ::X509_NAME_get_text_by_NID(::X509_get_subject_name(x), NID_commonName, text, sizeof text);
      out.name = text;
      ::X509_free(x);
    }
    ::SSL_write(ssl, request.data(), static_cast<int>(request.size()));
    char buffer[10000];
    int n = 0;
    while ((n = ::SSL_read(ssl, buffer, sizeof buffer)) > 0)
      out.text.append(buffer, static_cast<std::size_t>(n));
    if (::SSL_get_error(ssl, n) != SSL_ERROR_ZERO_RETURN) out.text += " [torn off]";
  }
  ::SSL_free(ssl);
  ::SSL_CTX_free(context);
  ::close(fd);
  return out;
}

class TlsHandler : public Handler {
 public:
  void on_request(Exchange e, Request r) override {
    if (r.path != "/stream") return server->reply(e, {.body = r.method + " " + r.body});
    server->begin(e, 200, {});
    for (int i = 0; i < 100; ++i) server->write(e, std::string(10'000, 'x'));
    server->end(e);
  }
  Server* server = nullptr;
};

TEST(HttpTls, EndToEnd) {
  const std::filesystem::path folder =
      std::filesystem::temp_directory_path() / ("rapt_tls_" + std::to_string(::getpid()));
  std::filesystem::create_directories(folder);
  const std::string certificate = folder / "certificate.pem", key = folder / "key.pem",
                    other = folder / "other.pem";
  make_certificate("first", certificate, key);
  make_certificate("other", other, folder / "other_key.pem");
  TlsHandler handler;
  Server server(handler, {.head_seconds = 1});
  handler.server = &server;
  EXPECT_THROW(server.use_tls(folder / "absent.pem", key), Error);
  EXPECT_THROW(server.use_tls(certificate, folder / "absent.pem"), Error);
  EXPECT_THROW(server.use_tls(other, key), Error);  // not its key
  server.use_tls(certificate, key);
  const int port = server.listen("127.0.0.1", 0);
  std::thread thread([&] { server.run(); });

  const std::string body(300'000, 'b'), close = " HTTP/1.1\r\nHost: x\r\nConnection: close\r\n";
  for (const int version : {TLS1_2_VERSION, TLS1_3_VERSION}) {
    const TlsAnswer put = ask_by_tls(
        port, "PUT /" + close + "Content-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body,
        version);
    EXPECT_TRUE(put.connected);
    EXPECT_EQ(put.version, version == TLS1_2_VERSION ? "TLSv1.2" : "TLSv1.3");
    EXPECT_EQ(put.protocol, "http/1.1");
    EXPECT_EQ(put.name, "first");
    EXPECT_TRUE(put.text.ends_with("\r\n\r\nPUT " + body)) << put.text.substr(0, 300);
    const TlsAnswer stream = ask_by_tls(port, "GET /stream" + close + "\r\n", version);
    EXPECT_TRUE(stream.text.ends_with("\r\n0\r\n\r\n"));
    EXPECT_GT(stream.text.size(), 1'000'000u);
    EXPECT_NE(ask_by_tls(port, "nonsense\r\n\r\n", version).text.find("400 Bad Request"), std::string::npos);
  }
  EXPECT_FALSE(ask_by_tls(port, "", TLS1_1_VERSION).connected);
  EXPECT_FALSE(ask_by_tls(port, "", TLS1_3_VERSION, "h2").connected);

  // A new certificate for new connections; one that cannot be read leaves the old one in its place.
  make_certificate("second", certificate, key);
  std::string failure;
  server.post([&] { server.reload_tls(); });
  EXPECT_EQ(ask_by_tls(port, "GET /" + close + "\r\n").name, "second");
  std::filesystem::remove(key);
  server.post([&] {
    try {
      server.reload_tls();
    } catch (const Error& error) {
      failure = error.what();
    }
  });
  EXPECT_EQ(ask_by_tls(port, "GET /" + close + "\r\n").name, "second");

  // Plain HTTP at a port with TLS: closed, not answered.
  const int fd = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in to = {};
  to.sin_family = AF_INET;
  to.sin_port = htons(static_cast<std::uint16_t>(port));
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  ASSERT_EQ(::connect(fd, reinterpret_cast<sockaddr*>(&to), sizeof to), 0);
  ASSERT_GT(::send(fd, "GET / HTTP/1.1\r\n\r\n", 18, MSG_NOSIGNAL), 0);
  std::string got;
  char buffer[1000];
  ssize_t n = 0;
  while ((n = ::recv(fd, buffer, sizeof buffer, 0)) > 0) got.append(buffer, static_cast<std::size_t>(n));
  EXPECT_EQ(got.find("HTTP/"), std::string::npos);
  ::close(fd);
  server.stop();
  thread.join();
  EXPECT_NE(failure.find("key.pem"), std::string::npos) << failure;
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace rapt::http::test
#endif
