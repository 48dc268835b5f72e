/** The rows of opened containers, fetched when needed and kept for the selection. */
import { computed, effect, signal } from "@preact/signals";
import { ask, type Panel, type RowData } from "../api";
import { go, overview, place, problem, selection } from "../state";
import { layOut, type Item } from "./items";

type Rows = Record<string, RowData[]>;

/** How many containers one question is about. */
const MOST_ASKED = 300;

const known = signal<{ of: string; rows: Rows }>({ of: "", rows: {} });
export const loading = signal(false);
export const panel = signal<Panel | null>(null);
export const minimap = signal<[number[], number[]]>([[], []]);

const key = computed(() => JSON.stringify(selection.value));

export const opened = computed<ReadonlySet<string>>(() => new Set(["0:0", ...place.value.open]));

export const layout = computed(() => {
  const { rows } = known.value;
  return layOut((pair) => rows[pair], opened.value, place.value.node);
});

/** Fetches what is open and not yet here; keeps the old picture until the new one is whole. */
effect(() => {
  if (place.value.page !== "graph" || !overview.value) return;
  const of = key.value;
  const have = known.peek().of === of ? known.peek().rows : {};
  const missing = [...opened.value].filter((pair) => pair.includes(":") && !(pair in have));
  if (!missing.length) return;
  loading.value = true;
  const asked = chunks(missing).map((pairs) => ask<Rows>("rows", { ...selection.peek(), open: pairs.join(",") }));
  Promise.all(asked)
    .then((found) => {
      if (key.peek() !== of) return;
      const base = known.peek().of === of ? known.peek().rows : {};
      known.value = { of, rows: Object.assign({ ...base }, ...found) as Rows };
      loading.value = false;
    })
    .catch(fail);
});

function chunks(pairs: string[]): string[][] {
  const count = Math.ceil(pairs.length / MOST_ASKED);
  return Array.from({ length: count }, (_, i) => pairs.slice(i * MOST_ASKED, (i + 1) * MOST_ASKED));
}

effect(() => {
  if (place.value.page !== "graph" || !overview.value) return;
  const { node } = place.value;
  const query = selection.value;
  if (!node) {
    panel.value = null;
    return;
  }
  ask<Panel>("node", { ...query, node })
    .then((found) => {
      if (place.peek().node === node) panel.value = found;
    })
    .catch(fail);
});

let mapped = "";
effect(() => {
  if (place.value.page !== "graph" || !overview.value || mapped === key.value) return;
  mapped = key.value;
  ask<[number[], number[]]>("minimap", { ...selection.peek(), pixels: 600 })
    .then((found) => {
      minimap.value = found;
    })
    .catch(fail);
});

function fail(error: unknown): void {
  loading.value = false;
  problem.value = error instanceof Error ? error.message : String(error);
}

/** Opens or closes a container or a fold; it is not a step of "back". */
export function toggle(item: Item): void {
  const open = new Set(place.value.open);
  if (!open.delete(item.key)) open.add(item.key);
  go({ open: [...open] }, "replace");
}

export function select(item: Item, c?: number, r?: number): void {
  const first = c ?? item.c[0]?.id ?? -1;
  const second = r ?? item.r[0]?.id ?? -1;
  go({ node: `${first}:${second}` });
}

/** Opens all containers around a node, given by number or by path, and selects it. */
export async function reveal(side: "c" | "r", node: number | string): Promise<void> {
  const query: Record<string, string | number> = typeof node === "number" ? { side, node } : { side, path: node };
  const found = await ask<{ way: [number, number][]; pair: [number, number] }>("way", query);
  const open = new Set([...place.value.open, ...found.way.map(([c, r]) => `${c}:${r}`)]);
  // Folds around it open by themselves: the selected row is never folded.
  go({ page: "graph", node: found.pair.join(":"), open: [...open] });
}
