// Programs for Node that the tests run.
import fs from "node:fs";
import readline from "node:readline";
import v8 from "node:v8";
import vm from "node:vm";

import { addNode, outputsOf } from "../../../packages/client/js/src/graph.mjs";
import {
  Adagrad, Adam, Client, GradientDescent, Momentum, Operation, RMSProp, Saver, Scope, Tensor,
  Variable, WeftError, callFunction, cond, constant, defineFunction, importGraphDef,
  initializeVariables, ops, whileLoop,
} from "../../../packages/client/js/src/index.mjs";
import { nameOf, numberOf } from "../../../packages/client/js/src/tensor.mjs";

function assert(condition, message) {
  if (!condition) throw new Error(message);
}

// --------------------------------------------------------------------------------- files

/** Reads the little-endian files that the tests write. */
class Reader {
  place = 0;

  constructor(path) {
    this.data = fs.readFileSync(path);
  }

  get isAtEnd() {
    return this.place === this.data.length;
  }

  take(size) {
    this.place += size;
    return this.data.subarray(this.place - size, this.place);
  }

  uint() {
    return this.take(4).readUInt32LE();
  }

  int() {
    return this.take(8).readBigInt64LE();
  }

  text() {
    return this.take(this.uint());
  }

  list(read) {
    return Array.from({ length: this.uint() }, read);
  }

  tensor() {
    const type = this.uint(), rank = this.uint();
    const shape = Array.from({ length: rank }, () => Number(this.int()));
    const string = 7;
    if (type === string) return new Tensor("string", shape, this.list(() => this.text()));
    const count = shape.reduce((product, size) => product * size, 1);
    return Tensor.decode(type, shape, this.take(count * sizeOf(type)));
  }

  /** The value of an attribute of a kind. */
  attr(kind) {
    if (kind.startsWith("list(")) return this.list(() => this.attr(kind.slice(5, -1)));
    if (kind === "float") return this.take(8).readDoubleLE();
    if (kind === "string") return this.text();
    if (kind === "tensor") return this.tensor();
    if (kind === "bool") return this.int() !== 0n;
    if (kind === "type") return nameOf(Number(this.int()));
    if (kind !== "shape") return this.int();
    const rank = Number(this.int());
    return rank < 0 ? null : Array.from({ length: rank }, () => Number(this.int()));
  }
}

function sizeOf(type) {
  return Tensor.from([], nameOf(type)).data.BYTES_PER_ELEMENT *
    (nameOf(type).startsWith("complex") ? 2 : 1);
}

function bytesOfTensor(value) {
  const head = Buffer.alloc(8 + 8 * value.shape.length);
  head.writeUInt32LE(numberOf(value.dtype), 0);
  head.writeUInt32LE(value.shape.length, 4);
  value.shape.forEach((size, i) => head.writeBigInt64LE(BigInt(size), 8 + 8 * i));
  if (value.dtype !== "string") return Buffer.concat([head, value.bytes()]);
  const sized = (size) => {
    const bytes = Buffer.alloc(4);
    bytes.writeUInt32LE(size);
    return bytes;
  };
  const texts = value.data.flatMap((text) => [sized(text.length), text]);
  return Buffer.concat([head, sized(value.data.length), ...texts]);
}

// ------------------------------------------------------------------------------ training

