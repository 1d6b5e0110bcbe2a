/** The entry point of the page. */

import { render } from "preact";
import { TraceError } from "./format/chunks";
import { decodeTrace } from "./load/decode";
import { startWorkers } from "./load/pool";
import { ServedTrace } from "./load/server";
import { embeddedFiles, pickedFile, type TraceFile } from "./load/sources";
import { App } from "./ui/app";
import { Store, typicalStep } from "./ui/store";

const store = new Store();
const root = document.getElementById("app")!;

/** Show the traces of the local server that this page comes from. */
async function openServed(): Promise<void> {
  const { decoder } = startWorkers();
  showProgress("Reading the trace");
  try {
    for (const index of [0, 1]) {
      const served = await ServedTrace.open(index, decoder);
      if (!served) break;
      const trace = await served.read(typicalStep(served.steps));
      store.served[index] = served;
      store.open(trace, index);
    }
  } catch (error) {
    if (!(error instanceof TraceError || error instanceof TypeError)) throw error;
    store.message = `the trace cannot be read from the server: ${error.message}`;
    store.changed();
  } finally {
    showProgress("");
  }
}

/** Read files, and show them in the first place and the second one, or from `index` on. */
async function open(files: readonly TraceFile[], index: number): Promise<void> {
  for (const [k, file] of files.slice(0, 2 - index).entries()) {
    const { decoder, stop } = startWorkers();
    try {
      showProgress(`Reading ${file.name}`);
      await new Promise(requestAnimationFrame);
      const bytes = await file.read();
      const trace = await decodeTrace(file.name, bytes, decoder, (share) => {
        showProgress(`Reading ${file.name}: ${Math.round(share * 100)} %`);
      });
      store.message = "";
      if (index + k === 0) store.slots = [];
      store.served = [];
      store.open(trace, store.slots.length ? index + k : 0);
    } catch (error) {
      const isExpected = error instanceof TraceError || error instanceof DOMException;
      store.message = isExpected ? error.message : `${file.name} cannot be shown: ${String(error)}`;
      store.changed();
      if (!isExpected) throw error;
    } finally {
      stop();
      showProgress("");
    }
  }
}

function showProgress(text: string): void {
  const element = document.getElementById("progress")!;
  element.textContent = text;
  element.hidden = !text;
}

/** Ask for a file with the browser's dialog. */
function pick(index: number): void {
  const input = document.createElement("input");
  input.type = "file";
  input.multiple = index === 0;
  input.addEventListener("change", () => void open([...(input.files ?? [])].map(pickedFile), index));
  input.click();
}

document.addEventListener("dragover", (event) => event.preventDefault());
document.addEventListener("drop", (event) => {
  event.preventDefault();
  const files = [...(event.dataTransfer?.files ?? [])].map(pickedFile);
  const isSecond = files.length === 1 && store.slots.length === 1 && event.shiftKey;
  void open(files, isSecond ? 1 : 0);
});

render(<App store={store} pick={pick} />, root);
if (document.getElementById("server")) void openServed();
else void open(embeddedFiles(), 0);
