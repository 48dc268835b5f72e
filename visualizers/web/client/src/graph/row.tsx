/** One row on both sides, and the line between them. */
import type { NodeData } from "../api";
import { count, epsilons } from "../numbers";
import { Ruler } from "../ruler";
import { Glyph, NOTHING, TELLING, verdictName } from "../verdicts";
import { word, wordOr } from "../words";
import { isPicked, pick } from "./hand";
import { INDENT, ROW, type Item } from "./items";
import { select, toggle } from "./store";

export function Row({ item, selected }: { item: Item; selected: boolean }) {
  return (
    <>
      <Side item={item} side="c" selected={selected} />
      <Between item={item} selected={selected} />
      <Side item={item} side="r" selected={selected} />
    </>
  );
}

function Side({ item, side, selected }: { item: Item; side: "c" | "r"; selected: boolean }) {
  const nodes = item[side];
  if (item.kind === "fold") return <Fold item={item} side={side} />;
  if (!nodes.length) return null;
  const each = item.height / nodes.length;
  return (
    <>
      {item.open && <Box item={item} side={side} worst={nodes[0]!.worst} />}
      {nodes.map((node, number) => (
        <NodeBox
          key={`${side}${node.id}`}
          {...{ item, side, node, selected }}
          top={item.top + number * each}
          height={item.kind === "container" ? item.height : each}
        />
      ))}
    </>
  );
}

/** The frame around an opened container. */
function Box({ item, side, worst }: { item: Item; side: "c" | "r"; worst: number }) {
  return (
    <div
      class={`frame side-${side} w-${verdictName(worst)}`}
      ref={(e) => void (e && put(e, item.top, item.bottom - item.top - 2, item.depth))}
    />
  );
}

interface NodeBoxProps {
  item: Item;
  side: "c" | "r";
  node: NodeData;
  selected: boolean;
  top: number;
  height: number;
}

function NodeBox({ item, side, node, selected, top, height }: NodeBoxProps) {
  const container = item.kind === "container";
  const alone = item[side === "c" ? "r" : "c"].length === 0;
  const moved = alone && node.partners.length > 0;
  const classes = [
    "node",
    `side-${side}`,
    container ? "container" : "leaf",
    `w-${verdictName(container ? node.worst : node.worst)}`,
    selected ? "selected" : "",
    isPicked(side, node.id) ? "picked" : "",
    alone && !moved ? "alone" : "",
  ];
  return (
    <div
      class={classes.filter(Boolean).join(" ")}
      ref={(e) => void (e && put(e, top, height - (container ? 0 : 2), item.depth))}
      role={side === "c" || alone ? "treeitem" : "presentation"}
      aria-level={item.depth + 1}
      aria-expanded={container ? item.open : undefined}
      aria-selected={selected}
      title={`${node.name} ${node.class}`}
      onClick={(event) => {
        if ((alone && !moved && node.kind === "module") || event.shiftKey) pick(side, node);
        if (!event.shiftKey) select(item, side === "c" ? node.id : undefined, side === "r" ? node.id : undefined);
      }}
      onDblClick={() => container && toggle(item)}
    >
      {container ? (
        <button
          type="button"
          class="fold"
          tabIndex={-1}
          aria-label={item.open ? word("close") : word("openInGraph")}
          onClick={(event) => {
            event.stopPropagation();
            toggle(item);
          }}
        >
          {item.open ? "\u25be" : "\u25b8"}
        </button>
      ) : (
        <span class="fold" />
      )}
      <Glyph severity={node.worst} />
      <span class="name">{node.name}</span>
      <span class="class">{node.class}</span>
      <span class="grow" />
      {moved && <span class="moved">{word("elsewhere")}</span>}
      {alone && !moved && <span class="moved">{word("unmatched")}</span>}
      {container ? <Chips node={node} /> : side === "c" && <OwnError node={node} />}
    </div>
  );
}

