// Measures steps on a server from Node: frontends.mjs TARGET SECONDS prints seconds by row, as JSON.
import { Client, Scope, constant, ops } from "../../packages/client/js/src/index.mjs";

const now = () => performance.now() / 1000;

/** The median time of a call, of as many as there is time for. */
async function median(budget, call) {
  const times = [];
  await call();
  for (const end = now() + budget; now() < end;) {
    const start = now();
    await call();
    times.push(now() - start);
  }
  return times.sort((a, b) => a - b)[Math.floor(times.length / 2)];
}

const [target, seconds] = process.argv.slice(2), budget = Number(seconds);
const client = await Client.connect(target);
const root = Scope.root();
const x = ops.placeholder(root, "float32"), y = ops.neg(root, x);
const session = await client.session(root);
const large = new Float32Array(4 << 20);
const step = await median(budget, () => session.run([y], { feeds: [[x, 1]] }));
const bulk = await median(budget, () => session.run([y], { feeds: [[x, large]] }));
let start = now();
const chain = Scope.root();
let last = constant(chain, 1);
for (let i = 0; i < 6000; i++) last = ops.neg(chain, last);
const build = now() - start;
start = now();
const other = await client.session(chain);
await other.extend();
console.log(JSON.stringify({ step, "16 MB": bulk, build, send: now() - start }));
await client.close();
