/** What the trend page looks at, and what it fetched for it. */
import { computed, effect, signal } from "@preact/signals";
import { ask } from "../api";
import { go, pages, place, problem } from "../state";
import { NAN, NAN_MADE, picture, type About, type AnomalyData, type ForkData, type Picture, type ScanData } from "./api";
import type { Scale } from "./colours";

export type AxisName = "step" | "rank" | "site";
export const PAIRS: [AxisName, AxisName][] = [
  ["step", "site"],
  ["rank", "site"],
  ["step", "rank"],
];

export const about = signal<About | null>(null);
const fetched = signal<Picture | null>(null);
export const anomalyList = signal<{ total: number; anomalies: AnomalyData[] } | null>(null);
export const forkList = signal<{ total: number; forks: ForkData[] } | null>(null);
export const scan = signal<ScanData | null>(null);
export const waiting = signal(false);
/** Pixels that the heat map has. */
export const room = signal<[number, number]>([900, 420]);

const get = (key: string, otherwise: string) => place.value.trend[key] ?? otherwise;

/** Sets parts of the view; an empty text goes back to the default. */
export function set(change: Record<string, string>, how: "push" | "replace" = "push"): void {
  const trend = { ...place.value.trend };
  for (const [key, value] of Object.entries(change)) {
    if (value === "") delete trend[key];
    else trend[key] = value;
  }
  go({ page: "trend", trend }, how);
}

export const run = computed(() => get("run", "0"));
export const kind = computed(() => {
  const present = about.value?.kinds.map((k) => k.name) ?? [];
  const wanted = get("kind", "");
  if (present.includes(wanted)) return wanted;
  return ["activation out", "gradient before reduction", "gradient consumed"].find((k) => present.includes(k)) ?? present[0] ?? "";
});
export const statistic = computed(() => get("stat", "norm"));
export const axes = computed<[AxisName, AxisName]>(() => {
  const found = PAIRS.find((pair) => pair.join("-") === get("axes", ""));
  return found ?? (about.value && about.value.steps.length < 3 && about.value.ranks.length > 2 ? PAIRS[1]! : PAIRS[0]!);
});
export const third = computed<AxisName>(() => (["step", "rank", "site"] as const).find((a) => !axes.value.includes(a))!);
/** The value of the third axis; "" pools over all of it. */
export const fixed = computed(() => get("at", ""));
export const scale = computed<Scale>(() => get("scale", "z") as Scale);
/** The selected cell: step, rank, site; -1 where pooled. */
export const cell = computed<Record<AxisName, number> | null>(() => {
  const parts = get("cell", "").split(".").map(Number);
  return parts.length === 3 && parts.every((n) => !Number.isNaN(n))
    ? { step: parts[0]!, rank: parts[1]!, site: parts[2]! }
    : null;
});
/** Zoomed range of steps "10-20", and of places on the site axis. */
export const steps = computed(() => get("steps", ""));
export const rows = computed(() => get("rows", ""));

/** Sites of the chosen kind in order of execution, as positions in the catalogue. */
export const positions = computed<number[]>(() => {
  const found = about.value;
  if (!found) return [];
  const number = found.kinds.find((k) => k.name === kind.value)?.number;
  const text = get("find", "").toLowerCase();
  const kept: number[] = [];
  found.sites.site.forEach((_, at) => {
    if (found.sites.kind[at] !== number) return;
    if (text && !found.nodes[found.sites.node[at]!]!.toLowerCase().includes(text)) return;
    kept.push(at);
  });
  const range = /^(\d+)-(\d+)$/.exec(rows.value);
  return range ? kept.slice(Number(range[1]), Number(range[2]) + 1) : kept;
});

/** Where in the catalogue each site stands. */
export const positionOf = computed(() => new Map(about.value?.sites.site.map((site, at) => [site, at]) ?? []));

export function siteName(site: number): { node: string; label: string; class: string } {
  const at = positionOf.value.get(site);
  const found = about.value;
  if (at === undefined || !found) return { node: "", label: "", class: "" };
  return {
    node: found.nodes[found.sites.node[at]!]!,
    label: found.labels[found.sites.label[at]!]!,
    class: found.classes[found.sites.class[at]!]!,
  };
}

/** The query of the picture, without its size. */
const asked = computed(() => {
  const query: Record<string, string> = {
    run: run.value,
    x: axes.value[0],
    y: axes.value[1],
    statistic: statistic.value,
    steps: steps.value,
  };
  const narrowed = place.value.trend["find"] || rows.value;
  if (third.value === "site" && fixed.value) query["fixed"] = fixed.value;
  else if (narrowed) query["sites"] = positions.value.map((at) => about.value!.sites.site[at]).join(",");
  else query["kind"] = kind.value;
  if (third.value !== "site" && fixed.value) query["fixed"] = fixed.value;
  return query;
});

