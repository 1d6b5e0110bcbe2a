/* TLS 1.3 with certificates at both ends, through OpenSSL. */
#include "tls.h"

#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#ifndef WEFT_CLIENT_TLS

wc_tls *wc_tls_new(int socket, const char *host, const wc_credentials *credentials,
                   weft_status *status) {
  (void)socket, (void)host, (void)credentials;
  wc_fail(status, WEFT_UNIMPLEMENTED,
          "this library was built without TLS: build it with OpenSSL, or use no certificates");
  return NULL;
}
void wc_tls_free(wc_tls *tls) { (void)tls; }
weft_code wc_tls_handshake(wc_tls *tls, short *events, weft_status *status) {
  (void)tls, (void)events;
  return wc_fail(status, WEFT_UNIMPLEMENTED, "no TLS");
}
weft_code wc_tls_send(wc_tls *tls, const void *data, size_t size, size_t *sent, short *events,
                      weft_status *status) {
  (void)tls, (void)data, (void)size, (void)sent, (void)events;
  return wc_fail(status, WEFT_UNIMPLEMENTED, "no TLS");
}
weft_code wc_tls_receive(wc_tls *tls, void *data, size_t size, size_t *received, short *events,
                         weft_status *status) {
  (void)tls, (void)data, (void)size, (void)received, (void)events;
  return wc_fail(status, WEFT_UNIMPLEMENTED, "no TLS");
}

#else

#include <arpa/inet.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

enum { RECORD_BYTES = 1 << 14 };

struct wc_tls {
  SSL_CTX *context;
  SSL *ssl;
  pthread_mutex_t lock; /* of `ssl`, which a reader and a writer share */
};

static weft_code bad_file(const char *what, const char *path, weft_status *status) {
  char text[256];
  ERR_error_string_n(ERR_get_error(), text, sizeof text);
  return wc_fail(status, WEFT_INVALID_ARGUMENT, "%s cannot be read as the %s of this client: %s",
                 path, what, text);
}

static weft_code load(SSL_CTX *context, const wc_credentials *files, weft_status *status) {
  if (SSL_CTX_use_certificate_chain_file(context, files->certificate) != 1)
    return bad_file("certificate", files->certificate, status);
  if (SSL_CTX_use_PrivateKey_file(context, files->key, SSL_FILETYPE_PEM) != 1)
    return bad_file("key", files->key, status);
  if (SSL_CTX_load_verify_locations(context, files->authority, NULL) != 1)
    return bad_file("authority", files->authority, status);
  return WEFT_OK;
}

static bool set_host(SSL *ssl, const char *host) {
  unsigned char address[16];
  bool is_address = inet_pton(AF_INET, host, address) == 1 || inet_pton(AF_INET6, host, address) == 1;
  if (is_address) return X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(ssl), host) == 1;
  SSL_set_hostflags(ssl, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
  return SSL_set1_host(ssl, host) == 1 && SSL_set_tlsext_host_name(ssl, host) == 1;
}

