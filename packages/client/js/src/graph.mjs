// Graphs under construction: scopes, outputs and nodes.

import { attribute, bytes, namesInGraphDef, number } from "./encoding.mjs";
import { WeftError } from "./errors.mjs";
import {
  checkArray, checkBytes, checkFunction, checkString, checkStrings, describe, invalid,
} from "./options.mjs";
import { Tensor } from "./tensor.mjs";

const GRAPH_DEF_VERSION = 134;

/** A node of `graph`, or of any graph without it. */
export class Operation {
  constructor(name, graph = null) {
    checkString("Operation", "the name", name);
    this.name = name;
    Object.defineProperty(this, "graph", { value: graph });
  }

  output(index) {
    return new Output(`${this.name}:${index}`, this.graph);
  }
}

/** A result of a node, "node:0", of `graph`, or of any graph without it. */
export class Output {
  constructor(name, graph = null) {
    checkString("Output", "the name", name);
    this.name = name.includes(":") ? name : `${name}:0`;
    Object.defineProperty(this, "graph", { value: graph });
  }

  get operation() {
    return new Operation(this.name.slice(0, this.name.lastIndexOf(":")), this.graph);
  }
}

/**
 * Return the name of an operation or an output of a graph. Names are unique within a graph only, so
 * a name of another graph would silently refer to a different node.
 */
export function nameIn(graph, item) {
  if (item.graph && item.graph !== graph) {
    throw new WeftError(
      "INVALID_ARGUMENT",
      `'${item.name}' belongs to another graph or function body; pass it as an argument`);
  }
  return item.name;
}

function checkOperation(owner, value) {
  if (value instanceof Operation) return;
  throw invalid(`${owner}: expected an Operation, got ${describe(value)}`);
}

const CASE = "names that differ only in case are equal";

/** The nodes and functions of a graph, in parts; sessions send those that are new. */
class GraphState {
  parts = [];
  initializers = [];
  #suffixes = new Map(); // the next one to try for each name that is taken, in lower case
  #functions = new Set();

  uniqueName(name) {
    let result = name;
    for (const key = name.toLowerCase(); this.#suffixes.has(result.toLowerCase());) {
      const next = this.#suffixes.get(key);
      this.#suffixes.set(key, next + 1);
      result = `${name}_${next}`;
    }
    this.#suffixes.set(result.toLowerCase(), 1);
    return result;
  }

  /** Take the names of nodes that the server has added. */
  reserve(names) {
    for (const name of names) {
      if (!this.#suffixes.has(name.toLowerCase())) this.#suffixes.set(name.toLowerCase(), 1);
    }
  }

  addFunction(name) {
    if (this.#functions.has(name)) {
      throw new WeftError("ALREADY_EXISTS", `the graph already has a function named '${name}'`);
    }
    this.#functions.add(name);
  }

  /** Add the nodes and functions of a GraphDef, unless a node has one of their names. */
  addGraphDef(graphDef) {
    const { nodes, functions } = namesInGraphDef(graphDef);
    const taken = new Set();
    for (const name of nodes) {
      if (this.#suffixes.has(name.toLowerCase())) {
        throw new WeftError(
          "ALREADY_EXISTS", `the graph already has a node named '${name}'; ${CASE}`, { node: name });
      }
      if (taken.has(name.toLowerCase())) {
        throw new WeftError(
          "INVALID_ARGUMENT", `the name '${name}' is not unique in the GraphDef; ${CASE}`);
      }
      taken.add(name.toLowerCase());
    }
    this.reserve(nodes);
    for (const name of functions) this.#functions.add(name);
    this.parts.push({ kind: "import", isSealed: true, nodes: [graphDef], constants: [] });
  }

  current() {
    const last = this.parts.at(-1);
    if (last?.kind === "nodes" && !last.isSealed) return last;
    const part = { kind: "nodes", isSealed: false, nodes: [], constants: [] };
    part.nodes.push(bytes(4, number(1, GRAPH_DEF_VERSION)));
    this.parts.push(part);
    return part;
  }

  /** The number of parts; new nodes begin another one. */
  seal() {
    if (this.parts.length) this.parts.at(-1).isSealed = true;
    return this.parts.length;
  }
}

/** The properties of nodes that are added through it; copies refer to the same graph. */
export class Scope {
  constructor(state = new GraphState(), options = {}) {
    this.state = state;
    this.prefix = options.prefix ?? "";
    this.opName = options.opName ?? "";
    this.device = options.device ?? "";
    this.colocation = options.colocation ?? "";
    this.controls = options.controls ?? [];
  }

  static root() {
    return new Scope();
  }

  #with(options) {
    return new Scope(this.state, { ...this, ...options });
  }

  withName(opName) {
    checkString("Scope.withName", "the name", opName);
    return this.#with({ opName });
  }

  subScope(name) {
    checkString("Scope.subScope", "the name", name);
    return this.#with({ prefix: `${this.state.uniqueName(this.prefix + name)}/`, opName: "" });
  }

  withDevice(device) {
    checkString("Scope.withDevice", "the device", device);
    return this.#with({ device });
  }

  colocateWith(operation) {
    checkOperation("Scope.colocateWith", operation);
    return this.#with({ colocation: nameIn(this.state, operation) });
  }

  withControls(operations) {
    checkArray("Scope.withControls", "operations", operations);
    for (const operation of operations) checkOperation("Scope.withControls", operation);
    return this.#with({ controls: [...this.controls, ...operations] });
  }

  withoutPrefix() {
    return this.#with({ prefix: "", opName: "" });
  }

  nameFor(op) {
    return this.prefix + (this.opName || op);
  }
}

