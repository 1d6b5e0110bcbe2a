/** Draws the timeline on a canvas. */

import type { CriticalPath } from "../analysis/critical_path";
import { memoryUse } from "../analysis/memory";
import { scopeAt } from "../analysis/scopes";
import type { Bins, LaneBins, Part, PartedSource } from "../load/parted";
import { upperBound } from "../model/rows";
import { Kind, LaneKind } from "../model/schema";
import type { Row, Trace } from "../model/trace";
import { CATEGORY_COLORS, EventColors, type ColorBy, type Theme } from "./colors";
import { itemAt, type Item, type Layout } from "./layout";
import { layoutRow, markEvents } from "./rows";
import { formatBytes, formatDuration, formatTime, printable } from "./units";
import { tickStep, type Viewport } from "./viewport";

export const RULER = 26;
export const PATH_ROW = 24;

/** A trace of the timeline. `shift` is added to its times. */
export interface Slot {
  trace: Trace;
  shift: number;
  path: CriticalPath | null;
  /** Events that match the search, or null without a search. */
  matches: Uint32Array | null;
  /** If `trace` is a part of a larger one: where it is, and what is known of the rest. */
  parted: Parted | null;
}

export interface Parted {
  source: PartedSource;
  /** The interval of the whole trace. */
  begin: number;
  end: number;
  /** The interval of which `Slot.trace` has all events. */
  focus: readonly [number, number];
  /** Another part, which is drawn besides it. */
  detail: Part | null;
  bins: Bins;
  isReading?: boolean;
}

/** Return the interval of a trace. */
export function intervalOf({ trace, parted }: Slot): [number, number] {
  return parted ? [parted.begin, parted.end] : [trace.begin, trace.end];
}

/** An event of a slot. */
export interface Selected {
  slot: number;
  event: number;
}

/** An arrow from the end of what was waited for to the start of what waited. */
export interface Arrow {
  slot: number;
  from: number;
  to: number;
  isLate: boolean;
}

/** All that the timeline shows. */
export interface Scene {
  slots: readonly Slot[];
  layout: Layout;
  view: Viewport;
  scroll: number;
  gutter: number;
  theme: Theme;
  colorBy: ColorBy;
  /** Number of name components to which scopes are collapsed; 0 for single nodes. */
  scopeDepth: number;
  selected: Selected | null;
  arrows: readonly Arrow[];
  hover: { x: number; y: number } | null;
  range: [number, number] | null;
}

const FONT = '"Inter", "Segoe UI", system-ui, sans-serif';
const HATCH_STEP = 6;

export class Timeline {
  private readonly context: CanvasRenderingContext2D;
  private readonly strip = document.createElement("canvas");
  private readonly colors = new WeakMap<Trace, EventColors>();
  private readonly images = new WeakMap<LaneBins, { theme: Theme; image: HTMLCanvasElement }>();
  private readonly labels = new Map<string, string>();
  private scopes = new WeakMap<Trace, { depth: number; names: string[] }>();

  constructor(private readonly canvas: HTMLCanvasElement) {
    this.context = canvas.getContext("2d", { alpha: false })!;
  }

  draw(scene: Scene): void {
    const ratio = window.devicePixelRatio || 1;
    const { clientWidth: width, clientHeight: height } = this.canvas;
    if (this.canvas.width !== Math.round(width * ratio) || this.canvas.height !== Math.round(height * ratio)) {
      this.canvas.width = Math.round(width * ratio);
      this.canvas.height = Math.round(height * ratio);
    }
    const { context: c } = this;
    c.setTransform(ratio, 0, 0, ratio, 0, 0);
    c.textBaseline = "middle";
    c.fillStyle = scene.theme.background;
    c.fillRect(0, 0, width, height);
    const top = headHeight(scene);
    this.clip(scene.gutter, top, width, height, () => {
      this.drawGrid(scene, top, width, height);
      for (const item of visibleItems(scene, top, height)) this.drawItem(scene, item, top, width);
      this.drawPath(scene, top);
      this.drawArrows(scene, top);
      this.drawSelection(scene, top);
    });
    this.drawGutter(scene, top, width, height);
    this.drawHead(scene, width);
    this.drawRange(scene, height);
    this.drawHover(scene, width, height);
  }

  private clip(x: number, y: number, right: number, bottom: number, body: () => void): void {
    const { context: c } = this;
    c.save();
    c.beginPath();
    c.rect(x, y, right - x, bottom - y);
    c.clip();
    body();
    c.restore();
  }

