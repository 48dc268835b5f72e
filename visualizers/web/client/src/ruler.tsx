/** One ruler for error and bound: a log axis from 0.1 to 10,000 epsilon, shaded up to the bound. */
import type { Num } from "./api";
import { epsilons } from "./numbers";
import { Glyph } from "./verdicts";

const LOW = -1;
const HIGH = 4;

/** Gives the place of a value on the ruler, 0 to 1. */
export function onRuler(value: Num): number {
  if (value === "NaN" || value === "+Inf") return 1;
  if (typeof value === "string" || value <= 0) return 0;
  return Math.min(1, Math.max(0, (Math.log10(value) - LOW) / (HIGH - LOW)));
}

export function Ruler({
  eps,
  bound,
  severity,
  width = 96,
}: {
  eps: Num | null;
  bound: Num | null;
  severity: number;
  width?: number;
}) {
  const said = `${epsilons(eps)} epsilon, bound ${epsilons(bound)}`;
  const inner = width - 14;
  const x = (value: Num) => 7 + onRuler(value) * inner;
  return (
    <span class="ruler" role="img" aria-label={said} title={said}>
      <svg width={width} height="14" viewBox={`0 0 ${width} 14`} aria-hidden="true">
        {bound !== null && <rect class="zone" x="7" y="4" width={Math.max(0, x(bound) - 7)} height="6" />}
        <path class="axis" d={`M7 7H${7 + inner}`} />
        {[0, 1, 2, 3, 4, 5].map((tick) => (
          <path key={tick} class="axis" d={`M${7 + (tick / 5) * inner} 5v4`} />
        ))}
        {bound !== null && <path class="bound" d={`M${x(bound)} 1v12`} />}
        {eps === 0 && <path class="exact" d="M7 2v10" />}
      </svg>
      {eps !== null && eps !== 0 && (
        <span class="at" ref={(e) => void (e && e.style.setProperty("left", `${x(eps) - 7}px`))}>
          <Glyph severity={severity} />
        </span>
      )}
    </span>
  );
}
