/* Runs a file once and writes the result of every op outside subgraphs, on any machine:
 *   record MODEL INPUTS OUT
 * INPUTS has the bytes of all inputs, one after the other. OUT has, for each tensor, the number of
 * the op, the number of the tensor, the size in bytes, the rank and 8 sizes, each as int64, and the
 * bytes; then a row of -1, and the status and text of an error. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "weft_lite.h"

enum { HEADER = 12, ALIGNMENT = 64, MOST_RESULTS = 64 };

typedef struct state {
  wl_interpreter *interpreter;
  FILE *out;
  int depth, failed;
} state;

static void *allocate(size_t size) {
  return aligned_alloc(ALIGNMENT, (size + ALIGNMENT) / ALIGNMENT * ALIGNMENT);
}

static unsigned char *read_file(const char *name, size_t *size) {
  FILE *file = fopen(name, "rb");
  if (!file || fseek(file, 0, SEEK_END)) return NULL;
  long end = ftell(file);
  unsigned char *data = end < 0 ? NULL : allocate((size_t)end);
  rewind(file);
  *size = data ? fread(data, 1, (size_t)end, file) : 0;
  fclose(file);
  return data && *size == (size_t)end ? data : NULL;
}

static void write_row(state *s, const int64_t *row) {
  if (fwrite(row, sizeof *row, HEADER, s->out) != HEADER) s->failed = 1;
}

static void write_tensor(state *s, uint32_t op, int32_t tensor) {
  wl_info info;
  if (tensor < 0 || wl_tensor_info(s->interpreter, (uint32_t)tensor, &info)) return;
  int64_t row[HEADER] = {op, tensor, (int64_t)info.bytes, info.rank};
  for (int d = 0; d < info.rank; d++) row[4 + d] = info.dims[d];
  write_row(s, row);
  void *data = wl_data(s->interpreter, (uint32_t)tensor);
  if (info.bytes && fwrite(data, 1, info.bytes, s->out) != info.bytes) s->failed = 1;
}

static void watch(void *context, uint32_t op, int ended) {
  state *s = context;
  s->depth += ended ? -1 : 1;
  if (!ended || s->depth) return;
  int32_t tensors[MOST_RESULTS];
  uint32_t count = wl_op_tensors(s->interpreter, op, 1, tensors, MOST_RESULTS);
  for (uint32_t i = 0; i < count && i < MOST_RESULTS; i++) write_tensor(s, op, tensors[i]);
}

static wl_status run(state *s, const unsigned char *file, size_t size, const char *inputs,
                     wl_error *error) {
  size_t bytes;
  wl_status status = wl_query(file, size, NULL, &bytes, error);
  if (status) return status;
  void *memory = allocate(bytes);
  if (!memory) return WL_RESOURCE_EXHAUSTED;
  status = wl_open(file, size, memory, bytes, NULL, &s->interpreter, error);
  if (status) return status;
  FILE *values = fopen(inputs, "rb");
  if (!values) return WL_INVALID_ARGUMENT;
  for (uint32_t i = 0; i < wl_input_count(s->interpreter); i++) {
    wl_info info;
    uint32_t tensor = wl_input(s->interpreter, i);
    wl_tensor_info(s->interpreter, tensor, &info);
    if (fread(wl_data(s->interpreter, tensor), 1, info.bytes, values) != info.bytes)
      return WL_OUT_OF_RANGE;
  }
  fclose(values);
  wl_watch(s->interpreter, watch, s);
  return wl_invoke(s->interpreter, error);
}

int main(int count, char **names) {
  size_t size = 0;
  unsigned char *file = count == 4 ? read_file(names[1], &size) : NULL;
  state s = {.out = file ? fopen(names[3], "wb") : NULL};
  if (!s.out) return 2;
  wl_error error = {.text = ""};
  wl_status status = run(&s, file, size, names[2], &error);
  int64_t end[HEADER] = {-1, -1, sizeof error.text, status};
  write_row(&s, end);
  if (fwrite(error.text, 1, sizeof error.text, s.out) != sizeof error.text) s.failed = 1;
  return fclose(s.out) || s.failed ? 3 : 0;
}
