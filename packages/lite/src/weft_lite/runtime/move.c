/* Ops that move elements by strides: Transpose, slices, pads, tiles, blocks. */
#include "move.h"

static wl_status check_same(wl_interpreter *r, wl_op *op) {
  WL_TRY(wl_expect_same_type(r, wl_in(r, op, 0), wl_out(r, op, 0), "the result"));
  return WL_OK;
}

/* ---------------------------------------------------------------- transpose */

static wl_status shape_transpose(wl_interpreter *r, wl_op *op) {
  const wl_tensor *x = wl_in(r, op, 0);
  int64_t order[WL_MAX_RANK], dims[WL_MAX_RANK];
  int count;
  unsigned seen = 0;
  WL_TRY(wl_read_ints(r, wl_in(r, op, 1), "the permutation", WL_MAX_RANK, order, &count));
  for (int d = 0; d < count; d++) {
    int axis;
    WL_TRY(wl_axis(r, order[d], x->rank, &axis));
    seen |= 1u << axis;
    dims[d] = x->dims[axis];
    op->memo[d] = axis;
  }
  if (count != x->rank || seen != (1u << count) - 1)
    return wl_fail(r, WL_INVALID_ARGUMENT, "its permutation is not one of the axes of shape %S", x);
  return wl_set_shape(r, wl_out(r, op, 0), count, dims);
}

static wl_status compute_transpose(wl_interpreter *r, wl_op *op) {
  const wl_tensor *x = wl_in(r, op, 0);
  int64_t steps[WL_MAX_RANK];
  wl_view v = {0};
  wl_steps(x, steps);
  for (int d = 0; d < x->rank; d++) wl_add_loop(&v, x->dims[op->memo[d]], steps[op->memo[d]]);
  wl_move_into(&v, x->data, wl_out(r, op, 0));
  return WL_OK;
}

const wl_kernel wl_op_Transpose = {"Transpose", check_same, shape_transpose, compute_transpose,
                                   WL_ANY, 2, 2, 1, 0, 0};

/* ---------------------------------------------------------------- slices */

static wl_status shape_slice(wl_interpreter *r, wl_op *op) {
  const wl_tensor *x = wl_in(r, op, 0);
  int64_t begin[WL_MAX_RANK], size[WL_MAX_RANK];
  int begins, sizes;
  WL_TRY(wl_read_ints(r, wl_in(r, op, 1), "begin", WL_MAX_RANK, begin, &begins));
  WL_TRY(wl_read_ints(r, wl_in(r, op, 2), "size", WL_MAX_RANK, size, &sizes));
  if (begins != x->rank || sizes != x->rank)
    return wl_fail(r, WL_INVALID_ARGUMENT, "begin and size need one entry for each axis of %S", x);
  for (int d = 0; d < x->rank; d++) {
    if (begin[d] < 0 || begin[d] > x->dims[d])
      return wl_fail(r, WL_INVALID_ARGUMENT, "begin %d is not in shape %S", begin[d], x);
    if (size[d] == -1) size[d] = x->dims[d] - begin[d];
    if (size[d] < 0 || size[d] > x->dims[d] - begin[d])
      return wl_fail(r, WL_INVALID_ARGUMENT, "size %d is not in shape %S", size[d], x);
    op->memo[d] = begin[d];
  }
  return wl_set_shape(r, wl_out(r, op, 0), x->rank, size);
}

static wl_status compute_slice(wl_interpreter *r, wl_op *op) {
  const wl_tensor *x = wl_in(r, op, 0);
  wl_tensor *out = wl_out(r, op, 0);
  int64_t steps[WL_MAX_RANK], start = 0;
  wl_view v = {0};
  if (!out->bytes) return WL_OK;
  wl_steps(x, steps);
  for (int d = 0; d < x->rank; d++) {
    start += op->memo[d] * steps[d];
    wl_add_loop(&v, out->dims[d], steps[d]);
  }
  wl_move_into(&v, x->data + start, out);
  return WL_OK;
}

