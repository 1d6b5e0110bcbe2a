/** Mouse, touch and keys of the timeline. */

import { headHeight, hit } from "../view/timeline";
import type { Store } from "./store";

const CLICK = 4; // pixels that a click may move
const PAN_SPEED = 1.1; // of the width, per second
const ZOOM_SPEED = 4; // by this factor per second

/** Connect the canvas of the timeline with the store. */
export function listen(canvas: HTMLCanvasElement, store: Store): void {
  pointers(canvas, store);
  canvas.addEventListener("wheel", (event) => onWheel(event, canvas, store), { passive: false });
  canvas.addEventListener("dblclick", () => store.selected && store.zoomToSelection());
  keys(store);
}

function onWheel(event: WheelEvent, canvas: HTMLCanvasElement, store: Store): void {
  event.preventDefault();
  const scale = event.deltaMode === 1 ? 16 : 1;
  const [dx, dy] = [event.deltaX * scale, event.deltaY * scale];
  const x = event.clientX - canvas.getBoundingClientRect().left;
  if (x < store.gutter || event.altKey) store.scrollTo(store.scroll + dy);
  else if (event.shiftKey || Math.abs(dx) > Math.abs(dy)) store.view.pan(dx || dy);
  else store.view.zoom(Math.exp(dy * (event.ctrlKey ? 0.01 : 0.0022)), x - store.gutter);
  store.viewChanged();
}

function pointers(canvas: HTMLCanvasElement, store: Store): void {
  const active = new Map<number, { x: number; y: number }>();
  let moved = 0;
  let rangeStart: number | null = null;
  const place = (event: PointerEvent) => {
    const box = canvas.getBoundingClientRect();
    return { x: event.clientX - box.left, y: event.clientY - box.top };
  };
  canvas.addEventListener("pointerdown", (event) => {
    if (event.button !== 0) return;
    canvas.setPointerCapture(event.pointerId);
    canvas.focus({ preventScroll: true });
    const at = place(event);
    active.set(event.pointerId, at);
    moved = 0;
    rangeStart = event.shiftKey ? store.view.time(at.x - store.gutter) : null;
  });
  canvas.addEventListener("pointermove", (event) => {
    const at = place(event);
    const before = active.get(event.pointerId);
    if (!before) {
      store.hover = at;
      return store.changed();
    }
    active.set(event.pointerId, at);
    moved += Math.abs(at.x - before.x) + Math.abs(at.y - before.y);
    if (rangeStart !== null) store.range = [rangeStart, store.view.time(at.x - store.gutter)];
    else if (active.size === 2) pinch(store, active, event.pointerId, before, at);
    else if (moved > CLICK) {
      store.view.pan(before.x - at.x);
      store.scrollTo(store.scroll + before.y - at.y);
    }
    if (store.hover) store.hover = at;
    store.viewChanged();
  });
  const end = (event: PointerEvent) => {
    const isClick = active.delete(event.pointerId) && moved <= CLICK && event.type === "pointerup";
    if (isClick && !active.size) click(store, place(event));
    if (rangeStart !== null) store.changed();
    rangeStart = null;
  };
  canvas.addEventListener("pointerup", end);
  canvas.addEventListener("pointercancel", end);
  canvas.addEventListener("pointerleave", () => {
    store.hover = null;
    store.changed();
  });
}

function pinch(
  store: Store, active: Map<number, { x: number; y: number }>, id: number,
  before: { x: number; y: number }, now: { x: number; y: number },
): void {
  const [other] = [...active].filter(([key]) => key !== id).map(([, at]) => at);
  const spread = (at: { x: number }) => Math.max(12, Math.abs(at.x - other.x));
  store.view.zoom(spread(before) / spread(now), (now.x + other.x) / 2 - store.gutter);
}

