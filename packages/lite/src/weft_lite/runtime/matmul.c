/* Products of matrices: FullyConnected by packed weights, BatchMatMul of any two. */
#include "product.h"
#include "quantized.h"
#include "runtime.h"

/* ---------------------------------------------------------------- fully connected */

/* Whether floats meet weights of bytes: each row of them becomes bytes first, with a scale of its own. */
static bool is_dynamic(const wl_tensor *x, const wl_tensor *w) {
  return x->dtype == WL_TYPE_FLOAT32 && w->dtype == WL_TYPE_INT8;
}

/* Whether weights lie by fours, as bytes that meet bytes do. */
static bool fours(const wl_tensor *x, const wl_tensor *w) {
  return w->dtype == WL_TYPE_INT8 && x->dtype != WL_TYPE_INT16;
}

static wl_status check_connected(wl_interpreter *r, wl_op *op) {
  const wl_tensor *x = wl_in(r, op, 0), *w = wl_in(r, op, 1), *bias = wl_in(r, op, 2);
  bool floats = x->dtype == WL_TYPE_FLOAT32;
  int64_t columns = wl_int(r, op, WL_MAT_MUL_COLUMNS);
  WL_TRY(wl_check_activation(r, wl_byte(r, op, WL_MAT_MUL_ACTIVATION)));
  WL_TRY(wl_expect_same_type(r, x, wl_out(r, op, 0), "the result"));
  WL_TRY(wl_expect_type(r, w, "the weights", WL_TYPE(INT8) | (floats ? WL_FLOATS : 0)));
  bool bytes = fours(x, w);
  if (w->layout != (bytes ? WL_LAYOUT_PANELS4 : WL_LAYOUT_PANELS) || w->rank != (bytes ? 5 : 4) ||
      w->dims[1] != 1 || columns < 1 || w->dims[0] != (columns + WL_PANEL - 1) / WL_PANEL ||
      w->dims[3] != WL_PANEL || (bytes && w->dims[4] != 4))
    return wl_fail(r, WL_DATA_LOSS, "its weights are not packed for %d columns", columns);
  if (bias) WL_TRY(wl_expect_type(r, bias, "the bias", wl_bias_type(x->dtype)));
  if (bias && (bias->rank != 1 || bias->dims[0] != columns))
    return wl_fail(r, WL_DATA_LOSS, "the bias has shape %S for %d columns", bias, columns);
  if (is_dynamic(x, w)) return wl_check_column_scales(r, w, columns);
  return floats ? WL_OK : wl_check_product8(r, op, columns);
}

static wl_status shape_connected(wl_interpreter *r, wl_op *op) {
  const wl_tensor *x = wl_in(r, op, 0), *w = wl_in(r, op, 1);
  WL_TRY(wl_expect_rank(r, x, "operand 0", 1, WL_MAX_RANK));
  bool bytes = fours(x, w);
  int64_t depth = x->dims[x->rank - 1], dims[WL_MAX_RANK];
  if (bytes ? w->dims[2] != (depth + 3) / 4 : w->dims[2] != depth)
    return wl_fail(r, WL_INVALID_ARGUMENT, "operand 0 has shape %S, and the weights %d rows", x,
                   (int64_t)w->dims[2] * (bytes ? 4 : 1));
  for (int i = 0; i < x->rank - 1; i++) dims[i] = x->dims[i];
  dims[x->rank - 1] = wl_int(r, op, WL_MAT_MUL_COLUMNS);
  WL_TRY(wl_set_shape(r, wl_out(r, op, 0), x->rank, dims));
  uint64_t copied = is_dynamic(x, w) ? WL_PADDED_ROWS * ((uint64_t)depth + 3) : bytes ? wl_rows8_scratch(x, 1) : 0;
  uint64_t zeros = (uint64_t)depth * (x->dtype == WL_TYPE_INT16 ? 2 : 1);
  op->scratch = 4 * WL_MOST_ROWS * sizeof(void *) + zeros + 2 * WL_ALIGNMENT + copied;
  op->cost = wl_work((uint64_t)wl_elements(x), (uint64_t)dims[x->rank - 1]) / 16384;
  return WL_OK;
}

