/** Steps, ranks and modules against each other: the sick cell, its history, and what else is out of its band. */
import { useEffect, useRef } from "preact/hooks";
import { reveal } from "../graph/store";
import { onKeys } from "../keys";
import { count, shown, spans } from "../numbers";
import { Path } from "../path";
import { pages, place, theme } from "../state";
import { word, wordOr } from "../words";
import { ABSENT, NAN_MADE, NEG_INF, PRESENT, STATES, type AnomalyData, type Picture } from "./api";
import { ramp, SCALES, scores } from "./colours";
import { brush, colouring, Heat, hovered } from "./heat";
import { Lines } from "./lines";
import { Mesh } from "./mesh";
import { Barcode } from "./barcode";
import {
  about,
  anomalyList,
  axes,
  cell,
  cellAt,
  fixed,
  forkList,
  kind,
  pixelOf,
  PAIRS,
  rows,
  run,
  scale,
  scan,
  set,
  showAnomaly,
  shownPicture,
  siteName,
  statistic,
  steps,
  third,
  waiting,
  type AxisName,
} from "./store";

export function TrendPage() {
  useEffect(() => onKeys(keys), []);
  if (!about.value) return <main class="trend" />;
  return (
    <main class="trend">
      <Tools />
      <div class={`progress${waiting.value ? " busy" : ""}`} />
      <div class="work">
        <div class="pictures">
          <Readout />
          <Heat />
          <Legend />
          <Barcode />
          <Lines />
        </div>
        <aside>
          <Scan />
          <Anomalies />
          <Forks />
          <Mesh />
        </aside>
      </div>
    </main>
  );
}

function Tools() {
  const found = about.value!;
  const narrowed = steps.value || rows.value;
  return (
    <div class="tools" role="toolbar">
      {found.runs.length > 1 && (
        <Choice
          label={word("run")}
          value={run.value}
          options={found.runs.map((path, i) => [String(i), `${i ? "R" : "C"} ${path.split("/").slice(-1)[0]}`])}
          change={(value) => set({ run: value === "0" ? "" : value, cell: "", pins: "" })}
        />
      )}
      <Choice
        label={word("metric")}
        value={kind.value}
        options={found.kinds.map((k) => [k.name, k.name])}
        change={(value) => set({ kind: value, rows: "", cell: "" })}
      />
      <Choice
        label={word("statistic")}
        value={statistic.value}
        options={found.statistics.map((s) => [s, s])}
        change={(value) => set({ stat: value === "norm" ? "" : value })}
      />
      <Choice
        label={word("axes")}
        value={axes.value.join("-")}
        options={PAIRS.map(([x, y]) => [`${x}-${y}`, `${wordOr(x)} \u00d7 ${axisWord(y)}`])}
        change={(value) => set({ axes: value, at: "", rows: "" })}
      />
      <span class="segments" role="radiogroup" aria-label={word("colour")}>
        {SCALES.map((name) => (
          <button
            key={name}
            type="button"
            role="radio"
            aria-checked={scale.value === name}
            class={scale.value === name ? "on" : ""}
            onClick={() => set({ scale: name === "z" ? "" : name }, "replace")}
          >
            {word(`scale_${name}`)}
          </button>
        ))}
      </span>
      <input
        type="search"
        class="find-site"
        placeholder={word("find")}
        aria-label={word("find")}
        value={place.value.trend["find"] ?? ""}
        onInput={(e) => set({ find: e.currentTarget.value, rows: "" }, "replace")}
      />
      {narrowed && (
        <button type="button" class="link accent" onClick={() => set({ steps: "", rows: "" })}>
          {word("whole")}
        </button>
      )}
    </div>
  );
}

function axisWord(axis: AxisName): string {
  return axis === "site" ? word("module") : wordOr(axis);
}

function Choice(props: { label: string; value: string; options: [string, string][]; change: (value: string) => void }) {
  return (
    <label class="choice">
      {props.label}
      <select aria-label={props.label} value={props.value} onChange={(e) => props.change(e.currentTarget.value)}>
        {props.options.map(([key, text]) => (
          <option key={key} value={key}>
            {text}
          </option>
        ))}
      </select>
    </label>
  );
}

