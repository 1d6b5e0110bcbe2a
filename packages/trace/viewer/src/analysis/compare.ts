/** Steps of a trace, and two traces beside each other. */

import type { StepSpan, Trace } from "../model/trace";
import { sumBy, sumByNode, type Sum } from "./scopes";

/** The spread of the durations of comparable steps, in nanoseconds. */
export interface Spread {
  count: number;
  median: number;
  low: number;
  high: number;
}

/** Return the median, and the 10th and 90th percentile, of the durations of steps. */
export function spread(steps: readonly StepSpan[]): Spread {
  const times = Float64Array.from(steps, (step) => step.end - step.start).sort();
  const at = (share: number) => times[Math.round(share * (times.length - 1))] ?? 0;
  return { count: times.length, median: at(0.5), low: at(0.1), high: at(0.9) };
}

/** The time of one op or node in a step of each trace. */
export interface Change {
  key: string;
  before: number;
  after: number;
  isEstimated: boolean;
}

/** Return the sums of two steps by a property of nodes, largest difference first. */
export function compareSteps(
  before: { trace: Trace; step: StepSpan }, after: { trace: Trace; step: StepSpan },
  property: "op" | "name" | "line",
): Change[] {
  const [a, b] = [before, after].map(({ trace, step }) => {
    return new Map(sumBy(trace, sumByNode(trace, { step: step.id }), property));
  });
  const time = (sum: Sum | undefined) => sum?.time ?? 0;
  return [...new Set([...a.keys(), ...b.keys()])]
    .map((key) => ({
      key, before: time(a.get(key)), after: time(b.get(key)),
      isEstimated: Boolean(a.get(key)?.isEstimated || b.get(key)?.isEstimated),
    }))
    .sort((x, y) => Math.abs(y.after - y.before) - Math.abs(x.after - x.before));
}
