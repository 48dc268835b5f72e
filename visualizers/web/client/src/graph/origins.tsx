/** Where the selected tensors come from: the code that called, and the ranks that a merged record was made of. */
import type { Frame, Origin, Panel } from "../api";
import { Badge } from "../bar";
import { Glyph } from "../verdicts";
import { word } from "../words";

/** The stacks of both sides, the innermost call first. */
export function Stacks({ found }: { found: Panel }) {
  const { stacks } = found;
  if (!stacks) return null;
  const known = stacks.filter(({ frames }) => frames.length);
  return (
    <section class="stacks">
      <h3>
        {word("stack")} <small>{known.length ? word("sourceNow") : ""}</small>
      </h3>
      {!known.length && <p class="quiet">{word("noStack")}</p>}
      {known.map(({ side, frames }) => (
        <ol key={side} aria-label={word(side === "c" ? "candidate" : "reference")}>
          {[...frames].reverse().map((frame, number) => (
            <li key={number}>
              {number === 0 && <Badge side={side} />}
              <Line frame={frame} />
            </li>
          ))}
        </ol>
      ))}
    </section>
  );
}

function Line({ frame }: { frame: Frame }) {
  const place = `${frame.file.slice(frame.file.lastIndexOf("/") + 1)}${frame.line ? `:${frame.line}` : ""}`;
  return (
    <>
      {frame.source && <code>{frame.source}</code>}
      <span class="quiet" title={`${frame.file}:${frame.line}`}>
        {place} <i>{frame.function}</i>
      </span>
    </>
  );
}

/** What a merged record was made of. */
export function Origins({ found }: { found: Panel }) {
  if (!found.origins.length) return null;
  return (
    <section class="origins">
      <h3>{word("mergedFrom")}</h3>
      {found.origins.map((origin) => (
        <OneOrigin key={`${origin.side}${origin.words}${origin.odd.join()}`} {...{ origin, found }} />
      ))}
    </section>
  );
}

function OneOrigin({ origin, found }: { origin: Origin; found: Panel }) {
  const rows = found.rows.filter(({ row }) => origin.rows.includes(row));
  const sites = [...new Set(rows.map((row) => `${row.direction} ${row.role} ${row.argument}`.trim()))];
  return (
    <div>
      <p>
        <Badge side={origin.side} /> {origin.words}
        <span class="quiet"> {sites.join(", ")}</span>
      </p>
      <ul>
        {origin.parts.map((part, number) => (
          <li
            key={number}
            class={`${part.use}${part.odd ? " odd" : ""}`}
            title={`${word("rank")} ${part.place}: ${word(part.use)} [${part.shape.join(", ")}]`}
          >
            {part.odd && <Glyph severity={0} title={word("replicaDiffers")} />} {part.place}
          </li>
        ))}
      </ul>
      {origin.odd.length > 0 && (
        <p class="t-introduced">
          {word("replicaDiffers")}: {word("rank")} {origin.odd.join(", ")}
        </p>
      )}
    </div>
  );
}
