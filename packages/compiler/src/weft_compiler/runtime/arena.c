/* Claims of memory for temporaries: see weft_compiler/native/arena.py. */
#include "runtime.h"

_Static_assert(sizeof(weft_arena_slot) == 64, "a slot is a cache line");

/* Returns the first slot that is free and large enough, or NULL. */
weft_arena_slot *weft_claim_arena(weft_arena_slot *slots, uint64_t size) {
  for (weft_arena_slot *slot = slots; slot < slots + WEFT_ARENA_SLOTS; slot++) {
    if (atomic_load_explicit(&slot->in_use, memory_order_relaxed)) continue;
    if (atomic_load_explicit(&slot->size, memory_order_relaxed) < size) continue;
    if (atomic_exchange_explicit(&slot->in_use, 1, memory_order_acquire)) continue;
    if (atomic_load_explicit(&slot->size, memory_order_relaxed) >= size) return slot;
    weft_release_arena(slot);
  }
  return NULL;
}

void weft_release_arena(weft_arena_slot *slot) {
  atomic_store_explicit(&slot->in_use, 0, memory_order_release);
}

/* Changes the memory of a slot. Returns 0, without a change, if a program uses it. */
int64_t weft_replace_arena(weft_arena_slot *slot, char *memory, uint64_t size) {
  if (atomic_exchange_explicit(&slot->in_use, 1, memory_order_acquire)) return 0;
  slot->memory = memory;
  atomic_store_explicit(&slot->size, size, memory_order_relaxed);
  weft_release_arena(slot);
  return 1;
}
