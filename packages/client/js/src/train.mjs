// Variables, optimizers and checkpoints.

import { addNode, checkScope, outputsOf } from "./graph.mjs";
import { checkArray, describe, invalid } from "./options.mjs";
import { numberOf } from "./tensor.mjs";

const scalar = (scope, value, dtype) =>
  addNode(scope, "Cast", [[value, false, "float64"]], [["DstT", "type", dtype]]).output(0);

/** A variable; `initial` has its shape, or one that broadcasts to it. */
export class Variable {
  constructor(scope, shape, dtype, initial) {
    checkScope("Variable", scope); // before a node is added
    checkArray("Variable", "shape", shape);
    numberOf(dtype);
    if (initial === undefined || initial === null) {
      throw invalid(`Variable: the initial value is missing, got ${initial}`);
    }
    this.shape = shape;
    this.dtype = dtype;
    const named = scope.opName ? scope : scope.withName("Variable");
    this.operation = addNode(named, "VariableV2", [], [
      ["shape", "shape", shape], ["dtype", "type", dtype],
    ]);
    const inner = scope.withoutPrefix(), { name } = this.operation;
    const full = addNode(inner.withName(`${name}/initial`), "BroadcastTo", [
      [initial, false, dtype], [shape, false, "int32"],
    ], []);
    const assign = inner.withName(`${name}/Assign`).colocateWith(this.operation);
    this.initializer = addNode(assign, "Assign", [[this.output, false], [full.output(0), false]], []);
    scope.state.initializers.push(this.initializer);
  }

  get output() {
    return this.operation.output(0);
  }

  get name() {
    return this.output.name;
  }

  /** A variable of the same shape and type on the same device. */
  slot(scope, name, initial) {
    const place = scope.withoutPrefix().colocateWith(this.operation);
    return new Variable(place.withName(`${this.operation.name}/${name}`), this.shape, this.dtype,
      initial);
  }
}

export function group(scope, operations) {
  checkScope("group", scope);
  return addNode(scope.withControls(operations), "NoOp", [], []);
}

/** An operation that gives all variables so far their initial values. */
export function initializeVariables(scope) {
  checkScope("initializeVariables", scope);
  return group(scope.withName("init"), scope.state.initializers);
}

function checkVariables(owner, variables) {
  if (!Array.isArray(variables) || !variables.every((item) => item instanceof Variable)) {
    throw invalid(`${owner}: variables must be an array of Variables, got ${describe(variables)}`);
  }
}

/** Check the variables that an optimizer updates. */
function checkTrained(owner, variables) {
  checkVariables(owner, variables);
  if (!variables.length) {
    throw invalid(`${owner}: No gradients provided for any variable: the list of variables is empty`);
  }
}

/** Return true if a value is a dense, sparse or missing gradient. */
function isGradient(value) {
  return typeof value === "object" && value !== null && "values" in value;
}

/**
 * The base of optimizers. Slots have the names that Python's optimizers give them, so that either can
 * restore the other's checkpoints. Gradients of gathers change the rows that they have, except by
 * Adam.
 */
class Optimizer {
  #state = new Map(); // for each graph, variables by their keys

  constructor(name) {
    this.name = name;
  }

