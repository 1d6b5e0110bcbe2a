/** The state of the page, and the actions that change it. */

import { findCriticalPath, type CriticalPath } from "../analysis/critical_path";
import { StepExecutions } from "../analysis/dependencies";
import type { ServedTrace } from "../load/server";
import { matchNodes, matchingEvents } from "../analysis/search";
import { TraceError } from "../format/chunks";
import { Kind } from "../model/schema";
import type { StepSpan, Trace } from "../model/trace";
import { DARK, LIGHT, type ColorBy, type Theme } from "../view/colors";
import { makeLayout, type Layout } from "../view/layout";
import { eventBox, headHeight, type Arrow, type Scene, type Selected, type Slot } from "../view/timeline";
import { Viewport } from "../view/viewport";

export type Tab = "path" | "steps" | "scopes" | "memory" | "search" | "compare";

export interface Search {
  query: string;
  /** Index of the current match among the matches of the first trace, by time. */
  index: number;
  byTime: Uint32Array;
}

const MOST_ARROWS = 60;

export class Store {
  slots: Slot[] = [];
  steps: (StepSpan | null)[] = [];
  executions: (StepExecutions | null)[] = [];
  /** Traces of a local server, of which slots show parts. */
  served: ServedTrace[] = [];
  readonly view = new Viewport();
  readonly collapsed = new Set<string>();
  layout: Layout = { items: [], height: 0 };
  selected: Selected | null = null;
  arrows: Arrow[] = [];
  range: [number, number] | null = null;
  hover: Scene["hover"] = null;
  scroll = 0;
  gutter = 210;
  canvasHeight = 400;
  colorBy: ColorBy = "kind";
  scopeDepth = 0;
  showsPath = true;
  search: Search | null = null;
  tab: Tab = "path";
  theme: Theme = window.matchMedia("(prefers-color-scheme: dark)").matches ? DARK : LIGHT;
  message = "";
  isHelpOpen = false;
  private readonly paths = new Map<StepExecutions, CriticalPath>();
  private readonly listeners: (() => void)[] = [];
  private readonly drawings: (() => void)[] = [];

  /** Call a function after each change of what the panels show. */
  subscribe(listener: () => void): void {
    this.listeners.push(listener);
  }

  /** Call a function after each change of what the timeline shows. */
  subscribeDrawing(listener: () => void): void {
    this.drawings.push(listener);
  }

  changed(): void {
    for (const listener of this.listeners) listener();
    this.viewChanged();
  }

  /** Note that only the visible interval changed, which no panel depends on. */
  viewChanged(): void {
    for (const listener of this.drawings) listener();
  }

  /** Show a trace in the first or the second place. */
  open(trace: Trace, index: number): void {
    this.slots[index] = { trace, shift: 0, path: null, matches: null };
    this.steps[index] = null;
    this.executions[index] = null;
    this.selected = null;
    this.arrows = [];
    this.range = null;
    this.search = null;
    if (index === 0) this.collapseLanes(trace);
    this.relayout();
    const step = typicalStep(trace.steps);
    if (step) this.selectStep(index, step, false);
    else this.align();
    if (index === 1) this.tab = "compare";
    this.showAll();
  }

  /** Collapse lanes with many rows. */
  private collapseLanes(trace: Trace): void {
    this.collapsed.clear();
    trace.laneRows.forEach((rows, lane) => {
      if (rows.length > 10) this.collapsed.add(`0/lane ${lane}`);
    });
  }

  relayout(): void {
    this.layout = makeLayout(this.slots.map((slot) => slot.trace), this.collapsed);
    this.scrollTo(this.scroll);
  }

  toggle(key: string): void {
    if (!this.collapsed.delete(key)) this.collapsed.add(key);
    this.relayout();
    this.changed();
  }

  scrollTo(scroll: number): void {
    const most = Math.max(0, this.layout.height - this.canvasHeight + headHeight(this.scene()));
    this.scroll = Math.max(0, Math.min(most, scroll));
  }

  /** Return all steps of a trace, including those that are not read yet. */
  stepsOf(slot: number): readonly StepSpan[] {
    return this.served[slot]?.steps ?? this.slots[slot].trace.steps;
  }

  selectStep(slot: number, step: StepSpan, isShown = true): void {
    const { trace } = this.slots[slot];
    const own = trace.steps.find((other) => other.id === step.id);
    const isWhole = own && own.start >= trace.begin && own.end <= trace.end;
    if (this.served[slot] && !isWhole) return void this.readStep(slot, step);
    step = own ?? step;
    this.steps[slot] = step;
    const executions = new StepExecutions(this.slots[slot].trace, step);
    this.executions[slot] = executions;
    this.updatePaths();
    this.align();
    if (isShown) this.showStep();
    this.changed();
  }