  /** Return the colors of a trace, which depend on the theme and on the choice of the toolbar. */
  private colorsOf({ theme, colorBy }: Scene, trace: Trace): EventColors {
    let colors = this.colors.get(trace);
    if (!colors || colors.theme !== theme || colors.by !== colorBy) {
      colors = new EventColors(trace, colorBy, theme);
      this.colors.set(trace, colors);
    }
    return colors;
  }

  private drawGrid(scene: Scene, top: number, width: number, height: number): void {
    const { context: c } = this;
    c.fillStyle = scene.theme.line;
    for (const { x } of ticks(scene)) c.fillRect(Math.round(scene.gutter + x), top, 1, height);
    for (const item of visibleItems(scene, top, height)) {
      const y = Math.round(item.y - scene.scroll + top);
      if (item.type === "lane") c.fillRect(0, y + item.height - 1, width, 0.5);
    }
  }

  private drawItem(scene: Scene, item: Item, top: number, width: number): void {
    const { context: c } = this;
    const y = Math.round(item.y - scene.scroll + top);
    if (item.type !== "lane") {
      c.fillStyle = scene.theme.band;
      c.fillRect(scene.gutter, y, width, item.height - 1);
      return;
    }
    const slot = scene.slots[item.slot];
    if (!slot.parted) return this.drawLane(scene, item, y, slot.trace);
    const { focus, detail, bins } = slot.parted;
    const [from, to] = [scene.view.begin - slot.shift, scene.view.end - slot.shift];
    const isWhole = [focus, detail ? [detail.begin, detail.end] : [0, 0]].some(([a, b]) => a <= from && to <= b);
    if (!isWhole) this.drawBins(scene, item, y, bins);
    if (detail && !(focus[0] <= from && to <= focus[1])) {
      this.drawPart(scene, item, y, detail.trace, [detail.begin, detail.end]);
    }
    this.drawPart(scene, item, y, slot.trace, focus);
  }

  /** Draw the events of a part over the bins of its interval. */
  private drawPart(scene: Scene, item: Item, y: number, trace: Trace, [begin, end]: readonly [number, number]): void {
    const { shift } = scene.slots[item.slot];
    const left = scene.gutter + Math.max(0, scene.view.x(begin + shift));
    const right = scene.gutter + Math.min(scene.view.width, scene.view.x(end + shift));
    if (right - left < 1) return;
    this.clip(left, y, right, y + item.height - 1, () => {
      this.context.fillStyle = scene.theme.background;
      this.context.fillRect(left, y, right - left, item.height - 1);
      this.drawLane(scene, item, y, trace);
    });
  }

  private drawLane(scene: Scene, item: Item, y: number, trace: Trace): void {
    const { context: c } = this;
    const slot = scene.slots[item.slot];
    if (item.kind === LaneKind.MEMORY) return this.drawMemory(scene, item, y, trace);
    const matches = trace === slot.trace ? slot.matches : null;
    if (matches) c.globalAlpha = 0.22;
    trace.laneRows[item.lane].forEach((row, k) => {
      const rowY = y + 2 + k * item.rowHeight;
      if (scene.scopeDepth && !item.isCollapsed) this.drawScopes(scene, item, trace, row, rowY);
      else this.drawRow(scene, item, trace, row, rowY);
    });
    c.globalAlpha = 1;
    if (matches) this.drawMatches(scene, item, y, matches);
  }

  /** Draw the busy share of each pixel of a lane, or the use of a memory. */
  private drawBins(scene: Scene, item: Item, y: number, bins: Bins): void {
    const lane = bins.lanes[item.lane];
    if (!lane) return;
    const { context: c } = this;
    const { view, gutter } = scene;
    const { shift } = scene.slots[item.slot];
    const perBin = (bins.end - bins.begin) / bins.count;
    const from = Math.max(0, Math.floor((view.begin - shift - bins.begin) / perBin));
    const to = Math.min(bins.count, Math.ceil((view.end - shift - bins.begin) / perBin));
    if (to <= from) return;
    const isMemory = item.kind === LaneKind.MEMORY;
    const fills = this.colorsOf(scene, scene.slots[item.slot].trace).fills;
    const image = this.imageOf(lane, isMemory, fills, scene.theme);
    const x = view.x(bins.begin + from * perBin + shift);
    const width = view.x(bins.begin + to * perBin + shift) - x;
    const height = item.height - (isMemory ? 9 : 7);
    c.imageSmoothingEnabled = false;
    c.drawImage(image, from, 0, to - from, image.height, gutter + x, y + item.height - 5 - height, width, height);
  }

