/* Products of floats, in an order that reads little from far caches. */
#include "product.h"

enum {
  BLOCK_BYTES = 192 << 10, /* of a filter that stays in a near cache */
  COLUMNS = 2 * WL_PANEL   /* of a tile of a larger filter */
};

typedef struct block {
  const wl_float_product *product;
  const void **pointers;
  float *border;
  size_t begin, end;
} block;

/* Columns [first, last) of results [begin, end), `chunk` of them at a time: the tiles of a group share what they
 * read of a filter. */
static void multiply_groups(const block *b, size_t first, size_t last, size_t chunk) {
  const wl_float_product *p = b->product;
  const size_t taps = p->tile.taps, depth = p->tile.depth, most = p->r->vector->rows;
  const size_t each = taps * most, at_once = WL_POINTED_ROWS / most;
  size_t begin = b->begin;
  for (size_t tiles = (b->end - begin + most - 1) / most; tiles;) {
    size_t firsts[WL_POINTED_ROWS], rows[WL_POINTED_ROWS], group = tiles < at_once ? tiles : at_once;
    for (size_t g = 0; g < group; g++, tiles--) {
      firsts[g] = begin;
      rows[g] = (b->end - begin + tiles - 1) / tiles;
      p->points(p->windows, begin, rows[g], depth * sizeof(float), b->border, b->pointers + g * each);
      begin += rows[g];
    }
    for (size_t column = first; column < last; column += chunk)
      for (size_t g = 0; g < group; g++) {
        wl_tile tile = p->tile;
        tile.rows = rows[g];
        tile.columns = last - column < chunk ? last - column : chunk;
        tile.a = (const float *const *)(b->pointers + g * each);
        tile.b += column * taps * depth;
        if (tile.bias) tile.bias += column;
        tile.c = p->out + firsts[g] * tile.stride + column;
        p->r->vector->tile(&tile);
      }
  }
}

void wl_float_product_piece(void *argument, unsigned task, size_t begin, size_t end) {
  const wl_float_product *p = argument;
  const wl_tile *t = &p->tile;
  uint8_t *scratch = wl_scratch(p->r, task);
  block b = {p, (const void **)(void *)scratch, (float *)(void *)(scratch + t->taps * WL_POINTED_ROWS * sizeof(void *)),
             begin, end};
  memset(b.border, 0, p->border * sizeof(float));
  size_t filter = t->taps * t->depth * t->columns * sizeof(float);
  if (filter <= BLOCK_BYTES) {
    multiply_groups(&b, 0, t->columns, t->columns);
    return;
  }
  /* Either each group reads all of the filter, or each part of the filter meets all of the operand. */
  size_t groups = (end - begin + WL_POINTED_ROWS - 1) / WL_POINTED_ROWS, parts = (t->columns + COLUMNS - 1) / COLUMNS;
  double operand = (double)p->x->bytes * (double)(end - begin) / (double)p->results;
  if ((double)groups * (double)filter <= (double)filter + (double)parts * operand) {
    multiply_groups(&b, 0, t->columns, COLUMNS);
    return;
  }
  for (size_t column = 0; column < t->columns; column += COLUMNS)
    multiply_groups(&b, column, t->columns - column < COLUMNS ? t->columns : column + COLUMNS, COLUMNS);
}