  /** Select the next step or a previous one, in all traces. */
  moveStep(distance: number): void {
    this.slots.forEach((_, slot) => {
      const current = this.steps[slot];
      const steps = this.stepsOf(slot);
      const index = current ? steps.findIndex(({ id }) => id === current.id) + distance : 0;
      const step = steps[index];
      if (step) this.selectStep(slot, step);
    });
  }

  /** Read the part of a trace around a step, and select the step. */
  private async readStep(slot: number, step: StepSpan): Promise<void> {
    try {
      const trace = await this.served[slot].read(step);
      this.slots[slot] = { trace, shift: 0, path: null, matches: null };
      this.search = null;
      this.select(null);
      this.relayout();
      const own = trace.steps.find((other) => other.id === step.id);
      if (own) this.selectStep(slot, own);
    } catch (error) {
      if (!(error instanceof TraceError || error instanceof TypeError)) throw error;
      this.message = `step ${step.number} cannot be read: ${error.message}`;
    }
    this.changed();
  }

  togglePath(): void {
    this.showsPath = !this.showsPath;
    this.updatePaths();
    this.scrollTo(this.scroll);
    this.changed();
  }

  /** Return the critical path of the selected step of a slot. */
  pathOf(slot: number): CriticalPath | null {
    const executions = this.executions[slot];
    if (!executions) return null;
    let path = this.paths.get(executions);
    if (!path) {
      path = findCriticalPath(executions);
      this.paths.clear();
      this.paths.set(executions, path);
    }
    return path;
  }

  private updatePaths(): void {
    this.slots.forEach((slot, index) => (slot.path = this.showsPath ? this.pathOf(index) : null));
  }

  /** Shift the second trace so that the selected steps start at the same time. */
  private align(): void {
    const [a, b] = this.slots;
    if (b) {
      const [first, second] = [this.steps[0]?.start ?? a.trace.begin, this.steps[1]?.start ?? b.trace.begin];
      b.shift = first - second;
    }
    this.view.lowest = Math.min(...this.slots.map(({ trace, shift }) => trace.begin + shift));
    this.view.highest = Math.max(...this.slots.map(({ trace, shift }) => trace.end + shift));
  }

  showAll(): void {
    this.view.show(this.view.lowest, this.view.highest, 0.01);
    this.changed();
  }

  showStep(): void {
    const step = this.steps[0];
    if (!step) return this.showAll();
    const ends = this.slots.map(({ shift }, slot) => (this.steps[slot]?.end ?? step.end) + shift);
    this.view.show(step.start, Math.max(...ends), 0.03);
    this.changed();
  }

  /** Select an event, and draw arrows to what it waited for and to what waited for it. */
  select(selected: Selected | null, isRevealed = false): void {
    this.selected = selected;
    this.arrows = selected ? this.arrowsOf(selected) : [];
    if (selected && isRevealed) this.reveal(selected);
    this.changed();
  }

  /** Return the executions that an event waited for, and those that waited for it. */
  neighbors({ slot, event }: Selected): { sources: number[]; users: readonly number[] } {
    const { trace } = this.slots[slot];
    const step = trace.stepOfEvent(event);
    if (!step) return { sources: [], users: [] };
    if (this.steps[slot] !== step) {
      this.steps[slot] = step;
      this.executions[slot] = new StepExecutions(trace, step);
      this.updatePaths();
      this.align();
    }
    const executions = this.executions[slot]!;
    const sources = executions.predecessors(event);
    sources.sort((a, b) => trace.endOf(b) - trace.endOf(a));
    return { sources, users: executions.successors(event) };
  }

  private arrowsOf(selected: Selected): Arrow[] {
    const { slot, event } = selected;
    const { sources, users } = this.neighbors(selected);
    const late = sources[0];
    return [
      ...sources.slice(0, MOST_ARROWS).map((from) => ({ slot, from, to: event, isLate: from === late })),
      ...users.slice(0, MOST_ARROWS).map((to) => ({ slot, from: event, to, isLate: false })),
    ];
  }

  /** Select the last execution that the selected one waited for, or the first that waited for it. */
  follow(isBackward: boolean): void {
    if (!this.selected) return;
    const { slot, event } = this.selected;
    const { trace } = this.slots[slot];
    const { sources, users } = this.neighbors(this.selected);
    const next = isBackward
      ? sources[0]
      : [...users].sort((a, b) => trace.columns.start[a] - trace.columns.start[b])[0];
    if (next !== undefined && next !== event) this.select({ slot, event: next }, true);
  }

