/** The sign of each verdict: a shape that reads without colour. The order is that of severity, the worst first. */

export const VERDICTS = [
  "introduced",
  "suspect",
  "inherited",
  "normal",
  "equal",
  "inconclusive",
  "unmatched",
] as const;

export type Verdict = (typeof VERDICTS)[number];

/** Severity of a node without a row in the selection. */
export const NOTHING = VERDICTS.length;

/** Verdicts that ask for a look, and are counted on containers. */
export const TELLING = [0, 1, 2, 5, 6];

export function verdictName(severity: number): Verdict | "nothing" {
  return VERDICTS[severity] ?? "nothing";
}

/** Draws a verdict in a box of 14 by 14. */
export function Glyph({ severity, title }: { severity: number; title?: string }) {
  const name = verdictName(severity);
  return (
    <svg class={`glyph v-${name}`} viewBox="0 0 14 14" width="14" height="14" role="img" aria-label={title ?? name}>
      {SHAPES[name]}
    </svg>
  );
}

const SHAPES = {
  introduced: <path class="fill" d="M7 1 13 7 7 13 1 7z" />,
  suspect: <path class="fill soft" d="M7 1.5 13 12.5H1z" />,
  inherited: <path class="line" d="M7 1.5v10M3 8l4 4 4-4" />,
  normal: <circle class="line" cx="7" cy="7" r="4.6" />,
  equal: (
    <g>
      <circle class="fill" cx="7" cy="7" r="5.6" />
      <path class="on" d="M4.2 5.6h5.6M4.2 8.4h5.6" />
    </g>
  ),
  inconclusive: (
    <text x="7" y="11" text-anchor="middle" class="mark">
      ?
    </text>
  ),
  unmatched: <rect class="line dashed" x="2" y="2" width="10" height="10" />,
  nothing: <circle class="fill" cx="7" cy="7" r="1.6" />,
} as const;
