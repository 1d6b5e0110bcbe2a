// Built by build.mjs (sources f3e284390dd31e247fdfdf4996f68ad13c6021879177b307cd5f2cd0434fb410).
// src/model/schema.ts
var ESTIMATED = 1;
var FAILED = 2;
var NO_STEP = 4294967295;

// src/analysis/scopes.ts
var SUMMED = /* @__PURE__ */ new Set([2 /* KERNEL */, 3 /* REGION */, 7 /* WAIT */, 10 /* COPY */, 9 /* CHECKPOINT */]);
function sumByNode(trace, selection) {
  const sums = /* @__PURE__ */ new Map();
  const { kind, step, start, duration, node, count } = trace.columns;
  for (let i = 0; i < count; i++) {
    if (!SUMMED.has(kind[i])) continue;
    let time = duration[i];
    if ("step" in selection) {
      if (step[i] !== selection.step) continue;
    } else {
      time = Math.min(start[i] + time, selection.end) - Math.max(start[i], selection.begin);
      if (time < 0) continue;
    }
    const sum = sums.get(node[i]);
    const isEstimated = trace.isEstimated(i);
    if (sum) {
      sum.count++;
      sum.time += time;
      sum.isEstimated ||= isEstimated;
    } else sums.set(node[i], { count: 1, time, isEstimated });
  }
  return sums;
}
function sumByScope(trace, sums) {
  const root = emptyScope("", "");
  for (const [id, sum] of sums) {
    const parts = trace.node(id).name.split("/").slice(0, 32);
    let scope = root;
    add(scope, sum);
    parts.forEach((part, depth) => {
      let child = scope.children.get(part);
      if (!child) {
        child = emptyScope(part, parts.slice(0, depth + 1).join("/"));
        scope.children.set(part, child);
      }
      add(child, sum);
      scope = child;
    });
  }
  return root;
}
function sumBy(trace, sums, property) {
  const groups = /* @__PURE__ */ new Map();
  for (const [id, sum] of sums) {
    const key = trace.node(id)[property] || "(none)";
    let group = groups.get(key);
    if (!group) groups.set(key, group = { count: 0, time: 0, isEstimated: false });
    add(group, sum);
  }
  return [...groups].sort((a, b) => b[1].time - a[1].time);
}
function scopeAt(name, depth) {
  let end = -1;
  for (let i = 0; i < depth; i++) {
    end = name.indexOf("/", end + 1);
    if (end < 0) return name;
  }
  return name.slice(0, end);
}
function emptyScope(name, path) {
  return { name, path, children: /* @__PURE__ */ new Map(), count: 0, time: 0, isEstimated: false };
}
function add(sum, other) {
  sum.count += other.count;
  sum.time += other.time;
  sum.isEstimated ||= other.isEstimated;
}

// src/analysis/compare.ts
function spread(steps) {
  const times = Float64Array.from(steps, (step) => step.end - step.start).sort();
  const at = (share) => times[Math.round(share * (times.length - 1))] ?? 0;
  return { count: times.length, median: at(0.5), low: at(0.1), high: at(0.9) };
}
function compareSteps(before, after, property) {
  const [a, b] = [before, after].map(({ trace, step }) => {
    return new Map(sumBy(trace, sumByNode(trace, { step: step.id }), property));
  });
  const time = (sum) => sum?.time ?? 0;
  return [.../* @__PURE__ */ new Set([...a.keys(), ...b.keys()])].map((key) => ({
    key,
    before: time(a.get(key)),
    after: time(b.get(key)),
    isEstimated: Boolean(a.get(key)?.isEstimated || b.get(key)?.isEstimated)
  })).sort((x, y) => Math.abs(y.after - y.before) - Math.abs(x.after - x.before));
}

// src/model/rows.ts
var MAX_ROWS = 24;
function assignRows(start, duration, from, to) {
  const rows = new Uint8Array(to - from);
  const ends = new Float64Array(MAX_ROWS).fill(-Infinity);
  let used = 1;
  for (let i = from; i < to; i++) {
    const begin = start[i];
    const end = begin + duration[i];
    let row = 0;
    for (let k = used - 1; k >= 0; k--) {
      if (ends[k] > begin && ends[k] >= end) {
        row = k + 1;
        break;
      }
    }
    while (row < used && ends[row] > begin) row++;
    if (row >= MAX_ROWS) row = MAX_ROWS - 1;
    if (row >= used) used = row + 1;
    ends[row] = Math.max(ends[row], end);
    rows[i - from] = row;
  }
  return rows;
}
function sortOrder(start, duration, from, to) {
  const before = (a, b) => start[a] < start[b] || start[a] === start[b] && duration[a] >= duration[b];
  let runs = [from];
  for (let i = from + 1; i < to; i++) if (!before(i - 1, i)) runs.push(i);
  if (runs.length === 1) return null;
  let order = new Uint32Array(to - from);
  for (let i = from; i < to; i++) order[i - from] = i;
  let other = new Uint32Array(order.length);
  runs = runs.map((run) => run - from);
  while (runs.length > 1) {
    const merged = [];
    for (let k = 0; k < runs.length; k += 2) {
      const middle = runs[k + 1] ?? order.length;
      const end = runs[k + 2] ?? order.length;
      let a = runs[k];
      let b = middle;
      merged.push(a);
      for (let out = a; out < end; out++) {
        const takesFirst = b >= end || a < middle && before(order[a], order[b]);
        other[out] = takesFirst ? order[a++] : order[b++];
      }
    }
    [order, other] = [other, order];
    runs = merged;
  }
  return order;
}
function upperBound(values, limit, from, to) {
  while (from < to) {
    const middle = from + to >>> 1;
    if (values[middle] > limit) to = middle;
    else from = middle + 1;
  }
  return from;
}

