import { render } from "preact";
import { Bar } from "./bar";
import { GraphPage } from "./graph/page";
import { KeyList } from "./keys";
import { OverviewPage } from "./overview/page";
import { load, overview, pages, place, problem } from "./state";
import { TrendPage } from "./trend/page";
import "./styles/tokens.css";
import "./styles/page.css";
import "./styles/overview.css";
import "./styles/graph.css";
import "./styles/trend.css";

function Page() {
  if (place.value.page === "trend") return pages.value && <TrendPage />;
  if (!overview.value) return null;
  return place.value.page === "graph" ? <GraphPage /> : <OverviewPage />;
}

function App() {
  return (
    <>
      <Bar />
      {problem.value ? (
        <main class="problem" aria-live="assertive">
          {problem.value}
        </main>
      ) : (
        <Page />
      )}
      <KeyList />
    </>
  );
}

render(<App />, document.getElementById("app")!);
void load();
