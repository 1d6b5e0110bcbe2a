// Uses the wrapper as a page would: node wrapper.mjs MODEL
import assert from "node:assert/strict";
import fs from "node:fs";
import { Interpreter, LiteError } from "./weft_lite.mjs";

const model = fs.readFileSync(process.argv[2]);
const runtime = await WebAssembly.compile(fs.readFileSync("weft_lite.wasm"));
const interpreter = await Interpreter.create(runtime, model);
const [x] = interpreter.inputs;
assert.deepEqual([x.name, x.type, x.declared], ["x", "float32", [-1, 12, 12, 3]]);

interpreter.resize("x", [1, 12, 12, 3]);
const value = Float32Array.from({ length: 432 }, (_, i) => (i % 7) / 7);
const { y } = interpreter.run({ x: value });
assert.equal(y.length, 10);
assert.ok(y.every(Number.isFinite));
assert.deepEqual(interpreter.run({ x: value }).y, y);
interpreter.set(0, new Float32Array(432));
interpreter.invoke();
assert.notDeepEqual(interpreter.get("y"), y);

assert.throws(() => interpreter.set("x", new Float32Array(3)), /takes 432 elements of float32/);
assert.throws(() => interpreter.set("x", new Int8Array(432)), /a Float32Array/);
assert.throws(() => interpreter.run({}), (e) => e.status === 9 && /inputs are missing: x/.test(e.message));
assert.throws(() => interpreter.set("z", value), /no z; there are x/);
assert.throws(() => interpreter.resize("x", [99, 12, 12, 3]), (e) => e instanceof LiteError && e.status === 11);
assert.throws(() => interpreter.get(99), LiteError);
assert.equal(interpreter.run({ x: value }).y.length, 10);

const checkpoint = interpreter.saveVariables();
interpreter.restoreVariables(checkpoint);
checkpoint[8] ^= 1;
assert.throws(() => interpreter.restoreVariables(checkpoint), (e) => e.status === 15 && /checksum/.test(e.message));

const broken = Uint8Array.from(model);
broken[100] ^= 1;
await assert.rejects(Interpreter.create(runtime, broken), (e) => e.status === 15 && /checksum/.test(e.message));
await assert.rejects(Interpreter.create(runtime, new Uint8Array(3)), /no weftlite file/);

// As many as one likes: each has its own memory.
const several = await Promise.all([1, 2, 3].map(() => Interpreter.create(runtime, model)));
for (const each of several) {
  each.resize("x", [1, 12, 12, 3]);
  assert.deepEqual(each.run({ x: value }).y, y);
}
