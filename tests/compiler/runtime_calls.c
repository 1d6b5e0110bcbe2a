/* Calls of the runtime's object code from C, with stand-ins for Python: prints "ok" if all are right. */
#include "runtime.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void require(bool condition, const char *text) {
  if (condition) return;
  printf("failed: %s\n", text);
  exit(1);
}

static int num_saved;
static weft_object none, not_implemented, number;
static long long last_number;

void *PyEval_SaveThread(void) { return num_saved++, &num_saved; }
void PyEval_RestoreThread(void *thread) { require(thread == &num_saved, "the thread state"); }
void Py_IncRef(weft_object *object) { object->num_references++; }
weft_object *PyLong_FromLongLong(long long value) {
  last_number = value;
  return &number;
}

enum { READINGS_SIZE = 1024 };
static weft_object item, *items[] = {&item, &item, &item};
static struct {
  weft_object object;
  int64_t size;
  weft_object **items;
} list = {.items = items};
static void *exported;
static int64_t exported_size;

weft_object *PyType_GenericAlloc(weft_object *type, int64_t num_items) {
  int64_t *result = calloc(1, READINGS_SIZE);
  result[1] = (int64_t)(intptr_t)type, result[2] = num_items;
  return (weft_object *)result;
}
void PyObject_Free(void *object) { free(object); }
int32_t PyBuffer_FillInfo(void *view, weft_object *object, void *data, int64_t size, int32_t readonly, int32_t flags) {
  require(view == &exported && object && readonly && flags == 7, "a buffer");
  return exported = data, exported_size = size, 0;
}
void Py_DecRef(weft_object *object) { object->num_references--; }

/* ---------------------------------------------------------------- loops */

enum { SIZE = 1000, NUM_LOOPS = 300 };

static int32_t count(void *context, int64_t thread, int64_t low, int64_t high) {
  require(0 <= thread && thread < 4, "a number of a thread");
  for (int64_t i = low; i < high; i++) ((int *)context)[i]++;
  return 0;
}

static int32_t fail(void *context, int64_t thread, int64_t low, int64_t high) {
  (void)context, (void)thread;
  return low <= 500 && 500 < high ? 5 : 0;
}

static void call_loops(void) {
  static int runs[SIZE];
  for (int i = 0; i < NUM_LOOPS; i++) {
    weft_begin_program(4);
    require(weft_parallel_for(count, runs, SIZE, 3, 4, 4) == 0, "a loop");
    weft_end_program();
  }
  for (int i = 0; i < SIZE; i++) require(runs[i] == NUM_LOOPS, "each iteration runs once");
  require(weft_parallel_for(fail, NULL, SIZE, 1, 4, 4) == 5, "the error of a loop");
}

/* ---------------------------------------------------------------- programs */

static int32_t add(void **buffers, char *arena, int32_t *interrupt, void *times, int64_t num_threads) {
  (void)interrupt, (void)times;
  const float *x = buffers[0], *y = buffers[1];
  require(num_threads == 2, "the number of threads");
  if (arena) memcpy(arena, x, sizeof *x);
  ((float *)buffers[2])[0] = *x + *y;
  return *y < 0 ? 3 : 0;
}

static int32_t interrupted(void **buffers, char *arena, int32_t *interrupt, void *times, int64_t num_threads) {
  (void)buffers, (void)arena, (void)interrupt, (void)times, (void)num_threads;
  return -1;
}

static void call_sequence(void) {
  static char arena[128];
  weft_program *nests[] = {add, interrupted};
  float x = 1, y = 2, z = 0, c = 10;
  void *buffers[] = {&x, &y, &z}, *constants[] = {&c};
  const int64_t calls[] = {0, 0, 64, 3, -1, -2, 32, 0, 7, 64, 3, 32, -4, -3};
  weft_sequence sequence = {calls, 14, nests, constants, 3, 3};
  require(weft_run_sequence(&sequence, buffers, arena, NULL, NULL, 2) == 0, "a sequence");
  require(z == 13 && *(float *)(void *)(arena + 64) == 3, "the results of a sequence");
  c = -1;
  require(weft_run_sequence(&sequence, buffers, arena, NULL, NULL, 2) == 3 + 7, "the number of a check");
  nests[0] = interrupted;
  require(weft_run_sequence(&sequence, buffers, arena, NULL, NULL, 2) == -1, "the error of a sequence");
}

static weft_arena_slot slots[WEFT_ARENA_SLOTS];

static void call_arena(void) {
  static char memory[256];
  require(weft_claim_arena(slots, 1) == NULL, "no slot has memory");
  require(weft_replace_arena(&slots[3], memory, 256) == 1, "a slot that is free");
  require(weft_claim_arena(slots, 257) == NULL, "no slot is large enough");
  require(weft_claim_arena(slots, 256) == &slots[3], "the slot that is large enough");
  require(weft_claim_arena(slots, 256) == NULL, "a slot is claimed once");
  require(weft_replace_arena(&slots[3], memory, 1) == 0 && slots[3].size == 256, "a slot that is in use");
  weft_release_arena(&slots[3]);
}

