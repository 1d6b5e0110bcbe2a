/* Parts of the library that its files share; see weft_client.h for the interface. */
#ifndef WEFT_INTERNAL_H
#define WEFT_INTERNAL_H

#define _GNU_SOURCE
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include "weft_client.h"

/* ------------------------------------------------------------------------------- errors */

struct weft_status {
  weft_code code;
  char *message, *node, *op, *device;
};

/* Fill a status, which may be NULL, and return `code`. */
weft_code wc_fail(weft_status *, weft_code code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
weft_code wc_no_memory(weft_status *);
void wc_status_clear(weft_status *);
void wc_status_copy(weft_status *to, const weft_status *from);
/* Fill a status from the JSON of an error, which is untrusted. */
weft_code wc_status_from_json(weft_status *, int code, const char *json, size_t size);

/* --------------------------------------------------------------------------- bytes, buffers */

/* Little-endian numbers of up to 8 bytes. */
static inline void wc_store(uint8_t *place, uint64_t value, size_t size) {
  for (size_t i = 0; i < size; i++) place[i] = (uint8_t)(value >> 8 * i);
}
static inline uint64_t wc_load(const uint8_t *place, size_t size) {
  uint64_t value = 0;
  for (size_t i = 0; i < size; i++) value |= (uint64_t)place[i] << 8 * i;
  return value;
}

/* Bytes that grow. After a failed allocation `failed` is set and nothing more is added. */
typedef struct wc_buffer {
  uint8_t *data;
  size_t size, capacity;
  bool failed;
} wc_buffer;

void wc_buffer_free(wc_buffer *);
void wc_put(wc_buffer *, const void *data, size_t size);
void wc_put_zeros(wc_buffer *, size_t size);
void wc_put_integer(wc_buffer *, uint64_t value, size_t size); /* little-endian */
char *wc_copy_string(const char *text, size_t size);

/* Fields of protobuf. */
void wc_put_varint(wc_buffer *, uint64_t value);
void wc_put_tag(wc_buffer *, unsigned field, unsigned wire_type);
void wc_put_number(wc_buffer *, unsigned field, uint64_t value);
void wc_put_bytes(wc_buffer *, unsigned field, const void *data, size_t size);
void wc_put_text(wc_buffer *, unsigned field, const char *text);
void wc_put_message(wc_buffer *, unsigned field, wc_buffer *message); /* frees it */

/* A field of a protobuf message: its bytes, or its number. */
typedef struct wc_message_field {
  unsigned number;
  bool has_bytes;
  const uint8_t *data;
  size_t size;
} wc_message_field;

/* Read the next field of a message; false at its end, and with `*data` NULL if it is damaged. */
bool wc_next_field(const uint8_t **data, size_t *size, wc_message_field *);

/* --------------------------------------------------------------------- tables (flatbuffers) */

/* A field of a table to write: a number, a flag, bytes, or a list of strings. */
typedef struct wc_field {
  enum { WC_NUMBER, WC_FLAG, WC_TEXT, WC_BYTES, WC_TEXTS } kind;
  uint64_t number;
  const void *data;
  size_t size;
  const char *const *texts;
} wc_field;

static inline wc_field wc_number_field(uint64_t number) {
  return (wc_field){.kind = WC_NUMBER, .number = number};
}
static inline wc_field wc_texts_field(const char *const *texts, size_t count) {
  return (wc_field){.kind = WC_TEXTS, .texts = texts, .size = count};
}

void wc_write_table(wc_buffer *, const wc_field *fields, size_t count);

/* A table in untrusted bytes. */
typedef struct wc_table {
  const uint8_t *data;
  size_t size, start, vtable, vtable_size;
} wc_table;

bool wc_read_table(wc_table *, const uint8_t *data, size_t size);
uint64_t wc_read_number(const wc_table *, unsigned slot);
/* The strings of a list as names; NULL if they are damaged or there is no memory. */
weft_names *wc_read_names(const wc_table *, unsigned slot);

/* ------------------------------------------------------------------------------ tensors */

struct weft_tensor {
  atomic_int references;
  weft_dtype dtype;
  int rank;
  int64_t dims[WEFT_MAX_RANK];
  int64_t num_elements;
  uint8_t *data; /* of strings: offsets, then bytes */
  size_t size_bytes;
  void (*release)(void *data, void *argument);
  void *argument;
};

/* A tensor with room for `size_bytes`, which must fit its type and shape unless it has strings. */
weft_tensor *wc_tensor_with_size(weft_dtype, const int64_t *dims, int rank, uint64_t size_bytes,
                                 weft_status *);
/* Return true if the offsets of a tensor of strings are valid; others are. */
bool wc_has_valid_strings(const weft_tensor *);

struct weft_names {
  size_t count;
  char *names[];
};

weft_names *wc_names_new(size_t count);

/* ------------------------------------------------------------------------------- graphs */

/* A part of a graph that is sent by one call: nodes with constants, a function, a GraphDef from
 * elsewhere, or a request for gradients. */
typedef struct wc_part {
  enum { WC_NODES, WC_FUNCTION, WC_IMPORT, WC_GRADIENTS } kind;
  bool is_sealed;
  wc_buffer graph_def;
  char **constants, **devices;
  weft_tensor **values;
  size_t num_constants, constants_capacity;
  char *name; /* of a function, or the scope of gradients */
  char **inputs, **outputs, **results; /* of a function; xs, ys and grad_ys of gradients */
  size_t num_inputs, num_outputs, num_results;
  bool is_dense;                   /* of gradients, as all below */
  weft_names *gradients, *indices; /* that the server returned */
  uint64_t origin;                 /* the session that added them */
} wc_part;

/* A name that is taken, and the number of the next suffix to try for another one. */
typedef struct wc_name {
  char *text;
  uint64_t next;
} wc_name;

/* A set of names; a hash table. Names of nodes are equal if they differ only in case, those of
 * functions are not. */
typedef struct wc_name_set {
  bool has_case;
  wc_name *slots;
  size_t count, capacity;
} wc_name_set;

void wc_name_set_free(wc_name_set *);
/* An error if a name is not UTF-8, which the server could not read. NULL is accepted. */
weft_code wc_check_name(const char *name, weft_status *);
/* Add a name; returns the set's copy, or NULL if it is taken or there is no memory. */
const char *wc_name_set_add(wc_name_set *, const char *name, bool *is_taken);
bool wc_name_set_has(const wc_name_set *, const char *name);
/* Add a name, with a suffix if it is taken; NULL if there is no memory. */
const char *wc_name_set_add_unique(wc_name_set *, const char *name);

struct weft_graph {
  pthread_mutex_t lock;
  wc_part **parts;
  size_t num_parts, parts_capacity;
  wc_name_set names, functions;
};

char **wc_copy_texts(const char *const *texts, size_t count);
void wc_free_texts(char **texts, size_t count);
void wc_part_clear(wc_part *);
/* Add a sealed part, whose content moves to the graph; NULL if there is no memory. */
wc_part *wc_graph_add_part(weft_graph *, wc_part *);
/* Take names that the server has given to nodes. */
bool wc_graph_reserve(weft_graph *, const weft_tensor *names);

/* The number of parts after which new nodes begin another one, so that these stay as they are. */
size_t wc_graph_seal(weft_graph *);
wc_part *wc_graph_part(weft_graph *, size_t index);
/* Add a node whose fields, except its name, are in `definition`. */
const char *wc_graph_add(weft_graph *, const char *name, const char *op,
                         const wc_buffer *definition, weft_status *);

/* ---------------------------------------------------------------------------- transport */

/* A deadline: milliseconds of the monotonic clock, or WC_NEVER. */
#define WC_NEVER INT64_MAX
int64_t wc_now(void);
int64_t wc_deadline(int64_t timeout_ms, int64_t default_ms);
void wc_condition_init(pthread_cond_t *);
/* Wait for a condition; returns false once the deadline has passed. */
bool wc_wait_until(pthread_cond_t *, pthread_mutex_t *, int64_t deadline);
/* Wait for events of poll() on a file; an error, or DEADLINE_EXCEEDED. */
weft_code wc_wait_for(int file, short events, int64_t deadline, weft_status *);

typedef struct wc_credentials {
  char *certificate, *key, *authority;
  char *token;
  size_t token_size;
} wc_credentials;

/* The credentials of options, or else of the environment, or of a server on loopback. */
weft_code wc_credentials_load(wc_credentials *, const weft_client_options *, const char *host,
                              const char *port, weft_status *);
void wc_credentials_free(wc_credentials *);

/* A socket, with TLS if there are certificates. One thread reads and one writes. */
typedef struct wc_stream wc_stream;

wc_stream *wc_stream_open(const char *host, const char *port, const wc_credentials *,
                          int64_t deadline, weft_status *);
/* Send all bytes. After DEADLINE_EXCEEDED the buffers have the bytes that were not sent, and the
 * stream can be used further if these are sent next; after other errors it is unusable. */
weft_code wc_stream_send(wc_stream *, struct iovec *buffers, int count, int64_t deadline,
                         weft_status *);
/* Receive some bytes; 0 at the end. */
weft_code wc_stream_receive(wc_stream *, void *data, size_t size, size_t *received,
                            int64_t deadline, weft_status *);
/* End the connection; a thread that waits on it returns. */
void wc_stream_shutdown(wc_stream *);
void wc_stream_free(wc_stream *);

/* --------------------------------------------------------------------------- connection */

typedef struct wc_connection wc_connection;

/* A reply: its meta and values, which the caller frees. */
typedef struct wc_reply {
  uint8_t *meta;
  size_t meta_size;
  weft_tensor **values;
  size_t num_values;
} wc_reply;

void wc_reply_free(wc_reply *);

wc_connection *wc_connection_open(const char *host, const char *port, const wc_credentials *,
                                  int64_t deadline, weft_status *);
void wc_connection_close(wc_connection *);
/* Call a method of the server and wait for its reply, until the deadline. The call fails with
 * WEFT_CANCELLED if `*is_cancelled` is set before or while it waits; the flag may be NULL. */
weft_code wc_call(wc_connection *, unsigned method, const wc_buffer *meta,
                  weft_tensor *const *values, size_t num_values, const atomic_bool *is_cancelled,
                  int64_t deadline, wc_reply *, weft_status *);
/* Let calls see that their flags have been set. */
void wc_connection_wake(wc_connection *);

/* Methods of the server. */
enum {
  WC_HELLO = 0,
  WC_RUN_STEP = 7,
  WC_CREATE_SESSION = 21,
  WC_PLAN = 22,
  WC_CLOSE_SESSION = 23,
  WC_DEFINE = 25,
  WC_DEFINE_FUNCTION = 26,
  WC_DIFFERENTIATE = 27,
  WC_SHAPES = 28,
  WC_FUNCTIONS = 29,
  WC_RESET = 30
};

enum { WC_PROTOCOL_VERSION = 2, WC_STEP_VERSION = 1 };

/* ------------------------------------------------------------------------------ clients */

struct weft_client {
  wc_connection *connection;
  char *target;
  int64_t timeout_ms;
  atomic_bool is_silent; /* the server did not answer when a session was closed */
  int process; /* of a server that was started for the client; 0 for none */
  int input;   /* a pipe to its standard input, at whose end it stops */
};

#endif
