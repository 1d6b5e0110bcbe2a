/* Gradients: the server adds their nodes, and a graph repeats the request in its other sessions. */
#include "internal.h"
#include "session.h"

#include <stdlib.h>
#include <string.h>

/* Send a request for gradients; `reply` has the names of its nodes. */
static weft_code differentiate(weft_session *session, const wc_part *part, uint64_t definition,
                               int64_t deadline, weft_names **gradients, weft_names **indices,
                               wc_reply *reply, weft_status *status) {
  const wc_field fields[] = {wc_number_field(wc_session_number(session)),
                             wc_texts_field((const char *const *)part->outputs, part->num_outputs),
                             wc_texts_field((const char *const *)part->inputs, part->num_inputs),
                             wc_texts_field((const char *const *)part->results, part->num_results),
                             {.kind = WC_TEXT, .data = part->name, .size = strlen(part->name)},
                             {.kind = WC_FLAG, .number = part->is_dense},
                             {.kind = WC_FLAG},
                             wc_number_field(wc_milliseconds_until(deadline)),
                             {.kind = WC_FLAG, .number = true},
                             wc_number_field(definition)};
  wc_table table;
  *gradients = *indices = NULL;
  weft_code code = wc_session_call(session, WC_DIFFERENTIATE, fields, 10, NULL, 0, deadline, reply,
                                   status);
  if (code) return code;
  if (wc_read_table(&table, reply->meta, reply->meta_size)) {
    *gradients = wc_read_names(&table, 0);
    *indices = wc_read_names(&table, 1);
  }
  if (weft_names_count(*gradients) == part->num_inputs && *gradients &&
      weft_names_count(*indices) == part->num_inputs && *indices && reply->num_values == 1 &&
      reply->values[0] && reply->values[0]->dtype == WEFT_STRING)
    return WEFT_OK;
  weft_names_free(*gradients);
  weft_names_free(*indices);
  *gradients = *indices = NULL;
  return wc_bad_reply(status);
}

static bool is_same(const weft_names *a, const weft_names *b) {
  for (size_t i = 0; i < a->count; i++)
    if (strcmp(a->names[i], b->names[i])) return false;
  return true;
}

weft_code wc_session_repeat_gradients(weft_session *session, const wc_part *part,
                                      uint64_t definition, int64_t deadline, weft_status *status) {
  wc_reply reply = {0};
  weft_names *gradients, *indices;
  weft_code code = differentiate(session, part, definition, deadline, &gradients, &indices, &reply,
                                 status);
  if (!code && !(is_same(gradients, part->gradients) && is_same(indices, part->indices)))
    code = wc_fail(status, WEFT_INTERNAL,
                   "the gradients '%s' have other names in this session than in the one that added "
                   "them; do the servers run different releases?",
                   part->name);
  weft_names_free(gradients);
  weft_names_free(indices);
  wc_reply_free(&reply);
  return code;
}

static weft_names *copy_names(const weft_names *names) {
  weft_names *copy = wc_names_new(names->count);
  for (size_t i = 0; copy && i < names->count; i++) {
    copy->names[i] = wc_copy_string(names->names[i], strlen(names->names[i]));
    if (copy->names[i]) continue;
    weft_names_free(copy);
    return NULL;
  }
  return copy;
}

/* Add gradients as a part of the graph, and return copies of their names. */
static weft_code add_gradients(weft_session *session, wc_part *part, weft_names **gradients,
                               weft_names **indices, int64_t deadline, weft_status *status) {
  wc_reply reply = {0};
  weft_code code = wc_session_send_parts(session, deadline, status);
  if (!code)
    code = differentiate(session, part, wc_session_next_definition(session), deadline,
                         &part->gradients, &part->indices, &reply, status);
  if (!code) {
    weft_graph *graph = wc_session_graph(session);
    part->origin = wc_session_id(session);
    *gradients = copy_names(part->gradients);
    *indices = copy_names(part->indices);
    if (!*gradients || !*indices || !wc_graph_reserve(graph, reply.values[0]) ||
        !wc_graph_add_part(graph, part))
      code = wc_no_memory(status);
  }
  wc_reply_free(&reply);
  return code;
}

static bool fill_part(wc_part *part, weft_graph *graph, const char *const *ys, size_t num_ys,
                      const char *const *xs, size_t num_xs, const char *const *grad_ys) {
  const char *scope = weft_graph_unique_name(graph, "gradients");
  part->name = scope ? wc_copy_string(scope, strlen(scope)) : NULL;
  part->outputs = wc_with_ports(ys, num_ys);
  part->num_outputs = part->outputs ? num_ys : 0;
  part->inputs = wc_with_ports(xs, num_xs);
  part->num_inputs = part->inputs ? num_xs : 0;
  part->results = wc_with_ports(grad_ys, grad_ys ? num_ys : 0);
  part->num_results = part->results && grad_ys ? num_ys : 0;
  return part->name && part->outputs && part->inputs && part->results;
}

weft_names *weft_session_gradients(weft_session *session, const char *const *ys, size_t num_ys,
                                   const char *const *xs, size_t num_xs,
                                   const char *const *grad_ys, weft_names **indices,
                                   int64_t timeout_ms, weft_status *status) {
  wc_part part = {.kind = WC_GRADIENTS, .is_dense = !indices};
  weft_names *gradients = NULL, *rows = NULL;
  if (indices) *indices = NULL;
  if (!wc_has_names(ys, num_ys) || !wc_has_names(xs, num_xs) ||
      (grad_ys && !wc_has_names(grad_ys, num_ys))) {
    wc_null_argument(status);
    return NULL;
  }
  if (wc_session_enter(session, status)) return NULL;
  int64_t deadline = wc_session_deadline(session, timeout_ms);
  weft_code code = fill_part(&part, wc_session_graph(session), ys, num_ys, xs, num_xs, grad_ys)
                       ? wc_session_begin_extending(session, deadline, status)
                       : wc_no_memory(status);
  if (!code) {
    code = add_gradients(session, &part, &gradients, &rows, deadline, status);
    wc_session_end_extending(session);
  }
  wc_session_leave(session);
  wc_part_clear(&part);
  if (!code && indices) {
    *indices = rows;
    rows = NULL;
  }
  weft_names_free(rows);
  if (!code) return gradients;
  weft_names_free(gradients);
  return NULL;
}
