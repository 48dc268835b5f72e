/** Keys: one list, shown by "?", and what they do anywhere. Single letters are off while typing. */
import { signal } from "@preact/signals";
import { go, jump, overview, pages, place, setTheme, theme } from "./state";
import { language, word } from "./words";

const shown = signal(false);

export function help(open: boolean): void {
  shown.value = open;
}

const handlers = new Map<string, () => void>();

/** Adds what a key does on the page that is open; gives what takes it away again. */
export function onKeys(keys: Record<string, () => void>): () => void {
  for (const [key, act] of Object.entries(keys)) handlers.set(key, act);
  return () => {
    for (const key of Object.keys(keys)) handlers.delete(key);
  };
}

function moveStep(by: number): void {
  const steps = overview.value?.axes.steps ?? [];
  const at = steps.indexOf(Number(place.value.step));
  const next = steps[at + by];
  if (at >= 0 && next !== undefined) go({ step: String(next) });
}

function moveMicro(by: number): void {
  const steps = overview.value?.axes.micro_steps ?? [];
  const at = steps.indexOf(Number(place.value.micro));
  const next = steps[at + by];
  if (at >= 0 && next !== undefined) go({ micro: String(next) });
}

function open(number: number): void {
  const page = pages.value?.[number];
  if (page) go({ page });
}

const EVERYWHERE: Record<string, () => void> = {
  "1": () => open(0),
  "2": () => open(1),
  "3": () => open(2),
  n: () => jump(1),
  p: () => jump(-1),
  "[": () => moveStep(-1),
  "]": () => moveStep(1),
  "{": () => moveMicro(-1),
  "}": () => moveMicro(1),
  t: () => setTheme(theme.value === "dark" ? "light" : "dark"),
  l: () => {
    language.value = language.value === "en" ? "zh" : "en";
  },
  "?": () => help(!shown.value),
};

addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === "Escape" && shown.value) return help(false);
  const typing = event.target instanceof HTMLElement && event.target.closest("input, select, textarea");
  if (typing) return;
  const act = handlers.get(event.key) ?? EVERYWHERE[event.key];
  if (!act) return;
  event.preventDefault();
  act();
});

export function KeyList() {
  if (!shown.value) return null;
  const list: [string, string][] = [
    ["1 2 3", `${word("overview")}, ${word("graph")}, ${word("trend")}`],
    ["/", word("find")],
    ["n p", word("nextSource")],
    ["\u2191 \u2193 \u2190 \u2192", word("move")],
    ["Enter", word("selectNode")],
    ["[ ]", `${word("step")}: ${word("stepBack")}`],
    ["{ }", `${word("microStep")}: ${word("stepBack")}`],
    ["f F", word("followFlow")],
    ["m u", `${word("match")}, ${word("unmatch")}`],
    ["z Z", `${word("undo")}, ${word("redo")}`],
    ["c", word("copyPath")],
    ["t", word("theme")],
    ["l", word("language")],
    ["Esc", word("close")],
  ];
  return (
    <div class="veil" onClick={() => help(false)}>
      <dialog open class="keys" aria-label={word("keys")} onClick={(event) => event.stopPropagation()}>
        <h2>{word("keys")}</h2>
        <dl>
          {list.map(([key, does]) => [<dt key={key}>{key}</dt>, <dd key={`${key} does`}>{does}</dd>])}
        </dl>
      </dialog>
    </div>
  );
}