typedef struct rows {
  wl_interpreter *r;
  wl_tile tile;
  const float *x;
  float *out;
  size_t count, columns; /* rows of x, columns of the result */
} rows;

/* Rows [begin, end) over all columns, or if there are few rows, panels [begin, end) over all rows. */
static void multiply_rows(const rows *p, size_t begin, size_t end, size_t column, size_t columns) {
  const wl_vector *vector = p->r->vector;
  for (size_t tiles = (end - begin + vector->rows - 1) / vector->rows; tiles; tiles--) {
    const float *pointers[WL_MOST_ROWS];
    wl_tile tile = p->tile;
    tile.rows = (end - begin + tiles - 1) / tiles;
    for (size_t m = 0; m < tile.rows; m++) pointers[m] = p->x + (begin + m) * tile.depth;
    tile.a = pointers;
    tile.b += column * tile.depth;
    if (tile.bias) tile.bias += column;
    tile.columns = columns;
    tile.c = p->out + begin * tile.stride + column;
    vector->tile(&tile);
    begin += tile.rows;
  }
}

/* Rows of BatchMatMul, whose scratch has the panels. */
static void by_rows(void *argument, unsigned task, size_t begin, size_t end) {
  const rows *p = argument;
  (void)task;
  multiply_rows(p, begin, end, 0, p->columns);
}

static void by_panels(void *argument, unsigned task, size_t begin, size_t end) {
  const rows *p = argument;
  (void)task;
  size_t first = begin * WL_PANEL, last = end * WL_PANEL < p->columns ? end * WL_PANEL : p->columns;
  multiply_rows(p, 0, p->count, first, last - first);
}

static void connected_rows(const void *windows, size_t first, size_t count, size_t pixel,
                           const void *border, const void **found) {
  (void)border;
  for (size_t m = 0; m < count; m++) found[m] = (const uint8_t *)windows + (first + m) * pixel;
}

/* Whether threads share the rows of x, and not the columns of the result. */
static bool has_many_rows(const rows *p) {
  return p->count >= 4 * p->r->vector->rows || p->columns < 2 * WL_PANEL;
}

static size_t row_grain(const rows *p) { return 1 + 32768 / (1 + p->tile.depth * p->columns); }

static void split_rows(wl_interpreter *r, rows *p) {
  if (has_many_rows(p))
    wl_split(r, p->count, row_grain(p), by_rows, p);
  else
    wl_split(r, (p->columns + WL_PANEL - 1) / WL_PANEL,
             1 + 32768 / (1 + p->tile.depth * p->count * WL_PANEL), by_panels, p);
}

typedef struct dynamic {
  wl_interpreter *r;
  const float *x;
  float *out;
  size_t count, depth;
  wl_tile8 tile;
} dynamic;

/* Rows [begin, end) times the columns of a tile, which are `column` and on. */
static void multiply_dynamic(const dynamic *p, unsigned task, size_t begin, size_t end, wl_tile8 tile,
                             size_t column) {
  const wl_vector *vector = p->r->vector;
  int8_t *bytes = (int8_t *)wl_scratch(p->r, task);
  const int8_t *rows[WL_PADDED_ROWS];
  float scales[WL_PADDED_ROWS];
  size_t most = vector->rows8 < WL_PADDED_ROWS ? vector->rows8 : WL_PADDED_ROWS;
  tile.a = rows;
  tile.row_scales = scales;
  for (; begin < end; begin += tile.rows) {
    tile.rows = end - begin < most ? end - begin : most;
    wl_rows_to_bytes(vector, tile.rows, p->x + begin * p->depth, p->depth, p->depth, bytes, rows, scales);
    tile.real = p->out + begin * tile.stride + column;
    vector->tile8(&tile);
  }
}

