/* Shapes, joining and cutting, and values made of shapes. */
#include "move.h"

static wl_status check_same(wl_interpreter *r, wl_op *op) {
  return wl_expect_same_type(r, wl_in(r, op, 0), wl_out(r, op, 0), "the result");
}

static wl_status compute_copy(wl_interpreter *r, wl_op *op) {
  const wl_tensor *x = wl_in(r, op, 0);
  wl_tensor *out = wl_out(r, op, 0);
  if (out->data != x->data) memmove(out->data, x->data, out->bytes);
  return WL_OK;
}

/* ---------------------------------------------------------------- the same elements, another shape */

static wl_status shape_reshape(wl_interpreter *r, wl_op *op) {
  const wl_tensor *x = wl_in(r, op, 0);
  int64_t dims[WL_MAX_RANK], known = 1, total = wl_elements(x);
  int rank, open = -1;
  WL_TRY(wl_read_ints(r, wl_in(r, op, 1), "the shape", WL_MAX_RANK, dims, &rank));
  for (int d = 0; d < rank; d++) {
    if (dims[d] == -1 && open < 0) open = d;
    else if (!wl_multiply(known, dims[d], &known))
      return wl_fail(r, WL_INVALID_ARGUMENT, "size %d of a shape is not possible", dims[d]);
  }
  if (open >= 0) dims[open] = known ? total / known : 0;
  if (open >= 0 ? known * dims[open] != total : known != total)
    return wl_fail(r, WL_INVALID_ARGUMENT, "shape %S has another number of elements than is asked for", x);
  return wl_set_shape(r, wl_out(r, op, 0), rank, dims);
}

const wl_kernel wl_op_Reshape = {"Reshape", check_same, shape_reshape, compute_copy, WL_ANY, 2, 2, 1, 0, 1};

static wl_status shape_expand(wl_interpreter *r, wl_op *op) {
  const wl_tensor *x = wl_in(r, op, 0);
  int64_t axis, dims[WL_MAX_RANK + 1];
  int at;
  WL_TRY(wl_read_int(r, wl_in(r, op, 1), "the axis", &axis));
  WL_TRY(wl_axis(r, axis, x->rank + 1, &at));
  for (int d = 0; d <= x->rank; d++) dims[d] = d < at ? x->dims[d] : d == at ? 1 : x->dims[d - 1];
  return wl_set_shape(r, wl_out(r, op, 0), x->rank + 1, dims);
}

const wl_kernel wl_op_ExpandDims = {"ExpandDims", check_same, shape_expand, compute_copy, WL_ANY, 2, 2, 1, 0, 1};

/* The result's declared rank says how many go; those of size 1 that operand 1 names, or all. */
static wl_status shape_squeeze(wl_interpreter *r, wl_op *op) {
  const wl_tensor *x = wl_in(r, op, 0);
  int64_t axes[WL_MAX_RANK], dims[WL_MAX_RANK];
  int count = 0, rank = 0, axis;
  unsigned gone = 0;
  if (wl_in(r, op, 1)) WL_TRY(wl_read_ints(r, wl_in(r, op, 1), "axes", WL_MAX_RANK, axes, &count));
  for (int i = 0; i < count; i++) {
    WL_TRY(wl_axis(r, axes[i], x->rank, &axis));
    if (x->dims[axis] != 1)
      return wl_fail(r, WL_INVALID_ARGUMENT, "axis %d of shape %S has not size 1", axes[i], x);
    gone |= 1u << axis;
  }
  for (int d = 0; d < x->rank; d++)
    if (count ? !(gone >> d & 1) : x->dims[d] != 1) dims[rank++] = x->dims[d];
  return wl_set_shape(r, wl_out(r, op, 0), rank, dims);
}

const wl_kernel wl_op_Squeeze = {"Squeeze", check_same, shape_squeeze, compute_copy, WL_ANY, 1, 2, 1, 0, 1};

static wl_status shape_copy(wl_interpreter *r, wl_op *op) {
  return wl_set_shape_of(r, wl_out(r, op, 0), wl_in(r, op, 0));
}

const wl_kernel wl_op_Copy = {"Copy", check_same, shape_copy, compute_copy, WL_ANY, 1, 1, 1, 0, 1};

/* ---------------------------------------------------------------- joining */

