/** What both recordings noted of themselves, each with its way to the trend. */
import { ask, type AlertData, type Overview } from "../api";
import { Badge } from "../bar";
import { count } from "../numbers";
import { Path } from "../path";
import { go, pages } from "../state";
import type { About } from "../trend/api";
import { word } from "../words";

const SHOWN = 40;

export function Alerts({ found }: { found: Overview }) {
  if (!found.alerts.length) return null;
  return (
    <section>
      <h2>{word("alerts")}</h2>
      <ul class="findings alerts">
        {found.alerts.slice(0, SHOWN).map((alert, number) => (
          <li key={number}>
            <Badge side={alert.side} /> <b>{alert.rule || alert.kind}</b> {alert.text}{" "}
            {alert.count > 1 && <small>{`${count(alert.count)}\u00d7 `}</small>}
            <small>{`${word("step")} ${alert.step} \u00b7 ${word("rank")} ${alert.rank} `}</small>
            {alert.node && pages.value?.includes("trend") && (
              <button type="button" class="link accent" onClick={() => void showTrend(alert)}>
                <Path path={alert.node} />
              </button>
            )}
          </li>
        ))}
        {found.alerts.length > SHOWN && <li>{`+ ${count(found.alerts.length - SHOWN)}`}</li>}
      </ul>
    </section>
  );
}

/** Opens the trend at the cell of an alert; where its site is not in the index, at the rows of its node. */
async function showTrend(alert: AlertData): Promise<void> {
  const run = alert.side === "r" ? "1" : "0";
  const trend: Record<string, string> = { ...(run === "1" ? { run } : {}), find: alert.node };
  const about = await ask<About>("trend", { run });
  const { site, node, label, kind } = about.sites;
  const at = site.findIndex((_, i) => about.nodes[node[i]!] === alert.node && about.labels[label[i]!] === alert.site);
  if (at >= 0) {
    trend["cell"] = `${alert.step}.${alert.rank}.${site[at]!}`;
    const name = about.kinds.find(({ number }) => number === kind[at])?.name;
    if (name) trend["kind"] = name;
  }
  go({ page: "trend", trend });
}
