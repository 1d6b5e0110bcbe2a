/** Nodes that match the search. */

import { useMemo } from "preact/hooks";
import { formatCount } from "../view/units";
import { Bar, Duration, List, Name } from "./parts";
import type { Store } from "./store";

interface Match {
  node: number;
  count: number;
  time: number;
  longest: number;
  isEstimated: boolean;
}

export function SearchPanel({ store }: { store: Store }) {
  const { search } = store;
  const { trace } = store.slots[0];
  const rows = useMemo(() => (search ? collect(store) : []), [search?.byTime]);
  if (!search) {
    return (
      <p class="faint pad">
        Type into the search field: words of a node's name, op, line or scope, or <code>node:</code>, <code>op:</code>, <code>line:</code> and <code>scope:</code> before a word. All words must match.
      </p>
    );
  }
  return (
    <div class="column">
      <p class="headline pad">
        {formatCount(search.byTime.length)} events of {formatCount(rows.length)} nodes match{store.slots[0].parted && " near the selected step"}.{" "}
        <button type="button" class="toggle" onClick={() => store.nextMatch(-1)}>previous</button>
        <button type="button" class="toggle" onClick={() => store.nextMatch(1)}>next</button>
        {search.index >= 0 && <span class="faint"> {formatCount(search.index + 1)} of {formatCount(search.byTime.length)}</span>}
      </p>
      <List
        rows={rows} label="matching nodes" columns="minmax(0,1.2fr) minmax(0,.5fr) minmax(0,.7fr) 70px 70px 90px 90px"
        head={<><span>Node</span><span>Op</span><span>Line</span><span /><span class="right">Count</span><span class="right">Total</span><span class="right">Longest</span></>}
        onSelect={(match) => store.select({ slot: 0, event: match.longest }, true)}
        draw={(match) => (
          <>
            <Name text={trace.node(match.node).name} />
            <Name text={trace.node(match.node).op} />
            <Name text={trace.node(match.node).line} />
            <Bar share={match.time / (rows[0].time || 1)} color="#8db4e2" />
            <span class="right number">{formatCount(match.count)}</span>
            <span class="right"><Duration ns={match.time} isEstimated={match.isEstimated} /></span>
            <span class="right"><Duration ns={trace.columns.duration[match.longest]} isEstimated={trace.isEstimated(match.longest)} /></span>
          </>
        )}
      />
    </div>
  );
}

function collect(store: Store): Match[] {
  const { trace } = store.slots[0];
  const { duration, node } = trace.columns;
  const rows = new Map<number, Match>();
  for (const event of store.search!.byTime) {
    let row = rows.get(node[event]);
    if (!row) {
      row = { node: node[event], count: 0, time: 0, longest: event, isEstimated: false };
      rows.set(node[event], row);
    }
    row.count++;
    row.time += duration[event];
    row.isEstimated ||= trace.isEstimated(event);
    if (duration[event] > duration[row.longest]) row.longest = event;
  }
  return [...rows.values()].sort((a, b) => b.time - a.time);
}
