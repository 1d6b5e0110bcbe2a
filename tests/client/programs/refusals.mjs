// Misuse that the client refuses before it calls a server; prints an error for each use.
import { Client, Scope, Session, ops } from "../../../packages/client/js/src/index.mjs";

const root = Scope.root();
const x = ops.placeholder(root.withName("x"), "float32");
const client = { timeout: 1000, call: () => Promise.reject(new Error("the server was called")) };
const session = new Session(client, root, 1n, []);

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
};

for (const use of GROUPS[process.argv[2]]) {
  try {
    await use();
    console.log("accepted");
  } catch (error) {
    console.log(`${error.code}: ${error.message}`);
  }
}
