/** Small parts of panels. */

import type { ComponentChildren, TargetedKeyboardEvent } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { formatDuration, printable } from "../view/units";

/** A string of a trace. It is inserted as text, and its direction does not affect others. */
export function Name({ text, title }: { text: string; title?: string }) {
  return <bdi class="name" title={printable(title ?? text)}>{printable(text)}</bdi>;
}

/** A duration; estimates are marked. */
export function Duration({ ns, isEstimated = false }: { ns: number; isEstimated?: boolean }) {
  return (
    <span class="number">
      {isEstimated && <abbr class="estimate" title="estimated: a share of a measured time">≈ </abbr>}
      {formatDuration(ns)}
    </span>
  );
}

/** A mark of times that are not measured. */
export function Estimated() {
  return (
    <span class="badge" title="The times are shares of a measured time, and not measured themselves.">
      ≈ estimated
    </span>
  );
}

/** A bar that shows a share of the largest value of a column. */
export function Bar({ share, color }: { share: number; color: string }) {
  const width = `${Math.max(0, Math.min(1, share)) * 100}%`;
  return <span class="bar"><span style={{ width, background: color }} /></span>;
}

const ROW = 24;

interface ListProps<T> {
  rows: readonly T[];
  draw: (row: T, index: number) => ComponentChildren;
  onSelect?: (row: T) => void;
  head?: ComponentChildren;
  columns: string;
  label: string;
  isCurrent?: (row: T) => boolean;
}

/** A table of any length; only visible rows are in the page. */
export function List<T>({ rows, draw, onSelect, head, columns, label, isCurrent }: ListProps<T>) {
  const box = useRef<HTMLDivElement>(null);
  const [view, setView] = useState({ top: 0, height: 400 });
  useEffect(() => {
    const element = box.current!;
    const update = () => setView({ top: element.scrollTop, height: element.clientHeight });
    const observer = new ResizeObserver(update);
    observer.observe(element);
    element.addEventListener("scroll", update, { passive: true });
    return () => observer.disconnect();
  }, []);
  const first = Math.max(0, Math.floor(view.top / ROW) - 4);
  const last = Math.min(rows.length, Math.ceil((view.top + view.height) / ROW) + 4);
  const style = { gridTemplateColumns: columns };
  const onKey = (event: TargetedKeyboardEvent<HTMLElement>, row: T) => {
    const next = event.key === "ArrowDown" ? "nextElementSibling" : "previousElementSibling";
    if (event.key === "Enter" || event.key === " ") onSelect?.(row);
    else if (event.key.startsWith("Arrow")) (event.currentTarget[next] as HTMLElement | null)?.focus();
    else return;
    event.preventDefault();
    event.stopPropagation();
  };
  return (
    <div class="list">
      {head && <div class="row head" style={style}>{head}</div>}
      <div class="scroll" ref={box} role="listbox" aria-label={label} tabIndex={rows.length ? -1 : 0}>
        <div style={{ height: `${rows.length * ROW}px`, position: "relative" }}>
          {rows.slice(first, last).map((row, k) => (
            <div
              key={first + k}
              class={`row${onSelect ? " link" : ""}${isCurrent?.(row) ? " current" : ""}`}
              role="option"
              aria-selected={isCurrent?.(row) ?? false}
              tabIndex={onSelect ? 0 : -1}
              style={{ ...style, top: `${(first + k) * ROW}px` }}
              onClick={() => onSelect?.(row)}
              onKeyDown={(event) => onKey(event, row)}
            >
              {draw(row, first + k)}
            </div>
          ))}
        </div>
      </div>
    </div>
  );
}

/** A canvas that is drawn again when its size or its inputs change. */
export function Chart({ draw, label, onClick, onMove, height }: {
  draw: (context: CanvasRenderingContext2D, width: number, height: number) => void;
  label: string;
  onClick?: (x: number, width: number) => void;
  onMove?: (x: number | null, width: number) => void;
  height?: number;
}) {
  const ref = useRef<HTMLCanvasElement>(null);
  const [, setSize] = useState(0);
  useEffect(() => {
    const observer = new ResizeObserver(() => setSize((count) => count + 1));
    observer.observe(ref.current!);
    return () => observer.disconnect();
  }, []);
  useEffect(() => {
    const canvas = ref.current!;
    const ratio = window.devicePixelRatio || 1;
    const { clientWidth: w, clientHeight: h } = canvas;
    canvas.width = Math.round(w * ratio);
    canvas.height = Math.round(h * ratio);
    const context = canvas.getContext("2d")!;
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.font = '11px "Inter", "Segoe UI", system-ui, sans-serif';
    context.textBaseline = "middle";
    draw(context, w, h);
  });
  const at = (event: MouseEvent) => event.clientX - ref.current!.getBoundingClientRect().left;
  return (
    <canvas
      ref={ref} class="chart" role="img" aria-label={label} style={height ? { height: `${height}px` } : {}}
      onClick={(event) => onClick?.(at(event), ref.current!.clientWidth)}
      onMouseMove={(event) => onMove?.(at(event), ref.current!.clientWidth)}
      onMouseLeave={() => onMove?.(null, ref.current!.clientWidth)}
    />
  );
}
