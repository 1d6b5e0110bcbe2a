/** Sums of time by name scope, node, op and line. */

import { Kind } from "../model/schema";
import type { Trace } from "../model/trace";

/** Events to sum: those of a step, or those that overlap an interval. */
export type Selection = { step: number } | { begin: number; end: number };

export interface Sum {
  count: number;
  time: number;
  isEstimated: boolean;
}

/** A name scope with all that is inside. `time` is in nanoseconds, of all threads. */
export interface Scope extends Sum {
  name: string;
  /** The names from the root, joined by slashes. */
  path: string;
  children: Map<string, Scope>;
}

const SUMMED = new Set([Kind.KERNEL, Kind.REGION, Kind.WAIT, Kind.COPY, Kind.CHECKPOINT]);

/** Return the sums of executions by node id. */
export function sumByNode(trace: Trace, selection: Selection): Map<number, Sum> {
  const sums = new Map<number, Sum>();
  const { kind, step, start, duration, node, count } = trace.columns;
  for (let i = 0; i < count; i++) {
    if (!SUMMED.has(kind[i])) continue;
    let time = duration[i];
    if ("step" in selection) {
      if (step[i] !== selection.step) continue;
    } else {
      time = Math.min(start[i] + time, selection.end) - Math.max(start[i], selection.begin);
      if (time < 0) continue;
    }
    const sum = sums.get(node[i]);
    const isEstimated = trace.isEstimated(i);
    if (sum) {
      sum.count++;
      sum.time += time;
      sum.isEstimated ||= isEstimated;
    } else sums.set(node[i], { count: 1, time, isEstimated });
  }
  return sums;
}

/** Return the tree of name scopes with the sums of their nodes. */
export function sumByScope(trace: Trace, sums: ReadonlyMap<number, Sum>): Scope {
  const root = emptyScope("", "");
  for (const [id, sum] of sums) {
    const parts = trace.node(id).name.split("/").slice(0, 32);
    let scope = root;
    add(scope, sum);
    parts.forEach((part, depth) => {
      let child = scope.children.get(part);
      if (!child) {
        child = emptyScope(part, parts.slice(0, depth + 1).join("/"));
        scope.children.set(part, child);
      }
      add(child, sum);
      scope = child;
    });
  }
  return root;
}

/** Return the sums by a property of nodes, largest first. */
export function sumBy(
  trace: Trace, sums: ReadonlyMap<number, Sum>, property: "op" | "line" | "name",
): [string, Sum][] {
  const groups = new Map<string, Sum>();
  for (const [id, sum] of sums) {
    const key = trace.node(id)[property] || "(none)";
    let group = groups.get(key);
    if (!group) groups.set(key, (group = { count: 0, time: 0, isEstimated: false }));
    add(group, sum);
  }
  return [...groups].sort((a, b) => b[1].time - a[1].time);
}

/** Return the scope of a name at a depth: "a/b" of "a/b/c" at depth 2. */
export function scopeAt(name: string, depth: number): string {
  let end = -1;
  for (let i = 0; i < depth; i++) {
    end = name.indexOf("/", end + 1);
    if (end < 0) return name;
  }
  return name.slice(0, end);
}

function emptyScope(name: string, path: string): Scope {
  return { name, path, children: new Map(), count: 0, time: 0, isEstimated: false };
}

function add(sum: Sum, other: Sum): void {
  sum.count += other.count;
  sum.time += other.time;
  sum.isEstimated ||= other.isEstimated;
}
