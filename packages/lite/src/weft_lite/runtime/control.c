/* State and control flow: Assign, If, While. */
#include "runtime.h"

static const int32_t *names(wl_interpreter *r, uint32_t subgraph, unsigned slot, uint32_t *count) {
  uint32_t table = wl_item(r->metadata, r->subgraphs, subgraph);
  uint32_t vector = wl_follow(r->metadata, table, slot);
  *count = wl_length(r->metadata, vector);
  return wl_ints(r->metadata, vector);
}

static uint32_t subgraph_of(const wl_interpreter *r, const wl_op *op, unsigned slot) {
  return (uint32_t)wl_int(r, op, slot);
}

wl_status wl_copy_value(wl_interpreter *r, wl_tensor *to, const wl_tensor *from) {
  if (to == from) return WL_OK;
  WL_TRY(wl_set_shape_of(r, to, from));
  if (to->data != from->data) memmove(to->data, from->data, from->bytes);
  return WL_OK;
}

/* ---------------------------------------------------------------- Assign */

static wl_status check_assign(wl_interpreter *r, wl_op *op) {
  const wl_tensor *variable = wl_in(r, op, 0), *value = wl_in(r, op, 1);
  if (variable->storage != WL_STORAGE_VARIABLE)
    return wl_fail(r, WL_DATA_LOSS, "operand 0 is not a variable");
  WL_TRY(wl_expect_same_type(r, variable, wl_out(r, op, 0), "the result"));
  return wl_expect_same_type(r, variable, value, "the value");
}

static wl_status shape_assign(wl_interpreter *r, wl_op *op) {
  const wl_tensor *variable = wl_in(r, op, 0), *value = wl_in(r, op, 1);
  if (variable->rank != value->rank || memcmp(variable->dims, value->dims, 4 * value->rank) != 0)
    return wl_fail(r, WL_INVALID_ARGUMENT, "a variable of shape %S gets a value of shape %S", variable,
                   value);
  return wl_set_shape_of(r, wl_out(r, op, 0), variable);
}

static wl_status compute_assign(wl_interpreter *r, wl_op *op) {
  wl_tensor *variable = wl_in(r, op, 0);
  memmove(variable->data, wl_in(r, op, 1)->data, variable->bytes);
  memmove(wl_out(r, op, 0)->data, variable->data, variable->bytes);
  return WL_OK;
}

const wl_kernel wl_op_Assign = {"Assign", check_assign, shape_assign, compute_assign, WL_ANY, 2, 2, 1, 0, 0};

/* ---------------------------------------------------------------- If */

static wl_status truth(wl_interpreter *r, const wl_tensor *t, bool *found) {
  if (wl_elements(t) != 1) return wl_fail(r, WL_INVALID_ARGUMENT, "a condition has shape %S", t);
  *found = t->data[0] != 0;
  return WL_OK;
}

static wl_status check_results(wl_interpreter *r, wl_op *op, uint32_t subgraph) {
  uint32_t count;
  const int32_t *results = names(r, subgraph, WL_SUBGRAPH_OUTPUTS, &count);
  if (count != op->output_count)
    return wl_fail(r, WL_DATA_LOSS, "subgraph %d has %d results, not %d", (int64_t)subgraph,
                   (int64_t)count, (int64_t)op->output_count);
  for (uint32_t i = 0; i < count; i++)
    WL_TRY(wl_expect_same_type(r, wl_out(r, op, i), &r->tensors[results[i]], "a result of a subgraph"));
  return WL_OK;
}

static wl_status check_if(wl_interpreter *r, wl_op *op) {
  uint32_t count;
  for (unsigned slot = WL_IF_THEN_SUBGRAPH; slot <= WL_IF_ELSE_SUBGRAPH; slot++) {
    names(r, subgraph_of(r, op, slot), WL_SUBGRAPH_INPUTS, &count);
    if (count) return wl_fail(r, WL_DATA_LOSS, "a branch has inputs");
    WL_TRY(check_results(r, op, subgraph_of(r, op, slot)));
  }
  return WL_OK;
}

/* Both branches are planned. Where their results have other shapes, it shows as it runs. */
static wl_status shape_if(wl_interpreter *r, wl_op *op) {
  if (!r->planning) return WL_OK;
  uint32_t then = subgraph_of(r, op, WL_IF_THEN_SUBGRAPH), other = subgraph_of(r, op, WL_IF_ELSE_SUBGRAPH);
  uint32_t count;
  WL_TRY(wl_plan_subgraph(r, then));
  WL_TRY(wl_plan_subgraph(r, other));
  const int32_t *a = names(r, then, WL_SUBGRAPH_OUTPUTS, &count);
  const int32_t *b = names(r, other, WL_SUBGRAPH_OUTPUTS, &count);
  bool same = true;
  for (uint32_t i = 0; i < count; i++) {
    const wl_tensor *x = &r->tensors[a[i]], *y = &r->tensors[b[i]];
    same = same && x->rank == y->rank && memcmp(x->dims, y->dims, 4 * x->rank) == 0;
  }
  if (!same) return WL_LATER;
  for (uint32_t i = 0; i < count; i++) WL_TRY(wl_set_shape_of(r, wl_out(r, op, i), &r->tensors[a[i]]));
  return WL_OK;
}