static void dynamic_rows(void *argument, unsigned task, size_t begin, size_t end) {
  const dynamic *p = argument;
  multiply_dynamic(p, task, begin, end, p->tile, 0);
}

static void dynamic_panels(void *argument, unsigned task, size_t begin, size_t end) {
  const dynamic *p = argument;
  wl_tile8 tile = p->tile;
  size_t first = begin * WL_PANEL, last = end * WL_PANEL < tile.columns ? end * WL_PANEL : tile.columns;
  tile.b += first * tile.depth;
  if (!tile.one_scale) tile.scales += first;
  if (tile.real_bias) tile.real_bias += first;
  tile.columns = last - first;
  multiply_dynamic(p, task, 0, p->count, tile, first);
}

static void compute_dynamic(wl_interpreter *r, const wl_op *op, size_t count, size_t columns) {
  const wl_tensor *x = wl_in(r, op, 0), *w = wl_in(r, op, 1), *bias = wl_in(r, op, 2);
  dynamic p = {.r = r, .x = (const float *)(const void *)x->data, .count = count,
               .depth = (size_t)x->dims[x->rank - 1], .out = (float *)(void *)wl_out(r, op, 0)->data};
  p.tile = (wl_tile8){.columns = columns, .taps = 1, .depth = (p.depth + 3) / 4 * 4, .stride = columns,
                      .panel = (p.depth + 3) / 4 * 4 * WL_PANEL,
                      .b = (const int8_t *)w->data, .scales = w->scales, .one_scale = w->scale_count == 1,
                      .factor = 1, .real_bias = bias ? (const float *)(const void *)bias->data : NULL};
  wl_clamp(wl_byte(r, op, WL_MAT_MUL_ACTIVATION), &p.tile.least, &p.tile.most);
  if (count >= 2 * WL_PADDED_ROWS || columns < 2 * WL_PANEL)
    wl_split(r, count, 1 + 65536 / (1 + p.tile.depth * columns), dynamic_rows, &p);
  else
    wl_split(r, (columns + WL_PANEL - 1) / WL_PANEL, 1 + 65536 / (1 + p.tile.depth * count * WL_PANEL),
             dynamic_panels, &p);
}

static wl_status compute_connected(wl_interpreter *r, wl_op *op) {
  const wl_tensor *x = wl_in(r, op, 0), *bias = wl_in(r, op, 2);
  size_t columns = (size_t)wl_int(r, op, WL_MAT_MUL_COLUMNS);
  size_t count = (size_t)wl_product(x->dims, 0, x->rank - 1);
  unsigned activation = wl_byte(r, op, WL_MAT_MUL_ACTIVATION);
  if (x->dtype == WL_TYPE_INT16)
    return wl_conv16(r, op, connected_rows, x->data, 1, count, columns, activation);
  if (x->dtype == WL_TYPE_INT8)
    return wl_conv8(r, op, connected_rows, x->data, 1, count, columns, activation);
  if (is_dynamic(x, wl_in(r, op, 1))) {
    compute_dynamic(r, op, count, columns);
    return WL_OK;
  }
  rows p = {.r = r, .x = (const float *)(const void *)x->data, .count = count, .columns = columns,
            .out = (float *)(void *)wl_out(r, op, 0)->data};
  p.tile = (wl_tile){.taps = 1, .depth = (size_t)x->dims[x->rank - 1], .stride = columns,
                     .b = (const float *)(const void *)wl_in(r, op, 1)->data,
                     .bias = bias ? (const float *)(const void *)bias->data : NULL};
  wl_clamp(activation, &p.tile.low, &p.tile.high);
  if (!has_many_rows(&p)) {
    split_rows(r, &p);
    return WL_OK;
  }
  wl_float_product product = {.r = r, .points = connected_rows, .windows = x->data, .x = x, .out = p.out,
                              .results = count, .tile = p.tile};
  product.tile.columns = columns;
  wl_split(r, count, row_grain(&p), wl_float_product_piece, &product);
  return WL_OK;
}

