/* Fuzzes the runtime through its C interface: libFuzzer's entry points, and a mutator that knows the
 * schema. A file that opens runs as it is and with open sizes drawn at random, on any of the instruction
 * sets that the machine has. Around each op everything but its operands, results and scratch is poisoned,
 * so one that strays inside of the arena is found as well.
 *
 * TURNS in the environment is how often sizes are drawn; RAN names a file to which the kinds of ops are
 * written that ran with sizes so drawn. */
#include <sanitizer/asan_interface.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "runtime.h"

enum { MOST_MEMORY = 1 << 18, MOST_FILE = 1 << 16, WORK = 200, HEADER_BYTES = 64, TASKS = 3 };

size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t most);

static uint32_t state;

static uint32_t any(uint32_t below) {
  state ^= state << 13;
  state ^= state >> 17;
  state ^= state << 5;
  return below ? state % below : 0;
}

/* ---------------------------------------------------------------- running */

static wl_interpreter *running;

static void open_all(void) {
  const wl_interpreter *r = running;
  ASAN_UNPOISON_MEMORY_REGION(r->arena, r->arena_bytes);
  ASAN_UNPOISON_MEMORY_REGION(r->scratch, TASKS * r->scratch_bytes);
  ASAN_UNPOISON_MEMORY_REGION(r->weights, r->weights_bytes);
}

static void open_tensor(int32_t i, bool whole) {
  if (i < 0) return;
  const wl_tensor *t = &running->tensors[i];
  ASAN_UNPOISON_MEMORY_REGION(t->data, whole ? t->capacity : t->bytes);
}

enum { KINDS = 512 };
static bool drawn; /* whether open sizes are */
static bool ran[KINDS];

static void watch(void *context, uint32_t number, int ended) {
  const wl_interpreter *r = running;
  const wl_op *op = &r->ops[number];
  (void)context;
  open_all();
  if (ended && drawn && op->kind < KINDS) ran[op->kind] = true;
  if (ended || op->kind == WL_OP_If || op->kind == WL_OP_While) return;
  ASAN_POISON_MEMORY_REGION(r->arena, r->arena_bytes);
  ASAN_POISON_MEMORY_REGION(r->scratch, TASKS * r->scratch_bytes);
  ASAN_POISON_MEMORY_REGION(r->weights, r->weights_bytes);
  for (unsigned task = 0; task < TASKS; task++)
    ASAN_UNPOISON_MEMORY_REGION(r->scratch + task * r->scratch_bytes,
                                  r->dynamic ? r->scratch_bytes : op->scratch);
  for (uint32_t i = 0; i < op->input_count; i++) open_tensor(op->inputs[i], false);
  for (uint32_t i = 0; i < op->output_count; i++) open_tensor(op->outputs[i], true);
}

/* The first bytes of a block, of which the others are poisoned. */
static uint8_t *some(uint8_t *block, size_t size, size_t whole) {
  ASAN_POISON_MEMORY_REGION(block, whole);
  ASAN_UNPOISON_MEMORY_REGION(block, size);
  return block;
}

static void require(bool holds) {
  if (!holds) abort();
}

static void ask(wl_interpreter *r) {
  wl_info info;
  wl_op_info about;
  for (uint32_t i = 0; i <= wl_tensor_count(r); i++)
    require(wl_tensor_info(r, i, &info) == (i < wl_tensor_count(r) ? WL_OK : WL_INVALID_ARGUMENT));
  for (uint32_t i = 0; i < wl_op_count(r); i++) require(wl_describe_op(r, i, &about) == WL_OK);
  for (uint32_t s = 0; s <= wl_signature_count(r); s++) {
    uint32_t tensor;
    wl_signature_key(r, s);
    for (uint32_t i = 0; i <= wl_binding_count(r, s, 0); i++) wl_binding(r, s, 0, i, &tensor);
  }
}

/* Equal bounds mostly get equal sizes, so that operands fit. run.py makes a bound of 2 n + 3 of a size n,
 * which is kept where it has to be that of a constant. */