  /** The state of the optimizer: the variables that it has added, to save and restore. */
  get variables() {
    return [...this.#state.values()].flatMap((variables) => [...variables.values()]);
  }

  /** The state of the optimizer in the graph of a scope. */
  variablesIn(scope) {
    return [...(this.#state.get(scope.state)?.values() ?? [])];
  }

  /** Add gradients of the sum of a loss and updates of variables; returns the training step. */
  async minimize(session, scope, loss, variables) {
    checkTrained("minimize", variables);
    const gradients = await session.gradients([loss], variables, { sparse: true });
    return this.apply(scope, gradients, variables);
  }

  /** Add updates of variables by gradients with `values` and `indices`; null values are left out. */
  apply(scope, gradients, variables) {
    checkTrained("apply", variables);
    if (!Array.isArray(gradients) || gradients.length !== variables.length) {
      throw invalid(
        "apply needs a gradient for each variable, got " +
          `${gradients?.length ?? describe(gradients)} gradients of ${variables.length} variables`);
    }
    const wrong = gradients.findIndex((gradient) => !isGradient(gradient));
    if (wrong >= 0) {
      throw invalid(
        "apply needs gradients with values and indices, as session.gradients returns them with " +
          `{ sparse: true }, got ${describe(gradients[wrong])}`);
    }
    if (!gradients.some(({ values }) => values)) {
      const names = variables.map(({ name }) => name).join(", ");
      throw invalid(
        `No gradients provided for any variable: the loss does not depend on any of ${names}`);
    }
    const inner = scope.subScope(this.name);
    this.begin(inner, variables);
    const pairs = variables.map((variable, i) => [variable, gradients[i]]);
    const updates = pairs
      .filter(([, gradient]) => gradient.values)
      .map(([variable, gradient]) =>
        this.update(inner.colocateWith(variable.operation), gradient, variable));
    return this.finish(inner, updates);
  }

  begin() {}

  finish(scope, updates) {
    return group(scope.withName("step"), updates);
  }

  #keep(scope, key, create) {
    const { state } = scope;
    if (!this.#state.has(state)) this.#state.set(state, new Map());
    const variables = this.#state.get(state);
    if (!variables.has(key)) variables.set(key, create());
    return variables.get(key);
  }

  /** The slot number `index` of a variable: a variable of the same shape, which `value` fills. */
  slot(scope, variable, index, value) {
    return this.#keep(scope, `${variable.name} ${index}`, () =>
      variable.slot(scope, this.name, scalar(scope, value, variable.dtype)));
  }

  /** A variable of the optimizer itself, without a name scope. */
  scalar(scope, title, value, like) {
    const place = scope.withoutPrefix().colocateWith(like.operation);
    return this.#keep(scope, title, () =>
      new Variable(place.withName(title), [], like.dtype, scalar(scope, value, like.dtype)));
  }
}

/** Add the op of an update: its variable, then parts, in which numbers become scalars. */
function addUpdate(scope, op, variable, parts, attrs = []) {
  const inputs = [variable, ...parts].map((part) =>
    [typeof part === "number" ? scalar(scope, part, variable.dtype) : part, false]);
  return addNode(scope, op, inputs, attrs);
}

/** Add the op of an update rule, "ApplyX", or "SparseApplyX" for the gradient of a gather. */
function applyRule(scope, rule, variable, before, gradient, after = [], attrs = []) {
  const { values, indices } = uniqueRows(scope, gradient);
  const op = `${indices ? "SparseApply" : "Apply"}${rule}`;
  const parts = [...before, values, ...(indices ? [indices] : []), ...after];
  return addUpdate(scope, op, variable, parts, attrs);
}

/** A gradient in which no index occurs twice: the rows of equal indices are added. */
function uniqueRows(scope, { values, indices }) {
  if (!indices) return { values, indices };
  const unique = addNode(scope, "Unique", [[indices, false]], []);
  const count = addNode(scope, "Size", [[unique.output(0), false]], []).output(0);
  const sums = addNode(scope, "UnsortedSegmentSum",
    [[values, false], [unique.output(1), false], [count, false]], []);
  return { values: sums.output(0), indices: unique.output(0) };
}

/** variable -= rate * gradient */
export class GradientDescent extends Optimizer {
  constructor(rate) {
    super("GradientDescent");
    this.rate = rate;
  }

  update(scope, { values, indices }, variable) {
    if (!indices) {
      return addUpdate(scope, "ApplyGradientDescent", variable, [this.rate, values]);
    }
    const rate = scalar(scope, this.rate, variable.dtype);
    const change = addNode(scope, "Mul", [[values, false], [rate, false]], []).output(0);
    return addUpdate(scope, "ScatterSub", variable, [indices, change]);
  }
}

/** Gradient descent with a momentum, or with Nesterov's. Sutskever et al. 2013. */
export class Momentum extends Optimizer {
  constructor(rate, momentum, useNesterov = false) {
    super("Momentum");
    Object.assign(this, { rate, momentum, useNesterov });
  }

  update(scope, gradient, variable) {
    const before = [this.slot(scope, variable, 0, 0), this.rate];
    return applyRule(scope, "Momentum", variable, before, gradient, [this.momentum],
      [["use_nesterov", "bool", this.useNesterov]]);
  }
}

/** Duchi, Hazan & Singer 2011. */
export class Adagrad extends Optimizer {
  constructor(rate, initialAccumulator = 0.1) {
    super("Adagrad");
    Object.assign(this, { rate, initialAccumulator });
  }

  update(scope, gradient, variable) {
    const before = [this.slot(scope, variable, 0, this.initialAccumulator), this.rate];
    return applyRule(scope, "Adagrad", variable, before, gradient);
  }
}

/** Tieleman & Hinton 2012. */
export class RMSProp extends Optimizer {
  constructor(rate, decay = 0.9, momentum = 0, epsilon = 1e-10) {
    super("RMSProp");
    Object.assign(this, { rate, decay, momentum, epsilon });
  }

