/* Graphs: the parts that sessions send, and the names in them. */
#include "internal.h"
#include "session.h"

#include <stdlib.h>
#include <string.h>

/* Numbers of protobuf fields. */
enum { GRAPH_NODE = 1, GRAPH_LIBRARY = 2, GRAPH_VERSIONS = 4, NODE_NAME = 1 };
enum { LIBRARY_FUNCTION = 1, FUNCTION_SIGNATURE = 1, SIGNATURE_NAME = 1, VERSIONS_PRODUCER = 1 };
enum { GRAPH_DEF_VERSION = 134 };

weft_graph *weft_graph_new(void) {
  weft_graph *graph = calloc(1, sizeof *graph);
  if (!graph) return NULL;
  graph->functions.has_case = true;
  pthread_mutex_init(&graph->lock, NULL);
  return graph;
}

char **wc_copy_texts(const char *const *texts, size_t count) {
  char **copies = calloc(count + 1, sizeof *copies);
  for (size_t i = 0; copies && i < count; i++) {
    copies[i] = wc_copy_string(texts[i], strlen(texts[i]));
    if (copies[i]) continue;
    wc_free_texts(copies, count);
    return NULL;
  }
  return copies;
}

void wc_free_texts(char **texts, size_t count) {
  for (size_t i = 0; texts && i < count; i++) free(texts[i]);
  free(texts);
}

void wc_part_clear(wc_part *part) {
  wc_buffer_free(&part->graph_def);
  wc_free_texts(part->constants, part->num_constants);
  wc_free_texts(part->devices, part->num_constants);
  for (size_t i = 0; i < part->num_constants; i++) weft_tensor_free(part->values[i]);
  free(part->values);
  free(part->name);
  wc_free_texts(part->inputs, part->num_inputs);
  wc_free_texts(part->outputs, part->num_outputs);
  wc_free_texts(part->results, part->num_results);
  weft_names_free(part->gradients);
  weft_names_free(part->indices);
  *part = (wc_part){0};
}

void weft_graph_free(weft_graph *graph) {
  if (!graph) return;
  for (size_t i = 0; i < graph->num_parts; i++) {
    wc_part_clear(graph->parts[i]);
    free(graph->parts[i]);
  }
  free(graph->parts);
  wc_name_set_free(&graph->names);
  wc_name_set_free(&graph->functions);
  pthread_mutex_destroy(&graph->lock);
  free(graph);
}

const char *weft_graph_unique_name(weft_graph *graph, const char *name) {
  if (!graph || !name) return NULL;
  pthread_mutex_lock(&graph->lock);
  const char *result = wc_name_set_add_unique(&graph->names, name);
  pthread_mutex_unlock(&graph->lock);
  return result;
}

bool wc_graph_reserve(weft_graph *graph, const weft_tensor *names) {
  bool is_complete = true, is_taken;
  pthread_mutex_lock(&graph->lock);
  for (int64_t i = 0; is_complete && i < names->num_elements; i++) {
    size_t size;
    const char *text = weft_tensor_string(names, i, &size);
    char *name = wc_copy_string(text, size);
    is_complete = name && (wc_name_set_add(&graph->names, name, &is_taken) || is_taken);
    free(name);
  }
  pthread_mutex_unlock(&graph->lock);
  return is_complete;
}

/* -------------------------------------------------------------------------------- parts */

/* With the lock held. */
static wc_part *add_part(weft_graph *graph, int kind) {
  if (graph->num_parts == graph->parts_capacity) {
    size_t capacity = graph->parts_capacity ? 2 * graph->parts_capacity : 8;
    wc_part **parts = realloc(graph->parts, capacity * sizeof *parts);
    if (!parts) return NULL;
    graph->parts = parts;
    graph->parts_capacity = capacity;
  }
  wc_part *part = calloc(1, sizeof *part);
  if (!part) return NULL;
  part->kind = kind;
  graph->parts[graph->num_parts++] = part;
  return part;
}