static int32_t drawn_size(int32_t bound, uint32_t salt) {
  uint32_t hash = ((uint32_t)bound * 2654435761u ^ salt) * 2246822519u;
  hash ^= hash >> 15;
  if (any(10) == 0) return bound > 0;
  if (hash % 2 && bound > 2) return (bound - 3) / 2;
  return (int32_t)((hash >> 8) % ((uint32_t)bound + 1));
}

static int64_t small(size_t place) { return (int64_t)any(5) - (place % 7 == 6); }

/* Values of patterns, which any kernel has to bear; as integers mostly what an axis or an index is. */
static void fill(const wl_info *info, uint8_t *data, uint32_t salt) {
  size_t bytes = info->bytes;
  for (size_t k = 0; k < bytes; k++) data[k] = (uint8_t)(k * 37 + salt);
  if (info->dtype == WL_TYPE_FLOAT32)
    for (size_t k = 0; k < bytes / 4; k++) ((float *)(void *)data)[k] = (float)(k % 13) - 6;
  if (info->dtype == WL_TYPE_INT32 && drawn)
    for (size_t k = 0; k < bytes / 4; k++) ((int32_t *)(void *)data)[k] = (int32_t)small(k);
  if (info->dtype == WL_TYPE_INT64 && drawn)
    for (size_t k = 0; k < bytes / 8; k++) ((int64_t *)(void *)data)[k] = small(k);
  if (info->dtype == WL_TYPE_BOOL)
    for (size_t k = 0; k < bytes; k++) data[k] &= 1;
}

static void feed(wl_interpreter *r) {
  wl_error error;
  uint32_t salt = any(1u << 31);
  for (uint32_t i = 0; i < wl_input_count(r); i++) {
    wl_info info;
    uint32_t tensor = wl_input(r, i);
    wl_tensor_info(r, tensor, &info);
    for (int d = 0; d < info.rank && drawn; d++)
      if (info.declared[d] < 0) info.dims[d] = drawn_size(r->tensors[tensor].bound[d], salt);
    if (drawn) require(wl_resize(r, tensor, info.rank, info.dims, &error) == WL_OK);
    wl_tensor_info(r, tensor, &info);
    fill(&info, wl_data(r, tensor), i);
  }
}

/* A checkpoint restores; with any byte changed and the checksum corrected, nothing is read outside of it. */
static void save_and_restore(void) {
  wl_error error;
  size_t bytes = wl_checkpoint_bytes(running);
  if (bytes > 1 << 16) return;
  uint8_t *checkpoint = malloc(bytes); /* of its own, so that the sanitizer sees its end */
  require(checkpoint);
  if (wl_save_checkpoint(running, checkpoint, bytes, &error)) { /* two variables have one name */
    free(checkpoint);
    return;
  }
  require(wl_restore_checkpoint(running, checkpoint, bytes, &error) == WL_OK);
  for (int turn = 0; turn < 8; turn++) {
    checkpoint[12 + any((unsigned)bytes - 12)] = (uint8_t)any(256);
    uint32_t crc = wl_crc32(checkpoint + 12, bytes - 12);
    for (int i = 0; i < 4; i++) checkpoint[8 + i] = (uint8_t)(crc >> (8 * i));
    wl_restore_checkpoint(running, checkpoint, bytes, &error);
  }
  free(checkpoint);
}

static void run_opened(const uint8_t *file, size_t size) {
  wl_error error;
  const char *turns = getenv("TURNS");
  ask(running);
  wl_use_instruction_set(running, any(WL_MOST_VECTORS));
  for (int turn = 0, last = turns ? atoi(turns) : 1; turn <= last; turn++) {
    drawn = turn > 0;
    feed(running);
    wl_invoke(running, &error);
    open_all();
  }
  save_and_restore();
  wl_reset_variables(running);
  if (!any(16)) wl_verify_weights(file, size, &error);
}

