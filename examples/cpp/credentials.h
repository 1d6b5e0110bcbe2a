// What a client shows to a server, and by which it believes the server: files, as of the Python
// package. See docs/security.md.

#pragma once

#include <fcntl.h>
#include <grpcpp/grpcpp.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <stdexcept>
#include <string>

namespace weft {

// The token that a living server of this user on loopback has published for a port; empty without
// one. The server holds a lock on the file, which only its user can read.
inline std::string PublishedToken(const std::string& port) {
  const char *named = std::getenv("WEFT_RUNTIME_DIR"), *home = std::getenv("HOME");
  const std::string folder =
      named ? named : std::string(home ? home : "") + "/.local/state/weft/servers";
  const std::string end = "-127.0.0.1-" + port;
  std::error_code absent;
  for (const auto& entry : std::filesystem::directory_iterator(folder, absent)) {
    const std::string name = entry.path().filename();
    if (name.size() < end.size() || name.compare(name.size() - end.size(), end.size(), end) != 0)
      continue;
    const int file = open(entry.path().c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    if (file < 0) continue;
    struct stat found {};
    char token[1024];
    ssize_t size = 0;
    const bool is_private =
        fstat(file, &found) == 0 && found.st_uid == geteuid() && !(found.st_mode & 077);
    if (is_private && flock(file, LOCK_SH | LOCK_NB) != 0) size = read(file, token, sizeof token);
    close(file);
    if (size > 0) return std::string(token, size);
  }
  return "";
}

// The files that the environment names; without a certificate nothing is encrypted.
struct Credentials {
  std::string certificate = Named("WEFT_CERTIFICATE"), key = Named("WEFT_KEY"),
              authority = Named("WEFT_AUTHORITY"), token_file = Named("WEFT_TOKEN");

  bool secure() const { return !certificate.empty(); }

  // "localhost" stands for two addresses, and another user's program could listen on the other one.
  std::string Host(const std::string& host) const {
    return host == "localhost" && !secure() ? "127.0.0.1" : host;
  }

  // The token without the white space around it, or the one that a server on loopback has
  // published for a port; empty where there is none.
  std::string token(const std::string& host, const std::string& port) const {
    if (token_file.empty()) return host == "127.0.0.1" && !secure() ? PublishedToken(port) : "";
    const std::string text = Content(token_file), space = " \t\r\n";
    const auto first = text.find_first_not_of(space);
    return first == text.npos ? "" : text.substr(first, text.find_last_not_of(space) - first + 1);
  }

  std::shared_ptr<grpc::ChannelCredentials> ForControl() const {
    if (!secure()) return grpc::InsecureChannelCredentials();
    grpc::SslCredentialsOptions options;
    options.pem_root_certs = Content(authority);
    options.pem_private_key = Content(key);
    options.pem_cert_chain = Content(certificate);
    return grpc::SslCredentials(options);
  }

 private:
  static std::string Named(const char* variable) {
    const char* found = std::getenv(variable);
    return found ? found : "";
  }

  static std::string Content(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    if (!file) throw std::runtime_error("credentials cannot be read from " + path);
    return {std::istreambuf_iterator<char>(file), {}};
  }
};

// TLS 1.3 over a connected socket, whose other end must be `host`.
class Tls {
 public:
  Tls(const Credentials& credentials, const std::string& host, int socket)
      : context_(SSL_CTX_new(TLS_client_method()), SSL_CTX_free) {
    SSL_CTX* context = context_.get();
    SSL_CTX_set_verify(context, SSL_VERIFY_PEER, nullptr);
    Check(SSL_CTX_set_min_proto_version(context, TLS1_3_VERSION));
    Check(SSL_CTX_use_certificate_chain_file(context, credentials.certificate.c_str()));
    Check(SSL_CTX_use_PrivateKey_file(context, credentials.key.c_str(), SSL_FILETYPE_PEM));
    Check(SSL_CTX_load_verify_locations(context, credentials.authority.c_str(), nullptr));
    ssl_.reset(SSL_new(context));
    Check(SSL_set1_host(ssl_.get(), host.c_str()));
    Check(SSL_set_tlsext_host_name(ssl_.get(), host.c_str()));
    Check(SSL_set_fd(ssl_.get(), socket));
    Check(SSL_connect(ssl_.get()));
  }

  // How many bytes went or came; 0 or less where the connection ended.
  long Write(const void* data, size_t size) {
    return SSL_write(ssl_.get(), data, static_cast<int>(std::min(size, kMost)));
  }
  long Read(void* data, size_t size) {
    return SSL_read(ssl_.get(), data, static_cast<int>(std::min(size, kMost)));
  }

 private:
  static constexpr size_t kMost = 1 << 30;

  static void Check(long result) {
    if (result == 1) return;
    char text[256];
    ERR_error_string_n(ERR_get_error(), text, sizeof text);
    throw std::runtime_error(std::string("TLS: ") + text);
  }

  std::unique_ptr<SSL_CTX, decltype(&SSL_CTX_free)> context_;
  std::unique_ptr<SSL, decltype(&SSL_free)> ssl_{nullptr, SSL_free};
};

}  // namespace weft