  /** Return the bins of a lane as an image of one pixel per bin, which is drawn once. */
  private imageOf(lane: LaneBins, isMemory: boolean, fills: readonly string[], theme: Theme): HTMLCanvasElement {
    const known = this.images.get(lane);
    if (known?.theme === theme) return known.image;
    const image = document.createElement("canvas");
    image.width = lane.shares.length;
    image.height = isMemory ? 32 : 1;
    const c = image.getContext("2d")!;
    lane.shares.forEach((share, bin) => {
      if (!share) return;
      const size = isMemory ? (share / 255) * image.height : 1;
      c.fillStyle = isMemory ? fills[Kind.BUFFER] : fills[lane.kinds[bin]];
      c.globalAlpha = isMemory ? (theme.isDark ? 0.5 : 0.75) : Math.max(0.3, share / 255);
      c.fillRect(bin, image.height - size, 1, size);
    });
    this.images.set(lane, { theme, image });
    return image;
  }

  private drawRow(scene: Scene, item: Item, trace: Trace, row: Row, y: number): void {
    const { shift } = scene.slots[item.slot];
    const colors = this.colorsOf(scene, trace);
    const { context: c } = this;
    const height = item.rowHeight - (item.isCollapsed ? 1 : 2);
    const pixels = Math.ceil(scene.view.width) + 1;
    const image = new ImageData(pixels, 1);
    const strip = new Uint32Array(image.data.buffer);
    const boxes: [number, number, number][] = [];
    const isUsed = layoutRow(trace, row, shift, scene.view, colors, strip, (event, x, width) => {
      boxes.push([event, x, width]);
    });
    if (isUsed) {
      if (this.strip.width < pixels) this.strip.width = pixels;
      const strips = this.strip.getContext("2d")!;
      strips.putImageData(image, 0, 0);
      const offset = (Math.floor(scene.view.begin / scene.view.nsPerPixel) - scene.view.begin / scene.view.nsPerPixel);
      c.imageSmoothingEnabled = false;
      c.drawImage(this.strip, 0, 0, pixels, 1, scene.gutter + offset, y, pixels, height);
    }
    for (const [event, x, width] of boxes) {
      c.fillStyle = colors.fills[colors.index(event)];
      this.drawBox(scene, trace, event, x, y, width, height, trace.nodeOf(event).name);
    }
  }

  /** Draw one box with its marks and its label. The fill is set. */
  private drawBox(
    scene: Scene, trace: Trace, event: number, x: number, y: number, width: number, height: number,
    name: string,
  ): void {
    const { context: c } = this;
    const fill = c.fillStyle;
    const left = Math.max(-4, x);
    const right = Math.min(scene.view.width + 4, x + width);
    const shown = Math.max(1, right - left - (width > 4 ? 1 : 0));
    c.fillRect(scene.gutter + left, y, shown, height);
    if (height < 10) return;
    const isEstimated = trace.isEstimated(event);
    if (isEstimated) this.hatch(scene.gutter + left, y, shown, height, scene.theme);
    if (trace.hasFailed(event)) {
      c.fillStyle = scene.theme.critical;
      c.fillRect(scene.gutter + left, y + height - 3, shown, 3);
    }
    if (shown < 26) return;
    const label = this.shorten(`${isEstimated ? "≈ " : ""}${printable(name)}`, shown - 10, name);
    if (!label) return;
    c.font = `11px ${FONT}`;
    c.textAlign = "left";
    if (isEstimated) {
      // The hatching does not run through the letters.
      c.fillStyle = fill;
      c.fillRect(scene.gutter + Math.max(left, 0) + 2, y + 1, c.measureText(label).width + 6, height - 2);
    }
    c.fillStyle = scene.theme.onFill;
    c.fillText(label, Math.round(scene.gutter + Math.max(left, 0)) + 5, y + height / 2 + 0.5);
  }

  private hatch(x: number, y: number, width: number, height: number, theme: Theme): void {
    const { context: c } = this;
    c.save();
    c.beginPath();
    c.rect(x, y, width, height);
    c.clip();
    c.strokeStyle = theme.isDark ? "rgba(0,0,0,.38)" : "rgba(20,32,43,.32)";
    c.lineWidth = 1;
    c.beginPath();
    const first = Math.floor((x - height) / HATCH_STEP) * HATCH_STEP;
    for (let at = first; at < x + width; at += HATCH_STEP) {
      c.moveTo(at, y + height);
      c.lineTo(at + height, y);
    }
    c.stroke();
    c.restore();
  }

