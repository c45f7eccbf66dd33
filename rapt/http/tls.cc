// SPDX-License-Identifier: Apache-2.0
// TLS 1.2 and 1.3 by OpenSSL 3 over memory BIOs; with RAPT_TLS off, one message.
#include "rapt/http/tls.h"

#include "rapt/base/error.h"

#ifndef RAPT_TLS

namespace rapt::http {

std::shared_ptr<const TlsContext> load_tls(const std::string& certificate, const std::string&) {
  fail(
      "TLS with the certificate ", certificate,
      ": this program was built without TLS. Build it with cmake -DRAPT_TLS=ON (OpenSSL 3; Debian: libssl-dev), "
      "or put a proxy that speaks TLS before it");
}

}  // namespace rapt::http

#else

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/ssl.h>

#include <algorithm>
#include <climits>

namespace rapt::http {
namespace {

template <auto f>
struct FreeBy {
  template <class T>
  void operator()(T* p) const {
    f(p);
  }
};
using SslContext = std::unique_ptr<SSL_CTX, FreeBy<SSL_CTX_free>>;
using Ssl = std::unique_ptr<SSL, FreeBy<SSL_free>>;

// The oldest error of this thread; the others are forgotten.
std::string openssl_error() {
  const unsigned long code = ::ERR_get_error();
  ::ERR_clear_error();
  if (code == 0) return "no reason given";
  char text[256];
  ::ERR_error_string_n(code, text, sizeof text);
  return text;
}

// "http/1.1" or nothing: a client that wants only HTTP/2 shall hear it now.
int choose_protocol(SSL*, const unsigned char** out, unsigned char* size, const unsigned char* in,
                    unsigned in_size, void*) {
  constexpr std::string_view kOurs = "http/1.1";
  for (unsigned at = 0; at < in_size; at += 1 + in[at]) {
    const std::string_view theirs(reinterpret_cast<const char*>(in) + at + 1,
                                  std::min<std::size_t>(in[at], in_size - at - 1));
    if (theirs != kOurs) continue;
    *out = in + at + 1;
    *size = in[at];
    return SSL_TLSEXT_ERR_OK;
  }
  return SSL_TLSEXT_ERR_ALERT_FATAL;
}

class OpenSslSession final : public TlsSession {
 public:
  explicit OpenSslSession(SSL_CTX* context) : ssl_(::SSL_new(context)) {
    BIO* in = ::BIO_new(::BIO_s_mem());
    BIO* out = ::BIO_new(::BIO_s_mem());
    if (!ssl_ || in == nullptr || out == nullptr) {
      ::BIO_free(in);
      ::BIO_free(out);
      fail("no TLS session: ", openssl_error());
    }
    ::BIO_set_mem_eof_return(in, -1);  // empty is not over
    ::SSL_set_bio(ssl_.get(), in, out);
    ::SSL_set_accept_state(ssl_.get());
  }

  bool receive(std::string_view bytes, std::string& plain, std::string& wire) override {
    ::ERR_clear_error();
    bool goes_on = put(bytes);
    char buffer[16 << 10];
    while (goes_on) {
      const int n = ::SSL_read(ssl_.get(), buffer, sizeof buffer);  // the handshake, too
      if (n > 0) {
        plain.append(buffer, static_cast<std::size_t>(n));
        continue;
      }
      goes_on = ::SSL_get_error(ssl_.get(), n) == SSL_ERROR_WANT_READ;
      break;
    }
    if (!goes_on) broken_ = (::SSL_get_shutdown(ssl_.get()) & SSL_RECEIVED_SHUTDOWN) == 0;
    take(wire);
    ::ERR_clear_error();
    return goes_on;
  }

  bool send(std::string_view plain, std::string& wire) override {
    ::ERR_clear_error();
    while (!plain.empty()) {
      const int n = ::SSL_write(ssl_.get(), plain.data(),
                                static_cast<int>(std::min<std::size_t>(plain.size(), INT_MAX)));
      if (n <= 0) {
        broken_ = true;
        ::ERR_clear_error();
        return false;
      }
      plain.remove_prefix(static_cast<std::size_t>(n));
      take(wire);
    }
    return true;
  }

  void end(std::string& wire) override {
    if (broken_ || ::SSL_is_init_finished(ssl_.get()) == 0) return;
    ::SSL_shutdown(ssl_.get());
    ::ERR_clear_error();
    take(wire);
  }

 private:
  bool put(std::string_view bytes) {
    return bytes.empty() || ::BIO_write(::SSL_get_rbio(ssl_.get()), bytes.data(),
                                        static_cast<int>(bytes.size())) == static_cast<int>(bytes.size());
  }
  void take(std::string& wire) {
    BIO* out = ::SSL_get_wbio(ssl_.get());
    char* bytes = nullptr;
    const long n = BIO_get_mem_data(out, &bytes);
    if (n > 0) wire.append(bytes, static_cast<std::size_t>(n));
    (void)BIO_reset(out);
  }

  Ssl ssl_;
  bool broken_ = false;  // OpenSSL wants no further call
};

class OpenSslContext final : public TlsContext {
 public:
  OpenSslContext(const std::string& certificate, const std::string& key)
      : context_(::SSL_CTX_new(::TLS_server_method())) {
    ::ERR_clear_error();
    if (!context_) fail("no TLS: ", openssl_error());
    SSL_CTX* c = context_.get();
    ::SSL_CTX_set_min_proto_version(c, TLS1_2_VERSION);
    ::SSL_CTX_set_options(c, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION |
                                 SSL_OP_CIPHER_SERVER_PREFERENCE | SSL_OP_IGNORE_UNEXPECTED_EOF);
    ::SSL_CTX_set_mode(c, SSL_MODE_RELEASE_BUFFERS);
    ::SSL_CTX_set_alpn_select_cb(c, choose_protocol, nullptr);
    if (::SSL_CTX_use_certificate_chain_file(c, certificate.c_str()) != 1)
      fail("TLS: the certificate ", certificate, " cannot be read: ", openssl_error(),
           " (a PEM file with the certificate and those that signed it)");
    if (::SSL_CTX_use_PrivateKey_file(c, key.c_str(), SSL_FILETYPE_PEM) != 1)
      fail("TLS: the key ", key, " cannot be read, or is not that of ", certificate, ": ", openssl_error(),
           " (a PEM file without a password)");
    if (::SSL_CTX_check_private_key(c) != 1)
      fail("TLS: the key ", key, " is not that of the certificate ", certificate);
  }
  std::unique_ptr<TlsSession> accept() const override {
    return std::make_unique<OpenSslSession>(context_.get());
  }

 private:
  SslContext context_;
};

}  // namespace

std::shared_ptr<const TlsContext> load_tls(const std::string& certificate, const std::string& key) {
  return std::make_shared<OpenSslContext>(certificate, key);
}

}  // namespace rapt::http

#endif
