// Programs for Node that the tests run.
import fs from "node:fs";
import readline from "node:readline";

import {
  Adam, Client, GradientDescent, Saver, Scope, Tensor, Variable, WeftError, callFunction, cond,
  constant, defineFunction, importGraphDef, initializeVariables, ops, whileLoop,
} from "../../../packages/client/js/src/index.mjs";

function assert(condition, message) {
  if (!condition) throw new Error(message);
}

// ------------------------------------------------------------------------------ training

/** Tensors of a file that the tests write: type, rank, shape and bytes. */
function readTensors(path) {
  const data = fs.readFileSync(path);
  const tensors = [];
  for (let place = 0; place < data.length;) {
    const type = data.readUInt32LE(place), rank = data.readUInt32LE(place + 4);
    const shape = Array.from({ length: rank }, (_, i) =>
      Number(data.readBigInt64LE(place + 8 + 8 * i)));
    place += 8 + 8 * rank;
    const size = shape.reduce((count, each) => count * each, 4);
    tensors.push(Tensor.decode(type, shape, data.subarray(place, place + size)));
    place += size;
  }
  return tensors;
}

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
  const [images, labels, heldImages, heldLabels] = readTensors(data);
  const root = Scope.root();
  const net = digits(root);
  const client = await Client.connect(target);
  const session = await client.session(root);
  const step = await new Adam(0.003).minimize(session, root, net.loss, net.variables);
  const saver = new Saver(root, net.variables);
  const initialize = initializeVariables(root);
  await session.run([], { targets: [initialize] });
  const [filters] = await session.run([net.variables[0]]);
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
  const sum = filters.data.reduce((total, each) => total + each, 0);
  console.log(trained, forgotten, await accuracy(), sum);
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
    const value = Tensor.from(numbers, dtype, [3].slice(0, 1).map(() => 3));
    const fed = ops.placeholder(root, dtype);
    const results = await session.run([constant(root, value), fed], { feeds: [[fed, value]] });
    for (const result of results) {
      assert(result.dtype === dtype && result.bytes().equals(value.bytes()), dtype);
    }
  }
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

async function lines(target, timeout) {
  const root = Scope.root();
  const sum = ops.add(root.withName("sum"), 1, 2);
  const client = await Client.connect(target);
  const session = await client.session(root);
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const start = performance.now();
    try {
      if (line === "unknown op") callFunction(root.withName("bad"), "Nonsense", []);
      if (line === "wrong type") ops.matMul(root.withName("product"), [1], Tensor.from([1], "int32"));
      if (line === "oversized") new Tensor("float32", [2 ** 40, 2 ** 30], new Float32Array(1));
      const limit = line === "patient" ? 60_000 : Number(timeout);
      const [value] = await session.run([sum], { timeout: limit });
      console.log(value.item());
    } catch (error) {
      print(error, start);
    }
  }
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
  const [once] = callFunction(root, "Decay", [2, rate]);
  const [twice] = callFunction(root, "Decay", [once, rate]);
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

const programs = { train, values, connect, lines, often, functions };
const [name, ...words] = process.argv.slice(2);
await programs[name](...words);
