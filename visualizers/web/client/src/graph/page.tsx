/** Two models side by side: one list of rows, drawn on both sides, with what pairs them between. */
import { signal, useSignalEffect } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { shared } from "../api";
import { Badge } from "../bar";
import { copy } from "../path";
import { onKeys } from "../keys";
import { count, spans } from "../numbers";
import { go, overview, place } from "../state";
import { word } from "../words";
import { follow } from "./flow";
import { letGo, match, redo, Review, Tray, undo, unmatch } from "./hand";
import { between, indexOf, type Item } from "./items";
import { Minimap } from "./minimap";
import { PanelView } from "./panel";
import { Row } from "./row";
import { layout, loading, panel, select, toggle } from "./store";
import { focusSearch, Toolbar } from "./toolbar";
import { closeUnmatched, openUnmatched, UnmatchedList } from "./unmatched";

const view = signal({ top: 0, height: 600 });
const MARGIN = 200;

export function GraphPage() {
  return (
    <main class="graph">
      <Toolbar />
      <Tray />
      <div class={`progress${loading.value ? " busy" : ""}`} />
      <div class="work">
        <Minimap view={view.value} />
        <Models />
      </div>
      <PanelView />
      <Review />
      <UnmatchedList />
    </main>
  );
}

function Models() {
  const scroller = useRef<HTMLDivElement>(null);
  useEffect(() => watch(scroller.current!), []);
  useEffect(() => onKeys(keysOf(scroller.current!)), []);
  // What was selected elsewhere (source, search, link) comes into view.
  useSignalEffect(() => {
    const { node } = place.value;
    const item = layout.value.items[indexOf(layout.value, node)];
    if (item && scroller.current && lastShown !== node) {
      lastShown = node;
      showItem(scroller.current, item);
    }
  });
  const { top, height } = view.value;
  const shown = between(layout.value, top - MARGIN, top + height + MARGIN);
  const chosen = layout.value.items[indexOf(layout.value, place.value.node)];
  const found = overview.value!;
  return (
    <div class="models">
      <div class="heads">
        <ModelHead side="c" ranks={found.candidate.ranks} unmatched={found.coverage.unmatched_candidate} />
        <span />
        <ModelHead side="r" ranks={found.reference.ranks} unmatched={found.coverage.unmatched_reference} />
      </div>
      <div class="scroller" ref={scroller} tabIndex={0} role="tree" aria-label={word("graph")}>
        <div class="canvas" ref={(e) => void (e && e.style.setProperty("height", `${layout.value.height + 24}px`))}>
          {shown.map((item) => (
            <Row key={item.key} item={item} selected={item === chosen} />
          ))}
        </div>
      </div>
    </div>
  );
}

let lastShown = "";

function ModelHead({ side, ranks, unmatched }: { side: "c" | "r"; ranks: number[]; unmatched: number }) {
  return (
    <div class="head">
      <Badge side={side} /> {word(side === "c" ? "candidate" : "reference")}
      <span class="quiet">
        {word("rank")} {spans(ranks)}
      </span>
      <span class="grow" />
      {unmatched > 0 && (
        <button type="button" class="link quiet" onClick={() => void (shared ? go({ verdicts: "unmatched" }) : openUnmatched())}>
          {count(unmatched)} {word("unmatched")}
        </button>
      )}
    </div>
  );
}

function watch(scroller: HTMLDivElement): () => void {
  const update = () => {
    view.value = { top: scroller.scrollTop, height: scroller.clientHeight };
  };
  const observer = new ResizeObserver(update);
  observer.observe(scroller);
  scroller.addEventListener("scroll", update, { passive: true });
  update();
  return () => {
    observer.disconnect();
    scroller.removeEventListener("scroll", update);
  };
}

function showItem(scroller: HTMLElement, item: Item): void {
  if (item.top >= scroller.scrollTop && item.top + item.height <= scroller.scrollTop + scroller.clientHeight) return;
  scroller.scrollTop = Math.max(0, item.top - scroller.clientHeight / 3);
}

/** Scrolls to a share of the whole; the minimap asks for it. */
export function scrollTo(part: number): void {
  const scroller = document.querySelector<HTMLElement>(".scroller");
  if (scroller) scroller.scrollTop = part * scroller.scrollHeight - scroller.clientHeight / 2;
}

function keysOf(scroller: HTMLElement): Record<string, () => void> {
  const at = () => indexOf(layout.peek(), place.peek().node);
  const move = (by: number) => () => {
    const { items } = layout.peek();
    const next = items[Math.min(items.length - 1, Math.max(0, at() + by))];
    if (!next) return;
    if (next.kind === "fold") return toggle(next);
    go({ node: `${next.c[0]?.id ?? -1}:${next.r[0]?.id ?? -1}` }, "replace");
    showItem(scroller, next);
  };
  return {
    ArrowDown: move(1),
    ArrowUp: move(-1),
    ArrowRight: () => {
      const item = layout.peek().items[at()];
      if (item && item.kind !== "pair" && !item.open) toggle(item);
    },
    ArrowLeft: () => {
      const { items } = layout.peek();
      const item = items[at()];
      if (!item) return;
      if (item.open) toggle(item);
      else if (item.parent >= 0) select(items[item.parent]!);
    },
    Enter: () => {
      const item = layout.peek().items[at()];
      if (item && item.kind !== "pair") toggle(item);
    },
    c: () => void copy(panel.peek()?.c?.path ?? panel.peek()?.r?.path ?? ""),
    "/": focusSearch,
    f: () => follow("after"),
    F: () => follow("before"),
    m: match,
    u: unmatch,
    z: undo,
    Z: redo,
    Escape: () => {
      letGo();
      closeUnmatched();
      go({ node: "" }, "replace");
    },
  };
}