  /** Return a name that fits: the last components of a path are kept. */
  private shorten(text: string, width: number, name: string): string {
    const most = Math.floor(width / 5.9);
    if (text.length <= most) return text;
    if (most < 3) return "";
    const key = `${most} ${text}`;
    let label = this.labels.get(key);
    if (label === undefined) {
      const last = printable(name.slice(name.lastIndexOf("/") + 1));
      const mark = text.startsWith("≈ ") ? "≈ " : "";
      const short = last.length + mark.length < text.length ? mark + last : text;
      label = short.length <= most ? short : `${short.slice(0, most - 1)}…`;
      if (this.labels.size > 20000) this.labels.clear();
      this.labels.set(key, label);
    }
    return label;
  }

  /** Draw neighbors with one name scope as one box. */
  private drawScopes(scene: Scene, item: Item, trace: Trace, row: Row, y: number): void {
    const { shift } = scene.slots[item.slot];
    const colors = this.colorsOf(scene, trace);
    const { columns } = trace;
    const names = this.scopeNames(trace, scene.scopeDepth);
    const [first, last] = trace.overlapping(row, scene.view.begin - shift, scene.view.end - shift);
    if (last - first > 200_000) return this.drawRow(scene, item, trace, row, y);
    for (let i = first; i < last; ) {
      const name = names[columns.node[i]] ?? "";
      const isGrouped = columns.kind[i] === Kind.KERNEL || columns.kind[i] === Kind.REGION;
      let j = i + 1;
      while (
        isGrouped && j < last && names[columns.node[j]] === name && columns.step[j] === columns.step[i]
      ) j++;
      const x = scene.view.x(columns.start[i] + shift);
      const width = (trace.endOf(j - 1) - columns.start[i]) / scene.view.nsPerPixel;
      const fill = colors.fills[colors.index(i)];
      this.context.fillStyle = fill;
      const height = item.rowHeight - 2;
      this.drawBox(scene, trace, i, x, y, Math.max(0.7, width), height, j > i + 1 ? `${name} (${j - i})` : name);
      i = j;
    }
  }

  private scopeNames(trace: Trace, depth: number): string[] {
    let cached = this.scopes.get(trace);
    if (!cached || cached.depth !== depth) {
      cached = { depth, names: trace.records.nodes.map((node) => scopeAt(node.name, depth)) };
      this.scopes.set(trace, cached);
    }
    return cached.names;
  }

  private drawMatches(scene: Scene, item: Item, y: number, matches: Uint32Array): void {
    const { trace, shift } = scene.slots[item.slot];
    const colors = this.colorsOf(scene, trace);
    item.rows.forEach((row, k) => {
      const rowY = y + 2 + k * item.rowHeight;
      markEvents(trace, row, shift, scene.view, matches, (event, x, width) => {
        this.context.fillStyle = colors.fills[colors.index(event)];
        const height = item.rowHeight - (item.isCollapsed ? 1 : 2);
        this.drawBox(scene, trace, event, x, rowY, width, height, trace.nodeOf(event).name);
        this.context.fillStyle = scene.theme.accent;
        this.context.fillRect(scene.gutter + x, rowY + height - 2, Math.max(1.5, width - 1), 2);
      });
    });
  }

  /** Draw the bytes in use of a memory lane. */
  private drawMemory(scene: Scene, item: Item, y: number, trace: Trace): void {
    const { shift } = scene.slots[item.slot];
    const { view } = scene;
    const curve = memoryCurve(trace, item.lane);
    if (!curve) return;
    const { context: c } = this;
    const height = item.height - 9;
    const bottom = y + item.height - 5;
    const { time, bytes, peak } = curve;
    c.fillStyle = this.colorsOf(scene, trace).fills[Kind.BUFFER];
    c.globalAlpha = scene.theme.isDark ? 0.5 : 0.75;
    let i = Math.max(0, upperBound(time, view.begin - shift, 0, time.length) - 1);
    for (let x = 0; x < view.width && i < time.length; x++) {
      const end = view.time(x + 1) - shift;
      if (end < time[0]) continue;
      const next = upperBound(time, end, i, Math.min(time.length, i + 4096));
      let most = bytes[i];
      const step = Math.max(1, Math.floor((next - i) / 16));
      for (let k = i; k < next; k += step) most = Math.max(most, bytes[k]);
      i = next - i >= 4096 ? upperBound(time, end, next, time.length) - 1 : Math.max(i, next - 1);
      const size = (most / (peak || 1)) * height;
      c.fillRect(scene.gutter + x, bottom - size, 1, size);
      if (i === time.length - 1 && time[i] < view.time(x) - shift) break;
    }
    c.globalAlpha = 1;
    c.fillStyle = scene.theme.line;
    c.fillRect(scene.gutter, bottom - height, view.width, 0.5);
  }

