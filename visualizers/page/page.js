"use strict";
// The table of pairs: sorts, filters and pages through the rows that stand in the page as JSON. No text ever becomes markup.
(() => {
  const PAGE = 100;
  const byId = (id) => document.getElementById(id);
  const data = JSON.parse(byId("pairs").textContent);
  const columns = data.columns;
  const SVG = "http://www.w3.org/2000/svg";

  // [column, title, kind]: text of the cell, and how it sorts.
  const SHOWN = [
    ["verdict", "verdict", "verdict"],
    ["node", "node", "path"],
    ["site", "site", "place"],
    ["step", "step", "whole"],
    ["micro_step", "micro", "whole"],
    ["rank", "rank", "whole"],
    ["error_eps", "error \u03b5", "number"],
    ["bound_eps", "bound \u03b5", "number"],
    ["times", "times bound", "number"],
    ["format", "format", "code"],
    ["reason", "why", "why"],
  ];

  function text(name, row) {
    const column = columns[name];
    return column.texts[column.codes === 0 ? 0 : column.codes[row]] ?? "";
  }
  const value = (name, row) => columns[name][row];

  const derived = {
    site: (row) => {
      const call = Math.max(value("candidate_call", row), value("reference_call", row));
      const place = `${text("direction", row)} ${text("role", row)} ${text("argument", row)}`.trimEnd();
      return call > 0 ? `${place} call ${call}` : place;
    },
    format: (row) => {
      const sides = ["candidate", "reference"].filter((side) => value(`${side}_call`, row) >= 0)
        .map((side) => `${text(`${side}_dtype`, row)}[${text(`${side}_shape`, row)}]`);
      return [...new Set(sides)].join(" | ");
    },
    times: (row) => {
      const error = asNumber(value("error", row)), bound = asNumber(value("bound", row));
      if (error === null || bound === null) return null;
      if (error === 0) return 0;
      return written(error / bound);
    },
  };

  function written(number) {
    if (Number.isNaN(number)) return "NaN";
    return Number.isFinite(number) ? number : number > 0 ? "+Inf" : "-Inf";
  }
  function asNumber(cell) {
    if (cell === null || cell === undefined) return null;
    if (cell === "NaN") return NaN;
    if (cell === "+Inf") return Infinity;
    return cell === "-Inf" ? -Infinity : cell;
  }
  function number(cell, digits = 3) {
    if (cell === null || cell === undefined) return "\u2013";
    if (typeof cell === "string") return cell.replace("-", "\u2212");
    if (cell === 0) return Object.is(cell, -0) ? "\u22120" : "0";
    // As visualizers/numerals.py writes them; a row that is opened shows whole numbers whole and no idle zeros.
    const opened = digits > 3;
    if (opened && Number.isInteger(cell) && Math.abs(cell) < 1e6) return cell.toLocaleString("en-US").replace("-", "\u2212");
    const rounded = Number(cell.toPrecision(digits)), size = Math.abs(rounded);
    const significant = { minimumSignificantDigits: opened ? 1 : digits, maximumSignificantDigits: digits };
    let shown = size >= 1e-3 && size < 1e6 ? rounded.toLocaleString("en-US", significant) : cell.toExponential(digits - 1).replace("e+", "e");
    if (opened) shown = shown.replace(/\.?0+e/, "e");
    return shown.replaceAll("-", "\u2212");
  }
  function cellOf(name, row) {
    if (derived[name]) return derived[name](row);
    const column = columns[name];
    return Array.isArray(column) ? column[row] : text(name, row);
  }

  function element(name, className, content) {
    const made = document.createElement(name);
    if (className) made.className = className;
    if (content !== undefined) made.textContent = content;
    return made;
  }
  // No line ends inside a number such as 1.2e-06.
  const prose = (sentence) => sentence.split(/((?<![\w.])\d[\d.]*e-\d+(?!\w))/)
    .map((part, place) => (place % 2 ? element("span", "number", part) : part));
  function sign(verdict) {
    const svg = document.createElementNS(SVG, "svg");
    for (const [key, of] of [["class", "glyph"], ["width", 12], ["height", 12], ["viewBox", "0 0 12 12"], ["aria-hidden", "true"]]) svg.setAttribute(key, of);
    const use = document.createElementNS(SVG, "use");
    use.setAttribute("href", `#sign-${verdict}`);
    svg.append(use);
    return svg;
  }

  const state = { sort: null, falling: false, verdicts: new Set(), words: [], page: 0, open: new Set() };
  const searched = new Map();
  let found = [];

  function haystack(row) {
    if (!searched.has(row)) {
      const names = ["candidate_node", "reference_node", "node", "candidate_class", "reference_class", "reason", "note", "verdict"];
      searched.set(row, [...names.map((name) => text(name, row)), derived.site(row), derived.format(row)].join("\n").toLowerCase());
    }
    return searched.get(row);
  }
  function filter() {
    found = [];
    for (let row = 0; row < data.rows; row++) {
      if (state.verdicts.size && !state.verdicts.has(text("verdict", row))) continue;
      if (state.words.length && !state.words.every((word) => haystack(row).includes(word))) continue;
      found.push(row);
    }
    sort();
  }
  function sort() {
    const column = SHOWN.find(([name]) => name === state.sort);
    if (column) {
      const [name, , kind] = column;
      const keys = new Map(found.map((row) => [row, key(name, kind, row)]));
      const turn = state.falling ? -1 : 1;
      // What is absent stays at the end whichever way the column is sorted.
      found.sort((a, b) => {
        const x = keys.get(a), y = keys.get(b);
        if (x === null || y === null) return (x === null) - (y === null) || a - b;
        return (x < y ? -1 : x > y ? 1 : 0) * turn || a - b;
      });
    } else found.sort((a, b) => a - b);
    state.page = 0;
    draw();
  }
  function key(name, kind, row) {
    const cell = cellOf(name, row);
    if (kind === "verdict") return data.verdicts.indexOf(cell);
    if (kind !== "number") return cell;
    const size = asNumber(cell);
    return Number.isNaN(size) ? Number.MAX_VALUE : size;
  }

  function fill(cell, name, kind, row) {
    const content = cellOf(name, row);
    if (kind === "verdict") cell.append(sign(content), ` ${content}`);
    else if (kind === "number") {
      cell.textContent = number(content);
      if (content === null) { cell.classList.add("absent"); cell.title = "not measured"; }
      else if (typeof content === "string") {
        cell.classList.add("odd");
        if (name === "error_eps") cell.textContent = text("one_sided", row) || cell.textContent;
        if (name === "times") cell.textContent = "";
      }
      else cell.title = String(content);
    } else if (kind === "why") cell.append(...prose([content, text("note", row)].filter(Boolean).join(" \u00b7 ")));
    else cell.textContent = String(content);
  }
  function drawRow(row) {
    const verdict = text("verdict", row);
    const line = element("tr", `row ${verdict}`);
    for (const [name, , kind] of SHOWN) {
      const cell = element("td", { number: "right", whole: "right", path: "wide", why: "words long", place: "words long", verdict: "words" }[kind]);
      fill(cell, name, kind, row);
      line.append(cell);
    }
    line.tabIndex = 0;
    line.setAttribute("aria-expanded", String(state.open.has(row)));
    const toggle = () => {
      if (!state.open.delete(row)) state.open.add(row);
      const [fresh, ...rest] = drawBoth(row);
      if (line.nextSibling?.classList?.contains("detail")) line.nextSibling.remove();
      line.replaceWith(fresh, ...rest);
      fresh.focus({ preventScroll: true });
    };
    line.addEventListener("click", () => { if (!String(getSelection())) toggle(); });
    line.addEventListener("keydown", (event) => {
      if (event.key === "Enter" || event.key === " ") { event.preventDefault(); toggle(); }
    });
    return line;
  }
  const drawBoth = (row) => (state.open.has(row) ? [drawRow(row), drawDetail(row)] : [drawRow(row)]);

  function drawDetail(row) {
    const line = element("tr", "detail"), cell = element("td");
    cell.colSpan = SHOWN.length;
    const names = ["node", "class", "dtype", "shape"];
    const sides = element("table", "pair"), facts = element("table");
    addLine(sides, "th", ["", ...names, ...data.statistics.map((name) => name.replace("_", " "))]);
    for (const side of ["candidate", "reference"]) {
      const here = value(`${side}_call`, row) >= 0;
      const words = names.map((name) => text(`${side}_${name}`, row) || { node: "(root)", shape: "scalar" }[name]);
      const numbers = data.statistics.map((name) => number(value(`${side}_${name}`, row), 6));
      addLine(sides, "td", here ? [side, ...words, ...numbers] : [side, "no record", ...Array(names.length - 1 + numbers.length).fill("\u2013")]);
    }
    const from = (name) => (text(name, row) ? ` from ${text(name, row)}` : "");
    addLine(facts, "th", ["relative L2 error", "bound", "matched by", ...data.comparators]);
    addLine(facts, "td", [
      number(value("error", row), 6) + from("error_kind"),
      number(value("bound", row), 6) + (value("bound", row) === null ? "" : from("bound_source")),
      value("candidate_call", row) < 0 || value("reference_call", row) < 0 ? "\u2013" : text("match_reason", row) || "\u2013",
      ...data.comparators.map((name) => number(value(name, row), 6)),
    ]);
    cell.append(sides, facts);
    line.append(cell);
    return line;
  }
  function addLine(table, kind, cells) {
    const line = element("tr");
    line.append(...cells.map((content) => element(kind, "", content ?? "\u2013")));
    table.append(line);
  }

  function draw() {
    const body = byId("rows");
    const pages = Math.max(1, Math.ceil(found.length / PAGE));
    state.page = Math.min(state.page, pages - 1);
    const shown = found.slice(state.page * PAGE, (state.page + 1) * PAGE);
    body.replaceChildren(...shown.flatMap(drawBoth));
    if (!shown.length) {
      const line = element("tr"), cell = element("td", "empty", data.rows ? "No pair fits the filter. Clear the search or press a verdict again." : "The runs have no record to compare.");
      cell.colSpan = SHOWN.length;
      line.append(cell);
      body.append(line);
    }
    const first = found.length ? state.page * PAGE + 1 : 0;
    byId("place").textContent = `${first.toLocaleString("en-US")}\u2013${(state.page * PAGE + shown.length).toLocaleString("en-US")} of ${found.length.toLocaleString("en-US")}`;
    byId("previous").disabled = state.page === 0;
    byId("next").disabled = state.page >= pages - 1;
    for (const head of byId("heads").children) {
      if (head.dataset.column === state.sort) head.setAttribute("aria-sort", state.falling ? "descending" : "ascending");
      else head.removeAttribute("aria-sort");
    }
  }

  for (const [name, title, kind] of SHOWN) {
    const head = element("th", kind === "number" || kind === "whole" ? "right" : "");
    head.scope = "col";
    head.dataset.column = name;
    const button = element("button", "", title);
    button.type = "button";
    button.addEventListener("click", () => {
      const falls = kind === "number";
      if (state.sort !== name) { state.sort = name; state.falling = falls; }
      else if (state.falling === falls) state.falling = !falls;
      else state.sort = null;
      sort();
    });
    head.append(button);
    byId("heads").append(head);
  }
  for (const chip of document.querySelectorAll(".chip[data-verdict]")) {
    chip.addEventListener("click", () => {
      const verdict = chip.dataset.verdict;
      if (!state.verdicts.delete(verdict)) state.verdicts.add(verdict);
      chip.setAttribute("aria-pressed", String(state.verdicts.has(verdict)));
      filter();
    });
  }
  let waiting = 0;
  byId("search").addEventListener("input", (event) => {
    clearTimeout(waiting);
    waiting = setTimeout(() => { state.words = event.target.value.toLowerCase().split(/\s+/).filter(Boolean); filter(); }, 120);
  });
  byId("previous").addEventListener("click", () => { state.page--; draw(); });
  byId("next").addEventListener("click", () => { state.page++; draw(); });

  const readout = byId("readout");
  for (const cell of document.querySelectorAll(".cell")) {
    cell.addEventListener("mouseenter", () => {
      readout.replaceChildren(sign(cell.dataset.verdict), ` ${cell.dataset.verdict} `, element("span", "mono", cell.dataset.said));
    });
    cell.addEventListener("click", () => {
      byId("search").value = cell.dataset.said.replace(", ", " ");
      state.words = byId("search").value.toLowerCase().split(/\s+/);
      filter();
      byId("table").scrollIntoView();
    });
  }
  const root = document.documentElement;
  let theme = matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
  try { theme = localStorage.getItem("msprobe-theme") || theme; } catch { /* a file may have no storage */ }
  root.dataset.theme = theme;
  byId("theme").addEventListener("click", () => {
    theme = theme === "dark" ? "light" : "dark";
    root.dataset.theme = theme;
    try { localStorage.setItem("msprobe-theme", theme); } catch { /* kept for this page only */ }
  });
  filter();
})();
