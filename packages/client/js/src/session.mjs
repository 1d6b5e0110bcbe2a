// Clients and sessions.

import { spawn } from "node:child_process";

import { Connection } from "./connection.mjs";
import { loadCredentials } from "./credentials.mjs";
import { readTable, writeTable } from "./encoding.mjs";
import { WeftError } from "./errors.mjs";
import { Output, nameIn } from "./graph.mjs";
import { Tensor, nameOf } from "./tensor.mjs";

const METHODS = {
  runStep: 7, createSession: 21, plan: 22, closeSession: 23, define: 25, defineFunction: 26,
  differentiate: 27, shapes: 28, functions: 29, reset: 30,
};
const DEFAULT_TIMEOUT_MS = 60_000, GRACE_MS = 500, STOP_MS = 5_000, LONGEST_MS = 2 ** 31 - 1;
const VERSION = 2n;

/** A connection to a server. */
export class Client {
  #connection;
  #process = null;

  constructor(connection, target, timeout) {
    this.#connection = connection;
    this.target = target;
    this.timeout = timeout;
  }

  /** Connect to "weft://host:port". */
  static async connect(target, options = {}) {
    const match = /^weft:\/\/(?:\[([^\]]+)\]|([^:\/]+)):(\d+)$/.exec(target);
    if (!match) {
      throw new WeftError(
        "INVALID_ARGUMENT", `a target is like weft://localhost:40123, got '${target}'`);
    }
    const host = match[1] ?? match[2], port = Number(match[3]);
    const timeout = options.timeout ?? DEFAULT_TIMEOUT_MS;
    const credentials = loadCredentials(options, host, port);
    return new Client(await Connection.open(host, port, credentials, timeout), target, timeout);
  }

  /** Start a server of one task for this program, and connect to it. It ends with the client. */
  static async launchLocal(options = {}) {
    const [program, ...args] = options.command ?? [process.env.WEFT_COMMAND || "weft", "server"];
    const cluster = ["--cluster", '{"local": ["localhost:0"]}', ...(options.arguments ?? [])];
    const child = spawn(program, [...args, ...cluster], { stdio: ["ignore", "pipe", "inherit"] });
    try {
      const target = await targetOf(child, program, options.timeout ?? DEFAULT_TIMEOUT_MS);
      const client = await Client.connect(target, { timeout: options.timeout });
      client.#process = child;
      process.once("exit", () => child.kill());
      return client;
    } catch (error) {
      child.kill("SIGKILL");
      throw error;
    }
  }

  /** Open a session with the graph of a scope; `config` is a serialized ConfigProto. */
  async session(scope, { config = Buffer.alloc(0), timeout } = {}) {
    const meta = writeTable([VERSION, config]);
    const reply = await this.call(METHODS.createSession, meta, [], timeout ?? this.timeout);
    const [number, devices] = readTable(reply.meta, (table) => [table.number(0), table.texts(1)]);
    return new Session(this, scope, number, devices.map(deviceName));
  }

  /** Drop the state of all tasks: of the named containers, or of all. */
  async reset(containers = [], { timeout = this.timeout } = {}) {
    await this.call(METHODS.reset, writeTable([!containers.length, containers]), [], timeout);
  }

  call(method, meta, values, timeout) {
    return this.#connection.call(method, meta, values, timeout);
  }

  /** Close the connection, and end a server that was started for it. */
  async close() {
    this.#connection.close();
    const child = this.#process;
    if (!child || child.exitCode !== null || child.signalCode !== null) return;
    const ended = new Promise((resolve) => child.once("exit", resolve));
    const timer = setTimeout(() => child.kill("SIGKILL"), STOP_MS);
    child.kill();
    await ended;
    clearTimeout(timer);
  }
}

/** The name in the description of a device, which is JSON. */
function deviceName(text) {
  try {
    return String(JSON.parse(text).name);
  } catch {
    return text;
  }
}

function targetOf(child, program, timeout) {
  return new Promise((resolve, reject) => {
    let text = "";
    const timer = setTimeout(
      () => reject(new WeftError("DEADLINE_EXCEEDED", "the server has not started in time")),
      Math.min(timeout, LONGEST_MS));
    const fail = (error) => {
      clearTimeout(timer);
      reject(error);
    };
    child.once("error", (error) =>
      fail(new WeftError("NOT_FOUND", `${program} cannot be started: ${error.message}`)));
    child.once("exit", () =>
      fail(new WeftError("UNAVAILABLE", "the server ended before it listened")));
    child.stdout.on("data", (chunk) => {
      text += chunk;
      const match = /weft:\/\/\S+:\d+(?=\s)/.exec(text);
      if (!match) return;
      clearTimeout(timer);
      resolve(match[0]);
    });
  });
}

/** Return the name of an output of a graph: an output, an op with one output, or a name. */
function nameOfOutput(graph, value) {
  if (typeof value === "string") return new Output(value).name;
  const output = value?.output instanceof Output ? value.output : value;
  if (!(output instanceof Output)) {
    throw new WeftError("INVALID_ARGUMENT", `${value} is not an output`);
  }
  return nameIn(graph, output);
}

/** A session: a graph on the devices of a cluster. Calls may overlap. */
export class Session {
  #client;
  #scope;
  #number;
  #sent = 0;
  #extending = Promise.resolve();
  #signatures = new Map();

  constructor(client, scope, number, devices) {
    this.#client = client;
    this.#scope = scope;
    this.#number = number;
    this.devices = devices;
  }

  #nameOf(output) {
    return nameOfOutput(this.#scope.state, output);
  }

