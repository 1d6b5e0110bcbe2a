/* Verifies the graph and the plan of its memory: values are made before they are read, subgraphs are
 * called once, and no two tensors that are alive at once share bytes.
 *
 * A clock ticks at each op, at its end once more if it calls subgraphs. A tensor is alive from one tick
 * to another; a sweep over the ticks keeps the live tensors in a set, ordered by offset, and a new
 * one must fit between its neighbors. */
#include "runtime.h"

enum { NEVER = UINT32_MAX, DEPTH = 16 };

typedef struct tensor_plan {
  uint32_t first, last; /* ticks */
  uint32_t owner;       /* the subgraph that makes it */
  uint32_t next;        /* of those with the same last tick */
  uint32_t rank;        /* by offset */
} tensor_plan;

typedef struct subgraph_plan {
  uint32_t table, caller, depth;
} subgraph_plan;

typedef struct planner {
  wl_interpreter *r;
  wl_error *error;
  tensor_plan *tensors;
  subgraph_plan *subgraphs;
  uint32_t *order;   /* tensors by offset */
  uint32_t *ends;    /* by tick: the first tensor that dies there */
  uint64_t *bits[6]; /* by rank: whether it is alive; each level tells which words below are not 0 */
  uint32_t clock, ticks;
  uint32_t calls[DEPTH]; /* the ops that are open, outermost first; at depth d of its subgraph */
  uint32_t inside[DEPTH];
} planner;

static uint32_t most_ticks(uint32_t ops) { return 2 * ops + 3; }

static size_t words(size_t n) { return (n + 63) / 64; }

uint64_t wl_plan_memory(uint32_t tensors, uint32_t ops, uint32_t subgraphs) {
  uint64_t bytes = sizeof(tensor_plan) * (uint64_t)tensors +
                   sizeof(subgraph_plan) * (uint64_t)subgraphs +
                   4 * ((uint64_t)tensors + most_ticks(ops)) + 16;
  for (size_t n = tensors; n > 1; n = words(n)) bytes += 8 * words(n);
  return bytes + 64;
}

static void lay_out(planner *p, uint8_t *memory) {
  wl_interpreter *r = p->r;
  size_t n = r->tensor_count;
  memset(p->bits, 0, sizeof p->bits);
  for (int level = 0; n > 1; level++) {
    n = words(n);
    p->bits[level] = (uint64_t *)(void *)memory;
    memset(memory, 0, 8 * n);
    memory += 8 * n;
  }
  p->tensors = (tensor_plan *)(void *)memory;
  p->subgraphs = (subgraph_plan *)(void *)(p->tensors + r->tensor_count);
  p->order = (uint32_t *)(void *)(p->subgraphs + r->subgraph_count);
  p->ends = p->order + r->tensor_count;
}

#define REFUSE(...) wl_refuse(p->error, WL_DATA_LOSS, __VA_ARGS__)

/* ---------------------------------------------------------------- the set of live tensors */

static void insert(planner *p, uint32_t rank) {
  for (int level = 0; level < 6 && p->bits[level]; level++, rank /= 64)
    p->bits[level][rank / 64] |= 1ull << rank % 64;
}

static void take_out(planner *p, uint32_t rank) {
  for (int level = 0; level < 6 && p->bits[level]; level++, rank /= 64) {
    p->bits[level][rank / 64] &= ~(1ull << rank % 64);
    if (p->bits[level][rank / 64]) return;
  }
}

static bool is_in(const planner *p, uint32_t rank) {
  return p->bits[0] && (p->bits[0][rank / 64] >> rank % 64 & 1);
}

static uint32_t lowest(uint64_t word) { return (uint32_t)__builtin_ctzll(word); }
static uint32_t highest(uint64_t word) { return 63 - (uint32_t)__builtin_clzll(word); }

/* The nearest member above (`up`) or below a rank, or NEVER. */
static uint32_t neighbor(const planner *p, uint32_t rank, bool up) {
  int level = 0;
  for (; level < 6 && p->bits[level]; level++, rank /= 64) {
    uint32_t bit = rank % 64;
    uint64_t mask = up ? (bit == 63 ? 0 : ~0ull << (bit + 1)) : (1ull << bit) - 1;
    uint64_t word = p->bits[level][rank / 64] & mask;
    if (!word) continue;
    rank = rank / 64 * 64 + (up ? lowest(word) : highest(word));
    while (level-- > 0) {
      word = p->bits[level][rank];
      rank = rank * 64 + (up ? lowest(word) : highest(word));
    }
    return rank;
  }
  return NEVER;
}

