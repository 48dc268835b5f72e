/** The third axis as a slider: pooled over all of it, or at one value; play walks through it. */
import { signal } from "@preact/signals";
import { word } from "../words";
import { nameOf } from "./heat";
import { moveThird, valuesOfThird } from "./page";
import { about, fixed, set, third } from "./store";

const playing = signal(0);

function play(): void {
  if (playing.value) {
    clearInterval(playing.value);
    playing.value = 0;
    return;
  }
  playing.value = window.setInterval(() => {
    const values = valuesOfThird();
    if (Number(fixed.peek() || NaN) === values.at(-1)) play();
    else moveThird(1);
  }, 250);
}

export function Barcode() {
  if (!about.value) return null;
  const axis = third.value;
  const values = valuesOfThird();
  if (values.length < 2) return null;
  const at = fixed.value === "" ? -1 : values.indexOf(Number(fixed.value));
  return (
    <div class="third">
      <button type="button" class="play" aria-label={word("play")} onClick={play}>
        {playing.value ? "\u275a\u275a" : "\u25b6"}
      </button>
      <label>
        <span class="quiet">{word(axis === "site" ? "module" : axis)}</span>{" "}
        <b>{at < 0 ? word("all") : nameOf(axis, values[at]!)}</b>
      </label>
      <input
        type="range"
        min={-1}
        max={values.length - 1}
        value={at}
        aria-label={word(axis === "site" ? "module" : axis)}
        onInput={(e) => {
          const next = Number(e.currentTarget.value);
          set({ at: next < 0 ? "" : String(values[next]) }, "replace");
        }}
      />
    </div>
  );
}
