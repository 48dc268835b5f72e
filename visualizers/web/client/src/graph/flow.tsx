/** Where the data of the selected node comes from and goes to; a click, or the key f, follows it. */
import type { Neighbour, Panel } from "../api";
import { Badge } from "../bar";
import { Path } from "../path";
import { place } from "../state";
import { Glyph } from "../verdicts";
import { word } from "../words";
import { panel, reveal } from "./store";

export function Flow({ found }: { found: Panel }) {
  const known = found.flow.filter(({ before, after }) => before.length || after.length);
  if (!known.length) return null;
  return (
    <section class="flow">
      <h3>
        {word("dataFlow")} <small>{word(place.value.direction === "backward" ? "backward" : "forward")}</small>
      </h3>
      {known.map(({ side, before, after }) => (
        <div key={side}>
          <Badge side={side} />
          <ul>
            {before.map((node) => (
              <Step key={`b${node.id}`} {...{ node, side }} sign={"\u2190"} name={word("comesFrom")} />
            ))}
            {after.map((node) => (
              <Step key={`a${node.id}`} {...{ node, side }} sign={"\u2192"} name={word("goesTo")} />
            ))}
          </ul>
        </div>
      ))}
    </section>
  );
}

function Step({ node, side, sign, name }: { node: Neighbour; side: "c" | "r"; sign: string; name: string }) {
  return (
    <li>
      <span title={name} aria-label={name}>
        {sign}
      </span>{" "}
      <Glyph severity={node.worst} />{" "}
      <button type="button" class="link" onClick={() => void reveal(side, node.id)}>
        <Path path={node.path} />
      </button>
    </li>
  );
}

/** Goes to the first node along the data flow of the side that has one. */
export function follow(way: "before" | "after"): void {
  for (const sides of panel.peek()?.flow ?? [])
    if (sides[way][0]) return void reveal(sides.side, sides[way][0].id);
}
