/* Sessions: they send what is new in a graph, plan signatures and run steps. */
#include "internal.h"
#include "session.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum { GRACE_MS = 500, CLOSE_MS = 5000 };

/* A signature that was planned. */
typedef struct wc_signature {
  struct wc_signature *next;
  uint64_t number;
  size_t size;
  uint8_t key[];
} wc_signature;

enum { BUCKETS = 256 };

struct weft_session {
  weft_client *client;
  weft_graph *graph;
  uint64_t number, id; /* of the server, and in this process */
  weft_names *devices;
  pthread_mutex_t lock;
  pthread_cond_t changed;
  bool is_extending;
  size_t num_users; /* threads in calls, for which `weft_session_close` waits */
  atomic_bool is_closed;
  /* Of the thread that extends: */
  size_t num_sent;          /* parts of the graph */
  size_t num_begun;         /* parts that were sent at least once, perhaps without a reply */
  uint64_t definition;      /* number of the last definition */
  wc_signature *signatures[BUCKETS];
};

uint64_t wc_milliseconds_until(int64_t deadline) {
  if (deadline == WC_NEVER) return INT32_MAX;
  int64_t left = deadline - wc_now();
  return left > 1 ? (uint64_t)left : 1;
}

static int64_t with_grace(int64_t deadline) {
  return deadline == WC_NEVER ? WC_NEVER : deadline + GRACE_MS;
}

/* Note that the server answers, if it does. */
static weft_code note_reply(weft_session *session, weft_code code) {
  if (!code) atomic_store(&session->client->is_silent, false);
  return code;
}

weft_code wc_session_call(weft_session *session, unsigned method, const wc_field *fields,
                          size_t num_fields, weft_tensor *const *values, size_t num_values,
                          int64_t deadline, wc_reply *reply, weft_status *status) {
  wc_buffer meta = {0};
  wc_write_table(&meta, fields, num_fields);
  weft_code code = wc_call(session->client->connection, method, &meta, values, num_values,
                           &session->is_closed, with_grace(deadline), reply, status);
  wc_buffer_free(&meta);
  return note_reply(session, code);
}

weft_code wc_bad_reply(weft_status *status) {
  return wc_fail(status, WEFT_DATA_LOSS, "the reply of the server cannot be read");
}

/* ----------------------------------------------------------------------- opening, closing */

static weft_code create(weft_session *session, const void *config, size_t config_size,
                        int64_t deadline, weft_status *status) {
  const wc_field fields[] = {wc_number_field(WC_PROTOCOL_VERSION),
                             {.kind = WC_BYTES, .data = config, .size = config_size}};
  wc_reply reply = {0};
  wc_table table;
  weft_code code =
      wc_session_call(session, WC_CREATE_SESSION, fields, 2, NULL, 0, deadline, &reply, status);
  if (!code && wc_read_table(&table, reply.meta, reply.meta_size)) {
    session->number = wc_read_number(&table, 0);
    session->devices = wc_read_names(&table, 1);
  }
  if (!code && !session->devices) code = wc_bad_reply(status);
  wc_reply_free(&reply);
  return code;
}

/* Descriptions of devices are JSON; keep the values of "name". */
static void keep_names(weft_names *devices) {
  static const char key[] = "\"name\": \"";
  for (size_t i = 0; i < devices->count; i++) {
    char *text = devices->names[i], *name = strstr(text, key);
    if (!name) continue;
    name += sizeof key - 1;
    size_t size = strcspn(name, "\"\\");
    memmove(text, name, size);
    text[size] = 0;
  }
}

weft_session *weft_session_new(weft_client *client, weft_graph *graph, const void *config,
                               size_t config_size, int64_t timeout_ms, weft_status *status) {
  static atomic_uint_fast64_t last_id;
  if (!client || !graph) {
    wc_fail(status, WEFT_INVALID_ARGUMENT, "a session needs a client and a graph, got no %s",
            client ? "graph" : "client");
    return NULL;
  }
  if (!config && config_size) {
    wc_null_argument(status);
    return NULL;
  }
  weft_session *session = calloc(1, sizeof *session);
  if (!session) {
    wc_no_memory(status);
    return NULL;
  }
  session->client = client;
  session->graph = graph;
  session->id = atomic_fetch_add(&last_id, 1) + 1;
  pthread_mutex_init(&session->lock, NULL);
  wc_condition_init(&session->changed);
  int64_t deadline = wc_deadline(timeout_ms, client->timeout_ms);
  if (create(session, config, config_size, deadline, status)) {
    weft_session_close(session);
    return NULL;
  }
  keep_names(session->devices);
  return session;
}

