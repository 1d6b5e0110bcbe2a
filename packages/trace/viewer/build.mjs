// Bundles the viewer into one page, and its parts without the browser into lib/core.mjs.
//
//     node build.mjs [FOLDER]     writes below FOLDER instead of the places that are checked in

import { createHash } from "node:crypto";
import { mkdirSync, readFileSync, readdirSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const here = dirname(fileURLToPath(import.meta.url));
const target = process.argv[2];
const page = join(target ?? join(here, "../src/weft_trace/page"), "viewer.html");
const core = join(target ?? join(here, "lib"), "core.mjs");

/** Return the text that esbuild makes of an entry point. */
async function bundle(entry, options) {
  const result = await build({
    entryPoints: [join(here, "src", entry)], bundle: true, write: false, target: "es2022",
    absWorkingDir: here, legalComments: "none", ...options,
  });
  return result.outputFiles[0].text;
}

/** Return a hash of all that the outputs depend on; a test compares it with the sources. */
function fingerprint() {
  const files = readdirSync(join(here, "src"), { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map((entry) => join(entry.parentPath ?? entry.path, entry.name).slice(here.length + 1))
    .map((name) => name.replaceAll("\\", "/"));
  const hash = createHash("sha256");
  for (const name of [...files, "build.mjs", "package-lock.json", "package.json"].sort()) {
    hash.update(`${name}\0`).update(readFileSync(join(here, name))).update("\0");
  }
  return hash.digest("hex");
}

/** Insert text at a mark. `replace` with a string would interpret dollar signs. */
function insert(text, mark, content) {
  if (!text.includes(mark)) throw new Error(`page.html has no ${mark}`);
  return text.replace(mark, () => content);
}

const jsx = { jsx: "automatic", jsxImportSource: "preact", minify: true, format: "iife" };
const worker = (await bundle("load/worker.ts", jsx)).trim();
const define = { WORKER_SOURCE: JSON.stringify(worker) };
const script = (await bundle("main.tsx", { ...jsx, define })).trim();
const style = (await bundle("style.css", { minify: true })).trim();
if (/<\/script|<!--/i.test(script)) throw new Error("the script would end its element");

const digest = createHash("sha256").update(script).digest("base64");
const policy =
  `default-src 'none'; script-src 'sha256-${digest}'; style-src 'unsafe-inline'; img-src data:; ` +
  "worker-src blob:; connect-src 'none'; base-uri 'none'; form-action 'none'";
const license = readFileSync(join(here, "node_modules/preact/LICENSE"), "utf8").trim();
const stamp = fingerprint();
const notice =
  `<!--\nThe viewer of weftml-trace, built from packages/trace/viewer (sources ${stamp}).\n` +
  `It contains Preact:\n\n${license}\n-->`;

let html = readFileSync(join(here, "src/page.html"), "utf8");
html = insert(html, "<!doctype html>\n", `<!doctype html>\n${notice}\n`);
html = insert(html, "<!--POLICY-->", `<meta http-equiv="Content-Security-Policy" content="${policy}">`);
html = insert(html, "/*STYLE*/", style);
html = insert(html, "/*SCRIPT*/", script);
const code = await bundle("core.ts", { format: "esm" });
for (const [path, text] of [[page, html], [core, `// Built by build.mjs (sources ${stamp}).\n${code}`]]) {
  mkdirSync(dirname(path), { recursive: true });
  writeFileSync(path, text);
}
console.log(`${page}: ${html.length} characters`);