static wl_status check_join(wl_interpreter *r, wl_op *op) {
  const wl_tensor *first = wl_in(r, op, 0), *out = wl_out(r, op, 0);
  WL_TRY(check_same(r, op));
  for (uint32_t i = 1; i < op->input_count; i++) {
    const wl_tensor *t = wl_in(r, op, i);
    if (!t) return wl_fail(r, WL_DATA_LOSS, "operand %d is missing", (int64_t)i);
    WL_TRY(wl_expect_same_type(r, first, t, "an operand"));
    if (t->scales && out->scales && t->scales[0] != out->scales[0])
      return wl_fail(r, WL_DATA_LOSS, "operands and result need the same scale");
  }
  return WL_OK;
}

static wl_status shape_concat(wl_interpreter *r, wl_op *op) {
  const wl_tensor *first = wl_in(r, op, 0);
  int64_t dims[WL_MAX_RANK];
  int axis;
  WL_TRY(wl_axis(r, wl_int(r, op, WL_AXIS_AXIS), first->rank, &axis));
  for (int d = 0; d < first->rank; d++) dims[d] = first->dims[d];
  for (uint32_t i = 1; i < op->input_count; i++) {
    const wl_tensor *t = wl_in(r, op, i);
    bool fits = t->rank == first->rank;
    for (int d = 0; d < first->rank && fits; d++) fits = d == axis || t->dims[d] == first->dims[d];
    if (!fits) return wl_fail(r, WL_INVALID_ARGUMENT, "shapes %S and %S cannot be joined", first, t);
    dims[axis] += t->dims[axis];
  }
  op->memo[0] = axis;
  return wl_set_shape(r, wl_out(r, op, 0), first->rank, dims);
}

/* A piece of each row: elements of `size` bytes. */
static void move_pieces(size_t rows, size_t piece, size_t size, const uint8_t *from, size_t from_row, uint8_t *to,
                        size_t to_row) {
  wl_view v = {.depth = 2, .size = size, .dims = {(int64_t)rows, (int64_t)(piece / size)},
               .from_step = {(int64_t)from_row, (int64_t)size}, .to_step = {(int64_t)to_row, (int64_t)size}};
  wl_move(&v, from, to);
}

/* Pieces of each operand after the other; also of Pack, whose operands have no axis there. */
static wl_status compute_join(wl_interpreter *r, wl_op *op) {
  wl_tensor *out = wl_out(r, op, 0);
  int axis = (int)op->memo[0];
  size_t outer = (size_t)wl_product(out->dims, 0, axis);
  if (!out->bytes) return WL_OK;
  size_t row = out->bytes / outer, at = 0;
  for (uint32_t i = 0; i < op->input_count; i++) {
    const wl_tensor *t = wl_in(r, op, i);
    size_t piece = t->bytes / outer;
    move_pieces(outer, piece, wl_type_size(t->dtype), t->data, piece, out->data + at, row);
    at += piece;
  }
  return WL_OK;
}

const wl_kernel wl_op_Concat = {"Concat", check_join, shape_concat, compute_join, WL_ANY, 1, -1, 1, 1 + WL_TABLE_AXIS_OPTIONS, 0};

static wl_status shape_pack(wl_interpreter *r, wl_op *op) {
  const wl_tensor *first = wl_in(r, op, 0);
  int64_t dims[WL_MAX_RANK + 1];
  int axis;
  WL_TRY(wl_axis(r, wl_int(r, op, WL_AXIS_AXIS), first->rank + 1, &axis));
  for (uint32_t i = 1; i < op->input_count; i++) {
    const wl_tensor *t = wl_in(r, op, i);
    if (t->rank != first->rank || memcmp(t->dims, first->dims, 4 * t->rank) != 0)
      return wl_fail(r, WL_INVALID_ARGUMENT, "shapes %S and %S cannot be packed", first, t);
  }
  for (int d = 0; d <= first->rank; d++)
    dims[d] = d < axis ? first->dims[d] : d == axis ? (int64_t)op->input_count : first->dims[d - 1];
  op->memo[0] = axis;
  return wl_set_shape(r, wl_out(r, op, 0), first->rank + 1, dims);
}

const wl_kernel wl_op_Pack = {"Pack", check_join, shape_pack, compute_join, WL_ANY, 1, -1, 1, 1 + WL_TABLE_AXIS_OPTIONS, 0};

/* ---------------------------------------------------------------- cutting */

