/** Matching by hand: pick grey nodes on both sides, match, look at the rules, save them. */
import { computed, effect, signal } from "@preact/signals";
import { ask, post, shared, type HandState, type NodeData } from "../api";
import { Badge } from "../bar";
import { go, place, reload } from "../state";
import { word } from "../words";
import { panel } from "./store";

export const hand = signal<HandState | null>(null);
const picked = signal<{ c: NodeData[]; r: NodeData[] }>({ c: [], r: [] });
const alike = signal(true);
const combine = signal("");
const problem = signal("");
const busy = signal(false);
const reviewing = signal(false);
const saved = signal("");

effect(() => {
  if (place.value.page !== "graph" || shared || hand.peek()) return;
  void ask<HandState>("mapping").then((found) => {
    hand.value = found;
  });
});

/** Picks a node for matching, or lets go of it. */
export function pick(side: "c" | "r", node: NodeData): void {
  if (!hand.peek()?.possible) return;
  const now = picked.value[side];
  const without = now.filter((other) => other.id !== node.id);
  picked.value = { ...picked.value, [side]: without.length < now.length ? without : [...now, node] };
  problem.value = "";
}

export function isPicked(side: "c" | "r", id: number): boolean {
  return picked.value[side].some((node) => node.id === id);
}

export function letGo(): void {
  picked.value = { c: [], r: [] };
  problem.value = "";
  reviewing.value = false;
}

async function act(what: string, more: Record<string, unknown> = {}): Promise<void> {
  if (busy.value) return;
  busy.value = true;
  problem.value = "";
  saved.value = "";
  try {
    const { open, node } = place.peek();
    const found = await post<HandState>(what, { ...more, open, node, alike: alike.peek() });
    hand.value = found;
    picked.value = { c: [], r: [] };
    if (found.saved) saved.value = found.saved;
    else {
      go({ open: found.open ?? open, node: found.node ?? "" }, "replace");
      await reload();
    }
  } catch (error) {
    problem.value = error instanceof Error ? error.message : String(error);
  } finally {
    busy.value = false;
  }
}

export function match(): void {
  const { c, r } = picked.peek();
  if (c.length && r.length) void act("match", { c: c.map((n) => n.id), r: r.map((n) => n.id), combine: combine.peek() });
}

export function matchPair(c: number, r: number): Promise<void> {
  return act("match", { c: [c], r: [r] });
}

export function unmatch(): void {
  const { c, r } = panel.peek() ?? {};
  if (c && r) void act("unmatch", { c: [c.id], r: [r.id] });
}

export const undo = (): void => void act("undo");
export const redo = (): void => void act("redo");

const several = computed(() => picked.value.c.length > 1 || picked.value.r.length > 1);

export function HandTools() {
  const now = hand.value;
  if (!now?.possible || (!now.edits && !now.redo)) return null;
  return (
    <span class="hand-tools">
      <button type="button" disabled={!now.undo || busy.value} aria-label={word("undo")} title={word("undo")} onClick={undo}>
        {"\u21b6"}
      </button>
      <button type="button" disabled={!now.redo || busy.value} aria-label={word("redo")} title={word("redo")} onClick={redo}>
        {"\u21b7"}
      </button>
      <button type="button" class="wide" onClick={() => (reviewing.value = true)}>
        {word("mapping")} <b>{now.edits}</b>
      </button>
    </span>
  );
}

/** What is picked, and what to do with it. */
export function Tray() {
  const { c, r } = picked.value;
  if (!c.length && !r.length && (!problem.value || reviewing.value)) return null;
  return (
    <div class="tray" role="region" aria-label={word("match")}>
      <Picked side="c" nodes={c} />
      <span class="quiet">{c.length && r.length ? "\u2194" : word("pickOther")}</span>
      <Picked side="r" nodes={r} />
      <span class="grow" />
      {several.value && (
        <select aria-label={word("combineBy")} value={combine.value} onChange={(e) => (combine.value = e.currentTarget.value)}>
          <option value="">{word("concatLast")}</option>
          <option value="concat-first">{word("concatFirst")}</option>
        </select>
      )}
      <label>
        <input type="checkbox" checked={alike.value} onChange={(e) => (alike.value = e.currentTarget.checked)} />{" "}
        {word("allLikeIt")}
      </label>
      {problem.value && (
        <span class="trouble" aria-live="assertive">
          {problem.value}
        </span>
      )}
      <button type="button" class="do" disabled={!c.length || !r.length || busy.value} onClick={match}>
        {word("match")}
      </button>
      <button type="button" class="plain" aria-label={word("close")} onClick={letGo}>
        {"\u00d7"}
      </button>
    </div>
  );
}

function Picked({ side, nodes }: { side: "c" | "r"; nodes: NodeData[] }) {
  return (
    <span class="picks">
      <Badge side={side} />
      {nodes.map((node) => (
        <button key={node.id} type="button" class="chip" onClick={() => pick(side, node)}>
          {node.name} <small>{node.class}</small> {"\u00d7"}
        </button>
      ))}
    </span>
  );
}

/** The mapping file before and after, and where it goes. */
export function Review() {
  const now = hand.value;
  if (!reviewing.value || !now) return null;
  const lines = difference(now.before.split("\n"), now.after.split("\n"));
  return (
    <div class="veil" onClick={() => (reviewing.value = false)}>
      <dialog open class="review" aria-label={word("mapping")} onClick={(event) => event.stopPropagation()}>
        <h2>
          {word("mapping")} <small>{now.save_to || word("noPlace")}</small>
        </h2>
        <pre>
          {lines.map(({ sign, text }, i) => (
            <div key={i} class={sign === "+" ? "added" : sign === "-" ? "gone" : ""}>
              {sign} {text}
            </div>
          ))}
        </pre>
        {problem.value && <p class="trouble">{problem.value}</p>}
        <footer>
          {saved.value && <span class="quiet">{`${word("savedTo")} ${saved.value}`}</span>}
          <span class="grow" />
          <button type="button" class="wide" onClick={() => void navigator.clipboard.writeText(now.after)}>
            {word("copyText")}
          </button>
          <button type="button" class="do" disabled={!now.save_to || busy.value} onClick={() => void act("save")}>
            {word("save")}
          </button>
        </footer>
      </dialog>
    </div>
  );
}

/** Lines that were added or have gone, by the longest common run. */
export function difference(before: string[], after: string[]): { sign: "+" | "-" | " "; text: string }[] {
  const [n, m] = [before.length, after.length];
  const length = Array.from({ length: n + 1 }, () => new Uint32Array(m + 1));
  for (let i = n - 1; i >= 0; i--)
    for (let j = m - 1; j >= 0; j--)
      length[i]![j] = before[i] === after[j] ? length[i + 1]![j + 1]! + 1 : Math.max(length[i + 1]![j]!, length[i]![j + 1]!);
  const found: { sign: "+" | "-" | " "; text: string }[] = [];
  let [i, j] = [0, 0];
  while (i < n || j < m) {
    if (i < n && j < m && before[i] === after[j]) {
      found.push({ sign: " ", text: before[i]! });
      i++;
      j++;
    } else if (j < m && (i === n || length[i]![j + 1]! >= length[i + 1]![j]!)) found.push({ sign: "+", text: after[j++]! });
    else found.push({ sign: "-", text: before[i++]! });
  }
  return found;
}
