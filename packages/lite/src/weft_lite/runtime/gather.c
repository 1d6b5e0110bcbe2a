/* Looking up by index: Gather, GatherNd, OneHot, ReverseSequence. */
#include "runtime.h"

static wl_status check(wl_interpreter *r, wl_op *op) {
  WL_TRY(wl_expect_type(r, wl_in(r, op, 1), "the indices", WL_TYPE(INT32) | WL_TYPE(INT64)));
  return wl_expect_same_type(r, wl_in(r, op, 0), wl_out(r, op, 0), "the result");
}

enum { BATCH, OUTER, SIZE, INNER, COUNT }; /* memo */

static wl_status shape_gather(wl_interpreter *r, wl_op *op) {
  const wl_tensor *x = wl_in(r, op, 0), *indices = wl_in(r, op, 1);
  int axis, batch = wl_int(r, op, WL_AXIS_BATCH_DIMS), rank = 0;
  int64_t dims[2 * WL_MAX_RANK];
  WL_TRY(wl_axis(r, wl_int(r, op, WL_AXIS_AXIS), x->rank, &axis));
  if (batch < 0 || batch > axis || batch > indices->rank ||
      memcmp(x->dims, indices->dims, 4 * (size_t)batch) != 0)
    return wl_fail(r, WL_INVALID_ARGUMENT, "shapes %S and %S do not begin with the same %d axes", x,
                   indices, (int64_t)batch);
  for (int d = 0; d < axis; d++) dims[rank++] = x->dims[d];
  for (int d = batch; d < indices->rank; d++) dims[rank++] = indices->dims[d];
  for (int d = axis + 1; d < x->rank; d++) dims[rank++] = x->dims[d];
  if (rank > WL_MAX_RANK) return wl_fail(r, WL_INVALID_ARGUMENT, "its result has a rank above 8");
  op->memo[BATCH] = wl_product(x->dims, 0, batch);
  op->memo[OUTER] = wl_product(x->dims, batch, axis);
  op->memo[SIZE] = x->dims[axis];
  op->memo[INNER] = wl_product(x->dims, axis + 1, x->rank);
  op->memo[COUNT] = wl_product(indices->dims, batch, indices->rank);
  return wl_set_shape(r, wl_out(r, op, 0), rank, dims);
}

static wl_status compute_gather(wl_interpreter *r, wl_op *op) {
  const wl_tensor *x = wl_in(r, op, 0), *indices = wl_in(r, op, 1);
  int64_t batch = op->memo[BATCH], outer = op->memo[OUTER], size = op->memo[SIZE], count = op->memo[COUNT];
  size_t piece = (size_t)op->memo[INNER] * wl_type_size(x->dtype);
  uint8_t *out = wl_out(r, op, 0)->data;
  for (int64_t b = 0; b < batch; b++)
    for (int64_t o = 0; o < outer; o++)
      for (int64_t i = 0; i < count; i++, out += piece) {
        int64_t index = wl_index(indices, b * count + i); /* read once: a view of it may be written to */
        if (index < 0 || index >= size)
          return wl_fail(r, WL_INVALID_ARGUMENT, "index %d is not below %d", index, size);
        memcpy(out, x->data + (size_t)((b * outer + o) * size + index) * piece, piece);
      }
  return WL_OK;
}

const wl_kernel wl_op_Gather = {"Gather", check, shape_gather, compute_gather, WL_ANY, 2, 2, 1, 1 + WL_TABLE_AXIS_OPTIONS, 0};

static wl_status shape_nd(wl_interpreter *r, wl_op *op) {
  const wl_tensor *x = wl_in(r, op, 0), *indices = wl_in(r, op, 1);
  int64_t dims[2 * WL_MAX_RANK];
  int rank = 0;
  WL_TRY(wl_expect_rank(r, indices, "the indices", 1, WL_MAX_RANK));
  int32_t depth = indices->dims[indices->rank - 1];
  if (depth > x->rank)
    return wl_fail(r, WL_INVALID_ARGUMENT, "indices of length %d for shape %S", (int64_t)depth, x);
  for (int d = 0; d < indices->rank - 1; d++) dims[rank++] = indices->dims[d];
  for (int d = depth; d < x->rank; d++) dims[rank++] = x->dims[d];
  if (rank > WL_MAX_RANK) return wl_fail(r, WL_INVALID_ARGUMENT, "its result has a rank above 8");
  return wl_set_shape(r, wl_out(r, op, 0), rank, dims);
}

static wl_status compute_nd(wl_interpreter *r, wl_op *op) {
  const wl_tensor *x = wl_in(r, op, 0), *indices = wl_in(r, op, 1);
  int depth = indices->dims[indices->rank - 1];
  int64_t count = wl_product(indices->dims, 0, indices->rank - 1);
  size_t piece = (size_t)wl_product(x->dims, depth, x->rank) * wl_type_size(x->dtype);
  uint8_t *out = wl_out(r, op, 0)->data;
  for (int64_t i = 0; i < count; i++, out += piece) {
    int64_t at = 0;
    for (int d = 0; d < depth; d++) {
      int64_t index = wl_index(indices, i * depth + d);
      if (index < 0 || index >= x->dims[d])
        return wl_fail(r, WL_INVALID_ARGUMENT, "index %d is not below %d", index, (int64_t)x->dims[d]);
      at = at * x->dims[d] + index;
    }
    memcpy(out, x->data + (size_t)at * piece, piece);
  }
  return WL_OK;
}

