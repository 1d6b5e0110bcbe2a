/* Checkpoints: the values of all variables in a buffer of the caller.
 *
 * The format is little endian, and each part begins at a multiple of 8 bytes:
 *   header    "WLCHECK1", uint32 CRC-32 of what follows the header, uint32 number of variables
 *   variable  uint32 length of the name, uint8 type, uint8 rank, uint16 0, int32 sizes[rank], the name, its bytes
 *
 * Variables are found by name, so a checkpoint of a file that trains also fits one that only predicts. */
#include "runtime.h"

enum { HEADER = 16, ENTRY = 8 };

static const char MAGIC[8] = {'W', 'L', 'C', 'H', 'E', 'C', 'K', '1'};

static uint64_t round_up(uint64_t size) { return (size + 7) / 8 * 8; }

static void write_number(uint8_t *to, uint64_t value, int bytes) {
  for (int i = 0; i < bytes; i++) to[i] = (uint8_t)(value >> (8 * i));
}

static uint32_t read_number(const uint8_t *from, int bytes) {
  uint32_t value = 0;
  for (int i = 0; i < bytes; i++) value |= (uint32_t)from[i] << (8 * i);
  return value;
}

static const char *name_of(const wl_interpreter *r, const wl_tensor *t) {
  return wl_text(r->metadata, t->table, WL_TENSOR_NAME);
}

static uint64_t entry_bytes(const wl_interpreter *r, const wl_tensor *t) {
  return round_up(ENTRY + 4ull * t->rank) + round_up(strlen(name_of(r, t))) + round_up(t->bytes);
}

size_t wl_checkpoint_bytes(const wl_interpreter *r) {
  uint64_t total = HEADER;
  for (uint32_t i = 0; i < r->tensor_count; i++)
    if (r->tensors[i].storage == WL_STORAGE_VARIABLE) total += entry_bytes(r, &r->tensors[i]);
  return (size_t)total;
}

static uint8_t *save_variable(const wl_interpreter *r, const wl_tensor *t, uint8_t *to) {
  const char *name = name_of(r, t);
  size_t length = strlen(name);
  write_number(to, length, 4);
  to[4] = t->dtype;
  to[5] = t->rank;
  for (int i = 0; i < t->rank; i++) write_number(to + ENTRY + 4 * i, (uint32_t)t->dims[i], 4);
  to += round_up(ENTRY + 4ull * t->rank);
  memcpy(to, name, length);
  to += round_up(length);
  memcpy(to, t->data, t->bytes);
  return to + round_up(t->bytes);
}

static bool have_one_name(const wl_interpreter *r, const wl_tensor *a, const wl_tensor *b) {
  const char *x = name_of(r, a), *y = name_of(r, b);
  size_t length = strlen(x);
  return strlen(y) == length && !memcmp(x, y, length);
}

/* The converter gives each variable a name of its own; a restore finds it by this. */
static const wl_tensor *find_duplicate(const wl_interpreter *r) {
  for (uint32_t i = 0; i < r->tensor_count; i++)
    for (uint32_t k = 0; k < i && r->tensors[i].storage == WL_STORAGE_VARIABLE; k++)
      if (r->tensors[k].storage == WL_STORAGE_VARIABLE &&
          have_one_name(r, &r->tensors[i], &r->tensors[k]))
        return &r->tensors[i];
  return NULL;
}

wl_status wl_save_checkpoint(wl_interpreter *r, void *buffer, size_t bytes, wl_error *error) {
  size_t needed = wl_checkpoint_bytes(r);
  uint8_t *start = buffer, *to = start + HEADER;
  uint32_t count = 0;
  if (!buffer || bytes < needed)
    return wl_refuse(error, WL_RESOURCE_EXHAUSTED, "a checkpoint needs %d bytes, not %d", (int64_t)needed,
                     (int64_t)bytes);
  const wl_tensor *duplicate = find_duplicate(r);
  if (duplicate)
    return wl_refuse(error, WL_FAILED_PRECONDITION, "two variables of the file have the name %s", name_of(r, duplicate));
  memset(start, 0, needed);
  for (uint32_t i = 0; i < r->tensor_count; i++) {
    if (r->tensors[i].storage != WL_STORAGE_VARIABLE) continue;
    to = save_variable(r, &r->tensors[i], to);
    count++;
  }
  memcpy(start, MAGIC, sizeof MAGIC);
  write_number(start + 12, count, 4);
  write_number(start + 8, wl_crc32(start + 12, needed - 12), 4);
  return WL_OK;
}

