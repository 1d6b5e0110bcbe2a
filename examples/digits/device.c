/* The same in C, whole in one file: device MODEL IMAGES LABELS prints the share that is recognized. */
#include <stdio.h>
#include <stdlib.h>

#include "weft_lite.h"

enum { PIXELS = 64, DIGITS = 10, MOST = 2 << 20 };

static _Alignas(WL_ALIGNMENT) unsigned char model[MOST];

static size_t load(const char *name, void *to, size_t most) {
  FILE *stream = fopen(name, "rb");
  if (!stream) exit(2);
  size_t size = fread(to, 1, most, stream);
  fclose(stream);
  return size;
}

static wl_interpreter *opened(size_t size) {
  wl_error error;
  wl_interpreter *found = NULL;
  size_t bytes;
  if (wl_query(model, size, NULL, &bytes, &error)) exit(puts(error.text));
  bytes = (bytes + WL_ALIGNMENT - 1) / WL_ALIGNMENT * WL_ALIGNMENT;
  void *memory = aligned_alloc(WL_ALIGNMENT, bytes);
  if (!memory || wl_open(model, size, memory, bytes, NULL, &found, &error)) exit(puts(error.text));
  if (wl_resize(found, wl_input(found, 0), 4, (int32_t[]){1, 8, 8, 1}, &error)) exit(puts(error.text));
  return found;
}

int main(int count, char **names) {
  static float images[1000][PIXELS];
  static unsigned char labels[1000];
  if (count != 4) return 2;
  wl_interpreter *r = opened(load(names[1], model, sizeof model));
  load(names[2], images, sizeof images);
  size_t total = load(names[3], labels, sizeof labels), right = 0;
  for (size_t i = 0; i < total; i++) {
    wl_error error;
    float *in = wl_data(r, wl_input(r, 0));
    for (int k = 0; k < PIXELS; k++) in[k] = images[i][k];
    if (wl_invoke(r, &error)) return puts(error.text), 1;
    const float *scores = wl_data(r, wl_output(r, 0));
    int best = 0;
    for (int k = 1; k < DIGITS; k++) best = scores[k] > scores[best] ? k : best;
    right += best == labels[i];
  }
  printf("%.4f\n", (double)right / (double)total);
  return 0;
}