effect(() => {
  if (place.value.page !== "trend" || !pages.value) return;
  const wanted = run.value;
  void ask<About>("trend", { run: wanted }).then(
    (found) => {
      about.value = found;
    },
    fail,
  );
  void ask<{ total: number; anomalies: AnomalyData[] }>("anomalies", { run: wanted }).then((found) => {
    anomalyList.value = found;
  }, fail);
});

effect(() => {
  if (place.value.page !== "trend" || !about.value || about.value.runs.length < 2 || forkList.peek()) return;
  // Two runs of different models have nothing to part from; the list stays away.
  void ask<{ total: number; forks: ForkData[] }>("forks").then(
    (found) => {
      forkList.value = found;
    },
    () => undefined,
  );
});

effect(() => {
  if (place.value.page !== "trend" || !about.value) return;
  void ask<ScanData>("scan", { run: run.value }).then((found) => {
    scan.value = found;
  }, fail);
});

/** Which cells made a NaN or an infinity of finite operands, as the scan says. */
export const made = computed(() =>
  (scan.value?.findings ?? []).filter((finding) => finding.kind === "non-finite" && finding.number >= 0),
);

/** The picture; where the scan says that a NaN arose, its cell says so, too. */
export const shownPicture = computed<Picture | null>(() => {
  const found = fetched.value;
  if (!found || !made.value.length) return found;
  const states = found.states.slice();
  for (const origin of made.value) {
    const at = { step: origin.step, rank: origin.rank, site: origin.number };
    const held = fixed.value;
    if (held && Number(held) !== at[third.value]) continue;
    const column = pixelOf(found.x.starts, at[found.x.name], found.x.name);
    const row = pixelOf(found.y.starts, at[found.y.name], found.y.name);
    const i = row * found.x.starts.length + column;
    if (column >= 0 && row >= 0 && states[i] === NAN) states[i] = NAN_MADE;
  }
  return { ...found, states };
});

let last = "";
effect(() => {
  if (place.value.page !== "trend" || !about.value) return;
  const [width, height] = room.value;
  const query = { ...asked.value, width: Math.max(20, Math.floor(width)), height: Math.max(20, Math.floor(height)) };
  const key = JSON.stringify(query);
  if (key === last) return;
  last = key;
  waiting.value = true;
  picture(query).then((found) => {
    if (last !== key) return;
    fetched.value = found;
    waiting.value = false;
  }, fail);
});

function fail(error: unknown): void {
  waiting.value = false;
  problem.value = error instanceof Error ? error.message : String(error);
}

/** Gives the cell under a pixel of the picture. */
export function cellAt(found: Picture, column: number, row: number): Record<AxisName, number> {
  const cell = { step: -1, rank: -1, site: -1 };
  cell[found.x.name] = found.x.starts[column] ?? -1;
  cell[found.y.name] = found.y.starts[row] ?? -1;
  if (fixed.value) cell[third.value] = Number(fixed.value);
  return cell;
}

export function selectCell(at: Record<AxisName, number>): void {
  set({ cell: `${at.step}.${at.rank}.${at.site}` });
}

/** Moves the third axis to the place of an anomaly and selects its cell. */
export function showAnomaly(anomaly: { site: number; step: number; rank: number; kind?: string; statistic?: string }): void {
  const change: Record<string, string> = {
    cell: `${anomaly.step}.${anomaly.rank}.${anomaly.site}`,
    steps: "",
    rows: "",
    find: "",
  };
  if (anomaly.kind) change["kind"] = anomaly.kind;
  change["axes"] = "";
  if (anomaly.statistic) change["stat"] = anomaly.statistic;
  const pooled = { step: anomaly.step, rank: anomaly.rank, site: anomaly.site }[third.value];
  change["at"] = third.value === "rank" ? (anomaly.rank >= 0 ? String(anomaly.rank) : "") : String(pooled);
  set(change);
}

/** Finds the pixel that holds a value: starts of steps and ranks grow, those of sites are in order of execution. */
export function pixelOf(starts: number[], value: number, axis: AxisName): number {
  if (axis === "site") {
    const exact = starts.indexOf(value);
    if (exact >= 0) return exact;
    const order = about.peek()?.sites.site ?? [];
    const at = order.indexOf(value);
    let best = -1;
    starts.forEach((start, pixel) => {
      if (order.indexOf(start) <= at) best = pixel;
    });
    return at < 0 ? -1 : best;
  }
  let found = -1;
  starts.forEach((start, pixel) => {
    if (start <= value) found = pixel;
  });
  return steps.peek() && axis === "step" && value < (starts[0] ?? 0) ? -1 : found;
}
