/* Products of bytes. The bias of a product has the zero point of its operand in it: what is stored is
 * bias - zero point * sum of the weights, so that sums run over the stored numbers as they are. */
#include "quantized.h"

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

wl_status wl_check_column_scales(wl_interpreter *r, const wl_tensor *w, int64_t columns) {
  if (w->scale_count != 1 && w->scale_count != columns)
    return wl_fail(r, WL_DATA_LOSS, "its weights have %d scales for %d columns", (int64_t)w->scale_count, columns);
  for (uint32_t i = 0; i < w->zero_point_count; i++)
    if (w->zero_points[i]) return wl_fail(r, WL_DATA_LOSS, "the zero point of weights must be 0");
  return WL_OK;
}

/* The scale with which the largest magnitude is 127. */
float wl_scale_of(int32_t largest) {
  float most;
  memcpy(&most, &largest, 4);
  return most / 127 < FLT_MIN ? 1 : most / 127; /* nothing but zeros, as far as bytes can tell */
}

/* Rows of `depth` real numbers, `stride` apart, as bytes with a scale for each, and zeros behind them up to
 * a multiple of 4. */
void wl_rows_to_bytes(const wl_vector *vector, size_t count, const float *x, size_t stride, size_t depth, int8_t *bytes,
                      const int8_t **rows, float *scales) {
  size_t deep = (depth + 3) / 4 * 4;
  for (size_t m = 0; m < count; m++, x += stride, bytes += deep) {
    scales[m] = wl_scale_of(vector->largest(depth, x));
    vector->bytes_of(depth, x, 1 / scales[m], bytes);
    memset(bytes + depth, 0, deep - depth);
    rows[m] = bytes;
  }
}

void wl_clamp8(const wl_tensor *out, unsigned activation, int32_t *low, int32_t *high) {
  float from, to;
  wl_clamp(activation, &from, &to);
  int32_t zero = wl_zero_point(out, 0);
  float least = from / out->scales[0] + (float)zero, most = to / out->scales[0] + (float)zero;
  bool words = out->dtype == WL_TYPE_INT16;
  float first = words ? INT16_MIN : out->dtype == WL_TYPE_UINT8 ? 0 : -128, last = first + (words ? 65535 : 255);
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
  const float *scales; /* of the images, where results are real */
  size_t each;         /* results of an image */
  wl_tile8 tile;
} product;

/* What of bytes is not words. */
static product product8(wl_interpreter *r, const wl_op *op, wl_points *points, const void *windows, size_t taps,
                        size_t results, size_t channels, unsigned activation) {
  product p = {.r = r, .points = points, .windows = windows, .x = wl_in(r, op, 0), .filter = wl_in(r, op, 1),
               .bias = wl_in(r, op, 2), .out = wl_out(r, op, 0), .taps = taps, .channels = channels, .results = results};
  const wl_tensor *scales = wl_in(r, op, 3);
  p.pixel = (size_t)p.x->dims[p.x->rank - 1];
  p.tile = (wl_tile8){.columns = channels, .taps = taps, .b = (const int8_t *)p.filter->data,
                      .scales = p.filter->scales, .one_scale = p.filter->scale_count == 1, .stride = channels};
  if (scales) {
    p.scales = (const float *)(const void *)scales->data;
    p.each = results / (size_t)scales->dims[0];
    p.tile.factor = 1;
    p.tile.real = (float *)(void *)p.out->data;
    p.tile.real_bias = p.bias ? (const float *)(const void *)p.bias->data : NULL;
    wl_clamp(activation, &p.tile.least, &p.tile.most);
  } else {
    p.tile.factor = p.x->scales[0] / p.out->scales[0];
    p.tile.zero = wl_zero_point(p.out, 0);
    p.tile.bias = p.bias ? (const int32_t *)(const void *)p.bias->data : NULL;
    wl_clamp8(p.out, activation, &p.tile.low, &p.tile.high);
  }
  return p;
}

/* Where a tile's results from `first` on go; `scales` has room for those of its rows. */
static void point_results(const product *p, wl_tile8 *tile, size_t first, size_t column, float *scales) {
  size_t at = first * p->channels + column;
  if (!p->scales) {
    tile->c = (int8_t *)p->out->data + at;
    return;
  }
  for (size_t m = 0; m < tile->rows; m++) scales[m] = p->scales[(first + m) / p->each];
  tile->real = p->tile.real + at;
  tile->row_scales = scales;
}

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

