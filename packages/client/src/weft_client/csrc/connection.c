/* Calls over one connection: frames, a thread that reads, and threads that wait for replies.
 *
 * A deadline never ends a connection, which other sessions may use. The rest of a frame that it cuts
 * is kept, and sent before later frames; a call whose reply is late is cancelled, and its reply is
 * dropped when it comes. */
#include "internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
  HEAD = 1,
  DATA = 2,
  CANCEL = 3,
  PING = 4,
  PONG = 5,
  FRAME_BYTES = 16,
  MAX_HEAD_BYTES = 1 << 24,
  CHUNK_BYTES = 1 << 20,
  INLINE_BYTES = 1 << 14,
  MAX_INLINE_BYTES = 1 << 20,
  MAX_VALUES = (1 << 16) - 1,
  BUFFER_BYTES = 1 << 16,
  FLAG_DEAD = 1,
  FLAG_INLINE = 2,
  HELLO_CALL = 1,
  CLIENT_ROLE = 1,
  LINGER_MS = 2000,
  SLICE_MS = 50, /* after which a thread that sends looks if its call is cancelled */
  SKIP_BYTES = 1 << 12
};
#define MAX_VALUES_BYTES ((uint64_t)1 << 36)

/* A call that waits for its reply, on the stack of its thread. */
typedef struct wc_waiter {
  struct wc_waiter *next;
  uint64_t number;
  bool is_done;
  int code;
  wc_reply reply;
} wc_waiter;

/* A reply that is on its way in. */
typedef struct wc_incoming {
  struct wc_incoming *next;
  uint64_t number;
  int code;
  wc_reply reply;
  bool *is_inline;
  size_t index, filled;    /* of the value that receives the next bytes */
  bool is_dropped;         /* its caller stopped waiting, so its values are not stored */
  uint64_t num_left_bytes; /* of a dropped reply */
} wc_incoming;

struct wc_connection {
  wc_stream *stream;
  pthread_mutex_t lock;
  pthread_cond_t changed;
  pthread_t reader;
  wc_waiter *waiters;
  uint64_t next_number;
  bool is_sending, is_lost, is_closing;
  const atomic_bool *is_cancelled; /* of the call that sends, as its thread's alone; or NULL */
  wc_buffer backlog; /* frames, or the rest of one, to send before others */
  weft_status why;   /* the connection is lost */
  wc_incoming *incoming; /* of the reader alone, as all below */
  uint8_t *buffer;
  size_t begin, end;
};

void wc_reply_free(wc_reply *reply) {
  free(reply->meta);
  for (size_t i = 0; i < reply->num_values; i++) weft_tensor_free(reply->values[i]);
  free(reply->values);
  *reply = (wc_reply){0};
}

static void put_frame(uint8_t *place, int kind, size_t size, uint64_t number) {
  memset(place, 0, FRAME_BYTES);
  place[0] = (uint8_t)kind;
  place[1] = kind == PONG;
  wc_store(place + 4, size, 4);
  wc_store(place + 8, number, 8);
}

/* ------------------------------------------------------------------------------ sending */

static weft_code lost_error(const wc_connection *connection, weft_status *status) {
  wc_status_copy(status, &connection->why);
  return connection->why.code;
}

/* With the lock held. */
static void set_lost(wc_connection *connection, const weft_status *why) {
  if (connection->is_lost) return;
  connection->is_lost = true;
  wc_status_copy(&connection->why, why);
  wc_stream_shutdown(connection->stream);
  pthread_cond_broadcast(&connection->changed);
}

static bool is_set(const atomic_bool *flag) { return flag && atomic_load(flag); }

/* Let this thread alone send, until `end_sending`. */
static weft_code begin_sending(wc_connection *connection, const atomic_bool *is_cancelled,
                               int64_t deadline, weft_status *status) {
  weft_code code = WEFT_OK;
  pthread_mutex_lock(&connection->lock);
  while (connection->is_sending && !connection->is_lost && !code)
    if (is_set(is_cancelled) ||
        !wc_wait_until(&connection->changed, &connection->lock, deadline))
      code = wc_fail(status, WEFT_DEADLINE_EXCEEDED,
                     "other messages were not sent before the deadline");
  if (!code && connection->is_lost) code = lost_error(connection, status);
  if (!code) {
    connection->is_sending = true;
    connection->is_cancelled = is_cancelled;
  }
  pthread_mutex_unlock(&connection->lock);
  return code;
}

