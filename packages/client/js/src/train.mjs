// Variables, optimizers and checkpoints.

import { addNode, outputsOf } from "./graph.mjs";

const scalar = (scope, value, dtype) =>
  addNode(scope, "Cast", [[value, false, "float64"]], [["DstT", "type", dtype]]).output(0);

/** A variable; `initial` has its shape, or one that broadcasts to it. */
export class Variable {
  constructor(scope, shape, dtype, initial) {
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
  return addNode(scope.withControls(operations), "NoOp", [], []);
}

/** An operation that gives all variables so far their initial values. */
export function initializeVariables(scope) {
  return group(scope.withName("init"), scope.state.initializers);
}

/** The base of optimizers. */
class Optimizer {
  /** Add gradients of the sum of a loss and updates of variables; returns the training step. */
  async minimize(session, scope, loss, variables) {
    const gradients = await session.gradients([loss], variables, { sparse: true });
    const inner = scope.subScope(this.constructor.name);
    this.begin(inner, variables);
    const updates = [];
    variables.forEach((variable, i) => {
      let { values, indices } = gradients[i];
      if (!values) return;
      const place = inner.colocateWith(variable.operation);
      if (indices) {
        values = addNode(place, "UnsortedSegmentSum", [
          [values, false], [indices, false], [variable.shape[0], false, "int32"],
        ], []).output(0);
      }
      updates.push(this.update(place, values, variable));
    });
    return this.finish(inner, updates);
  }

  begin() {}

  finish(scope, updates) {
    return group(scope.withName("step"), updates);
  }
}

/** An update op of a variable, its slots, numbers and gradient, in the order of `parts`. */
function apply(scope, op, variable, parts, attrs = []) {
  const inputs = [variable, ...parts].map((part) =>
    [typeof part === "number" ? scalar(scope, part, variable.dtype) : part, false]);
  return addNode(scope, op, inputs, attrs);
}

export class GradientDescent extends Optimizer {
  constructor(rate) {
    super();
    this.rate = rate;
  }

  update(scope, gradient, variable) {
    return apply(scope, "ApplyGradientDescent", variable, [this.rate, gradient]);
  }
}

export class Momentum extends Optimizer {
  constructor(rate, momentum, useNesterov = false) {
    super();
    Object.assign(this, { rate, momentum, useNesterov });
  }

  update(scope, gradient, variable) {
    const slot = variable.slot(scope, "Momentum", 0);
    return apply(scope, "ApplyMomentum", variable, [slot, this.rate, gradient, this.momentum],
      [["use_nesterov", "bool", this.useNesterov]]);
  }
}

/** Kingma & Ba 2015. */
export class Adam extends Optimizer {
  constructor(rate = 0.001, beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8) {
    super();
    Object.assign(this, { rate, betas: [beta1, beta2], epsilon });
  }

  begin(scope, variables) {
    const place = scope.colocateWith(variables[0].operation);
    this.powers = this.betas.map((beta, i) =>
      new Variable(place.withName(`beta${i + 1}_power`), [], variables[0].dtype, beta));
  }

  update(scope, gradient, variable) {
    const slots = ["Adam", "Adam_1"].map((name) => variable.slot(scope, name, 0));
    return apply(scope, "ApplyAdam", variable,
      [...slots, ...this.powers, this.rate, ...this.betas, this.epsilon, gradient]);
  }

  finish(scope, updates) {
    const after = scope.withControls(updates);
    const last = this.powers.map((power, i) => {
      const beta = scalar(scope, this.betas[i], power.dtype);
      const product = addNode(after, "Mul", [[power, false], [beta, false]], []).output(0);
      return addNode(after, "Assign", [[power, false], [product, false]], []);
    });
    return group(scope.withName("step"), [...updates, ...last]);
  }
}

/** Saves variables to checkpoints, which Python's `Saver` reads and writes too. */
export class Saver {
  constructor(scope, variables) {
    const inner = scope.subScope("save");
    const names = variables.map((variable) => variable.operation.name);
    const slices = variables.map(() => "");
    const path = addNode(inner.withName("path"), "Placeholder", [], [
      ["dtype", "type", "string"], ["shape", "shape", []],
    ]).output(0);
    const files = [[path, false], [names, false, "string"], [slices, false, "string"]];
    this.path = path;
    this.saved = addNode(inner, "SaveV2", [...files, [variables, true]], []);
    const restored = addNode(inner, "RestoreV2", files, [
      ["dtypes", "list(type)", variables.map((variable) => variable.dtype)],
    ]);
    const values = outputsOf(restored, 0, variables.length);
    this.restored = group(inner.withName("restore_all"), variables.map((variable, i) =>
      addNode(inner.colocateWith(variable.operation), "Assign",
        [[variable, false], [values[i], false]], [])));
  }

  async save(session, path) {
    await session.run([], { feeds: [[this.path, path]], targets: [this.saved] });
  }

  async restore(session, path) {
    await session.run([], { feeds: [[this.path, path]], targets: [this.restored] });
  }
}


