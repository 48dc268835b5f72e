/** What the reader looks at. All of it is in the address, so that a link says the same and "back" goes back. */
import { computed, effect, signal } from "@preact/signals";
import { ask, type Overview } from "./api";

export type Page = "overview" | "graph" | "trend";

export interface Place {
  page: Page;
  step: string;
  rank: string;
  micro: string;
  direction: string;
  verdicts: string;
  class: string;
  dtype: string;
  /** The selected pair of nodes, "12:14"; -1 where a side has none; "" when nothing is selected. */
  node: string;
  /** Opened pairs of containers and folds. */
  open: string[];
  /** What the trend page looks at, by name. */
  trend: Record<string, string>;
}

const EMPTY: Place = {
  page: "overview",
  step: "",
  rank: "",
  micro: "",
  direction: "",
  verdicts: "",
  class: "",
  dtype: "",
  node: "",
  open: [],
  trend: {},
};

const TREND = ["run", "kind", "stat", "axes", "at", "scale", "cell", "steps", "rows", "find", "pins", "along", "line"];

/** The pages that there is something to show on; null until the server has said. */
export const pages = signal<Page[] | null>(null);
export const runs = signal<string[]>([]);

export const overview = signal<Overview | null>(null);
export const problem = signal<string>("");
export const place = signal<Place>(read(location.hash));

const stored = localStorage.getItem("msprobe-theme");
export const theme = signal<"light" | "dark">(
  stored === "light" || stored === "dark"
    ? stored
    : matchMedia("(prefers-color-scheme: dark)").matches
      ? "dark"
      : "light",
);

effect(() => {
  document.documentElement.dataset["theme"] = theme.value;
});

export function setTheme(value: "light" | "dark"): void {
  theme.value = value;
  localStorage.setItem("msprobe-theme", value);
}

/** Counts the comparisons seen: what was judged again is asked for again. */
export const revision = signal(0);

/** The selection as the server is asked for it. */
export const selection = computed<Record<string, string>>(() => {
  const { step, rank, micro, direction, verdicts, class: name, dtype } = place.value;
  return { step, rank, micro_step: micro, direction, verdicts, class: name, dtype, revision: String(revision.value) };
});

/** Goes to another place; what is only looked at differently does not become a step of "back". */
export function go(change: Partial<Place>, how: "push" | "replace" = "push"): void {
  const next = { ...place.value, ...change };
  const address = write(next);
  if (address === location.hash) return;
  history[how === "push" ? "pushState" : "replaceState"](null, "", address);
  place.value = next;
}

addEventListener("popstate", () => {
  place.value = read(location.hash);
});
addEventListener("hashchange", () => {
  place.value = read(location.hash);
});

function read(hash: string): Place {
  const [, path = "", query = ""] = /^#\/?([^?]*)\??(.*)$/.exec(hash) ?? [];
  const given = new URLSearchParams(query);
  const found: Place = { ...EMPTY, page: path === "graph" || path === "trend" ? path : "overview" };
  for (const key of ["step", "rank", "micro", "direction", "verdicts", "class", "dtype", "node"] as const)
    found[key] = given.get(key) ?? "";
  found.open = given.get("open")?.split(",").filter(Boolean) ?? [];
  found.trend = Object.fromEntries(TREND.flatMap((key) => (given.has(`t.${key}`) ? [[key, given.get(`t.${key}`)!]] : [])));
  return found;
}

function write(at: Place): string {
  const query = new URLSearchParams();
  for (const key of ["step", "rank", "micro", "direction", "verdicts", "class", "dtype", "node"] as const)
    if (at[key]) query.set(key, at[key]);
  for (const [key, value] of Object.entries(at.trend)) query.set(`t.${key}`, value);
  if (at.open.length) query.set("open", at.open.join(","));
  const text = query.toString().replaceAll("%3A", ":").replaceAll("%2C", ",");
  return `#/${at.page}${text ? `?${text}` : ""}`;
}

/** Fetches what the first page shows; the graph starts at the first source. */
export async function load(): Promise<void> {
  try {
    const there = await ask<{ pages: Page[]; runs: string[] }>("pages");
    pages.value = there.pages;
    runs.value = there.runs;
    if (!there.pages.includes("overview")) {
      document.title = "msprobe";
      if (place.value.page !== "trend") go({ page: "trend" }, "replace");
      return;
    }
    const found = await ask<Overview>("overview");
    overview.value = found;
    document.title = `msprobe: ${found.verdict}`;
    if (!place.value.step && !place.value.open.length) go(arrival(found), "replace");
  } catch (error) {
    problem.value = error instanceof Error ? error.message : String(error);
  }
}

/** Fetches the verdict again after nodes were matched by hand. */
export async function reload(): Promise<void> {
  overview.value = await ask<Overview>("overview");
  revision.value += 1;
}

/** Where the reader stands on arrival: at the step, rank and node of the first source. */
function arrival(found: Overview): Partial<Place> {
  const first = found.sources[0];
  const { steps, ranks, micro_steps } = found.axes;
  if (!first)
    return {
      step: String(steps[0] ?? ""),
      rank: String(ranks[0] ?? ""),
      micro: String(micro_steps[0] ?? ""),
      open: ["0:0", "1:1"],
    };
  return atSource(first);
}

/** Gives the place at which a source is seen. */
export function atSource(source: Overview["sources"][number]): Partial<Place> {
  // Of a whole that was merged of many ranks a source names the guilty one; the rows are of the whole.
  const { ranks } = overview.value!.axes;
  return {
    step: String(source.step),
    rank: ranks.includes(source.rank) ? String(source.rank) : ranks.length === 1 ? String(ranks[0]) : "",
    micro: String(source.micro_step),
    node: source.c > 0 || source.r > 0 ? `${source.c}:${source.r}` : "",
    open: source.way.length ? [...source.way, [source.c, source.r]].map(([c, r]) => `${c}:${r}`) : ["0:0", "1:1"],
  };
}

/** Goes to the next or previous source. */
export function jump(by: number): void {
  const sources = overview.value?.sources ?? [];
  if (!sources.length) return;
  const current = currentSource.value;
  const next = sources[(Math.max(current, by > 0 ? -1 : 0) + by + sources.length) % sources.length];
  if (next) go({ page: "graph", ...atSource(next), verdicts: "", class: "", dtype: "", direction: "" });
}

/** Which source is selected; -1 when none is. */
export const currentSource = computed<number>(() => {
  const { node, step } = place.value;
  return overview.value?.sources.findIndex((s) => `${s.c}:${s.r}` === node && String(s.step) === step) ?? -1;
});