/* Put bytes before the backlog; with the lock held. */
static weft_code keep(wc_connection *connection, const struct iovec *buffers, int count,
                      weft_status *status) {
  wc_buffer kept = {0};
  for (int i = 0; i < count; i++) wc_put(&kept, buffers[i].iov_base, buffers[i].iov_len);
  wc_put(&kept, connection->backlog.data, connection->backlog.size);
  wc_buffer_free(&connection->backlog);
  connection->backlog = kept;
  return kept.failed ? wc_no_memory(status) : WEFT_OK;
}

/* Send buffers; the rest becomes the backlog after the deadline, and after DEADLINE_EXCEEDED because
 * the call is cancelled. Other errors lose the connection. */
static weft_code send_buffers(wc_connection *connection, struct iovec *buffers, int count,
                              int64_t deadline, weft_status *status) {
  int64_t slice;
  weft_code code;
  do {
    slice = wc_now() + SLICE_MS;
    if (!connection->is_cancelled || slice > deadline) slice = deadline;
    code = wc_stream_send(connection->stream, buffers, count, slice, status);
  } while (code == WEFT_DEADLINE_EXCEEDED && slice < deadline && !is_set(connection->is_cancelled));
  if (code != WEFT_DEADLINE_EXCEEDED) return code;
  pthread_mutex_lock(&connection->lock);
  weft_code failure = keep(connection, buffers, count, status);
  pthread_mutex_unlock(&connection->lock);
  return failure ? failure : code;
}

static weft_code send_backlog(wc_connection *connection, int64_t deadline, weft_status *status) {
  weft_code code = WEFT_OK;
  while (!code) {
    pthread_mutex_lock(&connection->lock);
    wc_buffer backlog = connection->backlog;
    connection->backlog = (wc_buffer){0};
    pthread_mutex_unlock(&connection->lock);
    if (!backlog.size) return WEFT_OK;
    struct iovec buffer = {backlog.data, backlog.size};
    code = send_buffers(connection, &buffer, 1, deadline, status);
    wc_buffer_free(&backlog);
  }
  return code;
}

/* Let other threads send. After an error the reader may know why the connection ended. */
static weft_code end_sending(wc_connection *connection, weft_code code, weft_status *status) {
  int64_t deadline = wc_now() + LINGER_MS;
  bool is_blocked = code != WEFT_OK;
  pthread_mutex_lock(&connection->lock);
  while (connection->backlog.size && !is_blocked && !connection->is_lost) {
    pthread_mutex_unlock(&connection->lock);
    is_blocked = send_backlog(connection, wc_now(), NULL) != WEFT_OK;
    pthread_mutex_lock(&connection->lock);
  }
  connection->is_sending = false;
  connection->is_cancelled = NULL;
  pthread_cond_broadcast(&connection->changed);
  if (code && code != WEFT_DEADLINE_EXCEEDED) {
    while (code == WEFT_UNAVAILABLE && !connection->is_lost &&
           wc_wait_until(&connection->changed, &connection->lock, deadline))
      continue;
    if (!connection->is_lost) {
      weft_status why = {0};
      wc_fail(&why, code, "the connection is lost, as a message was cut: %s",
              weft_status_message(status));
      set_lost(connection, &why);
      wc_status_clear(&why);
    }
    code = lost_error(connection, status);
  }
  pthread_mutex_unlock(&connection->lock);
  return code;
}

