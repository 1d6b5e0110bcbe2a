/* The C interface against one server: each check that fails says where and ends the program. */
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "weft_client.h"

static weft_status *status;

#define CHECK(condition)                                                                        \
  do {                                                                                          \
    if (!(condition)) {                                                                         \
      printf("line %d: %s: %s [%s] %s\n", __LINE__, #condition,                                 \
             weft_code_name(weft_status_code(status)), weft_status_node(status),                \
             weft_status_message(status));                                                      \
      exit(1);                                                                                  \
    }                                                                                           \
  } while (0)
#define OK(call) CHECK((call) == WEFT_OK)
#define FAILS(call, expected, words)                                                            \
  CHECK((call) == (expected) && strstr(weft_status_message(status), words))

static const int64_t two_by_two[] = {2, 2};
static float numbers[] = {1, 2, 3, 4};

static weft_tensor *matrix(void) {
  weft_tensor *tensor = weft_tensor_borrow(WEFT_FLOAT32, two_by_two, 2, numbers, sizeof numbers,
                                           NULL, NULL, status);
  CHECK(tensor);
  return tensor;
}

static const char *constant(weft_graph *graph, const char *name) {
  weft_tensor *tensor = matrix();
  const char *node = weft_graph_constant(graph, name, tensor, NULL, status);
  weft_tensor_free(tensor);
  CHECK(node);
  return node;
}

static const char *finish(weft_node *node) {
  const char *name = weft_node_finish(node, status);
  CHECK(name);
  return name;
}

static weft_tensor *fetch(weft_session *session, const char *output) {
  weft_tensor *value = NULL;
  OK(weft_session_run(session, NULL, NULL, 0, &output, &value, 1, NULL, 0, 0, status));
  CHECK(value);
  return value;
}

/* Several outputs, a device, a control edge, and a list of inputs. */
static void test_nodes(weft_session *session, weft_graph *graph) {
  const char *a = constant(graph, "a");
  weft_node *node = weft_node_new(graph, "Pack", NULL);
  const char *pair[] = {a, a};
  weft_node_input_list(node, pair, 2);
  weft_node_attr_int(node, "axis", 0);
  weft_node_device(node, "/device:CPU:0");
  const char *packed = finish(node);
  node = weft_node_new(graph, "Unpack", "parts");
  weft_node_input(node, packed);
  weft_node_attr_int(node, "num", 2);
  weft_node_control(node, a);
  weft_node_colocate(node, packed);
  const char *parts = finish(node), *outputs[2];
  char names[2][64];
  for (int i = 0; i < 2; i++) outputs[i] = names[i];
  snprintf(names[0], sizeof names[0], "%s:1", parts);
  snprintf(names[1], sizeof names[1], "%s", parts);
  weft_tensor *values[2];
  OK(weft_session_run(session, NULL, NULL, 0, outputs, values, 2, &a, 1, 0, status));
  for (int i = 0; i < 2; i++) {
    CHECK(weft_tensor_rank(values[i]) == 2 && weft_tensor_dim(values[i], 1) == 2);
    CHECK(!memcmp(weft_tensor_data(values[i]), numbers, sizeof numbers));
    weft_tensor_free(values[i]);
  }
  weft_dtype dtype;
  int rank;
  int64_t dims[WEFT_MAX_RANK];
  OK(weft_session_shape(session, packed, &dtype, &rank, dims, 0, status));
  CHECK(dtype == WEFT_FLOAT32 && rank == 3 && dims[0] == 2 && dims[1] == 2 && dims[2] == 2);
}