  private drawPath(scene: Scene, top: number): void {
    const { context: c } = this;
    scene.slots.forEach(({ trace, path, shift }, slot) => {
      if (!path) return;
      c.strokeStyle = scene.theme.critical;
      c.lineWidth = 1.5;
      c.lineJoin = "round";
      const points: [number, number, number, number][] = [];
      // Of an event that waits for a long time, only the part that the path goes through counts.
      for (const { event, start, end } of path.segments) {
        const [from, to] = [Math.max(start, trace.columns.start[event]), Math.min(end, trace.endOf(event))];
        const box = to > from && trace.columns.kind[event] !== Kind.STEP && eventBox(scene, slot, event);
        if (!box) continue;
        const x0 = scene.gutter + scene.view.x(from + shift);
        const x1 = scene.gutter + scene.view.x(to + shift);
        points.push([x0, Math.max(x1, x0 + 1), box.y + top, box.height]);
      }
      c.beginPath();
      points.forEach(([, x1, y, height], i) => {
        const following = points[i + 1];
        if (!following || following[2] === y) return;
        const from = Math.min(x1, following[0]);
        c.moveTo(Math.round(from) + 0.5, y + height / 2);
        c.lineTo(Math.round(from) + 0.5, following[2] + following[3] / 2);
        if (following[0] > from + 1) c.lineTo(following[0], following[2] + following[3] / 2);
      });
      c.stroke();
      const right = scene.gutter + scene.view.width;
      for (const [x0, x1, y, height] of points) {
        if (x1 < scene.gutter || x0 > right) continue;
        const left = Math.max(x0, scene.gutter - 4);
        const width = Math.min(x1, right + 4) - left;
        if (width < 4) {
          c.fillStyle = scene.theme.critical;
          c.fillRect(left, y, Math.max(1.5, width), height);
        } else c.strokeRect(left + 0.5, y + 0.5, width - 1.5, height - 1);
      }
    });
  }

  private drawArrows(scene: Scene, top: number): void {
    const { context: c } = this;
    for (const { slot, from, to, isLate } of scene.arrows) {
      const { trace, shift } = scene.slots[slot];
      const [a, b] = [eventBox(scene, slot, from), eventBox(scene, slot, to)];
      if (!a || !b) continue;
      const end = trace.columns.kind[to] === Kind.RECEIVE && trace.endOf(from) > trace.columns.start[to]
        ? trace.endOf(to) : trace.columns.start[to];
      const x0 = scene.gutter + scene.view.x(trace.endOf(from) + shift);
      const x1 = scene.gutter + scene.view.x(end + shift);
      const y0 = a.y + top + a.height / 2;
      const y1 = b.y + top + b.height / 2;
      if (Math.max(x0, x1) < scene.gutter || Math.min(x0, x1) > scene.gutter + scene.view.width) continue;
      c.strokeStyle = c.fillStyle = isLate ? scene.theme.accent : scene.theme.faint;
      c.lineWidth = isLate ? 1.75 : 1;
      const bend = Math.max(16, Math.min(80, (x1 - x0) / 2));
      c.beginPath();
      c.moveTo(x0, y0);
      c.bezierCurveTo(x0 + bend, y0, x1 - bend, y1, x1 - 4, y1);
      c.stroke();
      c.beginPath();
      c.moveTo(x1, y1);
      c.lineTo(x1 - 7, y1 - 4);
      c.lineTo(x1 - 7, y1 + 4);
      c.fill();
    }
  }