  update(scope, gradient, variable) {
    const slots = [this.slot(scope, variable, 0, 1), this.slot(scope, variable, 1, 0)];
    const before = [...slots, this.rate, this.decay, this.momentum, this.epsilon];
    return applyRule(scope, "RMSProp", variable, before, gradient);
  }
}

/** Kingma & Ba 2015. All rows of a variable move, also those that a gradient lacks. */
export class Adam extends Optimizer {
  #powers = [];

  constructor(rate = 0.001, beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8) {
    super("Adam");
    Object.assign(this, { rate, betas: [beta1, beta2], epsilon });
  }

  begin(scope, variables) {
    this.#powers = variables.length
      ? this.betas.map((beta, i) => this.scalar(scope, `beta${i + 1}_power`, beta, variables[0]))
      : [];
  }

  update(scope, { values, indices }, variable) {
    const slots = [this.slot(scope, variable, 0, 0), this.slot(scope, variable, 1, 0)];
    const powers = this.#powers.map((power) => power.dtype === variable.dtype
      ? power
      : addNode(scope, "Cast", [[power, false]], [["DstT", "type", variable.dtype]]).output(0));
    const gradient = !indices ? values : addNode(scope, "UnsortedSegmentSum", [
      [values, false], [indices, false], [variable.shape[0], false, "int32"],
    ], []).output(0);
    return addUpdate(scope, "ApplyAdam", variable,
      [...slots, ...powers, this.rate, ...this.betas, this.epsilon, gradient]);
  }

  finish(scope, updates) {
    const after = scope.withControls(updates);
    const last = this.#powers.map((power, i) => {
      const beta = scalar(scope, this.betas[i], power.dtype);
      const product = addNode(after, "Mul", [[power, false], [beta, false]], []).output(0);
      return addNode(after, "Assign", [[power, false], [product, false]], []);
    });
    return group(scope.withName("step"), [...updates, ...last]);
  }
}

/**
 * Saves variables, and the state of optimizers, to checkpoints, which Python's `Saver` reads and
 * writes too. The state of optimizers is what they have when it saves or restores. The paths are
 * those of the server, below its file roots.
 */
export class Saver {
  #scope;
  #weights;
  #optimizers;
  #nodes = null; // of the variables that the optimizers had last

  constructor(scope, weights, optimizers = []) {
    checkVariables("Saver", weights);
    if (!Array.isArray(optimizers) || !optimizers.every((item) => item instanceof Optimizer)) {
      throw invalid(`Saver: optimizers must be an array of optimizers, got ${describe(optimizers)}`);
    }
    this.#scope = scope.subScope("save");
    this.#weights = [...weights];
    this.#optimizers = [...optimizers];
  }

  /** The nodes that save and restore; they are added again when an optimizer has more variables. */
  #current() {
    const slots = this.#optimizers.flatMap((optimizer) => optimizer.variablesIn(this.#scope));
    const variables = [...this.#weights, ...slots];
    if (this.#nodes?.variables.length !== variables.length) this.#nodes = this.#add(variables);
    return this.#nodes;
  }

  #add(variables) {
    const inner = this.#scope;
    const names = variables.map((variable) => variable.operation.name);
    const slices = variables.map(() => "");
    const path = addNode(inner.withName("path"), "Placeholder", [], [
      ["dtype", "type", "string"], ["shape", "shape", []],
    ]).output(0);
    const files = [[path, false], [names, false, "string"], [slices, false, "string"]];
    const saved = addNode(inner, "SaveV2", [...files, [variables, true]], []);
    const read = addNode(inner, "RestoreV2", files, [
      ["dtypes", "list(type)", variables.map((variable) => variable.dtype)],
    ]);
    const values = outputsOf(read, 0, variables.length);
    const restored = group(inner.withName("restore_all"), variables.map((variable, i) =>
      addNode(inner.colocateWith(variable.operation), "Assign",
        [[variable, false], [values[i], false]], [])));
    return { variables, path, saved, restored };
  }

  async save(session, path) {
    const nodes = this.#current();
    await session.run([], { feeds: [[nodes.path, path]], targets: [nodes.saved] });
  }

  async restore(session, path) {
    const nodes = this.#current();
    await session.run([], { feeds: [[nodes.path, path]], targets: [nodes.restored] });
  }
}
