/** Two traces: what got slower or faster between two steps. */

import { useMemo, useState } from "preact/hooks";
import { compareSteps } from "../analysis/compare";
import { formatDuration } from "../view/units";
import { Bar, Duration, List, Name } from "./parts";
import type { Store } from "./store";

export function ComparePanel({ store, onOpen }: { store: Store; onOpen: () => void }) {
  const [property, setProperty] = useState<"op" | "name" | "line">("op");
  const [a, b] = store.slots;
  const [first, second] = store.steps;
  const rows = useMemo(
    () => (b && first && second ? compareSteps({ trace: a.trace, step: first }, { trace: b.trace, step: second }, property) : []),
    [a, b, first, second, property],
  );
  if (!b) {
    return (
      <p class="faint pad">
        Open a second trace to see both beside each other, aligned by step.{" "}
        <button type="button" class="toggle" onClick={onOpen}>open a second trace</button>
      </p>
    );
  }
  if (!first || !second) return <p class="faint pad">Both traces need a step to compare.</p>;
  const [before, after] = [first.end - first.start, second.end - second.start];
  const most = Math.max(1, ...rows.map((row) => Math.abs(row.after - row.before)));
  return (
    <div class="column">
      <p class="headline pad">
        Step {first.number} of A took <Duration ns={before} />, step {second.number} of B <Duration ns={after} />:{" "}
        <b class={after > before ? "worse" : "better"}>{signed(after - before)}</b>{" "}
        {(["op", "line", "name"] as const).map((name) => (
          <button key={name} type="button" class="toggle" aria-pressed={name === property} onClick={() => setProperty(name)}>
            by {name === "name" ? "node" : name}
          </button>
        ))}
      </p>
      <List
        rows={rows} label="changes" columns="minmax(0,1fr) 100px 90px 90px 100px"
        head={<><span>{property === "name" ? "Node" : property === "op" ? "Op" : "Line"}</span><span /><span class="right">A</span><span class="right">B</span><span class="right">Change</span></>}
        onSelect={(row) => store.setQuery(`${property === "name" ? "node" : property}:${row.key.split(/\s/)[0]}`)}
        draw={(row) => (
          <>
            <Name text={row.key} />
            <Bar share={Math.abs(row.after - row.before) / most} color={row.after > row.before ? "#e08f73" : "#86c5a4"} />
            <span class="right"><Duration ns={row.before} isEstimated={row.isEstimated} /></span>
            <span class="right"><Duration ns={row.after} isEstimated={row.isEstimated} /></span>
            <span class={`right number ${row.after > row.before ? "worse" : "better"}`}>{row.isEstimated && "≈ "}{signed(row.after - row.before)}</span>
          </>
        )}
      />
    </div>
  );
}

function signed(ns: number): string {
  return ns > 0 ? `+${formatDuration(ns)}` : formatDuration(ns).replace("-", "−");
}
