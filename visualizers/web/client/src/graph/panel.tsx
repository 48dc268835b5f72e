/** The tensors of the selected pair: candidate over reference, error and bound on one ruler, and why. */
import { signal } from "@preact/signals";
import { Fragment } from "preact";
import type { Head, HistoryPoint, Num, PairRow, Panel, SideValues } from "../api";
import { Badge } from "../bar";
import { count, epsilons, shown } from "../numbers";
import { Copy, Path } from "../path";
import { onRuler, Ruler } from "../ruler";
import { go, pages, place } from "../state";
import { Glyph, verdictName } from "../verdicts";
import { word, wordOr } from "../words";
import { hand, unmatch } from "./hand";
import { Flow } from "./flow";
import { Origins, Stacks } from "./origins";
import { panel, reveal } from "./store";

type SortKey = "order" | "severity" | "eps" | "argument";

const sorting = signal<SortKey>("order");
const height = signal(Number(localStorage.getItem("msprobe-panel")) || 300);

export function PanelView() {
  const found = panel.value;
  return (
    <section
      class={found ? "panel" : "panel closed"}
      aria-label={word("site")}
      ref={(e) => void (e && e.style.setProperty("height", `${found ? height.value : 44}px`))}
    >
      <div class="grip" role="separator" aria-orientation="horizontal" onPointerDown={drag} />
      {found ? <Filled found={found} /> : <p class="quiet empty">{word("pickNode")}</p>}
    </section>
  );
}

function drag(event: PointerEvent): void {
  const start = event.clientY + height.value;
  const move = (e: PointerEvent) => {
    height.value = Math.min(innerHeight - 200, Math.max(90, start - e.clientY));
  };
  const end = () => {
    removeEventListener("pointermove", move);
    localStorage.setItem("msprobe-panel", String(height.value));
  };
  addEventListener("pointermove", move);
  addEventListener("pointerup", end, { once: true });
}

function Filled({ found }: { found: Panel }) {
  const path = found.c?.path ?? found.r?.path ?? "";
  const worst = Math.min(...found.rows.map((row) => row.severity), 7);
  const telling = found.rows.find((row) => row.severity === worst);
  return (
    <>
      <header>
        <Glyph severity={worst} /> <b class={`t-${verdictName(worst)}`}>{word(verdictName(worst))}</b>
        {found.c ? <Crumbs head={found.c} side="c" /> : found.r && <Crumbs head={found.r} side="r" />} <Copy text={path} />
        {found.r && found.c && found.r.path !== found.c.path && (
          <>
            <Badge side="r" /> <Path path={found.r.path} />
          </>
        )}
        <span class="quiet reason">{telling?.reason}</span>
        <span class="grow" />
        {found.c && found.r && hand.value?.possible && (
          <button type="button" class="link accent" onClick={unmatch}>
            {word("unmatch")}
          </button>
        )}
        {pages.value?.includes("trend") && path && (
          <button type="button" class="link accent" onClick={() => go({ page: "trend", trend: { find: path } })}>
            {word("trendOf")}
          </button>
        )}
      </header>
      <div class="body">
        <div class="tensors">
          {found.rows.length ? <Table found={found} /> : <p class="quiet empty">{word("noRows")}</p>}
        </div>
        <aside>
          <Stacks found={found} />
          <Origins found={found} />
          <Flow found={found} />
          <Matched found={found} />
          {found.history.length > 1 && <History points={found.history} />}
        </aside>
      </div>
    </>
  );
}

/** The way to the selected node; a click selects a container on it. */
function Crumbs({ head, side }: { head: Head; side: "c" | "r" }) {
  return (
    <span class="path crumbs" title={head.path}>
      {head.trail.map(({ id, name }) => (
        <Fragment key={id}>
          <button type="button" class="link" onClick={() => void reveal(side, id)}>
            {name}
          </button>
          <i>{"\u203a"}</i>
        </Fragment>
      ))}
      <b>{head.name}</b>
    </span>
  );
}

function sorted(rows: PairRow[]): PairRow[] {
  const by: Record<SortKey, (a: PairRow, b: PairRow) => number> = {
    order: () => 0,
    severity: (a, b) => a.severity - b.severity,
    eps: (a, b) => size(b.eps) - size(a.eps),
    argument: (a, b) => `${a.role}${a.argument}`.localeCompare(`${b.role}${b.argument}`),
  };
  return [...rows].sort(by[sorting.value]);
}

function size(value: Num | null): number {
  return value === null ? -1 : typeof value === "string" ? Infinity : value;
}

function Table({ found }: { found: Panel }) {
  const manySteps = place.value.step === "";
  const manyRanks = place.value.rank === "";
  return (
    <table class="pairs">
      <thead>
        <tr>
          <ColumnHead name="argument" text={word("site")} />
          <th />
          <th>dtype</th>
          <th>shape</th>
          <th class="n">min</th>
          <th class="n">max</th>
          <th class="n">mean</th>
          <th class="n">norm</th>
          <th class="n">{word("nonFinite")}</th>
          <ColumnHead name="severity" text={`${word("error")} · ${word("bound")}`} />
          <ColumnHead name="eps" text={"\u03b5"} right />
          <th class="n" />
          <th class="from">{word("boundFrom")}</th>
          <th>{word("why")}</th>
        </tr>
      </thead>
      <tbody>
        {sorted(found.rows).map((row) => (
          <PairRows key={row.row} {...{ row, manySteps, manyRanks }} />
        ))}
        {found.left_out > 0 && (
          <tr>
            <td colSpan={14} class="quiet">
              {count(found.left_out)} {word("leftOut")}
            </td>
          </tr>
        )}
      </tbody>
    </table>
  );
}