/* Each element type makes the round trip as a constant and as a feed. */
static void test_types(weft_session *session, weft_graph *graph) {
  for (int type = WEFT_FLOAT32; type <= WEFT_FLOAT4_E2M1FN; type++) {
    size_t size = weft_dtype_size((weft_dtype)type);
    if (!size) continue;
    const int64_t dims[] = {3};
    weft_tensor *value = weft_tensor_new((weft_dtype)type, dims, 1, status);
    CHECK(value && weft_tensor_size_bytes(value) == 3 * size);
    memset(weft_tensor_data(value), 1, 3 * size);
    const char *held = weft_graph_constant(graph, "held", value, NULL, status);
    weft_node *node = weft_node_new(graph, "Placeholder", "fed");
    weft_node_attr_type(node, "dtype", (weft_dtype)type);
    weft_node_attr_shape(node, "shape", NULL, -1);
    const char *fed = finish(node), *fetches[] = {held, fed};
    weft_tensor *results[2];
    weft_dtype dtype;
    int rank;
    int64_t sizes[WEFT_MAX_RANK];
    OK(weft_session_shape(session, held, &dtype, &rank, sizes, 0, status));
    CHECK(dtype == (weft_dtype)type && rank == 1 && sizes[0] == 3);
    OK(weft_session_run(session, &fed, &value, 1, fetches, results, 2, NULL, 0, 0, status));
    for (int i = 0; i < 2; i++) {
      CHECK(weft_dtype_name(weft_tensor_dtype(results[i])) && weft_tensor_rank(results[i]) == 1);
      CHECK(!memcmp(weft_tensor_data(results[i]), weft_tensor_data(value), 3 * size));
      weft_tensor_free(results[i]);
    }
    weft_tensor_free(value);
  }
}

static void test_strings(weft_session *session, weft_graph *graph) {
  const char *items[] = {"a", "", "b\0c"};
  const size_t sizes[] = {1, 0, 3};
  const int64_t dims[] = {3, 1};
  weft_tensor *texts = weft_tensor_strings(items, sizes, dims, 2, status);
  CHECK(texts);
  weft_node *node = weft_node_new(graph, "StringJoin", NULL);
  const char *text = weft_graph_constant(graph, "text", texts, "/device:CPU:0", status);
  const char *twice[] = {text, text};
  weft_tensor_free(texts);
  weft_node_input_list(node, twice, 2);
  weft_node_attr_string(node, "separator", "-", 1);
  weft_tensor *joined = fetch(session, finish(node));
  size_t size;
  const char *last = weft_tensor_string(joined, 2, &size);
  CHECK(weft_tensor_dim(joined, 0) == 3 && size == 7 && !memcmp(last, "b\0c-b\0c", 7));
  CHECK(!weft_tensor_string(joined, 3, &size));
  weft_tensor_free(joined);
}

/* A value of several chunks, in both directions, and one of no elements. */
static void test_sizes(weft_session *session, weft_graph *graph) {
  const int64_t large[] = {3 << 20}, none[] = {0, 5};
  weft_tensor *value = weft_tensor_new(WEFT_UINT8, large, 1, status);
  CHECK(value);
  for (int i = 0; i < 3 << 20; i++) ((uint8_t *)weft_tensor_data(value))[i] = (uint8_t)(i % 251);
  const char *name = weft_graph_constant(graph, "large", value, NULL, status);
  weft_node *node = weft_node_new(graph, "BitwiseXor", NULL);
  weft_node_input(node, name);
  weft_node_input(node, name);
  weft_tensor *zeros = fetch(session, finish(node)), *same = fetch(session, name);
  CHECK(!memcmp(weft_tensor_data(same), weft_tensor_data(value), 3 << 20));
  CHECK(((uint8_t *)weft_tensor_data(zeros))[(3 << 20) - 1] == 0);
  weft_tensor *empty = weft_tensor_new(WEFT_FLOAT64, none, 2, status);
  weft_tensor *back = fetch(session, weft_graph_constant(graph, "empty", empty, NULL, status));
  CHECK(weft_tensor_num_elements(back) == 0 && weft_tensor_dim(back, 1) == 5);
  weft_tensor *const all[] = {value, zeros, same, empty, back};
  for (int i = 0; i < 5; i++) weft_tensor_free(all[i]);
}

