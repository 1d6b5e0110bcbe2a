/** The page: toolbar, timeline, panels. */

import type { CSSProperties } from "preact";
import { useEffect, useLayoutEffect, useReducer, useRef, useState } from "preact/hooks";
import { DARK, LIGHT, type ColorBy } from "../view/colors";
import { Timeline, hit } from "../view/timeline";
import { formatCount, printable } from "../view/units";
import { ComparePanel } from "./compare";
import { Details } from "./details";
import { listen } from "./input";
import { MemoryPanel } from "./memory";
import { Duration, Estimated, Name } from "./parts";
import { PathPanel } from "./path";
import { ScopesPanel } from "./scopes";
import { SearchPanel } from "./search";
import { StepsPanel } from "./steps";
import type { Store, Tab } from "./store";

const TABS: readonly [Tab, string][] = [
  ["path", "Critical path"], ["steps", "Steps"], ["scopes", "Scopes"], ["memory", "Memory"],
  ["search", "Search"], ["compare", "Compare"],
];

const KEYS: readonly [string, string][] = [
  ["W S", "zoom in, zoom out"], ["A D", "move left, move right"], ["wheel", "zoom; over the names: scroll"],
  ["drag", "move"], ["Shift drag", "measure an interval"], ["click", "select an event; collapse a lane by its name"],
  [", .", "go to what the event waited for, to what waited for it"],
  ["← →", "previous, next event of the row"], ["↑ ↓", "row above, row below"],
  ["[ ]", "previous, next step"], ["F", "zoom to the selection or the step"], ["0", "show the whole trace"],
  ["C", "show or hide the critical path"], ["/", "search"], ["N Shift+N", "next, previous match"],
  ["Esc", "clear"],
];

export function App({ store, pick }: { store: Store; pick: (index: number) => void }) {
  const [, update] = useReducer((count: number) => count + 1, 0);
  useLayoutEffect(() => store.subscribe(() => update(0)), []);
  useEffect(() => {
    document.documentElement.dataset["theme"] = store.theme.isDark ? "dark" : "light";
  }, [store.theme]);
  if (!store.slots.length) return <Welcome store={store} pick={pick} />;
  const warnings = store.slots.flatMap((slot) => slot.trace.warnings);
  return (
    <div class="page">
      <Toolbar store={store} pick={pick} />
      {(warnings.length > 0 || store.message) && (
        <div class="warning" role="alert">
          {store.message && <p>{printable(store.message)}</p>}
          {warnings.map((warning, k) => <p key={k}>{printable(warning)}</p>)}
        </div>
      )}
      <main>
        <TimelineView store={store} />
        <aside aria-label="selected event"><Details store={store} /></aside>
        <Panels store={store} pick={pick} />
      </main>
      {store.isHelpOpen && <Help store={store} />}
    </div>
  );
}

function Welcome({ store, pick }: { store: Store; pick: (index: number) => void }) {
  return (
    <div class="welcome">
      <h1>weft trace</h1>
      {store.message ? <p role="alert">{printable(store.message)}</p> : <p>Open a trace file, or drop one or two on this page. Nothing is sent anywhere.</p>}
      <button type="button" onClick={() => pick(0)}>Open a trace file</button>
    </div>
  );
}

