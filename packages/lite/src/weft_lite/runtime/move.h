/* Copies between strided views, of which most ops that move elements are made. */
#ifndef WEFT_LITE_MOVE_H
#define WEFT_LITE_MOVE_H

#include "runtime.h"

enum { WL_LOOPS = 2 * WL_MAX_RANK };

/* Loops over elements of `size` bytes, outermost first; steps are in bytes. */
typedef struct wl_view {
  int depth;
  size_t size;
  int64_t dims[WL_LOOPS], from_step[WL_LOOPS], to_step[WL_LOOPS];
} wl_view;

void wl_move(const wl_view *, const uint8_t *from, uint8_t *to);

/* The steps of a tensor that lies in order. */
void wl_steps(const wl_tensor *, int64_t *steps);

/* A view from strides of the operand to the result in order. */
static inline void wl_add_loop(wl_view *v, int64_t size, int64_t from_step) {
  v->dims[v->depth] = size;
  v->from_step[v->depth++] = from_step;
}
void wl_move_into(wl_view *, const uint8_t *from, wl_tensor *to);

#endif
