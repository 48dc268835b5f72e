/** The bar of every page: where one is, what is compared, and the verdict. */
import { go, overview, pages, place, runs, setTheme, theme } from "./state";
import { Glyph, VERDICTS } from "./verdicts";
import { help } from "./keys";
import { language, word, wordOr } from "./words";

const MARK_OF: Record<string, number> = {
  clean: VERDICTS.indexOf("normal"),
  "inherited only": VERDICTS.indexOf("inherited"),
  suspect: VERDICTS.indexOf("suspect"),
  introduced: VERDICTS.indexOf("introduced"),
  inconclusive: VERDICTS.indexOf("inconclusive"),
};

export function Bar() {
  const found = overview.value;
  return (
    <header class="bar">
      <span class="brand">
        <svg viewBox="0 0 20 20" width="20" height="20" aria-hidden="true">
          <path d="M1 11h4l2.2-6 4 11L14 9l1.2 2H19" />
        </svg>
        msprobe
      </span>
      <nav aria-label="pages">
        {(pages.value ?? []).map((page, number) => (
          <a
            key={page}
            href={`#/${page}`}
            class={place.value.page === page ? "here" : ""}
            aria-current={place.value.page === page ? "page" : undefined}
            onClick={(event) => {
              event.preventDefault();
              go({ page });
            }}
          >
            {word(page)} <kbd>{number + 1}</kbd>
          </a>
        ))}
      </nav>
      {found && (
        <span class="runs">
          <Badge side="c" /> <span title={found.candidate.path}>{short(found.candidate.path)}</span>
          <Badge side="r" /> <span title={found.reference.path}>{short(found.reference.path)}</span>
        </span>
      )}
      {!found && runs.value[0] && <span class="runs">{short(runs.value[0])}</span>}
      <span class="grow" />
      {found && <RunVerdict />}
      <button
        type="button"
        class="plain"
        title={word("language")}
        onClick={() => {
          language.value = language.value === "en" ? "zh" : "en";
        }}
      >
        {language.value === "en" ? "中文" : "English"}
      </button>
      <button
        type="button"
        class="plain"
        title={word("theme")}
        aria-label={word("theme")}
        onClick={() => setTheme(theme.value === "dark" ? "light" : "dark")}
      >
        {"\u25d0"}
      </button>
      <button type="button" class="plain" title={word("keys")} aria-label={word("keys")} onClick={() => help(true)}>
        ?
      </button>
    </header>
  );
}

export function Badge({ side }: { side: "c" | "r" }) {
  return (
    <span class={`badge ${side}`} title={word(side === "c" ? "candidate" : "reference")}>
      {side.toUpperCase()}
    </span>
  );
}

function RunVerdict() {
  const { verdict, sources } = overview.value!;
  const number = sources.length;
  return (
    <span class={`pill p-${verdict.replace(" ", "-")}`}>
      <Glyph severity={MARK_OF[verdict] ?? 5} /> {wordOr(verdict)}
      {number > 0 && ` · ${number} ${word(number > 1 ? "sources" : "source")}`}
    </span>
  );
}

function short(path: string): string {
  const parts = path.split("/").filter(Boolean);
  return parts.length > 2 ? `\u2026/${parts.slice(-2).join("/")}` : path;
}
