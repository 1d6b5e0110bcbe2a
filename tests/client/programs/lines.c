/* Programs in C that the tests run: connect and lines, as in C++ and for Node, and close. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "weft_client.h"

enum { LINE_BYTES = 256, NAME_BYTES = 256, LARGE_ELEMENTS = 8 << 20, PATIENT_MS = 60000 };

/* A graph with a sum, which grows, and the size of what is fed. */
typedef struct program {
  weft_client *client;
  weft_graph *graph;
  weft_session *session;
  weft_status *status;
  weft_tensor *one, *large;
  char fetch[NAME_BYTES], gradient[NAME_BYTES];
  const char *fed, *size;
} program;

static int64_t now_ms(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static void print_error(const weft_status *status, int64_t start) {
  const char *message = weft_status_message(status);
  printf("%s|%s|%lld|%.*s\n", weft_code_name(weft_status_code(status)), weft_status_node(status),
         (long long)(now_ms() - start), (int)strcspn(message, "\n"), message);
}

/* Connect, and print the error or a device. */
static int try_to_connect(const char *target, int64_t timeout_ms) {
  int64_t start = now_ms();
  weft_status *status = weft_status_new();
  weft_client_options options = {.target = target, .timeout_ms = timeout_ms};
  weft_client *client = weft_client_connect(&options, status);
  weft_graph *graph = weft_graph_new();
  weft_session *session =
      client ? weft_session_new(client, graph, NULL, 0, 0, status) : NULL;
  if (session)
    puts(weft_session_device(session, 0));
  else
    print_error(status, start);
  weft_session_close(session);
  weft_graph_free(graph);
  weft_client_close(client);
  weft_status_free(status);
  return 0;
}

static const char *add_op(program *self, const char *op, const char *name, const char *a,
                          const char *b) {
  weft_node *node = weft_node_new(self->graph, op, name);
  weft_node_input(node, a);
  if (b) weft_node_input(node, b);
  return weft_node_finish(node, self->status);
}

static const char *add_one(program *self) {
  return weft_graph_constant(self->graph, NULL, self->one, NULL, self->status);
}

static void set_up(program *self, const char *target, int64_t timeout_ms) {
  const int64_t large[] = {LARGE_ELEMENTS};
  const float one = 1;
  weft_client_options options = {.target = target, .timeout_ms = timeout_ms};
  self->status = weft_status_new();
  self->client = weft_client_connect(&options, self->status);
  self->graph = weft_graph_new();
  self->session = weft_session_new(self->client, self->graph, NULL, 0, 0, self->status);
  self->one = weft_tensor_new(WEFT_FLOAT32, NULL, 0, self->status);
  memcpy(weft_tensor_data(self->one), &one, sizeof one);
  self->large = weft_tensor_new(WEFT_FLOAT32, large, 1, self->status);
  memset(weft_tensor_data(self->large), 0, weft_tensor_size_bytes(self->large));
  const char *two = add_op(self, "AddV2", "two", add_one(self), add_one(self));
  snprintf(self->fetch, NAME_BYTES, "%s", add_op(self, "AddV2", "sum", two, add_one(self)));
  weft_node *node = weft_node_new(self->graph, "Placeholder", "fed");
  weft_node_attr_type(node, "dtype", WEFT_FLOAT32);
  self->fed = weft_node_finish(node, self->status);
  self->size = add_op(self, "Size", "size", self->fed, NULL);
}

static void tear_down(program *self) {
  weft_session_close(self->session);
  weft_graph_free(self->graph);
  weft_client_close(self->client);
  weft_tensor_free(self->one);
  weft_tensor_free(self->large);
  weft_status_free(self->status);
}

/* Run a step in a session, and print the first value. */
static weft_code run_step(program *self, weft_session *session, int is_large, int64_t timeout_ms) {
  const char *fetches[] = {is_large ? self->size : self->fetch, self->gradient};
  weft_tensor *values[2] = {NULL, NULL};
  weft_code code = weft_session_run(session, &self->fed, &self->large, is_large, fetches, values,
                                    *self->gradient && !is_large ? 2 : 1, NULL, 0, timeout_ms,
                                    self->status);
  if (!code && is_large) printf("%d\n", *(const int32_t *)weft_tensor_data(values[0]));
  if (!code && !is_large) printf("%g\n", *(const float *)weft_tensor_data(values[0]));
  weft_tensor_free(values[0]);
  weft_tensor_free(values[1]);
  return code;
}

static weft_code add_gradients(program *self, int64_t timeout_ms) {
  const char *ys[] = {self->fetch}, *xs[] = {"sum"};
  weft_names *names = weft_session_gradients(self->session, ys, 1, xs, 1, NULL, NULL, timeout_ms,
                                             self->status);
  if (!names) return weft_status_code(self->status);
  snprintf(self->gradient, NAME_BYTES, "%s", weft_names_get(names, 0));
  weft_names_free(names);
  return WEFT_OK;
}

static weft_code run_in_second_session(program *self, int64_t timeout_ms) {
  weft_session *second =
      weft_session_new(self->client, self->graph, NULL, 0, timeout_ms, self->status);
  if (!second) return weft_status_code(self->status);
  weft_code code = run_step(self, second, 0, timeout_ms);
  weft_session_close(second);
  return code;
}

static weft_code run_line(program *self, const char *line, int64_t timeout_ms) {
  weft_code code = WEFT_OK;
  if (!strncmp(line, "second", 6)) return run_in_second_session(self, timeout_ms);
  if (!strncmp(line, "large", 5)) return run_step(self, self->session, 1, timeout_ms);
  if (!strncmp(line, "gradients", 9)) code = add_gradients(self, timeout_ms);
  if (!strncmp(line, "grow", 4))
    snprintf(self->fetch, NAME_BYTES, "%s",
             add_op(self, "AddV2", "grown", self->fetch, add_one(self)));
  if (!strncmp(line, "unknown op", 10)) add_op(self, "Nonsense", "bad", "sum", NULL);
  if (!strncmp(line, "unknown input", 13)) add_op(self, "Neg", "bad", "nowhere", NULL);
  if (!strncmp(line, "wrong type", 10)) add_op(self, "MatMul", "product", "size", "fed");
  if (!strncmp(line, "oversized", 9)) {
    const int64_t dims[] = {1ll << 40, 1ll << 30};
    if (!weft_tensor_new(WEFT_FLOAT32, dims, 2, self->status))
      return weft_status_code(self->status);
  }
  return code ? code : run_step(self, self->session, 0, timeout_ms);
}

/* Run a step for each line of input, and print its value or error. */
static int run_by_line(const char *target, int64_t timeout_ms) {
  program self = {.client = NULL};
  char line[LINE_BYTES];
  set_up(&self, target, 0);
  while (fgets(line, sizeof line, stdin)) {
    int64_t start = now_ms();
    if (run_line(&self, line, strstr(line, "patient") ? PATIENT_MS : timeout_ms))
      print_error(self.status, start);
    fflush(stdout);
  }
  tear_down(&self);
  return 0;
}

/* A thread that extends a session and runs a step, without a deadline. */
typedef struct runner {
  pthread_t thread;
  weft_session *session;
  weft_status *status;
} runner;

static void *run_forever(void *argument) {
  runner *self = argument;
  const char *fetch = "sum";
  weft_tensor *value = NULL;
  weft_session_run(self->session, NULL, NULL, 0, &fetch, &value, 1, NULL, 0, WEFT_NO_TIMEOUT,
                   self->status);
  weft_tensor_free(value);
  return NULL;
}

/* Start a thread, and return when it is extending its session. */
static void start(runner *self, weft_session *session) {
  enum { BRIEF_MS = 20 };
  weft_status *status = weft_status_new();
  *self = (runner){.session = session, .status = weft_status_new()};
  pthread_create(&self->thread, NULL, run_forever, self);
  while (!strstr(weft_status_message(status), "another thread"))
    weft_session_extend(session, BRIEF_MS, status);
  weft_status_free(status);
}

/* Close sessions of a server that is frozen after the first line, while two threads use them: one
 * waits for a reply, and one sends. Prints the errors of the threads. */
static int close_sessions(const char *target, int64_t timeout_ms) {
  enum { RUNNERS = 2, SESSIONS = 4 };
  program self = {.client = NULL};
  runner runners[RUNNERS];
  weft_session *sessions[SESSIONS];
  set_up(&self, target, timeout_ms);
  for (int i = 0; i < SESSIONS; i++)
    sessions[i] = weft_session_new(self.client, self.graph, NULL, 0, PATIENT_MS, self.status);
  puts("ready");
  fflush(stdout);
  getchar();
  start(&runners[0], sessions[0]);
  weft_graph_constant(self.graph, NULL, self.large, NULL, self.status);
  start(&runners[1], sessions[1]);
  int64_t begin = now_ms();
  for (int i = 0; i < SESSIONS; i++) weft_session_close(sessions[i]);
  tear_down(&self);
  for (int i = 0; i < RUNNERS; i++) {
    pthread_join(runners[i].thread, NULL);
    print_error(runners[i].status, begin);
    weft_status_free(runners[i].status);
  }
  return 0;
}

int main(int argc, char **argv) {
  if (argc == 4 && !strcmp(argv[1], "connect")) return try_to_connect(argv[2], atoll(argv[3]));
  if (argc == 4 && !strcmp(argv[1], "lines")) return run_by_line(argv[2], atoll(argv[3]));
  if (argc == 4 && !strcmp(argv[1], "close")) return close_sessions(argv[2], atoll(argv[3]));
  fputs("unknown program\n", stderr);
  return 1;
}
