/** Numbers as people compare them: few digits, a real minus, states instead of nonsense. */
import type { Num } from "./api";

const MINUS = "\u2212";

/** Writes a statistic; what was not recorded is a dash. */
export function shown(value: Num | null | undefined, digits = 4): string {
  if (value === null || value === undefined) return "\u2013";
  if (typeof value === "string") return value.replace("-", MINUS);
  if (value === 0) return "0";
  const size = Math.abs(value);
  let text: string;
  if (size >= 1e6 || size < 1e-3) text = value.toExponential(digits - 1).replace("e+", "e");
  else if (Number.isInteger(value)) text = value.toLocaleString("en-US");
  else text = Number(value.toPrecision(digits)).toLocaleString("en-US", { maximumFractionDigits: 7 });
  return text.replaceAll("-", MINUS);
}

/** Writes an error in units of epsilon. */
export function epsilons(value: Num | null | undefined): string {
  if (value === null || value === undefined) return "\u2013";
  if (typeof value === "string") return value;
  if (value === 0) return "0";
  if (value >= 1e6) return value.toExponential(1).replace("e+", "e");
  if (value >= 100) return Math.round(value).toLocaleString("en-US");
  return String(Number(value.toPrecision(2)));
}

export function count(value: number): string {
  return value.toLocaleString("en-US");
}

/** Writes a share in per cent, never rounding a gap away. */
export function share(part: number, whole: number): string {
  if (!whole) return "\u2013";
  if (part === whole) return "100 %";
  return `${Math.min(99.9, Math.floor((part / whole) * 1000) / 10)} %`;
}

/** Writes sorted numbers as ranges: 0-3, 6. */
export function spans(numbers: number[]): string {
  const parts: string[] = [];
  for (let i = 0; i < numbers.length; ) {
    let j = i;
    while (j + 1 < numbers.length && numbers[j + 1] === numbers[j]! + 1) j++;
    parts.push(i === j ? `${numbers[i]}` : `${numbers[i]}\u2013${numbers[j]}`);
    i = j + 1;
    if (parts.length === 6 && i < numbers.length) return `${parts.join(", ")}, \u2026`;
  }
  return parts.join(", ");
}