/* The head of a call; values of few bytes are stored in it. */
static weft_code pack(wc_buffer *head, unsigned method, const wc_buffer *meta,
                      weft_tensor *const *values, size_t num_values, weft_status *status) {
  uint8_t fixed[16] = {0};
  uint64_t total = 0;
  size_t left = MAX_INLINE_BYTES;
  if (num_values > MAX_VALUES)
    return wc_fail(status, WEFT_INVALID_ARGUMENT, "a call has at most %d values, got %zu",
                   MAX_VALUES, num_values);
  wc_store(fixed, method, 2);
  wc_store(fixed + 2, num_values, 2);
  wc_store(fixed + 4, meta->size, 4);
  wc_put(head, fixed, 8);
  wc_put(head, meta->data, meta->size);
  for (size_t i = 0; i < num_values; i++) {
    const weft_tensor *value = values[i];
    bool is_inline = value->size_bytes <= INLINE_BYTES && value->size_bytes <= left;
    if (is_inline) left -= value->size_bytes;
    total += value->size_bytes;
    if (total > MAX_VALUES_BYTES || total < value->size_bytes)
      return wc_fail(status, WEFT_RESOURCE_EXHAUSTED,
                     "the tensors of a call have at most %llu bytes, got %llu and more",
                     (unsigned long long)MAX_VALUES_BYTES, (unsigned long long)total);
    memset(fixed, 0, sizeof fixed);
    fixed[0] = (uint8_t)value->dtype;
    fixed[1] = (uint8_t)value->rank;
    fixed[2] = is_inline ? FLAG_INLINE : 0;
    wc_store(fixed + 8, value->size_bytes, 8);
    wc_put(head, fixed, 16);
    for (int j = 0; j < value->rank; j++) {
      wc_store(fixed, (uint64_t)value->dims[j], 8);
      wc_put(head, fixed, 8);
    }
  }
  left = MAX_INLINE_BYTES;
  for (size_t i = 0; i < num_values; i++)
    if (values[i]->size_bytes <= INLINE_BYTES && values[i]->size_bytes <= left) {
      left -= values[i]->size_bytes;
      wc_put(head, values[i]->data, values[i]->size_bytes);
    }
  if (head->failed) return wc_no_memory(status);
  if (head->size > MAX_HEAD_BYTES)
    return wc_fail(status, WEFT_INVALID_ARGUMENT, "the head of a call has at most %d bytes, got %zu",
                   MAX_HEAD_BYTES, head->size);
  return WEFT_OK;
}

static weft_code send_frame(wc_connection *connection, int kind, uint64_t number,
                            const void *payload, size_t size, int64_t deadline,
                            weft_status *status) {
  uint8_t frame[FRAME_BYTES];
  weft_code code = send_backlog(connection, deadline, status);
  if (code) return code;
  put_frame(frame, kind, size, number);
  struct iovec buffers[] = {{frame, FRAME_BYTES}, {(void *)(uintptr_t)payload, size}};
  return send_buffers(connection, buffers, 2, deadline, status);
}

static weft_code send_value(wc_connection *connection, uint64_t number, const weft_tensor *value,
                            int64_t deadline, weft_status *status) {
  weft_code code = WEFT_OK;
  for (size_t offset = 0; !code && offset < value->size_bytes; offset += CHUNK_BYTES) {
    size_t left = value->size_bytes - offset, size = left < CHUNK_BYTES ? left : CHUNK_BYTES;
    code = send_frame(connection, DATA, number, value->data + offset, size, deadline, status);
  }
  return code;
}

static weft_code send_message(wc_connection *connection, uint64_t number, const wc_buffer *head,
                              weft_tensor *const *values, size_t num_values, int64_t deadline,
                              weft_status *status) {
  size_t left = MAX_INLINE_BYTES;
  weft_code code =
      send_frame(connection, HEAD, number, head->data, head->size, deadline, status);
  for (size_t i = 0; !code && i < num_values; i++) {
    bool is_inline = values[i]->size_bytes <= INLINE_BYTES && values[i]->size_bytes <= left;
    if (is_inline)
      left -= values[i]->size_bytes;
    else
      code = send_value(connection, number, values[i], deadline, status);
  }
  return code;
}

/* Queue a frame without payload, and send it if the connection accepts it now. A backlog is a sign of
 * life as well as a pong, and does not grow with the pings of a server that does not read. */
static void send_small(wc_connection *connection, int kind, uint64_t number) {
  uint8_t frame[FRAME_BYTES];
  put_frame(frame, kind, 0, number);
  pthread_mutex_lock(&connection->lock);
  if (kind != PONG || !connection->backlog.size)
    wc_put(&connection->backlog, frame, sizeof frame);
  bool is_free = !connection->is_sending && !connection->is_lost;
  if (is_free) connection->is_sending = true;
  pthread_mutex_unlock(&connection->lock);
  if (is_free) end_sending(connection, WEFT_OK, NULL);
}