function digits(root) {
  const held = root.withDevice("/job:ps"), on = root.withDevice("/job:worker");
  const images = ops.placeholder(on.withName("images"), "float32", { shape: [-1, 8, 8, 1] });
  const labels = ops.placeholder(on.withName("labels"), "int32", { shape: [-1] });
  const keep = ops.placeholderWithDefault(on.withName("keep"), 1, []);
  const variables = [];
  const variable = (name, shape, deviation, seed) => {
    const numbers = ops.truncatedNormal(held, shape, "float32", { seed, seed2: 7 });
    const initial = ops.mul(held, numbers, deviation);
    variables.push(new Variable(held.withName(name), shape, "float32", initial));
    return variables.at(-1);
  };
  const convolve = (values, filters) =>
    ops.relu(on, ops.conv2D(on, values, filters, [1, 1, 1, 1], "SAME"));
  const dropout = (values) => {
    const numbers = ops.randomUniform(on, ops.shape(on, values), "float32", { seed: 5, seed2: 7 });
    const mask = ops.floor(on, ops.add(on, numbers, keep));
    return ops.mul(on, ops.div(on, values, keep), mask);
  };
  const first = convolve(images, variable("filters", [3, 3, 1, 32], 0.3, 1));
  const second = convolve(first, variable("more_filters", [3, 3, 32, 64], 0.08, 2));
  const pooled = ops.maxPool(on, second, [1, 2, 2, 1], [1, 2, 2, 1], "VALID");
  const flat = dropout(ops.reshape(on, pooled, [-1, 1024]));
  const product = ops.matMul(on, flat, variable("hidden_weights", [1024, 96], 0.04, 3));
  const hidden = ops.relu(on, ops.biasAdd(on, product, variable("hidden_bias", [96], 0, 4)));
  const logits = ops.matMul(on, dropout(hidden), variable("weights", [96, 10], 0.1, 5));
  const { loss } = ops.sparseSoftmaxCrossEntropyWithLogits(on, logits, labels);
  const guess = ops.argMax(on, logits, 1, { outputType: "int32" });
  const right = ops.cast(on, ops.equal(on, guess, labels), "float32");
  return { images, labels, keep, variables, loss: ops.mean(on, loss, [0]),
    accuracy: ops.mean(on, right, [0]) };
}

async function train(target, data, folder) {
  const reader = new Reader(data);
  const [images, labels, heldImages, heldLabels] = Array.from({ length: 4 }, () => reader.tensor());
  const root = Scope.root();
  const net = digits(root);
  const client = await Client.connect(target);
  const session = await client.session(root);
  const step = await new Adam(0.003).minimize(session, root, net.loss, net.variables);
  const saver = new Saver(root, net.variables);
  const initialize = initializeVariables(root);
  await session.run([], { targets: [initialize] });
  const [filters] = await session.run([net.variables[0]]);
  fs.writeFileSync(`${folder}/filters`, bytesOfTensor(filters));
  const batch = 128, pixels = 64, epochs = 16, count = labels.data.length;
  for (let i = 0; i < Math.floor((epochs * count) / batch); i++) {
    const start = (i * batch) % (count - batch), end = start + batch;
    const feeds = [
      [net.images, new Tensor("float32", [batch, 8, 8, 1],
        images.data.subarray(start * pixels, end * pixels))],
      [net.labels, labels.data.subarray(start, end)],
      [net.keep, 0.6],
    ];
    await session.run([], { feeds, targets: [step] });
  }
  const held = { feeds: [[net.images, heldImages], [net.labels, heldLabels]] };
  const accuracy = async () => (await session.run([net.accuracy], held))[0].item();
  const trained = await accuracy();
  await saver.save(session, `${folder}/model`);
  await session.run([], { targets: [initialize] });
  const forgotten = await accuracy();
  await saver.restore(session, `${folder}/model`);
  console.log(trained, forgotten, await accuracy());
  await session.close();
  await client.close();
}

// -------------------------------------------------------------------------------- values

