/** Times and sizes as text. */

const UNITS: readonly [number, string][] = [
  [60e9, "min"], [1e9, "s"], [1e6, "ms"], [1e3, "µs"], [1, "ns"],
];

/** Return a duration with three significant digits: "1.25 ms". */
export function formatDuration(ns: number): string {
  const size = Math.abs(ns);
  const [factor, unit] = UNITS.find(([factor]) => size >= factor * 0.9995) ?? [1, "ns"];
  const value = ns / factor;
  const digits = factor === 1 ? 0 : Math.max(0, 2 - Math.floor(Math.log10(Math.abs(value) + 1e-9)));
  return `${value.toFixed(digits)} ${unit}`;
}

/** Return a duration that is marked if it is an estimate: "≈ 1.25 ms". */
export function formatMeasured(ns: number, isEstimated: boolean): string {
  return `${isEstimated ? "≈ " : ""}${formatDuration(ns)}`;
}

/** Return a time with digits down to `step`, which is a power of 10 times 1, 2 or 5. */
export function formatTime(ns: number, step: number): string {
  const [factor, unit] = UNITS.slice(1).find(([factor]) => Math.abs(ns) >= factor) ?? [1, "ns"];
  const digits = Math.max(0, Math.min(9, Math.ceil(-Math.log10(step / factor) - 1e-9)));
  return ns === 0 ? "0" : `${(ns / factor).toFixed(digits)} ${unit}`;
}

/** Return a size with three significant digits: "1.25 MB". */
export function formatBytes(bytes: number): string {
  if (bytes < 0) return "unknown";
  const units = ["B", "kB", "MB", "GB", "TB"];
  let unit = 0;
  let value = bytes;
  while (value >= 999.5 && unit < units.length - 1) {
    value /= 1000;
    unit++;
  }
  const digits = unit === 0 || value >= 99.95 ? 0 : value >= 9.995 ? 1 : 2;
  return `${value.toFixed(digits)} ${units[unit]}`;
}

/** Return a count with separators: "1,234,567". */
export function formatCount(count: number): string {
  return String(Math.round(count)).replace(/\B(?=(\d{3})+$)/g, ",");
}

const CONTROLS = /[\u0000-\u001f\u007f-\u009f\u200e\u200f\u202a-\u202e\u2066-\u2069]/g;

/** Return a string of a trace without characters that control the terminal or the direction. */
export function printable(text: string): string {
  return text.replace(CONTROLS, "\ufffd");
}