  private drawSelection(scene: Scene, top: number): void {
    if (!scene.selected) return;
    const { slot, event } = scene.selected;
    const box = eventBox(scene, slot, event);
    if (!box) return;
    const { trace, shift } = scene.slots[slot];
    const { context: c } = this;
    const x = scene.gutter + scene.view.x(trace.columns.start[event] + shift);
    const end = scene.gutter + scene.view.x(trace.endOf(event) + shift);
    const ready = scene.gutter + scene.view.x(trace.readyOf(event) + shift);
    const left = Math.max(x, scene.gutter - 4);
    const width = Math.max(3, Math.min(end, scene.gutter + scene.view.width + 4) - left);
    c.strokeStyle = scene.theme.accent;
    c.lineWidth = 2;
    c.strokeRect(left, box.y + top, width, box.height);
    if (x - ready > 1) {
      c.lineWidth = 1;
      c.setLineDash([3, 2]);
      c.beginPath();
      c.moveTo(Math.max(ready, scene.gutter), box.y + top + box.height + 1);
      c.lineTo(x, box.y + top + box.height + 1);
      c.stroke();
      c.setLineDash([]);
      c.strokeRect(Math.round(ready) + 0.5, box.y + top + 4, 0, box.height - 8);
    }
  }

  private drawGutter(scene: Scene, top: number, width: number, height: number): void {
    const { context: c } = this;
    const { gutter, theme } = scene;
    if (gutter > 0) {
      c.fillStyle = theme.background;
      c.fillRect(0, top, gutter, height);
    }
    this.clip(0, top, gutter > 0 ? gutter : width, height, () => {
      for (const item of visibleItems(scene, top, height)) {
        const y = Math.round(item.y - scene.scroll + top);
        if (item.type === "lane") this.drawLaneLabel(scene, item, y);
        else this.drawHeading(scene, item, y);
      }
    });
    this.clip(gutter, top, width, height, () => {
      for (const item of visibleItems(scene, top, height)) {
        if (item.type !== "lane" && item.note) {
          c.fillStyle = theme.faint;
          c.font = `11px ${FONT}`;
          c.textAlign = "left";
          c.fillText(printable(item.note), gutter + 8, Math.round(item.y - scene.scroll + top) + item.height / 2);
        }
      }
    });
    c.fillStyle = theme.line;
    c.fillRect(gutter - 1, 0, 1, height);
  }

  private drawHeading(scene: Scene, item: Item, y: number): void {
    const { context: c } = this;
    c.fillStyle = scene.theme.band;
    c.fillRect(0, y, scene.gutter, item.height - 1);
    this.triangle(8, y + item.height / 2, item.isCollapsed, scene.theme.faint);
    c.fillStyle = scene.theme.text;
    c.font = `600 12px ${FONT}`;
    c.textAlign = "left";
    c.fillText(this.fit(printable(item.label), scene.gutter - 32), 22, y + item.height / 2);
  }

  private drawLaneLabel(scene: Scene, item: Item, y: number): void {
    const { context: c } = this;
    this.triangle(16, y + Math.min(item.height / 2, 11), item.isCollapsed, scene.theme.faint);
    c.fillStyle = scene.theme.text;
    c.font = `11px ${FONT}`;
    c.textAlign = "left";
    c.fillText(this.fit(printable(item.label), scene.gutter - 40), 28, y + Math.min(item.height / 2, 11));
    if (item.kind === LaneKind.MEMORY && !item.isCollapsed) {
      const curve = memoryCurve(scene.slots[item.slot].trace, item.lane);
      c.fillStyle = scene.theme.faint;
      if (curve) c.fillText(`peak ${formatBytes(curve.peak)}`, 28, y + 27);
    }
  }

  private triangle(x: number, y: number, isCollapsed: boolean, color: string): void {
    const { context: c } = this;
    c.fillStyle = color;
    c.beginPath();
    if (isCollapsed) {
      c.moveTo(x, y - 4);
      c.lineTo(x + 5, y);
      c.lineTo(x, y + 4);
    } else {
      c.moveTo(x - 1.5, y - 2.5);
      c.lineTo(x + 6.5, y - 2.5);
      c.lineTo(x + 2.5, y + 3);
    }
    c.fill();
  }

  /** Return the end of a text that fits into a width; the beginning of a path matters less. */
  private fit(text: string, width: number): string {
    const { context: c } = this;
    const measured = c.measureText(text).width;
    if (measured <= width || width <= 0) return text;
    const most = Math.max(2, Math.floor((text.length * width) / measured) - 2);
    return text.startsWith("/") ? `…${text.slice(-most)}` : `${text.slice(0, most)}…`;
  }