const wl_kernel wl_op_Slice = {"Slice", check_same, shape_slice, compute_slice, WL_ANY, 3, 3, 1, 0, 0};

/* One axis of StridedSlice: Python's slices, or an index. */
typedef struct slice {
  int64_t begin, step, count;
} slice;

typedef struct strided {
  int depth, rank; /* entries of v, and of the result's shape */
  int64_t start;   /* in bytes */
  wl_view v;
  int64_t dims[WL_LOOPS];
} strided;

static int64_t limited(int64_t value, int64_t low, int64_t high) {
  return value < low ? low : value > high ? high : value;
}

static wl_status slice_of(wl_interpreter *r, int64_t size, int64_t begin, int64_t end, int64_t step,
                          bool no_begin, bool no_end, bool index, slice *found) {
  if (step == 0) return wl_fail(r, WL_INVALID_ARGUMENT, "a stride is 0");
  if (index) {
    int64_t at = begin < 0 ? begin + size : begin;
    if (at < 0 || at >= size || step < 0)
      return wl_fail(r, WL_INVALID_ARGUMENT, "index %d is not below %d", begin, size);
    *found = (slice){at, 1, 1};
    return WL_OK;
  }
  int64_t low = step > 0 ? 0 : -1, high = step > 0 ? size : size - 1;
  int64_t first = no_begin ? (step > 0 ? low : high) : limited(begin < 0 ? begin + size : begin, low, high);
  int64_t last = no_end ? (step > 0 ? high : low) : limited(end < 0 ? end + size : end, low, high);
  if (step > size) step = size + 1; /* one element at most, and no overflow below */
  if (step < -size) step = -size - 1;
  int64_t count = step > 0 ? (last - first + step - 1) / step : (first - last - step - 1) / -step;
  *found = (slice){first, step, count < 0 ? 0 : count};
  return WL_OK;
}

static wl_status strided_slice(wl_interpreter *r, const wl_op *op, strided *s) {
  const wl_tensor *x = wl_in(r, op, 0);
  int64_t value[3][WL_MAX_RANK * 2], steps[WL_MAX_RANK];
  int count[3];
  static const char *const names[] = {"begin", "end", "strides"};
  for (int i = 0; i < 3; i++)
    WL_TRY(wl_read_ints(r, wl_in(r, op, (uint32_t)i + 1), names[i], WL_LOOPS, value[i], &count[i]));
  if (count[0] != count[1] || count[0] != count[2])
    return wl_fail(r, WL_INVALID_ARGUMENT, "begin, end and strides have other lengths");
  unsigned mask[5];
  for (unsigned i = 0; i < 5; i++) mask[i] = (unsigned)wl_int(r, op, WL_STRIDED_SLICE_BEGIN_MASK + i);
  wl_steps(x, steps);
  int axis = 0, axes = 0;
  unsigned ellipses = mask[2] & ((1u << count[0]) - 1);
  if (ellipses & (ellipses - 1)) return wl_fail(r, WL_INVALID_ARGUMENT, "it has two ellipses");
  for (int i = 0; i < count[0]; i++) axes += !((mask[2] | mask[3]) >> i & 1);
  for (int i = 0; i <= count[0]; i++) {
    if (s->rank + x->rank > WL_LOOPS)
      return wl_fail(r, WL_INVALID_ARGUMENT, "its result has a rank above 8");
    if (i == count[0] ? !ellipses : ellipses >> i & 1) { /* all axes that are not indexed */
      for (int left = x->rank - axes; left > 0; left--, axis++) {
        wl_add_loop(&s->v, x->dims[axis], steps[axis]);
        s->dims[s->rank++] = x->dims[axis];
      }
      continue;
    }
    if (i == count[0]) break;
    if (mask[3] >> i & 1) {
      s->dims[s->rank++] = 1;
      continue;
    }
    if (axis >= x->rank)
      return wl_fail(r, WL_INVALID_ARGUMENT, "it has more entries than shape %S has axes", x);
    slice one;
    WL_TRY(slice_of(r, x->dims[axis], value[0][i], value[1][i], value[2][i], mask[0] >> i & 1,
                    mask[1] >> i & 1, mask[4] >> i & 1, &one));
    s->start += one.begin * steps[axis];
    wl_add_loop(&s->v, one.count, one.step * steps[axis]);
    if (!(mask[4] >> i & 1)) s->dims[s->rank++] = one.count;
    axis++;
  }
  if (s->rank > WL_MAX_RANK) return wl_fail(r, WL_INVALID_ARGUMENT, "its result has a rank above 8");
  return WL_OK;
}

