// Clients and sessions.

import { spawn } from "node:child_process";

import { Connection } from "./connection.mjs";
import { loadCredentials } from "./credentials.mjs";
import { callAt, deadlineAfter, millisecondsUntil, waitUntil } from "./deadline.mjs";
import { readTable, writeTable } from "./encoding.mjs";
import { WeftError } from "./errors.mjs";
import { Operation, Output, checkScope, nameIn } from "./graph.mjs";
import {
  checkArray, checkBytes, checkOptions, checkStrings, describe, invalid,
} from "./options.mjs";
import { Tensor, nameOf } from "./tensor.mjs";

const METHODS = {
  runStep: 7, createSession: 21, plan: 22, closeSession: 23, define: 25, defineFunction: 26,
  differentiate: 27, shapes: 28, functions: 29, reset: 30,
};
const DEFAULT_TIMEOUT_MS = 60_000, GRACE_MS = 500, STOP_MS = 5_000, MAX_PORT = 65_535;
const VERSION = 2n;
const CREDENTIALS = ["certificate", "key", "authority", "token"];

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
    checkOptions("Client.connect", options, [...CREDENTIALS, "timeout"]);
    const match = /^weft:\/\/(?:\[([^\]]+)\]|([^:\/]+)):(\d+)$/.exec(target);
    const port = Number(match?.[3] ?? 0);
    if (port < 1 || port > MAX_PORT) {
      throw new WeftError(
        "INVALID_ARGUMENT",
        "a target is like weft://localhost:40123, as the server prints it, with a port of 1 to " +
          `${MAX_PORT}; got '${target}'`);
    }
    const host = match[1] ?? match[2], timeout = options.timeout ?? DEFAULT_TIMEOUT_MS;
    const deadline = deadlineAfter(timeout);
    const credentials = loadCredentials(options, host, port);
    try {
      const connection = await Connection.open(host, port, credentials, deadline);
      return new Client(connection, target, timeout);
    } catch (error) {
      const isSilent = error.code === "UNAVAILABLE" || error.code === "DEADLINE_EXCEEDED";
      if (isSilent) error.message = `${target}: ${error.message}`;
      throw error;
    }
  }

  /**
   * Start a server of one task for this program, and connect to it. It ends with the client, or when
   * the program ends, in whichever way: its standard input is a pipe from the program.
   */
  static async launchLocal(options = {}) {
    checkOptions("Client.launchLocal", options, ["command", "arguments", "timeout"]);
    const deadline = deadlineAfter(options.timeout ?? DEFAULT_TIMEOUT_MS);
    const [program, ...args] = options.command ?? [process.env.WEFT_COMMAND || "weft", "server"];
    const all = [...args, "--stop-at-eof", ...(options.arguments ?? [])];
    const child = spawn(program, all, { stdio: ["pipe", "pipe", "inherit"] });
    try {
      const target = await targetOf(child, program, deadline);
      const client = await Client.connect(target, { timeout: options.timeout });
      client.#process = child;
      return client;
    } catch (error) {
      child.kill("SIGKILL");
      throw error;
    }
  }

  /** Open a session with the graph of a scope; `config` is a serialized ConfigProto. */
  async session(scope, options = {}) {
    checkScope("Client.session", scope);
    checkOptions("Client.session", options, ["config", "timeout"]);
    const { config = Buffer.alloc(0), timeout } = options;
    checkBytes("Client.session", "config", config);
    const deadline = deadlineAfter(timeout ?? this.timeout);
    const reply = await this.call(METHODS.createSession, [VERSION, config], [], deadline);
    const [number, devices] = readTable(reply.meta, (table) => [table.number(0), table.texts(1)]);
    return new Session(this, scope, number, devices.map(deviceName));
  }

  /** Drop the state of all tasks: of the named containers, or of all. */
  async reset(containers = [], options = {}) {
    checkOptions("Client.reset", options, ["timeout"]);
    const { timeout = this.timeout } = options;
    checkStrings("Client.reset", "containers", containers);
    const fields = [!containers.length, containers];
    await this.call(METHODS.reset, fields, [], deadlineAfter(timeout));
  }

  /** Call a method with a table of fields, or the bytes of its meta. */
  call(method, fields, values, deadline) {
    const meta = Array.isArray(fields) ? writeTable(fields) : fields;
    return this.#connection.call(method, meta, values, deadline + GRACE_MS);
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

function targetOf(child, program, deadline) {
  return new Promise((resolve, reject) => {
    let text = "";
    const fail = (code, message) => {
      stop();
      reject(new WeftError(code, message));
    };
    const stop = callAt(
      deadline, () => fail("DEADLINE_EXCEEDED", "the server has not started in time"));
    child.once("error", (error) =>
      fail("NOT_FOUND", `${program} cannot be started: ${error.message}`));
    child.once("exit", () => fail("UNAVAILABLE", "the server ended before it listened"));
    child.stdout.on("data", (chunk) => {
      text += chunk;
      const match = /weft:\/\/\S+:\d+(?=\s)/.exec(text);
      if (!match) return;
      stop();
      child.stdout.removeAllListeners("data");
      child.stdout.resume();
      resolve(match[0]);
    });
  });
}

/** Return the name of an output of a graph: an output, an op with one output, or a name. */
function nameOfOutput(graph, value) {
  if (typeof value === "string") return new Output(value).name;
  const output = value?.output instanceof Output ? value.output : value;
  if (!(output instanceof Output)) {
    throw invalid(
      `${describe(value)} is not an output; give an Output, an op with one output, a Variable or ` +
        "a name such as 'node:0'");
  }
  return nameIn(graph, output);
}

/** Return the name of an operation of a graph: an operation, one of its outputs, or a name. */
function nameOfTarget(graph, value) {
  if (typeof value === "string") return new Output(value).operation.name;
  const operation = value?.operation ?? value;
  if (!(operation instanceof Operation)) {
    throw invalid(
      `${describe(value)} is not an operation; give an Operation, an Output or a name such as 'node'`);
  }
  return nameIn(graph, operation);
}

/** Return feeds as an array of pairs. */
function feedPairs(feeds) {
  const accepted = "Session.run: feeds must be pairs of outputs and values, as in [[x, 1], [y, 2]]";
  if (typeof feeds?.[Symbol.iterator] !== "function") {
    throw invalid(`${accepted}, got ${describe(feeds)}`);
  }
  const pairs = Array.from(feeds);
  for (const pair of pairs) {
    if (!Array.isArray(pair) || pair.length !== 2) {
      throw invalid(`${accepted}, got the item ${describe(pair)}`);
    }
  }
  return pairs;
}

/** A session: a graph on the devices of a cluster. Calls may overlap. */
export class Session {
  #client;
  #scope;
  #number;
  #id = Symbol("session");
  #extending = Promise.resolve();
  #numSent = 0; // parts of the graph
  #numBegun = 0; // parts that were sent at least once, perhaps without a reply
  #definition = 0n; // the number of the last definition
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

  #deadline(timeout) {
    return deadlineAfter(timeout ?? this.#client.timeout);
  }

  /** Send the nodes and functions that are new; the other calls do so too. */
  async extend(options = {}) {
    checkOptions("Session.extend", options, ["timeout"]);
    const { timeout } = options;
    await this.#extend(this.#deadline(timeout));
  }

  /** Send the new parts of the graph, and then call `change`; one call at a time does so. */
  async #extend(deadline, change = () => undefined) {
    const previous = this.#extending;
    let end;
    const own = new Promise((resolve) => {
      end = resolve;
    });
    this.#extending = previous.then(() => own);
    try {
      await waitUntil(
        deadline, previous,
        "another call did not finish extending the graph before the deadline");
      await this.#sendParts(deadline);
      return await change();
    } finally {
      end();
    }
  }

  async #sendParts(deadline) {
    const { state } = this.#scope;
    const count = state.seal();
    while (this.#numSent < count) {
      const part = state.parts[this.#numSent];
      if (this.#numBegun === this.#numSent) { // else it is sent again, with its number
        this.#numBegun++;
        this.#definition++;
      }
      if (part.kind === "gradients") await this.#repeatGradients(part, deadline);
      else await this.#define(part, deadline);
      this.#numSent++;
    }
  }

  async #define(part, deadline) {
    const graphDef = Buffer.concat(part.nodes);
    const values = [new Tensor("uint8", [graphDef.length], graphDef)];
    values.push(...part.constants.map(({ tensor }) => tensor));
    const names = part.constants.map(({ name }) => name);
    const types = part.constants.map(({ tensor }) => tensor.dtype);
    const limit = limitOf(deadline);
    if (part.kind === "function") {
      const fields = [this.#number, part.name, part.inputs, part.outputs, part.results, names, limit,
        types, this.#definition];
      await this.#client.call(METHODS.defineFunction, fields, values, deadline);
    } else {
      const devices = part.constants.map(({ device }) => device);
      const fields = [this.#number, names, devices, limit, types, this.#definition];
      await this.#client.call(METHODS.define, fields, values, deadline);
    }
  }

  /**
   * Run a step; returns a tensor for each fetch.
   *
   * Options: `feeds`, pairs of outputs and values; `targets`, operations to run without fetching;
   * `timeout` in milliseconds.
   */
  async run(fetches, options = {}) {
    checkOptions("Session.run", options, ["feeds", "targets", "timeout"]);
    const { feeds = [], targets = [], timeout } = options;
    const deadline = this.#deadline(timeout);
    const pairs = feedPairs(feeds);
    const fed = pairs.map(([output]) => this.#nameOf(output));
    const values = pairs.map(([, value]) => Tensor.from(value));
    checkArray("Session.run", "fetches", fetches);
    checkArray("Session.run", "targets", targets);
    const names = Array.from(fetches, (fetch) => this.#nameOf(fetch));
    const nodes = Array.from(targets, (target) => nameOfTarget(this.#scope.state, target));
    await this.#extend(deadline);
    const signature = await this.#plan(fed, names, nodes, deadline);
    const meta = Buffer.alloc(33);
    const limit = deadline === Infinity ? 0n : limitOf(deadline); // 0 for none
    [1n, this.#number, signature, limit].forEach((field, i) => meta.writeBigUInt64LE(field, 8 * i));
    const reply = await this.#client.call(METHODS.runStep, meta, values, deadline);
    if (reply.values.length !== fetches.length) {
      throw unreadable();
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
      const fields = [this.#number, feeds, fetches, targets, 0n, false, limitOf(deadline)];
      const reply = await this.#client.call(METHODS.plan, fields, [], deadline);
      signature = readTable(reply.meta, (table) => table.number(0));
      this.#signatures.set(key, signature);
    }
    return signature;
  }

  /**
   * Add gradients of the sum of `ys`: for each x an output, or null if no y depends on it. With
   * `sparse`, objects with `values` and `indices`, which is null for dense ones.
   */
  async gradients(ys, xs, options = {}) {
    checkOptions("Session.gradients", options, ["gradYs", "sparse", "timeout"]);
    const { gradYs = [], sparse = false, timeout } = options;
    const deadline = this.#deadline(timeout), { state } = this.#scope;
    for (const [name, value] of Object.entries({ ys, xs, gradYs })) {
      checkArray("Session.gradients", name, value);
    }
    const namesOf = (outputs) => Array.from(outputs, (output) => this.#nameOf(output));
    const part = { kind: "gradients", isSealed: true, ys: namesOf(ys), xs: namesOf(xs),
      gradYs: namesOf(gradYs), scope: state.uniqueName("gradients"), isDense: !sparse,
      origin: this.#id };
    await this.#extend(deadline, async () => {
      this.#definition++;
      const { names, ...gradients } = await this.#differentiate(part, deadline);
      state.reserve(names);
      state.parts.push(Object.assign(part, gradients));
    });
    const output = (name) => (name ? new Output(name, state) : null);
    return part.values.map((name, i) =>
      sparse ? { values: output(name), indices: output(part.indices[i]) } : output(name));
  }

  async #differentiate(part, deadline) {
    const fields = [this.#number, part.ys, part.xs, part.gradYs, part.scope, part.isDense, false,
      limitOf(deadline), true, this.#definition];
    const reply = await this.#client.call(METHODS.differentiate, fields, [], deadline);
    const [values, indices] = readTable(reply.meta, (table) => [table.texts(0), table.texts(1)]);
    if (values.length !== part.xs.length || indices.length !== part.xs.length ||
        reply.values[0]?.dtype !== "string") {
      throw unreadable();
    }
    return { values, indices, names: reply.values[0].data.map(String) };
  }

  /** Add the gradients that another session has added, under the same names. */
  async #repeatGradients(part, deadline) {
    if (part.origin === this.#id) return;
    const { values, indices } = await this.#differentiate(part, deadline);
    if (String([values, indices]) !== String([part.values, part.indices])) {
      throw new WeftError(
        "INTERNAL",
        `the gradients '${part.scope}' have other names in this session than in the one that ` +
          "added them; do the servers run different releases?");
    }
  }

  /** The element type and static shape of an output; null for an unknown rank, -1 for a size. */
  async shapeOf(output, options = {}) {
    checkOptions("Session.shapeOf", options, ["timeout"]);
    const { timeout } = options;
    const { values } = await this.#ask(METHODS.shapes, [this.#nameOf(output)], timeout);
    const [types, ranks, sizes] = values;
    if (!types?.data.length || !ranks?.data.length || !sizes) throw unreadable();
    const shape = ranks.data[0] < 0 ? null : Array.from(sizes.data, Number);
    return { dtype: nameOf(types.data[0]), shape };
  }

  /** The names of the functions of the graph. */
  async functions(options = {}) {
    checkOptions("Session.functions", options, ["timeout"]);
    const { timeout } = options;
    const reply = await this.#ask(METHODS.functions, [], timeout);
    return readTable(reply.meta, (table) => table.texts(1));
  }

  /** Functions, and those that they call, as a serialized GraphDef. */
  async functionDefs(names, options = {}) {
    checkOptions("Session.functionDefs", options, ["timeout"]);
    const { timeout } = options;
    checkStrings("Session.functionDefs", "names", names);
    const { values } = await this.#ask(METHODS.functions, names, timeout);
    if (values[0]?.dtype !== "uint8") throw unreadable();
    return values[0].bytes();
  }

  async #ask(method, names, timeout) {
    const deadline = this.#deadline(timeout);
    await this.#extend(deadline);
    return this.#client.call(method, [this.#number, names, limitOf(deadline)], [], deadline);
  }

  /** End the session; a server that does not answer in time ends it with the connection. */
  async close(options = {}) {
    checkOptions("Session.close", options, ["timeout"]);
    const deadline = deadlineAfter(options.timeout ?? Math.min(this.#client.timeout, STOP_MS));
    await this.#client.call(METHODS.closeSession, [this.#number], [], deadline)
      .catch(() => undefined);
  }
}

function unreadable() {
  return new WeftError("DATA_LOSS", "the reply of the server cannot be read");
}

/** The time limit of a request in milliseconds. */
function limitOf(deadline) {
  return BigInt(Math.ceil(Math.min(millisecondsUntil(deadline), Number.MAX_SAFE_INTEGER)));
}