  private drawHead(scene: Scene, width: number): void {
    const { context: c } = this;
    const { theme, view, gutter } = scene;
    const top = headHeight(scene);
    c.fillStyle = theme.background;
    c.fillRect(0, 0, width, top);
    c.fillStyle = theme.faint;
    c.font = `11px ${FONT}`;
    c.textAlign = "left";
    c.fillText(this.fit(formatDuration(view.end - view.begin), gutter - 16), 8, RULER / 2);
    this.clip(gutter, 0, width, top, () => {
      for (const { x, label } of ticks(scene)) {
        c.fillStyle = theme.line;
        c.fillRect(Math.round(gutter + x), 6, 1, RULER - 6);
        c.fillStyle = theme.faint;
        c.fillText(label, Math.round(gutter + x) + 4, RULER / 2);
      }
      this.drawSteps(scene);
    });
    let y = RULER;
    scene.slots.forEach((slot, index) => {
      if (!slot.path) return;
      this.drawPathRow(scene, slot, y, width, scene.slots.length > 1 ? `Critical path ${"AB"[index]}` : "Critical path");
      y += PATH_ROW;
    });
    c.fillStyle = theme.line;
    c.fillRect(0, top - 1, width, 1);
  }

  /** Mark the starts of steps on the ruler. */
  private drawSteps(scene: Scene): void {
    const { context: c } = this;
    const { trace, shift, parted } = scene.slots[0];
    const { steps } = parted?.source.base ?? trace;
    c.fillStyle = scene.theme.accent;
    let last = -Infinity;
    for (const step of steps) {
      const x = scene.view.x(step.start + shift);
      if (x - last < 3) continue;
      last = x;
      if (x < 0 || x > scene.view.width) continue;
      c.fillRect(scene.gutter + x, RULER - 5, 1, 4);
    }
  }

  private drawPathRow(scene: Scene, slot: Slot, y: number, width: number, title: string): void {
    const { context: c } = this;
    const { theme, view, gutter } = scene;
    c.fillStyle = theme.band;
    c.fillRect(0, y, width, PATH_ROW);
    c.fillStyle = theme.critical;
    c.font = `600 11px ${FONT}`;
    c.textAlign = "left";
    c.fillText(this.fit(title, gutter - 12), 8, y + PATH_ROW / 2);
    this.clip(gutter, y, width, y + PATH_ROW, () => {
      for (const { start, end, category, event } of slot.path!.segments) {
        const x0 = Math.max(-2, view.x(start + slot.shift));
        const x1 = Math.min(view.width + 2, view.x(end + slot.shift));
        if (x1 < 0 || x0 > view.width) continue;
        c.fillStyle = CATEGORY_COLORS[category];
        c.fillRect(gutter + x0, y + 4, Math.max(0.75, x1 - x0 - (x1 - x0 > 4 ? 1 : 0)), PATH_ROW - 8);
        if (x1 - x0 < 30) continue;
        const name = printable(slot.trace.nodeOf(event).name);
        const mark = slot.trace.isEstimated(event) ? "≈ " : "";
        const text = category === "compute" ? mark + name : `${mark}${category}: ${name}`;
        const label = this.shorten(text, x1 - x0 - 10, name);
        c.fillStyle = theme.onFill;
        c.font = `11px ${FONT}`;
        c.fillText(label, gutter + Math.max(0, x0) + 5, y + PATH_ROW / 2 + 0.5);
      }
    });
  }

  private drawRange(scene: Scene, height: number): void {
    if (!scene.range) return;
    const { context: c } = this;
    const [a, b] = scene.range.map((time) => scene.gutter + scene.view.x(time));
    const left = Math.max(scene.gutter, Math.min(a, b));
    const right = Math.max(a, b);
    if (right < scene.gutter) return;
    c.fillStyle = scene.theme.isDark ? "rgba(125,176,255,.14)" : "rgba(37,99,201,.09)";
    c.fillRect(left, 0, right - left, height);
    c.fillStyle = scene.theme.accent;
    c.fillRect(left, 0, 1, height);
    c.fillRect(right, 0, 1, height);
    c.font = `600 11px ${FONT}`;
    c.textAlign = "center";
    const label = formatDuration(Math.abs(scene.range[1] - scene.range[0]));
    const middle = (left + right) / 2;
    const wide = c.measureText(label).width + 12;
    c.fillStyle = scene.theme.background;
    c.fillRect(middle - wide / 2, 4, wide, 18);
    c.fillStyle = scene.theme.accent;
    c.fillText(label, middle, 13);
  }

