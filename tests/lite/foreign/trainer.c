/* Trains a converted train step, on whatever machine it was compiled for:
 *   trainer BUNDLE OUT
 * A bundle is the size of a file in 8 bytes, the file, and the inputs of each step, one after the other. After half of
 * the steps the interpreter is opened again, as after a loss of power, and continues from a checkpoint. The first
 * output of each step is written to OUT, then the last checkpoint. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "weft_lite.h"

enum { MOST = 1 << 20, STEPS = 40 };

static _Alignas(64) unsigned char file[MOST];
static _Alignas(64) unsigned char memory[16 * MOST];
static unsigned char checkpoint[MOST];
static wl_error error;

static void require(int is_true) {
  if (is_true) return;
  fprintf(stderr, "%s\n", error.text);
  exit(1);
}

static int read_inputs(wl_interpreter *r, FILE *in) {
  for (uint32_t i = 0; i < wl_input_count(r); i++) {
    wl_info info;
    wl_tensor_info(r, wl_input(r, i), &info);
    if (fread(wl_data(r, wl_input(r, i)), 1, info.bytes, in) != info.bytes) return 0;
  }
  return 1;
}

int main(int count, char **names) {
  FILE *in = count == 3 ? fopen(names[1], "rb") : NULL, *out = in ? fopen(names[2], "wb") : NULL;
  uint64_t size;
  wl_interpreter *r;
  if (!out || fread(&size, 8, 1, in) != 1 || size > MOST || fread(file, 1, size, in) != size) return 2;
  require(!wl_open(file, size, memory, sizeof memory, NULL, &r, &error));
  for (int step = 0; read_inputs(r, in); step++) {
    require(!wl_invoke(r, &error));
    fwrite(wl_data(r, wl_output(r, 0)), 4, 1, out);
    require(wl_checkpoint_bytes(r) <= sizeof checkpoint);
    require(!wl_save_checkpoint(r, checkpoint, sizeof checkpoint, &error));
    if (step != STEPS / 2) continue;
    size_t bytes = wl_checkpoint_bytes(r);
    memset(memory, 0xA5, sizeof memory);
    require(!wl_open(file, size, memory, sizeof memory, NULL, &r, &error));
    require(!wl_restore_checkpoint(r, checkpoint, bytes, &error));
  }
  fwrite(checkpoint, 1, wl_checkpoint_bytes(r), out);
  return fclose(out) ? 3 : 0;
}