/** Counts of what asks for a look below a container, and of what it holds when nothing does. */
function Chips({ node }: { node: NodeData }) {
  const telling = TELLING.filter((severity) => (node.counts[severity] ?? 0) > 0);
  const shown = telling.length && telling[0]! < 2 ? telling : node.worst < NOTHING ? [node.worst, ...telling] : [];
  return (
    <span class="chips">
      {[...new Set(shown)].slice(0, 4).map((severity) => (
        <span key={severity}>
          <Glyph severity={severity} /> {count(node.counts[severity] ?? 0)}
        </span>
      ))}
    </span>
  );
}

function OwnError({ node }: { node: NodeData }) {
  const { error } = node;
  if (!error || node.worst >= 5) return node.worst === 5 ? <span class="moved">{word("inconclusive")}</span> : null;
  return (
    <>
      <Ruler eps={error.eps} bound={error.bound} severity={node.worst} />
      <span class={`eps${node.worst < 2 ? " bad" : ""}`}>
        {error.eps === 0 ? word("equal") : error.eps === null ? "" : `${epsilons(error.eps)} \u03b5`}
      </span>
    </>
  );
}

function Fold({ item, side }: { item: Item; side: "c" | "r" }) {
  const nodes = item[side];
  const [first, last] = [nodes[0]!, nodes.at(-1)!];
  const worst = Math.min(...nodes.map((node) => node.worst));
  return (
    <div
      class={`node side-${side} leaf folded w-${verdictName(worst)}`}
      ref={(e) => void (e && put(e, item.top, item.height - 2, item.depth))}
      role={side === "c" ? "treeitem" : "presentation"}
      aria-expanded={false}
      onClick={() => toggle(item)}
    >
      <span class="fold">{"\u25b8"}</span>
      <Glyph severity={worst} />
      <span class="name">
        {first.name} {"\u2026"} {last.name}
      </span>
      <span class="class">
        {nodes.length} {"\u00d7"} {first.class}
      </span>
      <span class="grow" />
      {side === "c" && (
        <svg class="tiny" width={Math.min(120, nodes.length * 5)} height="10" aria-hidden="true">
          {nodes.slice(0, 24).map((node, number) => (
            <rect key={node.id} class={`cell-${verdictName(node.worst)}`} x={number * 5} width="4" height="10" />
          ))}
        </svg>
      )}
    </div>
  );
}

/** The line that pairs both sides, with the reason. */
function Between({ item, selected }: { item: Item; selected: boolean }) {
  if (!item.c.length || !item.r.length) return null;
  const many = item.kind === "pair" && (item.c.length > 1 || item.r.length > 1);
  const reason = item.c[0]?.by ?? item.r[0]?.by ?? "";
  return (
    <div
      class={`between${selected ? " selected" : ""}`}
      ref={(e) => {
        if (!e) return;
        e.style.setProperty("top", `${item.top}px`);
        e.style.setProperty("height", `${item.height}px`);
      }}
    >
      {many ? <Fan item={item} /> : <span class="thread" />}
      {reason && item.kind !== "fold" && (
        <span class="reason">
          {wordOr(reason)}
          {many && ` · ${item.c.length}:${item.r.length}`}
        </span>
      )}
    </div>
  );
}

function Fan({ item }: { item: Item }) {
  const middle = (nodes: NodeData[], number: number) => ((number + 0.5) * item.height) / nodes.length;
  const lines = item.c.flatMap((_, i) => item.r.map((__, j) => [middle(item.c, i), middle(item.r, j)] as const));
  return (
    <svg class="fan" viewBox={`0 0 100 ${item.height}`} preserveAspectRatio="none" aria-hidden="true">
      {lines.map(([from, to]) => (
        <path key={`${from}:${to}`} d={`M0 ${from}C40 ${from} 60 ${to} 100 ${to}`} />
      ))}
    </svg>
  );
}

function put(element: HTMLElement, top: number, height: number, depth: number): void {
  element.style.setProperty("top", `${top}px`);
  element.style.setProperty("height", `${Math.max(height, ROW - 2)}px`);
  element.style.setProperty("--indent", `${depth * INDENT}px`);
}
