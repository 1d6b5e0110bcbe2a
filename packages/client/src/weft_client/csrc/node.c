/* Nodes under construction, written as NodeDef messages. */
#include "internal.h"
#include "session.h"

#include <stdlib.h>
#include <string.h>

/* Numbers of protobuf fields. */
enum { NODE_OP = 2, NODE_INPUT = 3, NODE_DEVICE = 4, NODE_ATTR = 5, MAP_KEY = 1, MAP_VALUE = 2 };
enum { ATTR_LIST = 1, ATTR_S, ATTR_I, ATTR_F, ATTR_B, ATTR_TYPE, ATTR_SHAPE, ATTR_TENSOR };
enum { ATTR_FUNC = 10, LIST_FUNC = 9, FUNC_NAME = 1 };
enum { SHAPE_DIM = 2, SHAPE_UNKNOWN_RANK = 3, DIM_SIZE = 1 };
enum { TENSOR_DTYPE = 1, TENSOR_SHAPE = 2, TENSOR_CONTENT = 4, TENSOR_STRING = 8 };
enum { WIRE_FIXED32 = 5 };

struct weft_node {
  weft_graph *graph;
  char *op, *name, *device;
  wc_buffer inputs, controls, attrs, counts, groups;
  bool has_lists, has_null; /* an argument of a call was NULL */
};

weft_node *weft_node_new(weft_graph *graph, const char *op, const char *name) {
  weft_node *node = calloc(1, sizeof *node);
  if (!node) return NULL;
  node->graph = graph;
  node->has_null = !graph || !op;
  node->op = wc_copy_string(op ? op : "", op ? strlen(op) : 0);
  node->name = name ? wc_copy_string(name, strlen(name)) : NULL;
  if (node->op && (node->name || !name)) return node;
  weft_node_cancel(node);
  return NULL;
}

void weft_node_cancel(weft_node *node) {
  if (!node) return;
  free(node->op);
  free(node->name);
  free(node->device);
  wc_buffer_free(&node->inputs);
  wc_buffer_free(&node->controls);
  wc_buffer_free(&node->attrs);
  wc_buffer_free(&node->counts);
  wc_buffer_free(&node->groups);
  free(node);
}

/* Return true if a node can be added to; note it if an argument is NULL. */
static bool accepts(weft_node *node, bool has_arguments) {
  if (node && !has_arguments) node->has_null = true;
  return node && has_arguments;
}

void weft_node_input(weft_node *node, const char *output) {
  if (!accepts(node, output)) return;
  wc_put_text(&node->inputs, NODE_INPUT, output);
  wc_put_varint(&node->counts, 1);
}

void weft_node_input_list(weft_node *node, const char *const *outputs, size_t count) {
  if (!accepts(node, wc_has_names(outputs, count))) return;
  for (size_t i = 0; i < count; i++) wc_put_text(&node->inputs, NODE_INPUT, outputs[i]);
  wc_put_varint(&node->counts, count);
  node->has_lists = true;
}

void weft_node_control(weft_node *node, const char *control) {
  if (!accepts(node, control)) return;
  size_t size = strlen(control);
  const char *colon = strrchr(control, ':'); /* an output stands for its node */
  if (colon) size = (size_t)(colon - control);
  wc_buffer text = {0};
  wc_put(&text, "^", 1);
  wc_put(&text, control, size);
  wc_put_message(&node->controls, NODE_INPUT, &text);
}

void weft_node_device(weft_node *node, const char *device) {
  if (!accepts(node, device)) return;
  free(node->device);
  node->device = wc_copy_string(device, strlen(device));
}

void weft_node_colocate(weft_node *node, const char *other) {
  enum { LIST_S = 2 };
  if (!accepts(node, other)) return;
  size_t size = strlen(other);
  const char *colon = strrchr(other, ':');
  if (colon) size = (size_t)(colon - other);
  wc_buffer text = {0};
  wc_put(&text, "loc:@", 5);
  wc_put(&text, other, size);
  wc_put_message(&node->groups, LIST_S, &text);
}

/* --------------------------------------------------------------------------- attributes */

/* Add an attribute; `value` is an AttrValue, which is freed. */
static void put_attr(weft_node *node, const char *name, wc_buffer *value) {
  wc_buffer entry = {0};
  wc_put_text(&entry, MAP_KEY, name);
  wc_put_message(&entry, MAP_VALUE, value);
  wc_put_message(&node->attrs, NODE_ATTR, &entry);
}

