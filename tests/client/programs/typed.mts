// A program that the compiler of TypeScript accepts, except for the lines that say so.
import {
  Adam, Client, Momentum, Saver, Scope, Tensor, Variable, callFunction, defineFunction,
  initializeVariables, ops, type Output,
} from "weftml";

declare global { // of Node
  interface Buffer extends Uint8Array {}
}

export async function train(images: Float32Array, labels: Int32Array): Promise<number> {
  const root = Scope.root(), on = root.withDevice("/job:worker");
  const x = ops.placeholder(on.withName("x"), "float32", { shape: [null, 64] });
  const y = ops.placeholder(on.withName("y"), "int32", { shape: [-1] });
  const weights = new Variable(root.withName("weights"), [64, 10], "float32",
    ops.truncatedNormal(root, [64, 10], "float32", { seed: 1, seed2: 7 }));
  const logits: Output = ops.matMul(on, x, weights, { transposeB: false });
  const { loss } = ops.sparseSoftmaxCrossEntropyWithLogits(on, logits, y);
  const mean = ops.mean(on, loss, [0]);
  const client = await Client.connect("weft://localhost:1", { timeout: 1000 });
  const session = await client.session(root);
  const adam = new Adam(0.003);
  const step = await adam.minimize(session, root, mean, [weights]);
  const saver = new Saver(root, [weights], [adam, new Momentum(0.1, 0.9, true)]);
  await session.run([], { targets: [initializeVariables(root)] });
  const feeds: [Output, Tensor][] = [
    [x, new Tensor("float32", [labels.length, 64], images)], [y, Tensor.from(labels)],
  ];
  const [value]: Tensor[] = await session.run([mean], { feeds, targets: [step], timeout: Infinity });
  const [dense] = await session.gradients([mean], [weights]);
  const [sparse] = await session.gradients([mean], [weights], { sparse: true });
  const { dtype, shape } = await session.shapeOf(dense ?? mean);
  const square = defineFunction(root, "Square2", [{ name: "v", dtype }], (scope, v) =>
    ops.mul(scope, v, v));
  await session.run(callFunction(root, square, [sparse.values ?? 1]));
  await saver.save(session, `model-${shape?.length}`);
  await client.close();

  // @ts-expect-error an input is missing
  ops.matMul(root, x);
  // @ts-expect-error the op has no such attribute
  ops.matMul(root, x, x, { transposeC: true });
  // @ts-expect-error there is no such type
  ops.placeholder(root, "float31");
  // @ts-expect-error a loss is an output
  await adam.minimize(session, root, 1, [weights]);
  return value.item();
}