const wl_kernel wl_op_FullyConnected = {
    "FullyConnected", check_connected, shape_connected, compute_connected,
    WL_FLOATS | WL_TYPE(INT8) | WL_TYPE(INT16), 2, 3, 1, 1 + WL_TABLE_MAT_MUL_OPTIONS, 0};

/* ---------------------------------------------------------------- any two */

static wl_status check_batch(wl_interpreter *r, wl_op *op) {
  WL_TRY(wl_expect_same_type(r, wl_in(r, op, 0), wl_in(r, op, 1), "operand 1"));
  WL_TRY(wl_expect_same_type(r, wl_in(r, op, 0), wl_out(r, op, 0), "the result"));
  return wl_check_activation(r, wl_byte(r, op, WL_MAT_MUL_ACTIVATION));
}

/* The sizes (batches..., rows, depth) of an operand, one of which may be transposed. */
enum { M, N, K };

static wl_status shape_batch(wl_interpreter *r, wl_op *op) {
  const wl_tensor *a = wl_in(r, op, 0), *b = wl_in(r, op, 1);
  WL_TRY(wl_expect_rank(r, a, "operand 0", 2, WL_MAX_RANK));
  WL_TRY(wl_expect_rank(r, b, "operand 1", 2, WL_MAX_RANK));
  bool ta = wl_byte(r, op, WL_MAT_MUL_TRANSPOSE_A), tb = wl_byte(r, op, WL_MAT_MUL_TRANSPOSE_B);
  op->memo[M] = a->dims[a->rank - (ta ? 1 : 2)];
  op->memo[K] = a->dims[a->rank - (ta ? 2 : 1)];
  op->memo[N] = b->dims[b->rank - (tb ? 2 : 1)];
  if (b->dims[b->rank - (tb ? 1 : 2)] != op->memo[K])
    return wl_fail(r, WL_INVALID_ARGUMENT, "shapes %S and %S have other inner sizes", a, b);
  wl_tensor batch_a = *a, batch_b = *b;
  batch_a.rank -= 2;
  batch_b.rank -= 2;
  int64_t dims[WL_MAX_RANK + 2];
  int rank;
  WL_TRY(wl_broadcast(r, &batch_a, &batch_b, dims, &rank));
  dims[rank] = op->memo[M];
  dims[rank + 1] = op->memo[N];
  WL_TRY(wl_set_shape(r, wl_out(r, op, 0), rank + 2, dims));
  uint64_t panels = (uint64_t)(op->memo[N] + WL_PANEL - 1) / WL_PANEL;
  uint64_t floats = a->dtype == WL_TYPE_FLOAT32 ? 4 * (uint64_t)op->memo[K] : 0;
  op->scratch = wl_work(floats, panels * WL_PANEL + (ta ? (uint64_t)op->memo[M] : 0)) + WL_ALIGNMENT;
  op->cost = wl_work((uint64_t)wl_elements(wl_out(r, op, 0)), (uint64_t)op->memo[K]) / 16384;
  return WL_OK;
}

/* The panels of b, as Layout PANELS has them. */
static void pack(const float *b, size_t depth, size_t columns, bool transposed, float *to) {
  for (size_t first = 0; first < columns; first += WL_PANEL) {
    size_t count = columns - first < WL_PANEL ? columns - first : WL_PANEL;
    size_t across = transposed ? depth : 1, along = transposed ? 1 : columns;
    const float *from = b + first * across;
    for (size_t k = 0; k < depth; k++, from += along, to += WL_PANEL)
      if (count == WL_PANEL && !transposed)
        memcpy(to, from, WL_PANEL * sizeof *to);
      else
        for (size_t n = 0; n < WL_PANEL; n++) to[n] = n < count ? from[n * across] : 0;
  }
}

static void transpose(const float *a, size_t rows, size_t columns, float *to) {
  for (size_t i = 0; i < rows; i++)
    for (size_t j = 0; j < columns; j++) to[j * rows + i] = a[i * columns + j];
}