async function values(target) {
  const root = Scope.root();
  const client = await Client.connect(target);
  const session = await client.session(root);
  const types = ["float32", "float64", "int8", "int16", "int32", "int64", "uint8", "uint16",
    "uint32", "uint64", "bool", "float16", "bfloat16", "complex64", "complex128", "int4"];
  for (const dtype of types) {
    const numbers = dtype.startsWith("complex") ? [1, 2, 3, 4, 5, 6] : [1, 0, 1];
    const value = Tensor.from(numbers, dtype, [3]);
    const fed = ops.placeholder(root, dtype);
    const results = await session.run([constant(root, value), fed], { feeds: [[fed, value]] });
    for (const result of results) {
      assert(result.dtype === dtype && result.bytes().equals(value.bytes()), dtype);
    }
  }
  const whole = Tensor.from([1, 2, 3, 4]);
  const cast = Tensor.from(whole, "int8", [2, 2]);
  assert(cast.dtype === "int8" && cast.shape.join() === "2,2", "a tensor of another type and shape");
  assert(Tensor.from(whole, "float32", [4, 1]).shape.join() === "4,1", "another shape");
  const nested = Tensor.from([new Int16Array([1, 2]), new Int16Array([3, 4])]);
  assert(nested.dtype === "int16" && nested.shape.join() === "2,2" && nested.data[2] === 3,
    "nested typed arrays");
  const nibbles = ops.identity(root, Tensor.from([-8, -1, 7], "int4"));
  assert((await session.run([nibbles]))[0].data.join() === "-8,-1,7", "int4");
  const buffer = Float32Array.of(1, 2), text = Buffer.from("kept");
  const constants = [constant(root, buffer), constant(root, new Tensor("float32", [2], buffer)),
    constant(root, text), ops.identity(root, buffer), constant(root, new Tensor("uint8", [4], text))];
  buffer.fill(9);
  text.fill("x");
  const kept = await session.run(constants);
  assert(kept.map(({ data }) => data.join()).join("|") === "1,2|1,2|kept|1,2|107,101,112,116",
    "constants are copies");
  const large = new Tensor("int32", [3 << 20], Int32Array.from({ length: 3 << 20 }, (_, i) => i));
  const [negative] = await session.run([ops.neg(root, large)]);
  assert(negative.data[12345] === -12345 && negative.data.at(-1) === 1 - (3 << 20), "large");
  const joined = ops.stringJoin(root, [["a", ""], ["é", "x"]], { separator: "-" });
  const [texts] = await session.run([joined]);
  assert(texts.data.map(String).join() === "a-é,-x", "strings");
  const parts = ops.split(root, 0, [[1, 2], [3, 4]], 2);
  assert((await session.run(parts.length ? parts : parts.output))[1].data[1] === 4, "several outputs");
  const shape = await session.shapeOf(ops.placeholder(root, "float32", { shape: [null, 5] }));
  assert(shape.dtype === "float32" && shape.shape.join() === "-1,5", "shape");
  const foreign = constant(Scope.root().withName("Neg"), 50);
  const uses = [
    () => ops.neg(root, foreign),
    () => ops.noOp(root.withControls([foreign.operation])),
    () => root.colocateWith(foreign.operation),
    () => session.run([foreign]),
    () => session.run([negative], { feeds: [[foreign, 1]] }),
    () => session.gradients([joined], [foreign]),
    () => defineFunction(
      root, "Captures", [{ name: "y", dtype: "float32" }], (scope, y) => ops.mul(scope, y, foreign)),
  ];
  for (const [i, use] of uses.entries()) {
    let message = "accepted";
    try {
      await use();
    } catch (error) {
      message = error.message;
    }
    assert(message.includes("belongs to another graph"), `use ${i} of another graph: ${message}`);
  }
  const product = ops.mul(root, 2, 3);
  const loose = new Variable(root.withName("loose"), [], "float32", 0);
  for (const optimizer of Object.values(OPTIMIZERS)) {
    for (const [variables, words] of [[[loose], "loose:0"], [[], "is empty"]]) {
      const refused = await optimizer().minimize(session, root, product, variables).catch(String);
      assert(
        refused.includes("No gradients provided for any variable") && refused.includes(words), refused);
    }
  }
  const counter = new Variable(root.withName("counter"), [], "float32", 0);
  const added = ops.assignAdd(root.withName("added"), counter, 1);
  for (const targets of [[counter.initializer], ["added"], ["added:0"], [added], [added.operation]]) {
    await session.run([], { targets });
  }
  assert((await session.run(["counter"]))[0].item() === 4, "names as targets");
  const queue = ops.fifoQueueV2(root.withName("queue"), ["float32"]);
  const taken = ops.queueDequeueV2(root, queue, ["float32"]).components;
  const waiting = Promise.all([session.run(taken), session.run(taken)]);
  const put = ops.queueEnqueueV2(root, queue, [7]);
  for (let i = 0; i < 2; i++) await session.run([], { targets: [put] });
  assert((await waiting).every(([value]) => value.item() === 7), "overlapping calls");
  await session.close();
  await client.close();
  console.log("complete");
}

// --------------------------------------------------------------------------- conformance