static void run_file(const uint8_t *file, size_t size) {
  static _Alignas(WL_ALIGNMENT) uint8_t block[MOST_MEMORY + WL_ALIGNMENT];
  wl_error error;
  wl_config config = {.tasks = TASKS, .work_limit = WORK, .watch = watch};
  size_t bytes = 0;
  if (wl_query(file, size, &config, &bytes, &error) != WL_OK || bytes > MOST_MEMORY) return;
  uint8_t *memory = some(block, bytes, sizeof block);
  memset(memory, 0xA5, bytes);
  if (!any(16))
    require(wl_open(file, size, memory, bytes - 1, &config, &running, &error) == WL_RESOURCE_EXHAUSTED);
  if (wl_open(file, size, memory, bytes, &config, &running, &error) == WL_OK)
    run_opened(file, size);
  else
    require(error.text[0] && memchr(error.text, 0, sizeof error.text));
}

static void write_ran(void) {
  FILE *file = fopen(getenv("RAN"), "w");
  if (!file) abort();
  for (unsigned kind = 0; kind < KINDS; kind++)
    if (ran[kind]) fprintf(file, "%u\n", kind);
  fclose(file);
}

int LLVMFuzzerInitialize(int *count, char ***words) {
  (void)count, (void)words;
  return getenv("RAN") ? atexit(write_ran) : 0;
}

/* A case has a second of the processor, whatever else the machine does. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static _Alignas(WL_ALIGNMENT) uint8_t block[MOST_FILE + WL_ALIGNMENT];
  if (size > MOST_FILE) return 0;
  clock_t start = clock();
  state = (uint32_t)size * 2654435761u | 1;
  if (size >= HEADER_BYTES) memcpy(&state, data + HEADER_BYTES - 4, 4), state |= 1;
  uint8_t *file = some(block, size, sizeof block);
  if (size) memcpy(file, data, size);
  run_file(file, size);
  require(clock() - start < CLOCKS_PER_SEC);
  return 0;
}

/* ---------------------------------------------------------------- mutations */

/* Not instrumented: a good part of the time would be spent here. */
__attribute__((no_sanitize("address", "undefined"))) static uint32_t crc_of(const uint8_t *p, size_t n) {
  static uint32_t table[256];
  for (uint32_t i = 0; i < 256 && !table[255]; i++) {
    uint32_t c = i;
    for (int k = 0; k < 8; k++) c = c & 1 ? 0xEDB88320u ^ c >> 1 : c >> 1;
    table[i] = c;
  }
  uint32_t c = ~0u;
  while (n--) c = table[(c ^ *p++) & 255] ^ c >> 8;
  return ~c;
}

static uint64_t read_number(const uint8_t *p, int bytes) {
  uint64_t value = 0;
  for (int i = 0; i < bytes; i++) value |= (uint64_t)p[i] << (8 * i);
  return value;
}

static void write_number(uint8_t *p, uint64_t value, unsigned bytes) {
  for (unsigned i = 0; i < bytes; i++) p[i] = (uint8_t)(value >> (8 * i));
}

/* New checksums, as far as the header lets them be; the weights are all that follows. */
static void seal(uint8_t *data, size_t size) {
  if (size < HEADER_BYTES) return;
  uint64_t length = read_number(data + 16, 8), start = read_number(data + 24, 8);
  if (start <= size) write_number(data + 32, size - start, 8);
  if (length <= size - HEADER_BYTES) write_number(data + 40, crc_of(data + HEADER_BYTES, length), 4);
  write_number(data + 60, crc_of(data, 60), 4);
}

enum { NUMBER, NUMBERS, TEXT, TABLE, TABLES, UNION, SITES = 8192 };
enum { WL_FORM_NUMBER = NUMBER, WL_FORM_NUMBERS, WL_FORM_TEXT, WL_FORM_TABLE, WL_FORM_TABLES, WL_FORM_UNION };

typedef struct site {
  uint32_t at; /* in the metadata */
  uint8_t bytes, form;
} site;

static site sites[SITES];
static uint32_t site_count;

static const struct {
  uint8_t table, slot, form, detail;
} fields[] = {
#define FIELD(table, slot, form, detail) {table, slot, form, detail},
    WL_FIELDS(FIELD)
#undef FIELD
};

