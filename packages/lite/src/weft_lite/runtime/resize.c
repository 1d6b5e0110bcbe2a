/* Images of another size: ResizeBilinear and ResizeNearest. */
#include "runtime.h"

static wl_status check(wl_interpreter *r, wl_op *op) {
  return wl_expect_same_type(r, wl_in(r, op, 0), wl_out(r, op, 0), "the result");
}

static wl_status shape(wl_interpreter *r, wl_op *op) {
  const wl_tensor *x = wl_in(r, op, 0);
  int64_t size[2];
  int count;
  WL_TRY(wl_expect_rank(r, x, "operand 0", 4, 4));
  WL_TRY(wl_read_ints(r, wl_in(r, op, 1), "the size", 2, size, &count));
  if (count != 2) return wl_fail(r, WL_INVALID_ARGUMENT, "the size is not a height and a width");
  int64_t dims[4] = {x->dims[0], size[0], size[1], x->dims[3]};
  WL_TRY(wl_set_shape(r, wl_out(r, op, 0), 4, dims));
  if (wl_elements(wl_out(r, op, 0)) && !wl_elements(x))
    return wl_fail(r, WL_INVALID_ARGUMENT, "shape %S has no pixels", x);
  return WL_OK;
}

/* How results of an axis lie over its `in` pixels. */
typedef struct grid {
  bool corners, centers;
  int32_t in;
  float scale;
} grid;

static grid grid_of(const wl_interpreter *r, const wl_op *op, int32_t in, int32_t out) {
  grid g = {wl_byte(r, op, WL_RESIZE_ALIGN_CORNERS), wl_byte(r, op, WL_RESIZE_HALF_PIXEL_CENTERS), in, 0};
  g.scale = g.corners && out > 1 ? (float)(in - 1) / (float)(out - 1) : (float)in / (float)out;
  return g;
}

/* Between which two rows or columns a result lies, and how far from the first. */
typedef struct between {
  int64_t low, high;
  float part;
} between;

static between between_of(const grid *g, int64_t i) {
  float at = g->centers ? ((float)i + 0.5f) * g->scale - 0.5f : (float)i * g->scale;
  float whole = floorf(at);
  between b = {whole > 0 ? (int64_t)whole : 0, (int64_t)ceilf(at), at - whole};
  if (b.high > g->in - 1) b.high = g->in - 1;
  if (b.high < 0) b.high = 0;
  if (b.low > g->in - 1) b.low = g->in - 1;
  return b;
}

static int64_t nearest(const grid *g, int64_t i) {
  float at = ((float)i + (g->centers ? 0.5f : 0)) * g->scale;
  int64_t found = (int64_t)(g->corners ? roundf(at) : floorf(at));
  return found < 0 ? 0 : found > g->in - 1 ? g->in - 1 : found;
}

static const uint8_t *pixel(const wl_tensor *t, int64_t n, int64_t y, int64_t x) {
  return t->data + (size_t)(((n * t->dims[1] + y) * t->dims[2] + x) * t->dims[3]) * wl_type_size(t->dtype);
}

static wl_status compute_nearest(wl_interpreter *r, wl_op *op) {
  const wl_tensor *x = wl_in(r, op, 0);
  wl_tensor *out = wl_out(r, op, 0);
  size_t size = (size_t)x->dims[3] * wl_type_size(x->dtype);
  grid rows = grid_of(r, op, x->dims[1], out->dims[1]), columns = grid_of(r, op, x->dims[2], out->dims[2]);
  uint8_t *to = out->data;
  for (int64_t n = 0; n < out->dims[0]; n++)
    for (int64_t i = 0; i < out->dims[1]; i++) {
      int64_t row = nearest(&rows, i);
      for (int64_t j = 0; j < out->dims[2]; j++, to += size)
        memcpy(to, pixel(x, n, row, nearest(&columns, j)), size);
    }
  return WL_OK;
}

static void mix_floats(const wl_tensor *x, int64_t n, between y, between c, float *to) {
  const float *p[4] = {(const void *)pixel(x, n, y.low, c.low), (const void *)pixel(x, n, y.low, c.high),
                       (const void *)pixel(x, n, y.high, c.low), (const void *)pixel(x, n, y.high, c.high)};
  for (int32_t k = 0; k < x->dims[3]; k++) {
    float top = p[0][k] + (p[1][k] - p[0][k]) * c.part;
    float bottom = p[2][k] + (p[3][k] - p[2][k]) * c.part;
    to[k] = top + (bottom - top) * y.part;
  }
}

static void mix_bytes(const wl_vector *vector, const wl_tensor *x, int64_t n, between y, between c, int8_t *to) {
  const int8_t *p[4] = {(const void *)pixel(x, n, y.low, c.low), (const void *)pixel(x, n, y.low, c.high),
                        (const void *)pixel(x, n, y.high, c.low), (const void *)pixel(x, n, y.high, c.high)};
  int32_t one = WL_MIX8, right = (int32_t)nearbyintf(c.part * WL_MIX8), down = (int32_t)nearbyintf(y.part * WL_MIX8);
  int32_t both = (int32_t)nearbyintf(c.part * y.part * WL_MIX8);
  int32_t parts[4] = {one - right - down + both, right - both, down - both, both};
  vector->mix8(parts, (size_t)x->dims[3], p, to);
}

static wl_status compute_bilinear(wl_interpreter *r, wl_op *op) {
  const wl_tensor *x = wl_in(r, op, 0);
  wl_tensor *out = wl_out(r, op, 0);
  size_t size = (size_t)x->dims[3] * wl_type_size(x->dtype);
  grid rows = grid_of(r, op, x->dims[1], out->dims[1]), columns = grid_of(r, op, x->dims[2], out->dims[2]);
  uint8_t *to = out->data;
  for (int64_t n = 0; n < out->dims[0]; n++)
    for (int64_t i = 0; i < out->dims[1]; i++) {
      between y = between_of(&rows, i);
      for (int64_t j = 0; j < out->dims[2]; j++, to += size) {
        between c = between_of(&columns, j);
        if (x->dtype == WL_TYPE_FLOAT32) mix_floats(x, n, y, c, (float *)(void *)to);
        else mix_bytes(r->vector, x, n, y, c, (int8_t *)to);
      }
    }
  return WL_OK;
}

const wl_kernel wl_op_ResizeBilinear = {"ResizeBilinear", check, shape, compute_bilinear, WL_FLOATS | WL_TYPE(INT8), 2, 2, 1, 1 + WL_TABLE_RESIZE_OPTIONS, 0};
const wl_kernel wl_op_ResizeNearest = {"ResizeNearest", check, shape, compute_nearest, WL_ANY, 2, 2, 1, 1 + WL_TABLE_RESIZE_OPTIONS, 0};
