/* TLS over a socket that does not block. Functions that would block return the events to wait for. */
#ifndef WEFT_TLS_H
#define WEFT_TLS_H

#include "internal.h"

typedef struct wc_tls wc_tls;

/* Without OpenSSL this fails with UNIMPLEMENTED. */
wc_tls *wc_tls_new(int socket, const char *host, const wc_credentials *, weft_status *);
void wc_tls_free(wc_tls *);
weft_code wc_tls_handshake(wc_tls *, short *events, weft_status *);
weft_code wc_tls_send(wc_tls *, const void *data, size_t size, size_t *sent, short *events,
                      weft_status *);
weft_code wc_tls_receive(wc_tls *, void *data, size_t size, size_t *received, short *events,
                         weft_status *);

#endif
