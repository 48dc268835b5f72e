/** A path whose end always shows: the head is quiet and may shrink. */
import { signal } from "@preact/signals";
import { word } from "./words";

const LAST = 3;

export function Path({ path }: { path: string }) {
  const { head, tail } = split(path);
  return (
    <span class="path" title={path}>
      {head && <span class="head">{head}</span>}
      <span class="tail">{tail}</span>
    </span>
  );
}

/** Splits a path before its last segments. */
export function split(path: string): { head: string; tail: string } {
  const slash = path.indexOf("/");
  const module = slash < 0 ? path : path.slice(0, slash);
  const parts = module.split(".");
  const kept = parts.slice(-LAST).join(".") + (slash < 0 ? "" : path.slice(slash));
  return { head: path.slice(0, path.length - kept.length), tail: kept };
}

function CopyMark() {
  return (
    <svg viewBox="0 0 14 14" width="12" height="12" aria-hidden="true">
      <path d="M4.5 4.5h7v8h-7zM2.5 9.5v-8h7" />
    </svg>
  );
}

const copied = signal("");

export function Copy({ text }: { text: string }) {
  const done = copied.value === text;
  return (
    <button
      class="copy"
      type="button"
      title={word("copyPath")}
      aria-label={word("copyPath")}
      onClick={() => void copy(text)}
    >
      {done ? word("copied") : <CopyMark />}
    </button>
  );
}

export async function copy(text: string): Promise<void> {
  try {
    await navigator.clipboard.writeText(text);
    copied.value = text;
    setTimeout(() => {
      copied.value = "";
    }, 1500);
  } catch {
    // The browser may refuse; the path can still be selected by hand.
  }
}
