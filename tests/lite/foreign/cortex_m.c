/* Runs the model of a build for microcontrollers on an emulated board, without any library. Inputs count from 0,
 * times INPUT_STEP. Prints through semihosting: the bits of the results, the memory that wl_query says, and the stack. */
#include "weft_lite_model.h"

extern unsigned char stack_low[], stack_top[], data_start[], data_end[], data_load[], bss_start[], bss_end[];

enum { WRITE0 = 4, EXIT = 0x20, STOPPED = 0x20026, PAINT = 0xa5 };

static int call_host(int operation, const void *argument) {
  register int r0 __asm__("r0") = operation;
  register const void *r1 __asm__("r1") = argument;
  __asm__ volatile("bkpt 0xab" : "+r"(r0) : "r"(r1) : "memory");
  return r0;
}

static void leave(int code) {
  const uint32_t words[] = {STOPPED, (uint32_t)code};
  call_host(EXIT, words);
  for (;;) continue;
}

static void print(const char *name, const uint8_t *bytes, size_t count) {
  char text[4] = {0, 0, 0, 0};
  call_host(WRITE0, name);
  for (size_t i = 0; i < count; i++) {
    text[0] = ' ';
    text[1] = "0123456789abcdef"[bytes[i] >> 4];
    text[2] = "0123456789abcdef"[bytes[i] & 15];
    call_host(WRITE0, text);
  }
  call_host(WRITE0, "\n");
}

static int run(void) {
  static wl_error error;
  wl_interpreter *r;
  wl_info info;
  size_t needed;
  if (wl_query(weft_model, sizeof weft_model, NULL, &needed, &error) || weft_model_open(&r, &error) ||
      wl_verify_weights(weft_model, sizeof weft_model, &error))
    return call_host(WRITE0, error.text), 1;
  wl_tensor_info(r, wl_input(r, 0), &info);
  float *x = wl_data(r, wl_input(r, 0));
  for (size_t i = 0; i < info.bytes / 4; i++) x[i] = (float)(i % 7) - 3;
  if (wl_invoke(r, &error)) return call_host(WRITE0, error.text), 1;
  wl_tensor_info(r, wl_output(r, 0), &info);
  print("result", wl_data(r, wl_output(r, 0)), info.bytes);
  print("needed", (const uint8_t *)&needed, sizeof needed);
  return 0;
}

void start(void) {
  *(volatile uint32_t *)0xe000ed88 |= 0xf << 20; /* CPACR: the floating-point unit */
  __asm__ volatile("dsb\n isb");
  for (size_t i = 0; i < (size_t)(bss_end - bss_start); i++) ((volatile unsigned char *)bss_start)[i] = 0;
  for (size_t i = 0; i < (size_t)(data_end - data_start); i++)
    ((volatile unsigned char *)data_start)[i] = ((volatile unsigned char *)data_load)[i];
  volatile unsigned char *end = __builtin_frame_address(0);
  for (volatile unsigned char *p = stack_low; p < end - 128; p++) *p = PAINT;
  int code = run();
  uint32_t free_bytes = 0;
  while (stack_low[free_bytes] == PAINT) free_bytes++;
  uint32_t used = (uint32_t)(stack_top - stack_low) - free_bytes;
  print("stack", (const uint8_t *)&used, sizeof used);
  leave(code);
}

static void fault(void) {
  call_host(WRITE0, "fault\n");
  leave(2);
}

__attribute__((section(".vectors"), used)) void *const vectors[] = {
    stack_top, (void *)start, (void *)fault, (void *)fault, (void *)fault, (void *)fault, (void *)fault,
};
