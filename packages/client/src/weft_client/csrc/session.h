/* Parts of sessions that calls about their graph use. */
#ifndef WEFT_SESSION_H
#define WEFT_SESSION_H

#include "internal.h"

int64_t wc_session_deadline(const weft_session *, int64_t timeout_ms);
weft_graph *wc_session_graph(const weft_session *);
uint64_t wc_session_number(const weft_session *);
weft_code wc_session_extend(weft_session *, int64_t deadline, weft_status *);
/* Call a method with a table and without values. */
weft_code wc_session_call(weft_session *, unsigned method, const wc_field *fields,
                          size_t num_fields, int64_t deadline, wc_reply *, weft_status *);
uint64_t wc_milliseconds_until(int64_t deadline);
/* Copies of names of outputs, each with a port; `wc_free_ports` frees them. */
char **wc_with_ports(const char *const *names, size_t count);
void wc_free_ports(char **outputs, size_t count);

#endif
