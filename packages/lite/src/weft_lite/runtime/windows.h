/* Windows of images, for kernels with ConvOptions. */
#ifndef WEFT_LITE_WINDOWS_H
#define WEFT_LITE_WINDOWS_H

#include "runtime.h"

/* Check strides, dilations, the size of the filter and the activation. */
wl_status wl_check_windows(wl_interpreter *, wl_op *);

/* The windows along an axis (0 vertical, 1 horizontal) of `size` elements: their number, and the padding
 * before the first element. `window` counts elements, with those that a dilation skips. */
wl_status wl_place_windows(wl_interpreter *, const wl_op *, int64_t size, int64_t window, int64_t stride, int axis,
                           int64_t *results, int64_t *before);

#endif
