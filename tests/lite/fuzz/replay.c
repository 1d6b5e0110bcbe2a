/* Runs files through the fuzzer's entry point without libFuzzer, for compilers that lack it. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerInitialize(int *count, char ***words);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t most) {
  (void)data, (void)most;
  return size;
}

int main(int count, char **words) {
  static uint8_t data[1 << 16];
  LLVMFuzzerInitialize(&count, &words);
  for (int i = 1; i < count; i++) {
    FILE *file = fopen(words[i], "rb");
    if (!file) return 2;
    size_t size = fread(data, 1, sizeof data, file);
    fclose(file);
    fprintf(stderr, "%s\n", words[i]);
    LLVMFuzzerTestOneInput(data, size);
  }
  return 0;
}