/* ---------------------------------------------------------------- times */

static bool in_arena(const wl_tensor *t) { return t->storage != WL_STORAGE_CONSTANT && t->capacity; }

static wl_status check_number(planner *p, int32_t tensor) {
  if (tensor < 0 || (uint32_t)tensor >= p->r->tensor_count)
    return REFUSE("there is no tensor %d; there are %d", (int64_t)tensor,
                  (int64_t)p->r->tensor_count);
  return WL_OK;
}

static wl_status make(planner *p, int32_t number, uint32_t subgraph) {
  WL_TRY(check_number(p, number));
  tensor_plan *t = &p->tensors[number];
  if (p->r->tensors[number].storage != WL_STORAGE_ARENA)
    return REFUSE("tensor %d is made by an op, but it is a constant or a variable", (int64_t)number);
  if (t->first != NEVER) return REFUSE("tensor %d is made twice", (int64_t)number);
  t->first = t->last = p->clock;
  t->owner = subgraph;
  return WL_OK;
}

static wl_status read_at(planner *p, int32_t number, uint32_t subgraph, uint32_t tick) {
  WL_TRY(check_number(p, number));
  tensor_plan *t = &p->tensors[number];
  if (t->first == NEVER || t->first > p->clock)
    return REFUSE("tensor %d is read before it is made", (int64_t)number);
  if (t->owner == NEVER) return WL_OK; /* constants and variables */
  uint32_t depth = p->subgraphs[t->owner].depth;
  if (depth > p->subgraphs[subgraph].depth || p->inside[depth] != t->owner)
    return REFUSE("tensor %d is read outside of the subgraph that makes it", (int64_t)number);
  for (uint32_t d = depth; d < p->subgraphs[subgraph].depth; d++) {
    const wl_op *call = &p->r->ops[p->calls[d]];
    if (call->kind == WL_OP_While) { /* the next turn reads it again */
      if (call->end > tick) tick = call->end;
      break;
    }
  }
  if (tick > t->last) t->last = tick;
  return WL_OK;
}

static int called(const planner *p, const wl_op *op, uint32_t found[2]) {
  if (op->kind != WL_OP_If && op->kind != WL_OP_While) return 0;
  const uint8_t *m = p->r->metadata;
  found[0] = (uint32_t)wl_number(m, op->options, WL_IF_THEN_SUBGRAPH, 4);
  found[1] = (uint32_t)wl_number(m, op->options, WL_IF_ELSE_SUBGRAPH, 4);
  return 2;
}

static const int32_t *list(const planner *p, uint32_t subgraph, unsigned slot, uint32_t *count) {
  const uint8_t *m = p->r->metadata;
  uint32_t vector = wl_follow(m, p->subgraphs[subgraph].table, slot);
  *count = wl_length(m, vector);
  return wl_ints(m, vector);
}

static void range_of(const planner *p, uint32_t subgraph, uint32_t *begin, uint32_t *end) {
  uint32_t table = p->subgraphs[subgraph].table;
  *begin = (uint32_t)wl_number(p->r->metadata, table, WL_SUBGRAPH_FIRST_OP, 4);
  *end = *begin + (uint32_t)wl_number(p->r->metadata, table, WL_SUBGRAPH_OP_COUNT, 4);
}

/* Subgraphs follow each other in the list of ops, and each is called once, by one before it. */
static wl_status check_calls(planner *p) {
  wl_interpreter *r = p->r;
  uint64_t next = 0;
  for (uint32_t s = 0; s < r->subgraph_count; s++) {
    subgraph_plan *sub = &p->subgraphs[s];
    sub->table = wl_item(r->metadata, r->subgraphs, s);
    sub->caller = NEVER;
    sub->depth = 0;
    uint64_t first = wl_number(r->metadata, sub->table, WL_SUBGRAPH_FIRST_OP, 4);
    if (first != next) return REFUSE("subgraph %d does not begin where the one before ends", (int64_t)s);
    next += wl_number(r->metadata, sub->table, WL_SUBGRAPH_OP_COUNT, 4);
  }
  if (next != r->op_count) return REFUSE("the subgraphs do not have all ops between them");
  for (uint32_t s = 0; s < r->subgraph_count; s++) {
    if (s && p->subgraphs[s].caller == NEVER)
      return REFUSE("subgraph %d is not called", (int64_t)s);
    uint32_t begin, end;
    range_of(p, s, &begin, &end);
    for (uint32_t o = begin; o < end; o++) {
      uint32_t sub[2];
      int count = called(p, &r->ops[o], sub);
      for (int i = 0; i < count; i++) {
        if (sub[i] <= s || sub[i] >= r->subgraph_count || p->subgraphs[sub[i]].caller != NEVER)
          return REFUSE("op %d calls subgraph %d, which is called already, before it or not there",
                        (int64_t)o, (int64_t)sub[i]);
        p->subgraphs[sub[i]].caller = o;
        p->subgraphs[sub[i]].depth = p->subgraphs[s].depth + 1;
        if (p->subgraphs[sub[i]].depth >= DEPTH) return REFUSE("subgraphs are nested too deeply");
      }
    }
  }
  return WL_OK;
}