function Toolbar({ store, pick }: { store: Store; pick: (index: number) => void }) {
  const [slot] = store.slots;
  const [step] = store.steps;
  const [query, setQuery] = useState("");
  const isOther = store.search !== null && store.search.query !== query;
  const timer = useRef(0);
  useEffect(() => {
    if (isOther) setQuery(store.search!.query);
  }, [store.search?.query]);
  const submit = (value: string) => {
    setQuery(value);
    clearTimeout(timer.current);
    timer.current = setTimeout(() => store.setQuery(value), 150);
  };
  return (
    <header>
      <h1 title={store.slots.map((slot) => printable(slot.trace.name)).join(", ")}>
        <Name text={slot.trace.name} />
        <small>{formatCount(slot.parted?.source.count ?? slot.trace.columns.count)} events</small>
      </h1>
      {step && (
        <div class="group" role="group" aria-label="step">
          <button type="button" aria-label="previous step" title="previous step ([)" onClick={() => store.moveStep(-1)}>‹</button>
          <button type="button" class="step" title={printable(step.label)} onClick={() => store.showStep()}>
            Step {step.number} · <Duration ns={step.end - step.start} />
          </button>
          <button type="button" aria-label="next step" title="next step (])" onClick={() => store.moveStep(1)}>›</button>
        </div>
      )}
      <input
        id="search" type="search" placeholder="Search node, op, line, scope  ( / )" aria-label="search"
        value={query} spellcheck={false}
        onInput={(event) => submit(event.currentTarget.value)}
        onKeyDown={(event) => {
          if (event.key !== "Enter") return;
          clearTimeout(timer.current);
          if (store.search?.query !== query) store.setQuery(query);
          store.nextMatch(event.shiftKey ? -1 : 1);
        }}
      />
      <div class="group end">
        <button type="button" class="toggle" aria-pressed={store.showsPath} onClick={() => store.togglePath()} title="critical path (C)">Critical path</button>
        <label>Color <select value={store.colorBy} onChange={(event) => {
          store.colorBy = event.currentTarget.value as ColorBy;
          store.changed();
        }}>
          <option value="kind">kind</option><option value="op">op</option><option value="scope">scope</option>
        </select></label>
        <label title="join neighbors that have a name scope in common">Scopes <select value={store.scopeDepth} onChange={(event) => {
          store.scopeDepth = Number(event.currentTarget.value);
          store.changed();
        }}>
          <option value="0">expanded</option><option value="1">1 level</option><option value="2">2 levels</option><option value="3">3 levels</option>
        </select></label>
        <button type="button" onClick={() => store.showAll()} title="whole trace (0)">All</button>
        <button type="button" onClick={() => pick(0)}>Open</button>
        <button type="button" aria-label="light or dark" title="light or dark" onClick={() => {
          store.theme = store.theme.isDark ? LIGHT : DARK;
          store.changed();
        }}>◐</button>
        <button type="button" aria-label="keys" title="keys (?)" onClick={() => {
          store.isHelpOpen = true;
          store.changed();
        }}>?</button>
      </div>
    </header>
  );
}

/** The canvas. Its data attributes tell tests and assistive tools what is visible. */
function TimelineView({ store }: { store: Store }) {
  const ref = useRef<HTMLCanvasElement>(null);
  const timeline = useRef<Timeline | null>(null);
  const pending = useRef(false);
  useEffect(() => {
    const canvas = ref.current!;
    timeline.current = new Timeline(canvas);
    listen(canvas, store);
    const draw = () => {
      pending.current = false;
      timeline.current!.draw(store.scene());
      const { view, selected } = store;
      canvas.dataset["begin"] = String(view.begin);
      canvas.dataset["end"] = String(view.end);
      canvas.dataset["selected"] = selected ? String(selected.event) : "";
    };
    const schedule = () => {
      if (pending.current) return;
      pending.current = true;
      requestAnimationFrame(draw);
    };
    const observer = new ResizeObserver(() => {
      const { begin, end } = store.view;
      const isFirst = store.view.width === 1000 && canvas.width !== 1000;
      store.gutter = canvas.clientWidth < 600 ? 104 : 210;
      store.view.width = Math.max(50, canvas.clientWidth - store.gutter);
      store.canvasHeight = canvas.clientHeight;
      if (isFirst) store.showAll();
      else store.view.show(begin, end);
      store.scrollTo(store.scroll);
      schedule();
    });
    observer.observe(canvas);
    store.subscribeDrawing(schedule);
    schedule();
  }, []);
  return (
    <div class="timeline">
      <canvas
        ref={ref} tabIndex={0} role="application"
        aria-label="timeline; press question mark for the keys"
      />
      <Tooltip store={store} />
    </div>
  );
}

