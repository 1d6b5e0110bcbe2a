// Tests of lib/core.mjs. Those of whole files read the folder WEFT_TRACES, which
// tests/trace/test_page.py fills: truth.json names trace files and their true critical paths.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { crc32 as zlibCrc32, deflateSync } from "node:zlib";
import * as core from "../lib/core.mjs";

const folder = process.env.WEFT_TRACES;
const needsTraces = { skip: folder ? false : "WEFT_TRACES is not set" };
const truth = () => JSON.parse(readFileSync(join(folder, "truth.json"), "utf8"));
const bytesOf = (name) => new Uint8Array(readFileSync(join(folder, name)));

/** Return a chunk with a payload, as `weft_trace.chunks.encode_chunk` writes it. */
function chunk(type, payload, { rows = 0, first = 0n, size = payload.length, packed = false } = {}) {
  const stored = packed ? deflateSync(payload) : payload;
  const header = Buffer.alloc(40);
  header.write("CHNK", "latin1");
  header.writeUInt8(type, 8);
  header.writeUInt8(Number(packed), 9);
  header.writeUInt32LE(stored.length, 12);
  header.writeUInt32LE(size, 16);
  header.writeUInt32LE(rows, 20);
  header.writeBigInt64LE(first, 24);
  header.writeBigInt64LE(first, 32);
  const all = Buffer.concat([header, stored]);
  all.writeUInt32LE(core.crc32(all.subarray(8)), 4);
  return all;
}

function file(...chunks) {
  const header = Buffer.alloc(16);
  header.write("WEFTTRC\n", "latin1");
  header.writeUInt32LE(2, 8);
  return new Uint8Array(Buffer.concat([header, ...chunks, chunk(7, Buffer.alloc(0))]));
}

const records = (tables) => chunk(1, Buffer.from(JSON.stringify(tables)));

test("the checksum is that of zlib, also in parts", () => {
  const bytes = new Uint8Array(1003).map((_, i) => (i * 37) ^ (i >> 3));
  assert.equal(core.crc32(new TextEncoder().encode("123456789")), 0xcbf43926);
  if (zlibCrc32) assert.equal(core.crc32(bytes), zlibCrc32(bytes));
  assert.equal(core.crc32(bytes.subarray(501), core.crc32(bytes.subarray(0, 501))), core.crc32(bytes));
});

test("events inside others are placed below them", () => {
  //      0: [0, 10)   1: [1, 3)   2: [2, 3)   3: [5, 12) overlaps 0   4: [10, 11)
  const start = Float64Array.of(0, 1, 2, 5, 10);
  const duration = Float64Array.of(10, 2, 1, 7, 1);
  assert.deepEqual([...core.assignRows(start, duration, 0, 5)], [0, 1, 2, 1, 2]);
});

test("events are sorted by start, and longer ones come first", () => {
  const random = (k) => Math.floor(((k * 7919) % 997) / 10);
  const start = Float64Array.from({ length: 500 }, (_, k) => random(k));
  const duration = Float64Array.from({ length: 500 }, (_, k) => random(k + 31));
  const order = [...core.sortOrder(start, duration, 0, 500)];
  assert.deepEqual([...order].sort((a, b) => a - b), [...Array(500).keys()]);
  for (let i = 1; i < 500; i++) {
    const [a, b] = [order[i - 1], order[i]];
    assert.ok(start[a] < start[b] || (start[a] === start[b] && duration[a] >= duration[b]));
  }
  assert.equal(core.sortOrder(Float64Array.of(1, 2, 3), new Float64Array(3), 0, 3), null);
});

test("times and sizes have units", () => {
  assert.deepEqual(
    [0, 7, 999, 1000, 1250, 99_960, 1.5e6, 2e9, 90e9].map(core.formatDuration),
    ["0 ns", "7 ns", "999 ns", "1.00 µs", "1.25 µs", "100.0 µs", "1.50 ms", "2.00 s", "1.50 min"],
  );
  assert.deepEqual([-1, 0, 999, 1500, 2e6, 1.234e10].map(core.formatBytes), ["unknown", "0 B", "999 B", "1.50 kB", "2.00 MB", "12.3 GB"]);
  assert.equal(core.formatTime(1_500_000, 500_000), "1.5 ms");
});

