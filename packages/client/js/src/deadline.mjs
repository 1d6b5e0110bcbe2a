// Deadlines: times of `performance.now()`; Infinity for none.

import { WeftError } from "./errors.mjs";

const LONGEST_TIMER_MS = 2 ** 31 - 1; // Node runs timers of more at once

/** The deadline of a call that may take `timeout` milliseconds. */
export function deadlineAfter(timeout) {
  if (typeof timeout !== "number" || !(timeout > 0)) {
    throw new WeftError(
      "INVALID_ARGUMENT",
      `a timeout is a positive number of milliseconds, or Infinity, got ${timeout}`);
  }
  return performance.now() + timeout;
}

/** The number of milliseconds until a deadline, at least 1. */
export function millisecondsUntil(deadline) {
  return Math.max(deadline - performance.now(), 1);
}

/** Call a function at a deadline; returns a function that prevents the call. */
export function callAt(deadline, callback) {
  let timer = null;
  const wait = () => {
    const left = deadline - performance.now();
    if (left <= 0) callback();
    else timer = setTimeout(wait, Math.min(left, LONGEST_TIMER_MS));
  };
  const first = Math.min(millisecondsUntil(deadline), LONGEST_TIMER_MS);
  if (deadline !== Infinity) timer = setTimeout(wait, first);
  return () => clearTimeout(timer);
}

/** Wait for a promise; rejects with DEADLINE_EXCEEDED and a message if it takes too long. */
export function waitUntil(deadline, promise, message) {
  return new Promise((resolve, reject) => {
    const stop = callAt(deadline, () => reject(new WeftError("DEADLINE_EXCEEDED", message)));
    promise.then(resolve, reject).finally(stop);
  });
}