/** Check that an argument is a scope. */
export function checkScope(owner, value) {
  if (value instanceof Scope) return;
  throw invalid(`${owner}: scope must be a Scope, got ${describe(value)}`);
}

/** A constant of any size. The value is copied, as it is sent later and to each session. */
export function constant(scope, value, dtype, shape) {
  checkScope("constant", scope);
  const tensor = Tensor.from(value, dtype, shape).copy();
  const name = scope.state.uniqueName(scope.nameFor("Const"));
  scope.state.current().constants.push({ name, tensor, device: scope.device });
  return new Output(`${name}:0`, scope.state);
}

function inputName(scope, value, dtype) {
  if (value instanceof Output) return nameIn(scope.state, value);
  if (value?.output instanceof Output) return nameIn(scope.state, value.output);
  if (value === undefined || value === null) {
    throw new WeftError("INVALID_ARGUMENT", `an input of ${scope.nameFor("a node")} is missing`);
  }
  return constant(scope, value, dtype).name;
}

/**
 * Add a node. `inputs` are [value, isList, dtype], where `dtype` is that of plain values; `attrs`
 * are [name, kind, value], and left out if the value is undefined.
 */
export function addNode(scope, op, inputs, attrs) {
  checkScope(op, scope);
  const fullName = scope.nameFor(op);
  const constants = scope.withoutPrefix().withName(`${fullName}/Const`);
  const parts = [bytes(2, op)];
  const counts = [];
  let hasLists = false;
  for (const [value, isList, dtype] of inputs) {
    if (isList) checkArray(op, "an input that is a list", value);
    const values = isList ? Array.from(value) : [value];
    for (const item of values) parts.push(bytes(3, inputName(constants, item, dtype)));
    counts.push(values.length);
    hasLists ||= isList;
  }
  for (const control of scope.controls) parts.push(bytes(3, `^${nameIn(scope.state, control)}`));
  if (scope.device) parts.push(bytes(4, scope.device));
  if (scope.colocation) parts.push(attribute("_class", "list(string)", [`loc:@${scope.colocation}`]));
  if (hasLists) parts.push(attribute("_input_counts", "list(int)", counts));
  for (const [name, kind, value] of attrs) {
    if (value !== undefined) parts.push(attribute(name, kind, value));
  }
  const name = scope.state.uniqueName(fullName);
  scope.state.current().nodes.push(bytes(1, Buffer.concat([bytes(1, name), ...parts])));
  return new Operation(name, scope.state);
}

/** Outputs of a node from number `first` on. */
export function outputsOf(operation, first, count) {
  return Array.from({ length: count }, (_, i) => operation.output(first + i));
}

// ---------------------------------------------------------------------------- functions

/** Define a function of the graph: `build` takes a scope and the arguments, and returns results. */
export function defineFunction(scope, name, args, build, results = []) {
  checkScope("defineFunction", scope);
  checkString("defineFunction", "the name", name);
  checkArray("defineFunction", "args", args);
  checkFunction("defineFunction", "build", build);
  checkStrings("defineFunction", "results", results);
  for (const argument of args) checkString("defineFunction", "the name of an argument", argument?.name);
  const body = Scope.root();
  const placeholders = args.map((argument) =>
    addNode(body.withName(argument.name), "Placeholder", [], [
      ["dtype", "type", argument.dtype],
      ["shape", "shape", argument.shape ?? null],
    ]).output(0));
  const built = [build(body, ...placeholders)].flat();
  for (const item of built) {
    if (item instanceof Output || item?.output instanceof Output) continue;
    const isPromise = item instanceof Promise;
    if (isPromise) item.catch(() => undefined); // this error is reported instead
    const hint = isPromise ? "; it must not be async" : "";
    throw invalid(
      `the body of the function '${name}' must return an Output or an array of Outputs, got ` +
        `${describe(item)}${hint}`);
  }
  if (body.state.parts.some((part) => part.kind !== "nodes")) {
    throw new WeftError(
      "INVALID_ARGUMENT",
      `the body of the function '${name}' defines functions or has gradients that a session added`);
  }
  scope.state.addFunction(name);
  const constants = body.state.parts.flatMap((part) => part.constants);
  scope.state.parts.push({
    kind: "function", isSealed: true, name, results,
    inputs: placeholders.map((placeholder) => placeholder.operation.name),
    outputs: built.map((item) => nameIn(body.state, item instanceof Output ? item : item.output)),
    nodes: body.state.parts.flatMap((part) => part.nodes), constants,
  });
  return name;
}

/** Call a function with a number of results. */
export function callFunction(scope, name, args, numResults = 1) {
  checkString("callFunction", "the name", name);
  checkArray("callFunction", "args", args);
  const operation = addNode(scope, name, args.map((value) => [value, false]), []);
  return outputsOf(operation, 0, numResults);
}

export function cond(scope, predicate, args, thenBranch, elseBranch, numResults = 1) {
  const operation = addNode(scope, "If", [[predicate, false, "bool"], [args, true]], [
    ["then_branch", "func", thenBranch],
    ["else_branch", "func", elseBranch],
  ]);
  return outputsOf(operation, 0, numResults);
}

export function whileLoop(scope, values, condition, body) {
  checkArray("whileLoop", "values", values);
  const operation = addNode(scope, "While", [[values, true]], [
    ["cond", "func", condition],
    ["body", "func", body],
  ]);
  return outputsOf(operation, 0, values.length);
}

/** Add the nodes and functions of a serialized GraphDef. */
export function importGraphDef(scope, graphDef) {
  checkScope("importGraphDef", scope);
  checkBytes("importGraphDef", "graphDef", graphDef);
  scope.state.addGraphDef(Buffer.from(graphDef));
}
