/** From numbers to colours: a scale of 256 steps that only finite values have a place on. */
import { NAN, PRESENT, ZERO, type Picture } from "./api";

export const SCALES = ["z", "log", "linear", "quantile"] as const;
export type Scale = (typeof SCALES)[number];

/** How far from normal still is on the scale of robust scores. */
const MOST_Z = 8;

/** Places of all cells on the scale, 0 to 255 (128 is the middle of z); -1 where a cell has none. */
export interface Placed {
  places: Int16Array;
  /** What the ends of the scale stand for. */
  low: number;
  high: number;
  /** Counts of cells along the scale, in 64 bins. */
  histogram: number[];
}

/** Gives each finite cell its place; scores are taken along each row, which is one site's or one rank's own past. */
export function placed(picture: Picture, scale: Scale, brush: [number, number] | null): Placed {
  const { values, states } = picture;
  const shown = scale === "z" ? scores(picture) : scale === "log" ? logarithms(values) : values;
  const finite: number[] = [];
  for (let i = 0; i < shown.length; i++) if (has(states[i]!) && Number.isFinite(shown[i])) finite.push(shown[i]!);
  finite.sort((a, b) => a - b);
  const end = (share: number) => finite[Math.min(finite.length - 1, Math.floor(share * finite.length))] ?? 0;
  let [low, high] = scale === "z" ? [-MOST_Z, MOST_Z] : [end(0.005), end(0.995)];
  if (brush) [low, high] = brush;
  const places = new Int16Array(shown.length).fill(-1);
  const histogram = new Array<number>(64).fill(0);
  const wide = high - low || 1;
  for (let i = 0; i < shown.length; i++) {
    const value = shown[i]!;
    if (!has(states[i]!) || !Number.isFinite(value)) continue;
    const at = scale === "quantile" ? rank(finite, value) / Math.max(1, finite.length - 1) : (value - low) / wide;
    const place = Math.max(0, Math.min(255, Math.round(at * 255)));
    places[i] = high === low && scale !== "z" ? 40 : place;
    histogram[Math.min(63, place >> 2)]! += 1;
  }
  return { places, low, high, histogram };
}

/** Cells with NaN among finite elements have a value, too; what is drawn over it says so. */
function has(state: number): boolean {
  return state === PRESENT || state === ZERO || (state > PRESENT && state <= NAN + 1);
}

function logarithms(values: Float32Array): Float32Array {
  return values.map((value) => Math.log10(Math.abs(value) || NaN));
}

/** Robust scores along each row: distance from the median in deviations that a few outliers do not move. */
export function scores(picture: Picture): Float32Array {
  const { values, states, x, y } = picture;
  const width = x.starts.length;
  const found = new Float32Array(values.length).fill(NaN);
  const positive = values.every((value, i) => states[i] !== PRESENT || value > 0);
  for (let row = 0; row < y.starts.length; row++) {
    const line: number[] = [];
    for (let i = row * width; i < (row + 1) * width; i++)
      if (states[i] === PRESENT) line.push(positive ? Math.log(values[i]!) : values[i]!);
    if (line.length < 4) continue;
    const middle = median(line);
    const spread = 1.4826 * median(line.map((value) => Math.abs(value - middle)));
    // What hardly moves would score every rounding: a floor of one per cent, or of the values themselves.
    const floor = positive ? 0.01 : 0.01 * Math.max(Math.abs(middle), 1e-30);
    const deviation = Math.max(spread, floor);
    for (let i = row * width; i < (row + 1) * width; i++)
      if (Number.isFinite(values[i])) found[i] = ((positive ? Math.log(values[i]!) : values[i]!) - middle) / deviation;
  }
  return found;
}

export function median(values: number[]): number {
  const sorted = [...values].sort((a, b) => a - b);
  const middle = sorted.length >> 1;
  return sorted.length % 2 ? sorted[middle]! : (sorted[middle - 1]! + sorted[middle]!) / 2;
}

function rank(sorted: number[], value: number): number {
  let low = 0;
  let high = sorted.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (sorted[middle]! < value) low = middle + 1;
    else high = middle;
  }
  return low;
}

type Rgb = [number, number, number];

const SEQUENTIAL: Record<"light" | "dark", Rgb[]> = {
  light: [[250, 247, 235], [190, 214, 205], [92, 158, 165], [32, 91, 122], [16, 38, 74]],
  dark: [[17, 26, 33], [24, 62, 82], [44, 122, 134], [132, 190, 176], [240, 238, 214]],
};
const DIVERGING: Record<"light" | "dark", Rgb[]> = {
  light: [[24, 62, 108], [96, 150, 190], [240, 240, 234], [222, 160, 86], [128, 62, 14]],
  dark: [[150, 200, 240], [52, 98, 138], [24, 29, 32], [142, 92, 34], [248, 186, 106]],
};

/** Gives 256 colours as 32-bit pixels (little-endian RGBA). */
export function ramp(scale: Scale, theme: "light" | "dark"): Uint32Array {
  const stops = (scale === "z" ? DIVERGING : SEQUENTIAL)[theme];
  const table = new Uint32Array(256);
  for (let i = 0; i < 256; i++) {
    let at = i / 255;
    // The middle of the scores is flattened, so that what is usual stays calm.
    if (scale === "z") at = 0.5 + Math.sign(at - 0.5) * 0.5 * Math.abs(2 * at - 1) ** 1.35;
    const segment = Math.min(stops.length - 2, Math.floor(at * (stops.length - 1)));
    const share = at * (stops.length - 1) - segment;
    const [from, to] = [stops[segment]!, stops[segment + 1]!];
    const mixed = from.map((value, c) => Math.round(value + (to[c]! - value) * share)) as Rgb;
    table[i] = (255 << 24) | (mixed[2] << 16) | (mixed[1] << 8) | mixed[0];
  }
  return table;
}