/* Attributes of every kind, on an op that has none of them: the server keeps their names. */
static void test_attributes(weft_session *session, weft_graph *graph) {
  weft_tensor *tensor = matrix();
  const weft_tensor *tensors[] = {tensor, tensor};
  const int64_t ints[] = {-1, 1ll << 40}, *dims[] = {two_by_two, NULL};
  const double floats[] = {0.5, -2};
  const unsigned char bools[] = {1, 0};
  const char *texts[] = {"x", "yz"};
  const weft_dtype types[] = {WEFT_BOOL, WEFT_STRING};
  const int ranks[] = {2, -1};
  weft_node *node = weft_node_new(graph, "NoOp", "attributes");
  weft_node_attr_int(node, "_i", -7);
  weft_node_attr_float(node, "_f", 1.5);
  weft_node_attr_bool(node, "_b", 1);
  weft_node_attr_string(node, "_s", "a\0b", 3);
  weft_node_attr_type(node, "_t", WEFT_COMPLEX128);
  weft_node_attr_shape(node, "_h", two_by_two, 2);
  weft_node_attr_tensor(node, "_n", tensor);
  weft_node_attr_function(node, "_u", "Affine");
  weft_node_attr_ints(node, "_li", ints, 2);
  weft_node_attr_floats(node, "_lf", floats, 2);
  weft_node_attr_bools(node, "_lb", bools, 2);
  weft_node_attr_strings(node, "_ls", texts, NULL, 2);
  weft_node_attr_types(node, "_lt", types, 2);
  weft_node_attr_shapes(node, "_lh", dims, ranks, 2);
  weft_node_attr_tensors(node, "_ln", tensors, 2);
  weft_node_attr_functions(node, "_lu", texts, 2);
  weft_node_attr_ints(node, "_l0", NULL, 0);
  const char *name = finish(node);
  OK(weft_session_run(session, NULL, NULL, 0, NULL, NULL, 0, &name, 1, 0, status));
  weft_tensor_free(tensor);
}

static weft_graph *affine_body(void) {
  weft_graph *body = weft_graph_new();
  for (int i = 0; i < 2; i++) {
    weft_node *node = weft_node_new(body, "Placeholder", i ? "b" : "a");
    weft_node_attr_type(node, "dtype", WEFT_FLOAT32);
    weft_node_attr_shape(node, "shape", two_by_two, 2);
    finish(node);
  }
  weft_node *product = weft_node_new(body, "MatMul", "product");
  weft_node_input(product, "a");
  weft_node_input(product, "b");
  finish(product);
  weft_node *sum = weft_node_new(body, "AddV2", "sum");
  weft_node_input(sum, "product");
  weft_node_input(sum, constant(body, "offset"));
  finish(sum);
  return body;
}

static void test_functions(weft_session *session, weft_graph *graph) {
  weft_graph *body = affine_body();
  const char *inputs[] = {"a", "b"}, *outputs[] = {"sum"}, *results[] = {"y"};
  OK(weft_graph_function(graph, "Affine", body, inputs, 2, outputs, 1, results, status));
  weft_graph_free(body);
  const char *x = constant(graph, "x");
  weft_node *call = weft_node_new(graph, "Affine", NULL);
  weft_node_input(call, x);
  weft_node_input(call, x);
  const char *y = finish(call);
  weft_tensor *value = fetch(session, y);
  CHECK(((float *)weft_tensor_data(value))[3] == 22 + 4);
  weft_tensor_free(value);
  weft_names *gradients = weft_session_gradients(session, &y, 1, &x, 1, NULL, NULL, 0, status);
  CHECK(gradients && weft_names_count(gradients) == 1);
  value = fetch(session, weft_names_get(gradients, 0));
  CHECK(((float *)weft_tensor_data(value))[0] == 3 + 4);
  weft_tensor_free(value);
  weft_names_free(gradients);
  weft_names *functions = weft_session_functions(session, 0, status);
  CHECK(functions && weft_names_count(functions) >= 1);
  weft_names_free(functions);
  const char *name = "Affine";
  weft_tensor *definitions = weft_session_function_defs(session, &name, 1, 0, status);
  CHECK(definitions && weft_tensor_dtype(definitions) == WEFT_UINT8);
  weft_graph *other = weft_graph_new();
  OK(weft_graph_import(other, weft_tensor_data(definitions), weft_tensor_size_bytes(definitions),
                       status));
  weft_graph_free(other);
  weft_tensor_free(definitions);
}