/** Runs rows of the op table, and writes the values of their outputs. */
async function conformance(target, rows, results) {
  const reader = new Reader(rows), root = Scope.root(), fetches = [];
  const count = reader.uint();
  for (let row = 0; row < count; row++) {
    const op = reader.text().toString();
    const inputs = reader.list(() => {
      const isList = reader.uint() !== 0, tensors = reader.list(() => reader.tensor());
      return [isList ? tensors : tensors[0], isList];
    });
    const attrs = reader.list(() => {
      const name = reader.text().toString(), kind = reader.text().toString();
      return [name, kind, reader.attr(kind)];
    });
    fetches.push(...outputsOf(addNode(root, op, inputs, attrs), 0, reader.uint()));
  }
  assert(reader.isAtEnd, "the file has more rows");
  const client = await Client.connect(target);
  const session = await client.session(root);
  const values = await session.run(fetches);
  fs.writeFileSync(results, Buffer.concat(values.map(bytesOfTensor)));
  console.log(count);
  await client.close();
}

// ---------------------------------------------------------------------------- optimizers

const OPTIMIZERS = {
  GradientDescent: () => new GradientDescent(0.01),
  Momentum: () => new Momentum(0.01, 0.9),
  Nesterov: () => new Momentum(0.01, 0.9, true),
  Adagrad: () => new Adagrad(0.01),
  RMSProp: () => new RMSProp(0.01, 0.9, 0.5),
  Adam: () => new Adam(0.01),
};

/** Trains with an optimizer, saves, and continues in another session from what was saved. */
async function optimize(target, name, folder) {
  const root = Scope.root();
  const fill = (shape) => { // 1, 2, 3, ... over 10
    const length = shape[0] * shape[1];
    return new Tensor("float32", shape, Float32Array.from({ length }, (_, i) => (i + 1) / 10));
  };
  const weights = new Variable(root.withName("w"), [2, 3], "float32", fill([2, 3]));
  const table = new Variable(root.withName("table"), [4, 3], "float32", fill([4, 3]));
  const rows = ops.gatherV2(root, table, Tensor.from([1, 3, 1], "int32"), 0);
  const product = ops.matMul(root, rows, weights, { transposeB: true });
  const loss = ops.sum(root, ops.square(root, ops.sub(root, product, 1)), [0, 1]);
  const client = await Client.connect(target);
  const session = await client.session(root);
  const optimizer = OPTIMIZERS[name]();
  const saver = new Saver(root, [weights, table], [optimizer]); // it saves slots that are added later
  const unrelated = Scope.root();
  const elsewhere = new Variable(unrelated, [], "float32", 1);
  optimizer.apply(unrelated, [{ values: constant(unrelated, 1), indices: null }], [elsewhere]);
  const step = await optimizer.minimize(session, root, loss, [weights, table]);
  await session.run([], { targets: [initializeVariables(root)] });
  for (let i = 0; i < 3; i++) await session.run([], { targets: [step] });
  await saver.save(session, `${folder}/${name}`);
  await session.run([], { targets: [step] });
  const expected = await session.run([weights, table]);
  await client.reset();
  const second = await client.session(root); // it repeats the gradients
  await saver.restore(second, `${folder}/${name}`);
  await second.run([], { targets: [step] });
  const values = await second.run([weights, table]);
  values.forEach((value, i) =>
    assert(value.bytes().equals(expected[i].bytes()), "other values after restoring"));
  fs.writeFileSync(`${folder}/${name}.values`, Buffer.concat(values.map(bytesOfTensor)));
  await client.close();
}

// -------------------------------------------------------------------------------- errors

function print(error, start) {
  if (!(error instanceof WeftError)) throw error;
  const passed = Math.round(performance.now() - start);
  console.log(`${error.code}|${error.node}|${passed}|${error.message.split("\n")[0]}`);
}

async function connect(target, timeout) {
  const start = performance.now();
  try {
    const client = await Client.connect(target, { timeout: Number(timeout) });
    const session = await client.session(Scope.root());
    console.log(session.devices[0]);
    await client.close();
  } catch (error) {
    print(error, start);
  }
}

function collectGarbage() {
  v8.setFlagsFromString("--expose-gc");
  vm.runInNewContext("gc")();
}

/** A graph with a sum, which grows, and the size of what is fed. */
class Program {
  root = Scope.root();
  large = new Float32Array(8 << 20);

  async open(target) {
    this.first = ops.addV2(this.root.withName("sum"), 1, 2);
    this.sum = this.first;
    this.fed = ops.placeholder(this.root.withName("fed"), "float32");
    this.size = ops.size(this.root.withName("size"), this.fed);
    this.client = await Client.connect(target);
    this.session = await this.client.session(this.root);
    return this;
  }

