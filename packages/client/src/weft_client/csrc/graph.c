/* Graphs: the names of nodes, and the GraphDefs that sessions send. */
#include "internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { GRAPH_NODE = 1, GRAPH_VERSIONS = 4, VERSIONS_PRODUCER = 1, GRAPH_DEF_VERSION = 134 };

weft_graph *weft_graph_new(void) {
  weft_graph *graph = calloc(1, sizeof *graph);
  if (graph) pthread_mutex_init(&graph->lock, NULL);
  return graph;
}

static void free_texts(char **texts, size_t count) {
  for (size_t i = 0; texts && i < count; i++) free(texts[i]);
  free(texts);
}

static void free_part(wc_part *part) {
  wc_buffer_free(&part->graph_def);
  free_texts(part->constants, part->num_constants);
  free_texts(part->devices, part->num_constants);
  for (size_t i = 0; i < part->num_constants; i++) weft_tensor_free(part->values[i]);
  free(part->values);
  free(part->name);
  free_texts(part->inputs, part->num_inputs);
  free_texts(part->outputs, part->num_outputs);
  free_texts(part->results, part->num_results);
  free(part);
}

void weft_graph_free(weft_graph *graph) {
  if (!graph) return;
  for (size_t i = 0; i < graph->num_parts; i++)
    free_part(graph->parts[i]);
  free(graph->parts);
  for (size_t i = 0; i < graph->names_capacity; i++) free(graph->names[i].text);
  free(graph->names);
  pthread_mutex_destroy(&graph->lock);
  free(graph);
}

/* -------------------------------------------------------------------------------- names */

static size_t hash(const char *text) { /* FNV-1a */
  uint64_t value = 14695981039346656037u;
  for (; *text; text++) value = (value ^ (uint8_t)*text) * 1099511628211u;
  return (size_t)value;
}

static wc_name *slot_of(wc_name *table, size_t capacity, const char *name) {
  size_t index = hash(name) & (capacity - 1);
  while (table[index].text && strcmp(table[index].text, name)) index = (index + 1) & (capacity - 1);
  return &table[index];
}

static bool grow_names(weft_graph *graph) {
  size_t capacity = graph->names_capacity ? 2 * graph->names_capacity : 64;
  wc_name *table = calloc(capacity, sizeof *table);
  if (!table) return false;
  for (size_t i = 0; i < graph->names_capacity; i++)
    if (graph->names[i].text)
      *slot_of(table, capacity, graph->names[i].text) = graph->names[i];
  free(graph->names);
  graph->names = table;
  graph->names_capacity = capacity;
  return true;
}

/* Add a name; returns the graph's copy, or NULL if it is taken or there is no memory. */
static const char *add_name(weft_graph *graph, const char *name, bool *is_taken) {
  *is_taken = false;
  if (2 * (graph->num_names + 1) > graph->names_capacity && !grow_names(graph)) return NULL;
  wc_name *slot = slot_of(graph->names, graph->names_capacity, name);
  *is_taken = slot->text != NULL;
  if (*is_taken) return NULL;
  slot->text = wc_copy_string(name, strlen(name));
  slot->next = 1;
  graph->num_names += slot->text != NULL;
  return slot->text;
}

/* The number of the next suffix to try for a name that is taken. */
static uint64_t next_suffix(weft_graph *graph, const char *name) {
  return slot_of(graph->names, graph->names_capacity, name)->next++;
}

static const char *unique_name(weft_graph *graph, const char *name) {
  bool is_taken;
  const char *result = add_name(graph, name, &is_taken);
  size_t size = strlen(name) + 24;
  char *candidate = is_taken ? malloc(size) : NULL;
  while (candidate && is_taken) {
    unsigned long long number = next_suffix(graph, name);
    snprintf(candidate, size, "%s_%llu", name, number);
    result = add_name(graph, candidate, &is_taken);
  }
  free(candidate);
  return result;
}

const char *weft_graph_unique_name(weft_graph *graph, const char *name) {
  pthread_mutex_lock(&graph->lock);
  const char *result = unique_name(graph, name);
  pthread_mutex_unlock(&graph->lock);
  return result;
}

/* -------------------------------------------------------------------------------- parts */

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
  enum { NODE_NAME = 1 };
  pthread_mutex_lock(&graph->lock);
  wc_part *part = current_part(graph);
  const char *result = part ? unique_name(graph, name ? name : op) : NULL;
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
  if (!value) {
    wc_fail(status, WEFT_INVALID_ARGUMENT, "a constant needs a value");
    return NULL;
  }
  pthread_mutex_lock(&graph->lock);
  wc_part *part = current_part(graph);
  const char *result = part ? unique_name(graph, name ? name : "Const") : NULL;
  if (result && !add_constant(part, result, value, device)) result = NULL;
  pthread_mutex_unlock(&graph->lock);
  if (!result) wc_no_memory(status);
  return result;
}

/* ---------------------------------------------------------------------------- functions */

static char **copy_texts(const char *const *texts, size_t count) {
  char **copies = calloc(count + 1, sizeof *copies);
  for (size_t i = 0; copies && i < count; i++) {
    copies[i] = wc_copy_string(texts[i], strlen(texts[i]));
    if (copies[i]) continue;
    free_texts(copies, count);
    return NULL;
  }
  return copies;
}

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

static bool has_nested_functions(const weft_graph *body) {
  for (size_t i = 0; i < body->num_parts; i++)
    if (body->parts[i]->kind == WC_FUNCTION) return true;
  return false;
}

weft_code weft_graph_function(weft_graph *graph, const char *name, weft_graph *body,
                              const char *const *inputs, size_t num_inputs,
                              const char *const *outputs, size_t num_outputs,
                              const char *const *results, weft_status *status) {
  if (has_nested_functions(body))
    return wc_fail(status, WEFT_INVALID_ARGUMENT,
                   "the body of the function '%s' defines functions: define them in the graph",
                   name);
  wc_part part = {.kind = WC_FUNCTION};
  part.name = wc_copy_string(name, strlen(name));
  part.inputs = copy_texts(inputs, num_inputs);
  part.num_inputs = part.inputs ? num_inputs : 0;
  part.outputs = copy_texts(outputs, num_outputs);
  part.num_outputs = part.outputs ? num_outputs : 0;
  part.results = results ? copy_texts(results, num_outputs) : NULL;
  part.num_results = part.results ? num_outputs : 0;
  bool is_complete = part.name && part.inputs && part.outputs && (part.results || !results);
  pthread_mutex_lock(&body->lock);
  is_complete = is_complete && copy_body(&part, body);
  pthread_mutex_unlock(&body->lock);
  pthread_mutex_lock(&graph->lock);
  wc_part *added = is_complete ? add_part(graph, WC_FUNCTION) : NULL;
  if (added) *added = part;
  pthread_mutex_unlock(&graph->lock);
  if (added) return WEFT_OK;
  wc_part *lost = malloc(sizeof *lost);
  if (lost) {
    *lost = part;
    free_part(lost);
  }
  return wc_no_memory(status);
}

weft_code weft_graph_import(weft_graph *graph, const void *graph_def, size_t size,
                            weft_status *status) {
  wc_buffer copy = {0};
  wc_put(&copy, graph_def, size);
  pthread_mutex_lock(&graph->lock);
  wc_part *part = copy.failed ? NULL : add_part(graph, WC_IMPORT);
  if (part) part->graph_def = copy;
  pthread_mutex_unlock(&graph->lock);
  if (part) return WEFT_OK;
  wc_buffer_free(&copy);
  return wc_no_memory(status);
}
