/** The tables of records: JSON whose form is checked, since files are untrusted. */

import type { Iteration, Lane, LaneKind, Node, Process, Step } from "../model/schema";
import { TraceError } from "./chunks";

/** All records of a trace; indices are ids. */
export interface Records {
  processes: Process[];
  lanes: Lane[];
  nodes: Node[];
  iterations: Iteration[];
  steps: Step[];
}

export function emptyRecords(): Records {
  const outside = { frame: "", number: 0, parent: 0 };
  return { processes: [], lanes: [], nodes: [], iterations: [outside], steps: [] };
}

/** Add the rows of a RECORDS chunk. Throws a TraceError if their form is unknown. */
export function addRecords(records: Records, payload: Uint8Array): void {
  const tables = parse(payload);
  for (const row of tables["processes"] ?? []) {
    records.processes.push({
      name: text(row[0]), pid: integer(row[1]), host: text(row[2]),
      clockOffset: integer(row[3] ?? 0), clockError: integer(row[4] ?? 0),
    });
  }
  for (const row of tables["lanes"] ?? []) {
    const kind = integer(row[1]);
    if (kind < 0 || kind > 3) throw new TraceError(`a lane has the unknown kind ${kind}`);
    records.lanes.push({ process: integer(row[0]), kind: kind as LaneKind, name: text(row[2]) });
  }
  for (const row of tables["nodes"] ?? []) {
    records.nodes.push({
      name: text(row[0]), op: text(row[1]), device: text(row[2]), line: text(row[3]),
      inputs: integers(row[4]), origins: texts(row[5]), crossing: integer(row[6]),
      members: integers(row[7]), outputBytes: integer(row[8]),
    });
  }
  for (const row of tables["inputs"] ?? []) {
    const node = records.nodes[integer(row[0])];
    if (!node) throw new TraceError(`inputs are those of the unknown node ${row[0]}`);
    node.inputs = integers(row[1]);
  }
  for (const row of tables["iterations"] ?? []) {
    records.iterations.push({
      frame: text(row[0]), number: integer(row[1]), parent: integer(row[2] ?? 0),
    });
  }
  for (const row of tables["steps"] ?? []) {
    records.steps.push({ process: integer(row[0]), label: text(row[1]), number: integer(row[2]) });
  }
}

type Row = readonly unknown[];

function parse(payload: Uint8Array): Record<string, Row[] | undefined> {
  let tables: unknown;
  try {
    tables = JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(payload));
  } catch (error) {
    throw new TraceError(`the records of a chunk cannot be read: ${String(error)}`);
  }
  const isObject = typeof tables === "object" && tables !== null && !Array.isArray(tables);
  if (!isObject || !Object.values(tables as object).every((rows) => isRows(rows))) {
    throw new TraceError("the records of a chunk must be an object of lists of lists");
  }
  return tables as Record<string, Row[]>;
}

function isRows(rows: unknown): rows is Row[] {
  return Array.isArray(rows) && rows.every(Array.isArray);
}

function text(value: unknown): string {
  if (typeof value !== "string") throw unknownForm("a string", value);
  return value;
}

function integer(value: unknown): number {
  if (typeof value !== "number" || !Number.isInteger(value)) throw unknownForm("an integer", value);
  return value;
}

function texts(value: unknown): string[] {
  if (!Array.isArray(value)) throw unknownForm("a list of strings", value);
  return value.map(text);
}

function integers(value: unknown): number[] {
  if (!Array.isArray(value)) throw unknownForm("a list of integers", value);
  return value.map(integer);
}

function unknownForm(expected: string, value: unknown): TraceError {
  return new TraceError(
    `the records of a chunk have an unknown form: expected ${expected}, got ${typeof value}`,
  );
}