  private drawHover(scene: Scene, width: number, height: number): void {
    const { hover, gutter, theme } = scene;
    if (!hover || hover.x < gutter || hover.x > width) return;
    this.context.fillStyle = theme.faint;
    this.context.globalAlpha = 0.5;
    this.context.fillRect(Math.round(hover.x), 0, 1, height);
    this.context.globalAlpha = 1;
  }
}

/** Return the height of the ruler and the critical paths. */
export function headHeight(scene: Scene): number {
  return RULER + PATH_ROW * scene.slots.filter((slot) => slot.path).length;
}

function visibleItems(scene: Scene, top: number, height: number): Item[] {
  const low = scene.scroll;
  const high = scene.scroll + height - top;
  return scene.layout.items.filter((item) => item.y + item.height >= low && item.y <= high);
}

/** Return the ticks of the ruler, relative to the zero of time. */
function ticks(scene: Scene): { x: number; label: string }[] {
  const { view } = scene;
  const step = tickStep(view.nsPerPixel, 110);
  const zero = view.lowest;
  const result = [];
  const first = Math.ceil((view.begin - zero) / step);
  for (let k = first; zero + k * step <= view.end; k++) {
    result.push({ x: view.x(zero + k * step), label: formatTime(k * step, step) });
  }
  return result;
}

/** Return the vertical place of an event below the head; null if its lane is hidden. */
export function eventBox(scene: Scene, slot: number, event: number): { y: number; height: number } | null {
  const row = scene.slots[slot].trace.rowOf(event);
  const item = scene.layout.items.find((item) => item.slot === slot && item.lane === row.lane);
  if (!item) return null;
  const y = Math.round(item.y - scene.scroll) + 2 + row.depth * item.rowHeight;
  if (item.kind === LaneKind.MEMORY) return { y, height: item.height - 6 };
  return { y, height: item.rowHeight - (item.isCollapsed ? 1 : 2) };
}

export interface Hit {
  item: Item | null;
  /** An event of `trace`. */
  event: number | null;
  trace: Trace | null;
  /** True if the trace is not that of the slot but the part besides it. */
  isDetail: boolean;
}

/** Return the event at a point of the canvas, the heading, or the lane. */
export function hit(scene: Scene, x: number, y: number): Hit {
  const item = itemAt(scene.layout, y - headHeight(scene) + scene.scroll);
  const none = { item, event: null, trace: null, isDetail: false };
  if (!item || item.type !== "lane" || x < scene.gutter) return none;
  if (item.kind === LaneKind.MEMORY) return none;
  const inside = y - headHeight(scene) + scene.scroll - item.y - 2;
  const { trace: focus, shift, parted } = scene.slots[item.slot];
  const time = scene.view.time(x - scene.gutter) - shift;
  const isDetail = Boolean(parted?.detail) && !(parted!.focus[0] <= time && time <= parted!.focus[1]);
  const trace = isDetail ? parted!.detail!.trace : focus;
  const row = trace.laneRows[item.lane][Math.floor(inside / item.rowHeight)];
  if (!row) return none;
  const slack = 3 * scene.view.nsPerPixel;
  const [from, to] = trace.overlapping(row, time - slack, time + slack);
  let nearest: number | null = null;
  let distance = Infinity;
  for (let i = from; i < Math.min(to, from + 4096); i++) {
    const d = Math.max(trace.columns.start[i] - time, time - trace.endOf(i), 0);
    if (d < distance && d <= slack) [nearest, distance] = [i, d];
  }
  return { item, event: nearest, trace, isDetail };
}

interface Curve {
  time: Float64Array;
  bytes: Float64Array;
  peak: number;
}

const curves = new WeakMap<Trace, Map<number, Curve | null>>();

/** Return the bytes in use over time: those of the allocator, or else those of the buffers. */
function memoryCurve(trace: Trace, lane: number): Curve | null {
  let lanes = curves.get(trace);
  if (!lanes) curves.set(trace, (lanes = new Map()));
  let curve = lanes.get(lane);
  if (curve === undefined) lanes.set(lane, (curve = makeCurve(trace, lane)));
  return curve;
}

function makeCurve(trace: Trace, lane: number): Curve | null {
  const series = trace.series.find((series) => series.lane === lane && series.series === 0);
  if (series) {
    let peak = 0;
    for (const value of series.value) if (value > peak) peak = value;
    return { time: series.time, bytes: series.value, peak };
  }
  const use = memoryUse(trace, lane);
  return use.time.length ? use : null;
}
