/** The panel of the selected event: all that the trace says of it. */

import type { ComponentChildren } from "preact";
import { ESTIMATED, KIND_NAMES, Kind } from "../model/schema";
import type { Trace } from "../model/trace";
import { formatBytes, formatCount } from "../view/units";
import { Duration, Estimated, Name } from "./parts";
import type { Store } from "./store";

const SHOWN = 12; // links of a list
const MOST_BACKGROUND = 200;

function Field({ name, children }: { name: string; children: ComponentChildren }) {
  return <><dt>{name}</dt><dd>{children}</dd></>;
}

export function Details({ store }: { store: Store }) {
  if (!store.selected) return <Hint />;
  const { slot, event } = store.selected;
  const { trace } = store.slots[slot];
  const { columns } = trace;
  const node = trace.nodeOf(event);
  const lane = trace.records.lanes[trace.laneOf(event)];
  const step = trace.stepOfEvent(event);
  const isEstimated = trace.isEstimated(event);
  const start = columns.start[event];
  const from = step ? "from the step's start" : "from the trace's start";
  const { sources, users } = store.neighbors(store.selected);
  return (
    <div class="details" aria-live="polite">
      <h2><Name text={node.name} /></h2>
      <p class="tags">
        <span class="tag">{KIND_NAMES[columns.kind[event]] ?? `kind ${columns.kind[event]}`}</span>
        {node.op && !node.op.startsWith("_") && <span class="tag"><Name text={node.op} /></span>}
        {isEstimated && <Estimated />}
        {trace.hasFailed(event) && <span class="badge failed">failed</span>}
      </p>
      <dl>
        <Field name="Duration"><Duration ns={columns.duration[event]} isEstimated={isEstimated} /></Field>
        <Field name="Queueing delay"><Duration ns={columns.delay[event]} isEstimated={isEstimated} /></Field>
        <Field name="Start"><Duration ns={start - (step?.start ?? trace.begin)} isEstimated={isEstimated} /> <small>{from}</small></Field>
        <Field name="Ready, end">
          <Duration ns={trace.readyOf(event) - (step?.start ?? trace.begin)} isEstimated={isEstimated} />{", "}
          <Duration ns={trace.endOf(event) - (step?.start ?? trace.begin)} isEstimated={isEstimated} />
        </Field>
        <Field name="Time of day"><span class="number">{timeOfDay(trace, start)}</span></Field>
        {node.line && <Field name="Line"><Name text={node.line} /></Field>}
        {node.op && <Field name="Op"><Name text={node.op} /></Field>}
        <Field name="Lane"><Name text={trace.process(lane).name} /> · <Name text={lane.name} /></Field>
        {node.device && <Field name="Device"><Name text={node.device} /></Field>}
        <Field name="Step">
          {step ? <><span class="number">{step.number}</span> <Name text={step.label} /></> : "outside of steps"}
        </Field>
        {columns.iteration[event] > 0 && <Field name="Iteration"><Iteration trace={trace} id={columns.iteration[event]} /></Field>}
        {columns.inputBytes[event] >= 0 && <Field name="Input">{formatBytes(columns.inputBytes[event])}</Field>}
        {columns.outputBytes[event] >= 0 && <Field name={columns.kind[event] === Kind.BUFFER ? "Size" : "Output"}>{formatBytes(columns.outputBytes[event])}</Field>}
        {columns.kind[event] === Kind.TRANSFER && columns.outputBytes[event] > 0 && columns.duration[event] > 0 && (
          <Field name="Rate">{formatBytes((columns.outputBytes[event] / columns.duration[event]) * 1e9)}/s</Field>
        )}
        {columns.flags[event] > 3 && <Field name="Flags">{columns.flags[event]}</Field>}
      </dl>
      <Links title="Waited for" store={store} slot={slot} events={sources} />
      <Links title="Waited by" store={store} slot={slot} events={users} />
      <Texts title="Computes the nodes" texts={node.origins} />
      <Texts title="Members" texts={node.members.map((id) => `${trace.node(id).name} (${trace.node(id).op})`)} />
      <Texts title="Input nodes" texts={node.inputs.map((id) => trace.node(id).name)} />
    </div>
  );
}

function Hint() {
  return (
    <div class="details faint">
      <p>Select an event to see what it waited for.</p>
      <p><kbd>,</kbd> goes to what it waited for last, <kbd>.</kbd> to what waited for it. Hold <kbd>Shift</kbd> and drag to measure. <kbd>?</kbd> lists all keys.</p>
    </div>
  );
}

function Iteration({ trace, id }: { trace: Trace; id: number }) {
  const parts = [];
  for (let depth = 0; id && depth < 16; depth++) {
    const iteration = trace.records.iterations[id];
    if (!iteration) break;
    parts.unshift(<><Name text={iteration.frame} />{` #${iteration.number}`}</>);
    id = iteration.parent;
  }
  return <>{parts.map((part, k) => <>{k > 0 && " › "}{part}</>)}</>;
}

/** Links to other events, the latest first. */
function Links({ title, store, slot, events }: {
  title: string; store: Store; slot: number; events: readonly number[];
}) {
  if (!events.length) return null;
  const { trace } = store.slots[slot];
  return (
    <section>
      <h3>{title} <small>{formatCount(events.length)}</small></h3>
      <ul class="links">
        {events.slice(0, SHOWN).map((event) => (
          <li key={event}>
            <button type="button" onClick={() => store.select({ slot, event }, true)}>
              <Name text={trace.nodeOf(event).name} />
              <Duration
                ns={trace.columns.duration[event]}
                isEstimated={(trace.columns.flags[event] & ESTIMATED) !== 0}
              />
            </button>
          </li>
        ))}
      </ul>
      {events.length > SHOWN && <p class="faint">and {formatCount(events.length - SHOWN)} more</p>}
    </section>
  );
}

function Texts({ title, texts }: { title: string; texts: readonly string[] }) {
  if (!texts.length) return null;
  return (
    <section>
      <h3>{title} <small>{formatCount(texts.length)}</small></h3>
      <ul class="texts">
        {texts.slice(0, MOST_BACKGROUND).map((text, k) => <li key={k}><Name text={text} /></li>)}
      </ul>
      {texts.length > MOST_BACKGROUND && <p class="faint">and {formatCount(texts.length - MOST_BACKGROUND)} more</p>}
    </section>
  );
}

function timeOfDay(trace: Trace, time: number): string {
  const epoch = trace.epoch(time);
  const date = new Date(Number(epoch / 1_000_000n));
  const fraction = String(epoch % 1_000_000_000n).padStart(9, "0");
  const day = Number.isNaN(date.getTime()) ? "" : date.toISOString().slice(0, 19).replace("T", " ");
  return day ? `${day}.${fraction} UTC` : `${epoch} ns`;
}
