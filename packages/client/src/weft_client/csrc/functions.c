/* Calls about the graph of a session: shapes and functions. */
#include "internal.h"
#include "session.h"

#include <stdlib.h>
#include <string.h>

/* Send a request with names, after extending the graph. */
static weft_code ask(weft_session *session, unsigned method, const char *const *names,
                     size_t count, int64_t timeout_ms, wc_reply *reply, weft_status *status) {
  if (!wc_has_names(names, count)) return wc_null_argument(status);
  weft_code code = wc_session_enter(session, status);
  if (code) return code;
  int64_t deadline = wc_session_deadline(session, timeout_ms);
  code = wc_session_extend(session, deadline, status);
  if (!code) {
    const wc_field fields[] = {wc_number_field(wc_session_number(session)),
                               wc_texts_field(names, count),
                               wc_number_field(wc_milliseconds_until(deadline))};
    code = wc_session_call(session, method, fields, 3, NULL, 0, deadline, reply, status);
  }
  wc_session_leave(session);
  return code;
}

static bool has_vector(const wc_reply *reply, size_t index, weft_dtype dtype, int64_t least) {
  const weft_tensor *value = index < reply->num_values ? reply->values[index] : NULL;
  return value && value->dtype == dtype && value->rank == 1 && value->num_elements >= least;
}

weft_code weft_session_shape(weft_session *session, const char *output, weft_dtype *dtype,
                             int *rank, int64_t *dims, int64_t timeout_ms, weft_status *status) {
  wc_reply reply = {0};
  if (!output) return wc_null_argument(status);
  char **names = wc_with_ports(&output, 1);
  weft_code code = names ? ask(session, WC_SHAPES, (const char *const *)names, 1, timeout_ms,
                               &reply, status)
                         : wc_no_memory(status);
  wc_free_texts(names, 1);
  if (!code) {
    int32_t type = 0, count = -2;
    bool is_valid = has_vector(&reply, 0, WEFT_INT32, 1) && has_vector(&reply, 1, WEFT_INT32, 1) &&
                    has_vector(&reply, 2, WEFT_INT64, 0);
    if (is_valid) {
      memcpy(&type, reply.values[0]->data, sizeof type);
      memcpy(&count, reply.values[1]->data, sizeof count);
    }
    if (count < -1 || count > WEFT_MAX_RANK || (count > 0 && !has_vector(&reply, 2, WEFT_INT64, count))) {
      code = wc_bad_reply(status);
    } else {
      if (dtype) *dtype = (weft_dtype)type;
      if (rank) *rank = count;
      if (dims && count > 0) memcpy(dims, reply.values[2]->data, (size_t)count * sizeof *dims);
    }
  }
  wc_reply_free(&reply);
  return code;
}

weft_names *weft_session_functions(weft_session *session, int64_t timeout_ms,
                                   weft_status *status) {
  wc_reply reply = {0};
  wc_table table;
  weft_names *names = NULL;
  if (!ask(session, WC_FUNCTIONS, NULL, 0, timeout_ms, &reply, status)) {
    if (wc_read_table(&table, reply.meta, reply.meta_size)) names = wc_read_names(&table, 1);
    if (!names) wc_bad_reply(status);
  }
  wc_reply_free(&reply);
  return names;
}

weft_tensor *weft_session_function_defs(weft_session *session, const char *const *names,
                                        size_t count, int64_t timeout_ms, weft_status *status) {
  wc_reply reply = {0};
  weft_tensor *definitions = NULL;
  if (!count) {
    wc_fail(status, WEFT_INVALID_ARGUMENT, "name at least one function");
    return NULL;
  }
  if (!ask(session, WC_FUNCTIONS, names, count, timeout_ms, &reply, status)) {
    if (has_vector(&reply, 0, WEFT_UINT8, 0)) definitions = weft_tensor_retain(reply.values[0]);
    if (!definitions) wc_bad_reply(status);
  }
  wc_reply_free(&reply);
  return definitions;
}