static void put_list(weft_node *node, const char *name, wc_buffer *list) {
  wc_buffer value = {0};
  wc_put_message(&value, ATTR_LIST, list);
  put_attr(node, name, &value);
}

static void put_float(wc_buffer *buffer, unsigned field, double number) {
  float value = (float)number;
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  wc_put_tag(buffer, field, WIRE_FIXED32);
  wc_put_integer(buffer, bits, sizeof bits);
}

static void put_shape(wc_buffer *buffer, unsigned field, const int64_t *dims, int rank) {
  wc_buffer shape = {0};
  if (rank < 0) wc_put_number(&shape, SHAPE_UNKNOWN_RANK, 1);
  for (int i = 0; i < rank; i++) {
    wc_buffer dim = {0};
    wc_put_number(&dim, DIM_SIZE, (uint64_t)dims[i]);
    wc_put_message(&shape, SHAPE_DIM, &dim);
  }
  wc_put_message(buffer, field, &shape);
}

static void put_tensor(wc_buffer *buffer, unsigned field, const weft_tensor *tensor) {
  wc_buffer value = {0};
  wc_put_number(&value, TENSOR_DTYPE, (uint64_t)tensor->dtype);
  put_shape(&value, TENSOR_SHAPE, tensor->dims, tensor->rank);
  if (tensor->dtype != WEFT_STRING)
    wc_put_bytes(&value, TENSOR_CONTENT, tensor->data, tensor->size_bytes);
  else
    for (int64_t i = 0; i < tensor->num_elements; i++) {
      size_t size;
      const char *text = weft_tensor_string(tensor, i, &size);
      wc_put_bytes(&value, TENSOR_STRING, text, size);
    }
  wc_put_message(buffer, field, &value);
}

static void put_function(wc_buffer *buffer, unsigned field, const char *name) {
  wc_buffer function = {0};
  wc_put_text(&function, FUNC_NAME, name);
  wc_put_message(buffer, field, &function);
}

void weft_node_attr_int(weft_node *node, const char *name, int64_t number) {
  wc_buffer value = {0};
  if (!accepts(node, name)) return;
  wc_put_number(&value, ATTR_I, (uint64_t)number);
  put_attr(node, name, &value);
}

void weft_node_attr_float(weft_node *node, const char *name, double number) {
  wc_buffer value = {0};
  if (!accepts(node, name)) return;
  put_float(&value, ATTR_F, number);
  put_attr(node, name, &value);
}

void weft_node_attr_bool(weft_node *node, const char *name, int flag) {
  wc_buffer value = {0};
  if (!accepts(node, name)) return;
  wc_put_number(&value, ATTR_B, flag != 0);
  put_attr(node, name, &value);
}

void weft_node_attr_string(weft_node *node, const char *name, const char *text, size_t size) {
  wc_buffer value = {0};
  if (!accepts(node, name && (text || !size))) return;
  wc_put_bytes(&value, ATTR_S, text, size);
  put_attr(node, name, &value);
}

void weft_node_attr_type(weft_node *node, const char *name, weft_dtype dtype) {
  wc_buffer value = {0};
  if (!accepts(node, name)) return;
  wc_put_number(&value, ATTR_TYPE, (uint64_t)dtype);
  put_attr(node, name, &value);
}

void weft_node_attr_shape(weft_node *node, const char *name, const int64_t *dims, int rank) {
  wc_buffer value = {0};
  if (!accepts(node, name && (dims || rank <= 0))) return;
  put_shape(&value, ATTR_SHAPE, dims, rank);
  put_attr(node, name, &value);
}

void weft_node_attr_tensor(weft_node *node, const char *name, const weft_tensor *tensor) {
  wc_buffer value = {0};
  if (!accepts(node, name && tensor)) return;
  put_tensor(&value, ATTR_TENSOR, tensor);
  put_attr(node, name, &value);
}

void weft_node_attr_function(weft_node *node, const char *name, const char *function) {
  wc_buffer value = {0};
  if (!accepts(node, name && function)) return;
  put_function(&value, ATTR_FUNC, function);
  put_attr(node, name, &value);
}

static bool has_strings(const char *const *texts, const size_t *sizes, size_t count) {
  for (size_t i = 0; i < count; i++)
    if (!texts || (!texts[i] && sizes[i])) return false;
  return true;
}

static bool has_shapes(const int64_t *const *dims, const int *ranks, size_t count) {
  for (size_t i = 0; i < count; i++)
    if (!ranks || (ranks[i] > 0 && (!dims || !dims[i]))) return false;
  return true;
}

static bool has_tensors(const weft_tensor *const *values, size_t count) {
  for (size_t i = 0; i < count; i++)
    if (!values || !values[i]) return false;
  return true;
}

