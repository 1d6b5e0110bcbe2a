/** Buffers of a device over time: who held what at the peak, or at another time. */

import { useMemo, useState } from "preact/hooks";
import { holdersAt, holdersOver, memoryLanes, memoryUse } from "../analysis/memory";
import { LAYERS } from "../view/colors";
import { formatBytes, formatCount, formatDuration } from "../view/units";
import { Bar, Chart, Duration, List, Name } from "./parts";
import type { Store } from "./store";

const LAYER_COUNT = 8;

export function MemoryPanel({ store }: { store: Store }) {
  const { trace } = store.slots[0];
  const lanes = memoryLanes(trace);
  const [chosen, setLane] = useState<number | null>(null);
  const [time, setTime] = useState<number | null>(null);
  const [scope, setScope] = useState<"step" | "trace">("step");
  const lane = chosen !== null && lanes.includes(chosen) ? chosen : lanes[0];
  const step = store.steps[0];
  const [begin, end] = scope === "step" && step ? [step.start, step.end] : [trace.begin, trace.end];
  const use = useMemo(() => (lane === undefined ? null : memoryUse(trace, lane)), [trace, lane]);
  const peak = useMemo(() => (use ? peakIn(use.time, use.bytes, begin, end) : null), [use, begin, end]);
  const at = time !== null && time >= begin && time <= end ? time : (peak?.time ?? begin);
  const holders = useMemo(() => (lane === undefined ? [] : holdersAt(trace, lane, at)), [trace, lane, at]);
  const times = useMemo(
    () => Float64Array.from({ length: 400 }, (_, k) => begin + ((end - begin) * k) / 399), [begin, end],
  );
  const leaders = useMemo(
    () => (lane === undefined || !peak ? [] : holdersAt(trace, lane, peak.time).slice(0, LAYER_COUNT).map((holder) => holder.node)),
    [trace, lane, peak],
  );
  const layers = useMemo(
    () => (lane === undefined ? [] : holdersOver(trace, lane, leaders, times)), [trace, lane, leaders, times],
  );
  if (lane === undefined || !use || !peak) {
    return <p class="faint pad">The trace has no buffers. Record with memory to see who holds what.</p>;
  }
  const total = holders.reduce((sum, holder) => sum + holder.bytes, 0);
  const since = step && scope === "step" ? step.start : trace.begin;
  return (
    <div class="halves">
      <div class="column pad">
        <p class="headline">
          <select aria-label="memory" value={lane} onChange={(event) => setLane(Number(event.currentTarget.value))}>
            {lanes.map((id) => (
              <option key={id} value={id}>{`${trace.process(trace.records.lanes[id]).name} ${trace.records.lanes[id].name}`}</option>
            ))}
          </select>{" "}
          <button type="button" class="toggle" aria-pressed={scope === "step"} onClick={() => setScope("step")}>step</button>
          <button type="button" class="toggle" aria-pressed={scope === "trace"} onClick={() => setScope("trace")}>trace</button>
          <span class="faint"> peak <b>{formatBytes(peak.bytes)}</b> after <Duration ns={peak.time - since} /></span>
        </p>
        <Chart
          label="bytes in use over time, by node"
          onClick={(x, width) => setTime(begin + ((end - begin) * x) / width)}
          draw={(c, width, height) => {
            const { theme } = store;
            const scale = (height - 16) / (peak.bytes || 1);
            const base = new Float64Array(times.length);
            layers.forEach((layer, k) => {
              c.fillStyle = LAYERS[k < leaders.length ? k : LAYERS.length - 1];
              c.beginPath();
              for (let i = 0; i < times.length; i++) c.lineTo((i / 399) * width, height - base[i] * scale);
              for (let i = times.length - 1; i >= 0; i--) {
                base[i] += layer[i];
                c.lineTo((i / 399) * width, height - base[i] * scale);
              }
              c.fill();
            });
            const x = ((at - begin) / (end - begin)) * width;
            c.fillStyle = theme.accent;
            c.fillRect(Math.round(x), 0, 1.5, height);
            c.textAlign = x > width / 2 ? "right" : "left";
            c.fillText(`${formatBytes(total)} after ${formatDuration(at - since)}`, x + (x > width / 2 ? -6 : 6), 8);
          }}
        />
        <p class="faint">Click the chart to see who holds what at another time. {time !== null && <button type="button" class="toggle" onClick={() => setTime(null)}>back to the peak</button>}</p>
      </div>
      <List
        rows={holders} label="buffers at this time" columns="14px minmax(0,1fr) minmax(0,.7fr) 70px 50px 76px"
        head={<><span /><span>Node</span><span>Line</span><span /><span class="right">Count</span><span class="right">Bytes</span></>}
        onSelect={(holder) => store.setQuery(`node:${trace.node(holder.node).name}`)}
        draw={(holder) => (
          <>
            <i class="swatch" style={{ background: leaders.includes(holder.node) ? LAYERS[leaders.indexOf(holder.node)] : LAYERS.at(-1) }} />
            <Name text={trace.node(holder.node).name} />
            <Name text={trace.node(holder.node).line} />
            <Bar share={holder.bytes / (holders[0].bytes || 1)} color="#8db4e2" />
            <span class="right number">{formatCount(holder.count)}</span>
            <span class="right number">{formatBytes(holder.bytes)}</span>
          </>
        )}
      />
    </div>
  );
}

function peakIn(time: Float64Array, bytes: Float64Array, begin: number, end: number) {
  let peak = { time: begin, bytes: 0 };
  for (let i = 0; i < time.length; i++) {
    const isInside = time[i] <= end && (time[i + 1] ?? Infinity) > begin;
    if (isInside && bytes[i] > peak.bytes) peak = { time: Math.max(begin, time[i]), bytes: bytes[i] };
  }
  return peak;
}