/** A fixed line above the figure: what is under the pointer, else the selection. */
function Readout() {
  const found = shownPicture.value;
  const over = hovered.value;
  const at = found && over ? cellAt(found, over.column, over.row) : cell.value;
  const pixel = found && at ? pixelIn(found, at) : null;
  if (!found || !at) return <p class="readout quiet">{word("pickCell")}</p>;
  const name = at.site >= 0 ? siteName(at.site) : null;
  const state = pixel === null ? ABSENT : found.states[pixel]!;
  const z = pixel === null ? NaN : scores(found)[pixel]!;
  return (
    <p class="readout" aria-live="polite">
      {name && (
        <>
          <Path path={name.node || name.label} /> <span class="quiet">{name.label}</span>
        </>
      )}
      {at.rank >= 0 ? (
        <span>
          {word("rank")} <b>{at.rank}</b> <small class="quiet">{meshOf(at.rank)}</small>
        </span>
      ) : (
        <span class="quiet">{word("allRanks")}</span>
      )}
      {at.step >= 0 && (
        <span>
          {word("step")} <b>{at.step}</b>
        </span>
      )}
      <span class={state >= NEG_INF ? "nan" : ""}>
        {state === PRESENT || state >= NEG_INF ? `${statistic.value} ${shown(found.values[pixel!] ?? null)}` : ""}
        {state !== PRESENT && <b> {wordOr(STATES[state]!)}</b>}
      </span>
      {Number.isFinite(z) && <span class="quiet">z {shown(z, 3)}</span>}
      <span class="grow" />
      {pages.value?.includes("graph") && name?.node && over === null && (
        <button type="button" class="link accent" onClick={() => void reveal(run.value === "1" ? "r" : "c", name.node)}>
          {word("openInGraph")}
        </button>
      )}
    </p>
  );
}

function meshOf(rank: number): string {
  const mesh = about.value?.ranks.find((r) => r.rank === rank)?.mesh ?? {};
  return Object.entries(mesh)
    .map(([axis, at]) => `${axis} ${at}`)
    .join(" \u00b7 ");
}

function pixelIn(found: Picture, at: Record<AxisName, number>): number | null {
  const column = pixelOf(found.x.starts, at[found.x.name], found.x.name);
  const row = pixelOf(found.y.starts, at[found.y.name], found.y.name);
  return column < 0 || row < 0 ? null : row * found.x.starts.length + column;
}

/** The colour bar with its histogram, and a count of every state. */
function Legend() {
  const colours = colouring.value;
  const found = shownPicture.value;
  if (!colours || !found) return null;
  const counts = new Array<number>(STATES.length).fill(0);
  for (const state of found.states) counts[state]! += 1;
  const most = Math.max(1, ...colours.histogram.map(Math.sqrt));
  const ends = scale.value === "log" ? [10 ** colours.low, 10 ** colours.high] : [colours.low, colours.high];
  return (
    <div class="legend-line">
      <span class="mono quiet">{shown(ends[0]!, 3)}</span>
      <span class="colours">
        <svg class="bar-of-colours" width="260" height="19" aria-hidden="true">
        {colours.histogram.map((n, i) => (
          <rect key={i} x={(i * 260) / 64} width={260 / 64 - 0.4} y={18 - (Math.sqrt(n) / most) * 17} height={(Math.sqrt(n) / most) * 17} />
        ))}
        </svg>
        <Ramp />
      </span>
      <span class="mono quiet">{shown(ends[1]!, 3)}</span>
      {brush.value && (
        <button type="button" class="link" onClick={() => (brush.value = null)}>
          {word("whole")}
        </button>
      )}
      <span class="grow" />
      <span class="states">
        {[NAN_MADE, 7, 6, 5, 3, 2, 1, 0]
          .filter((state) => counts[state])
          .map((state) => (
            <span key={state} class={`state st-${state}`}>
              <i /> {wordOr(STATES[state]!)} {count(counts[state]!)}
            </span>
          ))}
      </span>
    </div>
  );
}

/** The colours of the scale themselves. */
function Ramp() {
  const canvas = useRef<HTMLCanvasElement>(null);
  const [now, light] = [scale.value, theme.value];
  useEffect(() => {
    const context = canvas.current?.getContext("2d");
    if (!context) return;
    const image = new ImageData(256, 1);
    new Uint32Array(image.data.buffer).set(ramp(now, light));
    context.putImageData(image, 0, 0);
  }, [now, light]);
  return <canvas ref={canvas} width="256" height="1" aria-hidden="true" />;
}

/** What is wrong in the run, in one sentence; each finding leads to its cell. */
function Scan() {
  const found = scan.value;
  if (!found) return null;
  return (
    <section class="anomalies scan">
      <h2>{word("scan")}</h2>
      <p class="said">{found.sentence}</p>
      <ol>
        {found.findings.slice(0, 20).map((finding, i) => (
          <li key={i} aria-selected={cell.value?.site === finding.number && cell.value?.step === finding.step}>
            <button
              type="button"
              disabled={finding.number < 0}
              title={finding.evidence.join("\n")}
              onClick={() => showAnomaly({ ...finding, site: finding.number, kind: finding.metric })}
            >
              <Path path={finding.node || finding.site} />
              <b class={finding.kind === "non-finite" ? "nan" : ""}>{finding.kind}</b>
              <small class="quiet">
                {finding.step >= 0 && `${word("step")} ${finding.step}`}
                {finding.rank >= 0 && ` \u00b7 ${word("rank")} ${finding.rank}`}
              </small>
            </button>
          </li>
        ))}
      </ol>
      {found.notes.map((note) => (
        <p key={note} class="quiet note">
          {note}
        </p>
      ))}
    </section>
  );
}

