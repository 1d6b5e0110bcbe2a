/** The state of the page, and the actions that change it. */

import { findCriticalPath, type CriticalPath } from "../analysis/critical_path";
import { StepExecutions } from "../analysis/dependencies";
import { TooManyEvents, readPart, readStep, type Part, type PartedSource } from "../load/parted";
import { matchNodes, matchingEvents } from "../analysis/search";
import { TraceError } from "../format/chunks";
import { Kind } from "../model/schema";
import type { StepSpan, Trace } from "../model/trace";
import { DARK, LIGHT, type ColorBy, type Theme } from "../view/colors";
import { makeLayout, type Layout } from "../view/layout";
import {
  eventBox, headHeight, intervalOf, type Arrow, type Parted, type Scene, type Selected, type Slot,
} from "../view/timeline";
import { Viewport } from "../view/viewport";

export type Tab = "path" | "steps" | "scopes" | "memory" | "search" | "compare";

export interface Search {
  query: string;
  /** Index of the current match among the matches of the first trace, by time. */
  index: number;
  byTime: Uint32Array;
}

const MOST_ARROWS = 60;
const REST = 60; // milliseconds without a change after which parts are read
const MOST_BINS = 8192;
const DETAIL_EVENTS = 400_000; // of a part that is read because it is visible

export class Store {
  slots: Slot[] = [];
  steps: (StepSpan | null)[] = [];
  executions: (StepExecutions | null)[] = [];
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
  private reading = 0;
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
    this.readVisible();
    for (const listener of this.drawings) listener();
  }

  /** Show a trace in the first or the second place; `parted` if it is only a part. */
  open(trace: Trace, index: number, parted: Omit<Parted, "focus" | "detail"> | null = null): void {
    const slot: Slot = { trace, shift: 0, path: null, matches: null, parted: null };
    if (parted) slot.parted = { ...parted, focus: [0, 0], detail: null };
    this.slots[index] = slot;
    this.steps[index] = null;
    this.executions[index] = null;
    this.selected = null;
    this.arrows = [];
    this.range = null;
    this.search = null;
    if (index === 0) this.collapseLanes(trace);
    this.relayout();
    const step = parted ? null : typicalStep(trace.steps);
    if (step) this.selectStep(index, step, false);
    else this.align();
    if (index === 1) this.tab = "compare";
    this.showAll();
  }

  /** Return the interval and the number of bins that show a whole trace. */
  overviewBins({ interval: [first, last] }: PartedSource): { begin: number; end: number; count: number } {
    const margin = (last - first) * 0.05 + 1;
    const count = Math.min(MOST_BINS, Math.ceil(this.view.width * 1.1));
    return { begin: first - margin, end: last + margin, count };
  }

  /** Show a part of a trace in its slot, and select a step of it. */
  showPart(index: number, part: Part, step: StepSpan | null): void {
    const slot = this.slots[index];
    const [isFirst, matched] = [slot.parted!.focus[1] === 0, this.search?.query];
    slot.trace = part.trace;
    slot.parted!.focus = [part.begin, part.end];
    slot.path = slot.matches = null;
    this.executions[index] = null;
    this.steps[index] = null;
    this.selected = null;
    this.arrows = [];
    if (isFirst && index === 0) this.collapseLanes(part.trace);
    this.relayout();
    const own = step && part.trace.steps.find((other) => other.id === step.id);
    if (own) this.selectStep(index, own, false);
    if (matched) this.setQuery(matched);
    this.changed();
  }

  /** Collapse lanes with many rows. */
  private collapseLanes(trace: Trace): void {
    this.collapsed.clear();
    trace.laneRows.forEach((rows, lane) => {
      if (rows.length > 10) this.collapsed.add(`0/lane ${lane}`);
    });
  }

  relayout(): void {
    this.layout = makeLayout(this.slots, this.collapsed);
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
    const { trace, parted } = this.slots[slot];
    return (parted?.source.base ?? trace).steps;
  }

  selectStep(slot: number, step: StepSpan, isShown = true): void {
    const { trace, parted } = this.slots[slot];
    const own = trace.steps.find((other) => other.id === step.id);
    if (parted && !(own && own.start >= parted.focus[0] && own.end <= parted.focus[1])) {
      return void this.readStep(slot, step);
    }
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
  private async readStep(index: number, step: StepSpan): Promise<void> {
    const slot = this.slots[index];
    const { source } = slot.parted!;
    try {
      const part = await readStep(source, step);
      if (this.slots[index] !== slot) return; // another trace was opened
      this.showPart(index, part, step);
      this.showStep();
    } catch (error) {
      if (!(error instanceof TraceError || error instanceof TypeError)) throw error;
      this.message = `step ${step.number} cannot be read: ${error.message}`;
    }
    this.changed();
  }

  /** Make the part that is drawn besides the one of the selected step the one of the panels. */
  focusDetail(index: number): void {
    const { parted } = this.slots[index];
    if (!parted?.detail) return;
    const part = parted.detail;
    parted.detail = null;
    this.showPart(index, part, null);
  }

  /** Read what is visible and not there yet, when the view has come to rest. */
  private readVisible(): void {
    clearTimeout(this.reading);
    if (this.slots.some((slot) => slot.parted)) {
      this.reading = window.setTimeout(() => this.slots.forEach((slot) => void this.readSlot(slot)), REST);
    }
  }

  private async readSlot(slot: Slot): Promise<void> {
    const { parted } = slot;
    if (!parted || parted.isReading) return;
    const [begin, end] = [this.view.begin - slot.shift, this.view.end - slot.shift];
    const length = end - begin;
    const isCovered = [parted.focus, ...(parted.detail ? [[parted.detail.begin, parted.detail.end]] : [])]
      .some(([from, to]) => from <= Math.max(begin, parted.begin) && Math.min(end, parted.end) <= to);
    const { bins, source } = parted;
    const scale = (bins.end - bins.begin) / bins.count / this.view.nsPerPixel;
    const isFine = bins.begin <= Math.max(begin, parted.begin) && bins.end >= Math.min(end, parted.end) && scale > 0.2 && scale < 1.3;
    if (isCovered || (isFine && bins.events > 8 * DETAIL_EVENTS)) return;
    parted.isReading = true;
    try {
      if (!isFine) {
        // The margins are as wide as the view, unless that is as wide as several screens.
        const margin = Math.min(1, (MOST_BINS / this.view.width - 1) / 2) * length;
        const count = Math.ceil((this.view.width * (length + 2 * margin)) / length);
        parted.bins = await source.readBins(begin - margin, end + margin, Math.min(count, MOST_BINS));
        this.viewChanged();
      }
      if (parted.bins.events <= 8 * DETAIL_EVENTS) {
        const part = await readPart(source, begin - length / 2, end + length / 2, DETAIL_EVENTS);
        if (!this.slots.includes(slot)) return;
        parted.detail = part;
        this.relayout();
        this.viewChanged();
      }
    } catch (error) {
      if (error instanceof TooManyEvents) return;
      if (!(error instanceof TraceError || error instanceof TypeError)) throw error;
      this.message = `a part of the trace cannot be read: ${error.message}`;
      this.changed();
    } finally {
      parted.isReading = false;
    }
    this.readVisible();
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
    this.view.lowest = Math.min(...this.slots.map((slot) => intervalOf(slot)[0] + slot.shift));
    this.view.highest = Math.max(...this.slots.map((slot) => intervalOf(slot)[1] + slot.shift));
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