  async #step(session, isLarge, timeout) {
    const fetches = isLarge ? [this.size] : [this.sum, ...(this.gradient ? [this.gradient] : [])];
    const feeds = isLarge ? [[this.fed, this.large]] : [];
    return (await session.run(fetches, { feeds, timeout }))[0].item();
  }

  /** Feeds many large values to a server that does not read; returns the bytes still referenced. */
  async #jam(timeout) {
    const steps = Array.from({ length: 40 }, () => {
      const feeds = [[this.fed, new Float32Array(2 << 20)]];
      return this.session.run([this.size], { feeds, timeout }).catch((error) => error.code);
    });
    const codes = await Promise.all(steps);
    assert(codes.every((code) => code === "DEADLINE_EXCEEDED"), String(codes));
    steps.length = 0;
    for (let i = 0; i < 3; i++) {
      await new Promise(setImmediate);
      collectGarbage();
    }
    return process.memoryUsage().arrayBuffers - this.large.byteLength;
  }

  /** Runs a step as a line says; returns its first value. */
  async run(line, timeout) {
    const { root, session } = this, begins = (word) => line.startsWith(word);
    if (begins("second")) {
      return this.#step(await this.client.session(root, { timeout }), false, timeout);
    }
    if (begins("large")) return this.#step(session, true, timeout);
    if (begins("jam")) return this.#jam(timeout);
    if (begins("gradients")) {
      [this.gradient] = await session.gradients([this.sum], [this.first], { timeout });
    }
    if (begins("grow")) this.sum = ops.addV2(root.withName("grown"), this.sum, 1);
    if (begins("unknown op")) callFunction(root.withName("bad"), "Nonsense", []);
    if (begins("unknown input")) ops.neg(root.withName("bad"), new Operation("nowhere").output(0));
    if (begins("wrong type")) ops.matMul(root.withName("product"), [1], Tensor.from([1], "int32"));
    if (begins("oversized")) new Tensor("float32", [2 ** 40, 2 ** 30], new Float32Array(1));
    return this.#step(session, false, timeout);
  }
}

async function lines(target, timeout) {
  const program = await new Program().open(target);
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const start = performance.now();
    try {
      console.log(await program.run(line, line.includes("patient") ? 60_000 : Number(timeout)));
    } catch (error) {
      print(error, start);
    }
  }
  await program.client.close();
}

/** Closes a session and a client whose server is frozen after the first line; prints the time. */
async function close(target, timeout) {
  const client = await Client.connect(target, { timeout: Number(timeout) });
  const session = await client.session(Scope.root(), { timeout: 60_000 });
  const other = await client.session(Scope.root(), { timeout: 60_000 });
  console.log("open");
  await new Promise((resolve) => process.stdin.once("data", resolve));
  const start = performance.now();
  await Promise.all([session.close(), other.close({ timeout: 2 * Number(timeout) })]);
  await client.close();
  console.log(Math.round(performance.now() - start));
  process.stdin.destroy();
}

