/* Recurrent cells: a product of what comes in beside the state with packed weights, then the gates. */
#include "quantized.h"
#include "runtime.h"

static const float *floats(const wl_tensor *t) { return (const float *)(const void *)t->data; }

static uint64_t fours(int64_t size) { return (uint64_t)(size + 3) / 4; }

/* Whether weights are packed for `columns` results of rows of m numbers and n of the state. Bytes have the
 * rows of either by fours, since each becomes bytes with a scale of its own. */
static wl_status check_weights(wl_interpreter *r, const wl_tensor *w, const wl_tensor *bias, int64_t m, int64_t n,
                               int64_t columns) {
  WL_TRY(wl_expect_type(r, w, "the weights", WL_FLOATS | WL_TYPE(INT8)));
  if (bias) WL_TRY(wl_expect_type(r, bias, "the bias", WL_FLOATS));
  bool bytes = w->dtype == WL_TYPE_INT8;
  int64_t depth = bytes ? (int64_t)(fours(m) + fours(n)) : m + n;
  if (w->layout != (bytes ? WL_LAYOUT_PANELS4 : WL_LAYOUT_PANELS) || w->rank != (bytes ? 5 : 4) ||
      w->dims[0] != (columns + WL_PANEL - 1) / WL_PANEL || w->dims[1] != 1 || w->dims[2] != depth ||
      w->dims[3] != WL_PANEL || (bytes && w->dims[4] != 4))
    return wl_fail(r, WL_INVALID_ARGUMENT, "its weights are not packed for %d and %d rows and %d columns", m, n, columns);
  if (bias && (bias->rank != 1 || bias->dims[0] != columns))
    return wl_fail(r, WL_INVALID_ARGUMENT, "its bias has shape %S, not (%d)", bias, columns);
  return bytes ? wl_check_column_scales(r, w, columns) : WL_OK;
}

/* What a cell multiplies: rows of m numbers beside n of the state. */
typedef struct pairs {
  wl_interpreter *r;
  size_t batch, m, n;
  float *xh;
  float *aside;  /* results of some rows, for bytes alone */
  int8_t *bytes; /* of one half of some rows */
} pairs;

static size_t rows_of_bytes(size_t batch) { return batch < WL_PADDED_ROWS ? batch : WL_PADDED_ROWS; }

/* The same by bytes, one half of some rows after the other. */
static void multiply_bytes(const pairs *p, size_t first, size_t count, const wl_tensor *w, const float *bias,
                           size_t columns, float *out) {
  const int8_t *rows[WL_PADDED_ROWS];
  float scales[WL_PADDED_ROWS];
  size_t before = 4 * fours((int64_t)p->m), after = 4 * fours((int64_t)p->n);
  wl_tile8 tile = {.rows = count, .columns = columns, .taps = 1, .a = rows, .panel = (before + after) * WL_PANEL,
                   .scales = w->scales, .one_scale = w->scale_count == 1, .factor = 1, .stride = columns,
                   .row_scales = scales, .least = -INFINITY, .most = INFINITY};
  for (int half = 0; half < 2; half++) {
    const float *from = p->xh + first * (p->m + p->n) + (half ? p->m : 0);
    wl_rows_to_bytes(p->r->vector, count, from, p->m + p->n, half ? p->n : p->m, p->bytes, rows, scales);
    tile.depth = half ? after : before;
    tile.b = (const int8_t *)w->data + (half ? before * WL_PANEL : 0);
    tile.real_bias = half ? NULL : bias;
    tile.real = half ? p->aside : out;
    p->r->vector->tile8(&tile);
  }
  for (size_t i = 0; i < count * columns; i++) out[i] += p->aside[i];
}

