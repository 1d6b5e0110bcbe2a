/* Recurrent cells: a product of what comes in beside the state with packed weights, then the gates. */
#include "runtime.h"

static const float *floats(const wl_tensor *t) { return (const float *)(const void *)t->data; }

/* Whether weights are packed for `columns` results of rows of `depth` (0: not known yet). */
static wl_status check_weights(wl_interpreter *r, const wl_tensor *w, const wl_tensor *bias, int64_t depth,
                               int64_t columns) {
  WL_TRY(wl_expect_type(r, w, "the weights", WL_FLOATS));
  if (bias) WL_TRY(wl_expect_type(r, bias, "the bias", WL_FLOATS));
  if (w->layout != WL_LAYOUT_PANELS || w->rank != 4 || w->dims[0] != (columns + WL_PANEL - 1) / WL_PANEL ||
      w->dims[1] != 1 || w->dims[2] != depth || w->dims[3] != WL_PANEL)
    return wl_fail(r, WL_INVALID_ARGUMENT, "its weights are not packed for %d rows and %d columns", depth, columns);
  if (bias && (bias->rank != 1 || bias->dims[0] != columns))
    return wl_fail(r, WL_INVALID_ARGUMENT, "its bias has shape %S, not (%d)", bias, columns);
  return WL_OK;
}

/* out (batch, columns) = [x, h] (batch, depth) times weights plus bias. */
static void multiply(wl_interpreter *r, size_t batch, const float *xh, size_t depth, const wl_tensor *w,
                     const wl_tensor *bias, size_t columns, float *out) {
  for (size_t first = 0; first < batch;) {
    const float *rows[WL_MOST_ROWS];
    size_t count = batch - first < r->vector->rows ? batch - first : r->vector->rows;
    for (size_t m = 0; m < count; m++) rows[m] = xh + (first + m) * depth;
    wl_tile tile = {count, columns, 1, depth, rows, floats(w), bias ? floats(bias) : NULL,
                    out + first * columns, columns, -INFINITY, INFINITY};
    r->vector->tile(&tile);
    first += count;
  }
}

static void join(size_t batch, const float *x, size_t m, const float *h, size_t n, float *to) {
  for (size_t i = 0; i < batch; i++, to += m + n) {
    memcpy(to, x + i * m, m * sizeof(float));
    memcpy(to + m, h + i * n, n * sizeof(float));
  }
}

static wl_status shape_cell(wl_interpreter *r, wl_op *op) {
  bool lstm = op->kind == WL_OP_LstmCell;
  const wl_tensor *x = wl_in(r, op, 0), *h = wl_in(r, op, lstm ? 2 : 1);
  WL_TRY(wl_expect_type(r, h, "the state", WL_FLOATS));
  WL_TRY(wl_expect_rank(r, x, "operand 0", 2, 2));
  WL_TRY(wl_expect_rank(r, h, "the state", 2, 2));
  int64_t batch = x->dims[0], depth = (int64_t)x->dims[1] + h->dims[1], n = h->dims[1];
  if (h->dims[0] != batch)
    return wl_fail(r, WL_INVALID_ARGUMENT, "operand 0 has shape %S, and the state %S", x, h);
  if (lstm) {
    const wl_tensor *c = wl_in(r, op, 1);
    WL_TRY(wl_expect_type(r, c, "the state", WL_FLOATS));
    if (c->rank != 2 || c->dims[0] != batch || c->dims[1] != n)
      return wl_fail(r, WL_INVALID_ARGUMENT, "its states have shapes %S and %S", c, h);
    WL_TRY(check_weights(r, wl_in(r, op, 3), wl_in(r, op, 4), depth, 4 * n));
  } else {
    WL_TRY(check_weights(r, wl_in(r, op, 2), wl_in(r, op, 3), depth, 2 * n));
    WL_TRY(check_weights(r, wl_in(r, op, 4), wl_in(r, op, 5), depth, n));
  }
  for (uint32_t i = 0; i < op->output_count; i++) {
    WL_TRY(wl_expect_type(r, wl_out(r, op, i), "a result", WL_FLOATS));
    WL_TRY(wl_set_shape_of(r, wl_out(r, op, i), h));
  }
  op->scratch = wl_work((uint64_t)batch, (uint64_t)(depth + 4 * n) * sizeof(float));
  op->cost = wl_work(wl_work((uint64_t)batch, (uint64_t)depth * 4), (uint64_t)n) / 16384;
  return WL_OK;
}

static wl_status compute_lstm(wl_interpreter *r, wl_op *op) {
  const wl_tensor *x = wl_in(r, op, 0), *c = wl_in(r, op, 1), *h = wl_in(r, op, 2);
  size_t batch = (size_t)x->dims[0], m = (size_t)x->dims[1], n = (size_t)h->dims[1];
  float *xh = (float *)(void *)wl_scratch(r, 0), *gates = xh + batch * (m + n);
  float *next_c = (float *)(void *)wl_out(r, op, 0)->data, *next_h = (float *)(void *)wl_out(r, op, 1)->data;
  float forget = wl_float(r, op, WL_CELL_FORGET_BIAS), clip = wl_float(r, op, WL_CELL_CELL_CLIP);
  join(batch, floats(x), m, floats(h), n, xh);
  multiply(r, batch, xh, m + n, wl_in(r, op, 3), wl_in(r, op, 4), 4 * n, gates);
  for (size_t b = 0; b < batch; b++) {
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
  size_t batch = (size_t)x->dims[0], m = (size_t)x->dims[1], n = (size_t)h->dims[1], depth = m + n;
  float *xh = (float *)(void *)wl_scratch(r, 0), *gates = xh + batch * depth, *fresh = gates + batch * 2 * n;
  float *out = (float *)(void *)wl_out(r, op, 0)->data;
  join(batch, floats(x), m, floats(h), n, xh);
  multiply(r, batch, xh, depth, wl_in(r, op, 2), wl_in(r, op, 3), 2 * n, gates);
  r->vector->sigmoid(batch * 2 * n, gates, gates);
  for (size_t b = 0; b < batch; b++) /* the reset gate is the first half */
    for (size_t k = 0; k < n; k++) xh[b * depth + m + k] *= gates[b * 2 * n + k];
  multiply(r, batch, xh, depth, wl_in(r, op, 4), wl_in(r, op, 5), n, fresh);
  r->vector->tanh(batch * n, fresh, fresh);
  for (size_t b = 0; b < batch; b++)
    for (size_t k = 0; k < n; k++) {
      float update = gates[b * 2 * n + n + k], before = floats(h)[b * n + k];
      out[b * n + k] = update * before + (1 - update) * fresh[b * n + k];
    }
  return WL_OK;
}

const wl_kernel wl_op_GruCell = {"GruCell", NULL, shape_cell, compute_gru, WL_FLOATS, 6, 6, 1, 1 + WL_TABLE_CELL_OPTIONS, 0};
