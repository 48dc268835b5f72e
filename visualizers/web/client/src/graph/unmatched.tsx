/** Nodes without a partner, and which of them may be one. */
import { signal } from "@preact/signals";
import { ask, type Unmatched } from "../api";
import { Badge } from "../bar";
import { count } from "../numbers";
import { Path } from "../path";
import { selection } from "../state";
import { word } from "../words";
import { hand, matchPair } from "./hand";
import { reveal } from "./store";

const listed = signal<Unmatched | null>(null);

export async function openUnmatched(): Promise<void> {
  listed.value = await ask<Unmatched>("unmatched", selection.peek());
}

export function closeUnmatched(): void {
  listed.value = null;
}

export function UnmatchedList() {
  const found = listed.value;
  if (!found) return null;
  const path = { c: pathsOf(found.c), r: pathsOf(found.r) };
  return (
    <div class="veil" onClick={closeUnmatched}>
      <dialog open class="review unmatched" aria-label={word("unmatched")} onClick={(event) => event.stopPropagation()}>
        <h2>{word("suggestions")}</h2>
        {!found.suggestions.length && <p class="quiet">{word("noSuggestions")}</p>}
        <ul>
          {found.suggestions.map(({ c, r, signs, confidence }) => (
            <li key={`${c}:${r}`}>
              <Badge side="c" /> <Path path={path.c.get(c) ?? ""} /> <Badge side="r" /> <Path path={path.r.get(r) ?? ""} />
              <span class="quiet">
                {word("confidence")} {confidence.toFixed(2)}: {signs.map((sign) => word(sign)).join(", ")}
              </span>
              <span class="grow" />
              {hand.value?.possible && (
                <button type="button" class="do" onClick={() => void matchPair(c, r).then(openUnmatched)}>
                  {word("match")}
                </button>
              )}
            </li>
          ))}
        </ul>
        {(["c", "r"] as const).map((side) => (
          <section key={side}>
            <h2>
              <Badge side={side} /> {count(found[side].length)} {word("unmatched")}
            </h2>
            <ul>
              {found[side].map((node) => (
                <li key={node.id}>
                  <button
                    type="button"
                    class="link"
                    onClick={() => {
                      closeUnmatched();
                      void reveal(side, node.id);
                    }}
                  >
                    <Path path={node.path} />
                  </button>{" "}
                  <span class="quiet">{node.class}</span>
                </li>
              ))}
            </ul>
          </section>
        ))}
      </dialog>
    </div>
  );
}

function pathsOf(nodes: Unmatched["c"]): Map<number, string> {
  return new Map(nodes.map(({ id, path }) => [id, path]));
}
