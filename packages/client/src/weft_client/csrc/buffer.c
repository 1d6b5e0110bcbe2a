/* Byte buffers, protobuf fields, and the flatbuffer tables of control messages. */
#include "internal.h"

#include <stdlib.h>
#include <string.h>

enum { WIRE_VARINT = 0, WIRE_FIXED64 = 1, WIRE_BYTES = 2, WIRE_FIXED32 = 5, MAX_FIELDS = 16 };

void wc_buffer_free(wc_buffer *buffer) {
  free(buffer->data);
  *buffer = (wc_buffer){0};
}

static bool reserve(wc_buffer *buffer, size_t size) {
  if (buffer->failed) return false;
  if (size <= buffer->capacity - buffer->size) return true;
  size_t capacity = buffer->capacity ? buffer->capacity : 64;
  while (capacity - buffer->size < size && capacity <= SIZE_MAX / 2) capacity *= 2;
  uint8_t *data = capacity - buffer->size < size ? NULL : realloc(buffer->data, capacity);
  if (!data) {
    buffer->failed = true;
    return false;
  }
  buffer->data = data;
  buffer->capacity = capacity;
  return true;
}

void wc_put(wc_buffer *buffer, const void *data, size_t size) {
  if (!size || !reserve(buffer, size)) return;
  memcpy(buffer->data + buffer->size, data, size);
  buffer->size += size;
}

void wc_put_zeros(wc_buffer *buffer, size_t size) {
  if (!size || !reserve(buffer, size)) return;
  memset(buffer->data + buffer->size, 0, size);
  buffer->size += size;
}

void wc_put_integer(wc_buffer *buffer, uint64_t value, size_t size) {
  uint8_t bytes[8];
  wc_store(bytes, value, size);
  wc_put(buffer, bytes, size);
}

char *wc_copy_string(const char *text, size_t size) {
  char *copy = malloc(size + 1);
  if (!copy) return NULL;
  if (size) memcpy(copy, text, size);
  copy[size] = 0;
  return copy;
}

/* ----------------------------------------------------------------------------- protobuf */

void wc_put_varint(wc_buffer *buffer, uint64_t value) {
  uint8_t bytes[10];
  size_t size = 0;
  do {
    bytes[size++] = (uint8_t)((value & 0x7f) | (value > 0x7f ? 0x80 : 0));
    value >>= 7;
  } while (value);
  wc_put(buffer, bytes, size);
}

void wc_put_tag(wc_buffer *buffer, unsigned field, unsigned wire_type) {
  wc_put_varint(buffer, field << 3 | wire_type);
}

void wc_put_number(wc_buffer *buffer, unsigned field, uint64_t value) {
  wc_put_tag(buffer, field, WIRE_VARINT);
  wc_put_varint(buffer, value);
}

void wc_put_bytes(wc_buffer *buffer, unsigned field, const void *data, size_t size) {
  wc_put_tag(buffer, field, WIRE_BYTES);
  wc_put_varint(buffer, size);
  wc_put(buffer, data, size);
}

void wc_put_text(wc_buffer *buffer, unsigned field, const char *text) {
  wc_put_bytes(buffer, field, text, strlen(text));
}

void wc_put_message(wc_buffer *buffer, unsigned field, wc_buffer *message) {
  wc_put_bytes(buffer, field, message->data, message->size);
  if (message->failed) buffer->failed = true;
  wc_buffer_free(message);
}

static bool take_varint(const uint8_t **data, size_t *size, uint64_t *value) {
  *value = 0;
  for (unsigned shift = 0; shift < 64 && *size; shift += 7) {
    uint8_t byte = **data;
    ++*data;
    --*size;
    *value |= (uint64_t)(byte & 0x7f) << shift;
    if (byte < 0x80) return true;
  }
  return false;
}

bool wc_next_field(const uint8_t **data, size_t *size, wc_message_field *field) {
  uint64_t tag, length = 0;
  if (!*size) return false;
  bool is_valid = take_varint(data, size, &tag) && tag >> 3 && tag >> 3 <= UINT32_MAX >> 3;
  unsigned type = tag & 7;
  if (type > WIRE_BYTES && type != WIRE_FIXED32) is_valid = false;
  if (is_valid && type == WIRE_VARINT) is_valid = take_varint(data, size, &(uint64_t){0});
  if (is_valid && type == WIRE_BYTES) is_valid = take_varint(data, size, &length);
  if (type == WIRE_FIXED32) length = 4;
  if (type == WIRE_FIXED64) length = 8;
  if (!is_valid || length > *size) {
    *data = NULL;
    return false;
  }
  *field = (wc_message_field){.number = (unsigned)(tag >> 3), .has_bytes = type == WIRE_BYTES,
                              .data = *data, .size = (size_t)length};
  *data += length;
  *size -= (size_t)length;
  return true;
}

/* --------------------------------------------------------------------- writing of tables */

static void put_u32(wc_buffer *buffer, size_t value) {
  if (value > UINT32_MAX) buffer->failed = true;
  wc_put_integer(buffer, value, 4);
}

static void align(wc_buffer *buffer, size_t alignment) {
  wc_put_zeros(buffer, (alignment - buffer->size % alignment) % alignment);
}

/* Let the offset at `place` lead to the end of the buffer. */
static void patch(wc_buffer *buffer, size_t place) {
  if (buffer->failed) return;
  wc_store(buffer->data + place, buffer->size - place, 4);
}

static void put_vector(wc_buffer *buffer, size_t place, const void *data, size_t size) {
  align(buffer, 4);
  patch(buffer, place);
  put_u32(buffer, size);
  wc_put(buffer, data, size);
  wc_put_zeros(buffer, 1);
}

