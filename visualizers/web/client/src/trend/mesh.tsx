/** The parallel mesh as a small map: each rank a cell at its place, the selected one in ink; a click selects it. */
import { word } from "../words";
import { about, cell, fixed, set, third } from "./store";

const SIZE = 14;

export function Mesh() {
  const ranks = about.value?.ranks ?? [];
  if (ranks.length < 2) return null;
  const names = Object.keys(ranks[0]!.mesh).filter((axis) => new Set(ranks.map((r) => r.mesh[axis] ?? 0)).size > 1);
  // Rows are the first axis that is inside a node (tp), columns all others as they come.
  const rowAxis = names.includes("tp") ? "tp" : names.length > 1 ? names[0]! : "";
  const columns = [...new Set(ranks.map((r) => columnOf(r.mesh, names, rowAxis)))];
  const wrap = rowAxis ? columns.length : 16;
  const chosen = third.value === "rank" && fixed.value !== "" ? Number(fixed.value) : (cell.value?.rank ?? -1);
  const place = (r: (typeof ranks)[number], i: number): [number, number] =>
    rowAxis ? [columns.indexOf(columnOf(r.mesh, names, rowAxis)), r.mesh[rowAxis] ?? 0] : [i % wrap, Math.floor(i / wrap)];
  const places = ranks.map(place);
  const [wide, high] = [Math.max(...places.map(([x]) => x)) + 1, Math.max(...places.map(([, y]) => y)) + 1];
  const size = Math.max(2.5, Math.min(SIZE, 280 / wide));
  return (
    <section>
      <h2>
        {word("mesh")} <small>{names.map((axis) => `${axis} ${new Set(ranks.map((r) => r.mesh[axis])).size}`).join(" \u00b7 ")}</small>
      </h2>
      <svg class="mesh" width={wide * size} height={high * size}>
        {ranks.map((r, i) => (
          <rect
            key={r.rank}
            class={r.rank === chosen ? "chosen" : ""}
            x={places[i]![0] * size + 0.5}
            y={places[i]![1] * size + 0.5}
            width={size - 1.5}
            height={size - 1.5}
            rx="1.5"
            onClick={() => pick(r.rank)}
          >
            <title>{`${word("rank")} ${r.rank} ${Object.entries(r.mesh).map(([a, at]) => `${a} ${at}`).join(" ")}`}</title>
          </rect>
        ))}
      </svg>
    </section>
  );
}

function columnOf(mesh: Record<string, number>, names: string[], rowAxis: string): string {
  return names
    .filter((axis) => axis !== rowAxis)
    .map((axis) => mesh[axis] ?? 0)
    .join(".");
}

function pick(rank: number): void {
  if (third.peek() === "rank") set({ at: fixed.peek() === String(rank) ? "" : String(rank) });
  else if (cell.peek()) set({ cell: `${cell.peek()!.step}.${rank}.${cell.peek()!.site}` });
}
