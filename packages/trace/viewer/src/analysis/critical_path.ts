/** The critical path of a step, and the parts of its time. */

import { upperBound } from "../model/rows";
import { Kind } from "../model/schema";
import type { StepSpan, Trace } from "../model/trace";
import type { StepExecutions } from "./dependencies";

/** The categories of `weft_trace/analysis/categories.py`. */
export const CATEGORIES = [
  "compute", "wait for peers", "wire", "queueing", "wait for input", "Python", "compile",
  "checkpoint", "idle",
] as const;

export type Category = (typeof CATEGORIES)[number];

/** A part of the path: the step's time from `start` to `end` is due to `event`. */
export interface Segment {
  event: number;
  start: number;
  end: number;
  category: Category;
}

export interface CriticalPath {
  step: StepSpan;
  /** Segments that cover the step without gaps, sorted by time. */
  segments: readonly Segment[];
  /** The events of the path, each once, in order. */
  events: readonly number[];
  totals: Readonly<Record<Category, number>>;
  isEstimated: boolean;
}

/** The event that another one waited for. */
interface Cause {
  event: number;
  /** The time of the cause that counts: its end, or its start for a transfer's request. */
  time: number;
}

/** Return the critical path of a step: backwards from its end, always to the latest cause. */
export function findCriticalPath(executions: StepExecutions): CriticalPath {
  const { trace, step } = executions;
  const queue = new ThreadHistory(executions);
  const segments: Segment[] = [];
  const events: number[] = [];
  const add = (event: number, start: number, end: number, category: Category) => {
    if (end > start) segments.push({ event, start, end, category });
  };
  let time = step.end;
  let event = lastToEnd(executions);
  const visited = new Set<number>();
  if (event !== null) add(step.event, trace.endOf(event), time, "Python");
  while (event !== null && !visited.has(event)) {
    visited.add(event);
    events.push(event);
    time = Math.min(time, trace.endOf(event));
    const begin = Math.max(trace.columns.start[event], step.start);
    const inner = causeOfEnd(executions, event, time);
    if (inner) {
      add(event, inner.time, time, "wait for peers");
      [event, time] = [inner.event, inner.time];
      continue;
    }
    add(event, begin, time, categoryOf(trace, event));
    time = Math.min(time, begin);
    const cause: Cause | null = causeOfStart(executions, queue, event, time);
    if (!cause) {
      add(event, step.start, time, queue.isBusy(event, time) ? "queueing" : "idle");
      time = Math.min(time, step.start);
      break;
    }
    const ready = trace.readyOf(event);
    const middle = Math.min(time, Math.max(cause.time, ready));
    add(event, middle, time, "queueing");
    add(event, cause.time, middle, "idle");
    [event, time] = [cause.event, cause.time];
  }
  if (time > step.start) add(step.event, step.start, time, "Python");
  segments.reverse();
  events.reverse();
  const totals = Object.fromEntries(CATEGORIES.map((name) => [name, 0])) as Record<Category, number>;
  for (const segment of segments) totals[segment.category] += segment.end - segment.start;
  return {
    step, segments, events, totals,
    isEstimated: events.some((member) => trace.isEstimated(member)),
  };
}

/** Return the category of the time in which an event ran. */
export function categoryOf(trace: Trace, event: number): Category {
  switch (trace.columns.kind[event] as Kind) {
    case Kind.KERNEL:
    case Kind.REGION:
    case Kind.GENERATED:
    case Kind.COPY:
      return "compute";
    case Kind.TRANSFER:
      return "wire";
    case Kind.RECEIVE:
      return "wait for peers";
    case Kind.WAIT:
      return "wait for input";
    case Kind.CHECKPOINT:
      return "checkpoint";
    case Kind.PHASE:
      return trace.nodeOf(event).name === "compile" ? "compile" : "Python";
    default:
      return "Python";
  }
}

function lastToEnd(executions: StepExecutions): number | null {
  let last: number | null = null;
  for (const event of executions.events) {
    if (last === null || executions.trace.endOf(event) >= executions.trace.endOf(last)) last = event;
  }
  return last;
}

