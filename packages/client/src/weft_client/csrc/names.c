/* Sets of the names of a graph. Those of nodes are unique without regard to case, as in Python. */
#include "internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FIRST_CAPACITY = 64, SUFFIX_BYTES = 24, SHOWN_BYTES = 64 };

/* The size of the UTF-8 sequence at the beginning of a text, by RFC 3629; 0 if it is invalid. */
static size_t sequence_size(const uint8_t *text) {
  uint8_t first = text[0];
  size_t size = first < 0x80 ? 1 : first < 0xc2 ? 0 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
  if (first > 0xf4) return 0;
  for (size_t i = 1; i < size; i++)
    if ((text[i] & 0xc0) != 0x80) return 0;
  bool is_overlong = (first == 0xe0 && text[1] < 0xa0) || (first == 0xf0 && text[1] < 0x90);
  bool is_invalid = (first == 0xed && text[1] > 0x9f) || (first == 0xf4 && text[1] > 0x8f);
  return is_overlong || is_invalid ? 0 : size;
}

weft_code wc_check_name(const char *name, weft_status *status) {
  const uint8_t *text = (const uint8_t *)name;
  char shown[4 * SHOWN_BYTES + 1] = "";
  size_t size = 1;
  while (text && *text && size) text += size = sequence_size(text);
  if (size) return WEFT_OK;
  for (size_t i = 0, at = 0; name[i] && i < SHOWN_BYTES; i++)
    at += (size_t)snprintf(shown + at, sizeof shown - at, (uint8_t)name[i] < 0x80 ? "%c" : "\\x%02x",
                           (uint8_t)name[i]);
  return wc_fail(status, WEFT_INVALID_ARGUMENT, "a name must be UTF-8, got '%s'", shown);
}

/* Return the lower-case form, which is compared. */
static uint8_t key(const wc_name_set *set, char letter) {
  bool is_upper = letter >= 'A' && letter <= 'Z';
  return (uint8_t)(is_upper && !set->has_case ? letter - 'A' + 'a' : letter);
}

static size_t hash(const wc_name_set *set, const char *text) { /* FNV-1a */
  uint64_t value = 14695981039346656037u;
  for (; *text; text++) value = (value ^ key(set, *text)) * 1099511628211u;
  return (size_t)value;
}

static bool is_same(const wc_name_set *set, const char *a, const char *b) {
  for (; *a && key(set, *a) == key(set, *b); a++) b++;
  return key(set, *a) == key(set, *b);
}

static wc_name *slot_of(const wc_name_set *set, const char *name) {
  size_t index = hash(set, name) & (set->capacity - 1);
  while (set->slots[index].text && !is_same(set, set->slots[index].text, name))
    index = (index + 1) & (set->capacity - 1);
  return &set->slots[index];
}

static bool grow(wc_name_set *set) {
  wc_name_set larger = {.has_case = set->has_case, .count = set->count};
  larger.capacity = set->capacity ? 2 * set->capacity : FIRST_CAPACITY;
  larger.slots = calloc(larger.capacity, sizeof *larger.slots);
  if (!larger.slots) return false;
  for (size_t i = 0; i < set->capacity; i++)
    if (set->slots[i].text) *slot_of(&larger, set->slots[i].text) = set->slots[i];
  free(set->slots);
  *set = larger;
  return true;
}

void wc_name_set_free(wc_name_set *set) {
  for (size_t i = 0; i < set->capacity; i++) free(set->slots[i].text);
  free(set->slots);
  *set = (wc_name_set){.has_case = set->has_case};
}

bool wc_name_set_has(const wc_name_set *set, const char *name) {
  return set->capacity && slot_of(set, name)->text;
}

const char *wc_name_set_add(wc_name_set *set, const char *name, bool *is_taken) {
  *is_taken = false;
  if (2 * (set->count + 1) > set->capacity && !grow(set)) return NULL;
  wc_name *slot = slot_of(set, name);
  *is_taken = slot->text != NULL;
  if (*is_taken) return NULL;
  slot->text = wc_copy_string(name, strlen(name));
  slot->next = 1;
  set->count += slot->text != NULL;
  return slot->text;
}

const char *wc_name_set_add_unique(wc_name_set *set, const char *name) {
  bool is_taken;
  const char *result = wc_name_set_add(set, name, &is_taken);
  size_t size = strlen(name) + SUFFIX_BYTES;
  char *candidate = is_taken ? malloc(size) : NULL;
  while (candidate && is_taken) {
    unsigned long long number = slot_of(set, name)->next++;
    snprintf(candidate, size, "%s_%llu", name, number);
    result = wc_name_set_add(set, candidate, &is_taken);
  }
  free(candidate);
  return result;
}
