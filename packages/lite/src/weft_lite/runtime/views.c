/* Copies between strided views. */
#include "move.h"

void wl_steps(const wl_tensor *t, int64_t *steps) {
  int64_t step = (int64_t)wl_type_size(t->dtype);
  for (int d = t->rank - 1; d >= 0; d--) {
    steps[d] = step;
    step *= t->dims[d];
  }
}

static void innermost(size_t size, int64_t n, const uint8_t *from, int64_t a, uint8_t *to, int64_t b) {
  if (a == (int64_t)size && b == (int64_t)size) {
    memcpy(to, from, (size_t)n * size);
    return;
  }
#define LOOP(type)                                                   \
  for (int64_t i = 0; i < n; i++, from += a, to += b) memcpy(to, from, sizeof(type))
  switch (size) {
    case 1: LOOP(uint8_t); return;
    case 2: LOOP(uint16_t); return;
    case 4: LOOP(uint32_t); return;
    default: LOOP(uint64_t);
  }
#undef LOOP
}

static void run_loops(const wl_view *v, int d, const uint8_t *from, uint8_t *to) {
  if (d == v->depth - 1) {
    innermost(v->size, v->dims[d], from, v->from_step[d], to, v->to_step[d]);
    return;
  }
  for (int64_t i = 0; i < v->dims[d]; i++, from += v->from_step[d], to += v->to_step[d])
    run_loops(v, d + 1, from, to);
}

/* Loops of one turn go, and neighbours that advance together become one. */
void wl_move(const wl_view *view, const uint8_t *from, uint8_t *to) {
  wl_view v = {.size = view->size};
  for (int d = 0; d < view->depth; d++) {
    int64_t n = view->dims[d], a = view->from_step[d], b = view->to_step[d];
    if (n == 0) return;
    if (n == 1) continue;
    int last = v.depth - 1;
    if (last >= 0 && v.from_step[last] == n * a && v.to_step[last] == n * b) {
      v.dims[last] *= n;
      v.from_step[last] = a;
      v.to_step[last] = b;
    } else {
      v.dims[v.depth] = n;
      v.from_step[v.depth] = a;
      v.to_step[v.depth++] = b;
    }
  }
  if (!v.depth) {
    memcpy(to, from, v.size);
    return;
  }
  run_loops(&v, 0, from, to);
}

void wl_move_into(wl_view *v, const uint8_t *from, wl_tensor *to) {
  v->size = wl_type_size(to->dtype);
  int64_t step = (int64_t)v->size;
  for (int d = v->depth - 1; d >= 0; d--) {
    v->to_step[d] = step;
    step *= v->dims[d];
  }
  wl_move(v, from, to->data);
}