/* In lists, fields have the numbers that they have outside. */

void weft_node_attr_ints(weft_node *node, const char *name, const int64_t *values, size_t count) {
  wc_buffer list = {0};
  if (!accepts(node, name && (values || !count))) return;
  for (size_t i = 0; i < count; i++) wc_put_number(&list, ATTR_I, (uint64_t)values[i]);
  put_list(node, name, &list);
}

void weft_node_attr_floats(weft_node *node, const char *name, const double *values,
                           size_t count) {
  wc_buffer list = {0};
  if (!accepts(node, name && (values || !count))) return;
  for (size_t i = 0; i < count; i++) put_float(&list, ATTR_F, values[i]);
  put_list(node, name, &list);
}

void weft_node_attr_bools(weft_node *node, const char *name, const unsigned char *values,
                          size_t count) {
  wc_buffer list = {0};
  if (!accepts(node, name && (values || !count))) return;
  for (size_t i = 0; i < count; i++) wc_put_number(&list, ATTR_B, values[i] != 0);
  put_list(node, name, &list);
}

void weft_node_attr_strings(weft_node *node, const char *name, const char *const *values,
                            const size_t *sizes, size_t count) {
  wc_buffer list = {0};
  bool has_values = sizes ? has_strings(values, sizes, count) : wc_has_names(values, count);
  if (!accepts(node, name && has_values)) return;
  for (size_t i = 0; i < count; i++)
    wc_put_bytes(&list, ATTR_S, values[i], sizes ? sizes[i] : strlen(values[i]));
  put_list(node, name, &list);
}

void weft_node_attr_types(weft_node *node, const char *name, const weft_dtype *values,
                          size_t count) {
  wc_buffer list = {0};
  if (!accepts(node, name && (values || !count))) return;
  for (size_t i = 0; i < count; i++) wc_put_number(&list, ATTR_TYPE, (uint64_t)values[i]);
  put_list(node, name, &list);
}

void weft_node_attr_shapes(weft_node *node, const char *name, const int64_t *const *dims,
                           const int *ranks, size_t count) {
  wc_buffer list = {0};
  if (!accepts(node, name && has_shapes(dims, ranks, count))) return;
  for (size_t i = 0; i < count; i++) put_shape(&list, ATTR_SHAPE, dims[i], ranks[i]);
  put_list(node, name, &list);
}

void weft_node_attr_tensors(weft_node *node, const char *name, const weft_tensor *const *values,
                            size_t count) {
  wc_buffer list = {0};
  if (!accepts(node, name && has_tensors(values, count))) return;
  for (size_t i = 0; i < count; i++) put_tensor(&list, ATTR_TENSOR, values[i]);
  put_list(node, name, &list);
}

void weft_node_attr_functions(weft_node *node, const char *name, const char *const *functions,
                              size_t count) {
  wc_buffer list = {0};
  if (!accepts(node, name && wc_has_names(functions, count))) return;
  for (size_t i = 0; i < count; i++) put_function(&list, LIST_FUNC, functions[i]);
  put_list(node, name, &list);
}

/* ------------------------------------------------------------------------------- adding */

const char *weft_node_finish(weft_node *node, weft_status *status) {
  if (!node) {
    wc_no_memory(status);
    return NULL;
  }
  if (node->has_null) {
    wc_fail(status, WEFT_INVALID_ARGUMENT, "an argument of the node '%s' (%s) is NULL",
            node->name ? node->name : node->op, node->op);
    weft_node_cancel(node);
    return NULL;
  }
  if (wc_check_name(node->op, status) || wc_check_name(node->name, status)) {
    weft_node_cancel(node);
    return NULL;
  }
  wc_buffer definition = {0};
  wc_put_text(&definition, NODE_OP, node->op);
  if (node->device) wc_put_text(&definition, NODE_DEVICE, node->device);
  if (node->has_lists) {
    wc_buffer list = {0};
    wc_put_message(&list, ATTR_I, &node->counts); /* packed */
    put_list(node, "_input_counts", &list);
  }
  if (node->groups.size) put_list(node, "_class", &node->groups);
  const wc_buffer *const parts[] = {&node->inputs, &node->controls, &node->attrs};
  for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
    wc_put(&definition, parts[i]->data, parts[i]->size);
    if (parts[i]->failed) definition.failed = true;
  }
  const char *name = wc_graph_add(node->graph, node->name, node->op, &definition, status);
  wc_buffer_free(&definition);
  weft_node_cancel(node);
  return name;
}
