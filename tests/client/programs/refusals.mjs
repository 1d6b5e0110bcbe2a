// Misuse that the client refuses before it calls a server; prints an error for each use.
import {
  Adam, Client, Output, Saver, Scope, Session, Tensor, Variable, callFunction, defineFunction,
  importGraphDef, initializeVariables, ops,
} from "../../../packages/client/js/src/index.mjs";

const root = Scope.root();
const x = ops.placeholder(root.withName("x"), "float32");
const weights = new Variable(root.withName("weights"), [2], "float32", 0);
const client = { timeout: 1000, call: () => Promise.reject(new Error("the server was called")) };
const session = new Session(client, root, 1n, []);

const define = (build) => defineFunction(root, "Twice", [{ name: "a", dtype: "float32" }], build);
const floats = Tensor.from([1, 2, 3.5]);
const cycle = [];
cycle.push(cycle);

const GROUPS = {
  attributes: [
    () => ops.matMul(root, x, x, { transpose_a: true }),
    () => ops.matMul(root, x, x, { transposeA: "false" }),
    () => ops.placeholder(root, "float32", [2, 2]),
    () => ops.placeholder(root, "float32", { shape: [1.5] }),
    () => ops.placeholder(root, "float32", { shape: [-2] }),
    () => ops.placeholder(root, "float32", { shape: ["2"] }),
    () => ops.maxPool(root, x, [1, 2, 2, 1], 1, "VALID"),
    () => ops.placeholder(root, "toString"),
    () => ops.placeholder(root, "__proto__"),
    () => ops.neg(root, x, { T: "float32" }),
    () => ops.neg(root, x, 2),
    () => session.run([x], { feeds: { a: 1 } }),
    () => session.run([x], { feeds: [x] }),
    () => session.run([x], { feed: [[x, 1]] }),
    () => Client.connect("weft://localhost:1", { tokens: "file" }),
  ],
  arguments: [
    () => session.run(x),
    () => session.run([1]),
    () => session.run([undefined]),
    () => session.run([], { targets: x }),
    () => session.run([], { targets: [undefined] }),
    () => session.gradients(x, [x]),
    () => session.functionDefs("Twice"),
    () => ops.neg({}, x),
    () => ops.addN(root, x),
    () => root.withName(1),
    () => root.withControls(x.operation),
    () => root.colocateWith(x),
    () => define(() => undefined),
    () => define(async (_, a) => a),
    () => define(async () => { throw new Error("not caught"); }),
    () => define(() => [1]),
    () => define("body"),
    () => callFunction(root, "Twice", x),
    () => importGraphDef(root, undefined),
    () => importGraphDef(root, "nodes"),
    () => new Variable(root),
    () => new Variable(root, [2], "float31", 0),
    () => new Variable(root, [2], "float32"),
    () => initializeVariables(),
    () => new Output(),
  ],
  training: [
    () => new Adam().minimize(session, root, x, weights),
    () => new Adam().minimize(session, root, x, []),
    () => new Adam().apply(root, [], []),
    () => new Adam().apply(root, [], [weights]),
    () => new Adam().apply(root, [null], [weights]),
    () => new Adam().apply(root, [{ values: null, indices: null }], [weights]),
    () => new Saver(root, weights),
    () => new Saver(root, [weights], [Adam]),
  ],
  tensors: [
    () => Tensor.from(floats, "int32"),
    () => Tensor.from(floats, undefined, [2]),
    () => Tensor.from(floats, "string"),
    () => Tensor.from(floats, "complex64"),
    () => Tensor.from(Tensor.from("text"), "int32"),
    () => Tensor.from(new Uint8Array([2]), "bool"),
    () => Tensor.from(new Int8Array([100]), "int4"),
    () => new Tensor("bool", [1], new Uint8Array([2])),
    () => new Tensor("int4", [1], new Int8Array([-9])),
    () => Tensor.from(1e39),
    () => Tensor.from(2 ** 53, "int64"),
    () => Tensor.from([1, , 3]),
    () => Tensor.from([1], "float32", "1"),
    () => Tensor.from(1, "toString"),
    () => Tensor.from(1, "__proto__"),
    () => Tensor.from(cycle),
    () => Tensor.from([{ a: 1 }]),
    () => Tensor.from([Object.create(null)], "string"),
    () => Tensor.from(new Uint8ClampedArray(1)),
    () => Tensor.from([new Float32Array(1), new Float32Array(2)]),
  ],
};

for (const use of GROUPS[process.argv[2]]) {
  try {
    await use();
    console.log("accepted");
  } catch (error) {
    console.log(`${error.code}: ${error.message}`);
  }
}