weft_code wc_session_enter(weft_session *session, weft_status *status) {
  if (!session) return wc_fail(status, WEFT_INVALID_ARGUMENT, "the session of a call is NULL");
  pthread_mutex_lock(&session->lock);
  bool is_open = !atomic_load(&session->is_closed);
  session->num_users += is_open;
  pthread_mutex_unlock(&session->lock);
  return is_open ? WEFT_OK : wc_fail(status, WEFT_CANCELLED, "the session was closed");
}

void wc_session_leave(weft_session *session) {
  pthread_mutex_lock(&session->lock);
  session->num_users--;
  pthread_cond_broadcast(&session->changed);
  pthread_mutex_unlock(&session->lock);
}

/* Cancel the calls of other threads, and wait until they have left. */
static void expel_users(weft_session *session) {
  pthread_mutex_lock(&session->lock);
  atomic_store(&session->is_closed, true);
  pthread_cond_broadcast(&session->changed);
  pthread_mutex_unlock(&session->lock);
  wc_connection_wake(session->client->connection);
  pthread_mutex_lock(&session->lock);
  while (session->num_users) pthread_cond_wait(&session->changed, &session->lock);
  pthread_mutex_unlock(&session->lock);
}

/* Close the session on the server. Only one session of a client waits for a server that does not
 * answer: the server closes the others when it reads their messages, or the connection ends. */
static void close_on_server(const weft_session *session) {
  weft_client *client = session->client;
  const wc_field fields[] = {wc_number_field(session->number)};
  int64_t limit = client->timeout_ms;
  if (limit < 0 || limit > CLOSE_MS) limit = CLOSE_MS;
  int64_t deadline = wc_now() + (atomic_load(&client->is_silent) ? 0 : limit);
  wc_buffer meta = {0};
  wc_reply reply = {0};
  wc_write_table(&meta, fields, 1);
  weft_code code = wc_call(client->connection, WC_CLOSE_SESSION, &meta, NULL, 0, NULL, deadline,
                           &reply, NULL);
  atomic_store(&client->is_silent, code == WEFT_DEADLINE_EXCEEDED);
  wc_buffer_free(&meta);
  wc_reply_free(&reply);
}

void weft_session_close(weft_session *session) {
  if (!session) return;
  expel_users(session);
  if (session->number) close_on_server(session);
  for (size_t i = 0; i < BUCKETS; i++)
    while (session->signatures[i]) {
      wc_signature *next = session->signatures[i]->next;
      free(session->signatures[i]);
      session->signatures[i] = next;
    }
  weft_names_free(session->devices);
  pthread_cond_destroy(&session->changed);
  pthread_mutex_destroy(&session->lock);
  free(session);
}

size_t weft_session_num_devices(const weft_session *session) {
  return session ? weft_names_count(session->devices) : 0;
}

const char *weft_session_device(const weft_session *session, size_t index) {
  return session ? weft_names_get(session->devices, index) : NULL;
}

/* ---------------------------------------------------------------------------- extending */