wc_tls *wc_tls_new(int socket, const char *host, const wc_credentials *credentials,
                   weft_status *status) {
  wc_tls *tls = calloc(1, sizeof *tls);
  if (!tls) {
    wc_no_memory(status);
    return NULL;
  }
  pthread_mutex_init(&tls->lock, NULL);
  ERR_clear_error();
  tls->context = SSL_CTX_new(TLS_client_method());
  if (!tls->context || load(tls->context, credentials, status)) {
    if (!tls->context) wc_no_memory(status);
    wc_tls_free(tls);
    return NULL;
  }
  SSL_CTX_set_min_proto_version(tls->context, TLS1_3_VERSION);
  SSL_CTX_set_verify(tls->context, SSL_VERIFY_PEER, NULL);
  tls->ssl = SSL_new(tls->context);
  if (!tls->ssl || !set_host(tls->ssl, host) || SSL_set_fd(tls->ssl, socket) != 1) {
    wc_no_memory(status);
    wc_tls_free(tls);
    return NULL;
  }
  SSL_set_mode(tls->ssl, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
  SSL_set_connect_state(tls->ssl);
  return tls;
}

void wc_tls_free(wc_tls *tls) {
  if (!tls) return;
  SSL_free(tls->ssl);
  SSL_CTX_free(tls->context);
  pthread_mutex_destroy(&tls->lock);
  free(tls);
}

/* The reason why the server ended a connection, from the alert that it sent. */
static const char *alert_reason(unsigned long error) {
  switch (ERR_GET_REASON(error)) {
    case SSL_R_SSLV3_ALERT_CERTIFICATE_EXPIRED:
      return "refuses this client's certificate: it has expired";
    case SSL_R_TLSV1_ALERT_UNKNOWN_CA:
      return "refuses this client's certificate: it is of another authority";
    case SSL_R_SSLV3_ALERT_CERTIFICATE_REVOKED:
      return "refuses this client's certificate: it was revoked";
    case SSL_R_SSLV3_ALERT_BAD_CERTIFICATE:
    case SSL_R_SSLV3_ALERT_CERTIFICATE_UNKNOWN:
    case SSL_R_SSLV3_ALERT_UNSUPPORTED_CERTIFICATE:
    case SSL_R_TLSV1_ALERT_DECRYPT_ERROR:
      return "refuses this client's certificate";
    case SSL_R_SSLV3_ALERT_HANDSHAKE_FAILURE:
    case SSL_R_TLSV13_ALERT_CERTIFICATE_REQUIRED:
      return "wants a certificate";
    case SSL_R_WRONG_VERSION_NUMBER:
      return "does not speak TLS, and this client has certificates";
    default:
      return NULL;
  }
}

static weft_code failure(wc_tls *tls, int kind, weft_status *status) {
  long verified = SSL_get_verify_result(tls->ssl);
  if (verified != X509_V_OK)
    return wc_fail(status, WEFT_UNAUTHENTICATED, "the certificate of the server is refused: %s",
                   X509_verify_cert_error_string(verified));
  unsigned long error = ERR_get_error();
  const char *reason = alert_reason(error);
  if (reason) return wc_fail(status, WEFT_UNAUTHENTICATED, "the server %s", reason);
  char text[256] = "the server ended it";
  if (kind == SSL_ERROR_SSL && error) ERR_error_string_n(error, text, sizeof text);
  return wc_fail(status, WEFT_UNAVAILABLE, "the connection to the server is lost: %s", text);
}

/* OpenSSL writes to sockets without MSG_NOSIGNAL, so a lost server would end the program. */
typedef struct pipe_signal {
  sigset_t before;
  bool was_pending;
} pipe_signal;

static pipe_signal block_pipe_signal(void) {
  pipe_signal state;
  sigset_t pipe, pending;
  sigemptyset(&pipe);
  sigaddset(&pipe, SIGPIPE);
  sigpending(&pending);
  state.was_pending = sigismember(&pending, SIGPIPE);
  pthread_sigmask(SIG_BLOCK, &pipe, &state.before);
  return state;
}

static void unblock_pipe_signal(const pipe_signal *state) {
  sigset_t pipe;
  sigemptyset(&pipe);
  sigaddset(&pipe, SIGPIPE);
  const struct timespec at_once = {0};
  if (!state->was_pending) sigtimedwait(&pipe, NULL, &at_once);
  pthread_sigmask(SIG_SETMASK, &state->before, NULL);
}

/* Classify a result of OpenSSL: done, to be repeated after `events`, or an error. */
static weft_code check(wc_tls *tls, int result, short *events, weft_status *status) {
  *events = 0;
  if (result > 0) return WEFT_OK;
  int kind = SSL_get_error(tls->ssl, result);
  if (kind == SSL_ERROR_WANT_READ || kind == SSL_ERROR_WANT_WRITE) {
    *events = kind == SSL_ERROR_WANT_READ ? POLLIN : POLLOUT;
    return WEFT_OK;
  }
  return failure(tls, kind, status);
}

weft_code wc_tls_handshake(wc_tls *tls, short *events, weft_status *status) {
  ERR_clear_error();
  pipe_signal signals = block_pipe_signal();
  weft_code code = check(tls, SSL_do_handshake(tls->ssl), events, status);
  unblock_pipe_signal(&signals);
  return code;
}

weft_code wc_tls_send(wc_tls *tls, const void *data, size_t size, size_t *sent, short *events,
                      weft_status *status) {
  pthread_mutex_lock(&tls->lock);
  ERR_clear_error();
  *sent = 0;
  pipe_signal signals = block_pipe_signal();
  int result = SSL_write_ex(tls->ssl, data, size < RECORD_BYTES ? size : RECORD_BYTES, sent);
  weft_code code = check(tls, result, events, status);
  unblock_pipe_signal(&signals);
  pthread_mutex_unlock(&tls->lock);
  return code;
}

weft_code wc_tls_receive(wc_tls *tls, void *data, size_t size, size_t *received, short *events,
                         weft_status *status) {
  pthread_mutex_lock(&tls->lock);
  ERR_clear_error();
  *received = 0;
  pipe_signal signals = block_pipe_signal(); /* it may answer with an alert */
  int result = SSL_read_ex(tls->ssl, data, size, received);
  bool is_end = result <= 0 && SSL_get_error(tls->ssl, result) == SSL_ERROR_ZERO_RETURN;
  *events = 0;
  weft_code code = is_end ? WEFT_OK : check(tls, result, events, status);
  unblock_pipe_signal(&signals);
  pthread_mutex_unlock(&tls->lock);
  return code;
}

#endif
