/** The series of the selected and pinned cells along steps or ranks, with what is normal for them. */
import { computed, effect, signal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import { place, theme } from "../state";
import { word } from "../words";
import { NAN, NEG_INF, picture, POS_INF, PRESENT, ZERO, type Picture } from "./api";
import { median } from "./colours";
import { LEFT } from "./heat";
import { cell, run, set, siteName, statistic, steps, type AxisName } from "./store";

/** A pinned cell: what stays fixed while the line runs along steps or ranks. */
interface Pin {
  site: number;
  rank: number;
}

interface Line {
  pin: Pin;
  xs: number[];
  values: (number | null)[];
  states: number[];
}

const STROKES = ["--ink", "--text-equal", "--text-suspect", "--accent", "--text-introduced", "--text-inherited"];
const DASHES = [[], [6, 4], [2, 3], [8, 3, 2, 3], [], [6, 4]];

const along = computed<AxisName>(() => (place.value.trend["along"] === "rank" ? "rank" : "step"));
const logarithmic = computed(() => place.value.trend["line"] !== "linear");

export const pins = computed<Pin[]>(() => {
  const found = (place.value.trend["pins"] ?? "").split(",").filter(Boolean).map(parsePin);
  const at = cell.value;
  const selected = at && at.site >= 0 ? [{ site: at.site, rank: along.value === "rank" ? -1 : at.rank }] : [];
  return [...selected, ...found].filter(
    (pin, i, all) => all.findIndex((other) => other.site === pin.site && other.rank === pin.rank) === i,
  );
});

function parsePin(text: string): Pin {
  const [site = -1, rank = -1] = text.split(".").map(Number);
  return { site, rank };
}

export function pinCell(): void {
  const at = cell.peek();
  if (!at || at.site < 0) return;
  const known = place.peek().trend["pins"] ?? "";
  const text = `${at.site}.${at.rank}`;
  if (!known.split(",").includes(text)) set({ pins: known ? `${known},${text}` : text });
}

function unpin(pin: Pin): void {
  const kept = (place.peek().trend["pins"] ?? "").split(",").filter((text) => text && text !== `${pin.site}.${pin.rank}`);
  const at = cell.peek();
  const selected = at && at.site === pin.site && (at.rank === pin.rank || along.peek() === "rank");
  set({ pins: kept.join(","), ...(selected ? { cell: "" } : {}) });
}

const lines = signal<Line[]>([]);
const band = signal<{ low: (number | null)[]; high: (number | null)[]; of: number } | null>(null);
let last = "";

effect(() => {
  if (place.value.page !== "trend") return;
  const wanted = pins.value;
  const key = JSON.stringify([wanted, run.value, statistic.value, along.value, steps.value, cell.value?.step]);
  if (key === last) return;
  last = key;
  if (!wanted.length) {
    lines.value = [];
    band.value = null;
    return;
  }
  const query = { run: run.value, statistic: statistic.value, width: 4000, steps: steps.value };
  const step = cell.value?.step ?? -1;
  void Promise.all(wanted.map((pin) => fetchLine(pin, query, step))).then((found) => {
    if (last === key) lines.value = found;
  });
  const first = wanted[0]!;
  if (along.value === "step" && first.rank >= 0)
    void picture({ ...query, x: "step", y: "rank", fixed: first.site, height: 4000 }).then((found) => {
      if (last === key) band.value = normal(found, first.rank);
    });
  else band.value = null;
});

async function fetchLine(pin: Pin, query: Record<string, string | number>, step: number): Promise<Line> {
  const asked: Record<string, string | number> =
    along.peek() === "step"
      ? { ...query, x: "step", y: "site", sites: pin.site, height: 1, ...(pin.rank >= 0 ? { fixed: pin.rank } : {}) }
      : { ...query, x: "rank", y: "site", sites: pin.site, height: 1, ...(step >= 0 ? { fixed: step } : {}) };
  const found = await picture(asked);
  const states = [...found.states];
  const values = [...found.values].map((value, i) => (states[i] === PRESENT || states[i] === ZERO ? value : null));
  return { pin, xs: found.x.starts, values, states };
}

/** The band in which the other ranks are at each step: median and robust deviations. */
function normal(found: Picture, rank: number): { low: (number | null)[]; high: (number | null)[]; of: number } | null {
  const width = found.x.starts.length;
  const others = found.y.starts.map((r, row) => (r === rank ? -1 : row)).filter((row) => row >= 0);
  if (others.length < 3) return null;
  const low: (number | null)[] = [];
  const high: (number | null)[] = [];
  for (let column = 0; column < width; column++) {
    const values = others
      .map((row) => row * width + column)
      .filter((i) => found.states[i] === PRESENT)
      .map((i) => found.values[i]!);
    if (values.length < 3) {
      low.push(null);
      high.push(null);
      continue;
    }
    const middle = median(values);
    const spread = 4 * Math.max(1.4826 * median(values.map((v) => Math.abs(v - middle))), 0.002 * Math.abs(middle));
    low.push(middle - spread);
    high.push(middle + spread);
  }
  return { low, high, of: others.length };
}

export function Lines() {
  const box = useRef<HTMLDivElement>(null);
  const shown = lines.value;
  const around = band.value;
  const dark = theme.value;
  const log = logarithmic.value;
  const at = cell.value;
  useEffect(() => {
    const element = box.current;
    if (!element || !shown.length) return;
    const plot = chart(element, shown, log, at);
    const observer = new ResizeObserver(() => plot.setSize({ width: element.clientWidth, height: element.clientHeight }));
    observer.observe(element);
    return () => {
      observer.disconnect();
      plot.destroy();
    };
  }, [shown, around, dark, log, at]);
  return (
    <section class="lines">
      <header>
        <b>{statistic.value}</b>
        <button type="button" class="link" onClick={() => set({ line: log ? "linear" : "" }, "replace")}>
          {word(log ? "logAxis" : "linearAxis")}
        </button>
        <button type="button" class="link" onClick={() => set({ along: along.value === "step" ? "rank" : "" }, "replace")}>
          {word(along.value === "step" ? "alongSteps" : "alongRanks")}
        </button>
        {at && at.site >= 0 && (
          <button type="button" class="link accent" onClick={pinCell}>
            {word("pin")}
          </button>
        )}
        {around && (
          <small class="quiet">
            {word("normalBand")} {around.of} {word("otherRanks")}
          </small>
        )}
        <span class="grow" />
        <ul class="keys-of-lines">
          {shown.map(({ pin }, i) => (
            <li key={`${pin.site}.${pin.rank}`}>
              <svg width="22" height="8" aria-hidden="true">
                <path
                  d="M0 4h22"
                  ref={(e) => {
                    e?.style.setProperty("stroke", `var(${STROKES[i % STROKES.length]})`);
                    e?.style.setProperty("stroke-dasharray", DASHES[i % DASHES.length]!.join(" ") || "none");
                  }}
                />
              </svg>
              <code title={siteName(pin.site).label}>{siteName(pin.site).node || siteName(pin.site).label}</code>
              <span class="quiet">{pin.rank >= 0 ? `${word("rank")} ${pin.rank}` : word("allRanks")}</span>
              <button type="button" class="link" aria-label={word("close")} onClick={() => unpin(pin)}>
                {"\u00d7"}
              </button>
            </li>
          ))}
        </ul>
      </header>
      {shown.length ? (
        <div class="chart" ref={box} />
      ) : (
        <p class="quiet empty">{word("pickCell")}</p>
      )}
    </section>
  );
}

function chart(element: HTMLElement, shown: Line[], wanted: boolean, at: Record<AxisName, number> | null): uPlot {
  // What is never positive has no logarithm to be drawn.
  const log = wanted && shown.some((line) => line.values.some((value) => value !== null && value > 0));
  const style = getComputedStyle(document.documentElement);
  const ink = (name: string) => style.getPropertyValue(name).trim();
  const xs = [...new Set(shown.flatMap((line) => line.xs))].sort((a, b) => a - b);
  const onAxis = (line: Line) => {
    const place = new Map(line.xs.map((x, i) => [x, i]));
    return xs.map((x) => {
      const value = line.values[place.get(x) ?? -1] ?? null;
      return log && value !== null && value <= 0 ? null : value;
    });
  };
  const around = band.peek();
  const bounds = around && shown[0] ? [around.low, around.high] : [];
  const placeOf = new Map(shown[0]?.xs.map((x, i) => [x, i]) ?? []);
  const bandData = bounds.map((side) => xs.map((x) => {
    const value = side[placeOf.get(x) ?? -1] ?? null;
    return log && value !== null && value <= 0 ? null : value;
  }));
  const axis = { stroke: ink("--ink3"), grid: { stroke: ink("--line"), width: 1 }, ticks: { show: false }, font: `11px ${ink("--mono")}` };
  const data = [xs, ...bandData, ...shown.map(onAxis)] as uPlot.AlignedData;
  const plot = new uPlot(
    {
      width: element.clientWidth,
      height: element.clientHeight,
      legend: { show: false },
      cursor: { y: false, points: { size: 6 } },
      scales: { x: { time: false }, y: log ? { distr: 3 } : {} },
      axes: [axis, { ...axis, size: LEFT }],
      series: [
        {},
        ...bandData.map(() => ({ stroke: "transparent", points: { show: false } })),
        ...shown.map((_, i) => ({
          stroke: ink(STROKES[i % STROKES.length]!),
          width: i ? 1.3 : 1.8,
          dash: DASHES[i % DASHES.length]!,
          points: { show: xs.length < 40 },
        })),
      ],
      ...(bandData.length ? { bands: [{ series: [2, 1], fill: `${ink("--zone")}cc` }] } : {}),
      hooks: { draw: [(u: uPlot) => drawMarks(u, shown, xs, at, ink)] },
    } as uPlot.Options,
    data,
    element,
  );
  plot.over.addEventListener("click", () => {
    const index = plot.cursor.idx;
    if (index === null || index === undefined || !at) return;
    const moved = { ...at, [along.peek()]: xs[index]! };
    set({ cell: `${moved.step}.${moved.rank}.${moved.site}` });
  });
  return plot;
}

/** Marks where a line has no finite value, and the selected place. */
function drawMarks(
  u: uPlot,
  shown: Line[],
  xs: number[],
  at: Record<AxisName, number> | null,
  ink: (name: string) => string,
): void {
  const c = u.ctx;
  const { top, height } = u.bbox;
  c.save();
  const ratio = devicePixelRatio || 1;
  const here = at?.[along.peek()] ?? -1;
  if (here >= 0 && here >= xs[0]! && here <= xs.at(-1)!) {
    const x = u.valToPos(here, "x", true);
    c.strokeStyle = ink("--ink");
    c.lineWidth = ratio;
    c.setLineDash([3 * ratio, 3 * ratio]);
    c.beginPath();
    c.moveTo(x, top);
    c.lineTo(x, top + height);
    c.stroke();
    c.setLineDash([]);
  }
  for (const line of shown)
    line.states.forEach((state, i) => {
      if (state < NEG_INF) return;
      const x = u.valToPos(line.xs[i]!, "x", true);
      const y = state === NEG_INF ? top + height - 8 * ratio : top + 8 * ratio;
      c.strokeStyle = c.fillStyle = ink("--nan");
      c.lineWidth = 1.6 * ratio;
      const s = 3.4 * ratio;
      c.beginPath();
      if (state >= NAN) {
        c.moveTo(x - s, y - s);
        c.lineTo(x + s, y + s);
        c.moveTo(x + s, y - s);
        c.lineTo(x - s, y + s);
        c.stroke();
      } else {
        const up = state === POS_INF ? 1 : -1;
        c.moveTo(x - s, y + s * up);
        c.lineTo(x + s, y + s * up);
        c.lineTo(x, y - s * up);
        c.fill();
      }
    });
  c.restore();
}
