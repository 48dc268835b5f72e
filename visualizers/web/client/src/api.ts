/** What the server answers, and how it is asked. Numbers that JSON cannot hold come as "NaN", "+Inf", "-Inf". */

import type { Word } from "./words";

export type Num = number | "NaN" | "+Inf" | "-Inf";

export interface Errors {
  eps: Num | null;
  bound: Num | null;
  error: Num | null;
  row: number;
}

export interface NodeData {
  id: number;
  name: string;
  class: string;
  kind: "module" | "op" | "save" | "collective";
  leaf: boolean;
  /** Severity of the worst row at the node and below; 7: nothing in the selection. */
  worst: number;
  own: number;
  counts: number[];
  partners: number[];
  error?: Errors;
  by?: string;
}

export interface RowData {
  c: NodeData[];
  r: NodeData[];
}

export interface SideValues {
  dtype: string;
  shape: string;
  min: Num | null;
  max: Num | null;
  mean: Num | null;
  norm: Num | null;
  nan: Num | null;
  pos_inf: Num | null;
  neg_inf: Num | null;
  zero: Num | null;
}

export interface PairRow extends Errors {
  severity: number;
  direction: string;
  role: string;
  argument: string;
  calls: [number, number];
  step: number;
  rank: number;
  micro_step: number;
  sides: [SideValues | null, SideValues | null];
  error_kind: string;
  bound_source: string;
  reason: string;
  note: string;
  one_sided: string;
}

export interface Head {
  id: number;
  path: string;
  name: string;
  /** The containers around it, the outermost first. */
  trail: { id: number; name: string }[];
  class: string;
}

export interface HistoryPoint extends Errors {
  step: number;
  severity: number;
}

export interface Frame {
  file: string;
  line: number;
  function: string;
  source: string;
}

/** How merged records were made: which ranks hold parts, which replicas are wrong. */
export interface Origin {
  side: "c" | "r";
  words: string;
  parts: { rank: number; place: string; use: "kept" | "replica"; odd: boolean; shape: number[] }[];
  odd: number[];
  rows: number[];
}

/** A node that data comes from, or goes to. */
export interface Neighbour {
  id: number;
  path: string;
  worst: number;
}

export interface Panel {
  c: Head | null;
  r: Head | null;
  rows: PairRow[];
  left_out: number;
  elsewhere: number;
  matched_by: { reason: string; confidence: Num }[];
  history: HistoryPoint[];
  /** Innermost frame last; null when the runs are not open. */
  stacks: { side: "c" | "r"; frames: Frame[] }[] | null;
  origins: Origin[];
  flow: { side: "c" | "r"; before: Neighbour[]; after: Neighbour[] }[];
}

export interface SourceData {
  node: string;
  node_class: string;
  site: string;
  direction: string;
  role: string;
  argument: string;
  own_code: boolean;
  rank: number;
  step: number;
  micro_step: number;
  sentence: string;
  evidence: string[];
  occurrences: number;
  ranks: number[];
  steps: number[];
  verdict: string;
  c: number;
  r: number;
  way: [number, number][];
  rows: PairRow[];
}

export interface Strip {
  step: number | null;
  columns: string[];
  lanes: { direction: string; rows: string[]; cells: [number, number, number, number][] }[];
}

export interface RunIdentity {
  path: string;
  framework: string;
  ranks: number[];
  steps: number[];
  records: number;
}

/** What a recording noted of itself; `site` names the place inside the node. */
export interface AlertData {
  side: "c" | "r";
  kind: "alert" | "gap" | "drop";
  text: string;
  rule: string;
  step: number;
  rank: number;
  node: string;
  site: string;
  count: number;
}

export interface Overview {
  verdict: string;
  sentence: string;
  exit_code: number;
  coverage: {
    records: number;
    matched: number;
    aligned: number;
    judged: number;
    unmatched_candidate: number;
    unmatched_reference: number;
    matched_share: Num;
    judged_share: Num;
  };
  sources: SourceData[];
  findings: { kind: string; text: string }[];
  alerts: AlertData[];
  counts: Record<string, number>;
  context: { kind: string; node: string; name: string; candidate: string; reference: string }[];
  constants: Record<string, number>;
  candidate: RunIdentity;
  reference: RunIdentity;
  pairs: number;
  nodes: [number, number];
  axes: { steps: number[]; ranks: number[]; micro_steps: number[] };
  verdicts: { name: string; meaning: string }[];
  classes: string[];
  dtypes: string[];
  strip: Strip;
}

