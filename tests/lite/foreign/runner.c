/* Runs many files and writes what they give, on whatever machine it was compiled for:
 *   runner BUNDLE OUT
 * A bundle is a size in 8 bytes and a file, again and again. Inputs have patterns. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "weft_lite.h"

enum { MOST = 1 << 20 };

static _Alignas(64) unsigned char file[MOST];
static _Alignas(64) unsigned char memory[16 * MOST];

static void fill(const wl_info *info, unsigned char *data) {
  for (size_t k = 0; k < info->bytes; k++) data[k] = (unsigned char)(k * 37 % 7);
  if (info->dtype == 1)
    for (size_t k = 0; k < info->bytes / 4; k++) ((float *)(void *)data)[k] = (float)(k % 13) * 0.25f - 1.5f;
  if (info->dtype == 3)
    for (size_t k = 0; k < info->bytes / 4; k++) ((int32_t *)(void *)data)[k] = (int32_t)(k % 3);
  if (info->dtype == 9)
    for (size_t k = 0; k < info->bytes / 8; k++) ((int64_t *)(void *)data)[k] = (int64_t)(k % 3);
  if (info->dtype == 10)
    for (size_t k = 0; k < info->bytes; k++) data[k] &= 1;
  if (info->dtype == 19)
    for (size_t k = 0; k < info->bytes / 2; k++) ((uint16_t *)(void *)data)[k] = (uint16_t)(0x3c00 + k % 99);
}

static int run(size_t size, wl_interpreter **r) {
  wl_error error;
  wl_config config = {.tasks = 2, .work_limit = 20000};
  size_t bytes;
  if (wl_query(file, size, &config, &bytes, &error) || bytes > sizeof memory) return -1;
  if (wl_open(file, size, memory, sizeof memory, &config, r, &error)) return (int)error.status;
  for (uint32_t i = 0; i < wl_input_count(*r); i++) {
    wl_info info;
    wl_tensor_info(*r, wl_input(*r, i), &info);
    fill(&info, wl_data(*r, wl_input(*r, i)));
  }
  return (int)wl_invoke(*r, &error);
}

static void put(FILE *out, uint64_t value) { fwrite(&value, 8, 1, out); }

int main(int count, char **names) {
  FILE *in = count == 3 ? fopen(names[1], "rb") : NULL, *out = in ? fopen(names[2], "wb") : NULL;
  uint64_t size;
  if (!out) return 2;
  while (fread(&size, 8, 1, in) == 1) {
    wl_interpreter *r = NULL;
    if (size > sizeof file || fread(file, 1, size, in) != size) return 3;
    int status = run(size, &r);
    put(out, (uint64_t)(int64_t)status);
    put(out, status ? 0 : wl_output_count(r));
    for (uint32_t i = 0; !status && i < wl_output_count(r); i++) {
      wl_info info;
      wl_tensor_info(r, wl_output(r, i), &info);
      put(out, info.dtype);
      put(out, info.bytes);
      fwrite(wl_data(r, wl_output(r, i)), 1, info.bytes, out);
    }
  }
  return fclose(out) ? 4 : 0;
}