static weft_code send_call(wc_connection *connection, uint64_t number, const wc_buffer *head,
                           weft_tensor *const *values, size_t num_values,
                           const atomic_bool *is_cancelled, int64_t deadline,
                           weft_status *status) {
  weft_code code = begin_sending(connection, is_cancelled, deadline, status);
  if (code) return code;
  code = send_backlog(connection, deadline, status);
  if (!code) {
    code = send_message(connection, number, head, values, num_values, deadline, status);
    if (code == WEFT_DEADLINE_EXCEEDED) { /* the server has a part of the message */
      uint8_t frame[FRAME_BYTES];
      put_frame(frame, CANCEL, 0, number);
      pthread_mutex_lock(&connection->lock);
      wc_put(&connection->backlog, frame, sizeof frame);
      pthread_mutex_unlock(&connection->lock);
    }
  }
  return end_sending(connection, code, status);
}

/* ---------------------------------------------------------------------------- receiving */

static weft_code damaged(weft_status *status, const char *what) {
  return wc_fail(status, WEFT_DATA_LOSS, "the server violates the protocol: %s", what);
}

static weft_code receive(wc_connection *connection, void *data, size_t size, weft_status *status) {
  uint8_t *to = data;
  while (size) {
    size_t available = connection->end - connection->begin, count = 0;
    if (available) {
      count = available < size ? available : size;
      memcpy(to, connection->buffer + connection->begin, count);
      connection->begin += count;
    } else {
      bool is_direct = size >= BUFFER_BYTES;
      weft_code code = wc_stream_receive(connection->stream, is_direct ? to : connection->buffer,
                                         is_direct ? size : BUFFER_BYTES, &count, WC_NEVER, status);
      if (code) return code;
      if (!count)
        return wc_fail(status, WEFT_UNAVAILABLE, "the server has ended the connection");
      if (!is_direct) {
        connection->begin = 0;
        connection->end = count;
        continue;
      }
    }
    to += count;
    size -= count;
  }
  return WEFT_OK;
}

/* Read and discard bytes. */
static weft_code skip(wc_connection *connection, size_t size, weft_status *status) {
  uint8_t bytes[SKIP_BYTES];
  weft_code code = WEFT_OK;
  for (size_t count; !code && size; size -= count) {
    count = size < sizeof bytes ? size : sizeof bytes;
    code = receive(connection, bytes, count, status);
  }
  return code;
}

/* Parse the description of a value at `*place`. */
static weft_code read_value(wc_incoming *incoming, size_t index, const uint8_t *head, size_t size,
                            size_t *place, uint64_t *total, weft_status *status) {
  if (size - *place < 16) return damaged(status, "the description of a value is cut");
  const uint8_t *at = head + *place;
  int rank = at[1], flags = at[2];
  uint64_t bytes = wc_load(at + 8, 8);
  *place += 16;
  if (rank > WEFT_MAX_RANK || size - *place < 8 * (size_t)rank)
    return damaged(status, "the shape of a value is cut");
  int64_t dims[WEFT_MAX_RANK];
  for (int i = 0; i < rank; i++) dims[i] = (int64_t)wc_load(at + 16 + 8 * i, 8);
  *place += 8 * (size_t)rank;
  if (flags & FLAG_DEAD) return WEFT_OK;
  *total += bytes;
  if (bytes > MAX_VALUES_BYTES || *total > MAX_VALUES_BYTES)
    return wc_fail(status, WEFT_RESOURCE_EXHAUSTED, "a reply has values of more than %llu bytes",
                   (unsigned long long)MAX_VALUES_BYTES);
  incoming->is_inline[index] = flags & FLAG_INLINE;
  if (incoming->is_dropped) {
    if (!(flags & FLAG_INLINE)) incoming->num_left_bytes += bytes;
    return WEFT_OK;
  }
  incoming->reply.values[index] =
      wc_tensor_with_size((weft_dtype)at[0], dims, rank, bytes, status);
  return incoming->reply.values[index] ? WEFT_OK : WEFT_DATA_LOSS;
}