/* out (batch, columns) = [x, h] (batch, m + n) times weights plus bias. */
static void multiply(const pairs *p, const wl_tensor *w, const wl_tensor *bias, size_t columns, float *out) {
  const wl_vector *vector = p->r->vector;
  bool bytes = w->dtype == WL_TYPE_INT8;
  size_t depth = p->m + p->n, most = bytes ? WL_PADDED_ROWS : WL_MOST_ROWS;
  if (most > (bytes ? vector->rows8 : vector->rows)) most = bytes ? vector->rows8 : vector->rows;
  const float *added = bias ? floats(bias) : NULL;
  for (size_t first = 0, count; first < p->batch; first += count) {
    const float *rows[WL_MOST_ROWS];
    count = p->batch - first < most ? p->batch - first : most;
    if (bytes) {
      multiply_bytes(p, first, count, w, added, columns, out + first * columns);
      continue;
    }
    for (size_t m = 0; m < count; m++) rows[m] = p->xh + (first + m) * depth;
    wl_tile tile = {count, columns, 1, depth, rows, floats(w), added, out + first * columns, columns, -INFINITY, INFINITY};
    vector->tile(&tile);
  }
}

static void join(const pairs *p, const float *x, const float *h) {
  float *to = p->xh;
  for (size_t i = 0; i < p->batch; i++, to += p->m + p->n) {
    memcpy(to, x + i * p->m, p->m * sizeof(float));
    memcpy(to + p->m, h + i * p->n, p->n * sizeof(float));
  }
}

/* The operands side by side in scratch, and what lies behind them: `columns` results of each row. */
static pairs pairs_of(wl_interpreter *r, const wl_tensor *x, const wl_tensor *h, size_t columns, float **results) {
  pairs p = {r, (size_t)x->dims[0], (size_t)x->dims[1], (size_t)h->dims[1], (float *)(void *)wl_scratch(r, 0), NULL, NULL};
  *results = p.xh + p.batch * (p.m + p.n);
  p.aside = *results + p.batch * columns;
  p.bytes = (int8_t *)(p.aside + rows_of_bytes(p.batch) * columns);
  join(&p, floats(x), floats(h));
  return p;
}

static wl_status shape_cell(wl_interpreter *r, wl_op *op) {
  bool lstm = op->kind == WL_OP_LstmCell;
  const wl_tensor *x = wl_in(r, op, 0), *h = wl_in(r, op, lstm ? 2 : 1);
  WL_TRY(wl_expect_type(r, h, "the state", WL_FLOATS));
  WL_TRY(wl_expect_rank(r, x, "operand 0", 2, 2));
  WL_TRY(wl_expect_rank(r, h, "the state", 2, 2));
  int64_t batch = x->dims[0], m = x->dims[1], n = h->dims[1], depth = m + n;
  if (h->dims[0] != batch)
    return wl_fail(r, WL_INVALID_ARGUMENT, "operand 0 has shape %S, and the state %S", x, h);
  if (lstm) {
    const wl_tensor *c = wl_in(r, op, 1);
    WL_TRY(wl_expect_type(r, c, "the state", WL_FLOATS));
    if (c->rank != 2 || c->dims[0] != batch || c->dims[1] != n)
      return wl_fail(r, WL_INVALID_ARGUMENT, "its states have shapes %S and %S", c, h);
    WL_TRY(check_weights(r, wl_in(r, op, 3), wl_in(r, op, 4), m, n, 4 * n));
  } else {
    WL_TRY(check_weights(r, wl_in(r, op, 2), wl_in(r, op, 3), m, n, 2 * n));
    WL_TRY(check_weights(r, wl_in(r, op, 4), wl_in(r, op, 5), m, n, n));
  }
  for (uint32_t i = 0; i < op->output_count; i++) {
    WL_TRY(wl_expect_type(r, wl_out(r, op, i), "a result", WL_FLOATS));
    WL_TRY(wl_set_shape_of(r, wl_out(r, op, i), h));
  }
  op->scratch = wl_work((uint64_t)batch, (uint64_t)(depth + 4 * n) * sizeof(float));
  if (wl_in(r, op, lstm ? 3 : 2)->dtype == WL_TYPE_INT8 || (!lstm && wl_in(r, op, 4)->dtype == WL_TYPE_INT8))
    op->scratch += rows_of_bytes((size_t)batch) * 4 * ((uint64_t)n * 4 + fours(m > n ? m : n));
  op->cost = wl_work(wl_work((uint64_t)batch, (uint64_t)depth * 4), (uint64_t)n) / 16384;
  return WL_OK;
}