const wl_kernel wl_op_GatherNd = {"GatherNd", check, shape_nd, compute_nd, WL_ANY, 2, 2, 1, 0, 0};

static wl_status check_hot(wl_interpreter *r, wl_op *op) {
  const wl_tensor *on = wl_in(r, op, 2), *off = wl_in(r, op, 3);
  WL_TRY(wl_expect_same_type(r, on, off, "the off value"));
  if (on->rank || off->rank) return wl_fail(r, WL_DATA_LOSS, "on and off must be single values");
  return wl_expect_same_type(r, on, wl_out(r, op, 0), "the result");
}

static wl_status shape_hot(wl_interpreter *r, wl_op *op) {
  const wl_tensor *indices = wl_in(r, op, 0);
  int64_t depth, dims[WL_MAX_RANK + 1];
  int axis;
  WL_TRY(wl_read_int(r, wl_in(r, op, 1), "the depth", &depth));
  WL_TRY(wl_axis(r, wl_int(r, op, WL_AXIS_AXIS), indices->rank + 1, &axis));
  for (int d = 0; d <= indices->rank; d++)
    dims[d] = d < axis ? indices->dims[d] : d == axis ? depth : indices->dims[d - 1];
  op->memo[OUTER] = wl_product(indices->dims, 0, axis);
  op->memo[INNER] = wl_product(indices->dims, axis, indices->rank);
  op->memo[SIZE] = depth;
  return wl_set_shape(r, wl_out(r, op, 0), indices->rank + 1, dims);
}

static wl_status compute_hot(wl_interpreter *r, wl_op *op) {
  const wl_tensor *indices = wl_in(r, op, 0);
  wl_tensor *out = wl_out(r, op, 0);
  size_t size = wl_type_size(out->dtype);
  int64_t inner = op->memo[INNER], depth = op->memo[SIZE];
  for (size_t i = 0; i < out->bytes; i += size) memcpy(out->data + i, wl_in(r, op, 3)->data, size);
  for (int64_t o = 0; o < op->memo[OUTER]; o++)
    for (int64_t i = 0; i < inner; i++) {
      int64_t index = wl_index(indices, o * inner + i);
      if (index < 0 || index >= depth) continue;
      memcpy(out->data + (size_t)((o * depth + index) * inner + i) * size, wl_in(r, op, 2)->data, size);
    }
  return WL_OK;
}

const wl_kernel wl_op_OneHot = {"OneHot", check_hot, shape_hot, compute_hot, WL_TYPE(INT32) | WL_TYPE(INT64), 4, 4, 1, 1 + WL_TABLE_AXIS_OPTIONS, 0};

/* ---------------------------------------------------------------- ReverseSequence */

enum { ALONG, LENGTHS }; /* memo: the axes that are reversed and that have a length each */

static wl_status shape_reverse(wl_interpreter *r, wl_op *op) {
  const wl_tensor *x = wl_in(r, op, 0), *lengths = wl_in(r, op, 1);
  int along, batch;
  WL_TRY(wl_axis(r, wl_int(r, op, WL_AXIS_AXIS), x->rank, &along));
  WL_TRY(wl_axis(r, wl_int(r, op, WL_AXIS_BATCH_DIMS), x->rank, &batch));
  if (along == batch || lengths->rank != 1 || lengths->dims[0] != x->dims[batch])
    return wl_fail(r, WL_INVALID_ARGUMENT, "lengths of shape %S are not for shape %S", lengths, x);
  op->memo[ALONG] = along;
  op->memo[LENGTHS] = batch;
  return wl_set_shape_of(r, wl_out(r, op, 0), x);
}

static wl_status compute_reverse(wl_interpreter *r, wl_op *op) {
  const wl_tensor *x = wl_in(r, op, 0), *lengths = wl_in(r, op, 1);
  int along = (int)op->memo[ALONG], batch = (int)op->memo[LENGTHS], last = along > batch ? along : batch;
  int64_t size = x->dims[along], pieces = wl_product(x->dims, 0, last + 1);
  int64_t step = wl_product(x->dims, along + 1, last + 1), every = wl_product(x->dims, batch + 1, last + 1);
  size_t piece = (size_t)wl_product(x->dims, last + 1, x->rank) * wl_type_size(x->dtype);
  for (int64_t i = 0; i < pieces; i++) {
    int64_t at = i / step % size, length = wl_index(lengths, i / every % x->dims[batch]);
    if (length < 0 || length > size)
      return wl_fail(r, WL_INVALID_ARGUMENT, "length %d is not 0 to %d", length, size);
    int64_t from = at < length ? i + (length - 1 - 2 * at) * step : i;
    memcpy(wl_out(r, op, 0)->data + (size_t)i * piece, x->data + (size_t)from * piece, piece);
  }
  return WL_OK;
}

const wl_kernel wl_op_ReverseSequence = {"ReverseSequence", check, shape_reverse, compute_reverse, WL_ANY, 2, 2, 1,
                                         1 + WL_TABLE_AXIS_OPTIONS, 0};