static wl_status shape_strided(wl_interpreter *r, wl_op *op) {
  strided s = {0};
  WL_TRY(strided_slice(r, op, &s));
  return wl_set_shape(r, wl_out(r, op, 0), s.rank, s.dims);
}

static wl_status compute_strided(wl_interpreter *r, wl_op *op) {
  strided s = {0};
  WL_TRY(strided_slice(r, op, &s));
  if (wl_out(r, op, 0)->bytes) wl_move_into(&s.v, wl_in(r, op, 0)->data + s.start, wl_out(r, op, 0));
  return WL_OK;
}

const wl_kernel wl_op_StridedSlice = {"StridedSlice", check_same, shape_strided, compute_strided,
                                      WL_ANY, 4, 4, 1, 1 + WL_TABLE_STRIDED_SLICE_OPTIONS, 0};

static wl_status shape_reverse(wl_interpreter *r, wl_op *op) {
  const wl_tensor *x = wl_in(r, op, 0);
  int64_t axes[WL_MAX_RANK];
  int count, axis;
  WL_TRY(wl_read_ints(r, wl_in(r, op, 1), "axes", WL_MAX_RANK, axes, &count));
  op->memo[0] = 0;
  for (int i = 0; i < count; i++) {
    WL_TRY(wl_axis(r, axes[i], x->rank, &axis));
    op->memo[0] |= 1 << axis;
  }
  return wl_set_shape_of(r, wl_out(r, op, 0), x);
}

static wl_status compute_reverse(wl_interpreter *r, wl_op *op) {
  const wl_tensor *x = wl_in(r, op, 0);
  int64_t steps[WL_MAX_RANK], start = 0;
  wl_view v = {0};
  if (!x->bytes) return WL_OK;
  wl_steps(x, steps);
  for (int d = 0; d < x->rank; d++) {
    bool turned = op->memo[0] >> d & 1;
    if (turned) start += (x->dims[d] - 1) * steps[d];
    wl_add_loop(&v, x->dims[d], turned ? -steps[d] : steps[d]);
  }
  wl_move_into(&v, x->data + start, wl_out(r, op, 0));
  return WL_OK;
}

const wl_kernel wl_op_Reverse = {"Reverse", check_same, shape_reverse, compute_reverse, WL_ANY, 2, 2, 1, 0, 0};

/* ---------------------------------------------------------------- repeating */

static wl_status shape_tile(wl_interpreter *r, wl_op *op) {
  const wl_tensor *x = wl_in(r, op, 0);
  int64_t times[WL_MAX_RANK], dims[WL_MAX_RANK];
  int count;
  WL_TRY(wl_read_ints(r, wl_in(r, op, 1), "multiples", WL_MAX_RANK, times, &count));
  if (count != x->rank)
    return wl_fail(r, WL_INVALID_ARGUMENT, "there are %d multiples for shape %S", (int64_t)count, x);
  for (int d = 0; d < count; d++) {
    op->memo[d] = times[d];
    if (times[d] < 0 || !wl_multiply(times[d], x->dims[d], &dims[d]))
      return wl_fail(r, WL_INVALID_ARGUMENT, "multiple %d is not possible", times[d]);
  }
  return wl_set_shape(r, wl_out(r, op, 0), count, dims);
}