/** Misuses the interface, which is refused and changes nothing. */
async function misuse(target, theirs) {
  const root = Scope.root();
  const x = ops.placeholder(root.withName("x"), "float32");
  const y = ops.neg(root.withName("y"), x);
  const client = await Client.connect(target);
  const session = await client.session(root);
  const same = (name) => defineFunction(root, name, [{ name: "a", dtype: "float32" }], (_, a) => a);
  for (const name of ["Same", "same"]) same(name); // names of functions have case
  const step = (options) => session.run([y], { feeds: [[x, 1]], ...options });
  const uses = [
    () => new Tensor("float32", [2], new Float64Array(2)), // of another size than its type
    () => new Tensor("string", [1], ["text"]),
    () => new Tensor("resource", [], new Uint8Array(1)),
    () => Tensor.from([300], "uint8"),
    () => Tensor.from([-1], "uint64"),
    () => Tensor.from([1.5], "int32"),
    () => Tensor.from([NaN], "int64"),
    () => Tensor.from([8], "int4"),
    () => Tensor.from([2], "bool"),
    () => Tensor.from([1e300]),
    () => Tensor.from(["1"], "float32"),
    () => Tensor.from(new Float64Array([300]), "uint8"),
    () => Tensor.from([[1], [2, 3], []]),
    () => Tensor.from([1, [2]]),
    () => step({ feeds: [[x, 1], ["x", 2]] }),
    () => step({ timeout: 0 }),
    () => step({ timeout: NaN }),
    () => step({ timeout: "1000" }),
    () => session.run(["nothing"]),
    () => session.run([], { targets: [new Operation("nothing")] }),
    () => session.gradients([y], [new Operation("nothing").output(0)]),
    () => Client.connect("weft://localhost:99999"),
    () => Client.connect("weft://localhost:0"),
    () => same("Same"),
    () => ops.placeholder(root, "float32", { shape: 5 }),
    () => ops.unpack(root, x, 1.5),
    () => ops.unpack(root, x, 2n ** 63n),
    () => ops.leakyRelu(root, x, { alpha: "steep" }),
    () => importGraphDef(root, Buffer.from("nonsense")),
    () => importGraphDef(root, fs.readFileSync(theirs)), // it has a node "y"
  ];
  for (const use of uses) {
    try {
      await use();
      console.log("accepted");
    } catch (error) {
      console.log(`${error.code}: ${error.message}`);
    }
  }
  const upper = ops.neg(root.withName("Y"), y);
  const [slope] = await session.gradients([upper], [x]);
  const taken = slope.operation.name;
  const other = ops.neg(root.withName(taken), upper);
  const options = { feeds: [[x, 1]], timeout: 2 ** 40 };
  const values = await session.run([upper, slope, other], options);
  const clean = Scope.root();
  importGraphDef(clean, fs.readFileSync(theirs));
  const last = ops.neg(clean.withName("y"), new Operation("y").output(0));
  console.log(upper.name, Number(other.name === `${taken}_1:0`),
    ...values.map((value) => value.item()), last.name);
  await client.close();
}

/** Starts a server, and waits until the program is ended. */
async function launch() {
  await Client.launchLocal();
  console.log("launched");
}

/** Connects many times to a server whose replies are damaged; each attempt ends. */
async function often(target, count) {
  let opened = 0;
  for (let i = 0; i < Number(count); i++) {
    let client;
    try {
      client = await Client.connect(target, { timeout: 2000 });
      const session = await client.session(Scope.root());
      opened++;
      await session.run(["x", "y", "z"]);
      await session.close();
    } catch (error) {
      if (!(error instanceof WeftError)) throw error;
    }
    await client?.close();
  }
  console.log(opened);
}

// ----------------------------------------------------------------------------- functions

async function functions(target, theirs, own) {
  const root = Scope.root();
  importGraphDef(root, fs.readFileSync(theirs));
  const rate = new Variable(root.withName("rate"), [], "float32", 3);
  const [once] = callFunction(root, "decay", [2, rate]);
  const [twice] = callFunction(root, "decay", [once, rate]);
  const client = await Client.connect(target);
  const session = await client.session(root);
  const loss = ops.square(root, twice);
  const step = await new GradientDescent(0.1).minimize(session, root, loss, [rate]);
  await session.run([], { targets: [initializeVariables(root)] });
  const [value] = await session.run([twice]);
  for (let i = 0; i < 50; i++) await session.run([], { targets: [step] });
  const [trained] = await session.run([loss]);
  const argument = { name: "v", dtype: "float64", shape: [-1] };
  defineFunction(root, "Normalize", [argument], (scope, v) => {
    const length = ops.sqrt(scope, ops.sum(scope, ops.square(scope, v), [0]));
    return [length, ops.div(scope, v, length)];
  }, ["length", "unit"]);
  fs.writeFileSync(own, await session.functionDefs(["Normalize"]));
  const i = { name: "i", dtype: "int32", shape: [] };
  const int32 = (number) => Tensor.from(number, "int32");
  const below = defineFunction(root, "Below", [i], (scope, n) => ops.less(scope, n, int32(100)));
  const doubled = defineFunction(root, "Twofold", [i], (scope, n) => ops.mul(scope, n, int32(2)));
  const [last] = whileLoop(root, [int32(3)], below, doubled);
  const chosen = cond(root, ops.greater(root, last, int32(50)), [last], doubled, doubled);
  const [result] = await session.run(chosen);
  console.log(value.item(), trained.item() < 1e-3 ? 1 : 0, result.item());
  await client.close();
}

const programs = {
  train, values, conformance, optimize, connect, lines, close, misuse, launch, often, functions,
};
const [name, ...words] = process.argv.slice(2);
await programs[name](...words);