static weft_code define(weft_session *session, const wc_part *part, uint64_t number,
                        weft_tensor *const *values, const char *const *types, int64_t deadline,
                        weft_status *status) {
  const wc_field session_field = wc_number_field(session->number);
  const wc_field timeout = wc_number_field(wc_milliseconds_until(deadline));
  size_t count = part->num_constants;
  const wc_field constants = wc_texts_field((const char *const *)part->constants, count);
  wc_reply reply = {0};
  weft_code code;
  if (part->kind == WC_FUNCTION) {
    const wc_field fields[] = {
        session_field,
        {.kind = WC_TEXT, .data = part->name, .size = strlen(part->name)},
        wc_texts_field((const char *const *)part->inputs, part->num_inputs),
        wc_texts_field((const char *const *)part->outputs, part->num_outputs),
        wc_texts_field((const char *const *)part->results, part->num_results),
        constants,
        timeout,
        wc_texts_field(types, count),
        wc_number_field(number)};
    code = wc_session_call(session, WC_DEFINE_FUNCTION, fields, 9, values, count + 1, deadline,
                           &reply, status);
  } else {
    const wc_field fields[] = {session_field, constants,
                               wc_texts_field((const char *const *)part->devices, count), timeout,
                               wc_texts_field(types, count), wc_number_field(number)};
    code = wc_session_call(session, WC_DEFINE, fields, 6, values, count + 1, deadline, &reply,
                           status);
  }
  wc_reply_free(&reply);
  return code;
}

static weft_code send_part(weft_session *session, const wc_part *part, uint64_t number,
                           int64_t deadline, weft_status *status) {
  if (part->kind == WC_GRADIENTS)
    return wc_session_repeat_gradients(session, part, number, deadline, status);
  int64_t size = (int64_t)part->graph_def.size;
  size_t count = part->num_constants;
  uint8_t nothing;
  void *data = size ? part->graph_def.data : &nothing;
  weft_tensor **values = malloc((count + 1) * sizeof *values);
  const char **types = malloc((count + 1) * sizeof *types);
  weft_tensor *nodes =
      weft_tensor_borrow(WEFT_UINT8, &size, 1, data, (size_t)size, NULL, NULL, status);
  weft_code code = WEFT_RESOURCE_EXHAUSTED;
  if (values && types && nodes) {
    values[0] = nodes;
    for (size_t i = 0; i < count; i++) {
      values[i + 1] = part->values[i];
      types[i] = weft_dtype_name(part->values[i]->dtype);
    }
    code = define(session, part, number, values, types, deadline, status);
  } else {
    wc_no_memory(status);
  }
  weft_tensor_free(nodes);
  free(values);
  free(types);
  return code;
}

weft_code wc_session_begin_extending(weft_session *session, int64_t deadline,
                                     weft_status *status) {
  weft_code code = WEFT_OK;
  pthread_mutex_lock(&session->lock);
  while (session->is_extending && !code)
    if (!wc_wait_until(&session->changed, &session->lock, deadline))
      code = wc_fail(status, WEFT_DEADLINE_EXCEEDED,
                     "another thread did not finish extending the graph before the deadline");
  if (!code) session->is_extending = true;
  pthread_mutex_unlock(&session->lock);
  return code;
}

void wc_session_end_extending(weft_session *session) {
  pthread_mutex_lock(&session->lock);
  session->is_extending = false;
  pthread_cond_broadcast(&session->changed);
  pthread_mutex_unlock(&session->lock);
}

weft_code wc_session_send_parts(weft_session *session, int64_t deadline, weft_status *status) {
  weft_code code = WEFT_OK;
  size_t count = wc_graph_seal(session->graph);
  while (!code && session->num_sent < count) {
    const wc_part *part = wc_graph_part(session->graph, session->num_sent);
    if (session->num_begun == session->num_sent) { /* else it is sent again, with its number */
      session->num_begun++;
      session->definition++;
    }
    if (part->origin != session->id)
      code = send_part(session, part, session->definition, deadline, status);
    if (!code) session->num_sent++;
  }
  return code;
}

uint64_t wc_session_next_definition(weft_session *session) { return ++session->definition; }

weft_code wc_session_extend(weft_session *session, int64_t deadline, weft_status *status) {
  weft_code code = wc_session_begin_extending(session, deadline, status);
  if (code) return code;
  code = wc_session_send_parts(session, deadline, status);
  wc_session_end_extending(session);
  return code;
}

int64_t wc_session_deadline(const weft_session *session, int64_t timeout_ms) {
  return wc_deadline(timeout_ms, session->client->timeout_ms);
}
weft_graph *wc_session_graph(const weft_session *session) { return session->graph; }
uint64_t wc_session_number(const weft_session *session) { return session->number; }
uint64_t wc_session_id(const weft_session *session) { return session->id; }