// src/analysis/critical_path.ts
var CATEGORIES = [
  "compute",
  "wait for peers",
  "wire",
  "queueing",
  "wait for input",
  "Python",
  "compile",
  "checkpoint",
  "idle"
];
function findCriticalPath(executions) {
  const { trace, step } = executions;
  const queue = new ThreadHistory(executions);
  const segments = [];
  const events = [];
  const add2 = (event2, start, end, category) => {
    if (end > start) segments.push({ event: event2, start, end, category });
  };
  let time = step.end;
  let event = lastToEnd(executions);
  const visited = /* @__PURE__ */ new Set();
  if (event !== null) add2(step.event, trace.endOf(event), time, "Python");
  while (event !== null && !visited.has(event)) {
    visited.add(event);
    events.push(event);
    time = Math.min(time, trace.endOf(event));
    const begin = Math.max(trace.columns.start[event], step.start);
    const inner = causeOfEnd(executions, event, time);
    if (inner) {
      add2(event, inner.time, time, "wait for peers");
      [event, time] = [inner.event, inner.time];
      continue;
    }
    add2(event, begin, time, categoryOf(trace, event));
    time = Math.min(time, begin);
    const cause = causeOfStart(executions, queue, event, time);
    if (!cause) {
      add2(event, step.start, time, queue.isBusy(event, time) ? "queueing" : "idle");
      time = Math.min(time, step.start);
      break;
    }
    const ready = trace.readyOf(event);
    const middle = Math.min(time, Math.max(cause.time, ready));
    add2(event, middle, time, "queueing");
    add2(event, cause.time, middle, "idle");
    [event, time] = [cause.event, cause.time];
  }
  if (time > step.start) add2(step.event, step.start, time, "Python");
  segments.reverse();
  events.reverse();
  const totals = Object.fromEntries(CATEGORIES.map((name) => [name, 0]));
  for (const segment of segments) totals[segment.category] += segment.end - segment.start;
  return {
    step,
    segments,
    events,
    totals,
    isEstimated: events.some((member) => trace.isEstimated(member))
  };
}
function categoryOf(trace, event) {
  switch (trace.columns.kind[event]) {
    case 2 /* KERNEL */:
    case 3 /* REGION */:
    case 4 /* GENERATED */:
    case 10 /* COPY */:
      return "compute";
    case 6 /* TRANSFER */:
      return "wire";
    case 5 /* RECEIVE */:
      return "wait for peers";
    case 7 /* WAIT */:
      return "wait for input";
    case 9 /* CHECKPOINT */:
      return "checkpoint";
    case 1 /* PHASE */:
      return trace.nodeOf(event).name === "compile" ? "compile" : "Python";
    default:
      return "Python";
  }
}
function lastToEnd(executions) {
  let last = null;
  for (const event of executions.events) {
    if (last === null || executions.trace.endOf(event) >= executions.trace.endOf(last)) last = event;
  }
  return last;
}
function causeOfEnd(executions, event, time) {
  const { trace } = executions;
  if (trace.columns.kind[event] !== 5 /* RECEIVE */) return null;
  return latest(
    executions.predecessors(event).map((source) => ({ event: source, time: trace.endOf(source) })).filter((cause) => cause.time > trace.columns.start[event] && cause.time <= time)
  );
}
function causeOfStart(executions, queue, event, time) {
  const { trace } = executions;
  const causes = [];
  for (const source of executions.predecessors(event)) {
    causes.push({ event: source, time: trace.endOf(source) });
  }
  if (!causes.length) {
    const isPhase = trace.columns.kind[event] === 1 /* PHASE */;
    const source = queue.lastOfStep(isPhase, event, isPhase ? time : trace.readyOf(event));
    if (source !== null) causes.push({ event: source, time: trace.endOf(source) });
  }
  if (trace.columns.kind[event] === 6 /* TRANSFER */) {
    for (const user of executions.successors(event)) {
      if (trace.columns.kind[user] === 5 /* RECEIVE */) {
        causes.push({ event: user, time: trace.columns.start[user] });
      }
    }
  } else {
    const before = queue.before(event, time);
    if (before !== null && (trace.endOf(before) > trace.readyOf(event) || !causes.length)) {
      causes.push({ event: before, time: trace.endOf(before) });
    }
  }
  return latest(causes.filter((cause) => cause.time <= time));
}
function latest(causes) {
  let last = null;
  for (const cause of causes) if (last === null || cause.time > last.time) last = cause;
  return last;
}
function lastBefore(history, except, time) {
  let index = upperBound(history.ends, time, 0, history.ends.length) - 1;
  while (index >= 0 && history.events[index] === except) index--;
  return index < 0 ? null : history.events[index];
}
var ThreadHistory = class {
  constructor(executions) {
    this.executions = executions;
    const { trace, events } = executions;
    for (const event of events) {
      const kind = trace.columns.kind[event];
      this.all.events.push(event);
      if (kind === 1 /* PHASE */) this.phases.events.push(event);
      if (kind === 5 /* RECEIVE */ || kind === 7 /* WAIT */ || kind === 6 /* TRANSFER */) continue;
      const lane = trace.laneOf(event);
      let history = this.lanes.get(lane);
      if (!history) this.lanes.set(lane, history = { events: [], ends: [] });
      history.events.push(event);
    }
    for (const history of [this.all, this.phases, ...this.lanes.values()]) {
      history.events.sort((a, b) => trace.endOf(a) - trace.endOf(b));
      history.ends = history.events.map((event) => trace.endOf(event));
    }
  }
  executions;
  lanes = /* @__PURE__ */ new Map();
  all = { events: [], ends: [] };
  phases = { events: [], ends: [] };
  /** Return the last execution of the event's lane that ended by a time. */
  before(event, time) {
    const history = this.lanes.get(this.executions.trace.laneOf(event));
    return history ? lastBefore(history, event, time) : null;
  }
  /** Return the last execution of the step, or its last phase, that ended by a time. */
  lastOfStep(amongAll, event, time) {
    return lastBefore(amongAll ? this.all : this.phases, event, time);
  }
  /** Return True if an execution of the event's lane ended between its ready time and a time. */
  isBusy(event, time) {
    const before = this.before(event, time);
    return before !== null && this.executions.trace.endOf(before) > this.executions.trace.readyOf(event);
  }
};