static wc_part *current_part(weft_graph *graph) {
  wc_part *last = graph->num_parts ? graph->parts[graph->num_parts - 1] : NULL;
  if (last && last->kind == WC_NODES && !last->is_sealed) return last;
  wc_part *part = add_part(graph, WC_NODES);
  wc_buffer versions = {0};
  if (!part) return NULL;
  wc_put_number(&versions, VERSIONS_PRODUCER, GRAPH_DEF_VERSION);
  wc_put_message(&part->graph_def, GRAPH_VERSIONS, &versions);
  return part;
}

wc_part *wc_graph_add_part(weft_graph *graph, wc_part *part) {
  pthread_mutex_lock(&graph->lock);
  wc_part *added = add_part(graph, part->kind);
  if (added) {
    *added = *part;
    added->is_sealed = true;
    *part = (wc_part){0};
  }
  pthread_mutex_unlock(&graph->lock);
  return added;
}

size_t wc_graph_seal(weft_graph *graph) {
  pthread_mutex_lock(&graph->lock);
  size_t count = graph->num_parts;
  if (count) graph->parts[count - 1]->is_sealed = true;
  pthread_mutex_unlock(&graph->lock);
  return count;
}

wc_part *wc_graph_part(weft_graph *graph, size_t index) {
  pthread_mutex_lock(&graph->lock);
  wc_part *part = graph->parts[index];
  pthread_mutex_unlock(&graph->lock);
  return part;
}

const char *wc_graph_add(weft_graph *graph, const char *name, const char *op,
                         const wc_buffer *definition, weft_status *status) {
  pthread_mutex_lock(&graph->lock);
  wc_part *part = current_part(graph);
  const char *result = part ? wc_name_set_add_unique(&graph->names, name ? name : op) : NULL;
  if (result) {
    wc_buffer node = {0};
    wc_put_text(&node, NODE_NAME, result);
    wc_put(&node, definition->data, definition->size);
    size_t before = part->graph_def.size;
    wc_put_message(&part->graph_def, GRAPH_NODE, &node);
    if (part->graph_def.failed || definition->failed) {
      part->graph_def.failed = false;
      part->graph_def.size = before;
      result = NULL;
    }
  }
  pthread_mutex_unlock(&graph->lock);
  if (!result) wc_no_memory(status);
  return result;
}

static bool add_constant(wc_part *part, const char *name, weft_tensor *value, const char *device) {
  if (part->num_constants == part->constants_capacity) {
    size_t capacity = part->constants_capacity ? 2 * part->constants_capacity : 8;
    char **constants = realloc(part->constants, capacity * sizeof *constants);
    if (constants) part->constants = constants;
    char **devices = constants ? realloc(part->devices, capacity * sizeof *devices) : NULL;
    if (devices) part->devices = devices;
    weft_tensor **values = devices ? realloc(part->values, capacity * sizeof *values) : NULL;
    if (!values) return false;
    part->values = values;
    part->constants_capacity = capacity;
  }
  size_t index = part->num_constants;
  part->constants[index] = wc_copy_string(name, strlen(name));
  part->devices[index] = device ? wc_copy_string(device, strlen(device)) : wc_copy_string("", 0);
  if (!part->constants[index] || !part->devices[index]) {
    free(part->constants[index]);
    free(part->devices[index]);
    return false;
  }
  part->values[index] = weft_tensor_retain(value);
  part->num_constants++;
  return true;
}

const char *weft_graph_constant(weft_graph *graph, const char *name, weft_tensor *value,
                                const char *device, weft_status *status) {
  if (!graph || !value) {
    wc_fail(status, WEFT_INVALID_ARGUMENT, "a constant needs a graph and a value, got no %s",
            graph ? "value" : "graph");
    return NULL;
  }
  if (wc_check_name(name, status)) return NULL;
  pthread_mutex_lock(&graph->lock);
  wc_part *part = current_part(graph);
  const char *result = part ? wc_name_set_add_unique(&graph->names, name ? name : "Const") : NULL;
  if (result && !add_constant(part, result, value, device)) result = NULL;
  pthread_mutex_unlock(&graph->lock);
  if (!result) wc_no_memory(status);
  return result;
}

/* ---------------------------------------------------------------------------- functions */

