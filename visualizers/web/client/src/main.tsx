import { render } from "preact";
import { Bar } from "./bar";
import { GraphPage } from "./graph/page";
import { KeyList } from "./keys";
import { OverviewPage } from "./overview/page";
import { load, overview, place, problem } from "./state";
import "./styles/tokens.css";
import "./styles/page.css";
import "./styles/overview.css";
import "./styles/graph.css";

function App() {
  return (
    <>
      <Bar />
      {problem.value ? (
        <main class="problem" aria-live="assertive">
          {problem.value}
        </main>
      ) : (
        overview.value && (place.value.page === "graph" ? <GraphPage /> : <OverviewPage />)
      )}
      <KeyList />
    </>
  );
}

render(<App />, document.getElementById("app")!);
void load();