function click(store: Store, { x, y }: { x: number; y: number }): void {
  const scene = store.scene();
  if (y < headHeight(scene)) {
    store.range = null;
    selectOnPath(store, x, y);
    return store.changed();
  }
  const { item, event, isDetail } = hit(scene, x, y);
  if (item && event === null && (x < store.gutter || item.type !== "lane")) store.toggle(item.key);
  else if (item && event !== null) {
    store.range = null;
    if (isDetail) store.focusDetail(item.slot);
    store.select({ slot: item.slot, event });
  } else {
    store.range = null;
    store.select(null);
  }
}

/** Select the event of the critical path at a point of its row. */
function selectOnPath(store: Store, x: number, y: number): void {
  const shown = store.slots.flatMap((slot, index) => (slot.path ? [{ slot, index }] : []));
  const row = shown[Math.floor((y - 26) / 24)];
  if (y < 26 || !row || x < store.gutter) return;
  const time = store.view.time(x - store.gutter) - row.slot.shift;
  const segment = row.slot.path!.segments.find((part) => part.start <= time && time < part.end);
  if (segment) store.select({ slot: row.index, event: segment.event }, true);
}

function keys(store: Store): void {
  const held = new Set<string>();
  let last = 0;
  const tick = (now: number) => {
    const seconds = Math.min(0.05, (now - last) / 1000);
    last = now;
    const has = (key: string) => Number(held.has(key));
    const pan = has("d") - has("a");
    const zoom = has("s") - has("w");
    if (pan) store.view.pan(pan * PAN_SPEED * seconds * store.view.width);
    if (zoom) {
      const x = store.hover && store.hover.x > store.gutter ? store.hover.x - store.gutter : store.view.width / 2;
      store.view.zoom(ZOOM_SPEED ** (zoom * seconds * 1.5), x);
    }
    store.viewChanged();
    if (held.size) requestAnimationFrame(tick);
  };
  document.addEventListener("keydown", (event) => {
    const isTyping = event.target instanceof HTMLInputElement || event.target instanceof HTMLSelectElement;
    if (event.key === "Escape") {
      if (isTyping) (event.target as HTMLElement).blur();
      escape(store);
      return;
    }
    if (isTyping || event.ctrlKey || event.metaKey || event.altKey || !store.slots.length) return;
    const key = event.key.toLowerCase();
    if ("wasd".includes(key) && key.length === 1) {
      if (!held.size) {
        last = performance.now();
        requestAnimationFrame(tick);
      }
      held.add(key);
      return;
    }
    const isOnCanvas = event.target === document.body || event.target instanceof HTMLCanvasElement;
    const action = ACTIONS[event.key] ?? (isOnCanvas ? ARROWS[event.key] : undefined);
    if (!action) return;
    event.preventDefault();
    action(store);
  });
  document.addEventListener("keyup", (event) => held.delete(event.key.toLowerCase()));
  window.addEventListener("blur", () => held.clear());
}

function escape(store: Store): void {
  if (store.isHelpOpen) store.isHelpOpen = false;
  else if (store.range) store.range = null;
  else store.select(null);
  store.changed();
}

const ACTIONS: Readonly<Record<string, (store: Store) => void>> = {
  ",": (store) => store.follow(true),
  ".": (store) => store.follow(false),
  "[": (store) => store.moveStep(-1),
  "]": (store) => store.moveStep(1),
  f: (store) => store.zoomToSelection(),
  "0": (store) => store.showAll(),
  c: (store) => store.togglePath(),
  n: (store) => store.nextMatch(1),
  N: (store) => store.nextMatch(-1),
  "/": () => document.querySelector<HTMLInputElement>("#search")?.focus(),
  "?": (store) => {
    store.isHelpOpen = true;
    store.changed();
  },
};

const ARROWS: Readonly<Record<string, (store: Store) => void>> = {
  ArrowRight: (store) => store.move(1, 0),
  ArrowLeft: (store) => store.move(-1, 0),
  ArrowDown: (store) => store.move(0, 1),
  ArrowUp: (store) => store.move(0, -1),
};
