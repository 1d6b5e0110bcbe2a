/** Colors of the two themes. Fills are of medium lightness, so that one text color is readable. */

import type { Category } from "../analysis/critical_path";
import { Kind } from "../model/schema";
import type { Trace } from "../model/trace";

export interface Theme {
  isDark: boolean;
  background: string;
  band: string;
  text: string;
  faint: string;
  line: string;
  accent: string;
  critical: string;
  onFill: string;
  step: string;
}

export const LIGHT: Theme = {
  isDark: false, background: "#ffffff", band: "#f6f7f9", text: "#1f2933", faint: "#66727f",
  line: "#e3e7ec", accent: "#2563c9", critical: "#c2362b", onFill: "#14202b", step: "#dde3ea",
};

export const DARK: Theme = {
  isDark: true, background: "#15191e", band: "#1b2026", text: "#dfe5ec", faint: "#8f9baa",
  line: "#2c333c", accent: "#7db0ff", critical: "#ff7a6b", onFill: "#0f171f", step: "#8794a3",
};

const KERNELS = [
  "#8db4e2", "#86c5c4", "#a3cd9b", "#b3b1e0", "#c9b1dc", "#9fc3d8", "#bccb8f", "#94c9b0",
];

const KINDS: Readonly<Record<number, string>> = {
  [Kind.PHASE]: "#bcc5cf", [Kind.REGION]: "#6f9fd8", [Kind.GENERATED]: "#a9c8ec",
  [Kind.RECEIVE]: "#ecc27a", [Kind.TRANSFER]: "#d79bbd", [Kind.WAIT]: "#e3a968",
  [Kind.PYTHON]: "#d9cfae", [Kind.CHECKPOINT]: "#cfae98", [Kind.COPY]: "#7fc3bb",
  [Kind.BUFFER]: "#a8b7c7",
};

export const CATEGORY_COLORS: Readonly<Record<Category, string>> = {
  compute: "#7fabe0", "wait for peers": "#ecc27a", wire: "#d79bbd", queueing: "#e08f73",
  "wait for input": "#e3a968", Python: "#d9cfae", compile: "#b3b1e0", checkpoint: "#cfae98",
  idle: "#c3cad2",
};

/** Layers of the memory chart. */
export const LAYERS = [...KERNELS, "#c3cad2"];

export type ColorBy = "kind" | "op" | "scope";

/** Return a number that depends on nothing but the text. */
export function hash(text: string): number {
  let value = 2166136261;
  for (let i = 0; i < text.length; i++) value = Math.imul(value ^ text.charCodeAt(i), 16777619);
  return (value ^ (value >>> 15)) >>> 0;
}

/** The colors of the events of a trace, by index into `fills`. */
export class EventColors {
  readonly fills: string[];
  /** The fills as little-endian RGB. */
  readonly rgb: Uint32Array;
  private readonly ofNode: Uint8Array;

  constructor(private readonly trace: Trace, readonly by: ColorBy, readonly theme: Theme) {
    const kinds = Array.from({ length: 16 }, (_, kind) => KINDS[kind] ?? KERNELS[0]);
    kinds[Kind.STEP] = theme.step;
    this.fills = [...kinds, ...KERNELS];
    this.rgb = Uint32Array.from(this.fills, (fill) => {
      const value = parseInt(fill.slice(1), 16);
      return ((value & 255) << 16) | (value & 0xff00) | (value >>> 16);
    });
    this.ofNode = Uint8Array.from(trace.records.nodes, (node) => {
      const key = by === "scope" ? (node.name.split("/")[0] ?? "") : node.op;
      return 16 + (hash(key) % KERNELS.length);
    });
  }

  /** Return the index of the color of an event. */
  index(event: number): number {
    const kind = this.trace.columns.kind[event];
    const isColored = kind === Kind.KERNEL || (this.by !== "kind" && kind === Kind.REGION);
    return isColored ? (this.ofNode[this.trace.columns.node[event]] ?? 16) : kind & 15;
  }
}