static void time_ops(planner *p, uint32_t subgraph) {
  uint32_t begin, end;
  range_of(p, subgraph, &begin, &end);
  for (uint32_t o = begin; o < end; o++) {
    wl_op *op = &p->r->ops[o];
    uint32_t sub[2];
    op->begin = op->end = ++p->clock;
    int count = called(p, op, sub);
    for (int i = 0; i < count; i++) time_ops(p, sub[i]);
    if (count) op->end = ++p->clock;
  }
}

static wl_status time_subgraph(planner *p, uint32_t subgraph);

static wl_status time_results(planner *p, uint32_t subgraph, uint32_t tick) {
  uint32_t count;
  const int32_t *results = list(p, subgraph, WL_SUBGRAPH_OUTPUTS, &count);
  for (uint32_t i = 0; i < count; i++) WL_TRY(read_at(p, results[i], subgraph, tick));
  return WL_OK;
}

/* The variables of a loop are live from its beginning to its end, also in its condition. */
static wl_status time_loop(planner *p, wl_op *op, const uint32_t sub[2]) {
  uint32_t count;
  const int32_t *variables = list(p, sub[1], WL_SUBGRAPH_INPUTS, &count);
  for (uint32_t i = 0; i < count; i++) {
    WL_TRY(make(p, variables[i], p->inside[p->subgraphs[sub[0]].depth - 1]));
    p->tensors[variables[i]].last = op->end;
  }
  return WL_OK;
}

static wl_status time_op(planner *p, wl_op *op, uint32_t subgraph) {
  p->clock = op->begin;
  for (uint32_t i = 0; i < op->input_count; i++)
    if (op->inputs[i] != -1) WL_TRY(read_at(p, op->inputs[i], subgraph, op->begin));
  uint32_t sub[2];
  int count = called(p, op, sub);
  if (count) {
    p->calls[p->subgraphs[subgraph].depth] = (uint32_t)(op - p->r->ops);
    if (op->kind == WL_OP_While) WL_TRY(time_loop(p, op, sub));
    for (int i = 0; i < count; i++) {
      WL_TRY(time_subgraph(p, sub[i]));
      p->clock = op->end;
      WL_TRY(time_results(p, sub[i], op->end));
    }
  }
  p->clock = op->end;
  for (uint32_t i = 0; i < op->output_count; i++) WL_TRY(make(p, op->outputs[i], subgraph));
  return WL_OK;
}

static wl_status time_subgraph(planner *p, uint32_t subgraph) {
  p->inside[p->subgraphs[subgraph].depth] = subgraph;
  uint32_t begin, end;
  range_of(p, subgraph, &begin, &end);
  for (uint32_t o = begin; o < end; o++) WL_TRY(time_op(p, &p->r->ops[o], subgraph));
  return WL_OK;
}

static wl_status time_tensors(planner *p) {
  wl_interpreter *r = p->r;
  for (uint32_t i = 0; i < r->tensor_count; i++) {
    bool kept = r->tensors[i].storage != WL_STORAGE_ARENA;
    p->tensors[i] = (tensor_plan){kept ? 0 : NEVER, kept ? p->ticks - 1 : 0, NEVER, NEVER, 0};
  }
  uint32_t count;
  const int32_t *inputs = list(p, 0, WL_SUBGRAPH_INPUTS, &count);
  p->clock = 0;
  for (uint32_t i = 0; i < count; i++) {
    WL_TRY(make(p, inputs[i], 0));
    p->tensors[inputs[i]].last = p->ticks - 1;
  }
  WL_TRY(time_subgraph(p, 0));
  return time_results(p, 0, p->ticks - 1);
}

/* ---------------------------------------------------------------- space */

static bool before(const planner *p, uint32_t a, uint32_t b) {
  const wl_tensor *t = p->r->tensors;
  return t[a].data != t[b].data ? t[a].data < t[b].data : a < b;
}

