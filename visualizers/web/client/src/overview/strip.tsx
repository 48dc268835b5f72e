/** The whole model in one look: a column for each layer, forward above, backward below. */
import { signal } from "@preact/signals";
import type { Strip } from "../api";
import { ask } from "../api";
import { go, place } from "../state";
import { Glyph, verdictName, VERDICTS } from "../verdicts";
import { word } from "../words";

const WIDTH = 960;
const LABEL = 150;
const BAND = 20;
const ROW = 12;
const MOST_COLUMNS = 180;
const WIDEST = 104;

const said = signal<{ severity: number; text: string } | null>(null);

export function StripCard({ strip }: { strip: Strip }) {
  const lanes = strip.lanes.filter((lane) => lane.cells.length);
  if (!lanes.length) return null;
  const pool = Math.ceil(strip.columns.length / MOST_COLUMNS);
  const columns = Math.ceil(strip.columns.length / pool);
  const width = Math.min(WIDEST, (WIDTH - LABEL) / columns);
  let y = 4;
  const drawn = lanes.map((lane, number) => {
    const top = y;
    y += BAND + 3 + lane.rows.length * ROW + 6;
    const axis = number === 0 ? y + 8 : null;
    if (number === 0) y += 18;
    return <Lane key={lane.direction} {...{ strip, lane, top, pool, width, axis }} />;
  });
  const now = said.value;
  return (
    <>
      <h2>
        {word("allLayers")} <small>{word("stripHint")}</small>
      </h2>
      <div class="card strip">
        <svg viewBox={`0 0 ${WIDTH} ${y}`} role="img" aria-label={word("allLayers")}>
          <defs>
            <pattern id="hatch" width="5" height="5" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">
              <rect class="hatch-ground" width="5" height="5" />
              <path class="hatch-line" d="M0 0v5" />
            </pattern>
            <pattern id="dots" width="4" height="4" patternUnits="userSpaceOnUse">
              <rect class="dots-ground" width="4" height="4" />
              <circle class="dots-dot" cx="2" cy="2" r="0.9" />
            </pattern>
          </defs>
          {drawn}
        </svg>
        <footer>
          <span class="readout" aria-live="polite">
            {now ? (
              <>
                <Glyph severity={now.severity} /> {word(verdictName(now.severity))} <code>{now.text}</code>
              </>
            ) : (
              strip.step !== null && `${word("atStep")} ${strip.step}`
            )}
          </span>
          <span class="legend">
            {VERDICTS.map((name, severity) => (
              <span key={name}>
                <Glyph severity={severity} /> {word(name)}
              </span>
            ))}
          </span>
        </footer>
      </div>
    </>
  );
}

interface LaneProps {
  strip: Strip;
  lane: Strip["lanes"][number];
  top: number;
  pool: number;
  width: number;
  axis: number | null;
}

function Lane({ strip, lane, top, pool, width, axis }: LaneProps) {
  const cells = pooled(lane.cells, pool);
  const rowsTop = top + BAND + 3;
  return (
    <g>
      <text class="lane" x="0" y={top + 14}>
        {word(lane.direction === "forward" ? "forward" : "backward")}{" "}
        {lane.direction === "forward" ? "\u2192" : "\u2190"}
      </text>
      {lane.rows.map((name, row) => (
        <text key={name} class="row" x={LABEL - 8} y={rowsTop + row * ROW + 9} text-anchor="end">
          {name.length > 22 ? `\u2026${name.slice(-21)}` : name}
        </text>
      ))}
      {cells.map(([row, column, severity, node]) => (
        <Cell
          key={`${row}:${column}`}
          x={LABEL + column * width}
          y={row < 0 ? top : rowsTop + row * ROW}
          width={width}
          height={row < 0 ? BAND : ROW}
          severity={severity}
          node={node}
          text={cellName(strip, lane, row, column * pool)}
          step={strip.step}
        />
      ))}
      {axis !== null && <Axis strip={strip} cells={cells} pool={pool} width={width} y={axis} />}
    </g>
  );
}

