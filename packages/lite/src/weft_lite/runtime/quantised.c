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

/* ---------------------------------------------------------------- words times bytes */

enum { ROWS16 = 4, CHANNELS16 = 64 };

static product product16(wl_interpreter *r, const wl_op *op, unsigned activation) {
  product p = {.r = r, .x = wl_in(r, op, 0), .filter = wl_in(r, op, 1), .bias = wl_in(r, op, 2), .out = wl_out(r, op, 0)};
  p.pixel = (size_t)p.x->dims[p.x->rank - 1];
  p.tile = (wl_tile8){.depth = p.pixel, .b = (const int8_t *)p.filter->data, .scales = p.filter->scales,
                      .one_scale = p.filter->scale_count == 1};
  wl_clamp8(p.out, activation, &p.tile.low, &p.tile.high);
  return p;
}

/* Sums of `count` channels from `first` on become results at `to`. */
static void store16(const product *p, const int64_t *sums, size_t first, size_t count, int16_t *to) {
  const int64_t *bias = p->bias ? (const int64_t *)(const void *)p->bias->data + first : NULL;
  double factor = (double)p->x->scales[0] / (double)p->out->scales[0], low = p->tile.low, high = p->tile.high;
  for (size_t c = 0; c < count; c++) {
    uint64_t sum = (uint64_t)sums[c] + (bias ? (uint64_t)bias[c] : 0); /* that of a hostile file may wrap */
    double v = (double)(int64_t)sum * factor * (double)p->tile.scales[p->tile.one_scale ? 0 : first + c];
    v = v < low ? low : v > high ? high : v;
    to[c] = (int16_t)((v + 0x1.8p52) - 0x1.8p52); /* rounds to an integer */
  }
}

static void add_up(int64_t *sums, int32_t *parts, size_t count) {
  for (size_t i = 0; i < count; i++) sums[i] += parts[i];
  memset(parts, 0, count * sizeof *parts);
}

/* The sums of a panel for some rows: in 32 bits as long as these hold them. */
static void panel16(const product *p, const void *const *rows, size_t count, const int8_t *b, int64_t *sums) {
  int32_t parts[ROWS16 * WL_PANEL] = {0};
  size_t left = WL_MOST_DEPTH16, n;
  memset(sums, 0, count * WL_PANEL * sizeof *sums);
  for (size_t t = 0; t < p->taps; t++, rows += count)
    for (size_t k = 0; k < p->tile.depth; k += n, b += n * WL_PANEL, left -= n) {
      if (!left) {
        add_up(sums, parts, count * WL_PANEL);
        left = WL_MOST_DEPTH16;
      }
      n = p->tile.depth - k < left ? p->tile.depth - k : left;
      const int16_t *a[ROWS16];
      for (size_t m = 0; m < count; m++) a[m] = (const int16_t *)rows[m] + k;
      p->r->vector->sums16(count, n, a, b, parts);
    }
  add_up(sums, parts, count * WL_PANEL);
}

/* Results [begin, end), panels [first, last). */
static void multiply16(const product *p, unsigned task, size_t begin, size_t end, size_t first, size_t last) {
  const void **rows = (const void **)(void *)wl_scratch(p->r, task);
  void *border = rows + p->taps * WL_MOST_ROWS8;
  memset(border, 0, p->pixel * 2);
  for (size_t count; begin < end; begin += count) {
    count = end - begin < ROWS16 ? end - begin : ROWS16;
    p->points(p->windows, begin, count, p->pixel * 2, border, rows);
    for (size_t panel = first; panel < last; panel++) {
      int64_t sums[ROWS16 * WL_PANEL];
      size_t column = panel * WL_PANEL, left = p->channels - column;
      panel16(p, rows, count, p->tile.b + column * p->taps * p->tile.depth, sums);
      for (size_t m = 0; m < count; m++)
        store16(p, sums + m * WL_PANEL, column, left < WL_PANEL ? left : WL_PANEL,
                (int16_t *)(void *)p->out->data + (begin + m) * p->channels + column);
    }
  }
}

static void results16(void *argument, unsigned task, size_t begin, size_t end) {
  const product *p = argument;
  multiply16(p, task, begin, end, 0, (p->channels + WL_PANEL - 1) / WL_PANEL);
}

static void panels16(void *argument, unsigned task, size_t begin, size_t end) {
  const product *p = argument;
  multiply16(p, task, 0, p->results, begin, end);
}

wl_status wl_conv16(wl_interpreter *r, wl_op *op, wl_points *points, const void *windows, size_t taps,
                    size_t results, size_t channels, unsigned activation) {
  product p = product16(r, op, activation);
  p.points = points;
  p.windows = windows;
  p.taps = taps;
  p.results = results;
  p.channels = channels;
  size_t work = 1 + taps * p.pixel;
  if (results >= 4 * ROWS16 || channels < 2 * WL_PANEL)
    wl_split(r, results, 1 + 16384 / (work * channels), results16, &p);
  else
    wl_split(r, (channels + WL_PANEL - 1) / WL_PANEL, 1 + 16384 / (work * results * WL_PANEL), panels16, &p);
  return WL_OK;
}

/* The sums of some channels from `first` on, at one result. */
static void channels16(const product *p, const int16_t *const *rows, size_t first, size_t count, int64_t *sums) {
  int32_t parts[CHANNELS16] = {0};
  size_t multiplier = p->channels / p->pixel;
  memset(sums, 0, count * sizeof *sums);
  for (size_t t = 0; t < p->taps; t++) {
    const int16_t *x = rows[t];
    const int8_t *w = p->tile.b + t * p->channels + first;
    if (t && t % WL_MOST_DEPTH16 == 0) add_up(sums, parts, count);
    if (multiplier == 1)
      for (size_t c = 0; c < count; c++) parts[c] += x[first + c] * w[c];
    else
      for (size_t c = 0; c < count; c++) parts[c] += x[(first + c) / multiplier] * w[c];
  }
  add_up(sums, parts, count);
}

static void depthwise16_piece(void *argument, unsigned task, size_t begin, size_t end) {
  const product *p = argument;
  const void **rows = (const void **)(void *)wl_scratch(p->r, task);
  void *border = rows + p->taps * WL_MOST_ROWS8;
  memset(border, 0, p->pixel * 2);
  for (; begin < end; begin++) {
    p->points(p->windows, begin, 1, p->pixel * 2, border, rows);
    for (size_t first = 0; first < p->channels; first += CHANNELS16) {
      size_t count = p->channels - first < CHANNELS16 ? p->channels - first : CHANNELS16;
      int64_t sums[CHANNELS16];
      channels16(p, (const int16_t *const *)rows, first, count, sums);
      store16(p, sums, first, count, (int16_t *)(void *)p->out->data + begin * p->channels + first);
    }
  }
}

wl_status wl_depthwise16(wl_interpreter *r, wl_op *op, wl_points *points, const void *windows,
                         size_t taps, size_t results, unsigned activation) {
  product p = product16(r, op, activation);
  p.points = points;
  p.windows = windows;
  p.taps = taps;
  p.channels = (size_t)p.filter->dims[2];
  wl_split(r, results, 1 + 8192 / (1 + taps * p.channels), depthwise16_piece, &p);
  return WL_OK;
}
