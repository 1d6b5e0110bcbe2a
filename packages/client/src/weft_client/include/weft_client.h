/* weft_client.h: build graphs on a weft server and run them, from C.
 *
 * Errors: functions that can fail return a code of `weft_code`, or NULL. They fill `status`, which
 * may be NULL. Nothing throws or exits. NULL for another argument that is needed is an error, of
 * WEFT_INVALID_ARGUMENT; functions without an error return nothing then, or do nothing.
 *
 * Threads: all functions on a client, session or graph may be called from several threads at once.
 * No thread may use an object while another one frees it, with one exception: `weft_session_close`
 * cancels the calls on the session that have begun. A tensor or a node under construction belongs to
 * one thread at a time.
 *
 * Names: a node is known by its name, an output by "node:port"; ":0" may be left out. Strings are
 * UTF-8 and end with a NUL. Strings that functions return belong to their object.
 *
 * Time: `timeout_ms` is the deadline of a call in milliseconds; 0 is the default of the client, and
 * WEFT_NO_TIMEOUT is none. A step may take half a second longer, in which the server reports what
 * it waited for. After WEFT_DEADLINE_EXCEEDED the session, and others of the client, can be used
 * further: what was added to the graph is sent by the next call. After WEFT_UNAVAILABLE the sessions
 * of the client are lost.
 */
#ifndef WEFT_CLIENT_H
#define WEFT_CLIENT_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define WEFT_CLIENT_VERSION "0.1.0"
#define WEFT_NO_TIMEOUT ((int64_t)-1)

/* ------------------------------------------------------------------------------- errors */

typedef enum weft_code {
  WEFT_OK = 0,
  WEFT_CANCELLED = 1,
  WEFT_UNKNOWN = 2,
  WEFT_INVALID_ARGUMENT = 3,
  WEFT_DEADLINE_EXCEEDED = 4,
  WEFT_NOT_FOUND = 5,
  WEFT_ALREADY_EXISTS = 6,
  WEFT_PERMISSION_DENIED = 7,
  WEFT_RESOURCE_EXHAUSTED = 8,
  WEFT_FAILED_PRECONDITION = 9,
  WEFT_ABORTED = 10,
  WEFT_OUT_OF_RANGE = 11,
  WEFT_UNIMPLEMENTED = 12,
  WEFT_INTERNAL = 13,
  WEFT_UNAVAILABLE = 14,
  WEFT_DATA_LOSS = 15,
  WEFT_UNAUTHENTICATED = 16
} weft_code;

/* The last error of calls that were given it: a code, a message and a place. */
typedef struct weft_status weft_status;

weft_status *weft_status_new(void);
void weft_status_free(weft_status *);
/* Forget an error; calls that succeed leave it. */
void weft_status_clear(weft_status *);
weft_code weft_status_code(const weft_status *);
/* Each returns "" if it is unknown. */
const char *weft_status_message(const weft_status *);
const char *weft_status_node(const weft_status *);
const char *weft_status_op(const weft_status *);
const char *weft_status_device(const weft_status *);
/* The name of a code: "INVALID_ARGUMENT". */
const char *weft_code_name(weft_code);

/* ------------------------------------------------------------------------------ tensors */

