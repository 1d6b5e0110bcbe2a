/**
 * Draws the events of a row. Events wider than some pixels are rectangles; all others are joined
 * to one strip with a value per pixel: the color of the longest event of a sample, and the share
 * of time that is busy as opacity. The work depends on the number of pixels, not of events.
 */

import { upperBound } from "../model/rows";
import type { Row, Trace } from "../model/trace";
import type { EventColors } from "./colors";
import type { Viewport } from "./viewport";

const WIDE = 3; // pixels from which on an event is a rectangle
const SAMPLES = 5;

/** An event that is drawn as a rectangle. */
export type DrawBox = (event: number, x: number, width: number) => void;

/**
 * Fill `strip` (one pixel as RGBA for each pixel of the view) with the narrow events of a row, and
 * call `draw` for the wide ones. Returns true if the strip is not empty.
 */
export function layoutRow(
  trace: Trace, row: Row, shift: number, view: Viewport, colors: EventColors, strip: Uint32Array,
  draw: DrawBox,
): boolean {
  const { start, duration } = trace.columns;
  // Pixels are aligned to the grid of time, so that panning does not change their values.
  const { nsPerPixel } = view;
  const grid = Math.floor(view.begin / nsPerPixel) * nsPerPixel;
  const begin = grid - shift;
  const end = begin + strip.length * nsPerPixel;
  let [i] = trace.overlapping(row, begin, end);
  let isUsed = false;
  let guess = 1; // the number of events of a pixel
  let [known, busyKnown] = [-1, 0]; // an index, and the busy time before it
  while (i < row.to && start[i] < end) {
    const width = duration[i] / nsPerPixel;
    if (width >= WIDE) {
      draw(i, (start[i] + shift - view.begin) / nsPerPixel, width);
      i++;
      continue;
    }
    const pixel = Math.max(0, Math.floor((start[i] - begin) / nsPerPixel));
    const next = gallop(start, begin + (pixel + 1) * nsPerPixel, i, row.to, guess);
    guess = next - i;
    let last = next;
    if (duration[next - 1] / nsPerPixel >= WIDE) last--; // drawn as a rectangle below
    let busy: number;
    if (next - i < 24) busy = sum(duration, i, last);
    else {
      const before = known === i ? busyKnown : trace.busyBefore(row, i);
      [known, busyKnown] = [last, trace.busyBefore(row, last)];
      busy = busyKnown - before;
    }
    if (pixel < strip.length) {
      const share = Math.min(1, Math.max(0.3, busy / nsPerPixel));
      strip[pixel] = colors.rgb[sampledColor(trace, colors, i, last)] | (Math.round(share * 255) << 24);
      // An event that reaches into the next pixel colors it too.
      const over = Math.floor((start[last - 1] + duration[last - 1] - begin) / nsPerPixel);
      for (let k = pixel + 1; k <= over && k < strip.length; k++) strip[k] = strip[pixel];
      isUsed = true;
    }
    i = last > i ? last : next;
  }
  return isUsed;
}

function sum(duration: ArrayLike<number>, from: number, to: number): number {
  let total = 0;
  for (let i = from; i < to; i++) total += duration[i];
  return total;
}

function sampledColor(trace: Trace, colors: EventColors, from: number, to: number): number {
  if (to - from < 2) return colors.index(from);
  const step = Math.max(1, (to - from) / SAMPLES);
  let longest = from;
  for (let i = from; i < to; i += step) {
    const event = Math.floor(i);
    if (trace.columns.duration[event] > trace.columns.duration[longest]) longest = event;
  }
  return colors.index(longest);
}

/**
 * Return the first index after `from` whose value is at least `limit`. The search begins at `guess`
 * after `from`, since neighboring pixels have similar numbers of events.
 */
function gallop(values: Float64Array, limit: number, from: number, to: number, guess: number): number {
  let low = from + 1;
  let high = Math.min(to, from + guess);
  if (high > low && values[high - 1] >= limit) {
    for (let step = 1; high - step > low; step *= 2) {
      if (values[high - step] < limit) {
        low = high - step;
        break;
      }
    }
    return lowerBound(values, limit, low, high);
  }
  low = Math.max(low, high);
  let step = 1;
  while (low + step < to && values[low + step] < limit) {
    low += step;
    step *= 2;
  }
  return lowerBound(values, limit, low, Math.min(to, low + step + 1));
}

function lowerBound(values: Float64Array, limit: number, from: number, to: number): number {
  while (from < to) {
    const middle = (from + to) >>> 1;
    if (values[middle] < limit) from = middle + 1;
    else to = middle;
  }
  return from;
}

/** Call `mark` for pixels that contain some of the given events, which are sorted. */
export function markEvents(
  trace: Trace, row: Row, shift: number, view: Viewport, events: Uint32Array,
  mark: (event: number, x: number, width: number) => void,
): void {
  let k = upperBound(events, row.from - 1, 0, events.length);
  const to = upperBound(events, row.to - 1, k, events.length);
  const { start } = trace.columns;
  const begin = view.begin - shift;
  const end = view.end - shift;
  // Binary search for the first visible one: starts ascend with the indices of a row.
  let high = to;
  while (k < high) {
    const middle = (k + high) >>> 1;
    if (trace.endOf(events[middle]) < begin) k = middle + 1;
    else high = middle;
  }
  while (k < to && start[events[k]] < end) {
    const event = events[k];
    const x = view.x(start[event] + shift);
    const width = Math.max(1.5, trace.columns.duration[event] / view.nsPerPixel);
    mark(event, x, width);
    // Skip all that would be drawn on the same pixel.
    const next = start[event] + view.nsPerPixel * Math.max(1, width * 0.5);
    let step = 1;
    k++;
    while (k < to && start[events[k]] < next) {
      while (k + step < to && start[events[k + step]] < next) {
        k += step;
        step *= 2;
      }
      step = 1;
      k++;
    }
  }
}
