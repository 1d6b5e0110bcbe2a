/** The records of a trace: the counterpart of `weft_trace/schema.py`, which describes the fields. */

export enum Kind {
  STEP = 0,
  PHASE = 1,
  KERNEL = 2,
  REGION = 3,
  GENERATED = 4,
  RECEIVE = 5,
  TRANSFER = 6,
  WAIT = 7,
  PYTHON = 8,
  CHECKPOINT = 9,
  COPY = 10,
  BUFFER = 11,
}

export const KIND_NAMES: readonly string[] = [
  "step", "phase", "kernel", "region", "generated kernel", "receive", "transfer", "wait", "python",
  "checkpoint", "copy", "buffer",
];

export const ESTIMATED = 1;
export const FAILED = 2;

export enum LaneKind {
  THREAD = 0,
  DEVICE = 1,
  LINK = 2,
  MEMORY = 3,
}

export enum Crossing {
  SAME = 0,
  PREVIOUS = 1,
  INNER = 2,
}

export const NO_STEP = 0xffffffff;

export interface Process {
  name: string;
  pid: number;
  host: string;
  clockOffset: number;
  clockError: number;
}

export interface Lane {
  process: number;
  kind: LaneKind;
  name: string;
}

export interface Node {
  name: string;
  op: string;
  device: string;
  line: string;
  inputs: readonly number[];
  origins: readonly string[];
  crossing: Crossing;
  members: readonly number[];
  outputBytes: number;
}

export interface Iteration {
  frame: string;
  number: number;
  parent: number;
}

export interface Step {
  process: number;
  label: string;
  number: number;
}