/* Element types, with TensorFlow's numbers. */
typedef enum weft_dtype {
  WEFT_FLOAT32 = 1,
  WEFT_FLOAT64 = 2,
  WEFT_INT32 = 3,
  WEFT_UINT8 = 4,
  WEFT_INT16 = 5,
  WEFT_INT8 = 6,
  WEFT_STRING = 7,
  WEFT_COMPLEX64 = 8,
  WEFT_INT64 = 9,
  WEFT_BOOL = 10,
  WEFT_QINT8 = 11,
  WEFT_QUINT8 = 12,
  WEFT_QINT32 = 13,
  WEFT_BFLOAT16 = 14,
  WEFT_QINT16 = 15,
  WEFT_QUINT16 = 16,
  WEFT_UINT16 = 17,
  WEFT_COMPLEX128 = 18,
  WEFT_FLOAT16 = 19,
  WEFT_RESOURCE = 20,
  WEFT_VARIANT = 21,
  WEFT_UINT32 = 22,
  WEFT_UINT64 = 23,
  WEFT_FLOAT8_E5M2 = 24,
  WEFT_FLOAT8_E4M3FN = 25,
  WEFT_FLOAT8_E4M3FNUZ = 26,
  WEFT_FLOAT8_E4M3B11FNUZ = 27,
  WEFT_FLOAT8_E5M2FNUZ = 28,
  WEFT_INT4 = 29, /* one element a byte, as all types of fewer than 8 bits */
  WEFT_UINT4 = 30,
  WEFT_INT2 = 31,
  WEFT_UINT2 = 32,
  WEFT_FLOAT4_E2M1FN = 33
} weft_dtype;

#define WEFT_MAX_RANK 32

/* The bytes of an element; 0 for strings and for types that stay in their process. */
size_t weft_dtype_size(weft_dtype);
/* The name of a type: "float32"; NULL if there is no such type. */
const char *weft_dtype_name(weft_dtype);

/* A tensor: an element type, a shape and elements in row-major order. Reference-counted. */
typedef struct weft_tensor weft_tensor;

/* A tensor with uninitialized elements, which must be a type with a size. */
weft_tensor *weft_tensor_new(weft_dtype, const int64_t *dims, int rank, weft_status *);
/* A tensor over memory of the caller, which is not copied. `release(data, argument)` is called when
 * the tensor is freed, on any thread; it may be NULL. */
weft_tensor *weft_tensor_borrow(weft_dtype, const int64_t *dims, int rank, void *data,
                                size_t size_bytes, void (*release)(void *data, void *argument),
                                void *argument, weft_status *);
/* A tensor of copies of strings of any bytes; `sizes` may be NULL if each ends with a NUL. */
weft_tensor *weft_tensor_strings(const char *const *items, const size_t *sizes,
                                 const int64_t *dims, int rank, weft_status *);
weft_tensor *weft_tensor_retain(weft_tensor *);
void weft_tensor_free(weft_tensor *); /* drops one reference */

/* A tensor that is NULL has the type 0, a rank of -1, and no elements. */
weft_dtype weft_tensor_dtype(const weft_tensor *);
int weft_tensor_rank(const weft_tensor *);
int64_t weft_tensor_dim(const weft_tensor *, int axis);
int64_t weft_tensor_num_elements(const weft_tensor *);
size_t weft_tensor_size_bytes(const weft_tensor *);
/* The elements; of strings see `weft_tensor_string`. */
void *weft_tensor_data(const weft_tensor *);
/* One string and its size; NULL if there is no such element. It ends with no NUL. */
const char *weft_tensor_string(const weft_tensor *, int64_t index, size_t *size);

/* ------------------------------------------------------------------------------- graphs */

/* Nodes and functions, in the order in which they are added. Sessions send what is new; several may
 * have the same graph. Names that differ only in the case of letters are equal. */
typedef struct weft_graph weft_graph;

weft_graph *weft_graph_new(void);
/* Sessions that use the graph must be closed before. */
void weft_graph_free(weft_graph *);
/* `name`, or with a suffix if the graph has it already. The result is not given out again. */
const char *weft_graph_unique_name(weft_graph *, const char *name);

/* A node under construction. Errors are reported by `weft_node_finish`. Attributes that follow from
 * the inputs, such as element types, and those with a default may be left out. */
typedef struct weft_node weft_node;

/* Begin a node. `name` may be NULL: that of the op; a suffix makes it unique. */
weft_node *weft_node_new(weft_graph *, const char *op, const char *name);
void weft_node_input(weft_node *, const char *output);
/* An argument that is a list. */
void weft_node_input_list(weft_node *, const char *const *outputs, size_t count);
void weft_node_control(weft_node *, const char *node);
void weft_node_device(weft_node *, const char *device);
/* Place the node with another one. */
void weft_node_colocate(weft_node *, const char *node);