function Tooltip({ store }: { store: Store }) {
  const { hover } = store;
  if (!hover) return null;
  const { item, event, trace } = hit(store.scene(), hover.x, hover.y);
  if (!item || !trace || event === null) return null;
  const node = trace.nodeOf(event);
  const isRight = hover.x > store.gutter + store.view.width * 0.6;
  const style: CSSProperties = {
    top: `${hover.y + 16}px`,
    ...(isRight ? { right: `${store.gutter + store.view.width - hover.x + 10}px` } : { left: `${hover.x + 12}px` }),
  };
  if (hover.y > store.canvasHeight - 90) style.top = `${hover.y - 78}px`;
  return (
    <div class="tooltip" role="tooltip" style={style}>
      <b><Name text={node.name} /></b>
      <div>
        <Duration ns={trace.columns.duration[event]} isEstimated={trace.isEstimated(event)} />
        {trace.columns.delay[event] > 0 && <span class="faint"> queued for <Duration ns={trace.columns.delay[event]} /></span>}
        {trace.isEstimated(event) && <> <Estimated /></>}
      </div>
      <div class="faint">{!node.op.startsWith("_") && <Name text={node.op} />} <Name text={node.line} /></div>
    </div>
  );
}

function Panels({ store, pick }: { store: Store; pick: (index: number) => void }) {
  const [height, setHeight] = useState<number | null>(null);
  const onKey = (event: KeyboardEvent) => {
    const step = event.key === "ArrowRight" ? 1 : event.key === "ArrowLeft" ? -1 : 0;
    if (!step) return;
    const index = TABS.findIndex(([tab]) => tab === store.tab);
    store.tab = TABS[(index + step + TABS.length) % TABS.length][0];
    store.changed();
    event.preventDefault();
    event.stopPropagation();
    requestAnimationFrame(() => document.querySelector<HTMLElement>('[role="tab"][aria-selected="true"]')?.focus());
  };
  return (
    <section class="panels" style={height ? { height: `${height}px` } : {}}>
      <Divider onMove={(y) => setHeight(Math.max(80, Math.min(window.innerHeight - 220, window.innerHeight - y)))} />
      <div class="tabs" role="tablist" onKeyDown={onKey}>
        {TABS.map(([tab, name]) => (
          <button
            key={tab} type="button" role="tab" aria-selected={store.tab === tab}
            tabIndex={store.tab === tab ? 0 : -1}
            onClick={() => {
              store.tab = tab;
              store.changed();
            }}
          >{name}</button>
        ))}
      </div>
      <div class="panel" role="tabpanel">
        {store.tab === "path" && <PathPanel store={store} />}
        {store.tab === "steps" && <StepsPanel store={store} />}
        {store.tab === "scopes" && <ScopesPanel store={store} />}
        {store.tab === "memory" && <MemoryPanel store={store} />}
        {store.tab === "search" && <SearchPanel store={store} />}
        {store.tab === "compare" && <ComparePanel store={store} onOpen={() => pick(1)} />}
      </div>
    </section>
  );
}

function Divider({ onMove }: { onMove: (y: number) => void }) {
  return (
    <div
      class="divider" aria-hidden="true"
      onPointerDown={(event) => event.currentTarget.setPointerCapture(event.pointerId)}
      onPointerMove={(event) => event.currentTarget.hasPointerCapture(event.pointerId) && onMove(event.clientY)}
    />
  );
}

function Help({ store }: { store: Store }) {
  const close = () => {
    store.isHelpOpen = false;
    store.changed();
  };
  return (
    <div class="overlay" onClick={close}>
      <div class="help" role="dialog" aria-label="keys" onClick={(event) => event.stopPropagation()}>
        <h2>Keys</h2>
        <dl>{KEYS.map(([key, text]) => <><dt key={key}>{key.split(" ").map((part) => <kbd>{part}</kbd>)}</dt><dd>{text}</dd></>)}</dl>
        <h2>Marks</h2>
        <p><Estimated /> Hatched bars and ≈ mark times that are shares of a measured time.</p>
        <p>Red outlines are the critical path. The dashed line before a selected event is its queueing delay.</p>
        <button type="button" onClick={close} autofocus>Close</button>
      </div>
    </div>
  );
}