static weft_code read_head(wc_incoming *incoming, const uint8_t *head, size_t size,
                           weft_status *status) {
  size_t count = wc_load(head + 2, 2), meta_size = wc_load(head + 4, 4), place = 8;
  uint64_t total = 0;
  incoming->code = (int)wc_load(head, 2);
  if (meta_size > size - place) return damaged(status, "the meta of a reply is cut");
  incoming->reply.meta = malloc(meta_size ? meta_size : 1);
  incoming->reply.values = calloc(count ? count : 1, sizeof *incoming->reply.values);
  incoming->is_inline = calloc(count ? count : 1, sizeof *incoming->is_inline);
  if (!incoming->reply.meta || !incoming->reply.values || !incoming->is_inline)
    return wc_no_memory(status);
  memcpy(incoming->reply.meta, head + place, meta_size);
  incoming->reply.meta_size = meta_size;
  incoming->reply.num_values = count;
  place += meta_size;
  for (size_t i = 0; i < count; i++)
    if (read_value(incoming, i, head, size, &place, &total, status))
      return weft_status_code(status);
  for (size_t i = 0; i < count; i++) {
    weft_tensor *value = incoming->reply.values[i];
    if (!value || !incoming->is_inline[i]) continue;
    if (value->size_bytes > size - place) return damaged(status, "a value in the head is cut");
    memcpy(value->data, head + place, value->size_bytes);
    place += value->size_bytes;
  }
  if (incoming->is_dropped) return WEFT_OK; /* with the values in the head */
  return place == size ? WEFT_OK : damaged(status, "a head has more bytes than its values");
}

/* The value that receives the next bytes; NULL if there is none. */
static weft_tensor *target_of(wc_incoming *incoming) {
  for (; incoming->index < incoming->reply.num_values; incoming->index++, incoming->filled = 0) {
    weft_tensor *value = incoming->reply.values[incoming->index];
    bool is_outside = value && !incoming->is_inline[incoming->index];
    if (is_outside && incoming->filled < value->size_bytes) return value;
  }
  return NULL;
}

static bool is_complete(wc_incoming *incoming) {
  return incoming->is_dropped ? !incoming->num_left_bytes : !target_of(incoming);
}

static void free_incoming(wc_incoming *incoming) {
  wc_reply_free(&incoming->reply);
  free(incoming->is_inline);
  free(incoming);
}

/* Hand a complete reply to the thread that waits for it, if any does. */
static weft_code deliver(wc_connection *connection, wc_incoming *incoming, weft_status *status) {
  for (size_t i = 0; i < incoming->reply.num_values; i++) {
    const weft_tensor *value = incoming->reply.values[i];
    if (value && !wc_has_valid_strings(value)) {
      free_incoming(incoming);
      return damaged(status, "the offsets of strings are invalid");
    }
  }
  pthread_mutex_lock(&connection->lock);
  for (wc_waiter **link = &connection->waiters; *link; link = &(*link)->next) {
    wc_waiter *waiter = *link;
    if (waiter->number != incoming->number) continue;
    *link = waiter->next;
    waiter->code = incoming->code;
    waiter->reply = incoming->reply;
    incoming->reply = (wc_reply){0};
    waiter->is_done = true;
    pthread_cond_broadcast(&connection->changed);
    break;
  }
  pthread_mutex_unlock(&connection->lock);
  free_incoming(incoming);
  return WEFT_OK;
}

static wc_incoming **find_incoming(wc_connection *connection, uint64_t number) {
  wc_incoming **link = &connection->incoming;
  while (*link && (*link)->number != number) link = &(*link)->next;
  return link;
}

/* Return true if a thread waits for the reply to a call. */
static bool is_awaited(wc_connection *connection, uint64_t number, bool *was_made) {
  bool is_found = false;
  pthread_mutex_lock(&connection->lock);
  *was_made = number && number < connection->next_number;
  for (wc_waiter *waiter = connection->waiters; waiter && !is_found; waiter = waiter->next)
    is_found = waiter->number == number;
  pthread_mutex_unlock(&connection->lock);
  return is_found;
}

static weft_code receive_head(wc_connection *connection, size_t size, uint64_t number,
                              weft_status *status) {
  if (size < 8 || size > MAX_HEAD_BYTES) return damaged(status, "a head of an invalid size");
  if (*find_incoming(connection, number)) return damaged(status, "two replies to one call");
  bool was_made, is_dropped = !is_awaited(connection, number, &was_made);
  if (!was_made) return damaged(status, "a reply to a call that was not made");
  uint8_t *head = malloc(size);
  wc_incoming *incoming = calloc(1, sizeof *incoming);
  weft_code code = head && incoming ? receive(connection, head, size, status) : wc_no_memory(status);
  if (!code) {
    incoming->number = number;
    incoming->is_dropped = is_dropped;
    code = read_head(incoming, head, size, status);
  }
  free(head);
  if (code) {
    if (incoming) free_incoming(incoming);
    return code;
  }
  if (is_complete(incoming)) return deliver(connection, incoming, status);
  incoming->next = connection->incoming;
  connection->incoming = incoming;
  return WEFT_OK;
}