void weft_node_attr_int(weft_node *, const char *name, int64_t value);
void weft_node_attr_float(weft_node *, const char *name, double value);
void weft_node_attr_bool(weft_node *, const char *name, int value);
void weft_node_attr_string(weft_node *, const char *name, const char *value, size_t size);
void weft_node_attr_type(weft_node *, const char *name, weft_dtype value);
/* A rank of -1 is an unknown one; a size of -1 is unknown. */
void weft_node_attr_shape(weft_node *, const char *name, const int64_t *dims, int rank);
void weft_node_attr_tensor(weft_node *, const char *name, const weft_tensor *value);
void weft_node_attr_function(weft_node *, const char *name, const char *function);
void weft_node_attr_ints(weft_node *, const char *name, const int64_t *values, size_t count);
void weft_node_attr_floats(weft_node *, const char *name, const double *values, size_t count);
void weft_node_attr_bools(weft_node *, const char *name, const unsigned char *values,
                          size_t count);
void weft_node_attr_strings(weft_node *, const char *name, const char *const *values,
                            const size_t *sizes, size_t count);
void weft_node_attr_types(weft_node *, const char *name, const weft_dtype *values, size_t count);
void weft_node_attr_shapes(weft_node *, const char *name, const int64_t *const *dims,
                           const int *ranks, size_t count);
void weft_node_attr_tensors(weft_node *, const char *name, const weft_tensor *const *values,
                            size_t count);
void weft_node_attr_functions(weft_node *, const char *name, const char *const *functions,
                              size_t count);

/* Add the node to its graph and free the construction. Returns the name of the node, or NULL. */
const char *weft_node_finish(weft_node *, weft_status *);
void weft_node_cancel(weft_node *);

/* Add a constant of any size, without copying it. Returns the name of its node, or NULL. */
const char *weft_graph_constant(weft_graph *, const char *name, weft_tensor *value,
                                const char *device, weft_status *);
/* Add a function whose body is another graph. `inputs` are names of Placeholder nodes of the body,
 * `outputs` names of its outputs; `results`, names of the results, may be NULL. A node whose op is
 * `name` calls it. The body may be freed afterwards. */
weft_code weft_graph_function(weft_graph *, const char *name, weft_graph *body,
                              const char *const *inputs, size_t num_inputs,
                              const char *const *outputs, size_t num_outputs,
                              const char *const *results, weft_status *);
/* Add the nodes and functions of a serialized GraphDef, such as a file that Python has written.
 * WEFT_ALREADY_EXISTS if a node of the graph has the name of one of them. */
weft_code weft_graph_import(weft_graph *, const void *graph_def, size_t size, weft_status *);

/* ------------------------------------------------------------------------------ clients */

/* A connection to a server. */
typedef struct weft_client weft_client;

/* Set all fields that are not used to 0. */
typedef struct weft_client_options {
  /* Address of the server's value port: "weft://host:port". */
  const char *target;
  /* Files as for other clients; by default those that WEFT_CERTIFICATE, WEFT_KEY, WEFT_AUTHORITY
   * and WEFT_TOKEN name. Without them, a server of this user on loopback needs none. */
  const char *certificate, *key, *authority, *token;
  /* Default deadline of calls; 0 for 60 seconds. */
  int64_t timeout_ms;
} weft_client_options;

weft_client *weft_client_connect(const weft_client_options *, weft_status *);

/* Set all fields that are not used to 0. */
typedef struct weft_launch_options {
  /* Program and first arguments, up to a NULL; by default WEFT_COMMAND, or "weft", and "server". */
  const char *const *command;
  /* Further arguments, up to a NULL, such as "--root", "/data". */
  const char *const *arguments;
  int64_t timeout_ms; /* as above, of calls, and of the start */
} weft_launch_options;