static bool copy_body(wc_part *part, weft_graph *body) {
  bool is_copied = true;
  for (size_t i = 0; is_copied && i < body->num_parts; i++) {
    wc_part *source = body->parts[i];
    wc_put(&part->graph_def, source->graph_def.data, source->graph_def.size);
    for (size_t j = 0; is_copied && j < source->num_constants; j++)
      is_copied = add_constant(part, source->constants[j], source->values[j], NULL);
  }
  return is_copied && !part->graph_def.failed;
}

/* Return true if a graph has parts that are not nodes. */
static bool has_other_parts(const weft_graph *body) {
  for (size_t i = 0; i < body->num_parts; i++)
    if (body->parts[i]->kind == WC_FUNCTION || body->parts[i]->kind == WC_GRADIENTS) return true;
  return false;
}

static weft_code node_exists(weft_status *status, const char *name) {
  wc_fail(status, WEFT_ALREADY_EXISTS,
          "the graph already has a node named '%s'; names that differ only in case are equal", name);
  if (status) status->node = wc_copy_string(name, strlen(name));
  return WEFT_ALREADY_EXISTS;
}

static bool fill_function(wc_part *part, const char *name, weft_graph *body,
                          const char *const *inputs, size_t num_inputs,
                          const char *const *outputs, size_t num_outputs,
                          const char *const *results) {
  *part = (wc_part){.kind = WC_FUNCTION};
  part->name = wc_copy_string(name, strlen(name));
  part->inputs = wc_copy_texts(inputs, num_inputs);
  part->num_inputs = part->inputs ? num_inputs : 0;
  part->outputs = wc_copy_texts(outputs, num_outputs);
  part->num_outputs = part->outputs ? num_outputs : 0;
  part->results = results ? wc_copy_texts(results, num_outputs) : NULL;
  part->num_results = part->results ? num_outputs : 0;
  bool is_complete = part->name && part->inputs && part->outputs && (part->results || !results);
  pthread_mutex_lock(&body->lock);
  is_complete = is_complete && copy_body(part, body);
  pthread_mutex_unlock(&body->lock);
  return is_complete;
}

weft_code weft_graph_function(weft_graph *graph, const char *name, weft_graph *body,
                              const char *const *inputs, size_t num_inputs,
                              const char *const *outputs, size_t num_outputs,
                              const char *const *results, weft_status *status) {
  bool is_taken;
  wc_part part;
  if (!graph || !name || !body || !wc_has_names(inputs, num_inputs) ||
      !wc_has_names(outputs, num_outputs) || (results && !wc_has_names(results, num_outputs)))
    return wc_null_argument(status);
  weft_code code = wc_check_name(name, status);
  if (code) return code;
  if (has_other_parts(body))
    return wc_fail(status, WEFT_INVALID_ARGUMENT,
                   "the body of the function '%s' defines functions or has gradients that a "
                   "session added: define functions in the graph",
                   name);
  if (!fill_function(&part, name, body, inputs, num_inputs, outputs, num_outputs, results)) {
    wc_part_clear(&part);
    return wc_no_memory(status);
  }
  pthread_mutex_lock(&graph->lock);
  bool is_named = wc_name_set_add(&graph->functions, name, &is_taken) != NULL;
  pthread_mutex_unlock(&graph->lock);
  if (is_taken)
    code = wc_fail(status, WEFT_ALREADY_EXISTS, "the graph already has a function named '%s'", name);
  else if (!is_named || !wc_graph_add_part(graph, &part))
    code = wc_no_memory(status);
  wc_part_clear(&part);
  return code;
}

/* ------------------------------------------------------------------------------ imports */

static weft_code not_a_graph_def(weft_status *status) {
  return wc_fail(status, WEFT_DATA_LOSS, "the bytes are not a serialized GraphDef");
}

/* Find the field that has a number and bytes; its name if it is found. */
static bool find_bytes(const wc_message_field *message, unsigned number, wc_message_field *found) {
  const uint8_t *data = message->data;
  size_t size = message->size;
  while (wc_next_field(&data, &size, found))
    if (found->number == number && found->has_bytes) return true;
  return false;
}