static void test_sparse_gradients(weft_session *session, weft_graph *graph) {
  const int64_t dims[] = {1};
  int32_t row = 1, axis = 0;
  weft_tensor *rows = weft_tensor_borrow(WEFT_INT32, dims, 1, &row, sizeof row, NULL, NULL, status);
  weft_tensor *zero = weft_tensor_borrow(WEFT_INT32, NULL, 0, &axis, sizeof axis, NULL, NULL, status);
  const char *table = constant(graph, "table");
  weft_node *gather = weft_node_new(graph, "GatherV2", NULL);
  weft_node_input(gather, table);
  weft_node_input(gather, weft_graph_constant(graph, NULL, rows, NULL, status));
  weft_node_input(gather, weft_graph_constant(graph, NULL, zero, NULL, status));
  const char *y = finish(gather);
  OK(weft_session_extend(session, 0, status));
  weft_tensor_free(rows);
  weft_tensor_free(zero);
  weft_names *indices, *values;
  values = weft_session_gradients(session, &y, 1, &table, 1, NULL, &indices, 0, status);
  CHECK(values && *weft_names_get(indices, 0));
  weft_tensor *index = fetch(session, weft_names_get(indices, 0));
  CHECK(*(int32_t *)weft_tensor_data(index) == 1);
  weft_tensor_free(index);
  weft_names_free(indices);
  weft_names_free(values);
}

static void test_local_errors(weft_session *session, weft_graph *graph) {
  const int64_t vast[] = {1ll << 40, 1ll << 40}, negative[] = {-1}, large[] = {(1ll << 36) + 1};
  CHECK(!weft_tensor_new(WEFT_FLOAT32, vast, 2, status));
  CHECK(weft_status_code(status) == WEFT_RESOURCE_EXHAUSTED);
  CHECK(!weft_tensor_new(WEFT_FLOAT32, negative, 1, status));
  CHECK(!weft_tensor_new(WEFT_RESOURCE, NULL, 0, status));
  CHECK(strstr(weft_status_message(status), "resource"));
  CHECK(!weft_tensor_new(WEFT_FLOAT32, vast, 33, status));
  CHECK(!weft_tensor_borrow(WEFT_INT16, two_by_two, 2, numbers, 7, NULL, NULL, status));
  CHECK(strstr(weft_status_message(status), "8 bytes, got 7"));
  weft_node *node = weft_node_new(graph, "Placeholder", "vast");
  weft_node_attr_type(node, "dtype", WEFT_UINT8);
  const char *fed = finish(node);
  weft_tensor *value = weft_tensor_borrow(WEFT_UINT8, large, 1, numbers, (size_t)large[0], NULL,
                                          NULL, status);
  FAILS(weft_session_run(session, &fed, &value, 1, NULL, NULL, 0, &fed, 1, 0, status),
        WEFT_RESOURCE_EXHAUSTED, "68719476736 bytes");
  weft_tensor_free(value);
  value = NULL;
  FAILS(weft_session_run(session, &fed, &value, 1, NULL, NULL, 0, &fed, 1, 0, status),
        WEFT_INVALID_ARGUMENT, "is fed no value");
}