/* The taps of each result side by side, as one deep tap: depths of the colors of images are too short for
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
    rows[m] = to; /* of the first tap, which is not read again */
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
  float scales[WL_MOST_ROWS8];
  memset(border, wl_zero_point(p->x, 0), depth);
  if (padded && most > WL_PADDED_ROWS) most = WL_PADDED_ROWS;
  for (size_t tiles = (end - begin + most - 1) / most; tiles; tiles--) {
    tile.taps = p->taps;
    tile.depth = depth;
    tile.rows = (end - begin + tiles - 1) / tiles;
    p->points(p->windows, begin, tile.rows, p->pixel, border, rows);
    if (padded) pad_rows(p, &tile, rows, border + depth);
    tile.a = (const int8_t *const *)rows;
    point_results(p, &tile, begin, column, scales);
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
  if (tile.real_bias) tile.real_bias += first;
  if (!tile.one_scale) tile.scales += first;
  multiply(p, task, 0, p->results, tile, first);
}

wl_status wl_conv8(wl_interpreter *r, wl_op *op, wl_points *points, const void *windows, size_t taps,
                   size_t results, size_t channels, unsigned activation) {
  product p = product8(r, op, points, windows, taps, results, channels, activation);
  p.tile.depth = (p.pixel + 3) / 4 * 4;
  p.tile.panel = taps * p.tile.depth * WL_PANEL;
  size_t work = 1 + taps * p.tile.depth;
  if (results >= 4 * WL_PADDED_ROWS || channels < 2 * WL_PANEL)
    wl_split(r, results, 1 + 65536 / (work * channels), by_results, &p);
  else
    wl_split(r, (channels + WL_PANEL - 1) / WL_PANEL, 1 + 65536 / (work * results * WL_PANEL), by_panels, &p);
  return WL_OK;
}

/* ---------------------------------------------------------------- depthwise */

/* Several results for each channel: the loops of the definition. */
static void multiply_channels(const wl_tile8 *tile, size_t multiplier) {
  for (size_t c = 0; c < tile->columns; c++) {
    uint32_t sum = tile->bias ? (uint32_t)tile->bias[c] : 0; /* that of a hostile file may wrap */
    for (size_t t = 0; t < tile->taps; t++) sum += (uint32_t)(tile->a[t][c / multiplier] * tile->b[t * tile->columns + c]);
    float scale = tile->factor * tile->scales[tile->one_scale ? 0 : c];
    if (tile->real) {
      float v = (float)(int32_t)sum * (scale * tile->row_scales[0]) + (tile->real_bias ? tile->real_bias[c] : 0);
      tile->real[c] = v < tile->least ? tile->least : v > tile->most ? tile->most : v;
      continue;
    }
    float value = rintf((float)(int32_t)sum * scale) + (float)tile->zero;
    value = value < (float)tile->low ? (float)tile->low : value;
    tile->c[c] = (int8_t)(value > (float)tile->high ? (float)tile->high : value);
  }
}

static void depthwise8_piece(void *argument, unsigned task, size_t begin, size_t end) {
  const product *p = argument;
  const void **rows = (const void **)(void *)wl_scratch(p->r, task);
  uint8_t *border = (uint8_t *)(rows + p->taps * WL_MOST_ROWS8);
  memset(border, wl_zero_point(p->x, 0), p->pixel);
  size_t multiplier = p->channels / p->pixel;
  float scales[WL_MOST_ROWS8];
  wl_tile8 tile = p->tile;
  for (; begin < end; begin += tile.rows) {
    size_t most = multiplier > 1 ? 1 : WL_MOST_ROWS8;
    tile.rows = end - begin < most ? end - begin : most;
    point_results(p, &tile, begin, 0, scales);
    tile.a = (const int8_t *const *)rows;
    p->points(p->windows, begin, tile.rows, p->pixel, border, rows);
    if (multiplier > 1) multiply_channels(&tile, multiplier);
    else p->r->vector->depthwise8(&tile);
  }
}

wl_status wl_depthwise8(wl_interpreter *r, wl_op *op, wl_points *points, const void *windows,
                        size_t taps, size_t results, unsigned activation) {
  product p = product8(r, op, points, windows, taps, results, (size_t)wl_in(r, op, 1)->dims[2], activation);
  wl_split(r, results, 1 + 8192 / (1 + taps * p.channels), depthwise8_piece, &p);
  return WL_OK;
}

/* ---------------------------------------------------------------- words times bytes */

typedef struct product16 {
  wl_interpreter *r;
  wl_points *points;
  const void *windows;
  size_t pixel, channels, results;
  int16_t *out;
  wl_tile16 tile;
} product16;

