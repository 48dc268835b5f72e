/** The trend of a run as the server gives it: a catalogue once, then pictures as binary arrays. */
import { query as withSession, Refused, type Num } from "../api";

/** State of a cell, in order of concern; pooling keeps the highest. */
export const STATES = ["absent", "unmeasured", "empty", "zero", "present", "-Inf", "+Inf", "NaN carried", "NaN made here"] as const;
export const ABSENT = 0;
export const UNMEASURED = 1;
export const EMPTY = 2;
export const ZERO = 3;
export const PRESENT = 4;
export const NEG_INF = 5;
export const POS_INF = 6;
export const NAN = 7;
export const NAN_MADE = 8;

export interface About {
  runs: string[];
  kinds: { name: string; number: number }[];
  statistics: string[];
  steps: number[];
  ranks: { rank: number; mesh: Record<string, number> }[];
  nodes: string[];
  labels: string[];
  classes: string[];
  /** Columns by site, in order of execution. */
  sites: { site: number[]; node: number[]; label: number[]; class: number[]; kind: number[]; layer: number[] };
}

export interface Axis {
  name: "step" | "rank" | "site";
  /** The first value in each pixel. */
  starts: number[];
  count: number;
}

export interface Picture {
  x: Axis;
  y: Axis;
  values: Float32Array;
  states: Uint8Array;
}

export interface AnomalyData {
  site: number;
  name: string;
  node: string;
  kind: string;
  step: number;
  rank: number;
  statistic: string;
  value: Num;
  low: Num;
  high: Num;
  score: Num;
  against: string;
  /** For a cell that is not finite: its state, and the ranks on which it is so at that step. */
  state?: string;
  ranks?: number[];
  /** How many more sites become so at the same step, further on. */
  more?: number;
}

export interface ScanData {
  sentence: string;
  exit_code: number;
  notes: string[];
  findings: {
    kind: string;
    sentence: string;
    step: number;
    rank: number;
    micro_step: number;
    node: string;
    site: string;
    number: number;
    metric: string;
    evidence: string[];
  }[];
}

export interface ForkData {
  site: number;
  name: string;
  step: number;
  from_step: number;
  candidate: Num;
  reference: Num;
  allowed: Num;
}

/** Asks for a picture. */
export async function picture(asked: Record<string, string | number>): Promise<Picture> {
  const answer = await fetch(`api/slice?${withSession(asked)}`, { credentials: "same-origin" });
  if (!answer.ok) throw new Refused(await answer.text());
  return unpack(await answer.arrayBuffer());
}

export function unpack(buffer: ArrayBuffer): Picture {
  const size = new DataView(buffer).getUint32(0, true);
  const header = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 4, size))) as { x: Axis; y: Axis };
  const cells = header.x.starts.length * header.y.starts.length;
  return {
    ...header,
    values: new Float32Array(buffer, 4 + size, cells),
    states: new Uint8Array(buffer, 4 + size + 4 * cells, cells),
  };
}