static wl_status compute_lstm(wl_interpreter *r, wl_op *op) {
  const wl_tensor *x = wl_in(r, op, 0), *c = wl_in(r, op, 1), *h = wl_in(r, op, 2);
  size_t n = (size_t)h->dims[1];
  float *gates;
  pairs p = pairs_of(r, x, h, 4 * n, &gates);
  float *next_c = (float *)(void *)wl_out(r, op, 0)->data, *next_h = (float *)(void *)wl_out(r, op, 1)->data;
  float forget = wl_float(r, op, WL_CELL_FORGET_BIAS), clip = wl_float(r, op, WL_CELL_CELL_CLIP);
  multiply(&p, wl_in(r, op, 3), wl_in(r, op, 4), 4 * n, gates);
  for (size_t b = 0; b < p.batch; b++) {
    float *i = gates + b * 4 * n, *j = i + n, *f = j + n, *o = f + n;
    const float *before = floats(c) + b * n;
    for (size_t k = 0; k < n; k++) f[k] += forget;
    r->vector->sigmoid(n, i, i);
    r->vector->tanh(n, j, j);
    r->vector->sigmoid(2 * n, f, f);
    for (size_t k = 0; k < n; k++) {
      float v = before[k] * f[k] + i[k] * j[k];
      next_c[b * n + k] = clip > 0 ? (v < -clip ? -clip : v > clip ? clip : v) : v;
    }
    r->vector->tanh(n, next_c + b * n, j);
    for (size_t k = 0; k < n; k++) next_h[b * n + k] = j[k] * o[k];
  }
  return WL_OK;
}

const wl_kernel wl_op_LstmCell = {"LstmCell", NULL, shape_cell, compute_lstm, WL_FLOATS, 5, 5, 2, 1 + WL_TABLE_CELL_OPTIONS, 0};

static wl_status compute_gru(wl_interpreter *r, wl_op *op) {
  const wl_tensor *x = wl_in(r, op, 0), *h = wl_in(r, op, 1);
  float *gates, *out = (float *)(void *)wl_out(r, op, 0)->data;
  size_t n = (size_t)h->dims[1];
  pairs p = pairs_of(r, x, h, 4 * n, &gates);
  size_t batch = p.batch, depth = p.m + n;
  float *fresh = gates + batch * 2 * n;
  multiply(&p, wl_in(r, op, 2), wl_in(r, op, 3), 2 * n, gates);
  r->vector->sigmoid(batch * 2 * n, gates, gates);
  for (size_t b = 0; b < batch; b++) /* the reset gate is the first half */
    for (size_t k = 0; k < n; k++) p.xh[b * depth + p.m + k] *= gates[b * 2 * n + k];
  multiply(&p, wl_in(r, op, 4), wl_in(r, op, 5), n, fresh);
  r->vector->tanh(batch * n, fresh, fresh);
  for (size_t b = 0; b < batch; b++)
    for (size_t k = 0; k < n; k++) {
      float update = gates[b * 2 * n + n + k], before = floats(h)[b * n + k];
      out[b * n + k] = update * before + (1 - update) * fresh[b * n + k];
    }
  return WL_OK;
}

const wl_kernel wl_op_GruCell = {"GruCell", NULL, shape_cell, compute_gru, WL_FLOATS, 6, 6, 1, 1 + WL_TABLE_CELL_OPTIONS, 0};