weft_code weft_session_extend(weft_session *session, int64_t timeout_ms, weft_status *status) {
  weft_code code = wc_session_enter(session, status);
  if (code) return code;
  code = wc_session_extend(session, wc_session_deadline(session, timeout_ms), status);
  wc_session_leave(session);
  return code;
}

/* ------------------------------------------------------------------------------- running */

static void put_key(wc_buffer *key, const char *const *names, size_t count) {
  wc_put_varint(key, count);
  for (size_t i = 0; i < count; i++) wc_put(key, names[i], strlen(names[i]) + 1);
}

static wc_signature **bucket_of(weft_session *session, const wc_buffer *key) {
  uint64_t hash = 14695981039346656037u;
  for (size_t i = 0; i < key->size; i++) hash = (hash ^ key->data[i]) * 1099511628211u;
  return &session->signatures[(hash ^ hash >> 32) % BUCKETS];
}

static uint64_t find_signature(weft_session *session, const wc_buffer *key) {
  uint64_t number = 0;
  pthread_mutex_lock(&session->lock);
  for (wc_signature *known = *bucket_of(session, key); known && !number; known = known->next)
    if (known->size == key->size && !memcmp(known->key, key->data, key->size))
      number = known->number;
  pthread_mutex_unlock(&session->lock);
  return number;
}

static void keep_signature(weft_session *session, const wc_buffer *key, uint64_t number) {
  wc_signature *signature = malloc(sizeof *signature + key->size);
  if (!signature) return;
  signature->number = number;
  signature->size = key->size;
  memcpy(signature->key, key->data, key->size);
  pthread_mutex_lock(&session->lock);
  wc_signature **bucket = bucket_of(session, key);
  signature->next = *bucket;
  *bucket = signature;
  pthread_mutex_unlock(&session->lock);
}

bool wc_has_names(const char *const *names, size_t count) {
  for (size_t i = 0; i < count; i++)
    if (!names || !names[i]) return false;
  return true;
}

weft_code wc_null_argument(weft_status *status) {
  return wc_fail(status, WEFT_INVALID_ARGUMENT, "an object, a name or an array of a call is NULL");
}

char **wc_with_ports(const char *const *names, size_t count) {
  char **outputs = calloc(count + 1, sizeof *outputs);
  for (size_t i = 0; outputs && i < count; i++) {
    size_t size = strlen(names[i]);
    outputs[i] = malloc(size + 3);
    if (!outputs[i]) {
      wc_free_texts(outputs, count);
      return NULL;
    }
    memcpy(outputs[i], names[i], size + 1);
    if (size && !strchr(names[i], ':')) memcpy(outputs[i] + size, ":0", 3);
  }
  return outputs;
}

/* The number of the signature, planned if it is new. */
static weft_code plan(weft_session *session, char **feeds, size_t num_feeds, char **fetches,
                      size_t num_fetches, const char *const *targets, size_t num_targets,
                      int64_t deadline, uint64_t *number, weft_status *status) {
  wc_buffer key = {0};
  put_key(&key, (const char *const *)feeds, num_feeds);
  put_key(&key, (const char *const *)fetches, num_fetches);
  put_key(&key, targets, num_targets);
  if (key.failed) {
    wc_buffer_free(&key);
    return wc_no_memory(status);
  }
  *number = find_signature(session, &key);
  weft_code code = WEFT_OK;
  if (!*number) {
    const wc_field fields[] = {wc_number_field(session->number),
                               wc_texts_field((const char *const *)feeds, num_feeds),
                               wc_texts_field((const char *const *)fetches, num_fetches),
                               wc_texts_field(targets, num_targets),
                               wc_number_field(0),
                               {.kind = WC_FLAG},
                               wc_number_field(wc_milliseconds_until(deadline))};
    wc_reply reply = {0};
    wc_table table;
    code = wc_session_call(session, WC_PLAN, fields, 7, NULL, 0, deadline, &reply, status);
    if (!code && wc_read_table(&table, reply.meta, reply.meta_size))
      *number = wc_read_number(&table, 0);
    if (!code && !*number) code = wc_bad_reply(status);
    if (!code) keep_signature(session, &key, *number);
    wc_reply_free(&reply);
  }
  wc_buffer_free(&key);
  return code;
}