/* ---------------------------------------------------------------- calls from Python */

static void call_entry(void) {
  static int array_type, scalar_type, dtype, other;
  struct {
    weft_program_state state;
    weft_buffer x, y, z;
    int64_t size;
  } program = {
      .state = {add, 2, slots, 0, 2, 0, &array_type, NULL, NULL, &not_implemented, &none, 3},
      .y = {&dtype, {1}, 0, &scalar_type},
      .z = {&dtype, {3}, 1, NULL},
      .size = 4,
  };
  float x = 5, z[4];
  struct {
    weft_object object;
    float value;
  } y = {{0, &scalar_type}, 2};
  program.x.constant = (char *)&x;
  int64_t size = 4;
  weft_array self = {.data = (char *)&program};
  weft_array out = {{0, &array_type}, (char *)z, 1, &size, NULL, NULL, &dtype, 7};
  weft_object *arguments[] = {&y.object, &out.object};
#define CALL(n) weft_enter(&self.object, arguments, n)
  require(CALL(2) == &none && z[0] == 7 && num_saved == 0, "a call");
  require(CALL(1) == &not_implemented, "the number of arguments");
  program.state.releases_gil = 1;
  program.state.arena_size = 256;
  require(CALL(2) == &none && num_saved == 1, "a call without the lock");
  require(!slots[3].in_use && *(float *)(void *)slots[3].memory == 5, "the arena of a call");
  y.value = -2;
  require(CALL(2) == &number && last_number == 3 && !slots[3].in_use, "the number of a check");
  slots[3].in_use = 1;
  require(CALL(2) == &number && last_number == WEFT_BUSY, "no arena");
  slots[3].in_use = 0;
#define REFUSED(change, undo) (change, require(CALL(2) == &not_implemented, #change), undo)
  REFUSED(size = 3, size = 4);
  REFUSED(out.rank = 2, out.rank = 1);
  REFUSED(out.flags = 5, out.flags = 7);
  REFUSED(out.dtype = &other, out.dtype = &dtype);
  REFUSED(out.object.type = &scalar_type, out.object.type = &array_type);
  REFUSED(y.object.type = &other, y.object.type = &scalar_type);
  require(CALL(2) == &number, "a call after those that were refused");
}

/* ---------------------------------------------------------------- readings of the clock */

weft_object *weft_begin_readings(weft_object *, weft_object **, int64_t);
weft_object *weft_next_reading(weft_object *);
weft_object *weft_fail_readings(weft_object *, weft_object **, int64_t);
int64_t weft_num_readings(weft_object *);
int32_t weft_export_readings(weft_object *, void *, int32_t);
void weft_free_readings(weft_object *);

static void call_readings(void) {
  static weft_object type;
  weft_object *arguments[] = {&list.object};
  list.size = 3;
  weft_object *readings = weft_begin_readings(&type, arguments, 1);
  require(list.object.num_references == 1, "a reference to the list");
  for (int i = 0; i < 3; i++) require(weft_next_reading(readings) == &item, "an item");
  require(!weft_next_reading(readings) && !weft_next_reading(readings), "the end of the list");
  require(item.num_references == 3 && weft_num_readings(readings) == 4, "a reading more than items");
  require(!weft_export_readings(readings, &exported, 7) && exported_size == 32, "the readings");
  const int64_t *times = exported;
  for (int i = 0; i < 3; i++) require(times[i] <= times[i + 1], "times in order");
  weft_free_readings(readings);
  require(!list.object.num_references && type.num_references == -1, "references of readings");

  readings = weft_begin_readings(&type, arguments, 1);
  weft_next_reading(readings);
  weft_next_reading(readings);
  list.size = 0; /* cleared by another thread */
  require(!weft_next_reading(readings) && weft_num_readings(readings) == 3, "a list that was cleared");
  weft_free_readings(readings);

  list.size = 1;
  readings = weft_begin_readings(&type, arguments, 1);
  weft_next_reading(readings);
  weft_object *failed[] = {readings};
  require(weft_fail_readings(&none, failed, 1) == &none && weft_fail_readings(&none, failed, 1), "failures");
  require(!weft_export_readings(readings, &exported, 7) && exported_size == 24, "the readings of a failure");
  require(((const int64_t *)exported)[2] == -1 && !weft_next_reading(readings), "the mark of a failure");
  weft_free_readings(readings);
}

int main(void) {
  weft_reset_threads();
  call_loops();
  call_sequence();
  call_arena();
  call_entry();
  call_readings();
  weft_stop_threads();
  puts("ok");
  return 0;
}