test("scopes are the first components of names", () => {
  assert.deepEqual([1, 2, 3, 4].map((depth) => core.scopeAt("a/b/c", depth)), ["a", "a/b", "a/b/c", "a/b/c"]);
});

test("foreign and newer files are refused with a reason", async () => {
  await assert.rejects(core.decodeTrace("x.png", new TextEncoder().encode("PNG")), /x.png is not a trace of weft/);
  const newer = file();
  newer[8] = 9;
  await assert.rejects(core.decodeTrace("x", newer), /version 9.*reads version 2.*newer weftml-trace/);
  const older = file();
  older[8] = 1;
  await assert.rejects(core.decodeTrace("x", older), /version 1.*never released.*Record the trace again/);
});

test("a bomb is not decompressed further than the header says", async () => {
  const bomb = chunk(2, Buffer.alloc(1 << 24), { rows: 1, size: 1000, packed: true });
  const trace = await core.decodeTrace("x", file(records({ processes: [["p", 1, "h"]] }), bomb));
  assert.match(trace.warnings[0], /cannot be decompressed/);
  assert.equal(trace.records.processes.length, 1);
});

test("records of an unknown form are refused, and what comes before is kept", async () => {
  const bad = [
    { nodes: [["x"]] }, { lanes: [[0, 9, "x"]] }, { steps: "x" }, [], { inputs: [[5, []]] },
    { nodes: [["n", "op", "", "", [], [1], 0, [], -1]] },
  ];
  for (const tables of bad) {
    const trace = await core.decodeTrace("x", file(records({ processes: [["p", 1, "h"]] }), records(tables)));
    assert.equal(trace.warnings.length, 1, JSON.stringify(tables));
    assert.equal(trace.records.processes.length, 1);
    assert.equal(trace.columns.count, 0);
  }
});

test("a recording that was not closed has a warning", async () => {
  const closed = file(records({ processes: [["p", 1, "h"]] }));
  const { warnings } = await core.decodeTrace("x", closed.subarray(0, closed.length - 40));
  assert.match(warnings.join(), /not closed/);
  assert.deepEqual((await core.decodeTrace("x", closed)).warnings, []);
});

test("columns that do not fit are damage", async () => {
  for (const payload of [[], [11], [11, 3, 0, 0, 0, 0, 0, 0, 0, 0], [3]]) {
    const trace = await core.decodeTrace("x", file(chunk(2, Buffer.from(payload), { rows: 100 })));
    assert.match(trace.warnings[0], /column/);
  }
});

test("critical paths are the true ones", needsTraces, async () => {
  for (const { name, paths, step_ns: lengths } of truth()) {
    const trace = await core.decodeTrace(name, bytesOf(name));
    assert.deepEqual(trace.warnings, []);
    paths.forEach((path, k) => {
      const found = core.findCriticalPath(new core.StepExecutions(trace, trace.steps[k]));
      const keys = found.events.map((e) => [trace.columns.iteration[e], trace.columns.node[e]]);
      assert.deepEqual(keys, path, `${name}, step ${k}`);
      const total = Object.values(found.totals).reduce((a, b) => a + b);
      assert.equal(total, lengths[k]);
      let time = found.step.start;
      for (const { start, end } of found.segments) {
        assert.equal(start, time);
        time = end;
      }
    });
  }
});

