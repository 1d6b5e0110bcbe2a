/** Rows of a lane: events that overlap in time are drawn below each other. */

export const MAX_ROWS = 24;

/**
 * Return the row of each event of a lane. An event is placed below those that contain it, in the
 * first row that is free; what exceeds `MAX_ROWS` shares the last one.
 *
 * The events are [from, to) of the columns, sorted by start, and by falling duration if starts are
 * equal.
 */
export function assignRows(
  start: Float64Array, duration: ArrayLike<number>, from: number, to: number,
): Uint8Array {
  const rows = new Uint8Array(to - from);
  const ends = new Float64Array(MAX_ROWS).fill(-Infinity);
  let used = 1;
  for (let i = from; i < to; i++) {
    const begin = start[i];
    const end = begin + duration[i];
    let row = 0;
    for (let k = used - 1; k >= 0; k--) {
      if (ends[k] > begin && ends[k] >= end) {
        row = k + 1;
        break;
      }
    }
    while (row < used && ends[row] > begin) row++;
    if (row >= MAX_ROWS) row = MAX_ROWS - 1;
    if (row >= used) used = row + 1;
    ends[row] = Math.max(ends[row], end);
    rows[i - from] = row;
  }
  return rows;
}

/**
 * Return the order of events [from, to) by start, and by falling duration if starts are equal, as
 * indices; or null if they have it already. A natural merge sort: most lanes are nearly sorted.
 */
export function sortOrder(
  start: Float64Array, duration: ArrayLike<number>, from: number, to: number,
): Uint32Array | null {
  const before = (a: number, b: number) =>
    start[a] < start[b] || (start[a] === start[b] && duration[a] >= duration[b]);
  let runs = [from];
  for (let i = from + 1; i < to; i++) if (!before(i - 1, i)) runs.push(i);
  if (runs.length === 1) return null;
  let order = new Uint32Array(to - from);
  for (let i = from; i < to; i++) order[i - from] = i;
  let other = new Uint32Array(order.length);
  runs = runs.map((run) => run - from);
  while (runs.length > 1) {
    const merged: number[] = [];
    for (let k = 0; k < runs.length; k += 2) {
      const middle = runs[k + 1] ?? order.length;
      const end = runs[k + 2] ?? order.length;
      let a = runs[k];
      let b = middle;
      merged.push(a);
      for (let out = a; out < end; out++) {
        const takesFirst = b >= end || (a < middle && before(order[a], order[b]));
        other[out] = takesFirst ? order[a++] : order[b++];
      }
    }
    [order, other] = [other, order];
    runs = merged;
  }
  return order;
}

/** Return the index of the first of [from, to) whose value is larger than `limit`. */
export function upperBound(
  values: ArrayLike<number>, limit: number, from: number, to: number,
): number {
  while (from < to) {
    const middle = (from + to) >>> 1;
    if (values[middle] > limit) to = middle;
    else from = middle + 1;
  }
  return from;
}