function cellName(strip: Strip, lane: Strip["lanes"][number], row: number, column: number): string {
  const layer = strip.columns[column] ?? "";
  return row < 0 || lane.rows[row] === "(layer)" ? layer : `${layer}.${lane.rows[row]}`;
}

type CellData = [number, number, number, number];

/** Puts several columns into one where there are too many; the worst shows. */
function pooled(cells: CellData[], pool: number): CellData[] {
  if (pool === 1) return cells;
  const found = new Map<string, CellData>();
  for (const [row, column, severity, node] of cells) {
    const at = Math.floor(column / pool);
    const known = found.get(`${row}:${at}`);
    if (!known || severity < known[2]) found.set(`${row}:${at}`, [row, at, severity, node]);
  }
  return [...found.values()];
}

interface CellProps {
  x: number;
  y: number;
  width: number;
  height: number;
  severity: number;
  node: number;
  text: string;
  step: number | null;
}

function Cell({ x, y, width, height, severity, node, text, step }: CellProps) {
  const cx = x + width / 2;
  const cy = y + height / 2;
  const name = verdictName(severity);
  return (
    <g
      class="cell"
      onPointerEnter={() => {
        said.value = { severity, text };
      }}
      onClick={() => void openNode(node, step)}
    >
      <rect class={`cell-${name}`} x={x + 0.5} y={y + 0.5} width={Math.max(1.5, width - 1)} height={height - 1} rx="1" />
      {name === "introduced" && <path class="on" d={`M${cx} ${cy - 3.6}l3.6 3.6-3.6 3.6-3.6-3.6z`} />}
      {name === "suspect" && <path class="on dark" d={`M${cx} ${cy - 3.2}l3.4 6h-6.8z`} />}
    </g>
  );
}

async function openNode(node: number, step: number | null): Promise<void> {
  const way = await ask<{ way: [number, number][]; pair: [number, number] }>("way", { side: "c", node });
  const open = way.way.map(([c, r]) => `${c}:${r}`);
  go({
    page: "graph",
    node: way.pair.join(":"),
    open,
    ...(step === null ? {} : { step: String(step) }),
    ...(place.value.rank ? {} : { rank: "0" }),
  });
}

function Axis({ strip, cells, pool, width, y }: { strip: Strip; cells: CellData[]; pool: number; width: number; y: number }) {
  const guilty = new Set(cells.filter(([row, , severity]) => row < 0 && severity === 0).map(([, column]) => column));
  const layers = strip.columns.filter(isLayer).length;
  const stride = [1, 2, 4, 5, 8, 10, 20, 50, 100].find((s) => (s * width) / pool >= 24 || s >= layers) ?? 100;
  const taken: [number, number][] = [];
  const labels: { x: number; text: string; bad: boolean }[] = [];
  const order = strip.columns
    .map((name, column) => ({ name, column, bad: guilty.has(Math.floor(column / pool)) }))
    .sort((a, b) => Number(b.bad) - Number(a.bad) || Number(isLayer(b.name)) - Number(isLayer(a.name)) || a.column - b.column);
  for (const { name, column, bad } of order) {
    const text = name.slice(name.lastIndexOf(".") + 1);
    if (isLayer(name) && Number(text) % stride && !bad) continue;
    const half = 3.2 * text.length + 3;
    const x = Math.min(LABEL + (Math.floor(column / pool) + 0.5) * width, WIDTH - half);
    if (taken.some(([low, high]) => x + half > low && x - half < high)) continue;
    taken.push([x - half, x + half]);
    labels.push({ x, text, bad });
  }
  return (
    <g>
      {labels.map(({ x, text, bad }) => (
        <text key={`${x}`} class={bad ? "axis bad" : "axis"} x={x} y={y} text-anchor="middle">
          {text}
        </text>
      ))}
    </g>
  );
}

function isLayer(name: string): boolean {
  return /^\d+$/.test(name.slice(name.lastIndexOf(".") + 1));
}
