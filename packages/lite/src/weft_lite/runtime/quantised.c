/* Products of bytes. The bias of a product has the zero point of its operand in it: what is stored is
 * bias - zero point * sum of the weights, so that sums run over the stored numbers as they are. */
#include "quantised.h"

wl_status wl_check_product8(wl_interpreter *r, const wl_op *op, int64_t channels) {
  const wl_tensor *x = wl_in(r, op, 0), *filter = wl_in(r, op, 1), *out = wl_out(r, op, 0);
  if (x->scale_count != 1 || out->scale_count != 1)
    return wl_fail(r, WL_DATA_LOSS, "operand 0 and the result need one scale each");
  if (filter->scale_count != 1 && filter->scale_count != channels)
    return wl_fail(r, WL_DATA_LOSS, "its filter has %d scales for %d channels",
                   (int64_t)filter->scale_count, channels);
  for (uint32_t i = 0; i < filter->scale_count; i++) /* a sum of 0 times infinity is no number */
    if (!(x->scales[0] / out->scales[0] * filter->scales[i] <= FLT_MAX))
      return wl_fail(r, WL_DATA_LOSS, "the ratio of its scales is infinite in channel %d", (int64_t)i);
  for (uint32_t i = 0; i < filter->zero_point_count; i++)
    if (filter->zero_points[i])
      return wl_fail(r, WL_DATA_LOSS, "the zero point of a filter must be 0");
  return WL_OK;
}

void wl_clamp8(const wl_tensor *out, unsigned activation, int32_t *low, int32_t *high) {
  float from, to;
  wl_clamp(activation, &from, &to);
  int32_t zero = wl_zero_point(out, 0);
  float least = from / out->scales[0] + (float)zero, most = to / out->scales[0] + (float)zero;
  float first = out->dtype == WL_TYPE_UINT8 ? 0 : -128, last = first + 255;
  *low = (int32_t)(least > first ? nearbyintf(least < last ? least : last) : first);
  *high = (int32_t)(most < last ? nearbyintf(most > first ? most : first) : last);
}

/* Rows whose depth is no multiple of 4 are copied, with zeros behind them. */
uint64_t wl_rows8_scratch(const wl_tensor *x, size_t taps) {
  uint64_t depth = (uint64_t)x->dims[x->rank - 1];
  return depth % 4 ? taps * WL_PADDED_ROWS * ((depth + 3) / 4 * 4) : 0;
}

typedef struct product {
  wl_interpreter *r;
  wl_points *points;
  const void *windows;
  const wl_tensor *x, *filter, *bias;
  wl_tensor *out;
  size_t taps, pixel, channels, results;
  wl_tile8 tile;
} product;

/* A pixel of less than four bytes, with what follows it: weights have zeros there. */
static uint32_t word_at(const uint8_t *from) {
  uint32_t word;
  memcpy(&word, from, 4);
  return word;
}

static uint32_t last_pixel(const uint8_t *from, size_t pixel) {
  uint32_t word = 0;
  memcpy(&word, from, pixel);
  return word;
}

/* The taps of each result side by side, as one deep tap: depths of the colours of images are too short for
 * a loop. */
static void pad_rows(const product *p, wl_tile8 *tile, const void **rows, uint8_t *to) {
  size_t taps = p->taps, pixel = p->pixel, deep = (pixel + 3) / 4 * 4, count = tile->rows;
  const uint8_t *end = p->x->data + p->x->bytes;
  for (size_t m = 0; m < count; m++, to += taps * deep) {
    for (size_t t = 0; t < taps; t++) {
      const uint8_t *from = rows[t * count + m];
      if (pixel < 4) {
        /* those whose four bytes would end behind the image */
        uint32_t word = from + 4 > end && from < end ? last_pixel(from, pixel) : word_at(from);
        memcpy(to + 4 * t, &word, 4);
      } else {
        memcpy(to + t * deep, from, pixel);
        memset(to + t * deep + pixel, 0, deep - pixel);
      }
    }
    rows[m] = to; /* of the first tap, which nobody reads again */
  }
  tile->taps = 1;
  tile->depth = taps * deep;
}

/* Results [begin, end), the columns of a tile alone, which are `column` and on. */
static void multiply(const product *p, unsigned task, size_t begin, size_t end, wl_tile8 tile,
                     size_t column) {
  const void **rows = (const void **)(void *)wl_scratch(p->r, task);
  uint8_t *border = (uint8_t *)(rows + p->taps * WL_MOST_ROWS8);
  bool padded = p->pixel % 4;
  size_t depth = tile.depth, most = p->r->vector->rows8;
  memset(border, wl_zero_point(p->x, 0), depth);
  if (padded && most > WL_PADDED_ROWS) most = WL_PADDED_ROWS;
  for (size_t tiles = (end - begin + most - 1) / most; tiles; tiles--) {
    tile.taps = p->taps;
    tile.depth = depth;
    tile.rows = (end - begin + tiles - 1) / tiles;
    p->points(p->windows, begin, tile.rows, p->pixel, border, rows);
    if (padded) pad_rows(p, &tile, rows, border + depth);
    tile.a = (const int8_t *const *)rows;
    tile.c = (int8_t *)p->out->data + begin * p->channels + column;
    p->r->vector->tile8(&tile);
    begin += tile.rows;
  }
}