  /** Select the next event of the row, or the event below or above. */
  move(right: number, down: number): void {
    if (!this.selected) return;
    const { slot, event } = this.selected;
    const { trace } = this.slots[slot];
    const row = trace.rowOf(event);
    if (right) {
      const next = event + right;
      if (next >= row.from && next < row.to) this.select({ slot, event: next }, true);
      return;
    }
    const rows = this.layout.items.filter((item) => item.slot === slot).flatMap((item) => item.rows);
    const target = rows[rows.indexOf(row) + down];
    if (!target) return;
    const [first] = trace.overlapping(target, trace.columns.start[event], Infinity);
    this.select({ slot, event: Math.min(first, target.to - 1) }, true);
  }

  /** Scroll to an event, and zoom in if it is too small to see. */
  reveal({ slot, event }: Selected): void {
    const { trace, shift } = this.slots[slot];
    const lane = trace.laneOf(event);
    const process = trace.records.lanes[lane].process;
    for (const key of [`${slot}`, `${slot}/${process}`, `${slot}/lane ${lane}`]) {
      if (this.collapsed.delete(key)) this.relayout();
    }
    const { start, duration } = trace.columns;
    const begin = start[event] + shift;
    const end = begin + duration[event];
    if (duration[event] / this.view.nsPerPixel < 6) {
      const length = Math.max(100, duration[event]) * 20;
      this.view.show((begin + end) / 2 - length / 2, (begin + end) / 2 + length / 2);
    } else this.view.reveal(begin, end);
    const box = eventBox(this.scene(), slot, event);
    if (!box) return;
    const room = this.canvasHeight - headHeight(this.scene());
    if (box.y < 20) this.scrollTo(this.scroll + box.y - 60);
    else if (box.y + box.height > room - 20) this.scrollTo(this.scroll + box.y - room + 80);
  }

  zoomToSelection(): void {
    if (this.range) this.view.show(Math.min(...this.range), Math.max(...this.range), 0.02);
    else if (this.selected) {
      const { slot, event } = this.selected;
      const { trace, shift } = this.slots[slot];
      this.view.show(trace.columns.start[event] + shift, trace.endOf(event) + shift, 0.4);
    } else this.showStep();
    this.changed();
  }

  setQuery(query: string): void {
    if (!query.trim()) {
      this.search = null;
      for (const slot of this.slots) slot.matches = null;
      return this.changed();
    }
    for (const slot of this.slots) {
      slot.matches = matchingEvents(slot.trace, matchNodes(slot.trace, query));
    }
    const { trace, matches } = this.slots[0];
    const isRun = (event: number) => trace.columns.kind[event] !== Kind.BUFFER;
    const byTime = matches!.filter(isRun);
    if (byTime.length <= 1_000_000) {
      byTime.sort((a, b) => trace.columns.start[a] - trace.columns.start[b]);
    }
    this.search = { query, index: -1, byTime };
    this.tab = "search";
    this.changed();
  }

  /** Select the next match, or a previous one. The first is the first visible one. */
  nextMatch(distance: number): void {
    const { search } = this;
    if (!search?.byTime.length) return;
    const { trace } = this.slots[0];
    if (search.index < 0) {
      const first = search.byTime.findIndex((event) => trace.columns.start[event] >= this.view.begin);
      search.index = first < 0 ? 0 : first;
    } else {
      search.index = (search.index + distance + search.byTime.length) % search.byTime.length;
    }
    this.select({ slot: 0, event: search.byTime[search.index] }, true);
  }

  scene(): Scene {
    const { slots, layout, view, scroll, gutter, theme, colorBy, scopeDepth, selected, arrows, hover, range } = this;
    return { slots, layout, view, scroll, gutter, theme, colorBy, scopeDepth, selected, arrows, hover, range };
  }
}

/** Return the step with the median duration among those with the most frequent label. */
export function typicalStep(steps: readonly StepSpan[]): StepSpan | null {
  const groups = new Map<string, StepSpan[]>();
  for (const step of steps) {
    const group = groups.get(step.label);
    if (group) group.push(step);
    else groups.set(step.label, [step]);
  }
  const [largest] = [...groups.values()].sort((a, b) => b.length - a.length);
  if (!largest) return null;
  const sorted = [...largest].sort((a, b) => a.end - a.start - (b.end - b.start));
  return sorted[Math.floor(sorted.length / 2)];
}
