/** From opened containers to what is drawn: rows with a place, and the boxes around them. Both sides share the rows. */
import type { NodeData, RowData } from "../api";

/** Heights in pixels of a row, of a container's head, and the space below a container. */
export const ROW = 24;
export const HEAD = 26;
export const GAP = 5;
/** How far a level is indented. */
export const INDENT = 16;

/** How many like siblings that need no look make a fold. */
const FOLD = 4;
/** The worst severity that a fold hides: inherited, normal, equal need no look. */
const CALM = [2, 3, 4];

export interface Item {
  key: string;
  /** "pair": nodes that are one row; "container": its head; "fold": a run of like rows. */
  kind: "pair" | "container" | "fold";
  c: NodeData[];
  r: NodeData[];
  depth: number;
  top: number;
  height: number;
  /** For a container: where its box ends. */
  bottom: number;
  open: boolean;
  /** Index of the container's item; -1 at the top. */
  parent: number;
  folded?: RowData[];
}

export interface Layout {
  items: Item[];
  height: number;
  /** Where each node is among the items, by its number; what is folded is nowhere. */
  at: { c: Map<number, number>; r: Map<number, number> };
}

/** Gives the item of a selected pair, "12:14"; -1 when it is not drawn. */
export function indexOf({ at }: Layout, node: string): number {
  const [c = -1, r = -1] = node ? node.split(":").map(Number) : [];
  return at.c.get(c) ?? at.r.get(r) ?? -1;
}

/** Names a pair of containers as the server knows it. */
export function pairKey(row: RowData): string {
  return `${row.c[0]?.id ?? -1}:${row.r[0]?.id ?? -1}`;
}

/** Lays out what is open. `rowsOf` gives the rows of a container, or undefined while they are on their way. */
export function layOut(
  rowsOf: (pair: string) => RowData[] | undefined,
  open: ReadonlySet<string>,
  selected: string,
): Layout {
  const items: Item[] = [];
  const end = place(rowsOf("0:0") ?? [], 0, 0, -1, "0:0");
  const at = { c: new Map<number, number>(), r: new Map<number, number>() };
  items.forEach((item, index) => {
    if (item.kind === "fold") return;
    for (const node of item.c) at.c.set(node.id, index);
    for (const node of item.r) at.r.set(node.id, index);
  });
  return { items, height: end, at };

  function place(rows: RowData[], top: number, depth: number, parent: number, owner: string): number {
    let y = top;
    for (const group of folds(rows, owner)) y = Array.isArray(group) ? fold(group, y, depth, parent) : one(group, y, depth, parent);
    return y;
  }

  function folds(rows: RowData[], owner: string): (RowData | RowData[])[] {
    const found: (RowData | RowData[])[] = [];
    for (let i = 0; i < rows.length; ) {
      let j = i;
      while (j < rows.length && likes(rows[i]!, rows[j]!)) j++;
      const run = rows.slice(i, Math.max(j, i + 1));
      const key = foldKey(run);
      if (run.length >= FOLD && !open.has(key) && !(owner === "0:0")) found.push(run);
      else found.push(...run);
      i += run.length;
    }
    return found;
  }

  function likes(first: RowData, row: RowData): boolean {
    const [a, b] = [first.c[0], row.c[0]];
    if (!a || !b || first.r.length !== 1 || row.r.length !== 1 || row.c.length !== 1) return false;
    const key = pairKey(row);
    if (a.class !== b.class || a.leaf || b.leaf || open.has(key) || key === selected) return false;
    return CALM.includes(b.worst) && CALM.includes(row.r[0]!.worst) && !b.counts[5] && !b.counts[6];
  }

  function fold(run: RowData[], y: number, depth: number, parent: number): number {
    const c = run.map((row) => row.c[0]!);
    const r = run.map((row) => row.r[0]!);
    items.push({ key: foldKey(run), kind: "fold", c, r, depth, top: y, height: ROW, bottom: y + ROW, open: false, parent, folded: run });
    return y + ROW;
  }

  function one(row: RowData, y: number, depth: number, parent: number): number {
    const key = pairKey(row);
    const leaf = [...row.c, ...row.r].every((node) => node.leaf);
    const container = !leaf && row.c.length <= 1 && row.r.length <= 1;
    const height = container ? HEAD : ROW * Math.max(row.c.length, row.r.length, 1);
    const isOpen = container && open.has(key);
    const item: Item = {
      key, kind: container ? "container" : "pair", c: row.c, r: row.r, depth, top: y, height,
      bottom: y + height, open: isOpen, parent,
    };
    const index = items.push(item) - 1;
    if (!isOpen) return y + height;
    item.bottom = place(rowsOf(key) ?? [], y + height, depth + 1, index, key) + GAP;
    return item.bottom;
  }
}

export function foldKey(run: RowData[]): string {
  return `f${run[0]!.c[0]?.id ?? 0}`;
}

/** Gives the items that touch a range of heights: rows inside it, and containers whose box reaches into it. */
export function between(layout: Layout, top: number, bottom: number): Item[] {
  const { items } = layout;
  let low = 0;
  let high = items.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (items[middle]!.top + items[middle]!.height < top) low = middle + 1;
    else high = middle;
  }
  const found: Item[] = [];
  for (let up = items[low]?.parent ?? items.at(-1)?.parent ?? -1; up >= 0; up = items[up]!.parent) found.unshift(items[up]!);
  for (let i = low; i < items.length && items[i]!.top <= bottom; i++) found.push(items[i]!);
  // A container that ended just above may still reach in with its lower edge.
  for (let i = low - 1; i >= 0 && i > low - 40; i--) {
    const item = items[i]!;
    if (item.kind === "container" && item.bottom >= top && !found.includes(item)) found.unshift(item);
  }
  return found;
}