function Anomalies() {
  const found = anomalyList.value;
  const at = cell.value;
  return (
    <section class="anomalies">
      <h2>
        {word("topAnomalies")} <small>{found ? count(found.total) : ""}</small>
      </h2>
      {found && !found.total && <p class="quiet">{word("noAnomalies")}</p>}
      <ol>
        {worstOfEach(found?.anomalies ?? []).map((each) => (
          <li key={`${each.site}.${each.step}.${each.rank}`} aria-selected={at?.site === each.site && at.step === each.step}>
            <button type="button" onClick={() => showAnomaly(each)}>
              <Path path={each.node || each.name} />
              <b class={each.state ? "nan" : ""}>{each.state ? wordOr(each.state) : shown(each.score, 3)}</b>
              <small class="quiet">
                {each.kind} {each.statistic} {"\u00b7"} {word("step")} {each.step}
                {each.rank >= 0 && ` \u00b7 ${word("rank")} ${each.rank}`}
                {" \u00b7 "}
                {each.state
                  ? [
                      each.ranks && each.ranks.length > 1 ? `${each.ranks.length} ${word("ranks")}` : "",
                      each.more ? `${word("thenAlso")} ${count(each.more)} ${word("sitesMore")}` : "",
                    ]
                      .filter(Boolean)
                      .join(" \u00b7 ")
                  : `${shown(each.value, 3)} ${word("outOf")} ${shown(each.low, 3)}\u2026${shown(each.high, 3)}`}
              </small>
            </button>
          </li>
        ))}
      </ol>
    </section>
  );
}

/** Of what is listed, the worst of each site and kind of trouble. */
function worstOfEach(list: AnomalyData[]): AnomalyData[] {
  const seen = new Set<string>();
  return list
    .filter((each) => {
      const key = `${each.site} ${each.state ?? each.against}`;
      return !seen.has(key) && seen.add(key);
    })
    .slice(0, 60);
}

function Forks() {
  const found = forkList.value;
  if (!found || !found.total) return null;
  const first = found.forks[0]!;
  const together = found.forks.filter((fork) => fork.step === first.step).length;
  return (
    <section class="anomalies">
      <h2>{word("whereTheyPart")}</h2>
      <p>
        {word("firstAtStep")} <b>{first.step}</b>
        {first.from_step >= 0 && (
          <span class="quiet">
            {" "}
            ({word("agreeUntil")} {first.from_step})
          </span>
        )}
        {together > 1 && <span class="quiet"> {"\u00b7"} {count(together)} {word("sitesAtOnce")}</span>}
      </p>
      <ol>
        {found.forks.slice(0, 12).map((fork) => (
          <li key={fork.site}>
            <button type="button" onClick={() => showAnomaly({ ...fork, rank: -1 })}>
              <Path path={fork.name} />
              <small class="quiet">
                {word("step")} {fork.step} {"\u00b7"} {shown(fork.candidate)} {"\u2260"} {shown(fork.reference)}
              </small>
            </button>
          </li>
        ))}
      </ol>
    </section>
  );
}

function jump(by: number): void {
  const list = anomalyList.peek()?.anomalies ?? [];
  const at = cell.peek();
  const now = list.findIndex((each) => each.site === at?.site && each.step === at.step);
  const next = list[(now + by + list.length) % Math.max(1, list.length)];
  if (next) showAnomaly(next);
}

function move(axis: "x" | "y", by: number): void {
  const found = shownPicture.peek();
  const at = cell.peek();
  if (!found || !at) return;
  const line = found[axis];
  const pixel = Math.max(0, Math.min(line.starts.length - 1, pixelOf(line.starts, at[line.name], line.name) + by));
  const moved = { ...at, [line.name]: line.starts[pixel]! };
  set({ cell: `${moved.step}.${moved.rank}.${moved.site}` }, "replace");
}

const keys: Record<string, () => void> = {
  n: () => jump(1),
  p: () => jump(-1),
  ArrowLeft: () => move("x", -1),
  ArrowRight: () => move("x", 1),
  ArrowUp: () => move("y", -1),
  ArrowDown: () => move("y", 1),
  "/": () => document.querySelector<HTMLInputElement>(".find-site")?.focus(),
  "[": () => moveThird(-1),
  "]": () => moveThird(1),
  Escape: () => set({ cell: "" }, "replace"),
};

export function valuesOfThird(): number[] {
  const found = about.peek()!;
  if (third.peek() === "step") return found.steps;
  if (third.peek() === "rank") return found.ranks.map((r) => r.rank);
  const number = found.kinds.find((k) => k.name === kind.peek())?.number;
  return found.sites.site.filter((_, at) => found.sites.kind[at] === number);
}

export function moveThird(by: number): void {
  const values = valuesOfThird();
  const at = fixed.peek() === "" ? (by > 0 ? -1 : 0) : values.indexOf(Number(fixed.peek()));
  const next = values[at + by];
  set({ at: next === undefined ? "" : String(next) }, "replace");
}

export const rankSpans = spans;