/* A variable of a checkpoint. */
typedef struct entry {
  const uint8_t *sizes, *name, *data;
  uint32_t length;
  uint8_t dtype, rank;
} entry;

/* Read the entry at `at` and return the position of the next one; 0 if it does not fit into `bytes`. */
static uint64_t read_entry(const uint8_t *buffer, uint64_t at, uint64_t bytes, entry *e) {
  if (bytes - at < ENTRY) return 0;
  *e = (entry){.length = read_number(buffer + at, 4), .dtype = buffer[at + 4], .rank = buffer[at + 5]};
  uint64_t size = wl_type_size(e->dtype), sizes = round_up(ENTRY + 4ull * e->rank), name = round_up(e->length);
  if (!size || e->rank > WL_MAX_RANK || bytes - at < sizes || bytes - at - sizes < name) return 0;
  e->sizes = buffer + at + ENTRY;
  for (int i = 0; i < e->rank; i++) size = wl_work(size, read_number(e->sizes + 4 * i, 4));
  e->name = buffer + at + sizes;
  at += sizes + name;
  if (size > bytes - at || bytes - at < round_up(size)) return 0;
  e->data = buffer + at;
  return at + round_up(size);
}

static bool has_name(const wl_interpreter *r, const wl_tensor *t, const entry *e) {
  const char *name = name_of(r, t);
  return strlen(name) == e->length && !memcmp(name, e->name, e->length);
}

/* Find a variable among `count` entries, whose structure has been checked. */
static bool find_entry(const wl_interpreter *r, const wl_tensor *t, const uint8_t *buffer, size_t bytes,
                       uint32_t count, entry *e) {
  uint64_t at = HEADER;
  for (uint32_t i = 0; i < count; i++) {
    at = read_entry(buffer, at, bytes, e);
    if (has_name(r, t, e)) return true;
  }
  return false;
}

static bool has_shape(const wl_tensor *t, const entry *e) {
  bool same = e->dtype == t->dtype && e->rank == t->rank;
  for (int i = 0; same && i < t->rank; i++) same = read_number(e->sizes + 4 * i, 4) == (uint32_t)t->dims[i];
  return same;
}

static wl_status check_checkpoint(const uint8_t *buffer, size_t bytes, uint32_t *count, wl_error *error) {
  entry e;
  uint64_t at = HEADER;
  if (!buffer || bytes < HEADER || memcmp(buffer, MAGIC, sizeof MAGIC))
    return wl_refuse(error, WL_DATA_LOSS, "this is not a checkpoint: it does not begin as one");
  if (read_number(buffer + 8, 4) != wl_crc32(buffer + 12, bytes - 12))
    return wl_refuse(error, WL_DATA_LOSS, "the checksum of the checkpoint does not match its %d bytes",
                     (int64_t)bytes);
  *count = read_number(buffer + 12, 4);
  for (uint32_t i = 0; i < *count; i++) {
    at = read_entry(buffer, at, bytes, &e);
    if (!at) return wl_refuse(error, WL_DATA_LOSS, "variable %d of the checkpoint is damaged", (int64_t)i);
  }
  return WL_OK;
}

wl_status wl_restore_checkpoint(wl_interpreter *r, const void *buffer, size_t bytes, wl_error *error) {
  uint32_t count = 0;
  entry e;
  WL_TRY(check_checkpoint(buffer, bytes, &count, error));
  for (int write = 0; write < 2; write++) /* nothing is written until everything is known to match */
    for (uint32_t i = 0; i < r->tensor_count; i++) {
      wl_tensor *t = &r->tensors[i];
      if (t->storage != WL_STORAGE_VARIABLE) continue;
      if (!find_entry(r, t, buffer, bytes, count, &e))
        return wl_refuse(error, WL_FAILED_PRECONDITION, "the checkpoint has no variable %s", name_of(r, t));
      if (!has_shape(t, &e))
        return wl_refuse(error, WL_FAILED_PRECONDITION, "variable %s has shape %S, and another one in the checkpoint",
                         name_of(r, t), t);
      if (write) memcpy(t->data, e.data, t->bytes);
    }
  return WL_OK;
}