static weft_code receive_data(wc_connection *connection, size_t size, uint64_t number,
                              weft_status *status) {
  wc_incoming **link = find_incoming(connection, number), *incoming = *link;
  if (!incoming || !size || size > CHUNK_BYTES) return damaged(status, "data out of place");
  if (incoming->is_dropped) {
    if (size > incoming->num_left_bytes) return damaged(status, "more data than a reply has");
    incoming->num_left_bytes -= size;
    weft_code code = skip(connection, size, status);
    if (code) return code;
    size = 0;
  }
  while (size) {
    weft_tensor *value = target_of(incoming);
    if (!value) return damaged(status, "more data than a reply has");
    size_t left = value->size_bytes - incoming->filled, count = size < left ? size : left;
    weft_code code = receive(connection, value->data + incoming->filled, count, status);
    if (code) return code;
    incoming->filled += count;
    size -= count;
  }
  if (!is_complete(incoming)) return WEFT_OK;
  *link = incoming->next;
  return deliver(connection, incoming, status);
}

static weft_code receive_frame(wc_connection *connection, weft_status *status) {
  uint8_t frame[FRAME_BYTES];
  weft_code code = receive(connection, frame, sizeof frame, status);
  if (code) return code;
  size_t size = wc_load(frame + 4, 4);
  uint64_t number = wc_load(frame + 8, 8);
  if (frame[0] == HEAD && frame[1] == 1) return receive_head(connection, size, number, status);
  if (frame[0] == DATA && frame[1] == 1) return receive_data(connection, size, number, status);
  if (frame[0] == PING && !size)
    send_small(connection, PONG, number);
  else if (size || (frame[0] != PONG && frame[0] != CANCEL))
    return damaged(status, "a frame of an unknown kind");
  return WEFT_OK;
}

static void *read_frames(void *argument) {
  wc_connection *connection = argument;
  weft_status status = {0};
  while (!receive_frame(connection, &status)) continue;
  pthread_mutex_lock(&connection->lock);
  if (connection->is_closing) wc_fail(&status, WEFT_CANCELLED, "the client was closed");
  set_lost(connection, &status);
  pthread_mutex_unlock(&connection->lock);
  wc_status_clear(&status);
  return NULL;
}

/* -------------------------------------------------------------------------------- calls */

static void add_waiter(wc_connection *connection, wc_waiter *waiter) {
  pthread_mutex_lock(&connection->lock);
  waiter->number = connection->next_number++;
  waiter->next = connection->waiters;
  connection->waiters = waiter;
  pthread_mutex_unlock(&connection->lock);
}

/* With the lock held. */
static void remove_waiter(wc_connection *connection, const wc_waiter *waiter) {
  for (wc_waiter **link = &connection->waiters; *link; link = &(*link)->next)
    if (*link == waiter) {
      *link = waiter->next;
      return;
    }
}

static weft_code wait_for_reply(wc_connection *connection, wc_waiter *waiter,
                                const atomic_bool *is_cancelled, int64_t deadline,
                                weft_status *status) {
  weft_code code = WEFT_OK;
  bool is_late = false;
  pthread_mutex_lock(&connection->lock);
  while (!waiter->is_done && !connection->is_lost && !is_late)
    is_late = is_set(is_cancelled) ||
              !wc_wait_until(&connection->changed, &connection->lock, deadline);
  if (!waiter->is_done) {
    remove_waiter(connection, waiter);
    code = connection->is_lost ? lost_error(connection, status)
                               : wc_fail(status, WEFT_DEADLINE_EXCEEDED,
                                         "the server did not answer before the deadline");
  }
  pthread_mutex_unlock(&connection->lock);
  if (code == WEFT_DEADLINE_EXCEEDED) send_small(connection, CANCEL, waiter->number);
  return code;
}

