/* Parts of sessions that calls about their graph use. */
#ifndef WEFT_SESSION_H
#define WEFT_SESSION_H

#include "internal.h"

/* Begin to use a session, until `wc_session_leave`. An error if it is NULL or being closed. */
weft_code wc_session_enter(weft_session *, weft_status *);
void wc_session_leave(weft_session *);

int64_t wc_session_deadline(const weft_session *, int64_t timeout_ms);
weft_graph *wc_session_graph(const weft_session *);
uint64_t wc_session_number(const weft_session *);
/* A number that no other session of this process has. */
uint64_t wc_session_id(const weft_session *);

/* One thread at a time extends a session: sends the new parts of its graph, and adds gradients. */
weft_code wc_session_begin_extending(weft_session *, int64_t deadline, weft_status *);
weft_code wc_session_send_parts(weft_session *, int64_t deadline, weft_status *);
uint64_t wc_session_next_definition(weft_session *);
void wc_session_end_extending(weft_session *);
/* All of these. */
weft_code wc_session_extend(weft_session *, int64_t deadline, weft_status *);
/* Add the gradients that another session has added, under the same names. */
weft_code wc_session_repeat_gradients(weft_session *, const wc_part *, uint64_t definition,
                                      int64_t deadline, weft_status *);

/* Call a method with a table and values. */
weft_code wc_session_call(weft_session *, unsigned method, const wc_field *fields,
                          size_t num_fields, weft_tensor *const *values, size_t num_values,
                          int64_t deadline, wc_reply *, weft_status *);
weft_code wc_bad_reply(weft_status *);
uint64_t wc_milliseconds_until(int64_t deadline);
/* Return true if no name is NULL. */
bool wc_has_names(const char *const *names, size_t count);
weft_code wc_null_argument(weft_status *);
/* Copies of names of outputs, each with a port; `wc_free_texts` frees them. */
char **wc_with_ports(const char *const *names, size_t count);

#endif