/* Heapsort: whatever the offsets are, n log n. */
static void sift(planner *p, uint32_t root, uint32_t count) {
  uint32_t *o = p->order;
  for (uint32_t child; (child = 2 * root + 1) < count; root = child) {
    if (child + 1 < count && before(p, o[child], o[child + 1])) child++;
    if (!before(p, o[root], o[child])) return;
    uint32_t swap = o[root];
    o[root] = o[child];
    o[child] = swap;
  }
}

static void sort(planner *p) {
  uint32_t n = p->r->tensor_count;
  for (uint32_t i = 0; i < n; i++) p->order[i] = i;
  for (uint32_t i = n / 2; i-- > 0;) sift(p, i, n);
  for (uint32_t i = n; i-- > 1;) {
    uint32_t swap = p->order[0];
    p->order[0] = p->order[i];
    p->order[i] = swap;
    sift(p, 0, i);
  }
  for (uint32_t i = 0; i < n; i++) p->tensors[p->order[i]].rank = i;
}

static wl_status begin_life(planner *p, uint32_t number) {
  const wl_tensor *t = &p->r->tensors[number];
  if (!in_arena(t)) return WL_OK;
  uint32_t rank = p->tensors[number].rank;
  uint32_t above = neighbor(p, rank, true), below = neighbor(p, rank, false);
  uint32_t other = NEVER;
  if (above != NEVER && t->data + t->capacity > p->r->tensors[p->order[above]].data)
    other = p->order[above];
  if (below != NEVER) {
    const wl_tensor *b = &p->r->tensors[p->order[below]];
    if (b->data + b->capacity > t->data) other = p->order[below];
  }
  if (other != NEVER)
    return REFUSE("the plan puts tensors %d and %d into the same bytes while both are alive",
                  (int64_t)number, (int64_t)other);
  insert(p, rank);
  tensor_plan *plan = &p->tensors[number];
  plan->next = p->ends[plan->last];
  p->ends[plan->last] = number;
  return WL_OK;
}

static void end_lives(planner *p, uint32_t tick) {
  for (uint32_t i = p->ends[tick]; i != NEVER; i = p->tensors[i].next)
    take_out(p, p->tensors[i].rank);
}

/* A dead operand gives its memory to a result at the same offset. */
static void make_room(planner *p, const wl_op *op) {
  const wl_interpreter *r = p->r;
  if (!op->kernel->in_place || op->output_count != 1) return;
  const wl_tensor *result = &r->tensors[op->outputs[0]];
  for (uint32_t i = 0; i < op->input_count && i < op->kernel->in_place; i++) {
    if (op->inputs[i] < 0) continue;
    const wl_tensor *operand = &r->tensors[op->inputs[i]];
    const tensor_plan *plan = &p->tensors[op->inputs[i]];
    if (operand->data == result->data && operand->storage == WL_STORAGE_ARENA &&
        plan->last == op->begin && is_in(p, plan->rank))
      take_out(p, plan->rank);
  }
}

static wl_status sweep(planner *p, uint32_t subgraph) {
  uint32_t begin, end;
  range_of(p, subgraph, &begin, &end);
  for (uint32_t o = begin; o < end; o++) {
    const wl_op *op = &p->r->ops[o];
    uint32_t sub[2], count = 0;
    if (called(p, op, sub)) {
      const int32_t *variables = list(p, sub[1], WL_SUBGRAPH_INPUTS, &count);
      if (op->kind == WL_OP_While)
        for (uint32_t i = 0; i < count; i++) WL_TRY(begin_life(p, (uint32_t)variables[i]));
      end_lives(p, op->begin);
      WL_TRY(sweep(p, sub[0]));
      WL_TRY(sweep(p, sub[1]));
    }
    make_room(p, op);
    for (uint32_t i = 0; i < op->output_count; i++)
      WL_TRY(begin_life(p, (uint32_t)op->outputs[i]));
    end_lives(p, op->end);
  }
  return WL_OK;
}

wl_status wl_check_plan(wl_interpreter *r, void *memory, wl_error *error) {
  planner planned = {.r = r, .error = error, .ticks = most_ticks(r->op_count)};
  planner *p = &planned;
  lay_out(p, memory);
  WL_TRY(check_calls(p));
  time_ops(p, 0);
  WL_TRY(time_tensors(p));
  sort(p);
  for (uint32_t i = 0; i < p->ticks; i++) p->ends[i] = NEVER;
  for (uint32_t i = 0; i < r->tensor_count; i++)
    if (p->tensors[i].first == 0) WL_TRY(begin_life(p, i));
  return sweep(p, 0);
}