weft_code wc_call(wc_connection *connection, unsigned method, const wc_buffer *meta,
                  weft_tensor *const *values, size_t num_values, const atomic_bool *is_cancelled,
                  int64_t deadline, wc_reply *reply, weft_status *status) {
  wc_buffer head = {0};
  wc_waiter waiter = {0};
  weft_code code = meta->failed ? wc_no_memory(status)
                                : pack(&head, method, meta, values, num_values, status);
  if (!code) {
    add_waiter(connection, &waiter);
    code = send_call(connection, waiter.number, &head, values, num_values, is_cancelled,
                     deadline, status);
    if (code) {
      pthread_mutex_lock(&connection->lock);
      remove_waiter(connection, &waiter);
      pthread_mutex_unlock(&connection->lock);
    }
  }
  wc_buffer_free(&head);
  if (!code) code = wait_for_reply(connection, &waiter, is_cancelled, deadline, status);
  if (code == WEFT_DEADLINE_EXCEEDED && is_set(is_cancelled))
    code = wc_fail(status, WEFT_CANCELLED, "the session was closed");
  if (!code && waiter.code)
    code = wc_status_from_json(status, waiter.code, (const char *)waiter.reply.meta,
                               waiter.reply.meta_size);
  if (code)
    wc_reply_free(&waiter.reply);
  else
    *reply = waiter.reply;
  return code;
}

void wc_connection_wake(wc_connection *connection) {
  pthread_mutex_lock(&connection->lock);
  pthread_cond_broadcast(&connection->changed);
  pthread_mutex_unlock(&connection->lock);
}

/* -------------------------------------------------------------------- opening and closing */

static weft_code greet(wc_connection *connection, const wc_credentials *credentials,
                       int64_t deadline, weft_status *status) {
  uint8_t fixed[24] = {0};
  wc_buffer hello = {0};
  wc_reply reply = {0};
  wc_store(fixed, WC_PROTOCOL_VERSION, 8);
  fixed[16] = CLIENT_ROLE; /* the incarnation before it is 0: any */
  wc_store(fixed + 18, credentials->token_size, 2);
  wc_put(&hello, fixed, sizeof fixed);
  wc_put(&hello, credentials->token, credentials->token_size);
  weft_code code =
      wc_call(connection, WC_HELLO, &hello, NULL, 0, NULL, deadline, &reply, status);
  wc_buffer_free(&hello);
  wc_reply_free(&reply);
  return code;
}

static void destroy(wc_connection *connection) {
  while (connection->incoming) {
    wc_incoming *next = connection->incoming->next;
    free_incoming(connection->incoming);
    connection->incoming = next;
  }
  wc_stream_free(connection->stream);
  wc_buffer_free(&connection->backlog);
  wc_status_clear(&connection->why);
  pthread_cond_destroy(&connection->changed);
  pthread_mutex_destroy(&connection->lock);
  free(connection->buffer);
  free(connection);
}

wc_connection *wc_connection_open(const char *host, const char *port,
                                  const wc_credentials *credentials, int64_t deadline,
                                  weft_status *status) {
  wc_connection *connection = calloc(1, sizeof *connection);
  uint8_t *buffer = connection ? malloc(BUFFER_BYTES) : NULL;
  if (!buffer) {
    free(connection);
    wc_no_memory(status);
    return NULL;
  }
  connection->buffer = buffer;
  connection->next_number = HELLO_CALL;
  pthread_mutex_init(&connection->lock, NULL);
  wc_condition_init(&connection->changed);
  connection->stream = wc_stream_open(host, port, credentials, deadline, status);
  if (!connection->stream) {
    destroy(connection);
    return NULL;
  }
  if (pthread_create(&connection->reader, NULL, read_frames, connection)) {
    wc_fail(status, WEFT_RESOURCE_EXHAUSTED, "the system has no more threads");
    destroy(connection);
    return NULL;
  }
  if (!greet(connection, credentials, deadline, status)) return connection;
  wc_connection_close(connection);
  return NULL;
}

void wc_connection_close(wc_connection *connection) {
  if (!connection) return;
  pthread_mutex_lock(&connection->lock);
  connection->is_closing = true;
  wc_stream_shutdown(connection->stream);
  pthread_mutex_unlock(&connection->lock);
  pthread_join(connection->reader, NULL);
  destroy(connection);
}
