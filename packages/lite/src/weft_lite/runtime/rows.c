/* Elements along the first axis: SetRows, which arrays that loops fill are written with. */
#include "runtime.h"

static wl_status check_rows(wl_interpreter *r, wl_op *op) {
  WL_TRY(wl_expect_type(r, wl_in(r, op, 1), "the indices", WL_TYPE(INT32) | WL_TYPE(INT64)));
  WL_TRY(wl_expect_same_type(r, wl_in(r, op, 0), wl_in(r, op, 2), "operand 2"));
  return wl_expect_same_type(r, wl_in(r, op, 0), wl_out(r, op, 0), "the result");
}

/* How many elements the result has; an array that grows has as many as the last index wants. */
static wl_status rows_of(wl_interpreter *r, const wl_op *op, int64_t *count) {
  const wl_tensor *array = wl_in(r, op, 0), *indices = wl_in(r, op, 1);
  *count = array->dims[0];
  if (!wl_byte(r, op, WL_ROWS_GROWS)) return WL_OK;
  if (r->planning && !indices->known) return WL_LATER;
  for (int64_t i = 0; i < wl_elements(indices); i++)
    if (wl_index(indices, i) >= *count && wl_index(indices, i) < INT32_MAX)
      *count = wl_index(indices, i) + 1;
  return WL_OK;
}

/* Elements of size 0 are not known yet: the first that is written says how large they are. */
static wl_status shape_rows(wl_interpreter *r, wl_op *op) {
  const wl_tensor *array = wl_in(r, op, 0), *indices = wl_in(r, op, 1), *rows = wl_in(r, op, 2);
  int64_t dims[WL_MAX_RANK];
  WL_TRY(wl_expect_rank(r, array, "operand 0", 1, WL_MAX_RANK));
  WL_TRY(wl_expect_rank(r, indices, "the indices", 0, 1));
  const int32_t *element = rows->dims + indices->rank;
  bool fits = rows->rank == array->rank - 1 + indices->rank &&
              (!indices->rank || rows->dims[0] == indices->dims[0]);
  bool unknown = wl_product(array->dims, 1, array->rank) == 0;
  for (int d = 1; fits && d < array->rank; d++) {
    fits = unknown || element[d - 1] == array->dims[d];
    dims[d] = element[d - 1];
  }
  if (!fits)
    return wl_fail(r, WL_INVALID_ARGUMENT, "elements of shape %S are not those of shape %S", rows, array);
  WL_TRY(rows_of(r, op, &dims[0]));
  return wl_set_shape(r, wl_out(r, op, 0), array->rank, dims);
}

static wl_status compute_rows(wl_interpreter *r, wl_op *op) {
  const wl_tensor *array = wl_in(r, op, 0), *indices = wl_in(r, op, 1), *rows = wl_in(r, op, 2);
  wl_tensor *out = wl_out(r, op, 0);
  int64_t count = wl_elements(indices), size = out->dims[0];
  size_t piece = (size_t)wl_product(out->dims, 1, out->rank) * wl_type_size(out->dtype);
  for (int64_t i = 0; i < count; i++) {
    int64_t index = wl_index(indices, i);
    if (index < 0 || index >= size)
      return wl_fail(r, WL_INVALID_ARGUMENT, "index %d is not below %d", index, size);
  }
  bool fits = wl_product(array->dims, 1, array->rank) == wl_product(out->dims, 1, out->rank);
  size_t kept = fits ? array->bytes : 0;
  if (array->data != out->data) memcpy(out->data, array->data, kept);
  memset(out->data + kept, 0, out->bytes - kept);
  for (int64_t i = 0; i < count; i++) {
    int64_t index = wl_index(indices, i);
    if (index >= 0 && index < size) /* as above, unless a view of them was written to meanwhile */
      memmove(out->data + (size_t)index * piece, rows->data + (size_t)i * piece, piece);
  }
  return WL_OK;
}

const wl_kernel wl_op_SetRows = {"SetRows", check_rows, shape_rows, compute_rows, WL_ANY, 3, 3, 1,
                                 1 + WL_TABLE_ROWS_OPTIONS, 1};