static wl_status compute_tile(wl_interpreter *r, wl_op *op) {
  const wl_tensor *x = wl_in(r, op, 0);
  int64_t steps[WL_MAX_RANK];
  wl_view v = {0};
  wl_steps(x, steps);
  for (int d = 0; d < x->rank; d++) {
    wl_add_loop(&v, op->memo[d], 0);
    wl_add_loop(&v, x->dims[d], steps[d]);
  }
  wl_move_into(&v, x->data, wl_out(r, op, 0));
  return WL_OK;
}

const wl_kernel wl_op_Tile = {"Tile", check_same, shape_tile, compute_tile, WL_ANY, 2, 2, 1, 0, 0};

static wl_status shape_broadcast_to(wl_interpreter *r, wl_op *op) {
  const wl_tensor *x = wl_in(r, op, 0);
  int64_t dims[WL_MAX_RANK];
  int rank;
  WL_TRY(wl_read_ints(r, wl_in(r, op, 1), "the shape", WL_MAX_RANK, dims, &rank));
  for (int d = rank - 1, e = x->rank - 1; e >= 0; d--, e--)
    if (d < 0 || (x->dims[e] != dims[d] && x->dims[e] != 1))
      return wl_fail(r, WL_INVALID_ARGUMENT, "shape %S does not broadcast to what is asked for", x);
  return wl_set_shape(r, wl_out(r, op, 0), rank, dims);
}

static wl_status compute_broadcast_to(wl_interpreter *r, wl_op *op) {
  const wl_tensor *x = wl_in(r, op, 0);
  wl_tensor *out = wl_out(r, op, 0);
  int64_t steps[WL_MAX_RANK];
  wl_view v = {0};
  wl_steps(x, steps);
  for (int d = 0; d < out->rank; d++) {
    int e = d - (out->rank - x->rank);
    wl_add_loop(&v, out->dims[d], e < 0 || x->dims[e] == 1 ? 0 : steps[e]);
  }
  wl_move_into(&v, x->data, out);
  return WL_OK;
}

const wl_kernel wl_op_BroadcastTo = {"BroadcastTo", check_same, shape_broadcast_to,
                                     compute_broadcast_to, WL_ANY, 2, 2, 1, 0, 0};

/* ---------------------------------------------------------------- pads */

/* Pairs of an operand of shape (axes, 2); at most `axes` of them. */
static wl_status read_pairs(wl_interpreter *r, const wl_tensor *t, const char *what, int axes,
                            int64_t (*pairs)[2]) {
  if (t->rank != 2 || t->dims[0] != axes || t->dims[1] != 2)
    return wl_fail(r, WL_INVALID_ARGUMENT, "%s has shape %S, not (%d, 2)", what, t, (int64_t)axes);
  wl_tensor flat = *t;
  flat.rank = 1;
  flat.dims[0] = 2 * axes;
  int count;
  return wl_read_ints(r, &flat, what, 2 * WL_MAX_RANK, &pairs[0][0], &count);
}

static wl_status shape_pad(wl_interpreter *r, wl_op *op) {
  const wl_tensor *x = wl_in(r, op, 0), *value = wl_in(r, op, 2);
  int64_t pads[WL_MAX_RANK][2], dims[WL_MAX_RANK];
  if (value && !value->bytes) return wl_fail(r, WL_INVALID_ARGUMENT, "the value is empty");
  WL_TRY(read_pairs(r, wl_in(r, op, 1), "paddings", x->rank, pads));
  bool mirror = op->kind == WL_OP_MirrorPad;
  int edge = mirror && wl_byte(r, op, WL_PAD_MODE) == WL_PAD_MODE_REFLECT;
  for (int d = 0; d < x->rank; d++) {
    if (pads[d][0] < 0 || pads[d][1] < 0 || pads[d][0] > INT32_MAX || pads[d][1] > INT32_MAX)
      return wl_fail(r, WL_INVALID_ARGUMENT, "a padding is negative or too large");
    if (mirror && (pads[d][0] > x->dims[d] - edge || pads[d][1] > x->dims[d] - edge))
      return wl_fail(r, WL_INVALID_ARGUMENT, "a padding is larger than what it mirrors of %S", x);
    dims[d] = x->dims[d] + pads[d][0] + pads[d][1];
    op->memo[d] = pads[d][0];
  }
  return wl_set_shape(r, wl_out(r, op, 0), x->rank, dims);
}