// src/analysis/dependencies.ts
var APART = /* @__PURE__ */ new Set([0 /* STEP */, 4 /* GENERATED */, 8 /* PYTHON */, 11 /* BUFFER */]);
var StepExecutions = class {
  constructor(trace, step) {
    this.trace = trace;
    this.step = step;
    const { columns } = trace;
    const events = [];
    for (let i = 0; i < columns.count; i++) {
      if (columns.step[i] === step.id && !APART.has(columns.kind[i])) events.push(i);
    }
    events.sort((a, b) => columns.start[a] - columns.start[b]);
    this.events = events;
    for (const event of events) {
      const node = columns.node[event];
      let executions = this.byNode.get(node);
      if (!executions) this.byNode.set(node, executions = /* @__PURE__ */ new Map());
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
  trace;
  step;
  /** Events of the step that are executions, sorted by start. */
  events;
  byNode = /* @__PURE__ */ new Map();
  consumers = /* @__PURE__ */ new Map();
  children;
  previous;
  /** Return the executions that an execution waited for. */
  predecessors(event) {
    const node = this.trace.nodeOf(event);
    const iteration = this.trace.columns.iteration[event];
    const found = /* @__PURE__ */ new Set();
    for (const input of node.inputs) {
      const executions = this.byNode.get(input);
      const source = executions && this.resolve(executions, iteration, node.crossing);
      if (source !== void 0 && source !== event) found.add(source);
    }
    return [...found];
  }
  /** Return the executions that waited for an execution. */
  successors(event) {
    return this.consumers.get(event) ?? [];
  }
  resolve(executions, iteration, crossing) {
    const { iterations } = this.trace.records;
    if (crossing === 1 /* PREVIOUS */) {
      const before = this.previousOf(iteration);
      const source = before === void 0 ? void 0 : executions.get(before);
      if (source !== void 0) return source;
      return iterations[iteration]?.number ? void 0 : this.enclosing(executions, iteration);
    }
    if (crossing === 2 /* INNER */) {
      let last;
      for (const inner of this.children.get(iteration) ?? []) last = executions.get(inner) ?? last;
      if (last !== void 0) return last;
    }
    return this.enclosing(executions, iteration);
  }
  previousOf(iteration) {
    const record = this.trace.records.iterations[iteration];
    if (!record || !iteration) return void 0;
    return this.previous.get(`${record.parent} ${record.number - 1} ${record.frame}`);
  }
  /** Return the execution in an iteration or in the nearest enclosing one. */
  enclosing(executions, iteration) {
    const { iterations } = this.trace.records;
    for (let depth = 0; depth < 1e3; depth++) {
      const source = executions.get(iteration);
      if (source !== void 0 || iteration === 0) return source;
      iteration = iterations[iteration]?.parent ?? 0;
    }
    return void 0;
  }
};
var trees = /* @__PURE__ */ new WeakMap();
function iterationTree(trace) {
  let tree = trees.get(trace);
  if (tree) return tree;
  const { iterations } = trace.records;
  const children = /* @__PURE__ */ new Map();
  const previous = /* @__PURE__ */ new Map();
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

// src/analysis/memory.ts
var uses = /* @__PURE__ */ new WeakMap();
function memoryLanes(trace) {
  return trace.rows.filter((row) => trace.columns.kind[row.from] === 11 /* BUFFER */).map((row) => row.lane).filter((lane, index, lanes) => lanes.indexOf(lane) === index);
}
function memoryUse(trace, lane) {
  let lanes = uses.get(trace);
  if (!lanes) uses.set(trace, lanes = /* @__PURE__ */ new Map());
  let use = lanes.get(lane);
  if (!use) lanes.set(lane, use = sweep(trace, buffers(trace, lane)));
  return use;
}
function holdersAt(trace, lane, time) {
  const holders = /* @__PURE__ */ new Map();
  const { start, node, outputBytes } = trace.columns;
  for (const event of buffers(trace, lane)) {
    if (start[event] > time || trace.endOf(event) <= time) continue;
    let holder = holders.get(node[event]);
    if (!holder) holders.set(node[event], holder = { node: node[event], bytes: 0, count: 0 });
    holder.bytes += Math.max(0, outputBytes[event]);
    holder.count++;
  }
  return [...holders.values()].sort((a, b) => b.bytes - a.bytes);
}
function holdersOver(trace, lane, nodes, times) {
  const index = new Map(nodes.map((node2, k) => [node2, k]));
  const layers = Array.from({ length: nodes.length + 1 }, () => new Float64Array(times.length + 1));
  const { start, node, outputBytes } = trace.columns;
  const [first, step] = [times[0], times[1] - times[0] || 1];
  const slot = (time) => {
    return Math.max(0, Math.min(times.length, Math.ceil((time - first) / step)));
  };
  for (const event of buffers(trace, lane)) {
    const layer = layers[index.get(node[event]) ?? nodes.length];
    const bytes = Math.max(0, outputBytes[event]);
    layer[slot(start[event])] += bytes;
    layer[slot(trace.endOf(event))] -= bytes;
  }
  for (const layer of layers) for (let i = 1; i < layer.length; i++) layer[i] += layer[i - 1];
  return layers.map((layer) => layer.subarray(0, times.length));
}
function* buffers(trace, lane) {
  for (const row of trace.laneRows[lane]) {
    for (let i = row.from; i < row.to; i++) if (trace.columns.kind[i] === 11 /* BUFFER */) yield i;
  }
}
function sweep(trace, events) {
  const list = Uint32Array.from(events);
  const { start, outputBytes } = trace.columns;
  const byEnd = list.slice();
  const ends = new Float64Array(list.length);
  const order = Array.from(list.keys()).sort((a2, b2) => trace.endOf(list[a2]) - trace.endOf(list[b2]));
  order.forEach((position, i) => {
    byEnd[i] = list[position];
    ends[i] = trace.endOf(list[position]);
  });
  const time = new Float64Array(2 * list.length);
  const bytes = new Float64Array(2 * list.length);
  let [live, peak, peakTime, a, b] = [0, 0, trace.begin, 0, 0];
  for (let i = 0; i < time.length; i++) {
    const isRelease = a >= list.length || ends[b] <= start[list[a]];
    const event = isRelease ? byEnd[b] : list[a];
    time[i] = isRelease ? ends[b++] : start[list[a++]];
    live += (isRelease ? -1 : 1) * Math.max(0, outputBytes[event]);
    bytes[i] = live;
    if (live > peak) [peak, peakTime] = [live, time[i]];
  }
  return { time, bytes, peak, peakTime };
}

// src/analysis/search.ts
var PREFIXES = ["node", "op", "line", "scope"];
function matchNodes(trace, query) {
  const words = query.toLowerCase().split(/\s+/).filter(Boolean);
  const matches = new Uint8Array(trace.records.nodes.length);
  if (!words.length) return matches;
  trace.records.nodes.forEach((node, id) => {
    const name = node.name.toLowerCase();
    const origins = node.origins.map((origin) => origin.toLowerCase());
    const fields = {
      node: [name, ...origins],
      op: [node.op.toLowerCase()],
      line: [node.line.toLowerCase()],
      scope: [name, ...origins]
    };
    matches[id] = Number(
      words.every((word) => {
        const [prefix, value] = splitPrefix(word);
        if (prefix === "scope") {
          return fields.scope.some((scope) => `/${scope}`.includes(`/${value.replace(/\/$/, "")}/`));
        }
        if (prefix) return fields[prefix].some((field) => field.includes(value));
        return Object.values(fields).some((texts2) => texts2.some((field) => field.includes(value)));
      })
    );
  });
  return matches;
}
function splitPrefix(word) {
  const [head, ...tail] = word.split(":");
  const prefix = PREFIXES.find((name) => name === head);
  return prefix && tail.length ? [prefix, tail.join(":")] : [null, word];
}
function matchingEvents(trace, matches) {
  const { node, count } = trace.columns;
  let found = 0;
  for (let i = 0; i < count; i++) found += matches[node[i]] ?? 0;
  const events = new Uint32Array(found);
  found = 0;
  for (let i = 0; i < count; i++) if (matches[node[i]]) events[found++] = i;
  return events;
}

// src/format/crc32.ts
var TABLES = makeTables();
function makeTables() {
  const tables = Array.from({ length: 8 }, () => new Uint32Array(256));
  for (let byte = 0; byte < 256; byte++) {
    let value = byte;
    for (let bit = 0; bit < 8; bit++) value = value & 1 ? value >>> 1 ^ 3988292384 : value >>> 1;
    tables[0][byte] = value;
  }
  for (let byte = 0; byte < 256; byte++) {
    for (let k = 1; k < 8; k++) {
      const previous = tables[k - 1][byte];
      tables[k][byte] = previous >>> 8 ^ tables[0][previous & 255];
    }
  }
  return tables;
}
function crc32(bytes, before = 0) {
  const [t0, t1, t2, t3, t4, t5, t6, t7] = TABLES;
  let crc = ~before;
  let i = 0;
  for (; i + 8 <= bytes.length; i += 8) {
    crc ^= bytes[i] | bytes[i + 1] << 8 | bytes[i + 2] << 16 | bytes[i + 3] << 24;
    crc = t7[crc & 255] ^ t6[crc >>> 8 & 255] ^ t5[crc >>> 16 & 255] ^ t4[crc >>> 24] ^ t3[bytes[i + 4]] ^ t2[bytes[i + 5]] ^ t1[bytes[i + 6]] ^ t0[bytes[i + 7]];
  }
  for (; i < bytes.length; i++) crc = crc >>> 8 ^ t0[(crc ^ bytes[i]) & 255];
  return ~crc >>> 0;
}

// src/format/chunks.ts
var VERSION = 2;
var FILE_HEADER_BYTES = 16;
var CHUNK_HEADER_BYTES = 40;
var CHECKED = 8;
var MAX_CHUNK = 1 << 28;
var MAGIC = "WEFTTRC\n";
var TraceError = class extends Error {
  name = "TraceError";
};
function checkFileHeader(bytes, name) {
  const magic = String.fromCharCode(...bytes.subarray(0, MAGIC.length));
  if (bytes.length < FILE_HEADER_BYTES || magic !== MAGIC) {
    throw new TraceError(
      `${name} is not a trace of weft: it does not begin with "WEFTTRC". Choose a file that weft.trace or weft trace record wrote.`
    );
  }
  const version = view(bytes).getUint32(8, true);
  if (version > VERSION) {
    throw new TraceError(
      `${name} has version ${version} of the trace format; this page reads version ${VERSION}. Make the page with a newer weftml-trace.`
    );
  }
  if (version < VERSION) {
    throw new TraceError(
      `${name} has version ${version} of the trace format, which was never released; this page reads version ${VERSION}. Record the trace again.`
    );
  }
}
function readHeader(data, offset) {
  if (offset + CHUNK_HEADER_BYTES > data.byteLength) {
    return "the file ends inside the header of a chunk";
  }
  const storedSize = data.getUint32(offset + 12, true);
  const size = data.getUint32(offset + 16, true);
  const compression = data.getUint8(offset + 9);
  const isMarked = data.getUint32(offset, true) === 1263421507;
  if (!isMarked || compression > 1 || Math.max(storedSize, size) > MAX_CHUNK) {
    return "there is no chunk here";
  }
  return {
    type: data.getUint8(offset + 8),
    level: data.getUint16(offset + 10, true),
    isCompressed: compression === 1,
    checksum: data.getUint32(offset + 4, true),
    size,
    rows: data.getUint32(offset + 20, true),
    first: data.getBigInt64(offset + 24, true),
    last: data.getBigInt64(offset + 32, true),
    bytes: CHUNK_HEADER_BYTES + storedSize
  };
}
function readChunk(bytes, offset) {
  const header = readHeader(view(bytes), offset);
  if (typeof header === "string") return header;
  const end = offset + header.bytes;
  if (end > bytes.length) return "the file ends inside a chunk";
  return {
    ...header,
    checked: bytes.subarray(offset + CHECKED, end),
    stored: bytes.subarray(offset + CHUNK_HEADER_BYTES, end),
    offset
  };
}
function listChunks(bytes) {
  const chunks = [];
  let offset = FILE_HEADER_BYTES;
  while (offset < bytes.length) {
    const chunk = readChunk(bytes, offset);
    if (typeof chunk === "string") return { chunks, damage: { offset, reason: chunk } };
    chunks.push(chunk);
    offset += CHUNK_HEADER_BYTES + chunk.stored.length;
  }
  return { chunks, damage: null };
}
async function readPayload(chunk) {
  if (crc32(chunk.checked) !== chunk.checksum) {
    throw new TraceError("the checksum of the chunk does not match its bytes");
  }
  const stored = chunk.checked.subarray(CHUNK_HEADER_BYTES - CHECKED);
  const payload = chunk.isCompressed ? await inflate(stored, chunk.size) : stored;
  if (payload === null || payload.length !== chunk.size) {
    throw new TraceError("the chunk cannot be decompressed");
  }
  return payload;
}
async function inflate(stored, size) {
  const stream = new DecompressionStream("deflate");
  const writer = stream.writable.getWriter();
  const writing = writer.write(stored).then(() => writer.close());
  writing.catch(() => void 0);
  const reader = stream.readable.getReader();
  const result = new Uint8Array(size);
  let length = 0;
  try {
    for (; ; ) {
      const { done, value } = await reader.read();
      if (done) return length === size ? result : null;
      if (length + value.length > size) return null;
      result.set(value, length);
      length += value.length;
    }
  } catch {
    return null;
  } finally {
    reader.cancel().catch(() => void 0);
  }
}
function view(bytes) {
  return new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
}

// src/format/columns.ts
var EVENT_COLUMNS = 11;
var SAMPLE_COLUMNS = 4;
var LEVEL_COLUMNS = 8;
var TYPES = [
  { Type: Int8Array, low: -128, high: 127 },
  { Type: Uint16Array, low: 0, high: 2 ** 16 - 1 },
  { Type: Uint32Array, low: 0, high: 2 ** 32 - 1 },
  { Type: Int32Array, low: -(2 ** 31), high: 2 ** 31 - 1 },
  { Type: Float64Array, low: -Infinity, high: Infinity }
];
function makeNarrow(low, high, length) {
  const { Type } = TYPES.find((type) => type.low <= low && high <= type.high);
  return new Type(length);
}
function makeCommon(columns, length) {
  let [low, high] = [0, 0];
  for (const column of columns) {
    const type = TYPES.find(({ Type }) => column instanceof Type);
    if (!type) return new columns[0].constructor(length);
    low = Math.min(low, type.low);
    high = Math.max(high, type.high);
  }
  return makeNarrow(low, high, length);
}
var ColumnReader = class {
  constructor(bytes, rows, count) {
    this.bytes = bytes;
    this.rows = rows;
    if (!bytes.length || bytes[0] < count) {
      throw new TraceError(`a chunk has ${bytes.length ? bytes[0] : 0} of ${count} columns`);
    }
    this.data = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  }
  bytes;
  rows;
  offset = 1;
  data;
  begin() {
    if (this.offset + 9 > this.bytes.length) throw new TraceError("a chunk ends before a column");
    const width = this.data.getUint8(this.offset);
    const base = this.data.getBigInt64(this.offset + 1, true);
    const offset = this.offset + 9;
    this.offset = offset + this.rows * width;
    if (width > 8 || this.offset > this.bytes.length) {
      throw new TraceError("a chunk has a damaged column");
    }
    return { width, base, planes: this.bytes.subarray(offset, this.offset) };
  }
  /** Read a column into `out`: integers of less than 2⁵³. */
  read(out) {
    const { width, base, planes } = this.begin();
    this.fill(out, width, Number(base), planes);
    return out;
  }
  /** Read a column into the smallest array that holds its values. */
  readNarrow() {
    const { width, base, planes } = this.begin();
    const low = Number(base);
    const high = low + this.largest(width, planes);
    const out = makeNarrow(low, high, this.rows);
    this.fill(out, width, low, planes);
    return out;
  }
  /** Return a bound of the unsigned numbers of a column. */
  largest(width, planes) {
    if (width === 0) return 0;
    if (width > 4) return Infinity;
    let most = 0;
    for (let i = (width - 1) * this.rows; i < width * this.rows; i++) {
      if (planes[i] > most) most = planes[i];
    }
    return (most + 1) * 2 ** (8 * (width - 1)) - 1;
  }
  /** Read a column of differences as nanoseconds from `origin`. */
  readTimes(origin) {
    if (this.offset + 8 > this.bytes.length) throw new TraceError("a chunk ends before a column");
    const first = this.data.getBigInt64(this.offset, true);
    this.offset += 8;
    const out = this.read(new Float64Array(this.rows));
    if (out.length) out[0] = Number(first - origin);
    for (let i = 1; i < out.length; i++) out[i] += out[i - 1];
    return out;
  }
  fill(out, width, base, planes) {
    if (width === 0) out.fill(base);
    else if (out instanceof Float64Array) fillFloats(out, planes, width, base);
    else if (out instanceof Uint32Array) fillIntegers(out, planes, width, base);
    else {
      const wide = new Uint32Array(this.rows);
      fillIntegers(wide, planes, width, base);
      out.set(wide);
    }
  }
};
function fillIntegers(out, planes, width, base) {
  const n = out.length;
  if (width === 1) for (let i = 0; i < n; i++) out[i] = base + planes[i];
  else if (width === 2) for (let i = 0; i < n; i++) out[i] = base + (planes[i] | planes[n + i] << 8);
  else {
    for (let i = 0; i < n; i++) {
      const high = width > 3 ? planes[3 * n + i] << 24 : 0;
      out[i] = base + (planes[i] | planes[n + i] << 8 | planes[2 * n + i] << 16 | high);
    }
  }
}
function fillFloats(out, planes, width, base) {
  const n = out.length;
  for (let i = 0; i < n; i++) out[i] = base + planes[i];
  if (width > 1) for (let i = 0; i < n; i++) out[i] += planes[n + i] << 8;
  for (let k = 2; k < width; k++) {
    const [plane, factor] = [planes.subarray(k * n, (k + 1) * n), 256 ** k];
    for (let i = 0; i < n; i++) out[i] += plane[i] * factor;
  }
}
function unpackEvents(payload, rows, origin) {
  const reader = new ColumnReader(payload, rows, EVENT_COLUMNS);
  const kind = reader.read(new Uint8Array(rows));
  const flags = reader.read(new Uint8Array(rows));
  const lane = reader.read(new Uint16Array(rows));
  const node = reader.read(new Uint32Array(rows));
  const step = reader.read(new Uint32Array(rows));
  const iteration = reader.read(new Uint32Array(rows));
  const delay = reader.readNarrow();
  const start = reader.readTimes(origin);
  const duration = reader.readNarrow();
  const inputBytes = reader.readNarrow();
  const outputBytes = reader.readNarrow();
  const { order, lanes, laneFirst } = sortByLane(lane);
  const take = (column) => permute(column, order);
  return {
    rows,
    lanes,
    laneFirst,
    kind: take(kind),
    flags: take(flags),
    node: take(node),
    step: take(step),
    iteration: take(iteration),
    start: take(start),
    duration: take(duration),
    delay: take(delay),
    inputBytes: take(inputBytes),
    outputBytes: take(outputBytes)
  };
}
function unpackSamples(payload, rows, origin) {
  const reader = new ColumnReader(payload, rows, SAMPLE_COLUMNS);
  const lane = reader.read(new Uint16Array(rows));
  const series = reader.read(new Uint16Array(rows));
  const time = reader.readTimes(origin);
  const value = reader.read(new Float64Array(rows));
  const last = /* @__PURE__ */ new Map();
  for (let i = 0; i < rows; i++) {
    const key = lane[i] * 65536 + series[i];
    value[i] += last.get(key) ?? 0;
    last.set(key, value[i]);
  }
  return { rows, lane, series, time, value };
}
function unpackLevels(payload, rows, origin) {
  const reader = new ColumnReader(payload, rows, LEVEL_COLUMNS);
  reader.read(new Uint8Array(rows));
  const kind = reader.read(new Uint8Array(rows));
  const lane = reader.read(new Uint16Array(rows));
  reader.read(new Uint32Array(rows));
  reader.read(new Uint32Array(rows));
  const start = reader.readTimes(origin);
  const span = reader.read(new Float64Array(rows));
  return { rows, kind, lane, start, span, busy: reader.read(new Float64Array(rows)) };
}
function sortByLane(lane) {
  const counts = new Uint32Array(65537);
  for (let i = 0; i < lane.length; i++) counts[lane[i] + 1]++;
  const lanes = [];
  const first = [];
  for (let k = 0; k < 65536; k++) {
    if (counts[k + 1]) {
      lanes.push(k);
      first.push(counts[k]);
    }
    counts[k + 1] += counts[k];
  }
  const order = new Uint32Array(lane.length);
  for (let i = 0; i < lane.length; i++) order[counts[lane[i]]++] = i;
  return { order, lanes: Uint32Array.from(lanes), laneFirst: Uint32Array.from([...first, lane.length]) };
}
function permute(column, order) {
  const Type = column.constructor;
  const out = new Type(order.length);
  const view2 = (View, array) => new View(array.buffer, array.byteOffset, array.length);
  switch (column.BYTES_PER_ELEMENT) {
    case 1:
      permute8(view2(Uint8Array, out), view2(Uint8Array, column), order);
      break;
    case 2:
      permute16(view2(Uint16Array, out), view2(Uint16Array, column), order);
      break;
    case 4:
      permute32(view2(Uint32Array, out), view2(Uint32Array, column), order);
      break;
    default:
      permute64(view2(Float64Array, out), view2(Float64Array, column), order);
  }
  return out;
}
function permute8(out, column, order) {
  for (let i = 0; i < order.length; i++) out[i] = column[order[i]];
}
function permute16(out, column, order) {
  for (let i = 0; i < order.length; i++) out[i] = column[order[i]];
}
function permute32(out, column, order) {
  for (let i = 0; i < order.length; i++) out[i] = column[order[i]];
}
function permute64(out, column, order) {
  for (let i = 0; i < order.length; i++) out[i] = column[order[i]];
}

// src/format/records.ts
function emptyRecords() {
  const outside = { frame: "", number: 0, parent: 0 };
  return { processes: [], lanes: [], nodes: [], iterations: [outside], steps: [] };
}
function addRecords(records, payload) {
  const tables = parse(payload);
  for (const row of tables["processes"] ?? []) {
    records.processes.push({
      name: text(row[0]),
      pid: integer(row[1]),
      host: text(row[2]),
      clockOffset: integer(row[3] ?? 0),
      clockError: integer(row[4] ?? 0)
    });
  }
  for (const row of tables["lanes"] ?? []) {
    const kind = integer(row[1]);
    if (kind < 0 || kind > 3) throw new TraceError(`a lane has the unknown kind ${kind}`);
    records.lanes.push({ process: integer(row[0]), kind, name: text(row[2]) });
  }
  for (const row of tables["nodes"] ?? []) {
    records.nodes.push({
      name: text(row[0]),
      op: text(row[1]),
      device: text(row[2]),
      line: text(row[3]),
      inputs: integers(row[4]),
      origins: texts(row[5]),
      crossing: integer(row[6]),
      members: integers(row[7]),
      outputBytes: integer(row[8])
    });
  }
  for (const row of tables["inputs"] ?? []) {
    const node = records.nodes[integer(row[0])];
    if (!node) throw new TraceError(`inputs are those of the unknown node ${row[0]}`);
    node.inputs = integers(row[1]);
  }
  for (const row of tables["iterations"] ?? []) {
    records.iterations.push({
      frame: text(row[0]),
      number: integer(row[1]),
      parent: integer(row[2] ?? 0)
    });
  }
  for (const row of tables["steps"] ?? []) {
    records.steps.push({ process: integer(row[0]), label: text(row[1]), number: integer(row[2]) });
  }
}
function parse(payload) {
  let tables;
  try {
    tables = JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(payload));
  } catch (error) {
    throw new TraceError(`the records of a chunk cannot be read: ${String(error)}`);
  }
  const isObject = typeof tables === "object" && tables !== null && !Array.isArray(tables);
  if (!isObject || !Object.values(tables).every((rows) => isRows(rows))) {
    throw new TraceError("the records of a chunk must be an object of lists of lists");
  }
  return tables;
}
function isRows(rows) {
  return Array.isArray(rows) && rows.every(Array.isArray);
}
function text(value) {
  if (typeof value !== "string") throw unknownForm("a string", value);
  return value;
}
function integer(value) {
  if (typeof value !== "number" || !Number.isInteger(value)) throw unknownForm("an integer", value);
  return value;
}
function texts(value) {
  if (!Array.isArray(value)) throw unknownForm("a list of strings", value);
  return value.map(text);
}
function integers(value) {
  if (!Array.isArray(value)) throw unknownForm("a list of integers", value);
  return value.map(integer);
}
function unknownForm(expected, value) {
  return new TraceError(
    `the records of a chunk have an unknown form: expected ${expected}, got ${typeof value}`
  );
}

// src/model/trace.ts
var BLOCK = 16;
var UNKNOWN = {
  name: "(unknown node)",
  op: "",
  device: "",
  line: "",
  inputs: [],
  origins: [],
  crossing: 0,
  members: [],
  outputBytes: -1
};
var Trace = class _Trace {
  /** `noStep` is the value of the column `step` outside of steps. */
  constructor(name, origin, records, columns, rows, series, warnings, noStep) {
    this.name = name;
    this.origin = origin;
    this.records = records;
    this.columns = columns;
    this.rows = rows;
    this.series = series;
    this.warnings = warnings;
    this.noStep = noStep;
    const laneRows = records.lanes.map(() => []);
    let begin = Infinity;
    let end = -Infinity;
    for (const row of rows) {
      laneRows[row.lane].push(row);
      begin = Math.min(begin, columns.start[row.from]);
      end = Math.max(end, this.endOf(row.to - 1));
    }
    this.laneRows = laneRows;
    this.begin = Number.isFinite(begin) ? begin : 0;
    this.end = Number.isFinite(end) ? end : 1;
    this.steps = this.findSteps();
    this.steps.forEach((step, index) => this.stepOf.set(step.id, index));
  }
  name;
  origin;
  records;
  columns;
  rows;
  series;
  warnings;
  noStep;
  begin;
  end;
  laneRows;
  steps;
  stepOf = /* @__PURE__ */ new Map();
  /** Return the same trace with other warnings before its own. */
  withWarnings(warnings) {
    const { name, origin, records, columns, rows, series, noStep } = this;
    return new _Trace(name, origin, records, columns, rows, series, [...warnings, ...this.warnings], noStep);
  }
  endOf(event) {
    return this.columns.start[event] + this.columns.duration[event];
  }
  readyOf(event) {
    return this.columns.start[event] - this.columns.delay[event];
  }
  node(id) {
    return this.records.nodes[id] ?? UNKNOWN;
  }
  nodeOf(event) {
    return this.node(this.columns.node[event]);
  }
  isEstimated(event) {
    return (this.columns.flags[event] & ESTIMATED) !== 0;
  }
  hasFailed(event) {
    return (this.columns.flags[event] & FAILED) !== 0;
  }
  process(lane) {
    const unknown = { name: `process ${lane.process}`, pid: 0, host: "" };
    return this.records.processes[lane.process] ?? { ...unknown, clockOffset: 0, clockError: 0 };
  }
  /** Return the row that contains an event. */
  rowOf(event) {
    let low = 0;
    let high = this.rows.length - 1;
    while (low < high) {
      const middle = low + high + 1 >>> 1;
      if (this.rows[middle].from <= event) low = middle;
      else high = middle - 1;
    }
    return this.rows[low];
  }
  laneOf(event) {
    return this.rowOf(event).lane;
  }
  /** Return the step of an event, or null if it is outside of steps. */
  stepOfEvent(event) {
    const id = this.columns.step[event];
    const index = id === this.noStep ? void 0 : this.stepOf.get(id);
    return index === void 0 ? null : this.steps[index];
  }
  /** Return the events of a row that overlap an interval, as a range of indices. */
  overlapping(row, begin, end) {
    const { start } = this.columns;
    let first = upperBound(start, begin, row.from, row.to);
    while (first > row.from && this.endOf(first - 1) > begin) first--;
    return [first, Math.max(first, upperBound(start, end, row.from, row.to))];
  }
  /** Return the sum of the durations of the events of a row before an index. */
  busyBefore(row, index) {
    const block = Math.floor((index - row.from) / BLOCK);
    let sum = row.busy[block];
    for (let i = row.from + block * BLOCK; i < index; i++) sum += this.columns.duration[i];
    return sum;
  }
  /** Return the time of day of a time, in nanoseconds since the epoch. */
  epoch(time) {
    return this.origin + BigInt(Math.round(time));
  }
  findSteps() {
    const { kind, step, start } = this.columns;
    const steps = [];
    for (const row of this.rows) {
      if (row.depth > 2) continue;
      for (let i = row.from; i < row.to; i++) {
        if (kind[i] !== 0 /* STEP */ || step[i] === this.noStep) continue;
        const record = this.records.steps[step[i]];
        steps.push({
          id: step[i],
          event: i,
          start: start[i],
          end: this.endOf(i),
          label: record?.label ?? "(unknown step)",
          number: record?.number ?? 0
        });
      }
    }
    return steps.sort((a, b) => a.start - b.start);
  }
};

// src/load/assemble.ts
function assemble(name, origin, records, events, samples, warnings) {
  const chunks = events;
  describeLanes(records, chunks, samples);
  const offsets = laneOffsets(chunks, records.lanes.length);
  const count = offsets[records.lanes.length];
  const start = gather(chunks, "start", offsets, count);
  const duration = gather(chunks, "duration", offsets, count);
  const { order, ranges } = orderByRow(records, offsets, start, duration);
  const finish = (column) => order ? permute(column, order) : column;
  const take = (column) => finish(gather(chunks, column, offsets, count));
  const columns = {
    count,
    start: finish(start),
    duration: finish(duration),
    kind: take("kind"),
    flags: take("flags"),
    node: shorten(take("node"), 0),
    step: shorten(take("step"), 1),
    iteration: shorten(take("iteration"), 0),
    delay: take("delay"),
    inputBytes: take("inputBytes"),
    outputBytes: take("outputBytes")
  };
  const rows = ranges.map((range) => ({ ...range, busy: busyBlocks(columns.duration, range) }));
  const noStep = columns.step instanceof Uint16Array ? 65535 : NO_STEP;
  return new Trace(name, origin, records, columns, rows, makeSeries(samples), warnings, noStep);
}
function describeLanes(records, chunks, samples) {
  let highest = records.lanes.length - 1;
  for (const chunk of chunks) highest = Math.max(highest, ...chunk.lanes);
  for (const chunk of samples) for (const lane of chunk.lane) if (lane > highest) highest = lane;
  while (records.lanes.length <= highest) {
    const name = `lane ${records.lanes.length} (not described)`;
    records.lanes.push({ process: 0, kind: 0 /* THREAD */, name });
  }
}
function laneOffsets(chunks, lanes) {
  const offsets = new Float64Array(lanes + 1);
  for (const chunk of chunks) {
    chunk.lanes.forEach((lane, k) => {
      offsets[lane + 1] += chunk.laneFirst[k + 1] - chunk.laneFirst[k];
    });
  }
  for (let lane = 0; lane < lanes; lane++) offsets[lane + 1] += offsets[lane];
  return offsets;
}
function gather(chunks, name, offsets, count) {
  const out = makeCommon(chunks.map((chunk) => chunk[name]), count);
  const next = offsets.slice();
  for (const chunk of chunks) {
    const column = chunk[name];
    chunk.lanes.forEach((lane, k) => {
      const part = column.subarray(chunk.laneFirst[k], chunk.laneFirst[k + 1]);
      out.set(part, next[lane]);
      next[lane] += part.length;
    });
    delete chunk[name];
  }
  return out;
}
function shorten(column, spare) {
  for (let i = 0; i < column.length; i++) {
    if (column[i] >= 65536 - spare && !(spare && column[i] === NO_STEP)) return column;
  }
  return Uint16Array.from(column);
}
function orderByRow(records, offsets, start, duration) {
  const ranges = [];
  const order = new Uint32Array(start.length);
  let isOrdered = true;
  records.lanes.forEach((lane, id) => {
    const [from, to] = [offsets[id], offsets[id + 1]];
    if (from === to) return;
    const sorted = sortOrder(start, duration, from, to);
    isOrdered &&= sorted === null;
    if (lane.kind === 3 /* MEMORY */) {
      for (let i = from; i < to; i++) order[i] = sorted ? sorted[i - from] : i;
      ranges.push({ lane: id, depth: 0, from, to });
      return;
    }
    const starts = sorted ? permute(start, sorted) : start.subarray(from, to);
    const durations = sorted ? permute(duration, sorted) : duration.subarray(from, to);
    const rows = assignRows(starts, durations, 0, to - from);
    const counts = new Uint32Array(257);
    for (const row of rows) counts[row + 1]++;
    for (let row = 0; row < 256; row++) {
      if (!counts[row + 1]) break;
      ranges.push({ lane: id, depth: row, from: from + counts[row], to: from + counts[row] + counts[row + 1] });
      counts[row + 1] += counts[row];
      if (row) isOrdered = false;
    }
    for (let i = 0; i < rows.length; i++) {
      order[from + counts[rows[i]]++] = sorted ? sorted[i] : from + i;
    }
  });
  return { order: isOrdered ? null : order, ranges };
}
function busyBlocks(duration, { from, to }) {
  const busy = new Float64Array(Math.floor((to - from) / BLOCK) + 1);
  let sum = 0;
  for (let i = from; i < to; i++) {
    if ((i - from) % BLOCK === 0) busy[(i - from) / BLOCK] = sum;
    sum += duration[i];
  }
  if ((to - from) % BLOCK === 0) busy[(to - from) / BLOCK] = sum;
  return busy;
}
function makeSeries(chunks) {
  const keyOf = (chunk, i) => chunk.lane[i] * 65536 + chunk.series[i];
  const counts = /* @__PURE__ */ new Map();
  for (const chunk of chunks) {
    for (let i = 0; i < chunk.rows; i++) {
      const key = keyOf(chunk, i);
      counts.set(key, (counts.get(key) ?? 0) + 1);
    }
  }
  const parts = /* @__PURE__ */ new Map();
  for (const [key, count] of counts) {
    parts.set(key, { time: new Float64Array(count), value: new Float64Array(count), used: 0 });
  }
  for (const chunk of chunks) {
    for (let i = 0; i < chunk.rows; i++) {
      const part = parts.get(keyOf(chunk, i));
      part.time[part.used] = chunk.time[i];
      part.value[part.used++] = chunk.value[i];
    }
  }
  return [...parts].map(([key, { time, value }]) => {
    const order = sortOrder(time, new Float64Array(time.length), 0, time.length);
    const lane = Math.floor(key / 65536);
    return {
      lane,
      series: key % 65536,
      time: order ? permute(time, order) : time,
      value: order ? permute(value, order) : value
    };
  });
}

// src/load/decode.ts
async function decodeHere(task) {
  try {
    const payload = await readPayload(task);
    switch (task.type) {
      case 4 /* LEVELS */:
        return { levels: unpackLevels(payload, task.rows, task.origin) };
      case 3 /* SAMPLES */:
      case 6 /* PEAKS */:
        return { samples: unpackSamples(payload, task.rows, task.origin) };
      default:
        return { events: unpackEvents(payload, task.rows, task.origin) };
    }
  } catch (error) {
    if (error instanceof TraceError || error instanceof RangeError) return { error: error.message };
    throw error;
  }
}
function makeTask(chunk, origin) {
  const { type, isCompressed, checksum, checked, size, rows } = chunk;
  return { type, isCompressed, checksum, checked, size, rows, origin };
}
async function decodeTrace(name, bytes, decoder = decodeHere, progress = () => void 0, base = null) {
  checkFileHeader(bytes, name);
  const { chunks, damage } = listChunks(bytes);
  const lost = (offset, reason) => `${name}: the last ${bytes.length - offset} bytes, from offset ${offset}, were not read: ${reason}`;
  const types = [2 /* EVENTS */, 3 /* SAMPLES */];
  const trace = await decodeChunks(name, chunks, types, { decoder, progress, base, damage, lost });
  if (trace.warnings.length || chunks.some(({ type }) => type === 7 /* END */)) return trace;
  return trace.withWarnings([`${name}: the recording was not closed, so its last events may be missing`]);
}
async function decodeChunks(name, chunks, types, options) {
  const { base, damage, lost, decoder, progress } = options;
  const warnings = damage ? [lost(damage.offset, damage.reason)] : [];
  const hasRows = ({ type }) => types.includes(type);
  const origin = base ? base.origin : firstTime(chunks.filter(hasRows));
  let done = 0;
  const decoding = chunks.map((chunk) => {
    if (!hasRows(chunk)) return Promise.resolve({});
    return decoder(makeTask(chunk, origin)).then((result) => {
      progress?.(++done / chunks.length);
      return result;
    });
  });
  const records = base ? base.records : emptyRecords();
  const events = [];
  const samples = [];
  const results = await Promise.all(decoding);
  for (const [index, chunk] of chunks.entries()) {
    try {
      if (chunk.type === 1 /* RECORDS */ && !base) addRecords(records, await readPayload(chunk));
      const { events: rows, samples: counts, error } = results[index];
      if (error !== void 0) throw new TraceError(error);
      if (rows) events.push(rows);
      if (counts) samples.push(counts);
    } catch (error) {
      if (!(error instanceof TraceError)) throw error;
      warnings.splice(0, warnings.length, lost(chunk.offset, error.message));
      break;
    }
  }
  return assemble(name, origin, records, events, samples, warnings);
}
function firstTime(chunks) {
  let first = null;
  for (const { first: time } of chunks) if (first === null || time < first) first = time;
  return first ?? 0n;
}

// src/load/binning.ts
var KINDS = 12;
var Binning = class {
  constructor(begin, end, count) {
    this.begin = begin;
    this.end = end;
    this.count = count;
  }
  begin;
  end;
  count;
  times = [];
  /** Add the rows that overlap the interval. */
  add(rows) {
    const { kind, lane, start, span, busy } = rows;
    const scale = this.count / (this.end - this.begin);
    for (let i = 0; i < rows.rows; i++) {
      if (start[i] >= this.end || start[i] + span[i] <= this.begin) continue;
      if (kind[i] === 0 /* STEP */ || kind[i] === 11 /* BUFFER */) continue;
      const from = (start[i] - this.begin) * scale;
      const length = Math.max(span[i] * scale, 1e-9);
      const density = Math.max(busy[i] * scale, 1e-9) / length;
      const to = Math.min(this.count, from + length);
      let times = this.times[lane[i]];
      if (!times) times = this.times[lane[i]] = new Float32Array(KINDS * this.count);
      const offset = Math.min(kind[i], KINDS - 1) * this.count;
      for (let bin = Math.max(0, Math.floor(from)); bin < to; bin++) {
        times[offset + bin] += density * (Math.min(to, bin + 1) - Math.max(from, bin, 0));
      }
    }
  }
  /** Return the bins of all lanes. */
  finish() {
    return this.times.map((times) => times && this.summarize(times));
  }
  summarize(times) {
    const { count } = this;
    const kinds = new Uint8Array(count);
    const shares = new Uint8Array(count);
    for (let bin = 0; bin < count; bin++) {
      let [sum, most] = [0, 0];
      for (let kind = 0; kind < KINDS; kind++) {
        const time = times[kind * count + bin];
        sum += time;
        if (time > most) [most, kinds[bin]] = [time, kind];
      }
      const inner = times[4 /* GENERATED */ * count + bin];
      shares[bin] = Math.min(255, Math.ceil(Math.max(sum - inner, inner) * 255));
    }
    return { kinds, shares };
  }
};
function binMemory(samples, lane, begin, end, count) {
  const values = new Float64Array(count).fill(-1);
  let [peak, before] = [0, 0];
  for (const { rows, lane: lanes, series, time, value } of samples) {
    for (let i = 0; i < rows; i++) {
      if (lanes[i] !== lane || series[i] !== 0) continue;
      peak = Math.max(peak, value[i]);
      if (time[i] < begin) before = value[i];
      const bin = Math.floor((time[i] - begin) / (end - begin) * count);
      if (bin >= 0 && bin < count && value[i] > values[bin]) values[bin] = value[i];
    }
  }
  const shares = new Uint8Array(count);
  for (let bin = 0; bin < count; bin++) {
    if (values[bin] >= 0) before = values[bin];
    shares[bin] = peak > 0 ? Math.min(255, Math.ceil(before / peak * 255)) : 0;
  }
  return { kinds: new Uint8Array(count), shares };
}

// src/load/parted.ts
var TooManyEvents = class extends TraceError {
};

// src/load/file_parts.ts
var SLACK = 4;
var FileParts = class _FileParts {
  constructor(index, base, decoder) {
    this.index = index;
    this.base = base;
    this.decoder = decoder;
    const events = this.ofType(2 /* EVENTS */);
    const times = events.flatMap(({ first, last }) => [this.relative(first), this.relative(last)]);
    this.interval = [Math.min(...times), Math.max(...times)];
    this.count = events.reduce((sum, { rows }) => sum + rows, 0);
    this.levels = [...new Set(this.ofType(4 /* LEVELS */).map(({ level }) => level))].sort((a, b) => a - b);
  }
  index;
  base;
  decoder;
  interval;
  count;
  isSmall = false;
  levels;
  rows = /* @__PURE__ */ new Map();
  samples = null;
  static async open(index, decoder) {
    const types = [1 /* RECORDS */, 5 /* STEPS */];
    const chunks = await readChunks(index, index.chunks.filter(({ type }) => types.includes(type)));
    const base = await decodeChunks(index.name, chunks, [5 /* STEPS */], {
      decoder,
      base: null,
      damage: null,
      lost: (_, reason) => describe(index, reason)
    });
    if (base.warnings.length) throw new TraceError(base.warnings[0]);
    return new _FileParts(index, base, decoder);
  }
  get name() {
    return this.index.name;
  }
  get warnings() {
    return this.index.warnings;
  }
  get firstStep() {
    return this.index.firstStep;
  }
  async readBins(begin, end, count) {
    const binning = new Binning(begin, end, count);
    const width = (end - begin) / (SLACK * count);
    const level = this.levels.filter((level2) => 2 ** level2 <= width).at(-1) ?? this.levels[0];
    const entries = this.touching(4 /* LEVELS */, begin, end).filter((entry) => entry.level === level);
    for (const rows of await Promise.all(entries.map((entry) => this.readLevel(entry)))) binning.add(rows);
    const lanes = binning.finish();
    const samples = await this.readMemory();
    this.base.records.lanes.forEach(({ kind }, lane) => {
      if (kind === 3 /* MEMORY */) lanes[lane] = binMemory(samples, lane, begin, end, count);
    });
    return { begin, end, count, lanes, events: this.numEvents(begin, end) };
  }
  async readEvents(begin, end, limit) {
    const count = this.numEvents(begin, end);
    if (count > limit) throw new TooManyEvents(`the interval has up to ${count} events`);
    const entries = [2 /* EVENTS */, 3 /* SAMPLES */].flatMap((type) => this.touching(type, begin, end));
    const chunks = await readChunks(this.index, entries);
    const trace = await decodeChunks(this.name, chunks, [2 /* EVENTS */, 3 /* SAMPLES */], {
      decoder: this.decoder,
      base: this.base,
      damage: null,
      lost: (_, reason) => describe(this.index, reason)
    });
    return trace.withWarnings(this.warnings);
  }
  relative(time) {
    return Number(time - this.base.origin);
  }
  ofType(type) {
    return this.index.chunks.filter((chunk) => chunk.type === type);
  }
  touching(type, begin, end) {
    return this.ofType(type).filter(
      ({ first, last }) => this.relative(first) < end && this.relative(last) > begin
    );
  }
  numEvents(begin, end) {
    return this.touching(2 /* EVENTS */, begin, end).reduce((sum, { rows }) => sum + rows, 0);
  }
  readLevel(entry) {
    let rows = this.rows.get(entry);
    if (!rows) {
      rows = this.decode(entry).then(({ levels }) => levels);
      this.rows.set(entry, rows);
    }
    return rows;
  }
  /** Return the bytes in use over time: the largest of short intervals, if the file has them. */
  readMemory() {
    if (!this.samples) {
      const peaks = this.ofType(6 /* PEAKS */);
      const entries = peaks.length ? peaks : this.ofType(3 /* SAMPLES */);
      this.samples = Promise.all(
        entries.map((entry) => this.decode(entry).then(({ samples }) => samples))
      );
    }
    return this.samples;
  }
  async decode(entry) {
    const [chunk] = await readChunks(this.index, [entry]);
    const result = await this.decoder(makeTask(chunk, this.base.origin));
    if (result.error !== void 0) throw new TraceError(describe(this.index, result.error));
    return result;
  }
};
async function readChunks(index, entries) {
  return Promise.all(
    entries.map(async (entry) => {
      const chunk = readChunk(await index.readPart(entry), entry.offset);
      if (typeof chunk === "string") throw new TraceError(describe(index, chunk));
      return chunk;
    })
  );
}
function describe({ name }, reason) {
  return `${name}: a part of the file cannot be read: ${reason}`;
}

// src/view/units.ts
var UNITS = [
  [6e10, "min"],
  [1e9, "s"],
  [1e6, "ms"],
  [1e3, "\xB5s"],
  [1, "ns"]
];
function formatDuration(ns) {
  const size = Math.abs(ns);
  const [factor, unit] = UNITS.find(([factor2]) => size >= factor2 * 0.9995) ?? [1, "ns"];
  const value = ns / factor;
  const digits = factor === 1 ? 0 : Math.max(0, 2 - Math.floor(Math.log10(Math.abs(value) + 1e-9)));
  return `${value.toFixed(digits)} ${unit}`;
}
function formatTime(ns, step) {
  const [factor, unit] = UNITS.slice(1).find(([factor2]) => Math.abs(ns) >= factor2) ?? [1, "ns"];
  const digits = Math.max(0, Math.min(9, Math.ceil(-Math.log10(step / factor) - 1e-9)));
  return ns === 0 ? "0" : `${(ns / factor).toFixed(digits)} ${unit}`;
}
function formatBytes(bytes) {
  if (bytes < 0) return "unknown";
  const units = ["B", "kB", "MB", "GB", "TB"];
  let unit = 0;
  let value = bytes;
  while (value >= 999.5 && unit < units.length - 1) {
    value /= 1e3;
    unit++;
  }
  const digits = unit === 0 || value >= 99.95 ? 0 : value >= 9.995 ? 1 : 2;
  return `${value.toFixed(digits)} ${units[unit]}`;
}
export {
  FileParts,
  StepExecutions,
  TraceError,
  assignRows,
  compareSteps,
  crc32,
  decodeHere,
  decodeTrace,
  findCriticalPath,
  formatBytes,
  formatDuration,
  formatTime,
  holdersAt,
  holdersOver,
  listChunks,
  matchNodes,
  matchingEvents,
  memoryLanes,
  memoryUse,
  scopeAt,
  sortOrder,
  spread,
  sumBy,
  sumByNode,
  sumByScope,
  upperBound
};
