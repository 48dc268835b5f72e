/** The answer first: the sentence, then what it covers, the whole model in one look, and the evidence. */
import type { Overview, PairRow, SourceData } from "../api";
import { count, epsilons, share, spans } from "../numbers";
import { Copy, Path } from "../path";
import { Ruler } from "../ruler";
import { atSource, go, overview } from "../state";
import { Glyph, VERDICTS } from "../verdicts";
import { word, wordOr } from "../words";
import { Alerts } from "./alerts";
import { StripCard } from "./strip";

export function OverviewPage() {
  const found = overview.value!;
  return (
    <main class="overview">
      <section class="answer">
        <Sentence found={found} />
        <StripCard strip={found.strip} />
        {found.sources.length > 0 && (
          <>
            <h2>
              {word("independentSources")} <small>{word("rulerHint")}</small>
            </h2>
            <div class="cards">
              {found.sources.slice(0, 24).map((source, number) => (
                <SourceCard key={number} source={source} />
              ))}
            </div>
          </>
        )}
      </section>
      <aside>
        <CoverageCard found={found} />
        <Counts found={found} />
        <Alerts found={found} />
        <Findings found={found} />
        <Differences found={found} />
      </aside>
    </main>
  );
}

/** The sentence of the engine, with the name of the first source set off. */
function Sentence({ found }: { found: Overview }) {
  const node = found.sources[0]?.node ?? "";
  const at = node ? found.sentence.indexOf(node) : -1;
  const [first, ...rest] = at < 0 ? [found.sentence] : [found.sentence.slice(0, at)];
  return (
    <p class={`sentence s-${found.verdict.replace(" ", "-")}`}>
      {first}
      {rest}
      {at >= 0 && (
        <>
          <button type="button" class="guilty" onClick={() => go({ page: "graph", ...atSource(found.sources[0]!) })}>
            {node}
          </button>
          {found.sentence.slice(at + node.length)}
        </>
      )}
    </p>
  );
}

function SourceCard({ source }: { source: SourceData }) {
  const open = () => go({ page: "graph", ...atSource(source) });
  const where = [
    wordOr(source.direction),
    source.argument ? `${source.role} ${source.argument}` : source.role,
    `${word("step")} ${source.step}`,
    `${word("rank")} ${spans(source.ranks.length ? source.ranks : [source.rank])}`,
  ];
  return (
    <article class={`card source v-${source.verdict}`}>
      <h3>
        <Glyph severity={VERDICTS.indexOf(source.verdict as never)} />
        <Path path={source.node || source.site} /> <Copy text={source.node || source.site} />
      </h3>
      <p class="quiet">
        {source.node_class && <code>{source.node_class}</code>} {where.join(" · ")}
      </p>
      {source.rows.length > 0 && (
        <table class="rulers">
          <thead>
            <tr>
              <th>{word("site")}</th>
              <th />
              <th class="n">{word("error")}</th>
              <th class="n">{word("bound")}</th>
            </tr>
          </thead>
          <tbody>
            {source.rows.map((row) => (
              <RulerRow key={row.row} row={row} />
            ))}
          </tbody>
        </table>
      )}
      <p class="said">{source.sentence}</p>
      {source.evidence.length > 0 && (
        <ul class="evidence" aria-label={word("evidence")}>
          {source.evidence.map((text) => (
            <li key={text}>{text}</li>
          ))}
        </ul>
      )}
      <footer>
        <a
          href="#/graph"
          onClick={(event) => {
            event.preventDefault();
            open();
          }}
        >
          {word("openInGraph")}
        </a>
        {source.occurrences > 1 && (
          <span class="quiet">
            {word("reaches")} {count(source.occurrences)} {word("pairs")}
          </span>
        )}
      </footer>
    </article>
  );
}

function RulerRow({ row }: { row: PairRow }) {
  const bad = row.severity < 2;
  return (
    <tr>
      <td class="mono">
        {row.role} {row.argument}
      </td>
      <td>
        <Ruler eps={row.eps} bound={row.bound} severity={row.severity} width={200} />
      </td>
      <td class={`n mono${bad ? " bad" : ""}`}>{row.eps === 0 ? word("equal") : epsilons(row.eps)}</td>
      <td class="n mono">{epsilons(row.bound)}</td>
    </tr>
  );
}

function CoverageCard({ found }: { found: Overview }) {
  const { coverage, constants } = found;
  const rows = [
    ["matched", coverage.matched, coverage.records, constants["min_matched"]],
    ["aligned", coverage.aligned, coverage.matched, undefined],
    ["judged", coverage.judged, coverage.matched, constants["min_coverage"]],
  ] as const;
  return (
    <section>
      <h2>
        {word("coverage")} <small>{word("minimum")}</small>
      </h2>
      {rows.map(([name, part, whole, least]) => (
        <div class="meter" key={name}>
          <span>{word(name)}</span>
          <strong>{share(part, whole)}</strong>
          <Meter part={part} whole={whole} least={least} />
          <small>
            {count(part)} {word("ofRecords")} {count(whole)} {word("records")}
          </small>
        </div>
      ))}
    </section>
  );
}

function Meter({ part, whole, least }: { part: number; whole: number; least: number | undefined }) {
  const filled = whole ? part / whole : 0;
  return (
    <svg class="track" viewBox="0 0 100 6" preserveAspectRatio="none" aria-hidden="true">
      <rect class="ground" width="100" height="6" />
      <rect class="part" width={filled * 100} height="6" />
      {least !== undefined && <rect class="least" x={least * 100 - 0.3} width="0.6" height="6" />}
    </svg>
  );
}

function Counts({ found }: { found: Overview }) {
  const most = Math.max(1, ...Object.values(found.counts));
  return (
    <section>
      <h2>
        {word("verdicts")} <small>{count(found.pairs)}</small>
      </h2>
      <table class="counts">
        <tbody>
          {VERDICTS.map((name, severity) => (
            <tr key={name} title={found.verdicts[severity]?.meaning}>
              <td>
                <Glyph severity={severity} />
              </td>
              <td>
                <button
                  type="button"
                  class="link"
                  disabled={!found.counts[name]}
                  onClick={() => go({ page: "graph", verdicts: name })}
                >
                  {word(name)}
                </button>
              </td>
              <td class="wide">
                <svg viewBox="0 0 100 8" preserveAspectRatio="none" aria-hidden="true">
                  <rect class={`fill-${name}`} width={Math.sqrt((found.counts[name] ?? 0) / most) * 100} height="8" />
                </svg>
              </td>
              <td class="n mono">{count(found.counts[name] ?? 0)}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </section>
  );
}

function Findings({ found }: { found: Overview }) {
  if (!found.findings.length) return null;
  return (
    <section>
      <h2>{word("findings")}</h2>
      <ul class="findings">
        {found.findings.slice(0, 40).map((finding) => (
          <li key={finding.text}>
            <b>{finding.kind}</b> {finding.text}
          </li>
        ))}
      </ul>
    </section>
  );
}

function Differences({ found }: { found: Overview }) {
  if (!found.context.length) return null;
  return (
    <section>
      <h2>{word("differs")}</h2>
      <table class="differs">
        <thead>
          <tr>
            <th />
            <th>{word("candidate")}</th>
            <th>{word("reference")}</th>
          </tr>
        </thead>
        <tbody>
          {found.context.slice(0, 60).map((item, number) => (
            <tr key={number}>
              <td>
                {item.node && <Path path={item.node} />} {item.name}
              </td>
              <td class="mono">{item.candidate}</td>
              <td class="mono">{item.reference}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </section>
  );
}