static wl_status check_pad(wl_interpreter *r, wl_op *op) {
  const wl_tensor *value = wl_in(r, op, 2);
  WL_TRY(check_same(r, op));
  if (op->kind == WL_OP_MirrorPad && wl_byte(r, op, WL_PAD_MODE) != WL_PAD_MODE_REFLECT &&
      wl_byte(r, op, WL_PAD_MODE) != WL_PAD_MODE_SYMMETRIC)
    return wl_fail(r, WL_DATA_LOSS, "its mode is unknown");
  if (!value) return WL_OK;
  return wl_expect_same_type(r, wl_in(r, op, 0), value, "the value");
}

/* Repeat an element: what is there is copied behind itself, so that few copies are needed. */
static void fill_with(uint8_t *to, size_t bytes, const uint8_t *element, size_t size) {
  if (bytes) memcpy(to, element, size);
  for (size_t done = size; done < bytes; done *= 2)
    memcpy(to + done, to, bytes - done < done ? bytes - done : done);
}

static wl_status compute_pad(wl_interpreter *r, wl_op *op) {
  const wl_tensor *x = wl_in(r, op, 0), *value = wl_in(r, op, 2);
  wl_tensor *out = wl_out(r, op, 0);
  size_t size = wl_type_size(x->dtype);
  uint8_t zero[8] = {0};
  if (size == 1 && x->zero_point_count) zero[0] = (uint8_t)x->zero_points[0];
  const uint8_t *fill = value ? value->data : zero;
  fill_with(out->data, out->bytes, fill, size);
  int64_t steps[WL_MAX_RANK], start = 0;
  if (!x->bytes) return WL_OK;
  wl_view v = {.depth = x->rank, .size = size};
  wl_steps(x, v.from_step);
  wl_steps(out, steps);
  for (int d = 0; d < x->rank; d++) {
    v.dims[d] = x->dims[d];
    v.to_step[d] = steps[d];
    start += op->memo[d] * steps[d];
  }
  wl_move(&v, x->data, out->data + start);
  return WL_OK;
}

const wl_kernel wl_op_Pad = {"Pad", check_pad, shape_pad, compute_pad, WL_ANY, 2, 3, 1, 0, 0};

/* Where index `i` of the result is along an axis of the operand. */
static int64_t mirrored(int64_t i, int64_t before, int64_t n, int edge) {
  int64_t k = i - before;
  if (k < 0) k = -k - 1 + edge;
  return k < n ? k : 2 * n - 1 - k - edge;
}

/* Rows along the last axis: their middle is a row of the operand. */
static wl_status compute_mirror(wl_interpreter *r, wl_op *op) {
  const wl_tensor *x = wl_in(r, op, 0);
  wl_tensor *out = wl_out(r, op, 0);
  size_t size = wl_type_size(x->dtype);
  int edge = wl_byte(r, op, WL_PAD_MODE) == WL_PAD_MODE_REFLECT, last = out->rank - 1;
  int64_t steps[WL_MAX_RANK], total = wl_elements(out);
  if (last < 0) memcpy(out->data, x->data, size);
  if (last < 0 || !total) return WL_OK;
  wl_steps(x, steps);
  int64_t width = out->dims[last], before = op->memo[last], n = x->dims[last];
  uint8_t *to = out->data;
  for (int64_t row = 0; row < total / width; row++, to += (size_t)width * size) {
    int64_t rest = row, at = 0;
    for (int d = last - 1; d >= 0; d--) {
      at += mirrored(rest % out->dims[d], op->memo[d], x->dims[d], edge) * steps[d];
      rest /= out->dims[d];
    }
    const uint8_t *from = x->data + at;
    memcpy(to + (size_t)before * size, from, (size_t)n * size);
    for (int64_t i = before ? 0 : n; i < width; i = i + 1 == before ? before + n : i + 1)
      memcpy(to + (size_t)i * size, from + (size_t)mirrored(i, before, n, edge) * size, size);
  }
  return WL_OK;
}