function ColumnHead({ name, text, right }: { name: SortKey; text: string; right?: boolean }) {
  const on = sorting.value === name;
  return (
    <th class={right ? "n" : ""} aria-sort={on ? "descending" : "none"}>
      <button
        type="button"
        class={on ? "sort on" : "sort"}
        onClick={() => {
          sorting.value = on ? "order" : name;
        }}
      >
        {text}
      </button>
    </th>
  );
}

function PairRows({ row, manySteps, manyRanks }: { row: PairRow; manySteps: boolean; manyRanks: boolean }) {
  const guilty = row.severity < 2 ? ` look v-${verdictName(row.severity)}` : "";
  const where = [
    manySteps ? `${word("step")} ${row.step}` : "",
    manyRanks ? `${word("rank")} ${row.rank}` : "",
    Math.max(...row.calls) > 0 ? `#${Math.max(...row.calls)}` : "",
  ].filter(Boolean);
  return (
    <Fragment>
      <tr class={`first${guilty}`}>
        <td rowSpan={2} class="site">
          <Glyph severity={row.severity} />{" "}
          <span>
            {row.direction === "forward" ? "" : `${wordOr(row.direction)} `}
            {row.role} {row.argument}
            {where.length > 0 && <small>{where.join(" · ")}</small>}
          </span>
        </td>
        <SideCells values={row.sides[0]} side="c" />
        <td rowSpan={2}>
          <Ruler eps={row.eps} bound={row.bound} severity={row.severity} />
        </td>
        <td rowSpan={2} class={`n mono${row.severity < 2 ? " bad" : ""}`}>
          {row.one_sided || (row.eps === null ? shown(row.error, 3) : epsilons(row.eps))}
        </td>
        <td rowSpan={2} class="n mono quiet">
          {epsilons(row.bound)}
        </td>
        <td rowSpan={2} class="from">
          {row.bound_source}
        </td>
        <td rowSpan={2} class="why">
          {row.reason}
          {row.note && <small>{row.note}</small>}
        </td>
      </tr>
      <tr class={`second${guilty}`}>
        <SideCells values={row.sides[1]} side="r" />
      </tr>
    </Fragment>
  );
}

function SideCells({ values, side }: { values: SideValues | null; side: "c" | "r" }) {
  if (!values)
    return (
      <>
        <td>
          <Badge side={side} />
        </td>
        <td colSpan={7} class="quiet">
          {"\u2013"}
        </td>
      </>
    );
  const odd = [values.nan, values.pos_inf, values.neg_inf];
  const total = odd.reduce<number>((sum, value) => sum + (typeof value === "number" ? value : 0), 0);
  const names = ["NaN", "+Inf", "\u2212Inf"].map((name, i) => (odd[i] ? `${odd[i]} ${name}` : "")).filter(Boolean);
  return (
    <>
      <td>
        <Badge side={side} />
      </td>
      <td class="mono">{values.dtype}</td>
      <td class="mono">[{values.shape.replaceAll("x", ", ")}]</td>
      {[values.min, values.max, values.mean, values.norm].map((value, number) => (
        <td key={number} class="n mono">
          {shown(value)}
        </td>
      ))}
      <td class={`n mono${total ? " nan" : ""}`} title={names.join(", ")}>
        {values.nan === null ? "\u2013" : count(total)}
      </td>
    </>
  );
}

function Matched({ found }: { found: Panel }) {
  return (
    <section>
      <h3>{word("matchedBy")}</h3>
      {found.matched_by.length === 0 && <p class="quiet">{word("unmatched")}</p>}
      {found.matched_by.map(({ reason, confidence }) => (
        <p key={reason}>
          {reason}
          <span class="quiet">
            {" "}
            · {word("confidence")} {shown(confidence, 2)}
          </span>
        </p>
      ))}
    </section>
  );
}

const CHART = { width: 240, height: 60, foot: 12 };

/** The error over steps, on the ruler's scale, with the bound as a line of ticks. */
function History({ points }: { points: HistoryPoint[] }) {
  const wide = Math.min(16, CHART.width / points.length);
  const y = (value: Num) => (1 - onRuler(value)) * (CHART.height - 4) + 2;
  return (
    <section>
      <h3>
        {word("overSteps")} <small>{word("error")}</small>
      </h3>
      <svg class="history" viewBox={`0 0 ${CHART.width} ${CHART.height + CHART.foot}`} role="img">
        {points.map((point, number) => (
          <g
            key={point.step}
            class={String(point.step) === place.value.step ? "now" : ""}
            onClick={() => go({ step: String(point.step) })}
          >
            <title>{`${word("step")} ${point.step}: ${epsilons(point.eps)} ε`}</title>
            <rect class="hit" x={number * wide} width={wide} height={CHART.height} />
            {point.eps !== null && (
              <rect
                class={`fill-${verdictName(point.severity)}`}
                x={number * wide + wide * 0.1}
                width={Math.max(0.5, wide * 0.8)}
                y={y(point.eps)}
                height={CHART.height - y(point.eps)}
              />
            )}
            {point.bound !== null && <path class="bound" d={`M${number * wide} ${y(point.bound)}h${wide}`} />}
          </g>
        ))}
        <text x="0" y={CHART.height + 10}>
          {points[0]!.step}
        </text>
        <text x={Math.max(30, wide * points.length)} y={CHART.height + 10} text-anchor="end">
          {points.at(-1)!.step}
        </text>
      </svg>
    </section>
  );
}