static product16 product16_of(wl_interpreter *r, const wl_op *op, wl_points *points, const void *windows, size_t taps,
                              size_t results, size_t channels, unsigned activation) {
  const wl_tensor *x = wl_in(r, op, 0), *filter = wl_in(r, op, 1), *bias = wl_in(r, op, 2), *out = wl_out(r, op, 0);
  product16 p = {r, points, windows, (size_t)x->dims[x->rank - 1], channels, results, (int16_t *)(void *)out->data, {0}};
  int32_t low, high;
  wl_clamp8(out, activation, &low, &high);
  p.tile = (wl_tile16){.columns = channels, .taps = taps, .depth = p.pixel, .b = (const int8_t *)filter->data,
                       .bias = bias ? (const int64_t *)(const void *)bias->data : NULL, .scales = filter->scales,
                       .one_scale = filter->scale_count == 1, .stride = channels, .low = low, .high = high,
                       .factor = (double)x->scales[0] / (double)out->scales[0]};
  return p;
}

/* Results [begin, end), the columns of a tile alone, which are `column` and on; `most` at a time. */
static void multiply16(const product16 *p, unsigned task, size_t begin, size_t end, wl_tile16 tile, size_t column,
                       size_t most, void (*multiplied)(const wl_tile16 *)) {
  const void **rows = (const void **)(void *)wl_scratch(p->r, task);
  void *border = rows + tile.taps * WL_MOST_ROWS8;
  memset(border, 0, p->pixel * 2);
  tile.a = (const int16_t *const *)rows;
  for (size_t tiles = (end - begin + most - 1) / most; tiles; tiles--, begin += tile.rows) {
    tile.rows = (end - begin + tiles - 1) / tiles;
    tile.c = p->out + begin * p->channels + column;
    p->points(p->windows, begin, tile.rows, p->pixel * 2, border, rows);
    multiplied(&tile);
  }
}

static void results16(void *argument, unsigned task, size_t begin, size_t end) {
  const product16 *p = argument;
  multiply16(p, task, begin, end, p->tile, 0, p->r->vector->rows, p->r->vector->tile16);
}

static void panels16(void *argument, unsigned task, size_t begin, size_t end) {
  const product16 *p = argument;
  wl_tile16 tile = p->tile;
  size_t first = begin * WL_PANEL, last = end * WL_PANEL < p->channels ? end * WL_PANEL : p->channels;
  tile.columns = last - first;
  tile.b += first * tile.taps * tile.depth;
  if (tile.bias) tile.bias += first;
  if (!tile.one_scale) tile.scales += first;
  multiply16(p, task, 0, p->results, tile, first, p->r->vector->rows, p->r->vector->tile16);
}

wl_status wl_conv16(wl_interpreter *r, wl_op *op, wl_points *points, const void *windows, size_t taps,
                    size_t results, size_t channels, unsigned activation) {
  product16 p = product16_of(r, op, points, windows, taps, results, channels, activation);
  size_t work = 1 + taps * p.pixel;
  if (results >= 4 * r->vector->rows || channels < 2 * WL_PANEL)
    wl_split(r, results, 1 + 32768 / (work * channels), results16, &p);
  else
    wl_split(r, (channels + WL_PANEL - 1) / WL_PANEL, 1 + 32768 / (work * results * WL_PANEL), panels16, &p);
  return WL_OK;
}

/* Several results for each channel, at one result: the loops of the definition. */
static void multiply_words(const wl_tile16 *t) {
  size_t multiplier = t->columns / t->depth;
  for (size_t c = 0; c < t->columns; c++) {
    double sum = t->bias ? (double)t->bias[c] : 0;
    for (size_t tap = 0; tap < t->taps; tap++) sum += t->a[tap][c / multiplier] * t->b[tap * t->columns + c];
    double v = sum * (t->factor * (double)t->scales[t->one_scale ? 0 : c]);
    t->c[c] = (int16_t)nearbyint(v < t->low ? t->low : v > t->high ? t->high : v);
  }
}

static void depthwise16_piece(void *argument, unsigned task, size_t begin, size_t end) {
  const product16 *p = argument;
  bool several = p->channels > p->pixel;
  multiply16(p, task, begin, end, p->tile, 0, several ? 1 : WL_MOST_ROWS8,
             several ? multiply_words : p->r->vector->depthwise16);
}

wl_status wl_depthwise16(wl_interpreter *r, wl_op *op, wl_points *points, const void *windows,
                         size_t taps, size_t results, unsigned activation) {
  size_t channels = (size_t)wl_in(r, op, 1)->dims[2];
  product16 p = product16_of(r, op, points, windows, taps, results, channels, activation);
  wl_split(r, results, 1 + 8192 / (1 + taps * channels), depthwise16_piece, &p);
  return WL_OK;
}