static void put_texts(wc_buffer *buffer, size_t place, const wc_field *field) {
  align(buffer, 4);
  patch(buffer, place);
  put_u32(buffer, field->size);
  size_t first = buffer->size;
  for (size_t i = 0; i < field->size; i++) put_u32(buffer, 0);
  for (size_t i = 0; i < field->size; i++) {
    const char *text = field->texts[i] ? field->texts[i] : "";
    put_vector(buffer, first + 4 * i, text, strlen(text));
  }
}

static size_t size_of(const wc_field *field) {
  return field->kind == WC_NUMBER ? 8 : field->kind == WC_FLAG ? 1 : 4;
}

static bool is_default(const wc_field *field) {
  if (field->kind == WC_NUMBER || field->kind == WC_FLAG) return !field->number;
  return !field->size;
}

/* A table is a root offset, the table of fields, the fields from the widest to the narrowest, and
 * then what they refer to. */
void wc_write_table(wc_buffer *buffer, const wc_field *fields, size_t count) {
  size_t places[MAX_FIELDS] = {0}, start = 4 + 4 + 2 * count, next = 4;
  if (count > MAX_FIELDS) {
    buffer->failed = true;
    return;
  }
  start = (start + 4 + 7) / 8 * 8 - 4; /* numbers follow 4 bytes later */
  for (size_t size = 8; size; size /= 2)
    for (size_t i = 0; i < count; i++)
      if (!is_default(&fields[i]) && size_of(&fields[i]) == size) {
        places[i] = next;
        next += size;
      }
  put_u32(buffer, start);
  size_t vtable = start - (4 + 2 * count);
  wc_put_zeros(buffer, vtable - 4);
  wc_put_integer(buffer, 4 + 2 * count, 2);
  wc_put_integer(buffer, next, 2);
  for (size_t i = 0; i < count; i++) wc_put_integer(buffer, places[i], 2);
  put_u32(buffer, start - vtable);
  for (size_t size = 8; size; size /= 2)
    for (size_t i = 0; i < count; i++)
      if (places[i] && size_of(&fields[i]) == size) {
        uint8_t flag = fields[i].number != 0;
        if (size == 8) wc_put_integer(buffer, fields[i].number, 8);
        if (size == 4) put_u32(buffer, 0);
        if (size == 1) wc_put(buffer, &flag, 1);
      }
  for (size_t i = 0; i < count; i++) {
    if (!places[i] || size_of(&fields[i]) != 4) continue;
    if (fields[i].kind == WC_TEXTS)
      put_texts(buffer, start + places[i], &fields[i]);
    else
      put_vector(buffer, start + places[i], fields[i].data, fields[i].size);
  }
}

/* --------------------------------------------------------------------- reading of tables */

static bool read_u32(const wc_table *table, size_t place, size_t *value) {
  if (place > table->size || table->size - place < 4) return false;
  *value = wc_load(table->data + place, 4);
  return true;
}

static bool follow(const wc_table *table, size_t place, size_t *target) {
  size_t offset;
  if (!read_u32(table, place, &offset) || offset > table->size - place) return false;
  *target = place + offset;
  return offset > 0;
}

bool wc_read_table(wc_table *table, const uint8_t *data, size_t size) {
  *table = (wc_table){.data = data, .size = size};
  size_t back;
  if (!follow(table, 0, &table->start) || !read_u32(table, table->start, &back)) return false;
  if (back > table->start) return false; /* tables of fields stand before their tables */
  table->vtable = table->start - back;
  if (size - table->vtable < 4) return false;
  table->vtable_size = wc_load(data + table->vtable, 2);
  return table->vtable_size >= 4 && table->vtable_size <= size - table->vtable;
}

/* The place of a field; 0 if it is left out. */
static size_t place_of(const wc_table *table, unsigned slot) {
  size_t entry = 4 + 2 * (size_t)slot;
  if (entry + 2 > table->vtable_size) return 0;
  size_t offset = wc_load(table->data + table->vtable + entry, 2);
  return offset ? table->start + offset : 0;
}

uint64_t wc_read_number(const wc_table *table, unsigned slot) {
  size_t place = place_of(table, slot), low, high;
  if (!place || !read_u32(table, place, &low) || !read_u32(table, place + 4, &high)) return 0;
  return (uint64_t)high << 32 | low;
}

weft_names *wc_names_new(size_t count) {
  if (count > (SIZE_MAX - sizeof(weft_names)) / sizeof(char *)) return NULL;
  weft_names *names = calloc(1, sizeof(weft_names) + count * sizeof(char *));
  if (names) names->count = count;
  return names;
}

size_t weft_names_count(const weft_names *names) { return names ? names->count : 0; }

const char *weft_names_get(const weft_names *names, size_t index) {
  return names && index < names->count ? names->names[index] : NULL;
}

void weft_names_free(weft_names *names) {
  if (!names) return;
  for (size_t i = 0; i < names->count; i++) free(names->names[i]);
  free(names);
}

weft_names *wc_read_names(const wc_table *table, unsigned slot) {
  size_t place = place_of(table, slot), list, count = 0;
  if (place && (!follow(table, place, &list) || !read_u32(table, list, &count))) return NULL;
  if (count && (table->size - list - 4) / 4 < count) return NULL;
  weft_names *names = wc_names_new(count);
  size_t left = 4 * table->size; /* a text may be named several times, but only so often */
  for (size_t i = 0; names && i < count; i++) {
    size_t text, size;
    bool is_valid = follow(table, list + 4 + 4 * i, &text) && read_u32(table, text, &size) &&
                    size <= table->size - text - 4 && size <= left;
    if (is_valid) {
      left -= size;
      names->names[i] = wc_copy_string((const char *)table->data + text + 4, size);
    }
    if (!names->names[i]) {
      weft_names_free(names);
      names = NULL;
    }
  }
  return names;
}