test("columns are those that Python reads", needsTraces, async () => {
  const [{ name, sums, samples }] = truth();
  const trace = await core.decodeTrace(name, bytesOf(name));
  const values = trace.series.flatMap((series) => [...series.value]);
  assert.equal(values.reduce((total, value) => total + value, 0), samples);
  assert.ok(trace.series.every((series) => Math.min(...series.value) >= 0));
  const { columns } = trace;
  const sum = (column) => column.reduce((total, value) => total + BigInt(value), 0n);
  const base = trace.origin * BigInt(columns.count);
  assert.equal(columns.count, sums.count);
  assert.equal(sum(columns.start) + base, BigInt(sums.start));
  assert.equal(sum(columns.start) + base + sum(columns.duration), BigInt(sums.end));
  assert.equal(sum(columns.start) + base - sum(columns.delay), BigInt(sums.ready));
  for (const key of ["kind", "flags", "node", "iteration"]) {
    assert.equal(sum(columns[key]), BigInt(sums[key]), key);
  }
  assert.equal(sum(columns.outputBytes), BigInt(sums.output_bytes));
});

test("a damaged file is read as far as it is whole", needsTraces, async () => {
  const [{ name }] = truth();
  const bytes = bytesOf(name);
  const whole = await core.decodeTrace(name, bytes);
  const torn = await core.decodeTrace(name, bytes.subarray(0, bytes.length - 50));
  assert.match(torn.warnings[0], /the last \d+ bytes, from offset \d+, were not read: the file ends inside a chunk/);
  assert.ok(torn.columns.count <= whole.columns.count);
  for (let at = 20; at < bytes.length; at += Math.ceil(bytes.length / 40)) {
    const damaged = bytes.slice();
    damaged[at] ^= 0x55;
    const trace = await core.decodeTrace(name, damaged);
    assert.equal(trace.warnings.length, 1);
  }
});

test("the memory at the peak is what its holders hold", needsTraces, async () => {
  const [{ name }] = truth();
  const trace = await core.decodeTrace(name, bytesOf(name));
  for (const lane of core.memoryLanes(trace)) {
    const use = core.memoryUse(trace, lane);
    const holders = core.holdersAt(trace, lane, use.peakTime);
    assert.equal(holders.reduce((sum, holder) => sum + holder.bytes, 0), use.peak);
    assert.equal(use.bytes.at(-1), 0);
    const nodes = holders.slice(0, 2).map((holder) => holder.node);
    const layers = core.holdersOver(trace, lane, nodes, Float64Array.of(use.peakTime, use.peakTime + 1));
    assert.equal(layers.reduce((sum, layer) => sum + layer[0], 0), use.peak);
  }
});

test("searches match nodes, ops, lines and scopes", needsTraces, async () => {
  const [{ name }] = truth();
  const trace = await core.decodeTrace(name, bytesOf(name));
  const found = (query) => trace.records.nodes.filter((_, id) => core.matchNodes(trace, query)[id]);
  assert.ok(found("op:matmul").length && found("op:matmul").every((node) => node.op === "MatMul"));
  assert.ok(found("scope:rnn/cell").length && found("scope:rnn/cell").every((node) => node.name.includes("rnn/cell/")));
  assert.ok(found("LAYER0 conv2d").every((node) => node.name.includes("layer0")));
  assert.deepEqual(found("no such node"), []);
  const events = core.matchingEvents(trace, core.matchNodes(trace, "op:matmul"));
  assert.ok(events.length && [...events].every((event) => trace.nodeOf(event).op === "MatMul"));
});

test("a scope contains the time of its nodes, and a trace equals itself", needsTraces, async () => {
  const [{ name }] = truth();
  const trace = await core.decodeTrace(name, bytesOf(name));
  const [step] = trace.steps;
  const sums = core.sumByNode(trace, { step: step.id });
  const root = core.sumByScope(trace, sums);
  const total = [...sums.values()].reduce((time, sum) => time + sum.time, 0);
  assert.equal(root.time, total);
  assert.equal([...root.children.values()].reduce((time, child) => time + child.time, 0), total);
  assert.equal(core.sumBy(trace, sums, "op").reduce((time, [, sum]) => time + sum.time, 0), total);
  const changes = core.compareSteps({ trace, step }, { trace, step }, "op");
  assert.ok(changes.length && changes.every((change) => change.before === change.after));
});

