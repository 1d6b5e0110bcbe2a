/** The entry point of the page. */

import { render } from "preact";
import { TraceError } from "./format/chunks";
import { decodeTrace } from "./load/decode";
import { FileParts } from "./load/file_parts";
import { MOST_EVENTS, readBeginning, readStep, type PartedSource } from "./load/parted";
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
      await openParts(served, index);
    }
  } catch (error) {
    if (!(error instanceof TraceError || error instanceof TypeError)) throw error;
    store.message = `the trace cannot be read from the server: ${error.message}`;
    store.changed();
  } finally {
    showProgress("");
  }
}

/** Show a trace whose parts can be read: as a whole if it is small, or else a step of it. */
async function openParts(source: PartedSource, index: number): Promise<void> {
  const [first, last] = source.interval;
  if (source.isSmall) {
    return store.open(await source.readEvents(first, last + 1, MOST_EVENTS), index);
  }
  const view = store.overviewBins(source);
  const bins = source.readBins(view.begin, view.end, view.count);
  const { steps } = source.base;
  const step = steps.find(({ id }) => id === source.firstStep) ?? typicalStep(steps);
  // Steps can be seen before the events of one of them are there.
  store.open(source.base, index, { source, bins: await bins, begin: first, end: last });
  performance.mark("overview");
  store.showPart(index, step ? await readStep(source, step) : await readBeginning(source), step);
  performance.mark("step");
}

/** Read files, and show them in the first place and the second one, or from `index` on. */
async function open(files: readonly TraceFile[], index: number): Promise<void> {
  for (const [k, file] of files.slice(0, 2 - index).entries()) {
    const { decoder, stop } = startWorkers();
    let isParted = false;
    try {
      showProgress(`Reading ${file.name}`);
      await new Promise(requestAnimationFrame);
      const chunks = await file.list();
      isParted = chunks !== null;
      const trace = chunks ? null : await decodeTrace(file.name, await file.read(), decoder, (share) => {
        showProgress(`Reading ${file.name}: ${Math.round(share * 100)} %`);
      });
      store.message = "";
      if (index + k === 0) store.slots = [];
      const place = store.slots.length ? index + k : 0;
      if (trace) store.open(trace, place);
      else await openParts(await FileParts.open(chunks!, decoder), place);
    } catch (error) {
      const isExpected = error instanceof TraceError || error instanceof DOMException;
      store.message = isExpected ? error.message : `${file.name} cannot be shown: ${String(error)}`;
      store.changed();
      if (!isExpected) throw error;
    } finally {
      if (!isParted) stop();
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