/* NULL in place of an object or an array. */
static void test_nothing(weft_session *session, weft_graph *graph) {
  const char *held = constant(graph, "nothing"), *none = NULL;
  weft_tensor *value = NULL;
  OK(weft_session_shape(session, held, NULL, NULL, NULL, 0, status));
  FAILS(weft_session_shape(session, NULL, NULL, NULL, NULL, 0, status), WEFT_INVALID_ARGUMENT,
        "NULL");
  FAILS(weft_session_run(session, NULL, NULL, 0, &held, NULL, 1, NULL, 0, 0, status),
        WEFT_INVALID_ARGUMENT, "NULL");
  FAILS(weft_session_run(session, NULL, NULL, 0, NULL, &value, 1, NULL, 0, 0, status),
        WEFT_INVALID_ARGUMENT, "NULL");
  FAILS(weft_session_run(session, NULL, NULL, 0, NULL, NULL, 0, &none, 1, 0, status),
        WEFT_INVALID_ARGUMENT, "NULL");
  CHECK(!weft_session_gradients(session, &none, 1, &held, 1, NULL, NULL, 0, status));
  CHECK(!weft_session_function_defs(session, &none, 1, 0, status));
  CHECK(!weft_session_new(NULL, graph, NULL, 0, 0, status));
  FAILS(weft_status_code(status), WEFT_INVALID_ARGUMENT, "no client");
  FAILS(weft_session_run(NULL, NULL, NULL, 0, NULL, NULL, 0, NULL, 0, 0, status),
        WEFT_INVALID_ARGUMENT, "NULL");
  FAILS(weft_session_extend(NULL, 0, status), WEFT_INVALID_ARGUMENT, "NULL");
  FAILS(weft_session_shape(NULL, held, NULL, NULL, NULL, 0, status), WEFT_INVALID_ARGUMENT, "NULL");
  FAILS(weft_client_reset(NULL, NULL, 0, 0, status), WEFT_INVALID_ARGUMENT, "NULL");
  FAILS(weft_graph_import(graph, NULL, 5, status), WEFT_INVALID_ARGUMENT, "NULL");
  FAILS(weft_graph_import(NULL, "", 0, status), WEFT_INVALID_ARGUMENT, "NULL");
  FAILS(weft_graph_function(graph, "F", NULL, NULL, 0, NULL, 0, NULL, status),
        WEFT_INVALID_ARGUMENT, "NULL");
  FAILS(weft_graph_function(graph, "F", graph, &none, 1, NULL, 0, NULL, status),
        WEFT_INVALID_ARGUMENT, "NULL");
  CHECK(!weft_session_gradients(NULL, &held, 1, &held, 1, NULL, NULL, 0, status));
  CHECK(!weft_session_functions(NULL, 0, status) && !weft_session_num_devices(NULL));
  CHECK(!weft_session_function_defs(NULL, &held, 1, 0, status) && !weft_session_device(NULL, 0));
  CHECK(!weft_client_target(NULL) && !weft_graph_unique_name(graph, NULL));
  CHECK(!weft_session_new((weft_client *)1, graph, NULL, 1, 0, status));
  CHECK(!weft_graph_constant(NULL, NULL, NULL, NULL, status));
  CHECK(!weft_client_connect(NULL, NULL) && !weft_node_finish(NULL, NULL));
  CHECK(!weft_tensor_dtype(NULL) && weft_tensor_rank(NULL) == -1 && !weft_tensor_data(NULL));
  CHECK(!weft_tensor_num_elements(NULL) && !weft_tensor_size_bytes(NULL));
  CHECK(weft_tensor_dim(NULL, 0) == -1 && !weft_tensor_string(NULL, 0, NULL));
  const int64_t two = 2;
  const int rank = 1;
  CHECK(!weft_tensor_new(WEFT_FLOAT32, NULL, 2, status));
  CHECK(!weft_tensor_strings(NULL, NULL, &two, 1, status));
  CHECK(!weft_tensor_strings(&none, NULL, NULL, 0, status));
  FAILS(weft_status_code(status), WEFT_INVALID_ARGUMENT, "string 0 of a tensor is NULL");
  CHECK(!weft_node_finish(weft_node_new(graph, NULL, NULL), status));
  CHECK(!weft_node_finish(weft_node_new(NULL, "NoOp", NULL), status));
  for (int i = 0; i <= 19; i++) {
    weft_node *node = weft_node_new(graph, "NoOp", "incomplete");
    if (i == 0) weft_node_input(node, NULL);
    if (i == 1) weft_node_input_list(node, NULL, 2);
    if (i == 2) weft_node_control(node, NULL);
    if (i == 3) weft_node_device(node, NULL);
    if (i == 4) weft_node_colocate(node, NULL);
    if (i == 5) weft_node_attr_int(node, NULL, 1);
    if (i == 6) weft_node_attr_string(node, "a", NULL, 1);
    if (i == 7) weft_node_attr_shape(node, "a", NULL, 1);
    if (i == 8) weft_node_attr_tensor(node, "a", NULL);
    if (i == 9) weft_node_attr_function(node, "a", NULL);
    if (i == 10) weft_node_attr_ints(node, "a", NULL, 1);
    if (i == 11) weft_node_attr_floats(node, "a", NULL, 1);
    if (i == 12) weft_node_attr_bools(node, "a", NULL, 1);
    if (i == 13) weft_node_attr_strings(node, "a", &none, NULL, 1);
    if (i == 14) weft_node_attr_types(node, "a", NULL, 1);
    if (i == 15) weft_node_attr_shapes(node, "a", NULL, &rank, 1);
    if (i == 16) weft_node_attr_tensors(node, "a", NULL, 1);
    if (i == 17) weft_node_attr_functions(node, "a", &none, 1);
    if (i == 18) weft_node_attr_float(node, NULL, 1);
    if (i == 19) weft_node_attr_type(node, NULL, WEFT_INT32);
    CHECK(!weft_node_finish(node, status));
    FAILS(weft_status_code(status), WEFT_INVALID_ARGUMENT, "'incomplete' (NoOp) is NULL");
  }
}

