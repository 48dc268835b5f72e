/** What is looked at: step, micro-step, rank, direction, a search, filters, and the way from source to source. */
import { signal } from "@preact/signals";
import { ask, shared, type Hit } from "../api";
import { count } from "../numbers";
import { Path } from "../path";
import { currentSource, go, jump, overview, place, selection, type Place } from "../state";
import { Glyph, VERDICTS } from "../verdicts";
import { word } from "../words";
import { Badge } from "../bar";
import { HandTools } from "./hand";
import { reveal } from "./store";

const text = signal("");
const hits = signal<{ hits: Hit[]; total: number } | null>(null);
const chosen = signal(0);

export function focusSearch(): void {
  document.querySelector<HTMLInputElement>(".search input")?.focus();
}

export function Toolbar() {
  const { axes, classes, dtypes } = overview.value!;
  if (shared)
    return (
      <div class="tools" role="toolbar">
        <Search />
        <span class="grow" />
        <Sources />
      </div>
    );
  return (
    <div class="tools" role="toolbar">
      <Stepper name="step" values={axes.steps} label={word("step")} />
      {axes.micro_steps.length > 1 && <Stepper name="micro" values={axes.micro_steps} label={word("microStep")} />}
      {axes.ranks.length > 1 && (
        <Choice name="rank" label={word("rank")} options={[["", word("all")], ...axes.ranks.map(pair)]} />
      )}
      <Choice
        name="direction"
        label={word("direction")}
        options={[
          ["", word("both")],
          ["forward", word("forward")],
          ["backward", word("backward")],
        ]}
      />
      <Search />
      <span class="grow" />
      <Choice name="verdicts" label="" options={[["", word("allVerdicts")], ...VERDICTS.map((v) => [v, word(v)] as Option)]} />
      <Choice name="class" label="" options={[["", word("allClasses")], ...classes.map((c) => [c, c] as Option)]} />
      {dtypes.length > 1 && (
        <Choice name="dtype" label="" options={[["", word("allFormats")], ...dtypes.map((d) => [d, d] as Option)]} />
      )}
      <HandTools />
      <Sources />
    </div>
  );
}

type Option = [string, string];

function pair(value: number): Option {
  return [String(value), String(value)];
}

type Key = "step" | "micro" | "rank" | "direction" | "verdicts" | "class" | "dtype";

function change(name: Key, value: string): void {
  go({ [name]: value } as Partial<Place>);
}

function Choice({ name, label, options }: { name: Key; label: string; options: Option[] }) {
  const value = place.value[name];
  return (
    <label class={`choice${value && !label ? " set" : ""}`}>
      {label}
      <select aria-label={label || name} value={value} onChange={(e) => change(name, e.currentTarget.value)}>
        {options.map(([key, shown]) => (
          <option key={key} value={key}>
            {shown}
          </option>
        ))}
      </select>
    </label>
  );
}

function Stepper({ name, values, label }: { name: "step" | "micro"; values: number[]; label: string }) {
  const at = values.indexOf(Number(place.value[name] || NaN));
  const move = (by: number) => {
    const next = values[at < 0 ? 0 : at + by];
    if (next !== undefined) change(name, String(next));
  };
  return (
    <span class="stepper">
      {label}
      <span>
        <button type="button" disabled={at <= 0} aria-label={`${label} -`} onClick={() => move(-1)}>
          {"\u2039"}
        </button>
        <select aria-label={label} value={place.value[name]} onChange={(e) => change(name, e.currentTarget.value)}>
          <option value="">{word("all")}</option>
          {values.map((value) => (
            <option key={value} value={String(value)}>
              {value}
            </option>
          ))}
        </select>
        <button type="button" disabled={at >= values.length - 1} aria-label={`${label} +`} onClick={() => move(1)}>
          {"\u203a"}
        </button>
      </span>
    </span>
  );
}

let waiting = 0;

function type(value: string): void {
  text.value = value;
  chosen.value = 0;
  clearTimeout(waiting);
  if (!value.trim()) {
    hits.value = null;
    return;
  }
  waiting = window.setTimeout(() => {
    void ask<{ hits: Hit[]; total: number }>("search", { ...selection.peek(), text: value }).then((found) => {
      if (text.peek() === value) hits.value = found;
    });
  }, 30);
}

function take(hit: Hit | undefined): void {
  if (!hit) return;
  type("");
  document.querySelector<HTMLElement>(".scroller")?.focus();
  void reveal(hit.side, hit.id);
}

function Search() {
  const found = hits.value;
  return (
    <div class="search" role="search">
      <input
        type="search"
        placeholder={word("find")}
        aria-label={word("find")}
        value={text.value}
        spellcheck={false}
        onInput={(e) => type(e.currentTarget.value)}
        onKeyDown={(e) => {
          const most = (found?.hits.length ?? 1) - 1;
          if (e.key === "ArrowDown") chosen.value = Math.min(most, chosen.value + 1);
          else if (e.key === "ArrowUp") chosen.value = Math.max(0, chosen.value - 1);
          else if (e.key === "Enter") take(found?.hits[chosen.value]);
          else if (e.key === "Escape") {
            type("");
            e.currentTarget.blur();
          } else return;
          e.preventDefault();
        }}
      />
      <kbd>/</kbd>
      {found && (
        <ul class="hits" role="listbox">
          {found.hits.slice(0, 60).map((hit, number) => (
            <li
              key={`${hit.side}${hit.id}`}
              role="option"
              aria-selected={number === chosen.value}
              onPointerDown={(event) => {
                event.preventDefault();
                take(hit);
              }}
            >
              <Glyph severity={hit.worst} /> <Path path={hit.path} />
              {hit.side === "r" && <Badge side="r" />} <span class="class">{hit.class}</span>
            </li>
          ))}
          <li class="total">{found.total ? `${count(found.total)} ${word("hits")}` : word("noHit")}</li>
        </ul>
      )}
    </div>
  );
}

function Sources() {
  const { sources } = overview.value!;
  if (!sources.length) return null;
  const at = currentSource.value;
  return (
    <span class="stepper sources">
      <span>
        <button type="button" aria-label={`${word("source")} -`} onClick={() => jump(-1)}>
          {"\u2039"}
        </button>
        <b>
          <Glyph severity={0} /> {word("source")} {at < 0 ? "\u2013" : at + 1} {"/"} {sources.length}
        </b>
        <button type="button" aria-label={`${word("source")} +`} onClick={() => jump(1)}>
          {"\u203a"}
        </button>
      </span>
    </span>
  );
}
