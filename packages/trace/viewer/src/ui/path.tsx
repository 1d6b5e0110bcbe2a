/** The critical path of the selected step: where its time went. */

import { CATEGORIES } from "../analysis/critical_path";
import { CATEGORY_COLORS } from "../view/colors";
import { Duration, Estimated, List, Name } from "./parts";
import type { Store } from "./store";

export function PathPanel({ store }: { store: Store }) {
  if (!store.slots.length) return null;
  return (
    <div class={store.slots.length > 1 ? "halves" : "fill"}>
      {store.slots.map((_, slot) => <OnePath key={slot} store={store} slot={slot} />)}
    </div>
  );
}

function OnePath({ store, slot }: { store: Store; slot: number }) {
  const path = store.pathOf(slot);
  const { trace } = store.slots[slot];
  if (!path) {
    const isComing = store.stepsOf(slot).length > 0;
    return <p class="faint pad">{isComing ? "Select a step to see its critical path." : "The trace contains no step."}</p>;
  }
  const length = path.step.end - path.step.start;
  const shown = CATEGORIES.filter((category) => path.totals[category] > 0);
  const segments = path.segments.filter((part) => part.end - part.start > 0);
  return (
    <div class="path">
      <div class="pad">
        <p class="headline">
          {store.slots.length > 1 && <b>{"AB"[slot]} </b>}
          Step {path.step.number} took <b><Duration ns={length} /></b>
          {path.isEstimated && <> <Estimated /></>}
        </p>
        <div class="stack" role="img" aria-label="parts of the step">
          {shown.map((category) => (
            <span
              key={category} title={category}
              style={{ flexGrow: path.totals[category], background: CATEGORY_COLORS[category] }}
            />
          ))}
        </div>
        <ul class="legend">
          {shown.map((category) => (
            <li key={category}>
              <i style={{ background: CATEGORY_COLORS[category] }} />
              {category} <b>{percent(path.totals[category] / length)}</b>{" "}
              <Duration ns={path.totals[category]} />
            </li>
          ))}
        </ul>
      </div>
      <List
        rows={segments} label="segments of the critical path"
        columns="86px minmax(0,1fr) minmax(0,.8fr) 90px"
        head={<><span>Category</span><span>Node</span><span>Line</span><span class="right">Time</span></>}
        isCurrent={(part) => store.selected?.slot === slot && store.selected.event === part.event}
        onSelect={(part) => store.select({ slot, event: part.event }, true)}
        draw={(part) => (
          <>
            <span class="category"><i style={{ background: CATEGORY_COLORS[part.category] }} />{part.category}</span>
            <Name text={trace.nodeOf(part.event).name} />
            <Name text={trace.nodeOf(part.event).line} />
            <span class="right"><Duration ns={part.end - part.start} isEstimated={trace.isEstimated(part.event)} /></span>
          </>
        )}
      />
    </div>
  );
}

export function percent(share: number): string {
  const value = share * 100;
  return `${value >= 9.95 ? value.toFixed(0) : value.toFixed(1)} %`;
}