static wl_status check_cut(wl_interpreter *r, wl_op *op) {
  if (!op->output_count) return wl_fail(r, WL_DATA_LOSS, "it has no result");
  for (uint32_t i = 0; i < op->output_count; i++)
    WL_TRY(wl_expect_same_type(r, wl_in(r, op, 0), wl_out(r, op, i), "a result"));
  return WL_OK;
}

/* Sizes along the axis are those declared by the results, or equal parts; for Unpack, 1. */
static wl_status shape_cut(wl_interpreter *r, wl_op *op) {
  const wl_tensor *x = wl_in(r, op, 0);
  bool unpack = op->kind == WL_OP_Unpack;
  int64_t total = 0;
  int axis;
  WL_TRY(wl_expect_rank(r, x, "operand 0", 1, WL_MAX_RANK));
  WL_TRY(wl_axis(r, wl_int(r, op, WL_AXIS_AXIS), x->rank, &axis));
  for (uint32_t i = 0; i < op->output_count; i++) {
    wl_tensor *out = wl_out(r, op, i);
    int64_t dims[WL_MAX_RANK], size = 1;
    int rank = 0;
    if (!unpack && out->rank != x->rank)
      return wl_fail(r, WL_DATA_LOSS, "a result has another rank than shape %S", x);
    if (!unpack) size = out->declared[axis] >= 0 ? out->declared[axis] : x->dims[axis] / (int64_t)op->output_count;
    for (int d = 0; d < x->rank; d++)
      if (d != axis || !unpack) dims[rank++] = d == axis ? size : x->dims[d];
    total += size;
    WL_TRY(wl_set_shape(r, out, rank, dims));
  }
  if (total != x->dims[axis])
    return wl_fail(r, WL_INVALID_ARGUMENT, "its results have %d of axis %d of shape %S between them",
                   total, (int64_t)axis, x);
  op->memo[0] = axis;
  return WL_OK;
}

static wl_status compute_cut(wl_interpreter *r, wl_op *op) {
  const wl_tensor *x = wl_in(r, op, 0);
  size_t outer = (size_t)wl_product(x->dims, 0, (int)op->memo[0]), at = 0;
  if (!x->bytes) return WL_OK;
  size_t row = x->bytes / outer;
  for (uint32_t i = 0; i < op->output_count; i++) {
    wl_tensor *out = wl_out(r, op, i);
    size_t piece = out->bytes / outer;
    move_pieces(outer, piece, wl_type_size(x->dtype), x->data + at, row, out->data, piece);
    at += piece;
  }
  return WL_OK;
}

const wl_kernel wl_op_Split = {"Split", check_cut, shape_cut, compute_cut, WL_ANY, 1, 1, -1, 1 + WL_TABLE_AXIS_OPTIONS, 0};
const wl_kernel wl_op_Unpack = {"Unpack", check_cut, shape_cut, compute_cut, WL_ANY, 1, 1, -1, 1 + WL_TABLE_AXIS_OPTIONS, 0};

/* ---------------------------------------------------------------- values */

static wl_status check_shape_op(wl_interpreter *r, wl_op *op) {
  return wl_expect_type(r, wl_out(r, op, 0), "the result", WL_TYPE(INT32) | WL_TYPE(INT64));
}

static wl_status shape_shape(wl_interpreter *r, wl_op *op) {
  int64_t rank = wl_in(r, op, 0)->rank;
  return wl_set_shape(r, wl_out(r, op, 0), 1, &rank);
}

static void put_int(wl_tensor *t, int64_t i, int64_t value) {
  if (t->dtype == WL_TYPE_INT32) ((int32_t *)(void *)t->data)[i] = (int32_t)value;
  else ((int64_t *)(void *)t->data)[i] = value;
}

static wl_status compute_shape(wl_interpreter *r, wl_op *op) {
  const wl_tensor *x = wl_in(r, op, 0);
  for (int d = 0; d < x->rank; d++) put_int(wl_out(r, op, 0), d, x->dims[d]);
  return WL_OK;
}

const wl_kernel wl_op_Shape = {"Shape", check_shape_op, shape_shape, compute_shape, WL_ANY, 1, 1, 1, 0, 0};