static void by_results(void *argument, unsigned task, size_t begin, size_t end) {
  const product *p = argument;
  multiply(p, task, begin, end, p->tile, 0);
}

static void by_panels(void *argument, unsigned task, size_t begin, size_t end) {
  const product *p = argument;
  wl_tile8 tile = p->tile;
  size_t first = begin * WL_PANEL, last = end * WL_PANEL < p->channels ? end * WL_PANEL : p->channels;
  tile.columns = last - first;
  tile.b += first * tile.taps * tile.depth;
  if (tile.bias) tile.bias += first;
  if (!tile.one_scale) tile.scales += first;
  multiply(p, task, 0, p->results, tile, first);
}

wl_status wl_conv8(wl_interpreter *r, wl_op *op, wl_points *points, const void *windows, size_t taps,
                   size_t results, size_t channels, unsigned activation) {
  product p = {r, points, windows, wl_in(r, op, 0), wl_in(r, op, 1), wl_in(r, op, 2),
               wl_out(r, op, 0), taps, 0, channels, results, {0}};
  p.pixel = (size_t)p.x->dims[p.x->rank - 1];
  p.tile = (wl_tile8){.columns = channels, .taps = taps, .depth = (p.pixel + 3) / 4 * 4,
                      .b = (const int8_t *)p.filter->data, .scales = p.filter->scales,
                      .one_scale = p.filter->scale_count == 1, .stride = channels,
                      .factor = p.x->scales[0] / p.out->scales[0], .zero = wl_zero_point(p.out, 0),
                      .bias = p.bias ? (const int32_t *)(const void *)p.bias->data : NULL};
  wl_clamp8(p.out, activation, &p.tile.low, &p.tile.high);
  size_t work = 1 + taps * p.tile.depth;
  if (results >= 4 * WL_PADDED_ROWS || channels < 2 * WL_PANEL)
    wl_split(r, results, 1 + 65536 / (work * channels), by_results, &p);
  else
    wl_split(r, (channels + WL_PANEL - 1) / WL_PANEL, 1 + 65536 / (work * results * WL_PANEL), by_panels, &p);
  return WL_OK;
}

/* ---------------------------------------------------------------- depthwise */

/* Several results for each channel: the loops of the definition. */
static void multiply_channels(const product *p, const int8_t *const *rows, size_t multiplier, int8_t *out) {
  for (size_t c = 0; c < p->channels; c++) {
    uint32_t sum = p->tile.bias ? (uint32_t)p->tile.bias[c] : 0; /* that of a hostile file may wrap */
    for (size_t t = 0; t < p->taps; t++) sum += (uint32_t)(rows[t][c / multiplier] * p->tile.b[t * p->channels + c]);
    float scale = p->tile.factor * p->tile.scales[p->tile.one_scale ? 0 : c];
    float value = rintf((float)(int32_t)sum * scale) + (float)p->tile.zero;
    value = value < (float)p->tile.low ? (float)p->tile.low : value;
    out[c] = (int8_t)(value > (float)p->tile.high ? (float)p->tile.high : value);
  }
}

static void depthwise8_piece(void *argument, unsigned task, size_t begin, size_t end) {
  const product *p = argument;
  const void **rows = (const void **)(void *)wl_scratch(p->r, task);
  uint8_t *border = (uint8_t *)(rows + p->taps * WL_MOST_ROWS8);
  memset(border, wl_zero_point(p->x, 0), p->pixel);
  size_t multiplier = p->channels / p->pixel;
  wl_tile8 tile = p->tile;
  for (; begin < end; begin += tile.rows) {
    size_t most = multiplier > 1 ? 1 : WL_MOST_ROWS8;
    tile.rows = end - begin < most ? end - begin : most;
    tile.c = (int8_t *)p->out->data + begin * p->channels;
    tile.a = (const int8_t *const *)rows;
    p->points(p->windows, begin, tile.rows, p->pixel, border, rows);
    if (multiplier > 1) multiply_channels(p, tile.a, multiplier, tile.c);
    else p->r->vector->depthwise8(&tile);
  }
}

wl_status wl_depthwise8(wl_interpreter *r, wl_op *op, wl_points *points, const void *windows,
                        size_t taps, size_t results, unsigned activation) {
  product p = {r, points, windows, wl_in(r, op, 0), wl_in(r, op, 1), wl_in(r, op, 2),
               wl_out(r, op, 0), taps, 0, 0, results, {0}};
  p.pixel = (size_t)p.x->dims[3];
  p.channels = (size_t)p.filter->dims[2];
  p.tile = (wl_tile8){.columns = p.channels, .taps = taps, .b = (const int8_t *)p.filter->data,
                      .scales = p.filter->scales, .one_scale = p.filter->scale_count == 1, .stride = p.channels,
                      .factor = p.x->scales[0] / p.out->scales[0], .zero = wl_zero_point(p.out, 0),
                      .bias = p.bias ? (const int32_t *)(const void *)p.bias->data : NULL};
  wl_clamp8(p.out, activation, &p.tile.low, &p.tile.high);
  wl_split(r, results, 1 + 8192 / (1 + taps * p.channels), depthwise8_piece, &p);
  return WL_OK;
}