/** Return what a running event waited for last: the transfer of a Receive. */
function causeOfEnd(executions: StepExecutions, event: number, time: number): Cause | null {
  const { trace } = executions;
  if (trace.columns.kind[event] !== Kind.RECEIVE) return null;
  return latest(
    executions.predecessors(event)
      .map((source) => ({ event: source, time: trace.endOf(source) }))
      .filter((cause) => cause.time > trace.columns.start[event] && cause.time <= time),
  );
}

/** Return what an event waited for before it started. */
function causeOfStart(
  executions: StepExecutions, queue: ThreadHistory, event: number, time: number,
): Cause | null {
  const { trace } = executions;
  const causes: Cause[] = [];
  for (const source of executions.predecessors(event)) {
    causes.push({ event: source, time: trace.endOf(source) });
  }
  if (!causes.length) {
    // Phases wait for all executions before them, and executions without inputs for a phase.
    const isPhase = trace.columns.kind[event] === Kind.PHASE;
    const source = queue.lastOfStep(isPhase, event, isPhase ? time : trace.readyOf(event));
    if (source !== null) causes.push({ event: source, time: trace.endOf(source) });
  }
  if (trace.columns.kind[event] === Kind.TRANSFER) {
    for (const user of executions.successors(event)) {
      if (trace.columns.kind[user] === Kind.RECEIVE) {
        causes.push({ event: user, time: trace.columns.start[user] });
      }
    }
  } else {
    const before = queue.before(event, time);
    // A thread is the reason only while the inputs were there and the event was queued.
    if (before !== null && (trace.endOf(before) > trace.readyOf(event) || !causes.length)) {
      causes.push({ event: before, time: trace.endOf(before) });
    }
  }
  return latest(causes.filter((cause) => cause.time <= time));
}

function latest(causes: readonly Cause[]): Cause | null {
  let last: Cause | null = null;
  for (const cause of causes) if (last === null || cause.time > last.time) last = cause;
  return last;
}

/** Executions by their ends. */
interface History {
  events: number[];
  ends: number[];
}

/** Return the last execution, except one, that ended by a time. */
function lastBefore(history: History, except: number, time: number): number | null {
  let index = upperBound(history.ends, time, 0, history.ends.length) - 1;
  while (index >= 0 && history.events[index] === except) index--;
  return index < 0 ? null : history.events[index];
}

/** The executions of each lane of a step by their ends. Waits do not occupy a thread. */
class ThreadHistory {
  private readonly lanes = new Map<number, History>();
  private readonly all: History = { events: [], ends: [] };
  private readonly phases: History = { events: [], ends: [] };

  constructor(private readonly executions: StepExecutions) {
    const { trace, events } = executions;
    for (const event of events) {
      const kind = trace.columns.kind[event];
      this.all.events.push(event);
      if (kind === Kind.PHASE) this.phases.events.push(event);
      if (kind === Kind.RECEIVE || kind === Kind.WAIT || kind === Kind.TRANSFER) continue;
      const lane = trace.laneOf(event);
      let history = this.lanes.get(lane);
      if (!history) this.lanes.set(lane, (history = { events: [], ends: [] }));
      history.events.push(event);
    }
    for (const history of [this.all, this.phases, ...this.lanes.values()]) {
      history.events.sort((a, b) => trace.endOf(a) - trace.endOf(b));
      history.ends = history.events.map((event) => trace.endOf(event));
    }
  }

  /** Return the last execution of the event's lane that ended by a time. */
  before(event: number, time: number): number | null {
    const history = this.lanes.get(this.executions.trace.laneOf(event));
    return history ? lastBefore(history, event, time) : null;
  }

  /** Return the last execution of the step, or its last phase, that ended by a time. */
  lastOfStep(amongAll: boolean, event: number, time: number): number | null {
    return lastBefore(amongAll ? this.all : this.phases, event, time);
  }

  /** Return True if an execution of the event's lane ended between its ready time and a time. */
  isBusy(event: number, time: number): boolean {
    const before = this.before(event, time);
    return before !== null && this.executions.trace.endOf(before) > this.executions.trace.readyOf(event);
  }
}