static wl_status check_fill(wl_interpreter *r, wl_op *op) {
  const wl_tensor *value = wl_in(r, op, 1);
  WL_TRY(wl_expect_same_type(r, value, wl_out(r, op, 0), "the result"));
  return value->rank == 0 ? WL_OK : wl_fail(r, WL_DATA_LOSS, "the value has shape %S", value);
}

static wl_status shape_fill(wl_interpreter *r, wl_op *op) {
  int64_t dims[WL_MAX_RANK];
  int rank;
  WL_TRY(wl_read_ints(r, wl_in(r, op, 0), "the shape", WL_MAX_RANK, dims, &rank));
  return wl_set_shape(r, wl_out(r, op, 0), rank, dims);
}

static wl_status compute_fill(wl_interpreter *r, wl_op *op) {
  wl_tensor *out = wl_out(r, op, 0);
  size_t size = wl_type_size(out->dtype);
  for (size_t i = 0; i < out->bytes; i += size) memcpy(out->data + i, wl_in(r, op, 1)->data, size);
  return WL_OK;
}

const wl_kernel wl_op_Fill = {"Fill", check_fill, shape_fill, compute_fill, WL_TYPE(INT32) | WL_TYPE(INT64), 2, 2, 1, 0, 0};

static wl_status check_range(wl_interpreter *r, wl_op *op) {
  for (uint32_t i = 1; i < 3; i++)
    WL_TRY(wl_expect_same_type(r, wl_in(r, op, 0), wl_in(r, op, i), "an operand"));
  for (uint32_t i = 0; i < 3; i++)
    if (wl_in(r, op, i)->rank) return wl_fail(r, WL_DATA_LOSS, "its operands must be single numbers");
  return check_same(r, op);
}

static wl_status shape_range(wl_interpreter *r, wl_op *op) {
  int64_t count;
  if (r->planning)
    for (uint32_t i = 0; i < 3; i++)
      if (!wl_in(r, op, i)->known) return WL_LATER;
  if (wl_in(r, op, 0)->dtype == WL_TYPE_FLOAT32) {
    float v[3];
    for (uint32_t i = 0; i < 3; i++) memcpy(&v[i], wl_in(r, op, i)->data, 4);
    float steps = ceilf((v[1] - v[0]) / v[2]);
    if (!(steps < 0x1p31f)) return wl_fail(r, WL_INVALID_ARGUMENT, "its range does not end");
    count = steps > 0 ? (int64_t)steps : 0;
  } else {
    int64_t v[3];
    for (uint32_t i = 0; i < 3; i++) WL_TRY(wl_read_int(r, wl_in(r, op, i), "an operand", &v[i]));
    if (v[2] == 0) return wl_fail(r, WL_INVALID_ARGUMENT, "its step is 0");
    bool up = v[2] > 0, empty = up ? v[1] <= v[0] : v[1] >= v[0];
    uint64_t span = up ? (uint64_t)v[1] - (uint64_t)v[0] : (uint64_t)v[0] - (uint64_t)v[1];
    uint64_t steps = empty ? 0 : (span - 1) / (up ? (uint64_t)v[2] : 0 - (uint64_t)v[2]) + 1;
    if (steps > INT32_MAX) return wl_fail(r, WL_INVALID_ARGUMENT, "its range is too long");
    count = (int64_t)steps;
  }
  return wl_set_shape(r, wl_out(r, op, 0), 1, &count);
}

static wl_status compute_range(wl_interpreter *r, wl_op *op) {
  wl_tensor *out = wl_out(r, op, 0);
  int64_t n = out->dims[0], start, step;
  if (out->dtype == WL_TYPE_FLOAT32) {
    float from, by;
    memcpy(&from, wl_in(r, op, 0)->data, 4);
    memcpy(&by, wl_in(r, op, 2)->data, 4);
    for (int64_t i = 0; i < n; i++) ((float *)(void *)out->data)[i] = from + (float)i * by;
    return WL_OK;
  }
  WL_TRY(wl_read_int(r, wl_in(r, op, 0), "start", &start));
  WL_TRY(wl_read_int(r, wl_in(r, op, 2), "delta", &step));
  for (int64_t i = 0; i < n; i++)
    put_int(out, i, (int64_t)((uint64_t)start + (uint64_t)i * (uint64_t)step));
  return WL_OK;
}

const wl_kernel wl_op_Range = {"Range", check_range, shape_range, compute_range, WL_NUMBERS, 3, 3, 1, 0, 0};
