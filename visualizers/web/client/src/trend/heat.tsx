/** The heat map: every cell a colour, every state a mark that no down-sampling can lose. */
import { signal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { theme } from "../state";
import { ABSENT, EMPTY, NAN, NAN_MADE, NEG_INF, POS_INF, UNMEASURED, ZERO, type Picture } from "./api";
import { placed, ramp, type Placed } from "./colours";
import {
  about,
  cell,
  cellAt,
  room,
  scale,
  selectCell,
  set,
  shownPicture,
  pixelOf,
  siteName,
  type AxisName,
} from "./store";

/** Space for names at the left and for numbers below. */
export const LEFT = 230;
const FOOT = 20;

export const hovered = signal<{ column: number; row: number } | null>(null);
export const colouring = signal<Placed | null>(null);
export const brush = signal<[number, number] | null>(null);

export function Heat() {
  const canvas = useRef<HTMLCanvasElement>(null);
  const box = useRef<HTMLDivElement>(null);
  const found = shownPicture.value;
  const [width, height] = room.value;
  useEffect(() => {
    const observer = new ResizeObserver(() => {
      if (!box.current) return;
      const { clientWidth, clientHeight } = box.current;
      room.value = [Math.max(60, clientWidth - LEFT - 8), Math.max(60, clientHeight - FOOT)];
    });
    observer.observe(box.current!);
    return () => observer.disconnect();
  }, []);
  const values = [found, width, height, scale.value, theme.value, cell.value, hovered.value, brush.value] as const;
  useEffect(() => {
    if (!found || !canvas.current) return;
    colouring.value = placed(found, scale.value, brush.value);
    draw(canvas.current, found, colouring.value);
  }, [...values]);
  const at = (event: { clientX: number; clientY: number; currentTarget: EventTarget | null }) => {
    if (!found) return null;
    const rect = (event.currentTarget as HTMLElement).getBoundingClientRect();
    const column = Math.floor(((event.clientX - rect.left - LEFT) / width) * found.x.starts.length);
    const row = Math.floor(((event.clientY - rect.top) / height) * found.y.starts.length);
    const inside = column >= 0 && row >= 0 && column < found.x.starts.length && row < found.y.starts.length;
    return inside ? { column, row } : null;
  };
  return (
    <div
      class="heat"
      ref={box}
      role="grid"
      aria-label="heat map"
      tabIndex={0}
      onPointerMove={(event) => {
        hovered.value = at(event);
      }}
      onPointerLeave={() => {
        hovered.value = null;
      }}
      onPointerDown={(event) => startDrag(event, at)}
      onDblClick={() => set({ steps: "", rows: "" })}
    >
      <canvas ref={canvas} />
    </div>
  );
}

/** A click selects; a drag zooms into what it spans. */
function startDrag(event: PointerEvent, at: (e: PointerEvent) => { column: number; row: number } | null): void {
  const from = at(event);
  const found = shownPicture.value;
  if (!from || !found) return;
  const target = event.currentTarget as HTMLElement;
  const end = (up: PointerEvent) => {
    target.removeEventListener("pointerup", end);
    const to = at(up) ?? from;
    const moved = Math.abs(up.clientX - event.clientX) + Math.abs(up.clientY - event.clientY);
    if (moved < 8) selectCell(cellAt(found, to.column, to.row));
    else zoom(found, from, to);
  };
  target.addEventListener("pointerup", end);
}

function zoom(found: Picture, a: { column: number; row: number }, b: { column: number; row: number }): void {
  const change: Record<string, string> = {};
  for (const [axis, first, second] of [
    [found.x, Math.min(a.column, b.column), Math.max(a.column, b.column)],
    [found.y, Math.min(a.row, b.row), Math.max(a.row, b.row)],
  ] as const) {
    if (second - first < 2) continue;
    const last = axis.starts[second + 1];
    if (axis.name === "step") change["steps"] = `${axis.starts[first]}-${last === undefined ? axis.starts.at(-1) : last - 1}`;
    if (axis.name === "site") {
      const all = about.value!.sites.site.length;
      const scaleTo = axis.count / axis.starts.length;
      const offset = Number(/^\d+/.exec(new URLSearchParams(location.hash.split("?")[1]).get("rows") ?? "0")?.[0] ?? 0);
      change["rows"] = `${offset + Math.floor(first * scaleTo)}-${Math.min(all, offset + Math.ceil((second + 1) * scaleTo) - 1)}`;
    }
  }
  if (Object.keys(change).length) set(change);
}

function draw(canvas: HTMLCanvasElement, found: Picture, colours: Placed): void {
  const [width, height] = room.peek();
  const ratio = devicePixelRatio || 1;
  canvas.width = (width + LEFT) * ratio;
  canvas.height = (height + FOOT) * ratio;
  canvas.style.setProperty("width", `${width + LEFT}px`);
  canvas.style.setProperty("height", `${height + FOOT}px`);
  const context = canvas.getContext("2d")!;
  context.scale(ratio, ratio);
  const style = getComputedStyle(document.documentElement);
  const ink = (name: string) => style.getPropertyValue(name).trim();
  drawCells(context, found, colours, width, height);
  drawStates(context, found, width, height, ink);
  drawNames(context, found, width, height, ink);
  drawSelection(context, found, width, height, ink);
}

function drawCells(context: CanvasRenderingContext2D, found: Picture, colours: Placed, width: number, height: number): void {
  const [columns, rows] = [found.x.starts.length, found.y.starts.length];
  const table = ramp(scale.peek(), theme.peek());
  const image = new ImageData(columns, rows);
  const pixels = new Uint32Array(image.data.buffer);
  for (let i = 0; i < pixels.length; i++) pixels[i] = colours.places[i]! < 0 ? 0 : table[colours.places[i]!]!;
  const source = new OffscreenCanvas(columns, rows);
  source.getContext("2d")!.putImageData(image, 0, 0);
  context.imageSmoothingEnabled = false;
  context.drawImage(source, LEFT, 0, width, height);
}

/** Draws what has no place on the scale; the states of most concern last, and never smaller than can be seen. */
function drawStates(
  context: CanvasRenderingContext2D,
  found: Picture,
  width: number,
  height: number,
  ink: (name: string) => string,
): void {
  const [columns, rows] = [found.x.starts.length, found.y.starts.length];
  const [w, h] = [width / columns, height / rows];
  const hatch = hatching(context, ink("--line2"));
  const marked: number[][] = [[], [], [], [], [], [], [], [], []];
  found.states.forEach((state, i) => {
    if (state !== 4) marked[state]!.push(i);
  });
  for (const state of [ABSENT, UNMEASURED, EMPTY, ZERO, NAN, NEG_INF, POS_INF, NAN_MADE])
    for (const i of marked[state]!) {
      const x = LEFT + (i % columns) * w;
      const y = Math.floor(i / columns) * h;
      mark(context, state, x, y, w, h, { nan: ink("--nan"), ink: ink("--ink"), surface: ink("--surface"), hatch });
    }
}

interface Inks {
  nan: string;
  ink: string;
  surface: string;
  hatch: CanvasPattern | string;
}

function mark(c: CanvasRenderingContext2D, state: number, x: number, y: number, w: number, h: number, inks: Inks): void {
  const [cx, cy] = [x + w / 2, y + h / 2];
  if (state === ABSENT || state === UNMEASURED || state === EMPTY) {
    c.fillStyle = inks.hatch;
    c.globalAlpha = state === ABSENT ? 0.5 : 0.9;
    c.fillRect(x, y, w, h);
    c.globalAlpha = 1;
    return;
  }
  if (state === ZERO) {
    if (Math.min(w, h) < 7) return;
    c.strokeStyle = inks.ink;
    c.lineWidth = 1;
    c.beginPath();
    c.arc(cx, cy, 2.4, 0, 7);
    c.stroke();
    return;
  }
  const least = state === NAN ? 1 : 3;
  const [bw, bh] = [Math.max(w, least), Math.max(h, least)];
  c.fillStyle = inks.nan;
  c.globalAlpha = state === NAN ? 0.42 : 1;
  c.fillRect(cx - bw / 2, cy - bh / 2, bw, bh);
  c.globalAlpha = 1;
  if (Math.min(bw, bh) < 7) return;
  c.strokeStyle = c.fillStyle = state === NAN ? inks.nan : inks.surface;
  c.lineWidth = 1.4;
  c.beginPath();
  if (state >= NAN) {
    c.moveTo(cx - 2.6, cy - 2.6);
    c.lineTo(cx + 2.6, cy + 2.6);
    c.moveTo(cx + 2.6, cy - 2.6);
    c.lineTo(cx - 2.6, cy + 2.6);
    c.stroke();
    return;
  }
  const up = state === POS_INF ? 1 : -1;
  c.moveTo(cx - 3, cy + 2.4 * up);
  c.lineTo(cx + 3, cy + 2.4 * up);
  c.lineTo(cx, cy - 2.8 * up);
  c.fill();
}

function hatching(context: CanvasRenderingContext2D, colour: string): CanvasPattern | string {
  const tile = new OffscreenCanvas(6, 6);
  const c = tile.getContext("2d")!;
  c.strokeStyle = colour;
  c.lineWidth = 0.8;
  c.beginPath();
  c.moveTo(-1, 7);
  c.lineTo(7, -1);
  c.stroke();
  return context.createPattern(tile, "repeat") ?? colour;
}

function drawNames(
  c: CanvasRenderingContext2D,
  found: Picture,
  width: number,
  height: number,
  ink: (name: string) => string,
): void {
  c.font = `11px ${ink("--mono")}`;
  c.fillStyle = ink("--ink2");
  c.textBaseline = "middle";
  c.textAlign = "right";
  const rows = found.y.starts.length;
  const every = Math.ceil((rows * 13) / height);
  for (let row = 0; row < rows; row += every) {
    const y = Math.max(6, ((row + 0.5) * height) / rows);
    c.fillText(fit(c, nameOf(found.y.name, found.y.starts[row]!), LEFT - 16), LEFT - 8, y);
  }
  c.textAlign = "center";
  c.fillStyle = ink("--ink3");
  const columns = found.x.starts.length;
  const stride = Math.max(1, Math.ceil((columns * 46) / width));
  for (let column = 0; column < columns; column += stride)
    c.fillText(nameOf(found.x.name, found.x.starts[column]!), LEFT + ((column + 0.5) * width) / columns, height + 11);
}

/** The end of a path tells siblings apart: the head is cut. */
function fit(c: CanvasRenderingContext2D, text: string, room: number): string {
  if (c.measureText(text).width <= room) return text;
  let cut = text;
  while (cut && c.measureText(`\u2026${cut}`).width > room) cut = cut.slice(1);
  return `\u2026${cut}`;
}

export function nameOf(axis: AxisName, value: number): string {
  if (axis !== "site") return String(value);
  const { node, label } = siteName(value);
  const plain = label.replace(/^(forward|backward|update|reduce) (input|output|gradient|parameter|derived|state) /, "");
  return plain && plain !== "0" ? `${node} ${plain}` : node;
}

function drawSelection(
  c: CanvasRenderingContext2D,
  found: Picture,
  width: number,
  height: number,
  ink: (name: string) => string,
): void {
  const at = cell.peek();
  const [w, h] = [width / found.x.starts.length, height / found.y.starts.length];
  const outline = (column: number, row: number, colour: string, wide: number) => {
    c.strokeStyle = colour;
    c.lineWidth = wide;
    const [bw, bh] = [Math.max(w, 5), Math.max(h, 5)];
    c.strokeRect(LEFT + (column + 0.5) * w - bw / 2, (row + 0.5) * h - bh / 2, bw, bh);
  };
  const over = hovered.peek();
  if (over) outline(over.column, over.row, ink("--ink3"), 1);
  if (!at) return;
  const column = pixelOf(found.x.starts, at[found.x.name], found.x.name);
  const row = pixelOf(found.y.starts, at[found.y.name], found.y.name);
  if (column < 0 || row < 0) return;
  c.setLineDash([2, 3]);
  c.strokeStyle = ink("--ink3");
  c.lineWidth = 1;
  c.beginPath();
  c.moveTo(LEFT, (row + 0.5) * h);
  c.lineTo(LEFT + (column + 0.5) * w, (row + 0.5) * h);
  c.lineTo(LEFT + (column + 0.5) * w, height);
  c.stroke();
  c.setLineDash([]);
  outline(column, row, ink("--ink"), 2);
}