static weft_code run_step(weft_session *session, uint64_t signature, weft_tensor *const *fed,
                          size_t num_feeds, int64_t deadline, wc_reply *reply,
                          weft_status *status) {
  wc_buffer meta = {0};
  uint64_t timeout = deadline == WC_NEVER ? 0 : wc_milliseconds_until(deadline);
  wc_put_integer(&meta, WC_STEP_VERSION, 8);
  wc_put_integer(&meta, session->number, 8);
  wc_put_integer(&meta, signature, 8);
  wc_put_integer(&meta, timeout, 8);
  wc_put_zeros(&meta, 1); /* not traced */
  weft_code code = wc_call(session->client->connection, WC_RUN_STEP, &meta, fed, num_feeds,
                           &session->is_closed, with_grace(deadline), reply, status);
  wc_buffer_free(&meta);
  return note_reply(session, code);
}

static weft_code take_fetches(wc_reply *reply, char **fetches, weft_tensor **fetched,
                              size_t num_fetches, weft_status *status) {
  if (reply->num_values != num_fetches) return wc_bad_reply(status);
  for (size_t i = 0; i < num_fetches; i++)
    if (!reply->values[i])
      return wc_fail(status, WEFT_INVALID_ARGUMENT, "%s has no value: its branch was not taken",
                     fetches[i]);
  for (size_t i = 0; i < num_fetches; i++) {
    fetched[i] = reply->values[i];
    reply->values[i] = NULL;
  }
  return WEFT_OK;
}

/* Extend the graph, plan and run; the names of `feeds` and `fetches` have ports. */
static weft_code run(weft_session *session, char **feeds, weft_tensor *const *fed,
                     size_t num_feeds, char **fetches, weft_tensor **fetched, size_t num_fetches,
                     const char *const *targets, size_t num_targets, int64_t timeout_ms,
                     weft_status *status) {
  int64_t deadline = wc_session_deadline(session, timeout_ms);
  uint64_t signature = 0;
  wc_reply reply = {0};
  weft_code code = wc_session_extend(session, deadline, status);
  if (!code)
    code = plan(session, feeds, num_feeds, fetches, num_fetches, targets, num_targets, deadline,
                &signature, status);
  if (!code) code = run_step(session, signature, fed, num_feeds, deadline, &reply, status);
  if (!code) code = take_fetches(&reply, fetches, fetched, num_fetches, status);
  wc_reply_free(&reply);
  return code;
}

weft_code weft_session_run(weft_session *session, const char *const *feeds,
                           weft_tensor *const *fed, size_t num_feeds, const char *const *fetches,
                           weft_tensor **fetched, size_t num_fetches, const char *const *targets,
                           size_t num_targets, int64_t timeout_ms, weft_status *status) {
  for (size_t i = 0; fetched && i < num_fetches; i++) fetched[i] = NULL;
  if ((num_feeds && !fed) || (num_fetches && !fetched) || !wc_has_names(feeds, num_feeds) ||
      !wc_has_names(fetches, num_fetches) || !wc_has_names(targets, num_targets))
    return wc_null_argument(status);
  for (size_t i = 0; i < num_feeds; i++)
    if (!fed[i]) return wc_fail(status, WEFT_INVALID_ARGUMENT, "%s is fed no value", feeds[i]);
  weft_code code = wc_session_enter(session, status);
  if (code) return code;
  char **feed_names = wc_with_ports(feeds, num_feeds);
  char **fetch_names = wc_with_ports(fetches, num_fetches);
  code = feed_names && fetch_names
             ? run(session, feed_names, fed, num_feeds, fetch_names, fetched, num_fetches, targets,
                   num_targets, timeout_ms, status)
             : wc_no_memory(status);
  wc_free_texts(feed_names, num_feeds);
  wc_free_texts(fetch_names, num_fetches);
  wc_session_leave(session);
  return code;
}
