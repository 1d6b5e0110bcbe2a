/** The time of kernels by name scope, and by op, line and node. */

import { useMemo, useState } from "preact/hooks";
import { sumBy, sumByNode, sumByScope, type Scope, type Selection, type Sum } from "../analysis/scopes";
import { hash } from "../view/colors";
import { formatCount, formatMeasured, printable } from "../view/units";
import { Bar, Duration, List, Name } from "./parts";
import { percent } from "./path";
import type { Store } from "./store";

const FILLS = ["#8db4e2", "#86c5c4", "#a3cd9b", "#b3b1e0", "#c9b1dc", "#9fc3d8", "#bccb8f", "#94c9b0"];
const LEVEL = 22;
const LEAST = 0.002; // of the width

export function ScopesPanel({ store }: { store: Store }) {
  const [property, setProperty] = useState<"op" | "line" | "name">("op");
  const { trace } = store.slots[0];
  const { selection, label } = selected(store);
  const key = JSON.stringify(selection);
  const sums = useMemo(() => sumByNode(trace, selection), [trace, key]);
  const root = useMemo(() => sumByScope(trace, sums), [sums]);
  const rows = useMemo(() => sumBy(trace, sums, property), [sums, property]);
  return (
    <div class="halves">
      <div class="column">
        <p class="headline pad">Kernel time of {label}: <Duration ns={root.time} isEstimated={root.isEstimated} /></p>
        <Flame root={root} onSearch={(path) => store.setQuery(`scope:${path}`)} />
      </div>
      <div class="column">
        <p class="headline pad" role="group" aria-label="group by">
          {(["op", "line", "name"] as const).map((name) => (
            <button key={name} type="button" class="toggle" aria-pressed={name === property} onClick={() => setProperty(name)}>
              by {name === "name" ? "node" : name}
            </button>
          ))}
        </p>
        <Sums rows={rows} total={root.time} property={property} store={store} />
      </div>
    </div>
  );
}

function selected(store: Store): { selection: Selection; label: string } {
  const [step] = store.steps;
  if (store.range) {
    const [begin, end] = [Math.min(...store.range), Math.max(...store.range)];
    return { selection: { begin, end }, label: "the marked interval" };
  }
  if (step) return { selection: { step: step.id }, label: `step ${step.number}` };
  const { begin, end } = store.slots[0].trace;
  return { selection: { begin, end }, label: "the trace" };
}

function Sums({ rows, total, property, store }: {
  rows: [string, Sum][]; total: number; property: string; store: Store;
}) {
  const prefix = property === "name" ? "node" : property;
  return (
    <List
      rows={rows} label={`time by ${property}`} columns="minmax(0,1fr) 90px 60px 56px 90px"
      head={<><span>{property === "name" ? "Node" : property === "op" ? "Op" : "Line"}</span><span /><span class="right">Share</span><span class="right">Count</span><span class="right">Time</span></>}
      onSelect={([key]) => store.setQuery(`${prefix}:${key.split(/\s/)[0]}`)}
      draw={([key, sum]) => (
        <>
          <Name text={key} />
          <Bar share={sum.time / (rows[0][1].time || 1)} color="#8db4e2" />
          <span class="right number">{percent(sum.time / (total || 1))}</span>
          <span class="right number">{formatCount(sum.count)}</span>
          <span class="right"><Duration ns={sum.time} isEstimated={sum.isEstimated} /></span>
        </>
      )}
    />
  );
}

/** Nested bars: scopes below the scopes that contain them. A click enlarges one. */
function Flame({ root, onSearch }: { root: Scope; onSearch: (path: string) => void }) {
  const [path, setPath] = useState("");
  const top = find(root, path) ?? root;
  const boxes: { scope: Scope; x: number; width: number; depth: number }[] = [];
  const place = (scope: Scope, x: number, width: number, depth: number) => {
    boxes.push({ scope, x, width, depth });
    if (depth > 24) return;
    for (const child of [...scope.children.values()].sort((a, b) => b.time - a.time)) {
      const share = scope.time ? (width * child.time) / scope.time : 0;
      if (share < LEAST) continue;
      place(child, x, share, depth + 1);
      x += share;
    }
  };
  place(top, 0, 1, 0);
  const depth = Math.max(...boxes.map((box) => box.depth));
  return (
    <div class="scroll flame" role="tree" aria-label="time by name scope">
      <div style={{ height: `${(depth + 1) * LEVEL}px`, position: "relative" }}>
        {boxes.map(({ scope, x, width, depth }) => (
          <button
            key={scope.path || "/"} type="button" role="treeitem"
            title={printable(`${scope.path || "all scopes"}: ${formatMeasured(scope.time, scope.isEstimated)}, ${scope.count} executions`)}
            style={{
              left: `${x * 100}%`, width: `${width * 100}%`, top: `${depth * LEVEL}px`,
              background: FILLS[hash(scope.path) % FILLS.length],
            }}
            onClick={() => setPath(scope === top ? parentOf(path) : scope.path)}
            onDblClick={() => scope.path && onSearch(scope.path)}
          >
            {scope.isEstimated && width > 0.05 && "≈ "}{printable(scope.name || "all scopes")}
          </button>
        ))}
      </div>
    </div>
  );
}

function parentOf(path: string): string {
  return path.includes("/") ? path.slice(0, path.lastIndexOf("/")) : "";
}

function find(root: Scope, path: string): Scope | undefined {
  let scope: Scope | undefined = root;
  for (const part of path ? path.split("/") : []) scope = scope?.children.get(part);
  return scope;
}