#define INTEGERS(type, unsigned_type)                                                                 \
  static void multiply_##type(const wl_op *op, const type *a, const type *b, bool ta, bool tb,         \
                              type *c) {                                                               \
    int64_t m = op->memo[M], n = op->memo[N], depth = op->memo[K];                                     \
    for (int64_t i = 0; i < m; i++)                                                                    \
      for (int64_t j = 0; j < n; j++) {                                                                \
        unsigned_type sum = 0;                                                                         \
        for (int64_t k = 0; k < depth; k++)                                                            \
          sum += (unsigned_type)a[ta ? k * m + i : i * depth + k] *                                    \
                 (unsigned_type)b[tb ? j * depth + k : k * n + j];                                     \
        c[i * n + j] = (type)sum;                                                                      \
      }                                                                                                \
  }
INTEGERS(int32_t, uint32_t)
INTEGERS(int64_t, uint64_t)
#undef INTEGERS

/* Which matrix of an operand batch `i` of the result takes. */
static size_t matrix_of(const wl_tensor *t, const wl_tensor *out, size_t i) {
  size_t at = 0, step = 1;
  for (int d = out->rank - 3, e = t->rank - 3; e >= 0; d--, e--) {
    size_t index = i % (size_t)out->dims[d];
    i /= (size_t)out->dims[d];
    if (t->dims[e] != 1) at += index * step;
    step *= (size_t)t->dims[e];
  }
  return at;
}

static void multiply_floats(wl_interpreter *r, const wl_op *op, const float *a, const float *b,
                            bool ta, bool tb, bool packed, float *c) {
  size_t m = (size_t)op->memo[M], n = (size_t)op->memo[N], depth = (size_t)op->memo[K];
  float *panels = (float *)(void *)wl_scratch(r, 0);
  if (!packed) pack(b, depth, n, tb, panels);
  if (ta) {
    float *rows_of_a = panels + (n + WL_PANEL - 1) / WL_PANEL * WL_PANEL * depth;
    transpose(a, depth, m, rows_of_a);
    a = rows_of_a;
  }
  rows p = {.r = r, .x = a, .out = c, .count = m, .columns = n};
  p.tile = (wl_tile){.taps = 1, .depth = depth, .b = panels, .stride = n};
  wl_clamp(wl_byte(r, op, WL_MAT_MUL_ACTIVATION), &p.tile.low, &p.tile.high);
  split_rows(r, &p);
}

static wl_status compute_batch(wl_interpreter *r, wl_op *op) {
  const wl_tensor *a = wl_in(r, op, 0), *b = wl_in(r, op, 1);
  wl_tensor *out = wl_out(r, op, 0);
  bool ta = wl_byte(r, op, WL_MAT_MUL_TRANSPOSE_A), tb = wl_byte(r, op, WL_MAT_MUL_TRANSPOSE_B);
  size_t size = wl_type_size(a->dtype), m = (size_t)op->memo[M], n = (size_t)op->memo[N];
  size_t depth = (size_t)op->memo[K], last = SIZE_MAX;
  if (!wl_elements(out)) return WL_OK;
  size_t batches = (size_t)wl_product(out->dims, 0, out->rank - 2);
  for (size_t i = 0; i < batches; i++) {
    size_t from_b = matrix_of(b, out, i);
    const void *x = a->data + matrix_of(a, out, i) * m * depth * size;
    const void *y = b->data + from_b * n * depth * size;
    void *z = out->data + i * m * n * size;
    if (a->dtype == WL_TYPE_FLOAT32)
      multiply_floats(r, op, x, y, ta, tb, from_b == last, z);
    else if (a->dtype == WL_TYPE_INT32)
      multiply_int32_t(op, x, y, ta, tb, z);
    else
      multiply_int64_t(op, x, y, ta, tb, z);
    last = from_b;
  }
  return WL_OK;
}

const wl_kernel wl_op_BatchMatMul = {
    "BatchMatMul", check_batch, shape_batch, compute_batch, WL_NUMBERS, 2, 2, 1,
    1 + WL_TABLE_MAT_MUL_OPTIONS, 0};
