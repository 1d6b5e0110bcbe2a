/** The vertical layout of the timeline: traces, processes and lanes below each other. */

import type { Bins } from "../load/parted";
import { LaneKind, type Process } from "../model/schema";
import type { Row, Trace } from "../model/trace";

export const ROW = 18;
const FLAT = 5;
const HEADER = 24;
const MEMORY = 40;
const GAP = 5;

/** A heading or a lane of the timeline. `key` names it in the set of collapsed items. */
export interface Item {
  type: "trace" | "process" | "lane";
  slot: number;
  key: string;
  y: number;
  height: number;
  label: string;
  note: string;
  isCollapsed: boolean;
  /** For lanes. */
  lane: number;
  kind: LaneKind;
  rows: readonly Row[];
  rowHeight: number;
}

export interface Layout {
  items: Item[];
  height: number;
}

/** A trace, and the rows of lanes of which it is only a part. */
export interface Shown {
  trace: Trace;
  parted: { detail: { trace: Trace } | null; bins: Bins } | null;
}

/** Return the layout of traces. */
export function makeLayout(shown: readonly Shown[], collapsed: ReadonlySet<string>): Layout {
  const items: Item[] = [];
  let y = 0;
  const add = (item: Partial<Item> & Pick<Item, "type" | "slot" | "key" | "label" | "height">) => {
    items.push({
      y, note: "", isCollapsed: collapsed.has(item.key), lane: -1, kind: LaneKind.THREAD, rows: [],
      rowHeight: 0, ...item,
    });
    y += item.height;
  };
  shown.forEach(({ trace, parted }, slot) => {
    const inPart = parted?.detail?.trace.laneRows ?? [];
    const depths = trace.laneRows.map((rows, lane) => Math.max(rows.length, inPart[lane]?.length ?? 0));
    const isUsed = (lane: number) => {
      return depths[lane] > 0 || Boolean(parted?.bins.lanes[lane]?.shares.some((share) => share > 0));
    };
    if (shown.length > 1) {
      const label = `${"AB"[slot]}: ${trace.name}`;
      add({ type: "trace", slot, key: `${slot}`, label, height: HEADER + 4 });
      if (collapsed.has(`${slot}`)) return;
    }
    for (const [id, lanes] of lanesByProcess(trace, isUsed)) {
      const process = trace.process({ process: id, kind: LaneKind.THREAD, name: "" });
      const key = `${slot}/${id}`;
      const note = processNote(process);
      add({ type: "process", slot, key, label: process.name, note, height: HEADER });
      if (collapsed.has(key)) continue;
      for (const lane of lanes) add(laneItem(trace, slot, lane, depths[lane], collapsed));
    }
  });
  return { items, height: y + GAP };
}

function laneItem(
  trace: Trace, slot: number, lane: number, depth: number, collapsed: ReadonlySet<string>,
) {
  const { kind, name } = trace.records.lanes[lane];
  const rows = trace.laneRows[lane];
  const key = `${slot}/lane ${lane}`;
  const isCollapsed = collapsed.has(key);
  const rowHeight = isCollapsed ? FLAT : ROW;
  const isMemory = kind === LaneKind.MEMORY;
  const height = isMemory
    ? (isCollapsed ? 16 : MEMORY) + GAP
    : Math.max(14, Math.max(1, depth) * rowHeight) + GAP;
  const label = name.replace(/\/job:([^/ ]+)\/task:(\d+)/g, "$1:$2");
  return { type: "lane" as const, slot, key, label, lane, kind, rows, rowHeight, height };
}

/** Return the lanes that have events or samples, by process: threads, devices, links, memory. */
function lanesByProcess(trace: Trace, isUsed: (lane: number) => boolean): [number, number[]][] {
  const groups = new Map<number, number[]>();
  const sampled = new Set(trace.series.map((series) => series.lane));
  trace.records.lanes.forEach((lane, id) => {
    const isMemory = lane.kind === LaneKind.MEMORY && sampled.has(id);
    if (!isUsed(id) && !isMemory) return;
    const group = groups.get(lane.process);
    if (group) group.push(id);
    else groups.set(lane.process, [id]);
  });
  const { lanes } = trace.records;
  for (const group of groups.values()) group.sort((a, b) => lanes[a].kind - lanes[b].kind || a - b);
  return [...groups].sort((a, b) => a[0] - b[0]);
}

function processNote({ host, pid, clockError }: Process): string {
  const clock = clockError ? `, clock ±${Math.ceil(clockError / 1000)} µs` : "";
  return `${host ? `${host}, ` : ""}pid ${pid}${clock}`;
}

/** Return the item at a distance from the top of the layout. */
export function itemAt(layout: Layout, y: number): Item | null {
  return layout.items.find((item) => y >= item.y && y < item.y + item.height) ?? null;
}