const wl_kernel wl_op_MirrorPad = {"MirrorPad", check_pad, shape_pad, compute_mirror, WL_ANY, 2, 2, 1,
                                   1 + WL_TABLE_PAD_OPTIONS, 0};

/* ---------------------------------------------------------------- blocks */

static wl_status shape_block(wl_interpreter *r, wl_op *op) {
  const wl_tensor *x = wl_in(r, op, 0);
  int64_t b = wl_int(r, op, WL_BLOCK_BLOCK);
  WL_TRY(wl_expect_rank(r, x, "operand 0", 4, 4));
  bool apart = op->kind == WL_OP_DepthToSpace;
  if (b < 1 || b > 1 << 12 ||
      (apart ? x->dims[3] % (b * b) != 0 : x->dims[1] % b != 0 || x->dims[2] % b != 0))
    return wl_fail(r, WL_INVALID_ARGUMENT, "blocks of %d do not divide shape %S", b, x);
  int64_t dims[4] = {x->dims[0], apart ? x->dims[1] * b : x->dims[1] / b,
                     apart ? x->dims[2] * b : x->dims[2] / b,
                     apart ? x->dims[3] / (b * b) : x->dims[3] * b * b};
  return wl_set_shape(r, wl_out(r, op, 0), 4, dims);
}

static wl_status compute_block(wl_interpreter *r, wl_op *op) {
  const wl_tensor *x = wl_in(r, op, 0);
  wl_tensor *out = wl_out(r, op, 0);
  int64_t b = wl_int(r, op, WL_BLOCK_BLOCK), s[4];
  wl_view v = {0};
  wl_steps(x, s);
  wl_add_loop(&v, x->dims[0], s[0]);
  if (op->kind == WL_OP_SpaceToDepth) {
    wl_add_loop(&v, x->dims[1] / b, s[1] * b);
    wl_add_loop(&v, x->dims[2] / b, s[2] * b);
    wl_add_loop(&v, b, s[1]);
    wl_add_loop(&v, b, s[2]);
    wl_add_loop(&v, x->dims[3], s[3]);
  } else {
    int64_t depth = out->dims[3];
    wl_add_loop(&v, x->dims[1], s[1]);
    wl_add_loop(&v, b, depth * b * s[3]);
    wl_add_loop(&v, x->dims[2], s[2]);
    wl_add_loop(&v, b, depth * s[3]);
    wl_add_loop(&v, depth, s[3]);
  }
  wl_move_into(&v, x->data, out);
  return WL_OK;
}

const wl_kernel wl_op_SpaceToDepth = {"SpaceToDepth", check_same, shape_block, compute_block, WL_ANY, 1, 1, 1, 1 + WL_TABLE_BLOCK_OPTIONS, 0};
const wl_kernel wl_op_DepthToSpace = {"DepthToSpace", check_same, shape_block, compute_block, WL_ANY, 1, 1, 1, 1 + WL_TABLE_BLOCK_OPTIONS, 0};

enum { BLOCKS = 3 }; /* axes that SpaceToBatchNd cuts at most */

typedef struct blocks {
  int count;
  int64_t size[WL_MAX_RANK], pads[WL_MAX_RANK][2], product;
} blocks;

