/** The entry point of the page. */

import { render } from "preact";
import { TraceError } from "./format/chunks";
import { decodeTrace } from "./load/decode";
import { startWorkers } from "./load/pool";
import { embeddedFiles, pickedFile, type TraceFile } from "./load/sources";
import { App } from "./ui/app";
import { Store } from "./ui/store";

const store = new Store();
const root = document.getElementById("app")!;

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
void open(embeddedFiles(), 0);