/* Start a server of one task for this program, and connect to it. It ends with the client, or when
 * the program ends, in whichever way: its standard input is a pipe from the program. */
weft_client *weft_client_launch_local(const weft_launch_options *, weft_status *);
/* The target of a client, for others that connect to the same server. */
const char *weft_client_target(const weft_client *);
/* Close the connection; its sessions must be closed before. A server that was started for the client
 * has 5 seconds to stop. */
void weft_client_close(weft_client *);
/* Drop the state of all tasks: of the named containers, or of all if there are none. */
weft_code weft_client_reset(weft_client *, const char *const *containers, size_t count,
                            int64_t timeout_ms, weft_status *);

/* ----------------------------------------------------------------------------- sessions */

/* A session of a client: a graph over the devices of a cluster. */
typedef struct weft_session weft_session;

/* Open a session. `config` is a serialized ConfigProto, or NULL. */
weft_session *weft_session_new(weft_client *, weft_graph *, const void *config, size_t config_size,
                               int64_t timeout_ms, weft_status *);
/* End and free the session. Calls on it that have begun in other threads fail with WEFT_CANCELLED,
 * and have returned when it returns; none may begin later. A server that does not answer delays all
 * sessions of a client together by the client's timeout, at most 5 seconds. */
void weft_session_close(weft_session *);
size_t weft_session_num_devices(const weft_session *);
/* The name of a device: "/job:local/replica:0/task:0/device:CPU:0". */
const char *weft_session_device(const weft_session *, size_t index);

/* Send the nodes and functions that are new. The other calls do so too. */
weft_code weft_session_extend(weft_session *, int64_t timeout_ms, weft_status *);

/* Run a step: feed outputs, fetch outputs, and run nodes without fetching. Fetched tensors belong
 * to the caller; on an error all are NULL. Quantized elements are fetched as integers: WEFT_INT8
 * for WEFT_QINT8. */
weft_code weft_session_run(weft_session *, const char *const *feeds,
                           weft_tensor *const *fed, size_t num_feeds, const char *const *fetches,
                           weft_tensor **fetched, size_t num_fetches, const char *const *targets,
                           size_t num_targets, int64_t timeout_ms, weft_status *);

/* Names; `weft_names_free` frees them. */
typedef struct weft_names weft_names;
size_t weft_names_count(const weft_names *);
const char *weft_names_get(const weft_names *, size_t index);
void weft_names_free(weft_names *);

/* Add gradients of the sum of `ys` with respect to each of `xs`. Returns one name for each x, ""
 * if no y depends on it. `grad_ys`, the gradients to start from, may be NULL for ones. Gradients are
 * dense if `indices` is NULL; otherwise `*indices` receives a name for each sparse one, or "". The
 * gradients belong to the graph: its other sessions have them, too. */
weft_names *weft_session_gradients(weft_session *, const char *const *ys, size_t num_ys,
                                   const char *const *xs, size_t num_xs,
                                   const char *const *grad_ys, weft_names **indices,
                                   int64_t timeout_ms, weft_status *);

/* The element type and static shape of an output; a rank or size of -1 is unknown. `dims` has room
 * for WEFT_MAX_RANK sizes. Each of `dtype`, `rank` and `dims` may be NULL. */
weft_code weft_session_shape(weft_session *, const char *output, weft_dtype *dtype, int *rank,
                             int64_t *dims, int64_t timeout_ms, weft_status *);

/* The names of the functions of the session's graph. */
weft_names *weft_session_functions(weft_session *, int64_t timeout_ms, weft_status *);
/* The named functions, and those that they call, as a serialized GraphDef of type uint8. */
weft_tensor *weft_session_function_defs(weft_session *, const char *const *names, size_t count,
                                        int64_t timeout_ms, weft_status *);

#ifdef __cplusplus
}
#endif

#endif