/* Names that are not UTF-8. */
static void test_names(weft_session *session, weft_graph *graph) {
  const char *names[] = {"a\xff", "\xc0\x80", "\xed\xa0\x80", "\xe2\x82"};
  weft_tensor *value = matrix();
  for (int i = 0; i < 4; i++) {
    CHECK(!weft_node_finish(weft_node_new(graph, "NoOp", names[i]), status));
    FAILS(weft_status_code(status), WEFT_INVALID_ARGUMENT, i ? "\\x" : "UTF-8, got 'a\\xff'");
    CHECK(!weft_graph_constant(graph, names[i], value, NULL, status));
    FAILS(weft_graph_function(graph, names[i], graph, NULL, 0, NULL, 0, NULL, status),
          WEFT_INVALID_ARGUMENT, "UTF-8");
  }
  weft_tensor_free(value);
  OK(weft_session_extend(session, 0, status));
}

/* Damaged GraphDefs; each is the beginning of a valid one. */
static void test_imports(weft_session *session, weft_graph *graph) {
  static const uint8_t valid[] = {0x0a, 13, 0x0a, 5, 'A', 'l', 'o', 'n', 'e',
                                  0x12, 4,  'N',  'o', 'O', 'p'};
  static const uint8_t vast[] = {0x0a, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f};
  weft_graph *other = weft_graph_new();
  (void)session;
  OK(weft_graph_import(other, NULL, 0, status));
  for (size_t size = 1; size < sizeof valid; size++)
    FAILS(weft_graph_import(other, valid, size, status), WEFT_DATA_LOSS, "GraphDef");
  FAILS(weft_graph_import(other, vast, sizeof vast, status), WEFT_DATA_LOSS, "GraphDef");
  OK(weft_graph_import(other, valid, sizeof valid, status));
  FAILS(weft_graph_import(other, valid, sizeof valid, status), WEFT_ALREADY_EXISTS, "'Alone'");
  CHECK(!strcmp(weft_status_node(status), "Alone"));
  CHECK(!strcmp(weft_graph_unique_name(other, "aLoNe"), "aLoNe_1"));
  weft_graph_free(other);
  (void)graph;
}