/** Return the chunks of the bytes of a file, as the page lists them. */
function chunkIndex(bytes) {
  const { chunks } = core.listChunks(bytes);
  const sizeOf = (chunk) => chunk.checked.length + 8;
  return {
    name: "large", warnings: [], firstStep: null,
    chunks: chunks.map((chunk, part) => ({ ...chunk, part, offset: 0, bytes: sizeOf(chunk) })),
    readPart: async ({ part }) => bytes.subarray(chunks[part].offset, chunks[part].offset + sizeOf(chunks[part])),
  };
}

test("parts of a large file are those of the whole", needsTraces, async () => {
  const bytes = bytesOf("large.weft-trace");
  const whole = await core.decodeTrace("large", bytes);
  const parts = await core.FileParts.open(chunkIndex(bytes), core.decodeHere);
  const shift = Number(parts.base.origin - whole.origin);
  assert.deepEqual(parts.base.steps.map(({ id, start, end }) => [id, start + shift, end + shift]), whole.steps.map(({ id, start, end }) => [id, start, end]));
  assert.equal(parts.count, whole.columns.count);
  assert.deepEqual(parts.interval.map((time) => time + shift), [whole.begin, whole.end]);
  // The events of an interval.
  const [begin, end] = [parts.base.steps[3].start, parts.base.steps[5].end];
  const part = await parts.readEvents(begin, end, 1e6);
  const inside = (trace, from, to) => {
    const keys = [];
    for (let i = 0; i < trace.columns.count; i++) {
      const [a, b] = [trace.columns.start[i], trace.endOf(i)];
      if (a < to && b > from) keys.push([a - from, b - from, trace.columns.node[i], trace.laneOf(i)].join());
    }
    return keys.sort();
  };
  assert.deepEqual(inside(part, begin, end), inside(whole, begin + shift, end + shift));
  assert.ok(part.columns.count < whole.columns.count / 2);
  await assert.rejects(parts.readEvents(begin, end, 10), /up to \d+ events/);
});

test("bins show how busy lanes are", needsTraces, async () => {
  const bytes = bytesOf("large.weft-trace");
  const whole = await core.decodeTrace("large", bytes);
  const parts = await core.FileParts.open(chunkIndex(bytes), core.decodeHere);
  const [begin, end] = parts.interval;
  const count = 50;
  const bins = await parts.readBins(begin, end, count);
  assert.ok(bins.events >= whole.columns.count);
  const [KERNEL, REGION, STEP, BUFFER, GENERATED, MEMORY] = [2, 3, 0, 11, 4, 3];
  whole.laneRows.forEach((rows, lane) => {
    if (whole.records.lanes[lane].kind === MEMORY) {
      assert.ok(Math.max(...bins.lanes[lane].shares) > 240);
      return;
    }
    let [time, inner, other] = [0, 0, 0];
    for (const row of rows) {
      for (let i = row.from; i < row.to; i++) {
        const kind = whole.columns.kind[i];
        if (kind === STEP || kind === BUFFER) continue;
        time += whole.columns.duration[i];
        if (kind === GENERATED) inner += whole.columns.duration[i];
        if (kind !== KERNEL && kind !== REGION && kind !== GENERATED) other += 1;
      }
    }
    if (!time || other) return; // events of other kinds overlap
    const share = bins.lanes[lane].shares.reduce((sum, value) => sum + value / 255, 0) / count;
    assert.ok(Math.abs(share - Math.max(time - inner, inner) / (end - begin)) < 0.02, `lane ${lane}`);
    const kinds = new Set(bins.lanes[lane].kinds.filter((_, bin) => bins.lanes[lane].shares[bin] > 50));
    assert.ok([...kinds].every((kind) => kind === KERNEL || kind === REGION));
  });
});