static void add(uint32_t at, unsigned bytes, unsigned form) {
  if (site_count < SITES) sites[site_count++] = (site){at, (uint8_t)bytes, (uint8_t)form};
}

static void walk(const uint8_t *m, unsigned table, uint32_t start) {
  for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
    uint32_t at = fields[i].table == table ? wl_slot(m, start, fields[i].slot) : 0;
    if (!at) continue;
    uint32_t to = fields[i].form == NUMBER ? 0 : wl_follow(m, start, fields[i].slot);
    if (fields[i].form == NUMBER) add(at, fields[i].detail, NUMBER);
    else add(at, 4, fields[i].form);
    if (fields[i].form == NUMBERS || fields[i].form == TABLES) {
      add(to, 4, NUMBER);
      for (uint32_t k = 0; k < wl_length(m, to) && site_count < SITES; k++)
        if (fields[i].form == NUMBERS) add(to + 4 + k * fields[i].detail, fields[i].detail, NUMBER);
        else walk(m, fields[i].detail, wl_item(m, to, k));
    }
    if (fields[i].form == TABLE) walk(m, fields[i].detail, to);
    if (fields[i].form == UNION) {
      uint32_t tag = wl_slot(m, start, fields[i].slot - 1u);
      add(tag, 1, NUMBER);
      walk(m, m[tag] - 1u, to);
    }
  }
}

static uint64_t tempting(uint64_t old) {
  static const uint64_t values[] = {0, 1, 2, 3, 4, 7, 8, 16, 63, 64, 65, 128, 255, 1024, 4096, 65536,
                                    0x7fffffff, 0x80000000, 0xffffffff, 1ull << 30, 1ull << 40,
                                    1ull << 62, 1ull << 63, ~0ull, 0x7f800000, 0x7fc00000, 0x3f800000};
  switch (any(6)) {
    case 0: return old + 1;
    case 1: return old - 1;
    case 2: return old * 2;
    case 3: return old + 64;
    case 4: return read_number((const uint8_t *)&values[any(sizeof values / sizeof *values)], 8);
    default: return any(40);
  }
}

/* One field becomes something else: a number that does harm, or what a like field has. */
static void change_field(uint8_t *m) {
  const site *s = &sites[any(site_count)];
  if (s->form == NUMBER && any(3)) {
    write_number(m + s->at, tempting(read_number(m + s->at, s->bytes)), s->bytes);
    return;
  }
  for (int turn = 0; turn < 50; turn++) {
    const site *other = &sites[any(site_count)];
    if (other == s || other->form != s->form || other->bytes != s->bytes) continue;
    uint64_t value = read_number(m + other->at, s->bytes);
    if (s->form != NUMBER) { /* both lead to the same place */
      if (other->at + value <= s->at) continue;
      value = other->at + value - s->at;
    }
    write_number(m + s->at, value, s->bytes);
    return;
  }
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t most, unsigned seed) {
  state = seed | 1;
  uint64_t length = size < HEADER_BYTES ? 0 : read_number(data + 16, 8);
  bool whole = size > HEADER_BYTES && length <= size - HEADER_BYTES && length;
  if (!whole || any(50) == 0) return LLVMFuzzerMutate(data, size, most);
  uint8_t *m = data + HEADER_BYTES;
  site_count = 0;
  if (wl_check_tables(m, length, NULL) == WL_OK) walk(m, WL_TABLE_MODEL, wl_root(m));
  unsigned kind = any(16);
  if (kind == 0) LLVMFuzzerMutate(m, length, length);
  else if (kind == 1 && size > HEADER_BYTES + length)
    size = HEADER_BYTES + length + LLVMFuzzerMutate(m + length, size - HEADER_BYTES - length, most - HEADER_BYTES - length);
  else if (site_count)
    for (uint32_t turns = 1 + any(3); turns; turns--) change_field(m);
  else m[any((uint32_t)length)] ^= (uint8_t)(1u << any(8));
  seal(data, size);
  return size;
}