/* Threads that run steps of one session, one of which waits for another. */
typedef struct job {
  weft_session *session;
  const char *enqueue, *dequeue;
  int errors;
} job;

static void *dequeue(void *argument) {
  job *work = argument;
  weft_tensor *value = NULL;
  work->errors = weft_session_run(work->session, NULL, NULL, 0, &work->dequeue, &value, 1, NULL, 0,
                                  20000, NULL) != WEFT_OK;
  weft_tensor_free(value);
  return NULL;
}

static void test_threads(weft_session *session, weft_graph *graph) {
  enum { COUNT = 4 };
  const weft_dtype type = WEFT_FLOAT32;
  weft_node *node = weft_node_new(graph, "FIFOQueueV2", "queue");
  weft_node_attr_types(node, "component_types", &type, 1);
  const char *queue = finish(node);
  node = weft_node_new(graph, "QueueEnqueueV2", "enqueue");
  weft_node_input(node, queue);
  const char *value = constant(graph, "element");
  weft_node_input_list(node, &value, 1);
  const char *enqueue = finish(node);
  node = weft_node_new(graph, "QueueDequeueV2", "dequeue");
  weft_node_input(node, queue);
  weft_node_attr_types(node, "component_types", &type, 1);
  job work[COUNT];
  pthread_t threads[COUNT];
  const char *taken = finish(node);
  for (int i = 0; i < COUNT; i++) {
    work[i] = (job){session, enqueue, taken, 1};
    CHECK(!pthread_create(&threads[i], NULL, dequeue, &work[i]));
  }
  for (int i = 0; i < COUNT; i++)
    OK(weft_session_run(session, NULL, NULL, 0, NULL, NULL, 0, &enqueue, 1, 0, status));
  for (int i = 0; i < COUNT; i++) {
    pthread_join(threads[i], NULL);
    CHECK(!work[i].errors);
  }
  weft_tensor *none = NULL;
  FAILS(weft_session_run(session, NULL, NULL, 0, &taken, &none, 1, NULL, 0, 100, status),
        WEFT_DEADLINE_EXCEEDED, "");
  CHECK(!none);
}

/* Threads of one session feed a tensor of several chunks, often with a deadline that cuts it. */
typedef struct feeder {
  weft_session *session;
  const char *fed, *size;
  weft_tensor *value;
  int errors;
} feeder;

static void *feed_often(void *argument) {
  enum { COUNT = 12, PATIENT_MS = 60000 };
  feeder *self = argument;
  for (int i = 0; i < COUNT; i++) {
    weft_tensor *result = NULL;
    int64_t timeout = i % 2 ? PATIENT_MS : 1 + i;
    weft_code code = weft_session_run(self->session, &self->fed, &self->value, 1, &self->size,
                                      &result, 1, NULL, 0, timeout, NULL);
    bool is_late = code == WEFT_DEADLINE_EXCEEDED && timeout != PATIENT_MS;
    self->errors += code != WEFT_OK && !is_late;
    weft_tensor_free(result);
  }
  return NULL;
}

