/* Sockets, with TLS through OpenSSL where it is compiled in (WEFT_CLIENT_TLS). */
#include "internal.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "tls.h"

struct wc_stream {
  int socket;
  wc_tls *tls; /* NULL without certificates */
};

/* --------------------------------------------------------------------------------- time */

int64_t wc_now(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

int64_t wc_deadline(int64_t timeout_ms, int64_t default_ms) {
  int64_t timeout = timeout_ms ? timeout_ms : default_ms;
  if (timeout < 0 || timeout > INT64_MAX / 4) return WC_NEVER;
  return wc_now() + timeout + 1; /* the clock is rounded down: wait at least the timeout */
}

void wc_condition_init(pthread_cond_t *condition) {
  pthread_condattr_t attributes;
  pthread_condattr_init(&attributes);
  pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
  pthread_cond_init(condition, &attributes);
  pthread_condattr_destroy(&attributes);
}

bool wc_wait_until(pthread_cond_t *condition, pthread_mutex_t *lock, int64_t deadline) {
  if (deadline == WC_NEVER) {
    pthread_cond_wait(condition, lock);
    return true;
  }
  struct timespec end = {.tv_sec = (time_t)(deadline / 1000),
                         .tv_nsec = (long)(deadline % 1000) * 1000000};
  return pthread_cond_timedwait(condition, lock, &end) != ETIMEDOUT;
}

weft_code wc_wait_for(int file, short events, int64_t deadline, weft_status *status) {
  for (;;) {
    int64_t left = deadline == WC_NEVER ? -1 : deadline - wc_now();
    if (deadline != WC_NEVER && left < 0) left = 0;
    struct pollfd wait = {.fd = file, .events = events};
    int count = poll(&wait, 1, left > 1000000000 ? 1000000000 : (int)left);
    if (count > 0) return WEFT_OK;
    if (count < 0 && errno != EINTR)
      return wc_fail(status, WEFT_UNAVAILABLE, "the connection failed: %s", strerror(errno));
    if (!count && deadline != WC_NEVER && wc_now() >= deadline)
      return wc_fail(status, WEFT_DEADLINE_EXCEEDED, "the server did not answer in time");
  }
}

/* ----------------------------------------------------------------------------- connecting */

static int connect_to(const struct addrinfo *address, int64_t deadline, weft_status *status) {
  int fd = socket(address->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) {
    wc_fail(status, WEFT_UNAVAILABLE, "no socket: %s", strerror(errno));
    return -1;
  }
  int error = connect(fd, address->ai_addr, address->ai_addrlen) ? errno : 0;
  if (error == EINPROGRESS) {
    socklen_t size = sizeof error;
    if (wc_wait_for(fd, POLLOUT, deadline, status)) {
      close(fd);
      return -1;
    }
    getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size);
  }
  if (!error) {
    int yes = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    return fd;
  }
  wc_fail(status, WEFT_UNAVAILABLE, "no server can be reached: %s", strerror(error));
  close(fd);
  return -1;
}

static int connect_any(const char *host, const char *port, int64_t deadline, weft_status *status) {
  struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM}, *found = NULL;
  int error = getaddrinfo(host, port, &hints, &found);
  if (error) {
    wc_fail(status, WEFT_UNAVAILABLE, "%s:%s cannot be resolved: %s", host, port,
            gai_strerror(error));
    return -1;
  }
  int fd = -1;
  for (struct addrinfo *address = found; address && fd < 0; address = address->ai_next)
    fd = connect_to(address, deadline, status);
  freeaddrinfo(found);
  return fd;
}

static weft_code begin_tls(wc_stream *stream, const char *host, const wc_credentials *credentials,
                           int64_t deadline, weft_status *status) {
  stream->tls = wc_tls_new(stream->socket, host, credentials, status);
  if (!stream->tls) return weft_status_code(status);
  for (;;) {
    short events = 0;
    weft_code code = wc_tls_handshake(stream->tls, &events, status);
    if (code || !events) return code;
    code = wc_wait_for(stream->socket, events, deadline, status);
    if (code) return code;
  }
}

wc_stream *wc_stream_open(const char *host, const char *port, const wc_credentials *credentials,
                          int64_t deadline, weft_status *status) {
  wc_stream *stream = calloc(1, sizeof *stream);
  if (!stream) {
    wc_no_memory(status);
    return NULL;
  }
  /* "localhost" has two addresses; servers listen on one, and another user could on the other. */
  bool is_plain_local = !credentials->certificate && !strcmp(host, "localhost");
  stream->socket = connect_any(is_plain_local ? "127.0.0.1" : host, port, deadline, status);
  if (stream->socket < 0 ||
      (credentials->certificate && begin_tls(stream, host, credentials, deadline, status))) {
    wc_stream_free(stream);
    return NULL;
  }
  return stream;
}

void wc_stream_free(wc_stream *stream) {
  if (!stream) return;
  wc_tls_free(stream->tls);
  if (stream->socket >= 0) close(stream->socket);
  free(stream);
}

void wc_stream_shutdown(wc_stream *stream) { shutdown(stream->socket, SHUT_RDWR); }

/* -------------------------------------------------------------------------- sending, receiving */

static void advance(struct iovec **buffers, int *count, size_t sent) {
  while (*count && sent >= (*buffers)->iov_len) {
    sent -= (*buffers)->iov_len;
    (*buffers)->iov_len = 0;
    ++*buffers;
    --*count;
  }
  if (*count) {
    (*buffers)->iov_base = (char *)(*buffers)->iov_base + sent;
    (*buffers)->iov_len -= sent;
  }
}

static weft_code lost(weft_status *status, const char *why) {
  return wc_fail(status, WEFT_UNAVAILABLE, "the connection to the server is lost: %s", why);
}

weft_code wc_stream_send(wc_stream *stream, struct iovec *buffers, int count, int64_t deadline,
                         weft_status *status) {
  advance(&buffers, &count, 0);
  while (count) {
    short events = 0;
    size_t sent = 0;
    if (stream->tls) {
      weft_code code = wc_tls_send(stream->tls, buffers->iov_base, buffers->iov_len, &sent,
                                   &events, status);
      if (code) return code;
    } else {
      struct msghdr message = {.msg_iov = buffers, .msg_iovlen = (size_t)(count < 16 ? count : 16)};
      ssize_t result = sendmsg(stream->socket, &message, MSG_NOSIGNAL);
      if (result >= 0)
        sent = (size_t)result;
      else if (errno == EAGAIN || errno == EWOULDBLOCK)
        events = POLLOUT;
      else if (errno != EINTR)
        return lost(status, strerror(errno));
    }
    advance(&buffers, &count, sent);
    weft_code code = events ? wc_wait_for(stream->socket, events, deadline, status) : WEFT_OK;
    if (code) return code;
  }
  return WEFT_OK;
}

weft_code wc_stream_receive(wc_stream *stream, void *data, size_t size, size_t *received,
                            int64_t deadline, weft_status *status) {
  for (;;) {
    short events = 0;
    if (stream->tls) {
      weft_code code = wc_tls_receive(stream->tls, data, size, received, &events, status);
      if (code || !events) return code;
    } else {
      ssize_t result = recv(stream->socket, data, size, 0);
      if (result >= 0) {
        *received = (size_t)result;
        return WEFT_OK;
      }
      if (errno == EAGAIN || errno == EWOULDBLOCK)
        events = POLLIN;
      else if (errno != EINTR)
        return lost(status, strerror(errno));
    }
    weft_code code = events ? wc_wait_for(stream->socket, events, deadline, status) : WEFT_OK;
    if (code) return code;
  }
}