/* Add the name in the field `number` of a message to a set. */
static weft_code collect_name(wc_name_set *set, const wc_message_field *message, unsigned number,
                              weft_status *status) {
  wc_message_field field;
  bool is_taken;
  if (!find_bytes(message, number, &field)) return not_a_graph_def(status);
  char *name = wc_copy_string((const char *)field.data, field.size);
  weft_code code = WEFT_OK;
  if (!name || (!wc_name_set_add(set, name, &is_taken) && !is_taken))
    code = wc_no_memory(status);
  else if (is_taken)
    code = wc_fail(status, WEFT_INVALID_ARGUMENT, "the name '%s' is not unique in the GraphDef%s",
                   name, set->has_case ? "" : "; names that differ only in case are equal");
  free(name);
  return code;
}

static weft_code collect_functions(wc_name_set *set, const wc_message_field *library,
                                   weft_status *status) {
  const uint8_t *data = library->data;
  size_t size = library->size;
  wc_message_field field, signature;
  weft_code code = WEFT_OK;
  while (!code && wc_next_field(&data, &size, &field)) {
    if (field.number != LIBRARY_FUNCTION || !field.has_bytes) continue;
    code = find_bytes(&field, FUNCTION_SIGNATURE, &signature)
               ? collect_name(set, &signature, SIGNATURE_NAME, status)
               : not_a_graph_def(status);
  }
  return code || data ? code : not_a_graph_def(status);
}

/* Collect the names of the nodes and functions of a GraphDef. */
static weft_code collect_names(const void *graph_def, size_t size, wc_name_set *nodes,
                               wc_name_set *functions, weft_status *status) {
  const uint8_t *data = graph_def;
  wc_message_field field;
  weft_code code = WEFT_OK;
  if (!size) return WEFT_OK;
  while (!code && wc_next_field(&data, &size, &field)) {
    if (!field.has_bytes) continue;
    if (field.number == GRAPH_NODE) code = collect_name(nodes, &field, NODE_NAME, status);
    if (field.number == GRAPH_LIBRARY) code = collect_functions(functions, &field, status);
  }
  return code || data ? code : not_a_graph_def(status);
}

/* Add the names of `added` to `set`; with the lock held. */
static bool join_names(wc_name_set *set, const wc_name_set *added) {
  bool is_complete = true, is_taken;
  for (size_t i = 0; is_complete && i < added->capacity; i++)
    if (added->slots[i].text)
      is_complete = wc_name_set_add(set, added->slots[i].text, &is_taken) || is_taken;
  return is_complete;
}

/* Add the names of an imported GraphDef to those of a graph, unless a node has one of them. */
static weft_code take_names(weft_graph *graph, const wc_name_set *nodes,
                            const wc_name_set *functions, weft_status *status) {
  weft_code code = WEFT_OK;
  pthread_mutex_lock(&graph->lock);
  for (size_t i = 0; !code && i < nodes->capacity; i++)
    if (nodes->slots[i].text && wc_name_set_has(&graph->names, nodes->slots[i].text))
      code = node_exists(status, nodes->slots[i].text);
  if (!code && !(join_names(&graph->names, nodes) && join_names(&graph->functions, functions)))
    code = wc_no_memory(status);
  pthread_mutex_unlock(&graph->lock);
  return code;
}

weft_code weft_graph_import(weft_graph *graph, const void *graph_def, size_t size,
                            weft_status *status) {
  wc_name_set nodes = {0}, functions = {.has_case = true};
  wc_part part = {.kind = WC_IMPORT};
  if (!graph || (!graph_def && size)) return wc_null_argument(status);
  weft_code code = collect_names(graph_def, size, &nodes, &functions, status);
  wc_put(&part.graph_def, graph_def, size);
  if (!code && part.graph_def.failed) code = wc_no_memory(status);
  if (!code) code = take_names(graph, &nodes, &functions, status);
  if (!code && !wc_graph_add_part(graph, &part)) code = wc_no_memory(status);
  wc_part_clear(&part);
  wc_name_set_free(&nodes);
  wc_name_set_free(&functions);
  return code;
}
