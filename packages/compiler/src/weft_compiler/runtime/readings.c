/* An iterator over a list, which reads the clock before each item and after the last. The loop that runs the
 * nodes of a traced step iterates over their instructions by it. The readings are in the object itself. */
#include "runtime.h"
#include "clock.h"

weft_object *PyType_GenericAlloc(weft_object *, int64_t);
void PyObject_Free(void *);
int32_t PyBuffer_FillInfo(void *, weft_object *, void *, int64_t, int32_t, int32_t);
void Py_IncRef(weft_object *);
void Py_DecRef(weft_object *);

typedef struct weft_list { /* the header of CPython's lists */
  weft_object object;
  int64_t size;
  weft_object **items;
} weft_list;

typedef struct weft_readings {
  weft_object object;
  int64_t capacity;   /* the size of a variable-size object */
  weft_list *items;   /* others may clear it */
  int64_t num_items;  /* returned so far */
  int64_t num_times;
  int64_t is_converted;
  weft_instant begin;
  int64_t times[];
} weft_readings;

enum { FAILED = -1 };

/* Lets readings use the time-stamp counter from now on. */
void weft_use_counter(void) { weft_has_counter = 1; }

int64_t weft_readings_size(void) { return (int64_t)sizeof(weft_readings); }

/* Returns an iterator over a list; `self` is its type. The times have room for an error. */
weft_object *weft_begin_readings(weft_object *self, weft_object **arguments, int64_t num_arguments) {
  (void)num_arguments;
  weft_list *items = (weft_list *)arguments[0];
  weft_readings *readings = (weft_readings *)PyType_GenericAlloc(self, items->size + 2);
  if (!readings) return NULL;
  Py_IncRef(&items->object);
  readings->items = items;
  read_instant(&readings->begin);
  return &readings->object;
}

static inline void convert(weft_readings *readings) {
  if (readings->is_converted) return;
  readings->is_converted = 1;
  convert_ticks(readings->times, readings->num_times, &readings->begin);
}

static inline void add_reading(weft_readings *readings, int64_t time) {
  if (readings->num_times < readings->capacity) readings->times[readings->num_times++] = time;
}

/* Returns the next item, or NULL after the last: then the readings have been converted. */
weft_object *weft_next_reading(weft_object *self) {
  weft_readings *readings = (weft_readings *)self;
  if (readings->is_converted) return NULL;
  add_reading(readings, read_ticks());
  if (readings->num_items < readings->items->size) {
    weft_object *item = readings->items->items[readings->num_items++];
    Py_IncRef(item);
    return item;
  }
  convert(readings);
  return NULL;
}

/* Ends the readings of an execution that has failed. */
weft_object *weft_fail_readings(weft_object *self, weft_object **arguments, int64_t num_arguments) {
  (void)num_arguments;
  weft_readings *readings = (weft_readings *)arguments[0];
  if (!readings->is_converted) {
    add_reading(readings, read_ticks());
    convert(readings);
    add_reading(readings, FAILED);
  }
  Py_IncRef(self);
  return self;
}

int64_t weft_num_readings(weft_object *self) { return ((weft_readings *)self)->num_times; }

/* Exports the readings as bytes. */
int32_t weft_export_readings(weft_object *self, void *view, int32_t flags) {
  weft_readings *readings = (weft_readings *)self;
  return PyBuffer_FillInfo(view, self, readings->times, readings->num_times * (int64_t)sizeof(int64_t), 1, flags);
}

void weft_free_readings(weft_object *self) {
  weft_object *type = self->type;
  Py_DecRef(&((weft_readings *)self)->items->object);
  PyObject_Free(self);
  Py_DecRef(type);
}
