// Runs a WebAssembly program with a folder: node wasi.cjs PROGRAM FOLDER ARGUMENT...
const { WASI } = require("node:wasi");
const fs = require("node:fs");

const [program, folder, ...args] = process.argv.slice(2);
const wasi = new WASI({
  version: "preview1",
  args: [program, ...args.map((name) => `/work/${name}`)],
  preopens: { "/work": folder },
});
WebAssembly.instantiate(fs.readFileSync(program), wasi.getImportObject()).then(({ instance }) => {
  process.exitCode = wasi.start(instance);
});