static wl_status compute_if(wl_interpreter *r, wl_op *op) {
  bool taken;
  WL_TRY(truth(r, wl_in(r, op, 0), &taken));
  uint32_t branch = subgraph_of(r, op, taken ? WL_IF_THEN_SUBGRAPH : WL_IF_ELSE_SUBGRAPH), count;
  WL_TRY(wl_run_subgraph(r, branch));
  const int32_t *results = names(r, branch, WL_SUBGRAPH_OUTPUTS, &count);
  for (uint32_t i = 0; i < count; i++)
    WL_TRY(wl_copy_value(r, wl_out(r, op, i), &r->tensors[results[i]]));
  return WL_OK;
}

const wl_kernel wl_op_If = {"If", check_if, shape_if, compute_if, WL_TYPE(BOOL), 1, 1, -1, 1 + WL_TABLE_IF_OPTIONS, 0};

/* ---------------------------------------------------------------- While */

static wl_status check_while(wl_interpreter *r, wl_op *op) {
  uint32_t cond = subgraph_of(r, op, WL_WHILE_COND_SUBGRAPH), body = subgraph_of(r, op, WL_WHILE_BODY_SUBGRAPH);
  uint32_t variables, results, tests;
  const int32_t *vars = names(r, body, WL_SUBGRAPH_INPUTS, &variables);
  const int32_t *next = names(r, body, WL_SUBGRAPH_OUTPUTS, &results);
  const int32_t *test = names(r, cond, WL_SUBGRAPH_OUTPUTS, &tests);
  if (variables != op->input_count || results != variables || tests != 1)
    return wl_fail(r, WL_DATA_LOSS, "its subgraphs do not fit its %d operands", (int64_t)op->input_count);
  WL_TRY(wl_expect_type(r, &r->tensors[test[0]], "the condition", WL_TYPE(BOOL)));
  WL_TRY(check_results(r, op, body));
  for (uint32_t i = 0; i < variables; i++) {
    if (!wl_in(r, op, i)) return wl_fail(r, WL_DATA_LOSS, "operand %d is missing", (int64_t)i);
    WL_TRY(wl_expect_same_type(r, &r->tensors[vars[i]], wl_in(r, op, i), "a loop variable"));
    WL_TRY(wl_expect_same_type(r, &r->tensors[vars[i]], &r->tensors[next[i]], "a loop variable"));
    for (uint32_t k = 0; k < variables; k++)
      if (k != i && next[i] == vars[k])
        return wl_fail(r, WL_DATA_LOSS, "loop variable %d becomes another one, which may be new already",
                       (int64_t)i);
  }
  return WL_OK;
}

/* Where a turn changes the shape of a variable, shapes are derived as it runs. */
static wl_status shape_while(wl_interpreter *r, wl_op *op) {
  if (!r->planning) return WL_OK;
  uint32_t body = subgraph_of(r, op, WL_WHILE_BODY_SUBGRAPH), count;
  const int32_t *vars = names(r, body, WL_SUBGRAPH_INPUTS, &count);
  const int32_t *next = names(r, body, WL_SUBGRAPH_OUTPUTS, &count);
  bool same = true;
  for (uint32_t i = 0; i < count; i++) WL_TRY(wl_set_shape_of(r, &r->tensors[vars[i]], wl_in(r, op, i)));
  WL_TRY(wl_plan_subgraph(r, subgraph_of(r, op, WL_WHILE_COND_SUBGRAPH)));
  WL_TRY(wl_plan_subgraph(r, body));
  for (uint32_t i = 0; i < count; i++) {
    const wl_tensor *x = &r->tensors[vars[i]], *y = &r->tensors[next[i]];
    same = same && x->rank == y->rank && memcmp(x->dims, y->dims, 4 * x->rank) == 0;
  }
  if (!same) return WL_LATER;
  for (uint32_t i = 0; i < count; i++) WL_TRY(wl_set_shape_of(r, wl_out(r, op, i), wl_in(r, op, i)));
  return WL_OK;
}

static wl_status compute_while(wl_interpreter *r, wl_op *op) {
  uint32_t cond = subgraph_of(r, op, WL_WHILE_COND_SUBGRAPH), body = subgraph_of(r, op, WL_WHILE_BODY_SUBGRAPH);
  uint32_t count, one;
  const int32_t *vars = names(r, body, WL_SUBGRAPH_INPUTS, &count);
  const int32_t *next = names(r, body, WL_SUBGRAPH_OUTPUTS, &count);
  const int32_t *test = names(r, cond, WL_SUBGRAPH_OUTPUTS, &one);
  for (uint32_t i = 0; i < count; i++)
    WL_TRY(wl_copy_value(r, &r->tensors[vars[i]], wl_in(r, op, i)));
  for (;;) {
    bool goes_on;
    WL_TRY(wl_run_subgraph(r, cond));
    WL_TRY(truth(r, &r->tensors[test[0]], &goes_on));
    if (!goes_on) break;
    if (++r->work > r->config.work_limit)
      return wl_fail(r, WL_DEADLINE_EXCEEDED, "the limit of work, %d, is met", (int64_t)r->config.work_limit);
    WL_TRY(wl_run_subgraph(r, body));
    for (uint32_t i = 0; i < count; i++)
      WL_TRY(wl_copy_value(r, &r->tensors[vars[i]], &r->tensors[next[i]]));
  }
  for (uint32_t i = 0; i < count; i++)
    WL_TRY(wl_copy_value(r, wl_out(r, op, i), &r->tensors[vars[i]]));
  return WL_OK;
}

const wl_kernel wl_op_While = {"While", check_while, shape_while, compute_while, 0, 0, -1, -1, 1 + WL_TABLE_WHILE_OPTIONS, 0};
