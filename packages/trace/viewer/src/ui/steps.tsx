/** The durations of all steps. */

import { useMemo, useState } from "preact/hooks";
import { spread } from "../analysis/compare";
import type { StepSpan } from "../model/trace";
import { formatDuration } from "../view/units";
import { Chart, Duration, Name } from "./parts";
import type { Store } from "./store";

export function StepsPanel({ store }: { store: Store }) {
  return (
    <div class={store.slots.length > 1 ? "halves" : "fill"}>
      {store.slots.map((_, slot) => <OneTrace key={slot} store={store} slot={slot} />)}
    </div>
  );
}

function OneTrace({ store, slot }: { store: Store; slot: number }) {
  const all = store.stepsOf(slot);
  const labels = useMemo(() => [...new Set(all.map((step) => step.label))], [all]);
  const [chosen, setChosen] = useState<string | null>(null);
  const [hover, setHover] = useState<StepSpan | null>(null);
  const current = store.steps[slot];
  const label = chosen ?? current?.label ?? labels[0];
  const steps = useMemo(() => all.filter((step) => step.label === label), [all, label]);
  const { count, median, low, high } = useMemo(() => spread(steps), [steps]);
  if (!labels.length) return <p class="faint pad">The trace contains no step.</p>;
  const most = steps.reduce((most, step) => Math.max(most, step.end - step.start), 1);
  const { theme } = store;
  const at = (x: number, width: number): StepSpan | null => {
    const part = steps[Math.floor((x / width) * Math.max(steps.length, 24))];
    return part ? slowestNear(steps, steps.indexOf(part), width) : null;
  };
  const shown = hover ?? current;
  return (
    <div class="steps pad">
      <p class="headline">
        {labels.length > 1 ? (
          <select aria-label="kind of step" value={label} onChange={(event) => setChosen(event.currentTarget.value)}>
            {labels.slice(0, 200).map((label) => <option key={label} value={label}>{label}</option>)}
          </select>
        ) : <Name text={label} />}
        <span class="faint">
          {" "}{count} steps, median <Duration ns={median} />, 10 % below <Duration ns={low} />, 10 % above <Duration ns={high} />
        </span>
      </p>
      <Chart
        label="duration of each step"
        onClick={(x, width) => {
          const step = at(x, width);
          if (step) store.selectStep(slot, step);
        }}
        onMove={(x, width) => setHover(x === null ? null : at(x, width))}
        draw={(c, width, height) => {
          const bottom = height - 2;
          const scale = (height - 18) / most;
          const slots = Math.max(steps.length, 24);
          const bar = width / slots;
          for (let k = 0; k < steps.length; ) {
            const x = k * bar;
            const next = Math.max(k + 1, Math.ceil((Math.floor(x) + 1) / bar));
            const group = steps.slice(k, bar >= 1 ? k + 1 : next);
            const isCurrent = group.some((step) => step.id === current?.id);
            const time = Math.max(...group.map((step) => step.end - step.start));
            c.fillStyle = isCurrent ? theme.accent : time > 1.5 * median ? "#e08f73" : "#8db4e2";
            c.fillRect(x, bottom - time * scale, Math.max(1, bar - (bar > 3 ? 1 : 0)), time * scale);
            k += group.length;
          }
          c.strokeStyle = theme.faint;
          c.setLineDash([4, 3]);
          c.beginPath();
          c.moveTo(0, bottom - median * scale);
          c.lineTo(width, bottom - median * scale);
          c.stroke();
          c.fillStyle = theme.faint;
          c.textAlign = "right";
          c.fillText(formatDuration(most), width - 2, 8);
        }}
      />
      <p class="faint">{shown ? <>Step {shown.number}: <Duration ns={shown.end - shown.start} /></> : "Click a bar to select a step."}</p>
    </div>
  );
}

/** Return the slowest of the steps that share a pixel with one. */
function slowestNear(steps: readonly StepSpan[], index: number, width: number): StepSpan {
  const count = Math.max(1, Math.floor(steps.length / width));
  return steps
    .slice(index, index + count)
    .reduce((slow, step) => (step.end - step.start > slow.end - slow.start ? step : slow));
}