static wl_status read_blocks(wl_interpreter *r, const wl_op *op, blocks *b) {
  const wl_tensor *x = wl_in(r, op, 0);
  WL_TRY(wl_read_ints(r, wl_in(r, op, 1), "the block shape", BLOCKS, b->size, &b->count));
  WL_TRY(wl_expect_rank(r, x, "operand 0", 1 + b->count, WL_MAX_RANK));
  WL_TRY(read_pairs(r, wl_in(r, op, 2), "paddings or crops", b->count, b->pads));
  b->product = 1;
  for (int i = 0; i < b->count; i++)
    if (b->size[i] < 1 || b->pads[i][0] < 0 || b->pads[i][1] < 0 || b->size[i] > 1 << 16 ||
        b->pads[i][0] > INT32_MAX || b->pads[i][1] > INT32_MAX ||
        !wl_multiply(b->product, b->size[i], &b->product))
      return wl_fail(r, WL_INVALID_ARGUMENT, "a block, padding or crop is not possible");
  return WL_OK;
}

static wl_status shape_batch(wl_interpreter *r, wl_op *op) {
  const wl_tensor *x = wl_in(r, op, 0);
  blocks b = {0};
  int64_t dims[WL_MAX_RANK];
  WL_TRY(read_blocks(r, op, &b));
  bool apart = op->kind == WL_OP_BatchToSpaceNd;
  for (int d = 0; d < x->rank; d++) dims[d] = x->dims[d];
  for (int i = 0; i < b.count; i++) {
    int64_t n = x->dims[i + 1], edge = b.pads[i][0] + b.pads[i][1];
    if (apart ? n * b.size[i] < edge : (n + edge) % b.size[i] != 0)
      return wl_fail(r, WL_INVALID_ARGUMENT, "blocks of %d do not fit shape %S", b.size[i], x);
    dims[i + 1] = apart ? n * b.size[i] - edge : (n + edge) / b.size[i];
  }
  if (apart && dims[0] % b.product)
    return wl_fail(r, WL_INVALID_ARGUMENT, "%d blocks do not divide shape %S", b.product, x);
  if (apart) dims[0] /= b.product;
  else if (!wl_multiply(dims[0], b.product, &dims[0]))
    return wl_fail(r, WL_INVALID_ARGUMENT, "%d blocks of shape %S are not possible", b.product, x);
  return wl_set_shape(r, wl_out(r, op, 0), x->rank, dims);
}

/* Pixel by pixel of the larger image: which block it is in, and where that is in the batch. */
static wl_status compute_batch(wl_interpreter *r, wl_op *op) {
  wl_tensor *x = wl_in(r, op, 0), *out = wl_out(r, op, 0);
  blocks b = {0};
  WL_TRY(read_blocks(r, op, &b));
  bool apart = op->kind == WL_OP_BatchToSpaceNd;
  wl_tensor *image = apart ? out : x, *batch = apart ? x : out;
  size_t size = wl_type_size(x->dtype) * (size_t)wl_product(x->dims, b.count + 1, x->rank);
  int64_t pixels = wl_product(image->dims, 0, b.count + 1);
  if (!apart) {
    uint8_t fill = wl_type_size(x->dtype) == 1 && x->zero_point_count ? (uint8_t)x->zero_points[0] : 0;
    memset(out->data, fill, out->bytes);
  }
  for (int64_t p = 0; p < pixels && size; p++) {
    int64_t rest = p, index[BLOCKS + 1], block = 0;
    for (int i = b.count; i > 0; i--) {
      index[i] = rest % image->dims[i] + b.pads[i - 1][0];
      rest /= image->dims[i];
    }
    for (int i = 1; i <= b.count; i++) block = block * b.size[i - 1] + index[i] % b.size[i - 1];
    int64_t at = block * image->dims[0] + rest;
    for (int i = 1; i <= b.count; i++) at = at * batch->dims[i] + index[i] / b.size[i - 1];
    uint8_t *one = image->data + (size_t)p * size, *other = batch->data + (size_t)at * size;
    memcpy(apart ? one : other, apart ? other : one, size);
  }
  return WL_OK;
}

const wl_kernel wl_op_SpaceToBatchNd = {"SpaceToBatchNd", check_same, shape_batch, compute_batch, WL_ANY, 3, 3, 1, 0, 0};
const wl_kernel wl_op_BatchToSpaceNd = {"BatchToSpaceNd", check_same, shape_batch, compute_batch, WL_ANY, 3, 3, 1, 0, 0};