static void test_cut_messages(weft_session *session, weft_graph *graph) {
  enum { COUNT = 3 };
  const int64_t dims[] = {3 << 20};
  weft_tensor *value = weft_tensor_new(WEFT_UINT8, dims, 1, status);
  memset(weft_tensor_data(value), 0, weft_tensor_size_bytes(value));
  weft_node *node = weft_node_new(graph, "Placeholder", "cut");
  weft_node_attr_type(node, "dtype", WEFT_UINT8);
  const char *fed = finish(node);
  node = weft_node_new(graph, "Size", NULL);
  weft_node_input(node, fed);
  const char *size = finish(node);
  feeder feeders[COUNT];
  pthread_t threads[COUNT];
  for (int i = 0; i < COUNT; i++) {
    feeders[i] = (feeder){session, fed, size, value, 0};
    CHECK(!pthread_create(&threads[i], NULL, feed_often, &feeders[i]));
  }
  for (int i = 0; i < COUNT; i++) {
    pthread_join(threads[i], NULL);
    CHECK(!feeders[i].errors);
  }
  weft_tensor_free(value);
}

/* The session repeats the error of a node that the server refuses. */
static void test_unknown_op(weft_session *session, weft_graph *graph) {
  finish(weft_node_new(graph, "Nonsense", "bad"));
  for (int i = 0; i < 2; i++) {
    FAILS(weft_session_extend(session, 0, status), WEFT_NOT_FOUND, "Nonsense");
    CHECK(!strcmp(weft_status_node(status), "bad"));
  }
}

static void read_all(const weft_tensor *value) {
  if (!value) return;
  unsigned sum = 0;
  for (size_t i = 0; i < weft_tensor_size_bytes(value); i++)
    sum += ((const uint8_t *)weft_tensor_data(value))[i];
  for (int64_t i = 0; i < weft_tensor_num_elements(value); i++) {
    size_t size = 0;
    const char *text = weft_tensor_string(value, i, &size);
    for (size_t j = 0; text && j < size; j++) sum += (uint8_t)text[j];
  }
  if (sum == 1) fputs("", stderr); /* so that it is read */
}

/* Connect many times to a server whose replies are damaged; each attempt ends. */
static int connect_often(const char *target, int count) {
  int opened = 0;
  for (int i = 0; i < count; i++) {
    weft_client_options options = {.target = target, .timeout_ms = 2000};
    weft_client *client = weft_client_connect(&options, NULL);
    if (!client) continue;
    weft_graph *graph = weft_graph_new();
    weft_session *session = weft_session_new(client, graph, NULL, 0, 0, NULL);
    opened += session != NULL;
    const char *fetches[] = {"x", "y", "z"};
    weft_tensor *values[3] = {NULL, NULL, NULL};
    if (session) weft_session_run(session, NULL, NULL, 0, fetches, values, 3, NULL, 0, 0, NULL);
    for (int j = 0; j < 3; j++) {
      read_all(values[j]);
      weft_tensor_free(values[j]);
    }
    weft_session_close(session);
    weft_graph_free(graph);
    weft_client_close(client);
  }
  printf("%d\n", opened);
  return 0;
}

int main(int argc, char **argv) {
  if (argc > 2) return connect_often(argv[1], atoi(argv[2]));
  status = weft_status_new();
  weft_client_options options = {.target = argc > 1 ? argv[1] : NULL};
  weft_client *client = weft_client_connect(&options, status);
  CHECK(client);
  weft_graph *graph = weft_graph_new();
  weft_session *session = weft_session_new(client, graph, NULL, 0, 0, status);
  CHECK(session && strstr(weft_session_device(session, 0), "/device:CPU:0"));
  void (*tests[])(weft_session *, weft_graph *) = {
      test_nodes,     test_types,            test_strings,      test_sizes,   test_attributes,
      test_functions, test_sparse_gradients, test_local_errors, test_nothing, test_names,
      test_imports,   test_threads,          test_cut_messages, test_unknown_op};
  for (size_t i = 0; i < sizeof tests / sizeof *tests; i++) tests[i](session, graph);
  weft_session_close(session);
  weft_graph_free(graph);
  weft_client_close(client);
  weft_status_free(status);
  puts("complete");
  return 0;
}