  #call(method, fields, values, deadline) {
    return this.#client.call(method, writeTable(fields), values, left(deadline) + GRACE_MS);
  }

  #deadline(timeout) {
    return performance.now() + (timeout ?? this.#client.timeout);
  }

  /** Send the nodes and functions that are new; the other calls do so too. */
  async extend({ timeout } = {}) {
    await this.#extend(this.#deadline(timeout));
  }

  #extend(deadline) {
    const turn = this.#extending.catch(() => undefined).then(async () => {
      const { state } = this.#scope;
      const count = state.seal();
      while (this.#sent < count) {
        await this.#send(state.parts[this.#sent], deadline);
        this.#sent++;
      }
    });
    this.#extending = turn;
    return turn;
  }

  async #send(part, deadline) {
    const graphDef = Buffer.concat(part.nodes);
    const values = [new Tensor("uint8", [graphDef.length], graphDef)];
    values.push(...part.constants.map((each) => each.tensor));
    const names = part.constants.map((each) => each.name);
    const types = part.constants.map((each) => each.tensor.dtype);
    if (part.kind === "function") {
      const fields = [this.#number, part.name, part.inputs, part.outputs, part.results, names,
        milliseconds(deadline), types];
      await this.#call(METHODS.defineFunction, fields, values, deadline);
    } else {
      const devices = part.constants.map((each) => each.device);
      const fields = [this.#number, names, devices, milliseconds(deadline), types];
      await this.#call(METHODS.define, fields, values, deadline);
    }
  }

  /**
   * Run a step; returns a tensor for each fetch.
   *
   * Options: `feeds`, pairs of outputs and values; `targets`, operations to run without fetching;
   * `timeout` in milliseconds.
   */
  async run(fetches, { feeds = [], targets = [], timeout } = {}) {
    const deadline = this.#deadline(timeout);
    const fed = Array.from(feeds, ([output]) => this.#nameOf(output));
    const values = Array.from(feeds, ([, value]) => Tensor.from(value));
    const names = fetches.map((fetch) => this.#nameOf(fetch));
    const nodes = targets.map((target) => nameIn(this.#scope.state, target.operation ?? target));
    await this.#extend(deadline);
    const signature = await this.#plan(fed, names, nodes, deadline);
    const meta = Buffer.alloc(33);
    const limit = timeout === Infinity ? 0n : milliseconds(deadline);
    [1n, this.#number, signature, limit].forEach((each, i) => meta.writeBigUInt64LE(each, 8 * i));
    const reply = await this.#client.call(METHODS.runStep, meta, values, left(deadline) + GRACE_MS);
    if (reply.values.length !== fetches.length) {
      throw new WeftError("DATA_LOSS", "the reply of the server cannot be read");
    }
    const dead = reply.values.indexOf(null);
    if (dead >= 0) {
      throw new WeftError(
        "INVALID_ARGUMENT", `${names[dead]} has no value: its branch was not taken`);
    }
    return reply.values;
  }

  async #plan(feeds, fetches, targets, deadline) {
    const key = JSON.stringify([feeds, fetches, targets]);
    let signature = this.#signatures.get(key);
    if (signature === undefined) {
      const fields = [this.#number, feeds, fetches, targets, 0n, false, milliseconds(deadline)];
      const reply = await this.#call(METHODS.plan, fields, [], deadline);
      signature = readTable(reply.meta, (table) => table.number(0));
      this.#signatures.set(key, signature);
    }
    return signature;
  }

  /**
   * Add gradients of the sum of `ys`: for each x an output, or null if no y depends on it. With
   * `sparse`, objects with `values` and `indices`, which is null for dense ones.
   */
  async gradients(ys, xs, { gradYs = [], sparse = false, timeout } = {}) {
    const deadline = this.#deadline(timeout);
    await this.#extend(deadline);
    const scope = this.#scope.state.uniqueName("gradients");
    const fields = [this.#number, ys.map((y) => this.#nameOf(y)), xs.map((x) => this.#nameOf(x)),
      gradYs.map((y) => this.#nameOf(y)), scope, !sparse, false, milliseconds(deadline)];
    const reply = await this.#call(METHODS.differentiate, fields, [], deadline);
    const [values, indices] = readTable(reply.meta, (table) => [table.texts(0), table.texts(1)]);
    const output = (name) => (name ? new Output(name, this.#scope.state) : null);
    return values.map((name, i) =>
      sparse ? { values: output(name), indices: output(indices[i]) } : output(name));
  }

  /** The element type and static shape of an output; null for an unknown rank, -1 for a size. */
  async shapeOf(output, { timeout } = {}) {
    const { values } = await this.#ask(METHODS.shapes, [this.#nameOf(output)], timeout);
    const [types, ranks, sizes] = values;
    const shape = ranks.data[0] < 0 ? null : Array.from(sizes.data, Number);
    return { dtype: nameOf(types.data[0]), shape };
  }

  /** The names of the functions of the graph. */
  async functions({ timeout } = {}) {
    const reply = await this.#ask(METHODS.functions, [], timeout);
    return readTable(reply.meta, (table) => table.texts(1));
  }

  /** Functions, and those that they call, as a serialized GraphDef. */
  async functionDefs(names, { timeout } = {}) {
    const { values } = await this.#ask(METHODS.functions, names, timeout);
    return values[0].bytes();
  }

  async #ask(method, names, timeout) {
    const deadline = this.#deadline(timeout);
    await this.#extend(deadline);
    return this.#call(method, [this.#number, names, milliseconds(deadline)], [], deadline);
  }

  /** End the session. */
  async close() {
    const deadline = this.#deadline(STOP_MS);
    await this.#call(METHODS.closeSession, [this.#number], [], deadline).catch(() => undefined);
  }
}

function left(deadline) {
  return Math.min(Math.max(deadline - performance.now(), 1), LONGEST_MS - GRACE_MS);
}

function milliseconds(deadline) {
  return BigInt(Math.ceil(left(deadline)));
}


