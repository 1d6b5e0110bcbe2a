/** Executions of a step, and what each one waited for. */

import { Crossing, Kind } from "../model/schema";
import type { StepSpan, Trace } from "../model/trace";

/** Kinds that are parts of other executions, or no executions. */
const APART = new Set([Kind.STEP, Kind.GENERATED, Kind.PYTHON, Kind.BUFFER]);

/** Executions of one step by node and iteration. Iterations have one id for all steps. */
export class StepExecutions {
  /** Events of the step that are executions, sorted by start. */
  readonly events: readonly number[];
  private readonly byNode = new Map<number, Map<number, number>>();
  private readonly consumers = new Map<number, number[]>();
  private readonly children: Map<number, number[]>;
  private readonly previous: ReadonlyMap<string, number>;

  constructor(readonly trace: Trace, readonly step: StepSpan) {
    const { columns } = trace;
    const events: number[] = [];
    for (let i = 0; i < columns.count; i++) {
      if (columns.step[i] === step.id && !APART.has(columns.kind[i])) events.push(i);
    }
    events.sort((a, b) => columns.start[a] - columns.start[b]);
    this.events = events;
    for (const event of events) {
      const node = columns.node[event];
      let executions = this.byNode.get(node);
      if (!executions) this.byNode.set(node, (executions = new Map()));
      executions.set(columns.iteration[event], event);
    }
    ({ children: this.children, previous: this.previous } = iterationTree(trace));
    for (const event of events) {
      for (const source of this.predecessors(event)) {
        const users = this.consumers.get(source);
        if (users) users.push(event);
        else this.consumers.set(source, [event]);
      }
    }
  }

  /** Return the executions that an execution waited for. */
  predecessors(event: number): number[] {
    const node = this.trace.nodeOf(event);
    const iteration = this.trace.columns.iteration[event];
    const found = new Set<number>();
    for (const input of node.inputs) {
      const executions = this.byNode.get(input);
      const source = executions && this.resolve(executions, iteration, node.crossing);
      if (source !== undefined && source !== event) found.add(source);
    }
    return [...found];
  }

  /** Return the executions that waited for an execution. */
  successors(event: number): readonly number[] {
    return this.consumers.get(event) ?? [];
  }

  private resolve(
    executions: ReadonlyMap<number, number>, iteration: number, crossing: Crossing,
  ): number | undefined {
    const { iterations } = this.trace.records;
    if (crossing === Crossing.PREVIOUS) {
      const before = this.previousOf(iteration);
      const source = before === undefined ? undefined : executions.get(before);
      if (source !== undefined) return source;
      // The first iteration gets its value from outside of the loop.
      return iterations[iteration]?.number ? undefined : this.enclosing(executions, iteration);
    }
    if (crossing === Crossing.INNER) {
      let last: number | undefined;
      for (const inner of this.children.get(iteration) ?? []) last = executions.get(inner) ?? last;
      if (last !== undefined) return last;
    }
    return this.enclosing(executions, iteration);
  }

  private previousOf(iteration: number): number | undefined {
    const record = this.trace.records.iterations[iteration];
    if (!record || !iteration) return undefined;
    return this.previous.get(`${record.parent} ${record.number - 1} ${record.frame}`);
  }

  /** Return the execution in an iteration or in the nearest enclosing one. */
  private enclosing(executions: ReadonlyMap<number, number>, iteration: number): number | undefined {
    const { iterations } = this.trace.records;
    for (let depth = 0; depth < 1000; depth++) {
      const source = executions.get(iteration);
      if (source !== undefined || iteration === 0) return source;
      iteration = iterations[iteration]?.parent ?? 0;
    }
    return undefined; // the parents of a damaged trace form a cycle
  }
}

interface IterationTree {
  /** Iterations directly inside an iteration, by number. */
  children: Map<number, number[]>;
  /** Ids by parent, number and frame. */
  previous: ReadonlyMap<string, number>;
}

const trees = new WeakMap<Trace, IterationTree>();

function iterationTree(trace: Trace): IterationTree {
  let tree = trees.get(trace);
  if (tree) return tree;
  const { iterations } = trace.records;
  const children = new Map<number, number[]>();
  const previous = new Map<string, number>();
  for (let id = 1; id < iterations.length; id++) {
    const { frame, number, parent } = iterations[id];
    previous.set(`${parent} ${number} ${frame}`, id);
    const list = children.get(parent);
    if (list) list.push(id);
    else children.set(parent, [id]);
  }
  for (const list of children.values()) list.sort((a, b) => iterations[a].number - iterations[b].number);
  tree = { children, previous };
  trees.set(trace, tree);
  return tree;
}
