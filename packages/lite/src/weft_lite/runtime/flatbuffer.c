/* Flatbuffers: verified once by the forms in schema.h, then read without further checks. */
#include "runtime.h"

enum { WL_FORM_NUMBER, WL_FORM_NUMBERS, WL_FORM_TEXT, WL_FORM_TABLE, WL_FORM_TABLES, WL_FORM_UNION };

typedef struct field {
  uint8_t table, slot, form, detail;
} field;

#define FIELD(table, slot, form, detail) {table, slot, form, detail},
static const field fields[] = {WL_FIELDS(FIELD){WL_TABLES, 0, 0, 0}};
#undef FIELD

typedef struct verifier {
  const uint8_t *data;
  size_t size;
  size_t left; /* tables that may still be visited: one may be referred to often */
  wl_error *error;
} verifier;

static uint16_t u16(const uint8_t *p) { return (uint16_t)(p[0] | p[1] << 8); }
static uint32_t u32(const uint8_t *p) {
  return p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static wl_status damaged(verifier *v, size_t position, const char *why) {
  return wl_refuse(v->error, WL_DATA_LOSS, "metadata, byte %d: %s", (int64_t)position, why);
}

/* Where the offset at a position leads; positions are below 2^31, so sums of two do not overflow. */
static wl_status target(verifier *v, size_t position, uint32_t *found) {
  if (position % 4 || position + 4 > v->size)
    return damaged(v, position, "an offset is outside or not aligned");
  uint32_t offset = u32(v->data + position);
  if (offset == 0 || offset > v->size - position)
    return damaged(v, position, "an offset leads out of the metadata");
  *found = (uint32_t)position + offset;
  return WL_OK;
}

static wl_status check_vector(verifier *v, uint32_t start, size_t item) {
  if (start % 4 || start + 4 > v->size)
    return damaged(v, start, "a vector is outside or not aligned");
  if (u32(v->data + start) > (v->size - start - 4) / item)
    return damaged(v, start, "a vector is longer than the metadata");
  if (item == 8 && (start + 4) % 8) return damaged(v, start, "a vector is not aligned");
  return WL_OK;
}

static wl_status check_text(verifier *v, uint32_t start) {
  WL_TRY(check_vector(v, start, 1));
  size_t end = start + 4 + (size_t)u32(v->data + start);
  if (end >= v->size || v->data[end]) return damaged(v, start, "a text does not end with a zero");
  return WL_OK;
}

static wl_status check_table(verifier *v, unsigned table, uint32_t start);

static wl_status check_tables(verifier *v, unsigned table, uint32_t start) {
  WL_TRY(check_vector(v, start, 4));
  uint32_t count = u32(v->data + start);
  for (uint32_t i = 0; i < count; i++) {
    uint32_t item;
    WL_TRY(target(v, start + 4 + 4 * (size_t)i, &item));
    WL_TRY(check_table(v, table, item));
  }
  return WL_OK;
}

static wl_status check_union(verifier *v, uint32_t start, uint32_t vtable, unsigned slot,
                             size_t position) {
  size_t entry = vtable + 4 + 2 * (size_t)(slot - 1);
  unsigned place = u16(v->data + entry);
  if (start + (size_t)place >= v->size) return damaged(v, position, "a field is outside of its table");
  unsigned tag = place ? v->data[start + place] : 0;
  if (tag < 1 || tag > WL_OPTIONS)
    return damaged(v, position, "options are of a kind that this version does not know");
  uint32_t found;
  WL_TRY(target(v, position, &found));
  return check_table(v, tag - 1, found);
}

static wl_status check_field(verifier *v, const field *f, uint32_t start, uint32_t vtable,
                             size_t position) {
  uint32_t found;
  if (f->form == WL_FORM_NUMBER)
    return position % f->detail ? damaged(v, position, "a number is not aligned") : WL_OK;
  if (f->form == WL_FORM_UNION) return check_union(v, start, vtable, f->slot, position);
  WL_TRY(target(v, position, &found));
  switch (f->form) {
    case WL_FORM_NUMBERS: return check_vector(v, found, f->detail);
    case WL_FORM_TEXT: return check_text(v, found);
    case WL_FORM_TABLE: return check_table(v, f->detail, found);
    default: return check_tables(v, f->detail, found);
  }
}

static unsigned first_field(unsigned table) {
  unsigned i = 0;
  while (fields[i].table != table) i++;
  return i;
}

/* The depth of the calls is that of the schema, in which no table contains itself. */
static wl_status check_table(verifier *v, unsigned table, uint32_t start) {
  if (v->left-- == 0) return damaged(v, start, "tables are referred to too often");
  if (start % 4 || start + 4 > v->size) return damaged(v, start, "a table is outside");
  int64_t vtable = (int64_t)start - (int32_t)u32(v->data + start);
  if (vtable < 0 || vtable % 2 || vtable + 4 > (int64_t)v->size)
    return damaged(v, start, "the fields of a table are outside");
  unsigned entries = u16(v->data + vtable), bytes = u16(v->data + vtable + 2);
  if (entries < 4 || entries % 2 || vtable + entries > (int64_t)v->size || bytes < 4 ||
      start + (size_t)bytes > v->size)
    return damaged(v, start, "the fields of a table are longer than the metadata");
  for (unsigned i = first_field(table); fields[i].table == table; i++) {
    const field *f = &fields[i];
    unsigned entry = 4 + 2 * f->slot;
    unsigned place = entry + 2 <= entries ? u16(v->data + vtable + entry) : 0;
    if (!place) continue;
    unsigned size = f->form == WL_FORM_NUMBER ? f->detail : 4;
    if (place < 4 || place + size > bytes)
      return damaged(v, start, "a field is outside of its table");
    WL_TRY(check_field(v, f, start, (uint32_t)vtable, start + place));
  }
  return WL_OK;
}

wl_status wl_check_tables(const uint8_t *metadata, size_t size, wl_error *error) {
  if (size < 12 || size > INT32_MAX || memcmp(metadata + 4, "WFTL", 4) != 0)
    return wl_refuse(error, WL_DATA_LOSS, "the metadata are not those of a weftlite file");
  verifier v = {metadata, size, size / 8 + 1, error};
  uint32_t root;
  WL_TRY(target(&v, 0, &root));
  return check_table(&v, WL_TABLE_MODEL, root);
}

uint32_t wl_root(const uint8_t *metadata) { return u32(metadata); }

uint32_t wl_slot(const uint8_t *metadata, uint32_t table, unsigned slot) {
  uint32_t vtable = (uint32_t)((int64_t)table - (int32_t)u32(metadata + table));
  unsigned entry = 4 + 2 * slot;
  unsigned place = entry + 2 <= u16(metadata + vtable) ? u16(metadata + vtable + entry) : 0;
  return place ? table + place : 0;
}

uint64_t wl_number(const uint8_t *metadata, uint32_t table, unsigned slot, unsigned size) {
  uint32_t position = table ? wl_slot(metadata, table, slot) : 0;
  uint64_t value = 0;
  if (position)
    for (unsigned i = 0; i < size; i++) value |= (uint64_t)metadata[position + i] << (8 * i);
  return value;
}

uint32_t wl_follow(const uint8_t *metadata, uint32_t table, unsigned slot) {
  uint32_t position = wl_slot(metadata, table, slot);
  return position ? position + u32(metadata + position) : 0;
}

uint32_t wl_length(const uint8_t *metadata, uint32_t vector) {
  return vector ? u32(metadata + vector) : 0;
}

uint32_t wl_item(const uint8_t *metadata, uint32_t vector, uint32_t i) {
  uint32_t position = vector + 4 + 4 * i;
  return position + u32(metadata + position);
}

const int32_t *wl_ints(const uint8_t *metadata, uint32_t vector) {
  return vector ? (const int32_t *)(const void *)(metadata + vector + 4) : NULL;
}

const char *wl_text(const uint8_t *metadata, uint32_t table, unsigned slot) {
  uint32_t start = wl_follow(metadata, table, slot);
  return start ? (const char *)(metadata + start + 4) : "";
}