export interface Unmatched {
  c: (NodeData & { path: string })[];
  r: (NodeData & { path: string })[];
  /** Nodes that may be one, by number; what agrees, and its share of all signs. */
  suggestions: { c: number; r: number; signs: Word[]; confidence: number }[];
}

export interface Hit extends NodeData {
  side: "c" | "r";
  path: string;
}

/** What can be done by hand, and the mapping file that it makes. */
export interface HandState {
  possible: boolean;
  edits: number;
  undo: boolean;
  redo: boolean;
  before: string;
  after: string;
  save_to: string;
  saved?: string;
  open?: string[];
  node?: string;
}

/** The server refused, and says why. */
export class Refused extends Error {}

/** Answers that a page made for sharing brings along. */
interface Embedded {
  overview: Overview;
  rows: Record<string, RowData[]>;
  minimap: [number[], number[]];
  nodes: ["c" | "r", number, string, string, number][];
  panels: Record<string, Panel>;
}

const held = document.getElementById("answers")?.textContent ?? "{}";
const embedded: Embedded | null = held.length > 2 ? (JSON.parse(held) as Embedded) : null;

/** Whether this page is one file: what it does not hold cannot be asked for. */
export const shared = embedded !== null;

const session = crypto.randomUUID();

function withSession(given: Record<string, string | number>): URLSearchParams {
  const parameters = new URLSearchParams({ session });
  for (const [key, value] of Object.entries(given)) if (value !== "") parameters.set(key, String(value));
  return parameters;
}

export { withSession as query };

/** Asks the server for one thing. */
export async function ask<T>(name: string, query: Record<string, string | number> = {}): Promise<T> {
  if (embedded) return fromFile(embedded, name, query) as T;
  const answer = await fetch(`api/${name}?${withSession(query)}`, { credentials: "same-origin" });
  if (!answer.ok) throw new Refused(await answer.text());
  return (await answer.json()) as T;
}

/** Does something by hand; the server answers with what can be done now. */
export async function post<T>(what: string, body: Record<string, unknown>): Promise<T> {
  const answer = await fetch(`api/hand/${what}`, {
    method: "POST",
    credentials: "same-origin",
    headers: { "content-type": "application/json", "x-msprobe": "1" },
    body: JSON.stringify({ ...body, session }),
  });
  if (!answer.ok) throw new Refused(await answer.text());
  return (await answer.json()) as T;
}

function fromFile(file: Embedded, name: string, query: Record<string, string | number>): unknown {
  if (name === "pages") return { pages: ["overview", "graph"], runs: [] };
  if (name === "overview") return file.overview;
  if (name === "minimap") return file.minimap;
  if (name === "rows")
    return Object.fromEntries(String(query["open"]).split(",").map((pair) => [pair, file.rows[pair] ?? []]));
  if (name === "node") return file.panels[String(query["node"])] ?? null;
  if (name === "search") return searchIn(file, String(query["text"]).toLowerCase());
  if (name === "way") return wayIn(file, String(query["side"]) as "c" | "r", Number(query["node"]));
  throw new Refused(`This file does not hold ${name}.`);
}

function searchIn(file: Embedded, text: string): { hits: Hit[]; total: number } {
  const found = file.nodes.filter(([, , path, type]) => `${path} ${type}`.toLowerCase().includes(text));
  const hits = found.slice(0, 200).map(([side, id, path, type, worst]) => ({ ...blank(id, path, type, worst), side, path }));
  return { hits, total: found.length };
}

function blank(id: number, name: string, type: string, worst: number): NodeData {
  return { id, name, class: type, kind: "module", leaf: true, worst, own: worst, counts: [], partners: [] };
}

/** Follows the rows down to a node. */
function wayIn(file: Embedded, side: "c" | "r", node: number): { way: [number, number][]; pair: [number, number] } {
  const way: [number, number][] = [];
  const descend = (pair: string): [number, number] | null => {
    for (const row of file.rows[pair] ?? []) {
      const inside: [number, number] = [row.c[0]?.id ?? -1, row.r[0]?.id ?? -1];
      if (row[side].some((found) => found.id === node)) return inside;
      const deeper = file.rows[inside.join(":")] ? descend(inside.join(":")) : null;
      if (deeper) {
        way.unshift(inside);
        return deeper;
      }
    }
    return null;
  };
  const pair = descend("0:0") ?? (side === "c" ? [node, -1] : [-1, node]);
  return { way: [[0, 0], ...way], pair };
}
